/*
 * The software verbs themselves: what hardware refuses is refused, with the status that hardware
 * gives; what breaks the interface's rules is told.
 */
#include "fake.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define BUF  (2u << 20)
#define RECV 1u /* wr_id */
#define SEND 2u

enum { ROCE, IB, IWARP }; /* NICs in main */

/* One end: everything that a QP needs. */
struct end {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *buf;
};
struct two {
	struct end a, b;
};

/* What a test wants otherwise than usual. */
struct wish {
	int nic, mr_access, qp_access, cqe;
	uint32_t sends, inline_bytes;
	uint8_t rnr_retry;
	uint16_t pkey_index[2], lid_of_b;
	bool no_rights; /* on QPs */
};
static const struct wish usual = {.mr_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
				  .qp_access = IBV_ACCESS_REMOTE_WRITE,
				  .cqe = 64,
				  .sends = 8,
				  .inline_bytes = 16,
				  .rnr_retry = 2};

static char breach[256];

static void on_breach(const char *text)
{
	snprintf(breach, sizeof(breach), "%s", text);
}

static void end_open(struct end *e, const struct wish *w)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC,
					.cap = {.max_send_wr = w->sends,
						.max_recv_wr = 8,
						.max_send_sge = 2,
						.max_recv_sge = 1,
						.max_inline_data = w->inline_bytes}};

	assert_non_null(list);
	e->ctx = ibv_open_device(list[w->nic]);
	ibv_free_device_list(list);
	e->pd = ibv_alloc_pd(e->ctx);
	e->cq = ibv_create_cq(e->ctx, w->cqe, NULL, NULL, 0);
	e->buf = calloc(1, BUF);
	e->mr = ibv_reg_mr(e->pd, e->buf, BUF, w->mr_access);
	init.send_cq = init.recv_cq = e->cq;
	e->qp = ibv_create_qp(e->pd, &init);
	assert_non_null(e->mr);
	assert_non_null(e->qp);
}

static void end_close(struct end *e)
{
	assert_int_equal(ibv_destroy_qp(e->qp), 0);
	assert_int_equal(ibv_dereg_mr(e->mr), 0);
	assert_int_equal(ibv_destroy_cq(e->cq), 0);
	assert_int_equal(ibv_dealloc_pd(e->pd), 0);
	assert_int_equal(ibv_close_device(e->ctx), 0);
	free(e->buf);
}

static void to_init(struct end *e, const struct wish *w, int which)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
				   .pkey_index = w->pkey_index[which],
				   .port_num = 1,
				   .qp_access_flags = w->no_rights ? 0 : (unsigned)w->qp_access};

	assert_int_equal(
		ibv_modify_qp(e->qp, &attr,
			      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
		0);
}

#define RTR_MASK                                                                                   \
	(IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |            \
	 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define RTS_MASK                                                                                   \
	(IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |     \
	 IBV_QP_MAX_QP_RD_ATOMIC)

static void to_rts(struct end *e, const struct end *peer, const struct wish *w, uint16_t lid)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
				   .path_mtu = IBV_MTU_1024,
				   .dest_qp_num = peer->qp->qp_num,
				   .min_rnr_timer = 1};
	struct ibv_port_attr port;

	assert_int_equal(fk_ctx_of(e->ctx)->v.query_port(e->ctx, 1, &port, sizeof(port)), 0);
	attr.ah_attr.port_num = 1;
	attr.ah_attr.dlid = lid ? lid : port.lid;
	if (w->nic == ROCE) {
		struct ibv_gid_entry g;

		attr.ah_attr.is_global = 1;
		attr.ah_attr.grh.sgid_index = 2;
		assert_int_equal(ibv_query_gid_ex(e->ctx, 1, 2, &g, 0), 0);
		attr.ah_attr.grh.dgid = g.gid;
	}
	assert_int_equal(ibv_modify_qp(e->qp, &attr, RTR_MASK), 0);
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 1, .rnr_retry = w->rnr_retry};
	assert_int_equal(ibv_modify_qp(e->qp, &attr, RTS_MASK), 0);
}

static struct two open_two(const struct wish *w)
{
	struct two t = {0};

