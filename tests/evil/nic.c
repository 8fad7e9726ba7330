/* The evil end's RDMA device: one connection, one request at a time, and all that comes kept in order. */
#include "nic.h"

#include "base/clock.h"
#include "link/verbs/layout.h"
#include "link/verbs/verbs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdlib.h>
#include <string.h>

#define RECEIVES 64u
#define RECEIVE_BYTES 256u
#define KEPT 1024u

struct evil_nic {
	struct rcp_rdma *rdma; /* for CAPS */
	struct rcp_rdma_port mine, theirs;
	unsigned receives;
	bool receives_set;
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener, *id;
	struct ibv_context *own; /* without rdma_cm */
	struct ibv_pd *pd;
	struct ibv_comp_channel *comp;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *out_mr, *in_mr, *ring_mr;
	uint8_t *out, *in, *ring;
	size_t ring_bytes;
	uint8_t gid_type;

	struct nic_in {
		bool imm;
		uint32_t word, bytes;
		uint8_t data[RECEIVE_BYTES];
	} kept[KEPT];
	unsigned kept_at, kept_count;
	bool sent, left; /* left: nothing more can be asked of it */
	bool gone;	 /* rdma_cm says so */
	enum ibv_wc_status status;
	enum rdma_cm_event_type event; /* the last one that nobody has looked at */
	bool has_event;
	uint8_t called[256];
	size_t called_len;
};

/* ---- turns ---- */

static void receive(struct evil_nic *n, uint32_t index)
{
	struct ibv_sge sge = {.addr = (uintptr_t)n->in + (uintptr_t)index * RECEIVE_BYTES,
			      .length = RECEIVE_BYTES,
			      .lkey = n->in_mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = index, .sg_list = &sge, .num_sge = 1}, *bad;

	ibv_post_recv(n->qp, &wr, &bad);
}

static void keep(struct evil_nic *n, const struct ibv_wc *wc)
{
	uint32_t index = (uint32_t)wc->wr_id;
	struct nic_in *in = &n->kept[(n->kept_at + n->kept_count) % KEPT];

	if (n->kept_count == KEPT)
		return;
	n->kept_count++;
	in->imm = wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM;
	in->word = in->imm ? ntohl(wc->imm_data) : 0;
	in->bytes = wc->byte_len;
	memcpy(in->data, n->in + (size_t)index * RECEIVE_BYTES, RECEIVE_BYTES);
	if (!n->receives_set)
		receive(n, index);
}

static bool look_queue(struct evil_nic *n)
{
	struct ibv_cq *cq;
	void *arg;
	struct ibv_wc wc;
	bool any = false;

	while (n->comp && ibv_get_cq_event(n->comp, &cq, &arg) == 0)
		ibv_ack_cq_events(cq, 1);
	if (n->cq)
		ibv_req_notify_cq(n->cq, 0);
	while (n->cq && ibv_poll_cq(n->cq, 1, &wc) == 1) {
		any = true;
		if (wc.wr_id == UINT64_MAX) {
			n->sent = true;
			n->status = wc.status;
		} else if (wc.status == IBV_WC_SUCCESS) {
			keep(n, &wc);
		}
		n->left |= wc.status != IBV_WC_SUCCESS;
	}
	return any;
}

static bool look_events(struct evil_nic *n)
{
	struct rdma_cm_event *ev;
	bool any = false;

	while (n->channel && !n->has_event && rdma_get_cm_event(n->channel, &ev) == 0) {
		any = true;
		if (ev->event == RDMA_CM_EVENT_CONNECT_REQUEST || ev->event == RDMA_CM_EVENT_ESTABLISHED) {
			n->called_len = ev->param.conn.private_data_len;
			if (n->called_len)
				memcpy(n->called, ev->param.conn.private_data, n->called_len);
		}
		if (ev->event == RDMA_CM_EVENT_CONNECT_REQUEST && !n->id)
			n->id = ev->id;
		if (ev->event == RDMA_CM_EVENT_DISCONNECTED) {
			n->left = n->gone = true;
		} else {
			n->event = ev->event;
			n->has_event = true;
		}
		rdma_ack_cm_event(ev);
	}
	return any;
}

