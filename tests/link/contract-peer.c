/*
 * The contract where one end is a link and its peer is played by the test: peers that die, that
 * take nothing, that come in pieces, that break the protocol.
 */
#include "rig.h"

#include <errno.h>
#include <stdlib.h>

/* Posts until nothing more goes: the peer takes none. */
static void stuff(struct test *t)
{
	for (unsigned idle = 0; idle < 3;) {
		assert_true(t->posted < ITEMS);
		int rc = call_post(t, &t->items[t->posted]);

		assert_true(rc == 0 || rc == RCP_AGAIN);
		idle = rc ? idle + 1 : 0;
		turns(t, 1);
	}
	assert_true(t->sent < t->posted);
}

void source_loses_peer(void **state)
{
	struct test *t = begin_half(state, RCP_ROLE_SOURCE);

	if (t->pair.source->caps.sendfile)
		use_file(t);
	stuff(t);
	t->pair.kind->peer_dies(&t->pair);
	UNTIL(t, t->source.downs);
	assert_lost(&t->source);
	assert_sent_once(t);
	assert_false(t->items[t->posted - 1].ok);
	assert_int_equal(call_post(t, &t->items[t->posted]), RCP_E_LINK);
	end(t);
}

/* The connection was ended by the peer and the source does not know: what it sends meets a reset,
 * in the middle of a file too. The signal that goes with that must not end the process. */
void source_sends_to_nobody(void **state)
{
	static const uint32_t lengths[] = {CHUNK, 1, 0, 4096, CHUNK, CHUNK};

	for (unsigned i = 0; i < 6; i++) {
		struct test *t = begin_half(state, RCP_ROLE_SOURCE);

		if (t->pair.source->caps.sendfile)
			use_file(t);
		for (unsigned k = 0; k < 6; k++)
			t->items[k].post.chunk.length = lengths[(k + i) % 6];
		t->pair.kind->peer_dies(&t->pair);
		for (unsigned k = 0; k < 6 && call_post(t, &t->items[k]) == 0; k++)
			;
		UNTIL(t, t->source.downs);
		assert_lost(&t->source);
		assert_sent_once(t);
		end(t);
	}
}

void sink_loses_peer(void **state)
{
	struct test *t = begin_half(state, RCP_ROLE_SINK);

	t->hold = t->raw = true;
	t->pair.kind->peer_chunk(&t->pair, 3, GENERATION, t->arena, CHUNK);
	UNTIL(t, t->arrived);
	t->pair.kind->peer_dies(&t->pair);
	UNTIL(t, t->sink.downs);
	assert_lost(&t->sink);
	/* The slot is still the sink's, also after `down`. */
	assert_memory_equal(t->payload, t->arena, CHUNK);
	call_release(t, 3);
	end(t);
}

/* Close with more queued than the network takes, and a peer that takes nothing. */
void peer_takes_nothing(void **state)
{
	const struct pair_kind *kind = *state;

	if (!kind->slow_close) {
		print_message("SKIPPED %s: no deadline of its own, or tested already\n",
			      kind->name);
		skip();
	}
	struct test *t = begin_half(state, RCP_ROLE_SOURCE);

	stuff(t);
	call_close(t, t->pair.source);
	turns(t, 3);
	assert_int_equal(t->source.downs, 0);
	UNTIL(t, t->source.downs);
	assert_lost(&t->source);
	assert_int_equal(t->source.cause.sys_errno, ETIMEDOUT);
	assert_sent_once(t);
	assert_false(t->items[t->posted - 1].ok);
	end(t);
}

static void assert_breach(const struct end *e)
{
	assert_int_equal(e->downs, 1);
	assert_int_equal(e->cause.code, RCP_E_CONNECT);
	assert_non_null(strstr(e->cause.text, "broke the protocol"));
}

/* Slot 0 is held; nothing in the ring may change but its header and payload. */
static void assert_ring_untouched(const struct test *t)
{
	const uint8_t *ring = t->payload - 4096;

	assert_memory_equal(t->payload, t->arena, 4096);
	for (size_t i = 0; i < SLOTS * (size_t)(CHUNK + 4096); i++) {
		if (ring[i] && (i < 4096 - 64 || i >= 8192))
			fail_msg("byte %zu of the ring was written", i);
	}
}

void evil_source(void **state)
{
	static const enum evil list[] = {EVIL_SLOT_HELD, EVIL_SLOT_RANGE, EVIL_GENERATION,
					 EVIL_LENGTH,	 EVIL_HALF_CHUNK, EVIL_CREDIT};

	for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
		struct test *t = begin_half(state, RCP_ROLE_SINK);

		t->hold = t->raw = true;
		t->pair.kind->peer_chunk(&t->pair, 0, GENERATION, t->arena, 4096);
		UNTIL(t, t->arrived);
		if (!t->pair.kind->evil(&t->pair, list[i])) {
			print_message("SKIPPED %s: breach %zu can't be\n", t->pair.kind->name, i);
			call_close(t, t->pair.sink);
			UNTIL(t, t->sink.downs);
		} else {
			UNTIL(t, t->sink.downs);
			if (list[i] == EVIL_HALF_CHUNK && t->sink.cause.code == RCP_E_LINK)
				assert_non_null(strstr(t->sink.cause.text, "middle of a chunk"));
			else
				assert_breach(&t->sink);
			if (list[i] != EVIL_HALF_CHUNK)
				assert_ring_untouched(t);
		}
		assert_int_equal(t->arrived, 1);
		end(t);
	}
}

