/*
 * The two ends of a copy as state machines: sender (source's end) and receiver (sink's end). They are
 * fed with messages, link events, finished jobs and turns of the loop; they know no fd, no loop and no
 * clock of their own. Loop's thread; what blocks goes to the pool.
 *
 * Life: new -> attach (a link that is up, ring exchanged) -> message / turn ... -> `over` once -> free.
 * After a lost link, attach another one: what had not arrived is asked for again.
 */
#ifndef RCP_SESSION_SESSION_H
#define RCP_SESSION_SESSION_H

#include "base/err.h"
#include "base/keys.h"
#include "base/log.h"
#include "base/pool.h"
#include "link/link.h"
#include "wire/msg.h"

#include <stdbool.h>
#include <stdint.h>

/* What a session asks of its owner. No call comes back into the session from inside. */
struct rcp_session_env {
	void *arg;
	struct rcp_pool *pool;
	const struct rcp_log *log;
	uint64_t (*now_ns)(void *arg);
	/* Queue a message on the control connection; spans are copied before it returns. */
	void (*send)(void *arg, enum rcp_msg_type type, const void *msg);
	/* One file, directory or walk error, once at each end; warning: nothing of the content is lost. */
	void (*fault)(void *arg, const struct rcp_err *err, bool warning);
	/* One file ended: committed, skipped or failed. name: as the source calls it. */
	void (*file)(void *arg, const char *name, uint64_t bytes, enum rcp_status status);
	/*
	 * The session is at its end and nothing of it runs any more: cause RCP_OK: the verdict is known
	 * to both ends (stats.verdict_code). Otherwise what ended it. May be followed by free.
	 */
	void (*over)(void *arg, const struct rcp_err *cause);
	/* Initiator and sink: what was asked for, and nothing else is taken (session/wanted.h). NULL: anything. */
	struct rcp_wanted *wanted;
	bool excludes; /* some of it may be left out */
	/* Initiator: the files that are done, also those of earlier sessions of this run. NULL: not kept. */
	struct rcp_keys *done;
};

struct rcp_session_options {
	uint64_t flags;	      /* RCP_OPT_* */
	uint32_t chunk_bytes; /* agreed: LINK_RING's */
	uint32_t bundle_bytes; /* files up to this size travel in bundles */
	enum rcp_engine engine;
	uint32_t umask;	      /* the user's, for modes without -p */
	uint64_t stage_bytes; /* source: memory for chunks on their way, at most; 0: what 32 of them take */
	uint64_t limit_bytes_per_second;  /* source; 0: none */
	uint64_t accept_bytes_per_second; /* sink: slots are given back no faster; 0: none */
};

struct rcp_session_stats {
	uint64_t entries_seen, files_seen, bytes_seen; /* named by the walk so far */
	bool walk_over;
	uint64_t bytes_moved; /* source: handed to the network; sink: written; both + resumed */
	uint64_t files_done, bytes_done, skipped, failed;
	uint64_t zero_copy_bytes, staged_bytes, resumed_bytes, resent_chunks;
	uint64_t sealed_bytes; /* source: of sealed chunks handed to the network; sink: opened */
	uint64_t wait_source_ns, wait_credit_ns, wait_network_ns, wait_sink_ns;
	bool verdict_known;
	enum rcp_code verdict_code;
	bool crc_known;
	uint32_t crc;
	const char *current;	 /* a file under way, or NULL; valid until the session is called again */
	uint64_t current_bytes, current_size;
};

/* Is an entry without data of its own told with the files? --dry-run does, of what would get a name. */
static inline bool rcp_entry_told(uint8_t type, uint64_t flags)
{
	return flags & RCP_OPT_DRY_RUN && type != RCP_ENTRY_FILE && type != RCP_ENTRY_DIR && type != RCP_ENTRY_DIR_END;
}

/* Worst of two verdicts: integrity, then I/O, then link, then partial. */
enum rcp_code rcp_code_worse(enum rcp_code a, enum rcp_code b);

/* "source", "network" or "sink": where the pipeline waited most; NULL where nothing waited. */
const char *rcp_session_bottleneck(const struct rcp_session_stats *stats);

struct rcp_wanted;

/* ---- source ---- */
struct rcp_sender;
struct rcp_walk;

/* The walk is the sender's from here on, also on failure. */
int rcp_sender_new(const struct rcp_session_env *env, const struct rcp_session_options *options,
		   struct rcp_walk *walk, struct rcp_err *err, struct rcp_sender **out);
void rcp_sender_free(struct rcp_sender **sender);
/* link->events and arg must be rcp_sender_events and the sender. With link->seal chunks go sealed. */
extern const struct rcp_link_events rcp_sender_events;
/* generation: the ring's. */
void rcp_sender_attach(struct rcp_sender *sender, struct rcp_link *link, uint32_t generation);
/* RCP_E_CONNECT where the peer broke the protocol; the owner aborts then. */
int rcp_sender_message(struct rcp_sender *sender, const struct rcp_msg *msg, struct rcp_err *err);
/* Once a turn of the loop, and at least every 100 ms: batches go out, waits are counted. */
void rcp_sender_turn(struct rcp_sender *sender);
/* Begin the end: nothing new is started; `over(cause)` comes when all that runs has ended and the link
 * is down or detached. Also after an `over` for a lost link: then it comes once more. */
void rcp_sender_stop(struct rcp_sender *sender, const struct rcp_err *cause);
const struct rcp_session_stats *rcp_sender_stats(struct rcp_sender *sender);
/* Is there something that this end itself is at (a disk, its limit), so that the other end has to wait? */
bool rcp_sender_works(const struct rcp_sender *sender);
/* Changes whenever something moves. */
uint64_t rcp_sender_moved(const struct rcp_sender *sender);

/* ---- sink ---- */
struct rcp_receiver;
struct rcp_target;

/* The target stays the owner's and must outlive the receiver. */
int rcp_receiver_new(const struct rcp_session_env *env, const struct rcp_session_options *options,
		     const struct rcp_target *target, struct rcp_err *err,
		     struct rcp_receiver **out);
void rcp_receiver_free(struct rcp_receiver **receiver);
extern const struct rcp_link_events rcp_receiver_events;
/* With link->seal nothing is taken but sealed chunks. */
int rcp_receiver_attach(struct rcp_receiver *receiver, struct rcp_link *link, uint32_t generation,
			struct rcp_err *err);
int rcp_receiver_message(struct rcp_receiver *receiver, const struct rcp_msg *msg,
			 struct rcp_err *err);
void rcp_receiver_turn(struct rcp_receiver *receiver);
void rcp_receiver_stop(struct rcp_receiver *receiver, const struct rcp_err *cause);
const struct rcp_session_stats *rcp_receiver_stats(struct rcp_receiver *receiver);
bool rcp_receiver_works(const struct rcp_receiver *receiver);
uint64_t rcp_receiver_moved(const struct rcp_receiver *receiver);

#endif
