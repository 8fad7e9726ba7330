/* The public door: options checked, the way chosen (local, upload, download), run, summary. */
#include "boot/run.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUNDLE_BYTES_DEFAULT 65536

struct rcp_copy {
	struct rcp_run run;
	struct rcp_options options;
	bool started;
};

const char *rcp_version(void)
{
	return RCP_VERSION;
}

void rcp_options_init(struct rcp_options *o)
{
	memset(o, 0, sizeof(*o)); /* the padding, too: two sets of options can then be compared */
	o->retries = 3;
	o->gid_index = o->tos = o->sl = o->pkey = -1;
	o->chunk_bytes = RCP_CHUNK_BYTES_DEFAULT;
	o->slots = RCP_SLOTS_DEFAULT;
}

static unsigned transports_of(const struct rcp_options *o)
{
	unsigned rdma = 1u << RCP_LINK_RDMA_CM | 1u << RCP_LINK_RDMA_OOB;

	switch (o->transport) {
	case RCP_TRANSPORT_RDMA:
		return rdma;
	case RCP_TRANSPORT_TCP:
		return 1u << RCP_LINK_TCP;
	case RCP_TRANSPORT_SSH:
		return 1u << RCP_LINK_PIPE;
	case RCP_TRANSPORT_AUTO:
		break;
	}
	return rdma | 1u << RCP_LINK_TCP | 1u << RCP_LINK_PIPE;
}

static uint64_t flags_of(const struct rcp_options *o)
{
	uint64_t f = 0;

	f |= o->recursive ? RCP_OPT_RECURSIVE : 0;
	f |= o->times ? RCP_OPT_TIMES : 0;
	f |= o->archive ? RCP_OPT_ARCHIVE | RCP_OPT_TIMES | RCP_OPT_RECURSIVE : 0;
	f |= o->numeric_ids ? RCP_OPT_NUMERIC_IDS : 0;
	f |= o->fsync ? RCP_OPT_FSYNC : 0;
	f |= o->verify ? RCP_OPT_VERIFY : 0;
	f |= o->no_resume ? RCP_OPT_NO_RESUME : 0;
	f |= o->skip_existing ? RCP_OPT_SKIP_EXISTING : 0;
	f |= o->update ? RCP_OPT_UPDATE : 0;
	f |= o->dry_run ? RCP_OPT_DRY_RUN : 0;
	f |= o->names ? RCP_OPT_PAIRS : 0;
	return f;
}

static int keep_options(struct rcp_request *q, const struct rcp_options *o, struct rcp_err *err)
{

	q->transports = transports_of(o);
	q->encrypt = (enum rcp_encrypt)o->encryption;
	q->connect = o->connect_oob ? RCP_CONNECT_OOB : RCP_CONNECT_CM;
	q->engine = (enum rcp_engine)o->source;
	q->family = o->family;
	q->tos = o->tos;
	q->sl = o->sl;
	q->pkey = o->pkey;
	q->streams = o->streams > RUN_STREAMS_MAX ? RUN_STREAMS_MAX : o->streams;
	q->chunk_bytes = o->chunk_bytes;
	q->slots = o->slots;
	q->bundle_bytes = BUNDLE_BYTES_DEFAULT;
	q->flags = flags_of(o);
	q->limit = o->limit_bytes_per_second;
	for (size_t i = 0; o->excludes && o->excludes[i]; i++) {
		if (request_add_exclude(q, rcp_span_str(o->excludes[i]), err))
			break;
	}
	return (int)err->code;
}

static int check_options(const struct rcp_options *o, struct rcp_err *err)
{
	if (!o->sources || !o->sources[0] || (!o->target && !o->list))
		return rcp_err_set(err, RCP_E_USAGE, 0, "", NULL, "a source and a target are needed");
	if (!o->slots || o->slots > RCP_SLOTS_MAX || o->chunk_bytes % 4096 ||
	    o->chunk_bytes < RCP_CHUNK_BYTES_MIN || o->chunk_bytes > RCP_CHUNK_BYTES_MAX)
		return rcp_err_set(err, RCP_E_USAGE, 0, "", NULL,
				   "chunks of %u bytes in %u slots: chunks are multiples of 4096 up to %u, "
				   "slots 1 to %u", o->chunk_bytes, o->slots, RCP_CHUNK_BYTES_MAX, RCP_SLOTS_MAX);
	if (o->names && o->sources[1])
		return rcp_err_set(err, RCP_E_USAGE, 0, "", "--files-from",
				   "takes one source, the directory that the names are below");
	return 0;
}

