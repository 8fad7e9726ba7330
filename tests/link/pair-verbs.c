/*
 * Contract suite: verbs over the host's first RDMA device, both ends in one process: by rdma_cm, by
 * rdma_cm with WRITE and SEND for a chunk, and out of band. Skipped where there is no RDMA;
 * tests/vm has some.
 */
#include "pairs.h"

#include "link/verbs/verbs.h"

#include <stdlib.h>
#include <string.h>

#include <rdma/rdma_cma.h>
#include <uv.h>

#define ATTEMPT	   3
#define CONNECT_MS 5000
#define TURNS	   3000

struct own {
	uv_loop_t loop;
	uv_timer_t tick;
	struct rcp_rdma *rdma;
	struct rcp_rdma_listener *listener;
	struct pair *pair;
	struct rcp_rdma_proof proof; /* the listener's */
};

static struct rcp_rdma *open_rdma(bool no_imm, struct rcp_err *err)
{
	struct rcp_rdma_options o = {
		.gid_index = -1, .tos = -1, .sl = -1, .pkey = -1, .no_imm = no_imm};
	struct rcp_rdma *rdma = NULL;

	rcp_rdma_open(&o, err, &rdma);
	return rdma;
}

static void bind_once(const struct rcp_rdma_port *port)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct sockaddr_storage a = port->addrs[0];
	struct rdma_cm_id *id;

	if (!channel)
		return;
	if (rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0) {
		rdma_bind_addr(id, (struct sockaddr *)&a);
		rdma_destroy_id(id);
	}
	rdma_destroy_event_channel(channel);
}

/* librdmacm opens a device once and keeps it, as libuv keeps a pipe: before the rig counts. */
static void keep_open(struct rcp_rdma *rdma)
{
	unsigned count;
	const struct rcp_rdma_port *ports = rcp_rdma_ports(rdma, &count);
	uv_loop_t loop;

	for (unsigned i = 0; i < count; i++)
		bind_once(&ports[i]);
	if (uv_loop_init(&loop) == 0)
		uv_loop_close(&loop);
}

static const char *missing(void)
{
	static char why[1024];
	struct rcp_err err = {0};
	struct rcp_rdma *rdma = open_rdma(false, &err);

	if (!rdma)
		return rcp_err_format(&err, why, sizeof(why));
	keep_open(rdma);
	rcp_rdma_close(&rdma);
	return NULL;
}

static const char *missing_oob(void)
{
	struct rcp_err err = {0};
	struct rcp_rdma *rdma = open_rdma(false, &err);
	const char *why = missing();
	unsigned count;

	if (rdma && rcp_rdma_ports(rdma, &count)[0].transport == RCP_RDMA_IWARP)
		why = "iWARP can't be connected out of band";
	rcp_rdma_close(&rdma);
	return why;
}

static void on_tick(uv_timer_t *timer)
{
	(void)timer;
}

static void turn(struct pair *p)
{
	struct own *o = p->own;

	/* Repeating: one that is due before the loop polls would leave it to wait for ever. */
	uv_timer_start(&o->tick, on_tick, 2, 2);
	uv_run(&o->loop, UV_RUN_ONCE);
}

static int prepare(struct pair *p, bool no_imm, struct rcp_err *err)
{
	struct own *o = calloc(1, sizeof(*o));

	if (!o || uv_loop_init(&o->loop) || uv_timer_init(&o->loop, &o->tick))
		abort();
	p->own = o;
	o->pair = p;
	o->rdma = open_rdma(no_imm, err);
	p->source_params.id = p->sink_params.id = ATTEMPT;
	return o->rdma ? 0 : (int)err->code;
}

static const struct rcp_link_params *on_expect(void *arg, uint16_t id, struct rcp_rdma_proof *proof,
					       bool *peer_imm)
{
	struct own *o = arg;
	unsigned count;

	if (id != ATTEMPT || o->pair->sink)
		return NULL;
	*proof = o->proof;
	*peer_imm = rcp_rdma_ports(o->rdma, &count)[0].imm;
	return &o->pair->sink_params;
}

