/* An evil source against a sink: names, links, what was not asked for, entries. The rest is in cases-chunks.c. */
#include "evil.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* An honest "f" in the same session afterwards: the session goes on where it should. */
static void finish_with_f(struct evil *e)
{
	uint32_t id = evil_name_file(e, "f", EVIL_F_BYTES);

	if (evil_answered(e, id))
		evil_send_file(e, id);
	evil_finish_source(e);
}

static void honest(struct evil *e)
{
	uint32_t small;

	if (!evil_session(e))
		return;
	evil_act(e);
	small = evil_name_file(e, "small", EVIL_SMALL_BYTES);
	if (evil_answered(e, small))
		evil_bundle(e, &small, 1, 0);
	finish_with_f(e);
}

/* ---- names ---- */

static void bad_name(struct evil *e)
{
	struct rcp_rec_entry rec = evil_entry((uint8_t)(e->c->arg ? e->c->arg : RCP_ENTRY_FILE), "x", 10);
	uint32_t id;

	rec.path = rcp_span_of(e->c->data, e->c->len ? e->c->len : strlen(e->c->data));
	rec.flags = RCP_ENTRY_TOP;
	if (rec.type == RCP_ENTRY_DIR || rec.type == RCP_ENTRY_DIR_END)
		rec.size = 0;
	if (!evil_session(e))
		return;
	evil_act(e);
	id = evil_name(e, &rec);
	if (rec.type == RCP_ENTRY_FILE && evil_answered(e, id))
		evil_bundle(e, &id, 1, 0);
	evil_finish_source(e);
}

static void long_component(struct evil *e)
{
	static char name[300];
	struct evil_case c = *e->c;

	memset(name, 'x', (size_t)(c.data = name, c.arg));
	c.arg = 0;
	e->c = &c;
	bad_name(e);
}

static void long_path(struct evil *e)
{
	static char name[4100];
	struct evil_case c = *e->c;

	for (size_t i = 0; i < 4098; i++)
		name[i] = i % 2 ? '/' : 'a';
	name[4097] = 'a';
	c.data = name;
	e->c = &c;
	bad_name(e);
}

/* A symlink that leads out, then an entry through it. data: where it leads to; arg: what goes through. */
static void through_link(struct evil *e)
{
	static char to[4096];
	struct rcp_rec_entry link = evil_entry(RCP_ENTRY_SYMLINK, "l", 0);
	struct rcp_rec_entry then = evil_entry((uint8_t)e->c->arg, "l/x", 10);
	uint32_t id;

	snprintf(to, sizeof(to), "%s%s", *(const char *)e->c->data == '/' ? e->top : "", (const char *)e->c->data);
	link.link = rcp_span_str(to);
	then.link = rcp_span_str("l");
	if (!evil_session(e))
		return;
	evil_name(e, &link);
	evil_act(e);
	while (!e->entries[0].ended && evil_get(e))
		;
	id = evil_name(e, &then);
	if (then.type == RCP_ENTRY_FILE && evil_answered(e, id))
		evil_bundle(e, &id, 1, 0);
	evil_finish_source(e);
}

/* A link that leads to where the source has no business, though within the target; named by the way it lies, or as asked. */
static void within_link(struct evil *e)
{
	struct rcp_rec_entry dir = evil_entry(RCP_ENTRY_DIR, "d", 0), link = evil_entry(RCP_ENTRY_SYMLINK, "d/l", 0);
	struct rcp_rec_entry sub = evil_entry(RCP_ENTRY_DIR, "d/l", 0), f = evil_entry(RCP_ENTRY_FILE, "d/l/old", 10);
	uint32_t id;

	link.link = rcp_span_str("..");
	sub.flags = (uint8_t)e->c->arg;
	if (!evil_session(e))
		return;
	evil_act(e);
	evil_name(e, &dir);
	id = evil_name(e, &link);
	while (!e->entries[id].ended && evil_get(e))
		;
	if (e->c->arg)
		evil_name(e, &sub);
	id = evil_name(e, &f);
	if (evil_answered(e, id))
		evil_bundle(e, &id, 1, 0);
	evil_finish_source(e);
}

