/*
 * What a responder is held to by who runs it: a daemon's module, or the directory of `rcp --server --restrict`. And what
 * one behind ssh gives up by itself. Loop's thread; all before there is any other.
 */
#include "boot/jail.h"
#include "boot/run.h"

#include "file/confine.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>

#define CHUNK_LEAST 65536 /* a limit makes chunks no smaller */
#define LAST_MS	    20000 /* for all that hangs when the end has begun; less than the daemon waits */

int restrict_paths(struct rcp_request *q, struct rcp_err *err)
{
	bool pairs = (q->flags & RCP_OPT_PAIRS) != 0;
	char *inside;

	if (q->role == RCP_ROLE_SINK) {
		inside = rcp_confine_path(q->target, err);
		if (!inside)
			return (int)err->code;
		free(q->target);
		q->target = inside;
	}
	/* Of pairs the first is the directory; the walk holds the names below it to the same rule. */
	for (size_t i = 0; i < (pairs && q->path_count ? 1 : q->path_count) && !rcp_err_is(err); i++) {
		inside = rcp_confine_path(q->paths[i], err);
		if (inside)
			request_set_path(q, i, inside, err);
		free(inside);
	}
	return (int)err->code;
}

int restrict_enter(struct rcp_run *run, const struct rcp_server_options *o, struct rcp_err *err)
{
	run->restricted = o->restrict_dir != NULL;
	run->access = o->restrict_access;
	if (!run->restricted)
		return 0;
	return rcp_jail_restrict(o->restrict_dir, o->restrict_access != RCP_ACCESS_READ, err, run->remark,
				 sizeof(run->remark));
}

/* The words of the command line are named, but not the directory: whose login it is may not know it. */
int restrict_request(struct rcp_run *run, struct rcp_err *err)
{
	bool sink = run->req.role == RCP_ROLE_SINK;

	if (!run->restricted)
		return 0;
	if (run->access == (sink ? RCP_ACCESS_READ : RCP_ACCESS_WRITE)) {
		rcp_err_set(err, RCP_E_CONNECT, 0, "", NULL, "this login may only %s: it runs rcp --server --restrict=...,%s",
			    sink ? "be read from" : "be written to", sink ? "ro" : "wo");
		rcp_err_fix(err, "authorized_keys or ForceCommand on the other side says so");
		return (int)err->code;
	}
	restrict_ring(&run->req, 0);
	return restrict_paths(&run->req, err);
}

/*
 * Bytes that were credited come without asking, so a sink's limit begins with a ring of half a second's; with smaller chunks
 * where the client's are larger than that. Two slots at least: one is written while the other comes.
 */
void restrict_ring(struct rcp_request *q, uint64_t limit)
{
	uint64_t most = RUN_RING_MOST;

	if (limit && q->role == RCP_ROLE_SINK && limit / 2 < most)
		most = limit / 2;
	while (q->slots > 2 && (uint64_t)q->slots * q->chunk_bytes > most)
		q->slots /= 2;
	while (q->slots * (uint64_t)q->chunk_bytes > most && q->chunk_bytes >= 2 * CHUNK_LEAST && q->chunk_bytes % 8192 == 0)
		q->chunk_bytes /= 2;
}

/* Tests only: RCP_TEST_LAST_MS=N in place of the 20 s. */
static unsigned last_ms(void)
{
#if RCP_TEST_HOOKS
	const char *ms = getenv("RCP_TEST_LAST_MS");

	if (ms)
		return (unsigned)strtoul(ms, NULL, 10);
#endif
	return LAST_MS;
}

/*
 * A worker may be in a call that does not come back, and the pool waits for it; nobody is there any more who could end this
 * process by hand. What is on disk is as claimed at any time, so the signal may end it anywhere.
 */
void restrict_deadline(struct rcp_run *run)
{
	unsigned ms = last_ms();
	const struct itimerval at = {.it_value = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000}};
	sigset_t set;

	if (run->served)
		served_ending(run);
	sigemptyset(&set);
	sigaddset(&set, SIGALRM);
	signal(SIGALRM, SIG_DFL);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	setitimer(ITIMER_REAL, &at, NULL);
}

/* A target that can't be resolved now is told of when the session begins, and is then no different. */
void restrict_sink(struct rcp_run *run)
{
	struct rcp_err err = {0};

	if (run->served || run->restricted || run->req.role != RCP_ROLE_SINK || run_target_open(run, run->req.flags, &err))
		return;
	if (!rcp_jail_sink(run->target.root))
		rcp_log(&run->log, RCP_LOG_DEBUG, "no Landlock here: openat2 alone holds the target together");
}
