#include "link/stream.h"

#include "link/stream_impl.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <uv.h>

/*
 * Within one host there is no distance that a large send buffer could fill; it only lets the source
 * run so far ahead that the pages are cold again when the sink copies them. 256 KiB halves the CPU
 * time of both ends there (stream-bench). Between hosts the kernel's own sizing is better than any
 * number.
 */
#define LOCAL_SNDBUF (256 << 10)

/* A close waits this long for bytes to move, and so many times. */
#define CLOSE_PATIENCE_MS    2000
#define CLOSE_PATIENCE_TIMES 30

struct watch {
	uv_poll_t poll; /* data: the connection */
	int events;	/* what the loop looks for now */
	bool open;
};

/* The stream and its handles. They are closed before `down`, so that free needs no loop. */
struct stream_loop {
	struct stream stream; /* first */
	uv_loop_t *loop;
	uv_idle_t turn;
	uv_timer_t patience;
	unsigned handles;
	bool orphan;  /* the maker failed: no down, free with the last handle */
	bool leaving; /* the handles are being closed */
	bool left;    /* source: our side has ended, the peer's not yet */
	unsigned waited;
	uint64_t moved;
	struct watch *watches;
};

static struct stream_loop *of(struct stream *s)
{
	return (struct stream_loop *)s;
}

static struct stream *stream_of(struct rcp_link *link)
{
	return (struct stream *)link;
}

static void on_turn(uv_idle_t *handle);

void stream_wake(struct stream *s)
{
	if (!of(s)->leaving)
		uv_idle_start(&of(s)->turn, on_turn);
}

void stream_fail(struct stream *s, enum rcp_code code, int sys_errno, const char *call,
		 const char *fmt, ...)
{
	char text[sizeof(s->cause.text)];
	va_list ap;

	if (s->over)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	rcp_err_set(&s->cause, code, sys_errno, call, s->peer, "%s", text);
	s->over = true;
	stream_wake(s);
}

bool stream_again(struct stream *s, ssize_t n, const char *call)
{
	int e = errno;

	if (n < 0 && (e == EAGAIN || e == EINTR))
		return true;
	stream_fail(s, RCP_E_LINK, n < 0 ? e : 0, call,
		    n < 0 ? "the connection was lost" : "the peer closed the connection");
	return false;
}

/* ---- the owner's calls ---- */

static int post(struct rcp_link *link, struct rcp_post *p)
{
	struct stream *s = stream_of(link);

	if (s->over || s->closing)
		return RCP_E_LINK;
	return stream_source_post(s, p);
}

static void release(struct rcp_link *link, uint32_t slot)
{
	stream_sink_release(stream_of(link), slot);
}

static void ring_get(struct rcp_link *link, struct rcp_ring_info *out)
{
	struct stream *s = stream_of(link);

	s->granted = true;
	*out = (struct rcp_ring_info){.slots = s->ring.slots,
				      .slot_bytes = s->ring.slot_bytes,
				      .chunk_bytes = s->ring.chunk_bytes,
				      .generation = s->generation};
}

static int ring_set(struct rcp_link *link, const struct rcp_ring_info *ring, struct rcp_err *err)
{
	return stream_source_ring(stream_of(link), ring, err);
}

static int reg(struct rcp_link *link, const void *addr, size_t len, bool read_only,
	       struct rcp_err *err, struct rcp_mem **out)
{
	(void)link, (void)addr, (void)len, (void)read_only, (void)err;
	*out = NULL;
	return 0;
}

static void unreg(struct rcp_link *link, struct rcp_mem *mem)
{
	(void)link, (void)mem;
}

static void on_patience(uv_timer_t *timer)
{
	struct stream_loop *l = timer->data;
	struct stream *s = &l->stream;

	if (l->moved != s->link.moved && ++l->waited < CLOSE_PATIENCE_TIMES) {
		l->moved = s->link.moved;
		return;
	}
	/* All is with the network: that the peer has not closed its side is not our loss. */
	if (l->left)
		s->over = true;
	else
		stream_fail(s, RCP_E_LINK, ETIMEDOUT, "send",
			    "the peer did not take the last chunks in time");
	stream_wake(s);
}

