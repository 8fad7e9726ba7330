/* wire: every message and record survives the trip; nothing malformed gets through. */
#include "wire/chunk.h"
#include "wire/msg.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Fill the fields of a message with values that differ from field to field. */
static void fill(const struct rcp_field *f, void *out)
{
	static const uint8_t text[] = "\x01name with \xff bytes\n";
	uint8_t seed = 1;

	for (; f->name; f++, seed = (uint8_t)(seed + 37)) {
		uint8_t *p = (uint8_t *)out + f->offset;
		static const size_t size[] = {1, 2, 4, 8, 16, 32};

		if (f->type == RCP_W_STR || f->type == RCP_W_BLOB) {
			struct rcp_span s = rcp_span_of(text, sizeof(text) - 1 - seed % 5);

			memcpy(p, &s, sizeof(s));
		} else {
			for (size_t i = 0; i < size[f->type]; i++)
				p[i] = (uint8_t)(seed + i);
		}
	}
}

static void assert_fields_equal(const struct rcp_field *f, const void *a, const void *b)
{
	static const size_t size[] = {1, 2, 4, 8, 16, 32};

	for (; f->name; f++) {
		const uint8_t *x = (const uint8_t *)a + f->offset, *y = (const uint8_t *)b + f->offset;

		if (f->type == RCP_W_STR || f->type == RCP_W_BLOB) {
			struct rcp_span s, t;

			memcpy(&s, x, sizeof(s));
			memcpy(&t, y, sizeof(t));
			assert_int_equal(s.len, t.len);
			assert_memory_equal(s.data, t.data, s.len);
		} else {
			assert_memory_equal(x, y, size[f->type]);
		}
	}
}

static const unsigned numbers[] = {
#define NUMBER(NAME, name, number, who, phase) number,
	RCP_MESSAGES(NUMBER)
#undef NUMBER
};

static void every_message_round_trips(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		const struct rcp_msg_desc *d = rcp_msg_desc(numbers[i]);
		struct rcp_msg in = {0}, out;
		struct rcp_wr w = {.max = 65536};
		struct rcp_err err = {0};
		enum rcp_msg_type type;
		uint32_t len;

		assert_non_null(d);
		fill(d->fields, &in.hello_);
		rcp_msg_encode(&w, (enum rcp_msg_type)d->number, &in.hello_);
		assert_false(w.bad);
		assert_int_equal(rcp_frame_parse(w.data, 1 << 20, &err, &type, &len), 0);
		assert_int_equal(type, d->number);
		assert_int_equal(len, w.len - RCP_FRAME_HEADER);
		assert_int_equal(rcp_msg_decode(type, w.data + RCP_FRAME_HEADER, len, &err, &out), 0);
		assert_fields_equal(d->fields, &in.hello_, &out.hello_);
		/* Every shorter payload is refused. */
		for (uint32_t cut = 0; cut < len; cut++) {
			struct rcp_err e = {0};

			assert_int_equal(rcp_msg_decode(type, w.data + RCP_FRAME_HEADER, cut, &e, &out),
					 RCP_E_CONNECT);
		}
		rcp_wr_free(&w);
	}
}

static void every_record_round_trips(void **state)
{
	(void)state;
	for (int t = 0; t < RCP_REC_COUNT; t++) {
		struct rcp_rec_port in[2] = {0}, out[2] = {0}; /* the largest record, with room */
		struct rcp_wr w = {.max = 65536};

		assert_true(sizeof(in) >= sizeof(struct rcp_rec_entry));
		fill(rcp_rec_fields((enum rcp_rec_type)t), in);
		rcp_rec_encode(&w, (enum rcp_rec_type)t, in);
		rcp_rec_encode(&w, (enum rcp_rec_type)t, in);
		struct rcp_rd r = rcp_rd_of(w.data, w.len);

		assert_int_equal(rcp_rec_next(&r, (enum rcp_rec_type)t, out), 1);
		assert_int_equal(rcp_rec_next(&r, (enum rcp_rec_type)t, out), 1);
		assert_fields_equal(rcp_rec_fields((enum rcp_rec_type)t), in, out);
		assert_int_equal(rcp_rec_next(&r, (enum rcp_rec_type)t, out), 0);
		r = rcp_rd_of(w.data, w.len - 1);
		assert_int_equal(rcp_rec_next(&r, (enum rcp_rec_type)t, out), 1);
		assert_int_equal(rcp_rec_next(&r, (enum rcp_rec_type)t, out), -1);
		rcp_wr_free(&w);
	}
}

