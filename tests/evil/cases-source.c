/* An evil source against a sink: names, sizes, chunks, bundles, what is said out of turn. */
#include "evil.h"

#include "base/crc.h"

#include <stdlib.h>
#include <string.h>

static uint8_t payload[4 * EVIL_CHUNK];

/* An honest "f" in the same session afterwards: the session goes on where it should. */
static void finish_with_f(struct evil *e)
{
	uint32_t id = evil_name_file(e, "f", EVIL_F_BYTES);

	if (evil_answered(e, id))
		evil_send_file(e, id);
	evil_finish_source(e);
}

static void honest(struct evil *e)
{
	uint32_t small;

	if (!evil_session(e))
		return;
	evil_act(e);
	small = evil_name_file(e, "small", EVIL_SMALL_BYTES);
	if (evil_answered(e, small))
		evil_bundle(e, &small, 1, 0);
	finish_with_f(e);
}

/* ---- names ---- */

static void bad_name(struct evil *e)
{
	struct rcp_rec_entry rec = evil_entry((uint8_t)(e->c->arg ? e->c->arg : RCP_ENTRY_FILE), "x", 10);
	uint32_t id;

	rec.path = rcp_span_of(e->c->data, e->c->len ? e->c->len : strlen(e->c->data));
	rec.flags = RCP_ENTRY_TOP;
	if (rec.type == RCP_ENTRY_DIR || rec.type == RCP_ENTRY_DIR_END)
		rec.size = 0;
	if (!evil_session(e))
		return;
	evil_act(e);
	id = evil_name(e, &rec);
	if (rec.type == RCP_ENTRY_FILE && evil_answered(e, id))
		evil_bundle(e, &id, 1, 0);
	evil_finish_source(e);
}

static void long_component(struct evil *e)
{
	static char name[300];
	struct evil_case c = *e->c;

	memset(name, 'x', (size_t)(c.data = name, c.arg));
	c.arg = 0;
	e->c = &c;
	bad_name(e);
}

static void long_path(struct evil *e)
{
	static char name[4100];
	struct evil_case c = *e->c;

	for (size_t i = 0; i < 4098; i++)
		name[i] = i % 2 ? '/' : 'a';
	name[4097] = 'a';
	c.data = name;
	e->c = &c;
	bad_name(e);
}

/* A symlink that leads out, then an entry through it. data: where it leads to; arg: what goes through. */
static void through_link(struct evil *e)
{
	static char to[4096];
	struct rcp_rec_entry link = evil_entry(RCP_ENTRY_SYMLINK, "l", 0);
	struct rcp_rec_entry then = evil_entry((uint8_t)e->c->arg, "l/x", 10);
	uint32_t id;

	snprintf(to, sizeof(to), "%s%s", *(const char *)e->c->data == '/' ? e->top : "", (const char *)e->c->data);
	link.link = rcp_span_str(to);
	then.link = rcp_span_str("l");
	if (!evil_session(e))
		return;
	evil_name(e, &link);
	evil_act(e);
	while (!e->entries[0].ended && evil_get(e))
		;
	id = evil_name(e, &then);
	if (then.type == RCP_ENTRY_FILE && evil_answered(e, id))
		evil_bundle(e, &id, 1, 0);
	evil_finish_source(e);
}

/* The link was there before: target/link -> ../outside. */
static void through_old_link(struct evil *e)
{
	struct rcp_rec_entry rec = evil_entry((uint8_t)e->c->arg, e->c->data, e->c->arg == RCP_ENTRY_FILE ? 10 : 0);
	uint32_t id;

	if (rec.type == RCP_ENTRY_HARDLINK) {
		rec = evil_entry(RCP_ENTRY_HARDLINK, "h", 0);
		rec.link = rcp_span_str(e->c->data);
	}
	if (!evil_session(e))
		return;
	evil_act(e);
	id = evil_name(e, &rec);
	if (rec.type == RCP_ENTRY_FILE && evil_answered(e, id))
		evil_bundle(e, &id, 1, 0);
	evil_finish_source(e);
}

/* The directory becomes a link between its name and what is in it. */
static void dir_then_link(struct evil *e)
{
	struct rcp_rec_entry d = evil_entry(RCP_ENTRY_DIR, "d", 0), l = evil_entry(RCP_ENTRY_SYMLINK, "d", 0);
	uint32_t id;

	l.link = rcp_span_str("../outside");
	if (!evil_session(e))
		return;
	evil_act(e);
	evil_name(e, &d);
	evil_name(e, &l);
	while (!e->entries[1].ended && evil_get(e))
		;
	id = evil_name_file(e, "d/small", EVIL_SMALL_BYTES);
	if (evil_answered(e, id))
		evil_bundle(e, &id, 1, 0);
	evil_finish_source(e);
}

