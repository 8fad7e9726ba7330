/* An evil source against a sink: chunks, slots, bundles, what is said out of turn or for ever. */
#include "evil.h"

#include "base/crc.h"

#include <stdlib.h>
#include <string.h>

static uint8_t payload[4 * EVIL_CHUNK];

/* ---- chunks of one file, each wrong in one way ---- */

enum chunk_evil {
	OFF_GRID = 1,
	PAST_END,
	FAR_PAST,
	WRAPS,
	TOO_LONG,
	TOO_SHORT,
	EMPTY,
	NO_ENTRY,
	LAST_ENTRY,
	BAD_FLAGS,
	SEALED,
	BUNDLE_FLAG,
	WRONG_CRC = 0x100, /* as well */
};

static void bend(struct rcp_chunk *c, enum chunk_evil how)
{
	static const struct rcp_chunk nothing;

	(void)nothing;
	switch (how) {
	case OFF_GRID:
		c->offset = 4096;
		break;
	case PAST_END:
		c->offset = 3 * EVIL_CHUNK;
		break;
	case FAR_PAST:
		c->offset = UINT64_C(1) << 63;
		break;
	case WRAPS:
		c->offset = UINT64_MAX - EVIL_CHUNK + 1;
		break;
	case TOO_LONG: /* the last cell is 18928 bytes */
		c->offset = 2 * EVIL_CHUNK;
		break;
	case TOO_SHORT:
		c->length = 100;
		break;
	case EMPTY:
		c->length = 0;
		break;
	case NO_ENTRY:
		c->entry = 1000;
		break;
	case LAST_ENTRY:
		c->entry = UINT32_MAX;
		break;
	case BAD_FLAGS:
		c->flags = 0x80;
		break;
	case SEALED:
		c->flags = RCP_CHUNK_SEALED;
		break;
	case BUNDLE_FLAG:
		c->flags = RCP_CHUNK_BUNDLE;
		break;
	case WRONG_CRC:
		break;
	}
	c->crc = rcp_crc32(0, payload, c->length);
}

static void seal_if_due(struct evil *e, struct rcp_chunk *c)
{
	struct rcp_err err = {0};

	if (e->seal)
		rcp_seal_chunk(e->seal, c, payload, &err);
}

static void bad_chunk(struct evil *e)
{
	uint32_t id;
	struct rcp_chunk c;

	if (!evil_begin(e, &id))
		return;
	c = evil_cell(e, id, 0, EVIL_CHUNK, payload);
	bend(&c, (enum chunk_evil)(e->c->arg & 0xff));
	c.crc ^= (e->c->arg & WRONG_CRC) != 0;
	seal_if_due(e, &c);
	evil_send_chunk(e, 0, &c, payload, c.length);
	evil_send_file(e, id);
	evil_finish_source(e);
}

static void wrong_crc(struct evil *e, uint32_t id, uint64_t offset)
{
	struct rcp_chunk c = evil_cell(e, id, offset, EVIL_CHUNK, payload);

	c.crc ^= 1;
	seal_if_due(e, &c);
	evil_send_chunk(e, evil_open_slot(e), &c, payload, c.length);
}

static void wrong_tag(struct evil *e, uint32_t id, uint64_t offset)
{
	struct rcp_chunk c = evil_cell(e, id, offset, EVIL_CHUNK, payload);

	seal_if_due(e, &c);
	c.tag[3] ^= 1;
	evil_send_chunk(e, evil_open_slot(e), &c, payload, c.length);
}

static void wrong_length(struct evil *e, uint32_t id, uint64_t offset)
{
	struct rcp_chunk c = evil_cell(e, id, offset, EVIL_CHUNK, payload);

	seal_if_due(e, &c);
	evil_send_chunk(e, evil_open_slot(e), &c, payload, 5000); /* what the link says, and the header doesn't */
}

static void stale_generation(struct evil *e, uint32_t id, uint64_t offset)
{
	struct rcp_chunk c = evil_cell(e, id, offset, EVIL_CHUNK, payload);

	c.generation ^= 0x10000; /* the imm word has its low half */
	evil_send_chunk(e, evil_open_slot(e), &c, payload, c.length);
}

