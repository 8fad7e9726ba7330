/*
 * The engine: one thread that is the wire of every NIC of this process. Sockets on the fabric have
 * abstract names, so nothing is left behind in a file system. Also the event queues behind the
 * descriptors that rcp polls.
 */
#include "fake.h"

#include <errno.h>
#include <semaphore.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define FK_NOTHING                                                                                 \
	{                                                                                          \
		.lock = PTHREAD_MUTEX_INITIALIZER, .idle = PTHREAD_COND_INITIALIZER, .epoll = -1,  \
		.kick = -1                                                                         \
	}
struct fk_state fk = FK_NOTHING;

/* ---- event queues ---- */

int fk_evq_init(struct fk_evq *q)
{
	q->first = NULL;
	q->last = &q->first;
	q->fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	return q->fd < 0 ? -1 : 0;
}

void fk_evq_put(struct fk_evq *q, struct fk_ev *ev)
{
	uint64_t one = 1;

	ev->next = NULL;
	*q->last = ev;
	q->last = &ev->next;
	if (write(q->fd, &one, sizeof(one)) != sizeof(one))
		abort();
}

static struct fk_ev *evq_pop(struct fk_evq *q)
{
	struct fk_ev *ev = q->first;

	if (ev) {
		q->first = ev->next;
		if (!q->first)
			q->last = &q->first;
	}
	return ev;
}

struct fk_ev *fk_evq_get(struct fk_evq *q)
{
	uint64_t count;
	struct fk_ev *ev;

	if (read(q->fd, &count, sizeof(count)) != sizeof(count))
		return NULL;
	FK_LOCK();
	ev = evq_pop(q);
	FK_UNLOCK();
	if (!ev)
		errno = EAGAIN;
	return ev;
}

/* Each event is one of the descriptor's count, and there is no event without. */
void fk_evq_drop(struct fk_evq *q, const void *object, struct fk_evq *to)
{
	struct fk_ev **at = &q->first, *ev;
	uint64_t count;

	while ((ev = *at)) {
		if (object && ev->object != object) {
			at = &ev->next;
			continue;
		}
		*at = ev->next;
		if (read(q->fd, &count, sizeof(count)) != sizeof(count))
			abort();
		if (to)
			fk_evq_put(to, ev);
		else
			free(ev);
	}
	q->last = at;
}

void fk_evq_close(struct fk_evq *q)
{
	fk_evq_drop(q, NULL, NULL);
	close(q->fd);
}

/* ---- time ---- */

uint64_t fk_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void fk_timer_set(struct fk_timer *t, unsigned ms)
{
	fk_timer_stop(t);
	t->at_ns = fk_now() + ms * UINT64_C(1000000);
	t->armed = true;
	t->next = fk.timers;
	fk.timers = t;
	fk_kick();
}

void fk_timer_stop(struct fk_timer *t)
{
	struct fk_timer **at = &fk.timers;

	if (!t->armed)
		return;
	while (*at != t)
		at = &(*at)->next;
	*at = t->next;
	t->armed = false;
}

/* Runs what is due; ms until the next, -1 for none. */
static int timers_run(void)
{
	struct fk_timer *t = fk.timers;
	uint64_t now = fk_now(), next = UINT64_MAX;

	while (t) {
		if (t->at_ns <= now) {
			fk_timer_stop(t);
			t->fn(t->arg);
			t = fk.timers; /* the list may be another */
		} else {
			t = t->next;
		}
	}
	for (t = fk.timers; t; t = t->next)
		next = t->at_ns < next ? t->at_ns : next;
	return next == UINT64_MAX ? -1 : (int)((next - now) / 1000000 + 1);
}

/* ---- sockets ---- */

static socklen_t name_make(struct sockaddr_un *un, const char *name)
{
	memset(un, 0, sizeof(*un));
	un->sun_family = AF_UNIX;
	int n = snprintf(un->sun_path + 1, sizeof(un->sun_path) - 1, "rcp-fake/%s/%s", fk.fabric,
			 name);

	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

int fk_listen(const char *name, int type)
{
	struct sockaddr_un un;
	socklen_t len = name_make(&un, name);
	int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -1;
	if (bind(fd, (struct sockaddr *)&un, len) == 0 && listen(fd, 64) == 0)
		return fd;
	int err = errno;

	close(fd);
	errno = err;
	return -1;
}

int fk_dial(const char *name, int type)
{
	struct sockaddr_un un;
	socklen_t len = name_make(&un, name);
	int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), big = 4 << 20;

	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &big, sizeof(big));
	if (connect(fd, (struct sockaddr *)&un, len) == 0)
		return fd;
	int err = errno;

	close(fd);
	errno = err;
	return -1;
}

struct fk_wire *fk_wire_new(int fd, uint32_t events, void (*ready)(struct fk_wire *, uint32_t),
			    void *owner)
{
	struct fk_wire *w = calloc(1, sizeof(*w));
	struct epoll_event e = {.events = events, .data.ptr = w};

	if (!w || epoll_ctl(fk.epoll, EPOLL_CTL_ADD, fd, &e) != 0) {
		close(fd);
		free(w);
		return NULL;
	}
	w->fd = fd;
	w->events = events;
	w->ready = ready;
	w->owner = owner;
	return w;
}

