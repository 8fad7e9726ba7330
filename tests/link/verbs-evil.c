/*
 * One end breaks the protocol, on a link that is real otherwise: by requests of its own on the
 * link's queue pair. The other end must go down and say so.
 */
#include "verbs-end.h"

#include "link/verbs/priv.h"

#include <arpa/inet.h>
#include <string.h>

static void send_raw(struct end *e, struct ibv_send_wr *wr, uint32_t length)
{
	struct verbs_conn *c = &verbs_link_of(e->link)->conn;
	struct ibv_sge sge = {
		.addr = (uintptr_t)c->memory, .length = length, .lkey = c->memory_mr->lkey};
	struct ibv_send_wr *bad;

	wr->wr_id = rcp_verbs_wr_id(VERBS_WR_WRITE, 0);
	wr->sg_list = &sge;
	wr->num_sge = length ? 1 : 0;
	wr->send_flags = IBV_SEND_SIGNALED;
	if (ibv_post_send(c->qp, wr, &bad) != 0)
		end_die(e, "evil: post failed", NULL);
}

/* Immediate data with a write of length bytes to the ring's start. */
static void send_imm(struct end *e, uint32_t slot, uint32_t generation, uint32_t length)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
				 .imm_data = htonl(rcp_imm(slot, generation)),
				 .wr.rdma = {.remote_addr = e->ring.addr, .rkey = e->ring.rkey}};

	send_raw(e, &wr, length);
}

static void send_bytes(struct end *e, const uint8_t *data, uint32_t length)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND};

	memcpy(verbs_link_of(e->link)->conn.memory, data, length);
	send_raw(e, &wr, length);
}

static void send_chunk(struct end *e, uint32_t slot, uint32_t generation, uint32_t bytes)
{
	struct verbs_message m = {
		.type = VERBS_CHUNK, .imm = rcp_imm(slot, generation), .bytes = bytes};
	uint8_t buf[VERBS_MESSAGE_BYTES];

	send_bytes(e, buf, rcp_verbs_message_encode(&m, buf));
}

static void send_credits(struct end *e, uint16_t slot, unsigned count)
{
	struct verbs_message m = {.type = VERBS_CREDITS, .count = count};
	uint8_t buf[VERBS_MESSAGE_BYTES];

	for (unsigned i = 0; i < count; i++)
		m.slots[i] = slot;
	send_bytes(e, buf, rcp_verbs_message_encode(&m, buf));
}

static void send_hello(struct end *e)
{
	struct verbs_message m = {.type = VERBS_HELLO, .attempt = 7};
	uint8_t buf[VERBS_MESSAGE_BYTES];

	send_bytes(e, buf, rcp_verbs_message_encode(&m, buf));
}

/* Slots, credits, generations and lengths of the other end's, all wrong in one way each. */
bool evil_source(struct end *e)
{
	static const uint8_t junk[64] = {0xff, 0xff};
	uint32_t slots = e->ring.slots, generation = e->ring.generation;
	uint32_t most = RCP_CHUNK_HEADER + e->ring.chunk_bytes;
	const char *what = opt.evil;

	if (!strcmp(what, "imm-range"))
		send_imm(e, slots, generation, 64);
	else if (!strcmp(what, "imm-generation"))
		send_imm(e, 0, generation + 1, 64);
	else if (!strcmp(what, "imm-short"))
		send_imm(e, 0, generation, 63);
	else if (!strcmp(what, "imm-empty"))
		send_imm(e, 0, generation, 0);
	else if (!strcmp(what, "chunk-range"))
		send_chunk(e, 0xffff, generation, 64);
	else if (!strcmp(what, "chunk-generation"))
		send_chunk(e, 0, generation - 1, 64);
	else if (!strcmp(what, "chunk-long"))
		send_chunk(e, 0, generation, most + 1);
	else if (!strcmp(what, "chunk-huge"))
		send_chunk(e, 0, generation, UINT32_MAX);
	else if (!strcmp(what, "chunk-short"))
		send_chunk(e, 0, generation, 63);
	else if (!strcmp(what, "credit"))
		send_credits(e, 0, 1);
	else if (!strcmp(what, "hello"))
		send_hello(e);
	else if (!strcmp(what, "junk"))
		send_bytes(e, junk, sizeof(junk));
	else if (!strcmp(what, "nothing"))
		send_bytes(e, junk, 0);
	else
		return false;
	return true;
}

/* When the first chunk is here and its slot is held. */
bool evil_sink(struct end *e)
{
	const char *what = opt.evil;

	if (!strcmp(what, "credit-range"))
		send_credits(e, 0xffff, 1);
	else if (!strcmp(what, "credit-twice"))
		send_credits(e, 0, 2);
	else if (!strcmp(what, "credit-all"))
		send_credits(e, 1, VERBS_CREDITS_MAX);
	else if (!strcmp(what, "chunk"))
		send_chunk(e, 0, GENERATION, 64);
	else
		return false;
	return true;
}
