/* The sender's jobs: windows, chunks, bundles, opening and checking files. */
#include "session/send.h"

#include "base/container.h"
#include "base/crc.h"
#include "link/seal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- staging buffers ---- */

static int buffer_ready(struct send_chunk *c)
{
	struct rcp_sender *s = c->s;
	struct rcp_link *link = s->link;

	if (!c->buf) {
		/* One page more: O_DIRECT reads whole pages. */
		int rc = posix_memalign((void **)&c->buf, 4096, s->opt.chunk_bytes + 4096);

		if (rc) {
			c->buf = NULL;
			return rcp_err_set(&c->err, RCP_E_IO, rc, "posix_memalign", NULL, NULL);
		}
	}
	if (!link->caps.needs_mem || c->buf_mem)
		return 0;
	c->link = link;
	return link->ops->reg(link, c->buf, s->opt.chunk_bytes, false, &c->err, &c->buf_mem);
}

/* The loop's thread, when no job runs: registrations must be gone before their link is freed. */
void send_memory_drop(struct rcp_sender *s)
{
	for (uint32_t i = 0; i < SEND_CHUNKS_MAX; i++) {
		struct send_chunk *c = &s->chunks[i];

		if (c->buf_mem)
			c->link->ops->unreg(c->link, c->buf_mem);
		c->buf_mem = NULL;
	}
}

/* ---- loading a chunk ---- */

void send_chunk_head(struct send_chunk *c)
{
	c->post.chunk = (struct rcp_chunk){.entry = c->entry ? c->entry->id : c->files[0]->id,
					   .flags = c->entry ? 0 : RCP_CHUNK_BUNDLE,
					   .offset = c->offset,
					   .length = c->length,
					   .crc = c->crc};
}

/* What stands in the staging buffer, in place. Loaded again it is sealed again, with another nonce. */
static int seal(struct send_chunk *c)
{
	struct rcp_seal *with = c->s->link->seal;

	if (!with)
		return 0;
	send_chunk_head(c);
	return rcp_seal_chunk(with, &c->post.chunk, c->buf, &c->err);
}

static int load_staged(struct send_chunk *c)
{
	struct send_entry *e = c->entry;

	if (buffer_ready(c))
		return -1;
	c->post.body = c->buf;
	c->post.mem = c->buf_mem;
	if (c->direct)
		return rcp_source_read_direct(e->source, c->offset, c->buf, c->length, &c->err, &c->crc);
	return rcp_source_read(e->source, c->offset, c->buf, c->length, &c->err, &c->crc);
}

/*
 * A page of the mapping is lost: the file was truncated, or the disk failed, and SIGBUS does not tell which. A
 * read does; and where it succeeds after all, its bytes are as good.
 */
static int load_lost(struct send_chunk *c)
{
	c->err = (struct rcp_err){0};
	c->post.fd = -1;
	return load_staged(c);
}

static int load_mapped(struct send_chunk *c)
{
	struct send_window *w = c->window;
	const uint8_t *data = w->map.data + (c->offset - w->offset);

	c->post.body = data;
	c->post.mem = w->mem;
	c->post.fd = rcp_source_fd(c->entry->source);
	c->post.fd_offset = c->offset;
	return rcp_guarded_crc(data, c->length, c->entry->open_path, &c->err, &c->crc) ? load_lost(c) : 0;
}

static void chunk_work(struct rcp_job *job)
{
	struct send_chunk *c = RCP_CONTAINER(job, struct send_chunk, job);
	int rc = c->window ? load_mapped(c) : load_staged(c);

	/* A re-send after the file's end was said must not bring in another version. */
	if (rc == 0 && c->recheck)
		rc = rcp_source_check(c->entry->source, &c->err);
	if (rc == 0)
		seal(c);
}

/* ---- bundles: U32 count, BUNDLED records, bytes ---- */

#define BUNDLED_GONE UINT32_MAX /* length of a file that could not be read: FAULT tells why */

static int read_small(struct send_entry *e, uint8_t *dst, uint32_t *crc)
{
	struct rcp_err err = {0};
	struct rcp_source *source;
	int rc = rcp_source_open(e->open_path, e->nofollow, &e->fid, &err, &source);

	if (!rc)
		rc = rcp_source_read(source, 0, dst, e->fid.size, &err, crc);
	if (!rc)
		rc = rcp_source_check(source, &err);
	rcp_source_close(&source);
	if (rc)
		e->err = rcp_err_keep(&err);
	return rc;
}

