/* An evil sink against a source: answers, re-sends, credits, rings, results, verdicts. */
#include "evil.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* All that was named, honestly. */
static void finish(struct evil *e)
{
	if (!evil_heard(e))
		return;
	for (uint32_t i = 0; i < e->next_entry && !e->aborted; i++) {
		if (e->entries[i].type == RCP_ENTRY_FILE && !e->entries[i].ended && !evil_take_file(e, i))
			return;
		if (!e->entries[i].ended)
			evil_result(e, i, 1, RCP_STATUS_OK, 0, "");
	}
	evil_finish_sink(e);
}

static void honest(struct evil *e)
{
	if (!evil_session(e))
		return;
	evil_act(e);
	finish(e);
}

/* ---- answers ---- */

static size_t range(uint8_t *at, uint64_t offset, uint64_t length)
{
	rcp_put_u64(at, offset);
	rcp_put_u64(at + 8, length);
	return 16;
}

static void bad_answer(struct evil *e)
{
	uint8_t have[64];
	size_t n = 0;

	if (!evil_begin_sink(e))
		return;
	switch (e->c->arg) {
	case 0:
		evil_answer(e, 7, 1, NULL, 0);
		break;
	case 1:
		evil_answer(e, 0, 1, NULL, 0);
		evil_answer(e, 0, 1, NULL, 0);
		break;
	case 2:
		evil_answer(e, 0, UINT32_MAX, NULL, 0);
		break;
	case 3:
		evil_answer(e, UINT32_MAX, 2, NULL, 0);
		break;
	case 4:
		evil_answer(e, 0, 1, "short", 5);
		break;
	case 5: /* a directory's */
		evil_answer(e, 0, 1, NULL, 0);
		break;
	case 6:
		n = range(have, 0, EVIL_F_BYTES + 1);
		break;
	case 7:
		n = range(have, UINT64_MAX - 10, 20);
		break;
	case 8:
		n = range(have, EVIL_CHUNK, 0);
		break;
	case 9:
		n = range(have, EVIL_CHUNK, EVIL_CHUNK);
		n += range(have + n, 0, EVIL_CHUNK);
		break;
	case 10:
		n = range(have, 0, 2 * EVIL_CHUNK);
		n += range(have + n, EVIL_CHUNK, EVIL_CHUNK);
		break;
	case 11: /* off the grid */
		n = range(have, 0, 100);
		break;
	case 12: /* over the border of two mappings, off the grid: what is behind the first one? */
		n = range(have, 0, (16 << 20) - 100);
		break;
	case 13:
		evil_say(e, RCP_MSG_ANSWERS, &(struct rcp_msg_answers){.answers = rcp_span_of("xyz", 3)});
		break;
	}
	if (n)
		evil_answer(e, 0, 1, have, n);
	while (evil_get(e) && e->msg.type == RCP_MSG_CHUNK)
		;
	evil_drain(e);
}

/* It is all there, it says. */
static void has_all(struct evil *e)
{
	uint8_t have[16];

	if (!evil_begin_sink(e))
		return;
	evil_answer(e, 0, 1, have, range(have, 0, EVIL_F_BYTES));
	evil_await(e, RCP_MSG_ENTRY_END);
	evil_result(e, 0, 1, RCP_STATUS_OK, 0, "");
	evil_finish_sink(e);
}

/* ---- re-sends ---- */

static void say_again(struct evil *e, uint32_t entry, uint64_t offset, uint32_t length)
{
	evil_say(e, RCP_MSG_AGAIN, &(struct rcp_msg_again){.entry = entry, .attempt = 1, .offset = offset, .length = length});
}

