#include "link/pipe.h"

#include "link/ring.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

/*
 * What stands before a chunk's body on the control connection:
 *   0  U32 length of the rest   4  U16 CHUNK, U16 zero   8  U32 slot   12  U32 64 + body   16
 * header
 */
#define HEAD_BYTES (RCP_FRAME_HEADER + 8 + RCP_CHUNK_HEADER)

/* At the source FREE -> QUEUED -> SENT -> FREE, at the sink PEER -> DUE -> OWNED -> RETURNING ->
 * PEER. Any other step is the peer's breach of the protocol. */
enum slot_state {
	SLOT_FREE,
	SLOT_QUEUED,
	SLOT_SENT,
	SLOT_PEER,
	SLOT_DUE,
	SLOT_OWNED,
	SLOT_RETURNING
};

/* Both of the source's and the sink's: by slot. */
struct slot {
	enum slot_state state;
	uint32_t length;	  /* sink: payload bytes */
	uint32_t next;		  /* in the list that the slot is in */
	struct pipe *pipe;	  /* source: for done */
	struct rcp_post *post;	  /* source: its `sent` is to come */
	bool ok;		  /* source: it was written */
	bool credited;		  /* source: the peer is done with it, before or after our `sent` */
	uint8_t head[HEAD_BYTES]; /* source: stays until the bytes are written */
};

#define NONE UINT32_MAX

/* First in, first out, of slots. */
struct list {
	uint32_t head, tail;
};

struct pipe {
	struct rcp_link link; /* first: the handle that the owner has */
	struct rcp_pipe_out out;
	enum rcp_role role;
	uint32_t generation;
	bool up, granted, closing, failing, down, starved, woken;
	struct rcp_err cause;
	struct slot *slots;
	uint32_t slot_count;
	struct list due;      /* sink: chunks to deliver; source: `sent` to deliver */
	struct list spare;    /* source: free; sink: to be given back */
	uint32_t outstanding; /* source: posts without their `sent` */
	struct rcp_ring ring; /* sink */
};

static struct pipe *pipe_of(struct rcp_link *link)
{
	return (struct pipe *)link;
}

static void list_put(struct pipe *p, struct list *l, uint32_t slot)
{
	p->slots[slot].next = NONE;
	if (l->head == NONE)
		l->head = slot;
	else
		p->slots[l->tail].next = slot;
	l->tail = slot;
}

static uint32_t list_get(struct pipe *p, struct list *l)
{
	uint32_t slot = l->head;

	if (slot != NONE)
		l->head = p->slots[slot].next;
	return slot;
}

static void pipe_wake(struct pipe *p)
{
	if (p->woken || p->down)
		return;
	p->woken = true;
	p->out.wake(p->out.arg);
}

static bool ending(const struct pipe *p)
{
	return p->closing || p->failing;
}

static void fail(struct pipe *p, const struct rcp_err *cause)
{
	if (!rcp_err_is(&p->cause))
		p->cause = *cause;
	p->failing = true;
	pipe_wake(p);
}

/* ---- source ---- */

/* The control connection has written the chunk, or never will. */
static void on_done(void *arg, bool ok)
{
	struct slot *slot = arg;
	struct pipe *p = slot->pipe;

	assert(slot->state == SLOT_QUEUED && slot->post);
	slot->state = SLOT_SENT;
	slot->ok = ok;
	if (!ok)
		p->failing = true; /* the connection's owner knows the cause, and says it */
	list_put(p, &p->due, (uint32_t)(slot - p->slots));
	pipe_wake(p);
}

static void encode(struct slot *slot, uint32_t number, struct rcp_post *post)
{
	uint32_t bytes = RCP_CHUNK_HEADER + post->chunk.length;
	uint8_t *h = slot->head;

	rcp_put_u32(h, bytes + 8);
	rcp_put_u16(h + 4, RCP_MSG_CHUNK);
	rcp_put_u16(h + 6, 0);
	rcp_put_u32(h + 8, number);
	rcp_put_u32(h + 12, bytes);
	rcp_chunk_encode(&post->chunk, post->header);
	memcpy(h + 16, post->header, RCP_CHUNK_HEADER);
}

