/* race: the first address that answers wins, the reasons of the others are told. */
#include "base/clock.h"
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

static uv_loop_t loop;
static struct rcp_race *race;
static unsigned dones, won_index;
static int won;
static union rcp_sa won_at;
static struct rcp_err cause;
static uint64_t begun_ns, took_ms;
static int held[32], held_count;

static void on_done(void *arg, int fd, const union rcp_sa *to, unsigned index,
		    const struct rcp_err *why)
{
	(void)arg;
	dones++;
	won = fd;
	won_index = index;
	if (to)
		won_at = *to;
	cause = *why;
	took_ms = (rcp_now_ns() - begun_ns) / RCP_MS;
	rcp_race_free(&race);
}

static int count_fds(void)
{
	int n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static int fds_before;

static int setup(void **state)
{
	(void)state;
	dones = 0;
	won = -1;
	held_count = 0;
	memset(&cause, 0, sizeof(cause));
	fds_before = count_fds();
	return uv_loop_init(&loop);
}

static int teardown(void **state)
{
	(void)state;
	rcp_race_free(&race);
	uv_run(&loop, UV_RUN_DEFAULT);
	if (won >= 0)
		close(won);
	while (held_count)
		close(held[--held_count]);
	if (uv_loop_close(&loop) != 0)
		return -1;
	assert_int_equal(count_fds(), fds_before);
	return 0;
}

static union rcp_sa sa_of(const char *ip, uint16_t port)
{
	union rcp_sa sa;

	memset(&sa, 0, sizeof(sa));
	if (inet_pton(AF_INET, ip, &sa.in.sin_addr) == 1) {
		sa.sa.sa_family = AF_INET;
	} else {
		sa.sa.sa_family = AF_INET6;
		assert_int_equal(inet_pton(AF_INET6, ip, &sa.in6.sin6_addr), 1);
	}
	rcp_sa_set_port(&sa, port);
	return sa;
}

/* A listening port (0: any). Returns it, or 0 where it can't be had. */
static uint16_t serve(const char *ip, uint16_t port, int backlog)
{
	union rcp_sa sa = sa_of(ip, port);
	socklen_t len = rcp_sa_len(&sa);
	int fd = socket(sa.sa.sa_family, SOCK_STREAM, 0), on = 1;

	held[held_count++] = fd;
	setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
	if (bind(fd, &sa.sa, len) < 0 || listen(fd, backlog) < 0)
		return 0;
	getsockname(fd, &sa.sa, &len);
	return rcp_sa_port(&sa);
}

/* A port that swallows connections: its queue is full. */
static uint16_t serve_hole(const char *ip, uint16_t port)
{
	union rcp_sa sa;

	port = serve(ip, port, 0);
	sa = sa_of(ip, port);
	for (int i = 0; i < 3; i++) {
		int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

		held[held_count++] = fd;
		connect(fd, &sa.sa, rcp_sa_len(&sa)); /* on loopback the queue has it when this returns */
	}
	return port;
}

static void run(const char *const *ips, uint16_t port, unsigned stagger_ms, unsigned deadline_ms)
{
	struct rcp_addrs addrs = {0};
	struct rcp_race_params p = {.addrs = &addrs,
				    .port = port,
				    .stagger_ms = stagger_ms,
				    .deadline_ms = deadline_ms};
	struct rcp_err err = {0};

	for (; *ips; ips++) {
		union rcp_sa sa = sa_of(*ips, 0);

		rcp_addrs_add(&addrs, &sa, NULL, false);
	}
	begun_ns = rcp_now_ns();
	assert_int_equal(rcp_race_new(&loop, &p, on_done, NULL, &err, &race), 0);
	assert_int_equal(dones, 0);
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(dones, 1);
}

static void the_only_one(void **state)
{
	static const char *const ips[] = {"127.0.0.1", NULL};
	char text[RCP_SA_TEXT];
	uint16_t port = serve("127.0.0.1", 0, 8);

	(void)state;
	run(ips, port, 0, 0);
	assert_true(won >= 0);
	assert_int_equal(cause.code, RCP_OK);
	assert_true(fcntl(won, F_GETFL) & O_NONBLOCK);
	assert_true(fcntl(won, F_GETFD) & FD_CLOEXEC);
	assert_int_equal(rcp_sa_port(&won_at), port);
	assert_int_equal(strncmp(rcp_sa_text(&won_at, text), "127.0.0.1:", 10), 0);
}

static void refusal_is_no_delay(void **state)
{
	static const char *const ips[] = {"127.0.0.2", "127.0.0.3", "127.0.0.1", NULL};
	uint16_t port = serve("127.0.0.1", 0, 8);

	(void)state;
	run(ips, port, 1000, 4000);
	assert_int_equal(won_index, 2);
	assert_true(took_ms < 500);
}

static void silence_is_a_stagger(void **state)
{
	static const char *const ips[] = {"127.0.0.2", "127.0.0.1", NULL};
	uint16_t port = serve("127.0.0.1", 0, 8);

	(void)state;
	assert_int_equal(serve_hole("127.0.0.2", port), port);
	run(ips, port, 80, 3000);
	assert_int_equal(won_index, 1);
	assert_true(took_ms >= 75 && took_ms < 1500);
}

static void families_take_turns(void **state)
{
	static const char *const ips[] = {"127.0.0.2", "127.0.0.3", "127.0.0.4", "::1", NULL};
	uint16_t port = serve("::1", 0, 8);

	(void)state;
	if (!port) {
		print_message("no IPv6 loopback here: not tested\n");
		skip();
	}
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(serve_hole(ips[i], port), port);
	run(ips, port, 300, 6000);
	assert_int_equal(won_index, 3);
	assert_true(took_ms >= 290 && took_ms < 880); /* second, not fourth */
}

static void every_reason_is_told(void **state)
{
	static const char *const ips[] = {"127.0.0.2", "127.0.0.1", NULL};
	uint16_t port = serve_hole("127.0.0.1", 0);

	(void)state;
	run(ips, port, 10, 120);
	assert_int_equal(won, -1);
	assert_int_equal(cause.code, RCP_E_CONNECT);
	assert_non_null(strstr(cause.text, "127.0.0.2:"));
	assert_non_null(strstr(cause.text, "Connection refused; 127.0.0.1:"));
	assert_non_null(strstr(cause.text, "no answer within 0.12 s"));
	assert_true(took_ms >= 115 && took_ms < 2000);
}

static void many_reasons_are_cut(void **state)
{
	static const char *const ips[] = {"127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5",
					  "127.0.0.6", "127.0.0.7", "127.0.0.8", "127.0.0.9",
					  "127.0.1.1", "127.0.1.2", "127.0.1.3", "127.0.1.4",
					  NULL};

	(void)state;
	uint16_t port = serve("127.0.0.1", 0, 1);

	run(ips, port, 0, 0);
	assert_int_equal(won, -1);
	assert_non_null(strstr(cause.text, " more"));
	assert_true(took_ms < 500);
}

static void nowhere_to_go(void **state)
{
	struct rcp_addrs none = {0};
	struct rcp_race_params p = {.addrs = &none, .port = 1};
	struct rcp_err err = {0};

	(void)state;
	assert_int_equal(rcp_race_new(&loop, &p, on_done, NULL, &err, &race), RCP_E_CONNECT);
	assert_null(race);
}

static void may_be_freed_early(void **state)
{
	struct rcp_addrs addrs = {0};
	uint16_t port = serve_hole("127.0.0.1", 0);
	struct rcp_race_params p = {.addrs = &addrs, .port = port};
	union rcp_sa sa = sa_of("127.0.0.1", 0);
	struct rcp_err err = {0};

	(void)state;
	rcp_addrs_add(&addrs, &sa, NULL, false);
	assert_int_equal(rcp_race_new(&loop, &p, on_done, NULL, &err, &race), 0);
	uv_run(&loop, UV_RUN_NOWAIT);
	uv_run(&loop, UV_RUN_NOWAIT);
	rcp_race_free(&race);
	assert_int_equal(rcp_race_new(&loop, &p, on_done, NULL, &err, &race), 0);
	rcp_race_free(&race);
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(dones, 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(the_only_one),	T(refusal_is_no_delay),	 T(silence_is_a_stagger),
		T(families_take_turns), T(every_reason_is_told), T(many_reasons_are_cut),
		T(nowhere_to_go),	T(may_be_freed_early),
	};

	/* libuv keeps two descriptors of its first loop for good. */
	if (uv_loop_init(&loop) || uv_loop_close(&loop))
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
