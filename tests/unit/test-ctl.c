/* ctl: what is sent arrives, in order, over pipes and TLS; what must not be said ends it; every end is
 * told once, with its reason. */
#include "base/clock.h"
#include "boot/ctl.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#include <netinet/in.h>

#include <cmocka.h>

enum kind { SOCKET, PIPES, TLS };

static const uint8_t key[RCP_TLS_KEY] = {7};

struct peer {
	struct rcp_ctl *ctl;
	struct peer *other;
	unsigned ready, drained, down, messages, wakes;
	unsigned in_call; /* a call of ours is running: no callback may come */
	enum rcp_msg_type last;
	uint64_t bytes;
	uint32_t next_entry; /* order of ENTRIES.first */
	char text[512];	     /* of the last NOTE or ABORT */
	char banner[200];
	size_t banner_len;
	struct rcp_err cause;
	uint8_t *place;
	size_t room;
	unsigned chunks, done_ok, done_lost;
	void (*on_message)(struct peer *p, const struct rcp_msg *msg);
	void (*on_ready)(struct peer *p);
};

static uv_loop_t loop;
static struct peer I, R; /* initiator, responder */

static void on_ready(void *arg)
{
	struct peer *p = arg;

	assert_int_equal(p->in_call, 0);
	assert_int_equal(p->messages, 0);
	p->ready++;
	if (p->on_ready)
		p->on_ready(p);
}

static void on_message(void *arg, const struct rcp_msg *msg)
{
	struct peer *p = arg;

	assert_int_equal(p->in_call, 0);
	assert_int_equal(p->down, 0);
	assert_int_equal(p->ready, 1);
	p->messages++;
	p->last = msg->type;
	if (msg->type == RCP_MSG_ENTRIES) {
		assert_int_equal(msg->entries_.first, p->next_entry++);
		p->bytes += msg->entries_.entries.len;
		for (size_t i = 0; i < msg->entries_.entries.len; i += 97)
			assert_int_equal(msg->entries_.entries.data[i], (uint8_t)i);
	} else if (msg->type == RCP_MSG_NOTE) {
		rcp_span_copy(msg->note_.text, p->text, sizeof(p->text));
	} else if (msg->type == RCP_MSG_ABORT) {
		rcp_span_copy(msg->abort_.text, p->text, sizeof(p->text));
	} else if (msg->type == RCP_MSG_CHUNK) {
		assert_ptr_equal(msg->chunk_.bytes.data, p->place);
		p->chunks++;
		p->bytes += msg->chunk_.bytes.len;
	}
	if (p->on_message)
		p->on_message(p, msg);
}

static void on_drained(void *arg)
{
	struct peer *p = arg;

	assert_int_equal(p->in_call, 0);
	assert_int_equal(rcp_ctl_queued_bytes(p->ctl), 0);
	p->drained++;
}

static void on_banner(void *arg, const char *bytes, size_t len)
{
	struct peer *p = arg;

	assert_int_equal(p->ready, 0);
	p->banner_len += len;
	snprintf(p->banner, sizeof(p->banner), "%.*s", (int)len, bytes);
}

static uint8_t *on_place(void *arg, uint32_t slot, size_t *room)
{
	struct peer *p = arg;

	*room = p->room;
	return slot == 3 ? p->place : NULL;
}

static void on_wake(void *arg)
{
	struct peer *p = arg;

	assert_int_equal(p->in_call, 0);
	p->wakes++;
}

static void on_down(void *arg, const struct rcp_err *cause)
{
	struct peer *p = arg;

	assert_int_equal(p->in_call, 0);
	assert_int_equal(p->down, 0);
	p->down++;
	p->cause = *cause;
	rcp_ctl_free(&p->ctl);
}

static const struct rcp_ctl_ops ops = {on_ready, on_message, on_drained, on_banner,
				       on_place, on_wake,    on_down};

static void done(void *arg, bool ok)
{
	struct peer *p = arg;

	assert_int_equal(p->in_call, 0);
	assert_int_equal(p->down, 0);
	if (ok)
		p->done_ok++;
	else
		p->done_lost++;
}

