/*
 * IP addresses, netdevs and GIDs: which address belongs to which RDMA port, and which is best.
 * Pure but for reading the interface list that it is given.
 */
#include "link/verbs/priv.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netpacket/packet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint8_t mapped_prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

static bool gid_is_ipv4(const uint8_t gid[16])
{
	return memcmp(gid, mapped_prefix, sizeof(mapped_prefix)) == 0;
}

static bool gid_is_link_local(const uint8_t gid[16])
{
	return gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80;
}

unsigned rcp_verbs_gid_rank(const struct rcp_rdma_gid *gid)
{
	unsigned rank = gid->type == RCP_GID_ROCE_V1 ? 3 : 0;

	if (gid->type == RCP_GID_IB || gid_is_ipv4(gid->gid))
		return rank;
	return gid_is_link_local(gid->gid) ? rank + 2 : rank + 1;
}

void rcp_verbs_gid_insert(struct rcp_rdma_port *port, const struct rcp_rdma_gid *gid)
{
	unsigned rank = rcp_verbs_gid_rank(gid), at = port->gid_count;

	while (at > 0 && rcp_verbs_gid_rank(&port->gids[at - 1]) > rank)
		at--;
	if (at == RCP_RDMA_GIDS_MAX)
		return;
	unsigned tail = port->gid_count - at;

	if (port->gid_count == RCP_RDMA_GIDS_MAX)
		tail--;
	else
		port->gid_count++;
	memmove(&port->gids[at + 1], &port->gids[at], tail * sizeof(*gid));
	port->gids[at] = *gid;
}

static const struct sockaddr_in *in4(const struct sockaddr_storage *a)
{
	return (const struct sockaddr_in *)a;
}

static const struct sockaddr_in6 *in6(const struct sockaddr_storage *a)
{
	return (const struct sockaddr_in6 *)a;
}

void rcp_verbs_gid_addr(const uint8_t gid[16], unsigned ifindex, struct sockaddr_storage *out)
{
	memset(out, 0, sizeof(*out));
	if (gid_is_ipv4(gid)) {
		struct sockaddr_in *a = (struct sockaddr_in *)out;

		a->sin_family = AF_INET;
		memcpy(&a->sin_addr, gid + 12, 4);
		return;
	}
	struct sockaddr_in6 *a = (struct sockaddr_in6 *)out;

	a->sin6_family = AF_INET6;
	memcpy(&a->sin6_addr, gid, 16);
	if (gid_is_link_local(gid))
		a->sin6_scope_id = ifindex;
}

