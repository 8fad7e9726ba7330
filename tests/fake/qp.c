/*
 * Queue pairs: made, moved through their states as the specification's table says, destroyed.
 */
#include "fake.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct fk_qp *qp_of(struct ibv_qp *qp)
{
	return FK_OF(qp, struct fk_qp, qp);
}

static int create_check(struct fk_nic *nic, const struct ibv_qp_init_attr *init)
{
	const struct ibv_qp_cap *cap = &init->cap;

	if (nic->fatal)
		return EIO;
	if (init->qp_type != IBV_QPT_RC || !init->send_cq || !init->recv_cq)
		return EINVAL;
	if (cap->max_send_wr > (uint32_t)nic->max_wr || cap->max_recv_wr > (uint32_t)nic->max_wr ||
	    cap->max_send_sge > (uint32_t)nic->max_sge ||
	    cap->max_recv_sge > (uint32_t)nic->max_sge || cap->max_inline_data > nic->max_inline)
		return EINVAL;
	return 0;
}

static struct fk_qp *qp_alloc(const struct ibv_qp_init_attr *init)
{
	struct fk_qp *q = calloc(1, sizeof(*q));

	if (!q)
		return NULL;
	q->sq = calloc(init->cap.max_send_wr + 1, sizeof(*q->sq));
	q->rq = calloc(init->cap.max_recv_wr + 1, sizeof(*q->rq));
	if (q->sq && q->rq)
		return q;
	free(q->sq);
	free(q->rq);
	free(q);
	return NULL;
}

static struct fk_cq *cq_of(struct ibv_cq *cq)
{
	return FK_OF(cq, struct fk_cq, cq);
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
	struct fk_nic *nic = fk_nic_of(pd->context);
	int err = fk_fault_call("ibv_create_qp");
	struct fk_qp *q;

	if (!err)
		err = create_check(nic, init);
	q = err ? NULL : qp_alloc(init);
	if (!q) {
		errno = err ? err : ENOMEM;
		return NULL;
	}
	FK_LOCK();
	q->nic = nic;
	q->cap = init->cap;
	q->sig_all = init->sq_sig_all;
	q->qp = (struct ibv_qp){.context = pd->context,
				.qp_context = init->qp_context,
				.pd = pd,
				.send_cq = init->send_cq,
				.recv_cq = init->recv_cq,
				.qp_num = (fk.next_qpn = fk.next_qpn + 1) + 0x100,
				.state = IBV_QPS_RESET,
				.qp_type = IBV_QPT_RC};
	q->next = fk.qps;
	fk.qps = q;
	cq_of(init->send_cq)->objects++;
	cq_of(init->recv_cq)->objects++;
	FK_OF(pd, struct fk_pd, pd)->objects++;
	fk_ctx_of(pd->context)->objects++;
	fk.count[FK_QP]++;
	FK_UNLOCK();
	return &q->qp;
}

static void held_give_back(struct fk_qp *q)
{
	for (uint64_t i = q->sq_done; i < q->sq_head; i++) {
		struct fk_swr *wr = &q->sq[i % q->cap.max_send_wr];

		if (wr->held)
			fk_mr_use(q, wr->sge, wr->sges, -1);
	}
	for (uint64_t i = q->rq_used; i < q->rq_head; i++) {
		struct fk_rwr *wr = &q->rq[i % q->cap.max_recv_wr];

		fk_mr_use(q, wr->sge, wr->sges, -1);
	}
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
	struct fk_qp *q = qp_of(qp), **at;

	FK_LOCK();
	fk_busy_wait(q);
	fk_requester_stop(q);
	fk_responder_stop(q);
	fk_responder_free(q);
	held_give_back(q);
	for (at = &fk.work; *at && *at != q; at = &(*at)->work_next)
		;
	if (*at)
		*at = q->work_next;
	for (at = &fk.qps; *at != q; at = &(*at)->next)
		;
	*at = q->next;
	fk_cq_forget(qp->send_cq, q);
	fk_cq_forget(qp->recv_cq, q);
	fk_async_drop(fk_ctx_of(qp->context), qp);
	cq_of(qp->send_cq)->objects--;
	cq_of(qp->recv_cq)->objects--;
	FK_OF(qp->pd, struct fk_pd, pd)->objects--;
	fk_ctx_of(qp->context)->objects--;
	fk.count[FK_QP]--;
	FK_UNLOCK();
	free(q->sq);
	free(q->rq);
	free(q);
	return 0;
}

