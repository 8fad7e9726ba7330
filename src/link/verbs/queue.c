/*
 * Completions and small messages. One CQ for both queues: drained, armed, drained again, so that no
 * wake-up is lost and few are needed. Everything is keyed by wr_id: nothing else in a completion
 * means anything unless its status is success. Loop's thread.
 */
#include "link/verbs/priv.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#define POLL_BATCH 16
#define ACK_BATCH  64 /* acknowledging takes a lock, so not each time */

int rcp_verbs_recv_post(struct verbs_link *v, uint32_t index, struct rcp_err *err)
{
	struct verbs_conn *c = &v->conn;
	struct ibv_sge sge = {
		.addr = (uintptr_t)c->recvs + (uintptr_t)index * VERBS_MESSAGE_BYTES,
		.length = VERBS_MESSAGE_BYTES,
		.lkey = c->memory_mr->lkey,
	};
	struct ibv_recv_wr wr = {.wr_id = rcp_verbs_wr_id(VERBS_WR_RECV, index),
				 .sg_list = &sge,
				 .num_sge = 1},
			   *bad;
	int ret = ibv_post_recv(c->qp, &wr, &bad);

	if (ret)
		return rcp_verbs_err_ret(err, rcp_verbs_link_code(v), ret, "ibv_post_recv",
					 v->name);
	return 0;
}

int rcp_verbs_small_send(struct verbs_link *v, const struct verbs_message *m, struct rcp_err *err)
{
	struct verbs_conn *c = &v->conn;

	if (!v->smalls_free)
		return RCP_AGAIN;
	uint32_t index = (uint32_t)__builtin_ctz(v->smalls_free);
	uint8_t *buf = c->smalls + (size_t)index * VERBS_MESSAGE_BYTES;
	struct ibv_sge sge = {.addr = (uintptr_t)buf,
			      .length = rcp_verbs_message_encode(m, buf),
			      .lkey = c->memory_mr->lkey};
	struct ibv_send_wr wr = {.wr_id = rcp_verbs_wr_id(VERBS_WR_SMALL, index),
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED},
			   *bad;

	if (sge.length <= c->max_inline)
		wr.send_flags |= IBV_SEND_INLINE;
	int ret = ibv_post_send(c->qp, &wr, &bad);

	if (ret)
		return rcp_verbs_err_ret(err, rcp_verbs_link_code(v), ret, "ibv_post_send",
					 v->name);
	v->smalls_free &= ~(UINT32_C(1) << index);
	return 0;
}

bool rcp_verbs_small_idle(const struct verbs_link *v)
{
	return v->smalls_free == (UINT32_C(1) << v->conn.depth.small) - 1 || !v->conn.memory_mr;
}

int rcp_verbs_hello_send(struct verbs_link *v, struct rcp_err *err)
{
	struct verbs_message hello = {.type = VERBS_HELLO, .attempt = v->attempt};

	return rcp_verbs_small_send(v, &hello, err);
}

static void message_in(struct verbs_link *v, const struct verbs_message *m)
{
	if (m->type == VERBS_HELLO && v->state == VERBS_GREET && m->attempt == v->attempt &&
	    !v->greeted)
		rcp_verbs_link_greeted(v);
	else if (m->type == VERBS_CHUNK && v->role == RCP_ROLE_SINK)
		rcp_verbs_chunk_in(v, m->imm, m->bytes);
	else if (m->type == VERBS_CREDITS && v->role == RCP_ROLE_SOURCE)
		rcp_verbs_credits_in(v, m);
	else if (m->type == VERBS_BYE && v->oob)
		rcp_verbs_link_left(v);
	else
		rcp_verbs_link_breach(v, "a message that is not due", (uint32_t)m->type);
}