static void bad_again(struct evil *e)
{
	if (!evil_session(e) || !evil_heard(e) || (e->c->arg != 8 && !evil_take_file(e, 0)))
		return;
	evil_act(e);
	switch (e->c->arg) {
	case 0:
		say_again(e, 7, 0, EVIL_CHUNK);
		break;
	case 1:
		say_again(e, 0, 4096, EVIL_CHUNK);
		break;
	case 2:
		say_again(e, 0, 3 * EVIL_CHUNK, EVIL_CHUNK);
		break;
	case 3:
		say_again(e, 0, 2 * EVIL_CHUNK, EVIL_CHUNK);
		break;
	case 4:
		say_again(e, 0, 0, 0);
		break;
	case 5:
		say_again(e, 0, UINT64_MAX - EVIL_CHUNK + 1, EVIL_CHUNK);
		break;
	case 6:
		say_again(e, UINT32_MAX, 0, EVIL_CHUNK);
		break;
	case 7: /* many at once */
		for (int i = 0; i < 70000 && !e->gone; i++)
			say_again(e, 0, 0, EVIL_CHUNK);
		break;
	case 8: /* of a directory */
		say_again(e, 0, 0, EVIL_CHUNK);
		break;
	case 9: /* the same, for ever */
		for (int i = 0; i < 2000 && !e->gone && !e->aborted; i++) {
			say_again(e, 0, 0, EVIL_CHUNK);
			if (!evil_take(e))
				break;
			evil_credit(e, e->chunk_slot);
		}
		break;
	case 10: /* of one that has its result */
		evil_result(e, 0, 1, RCP_STATUS_OK, 0, "");
		say_again(e, 0, 0, EVIL_CHUNK);
		evil_finish_sink(e);
		break;
	}
	evil_drain(e);
}

/* ---- credits ---- */

static void credit_words(struct evil *e, const void *words, size_t len)
{
	if (e->link == EVIL_PIPE)
		evil_say(e, RCP_MSG_CREDIT, &(struct rcp_msg_credit){.slots = rcp_span_of(words, len)});
	else if (evil_is_rdma(e))
		for (size_t i = 0; i + 4 <= len && !e->aborted; i += 4)
			evil_credit(e, rcp_imm_slot(rcp_get_u32((const uint8_t *)words + i)));
	else
		evil_data(e, words, len);
}

static void bad_credit(struct evil *e)
{
	uint8_t words[4 * 4096];

	if (!evil_session(e) || !evil_heard(e))
		return;
	if (e->c->arg != 0) {
		evil_answer(e, 0, 1, NULL, 0);
		if (!evil_take(e))
			return;
	}
	evil_act(e);
	for (uint32_t i = 0; i < 4096; i++)
		rcp_put_u32(words + (size_t)4 * i, e->link == EVIL_PIPE ? i : rcp_imm(i, e->ring.generation));
	switch (e->c->arg) {
	case 0: /* none is out */
		evil_credit(e, 0);
		break;
	case 1:
		evil_credit(e, EVIL_SLOTS);
		break;
	case 2: /* more often than the file has chunks: a slot may be out again at once */
		for (uint32_t i = 0; i < 4096; i++)
			memcpy(words + (size_t)4 * i, words + (size_t)4 * e->chunk_slot, 4);
		credit_words(e, words, sizeof(words));
		break;
	case 3: /* the whole ring and beyond */
		credit_words(e, words, sizeof(words));
		break;
	case 4:
		memset(words, 0xff, 4);
		credit_words(e, words, 4);
		break;
	case 5:
		credit_words(e, words, 3);
		if (e->link != EVIL_PIPE)
			evil_hang_up(e);
		break;
	case 6:
		e->ring.generation++;
		evil_credit(e, e->chunk_slot);
		break;
	}
	evil_drain(e);
}

/* Takes a chunk and gives no credit, but lives. arg 1: and says that it is at work; 2: it asks for nothing. */
static void no_credit(struct evil *e)
{
	if (!evil_begin_sink(e))
		return;
	e->busy = e->c->arg == 1;
	if (e->c->arg != 2)
		evil_answer(e, 0, 1, NULL, 0);
	evil_drain(e);
}

/* Says that it lives, and takes nothing off the wire. */
static void reads_nothing(struct evil *e)
{
	struct rcp_wr w = {.max = 64};

	if (!evil_begin_sink(e))
		return;
	evil_answer(e, 0, 1, NULL, 0);
	while (!e->gone && evil_now() < e->until_ns) {
		evil_say(e, RCP_MSG_PING, &(struct rcp_msg_ping){.token = 0});
		struct timespec pause = {.tv_nsec = 200000000};

		nanosleep(&pause, NULL);
	}
	rcp_wr_free(&w);
}

/* ---- rings ---- */

