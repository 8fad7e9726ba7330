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
#include <unistd.h>

static int put_named(struct rcp_part *part, const struct rcp_sink_params *p, const void *data,
		     size_t len, const struct rcp_meta *meta, struct rcp_err *err, unsigned *lost)
{
	if (part->found && ftruncate(part->fd, 0) < 0)
		return rcp_io_fail(err, errno, "ftruncate", part->shown);
	if (rcp_io_pwrite(part->fd, data, len, 0) < 0)
		return rcp_io_fail(err, errno, "pwrite", part->shown);
	return rcp_sink_finish(part, meta, p->fsync, false, err, lost);
}

static int put_by_rename(struct rcp_part *part, const struct rcp_sink_params *p, const void *data,
			 size_t len, const struct rcp_meta *meta, struct rcp_err *err,
			 unsigned *lost)
{
	int rc = rcp_part_open(part, err);

	if (!rc)
		rc = put_named(part, p, data, len, meta, err, lost);
	if (!rc && part->found) /* what an earlier run with larger content left */
		unlinkat(part->dir, part->journal, 0);
	if (rc)
		rcp_part_remove(part);
	return rc;
}

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

static int put_unnamed(struct rcp_part *part, const struct rcp_sink_params *p, const void *data,
		       size_t len, const struct rcp_meta *meta, struct rcp_err *err, unsigned *lost)
{
	if (rcp_io_pwrite(part->fd, data, len, 0) < 0)
		return rcp_io_fail(err, errno, "pwrite", part->shown);
	if (rcp_sink_complete(part, meta, p->fsync, err, lost))
		return (int)err->code;
	if (give_name(part) < 0)
		return 0;
	part->placed = true;
	if (p->fsync && rcp_io_sync_dir(part->dir) < 0)
		return rcp_io_fail(err, errno, "fsync directory", part->shown);
	return 0;
}

/* True where the file needs no .rcp-part: fd is one without a name. */
static bool open_unnamed(struct rcp_part *part)
{
	struct stat st;

	if (part->kept && part->kept->taken)
		return false;
	if (fstatat(part->dir, part->name, &st, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT)
		return false;
	part->fd = openat(part->dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	return part->fd >= 0;
}

int rcp_sink_put(const struct rcp_sink_params *params, const void *data, size_t len,
		 const struct rcp_meta *meta, struct rcp_err *err, unsigned *lost)
{
	struct rcp_part part;
	const char *shown = params->shown ? params->shown : params->path;
	int rc = 0;

	*lost = 0;
	if (rcp_part_locate(params->root, params->path, shown, params->kept, err, &part))
		return (int)err->code;
	if (meta && open_unnamed(&part)) /* without meta 0600 is to stay, whatever the umask */
		rc = put_unnamed(&part, params, data, len, meta, err, lost);
	if (!rc && !part.placed) {
		rcp_io_close(&part.fd);
		*lost = 0;
		if (part.kept) /* a name was taken here, and so will be the next ones */
			part.kept->taken = true;
		rc = put_by_rename(&part, params, data, len, meta, err, lost);
	}
	rcp_part_close(&part);
	return rc;
}
