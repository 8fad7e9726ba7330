/*
 * --exclude patterns, gitignore-like. Pure; any thread once made. Private to src/file.
 *
 *   *.o       a name anywhere below (and the arguments themselves)
 *   /build    only directly in the argument's directory; so is any pattern with a slash in it: a/b
 *   tmp/      directories only
 *   a/ ** /b  (without the blanks) any number of directories, also none
 *   !keep.o   not excluded after all: the last pattern that matches decides
 *   \x        x itself; [a-z] [!a-z] ? as in glob(7); none of them matches a slash
 *
 * What is below an excluded directory is never looked at.
 */
#ifndef RCP_FILE_EXCLUDE_H
#define RCP_FILE_EXCLUDE_H

#include "base/err.h"

#include <stdbool.h>

struct rcp_excludes;

/* patterns: NULL-ended, copied; NULL gives *out NULL, which excludes nothing. */
int rcp_excludes_new(const char *const *patterns, struct rcp_err *err, struct rcp_excludes **out);
void rcp_excludes_free(struct rcp_excludes **excludes);

/* below: path below the argument, "" for the argument itself; name: its last component. */
bool rcp_excluded(const struct rcp_excludes *excludes, const char *below, const char *name,
		  bool is_dir);

/* The matcher alone: `*` stops at a slash, `**` does not. Time is O(pattern * text), whatever is in them. False also for
 * a pattern of more than 4096 bytes. */
bool rcp_glob_match(const char *pattern, const char *text);

#endif