static void unknown_flag(struct evil *e, uint32_t id, uint64_t offset)
{
	struct rcp_chunk c = evil_cell(e, id, offset, EVIL_CHUNK, payload);

	c.flags = 0x40;
	evil_send_chunk(e, evil_open_slot(e), &c, payload, c.length);
}

static void nothing_at_all(struct evil *e, uint32_t id, uint64_t offset)
{
	(void)e, (void)id, (void)offset;
}

static void always_wrong(struct evil *e)
{
	static void (*const how[])(struct evil *e, uint32_t id, uint64_t offset) = {
		wrong_crc, wrong_tag, wrong_length, stale_generation, unknown_flag, nothing_at_all};
	uint32_t id;

	if (!evil_begin(e, &id))
		return;
	evil_again_and_again(e, id, how[e->c->arg]);
}

/* ---- slots and frames ---- */

static void bad_slot(struct evil *e)
{
	uint32_t id, slot = 0;
	struct rcp_chunk c;

	if (!evil_begin(e, &id))
		return;
	if (e->c->arg == 2)
		e->ring.generation++; /* of the imm word */
	c = evil_cell(e, id, 0, EVIL_CHUNK, payload);
	seal_if_due(e, &c);
	if (e->c->arg == 0)
		slot = e->ring.slots;
	else if (e->c->arg == 1)
		slot = 0xffff;
	evil_send_chunk(e, slot, &c, payload, e->c->arg == 4 ? 3 * EVIL_CHUNK : c.length);
	for (int i = 0; i < 64 && e->c->arg == 3 && !e->gone; i++) /* one slot, without waiting for its credit */
		evil_send_chunk(e, slot, &c, payload, c.length);
	evil_drain(e);
}

static void frame(struct evil *e, uint32_t len, uint16_t type, uint16_t zero, const void *data, size_t n)
{
	uint8_t head[RCP_FRAME_HEADER];

	rcp_put_u32(head, len);
	rcp_put_u16(head + 4, type);
	rcp_put_u16(head + 6, zero);
	evil_raw(e, head, sizeof(head));
	if (n)
		evil_raw(e, data, n);
}

static void bad_chunk_frame(struct evil *e)
{
	uint8_t body[256] = {0};
	uint32_t id;

	if (!evil_begin(e, &id))
		return;
	rcp_put_u32(body + 4, e->c->arg == 0 ? 10 : e->c->arg == 1 ? 200 : 64);
	frame(e, e->c->arg == 0 ? 18 : e->c->arg == 3 ? 4 : 8 + 64, RCP_MSG_CHUNK, e->c->arg == 2, body, e->c->arg == 3 ? 4 : 72);
	evil_drain(e);
}

/* Hangs up where arg says: in the middle of a chunk, of a message, between entries, before BYE. */
static void hangs_up(struct evil *e)
{
	uint32_t id;
	struct rcp_chunk c;
	uint8_t half[20];

	if (!evil_begin(e, &id))
		return;
	if (e->c->arg == 0) {
		c = evil_cell(e, id, 0, EVIL_CHUNK, payload);
		rcp_put_u32(half, 8 + 64 + EVIL_CHUNK);
		rcp_put_u16(half + 4, RCP_MSG_CHUNK);
		rcp_put_u16(half + 6, 0);
		rcp_put_u32(half + 8, 0);
		rcp_put_u32(half + 12, 64 + c.length);
		evil_raw(e, half, 16);
		evil_raw(e, payload, 1000);
	} else if (e->c->arg == 1) {
		rcp_put_u32(half, 12);
		rcp_put_u16(half + 4, RCP_MSG_ENTRY_END);
		evil_raw(e, half, 6);
	} else {
		evil_send_file(e, id);
		evil_walk_end(e);
		while (!e->verdict && evil_get(e))
			;
	}
	evil_hang_up(e);
}

/* ---- bundles ---- */

