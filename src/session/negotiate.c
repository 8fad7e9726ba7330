#include "session/negotiate.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint8_t *addr_bytes(const struct sockaddr_storage *sa, size_t *len)
{
	if (sa->ss_family == AF_INET) {
		*len = 4;
		return (const uint8_t *)&((const struct sockaddr_in *)(const void *)sa)->sin_addr;
	}
	*len = 16;
	return (const uint8_t *)&((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr;
}

int rcp_addr_common_bits(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
	size_t len, same;
	const uint8_t *x = addr_bytes(a, &len), *y = addr_bytes(b, &same);
	int bits = 0;

	if (a->ss_family != b->ss_family)
		return -1;
	for (size_t i = 0; i < len; i++, bits += 8) {
		unsigned diff = (unsigned)(x[i] ^ y[i]);

		if (diff)
			return bits + __builtin_clz(diff) - 24;
	}
	return bits;
}

/* No prefix lengths are exchanged: a common /24 or /64 is what subnets mostly are. */
static bool same_subnet(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
	return rcp_addr_common_bits(a, b) >= (a->ss_family == AF_INET ? 24 : 64);
}

/* The best pair of addresses of one family; its score, or -1 where it is not shared. */
static int64_t pair_addrs(const struct rcp_rdma_port *m, const struct rcp_rdma_port *p, int family,
			  struct rcp_candidate *c)
{
	int64_t best = -1;

	for (unsigned i = 0; i < m->addr_count; i++) {
		for (unsigned j = 0; j < p->addr_count; j++) {
			int bits = rcp_addr_common_bits(&m->addrs[i], &p->addrs[j]);
			int64_t score = bits + (bits >= 0 && same_subnet(&m->addrs[i], &p->addrs[j]) ? 1000 : 0);

			if (bits < 0 || m->addrs[i].ss_family != family || score <= best)
				continue;
			best = score;
			c->local = m->addrs[i];
			c->remote = p->addrs[j];
		}
	}
	/* At the same nearness IPv4 goes first: RoCE v2 over IPv4 is what most fabrics are set up for. */
	return best >= 0 && family == AF_INET ? best + 128 : best;
}

static void set_port(struct sockaddr_storage *sa, uint16_t port)
{
	if (sa->ss_family == AF_INET)
		((struct sockaddr_in *)(void *)sa)->sin_port = htons(port);
	else
		((struct sockaddr_in6 *)(void *)sa)->sin6_port = htons(port);
}

static void addr_text(const struct sockaddr_storage *sa, char *buf, size_t size)
{
	size_t len;
	const uint8_t *b = addr_bytes(sa, &len);

	if (!inet_ntop(sa->ss_family, b, buf, (socklen_t)size))
		snprintf(buf, size, "?");
}

static bool same_fabric(const struct rcp_rdma_port *m, const struct rcp_rdma_port *p)
{
	return m->layer == p->layer && m->transport == p->transport;
}

static bool candidate_cm(const struct rcp_rdma_port *m, const struct rcp_rdma_port *p, int family,
			 struct rcp_candidate *c)
{
	char a[INET6_ADDRSTRLEN], b[INET6_ADDRSTRLEN];
	int64_t score = p->cm_port ? pair_addrs(m, p, family, c) : -1;

	if (score < 0)
		return false;
	c->kind = RCP_LINK_RDMA_CM;
	c->score = score * 1000000;
	set_port(&c->local, 0);
	set_port(&c->remote, p->cm_port);
	addr_text(&c->local, a, sizeof(a));
	addr_text(&c->remote, b, sizeof(b));
	snprintf(c->label, sizeof(c->label), "rdma %s:%u %s to %s:%u %s", m->device, m->number, a,
		 p->device, p->number, b);
	return true;
}

/* The first GID type of mine that the peer has too (mine are sorted best first). */
static enum rcp_gid_type common_gid(const struct rcp_rdma_port *m, const struct rcp_rdma_port *p)
{
	for (unsigned i = 0; i < m->gid_count; i++) {
		for (unsigned j = 0; j < p->gid_count; j++) {
			if (m->gids[i].type == p->gids[j].type)
				return m->gids[i].type;
		}
	}
	return (enum rcp_gid_type)0;
}

static bool candidate_oob(const struct rcp_rdma_port *m, const struct rcp_rdma_port *p,
			  struct rcp_candidate *c)
{
	bool lids = m->layer == RCP_LAYER_INFINIBAND && m->lid && p->lid;

	if (m->transport == RCP_RDMA_IWARP)
		return false; /* has no connection without its connection manager */
	c->gid_type = common_gid(m, p);
	if (!c->gid_type && !lids)
		return false;
	if (!c->gid_type)
		c->gid_type = RCP_GID_IB;
	c->kind = RCP_LINK_RDMA_OOB;
	/* Addresses, where both have some, still tell which ports are on one network. */
	int64_t near4 = pair_addrs(m, p, AF_INET, c), near6 = pair_addrs(m, p, AF_INET6, c);

	c->score = (1 + (near4 > near6 ? near4 : near6)) * 1000000;
	snprintf(c->label, sizeof(c->label), "rdma %s:%u to %s:%u without rdma_cm", m->device,
		 m->number, p->device, p->number);
	return true;
}

static int by_score(const void *a, const void *b)
{
	const struct rcp_candidate *x = a, *y = b;

	return (x->score < y->score) - (x->score > y->score);
}

/* The candidates of one pair of ports: with rdma_cm one for each IP version that both have. */
static unsigned add_pair(const struct rcp_negotiate *in, const struct rcp_rdma_port *m,
			 const struct rcp_rdma_port *p, struct rcp_candidate *out, unsigned room)
{
	static const int families[] = {AF_INET, AF_INET6};
	unsigned tries = in->connect == RCP_CONNECT_OOB ? 1 : 2, n = 0;

	for (unsigned i = 0; i < tries && n < room; i++) {
		struct rcp_candidate c = {.local_port = m->index, .remote_port = p->index};
		bool ok = in->connect == RCP_CONNECT_OOB ? candidate_oob(m, p, &c)
							 : candidate_cm(m, p, families[i], &c);

		if (!ok)
			continue;
		c.score += m->rate_mbps < p->rate_mbps ? m->rate_mbps : p->rate_mbps;
		out[n++] = c;
	}
	return n;
}

static unsigned add_rdma(const struct rcp_negotiate *in, struct rcp_candidate *out, unsigned max)
{
	unsigned n = 0;

	for (unsigned i = 0; i < in->mine_count; i++) {
		for (unsigned j = 0; j < in->peer_count; j++) {
			if (same_fabric(&in->mine[i], &in->peers[j]))
				n += add_pair(in, &in->mine[i], &in->peers[j], out + n, max - n);
		}
	}
	qsort(out, n, sizeof(*out), by_score);
	return n;
}

unsigned rcp_negotiate(const struct rcp_negotiate *in, struct rcp_candidate *out, unsigned max)
{
	unsigned n = 0;
	unsigned rdma = 1u << RCP_LINK_RDMA_CM | 1u << RCP_LINK_RDMA_OOB;

	if (in->transports & rdma && max > 2)
		n = add_rdma(in, out, max - 2);
	if (in->transports & 1u << RCP_LINK_TCP && in->tcp && n < max)
		out[n++] = (struct rcp_candidate){.kind = RCP_LINK_TCP, .label = "tcp"};
	/* Where TCP is chosen and can't be had, the pipe would be a lie; in auto it is the last way. */
	if (in->transports & 1u << RCP_LINK_PIPE && n < max)
		out[n++] = (struct rcp_candidate){.kind = RCP_LINK_PIPE, .label = "ssh"};
	return n;
}
