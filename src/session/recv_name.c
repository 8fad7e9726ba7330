/* Entries as the source names them: decoded, looked at by a worker in order, and sent their way. */
#include "session/recv.h"

#include "file/beneath.h"
#include "session/wanted.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- named: prepared by a worker, in order, batch after batch ---- */

struct rcp_key recv_entry_key(const struct recv_entry *e)
{
	return rcp_keys_key(e->r->env.done, e->path, strlen(e->path), e->fid.size,
			    (uint64_t)e->fid.mtime_s * 1000000000 + e->fid.mtime_ns);
}

/* The initiator goes by what it knows of this run itself; a responder by what the initiator says. */
static bool was_done(const struct recv_entry *e)
{
	if (e->rec.type != RCP_ENTRY_FILE)
		return false;
	if (e->r->env.done)
		return rcp_keys_has(e->r->env.done, recv_entry_key(e));
	return (e->rec.flags & RCP_ENTRY_DONE) != 0;
}

/* With the source's times kept, a file of this size and time is the one that an earlier run wrote. */
static bool same_will_do(const struct rcp_receiver *r)
{
	if (r->opt.flags & RCP_OPT_UPDATE)
		return true;
	return (r->opt.flags & (RCP_OPT_TIMES | RCP_OPT_ARCHIVE)) != 0 &&
	       !(r->opt.flags & (RCP_OPT_NO_RESUME | RCP_OPT_VERIFY));
}

/* What has no data is made anew by each run, but not over what is to be left alone. */
static void look_first_other(struct recv_entry *e, struct rcp_kept_dir *kept)
{
	const struct rcp_receiver *r = e->r;
	bool exists, same, dir = e->rec.type == RCP_ENTRY_DIR || e->rec.type == RCP_ENTRY_DIR_END;
	struct stat st;

	if (dir || !(r->opt.flags & RCP_OPT_SKIP_EXISTING) ||
	    rcp_sink_lookup(r->target->root, e->path, kept, NULL, &exists, &same, &st))
		return;
	e->skip = e->left = exists;
}

/*
 * Is this inode of the target, which has other names, the file of an entry before? The source has two files then, which
 * would take each other's mode: this one gets an inode of its own. The batch job's.
 */
static bool is_anothers(struct rcp_receiver *r, const struct stat *st)
{
	if (!r->claimed)
		r->claimed = rcp_keys_new(NULL);
	return !r->claimed || rcp_keys_add(r->claimed, rcp_keys_key(r->claimed, NULL, 0, st->st_dev, st->st_ino)) <= 0;
}

static void look_first(struct recv_entry *e, struct rcp_kept_dir *kept, struct rcp_err *err)
{
	struct rcp_receiver *r = e->r;
	struct stat st;
	bool exists, same, keep = (r->opt.flags & (RCP_OPT_TIMES | RCP_OPT_ARCHIVE)) != 0;

	e->done = was_done(e) && rcp_sink_is_there(r->target->root, e->path, &e->fid);
	if (e->done)
		return;
	if (e->rec.type != RCP_ENTRY_FILE) {
		look_first_other(e, kept);
		return;
	}
	if (r->target->done && rcp_done_has(r->target->done, e->path, &e->fid, kept)) {
		e->done = (r->opt.flags & RCP_OPT_RETRY) != 0; /* by this run, and its end was lost with the connection */
		e->skip = !e->done;
		return;
	}
	if (!(same_will_do(r) || r->opt.flags & RCP_OPT_SKIP_EXISTING))
		return;
	if (rcp_sink_lookup(r->target->root, e->path, kept, &e->fid, &exists, &same, &st))
		return; /* the open will say why */
	if (same && st.st_nlink > 1 && (r->opt.flags & (RCP_OPT_ARCHIVE | RCP_OPT_SKIP_EXISTING)) == RCP_OPT_ARCHIVE)
		same = !is_anothers(r, &st);
	e->skip = (r->opt.flags & RCP_OPT_SKIP_EXISTING && exists) || (same && same_will_do(r));
	e->left = e->skip && !same;
	if (same && e->skip && keep && !(r->opt.flags & (RCP_OPT_SKIP_EXISTING | RCP_OPT_DRY_RUN)))
		rcp_sink_refresh(r->target->root, e->path, e->shown, kept, &st, &e->meta, err);
}

/* What is in it is left out. False: no memory. */
static bool lose_dir(struct recv_entry *e)
{
	size_t len = strlen(e->path);

	free(e->r->lost_dir);
	e->r->lost_dir = malloc(len + 2);
	if (!e->r->lost_dir)
		return false;
	memcpy(e->r->lost_dir, e->path, len);
	memcpy(e->r->lost_dir + len, "/", 2);
	return true;
}

