/* What is agreed on before there is a link: RDMA ports (CAPS) and the ways between two hosts, addresses (READY), and
 * the preamble of a data connection. The first byte says which. */
#include "fuzz.h"

#include "boot/addrs.h"
#include "boot/preamble.h"
#include "session/negotiate.h"

#include <string.h>

static void again(const struct rcp_rdma_port *ports, unsigned count)
{
	struct rcp_rdma_port twice[RCP_RDMA_PORTS_MAX];
	struct rcp_wr w = {.max = RCP_FRAME_MAX};
	struct rcp_err err = {0};
	unsigned n;

	for (unsigned i = 0; i < count; i++)
		rcp_rdma_port_encode(&w, &ports[i]);
	MUST(!w.bad);
	MUST(rcp_rdma_ports_decode(rcp_span_of(w.data, w.len), &err, twice, RCP_RDMA_PORTS_MAX, &n) == 0);
	MUST(n == count && !memcmp(ports, twice, n * sizeof(*ports)));
	rcp_wr_free(&w);
}

static void candidates(const struct rcp_rdma_port *ports, unsigned count, uint8_t how)
{
	struct rcp_negotiate in = {.transports = how, .connect = how & 1 ? RCP_CONNECT_OOB : RCP_CONNECT_CM,
				   .tcp = how & 64, .mine = ports, .peers = ports, .mine_count = count,
				   .peer_count = count};
	struct rcp_candidate out[RCP_CANDIDATES_MAX];
	unsigned n = rcp_negotiate(&in, out, RCP_CANDIDATES_MAX);

	MUST(n <= RCP_CANDIDATES_MAX);
	for (unsigned i = 0; i < n; i++) {
		MUST(in.transports & 1u << out[i].kind || out[i].kind <= RCP_LINK_RDMA_OOB);
		MUST(memchr(out[i].label, 0, sizeof(out[i].label)));
		MUST(i == 0 || out[i].kind > RCP_LINK_RDMA_OOB || out[i - 1].score >= out[i].score);
	}
}

static void ports(const uint8_t *data, size_t size)
{
	static struct rcp_rdma_port ports[RCP_RDMA_PORTS_MAX];
	struct rcp_err err = {0};
	unsigned count = 99;

	if (!size)
		return;
	if (rcp_rdma_ports_decode(rcp_span_of(data + 1, size - 1), &err, ports, RCP_RDMA_PORTS_MAX, &count)) {
		MUST(err.code == RCP_E_CONNECT);
		return;
	}
	MUST(count <= RCP_RDMA_PORTS_MAX);
	for (unsigned i = 0; i < count; i++)
		MUST(ports[i].gid_count <= RCP_RDMA_GIDS_MAX && ports[i].addr_count <= RCP_RDMA_ADDRS_MAX);
	again(ports, count);
	candidates(ports, count, data[0]);
}

static void addrs(const uint8_t *data, size_t size)
{
	struct rcp_addrs got, twice;
	struct rcp_wr w = {.max = RCP_FRAME_MAX};
	struct rcp_err err = {0};

	if (rcp_addrs_decode(rcp_span_of(data, size), &err, &got)) {
		MUST(err.code == RCP_E_CONNECT);
		return;
	}
	MUST(got.count <= RCP_ADDRS_MAX);
	rcp_addrs_encode(&got, &w);
	MUST(!w.bad && rcp_addrs_decode(rcp_span_of(w.data, w.len), &err, &twice) == 0);
	MUST(twice.count == got.count && !memcmp(&got, &twice, sizeof(got)));
	rcp_wr_free(&w);
}

static void preamble(const uint8_t *data, size_t size)
{
	static const uint8_t key[RCP_SECRET] = {1}, session[RCP_SESSION] = {'s'};
	uint8_t answer[RCP_PREAMBLE_ANSWER], own[RCP_PREAMBLE];
	struct rcp_preamble p;
	struct rcp_err err = {0};

	if (size < RCP_PREAMBLE || !rcp_preamble_decode(data, &p))
		return;
	MUST(rcp_preamble_encode(&p, key, own, &err) == 0 && !memcmp(own, data, RCP_PREAMBLE - RCP_SECRET));
	/* Right if and only if it is what the owner of the key would say in this session. */
	bool right = rcp_preamble_check(&p, session, key, answer);

	MUST(right == (!memcmp(own, data, RCP_PREAMBLE) && !memcmp(p.session, session, RCP_SESSION)));
	MUST(!right || rcp_preamble_answered(own, key, answer));
	if (size >= RCP_PREAMBLE + RCP_PREAMBLE_ANSWER)
		rcp_preamble_answered(own, key, data + RCP_PREAMBLE);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!size)
		return 0;
	if (data[0] % 3 == 0)
		ports(data + 1, size - 1);
	else if (data[0] % 3 == 1)
		addrs(data + 1, size - 1);
	else
		preamble(data + 1, size - 1);
	return 0;
}
