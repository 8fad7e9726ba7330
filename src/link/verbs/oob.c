/*
 * Connecting without rdma_cm: QP numbers travel on the control connection, and both ends bring
 * their QP up by hand. For InfiniBand without IPoIB, and RoCE; iWARP can't do it. There is no proof
 * to check: the numbers came over an authenticated connection. Loop's thread.
 */
#include "link/verbs/priv.h"

#include <endian.h>
#include <errno.h>
#include <string.h>
#include <sys/random.h>

#define ACK_TIMEOUT 17 /* as rdma_cm is told, see cm.c */
#define RETRIES	    7
#define RNR_RETRIES 6
#define RNR_TIMER   12 /* 0.64 ms */
#define HOP_LIMIT   64
#define OFFLINE_MS  30000 /* for the peer's numbers to come */
#define GREET_MS    10000 /* and for its hello, or its device's answer to ours */

static int pkey_index(const struct verbs_link *v, struct rcp_err *err, uint16_t *index)
{
	int pkey = v->rdma->options.pkey;

	*index = 0;
	if (pkey < 0)
		return 0;
	int found = ibv_get_pkey_index(v->conn.ctx, v->port->number, htobe16((uint16_t)pkey));

	if (found < 0) {
		rcp_err_set(err, RCP_E_CONNECT, 0, "ibv_get_pkey_index", v->name,
			    "--pkey: the port has no partition key 0x%04x", (unsigned)pkey);
		rcp_err_fix(err, "/sys/class/infiniband/%s/ports/%u/pkeys/ shows those that it has",
			    v->port->device, v->port->number);
		return (int)err->code;
	}
	*index = (uint16_t)found;
	return 0;
}

int rcp_verbs_oob_init(struct verbs_link *v, struct rcp_err *err)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = v->port->number,
		.qp_access_flags = v->role == RCP_ROLE_SINK ? IBV_ACCESS_REMOTE_WRITE : 0,
	};

	if (pkey_index(v, err, &attr.pkey_index) != 0)
		return (int)err->code;
	int ret =
		ibv_modify_qp(v->conn.qp, &attr,
			      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);

	if (ret)
		return rcp_verbs_err_ret(err, RCP_E_CONNECT, ret, "ibv_modify_qp", v->name);
	return 0;
}

static int gid_choose(struct verbs_link *v, enum rcp_gid_type type, struct rcp_err *err)
{
	for (unsigned i = 0; i < v->port->gid_count; i++) {
		if (v->port->gids[i].type == type) {
			v->oob_gid = v->port->gids[i];
			return 0;
		}
	}
	/* InfiniBand goes by LID in its subnet; a device without a GUID has nothing else. */
	if (type == RCP_GID_IB && v->port->lid) {
		v->oob_gid = (struct rcp_rdma_gid){.type = type};
		return 0;
	}
	return rcp_err_set(err, RCP_E_CONNECT, 0, NULL, v->name, "the port has no GID of type %s",
			   type == RCP_GID_IB	     ? "InfiniBand"
			   : type == RCP_GID_ROCE_V1 ? "RoCE v1"
						     : "RoCE v2");
}

static int numbers(struct verbs_link *v, struct rcp_rdma_oob *mine, struct rcp_err *err)
{
	memset(mine, 0, sizeof(*mine));
	if (getrandom(&mine->psn, sizeof(mine->psn), 0) != (ssize_t)sizeof(mine->psn))
		return rcp_verbs_err_errno(err, RCP_E_CONNECT, "getrandom", NULL);
	mine->psn &= 0xffffff;
	mine->qpn = v->conn.qp->qp_num;
	mine->lid = v->port->lid;
	mine->mtu = v->port->mtu;
	mine->gid_type = v->oob_gid.type;
	memcpy(mine->gid, v->oob_gid.gid, sizeof(mine->gid));
	v->oob_mine = *mine;
	return 0;
}

static int make(struct verbs_link *v, enum rcp_gid_type type, struct rcp_rdma_oob *mine,
		struct rcp_err *err)
{
	if (v->port->transport == RCP_RDMA_IWARP) {
		rcp_err_set(err, RCP_E_CONNECT, EOPNOTSUPP, NULL, v->name,
			    "iWARP can't be connected out of band");
		rcp_err_fix(err, "use --connect=cm");
		return (int)err->code;
	}
	struct ibv_context *ctx = v->rdma->devices[v->rdma->device_of[v->port->index]].ctx;

	if (gid_choose(v, type, err) != 0 || rcp_verbs_conn_make(v, ctx, err) != 0)
		return (int)err->code;
	return numbers(v, mine, err);
}

int rcp_rdma_oob_new(struct rcp_rdma *rdma, struct uv_loop_s *loop,
		     const struct rcp_link_params *params, uint16_t local_port,
		     enum rcp_gid_type gid_type, bool peer_imm, struct rcp_err *err,
		     struct rcp_link **out, struct rcp_rdma_oob *mine)
{
	struct verbs_link *v;

