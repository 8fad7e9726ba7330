/* An evil source with an RDMA device against a sink: writes, immediate data, messages, all that an rkey lets it do. */
#include "evil.h"
#include "nic.h"

#include "base/clock.h"
#include "base/crc.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint8_t payload[4 * EVIL_CHUNK], wire[NIC_BYTES];

/* A chunk as it stands in a slot; its length. */
static size_t lay(const struct rcp_chunk *c)
{
	rcp_chunk_encode(c, wire);
	memcpy(wire + RCP_CHUNK_HEADER, payload, EVIL_CHUNK);
	return RCP_CHUNK_HEADER + c->length;
}

static struct rcp_chunk cell(struct evil *e, uint32_t id, uint64_t offset)
{
	uint64_t left = EVIL_F_BYTES - offset;
	struct rcp_chunk c = evil_cell(e, id, offset, left < EVIL_CHUNK ? (uint32_t)left : EVIL_CHUNK, payload);
	struct rcp_err err = {0};

	if (e->seal && rcp_seal_chunk(e->seal, &c, payload, &err))
		evil_note(e, "broken", "sealing failed");
	return c;
}

static bool put(struct evil *e, uint32_t slot, size_t len, uint32_t imm)
{
	e->taken[slot & 63] = true;
	return nic_write_imm(e, nic_slot(e, slot), e->ring.rkey, wire, len, imm);
}

static uint32_t imm_of(const struct evil *e, uint32_t slot)
{
	return rcp_imm(slot, e->ring.generation);
}

/* ---- header, immediate data and length at odds: each time it is asked for ---- */

static void imm_of_another(struct evil *e, uint32_t id, uint64_t offset)
{
	struct rcp_chunk c = cell(e, id, offset);
	size_t len = lay(&c);
	uint32_t slot = evil_open_slot(e);

	e->taken[slot] = true;
	uint32_t other = evil_open_slot(e);

	e->taken[slot] = false;
	e->taken[other] = true;
	memset(wire + 4, 0xee, 4); /* what is there from before may be a chunk, which would do */
	nic_write(e, nic_slot(e, other), e->ring.rkey, wire, 64);
	lay(&c);
	nic_write_imm(e, nic_slot(e, slot), e->ring.rkey, wire, len, imm_of(e, other));
}

static void fewer_bytes(struct evil *e, uint32_t id, uint64_t offset)
{
	struct rcp_chunk c = cell(e, id, offset);
	size_t len = lay(&c);
	uint32_t slot = evil_open_slot(e);

	nic_write(e, nic_slot(e, slot), e->ring.rkey, wire, len);
	put(e, slot, RCP_CHUNK_HEADER + 100, imm_of(e, slot));
}

static void header_of_more(struct evil *e, uint32_t id, uint64_t offset)
{
	struct rcp_chunk c = cell(e, id, offset);
	uint32_t slot = evil_open_slot(e);
	size_t len = lay(&c);

	c.length = 0x80000000;
	rcp_chunk_encode(&c, wire);
	put(e, slot, len, imm_of(e, slot));
}

static void header_alone(struct evil *e, uint32_t id, uint64_t offset)
{
	struct rcp_chunk c = cell(e, id, offset);
	uint32_t slot = evil_open_slot(e);

	lay(&c);
	put(e, slot, RCP_CHUNK_HEADER, imm_of(e, slot));
}

static void damaged_header(struct evil *e, uint32_t id, uint64_t offset)
{
	struct rcp_chunk c = cell(e, id, offset);
	size_t len = lay(&c);
	uint32_t slot = evil_open_slot(e);

	wire[20] ^= 1;
	put(e, slot, len, imm_of(e, slot));
}

/* iWARP: the message says what the write did not do. */
static void message_of_more(struct evil *e, uint32_t id, uint64_t offset)
{
	struct rcp_chunk c = cell(e, id, offset);
	size_t len = lay(&c);
	uint32_t slot = evil_open_slot(e);

	nic_write(e, nic_slot(e, slot), e->ring.rkey, wire, len);
	e->taken[slot] = true;
	nic_say_chunk(e, imm_of(e, slot), (uint32_t)len - 1);
}

/* A pair of a write and a message, where it is right and where it comes first: what is in the slot is another's. */
static void message_first(struct evil *e, uint32_t id, uint64_t offset)
{
	struct rcp_chunk c = cell(e, id, offset);
	size_t len = lay(&c);
	uint32_t slot = evil_open_slot(e);

	memset(wire, 0, 64);
	nic_write(e, nic_slot(e, slot), e->ring.rkey, wire, 64);
	e->taken[slot] = true;
	nic_say_chunk(e, imm_of(e, slot), (uint32_t)len);
	while (e->taken[slot] && nic_credits(e))
		;
}