/* The link was there before: target/link -> ../outside. */
static void through_old_link(struct evil *e)
{
	struct rcp_rec_entry rec = evil_entry((uint8_t)e->c->arg, e->c->data, e->c->arg == RCP_ENTRY_FILE ? 10 : 0);
	uint32_t id;

	if (rec.type == RCP_ENTRY_HARDLINK) {
		rec = evil_entry(RCP_ENTRY_HARDLINK, "h", 0);
		rec.link = rcp_span_str(e->c->data);
	}
	if (!evil_session(e))
		return;
	evil_act(e);
	id = evil_name(e, &rec);
	if (rec.type == RCP_ENTRY_FILE && evil_answered(e, id))
		evil_bundle(e, &id, 1, 0);
	evil_finish_source(e);
}

/* The directory becomes a link between its name and what is in it. */
static void dir_then_link(struct evil *e)
{
	struct rcp_rec_entry d = evil_entry(RCP_ENTRY_DIR, "d", 0), l = evil_entry(RCP_ENTRY_SYMLINK, "d", 0);
	uint32_t id;

	l.link = rcp_span_str("../outside");
	if (!evil_session(e))
		return;
	evil_act(e);
	evil_name(e, &d);
	evil_name(e, &l);
	while (!e->entries[1].ended && evil_get(e))
		;
	id = evil_name_file(e, "d/small", EVIL_SMALL_BYTES);
	if (evil_answered(e, id))
		evil_bundle(e, &id, 1, 0);
	evil_finish_source(e);
}

static void await_end(struct evil *e, uint32_t id)
{
	while (!e->entries[id].ended && evil_get(e))
		;
}

/* A link as a name that was asked for, then a directory of that name, and a file through it. arg: its flags. */
static void link_then_dir(struct evil *e)
{
	struct rcp_rec_entry link = evil_entry(RCP_ENTRY_SYMLINK, "l", 0), dir = evil_entry(RCP_ENTRY_DIR, "l", 0);
	struct rcp_rec_entry end = evil_entry(RCP_ENTRY_DIR_END, "l", 0);
	uint32_t id;

	link.link = rcp_span_str("dir");
	dir.flags = end.flags = (uint8_t)e->c->arg;
	if (!evil_session(e))
		return;
	evil_act(e);
	await_end(e, evil_name(e, &link));
	evil_name(e, &dir);
	id = evil_name_file(e, "l/small", EVIL_SMALL_BYTES);
	if (evil_answered(e, id))
		evil_bundle(e, &id, 1, 0);
	evil_name(e, &end);
	evil_finish_source(e);
}

/* The user has a link "in" to a directory, which is named as a directory with a file in it. */
static bool small_by_users_link(struct evil *e, const struct rcp_rec_entry *dir)
{
	char path[600];
	uint32_t id;

	snprintf(path, sizeof(path), "%s/w/target/in", e->top);
	if (symlink("dir", path) < 0 || !evil_session(e))
		return false;
	evil_act(e);
	evil_name(e, dir);
	id = evil_name_file(e, "in/small", EVIL_SMALL_BYTES);
	if (evil_answered(e, id))
		evil_bundle(e, &id, 1, 0);
	return true;
}

/* The user's link, entered as a directory, then a link in its place: files that are named may not have been opened yet. */
static void dir_then_top_link(struct evil *e)
{
	struct rcp_rec_entry dir = evil_entry(RCP_ENTRY_DIR, "in", 0), end = evil_entry(RCP_ENTRY_DIR_END, "in", 0);
	struct rcp_rec_entry link = evil_entry(RCP_ENTRY_SYMLINK, "in", 0);
	char path[600], to[8] = "";

	snprintf(path, sizeof(path), "%s/w/target/in", e->top);
	link.link = rcp_span_str(".");
	if (!small_by_users_link(e, &dir))
		return;
	evil_name(e, &end);
	evil_name(e, &link);
	evil_finish_source(e);
	if (readlink(path, to, sizeof(to) - 1) < 0 || strcmp(to, "dir") != 0)
		evil_note(e, "broken", "the user's link was replaced");
}

