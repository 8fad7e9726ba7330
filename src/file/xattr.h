/*
 * Extended attributes and ACLs (which are the attributes system.posix_acl_*) as XATTR records.
 * Worker threads; blocks. Private to src/file; reading is in meta.h.
 */
#ifndef RCP_FILE_XATTR_H
#define RCP_FILE_XATTR_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RCP_XATTRS_BYTES_MAX (128u << 10)

/*
 * Is this an attribute that is copied? user.*, ACLs, file capabilities, trusted.* but overlayfs's
 * own. Not: labels and signatures that hold on one host alone (security.selinux, .ima, .evm ...).
 */
bool rcp_xattr_copied(const char *name);

/* Well-formed records, copied names only, at most RCP_XATTRS_BYTES_MAX. */
bool rcp_xattrs_valid(const uint8_t *records, size_t len);

/*
 * Put them on fd, or on path (not followed) where fd is -1; ACLs that are there and not among the
 * records go. capabilities: may security.capability be set (not when the owner was lost)?
 * Returns RCP_LOST_* bits; an EIO or the like goes to *err.
 */
unsigned rcp_xattrs_apply(int fd, const char *path, const char *name, const uint8_t *records,
			  size_t len, bool capabilities, struct rcp_err *err);

#endif
