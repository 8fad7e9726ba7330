/*
 * The sink's side: chunks in, credits out. What the peer says about a slot is checked against what
 * it was granted; the ring's contents are the session's to distrust. Loop's thread.
 */
#include "link/verbs/priv.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

int rcp_verbs_sink_new(struct verbs_link *v, struct rcp_err *err)
{
	struct verbs_sink *s = &v->sink;
	uint32_t slots = v->conn.depth.slots;

	s->slots = calloc(slots, sizeof(*s->slots));
	s->due = calloc(slots, sizeof(*s->due));
	if (!s->slots || !s->due)
		return rcp_err_set(err, RCP_E_IO, ENOMEM, "calloc", NULL, NULL);
	return 0;
}

void rcp_verbs_sink_free(struct verbs_link *v)
{
	free(v->sink.slots);
	free(v->sink.due);
}

void rcp_verbs_ring_get(struct rcp_link *link, struct rcp_ring_info *out)
{
	struct verbs_link *v = verbs_link_of(link);
	const struct rcp_ring *ring = &v->conn.ring;

	*out = (struct rcp_ring_info){
		.addr = (uintptr_t)ring->base,
		.rkey = v->conn.ring_mr ? v->conn.ring_mr->rkey : 0,
		.slots = ring->slots,
		.slot_bytes = ring->slot_bytes,
		.chunk_bytes = ring->chunk_bytes,
		.generation = v->generation,
	};
}

void rcp_verbs_chunk_in(struct verbs_link *v, uint32_t imm, uint32_t bytes)
{
	const struct rcp_ring *ring = &v->conn.ring;
	uint32_t slot = rcp_imm_slot(imm);

	if (v->state == VERBS_CLOSING)
		return;
	if (!v->was_up)
		rcp_verbs_link_breach(v, "a chunk before the link was up", slot);
	else if (slot >= ring->slots)
		rcp_verbs_link_breach(v, "a chunk for a slot that isn't there", slot);
	else if (!rcp_imm_current(imm, v->generation))
		rcp_verbs_link_breach(v, "a chunk of another generation", imm & 0xffff);
	else if (v->sink.slots[slot] != VERBS_SLOT_GRANTED)
		rcp_verbs_link_breach(v, "a chunk without a credit for its slot", slot);
	else if (bytes < RCP_CHUNK_HEADER || bytes - RCP_CHUNK_HEADER > ring->chunk_bytes)
		rcp_verbs_link_breach(v, "a chunk whose length is out of bounds", bytes);
	else {
		v->sink.slots[slot] = VERBS_SLOT_HELD;
		v->link.events->chunk(v->link.arg, slot, rcp_ring_header(ring, slot),
				      rcp_ring_payload(ring, slot), bytes - RCP_CHUNK_HEADER);
	}
}

void rcp_verbs_release(struct rcp_link *link, uint32_t slot)
{
	struct verbs_link *v = verbs_link_of(link);
	struct verbs_sink *s = &v->sink;

	assert(slot < v->conn.ring.slots && s->slots[slot] == VERBS_SLOT_HELD);
	s->slots[slot] = VERBS_SLOT_DUE;
	if (v->state != VERBS_UP && v->state != VERBS_CLOSING)
		return;
	s->due[(s->due_at + s->due_count++) % v->conn.ring.slots] = (uint16_t)slot;
	rcp_verbs_io_kick(v->io);
}

/* Credits that find every buffer under way wait for a completion, and go together then. */
void rcp_verbs_credits_flush(struct verbs_link *v)
{
	struct verbs_sink *s = &v->sink;

	while (s->due_count) {
		struct verbs_message m = {.type = VERBS_CREDITS};
		struct rcp_err e = {0};

		while (m.count < s->due_count && m.count < VERBS_CREDITS_MAX) {
			m.slots[m.count] = s->due[(s->due_at + m.count) % v->conn.ring.slots];
			m.count++;
		}
		int ret = rcp_verbs_small_send(v, &m, &e);

		if (ret == RCP_AGAIN)
			return;
		if (ret) {
			rcp_verbs_link_fail(v, &e);
			return;
		}
		for (unsigned i = 0; i < m.count; i++)
			s->slots[m.slots[i]] = VERBS_SLOT_GRANTED;
		s->due_at = (s->due_at + m.count) % v->conn.ring.slots;
		s->due_count -= m.count;
	}
}
