#include "file/xattr.h"

#include "base/bytes.h"
#include "file/io.h"
#include "file/meta.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#define ACL_ACCESS     "system.posix_acl_access"
#define ACL_DEFAULT    "system.posix_acl_default"
#define CAPABILITY     "security.capability"
#define NAME_BYTES_MAX 255 /* XATTR_NAME_MAX of the kernel */

/* Headers before Linux 6.13 do not name it; its number is the same on all new architectures. */
#if !defined(SYS_listxattrat) && ((defined(__x86_64__) && defined(__LP64__)) || defined(__aarch64__) || defined(__riscv))
#define SYS_listxattrat 465
#endif

static bool begins(const char *s, const char *prefix)
{
	return strncmp(s, prefix, strlen(prefix)) == 0;
}

static bool is_acl(const char *name)
{
	return strcmp(name, ACL_ACCESS) == 0 || strcmp(name, ACL_DEFAULT) == 0;
}

bool rcp_xattr_copied(const char *name)
{
	return (begins(name, "user.") && name[5]) || is_acl(name) ||
	       strcmp(name, CAPABILITY) == 0 ||
	       (begins(name, "trusted.") && name[8] && !begins(name, "trusted.overlay."));
}

/* The next record; its name NUL-terminated. As rcp_rec_next. */
static int next(struct rcp_rd *r, char name[NAME_BYTES_MAX + 1], struct rcp_span *value)
{
	struct rcp_rec_xattr rec;
	int rc = rcp_rec_next(r, RCP_REC_XATTR, &rec);

	if (rc <= 0)
		return rc;
	if (rec.name.len == 0 || rec.name.len > NAME_BYTES_MAX)
		return -1;
	rcp_span_copy(rec.name, name, NAME_BYTES_MAX + 1);
	*value = rec.value;
	return 1;
}

bool rcp_xattrs_valid(const uint8_t *records, size_t len)
{
	struct rcp_rd r = rcp_rd_of(records, len);
	char name[NAME_BYTES_MAX + 1];
	struct rcp_span value;
	int rc;

	while ((rc = next(&r, name, &value)) > 0) {
		if (!rcp_xattr_copied(name))
			return false;
	}
	return rc == 0 && len <= RCP_XATTRS_BYTES_MAX;
}

static unsigned lost_bit(const char *name)
{
	return is_acl(name) ? RCP_LOST_ACL : RCP_LOST_XATTR;
}

/* EIO and EROFS are the disk's; anything else is what this target does not take. */
static unsigned judge(int rc, const char *call, const char *attribute, const char *name,
		      struct rcp_err *err)
{
	if (rc == 0)
		return 0;
	if (errno == EIO || errno == EROFS) {
		rcp_io_fail(err, errno, call, name);
		return 0;
	}
	return lost_bit(attribute);
}

static unsigned set_one(int fd, const char *path, const char *name, const char *attribute,
			struct rcp_span value, struct rcp_err *err)
{
	int rc = fd >= 0 ? fsetxattr(fd, attribute, value.data, value.len, 0)
			 : lsetxattr(path, attribute, value.data, value.len, 0);

	return judge(rc, "setxattr", attribute, name, err);
}

static unsigned remove_one(int fd, const char *path, const char *name, const char *attribute,
			   struct rcp_err *err)
{
	int rc = fd >= 0 ? fremovexattr(fd, attribute) : lremovexattr(path, attribute);

	if (rc < 0 && (errno == ENODATA || errno == EOPNOTSUPP || errno == EINVAL || errno == ENOENT))
		return 0;
	return judge(rc, "removexattr", attribute, name, err);
}

static bool has_record(const uint8_t *records, size_t len, const char *attribute)
{
	struct rcp_rd r = rcp_rd_of(records, len);
	char name[NAME_BYTES_MAX + 1];
	struct rcp_span value;

	while (next(&r, name, &value) > 0) {
		if (strcmp(name, attribute) == 0)
			return true;
	}
	return false;
}

/* A list or value into memory that fits it; -1 with errno. It may grow between the two calls. */
static ssize_t get(int fd, const char *path, const char *attribute, char **out)
{
	for (int i = 0; i < 8; i++) {
		char *buf = NULL;
		ssize_t n = 0;

		for (int pass = 0; pass < 2; pass++) {
			size_t room = (size_t)n;

			if (pass && !(buf = malloc(room + 1)))
				return errno = ENOMEM, -1;
			if (attribute)
				n = fd >= 0 ? fgetxattr(fd, attribute, buf, room)
					    : lgetxattr(path, attribute, buf, room);
			else
				n = fd >= 0 ? flistxattr(fd, buf, room)
					    : llistxattr(path, buf, room);
			if (n <= 0)
				break;
		}
		if (n >= 0 && buf) {
			*out = buf;
			return n;
		}
		free(buf);
		if (n == 0 || errno != ERANGE)
			return n;
	}
	return -1;
}

