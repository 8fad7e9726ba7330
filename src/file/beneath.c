#include "file/beneath.h"

#include "file/io.h"

#include <errno.h>
#include <limits.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#define PATH_BYTES_MAX 4096

static const char *component_refuse(const char *name, size_t len)
{
	if (len == 0)
		return "it has an empty component";
	if (len > NAME_MAX)
		return "a component is longer than 255 bytes";
	if (name[0] == '.' && (len == 1 || (len == 2 && name[1] == '.')))
		return "it has a component \".\" or \"..\"";
	return NULL;
}

const char *rcp_path_refuse(const char *path, size_t len)
{
	if (len == 0)
		return "it is empty";
	if (len > PATH_BYTES_MAX)
		return "it is longer than 4096 bytes";
	if (memchr(path, 0, len))
		return "it has a NUL byte";
	for (size_t at = 0; at <= len;) {
		const char *slash = at < len ? memchr(path + at, '/', len - at) : NULL;
		size_t end = slash ? (size_t)(slash - path) : len;
		const char *why = component_refuse(path + at, end - at);

		if (why)
			return why;
		at = end + 1;
	}
	return NULL;
}

static int open_how(int root, const char *path, int flags, mode_t mode)
{
	struct open_how how = {
		.flags = (uint64_t)(unsigned)flags | O_CLOEXEC,
		.mode = flags & O_CREAT ? mode : 0,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS,
	};
	int fd = -1;

	/* EAGAIN: a rename somewhere made the walk unsafe to decide. A bound, so that a hostile
	 * renamer costs time but never the worker. */
	for (int i = 0; i < 128; i++) {
		fd = (int)syscall(SYS_openat2, root, path, &how, sizeof(how));
		if (fd >= 0 || (errno != EAGAIN && errno != EINTR))
			break;
	}
	return fd;
}

/* Old kernels say ENOSYS, old seccomp filters EPERM: asked once, of a name that always opens. */
static bool have_openat2(void)
{
	static atomic_int known; /* 0 not asked, 1 yes, 2 no */
	int k = atomic_load_explicit(&known, memory_order_relaxed);

	if (!k) {
		int saved = errno, fd = open_how(AT_FDCWD, ".", O_PATH, 0);

		k = fd < 0 && (errno == ENOSYS || errno == EPERM) ? 2 : 1;
		rcp_io_close(&fd);
		errno = saved;
		atomic_store_explicit(&known, k, memory_order_relaxed);
	}
	return k == 1;
}

