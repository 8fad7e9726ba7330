#include "boot/listen.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#define TLS_HANDSHAKE 0x16 /* first byte of a ClientHello's record */
#define ACCEPT_TURN   16   /* connections, before others have their turn */
#define BREATH_MS     100  /* after accept ran out of descriptors */

/* A connection that has not said what it is. */
struct pending {
	struct pending *next;
	struct rcp_listen *l;
	uv_poll_t poll;
	int fd;
	uint64_t deadline;
	union rcp_sa peer;
	uint8_t said[RCP_PREAMBLE];
	unsigned have;
};

struct rcp_listen {
	const struct rcp_listen_ops *ops;
	void *arg;
	uv_loop_t *loop;
	struct rcp_sock_options sock;
	unsigned deadline_ms;
	int fd;
	uint16_t port;
	uv_poll_t poll;
	uv_timer_t timer, breath;
	unsigned handles;
	struct pending *oldest;
	unsigned pending;
	bool freed;
};

static void unref(struct rcp_listen *l)
{
	if (--l->handles == 0)
		free(l);
}

static void on_closed(uv_handle_t *handle)
{
	unref(handle->data);
}

static void on_pending_closed(uv_handle_t *handle)
{
	struct pending *p = handle->data;

	unref(p->l);
	free(p);
}

/* Out of the list and the loop. Its fd is the caller's. */
static int release(struct pending *p)
{
	struct pending **at = &p->l->oldest;

	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	p->l->pending--;
	uv_close((uv_handle_t *)&p->poll, on_pending_closed);
	return p->fd;
}

static void drop(struct pending *p)
{
	close(release(p));
}

static void on_timer(uv_timer_t *timer);

static void arm(struct rcp_listen *l)
{
	uint64_t now = uv_now(l->loop);

	if (!l->oldest)
		uv_timer_stop(&l->timer);
	else
		uv_timer_start(&l->timer, on_timer,
			       l->oldest->deadline > now ? l->oldest->deadline - now : 1, 0);
}

static void on_timer(uv_timer_t *timer)
{
	struct rcp_listen *l = timer->data;

	while (l->oldest && l->oldest->deadline <= uv_now(l->loop))
		drop(l->oldest);
	arm(l);
}

/* A whole preamble is there. */
static void offer_stream(struct pending *p)
{
	struct rcp_listen *l = p->l;
	struct rcp_preamble pre;
	uint8_t answer[RCP_PREAMBLE_ANSWER];

	if (!rcp_preamble_decode(p->said, &pre) || !l->ops->check(l->arg, &pre, answer)) {
		if (!l->freed)
			drop(p);
		return;
	}
	if (l->freed)
		return;
	/* A new socket's buffer holds more than this. */
	if (rcp_sock_say(p->fd, answer, sizeof(answer)) < 0) {
		drop(p);
		return;
	}
	int fd = release(p);

	rcp_sock_tune(fd, &l->sock);
	l->ops->stream(l->arg, fd, &pre);
}

static void offer_control(struct pending *p)
{
	struct rcp_listen *l = p->l;
	union rcp_sa peer = p->peer;
	int fd = release(p);

	rcp_sock_tune(fd, &l->sock);
	l->ops->control(l->arg, fd, &peer);
}

static void on_pending(uv_poll_t *poll, int status, int events)
{
	struct pending *p = poll->data;
	ssize_t n = 0;

	(void)status;
	(void)events;
	if (p->have == 0) {
		/* TLS reads its own first byte. */
		n = recv(p->fd, p->said, 1, MSG_PEEK | MSG_DONTWAIT);
		if (n == 1 && p->said[0] == TLS_HANDSHAKE) {
			offer_control(p);
			return;
		}
		if (n == 1 && p->said[0] != 'r') {
			drop(p);
			return;
		}
	}
	if (n >= 0)
		n = recv(p->fd, p->said + p->have, RCP_PREAMBLE - p->have, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
		return;
	if (n <= 0) {
		drop(p);
		return;
	}
	p->have += (unsigned)n;
	if (p->have == RCP_PREAMBLE)
		offer_stream(p);
}

static void append(struct rcp_listen *l, struct pending *p)
{
	struct pending **at = &l->oldest;

	while (*at)
		at = &(*at)->next;
	*at = p;
	l->pending++;
	l->handles++;
}

static void take(struct rcp_listen *l, int fd, const union rcp_sa *peer)
{
	struct pending *p = calloc(1, sizeof(*p));

	if (!p || uv_poll_init(l->loop, &p->poll, fd) < 0) {
		free(p);
		close(fd);
		return;
	}
	/* Who holds many connections and says nothing must not keep others out. */
	if (l->pending == RCP_LISTEN_PENDING)
		drop(l->oldest);
	p->l = l;
	p->fd = fd;
	p->peer = *peer;
	p->deadline = uv_now(l->loop) + l->deadline_ms;
	p->poll.data = p;
	append(l, p);
	uv_poll_start(&p->poll, UV_READABLE, on_pending);
	arm(l);
}

static void on_accept(uv_poll_t *poll, int status, int events);

static void on_breath(uv_timer_t *timer)
{
	struct rcp_listen *l = timer->data;

	uv_poll_start(&l->poll, UV_READABLE, on_accept);
}

static void on_accept(uv_poll_t *poll, int status, int events)
{
	struct rcp_listen *l = poll->data;

	(void)status;
	(void)events;
	for (int i = 0; i < ACCEPT_TURN; i++) {
		union rcp_sa peer;
		socklen_t len = sizeof(peer);
		int fd = accept4(l->fd, &peer.sa, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd >= 0) {
			take(l, fd, &peer);
		} else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
			   errno == ENOMEM) {
			/* It stays readable: wait, not spin. */
			uv_poll_stop(poll);
			uv_timer_start(&l->breath, on_breath, BREATH_MS, 0);
			return;
		} else if (errno == EAGAIN || errno == EWOULDBLOCK) {
			return;
		}
	}
}

