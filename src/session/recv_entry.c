/* What becomes of an entry at the sink: named, prepared, answered, filled, committed. */
#include "session/recv.h"

#include "base/container.h"
#include "base/clock.h"
#include "file/beneath.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct recv_entry *entry_of(struct rcp_job *job)
{
	return RCP_CONTAINER(job, struct recv_entry, job);
}

static struct recv_entry *entry_of_checkpoint(struct rcp_job *job)
{
	return RCP_CONTAINER(job, struct recv_entry, checkpoint);
}

void recv_entry_met(struct recv_entry *e, const struct rcp_err *err)
{
	if (!e->met)
		e->met = rcp_err_keep(err);
}

void recv_entry_err(struct recv_entry *e, const struct rcp_err *err)
{
	struct rcp_err named;

	if (e->err)
		return;
	named = *err;
	if (!rcp_err_is(&named)) /* the peer's, or the end of a session that had none */
		rcp_err_set(&named, RCP_E_LINK, 0, "", NULL, "ended before it was whole");
	rcp_err_object(&named, e->shown);
	e->err = rcp_err_keep(&named);
}

static void submit(struct recv_entry *e, void (*work)(struct rcp_job *), void (*done)(struct rcp_job *))
{
	e->busy++;
	e->job = (struct rcp_job){.work = work, .done = done};
	recv_job(e->r, RCP_POOL_START, &e->job);
}

void recv_entry_free(struct recv_entry *e)
{
	if (e->sink) {
		rcp_sink_close(&e->sink, e->keep);
		e->r->open_files--;
	}
	rcp_meta_free(&e->meta);
	rcp_err_drop(&e->err);
	rcp_err_drop(&e->met);
	rcp_err_drop(&e->checkpoint_met);
	free(e->tries);
	free(e);
}

/* ---- failure and the end of one ---- */

static void close_work(struct rcp_job *job)
{
	struct recv_entry *e = entry_of(job);
	struct rcp_err ignored = {0}; /* the entry has failed already: what can be claimed is */

	if (e->keep)
		rcp_sink_checkpoint(e->sink, &ignored);
	rcp_sink_close(&e->sink, e->keep);
}

static void close_done(struct rcp_job *job)
{
	struct recv_entry *e = entry_of(job);
	struct rcp_receiver *r = e->r;

	r->jobs--;
	r->open_files--;
	recv_entry_end(e, RCP_STATUS_FAILED);
	recv_entry_unref(e);
	recv_open_pump(r);
}

static void ending(struct recv_entry *e)
{
	if (e->sink)
		submit(e, close_work, close_done);
	else
		recv_entry_end(e, RCP_STATUS_FAILED);
}

/* First cause wins. The partial file is kept where a rerun can go on from it. */
void recv_entry_fail(struct recv_entry *e, const struct rcp_err *err)
{
	if (e->state == RECV_ENDING)
		return;
	e->state = RECV_ENDING;
	recv_entry_err(e, err);
	e->keep = err->code != RCP_E_PARTIAL && !(e->r->opt.flags & RCP_OPT_NO_RESUME);
	if (!e->busy)
		ending(e);
}

void recv_entry_unref(struct recv_entry *e)
{
	if (--e->busy)
		return;
	if (e->id == UINT32_MAX)
		recv_entry_free(e); /* ended, and out of the table */
	else if (e->state == RECV_ENDING)
		ending(e);
	else
		recv_entry_progress(e);
}

/* ---- re-sends ---- */

static struct recv_try *try_of(struct recv_entry *e, uint64_t offset)
{
	for (unsigned i = 0; i < e->try_count; i++) {
		if (e->tries[i].offset == offset)
			return &e->tries[i];
	}
	struct recv_try *t = realloc(e->tries, (e->try_count + 1) * sizeof(*t));

	if (!t)
		return NULL;
	e->tries = t;
	t += e->try_count++;
	*t = (struct recv_try){.offset = offset};
	return t;
}

