#include "link/loop.h"

#include "link/ring.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* First in, first out; linked by post->next. */
struct fifo {
	struct rcp_post *head, **tail;
};

struct pair;

struct end {
	struct rcp_link link; /* first: the handle that the owner has */
	struct pair *pair;
	bool up, closing, down, freed;
	struct rcp_err cause; /* why the link is going down without this end's wish */
};

struct pair {
	struct end source, sink;
	void (*wake)(void *arg);
	void *wake_arg;
	uint32_t slots, chunk_bytes, generation;
	struct fifo queued;   /* posted, the sink has not seen them */
	struct fifo over;     /* `sent` is due; post->progress tells whether all went well */
	uint32_t outstanding; /* posts without their `sent` */
	bool granted;	      /* the source knows the ring */
	bool starved;	      /* a post was refused: `room` is due when a slot is free */
	bool woken, running;
	uint32_t free_count;
	uint32_t *free_slots;	/* a stack: the slot used last is warm in the cache */
	struct rcp_post **held; /* by slot: what the sink has now */
};

static void fifo_init(struct fifo *f)
{
	f->head = NULL;
	f->tail = &f->head;
}

static void fifo_put(struct fifo *f, struct rcp_post *post)
{
	post->next = NULL;
	*f->tail = post;
	f->tail = &post->next;
}

static struct rcp_post *fifo_get(struct fifo *f)
{
	struct rcp_post *post = f->head;

	if (post) {
		f->head = post->next;
		if (!f->head)
			f->tail = &f->head;
	}
	return post;
}

static struct end *end_of(struct rcp_link *link)
{
	return (struct end *)link;
}

static void wake(struct pair *p)
{
	if (p->woken)
		return;
	p->woken = true;
	p->wake(p->wake_arg);
}

static void over(struct pair *p, struct rcp_post *post, bool ok)
{
	post->progress = ok;
	fifo_put(&p->over, post);
	wake(p);
}

static int loop_post(struct rcp_link *link, struct rcp_post *post)
{
	struct pair *p = end_of(link)->pair;

	assert(p->granted && link == &p->source.link);
	if (p->source.closing || p->source.down || rcp_err_is(&p->source.cause))
		return RCP_E_LINK;
	if (!p->free_count) {
		p->starved = true;
		return RCP_AGAIN;
	}
	assert(post->chunk.length <= p->chunk_bytes);
	post->slot = p->free_slots[--p->free_count];
	post->chunk.generation = p->generation;
	rcp_chunk_encode(&post->chunk, post->header);
	p->outstanding++;
	fifo_put(&p->queued, post);
	wake(p);
	return 0;
}

static void loop_release(struct rcp_link *link, uint32_t slot)
{
	struct pair *p = end_of(link)->pair;

	assert(slot < p->slots && p->held[slot]);
	over(p, p->held[slot], true);
	p->held[slot] = NULL;
}

static void loop_ring_get(struct rcp_link *link, struct rcp_ring_info *out)
{
	const struct pair *p = end_of(link)->pair;

	*out = (struct rcp_ring_info){.slots = p->slots,
				      .slot_bytes = p->chunk_bytes + RCP_SLOT_HEAD,
				      .chunk_bytes = p->chunk_bytes,
				      .generation = p->generation};
}

static int loop_ring_set(struct rcp_link *link, const struct rcp_ring_info *ring,
			 struct rcp_err *err)
{
	struct pair *p = end_of(link)->pair;

	if (ring->slots != p->slots || ring->chunk_bytes != p->chunk_bytes ||
	    ring->slot_bytes != p->chunk_bytes + RCP_SLOT_HEAD || ring->generation != p->generation)
		return rcp_err_set(err, RCP_E_CONNECT, 0, NULL, NULL,
				   "this is not the ring of the link's other end");
	p->granted = true;
	return 0;
}

static int loop_reg(struct rcp_link *link, const void *addr, size_t len, bool read_only,
		    struct rcp_err *err, struct rcp_mem **out)
{
	(void)link, (void)addr, (void)len, (void)read_only, (void)err;
	*out = NULL;
	return 0;
}

static void loop_unreg(struct rcp_link *link, struct rcp_mem *mem)
{
	(void)link, (void)mem;
}

static void loop_close(struct rcp_link *link)
{
	struct end *e = end_of(link);

	e->closing = true;
	wake(e->pair);
}

static void pair_free(struct pair *p)
{
	free(p->free_slots);
	free(p->held);
	free(p);
}

static void loop_free(struct rcp_link *link)
{
	struct end *e = end_of(link);
	struct pair *p = e->pair;

	assert(e->down && !e->freed);
	e->freed = true;
	/* Only now is it sure that the sink won't look at the source's memory any more. */
	for (uint32_t i = 0; e == &p->sink && i < p->slots; i++) {
		if (p->held[i])
			over(p, p->held[i], false);
		p->held[i] = NULL;
	}
	if (!p->running && p->source.freed && p->sink.freed)
		pair_free(p);
}

