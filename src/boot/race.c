/* Connect to all addresses of a host, keep the first that answers. */
#include "boot/race.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

struct attempt {
	struct rcp_race *race;
	uv_poll_t poll;
	union rcp_sa to;
	unsigned index; /* in the caller's list */
	int fd;		/* -1: not begun or over */
	int error;	/* errno; 0: none yet */
};

struct rcp_race {
	rcp_race_done *done;
	void *arg;
	uv_loop_t *loop;
	struct rcp_sock_options sock;
	unsigned stagger_ms, deadline_ms;
	uint64_t end_at;
	uv_timer_t timer;
	unsigned handles;
	bool closing, delivering, over, freed;
	int winner_fd;
	const struct attempt *winner;
	struct rcp_err cause;
	unsigned count, begun, running;
	struct attempt at[RCP_ADDRS_MAX]; /* in the order of trying */
};

static void on_closed(uv_handle_t *handle)
{
	struct rcp_race *r = handle->data;

	if (--r->handles)
		return;
	r->over = true;
	if (!r->freed) {
		r->delivering = true;
		if (r->winner)
			r->done(r->arg, r->winner_fd, &r->winner->to, r->winner->index, &r->cause);
		else
			r->done(r->arg, -1, NULL, 0, &r->cause);
		r->delivering = false;
	} else if (r->winner_fd >= 0) {
		close(r->winner_fd);
	}
	if (r->freed)
		free(r);
}

static void close_poll(struct attempt *a)
{
	a->poll.data = a->race;
	uv_close((uv_handle_t *)&a->poll, on_closed);
}

static void close_all(struct rcp_race *r)
{
	if (r->closing)
		return;
	r->closing = true;
	for (unsigned i = 0; i < r->begun; i++) {
		if (r->at[i].fd < 0)
			continue;
		close_poll(&r->at[i]);
		close(r->at[i].fd);
		r->at[i].fd = -1;
	}
	uv_close((uv_handle_t *)&r->timer, on_closed);
}

/* "192.0.2.1:9: Connection refused; [2001:db8::1]:9: no answer within 3 s" */
static void explain(struct rcp_race *r)
{
	char text[sizeof(r->cause.text)], where[RCP_SA_TEXT], one[160];
	size_t len = 0;

	text[0] = 0;
	for (unsigned i = 0; i < r->count; i++) {
		const struct attempt *a = &r->at[i];
		int n;

		rcp_sa_text(&a->to, where);
		if (a->error)
			n = snprintf(one, sizeof(one), "%s%s: %s", i ? "; " : "", where,
				     strerror(a->error));
		else
			n = snprintf(one, sizeof(one), "%s%s: no answer within %.3g s",
				     i ? "; " : "", where, r->deadline_ms / 1000.0);
		if (n < 0 || len + (size_t)n + sizeof("; and 99 more") > sizeof(text)) {
			snprintf(text + len, sizeof(text) - len, "; and %u more", r->count - i);
			break;
		}
		memcpy(text + len, one, (size_t)n + 1);
		len += (size_t)n;
	}
	rcp_err_set(&r->cause, RCP_E_CONNECT, 0, "connect", NULL, "%s", text);
}

static void lose(struct rcp_race *r)
{
	explain(r);
	close_all(r);
}

static void win(struct attempt *a)
{
	struct rcp_race *r = a->race;

	r->winner = a;
	r->winner_fd = a->fd;
	a->fd = -1;
	close_poll(a);
	rcp_sock_tune(r->winner_fd, &r->sock);
	close_all(r);
}

/* TCP can connect to itself where the port is its own ephemeral one. */
static bool is_self(int fd)
{
	union rcp_sa here, there;
	socklen_t a = sizeof(here), b = sizeof(there);

	memset(&here, 0, sizeof(here));
	memset(&there, 0, sizeof(there));
	if (getsockname(fd, &here.sa, &a) < 0 || getpeername(fd, &there.sa, &b) < 0)
		return false;
	return a == b && memcmp(&here, &there, a) == 0;
}

static void begin_more(struct rcp_race *r);

static void on_connected(uv_poll_t *poll, int status, int events)
{
	struct attempt *a = poll->data;
	struct rcp_race *r = a->race;
	int e = 0;
	socklen_t len = sizeof(e);

	(void)status;
	(void)events;
	if (getsockopt(a->fd, SOL_SOCKET, SO_ERROR, &e, &len) < 0)
		e = errno;
	if (!e && is_self(a->fd))
		e = ECONNREFUSED;
	if (!e) {
		win(a);
		return;
	}
	a->error = e;
	close_poll(a);
	close(a->fd);
	a->fd = -1;
	r->running--;
	begin_more(r);
}