/* False: tried often enough, the entry has failed. */
bool recv_entry_again(struct recv_entry *e, uint64_t offset, uint32_t length)
{
	struct recv_try *t = try_of(e, offset);
	struct rcp_err err = {0};

	if (!t || t->tries >= RECV_TRIES) {
		rcp_err_set(&err, RCP_E_INTEGRITY, t ? 0 : ENOMEM, "", e->shown,
			    "the chunk at offset %llu had a wrong CRC %u times",
			    (unsigned long long)offset, RECV_TRIES + 1);
		rcp_err_fix(&err, "check cables, NICs and memory of both hosts; a rerun goes on from here");
		recv_entry_fail(e, &err);
		return false;
	}
	t->tries++;
	e->r->agains++;
	e->r->stats.resent_chunks++;
	struct rcp_msg_again msg = {.entry = e->id, .attempt = t->tries, .offset = offset, .length = length};

	e->r->env.send(e->r->env.arg, RCP_MSG_AGAIN, &msg);
	return true;
}

/* ---- commit ---- */

static void commit_work(struct rcp_job *job)
{
	struct recv_entry *e = entry_of(job);
	struct rcp_err err = {0};

	if (!(e->r->opt.flags & RCP_OPT_VERIFY) || !rcp_sink_verify(e->sink, &err))
		rcp_sink_commit(e->sink, &e->meta, &err, &e->lost);
	recv_entry_met(e, &err);
}

static void commit_done(struct rcp_job *job)
{
	struct recv_entry *e = entry_of(job);
	struct rcp_receiver *r = e->r;

	r->jobs--;
	if (e->met) {
		recv_entry_fail(e, e->met);
	} else if (e->state == RECV_COMMITTING) {
		r->last_crc = rcp_sink_crc(e->sink);
		r->crc_files++;
		rcp_sink_close(&e->sink, false);
		r->open_files--;
		recv_entry_end(e, e->lost ? RCP_STATUS_WARNED : RCP_STATUS_OK);
	}
	recv_entry_unref(e);
	recv_open_pump(r);
}

/* Called whenever nothing of the entry runs: is it complete? */
void recv_entry_progress(struct recv_entry *e)
{
	if (e->state != RECV_RECEIVING || e->busy || !e->end_seen || e->r->stopping ||
	    rcp_sink_bytes(e->sink) < e->data_bytes)
		return;
	e->state = RECV_COMMITTING;
	submit(e, commit_work, commit_done);
}

/* ---- checkpoints ---- */

static void checkpoint_work(struct rcp_job *job)
{
	struct recv_entry *e = entry_of_checkpoint(job);
	struct rcp_err err = {0};

	if (rcp_sink_checkpoint(e->sink, &err)) {
		rcp_err_drop(&e->checkpoint_met);
		e->checkpoint_met = rcp_err_keep(&err);
	}
}

static void checkpoint_done(struct rcp_job *job)
{
	struct recv_entry *e = entry_of_checkpoint(job);

	e->r->jobs--;
	e->checkpointing = false;
	if (e->checkpoint_met)
		recv_entry_fail(e, e->checkpoint_met);
	recv_entry_unref(e);
}

void recv_checkpoint_due(struct recv_entry *e)
{
	uint64_t now = e->r->env.now_ns(e->r->env.arg);

	if (e->checkpointing || e->state != RECV_RECEIVING || e->r->opt.flags & RCP_OPT_NO_RESUME ||
	    (e->fresh_bytes < RECV_CHECKPOINT_BYTES && now - e->checkpoint_ns < RECV_CHECKPOINT_NS))
		return;
	e->checkpointing = true;
	e->fresh_bytes = 0;
	e->checkpoint_ns = now;
	e->busy++;
	e->checkpoint = (struct rcp_job){.work = checkpoint_work, .done = checkpoint_done};
	recv_job(e->r, RCP_POOL_START, &e->checkpoint);
}

/* ---- opening big files ---- */