static const struct rcp_link_ops loop_ops = {
	.post = loop_post,
	.release = loop_release,
	.ring_get = loop_ring_get,
	.ring_set = loop_ring_set,
	.reg = loop_reg,
	.unreg = loop_unreg,
	.close = loop_close,
	.free = loop_free,
};

static void end_init(struct pair *p, struct end *e, const struct rcp_link_params *params)
{
	e->pair = p;
	e->link = (struct rcp_link){
		.ops = &loop_ops,
		.events = params->events,
		.arg = params->arg,
		.caps = {.transport = "local", .slots = p->slots, .chunk_bytes = p->chunk_bytes},
	};
	strcpy(e->link.caps.detail, "within one process");
}

int rcp_loop_link_new(const struct rcp_loop_params *params, struct rcp_err *err,
		      struct rcp_link **source, struct rcp_link **sink)
{
	struct pair *p = calloc(1, sizeof(*p));
	uint32_t slots = params->sink.slots;

	*source = *sink = NULL;
	if (p) {
		p->free_slots = calloc(slots, sizeof(*p->free_slots));
		p->held = calloc(slots, sizeof(struct rcp_post *));
	}
	if (!p || !p->free_slots || !p->held) {
		if (p)
			pair_free(p);
		return rcp_err_set(err, RCP_E_IO, ENOMEM, "calloc", NULL, NULL);
	}
	p->wake = params->wake;
	p->wake_arg = params->wake_arg;
	p->slots = slots;
	p->chunk_bytes = params->sink.chunk_bytes;
	p->generation = params->sink.generation;
	fifo_init(&p->queued);
	fifo_init(&p->over);
	while (p->free_count < slots) {
		p->free_slots[p->free_count] = slots - 1 - p->free_count;
		p->free_count++;
	}
	end_init(p, &p->source, &params->source);
	end_init(p, &p->sink, &params->sink);
	*source = &p->source.link;
	*sink = &p->sink.link;
	wake(p);
	return 0;
}

static void deliver_up(struct end *e)
{
	if (e->up || e->closing || e->down)
		return;
	e->up = true;
	e->link.events->up(e->link.arg);
}

static void deliver_chunks(struct pair *p)
{
	/* What the sink's answer lets in is for the next turn. */
	for (uint32_t i = 0; i < p->slots && p->sink.up && !p->sink.closing; i++) {
		struct rcp_post *post = fifo_get(&p->queued);

		if (!post)
			break;
		p->held[post->slot] = post;
		p->sink.link.events->chunk(p->sink.link.arg, post->slot, post->header, post->body,
					   post->chunk.length);
	}
}

static void deliver_sent(struct pair *p)
{
	struct rcp_link *link = &p->source.link;

	for (uint32_t i = 0; i < p->slots; i++) {
		struct rcp_post *post = fifo_get(&p->over);

		if (!post)
			break;
		p->free_slots[p->free_count++] = post->slot;
		p->outstanding--;
		link->events->sent(link->arg, post, post->progress);
	}
	if (p->starved && p->free_count && !p->source.closing && !rcp_err_is(&p->source.cause)) {
		p->starved = false;
		link->events->room(link->arg);
	}
}

static void lost(struct end *e)
{
	if (!e->closing && !e->down)
		rcp_err_set(&e->cause, RCP_E_LINK, 0, NULL, NULL, "the other end closed the link");
}

/* The sink wants no more: what it has not seen fails, what it holds is its own until it is freed.
 */
static void sink_closes(struct pair *p)
{
	struct rcp_post *post;

	if (!p->sink.closing || p->source.down)
		return;
	while ((post = fifo_get(&p->queued)))
		over(p, post, false);
	lost(&p->source);
}

static void deliver_down(struct end *e)
{
	if (e->down || !(e->closing || rcp_err_is(&e->cause)))
		return;
	e->down = true;
	e->link.events->down(e->link.arg, &e->cause);
}

bool rcp_loop_link_run(struct rcp_link *either)
{
	struct pair *p = end_of(either)->pair;

	p->woken = false;
	p->running = true;
	deliver_up(&p->sink);
	deliver_up(&p->source);
	deliver_chunks(p);
	sink_closes(p);
	deliver_sent(p);
	if (!p->outstanding) {
		if (p->source.closing)
			lost(&p->sink);
		deliver_down(&p->source);
	}
	deliver_down(&p->sink);
	p->running = false;
	if (p->source.freed && p->sink.freed) {
		pair_free(p);
		return false;
	}
	if (p->queued.head || p->over.head)
		wake(p);
	return p->woken;
}