static void at_odds(struct evil *e)
{
	static void (*const how[])(struct evil *e, uint32_t id, uint64_t offset) = {
		imm_of_another, fewer_bytes, header_of_more, header_alone, damaged_header, message_of_more, message_first};
	uint32_t id;

	if (evil_begin(e, &id))
		evil_again_and_again(e, id, how[e->c->arg]);
}

/* ---- what breaks the protocol at once ---- */

static void bad_chunk(struct evil *e)
{
	uint32_t id;
	struct rcp_chunk c;

	if (!evil_begin(e, &id))
		return;
	c = cell(e, id, 0);
	size_t len = lay(&c);

	switch (e->c->arg) {
	case 0: /* nothing was written */
		put(e, 0, 0, imm_of(e, 0));
		break;
	case 1:
		put(e, 0, 1, imm_of(e, 0));
		break;
	case 2:
		put(e, 0, RCP_CHUNK_HEADER - 1, imm_of(e, 0));
		break;
	case 3: /* into the next slot */
		put(e, 0, RCP_CHUNK_HEADER + EVIL_CHUNK + 1, imm_of(e, 0));
		break;
	case 4:
		put(e, 0, (size_t)3 * e->ring.slot_bytes, imm_of(e, 0));
		break;
	case 5: /* the same credit again, and at once */
		put(e, 0, len, imm_of(e, 0));
		for (int i = 0; i < 64 && put(e, 0, len, imm_of(e, 0)); i++)
			;
		break;
	case 6:
		put(e, 0, len, imm_of(e, e->ring.slots));
		break;
	case 7:
		put(e, 0, len, UINT32_MAX);
		break;
	case 8:
		put(e, 0, len, rcp_imm(0, e->ring.generation + 1));
		break;
	case 9:
		put(e, 0, len, rcp_imm(0, e->ring.generation - 1));
		break;
	}
	evil_drain(e);
}

static void bad_message(struct evil *e)
{
	static const uint8_t hello[8] = {1, 1, 0, 1}, credits[6] = {3, 1, 0, 0, 0, 0}, bye[8] = {4}, unknown[8] = {9},
			     reserved[16] = {2, 1}, none[4] = {3};
	static const struct {
		const uint8_t *data;
		size_t len;
	} says[] = {{payload, 0}, {payload, 1},	    {payload, 3},  {payload, 64}, {hello, 8}, {credits, 6},
		    {bye, 8},	  {unknown, 8}, {reserved, 16}, {none, 4},	  {bye, 7}};
	uint32_t id;

	if (!evil_begin(e, &id))
		return;
	nic_send(e, says[e->c->arg].data, says[e->c->arg].len);
	evil_drain(e);
}

/* The message of a pair, where its numbers can't be. */
static void bad_pair(struct evil *e)
{
	static const uint32_t bytes[] = {0, 63, RCP_CHUNK_HEADER + EVIL_CHUNK + 1, UINT32_MAX};
	uint32_t id;
	struct rcp_chunk c;

	if (!evil_begin(e, &id))
		return;
	c = cell(e, id, 0);
	nic_write(e, nic_slot(e, 0), e->ring.rkey, wire, lay(&c));
	nic_say_chunk(e, imm_of(e, 0), bytes[e->c->arg]);
	evil_drain(e);
}

/* ---- where it must not write: the device sees to that ---- */

static void bad_write(struct evil *e)
{
	uint64_t at, ring_end;
	uint32_t id, rkey;

	if (!evil_begin(e, &id))
		return;
	at = nic_slot(e, 0);
	rkey = e->ring.rkey;
	/* The ring's memory is in whole huge pages. */
	ring_end = e->ring.addr + (((uint64_t)e->ring.slots * e->ring.slot_bytes + (2 << 20) - 1) & ~UINT64_C(0x1fffff));
	memset(wire, 0xaa, sizeof(wire));
	switch (e->c->arg) {
	case 0:
		at = ring_end - 32;
		break;
	case 1:
		at = ring_end;
		break;
	case 2:
		at = e->ring.addr - 64;
		break;
	case 3:
		at = 0;
		break;
	case 4:
		at = UINT64_MAX - 31;
		break;
	case 5:
		rkey ^= 0x100;
		break;
	case 6:
		rkey = 0;
		break;
	case 7: /* of the memory that its messages come in */
		rkey += 0x100;
		break;
	}
	if (nic_write(e, at, rkey, wire, 64) && !(e->link & EVIL_ANY_IWARP)) /* whose completions are TCP's */
		evil_note(e, "broken", "a write beyond the ring was taken");
	nic_end(e);
}

