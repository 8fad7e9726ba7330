/*
 * The receiver's insides, shared by recv.c (life, messages, results), recv_entry.c (what becomes of
 * an entry) and recv_chunk.c (what becomes of a slot). Loop's thread but for functions named *_work,
 * which run on workers and touch only their own job's object.
 *
 * Everything a peer says is checked here: a break of the protocol ends the session (recv_break).
 */
#ifndef RCP_SESSION_RECV_H
#define RCP_SESSION_RECV_H

#include "file/sink.h"
#include "link/seal.h"
#include "session/idtab.h"
#include "session/session.h"

#define RECV_ENTRIES_MAX 16384u	/* open at once; a source keeps to half of it */
#define RECV_ENTRIES_BYTES (UINT64_C(128) << 20) /* the same; a source has 16 MiB of records open, to which the target's name comes */
#define RECV_OPEN_MAX 64u	/* files with a sink at once */
#define RECV_TRIES 3u		/* re-sends of one chunk */
#define RECV_TRIES_BYTES (UINT64_C(64) << 20) /* what is kept of them, in all: millions of chunks */
#define RECV_FAILED_MAX (1u << 20) /* inodes that are known to have failed, 32 MiB: beyond it no hard link is believed */
#define RECV_SWEEPS 4u		/* rounds of "what never came" for one entry */
#define RECV_SWEEP_CHUNKS 4096u /* asked for in one round */
#define RECV_CHECKPOINT_BYTES (UINT64_C(256) << 20)
#define RECV_CHECKPOINT_NS (UINT64_C(5) * 1000000000)
#define RECV_LOCK_MS 20000u
#define RECV_BYE_NS (UINT64_C(5) * 1000000000) /* after the verdict */

enum recv_state {
	RECV_PREPARING, /* in a batch job */
	RECV_WAITING,	/* small: answered, its bundle has not come */
	RECV_PUTTING,	/* small: in a bundle's job */
	RECV_OPENING,
	RECV_RECEIVING, /* big: answered */
	RECV_COMMITTING,
	RECV_BARRIER,	/* waits until all before it have ended */
	RECV_ENDING,	/* failed; waits for its jobs */
};

struct recv_try {
	uint64_t offset;
	unsigned tries;
	bool damaged; /* at least once */
};

struct recv_entry {
	struct rcp_receiver *r;
	uint32_t id;
	enum recv_state state;
	struct rcp_rec_entry rec; /* its spans are behind the entry, in the same allocation */
	char *shown;		  /* for messages: the target's name and the path; so is this */
	char *path;		  /* below the target's root: the end of shown */
	struct rcp_file_id fid;
	struct rcp_meta meta;
	struct rcp_sink *sink;
	unsigned busy;
	bool end_seen, skip, keep, checkpointing;
	bool link_yields; /* a directory: a symlink of its name gives way to it, and is not entered */
	bool left_out; /* the directory that it is in could not be made */
	bool left; /* by --skip-existing: what is there is something else */
	bool done; /* in an earlier session of this run: not to be told again */
	unsigned sweeps, lost;
	uint32_t entered; /* of a hard link's first name: as much as may lead through symlinks */
	uint32_t crc; /* of the whole file, once it is committed */
	uint64_t data_bytes, fresh_bytes, checkpoint_ns;
	struct recv_try *tries;
	unsigned try_count;
	size_t tries_bytes;
	struct rcp_job job;		   /* one at a time: prepare, open, commit, close */
	struct rcp_job checkpoint;
	const struct rcp_err *err; /* what ended it; NULL: nothing */
	const struct rcp_err *met, *checkpoint_met; /* what a job met: its worker's until it is done */
	struct recv_entry *next;
	size_t bytes; /* of this allocation */
};

/* A run of entries on its way through a prepare job. */
struct recv_batch {
	struct rcp_job job;
	struct rcp_receiver *r;
	struct recv_entry *head, *tail;
	struct recv_batch *next;
};

struct recv_small {
	struct recv_entry *entry;
	const uint8_t *data;
	uint32_t length, crc;
	bool bad;
};

struct recv_chunk {
	struct rcp_job job;
	struct rcp_receiver *r;
	uint32_t slot;
	struct rcp_chunk h;
	uint64_t came; /* bytes, whatever its header says */
	const uint8_t *payload;
	struct recv_entry *entry; /* NULL: a bundle */
	struct recv_small *small;
	uint32_t small_count;
	bool bad, taken;
	bool checked;		/* opened and its CRC compared, by an earlier job */
	enum rcp_unseal unseal; /* what became of a sealed one */
	uint8_t *clear;		/* where one from a shared ring is opened, made at first use and kept */
	struct rcp_err err;
};

