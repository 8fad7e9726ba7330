/*
 * Small files, from beginning to end, in as few calls as can be: what a call costs is what a small
 * file costs.
 *
 * The usual one is new at the target. It is made without a name (O_TMPFILE), written, given its
 * metadata, and then its name: nobody else can see it before, so there is nothing to lock, nothing
 * to find by an earlier run and nothing to remove after a kill. Where that can't be (the name is
 * taken, an earlier run left a partial file, the file system knows no such files) it is .rcp-part
 * and a rename, as for large files.
 */
#include "file/io.h"
#include "file/sink_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* One that is written and has not got its name yet. */
struct put {
	struct rcp_part part;
	bool unnamed;
	struct stat nameless; /* see rcp_done_look */
	struct rcp_sink_params params;
	const void *data;
	size_t len;
	const struct rcp_meta *meta;
	void *arg;
};

/* A ring: `count` of them, from `first` on. */
struct rcp_sink_puts {
	rcp_sink_put_done *done;
	struct rcp_kept_dir kept;
	unsigned first, count;
	struct put put[RCP_SINK_PUTS];
};

int rcp_sink_puts_new(rcp_sink_put_done *done, struct rcp_err *err, struct rcp_sink_puts **out)
{
	struct rcp_sink_puts *puts = calloc(1, sizeof(*puts));

	*out = puts;
	if (!puts)
		return rcp_io_fail(err, ENOMEM, "calloc", "small files");
	puts->done = done;
	rcp_kept_init(&puts->kept);
	return 0;
}

/* ---- the end of one ---- */

/* By the descriptor itself where that is allowed (root; any owner since Linux 6.10), else by what
 * /proc calls it. Never over a name that is there. */
static int give_name(const struct rcp_part *part)
{
	char link[64];

	if (linkat(part->fd, "", part->dir, part->leaf, AT_EMPTY_PATH) == 0)
		return 0;
	if (errno == EEXIST)
		return -1;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", part->fd);
	return linkat(AT_FDCWD, link, part->dir, part->leaf, AT_SYMLINK_FOLLOW);
}

static int write_named(struct put *put, struct rcp_err *err)
{
	struct rcp_part *part = &put->part;

	if (part->found && rcp_io_truncate(part->fd, 0) < 0)
		return rcp_io_fail(err, errno, "ftruncate", part->shown);
	if (rcp_io_pwrite(part->fd, put->data, put->len, 0) < 0)
		return rcp_io_fail(err, errno, "pwrite", part->shown);
	if (!part->memory)
		rcp_io_settle_start(part->fd, 0, 0);
	return put->params.verify ? rcp_sink_read_back(part, put->data, put->len, err) : 0;
}

static void finish_named(struct put *put, struct rcp_err *err, unsigned *lost)
{
	struct rcp_part *part = &put->part;

	if (rcp_sink_finish(part, put->meta, put->params.fsync, false, err, lost))
		rcp_part_remove(part);
	else if (part->found) /* what an earlier run with larger content left */
		unlinkat(part->dir, part->journal, 0);
}

/* Its name was taken meanwhile: all over again, by a rename. */
static void finish_taken(struct put *put, struct rcp_err *err, unsigned *lost)
{
	struct rcp_part *part = &put->part;

	rcp_io_close(&part->fd);
	if (part->kept) /* and so will be the next ones */
		part->kept->taken = true;
	*lost = 0;
	part->wait_ms = put->params.wait_ms;
	if (rcp_part_open(part, err))
		return;
	if (write_named(put, err)) {
		rcp_part_remove(part);
		return;
	}
	rcp_done_look(put->params.done, part->fd, &put->nameless);
	finish_named(put, err, lost);
}

static void finish_unnamed(struct put *put, struct rcp_err *err, unsigned *lost)
{
	struct rcp_part *part = &put->part;

	if (rcp_sink_complete(part, put->meta, put->params.fsync, err, lost))
		return;
	if (give_name(part) < 0) {
		finish_taken(put, err, lost);
		return;
	}
	part->placed = true;
	if (put->params.fsync && rcp_io_sync_dir(part->dir) < 0)
		rcp_io_fail(err, errno, "fsync directory", part->shown);
}