static void begin_close(struct rcp_link *link)
{
	struct stream_loop *l = of(stream_of(link));

	if (l->stream.closing || l->leaving)
		return;
	l->stream.closing = true;
	l->moved = l->stream.link.moved;
	uv_timer_start(&l->patience, on_patience, CLOSE_PATIENCE_MS, CLOSE_PATIENCE_MS);
	stream_wake(&l->stream);
}

static void stream_destroy(struct stream_loop *l)
{
	struct stream *s = &l->stream;

	if (s->role == RCP_ROLE_SOURCE)
		stream_source_free(s);
	else
		stream_sink_free(s);
	free(s->conns);
	free(l->watches);
	free(l);
}

static void stream_free(struct rcp_link *link)
{
	struct stream_loop *l = of(stream_of(link));

	assert(l->leaving && !l->handles);
	stream_destroy(l);
}

static const struct rcp_link_ops stream_ops = {
	.post = post,
	.release = release,
	.ring_get = ring_get,
	.ring_set = ring_set,
	.reg = reg,
	.unreg = unreg,
	.close = begin_close,
	.free = stream_free,
};

/* ---- the loop ---- */

static void handle_gone(struct stream_loop *l)
{
	if (--l->handles)
		return;
	if (l->orphan) {
		stream_destroy(l);
		return;
	}
	struct rcp_link *link = &l->stream.link;
	struct rcp_err cause = l->stream.cause; /* the owner may free the link from inside */

	link->events->down(link->arg, &cause);
}

static void on_closed(uv_handle_t *handle)
{
	handle_gone(handle->data);
}

static void on_poll_closed(uv_handle_t *handle)
{
	struct stream_conn *c = handle->data;

	close(c->fd);
	c->fd = -1;
	handle_gone(of(c->stream));
}

/* No I/O after this. Events: sent(!ok) now, `down` when the loop has let go of the handles. */
static void leave(struct stream_loop *l)
{
	struct stream *s = &l->stream;

	s->over = true;
	l->leaving = true;
	for (unsigned i = 0; i < s->conn_count; i++) {
		if (l->watches[i].open)
			uv_close((uv_handle_t *)&l->watches[i].poll, on_poll_closed);
	}
	uv_close((uv_handle_t *)&l->turn, on_closed);
	uv_close((uv_handle_t *)&l->patience, on_closed);
	if (s->role == RCP_ROLE_SOURCE && !l->orphan)
		stream_source_abandon(s);
}

static void on_poll(uv_poll_t *handle, int status, int events);

static void look_for(struct stream_loop *l)
{
	for (unsigned i = 0; i < l->stream.conn_count; i++) {
		struct watch *w = &l->watches[i];
		struct stream_conn *c = &l->stream.conns[i];
		int want = (c->eof ? 0 : UV_READABLE) | (c->blocked ? UV_WRITABLE : 0);

		if (want == w->events)
			continue;
		w->events = want;
		if (want)
			uv_poll_start(&w->poll, want, on_poll);
		else
			uv_poll_stop(&w->poll);
	}
}

/* Close wanted and nothing left to send: the source ends its side and waits for the sink's end, so
 * that no reset overtakes the last chunks; the sink has nothing to wait for. */
static void try_leave(struct stream_loop *l)
{
	struct stream *s = &l->stream;

	if (s->role == RCP_ROLE_SINK || !s->up) {
		s->over = true;
		return;
	}
	if (!stream_source_empty(s))
		return;
	bool eof = true;

	for (unsigned i = 0; i < s->conn_count; i++) {
		if (!l->left)
			shutdown(s->conns[i].fd, SHUT_WR);
		eof &= s->conns[i].eof;
	}
	l->left = true;
	if (eof)
		s->over = true;
}

