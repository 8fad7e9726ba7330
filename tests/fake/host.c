/*
 * This host: which NICs, ports, GIDs and netdevs there are, and what queries say of them.
 *
 * An address tells where it is: 127.77.NET.PLACE, fe80::4d:NET:PLACE, LID NET * 256 + PLACE, GUID
 * 02fa:ce00:NET:PLACE, PLACE being host * 4 + which of the host's ports on that subnet. IPv4
 * addresses are the loopback's, so what is said to them by TCP doesn't leave the machine.
 */
#include "fake.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netpacket/packet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define IFINDEX	 7700
#define HOST_MAX 62

static void gid_add(struct fk_port *p, const union ibv_gid *gid, enum ibv_gid_type type,
		    bool netdev)
{
	p->gids[p->gid_count++] = (struct fk_gid){.gid = *gid, .type = type, .netdev = netdev};
}

static void gids_make(struct fk_port *p)
{
	union ibv_gid ll = {0}, v4 = {0}, guid = {0};

	memcpy(ll.raw, &p->in6.sin6_addr, 16);
	v4.raw[10] = v4.raw[11] = 0xff;
	memcpy(v4.raw + 12, &p->in4.sin_addr, 4);
	guid.raw[0] = 0xfe;
	guid.raw[1] = 0x80;
	if (p->nic->guid) {
		guid.raw[8] = 2;
		guid.raw[9] = 0xfa;
		guid.raw[10] = 0xce;
		guid.raw[13] = p->net;
		guid.raw[15] = p->place;
	}
	if (p->kind == FK_IWARP) {
		/* Six bytes of MAC address. */
		guid = (union ibv_gid){.raw = {2, 0xfa, 0xce, 0, p->net, p->place}};
		gid_add(p, &guid, IBV_GID_TYPE_IB, false);
	} else if (p->kind == FK_IB) {
		gid_add(p, &guid, IBV_GID_TYPE_IB, false);
	} else if (!p->nic->guid) {
		/* RoCE makes its default GID from the netdev; addresses bring their own. */
		gid_add(p, &guid, IBV_GID_TYPE_ROCE_V1, p->has_addr);
	}
	if (p->kind != FK_ROCE1 && p->kind != FK_ROCE2)
		return;
	gid_add(p, &ll, IBV_GID_TYPE_ROCE_V1, true);
	if (p->kind == FK_ROCE2)
		gid_add(p, &ll, IBV_GID_TYPE_ROCE_V2, true);
	if (p->has_addr)
		gid_add(p, &v4, p->kind == FK_ROCE2 ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_ROCE_V1,
			true);
}

static void port_place(struct fk_port *p, unsigned index)
{
	unsigned k = 0;

	for (unsigned i = 0; i < fk.nic_count; i++) {
		for (unsigned j = 0; j < fk.nics[i].port_count; j++) {
			const struct fk_port *q = &fk.nics[i].ports[j];

			if (q == p)
				goto placed;
			k += q->net == p->net;
		}
	}
placed:
	p->place = (uint8_t)(fk.host * 4 + k);
	p->lid = p->lid ? (uint16_t)(p->net << 8 | p->place) : 0;
	p->ifindex = IFINDEX + index;
	snprintf(p->netdev, sizeof(p->netdev), "%s%u", p->kind == FK_IB ? "fkib" : "fketh", index);
	p->in4.sin_family = AF_INET;
	p->in4.sin_addr.s_addr = htonl(0x7f4d0000u | (uint32_t)p->net << 8 | p->place);
	p->in6.sin6_family = AF_INET6;
	p->in6.sin6_scope_id = p->ifindex;
	p->in6.sin6_addr = (struct in6_addr){
		.s6_addr = {0xfe, 0x80, [11] = 0x4d, [13] = p->net, [15] = p->place}};
	gids_make(p);
}

