/* rdma_cm: the calls. States and events are those of librdmacm and the kernel behind it. */
#include "cm.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

static struct fk_id *id_of(struct rdma_cm_id *id)
{
	return (struct fk_id *)id;
}

static struct fk_qp *qp_of(const struct fk_id *i)
{
	return i->id.qp ? FK_OF(i->id.qp, struct fk_qp, qp) : NULL;
}

static int fail(int err)
{
	errno = err;
	return -1;
}

/* ---- channels and events ---- */

struct rdma_event_channel *rdma_create_event_channel(void)
{
	int err = fk_fault_call("rdma_create_event_channel");
	struct fk_cm_channel *c = NULL;

	FK_LOCK();
	if (!err && !fk_configure())
		err = ENODEV;
	if (!err)
		c = calloc(1, sizeof(*c));
	if (c && fk_evq_init(&c->events) == 0) {
		c->channel.fd = c->events.fd;
		fk.count[FK_CM_CHANNEL]++;
	}
	FK_UNLOCK();
	errno = err;
	return c ? &c->channel : NULL;
}

void rdma_destroy_event_channel(struct rdma_event_channel *channel)
{
	struct fk_cm_channel *c = FK_OF(channel, struct fk_cm_channel, channel);

	FK_LOCK();
	if (c->ids)
		fk_breach("rdma_destroy_event_channel: %u ids use it", c->ids);
	fk_evq_close(&c->events);
	fk.count[FK_CM_CHANNEL]--;
	FK_UNLOCK();
	free(c);
}

/* librdmacm's part of connecting, done when the program takes the event. */
static void connect_finish(struct fk_id *i)
{
	struct fk_qp *q = qp_of(i);
	struct fk_cm_frame rtu = {.type = CM_RTU};

	if (i->state != CM_REP_RCVD)
		return;
	i->state = CM_UP;
	fk_busy_wait(q);
	if (q && q->qp.state == IBV_QPS_INIT)
		fk_qp_connect(q, &i->peer, false);
	fk_cm_send(i, &rtu);
}

int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event)
{
	struct fk_cm_channel *c = FK_OF(channel, struct fk_cm_channel, channel);
	struct fk_cm_event *e = (struct fk_cm_event *)fk_evq_get(&c->events);

	if (!e)
		return -1;
	FK_LOCK();
	if (e->connect)
		connect_finish(id_of(e->event.id));
	id_of(e->event.id)->unacked++;
	id_of(e->event.id)->unknown = false;
	FK_UNLOCK();
	*event = &e->event;
	return 0;
}

int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	FK_LOCK();
	id_of(event->id)->unacked--;
	FK_UNLOCK();
	free(FK_OF(event, struct fk_cm_event, event));
	return 0;
}

/* ---- ids ---- */

int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context,
		   enum rdma_port_space ps)
{
	int err = fk_fault_call("rdma_create_id");
	struct fk_id *i;

	if (err || ps != RDMA_PS_TCP)
		return fail(err ? err : EPROTONOSUPPORT);
	FK_LOCK();
	i = fk_id_new(channel, context);
	FK_UNLOCK();
	if (!i)
		return fail(ENOMEM);
	*id = &i->id;
	return 0;
}

/* Who is still connected is told, as by the kernel. */
static void say_goodbye(struct fk_id *i)
{
	struct fk_cm_frame f = {.type = CM_DREQ};

	if (i->state == CM_REQ_RCVD || i->state == CM_REQ_SENT || i->state == CM_REP_SENT ||
	    i->state == CM_REP_RCVD) {
		f.type = CM_REJ;
		f.status = i->port->nic->iwarp ? -ECONNREFUSED : 28;
		fk_cm_send(i, &f);
	} else if (i->state == CM_UP && !i->port->nic->iwarp) {
		fk_cm_send(i, &f);
	}
}

static void id_destroy(struct fk_id *i)
{
	struct fk_cm_channel *c = FK_OF(i->id.channel, struct fk_cm_channel, channel);
	struct fk_id **at = &fk_ids;

	say_goodbye(i);
	fk_wire_close(&i->wire);
	fk_evq_drop(&c->events, i, NULL);
	while (*at != i)
		at = &(*at)->next;
	*at = i->next;
	c->ids--;
	fk.count[FK_ID]--;
	free(i);
}

