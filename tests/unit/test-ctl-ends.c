/* ctl: every end is told once, with its reason; every wait has a deadline. */
#include "ctl-pair.h"

/* --- ends --- */

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
		send_note(&R, "words that nobody reads, and more of them, and more of them again, "
			      "and so on");
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
	make_tls(&I, fd[0], false, key, 20000);
	make_tls(&R, fd[1], true, key, 20000);
	while (!I.ready && !R.ready)
		uv_run(&loop, UV_RUN_ONCE);
	run_ms(10);
	assert_int_equal(I.ready + R.ready, 1);
	assert_null(I.ctl);
	teardown(state);
	setup(state);
	tcp_pair(fd);
	make_tls(&I, fd[0], false, key, 20000);
	rcp_ctl_free(&I.ctl);
	close(fd[1]);
}

/* --- deadlines --- */

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
	rcp_ctl_keepalive(I.ctl, 20, 300);
	rcp_ctl_keepalive(R.ctl, 20, 300);
	run_ms(360);
	assert_int_equal(I.down + R.down, 0);
	assert_int_equal(I.messages + R.messages, 0);
	/* Paused: its silence is our doing. */
	rcp_ctl_pause(I.ctl, true);
	rcp_ctl_keepalive(R.ctl, 0, 0);
	send_note(&R, "later");
	run_ms(350);
	assert_int_equal(I.down + I.messages, 0);
	rcp_ctl_pause(I.ctl, false);
	assert_true(until(&I.messages));
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
	teardown(state);
	setup(state);

	fd = raw_peer(false);
	assert_int_equal(write(fd, RCP_CTL_MARKER, RCP_CTL_MARKER_LEN), RCP_CTL_MARKER_LEN);
	assert_true(until(&I.ready));
	rcp_ctl_expect(I.ctl, 40, "READY");
	assert_int_equal(write(fd, note_frame, sizeof(note_frame)), sizeof(note_frame));
	usleep(80000);
	assert_true(until(&I.messages));
	assert_int_equal(I.down, 0);
	/* PINGs are no message, however many there are. */
	rcp_ctl_expect(I.ctl, 40, "READY");
	while (!I.down) {
		send(fd, ping_frame, sizeof(ping_frame), MSG_NOSIGNAL);
		run_ms(1);
	}
	assert_refused(&I, "no READY");
	close(fd);
}

static void expectations(void **state)
{
	int fd[2];

	connect_pair(PIPES);
	rcp_ctl_expect(I.ctl, 40, "READY");
	rcp_ctl_send(R.ctl, RCP_MSG_ABORT, &(struct rcp_msg_abort){0});
	run_ms(80);
	assert_int_equal(I.down, 0);
	/* A line for the user is not what was expected, or notes could go on for ever. */
	rcp_ctl_expect(I.ctl, 40, "READY");
	send_note(&R, "wait");
	assert_true(until(&I.down));
	assert_refused(&I, "no READY from the peer within");
	teardown(state);
	setup(state);

	connect_pair(PIPES);
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

/* --- making --- */

static void wrong_keys_do_not_open(void **state)
{
	static const uint8_t other[RCP_TLS_KEY] = {8};
	int fd[2];

	(void)state;
	tcp_pair(fd);
	make_tls(&I, fd[0], false, key, 20000);
	make_tls(&R, fd[1], true, other, 20000);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
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