struct fk_qp *fk_qp_find(uint32_t qpn)
{
	for (struct fk_qp *q = fk.qps; q; q = q->next) {
		if (q->qp.qp_num == qpn)
			return q;
	}
	return NULL;
}

void fk_qp_set(struct fk_qp *q, enum ibv_qp_state state)
{
	q->qp.state = state;
	if (state == IBV_QPS_RTR || state == IBV_QPS_RTS)
		fk_unpark(q);
	if (state == IBV_QPS_RTS)
		fk_work(q);
}

/* iWARP's connection does not outlive its QP. */
void fk_qp_error(struct fk_qp *q)
{
	if (q->qp.state == IBV_QPS_ERR || q->qp.state == IBV_QPS_RESET)
		return;
	q->qp.state = IBV_QPS_ERR;
	fk_requester_stop(q);
	if (q->in)
		q->in->discard = true; /* of what is under way, nothing more is placed */
	fk_flush(q);
	if (q->nic->iwarp) {
		fk_responder_stop(q);
		fk_cm_gone(q, -ECONNRESET);
	}
}

void fk_qp_connect(struct fk_qp *q, const struct fk_path *path, bool passive)
{
	q->path = *path;
	q->passive = passive;
	fk_qp_set(q, IBV_QPS_RTR);
	fk_qp_set(q, IBV_QPS_RTS);
}

/* ---- ibv_modify_qp ---- */

#define OPTIONAL_RTS (IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER)
static const struct step {
	enum ibv_qp_state from, to;
	int needs, may;
} steps[] = {
	{IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0},
	{IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
	{IBV_QPS_INIT, IBV_QPS_RTR,
	 IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
		 IBV_QP_MIN_RNR_TIMER,
	 IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS},
	{IBV_QPS_RTR, IBV_QPS_RTS,
	 IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
		 IBV_QP_MAX_QP_RD_ATOMIC,
	 OPTIONAL_RTS},
	{IBV_QPS_RTS, IBV_QPS_RTS, 0, OPTIONAL_RTS},
	{IBV_QPS_RTS, IBV_QPS_SQD, 0, 0},
};

static int av_check(const struct fk_qp *q, const struct ibv_qp_attr *attr)
{
	const struct ibv_ah_attr *ah = &attr->ah_attr;
	const struct fk_port *p = q->port;

	if (ah->port_num != p->number || attr->path_mtu < IBV_MTU_256 ||
	    attr->path_mtu > IBV_MTU_4096)
		return EINVAL;
	if (ah->is_global && ah->grh.sgid_index >= p->gid_count)
		return EINVAL;
	/* RoCE has no other address than the GID. */
	return p->kind != FK_IB && !ah->is_global ? EINVAL : 0;
}

static int attr_check(const struct fk_qp *q, const struct ibv_qp_attr *attr, int mask)
{
	const struct fk_nic *nic = q->nic;

	if (mask & IBV_QP_PORT && (attr->port_num < 1 || attr->port_num > nic->port_count))
		return EINVAL;
	if (mask & IBV_QP_PKEY_INDEX) {
		const struct fk_port *p =
			mask & IBV_QP_PORT ? &nic->ports[attr->port_num - 1] : q->port;

		if (!p || attr->pkey_index >= p->pkey_count)
			return EINVAL;
	}
	if ((mask & IBV_QP_MIN_RNR_TIMER && attr->min_rnr_timer > 31) ||
	    (mask & IBV_QP_RETRY_CNT && attr->retry_cnt > 7) ||
	    (mask & IBV_QP_RNR_RETRY && attr->rnr_retry > 7) ||
	    (mask & IBV_QP_TIMEOUT && attr->timeout > 31))
		return EINVAL;
	return mask & IBV_QP_AV ? av_check(q, attr) : 0;
}

static int step_check(const struct fk_qp *q, const struct ibv_qp_attr *attr, int mask,
		      enum ibv_qp_state to)
{
	if (to == IBV_QPS_ERR || to == IBV_QPS_RESET)
		return mask == IBV_QP_STATE ? 0 : EINVAL;
	if (q->nic->iwarp)
		return to == q->qp.state || to == IBV_QPS_SQD ? 0 : EINVAL; /* its CM does it */
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		const struct step *s = &steps[i];

		if (s->from != q->qp.state || s->to != to)
			continue;
		if ((mask & s->needs) != s->needs || mask & ~(s->needs | s->may | IBV_QP_STATE))
			return EINVAL;
		return attr_check(q, attr, mask);
	}
	return EINVAL;
}