/* Said once, at the directory: of a million names in it each would be told otherwise. */
static void dir_lost(struct recv_entry *e, struct rcp_err *err)
{
	struct rcp_err whole = {0};

	if (!lose_dir(e)) /* each name is told, then */
		return;
	rcp_err_set(&whole, err->code, err->sys_errno, err->call, err->object, "%s%sand what is in it is left out",
		    err->text, err->text[0] ? ", " : "it can't be made, ");
	rcp_err_fix(&whole, "%s", err->fix);
	*err = whole;
}

/* The source names what is in a directory before anything else. */
static bool in_lost_dir(struct recv_entry *e)
{
	char **lost = &e->r->lost_dir;
	size_t len = *lost ? strlen(*lost) : 0;

	if (!len)
		return false;
	if (strncmp(e->path, *lost, len) == 0)
		return true;
	bool end = e->rec.type == RCP_ENTRY_DIR_END && strncmp(e->path, *lost, len - 1) == 0 && !e->path[len - 1];

	free(*lost);
	*lost = NULL;
	return end;
}

static void prepare(struct recv_entry *e, struct rcp_kept_dir *kept)
{
	struct rcp_receiver *r = e->r;
	struct rcp_meta_options o = {.times = (r->opt.flags & (RCP_OPT_TIMES | RCP_OPT_ARCHIVE)) != 0,
				     .archive = (r->opt.flags & RCP_OPT_ARCHIVE) != 0,
				     .numeric_ids = (r->opt.flags & RCP_OPT_NUMERIC_IDS) != 0,
				     .umask = r->opt.umask};
	struct rcp_err err = {0};

	e->left_out = in_lost_dir(e);
	if (e->met && e->rec.type == RCP_ENTRY_DIR) /* refused when it was named */
		lose_dir(e);
	if (e->left_out || e->met)
		return;
	bool dir = e->rec.type == RCP_ENTRY_DIR && !(r->opt.flags & RCP_OPT_DRY_RUN);

	bool fresh = dir && e->rec.flags & RCP_ENTRY_TOP && rcp_target_is_new(r->target);

	if (rcp_meta_of(&e->rec, &o, &err, &e->meta) == 0) {
		if (dir && strcmp(e->path, ".") != 0) /* the target is there */
			rcp_sink_mkdir(r->target->root, e->path, e->shown, e->link_yields, &err);
		else if (!dir)
			look_first(e, kept, &err);
		if (dir && rcp_err_is(&err))
			dir_lost(e, &err);
		else if (fresh)
			rcp_target_made(r->target);
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
	if (e->left_out) {
		recv_entry_end(e, RCP_STATUS_LEFT_OUT);
		return;
	}
	if (e->skip || e->done || r->opt.flags & RCP_OPT_DRY_RUN) {
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
		recv_entry_special(e);
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

/* What the end of the session leaves is freed with the table; thousands of jobs for it would take their time. */
static void batches_drop(struct rcp_receiver *r)
{
	for (struct recv_batch *b; (b = r->batches);) {
		r->batches = b->next;
		free(b);
	}
	r->batch_tail = &r->batches;
}

static void batch_next(struct rcp_receiver *r)
{
	struct recv_batch *b = r->batches;

	if (b && r->stopping)
		batches_drop(r);
	if (!b || r->stopping)
		return;
	b->job = (struct rcp_job){.work = batch_work, .done = batch_done};
	recv_job(r, RCP_POOL_START, &b->job);
}

/* ---- ENTRIES ---- */

/* The name below the root: the one source may get another name than its own, or bring none. */
struct naming {
	struct rcp_span shown, head, rest;
	bool slash; /* between head and rest */
};

static bool is_dot(struct rcp_span path)
{
	return path.len == 1 && path.data[0] == '.';
}

static struct naming naming_of(const struct rcp_target *target, struct rcp_span path, bool inside)
{
	struct naming n = {.shown = rcp_span_str(target->shown), .rest = path};

	if (target->rename && inside) {
		n.head = rcp_span_str(target->rename);
		n.slash = !is_dot(path);
		n.rest = n.slash ? path : rcp_span_of(NULL, 0);
	} else if (target->rename) {
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

static size_t naming_len(const struct naming *n)
{
	return n->head.len + n->slash + n->rest.len;
}

static char *append_path(char *at, const struct naming *n)
{
	at = append(at, n->head);
	if (n->slash)
		*at++ = '/';
	return append(at, n->rest);
}

static const char *entry_refuse(const struct rcp_rec_entry *rec)
{
	const char *why = rcp_path_refuse((const char *)rec->path.data, rec->path.len);
	bool dir = rec->type == RCP_ENTRY_DIR || rec->type == RCP_ENTRY_DIR_END;

	if (why && !(dir && rec->flags & RCP_ENTRY_INSIDE && is_dot(rec->path)))
		return why;
	if (rec->type < RCP_ENTRY_FILE || rec->type > RCP_ENTRY_DIR_END)
		return "an entry of an unknown type";
	if (rec->size > INT64_MAX || rec->mtime_ns > 999999999 || rec->atime_ns > 999999999)
		return "an entry with a size or time that can't be";
	if (rec->type == RCP_ENTRY_HARDLINK)
		return rcp_path_refuse((const char *)rec->link.data, rec->link.len);
	return NULL;
}

static int not_asked_for(const struct rcp_rec_entry *rec, struct rcp_err *err)
{
	return rcp_err_set(err, RCP_E_CONNECT, 0, "", NULL, "the peer broke the protocol: it names %.*s, which was not asked for",
			   (int)(rec->path.len < 200 ? rec->path.len : 200), (const char *)rec->path.data);
}

/* Without -r there are no trees, without -a nothing but files and directories; an initiator knows the names, too. */
static int check_wanted(struct rcp_receiver *r, const struct rcp_rec_entry *rec, struct rcp_err *err)
{
	bool dir = rec->type == RCP_ENTRY_DIR || rec->type == RCP_ENTRY_DIR_END;
	bool below = memchr(rec->path.data, '/', rec->path.len) || dir;
	bool inside = rec->flags & RCP_ENTRY_INSIDE;

	if (!dir && rec->type != RCP_ENTRY_FILE && !(r->opt.flags & RCP_OPT_ARCHIVE))
		return not_asked_for(rec, err);
	if (below && !(r->opt.flags & (RCP_OPT_RECURSIVE | RCP_OPT_ARCHIVE | RCP_OPT_PAIRS)))
		return not_asked_for(rec, err);
	if (!r->env.wanted)
		return 0;
	if (!rcp_wanted_has(r->env.wanted, rec->path, inside, dir) ||
	    (rec->type == RCP_ENTRY_HARDLINK && !rcp_wanted_has(r->env.wanted, rec->link, inside, false)))
		return not_asked_for(rec, err);
	return 0;
}

/* A copy of the record with all that it points to, in one allocation. NULL: no memory. */
static struct recv_entry *entry_keep(struct rcp_receiver *r, const struct rcp_rec_entry *rec)
{
	bool inside = rec->flags & RCP_ENTRY_INSIDE;
	struct naming n = naming_of(r->target, rec->path, inside), to = {.rest = rec->link};

	if (rec->type == RCP_ENTRY_HARDLINK) /* to a path of the same tree, under the same new name */
		to = naming_of(r->target, rec->link, inside);
	size_t bytes = sizeof(struct recv_entry) + n.shown.len + naming_len(&n) + 1 + naming_len(&to) + rec->user.len +
		       rec->group.len + rec->xattrs.len;
	struct recv_entry *e = malloc(bytes);

	if (!e)
		return NULL;
	*e = (struct recv_entry){.r = r, .id = r->entries.next, .rec = *rec, .bytes = bytes};
	r->entries_bytes += bytes;
	e->fid = (struct rcp_file_id){.dev = rec->dev, .ino = rec->ino, .size = rec->size,
				      .mtime_s = (int64_t)rec->mtime_s, .mtime_ns = rec->mtime_ns,
				      .ctime = rec->ctime};
	e->shown = (char *)(e + 1);
	e->path = append(e->shown, n.shown);
	char *at = append_path(e->path, &n);

	*at++ = 0;
	e->rec.path = rcp_span_str(e->path);
	e->rec.link = rcp_span_of(at, naming_len(&to));
	at = append_path(at, &to);
	struct rcp_span *const rest[] = {&e->rec.user, &e->rec.group, &e->rec.xattrs};

	for (size_t i = 0; i < sizeof(rest) / sizeof(rest[0]); i++) {
		struct rcp_span from = *rest[i];

		*rest[i] = rcp_span_of(at, from.len);
		at = append(at, from);
	}
	return e;
}

static size_t parent_len(struct rcp_span path)
{
	const uint8_t *slash = path.len ? memrchr(path.data, '/', path.len) : NULL;

	return slash ? (size_t)(slash - path.data) : 0;
}

static int dir_open(struct rcp_receiver *r, struct rcp_span path, struct rcp_err *err)
{
	char *dir = strndup(path.len ? (const char *)path.data : "", path.len);

	if (!dir)
		return rcp_err_set(err, RCP_E_IO, ENOMEM, "strndup", NULL, NULL);
	free(r->open_dir);
	r->open_dir = dir;
	return 0;
}

/*
 * With -a a source brings symlinks. That none of them, nor one of an earlier run, is the way to a name: a name comes
 * while its directory is open, and a directory that is opened below the top takes the place of a symlink.
 */
static int check_place(struct rcp_receiver *r, const struct rcp_rec_entry *rec, struct rcp_err *err)
{
	bool end = rec->type == RCP_ENTRY_DIR_END, dir = end || rec->type == RCP_ENTRY_DIR;
	struct rcp_span path = is_dot(rec->path) ? rcp_span_of(rec->path.data, 0) : rec->path;
	size_t parent = parent_len(path), open = r->open_dir ? strlen(r->open_dir) : 0;
	bool way = rec->flags & RCP_ENTRY_WAY;

	if (!(r->opt.flags & RCP_OPT_ARCHIVE))
		return 0;
	bool fits = end ? path.len == open && (!open || memcmp(path.data, r->open_dir, open) == 0)
			: parent == open && (!open || memcmp(path.data, r->open_dir, open) == 0);

	if (!fits || (rec->flags & RCP_ENTRY_TOP && (parent || (rec->flags & RCP_ENTRY_INSIDE && path.len))) || (way && !(r->opt.flags & RCP_OPT_PAIRS)) ||
	    (way && r->env.wanted && !rcp_wanted_on_the_way(r->env.wanted, path)))
		return rcp_err_set(err, RCP_E_CONNECT, 0, "", NULL, "the peer broke the protocol: it names %.*s out of its directory",
				   (int)(rec->path.len < 200 ? rec->path.len : 200), (const char *)rec->path.data);
	return dir ? dir_open(r, end ? rcp_span_of(path.data, parent) : path, err) : 0;
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

/*
 * -a copies symlinks: one at the target is an older version of the entry, and not the way to where it leads. What the user
 * named is entered, as with scp; but not where this source has made it, and what was entered does not become a symlink.
 */
static int check_links(struct recv_entry *e, struct rcp_err *err)
{
	struct rcp_receiver *r = e->r;
	bool dir = e->rec.type == RCP_ENTRY_DIR, link = e->rec.type == RCP_ENTRY_SYMLINK || e->rec.type == RCP_ENTRY_HARDLINK;
	bool way = e->rec.flags & (RCP_ENTRY_TOP | RCP_ENTRY_WAY);
	struct rcp_span path = e->rec.path;

	if (!(r->opt.flags & RCP_OPT_ARCHIVE))
		return 0;
	e->link_yields = dir && !way;
	/* The first name of a hard link is held to what others are; who asks for nothing trusts its source. */
	if (e->rec.type == RCP_ENTRY_HARDLINK)
		e->entered = (uint32_t)(r->env.wanted ? rcp_wanted_entered(r->env.wanted, e->rec.link) : e->rec.link.len);
	if (!r->env.wanted || !(link || (dir && way)) ||
	    (link && parent_len(path) && !rcp_wanted_on_the_way(r->env.wanted, path)))
		return 0;
	int other = rcp_wanted_came(r->env.wanted, path, dir);

	if (other < 0)
		return rcp_err_set(err, RCP_E_IO, ENOMEM, "malloc", NULL, NULL);
	e->link_yields |= dir && other;
	if (link && other) {
		struct rcp_err met = {0};

		rcp_err_set(&met, RCP_E_PARTIAL, EISDIR, "", e->shown, "the source has named a directory so, too");
		recv_entry_met(e, &met);
	}
	return 0;
}

static int entry_new(struct rcp_receiver *r, struct recv_batch *b, const struct rcp_rec_entry *rec,
		     struct rcp_err *err)
{
	const char *why = entry_refuse(rec);
	struct recv_entry *e;

	if (why)
		return rcp_err_set(err, RCP_E_CONNECT, 0, "", NULL, "the peer broke the protocol: %s", why);
	if (check_wanted(r, rec, err) || check_place(r, rec, err))
		return (int)err->code;
	e = entry_keep(r, rec);
	if (!e || !rcp_idtab_add(&r->entries, e)) {
		r->entries_bytes -= e ? e->bytes : 0;
		free(e);
		return rcp_err_set(err, RCP_E_IO, ENOMEM, "malloc", NULL, NULL);
	}
	check_top(e);
	e->busy++; /* the batch's */
	int rc = check_links(e, err);

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
	return rc;
}

int recv_entries(struct rcp_receiver *r, const struct rcp_msg_entries *m, struct rcp_err *err)
{
	struct rcp_rd rd = rcp_rd_of(m->entries.data, m->entries.len);
	struct rcp_rec_entry rec;
	uint32_t count = 0;
	int rc = 1;

	if (m->first != r->entries.next || r->walk_over || !m->count ||
	    r->entries.open + (uint64_t)m->count > RECV_ENTRIES_MAX || r->entries_bytes > RECV_ENTRIES_BYTES)
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
