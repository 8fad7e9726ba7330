/*
 * What RDMA this host has: devices opened, ports that could carry a link, and for everything else
 * the reason why not. Blocks; before the loop runs or on a worker.
 */
#include "link/verbs/priv.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What goes through an enumeration. */
struct scan {
	struct rcp_rdma *rdma;
	const struct rcp_rdma_options *options;
	struct ifaddrs *netdevs;
	char device[64]; /* wanted; "" any */
	unsigned number; /* wanted; 0 any */
	struct sockaddr_storage addr;
	bool device_seen, addr_seen, gid_seen;
	char names[160];    /* every device, for the error that says that one isn't there */
	char gids[160];	    /* every GID index seen */
	struct rcp_err why; /* the first that was passed over */
};

static void append(char *buf, size_t size, const char *sep, const char *text)
{
	size_t len = strlen(buf);

	snprintf(buf + len, size - len, "%s%s", len ? sep : "", text);
}

/* Remember why this one is not used; the first reason becomes the error if none is left. */
static void pass_over(struct scan *s, struct rcp_err *e)
{
	char line[512];

	rcp_err_format(e, line, sizeof(line));
	append(s->rdma->remarks, sizeof(s->rdma->remarks), "\n", line);
	if (!rcp_err_is(&s->why))
		s->why = *e;
}

