/* The control connection's way out: a queue of owned and referred-to bytes, sealed by TLS or not.
 */
#include "boot/ctl_impl.h"

#include "boot/secret.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SEG_JOIN (16u << 10) /* small messages share a segment up to this */
#define IOV	 16

static const uint8_t *seg_data(const struct ctl_seg *s)
{
	return s->ref ? s->ref : s->w.data;
}

static size_t seg_len(const struct ctl_seg *s)
{
	return s->ref ? s->len : s->w.len;
}

static void seg_free(struct ctl_seg *s)
{
	if (s->w.data)
		rcp_secret_wipe(s->w.data, s->w.len); /* START carries the secret */
	rcp_wr_free(&s->w);
	free(s);
}

static struct ctl_seg *seg_new(struct rcp_ctl *ctl)
{
	struct ctl_seg *s = calloc(1, sizeof(*s));

	if (!s) {
		rcp_err_set(&ctl->cause, RCP_E_IO, ENOMEM, "calloc", ctl->name, NULL);
		ctl_die(ctl);
		return NULL;
	}
	s->w.max = SEG_JOIN + RCP_FRAME_HEADER + RCP_FRAME_MAX;
	if (ctl->tail)
		ctl->tail->next = s;
	else
		ctl->head = s;
	ctl->tail = s;
	return s;
}

/* A segment to append to. */
static struct ctl_seg *seg_open(struct rcp_ctl *ctl)
{
	struct ctl_seg *s = ctl->tail;

	return s && !s->ref && s->w.len < SEG_JOIN ? s : seg_new(ctl);
}

static void queued(struct rcp_ctl *ctl, size_t bytes)
{
	ctl->queued += bytes;
	ctl->undrained = true;
	/* Chunks have a bound of their own. */
	if (ctl->queued > ctl->queued_chunks + RCP_CTL_QUEUE_MAX) {
		rcp_err_set(&ctl->cause, RCP_E_LINK, 0, "", ctl->name,
			    "the peer does not read what it is sent: %zu bytes wait", ctl->queued);
		ctl_die(ctl);
		return;
	}
	if (!ctl->blocked)
		ctl_kick(ctl, CTL_DUE_FLUSH);
}

static bool may_send(const struct rcp_ctl *ctl)
{
	return ctl && ctl->state <= CTL_OPEN && !rcp_err_is(&ctl->broken);
}

void ctl_out_bytes(struct rcp_ctl *ctl, const void *data, size_t len)
{
	struct ctl_seg *s = seg_open(ctl);

	if (!s)
		return;
	rcp_wr_bytes(&s->w, data, len);
	if (!s->w.bad) {
		queued(ctl, len);
		return;
	}
	rcp_err_set(&ctl->cause, RCP_E_IO, ENOMEM, "realloc", ctl->name, NULL);
	ctl_die(ctl);
}

void rcp_ctl_send(struct rcp_ctl *ctl, enum rcp_msg_type type, const void *msg)
{
	struct ctl_seg *s = may_send(ctl) ? seg_open(ctl) : NULL;

	if (!s)
		return;
	size_t before = s->w.len;

	rcp_msg_encode(&s->w, type, msg);
	if (!s->w.bad) {
		queued(ctl, s->w.len - before);
		return;
	}
	if (s->w.no_memory)
		rcp_err_set(&ctl->cause, RCP_E_IO, ENOMEM, "realloc", ctl->name, NULL);
	else
		rcp_err_set(&ctl->cause, RCP_E_IO, 0, "", ctl->name, "a %s message is too long",
			    rcp_msg_desc(type)->name);
	ctl_die(ctl);
}

void rcp_ctl_send_abort(struct rcp_ctl *ctl, const struct rcp_err *cause)
{
	struct rcp_msg_abort m = {.code = (uint8_t)cause->code};

	RCP_ERR_TO_WIRE(&m, cause);
	rcp_ctl_send(ctl, RCP_MSG_ABORT, &m);
}

