/* Contract suite: the link within one process. It has no peer that could be played or could die. */
#include "pairs.h"

#include "link/loop.h"

#include <stdlib.h>

static void wake(void *arg)
{
	*(bool *)arg = true;
}

static int make(struct pair *p, struct rcp_err *err)
{
	bool *woken = calloc(1, sizeof(*woken));
	struct rcp_loop_params params = {.source = p->source_params,
					 .sink = p->sink_params,
					 .wake = wake,
					 .wake_arg = woken};

	p->own = woken;
	return woken ? rcp_loop_link_new(&params, err, &p->source, &p->sink) : RCP_E_IO;
}

static void turn(struct pair *p)
{
	bool *woken = p->own;
	struct rcp_link *either = p->source ? p->source : p->sink;

	if (!*woken || !either)
		return;
	*woken = false;
	if (rcp_loop_link_run(either))
		*woken = true;
}

static const char *destroy(struct pair *p)
{
	free(p->own);
	return NULL;
}

const struct pair_kind pair_loop = {.name = "loop", .make = make, .turn = turn, .destroy = destroy};
