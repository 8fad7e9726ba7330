/*
 * The worker pool: everything that can block or burn CPU runs here, everything else on the loop.
 * Jobs live inside the objects that need them, so the data path allocates nothing. The only lock
 * of the process is inside.
 */
#ifndef RCP_BASE_POOL_H
#define RCP_BASE_POOL_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct rcp_pool;

/*
 * work runs on a worker; then done runs on the loop's thread, inside rcp_pool_reap. Between submit
 * and done the job and what it points to belong to the worker; done may free or resubmit it.
 */
struct rcp_job {
	void (*work)(struct rcp_job *job);
	void (*done)(struct rcp_job *job);
	struct rcp_job *next; /* the pool's */
};

/* Who goes first when workers are short: finishing frees credits, so it beats starting. */
enum rcp_pool_class { RCP_POOL_FINISH = 0, RCP_POOL_START = 1, RCP_POOL_CLASSES };

/* threads 0 = run each job at once inside submit, done at the next reap (for tests). */
int rcp_pool_new(unsigned threads, struct rcp_err *err, struct rcp_pool **out);

/* Waits for every submitted job and runs its done; then frees. NULL is fine. */
void rcp_pool_free(struct rcp_pool **pool);

/* Never fails, never blocks. Loop's thread only. */
void rcp_pool_submit(struct rcp_pool *pool, enum rcp_pool_class cls, struct rcp_job *job);

/* An eventfd that is readable when rcp_pool_reap has something to do; owned by the pool. */
int rcp_pool_fd(const struct rcp_pool *pool);

/* Run done of each finished job. Returns how many. */
unsigned rcp_pool_reap(struct rcp_pool *pool);

/* Block until every job submitted so far has been done. Tear-down only. */
void rcp_pool_drain(struct rcp_pool *pool);

unsigned rcp_pool_threads(const struct rcp_pool *pool);

/*
 * Jobs that take long (to read a file back) say how far they get, and look whether they are still wanted. Any thread;
 * outside of a worker nothing comes of it.
 */
void rcp_work_moved(uint64_t bytes);
bool rcp_work_unwanted(void);
/* What all jobs together have said. Loop's thread. */
uint64_t rcp_pool_moved(const struct rcp_pool *pool);
/* What is submitted still runs, but what looks is to give up. */
void rcp_pool_set_unwanted(struct rcp_pool *pool, bool unwanted);

#endif