int rcp_ctl_send_chunk(struct rcp_ctl *ctl, const uint8_t *head, size_t head_len, const void *body,
		       size_t body_len, void (*done)(void *done_arg, bool ok), void *done_arg)
{
	if (!may_send(ctl))
		return RCP_E_LINK;
	if (ctl->queued_chunks && ctl->queued_chunks + body_len > RCP_CTL_CHUNK_SHARE)
		return RCP_AGAIN;
	struct ctl_seg *h = seg_open(ctl);

	if (!h)
		return RCP_E_LINK;
	rcp_wr_bytes(&h->w, head, head_len);
	struct ctl_seg *b = h->w.bad ? NULL : seg_new(ctl);

	if (!b) {
		rcp_err_set(&ctl->cause, RCP_E_IO, ENOMEM, "calloc", ctl->name, NULL);
		ctl_die(ctl);
		return RCP_E_LINK;
	}
	b->ref = body;
	b->len = body_len;
	b->done = done;
	b->done_arg = done_arg;
	ctl->queued_chunks += body_len;
	queued(ctl, head_len + body_len);
	return 0;
}

size_t rcp_ctl_queued_bytes(const struct rcp_ctl *ctl)
{
	return ctl->queued + (ctl->cipher_len - ctl->cipher_at);
}

bool ctl_out_empty(const struct rcp_ctl *ctl)
{
	return !ctl->head && ctl->cipher_at == ctl->cipher_len;
}

static void pop(struct rcp_ctl *ctl, bool ok)
{
	struct ctl_seg *s = ctl->head;

	ctl->head = s->next;
	if (!ctl->head)
		ctl->tail = NULL;
	if (s->ref)
		ctl->queued_chunks -= s->len - s->at; /* left only where it is dropped */
	if (s->done && ctl->ops)
		s->done(s->done_arg, ok);
	seg_free(s);
}

/* bytes of the queue's front are written. */
static void consume(struct rcp_ctl *ctl, size_t bytes)
{
	ctl->out_total += bytes;
	while (ctl->head) {
		size_t left = seg_len(ctl->head) - ctl->head->at;
		size_t n = bytes < left ? bytes : left;

		/* Exact before each done, which may queue more. */
		ctl->head->at += n;
		ctl->queued -= n;
		if (ctl->head->ref) {
			ctl->queued_chunks -= n;
			ctl->moved += n;
		}
		bytes -= n;
		if (n < left)
			return;
		pop(ctl, true);
		if (!bytes && ctl->head && seg_len(ctl->head))
			return;
	}
}

void ctl_out_drop(struct rcp_ctl *ctl)
{
	ctl->queued = ctl->cipher_at = ctl->cipher_len = 0;
	while (ctl->head)
		pop(ctl, false);
}

/* writev that raises no SIGPIPE: a library does not decide about the process's signals. */
static ssize_t pipe_writev(int fd, const struct iovec *iov, int count)
{
	static const struct timespec now;
	sigset_t pipe_set, old, pending;

	sigemptyset(&pipe_set);
	sigaddset(&pipe_set, SIGPIPE);
	sigpending(&pending);
	pthread_sigmask(SIG_BLOCK, &pipe_set, &old);
	ssize_t n = writev(fd, iov, count);
	int e = errno;

	if (n < 0 && e == EPIPE && !sigismember(&pending, SIGPIPE))
		sigtimedwait(&pipe_set, NULL, &now);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	errno = e;
	return n;
}

/* Bytes written; 0: would block; -1: broken, noted. */
static ssize_t put(struct rcp_ctl *ctl, struct iovec *iov, size_t count)
{
	struct msghdr mh = {.msg_iov = iov, .msg_iovlen = count};
	ssize_t n;

	do
		n = ctl->w.is_sock ? sendmsg(ctl->w.fd, &mh, MSG_NOSIGNAL | MSG_DONTWAIT)
				   : pipe_writev(ctl->w.fd, iov, (int)count);
	while (n < 0 && errno == EINTR);
	if (n > 0) {
		ctl->last_out = uv_now(ctl->loop);
		return n;
	}
	if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
		return 0;
	rcp_err_set(&ctl->broken, ctl->state == CTL_OPENING ? RCP_E_CONNECT : RCP_E_LINK, errno,
		    "write", ctl->name, NULL);
	return -1;
}