/* By a message longer than what was posted for it. */
static void long_message(struct evil *e)
{
	uint32_t id;

	if (!evil_begin(e, &id))
		return;
	if (nic_send(e, payload, e->c->arg == 0 ? 65 : 2 * EVIL_CHUNK) && !(e->link & EVIL_ANY_IWARP))
		evil_note(e, "broken", "it was taken");
	nic_end(e);
}

static void leaves(struct evil *e)
{
	uint32_t id;
	struct rcp_chunk c;

	if (!evil_begin(e, &id))
		return;
	c = cell(e, id, 0);
	put(e, 0, lay(&c), imm_of(e, 0));
	nic_leave(e);
	nic_end(e);
}

/* ---- what it may do, odd as it is ---- */

static void send_cells(struct evil *e, uint32_t id, const uint32_t slots[3])
{
	for (uint32_t i = 0; i < 3; i++) {
		struct rcp_chunk c = cell(e, id, (uint64_t)i * EVIL_CHUNK);

		put(e, slots[i], lay(&c), imm_of(e, slots[i]));
	}
	evil_end_entry(e, id, EVIL_F_BYTES);
	evil_finish_source(e);
}

static void out_of_turn(struct evil *e)
{
	static const uint32_t slots[] = {3, 1, 2};
	uint32_t id;

	if (evil_begin(e, &id))
		send_cells(e, id, slots);
}

/* In slots that are its own to fill, and behind the last: nobody looks there. */
static void scribbles_where_it_may(struct evil *e)
{
	static const uint32_t slots[] = {0, 1, 2};
	uint32_t id;

	if (!evil_begin(e, &id))
		return;
	memset(wire, 0xbb, sizeof(wire));
	for (int i = 0; i < 50; i++) {
		nic_write(e, e->ring.addr, e->ring.rkey, wire, (size_t)e->ring.slots * e->ring.slot_bytes);
		nic_write(e, e->ring.addr + (uint64_t)e->ring.slots * e->ring.slot_bytes, e->ring.rkey, wire, 4096);
	}
	send_cells(e, id, slots);
}

/* Where both know immediate data a pair is legal, too. */
static void pairs(struct evil *e)
{
	uint32_t id;

	if (!evil_begin(e, &id))
		return;
	for (uint32_t i = 0; i < 3; i++) {
		struct rcp_chunk c = cell(e, id, (uint64_t)i * EVIL_CHUNK);
		size_t len = lay(&c);

		nic_write(e, nic_slot(e, i), e->ring.rkey, wire, len);
		nic_say_chunk(e, imm_of(e, i), (uint32_t)len);
	}
	evil_end_entry(e, id, EVIL_F_BYTES);
	evil_finish_source(e);
}

/* ---- the slot is written again after it was handed over ---- */

static void write_again(struct evil *e, uint32_t slot, size_t from, size_t len)
{
	nic_write(e, nic_slot(e, slot) + from, e->ring.rkey, wire + from, len);
}

/* A header that says something else, itself sound: of no entry, far away, too long, a bundle, of another cell. */
static void other_header(struct evil *e, const struct rcp_chunk *c, unsigned which)
{
	struct rcp_chunk b = *c;

	switch (which % 5) {
	case 0:
		b.entry = 1000;
		break;
	case 1:
		b.offset = UINT64_C(1) << 63;
		break;
	case 2:
		b.length = 0x7fffffff;
		break;
	case 3:
		b.flags |= RCP_CHUNK_BUNDLE;
		break;
	case 4:
		b.offset = EVIL_CHUNK;
		break;
	}
	(void)e;
	rcp_chunk_encode(&b, wire);
}

/*
 * The chunk as it should be, and behind its imm at once other headers and bytes, over and over, until its credit is
 * back or the victim has had enough. arg: headers, payload, both.
 */
