/* What is to be copied, and the session of this end that does it. */
#include "boot/run.h"

#include "session/wanted.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- requests ---- */

#define TEXT_BYTES 65536

/* Where names are kept, many in one block: a malloc each costs a short one several times what it is. */
struct rcp_text {
	struct rcp_text *next;
	size_t used, room;
	char bytes[];
};

void request_free(struct rcp_request *req)
{
	for (struct rcp_text *t = req->texts, *next; t; t = next) {
		next = t->next;
		free(t);
	}
	free(req->paths);
	free(req->excludes);
	free(req->target);
	free(req->source);
	req->texts = NULL;
	req->target = req->source = NULL;
	req->paths = req->excludes = NULL;
	req->path_count = req->path_cap = req->exclude_count = req->exclude_cap = 0;
}

/* With a NUL behind it; the request's. */
static char *keep_text(struct rcp_request *req, const char *text, size_t len, struct rcp_err *err)
{
	struct rcp_text *t = req->texts;

	if (!t || t->room - t->used < len + 1) {
		size_t room = len + 1 > TEXT_BYTES ? len + 1 : TEXT_BYTES;

		t = malloc(sizeof(*t) + room);
		if (!t) {
			rcp_err_set(err, RCP_E_IO, ENOMEM, "malloc", NULL, NULL);
			return NULL;
		}
		*t = (struct rcp_text){.next = req->texts, .room = room};
		req->texts = t;
	}
	char *at = t->bytes + t->used;

	memcpy(at, text, len);
	at[len] = 0;
	t->used += len + 1;
	return at;
}

static int add(struct rcp_request *req, char ***list, size_t *count, size_t *cap, struct rcp_span text,
	       struct rcp_err *err)
{
	if (*count + 2 > *cap) {
		size_t more = *cap ? 2 * *cap : 16;
		char **p = realloc(*list, more * sizeof(*p));

		if (!p)
			return rcp_err_set(err, RCP_E_IO, ENOMEM, "realloc", NULL, NULL);
		*list = p;
		*cap = more;
		p[*count] = NULL; /* whatever comes now, the list has its end */
	}
	char *kept = keep_text(req, (const char *)text.data, text.len, err);

	if (!kept)
		return (int)err->code;
	(*list)[(*count)++] = kept;
	(*list)[*count] = NULL;
	return 0;
}

int request_add_path(struct rcp_request *req, struct rcp_span path, struct rcp_err *err)
{
	return add(req, &req->paths, &req->path_count, &req->path_cap, path, err);
}

int request_add_exclude(struct rcp_request *req, struct rcp_span pattern, struct rcp_err *err)
{
	return add(req, &req->excludes, &req->exclude_count, &req->exclude_cap, pattern, err);
}

int request_set_path(struct rcp_request *req, size_t i, const char *path, struct rcp_err *err)
{
	size_t len = strlen(path);
	char *kept = req->paths[i];

	if (len <= strlen(kept))
		memcpy(kept, path, len + 1);
	else
		kept = keep_text(req, path, len, err);
	if (!kept)
		return (int)err->code;
	req->paths[i] = kept;
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
	if (run->initiator && run->where.host && !run->wanted &&
	    rcp_wanted_new(run->req.paths, (o->flags & RCP_OPT_PAIRS) != 0, run->where.module, err, &run->wanted))
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
					.stage_bytes = run_guarded(run) ? RUN_RING_MOST : 0,
					.limit_bytes_per_second = run->req.limit,
					.accept_bytes_per_second = run->accept_limit};

	if (o.bundle_bytes > chunk_bytes / 4)
		o.bundle_bytes = chunk_bytes / 4;
	run->session_over = false;
	return run->req.role == RCP_ROLE_SOURCE ? make_sender(run, &o, err) : make_receiver(run, &o, err);
}
