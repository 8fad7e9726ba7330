/* The control connection's life: handles, deadlines, the end. */
#include "boot/ctl_impl.h"

#include "boot/secret.h"
#include "boot/sock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define GRACE_MS 100 /* for what came in time and was not read */

static void destroy(struct rcp_ctl *ctl)
{
	rcp_tls_free(&ctl->tls);
	if (ctl->in)
		rcp_secret_wipe(ctl->in, CTL_IN_BYTES);
	free(ctl->in);
	free(ctl->cipher);
	free(ctl);
}

/* The last handle is closed: now the owner may know. */
static void finish(struct rcp_ctl *ctl)
{
	ctl->delivering = true;
	ctl_out_drop(ctl);
	ctl->state = CTL_DOWN;
	if (ctl->ops)
		ctl->ops->down(ctl->arg, &ctl->cause);
	ctl->delivering = false;
	if (ctl->freed)
		destroy(ctl);
}

static void on_closed(uv_handle_t *handle)
{
	struct rcp_ctl *ctl = handle->data;

	if (--ctl->handles == 0)
		finish(ctl);
}

static void close_handle(struct rcp_ctl *ctl, void *handle)
{
	uv_handle_t *h = handle;

	h->data = ctl;
	uv_close(h, on_closed);
}

/* uv_close takes the fd out of the loop at once, so it may be closed right after. */
static void close_fd(struct rcp_ctl *ctl, struct ctl_fd *f)
{
	if (f->polls)
		close_handle(ctl, &f->poll);
	f->polls = false;
	if (f->fd < 0)
		return;
	if (!(f->flags & O_NONBLOCK))
		fcntl(f->fd, F_SETFL, f->flags);
	close(f->fd);
	f->fd = -1;
}

void ctl_die(struct rcp_ctl *ctl)
{
	if (!ctl_alive(ctl))
		return;
	if (ctl->state == CTL_CLOSING || ctl->state == CTL_LINGER)
		memset(&ctl->cause, 0, sizeof(ctl->cause)); /* it was wanted */
	ctl->state = CTL_DEAD;
	if (ctl->one_fd)
		ctl->w.fd = -1;
	close_fd(ctl, &ctl->r);
	close_fd(ctl, &ctl->w);
	close_handle(ctl, &ctl->turn);
	close_handle(ctl, &ctl->timer);
}

const struct rcp_err *rcp_ctl_untold(const struct rcp_ctl *ctl)
{
	return ctl && ctl->state == CTL_DEAD && rcp_err_is(&ctl->cause) ? &ctl->cause : NULL;
}

static void poll_for(struct ctl_fd *f, int events, uv_poll_cb cb)
{
	if (!f->polls || events == f->events)
		return;
	f->events = events;
	if (events)
		uv_poll_start(&f->poll, events, cb);
	else
		uv_poll_stop(&f->poll);
}

static void on_writable(uv_poll_t *poll, int status, int events)
{
	struct rcp_ctl *ctl = poll->data;

	(void)events;
	if (status < 0)
		ctl->w.events = 0; /* libuv has stopped it; the write will say why */
	ctl->blocked = false;
	ctl_out_run(ctl);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
	struct rcp_ctl *ctl = poll->data;
	bool writable = ctl->one_fd && ctl->blocked && (status < 0 || (events & UV_WRITABLE));

	if (status < 0)
		ctl->r.events = 0;
	if (status < 0 || (events & UV_READABLE))
		ctl_in_run(ctl);
	if (writable && ctl_alive(ctl)) {
		ctl->blocked = false;
		ctl_out_run(ctl);
	}
}

void ctl_poll(struct rcp_ctl *ctl)
{
	int in = !ctl->paused && !ctl->eof ? UV_READABLE : 0;
	int out = ctl->blocked ? UV_WRITABLE : 0;

	if (ctl->one_fd)
		in |= out;
	else
		poll_for(&ctl->w, out, on_writable);
	poll_for(&ctl->r, in, on_readable);
}

/* --- turns --- */

void ctl_opened(struct rcp_ctl *ctl)
{
	ctl->state = CTL_OPEN;
	ctl->open_at = 0;
	ctl->last_in = ctl->last_out = uv_now(ctl->loop);
	ctl_arm(ctl);
	ctl_kick(ctl, CTL_DUE_FLUSH);
	if (ctl->ops && ctl->ops->ready)
		ctl->ops->ready(ctl->arg);
}

