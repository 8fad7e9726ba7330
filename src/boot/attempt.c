/* One try at one link, at either end: making it, proving it, closing it. */
#include "boot/run.h"

#include "base/container.h"
#include "base/clock.h"
#include "link/seal.h"
#include "link/stream.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- can the source's memory be registered? Asked before the link is settled on ---- */

static void probe_work(struct rcp_job *job)
{
	struct rcp_attempt *a = RCP_CONTAINER(job, struct rcp_attempt, probe);
	size_t len = a->params.chunk_bytes;
	struct rcp_mem *mem = NULL;
	void *buf = NULL;

	if (posix_memalign(&buf, 4096, len)) {
		rcp_err_set(&a->err, RCP_E_IO, ENOMEM, "posix_memalign", NULL, NULL);
		return;
	}
	memset(buf, 0, len);
	if (!a->link->ops->reg(a->link, buf, len, false, &a->err, &mem))
		a->link->ops->unreg(a->link, mem);
	free(buf);
}

static void probe_done(struct rcp_job *job)
{
	struct rcp_attempt *a = RCP_CONTAINER(job, struct rcp_attempt, probe);
	struct rcp_err err = a->err;

	a->probing = false;
	if (a->state != ATTEMPT_PROBING)
		return;
	if (rcp_err_is(&err))
		talk_attempt_failed(a, &err);
	else
		talk_attempt_ready(a);
}

/* ---- link events, handed on to the session once the link is in use ---- */

static void on_up(void *arg)
{
	struct rcp_attempt *a = arg;

	if (a->state >= ATTEMPT_PROBING)
		return;
	if (a->run->req.role != RCP_ROLE_SOURCE || !a->link->caps.needs_mem) {
		talk_attempt_ready(a);
		return;
	}
	a->state = ATTEMPT_PROBING;
	a->probing = true;
	a->probe = (struct rcp_job){.work = probe_work, .done = probe_done};
	rcp_pool_submit(a->run->pool, RCP_POOL_START, &a->probe);
}

static void on_sent(void *arg, struct rcp_post *post, bool ok)
{
	struct rcp_attempt *a = arg;

	rcp_sender_events.sent(a->run->sender, post, ok);
}

static void on_room(void *arg)
{
	struct rcp_attempt *a = arg;

	if (a->run->used == a && a->run->sender)
		rcp_sender_events.room(a->run->sender);
}

static void on_chunk(void *arg, uint32_t slot, const uint8_t *header, const uint8_t *payload,
		     uint32_t length)
{
	struct rcp_attempt *a = arg;

	if (a->run->used == a && a->run->receiver)
		rcp_receiver_events.chunk(a->run->receiver, slot, header, payload, length);
}

static void on_down(void *arg, const struct rcp_err *cause)
{
	struct rcp_attempt *a = arg;
	struct rcp_run *run = a->run;

	a->link_down = true;
	if (run->used == a) {
		struct rcp_err err = *cause;

		sealing_blame(a, &err);
		if (run->sender)
			rcp_sender_events.down(run->sender, &err);
		if (run->receiver)
			rcp_receiver_events.down(run->receiver, &err);
	} else if (a->state < ATTEMPT_USED) {
		struct rcp_err err = *cause;

		if (!rcp_err_is(&err))
			rcp_err_set(&err, RCP_E_LINK, 0, "", NULL, "the peer closed it");
		talk_attempt_failed(a, &err);
	} else if (!run->initiator && rcp_err_is(cause) && a->state == ATTEMPT_CLOSING) {
		/* The initiator gave up at a bare reject; this is the reason for it. */
		talk_say_fail(a, cause);
	}
}

static const struct rcp_link_events events = {
	.up = on_up,
	.sent = on_sent,
	.room = on_room,
	.chunk = on_chunk,
	.down = on_down,
};

/* ---- making ---- */

static unsigned choose_streams(const struct rcp_run *run)
{
	unsigned mine = run->req.streams, theirs = run->peer_streams;
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	unsigned few = run->peer_cpus && run->peer_cpus < (unsigned)cpus ? run->peer_cpus : (unsigned)cpus;
	unsigned n = mine ? mine : theirs ? theirs : few > 2 ? 4 : 1;

	return n > RUN_STREAMS_MAX ? RUN_STREAMS_MAX : n ? n : 1;
}