static void bad_ring(struct evil *e)
{
	struct rcp_msg_link_ring m = {.link = 1,
				      .slots = EVIL_SLOTS,
				      .slot_bytes = 4096 + EVIL_CHUNK,
				      .chunk_bytes = EVIL_CHUNK,
				      .generation = 1};

	if (!evil_boot(e) || !evil_caps(e) || !evil_try(e) || !evil_connect(e))
		return;
	m.link = e->link_id;
	if (e->initiator)
		evil_say(e, RCP_MSG_LINK_USE, &(struct rcp_msg_link_use){.link = m.link,
									 .kind = evil_kind(e),
									 .slots = EVIL_SLOTS,
									 .chunk_bytes = EVIL_CHUNK});
	else if (!evil_await(e, RCP_MSG_LINK_USE))
		return;
	evil_act(e);
	switch (e->c->arg) {
	case 0:
		m.slots = 0;
		break;
	case 1:
		m.slots = UINT32_MAX;
		break;
	case 2:
		m.chunk_bytes = 4096;
		break;
	case 3:
		m.chunk_bytes = 0x80000000;
		m.slot_bytes = 0x80001000;
		break;
	case 4:
		m.slot_bytes = EVIL_CHUNK;
		break;
	case 5:
		m.addr = UINT64_MAX - 4096;
		break;
	case 6:
		m.link = 77; /* the right one never comes */
		break;
	case 8:
		m.generation = 0;
		break;
	case 9:
		m.slots++;
		break;
	}
	evil_say(e, RCP_MSG_LINK_RING, &m);
	if (e->c->arg == 7)
		evil_say(e, RCP_MSG_LINK_RING, &m);
	evil_drain(e);
}

/* ---- results and verdicts ---- */

static void bad_result(struct evil *e)
{
	if (!evil_session(e) || !evil_heard(e) || !evil_take_file(e, 0))
		return;
	evil_act(e);
	switch (e->c->arg) {
	case 13:
		evil_result(e, 0, 1, RCP_STATUS_LEFT_OUT, 0, "");
		break;
	case 0:
		evil_result(e, 7, 1, RCP_STATUS_OK, 0, "");
		break;
	case 1:
		evil_result(e, 0, UINT32_MAX, RCP_STATUS_OK, 0, "");
		break;
	case 2:
		evil_result(e, 0, 2, RCP_STATUS_OK, 0, "");
		break;
	case 3:
		evil_result(e, 0, 1, RCP_STATUS_LEFT_OUT + 1, 0, "");
		break;
	case 4:
		evil_result(e, 0, 1, RCP_STATUS_OK, 0, "");
		evil_result(e, 0, 1, RCP_STATUS_OK, 0, "");
		break;
	case 5:
		evil_say(e, RCP_MSG_RESULTS, &(struct rcp_msg_results){.results = rcp_span_of("abc", 3)});
		break;
	case 6:
		evil_say_verdict(e, 0);
		break;
	case 7:
		evil_result(e, 0, 1, RCP_STATUS_OK, 0, "");
		evil_say_verdict(e, 200);
		break;
	case 8: /* it failed, and all is well */
		evil_result(e, 0, 1, RCP_STATUS_FAILED, 5, "the disk is full");
		evil_say_verdict(e, 0);
		break;
	case 9:
		evil_result(e, 0, 1, RCP_STATUS_OK, 0, "");
		evil_say_verdict(e, 1);
		break;
	case 10:
		evil_result(e, 0, 1, RCP_STATUS_OK, 0, "");
		evil_say_verdict(e, 0);
		evil_say_verdict(e, 1);
		break;
	case 11:
		evil_result(e, 0, 1, RCP_STATUS_FAILED, 0, "");
		evil_say_verdict(e, 1);
		break;
	case 12: /* a hostile exit status */
		evil_result(e, 0, 1, RCP_STATUS_FAILED, 130, "interrupted, it says");
		evil_say_verdict(e, 130);
		break;
	}
	evil_drain(e);
}

/* Of a file that it never asked for; the other one under way goes on. */
static void result_unasked(struct evil *e)
{
	if (!evil_begin_sink(e))
		return;
	evil_answer(e, 0, 1, NULL, 0);
	if (!evil_take(e))
		return;
	evil_result(e, 0, 1, RCP_STATUS_FAILED, 1, "changed my mind");
	evil_say_verdict(e, 1);
	evil_drain(e);
}

/* ---- words ---- */

static const char ugly[] = "\033]0;owned\007\033[2J\r\n\xc2\x9b" "31m\x7f";