static void on_turn(uv_idle_t *turn)
{
	struct rcp_ctl *ctl = turn->data;
	unsigned due = ctl->due;

	ctl->due = 0;
	uv_idle_stop(turn);
	if ((due & CTL_DUE_OPEN) && ctl->state == CTL_OPENING) {
		if (ctl->tls)
			ctl_in_handshake(ctl);
		else
			ctl_opened(ctl);
	}
	if ((due & CTL_DUE_FLUSH) && ctl_alive(ctl))
		ctl_out_run(ctl);
	if ((due & CTL_DUE_READ) && ctl_alive(ctl))
		ctl_in_run(ctl);
	if ((due & CTL_DUE_WAKE) && ctl_alive(ctl) && ctl->ops && ctl->ops->wake)
		ctl->ops->wake(ctl->arg);
}

void ctl_kick(struct rcp_ctl *ctl, unsigned due)
{
	if (!ctl_alive(ctl))
		return;
	ctl->due |= due;
	uv_idle_start(&ctl->turn, on_turn); /* also keeps the loop from sleeping */
}

/* --- deadlines --- */

/* "30 s", "0.5 s" */
static const char *seconds(unsigned ms, char buf[32])
{
	snprintf(buf, 32, ms % 1000 ? "%.1f s" : "%.0f s", (double)ms / 1000);
	return buf;
}

static void on_timer(uv_timer_t *timer);

static uint64_t sooner(uint64_t a, uint64_t b)
{
	return !a || (b && b < a) ? b : a;
}

/* 0: silence does not count now. */
static uint64_t dead_at(const struct rcp_ctl *ctl)
{
	return ctl->dead_ms && ctl->state == CTL_OPEN && !ctl->paused ? ctl->last_in + ctl->dead_ms
								      : 0;
}

static uint64_t ping_at(const struct rcp_ctl *ctl)
{
	return ctl->ping_ms && ctl->state == CTL_OPEN && !rcp_err_is(&ctl->broken)
		       ? ctl->last_out + ctl->ping_ms
		       : 0;
}

void ctl_arm(struct rcp_ctl *ctl)
{
	uint64_t now = uv_now(ctl->loop);
	uint64_t at = sooner(sooner(ctl->open_at, ctl->expect_at), ctl->end_at);

	if (!ctl_alive(ctl))
		return;
	at = sooner(sooner(at, ping_at(ctl)), dead_at(ctl));
	if (at)
		uv_timer_start(&ctl->timer, on_timer, at > now ? at - now : 1, 0);
	else
		uv_timer_stop(&ctl->timer);
}

/* Bytes wait to be read: it may be us who were asleep (stopped, swapped out), not the peer. */
static bool words_wait(const struct rcp_ctl *ctl)
{
	struct pollfd p = {.fd = ctl->r.fd, .events = POLLIN};

	return poll(&p, 1, 0) > 0;
}

/* A little more time to read them; once, or a trickle could go on for ever. */
static bool grace(struct rcp_ctl *ctl, uint64_t *deadline)
{
	if (ctl->graced || !words_wait(ctl))
		return false;
	ctl->graced = true;
	*deadline = uv_now(ctl->loop) + GRACE_MS;
	return true;
}

static void handshake_late(struct rcp_ctl *ctl)
{
	char s[32];

	if (grace(ctl, &ctl->open_at))
		return;
	rcp_err_set(&ctl->cause, RCP_E_CONNECT, ETIMEDOUT, "", ctl->name,
		    "no TLS handshake within %s", seconds(ctl->open_ms, s));
	ctl_die(ctl);
}

static void message_late(struct rcp_ctl *ctl)
{
	char s[32];

	if (grace(ctl, &ctl->expect_at))
		return;
	rcp_err_set(&ctl->cause, RCP_E_CONNECT, ETIMEDOUT, "", ctl->name,
		    "no %s from the peer within %s", ctl->expected, seconds(ctl->expect_ms, s));
	ctl_die(ctl);
}

static void end_late(struct rcp_ctl *ctl)
{
	if (ctl->state <= CTL_OPEN)
		ctl->cause = ctl->broken;
	ctl_die(ctl);
}

static void silence(struct rcp_ctl *ctl)
{
	char s[32];

	if (words_wait(ctl)) {
		ctl->last_in = uv_now(ctl->loop);
		return;
	}
	rcp_err_set(&ctl->cause, RCP_E_LINK, ETIMEDOUT, "", ctl->name,
		    "no word from the peer for %s", seconds(ctl->dead_ms, s));
	ctl_die(ctl);
}

