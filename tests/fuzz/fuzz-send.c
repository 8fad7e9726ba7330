/*
 * The sender against a hostile sink: a script of messages, link events and turns. Whatever it says, no byte goes out
 * that is not the file's at that place, memory of the link is given back, what is kept stays within its bounds, and the
 * session ends.
 *
 *   0 U8: SEND_* bits   1 U8: source engine (2 bits), transport of the link   then steps: U8 which, and what it takes
 */
#include "dir.h"
#include "fuzz.h"
#include "script.h"

#include "base/crc.h"
#include "link/seal.h"
#include "session/send.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHUNK  4096u
#define BUNDLE 1024u
#define SLOTS  3u
#define NAMED  64u

enum bits { SEND_SEAL = 1, SEND_MEM = 2, SEND_SENDFILE = 4, SEND_LIMIT = 8, SEND_KEYS = 16, SEND_ARCHIVE = 32 };

struct world {
	struct script s;
	uint8_t bits, how;
	struct rcp_pool *pool;
	struct rcp_sender *sender;
	struct rcp_keys *keys;
	struct rcp_link link;
	struct rcp_seal *seal; /* the sink's */
	bool attached, closing, over, stopped, verdict, starved, walk_end;
	int reg_errno; /* of the next registrations */
	unsigned regs;
	uint64_t clock;
	uint32_t generation;
	struct rcp_post *posts[SLOTS];
	char names[NAMED][32];
	uint8_t types[NAMED];
	uint32_t named;
};

static struct world *now;

/* ---- what there is to send ---- */

static struct file {
	const char *name;
	size_t len;
	uint8_t *data;
} files[] = {
	{"big", 5 * CHUNK + 77, NULL}, {"exact", 2 * CHUNK, NULL}, {"full", BUNDLE, NULL}, {"more", BUNDLE + 1, NULL},
	{"none", 0, NULL},	       {"one", 33, NULL},	   {"holes", 8 * CHUNK, NULL},
};

