/*
 * A verbs link's life: made, connecting, up, closing or failed, drained, down. Which end it is and
 * how it was connected is other files' business. Loop's thread, but for reg and unreg.
 */
#include "link/verbs/priv.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLOSE_MS 2000u /* after a wanted close, for the next post or the last credits to end */
#define STALL_MS 10000 /* a request ends before that: retries are exceeded after about 4 s */
#define DRAIN_MS 1000  /* for flushes, once the QP is in error (siw may keep some for ever) */

struct rcp_mem {
	struct ibv_mr *mr;
	bool read_only; /* a file's mapping: nobody fills it again */
};

static void on_readable(void *arg, enum verbs_fd which)
{
	struct verbs_link *v = arg;

	if (which == VERBS_FD_CM)
		rcp_verbs_cm_readable(v);
	else if (which == VERBS_FD_DIAL)
		rcp_verbs_cm_dialled(v);
	else
		rcp_verbs_queue_readable(v);
	rcp_verbs_link_advance(v);
}

static void on_kick(void *arg)
{
	rcp_verbs_link_advance(arg);
}

static void finish(struct verbs_link *v)
{
	v->state = VERBS_DOWN;
	v->closing = 1;
	if (rcp_verbs_async_leave(v))
		v->closing++;
	rcp_verbs_io_close(v->io);
}

/* Slow is not dead: the deadline is for the next completion, not for all of them. */
static void close_late(struct verbs_link *v)
{
	if (v->source.in_flight < v->close_in_flight) {
		v->close_in_flight = v->source.in_flight;
		rcp_verbs_io_timer(v->io, CLOSE_MS);
		return;
	}
	if (v->source.in_flight)
		rcp_err_set(&v->cause, RCP_E_LINK, ETIMEDOUT, NULL, v->name,
			    "the peer's device did not take the last %u chunks within %u ms",
			    v->source.in_flight, CLOSE_MS);
	v->state = VERBS_DRAIN;
}

static bool idle(const struct verbs_link *v)
{
	return !v->source.in_flight && rcp_verbs_small_idle(v);
}

/* A device that owes a completion and gives none at all from one look to the next has lost it. */
static void stall_check(struct verbs_link *v)
{
	struct rcp_err e = {0};
	bool still = v->busy_seen && v->completions == v->completions_seen;

	v->completions_seen = v->completions;
	v->busy_seen = !idle(v);
	if (!still) {
		rcp_verbs_io_timer(v->io, STALL_MS);
		return;
	}
	rcp_err_set(&e, RCP_E_LINK, ETIMEDOUT, "ibv_poll_cq", v->name,
		    "this device has not completed what it was given for %u s", STALL_MS / 1000);
	rcp_verbs_link_fail(v, &e);
}

static void on_timeout(void *arg)
{
	static const char *const waits[VERBS_STATES] = {
		[VERBS_OFFLINE] = "the peer's QP numbers did not come",
		[VERBS_ADDRESS] = "the peer's address was not resolved",
		[VERBS_ROUTE] = "the route to the peer was not resolved",
		[VERBS_CONNECT] = "no answer to the connection request",
		[VERBS_GREET] = "no word from the peer that connected",
	};
	struct verbs_link *v = arg;
	struct rcp_err e = {0};

	switch (v->state) {
	case VERBS_UP:
		stall_check(v);
		break;
	case VERBS_DOWN:
	case VERBS_STATES:
		return;
	case VERBS_CLOSING:
		close_late(v);
		break;
	case VERBS_DRAIN:
		finish(v);
		return;
	case VERBS_OFFLINE:
	case VERBS_ADDRESS:
	case VERBS_ROUTE:
	case VERBS_CONNECT:
	case VERBS_GREET:
		rcp_err_set(&e, RCP_E_CONNECT, ETIMEDOUT, NULL, v->name, "%s within %u ms",
			    waits[v->state], v->deadline_ms);
		rcp_err_fix(&e, "%s",
			    v->state == VERBS_ADDRESS || v->state == VERBS_ROUTE
				    ? "check that the peer's RDMA address answers to `ping` from "
				      "this one"
				    : "a firewall may drop RoCE (UDP port 4791) or iWARP (TCP), or "
				      "the path "
				      "MTUs differ");
		rcp_verbs_link_fail(v, &e);
		break;
	}
	rcp_verbs_link_advance(v);
}

static void link_free(struct rcp_link *link)
{
	struct verbs_link *v = verbs_link_of(link);

	assert(v->state == VERBS_DOWN && !v->io);
	rcp_verbs_conn_free(v);
	rcp_verbs_source_free(v);
	rcp_verbs_sink_free(v);
	free(v);
}

