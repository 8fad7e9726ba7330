#include "session/wanted.h"

#include "base/keys.h"
#include "file/beneath.h"

#include <errno.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Kinds of names below a root, in the set. */
enum { LISTED, ON_THE_WAY };

/* The same of what has come. */
enum { AS_OTHER, AS_DIR };

struct wanted_name {
	char *name; /* last component: literal or pattern */
	bool any;   /* a home directory's: only the other end knows it, and it has one */
};

struct rcp_wanted {
	struct wanted_name *names;
	size_t count;
	bool inside;	       /* an argument without a name is among them */
	struct rcp_keys *keys; /* pairs; NULL: none */
	struct rcp_keys *came; /* NULL: nothing yet */
};

static struct rcp_key key_of(const struct rcp_wanted *w, const void *path, size_t len, int kind)
{
	return rcp_keys_key(w->keys, path, len, (uint64_t)kind, 0);
}

static int no_memory(struct rcp_err *err)
{
	return rcp_err_set(err, RCP_E_IO, ENOMEM, "malloc", NULL, NULL);
}

/* A name below the root, and the directories on the way to it. */
static int add_pair(struct rcp_wanted *w, const char *name, struct rcp_err *err)
{
	char *path = malloc(strlen(name) + 1);
	int rc = 0;

	if (!path)
		return no_memory(err);
	size_t len = rcp_path_join(name, path);

	for (size_t i = 1; i < len && rc >= 0; i++) {
		if (path[i] == '/')
			rc = rcp_keys_add(w->keys, key_of(w, path, i, ON_THE_WAY));
	}
	if (rc >= 0 && len)
		rc = rcp_keys_add(w->keys, key_of(w, path, len, LISTED));
	free(path);
	return rc < 0 ? no_memory(err) : 0;
}

/* What only the other end can name, which is a home directory or one that it is restricted to. */
static bool is_nameless(const char *path, size_t len)
{
	return path[0] == 0 || path[0] == '~' || path[0] == '/' || (len == 1 && path[0] == '.' && path[1] == '/');
}

/* As the walk names its argument: see name_argument in file/walk_arg.c. False: no memory. */
static bool add_path(struct rcp_wanted *w, const char *path, struct wanted_name *n)
{
	size_t len = strlen(path);

	while (len > 1 && path[len - 1] == '/')
		len--;
	size_t at = len;

	while (at && path[at - 1] != '/')
		at--;
	bool whole = at == 0 || len <= 1, dots = len > at && len - at <= 2 && strspn(path + at, ".") >= len - at;

	n->any = whole && is_nameless(path, len);
	/* A host that is restricted to a directory has a name for "/" that others have not. */
	if (dots || (len == 1 && path[0] == '/'))
		w->inside = true;
	n->name = dots || n->any ? NULL : strndup(path + at, len - at);
	return n->name || dots || n->any;
}

/* The same in a module, whose own name is that of its top: see rcp_confine_path. */
static bool add_module_path(struct rcp_wanted *w, const char *path, const char *module, struct wanted_name *n)
{
	size_t len = strlen(path);
	char *plain = malloc(len + 1);

	if (!plain)
		return false;
	rcp_path_join(path, plain);
	const char *slash = strrchr(plain, '/'), *name = slash ? slash + 1 : plain[0] ? plain : module;

	if (len && path[len - 1] == '.' && (len == 1 || path[len - 2] == '/'))
		w->inside = true;
	else
		n->name = strdup(name);
	free(plain);
	return n->name || w->inside;
}