static void turn(struct stream_loop *l)
{
	struct stream *s = &l->stream;

	if (!s->up && !s->closing && !s->over) {
		s->up = true;
		s->link.events->up(s->link.arg);
	}
	/* What follows may wake us again: that is for the next turn. */
	uv_idle_stop(&l->turn);
	if (s->role == RCP_ROLE_SOURCE)
		stream_source_turn(s);
	else
		stream_sink_turn(s);
	if (s->closing && !s->over)
		try_leave(l);
	if (s->over) {
		leave(l);
		return;
	}
	look_for(l);
}

static void on_turn(uv_idle_t *handle)
{
	turn(handle->data);
}

/* libuv has stopped the watch. What has arrived is still to be read; the socket then says what is
 * wrong. */
static void poll_failed(struct watch *w, struct stream_conn *c)
{
	struct stream *s = c->stream;
	int e = 0;
	socklen_t len = sizeof(e);
	uint64_t moved = s->link.moved;

	w->events = 0;
	if (s->role == RCP_ROLE_SOURCE)
		stream_source_readable(c);
	else
		stream_sink_readable(c);
	if (s->over || c->eof || moved != s->link.moved)
		return;
	getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &e, &len);
	stream_fail(s, RCP_E_LINK, e, "poll", "the connection was lost");
}

static void on_poll(uv_poll_t *handle, int status, int events)
{
	struct stream_conn *c = handle->data;
	struct stream *s = c->stream;
	struct stream_loop *l = of(s);

	if (s->over)
		return;
	if (status < 0)
		poll_failed(&l->watches[c - s->conns], c);
	if (events & UV_WRITABLE)
		c->blocked = false;
	if (events & UV_READABLE && s->role == RCP_ROLE_SOURCE)
		stream_source_readable(c);
	else if (events & UV_READABLE)
		stream_sink_readable(c);
	turn(l);
}

/* ---- making one ---- */

static void name(const struct sockaddr_storage *addr, char *out, size_t size)
{
	char host[INET6_ADDRSTRLEN] = "?";
	const struct sockaddr_in *in = (const struct sockaddr_in *)addr;
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)addr;

	if (addr->ss_family == AF_INET) {
		inet_ntop(AF_INET, &in->sin_addr, host, sizeof(host));
		snprintf(out, size, "%s:%u", host, ntohs(in->sin_port));
	} else if (addr->ss_family == AF_INET6) {
		inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof(host));
		snprintf(out, size, "[%s]:%u", host, ntohs(in6->sin6_port));
	} else {
		snprintf(out, size, "the peer");
	}
}

/* One address at both ends: loopback, or the host's own. */
static bool same_host(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
	const struct sockaddr_in *in[] = {(const void *)a, (const void *)b};
	const struct sockaddr_in6 *in6[] = {(const void *)a, (const void *)b};

	if (a->ss_family != b->ss_family)
		return false;
	if (a->ss_family == AF_INET)
		return in[0]->sin_addr.s_addr == in[1]->sin_addr.s_addr;
	return a->ss_family == AF_INET6 &&
	       !memcmp(&in6[0]->sin6_addr, &in6[1]->sin6_addr, sizeof(in6[0]->sin6_addr));
}