/* Requests that nobody was told of go with their listener. */
static void unknown_destroy(const struct fk_id *listener)
{
	for (struct fk_id *i = fk_ids, *next; i; i = next) {
		next = i->next;
		if (i->unknown && i->listener == listener)
			id_destroy(i);
	}
}

int rdma_destroy_id(struct rdma_cm_id *id)
{
	struct fk_id *i = id_of(id);

	FK_LOCK();
	if (id->qp)
		fk_breach("rdma_destroy_id: its QP is not destroyed");
	if (i->unacked)
		fk_breach("rdma_destroy_id: %u events are not acknowledged, it would wait for ever",
			  i->unacked);
	unknown_destroy(i);
	id_destroy(i);
	FK_UNLOCK();
	return 0;
}

int rdma_migrate_id(struct rdma_cm_id *id, struct rdma_event_channel *channel)
{
	struct fk_cm_channel *from = FK_OF(id->channel, struct fk_cm_channel, channel);
	struct fk_cm_channel *to = FK_OF(channel, struct fk_cm_channel, channel);
	int err = fk_fault_call("rdma_migrate_id");

	if (err)
		return fail(err);
	FK_LOCK();
	if (id_of(id)->unacked)
		fk_breach("rdma_migrate_id: events are not acknowledged, it would wait for ever");
	fk_evq_drop(&from->events, id, &to->events);
	from->ids--;
	to->ids++;
	id->channel = channel;
	FK_UNLOCK();
	return 0;
}

int rdma_set_option(struct rdma_cm_id *id, int level, int name, void *value, size_t len)
{
	int err = fk_fault_call("rdma_set_option");

	(void)id;
	(void)value;
	if (err)
		return fail(err);
	if (level != RDMA_OPTION_ID || len != 1 ||
	    (name != RDMA_OPTION_ID_ACK_TIMEOUT && name != RDMA_OPTION_ID_TOS))
		return fail(ENOSYS);
	return 0;
}

__be16 rdma_get_src_port(struct rdma_cm_id *id)
{
	return id->route.addr.src_sin.sin_port;
}

/* ---- bound and listening ---- */

static socklen_t sa_len(const struct sockaddr *sa)
{
	return sa->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

static int bind_locked(struct fk_id *i, const struct sockaddr *sa)
{
	struct fk_port *p = fk_port_of_addr(sa);
	static uint16_t next;

	if (i->state != CM_IDLE)
		return EINVAL;
	if (!p)
		return EADDRNOTAVAIL;
	if (p->nic->fatal)
		return ENODEV;
	memcpy(&i->id.route.addr.src_storage, sa, sa_len(sa));
	fk_id_place(i, p);
	if (!i->id.route.addr.src_sin.sin_port)
		i->id.route.addr.src_sin.sin_port = htons((uint16_t)(20000 + next++ % 40000));
	i->state = CM_BOUND;
	return 0;
}

int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr)
{
	int err = fk_fault_call("rdma_bind_addr");

	FK_LOCK();
	if (!err)
		err = bind_locked(id_of(id), addr);
	FK_UNLOCK();
	return err ? fail(err) : 0;
}

int rdma_listen(struct rdma_cm_id *id, int backlog)
{
	struct fk_id *i = id_of(id);
	int err = fk_fault_call("rdma_listen");
	char name[64];

	(void)backlog;
	FK_LOCK();
	if (!err && i->state != CM_BOUND)
		err = EINVAL;
	if (!err) {
		fk_cm_name(&id->route.addr.src_addr, name);
		int fd = fk_listen(name, SOCK_SEQPACKET);

		i->wire = fd < 0 ? NULL : fk_wire_new(fd, EPOLLIN, fk_cm_listen_ready, i);
		err = i->wire ? 0 : errno;
	}
	if (!err)
		i->state = CM_LISTEN;
	FK_UNLOCK();
	return err ? fail(err) : 0;
}

/* ---- the way there ---- */

