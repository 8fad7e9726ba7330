/*
 * The device's own events: fatal errors, ports that go down, QPs in error. librdmacm opens a device
 * once for all its connections, and an event is read by one reader only: so one watch a context,
 * shared by the links on it, there as long as there are any. Loop's thread.
 */
#include "link/verbs/priv.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

struct verbs_async {
	struct rcp_rdma *rdma;
	struct ibv_context *ctx;
	struct verbs_io *io;
	struct verbs_link *links;
	struct verbs_link *last; /* waits for this to be closed */
	struct verbs_async *next;
};

static bool is_port_event(enum ibv_event_type type)
{
	return type == IBV_EVENT_PORT_ERR;
}

static bool is_qp_event(enum ibv_event_type type)
{
	return type == IBV_EVENT_QP_FATAL || type == IBV_EVENT_QP_REQ_ERR ||
	       type == IBV_EVENT_QP_ACCESS_ERR || type == IBV_EVENT_COMM_EST;
}

/* Compares addresses only: the event is acknowledged, the object may be gone. */
static bool concerns(const struct verbs_link *v, const struct ibv_async_event *e)
{
	if (is_qp_event(e->event_type))
		return v->conn.qp == e->element.qp;
	if (is_port_event(e->event_type))
		return v->port->number == e->element.port_num;
	if (e->event_type == IBV_EVENT_CQ_ERR)
		return v->conn.cq == e->element.cq;
	return e->event_type == IBV_EVENT_DEVICE_FATAL;
}

static void tell(struct verbs_link *v, const struct ibv_async_event *e)
{
	struct rcp_err err = {0};

	/* The peer's first message came before its last handshake message: rdma_cm wants to know.
	 */
	if (e->event_type == IBV_EVENT_COMM_EST) {
		if (v->conn.id)
			rdma_notify(v->conn.id, IBV_EVENT_COMM_EST);
		return;
	}
	/* A completion may say more than the event does. */
	if (v->conn.cq && v->state < VERBS_DRAIN)
		rcp_verbs_queue_drain(v);
	rcp_err_set(&err, RCP_E_LINK, 0, "ibv_get_async_event", v->name, "%s",
		    ibv_event_type_str(e->event_type));
	if (is_port_event(e->event_type))
		rcp_err_fix(&err, RCP_VERBS_PORT_FIX);
	rcp_verbs_link_fail(v, &err);
	rcp_verbs_io_kick(v->io);
}

static void on_readable(void *arg, enum verbs_fd which)
{
	struct verbs_async *a = arg;
	struct ibv_async_event e;

	(void)which;
	while (ibv_get_async_event(a->ctx, &e) == 0) {
		struct ibv_async_event copy = e;

		ibv_ack_async_event(&e);
		for (struct verbs_link *v = a->links; v; v = v->async_next) {
			if (concerns(v, &copy))
				tell(v, &copy);
		}
	}
}

static void on_nothing(void *arg)
{
	(void)arg;
}

static void on_closed(void *arg)
{
	struct verbs_async *a = arg;
	struct verbs_link *last = a->last;

	free(a);
	if (last)
		rcp_verbs_link_closed(last);
}

static const struct verbs_io_ops io_ops = {
	.readable = on_readable,
	.kick = on_nothing,
	.timeout = on_nothing,
	.closed = on_closed,
};

static int async_new(struct rcp_rdma *rdma, struct uv_loop_s *loop, struct ibv_context *ctx,
		     struct rcp_err *err, struct verbs_async **out)
{
	struct verbs_async *a = calloc(1, sizeof(*a));

	if (!a)
		return rcp_err_set(err, RCP_E_IO, ENOMEM, "calloc", NULL, NULL);
	a->rdma = rdma;
	a->ctx = ctx;
	if (rcp_verbs_io_new(loop, &io_ops, a, err, &a->io) != 0) {
		free(a);
		return (int)err->code;
	}
	if (rcp_verbs_io_watch(a->io, VERBS_FD_ASYNC, ctx->async_fd, err) != 0) {
		rcp_verbs_io_close(a->io);
		return (int)err->code;
	}
	a->next = rdma->asyncs;
	rdma->asyncs = a;
	*out = a;
	return 0;
}

int rcp_verbs_async_join(struct verbs_link *v, struct rcp_err *err)
{
	struct verbs_async *a = v->rdma->asyncs;

	while (a && a->ctx != v->conn.ctx)
		a = a->next;
	if (!a && async_new(v->rdma, v->loop, v->conn.ctx, err, &a) != 0)
		return (int)err->code;
	assert(a);
	v->async = a;
	v->async_next = a->links;
	a->links = v;
	return 0;
}

bool rcp_verbs_async_leave(struct verbs_link *v)
{
	struct verbs_async *a = v->async;

	if (!a)
		return false;
	struct verbs_link **at = &a->links;

	while (*at != v)
		at = &(*at)->async_next;
	*at = v->async_next;
	v->async = NULL;
	if (a->links)
		return false;
	struct verbs_async **slot = &v->rdma->asyncs;

	while (*slot != a)
		slot = &(*slot)->next;
	*slot = a->next;
	a->last = v;
	rcp_verbs_io_close(a->io);
	return true;
}
