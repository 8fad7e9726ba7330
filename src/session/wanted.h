/*
 * What an initiator has asked a source for, so that nothing else gets a name: a source that is not the user's own could
 * name files that nobody wanted. Pure, knows no peer and no file; one owner, any one thread.
 */
#ifndef RCP_SESSION_WANTED_H
#define RCP_SESSION_WANTED_H

#include "base/bytes.h"
#include "base/err.h"

#include <stdbool.h>

struct rcp_wanted;

/*
 * paths: NULL-ended, as the user wrote them (home directories and patterns as the other end will expand them);
 * pairs: the first is a directory, the others are names below it; module: of a daemon, whose paths begin at it, or NULL.
 * Nothing of them is kept by reference.
 */
int rcp_wanted_new(char *const *paths, bool pairs, const char *module, struct rcp_err *err, struct rcp_wanted **out);
/* Is there a path that must be named or told to have failed? Not where there are patterns to exclude it. */
bool rcp_wanted_some(const struct rcp_wanted *wanted);
void rcp_wanted_free(struct rcp_wanted **wanted);

/*
 * May the source name this path (which has passed rcp_path_refuse, or is "." with inside)? inside: it is below an
 * argument that has no name of its own, such as dir/. ; dir: it is a directory or the end of one.
 */
bool rcp_wanted_has(struct rcp_wanted *wanted, struct rcp_span path, bool inside, bool dir);

/* Pairs: does this directory only lead to names that are listed? */
bool rcp_wanted_on_the_way(const struct rcp_wanted *wanted, struct rcp_span path);

/*
 * path, as it is at the target, comes as a directory that may be entered through a symlink of the user's, or else (dir
 * false) as what may be a symlink itself. 1: it has come as the other before, 0: not so, -1: no memory.
 */
int rcp_wanted_came(struct rcp_wanted *wanted, struct rcp_span path, bool dir);

/* As much of path, at the target, as are directories that have come so: the length to the last of them, or 0. */
size_t rcp_wanted_entered(const struct rcp_wanted *wanted, struct rcp_span path);

#endif