/* False: it failed at once. */
static bool begin(struct rcp_race *r, struct attempt *a)
{
	struct rcp_err err = {0};
	int u;

	a->fd = rcp_sock_new(a->to.sa.sa_family, &err);
	if (a->fd < 0) {
		a->error = err.sys_errno;
		return false;
	}
	if (connect(a->fd, &a->to.sa, rcp_sa_len(&a->to)) < 0 && errno != EINPROGRESS)
		a->error = errno;
	if (!a->error && (u = uv_poll_init(r->loop, &a->poll, a->fd)) < 0)
		a->error = -u;
	if (a->error) {
		close(a->fd);
		a->fd = -1;
		return false;
	}
	a->poll.data = a;
	r->handles++;
	r->running++;
	uv_poll_start(&a->poll, UV_WRITABLE, on_connected);
	return true;
}

static void on_timer(uv_timer_t *timer);

/* The next address, and the next turn's time. */
static void begin_more(struct rcp_race *r)
{
	uint64_t now = uv_now(r->loop), wait;

	while (r->begun < r->count && !begin(r, &r->at[r->begun++]))
		;
	if (!r->running || now >= r->end_at) {
		lose(r);
		return;
	}
	wait = r->end_at - now;
	if (r->begun < r->count && wait > r->stagger_ms)
		wait = r->stagger_ms;
	uv_timer_start(&r->timer, on_timer, wait, 0);
}

static void on_timer(uv_timer_t *timer)
{
	struct rcp_race *r = timer->data;

	if (uv_now(r->loop) >= r->end_at)
		lose(r);
	else
		begin_more(r);
}

/* The first address stays first, then the families take turns. */
static void order(const struct rcp_addrs *addrs, uint16_t port, struct rcp_race *r)
{
	bool used[RCP_ADDRS_MAX] = {false};
	int want = addrs->at[0].sa.sa.sa_family;

	while (r->count < addrs->count) {
		unsigned pick = RCP_ADDRS_MAX;

		for (unsigned i = 0; i < addrs->count; i++) {
			if (used[i])
				continue;
			if (addrs->at[i].sa.sa.sa_family == want) {
				pick = i;
				break;
			}
			if (pick == RCP_ADDRS_MAX)
				pick = i;
		}
		assert(pick < RCP_ADDRS_MAX); /* fewer are taken than there are */
		used[pick] = true;
		struct attempt *a = &r->at[r->count++];

		a->race = r;
		a->fd = -1;
		a->index = pick;
		a->to = addrs->at[pick].sa;
		rcp_sa_set_port(&a->to, port);
		want = a->to.sa.sa_family == AF_INET6 ? AF_INET : AF_INET6;
	}
}

int rcp_race_new(struct uv_loop_s *loop, const struct rcp_race_params *params, rcp_race_done *done,
		 void *arg, struct rcp_err *err, struct rcp_race **out)
{
	struct rcp_race *r;

	*out = NULL;
	if (!params->addrs->count || !params->port)
		return rcp_err_set(err, RCP_E_CONNECT, 0, "connect", NULL,
				   "the other side told no address or port to connect to");
	r = calloc(1, sizeof(*r));
	if (!r)
		return rcp_err_set(err, RCP_E_IO, ENOMEM, "calloc", NULL, NULL);
	r->loop = loop;
	r->done = done;
	r->arg = arg;
	r->sock = params->sock;
	r->winner_fd = -1;
	r->deadline_ms = params->deadline_ms ? params->deadline_ms : RCP_RACE_DEADLINE_MS;
	r->stagger_ms = params->stagger_ms ? params->stagger_ms : RCP_RACE_STAGGER_MS;
	/* All of them get half of the time at least. */
	if (r->stagger_ms > r->deadline_ms / (2 * params->addrs->count))
		r->stagger_ms = r->deadline_ms / (2 * params->addrs->count);
	order(params->addrs, params->port, r);
	uv_update_time(loop);
	r->end_at = uv_now(loop) + r->deadline_ms;
	uv_timer_init(loop, &r->timer);
	r->timer.data = r;
	r->handles = 1;
	uv_timer_start(&r->timer, on_timer, 0, 0);
	*out = r;
	return 0;
}

void rcp_race_free(struct rcp_race **p)
{
	struct rcp_race *r = *p;

	*p = NULL;
	if (!r)
		return;
	r->freed = true;
	if (!r->over)
		close_all(r);
	else if (!r->delivering)
		free(r);
}