	breach[0] = 0;
	end_open(&t.a, w);
	end_open(&t.b, w);
	to_init(&t.a, w, 0);
	to_init(&t.b, w, 1);
	to_rts(&t.a, &t.b, w, w->lid_of_b);
	to_rts(&t.b, &t.a, w, 0);
	return t;
}

static void close_two(struct two *t)
{
	end_close(&t->a);
	end_close(&t->b);
	assert_string_equal(breach, "");
}

static int post(struct end *e, enum ibv_wr_opcode op, const struct end *to, struct ibv_sge sge,
		uint64_t offset, unsigned flags)
{
	struct ibv_send_wr wr = {.wr_id = SEND,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = op,
				 .send_flags = flags,
				 .imm_data = 0x11223344,
				 .wr.rdma = {.remote_addr = (uintptr_t)to->buf + offset,
					     .rkey = to->mr->rkey}},
			   *bad = NULL;
	int err = ibv_post_send(e->qp, &wr, &bad);

	if (err)
		assert_ptr_equal(bad, &wr);
	return err;
}

static struct ibv_sge piece(const struct end *e, uint32_t offset, uint32_t length)
{
	return (struct ibv_sge){
		.addr = (uintptr_t)e->buf + offset, .length = length, .lkey = e->mr->lkey};
}

static int post_recv(struct end *e, struct ibv_sge sge)
{
	struct ibv_recv_wr wr = {.wr_id = RECV, .sg_list = &sge, .num_sge = 1}, *bad;

	return ibv_post_recv(e->qp, &wr, &bad);
}

/* The next completion, waited for. */
static struct ibv_wc next(struct end *e)
{
	struct ibv_wc wc;
	uint64_t end = fk_now() + 10000000000u;

	while (ibv_poll_cq(e->cq, 1, &wc) == 0) {
		if (fk_now() > end)
			fail_msg("no completion");
		poll(NULL, 0, 1);
	}
	return wc;
}

static void assert_next(struct end *e, uint64_t wr_id, enum ibv_wc_status status)
{
	struct ibv_wc wc = next(e);

	assert_int_equal(wc.wr_id, wr_id);
	assert_int_equal(wc.status, status);
}

static void bytes_arrive(void **state)
{
	static const int nics[] = {ROCE, IB};

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct wish w = usual;

		w.nic = nics[i];
		struct two t = open_two(&w);

		memset(t.a.buf, 0x5a, BUF);
		assert_int_equal(post_recv(&t.b, piece(&t.b, 0, 64)), 0);
		assert_int_equal(post(&t.a, IBV_WR_RDMA_WRITE_WITH_IMM, &t.b,
				      piece(&t.a, 0, BUF - 4096), 4096, IBV_SEND_SIGNALED),
				 0);
		struct ibv_wc wc = next(&t.b);

		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
		assert_int_equal(wc.byte_len, BUF - 4096);
		assert_int_equal(wc.imm_data, 0x11223344);
		assert_memory_equal(t.b.buf + 4096, t.a.buf, BUF - 4096);
		assert_int_equal(t.b.buf[4095], 0);
		assert_next(&t.a, SEND, IBV_WC_SUCCESS);
		close_two(&t);
	}
}

