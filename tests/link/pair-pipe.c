/* Contract suite: the control connection's link. The connection itself is the test's: frames in
 * memory, with a share for chunks, and `done` told now before and now after the peer's answer. */
#include "pairs.h"

#include "link/pipe.h"

#include <stdlib.h>
#include <string.h>

#define SHARE 3 /* chunks that may be queued */
#define QUEUE 64

struct item {
	const uint8_t *head, *body;
	size_t head_len, body_len;
	void (*done)(void *arg, bool ok);
	void *done_arg;
	uint8_t *copy; /* of a message: ours */
};

/* One end, and what it has sent that is not yet at the other. */
struct side {
	struct pair *pair;
	struct rcp_link **link;
	bool woken;
	struct item item[QUEUE];
	unsigned from, count, chunks;
};

struct own {
	struct side source, sink;
	bool half, dead, ended;
	unsigned turns;
};

static struct item *put(struct side *s)
{
	if (s->count == QUEUE)
		abort();
	struct item *it = &s->item[(s->from + s->count++) % QUEUE];

	memset(it, 0, sizeof(*it));
	return it;
}

static int send_chunk(void *arg, const uint8_t *head, size_t head_len, const void *body,
		      size_t body_len, void (*done)(void *, bool), void *done_arg)
{
	struct side *s = arg;

	if (s->chunks == SHARE)
		return RCP_AGAIN;
	s->chunks++;
	*put(s) = (struct item){.head = head,
				.head_len = head_len,
				.body = body,
				.body_len = body_len,
				.done = done,
				.done_arg = done_arg};
	return 0;
}

static void send_message(void *arg, enum rcp_msg_type type, const void *msg)
{
	struct side *s = arg;
	struct rcp_wr w = {.max = RCP_FRAME_MAX};
	struct item *it = put(s);

	rcp_msg_encode(&w, type, msg);
	if (w.bad)
		abort();
	it->head = it->copy = w.data;
	it->head_len = w.len;
}

static void wake(void *arg)
{
	((struct side *)arg)->woken = true;
}

static int make_side(struct pair *p, struct side *s, const struct rcp_link_params *params,
		     struct rcp_link **link, struct rcp_err *err)
{
	struct rcp_pipe_out out = {
		.arg = s, .send_chunk = send_chunk, .send = send_message, .wake = wake};

	s->pair = p;
	s->link = link;
	return rcp_pipe_link_new(&out, params, err, link);
}

static int make_half(struct pair *p, enum rcp_role role, struct rcp_err *err)
{
	struct own *o = calloc(1, sizeof(*o));

	if (!o)
		abort();
	p->own = o;
	o->half = true;
	if (role == RCP_ROLE_SOURCE)
		return make_side(p, &o->source, &p->source_params, &p->source, err);
	return make_side(p, &o->sink, &p->sink_params, &p->sink, err);
}

static int make(struct pair *p, struct rcp_err *err)
{
	int rc = make_half(p, RCP_ROLE_SOURCE, err);
	struct own *o = p->own;

	o->half = false;
	return rc ? rc : make_side(p, &o->sink, &p->sink_params, &p->sink, err);
}

/* As the connection's reader does it: CHUNK's bytes straight into the slot. */
static void receive(struct rcp_link *link, const struct item *it)
{
	struct rcp_err err = {0};
	enum rcp_msg_type type;
	uint32_t length;
	struct rcp_msg msg = {0};

	if (rcp_frame_parse(it->head, RCP_CHUNK_BYTES_MAX, &err, &type, &length))
		abort();
	if (type == RCP_MSG_CHUNK) {
		size_t room;

		msg.type = type;
		msg.chunk_.slot = rcp_get_u32(it->head + 8);
		uint8_t *to = rcp_pipe_link_slot(link, msg.chunk_.slot, &room);

		if (!to || room < 64 + it->body_len)
			abort();
		memcpy(to, it->head + 16, 64);
		if (it->body_len)
			memcpy(to + 64, it->body, it->body_len);
		msg.chunk_.bytes = rcp_span_of(to, rcp_get_u32(it->head + 12));
	} else if (rcp_msg_decode(type, it->head + 8, it->head_len - 8, &err, &msg)) {
		abort();
	}
	if (rcp_pipe_link_message(link, &msg, &err))
		abort();
}

static void told(struct side *s, const struct item *it, bool ok)
{
	if (!it->done)
		return;
	s->chunks--;
	it->done(it->done_arg, ok);
}

/* Half: the peer takes no chunk, so they stay queued; messages vanish. */
static void move(struct own *o, struct side *from, struct side *to)
{
	if (!from->count || (o->half && from->item[from->from].done && !o->dead))
		return;
	struct item it = from->item[from->from];
	bool early = ++o->turns % 3 == 0;

	from->from = (from->from + 1) % QUEUE;
	from->count--;
	if (early)
		told(from, &it, !o->dead);
	if (!o->half && *to->link)
		receive(*to->link, &it);
	/* The answer may come before we are told that our bytes are written. */
	if (!early && !o->half && *to->link && to->woken) {
		to->woken = false;
		rcp_pipe_link_run(*to->link);
		if (to->count && !to->item[to->from].done)
			move(o, to, from);
	}
	if (!early)
		told(from, &it, !o->dead);
	free(it.copy);
}

static void run(struct side *s)
{
	if (!s->link || !*s->link || !s->woken)
		return;
	s->woken = false;
	rcp_pipe_link_run(*s->link);
}