static bool same_text(const char *a, const char *b)
{
	return a == b || (a && b && !strcmp(a, b));
}

static int same_host(const struct rcp_where *a, const struct rcp_where *b, struct rcp_err *err)
{
	bool same = a->kind == b->kind && same_text(a->user, b->user) && same_text(a->host, b->host);

	if (same && same_text(a->module, b->module) && a->port == b->port)
		return 0;
	rcp_err_set(err, RCP_E_USAGE, 0, "", b->host ? b->host : b->path,
		    "all sources of one copy must be on one host%s",
		    same ? ", and in one module" : "");
	rcp_err_fix(err, "run rcp once for each %s", same ? "module" : "host");
	return (int)err->code;
}

/* What tells a rerun of one copy from another copy: a path of this host means nothing without its directory. */
static char *source_name(const char *as_written, const struct rcp_where *w)
{
	char *cwd, *whole = NULL;

	if (w->kind != RCP_WHERE_LOCAL || !w->path || w->path[0] == '/')
		return strdup(as_written);
	cwd = getcwd(NULL, 0);
	if (!cwd && errno != ENOMEM) /* it was removed, or lies beyond a root of its own */
		return strdup(as_written);
	if (!cwd || asprintf(&whole, "%s/%s", cwd, w->path) < 0)
		whole = NULL;
	free(cwd);
	return whole;
}

/* The sources: all here, or all on one other host. */
static int take_sources(struct rcp_run *run, const struct rcp_options *o, struct rcp_where *first,
			struct rcp_err *err)
{
	for (size_t i = 0; o->sources[i]; i++) {
		struct rcp_where w = {0};

		if (rcp_where_parse(o->sources[i], err, &w))
			return (int)err->code;
		if (!i)
			*first = w;
		if ((i && same_host(first, &w, err)) ||
		    request_add_path(&run->req, rcp_span_str(w.path), err)) {
			if (i)
				rcp_where_free(&w);
			return (int)err->code;
		}
		if (i)
			rcp_where_free(&w);
		run->req.flags |= i ? RCP_OPT_TARGET_DIR : 0;
	}
	if (!o->sources[1]) {
		run->req.source = source_name(o->sources[0], first);
		if (!run->req.source)
			return rcp_err_set(err, RCP_E_IO, ENOMEM, "malloc", NULL, NULL);
	}
	for (size_t i = 0; o->names && o->names[i]; i++) {
		if (request_add_path(&run->req, rcp_span_str(o->names[i]), err))
			return (int)err->code;
	}
	return 0;
}

static int choose_way(struct rcp_run *run, struct rcp_where *source, struct rcp_where *target,
		      struct rcp_err *err)
{
	bool from = source->kind != RCP_WHERE_LOCAL, to = target->kind != RCP_WHERE_LOCAL;

	if (from && to) {
		rcp_err_set(err, RCP_E_USAGE, 0, "", source->host, "copies between two other hosts are not possible");
		rcp_err_fix(err, "run rcp on one of them: ssh %s rcp ... %s:...", source->host, target->host);
		return (int)err->code;
	}
	run->req.role = from ? RCP_ROLE_SINK : RCP_ROLE_SOURCE;
	run->req.target = strdup(target->path);
	if (!run->req.target)
		return rcp_err_set(err, RCP_E_IO, ENOMEM, "strdup", NULL, NULL);
	if (from || to) {
		struct rcp_where *far = from ? source : target;

		run->where = *far;
		*far = (struct rcp_where){0};
	}
	return 0;
}

