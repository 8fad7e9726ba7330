/*
 * The link inside one process, for local copies and tests: the source's own memory is what the sink
 * sees (no copy), and `sent` comes when the sink releases the slot. Events come from
 * rcp_loop_link_run, which the owner calls from its loop whenever `wake` was called.
 *
 * What differs from a ring: header and payload are the post's own, so payload is aligned as the
 * sender's body is, only `length` bytes long, and NULL where an empty post had no body. A source that
 * closes waits for the sink's releases without a deadline; a sink that closes has its slots until it
 * is freed, and only then do their posts get their `sent` (not ok).
 */
#ifndef RCP_LINK_LOOP_H
#define RCP_LINK_LOOP_H

#include "link/link.h"

/* wake(wake_arg): run is needed, call it soon and not from inside wake. Makes both ends of one link;
 * each has its own events. */
struct rcp_loop_params {
	struct rcp_link_params source, sink;
	void (*wake)(void *wake_arg);
	void *wake_arg;
};
int rcp_loop_link_new(const struct rcp_loop_params *params, struct rcp_err *err,
		      struct rcp_link **source, struct rcp_link **sink);

/* Deliver what is due on both ends. Returns true if there is more to deliver (`wake` was called then
 * too). either: one that is not freed. */
bool rcp_loop_link_run(struct rcp_link *either);

#endif
