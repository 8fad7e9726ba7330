/*
 * The receiver against a hostile source: a script of messages, chunks and turns. Whatever it says, nothing outside the
 * target changes, every entry gets one result, what is kept stays within its bounds, and the session ends.
 *
 *   0 U16 options: START.flags   2 U8: WORLD_*   then steps: U8 which, and what it takes (see the functions)
 */
#include "dir.h"
#include "fuzz.h"
#include "script.h"

#include "base/crc.h"
#include "file/walk.h"
#include "session/recv.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHUNK	4096u
#define BUNDLE	1024u
#define SLOTS	3u
#define NAMED	4096u /* entries whose results are counted */
#define KEY	{9, 9, 9}
#define FLAGS	(RCP_OPT_KNOWN & ~RCP_OPT_RETRY) /* a retry waits for locks */

enum world_bits { WORLD_SEAL = 1, WORLD_SHARED = 2, WORLD_LIMIT = 4, WORLD_KEYS = 8, WORLD_DONE = 16, WORLD_RENAME = 32 };

struct slot {
	uint8_t *header, *payload;
	bool busy;
};

struct world {
	struct script s;
	uint64_t flags;
	uint8_t bits;
	struct rcp_pool *pool;
	struct rcp_target target;
	struct rcp_receiver *r;
	struct rcp_keys *keys;
	struct rcp_link link;
	struct rcp_seal *seal; /* the source's */
	bool attached, closing, over, verdict, stopped;
	struct rcp_err cause;
	uint64_t clock;

	/* what an honest source would know */
	uint32_t generation, named;
	uint64_t chunks, answers, agains, sequence;
	uint8_t results[NAMED];
	uint32_t result_count;

	/* the chunk before, to come once more */
	uint8_t last_header[RCP_CHUNK_HEADER], last_payload[CHUNK];
	uint32_t last_length;
};

static struct slot slots[SLOTS];
static struct world *now; /* for the link, which has no argument of its own in its calls */
static int inside = -1, outside = -1;

/* ---- the link ---- */

static void link_release(struct rcp_link *l, uint32_t slot)
{
	(void)l;
	MUST(slot < SLOTS && slots[slot].busy);
	slots[slot].busy = false;
}

static void link_close(struct rcp_link *l)
{
	(void)l;
	MUST(!now->closing);
	now->closing = true;
}

static const struct rcp_link_ops link_ops = {.release = link_release, .close = link_close};

static struct rcp_seal *seal_new(uint32_t generation)
{
	static const uint8_t key[RCP_SEAL_KEY] = KEY;
	struct rcp_err err = {0};
	struct rcp_seal *s;

	MUST(rcp_seal_new(key, generation, &err, &s) == 0);
	return s;
}

static void attach(struct world *w)
{
	struct rcp_err err = {0};

	for (uint32_t i = 0; i < SLOTS; i++)
		slots[i].busy = false;
	rcp_seal_free(&w->seal);
	rcp_seal_free(&w->link.seal);
	w->generation++;
	w->link = (struct rcp_link){.ops = &link_ops, .events = &rcp_receiver_events, .arg = w->r,
				    .caps = {.slots = SLOTS, .chunk_bytes = CHUNK,
					     .shared_ring = w->bits & WORLD_SHARED}};
	if (w->bits & WORLD_SEAL) {
		w->seal = seal_new(w->generation);
		w->link.seal = seal_new(w->generation);
	}
	MUST(rcp_receiver_attach(w->r, &w->link, w->generation, &err) == 0);
	w->attached = true;
	w->closing = w->over = false;
	w->chunks = 0;
}

static void down(struct world *w, bool lost)
{
	struct rcp_err cause = {0};

	if (!w->attached)
		return;
	if (lost)
		rcp_err_set(&cause, RCP_E_LINK, 0, "", NULL, "cut");
	w->attached = false;
	w->link.events->down(w->link.arg, &cause);
}

/* ---- what the receiver asks for ---- */

static uint64_t env_now(void *arg)
{
	return ((struct world *)arg)->clock;
}

static void take_result(struct world *w, const struct rcp_rec_result *r)
{
	MUST(r->status <= RCP_STATUS_LEFT_OUT && r->count && r->first < w->named && r->count <= w->named - r->first);
	for (uint32_t id = r->first; id - r->first < r->count; id++) {
		MUST(id >= NAMED || !w->results[id]);
		if (id < NAMED)
			w->results[id] = 1;
	}
	w->result_count += r->count;
}