/* What can't be set on this kind of socket is not needed there. */
static void tune(const struct stream *s, bool local)
{
	static const int one = 1, bytes = LOCAL_SNDBUF;

	for (unsigned i = 0; i < s->conn_count; i++) {
		int fd = s->conns[i].fd;

		(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		if (local && s->role == RCP_ROLE_SOURCE)
			(void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
	}
}

/* The connections' ends: for errors and -v, and for how they are tuned. */
static void look_at(struct stream *s)
{
	struct sockaddr_storage here = {0}, there = {0};
	socklen_t here_len = sizeof(here), there_len = sizeof(there);
	char mine[80];

	getsockname(s->conns[0].fd, (struct sockaddr *)&here, &here_len);
	getpeername(s->conns[0].fd, (struct sockaddr *)&there, &there_len);
	name(&here, mine, sizeof(mine));
	name(&there, s->peer, sizeof(s->peer));
	tune(s, same_host(&here, &there));
	snprintf(s->link.caps.detail, sizeof(s->link.caps.detail),
		 "%.60s %s %.60s, %u connection%s", mine,
		 s->role == RCP_ROLE_SOURCE ? "to" : "from", s->peer, s->conn_count,
		 s->conn_count == 1 ? "" : "s");
}

static int watch(struct stream_loop *l, struct rcp_err *err)
{
	struct stream *s = &l->stream;

	for (unsigned i = 0; i < s->conn_count; i++) {
		int rc = uv_poll_init(l->loop, &l->watches[i].poll, s->conns[i].fd);

		if (rc)
			return rcp_err_set(err, RCP_E_IO, -rc, "uv_poll_init", s->peer,
					   "the loop can't watch the connection: %s",
					   uv_strerror(rc));
		l->watches[i].poll.data = &s->conns[i];
		l->watches[i].open = true;
		l->handles++;
	}
	return 0;
}

static void init(struct stream_loop *l, const struct rcp_link_params *params, const int *fds)
{
	struct stream *s = &l->stream;

	s->role = params->role;
	s->link = (struct rcp_link){
		.ops = &stream_ops,
		.events = params->events,
		.arg = params->arg,
		.caps = {.sendfile = params->role == RCP_ROLE_SOURCE,
			 .transport = "tcp",
			 .slots = params->slots,
			 .chunk_bytes = params->chunk_bytes},
	};
	for (unsigned i = 0; i < s->conn_count; i++) {
		s->conns[i].stream = s;
		s->conns[i].fd = fds[i];
		s->conns[i].first = i == 0;
	}
	look_at(s);
	uv_idle_init(l->loop, &l->turn);
	uv_timer_init(l->loop, &l->patience);
	l->turn.data = l->patience.data = l;
	l->handles = 2;
}

static struct stream_loop *stream_alloc(struct uv_loop_s *loop, unsigned count)
{
	struct stream_loop *l = calloc(1, sizeof(*l));

	if (l) {
		l->loop = loop;
		l->stream.conn_count = count;
		l->stream.conns = calloc(count, sizeof(*l->stream.conns));
		l->watches = calloc(count, sizeof(*l->watches));
	}
	if (l && l->stream.conns && l->watches)
		return l;
	if (l) {
		free(l->stream.conns);
		free(l->watches);
		free(l);
	}
	return NULL;
}

/* The handles are the loop's until it has closed them. */
static void give_up(struct stream_loop *l)
{
	struct stream *s = &l->stream;

	for (unsigned i = 0; i < s->conn_count; i++) {
		if (!l->watches[i].open)
			close(s->conns[i].fd);
	}
	l->orphan = true;
	leave(l);
}

int rcp_stream_new(struct uv_loop_s *loop, const struct rcp_link_params *params, const int *fds,
		   unsigned count, struct rcp_err *err, struct rcp_link **out)
{
	struct stream_loop *l;
	int rc;

	*out = NULL;
	assert(count >= 1 && count <= 64);
	l = stream_alloc(loop, count);
	if (!l) {
		for (unsigned i = 0; i < count; i++)
			close(fds[i]);
		return rcp_err_set(err, RCP_E_IO, ENOMEM, "calloc", NULL, NULL);
	}
	init(l, params, fds);
	rc = params->role == RCP_ROLE_SOURCE ? stream_source_init(&l->stream, err)
					     : stream_sink_init(&l->stream, params, err);
	if (!rc)
		rc = watch(l, err);
	if (rc) {
		give_up(l);
		return rc;
	}
	stream_wake(&l->stream);
	*out = &l->stream.link;
	return 0;
}
