/*
 * The requester's side of a QP: requests out in order, answers in. Everything is on one stream
 * socket to the responder's host; what needs no answer (iWARP) is done when the socket has it.
 */
#include "fake.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define TURN_BYTES (4u << 20) /* then others may have the lock */

static struct fk_swr *wr_at(struct fk_qp *q, uint64_t i)
{
	return &q->sq[i % q->cap.max_send_wr];
}

void fk_requester_stop(struct fk_qp *q)
{
	fk_timer_stop(&q->rnr);
	fk_timer_stop(&q->retry);
	fk_wire_close(&q->out);
	q->tx_len = 0;
	q->rewind = false;
}

/* ---- retries ---- */

static void on_retry(void *arg)
{
	struct fk_qp *q = arg;

	if (q->sq_done < q->sq_head)
		fk_send_done(q, IBV_WC_RETRY_EXC_ERR);
}

/* 4.096 us * 2^timeout for each try, as the specification says, and twice that: it says "at
 * least", and this machine may be busy. */
static unsigned retry_ms(const struct fk_qp *q)
{
	if (q->nic->rto_ms)
		return q->nic->rto_ms;
	return (unsigned)((UINT64_C(8192) << q->attr.timeout) * (q->attr.retry_cnt + 1u) / 1000000);
}

void fk_retry_start(struct fk_qp *q)
{
	fk_timer_stop(&q->retry);
	if (q->sq_done == q->sq_head || q->nic->iwarp || (!q->attr.timeout && !q->nic->rto_ms))
		return;
	q->retry.fn = on_retry;
	q->retry.arg = q;
	fk_timer_set(&q->retry, retry_ms(q));
}

/* ---- answers ---- */

static unsigned rnr_ms(uint8_t timer)
{
	return timer == 0 ? 655 : timer <= 13 ? 1 : 1u << (timer - 13) / 2;
}

static void on_rnr(void *arg)
{
	fk_work(arg);
}

static void rnr_nak(struct fk_qp *q, const struct fk_head *h)
{
	if (h->seq < q->sq_done || h->seq >= q->sq_head)
		return;
	if (q->attr.rnr_retry != 7 && q->rnr_tries++ >= q->attr.rnr_retry) {
		while (q->sq_done < h->seq)
			fk_send_done(q, IBV_WC_SUCCESS);
		fk_send_done(q, IBV_WC_RNR_RETRY_EXC_ERR);
		return;
	}
	fk_retry_start(q); /* it was an answer */
	q->rewind = true;
	q->rewind_to = h->seq;
	q->rnr.fn = on_rnr;
	q->rnr.arg = q;
	fk_timer_set(&q->rnr, rnr_ms(h->status));
}

static void answered(struct fk_qp *q, const struct fk_head *h)
{
	if (q->qp.state != IBV_QPS_RTS && q->qp.state != IBV_QPS_SQD)
		return;
	switch (h->type) {
	case FK_ACK:
	case FK_NAK:
		while (q->sq_done < q->sq_sent && q->qp.state != IBV_QPS_ERR &&
		       q->sq_done + (h->type == FK_NAK) <= h->seq)
			fk_send_done(q, IBV_WC_SUCCESS);
		q->rnr_tries = 0;
		if (q->qp.state == IBV_QPS_ERR)
			return;
		if (h->type == FK_NAK)
			fk_send_done(q, (enum ibv_wc_status)h->status);
		else
			fk_retry_start(q);
		break;
	case FK_RNR:
		rnr_nak(q, h);
		break;
	default: /* FK_TERM: iWARP's peer has ended it */
		fk_qp_error(q);
		break;
	}
}

static void answers_read(struct fk_qp *q)
{
	while (q->out) {
		ssize_t n =
			recv(q->out->fd, (char *)&q->rx + q->rx_got, sizeof(q->rx) - q->rx_got, 0);

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n <= 0) {
			/* The responder is gone: InfiniBand doesn't notice but by its retries. */
			fk_wire_close(&q->out);
			q->out_dead = true;
			q->tx_len = 0;
			/* On iWARP what the peer sent before it left still counts: resp.c ends it
			 * then. */
			if (q->nic->iwarp && !(q->in && q->in->wire))
				fk_qp_error(q);
			else if (!q->retry.armed)
				fk_retry_start(q);
			return;
		}
		q->rx_got += (size_t)n;
		if (q->rx_got < sizeof(q->rx))
			continue;
		q->rx_got = 0;
		answered(q, &q->rx);
	}
}

