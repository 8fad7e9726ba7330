#include "boot/addrs.h"

#include "wire/msg.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static bool is_loopback(const union rcp_sa *sa)
{
	if (sa->sa.sa_family == AF_INET6)
		return IN6_IS_ADDR_LOOPBACK(&sa->in6.sin6_addr);
	return ntohl(sa->in.sin_addr.s_addr) >> 24 == 127;
}

/* Unspecified, multicast and link-local: nothing that another host could connect to by it alone (a
 * link-local address needs a scope that only the connecting host knows). */
static bool is_unusable(const union rcp_sa *sa)
{
	const struct in6_addr *six = &sa->in6.sin6_addr;
	uint32_t four = ntohl(sa->in.sin_addr.s_addr);

	if (sa->sa.sa_family == AF_INET6)
		return IN6_IS_ADDR_UNSPECIFIED(six) || IN6_IS_ADDR_MULTICAST(six) ||
		       IN6_IS_ADDR_LINKLOCAL(six) || IN6_IS_ADDR_V4MAPPED(six);
	return four >> 24 == 0 || four >= 0xe0000000u || four >> 16 == 0xa9fe;
}

static bool same(const union rcp_sa *a, const union rcp_sa *b)
{
	if (a->sa.sa_family != b->sa.sa_family)
		return false;
	if (a->sa.sa_family == AF_INET6)
		return memcmp(&a->in6.sin6_addr, &b->in6.sin6_addr, 16) == 0;
	return a->in.sin_addr.s_addr == b->in.sin_addr.s_addr;
}

void rcp_addrs_add(struct rcp_addrs *addrs, const union rcp_sa *sa, const char *netdev, bool front)
{
	unsigned i = 0, at;

	while (i < addrs->count && !same(&addrs->at[i].sa, sa))
		i++;
	if (i < addrs->count && !front)
		return;
	if (i == addrs->count) {
		if (i == RCP_ADDRS_MAX) {
			if (!front)
				return;
			i--; /* the last one makes room */
		} else {
			addrs->count++;
		}
	}
	at = front ? 0 : i;
	memmove(&addrs->at[at + 1], &addrs->at[at], (i - at) * sizeof(addrs->at[0]));
	memset(&addrs->at[at], 0, sizeof(addrs->at[at]));
	addrs->at[at].sa = *sa;
	rcp_sa_set_port(&addrs->at[at].sa, 0);
	snprintf(addrs->at[at].netdev, sizeof(addrs->at[at].netdev), "%s", netdev ? netdev : "");
}

/* The third word of "client port server port". */
static bool ssh_server(const char *ssh_connection, union rcp_sa *sa)
{
	char ip[64];

	if (!ssh_connection || sscanf(ssh_connection, "%*63s %*15s %63s", ip) != 1)
		return false;
	return rcp_sa_parse(ip, sa) && !is_unusable(sa);
}

static bool fits(const union rcp_sa *sa, int family)
{
	int f = sa->sa.sa_family;

	return (f == AF_INET && family != 6) || (f == AF_INET6 && family != 4);
}

/* Bridges for containers and guests: seldom the way in, and the same on many hosts. */
static bool is_inner(const char *netdev)
{
	static const char *const prefix[] = {"docker", "br-", "veth",	 "virbr",  "vnet", "lxc",
					     "lxd",    "cni", "flannel", "podman", "cali"};

	for (size_t i = 0; i < sizeof(prefix) / sizeof(prefix[0]); i++) {
		if (strncmp(netdev, prefix[i], strlen(prefix[i])) == 0)
			return true;
	}
	return false;
}

static void add_ifaddrs(const struct ifaddrs *list, int family, bool loopback, bool inner,
			struct rcp_addrs *out)
{
	for (const struct ifaddrs *i = list; i; i = i->ifa_next) {
		union rcp_sa sa;

		if (!i->ifa_addr || !(i->ifa_flags & IFF_UP) || is_inner(i->ifa_name) != inner)
			continue;
		if (i->ifa_addr->sa_family != AF_INET && i->ifa_addr->sa_family != AF_INET6)
			continue;
		memset(&sa, 0, sizeof(sa));
		memcpy(&sa, i->ifa_addr,
		       i->ifa_addr->sa_family == AF_INET6 ? sizeof(sa.in6) : sizeof(sa.in));
		if (fits(&sa, family) && !is_unusable(&sa) && is_loopback(&sa) == loopback)
			rcp_addrs_add(out, &sa, i->ifa_name, false);
	}
}