static void bundle_work(struct rcp_job *job)
{
	struct send_chunk *c = RCP_CONTAINER(job, struct send_chunk, job);
	uint32_t at = 4 + 12 * c->file_count;

	if (buffer_ready(c))
		return;
	rcp_put_u32(c->buf, c->file_count);
	for (uint32_t i = 0; i < c->file_count; i++) {
		struct send_entry *e = c->files[i];
		uint8_t *rec = c->buf + 4 + 12 * i;
		uint32_t crc = 0;
		bool ok = read_small(e, c->buf + at, &crc) == 0;

		rcp_put_u32(rec, e->id);
		rcp_put_u32(rec + 4, ok ? (uint32_t)e->fid.size : BUNDLED_GONE);
		rcp_put_u32(rec + 8, crc);
		if (ok)
			at += (uint32_t)e->fid.size;
	}
	c->length = at;
	c->post.body = c->buf;
	c->post.mem = c->buf_mem;
	c->crc = rcp_crc32(0, c->buf, at);
	seal(c);
}

static void bundle_done(struct send_chunk *c)
{
	for (uint32_t i = 0; i < c->file_count; i++) {
		struct send_entry *e = c->files[i];

		if (e->err && e->state != SEND_FAILED)
			send_entry_fail(c->s, e, e->err);
	}
}

/* Can't be staged for want of memory to register: fewer buffers will do while there is one. */
static bool chunk_retire(struct send_chunk *c)
{
	struct rcp_sender *s = c->s;

	if (c->err.sys_errno != ENOMEM || s->depth <= 1)
		return false;
	rcp_log(s->env.log, RCP_LOG_INFO, "one staging buffer less: %s", rcp_err_reason(&c->err));
	s->depth--;
	return true;
}

/* Unless it has ended or failed meanwhile, or is queued already: it can be in several chunks, by re-sends. */
static void queue_again(struct rcp_sender *s, struct send_entry *e)
{
	if (e->state != SEND_ENDED || e->dead)
		return;
	e->state = SEND_QUEUED;
	send_queue_put(&s->small, e);
}

static void chunk_failed(struct send_chunk *c)
{
	struct rcp_sender *s = c->s;
	bool retire = !c->buf_mem && chunk_retire(c);

	s->loading--;
	if (retire && c->entry) {
		struct send_again *a = calloc(1, sizeof(*a));

		if (a) {
			*a = (struct send_again){.entry = c->entry->id, .length = c->length, .offset = c->offset};
			*s->again_tail = a;
			s->again_tail = &a->next;
			s->again_count++;
		}
	} else if (c->entry) {
		rcp_err_object(&c->err, c->entry->open_path);
		send_entry_fail(s, c->entry, &c->err);
	} else {
		for (uint32_t i = 0; i < c->file_count; i++) {
			if (retire)
				queue_again(s, c->files[i]);
			else
				send_entry_fail(s, c->files[i], &c->err);
		}
	}
	send_chunk_free(c);
	if (retire)
		s->free_chunks = s->free_chunks->next; /* c itself: not used any more */
}

static void chunk_done(struct rcp_job *job)
{
	struct send_chunk *c = RCP_CONTAINER(job, struct send_chunk, job);
	struct rcp_sender *s = c->s;

	s->jobs--;
	if (!c->entry)
		bundle_done(c);
	if (rcp_err_is(&c->err))
		chunk_failed(c);
	else if (c->entry && c->entry->state == SEND_FAILED) {
		s->loading--;
		send_chunk_free(c);
	} else
		send_chunk_loaded(c);
	send_plan_pump(s);
}

static void chunk_submit(struct send_chunk *c)
{
	c->job = (struct rcp_job){.work = c->entry ? chunk_work : bundle_work, .done = chunk_done};
	send_job(c->s, RCP_POOL_START, &c->job);
}

void send_load_submit(struct send_chunk *c)
{
	struct send_window *w = c->window;

	if (w && w->state == WINDOW_MAPPING) {
		c->next = w->waiting;
		w->waiting = c;
		return;
	}
	if (w && w->state == WINDOW_FAILED) {
		c->window = NULL;
		send_window_unref(w);
	}
	chunk_submit(c);
}

/* ---- windows ---- */

static struct send_window *window_of(struct rcp_job *job)
{
	return RCP_CONTAINER(job, struct send_window, job);
}

/* Registering pins all pages: one that can't be read is EFAULT there. */
static bool pages_lost(const struct send_window *w)
{
	struct rcp_err err = {0};
	uint32_t crc;

	return rcp_guarded_crc(w->map.data, w->map.len, w->entry->open_path, &err, &crc) != 0;
}