/* Run until *what, at most 5 s. */
static bool until(const unsigned *what)
{
	uint64_t end = rcp_now_ns() + 5 * RCP_SEC;

	while (!*what && rcp_now_ns() < end) {
		if (uv_run(&loop, UV_RUN_NOWAIT) == 0 && !*what)
			return false;
		if (!*what)
			usleep(200);
	}
	return *what != 0;
}

static void run_ms(unsigned ms)
{
	uint64_t end = rcp_now_ns() + ms * RCP_MS;

	while (rcp_now_ns() < end) {
		uv_run(&loop, UV_RUN_NOWAIT);
		usleep(200);
	}
}

static int setup(void **state)
{
	(void)state;
	memset(&I, 0, sizeof(I));
	memset(&R, 0, sizeof(R));
	I.other = &R;
	R.other = &I;
	return uv_loop_init(&loop);
}

/* Whatever is left is freed; then the loop must be empty. */
static int teardown(void **state)
{
	(void)state;
	rcp_ctl_free(&I.ctl);
	rcp_ctl_free(&R.ctl);
	uv_run(&loop, UV_RUN_DEFAULT);
	free(I.place);
	free(R.place);
	return uv_loop_close(&loop);
}

static void tcp_pair(int fd[2])
{
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(sa);
	int l = socket(AF_INET, SOCK_STREAM, 0);

	assert_int_equal(bind(l, (struct sockaddr *)&sa, len), 0);
	assert_int_equal(listen(l, 1), 0);
	getsockname(l, (struct sockaddr *)&sa, &len);
	fd[0] = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(connect(fd[0], (struct sockaddr *)&sa, len), 0);
	fd[1] = accept(l, NULL, NULL);
	close(l);
}

static void make_tls(struct peer *p, int fd, bool server, const uint8_t *k, unsigned ms)
{
	struct rcp_tls_params t = {.server = server, .identity = "id", .key = k};
	struct rcp_err err = {0};

	p->in_call++;
	assert_int_equal(rcp_ctl_new_tls(&loop, fd, &t, ms, server ? "client" : "host", &ops, p, &err,
					 &p->ctl),
			 0);
	p->in_call--;
}

static void make_pipe(struct peer *p, int rfd, int wfd, bool responder)
{
	struct rcp_err err = {0};

	p->in_call++;
	assert_int_equal(rcp_ctl_new_pipe(&loop, rfd, wfd, responder, "host", &ops, p, &err, &p->ctl), 0);
	p->in_call--;
}

static void connect_pair(enum kind kind)
{
	int a[2], b[2];

	if (kind == TLS) {
		tcp_pair(a);
		make_tls(&I, a[0], false, key, 2000);
		make_tls(&R, a[1], true, key, 2000);
	} else if (kind == SOCKET) {
		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, a), 0);
		make_pipe(&I, a[0], a[0], false);
		make_pipe(&R, a[1], a[1], true);
	} else {
		assert_int_equal(pipe(a), 0);
		assert_int_equal(pipe(b), 0);
		make_pipe(&I, a[0], b[1], false);
		make_pipe(&R, b[0], a[1], true);
	}
	assert_true(until(&I.ready));
	assert_true(until(&R.ready));
	rcp_ctl_set_phase(I.ctl, RCP_PHASE_COPY);
	rcp_ctl_set_phase(R.ctl, RCP_PHASE_COPY);
	rcp_ctl_set_peer_role(I.ctl, RCP_ROLE_SINK);
	rcp_ctl_set_peer_role(R.ctl, RCP_ROLE_SOURCE);
}

static void send_note(struct peer *p, const char *text)
{
	struct rcp_msg_note m = {.text = rcp_span_str(text)};

	p->in_call++;
	rcp_ctl_send(p->ctl, RCP_MSG_NOTE, &m);
	p->in_call--;
}

static void send_entries(struct peer *p, uint32_t first, size_t len)
{
	static uint8_t blob[RCP_FRAME_MAX];
	struct rcp_msg_entries m = {.first = first, .count = 1, .entries = rcp_span_of(blob, len)};

	for (size_t i = 0; i < sizeof(blob) && !first; i++)
		blob[i] = (uint8_t)i;
	p->in_call++;
	rcp_ctl_send(p->ctl, RCP_MSG_ENTRIES, &m);
	p->in_call--;
}