/* A hard link within a directory that was asked for, its first name outside of that, by a link. */
static void hard_link_by_link(struct evil *e)
{
	struct rcp_rec_entry dir = evil_entry(RCP_ENTRY_DIR, "d", 0), link = evil_entry(RCP_ENTRY_SYMLINK, "d/l", 0);
	struct rcp_rec_entry hard = evil_entry(RCP_ENTRY_HARDLINK, "d/h", 0), end = evil_entry(RCP_ENTRY_DIR_END, "d", 0);

	link.link = rcp_span_str("..");
	hard.link = rcp_span_str("d/l/keep");
	if (!evil_session(e))
		return;
	evil_act(e);
	evil_name(e, &dir);
	await_end(e, evil_name(e, &link));
	evil_name(e, &hard);
	evil_name(e, &end);
	evil_finish_source(e);
}

/* The user's link is a directory that was asked for: hard links below it are made, as elsewhere. */
static void hard_link_honest(struct evil *e)
{
	struct rcp_rec_entry dir = evil_entry(RCP_ENTRY_DIR, "in", 0), hard = evil_entry(RCP_ENTRY_HARDLINK, "in/s/small", 0);
	struct rcp_rec_entry sub = evil_entry(RCP_ENTRY_DIR, "in/s", 0), sub_end = evil_entry(RCP_ENTRY_DIR_END, "in/s", 0);
	struct rcp_rec_entry end = evil_entry(RCP_ENTRY_DIR_END, "in", 0);
	char path[600];

	hard.link = rcp_span_str("in/small");
	if (!small_by_users_link(e, &dir))
		return;
	evil_name(e, &sub);
	evil_name(e, &hard);
	evil_name(e, &sub_end);
	evil_name(e, &end);
	evil_finish_source(e);
	snprintf(path, sizeof(path), "%s/w/target/dir/s/small", e->top);
	if (access(path, F_OK) < 0)
		evil_note(e, "broken", "no hard link was made");
}

/* A link under the target's new name, and where that connection is lost, a file into where it leads. */
static void link_then_retry(struct evil *e)
{
	struct rcp_rec_entry link = evil_entry(RCP_ENTRY_SYMLINK, "l", 0);
	char made[600];
	struct stat st;
	uint32_t id;

	snprintf(made, sizeof(made), "%s/w/target/n", e->top);
	link.link = rcp_span_str("dir");
	if (!evil_session(e))
		return;
	evil_act(e);
	if (lstat(made, &st) < 0) {
		id = evil_name(e, &link);
		while (!e->entries[id].ended && evil_get(e))
			;
		evil_hang_up(e);
		return;
	}
	id = evil_name_file(e, "l", EVIL_SMALL_BYTES);
	if (evil_answered(e, id))
		evil_bundle(e, &id, 1, 0);
	evil_finish_source(e);
}

/* ---- what was not asked for ---- */

/* data: names, by blanks; "d:" in front: a directory. The first may be right. */
static void unasked(struct evil *e)
{
	const char *at = e->c->data;

	if (!evil_session(e))
		return;
	while (*at) {
		bool dir = !strncmp(at, "d:", 2);
		char name[300];
		size_t n = strcspn(at += dir ? 2 : 0, " ");

		snprintf(name, sizeof(name), "%.*s", (int)n, at);
		at += n + strspn(at + n, " ");
		if (!*at)
			evil_act(e);
		struct rcp_rec_entry rec = evil_entry(dir ? RCP_ENTRY_DIR : RCP_ENTRY_FILE, name, dir ? 0 : EVIL_SMALL_BYTES);
		uint32_t id = evil_name(e, &rec);

		if (!dir && evil_answered(e, id))
			evil_bundle(e, &id, 1, 0);
	}
	evil_finish_source(e);
}