static void open_work(struct rcp_job *job)
{
	struct recv_entry *e = entry_of(job);
	struct rcp_sink_params p = {.root = e->r->target->root,
				    .path = e->path,
				    .shown = e->shown,
				    .id = e->fid,
				    .chunk_bytes = e->r->opt.chunk_bytes,
				    .sparse = (e->rec.flags & RCP_ENTRY_SPARSE) != 0,
				    .resume = !(e->r->opt.flags & RCP_OPT_NO_RESUME),
				    .fsync = (e->r->opt.flags & RCP_OPT_FSYNC) != 0};

	struct rcp_err err = {0};

	rcp_sink_open(&p, &err, &e->sink);
	recv_entry_met(e, &err);
}

/* What an earlier run left, as ranges of whole chunks. */
static void encode_have(const struct recv_entry *e, struct rcp_wr *w)
{
	uint64_t cell = e->r->opt.chunk_bytes, size = e->fid.size;
	struct rcp_rec_range run = {0};

	for (uint64_t at = 0; at < size; at += cell) {
		bool has = rcp_sink_has(e->sink, at / cell);
		uint64_t len = size - at < cell ? size - at : cell;

		if (has && run.length)
			run.length += len;
		else if (has)
			run = (struct rcp_rec_range){.offset = at, .length = len};
		else if (run.length) {
			rcp_rec_encode(w, RCP_REC_RANGE, &run);
			run.length = 0;
			if (w->len > RCP_FRAME_MAX / 2)
				return; /* the rest is simply sent again */
		}
	}
	if (run.length)
		rcp_rec_encode(w, RCP_REC_RANGE, &run);
}

static void open_answer(struct recv_entry *e)
{
	struct rcp_receiver *r = e->r;
	struct rcp_wr w = {.max = RCP_FRAME_MAX};
	uint64_t resumed = rcp_sink_resumed_bytes(e->sink);
	const char *remark = rcp_sink_remark(e->sink);

	if (remark)
		rcp_log(r->env.log, RCP_LOG_WARN, "%s", remark);
	if (resumed) {
		r->stats.resumed_bytes += resumed;
		r->stats.bytes_moved += resumed;
		encode_have(e, &w);
	}
	e->state = RECV_RECEIVING;
	e->checkpoint_ns = r->env.now_ns(r->env.arg);
	recv_answer(e, rcp_span_of(w.data, w.len));
	rcp_wr_free(&w);
}

static void open_done(struct rcp_job *job)
{
	struct recv_entry *e = entry_of(job);
	struct rcp_receiver *r = e->r;

	r->jobs--;
	if (!e->sink)
		r->open_files--;
	if (e->met)
		recv_entry_fail(e, e->met);
	else if (e->state == RECV_OPENING)
		open_answer(e);
	recv_entry_unref(e);
	recv_open_pump(r);
}

void recv_open_pump(struct rcp_receiver *r)
{
	while (r->open_files < RECV_OPEN_MAX && !r->stopping) {
		struct recv_entry *e = recv_list_get(&r->to_open);

		if (!e)
			return;
		if (e->state == RECV_OPENING) {
			r->open_files++;
			submit(e, open_work, open_done);
		}
		recv_entry_unref(e); /* the list's */
	}
}

/* ---- entries without data ---- */

static void special_work(struct rcp_job *job)
{
	struct recv_entry *e = entry_of(job);
	int root = e->r->target->root;
	struct rcp_err err = {0};

	if (e->rec.type == RCP_ENTRY_DIR_END)
		rcp_sink_dir_end(root, e->path, e->shown, &e->meta, &err, &e->lost);
	else
		rcp_sink_special(root, e->path, e->shown, &e->rec, &e->meta, &err, &e->lost);
	recv_entry_met(e, &err);
}