struct rcp_attempt *attempt_new(struct rcp_run *run, uint16_t id, const struct rcp_candidate *cand,
				uint32_t slots, uint32_t chunk_bytes)
{
	struct rcp_attempt *a = calloc(1, sizeof(*a));
	struct rcp_err err = {0};

	if (!a) {
		rcp_err_set(&err, RCP_E_IO, ENOMEM, "calloc", NULL, NULL);
		run_fail(run, &err);
		return NULL;
	}
	a->run = run;
	a->id = id;
	a->cand = *cand;
	a->streams = choose_streams(run);
	a->params = (struct rcp_link_params){.role = run->req.role,
					     .initiator = run->initiator,
					     .id = id,
					     .slots = slots,
					     .chunk_bytes = chunk_bytes,
					     .generation = id,
					     .events = &events,
					     .arg = a};
	for (unsigned i = 0; i < RUN_STREAMS_MAX; i++)
		a->fds[i] = -1;
	a->next = run->attempts;
	run->attempts = a;
	run->attempt_count++;
	return a;
}

struct rcp_attempt *attempt_find(struct rcp_run *run, uint16_t id)
{
	for (struct rcp_attempt *a = run->attempts; a; a = a->next) {
		if (a->id == id)
			return a;
	}
	return NULL;
}

/* ---- TCP ---- */

static void on_dialled(void *arg, const int *fds, const struct rcp_err *cause)
{
	struct rcp_attempt *a = arg;

	rcp_dial_free(&a->dial);
	if (!fds) {
		talk_attempt_failed(a, cause);
		return;
	}
	if (rcp_stream_new(&a->run->loop, &a->params, fds, a->streams, &a->err, &a->link)) {
		struct rcp_err err = a->err;

		talk_attempt_failed(a, &err);
	}
}

static int dial(struct rcp_attempt *a)
{
	struct rcp_run *run = a->run;
	struct rcp_dial_params p = {.to = run->peer_addr,
				    .streams = a->streams,
				    .link = a->id,
				    .key = run->secret,
				    .sock = {.tos = run->req.tos, .timeout_ms = RUN_DEAD_MS}};

	memcpy(p.session, run->session, sizeof(p.session));
	return rcp_dial_new(&run->loop, &p, on_dialled, a, &a->err, &a->dial);
}

/* Which attempt waits for this stream? */
static struct rcp_attempt *stream_wanted(struct rcp_run *run, const struct rcp_preamble *p)
{
	struct rcp_attempt *a = attempt_find(run, p->link);

	if (!a || a->cand.kind != RCP_LINK_TCP || a->state != ATTEMPT_MAKING ||
	    p->stream >= a->streams || a->fds[p->stream] >= 0)
		return NULL;
	return a;
}

bool attempt_tcp_check(void *arg, const struct rcp_preamble *p, uint8_t answer[RCP_PREAMBLE_ANSWER])
{
	struct rcp_run *run = arg;

	return stream_wanted(run, p) && rcp_preamble_check(p, run->session, run->secret, answer);
}

void attempt_tcp_stream(struct rcp_run *run, int fd, const struct rcp_preamble *p)
{
	struct rcp_attempt *a = stream_wanted(run, p);
	int fds[RUN_STREAMS_MAX];

	if (!a) {
		close(fd);
		return;
	}
	a->fds[p->stream] = fd;
	for (unsigned i = 0; i < a->streams; i++) {
		if (a->fds[i] < 0)
			return;
		fds[i] = a->fds[i];
	}
	for (unsigned i = 0; i < a->streams; i++)
		a->fds[i] = -1; /* the link's from here on */
	if (rcp_stream_new(&run->loop, &a->params, fds, a->streams, &a->err, &a->link)) {
		struct rcp_err err = a->err;

		talk_attempt_failed(a, &err);
	}
}

/* ---- RDMA ---- */

static int make_proof(struct rcp_run *run, uint16_t id, struct rcp_rdma_proof *p, struct rcp_err *err)
{
	uint8_t data[2] = {(uint8_t)(id >> 8), (uint8_t)id};
	uint8_t *i = run->initiator ? p->mine : p->theirs, *r = run->initiator ? p->theirs : p->mine;

	memcpy(p->session, run->session, sizeof(p->session));
	if (rcp_secret_hmac(run->secret, "rdma initiator", data, sizeof(data), i, err))
		return (int)err->code;
	return rcp_secret_hmac(run->secret, "rdma responder", data, sizeof(data), r, err);
}

static const struct rcp_rdma_port *peer_port(const struct rcp_run *run, uint16_t index)
{
	for (unsigned i = 0; i < run->peer_port_count; i++) {
		if (run->peer_ports[i].index == index)
			return &run->peer_ports[i];
	}
	return NULL;
}