/* Where one end of the link is down, its session ends the connection; the other end hears of it
 * after all that was sent before. */
static void end_with_peer(struct own *o, struct side *gone, struct side *left, bool left_down)
{
	struct rcp_err cause = {0};

	if (o->half || o->ended || gone->count || left_down)
		return;
	o->ended = true;
	rcp_err_set(&cause, RCP_E_LINK, 0, "read", "host", "the peer closed the connection");
	rcp_pipe_link_lost(*left->link, &cause);
}

static void turn(struct pair *p)
{
	struct own *o = p->own;

	run(&o->source);
	run(&o->sink);
	move(o, &o->source, &o->sink);
	move(o, &o->sink, &o->source);
	if (p->source_down)
		end_with_peer(o, &o->source, &o->sink, p->sink_down);
	if (p->sink_down)
		end_with_peer(o, &o->sink, &o->source, p->source_down);
}

static int give(struct rcp_link *link, enum rcp_msg_type type, uint32_t slot, struct rcp_span bytes)
{
	struct rcp_err err = {0};
	struct rcp_msg msg = {.type = type};

	if (type == RCP_MSG_CHUNK)
		msg.chunk_ = (struct rcp_msg_chunk){.slot = slot, .bytes = bytes};
	else
		msg.credit_ = (struct rcp_msg_credit){.slots = bytes};
	return rcp_pipe_link_message(link, &msg, &err);
}

static int give_chunk(struct pair *p, uint32_t slot, uint32_t generation, const void *body,
		      uint32_t length)
{
	struct rcp_chunk chunk = {.generation = generation, .length = length};
	uint8_t *bytes = malloc(64 + (size_t)length);

	if (!bytes)
		abort();
	rcp_chunk_encode(&chunk, bytes);
	memcpy(bytes + 64, body, length);
	int rc = give(p->sink, RCP_MSG_CHUNK, slot, rcp_span_of(bytes, 64 + (size_t)length));

	free(bytes);
	return rc;
}

static void peer_chunk(struct pair *p, uint32_t slot, uint32_t generation, const void *body,
		       uint32_t length)
{
	if (give_chunk(p, slot, generation, body, length))
		abort();
}

static void peer_dies(struct pair *p)
{
	struct own *o = p->own;
	struct rcp_err cause = {0};

	rcp_err_set(&cause, RCP_E_LINK, 0, "read", "host", "the peer is gone");
	o->dead = true;
	rcp_pipe_link_lost(p->source ? p->source : p->sink, &cause);
}

static bool credit(struct pair *p, uint32_t slot)
{
	uint8_t word[4];

	rcp_put_u32(word, slot);
	return give(p->source, RCP_MSG_CREDIT, 0, rcp_span_of(word, 4)) == RCP_E_CONNECT;
}

static bool evil(struct pair *p, enum evil what)
{
	uint32_t generation = p->sink_params.generation;
	uint32_t chunk_bytes = p->sink_params.chunk_bytes;
	uint8_t *bytes = calloc(1, (size_t)chunk_bytes + 65);
	bool done = true;
	int rc = RCP_E_CONNECT;

	if (!bytes)
		abort();
	if (what == EVIL_SLOT_HELD)
		rc = give_chunk(p, 0, generation, bytes, 4096);
	else if (what == EVIL_SLOT_RANGE)
		rc = give_chunk(p, p->sink->caps.slots, generation, bytes, 4096);
	else if (what == EVIL_GENERATION)
		rc = give_chunk(p, 1, generation + 1, bytes, 4096);
	else if (what == EVIL_LENGTH)
		rc = give_chunk(p, 1, generation, bytes, chunk_bytes + 1);
	else if (what == EVIL_EARLY)
		rc = give_chunk(p, 1, generation, bytes, 4096);
	else if (what == EVIL_HALF_CHUNK)
		rc = give(p->sink, RCP_MSG_CHUNK, 1, rcp_span_of(bytes, 63));
	else if (what == EVIL_CREDIT)
		rc = give(p->sink, RCP_MSG_CREDIT, 0, rcp_span_of(bytes, 4));
	else if (what == EVIL_CREDIT_RANGE)
		rc = credit(p, p->source->caps.slots) ? RCP_E_CONNECT : 0;
	else if (what == EVIL_CREDIT_FREE)
		rc = credit(p, 1) ? RCP_E_CONNECT : 0;
	else if (what == EVIL_CREDIT_TWICE)
		rc = !credit(p, 0) && credit(p, 0) ? RCP_E_CONNECT : 0;
	else
		done = false;
	free(bytes);
	if (rc != RCP_E_CONNECT)
		abort();
	/* The connection's owner ends it after a breach: what is queued comes back. */
	if (done)
		peer_dies(p);
	return done;
}

static const char *destroy(struct pair *p)
{
	struct own *o = p->own;
	bool left = o->source.chunks || o->sink.chunks;

	for (; o->sink.count; o->sink.count--) {
		free(o->sink.item[o->sink.from].copy);
		o->sink.from = (o->sink.from + 1) % QUEUE;
	}
	free(o);
	return left ? "chunks with the connection" : NULL;
}

const struct pair_kind pair_pipe = {.name = "pipe",
				    .make = make,
				    .make_half = make_half,
				    .turn = turn,
				    .peer_chunk = peer_chunk,
				    .peer_dies = peer_dies,
				    .evil = evil,
				    .destroy = destroy};