/* ended: whether it goes on when this end's queue pair has an error. */
static bool turn(struct evil *e, unsigned ms, bool ended)
{
	struct evil_nic *n = e->nic;
	struct pollfd w[] = {{.fd = n->comp ? n->comp->fd : -1, .events = POLLIN},
			     {.fd = n->channel ? n->channel->fd : -1, .events = POLLIN},
			     {.fd = e->ctl->rfd, .events = POLLRDHUP}};
	bool some = look_queue(n);

	some |= look_events(n);
	evil_live(e);
	if (some)
		return true;
	if (n->gone || (n->left && !ended) || evil_now() >= e->until_ns)
		return false;
	if (poll(w, 3, (int)ms) > 0 && w[2].revents && !w[0].revents && !w[1].revents)
		return false; /* who hangs up has left */
	return true;
}

bool nic_turn(struct evil *e, unsigned ms)
{
	return turn(e, ms, false);
}

static bool event_wait(struct evil *e, enum rdma_cm_event_type want)
{
	struct evil_nic *n = e->nic;

	while (!n->has_event && nic_turn(e, 100))
		;
	bool right = n->has_event && n->event == want;

	if (!right)
		evil_note(e, "rdma_cm", n->has_event ? rdma_event_str(n->event) : "no event");

	n->has_event = false;
	return right;
}

void nic_end(struct evil *e)
{
	struct evil_nic *n = e->nic;

	/* Without rdma_cm nobody tells that the victim has gone: it answers no more. */
	while (e->link & EVIL_ANY_OOB && nic_write(e, 0, 0, NULL, 0))
		turn(e, 100, false);
	while (!n->gone && turn(e, 100, !(e->link & EVIL_ANY_OOB))) {
		n->kept_count = 0;
		n->has_event = false;
	}
	if (e->initiator)
		evil_hang_up(e);
	evil_drain(e);
}

/* ---- the device ---- */

static struct evil_nic *nic(struct evil *e)
{
	if (!e->nic) {
		e->nic = calloc(1, sizeof(*e->nic));
		if (!e->nic)
			abort();
		e->nic->receives = RECEIVES;
	}
	return e->nic;
}

void nic_set_receives(struct evil *e, unsigned count)
{
	nic(e)->receives = count;
	nic(e)->receives_set = true;
}

