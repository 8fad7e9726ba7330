/* The sender's plan: which chunk is loaded next, and when a loaded one is posted. */
#include "session/send.h"

#include "base/clock.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void send_queue_put(struct send_queue *q, struct send_entry *e)
{
	e->next = NULL;
	if (q->tail)
		q->tail->next = e;
	else
		q->head = e;
	q->tail = e;
	q->count++;
	q->bytes += e->fid.size;
	e->busy++; /* a queue holds a reference; get hands it over */
}

struct send_entry *send_queue_get(struct send_queue *q)
{
	struct send_entry *e = q->head;

	if (!e)
		return NULL;
	q->head = e->next;
	if (!q->head)
		q->tail = NULL;
	e->next = NULL;
	q->count--;
	q->bytes -= e->fid.size;
	return e;
}

/* ---- chunk objects ---- */

static struct send_chunk *chunk_take(struct rcp_sender *s)
{
	struct send_chunk *c = s->free_chunks;

	if (!c)
		return NULL;
	s->free_chunks = c->next;
	c->next = NULL;
	c->entry = NULL;
	c->window = NULL;
	c->files = NULL;
	c->file_count = 0;
	c->recheck = c->direct = false;
	c->offset = 0;
	c->length = 0;
	c->crc = 0;
	c->err.code = RCP_OK;
	c->post.chunk = (struct rcp_chunk){0};
	c->post.fd = -1;
	c->post.mem = NULL;
	c->post.body = NULL;
	return c;
}

void send_chunk_free(struct send_chunk *c)
{
	struct rcp_sender *s = c->s;

	if (c->window)
		send_window_unref(c->window);
	c->window = NULL;
	if (c->entry)
		send_entry_unref(c->entry);
	c->entry = NULL;
	for (uint32_t i = 0; i < c->file_count; i++)
		send_entry_unref(c->files[i]);
	free(c->files);
	c->files = NULL;
	c->file_count = 0;
	c->next = s->free_chunks;
	s->free_chunks = c;
}

static void chunk_start(struct send_chunk *c, struct send_entry *e, uint64_t offset, uint32_t length)
{
	c->entry = e;
	e->busy++;
	c->offset = offset;
	c->length = length;
	c->s->loading++;
}

/* ---- re-sends ---- */

static bool plan_again(struct rcp_sender *s)
{
	struct send_again *a = s->again;
	struct send_entry *e = rcp_idtab_get(&s->entries, a->entry);

	if (e && (e->state == SEND_OPEN || e->state == SEND_CHECKING || e->state == SEND_ENDED)) {
		struct send_chunk *c = chunk_take(s);

		if (!c)
			return false;
		if (e->source) {
			chunk_start(c, e, a->offset, a->length);
			c->recheck = true;
		} else {
			c->files = calloc(1, sizeof(struct send_entry *));
			if (!c->files) {
				send_chunk_free(c);
				return false;
			}
			c->files[0] = e;
			c->file_count = 1;
			e->busy++;
			s->loading++;
		}
		send_load_submit(c);
	}
	s->again = a->next;
	if (!s->again)
		s->again_tail = &s->again;
	s->again_count--;
	free(a);
	return true;
}

/* ---- bundles ---- */

static uint64_t bundle_cost(const struct send_entry *e)
{
	return 12 + e->fid.size;
}

static bool bundle_full(const struct rcp_sender *s)
{
	return s->small.bytes + 12 * s->small.count >= s->opt.chunk_bytes - s->opt.bundle_bytes;
}

static bool plan_bundle(struct rcp_sender *s)
{
	uint64_t room = s->opt.chunk_bytes - 4;
	uint32_t max = (uint32_t)(room / 12), count = 0;
	struct send_chunk *c = chunk_take(s);

	if (!c)
		return false;
	if (max > s->small.count)
		max = (uint32_t)s->small.count;
	c->files = calloc(max, sizeof(struct send_entry *));
	if (!c->files) {
		send_chunk_free(c);
		return false;
	}
	while (count < max && s->small.head && bundle_cost(s->small.head) <= room) {
		struct send_entry *e = send_queue_get(&s->small);

		assert(e);
		if (e->dead) {
			send_entry_unref(e);
			continue;
		}
		room -= bundle_cost(e);
		e->state = SEND_ENDED;
		c->files[count++] = e;
	}
	c->file_count = count;
	if (!count) {
		send_chunk_free(c);
		return true;
	}
	s->loading++;
	send_load_submit(c);
	return true;
}

/* ---- big files ---- */

static void open_more(struct rcp_sender *s)
{
	struct send_entry *e;

	while (s->opening.count < 4 && s->open_files < SEND_OPEN_MAX &&
	       (e = send_queue_get(&s->big)) != NULL) {
		e->state = SEND_OPENING;
		s->open_files++;
		send_queue_put(&s->opening, e);
		send_entry_unref(e); /* the big queue's reference */
		send_open_submit(e);
	}
}

/* Skip what the sink has; false when it has all the rest. */
static bool skip_had(struct send_entry *e)
{
	while (e->have_at < e->have_count && e->cursor < e->fid.size) {
		const struct send_range *r = &e->have[e->have_at];

		if (e->cursor < r->start)
			break;
		if (e->cursor < r->end) {
			e->data_bytes += r->end - e->cursor;
			e->s->stats.bytes_moved += r->end - e->cursor;
			e->s->stats.resumed_bytes += r->end - e->cursor;
			e->cursor = r->end;
		}
		e->have_at++;
	}
	return e->cursor < e->fid.size;
}

