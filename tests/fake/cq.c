/*
 * Completion queues: exactly as many entries as asked for, one too many and the queue is broken. A
 * send's completion gives back its place in the send queue, and those of the unsignaled ones before
 * it, when it is polled.
 */
#include "fake.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct fk_cq *cq_of(struct ibv_cq *cq)
{
	return FK_OF(cq, struct fk_cq, cq);
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *ctx)
{
	int err = fk_fault_call("ibv_create_comp_channel");
	struct fk_channel *c = err ? NULL : calloc(1, sizeof(*c));

	if (!c || fk_evq_init(&c->events) != 0) {
		free(c);
		errno = err ? err : ENOMEM;
		return NULL;
	}
	FK_LOCK();
	c->channel = (struct ibv_comp_channel){.context = ctx, .fd = c->events.fd};
	fk_ctx_of(ctx)->objects++;
	fk.count[FK_CHANNEL]++;
	FK_UNLOCK();
	return &c->channel;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	struct fk_channel *c = FK_OF(channel, struct fk_channel, channel);

	if (c->objects) {
		fk_breach("ibv_destroy_comp_channel: %u CQs use it", c->objects);
		return EBUSY;
	}
	FK_LOCK();
	fk_evq_close(&c->events);
	fk_ctx_of(channel->context)->objects--;
	fk.count[FK_CHANNEL]--;
	FK_UNLOCK();
	free(c);
	return 0;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *ctx, int cqe, void *arg,
			     struct ibv_comp_channel *channel, int vector)
{
	int err = fk_fault_call("ibv_create_cq");
	struct fk_cq *q = err ? NULL : calloc(1, sizeof(*q));

	(void)vector;
	if (!err && (cqe < 1 || cqe > fk_nic_of(ctx)->max_cqe))
		err = EINVAL;
	if (q && !err)
		q->ring = calloc((size_t)cqe, sizeof(*q->ring));
	if (!q || !q->ring) {
		free(q);
		errno = err ? err : ENOMEM;
		return NULL;
	}
	FK_LOCK();
	q->cq = (struct ibv_cq){.context = ctx, .channel = channel, .cq_context = arg, .cqe = cqe};
	if (channel)
		FK_OF(channel, struct fk_channel, channel)->objects++;
	fk_ctx_of(ctx)->objects++;
	fk.count[FK_CQ]++;
	FK_UNLOCK();
	return &q->cq;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
	struct fk_cq *q = cq_of(cq);

	if (q->objects) {
		fk_breach("ibv_destroy_cq: %u queues of QPs use it", q->objects);
		return EBUSY;
	}
	if (q->unacked)
		fk_breach("ibv_destroy_cq: %u events are not acknowledged, it would wait for ever",
			  q->unacked);
	FK_LOCK();
	if (cq->channel) {
		struct fk_channel *c = FK_OF(cq->channel, struct fk_channel, channel);

		fk_evq_drop(&c->events, cq, NULL);
		c->objects--;
	}
	fk_async_drop(fk_ctx_of(cq->context), cq);
	fk_ctx_of(cq->context)->objects--;
	fk.count[FK_CQ]--;
	FK_UNLOCK();
	free(q->ring);
	free(q);
	return 0;
}

static void notify(struct fk_cq *q)
{
	struct fk_ev *ev;

	if (!q->armed || !q->cq.channel)
		return;
	q->armed = false;
	ev = calloc(1, sizeof(*ev));
	if (!ev)
		abort();
	ev->object = &q->cq;
	fk_evq_put(&FK_OF(q->cq.channel, struct fk_channel, channel)->events, ev);
}

struct late {
	struct fk_timer timer;
	struct fk_cqe cqe;
};

static void push(struct fk_qp *qp, const struct fk_cqe *cqe)
{
	struct fk_cq *q = cq_of(cqe->send ? qp->qp.send_cq : qp->qp.recv_cq);

	if (q->count == (unsigned)q->cq.cqe) {
		if (!q->overrun)
			fk_async_cq(q, IBV_EVENT_CQ_ERR);
		q->overrun = true;
		return;
	}
	q->ring[(q->at + q->count++) % (unsigned)q->cq.cqe] = *cqe;
	notify(q);
}