static ssize_t put_queue(struct rcp_ctl *ctl)
{
	struct iovec iov[IOV];
	size_t count = 0;

	for (struct ctl_seg *s = ctl->head; s && count < IOV; s = s->next) {
		const uint8_t *p = seg_data(s) + s->at;

		memcpy(&iov[count].iov_base, &p, sizeof(p)); /* drops const: writev only reads */
		iov[count++].iov_len = seg_len(s) - s->at;
	}
	ssize_t n = put(ctl, iov, count);

	if (n > 0)
		consume(ctl, (size_t)n);
	return n;
}

/* Fill the cipher buffer: what TLS has to say, else the queue's next bytes sealed. False: nothing.
 */
static bool seal(struct rcp_ctl *ctl)
{
	ctl->cipher_at = 0;
	ctl->cipher_len = rcp_tls_pull(ctl->tls, ctl->cipher, CTL_CIPHER_BYTES);
	while (!ctl->cipher_len && ctl->head && ctl_alive(ctl)) {
		const struct ctl_seg *s = ctl->head;
		ptrdiff_t n = rcp_tls_write(ctl->tls, seg_data(s) + s->at, seg_len(s) - s->at,
					    &ctl->broken);

		if (n <= 0)
			break;
		ctl->cipher_len = rcp_tls_pull(ctl->tls, ctl->cipher, CTL_CIPHER_BYTES);
		consume(ctl, (size_t)n);
	}
	return ctl->cipher_len != 0;
}

static ssize_t put_cipher(struct rcp_ctl *ctl)
{
	struct iovec iov = {ctl->cipher + ctl->cipher_at, ctl->cipher_len - ctl->cipher_at};
	ssize_t n = put(ctl, &iov, 1);

	if (n > 0)
		ctl->cipher_at += (size_t)n;
	return n;
}

/* The peer's last words (an ABORT) may tell more than EPIPE: read on for a while. */
static void broken(struct rcp_ctl *ctl)
{
	ctl->blocked = false;
	if (ctl->state > CTL_OPEN || ctl->eof) {
		if (ctl->state <= CTL_OPEN)
			ctl->cause = ctl->broken;
		ctl_die(ctl);
		return;
	}
	ctl_out_drop(ctl);
	if (!ctl_alive(ctl))
		return;
	ctl->end_at = uv_now(ctl->loop) + CTL_BROKEN_MS;
	ctl_arm(ctl);
	ctl_kick(ctl, CTL_DUE_READ);
}

static void after(struct rcp_ctl *ctl)
{
	if (!ctl_alive(ctl))
		return;
	if (rcp_err_is(&ctl->broken)) {
		broken(ctl);
	} else if (ctl_out_empty(ctl) && ctl->state == CTL_CLOSING) {
		ctl_half_close(ctl);
	} else if (ctl_out_empty(ctl) && ctl->undrained && ctl->state == CTL_OPEN) {
		ctl->undrained = false;
		if (ctl->ops && ctl->ops->drained)
			ctl->ops->drained(ctl->arg);
	}
}

void ctl_out_run(struct rcp_ctl *ctl)
{
	ssize_t n = 1;
	size_t budget = CTL_TURN_BYTES;

	if (ctl->w.fd < 0 || rcp_err_is(&ctl->broken))
		return;
	while (ctl_alive(ctl) && budget && n > 0) {
		if (!ctl->tls)
			n = ctl->head ? put_queue(ctl) : -1;
		else if (ctl->cipher_at < ctl->cipher_len || seal(ctl))
			n = put_cipher(ctl);
		else
			n = -1;
		budget = n > 0 && (size_t)n < budget ? budget - (size_t)n : 0;
	}
	ctl->blocked = n == 0;
	if (n > 0)
		ctl_kick(ctl, CTL_DUE_FLUSH);
	after(ctl);
	if (ctl_alive(ctl))
		ctl_poll(ctl);
}
