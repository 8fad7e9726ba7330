/*
 * The contract of link.h, held against every kind of link in pairs[]: one suite for all.
 */
#include "contract.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <unistd.h>

const struct pair_kind *const pairs[] = {
	&pair_loop, &pair_stream1, &pair_stream4, &pair_stream_torn, &pair_pipe,
#if RCP_HAVE_RDMA
	&pair_verbs_cm,
	&pair_verbs_two,
	&pair_verbs_oob,
#endif
	NULL,
};

/* Post [posted, until) as room allows, and see them all at the sink. */
void carry(struct test *t, unsigned until)
{
	while (t->posted < until) {
		int rc = call_post(t, &t->items[t->posted]);

		if (rc == RCP_AGAIN) {
			unsigned rooms = t->source.rooms;

			UNTIL(t, t->source.rooms > rooms);
		} else {
			assert_int_equal(rc, 0);
		}
	}
	UNTIL(t, t->arrived == until && t->sent == until);
	assert_all_arrived(t);
}

static void up_and_closed(void **state)
{
	struct test *t = begin_up(state);

	assert_int_equal(t->source.ups, 1);
	assert_int_equal(t->sink.ups, 1);
	close_both(t);
	/* Nothing more comes. */
	turns(t, 5);
	end(t);
}

static void sink_closes_alone(void **state)
{
	struct test *t = begin_up(state);

	call_close(t, t->pair.sink);
	UNTIL(t, t->sink.downs && t->source.downs);
	assert_int_equal(t->sink.cause.code, RCP_OK);
	assert_lost(&t->source);
	assert_int_equal(call_post(t, &t->items[0]), RCP_E_LINK);
	end(t);
}

static void closed_before_up(void **state)
{
	struct test *t = begin(state);
	struct rcp_err err = {0};

	assert_int_equal(t->pair.kind->make(&t->pair, &err), 0);
	call_close(t, t->pair.source);
	call_close(t, t->pair.sink);
	UNTIL(t, t->sink.downs && t->source.downs);
	assert_int_equal(t->source.ups + t->sink.ups, 0);
	assert_int_equal(t->source.cause.code, RCP_OK);
	assert_int_equal(t->sink.cause.code, RCP_OK);
	end(t);
}

static void bytes_arrive(void **state)
{
	struct test *t = begin_up(state);

	carry(t, ITEMS);
	close_both(t);
	end(t);
}

static struct test *begin_with_file(void **state)
{
	struct test *t = begin_up(state);

	if (!t->pair.source->caps.sendfile) {
		print_message("SKIPPED %s: it does not send from files\n", t->pair.kind->name);
		close_both(t);
		end(t);
		skip();
	}
	use_file(t);
	return t;
}

static void bytes_arrive_from_file(void **state)
{
	struct test *t = begin_with_file(state);

	carry(t, ITEMS);
	close_both(t);
	end(t);
}

/* Room runs out when the sink keeps its slots, at as many as there are; one release is one post. */
static void credits_run_out_and_come_back(void **state)
{
	struct test *t = begin_up(state);
	uint32_t slots = t->pair.sink->caps.slots;

	t->hold = true;
	t->more = slots;
	while (t->posted < slots) {
		int rc = call_post(t, &t->items[t->posted]);

		assert_true(rc == 0 || rc == RCP_AGAIN);
		if (rc)
			turns(t, 1);
	}
	t->more = 0;
	UNTIL(t, t->arrived == slots);
	assert_int_equal(t->held_count, slots);
	turns(t, 5);
	assert_int_equal(call_post(t, &t->items[slots]), RCP_AGAIN);
	unsigned rooms = t->source.rooms;

	for (unsigned i = 0; i < 3 * slots; i++) {
		uint32_t slot = t->queue[rnd(t, slots)];

		rooms = t->source.rooms;
		call_release(t, slot);
		UNTIL(t, t->source.rooms > rooms);
		assert_int_equal(call_post(t, &t->items[t->posted]), 0);
		assert_int_equal(call_post(t, &t->items[t->posted]), RCP_AGAIN);
		UNTIL(t, t->held_count == slots);
		/* The only slot there was. */
		assert_int_equal(t->queue[slots - 1], slot);
	}
	while (t->held_count)
		call_release(t, t->queue[t->held_count - 1]);
	UNTIL(t, t->sent == t->posted);
	assert_all_arrived(t);
	close_both(t);
	end(t);
}

static void release_some(struct test *t)
{
	while (t->held_count && rnd(t, 3)) {
		call_release(t, t->queue[rnd(t, t->held_count)]);
	}
}

