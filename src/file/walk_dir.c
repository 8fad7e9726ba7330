/* Directories being read: a stack of frames, names in sorted batches. */
#include "file/confine.h"
#include "file/io.h"
#include "file/part.h"
#include "file/walk_int.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DIRENT_BYTES 32768

static bool names_add(struct rcp_names *n, const char *name)
{
	size_t len = strlen(name) + 1;

	if (n->len + len > n->cap) {
		size_t cap = n->cap ? n->cap * 2 : 4096;
		char *bytes = realloc(n->bytes, cap);

		if (!bytes)
			return false;
		n->bytes = bytes;
		n->cap = cap;
	}
	if (n->count == n->at_cap) {
		size_t cap = n->at_cap ? n->at_cap * 2 : 256;
		uint32_t *at = realloc(n->at, cap * sizeof(*at));

		if (!at)
			return false;
		n->at = at;
		n->at_cap = cap;
	}
	n->at[n->count++] = (uint32_t)n->len;
	memcpy(n->bytes + n->len, name, len);
	n->len += len;
	return true;
}

static int compare(const void *a, const void *b, void *bytes)
{
	return strcmp((const char *)bytes + *(const uint32_t *)a,
		      (const char *)bytes + *(const uint32_t *)b);
}

static bool is_dots(const char *name)
{
	return name[0] == '.' && (name[1] == 0 || (name[1] == '.' && name[2] == 0));
}

/* Who is confined serves several, and what another one's copy has not finished is not for this one. */
static bool is_hidden(const char *name)
{
	return is_dots(name) || (rcp_confined() && rcp_part_name_is_own(name));
}

/* One kernel buffer of names more. 0, or -1 with errno; *end at the end of the directory. */
static int read_some(struct rcp_frame *f, bool *end)
{
	_Alignas(struct dirent64) char buf[DIRENT_BYTES];
	ssize_t n = getdents64(f->fd, buf, sizeof(buf));

	*end = n <= 0;
	for (ssize_t at = 0; at < n;) {
		const struct dirent64 *d = (const void *)(buf + at);

		if (!is_hidden(d->d_name) && !names_add(&f->names, d->d_name)) {
			errno = ENOMEM;
			return -1;
		}
		at += d->d_reclen;
	}
	return n < 0 ? -1 : 0;
}

/* The next batch, sorted. Most directories are one batch; larger ones are sorted piece by piece. */
static int read_batch(struct rcp_frame *f)
{
	struct rcp_names *n = &f->names;
	bool end = false;
	int rc = 0;

	n->len = n->count = 0;
	f->next = 0;
	while (!end && rc == 0 && n->count < RCP_WALK_BATCH_NAMES && n->len < RCP_WALK_BATCH_BYTES)
		rc = read_some(f, &end);
	f->more = !end && rc == 0;
	if (n->count)
		qsort_r(n->at, n->count, sizeof(n->at[0]), compare, n->bytes);
	return rc;
}

static void frame_free(struct rcp_frame *f)
{
	rcp_io_close(&f->fd);
	free(f->names.bytes);
	free(f->names.at);
	free(f->xattrs);
}

static struct rcp_frame *push(struct rcp_walk *w)
{
	if (w->depth == w->cap) {
		size_t cap = w->cap ? w->cap * 2 : 16;
		struct rcp_frame *stack = realloc(w->stack, cap * sizeof(*stack));

		if (!stack)
			return NULL;
		w->stack = stack;
		w->cap = cap;
	}
	/* One that is not read to its end keeps its descriptor: it holds the place. */
	if (w->depth >= RCP_WALK_FDS && !w->stack[w->depth - RCP_WALK_FDS].more)
		rcp_io_close(&w->stack[w->depth - RCP_WALK_FDS].fd);
	struct rcp_frame *f = &w->stack[w->depth++];

	*f = (struct rcp_frame){.fd = -1, .open_len = w->open_len, .wire_len = w->wire_len};
	return f;
}

static int open_dir(int dirfd, const char *name, const char *whole, bool nofollow)
{
	int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK | (nofollow ? O_NOFOLLOW : 0);
	int fd = rcp_place_open(dirfd, name, whole, flags | O_NOATIME);

	return fd < 0 && errno == EPERM ? rcp_place_open(dirfd, name, whole, flags) : fd;
}

int rcp_walk_enter(struct rcp_walk *w, int dirfd, const char *name, bool nofollow, bool implied,
		   struct rcp_err *err)
{
	struct rcp_frame *f = push(w);

	if (!f)
		return rcp_walk_fail(w, err, ENOMEM, "realloc");
	f->nofollow = nofollow;
	f->implied = implied;
	/* A directory on the way to a pair need not be readable. */
	f->fd = implied ? rcp_place_open(dirfd, name, w->open, O_PATH | O_DIRECTORY)
			: open_dir(dirfd, name, w->open, nofollow);
	if (f->fd >= 0 && fstat(f->fd, &f->st) == 0 && (implied || read_batch(f) == 0))
		return 0;
	rcp_walk_fail(w, err, errno, f->fd < 0 ? "open directory" : "read directory");
	frame_free(f);
	w->depth--;
	return -1;
}

int rcp_walk_fd(struct rcp_walk *w, struct rcp_err *err)
{
	struct rcp_frame *f = rcp_walk_top(w);
	struct stat st;

	if (f->fd >= 0)
		return f->fd;
	w->open[f->open_len] = 0;
	f->fd = f->implied ? rcp_place_open(AT_FDCWD, w->open, w->open, O_PATH | O_DIRECTORY)
			   : open_dir(AT_FDCWD, w->open, w->open, f->nofollow);
	if (f->fd >= 0 && fstat(f->fd, &st) == 0 && rcp_io_same(&st, &f->st))
		return f->fd;
	if (f->fd < 0)
		rcp_walk_fail(w, err, errno, "open directory");
	else
		rcp_err_set(err, RCP_E_PARTIAL, 0, "open directory", w->open,
			    "was replaced while it was read: the rest of it is left out");
	rcp_io_close(&f->fd);
	f->next = f->names.count;
	f->more = false;
	return -1;
}

int rcp_walk_name(struct rcp_walk *w, const char **name, struct rcp_err *err)
{
	struct rcp_frame *f = rcp_walk_top(w);

	if (f->next == f->names.count && f->more && read_batch(f) < 0) {
		w->open[f->open_len] = 0;
		rcp_walk_fail(w, err, errno, "read directory");
		return -1; /* what was read before the error still comes */
	}
	if (f->next == f->names.count)
		return 0;
	*name = f->names.bytes + f->names.at[f->next++];
	return 1;
}

void rcp_walk_leave(struct rcp_walk *w)
{
	frame_free(rcp_walk_top(w));
	w->depth--;
}

bool rcp_walk_append(struct rcp_walk *w, const char *name)
{
	size_t len = strlen(name), open_len = w->open_len;
	bool slash = open_len && w->open[open_len - 1] != '/', sub = w->wire_len != 0;

	if (open_len + slash + len > RCP_WALK_PATH_MAX ||
	    w->wire_len + sub + len > RCP_WALK_PATH_MAX)
		return false;
	if (slash)
		w->open[open_len++] = '/';
	memcpy(w->open + open_len, name, len + 1);
	w->open_len = open_len + len;
	if (sub)
		w->wire[w->wire_len++] = '/';
	memcpy(w->wire + w->wire_len, name, len + 1);
	w->wire_len += len;
	return true;
}
