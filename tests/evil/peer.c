/* The hostile peer's bytes: pipes, TLS, frames, messages; every wait ends at e->until_ns. */
#include "evil.h"
#include "nic.h"

#include "base/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PING_NS (1500 * RCP_MS)

uint64_t evil_now(void)
{
	return rcp_now_ns();
}

void evil_note(struct evil *e, const char *what, const char *text)
{
	if (!e->report)
		return;
	fprintf(e->report, "%s: ", what);
	for (; *text; text++)
		fputc(*text == '\n' ? ' ' : *text, e->report);
	fputc('\n', e->report);
	fflush(e->report);
}

void evil_act(struct evil *e)
{
	if (!e->acted)
		evil_note(e, "act", "");
	e->acted = true;
}

bool evil_step(struct evil *e, const char *what)
{
	e->step = what;
	return true;
}

static int left_ms(const struct evil *e, unsigned most)
{
	uint64_t now = evil_now();
	uint64_t ms = now < e->until_ns ? (e->until_ns - now) / RCP_MS : 0;

	return (int)(ms < most ? ms : most);
}

/* ---- bytes in ---- */

static uint8_t *room(struct evil_chan *c, size_t len)
{
	if (c->in_len + len > c->in_cap) {
		c->in_cap = 2 * (c->in_len + len);
		c->in = realloc(c->in, c->in_cap);
		if (!c->in)
			abort();
	}
	return c->in + c->in_len;
}

static void open_tls(struct evil_chan *c)
{
	struct rcp_err err = {0};
	ptrdiff_t n;

	do {
		n = rcp_tls_read(c->tls, room(c, 16384), 16384, &err);
		c->in_len += n > 0 ? (size_t)n : 0;
	} while (n > 0);
	if (n < 0 || rcp_tls_eof(c->tls))
		c->eof = true;
}

/* What has come; false: nothing yet. */
static bool fill(struct evil_chan *c)
{
	uint8_t raw[4096];
	struct rcp_err err = {0};
	ssize_t n;

	if (c->eof || c->rfd < 0)
		return c->eof;
	n = c->tls ? read(c->rfd, raw, sizeof(raw)) : read(c->rfd, room(c, 65536), 65536);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (n <= 0) {
		c->eof = true;
	} else if (!c->tls) {
		c->in_len += (size_t)n;
	} else if (rcp_tls_feed(c->tls, raw, (size_t)n, &err)) {
		c->eof = true;
	} else {
		open_tls(c);
	}
	return true;
}

/* ---- bytes out ---- */

/* While it can't be written what comes is read, or both ends would wait for each other. */
static void put(struct evil *e, int fd, struct evil_chan *c, const uint8_t *p, size_t len)
{
	while (len && !e->gone) {
		ssize_t n = send(fd, p, len, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno == ENOTSOCK)
			n = write(fd, p, len);
		if (n >= 0) {
			p += n;
			len -= (size_t)n;
		} else if (errno == EAGAIN) {
			struct pollfd w[2] = {{.fd = fd, .events = POLLOUT},
					      {.fd = c && !c->eof ? c->rfd : -1, .events = POLLIN}};

			if (!left_ms(e, 1000) || poll(w, 2, left_ms(e, 1000)) < 0)
				e->gone = true;
			if (w[1].revents && c)
				fill(c);
		} else if (errno != EINTR) {
			e->gone = true;
		}
	}
}

static void pull(struct evil *e, struct evil_chan *c)
{
	uint8_t raw[16384];
	size_t n;

	while ((n = rcp_tls_pull(c->tls, raw, sizeof(raw))) > 0)
		put(e, c->wfd, c, raw, n);
}

void evil_raw(struct evil *e, const void *data, size_t len)
{
	struct evil_chan *c = e->ctl;
	const uint8_t *p = data;
	struct rcp_err err = {0};

	e->last_out_ns = evil_now();
	if (!c->tls) {
		put(e, c->wfd, c, p, len);
		return;
	}
	while (len && !e->gone) {
		ptrdiff_t n = rcp_tls_write(c->tls, p, len < 16384 ? len : 16384, &err);

		if (n <= 0)
			e->gone = true;
		pull(e, c);
		p += n > 0 ? n : 0;
		len -= n > 0 ? (size_t)n : 0;
	}
}

void evil_data(struct evil *e, const void *data, size_t len)
{
	bool gone = e->gone;

	if (e->data < 0)
		return;
	put(e, e->data, e->ctl, data, len);
	if (e->gone && !gone) { /* the link alone is */
		e->gone = false;
		close(e->data);
		e->data = -1;
	}
}

