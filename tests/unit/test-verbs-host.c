/* verbs: addresses, GIDs and errors of a host with RDMA; built only where there is RDMA. */
#include "link/verbs/priv.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

static struct rcp_rdma_gid gid(enum rcp_gid_type type, const char *text, uint16_t index)
{
	struct rcp_rdma_gid g = {.type = type, .index = index};

	assert_int_equal(inet_pton(AF_INET6, text, g.gid), 1);
	return g;
}

static void the_best_gid_comes_first(void **state)
{
	const struct rcp_rdma_gid in[] = {
		gid(RCP_GID_ROCE_V1, "fe80::1", 0),
		gid(RCP_GID_ROCE_V2, "fe80::1", 1),
		gid(RCP_GID_ROCE_V1, "::ffff:10.0.0.1", 2),
		gid(RCP_GID_ROCE_V2, "::ffff:10.0.0.1", 3),
		gid(RCP_GID_ROCE_V1, "2001:db8::1", 4),
		gid(RCP_GID_ROCE_V2, "2001:db8::1", 5),
		gid(RCP_GID_ROCE_V2, "::ffff:10.0.0.2", 6),
	};
	static const uint16_t want[] = {3, 6, 5, 1, 2, 4, 0};
	struct rcp_rdma_port port = {0};

	(void)state;
	for (size_t i = 0; i < 7; i++)
		rcp_verbs_gid_insert(&port, &in[i]);
	assert_int_equal(port.gid_count, 7);
	for (size_t i = 0; i < 7; i++)
		assert_int_equal(port.gids[i].index, want[i]);
}

static void too_many_gids_push_out_the_worst(void **state)
{
	struct rcp_rdma_gid poor = gid(RCP_GID_ROCE_V1, "fe80::1", 0);
	struct rcp_rdma_gid good = gid(RCP_GID_ROCE_V2, "::ffff:10.0.0.1", 100);
	struct rcp_rdma_port port = {0};

	(void)state;
	for (uint16_t i = 0; i < 3 * RCP_RDMA_GIDS_MAX; i++) {
		poor.index = i;
		rcp_verbs_gid_insert(&port, &poor);
	}
	assert_int_equal(port.gid_count, RCP_RDMA_GIDS_MAX);
	assert_int_equal(port.gids[RCP_RDMA_GIDS_MAX - 1].index, RCP_RDMA_GIDS_MAX - 1);
	rcp_verbs_gid_insert(&port, &good);
	assert_int_equal(port.gid_count, RCP_RDMA_GIDS_MAX);
	assert_int_equal(port.gids[0].index, 100);
	assert_int_equal(port.gids[RCP_RDMA_GIDS_MAX - 1].index, RCP_RDMA_GIDS_MAX - 2);
}

static void addresses_are_parsed_and_shown(void **state)
{
	static const struct {
		const char *in, *bare, *with_port;
	} good[] = {
		{"10.9.0.1", "10.9.0.1", "10.9.0.1:7"},
		{"2001:db8::1", "2001:db8::1", "[2001:db8::1]:7"},
		{"fe80::1%lo", "fe80::1%lo", "[fe80::1%lo]:7"},
	};
	static const char *const bad[] = {"",
					  "host",
					  "10.9.0",
					  "10.9.0.1%lo",
					  "fe80::1%",
					  "fe80::1%nosuchdev",
					  "1:2:3:4:5:6:7:8:9",
					  "0000:0000:0000:0000:0000:0000:0000:0000:0000:0000"};
	struct sockaddr_storage a;
	char buf[80];

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		assert_true(rcp_verbs_addr_parse(good[i].in, &a));
		rcp_verbs_addr_set_port(&a, 7);
		assert_int_equal(rcp_verbs_addr_port(&a), 7);
		assert_string_equal(rcp_verbs_addr_text(&a, false, buf, sizeof(buf)), good[i].bare);
		assert_string_equal(rcp_verbs_addr_text(&a, true, buf, sizeof(buf)),
				    good[i].with_port);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_false(rcp_verbs_addr_parse(bad[i], &a));
}