static void released_in_any_order(void **state)
{
	struct test *t = begin_up(state);

	t->hold = true;
	while (t->arrived < ITEMS) {
		for (unsigned n = rnd(t, 6); n && t->posted < ITEMS; n--) {
			int rc = call_post(t, &t->items[t->posted]);

			assert_true(rc == 0 || rc == RCP_AGAIN);
			if (rc)
				break;
		}
		turns(t, rnd(t, 3));
		release_some(t);
	}
	assert_true(t->most_held > 1);
	while (t->held_count)
		call_release(t, t->queue[t->held_count - 1]);
	UNTIL(t, t->sent == ITEMS);
	assert_all_arrived(t);
	close_both(t);
	end(t);
}

/* The first post starts it; `sent` and `room` make the others, `chunk` gives the slots back. */
static void posted_from_events(void **state)
{
	struct test *t = begin_up(state);

	t->more = ITEMS - 1;
	assert_int_equal(call_post(t, &t->items[0]), 0);
	UNTIL(t, t->arrived == ITEMS && t->sent == ITEMS);
	assert_all_arrived(t);
	close_both(t);
	end(t);
}

static void close_waits_for_posts(void **state)
{
	struct test *t = begin_up(state);

	while (call_post(t, &t->items[t->posted]) == 0)
		;
	assert_true(t->posted >= 2);
	call_close(t, t->pair.source);
	call_close(t, t->pair.source);
	UNTIL(t, t->source.downs && t->sink.downs);
	assert_int_equal(t->source.cause.code, RCP_OK);
	assert_int_equal(t->arrived, t->posted);
	assert_all_arrived(t);
	end(t);
}

/* What the sink has not seen when it closes comes back to the source; what it holds is its own. */
static void sink_closes_with_posts(void **state)
{
	struct test *t = begin_up(state);

	t->hold = true;
	assert_int_equal(call_post(t, &t->items[10]), 0);
	UNTIL(t, t->arrived);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(call_post(t, &t->items[i]), 0);
	call_close(t, t->pair.sink);
	UNTIL(t, t->sink.downs);
	assert_int_equal(t->sink.cause.code, RCP_OK);
	assert_memory_equal(t->payload, t->items[10].body, CHUNK);
	call_release(t, t->queue[0]);
	while (t->held_count)
		call_release(t, t->queue[0]);
	rcp_link_free(&t->pair.sink);
	UNTIL(t, t->source.downs);
	assert_lost(&t->source);
	assert_int_equal(t->sent, 4);
	assert_int_equal(t->items[0].sent + t->items[1].sent + t->items[2].sent, 3);
	assert_int_equal(t->items[10].sent, 1);
	end(t);
}

static void source_closes_while_slots_are_held(void **state)
{
	struct test *t = begin_up(state);

	t->hold = true;
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(call_post(t, &t->items[i]), 0);
	UNTIL(t, t->arrived == 3);
	call_close(t, t->pair.source);
	turns(t, 10);
	while (t->held_count)
		call_release(t, t->queue[0]);
	UNTIL(t, t->source.downs && t->sink.downs);
	assert_int_equal(t->source.cause.code, RCP_OK);
	assert_all_arrived(t);
	end(t);
}

static void no_post_after_close(void **state)
{
	struct test *t = begin_up(state);

	call_close(t, t->pair.source);
	int rc = call_post(t, &t->items[0]);

	assert_true(rc != 0 && rc != RCP_AGAIN);
	UNTIL(t, t->source.downs);
	rc = call_post(t, &t->items[0]);
	assert_true(rc != 0 && rc != RCP_AGAIN);
	UNTIL(t, t->sink.downs);
	assert_int_equal(t->sent, 0);
	end(t);
}

static void freed_inside_down(void **state)
{
	struct test *t = begin_up(state);

	t->source.free_in_down = !t->pair.source->caps.needs_mem;
	t->sink.free_in_down = true;
	assert_int_equal(call_post(t, &t->items[0]), 0);
	call_close(t, t->pair.source);
	UNTIL(t, t->source.downs && t->sink.downs);
	assert_null(t->pair.sink);
	end(t);
}

static void close_in(void **state, const char *source, const char *sink)
{
	struct test *t = begin(state);
	struct rcp_err err = {0};
	bool early = !strcmp(source, "up");

	assert_int_equal(t->pair.kind->make(&t->pair, &err), 0);
	t->source.close_in = source;
	t->sink.close_in = sink;
	t->sink.free_in_down = true;
	UNTIL(t, t->source.ups && (t->sink.ups || t->sink.downs));
	if (!early) {
		exchange_rings(t);
		while (call_post(t, &t->items[t->posted]) == 0)
			;
	}
	UNTIL(t, t->source.downs && t->sink.downs);
	assert_sent_once(t);
	turns(t, 3);
	end(t);
}

/* Each end closes in the middle of what it is told, and never hears more than it may. */
static void closed_in_events(void **state)
{
	close_in(state, "up", "");
	close_in(state, "sent", "");
	close_in(state, "sent", "chunk");
	close_in(state, "room", "");
	close_in(state, "", "chunk");
	close_in(state, "room", "chunk");
}

