/* listen, preamble, dial: who says the right thing gets in, everybody else is closed. */
#include "base/clock.h"
#include "boot/listen.h"
#include "boot/race.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#include <cmocka.h>

static const uint8_t key[RCP_SECRET] = {3, 1, 4}, other_key[RCP_SECRET] = {2, 7, 1};
static const uint8_t session[RCP_SESSION] = {9, 9};
static uv_loop_t loop;
static struct rcp_listen *listener;
static struct rcp_dial *dial;
static unsigned controls, checks, streams, dialled;
static int control_fd, stream_fd[64], dial_fd[64];
static struct rcp_preamble last;
static struct rcp_err dial_cause;
static bool free_in_callback;

static void on_control(void *arg, int fd, const union rcp_sa *peer)
{
	(void)arg;
	assert_true(rcp_sa_port(peer) != 0);
	controls++;
	control_fd = fd;
	if (free_in_callback)
		rcp_listen_free(&listener);
}

static bool on_check(void *arg, const struct rcp_preamble *p, uint8_t answer[RCP_PREAMBLE_ANSWER])
{
	(void)arg;
	checks++;
	return rcp_preamble_check(p, session, key, answer);
}

static void on_stream(void *arg, int fd, const struct rcp_preamble *p)
{
	(void)arg;
	last = *p;
	streams++;
	assert_true(p->stream < 64);
	stream_fd[p->stream] = fd;
	if (free_in_callback)
		rcp_listen_free(&listener);
}

static const struct rcp_listen_ops ops = {on_control, on_check, on_stream};

static int setup(void **state)
{
	(void)state;
	controls = checks = streams = dialled = 0;
	control_fd = -1;
	free_in_callback = false;
	memset(stream_fd, 0xff, sizeof(stream_fd));
	memset(dial_fd, 0xff, sizeof(dial_fd));
	memset(&dial_cause, 0, sizeof(dial_cause));
	return uv_loop_init(&loop);
}

