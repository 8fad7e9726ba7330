/* What becomes of a slot: check, write, give it back; and what never came is asked for. */
#include "session/recv.h"

#include "base/bytes.h"
#include "base/clock.h"
#include "base/crc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#if RCP_TEST_HOOKS
#include <time.h>
#endif

#define BUNDLED_GONE UINT32_MAX

static void slot_done(struct rcp_receiver *r, uint32_t slot)
{
	r->slots_busy--;
	if (!r->link || r->losing)
		return;
	if (r->held)
		r->held[(r->held_at + r->held_count++) % r->slots] = slot;
	else
		rcp_link_release(r->link, slot);
}

/* Who must not send faster gets its credits no faster, whatever it was asked to. */
void recv_release_held(struct rcp_receiver *r)
{
	uint64_t now = r->env.now_ns(r->env.arg);

	if (r->budget_ns + 100 * RCP_MS < now)
		r->budget_ns = now - 100 * RCP_MS; /* what an idle time earns */
	while (r->held_count && r->budget_ns < now) {
		uint32_t slot = r->held[r->held_at];

		r->held_at = (r->held_at + 1) % r->slots;
		r->held_count--;
		r->budget_ns += (uint64_t)((double)r->chunks[slot].came * 1e9 / (double)r->opt.accept_bytes_per_second);
		rcp_link_release(r->link, slot);
	}
}

#if RCP_TEST_HOOKS
/* Tests only: RCP_TEST_FLIP=N flips a bit of every Nth payload in the ring ("all": of each). */
static void test_flip(struct recv_chunk *c)
{
	static _Atomic unsigned seen;
	const char *every = getenv("RCP_TEST_FLIP");
	uint8_t *p;

	if (!every || !c->h.length)
		return;
	memcpy(&p, &c->payload, sizeof(p)); /* the hook alone may write here */
	unsigned n = (unsigned)strtoul(every, NULL, 10);

	if (!strcmp(every, "all") || (n && ++seen % n == 0))
		p[c->h.length / 2] ^= 0x10;
}

/* Tests only: RCP_TEST_HOLD_MS=N waits so long, between a chunk's check and the disk, for the peer to write into the slot. */
static void test_hold(const uint8_t *in_ring)
{
	const char *most = getenv("RCP_TEST_HOLD_MS");
	const volatile uint8_t *watched = in_ring;
	uint8_t was = *watched;

	for (unsigned long ms = most ? strtoul(most, NULL, 10) : 0; ms && *watched == was; ms--)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}
#endif

static uint8_t *clear_memory(struct recv_chunk *c)
{
	if (!c->clear && posix_memalign((void **)&c->clear, 4096, c->r->opt.chunk_bytes))
		c->clear = NULL;
	return c->clear;
}

/*
 * Worker. A sealed chunk is opened where it stands, but for a ring that others can write to: there what was
 * authenticated could be something else when it is written, so it is opened in memory of our own.
 */
static bool open_sealed(struct recv_chunk *c, uint32_t *crc)
{
	const struct rcp_link *link = c->r->link;
	uint8_t *place = (uint8_t *)(uintptr_t)c->payload; /* the sink's until it is released */

	c->unseal = RCP_UNSEAL_FORGED;
	if (c->h.length > c->r->opt.chunk_bytes)
		return false;
	if (link->caps.shared_ring) {
		place = clear_memory(c);
		if (place)
			memcpy(place, c->payload, c->h.length);
		c->payload = place;
	}
	c->unseal = place ? rcp_unseal_chunk(link->seal, &c->h, place, crc) : RCP_UNSEAL_FAILED;
	if (c->unseal == RCP_UNSEAL_FAILED)
		rcp_err_set(&c->err, RCP_E_IO, ENOMEM, "EVP_CipherUpdate", NULL, NULL);
	return c->unseal == RCP_UNSEAL_OK;
}

/* Worker. Is it what the source read? */
static bool payload_good(struct recv_chunk *c)
{
	uint32_t crc = 0;

	if (c->checked)
		return true;
#if RCP_TEST_HOOKS
	test_flip(c);
#endif
	if (c->h.flags & RCP_CHUNK_SEALED)
		return open_sealed(c, &crc) && crc == c->h.crc;
	return rcp_crc32(0, c->payload, c->h.length) == c->h.crc;
}

