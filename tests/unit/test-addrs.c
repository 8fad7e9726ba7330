/* addrs, sock: which addresses a host tells, and what is believed of a peer's. */
#include "boot/addrs.h"
#include "wire/msg.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static union rcp_sa sa_of(const char *ip)
{
	union rcp_sa sa;

	assert_true(rcp_sa_parse(ip, &sa));
	return sa;
}

static void text(void **state)
{
	static const struct {
		const char *ip;
		uint16_t port;
		const char *want;
	} t[] = {
		{"192.0.2.1", 80, "192.0.2.1:80"},
		{"192.0.2.1", 0, "192.0.2.1"},
		{"2001:db8::1", 80, "[2001:db8::1]:80"},
		{"2001:db8::1", 0, "2001:db8::1"},
	};
	char buf[RCP_SA_TEXT];

	(void)state;
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		union rcp_sa sa = sa_of(t[i].ip);

		rcp_sa_set_port(&sa, t[i].port);
		assert_int_equal(rcp_sa_port(&sa), t[i].port);
		assert_string_equal(rcp_sa_text(&sa, buf), t[i].want);
	}
	/* What accept gives for IPv4 on a dual-stack socket. */
	union rcp_sa mapped = {.in6 = {.sin6_family = AF_INET6, .sin6_port = htons(9)}};

	assert_int_equal(inet_pton(AF_INET6, "::ffff:192.0.2.1", &mapped.in6.sin6_addr), 1);
	assert_string_equal(rcp_sa_text(&mapped, buf), "192.0.2.1:9");
}

static void what_is_no_address(void **state)
{
	static const char *const bad[] = {"",	   "host",	   "[::1]",
					  "1.2.3", "fe80::1%eth0", "1.2.3.4:5"};
	union rcp_sa sa;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_false(rcp_sa_parse(bad[i], &sa));
	assert_true(rcp_sa_parse("::ffff:192.0.2.1", &sa));
	assert_int_equal(sa.sa.sa_family, AF_INET);
	assert_int_equal(ntohl(sa.in.sin_addr.s_addr), 0xc0000201);
}

static void lists(void **state)
{
	struct rcp_addrs a = {0};
	char ip[32], buf[RCP_SA_TEXT];

	(void)state;
	for (int i = 0; i < RCP_ADDRS_MAX + 5; i++) {
		snprintf(ip, sizeof(ip), "192.0.2.%d", i + 1);
		union rcp_sa sa = sa_of(ip);

		rcp_addrs_add(&a, &sa, "eth0", false);
		rcp_addrs_add(&a, &sa, "eth1", false);
	}
	assert_int_equal(a.count, RCP_ADDRS_MAX);
	assert_string_equal(a.at[0].netdev, "eth0");
	union rcp_sa sa = sa_of("192.0.2.3");

	rcp_addrs_add(&a, &sa, NULL, true);
	assert_int_equal(a.count, RCP_ADDRS_MAX);
	assert_string_equal(rcp_sa_text(&a.at[0].sa, buf), "192.0.2.3");
	assert_string_equal(rcp_sa_text(&a.at[1].sa, buf), "192.0.2.1");
	assert_string_equal(rcp_sa_text(&a.at[2].sa, buf), "192.0.2.2");
	assert_string_equal(rcp_sa_text(&a.at[3].sa, buf), "192.0.2.4");
	sa = sa_of("2001:db8::7");
	rcp_addrs_add(&a, &sa, "a device with a long name", true);
	assert_int_equal(a.count, RCP_ADDRS_MAX);
	assert_string_equal(rcp_sa_text(&a.at[0].sa, buf), "2001:db8::7");
	assert_int_equal(strlen(a.at[0].netdev), sizeof(a.at[0].netdev) - 1);
}

static bool has(const struct rcp_addrs *a, const char *ip)
{
	char buf[RCP_SA_TEXT];

	for (unsigned i = 0; i < a->count; i++) {
		if (strcmp(rcp_sa_text(&a->at[i].sa, buf), ip) == 0)
			return true;
	}
	return false;
}