static void bad_bundle(struct evil *e)
{
	uint32_t id, len = 4 + 12 + EVIL_SMALL_BYTES;
	uint64_t seen = 0;

	if (!evil_session(e))
		return;
	id = evil_name_file(e, "small", EVIL_SMALL_BYTES);
	evil_walk_end(e);
	if (!evil_answered(e, id))
		return;
	evil_act(e);
	for (uint64_t sent = 1; sent < 20; sent++) {
		rcp_put_u32(payload, e->c->arg == 0 ? UINT32_MAX : e->c->arg == 1 ? 90 : e->c->arg == 2 ? 0 : 1);
		rcp_put_u32(payload + 4, e->c->arg == 3 ? 77 : id);
		rcp_put_u32(payload + 8, e->c->arg == 4 ? UINT32_MAX - 1 : e->c->arg == 5 ? EVIL_SMALL_BYTES + 1 : EVIL_SMALL_BYTES);
		evil_payload("small", 0, payload + 16, EVIL_SMALL_BYTES);
		rcp_put_u32(payload + 12, rcp_crc32(0, payload + 16, EVIL_SMALL_BYTES) ^ (e->c->arg == 6));
		struct rcp_chunk c = {.flags = RCP_CHUNK_BUNDLE,
				      .generation = e->ring.generation,
				      .entry = id,
				      .offset = e->c->arg == 8 ? 65536 : 0,
				      .length = e->c->arg == 9 ? 3 : len,
				      .sequence = e->sequence++};

		c.crc = rcp_crc32(0, payload, c.length) ^ (e->c->arg == 7);
		seal_if_due(e, &c);
		evil_send_chunk(e, evil_open_slot(e), &c, payload, c.length);
		evil_posted(e, sent, 1);
		while (!e->verdict && e->agains == seen && evil_get(e))
			;
		seen = e->agains;
		if (e->verdict || e->aborted || e->gone || e->ctl->eof)
			break;
	}
	evil_verdict(e);
}

/* ---- out of turn ---- */

static void out_of_turn(struct evil *e)
{
	uint32_t id;

	if (!evil_begin(e, &id))
		return;
	switch (e->c->arg) {
	case 0:
		evil_end_entry(e, id, EVIL_F_BYTES + 1);
		break;
	case 1:
		evil_end_entry(e, id, EVIL_F_BYTES - 1);
		break;
	case 2:
		evil_end_entry(e, id, EVIL_F_BYTES);
		evil_end_entry(e, id, EVIL_F_BYTES);
		break;
	case 3:
		evil_end_entry(e, 9, 0);
		break;
	case 4:
		evil_say(e, RCP_MSG_FAULT, &(struct rcp_msg_fault){.entry = 9, .severity = 1, .code = 1});
		break;
	case 5:
		evil_say(e, RCP_MSG_BYE, &(struct rcp_msg_bye){0});
		break;
	case 6:
		evil_say(e, RCP_MSG_WALK_END, &(struct rcp_msg_walk_end){.entries = 2});
		break;
	case 7:
		evil_walk_end(e);
		evil_walk_end(e);
		break;
	case 8:
		evil_send_file(e, id);
		evil_walk_end(e);
		while (!e->verdict && evil_get(e))
			;
		evil_name_file(e, "small", 10);
		break;
	case 9: /* the verdict is known, and only signs of life come */
		evil_send_file(e, id);
		evil_walk_end(e);
		while (!e->verdict && evil_get(e))
			;
		break;
	case 10: /* what it takes back is failed, not there */
		evil_say(e, RCP_MSG_FAULT, &(struct rcp_msg_fault){.entry = id, .severity = 1, .code = 1, .text = rcp_span_str("gone")});
		evil_finish_source(e);
		break;
	}
	evil_drain(e);
}

/* Chunks before the sink has asked for them, or of what takes none. */
static void not_asked(struct evil *e)
{
	struct rcp_rec_entry d = evil_entry(RCP_ENTRY_DIR, "d", 0);
	uint32_t id;
	struct rcp_chunk c;

	if (!evil_session(e))
		return;
	id = e->c->arg == 1 ? evil_name(e, &d) : evil_name_file(e, "small", e->c->arg == 2 ? EVIL_SMALL_BYTES : 60000);
	if (e->c->arg == 2 && !evil_answered(e, id))
		return;
	while (e->c->arg == 1 && !e->entries[id].ended && evil_get(e))
		;
	evil_act(e);
	c = evil_cell(e, id, 0, e->c->arg == 2 ? EVIL_SMALL_BYTES : 60000, payload);
	seal_if_due(e, &c);
	evil_send_chunk(e, 0, &c, payload, c.length);
	if (e->c->arg == 1)
		evil_finish_source(e);
	evil_drain(e);
}