/* The last handle is closed: from here on nobody else knows the link. */
void rcp_verbs_link_closed(void *link)
{
	struct verbs_link *v = link;

	if (--v->closing)
		return;
	v->io = NULL;
	rcp_verbs_conn_stop(v);
	if (v->abandoned) {
		link_free(&v->link);
		return;
	}
	rcp_verbs_posts_end(v);
	struct rcp_err cause = v->cause; /* the link may be freed inside */

	v->link.events->down(v->link.arg, &cause);
}

static const struct verbs_io_ops io_ops = {
	.readable = on_readable,
	.kick = on_kick,
	.timeout = on_timeout,
	.closed = rcp_verbs_link_closed,
};

enum rcp_code rcp_verbs_link_code(const struct verbs_link *v)
{
	return v->was_up ? RCP_E_LINK : RCP_E_CONNECT;
}

void rcp_verbs_link_fail(struct verbs_link *v, const struct rcp_err *cause)
{
	if (v->state >= VERBS_DRAIN)
		return;
	/* Whatever goes wrong after close was wanted anyway. */
	if (v->state != VERBS_CLOSING) {
		v->cause = *cause;
		if (!v->was_up)
			v->cause.code = RCP_E_CONNECT;
		rcp_err_object(&v->cause, v->name);
	}
	v->state = VERBS_DRAIN;
	rcp_verbs_io_kick(v->io);
}

/* The kernel ends connections of a port that goes down, at times before it tells of the port. */
static bool port_down(const struct verbs_link *v, struct rcp_err *err)
{
	struct ibv_port_attr attr;

	if (!v->conn.ctx || ibv_query_port(v->conn.ctx, v->port->number, &attr) != 0 ||
	    attr.state == IBV_PORT_ACTIVE)
		return false;
	rcp_err_set(err, RCP_E_LINK, 0, "ibv_query_port", v->name, "this end's port is no longer active but %s",
		    ibv_port_state_str(attr.state));
	rcp_err_fix(err, RCP_VERBS_PORT_FIX);
	return true;
}

void rcp_verbs_link_left(struct verbs_link *v)
{
	struct rcp_err e = {0};

	if (v->state < VERBS_DRAIN && !port_down(v, &e))
		rcp_err_set(&e, RCP_E_LINK, ECONNRESET, NULL, v->name, "the peer closed the connection");
	rcp_verbs_link_fail(v, &e);
}

void rcp_verbs_link_breach(struct verbs_link *v, const char *what, uint32_t value)
{
	struct rcp_err e = {0};

	rcp_err_set(&e, RCP_E_CONNECT, EPROTO, NULL, v->name,
		    "the peer broke the protocol: it sent %s (%u)", what, value);
	rcp_verbs_link_fail(v, &e);
}

void rcp_verbs_link_up(struct verbs_link *v)
{
	rcp_verbs_conn_settle(v);
	rcp_verbs_io_timer(v->io, STALL_MS);
	v->state = VERBS_UP;
	v->up_due = true;
	rcp_verbs_io_kick(v->io);
}

/*
 * The hello may overtake the handshake's last message. Until rdma_cm knows that the connection
 * stands, it would not tell the peer of its end either (rxe: the peer waited for ever): so say so.
 */
void rcp_verbs_link_greeted(struct verbs_link *v)
{
	v->greeted = true;
	if (v->oob || v->established)
		rcp_verbs_link_up(v);
	else
		rdma_notify(v->conn.id, IBV_EVENT_COMM_EST);
}

/* Without rdma_cm nobody else tells the peer. */
static void say_bye(struct verbs_link *v)
{
	struct verbs_message bye = {.type = VERBS_BYE};
	struct rcp_err e = {0};

	v->bye_sent = true;
	if (v->oob && v->connected)
		rcp_verbs_small_send(v, &bye, &e);
}

static void close_step(struct verbs_link *v)
{
	if (!idle(v) || v->sink.due_count)
		return;
	if (!v->bye_sent)
		say_bye(v);
	if (idle(v))
		v->state = VERBS_DRAIN;
}

static void drain_begin(struct verbs_link *v)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	v->drain_begun = true;
	rcp_verbs_io_timer(v->io, DRAIN_MS);
	if (!v->conn.qp || !v->connected)
		return;
	/* librdmacm only stops the sending side of iWARP: nothing would be flushed. */
	if (v->oob || !idle(v))
		ibv_modify_qp(v->conn.qp, &attr, IBV_QP_STATE);
	if (v->conn.id)
		rdma_disconnect(v->conn.id);
	rcp_verbs_queue_drain(v);
}

