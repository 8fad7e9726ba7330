/*
 * A copy that stands still though both ends live. Keepalive finds peers that are gone; this finds those that are there
 * and do nothing: no chunk, no credit, no word of the copy. PING tells whether an end is at work on something, such as
 * a disk that hangs: then it has more time, but not for ever. What this end is at itself is never held against the other.
 */
#include "boot/run.h"

#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define IDLE_NS (300 * RCP_SEC)	    /* nothing moves, and neither end is at work */
#define WORK_NS (12 * 300 * RCP_SEC) /* nothing moves, and the other end says that it is at work */

/* Tests only: RCP_TEST_STALL_MS=N in place of the 300 s. */
static uint64_t patience(uint64_t ns)
{
#if RCP_TEST_HOOKS
	const char *ms = getenv("RCP_TEST_STALL_MS");

	if (ms)
		return ns / (300 * RCP_SEC) * strtoull(ms, NULL, 10) * RCP_MS;
#endif
	return ns;
}

static void reset(struct rcp_run *run, uint64_t now)
{
	run->moved_ns = run->idle_ns = now;
}

void stall_turn(struct rcp_run *run, uint64_t now)
{
	struct rcp_err err = {0};

	if (!run->ctl || !run->used || !(run->sender || run->receiver)) {
		reset(run, now);
		return;
	}
	bool works = run->sender ? rcp_sender_works(run->sender) : rcp_receiver_works(run->receiver);
	uint64_t moves = rcp_ctl_moved(run->ctl) +
			 (run->sender ? rcp_sender_moved(run->sender) : rcp_receiver_moved(run->receiver));

	rcp_ctl_set_works(run->ctl, works, rcp_pool_moved(run->pool));
	if (works || moves != run->stall_moves) {
		run->stall_moves = moves;
		reset(run, now);
		return;
	}
	if (rcp_ctl_peer_works(run->ctl))
		run->idle_ns = now;
	if (now - run->idle_ns < patience(IDLE_NS) && now - run->moved_ns < patience(WORK_NS))
		return;
	rcp_err_set(&err, RCP_E_LINK, ETIMEDOUT, "", run->host, "the copy stands still: the other end lives, but nothing came for %.0f s",
		    (double)(now - run->moved_ns) / 1e9);
	rcp_err_fix(&err, "see what its disk and the network are at; a rerun goes on from here");
	run_fail(run, &err);
}