static void gids_stand_for_addresses(void **state)
{
	struct rcp_rdma_gid four = gid(RCP_GID_ROCE_V2, "::ffff:10.9.0.1", 0);
	struct rcp_rdma_gid local = gid(RCP_GID_ROCE_V2, "fe80::5", 0);
	struct sockaddr_storage a, b;

	(void)state;
	rcp_verbs_gid_addr(four.gid, 9, &a);
	assert_true(rcp_verbs_addr_parse("10.9.0.1", &b));
	assert_true(rcp_verbs_addr_equal(&a, &b));
	assert_false(rcp_verbs_addr_link_local(&a));
	rcp_verbs_gid_addr(local.gid, 9, &a);
	assert_int_equal(rcp_verbs_addr_scope(&a), 9);
	assert_true(rcp_verbs_addr_link_local(&a));
	/* A zone that isn't said fits any; two that differ don't. */
	assert_true(rcp_verbs_addr_parse("fe80::5", &b));
	assert_true(rcp_verbs_addr_equal(&a, &b));
	((struct sockaddr_in6 *)&b)->sin6_scope_id = 8;
	assert_false(rcp_verbs_addr_equal(&a, &b));
}

static struct sockaddr_storage address(const char *text)
{
	struct sockaddr_storage a;

	assert_true(rcp_verbs_addr_parse(text, &a));
	return a;
}

/* A made-up interface list: global IPv4 first, link-local last, other netdevs not at all. */
static void addresses_of_a_netdev_best_first(void **state)
{
	static const char *const in[] = {"fe80::1", "2001:db8::1", "169.254.1.1", "10.0.0.1",
					 "10.0.0.1"};
	static const char *const want[] = {"10.0.0.1", "2001:db8::1", "169.254.1.1", "fe80::1"};
	struct sockaddr_storage addrs[6];
	struct ifaddrs list[6] = {0};
	char eth0[] = "eth0", eth1[] = "eth1", buf[80];
	struct rcp_rdma_port port = {0};

	(void)state;
	for (size_t i = 0; i < 6; i++) {
		addrs[i] = address(i < 5 ? in[i] : "10.0.0.9");
		list[i] = (struct ifaddrs){.ifa_next = i < 5 ? &list[i + 1] : NULL,
					   .ifa_name = i < 5 ? eth0 : eth1,
					   .ifa_flags = IFF_UP,
					   .ifa_addr = (struct sockaddr *)&addrs[i]};
	}
	rcp_verbs_addrs_add(&port, list, "eth0");
	assert_string_equal(port.netdev, "eth0");
	assert_int_equal(port.addr_count, 4);
	for (size_t i = 0; i < 4; i++)
		assert_string_equal(rcp_verbs_addr_text(&port.addrs[i], false, buf, sizeof(buf)),
				    want[i]);
}

static void hardware_addresses_find_the_netdev(void **state)
{
	/* sockaddr_ll as getifaddrs gives it: family, 10 bytes, length, up to 24 of address */
	struct {
		uint16_t family;
		uint8_t fill[9], len, addr[24];
	} ll = {.family = AF_PACKET, .len = 20};
	struct sockaddr_storage a = address("10.0.0.1");
	char ib0[] = "ib0";
	struct ifaddrs list[2] = {
		{.ifa_next = &list[1],
		 .ifa_name = ib0,
		 .ifa_flags = IFF_UP,
		 .ifa_addr = (struct sockaddr *)&ll},
		{.ifa_name = ib0, .ifa_flags = IFF_UP, .ifa_addr = (struct sockaddr *)&a}};
	struct rcp_rdma_gid g = gid(RCP_GID_IB, "fe80::2:c903:1", 0);
	struct rcp_rdma_port port = {.layer = RCP_LAYER_INFINIBAND};

	(void)state;
	memcpy(ll.addr + 4, g.gid, 16);
	rcp_verbs_addrs_by_hardware(&port, list, g.gid);
	assert_string_equal(port.netdev, "ib0");
	assert_int_equal(port.addr_count, 1);
	ll.addr[19] ^= 1;
	port = (struct rcp_rdma_port){.layer = RCP_LAYER_INFINIBAND};
	rcp_verbs_addrs_by_hardware(&port, list, g.gid);
	assert_int_equal(port.addr_count, 0);
	/* iWARP: the GID starts with the MAC address. */
	ll.len = 6;
	memcpy(ll.addr, g.gid, 6);
	port = (struct rcp_rdma_port){.layer = RCP_LAYER_ETHERNET};
	rcp_verbs_addrs_by_hardware(&port, list, g.gid);
	assert_int_equal(port.addr_count, 1);
}

