/*
 * Writing one file so that its final name holds the old content or the new, never a mix:
 * .<name>.rcp-part beside the target, 0600 and locked, written at any offsets by several workers,
 * then size, metadata, rename. And its journal, .<name>.rcp-journal, which makes it resumable.
 * Worker threads; everything blocks.
 *
 * What a rename over the target means: a read-only target is replaced where its directory may be
 * written; other hard links of it keep the old content; and a symlink is replaced, not written
 * through as scp does, since only then is it true that nothing outside the directory changes and
 * the old content stays until the new one is whole. A directory, device, FIFO or socket under that
 * name (or behind a symlink of that name) is an error and stays: `rcp f host:/dev/null` must not
 * end /dev/null.
 *
 * Errors: RCP_E_PARTIAL for what concerns the one entry, RCP_E_IO for the disk (ENOSPC, EDQUOT,
 * EFBIG, EIO, EROFS, ENOMEM) and a second copy, RCP_E_INTEGRITY for data that is not what it should
 * be, RCP_E_CONNECT where the peer's entry is malformed.
 */
#ifndef RCP_FILE_SINK_H
#define RCP_FILE_SINK_H

#include "base/err.h"
#include "file/beneath.h"
#include "file/done.h"
#include "file/meta.h"
#include "file/source.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

struct rcp_sink;

struct rcp_sink_params {
	int root;	       /* directory fd that path is confined to; borrowed until close */
	const char *path;      /* relative; "dir/name"; refused where rcp_path_refuse says so; borrowed as root */
	const char *shown;     /* for errors: what the user calls it; NULL: path */
	struct rcp_file_id id; /* the source's: size to preallocate, identity for the journal */
	uint32_t chunk_bytes;  /* the grid: chunk i is [i * chunk_bytes, ...) */
	bool sparse;	       /* don't preallocate; 4 KiB blocks of zeros are left as holes */
	bool resume;	       /* look at what an earlier run left; keep a journal of this one */
	bool fsync;	       /* file and directory are on disk before commit returns */
	unsigned wait_ms;      /* for another rcp that holds the partial file to end */
	bool verify;	       /* small files: read it back before it gets its name */
	struct rcp_done *done; /* NULL, or the list that it comes on once it has its name */
};

/*
 * Creates or takes up the partial file. A target that is a directory, a full disk, a name that is
 * too long, a second copy into the same target (RCP_E_IO "another rcp is writing ..."): each its
 * own error. With resume, the chunks that the journal claims are re-read and checked here.
 */
int rcp_sink_open(const struct rcp_sink_params *params, struct rcp_err *err, struct rcp_sink **out);

/* Was chunk `index` there and right? Stable after open. For ANSWER.have. */
bool rcp_sink_has(const struct rcp_sink *sink, uint64_t index);
/* Is it in the file now? Any time, for a chunk that nobody is writing. */
bool rcp_sink_holds(const struct rcp_sink *sink, uint64_t index);
uint64_t rcp_sink_resumed_bytes(const struct rcp_sink *sink);
/* A journal or partial file was found but not used (or not all of it), or no journal can be
 * written, and why; NULL otherwise. */
const char *rcp_sink_remark(const struct rcp_sink *sink);

/*
 * Write one chunk whose CRC was checked, and note it for the journal. offset on the grid, len the
 * whole cell (the last may be short); anything else is RCP_E_INTEGRITY. A chunk written twice is
 * fine. Thread-safe for different chunks. A full disk is RCP_E_IO with the bytes that are missing.
 */
int rcp_sink_write(struct rcp_sink *sink, uint64_t offset, const void *data, size_t len,
		   uint32_t crc, struct rcp_err *err);

/* Bytes of distinct chunks that are in the file now (written and resumed). */
uint64_t rcp_sink_bytes(struct rcp_sink *sink);

/*
 * Make what was written so far durable and claim it in the journal (fdatasync, then journal, then
 * its fdatasync). Called every so often, also while chunks are written; cheap when nothing is new.
 * Nothing without resume. A journal that can't be written is a remark, no error: the copy goes on.
 */
int rcp_sink_checkpoint(struct rcp_sink *sink, struct rcp_err *err);

/* CRC-32 of the whole file, holes included, from the chunks' CRCs. */
uint32_t rcp_sink_crc(const struct rcp_sink *sink);

/* Read everything back past the cache and compare with the chunks' CRCs: RCP_E_INTEGRITY with the
 * offset of the first chunk that differs; written once more it may be verified again. Before
 * commit. */
int rcp_sink_verify(struct rcp_sink *sink, struct rcp_err *err);

/* Size, metadata, fsync, rename, remove the journal. After a failure the old target is untouched.
 * Chunks that never came: holes where sparse, else RCP_E_INTEGRITY. meta NULL: 0600 stays. */
int rcp_sink_commit(struct rcp_sink *sink, const struct rcp_meta *meta, struct rcp_err *err,
		    unsigned *lost);

/* keep: one more checkpoint, and the partial file and its journal stay for a later run (unless
 * nothing is claimed: then there is nothing to go on with); otherwise remove both. After commit
 * they are gone in any case. NULL is fine. */
