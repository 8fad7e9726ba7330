/*
 * The one directory that a whole process may be confined to: a daemon's child serves one module, a login may be
 * held to one directory (--restrict). From then on it is the root of every name that the walk, a source or a target opens, through openat2
 * (RESOLVE_BENEATH): neither `..` nor a symlink, on the way or at the end, leads out of it. As with
 * chroot(2) there is no way back, but the process keeps its /proc, /dev and libraries.
 *
 * Set once, before any worker runs; the rest is for worker threads and blocks.
 */
#ifndef RCP_FILE_CONFINE_H
#define RCP_FILE_CONFINE_H

#include "base/err.h"

#include <glob.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/types.h>

/* root: a directory's descriptor, kept. name: what the directory itself is called where it is copied; what: it, in
 * messages, as "the module". Both borrowed. */
void rcp_confine(int root, const char *name, const char *what);
bool rcp_confined(void);
/* Is that the root itself? Its mode, owner and times are whoever's who made it a root. */
bool rcp_confined_root(const struct stat *st);
const char *rcp_confined_name(void);
const char *rcp_confined_what(void);

/*
 * A peer's path made relative to the root: "//a/./b/" is "a/b/", "" and "/" are "."; a "." at the end stays, since it
 * means what is in the directory: "a/." and, of the root, "./.". NULL and *err where
 * it can't be (".." and the like), or without memory. Caller frees. Unconfined: a copy.
 */
char *rcp_confine_path(const char *path, struct rcp_err *err);

/*
 * openat(dirfd, name) in a process that is not confined; otherwise `whole`, the same file's path from
 * where all paths begin, beneath the root. Never creates. -1 with errno (EXDEV: it leads out).
 */
int rcp_place_open(int dirfd, const char *name, const char *whole, int flags);
int rcp_place_stat(int dirfd, const char *name, const char *whole, bool follow, struct stat *st);
/* Confined only: is the file that a symlink has led to one of rcp's own (part.h)? */
bool rcp_place_hidden(int fd);
/* As readlink(2). */
ssize_t rcp_place_readlink(int dirfd, const char *name, const char *whole, char *buf, size_t size);
int rcp_place_mkdir(const char *path, mode_t mode);
/* Confined only: the directory that holds path, beneath the root, and its last component. As
 * rcp_beneath_parent. */
int rcp_place_parent(const char *path, const char **leaf);
/* As glob(3) without flags. Confined, what all patterns stand for is bounded: RCP_GLOB_MANY. */
#define RCP_GLOB_MANY 1000
int rcp_place_glob(const char *pattern, glob_t *out);

#endif
