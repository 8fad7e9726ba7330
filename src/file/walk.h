/*
 * The source's arguments turned into entries, one at a time and depth first, with memory that does
 * not grow with the tree's breadth (names come in sorted batches of 16384, which is all of most
 * directories). Worker threads; blocks; one caller at a time.
 *
 * What an argument is called at the target: its last component, slashes at its end taken off
 * ("dir/sub/" is "sub"). "." ".." "x/.." "x/." and "/" have none: what is in them goes into the target
 * itself, with paths that begin below it and the flag INSIDE; the directory is "." then. A slash behind a symlink means what it leads to, also with -a.
 *
 * Each DIR is followed, after all that is in it, by a DIR_END with the same path and metadata.
 * Without -a symlinks are followed; one that leads back to a directory it is in is skipped with a
 * warning. Devices, FIFOs and sockets without -a: skipped with a warning in a directory, an error
 * as argument. Directories are entered through their parent's descriptor, so with -a no symlink
 * that is put into the tree meanwhile leads out of it; open_path is checked by opening it with the
 * entry's identity.
 *
 * Two arguments that meet at the target: directories are merged, of two files the second is an error;
 * the same file or directory twice is a warning. Of names listed twice as pairs the first is taken.
 *
 * Pairs: "a/b/c" gives DIR a, DIR a/b, FILE a/b/c; names in one directory, one after another, share
 * its DIR and DIR_END. "//", "." and a slash in front are taken out; ".." is an error.
 *
 * --exclude: exclude.h has the patterns.
 */
#ifndef RCP_FILE_WALK_H
#define RCP_FILE_WALK_H

#include "base/err.h"
#include "wire/msg.h"

#include <stdbool.h>
#include <stdint.h>

struct rcp_target; /* sink.h */

struct rcp_walk_options {
	bool recursive; /* -r: directories are entered; otherwise naming one is an error */
	bool archive;	/* -a: symlinks as such, hard links, special files, owners, xattrs, ACLs */
	bool globs;	/* arguments that don't exist as such are glob(7) patterns */
	bool one_name; /* a pattern that stands for several is an error */
	bool pairs; /* arguments are names below `root`, sent with their directories (--files-from)
		     */
	const char *root;	     /* for pairs, or NULL */
	const char *const *excludes; /* gitignore-like patterns, NULL-ended, or NULL */
	/* Where it is of the same process: not entered, or a copy into its own source would have no end. Borrowed; NULL:
	 * elsewhere. May be resolved after rcp_walk_new, before the first rcp_walk_next. */
	const struct rcp_target *target;
};

/* What the walk found. Strings live until the next call on the walk. */
struct rcp_walk_item {
	struct rcp_rec_entry entry; /* ready for the wire: path = name below the target, and so on;
				       user, group and xattrs with -a only; SPARSE where blocks are
				       missing, with -a or without */
	const char *open_path;	    /* how this end opens it */
	bool nofollow;
};

struct rcp_walk;

/* paths: NULL-ended, borrowed until free. "~/x" and "~user/x" are expanded; "" and "~" are home. */
int rcp_walk_new(const char *const *paths, const struct rcp_walk_options *options,
		 struct rcp_err *err, struct rcp_walk **out);
void rcp_walk_free(struct rcp_walk **walk);

/*
 * 1: *item is the next entry. 0: the end. -1: this one argument or directory could not be read
 * (*err, with severity: RCP_SEVERITY_WARNING for skipped special files and loops, and for extended
 * attributes that are missing in the entry just told); clear *err and call again to go on.
 */
int rcp_walk_next(struct rcp_walk *walk, struct rcp_walk_item *item, struct rcp_err *err,
		  enum rcp_severity *severity);

#endif