static void take_results(struct world *w, const struct rcp_msg_results *m)
{
	struct rcp_rd rd = rcp_rd_of(m->results.data, m->results.len);
	struct rcp_rec_result r;
	int rc;

	while ((rc = rcp_rec_next(&rd, RCP_REC_RESULT, &r)) > 0)
		take_result(w, &r);
	MUST(rc == 0);
}

static void take_answers(struct world *w, const struct rcp_msg_answers *m)
{
	struct rcp_rd rd = rcp_rd_of(m->answers.data, m->answers.len);
	struct rcp_rec_answer a;
	int rc;

	while ((rc = rcp_rec_next(&rd, RCP_REC_ANSWER, &a)) > 0) {
		MUST(a.count && a.first < w->named && a.count <= w->named - a.first && (!a.have.len || a.count == 1));
		w->answers += a.count;
	}
	MUST(rc == 0);
}

/* What it says is what a sink may say, and an honest source can take it. */
static void env_send(void *arg, enum rcp_msg_type type, const void *msg)
{
	struct world *w = arg;
	struct rcp_wr wr = {.max = RCP_FRAME_MAX + RCP_FRAME_HEADER};

	rcp_msg_encode(&wr, type, msg);
	MUST(!wr.bad && rcp_msg_legal(rcp_msg_desc(type), RCP_PHASE_COPY, false, RCP_ROLE_SINK));
	rcp_wr_free(&wr);
	MUST(!w->verdict);
	if (type == RCP_MSG_RESULTS)
		take_results(w, msg);
	if (type == RCP_MSG_ANSWERS)
		take_answers(w, msg);
	w->agains += type == RCP_MSG_AGAIN;
	if (type == RCP_MSG_VERDICT) {
		w->verdict = true;
		MUST(w->result_count == w->named); /* no verdict before every entry has its result */
	}
}

static void env_fault(void *arg, const struct rcp_err *err, bool warning)
{
	(void)arg, (void)warning;
	MUST(rcp_err_is(err));
}

static void env_file(void *arg, const char *name, uint64_t bytes, enum rcp_status status)
{
	(void)arg, (void)bytes;
	MUST(name && status <= RCP_STATUS_WARNED);
}

static void env_over(void *arg, const struct rcp_err *cause)
{
	struct world *w = arg;

	MUST(!w->over && !w->attached);
	w->over = true;
	w->cause = *cause;
}

/* ---- steps ---- */

static void stop(struct world *w, const struct rcp_err *cause)
{
	w->stopped = true;
	rcp_receiver_stop(w->r, cause);
}

static void bounds(const struct world *w)
{
	MUST(w->r->entries.open <= RECV_ENTRIES_MAX && w->r->open_files <= RECV_OPEN_MAX);
	MUST(w->r->answers.len <= RCP_FRAME_MAX && w->r->results.len <= RCP_FRAME_MAX);
	MUST(!w->r->answers.bad && !w->r->results.bad);
}

/* As its owner does: what breaks the protocol ends the session. */
static void say(struct world *w, enum rcp_msg_type type, const void *body)
{
	struct rcp_wr wr = {.max = RCP_FRAME_MAX + RCP_FRAME_HEADER};
	struct rcp_err err = {0};
	struct rcp_msg msg;

	if (w->over && w->stopped)
		return;
	rcp_msg_encode(&wr, type, body);
	if (wr.bad) {
		rcp_wr_free(&wr);
		return;
	}
	MUST(rcp_msg_decode(type, wr.data + RCP_FRAME_HEADER, wr.len - RCP_FRAME_HEADER, &err, &msg) == 0);
	if (rcp_receiver_message(w->r, &msg, &err)) {
		MUST(rcp_err_is(&err));
		stop(w, &err);
	}
	rcp_wr_free(&wr); /* what it keeps it has copied */
	w->named = w->r->entries.next;
	bounds(w);
}

static void turn(struct world *w)
{
	rcp_receiver_turn(w->r);
	rcp_pool_reap(w->pool);
	if (w->closing)
		down(w, false);
	bounds(w);
}

static struct rcp_span a_name(struct script *s)
{
	static const char *const names[] = {
		"a", "b", "d", "d/a", "d/e", "d/e/a", "esc", "esc/secret", "old", "../out/secret", "/tmp/rcp-fuzz-x", "",
		".", "d/..", "dir", "dir/x", ".a.rcp-part", ".a.rcp-journal", "in-link", "in-link/x", "../in/a", "a//b",
	};
	static char longest[260];
	uint8_t which = script_u8(s);

