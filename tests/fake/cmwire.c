/*
 * rdma_cm between two ends: REQ, REP, RTU, REJ, DREQ and DREP as packets on a socket of the
 * connection's own. iWARP ends with its data stream instead, so that nothing overtakes the data.
 */
#include "cm.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define REJECT_CONSUMER 28
#define REJECT_SERVICE	8

struct fk_id *fk_ids;

void fk_cm_name(const struct sockaddr *sa, char name[64])
{
	uint8_t net = 0, place = 0;

	fk_addr_place(sa, &net, &place);
	snprintf(name, 64, "cm%d-%u-%u-%u", sa->sa_family == AF_INET6 ? 6 : 4, net, place,
		 ntohs(((const struct sockaddr_in *)(const void *)sa)->sin_port));
}

uint32_t fk_cm_room(const struct fk_id *id, enum fk_cm_type type)
{
	if (id->port->nic->iwarp)
		return 0; /* exact */
	return type == CM_REQ ? 56 : type == CM_REP ? 196 : 148;
}

struct fk_id *fk_id_new(struct rdma_event_channel *channel, void *context)
{
	struct fk_id *i = calloc(1, sizeof(*i));

	if (!i)
		return NULL;
	i->id.channel = channel;
	i->id.context = context;
	i->id.ps = RDMA_PS_TCP;
	i->id.qp_type = IBV_QPT_RC;
	FK_OF(channel, struct fk_cm_channel, channel)->ids++;
	i->next = fk_ids;
	fk_ids = i;
	fk.count[FK_ID]++;
	return i;
}

/* librdmacm opens a device once for all its ids. */
void fk_id_place(struct fk_id *id, struct fk_port *port)
{
	struct fk_nic *nic = port->nic;

	if (!nic->cm_ctx)
		nic->cm_ctx = fk_ctx_open(nic);
	if (!nic->cm_ctx)
		abort();
	id->port = port;
	id->id.verbs = &nic->cm_ctx->v.context;
	id->id.port_num = port->number;
}

/* ---- events ---- */

static const char *event_name(enum rdma_cm_event_type type)
{
	static const char prefix[] = "RDMA_CM_EVENT_";

	return rdma_event_str(type) + sizeof(prefix) - 1;
}

/* The script may pad or cut what the peer said. */
static uint32_t private_make(struct fk_id *id, const struct fk_cm_frame *f, uint8_t data[256])
{
	uint32_t room = fk_cm_room(id, (enum fk_cm_type)f->type),
		 len = f->len < room ? room : f->len;
	const struct fk_rule *r;

	memset(data, 0, 256);
	memcpy(data, f->data, f->len);
	r = fk_fault(FK_F_PRIVATE, "");
	return r ? (uint32_t)r->number : len;
}

static void put(struct fk_id *id, struct fk_cm_event *e)
{
	fk_evq_put(&FK_OF(id->id.channel, struct fk_cm_channel, channel)->events, &e->ev);
}

struct late {
	struct fk_timer timer;
	struct fk_cm_event *event;
};

static void on_late(void *arg)
{
	struct late *l = arg;
	struct fk_id *id = fk_ids;

	while (id && id != l->event->ev.object)
		id = id->next;
	if (id)
		put(id, l->event);
	else
		free(l->event);
	free(l);
}

static void put_late(struct fk_cm_event *e, unsigned ms)
{
	struct late *l = calloc(1, sizeof(*l));

	if (!l)
		abort();
	l->event = e;
	l->timer.fn = on_late;
	l->timer.arg = l;
	fk_timer_set(&l->timer, ms);
}

