/*
 * The sender's insides, shared by send.c (life, messages), send_walk.c (entries out), send_plan.c
 * (what to load next), send_load.c (jobs) and nobody else. Loop's thread but for functions named
 * *_work, which run on workers and touch only their own job's object.
 *
 *   walk job -> ENTRIES -> ANSWERS -> small or big queue -> chunk (free -> loading -> ready -> posted
 *   -> free) -> ENTRY_END -> RESULTS
 */
#ifndef RCP_SESSION_SEND_H
#define RCP_SESSION_SEND_H

#include "file/source.h"
#include "file/walk.h"
#include "session/idtab.h"
#include "session/session.h"

#define SEND_WINDOW_BYTES (UINT64_C(16) << 20)
#define SEND_WINDOWS_MAX 3	/* mapped and pinned at once: 48 MiB */
#define SEND_CHUNKS_MAX 32u	/* loaded or on their way at once */
#define SEND_OPEN_MAX 192u	/* source files open at once */
#define SEND_ENTRIES_MAX 8192u	/* offered and without a result */
#define SEND_TOLD_BYTES	 (UINT64_C(16) << 20) /* the same, of their records: the sink keeps them */
#define SEND_HAVE_BYTES	 (UINT64_C(64) << 20) /* of their ranges that the sink has: an honest one has 64 files open */
#define SEND_AGAINS_EACH 4u	/* re-sends of one cell on one link; a sink asks for no more than 3 */
#define SEND_AGAIN_MAX 65536u	/* re-sends that the sink may have pending */
#define SEND_BATCH_ENTRIES 256u /* per ENTRIES message */
#define SEND_BATCH_BYTES 65536u

enum send_state {
	SEND_OFFERED, /* named to the sink; directories and the like stay here until the result */
	SEND_QUEUED,
	SEND_OPENING,
	SEND_OPEN,
	SEND_CHECKING,
	SEND_ENDED,  /* ENTRY_END said, or travelled in a bundle */
	SEND_FAILED, /* FAULT said */
};

struct send_range {
	uint64_t start, end;
};

struct send_entry {
	struct rcp_sender *s;
	uint32_t id;
	uint8_t type, flags;
	bool nofollow, dead; /* dead: its result came while jobs still used it */
	bool done_before;    /* in an earlier session of this run: not to be told again */
	enum send_state state;
	uint32_t told; /* bytes of its record */
	struct rcp_file_id fid;
	char *open_path, *name; /* behind it, in its own allocation */
	struct rcp_source *source;
	unsigned busy; /* chunks and jobs that point here */

	/* big files: how far planning got */
	uint64_t cursor, extent_start, extent_end, data_bytes;
	uint64_t found_start, found_end; /* a job's, while one runs */
	bool planned, extent_due;
	bool fills_holes; /* a mapping would: see rcp_source_fills_holes */
	struct send_range *have;
	size_t have_count, have_at, have_bytes;
	uint64_t agains; /* of its cells, on this link */
	struct send_window *window; /* the one that cursor is in; one reference */

	struct rcp_job job;
	const struct rcp_err *err; /* a job's; NULL: none */
	struct send_entry *next;   /* in a queue or a batch */
};

/* By an earlier session of this run, with this size and time. Any thread. */
bool send_entry_was_done(const struct send_entry *e);

struct send_window {
	struct rcp_sender *s;
	struct send_entry *entry; /* for its source and name; counted in busy */
	struct rcp_window map;
	struct rcp_mem *mem;
	uint64_t offset;
	size_t len;
	unsigned refs;
	enum { WINDOW_MAPPING, WINDOW_READY, WINDOW_FAILED, WINDOW_CLOSING } state;
	struct send_chunk *waiting; /* chunks whose bytes it will hold */
	struct rcp_link *link;	    /* that mem belongs to */
	struct rcp_job job;
	struct rcp_err err;
	bool lost; /* err is the file's fault: pages of it can't be read */
	struct send_window *next; /* all windows */
};

