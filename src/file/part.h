/*
 * The hidden file beside a target: its name, its lock, and how it takes the target's place. Worker
 * threads; blocks. Private to src/file.
 */
#ifndef RCP_FILE_PART_H
#define RCP_FILE_PART_H

#include "base/err.h"
#include "file/beneath.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

struct rcp_part {
	int dir;		    /* O_PATH: the target's directory */
	int fd;			    /* read-write, locked */
	bool found;		    /* an earlier run left it; otherwise it is new and empty */
	bool placed;		    /* renamed: there is no partial file any more */
	unsigned wait_ms;	    /* for its lock; after locate, before open */
	const char *shown;	    /* borrowed */
	struct rcp_kept_dir *kept;  /* whose dir is, or NULL: our own */
	bool local, memory;	    /* with kept: its file system's, see there */
	char leaf[NAME_MAX + 1];    /* the target's own name */
	char name[NAME_MAX + 1];    /* .<leaf>.rcp-part */
	char journal[NAME_MAX + 1]; /* .<leaf>.rcp-journal */
};

/*
 * "." + leaf + suffix. Where that is over 255 bytes, leaf is cut (between UTF-8 characters) and
 * gets
 * "~" and 16 hex digits of the whole leaf's FNV-1a hash, so that two long names stay two.
 */
#define RCP_PART_SUFFIX	   ".rcp-part"
#define RCP_JOURNAL_SUFFIX ".rcp-journal"
#define RCP_NEW_SUFFIX	   ".rcp-new"  /* beside a directory that is being made: see rcp_target_resolve */
#define RCP_DONE_SUFFIX	   ".rcp-done" /* done.h */
#define RCP_MAKE_SUFFIX	   ".rcp-make" /* links, FIFOs, devices on their way to their name */
bool rcp_part_name_is_own(const char *leaf);
/* The same of any name in a path. */
bool rcp_part_path_is_own(const char *path);
/* RCP_E_PARTIAL: such a name is not copied. */
int rcp_part_refuse(const char *shown, struct rcp_err *err);
void rcp_part_name(const char *leaf, const char *suffix, char out[NAME_MAX + 1]);

/* What rcp_part_locate refuses by the name alone. */
int rcp_part_check_name(const char *path, const char *shown, struct rcp_err *err);

/* Split path and open its directory. A name that could be a partial file's is refused. dir and fd are -1 before and after a failure. kept: NULL, or
 * what outlives part. */
int rcp_part_locate(int root, const char *path, const char *shown, struct rcp_kept_dir *kept,
		    struct rcp_err *err, struct rcp_part *part);

/* Can a regular file take this name? Not a directory's, device's, FIFO's or socket's, nor that of a
 * symlink to one. */
int rcp_part_check_target(const struct rcp_part *part, struct rcp_err *err);

/*
 * Create the partial file or take up the one that is there (ours, regular, one name; anything else
 * is replaced), lock it, and make sure the name still means the file that was locked.
 */
int rcp_part_open(struct rcp_part *part, struct rcp_err *err);

/* Rename it over the target. target_checked: rcp_part_check_target was asked before. */
int rcp_part_place(struct rcp_part *part, bool target_checked, struct rcp_err *err);

/* Remove it, if the name is still its own. */
void rcp_part_remove(struct rcp_part *part);

void rcp_part_close(struct rcp_part *part);

#endif