static int pipe_post(struct rcp_link *link, struct rcp_post *post)
{
	struct pipe *p = pipe_of(link);

	if (ending(p))
		return RCP_E_LINK;
	assert(p->granted && post->chunk.length <= p->link.caps.chunk_bytes);
	uint32_t number = p->spare.head;

	if (number == NONE) {
		p->starved = true;
		return RCP_AGAIN;
	}
	struct slot *slot = &p->slots[number];

	post->slot = number;
	post->chunk.generation = p->generation;
	encode(slot, number, post);
	/* The connection may be quick: all is in place before it is asked. */
	slot->post = post;
	slot->credited = false;
	slot->state = SLOT_QUEUED;
	int rc = p->out.send_chunk(p->out.arg, slot->head, HEAD_BYTES, post->body,
				   post->chunk.length, on_done, slot);

	if (rc) {
		slot->post = NULL;
		slot->state = SLOT_FREE;
		if (rc == RCP_AGAIN) {
			p->starved = true;
		} else {
			p->failing = true;
			pipe_wake(p);
		}
		return rc;
	}
	list_get(p, &p->spare);
	p->outstanding++;
	return 0;
}

static int pipe_ring_set(struct rcp_link *link, const struct rcp_ring_info *ring,
			 struct rcp_err *err)
{
	struct pipe *p = pipe_of(link);

	if (p->granted)
		return rcp_err_set(err, RCP_E_CONNECT, 0, NULL, NULL,
				   "the peer broke the protocol: a second ring for one link");
	if (rcp_ring_check(ring, err))
		return (int)err->code;
	p->slots = calloc(ring->slots, sizeof(*p->slots));
	if (!p->slots)
		return rcp_err_set(err, RCP_E_IO, ENOMEM, "calloc", NULL, NULL);
	p->slot_count = ring->slots;
	for (uint32_t i = 0; i < ring->slots; i++) {
		p->slots[i].pipe = p;
		list_put(p, &p->spare, i);
	}
	p->generation = ring->generation;
	p->link.caps.slots = ring->slots;
	p->link.caps.chunk_bytes = MIN(p->link.caps.chunk_bytes, ring->chunk_bytes);
	p->granted = true;
	return 0;
}

static int broken(struct pipe *p, struct rcp_err *err, const char *what, uint32_t slot)
{
	struct rcp_err e = {0};

	rcp_err_set(&e, RCP_E_CONNECT, 0, NULL, NULL, "the peer broke the protocol: %s (slot %u)",
		    what, slot);
	if (!rcp_err_is(err))
		*err = e;
	fail(p, &e);
	return RCP_E_CONNECT;
}

static void spare(struct pipe *p, uint32_t slot)
{
	p->slots[slot].state = SLOT_FREE;
	list_put(p, &p->spare, slot);
}

static int take_credit(struct pipe *p, const struct rcp_msg *msg, struct rcp_err *err)
{
	struct rcp_rd rd = rcp_rd_of(msg->credit_.slots.data, msg->credit_.slots.len);
	struct rcp_rec_slot rec;
	int rc;

	while ((rc = rcp_rec_next(&rd, RCP_REC_SLOT, &rec)) > 0) {
		struct slot *slot = rec.slot < p->slot_count ? &p->slots[rec.slot] : NULL;

		if (!slot || slot->state == SLOT_FREE || slot->credited)
			return broken(p, err, "credit that it does not hold", rec.slot);
		slot->credited = true;
		if (!slot->post)
			spare(p, rec.slot);
	}
	if (rc < 0 || !msg->credit_.slots.len)
		return broken(p, err, "malformed CREDIT", 0);
	pipe_wake(p);
	return 0;
}

static void deliver_sent(struct pipe *p)
{
	uint32_t number;

	while ((number = list_get(p, &p->due)) != NONE) {
		struct rcp_post *post = p->slots[number].post;

		p->slots[number].post = NULL;
		p->outstanding--;
		if (p->slots[number].credited)
			spare(p, number);
		p->link.events->sent(p->link.arg, post, p->slots[number].ok);
	}
	if (p->starved && p->spare.head != NONE && !ending(p)) {
		p->starved = false;
		p->link.events->room(p->link.arg);
	}
}