/* A name that only the source knows is one name, also after a retry. */
static void another_after_retry(struct evil *e)
{
	struct rcp_rec_entry dir = evil_entry(RCP_ENTRY_DIR, "one", 0), end = evil_entry(RCP_ENTRY_DIR_END, "two", 0);
	char made[600];
	struct stat st;

	snprintf(made, sizeof(made), "%s/w/target/n", e->top);
	if (!evil_session(e))
		return;
	evil_act(e);
	if (lstat(made, &st) < 0) {
		await_end(e, evil_name(e, &dir));
		evil_hang_up(e);
		return;
	}
	dir.path = end.path;
	evil_name(e, &dir);
	evil_name(e, &end);
	evil_finish_source(e);
}

static void no_target(struct evil *e)
{
	char target[600];

	snprintf(target, sizeof(target), "%s/w/target/%s", e->top, (const char *)e->c->data);
	e->start.target = rcp_span_of(target, strlen(target));
	if (!evil_greet(e))
		return;
	evil_act(e);
	if (evil_request(e) && evil_control(e))
		evil_link(e);
	evil_drain(e);
}

/* ---- entries ---- */

static void bad_entry(struct evil *e)
{
	struct rcp_rec_entry rec = evil_entry(RCP_ENTRY_FILE, "f", EVIL_F_BYTES);
	uint32_t id;

	switch (e->c->arg) {
	case 0:
		rec.size = UINT64_C(1) << 63;
		break;
	case 1:
		rec.size = INT64_MAX;
		break;
	case 2:
		rec.size = UINT64_MAX;
		break;
	case 3:
		rec.mtime_ns = 1000000000;
		break;
	case 4:
		rec.size = INT64_MAX;
		rec.flags |= RCP_ENTRY_SPARSE;
		break;
	case 5:
		rec.type = RCP_ENTRY_SYMLINK;
		rec.link = rcp_span_str("../outside");
		break;
	case 6:
		rec.type = RCP_ENTRY_CHR;
		rec.rdev = 0x103;
		break;
	case 7:
		rec.type = RCP_ENTRY_HARDLINK;
		rec.link = rcp_span_str("keep");
		break;
	case 8:
		rec.type = RCP_ENTRY_FIFO;
		break;
	case 9:
		rec.xattrs = rcp_span_str("no records");
		break;
	case 10: /* 64 TiB of chunks of 64 KiB: as many as there may be */
		rec.size = UINT64_C(64) << 40;
		break;
	case 11:
		rec.mode = 0xffffffff;
		break;
	case 12:
		rec.mtime_s = (uint64_t)INT64_MIN;
		break;
	default:
		rec.type = (uint8_t)e->c->arg;
	}
	if (!evil_session(e))
		return;
	evil_act(e);
	id = evil_name(e, &rec);
	if (rec.type == RCP_ENTRY_FILE && rec.size == EVIL_F_BYTES && evil_answered(e, id))
		evil_send_file(e, id);
	evil_finish_source(e);
}

/* A file of nothing but a hole, as large as may be. */
static void all_hole(struct evil *e)
{
	struct rcp_rec_entry rec = evil_entry(RCP_ENTRY_FILE, "f", (uint64_t)e->c->arg << 40);
	uint32_t id;

	rec.flags |= RCP_ENTRY_SPARSE;
	if (!evil_session(e))
		return;
	evil_act(e);
	id = evil_name(e, &rec);
	if (evil_answered(e, id))
		evil_end_entry(e, id, (uint64_t)e->c->len);
	evil_finish_source(e);
}

static void say_entries(struct evil *e, uint32_t first, uint32_t count, const char *name, size_t cut)
{
	struct rcp_rec_entry rec = evil_entry(RCP_ENTRY_FILE, name ? name : "f", EVIL_SMALL_BYTES);
	struct rcp_wr w = {.max = 65536};

	if (name)
		rcp_rec_encode(&w, RCP_REC_ENTRY, &rec);
	evil_say(e, RCP_MSG_ENTRIES,
		 &(struct rcp_msg_entries){.first = first, .count = count, .entries = rcp_span_of(w.data, w.len - cut)});
	rcp_wr_free(&w);
}

