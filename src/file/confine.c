#include "file/confine.h"

#include "base/pool.h"
#include "file/beneath.h"
#include "file/io.h"
#include "file/part.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GONE " (deleted)" /* proc(5): the name that it was opened by is no more */

static int root_fd = -1;
static const char *root_name, *root_what;

void rcp_confine(int root, const char *name, const char *what)
{
	root_fd = root;
	root_name = name;
	root_what = what;
}

bool rcp_confined(void)
{
	return root_fd >= 0;
}

bool rcp_confined_root(const struct stat *st)
{
	struct stat root;

	return rcp_confined() && fstat(root_fd, &root) == 0 && rcp_io_same(&root, st);
}

const char *rcp_confined_name(void)
{
	return root_name;
}

const char *rcp_confined_what(void)
{
	return root_what;
}

/* The slash at the end, too: it says that it must be a directory. */
static void join(const char *path, char *to)
{
	size_t len = strlen(path), joined = rcp_path_join(path, to);

	if (joined && path[len - 1] == '/')
		memcpy(to + joined, "/", 2);
}

char *rcp_confine_path(const char *path, struct rcp_err *err)
{
	size_t len = strlen(path);
	char *out = malloc(len + 4);
	const char *why;

	if (!out) {
		rcp_io_fail(err, ENOMEM, "malloc", path);
		return NULL;
	}
	memcpy(out, path, len + 1);
	if (!rcp_confined())
		return out;
	bool inside = len && path[len - 1] == '.' && (len == 1 || path[len - 2] == '/');

	join(path, out);
	len = strlen(out);
	if (!len)
		return memcpy(out, inside ? "./." : ".", inside ? 4 : 2);
	why = rcp_path_refuse(out, out[len - 1] == '/' ? len - 1 : len);
	if (!why && inside)
		memcpy(out + len, "/.", 3);
	if (!why)
		return out;
	free(out);
	rcp_err_set(err, RCP_E_PARTIAL, 0, "", path, "not a name in %s: %s", root_what, why);
	rcp_err_fix(err, "names begin at %s itself", root_what);
	return NULL;
}

static int open_below(const char *path, int flags)
{
	if (strcmp(path, ".") == 0)
		return openat(root_fd, ".", flags | O_CLOEXEC);
	return rcp_beneath_open(root_fd, path, flags, 0);
}

int rcp_place_open(int dirfd, const char *name, const char *whole, int flags)
{
	return rcp_confined() ? open_below(whole, flags) : openat(dirfd, name, flags | O_CLOEXEC);
}

int rcp_place_stat(int dirfd, const char *name, const char *whole, bool follow, struct stat *st)
{
	int fd, rc;

	if (!rcp_confined())
		return fstatat(dirfd, name, st, follow ? 0 : AT_SYMLINK_NOFOLLOW);
	fd = open_below(whole, O_PATH | (follow ? 0 : O_NOFOLLOW));
	if (fd < 0)
		return -1;
	rc = fstat(fd, st);
	rcp_io_close(&fd);
	return rc;
}

ssize_t rcp_place_readlink(int dirfd, const char *name, const char *whole, char *buf, size_t size)
{
	ssize_t n;
	int fd;

	if (!rcp_confined())
		return readlinkat(dirfd, name, buf, size);
	fd = open_below(whole, O_PATH | O_NOFOLLOW);
	if (fd < 0)
		return -1;
	n = readlinkat(fd, "", buf, size);
	rcp_io_close(&fd);
	return n;
}

/* Also where its name can't be told, such as one that is too long. */
bool rcp_place_hidden(int fd)
{
	char link[64], path[PATH_MAX + 1];
	ssize_t n;

	if (!rcp_confined())
		return false;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlinkat(AT_FDCWD, link, path, sizeof(path));
	if (n <= 0 || (size_t)n >= sizeof(path))
		return true;
	path[n] = 0;
	const char *slash = strrchr(path, '/');
	size_t gone = strlen(GONE), len = (size_t)n;

	if (!slash)
		return true;
	if (len > gone && strcmp(path + len - gone, GONE) == 0)
		path[len - gone] = 0;
	return rcp_part_name_is_own(slash + 1);
}

int rcp_place_parent(const char *path, const char **leaf)
{
	return rcp_beneath_parent(root_fd, path, leaf);
}

