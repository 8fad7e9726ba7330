/*
 * The only file of src/link/verbs that knows libuv: fds, a kick, a timer. What they mean is not its
 * business. Loop's thread.
 */
#include "link/verbs/priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <uv.h>

struct verbs_io {
	struct uv_loop_s *loop;
	const struct verbs_io_ops *ops;
	void *arg;
	unsigned handles; /* open or closing */
	bool closing;
	struct verbs_io_fd {
		uv_poll_t poll;
		bool watched;
	} fds[VERBS_FDS];
	uv_idle_t idle;
	uv_timer_t timer;
};

int rcp_verbs_io_new(struct uv_loop_s *loop, const struct verbs_io_ops *ops, void *arg,
		     struct rcp_err *err, struct verbs_io **out)
{
	struct verbs_io *io = calloc(1, sizeof(*io));

	if (!io)
		return rcp_err_set(err, RCP_E_IO, ENOMEM, "calloc", NULL, NULL);
	io->loop = loop;
	io->ops = ops;
	io->arg = arg;
	uv_idle_init(loop, &io->idle);
	uv_timer_init(loop, &io->timer);
	io->idle.data = io->timer.data = io;
	io->handles = 2;
	*out = io;
	return 0;
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
	struct verbs_io *io = poll->data;

	(void)status; /* an error on the fd shows itself when it is read */
	(void)events;
	for (int i = 0; i < VERBS_FDS; i++) {
		if (&io->fds[i].poll == poll && !io->closing)
			io->ops->readable(io->arg, (enum verbs_fd)i);
	}
}

int rcp_verbs_io_watch(struct verbs_io *io, enum verbs_fd which, int fd, struct rcp_err *err)
{
	struct verbs_io_fd *f = &io->fds[which];
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return rcp_err_set(err, RCP_E_IO, errno, "fcntl", NULL, NULL);
	int ret = uv_poll_init(io->loop, &f->poll, fd);

	if (ret < 0)
		return rcp_err_set(err, RCP_E_IO, -ret, "uv_poll_init", NULL, NULL);
	f->poll.data = io;
	f->watched = true;
	io->handles++;
	ret = uv_poll_start(&f->poll, UV_READABLE, on_poll);
	if (ret < 0)
		return rcp_err_set(err, RCP_E_IO, -ret, "uv_poll_start", NULL, NULL);
	return 0;
}

static void on_closed(uv_handle_t *handle);

void rcp_verbs_io_forget(struct verbs_io *io, enum verbs_fd which)
{
	struct verbs_io_fd *f = &io->fds[which];

	if (!f->watched || io->closing)
		return;
	f->watched = false;
	uv_close((uv_handle_t *)&f->poll, on_closed);
}

static void on_idle(uv_idle_t *idle)
{
	struct verbs_io *io = idle->data;

	uv_idle_stop(idle);
	io->ops->kick(io->arg);
}

void rcp_verbs_io_kick(struct verbs_io *io)
{
	if (io && !io->closing)
		uv_idle_start(&io->idle, on_idle);
}

static void on_timer(uv_timer_t *timer)
{
	struct verbs_io *io = timer->data;

	io->ops->timeout(io->arg);
}

void rcp_verbs_io_timer(struct verbs_io *io, unsigned ms)
{
	if (io->closing)
		return;
	uv_timer_stop(&io->timer);
	if (!ms)
		return;
	/* Creating things takes time in which the loop's clock stands still. */
	uv_update_time(io->loop);
	uv_timer_start(&io->timer, on_timer, ms, 0);
}

static void on_closed(uv_handle_t *handle)
{
	struct verbs_io *io = handle->data;

	if (--io->handles)
		return;
	const struct verbs_io_ops *ops = io->ops;
	void *arg = io->arg;

	free(io);
	ops->closed(arg);
}

void rcp_verbs_io_close(struct verbs_io *io)
{
	if (io->closing)
		return;
	io->closing = true;
	for (int i = 0; i < VERBS_FDS; i++) {
		if (io->fds[i].watched)
			uv_close((uv_handle_t *)&io->fds[i].poll, on_closed);
	}
	uv_close((uv_handle_t *)&io->idle, on_closed);
	uv_close((uv_handle_t *)&io->timer, on_closed);
}