/* A write that must be refused: nothing is written, the peer's QP ends, too. */
static void refused(struct two *t, const struct end *to, uint64_t offset, uint32_t length)
{
	memset(t->a.buf, 0x5a, 4096);
	assert_int_equal(post_recv(&t->b, piece(&t->b, 0, 64)), 0);
	assert_int_equal(post(&t->a, IBV_WR_RDMA_WRITE, to, piece(&t->a, 0, length), offset,
			      IBV_SEND_SIGNALED),
			 0);
	assert_next(&t->a, SEND, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(t->a.qp->state, IBV_QPS_ERR);
	assert_next(&t->b, RECV, IBV_WC_WR_FLUSH_ERR);
	for (uint32_t i = 0; i < BUF; i++)
		assert_int_equal(t->b.buf[i], 0);
}

static void wrong_rkey(void **state)
{
	struct two t = open_two(&usual);
	struct ibv_mr wrong = *t.b.mr;
	struct end to = {.buf = t.b.buf, .mr = &wrong};

	(void)state;
	wrong.rkey++;
	refused(&t, &to, 0, 64);
	close_two(&t);
	/* An lkey is no rkey. */
	t = open_two(&usual);
	wrong = *t.b.mr;
	wrong.rkey = wrong.lkey;
	to.buf = t.b.buf;
	refused(&t, &to, 0, 64);
	close_two(&t);
}

static void stale_rkey(void **state)
{
	struct two t = open_two(&usual);
	struct ibv_mr *mr = ibv_reg_mr(t.b.pd, t.b.buf, 4096, usual.mr_access), copy = *mr;
	struct end to = {.buf = t.b.buf, .mr = &copy};

	(void)state;
	assert_int_equal(ibv_dereg_mr(mr), 0);
	refused(&t, &to, 0, 64);
	close_two(&t);
}

static void out_of_bounds(void **state)
{
	static const struct {
		int64_t offset;
		uint32_t length;
	} list[] = {{BUF - 63, 64}, {BUF, 1}, {-1, 64}, {INT64_MAX / 2, 64}};

	(void)state;
	for (size_t i = 0; i < 4; i++) {
		struct two t = open_two(&usual);

		refused(&t, &t.b, (uint64_t)list[i].offset, list[i].length);
		close_two(&t);
	}
}

static void no_right(void **state)
{
	struct wish w = usual;

	(void)state;
	w.mr_access = IBV_ACCESS_LOCAL_WRITE;
	struct two t = open_two(&w);

	refused(&t, &t.b, 0, 64);
	close_two(&t);
	w = usual;
	w.no_rights = true;
	t = open_two(&w);
	refused(&t, &t.b, 0, 64);
	close_two(&t);
	/* Another protection domain's region. */
	t = open_two(&usual);
	struct ibv_pd *pd = ibv_alloc_pd(t.b.ctx);
	struct ibv_mr *mr = ibv_reg_mr(pd, t.b.buf, 4096, usual.mr_access);
	struct end to = {.buf = t.b.buf, .mr = mr};

	refused(&t, &to, 0, 64);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	close_two(&t);
}

static void wrong_lkey(void **state)
{
	struct two t = open_two(&usual);
	struct ibv_sge sge = piece(&t.a, 0, 64);

	(void)state;
	sge.lkey ^= 0x100;
	assert_int_equal(post(&t.a, IBV_WR_SEND, &t.b, sge, 0, 0), 0);
	assert_next(&t.a, SEND, IBV_WC_LOC_PROT_ERR);
	close_two(&t);
	t = open_two(&usual);
	assert_int_equal(post(&t.a, IBV_WR_SEND, &t.b, piece(&t.a, BUF - 8, 64), 0, 0), 0);
	assert_next(&t.a, SEND, IBV_WC_LOC_PROT_ERR);
	close_two(&t);
}

static void receive_too_small(void **state)
{
	struct two t = open_two(&usual);

	(void)state;
	assert_int_equal(post_recv(&t.b, piece(&t.b, 0, 63)), 0);
	assert_int_equal(post(&t.a, IBV_WR_SEND, &t.b, piece(&t.a, 0, 64), 0, 0), 0);
	assert_next(&t.a, SEND, IBV_WC_REM_INV_REQ_ERR);
	assert_next(&t.b, RECV, IBV_WC_LOC_LEN_ERR);
	close_two(&t);
}

static void receive_not_writable(void **state)
{
	struct two t = open_two(&usual);
	struct ibv_mr *mr = ibv_reg_mr(t.b.pd, t.b.buf, 4096, 0);
	struct ibv_sge sge = {.addr = (uintptr_t)t.b.buf, .length = 64, .lkey = mr->lkey};

	(void)state;
	assert_int_equal(post_recv(&t.b, sge), 0);
	assert_int_equal(post(&t.a, IBV_WR_SEND, &t.b, piece(&t.a, 0, 64), 0, 0), 0);
	assert_next(&t.a, SEND, IBV_WC_REM_OP_ERR);
	assert_next(&t.b, RECV, IBV_WC_LOC_PROT_ERR);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	close_two(&t);
}

static void no_receive(void **state)
{
	struct wish w = usual;
	struct two t = open_two(&w);

	(void)state;
	assert_int_equal(post(&t.a, IBV_WR_SEND, &t.b, piece(&t.a, 0, 64), 0, 0), 0);
	assert_next(&t.a, SEND, IBV_WC_RNR_RETRY_EXC_ERR);
	close_two(&t);
	/* 7 is for ever: it gets through when there is one. */
	w.rnr_retry = 7;
	t = open_two(&w);
	for (int i = 0; i < 3; i++)
		assert_int_equal(
			post(&t.a, IBV_WR_SEND, &t.b, piece(&t.a, 0, 64), 0, IBV_SEND_SIGNALED), 0);
	poll(NULL, 0, 20);
	struct ibv_wc wc;

	assert_int_equal(ibv_poll_cq(t.a.cq, 1, &wc), 0);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(post_recv(&t.b, piece(&t.b, 0, 64)), 0);
		assert_next(&t.a, SEND, IBV_WC_SUCCESS);
		assert_next(&t.b, RECV, IBV_WC_SUCCESS);
	}
	close_two(&t);
}