/* The receive is posted again before anything that might give the peer a credit. */
static void recv_in(struct verbs_link *v, const struct ibv_wc *wc)
{
	uint32_t index = rcp_verbs_wr_index(wc->wr_id);
	bool imm = wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM;
	uint32_t len = wc->byte_len < VERBS_MESSAGE_BYTES ? wc->byte_len : VERBS_MESSAGE_BYTES;
	struct verbs_message m = {0};
	struct rcp_err e = {0};

	if (!imm && !rcp_verbs_message_decode(v->conn.recvs + (size_t)index * VERBS_MESSAGE_BYTES,
					      len, &m)) {
		rcp_verbs_link_breach(v, "a malformed message", wc->byte_len);
		return;
	}
	if (rcp_verbs_recv_post(v, index, &e) != 0)
		rcp_verbs_link_fail(v, &e);
	else if (!imm)
		message_in(v, &m);
	else if (v->role == RCP_ROLE_SINK)
		rcp_verbs_chunk_in(v, ntohl(wc->imm_data), wc->byte_len);
	else
		rcp_verbs_link_breach(v, "immediate data that is not due", wc->byte_len);
}

static const char *kind_name(unsigned kind)
{
	return kind == VERBS_WR_RECV ? "receive" : kind == VERBS_WR_SMALL ? "message" : "chunk";
}

/* True: it only says that the end has come, not why. */
static bool complete(struct verbs_link *v, const struct ibv_wc *wc)
{
	unsigned kind = rcp_verbs_wr_kind(wc->wr_id);
	bool ok = wc->status == IBV_WC_SUCCESS;

	v->completions++;
	if (kind == VERBS_WR_SMALL)
		v->smalls_free |= UINT32_C(1) << rcp_verbs_wr_index(wc->wr_id);
	if (!ok && wc->status != IBV_WC_WR_FLUSH_ERR && v->state < VERBS_DRAIN) {
		struct rcp_err e = {0};

		rcp_verbs_err_wc(&e, wc, kind_name(kind), v->name);
		rcp_verbs_link_fail(v, &e);
	}
	if (kind == VERBS_WR_SMALL && ok && v->state == VERBS_CONNECT)
		rcp_verbs_link_up(v);
	if (kind == VERBS_WR_CHUNK)
		rcp_verbs_post_done(v, wc);
	else if (kind == VERBS_WR_RECV && ok && v->state < VERBS_DRAIN)
		recv_in(v, wc);
	return wc->status == IBV_WC_WR_FLUSH_ERR;
}

void rcp_verbs_queue_drain(struct verbs_link *v)
{
	struct ibv_wc wc[POLL_BATCH];
	bool ended = false;
	int n;

	do {
		n = ibv_poll_cq(v->conn.cq, POLL_BATCH, wc);
		for (int i = 0; i < n; i++)
			ended |= complete(v, &wc[i]);
	} while (n == POLL_BATCH);
	if (n < 0) {
		struct rcp_err e = {0};

		rcp_verbs_err_ret(&e, RCP_E_LINK, n, "ibv_poll_cq", v->name);
		rcp_verbs_link_fail(v, &e);
	} else if (ended && v->connected && v->state < VERBS_DRAIN) {
		/* Before there was a connection, rdma_cm's event tells more. */
		rcp_verbs_link_left(v);
	}
}

/* Events taken off the channel; false: it is broken. */
static bool events_take(struct verbs_link *v)
{
	struct ibv_cq *cq;
	void *arg;

	while (ibv_get_cq_event(v->conn.channel, &cq, &arg) == 0) {
		if (++v->conn.unacked == ACK_BATCH) {
			ibv_ack_cq_events(v->conn.cq, ACK_BATCH);
			v->conn.unacked = 0;
		}
	}
	return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

void rcp_verbs_queue_readable(struct verbs_link *v)
{
	struct rcp_err e = {0};

	if (!v->conn.cq)
		return;
	if (!events_take(v)) {
		rcp_verbs_err_errno(&e, RCP_E_LINK, "ibv_get_cq_event", v->name);
		rcp_verbs_link_fail(v, &e);
		return;
	}
	rcp_verbs_queue_drain(v);
	int ret = ibv_req_notify_cq(v->conn.cq, 0);

	if (ret) {
		rcp_verbs_err_ret(&e, RCP_E_LINK, ret, "ibv_req_notify_cq", v->name);
		rcp_verbs_link_fail(v, &e);
	}
	rcp_verbs_queue_drain(v);
}
