/*
 * What a copy has completed, for a rerun. With -p or -a a file that is there with the source's size and time is the
 * one that was copied; without them its time is its own, so the sink keeps a list beside the target,
 * .<8 hex digits>.rcp-done, until all is there. A file is on it by the source's identity and path together with its
 * inode, times of modification and of change at the target: who writes to it, or puts another in its place, takes it
 * off, also at once.
 *
 * The file: 16 bytes "rcp-done 1\n" and zeros, 16 bytes of secret, then a key of 16 bytes a file (base/keys.h). There
 * is no checksum: what a power cut made of a key matches nothing. It is made with the 32nd file, with room for more, and
 * written each second or 2048 files. A copy that ends within a second, with less than 32 files and 16 MiB, makes none, and costs a
 * moment to do again. Where it can't be kept, files are sent again and that is all.
 *
 * Any thread; blocks.
 */
#ifndef RCP_FILE_DONE_H
#define RCP_FILE_DONE_H

#include "file/beneath.h"
#include "file/source.h"

#include <sys/stat.h>

struct rcp_done;

/* root: borrowed until the end. source, rename: which copy this is (NULL: ""). NULL: no memory. */
struct rcp_done *rcp_done_new(int root, const char *source, const char *rename);

/* Is the file at path (below the root) on the list, and still what was written? kept: the job's. */
bool rcp_done_has(struct rcp_done *done, const char *path, const struct rcp_file_id *id, struct rcp_kept_dir *kept);

/*
 * fd: the file. look: when all is written and it has no name yet that others could open; add: when it has its name.
 * Who wrote to it in between keeps it off the list. done may be NULL.
 */
void rcp_done_look(const struct rcp_done *done, int fd, struct stat *nameless);
void rcp_done_add(struct rcp_done *done, const char *path, const struct rcp_file_id *id, int fd,
		  const struct stat *nameless);

/* complete: nothing is left to do, so the list goes. */
void rcp_done_free(struct rcp_done **done, bool complete);

#endif