	if (which < sizeof(names) / sizeof(names[0]))
		return rcp_span_str(names[which]);
	if (which == 255) {
		memset(longest, 'x', 255);
		return rcp_span_str(longest);
	}
	return script_bytes(s, which % 32);
}

/* Never so large that it could not be written at all: that is the kernel's business. */
static uint64_t a_size(struct script *s)
{
	uint8_t which = script_u8(s);

	if (which < 200)
		return which < 100 ? (uint64_t)which * 17 : (uint64_t)(which - 99) * CHUNK / 2;
	if (which < 250)
		return script_u16(s);
	return which == 250 ? UINT64_C(1) << 62 : which == 251 ? UINT64_MAX : script_u32(s) >> (which == 252 ? 0 : 8);
}

static void one_entry(struct script *s, struct rcp_wr *blob)
{
	uint8_t type = script_u8(s), how = script_u8(s);
	struct rcp_wr xattrs = {.max = RCP_FRAME_MAX};
	struct rcp_rec_entry e = {.type = type % 16, .flags = how & 0x1f, .mode = how & 32 ? script_u16(s) : 0640,
				  .mtime_s = 1000000000, .ino = 1 + type / 16, .dev = 1};

	e.path = a_name(s);
	if (e.type == RCP_ENTRY_FILE)
		e.size = a_size(s);
	if (e.type == RCP_ENTRY_SYMLINK || e.type == RCP_ENTRY_HARDLINK)
		e.link = a_name(s);
	if (how & 64) {
		struct rcp_rec_xattr x = {.name = rcp_span_str(type & 128 ? "system.posix_acl_access" : "user.k")};

		x.value = script_bytes(s, script_u8(s));
		rcp_rec_encode(&xattrs, RCP_REC_XATTR, &x);
		e.xattrs = rcp_span_of(xattrs.data, xattrs.len);
	}
	if (how & 128) {
		e.mtime_s = script_u64(s);
		e.mtime_ns = script_u32(s);
		e.uid = script_u32(s);
		e.user = script_bytes(s, script_u8(s) % 8);
		e.xattrs = script_bytes(s, script_u8(s));
	}
	rcp_rec_encode(blob, RCP_REC_ENTRY, &e);
	rcp_wr_free(&xattrs);
}

static void entries(struct world *w)
{
	struct rcp_wr blob = {.max = RCP_FRAME_MAX - 64};
	uint8_t how = script_u8(&w->s);
	struct rcp_msg_entries m = {.first = w->named, .count = 1 + how % 8};

	for (uint32_t i = 0; i < m.count; i++)
		one_entry(&w->s, &blob);
	if (how & 64)
		m.first = script_u32(&w->s);
	if (how & 128)
		m.count = script_u32(&w->s);
	m.entries = rcp_span_of(blob.data, blob.len);
	if (!blob.bad)
		say(w, RCP_MSG_ENTRIES, &m);
	rcp_wr_free(&blob);
}

/* A few entries of no bytes many times over: how much is kept? */
static void many_entries(struct world *w)
{
	struct rcp_wr blob = {.max = RCP_FRAME_MAX - 64};
	struct rcp_rec_entry e = {.type = script_u8(&w->s), .mode = 0600, .mtime_s = 1, .size = script_u16(&w->s)};
	struct rcp_msg_entries m = {.first = w->named, .count = 256};

	e.path = a_name(&w->s);
	for (uint32_t i = 0; i < m.count; i++)
		rcp_rec_encode(&blob, RCP_REC_ENTRY, &e);
	m.entries = rcp_span_of(blob.data, blob.len);
	if (!blob.bad)
		say(w, RCP_MSG_ENTRIES, &m);
	rcp_wr_free(&blob);
}

static struct slot *free_slot(uint32_t *index)
{
	for (*index = 0; *index < SLOTS; ++*index) {
		if (!slots[*index].busy)
			return &slots[*index];
	}
	return NULL;
}

/* Header and payload are there; bit 0 of how: the CRC is wrong, 1 the header is, 2 length, 3 generation, 4 not sealed,
 * 5 the slot is one that is not free, 4 and 5 the chunk before comes again instead. */