static void hammer(struct evil *e, uint32_t id, uint64_t offset)
{
	struct rcp_chunk c = cell(e, id, offset);
	size_t len = lay(&c);
	uint32_t slot = evil_open_slot(e);
	uint64_t before = e->credits;

	put(e, slot, len, imm_of(e, slot));
	for (unsigned i = 0; i < 400 && e->credits == before; i++) {
		if (e->c->arg != 1) {
			other_header(e, &c, i);
			write_again(e, slot, 0, RCP_CHUNK_HEADER);
		}
		if (e->c->arg != 0) {
			wire[RCP_CHUNK_HEADER + i * 150 % EVIL_CHUNK] ^= 0x55;
			write_again(e, slot, RCP_CHUNK_HEADER, EVIL_CHUNK);
		}
		if (nic_has_credits(e))
			nic_credits(e);
	}
}

static void hammered(struct evil *e)
{
	uint32_t id;

	if (evil_begin(e, &id))
		evil_again_and_again(e, id, hammer);
}

/*
 * The victim's test hook holds the chunk between its check and the disk until the slot's first byte has changed: so
 * whatever is written from the ring then is what was never checked.
 */
static void after_the_check(struct evil *e, uint32_t id, uint64_t offset)
{
	struct rcp_chunk c = cell(e, id, offset);
	size_t len = lay(&c);
	uint32_t slot = evil_open_slot(e);

	if (!put(e, slot, len, imm_of(e, slot)))
		return;
	/* Too early, and it is one more chunk that came damaged: asked for again, nothing else. */
	nanosleep(&(struct timespec){.tv_nsec = 150000000}, NULL);
	other_header(e, &c, 4);
	memset(wire + RCP_CHUNK_HEADER, 0xcc, EVIL_CHUNK);
	write_again(e, slot, 0, RCP_CHUNK_HEADER + EVIL_CHUNK);
}

static void rewritten(struct evil *e)
{
	uint32_t id;

	if (evil_begin(e, &id))
		evil_again_and_again(e, id, after_the_check);
}

/* A bundle's table, which is read before its bytes are checked. */
static void bundle_rewritten(struct evil *e)
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
		uint32_t slot = evil_open_slot(e);
		struct rcp_err err = {0};

		rcp_put_u32(payload, 1);
		rcp_put_u32(payload + 4, id);
		rcp_put_u32(payload + 8, EVIL_SMALL_BYTES);
		evil_payload("small", 0, payload + 16, EVIL_SMALL_BYTES);
		rcp_put_u32(payload + 12, rcp_crc32(0, payload + 16, EVIL_SMALL_BYTES));
		struct rcp_chunk c = {.flags = RCP_CHUNK_BUNDLE,
				      .generation = e->ring.generation,
				      .entry = id,
				      .length = len,
				      .crc = rcp_crc32(0, payload, len),
				      .sequence = e->sequence++};

		if (e->seal)
			rcp_seal_chunk(e->seal, &c, payload, &err);
		put(e, slot, lay(&c), imm_of(e, slot));
		for (unsigned i = 0; i < 100; i++) {
			rcp_put_u32(wire + 64, i % 2 ? UINT32_MAX : 83);
			rcp_put_u32(wire + 64 + 8, i % 3 ? UINT32_MAX - 1 : EVIL_CHUNK);
			write_again(e, slot, 64, 16);
		}
		evil_posted(e, sent, 1);
		while (!e->verdict && e->agains == seen && evil_get(e))
			;
		while (nic_has_credits(e))
			nic_credits(e);
		seen = e->agains;
		if (e->verdict || e->aborted || e->gone || e->ctl->eof)
			break;
	}
	evil_verdict(e);
}

/* ---- before its time, and what it says has come ---- */

static void too_early(struct evil *e)
{
	if (!evil_boot(e) || !evil_caps(e) || !evil_try(e) || !evil_connect(e))
		return;
	evil_act(e);
	/* Where the ring is nobody has told: but a message needs no place. */
	nic_say_chunk(e, rcp_imm(0, e->link_id), 64);
	/* A server that was not up yet has given the link up, and would wait for another. */
	if (e->initiator && evil_get_within(e, 1000) && e->msg.type == RCP_MSG_LINK_FAIL) {
		evil_hang_up(e);
		return;
	}
	if (evil_use(e))
		evil_copy_f(e);
	evil_drain(e);
}

/* All has been posted, it says, and more than that. */
static void claims(struct evil *e)
{
	uint32_t id;

	if (!evil_begin(e, &id))
		return;
	evil_end_entry(e, id, EVIL_F_BYTES);
	evil_walk_end(e);
	evil_posted(e, e->c->arg == 0 ? 3 : UINT64_MAX, 1);
	while (!e->verdict && evil_get(e)) {
		if (e->msg.type == RCP_MSG_AGAIN)
			evil_posted(e, e->c->arg == 0 ? 3 + e->agains : UINT64_MAX, 1);
	}
	evil_verdict(e);
}