/* ---- sink ---- */

static void pipe_release(struct rcp_link *link, uint32_t slot)
{
	struct pipe *p = pipe_of(link);

	assert(slot < p->slot_count && p->slots[slot].state == SLOT_OWNED);
	p->slots[slot].state = SLOT_RETURNING;
	list_put(p, &p->spare, slot);
	pipe_wake(p);
}

static void pipe_ring_get(struct rcp_link *link, struct rcp_ring_info *out)
{
	struct pipe *p = pipe_of(link);

	p->granted = true;
	*out = (struct rcp_ring_info){.slots = p->ring.slots,
				      .slot_bytes = p->ring.slot_bytes,
				      .chunk_bytes = p->ring.chunk_bytes,
				      .generation = p->generation};
}

uint8_t *rcp_pipe_link_slot(struct rcp_link *link, uint32_t slot, size_t *room)
{
	struct pipe *p = pipe_of(link);

	*room = 0;
	if (p->role != RCP_ROLE_SINK || !p->granted || slot >= p->slot_count ||
	    p->slots[slot].state != SLOT_PEER)
		return NULL;
	*room = RCP_CHUNK_HEADER + p->ring.chunk_bytes;
	return rcp_ring_header(&p->ring, slot);
}

static int take_chunk(struct pipe *p, const struct rcp_msg *msg, struct rcp_err *err)
{
	struct rcp_span bytes = msg->chunk_.bytes;
	uint32_t slot = msg->chunk_.slot;
	size_t room;
	uint8_t *to = rcp_pipe_link_slot(&p->link, slot, &room);

	if (!to)
		return broken(p, err, "a chunk, but it has no credit for the slot", slot);
	if (bytes.len < RCP_CHUNK_HEADER || bytes.len > room)
		return broken(p, err, "a chunk that is too short or too long", slot);
	/* One connection and in order, so this is no stale chunk but a wrong one. */
	if (rcp_get_u32(bytes.data + 8) != p->generation)
		return broken(p, err, "a chunk of another generation", slot);
	if (bytes.data != to)
		memcpy(to, bytes.data, bytes.len);
	p->slots[slot].state = SLOT_DUE;
	p->slots[slot].length = (uint32_t)bytes.len - RCP_CHUNK_HEADER;
	list_put(p, &p->due, slot);
	pipe_wake(p);
	return 0;
}

static void deliver_chunks(struct pipe *p)
{
	while (!p->closing && p->due.head != NONE) {
		uint32_t slot = list_get(p, &p->due);

		p->slots[slot].state = SLOT_OWNED;
		p->link.events->chunk(p->link.arg, slot, rcp_ring_header(&p->ring, slot),
				      rcp_ring_payload(&p->ring, slot), p->slots[slot].length);
	}
}

/* One message for all that were released since the last run. */
static void give_credit(struct pipe *p)
{
	struct rcp_wr w = {.max = (size_t)4 * p->slot_count};
	uint32_t slot;

	while ((slot = list_get(p, &p->spare)) != NONE) {
		struct rcp_rec_slot rec = {.slot = slot};

		p->slots[slot].state = SLOT_PEER;
		rcp_rec_encode(&w, RCP_REC_SLOT, &rec);
	}
	struct rcp_msg_credit msg = {.slots = rcp_span_of(w.data, w.len)};

	if (w.bad) {
		struct rcp_err e = {0};

		rcp_err_set(&e, RCP_E_IO, ENOMEM, "realloc", NULL, NULL);
		fail(p, &e);
	} else if (w.len) {
		p->out.send(p->out.arg, RCP_MSG_CREDIT, &msg);
	}
	rcp_wr_free(&w);
}

/* ---- both ---- */

int rcp_pipe_link_message(struct rcp_link *link, const struct rcp_msg *msg, struct rcp_err *err)
{
	struct pipe *p = pipe_of(link);

	if (p->closing)
		return 0; /* sent before the peer knew */
	if (p->failing)
		return rcp_err_set(err, RCP_E_LINK, 0, NULL, NULL, "the link is going down");
	if (msg->type == RCP_MSG_CHUNK && p->role == RCP_ROLE_SINK)
		return take_chunk(p, msg, err);
	if (msg->type == RCP_MSG_CREDIT && p->role == RCP_ROLE_SOURCE)
		return take_credit(p, msg, err);
	return broken(p, err, "CHUNK and CREDIT go one way each", 0);
}