static void window_map_work(struct rcp_job *job)
{
	struct send_window *w = window_of(job);

	if (rcp_window_map(w->entry->source, w->offset, w->len, &w->err, &w->map)) {
		w->lost = !w->err.sys_errno; /* truncated */
		return;
	}
	if (!w->link->caps.needs_mem)
		return;
	if (w->link->ops->reg(w->link, w->map.map, w->map.map_len, true, &w->err, &w->mem)) {
		w->lost = pages_lost(w);
		rcp_window_unmap(&w->map);
	}
}

static void mapping_needed(struct send_window *w)
{
	struct rcp_err err = {0};

	rcp_err_set(&err, w->err.code, w->err.sys_errno, w->err.call, w->entry->open_path,
		    "its mapping was refused: %s",
		    w->err.object[0] ? w->err.object : rcp_err_reason(&w->err));
	rcp_err_fix(&err, "this kernel or file system can't register file mappings: use "
			  "--source=auto or --source=staged");
	if (w->entry->state != SEND_FAILED)
		send_entry_fail(w->s, w->entry, &err);
}

/*
 * Registration refused: with --source=auto the bytes are staged from now on. Where it is this file that is the
 * matter, not the mapping, only this window's are, whatever the engine: reading them says what is wrong.
 */
static void window_refused(struct send_window *w)
{
	struct rcp_sender *s = w->s;

	if (w->lost)
		return;
	if (s->opt.engine == RCP_ENGINE_MAPPED) {
		mapping_needed(w);
		return;
	}
	if (!s->map_refused)
		rcp_log(s->env.log, RCP_LOG_INFO, "source: staged, since a mapping was refused: %s: %s",
			w->err.call, rcp_err_reason(&w->err));
	s->map_refused = true;
}

static void window_map_done(struct rcp_job *job)
{
	struct send_window *w = window_of(job);
	struct rcp_sender *s = w->s;
	struct send_chunk *c = w->waiting, *next;
	bool failed = rcp_err_is(&w->err);

	s->jobs--;
	w->waiting = NULL;
	w->state = failed ? WINDOW_FAILED : WINDOW_READY;
	if (failed)
		window_refused(w);
	w->refs++; /* the loop below may drop every other reference */
	for (; c; c = next) {
		next = c->next;
		c->next = NULL;
		if (c->entry->state == SEND_FAILED) {
			s->loading--;
			send_chunk_free(c);
		} else {
			send_load_submit(c);
		}
	}
	send_window_unref(w);
	send_plan_pump(s);
}

static void window_unmap_work(struct rcp_job *job)
{
	struct send_window *w = window_of(job);

	if (w->mem)
		w->link->ops->unreg(w->link, w->mem);
	rcp_window_unmap(&w->map);
}

static void window_unmap_done(struct rcp_job *job)
{
	struct send_window *w = window_of(job);
	struct rcp_sender *s = w->s;

	s->jobs--;
	for (struct send_window **p = &s->windows; *p; p = &(*p)->next) {
		if (*p == w) {
			*p = w->next;
			break;
		}
	}
	s->window_count--;
	send_entry_unref(w->entry);
	free(w);
	send_plan_pump(s);
}

void send_window_unref(struct send_window *w)
{
	if (--w->refs || w->state == WINDOW_CLOSING)
		return;
	w->state = WINDOW_CLOSING;
	w->job = (struct rcp_job){.work = window_unmap_work, .done = window_unmap_done};
	send_job(w->s, RCP_POOL_FINISH, &w->job);
}

static struct send_window *window_new(struct send_entry *e, uint64_t offset)
{
	struct rcp_sender *s = e->s;
	uint64_t cells = SEND_WINDOW_BYTES / s->opt.chunk_bytes;
	uint64_t len = (cells ? cells : 1) * s->opt.chunk_bytes;
	struct send_window *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->s = s;
	w->entry = e;
	e->busy++;
	w->link = s->link;
	w->offset = offset;
	w->len = len < e->fid.size - offset ? len : e->fid.size - offset;
	w->refs = 1; /* the entry's */
	w->next = s->windows;
	s->windows = w;
	s->window_count++;
	w->job = (struct rcp_job){.work = window_map_work, .done = window_map_done};
	send_job(s, RCP_POOL_START, &w->job);
	return w;
}

/*
 * A link that has the loop's thread or another one read the bytes from the mapping would die of SIGBUS
 * where the file gets shorter meanwhile. RDMA has them pinned, sendfile never touches them.
 */
static bool can_send_mapped(const struct rcp_sender *s)
{
	return s->link->caps.needs_mem || s->link->caps.sendfile;
}

