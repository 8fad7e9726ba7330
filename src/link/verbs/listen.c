/*
 * The responder's listener: one rdma_cm id for each address of each port, real addresses only (the
 * wildcard and 127.0.0.1 go to whichever device is first). A request becomes a link only with a
 * valid proof for an expected attempt. Loop's thread.
 */
#include "link/verbs/priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BACKLOG	   16
#define PORT_TRIES 4	 /* one free for one address may be taken for the next */
#define GREET_MS   10000 /* from an accepted request to its hello */

struct rcp_rdma_listener {
	struct rcp_rdma *rdma;
	struct uv_loop_s *loop;
	struct rcp_rdma_listen_ops ops;
	struct rdma_event_channel *channel;
	struct verbs_io *io;
	struct verbs_door {
		struct rdma_cm_id *id;
		uint16_t port; /* index */
	} * doors;
	unsigned door_count;
	void (*done)(void *arg);
	void *done_arg;
};

static void reject(struct rdma_cm_id *id)
{
	uint8_t why[VERBS_REJECT_BYTES];

	rcp_verbs_reject_encode(VERBS_REJECT_PROOF, why);
	rdma_reject(id, why, sizeof(why));
	rdma_destroy_id(id);
}

static const struct rcp_link_params *check(struct rcp_rdma_listener *l,
					   const struct verbs_cm_event *ev,
					   struct rcp_rdma_proof *proof, bool *peer_imm)
{
	struct verbs_private p;

	if (!rcp_verbs_private_decode(ev->data, ev->len, &p))
		return NULL;
	const struct rcp_link_params *params =
		l->ops.expect(l->ops.arg, p.attempt, proof, peer_imm);

	if (!params || !rcp_verbs_same(p.session, proof->session, sizeof(p.session)) ||
	    !rcp_verbs_same(p.proof, proof->theirs, sizeof(p.proof)))
		return NULL;
	return params;
}

static struct verbs_link *link_make(struct rcp_rdma_listener *l, const struct verbs_door *door,
				    const struct verbs_cm_event *ev)
{
	struct rcp_rdma_proof proof = {0};
	struct rcp_err e = {0};
	bool peer_imm = false;
	struct verbs_link *v;
	const struct rcp_link_params *params = check(l, ev, &proof, &peer_imm);

	if (!params || rcp_verbs_link_new(l->rdma, l->loop, door->port, params, peer_imm, &e, &v))
		return NULL;
	v->proof = proof;
	memcpy(&v->local, rdma_get_local_addr(ev->id), sizeof(struct sockaddr_in6));
	memcpy(&v->remote, rdma_get_peer_addr(ev->id), sizeof(struct sockaddr_in6));
	rcp_verbs_link_name(v);
	v->deadline_ms = GREET_MS;
	rcp_verbs_io_timer(v->io, GREET_MS);
	return v;
}

static void on_request(struct rcp_rdma_listener *l, const struct verbs_cm_event *ev)
{
	const struct verbs_door *door = l->doors;

	while (door < l->doors + l->door_count && door->id != ev->listen_id)
		door++;
	struct verbs_link *v = door < l->doors + l->door_count ? link_make(l, door, ev) : NULL;

	if (!v) {
		reject(ev->id);
		return;
	}
	/* Known to its owner before anything can go wrong with it. */
	l->ops.accepted(l->ops.arg, v->attempt, &v->link);
	rcp_verbs_cm_accept(v, ev->id);
}

static void on_readable(void *arg, enum verbs_fd which)
{
	struct rcp_rdma_listener *l = arg;
	struct verbs_cm_event ev;

	(void)which;
	/* Events of accepted ids come on their links' channels. */
	while (l->channel && rcp_verbs_cm_next(l->channel, &ev) == 0) {
		if (ev.type == RDMA_CM_EVENT_CONNECT_REQUEST)
			on_request(l, &ev);
	}
}

static void on_nothing(void *arg)
{
	(void)arg;
}

static void on_closed(void *arg)
{
	struct rcp_rdma_listener *l = arg;
	void (*done)(void *) = l->done;
	void *done_arg = l->done_arg;

	free(l->doors);
	free(l);
	if (done)
		done(done_arg);
}

static const struct verbs_io_ops io_ops = {
	.readable = on_readable,
	.kick = on_nothing,
	.timeout = on_nothing,
	.closed = on_closed,
};

