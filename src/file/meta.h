/*
 * Mode, times, owner, xattrs and ACLs: read from a file, put on a file. Worker threads; blocks.
 */
#ifndef RCP_FILE_META_H
#define RCP_FILE_META_H

#include "base/err.h"
#include "wire/msg.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

/* What the target is to get; made from an entry and the options by rcp_meta_of. Owns its memory. */
struct rcp_meta {
	uint32_t mode; /* permission bits, final */
	bool new_mode; /* of a new file: without -p one that is replaced keeps its own */
	bool set_times, set_owner;
	struct timespec mtime, atime;
	unsigned lost; /* RCP_LOST_*: what it may not have here, whatever the file system can hold */
	uint32_t uid, gid;
	uint8_t *xattrs; /* XATTR records as on the wire, or NULL */
	uint32_t xattrs_len;
};

struct rcp_meta_options {
	bool times;   /* -p or -a: times, and the mode without umask */
	bool archive; /* -a: owner, xattrs, ACLs */
	bool numeric_ids;
	mode_t umask; /* the user's, for mode without -p */
};

/* Names are looked up on this host; setuid and setgid bits only with -p/-a. RCP_E_CONNECT: times or
 * attributes that no honest peer sends. */
int rcp_meta_of(const struct rcp_rec_entry *entry, const struct rcp_meta_options *options,
		struct rcp_err *err, struct rcp_meta *out);
void rcp_meta_free(struct rcp_meta *meta);

/*
 * Put it on an open file (fd) in the order that keeps it: owner, xattrs, mode, times.
 * What the target can't hold (no xattr support, not the owner) is no failure: the bits of *lost
 * tell. Where the owner is lost, so are setuid, setgid and file capabilities. With -a an ACL that
 * is not the source's (a directory's default) is taken off.
 */
#define RCP_LOST_OWNER 1u
#define RCP_LOST_XATTR 2u
#define RCP_LOST_ACL   4u
#define RCP_LOST_TIMES 8u
#define RCP_LOST_MODE  16u
int rcp_meta_apply(int fd, const char *name, const struct rcp_meta *meta, struct rcp_err *err,
		   unsigned *lost);
/* The same for a name that can't be opened (symlink, device). */
int rcp_meta_apply_at(int dirfd, const char *leaf, const char *name, const struct rcp_meta *meta,
		      struct rcp_err *err, unsigned *lost);

/* Xattrs and ACLs of an open source file or a symlink's name as XATTR records (malloc'ed; NULL, 0
 * where there are none). At most 128 KiB in all: more is left out and *truncated set. */
int rcp_meta_read_xattrs(int fd, const char *path, struct rcp_err *err, uint8_t **out,
			 uint32_t *out_len, bool *truncated);
/* The same of a name in a directory, which is not followed. */
int rcp_meta_read_xattrs_at(int dirfd, const char *leaf, struct rcp_err *err, uint8_t **out,
			    uint32_t *out_len, bool *truncated);

#endif