void rcp_sink_close(struct rcp_sink **sink, bool keep);

/*
 * Small files: each is created and written at once and gets its metadata and name a little later, so
 * that the disk works for several while none waits for it alone. No journal; params.id, chunk_bytes,
 * sparse and resume are not looked at. Descriptors are open for RCP_SINK_PUTS of them, two each at most.
 *
 * add: the strings of params, data and meta stay until free. done comes once for each, with what it was
 * given as arg, from inside add or free: err is RCP_OK, or why it failed; lost: see rcp_meta_apply.
 * free: finishes what was added.
 */
#define RCP_SINK_PUTS 16u
struct rcp_sink_puts;
typedef void rcp_sink_put_done(void *arg, const struct rcp_err *err, unsigned lost);
int rcp_sink_puts_new(rcp_sink_put_done *done, struct rcp_err *err, struct rcp_sink_puts **out);
void rcp_sink_puts_add(struct rcp_sink_puts *puts, const struct rcp_sink_params *params,
		       const void *data, size_t len, const struct rcp_meta *meta, void *arg);
void rcp_sink_puts_free(struct rcp_sink_puts **puts);

/* Directories and the entries that have no data. Existing directories are fine, and symlinks to
 * directories below the root, unless replace_link: then a directory takes the symlink's place. They are made u+rwx (a new one 01700: the sticky bit says that rcp
 * made it) until rcp_sink_dir_end sets the mode. Without -p or -a a directory that was there before
 * keeps its mode, as with scp. */
int rcp_sink_mkdir(int root, const char *path, const char *shown, bool replace_link,
		   struct rcp_err *err);
/* sync: the directory is on disk, and its name where it is in the root itself. */
int rcp_sink_dir_end(int root, const char *path, const char *shown, const struct rcp_meta *meta, bool sync,
		     struct rcp_err *err, unsigned *lost);
/* Symlink, hard link, FIFO, device, socket: made beside and renamed over what is there (not over a
 * directory). meta is not applied to a hard link. sync: a name in the root is on disk; for others the end of
 * their directory does it. entered: how much of a hard link's first name may lead through symlinks. */
int rcp_sink_special(int root, const char *path, const char *shown,
		     const struct rcp_rec_entry *entry, size_t entered, const struct rcp_meta *meta, bool sync,
		     struct rcp_err *err, unsigned *lost);

/* --update, --skip-existing: is there a target already (of any type), and is it a regular file of
 * this size and mtime (to the grain that the target's file system keeps)? 0, or -1 with errno.
 * kept: NULL, or the job's. *st: of what is there. */
int rcp_sink_lookup(int root, const char *path, struct rcp_kept_dir *kept, const struct rcp_file_id *id,
		    bool *exists, bool *same, struct stat *st);

/* For one that need not be written: give it mode, owner and attributes where they differ. What the
 * target can't hold was told when it was written. kept: NULL, or the job's; st: as rcp_sink_lookup found it. */
int rcp_sink_refresh(int root, const char *path, const char *shown, struct rcp_kept_dir *kept,
		     const struct stat *st, const struct rcp_meta *meta, struct rcp_err *err);

/* Is there a regular file of this size? */
bool rcp_sink_is_there(int root, const char *path, const struct rcp_file_id *id);

/*
 * scp's target rules. target: as the user wrote it ("" = home or "."). *root: directory fd that
 * everything goes beneath; *rename: the name the one source gets, or NULL = sources keep their
 * names. must_be_dir: several sources. A missing target: one source gets its name, also a
 * directory; several are an error, but with source_is_dir (-r) the directory is made, one level.
 * "~" and
 * "~user" in front are home directories.
 */
struct rcp_target {
	int root;
	char *rename; /* malloc'ed or NULL */
	char *shown;  /* prefix for messages: "dir/" or "" (malloc'ed) */
	char *source; /* malloc'ed or NULL */
	struct rcp_done *done; /* what earlier runs completed, and this one; NULL: not kept */
};
/*
 * source: the one source as the user wrote it, or NULL. A directory that such a copy makes under a new
 * name has .<name>.rcp-new with these bytes and its inode beside it until all of it is there: the same copy, run
 * again, goes on into it, not into a directory within it.
 */
int rcp_target_resolve(const char *target, const char *source, bool must_be_dir, bool source_is_dir,
		       struct rcp_err *err, struct rcp_target *out);
/* Is there a directory now? Then names go into it. */
bool rcp_target_is_dir(const char *target);
/* Is there nothing under the new name? When the directory has been made; when all is there. */
bool rcp_target_is_new(const struct rcp_target *target);
void rcp_target_made(const struct rcp_target *target);
void rcp_target_done(const struct rcp_target *target);
/* Keep the list of what is done: for copies whose files don't have the source's times. Forget: a rerun has no use for it. */
void rcp_target_remember(struct rcp_target *target);
void rcp_target_forget(struct rcp_target *target);
void rcp_target_free(struct rcp_target *target);

#endif
