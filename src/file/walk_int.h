/*
 * The inside of a walk, for the files that make it up: walk.c (what comes next), walk_arg.c (the
 * arguments and their names), walk_seen.c (arguments that meet), walk_dir.c (directories being read), walk_item.c (a name made into an
 * entry).
 */
#ifndef RCP_FILE_WALK_INT_H
#define RCP_FILE_WALK_INT_H

#include "file/exclude.h"
#include "file/ids.h"
#include "file/links.h"
#include "file/walk.h"

#include <glob.h>
#include <limits.h>
#include <sys/stat.h>

#define RCP_WALK_PATH_MAX    4095  /* bytes: what open(2) takes */
#define RCP_WALK_BATCH_NAMES 16384 /* of one directory in memory at once */
#define RCP_WALK_BATCH_BYTES ((size_t)4 << 20)
#define RCP_WALK_FDS	     32 /* open directories; the rest is opened again when its turn comes */

struct rcp_names {
	char *bytes; /* NUL-ended, one after another */
	size_t len, cap;
	uint32_t *at; /* where each begins, sorted */
	size_t count, at_cap;
};

/* A directory that was entered. */
struct rcp_frame {
	int fd;	      /* -1: closed to save descriptors */
	bool more;    /* its listing is not read to the end: fd holds the place */
	bool implied; /* only named by a pair: has no listing of its own */
	struct rcp_names names;
	size_t next;
	size_t open_len, wire_len; /* this directory's part of the two paths */
	bool nofollow;
	struct stat st;
	uint8_t *xattrs;
	uint32_t xattrs_len;
};

struct rcp_walk {
	struct rcp_walk_options opt;
	const char *const *paths; /* what is left of the arguments */
	glob_t globbed;
	size_t globs, glob_at; /* results of the last pattern: globs 0 = none */
	char *pair;	       /* the pair under way: normalised, malloc'ed; NULL: none */
	struct rcp_excludes *excludes;
	struct rcp_links links;
	void *seen; /* walk_seen.c: the arguments that have begun, by name */
	const struct rcp_seen *argument; /* at hand */
	size_t arguments;
	struct rcp_keys *listed; /* pairs that have begun */

	struct rcp_frame *stack;
	size_t depth, cap;

	/* the name at hand; NUL-ended */
	char open[RCP_WALK_PATH_MAX + 1], wire[RCP_WALK_PATH_MAX + 1];
	size_t open_len, wire_len;
	bool inside; /* the argument's own name is no part of wire, which may be empty */

	/* what the last item points to */
	char link[RCP_WALK_PATH_MAX + 2];
	char user[RCP_ID_NAME_MAX], group[RCP_ID_NAME_MAX];
	uint8_t *xattrs;
	uint32_t xattrs_len;
	struct rcp_err later; /* a warning about the last item, told next */
	bool warning;	      /* the error at hand leaves a whole copy behind it */
};

/* All of these return as rcp_walk_next; 0: nothing to tell, go on. */

/* walk_arg.c: begin the next argument. *end: there is none. */
int rcp_walk_argument(struct rcp_walk *w, struct rcp_walk_item *item, struct rcp_err *err,
		      bool *end);
int rcp_walk_pair(struct rcp_walk *w, struct rcp_walk_item *item, struct rcp_err *err, bool *end);

/*
 * walk_item.c: make an entry of `name` in dirfd; w->open and w->wire are its paths. follow: a
 * symlink is what it leads to. A directory is entered.
 */
int rcp_walk_visit(struct rcp_walk *w, int dirfd, const char *name, bool follow,
		   struct rcp_walk_item *item, struct rcp_err *err);
/* The entry of an entered directory, as DIR or DIR_END. */
int rcp_walk_dir_item(struct rcp_walk *w, enum rcp_entry_type type, struct rcp_walk_item *item);
/* Is what w->wire names excluded? */
bool rcp_walk_excluded(const struct rcp_walk *w, bool is_dir);
int rcp_walk_fail(const struct rcp_walk *w, struct rcp_err *err, int sys_errno, const char *call);

/* walk_seen.c: an argument begins: w->open, w->wire. 0, or -1 and *err. */
int rcp_walk_begun(struct rcp_walk *w, bool followed, struct rcp_err *err);
/* Does an earlier argument bring something to this path of the target, that this can't be merged with? *err says it. */
bool rcp_walk_met(struct rcp_walk *w, const struct stat *st, struct rcp_err *err);
/* Pairs. Does an earlier one name w->pair, or a directory that it is in? If not it is remembered. */
bool rcp_walk_listed(struct rcp_walk *w);
/* Was what w->wire names in a listed directory a pair of its own, and so copied? */
bool rcp_walk_was_listed(const struct rcp_walk *w);
void rcp_walk_seen_free(struct rcp_walk *w);

/* walk_dir.c */
/* Open it and push its frame. 0, or -1 and *err. implied: don't list it. */
int rcp_walk_enter(struct rcp_walk *w, int dirfd, const char *name, bool nofollow, bool implied,
		   struct rcp_err *err);
/* The top frame's next name: 1, 0 at the end, -1 and *err (the frame then is at its end). */
int rcp_walk_name(struct rcp_walk *w, const char **name, struct rcp_err *err);
/* Its descriptor, opened again if need be; -1 and *err. */
int rcp_walk_fd(struct rcp_walk *w, struct rcp_err *err);
void rcp_walk_leave(struct rcp_walk *w);

/* Both paths one component longer. False: too long; they stay as they were. */
bool rcp_walk_append(struct rcp_walk *w, const char *name);

/* Only with depth > 0. */
static inline struct rcp_frame *rcp_walk_top(struct rcp_walk *w)
{
	return &w->stack[w->depth - 1];
}

/* Both paths back to those of the top directory. */
static inline void rcp_walk_rewind(struct rcp_walk *w)
{
	const struct rcp_frame *f = rcp_walk_top(w);

	w->open[w->open_len = f->open_len] = 0;
	w->wire[w->wire_len = f->wire_len] = 0;
}

#endif