/* Without any event it is taken out: an end would be told all the time otherwise. */
void fk_wire_events(struct fk_wire *w, uint32_t events)
{
	struct epoll_event e = {.events = events, .data.ptr = w};

	if (w->events == events)
		return;
	epoll_ctl(fk.epoll,
		  !events     ? EPOLL_CTL_DEL
		  : w->events ? EPOLL_CTL_MOD
			      : EPOLL_CTL_ADD,
		  w->fd, &e);
	w->events = events;
}

/* The engine may have it in its hands still: it frees it. */
void fk_wire_close(struct fk_wire **wire)
{
	struct fk_wire *w = *wire;

	*wire = NULL;
	if (!w)
		return;
	/* A child that has not become another program yet keeps the socket, and epoll its entry. */
	fk_wire_events(w, 0);
	close(w->fd);
	w->dead = true;
	w->next = fk.dead;
	fk.dead = w;
}

static void dead_free(void)
{
	while (fk.dead) {
		struct fk_wire *w = fk.dead;

		fk.dead = w->next;
		free(w);
	}
}

/* ---- the thread ---- */

void fk_kick(void)
{
	uint64_t one = 1;

	if (fk.running && write(fk.kick, &one, sizeof(one)) < 0)
		return; /* it is readable already */
}

void fk_work(struct fk_qp *qp)
{
	if (qp->in_work)
		return;
	qp->in_work = true;
	qp->work_next = fk.work;
	fk.work = qp;
	fk_kick();
}

void fk_busy_wait(const struct fk_qp *qp)
{
	while (fk.busy && (!qp || fk.busy == qp) && !pthread_equal(pthread_self(), fk.thread))
		pthread_cond_wait(&fk.idle, &fk.lock);
}

void fk_io_begin(struct fk_qp *qp)
{
	fk.busy = qp;
	FK_UNLOCK();
}

void fk_io_end(void)
{
	FK_LOCK();
	fk.busy = NULL;
	pthread_cond_broadcast(&fk.idle);
}

static void work_run(void)
{
	while (fk.work) {
		struct fk_qp *qp = fk.work;

		fk.work = qp->work_next;
		qp->in_work = false;
		fk_transmit(qp);
	}
}

static void *engine(void *arg)
{
	struct epoll_event events[32];
	uint64_t count;

	sem_post(arg);
	FK_LOCK();
	while (!fk.stop) {
		work_run();
		int wait = timers_run();

		FK_UNLOCK();
		int n = epoll_wait(fk.epoll, events, 32, wait);

		FK_LOCK();
		for (int i = 0; i < n; i++) {
			struct fk_wire *w = events[i].data.ptr;

			if (!w)
				(void)!read(fk.kick, &count, sizeof(count));
			else if (!w->dead)
				w->ready(w, events[i].events);
		}
		dead_free();
	}
	FK_UNLOCK();
	return NULL;
}

/* The engine takes memory with the lock held only: a child must not find the allocator in the
 * middle of that (libc's can take it, a sanitizer's can't). */
static void before_fork(void)
{
	FK_LOCK();
}

static void parent_forked(void)
{
	FK_UNLOCK();
}

/* A child has no engine: it is another host, should it want to be one. */
static void child_forked(void)
{
	static const struct fk_state nothing = FK_NOTHING;

	if (!fk.running || !fk.door) {
		FK_UNLOCK();
		return;
	}
	close(fk.epoll);
	close(fk.kick);
	close(fk.door->fd);
	free(fk.door);
	fk = nothing;
}

/* Called with the lock held, which the new thread waits for. */
bool fk_start(void)
{
	struct epoll_event e = {.events = EPOLLIN};
	static bool forks_told; /* also to a child */
	sigset_t all, old;
	sem_t begun;
	int rc;

	fk.epoll = epoll_create1(EPOLL_CLOEXEC);
	fk.kick = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (fk.epoll < 0 || fk.kick < 0 || epoll_ctl(fk.epoll, EPOLL_CTL_ADD, fk.kick, &e) != 0)
		return false;
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &old);
	sem_init(&begun, 0, 0);
	rc = pthread_create(&fk.thread, NULL, engine, &begun);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	fk.running = rc == 0;
	/* What a thread allocates to begin with is done, see before_fork. */
	while (fk.running && sem_wait(&begun) != 0)
		;
	sem_destroy(&begun);
	if (!forks_told)
		pthread_atfork(before_fork, parent_forked, child_forked);
	forks_told = true;
	return fk.running;
}

void fk_stop(void)
{
	if (!fk.running)
		return;
	FK_LOCK();
	fk.stop = true;
	fk_kick();
	FK_UNLOCK();
	pthread_join(fk.thread, NULL);
	fk.running = false;
	fk_wire_close(&fk.door);
	dead_free();
	close(fk.epoll);
	close(fk.kick);
}