static void make_file(int dir, struct file *f)
{
	int fd = openat(dir, f->name, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	bool holes = strcmp(f->name, "holes") == 0;

	f->data = calloc(1, f->len ? f->len : 1);
	MUST(fd >= 0 && f->data && ftruncate(fd, (off_t)f->len) == 0);
	for (size_t i = 0; i < f->len; i++)
		f->data[i] = holes && i / CHUNK % 3 ? 0 : (uint8_t)(i * 7 + i / 251 + f->len);
	for (size_t i = 0; i < f->len; i += CHUNK) {
		size_t n = f->len - i < CHUNK ? f->len - i : CHUNK;

		if (!holes || i / CHUNK % 3 == 0)
			MUST(pwrite(fd, f->data + i, n, (off_t)i) == (ssize_t)n);
	}
	close(fd);
}

static void make_tree(void)
{
	static bool made;
	int dir;

	if (made)
		return;
	made = true;
	MUST(mkdirat(fuzz_dir(), "src", 0755) == 0);
	dir = openat(fuzz_dir(), "src", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	MUST(dir >= 0 && mkdirat(dir, "sub", 0755) == 0 && symlinkat("../one", dir, "sub/link") == 0);
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		make_file(dir, &files[i]);
	MUST(linkat(dir, "exact", dir, "sub/second", 0) == 0 && mkfifoat(dir, "sub/fifo", 0600) == 0);
	close(dir);
}

static const struct file *file_of(const struct world *w, uint32_t id)
{
	const char *slash, *name;

	MUST(id < w->named && w->types[id] == RCP_ENTRY_FILE);
	slash = strrchr(w->names[id], '/');
	name = slash ? slash + 1 : w->names[id];
	if (strcmp(name, "second") == 0)
		name = "exact";
	if (strcmp(name, "link") == 0)
		name = "one";
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		if (strcmp(name, files[i].name) == 0)
			return &files[i];
	}
	fprintf(stderr, "%s was not in the tree\n", name);
	abort();
}

/* ---- the link ---- */

static void check_bundle(const struct world *w, const uint8_t *p, uint32_t len)
{
	uint32_t count = rcp_get_u32(p), at = 4 + 12 * count;

	MUST(len >= 4 && count && count <= (len - 4) / 12);
	for (uint32_t i = 0; i < count; i++) {
		const struct file *f = file_of(w, rcp_get_u32(p + 4 + 12 * i));
		uint32_t n = rcp_get_u32(p + 8 + 12 * i);

		MUST(n == f->len && n <= len - at && !memcmp(p + at, f->data, n) && n <= BUNDLE);
		MUST(rcp_get_u32(p + 12 + 12 * i) == rcp_crc32(0, f->data, n));
		at += n;
	}
	MUST(at == len);
}

static void check_post(struct world *w, const struct rcp_post *post)
{
	struct rcp_chunk c = post->chunk;
	uint8_t copy[CHUNK];
	uint32_t crc;

	MUST(c.length <= CHUNK && post->body && !(c.flags & RCP_CHUNK_SEALED) == !w->seal);
	MUST(!post->mem == !(w->bits & SEND_MEM));
	memcpy(copy, post->body, c.length);
	if (w->seal)
		MUST(rcp_unseal_chunk(w->seal, &c, copy, &crc) == RCP_UNSEAL_OK);
	MUST(c.crc == rcp_crc32(0, copy, c.length));
	if (c.flags & RCP_CHUNK_BUNDLE) {
		check_bundle(w, copy, c.length);
		return;
	}
	const struct file *f = file_of(w, c.entry);

	MUST(c.offset % CHUNK == 0 && c.offset < f->len && c.length == (f->len - c.offset < CHUNK ? f->len - c.offset : CHUNK));
	MUST(memcmp(copy, f->data + c.offset, c.length) == 0);
}

static int link_post(struct rcp_link *l, struct rcp_post *post)
{
	struct world *w = now;

	(void)l;
	MUST(w->attached);
	if (w->closing)
		return RCP_E_LINK;
	for (uint32_t i = 0; i < SLOTS; i++) {
		if (w->posts[i])
			continue;
		post->chunk.generation = w->generation;
		check_post(w, post);
		w->posts[i] = post;
		return 0;
	}
	w->starved = true;
	return RCP_AGAIN;
}

static void link_close(struct rcp_link *l)
{
	(void)l;
	MUST(!now->closing);
	now->closing = true;
}

static int link_reg(struct rcp_link *l, const void *addr, size_t len, bool read_only, struct rcp_err *err,
		    struct rcp_mem **out)
{
	volatile uint8_t sum = 0;

	(void)l, (void)read_only;
	if (now->reg_errno)
		return rcp_err_set(err, RCP_E_IO, now->reg_errno, "ibv_reg_mr", NULL, NULL);
	for (size_t i = 0; read_only && i < len; i += 4096) /* pins what is there */
		sum = (uint8_t)(sum + ((const uint8_t *)addr)[i]);
	*out = malloc(1);
	MUST(*out);
	now->regs++;
	return 0;
}

static void link_unreg(struct rcp_link *l, struct rcp_mem *mem)
{
	(void)l;
	if (mem)
		now->regs--;
	free(mem);
}

static const struct rcp_link_ops link_ops = {.post = link_post, .close = link_close, .reg = link_reg, .unreg = link_unreg};

static struct rcp_seal *seal_new(uint32_t generation)
{
	const uint8_t key[RCP_SEAL_KEY] = {3, (uint8_t)generation};
	struct rcp_err err = {0};
	struct rcp_seal *s;

	MUST(rcp_seal_new(key, generation, &err, &s) == 0);
	return s;
}

static void attach(struct world *w)
{
	rcp_seal_free(&w->seal);
	rcp_seal_free(&w->link.seal);
	w->generation++;
	w->link = (struct rcp_link){.ops = &link_ops, .events = &rcp_sender_events, .arg = w->sender,
				    .caps = {.needs_mem = w->bits & SEND_MEM, .sendfile = w->bits & SEND_SENDFILE,
					     .slots = SLOTS, .chunk_bytes = CHUNK}};
	if (w->bits & SEND_SEAL) {
		w->seal = seal_new(w->generation);
		w->link.seal = seal_new(w->generation);
	}
	w->attached = true;
	w->closing = w->over = w->starved = false;
	rcp_sender_attach(w->sender, &w->link, w->generation);
}

static void sent(struct world *w, uint32_t i, bool ok)
{
	struct rcp_post *post = w->posts[i];

	if (!post)
		return;
	w->posts[i] = NULL;
	w->link.events->sent(w->link.arg, post, ok);
}

static void down(struct world *w, bool lost)
{
	struct rcp_err cause = {0};

	if (!w->attached)
		return;
	w->closing = true;
	for (uint32_t i = 0; i < SLOTS; i++)
		sent(w, i, !lost);
	if (lost)
		rcp_err_set(&cause, RCP_E_LINK, 0, "", NULL, "cut");
	w->attached = false;
	w->link.events->down(w->link.arg, &cause);
}

/* ---- what the sender asks for ---- */

static uint64_t env_now(void *arg)
{
	return ((struct world *)arg)->clock;
}

static void take_entries(struct world *w, const struct rcp_msg_entries *m)
{
	struct rcp_rd rd = rcp_rd_of(m->entries.data, m->entries.len);
	struct rcp_rec_entry e;
	uint32_t count = 0;

	MUST(m->first == w->named && !w->walk_end);
	while (rcp_rec_next(&rd, RCP_REC_ENTRY, &e) > 0) {
		MUST(w->named < NAMED && e.path.len < 32);
		rcp_span_copy(e.path, w->names[w->named], 32);
		w->types[w->named++] = e.type;
		count++;
	}
	MUST(!rd.bad && count == m->count);
}

static void env_send(void *arg, enum rcp_msg_type type, const void *msg)
{
	struct world *w = arg;
	struct rcp_wr wr = {.max = RCP_FRAME_MAX + RCP_FRAME_HEADER};

	rcp_msg_encode(&wr, type, msg);
	MUST(!wr.bad && rcp_msg_legal(rcp_msg_desc(type), RCP_PHASE_COPY, true, RCP_ROLE_SOURCE));
	rcp_wr_free(&wr);
	if (type == RCP_MSG_ENTRIES)
		take_entries(w, msg);
	w->walk_end |= type == RCP_MSG_WALK_END;
	w->verdict |= type == RCP_MSG_BYE;
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

	(void)cause;
	MUST(!w->over && !w->attached && !w->regs && !w->sender->jobs);
	w->over = true;
}

/* ---- steps ---- */

static void stop(struct world *w, const struct rcp_err *cause)
{
	w->stopped = true;
	rcp_sender_stop(w->sender, cause);
}

static void bounds(const struct world *w)
{
	const struct rcp_sender *s = w->sender;

	MUST(s->entries.open <= SEND_ENTRIES_MAX + SEND_BATCH_ENTRIES && s->open_files <= SEND_OPEN_MAX);
	MUST(s->window_count <= SEND_WINDOWS_MAX && s->again_count <= SEND_AGAIN_MAX + SEND_CHUNKS_MAX);
}

static void hear(struct world *w, const struct rcp_msg *msg)
{
	struct rcp_err err = {0};

	if (rcp_sender_message(w->sender, msg, &err)) {
		MUST(rcp_err_is(&err));
		stop(w, &err);
	}
	bounds(w);
}

static void say(struct world *w, enum rcp_msg_type type, const void *body)
{
	struct rcp_wr wr = {.max = RCP_FRAME_MAX + RCP_FRAME_HEADER};
	struct rcp_err err = {0};
	struct rcp_msg msg;

	rcp_msg_encode(&wr, type, body);
	if (!wr.bad) {
		MUST(rcp_msg_decode(type, wr.data + RCP_FRAME_HEADER, wr.len - RCP_FRAME_HEADER, &err, &msg) == 0);
		hear(w, &msg);
	}
	rcp_wr_free(&wr);
}

static void turn(struct world *w)
{
	rcp_sender_turn(w->sender);
	rcp_pool_reap(w->pool);
	if (w->closing)
		down(w, false);
	bounds(w);
}

/* Ranges in cells: of each U8, four bits are left out and four are had. */
static void ranges(struct world *w, struct rcp_wr *have, uint8_t how)
{
	uint64_t at = 0;

	for (unsigned i = 0; i < (how & 7u); i++) {
		uint8_t step = script_u8(&w->s);
		struct rcp_rec_range r = {.offset = at + (uint64_t)(step >> 4) * CHUNK, .length = (uint64_t)(step & 15) * CHUNK};

		if (how & 8) {
			r.offset = script_u32(&w->s);
			r.length = script_u16(&w->s);
		}
		if (how & 16)
			r.length += 77;
		at = r.offset + r.length;
		rcp_rec_encode(have, RCP_REC_RANGE, &r);
	}
}

static void answers(struct world *w)
{
	uint8_t how = script_u8(&w->s);
	struct rcp_rec_answer a = {.first = script_u8(&w->s) % (w->named + 1), .count = 1 + (how & 64 ? script_u8(&w->s) : 0)};
	struct rcp_wr blob = {.max = RCP_FRAME_MAX - 64}, have = {.max = 4096};
	struct rcp_msg_answers m;

	ranges(w, &have, how);
	a.have = rcp_span_of(have.data, have.len);
	if (how & 128)
		a.first += script_u32(&w->s);
	rcp_rec_encode(&blob, RCP_REC_ANSWER, &a);
	m.answers = rcp_span_of(blob.data, blob.len);
	say(w, RCP_MSG_ANSWERS, &m);
	rcp_wr_free(&have);
	rcp_wr_free(&blob);
}

/* All files are wanted. */
static void answer_all(struct world *w)
{
	struct rcp_wr blob = {.max = RCP_FRAME_MAX - 64};
	struct rcp_msg_answers m;

	for (uint32_t i = 0; i < w->named; i++) {
		struct rcp_rec_answer a = {.first = i, .count = 1};
		const struct send_entry *e = rcp_idtab_get(&w->sender->entries, i);

		if (e && e->state == SEND_OFFERED && e->type == RCP_ENTRY_FILE)
			rcp_rec_encode(&blob, RCP_REC_ANSWER, &a);
	}
	m.answers = rcp_span_of(blob.data, blob.len);
	say(w, RCP_MSG_ANSWERS, &m);
	rcp_wr_free(&blob);
}

static void results(struct world *w)
{
	uint8_t how = script_u8(&w->s);
	struct rcp_rec_result r = {.first = script_u8(&w->s), .count = 1 + (how & 31u), .status = how >> 5 & 3};
	struct rcp_wr blob = {.max = RCP_FRAME_MAX - 64};
	struct rcp_msg_results m;

	if (how & 128) {
		r.count = script_u32(&w->s);
		r.status = script_u8(&w->s);
	}
	r.code = script_u8(&w->s);
	r.text = script_bytes(&w->s, r.status ? script_u8(&w->s) % 16 : 0);
	rcp_rec_encode(&blob, RCP_REC_RESULT, &r);
	m.results = rcp_span_of(blob.data, blob.len);
	say(w, RCP_MSG_RESULTS, &m);
	rcp_wr_free(&blob);
}

/* Every entry that is open has ended. */
static void result_all(struct world *w)
{
	struct rcp_wr blob = {.max = RCP_FRAME_MAX - 64};
	struct rcp_msg_results m;

	for (uint32_t i = 0; i < w->named; i++) {
		struct rcp_rec_result r = {.first = i, .count = 1};

		if (rcp_idtab_get(&w->sender->entries, i))
			rcp_rec_encode(&blob, RCP_REC_RESULT, &r);
	}
	m.results = rcp_span_of(blob.data, blob.len);
	say(w, RCP_MSG_RESULTS, &m);
	rcp_wr_free(&blob);
}

static void again(struct world *w)
{
	uint8_t how = script_u8(&w->s);
	struct rcp_msg_again m = {.entry = script_u8(&w->s), .attempt = 1};
	const struct send_entry *e = rcp_idtab_get(&w->sender->entries, m.entry);

	m.offset = (uint64_t)(how & 15) * CHUNK;
	m.length = e && e->fid.size - m.offset < CHUNK ? (uint32_t)(e->fid.size - m.offset) : CHUNK;
	if (how & 64)
		m.length = script_u16(&w->s);
	if (how & 128)
		m.entry += script_u32(&w->s);
	say(w, RCP_MSG_AGAIN, &m);
}

static void verdict(struct world *w)
{
	struct rcp_msg_verdict m = {.code = script_u8(&w->s), .crc_known = 1};

	say(w, RCP_MSG_VERDICT, &m);
}

static void time_passes(struct world *w)
{
	w->clock += (1 + (uint64_t)script_u8(&w->s)) * 10000000;
	turn(w);
}

static void carry(struct world *w)
{
	uint8_t how = script_u8(&w->s);

	for (uint32_t i = 0; i < SLOTS; i++) {
		if (how & 1u << i)
			sent(w, i, true);
	}
	if (w->attached && !w->closing && (w->starved || how & 8)) {
		w->starved = false;
		w->link.events->room(w->link.arg);
	}
}

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
}