static void each(void (*test)(enum kind kind), void **state)
{
	for (enum kind k = SOCKET; k <= TLS; k++) {
		test(k);
		assert_int_equal(teardown(state), 0);
		assert_int_equal(setup(state), 0);
	}
}

/* --- the good case ------------------------------------------------------------------------------ */

static void both_ways(enum kind kind)
{
	uint64_t total = 0, in, out;
	unsigned want = 0;

	connect_pair(kind);
	/* Small ones, and up to the longest that there is (12 bytes are the other fields). */
	for (uint32_t i = 0; i < 300; i++) {
		size_t len = i % 50 == 49 ? RCP_FRAME_MAX - 12 : i * 13;

		send_entries(&I, i, len);
		total += len;
		want++;
	}
	assert_true(rcp_ctl_queued_bytes(I.ctl) > total);
	assert_int_equal(R.messages, 0);
	send_note(&R, "the other way");
	while (R.messages < want && !R.down)
		uv_run(&loop, UV_RUN_ONCE);
	assert_int_equal(R.bytes, total);
	assert_true(until(&I.messages));
	assert_string_equal(I.text, "the other way");
	assert_true(until(&I.drained));
	rcp_ctl_count(R.ctl, &in, &out);
	assert_true(in > total && out > 0);
	assert_int_equal(I.down + R.down, 0);
}

static void messages_arrive_in_order(void **state)
{
	each(both_ways, state);
}

static unsigned chunk_dones;
static const uint8_t *chunk_body;

static void send_one_chunk(struct peer *p, uint32_t bytes)
{
	uint8_t head[RCP_FRAME_HEADER + 8 + RCP_CHUNK_HEADER] = {0};
	const struct rcp_pipe_out out = rcp_ctl_pipe_out(p->ctl);
	int r;

	rcp_put_u32(head, 8 + RCP_CHUNK_HEADER + bytes);
	rcp_put_u16(head + 4, RCP_MSG_CHUNK);
	rcp_put_u32(head + 8, 3);
	rcp_put_u32(head + 12, RCP_CHUNK_HEADER + bytes);
	memset(head + 16, 'h', RCP_CHUNK_HEADER);
	p->in_call++;
	r = out.send_chunk(out.arg, head, sizeof(head), chunk_body, bytes, done, p);
	p->in_call--;
	assert_int_equal(r, 0);
	chunk_dones++;
}

static void chunks(enum kind kind)
{
	enum { BYTES = 1 << 20 };
	uint8_t *body = malloc(BYTES);

	for (size_t i = 0; i < BYTES; i++)
		body[i] = (uint8_t)(i * 7 + i / 4096);
	chunk_body = body;
	chunk_dones = 0;
	connect_pair(kind);
	R.room = RCP_CHUNK_HEADER + BYTES;
	R.place = malloc(R.room);
	rcp_ctl_set_chunk_bytes(R.ctl, BYTES);
	for (uint32_t n = 0; n < 8; n++) {
		memset(R.place, 0, R.room);
		send_entries(&I, n, 100); /* between messages */
		send_one_chunk(&I, n ? BYTES - n * 1001 : BYTES);
		while (R.chunks <= n && !R.down && !I.down)
			uv_run(&loop, UV_RUN_ONCE);
		assert_int_equal(R.place[0], 'h');
		assert_memory_equal(R.place + RCP_CHUNK_HEADER, body, BYTES - n * 1001);
	}
	while (I.done_ok < chunk_dones)
		uv_run(&loop, UV_RUN_ONCE);
	assert_int_equal(I.done_ok, 8);
	assert_int_equal(I.done_lost, 0);
	rcp_ctl_free(&I.ctl);
	uv_run(&loop, UV_RUN_NOWAIT);
	free(body);
}

static void chunks_go_to_their_place(void **state)
{
	each(chunks, state);
}

