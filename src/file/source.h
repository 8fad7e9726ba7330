/*
 * Reading one regular file: identity, windows of its mapping, reads into a buffer, each with a CRC.
 * Worker threads; everything blocks. A source may be used by several workers at once.
 */
#ifndef RCP_FILE_SOURCE_H
#define RCP_FILE_SOURCE_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What tells one version of a file from another. */
struct rcp_file_id {
	uint64_t dev, ino, size;
	int64_t mtime_s;
	uint32_t mtime_ns;
	uint64_t ctime; /* nanoseconds; for the journal alone: a content may change and its mtime be put back */
};

struct rcp_source;

/*
 * Open path (relative to the working directory, or absolute) for reading; nofollow: refuse a
 * symlink. expect may be NULL; where it differs from the file now: RCP_E_PARTIAL "file changed
 * ...". Not a regular file: RCP_E_PARTIAL. O_NOATIME where allowed; O_NONBLOCK, so that no FIFO is
 * waited for.
 */
int rcp_source_open(const char *path, bool nofollow, const struct rcp_file_id *expect,
		    struct rcp_err *err, struct rcp_source **out);
void rcp_source_close(struct rcp_source **source);

const struct rcp_file_id *rcp_source_id(const struct rcp_source *source);
int rcp_source_fd(const struct rcp_source *source);
const char *rcp_source_path(const struct rcp_source *source);

/* fstat again: RCP_E_PARTIAL "changed while it was copied" where size or mtime moved. */
int rcp_source_check(const struct rcp_source *source, struct rcp_err *err);

/* Read len bytes at offset, all of them, and their CRC-32. Fewer there: "truncated while ...";
 * EIO and friends: RCP_E_IO. buf: any alignment. */
int rcp_source_read(const struct rcp_source *source, uint64_t offset, void *buf, size_t len,
		    struct rcp_err *err, uint32_t *crc);

/* The same past the page cache (O_DIRECT, second descriptor opened on first use). buf 4 KiB
 * aligned, with room for len rounded up to 4 KiB. Falls back to rcp_source_read where the file
 * system has no O_DIRECT. */
int rcp_source_read_direct(struct rcp_source *source, uint64_t offset, void *buf, size_t len,
			   struct rcp_err *err, uint32_t *crc);

/* CRC-32 of bytes in any memory; RCP_E_PARTIAL where a mapped page is gone (SIGBUS caught). */
int rcp_guarded_crc(const void *data, size_t len, const char *path, struct rcp_err *err,
		    uint32_t *crc);

/* Install the process-wide SIGBUS handler behind rcp_guarded_crc. Once, before workers run. A
 * SIGBUS outside a guarded call is passed on to the default action. And one for SIGXFSZ that does
 * nothing: a limit on file sizes is then EFBIG from the call, not the end of the process. */
void rcp_sigbus_install(void);

/*
 * A read-only MAP_SHARED view of [offset, offset + len), page aligned below. Never past the end of
 * the file: cut there, and a file that got shorter is RCP_E_PARTIAL. data points at `offset`'s
 * byte; NULL for no bytes.
 */
struct rcp_window {
	const uint8_t *data;
	size_t len;
	uint64_t offset;
	void *map; /* as mapped, for unmapping and registering: whole pages */
	size_t map_len;
};
int rcp_window_map(const struct rcp_source *source, uint64_t offset, size_t len,
		   struct rcp_err *err, struct rcp_window *out);
void rcp_window_unmap(struct rcp_window *window);

/* On tmpfs, looking at a hole by a mapping puts a page there: the source would grow to its size. */
bool rcp_source_fills_holes(const struct rcp_source *source);

/* Where data is, at or after offset: [*start, *end); *start == size when only a hole is left. A
 * file system without SEEK_DATA has one extent. */
int rcp_source_extent(const struct rcp_source *source, uint64_t offset, struct rcp_err *err,
		      uint64_t *start, uint64_t *end);

#endif
