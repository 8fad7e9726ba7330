/* scp's target rules: see sink.h. */
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
#include <unistd.h>

/* Everything goes below this directory; O_PATH where it may be entered but not read. */
static int open_root(const char *dir)
{
	int fd = rcp_place_open(AT_FDCWD, dir, dir, O_RDONLY | O_DIRECTORY);

	return fd < 0 && errno == EACCES ? rcp_place_open(AT_FDCWD, dir, dir, O_PATH | O_DIRECTORY) : fd;
}

static int into_directory(const char *path, struct rcp_err *err, struct rcp_target *out)
{
	size_t len = strlen(path);

	out->root = open_root(path);
	if (out->root < 0)
		return rcp_io_fail(err, errno, "open directory", path);
	out->shown = malloc(len + 2);
	if (!out->shown)
		return rcp_io_fail(err, ENOMEM, "malloc", path);
	/* "." is where the user already is: no prefix. */
	memcpy(out->shown, path, len + 1);
	if (strcmp(path, ".") == 0)
		out->shown[0] = 0;
	else if (path[len - 1] != '/')
		memcpy(out->shown + len, "/", 2);
	return 0;
}

/* The one source gets the name `path` ends with. Cuts path into directory and name. */
static int under_new_name(char *path, struct rcp_err *err, struct rcp_target *out)
{
	char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	const char *why = rcp_path_refuse(name, strlen(name)), *dir = ".";

	if (why)
		return rcp_err_set(err, RCP_E_PARTIAL, 0, "open", path, "no name for a file: %s",
				   why);
	out->rename = strdup(name);
	out->shown = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup("");
	if (!out->rename || !out->shown)
		return rcp_io_fail(err, ENOMEM, "strdup", path);
	if (slash)
		dir = out->shown; /* with its slash: "/" stays "/" */
	out->root = open_root(dir);
	if (out->root >= 0)
		return 0;
	int e = errno;

	rcp_io_fail(err, e, "open directory", dir);
	if (e == ENOENT)
		rcp_err_fix(err, "create that directory first");
	return (int)err->code;
}

static int not_directory(const char *path, const char *why, const char *fix, int e,
			 struct rcp_err *err)
{
	rcp_err_set(err, RCP_E_PARTIAL, e, "stat", path, "%s", why);
	rcp_err_fix(err, "%s", fix);
	return RCP_E_PARTIAL;
}

static int make_directory(const char *path, struct rcp_err *err, struct rcp_target *out)
{
	if (rcp_place_mkdir(path, 0777) < 0 && errno != EEXIST)
		return rcp_io_fail(err, errno, "mkdir", path);
	return into_directory(path, err, out);
}

/* ---- a directory under a new name, not yet complete ---- */

bool rcp_target_is_new(const struct rcp_target *t)
{
	struct stat st;

	return t->rename && t->source && fstatat(t->root, t->rename, &st, AT_SYMLINK_NOFOLLOW) < 0 &&
	       errno == ENOENT;
}

/* What the mark of this directory holds: malloc'ed, or NULL. */
static char *mark_text(const struct stat *st, const char *source)
{
	size_t room = strlen(source) + 64;
	char *text = malloc(room);

	if (text)
		snprintf(text, room, "%llu %llu %s", (unsigned long long)st->st_dev,
			 (unsigned long long)st->st_ino, source);
	return text;
}

/* Where it can't be written a rerun makes a directory within: scp's rule, and no data is lost. */
void rcp_target_made(const struct rcp_target *t)
{
	char mark[NAME_MAX + 1], *text = NULL;
	struct stat st;
	int fd = -1;

	rcp_part_name(t->rename, RCP_NEW_SUFFIX, mark);
	unlinkat(t->root, mark, 0);
	if (fstatat(t->root, t->rename, &st, AT_SYMLINK_NOFOLLOW) == 0)
		text = mark_text(&st, t->source);
	if (text)
		fd = openat(t->root, mark, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd >= 0 && rcp_io_pwrite(fd, text, strlen(text), 0) < 0)
		unlinkat(t->root, mark, 0);
	rcp_io_close(&fd);
	free(text);
}

void rcp_target_remember(struct rcp_target *t)
{
	t->done = rcp_done_new(t->root, t->source, t->rename);
}

