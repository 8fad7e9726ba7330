/*
 * The contract suite's rig: a pair of links, what its owner was told, and what was wrong about it.
 * Events and calls are checked here whatever a test does: no event from inside a call, none after
 * `down`, one `sent` a post, no slot handed out twice, every byte as it was posted.
 */
#ifndef RCP_TESTS_LINK_RIG_H
#define RCP_TESTS_LINK_RIG_H

#include "pairs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"

#define SLOTS	   8u
#define CHUNK	   (64u << 10)
#define GENERATION 0x1234abcdu
#define ITEMS	   300u
#define STRIDE	   4096u
/* A ring that a played sink grants: more than the network holds. */
#define MANY_SLOTS 280u
#define DEADLINE   (20 * RCP_SEC)

struct item {
	struct rcp_post post;
	const uint8_t *body; /* what the sink must see */
	unsigned sent, arrived;
	bool ok;
};

struct test;
struct end {
	struct test *test;
	unsigned ups, downs, rooms;
	struct rcp_err cause;
	bool free_in_down, closed;
	const char *close_in; /* the event in which this end closes */
};

/* wrong: what broke the contract first; the test asserts that it is empty, since an assertion must
 * not jump out of a link's stack. */
struct test {
	struct pair pair;
	struct end source, sink;
	char wrong[160];
	unsigned depth; /* inside the owner's calls */
	int fds;	/* open before */
	uint32_t seed;

	struct item items[ITEMS];
	unsigned posted, sent, arrived, more; /* more: posts that events may still make */
	uint8_t *arena;
	size_t arena_bytes;
	struct rcp_mem *mem;
	int file; /* the arena's bytes in a file */
	bool by_file;

	/* sink */
	bool held[4096];
	uint32_t queue[4096]; /* the slots held */
	uint32_t held_count, most_held;
	bool hold;		/* keep slots; otherwise released inside `chunk` */
	bool raw;		/* the peer is played: chunks are not the items */
	const uint8_t *payload; /* of the last chunk */
};

/* The owner's calls; no event may come from inside. */
int call_post(struct test *t, struct item *it);
void call_release(struct test *t, uint32_t slot);
void call_close(struct test *t, struct rcp_link *l);

uint32_t rnd(struct test *t, uint32_t below);

/* A test begins with a pair that is not made, with both ends up and the ring known, or with one end
 * and a played peer; it skips aloud where its kind can't do that. */
struct test *begin(void **state);
struct test *begin_up(void **state);
struct test *begin_half(void **state, enum rcp_role role);
struct test *begin_half_unknown(void **state, enum rcp_role role); /* ring not exchanged */
struct test *begin_many(void **state); /* the sink alone, 4096 slots of 4096 bytes */
void exchange_rings(struct test *t);

/* Posts carry a file and no body from now on. */
void use_file(struct test *t);

void turns(struct test *t, unsigned n);

/* Turn the loop until cond holds; a link that hangs fails the test. */
#define UNTIL(t, cond)                                                                             \
	do {                                                                                       \
		uint64_t until_end_ = rcp_now_ns() + DEADLINE;                                     \
		while (!(cond) && !(t)->wrong[0] && rcp_now_ns() < until_end_)                     \
			(t)->pair.kind->turn(&(t)->pair);                                          \
		assert_string_equal((t)->wrong, "");                                               \
		if (!(cond))                                                                       \
			fail_msg("waited in vain for " #cond);                                     \
	} while (0)

/* Source, then sink; both causes are checked as far as the order decides them. */
void close_both(struct test *t);
/* Free what is not freed, and see that nothing is left. */
void end(struct test *t);

/* contract-peer.c: tests whose peer is played. */
void source_loses_peer(void **state);
void source_sends_to_nobody(void **state);
void sink_loses_peer(void **state);
void peer_takes_nothing(void **state);
void chunks_in_pieces(void **state);
void credits_in_pieces(void **state);
void credits_pile_up(void **state);
void chunk_before_ring(void **state);
void evil_source(void **state);
void evil_sink(void **state);
void silent_source(void **state);

void assert_sent_once(const struct test *t);
void assert_all_arrived(const struct test *t);
void assert_lost(const struct end *e);

#endif