static int count_fds(void)
{
	int n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static int teardown(void **state)
{
	(void)state;
	rcp_listen_free(&listener);
	rcp_dial_free(&dial);
	uv_run(&loop, UV_RUN_DEFAULT);
	if (control_fd >= 0)
		close(control_fd);
	for (int i = 0; i < 64; i++) {
		if (stream_fd[i] >= 0)
			close(stream_fd[i]);
		if (dial_fd[i] >= 0)
			close(dial_fd[i]);
	}
	return uv_loop_close(&loop);
}

static void start(int family, unsigned deadline_ms)
{
	struct rcp_listen_params p = {.family = family, .deadline_ms = deadline_ms};
	struct rcp_err err = {0};

	assert_int_equal(rcp_listen_new(&loop, &p, &ops, NULL, &err, &listener), 0);
	assert_true(rcp_listen_port(listener) != 0);
}

static union rcp_sa here(int family)
{
	union rcp_sa sa;

	memset(&sa, 0, sizeof(sa));
	sa.sa.sa_family = (sa_family_t)family;
	if (family == AF_INET6)
		sa.in6.sin6_addr = in6addr_loopback;
	else
		sa.in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	rcp_sa_set_port(&sa, rcp_listen_port(listener));
	return sa;
}

static int join(int family)
{
	union rcp_sa sa = here(family);
	int fd = socket(family, SOCK_STREAM, 0);

	if (connect(fd, &sa.sa, rcp_sa_len(&sa)) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

static bool until(const unsigned *what)
{
	uint64_t end = rcp_now_ns() + 5 * RCP_SEC;

	while (!*what && rcp_now_ns() < end) {
		uv_run(&loop, UV_RUN_NOWAIT);
		usleep(200);
	}
	return *what != 0;
}

/* The other end has closed it (or resets it). */
static bool closed(int fd, unsigned ms)
{
	uint64_t end = rcp_now_ns() + ms * RCP_MS;
	char c;

	while (rcp_now_ns() < end) {
		uv_run(&loop, UV_RUN_NOWAIT);
		ssize_t n = recv(fd, &c, 1, MSG_DONTWAIT);

		if (n == 0 || (n < 0 && errno == ECONNRESET))
			return true;
		usleep(200);
	}
	return false;
}

static void make_preamble(uint16_t stream, const uint8_t *k, uint8_t out[RCP_PREAMBLE])
{
	struct rcp_preamble p = {.link = 5, .stream = stream};
	struct rcp_err err = {0};

	memcpy(p.session, session, RCP_SESSION);
	assert_int_equal(rcp_preamble_encode(&p, k, out, &err), 0);
}

static void a_preamble_proves(void **state)
{
	uint8_t b[RCP_PREAMBLE], answer[RCP_PREAMBLE_ANSWER];
	struct rcp_preamble p;

	(void)state;
	make_preamble(7, key, b);
	assert_true(rcp_preamble_decode(b, &p));
	assert_int_equal(p.link, 5);
	assert_int_equal(p.stream, 7);
	assert_true(rcp_preamble_check(&p, session, key, answer));
	assert_true(rcp_preamble_answered(b, key, answer));
	assert_false(rcp_preamble_answered(b, other_key, answer));
	assert_false(rcp_preamble_check(&p, session, other_key, answer));
	for (size_t i = 0; i < 8 * sizeof(b); i++) {
		b[i / 8] ^= (uint8_t)(1 << i % 8);
		assert_false(rcp_preamble_decode(b, &p) &&
			     rcp_preamble_check(&p, session, key, answer));
		b[i / 8] ^= (uint8_t)(1 << i % 8);
	}
	answer[31] ^= 1;
	assert_false(rcp_preamble_answered(b, key, answer));
}

static void tls_is_the_control_connection(void **state)
{
	char c = 0;

	(void)state;
	start(0, 0);
	int fd = join(AF_INET);

	assert_int_equal(write(fd, "\x16more", 5), 5);
	assert_true(until(&controls));
	assert_true(fcntl(control_fd, F_GETFL) & O_NONBLOCK);
	assert_int_equal(read(control_fd, &c, 1), 1);
	assert_int_equal(c, 0x16); /* nothing was taken from it */
	close(fd);
}

static void both_families(void **state)
{
	(void)state;
	start(0, 0);
	int fd = join(AF_INET6);

	if (fd < 0) {
		print_message("no IPv6 loopback here: IPv4 only\n");
	} else {
		assert_int_equal(write(fd, "\x16", 1), 1);
		assert_true(until(&controls));
		close(control_fd);
		close(fd);
	}
	controls = 0;
	fd = join(AF_INET);
	assert_int_equal(write(fd, "\x16", 1), 1);
	assert_true(until(&controls));
	close(fd);
	teardown(state);
	setup(state);
	start(4, 0);
	assert_int_equal(join(AF_INET6), -1);
	fd = join(AF_INET);
	assert_true(fd >= 0);
	close(fd);
}

static void a_proved_stream(void **state)
{
	uint8_t b[RCP_PREAMBLE], answer[RCP_PREAMBLE_ANSWER];
	char c;

	(void)state;
	start(0, 0);
	int fd = join(AF_INET);

	make_preamble(3, key, b);
	for (size_t i = 0; i < sizeof(b); i++) {
		assert_int_equal(streams, 0);
		assert_int_equal(write(fd, b + i, 1), 1);
		uv_run(&loop, UV_RUN_NOWAIT);
	}
	assert_int_equal(write(fd, "X", 1), 1);
	assert_true(until(&streams));
	assert_int_equal(last.stream, 3);
	assert_int_equal(recv(fd, answer, sizeof(answer), MSG_WAITALL), sizeof(answer));
	assert_true(rcp_preamble_answered(b, key, answer));
	assert_int_equal(read(stream_fd[3], &c, 1), 1); /* what follows is the link's */
	assert_int_equal(c, 'X');
	close(fd);
}

static void others_are_closed(void **state)
{
	uint8_t b[RCP_PREAMBLE];
	int fd;

	(void)state;
	start(0, 60);
	fd = join(AF_INET); /* another protocol */
	assert_int_equal(write(fd, "GET / HTTP/1.1\r\n", 16), 16);
	assert_true(closed(fd, 1000));
	close(fd);
	fd = join(AF_INET); /* begins as ours */
	assert_int_equal(write(fd, "rsync", 5), 5);
	assert_true(closed(fd, 1000));
	close(fd);
	make_preamble(3, other_key, b);
	fd = join(AF_INET);
	assert_int_equal(write(fd, b, sizeof(b)), sizeof(b));
	assert_true(closed(fd, 1000));
	assert_int_equal(checks, 1);
	close(fd);
	fd = join(AF_INET); /* says nothing */
	assert_true(closed(fd, 2000));
	close(fd);
	fd = join(AF_INET); /* goes by itself */
	close(fd);
	for (int i = 0; i < 20; i++)
		uv_run(&loop, UV_RUN_NOWAIT);
	assert_int_equal(controls + streams, 0);
}

static void silent_crowds_keep_nobody_out(void **state)
{
	int fd[RCP_LISTEN_PENDING + 20], before = count_fds();

	(void)state;
	start(0, 5000);
	for (size_t i = 0; i < sizeof(fd) / sizeof(fd[0]); i++) {
		fd[i] = join(AF_INET);
		uv_run(&loop, UV_RUN_NOWAIT);
	}
	int mine = join(AF_INET);

	assert_int_equal(write(mine, "\x16", 1), 1);
	assert_true(until(&controls));
	assert_true(closed(fd[0], 1000)); /* the oldest had to go */
	assert_false(closed(fd[RCP_LISTEN_PENDING + 19], 5));
	rcp_listen_free(&listener);
	uv_run(&loop, UV_RUN_DEFAULT);
	for (size_t i = 0; i < sizeof(fd) / sizeof(fd[0]); i++)
		close(fd[i]);
	close(mine);
	close(control_fd);
	control_fd = -1;
	assert_int_equal(count_fds(), before);
}

static void may_be_freed_in_a_callback(void **state)
{
	uint8_t b[RCP_PREAMBLE];
	int fd, idle;

	(void)state;
	start(0, 0);
	free_in_callback = true;
	idle = join(AF_INET);
	fd = join(AF_INET);
	assert_int_equal(write(fd, "\x16", 1), 1);
	assert_true(until(&controls));
	assert_null(listener);
	assert_true(closed(idle, 1000));
	close(fd);
	close(idle);
	start(0, 0);
	fd = join(AF_INET);
	make_preamble(1, key, b);
	assert_int_equal(write(fd, b, sizeof(b)), sizeof(b));
	assert_true(until(&streams));
	assert_null(listener);
	close(fd);
}

static void a_port_in_use(void **state)
{
	struct rcp_listen_params p = {0};
	struct rcp_listen *second;
	struct rcp_err err = {0};

	(void)state;
	start(0, 0);
	p.port = rcp_listen_port(listener);
	assert_int_equal(rcp_listen_new(&loop, &p, &ops, NULL, &err, &second), RCP_E_CONNECT);
	assert_int_equal(err.sys_errno, EADDRINUSE);
	assert_null(second);
}

/* --- dial --- */

static void on_dialled(void *arg, const int *fds, const struct rcp_err *cause)
{
	(void)arg;
	dialled++;
	dial_cause = *cause;
	if (fds)
		memcpy(dial_fd, fds, 5 * sizeof(int));
	rcp_dial_free(&dial);
}

static void start_dial(const uint8_t *k, unsigned count, unsigned deadline_ms)
{
	struct rcp_dial_params p = {.to = here(AF_INET),
				    .streams = count,
				    .link = 2,
				    .key = k,
				    .deadline_ms = deadline_ms};
	struct rcp_err err = {0};

	memcpy(p.session, session, RCP_SESSION);
	assert_int_equal(rcp_dial_new(&loop, &p, on_dialled, NULL, &err, &dial), 0);
}

static void streams_in_order(void **state)
{
	(void)state;
	start(0, 0);
	start_dial(key, 5, 0);
	assert_true(until(&dialled));
	assert_int_equal(dial_cause.code, RCP_OK);
	assert_int_equal(streams, 5);
	assert_int_equal(last.link, 2);
	for (int i = 0; i < 5; i++) {
		char c = (char)('a' + i);

		assert_int_equal(write(dial_fd[i], &c, 1), 1);
		c = 0;
		assert_int_equal(recv(stream_fd[i], &c, 1, 0), 1);
		assert_int_equal(c, 'a' + i);
	}
}

static void all_streams_or_none(void **state)
{
	(void)state;
	int before = count_fds();

	start(0, 0);
	start_dial(other_key, 5, 0);
	assert_true(until(&dialled));
	assert_int_equal(dial_cause.code, RCP_E_CONNECT);
	assert_non_null(strstr(dial_cause.text, "of 5"));
	assert_int_equal(streams, 0);
	rcp_listen_free(&listener);
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(count_fds(), before);
}

/* A host that takes connections and says what it likes. */
static void strange_hosts(void **state)
{
	union rcp_sa sa = {
		.in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}};
	struct rcp_dial_params p = {.streams = 1, .key = key, .deadline_ms = 60};
	socklen_t len = sizeof(sa.in);
	struct rcp_err err = {0};
	int l = socket(AF_INET, SOCK_STREAM, 0), fd;
	char zeros[RCP_PREAMBLE_ANSWER] = {0};

	(void)state;
	assert_int_equal(bind(l, &sa.sa, len), 0);
	assert_int_equal(listen(l, 8), 0);
	getsockname(l, &sa.sa, &len);
	p.to = sa;
	assert_int_equal(rcp_dial_new(&loop, &p, on_dialled, NULL, &err, &dial), 0);
	assert_true(until(&dialled)); /* silence */
	assert_int_equal(dial_cause.sys_errno, ETIMEDOUT);
	assert_string_equal(dial_cause.call, "recv");
	close(accept(l, NULL, NULL));

	dialled = 0;
	p.deadline_ms = 3000;
	assert_int_equal(rcp_dial_new(&loop, &p, on_dialled, NULL, &err, &dial), 0);
	for (int i = 0; i < 5; i++)
		uv_run(&loop, UV_RUN_NOWAIT);
	fd = accept(l, NULL, NULL);
	assert_int_equal(write(fd, zeros, sizeof(zeros)), sizeof(zeros));
	assert_true(until(&dialled)); /* a wrong answer */
	assert_non_null(strstr(dial_cause.text, "does not know the secret"));
	close(fd);

	dialled = 0;
	close(l);
	assert_int_equal(rcp_dial_new(&loop, &p, on_dialled, NULL, &err, &dial), 0);
	assert_true(until(&dialled)); /* nobody */
	assert_int_equal(dial_cause.sys_errno, ECONNREFUSED);

	/* Freed under way. */
	assert_int_equal(rcp_dial_new(&loop, &p, on_dialled, NULL, &err, &dial), 0);
	dialled = 0;
	rcp_dial_free(&dial);
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(dialled, 0);
	p.streams = RCP_DIAL_MAX + 1;
	assert_int_equal(rcp_dial_new(&loop, &p, on_dialled, NULL, &err, &dial), RCP_E_USAGE);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_preamble_proves),
		T(tls_is_the_control_connection),
		T(both_families),
		T(a_proved_stream),
		T(others_are_closed),
		T(silent_crowds_keep_nobody_out),
		T(may_be_freed_in_a_callback),
		T(a_port_in_use),
		T(streams_in_order),
		T(all_streams_or_none),
		T(strange_hosts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
