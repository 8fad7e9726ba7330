/*
 * A sender and a receiver in one process, and a link between them whose frames a test has in its hands. Every
 * nonce that is seen on it must be new. For test-sealed.c.
 */
#ifndef RCP_TESTS_SEALED_WORLD_H
#define RCP_TESTS_SEALED_WORLD_H

#include "base/bytes.h"
#include "base/container.h"
#include "base/crc.h"
#include "file/sink.h"
#include "file/walk.h"
#include "link/ring.h"
#include "link/seal.h"
#include "session/session.h"

#include "tmpdir.h"

#define CHUNK	  65536u
#define SLOTS	  4u
#define RING_SLOTS (SLOTS + 2) /* two for frames that the source did not send there */
#define BIG	  (5 * CHUNK + 777)
#define NONCES	  400u

struct frame {
	uint8_t header[RCP_CHUNK_HEADER];
	uint8_t payload[CHUNK];
	uint32_t length;
};

struct world;

struct wire {
	struct rcp_link source, sink;
	struct world *world;
	struct rcp_ring ring;
	uint32_t generation;
	bool busy[RING_SLOTS];
	struct rcp_post *head, **tail;
	bool starved, cut, closing, down;
};

struct world {
	struct rcp_pool *pool;
	struct rcp_sender *sender;
	struct rcp_receiver *receiver;
	struct rcp_target target;
	struct wire *wire;
	struct rcp_wr to_sender, to_receiver;
	uint64_t clock;
	bool sender_over, receiver_over;
	struct rcp_err sender_cause, receiver_cause, failed;

	/* what the test wants */
	void (*on_frame)(struct world *w, struct frame *f);
	void (*on_turn)(struct world *w);
	unsigned strike; /* which frame, from 0 */
	bool shared_ring, unsealed_source, no_seal, same_key;

	/* what was seen on the wire */
	unsigned frames;
	bool plaintext, opened_in_ring;
	uint8_t nonces[NONCES][12];
	unsigned nonce_count;
	struct frame kept;
	bool have_kept;
	unsigned turns_late, late_in;
};

static uint8_t big[BIG];

/* ---- the link ---- */

static struct wire *wire_of_source(struct rcp_link *l)
{
	return RCP_CONTAINER(l, struct wire, source);
}

static struct wire *wire_of_sink(struct rcp_link *l)
{
	return RCP_CONTAINER(l, struct wire, sink);
}

static int wire_post(struct rcp_link *l, struct rcp_post *post)
{
	struct wire *w = wire_of_source(l);
	uint32_t slot = 0;

	if (w->closing || w->cut)
		return RCP_E_LINK;
	while (slot < SLOTS && w->busy[slot])
		slot++;
	if (slot == SLOTS) {
		w->starved = true;
		return RCP_AGAIN;
	}
	w->busy[slot] = true;
	post->slot = slot;
	post->chunk.generation = w->generation;
	rcp_chunk_encode(&post->chunk, post->header);
	post->next = NULL;
	*w->tail = post;
	w->tail = &post->next;
	return 0;
}

static void wire_release(struct rcp_link *l, uint32_t slot)
{
	wire_of_sink(l)->busy[slot] = false;
}

static void wire_close_source(struct rcp_link *l)
{
	wire_of_source(l)->closing = true;
}

static void wire_close_sink(struct rcp_link *l)
{
	wire_of_sink(l)->closing = true;
}

static const struct rcp_link_ops source_ops = {.post = wire_post, .close = wire_close_source};
static const struct rcp_link_ops sink_ops = {.release = wire_release, .close = wire_close_sink};

/* The frame as it is now goes into that slot. */
static void deliver_to(struct world *w, const struct frame *f, uint32_t slot)
{
	struct wire *x = w->wire;
	uint8_t *payload = rcp_ring_payload(&x->ring, slot);

	x->busy[slot] = true;
	memcpy(rcp_ring_header(&x->ring, slot), f->header, sizeof(f->header));
	memcpy(payload, f->payload, f->length);
	x->sink.events->chunk(x->sink.arg, slot, rcp_ring_header(&x->ring, slot), payload, f->length);
	if (f->length && memcmp(payload, f->payload, f->length))
		w->opened_in_ring = true;
}

static void deliver(struct world *w, const struct frame *f)
{
	for (uint32_t slot = 0; slot < RING_SLOTS; slot++) {
		if (!w->wire->busy[slot]) {
			deliver_to(w, f, slot);
			return;
		}
	}
	fail_msg("no slot is free");
}