/* The oldest gets its name, or goes. */
static void finish_first(struct rcp_sink_puts *puts)
{
	struct put *put = &puts->put[puts->first];
	struct rcp_err err = {0};
	unsigned lost = 0;

	puts->first = (puts->first + 1) % RCP_SINK_PUTS;
	puts->count--;
	rcp_done_look(put->params.done, put->part.fd, &put->nameless);
	if (put->unnamed)
		finish_unnamed(put, &err, &lost);
	else
		finish_named(put, &err, &lost);
	if (!rcp_err_is(&err))
		rcp_done_add(put->params.done, put->params.path, &put->params.id, put->part.fd, &put->nameless);
	rcp_part_close(&put->part);
	puts->done(put->arg, &err, lost);
}

static void finish_all(struct rcp_sink_puts *puts)
{
	while (puts->count)
		finish_first(puts);
}

/* ---- the beginning of one ---- */

/* Those that lie in the kept directory get a descriptor of their own: it is about to change. */
static void own_dirs(struct rcp_sink_puts *puts)
{
	for (unsigned i = 0; i < puts->count; i++) {
		struct rcp_part *part = &puts->put[(puts->first + i) % RCP_SINK_PUTS].part;

		if (!part->kept)
			continue;
		int dir = fcntl(part->dir, F_DUPFD_CLOEXEC, 0);

		if (dir < 0) {
			finish_all(puts);
			return;
		}
		part->dir = dir;
		part->kept = NULL;
	}
}

/* True where the file needs no .rcp-part: fd is one without a name. */
static bool open_unnamed(struct rcp_part *part)
{
	struct stat st;

	if (part->kept->taken)
		return false;
	if (fstatat(part->dir, part->name, &st, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT)
		return false;
	part->fd = openat(part->dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	return part->fd >= 0;
}

static int open_put(struct rcp_sink_puts *puts, struct put *put, struct rcp_err *err)
{
	const struct rcp_sink_params *p = &put->params;

	if (puts->count && !rcp_kept_is(&puts->kept, p->path))
		own_dirs(puts);
	if (rcp_part_locate(p->root, p->path, p->shown ? p->shown : p->path, &puts->kept, err,
			    &put->part))
		return (int)err->code;
	/* Without meta 0600 is to stay, whatever the umask; what is read back is opened by its name. */
	put->unnamed = put->meta && !p->verify && open_unnamed(&put->part);
	if (put->unnamed)
		return 0;
	/* It may be one of ours that holds the lock. */
	put->part.wait_ms = puts->count ? 0 : p->wait_ms;
	return rcp_part_open(&put->part, err);
}

static int write_put(struct put *put, struct rcp_err *err)
{
	if (!put->unnamed)
		return write_named(put, err);
	if (rcp_io_pwrite(put->part.fd, put->data, put->len, 0) < 0)
		return rcp_io_fail(err, errno, "pwrite", put->part.shown);
	if (!put->part.memory)
		rcp_io_settle_start(put->part.fd, 0, 0);
	return 0;
}

void rcp_sink_puts_add(struct rcp_sink_puts *puts, const struct rcp_sink_params *p,
		       const void *data, size_t len, const struct rcp_meta *meta, void *arg)
{
	struct rcp_err err = {0};

	if (puts->count == RCP_SINK_PUTS)
		finish_first(puts);
	struct put *put = &puts->put[(puts->first + puts->count) % RCP_SINK_PUTS];

	*put = (struct put){.params = *p, .data = data, .len = len, .meta = meta, .arg = arg};
	/* The same name twice in one bundle, or too few descriptors: not when the others are done. */
	if (open_put(puts, put, &err) && puts->count) {
		rcp_part_close(&put->part);
		finish_all(puts);
		err = (struct rcp_err){0};
		open_put(puts, put, &err);
	}
	if (rcp_err_is(&err) || write_put(put, &err)) {
		if (!put->unnamed)
			rcp_part_remove(&put->part);
		rcp_part_close(&put->part);
		puts->done(arg, &err, 0);
		return;
	}
	puts->count++;
}

void rcp_sink_puts_free(struct rcp_sink_puts **puts)
{
	if (!*puts)
		return;
	finish_all(*puts);
	rcp_kept_close(&(*puts)->kept);
	free(*puts);
	*puts = NULL;
}
