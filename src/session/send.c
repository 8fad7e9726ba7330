/* The sender: life, messages, link events, ends. */
#include "session/send.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void send_job(struct rcp_sender *s, enum rcp_pool_class cls, struct rcp_job *job)
{
	s->jobs++;
	rcp_pool_submit(s->env.pool, cls, job);
}

void send_fault(struct rcp_sender *s, uint32_t id, const struct rcp_err *err, enum rcp_severity sev)
{
	struct rcp_msg_fault msg = {.entry = id, .severity = (uint8_t)sev, .code = (uint8_t)err->code};

	RCP_ERR_TO_WIRE(&msg, err);
	s->env.send(s->env.arg, RCP_MSG_FAULT, &msg);
}

/* The sink's RESULT for it will come back and is what counts; until then nothing more is sent. */
void send_entry_fail(struct rcp_sender *s, struct send_entry *e, const struct rcp_err *err)
{
	e->state = SEND_FAILED;
	if (!e->dead)
		send_fault(s, e->id, err, RCP_SEVERITY_ERROR);
}

void send_entry_free(struct send_entry *e)
{
	if (e->source) {
		rcp_source_close(&e->source);
		e->s->open_files--;
	}
	rcp_err_drop(&e->err);
	free(e->have);
	e->s->have_bytes -= e->have_bytes;
	free(e);
}

void send_entry_unref(struct send_entry *e)
{
	if (--e->busy)
		return;
	if (e->dead)
		send_entry_free(e);
	else if (e->planned && e->state == SEND_OPEN && !e->s->stopping)
		send_check_submit(e);
}

/* ---- messages ---- */

static int broken(struct rcp_err *err, const char *what)
{
	return rcp_err_set(err, RCP_E_CONNECT, 0, "", NULL, "the peer broke the protocol: %s", what);
}

/* Cells of the file, in order: from an end that is not on the grid all chunks behind it would be off it. */
static bool range_fits(const struct send_entry *e, const struct rcp_rec_range *r, uint64_t from)
{
	uint64_t cell = e->s->opt.chunk_bytes, size = e->fid.size;

	if (r->offset < from || r->offset % cell || r->length == 0 || r->offset > size || r->length > size - r->offset)
		return false;
	return r->length % cell == 0 || r->offset + r->length == size;
}

static int take_have(struct send_entry *e, struct rcp_span blob, struct rcp_err *err)
{
	struct rcp_rd r = rcp_rd_of(blob.data, blob.len);
	struct rcp_rec_range range;
	uint64_t at = 0;
	int rc;

	if (!blob.len)
		return 0;
	e->have_bytes = (blob.len / 16 + 1) * sizeof(*e->have);
	e->s->have_bytes += e->have_bytes;
	if (e->s->have_bytes > SEND_HAVE_BYTES)
		return broken(err, "more ranges of partial files than it has files open");
	e->have = calloc(1, e->have_bytes);
	if (!e->have)
		return rcp_err_set(err, RCP_E_IO, ENOMEM, "calloc", e->open_path, NULL);
	while ((rc = rcp_rec_next(&r, RCP_REC_RANGE, &range)) > 0) {
		if (!range_fits(e, &range, at))
			return broken(err, "ranges of a partial file that can't be");
		at = range.offset + range.length;
		e->have[e->have_count++] = (struct send_range){range.offset, at};
	}
	return rc < 0 ? broken(err, "malformed ranges") : 0;
}

static int take_answer(struct rcp_sender *s, const struct rcp_rec_answer *a, struct rcp_err *err)
{
	if (!a->count || a->count > SEND_ENTRIES_MAX || (a->have.len && a->count != 1))
		return broken(err, "an answer for too many entries");
	for (uint32_t i = 0; i < a->count; i++) {
		struct send_entry *e = rcp_idtab_get(&s->entries, a->first + i);

		if (!e || e->state != SEND_OFFERED || e->type != RCP_ENTRY_FILE)
			return broken(err, "an answer for an entry that was not offered");
		if (take_have(e, a->have, err))
			return (int)err->code;
		e->state = SEND_QUEUED;
		s->answered++;
		send_queue_put(e->fid.size <= s->opt.bundle_bytes ? &s->small : &s->big, e);
	}
	return 0;
}