bool evil_read(struct evil *e, int fd, void *buf, size_t len)
{
	uint8_t *p = buf;

	while (len) {
		struct pollfd w = {.fd = fd, .events = POLLIN};
		ssize_t n = recv(fd, p, len, MSG_DONTWAIT);

		if (n > 0) {
			p += n;
			len -= (size_t)n;
		} else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
			return false;
		} else if (!left_ms(e, 500) || poll(&w, 1, left_ms(e, 500)) < 0) {
			return false;
		}
		evil_live(e);
	}
	return true;
}

/* ---- messages ---- */

void evil_live(struct evil *e)
{
	if (!e->mute && evil_now() - e->last_out_ns > PING_NS)
		evil_say(e, RCP_MSG_PING, &(struct rcp_msg_ping){.token = e->busy});
}

void evil_say(struct evil *e, enum rcp_msg_type type, const void *msg)
{
	struct rcp_wr w = {.max = 1 << 20};

	rcp_msg_encode(&w, type, msg);
	if (w.bad)
		evil_note(e, "broken", "a message that can't be encoded");
	else
		evil_raw(e, w.data, w.len);
	rcp_wr_free(&w);
}

static void hear_results(struct evil *e)
{
	struct rcp_rd rd = rcp_rd_of(e->msg.results_.results.data, e->msg.results_.results.len);
	struct rcp_rec_result r;
	char text[400];

	while (rcp_rec_next(&rd, RCP_REC_RESULT, &r) > 0) {
		if (r.status == RCP_STATUS_FAILED || r.status == RCP_STATUS_WARNED) {
			snprintf(text, sizeof(text), "%.*s: %.*s: %.*s", (int)(r.object.len < 100 ? r.object.len : 100),
				 r.object.data, (int)r.call.len, r.call.data, (int)(r.text.len < 200 ? r.text.len : 200), r.text.data);
			evil_note(e, "word", text);
		}
		for (uint32_t i = 0; i < r.count && r.first + i < EVIL_NAMES; i++) {
			struct evil_entry *n = &e->entries[r.first + i];

			n->ended = true;
			n->status = r.status;
			n->code = r.code;
		}
	}
}

static void hear_answers(struct evil *e)
{
	struct rcp_rd rd = rcp_rd_of(e->msg.answers_.answers.data, e->msg.answers_.answers.len);
	struct rcp_rec_answer a;

	while (rcp_rec_next(&rd, RCP_REC_ANSWER, &a) > 0) {
		for (uint32_t i = 0; i < a.count && a.first + i < EVIL_NAMES; i++)
			e->entries[a.first + i].answered = true;
	}
}

static void hear_entries(struct evil *e)
{
	struct rcp_rd rd = rcp_rd_of(e->msg.entries_.entries.data, e->msg.entries_.entries.len);
	struct rcp_rec_entry r;

	while (rcp_rec_next(&rd, RCP_REC_ENTRY, &r) > 0 && e->next_entry < EVIL_NAMES) {
		struct evil_entry *n = &e->entries[e->next_entry++];

		n->type = r.type;
		n->size = r.size;
		rcp_span_copy(r.path, n->name, sizeof(n->name));
	}
}

static void hear_abort(struct evil *e)
{
	const struct rcp_msg_abort *m = &e->msg.abort_;
	char text[900];

	snprintf(text, sizeof(text), "%.*s: %.*s: %.*s", (int)(m->object.len < 200 ? m->object.len : 200), m->object.data,
		 (int)m->call.len, m->call.data, (int)m->text.len, m->text.data);
	evil_note(e, "word", text);
	e->aborted = true;
}

static void hear_fail(struct evil *e)
{
	char text[900];

	snprintf(text, sizeof(text), "%.*s: %.*s", (int)(e->msg.link_fail_.object.len < 200 ? e->msg.link_fail_.object.len : 200),
		 e->msg.link_fail_.object.data, (int)(e->msg.link_fail_.text.len < 600 ? e->msg.link_fail_.text.len : 600),
		 e->msg.link_fail_.text.data);
	evil_note(e, "link", text);
}

static void hear(struct evil *e)
{
	switch ((unsigned)e->msg.type) {
	case RCP_MSG_RESULTS:
		hear_results(e);
		break;
	case RCP_MSG_ANSWERS:
		hear_answers(e);
		break;
	case RCP_MSG_ENTRIES:
		hear_entries(e);
		break;
	case RCP_MSG_CREDIT:
		for (size_t i = 0; i + 4 <= e->msg.credit_.slots.len; i += 4)
			e->taken[rcp_get_u32(e->msg.credit_.slots.data + i) & 63] = false;
		e->credits += e->msg.credit_.slots.len / 4;
		break;
	case RCP_MSG_AGAIN:
		e->agains++;
		e->again = e->msg.again_;
		break;
	case RCP_MSG_VERDICT:
		e->verdict = true;
		e->verdict_code = e->msg.verdict_.code;
		break;
	case RCP_MSG_WALK_END:
		e->walk_end = true;
		break;
	case RCP_MSG_POSTED:
		e->posted = true;
		break;
	case RCP_MSG_LINK_FAIL:
		hear_fail(e);
		break;
	case RCP_MSG_ABORT:
		hear_abort(e);
		break;
	default:
		break;
	}
}