static void look(struct world *w, const struct frame *f)
{
	assert_true(w->nonce_count < NONCES);
	uint8_t *nonce = w->nonces[w->nonce_count++];

	memcpy(nonce, f->header + 8, 4);
	memcpy(nonce + 4, f->header + 32, 8);
	for (unsigned i = 0; i + 1 < w->nonce_count; i++)
		assert_memory_not_equal(w->nonces[i], nonce, 12);
	/* 16 bytes from the middle of the big file are nowhere else */
	if (memmem(f->payload, f->length, big + 2 * CHUNK + 100, 16) || memmem(f->payload, f->length, big + 40, 16))
		w->plaintext = true;
}

static void carry(struct world *w)
{
	struct wire *x = w->wire;

	while (x->head && !x->cut) {
		struct rcp_post *post = x->head;
		struct frame f = {.length = post->chunk.length};

		x->head = post->next;
		if (!x->head)
			x->tail = &x->head;
		memcpy(f.header, post->header, sizeof(f.header));
		memcpy(f.payload, post->body, f.length);
		look(w, &f);
		x->busy[post->slot] = false;
		if (w->on_frame)
			w->on_frame(w, &f);
		else
			deliver(w, &f);
		w->frames++;
		x->source.events->sent(x->source.arg, post, true);
	}
}

static void wire_turn(struct world *w)
{
	struct wire *x = w->wire;
	struct rcp_err cause = {0};

	if (x->down)
		return;
	if (w->on_turn)
		w->on_turn(w);
	carry(w);
	if (x->starved && !x->cut && !x->closing) {
		x->starved = false;
		x->source.events->room(x->source.arg);
	}
	if (!x->cut && !(x->closing && !x->head))
		return;
	if (x->cut)
		rcp_err_set(&cause, RCP_E_LINK, 0, "", NULL, "cut");
	while (x->head) {
		struct rcp_post *post = x->head;

		x->head = post->next;
		x->source.events->sent(x->source.arg, post, false);
	}
	x->down = true;
	x->source.events->down(x->source.arg, &cause);
	x->sink.events->down(x->sink.arg, &cause);
}

static struct rcp_seal *seal_of(uint32_t generation, bool same_key)
{
	uint8_t key[RCP_SEAL_KEY] = {1, 2, 3};
	struct rcp_err err = {0};
	struct rcp_seal *s;

	key[31] = same_key ? 0 : (uint8_t)generation;
	assert_int_equal(rcp_seal_new(key, generation, &err, &s), 0);
	return s;
}

static void wire_new(struct world *w, uint32_t generation)
{
	struct wire *x = calloc(1, sizeof(*x));
	struct rcp_err err = {0};

	assert_non_null(x);
	assert_int_equal(rcp_ring_map(RING_SLOTS, CHUNK, &err, &x->ring), 0);
	x->world = w;
	x->generation = generation;
	x->tail = &x->head;
	x->source = (struct rcp_link){.ops = &source_ops,
				      .events = &rcp_sender_events,
				      .arg = w->sender,
				      .caps = {.slots = SLOTS, .chunk_bytes = CHUNK}};
	x->sink = (struct rcp_link){.ops = &sink_ops,
				    .events = &rcp_receiver_events,
				    .arg = w->receiver,
				    .caps = {.slots = RING_SLOTS, .chunk_bytes = CHUNK, .shared_ring = w->shared_ring}};
	if (!w->no_seal && !w->unsealed_source)
		x->source.seal = seal_of(generation, w->same_key);
	if (!w->no_seal)
		x->sink.seal = seal_of(generation, w->same_key);
	w->wire = x;
	assert_int_equal(rcp_receiver_attach(w->receiver, &x->sink, generation, &err), 0);
	rcp_sender_attach(w->sender, &x->source, generation);
}

static void wire_free(struct world *w)
{
	rcp_seal_free(&w->wire->source.seal);
	rcp_seal_free(&w->wire->sink.seal);
	rcp_ring_unmap(&w->wire->ring);
	free(w->wire);
	w->wire = NULL;
}

/* ---- what the ends ask for ---- */

static uint64_t env_now(void *arg)
{
	return ((struct world *)arg)->clock;
}

static void sender_sends(void *arg, enum rcp_msg_type type, const void *msg)
{
	rcp_msg_encode(&((struct world *)arg)->to_receiver, type, msg);
}

static void receiver_sends(void *arg, enum rcp_msg_type type, const void *msg)
{
	rcp_msg_encode(&((struct world *)arg)->to_sender, type, msg);
}

static void no_fault(void *arg, const struct rcp_err *err, bool warning)
{
	(void)arg, (void)err, (void)warning;
}

static void on_fault(void *arg, const struct rcp_err *err, bool warning)
{
	struct world *w = arg;

	if (!warning && !rcp_err_is(&w->failed))
		w->failed = *err;
}

static void on_file(void *arg, const char *name, uint64_t bytes, enum rcp_status status)
{
	(void)arg, (void)name, (void)bytes, (void)status;
}