static void escapes(struct evil *e)
{
	struct rcp_span s = rcp_span_str(ugly);
	struct rcp_rec_result rec = {.count = 1, .status = RCP_STATUS_FAILED, .code = 1, .call = s, .object = s, .text = s, .fix = s};
	struct rcp_wr w = {.max = 65536};

	if (!evil_begin_sink(e))
		return;
	if (e->c->arg == 0) {
		rcp_rec_encode(&w, RCP_REC_RESULT, &rec);
		evil_say(e, RCP_MSG_RESULTS, &(struct rcp_msg_results){.results = rcp_span_of(w.data, w.len)});
		evil_say_verdict(e, 1);
	} else if (e->c->arg == 1) {
		evil_say(e, RCP_MSG_ABORT, &(struct rcp_msg_abort){.code = 5, .call = s, .object = s, .text = s, .fix = s});
	} else {
		evil_say(e, RCP_MSG_NOTE, &(struct rcp_msg_note){.level = 0, .text = s});
		finish(e);
	}
	rcp_wr_free(&w);
	evil_drain(e);
}

static void flood(struct evil *e)
{
	if (!evil_begin_sink(e))
		return;
	for (int i = 0; i < 200000 && !e->gone && !e->aborted; i++) {
		if (e->c->arg == 0)
			evil_say(e, RCP_MSG_PING, &(struct rcp_msg_ping){.token = 0});
		else if (e->c->arg == 1)
			evil_say(e, RCP_MSG_ANSWERS, &(struct rcp_msg_answers){0});
		else if (e->c->arg == 2)
			evil_say(e, RCP_MSG_RESULTS, &(struct rcp_msg_results){0});
		else if (e->c->arg == 3)
			evil_say(e, RCP_MSG_CREDIT, &(struct rcp_msg_credit){0});
		else
			evil_say(e, RCP_MSG_NOTE, &(struct rcp_msg_note){.level = 0, .text = rcp_span_str("a \033[31mline\r\n")});
	}
	finish(e);
}

static void hangs_up(struct evil *e)
{
	if (!evil_begin_sink(e))
		return;
	evil_answer(e, 0, 1, NULL, 0);
	if (e->c->arg == 0) {
		evil_take(e);
	} else if (e->c->arg == 1) {
		evil_raw(e, "\0\0\0\x10\0", 5);
	} else {
		while (!e->posted && evil_take(e))
			evil_credit(e, e->chunk_slot);
	}
	evil_hang_up(e);
}

/* The link alone goes, again and again. */
static void link_fails(struct evil *e)
{
	if (!evil_begin_sink(e))
		return;
	for (int i = 0; i < 100 && !e->gone && !e->aborted; i++)
		evil_say(e, RCP_MSG_LINK_FAIL, &(struct rcp_msg_link_fail){.link = e->link_id, .text = rcp_span_str("no")});
	if (e->initiator) /* which may try another, and has some time for it */
		evil_hang_up(e);
	evil_drain(e);
}

/* What it says to have of each of many files, in as many ranges as a message has room for: kept until their results. */
static void have_much(struct evil *e)
{
	struct rcp_wr w = {.max = 1 << 20};
	struct timespec was[2];
	struct stat st;
	char path[600];

	snprintf(path, sizeof(path), "%s/w/src/tree", e->top);
	if (stat(path, &st) < 0)
		return;
	was[0] = st.st_atim;
	was[1] = st.st_mtim;
	for (int i = 0; i < 300; i++) {
		snprintf(path, sizeof(path), "%s/w/src/tree/z%d", e->top, i);
		int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);

		if (fd < 0 || ftruncate(fd, 4ll << 30))
			return;
		close(fd);
	}
	for (uint64_t i = 0; i < (RCP_FRAME_MAX - 200) / 16; i++)
		rcp_rec_encode(&w, RCP_REC_RANGE, &(struct rcp_rec_range){.offset = i * EVIL_CHUNK, .length = EVIL_CHUNK});
	bool begun = evil_begin_sink(e);

	/* 0 tree, 1 f, 2 sub, 3 sub/small, 4 its end; then these */
	for (uint32_t id = 5; begun && id < 305 && !e->gone; id++)
		evil_answer(e, id, 1, w.data, w.len);
	rcp_wr_free(&w);
	evil_drain(e);
	for (int i = 0; i < 300; i++) {
		snprintf(path, sizeof(path), "%s/w/src/tree/z%d", e->top, i);
		unlink(path);
	}
	snprintf(path, sizeof(path), "%s/w/src/tree", e->top);
	utimensat(AT_FDCWD, path, was, 0);
}

#define ALL_LINKS (EVIL_PIPE | EVIL_TCP | EVIL_SEALED)
#define BROKE "broke the protocol"