static void on_out(struct fk_wire *w, uint32_t events)
{
	struct fk_qp *q = w->owner;

	if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
		answers_read(q);
	fk_transmit(q);
}

/* ---- requests ---- */

static bool port_up(const struct fk_qp *q)
{
	return q->port && q->port->state == IBV_PORT_ACTIVE && !q->nic->fatal;
}

static void frame_open(struct fk_qp *q)
{
	const struct fk_port *p = q->port;

	q->tx = (struct fk_head){.type = FK_OPEN,
				 .kind = (uint8_t)p->kind,
				 .net = q->path.net,
				 .place = q->path.place,
				 .from_net = p->net,
				 .from_place = p->place,
				 .by_gid = q->path.by_gid,
				 .qpn = q->path.qpn,
				 .from_qpn = q->qp.qp_num,
				 .pkey = p->pkeys[q->attr.pkey_index]};
	q->tx_len = sizeof(q->tx);
	q->tx_off = 0;
	q->tx_is_wr = false;
}

static bool out_open(struct fk_qp *q)
{
	char name[16];
	int fd;

	if (q->out)
		return true;
	if (q->out_dead || !q->path.reachable || !port_up(q))
		return false;
	snprintf(name, sizeof(name), "h%u", q->path.place / 4u);
	fd = fk_dial(name, SOCK_STREAM);
	if (fd < 0 && errno == EAGAIN) {
		fk_timer_set(&q->rnr, 5);
		q->rnr.fn = on_rnr;
		q->rnr.arg = q;
		return false;
	}
	q->out = fd < 0 ? NULL : fk_wire_new(fd, EPOLLIN, on_out, q);
	if (!q->out) {
		q->out_dead = true;
		return false;
	}
	q->rx_got = 0;
	frame_open(q);
	return true;
}

/* What the device finds out only when it comes to the request. */
static enum ibv_wc_status wr_check(struct fk_qp *q, const struct fk_swr *s)
{
	for (unsigned i = 0; s->held && i < s->sges; i++) {
		if (s->sge[i].length &&
		    !fk_mr_check(q, s->sge[i].lkey, s->sge[i].addr, s->sge[i].length, 0))
			return IBV_WC_LOC_PROT_ERR;
	}
	return s->length > q->nic->max_msg ? IBV_WC_LOC_LEN_ERR : IBV_WC_SUCCESS;
}

/* False: not now. */
static bool frame_wr(struct fk_qp *q)
{
	struct fk_swr *s = wr_at(q, q->sq_sent);
	enum ibv_wc_status bad = wr_check(q, s);

	if (bad != IBV_WC_SUCCESS) {
		if (q->sq_done == q->sq_sent)
			fk_send_done(q, bad);
		return false;
	}
	if (fk_fault(FK_F_RETRY, "")) {
		fk_wire_close(&q->out);
		q->out_dead = true;
		if (!q->retry.armed)
			fk_retry_start(q);
		return false;
	}
	q->tx = (struct fk_head){.type = s->opcode == IBV_WR_SEND	  ? FK_SEND
					 : s->opcode == IBV_WR_RDMA_WRITE ? FK_WRITE
									  : FK_WRITE_IMM,
				 .length = s->length,
				 .addr = s->addr,
				 .rkey = s->rkey,
				 .seq = q->sq_sent,
				 .imm = s->imm};
	q->tx_off = 0;
	q->tx_len = sizeof(q->tx) + s->length;
	q->tx_wr = q->sq_sent;
	q->tx_is_wr = true;
	return true;
}