static void ping(struct rcp_ctl *ctl)
{
	struct rcp_msg_ping m = {.token = ctl->works ? 1 + ctl->worked : 0};

	ctl->last_out = uv_now(ctl->loop);
	if (ctl_out_empty(ctl))
		rcp_ctl_send(ctl, RCP_MSG_PING, &m);
}

static void on_timer(uv_timer_t *timer)
{
	struct rcp_ctl *ctl = timer->data;
	uint64_t now = uv_now(ctl->loop);
	uint64_t dead = dead_at(ctl), next_ping = ping_at(ctl);

	if (ctl->open_at && ctl->open_at <= now)
		handshake_late(ctl);
	else if (ctl->end_at && ctl->end_at <= now)
		end_late(ctl);
	else if (ctl->expect_at && ctl->expect_at <= now)
		message_late(ctl);
	else if (dead && dead <= now)
		silence(ctl);
	else if (next_ping && next_ping <= now)
		ping(ctl);
	ctl_arm(ctl);
}

void rcp_ctl_keepalive(struct rcp_ctl *ctl, unsigned interval_ms, unsigned dead_ms)
{
	const struct rcp_sock_options o = {.tos = -1, .timeout_ms = dead_ms};

	if (!ctl || !ctl_alive(ctl))
		return;
	uv_update_time(ctl->loop);
	ctl->ping_ms = interval_ms;
	ctl->dead_ms = dead_ms;
	ctl->last_in = uv_now(ctl->loop);
	if (ctl->tls && ctl->r.fd >= 0)
		rcp_sock_tune(ctl->r.fd, &o);
	ctl_arm(ctl);
}

void rcp_ctl_expect(struct rcp_ctl *ctl, unsigned ms, const char *what)
{
	if (!ctl || ctl->state > CTL_OPEN)
		return;
	uv_update_time(ctl->loop);
	ctl->expect_ms = ms;
	ctl->graced = false;
	ctl->expect_at = ms ? uv_now(ctl->loop) + ms : 0;
	snprintf(ctl->expected, sizeof(ctl->expected), "%s", ms ? what : "");
	ctl_arm(ctl);
}

/* --- making --- */

static struct rcp_ctl *make(uv_loop_t *loop, const char *name, const struct rcp_ctl_ops *ops,
			    void *arg, struct rcp_err *err)
{
	struct rcp_ctl *ctl = calloc(1, sizeof(*ctl));

	if (ctl)
		ctl->in = malloc(CTL_IN_BYTES);
	if (!ctl || !ctl->in) {
		free(ctl);
		rcp_err_set(err, RCP_E_IO, ENOMEM, "malloc", name, NULL);
		return NULL;
	}
	ctl->loop = loop;
	ctl->ops = ops;
	ctl->arg = arg;
	ctl->phase = RCP_PHASE_BOOT;
	ctl->r.fd = ctl->w.fd = -1;
	snprintf(ctl->name, sizeof(ctl->name), "%s", name);
	uv_update_time(loop);
	uv_idle_init(loop, &ctl->turn);
	uv_timer_init(loop, &ctl->timer);
	ctl->turn.data = ctl->timer.data = ctl;
	ctl->handles = 2;
	return ctl;
}

static int take_fd(struct rcp_ctl *ctl, struct ctl_fd *f, int fd, const char *which,
		   struct rcp_err *err)
{
	struct stat st;

	f->fd = fd;
	f->flags = fcntl(fd, F_GETFL);
	if (f->flags < 0 || fstat(fd, &st) < 0) {
		rcp_err_set(err, RCP_E_CONNECT, errno, f->flags < 0 ? "fcntl" : "fstat", which, NULL);
		close(fd);
		f->fd = -1;
		return (int)err->code;
	}
	f->is_sock = S_ISSOCK(st.st_mode);
	if (!f->is_sock && !S_ISFIFO(st.st_mode)) {
		rcp_err_set(err, RCP_E_USAGE, 0, "", which, "is %s, not a pipe or a socket",
			    isatty(fd) ? "a terminal" : "a file or device");
		rcp_err_fix(err, "the serving side is started by rcp itself, through ssh");
		return RCP_E_USAGE;
	}
	int r = uv_poll_init(ctl->loop, &f->poll, fd);

	if (r < 0)
		return rcp_err_set(err, RCP_E_CONNECT, -r, "uv_poll_init", which, NULL);
	f->poll.data = ctl;
	f->polls = true;
	ctl->handles++;
	return 0;
}