/* ---- what was not asked for ---- */

/* data: names, by blanks; "d:" in front: a directory. The first may be right. */
static void unasked(struct evil *e)
{
	const char *at = e->c->data;

	if (!evil_session(e))
		return;
	while (*at) {
		bool dir = !strncmp(at, "d:", 2);
		char name[300];
		size_t n = strcspn(at += dir ? 2 : 0, " ");

		snprintf(name, sizeof(name), "%.*s", (int)n, at);
		at += n + strspn(at + n, " ");
		if (!*at)
			evil_act(e);
		struct rcp_rec_entry rec = evil_entry(dir ? RCP_ENTRY_DIR : RCP_ENTRY_FILE, name, dir ? 0 : EVIL_SMALL_BYTES);
		uint32_t id = evil_name(e, &rec);

		if (!dir && evil_answered(e, id))
			evil_bundle(e, &id, 1, 0);
	}
	evil_finish_source(e);
}

static void no_target(struct evil *e)
{
	char target[600];

	snprintf(target, sizeof(target), "%s/w/target/%s", e->top, (const char *)e->c->data);
	e->start.target = rcp_span_of(target, strlen(target));
	if (!evil_greet(e))
		return;
	evil_act(e);
	if (evil_request(e) && evil_control(e))
		evil_link(e);
	evil_drain(e);
}

/* ---- entries ---- */

static void bad_entry(struct evil *e)
{
	struct rcp_rec_entry rec = evil_entry(RCP_ENTRY_FILE, "f", EVIL_F_BYTES);
	uint32_t id;

	switch (e->c->arg) {
	case 0:
		rec.size = UINT64_C(1) << 63;
		break;
	case 1:
		rec.size = INT64_MAX;
		break;
	case 2:
		rec.size = UINT64_MAX;
		break;
	case 3:
		rec.mtime_ns = 1000000000;
		break;
	case 4:
		rec.size = INT64_MAX;
		rec.flags |= RCP_ENTRY_SPARSE;
		break;
	case 5:
		rec.type = RCP_ENTRY_SYMLINK;
		rec.link = rcp_span_str("../outside");
		break;
	case 6:
		rec.type = RCP_ENTRY_CHR;
		rec.rdev = 0x103;
		break;
	case 7:
		rec.type = RCP_ENTRY_HARDLINK;
		rec.link = rcp_span_str("keep");
		break;
	case 8:
		rec.type = RCP_ENTRY_FIFO;
		break;
	case 9:
		rec.xattrs = rcp_span_str("no records");
		break;
	case 10: /* 64 TiB of chunks of 64 KiB: as many as there may be */
		rec.size = UINT64_C(64) << 40;
		break;
	case 11:
		rec.mode = 0xffffffff;
		break;
	case 12:
		rec.mtime_s = (uint64_t)INT64_MIN;
		break;
	default:
		rec.type = (uint8_t)e->c->arg;
	}
	if (!evil_session(e))
		return;
	evil_act(e);
	id = evil_name(e, &rec);
	if (rec.type == RCP_ENTRY_FILE && rec.size == EVIL_F_BYTES && evil_answered(e, id))
		evil_send_file(e, id);
	evil_finish_source(e);
}

/* A file of nothing but a hole, as large as may be. */
static void all_hole(struct evil *e)
{
	struct rcp_rec_entry rec = evil_entry(RCP_ENTRY_FILE, "f", (uint64_t)e->c->arg << 40);
	uint32_t id;

	rec.flags |= RCP_ENTRY_SPARSE;
	if (!evil_session(e))
		return;
	evil_act(e);
	id = evil_name(e, &rec);
	if (evil_answered(e, id))
		evil_end_entry(e, id, (uint64_t)e->c->len);
	evil_finish_source(e);
}

static void say_entries(struct evil *e, uint32_t first, uint32_t count, const char *name, size_t cut)
{
	struct rcp_rec_entry rec = evil_entry(RCP_ENTRY_FILE, name ? name : "f", EVIL_SMALL_BYTES);
	struct rcp_wr w = {.max = 65536};

	if (name)
		rcp_rec_encode(&w, RCP_REC_ENTRY, &rec);
	evil_say(e, RCP_MSG_ENTRIES,
		 &(struct rcp_msg_entries){.first = first, .count = count, .entries = rcp_span_of(w.data, w.len - cut)});
	rcp_wr_free(&w);
}

