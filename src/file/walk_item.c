/* A name made into an entry. */
#include "file/confine.h"
#include "file/io.h"
#include "file/meta.h"
#include "file/sink.h"
#include "file/walk_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int rcp_walk_fail(const struct rcp_walk *w, struct rcp_err *err, int sys_errno, const char *call)
{
	rcp_io_fail(err, sys_errno, call, w->open);
	return -1;
}

static int skip(struct rcp_walk *w, bool warning, struct rcp_err *err, const char *why,
		const char *fix)
{
	w->warning = warning;
	rcp_err_set(err, RCP_E_PARTIAL, 0, "", w->open, "%s", why);
	rcp_err_fix(err, "%s", fix);
	return -1;
}

/* All that stat knows. */
static void fill(struct rcp_walk *w, const struct stat *st, enum rcp_entry_type type,
		 struct rcp_rec_entry *e)
{
	*e = (struct rcp_rec_entry){
		.type = (uint8_t)type,
		.mode = st->st_mode & 07777u,
		.mtime_s = (uint64_t)st->st_mtim.tv_sec,
		.mtime_ns = (uint32_t)st->st_mtim.tv_nsec,
		.atime_s = (uint64_t)st->st_atim.tv_sec,
		.atime_ns = (uint32_t)st->st_atim.tv_nsec,
		.uid = st->st_uid,
		.gid = st->st_gid,
		.dev = st->st_dev,
		.ino = st->st_ino,
		.ctime = (uint64_t)st->st_ctim.tv_sec * 1000000000 + (uint64_t)st->st_ctim.tv_nsec,
		.path = w->wire_len ? rcp_span_of(w->wire, w->wire_len) : rcp_span_str("."),
		.flags = w->inside ? RCP_ENTRY_INSIDE : 0,
	};
	if (!w->opt.archive)
		return;
	rcp_id_name(RCP_ID_USER, st->st_uid, w->user);
	rcp_id_name(RCP_ID_GROUP, st->st_gid, w->group);
	e->user = rcp_span_str(w->user);
	e->group = rcp_span_str(w->group);
}

/*
 * For -a. By fd, or by the name in the directory's descriptor, so that no symlink put
 * into the tree meanwhile leads elsewhere. What can't be read is told after the entry.
 */
static void read_xattrs(struct rcp_walk *w, int fd, int dirfd, const char *name, uint8_t **out,
			uint32_t *len)
{
	struct rcp_err err = {0};
	bool truncated;
	int parent = -1;

	if (fd < 0 && dirfd == AT_FDCWD && rcp_confined())
		dirfd = parent = rcp_place_parent(w->open, &name);
	if (fd < 0 && dirfd != AT_FDCWD)
		rcp_meta_read_xattrs_at(dirfd, name, &err, out, len, &truncated);
	else
		rcp_meta_read_xattrs(fd, w->open, &err, out, len, &truncated);
	rcp_io_close(&parent);
	if (rcp_err_is(&err)) /* by the name the user knows */
		rcp_err_set(&w->later, RCP_E_PARTIAL, err.sys_errno, err.call, w->open,
			    "its extended attributes can't be read");
	else if (truncated)
		rcp_err_set(&w->later, RCP_E_PARTIAL, 0, "getxattr", w->open,
			    "some of its extended attributes are left out: over 128 KiB, or "
			    "unreadable");
}

static int emit(struct rcp_walk *w, bool nofollow, struct rcp_walk_item *item)
{
	item->open_path = w->open;
	item->nofollow = nofollow;
	if (w->depth == 0)
		item->entry.flags |= RCP_ENTRY_TOP;
	return 1;
}

int rcp_walk_dir_item(struct rcp_walk *w, enum rcp_entry_type type, struct rcp_walk_item *item)
{
	struct rcp_frame *f = rcp_walk_top(w);

	rcp_walk_rewind(w);
	fill(w, &f->st, type, &item->entry);
	item->entry.xattrs = rcp_span_of(f->xattrs, f->xattrs_len);
	item->open_path = w->open;
	item->nofollow = f->nofollow;
	if (w->depth == 1)
		item->entry.flags |= RCP_ENTRY_TOP;
	if (f->implied)
		item->entry.flags |= RCP_ENTRY_WAY;
	if (type == RCP_ENTRY_DIR_END) {
		w->xattrs = f->xattrs; /* they outlive the frame until the next call */
		f->xattrs = NULL;
	}
	return 1;
}

static bool is_ancestor(const struct rcp_walk *w, const struct stat *st)
{
	for (size_t i = w->depth; i-- > 0;) {
		if (rcp_io_same(&w->stack[i].st, st))
			return true;
	}
	return false;
}

/* The directory that all goes into, or the one that is made there under a new name. */
static bool is_target(const struct rcp_walk *w, const struct stat *st)
{
	const struct rcp_target *t = w->opt.target;
	struct stat to;

	if (!t || t->root < 0)
		return false;
	return (t->rename ? fstatat(t->root, t->rename, &to, AT_SYMLINK_NOFOLLOW) : fstat(t->root, &to)) == 0 &&
	       rcp_io_same(&to, st);
}

