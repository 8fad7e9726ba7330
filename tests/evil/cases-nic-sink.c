/* An evil sink with an RDMA device against a source: credits, receives, a ring that is not what it was said to be. */
#include "evil.h"
#include "nic.h"

#include <string.h>

/* ---- messages ---- */

static void bad_message(struct evil *e)
{
	static const uint8_t zeros[64], hello[8] = {1, 1, 0, 1}, chunk[16] = {2}, none[4] = {3}, many[64] = {3, 31},
				       short_of[6] = {3, 30}, long_by[8] = {3, 1}, reserved[6] = {3, 1, 1}, bye[8] = {4},
				       unknown[8] = {5};
	static const struct {
		const uint8_t *data;
		size_t len;
	} says[] = {{zeros, 0},	   {zeros, 1},	  {zeros, 3},	 {zeros, 64},	{hello, 8}, {chunk, 16},
		    {none, 4},	   {many, 64},	  {short_of, 6}, {long_by, 8},	{reserved, 6}, {bye, 8},
		    {unknown, 8}};

	if (!evil_begin_sink(e))
		return;
	evil_answer(e, 0, 1, NULL, 0);
	nic_send(e, says[e->c->arg].data, says[e->c->arg].len);
	evil_drain(e);
}

static void long_message(struct evil *e)
{
	static uint8_t much[EVIL_CHUNK];

	if (!evil_begin_sink(e))
		return;
	if (nic_send(e, much, e->c->arg == 0 ? 65 : sizeof(much)) && !(e->link & EVIL_ANY_IWARP)) /* whose completions are TCP's */
		evil_note(e, "broken", "it was taken");
	nic_end(e);
}

/* A source has no ring. */
static void imm_to_a_source(struct evil *e)
{
	if (!evil_begin_sink(e))
		return;
	nic_write_imm(e, 0, 0, NULL, 0, rcp_imm(0, e->ring.generation));
	evil_drain(e);
}

/* With keys like its own: of the source's memory none may be written to. */
static void write_to_a_source(struct evil *e)
{
	uint8_t junk[64] = {0};

	if (!evil_begin_sink(e))
		return;
	if (nic_write(e, e->ring.addr, e->ring.rkey ^ (e->c->arg ? 0x80000000u : 0u), junk, sizeof(junk)) && !(e->link & EVIL_ANY_IWARP))
		evil_note(e, "broken", "a write to the source was taken");
	nic_end(e);
}

/* ---- credits ---- */

static void bad_credits(struct evil *e)
{
	uint16_t slots[30];

	if (!evil_begin_sink(e))
		return;
	for (uint16_t i = 0; i < 30; i++)
		slots[i] = i;
	if (e->c->arg == 0) { /* before it has asked for anything */
		nic_credit_words(e, slots, 1);
	} else {
		evil_answer(e, 0, 1, NULL, 0);
		if (!evil_take(e))
			return;
	}
	switch (e->c->arg) {
	case 1: /* the whole ring and beyond */
		nic_credit_words(e, slots, 30);
		break;
	case 2: /* one slot 30 times in one message */
		for (uint16_t i = 0; i < 30; i++)
			slots[i] = (uint16_t)e->chunk_slot;
		nic_credit_words(e, slots, 30);
		break;
	case 3:
		slots[0] = UINT16_MAX;
		nic_credit_words(e, slots, 1);
		break;
	case 4:
		slots[0] = EVIL_SLOTS;
		nic_credit_words(e, slots, 1);
		break;
	}
	evil_drain(e);
}

/* More messages than the source posted receives for, each of them right until the slots run out. */
static void credits_for_ever(struct evil *e)
{
	if (!evil_begin_sink(e))
		return;
	evil_answer(e, 0, 1, NULL, 0);
	if (!evil_take(e))
		return;
	for (int i = 0; i < 5000 && !e->aborted && nic_turn(e, 0); i++)
		nic_credit(e, e->chunk_slot);
	evil_drain(e);
}

/* ---- the connection ---- */

/* Enough for the hello, and none for chunks. */
static void no_receives(struct evil *e)
{
	if (!evil_boot(e) || !evil_caps(e) || !evil_try(e))
		return;
	nic_set_receives(e, e->initiator ? 0 : 1);
	if (!evil_connect(e) || !evil_use(e) || !evil_heard(e))
		return;
	evil_act(e);
	evil_answer(e, 0, 1, NULL, 0);
	nic_end(e);
}