static int take_places(struct rcp_run *run, const struct rcp_options *o, struct rcp_err *err)
{
	struct rcp_where source = {0}, target = {0};

	if (o->list)
		return rcp_where_parse_listing(o->sources[0], err, &run->where);
	if (!rcp_where_parse(o->target, err, &target) && !take_sources(run, o, &source, err))
		choose_way(run, &source, &target, err);
	rcp_where_free(&source);
	rcp_where_free(&target);
	return (int)err->code;
}

int rcp_copy_new(const struct rcp_options *options, const struct rcp_watch *watch,
		 struct rcp_copy **out)
{
	struct rcp_copy *copy = calloc(1, sizeof(*copy));
	struct rcp_err err = {0};

	*out = NULL;
	if (!copy)
		return run_no_memory(watch);
	copy->options = *options;
	copy->run.options = &copy->options;
	copy->run.initiator = true;
	if (watch)
		copy->run.watch = *watch;
	if (!check_options(options, &err) && !keep_options(&copy->run.req, options, &err) &&
	    !take_places(&copy->run, options, &err) &&
	    !run_init(&copy->run, watch, options->threads, options->verbose, &err)) {
		*out = copy;
		return RCP_EXIT_OK;
	}
	run_fault(&copy->run, &err, false);
	run_end(&copy->run, &err);
	run_loop(&copy->run);
	free(copy);
	return (int)err.code;
}

/* The ends after which a rerun goes on from here. A file that failed by itself (RCP_E_PARTIAL) keeps
 * nothing. */
static bool keeps_partials(int code)
{
	return code == RCP_EXIT_INTEGRITY || code == RCP_EXIT_IO || code == RCP_EXIT_LINK ||
	       code == RCP_EXIT_INTERRUPTED || code == RCP_EXIT_TERMINATED;
}

static void tell_summary(struct rcp_run *run, int code)
{
	struct rcp_session_stats st = retry_totals(run);
	uint64_t end = run->ended_ns ? run->ended_ns : run_now(NULL);
	struct rcp_summary s = {.exit_code = code,
				.files = st.files_done,
				.bytes = st.bytes_done,
				.skipped = st.skipped,
				.failed = st.failed,
				.seconds = (double)(end - run->started_ns) / 1e9,
				.transport = run->transport,
				.fabric = run->fabric,
				.fallback_reason = talk_fallback(run),
				.encrypted = run->encrypted,
				.sealed = run->sealed,
				.sealed_bytes = st.sealed_bytes,
				.zero_copy_bytes = st.zero_copy_bytes,
				.staged_bytes = st.staged_bytes,
				.resumed_bytes = st.resumed_bytes,
				.resent_chunks = st.resent_chunks,
				.retries = run->replaced + run->reconnects,
				.crc32_known = st.crc_known,
				.crc32 = st.crc,
				.bottleneck = rcp_session_bottleneck(&st),
				.resumable = keeps_partials(code) && st.entries_seen &&
					     !(run->req.flags & RCP_OPT_NO_RESUME)};

	if (s.seconds > 0)
		s.bytes_per_second = (double)s.bytes / s.seconds;
	if (run->watch.summary)
		run->watch.summary(run->watch.arg, &s);
}

int rcp_copy_run(struct rcp_copy *copy)
{
	struct rcp_run *run = &copy->run;
	struct rcp_err err = {0};
	int code;

	if (run->where.host && copy->options.retries > 0) {
		/* Without memory for them, a retry does more than it must. */
		run->env.done = run->done = rcp_keys_new(NULL);
		run->told = rcp_keys_new(NULL);
	}
	if (run->where.host)
		initiator_start(run, &copy->options, &err);
	else
		local_start(run, &err);
	if (rcp_err_is(&err)) {
		run_fault(run, &err, false);
		run_end(run, &err);
	}
	copy->started = true;
	code = run_loop(run);
	tell_summary(run, code);
	return code;
}

void rcp_copy_cancel(struct rcp_copy *copy, int exit_code)
{
	run_cancel(&copy->run, exit_code);
}

void rcp_copy_free(struct rcp_copy **copyp)
{
	struct rcp_copy *copy = *copyp;

	if (!copy)
		return;
	*copyp = NULL;
	if (!copy->started) {
		struct rcp_err none = {0};

		run_end(&copy->run, &none);
		run_loop(&copy->run);
	}
	free(copy);
}
