#include "rig.h"

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static void wrong(struct test *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void wrong(struct test *t, const char *fmt, ...)
{
	va_list ap;

	if (t->wrong[0])
		return;
	va_start(ap, fmt);
	vsnprintf(t->wrong, sizeof(t->wrong), fmt, ap);
	va_end(ap);
}

/* ---- the owner's calls; no event may come from inside ---- */

int call_post(struct test *t, struct item *it)
{
	struct rcp_link *l = t->pair.source;

	t->depth++;
	int rc = rcp_link_post(l, &it->post);

	t->depth--;
	if (rc == 0)
		t->posted++;
	return rc;
}

void call_release(struct test *t, uint32_t slot)
{
	uint32_t i = 0;

	while (i < t->held_count && t->queue[i] != slot)
		i++;
	assert_true(t->held[slot] && i < t->held_count);
	t->queue[i] = t->queue[--t->held_count];
	t->held[slot] = false;
	t->depth++;
	rcp_link_release(t->pair.sink, slot);
	t->depth--;
}

void call_close(struct test *t, struct rcp_link *l)
{
	(l == t->pair.source ? &t->source : &t->sink)->closed = true;
	t->depth++;
	rcp_link_close(l);
	t->depth--;
}

/* ---- events ---- */

static void event(struct end *e, const char *what)
{
	if (e->test->depth)
		wrong(e->test, "%s came from inside a call", what);
	if (e->downs)
		wrong(e->test, "%s came after down", what);
	if (e->closed && strcmp(what, "sent") && strcmp(what, "down"))
		wrong(e->test, "%s came after close", what);
	if (e->close_in && !strcmp(e->close_in, what))
		call_close(e->test,
			   e == &e->test->source ? e->test->pair.source : e->test->pair.sink);
}

static void on_up(void *arg)
{
	struct end *e = arg;

	event(e, "up");
	e->ups++;
}

static void post_more(struct test *t)
{
	while (!t->source.close_in && t->more && t->posted < ITEMS) {
		int rc = call_post(t, &t->items[t->posted]);

		if (rc == RCP_AGAIN)
			return;
		if (rc)
			wrong(t, "post %u: %d", t->posted, rc);
		t->more--;
	}
}

static void on_sent(void *arg, struct rcp_post *post, bool ok)
{
	struct end *e = arg;
	struct item *it = post->owner;

	event(e, "sent");
	it->sent++;
	it->ok = ok;
	e->test->sent++;
	if (it->sent > 1)
		wrong(e->test, "post %zu: sent %u times", (size_t)(it - e->test->items), it->sent);
	if (ok)
		post_more(e->test);
}

static void on_room(void *arg)
{
	struct end *e = arg;

	event(e, "room");
	e->rooms++;
	post_more(e->test);
}

static void check_chunk(struct test *t, const uint8_t *header, const uint8_t *payload,
			uint32_t length)
{
	struct rcp_chunk c;

	if (!rcp_chunk_decode(header, &c)) {
		wrong(t, "the header did not survive");
		return;
	}
	if (c.sequence >= ITEMS || c.generation != GENERATION) {
		wrong(t, "sequence %lu, generation %x", (unsigned long)c.sequence, c.generation);
		return;
	}
	struct item *it = &t->items[c.sequence];

	if (++it->arrived > 1)
		wrong(t, "chunk %lu arrived twice", (unsigned long)c.sequence);
	if (length != it->post.chunk.length || c.length != length)
		wrong(t, "chunk %lu: length %u, header %u", (unsigned long)c.sequence, length,
		      c.length);
	else if (c.offset != it->post.chunk.offset || c.entry != it->post.chunk.entry ||
		 c.flags != it->post.chunk.flags || memcmp(c.tag, it->post.chunk.tag, 16))
		wrong(t, "chunk %lu: header differs", (unsigned long)c.sequence);
	else if (length && memcmp(payload, it->body, length))
		wrong(t, "chunk %lu: payload differs", (unsigned long)c.sequence);
	if ((uintptr_t)payload % 4096 && t->pair.kind != &pair_loop)
		wrong(t, "payload is not aligned");
}

static void on_chunk(void *arg, uint32_t slot, const uint8_t *header, const uint8_t *payload,
		     uint32_t length)
{
	struct end *e = arg;
	struct test *t = e->test;

	event(e, "chunk");
	t->arrived++;
	if (slot >= t->pair.sink->caps.slots) {
		wrong(t, "slot %u of %u", slot, t->pair.sink->caps.slots);
		return;
	}
	if (t->held[slot])
		wrong(t, "slot %u was handed out twice", slot);
	t->held[slot] = true;
	t->queue[t->held_count++] = slot;
	if (t->held_count > t->most_held)
		t->most_held = t->held_count;
	t->payload = payload;
	if (!t->raw)
		check_chunk(t, header, payload, length);
	if (!t->hold)
		call_release(t, slot);
}

static void on_down(void *arg, const struct rcp_err *cause)
{
	struct end *e = arg;
	struct test *t = e->test;

	event(e, "down");
	e->downs++;
	*(e == &t->source ? &t->pair.source_down : &t->pair.sink_down) = true;
	e->cause = *cause;
	if (e == &t->source && t->sent != t->posted)
		wrong(t, "down with %u of %u sent", t->sent, t->posted);
	if (e->free_in_down)
		rcp_link_free(e == &t->source ? &t->pair.source : &t->pair.sink);
}

static const struct rcp_link_events events = {
	.up = on_up, .sent = on_sent, .room = on_room, .chunk = on_chunk, .down = on_down};

/* ---- helpers ---- */

uint32_t rnd(struct test *t, uint32_t below)
{
	t->seed = t->seed * 1664525u + 1013904223u;
	return (t->seed >> 8) % below;
}

static int open_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static const struct pair_kind *kind_of(void **state)
{
	const struct pair_kind *kind = *state;
	const char *missing = kind->missing ? kind->missing() : NULL;

	if (missing) {
		print_message("SKIPPED %s: %s\n", kind->name, missing);
		skip();
	}
	return kind;
}

/* Bodies of every interesting length; item i's stands at i * STRIDE in the arena and in the file,
 * so that no two are alike. */
static void fill(struct test *t)
{
	static const uint32_t lengths[] = {0,	 1,    63,	  64,		65,    4095,
					   4096, 4097, CHUNK - 1, CHUNK - 4096, CHUNK, 12345};

	t->arena_bytes = (size_t)ITEMS * STRIDE + CHUNK;
	t->arena = mmap(NULL, t->arena_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			-1, 0);
	assert_true(t->arena != MAP_FAILED);
	for (size_t i = 0; i < t->arena_bytes; i += 4) {
		uint32_t v = rnd(t, UINT32_MAX);

		memcpy(t->arena + i, &v, 4);
	}
	t->file = memfd_create("bodies", MFD_CLOEXEC);
	assert_int_equal(write(t->file, t->arena, t->arena_bytes), (ssize_t)t->arena_bytes);
	for (unsigned i = 0; i < ITEMS; i++) {
		struct item *it = &t->items[i];

		it->body = t->arena + (size_t)i * STRIDE;
		it->post = (struct rcp_post){
			.chunk = {.flags = i % 5 ? 0 : RCP_CHUNK_BUNDLE,
				  .entry = i * 7,
				  .offset = (uint64_t)i << 33,
				  .length = lengths[i % 12],
				  .crc = i,
				  .sequence = i,
				  .tag = {(uint8_t)i, 1, 2}},
			.body = it->body,
			.fd = -1,
			.owner = it,
		};
	}
}

struct test *begin(void **state)
{
	const struct pair_kind *kind = kind_of(state);
	struct test *t = calloc(1, sizeof(*t));

	assert_non_null(t);
	t->fds = open_fds();
	t->seed = 7;
	t->source.test = t->sink.test = t;
	t->pair.kind = kind;
	t->pair.source_params = (struct rcp_link_params){.role = RCP_ROLE_SOURCE,
							 .initiator = true,
							 .slots = SLOTS,
							 .chunk_bytes = CHUNK,
							 .events = &events,
							 .arg = &t->source};
	t->pair.sink_params = t->pair.source_params;
	t->pair.sink_params.role = RCP_ROLE_SINK;
	t->pair.sink_params.initiator = false;
	t->pair.sink_params.generation = GENERATION;
	t->pair.sink_params.arg = &t->sink;
	fill(t);
	return t;
}

void turns(struct test *t, unsigned n)
{
	while (n--)
		t->pair.kind->turn(&t->pair);
	assert_string_equal(t->wrong, "");
}

static void use_mem(struct test *t)
{
	struct rcp_link *l = t->pair.source;
	struct rcp_err err = {0};

	assert_int_equal(l->ops->reg(l, t->arena, t->arena_bytes, false, &err, &t->mem), 0);
	if (l->caps.needs_mem)
		assert_non_null(t->mem);
	for (unsigned i = 0; i < ITEMS; i++)
		t->items[i].post.mem = t->mem;
}

void use_file(struct test *t)
{
	for (unsigned i = 0; i < ITEMS; i++) {
		t->items[i].post.body = NULL;
		t->items[i].post.fd = t->file;
		t->items[i].post.fd_offset = (uint64_t)i * STRIDE;
	}
}

void exchange_rings(struct test *t)
{
	struct rcp_ring_info ring = {.slots = MANY_SLOTS,
				     .slot_bytes = CHUNK + 4096,
				     .chunk_bytes = CHUNK,
				     .generation = GENERATION};
	struct rcp_err err = {0};

	if (t->pair.sink)
		t->pair.sink->ops->ring_get(t->pair.sink, &ring);
	assert_int_equal(ring.generation, GENERATION);
	assert_int_equal(ring.slot_bytes, ring.chunk_bytes + 4096);
	if (!t->pair.source)
		return;
	assert_int_equal(t->pair.source->ops->ring_set(t->pair.source, &ring, &err), 0);
	assert_int_equal(t->pair.source->caps.slots, ring.slots);
	use_mem(t);
}

/* Both ends up, credits granted. */
struct test *begin_up(void **state)
{
	struct test *t = begin(state);
	struct rcp_err err = {0};

	assert_int_equal(t->pair.kind->make(&t->pair, &err), 0);
	assert_int_equal(t->source.ups + t->sink.ups, 0);
	UNTIL(t, t->source.ups && t->sink.ups);
	assert_non_null(t->pair.source->caps.transport);
	assert_true(t->pair.source->caps.detail[0]);
	exchange_rings(t);
	return t;
}

static struct test *begin_half_of(void **state, enum rcp_role role, uint32_t slots,
				  uint32_t chunk_bytes)
{
	const struct pair_kind *kind = kind_of(state);

	if (!kind->make_half) {
		print_message("SKIPPED %s: its peer can't be played\n", kind->name);
		skip();
	}
	struct test *t = begin(state);
	struct rcp_err err = {0};

	t->pair.sink_params.slots = slots;
	t->pair.sink_params.chunk_bytes = chunk_bytes;
	assert_int_equal(kind->make_half(&t->pair, role, &err), 0);
	UNTIL(t, t->source.ups || t->sink.ups);
	return t;
}

struct test *begin_half_unknown(void **state, enum rcp_role role)
{
	return begin_half_of(state, role, SLOTS, CHUNK);
}

struct test *begin_many(void **state)
{
	struct test *t = begin_half_of(state, RCP_ROLE_SINK, 4096, 4096);

	exchange_rings(t);
	return t;
}

struct test *begin_half(void **state, enum rcp_role role)
{
	struct test *t = begin_half_unknown(state, role);

	exchange_rings(t);
	return t;
}

/* Everything freed, and nothing left. */
void end(struct test *t)
{
	const struct pair_kind *kind = t->pair.kind;

	if (t->pair.source && t->mem)
		t->pair.source->ops->unreg(t->pair.source, t->mem);
	rcp_link_free(&t->pair.source);
	rcp_link_free(&t->pair.sink);
	const char *left = kind->destroy(&t->pair);

	if (left)
		fail_msg("left behind: %s", left);
	assert_string_equal(t->wrong, "");
	munmap(t->arena, t->arena_bytes);
	close(t->file);
	/* A connection that was left to its thread (verbs/dial.c) takes a moment more. */
	for (uint64_t until = rcp_now_ns() + RCP_SEC; open_fds() != t->fds && rcp_now_ns() < until;)
		sched_yield();
	assert_int_equal(open_fds(), t->fds);
	free(t);
}

void assert_sent_once(const struct test *t)
{
	assert_int_equal(t->sent, t->posted);
	for (unsigned i = 0; i < ITEMS; i++)
		assert_int_equal(t->items[i].sent, i < t->posted);
}

void assert_all_arrived(const struct test *t)
{
	assert_sent_once(t);
	for (unsigned i = 0; i < t->posted; i++) {
		assert_true(t->items[i].ok);
		assert_int_equal(t->items[i].arrived, 1);
	}
}

/* The source first: what it sent is taken before the sink hears of the end. */
void close_both(struct test *t)
{
	call_close(t, t->pair.source);
	UNTIL(t, t->source.downs);
	assert_int_equal(t->source.cause.code, RCP_OK);
	if (t->pair.sink && !t->sink.downs)
		call_close(t, t->pair.sink);
	UNTIL(t, t->sink.downs);
	assert_int_equal(t->source.downs, 1);
	assert_int_equal(t->sink.downs, 1);
}

void assert_lost(const struct end *e)
{
	assert_int_equal(e->downs, 1);
	assert_int_equal(e->cause.code, RCP_E_LINK);
	assert_true(e->cause.text[0]);
}
