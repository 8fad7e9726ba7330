/*
 * A copy between a sender and a receiver over a link whose frames are flipped, replayed, held back, forged and
 * lost: what comes of it, and that no nonce is used twice, whatever happens.
 */
#include "sealed-world.h"

#define FRAMES_ON 9u /* more than there are chunks: never */

/* ---- without interference ---- */

static void whole_copy(void **state)
{
	struct world w = {0};

	(void)state;
	world_new(&w);
	world_run(&w);
	all_is_there(&w);
	assert_false(w.plaintext);
	assert_true(w.opened_in_ring);
	uint64_t sealed = rcp_sender_stats(w.sender)->sealed_bytes;

	assert_true(sealed > BIG);
	assert_int_equal(rcp_receiver_stats(w.receiver)->sealed_bytes, sealed);
	assert_int_equal(rcp_sender_stats(w.sender)->staged_bytes, sealed);
	world_free(&w);
}

/* The same without seals, so that the test above could fail. */
static void unsealed_copy(void **state)
{
	struct world w = {.no_seal = true};

	(void)state;
	world_new(&w);
	world_run(&w);
	all_is_there(&w);
	assert_true(w.plaintext);
	assert_int_equal(rcp_sender_stats(w.sender)->sealed_bytes, 0);
	world_free(&w);
}

/* A ring that a NIC writes to never holds what was authenticated. */
static void shared_ring(void **state)
{
	struct world w = {.shared_ring = true};

	(void)state;
	world_new(&w);
	world_run(&w);
	all_is_there(&w);
	assert_false(w.opened_in_ring);
	world_free(&w);
}

/* ---- with interference: each kind at each frame ---- */

static void flip_payload(struct world *w, struct frame *f)
{
	if (w->frames == w->strike)
		f->payload[f->length / 2] ^= 1;
	deliver(w, f);
}

static void forge_header(struct world *w, struct frame *f, size_t at, uint8_t bit)
{
	if (w->frames == w->strike) {
		f->header[at] ^= bit;
		rcp_put_u32(f->header + 60, rcp_crc32(0, f->header, 60));
	}
	deliver(w, f);
}

static void flip_header(struct world *w, struct frame *f)
{
	if (w->frames == w->strike)
		f->header[20] ^= 4;
	deliver(w, f);
}

static void forge_offset(struct world *w, struct frame *f)
{
	forge_header(w, f, 21, 1); /* the next cell but one, or beyond the end */
}

static void forge_offset_off_grid(struct world *w, struct frame *f)
{
	forge_header(w, f, 23, 1);
}

static void forge_entry(struct world *w, struct frame *f)
{
	forge_header(w, f, 15, 1);
}

static void forge_far_entry(struct world *w, struct frame *f)
{
	forge_header(w, f, 12, 0x80);
}

static void forge_bundle(struct world *w, struct frame *f)
{
	forge_header(w, f, 7, RCP_CHUNK_BUNDLE);
}

static void forge_crc(struct world *w, struct frame *f)
{
	forge_header(w, f, 28, 1);
}

static void forge_sequence(struct world *w, struct frame *f)
{
	forge_header(w, f, 33, 1);
}

static void forge_tag(struct world *w, struct frame *f)
{
	forge_header(w, f, 55, 0x80);
}

static void lose(struct world *w, struct frame *f)
{
	if (w->frames != w->strike)
		deliver(w, f);
}

static void cut_short(struct world *w, struct frame *f)
{
	if (w->frames == w->strike)
		f->length -= 5; /* as the link saw it */
	deliver(w, f);
}

static void cut_short_knowing(struct world *w, struct frame *f)
{
	if (w->frames == w->strike) {
		f->length -= 5;
		rcp_put_u32(f->header + 24, f->length);
		rcp_put_u32(f->header + 60, rcp_crc32(0, f->header, 60));
	}
	deliver(w, f);
}

static void hold_back(struct world *w, struct frame *f)
{
	if (w->frames == w->strike) {
		w->kept = *f;
		w->have_kept = true;
		return;
	}
	deliver(w, f);
	if (w->have_kept)
		deliver(w, &w->kept);
	w->have_kept = false;
}

static void swap_payloads(struct world *w, struct frame *f)
{
	struct frame a, b;

	if (w->frames == w->strike) {
		w->kept = *f;
		w->have_kept = true;
		return;
	}
	if (w->have_kept && w->kept.length == f->length) {
		a = *f;
		b = w->kept;
		memcpy(a.payload, w->kept.payload, f->length);
		memcpy(b.payload, f->payload, f->length);
		deliver(w, &a);
		deliver(w, &b);
	} else {
		deliver(w, f);
		if (w->have_kept)
			deliver(w, &w->kept);
	}
	w->have_kept = false;
}