/* --- making --- */

static int bind_family(int family, uint16_t port, bool only_six, int *out)
{
	union rcp_sa sa = {.sa.sa_family = (sa_family_t)family};
	int off = only_six ? 1 : 0;
	int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return errno;
	if (family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	rcp_sa_set_port(&sa, port);
	if (bind(fd, &sa.sa, rcp_sa_len(&sa)) < 0 || listen(fd, SOMAXCONN) < 0) {
		int e = errno;

		close(fd);
		return e;
	}
	*out = fd;
	return 0;
}

static int open_port(struct rcp_listen *l, const struct rcp_listen_params *params,
		     struct rcp_err *err)
{
	union rcp_sa sa;
	socklen_t len = sizeof(sa);
	int e = EAFNOSUPPORT;

	if (params->family != 4)
		e = bind_family(AF_INET6, params->port, params->family == 6, &l->fd);
	/* No IPv6 here, unless it was the port that could not be had. */
	if (e && e != EADDRINUSE && e != EACCES && params->family != 6)
		e = bind_family(AF_INET, params->port, false, &l->fd);
	if (!e && getsockname(l->fd, &sa.sa, &len) < 0)
		e = errno;
	if (e)
		return rcp_err_set(err, RCP_E_CONNECT, e, "listen", NULL, NULL);
	l->port = rcp_sa_port(&sa);
	return 0;
}

int rcp_listen_new(struct uv_loop_s *loop, const struct rcp_listen_params *params,
		   const struct rcp_listen_ops *ops, void *arg, struct rcp_err *err,
		   struct rcp_listen **out)
{
	struct rcp_listen *l = calloc(1, sizeof(*l));
	int r;

	*out = NULL;
	if (!l)
		return rcp_err_set(err, RCP_E_IO, ENOMEM, "calloc", NULL, NULL);
	l->ops = ops;
	l->arg = arg;
	l->loop = loop;
	l->sock = params->sock;
	l->deadline_ms = params->deadline_ms ? params->deadline_ms : RCP_LISTEN_DEADLINE_MS;
	l->fd = -1;
	if (open_port(l, params, err)) {
		if (l->fd >= 0)
			close(l->fd);
		free(l);
		return (int)err->code;
	}
	r = uv_poll_init(loop, &l->poll, l->fd);
	if (r < 0) {
		close(l->fd);
		free(l);
		return rcp_err_set(err, RCP_E_CONNECT, -r, "uv_poll_init", NULL, NULL);
	}
	uv_timer_init(loop, &l->timer);
	uv_timer_init(loop, &l->breath);
	l->poll.data = l->timer.data = l->breath.data = l;
	l->handles = 3;
	uv_poll_start(&l->poll, UV_READABLE, on_accept);
	*out = l;
	return 0;
}

uint16_t rcp_listen_port(const struct rcp_listen *l)
{
	return l->port;
}

void rcp_listen_free(struct rcp_listen **p)
{
	struct rcp_listen *l = *p;

	*p = NULL;
	if (!l)
		return;
	l->freed = true;
	while (l->oldest)
		drop(l->oldest);
	uv_close((uv_handle_t *)&l->poll, on_closed);
	close(l->fd);
	uv_close((uv_handle_t *)&l->timer, on_closed);
	uv_close((uv_handle_t *)&l->breath, on_closed);
}
