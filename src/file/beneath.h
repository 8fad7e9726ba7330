/*
 * Names from a peer, and the directory they are confined to. Every open below the root goes through
 * openat2(RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS), so neither `..` nor a symlink leaves it, also
 * when the tree changes under us. Worker threads; blocks.
 */
#ifndef RCP_FILE_BENEATH_H
#define RCP_FILE_BENEATH_H

#include "base/err.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/*
 * A relative path of one or more components: none empty, "." or "..", none over 255 bytes, no NUL,
 * in all at most 4096. Returns NULL, or what is wrong with it in words.
 */
const char *rcp_path_refuse(const char *path, size_t len);

/* The components without "." and empty ones, one slash between them: "/a//./b/" is "a/b". to: as long as path, with its
 * NUL. Returns the length. */
size_t rcp_path_join(const char *path, char *to);

/* openat2 below root (O_CLOEXEC added). -1 with errno. Falls back to a component-by-component
 * O_NOFOLLOW walk where the kernel has no openat2. */
int rcp_beneath_open(int root, const char *path, int flags, mode_t mode);

/* That fallback alone, so that it can be tested on any kernel. Follows no symlink at all. */
int rcp_beneath_walk(int root, const char *path, int flags, mode_t mode);

/*
 * The directory that holds path, and its last component (a pointer into path). A one-component path
 * gives a duplicate of root. The fd is for *at calls alone (O_PATH). -1 with errno; the caller
 * closes.
 */
int rcp_beneath_parent(int root, const char *path, const char **leaf);

/* The same, through symlinks only within its first `entered` bytes, which end with a component (0: through none). */
int rcp_beneath_parent_plain(int root, const char *path, size_t entered, const char **leaf);

/*
 * The directory of the last name, held open for the next: those of one job mostly lie in one
 * directory. Of one worker, for one job; what moves the directory meanwhile has the same effect as
 * between any open of it and the calls that follow.
 */
struct rcp_kept_dir {
	int fd; /* -1: none */
	bool local; /* its file system has nothing to say at a close, and keeps times to the nanosecond */
	bool memory; /* and no disk */
	bool taken; /* no file gets a name here that was made without one: see sink_put.c */
	size_t len;
	char path[4096];
};

void rcp_kept_init(struct rcp_kept_dir *kept);
void rcp_kept_close(struct rcp_kept_dir *kept);
/* Would path be in it? */
bool rcp_kept_is(const struct rcp_kept_dir *kept, const char *path);
/* As rcp_beneath_parent, but the fd stays kept's. */
int rcp_kept_parent(struct rcp_kept_dir *kept, int root, const char *path, const char **leaf);

#endif