/* Once each: it is sent again and the copy is whole, with not one wrong byte on the way there. */
static void mended(void **state)
{
	static void (*const kinds[])(struct world *, struct frame *) = {
		flip_payload,	 flip_header,	 forge_offset,	 forge_offset_off_grid, forge_entry,
		forge_far_entry, forge_bundle,	 forge_crc,	 forge_sequence,	forge_tag,
		lose,		 cut_short,	 cut_short_knowing, hold_back,		swap_payloads,
	};

	for (unsigned i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		for (unsigned strike = 0; strike < FRAMES_ON; strike++) {
			struct world w = {.on_frame = kinds[i], .strike = strike, .shared_ring = strike % 2};

			assert_int_equal(tmp_fresh(state), 0);
			world_new(&w);
			world_run(&w);
			all_is_there(&w);
			assert_false(w.plaintext);
			if (w.frames > strike + 1 && kinds[i] != hold_back && kinds[i] != swap_payloads)
				assert_true(rcp_receiver_stats(w.receiver)->resent_chunks > 0);
			world_free(&w);
		}
	}
}

/* A chunk that takes its time comes when its re-send has made the file whole, which is being committed. */
static void keep_back(struct world *w, struct frame *f)
{
	if (w->frames == w->strike)
		w->kept = *f;
	else
		deliver(w, f);
	if (w->frames > w->strike && !memcmp(w->kept.header + 12, f->header + 12, 12))
		w->late_in = w->turns_late;
}

static void bring_late(struct world *w)
{
	if (w->late_in && --w->late_in == 0)
		deliver(w, &w->kept);
}

static void late(void **state)
{
	for (unsigned i = 0; i < 10; i++) { /* turns: while it is written, checkpointed, committed, done */
		struct world w = {.on_frame = keep_back,
				  .on_turn = bring_late,
				  .strike = 3,
				  .turns_late = 1 + i / 2,
				  .no_seal = i % 2};

		assert_int_equal(tmp_fresh(state), 0);
		world_new(&w);
		world_run(&w);
		all_is_there(&w);
		assert_int_equal(rcp_receiver_stats(w.receiver)->resent_chunks, 1);
		world_free(&w);
	}
}

static void flip_always(struct world *w, struct frame *f)
{
	if (!rcp_get_u32(f->header + 4) || f->length > CHUNK / 4)
		f->payload[7] ^= 1;
	deliver(w, f);
}

static void never_whole(void **state)
{
	struct world w = {.on_frame = flip_always};

	(void)state;
	world_new(&w);
	world_run(&w);
	assert_int_equal(rcp_receiver_stats(w.receiver)->verdict_code, RCP_E_INTEGRITY);
	assert_int_equal(w.failed.code, RCP_E_INTEGRITY);
	assert_non_null(strstr(w.failed.text, "came damaged or forged 4 times"));
	nothing_is_there();
	tmp_expect_text("dst/src/one", "the first small file, of a bundle");
	world_free(&w);
}

static void replay(struct world *w, struct frame *f)
{
	if (w->frames == w->strike)
		w->kept = *f;
	deliver(w, w->frames == w->strike + 1 ? &w->kept : f);
}

static void replayed(void **state)
{
	for (unsigned strike = 0; strike < 5; strike++) {
		struct world w = {.on_frame = replay, .strike = strike, .shared_ring = strike % 2};

		assert_int_equal(tmp_fresh(state), 0);
		world_new(&w);
		world_run(&w);
		assert_int_equal(w.receiver_cause.code, RCP_E_INTEGRITY);
		assert_non_null(strstr(w.receiver_cause.text, "a second time"));
		world_free(&w);
	}
}

static void not_sealed(void **state)
{
	struct world w = {.unsealed_source = true};

	(void)state;
	world_new(&w);
	world_run(&w);
	assert_int_equal(w.receiver_cause.code, RCP_E_INTEGRITY);
	assert_non_null(strstr(w.receiver_cause.text, "not sealed"));
	nothing_is_there();
	world_free(&w);
}

/* ---- another link takes over: `look` has every nonce of both ---- */

static void cut_link(struct world *w, struct frame *f)
{
	if (w->frames == w->strike && w->wire->generation == 1)
		w->wire->cut = true; /* and this one is lost */
	else
		deliver(w, f);
}

static void taken_over(void **state)
{
	for (unsigned strike = 0; strike < 6; strike++) {
		struct world w = {.on_frame = cut_link, .strike = strike, .same_key = true};

		assert_int_equal(tmp_fresh(state), 0);
		world_new(&w);
		world_run(&w);
		assert_int_equal(w.sender_cause.code, RCP_E_LINK);
		unsigned before = w.nonce_count;

		wire_free(&w);
		w.sender_over = w.receiver_over = false;
		wire_new(&w, 2);
		world_run(&w);
		all_is_there(&w);
		assert_true(w.nonce_count > before);
		assert_false(w.plaintext);
		world_free(&w);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(whole_copy, tmp_fresh), cmocka_unit_test_setup(unsealed_copy, tmp_fresh),
		cmocka_unit_test_setup(shared_ring, tmp_fresh), cmocka_unit_test(mended), cmocka_unit_test(late),
		cmocka_unit_test_setup(never_whole, tmp_fresh), cmocka_unit_test(replayed),
		cmocka_unit_test_setup(not_sealed, tmp_fresh), cmocka_unit_test(taken_over),
	};

	return cmocka_run_group_tests_name("sealed", tests, tmp_setup, tmp_teardown);
}