struct recv_list {
	struct recv_entry *head, *tail;
};

struct rcp_receiver {
	struct rcp_session_env env;
	struct rcp_session_options opt;
	struct rcp_session_stats stats;
	const struct rcp_target *target;
	struct rcp_link *link;
	bool attached, losing, stopping, link_closing, over_said;
	bool walk_over, verdict, bye;
	unsigned tops;
	struct rcp_err cause;

	struct rcp_idtab entries;
	uint64_t entries_bytes, tries_bytes;
	struct recv_batch *batches, **batch_tail; /* head is running */
	char *open_dir; /* with -a: the one that names are in now; NULL: the target */
	char *lost_dir; /* the last directory that failed, with its slash: the batch job's; NULL: none */
	struct recv_list to_open;
	struct recv_list barrier;
	bool barrier_running;
	struct rcp_keys *failed; /* inodes whose first name was not copied: -a only; NULL: none */
	unsigned failed_count;
	struct rcp_keys *claimed; /* the target's inodes with several names that a file is known to be: -a only; the batch job's */
	unsigned open_files;
	unsigned jobs;

	struct recv_chunk *chunks; /* one a slot */
	uint32_t slots, generation;
	unsigned slots_busy;
	uint32_t *held; /* with a limit: slots to be given back when their time comes; a ring of `slots` */
	uint32_t held_at, held_count;
	uint64_t budget_ns;
	uint64_t moves; /* chunk events, ever */
	uint64_t came; /* chunk events on this link, good or not */
	uint64_t answered;
	bool posted;
	uint64_t posted_chunks, posted_answers, posted_agains, came_ns;
	uint64_t agains; /* AGAIN messages said */
	bool forged_told;

	struct rcp_wr answers, results;
	struct rcp_rec_answer answer_run;
	struct rcp_rec_result result_run;
	uint64_t last_turn_ns, verdict_ns;
	uint32_t last_crc;
	uint64_t crc_files;
};

/* recv_chunk.c: slots whose time has come. */
void recv_release_held(struct rcp_receiver *r);

/* recv.c */
void recv_job(struct rcp_receiver *r, enum rcp_pool_class cls, struct rcp_job *job);
void recv_break(struct rcp_receiver *r, const char *what);
void recv_answer(struct recv_entry *e, struct rcp_span have);
void recv_list_put(struct recv_list *l, struct recv_entry *e);
struct recv_entry *recv_list_get(struct recv_list *l);
/* The entry has ended: RESULT, callbacks, out of the table; freed when its last job ends. */
void recv_entry_end(struct recv_entry *e, enum rcp_status status);
/* A hard link's: was the name that it is another one of not copied, for all that is known? */
bool recv_first_failed(const struct recv_entry *e);

/* recv_entry.c */
int recv_entries(struct rcp_receiver *r, const struct rcp_msg_entries *m, struct rcp_err *err);
void recv_entry_fail(struct recv_entry *e, const struct rcp_err *err);
/* Note what a job met, if it met anything; the first stays. By the worker that has the entry. */
void recv_entry_met(struct recv_entry *e, const struct rcp_err *err);
/* What ends the entry, or what was lost; the first stays. */
void recv_entry_err(struct recv_entry *e, const struct rcp_err *err);
void recv_entry_unref(struct recv_entry *e);
void recv_entry_free(struct recv_entry *e);
void recv_entry_progress(struct recv_entry *e);
void recv_entry_close_all(struct rcp_receiver *r);
void recv_open_pump(struct rcp_receiver *r);
/* One without data, or whose data is elsewhere: by a worker, to its end. */
void recv_entry_special(struct recv_entry *e);
unsigned recv_lock_ms(const struct rcp_receiver *r);
struct rcp_key recv_entry_key(const struct recv_entry *e);
void recv_barrier_pump(struct rcp_receiver *r);
void recv_checkpoint_due(struct recv_entry *e);
/* damaged: it came, and was wrong; otherwise it never came. */
bool recv_entry_again(struct recv_entry *e, uint64_t offset, uint32_t length, bool damaged);

/* recv_chunk.c */
int recv_chunks_attach(struct rcp_receiver *r, struct rcp_link *link, struct rcp_err *err);
void recv_chunks_free(struct rcp_receiver *r);
void recv_on_chunk(void *arg, uint32_t slot, const uint8_t *header, const uint8_t *payload,
		   uint32_t length);
void recv_sweep(struct rcp_receiver *r);

#endif
