/*
 * Two arguments that meet in the target: `a/f b/f`, `x/d y/d`, `x/. y/.`. Directories are merged; of two files
 * with one name there the first is copied, the other is an error and not a silent loss. Nothing is kept of the
 * files themselves: whether an argument had one of this name is looked up in it.
 */
#include "base/keys.h"
#include "file/confine.h"
#include "file/io.h"
#include "file/walk_int.h"

#include <errno.h>
#include <fcntl.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An argument that has begun. */
struct rcp_seen {
	struct rcp_seen *next; /* with the same name, the latest first */
	char *path;	       /* how it is opened; follows the name in one allocation */
	bool followed;
	size_t len; /* of the name */
	char name[]; /* its own at the target: the first component of its paths; "" inside */
};

static int by_name(const void *a, const void *b)
{
	const struct rcp_seen *x = a, *y = b;
	int d = memcmp(x->name, y->name, x->len < y->len ? x->len : y->len);

	return d ? d : (x->len > y->len) - (x->len < y->len);
}

static struct rcp_seen *seen_new(const char *name, size_t len, const char *path)
{
	size_t path_len = strlen(path);
	struct rcp_seen *s = malloc(sizeof(*s) + len + 1 + path_len + 1);

	if (!s)
		return NULL;
	*s = (struct rcp_seen){.len = len, .path = s->name + len + 1};
	memcpy(s->name, name, len);
	s->name[len] = 0;
	memcpy(s->path, path, path_len + 1);
	return s;
}

/* Those before it of the same name, or NULL. */
static struct rcp_seen *find(const struct rcp_walk *w, const char *name, size_t len)
{
	struct rcp_seen *key = seen_new(name, len, "");
	void *node = key ? tfind(key, &w->seen, by_name) : NULL;

	free(key);
	return node ? (*(struct rcp_seen **)node)->next : NULL;
}

int rcp_walk_begun(struct rcp_walk *w, bool followed, struct rcp_err *err)
{
	struct rcp_seen *s = seen_new(w->wire, w->wire_len, w->open), *head;
	void *node;

	if (!s)
		return rcp_io_fail(err, ENOMEM, "malloc", w->open), -1;
	s->followed = followed;
	/* The tree holds an empty head for each name, so that all of one name are a list behind it. */
	node = tfind(s, &w->seen, by_name);
	head = node ? *(struct rcp_seen **)node : seen_new(w->wire, w->wire_len, "");
	if (!head || (!node && !tsearch(head, &w->seen, by_name))) {
		free(head);
		free(s);
		return rcp_io_fail(err, ENOMEM, "malloc", w->open), -1;
	}
	s->next = head->next;
	head->next = s;
	w->argument = s;
	w->arguments++;
	return 0;
}

static void seen_free(void *p)
{
	for (struct rcp_seen *s = p, *next; s; s = next) {
		next = s->next;
		free(s);
	}
}

void rcp_walk_seen_free(struct rcp_walk *w)
{
	tdestroy(w->seen, seen_free);
	w->seen = NULL;
	rcp_keys_free(&w->listed);
}

/* ---- names that are listed twice ---- */

static struct rcp_key key_of(const struct rcp_walk *w, const char *name, size_t len)
{
	return rcp_keys_key(w->listed, name, len, 0, 0);
}

/* Did the walk go through the listed directory that is the first len bytes of the pair, and so past the pair itself? */
static bool passed(const struct rcp_walk *w, size_t len)
{
	char path[2 * RCP_WALK_PATH_MAX + 2];
	struct stat st;
	int n = snprintf(path, sizeof(path), "%s/", w->opt.root ? w->opt.root : ".");

	if (n < 0 || (size_t)n + strlen(w->pair) >= sizeof(path))
		return false;
	memcpy(path + n, w->pair, len);
	path[(size_t)n + len] = 0;
	if (rcp_place_stat(AT_FDCWD, path, path, !w->opt.archive, &st) < 0 || !S_ISDIR(st.st_mode))
		return false;
	strcpy(path + n, w->pair);
	return rcp_place_stat(AT_FDCWD, path, path, !w->opt.archive, &st) == 0;
}

bool rcp_walk_listed(struct rcp_walk *w)
{
	const char *slash = w->pair;

	if (!w->listed)
		w->listed = rcp_keys_new(NULL);
	if (!w->listed)
		return false; /* copied twice, at worst */
	while (w->opt.recursive && (slash = strchr(slash, '/'))) {
		size_t len = (size_t)(slash - w->pair);

		if (rcp_keys_has(w->listed, key_of(w, w->pair, len)) && passed(w, len))
			return true;
		slash++;
	}
	return rcp_keys_add(w->listed, key_of(w, w->pair, strlen(w->pair))) == 0;
}

bool rcp_walk_was_listed(const struct rcp_walk *w)
{
	return w->listed && w->depth && !w->stack[w->depth - 1].implied &&
	       rcp_keys_has(w->listed, key_of(w, w->wire, w->wire_len));
}

static bool left_out(const struct rcp_walk *w, const char *below, bool dir)
{
	char path[RCP_WALK_PATH_MAX + 1];
	const char *name = below, *slash;

	for (; w->excludes && (slash = strchr(name, '/')); name = slash + 1) {
		memcpy(path, below, (size_t)(slash - below));
		path[slash - below] = 0;
		if (rcp_excluded(w->excludes, path, path + (name - below), true))
			return true;
	}
	return rcp_excluded(w->excludes, below, name, dir);
}

/* Does the argument s bring something to the path at hand? */
static bool holds(const struct rcp_walk *w, const struct rcp_seen *s, struct stat *st)
{
	const char *rest = w->wire + s->len;
	char path[2 * RCP_WALK_PATH_MAX + 2];
	size_t len = strlen(s->path);
	bool slash = !s->len && len && s->path[len - 1] != '/';

	memcpy(path, s->path, len);
	path[len] = '/';
	strcpy(path + len + slash, rest);
	if (rcp_place_stat(AT_FDCWD, path, path, s->followed, st) < 0)
		return false;
	bool dir = S_ISDIR(st->st_mode), copied = dir ? w->opt.recursive : w->opt.archive || S_ISREG(st->st_mode);

	return copied && !left_out(w, rest[0] == '/' ? rest + 1 : rest, dir);
}

/* The first that was named, whose it is; where one is the same file, that one. */
static const struct rcp_seen *find_in(const struct rcp_walk *w, const struct rcp_seen *list,
				      const struct stat *st, struct stat *other)
{
	const struct rcp_seen *found = NULL;
	struct stat at;

	for (; list; list = list->next) {
		if (list == w->argument || !holds(w, list, &at))
			continue;
		found = list;
		*other = at;
		if (rcp_io_same(&at, st))
			break;
	}
	return found;
}

bool rcp_walk_met(struct rcp_walk *w, const struct stat *st, struct rcp_err *err)
{
	struct stat other;

	if (w->arguments < 2 || !w->wire_len)
		return false;
	const struct rcp_seen *s = find_in(w, find(w, w->wire, strcspn(w->wire, "/")), st, &other);

	if (!s)
		s = find_in(w, find(w, "", 0), st, &other);
	if (!s)
		return false;
	w->warning = rcp_io_same(&other, st);
	if (!w->warning && S_ISDIR(other.st_mode) && S_ISDIR(st->st_mode))
		return false;
	rcp_err_set(err, RCP_E_PARTIAL, 0, "", w->open,
		    w->warning ? "named twice: copied once"
			       : "left out: what is copied from %.200s has the same name there", s->path);
	rcp_err_fix(err, "%s", w->warning ? "" : "copy it under another name, or into another directory");
	return true;
}
