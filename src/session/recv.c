/* The receiver: life, messages, results, ends. */
#include "session/recv.h"

#include "base/clock.h"
#include "session/wanted.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void recv_job(struct rcp_receiver *r, enum rcp_pool_class cls, struct rcp_job *job)
{
	r->jobs++;
	rcp_pool_submit(r->env.pool, cls, job);
}

void recv_list_put(struct recv_list *l, struct recv_entry *e)
{
	e->busy++; /* the list's reference; get hands it over */
	e->next = NULL;
	if (l->tail)
		l->tail->next = e;
	else
		l->head = e;
	l->tail = e;
}

struct recv_entry *recv_list_get(struct recv_list *l)
{
	struct recv_entry *e = l->head;

	if (e) {
		l->head = e->next;
		if (!l->head)
			l->tail = NULL;
		e->next = NULL;
	}
	return e;
}

void rcp_receiver_stop(struct rcp_receiver *r, const struct rcp_err *cause)
{
	if (r->stopping)
		return;
	r->stopping = true;
	r->over_said = false; /* after a lost link `over` comes once more */
	if (!r->cause.code)
		r->cause = *cause;
}

void recv_break(struct rcp_receiver *r, const char *what)
{
	struct rcp_err err = {0};

	rcp_err_set(&err, RCP_E_CONNECT, 0, "", NULL, "the peer broke the protocol: %s", what);
	rcp_receiver_stop(r, &err);
}

static void no_memory(struct rcp_receiver *r)
{
	struct rcp_err err = {0};

	rcp_err_set(&err, RCP_E_IO, ENOMEM, "malloc", NULL, NULL);
	rcp_receiver_stop(r, &err);
}

/* ---- answers and results: runs of numbers, sent once a turn ---- */

static void flush_answers(struct rcp_receiver *r)
{
	if (r->answer_run.count) {
		rcp_rec_encode(&r->answers, RCP_REC_ANSWER, &r->answer_run);
		r->answer_run.count = 0;
	}
	if (r->answers.bad) { /* the peer must not wait for what is not in it */
		no_memory(r);
		return;
	}
	if (!r->answers.len)
		return;
	struct rcp_msg_answers m = {.answers = rcp_span_of(r->answers.data, r->answers.len)};

	r->env.send(r->env.arg, RCP_MSG_ANSWERS, &m);
	r->answers.len = 0;
}

void recv_answer(struct recv_entry *e, struct rcp_span have)
{
	struct rcp_receiver *r = e->r;
	struct rcp_rec_answer *run = &r->answer_run;

	r->answered++;
	if (!have.len && run->count && run->first + run->count == e->id && run->count < 4096) {
		run->count++;
		return;
	}
	if (run->count)
		rcp_rec_encode(&r->answers, RCP_REC_ANSWER, run);
	*run = (struct rcp_rec_answer){.first = e->id, .count = 1};
	if (have.len) {
		run->have = have;
		rcp_rec_encode(&r->answers, RCP_REC_ANSWER, run);
		*run = (struct rcp_rec_answer){0};
	}
	if (r->answers.len > RCP_FRAME_MAX / 4)
		flush_answers(r);
}

static void flush_results(struct rcp_receiver *r)
{
	if (r->result_run.count) {
		rcp_rec_encode(&r->results, RCP_REC_RESULT, &r->result_run);
		r->result_run.count = 0;
	}
	if (r->results.bad) { /* the peer must not wait for what is not in it */
		no_memory(r);
		return;
	}
	if (!r->results.len)
		return;
	struct rcp_msg_results m = {.results = rcp_span_of(r->results.data, r->results.len)};

	r->env.send(r->env.arg, RCP_MSG_RESULTS, &m);
	r->results.len = 0;
}

static void result_with_error(struct rcp_receiver *r, uint32_t id, enum rcp_status status,
			      const struct rcp_err *err)
{
	struct rcp_rec_result rec = {.first = id, .count = 1, .status = (uint8_t)status,
				     .code = (uint8_t)err->code};

	RCP_ERR_TO_WIRE(&rec, err);
	rcp_rec_encode(&r->results, RCP_REC_RESULT, &rec);
}

