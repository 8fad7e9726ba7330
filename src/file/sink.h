/*
 * Writing one file so that its final name holds the old content or the new, never a mix:
 * .<name>.rcp-part beside the target, 0600 and locked, written at any offsets by several workers,
 * then size, metadata, rename. And its journal, .<name>.rcp-journal, which makes it resumable.
 * Worker threads; everything blocks.
 */
#ifndef RCP_FILE_SINK_H
#define RCP_FILE_SINK_H

#include "base/err.h"
#include "file/meta.h"
#include "file/source.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rcp_sink;

struct rcp_sink_params {
	int root;	      /* directory fd that path is confined to; borrowed until close */
	const char *path;     /* relative; "dir/name" */
	const char *shown;    /* for errors: what the user calls it */
	struct rcp_file_id id; /* the source's: size to preallocate, identity for the journal */
	uint32_t chunk_bytes; /* the grid: chunk i is [i * chunk_bytes, ...) */
	bool sparse;	      /* don't preallocate; 4 KiB blocks of zeros are left as holes */
	bool resume;	      /* look at what an earlier run left; keep a journal of this one */
	bool fsync;	      /* file and directory are on disk before commit returns */
};

/*
 * Creates or takes up the partial file. A target that is a directory, a full disk, a name that is too
 * long, a second copy into the same target (RCP_E_IO "another rcp is writing ..."): each its own
 * error. With resume, the chunks that the journal claims are re-read and checked here.
 */
int rcp_sink_open(const struct rcp_sink_params *params, struct rcp_err *err, struct rcp_sink **out);

/* Was chunk `index` there and right? Stable after open. For ANSWER.have. */
bool rcp_sink_has(const struct rcp_sink *sink, uint64_t index);
uint64_t rcp_sink_resumed_bytes(const struct rcp_sink *sink);
/* A journal or partial file was found but not used, and why; NULL otherwise. */
const char *rcp_sink_remark(const struct rcp_sink *sink);

/*
 * Write one chunk whose CRC was checked, and note it for the journal. offset on the grid, len the
 * whole cell (the last may be short); anything else is RCP_E_INTEGRITY. A chunk written twice is
 * fine. Thread-safe for different chunks.
 */
int rcp_sink_write(struct rcp_sink *sink, uint64_t offset, const void *data, size_t len,
		   uint32_t crc, struct rcp_err *err);

/* Bytes of distinct chunks that are in the file now (written and resumed). */
uint64_t rcp_sink_bytes(struct rcp_sink *sink);

/*
 * Make what was written so far durable and claim it in the journal (fdatasync, then journal, then its
 * fdatasync). Called every so often; cheap when nothing is new. Nothing without resume.
 */
int rcp_sink_checkpoint(struct rcp_sink *sink, struct rcp_err *err);

/* CRC-32 of the whole file, holes included, from the chunks' CRCs. */
uint32_t rcp_sink_crc(const struct rcp_sink *sink);

/* Read everything back past the cache and compare with the chunks' CRCs: RCP_E_INTEGRITY with the
 * offset of the first difference. Before commit. */
int rcp_sink_verify(struct rcp_sink *sink, struct rcp_err *err);

/* Size, metadata, fsync, rename, remove the journal. After a failure the old target is untouched. */
int rcp_sink_commit(struct rcp_sink *sink, const struct rcp_meta *meta, struct rcp_err *err,
		    unsigned *lost);

/* keep: leave the partial file (and journal) for a later run; otherwise remove both. NULL is fine. */
void rcp_sink_close(struct rcp_sink **sink, bool keep);

/* A small file in one go: create, write, metadata, rename. */
int rcp_sink_put(const struct rcp_sink_params *params, const void *data, size_t len,
		 const struct rcp_meta *meta, struct rcp_err *err, unsigned *lost);

/* Directories and the entries that have no data. Existing directories are fine. They are made
 * u+rwx until rcp_sink_dir_end sets the mode. */
int rcp_sink_mkdir(int root, const char *path, const char *shown, struct rcp_err *err);
int rcp_sink_dir_end(int root, const char *path, const char *shown, const struct rcp_meta *meta,
		     struct rcp_err *err, unsigned *lost);
/* Symlink, hard link, FIFO, device, socket: made beside and renamed over what is there. */
int rcp_sink_special(int root, const char *path, const char *shown,
		     const struct rcp_rec_entry *entry, const struct rcp_meta *meta,
		     struct rcp_err *err, unsigned *lost);

/* --update, --skip-existing: is there a target already, and of this size and mtime? */
int rcp_sink_lookup(int root, const char *path, bool *exists, bool *same,
		    const struct rcp_file_id *id);

/*
 * scp's target rules. target: as the user wrote it ("" = home or "."). *root: directory fd that
 * everything goes beneath; *rename: the name the one source gets, or NULL = sources keep their names.
 * must_be_dir: several sources. With recursive a missing target is made (one level).
 */
struct rcp_target {
	int root;
	char *rename; /* malloc'ed or NULL */
	char *shown;  /* prefix for messages: "dir/" or "" (malloc'ed) */
};
int rcp_target_resolve(const char *target, bool must_be_dir, bool source_is_dir,
		       struct rcp_err *err, struct rcp_target *out);
void rcp_target_free(struct rcp_target *target);

#endif
