/* The walk's arguments: home directories, patterns, the name each gets below the target; pairs. */
#include "file/beneath.h"
#include "file/confine.h"
#include "file/io.h"
#include "file/part.h"
#include "file/walk_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int too_long(const char *path, struct rcp_err *err)
{
	rcp_err_set(err, RCP_E_PARTIAL, ENAMETOOLONG, "open", path, "its path is over %d bytes",
		    RCP_WALK_PATH_MAX);
	rcp_err_fix(err, "start the copy in a directory nearer to it");
	return -1;
}

/*
 * Set both paths for an argument. *had_slash: it ended with one, so it must be a directory. "." ".." "x/." and "/"
 * are no names: what is in them goes into the target itself. A module has one (confine.h), which its path does not tell.
 */
static int name_argument(struct rcp_walk *w, const char *path, bool *had_slash, struct rcp_err *err)
{
	size_t len = strlen(path);

	*had_slash = len > 1 && path[len - 1] == '/';
	while (len > 1 && path[len - 1] == '/')
		len--;
	if (len > RCP_WALK_PATH_MAX)
		return too_long(path, err);
	memcpy(w->open, path, len);
	w->open[w->open_len = len] = 0;
	const char *slash = strrchr(w->open, '/'), *name = slash ? slash + 1 : w->open;

	if (rcp_confined() && strcmp(w->open, ".") == 0)
		name = rcp_confined_name();
	w->inside = rcp_path_refuse(name, strlen(name)) != NULL;
	w->wire_len = w->inside ? 0 : strlen(name);
	memcpy(w->wire, name, w->wire_len);
	w->wire[w->wire_len] = 0;
	return 0;
}

static int begin(struct rcp_walk *w, const char *path, struct rcp_walk_item *item,
		 struct rcp_err *err)
{
	bool had_slash;
	struct stat st;

	if (name_argument(w, path, &had_slash, err))
		return -1;
	if (rcp_confined() && rcp_part_path_is_own(w->open))
		return rcp_part_refuse(path, err), -1;
	if (had_slash && rcp_place_stat(AT_FDCWD, w->open, w->open, true, &st) == 0 && !S_ISDIR(st.st_mode))
		return rcp_walk_fail(w, err, ENOTDIR, "stat");
	/* A slash behind a symlink means what it leads to, as everywhere. */
	bool follow = !w->opt.archive || had_slash;

	if (rcp_walk_begun(w, follow, err))
		return -1;
	return rcp_walk_visit(w, AT_FDCWD, w->open, follow, item, err);
}

/* A backslash, too: who quotes \\* for a pattern quotes the rest of the name alike. */
static bool is_pattern(const char *path)
{
	return strpbrk(path, "*?[\\") != NULL;
}

static int too_many(struct rcp_walk *w, const char *path, struct rcp_err *err)
{
	rcp_err_set(err, RCP_E_PARTIAL, 0, "glob", path, "stands for %zu names, and the target is no directory",
		    w->globbed.gl_pathc);
	rcp_err_fix(err, "name a directory that is there");
	globfree(&w->globbed);
	return -1;
}

/* The names a pattern stands for; they are arguments then. */
static int expand_pattern(struct rcp_walk *w, const char *path, struct rcp_err *err)
{
	int rc = rcp_place_glob(path, &w->globbed);

	if (rc == 0 && w->opt.one_name && w->globbed.gl_pathc > 1)
		return too_many(w, path, err);
	if (rc == 0) {
		w->globs = w->globbed.gl_pathc;
		w->glob_at = 0;
		return 0;
	}
	globfree(&w->globbed);
	if (rc == GLOB_NOSPACE)
		return rcp_io_fail(err, ENOMEM, "glob", path), -1;
	if (rc == RCP_GLOB_MANY) {
		rcp_err_set(err, RCP_E_PARTIAL, 0, "glob", path, "patterns stand for more names than are taken here in one copy");
		rcp_err_fix(err, "name directories, or a list of names (--files-from)");
		return -1;
	}
	rcp_err_set(err, RCP_E_PARTIAL, rc == GLOB_NOMATCH ? ENOENT : EIO, "glob", path,
		    rc == GLOB_NOMATCH ? "no file matches" : "a directory can't be read");
	return -1;
}

static int begin_argument(struct rcp_walk *w, const char *arg, struct rcp_walk_item *item,
			  struct rcp_err *err)
{
	char *path = rcp_io_expand_home(arg[0] ? arg : rcp_confined() ? "." : "~");
	struct stat st;
	int rc;