static void drops_ring(struct evil *e)
{
	if (!evil_begin_sink(e))
		return;
	if (e->c->arg == 0)
		nic_drop_ring(e);
	evil_answer(e, 0, 1, NULL, 0);
	if (e->c->arg == 1) {
		if (!evil_take(e))
			return;
		nic_drop_ring(e);
		evil_credit(e, e->chunk_slot); /* for the chunk that finds out */
	}
	nic_end(e);
}

/* Between one file and the next. */
static void drops_qp(struct evil *e)
{
	if (!evil_begin_sink(e) || !evil_take_file(e, 0))
		return;
	nic_drop_qp(e);
	evil_answer(e, 1, 1, NULL, 0);
	nic_end(e);
}

/* Where the ring is said to be there is none, or less of it: this end's device refuses. */
static void bad_ring(struct evil *e)
{
	struct rcp_msg_link_ring m;

	if (!evil_boot(e) || !evil_caps(e) || !evil_try(e) || !evil_connect(e))
		return;
	if (e->initiator)
		evil_say(e, RCP_MSG_LINK_USE, &(struct rcp_msg_link_use){.link = e->link_id, .kind = evil_kind(e), .slots = EVIL_SLOTS,
									 .chunk_bytes = EVIL_CHUNK});
	else if (!evil_await(e, RCP_MSG_LINK_USE))
		return;
	m = (struct rcp_msg_link_ring){.link = e->link_id,
				       .slots = EVIL_SLOTS,
				       .slot_bytes = 4096 + EVIL_CHUNK,
				       .chunk_bytes = EVIL_CHUNK,
				       .generation = e->link_id};
	nic_ring(e, &m);
	evil_act(e);
	switch (e->c->arg) {
	case 0:
		m.addr = 0;
		break;
	case 1: /* the last that does not wrap */
		m.addr = UINT64_MAX - EVIL_SLOTS * (4096 + EVIL_CHUNK);
		break;
	case 2:
		m.rkey ^= 0x100;
		break;
	case 3:
		m.rkey = 0;
		break;
	case 4: /* its last slot is not there */
		m.addr += (4096 + EVIL_CHUNK);
		break;
	case 5: /* this one does */
		m.addr = UINT64_MAX - EVIL_SLOTS * (4096 + EVIL_CHUNK) + 2;
		break;
	}
	evil_say(e, RCP_MSG_LINK_RING, &m);
	if (e->c->arg == 5) {
		evil_drain(e);
		return;
	}
	if (evil_heard(e))
		evil_answer(e, 0, 1, NULL, 0);
	/* A slot's credit is what leads to the last one. */
	while (e->c->arg == 4 && evil_take(e))
		;
	nic_end(e);
}

/* ---- the link does what it should, and the control connection lies ---- */

static void claims(struct evil *e)
{
	if (!evil_begin_sink(e))
		return;
	if (e->c->arg != 0) {
		evil_answer(e, 0, 1, NULL, 0);
		if (!evil_take(e))
			return;
		evil_credit(e, e->chunk_slot);
	}
	if (e->c->arg == 2)
		evil_await(e, RCP_MSG_ENTRY_END);
	evil_result(e, 0, 1, RCP_STATUS_OK, 0, "");
	evil_say_verdict(e, 0);
	evil_drain(e);
}

#define BROKE "broke the protocol"
#define PLAIN (EVIL_CM | EVIL_OOB | EVIL_IWARP)
#define IMM (EVIL_CM | EVIL_OOB)
#define SEAL EVIL_RDMA_SEALED
#define SEAL_IMM (EVIL_CM_SEALED | EVIL_OOB_SEALED)
#define LOST "lost or changed"