static void on_late(void *arg)
{
	struct late *l = arg;

	for (struct fk_qp *qp = fk.qps; qp; qp = qp->next) {
		if (qp == l->cqe.qp)
			push(qp, &l->cqe);
	}
	free(l);
}

static bool is_late(const struct fk_cqe *cqe)
{
	const struct fk_rule *r = fk_fault(FK_F_LATE, cqe->send ? "send" : "recv");
	struct late *l = r ? calloc(1, sizeof(*l)) : NULL;

	if (!l)
		return false;
	l->cqe = *cqe;
	l->timer.fn = on_late;
	l->timer.arg = l;
	fk_timer_set(&l->timer, (unsigned)r->number);
	return true;
}

/* Faults that strike when something has completed. */
void fk_cq_push(struct fk_qp *qp, const struct fk_cqe *cqe)
{
	const char *name = cqe->send ? "send" : "recv";

	if (cqe->wc.status == IBV_WC_SUCCESS) {
		if (fk_fault(FK_F_LOST, name))
			return;
		if (is_late(cqe))
			return;
	}
	push(qp, cqe);
	if (cqe->wc.status != IBV_WC_SUCCESS)
		return;
	if (fk_fault(FK_F_FLUSH, name))
		fk_qp_error(qp);
	if (fk_fault(FK_F_PORT, name))
		fk_port_down(qp->port ? qp->port : &qp->nic->ports[0]);
	if (fk_fault(FK_F_FATAL, name))
		fk_nic_fatal(qp->nic);
}

void fk_cq_forget(struct ibv_cq *cq, const struct fk_qp *qp)
{
	struct fk_cq *q = cq_of(cq);
	unsigned kept = 0, size = (unsigned)cq->cqe;

	for (unsigned i = 0; i < q->count; i++) {
		struct fk_cqe *e = &q->ring[(q->at + i) % size];

		if (e->qp != qp)
			q->ring[(q->at + kept++) % size] = *e;
	}
	q->count = kept;
}

int fk_poll_cq(struct ibv_cq *cq, int max, struct ibv_wc *wc)
{
	struct fk_cq *q = cq_of(cq);
	int n = 0, err = fk_fault_call("ibv_poll_cq");

	if (err)
		return -err;
	FK_LOCK();
	if (q->overrun)
		n = -EOVERFLOW;
	while (n >= 0 && n < max && q->count) {
		struct fk_cqe *e = &q->ring[q->at];

		q->at = (q->at + 1) % (unsigned)cq->cqe;
		q->count--;
		if (e->send && e->upto > e->qp->sq_tail)
			e->qp->sq_tail = e->upto;
		else if (!e->send && e->upto > e->qp->rq_tail)
			e->qp->rq_tail = e->upto;
		wc[n++] = e->wc;
	}
	FK_UNLOCK();
	return n;
}

int fk_req_notify(struct ibv_cq *cq, int solicited)
{
	int err = fk_fault_call("ibv_req_notify_cq");

	(void)solicited;
	FK_LOCK();
	cq_of(cq)->armed = true;
	FK_UNLOCK();
	return err;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **arg)
{
	struct fk_channel *c = FK_OF(channel, struct fk_channel, channel);
	struct fk_ev *ev = fk_evq_get(&c->events);

	if (!ev)
		return -1;
	FK_LOCK();
	*cq = ev->object;
	*arg = (*cq)->cq_context;
	cq_of(*cq)->unacked++;
	FK_UNLOCK();
	free(ev);
	return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned count)
{
	struct fk_cq *q = cq_of(cq);

	FK_LOCK();
	if (count > q->unacked)
		fk_breach("ibv_ack_cq_events: %u, but only %u were taken", count, q->unacked);
	q->unacked -= count < q->unacked ? count : q->unacked;
	FK_UNLOCK();
}