int rcp_wanted_new(char *const *paths, bool pairs, const char *module, struct rcp_err *err, struct rcp_wanted **out)
{
	struct rcp_wanted *w = calloc(1, sizeof(*w));
	size_t count = 0;

	*out = NULL;
	while (paths && paths[count])
		count++;
	if (!w)
		return no_memory(err);
	if (pairs) {
		w->keys = rcp_keys_new(NULL);
		for (size_t i = 1; i < count && w->keys && !rcp_err_is(err); i++)
			add_pair(w, paths[i], err);
	} else {
		w->names = calloc(count + 1, sizeof(*w->names));
		for (; w->names && w->count < count; w->count++) {
			struct wanted_name *n = &w->names[w->count];

			if (module ? !add_module_path(w, paths[w->count], module, n) : !add_path(w, paths[w->count], n))
				no_memory(err);
		}
	}
	if (pairs ? !w->keys : !w->names)
		no_memory(err);
	if (rcp_err_is(err)) {
		rcp_wanted_free(&w);
		return (int)err->code;
	}
	*out = w;
	return 0;
}

bool rcp_wanted_some(const struct rcp_wanted *w)
{
	return !w->keys && w->count > 0;
}

void rcp_wanted_free(struct rcp_wanted **wanted)
{
	struct rcp_wanted *w = *wanted;

	*wanted = NULL;
	if (!w)
		return;
	for (size_t i = 0; w->names && i < w->count; i++)
		free(w->names[i].name);
	free(w->names);
	rcp_keys_free(&w->keys);
	rcp_keys_free(&w->came);
	free(w);
}

/* It is listed, below what is, or on the way there. */
static bool has_pair(const struct rcp_wanted *w, struct rcp_span path, bool dir)
{
	for (size_t i = 1; i <= path.len; i++) {
		if ((i == path.len || path.data[i] == '/') && rcp_keys_has(w->keys, key_of(w, path.data, i, LISTED)))
			return true;
	}
	return dir && rcp_keys_has(w->keys, key_of(w, path.data, path.len, ON_THE_WAY));
}

bool rcp_wanted_on_the_way(const struct rcp_wanted *w, struct rcp_span path)
{
	return w->keys && rcp_keys_has(w->keys, key_of(w, path.data, path.len, ON_THE_WAY));
}

/* glob(3)'s rules, by which the other end expands it, or the very name where that is there. */
static bool matches(struct wanted_name *n, const char *name)
{
	if (n->any && !n->name && name[0] != '.')
		n->name = strdup(name); /* the one it has; hidden ones are what nobody means, and much obeys */
	if (!n->name)
		return false;
	return strcmp(n->name, name) == 0 || (!n->any && fnmatch(n->name, name, FNM_PERIOD) == 0);
}

bool rcp_wanted_has(struct rcp_wanted *w, struct rcp_span path, bool inside, bool dir)
{
	char first[NAME_MAX + 1];

	if (w->keys)
		return has_pair(w, path, dir);
	if (inside && w->inside)
		return true;
	const uint8_t *slash = memchr(path.data, '/', path.len);
	size_t len = slash ? (size_t)(slash - path.data) : path.len;

	if (inside || len > NAME_MAX)
		return false;
	memcpy(first, path.data, len);
	first[len] = 0;
	/* Names that are known go first, so that they are not taken for one that is not. */
	for (int any = 0; any < 2; any++) {
		for (size_t i = 0; i < w->count; i++) {
			if (w->names[i].any == (any == 1) && matches(&w->names[i], first))
				return true;
		}
	}
	return false;
}

int rcp_wanted_came(struct rcp_wanted *w, struct rcp_span path, bool dir)
{
	if (!w->came)
		w->came = rcp_keys_new(NULL);
	if (!w->came || rcp_keys_add(w->came, rcp_keys_key(w->came, path.data, path.len, dir ? AS_DIR : AS_OTHER, 0)) < 0)
		return -1;
	return rcp_keys_has(w->came, rcp_keys_key(w->came, path.data, path.len, dir ? AS_OTHER : AS_DIR, 0));
}

size_t rcp_wanted_entered(const struct rcp_wanted *w, struct rcp_span path)
{
	size_t entered = 0;

	for (size_t i = 1; w->came && i < path.len; i++) {
		if (path.data[i] != '/')
			continue;
		if (!rcp_keys_has(w->came, rcp_keys_key(w->came, path.data, i, AS_DIR, 0)))
			break;
		entered = i;
	}
	return entered;
}
