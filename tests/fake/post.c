/*
 * Both work queues: what is posted, and how it ends. A place in the send queue is free again only
 * when a completion that covers it was polled (cq.c), in the receive queue when its own was.
 */
#include "fake.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct fk_qp *qp_of(struct ibv_qp *qp)
{
	return FK_OF(qp, struct fk_qp, qp);
}

static uint64_t length_of(const struct ibv_sge *sge, int sges)
{
	uint64_t n = 0;

	for (int i = 0; i < sges; i++)
		n += sge[i].length;
	return n;
}

static int send_check(const struct fk_qp *q, const struct ibv_send_wr *wr)
{
	enum ibv_qp_state s = q->qp.state;
	uint64_t length = length_of(wr->sg_list, wr->num_sge);

	if (s != IBV_QPS_RTS && s != IBV_QPS_ERR && s != IBV_QPS_SQD)
		return EINVAL;
	if (q->sq_head - q->sq_tail >= q->cap.max_send_wr)
		return ENOMEM;
	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > q->cap.max_send_sge)
		return EINVAL;
	if (wr->send_flags & IBV_SEND_INLINE && length > q->cap.max_inline_data)
		return EINVAL;
	if (wr->opcode == IBV_WR_SEND || wr->opcode == IBV_WR_RDMA_WRITE)
		return 0;
	return wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM && q->nic->imm ? 0 : EINVAL;
}

static void send_add(struct fk_qp *q, const struct ibv_send_wr *wr)
{
	struct fk_swr *s = &q->sq[q->sq_head % q->cap.max_send_wr];
	uint8_t *to = s->data;

	s->wr_id = wr->wr_id;
	s->addr = wr->wr.rdma.remote_addr;
	s->rkey = wr->wr.rdma.rkey;
	s->imm = wr->imm_data;
	s->opcode = wr->opcode;
	s->flags = wr->send_flags;
	s->sges = (unsigned)wr->num_sge;
	s->length = (uint32_t)length_of(wr->sg_list, wr->num_sge);
	s->held = !(wr->send_flags & IBV_SEND_INLINE);
	if (s->sges)
		memcpy(s->sge, wr->sg_list, s->sges * sizeof(s->sge[0]));
	for (unsigned i = 0; !s->held && i < s->sges; to += s->sge[i++].length)
		memcpy(to, (const void *)(uintptr_t)s->sge[i].addr, s->sge[i].length);
	if (s->held)
		fk_mr_use(q, s->sge, s->sges, 1);
	q->sq_head++;
}

int fk_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct fk_qp *q = qp_of(qp);
	int err = 0;

	FK_LOCK();
	for (; wr && !err; wr = wr->next) {
		*bad = wr;
		err = fk_fault_call("ibv_post_send");
		if (!err)
			err = send_check(q, wr);
		if (err)
			break;
		send_add(q, wr);
	}
	if (qp->state == IBV_QPS_ERR)
		fk_flush(q);
	else
		fk_work(q);
	FK_UNLOCK();
	/* Drivers of iWARP devices say it with the other sign. */
	return q->nic->iwarp ? -err : err;
}

static int recv_check(const struct fk_qp *q, const struct ibv_recv_wr *wr)
{
	if (q->qp.state == IBV_QPS_RESET)
		return EINVAL;
	if (q->rq_head - q->rq_tail >= q->cap.max_recv_wr)
		return ENOMEM;
	return wr->num_sge < 0 || (uint32_t)wr->num_sge > q->cap.max_recv_sge ? EINVAL : 0;
}

