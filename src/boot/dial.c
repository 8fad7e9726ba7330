/* Connect the data streams of one link: all of them, or none. */
#include "boot/race.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

struct stream {
	struct rcp_dial *dial;
	uv_poll_t poll;
	int fd;
	bool polls, said, proved;
	uint8_t preamble[RCP_PREAMBLE];
	uint8_t answer[RCP_PREAMBLE_ANSWER];
	unsigned have;
};

struct rcp_dial {
	rcp_dial_done *done;
	void *arg;
	uv_loop_t *loop;
	union rcp_sa to;
	struct rcp_sock_options sock;
	uint8_t key[RCP_SECRET];
	unsigned deadline_ms;
	uv_timer_t timer;
	unsigned handles;
	bool begun, closing, delivering, over, freed;
	struct rcp_err cause;
	unsigned count, proved;
	struct stream at[];
};

static void destroy(struct rcp_dial *d)
{
	rcp_secret_wipe(d->key, sizeof(d->key));
	free(d);
}

static void close_fds(struct rcp_dial *d)
{
	for (unsigned i = 0; i < d->count; i++) {
		if (d->at[i].fd >= 0)
			close(d->at[i].fd);
		d->at[i].fd = -1;
	}
}

static void deliver(struct rcp_dial *d)
{
	int fds[RCP_DIAL_MAX];

	for (unsigned i = 0; i < d->count; i++) {
		fds[i] = d->at[i].fd;
		d->at[i].fd = -1;
	}
	d->delivering = true;
	d->done(d->arg, rcp_err_is(&d->cause) ? NULL : fds, &d->cause);
	d->delivering = false;
}

static void on_closed(uv_handle_t *handle)
{
	struct rcp_dial *d = handle->data;

	if (--d->handles)
		return;
	d->over = true;
	if (d->freed || rcp_err_is(&d->cause))
		close_fds(d);
	if (!d->freed)
		deliver(d);
	if (d->freed)
		destroy(d);
}

static void close_all(struct rcp_dial *d)
{
	if (d->closing)
		return;
	d->closing = true;
	for (unsigned i = 0; i < d->count; i++) {
		struct stream *s = &d->at[i];

		if (!s->polls)
			continue;
		s->poll.data = d;
		uv_close((uv_handle_t *)&s->poll, on_closed);
	}
	uv_close((uv_handle_t *)&d->timer, on_closed);
}

static void fail(struct stream *s, int e, const char *call, const char *text)
{
	struct rcp_dial *d = s->dial;
	char where[RCP_SA_TEXT];

	rcp_err_set(&d->cause, RCP_E_CONNECT, e, call, rcp_sa_text(&d->to, where),
		    "data stream %u of %u%s%s", (unsigned)(s - d->at) + 1, d->count,
		    text ? ": " : "", text ? text : "");
	close_all(d);
}

/* Connected: say the preamble. A new socket's buffer holds more than that. */
static void say(struct stream *s)
{
	int e = 0;
	socklen_t len = sizeof(e);

	if (getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &e, &len) < 0)
		e = errno;
	if (e) {
		fail(s, e, "connect", NULL);
		return;
	}
	if (rcp_sock_say(s->fd, s->preamble, RCP_PREAMBLE) < 0)
		fail(s, errno, "send", NULL);
	s->said = true;
}

