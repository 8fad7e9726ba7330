#include "file/part.h"

#include "file/confine.h"
#include "file/io.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

static uint64_t fnv1a(const char *s, size_t len)
{
	uint64_t h = UINT64_C(0xcbf29ce484222325);

	for (size_t i = 0; i < len; i++)
		h = (h ^ (unsigned char)s[i]) * UINT64_C(0x100000001b3);
	return h;
}

void rcp_part_name(const char *leaf, const char *suffix, char out[NAME_MAX + 1])
{
	size_t len = strlen(leaf), room = NAME_MAX - 1 - strlen(RCP_JOURNAL_SUFFIX);

	/* One limit for every suffix: all of a target's names have the same stem. */
	if (len <= room) {
		snprintf(out, NAME_MAX + 1, ".%s%s", leaf, suffix);
		return;
	}
	size_t cut = room - 17;

	while (cut && ((unsigned char)leaf[cut] & 0xc0) == 0x80)
		cut--;
	snprintf(out, NAME_MAX + 1, ".%.*s~%016" PRIx64 "%s", (int)cut, leaf, fnv1a(leaf, len),
		 suffix);
}

/* What may be the partial file of another entry can't be an entry itself: one would end as the other. */
bool rcp_part_name_is_own(const char *leaf)
{
	static const char *const suffixes[] = {RCP_PART_SUFFIX, RCP_JOURNAL_SUFFIX, RCP_MAKE_SUFFIX,
					     RCP_NEW_SUFFIX, RCP_DONE_SUFFIX};
	size_t len = strlen(leaf);

	for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
		size_t n = strlen(suffixes[i]);

		if (leaf[0] == '.' && len > n + 1 && strcmp(leaf + len - n, suffixes[i]) == 0)
			return true;
	}
	return false;
}

bool rcp_part_path_is_own(const char *path)
{
	char name[NAME_MAX + 1];

	while (*path) {
		size_t len = strcspn(path, "/");

		if (len && len < sizeof(name)) {
			memcpy(name, path, len);
			name[len] = 0;
			if (rcp_part_name_is_own(name))
				return true;
		}
		path += len + (path[len] == '/');
	}
	return false;
}

int rcp_part_refuse(const char *shown, struct rcp_err *err)
{
	rcp_err_set(err, RCP_E_PARTIAL, 0, "open", shown,
		    "names like this are kept for rcp's own partial files: left out");
	rcp_err_fix(err, "if a copy was cut off there, finish it or remove what it left; otherwise "
			 "give it another name");
	return RCP_E_PARTIAL;
}

int rcp_part_check_name(const char *path, const char *shown, struct rcp_err *err)
{
	const char *why = rcp_path_refuse(path, strlen(path)), *slash = strrchr(path, '/');

	if (why)
		return rcp_err_set(err, RCP_E_PARTIAL, EINVAL, "open", shown,
				   "a name that is not taken from a peer: %s", why);
	return rcp_part_name_is_own(slash ? slash + 1 : path) ? rcp_part_refuse(shown, err) : 0;
}

int rcp_part_locate(int root, const char *path, const char *shown, struct rcp_kept_dir *kept,
		    struct rcp_err *err, struct rcp_part *part)
{
	const char *leaf;

	*part = (struct rcp_part){.dir = -1, .fd = -1, .shown = shown, .kept = kept};
	if (rcp_part_check_name(path, shown, err))
		return (int)err->code;
	part->dir = kept ? rcp_kept_parent(kept, root, path, &leaf) : rcp_beneath_parent(root, path, &leaf);
	if (part->dir < 0) {
		int e = errno;

		rcp_io_fail(err, e, "open directory", shown);
		if (e == ENOENT)
			rcp_err_fix(err, "create its directory first");
		return (int)err->code;
	}
	part->local = kept && kept->local;
	part->memory = kept && kept->memory;
	snprintf(part->leaf, sizeof(part->leaf), "%s", leaf);
	rcp_part_name(leaf, RCP_PART_SUFFIX, part->name);
	rcp_part_name(leaf, RCP_JOURNAL_SUFFIX, part->journal);
	return 0;
}