void fk_cm_tell(struct fk_id *id, enum rdma_cm_event_type type, int status,
		const struct fk_cm_frame *f, struct fk_id *listener)
{
	const struct fk_rule *r = fk_fault(FK_F_CM, event_name(type));
	struct fk_cm_event *e = calloc(1, sizeof(*e));

	if (!e)
		abort();
	e->ev.object = id;
	e->event.id = &id->id;
	e->event.event = type;
	e->event.status = status;
	e->event.listen_id = listener ? &listener->id : NULL;
	if (f) {
		e->event.param.conn.private_data_len = (uint8_t)private_make(id, f, e->data);
		e->event.param.conn.private_data = e->data;
		e->event.param.conn.qp_num = f->qpn;
	}
	e->connect = type == RDMA_CM_EVENT_ESTABLISHED && !id->passive;
	if (r && !strcmp(r->word, "lost")) {
		free(e);
		return;
	}
	if (r && !strcmp(r->word, "rejected")) {
		e->event.event = RDMA_CM_EVENT_REJECTED;
		e->event.status = (int)r->number;
		e->connect = false;
	}
	if (r && !strcmp(r->word, "late"))
		put_late(e, (unsigned)r->number);
	else
		put(id, e);
}

/* ---- frames in ---- */

int fk_cm_send(struct fk_id *id, const struct fk_cm_frame *f)
{
	if (!id->wire || fk_fault(FK_F_CM, f->type == CM_REQ   ? "REQ"
					   : f->type == CM_REP ? "REP"
					   : f->type == CM_RTU ? "RTU"
							       : "OTHER"))
		return 0; /* lost */
	return send(id->wire->fd, f, sizeof(*f), MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -1 : 0;
}

static void path_of(struct fk_id *id, const struct fk_cm_frame *f)
{
	id->peer = (struct fk_path){.net = f->net,
				    .place = f->place,
				    .by_gid = id->port->kind != FK_IB,
				    .reachable = true,
				    .qpn = f->qpn};
}

static void gone(struct fk_id *id, int status)
{
	if (id->told_gone)
		return;
	id->told_gone = true;
	id->state = CM_GONE;
	fk_cm_tell(id, RDMA_CM_EVENT_DISCONNECTED, status, NULL, NULL);
}

void fk_cm_gone(struct fk_qp *qp, int status)
{
	if (qp->id && (qp->id->state == CM_UP || qp->id->state == CM_REP_RCVD))
		gone(qp->id, status);
}

static void on_rep(struct fk_id *id, const struct fk_cm_frame *f)
{
	if (id->state != CM_REQ_SENT)
		return;
	path_of(id, f);
	id->state = CM_REP_RCVD;
	fk_cm_tell(id, RDMA_CM_EVENT_ESTABLISHED, 0, f, NULL);
}

static void on_rtu(struct fk_id *id)
{
	if (id->state != CM_REP_SENT || id->port->nic->iwarp)
		return;
	id->state = CM_UP;
	fk_cm_tell(id, RDMA_CM_EVENT_ESTABLISHED, 0, NULL, NULL);
}

static void on_rej(struct fk_id *id, const struct fk_cm_frame *f)
{
	if (id->state == CM_GONE)
		return;
	id->state = CM_GONE;
	/* Who never heard of it need not hear of its end. */
	if (!id->unknown)
		fk_cm_tell(id, RDMA_CM_EVENT_REJECTED, f->status, f, NULL);
}

static void on_frame(struct fk_id *id, const struct fk_cm_frame *f)
{
	struct fk_cm_frame answer = {.type = CM_DREP};

	switch (f->type) {
	case CM_REP:
		on_rep(id, f);
		break;
	case CM_RTU:
		on_rtu(id);
		break;
	case CM_REJ:
		on_rej(id, f);
		break;
	case CM_DREQ:
		fk_cm_send(id, &answer);
		gone(id, 0);
		break;
	case CM_DREP:
		gone(id, 0);
		break;
	default:
		break;
	}
}

/* The peer's process, or its id, is no more. On InfiniBand its kernel would say so. */
static void on_end(struct fk_id *id)
{
	struct fk_cm_frame reject = {.type = CM_REJ, .status = REJECT_CONSUMER};
	struct fk_qp *qp = id->id.qp ? FK_OF(id->id.qp, struct fk_qp, qp) : NULL;

	fk_wire_close(&id->wire);
	if (id->port->nic->iwarp) {
		reject.status = -ECONNRESET;
		/* The data stream's end comes by itself, after its data. */
		if (qp && qp->in && qp->in->wire && id->state == CM_UP)
			return;
		if (qp && (id->state == CM_UP || id->state == CM_REP_RCVD))
			fk_qp_error(qp);
	}
	if (id->state == CM_REQ_SENT || id->state == CM_REP_SENT)
		on_rej(id, &reject);
	else if (id->state == CM_UP || id->state == CM_REP_RCVD)
		gone(id, id->port->nic->iwarp ? -ECONNRESET : 0);
}

static void on_conn(struct fk_wire *w, uint32_t events)
{
	struct fk_id *id = w->owner;
	struct fk_cm_frame f;

	(void)events;
	while (id->wire) {
		ssize_t n = recv(w->fd, &f, sizeof(f), MSG_DONTWAIT);

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n == sizeof(f) && f.len <= sizeof(f.data))
			on_frame(id, &f);
		else
			on_end(id);
	}
}