/* Exactly the answer: what follows it is the link's. */
static void hear(struct stream *s)
{
	struct rcp_dial *d = s->dial;
	ssize_t n = recv(s->fd, s->answer + s->have, RCP_PREAMBLE_ANSWER - s->have, MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
		return;
	if (n <= 0) {
		fail(s, n < 0 ? errno : 0, "recv", n < 0 ? NULL : "refused by the other side");
		return;
	}
	s->have += (unsigned)n;
	if (s->have < RCP_PREAMBLE_ANSWER)
		return;
	if (!rcp_preamble_answered(s->preamble, d->key, s->answer)) {
		fail(s, 0, "", "the other side does not know the secret");
		return;
	}
	s->proved = true;
	uv_poll_stop(&s->poll);
	rcp_sock_tune(s->fd, &d->sock);
	if (++d->proved == d->count)
		close_all(d);
}

static void on_event(uv_poll_t *poll, int status, int events)
{
	struct stream *s = poll->data;

	(void)events;
	if (!s->said)
		say(s);
	else
		hear(s);
	if (s->dial->closing || s->proved)
		return;
	/* libuv stops a poll that had an error; if the call above saw none, the next one will. */
	(void)status;
	uv_poll_start(poll, UV_READABLE, on_event);
}

static void begin(struct stream *s)
{
	struct rcp_dial *d = s->dial;
	int u;

	s->fd = rcp_sock_new(d->to.sa.sa_family, &d->cause);
	if (s->fd < 0) {
		close_all(d);
		return;
	}
	if (connect(s->fd, &d->to.sa, rcp_sa_len(&d->to)) < 0 && errno != EINPROGRESS) {
		fail(s, errno, "connect", NULL);
		return;
	}
	u = uv_poll_init(d->loop, &s->poll, s->fd);
	if (u < 0) {
		fail(s, -u, "uv_poll_init", NULL);
		return;
	}
	s->polls = true;
	s->poll.data = s;
	d->handles++;
	uv_poll_start(&s->poll, UV_WRITABLE, on_event);
}

/* First the start, from the loop; then the deadline. */
static void on_timer(uv_timer_t *timer)
{
	struct rcp_dial *d = timer->data;
	unsigned i = 0;

	if (!d->begun) {
		d->begun = true;
		uv_timer_start(timer, on_timer, d->deadline_ms, 0);
		for (i = 0; i < d->count && !d->closing; i++)
			begin(&d->at[i]);
		return;
	}
	while (i < d->count - 1 && d->at[i].proved)
		i++;
	fail(&d->at[i], ETIMEDOUT, d->at[i].said ? "recv" : "connect", NULL);
}

static int prepare(struct rcp_dial *d, const struct rcp_dial_params *params, struct rcp_err *err)
{
	for (unsigned i = 0; i < d->count; i++) {
		struct rcp_preamble p = {.link = params->link, .stream = (uint16_t)i};

		memcpy(p.session, params->session, RCP_SESSION);
		d->at[i].dial = d;
		d->at[i].fd = -1;
		if (rcp_preamble_encode(&p, params->key, d->at[i].preamble, err))
			return (int)err->code;
	}
	return 0;
}

int rcp_dial_new(struct uv_loop_s *loop, const struct rcp_dial_params *params, rcp_dial_done *done,
		 void *arg, struct rcp_err *err, struct rcp_dial **out)
{
	struct rcp_dial *d;

	*out = NULL;
	if (params->streams < 1 || params->streams > RCP_DIAL_MAX)
		return rcp_err_set(err, RCP_E_USAGE, 0, "", NULL, "%u streams: 1 to %d can be",
				   params->streams, RCP_DIAL_MAX);
	d = calloc(1, sizeof(*d) + params->streams * sizeof(d->at[0]));
	if (!d)
		return rcp_err_set(err, RCP_E_IO, ENOMEM, "calloc", NULL, NULL);
	d->loop = loop;
	d->done = done;
	d->arg = arg;
	d->to = params->to;
	d->sock = params->sock;
	d->count = params->streams;
	d->deadline_ms = params->deadline_ms ? params->deadline_ms : RCP_RACE_DEADLINE_MS;
	memcpy(d->key, params->key, RCP_SECRET);
	if (prepare(d, params, err)) {
		destroy(d);
		return (int)err->code;
	}
	uv_update_time(loop);
	uv_timer_init(loop, &d->timer);
	d->timer.data = d;
	d->handles = 1;
	uv_timer_start(&d->timer, on_timer, 0, 0);
	*out = d;
	return 0;
}

void rcp_dial_free(struct rcp_dial **p)
{
	struct rcp_dial *d = *p;

	*p = NULL;
	if (!d)
		return;
	d->freed = true;
	if (!d->over)
		close_all(d);
	else if (!d->delivering)
		destroy(d);
}