static void local(void **state)
{
	struct rcp_addrs a;
	struct rcp_err err = {0};
	char buf[RCP_SA_TEXT];

	(void)state;
	/* Not by loopback: its addresses are nobody's business. */
	assert_int_equal(rcp_addrs_local("192.0.2.9 50000 192.0.2.8 22", 0, &err, &a), 0);
	assert_string_equal(rcp_sa_text(&a.at[0].sa, buf), "192.0.2.8");
	assert_false(has(&a, "127.0.0.1"));
	assert_int_equal(rcp_addrs_local(NULL, 0, &err, &a), 0);
	assert_false(has(&a, "127.0.0.1"));
	assert_false(has(&a, "::1"));
	/* By loopback. */
	assert_int_equal(rcp_addrs_local("127.0.0.1 50000 127.0.0.1 22", 0, &err, &a), 0);
	assert_string_equal(rcp_sa_text(&a.at[0].sa, buf), "127.0.0.1");
	assert_string_equal(a.at[0].netdev, "lo");
	assert_int_equal(rcp_addrs_local("::1 50000 ::1 22", 4, &err, &a), 0);
	assert_false(has(&a, "::1"));
	assert_true(has(&a, "127.0.0.1"));
	for (unsigned i = 0; i < a.count; i++)
		assert_int_equal(a.at[i].sa.sa.sa_family, AF_INET);
	/* What is not an address, or no use to others. */
	static const char *const odd[] = {"",
					  "a b c d",
					  "UNKNOWN 65535 UNKNOWN 65535",
					  "1 2",
					  "fe80::1%eth0 1 fe80::2%eth0 22",
					  "1 2 0.0.0.0 3"};

	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
		assert_int_equal(rcp_addrs_local(odd[i], 0, &err, &a), 0);
		assert_false(has(&a, "fe80::2"));
		assert_false(has(&a, "0.0.0.0"));
	}
	assert_int_equal(rcp_addrs_local("::ffff:192.0.2.9 1 ::ffff:192.0.2.8 22", 0, &err, &a), 0);
	assert_int_equal(a.at[0].sa.sa.sa_family, AF_INET);
}

static void wire(void **state)
{
	struct rcp_addrs a = {0}, b;
	struct rcp_wr w = {.max = 65536};
	struct rcp_err err = {0};
	union rcp_sa sa = sa_of("192.0.2.1");

	(void)state;
	rcp_addrs_add(&a, &sa, "eth0", false);
	sa = sa_of("2001:db8::1");
	rcp_addrs_add(&a, &sa, NULL, false);
	rcp_addrs_encode(&a, &w);
	assert_false(w.bad);
	assert_int_equal(rcp_addrs_decode(rcp_span_of(w.data, w.len), &err, &b), 0);
	assert_memory_equal(&a, &b, sizeof(a));
	assert_int_equal(rcp_addrs_decode(rcp_span_of(w.data, w.len - 1), &err, &b), RCP_E_CONNECT);
	memset(&err, 0, sizeof(err));
	assert_int_equal(rcp_addrs_decode(rcp_span_of(NULL, 0), &err, &b), 0);
	assert_int_equal(b.count, 0);
	rcp_wr_free(&w);
}

static void hostile(void **state)
{
	static const char *const useless[] = {"0.0.0.0",     "224.0.0.1", "255.255.255.255",
					      "169.254.1.1", "::",	  "ff02::1",
					      "fe80::1"};
	struct rcp_rec_addr rec = {.family = 9};
	struct rcp_wr w = {.max = 65536};
	struct rcp_err err = {0};
	struct rcp_addrs b;

	(void)state;
	rcp_rec_encode(&w, RCP_REC_ADDR, &rec);
	for (size_t i = 0; i < sizeof(useless) / sizeof(useless[0]); i++) {
		union rcp_sa sa = sa_of(useless[i]);

		rec.family = sa.sa.sa_family == AF_INET6 ? 6 : 4;
		if (rec.family == 6)
			memcpy(rec.addr.b, &sa.in6.sin6_addr, 16);
		else
			memcpy(rec.addr.b, &sa.in.sin_addr, 4);
		rcp_rec_encode(&w, RCP_REC_ADDR, &rec);
	}
	rec.family = 6; /* IPv4 in IPv6's clothes */
	assert_int_equal(inet_pton(AF_INET6, "::ffff:127.0.0.1", rec.addr.b), 1);
	rcp_rec_encode(&w, RCP_REC_ADDR, &rec);
	assert_int_equal(rcp_addrs_decode(rcp_span_of(w.data, w.len), &err, &b), 0);
	assert_int_equal(b.count, 0);
	while (w.len < 4000)
		rcp_rec_encode(&w, RCP_REC_ADDR, &rec);
	assert_int_equal(rcp_addrs_decode(rcp_span_of(w.data, w.len), &err, &b), RCP_E_CONNECT);
	rcp_wr_free(&w);
}

static void options(void **state)
{
	const struct rcp_sock_options o = {.tos = 0x20, .timeout_ms = 10000};
	struct rcp_err err = {0};
	int fd = rcp_sock_new(AF_INET, &err), v = 0;
	socklen_t len = sizeof(v);

	(void)state;
	assert_true(fd >= 0);
	rcp_sock_tune(fd, &o);
	assert_int_equal(getsockopt(fd, IPPROTO_IP, IP_TOS, &v, &len), 0);
	assert_int_equal(v, 0x20);
	assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &v, &len), 0);
	assert_int_equal(v, 10000);
	assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &v, &len), 0);
	assert_true(v != 0);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(text),	   cmocka_unit_test(what_is_no_address),
		cmocka_unit_test(lists),   cmocka_unit_test(local),
		cmocka_unit_test(wire),	   cmocka_unit_test(hostile),
		cmocka_unit_test(options),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