/* By places in the send queue: only a polled completion gives them back, and those before it. */
static void reclaim(void **state)
{
	struct two t = open_two(&usual);

	(void)state;
	for (int i = 0; i < 7; i++)
		assert_int_equal(post(&t.a, IBV_WR_RDMA_WRITE, &t.b, piece(&t.a, 0, 64), 0, 0), 0);
	assert_int_equal(
		post(&t.a, IBV_WR_RDMA_WRITE, &t.b, piece(&t.a, 0, 64), 0, IBV_SEND_SIGNALED), 0);
	poll(NULL, 0, 50);
	assert_int_equal(post(&t.a, IBV_WR_RDMA_WRITE, &t.b, piece(&t.a, 0, 64), 0, 0), ENOMEM);
	assert_next(&t.a, SEND, IBV_WC_SUCCESS);
	for (int i = 0; i < 8; i++)
		assert_int_equal(post(&t.a, IBV_WR_RDMA_WRITE, &t.b, piece(&t.a, 0, 64), 0, 0), 0);
	assert_int_equal(post(&t.a, IBV_WR_RDMA_WRITE, &t.b, piece(&t.a, 0, 64), 0, 0), ENOMEM);
	close_two(&t);
}

static void cq_overrun(void **state)
{
	struct wish w = usual;
	struct ibv_async_event event;
	struct ibv_wc wc;

	(void)state;
	w.cqe = 3;
	struct two t = open_two(&w);

	for (int i = 0; i < 4; i++)
		assert_int_equal(post(&t.a, IBV_WR_RDMA_WRITE, &t.b, piece(&t.a, 0, 64), 0,
				      IBV_SEND_SIGNALED),
				 0);
	struct pollfd wait = {.fd = t.a.ctx->async_fd, .events = POLLIN};

	assert_int_equal(poll(&wait, 1, 5000), 1);
	assert_int_equal(ibv_get_async_event(t.a.ctx, &event), 0);
	assert_int_equal(event.event_type, IBV_EVENT_CQ_ERR);
	assert_ptr_equal(event.element.cq, t.a.cq);
	ibv_ack_async_event(&event);
	assert_true(ibv_poll_cq(t.a.cq, 1, &wc) < 0);
	close_two(&t);
}

static void posted_too_much(void **state)
{
	struct two t = open_two(&usual);
	struct ibv_sge three[3] = {piece(&t.a, 0, 1), piece(&t.a, 1, 1), piece(&t.a, 2, 1)};
	struct ibv_send_wr wr = {.sg_list = three, .num_sge = 3, .opcode = IBV_WR_SEND}, *bad;

	(void)state;
	assert_int_equal(ibv_post_send(t.a.qp, &wr, &bad), EINVAL);
	assert_int_equal(post(&t.a, IBV_WR_SEND, &t.b, piece(&t.a, 0, 17), 0, IBV_SEND_INLINE),
			 EINVAL);
	wr.num_sge = 1;
	wr.opcode = IBV_WR_RDMA_READ;
	assert_int_equal(ibv_post_send(t.a.qp, &wr, &bad), EINVAL);
	for (int i = 0; i < 8; i++)
		assert_int_equal(post_recv(&t.a, piece(&t.a, 0, 64)), 0);
	assert_int_equal(post_recv(&t.a, piece(&t.a, 0, 64)), ENOMEM);
	close_two(&t);
}