struct send_chunk {
	struct rcp_post post; /* first: the link hands it back */
	struct rcp_job job;
	struct rcp_sender *s;
	struct send_entry *entry; /* NULL: a bundle */
	struct send_window *window;
	uint8_t *buf; /* staging memory, made at first use and kept */
	struct rcp_mem *buf_mem;
	struct rcp_link *link; /* that buf_mem belongs to */
	struct send_entry **files; /* bundle */
	uint32_t file_count;
	bool recheck, direct;
	uint64_t offset;
	uint32_t length, crc;
	struct rcp_err err;
	struct send_chunk *next;
};

struct send_again {
	uint32_t entry, length;
	uint64_t offset;
	struct send_again *next;
};

struct send_queue {
	struct send_entry *head, *tail;
	size_t count;
	uint64_t bytes;
};

struct walk_fault {
	struct rcp_err err;
	enum rcp_severity severity;
};

#define WALK_FAULTS 8u
struct walk_batch {
	struct rcp_job job;
	struct rcp_sender *s;
	struct rcp_walk *walk;
	struct rcp_wr blob;
	struct send_entry *head, *tail;
	uint32_t count;
	struct walk_fault faults[WALK_FAULTS];
	unsigned fault_count;
	struct rcp_err lost; /* the walk can't go on */
	bool over, running;
};

struct rcp_sender {
	struct rcp_session_env env;
	struct rcp_session_options opt;
	struct rcp_session_stats stats;
	struct rcp_link *link; /* NULL: none, or lost */
	bool attached, losing, stopping, verdict, over_said, link_closing;
	struct rcp_err cause; /* of the loss or the stop */

	struct walk_batch batch;
	struct rcp_idtab entries;
	uint64_t told_bytes, have_bytes; /* of those that are open */
	struct send_queue small, big;
	struct send_entry *current; /* the big file that chunks are cut from */
	struct send_queue opening;  /* big files open or being opened, in order */
	unsigned open_files;

	struct send_chunk *chunks; /* SEND_CHUNKS_MAX of them */
	struct send_chunk *free_chunks;
	struct send_chunk *ready, **ready_tail;
	unsigned depth;	  /* chunk objects in use or free */
	unsigned loading; /* chunks in jobs or waiting for a window */
	unsigned posted;
	unsigned jobs; /* everything in the pool */

	struct send_window *windows;
	unsigned window_count;
	bool map_refused;

	struct send_again *again, **again_tail;
	unsigned again_count;

	uint64_t sequence;
	uint64_t posted_total, posted_said; /* on this link */
	uint64_t answered;		    /* files that the sink wants */
	uint64_t agains;		    /* AGAIN messages that came */
	uint64_t moves;			    /* `sent` events, ever */
	enum rcp_code failed_code;	    /* worst of the results */
	uint32_t generation;
	uint64_t last_turn_ns, budget_ns; /* budget: when the limit allows the next post */
};

/* send.c */
void send_job(struct rcp_sender *s, enum rcp_pool_class cls, struct rcp_job *job);
void send_entry_fail(struct rcp_sender *s, struct send_entry *e, const struct rcp_err *err);
void send_entry_unref(struct send_entry *e);
void send_entry_free(struct send_entry *e);
void send_fault(struct rcp_sender *s, uint32_t id, const struct rcp_err *err, enum rcp_severity sev);

/* send_walk.c */
void send_walk_pump(struct rcp_sender *s);

/* send_plan.c */
void send_plan_pump(struct rcp_sender *s);
void send_queue_put(struct send_queue *q, struct send_entry *e);
struct send_entry *send_queue_get(struct send_queue *q);
void send_chunk_loaded(struct send_chunk *c);
/* Towards what carried how many bytes. */
void send_count(struct rcp_sender *s, const struct send_chunk *c, bool lost);
void send_chunk_free(struct send_chunk *c);
void send_try_post(struct rcp_sender *s);
void send_entry_opened(struct send_entry *e);

/* send_load.c */
/* The chunk's header but for what its sealing or posting adds. Any thread that has the chunk. */
void send_chunk_head(struct send_chunk *c);
void send_load_submit(struct send_chunk *c);
bool send_window_for(struct send_chunk *c);
void send_window_unref(struct send_window *w);
void send_open_submit(struct send_entry *e);
void send_extent_submit(struct send_entry *e);
void send_check_submit(struct send_entry *e);
void send_memory_drop(struct rcp_sender *s);

#endif