static void deliver(struct world *w, struct rcp_chunk *c, uint8_t how, uint32_t index)
{
	struct slot *slot = &slots[index];
	struct rcp_err err = {0};
	uint32_t length = c->length;

	c->generation = w->generation + (how & 8 ? 1 : 0);
	c->sequence = w->sequence++;
	c->crc = rcp_crc32(0, slot->payload, c->length <= CHUNK ? c->length : 0) ^ (how & 1);
	if (w->seal && !(how & 16) && c->length <= CHUNK)
		MUST(rcp_seal_chunk(w->seal, c, slot->payload, &err) == 0);
	rcp_chunk_encode(c, slot->header);
	if (how & 2)
		slot->header[script_u8(&w->s) % RCP_CHUNK_HEADER] ^= 1 + script_u8(&w->s);
	if (how & 4)
		length = script_u16(&w->s) % (CHUNK + 1);
	if ((how & 48) == 48 && w->last_length) {
		length = w->last_length;
		memcpy(slot->header, w->last_header, RCP_CHUNK_HEADER);
		memcpy(slot->payload, w->last_payload, length);
	} else if (length <= CHUNK) {
		w->last_length = length;
		memcpy(w->last_header, slot->header, RCP_CHUNK_HEADER);
		memcpy(w->last_payload, slot->payload, length);
	}
	w->chunks++;
	/* Links look for that themselves, and so does the receiver. */
	uint32_t other = (how & 48) == 32 ? script_u8(&w->s) : 0;

	if ((how & 48) == 32 && (other >= SLOTS || w->r->chunks[other].taken)) {
		w->link.events->chunk(w->link.arg, other, slot->header, slot->payload, length);
		w->stopped |= w->r->stopping;
		return;
	}
	slot->busy = true;
	w->link.events->chunk(w->link.arg, index, slot->header, slot->payload, length);
}

static void chunk(struct world *w)
{
	struct rcp_chunk c = {0};
	uint8_t how = script_u8(&w->s);
	uint32_t index;
	struct slot *slot = free_slot(&index);

	c.entry = script_u8(&w->s);
	c.offset = (uint64_t)script_u8(&w->s) * CHUNK;
	const struct recv_entry *e = rcp_idtab_get(&w->r->entries, c.entry);

	c.length = e && c.offset < e->fid.size && e->fid.size - c.offset < CHUNK ? (uint32_t)(e->fid.size - c.offset) : CHUNK;
	if (how & 64) {
		c.offset = script_u64(&w->s);
		c.length = script_u16(&w->s) % (CHUNK + 1);
	}
	if (how & 128)
		c.flags = script_u8(&w->s);
	if (!slot || !w->attached || w->closing)
		return;
	memset(slot->payload, script_u8(&w->s), CHUNK);
	deliver(w, &c, how & 63, index);
}

/* A bundle of what waits for one, from the first entry named on, or of what the script says. */
static uint32_t bundle_fill(struct world *w, uint8_t *p, uint8_t how)
{
	uint32_t count = 1 + script_u8(&w->s) % 8, first = script_u8(&w->s), at = 4 + 12 * count, told = count;

	memset(p, 'b', CHUNK);
	for (uint32_t i = 0; i < count; i++) {
		const struct recv_entry *e = rcp_idtab_get(&w->r->entries, first + i);
		uint32_t length = e && e->fid.size <= BUNDLE ? (uint32_t)e->fid.size : 0;

		if (how & 64)
			length = script_u8(&w->s) < 8 ? UINT32_MAX : script_u16(&w->s);
		rcp_put_u32(p + 4 + 12 * i, first + i);
		rcp_put_u32(p + 8 + 12 * i, length);
		uint32_t room = CHUNK - at, n = length == UINT32_MAX ? 0 : length < room ? length : room;

		rcp_put_u32(p + 12 + 12 * i, rcp_crc32(0, p + at, n) ^ (how & 128 && i == 1));
		at += n;
	}
	if (how & 128)
		told = script_u32(&w->s);
	rcp_put_u32(p, told);
	return at;
}

static void bundle(struct world *w)
{
	struct rcp_chunk c = {.flags = RCP_CHUNK_BUNDLE};
	uint8_t how = script_u8(&w->s);
	uint32_t index;
	struct slot *slot = free_slot(&index);

	if (!slot || !w->attached || w->closing)
		return;
	c.length = bundle_fill(w, slot->payload, how);
	if (how & 4)
		c.length = script_u16(&w->s) % (CHUNK + 1);
	deliver(w, &c, how & (uint8_t)~4 & 63, index);
}