static void errors_know_every_convention(void **state)
{
	struct rcp_err a = {0}, b = {0}, c = {0}, d = {0};

	(void)state;
	assert_int_equal(rcp_verbs_err_ret(&a, RCP_E_LINK, EINVAL, "ibv_post_send", "x"),
			 RCP_E_LINK);
	assert_int_equal(a.sys_errno, EINVAL);
	rcp_verbs_err_ret(&b, RCP_E_LINK, -EINVAL, "ibv_post_send", "x");
	assert_int_equal(b.sys_errno, EINVAL);
	errno = ENODEV;
	rcp_verbs_err_ret(&c, RCP_E_LINK, -1, "ibv_modify_qp", "x");
	assert_int_equal(c.sys_errno, ENODEV);
	errno = EADDRNOTAVAIL;
	rcp_verbs_err_errno(&d, RCP_E_CONNECT, "rdma_bind_addr", "10.0.0.1");
	assert_int_equal(d.sys_errno, EADDRNOTAVAIL);
	assert_true(d.fix[0]);
	assert_true(rcp_verbs_ret_refused(-EINVAL));
	assert_true(rcp_verbs_ret_refused(EOPNOTSUPP));
	assert_false(rcp_verbs_ret_refused(ENOMEM));
}

static void memlock_errors_tell_the_limit(void **state)
{
	struct rlimit was, now;
	struct rcp_err err = {0};

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &was), 0);
	now = was;
	now.rlim_cur = now.rlim_max < (8 << 20) ? now.rlim_max : 8 << 20;
	assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &now), 0);
	errno = ENOMEM;
	rcp_verbs_err_errno(&err, RCP_E_CONNECT, "ibv_reg_mr", "rxe0/1");
	assert_non_null(strstr(err.fix, "KiB"));
	assert_non_null(strstr(err.fix, "ulimit -l"));
	assert_non_null(strstr(err.fix, "limits.conf"));
	assert_non_null(strstr(err.fix, "LimitMEMLOCK"));
	rcp_verbs_memlock_raise();
	assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &now), 0);
	assert_true(now.rlim_cur == now.rlim_max);
	setrlimit(RLIMIT_MEMLOCK, &was);
}

static void bad_completions_in_words(void **state)
{
	(void)state;
	for (unsigned s = IBV_WC_LOC_LEN_ERR; s <= IBV_WC_TM_RNDV_INCOMPLETE; s++) {
		struct ibv_wc wc = {.status = s, .vendor_err = 0x12};
		struct rcp_err err = {0};

		rcp_verbs_err_wc(&err, &wc, "chunk", "rxe0/1");
		assert_int_equal(err.code, RCP_E_LINK);
		assert_non_null(strstr(err.text, "vendor 0x12"));
		assert_int_equal(err.fix[0] != 0,
				 s == IBV_WC_RETRY_EXC_ERR || s == IBV_WC_REM_INV_REQ_ERR ||
					 s == IBV_WC_LOC_LEN_ERR || s == IBV_WC_LOC_QP_OP_ERR ||
					 s == IBV_WC_FATAL_ERR || s == IBV_WC_GENERAL_ERR);
	}
	struct ibv_wc long_one = {.status = IBV_WC_LOC_LEN_ERR};
	struct rcp_err err = {0};

	rcp_verbs_err_wc(&err, &long_one, "receive", "rxe0/1");
	assert_non_null(strstr(err.text, "the peer sent"));
	assert_int_equal(err.fix[0], 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_best_gid_comes_first),
		cmocka_unit_test(too_many_gids_push_out_the_worst),
		cmocka_unit_test(addresses_are_parsed_and_shown),
		cmocka_unit_test(gids_stand_for_addresses),
		cmocka_unit_test(addresses_of_a_netdev_best_first),
		cmocka_unit_test(hardware_addresses_find_the_netdev),
		cmocka_unit_test(errors_know_every_convention),
		cmocka_unit_test(memlock_errors_tell_the_limit),
		cmocka_unit_test(bad_completions_in_words),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
