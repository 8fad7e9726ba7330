/*
 * The inside of a sink, for the files that make it up: sink.c (open, close), sink_write.c (the hot
 * path), sink_claim.c (journal: taking up and checkpoints), sink_commit.c (verify, commit),
 * sink_put.c (small files).
 *
 * Threads: after open, `crc` and `written` are shared by the workers without a lock. A chunk's CRC
 * is stored before its bit is set (release) and read after the bit was seen (acquire).
 */
#ifndef RCP_FILE_SINK_INT_H
#define RCP_FILE_SINK_INT_H

#include "file/journal.h"
#include "file/part.h"
#include "file/sink.h"

#include <stdatomic.h>

/* 2^30 chunks are a PiB at the default chunk size, and 4 GiB of CRCs. */
#define RCP_SINK_CHUNKS_MAX (UINT64_C(1) << 30)
#define RCP_SINK_BLOCK	    4096u /* sparse: holes are looked for at this grain */

struct rcp_sink {
	struct rcp_part part;
	char *shown;
	struct rcp_file_id id;
	uint32_t chunk_bytes;
	uint64_t chunks;
	bool sparse, resume, fsync;
	struct rcp_done *done;
	const char *path; /* borrowed: for done */
	bool settled; /* what an earlier run left was taken up or thrown away */

	_Atomic uint32_t *crc;	   /* one a chunk */
	_Atomic uint64_t *written; /* a bit a chunk: it is in the file */
	uint64_t *have;		   /* a bit a chunk: it was there at open */
	_Atomic uint64_t bytes;
	uint64_t resumed_bytes;

	/* checkpoints: one at a time */
	struct rcp_journal journal;
	atomic_flag busy;
	_Atomic uint64_t unclaimed; /* chunks written since the last claim */
	uint64_t *claimed;	    /* a bit a chunk; NULL until the first claim */
	uint64_t *pending;	    /* a bit a chunk: being claimed now */
	bool journal_off;	    /* it failed: no more claims */
	bool no_room;		    /* it failed for want of room */
	bool named;		    /* the directory was synced: both names are on disk */

	_Atomic(const char *) remark;
	char remark_text[256];
};

static inline uint32_t rcp_sink_cell(const struct rcp_sink *s, uint64_t index)
{
	uint64_t left = s->id.size - index * s->chunk_bytes;

	return left < s->chunk_bytes ? (uint32_t)left : s->chunk_bytes;
}

static inline bool rcp_sink_is_written(const struct rcp_sink *s, uint64_t index)
{
	return atomic_load_explicit(&s->written[index / 64], memory_order_acquire) >> (index % 64) &
	       1;
}

/* Note that the chunk is in the file. True: it was not before. */
static inline bool rcp_sink_note(struct rcp_sink *s, uint64_t index, uint32_t crc)
{
	uint64_t bit = UINT64_C(1) << (index % 64);

	atomic_store_explicit(&s->crc[index], crc, memory_order_relaxed);
	if (atomic_fetch_or_explicit(&s->written[index / 64], bit, memory_order_acq_rel) & bit)
		return false;
	atomic_fetch_add_explicit(&s->bytes, rcp_sink_cell(s, index), memory_order_relaxed);
	return true;
}

/* A chunk's CRC; that of zeros where nothing was written. */
uint32_t rcp_sink_chunk_crc(const struct rcp_sink *s, uint64_t index);

/* The error for a write that failed: with the bytes that are still to come, where room is short. */
int rcp_sink_no_room(const struct rcp_sink *s, int sys_errno, const char *call,
		     struct rcp_err *err);

/* New tables in place of what was there. Not zeros written into the old: calloc's pages take memory as they are used,
 * and a peer can name a file of any size without having it. */
int rcp_sink_tables(struct rcp_sink *s, struct rcp_err *err);

/* After rcp_part_open: what an earlier run left is checked and taken up, or thrown away. */
int rcp_sink_take_up(struct rcp_sink *s, struct rcp_err *err);

/* Of large files and small: metadata, a network file system's errors, data on its way before the name, fsync. */
int rcp_sink_complete(const struct rcp_part *part, const struct rcp_meta *meta, bool sync,
		      struct rcp_err *err, unsigned *lost);
/* Is that what is on the disk? */
int rcp_sink_read_back(const struct rcp_part *part, const void *data, size_t len, struct rcp_err *err);
/* And the rename. checked: see rcp_part_place. */
int rcp_sink_finish(struct rcp_part *part, const struct rcp_meta *meta, bool sync, bool checked,
		    struct rcp_err *err, unsigned *lost);

/* The last claim, when nobody writes any more. */
void rcp_sink_claim_last(struct rcp_sink *s);

void rcp_sink_set_remark(struct rcp_sink *s, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

#endif
