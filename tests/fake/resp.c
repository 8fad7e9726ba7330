/*
 * The responder's side of a QP: the peer's requests come in, are judged by this end's keys, rights
 * and receives, placed, and answered.
 */
#include "fake.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define TURN_READS 16

static void in_free(struct fk_in *in)
{
	fk_wire_close(&in->wire);
	free(in->stale);
	free(in);
}

void fk_responder_stop(struct fk_qp *q)
{
	if (q->in)
		fk_wire_close(&q->in->wire);
}

void fk_responder_free(struct fk_qp *q)
{
	if (q->in)
		in_free(q->in);
	q->in = NULL;
}

/* Small, and seldom more than a few: a socket that has no room for one is dealt with by events. */
static void answer(struct fk_in *in, enum fk_type type, uint64_t seq, unsigned status)
{
	struct fk_head h = {.type = (uint8_t)type, .seq = seq, .status = (uint8_t)status};

	if (!in->wire)
		return;
	if (send(in->wire->fd, &h, sizeof(h), MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof(h))
		return;
	in->ack = h; /* an ACK stands for those before it */
	in->ack_due = true;
	fk_wire_events(in->wire, EPOLLIN | EPOLLOUT);
}

static void answer_late(struct fk_in *in)
{
	in->ack_due = false;
	fk_wire_events(in->wire, EPOLLIN);
	answer(in, (enum fk_type)in->ack.type, in->ack.seq, in->ack.status);
}

/* ---- opening ---- */

static bool gid_known(const struct fk_port *p, enum fk_kind kind)
{
	return p->kind == kind || (p->kind != FK_IB && kind != FK_IB && p->kind != FK_IWARP &&
				   kind != FK_IWARP && p->kind == FK_ROCE2);
}

/* Membership: the same partition, and not limited members both. */
static bool pkey_fits(const struct fk_qp *q, uint32_t pkey)
{
	uint16_t mine = q->port->pkeys[q->attr.pkey_index];

	return q->port->kind != FK_IB ||
	       ((mine & 0x7fff) == (pkey & 0x7fff) && ((mine | pkey) & 0x8000));
}

static bool open_fits(const struct fk_qp *q, const struct fk_head *h)
{
	const struct fk_port *p = q->port;

	return p && p->net == h->net && p->place == h->place && p->state == IBV_PORT_ACTIVE &&
	       gid_known(p, (enum fk_kind)h->kind) &&
	       (h->by_gid || p->lid || p->kind == FK_IWARP) && q->path.qpn == h->from_qpn &&
	       pkey_fits(q, h->pkey);
}

/* False: nobody here is meant. The peer's retries tell it. */
static bool attach(struct fk_in *in)
{
	struct fk_qp *q = fk_qp_find(in->head.qpn);

	if (!q || q->in)
		return false;
	in->qp = q;
	in->open = in->head;
	q->in = in;
	if (q->qp.state == IBV_QPS_RESET || q->qp.state == IBV_QPS_INIT) {
		in->waiting = true;
		fk_wire_events(in->wire, 0);
		return true;
	}
	if (open_fits(q, &in->open))
		return true;
	q->in = NULL;
	return false;
}

void fk_unpark(struct fk_qp *q)
{
	struct fk_in *in = q->in;

	if (!in || !in->waiting || !in->wire)
		return;
	in->waiting = false;
	if (open_fits(q, &in->open)) {
		fk_wire_events(in->wire, EPOLLIN);
		return;
	}
	in_free(in);
	q->in = NULL;
}

/* ---- judging ---- */

/* Refused: the peer's request fails with `theirs`, a receive of this end with `mine`. */
static bool refuse(struct fk_in *in, enum ibv_wc_status theirs, enum ibv_wc_status mine)
{
	struct fk_qp *q = in->qp;

	answer(in, q->nic->iwarp ? FK_TERM : FK_NAK, in->head.seq, theirs);
	if (mine != IBV_WC_SUCCESS && q->rq_used < q->rq_head) {
		fk_recv_done(q, mine, NULL);
	} else {
		fk_async_qp(q, IBV_EVENT_QP_ACCESS_ERR);
		fk_qp_error(q);
	}
	return false;
}

static bool judge_write(struct fk_in *in)
{
	const struct fk_head *h = &in->head;
	struct fk_qp *q = in->qp;

	if (fk_fault(FK_F_ACCESS, ""))
		return refuse(in, IBV_WC_REM_ACCESS_ERR, IBV_WC_SUCCESS);
	if (h->length && (!(q->access & IBV_ACCESS_REMOTE_WRITE) ||
			  !fk_mr_check(q, h->rkey, h->addr, h->length, IBV_ACCESS_REMOTE_WRITE)))
		return refuse(in, IBV_WC_REM_ACCESS_ERR, IBV_WC_SUCCESS);
	if (h->length > q->nic->max_msg)
		return refuse(in, IBV_WC_REM_INV_REQ_ERR, IBV_WC_SUCCESS);
	in->iov[0] = (struct iovec){(void *)(uintptr_t)h->addr, h->length};
	in->iovs = 1;
	return true;
}

static bool judge_send(struct fk_in *in)
{
	struct fk_qp *q = in->qp;
	const struct fk_rwr *r = &q->rq[q->rq_used % q->cap.max_recv_wr];
	uint64_t room = 0;

	in->iovs = 0;
	for (unsigned i = 0; i < r->sges; i++) {
		const struct ibv_sge *s = &r->sge[i];

		if (!fk_mr_check(q, s->lkey, s->addr, s->length, IBV_ACCESS_LOCAL_WRITE))
			return refuse(in, IBV_WC_REM_OP_ERR, IBV_WC_LOC_PROT_ERR);
		in->iov[in->iovs++] = (struct iovec){(void *)(uintptr_t)s->addr, s->length};
		room += s->length;
	}
	if (in->head.length > room)
		return refuse(in, IBV_WC_REM_INV_REQ_ERR, IBV_WC_LOC_LEN_ERR);
	return true;
}

/* iWARP knows no "not ready": the connection ends. */
static bool no_receive(struct fk_in *in)
{
	if (!in->qp->nic->iwarp) {
		answer(in, FK_RNR, in->head.seq, in->qp->attr.min_rnr_timer);
		return false;
	}
	answer(in, FK_TERM, in->head.seq, 0);
	fk_qp_error(in->qp);
	return false;
}

/* False: its bytes go nowhere. */
static bool judge(struct fk_in *in)
{
	struct fk_qp *q = in->qp;
	const struct fk_head *h = &in->head;
	bool takes = h->type != FK_WRITE;

	if ((q->qp.state != IBV_QPS_RTR && q->qp.state != IBV_QPS_RTS &&
	     q->qp.state != IBV_QPS_SQD) ||
	    q->port->state != IBV_PORT_ACTIVE)
		return false;
	if (h->seq != in->expected)
		return false;
	if (takes && (q->rq_used == q->rq_head || fk_fault(FK_F_RNR, "")))
		return no_receive(in);
	if (q->qp.state == IBV_QPS_RTR && !q->spoken_to)
		fk_async_qp(q, IBV_EVENT_COMM_EST);
	q->spoken_to = true;
	return h->type == FK_SEND ? judge_send(in) : judge_write(in);
}

/* ---- done ---- */

static void flip(struct fk_in *in)
{
	const struct fk_rule *r = fk_fault(FK_F_FLIP, "");

	if (r && (uint32_t)r->number < in->head.length)
		*(uint8_t *)(uintptr_t)(in->head.addr + (uint32_t)r->number) ^= 0x10;
}

/* A write that is placed once more when its place has been written again since. */
static void placed(struct fk_in *in)
{
	const struct fk_head *h = &in->head;

	if (in->stale && in->stale_head.addr == h->addr) {
		uint32_t n = h->length < in->stale_head.length ? h->length : in->stale_head.length;

		memcpy((void *)(uintptr_t)h->addr, in->stale, n);
		free(in->stale);
		in->stale = NULL;
	}
	if (fk_fault(FK_F_TWICE, "") && !in->stale) {
		in->stale = malloc(h->length);
		if (!in->stale)
			abort();
		memcpy(in->stale, (const void *)(uintptr_t)h->addr, h->length);
		in->stale_head = *h;
	}
	flip(in);
}

static void received(struct fk_in *in)
{
	struct fk_qp *q = in->qp;
	struct fk_head h = in->head;
	const struct fk_rule *forged = h.type == FK_WRITE_IMM ? fk_fault(FK_F_FORGE, "") : NULL;

	if (forged)
		h.imm ^= (uint32_t)forged->number;
	/* Out of turn: told of only after the next one. */
	if (h.type == FK_WRITE_IMM && !in->has_held && fk_fault(FK_F_SWAP, "")) {
		in->held = h;
		in->has_held = true;
		return;
	}
	fk_recv_done(q, IBV_WC_SUCCESS, &h);
	if (in->has_held && h.type == FK_WRITE_IMM) {
		in->has_held = false;
		fk_recv_done(q, IBV_WC_SUCCESS, &in->held);
	}
}

static void message_end(struct fk_in *in)
{
	struct fk_qp *q = in->qp;
	uint64_t seq = in->head.seq;

	in->in_body = false;
	in->got = 0;
	if (in->discard)
		return;
	in->expected++;
	if (in->head.type != FK_SEND && in->head.length >= 64)
		placed(in);
	if (in->head.type != FK_WRITE)
		received(in);
	if (!q->nic->iwarp)
		answer(in, FK_ACK, seq, 0);
}

/* ---- reading ---- */

static int body_iov(struct fk_in *in, struct iovec *out)
{
	static uint8_t nowhere[256 << 10];
	size_t skip = in->got, left = in->head.length - in->got;
	int n = 0;

	if (in->discard) {
		*out = (struct iovec){nowhere, left < sizeof(nowhere) ? left : sizeof(nowhere)};
		return 1;
	}
	for (unsigned i = 0; i < in->iovs && left; i++) {
		size_t len = in->iov[i].iov_len;

		if (skip >= len) {
			skip -= len;
			continue;
		}
		len = len - skip < left ? len - skip : left;
		out[n++] = (struct iovec){(char *)in->iov[i].iov_base + skip, len};
		left -= len;
		skip = 0;
	}
	return n;
}

static ssize_t body_read(struct fk_in *in)
{
	struct iovec iov[FK_SGES + 1];
	const struct fk_head *h = &in->head;

	/* A region may go away in the middle. */
	if (!in->discard && h->type != FK_SEND &&
	    !fk_mr_check(in->qp, h->rkey, h->addr, h->length, IBV_ACCESS_REMOTE_WRITE))
		in->discard = !refuse(in, IBV_WC_REM_ACCESS_ERR, IBV_WC_SUCCESS);
	if (!in->wire) {
		errno = EAGAIN;
		return -1;
	}
	struct msghdr m = {.msg_iov = iov, .msg_iovlen = (size_t)body_iov(in, iov)};
	int fd = in->wire->fd;

	fk_io_begin(in->qp);
	ssize_t n = recvmsg(fd, &m, MSG_DONTWAIT);
	int err = errno;

	fk_io_end();
	errno = err;
	return n;
}

static ssize_t some_read(struct fk_in *in)
{
	if (in->in_body)
		return body_read(in);
	return recv(in->wire->fd, (char *)&in->head + in->got, sizeof(in->head) - in->got,
		    MSG_DONTWAIT);
}

static void message_begin(struct fk_in *in)
{
	in->got = 0;
	in->in_body = true;
	if (in->head.type == FK_FIN) {
		fk_cm_gone(in->qp, 0);
		fk_qp_error(in->qp);
		return;
	}
	in->discard = !judge(in);
	if (!in->head.length && in->wire)
		message_end(in);
}

/* The peer's end is closed: on iWARP that is the connection's end. */
static void in_ended(struct fk_in *in)
{
	struct fk_qp *q = in->qp;

	fk_wire_close(&in->wire);
	if (!q) {
		in_free(in);
		return;
	}
	if (q->nic->iwarp) {
		fk_cm_gone(q, -ECONNRESET);
		fk_qp_error(q);
	}
}

static void on_in(struct fk_wire *w, uint32_t events)
{
	struct fk_in *in = w->owner;

	if (events & EPOLLOUT && in->ack_due)
		answer_late(in);
	for (int i = 0; i < TURN_READS && in->wire && !in->waiting; i++) {
		ssize_t n = some_read(in);

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n <= 0) {
			in_ended(in);
			return;
		}
		in->got += (size_t)n;
		if (in->in_body && in->got == in->head.length) {
			message_end(in);
		} else if (!in->in_body && in->got == sizeof(in->head)) {
			if (in->qp) {
				message_begin(in);
			} else if (attach(in)) {
				in->got = 0;
			} else {
				in_free(in);
				return;
			}
		}
	}
}

void fk_door_ready(struct fk_wire *w, uint32_t events)
{
	int fd = accept4(w->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct fk_in *in = fd < 0 ? NULL : calloc(1, sizeof(*in));

	(void)events;
	if (!in) {
		if (fd >= 0)
			close(fd);
		return;
	}
	in->wire = fk_wire_new(fd, EPOLLIN, on_in, in);
	if (!in->wire)
		free(in);
}
