/*
 * One end of the pair that verbs-pair.c runs: what it was told to do, and what it has seen.
 */
#ifndef RCP_TESTS_LINK_VERBS_END_H
#define RCP_TESTS_LINK_VERBS_END_H

#include "link/verbs/verbs.h"

#include <uv.h>

#define GENERATION 0xabcd1234u

struct pair_options {
	const char *from, *to, *kill, *serve, *peer, *gid_index, *addr, *remote, *evil;
	bool sink_initiates, oob, pair, varying, hold, no_check, close_early, bad_proof, ipv6, list;
	bool mapped;
	uint32_t chunks, bytes, slots, sink_slots, close_after;
};
extern struct pair_options opt;

enum talk { TALK_CAPS = 1, TALK_OOB, TALK_RING, TALK_DONE, TALK_POSTED };

struct end {
	bool source, initiator;
	const char *name;
	int fd; /* to the other process */
	uv_loop_t loop;
	uv_poll_t talk;
	uv_timer_t watchdog, close_after;
	struct rcp_rdma *rdma;
	struct rcp_rdma_listener *listener;
	struct rcp_link *link;
	struct rcp_link_params params;
	struct rcp_rdma_proof proof;
	bool up, peer_imm, down, ring_known, talk_open, evil;
	struct rcp_ring_info ring;
	struct rcp_err cause;
	int status;

	/* source */
	struct slot_post {
		struct rcp_post post;
		struct slot_post *next;
		bool ready; /* its chunk is made */
	} * posts, *idle;
	uint8_t *bodies;
	size_t bodies_len;
	struct rcp_mem *mem;
	uint32_t posted, sent, failed;
	uint64_t start_ns, total_bytes;

	/* sink */
	uint32_t arrived, peer_posted;
	bool *seen;
	uint32_t *held, held_count;
};

/* Says why and ends the process. */
void end_die(const struct end *e, const char *what, const struct rcp_err *err);
void end_say(struct end *e, enum talk what, const void *data, size_t len);

/* verbs-bulk.c: the chunks. */
void bulk_start(struct end *e);
void bulk_free(struct end *e);
void bulk_sent(void *arg, struct rcp_post *post, bool ok);
void bulk_room(void *arg);
void bulk_chunk(void *arg, uint32_t slot, const uint8_t *header, const uint8_t *payload,
		uint32_t length);

/* verbs-evil.c: false where --evil is not this end's. */
bool evil_source(struct end *e);
bool evil_sink(struct end *e);

#endif