/* The name of the device that has this address. */
static const char *netdev_of(const struct ifaddrs *list, const union rcp_sa *sa)
{
	for (const struct ifaddrs *i = list; i; i = i->ifa_next) {
		union rcp_sa have;

		if (!i->ifa_addr || i->ifa_addr->sa_family != sa->sa.sa_family)
			continue;
		memcpy(&have, i->ifa_addr, rcp_sa_len(sa));
		if (same(&have, sa))
			return i->ifa_name;
	}
	return NULL;
}

int rcp_addrs_local(const char *ssh_connection, int family, struct rcp_err *err,
		    struct rcp_addrs *out)
{
	struct ifaddrs *list;
	union rcp_sa ssh;
	bool known = ssh_server(ssh_connection, &ssh);

	memset(out, 0, sizeof(*out));
	if (getifaddrs(&list) < 0)
		return rcp_err_set(err, RCP_E_CONNECT, errno, "getifaddrs", NULL, NULL);
	if (known && fits(&ssh, family))
		rcp_addrs_add(out, &ssh, netdev_of(list, &ssh), true);
	if (known && is_loopback(&ssh))
		add_ifaddrs(list, family, true, false, out);
	add_ifaddrs(list, family, false, false, out);
	add_ifaddrs(list, family, false, true, out);
	freeifaddrs(list);
	return 0;
}

void rcp_addrs_encode(const struct rcp_addrs *addrs, struct rcp_wr *w)
{
	for (unsigned i = 0; i < addrs->count; i++) {
		const union rcp_sa *sa = &addrs->at[i].sa;
		struct rcp_rec_addr rec = {.netdev = rcp_span_str(addrs->at[i].netdev)};

		rec.family = sa->sa.sa_family == AF_INET6 ? 6 : 4;
		if (rec.family == 6)
			memcpy(rec.addr.b, &sa->in6.sin6_addr, 16);
		else
			memcpy(rec.addr.b, &sa->in.sin_addr, 4);
		rcp_rec_encode(w, RCP_REC_ADDR, &rec);
	}
}

static void take(const struct rcp_rec_addr *rec, struct rcp_addrs *out)
{
	char netdev[sizeof(out->at[0].netdev)];
	union rcp_sa sa;

	memset(&sa, 0, sizeof(sa));
	if (rec->family == 6) {
		sa.sa.sa_family = AF_INET6;
		memcpy(&sa.in6.sin6_addr, rec->addr.b, 16);
	} else if (rec->family == 4) {
		sa.sa.sa_family = AF_INET;
		memcpy(&sa.in.sin_addr, rec->addr.b, 4);
	} else {
		return;
	}
	if (!is_unusable(&sa))
		rcp_addrs_add(out, &sa, rcp_span_copy(rec->netdev, netdev, sizeof(netdev)), false);
}

int rcp_addrs_decode(struct rcp_span blob, struct rcp_err *err, struct rcp_addrs *out)
{
	struct rcp_rd rd = rcp_rd_of(blob.data, blob.len);
	struct rcp_rec_addr rec;
	unsigned seen = 0;
	int r;

	memset(out, 0, sizeof(*out));
	while ((r = rcp_rec_next(&rd, RCP_REC_ADDR, &rec)) > 0) {
		if (++seen > RCP_ADDRS_MAX)
			return rcp_err_set(err, RCP_E_CONNECT, 0, "", NULL,
					   "the peer broke the protocol: more than %d addresses",
					   RCP_ADDRS_MAX);
		take(&rec, out);
	}
	if (r < 0)
		return rcp_err_set(err, RCP_E_CONNECT, 0, "", NULL,
				   "the peer broke the protocol: malformed address");
	return 0;
}
