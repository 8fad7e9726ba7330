/*
 * RDMA ports as CAPS.ports says them. Pure: compiled also where there is no RDMA, so that such a
 * host understands a peer that has it. What comes in is hostile and bounded here.
 */
#include "base/bytes.h"
#include "link/verbs/verbs.h"
#include "wire/msg.h"

#include <net/if.h>
#include <string.h>

/* ADDR.family */
#define FAMILY_IPV4 4
#define FAMILY_IPV6 6

static void gids_encode(struct rcp_wr *w, const struct rcp_rdma_port *port)
{
	for (unsigned i = 0; i < port->gid_count; i++) {
		struct rcp_rec_gid g = {.type = (uint8_t)port->gids[i].type,
					.index = port->gids[i].index};

		memcpy(g.gid.b, port->gids[i].gid, sizeof(g.gid.b));
		rcp_rec_encode(w, RCP_REC_GID, &g);
	}
}

static void addrs_encode(struct rcp_wr *w, const struct rcp_rdma_port *port)
{
	for (unsigned i = 0; i < port->addr_count; i++) {
		const struct sockaddr_storage *s = &port->addrs[i];
		struct rcp_rec_addr a = {.netdev = rcp_span_str(port->netdev)};

		if (s->ss_family == AF_INET6) {
			a.family = FAMILY_IPV6;
			memcpy(a.addr.b, &((const struct sockaddr_in6 *)s)->sin6_addr, 16);
		} else {
			a.family = FAMILY_IPV4;
			memcpy(a.addr.b, &((const struct sockaddr_in *)s)->sin_addr, 4);
		}
		rcp_rec_encode(w, RCP_REC_ADDR, &a);
	}
}

void rcp_rdma_port_encode(struct rcp_wr *w, const struct rcp_rdma_port *port)
{
	struct rcp_wr gids = {.max = RCP_FRAME_MAX}, addrs = {.max = RCP_FRAME_MAX};

	gids_encode(&gids, port);
	addrs_encode(&addrs, port);
	struct rcp_rec_port p = {
		.index = port->index,
		.device = rcp_span_str(port->device),
		.number = port->number,
		.link_layer = (uint8_t)port->layer,
		.transport = (uint8_t)port->transport,
		.mtu = port->mtu,
		.rate_mbps = port->rate_mbps,
		.lid = port->lid,
		.max_msg_bytes = port->max_msg_bytes,
		.imm = port->imm,
		.numa = port->numa,
		.cm_port = port->cm_port,
		.netdev = rcp_span_str(port->netdev),
		.gids = rcp_span_of(gids.data, gids.len),
		.addrs = rcp_span_of(addrs.data, addrs.len),
	};

	if (gids.bad || addrs.bad)
		w->bad = true;
	else
		rcp_rec_encode(w, RCP_REC_PORT, &p);
	rcp_wr_free(&gids);
	rcp_wr_free(&addrs);
}

/* More than this end keeps is no error; a type that it doesn't know is passed over. */
static int gids_decode(struct rcp_span blob, struct rcp_rdma_port *port)
{
	struct rcp_rd r = rcp_rd_of(blob.data, blob.len);
	struct rcp_rec_gid g;
	int more;

	while ((more = rcp_rec_next(&r, RCP_REC_GID, &g)) > 0) {
		struct rcp_rdma_gid *out = &port->gids[port->gid_count];

		if (port->gid_count == RCP_RDMA_GIDS_MAX || g.type < RCP_GID_IB ||
		    g.type > RCP_GID_ROCE_V2)
			continue;
		out->type = g.type;
		out->index = g.index;
		memcpy(out->gid, g.gid.b, sizeof(out->gid));
		port->gid_count++;
	}
	return more;
}

static bool addr_decode(const struct rcp_rec_addr *a, struct sockaddr_storage *out)
{
	memset(out, 0, sizeof(*out));
	if (a->family == FAMILY_IPV6) {
		out->ss_family = AF_INET6;
		memcpy(&((struct sockaddr_in6 *)out)->sin6_addr, a->addr.b, 16);
	} else if (a->family == FAMILY_IPV4) {
		out->ss_family = AF_INET;
		memcpy(&((struct sockaddr_in *)out)->sin_addr, a->addr.b, 4);
	}
	return out->ss_family != AF_UNSPEC;
}

static int addrs_decode(struct rcp_span blob, struct rcp_rdma_port *port)
{
	struct rcp_rd r = rcp_rd_of(blob.data, blob.len);
	struct rcp_rec_addr a;
	int more;

	while ((more = rcp_rec_next(&r, RCP_REC_ADDR, &a)) > 0) {
		if (port->addr_count < RCP_RDMA_ADDRS_MAX &&
		    addr_decode(&a, &port->addrs[port->addr_count]))
			port->addr_count++;
	}
	return more;
}

static bool port_known(const struct rcp_rec_port *p)
{
	return (p->link_layer == RCP_LAYER_INFINIBAND || p->link_layer == RCP_LAYER_ETHERNET) &&
	       (p->transport == RCP_RDMA_IB || p->transport == RCP_RDMA_IWARP) && p->mtu >= 1 &&
	       p->mtu <= 5 && p->number >= 1;
}

static int port_decode(const struct rcp_rec_port *p, struct rcp_rdma_port *port)
{
	memset(port, 0, sizeof(*port));
	port->index = p->index;
	rcp_span_copy(p->device, port->device, sizeof(port->device));
	port->number = p->number;
	port->layer = p->link_layer;
	port->transport = p->transport;
	port->mtu = p->mtu;
	port->rate_mbps = p->rate_mbps;
	port->lid = p->lid;
	port->max_msg_bytes = p->max_msg_bytes;
	port->imm = p->imm != 0;
	port->numa = p->numa;
	port->cm_port = p->cm_port;
	rcp_span_copy(p->netdev, port->netdev, sizeof(port->netdev));
	return gids_decode(p->gids, port) || addrs_decode(p->addrs, port);
}

int rcp_rdma_ports_decode(struct rcp_span blob, struct rcp_err *err, struct rcp_rdma_port *ports,
			  unsigned max, unsigned *count)
{
	struct rcp_rd r = rcp_rd_of(blob.data, blob.len);
	struct rcp_rec_port p;
	int more;

	*count = 0;
	while ((more = rcp_rec_next(&r, RCP_REC_PORT, &p)) > 0) {
		if (*count == max || !port_known(&p))
			continue;
		if (port_decode(&p, &ports[*count]) != 0) {
			more = -1;
			break;
		}
		++*count;
	}
	if (more < 0)
		return rcp_err_set(err, RCP_E_CONNECT, 0, NULL, NULL,
				   "the peer's list of RDMA ports is malformed");
	return 0;
}