static int visit_dir(struct rcp_walk *w, int dirfd, const char *name, bool nofollow,
		     const struct stat *st, struct rcp_walk_item *item, struct rcp_err *err)
{
	if (!w->opt.recursive)
		return skip(w, false, err, "not a regular file, but a directory",
			    "use -r to copy directories");
	if (is_ancestor(w, st))
		return skip(w, true, err, "skipped: leads back to a directory that it is in",
			    "use -a to copy symlinks as symlinks");
	if (is_target(w, st))
		return skip(w, w->depth != 0, err,
			    w->depth ? "skipped: the target of this very copy" : "can't be copied into itself",
			    "copy to a directory outside of the source");
	if (rcp_walk_enter(w, dirfd, name, nofollow, false, err))
		return -1;
	struct rcp_frame *f = rcp_walk_top(w);

	if (w->opt.archive)
		read_xattrs(w, f->fd, -1, NULL, &f->xattrs, &f->xattrs_len);
	return rcp_walk_dir_item(w, RCP_ENTRY_DIR, item);
}

/* Blocks that are missing are holes, or compression: looked at closely when it is read. */
static bool has_holes(const struct stat *st)
{
	return st->st_size >= 4096 && (uint64_t)st->st_blocks * 512 < (uint64_t)st->st_size;
}

static enum rcp_entry_type type_of(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFREG:
		return RCP_ENTRY_FILE;
	case S_IFLNK:
		return RCP_ENTRY_SYMLINK;
	case S_IFIFO:
		return RCP_ENTRY_FIFO;
	case S_IFCHR:
		return RCP_ENTRY_CHR;
	case S_IFBLK:
		return RCP_ENTRY_BLK;
	default:
		return RCP_ENTRY_SOCK;
	}
}

static int read_link(struct rcp_walk *w, int dirfd, const char *name, struct rcp_rec_entry *e,
		     struct rcp_err *err)
{
	ssize_t n = rcp_place_readlink(dirfd, name, w->open, w->link, sizeof(w->link));

	if (n < 0)
		return rcp_walk_fail(w, err, errno, "readlink");
	if (n == (ssize_t)sizeof(w->link))
		return rcp_walk_fail(w, err, ENAMETOOLONG, "readlink");
	e->link = rcp_span_of(w->link, (size_t)n);
	return 0;
}

/* Anything but a directory. */
static int visit_leaf(struct rcp_walk *w, int dirfd, const char *name, bool nofollow,
		      const struct stat *st, struct rcp_walk_item *item, struct rcp_err *err)
{
	enum rcp_entry_type type = type_of(st->st_mode);
	const char *first = NULL;

	if (type != RCP_ENTRY_FILE && !w->opt.archive)
		return skip(w, w->depth != 0, err,
			    w->depth ? "skipped: a device, FIFO or socket" : "not a regular file",
			    "use -a to copy such entries as what they are");
	fill(w, st, type, &item->entry);
	if (w->opt.archive && st->st_nlink > 1 &&
	    rcp_links_seen(&w->links, st->st_dev, st->st_ino, w->wire, &first))
		return rcp_walk_fail(w, err, ENOMEM, "malloc");
	if (first) {
		item->entry.type = RCP_ENTRY_HARDLINK;
		item->entry.link = rcp_span_str(first);
		return emit(w, nofollow, item);
	}
	if (type == RCP_ENTRY_FILE) {
		item->entry.size = (uint64_t)st->st_size;
		item->entry.flags |= has_holes(st) ? RCP_ENTRY_SPARSE : 0;
	} else if (type == RCP_ENTRY_CHR || type == RCP_ENTRY_BLK) {
		item->entry.rdev = st->st_rdev;
	} else if (type == RCP_ENTRY_SYMLINK && read_link(w, dirfd, name, &item->entry, err)) {
		return -1;
	}
	if (w->opt.archive) {
		read_xattrs(w, -1, dirfd, name, &w->xattrs, &w->xattrs_len);
		item->entry.xattrs = rcp_span_of(w->xattrs, w->xattrs_len);
	}
	return emit(w, nofollow, item);
}

/* Where the argument's own name is not in the path all of it is below the directory that patterns start at. */
bool rcp_walk_excluded(const struct rcp_walk *w, bool is_dir)
{
	const char *first = strchr(w->wire, '/'), *last = strrchr(w->wire, '/');
	const char *below = w->opt.pairs || w->inside ? w->wire : first ? first + 1 : "";

	if (!w->wire_len)
		return false;
	return rcp_excluded(w->excludes, below, last ? last + 1 : w->wire, is_dir);
}

int rcp_walk_visit(struct rcp_walk *w, int dirfd, const char *name, bool follow,
		   struct rcp_walk_item *item, struct rcp_err *err)
{
	struct stat st;

	if (rcp_place_stat(dirfd, name, w->open, follow, &st) < 0)
		return rcp_walk_fail(w, err, errno, "stat");
	if (rcp_walk_excluded(w, S_ISDIR(st.st_mode)) || rcp_walk_was_listed(w))
		return 0;
	if (rcp_walk_met(w, &st, err))
		return -1;
	return S_ISDIR(st.st_mode) ? visit_dir(w, dirfd, name, !follow, &st, item, err)
				   : visit_leaf(w, dirfd, name, !follow, &st, item, err);
}