static int on_answers(struct rcp_sender *s, const struct rcp_msg_answers *m, struct rcp_err *err)
{
	struct rcp_rd r = rcp_rd_of(m->answers.data, m->answers.len);
	struct rcp_rec_answer a;
	int rc;

	if (!m->answers.len)
		return broken(err, "no answers");
	while ((rc = rcp_rec_next(&r, RCP_REC_ANSWER, &a)) > 0) {
		if (take_answer(s, &a, err))
			return (int)err->code;
	}
	if (rc < 0)
		return broken(err, "malformed answers");
	send_plan_pump(s);
	return 0;
}

static struct rcp_key key_of(const struct send_entry *e)
{
	return rcp_keys_key(e->s->env.done, e->name, strlen(e->name), e->fid.size,
			    (uint64_t)e->fid.mtime_s * 1000000000 + e->fid.mtime_ns);
}

bool send_entry_was_done(const struct send_entry *e)
{
	return e->s->env.done && e->type == RCP_ENTRY_FILE && rcp_keys_has(e->s->env.done, key_of(e));
}

static void tell_file(struct rcp_sender *s, const struct send_entry *e, enum rcp_status status)
{
	/* Out of memory: a retry sends it again. */
	if (s->env.done && status != RCP_STATUS_FAILED)
		rcp_keys_add(s->env.done, key_of(e));
	if (e->done_before && status != RCP_STATUS_FAILED)
		s->stats.bytes_moved += e->fid.size;
	if (!e->done_before || status == RCP_STATUS_FAILED)
		s->env.file(s->env.arg, e->name, e->fid.size, status);
}

static void entry_result(struct rcp_sender *s, struct send_entry *e, const struct rcp_rec_result *r)
{
	bool left_out = r->status == RCP_STATUS_LEFT_OUT, failed = left_out || r->status == RCP_STATUS_FAILED;

	if ((failed && !left_out) || r->status == RCP_STATUS_WARNED) {
		struct rcp_err err = {0};

		RCP_ERR_FROM_WIRE(r, r->code, &err);
		if (failed)
			s->failed_code = rcp_code_worse(s->failed_code, err.code <= RCP_E_LINK ? err.code : RCP_E_CONNECT);
		s->env.fault(s->env.arg, &err, !failed);
	}
	if (e->type == RCP_ENTRY_FILE) {
		tell_file(s, e, failed ? RCP_STATUS_FAILED : (enum rcp_status)r->status);
		s->stats.files_done += !failed && r->status != RCP_STATUS_SKIPPED;
		s->stats.bytes_done += failed || r->status == RCP_STATUS_SKIPPED ? 0 : e->fid.size;
		if (r->status == RCP_STATUS_SKIPPED || failed)
			s->stats.bytes_seen -= e->fid.size; /* not to be waited for */
	} else if (rcp_entry_told((uint8_t)e->type, s->opt.flags)) {
		tell_file(s, e, failed ? RCP_STATUS_FAILED : (enum rcp_status)r->status);
	}
	s->stats.failed += failed && !(left_out && e->type == RCP_ENTRY_DIR_END);
	s->stats.skipped += r->status == RCP_STATUS_SKIPPED;
	if (failed)
		e->state = SEND_FAILED;
	s->told_bytes -= e->told;
	e->dead = true;
	rcp_idtab_end(&s->entries, e->id);
	e->busy++;
	send_entry_unref(e);
}

static int on_results(struct rcp_sender *s, const struct rcp_msg_results *m, struct rcp_err *err)
{
	struct rcp_rd rd = rcp_rd_of(m->results.data, m->results.len);
	struct rcp_rec_result r;
	int rc;

	if (!m->results.len)
		return broken(err, "no results");
	while ((rc = rcp_rec_next(&rd, RCP_REC_RESULT, &r)) > 0) {
		if (!r.count || r.count > SEND_ENTRIES_MAX || r.status > RCP_STATUS_LEFT_OUT)
			return broken(err, "a malformed result");
		if (r.status == RCP_STATUS_LEFT_OUT && s->failed_code == RCP_OK)
			return broken(err, "an entry left out, and no directory failed");
		for (uint32_t i = 0; i < r.count; i++) {
			struct send_entry *e = rcp_idtab_get(&s->entries, r.first + i);

			if (!e)
				return broken(err, "a result for an entry that is not open");
			entry_result(s, e, &r);
		}
	}
	if (rc < 0)
		return broken(err, "malformed results");
	send_walk_pump(s);
	send_plan_pump(s);
	return 0;
}