static int connect_cm(struct rcp_attempt *a)
{
	struct rcp_run *run = a->run;
	const struct rcp_rdma_port *p = peer_port(run, a->cand.remote_port);
	struct rcp_rdma_connect how = {.local_port = a->cand.local_port,
				       .local = a->cand.local,
				       .remote = a->cand.remote,
				       .deadline_ms = 2900};

	if (!p)
		return rcp_err_set(&a->err, RCP_E_CONNECT, ENODEV, "", run->host, "no such RDMA port");
	how.peer_imm = p->imm;
	how.peer_max_msg_bytes = p->max_msg_bytes;

	if (make_proof(run, a->id, &how.proof, &a->err))
		return (int)a->err.code;
	return rcp_rdma_connect(run->rdma, &run->loop, &a->params, &how, &a->err, &a->link);
}

static const struct rcp_link_params *expect_cm(void *arg, uint16_t id, struct rcp_rdma_proof *proof,
					       bool *peer_imm)
{
	struct rcp_run *run = arg;
	struct rcp_attempt *a = attempt_find(run, id);
	const struct rcp_rdma_port *p = a ? peer_port(run, a->cand.remote_port) : NULL;
	struct rcp_err err = {0};

	if (!a || a->cand.kind != RCP_LINK_RDMA_CM || a->state != ATTEMPT_MAKING || a->link ||
	    make_proof(run, id, proof, &err))
		return NULL;
	*peer_imm = p && p->imm;
	return &a->params;
}

static void accepted_cm(void *arg, uint16_t id, struct rcp_link *link)
{
	struct rcp_attempt *a = attempt_find(arg, id);

	if (a)
		a->link = link;
}

const struct rcp_rdma_listen_ops attempt_listen_ops = {.expect = expect_cm, .accepted = accepted_cm};

static int make_oob(struct rcp_attempt *a)
{
	struct rcp_run *run = a->run;
	const struct rcp_rdma_port *p = peer_port(run, a->cand.remote_port);
	struct rcp_rdma_oob mine;

	if (!p || !run->rdma)
		return rcp_err_set(&a->err, RCP_E_CONNECT, ENODEV, "", run->host, "no such RDMA port");
	if (rcp_rdma_oob_new(run->rdma, &run->loop, &a->params, a->cand.local_port, a->cand.gid_type,
			     p->imm, &a->err, &a->link, &mine))
		return (int)a->err.code;
	struct rcp_msg_link_oob m = {.link = a->id,
				     .qpn = mine.qpn,
				     .psn = mine.psn,
				     .lid = mine.lid,
				     .mtu = mine.mtu,
				     .gid_type = (uint8_t)mine.gid_type};

	memcpy(m.gid.b, mine.gid, sizeof(m.gid.b));
	rcp_ctl_send(run->ctl, RCP_MSG_LINK_OOB, &m);
	return 0;
}

int attempt_oob(struct rcp_attempt *a, const struct rcp_msg_link_oob *m)
{
	struct rcp_rdma_oob peer = {.qpn = m->qpn,
				    .psn = m->psn,
				    .lid = m->lid,
				    .mtu = m->mtu,
				    .gid_type = (enum rcp_gid_type)m->gid_type};

	memcpy(peer.gid, m->gid.b, sizeof(peer.gid));
	/* The responder makes its end when it knows what GID type to use. */
	a->cand.gid_type = peer.gid_type;
	if (!a->link && make_oob(a))
		return (int)a->err.code;
	a->state = ATTEMPT_MAKING;
	return rcp_rdma_oob_connect(a->link, &peer, &a->err);
}

/* ---- the pipe ---- */

/* The link may outlive the control connection by a little, so it knows the run instead. */

static int pipe_send_chunk(void *arg, const uint8_t *head, size_t head_len, const void *body,
			   size_t body_len, void (*done)(void *done_arg, bool ok), void *done_arg)
{
	struct rcp_run *run = arg;

	return rcp_ctl_send_chunk(run->ctl, head, head_len, body, body_len, done, done_arg);
}

static void pipe_send(void *arg, enum rcp_msg_type type, const void *msg)
{
	struct rcp_run *run = arg;

	rcp_ctl_send(run->ctl, type, msg);
}

/* Without a control connection the run's next turn does it. */
static void pipe_wake(void *arg)
{
	struct rcp_run *run = arg;

	rcp_ctl_wake(run->ctl);
}

void attempt_pipes_run(struct rcp_run *run)
{
	for (struct rcp_attempt *a = run->attempts; a; a = a->next) {
		if (a->link && a->cand.kind == RCP_LINK_PIPE && !a->link_down)
			rcp_pipe_link_run(a->link);
	}
}

void attempt_pipes_lost(struct rcp_run *run, const struct rcp_err *cause)
{
	for (struct rcp_attempt *a = run->attempts; a; a = a->next) {
		if (a->link && a->cand.kind == RCP_LINK_PIPE && !a->link_down)
			rcp_pipe_link_lost(a->link, cause);
	}
}