static void result_plain(struct rcp_receiver *r, uint32_t id, enum rcp_status status)
{
	struct rcp_rec_result *run = &r->result_run;

	if (run->count && run->first + run->count == id && run->status == (uint8_t)status &&
	    run->count < 4096) {
		run->count++;
		return;
	}
	if (run->count)
		rcp_rec_encode(&r->results, RCP_REC_RESULT, run);
	*run = (struct rcp_rec_result){.first = id, .count = 1, .status = (uint8_t)status};
}

/* What the target could not hold, in words: "owner, xattrs and mode". */
static const char *lost_words(unsigned lost, char *buf, size_t size)
{
	static const struct {
		unsigned bit;
		const char *word;
	} all[] = {{RCP_LOST_OWNER, "owner"}, {RCP_LOST_XATTR, "xattrs"}, {RCP_LOST_ACL, "ACL"},
		   {RCP_LOST_TIMES, "times"}, {RCP_LOST_MODE, "mode"}};
	size_t len = 0;

	buf[0] = 0;
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		bool last = lost == all[i].bit;

		if (lost & all[i].bit)
			len += (size_t)snprintf(buf + len, size - len, "%s%s", !len ? "" : last ? " and " : ", ", all[i].word);
		lost &= ~all[i].bit;
	}
	return buf;
}

static void tell_lost(struct recv_entry *e)
{
	struct rcp_err err = {0};
	char words[64];

	rcp_err_set(&err, RCP_E_PARTIAL, 0, "", e->shown, "copied, but the target could not keep its %s",
		    lost_words(e->lost, words, sizeof(words)));
	recv_entry_err(e, &err);
}

static bool is_failure(enum rcp_status status)
{
	return status == RCP_STATUS_FAILED || status == RCP_STATUS_LEFT_OUT;
}

static void count_end(struct rcp_receiver *r, const struct recv_entry *e, enum rcp_status status)
{
	bool file = e->rec.type == RCP_ENTRY_FILE;

	if (status == RCP_STATUS_FAILED) {
		r->stats.failed++;
		r->stats.verdict_code = rcp_code_worse(r->stats.verdict_code, e->err->code);
	} else if (status == RCP_STATUS_LEFT_OUT) {
		r->stats.failed += e->rec.type != RCP_ENTRY_DIR_END;
	} else if (status == RCP_STATUS_SKIPPED) {
		r->stats.skipped++;
	} else if (file) {
		r->stats.files_done++;
		r->stats.bytes_done += e->fid.size;
	}
	if (file && (is_failure(status) || status == RCP_STATUS_SKIPPED))
		r->stats.bytes_seen -= e->fid.size;
}

static void tell_file(struct recv_entry *e, enum rcp_status status)
{
	struct rcp_receiver *r = e->r;

	/* Out of memory: a retry fetches it again. */
	if (r->env.done && status != RCP_STATUS_FAILED)
		rcp_keys_add(r->env.done, recv_entry_key(e));
	if (e->done && status != RCP_STATUS_FAILED)
		r->stats.bytes_moved += e->fid.size;
	if (!e->done || status == RCP_STATUS_FAILED)
		r->env.file(r->env.arg, e->shown, e->fid.size, status);
}

/* Of its own, not as another name of one. */
static bool has_inode(uint8_t type)
{
	return type != RCP_ENTRY_HARDLINK && type != RCP_ENTRY_DIR && type != RCP_ENTRY_DIR_END;
}

static struct rcp_key inode_key(const struct rcp_receiver *r, const struct recv_entry *e)
{
	return rcp_keys_key(r->failed, NULL, 0, e->rec.dev, e->rec.ino);
}

/* Of those that fail nobody knows which have other names, and a source can have as many fail as it likes. */
static void note_failed(struct rcp_receiver *r, const struct recv_entry *e)
{
	int fresh;

	if (r->failed_count >= RECV_FAILED_MAX)
		return;
	if (!r->failed)
		r->failed = rcp_keys_new(NULL);
	fresh = r->failed ? rcp_keys_add(r->failed, inode_key(r, e)) : -1;
	if (fresh < 0)
		no_memory(r);
	else
		r->failed_count += (unsigned)fresh;
}

bool recv_first_failed(const struct recv_entry *e)
{
	const struct rcp_receiver *r = e->r;

	return r->failed && (r->failed_count >= RECV_FAILED_MAX || rcp_keys_has(r->failed, inode_key(r, e)));
}