static void rings_that_cannot_be(void **state)
{
	struct test *t = begin(state);
	struct rcp_err err = {0};
	const struct rcp_ring_info good = {.slots = 8,
					   .slot_bytes = CHUNK + 4096,
					   .chunk_bytes = CHUNK,
					   .generation = GENERATION};
	struct rcp_ring_info bad[] = {good, good, good, good, good, good};

	bad[0].slots = 0;
	bad[1].slots = RCP_SLOTS_MAX + 1;
	bad[2].slot_bytes = CHUNK;
	bad[3].chunk_bytes = 0, bad[3].slot_bytes = 4096;
	bad[4].chunk_bytes = 0xfffff000, bad[4].slot_bytes = 0;
	bad[5].chunk_bytes = CHUNK + 1, bad[5].slot_bytes = CHUNK + 1 + 4096;
	assert_int_equal(t->pair.kind->make(&t->pair, &err), 0);
	UNTIL(t, t->source.ups && t->sink.ups);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct rcp_err e = {0};

		assert_int_equal(t->pair.source->ops->ring_set(t->pair.source, &bad[i], &e),
				 RCP_E_CONNECT);
		assert_true(e.text[0]);
	}
	exchange_rings(t);
	carry(t, 20);
	close_both(t);
	end(t);
}

/* The frame is completed with other bytes, which a CRC finds; what follows is whole. */
static void truncated_file_keeps_the_link(void **state)
{
	struct test *t = begin_with_file(state);
	static uint8_t expected[CHUNK];
	struct item *cut = &t->items[10];

	carry(t, 10);
	assert_int_equal(cut->post.chunk.length, CHUNK);
	memset(expected, 0, CHUNK);
	memcpy(expected, cut->body, 5000);
	cut->body = expected;
	assert_int_equal(ftruncate(t->file, 10 * (off_t)STRIDE + 5000), 0);
	carry(t, 11);
	for (unsigned i = 11; i < ITEMS; i++) {
		t->items[i].post.fd = -1;
		t->items[i].post.body = t->items[i].body;
	}
	carry(t, ITEMS);
	close_both(t);
	end(t);
}

/* This process's memory is a file that sendfile refuses and pread reads. */
static void file_without_sendfile(void **state)
{
	struct test *t = begin_with_file(state);
	int fd = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	for (unsigned i = 0; i < ITEMS; i++) {
		t->items[i].post.fd = fd;
		t->items[i].post.fd_offset = (uint64_t)(uintptr_t)t->items[i].body;
	}
	carry(t, ITEMS);
	close(fd);
	close_both(t);
	end(t);
}

#define TESTS(T)                                                                                   \
	T(up_and_closed)                                                                           \
	T(sink_closes_alone)                                                                       \
	T(closed_before_up)                                                                        \
	T(bytes_arrive)                                                                            \
	T(bytes_arrive_from_file)                                                                  \
	T(credits_run_out_and_come_back)                                                           \
	T(released_in_any_order)                                                                   \
	T(posted_from_events)                                                                      \
	T(close_waits_for_posts)                                                                   \
	T(sink_closes_with_posts)                                                                  \
	T(source_closes_while_slots_are_held)                                                      \
	T(no_post_after_close)                                                                     \
	T(freed_inside_down)                                                                       \
	T(closed_in_events)                                                                        \
	T(rings_that_cannot_be)                                                                    \
	T(truncated_file_keeps_the_link)                                                           \
	T(file_without_sendfile)                                                                   \
	T(source_loses_peer)                                                                       \
	T(source_sends_to_nobody)                                                                  \
	T(sink_loses_peer)                                                                         \
	T(peer_takes_nothing)                                                                      \
	T(chunks_in_pieces)                                                                        \
	T(credits_in_pieces)                                                                       \
	T(credits_pile_up)                                                                         \
	T(chunk_before_ring)                                                                       \
	T(evil_source)                                                                             \
	T(evil_sink)                                                                               \
	T(silent_source)

/* contract [KIND [TEST]]: patterns. */
int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		CMUnitTestFunction run;
	} list[] = {
#define ROW(name) {#name, name},
		TESTS(ROW)
#undef ROW
	};
	enum { N = sizeof(list) / sizeof(list[0]) };
	int failed = 0;

	if (argc > 2)
		cmocka_set_test_filter(argv[2]);
	for (const struct pair_kind *const *k = pairs; *k; k++) {
		struct CMUnitTest tests[N] = {0};

		if (argc > 1 && fnmatch(argv[1], (*k)->name, 0))
			continue;
		for (size_t i = 0; i < N; i++) {
			tests[i].name = list[i].name;
			tests[i].test_func = list[i].run;
			/* cmocka hands it back and does not write to it. */
			tests[i].initial_state = (void *)(uintptr_t)*k;
		}
		failed += _cmocka_run_group_tests((*k)->name, tests, N, NULL, NULL);
	}
	return failed != 0;
}