/* Advance to the next cell with data. Returns 1: cursor stands on it; 0: the file is planned;
 * -1: the extent is being looked up. */
static int next_cell(struct send_entry *e)
{
	uint64_t cell = e->s->opt.chunk_bytes;

	for (;;) {
		if (!skip_had(e))
			return 0;
		if (!(e->flags & RCP_ENTRY_SPARSE) || e->cursor < e->extent_end) {
			if (e->flags & RCP_ENTRY_SPARSE && e->extent_start > e->cursor + cell - 1)
				e->cursor = e->extent_start / cell * cell;
			else
				return 1;
			continue;
		}
		if (e->extent_start >= e->fid.size)
			return 0;
		if (!e->extent_due)
			send_extent_submit(e);
		return -1;
	}
}

static void file_planned(struct rcp_sender *s, struct send_entry *e)
{
	e->planned = true;
	if (s->current == e)
		s->current = NULL;
	if (e->window)
		send_window_unref(e->window);
	e->window = NULL;
	send_entry_unref(e); /* the plan's reference; the last one ends the file */
}

void send_entry_opened(struct send_entry *e)
{
	send_plan_pump(e->s);
}

static bool pick_current(struct rcp_sender *s)
{
	while (!s->current && s->opening.head && s->opening.head->state != SEND_OPENING) {
		struct send_entry *e = send_queue_get(&s->opening);

		if (e->state == SEND_OPEN)
			s->current = e;
		else
			send_entry_unref(e);
	}
	open_more(s);
	return s->current != NULL;
}

static bool plan_file(struct rcp_sender *s)
{
	struct send_entry *e;

	while (pick_current(s)) {
		e = s->current;
		if (e->state != SEND_OPEN) { /* failed meanwhile */
			file_planned(s, e);
			continue;
		}
		int rc = next_cell(e);

		if (rc < 0)
			return false;
		if (rc > 0)
			break;
		file_planned(s, e);
	}
	if (!s->current)
		return false;
	e = s->current;
	struct send_chunk *c = chunk_take(s);

	if (!c)
		return false;
	uint64_t left = e->fid.size - e->cursor;
	uint32_t length = left < s->opt.chunk_bytes ? (uint32_t)left : s->opt.chunk_bytes;

	chunk_start(c, e, e->cursor, length);
	if (!send_window_for(c)) { /* no window free: later */
		s->loading--;
		send_chunk_free(c);
		return false;
	}
	e->cursor += length;
	e->data_bytes += length;
	send_load_submit(c);
	return true;
}

static bool want_bundle_now(const struct rcp_sender *s)
{
	/* A part-filled bundle goes only when nothing else keeps the link busy. */
	return s->small.head && s->loading + s->posted < 2 && !s->ready;
}

void send_plan_pump(struct rcp_sender *s)
{
	if (!s->link || s->losing || s->stopping)
		return;
	while (s->free_chunks) {
		bool did = false;

		if (s->again)
			did = plan_again(s);
		else if (s->small.head && bundle_full(s))
			did = plan_bundle(s);
		if (!did)
			did = plan_file(s);
		if (!did && want_bundle_now(s))
			did = plan_bundle(s);
		if (!did)
			break;
	}
}

/* ---- posting ---- */

static bool limit_waits(struct rcp_sender *s)
{
	return s->opt.limit_bytes_per_second && s->env.now_ns(s->env.arg) < s->budget_ns;
}

static void limit_charge(struct rcp_sender *s, uint32_t bytes)
{
	if (!s->opt.limit_bytes_per_second)
		return;
	uint64_t now = s->env.now_ns(s->env.arg);

	/* An idle second earns at most 100 ms of burst. */
	if (s->budget_ns + 100 * RCP_MS < now)
		s->budget_ns = now - 100 * RCP_MS;
	s->budget_ns += (uint64_t)((double)bytes * 1e9 / (double)s->opt.limit_bytes_per_second);
}

static int post_one(struct rcp_sender *s, struct send_chunk *c)
{
	/* What is sealed has its header: it goes as it is or not at all. */
	if (!(c->post.chunk.flags & RCP_CHUNK_SEALED)) {
		send_chunk_head(c);
		c->post.chunk.sequence = s->sequence;
	}
	c->post.owner = c;
	return rcp_link_post(s->link, &c->post);
}

void send_try_post(struct rcp_sender *s)
{
#if RCP_TEST_HOOKS
	/* Tests only: a client that is alive and sends nothing. */
	const char *stall = getenv("RCP_TEST_STALL");

	if (stall && !strcmp(stall, "data"))
		return;
#endif
	while (s->ready && s->link && !s->losing && !s->stopping) {
		struct send_chunk *c = s->ready;

		if (c->entry && c->entry->state == SEND_FAILED) {
			s->ready = c->next;
			if (!s->ready)
				s->ready_tail = &s->ready;
			send_chunk_free(c);
			continue;
		}
		/* No room now, or the link is going down: an event follows. */
		if (limit_waits(s) || post_one(s, c) != 0)
			break;
		limit_charge(s, c->length);
		s->sequence++;
		s->posted++;
		s->posted_total++;
		send_count(s, c, false);
		s->ready = c->next;
		if (!s->ready)
			s->ready_tail = &s->ready;
	}
}

void send_chunk_loaded(struct send_chunk *c)
{
	struct rcp_sender *s = c->s;

	s->loading--;
	c->next = NULL;
	*s->ready_tail = c;
	s->ready_tail = &c->next;
	send_try_post(s);
}