static void states(void **state)
{
	struct end e = {0};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR};

	(void)state;
	breach[0] = 0;
	end_open(&e, &usual);
	assert_int_equal(post_recv(&e, piece(&e, 0, 64)), EINVAL);
	assert_int_equal(post(&e, IBV_WR_SEND, &e, piece(&e, 0, 64), 0, 0), EINVAL);
	assert_int_equal(ibv_modify_qp(e.qp, &attr, RTR_MASK), EINVAL);
	to_init(&e, &usual, 0);
	assert_int_equal(post_recv(&e, piece(&e, 0, 64)), 0);
	assert_int_equal(post(&e, IBV_WR_SEND, &e, piece(&e, 0, 64), 0, 0), EINVAL);
	/* One thing is missing; RoCE wants a GRH; and a step can't be left out. */
	assert_int_equal(ibv_modify_qp(e.qp, &attr, RTR_MASK & ~IBV_QP_AV), EINVAL);
	attr.path_mtu = IBV_MTU_1024;
	attr.ah_attr.port_num = 1;
	assert_int_equal(ibv_modify_qp(e.qp, &attr, RTR_MASK), EINVAL);
	attr.qp_state = IBV_QPS_RTS;
	assert_int_equal(ibv_modify_qp(e.qp, &attr, RTS_MASK), EINVAL);
	assert_int_equal(e.qp->state, IBV_QPS_INIT);
	attr.qp_state = IBV_QPS_ERR;
	assert_int_equal(ibv_modify_qp(e.qp, &attr, IBV_QP_STATE), 0);
	assert_next(&e, RECV, IBV_WC_WR_FLUSH_ERR);
	/* In ERR both are taken, and flushed. */
	assert_int_equal(post(&e, IBV_WR_SEND, &e, piece(&e, 0, 64), 0, 0), 0);
	assert_next(&e, SEND, IBV_WC_WR_FLUSH_ERR);
	attr.qp_state = IBV_QPS_RESET;
	assert_int_equal(ibv_modify_qp(e.qp, &attr, IBV_QP_STATE), 0);
	end_close(&e);
	assert_string_equal(breach, "");
}

static void nobody_there(void **state)
{
	struct wish w = usual;

	(void)state;
	/* A LID of a host that isn't there, and a member of another partition. */
	w.nic = IB;
	w.lid_of_b = 2 << 8 | 200;
	struct two t = open_two(&w);

	assert_int_equal(post(&t.a, IBV_WR_SEND, &t.b, piece(&t.a, 0, 64), 0, 0), 0);
	assert_next(&t.a, SEND, IBV_WC_RETRY_EXC_ERR);
	close_two(&t);
	w.lid_of_b = 0;
	w.pkey_index[1] = 1;
	t = open_two(&w);
	assert_int_equal(post_recv(&t.b, piece(&t.b, 0, 64)), 0);
	assert_int_equal(post(&t.a, IBV_WR_SEND, &t.b, piece(&t.a, 0, 64), 0, 0), 0);
	assert_next(&t.a, SEND, IBV_WC_RETRY_EXC_ERR);
	close_two(&t);
}

