/* What is to be copied, and the session of this end that does it. */
#include "boot/run.h"

#include "session/wanted.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

/* ---- requests ---- */

static void free_strings(char **list)
{
	for (char **s = list; list && *s; s++)
		free(*s);
	free(list);
}

void request_free(struct rcp_request *req)
{
	free(req->target);
	free_strings(req->paths);
	free_strings(req->excludes);
	free(req->source);
	req->target = req->source = NULL;
	req->paths = req->excludes = NULL;
	req->path_count = req->path_cap = 0;
}

int request_add_path(struct rcp_request *req, const char *path, size_t len, struct rcp_err *err)
{
	if (req->path_count + 2 > req->path_cap) {
		size_t cap = req->path_cap ? 2 * req->path_cap : 16;
		char **p = realloc(req->paths, cap * sizeof(*p));

		if (!p)
			return rcp_err_set(err, RCP_E_IO, ENOMEM, "realloc", NULL, NULL);
		req->paths = p;
		req->path_cap = cap;
		p[req->path_count] = NULL; /* whatever comes now, the list has its end */
	}
	char *copy = rcp_span_dup(rcp_span_of(path, len));

	if (!copy)
		return rcp_err_set(err, RCP_E_IO, ENOMEM, "malloc", NULL, NULL);
	req->paths[req->path_count++] = copy;
	req->paths[req->path_count] = NULL;
	return 0;
}

/* ---- the session of this end ---- */

static int make_sender(struct rcp_run *run, const struct rcp_session_options *o, struct rcp_err *err)
{
	bool pairs = (run->req.flags & RCP_OPT_PAIRS) != 0;
	struct rcp_walk_options w = {.recursive = (o->flags & (RCP_OPT_RECURSIVE | RCP_OPT_ARCHIVE)) != 0,
				     .archive = (o->flags & RCP_OPT_ARCHIVE) != 0,
				     .globs = !run->initiator,
				     .one_name = (o->flags & RCP_OPT_ONE_NAME) != 0,
				     .pairs = pairs,
				     .root = pairs ? run->req.paths[0] : NULL,
				     .excludes = (const char *const *)run->req.excludes,
				     .target = run->local ? &run->target : NULL};
	const char *const *paths = (const char *const *)run->req.paths + (pairs ? 1 : 0);
	struct rcp_walk *walk;

	if (rcp_walk_new(paths, &w, err, &walk))
		return (int)err->code;
	return rcp_sender_new(&run->env, o, walk, err, &run->sender);
}

int run_target_open(struct rcp_run *run, uint64_t flags, struct rcp_err *err)
{
	bool pairs = (flags & RCP_OPT_PAIRS) != 0; /* names below the target, which is made where it is not there */
	bool dir = pairs || (flags & (RCP_OPT_RECURSIVE | RCP_OPT_ARCHIVE)) != 0;

	if (!run->target_open && !rcp_target_resolve(run->req.target, run->req.source,
						     pairs || (flags & RCP_OPT_TARGET_DIR) != 0, dir, err, &run->target))
		run->target_open = true;
	return (int)err->code;
}

static int make_receiver(struct rcp_run *run, const struct rcp_session_options *o, struct rcp_err *err)
{
	if (run_target_open(run, o->flags, err))
		return (int)err->code;
	if (!(o->flags & (RCP_OPT_TIMES | RCP_OPT_ARCHIVE | RCP_OPT_NO_RESUME | RCP_OPT_VERIFY)))
		rcp_target_remember(&run->target);
	/* A responder takes what its initiator sends: that is who asks. */
	if (run->initiator && run->where.host &&
	    rcp_wanted_new(run->req.paths, (o->flags & RCP_OPT_PAIRS) != 0, err, &run->wanted))
		return (int)err->code;
	run->env.wanted = run->wanted;
	run->env.excludes = run->req.excludes != NULL;
	return rcp_receiver_new(&run->env, o, &run->target, err, &run->receiver);
}

static mode_t user_umask(void)
{
	mode_t mask = umask(077);

	umask(mask);
	return mask;
}

int run_session_new(struct rcp_run *run, uint32_t chunk_bytes, struct rcp_err *err)
{
	struct rcp_session_options o = {.flags = run->req.flags,
					.chunk_bytes = chunk_bytes,
					.bundle_bytes = run->req.bundle_bytes,
					.engine = run->req.engine,
					.umask = user_umask(),
					.limit_bytes_per_second = run->req.limit,
					.accept_bytes_per_second = run->accept_limit};

	if (o.bundle_bytes > chunk_bytes / 4)
		o.bundle_bytes = chunk_bytes / 4;
	run->session_over = false;
	return run->req.role == RCP_ROLE_SOURCE ? make_sender(run, &o, err) : make_receiver(run, &o, err);
}