void recv_entry_end(struct recv_entry *e, enum rcp_status status)
{
	struct rcp_receiver *r = e->r;

	if (status == RCP_STATUS_WARNED)
		tell_lost(e);
	count_end(r, e, status);
	/* What the target has under that name is then no file to link another name to. */
	if ((is_failure(status) || e->left) && r->opt.flags & RCP_OPT_ARCHIVE && has_inode(e->rec.type))
		note_failed(r, e);
	if (status == RCP_STATUS_FAILED || status == RCP_STATUS_WARNED) {
		result_with_error(r, e->id, status, e->err);
		if (!r->stopping)
			r->env.fault(r->env.arg, e->err, status == RCP_STATUS_WARNED);
	} else {
		result_plain(r, e->id, status);
	}
	if (e->rec.type == RCP_ENTRY_FILE || rcp_entry_told(e->rec.type, r->opt.flags))
		tell_file(e, is_failure(status) ? RCP_STATUS_FAILED : status);
	if (r->results.len > RCP_FRAME_MAX / 4)
		flush_results(r);
	rcp_idtab_end(&r->entries, e->id);
	e->id = UINT32_MAX;
	e->state = RECV_ENDING;
	e->busy++;
	recv_entry_unref(e);
	recv_barrier_pump(r);
}

/* ---- messages ---- */

static int broken(struct rcp_err *err, const char *what)
{
	return rcp_err_set(err, RCP_E_CONNECT, 0, "", NULL, "the peer broke the protocol: %s", what);
}

static int on_entry_end(struct rcp_receiver *r, const struct rcp_msg_entry_end *m, struct rcp_err *err)
{
	struct recv_entry *e = rcp_idtab_get(&r->entries, m->entry);

	if (!e)
		return m->entry < r->entries.next ? 0 : broken(err, "an end of an entry that never was");
	if (e->state == RECV_ENDING)
		return 0;
	if (e->state != RECV_RECEIVING || e->end_seen || m->data_bytes > e->fid.size ||
	    (!(e->rec.flags & RCP_ENTRY_SPARSE) && m->data_bytes != e->fid.size))
		return broken(err, "an end that does not fit its entry");
	e->end_seen = true;
	e->data_bytes = m->data_bytes;
	recv_entry_progress(e);
	return 0;
}

static int on_fault(struct rcp_receiver *r, const struct rcp_msg_fault *m, struct rcp_err *err)
{
	struct rcp_err cause = {0};

	RCP_ERR_FROM_WIRE(m, m->code, &cause);
	if (m->entry == UINT32_MAX) {
		bool warning = m->severity == RCP_SEVERITY_WARNING;

		if (!warning) {
			r->stats.failed++;
			r->stats.verdict_code = rcp_code_worse(r->stats.verdict_code, cause.code);
		}
		r->env.fault(r->env.arg, &cause, warning);
		return 0;
	}
	struct recv_entry *e = rcp_idtab_get(&r->entries, m->entry);

	if (!e)
		return m->entry < r->entries.next ? 0 : broken(err, "a fault of an entry that never was");
	recv_entry_fail(e, &cause);
	return 0;
}

static int on_walk_end(struct rcp_receiver *r, const struct rcp_msg_walk_end *m, struct rcp_err *err)
{
	if (r->walk_over || m->entries != r->entries.next)
		return broken(err, "the number of entries differs");
	/* Success would be all that is told of a copy of nothing. */
	if (!m->entries && !r->stats.failed && r->env.wanted && !r->env.excludes && rcp_wanted_some(r->env.wanted))
		return broken(err, "it names nothing of what was asked for");
	r->walk_over = r->stats.walk_over = true;
	return 0;
}

static int on_posted(struct rcp_receiver *r, const struct rcp_msg_posted *m)
{
	if (m->generation != r->generation)
		return 0; /* of a link that was lost meanwhile */
	r->posted = true;
	r->posted_chunks = m->chunks;
	r->posted_answers = m->answers;
	r->posted_agains = m->agains;
	return 0;
}

static int on_bye(struct rcp_receiver *r, const struct rcp_msg_bye *m, struct rcp_err *err)
{
	if (!r->verdict)
		return broken(err, "BYE before the verdict");
	r->bye = true;
	r->stats.zero_copy_bytes = m->zero_copy_bytes;
	r->stats.staged_bytes = m->staged_bytes;
	r->stats.wait_source_ns = m->wait_source_ns;
	r->stats.wait_credit_ns = m->wait_credit_ns;
	if (r->link && !r->link_closing && !r->losing) {
		r->link_closing = true;
		rcp_link_close(r->link);
	}
	return 0;
}