static void chunks_wait_their_turn(void **state)
{
	static uint8_t body[RCP_CTL_CHUNK_SHARE / 2];
	static const uint8_t head[4];

	(void)state;
	connect_pair(SOCKET);
	for (int i = 0; i < 2; i++)
		assert_int_equal(rcp_ctl_send_chunk(I.ctl, head, 4, body, sizeof(body), done, &I), 0);
	assert_int_equal(rcp_ctl_send_chunk(I.ctl, head, 4, body, sizeof(body), done, &I), RCP_AGAIN);
	/* The receiver takes none: all of them end, as lost, before down. */
	assert_true(until(&R.down));
	assert_int_equal(R.cause.code, RCP_E_CONNECT);
	assert_true(until(&I.down));
	assert_int_equal(I.done_ok + I.done_lost, 2);
	assert_true(I.done_lost > 0);
	assert_int_equal(I.cause.code, RCP_E_LINK);
}

static void wake_comes_from_the_loop(void **state)
{
	(void)state;
	connect_pair(SOCKET);
	const struct rcp_pipe_out out = rcp_ctl_pipe_out(I.ctl);

	I.in_call++;
	out.wake(out.arg);
	I.in_call--;
	assert_int_equal(I.wakes, 0);
	assert_true(until(&I.wakes));
	assert_int_equal(I.wakes, 1);
}

/* --- what must not be said ------------------------------------------------------------------------ */

static void assert_refused(const struct peer *p, const char *word)
{
	assert_int_equal(p->down, 1);
	assert_int_equal(p->cause.code, RCP_E_CONNECT);
	assert_string_equal(p->cause.object[0] ? "named" : "", "named");
	if (!strstr(p->cause.text, word))
		fail_msg("no '%s' in '%s'", word, p->cause.text);
}

static void wrong_phase(enum kind kind)
{
	struct rcp_msg_caps caps = {0};

	connect_pair(kind);
	rcp_ctl_send(I.ctl, RCP_MSG_CAPS, &caps);
	assert_true(until(&R.down));
	assert_refused(&R, "CAPS");
	assert_int_equal(R.messages, 0);
	assert_true(until(&I.down));
	assert_int_equal(I.cause.code, RCP_E_LINK);
}

static void wrong_role(enum kind kind)
{
	struct rcp_msg_answers m = {0};

	connect_pair(kind);
	rcp_ctl_send(I.ctl, RCP_MSG_ANSWERS, &m); /* the source does not answer */
	assert_true(until(&R.down));
	assert_refused(&R, "ANSWERS");
}

static void wrong_side(enum kind kind)
{
	connect_pair(kind);
	send_note(&I, "only the responder says this");
	assert_true(until(&R.down));
	assert_refused(&R, "NOTE");
}

static void what_is_not_to_be_said_ends_it(void **state)
{
	each(wrong_phase, state);
	each(wrong_role, state);
	each(wrong_side, state);
}

