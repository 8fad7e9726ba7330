/* The sender's walk: batches of entries, read by a worker, named to the sink in one message each. */
#include "session/send.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct send_entry *entry_of(const struct rcp_walk_item *item)
{
	size_t open_len = strlen(item->open_path) + 1;
	size_t name_len = item->entry.path.len + 1;
	struct send_entry *e = malloc(sizeof(*e) + open_len + name_len);

	if (!e)
		return NULL;
	*e = (struct send_entry){0};
	e->open_path = (char *)(e + 1);
	e->name = e->open_path + open_len;
	memcpy(e->open_path, item->open_path, open_len);
	memcpy(e->name, item->entry.path.data, name_len - 1);
	e->name[name_len - 1] = 0;
	e->type = item->entry.type;
	e->flags = item->entry.flags;
	e->nofollow = item->nofollow;
	e->fid = (struct rcp_file_id){.dev = item->entry.dev,
				      .ino = item->entry.ino,
				      .size = item->entry.size,
				      .mtime_s = (int64_t)item->entry.mtime_s,
				      .mtime_ns = item->entry.mtime_ns};
	return e;
}

static void batch_fault(struct walk_batch *b, const struct rcp_err *err, enum rcp_severity severity)
{
	b->faults[b->fault_count++] = (struct walk_fault){.err = *err, .severity = severity};
}

/*
 * No memory for an entry: the end of the run, not of this entry alone. What is below a directory that was not named has no
 * place at the sink, nor has a hard link to such a file.
 */
static bool batch_lost(struct walk_batch *b, const struct rcp_walk_item *item)
{
	rcp_err_set(&b->lost, RCP_E_IO, ENOMEM, "malloc", item->open_path, NULL);
	return false;
}

static bool batch_add(struct walk_batch *b, struct rcp_walk_item *item)
{
	struct send_entry *e = entry_of(item);
	size_t before = b->blob.len;

	if (!e)
		return batch_lost(b, item);
	e->s = b->s;
	if (send_entry_was_done(e)) {
		e->done_before = true;
		item->entry.flags |= RCP_ENTRY_DONE;
	}
	rcp_rec_encode(&b->blob, RCP_REC_ENTRY, &item->entry);
	e->told = (uint32_t)(b->blob.len - before);
	if (b->blob.bad) { /* half of a record would spoil the others */
		b->blob.bad = false;
		b->blob.len = before;
		send_entry_free(e);
		return batch_lost(b, item);
	}
	if (b->tail)
		b->tail->next = e;
	else
		b->head = e;
	b->tail = e;
	b->count++;
	return true;
}

static void walk_work(struct rcp_job *job)
{
	struct walk_batch *b = (struct walk_batch *)(void *)job;

	while (b->count < SEND_BATCH_ENTRIES && b->blob.len < SEND_BATCH_BYTES &&
	       b->fault_count < WALK_FAULTS - 1) {
		struct rcp_walk_item item;
		struct rcp_err err = {0};
		enum rcp_severity severity = RCP_SEVERITY_ERROR;
		int rc = rcp_walk_next(b->walk, &item, &err, &severity);

		if (rc == 0) {
			b->over = true;
			break;
		}
		if (rc < 0)
			batch_fault(b, &err, severity);
		else if (!batch_add(b, &item))
			break;
	}
}

static void batch_reset(struct walk_batch *b)
{
	b->blob.len = 0;
	b->blob.bad = false;
	b->head = b->tail = NULL;
	b->count = b->fault_count = 0;
}

/* No memory for the table: the entry can't be followed, and the numbers of all after it would be others. */
static void lose_entry(struct rcp_sender *s, struct send_entry *e)
{
	struct rcp_err err = {0};

	rcp_err_set(&err, RCP_E_IO, ENOMEM, "malloc", e->open_path, NULL);
	rcp_sender_stop(s, &err);
	send_entry_free(e);
}

static void batch_send(struct rcp_sender *s, struct walk_batch *b)
{
	struct rcp_msg_entries msg = {.first = s->entries.next,
				      .count = b->count,
				      .entries = rcp_span_of(b->blob.data, b->blob.len)};

	for (struct send_entry *e = b->head, *next; e; e = next) {
		next = e->next;
		e->next = NULL;
		e->id = s->entries.next;
		if (s->stopping || !rcp_idtab_add(&s->entries, e)) {
			lose_entry(s, e);
			continue;
		}
		s->told_bytes += e->told;
		s->stats.entries_seen++;
		if (e->type == RCP_ENTRY_FILE) {
			s->stats.files_seen++;
			s->stats.bytes_seen += e->fid.size;
		}
	}
	if (msg.count && !s->stopping)
		s->env.send(s->env.arg, RCP_MSG_ENTRIES, &msg);
}

static void walk_done(struct rcp_job *job)
{
	struct walk_batch *b = (struct walk_batch *)(void *)job;
	struct rcp_sender *s = b->s;

	s->jobs--;
	b->running = false;
	batch_send(s, b);
	if (rcp_err_is(&b->lost))
		rcp_sender_stop(s, &b->lost);
	for (unsigned i = 0; i < b->fault_count; i++) {
		bool warning = b->faults[i].severity == RCP_SEVERITY_WARNING;

		send_fault(s, UINT32_MAX, &b->faults[i].err, b->faults[i].severity);
		s->env.fault(s->env.arg, &b->faults[i].err, warning);
		if (!warning)
			s->stats.failed++;
	}
	batch_reset(b);
	if (b->over && !s->stopping) {
		struct rcp_msg_walk_end end = {.entries = s->entries.next,
					       .files = s->stats.files_seen,
					       .bytes = s->stats.bytes_seen};

		s->stats.walk_over = true;
		s->env.send(s->env.arg, RCP_MSG_WALK_END, &end);
	}
	send_walk_pump(s);
}

void send_walk_pump(struct rcp_sender *s)
{
	struct walk_batch *b = &s->batch;

	if (b->running || s->stats.walk_over || s->stopping || s->entries.open >= SEND_ENTRIES_MAX ||
	    s->told_bytes >= SEND_TOLD_BYTES)
		return;
	b->running = true;
	b->s = s;
	b->blob.max = RCP_FRAME_MAX - 64;
	b->job = (struct rcp_job){.work = walk_work, .done = walk_done};
	send_job(s, RCP_POOL_START, &b->job);
}