static void special_done(struct rcp_job *job)
{
	struct recv_entry *e = entry_of(job);
	struct rcp_receiver *r = e->r;

	r->jobs--;
	if (e->state == RECV_BARRIER)
		r->barrier_running = false;
	if (e->met)
		recv_entry_fail(e, e->met);
	else if (e->state != RECV_ENDING)
		recv_entry_end(e, e->lost ? RCP_STATUS_WARNED : RCP_STATUS_OK);
	recv_entry_unref(e);
	recv_barrier_pump(r);
}

/* Hard links and the ends of directories wait for all that was named before them. */
void recv_barrier_pump(struct rcp_receiver *r)
{
	struct recv_entry *e = r->barrier.head;

	while (e && e->state != RECV_BARRIER) { /* failed by the source */
		recv_list_get(&r->barrier);
		recv_entry_unref(e);
		e = r->barrier.head;
	}
	if (!e || r->barrier_running || r->stopping || rcp_idtab_lowest(&r->entries) != e)
		return;
	recv_list_get(&r->barrier);
	r->barrier_running = true;
	submit(e, special_work, special_done);
	recv_entry_unref(e);
}

/* ---- named: prepared by a worker, in order, batch after batch ---- */

static void look_first(struct recv_entry *e, struct rcp_kept_dir *kept)
{
	struct rcp_receiver *r = e->r;
	bool exists, same;

	if (!(r->opt.flags & (RCP_OPT_UPDATE | RCP_OPT_SKIP_EXISTING | RCP_OPT_DRY_RUN)) ||
	    e->rec.type != RCP_ENTRY_FILE)
		return;
	if (rcp_sink_lookup(r->target->root, e->path, kept, &exists, &same, &e->fid))
		return; /* the open will say why */
	e->skip = (r->opt.flags & RCP_OPT_SKIP_EXISTING && exists) ||
		  (r->opt.flags & RCP_OPT_UPDATE && same);
}

static void prepare(struct recv_entry *e, struct rcp_kept_dir *kept)
{
	struct rcp_receiver *r = e->r;
	struct rcp_meta_options o = {.times = (r->opt.flags & (RCP_OPT_TIMES | RCP_OPT_ARCHIVE)) != 0,
				     .archive = (r->opt.flags & RCP_OPT_ARCHIVE) != 0,
				     .numeric_ids = (r->opt.flags & RCP_OPT_NUMERIC_IDS) != 0,
				     .umask = r->opt.umask};
	struct rcp_err err = {0};

	if (e->met) /* refused when it was named */
		return;
	if (rcp_meta_of(&e->rec, &o, &err, &e->meta) == 0) {
		if (e->rec.type == RCP_ENTRY_DIR && !(r->opt.flags & RCP_OPT_DRY_RUN))
			rcp_sink_mkdir(r->target->root, e->path, e->shown, &err);
		else
			look_first(e, kept);
	}
	recv_entry_met(e, &err);
}

static void batch_work(struct rcp_job *job)
{
	struct recv_batch *b = (struct recv_batch *)(void *)job;
	struct rcp_kept_dir kept;

	rcp_kept_init(&kept);
	for (struct recv_entry *e = b->head; e; e = e->next)
		prepare(e, &kept);
	rcp_kept_close(&kept);
}

static void route_file(struct recv_entry *e)
{
	struct rcp_receiver *r = e->r;

	if (e->fid.size <= r->opt.bundle_bytes) {
		e->state = RECV_WAITING;
		recv_answer(e, rcp_span_of(NULL, 0));
	} else {
		e->state = RECV_OPENING;
		recv_list_put(&r->to_open, e);
	}
}