void rcp_pipe_link_run(struct rcp_link *link)
{
	struct pipe *p = pipe_of(link);

	p->woken = false;
	if (p->down)
		return;
	if (!p->up && !ending(p)) {
		p->up = true;
		link->events->up(link->arg);
	}
	if (p->role == RCP_ROLE_SOURCE) {
		deliver_sent(p);
	} else {
		deliver_chunks(p);
		if (!ending(p))
			give_credit(p);
	}
	if (!ending(p) || p->outstanding)
		return;
	p->down = true;
	struct rcp_err cause = p->cause; /* the owner may free the link from inside */

	if (p->failing)
		rcp_err_set(&cause, RCP_E_LINK, 0, NULL, NULL, "the control connection was lost");
	link->events->down(link->arg, &cause);
}

void rcp_pipe_link_lost(struct rcp_link *link, const struct rcp_err *cause)
{
	struct pipe *p = pipe_of(link);

	if (!p->closing)
		fail(p, cause);
}

static void pipe_close(struct rcp_link *link)
{
	struct pipe *p = pipe_of(link);

	p->closing = true;
	pipe_wake(p);
}

static int pipe_reg(struct rcp_link *link, const void *addr, size_t len, bool read_only,
		    struct rcp_err *err, struct rcp_mem **out)
{
	(void)link, (void)addr, (void)len, (void)read_only, (void)err;
	*out = NULL;
	return 0;
}

static void pipe_unreg(struct rcp_link *link, struct rcp_mem *mem)
{
	(void)link, (void)mem;
}

static void pipe_destroy(struct pipe *p)
{
	rcp_ring_unmap(&p->ring);
	free(p->slots);
	free(p);
}

static void pipe_free(struct rcp_link *link)
{
	struct pipe *p = pipe_of(link);

	assert(p->down);
	pipe_destroy(p);
}

static const struct rcp_link_ops pipe_ops = {
	.post = pipe_post,
	.release = pipe_release,
	.ring_get = pipe_ring_get,
	.ring_set = pipe_ring_set,
	.reg = pipe_reg,
	.unreg = pipe_unreg,
	.close = pipe_close,
	.free = pipe_free,
};

static int sink_init(struct pipe *p, const struct rcp_link_params *params, struct rcp_err *err)
{
	if (rcp_ring_map_most(params->slots, params->chunk_bytes, err, &p->ring))
		return (int)err->code;
	p->slot_count = p->link.caps.slots = p->ring.slots;
	p->generation = params->generation;
	p->slots = calloc(p->slot_count, sizeof(*p->slots));
	if (!p->slots)
		return rcp_err_set(err, RCP_E_IO, ENOMEM, "calloc", NULL, NULL);
	for (uint32_t i = 0; i < p->slot_count; i++)
		p->slots[i].state = SLOT_PEER;
	return 0;
}

int rcp_pipe_link_new(const struct rcp_pipe_out *out_ops, const struct rcp_link_params *params,
		      struct rcp_err *err, struct rcp_link **out)
{
	struct pipe *p = calloc(1, sizeof(*p));

	*out = NULL;
	if (!p)
		return rcp_err_set(err, RCP_E_IO, ENOMEM, "calloc", NULL, NULL);
	p->link = (struct rcp_link){
		.ops = &pipe_ops,
		.events = params->events,
		.arg = params->arg,
		.caps = {.transport = "ssh",
			 .slots = params->slots,
			 .chunk_bytes = params->chunk_bytes,
			 .detail = "through the control connection"},
	};
	p->out = *out_ops;
	p->role = params->role;
	p->due.head = p->spare.head = NONE;
	if (params->role == RCP_ROLE_SINK && sink_init(p, params, err)) {
		pipe_destroy(p);
		return (int)err->code;
	}
	*out = &p->link;
	pipe_wake(p);
	return 0;
}
