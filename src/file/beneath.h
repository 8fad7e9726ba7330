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

#endif