void rcp_target_forget(struct rcp_target *t)
{
	if (!t->done) /* of a run before, with other options */
		rcp_target_remember(t);
	rcp_done_free(&t->done, true);
}

void rcp_target_done(const struct rcp_target *t)
{
	char mark[NAME_MAX + 1];

	if (!t->rename || !t->source)
		return;
	rcp_part_name(t->rename, RCP_NEW_SUFFIX, mark);
	unlinkat(t->root, mark, 0);
}

static int open_parent(const char *path, const char *slash)
{
	char *dir = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
	int fd = dir ? open_root(dir) : -1;

	free(dir);
	return fd;
}

/* Was the directory at path, st, begun by a copy of this source, and not completed? */
static bool was_begun(const char *path, const struct stat *st, const char *source)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	char mark[NAME_MAX + 1], said[4096 + 64], *want = mark_text(st, source);
	struct stat own;

	if (!want || rcp_path_refuse(name, strlen(name))) {
		free(want);
		return false;
	}
	rcp_part_name(name, RCP_NEW_SUFFIX, mark);
	int dir = open_parent(path, slash);
	int fd = dir < 0 ? -1 : openat(dir, mark, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	bool ours = fd >= 0 && fstat(fd, &own) == 0 && S_ISREG(own.st_mode) && own.st_uid == geteuid();
	ssize_t n = ours ? read(fd, said, sizeof(said)) : -1;
	bool same = n >= 0 && (size_t)n == strlen(want) && memcmp(said, want, (size_t)n) == 0;

	rcp_io_close(&fd);
	rcp_io_close(&dir);
	free(want);
	return same;
}

/* path: without slashes at the end (but "/"), had_slash tells of them. */
static int resolve(char *path, bool had_slash, bool must_be_dir, bool source_is_dir,
		   struct rcp_err *err, struct rcp_target *out)
{
	struct stat st;
	bool there = rcp_place_stat(AT_FDCWD, path, path, true, &st) == 0;

	if (!there && errno != ENOENT)
		return rcp_io_fail(err, errno, "stat", path);
	if (there && S_ISDIR(st.st_mode)) {
		bool begun = !must_be_dir && source_is_dir && out->source && was_begun(path, &st, out->source);

		return begun ? under_new_name(path, err, out) : into_directory(path, err, out);
	}
	/* With -r the one source may be a file all the same: a directory says so when it is to be made. */
	if (there && (must_be_dir || had_slash))
		return not_directory(path, "the target must be a directory, and is none",
				     "name a directory", ENOTDIR, err);
	if (!there && must_be_dir && source_is_dir)
		return make_directory(path, err, out);
	if (!there && (must_be_dir || (had_slash && !source_is_dir)))
		return not_directory(path, "the target must be a directory, and does not exist",
				     "create it first", ENOENT, err);
	return under_new_name(path, err, out);
}

bool rcp_target_is_dir(const char *target)
{
	char *path = rcp_io_expand_home(target[0] ? target : ".");
	struct stat st;
	bool dir = path && rcp_place_stat(AT_FDCWD, path, path, true, &st) == 0 && S_ISDIR(st.st_mode);

	free(path);
	return dir;
}

int rcp_target_resolve(const char *target, const char *source, bool must_be_dir, bool source_is_dir,
		       struct rcp_err *err, struct rcp_target *out)
{
	char *path = rcp_io_expand_home(target[0] ? target : ".");
	size_t len = path ? strlen(path) : 0;
	bool had_slash = len > 1 && path[len - 1] == '/';

	*out = (struct rcp_target){.root = -1, .source = source ? strdup(source) : NULL};
	if (!path || (source && !out->source)) {
		free(path);
		rcp_target_free(out);
		return rcp_io_fail(err, ENOMEM, "strdup", target);
	}
	while (len > 1 && path[len - 1] == '/')
		path[--len] = 0;
	int rc = resolve(path, had_slash, must_be_dir, source_is_dir, err, out);

	free(path);
	if (rc)
		rcp_target_free(out);
	return rc;
}

void rcp_target_free(struct rcp_target *target)
{
	rcp_done_free(&target->done, false);
	rcp_io_close(&target->root);
	free(target->rename);
	free(target->shown);
	free(target->source);
	*target = (struct rcp_target){.root = -1};
}
