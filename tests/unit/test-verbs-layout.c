/* verbs/layout and verbs/caps: what goes over the wire, and how deep the queues must be. */
#include "link/verbs/layout.h"
#include "link/verbs/verbs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void private_data_is_exact(void **state)
{
	struct verbs_private in = {.attempt = 0x1234}, out;
	uint8_t data[VERBS_PRIVATE_BYTES + 100] = {0};

	(void)state;
	memset(in.proof, 0xaa, sizeof(in.proof));
	memset(in.session, 0xbb, sizeof(in.session));
	rcp_verbs_private_encode(&in, data);
	/* InfiniBand pads what it carries; less is nothing. */
	assert_true(rcp_verbs_private_decode(data, sizeof(data), &out));
	assert_int_equal(out.attempt, 0x1234);
	assert_memory_equal(out.proof, in.proof, sizeof(in.proof));
	assert_memory_equal(out.session, in.session, sizeof(in.session));
	assert_false(rcp_verbs_private_decode(data, VERBS_PRIVATE_BYTES - 1, &out));
	assert_false(rcp_verbs_private_decode(NULL, 0, &out));
	for (size_t i = 0; i < 5; i++) {
		data[i] ^= 1;
		assert_false(rcp_verbs_private_decode(data, sizeof(data), &out));
		data[i] ^= 1;
	}
}

