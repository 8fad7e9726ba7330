/* Directories and the entries that have no data; and what is at a target already. See sink.h. */
#include "file/beneath.h"
#include "file/confine.h"
#include "file/io.h"
#include "file/part.h"
#include "file/sink.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/*
 * A directory of ours carries the sticky bit until its end: so rcp_sink_dir_end knows, also after a
 * restart, which modes it may set. Without -p an existing directory keeps its mode, as with scp.
 */
#define OURS_MODE 01700u

static bool is_ours(const struct stat *st)
{
	return (st->st_mode & 07777u & ~(mode_t)S_ISGID) == OURS_MODE && st->st_uid == geteuid();
}

/* The umask may have taken the owner's bits from a new one; an existing one may lack them. */
static int make_writable(int dir, const char *leaf, bool made, bool follow, const char *shown,
			 struct rcp_err *err)
{
	struct stat st;
	int fd = rcp_beneath_open(dir, leaf, O_PATH | O_DIRECTORY | (follow ? 0 : O_NOFOLLOW), 0);
	char link[64];

	if (fd < 0 || fstat(fd, &st) < 0) {
		int e = errno;

		rcp_io_close(&fd);
		return rcp_io_fail(err, e, "open directory", shown);
	}
	mode_t want = made ? OURS_MODE | (st.st_mode & S_ISGID) : (st.st_mode & 07777u) | S_IRWXU;

	/* Where the owner is another, or the file system has no modes, the first file in it says
	 * what is missing. */
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	if ((st.st_mode & 07777u) != want && st.st_uid == geteuid() && !rcp_confined_root(&st) && chmod(link, want) < 0 &&
	    rcp_io_code(errno) == RCP_E_IO)
		rcp_io_fail(err, errno, "chmod", shown);
	rcp_io_close(&fd);
	return (int)err->code;
}