/*
 * What is there and is not the source's: what a default ACL of its directory gave to a new file, and
 * what an earlier version of the source had, on a directory or on a partial file that was taken up.
 */
static unsigned remove_others(int fd, const char *path, const char *name, const uint8_t *records,
			      size_t len, struct rcp_err *err)
{
	char *list = NULL;
	ssize_t got = get(fd, path, NULL, &list);
	unsigned lost = 0;

	if (got < 0 && errno == EIO)
		rcp_io_fail(err, errno, "listxattr", name);
	for (ssize_t at = 0; at < got; at += (ssize_t)strlen(list + at) + 1) {
		list[got] = 0;
		if (rcp_xattr_copied(list + at) && !has_record(records, len, list + at))
			lost |= remove_one(fd, path, name, list + at, err);
	}
	free(list);
	return lost;
}

unsigned rcp_xattrs_apply(int fd, const char *path, const char *name, const uint8_t *records,
			  size_t len, bool capabilities, struct rcp_err *err)
{
	unsigned lost = remove_others(fd, path, name, records, len, err);
	char attribute[NAME_BYTES_MAX + 1];
	struct rcp_span value;

	/* ACLs last: one that makes the file read-only shuts its owner out of user.* attributes. */
	for (int acls = 0; acls < 2; acls++) {
		struct rcp_rd r = rcp_rd_of(records, len);

		while (next(&r, attribute, &value) > 0) {
			if (is_acl(attribute) != (acls == 1))
				continue;
			if (!capabilities && strcmp(attribute, CAPABILITY) == 0)
				lost |= RCP_LOST_XATTR;
			else
				lost |= set_one(fd, path, name, attribute, value, err);
		}
	}
	return lost;
}

static void add(struct rcp_wr *w, int fd, const char *path, const char *attribute, bool *truncated)
{
	char *value = NULL;
	ssize_t n = get(fd, path, attribute, &value);
	struct rcp_rec_xattr rec = {.name = rcp_span_str(attribute)};

	if (n < 0) {
		/* ENODATA: removed meanwhile. Anything else is an attribute that the copy lacks. */
		*truncated |= errno != ENODATA;
		return;
	}
	rec.value = rcp_span_of(value, (size_t)n);
	if (w->len + 2 + rec.name.len + 4 + rec.value.len > RCP_XATTRS_BYTES_MAX)
		*truncated = true;
	else
		rcp_rec_encode(w, RCP_REC_XATTR, &rec);
	free(value);
}

int rcp_meta_read_xattrs(int fd, const char *path, struct rcp_err *err, uint8_t **out,
			 uint32_t *out_len, bool *truncated)
{
	struct rcp_wr w = {.max = RCP_XATTRS_BYTES_MAX};
	char *list = NULL;
	ssize_t len = get(fd, path, NULL, &list);

	*out = NULL;
	*out_len = 0;
	*truncated = false;
	if (len < 0 && errno != EOPNOTSUPP && errno != ENOSYS)
		return rcp_io_fail(err, errno, "listxattr", path);
	for (ssize_t at = 0; at < len; at += (ssize_t)strlen(list + at) + 1) {
		list[len] = 0;
		if (rcp_xattr_copied(list + at))
			add(&w, fd, path, list + at, truncated);
	}
	free(list);
	if (w.bad) {
		rcp_wr_free(&w);
		return rcp_io_fail(err, ENOMEM, "malloc", path);
	}
	*out = w.data;
	*out_len = (uint32_t)w.len;
	return 0;
}

/*
 * Is it known to have none, as most files have? A way through /proc costs four times this call, and a
 * rerun of many small files is little else. Old kernels say ENOSYS, seccomp filters EPERM.
 */
static bool none_at(int dirfd, const char *leaf)
{
#ifdef SYS_listxattrat
	static atomic_bool absent;
	long n;

	if (atomic_load_explicit(&absent, memory_order_relaxed))
		return false;
	n = syscall(SYS_listxattrat, dirfd, leaf, AT_SYMLINK_NOFOLLOW, NULL, 0);
	if (n < 0 && (errno == ENOSYS || errno == EPERM))
		atomic_store_explicit(&absent, true, memory_order_relaxed);
	return n == 0;
#else
	(void)dirfd, (void)leaf;
	return false;
#endif
}

int rcp_meta_read_xattrs_at(int dirfd, const char *leaf, struct rcp_err *err, uint8_t **out,
			    uint32_t *out_len, bool *truncated)
{
	char through[NAME_MAX + 64];

	*out = NULL;
	*out_len = 0;
	*truncated = false;
	if (none_at(dirfd, leaf))
		return 0;
	snprintf(through, sizeof(through), "/proc/self/fd/%d/%s", dirfd, leaf);
	return rcp_meta_read_xattrs(-1, through, err, out, out_len, truncated);
}
