/* The control connection's way in: the marker or the TLS handshake, then frames to messages. */
#include "boot/ctl_impl.h"

#include "base/text.h"
#include "boot/secret.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define CHUNK_HEAD (RCP_FRAME_HEADER + 8) /* frame header, slot, length of the bytes */

/* fail(ctl, code, fmt, ...): the connection ends because of what came in. */
#define fail(ctl, code, ...)                                                                       \
	(rcp_err_set(&(ctl)->cause, code, 0, "", (ctl)->name, __VA_ARGS__), ctl_die(ctl))

enum { GET_EOF = -1, GET_FAILED = -2, GET_AGAIN = -3 };

static ssize_t get_raw(struct rcp_ctl *ctl, void *buf, size_t size)
{
	ssize_t n;

	do
		n = read(ctl->r.fd, buf, size);
	while (n < 0 && errno == EINTR);
	if (n > 0)
		ctl->last_in = uv_now(ctl->loop);
	if (n >= 0)
		return n ? n : GET_EOF;
	if (errno == EAGAIN || errno == EWOULDBLOCK)
		return GET_AGAIN;
	rcp_err_set(&ctl->cause, ctl->state == CTL_OPENING ? RCP_E_CONNECT : RCP_E_LINK, errno,
		    "read", ctl->name, NULL);
	return GET_FAILED;
}

void ctl_in_handshake(struct rcp_ctl *ctl)
{
	int r = rcp_tls_handshake(ctl->tls, &ctl->cause);

	if (r == 0) {
		ctl_kick(ctl, CTL_DUE_FLUSH);
	} else if (r > 0) {
		ctl_opened(ctl);
	} else {
		rcp_err_object(&ctl->cause, ctl->name);
		ctl_out_run(ctl); /* the alert, if the socket takes it */
		ctl_die(ctl);
	}
}

/* Ciphertext from the socket to TLS. Bytes, or GET_*. */
static ssize_t feed(struct rcp_ctl *ctl)
{
	uint8_t buf[RCP_TLS_HANDSHAKE_MAX];
	ssize_t n = get_raw(ctl, buf, sizeof(buf));

	if (n > 0 && rcp_tls_feed(ctl->tls, buf, (size_t)n, &ctl->cause))
		return GET_FAILED;
	return n;
}

static ssize_t get_sealed(struct rcp_ctl *ctl, void *buf, size_t size)
{
	for (;;) {
		ptrdiff_t n = rcp_tls_read(ctl->tls, buf, size, &ctl->cause);

		if (n)
			return n > 0 ? n : GET_FAILED;
		if (rcp_tls_eof(ctl->tls))
			return GET_EOF;
		n = feed(ctl);
		if (n < 0)
			return n;
		if (ctl->state == CTL_OPENING)
			ctl_in_handshake(ctl);
		if (!ctl_alive(ctl))
			return GET_FAILED;
	}
}

/* "first line of it", for the error. */
static const char *first_line(const char *text, size_t len, char *buf, size_t size)
{
	while (len && (*text == '\n' || *text == '\r'))
		text++, len--;
	size_t n = strcspn(text, "\r\n") < len ? strcspn(text, "\r\n") : len;

	return rcp_name_escape(buf, size, text, n);
}

static void no_marker(struct rcp_ctl *ctl, bool eof)
{
	char line[120];

	if (ctl->ops && ctl->ops->banner && ctl->in_len)
		ctl->ops->banner(ctl->arg, (const char *)ctl->in, ctl->in_len);
	if (!ctl_alive(ctl))
		return;
	if (ctl->in_len == 0) {
		fail(ctl, RCP_E_CONNECT, "the remote side ended before rcp answered");
		return;
	}
	size_t shown = ctl->in_len < CTL_IN_BYTES ? ctl->in_len : CTL_IN_BYTES - 1;

	ctl->in[shown] = 0; /* there is room, and it is never read again */
	rcp_err_set(&ctl->cause, RCP_E_CONNECT, 0, "", ctl->name,
		    "the remote shell printed %zu%s bytes and no rcp answered: \"%s\"", ctl->in_len,
		    eof ? "" : " or more", first_line((char *)ctl->in, shown, line, sizeof(line)));
	rcp_err_fix(&ctl->cause,
		    "log in once and see whether the shell's start-up files end or replace "
		    "the session; install rcp there or give --rcp-path");
	ctl_die(ctl);
}