/* ---- sealed chunks that are not what they should be ---- */

/* Nothing that happens by itself: the session ends. */
static void attacked(struct rcp_receiver *r, const char *what)
{
	struct rcp_err err = {0};

	rcp_err_set(&err, RCP_E_INTEGRITY, 0, "", NULL, "%s: someone on the way tampers with the data", what);
	rcp_receiver_stop(r, &err);
}

/* Damage and forgery look alike. Once a copy at any log level: who sees it many times has other worries. */
static void tell_forged(struct rcp_receiver *r)
{
	rcp_log(r->env.log, r->forged_told ? RCP_LOG_INFO : RCP_LOG_WARN,
		"a sealed chunk came damaged or forged: it is sent again");
	r->forged_told = true;
}

/* The length of the cell that begins there; 0: none does. */
static uint32_t cell_at(const struct recv_entry *e, uint64_t at)
{
	uint64_t cell = e->r->opt.chunk_bytes;

	if (at % cell || at >= e->fid.size)
		return 0;
	return e->fid.size - at < cell ? (uint32_t)(e->fid.size - at) : (uint32_t)cell;
}

static void again_if_lacking(struct recv_entry *e, uint64_t at)
{
	if (e->state == RECV_RECEIVING && !rcp_sink_holds(e->sink, at / e->r->opt.chunk_bytes))
		recv_entry_again(e, at, cell_at(e, at), true);
}

/* Its header has a CRC of its own, so off the grid is the source's doing; and each offset that is asked for again is kept. */
static void chunk_damaged(struct recv_chunk *c)
{
	struct recv_entry *e = c->entry;

	if (c->h.length != cell_at(e, c->h.offset)) {
		recv_break(c->r, "a chunk that is no cell of its file");
		return;
	}
	rcp_log(c->r->env.log, RCP_LOG_INFO, "a chunk at offset %llu came with a wrong CRC", (unsigned long long)c->h.offset);
	again_if_lacking(e, c->h.offset);
}

/*
 * Loop. True: it was refused for what its seal says. Damaged or forged is asked for again as a wrong CRC
 * is: a forger has 2^-128 with each try and few tries. Its header is as little to be believed as its
 * payload: only a cell that is the entry's and lacks is asked for; the sweep finds what that leaves out.
 */
static bool seal_refused(struct recv_chunk *c)
{
	struct rcp_receiver *r = c->r;
	struct recv_entry *e = c->entry;
	uint64_t at = c->h.offset;

	if (!(c->h.flags & RCP_CHUNK_SEALED) || c->unseal == RCP_UNSEAL_OK)
		return false;
	if (c->unseal == RCP_UNSEAL_REPLAYED) {
		attacked(r, "a sealed chunk came a second time");
		return true;
	}
	if (c->unseal == RCP_UNSEAL_FORGED)
		tell_forged(r);
	if (e && cell_at(e, at))
		again_if_lacking(e, at);
	return true;
}

/* ---- one chunk of a big file ---- */

static struct recv_chunk *chunk_of(struct rcp_job *job)
{
	return (struct recv_chunk *)(void *)job;
}

static void chunk_work(struct rcp_job *job)
{
	struct recv_chunk *c = chunk_of(job);
#if RCP_TEST_HOOKS
	const uint8_t *in_ring = c->payload;
#endif

	c->bad = !payload_good(c);
#if RCP_TEST_HOOKS
	if (!c->bad)
		test_hold(in_ring);
#endif
	if (!c->bad)
		rcp_sink_write(c->entry->sink, c->h.offset, c->payload, c->h.length, c->h.crc, &c->err);
}

static void chunk_done(struct rcp_job *job)
{
	struct recv_chunk *c = chunk_of(job);
	struct rcp_receiver *r = c->r;
	struct recv_entry *e = c->entry;

	r->jobs--;
	c->taken = false;
	slot_done(r, c->slot);
	if (rcp_err_is(&c->err)) {
		recv_entry_fail(e, &c->err);
	} else if (c->bad && seal_refused(c)) {
		; /* asked for again, or the end of all */
	} else if (c->bad) {
		chunk_damaged(c);
	} else {
		r->stats.bytes_moved += c->h.length;
		r->stats.sealed_bytes += c->h.flags & RCP_CHUNK_SEALED ? c->h.length : 0;
		e->fresh_bytes += c->h.length;
		recv_checkpoint_due(e);
	}
	recv_entry_unref(e);
}

