/*
 * What a connection is made of: protection domain, ring, registered memory for small messages, CQ,
 * QP. Sizes are derived in layout.c and clamped by what the device says. One PD a link, and nothing
 * but the ring may be written from outside. Loop's thread.
 */
#include "link/verbs/priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RING_BYTES_MIN (UINT64_C(4) << 20)  /* a ring isn't halved below this */
#define RING_BYTES_MAX UINT64_C(0xffffffff) /* devices know larger regions only by half */
#define RNR_TIMER      12		    /* 0.64 ms; rdma_cm leaves 0, which is 655 ms */

static int depth_make(struct verbs_link *v, struct rcp_err *err)
{
	struct verbs_conn *c = &v->conn;
	struct ibv_device_attr attr;
	int ret = ibv_query_device(c->ctx, &attr);

	if (ret)
		return rcp_verbs_err_ret(err, RCP_E_CONNECT, ret, "ibv_query_device", v->name);
	struct verbs_limits limits = {
		.qp_wr = attr.max_qp_wr > 0 ? (uint32_t)attr.max_qp_wr : 0,
		.cqe = attr.max_cqe > 0 ? (uint32_t)attr.max_cqe : 0,
	};
	uint32_t chunk = rcp_verbs_chunk_bytes(v->link.caps.chunk_bytes, v->port->max_msg_bytes);
	uint64_t fit = RING_BYTES_MAX / ((uint64_t)chunk + RCP_SLOT_HEAD);
	uint32_t slots = v->slots_wanted < RCP_SLOTS_MAX ? v->slots_wanted : RCP_SLOTS_MAX;

	if (slots > fit)
		slots = (uint32_t)fit;
	/* A header and a body are two elements; where a request takes one, a chunk is two writes and a message. */
	c->max_sge = attr.max_sge < 2 ? 1 : 2;
	v->source.imm = v->source.imm && c->max_sge > 1;
	/* A refused WRITE_WITH_IMM becomes a pair later: room for it from the start. */
	if (!chunk || !rcp_verbs_depth(v->role, slots, c->max_sge > 1 ? 2 : 3, &limits, &c->depth))
		return rcp_err_set(
			err, RCP_E_CONNECT, 0, NULL, v->name,
			"the device's queues (%u requests, %u completions) or messages (%u "
			"bytes) are too small",
			limits.qp_wr, limits.cqe, v->port->max_msg_bytes);
	v->link.caps.chunk_bytes = chunk;
	return 0;
}