/* Half-built: the loop frees it, nobody is told. */
static int give_up(struct rcp_ctl *ctl, const struct rcp_err *err)
{
	ctl->ops = NULL;
	ctl->freed = true;
	ctl_die(ctl);
	return (int)err->code;
}

static void close_both(int rfd, int wfd)
{
	close(rfd);
	if (wfd != rfd)
		close(wfd);
}

int rcp_ctl_new_pipe(struct uv_loop_s *loop, int rfd, int wfd, bool responder, const char *name,
		     const struct rcp_ctl_ops *ops, void *arg, struct rcp_err *err,
		     struct rcp_ctl **out)
{
	struct rcp_ctl *ctl = make(loop, name, ops, arg, err);

	*out = NULL;
	if (!ctl) {
		close_both(rfd, wfd);
		return (int)err->code;
	}
	ctl->server = responder;
	ctl->peer_initiates = responder;
	ctl->await_marker = !responder;
	ctl->one_fd = rfd == wfd;
	if (take_fd(ctl, &ctl->r, rfd, "standard input", err)) {
		if (!ctl->one_fd)
			close(wfd);
		return give_up(ctl, err);
	}
	if (ctl->one_fd)
		ctl->w.fd = wfd, ctl->w.is_sock = ctl->r.is_sock;
	else if (take_fd(ctl, &ctl->w, wfd, "standard output", err))
		return give_up(ctl, err);
	if (responder) {
		ctl_out_bytes(ctl, RCP_CTL_MARKER, RCP_CTL_MARKER_LEN);
		ctl_kick(ctl, CTL_DUE_OPEN);
	}
	if (!ctl_alive(ctl)) {
		*err = ctl->cause;
		return give_up(ctl, err);
	}
	ctl_poll(ctl);
	*out = ctl;
	return 0;
}

int rcp_ctl_new_tls(struct uv_loop_s *loop, int fd, const struct rcp_tls_params *tls,
		    unsigned handshake_ms, const char *name, const struct rcp_ctl_ops *ops,
		    void *arg, struct rcp_err *err, struct rcp_ctl **out)
{
	struct rcp_ctl *ctl = make(loop, name, ops, arg, err);

	*out = NULL;
	if (!ctl) {
		close(fd);
		return (int)err->code;
	}
	ctl->server = tls->server;
	ctl->peer_initiates = tls->server;
	ctl->one_fd = true;
	ctl->cipher = malloc(CTL_CIPHER_BYTES);
	if (take_fd(ctl, &ctl->r, fd, name, err))
		return give_up(ctl, err);
	ctl->w.fd = fd;
	ctl->w.is_sock = ctl->r.is_sock;
	if (!ctl->cipher) {
		rcp_err_set(err, RCP_E_IO, ENOMEM, "malloc", name, NULL);
		return give_up(ctl, err);
	}
	if (rcp_tls_new(tls, err, &ctl->tls))
		return give_up(ctl, err);
	ctl->open_ms = handshake_ms;
	ctl->open_at = uv_now(loop) + handshake_ms;
	ctl_arm(ctl);
	ctl_kick(ctl, CTL_DUE_OPEN);
	ctl_poll(ctl);
	*out = ctl;
	return 0;
}

/* --- the rest of the interface --- */

void rcp_ctl_set_ops(struct rcp_ctl *ctl, const struct rcp_ctl_ops *ops, void *arg)
{
	if (!ctl)
		return;
	ctl->ops = ops;
	ctl->arg = arg;
}

void rcp_ctl_set_phase(struct rcp_ctl *ctl, enum rcp_phase phase)
{
	if (ctl)
		ctl->phase = phase;
}

void rcp_ctl_set_peer_role(struct rcp_ctl *ctl, enum rcp_role role)
{
	if (ctl)
		ctl->peer_role = role;
}

void rcp_ctl_set_chunk_bytes(struct rcp_ctl *ctl, uint32_t chunk_bytes)
{
	if (ctl)
		ctl->chunk_bytes = chunk_bytes;
}

void rcp_ctl_wake(struct rcp_ctl *ctl)
{
	if (ctl)
		ctl_kick(ctl, CTL_DUE_WAKE);
}

static int out_chunk(void *arg, const uint8_t *head, size_t head_len, const void *body,
		     size_t body_len, void (*done)(void *done_arg, bool ok), void *done_arg)
{
	return rcp_ctl_send_chunk(arg, head, head_len, body, body_len, done, done_arg);
}