/* True: it is behind us. */
static bool seek_marker(struct rcp_ctl *ctl)
{
	const uint8_t *at = memmem(ctl->in, ctl->in_len, RCP_CTL_MARKER, RCP_CTL_MARKER_LEN);
	size_t before = at ? (size_t)(at - ctl->in) : ctl->in_len;

	if (before > RCP_CTL_JUNK_MAX) {
		no_marker(ctl, false);
		return false;
	}
	if (!at)
		return false;
	ctl->await_marker = false;
	ctl->in_at = before + RCP_CTL_MARKER_LEN;
	if (before && ctl->ops && ctl->ops->banner)
		ctl->ops->banner(ctl->arg, (const char *)ctl->in, before);
	if (ctl_alive(ctl) && ctl->state == CTL_OPENING)
		ctl_opened(ctl);
	return ctl_alive(ctl);
}

static bool legal(struct rcp_ctl *ctl, enum rcp_msg_type type)
{
	const struct rcp_msg_desc *d = rcp_msg_desc(type);

	if (rcp_msg_legal(d, ctl->phase, ctl->peer_initiates, ctl->peer_role))
		return true;
	fail(ctl, RCP_E_CONNECT, "the peer broke the protocol: %s is not for it to say now",
	     d->name);
	return false;
}

static void deliver(struct rcp_ctl *ctl, enum rcp_msg_type type, uint8_t *payload, size_t len)
{
	struct rcp_msg msg;

	if (!legal(ctl, type))
		return;
	if (rcp_msg_decode(type, payload, len, &ctl->cause, &msg)) {
		rcp_err_object(&ctl->cause, ctl->name);
		ctl_die(ctl);
		return;
	}
	if (type == RCP_MSG_PING) {
		ctl->peer_works = msg.ping_.token != 0;
		ctl->moved += msg.ping_.token > ctl->peer_token; /* its work goes on */
		if (msg.ping_.token)
			ctl->peer_token = msg.ping_.token;
		return;
	}
	/* What is for the user alone is no step of the protocol. */
	if (type != RCP_MSG_NOTE) {
		ctl->expect_at = 0;
		ctl->moved++;
	}
	ctl->ops->message(ctl->arg, &msg);
	if (type == RCP_MSG_START) { /* with the session's secret */
		rcp_secret_wipe(&msg, sizeof(msg));
		rcp_secret_wipe(payload, len);
	}
}

static void deliver_chunk(struct rcp_ctl *ctl)
{
	struct rcp_msg msg = {.type = RCP_MSG_CHUNK};

	msg.chunk_.slot = ctl->chunk_slot;
	msg.chunk_.bytes = rcp_span_of(ctl->chunk, ctl->chunk_len);
	ctl->chunk = NULL;
	ctl->expect_at = 0;
	ctl->ops->message(ctl->arg, &msg);
}

/* CHUNK_HEAD bytes are there: find the chunk's place. */
static void begin_chunk(struct rcp_ctl *ctl, const uint8_t *head, uint32_t frame_len)
{
	size_t room = 0;
	uint32_t slot = rcp_get_u32(head + RCP_FRAME_HEADER);
	uint32_t len = rcp_get_u32(head + RCP_FRAME_HEADER + 4);

	if (!legal(ctl, RCP_MSG_CHUNK))
		return;
	uint8_t *p = ctl->ops->chunk_place ? ctl->ops->chunk_place(ctl->arg, slot, &room) : NULL;

	if (!ctl_talks(ctl))
		return;
	if (!p || len != frame_len - 8 || len < RCP_CHUNK_HEADER || len > room) {
		fail(ctl, RCP_E_CONNECT,
		     "the peer broke the protocol: CHUNK of %u bytes into slot %u, which has no "
		     "room for it",
		     len, slot);
		return;
	}
	ctl->chunk = p;
	ctl->chunk_slot = slot;
	ctl->chunk_len = len;
	ctl->chunk_have = 0;
	ctl->in_at += CHUNK_HEAD;
}

/* What the buffer has of the chunk. */
static void fill_chunk(struct rcp_ctl *ctl)
{
	size_t want = ctl->chunk_len - ctl->chunk_have, have = ctl->in_len - ctl->in_at;
	size_t n = want < have ? want : have;

	memcpy(ctl->chunk + ctl->chunk_have, ctl->in + ctl->in_at, n);
	ctl->in_at += n;
	ctl->chunk_have += (uint32_t)n;
	ctl->moved += n;
	if (ctl->chunk_have == ctl->chunk_len)
		deliver_chunk(ctl);
}

