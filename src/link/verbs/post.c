/*
 * The source's side: credits, posting, send completions.
 *
 * A chunk is one WRITE of two elements (its header from registered memory here, its body from the
 * sender's) to the 64 bytes before the slot's payload and on: with immediate data, or, where the
 * device or the peer has none, followed by a message that says the same. A device whose requests take one
 * element writes header and body one after the other. No allocation and no system call but the
 * posting itself. Loop's thread.
 */
#include "link/verbs/priv.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

int rcp_verbs_source_new(struct verbs_link *v, struct rcp_err *err)
{
	struct verbs_source *s = &v->source;
	const struct verbs_depth *d = &v->conn.depth;

	s->tickets = calloc(d->posts, sizeof(*s->tickets));
	s->free_slots = calloc(d->slots, sizeof(*s->free_slots));
	s->slot_used = calloc(d->slots, sizeof(*s->slot_used));
	if (!s->tickets || !s->free_slots || !s->slot_used)
		return rcp_err_set(err, RCP_E_IO, ENOMEM, "calloc", NULL, NULL);
	return 0;
}

void rcp_verbs_source_free(struct verbs_link *v)
{
	free(v->source.tickets);
	free(v->source.free_slots);
	free(v->source.slot_used);
}

int rcp_verbs_ring_set(struct rcp_link *link, const struct rcp_ring_info *ring, struct rcp_err *err)
{
	struct verbs_link *v = verbs_link_of(link);
	struct verbs_source *s = &v->source;
	struct rcp_link_caps *caps = &link->caps;

	if (v->role != RCP_ROLE_SOURCE || s->ready || !v->was_up)
		return rcp_err_set(err, RCP_E_CONNECT, EPROTO, NULL, v->name,
				   "the peer broke the protocol: its ring is not due now");
	if (rcp_ring_check(ring, err) != 0)
		return (int)err->code;
	s->ring = *ring;
	/* Credits never outnumber the receives posted for them: see layout.h. */
	if (s->ring.slots > v->conn.depth.slots)
		s->ring.slots = v->conn.depth.slots;
	if (s->ring.chunk_bytes > caps->chunk_bytes)
		s->ring.chunk_bytes = caps->chunk_bytes;
	caps->slots = s->ring.slots;
	caps->chunk_bytes = s->ring.chunk_bytes;
	v->generation = ring->generation;
	for (uint32_t i = s->ring.slots; i-- > 0;)
		s->free_slots[s->free_count++] = (uint16_t)i;
	s->ready = true;
	rcp_verbs_conn_detail(v);
	return 0;
}

/* The work requests of one chunk. They point to each other: not to be copied. */
struct chunk_wrs {
	struct ibv_send_wr *first;
	struct ibv_send_wr head, write, message; /* head: alone, where a request takes one element */
	struct ibv_sge body[2], note;
};

/* By slot, not by ticket: when the slot's credit is back, the head has arrived, whatever the device
 * may still have had in its hands after the completion. */
static uint8_t *head_of(struct verbs_link *v, uint32_t slot)
{
	return v->conn.heads + (size_t)slot * VERBS_HEAD_BYTES;
}

static void write_build(struct verbs_link *v, const struct rcp_post *post, uint32_t ticket,
			struct chunk_wrs *w)
{
	const struct rcp_ring_info *ring = &v->source.ring;
	uint64_t to = ring->addr + (uint64_t)post->slot * ring->slot_bytes + RCP_SLOT_HEAD -
		      RCP_CHUNK_HEADER;

	w->body[0] = (struct ibv_sge){.addr = (uintptr_t)head_of(v, post->slot),
				      .length = RCP_CHUNK_HEADER,
				      .lkey = v->conn.memory_mr->lkey};
	if (post->chunk.length)
		w->body[1] = (struct ibv_sge){.addr = (uintptr_t)post->body,
					      .length = post->chunk.length,
					      .lkey = rcp_verbs_mem_lkey(post->mem)};
	w->first = &w->write;
	w->write = (struct ibv_send_wr){
		.wr_id = rcp_verbs_wr_id(VERBS_WR_CHUNK, ticket),
		.sg_list = w->body,
		.num_sge = post->chunk.length ? 2 : 1,
		.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
		.send_flags = IBV_SEND_SIGNALED,
		.imm_data = htonl(rcp_imm(post->slot, v->generation)),
		.wr.rdma = {.remote_addr = to, .rkey = ring->rkey},
	};
}

/*
 * Must the plain write of a pair be signaled? On iWARP a completion means no more than that TCP has
 * the bytes. siw hands TCP the pages themselves when a write is unsignaled, and copies when it is
 * signaled: memory that its owner will fill again needs the copy (seen on 6.12: the next chunk's
 * bytes arrived in this one), a file's mapping doesn't.
 */
static unsigned write_signal(const struct verbs_link *v, const struct rcp_post *post)
{
	bool reused = !post->mem || !rcp_verbs_mem_read_only(post->mem);

	return reused && v->port->transport == RCP_RDMA_IWARP ? IBV_SEND_SIGNALED : 0u;
}

static void head_split(struct chunk_wrs *w)
{
	w->first = &w->head;
	w->head = w->write;
	w->head.next = &w->write;
	w->head.num_sge = 1;
	w->head.send_flags = 0; /* the slot's credit says that it has arrived: see head_of */
	w->write.sg_list = &w->body[1];
	w->write.num_sge = 1;
	w->write.wr.rdma.remote_addr += RCP_CHUNK_HEADER;
}