static int on_again(struct rcp_sender *s, const struct rcp_msg_again *m, struct rcp_err *err)
{
	struct send_entry *e = rcp_idtab_get(&s->entries, m->entry);

	if (!e) {
		s->agains++;
		return m->entry < s->entries.next ? 0 : broken(err, "a re-send of an entry that never was");
	}
	uint64_t cell = s->opt.chunk_bytes, size = e->fid.size;
	bool small = size <= s->opt.bundle_bytes;
	uint64_t want = m->offset < size && size - m->offset < cell ? size - m->offset : cell;

	if (e->type != RCP_ENTRY_FILE || s->again_count >= SEND_AGAIN_MAX ||
	    (small ? m->offset || m->length != size
		   : m->offset >= size || m->offset % cell || m->length != want))
		return broken(err, "a re-send that can't be");
	/* Each cell is asked for a few times, or it would never end. */
	if (e->agains++ >= SEND_AGAINS_EACH * (size / cell + 1))
		return broken(err, "a re-send once too often");
	struct send_again *a = calloc(1, sizeof(*a));

	if (!a)
		return rcp_err_set(err, RCP_E_IO, ENOMEM, "calloc", e->open_path, NULL);
	*a = (struct send_again){.entry = m->entry, .length = m->length, .offset = m->offset};
	*s->again_tail = a;
	s->again_tail = &a->next;
	s->again_count++;
	s->agains++;
	s->stats.resent_chunks++;
	rcp_log(s->env.log, RCP_LOG_INFO, "re-send %u of entry %u, offset %llu", m->attempt, m->entry,
		(unsigned long long)m->offset);
	send_plan_pump(s);
	return 0;
}

static void on_verdict(struct rcp_sender *s, const struct rcp_msg_verdict *m)
{
	struct rcp_msg_bye bye = {.zero_copy_bytes = s->stats.zero_copy_bytes,
				  .staged_bytes = s->stats.staged_bytes,
				  .wait_source_ns = s->stats.wait_source_ns,
				  .wait_credit_ns = s->stats.wait_credit_ns};

	s->verdict = s->stats.verdict_known = true;
	/* A verdict that knows nothing of a file's failure does not undo it. */
	s->stats.verdict_code = rcp_code_worse(m->code <= RCP_E_LINK ? (enum rcp_code)m->code : RCP_E_CONNECT, s->failed_code);
	s->stats.resumed_bytes = m->resumed_bytes;
	s->stats.resent_chunks = m->resent_chunks;
	s->stats.wait_network_ns = m->wait_network_ns;
	s->stats.wait_sink_ns = m->wait_sink_ns;
	s->stats.crc_known = m->crc_known == 1;
	s->stats.crc = m->crc;
	s->env.send(s->env.arg, RCP_MSG_BYE, &bye);
	if (s->link && !s->link_closing && !s->losing) {
		s->link_closing = true;
		rcp_link_close(s->link);
	}
	s->over_said = false; /* where the link was lost before this came, and said to be */
}

int rcp_sender_message(struct rcp_sender *s, const struct rcp_msg *msg, struct rcp_err *err)
{
	if (s->stopping)
		return 0;
	if (s->verdict)
		return broken(err, "a message after the verdict");
	if (msg->type == RCP_MSG_ANSWERS)
		return on_answers(s, &msg->answers_, err);
	if (msg->type == RCP_MSG_RESULTS)
		return on_results(s, &msg->results_, err);
	if (msg->type == RCP_MSG_AGAIN)
		return on_again(s, &msg->again_, err);
	if (msg->type != RCP_MSG_VERDICT)
		return broken(err, "a message that only the source sends");
	if (!s->stats.walk_over || s->entries.open)
		return broken(err, "a verdict before every entry had its result");
	on_verdict(s, &msg->verdict_);
	return 0;
}

/* ---- link events ---- */

/* When it is posted, since the verdict may be here before its `sent` is; taken back where it was lost. */
void send_count(struct rcp_sender *s, const struct send_chunk *c, bool lost)
{
	uint64_t *kind = c->window ? &s->stats.zero_copy_bytes : &s->stats.staged_bytes;
	uint64_t sealed = c->post.chunk.flags & RCP_CHUNK_SEALED ? c->length : 0;

	*kind = lost ? *kind - c->length : *kind + c->length;
	s->stats.sealed_bytes = lost ? s->stats.sealed_bytes - sealed : s->stats.sealed_bytes + sealed;
}

static void on_sent(void *arg, struct rcp_post *post, bool ok)
{
	struct rcp_sender *s = arg;
	struct send_chunk *c = (struct send_chunk *)(void *)post;

	s->posted--;
	s->moves++;
	if (ok)
		s->stats.bytes_moved += c->entry ? c->length : c->length - 4 - 12 * (uint64_t)c->file_count;
	else
		send_count(s, c, true);
	send_chunk_free(c);
	send_plan_pump(s);
}