/* The directory itself is gone: more than a name in it. */
static bool dir_gone(const struct rcp_part *part, const char *call, struct rcp_err *err)
{
	struct stat st;

	if (fstat(part->dir, &st) < 0 || st.st_nlink)
		return false;
	rcp_err_set(err, RCP_E_PARTIAL, ENOENT, call, part->shown,
		    "its directory was removed while the copy ran");
	rcp_err_fix(err, "make it again and run the same command again");
	return true;
}

static int refuse_type(const struct rcp_part *part, mode_t mode, struct rcp_err *err)
{
	if (S_ISREG(mode) || S_ISLNK(mode))
		return 0;
	if (S_ISDIR(mode)) {
		rcp_err_set(err, RCP_E_PARTIAL, EISDIR, "rename", part->shown,
			    "a directory has this name, and a file can't replace it");
		rcp_err_fix(err, "remove the directory or choose another target");
		return RCP_E_PARTIAL;
	}
	rcp_err_set(err, RCP_E_PARTIAL, 0, "rename", part->shown,
		    "a device, FIFO or socket has this name: only files are replaced");
	rcp_err_fix(err, "remove it or choose another target");
	return RCP_E_PARTIAL;
}

int rcp_part_check_target(const struct rcp_part *part, struct rcp_err *err)
{
	struct stat st;

	if (fstatat(part->dir, part->leaf, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : rcp_io_fail(err, errno, "fstatat", part->shown);
	if (refuse_type(part, st.st_mode, err))
		return (int)err->code;
	/* /dev/stdout is a symlink: what it leads to counts, where it leads somewhere. In a module it is
	 * replaced, and nobody learns what is outside. */
	if (S_ISLNK(st.st_mode) && !rcp_confined() && fstatat(part->dir, part->leaf, &st, 0) == 0)
		return refuse_type(part, st.st_mode, err);
	return 0;
}

/* 1 yes, 0 no, -1 with errno: there is no knowing. */
static int name_is_ours(const struct rcp_part *part, const struct stat *own)
{
	struct stat st;

	if (fstatat(part->dir, part->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -1;
	return rcp_io_same(&st, own);
}

#define LOCK_NAP_MS 50

/* Open, creating or found. -1 with errno; EAGAIN: the name was cleared, come again. */
static int open_either(struct rcp_part *part)
{
	struct stat st;

	part->fd = openat(part->dir, part->name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
			  0600);
	part->found = part->fd < 0;
	if (part->fd >= 0 || errno != EEXIST)
		return part->fd < 0 ? -1 : 0;
	part->fd = openat(part->dir, part->name,
			  O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (part->fd >= 0 && fstat(part->fd, &st) == 0 && S_ISREG(st.st_mode) &&
	    st.st_uid == geteuid() && st.st_nlink == 1)
		return 0;
	rcp_io_close(&part->fd);
	if (errno == EMFILE || errno == ENFILE || errno == ENOMEM)
		return -1;
	if (unlinkat(part->dir, part->name, 0) < 0 && errno != ENOENT)
		return -1;
	errno = EAGAIN;
	return -1;
}

static int taken(const struct rcp_part *part, struct rcp_err *err)
{
	rcp_err_set(err, RCP_E_IO, 0, "flock", part->shown, "another rcp is writing this file");
	rcp_err_fix(err, "let it finish or end it, then run the same command again");
	return RCP_E_IO;
}

/* 0 locked and still the named file; -1 with errno: EAGAIN come again, EWOULDBLOCK is EAGAIN on
 * Linux, so EBUSY stands for "taken". */
static int lock_and_compare(struct rcp_part *part)
{
	struct stat st;

	if (flock(part->fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK) {
		errno = EBUSY;
		return -1;
	}
	/* Any other answer: a file system without locks. Two copies are the user's to avoid there.
	 */
	int ours = fstat(part->fd, &st) < 0 ? -1 : name_is_ours(part, &st);

	if (!ours)
		errno = EAGAIN; /* its writer was just done with it */
	if (ours <= 0)
		return -1;
	/* The umask took bits away when it was made; 0600 whatever it is. */
	if ((st.st_mode & 07777) != 0600 && fchmod(part->fd, 0600) < 0 && errno != EPERM)
		return -1;
	return 0;
}

static int not_created(const struct rcp_part *part, int e, struct rcp_err *err)
{
	if (e == ENOENT && dir_gone(part, "create", err))
		return (int)err->code;
	rcp_io_fail(err, e, "create", part->shown);
	if (e == EACCES)
		rcp_err_fix(err, "its directory must be writable: rcp writes %s and renames it",
			    part->name);
	return (int)err->code;
}

/* True: look again. The holder may be the run that this one takes up, on its way to its end. */
static bool wait_for_lock(struct rcp_part *part)
{
	struct timespec nap = {.tv_nsec = LOCK_NAP_MS * 1000000L};

	if (part->wait_ms < LOCK_NAP_MS)
		return false;
	part->wait_ms -= LOCK_NAP_MS;
	nanosleep(&nap, NULL);
	errno = EAGAIN;
	return true;
}

int rcp_part_open(struct rcp_part *part, struct rcp_err *err)
{
	for (unsigned most = 16 + part->wait_ms / LOCK_NAP_MS; most; most--) {
		if (open_either(part) == 0) {
			if (lock_and_compare(part) == 0)
				return 0;
			rcp_io_close(&part->fd);
			if (errno == EBUSY && !wait_for_lock(part))
				return taken(part, err);
		}
		if (errno != EAGAIN)
			return not_created(part, errno, err);
	}
	return taken(part, err);
}

/* Somebody else's file must not be renamed to the target because it has our name now. */
static int still_ours(const struct rcp_part *part, struct rcp_err *err)
{
	struct stat st;

	int ours = fstat(part->fd, &st) < 0 ? -1 : name_is_ours(part, &st);

	if (ours < 0)
		return rcp_io_fail(err, errno, "fstat", part->shown);
	if (ours)
		return 0;
	if (dir_gone(part, "rename", err))
		return (int)err->code;
	rcp_err_set(err, RCP_E_PARTIAL, 0, "rename", part->shown,
		    "its partial file %s was removed or replaced while it was written", part->name);
	rcp_err_fix(err, "let nothing else touch it and run the same command again");
	return RCP_E_PARTIAL;
}

int rcp_part_place(struct rcp_part *part, bool target_checked, struct rcp_err *err)
{
	int rc = still_ours(part, err);

	if (rc)
		return rc;
	if (!target_checked) {
		/* The usual case, a new name, costs one call. */
		rc = renameat2(part->dir, part->name, part->dir, part->leaf, RENAME_NOREPLACE);
		part->placed = rc == 0;
		if (part->placed)
			return 0;
		if (rcp_part_check_target(part, err))
			return (int)err->code;
	}
	if (renameat(part->dir, part->name, part->dir, part->leaf) < 0)
		return rcp_io_fail(err, errno, "rename", part->shown);
	part->placed = true;
	return 0;
}

void rcp_part_remove(struct rcp_part *part)
{
	struct stat st;

	if (part->fd >= 0 && !part->placed && fstat(part->fd, &st) == 0 && name_is_ours(part, &st) > 0)
		unlinkat(part->dir, part->name, 0);
}

void rcp_part_close(struct rcp_part *part)
{
	rcp_io_close(&part->fd);
	if (!part->kept)
		rcp_io_close(&part->dir);
	part->dir = -1;
}