#define BROKE "broke the protocol"
#define PLAIN (EVIL_CM | EVIL_OOB | EVIL_IWARP)
#define SEAL EVIL_RDMA_SEALED
#define SEAL_IMM (EVIL_CM_SEALED | EVIL_OOB_SEALED)
#define LOST "lost or changed"
#define HELD "RCP_TEST_HOLD_MS=2000"

const struct evil_case evil_nic_source_cases[] = {
	{"odds: immediate data of another slot", at_odds, 4, "never arrived whole", EVIL_RDMA, .arg = 0},
	{"odds: fewer bytes than the header says", at_odds, 4, "never arrived whole", EVIL_RDMA, .arg = 1},
	{"odds: a header of 2 GiB", at_odds, 4, "never arrived whole", EVIL_RDMA, .arg = 2},
	{"odds: a header alone", at_odds, 4, "never arrived whole", EVIL_RDMA, .arg = 3},
	{"odds: a damaged header", at_odds, 4, "never arrived whole", EVIL_RDMA, .arg = 4},
	{"odds: a message of fewer bytes", at_odds, 4, "never arrived whole", EVIL_RDMA, .arg = 5},
	{"odds: a message before its write", at_odds, 4, "never arrived whole", EVIL_RDMA, .arg = 6},

	{"imm: without a write", bad_chunk, 3, BROKE, PLAIN, .arg = 0},
	{"imm: without a write, sealed", bad_chunk, 4, LOST, SEAL_IMM, .arg = 0},
	{"imm: one byte", bad_chunk, 3, BROKE, PLAIN, .arg = 1},
	{"imm: less than a header", bad_chunk, 3, BROKE, PLAIN, .arg = 2},
	{"imm: a byte into the next slot", bad_chunk, 3, BROKE, PLAIN, .arg = 3},
	{"imm: three slots at once", bad_chunk, 3, BROKE, PLAIN, .arg = 4},
	{"imm: three slots at once, sealed", bad_chunk, 4, LOST, SEAL_IMM, .arg = 4},
	{"imm: more than there are credits", bad_chunk, 3, BROKE, PLAIN, .arg = 5},
	{"imm: more than there are credits, sealed", bad_chunk, 4, NULL, SEAL_IMM, .arg = 5},
	{"imm: the slot behind the last", bad_chunk, 3, BROKE, PLAIN, .arg = 6},
	{"imm: all ones", bad_chunk, 3, BROKE, PLAIN, .arg = 7},
	{"imm: of the next generation", bad_chunk, 3, BROKE, PLAIN, .arg = 8},
	{"imm: of the last generation", bad_chunk, 3, BROKE, PLAIN, .arg = 9},

	{"send: nothing", bad_message, 3, BROKE, PLAIN, .arg = 0},
	{"send: one byte", bad_message, 3, BROKE, PLAIN, .arg = 1},
	{"send: three bytes", bad_message, 3, BROKE, PLAIN, .arg = 2},
	{"send: 64 zeros", bad_message, 3, BROKE, PLAIN, .arg = 3},
	{"send: 64 zeros, sealed", bad_message, 4, LOST, SEAL, .arg = 3},
	{"send: hello again", bad_message, 3, BROKE, PLAIN, .arg = 4},
	{"send: credits to a sink", bad_message, 3, BROKE, PLAIN, .arg = 5},
	{"send: bye where rdma_cm says it", bad_message, 3, BROKE, EVIL_CM | EVIL_IWARP, .arg = 6},
	{"send: unknown", bad_message, 3, BROKE, PLAIN, .arg = 7},
	{"send: reserved bits", bad_message, 3, BROKE, PLAIN, .arg = 8},
	{"send: no credits", bad_message, 3, BROKE, PLAIN, .arg = 9},
	{"send: half a bye", bad_message, 3, BROKE, PLAIN, .arg = 10},
	{"send: 65 bytes", long_message, 6, "longer than any", EVIL_R | EVIL_RDMA, .arg = 0, .lines = -4},
	{"send: 65 bytes", long_message, 6, NULL, EVIL_I | EVIL_RDMA, .arg = 0, .lines = -4},
	{"send: 128 KiB", long_message, 6, "longer than any", EVIL_R | EVIL_RDMA, .arg = 1, .lines = -4},
	{"send: 128 KiB", long_message, 6, NULL, EVIL_I | EVIL_RDMA, .arg = 1, .lines = -4},
	{"pair: of no bytes", bad_pair, 3, BROKE, PLAIN, .arg = 0},
	{"pair: of less than a header", bad_pair, 3, BROKE, PLAIN, .arg = 1},
	{"pair: of more than a slot", bad_pair, 3, BROKE, PLAIN, .arg = 2},
	{"pair: of 2^32 - 1 bytes", bad_pair, 3, BROKE, PLAIN, .arg = 3},
	{"pair: of 2^32 - 1 bytes, sealed", bad_pair, 4, LOST, SEAL, .arg = 3},

	{"write: over the ring's end", bad_write, 6, NULL, EVIL_RDMA, .arg = 0, .lines = -4},
	{"write: behind the ring", bad_write, 6, NULL, EVIL_RDMA, .arg = 1, .lines = -4},
	{"write: before the ring", bad_write, 6, NULL, EVIL_RDMA, .arg = 2, .lines = -4},
	{"write: to address 0", bad_write, 6, NULL, EVIL_RDMA, .arg = 3, .lines = -4},
	{"write: to the last address", bad_write, 6, NULL, EVIL_RDMA, .arg = 4, .lines = -4},
	{"write: with another rkey", bad_write, 6, NULL, EVIL_RDMA, .arg = 5, .lines = -4},
	{"write: with rkey 0", bad_write, 6, NULL, EVIL_RDMA, .arg = 6, .lines = -4},
	{"write: with the next rkey", bad_write, 6, NULL, EVIL_RDMA, .arg = 7, .lines = -4},
	{"leaves in the middle", leaves, 6, NULL, EVIL_RDMA, .lines = -4},

	{"slots out of turn", out_of_turn, 0, NULL, EVIL_RDMA, .made = "f"},
	{"pairs where there is immediate data", pairs, 0, NULL, EVIL_RDMA, .made = "f"},
	{"scribbles in slots that are its own", scribbles_where_it_may, 0, NULL, EVIL_RDMA, .made = "f"},

	/* Seen too early, a header breaks the protocol; too late, it says nothing. */
	{"again and again: other headers", hammered, -(1 << 0 | 1 << 3 | 1 << 4), NULL, PLAIN, .arg = 0, .made = "f", .lines = -1},
	{"again and again: other headers", hammered, -(1 << 0 | 1 << 4), NULL, SEAL, .arg = 0, .made = "f", .lines = -1},
	{"again and again: other bytes", hammered, -(1 << 0 | 1 << 4), NULL, SEAL, .arg = 1, .made = "f", .lines = -1},
	{"again and again: both", hammered, -(1 << 0 | 1 << 4), NULL, SEAL, .arg = 2, .made = "f", .lines = -1},
	/* Without a seal what is written is the source's word, and the source is who writes: it harms its own file alone. */
	{"again and again: other bytes", hammered, -(1 << 0 | 1 << 4), NULL, PLAIN, .arg = 1, .made = "?f", .lines = -1},
	{"again and again: both", hammered, -(1 << 0 | 1 << 3 | 1 << 4), NULL, PLAIN, .arg = 2, .made = "?f", .lines = -1},
	{"again and again: both, verified", hammered, -(1 << 0 | 1 << 3 | 1 << 4), NULL, PLAIN, .arg = 2, .made = "f", .lines = -1, .opts = "v"},
	{"after the check, sealed", rewritten, 0, NULL, SEAL, .made = "f", .lines = -1, .env = HELD},
	{"after the check", rewritten, 0, NULL, PLAIN, .made = "?f", .env = HELD},
	{"after the check, verified", rewritten, 4, NULL, PLAIN, .env = HELD, .opts = "v"},
	{"a bundle's table, after its imm", bundle_rewritten, -(1 << 0 | 1 << 4), NULL, EVIL_RDMA, .want = "small", .made = "small", .lines = -1},

	/* To a server that is not up yet that breaks the protocol; where the link is used by then, it is a damaged chunk. */
	{"a chunk before the ring is known", too_early, -(1 << 0 | 1 << 3), NULL, EVIL_CM | EVIL_IWARP, .made = "f", .lines = -1},
	{"claims that all was sent", claims, 4, "never arrived whole", EVIL_RDMA, .arg = 0},
	{"claims that 2^64 - 1 chunks were sent", claims, 4, "never arrived whole", EVIL_CM | EVIL_IWARP, .arg = 1},
	{0},
};