static void on_room(void *arg)
{
	send_try_post(arg);
}

static void on_down(void *arg, const struct rcp_err *cause)
{
	struct rcp_sender *s = arg;

	/* A second link, lost before the sink told where its ring is: that needs an `over` of its own. */
	if (s->over_said && !s->stopping && !s->verdict) {
		s->over_said = false;
		s->cause = (struct rcp_err){0};
	}
	s->losing = true;
	/* After the verdict either end may be the first to hang up. */
	if (!s->cause.code && !s->verdict)
		s->cause = *cause;
}

const struct rcp_link_events rcp_sender_events = {
	.sent = on_sent,
	.room = on_room,
	.down = on_down,
};

/* The link is gone: chunks that waited for it are given up; the sink asks again for what it lacks. */
static void drop_ready(struct rcp_sender *s)
{
	struct send_chunk *c = s->ready;

	s->ready = NULL;
	s->ready_tail = &s->ready;
	while (c) {
		struct send_chunk *next = c->next;

		send_chunk_free(c);
		c = next;
	}
}

static void drop_window(struct send_entry *e)
{
	if (e && e->window) {
		send_window_unref(e->window);
		e->window = NULL;
	}
}

static void drop_windows(struct rcp_sender *s)
{
	drop_window(s->current); /* which may have ended at the sink already */
	for (uint32_t id = s->entries.base; id != s->entries.next; id++)
		drop_window(rcp_idtab_get(&s->entries, id));
}

/* ---- the end ---- */

static void say_over(struct rcp_sender *s)
{
	s->over_said = true;
	s->env.over(s->env.arg, &s->cause);
}

/* Returns true where nothing of this session runs any more and nothing is registered. */
static bool quiesce(struct rcp_sender *s)
{
	drop_ready(s);
	drop_windows(s);
	if (s->jobs || s->posted)
		return false;
	send_memory_drop(s);
	s->link = NULL;
	return true;
}

static void turn_end(struct rcp_sender *s)
{
	if (s->over_said)
		return;
	if (s->link && !s->losing) {
		if (s->stopping && !s->link_closing) {
			s->link_closing = true;
			rcp_link_close(s->link);
		}
		return;
	}
	if (!s->losing && !s->stopping)
		return;
	if (quiesce(s))
		say_over(s);
}

void rcp_sender_stop(struct rcp_sender *s, const struct rcp_err *cause)
{
	if (s->stopping)
		return;
	s->stopping = true;
	s->over_said = false; /* after a lost link `over` comes once more */
	if (!s->cause.code)
		s->cause = *cause;
}

/* ---- turns ---- */

static void count_waits(struct rcp_sender *s)
{
	uint64_t now = s->env.now_ns(s->env.arg);
	uint64_t spent = s->last_turn_ns ? now - s->last_turn_ns : 0;

	s->last_turn_ns = now;
	if (s->ready)
		s->stats.wait_credit_ns += spent;
	else if (!s->posted && s->loading)
		s->stats.wait_source_ns += spent;
}

/* All is posted as far as this end knows: the sink compares with what came. */
static void say_posted(struct rcp_sender *s)
{
	if (!s->stats.walk_over || !s->entries.open || s->loading || s->ready || s->posted || s->again ||
	    s->small.head || s->big.head || s->opening.head || s->current || s->jobs ||
	    s->posted_said == s->posted_total + s->answered + s->agains + 1)
		return;
	struct rcp_msg_posted msg = {.generation = s->generation,
				     .chunks = s->posted_total,
				     .answers = s->answered,
				     .agains = s->agains};

	/* All only grow, so the sum tells whether one did. */
	s->posted_said = s->posted_total + s->answered + s->agains + 1;
	s->env.send(s->env.arg, RCP_MSG_POSTED, &msg);
}

void rcp_sender_turn(struct rcp_sender *s)
{
	if (s->over_said)
		return;
	count_waits(s);
	if (s->attached && !s->stopping && !s->losing) {
		send_try_post(s);
		send_plan_pump(s);
		say_posted(s);
	}
	turn_end(s);
}

/* ---- life ---- */

/* What was lost with a link is no mark against the sink. */
static void forget_agains(struct rcp_sender *s)
{
	for (uint32_t id = s->entries.base; id != s->entries.next; id++) {
		struct send_entry *e = rcp_idtab_get(&s->entries, id);

		if (e)
			e->agains = 0;
	}
}

