/*
 * Connecting with rdma_cm: the initiator's side whole, the responder's from the accepted request
 * on. One channel a link; the same queues and the same rules for both ends. Loop's thread.
 *
 * On iWARP the connecting end must be the first to send (rdma_connect(3)): the initiator says hello
 * as soon as it is connected, and the responder is up when it has heard it.
 */
#include "link/verbs/priv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define ACK_TIMEOUT                                                                                \
	17	      /* 4.096 us x 2^17 = 0.54 s, 8 tries: a dead path is noticed in about 4 s    \
		       */
#define RETRIES	    7 /* the most that 3 bits say */
#define RNR_RETRIES 6 /* of 0.64 ms each: credits make RNR a fault, not a mode */

struct rdma_event_channel *rcp_verbs_cm_channel(struct rcp_err *err)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();

	if (!channel) {
		errno = rcp_verbs_open_errno("/dev/infiniband/rdma_cm");
		rcp_verbs_err_errno(err, RCP_E_CONNECT, "rdma_create_event_channel", NULL);
	}
	return channel;
}

/* A kernel that doesn't know an option keeps its own value. */
void rcp_verbs_cm_options(const struct rcp_rdma *rdma, struct rdma_cm_id *id)
{
	uint8_t timeout = ACK_TIMEOUT, tos = (uint8_t)rdma->options.tos;

	rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof(timeout));
	if (rdma->options.tos >= 0)
		rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof(tos));
}

int rcp_verbs_cm_next(struct rdma_event_channel *channel, struct verbs_cm_event *out)
{
	struct rdma_cm_event *e;

	if (rdma_get_cm_event(channel, &e) != 0)
		return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? RCP_AGAIN : -2;
	memset(out, 0, sizeof(*out));
	out->type = e->event;
	out->status = e->status;
	out->id = e->id;
	out->listen_id = e->listen_id;
	if (e->param.conn.private_data) {
		out->len = e->param.conn.private_data_len;
		if (out->len > sizeof(out->data))
			out->len = sizeof(out->data);
		memcpy(out->data, e->param.conn.private_data, out->len);
	}
	/* Destroying or migrating the id waits for this. */
	rdma_ack_cm_event(e);
	return 0;
}

static void fail_errno(struct verbs_link *v, const char *call)
{
	struct rcp_err e = {0};

	rcp_verbs_err_errno(&e, rcp_verbs_link_code(v), call, v->name);
	rcp_verbs_link_fail(v, &e);
}

static void conn_param(const struct verbs_link *v, uint8_t data[VERBS_PRIVATE_BYTES],
		       struct rdma_conn_param *param)
{
	struct verbs_private p = {.attempt = v->attempt};

	memcpy(p.proof, v->proof.mine, sizeof(p.proof));
	memcpy(p.session, v->proof.session, sizeof(p.session));
	rcp_verbs_private_encode(&p, data);
	/* Nothing is ever read, but some iWARP devices want one read of depth to connect. */
	*param = (struct rdma_conn_param){
		.private_data = data,
		.private_data_len = VERBS_PRIVATE_BYTES,
		.responder_resources = 1,
		.initiator_depth = 1,
		.flow_control = 1,
		.retry_count = RETRIES,
		.rnr_retry_count = RNR_RETRIES,
	};
}

static void on_address(struct verbs_link *v, const struct verbs_cm_event *ev)
{
	struct rcp_err e = {0};
	const struct ibv_context *ctx = v->conn.id->verbs;

	(void)ev;
	if (!ctx || strcmp(ibv_get_device_name(ctx->device), v->port->device) != 0 ||
	    v->conn.id->port_num != v->port->number) {
		rcp_err_set(&e, RCP_E_CONNECT, 0, "rdma_resolve_addr", v->name,
			    "the route to the peer leaves by %s",
			    ctx ? ibv_get_device_name(ctx->device) : "no RDMA device");
		rcp_err_fix(&e, "choose that device with --device, or mend the routing table");
		rcp_verbs_link_fail(v, &e);
		return;
	}
	v->state = VERBS_ROUTE;
	if (rdma_resolve_route(v->conn.id, (int)v->deadline_ms) != 0)
		fail_errno(v, "rdma_resolve_route");
}