const struct evil_case evil_nic_sink_cases[] = {
	{"send: nothing", bad_message, 3, BROKE, PLAIN, .arg = 0},
	{"send: one byte", bad_message, 3, BROKE, PLAIN, .arg = 1},
	{"send: three bytes", bad_message, 3, BROKE, PLAIN, .arg = 2},
	{"send: 64 zeros", bad_message, 3, BROKE, PLAIN, .arg = 3},
	{"send: 64 zeros, sealed", bad_message, 4, LOST, SEAL, .arg = 3},
	{"send: hello again", bad_message, 3, BROKE, PLAIN, .arg = 4},
	{"send: a chunk to a source", bad_message, 3, BROKE, PLAIN, .arg = 5},
	{"send: no credits", bad_message, 3, BROKE, PLAIN, .arg = 6},
	{"send: 31 credits", bad_message, 3, BROKE, PLAIN, .arg = 7},
	{"send: fewer credits than it says", bad_message, 3, BROKE, PLAIN, .arg = 8},
	{"send: more credits than it says", bad_message, 3, BROKE, PLAIN, .arg = 9},
	{"send: reserved bits", bad_message, 3, BROKE, PLAIN, .arg = 10},
	{"send: bye where rdma_cm says it", bad_message, 3, BROKE, EVIL_CM | EVIL_IWARP, .arg = 11},
	{"send: unknown", bad_message, 3, BROKE, PLAIN, .arg = 12},
	{"send: 65 bytes", long_message, 6, "longer than any", EVIL_R | EVIL_RDMA, .arg = 0, .lines = -4},
	{"send: 65 bytes", long_message, 6, NULL, EVIL_I | EVIL_RDMA, .arg = 0, .lines = -4},
	{"send: 64 KiB", long_message, 6, "longer than any", EVIL_R | EVIL_RDMA, .arg = 1, .lines = -4},
	{"send: 64 KiB", long_message, 6, NULL, EVIL_I | EVIL_RDMA, .arg = 1, .lines = -4},
	{"imm: to a source", imm_to_a_source, 3, BROKE, IMM},
	{"write: to a source", write_to_a_source, 6, NULL, EVIL_RDMA, .arg = 0, .lines = -4},
	{"write: to a source, by its lkey", write_to_a_source, 6, NULL, EVIL_RDMA, .arg = 1, .lines = -4},

	{"credits: before anything was asked for", bad_credits, 3, BROKE, PLAIN, .arg = 0},
	{"credits: the ring and beyond", bad_credits, 3, BROKE, PLAIN, .arg = 1},
	{"credits: one slot 30 times", bad_credits, 3, BROKE, PLAIN, .arg = 2},
	{"credits: one slot 30 times, sealed", bad_credits, 4, LOST, SEAL, .arg = 2},
	{"credits: slot 65535", bad_credits, 3, BROKE, PLAIN, .arg = 3},
	{"credits: the slot behind the last", bad_credits, 3, BROKE, PLAIN, .arg = 4},
	{"credits: for ever", credits_for_ever, 3, BROKE, PLAIN},

	{"posts no receives", no_receives, 6, NULL, EVIL_RDMA, .lines = -4},
	{"the ring's key dies in the middle", drops_ring, 6, NULL, EVIL_RDMA, .arg = 1, .want = "big", .lines = -4},
	{"the queue pair dies in the middle", drops_qp, 6, NULL, EVIL_RDMA, .want = "f big", .lines = -4},
	{"the ring's key was never good", drops_ring, 6, NULL, EVIL_RDMA, .arg = 0, .lines = -4},
	{"ring: at address 0", bad_ring, 6, NULL, EVIL_RDMA, .arg = 0, .lines = -4},
	{"ring: at the end of all addresses", bad_ring, 6, NULL, EVIL_RDMA, .arg = 1, .lines = -4},
	{"ring: with another rkey", bad_ring, 6, NULL, EVIL_RDMA, .arg = 2, .lines = -4},
	{"ring: with rkey 0", bad_ring, 6, NULL, EVIL_RDMA, .arg = 3, .lines = -4},
	{"ring: shorter than it says", bad_ring, 6, NULL, EVIL_RDMA, .arg = 4, .want = "big", .lines = -4},
	{"ring: beyond all addresses", bad_ring, 3, BROKE, EVIL_RDMA, .arg = 5},

	{"claims: all is there, without a word before", claims, 0, NULL, EVIL_RDMA, .arg = 0, .lines = -1},
	{"claims: all is there, after one chunk", claims, 0, NULL, EVIL_RDMA, .arg = 1, .lines = -1},
	{"claims: all is there, when all was sent", claims, 0, NULL, EVIL_RDMA, .arg = 2, .lines = -1},
	{0},
};