/* One frame out of what has come, but for PING and NOTE. */
static bool next_frame(struct evil *e)
{
	struct evil_chan *c = e->ctl;
	struct rcp_err err = {0};

	while (c->in_len >= RCP_FRAME_HEADER) {
		enum rcp_msg_type type;
		uint32_t len;

		if (rcp_frame_parse(c->in, RCP_CHUNK_BYTES_MAX, &err, &type, &len)) {
			evil_note(e, "broken", err.text);
			c->eof = true;
			c->in_len = 0;
			return false;
		}
		size_t whole = RCP_FRAME_HEADER + (size_t)len;

		if (c->in_len < whole)
			return false;
		free(e->buf);
		e->buf = malloc(len + 1);
		if (!e->buf)
			abort();
		memcpy(e->buf, c->in + RCP_FRAME_HEADER, len);
		memmove(c->in, c->in + whole, c->in_len - whole);
		c->in_len -= whole;
		if (rcp_msg_decode(type, e->buf, len, &err, &e->msg)) {
			evil_note(e, "broken", err.text);
			return false;
		}
		if (type == RCP_MSG_PING || type == RCP_MSG_NOTE)
			continue;
		hear(e);
		return true;
	}
	return false;
}

bool evil_get_within(struct evil *e, unsigned ms)
{
	uint64_t until = evil_now() + ms * RCP_MS;

	for (;;) {
		struct pollfd w = {.fd = e->ctl->rfd, .events = POLLIN};

		if (e->aborted)
			return false;
		if (next_frame(e))
			return !e->aborted;
		if (e->ctl->eof || evil_now() >= e->until_ns || evil_now() >= until)
			return false;
		if (!fill(e->ctl))
			poll(&w, 1, left_ms(e, ms < 300 ? ms : 300));
		evil_live(e);
	}
}

bool evil_get(struct evil *e)
{
	return evil_get_within(e, 1000000);
}

bool evil_await(struct evil *e, enum rcp_msg_type type)
{
	while (evil_get(e)) {
		if (e->msg.type == type)
			return true;
	}
	return false;
}

void evil_drain(struct evil *e)
{
	while (evil_get(e))
		;
}

static void hang_up(struct evil_chan *c)
{
	if (c->rfd >= 0)
		close(c->rfd);
	if (c->wfd >= 0 && c->wfd != c->rfd)
		close(c->wfd);
	c->rfd = c->wfd = -1;
	c->eof = true;
}

void evil_hang_up(struct evil *e)
{
	if (e->data >= 0)
		close(e->data);
	if (e->listener >= 0)
		close(e->listener);
	e->data = e->listener = -1;
	hang_up(&e->tcp);
	hang_up(&e->pipe);
	e->gone = true;
}

void evil_free(struct evil *e)
{
	evil_hang_up(e);
	nic_free(e);
	rcp_tls_free(&e->tcp.tls);
	rcp_tls_free(&e->pipe.tls);
	rcp_seal_free(&e->seal);
	free(e->tcp.in);
	free(e->pipe.in);
	free(e->buf);
}

/* ---- TCP ---- */

int evil_dial(uint16_t port)
{
	struct sockaddr_in to = {.sin_family = AF_INET,
				 .sin_port = htons(port),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd >= 0 && connect(fd, (const struct sockaddr *)(const void *)&to, sizeof(to)) < 0) {
		close(fd);
		return -1;
	}
	if (fd >= 0)
		fcntl(fd, F_SETFL, O_NONBLOCK);
	return fd;
}

bool evil_tls(struct evil *e, int fd, bool server, const char *identity, const uint8_t *key)
{
	struct rcp_tls_params p = {.server = server, .identity = identity, .key = key};
	struct evil_chan *c = &e->tcp;
	struct rcp_err err = {0};
	int rc = 0;

	hang_up(c);
	*c = (struct evil_chan){.rfd = fd, .wfd = fd, .in = c->in, .in_cap = c->in_cap};
	if (rcp_tls_new(&p, &err, &c->tls))
		return false;
	while (rc == 0 && !c->eof && left_ms(e, 1)) {
		struct pollfd w = {.fd = fd, .events = POLLIN};
		uint8_t raw[4096];
		ssize_t n;

		rc = rcp_tls_handshake(c->tls, &err);
		pull(e, c);
		if (rc)
			break;
		poll(&w, 1, left_ms(e, 300));
		n = read(fd, raw, sizeof(raw));
		if (n > 0)
			rcp_tls_feed(c->tls, raw, (size_t)n, &err);
		else if (n == 0 || errno != EAGAIN)
			c->eof = true;
	}
	pull(e, c);
	if (rc == 1)
		open_tls(c);
	return rc == 1;
}