void rcp_verbs_link_advance(struct verbs_link *v)
{
	if (v->up_due && v->state == VERBS_UP) {
		v->up_due = false;
		v->was_up = true;
		v->link.events->up(v->link.arg);
	}
	if (v->state == VERBS_UP || v->state == VERBS_CLOSING)
		rcp_verbs_credits_flush(v);
	if (v->state == VERBS_UP)
		rcp_verbs_room(v);
	if (v->state == VERBS_CLOSING)
		close_step(v);
	if (v->state == VERBS_DRAIN && !v->drain_begun)
		drain_begin(v);
	if (v->state == VERBS_DRAIN && (idle(v) || !v->connected))
		finish(v);
}

static void link_close(struct rcp_link *link)
{
	struct verbs_link *v = verbs_link_of(link);

	if (v->state >= VERBS_CLOSING)
		return;
	v->state = v->state == VERBS_UP ? VERBS_CLOSING : VERBS_DRAIN;
	v->close_in_flight = v->source.in_flight;
	rcp_verbs_io_timer(v->io, CLOSE_MS);
	rcp_verbs_io_kick(v->io);
}

/* Worker. */
static int link_reg(struct rcp_link *link, const void *addr, size_t len, bool read_only,
		    struct rcp_err *err, struct rcp_mem **out)
{
	struct verbs_link *v = verbs_link_of(link);
	struct rcp_mem *mem = calloc(1, sizeof(*mem));

	*out = NULL;
	if (!mem)
		return rcp_err_set(err, RCP_E_IO, ENOMEM, "calloc", NULL, NULL);
	/* Local reading needs no right. LOCAL_WRITE on memory of one's own makes the kernel pin the
	 * pages themselves, not the zero page that stands for untouched ones. */
	mem->mr = ibv_reg_mr(v->conn.pd, (void *)(uintptr_t)addr, len,
			     read_only ? 0 : IBV_ACCESS_LOCAL_WRITE);
	if (!mem->mr) {
		rcp_verbs_err_errno(err, RCP_E_IO, "ibv_reg_mr", v->port->device);
		free(mem);
		return (int)err->code;
	}
	mem->read_only = read_only;
	*out = mem;
	return 0;
}

/* Worker. */
static void link_unreg(struct rcp_link *link, struct rcp_mem *mem)
{
	(void)link;
	if (!mem)
		return;
	ibv_dereg_mr(mem->mr);
	free(mem);
}

uint32_t rcp_verbs_mem_lkey(const struct rcp_mem *mem)
{
	return mem->mr->lkey;
}

bool rcp_verbs_mem_read_only(const struct rcp_mem *mem)
{
	return mem->read_only;
}

static const struct rcp_link_ops link_ops = {
	.post = rcp_verbs_post,
	.release = rcp_verbs_release,
	.ring_get = rcp_verbs_ring_get,
	.ring_set = rcp_verbs_ring_set,
	.reg = link_reg,
	.unreg = link_unreg,
	.close = link_close,
	.free = link_free,
};

void rcp_verbs_link_name(struct verbs_link *v)
{
	char from[80], to[80];

	if (v->oob)
		snprintf(v->name, sizeof(v->name), "%s/%u", v->port->device, v->port->number);
	else
		snprintf(v->name, sizeof(v->name), "%s/%u %s -> %s", v->port->device,
			 v->port->number, rcp_verbs_addr_text(&v->local, false, from, sizeof(from)),
			 rcp_verbs_addr_text(&v->remote, true, to, sizeof(to)));
}

int rcp_verbs_link_new(struct rcp_rdma *rdma, struct uv_loop_s *loop, uint16_t port,
		       const struct rcp_link_params *params, bool peer_imm, struct rcp_err *err,
		       struct verbs_link **out)
{
	if (port >= rdma->port_count)
		return rcp_err_set(err, RCP_E_CONNECT, 0, NULL, NULL, "there is no RDMA port %u",
				   port);
	struct verbs_link *v = calloc(1, sizeof(*v));

	if (!v)
		return rcp_err_set(err, RCP_E_IO, ENOMEM, "calloc", NULL, NULL);
	v->link.ops = &link_ops;
	v->link.events = params->events;
	v->link.arg = params->arg;
	v->rdma = rdma;
	v->loop = loop;
	v->port = &rdma->ports[port];
	v->role = params->role;
	v->initiator = params->initiator;
	v->attempt = params->id;
	v->generation = params->generation;
	v->slots_wanted = params->slots;
	v->source.imm = v->port->imm && peer_imm;
	v->link.caps.needs_mem = true;
	v->link.caps.shared_ring = true;
	v->link.caps.transport = "rdma";
	v->link.caps.chunk_bytes = params->chunk_bytes;
	if (rcp_verbs_io_new(loop, &io_ops, v, err, &v->io) != 0) {
		free(v);
		return (int)err->code;
	}
	*out = v;
	return 0;
}

void rcp_verbs_link_abandon(struct verbs_link *v)
{
	v->abandoned = true;
	finish(v);
}