/* ---- bundles ---- */

static void bundle_put(struct recv_chunk *c, struct rcp_sink_puts *puts)
{
	struct rcp_receiver *r = c->r;

	for (uint32_t i = 0; i < c->small_count; i++) {
		struct recv_small *s = &c->small[i];
		struct recv_entry *e = s->entry;
		struct rcp_sink_params p = {.root = r->target->root,
					    .path = e->path,
					    .shown = e->shown,
					    .id = e->fid,
					    .chunk_bytes = r->opt.chunk_bytes,
					    .fsync = (r->opt.flags & RCP_OPT_FSYNC) != 0,
					    .wait_ms = recv_lock_ms(r),
					    .done = r->target->done,
					    .verify = (r->opt.flags & RCP_OPT_VERIFY) != 0};

		s->bad = rcp_crc32(0, s->data, s->length) != s->crc;
		if (!s->bad)
			rcp_sink_puts_add(puts, &p, s->data, s->length, &e->meta, e);
	}
}

static void bundle_met(void *arg, const struct rcp_err *err, unsigned lost)
{
	struct recv_entry *e = arg;

	e->lost = lost;
	recv_entry_met(e, err);
}

static void bundle_work(struct rcp_job *job)
{
	struct recv_chunk *c = chunk_of(job);
	struct rcp_sink_puts *puts;
	struct rcp_err err = {0};

	c->bad = !payload_good(c);
	if (c->bad)
		return;
	if (rcp_sink_puts_new(bundle_met, &err, &puts)) {
		err.object[0] = 0; /* each by its own name */
		for (uint32_t i = 0; i < c->small_count; i++)
			recv_entry_met(c->small[i].entry, &err);
		return;
	}
	bundle_put(c, puts);
	rcp_sink_puts_free(&puts);
}

static void small_done(struct rcp_receiver *r, struct recv_small *s, bool all_bad)
{
	struct recv_entry *e = s->entry;

	if (e->state == RECV_PUTTING) { /* not failed by the source meanwhile */
		if (all_bad || s->bad) {
			e->state = RECV_WAITING;
			recv_entry_again(e, 0, s->length, true);
		} else if (e->met) {
			recv_entry_fail(e, e->met);
		} else {
			r->stats.bytes_moved += s->length;
			r->last_crc = s->crc;
			r->crc_files++;
			recv_entry_end(e, e->lost ? RCP_STATUS_WARNED : RCP_STATUS_OK);
		}
	}
	recv_entry_unref(e);
}

static void bundle_done(struct rcp_job *job)
{
	struct recv_chunk *c = chunk_of(job);
	struct rcp_receiver *r = c->r;
	struct recv_small *small = c->small;
	uint32_t count = c->small_count;
	bool bad = c->bad;

	r->jobs--;
	r->stats.sealed_bytes += !bad && c->h.flags & RCP_CHUNK_SEALED ? c->h.length : 0;
	c->small = NULL;
	c->taken = false;
	slot_done(r, c->slot);
	for (uint32_t i = 0; i < count; i++)
		small_done(r, &small[i], bad);
	free(small);
}

/* The table is read before its CRC is known, so nothing in it is believed: what doesn't fit is left
 * out, and the sweep finds what was lost by that. */
static bool bundle_parse(struct recv_chunk *c)
{
	uint32_t count, at;

	if (c->h.length < 4)
		return false;
	count = rcp_get_u32(c->payload);
	if (count > (c->h.length - 4) / 12)
		return false;
	c->small = calloc(count ? count : 1, sizeof(*c->small));
	c->small_count = 0;
	if (!c->small)
		return false;
	at = 4 + 12 * count;
	for (uint32_t i = 0; i < count; i++) {
		const uint8_t *rec = c->payload + 4 + 12 * i;
		uint32_t length = rcp_get_u32(rec + 4);
		struct recv_entry *e = rcp_idtab_get(&c->r->entries, rcp_get_u32(rec));

		if (length == BUNDLED_GONE)
			continue;
		if (length > c->h.length - at)
			break;
		if (e && e->state == RECV_WAITING && length == e->fid.size) {
			e->state = RECV_PUTTING;
			e->busy++;
			c->small[c->small_count++] = (struct recv_small){
				.entry = e, .data = c->payload + at, .length = length, .crc = rcp_get_u32(rec + 8)};
		}
		at += length;
	}
	return true;
}