static void registrations(struct world *w)
{
	static const int errors[] = {0, ENOMEM, EFAULT, EINVAL};

	w->reg_errno = errors[script_u8(&w->s) % 4];
}

static void raw(struct world *w)
{
	static const enum rcp_msg_type types[] = {RCP_MSG_ANSWERS, RCP_MSG_RESULTS, RCP_MSG_AGAIN, RCP_MSG_VERDICT,
						  RCP_MSG_ENTRIES};
	enum rcp_msg_type type = types[script_u8(&w->s) % (sizeof(types) / sizeof(types[0]))];
	struct rcp_span body = script_bytes(&w->s, script_u8(&w->s));
	struct rcp_err err = {0};
	struct rcp_msg msg;

	if (rcp_msg_decode(type, body.data, body.len, &err, &msg) == 0)
		hear(w, &msg);
}

static void step(struct world *w)
{
	static void (*const steps[])(struct world *) = {
		answers, answer_all, results, result_all, again, verdict, time_passes, carry, cut, registrations, raw, turn,
	};

	steps[script_u8(&w->s) % (sizeof(steps) / sizeof(steps[0]))](w);
}

/* ---- one session ---- */

static void session_new(struct world *w)
{
	static char path[4200];
	const char *const paths[] = {path, NULL};
	struct rcp_walk_options how = {.recursive = true, .archive = w->bits & SEND_ARCHIVE};
	struct rcp_session_options o = {.flags = RCP_OPT_RECURSIVE, .chunk_bytes = CHUNK, .bundle_bytes = BUNDLE,
					.engine = (enum rcp_engine)(w->how & 3),
					.limit_bytes_per_second = w->bits & SEND_LIMIT ? 1 << 20 : 0};
	struct rcp_session_env env = {.arg = w, .pool = w->pool, .now_ns = env_now, .send = env_send,
				      .fault = env_fault, .file = env_file, .over = env_over, .done = w->keys};
	struct rcp_err err = {0};
	struct rcp_walk *walk;

	snprintf(path, sizeof(path), "%s/src", fuzz_dir_path());
	MUST(rcp_walk_new(paths, &how, &err, &walk) == 0);
	MUST(rcp_sender_new(&env, &o, walk, &err, &w->sender) == 0);
	w->named = 0;
	w->stopped = w->verdict = w->walk_end = false;
	w->reg_errno = 0;
	attach(w);
	turn(w);
}

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
	rcp_sender_stats(w->sender);
	rcp_sender_free(&w->sender);
	rcp_seal_free(&w->seal);
	rcp_seal_free(&w->link.seal);
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct world w = {.s = {.data = data, .len = size}};
	struct rcp_err err = {0};

	make_tree();
	w.bits = script_u8(&w.s);
	w.how = script_u8(&w.s);
	now = &w;
	MUST(rcp_pool_new(0, &err, &w.pool) == 0);
	w.keys = w.bits & SEND_KEYS ? rcp_keys_new(NULL) : NULL;
	/* A second one, with what is left of the script: with keys, it knows what the first one did. */
	for (unsigned i = 0; i < 2; i++) {
		session_new(&w);
		play(&w);
	}
	rcp_keys_free(&w.keys);
	rcp_pool_free(&w.pool);
	return 0;
}