static void unblock(int fd)
{
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

static bool channel_make(struct evil_nic *n)
{
	n->channel = rdma_create_event_channel();
	if (n->channel)
		unblock(n->channel->fd);
	return n->channel != NULL;
}

static bool listen_at(struct evil_nic *n)
{
	struct sockaddr_storage at = n->mine.addrs[0];

	if (!channel_make(n) || rdma_create_id(n->channel, &n->listener, NULL, RDMA_PS_TCP) != 0 ||
	    rdma_bind_addr(n->listener, (struct sockaddr *)&at) != 0 || rdma_listen(n->listener, 8) != 0)
		return false;
	n->mine.cm_port = ntohs(rdma_get_src_port(n->listener));
	return true;
}

static bool port_make(struct evil *e)
{
	struct rcp_rdma_options how = {.gid_index = -1, .tos = -1, .sl = -1, .pkey = -1};
	struct evil_nic *n = nic(e);
	struct rcp_err err = {0};
	unsigned count;

	if (rcp_rdma_open(&how, &err, &n->rdma)) {
		evil_note(e, "broken", err.text);
		return false;
	}
	n->mine = rcp_rdma_ports(n->rdma, &count)[0];
	if (n->mine.addr_count > 1)
		n->mine.addr_count = 1; /* one way to try */
	return e->initiator || e->link & EVIL_ANY_OOB || listen_at(n);
}

bool nic_caps(struct evil *e, struct rcp_msg_caps *m)
{
	struct rcp_wr w = {.max = 65536};
	struct rcp_err err = {0};
	unsigned count = 0;

	if (!port_make(e))
		return false;
	rcp_rdma_port_encode(&w, &e->nic->mine);
	m->ports = rcp_span_of(w.data, w.len);
	m->no_rdma = rcp_span_of(NULL, 0);
	evil_say(e, RCP_MSG_CAPS, m);
	rcp_wr_free(&w);
	return evil_await(e, RCP_MSG_CAPS) && !rcp_rdma_ports_decode(e->msg.caps_.ports, &err, &e->nic->theirs, 1, &count) &&
	       count == 1;
}

static bool memory_make(struct evil *e, struct evil_nic *n)
{
	n->ring_bytes = (size_t)EVIL_SLOTS * (4096 + EVIL_CHUNK);
	n->out = calloc(1, NIC_BYTES);
	n->in = calloc(RECEIVES, RECEIVE_BYTES);
	n->ring = aligned_alloc(4096, n->ring_bytes);
	if (!n->out || !n->in || !n->ring)
		abort();
	memset(n->ring, 0, n->ring_bytes);
	n->out_mr = ibv_reg_mr(n->pd, n->out, NIC_BYTES, IBV_ACCESS_LOCAL_WRITE);
	n->in_mr = ibv_reg_mr(n->pd, n->in, (size_t)RECEIVES * RECEIVE_BYTES, IBV_ACCESS_LOCAL_WRITE);
	if (!e->source)
		n->ring_mr = ibv_reg_mr(n->pd, n->ring, n->ring_bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	return n->out_mr && n->in_mr && (e->source || n->ring_mr);
}

static bool qp_make(struct evil *e, struct ibv_context *ctx)
{
	struct evil_nic *n = e->nic;

	n->pd = ibv_alloc_pd(ctx);
	n->comp = ibv_create_comp_channel(ctx);
	if (!n->pd || !n->comp || !memory_make(e, n))
		return false;
	unblock(n->comp->fd);
	n->cq = ibv_create_cq(ctx, 2048, NULL, n->comp, 0);
	struct ibv_qp_init_attr init = {.send_cq = n->cq,
					.recv_cq = n->cq,
					.qp_type = IBV_QPT_RC,
					.cap = {.max_send_wr = 64, .max_recv_wr = RECEIVES, .max_send_sge = 1, .max_recv_sge = 1}};

	if (!n->cq)
		return false;
	if (n->id && !rdma_create_qp(n->id, n->pd, &init))
		n->qp = n->id->qp;
	else if (!n->id)
		n->qp = ibv_create_qp(n->pd, &init);
	return n->qp != NULL;
}

static void receives_post(struct evil_nic *n)
{
	for (uint32_t i = 0; i < n->receives; i++)
		receive(n, i);
}

/* ---- connecting ---- */

void nic_private(const struct evil *e, uint16_t link, uint8_t out[NIC_PRIVATE])
{
	struct verbs_private p = {.attempt = link};
	uint8_t data[2] = {(uint8_t)(link >> 8), (uint8_t)link};
	struct rcp_err err = {0};

	memcpy(p.session, e->session, sizeof(p.session));
	rcp_secret_hmac(e->secret, e->initiator ? "rdma initiator" : "rdma responder", data, sizeof(data), p.proof, &err);
	rcp_verbs_private_encode(&p, out);
}

static struct rdma_conn_param param_of(const void *data, size_t len)
{
	return (struct rdma_conn_param){.private_data = data,
					.private_data_len = (uint8_t)len,
					.responder_resources = 1,
					.initiator_depth = 1,
					.retry_count = 7,
					.rnr_retry_count = 6};
}

bool nic_call(struct evil *e, const void *data, size_t len)
{
	struct evil_nic *n = nic(e);
	struct sockaddr_storage from = n->mine.addrs[0], to = n->theirs.addrs[0];
	struct rdma_conn_param param = param_of(data, len);

	evil_step(e, "calling by rdma_cm");
	((struct sockaddr_in *)(void *)&to)->sin_port = htons(n->theirs.cm_port);
	if (to.ss_family != AF_INET || (!n->channel && !channel_make(n)) ||
	    rdma_create_id(n->channel, &n->id, NULL, RDMA_PS_TCP) != 0 ||
	    rdma_resolve_addr(n->id, (struct sockaddr *)&from, (struct sockaddr *)&to, 3000) != 0 ||
	    !event_wait(e, RDMA_CM_EVENT_ADDR_RESOLVED) || rdma_resolve_route(n->id, 3000) != 0 ||
	    !event_wait(e, RDMA_CM_EVENT_ROUTE_RESOLVED) || !qp_make(e, n->id->verbs))
		return false;
	receives_post(n);
	return rdma_connect(n->id, &param) == 0 && event_wait(e, RDMA_CM_EVENT_ESTABLISHED);
}

bool nic_called(struct evil *e, uint8_t *data, size_t *len)
{
	if (!event_wait(e, RDMA_CM_EVENT_CONNECT_REQUEST))
		return false;
	*len = e->nic->called_len;
	memcpy(data, e->nic->called, *len);
	return true;
}

bool nic_accept(struct evil *e, const void *data, size_t len)
{
	struct rdma_conn_param param = param_of(data, len);

	if (!qp_make(e, e->nic->id->verbs))
		return false;
	receives_post(e->nic);
	return rdma_accept(e->nic->id, &param) == 0;
}

static struct nic_in *next_in(struct evil *e)
{
	struct evil_nic *n = e->nic;

	while (!n->kept_count && nic_turn(e, 100))
		;
	if (!n->kept_count)
		return NULL;
	struct nic_in *in = &n->kept[n->kept_at];

	n->kept_at = (n->kept_at + 1) % KEPT;
	n->kept_count--;
	return in;
}

bool nic_hello(struct evil *e)
{
	struct verbs_message m = {.type = VERBS_HELLO, .attempt = e->link_id};
	uint8_t buf[VERBS_MESSAGE_BYTES];

	if (e->initiator)
		return nic_send(e, buf, rcp_verbs_message_encode(&m, buf));
	const struct nic_in *in = next_in(e);

	return in && !in->imm && rcp_verbs_message_decode(in->data, in->bytes < 64 ? in->bytes : 64, &m) && m.type == VERBS_HELLO;
}

static bool connect_cm(struct evil *e)
{
	uint8_t mine[NIC_PRIVATE], theirs[256];
	size_t len;

	nic_private(e, e->link_id, mine);
	if (e->initiator)
		return nic_call(e, mine, sizeof(mine)) && nic_hello(e);
	return nic_called(e, theirs, &len) && nic_accept(e, mine, sizeof(mine)) && nic_hello(e);
}

/* ---- without rdma_cm ---- */

bool nic_numbers(struct evil *e, struct rcp_msg_link_oob *m)
{
	struct evil_nic *n = nic(e);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
				   .port_num = n->mine.number,
				   .qp_access_flags = e->source ? 0 : IBV_ACCESS_REMOTE_WRITE};
	int count;
	struct ibv_device **list = ibv_get_device_list(&count);

	n->own = list ? ibv_open_device(list[0]) : NULL;
	ibv_free_device_list(list);
	if (!n->own || !qp_make(e, n->own) ||
	    ibv_modify_qp(n->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) != 0)
		return false;
	receives_post(n);
	*m = (struct rcp_msg_link_oob){.link = e->link_id,
				       .qpn = n->qp->qp_num,
				       .psn = 77,
				       .lid = n->mine.lid,
				       .mtu = n->mine.mtu,
				       .gid_type = RCP_GID_IB};
	return true;
}

bool nic_to(struct evil *e, const struct rcp_msg_link_oob *peer)
{
	struct evil_nic *n = e->nic;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
				   .path_mtu = IBV_MTU_1024,
				   .dest_qp_num = peer->qpn,
				   .rq_psn = peer->psn,
				   .min_rnr_timer = 12,
				   .ah_attr = {.port_num = n->mine.number, .dlid = peer->lid}};

	if (ibv_modify_qp(n->qp, &attr,
			  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) != 0)
		return false;
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 6, .sq_psn = 77};
	return ibv_modify_qp(n->qp, &attr,
			     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				     IBV_QP_MAX_QP_RD_ATOMIC) == 0;
}