/* ---- events ---- */

static void start_chunk(struct rcp_receiver *r, struct recv_chunk *c, bool bundle)
{
	c->taken = true;
	c->job = (struct rcp_job){.work = bundle ? bundle_work : chunk_work,
				  .done = bundle ? bundle_done : chunk_done};
	recv_job(r, RCP_POOL_FINISH, &c->job);
}

static bool take_big(struct rcp_receiver *r, struct recv_chunk *c)
{
	struct recv_entry *e = rcp_idtab_get(&r->entries, c->h.entry);

	if (!e && c->h.entry >= r->entries.next) {
		recv_break(r, "a chunk of an entry that never was");
		return false;
	}
	/* It failed, or became whole by a re-send, while this was on its way. */
	if (!e || e->state == RECV_ENDING || e->state == RECV_COMMITTING)
		return false;
	if (e->state != RECV_RECEIVING) {
		recv_break(r, "a chunk of an entry that takes none");
		return false;
	}
	c->entry = e;
	e->busy++;
	return true;
}

/* Its header is believed from here on. */
static void take_chunk(struct recv_chunk *c)
{
	struct rcp_receiver *r = c->r;
	bool bundle = c->h.flags & RCP_CHUNK_BUNDLE;

	if (!r->stopping && (bundle ? bundle_parse(c) : take_big(r, c)))
		start_chunk(r, c, bundle);
	else
		slot_done(r, c->slot);
}

static void open_work(struct rcp_job *job)
{
	struct recv_chunk *c = chunk_of(job);

	c->bad = !payload_good(c);
	c->checked = !c->bad;
}

static void open_done(struct rcp_job *job)
{
	struct recv_chunk *c = chunk_of(job);

	c->r->jobs--;
	c->taken = false;
	if (!c->bad) {
		take_chunk(c);
		return;
	}
	slot_done(c->r, c->slot);
	if (!seal_refused(c)) /* what was in it is found by the sweep */
		rcp_log(c->r->env.log, RCP_LOG_INFO, "a sealed chunk came with a wrong CRC");
}

/*
 * Nobody's word yet. A chunk of a file that takes some is opened, checked and written by one job; what
 * goes by the rest of the header (a bundle's files, a break of the protocol) waits until it is opened.
 */
static void take_sealed(struct recv_chunk *c)
{
	struct rcp_receiver *r = c->r;
	struct recv_entry *e = rcp_idtab_get(&r->entries, c->h.entry);

	if (r->stopping) {
		slot_done(r, c->slot);
	} else if (!(c->h.flags & RCP_CHUNK_BUNDLE) && e && e->state == RECV_RECEIVING) {
		take_chunk(c);
	} else {
		c->taken = true;
		c->job = (struct rcp_job){.work = open_work, .done = open_done};
		recv_job(r, RCP_POOL_FINISH, &c->job);
	}
}

/* Both ends know whether this link's chunks are sealed. */
static bool seal_agreed(struct recv_chunk *c)
{
	bool sealed = c->h.flags & RCP_CHUNK_SEALED, due = c->r->link->seal != NULL;

	if (due && !sealed)
		attacked(c->r, "a chunk came that is not sealed");
	else if (sealed && !due)
		recv_break(c->r, "a sealed chunk on a link without keys");
	return sealed == due;
}

