/* The device's own events: to every context of the NIC, or to the one that has the object. */
#include "fake.h"

#include <stdlib.h>

struct async {
	struct fk_ev ev; /* first */
	struct ibv_async_event event;
};

static void put(struct fk_ctx *ctx, enum ibv_event_type type, void *object, int port)
{
	struct async *a = calloc(1, sizeof(*a));

	if (!a)
		abort();
	a->ev.object = object;
	a->event.event_type = type;
	if (port)
		a->event.element.port_num = port;
	else
		a->event.element.qp = object; /* the members share their place */
	fk_evq_put(&ctx->events, &a->ev);
}

void fk_async_qp(struct fk_qp *qp, enum ibv_event_type type)
{
	put(fk_ctx_of(qp->qp.context), type, &qp->qp, 0);
}

void fk_async_cq(struct fk_cq *cq, enum ibv_event_type type)
{
	put(fk_ctx_of(cq->cq.context), type, &cq->cq, 0);
}

void fk_async_port(struct fk_port *port, enum ibv_event_type type)
{
	for (struct fk_ctx *c = port->nic->ctxs; c; c = c->next)
		put(c, type, port, port->number);
}

void fk_async_drop(struct fk_ctx *ctx, const void *object)
{
	fk_evq_drop(&ctx->events, object, NULL);
}

/* Nothing goes in or out any more: what is under way runs into its retries. */
void fk_port_down(struct fk_port *port)
{
	port->state = IBV_PORT_DOWN;
	fk_async_port(port, IBV_EVENT_PORT_ERR);
}

void fk_nic_fatal(struct fk_nic *nic)
{
	if (nic->fatal)
		return;
	nic->fatal = true;
	for (struct fk_ctx *c = nic->ctxs; c; c = c->next)
		put(c, IBV_EVENT_DEVICE_FATAL, NULL, 0);
	for (struct fk_qp *qp = fk.qps; qp; qp = qp->next) {
		if (qp->nic == nic)
			fk_qp_error(qp);
	}
	fk_cm_fatal(nic);
}

int ibv_get_async_event(struct ibv_context *ctx, struct ibv_async_event *event)
{
	struct fk_ctx *c = fk_ctx_of(ctx);
	struct async *a = (struct async *)(void *)fk_evq_get(&c->events);

	if (!a)
		return -1;
	*event = a->event;
	FK_LOCK();
	c->unacked++;
	FK_UNLOCK();
	free(a);
	return 0;
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
	(void)event;
}