/* Each within what one may have, and none of them gets its data. */
static void large_entries(struct evil *e)
{
	struct rcp_rec_entry rec = evil_entry(RCP_ENTRY_FILE, "f", EVIL_SMALL_BYTES);
	struct rcp_wr w = {.max = 250000};
	uint8_t *blob = calloc(1, 200000);

	if (!blob || !evil_session(e))
		return;
	rec.xattrs = rcp_span_of(blob, 200000);
	rcp_rec_encode(&w, RCP_REC_ENTRY, &rec);
	evil_act(e);
	for (uint32_t i = 0; i < 4000 && !e->gone; i++)
		evil_say(e, RCP_MSG_ENTRIES,
			 &(struct rcp_msg_entries){.first = i, .count = 1, .entries = rcp_span_of(w.data, w.len)});
	rcp_wr_free(&w);
	free(blob);
	evil_drain(e);
}

static void bad_entries(struct evil *e)
{
	if (!evil_session(e))
		return;
	evil_act(e);
	switch (e->c->arg) {
	case 0:
		say_entries(e, 1, 1, "f", 0);
		break;
	case 1:
		say_entries(e, 0, 2, "f", 0);
		break;
	case 2:
		say_entries(e, 0, 0, "f", 0);
		break;
	case 3:
		say_entries(e, 0, UINT32_MAX, "f", 0);
		break;
	case 4:
		say_entries(e, 0, 1, "f", 3);
		break;
	case 5:
		say_entries(e, 0, 1, "f", 0);
		say_entries(e, 0, 1, "f", 0);
		break;
	case 6:
		evil_walk_end(e);
		say_entries(e, 0, 1, "f", 0);
		break;
	case 7: /* none, for ever */
		for (int i = 0; i < 100000 && !e->gone; i++)
			say_entries(e, 0, 0, NULL, 0);
		break;
	case 8: /* more open than may be */
		for (uint32_t i = 0; i < 20000 && !e->gone; i++)
			say_entries(e, i, 1, "f", 0);
		break;
	}
	evil_drain(e);
}

/* Results that came since, of an entry each or of runs. */
static uint32_t results_in(const struct evil *e)
{
	struct rcp_rd rd = rcp_rd_of(e->msg.results_.results.data, e->msg.results_.results.len);
	struct rcp_rec_result r;
	uint32_t n = 0;

	while (e->msg.type == RCP_MSG_RESULTS && rcp_rec_next(&rd, RCP_REC_RESULT, &r) > 0)
		n += r.count;
	return n;
}

#define DEEP 12

/* In a directory that can't be made, as there is a file: 40000 names of 3 KB that are left out and may have other names. */
static void many_failed(struct evil *e)
{
	struct rcp_rec_entry rec = evil_entry(RCP_ENTRY_DIR, "keep", 0);
	static char path[DEEP * 256 + 64];
	size_t len = 4, at[DEEP + 1] = {4};
	uint32_t ended = 0;

	if (!evil_session(e))
		return;
	evil_act(e);
	evil_name(e, &rec);
	memcpy(path, "keep", len);
	for (int i = 1; i <= DEEP; i++, at[i - 1] = len) {
		path[len++] = '/';
		memset(path + len, 'd', 250);
		len += 250;
		rec = evil_entry(RCP_ENTRY_DIR, path, 0);
		evil_name(e, &rec);
	}
	for (uint32_t i = 0; i < 40000; i++) {
		snprintf(path + len, 32, "/%u", i);
		rec = evil_entry(RCP_ENTRY_FILE, path, 10);
		rec.ino = 1000 + (uint64_t)i * 7919;
		evil_name(e, &rec);
		while (e->next_entry - ended > 1000) {
			if (!evil_get(e))
				return;
			ended += results_in(e);
		}
	}
	for (int i = DEEP; i >= 0; i--) {
		path[at[i]] = 0;
		rec = evil_entry(RCP_ENTRY_DIR_END, path, 0);
		evil_name(e, &rec);
	}
	evil_finish_source(e);
}

#define ALL_LINKS (EVIL_PIPE | EVIL_TCP | EVIL_SEALED)
#define BROKE "broke the protocol"
#define NAME(n, text, word, ...) {n, bad_name, 3, word, .data = text, .len = sizeof(text) - 1, __VA_ARGS__}