static void proofs_differ_in_any_bit(void **state)
{
	uint8_t a[32] = {0}, b[32] = {0};

	(void)state;
	assert_true(rcp_verbs_same(a, b, sizeof(a)));
	for (unsigned bit = 0; bit < 256; bit++) {
		b[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_false(rcp_verbs_same(a, b, sizeof(a)));
		b[bit / 8] = 0;
	}
}

static void rejects_are_read_back(void **state)
{
	uint8_t data[VERBS_REJECT_BYTES];

	(void)state;
	rcp_verbs_reject_encode(VERBS_REJECT_RESOURCES, data);
	assert_int_equal(rcp_verbs_reject_decode(data, sizeof(data)), VERBS_REJECT_RESOURCES);
	assert_int_equal(rcp_verbs_reject_decode(data, sizeof(data) - 1), 0);
	assert_int_equal(rcp_verbs_reject_decode(NULL, 0), 0);
	data[0] = 0;
	assert_int_equal(rcp_verbs_reject_decode(data, sizeof(data)), 0);
}

static void messages_are_read_back(void **state)
{
	struct verbs_message in[] = {
		{.type = VERBS_HELLO, .attempt = 7},
		{.type = VERBS_CHUNK, .imm = 0x00123456, .bytes = 65600},
		{.type = VERBS_CREDITS, .count = 1, .slots = {4095}},
		{.type = VERBS_CREDITS, .count = VERBS_CREDITS_MAX, .slots = {1, 2, 3}},
		{.type = VERBS_BYE},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(in) / sizeof(in[0]); i++) {
		uint8_t data[VERBS_MESSAGE_BYTES];
		struct verbs_message out;
		uint32_t len = rcp_verbs_message_encode(&in[i], data);

		assert_true(len <= VERBS_MESSAGE_BYTES);
		assert_true(rcp_verbs_message_decode(data, len, &out));
		assert_memory_equal(&in[i], &out, sizeof(out));
		for (uint32_t cut = 0; cut < len; cut++)
			assert_false(rcp_verbs_message_decode(data, cut, &out));
		if (len < VERBS_MESSAGE_BYTES)
			assert_false(rcp_verbs_message_decode(data, len + 1, &out));
	}
}

static void messages_with_anything_else_in_them_are_refused(void **state)
{
	struct verbs_message chunk = {.type = VERBS_CHUNK}, bye = {.type = VERBS_BYE}, out;
	uint8_t data[VERBS_MESSAGE_BYTES] = {0};

	(void)state;
	assert_false(rcp_verbs_message_decode(data, 8, &out));
	data[0] = VERBS_BYE + 1;
	assert_false(rcp_verbs_message_decode(data, 8, &out));
	data[0] = VERBS_CREDITS;
	assert_false(rcp_verbs_message_decode(data, 4, &out));
	data[1] = VERBS_CREDITS_MAX + 1;
	assert_false(rcp_verbs_message_decode(data, VERBS_MESSAGE_BYTES, &out));
	rcp_verbs_message_encode(&chunk, data);
	data[15] = 1;
	assert_false(rcp_verbs_message_decode(data, 16, &out));
	rcp_verbs_message_encode(&bye, data);
	data[2] = 1;
	assert_false(rcp_verbs_message_decode(data, 8, &out));
}

static void wr_ids_keep_both_halves(void **state)
{
	(void)state;
	for (unsigned kind = VERBS_WR_RECV; kind <= VERBS_WR_CHUNK; kind++) {
		uint64_t id = rcp_verbs_wr_id(kind, 0xfffffffe);

		assert_int_equal(rcp_verbs_wr_kind(id), kind);
		assert_int_equal(rcp_verbs_wr_index(id), 0xfffffffe);
	}
}

/* Whatever the device allows: every credit has a receive, every request a completion. */
static void depths_never_overrun(void **state)
{
	static const uint32_t wr[] = {1, 3, 9, 40, 100, 257, 16384},
			      cqe[] = {8, 50, 511, 4095, 1 << 20};
	static const uint32_t slots[] = {1, 2, 7, 32, 500, 4096};

	(void)state;
	for (unsigned n = 0; n < 7 * 5 * 6 * 6; n++) {
		enum rcp_role role = n & 1 ? RCP_ROLE_SOURCE : RCP_ROLE_SINK;
		unsigned requests = 1 + n / 2 % 3;
		struct verbs_limits l = {.qp_wr = wr[n / 6 % 7], .cqe = cqe[n / 42 % 5]};
		uint32_t wanted = slots[n / 210];
		struct verbs_depth d;

		if (!rcp_verbs_depth(role, wanted, requests, &l, &d)) {
			/* Not even one slot. */
			assert_true(l.qp_wr < 9 || l.cqe < 12);
			continue;
		}
		assert_in_range(d.slots, 1, wanted);
		assert_true(d.send_wr <= l.qp_wr && d.recv_wr <= l.qp_wr && d.cqe <= l.cqe);
		assert_int_equal(d.recv_wr, d.slots + VERBS_RECV_SPARE);
		assert_int_equal(d.posts, role == RCP_ROLE_SOURCE ? d.slots : 0);
		assert_int_equal(d.send_wr, d.posts * requests + d.small);
		assert_int_equal(d.cqe, d.send_wr + d.recv_wr);
	}
}

static void depths_use_what_there_is(void **state)
{
	struct verbs_limits roomy = {.qp_wr = 16384, .cqe = 32767},
			    tight = {.qp_wr = 66, .cqe = 4096};
	struct verbs_depth d;

	(void)state;
	assert_true(rcp_verbs_depth(RCP_ROLE_SOURCE, 32, 2, &roomy, &d));
	assert_int_equal(d.slots, 32);
	assert_int_equal(d.send_wr, 66);
	assert_true(rcp_verbs_depth(RCP_ROLE_SOURCE, 32, 2, &tight, &d));
	assert_int_equal(d.slots, 32);
	tight.qp_wr = 65;
	assert_true(rcp_verbs_depth(RCP_ROLE_SOURCE, 32, 2, &tight, &d));
	assert_in_range(d.slots, 28, 31);
}

static void chunks_leave_room_for_the_header(void **state)
{
	(void)state;
	assert_int_equal(rcp_verbs_chunk_bytes(1 << 20, 0xffffffff), 1 << 20);
	assert_int_equal(rcp_verbs_chunk_bytes(8 << 20, 8 << 20), (8 << 20) - 4096);
	assert_int_equal(rcp_verbs_chunk_bytes(8 << 20, (8 << 20) + 64), 8 << 20);
	assert_int_equal(rcp_verbs_chunk_bytes(1 << 20, 4096), 0);
	assert_int_equal(rcp_verbs_chunk_bytes(1 << 20, 0), 0);
}

static struct rcp_rdma_port sample_port(void)
{
	struct rcp_rdma_port p = {.index = 3,
				  .device = "mlx5_0",
				  .number = 2,
				  .layer = RCP_LAYER_ETHERNET,
				  .transport = RCP_RDMA_IB,
				  .mtu = 5,
				  .rate_mbps = 100000,
				  .lid = 0,
				  .max_msg_bytes = 1u << 30,
				  .imm = true,
				  .numa = 1,
				  .cm_port = 40000,
				  .netdev = "eth2",
				  .gid_count = 2,
				  .addr_count = 2};

	p.gids[0] = (struct rcp_rdma_gid){.type = RCP_GID_ROCE_V2, .index = 5, .gid = {1, 2, 3}};
	p.gids[1] = (struct rcp_rdma_gid){.type = RCP_GID_ROCE_V1, .index = 4, .gid = {4, 5, 6}};
	((struct sockaddr_in *)&p.addrs[0])->sin_family = AF_INET;
	((struct sockaddr_in *)&p.addrs[0])->sin_addr.s_addr = htonl(0x0a090001);
	((struct sockaddr_in6 *)&p.addrs[1])->sin6_family = AF_INET6;
	((struct sockaddr_in6 *)&p.addrs[1])->sin6_addr.s6_addr[15] = 9;
	return p;
}

static void ports_are_read_back(void **state)
{
	struct rcp_rdma_port in = sample_port(), out[3];
	struct rcp_wr w = {.max = 1 << 16};
	struct rcp_err err = {0};
	unsigned count;

	(void)state;
	rcp_rdma_port_encode(&w, &in);
	in.index = 4;
	rcp_rdma_port_encode(&w, &in);
	assert_false(w.bad);
	assert_int_equal(rcp_rdma_ports_decode(rcp_span_of(w.data, w.len), &err, out, 3, &count),
			 0);
	assert_int_equal(count, 2);
	assert_memory_equal(&out[1], &in, sizeof(in));
	assert_int_equal(out[0].index, 3);
	/* More than asked for is left out, not an error. */
	assert_int_equal(rcp_rdma_ports_decode(rcp_span_of(w.data, w.len), &err, out, 1, &count),
			 0);
	assert_int_equal(count, 1);
	rcp_wr_free(&w);
}

/* Any prefix, any byte changed: bounded, and in bounds. */
static void hostile_ports_stay_in_bounds(void **state)
{
	struct rcp_rdma_port in = sample_port(), out[2];
	struct rcp_wr w = {.max = 1 << 16};
	unsigned count;

	(void)state;
	rcp_rdma_port_encode(&w, &in);
	for (size_t len = 1; len < w.len; len++) {
		struct rcp_err err = {0};
		uint8_t *exact = malloc(len);

		assert_non_null(exact);
		memcpy(exact, w.data, len);
		assert_int_equal(
			rcp_rdma_ports_decode(rcp_span_of(exact, len), &err, out, 2, &count),
			RCP_E_CONNECT);
		free(exact);
	}
	for (size_t at = 0; at < w.len; at++) {
		uint8_t was = w.data[at];

		for (unsigned v = 0; v < 256; v += 5) {
			struct rcp_err err = {0};

			w.data[at] = (uint8_t)v;
			rcp_rdma_ports_decode(rcp_span_of(w.data, w.len), &err, out, 2, &count);
			for (unsigned i = 0; i < count && i < 2; i++) {
				assert_true(out[i].gid_count <= RCP_RDMA_GIDS_MAX);
				assert_true(out[i].addr_count <= RCP_RDMA_ADDRS_MAX);
				assert_in_range(out[i].mtu, 1, 5);
				assert_non_null(memchr(out[i].device, 0, sizeof(out[i].device)));
				assert_non_null(memchr(out[i].netdev, 0, sizeof(out[i].netdev)));
			}
		}
		w.data[at] = was;
	}
	rcp_wr_free(&w);
}

static void many_gids_and_addresses_are_cut(void **state)
{
	struct rcp_wr gids = {.max = 1 << 16}, addrs = {.max = 1 << 16}, w = {.max = 1 << 17};
	struct rcp_rec_gid g = {.type = RCP_GID_ROCE_V2};
	struct rcp_rec_addr a = {.family = 4};
	struct rcp_rdma_port out[1];
	struct rcp_err err = {0};
	unsigned count;

	(void)state;
	for (uint8_t i = 0; i < 200; i++) {
		/* a type and a family of the future among them */
		g.type = i == 0 ? 9 : RCP_GID_ROCE_V2;
		a.family = i == 0 ? 5 : 4;
		g.gid.b[0] = a.addr.b[0] = i;
		rcp_rec_encode(&gids, RCP_REC_GID, &g);
		rcp_rec_encode(&addrs, RCP_REC_ADDR, &a);
	}
	struct rcp_rec_port p = {.number = 1,
				 .link_layer = RCP_LAYER_ETHERNET,
				 .transport = RCP_RDMA_IWARP,
				 .mtu = 3,
				 .gids = rcp_span_of(gids.data, gids.len),
				 .addrs = rcp_span_of(addrs.data, addrs.len)};

	rcp_rec_encode(&w, RCP_REC_PORT, &p);
	assert_int_equal(rcp_rdma_ports_decode(rcp_span_of(w.data, w.len), &err, out, 1, &count),
			 0);
	assert_int_equal(count, 1);
	assert_int_equal(out[0].gid_count, RCP_RDMA_GIDS_MAX);
	assert_int_equal(out[0].addr_count, RCP_RDMA_ADDRS_MAX);
	assert_int_equal(out[0].gids[0].gid[0], 1);
	rcp_wr_free(&gids);
	rcp_wr_free(&addrs);
	rcp_wr_free(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(private_data_is_exact),
		cmocka_unit_test(proofs_differ_in_any_bit),
		cmocka_unit_test(rejects_are_read_back),
		cmocka_unit_test(messages_are_read_back),
		cmocka_unit_test(messages_with_anything_else_in_them_are_refused),
		cmocka_unit_test(wr_ids_keep_both_halves),
		cmocka_unit_test(depths_never_overrun),
		cmocka_unit_test(depths_use_what_there_is),
		cmocka_unit_test(chunks_leave_room_for_the_header),
		cmocka_unit_test(ports_are_read_back),
		cmocka_unit_test(hostile_ports_stay_in_bounds),
		cmocka_unit_test(many_gids_and_addresses_are_cut),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