/* One frame, if it is all there. False: more bytes are needed. */
static bool one_frame(struct rcp_ctl *ctl)
{
	uint8_t *p = ctl->in + ctl->in_at;
	size_t have = ctl->in_len - ctl->in_at;
	enum rcp_msg_type type;
	uint32_t len;

	if (have < RCP_FRAME_HEADER)
		return false;
	if (rcp_frame_parse(p, ctl->chunk_bytes, &ctl->cause, &type, &len)) {
		rcp_err_object(&ctl->cause, ctl->name);
		ctl_die(ctl);
		return false;
	}
	if (type == RCP_MSG_CHUNK && len >= 8) {
		if (have < CHUNK_HEAD)
			return false;
		begin_chunk(ctl, p, len);
		return true;
	}
	if (have < RCP_FRAME_HEADER + (size_t)len)
		return false;
	ctl->in_at += RCP_FRAME_HEADER + len;
	deliver(ctl, type, p + RCP_FRAME_HEADER, len);
	return true;
}

static void parse(struct rcp_ctl *ctl)
{
	if (ctl->await_marker && ctl->state <= CTL_OPEN && !seek_marker(ctl))
		return;
	while (ctl_talks(ctl) && !ctl->paused) {
		if (ctl->chunk && ctl->in_at < ctl->in_len)
			fill_chunk(ctl);
		else if (ctl->chunk || !one_frame(ctl))
			break;
	}
	if (ctl->state > CTL_OPEN)
		ctl->in_at = ctl->in_len; /* lingering: what comes is dropped */
	if (ctl->in_at == ctl->in_len) {
		ctl->in_at = ctl->in_len = 0;
	} else if (ctl->in_at) {
		memmove(ctl->in, ctl->in + ctl->in_at, ctl->in_len - ctl->in_at);
		ctl->in_len -= ctl->in_at;
		if (ctl->phase == RCP_PHASE_BOOT) /* it may be half of START */
			rcp_secret_wipe(ctl->in + ctl->in_len, ctl->in_at);
		ctl->in_at = 0;
	}
}

static void at_eof(struct rcp_ctl *ctl)
{
	ctl->eof = true;
	if (ctl->state > CTL_OPEN) {
		if (ctl->state == CTL_LINGER)
			ctl_die(ctl);
		else
			ctl_poll(ctl); /* still something to write */
	} else if (ctl->await_marker) {
		no_marker(ctl, true);
	} else if (rcp_err_is(&ctl->broken)) {
		ctl->cause = ctl->broken;
		ctl_die(ctl);
	} else if (ctl->state == CTL_OPENING) {
		fail(ctl, RCP_E_CONNECT, "the peer closed the connection in the TLS handshake");
	} else {
		fail(ctl, RCP_E_LINK, "the peer closed the connection%s",
		     ctl->chunk || ctl->in_len ? " in the middle of a message" : "");
	}
}

/* One read: into the chunk's place, or to the buffer's end. Bytes, or GET_*. */
static ssize_t read_some(struct rcp_ctl *ctl)
{
	uint8_t *p = ctl->in + ctl->in_len;
	size_t size = CTL_IN_BYTES - ctl->in_len;

	if (size > CTL_READ_BYTES)
		size = CTL_READ_BYTES;
	bool placed = ctl->chunk && ctl->in_at == ctl->in_len && ctl->state == CTL_OPEN;

	if (placed) {
		p = ctl->chunk + ctl->chunk_have;
		size = ctl->chunk_len - ctl->chunk_have;
	}
	ssize_t n = ctl->tls ? get_sealed(ctl, p, size) : get_raw(ctl, p, size);

	if (n <= 0)
		return n;
	ctl->in_total += (uint64_t)n;
	if (!placed) {
		ctl->in_len += (size_t)n;
	} else {
		ctl->chunk_have += (uint32_t)n;
		ctl->moved += (uint64_t)n;
		if (ctl->chunk_have == ctl->chunk_len)
			deliver_chunk(ctl);
	}
	return n;
}

void ctl_in_run(struct rcp_ctl *ctl)
{
	size_t budget = CTL_TURN_BYTES;

	if (ctl->in_len)
		parse(ctl);
	while (ctl_alive(ctl) && !ctl->eof && !ctl->paused && budget) {
		ssize_t n = read_some(ctl);

		if (n == GET_AGAIN || !ctl_alive(ctl))
			break;
		if (n == GET_EOF)
			at_eof(ctl);
		else if (n == GET_FAILED)
			ctl_die(ctl);
		else if (n > 0)
			parse(ctl);
		budget = n > 0 && (size_t)n < budget ? budget - (size_t)n : 0;
	}
	if (!ctl_alive(ctl))
		return;
	/* TLS may hold bytes that the socket will not tell of again. */
	if (!budget && !ctl->eof && !ctl->paused)
		ctl_kick(ctl, CTL_DUE_READ);
	ctl_poll(ctl);
}
