/*
 * What a responder is held to by who runs it: a daemon's module, or the directory of `rcp --server --restrict`. And what
 * one behind ssh gives up by itself. Loop's thread; all before there is any other.
 */
#include "boot/jail.h"
#include "boot/run.h"

#include "file/confine.h"

#include <stdlib.h>

static int confine(char **path, struct rcp_err *err)
{
	char *inside = rcp_confine_path(*path, err);

	if (!inside)
		return (int)err->code;
	free(*path);
	*path = inside;
	return 0;
}

int restrict_paths(struct rcp_request *q, struct rcp_err *err)
{
	bool pairs = (q->flags & RCP_OPT_PAIRS) != 0;

	if (q->role == RCP_ROLE_SINK && confine(&q->target, err))
		return (int)err->code;
	/* Of pairs the first is the directory; the walk holds the names below it to the same rule. */
	for (size_t i = 0; i < (pairs && q->path_count ? 1 : q->path_count); i++) {
		if (confine(&q->paths[i], err))
			return (int)err->code;
	}
	return 0;
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
	return restrict_paths(&run->req, err);
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
