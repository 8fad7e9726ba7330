/*
 * The source's arguments turned into entries, one at a time and depth first, with memory that does not
 * grow with the tree's breadth. Worker threads; blocks; one caller at a time.
 */
#ifndef RCP_FILE_WALK_H
#define RCP_FILE_WALK_H

#include "base/err.h"
#include "wire/msg.h"

#include <stdbool.h>
#include <stdint.h>

struct rcp_walk_options {
	bool recursive;	   /* -r: directories are entered; otherwise naming one is an error */
	bool archive;	   /* -a: symlinks as such, hard links, special files, owners, xattrs, ACLs */
	bool globs;	   /* arguments that don't exist as such are glob(7) patterns */
	bool pairs;	   /* arguments are names below `root`, sent with their directories (--files-from) */
	const char *root;  /* for pairs, or NULL */
	const char *const *excludes; /* gitignore-like patterns, NULL-ended, or NULL */
};

/* What the walk found. Strings live until the next call on the walk. */
struct rcp_walk_item {
	struct rcp_rec_entry entry; /* ready for the wire: path = name below the target, and so on */
	const char *open_path;	    /* how this end opens it */
	bool nofollow;
};

struct rcp_walk;

/* paths: NULL-ended, borrowed until free. "~/x" and "~user/x" are expanded; "" and "~" are home. */
int rcp_walk_new(const char *const *paths, const struct rcp_walk_options *options,
		 struct rcp_err *err, struct rcp_walk **out);
void rcp_walk_free(struct rcp_walk **walk);

/*
 * 1: *item is the next entry. 0: the end. -1: this one argument or directory could not be read (*err,
 * with severity: RCP_SEVERITY_WARNING for skipped special files and loops); call again to go on.
 */
int rcp_walk_next(struct rcp_walk *walk, struct rcp_walk_item *item, struct rcp_err *err,
		  enum rcp_severity *severity);

#endif