/* A cell once more, with other bytes: the last one counts or the first, but the file is one of both. */
static void twice(struct evil *e)
{
	uint32_t id;

	if (!evil_begin(e, &id))
		return;
	for (int i = 0; i < 3; i++)
		evil_send_cell(e, id, EVIL_CHUNK, EVIL_CHUNK);
	evil_send_file(e, id);
	for (int i = 0; i < 3; i++)
		evil_send_cell(e, id, 0, EVIL_CHUNK);
	evil_finish_source(e);
}

static void replayed(struct evil *e)
{
	uint32_t id;
	struct rcp_chunk c;

	if (!evil_begin(e, &id))
		return;
	c = evil_cell(e, id, 0, EVIL_CHUNK, payload);
	seal_if_due(e, &c);
	evil_send_chunk(e, 0, &c, payload, c.length);
	evil_send_chunk(e, 1, &c, payload, c.length);
	evil_drain(e);
}

static void unsealed(struct evil *e)
{
	rcp_seal_free(&e->seal);
	if (!evil_session(e))
		return;
	uint32_t id = evil_name_file(e, "f", EVIL_F_BYTES);

	if (!evil_answered(e, id))
		return;
	evil_act(e);
	rcp_seal_free(&e->seal);
	evil_send_cell(e, id, 0, EVIL_CHUNK);
	evil_drain(e);
}

/* ---- endless small messages ---- */

static void flood(struct evil *e)
{
	uint32_t id;

	if (!evil_begin(e, &id))
		return;
	for (int i = 0; i < 200000 && !e->gone && !e->aborted; i++) {
		if (e->c->arg == 0)
			evil_say(e, RCP_MSG_PING, &(struct rcp_msg_ping){.token = 0});
		else if (e->c->arg == 1)
			evil_posted(e, 0, 0);
		else if (e->c->arg == 2)
			evil_say(e, RCP_MSG_NOTE, &(struct rcp_msg_note){.level = 0, .text = rcp_span_str("a \033[31mline\r\n")});
		else if (e->c->arg == 3)
			evil_say(e, RCP_MSG_FAULT, &(struct rcp_msg_fault){.entry = UINT32_MAX, .severity = 0, .code = 1});
	}
	evil_send_file(e, id);
	evil_finish_source(e);
}

/* Names nothing and sends nothing, but lives. */
static void idle(struct evil *e)
{
	if (!evil_session(e))
		return;
	if (e->c->arg) {
		uint32_t id = evil_name_file(e, "f", EVIL_F_BYTES);

		if (!evil_answered(e, id))
			return;
		evil_send_cell(e, id, 0, EVIL_CHUNK);
	}
	evil_act(e);
	e->busy = e->c->arg == 2;
	evil_drain(e);
}

static void escapes(struct evil *e)
{
	static const char ugly[] = "\033]0;owned\007\033[2J\r\xc2\x9b" "31m\x7f";
	struct rcp_err dummy = {0};
	uint32_t id;

	(void)dummy;
	if (!evil_session(e))
		return;
	evil_act(e);
	if (e->c->arg == 0) {
		id = evil_name_file(e, "f", EVIL_F_BYTES);
		if (!evil_answered(e, id))
			return;
		evil_say(e, RCP_MSG_FAULT,
			 &(struct rcp_msg_fault){.entry = id,
						 .severity = 1,
						 .code = 1,
						 .sys_errno = 5,
						 .call = rcp_span_str(ugly),
						 .object = rcp_span_str(ugly),
						 .text = rcp_span_str(ugly),
						 .fix = rcp_span_str(ugly)});
		evil_finish_source(e);
	} else {
		evil_say(e, RCP_MSG_ABORT, &(struct rcp_msg_abort){.code = 5,
								   .call = rcp_span_str(ugly),
								   .object = rcp_span_str(ugly),
								   .text = rcp_span_str(ugly),
								   .fix = rcp_span_str(ugly)});
	}
	evil_drain(e);
}

#define ALL_LINKS (EVIL_PIPE | EVIL_TCP | EVIL_SEALED)
#define BROKE "broke the protocol"