static void bad_entries(struct evil *e)
{
	if (!evil_session(e))
		return;
	evil_act(e);
	switch (e->c->arg) {
	case 0:
		say_entries(e, 1, 1, "f", 0);
		break;
	case 1:
		say_entries(e, 0, 2, "f", 0);
		break;
	case 2:
		say_entries(e, 0, 0, "f", 0);
		break;
	case 3:
		say_entries(e, 0, UINT32_MAX, "f", 0);
		break;
	case 4:
		say_entries(e, 0, 1, "f", 3);
		break;
	case 5:
		say_entries(e, 0, 1, "f", 0);
		say_entries(e, 0, 1, "f", 0);
		break;
	case 6:
		evil_walk_end(e);
		say_entries(e, 0, 1, "f", 0);
		break;
	case 7: /* none, for ever */
		for (int i = 0; i < 100000 && !e->gone; i++)
			say_entries(e, 0, 0, NULL, 0);
		break;
	case 8: /* more open than may be */
		for (uint32_t i = 0; i < 20000 && !e->gone; i++)
			say_entries(e, i, 1, "f", 0);
		break;
	}
	evil_drain(e);
}

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

	if (!evil_session(e))
		return;
	id = evil_name_file(e, "f", EVIL_F_BYTES);
	if (!evil_answered(e, id))
		return;
	evil_act(e);
	c = evil_cell(e, id, 0, EVIL_CHUNK, payload);
	bend(&c, (enum chunk_evil)e->c->arg);
	seal_if_due(e, &c);
	evil_send_chunk(e, 0, &c, payload, c.length);
	evil_send_file(e, id);
	evil_finish_source(e);
}

/* Says each time that it has sent all, with as many AGAINs as came: the sink's patience must end. */
static void say_posted(struct evil *e, uint64_t chunks, uint64_t answers)
{
	evil_say(e, RCP_MSG_POSTED, &(struct rcp_msg_posted){.generation = e->ring.generation,
							      .chunks = chunks,
							      .answers = answers,
							      .agains = e->agains});
}

/* What comes in place of the first cell, each time it is asked for. */
static void again_and_again(struct evil *e, uint32_t id, void (*wrong)(struct evil *e, uint32_t id, uint64_t offset))
{
	uint64_t seen = 0, sent = 1;

	wrong(e, id, 0);
	evil_send_cell(e, id, EVIL_CHUNK, EVIL_CHUNK);
	evil_send_cell(e, id, 2ul * EVIL_CHUNK, EVIL_F_BYTES - 2 * EVIL_CHUNK);
	evil_end_entry(e, id, EVIL_F_BYTES);
	evil_walk_end(e);
	say_posted(e, sent += 2, 1);
	while (!e->verdict && evil_get(e)) {
		for (; seen < e->agains; seen++) {
			wrong(e, id, e->again.offset);
			sent++;
		}
		if (e->msg.type == RCP_MSG_AGAIN)
			say_posted(e, sent, 1);
	}
	evil_verdict(e);
}

static uint32_t open_slot(struct evil *e)
{
	for (uint32_t i = 0; i < e->ring.slots; i++) {
		if (!e->taken[i])
			return i;
	}
	return 0;
}

static void wrong_crc(struct evil *e, uint32_t id, uint64_t offset)
{
	struct rcp_chunk c = evil_cell(e, id, offset, EVIL_CHUNK, payload);

	c.crc ^= 1;
	seal_if_due(e, &c);
	evil_send_chunk(e, open_slot(e), &c, payload, c.length);
}

static void wrong_tag(struct evil *e, uint32_t id, uint64_t offset)
{
	struct rcp_chunk c = evil_cell(e, id, offset, EVIL_CHUNK, payload);

	seal_if_due(e, &c);
	c.tag[3] ^= 1;
	evil_send_chunk(e, open_slot(e), &c, payload, c.length);
}

static void wrong_length(struct evil *e, uint32_t id, uint64_t offset)
{
	struct rcp_chunk c = evil_cell(e, id, offset, EVIL_CHUNK, payload);

	seal_if_due(e, &c);
	evil_send_chunk(e, open_slot(e), &c, payload, 5000); /* what the link says, and the header doesn't */
}