int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *src, struct sockaddr *dst, int ms)
{
	struct fk_id *i = id_of(id);
	int err = fk_fault_call("rdma_resolve_addr");
	uint8_t net, place;

	(void)ms;
	FK_LOCK();
	if (!err && src)
		err = bind_locked(i, src);
	if (!err && i->state != CM_BOUND)
		err = EINVAL;
	if (!err && (!fk_addr_place(dst, &net, &place) || net != i->port->net))
		err = ENETUNREACH;
	if (!err) {
		memcpy(&id->route.addr.dst_storage, dst, sa_len(dst));
		i->state = CM_ADDR;
		fk_cm_tell(i, RDMA_CM_EVENT_ADDR_RESOLVED, 0, NULL, NULL);
	}
	FK_UNLOCK();
	return err ? fail(err) : 0;
}

int rdma_resolve_route(struct rdma_cm_id *id, int ms)
{
	struct fk_id *i = id_of(id);
	int err = fk_fault_call("rdma_resolve_route");

	(void)ms;
	FK_LOCK();
	if (!err && i->state != CM_ADDR)
		err = EINVAL;
	if (!err) {
		i->state = CM_ROUTE;
		fk_cm_tell(i, RDMA_CM_EVENT_ROUTE_RESOLVED, 0, NULL, NULL);
	}
	FK_UNLOCK();
	return err ? fail(err) : 0;
}

/* ---- its QP ---- */

int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
	struct fk_id *i = id_of(id);
	int err = fk_fault_call("rdma_create_qp");
	struct ibv_qp *qp;

	if (err)
		return fail(err);
	if (!id->verbs || (pd && pd->context != id->verbs) || id->qp)
		return fail(EINVAL);
	qp = ibv_create_qp(pd, init);
	if (!qp)
		return -1;
	FK_LOCK();
	struct fk_qp *q = FK_OF(qp, struct fk_qp, qp);

	q->id = i;
	q->port = i->port;
	q->access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	q->attr.path_mtu = i->port->kind == FK_IB ? IBV_MTU_4096 : IBV_MTU_1024;
	q->attr.timeout = 17;
	q->attr.retry_cnt = 7;
	q->attr.ah_attr.is_global = i->port->kind != FK_IB;
	q->attr.ah_attr.grh.sgid_index = (uint8_t)(i->port->gid_count - 1);
	q->attr.ah_attr.port_num = i->port->number;
	fk_qp_set(q, IBV_QPS_INIT);
	id->qp = qp;
	id->pd = pd;
	FK_UNLOCK();
	return 0;
}

void rdma_destroy_qp(struct rdma_cm_id *id)
{
	struct ibv_qp *qp = id->qp;

	/* iWARP's connection goes with it, but for what is said already. */
	FK_LOCK();
	fk_busy_wait(qp_of(id_of(id)));
	qp_of(id_of(id))->id = NULL;
	id->qp = NULL;
	FK_UNLOCK();
	ibv_destroy_qp(qp);
}

/* ---- connecting ---- */

static void frame_fill(struct fk_id *i, struct fk_cm_frame *f, enum fk_cm_type type,
		       const void *data, uint8_t len)
{
	*f = (struct fk_cm_frame){.type = (uint32_t)type,
				  .qpn = i->id.qp ? i->id.qp->qp_num : 0,
				  .net = i->port->net,
				  .place = i->port->place,
				  .kind = (uint8_t)i->port->kind,
				  .len = len,
				  .from = i->id.route.addr.src_storage,
				  .to = i->id.route.addr.dst_storage};
	if (len)
		memcpy(f->data, data, len);
}

static int param_check(struct fk_id *i, const struct rdma_conn_param *p, enum fk_cm_type type)
{
	uint32_t room = fk_cm_room(i, type);

	if (room && p->private_data_len > room)
		return EINVAL;
	if (!i->id.qp || i->id.qp->state != IBV_QPS_INIT)
		return EINVAL;
	return i->port->nic->fatal ? ENODEV : 0;
}

