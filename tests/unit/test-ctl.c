/* ctl: what is sent arrives, in order, over pipes and TLS; what must not be said ends it. */
#include "ctl-pair.h"

/* --- the good case --- */

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

static unsigned storm_left;
static void storm_done(void *arg, bool ok);

static void storm(void)
{
	static uint8_t head[RCP_FRAME_HEADER + 8];
	static uint8_t body[RCP_CHUNK_HEADER + 300000];

	rcp_put_u32(head, 8 + sizeof(body));
	rcp_put_u16(head + 4, RCP_MSG_CHUNK);
	rcp_put_u32(head + 8, 3);
	rcp_put_u32(head + 12, sizeof(body));
	while (storm_left &&
	       !rcp_ctl_send_chunk(I.ctl, head, sizeof(head), body, sizeof(body), storm_done, &I))
		storm_left--;
}

static void storm_done(void *arg, bool ok)
{
	done(arg, ok);
	if (ok)
		storm();
}

/* Each done queues the next ones, as the pipe link does. */
static void stormy(enum kind kind)
{
	connect_pair(kind);
	R.room = RCP_CHUNK_HEADER + 300000;
	R.place = malloc(R.room);
	rcp_ctl_set_chunk_bytes(R.ctl, 300000);
	storm_left = 100;
	storm();
	assert_true(storm_left > 0);
	while (R.chunks < 100 && !R.down && !I.down)
		uv_run(&loop, UV_RUN_ONCE);
	assert_int_equal(R.chunks, 100);
	assert_int_equal(I.done_ok, 100);
	assert_int_equal(rcp_ctl_queued_bytes(I.ctl), 0);
}

static void a_done_may_send_more(void **state)
{
	each(stormy, state);
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
		assert_int_equal(rcp_ctl_send_chunk(I.ctl, head, 4, body, sizeof(body), done, &I),
				 0);
	assert_int_equal(rcp_ctl_send_chunk(I.ctl, head, 4, body, sizeof(body), done, &I),
			 RCP_AGAIN);
	/* The receiver takes none: all of them end, as lost, before down. */
	assert_true(until(&R.down));
	assert_int_equal(R.cause.code, RCP_E_CONNECT);
	assert_true(until(&I.down));
	assert_int_equal(I.done_ok + I.done_lost, 2);
	assert_true(I.done_lost > 0);
	assert_int_equal(I.cause.code, RCP_E_LINK);
}

/* Half of a chunk is out when the next message comes; all is accounted for. */
static void between_halves_of_a_chunk(void **state)
{
	static uint8_t body[1 << 20], got[sizeof(body) + 100];
	static const uint8_t head[4];
	int fd = raw_peer(true);
	size_t len = 0;

	(void)state;
	assert_true(until(&R.ready));
	assert_int_equal(rcp_ctl_send_chunk(R.ctl, head, 4, body, sizeof(body), done, &R), 0);
	run_ms(5);
	assert_true(rcp_ctl_queued_bytes(R.ctl) > 0);
	assert_true(rcp_ctl_queued_bytes(R.ctl) < sizeof(body));
	send_note(&R, "hi");
	run_ms(5);
	assert_int_equal(R.down + R.done_ok, 0);
	while (!R.done_ok && !R.down) {
		ssize_t n = recv(fd, got + len, sizeof(got) - len, MSG_DONTWAIT);

		len += n > 0 ? (size_t)n : 0;
		uv_run(&loop, UV_RUN_NOWAIT);
	}
	assert_int_equal(R.done_ok, 1);
	assert_int_equal(R.down, 0);
	assert_int_equal(rcp_ctl_queued_bytes(R.ctl), 0);
	close(fd);
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

/* --- what must not be said --- */

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
		{{0, 0, 0, 72, 0, 48, 0, 0, 0, 0, 0, 9, 0, 0, 0, 64},
		 16,
		 "no room"}, /* no such slot */
		{{0, 0, 0, 72, 0, 48, 0, 0, 0, 0, 0, 3, 0, 0, 0, 63},
		 16,
		 "no room"}, /* lengths differ */
		{{0, 0, 0, 40, 0, 48, 0, 0, 0, 0, 0, 3, 0, 0, 0, 32},
		 16,
		 "no room"}, /* short header */
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

/* --- the remote shell --- */

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

/* What ends after the connection may still have something to say. */
static void one_that_is_gone(void **state)
{
	const struct rcp_err why = {.code = RCP_E_LINK};
	const struct rcp_msg_note m = {.level = 1};
	struct rcp_err no_tls = {0};
	uint64_t in = 1, out = 1;
	uint8_t secret[32];

	(void)state;
	rcp_ctl_send(NULL, RCP_MSG_NOTE, &m);
	rcp_ctl_send_abort(NULL, &why);
	assert_int_equal(rcp_ctl_send_chunk(NULL, NULL, 0, NULL, 0, NULL, NULL), RCP_E_LINK);
	rcp_ctl_wake(NULL);
	rcp_ctl_set_ops(NULL, NULL, NULL);
	rcp_ctl_expect(NULL, 1, "a word");
	rcp_ctl_set_works(NULL, true, 0);
	assert_false(rcp_ctl_peer_works(NULL));
	assert_int_equal(rcp_ctl_moved(NULL), 0);
	assert_int_equal(rcp_ctl_export(NULL, "label", secret, sizeof(secret), &no_tls), RCP_E_LINK);
	rcp_ctl_set_phase(NULL, RCP_PHASE_TALK);
	rcp_ctl_set_peer_role(NULL, RCP_ROLE_SINK);
	rcp_ctl_set_chunk_bytes(NULL, 4096);
	rcp_ctl_keepalive(NULL, 1, 1);
	rcp_ctl_count(NULL, &in, &out);
	assert_int_equal(in + out, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(messages_arrive_in_order),
		T(a_done_may_send_more),
		T(chunks_go_to_their_place),
		T(chunks_wait_their_turn),
		T(between_halves_of_a_chunk),
		T(wake_comes_from_the_loop),
		T(what_is_not_to_be_said_ends_it),
		T(hostile_bytes),
		T(junk_comes_first),
		T(only_junk),
		cmocka_unit_test(one_that_is_gone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