static int frame_iov(struct fk_qp *q, struct iovec *iov)
{
	const struct fk_swr *s = q->tx_is_wr ? wr_at(q, q->tx_wr) : NULL;
	size_t skip = q->tx_off;
	int n = 0;
	struct iovec all[FK_SGES + 2] = {{.iov_base = &q->tx, .iov_len = sizeof(q->tx)}};
	unsigned count = 1;

	if (s && s->flags & IBV_SEND_INLINE)
		all[count++] = (struct iovec){(void *)(uintptr_t)s->data, s->length};
	for (unsigned i = 0; s && !(s->flags & IBV_SEND_INLINE) && i < s->sges; i++)
		all[count++] = (struct iovec){(void *)(uintptr_t)s->sge[i].addr, s->sge[i].length};
	for (unsigned i = 0; i < count; i++) {
		if (skip >= all[i].iov_len) {
			skip -= all[i].iov_len;
			continue;
		}
		iov[n++] = (struct iovec){(char *)all[i].iov_base + skip, all[i].iov_len - skip};
		skip = 0;
	}
	return n;
}

/* The frame that is under way. False: the socket is full or gone. */
static bool frame_send(struct fk_qp *q, size_t *budget)
{
	struct iovec iov[FK_SGES + 2];
	struct msghdr m = {.msg_iov = iov, .msg_iovlen = (size_t)frame_iov(q, iov)};
	int fd = q->out->fd;

	fk_io_begin(q);
	ssize_t n = sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
	int err = errno;

	fk_io_end();
	if (n < 0 && (err == EAGAIN || err == EINTR)) {
		fk_wire_events(q->out, EPOLLIN | EPOLLOUT);
		return false;
	}
	if (n < 0) {
		answers_read(q); /* the last words, and then its end */
		return false;
	}
	q->tx_off += (size_t)n;
	*budget -= (size_t)n < *budget ? (size_t)n : *budget;
	return true;
}

static void frame_done(struct fk_qp *q)
{
	q->tx_len = 0;
	if (!q->tx_is_wr) {
		q->fin_sent |= q->tx.type == FK_FIN;
		return;
	}
	q->sq_sent = q->tx_wr + 1;
	if (q->nic->iwarp)
		fk_send_done(q, IBV_WC_SUCCESS);
	else if (!q->retry.armed)
		fk_retry_start(q);
}

/* The next frame. False: there is none to be sent now. */
static bool frame_next(struct fk_qp *q)
{
	if (q->rewind) {
		q->sq_sent = q->rewind_to < q->sq_done ? q->sq_done : q->rewind_to;
		q->rewind = false;
	}
	if (q->rnr.armed)
		return false;
	if (q->sq_sent < q->sq_head && (q->qp.state == IBV_QPS_RTS || q->nic->iwarp))
		return frame_wr(q);
	if (!q->fin_due || q->fin_sent)
		return false;
	q->tx = (struct fk_head){.type = FK_FIN};
	q->tx_len = sizeof(q->tx);
	q->tx_off = 0;
	q->tx_is_wr = false;
	return true;
}

void fk_transmit(struct fk_qp *q)
{
	size_t budget = TURN_BYTES;
	bool pending =
		q->tx_len || q->rewind || q->sq_sent < q->sq_head || (q->fin_due && !q->fin_sent);

	if ((q->qp.state != IBV_QPS_RTS && q->qp.state != IBV_QPS_SQD) || !pending)
		return;
	/* MPA: the side that accepts waits for the first word. */
	if (q->nic->iwarp && q->passive && !q->spoken_to && q->sq_sent < q->sq_head) {
		fk_qp_error(q);
		return;
	}
	if (!q->tx_len && !q->rnr.armed && !out_open(q)) {
		if (q->sq_done < q->sq_head && !q->retry.armed)
			fk_retry_start(q);
		return;
	}
	while (q->out && port_up(q) && budget) {
		if (!q->tx_len && !frame_next(q))
			break;
		if (!q->out)
			return;
		if (!frame_send(q, &budget))
			return;
		if (q->tx_len && q->tx_off == q->tx_len)
			frame_done(q);
	}
	if (q->out && port_up(q) && !budget)
		fk_wire_events(q->out, EPOLLIN | EPOLLOUT);
	else if (q->out)
		fk_wire_events(q->out, EPOLLIN);
}
