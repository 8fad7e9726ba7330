#include "file/io.h"

#include "base/pool.h"
#include "file/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>
#include <unistd.h>

enum rcp_code rcp_io_code(int sys_errno)
{
	switch (sys_errno) {
	case ENOSPC:
	case EDQUOT:
	case EFBIG:
	case EIO:
	case EROFS:
	case ENOMEM:
		return RCP_E_IO;
	default:
		return RCP_E_PARTIAL;
	}
}

static const char *usual_fix(int sys_errno)
{
	switch (sys_errno) {
	case ENOSPC:
		return "free space there, then run the same command again";
	case EDQUOT:
		return "free space within the quota or have it raised, then run the same command "
		       "again";
	case EFBIG:
		return "see ulimit -f and the file system's largest file";
	case EROFS:
		return "the file system is mounted read-only";
	case EMFILE:
		return "raise the limit on open files: ulimit -n";
	case ENFILE:
		return "the system is out of open files: see fs.file-max";
	case EXDEV:
		if (rcp_confined())
			return "a symlink on the way is absolute or leads up too far";
		return "a symlink on the way leads out of the target directory: name its real "
		       "place";
	default:
		return NULL;
	}
}

int rcp_io_fail(struct rcp_err *err, int sys_errno, const char *call, const char *object)
{
	const char *fix = usual_fix(sys_errno);

	if (sys_errno == EXDEV)
		rcp_err_set(err, rcp_io_code(sys_errno), sys_errno, call, object, "leads out of %s",
			    rcp_confined() ? rcp_confined_what() : "the target directory");
	else
		rcp_err_set(err, rcp_io_code(sys_errno), sys_errno, call, object, NULL);
	if (fix)
		rcp_err_fix(err, "%s", fix);
	return (int)err->code;
}

ssize_t rcp_io_pread(int fd, void *buf, size_t len, uint64_t offset)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = pread(fd, (char *)buf + done, len - done, (off_t)(offset + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		if (n == 0)
			break;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

int rcp_io_pwrite(int fd, const void *buf, size_t len, uint64_t offset)
{
	while (len) {
		ssize_t n = pwrite(fd, buf, len, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			errno = n ? errno : ENOSPC; /* POSIX leaves 0 open; never spin on it */
			return -1;
		}
		buf = (const char *)buf + n;
		len -= (size_t)n;
		offset += (uint64_t)n;
	}
	return 0;
}

int rcp_io_truncate(int fd, uint64_t size)
{
	int rc;

	do
		rc = ftruncate(fd, (off_t)size);
	while (rc < 0 && errno == EINTR);
	return rc;
}

ssize_t rcp_io_pread_direct(int fd, void *buf, size_t len, uint64_t offset)
{
	size_t whole = (len + RCP_DIRECT_ALIGN - 1) & ~(size_t)(RCP_DIRECT_ALIGN - 1);
	size_t done = 0, end = 0;

	while (done < len) {
		ssize_t n = pread(fd, (char *)buf + done, whole - done, (off_t)(offset + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		size_t odd = (size_t)n % RCP_DIRECT_ALIGN;

		done += (size_t)n - odd;
		/* To ask on from an odd count would be unaligned. The same one twice is the end of the file. */
		if (n == 0 || done + odd >= len || (odd && odd == end)) {
			done += odd;
			break;
		}
		end = odd;
	}
	return (ssize_t)(done < len ? done : len);
}

bool rcp_io_stopped(uint64_t len, const char *object, struct rcp_err *err)
{
	rcp_work_moved(len);
	if (!rcp_work_unwanted())
		return false;
	rcp_err_set(err, RCP_E_LINK, 0, "", object, "the copy ended while it was read back");
	return true;
}

void rcp_io_close(int *fd)
{
	int saved = errno;

	if (*fd >= 0)
		close(*fd);
	*fd = -1;
	errno = saved;
}

int rcp_io_sync_dir(int dir)
{
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int rc = fd < 0 ? -1 : fsync(fd);

	rcp_io_close(&fd);
	return rc;
}

/*
 * How a file system keeps data and names in order.
 *
 * ext4 and xfs write a name (their log) every few seconds, and data that nobody waits for up to half
 * a minute later: after a power cut in between, a renamed file has its times and is empty or, where
 * it was preallocated, has its size and holds zeros. But both end the writeback of a page only after
 * the extents and the size that it needs are in the log, and the log is written in order, with a
 * flush of the disk's cache before each commit. So a rename that is made when the data has been
 * written, flushed or not, is never on the disk without it, and waiting for the writeback is enough.
 * tests/vm/power.sh cuts the power of a disk that loses and reorders all that it may. fdatasync would
 * make each file wait for a commit of the log and a flush: 10 000 small files took 1.5 s with
 * nothing, 1.9 to 2.9 s with this and 3.1 s with that (ext4 on a memory disk, where a flush is free).
 * (ext2, and ext4 without a journal, order nothing at all, and a check after a cut is theirs.)
 *
 * Nothing of the kind is known of others, and there it is fdatasync. tmpfs has nothing to lose.
 */
enum order { ORDER_NONE, ORDER_WRITEBACK, ORDER_SYNC };

#ifndef XFS_SUPER_MAGIC
#define XFS_SUPER_MAGIC 0x58465342
#endif

static enum order order_of(int fd)
{
	struct statfs fs;

	if (fstatfs(fd, &fs) < 0)
		return ORDER_SYNC;
	if (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC)
		return ORDER_NONE;
	return fs.f_type == EXT4_SUPER_MAGIC || fs.f_type == XFS_SUPER_MAGIC ? ORDER_WRITEBACK :
									       ORDER_SYNC;
}

void rcp_io_settle_start(int fd, uint64_t offset, uint64_t len)
{
	(void)sync_file_range(fd, (off_t)offset, (off_t)len, SYNC_FILE_RANGE_WRITE);
}

int rcp_io_settle(int fd)
{
	switch (order_of(fd)) {
	case ORDER_NONE:
		return 0;
	case ORDER_WRITEBACK:
		if (sync_file_range(fd, 0, 0,
				    SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
					    SYNC_FILE_RANGE_WAIT_AFTER) == 0)
			return 0;
		if (errno != ENOSYS && errno != EOPNOTSUPP && errno != EPERM) /* a filter's words */
			return -1;
		break;
	case ORDER_SYNC:
		break;
	}
	return fdatasync(fd);
}

/* The home of the user of that name, of ourselves for "". Malloc'ed or NULL. */
static char *home_of(const char *user, size_t len)
{
	const char *env = len ? NULL : getenv("HOME");
	char name[256], *buf, *home = NULL;
	struct passwd pw, *found = NULL;

	if (env && env[0] == '/')
		return strdup(env);
	if (len >= sizeof(name) || !(buf = malloc(65536)))
		return NULL;
	memcpy(name, user, len);
	name[len] = 0;
	if (len)
		getpwnam_r(name, &pw, buf, 65536, &found);
	else
		getpwuid_r(getuid(), &pw, buf, 65536, &found);
	if (found && found->pw_dir)
		home = strdup(found->pw_dir);
	free(buf);
	return home;
}

char *rcp_io_expand_home(const char *path)
{
	size_t user = strcspn(path, "/");
	char *home = path[0] == '~' && !rcp_confined() ? home_of(path + 1, user - 1) : NULL, *whole;

	if (!home)
		return strdup(path);
	if (asprintf(&whole, "%s%s", home, path + user) < 0)
		whole = NULL;
	free(home);
	return whole;
}

bool rcp_io_is_tmpfs(int fd)
{
	struct statfs fs;

	return fstatfs(fd, &fs) == 0 && (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC);
}