static void on_route(struct verbs_link *v, const struct verbs_cm_event *ev)
{
	uint8_t data[VERBS_PRIVATE_BYTES];
	struct rdma_conn_param param;
	struct rcp_err e = {0};

	(void)ev;
	if (rcp_verbs_conn_make(v, v->conn.id->verbs, &e) != 0) {
		rcp_verbs_link_fail(v, &e);
		return;
	}
	conn_param(v, data, &param);
	v->state = VERBS_CONNECT;
	if (v->port->transport == RCP_RDMA_IWARP) {
		/* It returns when TCP has been answered, which may be minutes: not on the loop. */
		if (rcp_verbs_dial(v, &param, &e) != 0)
			rcp_verbs_link_fail(v, &e);
	} else if (rdma_connect(v->conn.id, &param) != 0) {
		fail_errno(v, "rdma_connect");
	}
}

void rcp_verbs_cm_dialled(struct verbs_link *v)
{
	int rc = v->conn.dial ? rcp_verbs_dial_end(&v->conn) : 0;

	if (!rc)
		return;
	errno = rc;
	fail_errno(v, "rdma_connect");
}

static void on_established(struct verbs_link *v, const struct verbs_cm_event *ev)
{
	struct verbs_private p;
	struct rcp_err e = {0};

	v->connected = true;
	/* TCP has been answered, so the call has returned or is about to. From here on the connection
	 * is the link's, whose registrations and slots are others': not to be left to the thread. */
	if (v->conn.dial)
		rcp_verbs_dial_end(&v->conn);
	if (!rcp_verbs_private_decode(ev->data, ev->len, &p) || p.attempt != v->attempt ||
	    !rcp_verbs_same(p.session, v->proof.session, sizeof(p.session)) ||
	    !rcp_verbs_same(p.proof, v->proof.theirs, sizeof(p.proof))) {
		rcp_err_set(&e, RCP_E_CONNECT, EACCES, NULL, v->name,
			    "what answers there doesn't know this session's secret");
		rcp_verbs_link_fail(v, &e);
		return;
	}
	/* A handshake doesn't prove that data gets there: the hello's completion does, where it is the
	 * other device's answer (queue.c). On iWARP it is TCP's, which has answered. */
	if (rcp_verbs_hello_send(v, &e) != 0)
		rcp_verbs_link_fail(v, &e);
	else if (v->port->transport == RCP_RDMA_IWARP)
		rcp_verbs_link_up(v);
}

/* The responder's: up when the hello has come too. */
static void on_accepted(struct verbs_link *v, const struct verbs_cm_event *ev)
{
	(void)ev;
	v->established = true;
	if (v->greeted)
		rcp_verbs_link_up(v);
}

static void on_nothing(struct verbs_link *v, const struct verbs_cm_event *ev)
{
	(void)v;
	(void)ev;
}

static void on_error(struct verbs_link *v, const struct verbs_cm_event *ev)
{
	static const char *const calls[VERBS_STATES] = {
		[VERBS_ADDRESS] = "rdma_resolve_addr",
		[VERBS_ROUTE] = "rdma_resolve_route",
		[VERBS_CONNECT] = "rdma_connect",
		[VERBS_GREET] = "rdma_accept",
	};
	struct rcp_err e = {0};
	/* A negative status is an errno; a positive one is InfiniBand's reason for a reject. */
	int reason = ev->status < 0 ? -ev->status : 0;

	if (ev->type == RDMA_CM_EVENT_UNREACHABLE && !reason)
		reason = ETIMEDOUT;
	if (reason)
		rcp_err_set(&e, rcp_verbs_link_code(v), reason, calls[v->state], v->name, NULL);
	else
		rcp_err_set(&e, rcp_verbs_link_code(v), 0, calls[v->state], v->name,
			    "%s (status %d)", rdma_event_str(ev->type), ev->status);
	rcp_verbs_err_fix(&e);
	rcp_verbs_link_fail(v, &e);
}