/* By LID in the subnet, by GID where there is a GRH. A GID that tells no place leads nowhere. */
static void path_set(struct fk_qp *q)
{
	const struct ibv_ah_attr *ah = &q->attr.ah_attr;
	const uint8_t *g = ah->grh.dgid.raw;
	static const uint8_t v4[12] = {[10] = 0xff, [11] = 0xff};
	struct fk_path *path = &q->path;

	*path = (struct fk_path){.qpn = q->attr.dest_qp_num, .by_gid = ah->is_global};
	if (!ah->is_global) {
		path->net = (uint8_t)(ah->dlid >> 8);
		path->place = (uint8_t)ah->dlid;
		path->reachable = ah->dlid != 0 && path->net == q->port->net;
		return;
	}
	path->net = memcmp(g, v4, 12) ? g[13] : g[14];
	path->place = g[15];
	path->reachable = path->place != 0;
}

static void attr_take(struct fk_qp *q, const struct ibv_qp_attr *a, int mask)
{
	if (mask & IBV_QP_PORT)
		q->port = &q->nic->ports[a->port_num - 1];
	if (mask & IBV_QP_PKEY_INDEX)
		q->attr.pkey_index = a->pkey_index;
	if (mask & IBV_QP_ACCESS_FLAGS)
		q->access = a->qp_access_flags;
	if (mask & IBV_QP_MIN_RNR_TIMER)
		q->attr.min_rnr_timer = a->min_rnr_timer;
	if (mask & IBV_QP_PATH_MTU)
		q->attr.path_mtu = a->path_mtu;
	if (mask & IBV_QP_DEST_QPN)
		q->attr.dest_qp_num = a->dest_qp_num;
	if (mask & IBV_QP_TIMEOUT)
		q->attr.timeout = a->timeout;
	if (mask & IBV_QP_RETRY_CNT)
		q->attr.retry_cnt = a->retry_cnt;
	if (mask & IBV_QP_RNR_RETRY)
		q->attr.rnr_retry = a->rnr_retry;
	if (mask & IBV_QP_AV) {
		q->attr.ah_attr = a->ah_attr;
		path_set(q);
	}
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	struct fk_qp *q = qp_of(qp);
	int err = fk_fault_call("ibv_modify_qp");
	enum ibv_qp_state to = mask & IBV_QP_STATE ? attr->qp_state : qp->state;

	FK_LOCK();
	fk_busy_wait(q);
	if (!err && q->nic->fatal && to != IBV_QPS_ERR)
		err = EIO;
	if (!err)
		err = step_check(q, attr, mask, to);
	if (!err && to == IBV_QPS_ERR) {
		fk_qp_error(q);
	} else if (!err && to == IBV_QPS_RESET) {
		fk_requester_stop(q);
		fk_responder_stop(q);
		held_give_back(q);
		q->sq_head = q->sq_sent = q->sq_done = q->sq_tail = 0;
		q->rq_head = q->rq_used = q->rq_tail = 0;
		qp->state = to;
	} else if (!err) {
		attr_take(q, attr, mask);
		if (mask & IBV_QP_STATE)
			fk_qp_set(q, to);
	}
	FK_UNLOCK();
	return err;
}

int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
		 struct ibv_qp_init_attr *init)
{
	struct fk_qp *q = qp_of(qp);
	int err = fk_fault_call("ibv_query_qp");

	(void)mask;
	if (err)
		return err;
	FK_LOCK();
	*attr = q->attr;
	attr->qp_state = attr->cur_qp_state = qp->state;
	attr->qp_access_flags = q->access;
	attr->cap = q->cap;
	attr->port_num = q->port ? q->port->number : 0;
	memset(init, 0, sizeof(*init));
	init->cap = q->cap;
	init->send_cq = qp->send_cq;
	init->recv_cq = qp->recv_cq;
	init->qp_type = qp->qp_type;
	FK_UNLOCK();
	return 0;
}