static bool connect_oob(struct evil *e)
{
	struct rcp_msg_link_oob mine, theirs;

	if (!nic_numbers(e, &mine))
		return false;
	if (e->initiator)
		evil_say(e, RCP_MSG_LINK_OOB, &mine);
	if (!evil_await(e, RCP_MSG_LINK_OOB))
		return false;
	theirs = e->msg.link_oob_;
	if (!nic_to(e, &theirs))
		return false;
	if (!e->initiator)
		evil_say(e, RCP_MSG_LINK_OOB, &mine);
	return nic_hello(e);
}

bool nic_connect(struct evil *e)
{
	return e->link & EVIL_ANY_OOB ? connect_oob(e) : connect_cm(e);
}

/* ---- requests ---- */

static bool request(struct evil *e, struct ibv_send_wr *wr, const void *data, size_t len)
{
	struct evil_nic *n = e->nic;
	struct ibv_sge sge = {.addr = (uintptr_t)n->out, .length = (uint32_t)len, .lkey = n->out_mr ? n->out_mr->lkey : 0};
	struct ibv_send_wr *bad;

	if (!n->qp || n->left || len > NIC_BYTES)
		return false;
	if (len)
		memcpy(n->out, data, len);
	wr->wr_id = UINT64_MAX;
	wr->sg_list = &sge;
	wr->num_sge = len ? 1 : 0;
	wr->send_flags = IBV_SEND_SIGNALED;
	n->sent = false;
	if (ibv_post_send(n->qp, wr, &bad) != 0)
		return false;
	while (!n->sent && nic_turn(e, 100))
		;
	return n->sent && n->status == IBV_WC_SUCCESS;
}