static void things_in_use(void **state)
{
	struct two t = open_two(&usual);

	(void)state;
	assert_int_equal(post_recv(&t.b, piece(&t.b, 0, 64)), 0);
	assert_int_equal(ibv_dealloc_pd(t.b.pd), EBUSY);
	assert_non_null(strstr(breach, "ibv_dealloc_pd: 2 objects"));
	assert_int_equal(ibv_destroy_cq(t.b.cq), EBUSY);
	assert_non_null(strstr(breach, "ibv_destroy_cq"));
	struct ibv_mr *mr = ibv_reg_mr(t.b.pd, t.b.buf, 64, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_sge sge = {.addr = (uintptr_t)t.b.buf, .length = 64, .lkey = mr->lkey};

	assert_int_equal(post_recv(&t.b, sge), 0);
	breach[0] = 0;
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_string_equal(breach, "ibv_dereg_mr: 1 posted requests use it");
	breach[0] = 0;
	close_two(&t);
}

static void registering(void **state)
{
	struct end e = {0};

	(void)state;
	breach[0] = 0;
	end_open(&e, &usual);
	errno = 0;
	assert_null(ibv_reg_mr(e.pd, (void *)(uintptr_t)4096, 4096, 0));
	assert_int_equal(errno, EFAULT);
	assert_null(ibv_reg_mr(e.pd, e.buf, 4096, IBV_ACCESS_REMOTE_WRITE));
	assert_int_equal(errno, EINVAL);
	end_close(&e);
}

static void iwarp_says_no(void **state)
{
	struct end e = {0};
	struct wish w = usual;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};

	(void)state;
	breach[0] = 0;
	w.nic = IWARP;
	end_open(&e, &w);
	/* No state but by its connection manager; and errors with the other sign. */
	assert_int_equal(ibv_modify_qp(e.qp, &attr, IBV_QP_STATE | IBV_QP_PORT), EINVAL);
	assert_int_equal(post(&e, IBV_WR_RDMA_WRITE_WITH_IMM, &e, piece(&e, 0, 64), 0, 0), -EINVAL);
	end_close(&e);
}

/* Told in a process of its own, since it ends that. */
static int status_of(const char *self, const char *what)
{
	int status = -1;
	pid_t pid = fork();

	if (pid == 0) {
		execl(self, self, what, (char *)NULL);
		_exit(1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static const char *self;

static void at_exit(void **state)
{
	int status = status_of(self, "leave");

	(void)state;
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 99);
	status = status_of(self, "break");
	assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) != 0);
}

/* The two that are run by at_exit: what they leave or break is told on standard error. */
static int child(const char *what)
{
	struct end e = {0};

	if (!freopen("/dev/null", "w", stderr))
		return 1;
	end_open(&e, &usual);
	if (!strcmp(what, "break"))
		ibv_dealloc_pd(e.pd);
	return 0;
}

/* Not a test: how fast it is. */
static int speed(void)
{
	struct two t = open_two(&usual);
	unsigned sent = 0, done = 0, count = 4096;
	uint64_t start = fk_now();
	struct ibv_wc wc;

	memset(t.a.buf, 1, BUF);
	while (done < count) {
		while (sent < count && sent - done < 8 &&
		       post(&t.a, IBV_WR_RDMA_WRITE, &t.b, piece(&t.a, 0, 1 << 20), 0,
			    IBV_SEND_SIGNALED) == 0)
			sent++;
		if (ibv_poll_cq(t.a.cq, 1, &wc) != 1)
			poll(NULL, 0, 0);
		else if (wc.status != IBV_WC_SUCCESS)
			return 1;
		else
			done++;
	}
	printf("%.2f GB/s\n", (double)count * (1 << 20) / (double)(fk_now() - start));
	close_two(&t);
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_arrive),
		cmocka_unit_test(wrong_rkey),
		cmocka_unit_test(stale_rkey),
		cmocka_unit_test(out_of_bounds),
		cmocka_unit_test(no_right),
		cmocka_unit_test(wrong_lkey),
		cmocka_unit_test(receive_too_small),
		cmocka_unit_test(receive_not_writable),
		cmocka_unit_test(no_receive),
		cmocka_unit_test(reclaim),
		cmocka_unit_test(cq_overrun),
		cmocka_unit_test(posted_too_much),
		cmocka_unit_test(states),
		cmocka_unit_test(nobody_there),
		cmocka_unit_test(things_in_use),
		cmocka_unit_test(registering),
		cmocka_unit_test(iwarp_says_no),
		cmocka_unit_test(at_exit),
	};

	self = argv[0];
	setenv("RCP_FAKE_NICS", "roce2; ib net=2 pkeys=ffff/8001; iwarp net=3", 1);
	if (argc > 1 && strcmp(argv[1], "speed") != 0)
		return child(argv[1]);
	fk_breach_hook = on_breach;
	if (argc > 1)
		return speed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
