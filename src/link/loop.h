/*
 * The link inside one process, for local copies and tests: the source's own memory is what the sink
 * sees (no copy), and `sent` comes when the sink releases the slot. Events come from
 * rcp_loop_link_run, which the owner calls from its loop whenever `wake` was called.
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

/* Deliver what is due on both ends. Returns true if there is more to deliver. source or sink: any. */
bool rcp_loop_link_run(struct rcp_link *either);

#endif