static int make_pipe(struct rcp_attempt *a)
{
	struct rcp_pipe_out out = {
		.arg = a->run, .send_chunk = pipe_send_chunk, .send = pipe_send, .wake = pipe_wake};

	rcp_ctl_set_chunk_bytes(a->run->ctl, a->params.chunk_bytes);
	if (rcp_pipe_link_new(&out, &a->params, &a->err, &a->link))
		return (int)a->err.code;
	/* The last way of all, where TCP carried the control connection but no data streams. */
	if (a->run->ctl == a->run->tls || run_has_daemon(a->run))
		a->link->caps.transport = "tcp";
	return 0;
}

uint8_t *attempt_chunk_place(void *arg, uint32_t slot, size_t *room)
{
	struct rcp_run *run = arg;

	if (!run->used || !run->used->link || run->used->cand.kind != RCP_LINK_PIPE)
		return NULL;
	return rcp_pipe_link_slot(run->used->link, slot, room);
}

/* ---- either end's part ---- */

int attempt_connect(struct rcp_attempt *a)
{
	a->state = ATTEMPT_MAKING;
	switch (a->cand.kind) {
	case RCP_LINK_RDMA_CM:
		return connect_cm(a);
	case RCP_LINK_RDMA_OOB:
		return make_oob(a);
	case RCP_LINK_TCP:
		return dial(a);
	case RCP_LINK_PIPE:
		return make_pipe(a);
	case RCP_LINK_NONE:
	case RCP_LINK_LOOP:
		break;
	}
	return rcp_err_set(&a->err, RCP_E_CONNECT, 0, "", NULL, "no such kind of link");
}

static int unwanted(struct rcp_attempt *a, const char *why)
{
	return rcp_err_set(&a->err, RCP_E_CONNECT, 0, "", a->run->host, "%s", why);
}

/* Links that are tried side by side each have a ring. */
static bool rings_too_large(const struct rcp_run *run)
{
	uint64_t bytes = 0;

	for (const struct rcp_attempt *a = run->attempts; a; a = a->next) {
		if (a->state < ATTEMPT_OVER)
			bytes += (uint64_t)a->params.slots * a->params.chunk_bytes;
	}
	return run_guarded(run) && bytes > UINT64_C(2) * RUN_RING_MOST;
}

int attempt_expect(struct rcp_attempt *a)
{
	struct rcp_run *run = a->run;
	struct rcp_msg_link_go go = {.link = a->id};

	if (!(run->req.transports & 1u << a->cand.kind)) /* one that there is: on_try saw to it */
		return unwanted(a, "a kind of link that was not asked for");
	if (talk_is_rdma(a->cand.kind) && !run->rdma)
		return unwanted(a, rcp_err_reason(&run->rdma_err));
	if (a->cand.kind == RCP_LINK_TCP && !run->listen)
		return unwanted(a, "no TCP port is open here");
	if (rings_too_large(run))
		return unwanted(a, "more memory than is given to one connection here");
	a->state = ATTEMPT_MAKING;
	if (a->cand.kind == RCP_LINK_RDMA_OOB)
		return 0; /* LINK_OOB follows */
	if (a->cand.kind == RCP_LINK_PIPE && make_pipe(a))
		return (int)a->err.code;
	rcp_ctl_send(run->ctl, RCP_MSG_LINK_GO, &go);
	return 0;
}

/* ---- closing ---- */

void attempt_close(struct rcp_attempt *a)
{
	if (a->state >= ATTEMPT_CLOSING)
		return;
	a->state = ATTEMPT_CLOSING;
	rcp_dial_free(&a->dial);
	for (unsigned i = 0; i < RUN_STREAMS_MAX; i++) {
		if (a->fds[i] >= 0)
			close(a->fds[i]);
		a->fds[i] = -1;
	}
	if (a->link && !a->link_down)
		rcp_link_close(a->link);
}

/* The session lets go of a lost link with `over`; only then is it closed and freed here. */
bool attempt_reap(struct rcp_run *run)
{
	for (struct rcp_attempt **p = &run->attempts; *p;) {
		struct rcp_attempt *a = *p;

		if (a->state != ATTEMPT_CLOSING || a->probing || (a->link && !a->link_down)) {
			p = &a->next;
			continue;
		}
		*p = a->next;
		if (run->used == a)
			run->used = NULL;
		if (a->link)
			rcp_seal_free(&a->link->seal);
		rcp_link_free(&a->link);
		free(a);
	}
	return run->attempts == NULL;
}