/* One address of a port. *number: 0 for any, then the one that was got. */
static int door_open(struct rcp_rdma_listener *l, uint16_t port,
		     const struct sockaddr_storage *addr, uint16_t *number, struct rcp_err *err)
{
	struct verbs_door *door = &l->doors[l->door_count];
	struct sockaddr_storage a = *addr;
	char name[80];

	rcp_verbs_addr_set_port(&a, *number);
	rcp_verbs_addr_text(&a, *number != 0, name, sizeof(name));
	if (rdma_create_id(l->channel, &door->id, l, RDMA_PS_TCP) != 0)
		return rcp_verbs_err_errno(err, RCP_E_CONNECT, "rdma_create_id", name);
	rcp_verbs_cm_options(l->rdma, door->id);
	if (rdma_bind_addr(door->id, (struct sockaddr *)&a) != 0)
		rcp_verbs_err_errno(err, RCP_E_CONNECT, "rdma_bind_addr", name);
	else if (rdma_listen(door->id, BACKLOG) != 0)
		rcp_verbs_err_errno(err, RCP_E_CONNECT, "rdma_listen", name);
	if (rcp_err_is(err)) {
		rdma_destroy_id(door->id);
		return (int)err->code;
	}
	*number = ntohs(rdma_get_src_port(door->id));
	door->port = port;
	l->door_count++;
	return 0;
}

static void doors_close(struct rcp_rdma_listener *l, unsigned from)
{
	while (l->door_count > from)
		rdma_destroy_id(l->doors[--l->door_count].id);
}

/* Every address of the port by one number, since CAPS has room for one. An address that can't be
 * listened on is dropped; false: the number was taken, try another. */
static bool port_listen(struct rcp_rdma_listener *l, struct rcp_rdma_port *port,
			struct rcp_err *why)
{
	uint16_t number = 0;
	unsigned kept = 0;

	for (unsigned i = 0; i < port->addr_count; i++) {
		struct rcp_err e = {0};

		if (door_open(l, port->index, &port->addrs[i], &number, &e) == 0) {
			port->addrs[kept++] = port->addrs[i];
			continue;
		}
		if (e.sys_errno == EADDRINUSE)
			return false;
		if (!rcp_err_is(why))
			*why = e;
	}
	port->addr_count = kept;
	port->cm_port = kept ? number : 0;
	return true;
}

static int listen_all(struct rcp_rdma_listener *l, struct rcp_err *err)
{
	struct rcp_err why = {0};

	for (unsigned i = 0; i < l->rdma->port_count; i++) {
		unsigned from = l->door_count;

		for (int tries = PORT_TRIES; tries > 0; tries--) {
			if (port_listen(l, &l->rdma->ports[i], &why))
				break;
			doors_close(l, from);
		}
	}
	if (l->door_count)
		return 0;
	if (rcp_err_is(&why))
		*err = why;
	else
		rcp_err_set(err, RCP_E_CONNECT, 0, NULL, NULL,
			    "no RDMA port has an IP address to listen on");
	rcp_err_fix(err, "give the RDMA netdev an IP address, or use --connect=oob");
	return (int)err->code;
}

int rcp_rdma_listen(struct rcp_rdma *rdma, struct uv_loop_s *loop,
		    const struct rcp_rdma_listen_ops *ops, struct rcp_err *err,
		    struct rcp_rdma_listener **out)
{
	struct rcp_rdma_listener *l = calloc(1, sizeof(*l));

	*out = NULL;
	if (l)
		l->doors = calloc((size_t)rdma->port_count * RCP_RDMA_ADDRS_MAX, sizeof(*l->doors));
	if (!l || !l->doors) {
		free(l);
		return rcp_err_set(err, RCP_E_IO, ENOMEM, "calloc", NULL, NULL);
	}
	l->rdma = rdma;
	l->loop = loop;
	l->ops = *ops;
	if (rcp_verbs_io_new(loop, &io_ops, l, err, &l->io) != 0) {
		free(l->doors);
		free(l);
		return (int)err->code;
	}
	l->channel = rcp_verbs_cm_channel(err);
	if (!l->channel || rcp_verbs_io_watch(l->io, VERBS_FD_CM, l->channel->fd, err) != 0 ||
	    listen_all(l, err) != 0) {
		rcp_rdma_listener_close(l, NULL, NULL);
		return (int)err->code;
	}
	*out = l;
	return 0;
}

void rcp_rdma_listener_close(struct rcp_rdma_listener *l, void (*done)(void *arg), void *arg)
{
	l->done = done;
	l->done_arg = arg;
	doors_close(l, 0);
	rcp_verbs_io_close(l->io);
	if (l->channel)
		rdma_destroy_event_channel(l->channel);
	l->channel = NULL;
	for (unsigned i = 0; i < l->rdma->port_count; i++)
		l->rdma->ports[i].cm_port = 0;
}