static void entry_end(struct world *w)
{
	struct rcp_msg_entry_end m = {.entry = script_u8(&w->s)};
	uint8_t how = script_u8(&w->s);
	const struct recv_entry *e = rcp_idtab_get(&w->r->entries, m.entry);

	m.data_bytes = how & 1 || !e ? script_u32(&w->s) : e->fid.size;
	if (how & 2)
		m.entry += 0x10000;
	say(w, RCP_MSG_ENTRY_END, &m);
}

static void fault(struct world *w)
{
	struct rcp_msg_fault m = {.entry = script_u8(&w->s), .severity = script_u8(&w->s), .code = script_u8(&w->s)};

	m.sys_errno = m.code;
	if (m.entry == 255)
		m.entry = UINT32_MAX;
	m.text = script_bytes(&w->s, script_u8(&w->s) % 64);
	m.object = script_bytes(&w->s, m.severity & 64 ? 200 : 0);
	say(w, RCP_MSG_FAULT, &m);
}

static void walk_end(struct world *w)
{
	struct rcp_msg_walk_end m = {.entries = w->named};

	if (script_u8(&w->s) == 255)
		m.entries = script_u32(&w->s);
	say(w, RCP_MSG_WALK_END, &m);
}

static void posted(struct world *w)
{
	uint8_t how = script_u8(&w->s);
	struct rcp_msg_posted m = {.generation = w->generation, .chunks = w->chunks, .answers = w->answers,
				   .agains = w->agains};

	if (how & 1)
		m.chunks = script_u32(&w->s);
	if (how & 2)
		m.answers = script_u32(&w->s);
	if (how & 4)
		m.generation = script_u32(&w->s);
	say(w, RCP_MSG_POSTED, &m);
}

static void bye(struct world *w)
{
	struct rcp_msg_bye m = {.zero_copy_bytes = 1};

	say(w, RCP_MSG_BYE, &m);
}

static void time_passes(struct world *w)
{
	w->clock += (1 + (uint64_t)script_u8(&w->s)) * 100000000;
	turn(w);
}

/* Lost, and after a while another one; or stopped by this end's user. */
static void cut(struct world *w)
{
	struct rcp_err cause = {0};

	if (script_u8(&w->s) & 1) {
		rcp_err_set(&cause, RCP_E_INTERRUPTED, 0, "", NULL, "interrupted");
		stop(w, &cause);
	}
	down(w, true);
	for (unsigned i = 0; i < 4 && !w->over; i++)
		turn(w);
	if (w->over && !w->stopped && !w->verdict)
		attach(w);
}

/* Any message as it may come, ENTRIES with all that a record can hold. */
static void raw(struct world *w)
{
	static const enum rcp_msg_type types[] = {RCP_MSG_ENTRIES, RCP_MSG_ENTRY_END, RCP_MSG_FAULT, RCP_MSG_WALK_END,
						  RCP_MSG_POSTED, RCP_MSG_BYE, RCP_MSG_RESULTS, RCP_MSG_AGAIN};
	enum rcp_msg_type type = types[script_u8(&w->s) % (sizeof(types) / sizeof(types[0]))];
	struct rcp_span body = script_bytes(&w->s, script_u8(&w->s));
	struct rcp_err err = {0};
	struct rcp_msg msg;

	if (rcp_msg_decode(type, body.data, body.len, &err, &msg) == 0)
		say(w, type, &msg.hello_);
}

static void step(struct world *w)
{
	static void (*const steps[])(struct world *) = {
		entries, chunk, bundle, entry_end, fault, walk_end, posted, bye, time_passes, cut, raw, turn, many_entries,
	};

	steps[script_u8(&w->s) % (sizeof(steps) / sizeof(steps[0]))](w);
}

/* ---- one session ---- */

static void session_new(struct world *w)
{
	struct rcp_session_options o = {.flags = w->flags, .chunk_bytes = CHUNK, .bundle_bytes = BUNDLE, .umask = 022,
					.accept_bytes_per_second = w->bits & WORLD_LIMIT ? 100 << 20 : 0};
	struct rcp_session_env env = {.arg = w, .pool = w->pool, .now_ns = env_now, .send = env_send,
				      .fault = env_fault, .file = env_file, .over = env_over, .done = w->keys};
	struct rcp_err err = {0};

	MUST(rcp_receiver_new(&env, &o, &w->target, &err, &w->r) == 0);
	w->named = w->result_count = 0;
	w->answers = w->agains = w->sequence = 0;
	w->verdict = w->stopped = false;
	memset(w->results, 0, sizeof(w->results));
	attach(w);
}