static void frames_are_bounded(void **state)
{
	static const uint8_t bad[][RCP_FRAME_HEADER] = {
		{0, 0, 0, 0, 0, 0, 0, 0},	       /* type 0 */
		{0, 0, 0, 0, 0x7f, 0xff, 0, 0},	       /* unknown */
		{0, 0, 0, 0, 0, 1, 0, 1},	       /* reserved bit */
		{0, 4, 0, 1, 0, 1, 0, 0},	       /* HELLO over 256 KiB */
		{0xff, 0xff, 0xff, 0xff, 0, 48, 0, 0}, /* CHUNK of 4 GiB */
	};
	enum rcp_msg_type type;
	uint32_t len;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct rcp_err err = {0};

		assert_int_equal(rcp_frame_parse(bad[i], 1 << 20, &err, &type, &len), RCP_E_CONNECT);
		assert_true(err.text[0] != 0);
	}
}

static void strings_hold_no_nul(void **state)
{
	struct rcp_msg_note note = {.text = rcp_span_of("a\0b", 3)};
	struct rcp_wr w = {.max = 4096};
	static const uint8_t raw[] = {0, 0, 3, 'a', 0, 'b'};
	struct rcp_err err = {0};
	struct rcp_msg out;

	(void)state;
	rcp_msg_encode(&w, RCP_MSG_NOTE, &note);
	assert_true(w.bad);
	assert_int_equal(rcp_msg_decode(RCP_MSG_NOTE, raw, sizeof(raw), &err, &out), RCP_E_CONNECT);
	rcp_wr_free(&w);
}

static void chunk_header_refuses_any_flipped_bit(void **state)
{
	struct rcp_chunk in = {.flags = RCP_CHUNK_BUNDLE, .generation = 7, .entry = 9,
			       .offset = UINT64_C(1) << 40, .length = 1 << 20, .crc = 0xdeadbeef,
			       .sequence = 12345678901, .tag = {1, 2, 3}}, out;
	uint8_t h[RCP_CHUNK_HEADER];

	(void)state;
	rcp_chunk_encode(&in, h);
	assert_true(rcp_chunk_decode(h, &out));
	assert_int_equal(out.offset, in.offset);
	assert_int_equal(out.sequence, in.sequence);
	assert_int_equal(out.crc, in.crc);
	assert_memory_equal(out.tag, in.tag, 16);
	for (int bit = 0; bit < 64 * 8; bit++) {
		h[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_false(rcp_chunk_decode(h, &out));
		h[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
}

static void imm_words(void **state)
{
	uint32_t imm = rcp_imm(4095, 0x12345);

	(void)state;
	assert_int_equal(rcp_imm_slot(imm), 4095);
	assert_true(rcp_imm_current(imm, 0x12345));
	assert_false(rcp_imm_current(imm, 0x12346));
}

static void legality_follows_the_table(void **state)
{
	(void)state;
	assert_true(rcp_msg_legal(rcp_msg_desc(RCP_MSG_START), RCP_PHASE_BOOT, true, RCP_ROLE_SINK));
	assert_false(rcp_msg_legal(rcp_msg_desc(RCP_MSG_START), RCP_PHASE_BOOT, false, RCP_ROLE_SINK));
	assert_false(rcp_msg_legal(rcp_msg_desc(RCP_MSG_START), RCP_PHASE_COPY, true, RCP_ROLE_SINK));
	assert_false(rcp_msg_legal(rcp_msg_desc(RCP_MSG_RESULTS), RCP_PHASE_COPY, true, RCP_ROLE_SOURCE));
	assert_true(rcp_msg_legal(rcp_msg_desc(RCP_MSG_PING), RCP_PHASE_COPY, false, RCP_ROLE_SOURCE));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_message_round_trips),
		cmocka_unit_test(every_record_round_trips),
		cmocka_unit_test(frames_are_bounded),
		cmocka_unit_test(strings_hold_no_nul),
		cmocka_unit_test(chunk_header_refuses_any_flipped_bit),
		cmocka_unit_test(imm_words),
		cmocka_unit_test(legality_follows_the_table),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