static void on_accepted(void *arg, uint16_t id, struct rcp_link *link)
{
	struct own *o = arg;

	(void)id;
	o->pair->sink = link;
}

static void connect_how(struct own *o, const struct rcp_rdma_port *port,
			struct rcp_rdma_connect *how)
{
	*how = (struct rcp_rdma_connect){.local = port->addrs[0],
					 .remote = port->addrs[0],
					 .deadline_ms = CONNECT_MS,
					 .peer_imm = port->imm,
					 .peer_max_msg_bytes = port->max_msg_bytes};
	if (how->remote.ss_family == AF_INET6)
		((struct sockaddr_in6 *)&how->remote)->sin6_port = htons(port->cm_port);
	else
		((struct sockaddr_in *)&how->remote)->sin_port = htons(port->cm_port);
	memset(how->proof.mine, 1, sizeof(how->proof.mine));
	memset(how->proof.theirs, 2, sizeof(how->proof.theirs));
	memcpy(o->proof.mine, how->proof.theirs, sizeof(o->proof.mine));
	memcpy(o->proof.theirs, how->proof.mine, sizeof(o->proof.theirs));
}

/* Both ends exist when the request has come; neither is up then. */
static int make(struct pair *p, bool no_imm, struct rcp_err *err)
{
	struct rcp_rdma_connect how;
	unsigned count;

	if (prepare(p, no_imm, err))
		return (int)err->code;
	struct own *o = p->own;
	struct rcp_rdma_listen_ops ops = {.arg = o, .expect = on_expect, .accepted = on_accepted};

	if (rcp_rdma_listen(o->rdma, &o->loop, &ops, err, &o->listener))
		return (int)err->code;
	connect_how(o, rcp_rdma_ports(o->rdma, &count), &how);
	if (rcp_rdma_connect(o->rdma, &o->loop, &p->source_params, &how, err, &p->source))
		return (int)err->code;
	for (int i = 0; i < TURNS && !p->sink; i++)
		turn(p);
	return p->sink ? 0 : RCP_E_CONNECT;
}

static int make_cm(struct pair *p, struct rcp_err *err)
{
	return make(p, false, err);
}

static int make_two(struct pair *p, struct rcp_err *err)
{
	return make(p, true, err);
}

static int make_oob(struct pair *p, struct rcp_err *err)
{
	struct rcp_rdma_oob a, b;
	unsigned count;

	if (prepare(p, false, err))
		return (int)err->code;
	struct own *o = p->own;
	const struct rcp_rdma_port *port = rcp_rdma_ports(o->rdma, &count);
	enum rcp_gid_type type = port->gid_count ? port->gids[0].type : RCP_GID_IB;

	if (rcp_rdma_oob_new(o->rdma, &o->loop, &p->source_params, 0, type, port->imm, err,
			     &p->source, &a) ||
	    rcp_rdma_oob_new(o->rdma, &o->loop, &p->sink_params, 0, type, port->imm, err, &p->sink,
			     &b) ||
	    rcp_rdma_oob_connect(p->sink, &a, err) || rcp_rdma_oob_connect(p->source, &b, err))
		return (int)err->code;
	return 0;
}

static const char *destroy(struct pair *p)
{
	struct own *o = p->own;
	const char *left = NULL;

	if (o->listener)
		rcp_rdma_listener_close(o->listener, NULL, NULL);
	uv_close((uv_handle_t *)&o->tick, NULL);
	while (uv_run(&o->loop, UV_RUN_NOWAIT))
		;
	if (uv_loop_close(&o->loop))
		left = "handles in the loop";
	rcp_rdma_close(&o->rdma);
	free(o);
	return left;
}

const struct pair_kind pair_verbs_cm = {
	.name = "verbs-cm", .missing = missing, .make = make_cm, .turn = turn, .destroy = destroy};
const struct pair_kind pair_verbs_two = {.name = "verbs-two",
					 .missing = missing,
					 .make = make_two,
					 .turn = turn,
					 .destroy = destroy};
const struct pair_kind pair_verbs_oob = {.name = "verbs-oob",
					 .missing = missing_oob,
					 .make = make_oob,
					 .turn = turn,
					 .destroy = destroy};