/* Nobody listens: InfiniBand has a reject for that, TCP a reset. */
static int call(struct fk_id *i, const struct rdma_conn_param *p)
{
	struct fk_cm_frame f, refused = {.type = CM_REJ};
	char name[64];
	int fd;

	qp_of(i)->attr.rnr_retry = p->rnr_retry_count;
	qp_of(i)->attr.retry_cnt = p->retry_count;
	i->state = CM_REQ_SENT;
	fk_cm_name(&i->id.route.addr.dst_addr, name);
	fd = i->port->state == IBV_PORT_ACTIVE ? fk_dial(name, SOCK_SEQPACKET) : -1;
	if (fd < 0) {
		i->state = CM_GONE;
		fk_cm_tell(i, RDMA_CM_EVENT_REJECTED, i->port->nic->iwarp ? -ECONNREFUSED : 8,
			   &refused, NULL);
		return 0;
	}
	fk_cm_watch(i, fd);
	frame_fill(i, &f, CM_REQ, p->private_data, p->private_data_len);
	f.rnr_retry = p->rnr_retry_count;
	fk_cm_send(i, &f);
	return 0;
}

static void slow(const char *name)
{
	const struct fk_rule *r = fk_fault(FK_F_SLOW, name);

	if (r)
		usleep((useconds_t)r->number * 1000);
}

int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	struct fk_id *i = id_of(id);
	int err = fk_fault_call("rdma_connect");

	FK_LOCK();
	if (!err && i->state != CM_ROUTE)
		err = EINVAL;
	if (!err)
		err = param_check(i, param, CM_REQ);
	if (!err)
		err = call(i, param);
	FK_UNLOCK();
	slow("rdma_connect");
	return err ? fail(err) : 0;
}

int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	struct fk_id *i = id_of(id);
	struct fk_cm_frame f;
	int err = fk_fault_call("rdma_accept");

	FK_LOCK();
	if (!err && i->state != CM_REQ_RCVD)
		err = EINVAL;
	if (!err)
		err = param_check(i, param, CM_REP);
	if (!err) {
		qp_of(i)->attr.rnr_retry = i->rnr_retry;
		fk_qp_connect(qp_of(i), &i->peer, true);
		i->state = CM_REP_SENT;
		frame_fill(i, &f, CM_REP, param->private_data, param->private_data_len);
		fk_cm_send(i, &f);
	}
	if (!err && i->port->nic->iwarp) {
		i->state = CM_UP;
		fk_cm_tell(i, RDMA_CM_EVENT_ESTABLISHED, 0, NULL, NULL);
	}
	FK_UNLOCK();
	return err ? fail(err) : 0;
}

int rdma_reject(struct rdma_cm_id *id, const void *data, uint8_t len)
{
	struct fk_id *i = id_of(id);
	struct fk_cm_frame f;

	FK_LOCK();
	if (i->state == CM_REQ_RCVD) {
		frame_fill(i, &f, CM_REJ, data, len);
		f.status = i->port->nic->iwarp ? -ECONNREFUSED : 28;
		fk_cm_send(i, &f);
		i->state = CM_GONE;
	}
	FK_UNLOCK();
	return 0;
}

int rdma_notify(struct rdma_cm_id *id, enum ibv_event_type event)
{
	struct fk_id *i = id_of(id);

	FK_LOCK();
	if (event == IBV_EVENT_COMM_EST && i->state == CM_REP_SENT) {
		i->state = CM_UP;
		fk_cm_tell(i, RDMA_CM_EVENT_ESTABLISHED, 0, NULL, NULL);
	}
	FK_UNLOCK();
	return 0;
}

/* InfiniBand: the QP goes to ERR. iWARP: what was posted goes out, then the stream ends; nothing is
 * flushed. */
int rdma_disconnect(struct rdma_cm_id *id)
{
	struct fk_id *i = id_of(id);
	struct fk_qp *q = qp_of(i);
	struct fk_cm_frame f = {.type = CM_DREQ};

	FK_LOCK();
	if (q && q->nic->iwarp) {
		fk_busy_wait(q);
		if (q->qp.state == IBV_QPS_RTS) {
			q->qp.state = IBV_QPS_SQD;
			q->fin_due = true;
			fk_work(q);
		}
	} else if (q) {
		fk_busy_wait(q);
		fk_qp_error(q);
		if (i->state == CM_UP || i->state == CM_REP_SENT)
			fk_cm_send(i, &f);
	}
	FK_UNLOCK();
	return 0;
}