void evil_sink(void **state)
{
	static const enum evil list[] = {EVIL_CREDIT_RANGE, EVIL_CREDIT_FREE, EVIL_CREDIT_TWICE,
					 EVIL_CREDIT_OLD, EVIL_SIDE_BYTES};

	for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
		struct test *t = begin_half(state, RCP_ROLE_SOURCE);

		assert_int_equal(call_post(t, &t->items[0]), 0);
		turns(t, 3);
		if (!t->pair.kind->evil(&t->pair, list[i])) {
			print_message("SKIPPED %s: breach %zu can't be\n", t->pair.kind->name, i);
			t->pair.kind->peer_dies(&t->pair);
			UNTIL(t, t->source.downs);
		} else {
			UNTIL(t, t->source.downs);
			assert_breach(&t->source);
		}
		assert_sent_once(t);
		end(t);
	}
}

void chunks_in_pieces(void **state)
{
	const struct pair_kind *kind = *state;
	static const uint32_t most[] = {1, 7, 71, 72, 73, 4096};

	if (!kind->peer_dribbles) {
		print_message("SKIPPED %s: nothing comes in pieces\n", kind->name);
		skip();
	}
	for (size_t i = 0; i < sizeof(most) / sizeof(most[0]); i++) {
		struct test *t = begin_half(state, RCP_ROLE_SINK);
		uint32_t length = most[i] < 70 ? 300 : 9000;

		t->raw = t->hold = true;
		kind->peer_dribbles(&t->pair, GENERATION, t->arena, length, most[i]);
		UNTIL(t, t->arrived == 2);
		assert_int_equal(t->held_count, 2);
		assert_memory_equal(t->payload, t->arena, length);
		call_close(t, t->pair.sink);
		UNTIL(t, t->sink.downs);
		end(t);
	}
}

void credits_in_pieces(void **state)
{
	const struct pair_kind *kind = *state;

	if (!kind->peer_credit) {
		print_message("SKIPPED %s: nothing comes in pieces\n", kind->name);
		skip();
	}
	struct test *t = begin_half(state, RCP_ROLE_SOURCE);

	for (unsigned i = 0; i < ITEMS; i++)
		t->items[i].post.chunk.length = 0;
	for (unsigned i = 0; i < MANY_SLOTS; i++)
		assert_int_equal(call_post(t, &t->items[i]), 0);
	UNTIL(t, t->sent == MANY_SLOTS);
	for (unsigned i = 0; i < ITEMS - MANY_SLOTS - 1; i++) {
		unsigned rooms = t->source.rooms;

		assert_int_equal(call_post(t, &t->items[t->posted]), RCP_AGAIN);
		kind->peer_credit(&t->pair, 5 * i, GENERATION);
		UNTIL(t, t->source.rooms > rooms);
		assert_int_equal(call_post(t, &t->items[t->posted]), 0);
		assert_int_equal(t->items[t->posted - 1].post.slot, 5 * i);
	}
	t->pair.kind->peer_dies(&t->pair);
	UNTIL(t, t->source.downs);
	assert_sent_once(t);
	end(t);
}

/* The peer fills every slot and does not read its credits; none is lost, none comes twice. */
void credits_pile_up(void **state)
{
	const struct pair_kind *kind = *state;

	if (!kind->peer_reads) {
		print_message("SKIPPED %s: its credits can't pile up\n", kind->name);
		skip();
	}
	struct test *t = begin_many(state);
	uint32_t slots = t->pair.sink->caps.slots, have = slots, sent = 0;
	static uint32_t mine[4096]; /* slots that the peer may fill */
	static bool is_mine[4096];

	t->raw = true;
	for (uint32_t i = 0; i < slots; i++)
		mine[i] = i;
	for (unsigned round = 0; round < 40; round++) {
		for (; have; have--, sent++) {
			is_mine[mine[have - 1]] = false;
			kind->peer_chunk(&t->pair, mine[have - 1], GENERATION, t->arena, 0);
		}
		UNTIL(t, t->arrived == sent);
		/* Mostly a few, so that the next chunks come while credits are still held up. */
		uint32_t wanted = round == 39 ? slots : 1 + rnd(t, round % 8 ? slots / 16 : slots);

		while (have < wanted) {
			uint32_t n = kind->peer_reads(&t->pair, mine + have, wanted - have);

			for (; n; n--, have++) {
				assert_in_range(mine[have], 0, slots - 1);
				assert_false(is_mine[mine[have]]);
				is_mine[mine[have]] = true;
			}
			turns(t, 1);
		}
	}
	assert_int_equal(kind->peer_reads(&t->pair, mine, 1), 0);
	call_close(t, t->pair.sink);
	UNTIL(t, t->sink.downs);
	end(t);
}

/* No credit was granted yet, so the peer has none. */
void chunk_before_ring(void **state)
{
	struct test *t = begin_half_unknown(state, RCP_ROLE_SINK);

	t->raw = true;
	if (!t->pair.kind->evil(&t->pair, EVIL_EARLY))
		fail_msg("every kind of peer can send a chunk");
	UNTIL(t, t->sink.downs);
	assert_breach(&t->sink);
	assert_int_equal(t->arrived, 0);
	end(t);
}

/* A part of a head, then nothing: the session's heartbeat finds that, and a close does not hang. */
void silent_source(void **state)
{
	struct test *t = begin_half(state, RCP_ROLE_SINK);
	uint64_t start;

	if (t->pair.kind->evil(&t->pair, EVIL_HALF_HEAD))
		turns(t, 5);
	assert_int_equal(t->sink.downs, 0);
	start = rcp_now_ns();
	call_close(t, t->pair.sink);
	UNTIL(t, t->sink.downs);
	assert_int_equal(t->sink.cause.code, RCP_OK);
	assert_true(rcp_now_ns() - start < RCP_SEC);
	end(t);
}