/* It ends, whatever it was in the middle of: in a few turns once its owner wants it to. */
static void session_end(struct world *w)
{
	struct rcp_err cause = {0};

	rcp_err_set(&cause, RCP_E_LINK, 0, "", NULL, "the script is over");
	if (!w->over || (!w->stopped && !w->verdict)) {
		stop(w, &cause);
		for (unsigned i = 0; i < 20 && !w->over; i++)
			turn(w);
	}
	MUST(w->over);
	rcp_receiver_stats(w->r);
	rcp_receiver_free(&w->r);
	rcp_seal_free(&w->seal);
	rcp_seal_free(&w->link.seal);
}

static void target_new(struct world *w)
{
	char path[4200];
	struct rcp_err err = {0};

	snprintf(path, sizeof(path), "%s/in%s", fuzz_dir_path(), w->bits & WORLD_RENAME ? "/new" : "");
	MUST(rcp_target_resolve(path, "src", !(w->bits & WORLD_RENAME), false, &err, &w->target) == 0);
	if (w->bits & WORLD_DONE)
		rcp_target_remember(&w->target);
}

/* The target, what is around it, and ways from one to the other. */
static void places(void)
{
	if (inside < 0) {
		MUST(mkdirat(fuzz_dir(), "in", 0755) == 0 && mkdirat(fuzz_dir(), "out", 0755) == 0);
		inside = openat(fuzz_dir(), "in", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		outside = openat(fuzz_dir(), "out", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		MUST(inside >= 0 && outside >= 0);
		fuzz_dir_write(outside, "secret", "secret", 6);
		for (uint32_t i = 0; i < SLOTS; i++) {
			slots[i].header = malloc(RCP_CHUNK_HEADER);
			MUST(slots[i].header && !posix_memalign((void **)&slots[i].payload, 4096, CHUNK));
		}
	}
	MUST(mkdirat(inside, "dir", 0755) == 0);
	MUST(symlinkat("../out", inside, "esc") == 0 && symlinkat("dir", inside, "in-link") == 0);
	MUST(symlinkat("../out/secret", inside, "old") == 0);
}

static void outside_is_as_it_was(void)
{
	static struct stat first;
	struct stat st;

	MUST(fuzz_dir_count(fuzz_dir()) == 2 && fuzz_dir_count(outside) == 1);
	MUST(fstatat(outside, "secret", &st, AT_SYMLINK_NOFOLLOW) == 0);
	if (!first.st_ino)
		first = st;
	MUST(st.st_ino == first.st_ino && st.st_size == 6 && st.st_mode == first.st_mode && st.st_nlink == 1 &&
	     st.st_mtim.tv_nsec == first.st_mtim.tv_nsec && st.st_ctim.tv_nsec == first.st_ctim.tv_nsec);
}

static void play(struct world *w)
{
	while (!script_over(&w->s) && !(w->over && (w->stopped || w->verdict))) {
		step(w);
		if (w->over && !w->stopped && !w->verdict)
			attach(w);
	}
	session_end(w);
}

/* Sizes that can't be kept in memory are refused as a disk would. */
static void file_limit(rlim_t most)
{
	struct rlimit l;

	MUST(getrlimit(RLIMIT_FSIZE, &l) == 0);
	l.rlim_cur = most < l.rlim_max ? most : l.rlim_max;
	setrlimit(RLIMIT_FSIZE, &l);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct world w = {.s = {.data = data, .len = size}};
	struct rcp_err err = {0};

	places();
	file_limit(1 << 20);
	w.flags = script_u16(&w.s) & FLAGS;
	w.bits = script_u8(&w.s);
	now = &w;
	MUST(rcp_pool_new(0, &err, &w.pool) == 0);
	w.keys = w.bits & WORLD_KEYS ? rcp_keys_new(NULL) : NULL;
	target_new(&w);
	/* What is left of it is a second one, which takes up what the first one kept. */
	for (unsigned i = 0; i < 2; i++) {
		session_new(&w);
		play(&w);
	}
	rcp_target_free(&w.target);
	rcp_keys_free(&w.keys);
	rcp_pool_free(&w.pool);
	outside_is_as_it_was();
	fuzz_dir_empty(inside);
	file_limit(RLIM_INFINITY);
	return 0;
}