static bool wants_window(const struct rcp_sender *s, const struct send_chunk *c)
{
	/* A mapping has the bytes as they are; sealed ones need a buffer. */
	if (!can_send_mapped(s) || s->link->seal)
		return false;
	if (s->opt.engine == RCP_ENGINE_MAPPED)
		return true;
	if (c->entry->fills_holes)
		return false;
	/* Less than a chunk gains nothing from a mapping of its own. */
	return s->opt.engine == RCP_ENGINE_AUTO && !s->map_refused &&
	       c->entry->fid.size >= s->opt.chunk_bytes;
}

/* Give c its part of a window, or the decision to stage it. False: no window is free now. */
bool send_window_for(struct send_chunk *c)
{
	struct rcp_sender *s = c->s;
	struct send_entry *e = c->entry;
	struct send_window *w = e->window;

	c->direct = s->opt.engine == RCP_ENGINE_DIRECT;
	if (!wants_window(s, c))
		return true;
	if (w && (c->offset < w->offset || c->offset + c->length > w->offset + w->len ||
		  w->state == WINDOW_FAILED)) {
		e->window = NULL;
		send_window_unref(w);
		w = NULL;
	}
	if (!w) {
		if (s->window_count >= SEND_WINDOWS_MAX)
			return false;
		w = window_new(e, c->offset);
		if (!w)
			return true;
		e->window = w;
	}
	w->refs++;
	c->window = w;
	return true;
}

/* ---- opening, extents, the last look ---- */

static struct send_entry *entry_of(struct rcp_job *job)
{
	return RCP_CONTAINER(job, struct send_entry, job);
}

static void extent_find(struct send_entry *e, struct rcp_err *err)
{
	if (!(e->flags & RCP_ENTRY_SPARSE))
		return;
	if (rcp_source_extent(e->source, e->cursor, err, &e->found_start, &e->found_end))
		return;
	if (e->found_start >= e->fid.size) {
		e->found_start = UINT64_MAX;
		e->found_end = 0;
	}
}

static void open_work(struct rcp_job *job)
{
	struct send_entry *e = entry_of(job);
	struct rcp_err err = {0};

	if (!rcp_source_open(e->open_path, e->nofollow, &e->fid, &err, &e->source)) {
		e->fills_holes = e->flags & RCP_ENTRY_SPARSE && rcp_source_fills_holes(e->source);
		extent_find(e, &err);
	}
	e->err = rcp_err_keep(&err);
}

static void extent_work(struct rcp_job *job)
{
	struct send_entry *e = entry_of(job);
	struct rcp_err err = {0};

	extent_find(e, &err);
	e->err = rcp_err_keep(&err);
}

static void open_done(struct rcp_job *job)
{
	struct send_entry *e = entry_of(job);
	struct rcp_sender *s = e->s;

	s->jobs--;
	e->extent_due = false;
	e->extent_start = e->found_start;
	e->extent_end = e->found_end;
	if (e->err && e->state != SEND_FAILED)
		send_entry_fail(s, e, e->err);
	else if (e->state == SEND_OPENING)
		e->state = SEND_OPEN;
	send_entry_opened(e);
	send_entry_unref(e);
}

static void check_work(struct rcp_job *job)
{
	struct send_entry *e = entry_of(job);
	struct rcp_err err = {0};

	rcp_source_check(e->source, &err);
	e->err = rcp_err_keep(&err);
}

static void check_done(struct rcp_job *job)
{
	struct send_entry *e = entry_of(job);
	struct rcp_sender *s = e->s;

	s->jobs--;
	if (e->err) {
		send_entry_fail(s, e, e->err);
	} else if (e->state == SEND_CHECKING) {
		struct rcp_msg_entry_end end = {.entry = e->id, .data_bytes = e->data_bytes};

		e->state = SEND_ENDED;
		s->env.send(s->env.arg, RCP_MSG_ENTRY_END, &end);
	}
	send_entry_unref(e);
	send_plan_pump(s);
}

static void entry_submit(struct send_entry *e, void (*work)(struct rcp_job *),
			 void (*done)(struct rcp_job *))
{
	e->busy++;
	e->job = (struct rcp_job){.work = work, .done = done};
	send_job(e->s, RCP_POOL_START, &e->job);
}

void send_open_submit(struct send_entry *e)
{
	entry_submit(e, open_work, open_done);
}

void send_extent_submit(struct send_entry *e)
{
	e->extent_due = true;
	entry_submit(e, extent_work, open_done);
}

void send_check_submit(struct send_entry *e)
{
	e->state = SEND_CHECKING;
	entry_submit(e, check_work, check_done);
}