static void route(struct recv_entry *e)
{
	struct rcp_receiver *r = e->r;

	if (e->met) {
		recv_entry_fail(e, e->met);
		return;
	}
	if (e->state == RECV_ENDING)
		return; /* the source took it back */
	if (e->skip || r->opt.flags & RCP_OPT_DRY_RUN) {
		recv_entry_end(e, e->skip ? RCP_STATUS_SKIPPED : RCP_STATUS_OK);
		return;
	}
	switch ((enum rcp_entry_type)e->rec.type) {
	case RCP_ENTRY_FILE:
		route_file(e);
		break;
	case RCP_ENTRY_DIR:
		recv_entry_end(e, RCP_STATUS_OK);
		break;
	case RCP_ENTRY_DIR_END:
	case RCP_ENTRY_HARDLINK:
		e->state = RECV_BARRIER;
		recv_list_put(&r->barrier, e);
		break;
	case RCP_ENTRY_SYMLINK:
	case RCP_ENTRY_FIFO:
	case RCP_ENTRY_CHR:
	case RCP_ENTRY_BLK:
	case RCP_ENTRY_SOCK:
		submit(e, special_work, special_done);
		break;
	}
}

static void batch_next(struct rcp_receiver *r);

static void batch_done(struct rcp_job *job)
{
	struct recv_batch *b = (struct recv_batch *)(void *)job;
	struct rcp_receiver *r = b->r;

	r->jobs--;
	r->batches = b->next;
	if (!r->batches)
		r->batch_tail = &r->batches;
	for (struct recv_entry *e = b->head, *next; e; e = next) {
		next = e->next;
		e->next = NULL;
		route(e);
		recv_entry_unref(e); /* the batch's */
	}
	free(b);
	batch_next(r);
	recv_open_pump(r);
	recv_barrier_pump(r);
}

static void batch_next(struct rcp_receiver *r)
{
	struct recv_batch *b = r->batches;

	if (!b)
		return;
	b->job = (struct rcp_job){.work = batch_work, .done = batch_done};
	recv_job(r, RCP_POOL_START, &b->job);
}

/* ---- ENTRIES ---- */

/* The name below the root: the one source may get another name than its own. */
struct naming {
	struct rcp_span shown, head, rest;
};

static struct naming naming_of(const struct rcp_target *target, struct rcp_span path)
{
	struct naming n = {.shown = rcp_span_str(target->shown), .rest = path};

	if (target->rename) {
		const uint8_t *slash = memchr(path.data, '/', path.len);
		size_t first = slash ? (size_t)(slash - path.data) : path.len;

		n.head = rcp_span_str(target->rename);
		n.rest = rcp_span_of(path.data + first, path.len - first);
	}
	return n;
}

static char *append(char *at, struct rcp_span s)
{
	if (s.len)
		memcpy(at, s.data, s.len);
	return at + s.len;
}

static const char *entry_refuse(const struct rcp_rec_entry *rec)
{
	const char *why = rcp_path_refuse((const char *)rec->path.data, rec->path.len);

	if (why)
		return why;
	if (rec->type < RCP_ENTRY_FILE || rec->type > RCP_ENTRY_DIR_END)
		return "an entry of an unknown type";
	if (rec->size > INT64_MAX || rec->mtime_ns > 999999999 || rec->atime_ns > 999999999)
		return "an entry with a size or time that can't be";
	if (rec->type == RCP_ENTRY_HARDLINK)
		return rcp_path_refuse((const char *)rec->link.data, rec->link.len);
	return NULL;
}

/* A copy of the record with all that it points to, in one allocation. NULL: no memory. */
static struct recv_entry *entry_keep(struct rcp_receiver *r, const struct rcp_rec_entry *rec)
{
	struct naming n = naming_of(r->target, rec->path);
	struct recv_entry *e = malloc(sizeof(*e) + n.shown.len + n.head.len + n.rest.len + 1 + rec->link.len +
				      rec->user.len + rec->group.len + rec->xattrs.len);

	if (!e)
		return NULL;
	*e = (struct recv_entry){.r = r, .id = r->entries.next, .rec = *rec};
	e->fid = (struct rcp_file_id){.dev = rec->dev, .ino = rec->ino, .size = rec->size,
				      .mtime_s = (int64_t)rec->mtime_s, .mtime_ns = rec->mtime_ns};
	e->shown = (char *)(e + 1);
	e->path = append(e->shown, n.shown);
	char *at = append(append(e->path, n.head), n.rest);

