/*
 * The journal file: which chunks of a partial file are on disk, with their CRCs. journal.c
 * describes its bytes. One caller at a time; blocks. Private to src/file.
 */
#ifndef RCP_FILE_JOURNAL_H
#define RCP_FILE_JOURNAL_H

#include "base/err.h"
#include "file/source.h"

#include <stddef.h>
#include <stdint.h>

struct rcp_journal {
	int fd;	       /* -1: none yet */
	uint32_t seed; /* CRC of the header: ties the records to it */
	uint64_t end;  /* where the next record goes */
};

enum rcp_journal_state {
	RCP_JOURNAL_NONE,    /* no such file */
	RCP_JOURNAL_GOOD,    /* of this source and grid; claims were told */
	RCP_JOURNAL_OTHER,   /* of another version of the source, or another chunk size */
	RCP_JOURNAL_DAMAGED, /* not a journal, or one of another version of rcp */
};

/* What a journal is of. */
struct rcp_journal_key {
	struct rcp_file_id id;
	uint32_t chunk_bytes;
};

struct rcp_claim {
	uint64_t index;
	uint32_t crc;
};

/*
 * Open and read an existing journal. GOOD: it stays open for more records and `claim` was called
 * for each record in order (an index may come again: the later one counts; it is below `chunks`).
 * Anything else: nothing stays open.
 */
enum rcp_journal_state rcp_journal_load(int dir, const char *name,
					const struct rcp_journal_key *key, uint64_t chunks,
					void (*claim)(void *arg, const struct rcp_claim *claim),
					void *arg, struct rcp_journal *out);

/* Make a new one, replacing what is there. 0, or -1 with errno. */
int rcp_journal_create(int dir, const char *name, const struct rcp_journal_key *key,
		       struct rcp_journal *out);

/* Append claims; they count once rcp_journal_sync returned 0. 0, or -1 with errno. */
int rcp_journal_append(struct rcp_journal *j, const struct rcp_claim *claims, size_t count);
int rcp_journal_sync(struct rcp_journal *j);

void rcp_journal_close(struct rcp_journal *j);

#endif