int fk_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct fk_qp *q = qp_of(qp);
	int err = 0;

	FK_LOCK();
	for (; wr && !err; wr = wr->next) {
		struct fk_rwr *r = &q->rq[q->rq_head % q->cap.max_recv_wr];

		*bad = wr;
		err = fk_fault_call("ibv_post_recv");
		if (!err)
			err = recv_check(q, wr);
		if (err)
			break;
		r->wr_id = wr->wr_id;
		r->sges = (unsigned)wr->num_sge;
		if (r->sges)
			memcpy(r->sge, wr->sg_list, r->sges * sizeof(r->sge[0]));
		fk_mr_use(q, r->sge, r->sges, 1);
		q->rq_head++;
	}
	if (qp->state == IBV_QPS_ERR)
		fk_flush(q);
	FK_UNLOCK();
	return q->nic->iwarp ? -err : err;
}

/* Whatever says nothing unless the status is success has no sense then. */
static void wc_make(struct ibv_wc *wc, const struct fk_qp *q, uint64_t wr_id,
		    enum ibv_wc_status status)
{
	memset(wc, status == IBV_WC_SUCCESS ? 0 : 0xee, sizeof(*wc));
	wc->wr_id = wr_id;
	wc->status = status;
	wc->vendor_err = status == IBV_WC_SUCCESS ? 0 : 0xfa;
	wc->qp_num = q->qp.qp_num;
}

static enum ibv_wc_status faulty(const char *queue, enum ibv_wc_status status)
{
	const struct fk_rule *r = status == IBV_WC_SUCCESS ? fk_fault(FK_F_WC, queue) : NULL;

	return r ? (enum ibv_wc_status)r->number : status;
}

void fk_send_done(struct fk_qp *q, enum ibv_wc_status status)
{
	struct fk_swr *s = &q->sq[q->sq_done % q->cap.max_send_wr];
	bool wanted = s->flags & IBV_SEND_SIGNALED || q->sig_all;
	struct fk_cqe cqe = {.qp = q, .send = true, .upto = q->sq_done + 1};

	if (wanted)
		status = faulty("send", status);
	if (s->held)
		fk_mr_use(q, s->sge, s->sges, -1);
	s->held = false;
	q->sq_done++;
	if (q->sq_sent < q->sq_done)
		q->sq_sent = q->sq_done;
	wc_make(&cqe.wc, q, s->wr_id, status);
	if (status == IBV_WC_SUCCESS) {
		cqe.wc.opcode = s->opcode == IBV_WR_SEND ? IBV_WC_SEND : IBV_WC_RDMA_WRITE;
		cqe.wc.byte_len = s->length;
	}
	if (wanted || status != IBV_WC_SUCCESS)
		fk_cq_push(q, &cqe);
	if (status != IBV_WC_SUCCESS && status != IBV_WC_WR_FLUSH_ERR)
		fk_qp_error(q);
}

void fk_recv_done(struct fk_qp *q, enum ibv_wc_status status, const struct fk_head *head)
{
	struct fk_rwr *r = &q->rq[q->rq_used % q->cap.max_recv_wr];
	struct fk_cqe cqe = {.qp = q, .upto = q->rq_used + 1};

	status = faulty("recv", status);
	fk_mr_use(q, r->sge, r->sges, -1);
	q->rq_used++;
	wc_make(&cqe.wc, q, r->wr_id, status);
	if (status == IBV_WC_SUCCESS) {
		cqe.wc.byte_len = head->length;
		cqe.wc.opcode = head->type == FK_SEND ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM;
		cqe.wc.wc_flags = head->type == FK_SEND ? 0 : IBV_WC_WITH_IMM;
		cqe.wc.imm_data = head->type == FK_SEND ? 0 : head->imm;
	}
	fk_cq_push(q, &cqe);
	if (status != IBV_WC_SUCCESS && status != IBV_WC_WR_FLUSH_ERR)
		fk_qp_error(q);
}

void fk_flush(struct fk_qp *q)
{
	while (q->sq_done < q->sq_head)
		fk_send_done(q, IBV_WC_WR_FLUSH_ERR);
	while (q->rq_used < q->rq_head)
		fk_recv_done(q, IBV_WC_WR_FLUSH_ERR, NULL);
}