void rcp_sender_attach(struct rcp_sender *s, struct rcp_link *link, uint32_t generation)
{
	s->link = link;
	s->attached = true;
	s->losing = s->link_closing = s->over_said = false;
	s->cause = (struct rcp_err){0};
	s->map_refused = false;
	s->generation = generation;
	s->posted_total = s->posted_said = 0;
	forget_agains(s);
	if (link->seal && s->opt.engine == RCP_ENGINE_MAPPED)
		rcp_log(s->env.log, RCP_LOG_INFO, "source: staged, since what is sealed can't be sent from a mapping");
	send_walk_pump(s);
	send_plan_pump(s);
}

static int make_chunks(struct rcp_sender *s, struct rcp_err *err)
{
	s->chunks = calloc(SEND_CHUNKS_MAX, sizeof(*s->chunks));
	if (!s->chunks)
		return rcp_err_set(err, RCP_E_IO, ENOMEM, "calloc", NULL, NULL);
	s->depth = SEND_CHUNKS_MAX;
	if (s->opt.stage_bytes && s->opt.stage_bytes / s->opt.chunk_bytes < s->depth)
		s->depth = s->opt.stage_bytes < s->opt.chunk_bytes ? 1 : (unsigned)(s->opt.stage_bytes / s->opt.chunk_bytes);
	for (uint32_t i = s->depth; i-- > 0;) {
		s->chunks[i].s = s;
		s->chunks[i].next = s->free_chunks;
		s->free_chunks = &s->chunks[i];
	}
	return 0;
}

int rcp_sender_new(const struct rcp_session_env *env, const struct rcp_session_options *options,
		   struct rcp_walk *walk, struct rcp_err *err, struct rcp_sender **out)
{
	struct rcp_sender *s = calloc(1, sizeof(*s));

	*out = NULL;
	if (!s) {
		rcp_walk_free(&walk);
		return rcp_err_set(err, RCP_E_IO, ENOMEM, "calloc", NULL, NULL);
	}
	s->env = *env;
	s->opt = *options;
	s->batch.walk = walk;
	s->ready_tail = &s->ready;
	s->again_tail = &s->again;
	if (make_chunks(s, err)) {
		rcp_sender_free(&s);
		return (int)err->code;
	}
	*out = s;
	return 0;
}

static void free_again(struct rcp_sender *s)
{
	while (s->again) {
		struct send_again *a = s->again;

		s->again = a->next;
		free(a);
	}
}

/* Entries that ended at the sink are in queues only, the others in the table too. */
static void free_queue(struct send_queue *q)
{
	for (struct send_entry *e; (e = send_queue_get(q));) {
		if (e->dead)
			send_entry_free(e);
	}
}

/* Only after `over`: no job runs, so references no longer matter. */
void rcp_sender_free(struct rcp_sender **sp)
{
	struct rcp_sender *s = *sp;

	if (!s)
		return;
	*sp = NULL;
	free_queue(&s->small);
	free_queue(&s->big);
	free_queue(&s->opening);
	if (s->current && s->current->dead)
		send_entry_free(s->current);
	for (uint32_t id = s->entries.base; id != s->entries.next; id++) {
		struct send_entry *e = rcp_idtab_get(&s->entries, id);

		if (e)
			send_entry_free(e);
	}
	rcp_idtab_free(&s->entries);
	free_again(s);
	for (uint32_t i = 0; s->chunks && i < SEND_CHUNKS_MAX; i++)
		free(s->chunks[i].buf);
	free(s->chunks);
	rcp_wr_free(&s->batch.blob);
	rcp_walk_free(&s->batch.walk);
	free(s);
}

const struct rcp_session_stats *rcp_sender_stats(struct rcp_sender *s)
{
	/* All of it may be on its way, and not there yet. */
	const struct send_entry *e = s->current ? s->current : rcp_idtab_lowest(&s->entries);

	s->stats.current = NULL;
	if (e && e->type == RCP_ENTRY_FILE) {
		s->stats.current = e->name;
		s->stats.current_bytes = e->cursor;
		s->stats.current_size = e->fid.size;
	}
	return &s->stats;
}

bool rcp_sender_works(const struct rcp_sender *s)
{
	return s->jobs || (s->ready && s->opt.limit_bytes_per_second && s->env.now_ns(s->env.arg) < s->budget_ns);
}

uint64_t rcp_sender_moved(const struct rcp_sender *s)
{
	return s->moves + s->sequence + (s->link ? s->link->moved : 0);
}