int rcp_place_mkdir(const char *path, mode_t mode)
{
	const char *leaf;
	int dir, rc, saved;

	if (!rcp_confined())
		return mkdir(path, mode);
	dir = rcp_place_parent(path, &leaf);
	if (dir < 0)
		return -1;
	rc = mkdirat(dir, leaf, mode);
	saved = errno;
	rcp_io_close(&dir);
	errno = saved;
	return rc;
}

/* ---- glob(3) with our own eyes ---- */

/*
 * What patterns may cost, in all: links to "." make a tree of any size out of a few names. glob(3) keeps what matches at one
 * level while it looks for the next, so each match counts at its level, as much as an argument of that length does.
 */
#define GLOB_MOST (UINT64_C(128) << 20)

/* glob(3) hands nothing on to whom it calls. A walk is one caller. */
static struct {
	const char *pattern;
	uint64_t bytes; /* never given back: the walk's tables keep names, too */
	bool over;
} globbing;

struct glob_dir {
	DIR *dir;
	size_t len; /* of its path */
	char name[NAME_MAX + 1]; /* of the pattern: what is looked for in it; "": anything */
};

/* As many words into the pattern as the path has. */
static void glob_word(const char *path, char word[NAME_MAX + 1])
{
	const char *p = globbing.pattern;
	size_t len;

	for (path += strspn(path, "/"); *path && strcmp(path, ".") != 0; path += strspn(path, "/")) {
		path += strcspn(path, "/");
		p += strspn(p, "/");
		p += strcspn(p, "/");
	}
	p += strspn(p, "/");
	len = strcspn(p, "/");
	if (len > NAME_MAX)
		len = 0;
	memcpy(word, p, len);
	word[len] = 0;
}

/* False: more than may be. */
static bool glob_counts(size_t len)
{
	globbing.bytes += 3 * len + 220;
	globbing.over = globbing.bytes > GLOB_MOST;
	return !globbing.over;
}

static bool glob_wants(const struct glob_dir *d, const char *name)
{
	return !d->name[0] || fnmatch(d->name, name, FNM_PERIOD) == 0;
}

static void *glob_open(const char *path)
{
	struct glob_dir *d = globbing.over ? NULL : malloc(sizeof(*d));
	int fd = d ? open_below(path, O_RDONLY | O_DIRECTORY) : -1;

	if (d) {
		d->dir = fd < 0 ? NULL : fdopendir(fd);
		d->len = strlen(path);
		glob_word(path, d->name);
	}
	if (d && d->dir)
		return d;
	rcp_io_close(&fd);
	free(d);
	return NULL;
}

/* What other copies have not finished is nobody's to have. Without "." and "..": by them a pattern of a few words has as many answers as there are ways to and fro. */
static struct dirent *glob_read(void *arg)
{
	struct glob_dir *g = arg;
	struct dirent *d;

	do
		d = globbing.over || rcp_work_unwanted() ? NULL : readdir(g->dir);
	while (d && (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0 || rcp_part_name_is_own(d->d_name)));
	return d && (!glob_wants(g, d->d_name) || glob_counts(g->len + strlen(d->d_name))) ? d : NULL;
}

static void glob_close(void *arg)
{
	struct glob_dir *d = arg;

	closedir(d->dir);
	free(d);
}

/* The words of a pattern without wildcards are not looked for by reading. */
static int glob_looks(const char *path, bool follow, struct stat *st)
{
	if (globbing.over || rcp_work_unwanted() || rcp_place_stat(AT_FDCWD, path, path, follow, st) < 0)
		return -1;
	return glob_counts(strlen(path)) ? 0 : -1;
}

static int glob_stat(const char *path, struct stat *st)
{
	return glob_looks(path, true, st);
}

static int glob_lstat(const char *path, struct stat *st)
{
	return glob_looks(path, false, st);
}

int rcp_place_glob(const char *pattern, glob_t *out)
{
	if (!rcp_confined())
		return glob(pattern, 0, NULL, out);
	globbing.pattern = pattern;
	out->gl_opendir = glob_open;
	out->gl_readdir = glob_read;
	out->gl_closedir = glob_close;
	out->gl_stat = glob_stat;
	out->gl_lstat = glob_lstat;
	int rc = globbing.over ? GLOB_ABORTED : glob(pattern, GLOB_ALTDIRFUNC, NULL, out);

	return globbing.over ? RCP_GLOB_MANY : rc;
}