bool fk_addr_place(const struct sockaddr *sa, uint8_t *net, uint8_t *place)
{
	if (sa->sa_family == AF_INET) {
		uint32_t a = ntohl(((const struct sockaddr_in *)(const void *)sa)->sin_addr.s_addr);

		*net = (uint8_t)(a >> 8);
		*place = (uint8_t)a;
		return a >> 16 == 0x7f4d;
	}
	const uint8_t *b = ((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr.s6_addr;

	*net = b[13];
	*place = b[15];
	return sa->sa_family == AF_INET6 && b[0] == 0xfe && b[1] == 0x80 && b[11] == 0x4d;
}

struct fk_port *fk_port_of_addr(const struct sockaddr *sa)
{
	uint8_t net, place;

	if (!fk_addr_place(sa, &net, &place))
		return NULL;
	for (unsigned i = 0; i < fk.nic_count; i++) {
		for (unsigned j = 0; j < fk.nics[i].port_count; j++) {
			struct fk_port *p = &fk.nics[i].ports[j];

			if (p->has_addr && p->net == net && p->place == place)
				return p;
		}
	}
	return NULL;
}

/* The first number that nobody has on this fabric. */
static bool host_take(void)
{
	for (fk.host = 1; fk.host <= HOST_MAX; fk.host++) {
		char name[16];
		int fd;

		snprintf(name, sizeof(name), "h%u", fk.host);
		fd = fk_listen(name, SOCK_STREAM);
		if (fd >= 0) {
			fk.door = fk_wire_new(fd, 1, fk_door_ready, NULL);
			return fk.door != NULL;
		}
		if (errno != EADDRINUSE)
			return false;
	}
	return false;
}

static void die(const char *what)
{
	fprintf(stderr, "fake verbs: %s\n", what);
	_exit(98);
}

bool fk_configure(void)
{
	const char *nics = getenv("RCP_FAKE_NICS"), *fabric = getenv("RCP_FAKE");
	const char *faults = getenv("RCP_FAKE_FAULTS");

	if (fk.configured)
		return fk.nic_count > 0;
	fk.configured = true;
	if (!nics || !*nics)
		return false;
	if (fabric && *fabric)
		snprintf(fk.fabric, sizeof(fk.fabric), "%s", fabric);
	else
		snprintf(fk.fabric, sizeof(fk.fabric), "process-%d", (int)getpid());
	if (!fk_conf_parse(nics, fk.nics, &fk.nic_count))
		die("RCP_FAKE_NICS makes no sense");
	if (faults && !fk_fault_parse(faults))
		die("RCP_FAKE_FAULTS makes no sense");
	if (!fk_start() || !host_take())
		die("no engine, or no free host number");
	for (unsigned i = 0, n = 0; i < fk.nic_count; i++) {
		for (unsigned j = 0; j < fk.nics[i].port_count; j++)
			port_place(&fk.nics[i].ports[j], n++);
	}
	atexit(fk_exit_check);
	return true;
}

/* ---- netdevs, as libc tells of them ---- */

struct netdev {
	struct ifaddrs ifa;
	char name[16];
	union {
		struct sockaddr sa;
		struct sockaddr_in in4;
		struct sockaddr_in6 in6;
		struct sockaddr_ll ll;
		uint8_t room[64];
	} addr;
};

static struct netdev *netdev_add(struct ifaddrs **list, const char *name, const void *addr,
				 size_t len, unsigned flags)
{
	struct netdev *n = calloc(1, sizeof(*n));

	if (!n)
		abort();
	snprintf(n->name, sizeof(n->name), "%s", name);
	memcpy(&n->addr, addr, len);
	n->ifa.ifa_name = n->name;
	n->ifa.ifa_addr = &n->addr.sa;
	n->ifa.ifa_flags = IFF_UP | IFF_RUNNING | flags;
	while (*list)
		list = &(*list)->ifa_next;
	*list = &n->ifa;
	return n;
}

/* InfiniBand: 4 bytes of QP number and the GID; iWARP: the MAC. */
static void hardware_add(struct ifaddrs **list, const struct fk_port *p)
{
	struct sockaddr_ll ll = {.sll_family = AF_PACKET, .sll_ifindex = (int)p->ifindex};
	struct netdev *n = netdev_add(list, p->netdev, &ll, sizeof(ll), 0);
	uint8_t *to = n->addr.room + offsetof(struct sockaddr_ll, sll_addr);

	n->addr.ll.sll_halen = p->kind == FK_IB ? 20 : 6;
	memcpy(p->kind == FK_IB ? to + 4 : to, p->gids[0].gid.raw, p->kind == FK_IB ? 16 : 6);
}

static void port_add(struct ifaddrs **list, const struct fk_port *p)
{
	if (!p->has_addr)
		return;
	if (p->kind == FK_IB || p->kind == FK_IWARP)
		hardware_add(list, p);
	netdev_add(list, p->netdev, &p->in4, sizeof(p->in4), 0);
	netdev_add(list, p->netdev, &p->in6, sizeof(p->in6), 0);
}

/* The loopback and what the NICs have: nothing else of this machine is seen. */
int getifaddrs(struct ifaddrs **list)
{
	struct sockaddr_in lo4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

	*list = NULL;
	netdev_add(list, "lo", &lo4, sizeof(lo4), IFF_LOOPBACK);
	FK_LOCK();
	fk_configure();
	for (unsigned i = 0; i < fk.nic_count; i++) {
		for (unsigned j = 0; j < fk.nics[i].port_count; j++)
			port_add(list, &fk.nics[i].ports[j]);
	}
	FK_UNLOCK();
	return 0;
}

void freeifaddrs(struct ifaddrs *list)
{
	while (list) {
		struct ifaddrs *next = list->ifa_next;

		free(FK_OF(list, struct netdev, ifa));
		list = next;
	}
}

char *if_indextoname(unsigned index, char name[IF_NAMESIZE])
{
	for (unsigned i = 0; i < fk.nic_count; i++) {
		for (unsigned j = 0; j < fk.nics[i].port_count; j++) {
			if (fk.nics[i].ports[j].ifindex == index)
				return strcpy(name, fk.nics[i].ports[j].netdev);
		}
	}
	errno = ENXIO;
	return NULL;
}

unsigned if_nametoindex(const char *name)
{
	for (unsigned i = 0; i < fk.nic_count; i++) {
		for (unsigned j = 0; j < fk.nics[i].port_count; j++) {
			if (!strcmp(fk.nics[i].ports[j].netdev, name))
				return fk.nics[i].ports[j].ifindex;
		}
	}
	return 0;
}

/* ---- devices ---- */

struct ibv_device **ibv_get_device_list(int *count)
{
	struct ibv_device **list = NULL;
	int err = fk_fault_call("ibv_get_device_list");

	FK_LOCK();
	if (count)
		*count = 0;
	if (!err && !fk_configure())
		err = ENOSYS; /* no RDMA modules */
	if (!err)
		list = calloc(FK_NICS + 1, sizeof(struct ibv_device *));
	for (unsigned i = 0; list && i < fk.nic_count; i++)
		list[i] = &fk.nics[i].device;
	if (list && count)
		*count = (int)fk.nic_count;
	FK_UNLOCK();
	errno = err;
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

static int query_port(struct ibv_context *ctx, uint8_t number, struct ibv_port_attr *attr,
		      size_t len)
{
	struct fk_nic *nic = fk_nic_of(ctx);
	struct ibv_port_attr a = {0};
	int err = fk_fault_call("ibv_query_port");

	if (err)
		return err;
	if (number < 1 || number > nic->port_count)
		return EINVAL;
	const struct fk_port *p = &nic->ports[number - 1];

	a.state = p->state;
	a.max_mtu = IBV_MTU_4096;
	a.active_mtu = p->kind == FK_IB ? IBV_MTU_4096 : IBV_MTU_1024;
	a.gid_tbl_len = (int)p->gid_count;
	a.pkey_tbl_len = (uint16_t)p->pkey_count;
	a.max_msg_sz = nic->max_msg;
	a.lid = p->lid;
	a.sm_lid = p->lid ? 1 : 0;
	a.active_speed = 32; /* EDR */
	a.active_width = 2;  /* 4x */
	a.phys_state = p->state == IBV_PORT_ACTIVE ? 5 : 3;
	a.link_layer = p->kind == FK_IB ? IBV_LINK_LAYER_INFINIBAND : IBV_LINK_LAYER_ETHERNET;
	memcpy(attr, &a, len < sizeof(a) ? len : sizeof(a));
	return 0;
}

int ibv_query_port(struct ibv_context *ctx, uint8_t number, struct _compat_ibv_port_attr *attr)
{
	(void)ctx;
	(void)number;
	(void)attr;
	return ENOTSUP; /* who is compiled now comes in by query_port */
}

int ibv_query_device(struct ibv_context *ctx, struct ibv_device_attr *attr)
{
	struct fk_nic *nic = fk_nic_of(ctx);
	int err = fk_fault_call("ibv_query_device");

	if (err)
		return err;
	memset(attr, 0, sizeof(*attr));
	snprintf(attr->fw_ver, sizeof(attr->fw_ver), "fake");
	attr->max_mr_size = UINT64_MAX;
	attr->page_size_cap = 4096;
	attr->max_qp = 1024;
	attr->max_qp_wr = nic->max_wr;
	attr->max_sge = nic->max_sge;
	attr->max_cq = 1024;
	attr->max_cqe = nic->max_cqe;
	attr->max_mr = 1 << 20;
	attr->max_pd = 1024;
	attr->phys_port_cnt = (uint8_t)nic->port_count;
	return 0;
}

struct fk_ctx *fk_ctx_open(struct fk_nic *nic)
{
	struct fk_ctx *c = calloc(1, sizeof(*c));

	if (!c || fk_evq_init(&c->events) != 0) {
		free(c);
		return NULL;
	}
	c->nic = nic;
	c->v.sz = sizeof(c->v);
	c->v.query_port = query_port;
	c->v.context.device = &nic->device;
	c->v.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
	c->v.context.async_fd = c->events.fd;
	c->v.context.cmd_fd = -1;
	c->v.context.ops.poll_cq = fk_poll_cq;
	c->v.context.ops.req_notify_cq = fk_req_notify;
	c->v.context.ops.post_send = fk_post_send;
	c->v.context.ops.post_recv = fk_post_recv;
	c->next = nic->ctxs;
	nic->ctxs = c;
	return c;
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	int err = fk_fault_call("ibv_open_device");
	struct fk_ctx *c = NULL;

	FK_LOCK();
	if (!err) {
		c = fk_ctx_open(FK_OF(device, struct fk_nic, device));
		fk.count[FK_CTX] += c != NULL;
	}
	FK_UNLOCK();
	if (err)
		errno = err;
	return c ? &c->v.context : NULL;
}

int ibv_close_device(struct ibv_context *ctx)
{
	struct fk_ctx *c = fk_ctx_of(ctx), **at = &c->nic->ctxs;

	if (c->objects)
		fk_breach("ibv_close_device: %u objects are left", c->objects);
	FK_LOCK();
	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	fk_evq_close(&c->events);
	free(c);
	fk.count[FK_CTX]--;
	FK_UNLOCK();
	return 0;
}

static void entry_fill(const struct fk_port *p, unsigned i, struct ibv_gid_entry *e)
{
	*e = (struct ibv_gid_entry){.gid = p->gids[i].gid,
				    .gid_index = i,
				    .port_num = p->number,
				    .gid_type = p->gids[i].type,
				    .ndev_ifindex = p->gids[i].netdev ? p->ifindex : 0};
}

int _ibv_query_gid_ex(struct ibv_context *ctx, uint32_t number, uint32_t index,
		      struct ibv_gid_entry *entry, uint32_t flags, size_t size)
{
	struct fk_nic *nic = fk_nic_of(ctx);

	(void)flags;
	(void)size;
	if (number < 1 || number > nic->port_count || index >= nic->ports[number - 1].gid_count)
		return EINVAL;
	entry_fill(&nic->ports[number - 1], index, entry);
	return 0;
}

ssize_t _ibv_query_gid_table(struct ibv_context *ctx, struct ibv_gid_entry *entries, size_t max,
			     uint32_t flags, size_t size)
{
	struct fk_nic *nic = fk_nic_of(ctx);
	size_t n = 0;

	(void)flags;
	(void)size;
	for (unsigned j = 0; j < nic->port_count; j++) {
		for (unsigned i = 0; i < nic->ports[j].gid_count && n < max; i++)
			entry_fill(&nic->ports[j], i, &entries[n++]);
	}
	return (ssize_t)n;
}

int ibv_get_pkey_index(struct ibv_context *ctx, uint8_t number, __be16 pkey)
{
	struct fk_nic *nic = fk_nic_of(ctx);

	for (unsigned i = 0;
	     number >= 1 && number <= nic->port_count && i < nic->ports[number - 1].pkey_count;
	     i++) {
		if (nic->ports[number - 1].pkeys[i] == be16toh(pkey))
			return (int)i;
	}
	errno = EINVAL;
	return -1;
}