	if (!path)
		return rcp_io_fail(err, ENOMEM, "strdup", arg), -1;
	if (w->opt.globs && is_pattern(path) &&
	    rcp_place_stat(AT_FDCWD, path, path, false, &st) < 0 && errno == ENOENT)
		rc = expand_pattern(w, path, err);
	else
		rc = begin(w, path, item, err);
	free(path);
	return rc;
}

int rcp_walk_argument(struct rcp_walk *w, struct rcp_walk_item *item, struct rcp_err *err,
		      bool *end)
{
	if (w->globs && w->glob_at == w->globs) {
		globfree(&w->globbed);
		w->globs = 0;
	}
	if (w->globs)
		return begin(w, w->globbed.gl_pathv[w->glob_at++], item, err);
	*end = *w->paths == NULL;
	return *end ? 0 : begin_argument(w, *w->paths++, item, err);
}

/* "/a//./b/" -> "a/b". NULL and *err: not a name below the root. */
static char *normalise(const char *name, struct rcp_err *err)
{
	char *out = malloc(strlen(name) + 1);

	if (!out) {
		rcp_io_fail(err, ENOMEM, "malloc", name);
		return NULL;
	}
	rcp_path_join(name, out);
	const char *why = rcp_path_refuse(out, strlen(out));

	if (!why)
		return out;
	free(out);
	rcp_err_set(err, RCP_E_PARTIAL, 0, "", name, "not a name below the source directory: %s",
		    why);
	return NULL;
}

/* How much of the pair the open directories are; -1: the top one is none of its. */
static ssize_t pair_done(const struct rcp_walk *w)
{
	if (!w->depth)
		return 0;
	const struct rcp_frame *f = &w->stack[w->depth - 1];

	if (!w->pair || strlen(w->pair) <= f->wire_len || w->pair[f->wire_len] != '/' ||
	    memcmp(w->pair, w->wire, f->wire_len))
		return -1;
	return (ssize_t)f->wire_len + 1;
}

static void pair_drop(struct rcp_walk *w)
{
	free(w->pair);
	w->pair = NULL;
}

/* Paths of the directory that the pair's next component is in. */
static void pair_base(struct rcp_walk *w)
{
	const char *root = w->opt.root ? w->opt.root : ".";

	if (w->depth) {
		rcp_walk_rewind(w);
		return;
	}
	w->wire[w->wire_len = 0] = 0;
	w->open_len = strlen(root); /* rcp_walk_new saw that it fits */
	memcpy(w->open, root, w->open_len + 1);
}

/* The next component: a directory on the way, or what the pair names. */
static int pair_step(struct rcp_walk *w, size_t done, struct rcp_walk_item *item,
		     struct rcp_err *err)
{
	char name[NAME_MAX + 1];
	size_t len = strcspn(w->pair + done, "/");
	bool last = w->pair[done + len] == 0;

	memcpy(name, w->pair + done, len);
	name[len] = 0;
	int dirfd = w->depth ? rcp_walk_fd(w, err) : AT_FDCWD;

	pair_base(w);
	if ((w->depth && dirfd < 0) || !rcp_walk_append(w, name)) {
		too_long(w->pair, err); /* unless the first was it */
		pair_drop(w);
		return -1;
	}
	const char *at = w->depth ? name : w->open;

	if (last) {
		pair_drop(w);
		return rcp_walk_visit(w, dirfd, at, !w->opt.archive, item, err);
	}
	if (rcp_walk_excluded(w, true)) {
		pair_drop(w);
		return 0;
	}
	if (rcp_walk_enter(w, dirfd, at, false, true, err)) {
		pair_drop(w);
		return -1;
	}
	return rcp_walk_dir_item(w, RCP_ENTRY_DIR, item);
}

int rcp_walk_pair(struct rcp_walk *w, struct rcp_walk_item *item, struct rcp_err *err, bool *end)
{
	if (!w->pair && *w->paths) {
		w->pair = normalise(*w->paths++, err);
		if (!w->pair)
			return -1;
		if (rcp_confined() && rcp_part_path_is_own(w->pair)) {
			rcp_part_refuse(w->pair, err);
			pair_drop(w);
			return -1;
		}
		if (rcp_walk_listed(w)) {
			pair_drop(w);
			return 0;
		}
	}
	ssize_t done = pair_done(w);

	if (done < 0) {
		rcp_walk_dir_item(w, RCP_ENTRY_DIR_END, item);
		rcp_walk_leave(w);
		return 1;
	}
	*end = !w->pair;
	return *end ? 0 : pair_step(w, (size_t)done, item, err);
}