	*at++ = 0;
	e->rec.path = rcp_span_str(e->path);
	struct rcp_span *const rest[] = {&e->rec.link, &e->rec.user, &e->rec.group, &e->rec.xattrs};

	for (size_t i = 0; i < sizeof(rest) / sizeof(rest[0]); i++) {
		struct rcp_span from = *rest[i];

		*rest[i] = rcp_span_of(at, from.len);
		at = append(at, from);
	}
	return e;
}

/* A second top-level source where there is but one name for it. */
static void check_top(struct recv_entry *e)
{
	struct rcp_receiver *r = e->r;

	if (!(e->rec.flags & RCP_ENTRY_TOP) || e->rec.type == RCP_ENTRY_DIR_END)
		return;
	if (r->target->rename && ++r->tops > 1) {
		struct rcp_err err = {0};

		rcp_err_set(&err, RCP_E_PARTIAL, ENOTDIR, "", e->shown,
			    "several sources need a target that is a directory");
		rcp_err_fix(&err, "make the directory first");
		recv_entry_met(e, &err);
	}
}

static int entry_new(struct rcp_receiver *r, struct recv_batch *b, const struct rcp_rec_entry *rec,
		     struct rcp_err *err)
{
	const char *why = entry_refuse(rec);
	struct recv_entry *e;

	if (why)
		return rcp_err_set(err, RCP_E_CONNECT, 0, "", NULL, "the peer broke the protocol: %s", why);
	e = entry_keep(r, rec);
	if (!e || !rcp_idtab_add(&r->entries, e)) {
		free(e);
		return rcp_err_set(err, RCP_E_IO, ENOMEM, "malloc", NULL, NULL);
	}
	check_top(e);
	e->busy++; /* the batch's */
	if (b->tail)
		b->tail->next = e;
	else
		b->head = e;
	b->tail = e;
	r->stats.entries_seen++;
	if (rec->type == RCP_ENTRY_FILE) {
		r->stats.files_seen++;
		r->stats.bytes_seen += rec->size;
	}
	return 0;
}

int recv_entries(struct rcp_receiver *r, const struct rcp_msg_entries *m, struct rcp_err *err)
{
	struct rcp_rd rd = rcp_rd_of(m->entries.data, m->entries.len);
	struct rcp_rec_entry rec;
	uint32_t count = 0;
	int rc = 1;

	if (m->first != r->entries.next || r->walk_over ||
	    r->entries.open + (uint64_t)m->count > RECV_ENTRIES_MAX)
		return rcp_err_set(err, RCP_E_CONNECT, 0, "", NULL,
				   "the peer broke the protocol: entries out of turn or too many");
	struct recv_batch *b = calloc(1, sizeof(*b));

	if (!b)
		return rcp_err_set(err, RCP_E_IO, ENOMEM, "calloc", NULL, NULL);
	b->r = r;
	while (count <= m->count && (rc = rcp_rec_next(&rd, RCP_REC_ENTRY, &rec)) > 0) {
		if (entry_new(r, b, &rec, err))
			break;
		count++;
	}
	bool first = !r->batches;

	*r->batch_tail = b;
	r->batch_tail = &b->next;
	if (first)
		batch_next(r);
	if (rcp_err_is(err))
		return (int)err->code;
	if (rc < 0 || count != m->count)
		return rcp_err_set(err, RCP_E_CONNECT, 0, "", NULL,
				   "the peer broke the protocol: malformed entries");
	return 0;
}

/* ---- the session ends early: what is partly there is claimed and kept ---- */

void recv_entry_close_all(struct rcp_receiver *r)
{
	for (uint32_t id = r->entries.base; id != r->entries.next; id++) {
		struct recv_entry *e = rcp_idtab_get(&r->entries, id);

		if (!e || e->busy || !e->sink || e->state == RECV_ENDING)
			continue;
		e->state = RECV_ENDING;
		recv_entry_err(e, &r->cause);
		e->keep = !(r->opt.flags & RCP_OPT_NO_RESUME);
		ending(e);
	}
}