/* The write loses its immediate data; a message behind it takes over. */
static void pair_build(struct verbs_link *v, const struct rcp_post *post, uint32_t ticket,
		       struct chunk_wrs *w)
{
	struct verbs_message m = {.type = VERBS_CHUNK,
				  .imm = rcp_imm(post->slot, v->generation),
				  .bytes = RCP_CHUNK_HEADER + post->chunk.length};
	uint8_t *buf = head_of(v, post->slot) + RCP_CHUNK_HEADER;

	w->write.wr_id = rcp_verbs_wr_id(VERBS_WR_WRITE, ticket);
	w->write.opcode = IBV_WR_RDMA_WRITE;
	w->write.send_flags = write_signal(v, post);
	w->write.next = &w->message;
	if (w->write.num_sge > (int)v->conn.max_sge)
		head_split(w);
	w->note = (struct ibv_sge){.addr = (uintptr_t)buf,
				   .length = rcp_verbs_message_encode(&m, buf),
				   .lkey = v->conn.memory_mr->lkey};
	w->message = (struct ibv_send_wr){
		.wr_id = rcp_verbs_wr_id(VERBS_WR_CHUNK, ticket),
		.sg_list = &w->note,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED |
			      (w->note.length <= v->conn.max_inline ? IBV_SEND_INLINE : 0u),
	};
}

static int chunk_send(struct verbs_link *v, const struct rcp_post *post, uint32_t ticket)
{
	struct chunk_wrs w;
	struct ibv_send_wr *bad = NULL;

	write_build(v, post, ticket, &w);
	if (!v->source.imm)
		pair_build(v, post, ticket, &w);
	int ret = ibv_post_send(v->conn.qp, w.first, &bad);

	if (ret && v->source.imm && rcp_verbs_ret_refused(ret)) {
		v->source.imm = false;
		rcp_verbs_conn_detail(v);
		pair_build(v, post, ticket, &w);
		ret = ibv_post_send(v->conn.qp, w.first, &bad);
	}
	/* A part of a chunk can't be taken back. */
	if (ret && bad != w.first)
		ret = ret == ENOMEM || ret == -ENOMEM ? EIO : ret;
	return ret;
}

static int post_failed(struct verbs_link *v, int ret)
{
	struct rcp_err e = {0};

	/* The device's queue is shorter than it said: a completion makes room. */
	if ((ret == ENOMEM || ret == -ENOMEM) && v->source.in_flight) {
		v->source.want_room = true;
		return RCP_AGAIN;
	}
	rcp_verbs_err_ret(&e, RCP_E_LINK, ret, "ibv_post_send", v->name);
	rcp_verbs_link_fail(v, &e);
	return RCP_E_LINK;
}

int rcp_verbs_post(struct rcp_link *link, struct rcp_post *post)
{
	struct verbs_link *v = verbs_link_of(link);
	struct verbs_source *s = &v->source;

	if (v->state != VERBS_UP || !s->ready)
		return RCP_E_LINK;
	uint32_t at = (uint32_t)(s->posted % v->conn.depth.posts);

	if (!s->free_count || s->tickets[at].post) {
		s->want_room = true;
		return RCP_AGAIN;
	}
	assert(post->chunk.length <= s->ring.chunk_bytes && (post->mem || !post->chunk.length));
	post->slot = s->free_slots[s->free_count - 1];
	post->chunk.generation = v->generation;
	rcp_chunk_encode(&post->chunk, head_of(v, post->slot));
	int ret = chunk_send(v, post, at);

	if (ret)
		return post_failed(v, ret);
	s->free_count--;
	s->slot_used[post->slot] = 1;
	s->tickets[at] = (struct verbs_ticket){.post = post};
	s->posted++;
	s->in_flight++;
	return 0;
}

/* A flushed post's memory is given back only when the QP is gone. */
void rcp_verbs_post_done(struct verbs_link *v, const struct ibv_wc *wc)
{
	struct verbs_source *s = &v->source;
	struct verbs_ticket *t = &s->tickets[rcp_verbs_wr_index(wc->wr_id)];
	struct rcp_post *post = t->post;

	assert(post && !t->flushed);
	s->in_flight--;
	if (wc->status != IBV_WC_SUCCESS) {
		t->flushed = true;
		return;
	}
	t->post = NULL;
	v->link.events->sent(v->link.arg, post, true);
}

void rcp_verbs_credits_in(struct verbs_link *v, const struct verbs_message *m)
{
	struct verbs_source *s = &v->source;

	for (unsigned i = 0; i < m->count; i++) {
		uint16_t slot = m->slots[i];

		if (!s->ready || slot >= s->ring.slots || !s->slot_used[slot]) {
			rcp_verbs_link_breach(v, "a credit for a slot that was not in use", slot);
			return;
		}
		s->slot_used[slot] = 0;
		s->free_slots[s->free_count++] = slot;
	}
}

void rcp_verbs_room(struct verbs_link *v)
{
	struct verbs_source *s = &v->source;

	if (!s->want_room || !s->free_count || s->tickets[s->posted % v->conn.depth.posts].post)
		return;
	s->want_room = false;
	v->link.events->room(v->link.arg);
}

void rcp_verbs_posts_end(struct verbs_link *v)
{
	struct verbs_source *s = &v->source;

	for (uint32_t i = 0; s->tickets && i < v->conn.depth.posts; i++) {
		uint64_t at = (s->posted + i) % v->conn.depth.posts; /* oldest first */
		struct rcp_post *post = s->tickets[at].post;

		s->tickets[at].post = NULL;
		if (post)
			v->link.events->sent(v->link.arg, post, false);
	}
	s->in_flight = 0;
}