static int ring_try(struct verbs_link *v, uint32_t slots, struct rcp_err *err)
{
	struct verbs_conn *c = &v->conn;

	if (rcp_ring_map(slots, v->link.caps.chunk_bytes, err, &c->ring) != 0)
		return (int)err->code;
	c->ring_mr = ibv_reg_mr(c->pd, c->ring.base, c->ring.bytes,
				IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (c->ring_mr)
		return 0;
	rcp_verbs_err_errno(err, RCP_E_CONNECT, "ibv_reg_mr", v->name);
	rcp_ring_unmap(&c->ring);
	return (int)err->code;
}

/* The ring that memory and its limits allow: halved until it fits. */
static int ring_make(struct verbs_link *v, struct rcp_err *err)
{
	struct verbs_depth *d = &v->conn.depth;
	uint64_t slot_bytes = (uint64_t)v->link.caps.chunk_bytes + RCP_SLOT_HEAD;

	for (uint32_t slots = d->slots;; slots /= 2) {
		struct rcp_err e = {0};

		if (ring_try(v, slots, &e) == 0) {
			d->cqe -= d->slots - slots;
			d->recv_wr -= d->slots - slots;
			d->slots = slots;
			break;
		}
		if (e.sys_errno != ENOMEM || slots < 2 || slots / 2 * slot_bytes < RING_BYTES_MIN) {
			*err = e;
			return (int)e.code;
		}
	}
	if (d->slots < v->slots_wanted)
		v->conn.ring_wanted = v->slots_wanted;
	return 0;
}

static int memory_make(struct verbs_link *v, struct rcp_err *err)
{
	struct verbs_conn *c = &v->conn;
	size_t recvs = (size_t)c->depth.recv_wr * VERBS_MESSAGE_BYTES;
	size_t smalls = (size_t)c->depth.small * VERBS_MESSAGE_BYTES;
	size_t heads = v->role == RCP_ROLE_SOURCE ? (size_t)c->depth.slots * VERBS_HEAD_BYTES : 0;

	c->memory_bytes = (recvs + smalls + heads + 4095) & ~(size_t)4095;
	c->memory = aligned_alloc(4096, c->memory_bytes);
	if (!c->memory)
		return rcp_err_set(err, RCP_E_IO, ENOMEM, "aligned_alloc", NULL, NULL);
	memset(c->memory, 0, c->memory_bytes);
	c->recvs = c->memory;
	c->smalls = c->recvs + recvs;
	c->heads = c->smalls + smalls;
	c->memory_mr = ibv_reg_mr(c->pd, c->memory, c->memory_bytes, IBV_ACCESS_LOCAL_WRITE);
	if (!c->memory_mr)
		return rcp_verbs_err_errno(err, RCP_E_CONNECT, "ibv_reg_mr", v->name);
	v->smalls_free = (UINT32_C(1) << c->depth.small) - 1;
	return 0;
}

static int cq_make(struct verbs_link *v, struct rcp_err *err)
{
	struct verbs_conn *c = &v->conn;

	c->channel = ibv_create_comp_channel(c->ctx);
	if (!c->channel)
		return rcp_verbs_err_errno(err, RCP_E_CONNECT, "ibv_create_comp_channel", v->name);
	c->cq = ibv_create_cq(c->ctx, (int)c->depth.cqe, v, c->channel, 0);
	if (!c->cq)
		return rcp_verbs_err_errno(err, RCP_E_CONNECT, "ibv_create_cq", v->name);
	int ret = ibv_req_notify_cq(c->cq, 0);

	if (ret)
		return rcp_verbs_err_ret(err, RCP_E_CONNECT, ret, "ibv_req_notify_cq", v->name);
	return rcp_verbs_io_watch(v->io, VERBS_FD_QUEUE, c->channel->fd, err);
}

static bool qp_try(struct verbs_link *v, uint32_t max_inline)
{
	struct verbs_conn *c = &v->conn;
	struct ibv_qp_init_attr init = {
		.qp_context = v,
		.send_cq = c->cq,
		.recv_cq = c->cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = c->depth.send_wr,
			.max_recv_wr = c->depth.recv_wr,
			.max_send_sge = c->max_sge,
			.max_recv_sge = 1,
			.max_inline_data = max_inline},
	};

	if (c->id) {
		if (rdma_create_qp(c->id, c->pd, &init) != 0)
			return false;
		c->qp = c->id->qp;
	} else {
		c->qp = ibv_create_qp(c->pd, &init);
		if (!c->qp)
			return false;
	}
	c->max_inline = init.cap.max_inline_data;
	return true;
}

static int qp_make(struct verbs_link *v, struct rcp_err *err)
{
	const char *call = v->conn.id ? "rdma_create_qp" : "ibv_create_qp";

	/* Inline saves the device a fetch; where it has none, the buffer is registered anyway. */
	if (qp_try(v, VERBS_CHUNK_MESSAGE_BYTES))
		return 0;
	if (errno == EINVAL && qp_try(v, 0))
		return 0;
	return rcp_verbs_err_errno(err, RCP_E_CONNECT, call, v->name);
}

static int recvs_post(struct verbs_link *v, struct rcp_err *err)
{
	for (uint32_t i = 0; i < v->conn.depth.recv_wr; i++) {
		if (rcp_verbs_recv_post(v, i, err) != 0)
			return (int)err->code;
	}
	return 0;
}

int rcp_verbs_conn_make(struct verbs_link *v, struct ibv_context *ctx, struct rcp_err *err)
{
	struct verbs_conn *c = &v->conn;
	bool sink = v->role == RCP_ROLE_SINK;

	c->ctx = ctx;
	c->pd = ibv_alloc_pd(ctx);
	if (!c->pd)
		return rcp_verbs_err_errno(err, RCP_E_CONNECT, "ibv_alloc_pd", v->name);
	if (depth_make(v, err) != 0 || (sink && ring_make(v, err) != 0) ||
	    (sink ? rcp_verbs_sink_new(v, err) : rcp_verbs_source_new(v, err)) != 0 ||
	    rcp_verbs_async_join(v, err) != 0 || memory_make(v, err) != 0 || cq_make(v, err) != 0 ||
	    qp_make(v, err) != 0)
		return (int)err->code;
	v->link.caps.slots = c->depth.slots;
	/* librdmacm's QP is in INIT already, which is what posting a receive needs. */
	return c->id ? recvs_post(v, err) : rcp_verbs_oob_init(v, err) || recvs_post(v, err);
}