socklen_t rcp_verbs_addr_len(const struct sockaddr_storage *a)
{
	return a->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

bool rcp_verbs_addr_equal(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
	if (a->ss_family != b->ss_family)
		return false;
	if (a->ss_family == AF_INET)
		return in4(a)->sin_addr.s_addr == in4(b)->sin_addr.s_addr;
	if (a->ss_family != AF_INET6 || memcmp(&in6(a)->sin6_addr, &in6(b)->sin6_addr, 16) != 0)
		return false;
	uint32_t sa = in6(a)->sin6_scope_id, sb = in6(b)->sin6_scope_id;

	return !sa || !sb || sa == sb;
}

void rcp_verbs_addr_set_port(struct sockaddr_storage *a, uint16_t port)
{
	if (a->ss_family == AF_INET6)
		((struct sockaddr_in6 *)a)->sin6_port = htons(port);
	else
		((struct sockaddr_in *)a)->sin_port = htons(port);
}

uint16_t rcp_verbs_addr_port(const struct sockaddr_storage *a)
{
	return ntohs(a->ss_family == AF_INET6 ? in6(a)->sin6_port : in4(a)->sin_port);
}

bool rcp_verbs_addr_link_local(const struct sockaddr_storage *a)
{
	if (a->ss_family == AF_INET6)
		return gid_is_link_local(in6(a)->sin6_addr.s6_addr);
	return (ntohl(in4(a)->sin_addr.s_addr) >> 16) == 0xa9fe;
}

uint32_t rcp_verbs_addr_scope(const struct sockaddr_storage *a)
{
	return a->ss_family == AF_INET6 ? in6(a)->sin6_scope_id : 0;
}

char *rcp_verbs_addr_text(const struct sockaddr_storage *a, bool with_port, char *buf, size_t size)
{
	char ip[INET6_ADDRSTRLEN] = "?", dev[IF_NAMESIZE + 1] = "";
	bool six = a->ss_family == AF_INET6;

	if (six) {
		inet_ntop(AF_INET6, &in6(a)->sin6_addr, ip, sizeof(ip));
		dev[0] = '%';
		if (!in6(a)->sin6_scope_id || !if_indextoname(in6(a)->sin6_scope_id, dev + 1))
			dev[0] = 0;
	} else {
		inet_ntop(AF_INET, &in4(a)->sin_addr, ip, sizeof(ip));
	}
	if (with_port)
		snprintf(buf, size, six ? "[%s%s]:%u" : "%s%s:%u", ip, dev, rcp_verbs_addr_port(a));
	else
		snprintf(buf, size, "%s%s", ip, dev);
	return buf;
}

bool rcp_verbs_addr_parse(const char *text, struct sockaddr_storage *out)
{
	struct sockaddr_in *a4 = (struct sockaddr_in *)out;
	struct sockaddr_in6 *a6 = (struct sockaddr_in6 *)out;
	const char *zone = strchr(text, '%');
	size_t len = zone ? (size_t)(zone - text) : strlen(text);
	char ip[INET6_ADDRSTRLEN] = "";

	memset(out, 0, sizeof(*out));
	if (len >= sizeof(ip))
		return false;
	memcpy(ip, text, len); /* NOLINT(bugprone-not-null-terminated-result): ip is zeroed */
	if (!zone && inet_pton(AF_INET, ip, &a4->sin_addr) == 1) {
		a4->sin_family = AF_INET;
		return true;
	}
	if (inet_pton(AF_INET6, ip, &a6->sin6_addr) != 1)
		return false;
	a6->sin6_family = AF_INET6;
	if (zone)
		a6->sin6_scope_id = if_nametoindex(zone + 1);
	return !zone || a6->sin6_scope_id;
}

/* IPv4 before IPv6, link-local after everything else. */
static unsigned addr_rank(const struct sockaddr_storage *a)
{
	return (a->ss_family == AF_INET6 ? 1u : 0u) + (rcp_verbs_addr_link_local(a) ? 2u : 0u);
}

static void addr_insert(struct rcp_rdma_port *port, const struct sockaddr_storage *a)
{
	unsigned at = port->addr_count;

	for (unsigned i = 0; i < port->addr_count; i++) {
		if (rcp_verbs_addr_equal(&port->addrs[i], a))
			return;
	}
	while (at > 0 && addr_rank(&port->addrs[at - 1]) > addr_rank(a))
		at--;
	if (at == RCP_RDMA_ADDRS_MAX)
		return;
	unsigned tail = port->addr_count - at;

	if (port->addr_count == RCP_RDMA_ADDRS_MAX)
		tail--;
	else
		port->addr_count++;
	memmove(&port->addrs[at + 1], &port->addrs[at], tail * sizeof(*a));
	port->addrs[at] = *a;
}

void rcp_verbs_addrs_add(struct rcp_rdma_port *port, const struct ifaddrs *list, const char *netdev)
{
	if (!port->netdev[0])
		snprintf(port->netdev, sizeof(port->netdev), "%s", netdev);
	for (; list; list = list->ifa_next) {
		struct sockaddr_storage a = {0};
		int family = list->ifa_addr ? list->ifa_addr->sa_family : AF_UNSPEC;

		if (strcmp(list->ifa_name, netdev) != 0 || !(list->ifa_flags & IFF_UP) ||
		    (family != AF_INET && family != AF_INET6))
			continue;
		memcpy(&a, list->ifa_addr,
		       family == AF_INET ? sizeof(struct sockaddr_in)
					 : sizeof(struct sockaddr_in6));
		addr_insert(port, &a);
	}
}

static bool hardware_matches(const struct rcp_rdma_port *port, const struct sockaddr *sa,
			     const uint8_t gid[16])
{
	struct sockaddr_ll ll;
	uint8_t addr[24];

	/* glibc leaves room for 24 bytes of address, which IPoIB's 20 need. */
	memcpy(&ll, sa, sizeof(ll));
	memcpy(addr, (const uint8_t *)sa + offsetof(struct sockaddr_ll, sll_addr),
	       ll.sll_halen <= sizeof(addr) ? ll.sll_halen : 0);
	if (port->layer == RCP_LAYER_INFINIBAND)
		return ll.sll_halen == 20 && memcmp(addr + 4, gid, 16) == 0;
	return ll.sll_halen == 6 && memcmp(addr, gid, 6) == 0;
}

void rcp_verbs_addrs_by_hardware(struct rcp_rdma_port *port, const struct ifaddrs *list,
				 const uint8_t gid[16])
{
	for (const struct ifaddrs *i = list; i; i = i->ifa_next) {
		if (i->ifa_addr && i->ifa_addr->sa_family == AF_PACKET &&
		    hardware_matches(port, i->ifa_addr, gid))
			rcp_verbs_addrs_add(port, list, i->ifa_name);
	}
}