void fk_cm_watch(struct fk_id *id, int fd)
{
	id->wire = fk_wire_new(fd, EPOLLIN, on_conn, id);
}

/* ---- requests in ---- */

struct caller {
	struct fk_wire *wire;
	struct fk_id *listener;
};

static struct fk_id *id_known(struct fk_id *id)
{
	struct fk_id *i = fk_ids;

	while (i && i != id)
		i = i->next;
	return i;
}

static void on_req(struct fk_id *listener, const struct fk_cm_frame *f, int fd)
{
	struct fk_id *id = fk_id_new(listener->id.channel, listener->id.context);

	if (!id)
		abort();
	fk_id_place(id, listener->port);
	id->passive = id->unknown = true;
	id->listener = listener;
	id->state = CM_REQ_RCVD;
	id->rnr_retry = f->rnr_retry;
	memcpy(&id->id.route.addr.src_storage, &f->to, sizeof(f->to));
	memcpy(&id->id.route.addr.dst_storage, &f->from, sizeof(f->from));
	path_of(id, f);
	fk_cm_watch(id, fd);
	fk_cm_tell(id, RDMA_CM_EVENT_CONNECT_REQUEST, 0, f, listener);
}

/* The first packet of one who calls. */
static void on_caller(struct fk_wire *w, uint32_t events)
{
	struct caller *c = w->owner;
	struct fk_cm_frame f;
	struct fk_id *listener = id_known(c->listener);
	ssize_t n = recv(w->fd, &f, sizeof(f), MSG_DONTWAIT);
	int fd = -1;

	(void)events;
	if (n < 0 && errno == EAGAIN)
		return;
	if (n == sizeof(f) && f.type == CM_REQ && f.len <= sizeof(f.data) && listener &&
	    listener->state == CM_LISTEN)
		fd = dup(w->fd);
	fk_wire_close(&c->wire);
	free(c);
	if (fd >= 0)
		on_req(listener, &f, fd);
}

void fk_cm_listen_ready(struct fk_wire *w, uint32_t events)
{
	int fd = accept4(w->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct caller *c = fd < 0 ? NULL : calloc(1, sizeof(*c));

	(void)events;
	if (!c)
		return;
	c->listener = w->owner;
	c->wire = fk_wire_new(fd, EPOLLIN, on_caller, c);
	if (!c->wire)
		free(c);
}

void fk_cm_fatal(struct fk_nic *nic)
{
	for (struct fk_id *i = fk_ids; i; i = i->next) {
		if (i->port && i->port->nic == nic)
			fk_cm_tell(i, RDMA_CM_EVENT_DEVICE_REMOVAL, 0, NULL, NULL);
	}
}