/* What the source said of an entry before it knew that it had failed here crosses the verdict. */
static bool may_follow_verdict(const struct rcp_msg *msg)
{
	return msg->type == RCP_MSG_BYE || msg->type == RCP_MSG_POSTED || msg->type == RCP_MSG_ENTRY_END ||
	       (msg->type == RCP_MSG_FAULT && msg->fault_.entry != UINT32_MAX);
}

int rcp_receiver_message(struct rcp_receiver *r, const struct rcp_msg *msg, struct rcp_err *err)
{
	if (r->stopping)
		return 0;
	if (r->verdict && !may_follow_verdict(msg))
		return broken(err, "a message after the verdict");
	if (msg->type == RCP_MSG_ENTRIES)
		return recv_entries(r, &msg->entries_, err);
	if (msg->type == RCP_MSG_ENTRY_END)
		return on_entry_end(r, &msg->entry_end_, err);
	if (msg->type == RCP_MSG_FAULT)
		return on_fault(r, &msg->fault_, err);
	if (msg->type == RCP_MSG_WALK_END)
		return on_walk_end(r, &msg->walk_end_, err);
	if (msg->type == RCP_MSG_POSTED)
		return on_posted(r, &msg->posted_);
	if (msg->type == RCP_MSG_BYE)
		return on_bye(r, &msg->bye_, err);
	return broken(err, "a message that only the sink sends");
}

/* ---- link events ---- */

static void on_down(void *arg, const struct rcp_err *cause)
{
	struct rcp_receiver *r = arg;

	r->losing = true;
	/* Once BYE is in, either end may be the first to hang up. */
	if (!r->cause.code && !r->bye)
		r->cause = *cause;
}

const struct rcp_link_events rcp_receiver_events = {
	.chunk = recv_on_chunk,
	.down = on_down,
};

/* ---- the end ---- */

static void say_verdict(struct rcp_receiver *r)
{
	struct rcp_session_stats *st = &r->stats;

	if (r->verdict || !r->walk_over || r->entries.open || r->jobs)
		return;
	flush_results(r);
	r->verdict = st->verdict_known = true;
	r->verdict_ns = r->env.now_ns(r->env.arg);
	st->crc_known = r->crc_files == 1 && st->files_seen == 1;
	st->crc = r->last_crc;
	struct rcp_msg_verdict m = {.code = (uint8_t)st->verdict_code,
				    .files = st->files_done,
				    .bytes = st->bytes_done,
				    .failed = st->failed,
				    .skipped = st->skipped,
				    .resumed_bytes = st->resumed_bytes,
				    .resent_chunks = st->resent_chunks,
				    .wait_network_ns = st->wait_network_ns,
				    .wait_sink_ns = st->wait_sink_ns,
				    .crc = st->crc,
				    .crc_known = st->crc_known};

	r->env.send(r->env.arg, RCP_MSG_VERDICT, &m);
}

/* It has its verdict, lives, and says no more: that is its affair. */
static void miss_bye(struct rcp_receiver *r)
{
	if (!r->verdict || r->bye || !r->link || r->link_closing || r->losing ||
	    r->env.now_ns(r->env.arg) - r->verdict_ns < RECV_BYE_NS)
		return;
	r->link_closing = true;
	rcp_link_close(r->link);
}

/* The source hangs up with BYE, and its figures may come later than the link's end: another way. */
static bool awaits_bye(const struct rcp_receiver *r)
{
	return r->verdict && !r->bye && !r->stopping &&
	       r->env.now_ns(r->env.arg) - r->verdict_ns < RECV_BYE_NS;
}

static void turn_end(struct rcp_receiver *r)
{
	if (r->over_said || (!r->losing && !r->stopping))
		return;
	if (r->stopping)
		recv_entry_close_all(r);
	if (r->link && !r->losing) {
		if (!r->link_closing) {
			r->link_closing = true;
			rcp_link_close(r->link);
		}
		return;
	}
	if (r->jobs || awaits_bye(r))
		return;
	r->link = NULL;
	r->over_said = true;
	r->env.over(r->env.arg, &r->cause);
}