const struct evil_case evil_source_cases[] = {
	{"honest", honest, 0, NULL, ALL_LINKS, .want = "f small", .opts = "d", .made = "f small"},

	NAME("name: ..", "..", "\".\" or \"..\""),
	NAME("name: .", ".", "\".\" or \"..\""),
	NAME("name: ../x", "../x", "\".\" or \"..\""),
	NAME("name: a/../../b", "a/../../b", "\".\" or \"..\""),
	NAME("name: f/..", "f/..", "\".\" or \"..\""),
	NAME("name: absolute", "/etc/rcp-evil", "empty component"),
	NAME("name: // in it", "f//x", "empty component"),
	NAME("name: a slash at its end", "f/", "empty component"),
	{"name: empty", bad_name, 3, "it is empty", .data = ""},
	NAME("name: NUL", "f\0x", "malformed"),
	NAME("name: a directory ..", "..", "\".\" or \"..\"", .arg = RCP_ENTRY_DIR, .opts = "r"),
	NAME("name: an end of ..", "..", "\".\" or \"..\"", .arg = RCP_ENTRY_DIR_END, .opts = "r"),
	NAME("name: an end of the target, not asked for", ".", "\".\" or \"..\"", .arg = RCP_ENTRY_DIR_END, .opts = "r"),
	{"name: 256 bytes", long_component, 3, "255 bytes", .arg = 256},
	{"name: over 4096 bytes", long_path, 3, "malformed"},
	{"name: a journal's", bad_name, 1, "own partial files", .data = ".f.rcp-journal", .want = ".f.rcp-journal"},
	{"name: a partial file's", bad_name, 1, "own partial files", .data = ".f.rcp-part", .want = ".f.rcp-part"},
	{"name: a list's", bad_name, 1, "own partial files", .data = ".f.rcp-done", .want = ".f.rcp-done"},
	{"name: a mark's", bad_name, 1, "own partial files", .data = ".f.rcp-new", .want = ".f.rcp-new"},
	{"name: a directory that is a journal", bad_name, 1, "own partial files", .data = ".f.rcp-journal",
	 .want = ".f.rcp-journal", .arg = RCP_ENTRY_DIR, .opts = "r"},
	{"name: terminal escapes, done", bad_name, 0, NULL, .data = "\033[31mx\007", .want = "\033[31mx\007", .made = "\033[31mx\007"},
	{"name: terminal escapes, failed", bad_name, 1, "own partial files", .data = ".\033[31m\r\xc2\x9b.rcp-part",
	 .want = ".\033[31m\r\xc2\x9b.rcp-part"},

	{"a link within the target, then a file through it", within_link, 3, "out of its directory", .want = "d", .opts = "ra", .made = "d d/l"},
	{"the same, the link named as a top directory", within_link, 3, "out of its directory", .arg = RCP_ENTRY_TOP, .want = "d", .opts = "ra",
	 .made = "d d/l"},
	{"the same, the link named as on the way", within_link, 3, "out of its directory", .arg = RCP_ENTRY_WAY, .want = "d", .opts = "ra",
	 .made = "d d/l"},
	{"link, then a file through it", through_link, 3, "l/x", .data = "../outside", .arg = RCP_ENTRY_FILE, .want = "l", .opts = "a", .made = "l"},
	{"absolute link, then a file through it", through_link, 3, "l/x", .data = "/w/outside", .arg = RCP_ENTRY_FILE, .want = "l", .opts = "a", .made = "l"},
	{"link to /, then a file through it", through_link, 3, "l/x", .data = "../../../../../../../../../../", .arg = RCP_ENTRY_FILE, .want = "l", .opts = "a", .made = "l"},
	{"link, then a directory through it", through_link, 3, "l/x", .data = "../outside", .arg = RCP_ENTRY_DIR, .want = "l", .opts = "a", .made = "l"},
	{"link, then a FIFO through it", through_link, 3, "l/x", .data = "../outside", .arg = RCP_ENTRY_FIFO, .want = "l", .opts = "a", .made = "l"},
	{"link, then a hard link through it", through_link, 3, "l/x", .data = "../outside", .arg = RCP_ENTRY_HARDLINK, .want = "l", .opts = "a", .made = "l"},
	{"link, then the end of a directory through it", through_link, 3, "l/x", .data = "../outside/dir/..", .arg = RCP_ENTRY_DIR_END, .want = "l", .opts = "a", .made = "l"},
	{"an old link, a file through it", through_old_link, 1, "link/x", .data = "link/x", .arg = RCP_ENTRY_FILE, .want = "link", .opts = "r"},
	{"an old link, the secret through it", through_old_link, 1, "link/secret", .data = "link/secret", .arg = RCP_ENTRY_FILE, .want = "link", .opts = "r"},
	{"an old link as a directory", through_old_link, 1, "link", .data = "link", .arg = RCP_ENTRY_DIR, .want = "link", .opts = "r"},
	{"an old link, its end as a directory", through_old_link, 3, "link", .data = "link", .arg = RCP_ENTRY_DIR_END, .want = "link", .opts = "a"},
	{"a hard link to the secret by an old link", through_old_link, 1, "h", .data = "link/secret", .arg = RCP_ENTRY_HARDLINK, .want = "h link", .opts = "ad"},
	{"a hard link to ../outside/secret", through_old_link, 3, "\".\" or \"..\"", .data = "../outside/secret", .arg = RCP_ENTRY_HARDLINK, .want = "h", .opts = "a"},
	{"a directory, then a link in its place", dir_then_link, 3, "d", .want = "d", .opts = "a", .made = "d d/small"},

	{"a link, then a directory of its name", link_then_dir, 0, NULL, EVIL_R, .arg = RCP_ENTRY_TOP, .want = "l", .opts = "a", .made = "l l/small"},
	{"a link, then a directory of its name within the target itself", link_then_dir, 3, "out of its directory", EVIL_R, .arg = RCP_ENTRY_TOP | RCP_ENTRY_INSIDE, .want = "l .",
	 .opts = "a", .made = "l"},
	{"a link, then a directory of its name on the way", link_then_dir, 0, NULL, EVIL_R, .arg = RCP_ENTRY_WAY, .want = "l l/small", .opts = "al",
	 .made = "l l/small"},
	{"a link under a new name, then a directory of the same", link_then_dir, 1, "several sources", EVIL_R, .arg = RCP_ENTRY_TOP, .want = "l", .opts = "an",
	 .made = "n"},
	{"a link of the user's is entered, then replaced", dir_then_top_link, 1, "named a directory", EVIL_R, .want = "in", .opts = "a", .made = "?in dir/small"},
	{"a hard link in a directory, its first name out of it by a link", hard_link_by_link, 1, "no hard link", EVIL_R, .want = "d", .opts = "a", .made = "d d/l"},
	{"honest: a hard link below a link of the user's", hard_link_honest, 0, NULL, EVIL_I | EVIL_R, .want = "in", .opts = "ad", .made = "?in dir/small dir/s dir/s/small"},
	{"a link, and a retry into it", link_then_retry, 1, "a directory has this name", EVIL_R, .want = "l", .opts = "an", .made = "n", .lines = 2},

	{"not asked for: another name", unasked, 3, "not asked for", EVIL_R, .data = "g"},
	{"not asked for: .bashrc", unasked, 3, "not asked for", EVIL_R, .data = ".bashrc"},
	{"not asked for: one that is there", unasked, 3, "not asked for", EVIL_R, .data = "old"},
	{"not asked for: a second one", unasked, 3, "not asked for", EVIL_R, .want = "small", .data = "small old", .made = "small"},
	{"not asked for: a pattern does not match", unasked, 3, "not asked for", EVIL_R, .want = "*mall", .data = "small old", .made = "small"},
	{"not asked for: one by an escaped pattern", unasked, 3, "not asked for", EVIL_R, .want = "\\*mall", .data = "small"},
	{"not asked for: a tree", unasked, 3, "not asked for", EVIL_R, .want = "tree", .opts = "r", .data = "d:dir dir/small"},
	{"not asked for: below another directory", unasked, 3, "not asked for", EVIL_R, .want = "tree", .opts = "r", .data = "dir/small"},
	{"not asked for: into a directory that is there", unasked, 3, "not asked for", EVIL_R, .data = "dir/small"},
	{"not asked for: a hidden name for a home", unasked, 3, "not asked for", EVIL_R, .want = "~", .opts = "r", .data = "d:.ssh .ssh/small"},
	{"not asked for: a second name for a home", unasked, 3, "not asked for", EVIL_R, .want = "~", .data = "small old", .made = "small"},
	{"not asked for: a second name for a home, after a retry", another_after_retry, 6, "not asked for", EVIL_R, .want = "~", .opts = "rn", .made = "n",
	 .lines = 2},
	{"a directory without -r", unasked, 3, "not asked for", EVIL_I | EVIL_R, .data = "d:f"},
	{"below a file without -r", unasked, 3, "not asked for", EVIL_I | EVIL_R, .data = "f/small"},
	{"a symbolic link without -a", bad_entry, 3, "not asked for", .arg = 5},
	{"a device without -a", bad_entry, 3, "not asked for", .arg = 6},
	{"a hard link without -a", bad_entry, 3, "not asked for", .arg = 7},
	{"a FIFO without -a", bad_entry, 3, "not asked for", .arg = 8, .opts = "r"},

	{"size: 2^63", bad_entry, 3, "size", .arg = 0},
	{"size: 2^63 - 1", bad_entry, 5, "too many", .arg = 1},
	{"size: 2^64 - 1", bad_entry, 3, "size", .arg = 2},
	{"size: 2^63 - 1, of holes", bad_entry, 5, "too many", .arg = 4},
	{"size: more than there is room", bad_entry, 5, "room", .arg = 10},
	{"size: 8 TiB of holes", all_hole, 0, NULL, .arg = 8, .made = "f"},
	{"size: 8 TiB of holes, and data that never came", all_hole, 6, "stands still", .arg = 8, .len = 100, .env = "RCP_TEST_STALL_MS=1500"},
	{"times: 10^9 ns", bad_entry, 3, "time", .arg = 3},
	{"times: before the flood", bad_entry, 0, NULL, .arg = 12, .made = "f", .opts = "p"},
	{"mode: all bits", bad_entry, 0, NULL, .arg = 11, .made = "f"},
	{"mode: all bits, with -p", bad_entry, 0, NULL, .arg = 11, .made = "f", .opts = "p"},
	{"type: 0", bad_entry, 3, "unknown type", .arg = 256},
	{"type: 10", bad_entry, 3, "unknown type", .arg = 266},
	{"type: 255", bad_entry, 3, "unknown type", .arg = 511},
	{"xattrs: malformed", bad_entry, 3, BROKE, .arg = 9, .opts = "a"},

	{"a target in a directory that is not there", no_target, 1, "directory", EVIL_I, .data = "a/b/c"},
	{"a target below a file", no_target, 1, NULL, EVIL_I, .data = "keep/b"},

	{"entries: begin at 1", bad_entries, 3, BROKE, .arg = 0},
	{"entries: fewer than said", bad_entries, 3, BROKE, .arg = 1},
	{"entries: more than said", bad_entries, 3, BROKE, .arg = 2},
	{"entries: 2^32 - 1 said", bad_entries, 3, BROKE, .arg = 3},
	{"entries: cut off", bad_entries, 3, BROKE, .arg = 4},
	{"entries: a number twice", bad_entries, 3, BROKE, .arg = 5},
	{"entries: after their end", bad_entries, 3, BROKE, .arg = 6},
	{"entries: none, for ever", bad_entries, 3, BROKE, .arg = 7},
	{"entries: 20000 at once", bad_entries, 3, "too many", .arg = 8},
	{"entries: 800 MB at once", large_entries, 3, "too many"},

	{"entries: 40000 that fail", many_failed, 1, "left out", EVIL_I, .opts = "a", .lines = -1, .most_kib = 64 << 10},
	{0},
};
