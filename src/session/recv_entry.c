/* What becomes of an entry at the sink once it is named: answered, filled, committed. */
#include "session/recv.h"

#include "base/container.h"
#include "base/clock.h"

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
	e->r->tries_bytes -= e->tries_bytes;
	e->r->entries_bytes -= e->bytes;
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

/* Where it is among the tries, which are in order, or would be. */
static unsigned try_at(const struct recv_entry *e, uint64_t offset)
{
	unsigned low = 0, high = e->try_count;

	while (low < high) {
		unsigned mid = low + (high - low) / 2;

		if (e->tries[mid].offset < offset)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* A sweep asks for thousands in a row, and a hostile source can spoil as many as the file has: no search through all. */
static struct recv_try *try_of(struct recv_entry *e, uint64_t offset)
{
	unsigned at = try_at(e, offset), n = e->try_count;
	struct recv_try *t = e->tries;

	if (at < n && t[at].offset == offset)
		return &t[at];
	if (!(n & (n - 1))) { /* room for the next power of two */
		size_t more = (n ? n : 1) * sizeof(*t);

		if (e->r->tries_bytes + more > RECV_TRIES_BYTES)
			return NULL;
		t = realloc(t, n * sizeof(*t) + more);
		if (!t)
			return NULL;
		e->tries = t;
		e->tries_bytes += more;
		e->r->tries_bytes += more;
	}
	memmove(t + at + 1, t + at, (n - at) * sizeof(*t));
	t[at] = (struct recv_try){.offset = offset};
	e->try_count++;
	return &t[at];
}

/* False: tried often enough, the entry has failed. */
bool recv_entry_again(struct recv_entry *e, uint64_t offset, uint32_t length, bool damaged)
{
	struct recv_try *t = try_of(e, offset);
	struct rcp_err err = {0};

	if (!t) {
		rcp_err_set(&err, RCP_E_INTEGRITY, ENOMEM, "", e->shown, "more chunks came damaged or not at all than can be kept count of");
		recv_entry_fail(e, &err);
		return false;
	}
	t->damaged |= damaged;
	if (t->tries >= RECV_TRIES) {
		bool sealed = e->r->link && e->r->link->seal;
		const char *what = !t->damaged ? "never arrived whole, sent"
				   : sealed	    ? "came damaged or forged"
						    : "had a wrong CRC";

		rcp_err_set(&err, RCP_E_INTEGRITY, 0, "", e->shown,
			    "the chunk at offset %llu %s %u times", (unsigned long long)offset, what, RECV_TRIES + 1);
		rcp_err_fix(&err, "check cables, NICs and memory of both hosts%s; a rerun goes on from here",
			    sealed ? ", and who can change what they send" : "");
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
	e->crc = rcp_err_is(&err) ? 0 : rcp_sink_crc(e->sink); /* of millions of chunks: not on the loop */
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
		r->last_crc = e->crc;
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

/* A retry may meet the server of the connection that was lost, on its way to its end. */
unsigned recv_lock_ms(const struct rcp_receiver *r)
{
	return r->opt.flags & (RCP_OPT_RETRY | RCP_OPT_LOCK_WAIT) ? RECV_LOCK_MS : 0;
}

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
				    .fsync = (e->r->opt.flags & RCP_OPT_FSYNC) != 0,
				    .wait_ms = recv_lock_ms(e->r),
				    .done = e->r->target->done};

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
		rcp_log(r->env.log, RCP_LOG_WARN, "%s: %s", e->shown, remark);
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
	bool sync = e->r->opt.flags & RCP_OPT_FSYNC;
	struct rcp_err err = {0};

	if (e->rec.type == RCP_ENTRY_DIR_END)
		rcp_sink_dir_end(root, e->path, e->shown, &e->meta, sync, &err, &e->lost);
	else
		rcp_sink_special(root, e->path, e->shown, &e->rec, e->entered, &e->meta, sync, &err, &e->lost);
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

/* A hard link to what was there before the first name failed would be neither old nor new. */
static bool link_refuse(struct recv_entry *e)
{
	struct rcp_span first = e->rec.link;
	struct rcp_err err = {0};

	if (e->rec.type != RCP_ENTRY_HARDLINK || !recv_first_failed(e))
		return false;
	rcp_err_set(&err, RCP_E_PARTIAL, 0, "link", e->shown, "no hard link to %.*s, which was not copied",
		    (int)(first.len < 200 ? first.len : 200), (const char *)first.data);
	recv_entry_fail(e, &err);
	return true;
}

void recv_entry_special(struct recv_entry *e)
{
	submit(e, special_work, special_done);
}

/* Hard links and the ends of directories wait for all that was named before them. */
void recv_barrier_pump(struct rcp_receiver *r)
{
	struct recv_entry *e;
	bool refused;

	do {
		e = r->barrier.head;
		while (e && e->state != RECV_BARRIER) { /* failed by the source */
			recv_list_get(&r->barrier);
			recv_entry_unref(e);
			e = r->barrier.head;
		}
		if (!e || r->barrier_running || r->stopping || rcp_idtab_lowest(&r->entries) != e)
			return;
		recv_list_get(&r->barrier);
		r->barrier_running = true;
		refused = link_refuse(e);
		if (!refused)
			submit(e, special_work, special_done);
		recv_entry_unref(e); /* ends what was refused, which comes here again */
		r->barrier_running = !refused;
	} while (refused);
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