static void on_rejected(struct verbs_link *v, const struct verbs_cm_event *ev)
{
	unsigned why = rcp_verbs_reject_decode(ev->data, ev->len);
	struct rcp_err e = {0};

	if (why == VERBS_REJECT_PROOF)
		rcp_err_set(&e, RCP_E_CONNECT, EACCES, "rdma_connect", v->name,
			    "the peer expects no such connection or refuses its proof");
	else if (why == VERBS_REJECT_RESOURCES)
		rcp_err_set(&e, RCP_E_CONNECT, 0, "rdma_connect", v->name,
			    "the peer could not set the connection up");
	else
		rcp_err_set(&e, RCP_E_CONNECT, ECONNREFUSED, "rdma_connect", v->name,
			    "nothing listens there, or something that isn't rcp (status %d)",
			    ev->status);
	rcp_verbs_err_fix(&e);
	rcp_verbs_link_fail(v, &e);
}

static void on_disconnected(struct verbs_link *v, const struct verbs_cm_event *ev)
{
	(void)ev;
	/* What the peer sent before it left still counts. */
	if (v->conn.cq)
		rcp_verbs_queue_drain(v);
	rcp_verbs_link_left(v);
}

static void on_removal(struct verbs_link *v, const struct verbs_cm_event *ev)
{
	struct rcp_err e = {0};

	(void)ev;
	rcp_err_set(&e, RCP_E_LINK, ENODEV, NULL, v->name, "the RDMA device was removed");
	rcp_verbs_link_fail(v, &e);
}

#define IN(state) (1u << (state))
#define IN_CONNECTING                                                                              \
	(IN(VERBS_OFFLINE) | IN(VERBS_ADDRESS) | IN(VERBS_ROUTE) | IN(VERBS_CONNECT) |             \
	 IN(VERBS_GREET))
#define IN_ANY (IN_CONNECTING | IN(VERBS_UP) | IN(VERBS_CLOSING))

/* The first rule that fits. What is not listed is an error; draining links listen no more. */
static const struct cm_rule {
	enum rdma_cm_event_type type;
	unsigned states;
	void (*act)(struct verbs_link *v, const struct verbs_cm_event *ev);
} rules[] = {
	{RDMA_CM_EVENT_ADDR_RESOLVED, IN(VERBS_ADDRESS), on_address},
	{RDMA_CM_EVENT_ROUTE_RESOLVED, IN(VERBS_ROUTE), on_route},
	{RDMA_CM_EVENT_ESTABLISHED, IN(VERBS_CONNECT), on_established},
	{RDMA_CM_EVENT_ESTABLISHED, IN(VERBS_GREET), on_accepted},
	{RDMA_CM_EVENT_REJECTED, IN_CONNECTING, on_rejected},
	{RDMA_CM_EVENT_DISCONNECTED, IN_ANY, on_disconnected},
	{RDMA_CM_EVENT_DEVICE_REMOVAL, IN_ANY, on_removal},
	{RDMA_CM_EVENT_ADDR_CHANGE, IN_ANY, on_nothing},
	{RDMA_CM_EVENT_TIMEWAIT_EXIT, IN_ANY, on_nothing},
};

static void dispatch(struct verbs_link *v, const struct verbs_cm_event *ev)
{
	if (v->state >= VERBS_DRAIN)
		return;
	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
		if (rules[i].type == ev->type && (rules[i].states & IN(v->state))) {
			rules[i].act(v, ev);
			return;
		}
	}
	on_error(v, ev);
}

void rcp_verbs_cm_readable(struct verbs_link *v)
{
	struct verbs_cm_event ev;
	int ret;

	while ((ret = rcp_verbs_cm_next(v->conn.cm_channel, &ev)) == 0)
		dispatch(v, &ev);
	if (ret != RCP_AGAIN)
		fail_errno(v, "rdma_get_cm_event");
}