__attribute__((format(printf, 4, 5))) static void
pass_over_why(struct scan *s, const char *object, const char *fix, const char *fmt, ...)
{
	struct rcp_err e = {0};
	char text[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	rcp_err_set(&e, RCP_E_CONNECT, 0, NULL, object, "%s", text);
	if (fix)
		rcp_err_fix(&e, "%s", fix);
	pass_over(s, &e);
}

/* Megabits a second of one lane, by ibv_port_attr.active_speed's bit. */
static uint32_t lane_mbps(unsigned speed)
{
	static const uint32_t by_bit[] = {2500, 5000, 10000, 10000, 14000, 25000, 50000, 100000};

	for (unsigned bit = 0; bit < sizeof(by_bit) / sizeof(by_bit[0]); bit++) {
		if (speed & 1u << bit)
			return by_bit[bit];
	}
	return 0;
}

static uint32_t lanes(unsigned width)
{
	return width == 1    ? 1
	       : width == 2  ? 4
	       : width == 4  ? 8
	       : width == 8  ? 12
	       : width == 16 ? 2
			     : 0;
}

static uint16_t numa_of(const struct ibv_device *device)
{
	char path[IBV_SYSFS_PATH_MAX + 32];
	int node = -1;

	snprintf(path, sizeof(path), "%s/device/numa_node", device->ibdev_path);
	FILE *f = fopen(path, "re");

	if (f) {
		if (fscanf(f, "%d", &node) != 1) /* NOLINT(cert-err34-c): the kernel writes it */
			node = -1;
		fclose(f);
	}
	return node < 0 || node >= 0xffff ? 0xffff : (uint16_t)node;
}

static const char *port_state_fix(enum ibv_port_state state, bool ethernet)
{
	if (ethernet)
		return "check the cable, and bring the netdev up with `ip link set DEV up`";
	if (state == IBV_PORT_INIT)
		return "start a subnet manager (opensm) on the fabric";
	return "check the cable and the switch";
}

static bool gid_zero(const uint8_t gid[16])
{
	static const uint8_t zero[16];

	/* A default GID without an interface identifier is no address either. */
	return memcmp(gid + 8, zero, 8) == 0;
}

static bool gid_take(struct scan *s, struct rcp_rdma_port *port, const struct ibv_gid_entry *e)
{
	struct rcp_rdma_gid g = {.index = (uint16_t)e->gid_index};
	char index[16];

	memcpy(g.gid, e->gid.raw, sizeof(g.gid));
	if (e->gid_index > UINT16_MAX || gid_zero(g.gid))
		return false;
	g.type = port->layer == RCP_LAYER_INFINIBAND   ? RCP_GID_IB
		 : e->gid_type == IBV_GID_TYPE_ROCE_V2 ? RCP_GID_ROCE_V2
						       : RCP_GID_ROCE_V1;
	snprintf(index, sizeof(index), "%u", e->gid_index);
	append(s->gids, sizeof(s->gids), " ", index);
	if (s->options->gid_index >= 0 && (unsigned)s->options->gid_index != e->gid_index)
		return false;
	s->gid_seen = true;
	rcp_verbs_gid_insert(port, &g);
	return true;
}

/* One GID alone was asked for: then only the address that it stands for. */
static void gid_only(struct rcp_rdma_port *port, const struct ibv_gid_entry *e)
{
	struct sockaddr_storage a;

	rcp_verbs_gid_addr(e->gid.raw, e->ndev_ifindex, &a);
	for (unsigned i = 0; i < port->addr_count; i++) {
		if (rcp_verbs_addr_equal(&port->addrs[i], &a)) {
			port->addrs[0] = port->addrs[i];
			port->addr_count = 1;
			return;
		}
	}
	port->addr_count = 0;
}

#define GID_TABLE_MAX 512

static void gids_of(struct scan *s, struct ibv_context *ctx, struct rcp_rdma_port *port)
{
	struct ibv_gid_entry *table = calloc(GID_TABLE_MAX, sizeof(*table));
	ssize_t n = table ? ibv_query_gid_table(ctx, table, GID_TABLE_MAX, 0) : -1;

	for (ssize_t i = 0; i < n; i++) {
		const struct ibv_gid_entry *e = &table[i];
		char netdev[IF_NAMESIZE];

		if (e->port_num != port->number)
			continue;
		if (e->ndev_ifindex && if_indextoname(e->ndev_ifindex, netdev))
			rcp_verbs_addrs_add(port, s->netdevs, netdev);
		else if (port->transport == RCP_RDMA_IWARP || port->layer == RCP_LAYER_INFINIBAND)
			rcp_verbs_addrs_by_hardware(port, s->netdevs, e->gid.raw);
		/* iWARP's GIDs are MAC addresses: nobody connects by them. */
		if (port->transport != RCP_RDMA_IWARP && gid_take(s, port, e) &&
		    s->options->gid_index >= 0 && port->layer == RCP_LAYER_ETHERNET)
			gid_only(port, e);
	}
	free(table);
}

static bool addr_only(struct scan *s, struct rcp_rdma_port *port)
{
	if (!s->options->addr)
		return true;
	for (unsigned i = 0; i < port->addr_count; i++) {
		if (rcp_verbs_addr_equal(&port->addrs[i], &s->addr)) {
			port->addrs[0] = port->addrs[i];
			port->addr_count = 1;
			s->addr_seen = true;
			return true;
		}
	}
	return false;
}

/* False: passed over, with the reason remembered where it isn't the user's own choice. */
static bool port_usable(struct scan *s, struct rcp_rdma_port *port, const char *object)
{
	bool ethernet = port->layer == RCP_LAYER_ETHERNET;

	if (!addr_only(s, port))
		return false;
	if (s->options->gid_index >= 0 && port->transport == RCP_RDMA_IWARP) {
		pass_over_why(s, object, "leave --gid-index out",
			      "iWARP has no GIDs to choose from");
		return false;
	}
	if (s->options->gid_index >= 0 && !port->gid_count)
		return false;
	if (!port->addr_count && port->transport == RCP_RDMA_IWARP) {
		pass_over_why(s, object, "give its netdev an IP address: `ip addr add`",
			      "the port has no IP address");
		return false;
	}
	if (ethernet && port->transport == RCP_RDMA_IB && !port->gid_count) {
		pass_over_why(s, object, "give its netdev an IP address: `ip addr add`",
			      "the port has no GID");
		return false;
	}
	if (!ethernet && !port->lid && !port->addr_count) {
		pass_over_why(s, object, "start a subnet manager (opensm) on the fabric",
			      "the port has no LID and no IPoIB address");
		return false;
	}
	if (port->max_msg_bytes < RCP_CHUNK_BYTES_MIN + RCP_CHUNK_HEADER) {
		pass_over_why(s, object, NULL, "its messages hold no more than %u bytes",
			      port->max_msg_bytes);
		return false;
	}
	return true;
}

static void port_add(struct scan *s, unsigned device, const struct ibv_port_attr *attr,
		     uint8_t number)
{
	struct rcp_rdma *rdma = s->rdma;
	struct ibv_context *ctx = rdma->devices[device].ctx;
	struct rcp_rdma_port port = {.number = number, .max_msg_bytes = attr->max_msg_sz};
	char object[80];

	snprintf(object, sizeof(object), "%s/%u", rdma->devices[device].name, number);
	snprintf(port.device, sizeof(port.device), "%s", rdma->devices[device].name);
	port.layer = attr->link_layer == IBV_LINK_LAYER_ETHERNET ? RCP_LAYER_ETHERNET
								 : RCP_LAYER_INFINIBAND;
	port.transport =
		ctx->device->transport_type == IBV_TRANSPORT_IWARP ? RCP_RDMA_IWARP : RCP_RDMA_IB;
	if (port.transport == RCP_RDMA_IWARP)
		port.layer = RCP_LAYER_ETHERNET;
	port.mtu = (uint8_t)attr->active_mtu;
	port.rate_mbps = lane_mbps(attr->active_speed) * lanes(attr->active_width);
	port.lid = port.layer == RCP_LAYER_INFINIBAND ? attr->lid : 0;
	port.imm = port.transport == RCP_RDMA_IB && !s->options->no_imm;
	port.numa = numa_of(ctx->device);
	gids_of(s, ctx, &port);
	if (!port_usable(s, &port, object))
		return;
	if (rdma->port_count == RCP_RDMA_PORTS_MAX) {
		pass_over_why(s, object, "choose with --device", "there are too many ports");
		return;
	}
	port.index = (uint16_t)rdma->port_count;
	rdma->device_of[rdma->port_count] = device;
	rdma->ports[rdma->port_count++] = port;
}

static void port_scan(struct scan *s, unsigned device, uint8_t number)
{
	struct verbs_device *d = &s->rdma->devices[device];
	struct ibv_port_attr attr = {0};
	char object[80];

	snprintf(object, sizeof(object), "%s/%u", d->name, number);
	int ret = ibv_query_port(d->ctx, number, &attr);

	if (ret) {
		struct rcp_err e = {0};

		rcp_verbs_err_ret(&e, RCP_E_CONNECT, ret, "ibv_query_port", object);
		pass_over(s, &e);
		return;
	}
	if (attr.state != IBV_PORT_ACTIVE) {
		pass_over_why(
			s, object,
			port_state_fix(attr.state, attr.link_layer == IBV_LINK_LAYER_ETHERNET),
			"the port is not active but %s", ibv_port_state_str(attr.state));
		return;
	}
	port_add(s, device, &attr, number);
}

static void ports_scan(struct scan *s, unsigned device)
{
	struct verbs_device *d = &s->rdma->devices[device];
	struct ibv_device_attr attr;
	int ret = ibv_query_device(d->ctx, &attr);

	if (ret) {
		struct rcp_err e = {0};

		rcp_verbs_err_ret(&e, RCP_E_CONNECT, ret, "ibv_query_device", d->name);
		pass_over(s, &e);
		return;
	}
	if (s->number > attr.phys_port_cnt)
		pass_over_why(s, d->name, NULL, "it has no port %u, only 1 to %u", s->number,
			      attr.phys_port_cnt);
	for (unsigned n = 1; n <= attr.phys_port_cnt; n++) {
		if (!s->number || s->number == n)
			port_scan(s, device, (uint8_t)n);
	}
}

static void device_scan(struct scan *s, struct ibv_device *device)
{
	const char *name = ibv_get_device_name(device);
	struct rcp_rdma *rdma = s->rdma;

	append(s->names, sizeof(s->names), " ", name);
	if (s->device[0] && strcmp(s->device, name) != 0)
		return;
	s->device_seen = true;
	if (device->transport_type != IBV_TRANSPORT_IB &&
	    device->transport_type != IBV_TRANSPORT_IWARP) {
		pass_over_why(s, name, NULL, "it has no reliable connections with RDMA WRITE");
		return;
	}
	struct ibv_context *ctx = ibv_open_device(device);

	if (!ctx) {
		struct rcp_err e = {0};
		char node[sizeof(device->dev_name) + 32];

		snprintf(node, sizeof(node), "/dev/infiniband/%s", device->dev_name);
		errno = rcp_verbs_open_errno(node);
		rcp_verbs_err_errno(&e, RCP_E_CONNECT, "ibv_open_device", name);
		pass_over(s, &e);
		return;
	}
	struct verbs_device *d = &rdma->devices[rdma->device_count];

	d->ctx = ctx;
	snprintf(d->name, sizeof(d->name), "%s", name);
	ports_scan(s, rdma->device_count++);
}

static int parse_options(struct scan *s, const struct rcp_rdma_options *o, struct rcp_err *err)
{
	const char *colon = o->device ? strrchr(o->device, ':') : NULL;
	char *end = NULL;

	if (o->device) {
		size_t len = colon ? (size_t)(colon - o->device) : strlen(o->device);

		memcpy(s->device, o->device, len < sizeof(s->device) ? len : sizeof(s->device) - 1);
	}
	if (colon) {
		unsigned long n = strtoul(colon + 1, &end, 10);

		if (end == colon + 1 || *end || n < 1 || n > 255)
			return rcp_err_set(err, RCP_E_USAGE, 0, NULL, o->device,
					   "--device wants DEVICE or DEVICE:PORT");
		s->number = (unsigned)n;
	}
	if (o->addr && !rcp_verbs_addr_parse(o->addr, &s->addr))
		return rcp_err_set(
			err, RCP_E_USAGE, 0, NULL, o->addr,
			"--rdma-addr wants an IPv4 or IPv6 address (link-local with %%DEV)");
	return 0;
}

/* No port is left: the most telling reason. */
static int nothing(struct scan *s, int device_count, struct rcp_err *err)
{
	const struct rcp_rdma_options *o = s->options;

	if (!device_count) {
		rcp_err_set(err, RCP_E_CONNECT, 0, NULL, NULL, "this host has no RDMA device");
		rcp_err_fix(
			err,
			"load the adapter's driver, or `rdma link add rxe0 type rxe netdev DEV`");
	} else if (s->device[0] && !s->device_seen) {
		rcp_err_set(err, RCP_E_CONNECT, 0, NULL, s->device, "there is no such RDMA device");
		rcp_err_fix(err, "--device: choose from: %s", s->names);
	} else if (o->addr && !s->addr_seen && !rcp_err_is(&s->why)) {
		rcp_err_set(err, RCP_E_CONNECT, 0, NULL, o->addr,
			    "--rdma-addr: no usable RDMA port has this address");
		rcp_err_fix(err, "`rdma link` and `ip addr` show which netdevs carry RDMA");
	} else if (o->gid_index >= 0 && !s->gid_seen && s->gids[0]) {
		rcp_err_set(err, RCP_E_CONNECT, 0, NULL, s->device[0] ? s->device : NULL,
			    "--gid-index: there is no GID %d", o->gid_index);
		rcp_err_fix(err, "choose from: %s", s->gids);
	} else if (rcp_err_is(&s->why)) {
		*err = s->why;
	} else {
		rcp_err_set(err, RCP_E_CONNECT, 0, NULL, NULL, "no RDMA port can be used");
	}
	return (int)err->code;
}

static int scan_all(struct scan *s, struct rcp_err *err)
{
	int count = 0;
	struct ibv_device **list = ibv_get_device_list(&count);

	if (!list) {
		rcp_verbs_err_errno(err, RCP_E_CONNECT, "ibv_get_device_list", NULL);
		if (err->sys_errno == ENOSYS)
			snprintf(err->text, sizeof(err->text), "the kernel has no RDMA support");
		return (int)err->code;
	}
	s->rdma->devices = calloc((size_t)count + 1, sizeof(*s->rdma->devices));
	for (int i = 0; s->rdma->devices && i < count; i++)
		device_scan(s, list[i]);
	ibv_free_device_list(list);
	if (!s->rdma->devices)
		return rcp_err_set(err, RCP_E_IO, ENOMEM, "calloc", NULL, NULL);
	return s->rdma->port_count ? 0 : nothing(s, count, err);
}

int rcp_rdma_open(const struct rcp_rdma_options *options, struct rcp_err *err,
		  struct rcp_rdma **out)
{
	struct rcp_rdma *rdma = calloc(1, sizeof(*rdma));
	struct scan s = {.rdma = rdma, .options = options};

	*out = NULL;
	if (rdma)
		rdma->ports = calloc(RCP_RDMA_PORTS_MAX, sizeof(*rdma->ports));
	if (!rdma || !rdma->ports) {
		rcp_rdma_close(&rdma);
		return rcp_err_set(err, RCP_E_IO, ENOMEM, "calloc", NULL, NULL);
	}
	rdma->options = *options;
	rdma->options.device = rdma->options.addr = NULL;
	int ret = parse_options(&s, options, err);

	if (!ret && getifaddrs(&s.netdevs) != 0)
		ret = rcp_verbs_err_errno(err, RCP_E_CONNECT, "getifaddrs", NULL);
	if (!ret) {
		rcp_verbs_memlock_raise();
		ret = scan_all(&s, err);
	}
	if (s.netdevs)
		freeifaddrs(s.netdevs);
	if (ret)
		rcp_rdma_close(&rdma);
	*out = rdma;
	return ret;
}

void rcp_rdma_close(struct rcp_rdma **rdma)
{
	struct rcp_rdma *r = *rdma;

	if (!r)
		return;
	for (unsigned i = 0; i < r->device_count; i++)
		ibv_close_device(r->devices[i].ctx);
	free(r->devices);
	free(r->ports);
	free(r);
	*rdma = NULL;
}

const struct rcp_rdma_port *rcp_rdma_ports(const struct rcp_rdma *rdma, unsigned *count)
{
	*count = rdma->port_count;
	return rdma->ports;
}

const char *rcp_rdma_remarks(const struct rcp_rdma *rdma)
{
	return rdma->remarks;
}

uint32_t rcp_rdma_chunk_bytes(const struct rcp_rdma *rdma, uint32_t wanted)
{
	for (unsigned i = 0; i < rdma->port_count; i++)
		wanted = rcp_verbs_chunk_bytes(wanted, rdma->ports[i].max_msg_bytes);
	return wanted;
}
