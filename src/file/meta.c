#include "file/meta.h"

#include "file/confine.h"
#include "file/ids.h"
#include "file/io.h"
#include "file/xattr.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int malformed(struct rcp_err *err, const struct rcp_rec_entry *e, const char *what)
{
	char path[RCP_STR_MAX + 1];

	return rcp_err_set(err, RCP_E_CONNECT, 0, "", rcp_span_copy(e->path, path, sizeof(path)),
			   "the peer broke the protocol: %s of an entry", what);
}

static uint32_t number_of(enum rcp_id_kind kind, struct rcp_span name, uint32_t id, bool numeric)
{
	return numeric ? id : rcp_id_number(kind, (const char *)name.data, name.len, id);
}

/* What serves a module lets nobody make programs there that run as its user. Of a directory the setgid
 * bit means something else. */
static uint32_t mode_most(const struct rcp_rec_entry *entry)
{
	bool dir = entry->type == RCP_ENTRY_DIR || entry->type == RCP_ENTRY_DIR_END;

	return rcp_confined() && !dir ? 01777u : 07777u;
}

int rcp_meta_of(const struct rcp_rec_entry *entry, const struct rcp_meta_options *options,
		struct rcp_err *err, struct rcp_meta *out)
{
	bool exact = options->times || options->archive;

	*out = (struct rcp_meta){
		.mode = exact ? entry->mode & mode_most(entry)
			      : entry->mode & 0777u & ~(uint32_t)options->umask,
		.new_mode = !exact,
		.set_times = exact,
		.lost = exact && (entry->mode & 07777u & ~mode_most(entry)) ? RCP_LOST_MODE : 0,
		.set_owner = options->archive,
		.mtime = {.tv_sec = (time_t)entry->mtime_s, .tv_nsec = (long)entry->mtime_ns},
		.atime = {.tv_sec = (time_t)entry->atime_s, .tv_nsec = (long)entry->atime_ns},
		.uid = entry->uid,
		.gid = entry->gid,
	};
	/* UTIME_NOW and UTIME_OMIT are such numbers too. */
	if (entry->mtime_ns >= 1000000000 || entry->atime_ns >= 1000000000)
		return malformed(err, entry, "a time");
	if (!options->archive)
		return 0;
	out->uid = number_of(RCP_ID_USER, entry->user, entry->uid, options->numeric_ids);
	out->gid = number_of(RCP_ID_GROUP, entry->group, entry->gid, options->numeric_ids);
	if (entry->xattrs.len == 0)
		return 0;
	if (!rcp_xattrs_valid(entry->xattrs.data, entry->xattrs.len))
		return malformed(err, entry, "an extended attribute");
	out->xattrs = malloc(entry->xattrs.len);
	if (!out->xattrs)
		return rcp_io_fail(err, ENOMEM, "malloc", NULL);
	memcpy(out->xattrs, entry->xattrs.data, entry->xattrs.len);
	out->xattrs_len = (uint32_t)entry->xattrs.len;
	return 0;
}

void rcp_meta_free(struct rcp_meta *meta)
{
	free(meta->xattrs);
	meta->xattrs = NULL;
	meta->xattrs_len = 0;
}

/* Where it goes: an open file, or a name in a directory that is not followed. */
struct place {
	int fd, dir;
	const char *leaf;
	const char *name;
	bool symlink;
	char path[NAME_MAX + 64]; /* for calls that know no directory: /proc/self/fd/<dir>/<leaf> */
};

static int chown_place(const struct place *p, uid_t uid, gid_t gid)
{
	return p->fd >= 0 ? fchown(p->fd, uid, gid)
			  : fchownat(p->dir, p->leaf, uid, gid, AT_SYMLINK_NOFOLLOW);
}

/* Not root: the group alone may be allowed. */
static unsigned apply_owner(const struct place *p, const struct rcp_meta *meta)
{
	if (chown_place(p, (uid_t)meta->uid, (gid_t)meta->gid) == 0)
		return 0;
	if (geteuid() == meta->uid && chown_place(p, (uid_t)-1, (gid_t)meta->gid) == 0)
		return 0;
	if (geteuid() != meta->uid)
		chown_place(p, (uid_t)-1, (gid_t)meta->gid);
	return RCP_LOST_OWNER;
}