static void out_send(void *arg, enum rcp_msg_type type, const void *msg)
{
	rcp_ctl_send(arg, type, msg);
}

static void out_wake(void *arg)
{
	rcp_ctl_wake(arg);
}

struct rcp_pipe_out rcp_ctl_pipe_out(struct rcp_ctl *ctl)
{
	return (struct rcp_pipe_out){
		.arg = ctl, .send_chunk = out_chunk, .send = out_send, .wake = out_wake};
}

uint64_t rcp_ctl_moved(const struct rcp_ctl *ctl)
{
	return ctl ? ctl->moved : 0;
}

void rcp_ctl_set_works(struct rcp_ctl *ctl, bool works, uint64_t worked)
{
	if (!ctl)
		return;
	ctl->works = works;
	ctl->worked = worked;
}

bool rcp_ctl_peer_works(const struct rcp_ctl *ctl)
{
	return ctl && ctl->peer_works;
}

void rcp_ctl_count(const struct rcp_ctl *ctl, uint64_t *in_bytes, uint64_t *out_bytes)
{
	*in_bytes = ctl ? ctl->in_total : 0;
	*out_bytes = ctl ? ctl->out_total : 0;
}

void rcp_ctl_pause(struct rcp_ctl *ctl, bool pause)
{
	if (ctl->state > CTL_OPEN || ctl->paused == pause)
		return;
	ctl->paused = pause;
	if (!pause) {
		uv_update_time(ctl->loop);
		ctl->last_in = uv_now(ctl->loop);
		ctl_kick(ctl, CTL_DUE_READ);
	}
	ctl_poll(ctl);
	ctl_arm(ctl);
}

int rcp_ctl_export(struct rcp_ctl *ctl, const char *label, uint8_t *out, size_t len,
		   struct rcp_err *err)
{
	if (!ctl)
		return rcp_err_set(err, RCP_E_LINK, 0, "", NULL, "the control connection is gone");
	if (!ctl->tls)
		return rcp_err_set(err, RCP_E_CONNECT, 0, "", ctl->name,
				   "there is no TLS on this connection");
	return rcp_tls_export(ctl->tls, label, out, len, err);
}

const char *rcp_ctl_identity(const struct rcp_ctl *ctl)
{
	return ctl->tls ? rcp_tls_identity(ctl->tls) : "";
}

/* --- the end --- */

void ctl_half_close(struct rcp_ctl *ctl)
{
	if (ctl->tls && !ctl->said_bye) {
		ctl->said_bye = true;
		rcp_tls_shutdown(ctl->tls);
		ctl_kick(ctl, CTL_DUE_FLUSH); /* and here again when that is written */
		return;
	}
	ctl->state = CTL_LINGER;
	if (ctl->eof) {
		ctl_die(ctl);
		return;
	}
	if (ctl->w.is_sock)
		shutdown(ctl->w.fd, SHUT_WR);
	if (ctl->one_fd)
		ctl->w.fd = -1;
	else
		close_fd(ctl, &ctl->w);
}

void rcp_ctl_close(struct rcp_ctl *ctl, unsigned flush_ms)
{
	if (ctl->state > CTL_OPEN)
		return;
	bool hopeless = (ctl->tls && ctl->state == CTL_OPENING) || rcp_err_is(&ctl->broken);

	ctl->paused = false;
	ctl->state = CTL_CLOSING;
	if (!flush_ms || hopeless) {
		ctl_die(ctl);
		return;
	}
	uv_update_time(ctl->loop);
	ctl->open_at = ctl->expect_at = 0;
	ctl->end_at = uv_now(ctl->loop) + flush_ms;
	ctl_arm(ctl);
	ctl_kick(ctl, CTL_DUE_FLUSH);
	ctl_poll(ctl);
}

void rcp_ctl_fail(struct rcp_ctl *ctl, const struct rcp_err *cause)
{
	if (!ctl_alive(ctl))
		return;
	ctl->state = CTL_OPEN; /* also where an end was wanted: this is another one */
	ctl->cause = *cause;
	ctl_die(ctl);
}

void rcp_ctl_free(struct rcp_ctl **p)
{
	struct rcp_ctl *ctl = *p;

	*p = NULL;
	if (!ctl)
		return;
	ctl->ops = NULL;
	ctl->freed = true;
	if (ctl->state == CTL_DOWN && !ctl->delivering)
		destroy(ctl);
	else
		ctl_die(ctl);
}