static void stale_generation(struct evil *e, uint32_t id, uint64_t offset)
{
	struct rcp_chunk c = evil_cell(e, id, offset, EVIL_CHUNK, payload);

	c.generation ^= 0x10000; /* the imm word has its low half */
	evil_send_chunk(e, open_slot(e), &c, payload, c.length);
}

static void unknown_flag(struct evil *e, uint32_t id, uint64_t offset)
{
	struct rcp_chunk c = evil_cell(e, id, offset, EVIL_CHUNK, payload);

	c.flags = 0x40;
	evil_send_chunk(e, open_slot(e), &c, payload, c.length);
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

	if (!evil_session(e))
		return;
	id = evil_name_file(e, "f", EVIL_F_BYTES);
	if (!evil_answered(e, id))
		return;
	evil_act(e);
	again_and_again(e, id, how[e->c->arg]);
}

/* ---- slots and frames ---- */

static void bad_slot(struct evil *e)
{
	uint32_t id, slot = 0;
	struct rcp_chunk c;

	if (!evil_session(e))
		return;
	id = evil_name_file(e, "f", EVIL_F_BYTES);
	if (!evil_answered(e, id))
		return;
	evil_act(e);
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

	if (!evil_session(e))
		return;
	id = evil_name_file(e, "f", EVIL_F_BYTES);
	if (!evil_answered(e, id))
		return;
	evil_act(e);
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

	if (!evil_session(e))
		return;
	id = evil_name_file(e, "f", EVIL_F_BYTES);
	if (!evil_answered(e, id))
		return;
	evil_act(e);
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
		evil_send_chunk(e, open_slot(e), &c, payload, c.length);
		say_posted(e, sent, 1);
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

	if (!evil_session(e))
		return;
	id = evil_name_file(e, "f", EVIL_F_BYTES);
	if (!evil_answered(e, id))
		return;
	evil_act(e);
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

	if (!evil_session(e))
		return;
	id = evil_name_file(e, "f", EVIL_F_BYTES);
	if (!evil_answered(e, id))
		return;
	evil_act(e);
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

	if (!evil_session(e))
		return;
	id = evil_name_file(e, "f", EVIL_F_BYTES);
	if (!evil_answered(e, id))
		return;
	evil_act(e);
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

	if (!evil_session(e))
		return;
	id = evil_name_file(e, "f", EVIL_F_BYTES);
	if (!evil_answered(e, id))
		return;
	evil_act(e);
	for (int i = 0; i < 200000 && !e->gone && !e->aborted; i++) {
		if (e->c->arg == 0)
			evil_say(e, RCP_MSG_PING, &(struct rcp_msg_ping){.token = 0});
		else if (e->c->arg == 1)
			say_posted(e, 0, 0);
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
#define NAME(n, text, word, ...) {n, bad_name, 3, word, .data = text, .len = sizeof(text) - 1, __VA_ARGS__}

const struct evil_case evil_source_cases[] = {
	{"honest", honest, 0, NULL, ALL_LINKS, .want = "f small", .opts = "d", .made = "f small"},

	NAME("name: ..", "..", "\".\" or \"..\""),
	NAME("name: .", ".", "\".\" or \"..\""),
	NAME("name: ../x", "../x", "\".\" or \"..\""),
	NAME("name: a/../../b", "a/../../b", "\".\" or \"..\""),
	NAME("name: f/..", "f/..", "\".\" or \"..\""),
	NAME("name: absolute", "/etc/rcp-evil", "empty component"),
	NAME("name: // in it", "f//x", "empty component"),
	NAME("name: a slash at its end", "f/", "empty component"),
	{"name: empty", bad_name, 3, "it is empty", .data = ""},
	NAME("name: NUL", "f\0x", "malformed"),
	NAME("name: a directory ..", "..", "\".\" or \"..\"", .arg = RCP_ENTRY_DIR, .opts = "r"),
	NAME("name: an end of ..", "..", "\".\" or \"..\"", .arg = RCP_ENTRY_DIR_END, .opts = "r"),
	NAME("name: an end of the target, not asked for", ".", "\".\" or \"..\"", .arg = RCP_ENTRY_DIR_END, .opts = "r"),
	{"name: 256 bytes", long_component, 3, "255 bytes", .arg = 256},
	{"name: over 4096 bytes", long_path, 3, "malformed"},
	{"name: a journal's", bad_name, 1, "own partial files", .data = ".f.rcp-journal", .want = ".f.rcp-journal"},
	{"name: a partial file's", bad_name, 1, "own partial files", .data = ".f.rcp-part", .want = ".f.rcp-part"},
	{"name: a list's", bad_name, 1, "own partial files", .data = ".f.rcp-done", .want = ".f.rcp-done"},
	{"name: a mark's", bad_name, 1, "own partial files", .data = ".f.rcp-new", .want = ".f.rcp-new"},
	{"name: a directory that is a journal", bad_name, 1, "own partial files", .data = ".f.rcp-journal",
	 .want = ".f.rcp-journal", .arg = RCP_ENTRY_DIR, .opts = "r"},
	{"name: terminal escapes, done", bad_name, 0, NULL, .data = "\033[31mx\007", .want = "\033[31mx\007", .made = "\033[31mx\007"},
	{"name: terminal escapes, failed", bad_name, 1, "own partial files", .data = ".\033[31m\r\xc2\x9b.rcp-part",
	 .want = ".\033[31m\r\xc2\x9b.rcp-part"},

	{"link, then a file through it", through_link, 1, "l/x", .data = "../outside", .arg = RCP_ENTRY_FILE, .want = "l", .opts = "a", .made = "l"},
	{"absolute link, then a file through it", through_link, 1, "l/x", .data = "/w/outside", .arg = RCP_ENTRY_FILE, .want = "l", .opts = "a", .made = "l"},
	{"link to /, then a file through it", through_link, 1, "l/x", .data = "../../../../../../../../../../", .arg = RCP_ENTRY_FILE, .want = "l", .opts = "a", .made = "l"},
	{"link, then a directory through it", through_link, 1, "l/x", .data = "../outside", .arg = RCP_ENTRY_DIR, .want = "l", .opts = "a", .made = "l"},
	{"link, then a FIFO through it", through_link, 1, "l/x", .data = "../outside", .arg = RCP_ENTRY_FIFO, .want = "l", .opts = "a", .made = "l"},
	{"link, then a hard link through it", through_link, 1, "l/x", .data = "../outside", .arg = RCP_ENTRY_HARDLINK, .want = "l", .opts = "a", .made = "l"},
	{"link, then the end of a directory through it", through_link, 1, "l/x", .data = "../outside/dir/..", .arg = RCP_ENTRY_DIR_END, .want = "l", .opts = "a", .made = "l"},
	{"an old link, a file through it", through_old_link, 1, "link/x", .data = "link/x", .arg = RCP_ENTRY_FILE, .want = "link", .opts = "r"},
	{"an old link, the secret through it", through_old_link, 1, "link/secret", .data = "link/secret", .arg = RCP_ENTRY_FILE, .want = "link", .opts = "r"},
	{"an old link as a directory", through_old_link, 1, "link", .data = "link", .arg = RCP_ENTRY_DIR, .want = "link", .opts = "r"},
	{"an old link, its end as a directory", through_old_link, 1, "link", .data = "link", .arg = RCP_ENTRY_DIR_END, .want = "link", .opts = "a"},
	{"a hard link to the secret by an old link", through_old_link, 1, "h", .data = "link/secret", .arg = RCP_ENTRY_HARDLINK, .want = "h link", .opts = "ad"},
	{"a hard link to ../outside/secret", through_old_link, 3, "\".\" or \"..\"", .data = "../outside/secret", .arg = RCP_ENTRY_HARDLINK, .want = "h", .opts = "a"},
	{"a directory, then a link in its place", dir_then_link, 1, "d", .want = "d", .opts = "a", .made = "d d/small"},

	{"not asked for: another name", unasked, 3, "not asked for", EVIL_R, .data = "g"},
	{"not asked for: .bashrc", unasked, 3, "not asked for", EVIL_R, .data = ".bashrc"},
	{"not asked for: one that is there", unasked, 3, "not asked for", EVIL_R, .data = "old"},
	{"not asked for: a second one", unasked, 3, "not asked for", EVIL_R, .want = "small", .data = "small old", .made = "small"},
	{"not asked for: a pattern does not match", unasked, 3, "not asked for", EVIL_R, .want = "*mall", .data = "small old", .made = "small"},
	{"not asked for: one by an escaped pattern", unasked, 3, "not asked for", EVIL_R, .want = "\\*mall", .data = "small"},
	{"not asked for: a tree", unasked, 3, "not asked for", EVIL_R, .want = "tree", .opts = "r", .data = "d:dir dir/small"},
	{"not asked for: below another directory", unasked, 3, "not asked for", EVIL_R, .want = "tree", .opts = "r", .data = "dir/small"},
	{"not asked for: into a directory that is there", unasked, 3, "not asked for", EVIL_R, .data = "dir/small"},
	{"a directory without -r", unasked, 3, "not asked for", EVIL_I | EVIL_R, .data = "d:f"},
	{"below a file without -r", unasked, 3, "not asked for", EVIL_I | EVIL_R, .data = "f/small"},
	{"a symbolic link without -a", bad_entry, 3, "not asked for", .arg = 5},
	{"a device without -a", bad_entry, 3, "not asked for", .arg = 6},
	{"a hard link without -a", bad_entry, 3, "not asked for", .arg = 7},
	{"a FIFO without -a", bad_entry, 3, "not asked for", .arg = 8, .opts = "r"},

	{"size: 2^63", bad_entry, 3, "size", .arg = 0},
	{"size: 2^63 - 1", bad_entry, 5, "too many", .arg = 1},
	{"size: 2^64 - 1", bad_entry, 3, "size", .arg = 2},
	{"size: 2^63 - 1, of holes", bad_entry, 5, "too many", .arg = 4},
	{"size: more than there is room", bad_entry, 5, "room", .arg = 10},
	{"size: 8 TiB of holes", all_hole, 0, NULL, .arg = 8, .made = "f"},
	{"size: 8 TiB of holes, and data that never came", all_hole, 6, "stands still", .arg = 8, .len = 100, .env = "RCP_TEST_STALL_MS=1500"},
	{"times: 10^9 ns", bad_entry, 3, "time", .arg = 3},
	{"times: before the flood", bad_entry, 0, NULL, .arg = 12, .made = "f", .opts = "p"},
	{"mode: all bits", bad_entry, 0, NULL, .arg = 11, .made = "f"},
	{"mode: all bits, with -p", bad_entry, 0, NULL, .arg = 11, .made = "f", .opts = "p"},
	{"type: 0", bad_entry, 3, "unknown type", .arg = 256},
	{"type: 10", bad_entry, 3, "unknown type", .arg = 266},
	{"type: 255", bad_entry, 3, "unknown type", .arg = 511},
	{"xattrs: malformed", bad_entry, 3, BROKE, .arg = 9, .opts = "a"},

	{"a target in a directory that is not there", no_target, 1, "directory", EVIL_I, .data = "a/b/c"},
	{"a target below a file", no_target, 1, NULL, EVIL_I, .data = "keep/b"},

	{"entries: begin at 1", bad_entries, 3, BROKE, .arg = 0},
	{"entries: fewer than said", bad_entries, 3, BROKE, .arg = 1},
	{"entries: more than said", bad_entries, 3, BROKE, .arg = 2},
	{"entries: 2^32 - 1 said", bad_entries, 3, BROKE, .arg = 3},
	{"entries: cut off", bad_entries, 3, BROKE, .arg = 4},
	{"entries: a number twice", bad_entries, 3, BROKE, .arg = 5},
	{"entries: after their end", bad_entries, 3, BROKE, .arg = 6},
	{"entries: none, for ever", bad_entries, 3, BROKE, .arg = 7},
	{"entries: 20000 at once", bad_entries, 3, "too many", .arg = 8},

	{"chunk: off the grid, over two cells", bad_chunk, 4, "none of this file's", ALL_LINKS, .arg = OFF_GRID},
	{"chunk: past the end", bad_chunk, 4, "none of this file's", ALL_LINKS, .arg = PAST_END},
	{"chunk: offset 2^63", bad_chunk, 4, "none of this file's", ALL_LINKS, .arg = FAR_PAST},
	{"chunk: offset and length wrap", bad_chunk, 4, "none of this file's", ALL_LINKS, .arg = WRAPS},
	{"chunk: longer than its cell", bad_chunk, 4, "none of this file's", ALL_LINKS, .arg = TOO_LONG},
	{"chunk: shorter than its cell", bad_chunk, 4, "none of this file's", ALL_LINKS, .arg = TOO_SHORT},
	{"chunk: empty", bad_chunk, 4, "none of this file's", ALL_LINKS, .arg = EMPTY},
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

	{"hangs up in a chunk", hangs_up, 6, NULL, .arg = 0},
	{"hangs up in a message", hangs_up, 6, NULL, .arg = 1},
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