const struct evil_case evil_chunk_cases[] = {
	{"chunk: off the grid, over two cells", bad_chunk, 4, "none of this file's", ALL_LINKS, .arg = OFF_GRID},
	{"chunk: past the end", bad_chunk, 4, "none of this file's", ALL_LINKS, .arg = PAST_END},
	{"chunk: offset 2^63", bad_chunk, 4, "none of this file's", ALL_LINKS, .arg = FAR_PAST},
	{"chunk: offset and length wrap", bad_chunk, 4, "none of this file's", ALL_LINKS, .arg = WRAPS},
	{"chunk: longer than its cell", bad_chunk, 4, "none of this file's", ALL_LINKS, .arg = TOO_LONG},
	{"chunk: shorter than its cell", bad_chunk, 4, "none of this file's", ALL_LINKS, .arg = TOO_SHORT},
	{"chunk: empty", bad_chunk, 4, "none of this file's", ALL_LINKS, .arg = EMPTY},
	{"chunk: off the grid, its CRC wrong", bad_chunk, 3, "no cell of its file", ALL_LINKS, .arg = OFF_GRID | WRONG_CRC},
	{"chunk: past the end, its CRC wrong", bad_chunk, 3, "no cell of its file", ALL_LINKS, .arg = PAST_END | WRONG_CRC},
	{"chunk: offset 2^63, its CRC wrong", bad_chunk, 3, "no cell of its file", ALL_LINKS, .arg = FAR_PAST | WRONG_CRC},
	{"chunk: empty, its CRC wrong", bad_chunk, 3, "no cell of its file", ALL_LINKS, .arg = EMPTY | WRONG_CRC},
	{"chunk: of no entry", bad_chunk, 3, "never was", ALL_LINKS, .arg = NO_ENTRY},
	{"chunk: of entry 2^32 - 1", bad_chunk, 3, "never was", ALL_LINKS, .arg = LAST_ENTRY},
	{"chunk: sealed where nothing is", bad_chunk, 3, "without keys", EVIL_PIPE | EVIL_TCP, .arg = SEALED},
	{"chunk: one cell three times", twice, 0, NULL, ALL_LINKS, .made = "f"},
	{"chunk: wrong CRC always", always_wrong, 4, "CRC", EVIL_PIPE | EVIL_TCP, .arg = 0},
	{"chunk: wrong CRC always, sealed", always_wrong, 4, "damaged or forged", EVIL_SEALED, .arg = 0},
	{"chunk: wrong tag always", always_wrong, 4, "damaged or forged", EVIL_SEALED, .arg = 1, .lines = -1},
	{"chunk: header and link differ in length", always_wrong, 4, "never arrived whole", EVIL_PIPE | EVIL_TCP, .arg = 2},
	{"chunk: header of another generation than imm", always_wrong, 4, "never arrived whole", EVIL_TCP, .arg = 3},
	{"chunk: unknown flag always", always_wrong, 4, "never arrived whole", EVIL_PIPE | EVIL_TCP, .arg = 4},
	{"chunk: less data than declared", always_wrong, 4, "never arrived whole", ALL_LINKS, .arg = 5},
	{"chunk: without a seal where all have one", unsealed, 4, "not sealed", EVIL_SEALED},
	{"chunk: sealed, and replayed", replayed, 4, "a second time", EVIL_SEALED},
	{"chunk: of a directory", not_asked, 0, NULL, .arg = 1, .opts = "r", .want = "d", .made = "d"},
	{"chunk: of a file for bundles", not_asked, 3, BROKE, ALL_LINKS, .arg = 2, .want = "small"},

	{"slot: beyond the ring", bad_slot, 3, BROKE, EVIL_PIPE | EVIL_TCP, .arg = 0},
	{"slot: 65535", bad_slot, 3, BROKE, EVIL_PIPE | EVIL_TCP, .arg = 1},
	{"slot: 65535, sealed", bad_slot, 4, "lost or changed", EVIL_SEALED, .arg = 1},
	{"slot: of another generation", bad_slot, 3, BROKE, EVIL_PIPE | EVIL_TCP, .arg = 2},
	{"slot: filled again without its credit", bad_slot, 3, BROKE, EVIL_PIPE | EVIL_TCP, .arg = 3},
	{"slot: more than it holds", bad_slot, 3, BROKE, EVIL_PIPE | EVIL_TCP, .arg = 4},
	{"frame: a chunk shorter than its header", bad_chunk_frame, 3, BROKE, .arg = 0},
	{"frame: a chunk of other lengths inside", bad_chunk_frame, 3, BROKE, .arg = 1},
	{"frame: reserved bits", bad_chunk_frame, 3, BROKE, .arg = 2},
	{"frame: a chunk of four bytes", bad_chunk_frame, 3, BROKE, .arg = 3},

	{"bundle: 2^32 - 1 files", bad_bundle, 4, "never arrived whole", ALL_LINKS, .arg = 0, .want = "small"},
	{"bundle: more files than it has room for", bad_bundle, 4, "never arrived whole", .arg = 1, .want = "small"},
	{"bundle: no files", bad_bundle, 4, "never arrived whole", .arg = 2, .want = "small"},
	{"bundle: of no entry", bad_bundle, 4, "never arrived whole", .arg = 3, .want = "small"},
	{"bundle: a length of 2^32 - 2", bad_bundle, 4, "never arrived whole", ALL_LINKS, .arg = 4, .want = "small"},
	{"bundle: a file longer than declared", bad_bundle, 4, "never arrived whole", .arg = 5, .want = "small"},
	{"bundle: a file's CRC wrong always", bad_bundle, 4, "CRC", EVIL_PIPE | EVIL_TCP, .arg = 6, .want = "small"},
	{"bundle: CRC wrong always", bad_bundle, 4, "CRC", EVIL_PIPE | EVIL_TCP, .arg = 7, .want = "small"},
	{"bundle: three bytes", bad_bundle, 4, "never arrived whole", ALL_LINKS, .arg = 9, .want = "small"},

	{"end: more data than the file's size", out_of_turn, 3, BROKE, .arg = 0},
	{"end: less data than the file's size", out_of_turn, 3, BROKE, .arg = 1},
	{"end: twice", out_of_turn, 3, BROKE, .arg = 2},
	{"end: of no entry", out_of_turn, 3, BROKE, .arg = 3},
	{"fault: of no entry", out_of_turn, 3, BROKE, .arg = 4},
	{"fault: of an entry under way", out_of_turn, 1, "gone", .arg = 10},
	{"bye: before the verdict", out_of_turn, 3, BROKE, .arg = 5},
	{"walk: ends with another number", out_of_turn, 3, BROKE, .arg = 6},
	{"walk: ends twice", out_of_turn, 3, BROKE, .arg = 7},
	{"an entry after the verdict", out_of_turn, 3, BROKE, .arg = 8, .made = "f"},
	{"no bye after the verdict", out_of_turn, 0, NULL, .arg = 9, .made = "f"},

	{"hangs up in a chunk", hangs_up, 6, NULL, .arg = 0, .lines = -3},
	{"hangs up in a message", hangs_up, 6, NULL, .arg = 1, .lines = -3},
	{"hangs up after the verdict", hangs_up, 0, NULL, .arg = 2, .made = "f"},

	{"endless: PING", flood, 0, NULL, .arg = 0, .made = "f"},
	{"endless: POSTED", flood, 0, NULL, .arg = 1, .made = "f"},
	{"endless: NOTE", flood, 0, NULL, EVIL_R, .arg = 2, .made = "f", .lines = -1},
	{"endless: FAULT", flood, 0, NULL, .arg = 3, .made = "f", .lines = -1},
	{"lives and names nothing", idle, 6, "stands still", ALL_LINKS, .arg = 0, .env = "RCP_TEST_STALL_MS=1500"},
	{"lives and sends no more", idle, 6, "stands still", ALL_LINKS, .arg = 1, .env = "RCP_TEST_STALL_MS=1500"},
	{"says for ever that it is at work", idle, 6, "stands still", EVIL_PIPE, .arg = 2, .env = "RCP_TEST_STALL_MS=500"},
	{"terminal escapes in a fault", escapes, 1, "owned", .arg = 0},
	{"terminal escapes in an abort", escapes, 5, NULL, EVIL_R, .arg = 1},
	{0},
};