static void count_waits(struct rcp_receiver *r)
{
	uint64_t now = r->env.now_ns(r->env.arg);
	uint64_t spent = r->last_turn_ns ? now - r->last_turn_ns : 0;

	r->last_turn_ns = now;
	if (r->walk_over && !r->entries.open)
		return;
	if (r->slots_busy * 2 >= r->slots)
		r->stats.wait_sink_ns += spent;
	else if (!r->slots_busy)
		r->stats.wait_network_ns += spent;
}

void rcp_receiver_turn(struct rcp_receiver *r)
{
	if (r->over_said)
		return;
	if (r->attached && !r->losing && !r->stopping) {
		if (r->held)
			recv_release_held(r);
		count_waits(r);
		flush_answers(r);
		flush_results(r);
		recv_sweep(r);
		say_verdict(r);
		miss_bye(r);
	}
	turn_end(r);
}

/* ---- life ---- */

/* What was lost with a link is no mark against a chunk. */
static void forget_tries(struct rcp_receiver *r)
{
	for (uint32_t id = r->entries.base; id != r->entries.next; id++) {
		struct recv_entry *e = rcp_idtab_get(&r->entries, id);

		if (e)
			e->sweeps = e->try_count = 0;
	}
}

int rcp_receiver_attach(struct rcp_receiver *r, struct rcp_link *link, uint32_t generation,
			struct rcp_err *err)
{
	if (recv_chunks_attach(r, link, err))
		return (int)err->code;
	r->link = link;
	r->generation = generation;
	r->attached = true;
	r->losing = r->link_closing = r->over_said = false;
	r->cause = (struct rcp_err){0};
	r->came_ns = r->env.now_ns(r->env.arg);
	forget_tries(r);
	return 0;
}

int rcp_receiver_new(const struct rcp_session_env *env, const struct rcp_session_options *options,
		     const struct rcp_target *target, struct rcp_err *err,
		     struct rcp_receiver **out)
{
	struct rcp_receiver *r = calloc(1, sizeof(*r));

	*out = r;
	if (!r)
		return rcp_err_set(err, RCP_E_IO, ENOMEM, "calloc", NULL, NULL);
	r->env = *env;
	r->opt = *options;
	r->target = target;
	r->batch_tail = &r->batches;
	r->answers.max = r->results.max = RCP_FRAME_MAX - 64;
	return 0;
}

static void free_list(struct recv_list *l)
{
	for (struct recv_entry *e; (e = recv_list_get(l));) {
		if (e->id == UINT32_MAX)
			recv_entry_free(e);
	}
}

void rcp_receiver_free(struct rcp_receiver **rp)
{
	struct rcp_receiver *r = *rp;

	if (!r)
		return;
	*rp = NULL;
	free(r->lost_dir);
	free(r->open_dir);
	free_list(&r->to_open); /* entries that ended while they were listed */
	free_list(&r->barrier);
	for (uint32_t id = r->entries.base; id != r->entries.next; id++) {
		struct recv_entry *e = rcp_idtab_get(&r->entries, id);

		if (e) {
			e->keep = !(r->opt.flags & RCP_OPT_NO_RESUME);
			recv_entry_free(e);
		}
	}
	rcp_idtab_free(&r->entries);
	rcp_wr_free(&r->answers);
	rcp_wr_free(&r->results);
	rcp_keys_free(&r->failed);
	rcp_keys_free(&r->claimed);
	recv_chunks_free(r);
	free(r);
}

const struct rcp_session_stats *rcp_receiver_stats(struct rcp_receiver *r)
{
	struct recv_entry *e = NULL;

	for (uint32_t id = r->entries.base; id != r->entries.next && !e; id++) {
		e = rcp_idtab_get(&r->entries, id);
		if (e && (e->state != RECV_RECEIVING || id - r->entries.base > 64))
			e = NULL;
	}
	r->stats.current = e ? e->shown : NULL;
	if (e) {
		r->stats.current_bytes = rcp_sink_bytes(e->sink);
		r->stats.current_size = e->fid.size;
	}
	return &r->stats;
}

bool rcp_receiver_works(const struct rcp_receiver *r)
{
	return r->jobs || r->held_count;
}

uint64_t rcp_receiver_moved(const struct rcp_receiver *r)
{
	return r->moves + (r->link ? r->link->moved : 0);
}