static int existing_is_no_dir(const struct rcp_part *at, bool follow, struct rcp_err *err)
{
	struct stat st;

	/* A symlink that is to be followed is let pass to make_writable, which does so as far as the root. */
	if (fstatat(at->dir, at->leaf, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return rcp_io_fail(err, errno, "stat", at->shown);
	if (S_ISDIR(st.st_mode) || (follow && S_ISLNK(st.st_mode)))
		return 0;
	rcp_err_set(err, RCP_E_PARTIAL, ENOTDIR, "mkdir", at->shown,
		    S_ISLNK(st.st_mode) ? "a symlink comes up in its place" : "a file has this name, and a directory can't replace it");
	rcp_err_fix(err, "remove the file or choose another target");
	return RCP_E_PARTIAL;
}

/* 0, or -1 with errno. */
static int make_dir(const struct rcp_part *at, bool replace_link)
{
	struct stat st;
	int rc = mkdirat(at->dir, at->leaf, OURS_MODE);

	if (rc == 0 || errno != EEXIST || !replace_link)
		return rc;
	if (fstatat(at->dir, at->leaf, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode) &&
	    unlinkat(at->dir, at->leaf, 0) == 0)
		return mkdirat(at->dir, at->leaf, OURS_MODE);
	errno = EEXIST;
	return -1;
}

int rcp_sink_mkdir(int root, const char *path, const char *shown, bool replace_link,
		   struct rcp_err *err)
{
	struct rcp_part at;

	if (rcp_part_locate(root, path, shown, NULL, err, &at))
		return (int)err->code;
	bool made = make_dir(&at, replace_link) == 0, follow = !made && !replace_link;

	if (!made && errno != EEXIST)
		rcp_io_fail(err, errno, "mkdir", shown);
	else if (made || !existing_is_no_dir(&at, !replace_link, err))
		make_writable(follow ? root : at.dir, follow ? path : at.leaf, made, follow, shown, err);
	rcp_part_close(&at);
	return (int)err->code;
}

/* A name in the root itself: of others the end of their directory sees to it. */
static int sync_top(int root, const char *path, const char *shown, struct rcp_err *err)
{
	if (!strchr(path, '/') && rcp_io_sync_dir(root) < 0)
		return rcp_io_fail(err, errno, "fsync directory", shown);
	return 0;
}

int rcp_sink_dir_end(int root, const char *path, const char *shown, const struct rcp_meta *meta, bool sync,
		     struct rcp_err *err, unsigned *lost)
{
	const char *why = strcmp(path, ".") ? rcp_path_refuse(path, strlen(path)) : NULL;
	struct rcp_meta final = *meta;
	struct stat st;

	*lost = 0;
	if (why)
		return rcp_err_set(err, RCP_E_PARTIAL, EINVAL, "open", shown,
				   "a name that is not taken from a peer: %s", why);
	int fd = rcp_beneath_open(root, path, O_RDONLY | O_DIRECTORY, 0);

	if (fd < 0)
		return rcp_io_fail(err, errno, "open directory", shown);
	if (fstat(fd, &st) < 0)
		rcp_io_fail(err, errno, "fstat", shown);
	if (!meta->set_times && !meta->set_owner)
		final.mode |= st.st_mode & S_ISGID; /* the parent's gift */
	if (!rcp_err_is(err) && (meta->set_times || meta->set_owner || is_ours(&st)) && !rcp_confined_root(&st))
		rcp_meta_apply(fd, shown, &final, err, lost);
	if (sync && !rcp_err_is(err) && fsync(fd) < 0)
		rcp_io_fail(err, errno, "fsync directory", shown);
	if (sync && !rcp_err_is(err))
		sync_top(root, path, shown, err);
	rcp_io_close(&fd);
	return (int)err->code;
}

/* The first name of a hard link, below the same root; never a directory's. */
static int make_hard_link(int root, const struct rcp_part *at, const char *make,
			  const struct rcp_rec_entry *entry, size_t entered, struct rcp_err *err)
{
	char *path = rcp_span_dup(entry->link);
	const char *leaf;
	int dir = -1, rc;

	if (!path)
		return rcp_io_fail(err, ENOMEM, "malloc", at->shown);
	rc = rcp_part_check_name(path, at->shown, err);
	if (!rc)
		dir = rcp_beneath_parent_plain(root, path, entered, &leaf);
	if (!rc && (dir < 0 || linkat(dir, leaf, at->dir, make, 0) < 0)) {
		rc = rcp_err_set(err, rcp_io_code(errno), errno, "link", at->shown,
				 "no hard link to %.200s", path);
	}
	rcp_io_close(&dir);
	free(path);
	return rc;
}

static mode_t node_type(enum rcp_entry_type type)
{
	switch ((int)type) {
	case RCP_ENTRY_FIFO:
		return S_IFIFO;
	case RCP_ENTRY_CHR:
		return S_IFCHR;
	case RCP_ENTRY_BLK:
		return S_IFBLK;
	case RCP_ENTRY_SOCK:
		return S_IFSOCK;
	default:
		return 0;
	}
}

static int make_node(const struct rcp_part *at, const char *make, const struct rcp_rec_entry *entry,
		     struct rcp_err *err)
{
	mode_t type = node_type((enum rcp_entry_type)entry->type);
	bool device = type == S_IFCHR || type == S_IFBLK;

	if (!type)
		return rcp_err_set(err, RCP_E_CONNECT, 0, "", at->shown,
				   "the peer broke the protocol: entry of type %u", entry->type);
	if (device && rcp_confined()) {
		rcp_err_set(err, RCP_E_PARTIAL, EPERM, "mknod", at->shown, "no device is made in %s", rcp_confined_what());
		return (int)err->code;
	}
	if (mknodat(at->dir, make, type | 0600, device ? (dev_t)entry->rdev : 0) == 0)
		return 0;
	int e = errno;

	rcp_io_fail(err, e, "mknod", at->shown);
	if (e == EPERM && device)
		rcp_err_fix(err, "only root can make devices");
	return (int)err->code;
}

static int make_link(const struct rcp_part *at, const char *make, const struct rcp_rec_entry *entry,
		     struct rcp_err *err)
{
	char *to = rcp_span_dup(entry->link);
	int rc = 0;

	if (!to)
		return rcp_io_fail(err, ENOMEM, "malloc", at->shown);
	if (symlinkat(to, at->dir, make) < 0)
		rc = rcp_io_fail(err, errno, "symlink", at->shown);
	free(to);
	return rc;
}

static int make_any(int root, const struct rcp_part *at, const char *make,
		    const struct rcp_rec_entry *entry, size_t entered, struct rcp_err *err)
{
	if (entry->type == RCP_ENTRY_HARDLINK)
		return make_hard_link(root, at, make, entry, entered, err);
	if (entry->type == RCP_ENTRY_SYMLINK)
		return make_link(at, make, entry, err);
	return make_node(at, make, entry, err);
}

static int place(const struct rcp_part *at, const char *make, struct rcp_err *err)
{
	struct stat st;

	if (renameat(at->dir, make, at->dir, at->leaf) == 0)
		return 0;
	int e = errno;

	if (fstatat(at->dir, at->leaf, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode)) {
		rcp_err_set(err, RCP_E_PARTIAL, e, "rename", at->shown,
			    "a directory has this name, and can't be replaced");
		rcp_err_fix(err, "remove the directory or choose another target");
	}
	return rcp_io_fail(err, e, "rename", at->shown);
}

int rcp_sink_special(int root, const char *path, const char *shown,
		     const struct rcp_rec_entry *entry, size_t entered, const struct rcp_meta *meta, bool sync,
		     struct rcp_err *err, unsigned *lost)
{
	char make[NAME_MAX + 1];
	struct rcp_part at;

	*lost = 0;
	if (rcp_part_locate(root, path, shown, NULL, err, &at))
		return (int)err->code;
	rcp_part_name(at.leaf, RCP_MAKE_SUFFIX, make);
	unlinkat(at.dir, make, 0); /* of a run that was cut off */
	int rc = make_any(root, &at, make, entry, entered, err);

	/* A hard link's file has its metadata already. */
	if (!rc && meta && entry->type != RCP_ENTRY_HARDLINK)
		rc = rcp_meta_apply_at(at.dir, make, shown, meta, err, lost);
	if (!rc)
		rc = place(&at, make, err);
	/* Also after a rename: between two names of one file it does nothing, and says 0. */
	if ((rc || entry->type == RCP_ENTRY_HARDLINK) && unlinkat(at.dir, make, 0) < 0 && errno != ENOENT && !rc)
		rc = rcp_io_fail(err, errno, "unlink", shown);
	rcp_part_close(&at);
	return !rc && sync ? sync_top(root, path, shown, err) : rc;
}

/* Some file systems keep times to the microsecond, second or so: then the rest was cut off. Not those
 * that are known to keep all of it. */
static bool same_time(const struct timespec *have, int64_t sec, uint32_t ns, bool exact)
{
	if (have->tv_sec != sec)
		return false;
	if (exact)
		return (uint32_t)have->tv_nsec == ns;
	for (uint32_t grain = 1; grain <= 1000000000; grain *= 10) {
		if ((uint32_t)have->tv_nsec == ns - ns % grain)
			return true;
		if (grain == 1000000000)
			break;
	}
	return false;
}

bool rcp_sink_is_there(int root, const char *path, const struct rcp_file_id *id)
{
	struct rcp_part at;
	struct rcp_err ignored = {0};
	struct stat st;

	if (rcp_part_locate(root, path, path, NULL, &ignored, &at))
		return false;
	int rc = fstatat(at.dir, at.leaf, &st, AT_SYMLINK_NOFOLLOW);

	rcp_part_close(&at);
	return rc == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size == id->size;
}

/* Mode, owner and attributes; times are what it was found by. By name: opening costs three calls more a file. */
static bool meta_differs(const struct rcp_part *at, const struct stat *st, const struct rcp_meta *meta)
{
	struct rcp_err ignored = {0};
	uint8_t *xattrs = NULL;
	uint32_t len = 0;
	bool truncated, same;

	if ((st->st_mode & 07777) != meta->mode)
		return true;
	if (!meta->set_owner)
		return false;
	if (st->st_uid != meta->uid || st->st_gid != meta->gid)
		return true;
	if (rcp_meta_read_xattrs_at(at->dir, at->leaf, &ignored, &xattrs, &len, &truncated))
		return true;
	same = len == meta->xattrs_len && (!len || memcmp(xattrs, meta->xattrs, len) == 0);
	free(xattrs);
	return !same;
}

int rcp_sink_refresh(int root, const char *path, const char *shown, struct rcp_kept_dir *kept,
		     const struct stat *st, const struct rcp_meta *meta, struct rcp_err *err)
{
	struct rcp_part at;
	unsigned lost;

	if (rcp_part_locate(root, path, shown, kept, err, &at))
		return (int)err->code;
	if (meta_differs(&at, st, meta)) {
		at.fd = openat(at.dir, at.leaf, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
		if (at.fd < 0)
			rcp_meta_apply_at(at.dir, at.leaf, shown, meta, err, &lost);
		else
			rcp_meta_apply(at.fd, shown, meta, err, &lost);
	}
	rcp_part_close(&at);
	return (int)err->code;
}

int rcp_sink_lookup(int root, const char *path, struct rcp_kept_dir *kept, const struct rcp_file_id *id,
		    bool *exists, bool *same, struct stat *st)
{
	struct rcp_part at;
	struct rcp_err err = {0};

	*exists = *same = false;
	if (rcp_part_locate(root, path, path, kept, &err, &at)) {
		errno = err.sys_errno;
		return err.sys_errno == ENOENT ? 0 : -1;
	}
	int rc = fstatat(at.dir, at.leaf, st, AT_SYMLINK_NOFOLLOW);

	rcp_part_close(&at);
	if (rc < 0)
		return errno == ENOENT ? 0 : -1;
	*exists = true;
	*same = id && S_ISREG(st->st_mode) && (uint64_t)st->st_size == id->size &&
		same_time(&st->st_mtim, id->mtime_s, id->mtime_ns, kept && kept->local);
	return 0;
}