const struct evil_case evil_sink_cases[] = {
	{"honest", honest, 0, NULL, ALL_LINKS, .want = "f small"},
	{"honest: a tree", honest, 0, NULL, ALL_LINKS, .want = "tree", .opts = "r"},

	{"answer: of no entry", bad_answer, 3, BROKE, .arg = 0},
	{"answer: twice", bad_answer, 3, BROKE, .arg = 1},
	{"answer: 2^32 - 1 entries", bad_answer, 3, BROKE, .arg = 2},
	{"answer: numbers wrap", bad_answer, 3, BROKE, .arg = 3},
	{"answer: ranges cut off", bad_answer, 3, BROKE, .arg = 4},
	{"answer: of a directory", bad_answer, 3, BROKE, .arg = 5, .want = "tree", .opts = "r"},
	{"answer: it has more than there is", bad_answer, 3, BROKE, .arg = 6},
	{"answer: a range wraps", bad_answer, 3, BROKE, .arg = 7},
	{"answer: an empty range", bad_answer, 3, BROKE, .arg = 8},
	{"answer: ranges backwards", bad_answer, 3, BROKE, .arg = 9},
	{"answer: ranges overlap", bad_answer, 3, BROKE, .arg = 10},
	{"answer: a range off the grid", bad_answer, 3, BROKE, .arg = 11},
	{"answer: a range off the grid, over a mapping's end", bad_answer, 3, BROKE, ALL_LINKS, .arg = 12, .want = "big"},
	{"answer: no records", bad_answer, 3, BROKE, .arg = 13},
	{"answer: it has all of it", has_all, 0, NULL},
	{"answer: more ranges than are kept", have_much, 3, "more ranges", 0, .want = "tree", .opts = "r"},

	{"again: of no entry", bad_again, 3, BROKE, .arg = 0},
	{"again: off the grid", bad_again, 3, BROKE, .arg = 1},
	{"again: past the end", bad_again, 3, BROKE, .arg = 2},
	{"again: longer than the last cell", bad_again, 3, BROKE, .arg = 3},
	{"again: nothing", bad_again, 3, BROKE, .arg = 4},
	{"again: offset and length wrap", bad_again, 3, BROKE, .arg = 5},
	{"again: of entry 2^32 - 1", bad_again, 3, BROKE, .arg = 6},
	{"again: 70000 at once", bad_again, 3, BROKE, .arg = 7},
	{"again: of a directory", bad_again, 3, BROKE, .arg = 8, .want = "tree", .opts = "r"},
	{"again: for ever", bad_again, 3, BROKE, ALL_LINKS, .arg = 9},
	{"again: of one that has its result", bad_again, 0, NULL, .arg = 10},

	{"credit: none is out", bad_credit, 3, BROKE, EVIL_PIPE | EVIL_TCP, .arg = 0},
	{"credit: none is out, sealed", bad_credit, 4, "lost or changed", EVIL_SEALED, .arg = 0},
	{"credit: beyond the ring", bad_credit, 3, BROKE, EVIL_PIPE | EVIL_TCP, .arg = 1},
	{"credit: beyond the ring, sealed", bad_credit, 4, "lost or changed", EVIL_SEALED, .arg = 1},
	{"credit: twice", bad_credit, 3, BROKE, EVIL_PIPE | EVIL_TCP, .arg = 2},
	{"credit: twice, sealed", bad_credit, 4, "lost or changed", EVIL_SEALED, .arg = 2},
	{"credit: the ring and beyond, at once", bad_credit, 3, BROKE, EVIL_PIPE | EVIL_TCP, .arg = 3},
	{"credit: the ring and beyond, at once, sealed", bad_credit, 4, "lost or changed", EVIL_SEALED, .arg = 3},
	{"credit: of slot 65535", bad_credit, 3, BROKE, EVIL_PIPE | EVIL_TCP, .arg = 4},
	{"credit: of slot 65535, sealed", bad_credit, 4, "lost or changed", EVIL_SEALED, .arg = 4},
	{"credit: three bytes", bad_credit, 3, BROKE, .arg = 5},
	{"credit: of another generation", bad_credit, 3, BROKE, EVIL_TCP | EVIL_NOT_RDMA, .arg = 6},
	{"gives no credit, and lives", no_credit, 6, "stands still", ALL_LINKS, .env = "RCP_TEST_STALL_MS=1500"},
	{"gives no credit, and says for ever that it is at work", no_credit, 6, "stands still", .arg = 1, .env = "RCP_TEST_STALL_MS=500"},
	{"asks for nothing, and lives", no_credit, 6, "stands still", .arg = 2, .env = "RCP_TEST_STALL_MS=1500"},
	{"reads nothing, and lives", reads_nothing, 6, "stands still", EVIL_R | ALL_LINKS, .env = "RCP_TEST_STALL_MS=1500", .want = "big"},
	{"reads nothing, and lives", reads_nothing, 6, NULL, EVIL_I | ALL_LINKS, .env = "RCP_TEST_STALL_MS=1500", .want = "big", .lines = -1},

	{"ring: no slots", bad_ring, 3, BROKE, ALL_LINKS, .arg = 0},
	{"ring: 2^32 - 1 slots", bad_ring, 3, BROKE, ALL_LINKS, .arg = 1},
	{"ring: a slot more than agreed", bad_ring, 3, BROKE, ALL_LINKS, .arg = 9},
	{"ring: other chunks than agreed", bad_ring, 3, BROKE, .arg = 2},
	{"ring: chunks of 2 GiB", bad_ring, 3, BROKE, .arg = 3},
	{"ring: slots too small", bad_ring, 3, BROKE, ALL_LINKS, .arg = 4},
	{"ring: its address wraps", bad_ring, 3, BROKE, .arg = 5},
	{"ring: of another link, and never the right one", bad_ring, 3, "where its ring is", .arg = 6},
	{"ring: twice", bad_ring, 3, BROKE, EVIL_PIPE | EVIL_TCP | EVIL_SEALED, .arg = 7},
	{"ring: generation 0 where it is sealed", bad_ring, 3, BROKE, EVIL_SEALED, .arg = 8},

	{"result: of no entry", bad_result, 3, BROKE, .arg = 0},
	{"result: 2^32 - 1 entries", bad_result, 3, BROKE, .arg = 1},
	{"result: of more than there are", bad_result, 3, BROKE, .arg = 2},
	{"result: status 5", bad_result, 3, BROKE, .arg = 3},
	{"result: left out, and nothing failed", bad_result, 3, BROKE, .arg = 13},
	{"result: twice", bad_result, 3, BROKE, .arg = 4},
	{"result: no records", bad_result, 3, BROKE, .arg = 5},
	{"result: failed without a reason", bad_result, 3, "gave no reason", .arg = 11, .lines = -2},
	{"result: of one under way", result_unasked, 1, "changed my mind", ALL_LINKS, .lines = -2},
	{"result: as if interrupted", bad_result, 3, NULL, .arg = 12, .lines = -1},
	{"verdict: before the results", bad_result, 3, BROKE, .arg = 6},
	{"verdict: status 200", bad_result, 3, NULL, .arg = 7, .lines = -2},
	{"verdict: all is well, and a file failed", bad_result, 5, "the disk is full", .arg = 8, .lines = -2},
	{"verdict: some failed, and none did", bad_result, 1, NULL, .arg = 9, .lines = -2},
	{"verdict: twice", bad_result, -(1 << 0 | 1 << 3), NULL, .arg = 10, .lines = -1},

	{"terminal escapes in a result", escapes, 1, "owned", .arg = 0, .lines = -2},
	{"terminal escapes in an abort", escapes, 5, NULL, .arg = 1, .lines = -1},
	{"terminal escapes in a note", escapes, 0, "owned", EVIL_R, .arg = 2, .lines = 1},

	{"endless: PING", flood, 0, NULL, .arg = 0},
	{"endless: ANSWERS of nothing", flood, 3, BROKE, .arg = 1},
	{"endless: RESULTS of nothing", flood, 3, BROKE, .arg = 2},
	{"endless: CREDIT of nothing", flood, 3, BROKE, .arg = 3},
	{"endless: NOTE", flood, 0, NULL, EVIL_R, .arg = 4, .lines = -1},

	{"hangs up after a chunk", hangs_up, 6, NULL, ALL_LINKS, .arg = 0, .lines = -3},
	{"hangs up in a message", hangs_up, 6, NULL, .arg = 1, .lines = -3},
	{"hangs up when all was sent", hangs_up, 6, NULL, .arg = 2, .lines = -3},
	{"the link fails 100 times", link_fails, 6, "no transport is left", EVIL_R, .lines = 2},
	{"the link fails 100 times", link_fails, 6, NULL, EVIL_I},
	{0},
};
