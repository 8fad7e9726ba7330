#include "base/pool.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct queue {
	struct rcp_job *head, **tail;
};

struct rcp_pool {
	pthread_mutex_t lock;
	pthread_cond_t wake; /* workers: a job or stop */
	struct queue todo[RCP_POOL_CLASSES];
	struct queue finished; /* under lock */
	bool stop;
	int fd;
	unsigned pending; /* submitted, not yet done: the loop's */
	unsigned idle;	  /* workers waiting, under lock */
	unsigned threads;
	_Atomic uint64_t moved;
	_Atomic bool unwanted;
	pthread_t thread[];
};

static _Thread_local struct rcp_pool *mine; /* whose worker this thread is */

static void queue_init(struct queue *q)
{
	q->head = NULL;
	q->tail = &q->head;
}

static void queue_put(struct queue *q, struct rcp_job *job)
{
	job->next = NULL;
	*q->tail = job;
	q->tail = &job->next;
}

static struct rcp_job *queue_get(struct queue *q)
{
	struct rcp_job *job = q->head;

	if (job) {
		q->head = job->next;
		if (!q->head)
			q->tail = &q->head;
	}
	return job;
}

/* Under the lock. The eventfd is written only when the list was empty: one wake-up a batch. */
static void finish(struct rcp_pool *pool, struct rcp_job *job)
{
	bool first = !pool->finished.head;

	queue_put(&pool->finished, job);
	if (first) {
		uint64_t one = 1;

		while (write(pool->fd, &one, sizeof(one)) < 0 && errno == EINTR)
			;
	}
}

static struct rcp_job *take(struct rcp_pool *pool)
{
	for (unsigned i = 0; i < RCP_POOL_CLASSES; i++) {
		struct rcp_job *job = queue_get(&pool->todo[i]);

		if (job)
			return job;
	}
	return NULL;
}

static void *worker(void *arg)
{
	struct rcp_pool *pool = arg;

	mine = pool;
	pthread_mutex_lock(&pool->lock);
	for (;;) {
		struct rcp_job *job = take(pool);

		if (job) {
			pthread_mutex_unlock(&pool->lock);
			job->work(job);
			pthread_mutex_lock(&pool->lock);
			finish(pool, job);
		} else if (pool->stop) {
			break;
		} else {
			pool->idle++;
			pthread_cond_wait(&pool->wake, &pool->lock);
			pool->idle--;
		}
	}
	pthread_mutex_unlock(&pool->lock);
	return NULL;
}

/* Signals belong to the loop's thread; SIGBUS is synchronous and must reach the worker's guard. */
static int start_threads(struct rcp_pool *pool, unsigned threads, struct rcp_err *err)
{
	sigset_t all, old;
	int rc = 0;

	sigfillset(&all);
	sigdelset(&all, SIGBUS);
	sigdelset(&all, SIGSEGV);
	pthread_sigmask(SIG_BLOCK, &all, &old);
	for (; pool->threads < threads; pool->threads++) {
		rc = pthread_create(&pool->thread[pool->threads], NULL, worker, pool);
		if (rc)
			break;
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (!rc)
		return 0;
	rcp_err_set(err, RCP_E_IO, rc, "pthread_create", NULL, "no worker thread");
	rcp_err_fix(err, "raise the limit on processes: ulimit -u");
	return RCP_E_IO;
}

int rcp_pool_new(unsigned threads, struct rcp_err *err, struct rcp_pool **out)
{
	struct rcp_pool *pool = calloc(1, sizeof(*pool) + threads * sizeof(pthread_t));

	*out = NULL;
	if (!pool)
		return rcp_err_set(err, RCP_E_IO, ENOMEM, "calloc", NULL, NULL);
	pthread_mutex_init(&pool->lock, NULL);
	pthread_cond_init(&pool->wake, NULL);
	for (unsigned i = 0; i < RCP_POOL_CLASSES; i++)
		queue_init(&pool->todo[i]);
	queue_init(&pool->finished);
	pool->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (pool->fd < 0)
		rcp_err_set(err, RCP_E_IO, errno, "eventfd", NULL, NULL);
	else
		start_threads(pool, threads, err);
	if (rcp_err_is(err)) {
		rcp_pool_free(&pool);
		return (int)err->code;
	}
	*out = pool;
	return 0;
}

void rcp_pool_submit(struct rcp_pool *pool, enum rcp_pool_class cls, struct rcp_job *job)
{
	pool->pending++;
	if (!pool->threads) {
		job->work(job);
		finish(pool, job);
		return;
	}
	pthread_mutex_lock(&pool->lock);
	queue_put(&pool->todo[cls], job);
	if (pool->idle)
		pthread_cond_signal(&pool->wake);
	pthread_mutex_unlock(&pool->lock);
}

void rcp_work_moved(uint64_t bytes)
{
	if (mine)
		atomic_fetch_add_explicit(&mine->moved, bytes, memory_order_relaxed);
}

bool rcp_work_unwanted(void)
{
	return mine && atomic_load_explicit(&mine->unwanted, memory_order_relaxed);
}

uint64_t rcp_pool_moved(const struct rcp_pool *pool)
{
	return atomic_load_explicit(&pool->moved, memory_order_relaxed);
}

void rcp_pool_set_unwanted(struct rcp_pool *pool, bool unwanted)
{
	atomic_store_explicit(&pool->unwanted, unwanted, memory_order_relaxed);
}

int rcp_pool_fd(const struct rcp_pool *pool)
{
	return pool->fd;
}

unsigned rcp_pool_threads(const struct rcp_pool *pool)
{
	return pool->threads;
}

unsigned rcp_pool_reap(struct rcp_pool *pool)
{
	uint64_t count;
	unsigned n = 0;

	/* The fd first: a job that ends after the list is taken wakes us again. */
	while (read(pool->fd, &count, sizeof(count)) < 0 && errno == EINTR)
		;
	pthread_mutex_lock(&pool->lock);
	struct rcp_job *job = pool->finished.head;

	queue_init(&pool->finished);
	pthread_mutex_unlock(&pool->lock);
	while (job) {
		struct rcp_job *next = job->next; /* done may free the job */

		pool->pending--;
		job->done(job);
		job = next;
		n++;
	}
	return n;
}

void rcp_pool_drain(struct rcp_pool *pool)
{
	while (pool->pending) {
		if (rcp_pool_reap(pool))
			continue;
		/* The eventfd is non-blocking; a short wait on it is enough at tear-down. */
		struct timespec nap = {.tv_nsec = 200000};

		nanosleep(&nap, NULL);
	}
}

void rcp_pool_free(struct rcp_pool **poolp)
{
	struct rcp_pool *pool = *poolp;

	if (!pool)
		return;
	*poolp = NULL;
	if (pool->fd >= 0)
		rcp_pool_drain(pool);
	pthread_mutex_lock(&pool->lock);
	pool->stop = true;
	pthread_cond_broadcast(&pool->wake);
	pthread_mutex_unlock(&pool->lock);
	for (unsigned i = 0; i < pool->threads; i++)
		pthread_join(pool->thread[i], NULL);
	if (pool->fd >= 0)
		close(pool->fd);
	pthread_cond_destroy(&pool->wake);
	pthread_mutex_destroy(&pool->lock);
	free(pool);
}