/* A responder against raw bytes. Returns our end of the socket. */
static int raw_peer(bool responder)
{
	int fd[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
	make_pipe(responder ? &R : &I, fd[0], fd[0], responder);
	return fd[1];
}

static void hostile_bytes(void **state)
{
	static const struct {
		uint8_t bytes[24];
		size_t len;
		const char *word;
	} bad[] = {
		{{0, 0, 0, 0, 0x7f, 0xff, 0, 0}, 8, "unknown"},
		{{0, 0, 0, 8, 0, 32, 0, 1}, 8, "unknown or malformed"},
		{{0xff, 0xff, 0xff, 0xff, 0, 1, 0, 0}, 8, "too long"},
		{{0, 0, 0, 7, 0, 32, 0, 0, 1, 2, 3, 4, 5, 6, 7}, 15, "malformed PING"},
		{{0, 0, 0, 72, 0, 48, 0, 0, 0, 0, 0, 9, 0, 0, 0, 64}, 16, "no room"}, /* no such slot */
		{{0, 0, 0, 72, 0, 48, 0, 0, 0, 0, 0, 3, 0, 0, 0, 63}, 16, "no room"}, /* lengths differ */
		{{0, 0, 0, 40, 0, 48, 0, 0, 0, 0, 0, 3, 0, 0, 0, 32}, 16, "no room"}, /* short header */
		{{0, 0, 0, 73, 0, 48, 0, 0, 0, 0, 0, 3, 0, 0, 0, 65}, 16, "too long"},
		{{0, 0, 0, 4, 0, 48, 0, 0, 0, 0, 0, 3}, 12, "malformed CHUNK"},
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		int fd = raw_peer(true);

		R.place = malloc(64);
		R.room = 64;
		assert_true(until(&R.ready));
		rcp_ctl_set_phase(R.ctl, RCP_PHASE_COPY);
		rcp_ctl_set_peer_role(R.ctl, RCP_ROLE_SOURCE);
		assert_int_equal(write(fd, bad[i].bytes, bad[i].len), bad[i].len);
		assert_true(until(&R.down));
		assert_refused(&R, bad[i].word);
		close(fd);
		teardown(state);
		setup(state);
	}
}

/* --- the remote shell --------------------------------------------------------------------------------- */

static const uint8_t ping_frame[16] = {0, 0, 0, 8, 0, 32, 0, 0, 1};
static const uint8_t note_frame[] = {0, 0, 0, 5, 0, 34, 0, 0, 1, 0, 2, 'h', 'i'};

static void junk_comes_first(void **state)
{
	char all[64];
	size_t len = 0;

	memcpy(all, "Welcome\n\0rcp-", 13); /* a false start */
	len = 13;
	memcpy(all + len, RCP_CTL_MARKER, RCP_CTL_MARKER_LEN);
	len += RCP_CTL_MARKER_LEN;
	memcpy(all + len, ping_frame, sizeof(ping_frame));
	len += sizeof(ping_frame);
	memcpy(all + len, note_frame, sizeof(note_frame));
	len += sizeof(note_frame);
	for (size_t cut = 1; cut < len; cut++) {
		int fd = raw_peer(false);

		assert_int_equal(write(fd, all, cut), cut);
		run_ms(2);
		assert_int_equal(write(fd, all + cut, len - cut), len - cut);
		assert_true(until(&I.messages));
		assert_int_equal(I.banner_len, 13);
		assert_memory_equal(I.banner, "Welcome\n", 8);
		assert_string_equal(I.text, "hi");
		assert_int_equal(I.ready, 1);
		close(fd);
		teardown(state);
		setup(state);
	}
}

static void only_junk(void **state)
{
	char junk[4096];
	int fd = raw_peer(false);

	memset(junk, 'x', sizeof(junk));
	memcpy(junk, "\r\nThis account is \033[1mnot available\n", 36);
	for (int i = 0; i < 40 && !I.down; i++) {
		ssize_t n = send(fd, junk, sizeof(junk), MSG_NOSIGNAL);

		assert_true(n == sizeof(junk) || errno == EPIPE);
		run_ms(1);
	}
	assert_true(until(&I.down));
	assert_refused(&I, "This account is \\x1b[1mnot available\"");
	assert_non_null(strstr(I.cause.text, "no rcp answered"));
	assert_true(I.banner_len > RCP_CTL_JUNK_MAX);
	assert_int_equal(I.ready, 0);
	close(fd);
	teardown(state);
	setup(state);

	fd = raw_peer(false);
	assert_int_equal(write(fd, "bye\n", 4), 4);
	close(fd);
	assert_true(until(&I.down));
	assert_refused(&I, "printed 4 bytes and no rcp answered: \"bye\"");
	assert_int_equal(I.banner_len, 4);
	teardown(state);
	setup(state);

	fd = raw_peer(false);
	close(fd);
	assert_true(until(&I.down));
	assert_refused(&I, "ended before rcp answered");
}

/* --- ends ------------------------------------------------------------------------------------------------ */

static void close_flushes(enum kind kind)
{
	uint64_t total = 0;
	struct rcp_err why = {0};

	connect_pair(kind);
	for (uint32_t i = 0; i < 50; i++) {
		send_entries(&I, i, 100000);
		total += 100000;
	}
	rcp_err_set(&why, RCP_E_IO, ENOSPC, "pwrite", "/big", "the disk is full");
	I.in_call++;
	rcp_ctl_send_abort(I.ctl, &why);
	rcp_ctl_close(I.ctl, 5000);
	I.in_call--;
	assert_true(until(&R.down));
	assert_int_equal(R.bytes, total);
	assert_int_equal(R.last, RCP_MSG_ABORT);
	assert_string_equal(R.text, "the disk is full");
	assert_int_equal(R.cause.code, RCP_E_LINK);
	assert_non_null(strstr(R.cause.text, "closed the connection"));
	assert_true(until(&I.down));
	assert_int_equal(I.cause.code, RCP_OK);
}

static void a_wanted_end_flushes(void **state)
{
	each(close_flushes, state);
}

static void both_close(enum kind kind)
{
	connect_pair(kind);
	rcp_ctl_close(I.ctl, 1000);
	rcp_ctl_close(R.ctl, 1000);
	assert_true(until(&I.down));
	assert_true(until(&R.down));
	assert_int_equal(I.cause.code, RCP_OK);
	assert_int_equal(R.cause.code, RCP_OK);
}

static void ends_meet(void **state)
{
	each(both_close, state);
}

static void a_deaf_peer_does_not_hold_the_end(void **state)
{
	int fd = raw_peer(true);
	uint64_t start = rcp_now_ns();

	(void)state;
	assert_true(until(&R.ready));
	for (int i = 0; i < 1000; i++)
		send_note(&R, "words that nobody reads, and more of them, and more of them again, and so on");
	rcp_ctl_close(R.ctl, 50);
	assert_true(until(&R.down));
	assert_int_equal(R.cause.code, RCP_OK);
	assert_true(rcp_now_ns() - start < 2 * RCP_SEC);
	close(fd);
}

static void lost_in_a_message(void **state)
{
	int fd = raw_peer(true);

	(void)state;
	char marker[RCP_CTL_MARKER_LEN];

	assert_int_equal(write(fd, ping_frame, 9), 9);
	run_ms(5);
	assert_int_equal(read(fd, marker, sizeof(marker)), sizeof(marker)); /* or it is a reset */
	close(fd);
	assert_true(until(&R.down));
	assert_int_equal(R.cause.code, RCP_E_LINK);
	assert_non_null(strstr(R.cause.text, "in the middle of a message"));
}

/* The reason waits in the pipe while our writes fail: it must be read. No SIGPIPE either. */
static void last_words_are_heard(void **state)
{
	int to[2], from[2];
	struct rcp_wr w = {.max = 4096};
	struct rcp_msg_abort m = {.code = RCP_E_IO, .text = rcp_span_str("quota exceeded")};

	(void)state;
	signal(SIGPIPE, SIG_DFL);
	assert_int_equal(pipe(to), 0);
	assert_int_equal(pipe(from), 0);
	make_pipe(&R, to[0], from[1], true);
	assert_true(until(&R.ready));
	run_ms(5);
	close(from[0]);
	send_note(&R, "into the void");
	run_ms(5);
	assert_int_equal(R.down, 0);
	rcp_msg_encode(&w, RCP_MSG_ABORT, &m);
	assert_int_equal(write(to[1], w.data, w.len), w.len);
	close(to[1]);
	rcp_wr_free(&w);
	assert_true(until(&R.down));
	assert_string_equal(R.text, "quota exceeded");
	assert_int_equal(R.cause.code, RCP_E_LINK);
	assert_int_equal(R.cause.sys_errno, EPIPE);
}

static void an_owners_reason(void **state)
{
	struct rcp_err why = {0};

	(void)state;
	connect_pair(SOCKET);
	rcp_err_set(&why, RCP_E_INTERRUPTED, 0, "", NULL, "stopped");
	I.in_call++;
	rcp_ctl_close(I.ctl, 1000);
	rcp_ctl_fail(I.ctl, &why);
	I.in_call--;
	assert_true(until(&I.down));
	assert_int_equal(I.cause.code, RCP_E_INTERRUPTED);
}

static void nobody_reads(void **state)
{
	int fd = raw_peer(true);
	struct rcp_msg_note m;
	char text[RCP_STR_MAX + 1];

	(void)state;
	memset(text, 't', RCP_STR_MAX);
	text[RCP_STR_MAX] = 0;
	m = (struct rcp_msg_note){.text = rcp_span_str(text)};
	assert_true(until(&R.ready));
	for (int i = 0; i < 20000 && !R.down; i++) {
		rcp_ctl_send(R.ctl, RCP_MSG_NOTE, &m);
		if (i % 64 == 0)
			uv_run(&loop, UV_RUN_NOWAIT);
	}
	assert_true(until(&R.down));
	assert_int_equal(R.cause.code, RCP_E_LINK);
	assert_non_null(strstr(R.cause.text, "does not read"));
	close(fd);
}

static void free_it(struct peer *p, const struct rcp_msg *msg)
{
	(void)msg;
	rcp_ctl_free(&p->ctl);
}

static void free_other(struct peer *p)
{
	rcp_ctl_free(&p->other->ctl);
	rcp_ctl_free(&p->ctl);
}

static void freed_early(enum kind kind)
{
	connect_pair(kind);
	I.on_message = free_it;
	send_note(&R, "one");
	send_note(&R, "two");
	assert_true(until(&I.messages));
	run_ms(5);
	assert_int_equal(I.messages, 1);
	assert_int_equal(I.down, 0);
	assert_true(until(&R.down));
}

static void may_be_freed_at_any_time(void **state)
{
	int fd[2];

	each(freed_early, state);
	tcp_pair(fd);
	I.on_ready = R.on_ready = free_other;
	make_tls(&I, fd[0], false, key, 1000);
	make_tls(&R, fd[1], true, key, 1000);
	run_ms(50);
	assert_int_equal(I.ready + R.ready, 1);
	assert_null(I.ctl);
	teardown(state);
	setup(state);
	tcp_pair(fd);
	make_tls(&I, fd[0], false, key, 1000);
	rcp_ctl_free(&I.ctl);
	close(fd[1]);
}

/* --- deadlines --------------------------------------------------------------------------------------------- */

static void silence_is_death(enum kind kind)
{
	uint64_t start;

	connect_pair(kind);
	start = rcp_now_ns();
	/* The peer sends nothing. */
	rcp_ctl_keepalive(I.ctl, 0, 60);
	assert_true(until(&I.down));
	assert_int_equal(I.cause.code, RCP_E_LINK);
	assert_non_null(strstr(I.cause.text, "no word from the peer for 0.1 s"));
	assert_true(rcp_now_ns() - start >= 55 * RCP_MS);
	assert_true(rcp_now_ns() - start < 2 * RCP_SEC);
}

static void pings_keep_it(enum kind kind)
{
	connect_pair(kind);
	/* Both share one thread: far enough apart that a busy machine is not taken for silence. */
	rcp_ctl_keepalive(I.ctl, 20, 200);
	rcp_ctl_keepalive(R.ctl, 20, 200);
	run_ms(280);
	assert_int_equal(I.down + R.down, 0);
	assert_int_equal(I.messages + R.messages, 0);
	/* Paused: its silence is our doing. */
	rcp_ctl_pause(I.ctl, true);
	rcp_ctl_keepalive(R.ctl, 0, 0);
	send_note(&R, "later");
	run_ms(220);
	assert_int_equal(I.down + I.messages, 0);
	rcp_ctl_pause(I.ctl, false);
	assert_true(until(&I.messages));
	assert_true(until(&I.down));
}

static void silence(void **state)
{
	each(silence_is_death, state);
	pings_keep_it(TLS);
}

/* We were stopped for longer than the deadline: the words that wait count. */
static void own_sleep_is_not_its_death(void **state)
{
	int fd = raw_peer(true);

	(void)state;
	assert_true(until(&R.ready));
	rcp_ctl_keepalive(R.ctl, 0, 40);
	assert_int_equal(write(fd, ping_frame, sizeof(ping_frame)), sizeof(ping_frame));
	usleep(80000);
	uv_run(&loop, UV_RUN_NOWAIT);
	assert_int_equal(R.down, 0);
	assert_true(until(&R.down));
	close(fd);
}

static void expectations(void **state)
{
	int fd[2];

	connect_pair(PIPES);
	rcp_ctl_expect(I.ctl, 40, "READY");
	send_note(&R, "in time");
	run_ms(80);
	assert_int_equal(I.down, 0);
	rcp_ctl_expect(I.ctl, 40, "READY");
	assert_true(until(&I.down));
	assert_refused(&I, "no READY from the peer within");
	teardown(state);
	setup(state);

	tcp_pair(fd);
	make_tls(&R, fd[1], true, key, 50);
	assert_true(until(&R.down));
	assert_refused(&R, "no TLS handshake within");
	close(fd[0]);
}

/* --- making ---------------------------------------------------------------------------------------------------- */

static void wrong_keys_do_not_open(void **state)
{
	static const uint8_t other[RCP_TLS_KEY] = {8};
	int fd[2];

	(void)state;
	tcp_pair(fd);
	make_tls(&I, fd[0], false, key, 2000);
	make_tls(&R, fd[1], true, other, 2000);
	assert_true(until(&I.down));
	assert_true(until(&R.down));
	assert_refused(&R, "same key");
	assert_refused(&I, "same key");
	assert_int_equal(I.ready + R.ready, 0);
}

static void exports_are_equal(void **state)
{
	uint8_t a[32], b[32];
	struct rcp_err err = {0};

	connect_pair(TLS);
	assert_int_equal(rcp_ctl_export(I.ctl, "rcp", a, 32, &err), 0);
	assert_int_equal(rcp_ctl_export(R.ctl, "rcp", b, 32, &err), 0);
	assert_memory_equal(a, b, 32);
	assert_string_equal(rcp_ctl_identity(R.ctl), "id");
	teardown(state);
	setup(state);
	connect_pair(PIPES);
	assert_int_equal(rcp_ctl_export(I.ctl, "rcp", a, 32, &err), RCP_E_CONNECT);
}

static void not_everything_is_a_pipe(void **state)
{
	struct rcp_err err = {0};
	int fd[2], null = open("/dev/null", O_RDWR);

	(void)state;
	assert_int_equal(rcp_ctl_new_pipe(&loop, null, null, true, "x", &ops, &R, &err, &R.ctl),
			 RCP_E_USAGE);
	assert_null(R.ctl);
	assert_non_null(strstr(err.text, "not a pipe"));
	assert_int_equal(fcntl(null, F_GETFD), -1); /* taken, also on failure */
	memset(&err, 0, sizeof(err));
	assert_int_equal(pipe(fd), 0);
	close(fd[1]);
	assert_int_equal(rcp_ctl_new_pipe(&loop, fd[0], 987654, true, "x", &ops, &R, &err, &R.ctl),
			 RCP_E_CONNECT);
	assert_int_equal(err.sys_errno, EBADF);
	assert_int_equal(fcntl(fd[0], F_GETFD), -1);
}

static void flags_are_given_back(void **state)
{
	int fd[2], copy;

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
	copy = dup(fd[0]);
	make_pipe(&R, fd[0], fd[0], true);
	assert_true(fcntl(copy, F_GETFL) & O_NONBLOCK);
	rcp_ctl_close(R.ctl, 0);
	assert_true(until(&R.down));
	assert_int_equal(R.cause.code, RCP_OK);
	assert_false(fcntl(copy, F_GETFL) & O_NONBLOCK);
	close(copy);
	close(fd[1]);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(messages_arrive_in_order),
		T(chunks_go_to_their_place),
		T(chunks_wait_their_turn),
		T(wake_comes_from_the_loop),
		T(what_is_not_to_be_said_ends_it),
		T(hostile_bytes),
		T(junk_comes_first),
		T(only_junk),
		T(a_wanted_end_flushes),
		T(ends_meet),
		T(a_deaf_peer_does_not_hold_the_end),
		T(lost_in_a_message),
		T(last_words_are_heard),
		T(an_owners_reason),
		T(nobody_reads),
		T(may_be_freed_at_any_time),
		T(silence),
		T(own_sleep_is_not_its_death),
		T(expectations),
		T(wrong_keys_do_not_open),
		T(exports_are_equal),
		T(not_everything_is_a_pipe),
		T(flags_are_given_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