void rcp_verbs_conn_stop(struct verbs_link *v)
{
	rcp_verbs_dial_leave(&v->conn);
	rcp_verbs_conn_quit(&v->conn);
}

void rcp_verbs_conn_quit(struct verbs_conn *c)
{
	if (c->qp && c->id)
		rdma_destroy_qp(c->id);
	else if (c->qp)
		ibv_destroy_qp(c->qp);
	c->qp = NULL;
	if (c->cq) {
		if (c->unacked)
			ibv_ack_cq_events(c->cq, c->unacked);
		ibv_destroy_cq(c->cq);
		c->cq = NULL;
	}
	if (c->channel)
		ibv_destroy_comp_channel(c->channel);
	c->channel = NULL;
	if (c->ring_mr)
		ibv_dereg_mr(c->ring_mr);
	c->ring_mr = NULL;
}

/* Workers may read the ring and hold registrations until here. */
void rcp_verbs_conn_free(struct verbs_link *v)
{
	rcp_verbs_conn_drop(&v->conn);
}

void rcp_verbs_conn_drop(struct verbs_conn *c)
{
	if (c->memory_mr)
		ibv_dereg_mr(c->memory_mr);
	free(c->memory);
	if (c->ring.base)
		rcp_ring_unmap(&c->ring);
	if (c->pd)
		ibv_dealloc_pd(c->pd);
	if (c->id)
		rdma_destroy_id(c->id);
	if (c->cm_channel)
		rdma_destroy_event_channel(c->cm_channel);
}

static const char *fabric_of(const struct verbs_link *v, const struct ibv_qp_attr *attr)
{
	struct ibv_gid_entry e;

	if (v->port->layer == RCP_LAYER_INFINIBAND)
		return "infiniband";
	if (v->port->transport == RCP_RDMA_IWARP)
		return "iwarp";
	if (ibv_query_gid_ex(v->conn.ctx, v->port->number, attr->ah_attr.grh.sgid_index, &e, 0) ==
	    0)
		return e.gid_type == IBV_GID_TYPE_ROCE_V2 ? "roce-v2" : "roce-v1";
	return v->port->gid_count && v->port->gids[0].type == RCP_GID_ROCE_V1 ? "roce-v1"
									      : "roce-v2";
}

void rcp_verbs_conn_detail(struct verbs_link *v)
{
	struct rcp_link_caps *caps = &v->link.caps;
	char mtu[24] = "", slots[48];

	if (v->conn.path_mtu)
		snprintf(mtu, sizeof(mtu), " mtu %u", 128u << v->conn.path_mtu);
	if (v->conn.ring_wanted)
		snprintf(slots, sizeof(slots), "%u slots of %u for want of memory", caps->slots,
			 v->conn.ring_wanted);
	else
		snprintf(slots, sizeof(slots), "%u slots", caps->slots);
	snprintf(caps->detail, sizeof(caps->detail), "%.84s %s%s %s", v->name,
		 v->role == RCP_ROLE_SINK ? "ring"
		 : v->source.imm	  ? "imm"
					  : "pair",
		 mtu, slots);
}

void rcp_verbs_conn_settle(struct verbs_link *v)
{
	struct ibv_qp_attr attr = {.min_rnr_timer = RNR_TIMER};
	struct ibv_qp_init_attr init;

	if (v->port->transport == RCP_RDMA_IB) {
		/* A device that refuses keeps its own timer; credits see to it that it isn't used.
		 */
		if (!v->oob)
			ibv_modify_qp(v->conn.qp, &attr, IBV_QP_MIN_RNR_TIMER);
		memset(&attr, 0, sizeof(attr));
		if (ibv_query_qp(v->conn.qp, &attr, IBV_QP_PATH_MTU | IBV_QP_AV, &init) == 0)
			v->conn.path_mtu = (unsigned)attr.path_mtu;
	}
	v->link.caps.fabric = fabric_of(v, &attr);
	rcp_verbs_conn_detail(v);
}