bool nic_write(struct evil *e, uint64_t addr, uint32_t rkey, const void *data, size_t len)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE, .wr.rdma = {.remote_addr = addr, .rkey = rkey}};

	return request(e, &wr, data, len);
}

bool nic_write_imm(struct evil *e, uint64_t addr, uint32_t rkey, const void *data, size_t len, uint32_t imm)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
				 .imm_data = htonl(imm),
				 .wr.rdma = {.remote_addr = addr, .rkey = rkey}};

	if (e->link & EVIL_ANY_IWARP)
		return nic_write(e, addr, rkey, data, len) && nic_say_chunk(e, imm, (uint32_t)len);
	return request(e, &wr, data, len);
}

bool nic_send(struct evil *e, const void *data, size_t len)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND};

	return request(e, &wr, data, len);
}

bool nic_say_chunk(struct evil *e, uint32_t imm, uint32_t bytes)
{
	struct verbs_message m = {.type = VERBS_CHUNK, .imm = imm, .bytes = bytes};
	uint8_t buf[VERBS_MESSAGE_BYTES];

	return nic_send(e, buf, rcp_verbs_message_encode(&m, buf));
}

/* ---- source ---- */

uint64_t nic_slot(const struct evil *e, uint32_t slot)
{
	return e->ring.addr + (uint64_t)slot * e->ring.slot_bytes + 4096 - RCP_CHUNK_HEADER;
}

/* A slot that isn't there is a lie of the imm word: the bytes go where the victim's device takes them. */
void nic_chunk(struct evil *e, uint32_t slot, const uint8_t *header, const uint8_t *payload, size_t len)
{
	static uint8_t both[NIC_BYTES];
	uint32_t place = slot < e->ring.slots ? slot : 0;

	memcpy(both, header, RCP_CHUNK_HEADER);
	memcpy(both + RCP_CHUNK_HEADER, payload, len);
	nic_write_imm(e, nic_slot(e, place), e->ring.rkey, both, RCP_CHUNK_HEADER + len, rcp_imm(slot, e->ring.generation));
}

bool nic_has_credits(struct evil *e)
{
	look_queue(e->nic);
	return e->nic->kept_count > 0;
}

bool nic_credits(struct evil *e)
{
	struct verbs_message m;
	const struct nic_in *in = next_in(e);

	if (!in || in->imm || !rcp_verbs_message_decode(in->data, in->bytes < 64 ? in->bytes : 64, &m) ||
	    m.type != VERBS_CREDITS)
		return false;
	for (unsigned i = 0; i < m.count; i++)
		e->taken[m.slots[i] & 63] = false;
	e->credits += m.count;
	return true;
}