static void sender_over(void *arg, const struct rcp_err *cause)
{
	struct world *w = arg;

	w->sender_over = true;
	w->sender_cause = *cause;
}

static void receiver_over(void *arg, const struct rcp_err *cause)
{
	struct world *w = arg;

	w->receiver_over = true;
	w->receiver_cause = *cause;
}

static void hand_over(struct world *w, struct rcp_wr *box, bool to_sender)
{
	struct rcp_wr mail = *box;
	struct rcp_err err = {0};

	*box = (struct rcp_wr){.max = 1 << 20};
	for (size_t at = 0; at < mail.len;) {
		enum rcp_msg_type type;
		uint32_t len;
		struct rcp_msg msg;

		assert_int_equal(rcp_frame_parse(mail.data + at, 0, &err, &type, &len), 0);
		assert_int_equal(rcp_msg_decode(type, mail.data + at + RCP_FRAME_HEADER, len, &err, &msg), 0);
		at += RCP_FRAME_HEADER + len;
		if (to_sender)
			assert_int_equal(rcp_sender_message(w->sender, &msg, &err), 0);
		else
			assert_int_equal(rcp_receiver_message(w->receiver, &msg, &err), 0);
	}
	rcp_wr_free(&mail);
}

/* ---- one copy ---- */

static void make_source(void)
{
	uint32_t x = 1;

	for (size_t i = 0; i < BIG; i++) {
		x = x * 1664525 + 1013904223;
		big[i] = (uint8_t)(x >> 24);
	}
	assert_int_equal(mkdir("src", 0755), 0);
	assert_int_equal(mkdir("dst", 0755), 0);
	tmp_write("src/big", big, BIG);
	tmp_text("src/one", "the first small file, of a bundle");
	tmp_text("src/two", "the second");
}

static void world_new(struct world *w)
{
	static const char *const paths[] = {"src", NULL};
	struct rcp_walk_options how = {.recursive = true};
	struct rcp_session_options o = {
		.flags = RCP_OPT_RECURSIVE, .chunk_bytes = CHUNK, .bundle_bytes = CHUNK / 4, .umask = 022};
	struct rcp_session_env env = {
		.arg = w, .now_ns = env_now, .send = sender_sends, .fault = no_fault, .file = on_file, .over = sender_over};
	struct rcp_err err = {0};
	struct rcp_walk *walk;

	make_source();
	w->to_sender.max = w->to_receiver.max = 1 << 20;
	assert_int_equal(rcp_pool_new(0, &err, &w->pool), 0);
	env.pool = w->pool;
	assert_int_equal(rcp_walk_new(paths, &how, &err, &walk), 0);
	assert_int_equal(rcp_sender_new(&env, &o, walk, &err, &w->sender), 0);
	assert_int_equal(rcp_target_resolve("dst", NULL, true, true, &err, &w->target), 0);
	env.send = receiver_sends;
	env.fault = on_fault;
	env.over = receiver_over;
	assert_int_equal(rcp_receiver_new(&env, &o, &w->target, &err, &w->receiver), 0);
	wire_new(w, 1);
}

static void turn(struct world *w)
{
	w->clock += 100000000;
	rcp_sender_turn(w->sender);
	rcp_receiver_turn(w->receiver);
	rcp_pool_reap(w->pool); /* once: what that starts is done a turn later */
	wire_turn(w);
	hand_over(w, &w->to_receiver, false);
	hand_over(w, &w->to_sender, true);
}

/* Until both ends are over; one that ended for a reason takes the other with it, as ABORT does. */
static void world_run(struct world *w)
{
	for (unsigned i = 0; i < 2000 && !(w->sender_over && w->receiver_over); i++) {
		turn(w);
		if (w->receiver_over && rcp_err_is(&w->receiver_cause) && w->receiver_cause.code != RCP_E_LINK)
			rcp_sender_stop(w->sender, &w->receiver_cause);
	}
	assert_true(w->sender_over && w->receiver_over);
}

static void world_free(struct world *w)
{
	wire_free(w);
	rcp_sender_free(&w->sender);
	rcp_receiver_free(&w->receiver);
	rcp_target_free(&w->target);
	rcp_wr_free(&w->to_sender);
	rcp_wr_free(&w->to_receiver);
	rcp_pool_free(&w->pool);
}

static void all_is_there(const struct world *w)
{
	assert_int_equal(w->receiver_cause.code, RCP_OK);
	assert_int_equal(rcp_receiver_stats(w->receiver)->verdict_code, RCP_OK);
	tmp_expect("dst/src/big", big, BIG);
	tmp_expect_text("dst/src/one", "the first small file, of a bundle");
	tmp_expect_text("dst/src/two", "the second");
}

static void nothing_is_there(void)
{
	assert_int_not_equal(access("dst/src/big", F_OK), 0);
}

#endif