/* chmod of a name that must not be followed: through an O_PATH descriptor and /proc. */
static int chmod_name(const struct place *p, mode_t mode)
{
	char link[64];
	struct stat st;
	int rc, fd = openat(p->dir, p->leaf, O_PATH | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0 || fstat(fd, &st) < 0 || S_ISLNK(st.st_mode)) {
		rcp_io_close(&fd);
		return -1;
	}
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	rc = chmod(link, mode);
	rcp_io_close(&fd);
	return rc;
}

static int apply_mode(const struct place *p, uint32_t mode, struct rcp_err *err, unsigned *lost)
{
	int rc = p->fd >= 0 ? fchmod(p->fd, (mode_t)mode) : chmod_name(p, (mode_t)mode);

	if (rc == 0)
		return 0;
	if (errno == EIO || errno == EROFS)
		return rcp_io_fail(err, errno, "chmod", p->name);
	*lost |= RCP_LOST_MODE;
	return 0;
}

static int apply_times(const struct place *p, const struct rcp_meta *meta, struct rcp_err *err,
		       unsigned *lost)
{
	struct timespec ts[2] = {meta->atime, meta->mtime};
	int rc = p->fd >= 0 ? futimens(p->fd, ts)
			    : utimensat(p->dir, p->leaf, ts, AT_SYMLINK_NOFOLLOW);

	if (rc == 0)
		return 0;
	if (errno == EIO || errno == EROFS)
		return rcp_io_fail(err, errno, "utimensat", p->name);
	*lost |= RCP_LOST_TIMES;
	return 0;
}

/* An owner who may not write to a file may not change its user.* attributes, but may let himself. */
static bool make_writable(const struct place *p)
{
	struct stat st;
	int rc = p->fd >= 0 ? fstat(p->fd, &st) : fstatat(p->dir, p->leaf, &st, AT_SYMLINK_NOFOLLOW);
	mode_t mode;

	if (rc < 0 || p->symlink || st.st_uid != geteuid() || st.st_mode & S_IWUSR)
		return false;
	mode = (st.st_mode & 07777u) | S_IWUSR;
	return (p->fd >= 0 ? fchmod(p->fd, mode) : chmod_name(p, mode)) == 0;
}

static unsigned apply_xattrs(const struct place *p, const struct rcp_meta *meta, bool capabilities, struct rcp_err *err)
{
	unsigned lost = rcp_xattrs_apply(p->fd, p->path, p->name, meta->xattrs, meta->xattrs_len, capabilities, err);

	if (lost && make_writable(p))
		lost = rcp_xattrs_apply(p->fd, p->path, p->name, meta->xattrs, meta->xattrs_len, capabilities, err);
	return lost;
}

/* chown clears setuid and capabilities, an ACL moves the mode's group bits, all move times. */
static int apply(const struct place *p, const struct rcp_meta *meta, struct rcp_err *err,
		 unsigned *lost)
{
	uint32_t mode = meta->mode;

	*lost |= meta->lost;
	if (meta->set_owner) {
		*lost |= apply_owner(p, meta);
		*lost |= apply_xattrs(p, meta, !(*lost & RCP_LOST_OWNER) && !rcp_confined(), err);
		/* Never a program that runs as somebody it was not meant to run as. */
		if (*lost & RCP_LOST_OWNER && mode & 06000u) {
			mode &= ~06000u;
			*lost |= RCP_LOST_MODE;
		}
	}
	if (!rcp_err_is(err) && !p->symlink)
		apply_mode(p, mode, err, lost);
	if (!rcp_err_is(err) && meta->set_times)
		apply_times(p, meta, err, lost);
	return (int)err->code;
}

int rcp_meta_apply(int fd, const char *name, const struct rcp_meta *meta, struct rcp_err *err,
		   unsigned *lost)
{
	struct place p = {.fd = fd, .dir = -1, .name = name};

	assert(fd >= 0);
	*lost = 0;
	return apply(&p, meta, err, lost);
}

int rcp_meta_apply_at(int dirfd, const char *leaf, const char *name, const struct rcp_meta *meta,
		      struct rcp_err *err, unsigned *lost)
{
	struct place p = {.fd = -1, .dir = dirfd, .leaf = leaf, .name = name};
	struct stat st;

	*lost = 0;
	if (fstatat(dirfd, leaf, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return rcp_io_fail(err, errno, "fstatat", name);
	p.symlink = S_ISLNK(st.st_mode);
	snprintf(p.path, sizeof(p.path), "/proc/self/fd/%d/%s", dirfd, leaf);
	return apply(&p, meta, err, lost);
}