/* ---- sink ---- */

void nic_ring(struct evil *e, struct rcp_msg_link_ring *m)
{
	m->addr = (uintptr_t)e->nic->ring;
	m->rkey = e->nic->ring_mr->rkey;
}

const uint8_t *nic_take(struct evil *e, uint32_t *slot)
{
	struct verbs_message m = {0};
	const struct nic_in *in = next_in(e);

	if (!in)
		return NULL;
	if (!in->imm && (!rcp_verbs_message_decode(in->data, in->bytes < 64 ? in->bytes : 64, &m) || m.type != VERBS_CHUNK))
		return NULL;
	*slot = rcp_imm_slot(in->imm ? in->word : m.imm);
	return *slot < EVIL_SLOTS ? e->nic->ring + (size_t)*slot * (4096 + EVIL_CHUNK) + 4096 - RCP_CHUNK_HEADER : NULL;
}

void nic_credit_words(struct evil *e, const uint16_t *slots, unsigned count)
{
	struct verbs_message m = {.type = VERBS_CREDITS, .count = count};
	uint8_t buf[VERBS_MESSAGE_BYTES];

	memcpy(m.slots, slots, count * sizeof(*slots));
	nic_send(e, buf, rcp_verbs_message_encode(&m, buf));
}

void nic_credit(struct evil *e, uint32_t slot)
{
	uint16_t word = (uint16_t)slot;

	nic_credit_words(e, &word, 1);
}

void nic_drop_ring(struct evil *e)
{
	if (e->nic->ring_mr)
		ibv_dereg_mr(e->nic->ring_mr);
	e->nic->ring_mr = NULL;
}

void nic_leave(struct evil *e)
{
	static const uint8_t bye[8] = {VERBS_BYE};

	if (e->link & EVIL_ANY_OOB)
		nic_send(e, bye, sizeof(bye));
	else
		rdma_disconnect(e->nic->id);
}

void nic_drop_qp(struct evil *e)
{
	struct evil_nic *n = e->nic;

	if (n->qp && n->id)
		rdma_destroy_qp(n->id);
	else if (n->qp)
		ibv_destroy_qp(n->qp);
	n->qp = NULL;
	n->left = true;
}

/* ---- the end ---- */

static void connection_free(struct evil *e)
{
	struct evil_nic *n = e->nic;
	struct ibv_mr *const mrs[] = {n->out_mr, n->in_mr, n->ring_mr};

	if (n->id && n->qp)
		rdma_disconnect(n->id);
	nic_drop_qp(e);
	if (n->cq)
		ibv_destroy_cq(n->cq);
	if (n->comp)
		ibv_destroy_comp_channel(n->comp);
	for (size_t i = 0; i < 3; i++) {
		if (mrs[i])
			ibv_dereg_mr(mrs[i]);
	}
	if (n->pd)
		ibv_dealloc_pd(n->pd);
	free(n->out);
	free(n->in);
	free(n->ring);
}

void nic_free(struct evil *e)
{
	struct evil_nic *n = e->nic;

	if (!n)
		return;
	connection_free(e);
	if (n->id)
		rdma_destroy_id(n->id);
	if (n->listener)
		rdma_destroy_id(n->listener);
	while (n->channel && look_events(n)) /* of ids that nobody took */
		n->has_event = false;
	if (n->channel)
		rdma_destroy_event_channel(n->channel);
	if (n->own)
		ibv_close_device(n->own);
	rcp_rdma_close(&n->rdma);
	free(n);
	e->nic = NULL;
}

struct evil_nic *nic_second(struct evil *e, const void *data, size_t len)
{
	struct evil_nic *first = e->nic, *second = calloc(1, sizeof(*second));

	if (!second)
		abort();
	second->receives = RECEIVES;
	second->mine = first->mine;
	second->theirs = first->theirs;
	e->nic = second;
	bool in = nic_call(e, data, len);

	if (!in)
		nic_free(e);
	e->nic = first;
	return in ? second : NULL;
}