	*out = NULL;
	if (rcp_verbs_link_new(rdma, loop, local_port, params, peer_imm, err, &v) != 0)
		return (int)err->code;
	v->oob = true;
	v->deadline_ms = OFFLINE_MS;
	rcp_verbs_link_name(v);
	if (make(v, gid_type, mine, err) != 0) {
		rcp_verbs_link_abandon(v);
		return (int)err->code;
	}
	rcp_verbs_io_timer(v->io, v->deadline_ms);
	*out = &v->link;
	return 0;
}

/* Both ends have a GID, and not of the same subnet. */
static bool other_subnet(const uint8_t mine[16], const uint8_t theirs[16])
{
	static const uint8_t none[16];

	return memcmp(mine, none, 16) != 0 && memcmp(theirs, none, 16) != 0 &&
	       memcmp(mine, theirs, 8) != 0;
}

/* On InfiniBand a GRH is for other subnets; on Ethernet the GID is all the address there is. */
static void path_to(const struct verbs_link *v, const struct rcp_rdma_oob *peer,
		    struct ibv_ah_attr *ah)
{
	const struct rcp_rdma_options *o = &v->rdma->options;
	bool ethernet = v->port->layer == RCP_LAYER_ETHERNET;

	ah->port_num = v->port->number;
	ah->sl = o->sl >= 0 ? (uint8_t)(o->sl & 15) : 0;
	ah->dlid = ethernet ? 0 : peer->lid;
	ah->is_global = ethernet || other_subnet(v->oob_gid.gid, peer->gid);
	if (!ah->is_global)
		return;
	memcpy(ah->grh.dgid.raw, peer->gid, 16);
	ah->grh.sgid_index = (uint8_t)v->oob_gid.index;
	ah->grh.hop_limit = HOP_LIMIT;
	ah->grh.traffic_class = o->tos >= 0 ? (uint8_t)o->tos : 0;
	/* Different connections may take different paths through the fabric. */
	ah->grh.flow_label = (v->oob_mine.qpn ^ peer->qpn) & 0xfffff;
}

static int to_rtr(struct verbs_link *v, const struct rcp_rdma_oob *peer, struct rcp_err *err)
{
	uint8_t mtu = peer->mtu < v->oob_mine.mtu ? peer->mtu : v->oob_mine.mtu;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = mtu,
		.dest_qp_num = peer->qpn,
		.rq_psn = peer->psn,
		.min_rnr_timer = RNR_TIMER,
		.max_dest_rd_atomic = 0,
	};

	path_to(v, peer, &attr.ah_attr);
	int ret = ibv_modify_qp(v->conn.qp, &attr,
				IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
					IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
					IBV_QP_MIN_RNR_TIMER);

	if (ret)
		return rcp_verbs_err_ret(err, RCP_E_CONNECT, ret, "ibv_modify_qp(RTR)", v->name);
	return 0;
}

static int to_rts(struct verbs_link *v, struct rcp_err *err)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.timeout = ACK_TIMEOUT,
		.retry_cnt = RETRIES,
		.rnr_retry = RNR_RETRIES,
		.sq_psn = v->oob_mine.psn,
		.max_rd_atomic = 0,
	};
	int ret = ibv_modify_qp(v->conn.qp, &attr,
				IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);

	if (ret)
		return rcp_verbs_err_ret(err, RCP_E_CONNECT, ret, "ibv_modify_qp(RTS)", v->name);
	return 0;
}

static bool peer_sane(const struct rcp_rdma_oob *peer)
{
	return peer->qpn && peer->qpn <= 0xffffff && peer->psn <= 0xffffff && peer->mtu >= 1 &&
	       peer->mtu <= 5;
}

int rcp_rdma_oob_connect(struct rcp_link *link, const struct rcp_rdma_oob *peer,
			 struct rcp_err *err)
{
	struct verbs_link *v = verbs_link_of(link);

	if (!v->oob || v->state != VERBS_OFFLINE || !peer_sane(peer) ||
	    peer->gid_type != v->oob_gid.type)
		return rcp_err_set(
			err, RCP_E_CONNECT, EPROTO, NULL, v->name,
			"the peer's QP numbers make no sense, or come at the wrong time");
	if (to_rtr(v, peer, err) != 0 || to_rts(v, err) != 0)
		return (int)err->code;
	v->connected = true;
	v->deadline_ms = GREET_MS;
	rcp_verbs_io_timer(v->io, GREET_MS);
	if (!v->initiator) {
		v->state = VERBS_GREET;
		return 0;
	}
	/* Two QPs in RTS prove nothing: the way there may not exist. The hello's completion, which is
	 * the other device's answer, does: queue.c */
	v->state = VERBS_CONNECT;
	return rcp_verbs_hello_send(v, err);
}