/* One directory further down; the old one is closed unless it is the caller's root. */
static int step_down(int root, int dir, const char *name, size_t len)
{
	char component[NAME_MAX + 1];
	int next;

	memcpy(component, name, len);
	component[len] = 0;
	next = openat(dir, component, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (dir != root)
		rcp_io_close(&dir);
	return next;
}

size_t rcp_path_join(const char *path, char *to)
{
	char *begin = to;

	for (const char *at = path; *at;) {
		size_t n = strcspn(at, "/");

		if (n && !(n == 1 && at[0] == '.')) {
			if (to != begin)
				*to++ = '/';
			memcpy(to, at, n);
			to += n;
		}
		at += n + (at[n] == '/');
	}
	*to = 0;
	return (size_t)(to - begin);
}

int rcp_beneath_walk(int root, const char *name, int flags, mode_t mode)
{
	char plain[PATH_BYTES_MAX + 1];
	const char *path = plain, *slash;
	size_t len = strlen(name);
	int dir = root;

	/* "." components are nothing to the kernel, and the root itself is ".". */
	plain[0] = 0;
	if (name[0] != '/' && len <= PATH_BYTES_MAX)
		rcp_path_join(name, plain);
	if (len && !plain[0] && name[0] == '.')
		return openat(root, ".", flags | O_CLOEXEC, mode);
	if (rcp_path_refuse(plain, strlen(plain))) {
		errno = EXDEV;
		return -1;
	}
	while ((slash = strchr(path, '/'))) {
		dir = step_down(root, dir, path, (size_t)(slash - path));
		if (dir < 0)
			return -1;
		path = slash + 1;
	}
	int fd = openat(dir, path, flags | O_NOFOLLOW | O_CLOEXEC, mode);

	if (dir != root)
		rcp_io_close(&dir);
	return fd;
}

int rcp_beneath_open(int root, const char *path, int flags, mode_t mode)
{
	return have_openat2() ? open_how(root, path, flags, mode)
			      : rcp_beneath_walk(root, path, flags, mode);
}

int rcp_beneath_parent(int root, const char *path, const char **leaf)
{
	const char *slash = strrchr(path, '/');
	char dir[PATH_BYTES_MAX + 1];

	if (!slash) {
		*leaf = path;
		return fcntl(root, F_DUPFD_CLOEXEC, 0);
	}
	if ((size_t)(slash - path) > PATH_BYTES_MAX) {
		errno = ENAMETOOLONG;
		return -1;
	}
	*leaf = slash + 1;
	memcpy(dir, path, (size_t)(slash - path));
	dir[slash - path] = 0;
	/* O_PATH: a directory that may be written but not read will do. */
	return rcp_beneath_open(root, dir, O_PATH | O_DIRECTORY, 0);
}

int rcp_beneath_parent_plain(int root, const char *path, size_t entered, const char **leaf)
{
	const char *slash = strrchr(path, '/');
	char way[PATH_BYTES_MAX + 1];
	size_t len = slash ? (size_t)(slash - path) : 0;
	int top = root, fd;

	if (entered >= len)
		return rcp_beneath_parent(root, path, leaf);
	if (len > PATH_BYTES_MAX) {
		errno = ENAMETOOLONG;
		return -1;
	}
	*leaf = slash + 1;
	memcpy(way, path, len);
	way[len] = 0;
	if (entered) {
		way[entered] = 0;
		top = rcp_beneath_open(root, way, O_PATH | O_DIRECTORY, 0);
	}
	fd = top < 0 ? -1 : rcp_beneath_walk(top, way + entered + (entered > 0), O_PATH | O_DIRECTORY, 0);
	if (top != root)
		rcp_io_close(&top);
	return fd;
}

void rcp_kept_init(struct rcp_kept_dir *kept)
{
	kept->fd = -1;
	kept->len = 0;
}

void rcp_kept_close(struct rcp_kept_dir *kept)
{
	rcp_io_close(&kept->fd);
}

/* Those that have no `flush`: nothing is written back, and no error told, when a file is closed. */
static void look_at_system(struct rcp_kept_dir *kept)
{
	struct statfs fs;
	bool known = fstatfs(kept->fd, &fs) == 0;

	kept->memory = known && (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC);
	kept->local = known && (kept->memory || fs.f_type == EXT4_SUPER_MAGIC ||
				fs.f_type == XFS_SUPER_MAGIC || fs.f_type == BTRFS_SUPER_MAGIC ||
				fs.f_type == F2FS_SUPER_MAGIC);
}

static size_t parent_len(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? (size_t)(slash - path) : 0;
}

bool rcp_kept_is(const struct rcp_kept_dir *kept, const char *path)
{
	size_t len = parent_len(path);

	return kept->fd >= 0 && len == kept->len && memcmp(path, kept->path, len) == 0;
}

int rcp_kept_parent(struct rcp_kept_dir *kept, int root, const char *path, const char **leaf)
{
	size_t len = parent_len(path);

	if (rcp_kept_is(kept, path)) {
		*leaf = path + (strchr(path, '/') ? len + 1 : 0);
		return kept->fd;
	}
	rcp_kept_close(kept);
	kept->fd = rcp_beneath_parent(root, path, leaf);
	if (kept->fd < 0)
		return -1;
	if (len >= sizeof(kept->path)) { /* no such name passes rcp_path_refuse */
		rcp_kept_close(kept);
		errno = ENAMETOOLONG;
		return -1;
	}
	kept->len = len;
	memcpy(kept->path, path, len);
	kept->taken = false;
	look_at_system(kept);
	return kept->fd;
}