void recv_on_chunk(void *arg, uint32_t slot, const uint8_t *header, const uint8_t *payload,
		   uint32_t length)
{
	struct rcp_receiver *r = arg;
	struct recv_chunk *c = slot < r->slots ? &r->chunks[slot] : NULL;
	uint8_t copy[RCP_CHUNK_HEADER];

	r->came++;
	r->moves++;
	r->came_ns = r->env.now_ns(r->env.arg);
	r->slots_busy++;
	if (!c || c->taken) {
		recv_break(r, "a chunk in a slot that was not free");
		return;
	}
	memcpy(copy, header, sizeof(copy)); /* the peer can still write there */
	c->slot = slot;
	c->came = RCP_CHUNK_HEADER + (uint64_t)length;
	c->payload = payload;
	c->entry = NULL;
	c->err.code = RCP_OK;
	c->bad = c->checked = false;
	c->unseal = RCP_UNSEAL_OK;
	if (!rcp_chunk_decode(copy, &c->h) || c->h.generation != r->generation ||
	    c->h.length != length) {
		rcp_log(r->env.log, RCP_LOG_INFO, "a chunk came with a damaged header");
		slot_done(r, slot);
	} else if (!seal_agreed(c)) {
		slot_done(r, slot);
	} else if (c->h.flags & RCP_CHUNK_SEALED) {
		take_sealed(c);
	} else {
		take_chunk(c);
	}
}

void recv_chunks_free(struct rcp_receiver *r)
{
	for (uint32_t i = 0; r->chunks && i < r->slots; i++)
		free(r->chunks[i].clear);
	free(r->chunks);
	r->chunks = NULL;
	free(r->held);
	r->held = NULL;
	r->held_count = 0;
}

int recv_chunks_attach(struct rcp_receiver *r, struct rcp_link *link, struct rcp_err *err)
{
	recv_chunks_free(r);
	r->slots = link->caps.slots;
	r->chunks = calloc(r->slots, sizeof(*r->chunks));
	if (r->opt.accept_bytes_per_second)
		r->held = calloc(r->slots, sizeof(*r->held));
	if (!r->chunks || (r->opt.accept_bytes_per_second && !r->held))
		return rcp_err_set(err, RCP_E_IO, ENOMEM, "calloc", NULL, NULL);
	for (uint32_t i = 0; i < r->slots; i++)
		r->chunks[i].r = r;
	r->slots_busy = 0;
	r->came = 0;
	r->posted = false;
	return 0;
}

/* ---- what never came ---- */

static unsigned sweep_big(struct recv_entry *e, unsigned room)
{
	uint64_t cell = e->r->opt.chunk_bytes, size = e->fid.size;
	unsigned asked = 0;

	for (uint64_t at = 0; at < size && asked < room; at += cell) {
		if (rcp_sink_holds(e->sink, at / cell))
			continue;
		if (!recv_entry_again(e, at, cell_at(e, at), false))
			break;
		asked++;
	}
	return asked;
}

static unsigned sweep_entry(struct recv_entry *e, unsigned room)
{
	struct rcp_err err = {0};
	bool lacks = e->state == RECV_WAITING || (e->state == RECV_RECEIVING && !e->busy);

	if (!lacks)
		return 0;
	if (e->sweeps++ >= RECV_SWEEPS) {
		rcp_err_set(&err, RCP_E_INTEGRITY, 0, "", e->shown,
			    "chunks were sent %u times and never arrived whole", RECV_SWEEPS);
		recv_entry_fail(e, &err);
		return 0;
	}
	if (e->state == RECV_RECEIVING)
		return sweep_big(e, room);
	return recv_entry_again(e, 0, (uint32_t)e->fid.size, false);
}

/* The source has posted everything it knows of. When that has come (or nothing comes any more),
 * whatever an entry lacks was lost on the way. */
void recv_sweep(struct rcp_receiver *r)
{
	unsigned room = RECV_SWEEP_CHUNKS;
	bool quiet = r->env.now_ns(r->env.arg) - r->came_ns > 5 * RCP_SEC;

	if (!r->posted || r->posted_answers != r->answered || r->posted_agains != r->agains || r->slots_busy ||
	    (r->came < r->posted_chunks && !quiet))
		return;
	r->posted = false;
	for (uint32_t id = r->entries.base; id != r->entries.next && room; id++) {
		struct recv_entry *e = rcp_idtab_get(&r->entries, id);

		if (e && e->state == RECV_RECEIVING && e->busy)
			r->posted = true; /* a checkpoint runs: look again when it is done */
		else if (e)
			room -= sweep_entry(e, room);
	}
}