static int start(struct verbs_link *v, struct rcp_err *err)
{
	struct verbs_conn *c = &v->conn;

	if (v->local.ss_family != v->remote.ss_family)
		return rcp_err_set(err, RCP_E_CONNECT, EAFNOSUPPORT, NULL, v->name,
				   "the two addresses are of different families");
	c->cm_channel = rcp_verbs_cm_channel(err);
	if (!c->cm_channel)
		return (int)err->code;
	if (rdma_create_id(c->cm_channel, &c->id, v, RDMA_PS_TCP) != 0)
		return rcp_verbs_err_errno(err, RCP_E_CONNECT, "rdma_create_id", v->name);
	rcp_verbs_cm_options(v->rdma, c->id);
	if (rcp_verbs_io_watch(v->io, VERBS_FD_CM, c->cm_channel->fd, err) != 0)
		return (int)err->code;
	if (rdma_resolve_addr(c->id, (struct sockaddr *)&v->local, (struct sockaddr *)&v->remote,
			      (int)v->deadline_ms) != 0)
		return rcp_verbs_err_errno(err, RCP_E_CONNECT, "rdma_resolve_addr", v->name);
	return 0;
}

int rcp_rdma_connect(struct rcp_rdma *rdma, struct uv_loop_s *loop,
		     const struct rcp_link_params *params, const struct rcp_rdma_connect *how,
		     struct rcp_err *err, struct rcp_link **out)
{
	struct verbs_link *v;

	*out = NULL;
	if (rcp_verbs_link_new(rdma, loop, how->local_port, params, how->peer_imm, err, &v) != 0)
		return (int)err->code;
	v->proof = how->proof;
	v->local = how->local;
	v->remote = how->remote;
	rcp_verbs_addr_set_port(&v->local, 0);
	/* A link-local address of the peer's means something only on this end's netdev. */
	if (v->remote.ss_family == AF_INET6 && rcp_verbs_addr_link_local(&v->remote))
		((struct sockaddr_in6 *)&v->remote)->sin6_scope_id =
			rcp_verbs_addr_scope(&v->local);
	v->deadline_ms = how->deadline_ms;
	v->link.caps.chunk_bytes =
		rcp_verbs_chunk_bytes(v->link.caps.chunk_bytes, how->peer_max_msg_bytes);
	rcp_verbs_link_name(v);
	v->state = VERBS_ADDRESS;
	if (start(v, err) != 0) {
		rcp_verbs_link_abandon(v);
		return (int)err->code;
	}
	rcp_verbs_io_timer(v->io, v->deadline_ms);
	*out = &v->link;
	return 0;
}

static int accept_now(struct verbs_link *v, struct rcp_err *err)
{
	uint8_t data[VERBS_PRIVATE_BYTES];
	struct rdma_conn_param param;
	struct verbs_conn *c = &v->conn;

	c->cm_channel = rcp_verbs_cm_channel(err);
	if (!c->cm_channel)
		return (int)err->code;
	if (rdma_migrate_id(c->id, c->cm_channel) != 0)
		return rcp_verbs_err_errno(err, RCP_E_CONNECT, "rdma_migrate_id", v->name);
	rcp_verbs_cm_options(v->rdma, c->id);
	if (rcp_verbs_io_watch(v->io, VERBS_FD_CM, c->cm_channel->fd, err) != 0 ||
	    rcp_verbs_conn_make(v, c->id->verbs, err) != 0)
		return (int)err->code;
	conn_param(v, data, &param);
	if (rdma_accept(c->id, &param) != 0)
		return rcp_verbs_err_errno(err, RCP_E_CONNECT, "rdma_accept", v->name);
	return 0;
}

void rcp_verbs_cm_accept(struct verbs_link *v, struct rdma_cm_id *id)
{
	struct rcp_err e = {0};
	uint8_t why[VERBS_REJECT_BYTES];

	v->conn.id = id;
	id->context = v;
	v->state = VERBS_GREET;
	if (accept_now(v, &e) == 0) {
		v->connected = true;
		return;
	}
	rcp_verbs_reject_encode(VERBS_REJECT_RESOURCES, why);
	rdma_reject(id, why, sizeof(why));
	rcp_verbs_link_fail(v, &e);
}
