/*
 * Negotiation, once the control connection stands: what both ends have, which links there could be, and
 * trying them in order until one is up. The initiator decides; the responder does as told. After a lost
 * link the same again, without the way that failed.
 */
#include "boot/run.h"

#include "base/clock.h"
#include "base/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STAGGER_NS (250 * RCP_MS)
#define RDMA_TRY_MS 3000
#define OTHER_TRY_MS 6000
#define LINK_WAIT_MS 60000 /* responder: for the initiator to settle on a link */

static bool is_rdma(enum rcp_link_kind kind)
{
	return kind == RCP_LINK_RDMA_CM || kind == RCP_LINK_RDMA_OOB;
}

static bool wants_rdma(const struct rcp_run *run)
{
	return run->req.transports & (1u << RCP_LINK_RDMA_CM | 1u << RCP_LINK_RDMA_OOB);
}

/* ---- this host's RDMA ports ---- */

static void look_work(struct rcp_job *job)
{
	struct rcp_run *run = (struct rcp_run *)((char *)job - offsetof(struct rcp_run, rdma_job));
	const struct rcp_options *o = run->options;
	struct rcp_rdma_options how = {.gid_index = o ? o->gid_index : -1,
				       .device = o ? o->device : NULL,
				       .addr = o ? o->rdma_addr : NULL,
				       .tos = run->req.tos,
				       .sl = run->req.sl,
				       .pkey = run->req.pkey};

	rcp_rdma_open(&how, &run->rdma_err, &run->rdma);
}

static void look_done(struct rcp_job *job)
{
	struct rcp_run *run = (struct rcp_run *)((char *)job - offsetof(struct rcp_run, rdma_job));

	run->rdma_looking = false;
	run->rdma_looked = true;
	if (run->rdma && rcp_rdma_remarks(run->rdma)[0])
		rcp_log(&run->log, RCP_LOG_INFO, "rdma: %s", rcp_rdma_remarks(run->rdma));
	if (!run->rdma)
		rcp_log(&run->log, RCP_LOG_INFO, "rdma: %s", rcp_err_reason(&run->rdma_err));
}

void talk_rdma_look(struct rcp_run *run)
{
	if (run->rdma_looking || run->rdma_looked)
		return;
	if (!wants_rdma(run)) {
		run->rdma_looked = true;
		rcp_err_set(&run->rdma_err, RCP_E_CONNECT, 0, "", NULL, "RDMA was not asked for");
		return;
	}
	run->rdma_looking = true;
	run->rdma_job = (struct rcp_job){.work = look_work, .done = look_done};
	rcp_pool_submit(run->pool, RCP_POOL_START, &run->rdma_job);
}

/* ---- CAPS ---- */

static void listen_rdma(struct rcp_run *run)
{
	struct rcp_rdma_listen_ops ops = attempt_listen_ops;
	struct rcp_err err = {0};

	if (run->initiator || !run->rdma || run->req.connect == RCP_CONNECT_OOB)
		return;
	ops.arg = run;
	if (rcp_rdma_listen(run->rdma, &run->loop, &ops, &err, &run->rdma_listener)) {
		rcp_log(&run->log, RCP_LOG_INFO, "rdma: %s: %s", err.call, rcp_err_reason(&err));
		run->rdma_err = err;
	}
}

static void say_caps(struct rcp_run *run)
{
	struct rcp_wr ports = {.max = RCP_FRAME_MAX / 2};
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	unsigned count = 0;

	listen_rdma(run);
	run->caps_said = true;
	if (run->rdma) {
		const struct rcp_rdma_port *p = rcp_rdma_ports(run->rdma, &count);

		for (unsigned i = 0; i < count; i++)
			rcp_rdma_port_encode(&ports, &p[i]);
	}
	struct rcp_msg_caps m = {.features = RCP_FEATURE_BUNDLES | RCP_FEATURE_RESUME | RCP_FEATURE_OOB,
				 .slots = run->req.slots,
				 .chunk_bytes = run->req.chunk_bytes,
				 .cpus = (uint16_t)(cpus > 0 ? cpus : 1),
				 .streams = (uint16_t)run->req.streams,
				 .ports = rcp_span_of(ports.data, ports.len)};

	if (rcp_err_is(&run->rdma_err)) {
		m.no_rdma = rcp_span_str(rcp_err_reason(&run->rdma_err));
		m.no_rdma_fix = rcp_span_str(run->rdma_err.fix);
	}
	rcp_ctl_send(run->ctl, RCP_MSG_CAPS, &m);
	rcp_wr_free(&ports);
}

static void agree(struct rcp_run *run, const struct rcp_msg_caps *m)
{
	run->agreed_slots = m->slots < run->req.slots ? m->slots : run->req.slots;
	run->agreed_chunk = m->chunk_bytes < run->req.chunk_bytes ? m->chunk_bytes : run->req.chunk_bytes;
	run->peer_streams = m->streams;
	run->peer_cpus = m->cpus;
	if (m->no_rdma.len) {
		char text[320], fix[320];

		rcp_err_set(&run->peer_rdma_err, RCP_E_CONNECT, 0, "", run->host, "%s",
			    rcp_span_copy(m->no_rdma, text, sizeof(text)));
		if (m->no_rdma_fix.len)
			rcp_err_fix(&run->peer_rdma_err, "%s", rcp_span_copy(m->no_rdma_fix, fix, sizeof(fix)));
	}
}

static int take_caps(struct rcp_run *run, const struct rcp_msg_caps *m, struct rcp_err *err)
{
	if (run->caps_heard || !m->slots || m->slots > RCP_SLOTS_MAX ||
	    m->chunk_bytes < RCP_CHUNK_BYTES_MIN || m->chunk_bytes > RCP_CHUNK_BYTES_MAX ||
	    m->chunk_bytes % 4096)
		return rcp_err_set(err, RCP_E_CONNECT, 0, "", run->host,
				   "the peer broke the protocol: limits that can't be");
	run->caps_heard = true;
	agree(run, m);
	run->peer_ports = calloc(RCP_RDMA_PORTS_MAX, sizeof(*run->peer_ports));
	if (!run->peer_ports)
		return rcp_err_set(err, RCP_E_IO, ENOMEM, "calloc", NULL, NULL);
	return rcp_rdma_ports_decode(m->ports, err, run->peer_ports, RCP_RDMA_PORTS_MAX,
				     &run->peer_port_count);
}

static unsigned list_candidates(struct rcp_run *run)
{
	struct rcp_negotiate in = {.transports = run->req.transports,
				   .connect = run->req.connect,
				   .tcp = run->ctl == run->tls,
				   .peers = run->peer_ports,
				   .peer_count = run->peer_port_count};

	if (run->rdma)
		in.mine = rcp_rdma_ports(run->rdma, &in.mine_count);
	run->cands = calloc(RCP_CANDIDATES_MAX, sizeof(*run->cands));
	return run->cands ? rcp_negotiate(&in, run->cands, RCP_CANDIDATES_MAX) : 0;
}

static void caps_complete(struct rcp_run *run)
{
	struct rcp_err err = {0};

	if (run_session_new(run, run->agreed_chunk, &err)) {
		run_fault(run, &err, false);
		run_end(run, &err);
		return;
	}
	run->wait_ns = rcp_now_ns() + LINK_WAIT_MS * RCP_MS;
	if (run->initiator)
		run->cand_count = list_candidates(run);
}

void talk_start(struct rcp_run *run)
{
	rcp_ctl_set_phase(run->ctl, RCP_PHASE_TALK);
	rcp_ctl_keepalive(run->ctl, RUN_PING_MS, RUN_DEAD_MS);
	talk_rdma_look(run);
	run->wait_ns = rcp_now_ns() + LINK_WAIT_MS * RCP_MS;
}

/* ---- why it is not RDMA ---- */

/* The first reason counts most: this host's, the other's, then the first pair that failed. */
static const struct rcp_err *fallback_cause(struct rcp_run *run, const char **where)
{
	*where = "";
	if (!run->rdma && rcp_err_is(&run->rdma_err)) {
		*where = "here: ";
		return &run->rdma_err;
	}
	if (!run->peer_port_count && rcp_err_is(&run->peer_rdma_err)) {
		*where = "there: ";
		return &run->peer_rdma_err;
	}
	if (!rcp_err_is(&run->fallback))
		rcp_err_set(&run->fallback, RCP_E_CONNECT, 0, "", NULL,
			    "no RDMA port here shares a fabric and an address family with one there");
	return &run->fallback;
}

const char *talk_fallback(struct rcp_run *run)
{
	char text[1024];
	const char *where;
	size_t at = 0;
	bool rdma = run->transport && !strcmp(run->transport, "rdma");

	run->fallback_text[0] = 0;
	if (rdma || !run->transport)
		return NULL;
	if (wants_rdma(run)) {
		const struct rcp_err *e = fallback_cause(run, &where);

		at = (size_t)snprintf(run->fallback_text, sizeof(run->fallback_text), "no RDMA: %s%s",
				      where, rcp_err_format(e, text, sizeof(text)));
		if (at >= sizeof(run->fallback_text))
			at = sizeof(run->fallback_text) - 1;
	}
	if (rcp_err_is(&run->tcp_err) && !strcmp(run->transport, "ssh"))
		snprintf(run->fallback_text + at, sizeof(run->fallback_text) - at, "%sno TCP: %s",
			 at ? "; " : "", rcp_err_format(&run->tcp_err, text, sizeof(text)));
	return run->fallback_text[0] ? run->fallback_text : NULL;
}

static void no_link(struct rcp_run *run)
{
	struct rcp_err err = {0};
	const char *where;
	char text[1024];

	if (run->req.transports & ~(1u << RCP_LINK_RDMA_CM | 1u << RCP_LINK_RDMA_OOB)) {
		const struct rcp_err *e = rcp_err_is(&run->tcp_err) ? &run->tcp_err : &run->fallback;

		rcp_err_set(&err, run->relinks ? RCP_E_LINK : RCP_E_CONNECT, e->sys_errno, e->call, run->host,
			    "no transport is left: %s", rcp_err_reason(e));
		rcp_err_fix(&err, "--transport=auto tries every way; -v tells of each");
	} else {
		const struct rcp_err *e = fallback_cause(run, &where);

		rcp_err_set(&err, run->relinks ? RCP_E_LINK : RCP_E_CONNECT, 0, "", run->host,
			    "no RDMA connection: %s%s", where, rcp_err_format(e, text, sizeof(text)));
		rcp_err_fix(&err, "%s", e->fix[0] ? e->fix : "leave --transport=rdma away to fall back to TCP");
	}
	run_fault(run, &err, false);
	run_end(run, &err);
}

/* ---- the initiator's race ---- */

static bool any_attempt(const struct rcp_run *run, bool rdma_only)
{
	for (const struct rcp_attempt *a = run->attempts; a; a = a->next) {
		if (a->state < ATTEMPT_USED && (!rdma_only || is_rdma(a->cand.kind)))
			return true;
	}
	return false;
}

static void say_try(struct rcp_attempt *a)
{
	struct rcp_msg_link_try m = {.link = a->id,
				     .kind = (uint8_t)a->cand.kind,
				     .streams = (uint8_t)a->streams,
				     .initiator_port = a->cand.local_port,
				     .responder_port = a->cand.remote_port,
				     .slots = a->params.slots,
				     .chunk_bytes = a->params.chunk_bytes};

	rcp_ctl_send(a->run->ctl, RCP_MSG_LINK_TRY, &m);
}

static void try_candidate(struct rcp_run *run, uint64_t now)
{
	struct rcp_candidate *c = &run->cands[run->cand_next++];
	struct rcp_attempt *a;
	struct rcp_err err = {0};

	run->cand_started_ns = now;
	a = attempt_new(run, ++run->next_id, c, run->agreed_slots, run->agreed_chunk);
	if (!a)
		return;
	a->deadline_ns = now + (is_rdma(c->kind) ? RDMA_TRY_MS : OTHER_TRY_MS) * RCP_MS;
	rcp_log(&run->log, RCP_LOG_DEBUG, "trying %s", c->label);
	say_try(a);
	if (c->kind == RCP_LINK_RDMA_OOB && attempt_connect(a)) {
		err = a->err;
		talk_attempt_failed(a, &err);
	}
}

static void race(struct rcp_run *run, uint64_t now)
{
	bool rdma_under_way = any_attempt(run, true);

	if (run->cand_next < run->cand_count) {
		enum rcp_link_kind kind = run->cands[run->cand_next].kind;
		bool due = is_rdma(kind) ? !rdma_under_way || now - run->cand_started_ns >= STAGGER_NS
					 : !any_attempt(run, false);

		if (due)
			try_candidate(run, now);
	} else if (!any_attempt(run, false)) {
		no_link(run);
	}
}

static void check_deadlines(struct rcp_run *run, uint64_t now)
{
	for (struct rcp_attempt *a = run->attempts, *next; a; a = next) {
		struct rcp_err err = {0};

		next = a->next;
		if (a->state >= ATTEMPT_USED || now < a->deadline_ns)
			continue;
		rcp_err_set(&err, RCP_E_CONNECT, ETIMEDOUT, "", run->host, "no connection within %d s",
			    is_rdma(a->cand.kind) ? RDMA_TRY_MS / 1000 : OTHER_TRY_MS / 1000);
		talk_attempt_failed(a, &err);
	}
}

void talk_turn(struct rcp_run *run)
{
	uint64_t now = rcp_now_ns();

	if (!run->ctl)
		return;
	if (!run->caps_said && run->rdma_looked) {
		say_caps(run);
		if (run->caps_heard)
			caps_complete(run);
	}
	if (!run->caps_said || !run->caps_heard || run->ending)
		return;
	check_deadlines(run, now);
	if (run->used || run->ending)
		return;
	if (run->initiator) {
		race(run, now);
	} else if (now > run->wait_ns) {
		struct rcp_err err = {0};

		rcp_err_set(&err, RCP_E_CONNECT, ETIMEDOUT, "", run->host, "the initiator chose no link");
		run_end(run, &err);
	}
}

/* ---- one attempt's fate ---- */

static void say_fail(struct rcp_attempt *a, const struct rcp_err *cause)
{
	struct rcp_msg_link_fail m = {.link = a->id};

	RCP_ERR_TO_WIRE(&m, cause);
	rcp_ctl_send(a->run->ctl, RCP_MSG_LINK_FAIL, &m);
}

void talk_attempt_failed(struct rcp_attempt *a, const struct rcp_err *cause)
{
	struct rcp_run *run = a->run;
	struct rcp_err err = *cause;
	char text[2048];

	if (a->state >= ATTEMPT_CLOSING || run->ending)
		return;
	rcp_err_object(&err, a->cand.label);
	rcp_log(&run->log, RCP_LOG_INFO, "%s failed: %s", a->cand.label,
		rcp_err_format(&err, text, sizeof(text)));
	if (is_rdma(a->cand.kind) && !rcp_err_is(&run->fallback))
		run->fallback = err;
	if (a->cand.kind == RCP_LINK_TCP && !rcp_err_is(&run->tcp_err))
		run->tcp_err = err;
	say_fail(a, &err);
	attempt_close(a);
}

static void tell_transport(struct rcp_run *run, const struct rcp_link *link)
{
	struct rcp_transport_info info = {.transport = link->caps.transport,
					  .fabric = link->caps.fabric,
					  .detail = link->caps.detail};

	run->transport = link->caps.transport;
	run->fabric = link->caps.fabric;
	info.fallback_reason = talk_fallback(run);
	rcp_log(&run->log, RCP_LOG_INFO, "transport %s%s%s: %s", info.transport, info.fabric ? " over " : "",
		info.fabric ? info.fabric : "", info.detail);
	if (info.fallback_reason)
		rcp_log(&run->log, RCP_LOG_INFO, "%s", info.fallback_reason);
	if (run->watch.transport && run->initiator)
		run->watch.transport(run->watch.arg, &info);
}

/* The sink tells where its ring is; from then on chunks may come. */
static void say_ring(struct rcp_attempt *a)
{
	struct rcp_run *run = a->run;
	struct rcp_ring_info ring;
	struct rcp_err err = {0};

	a->link->ops->ring_get(a->link, &ring);
	if (rcp_receiver_attach(run->receiver, a->link, a->params.generation, &err)) {
		run_fault(run, &err, false);
		run_end(run, &err);
		return;
	}
	struct rcp_msg_link_ring m = {.link = a->id,
				      .rkey = ring.rkey,
				      .addr = ring.addr,
				      .slots = ring.slots,
				      .slot_bytes = ring.slot_bytes,
				      .chunk_bytes = ring.chunk_bytes,
				      .generation = ring.generation};

	rcp_ctl_send(run->ctl, RCP_MSG_LINK_RING, &m);
}

/* Both ends have settled on this link, and here it is up. */
static void use(struct rcp_attempt *a)
{
	struct rcp_run *run = a->run;

	a->state = ATTEMPT_USED;
	run->used = a;
	rcp_ctl_set_phase(run->ctl, RUN_PHASE_LATE);
	for (struct rcp_attempt *b = run->attempts; b; b = b->next) {
		if (b != a)
			attempt_close(b);
	}
	tell_transport(run, a->link);
	if (run->req.role == RCP_ROLE_SINK)
		say_ring(a);
}

void talk_attempt_ready(struct rcp_attempt *a)
{
	struct rcp_run *run = a->run;

	a->state = ATTEMPT_READY;
	if (run->initiator && !run->used) {
		struct rcp_msg_link_use m = {.link = a->id,
					     .kind = (uint8_t)a->cand.kind,
					     .slots = a->link->caps.slots,
					     .chunk_bytes = a->params.chunk_bytes,
					     .generation = a->params.generation,
					     .why = rcp_span_str(a->cand.label)};

		rcp_ctl_send(run->ctl, RCP_MSG_LINK_USE, &m);
		use(a);
	} else if (!run->initiator && run->use_id == a->id) {
		use(a); /* LINK_USE came before it was up here */
	}
}

/* ---- messages ---- */

static void protocol(struct rcp_run *run, const char *what)
{
	struct rcp_err err = {0};

	rcp_err_set(&err, RCP_E_CONNECT, 0, "", run->host, "the peer broke the protocol: %s", what);
	run_fault(run, &err, false);
	run_end(run, &err);
}

static void on_try(struct rcp_run *run, const struct rcp_msg_link_try *m)
{
	struct rcp_candidate c = {.kind = (enum rcp_link_kind)m->kind,
				  .local_port = m->responder_port,
				  .remote_port = m->initiator_port};
	struct rcp_attempt *a;

	if (attempt_find(run, m->link) || run->attempt_count >= RUN_ATTEMPTS_MAX || !m->slots ||
	    m->slots > RCP_SLOTS_MAX || m->chunk_bytes != run->agreed_chunk || !m->link ||
	    m->streams > RUN_STREAMS_MAX) {
		protocol(run, "a link that can't be");
		return;
	}
	snprintf(c.label, sizeof(c.label), "link %u", m->link);
	a = attempt_new(run, m->link, &c, m->slots, m->chunk_bytes);
	if (!a)
		return;
	a->streams = m->streams;
	a->deadline_ns = rcp_now_ns() + 2 * OTHER_TRY_MS * RCP_MS;
	if (attempt_expect(a)) {
		struct rcp_err err = a->err;

		talk_attempt_failed(a, &err);
	}
}

static void on_use(struct rcp_run *run, const struct rcp_msg_link_use *m)
{
	struct rcp_attempt *a = attempt_find(run, m->link);

	if (!a || a->state > ATTEMPT_READY || run->used) {
		if (a) /* it failed here meanwhile, which LINK_FAIL has said */
			return;
		protocol(run, "use of a link that was not tried");
		return;
	}
	run->use_id = a->id;
	if (a->state == ATTEMPT_READY)
		use(a);
}

static void on_ring(struct rcp_run *run, const struct rcp_msg_link_ring *m)
{
	struct rcp_attempt *a = run->used;
	struct rcp_ring_info ring = {.addr = m->addr,
				     .rkey = m->rkey,
				     .slots = m->slots,
				     .slot_bytes = m->slot_bytes,
				     .chunk_bytes = m->chunk_bytes,
				     .generation = m->generation};
	struct rcp_err err = {0};

	if (!a || a->id != m->link || a->state != ATTEMPT_USED)
		return; /* of a link that was lost */
	if (run->req.role != RCP_ROLE_SOURCE || m->chunk_bytes != run->agreed_chunk ||
	    a->link->ops->ring_set(a->link, &ring, &err)) {
		protocol(run, "a ring that can't be");
		return;
	}
	rcp_sender_attach(run->sender, a->link);
}

static void on_fail(struct rcp_run *run, const struct rcp_msg_link_fail *m)
{
	struct rcp_attempt *a = attempt_find(run, m->link);
	struct rcp_err err = {0};
	char text[2048];

	if (!a || a->state >= ATTEMPT_CLOSING)
		return;
	RCP_ERR_FROM_WIRE(m, RCP_E_CONNECT, &err);
	rcp_log(&run->log, RCP_LOG_INFO, "%s failed at the other end: %s", a->cand.label,
		rcp_err_format(&err, text, sizeof(text)));
	if (is_rdma(a->cand.kind) && !rcp_err_is(&run->fallback))
		run->fallback = err;
	if (a->state == ATTEMPT_USED)
		rcp_link_close(a->link); /* the session then ends its use, and another way is tried */
	else
		attempt_close(a);
}

static void on_go(struct rcp_run *run, uint16_t link)
{
	struct rcp_attempt *a = attempt_find(run, link);

	if (!a || a->state != ATTEMPT_ASKED || a->cand.kind == RCP_LINK_RDMA_OOB)
		return;
	if (attempt_connect(a)) {
		struct rcp_err err = a->err;

		talk_attempt_failed(a, &err);
	}
}

static void on_oob(struct rcp_run *run, const struct rcp_msg_link_oob *m)
{
	struct rcp_attempt *a = attempt_find(run, m->link);

	if (!a || a->cand.kind != RCP_LINK_RDMA_OOB || a->state > ATTEMPT_MAKING)
		return;
	if (attempt_oob(a, m)) {
		struct rcp_err err = a->err;

		talk_attempt_failed(a, &err);
	}
}

static void on_abort(struct rcp_run *run, const struct rcp_msg_abort *m)
{
	struct rcp_err err = {0};

	RCP_ERR_FROM_WIRE(m, m->code, &err);
	rcp_err_object(&err, run->host);
	run->aborted = true; /* no answer to an ABORT */
	if (run->initiator || err.code != RCP_E_INTERRUPTED)
		run_fault(run, &err, false);
	run_end(run, &err);
}

bool talk_message(struct rcp_run *run, const struct rcp_msg *msg)
{
	struct rcp_err err = {0};

	switch ((unsigned)msg->type) {
	case RCP_MSG_CAPS:
		if (take_caps(run, &msg->caps_, &err)) {
			run_fault(run, &err, false);
			run_end(run, &err);
		} else if (run->caps_said) {
			caps_complete(run);
		}
		return true;
	case RCP_MSG_LINK_TRY:
		on_try(run, &msg->link_try_);
		return true;
	case RCP_MSG_LINK_GO:
		on_go(run, msg->link_go_.link);
		return true;
	case RCP_MSG_LINK_OOB:
		on_oob(run, &msg->link_oob_);
		return true;
	case RCP_MSG_LINK_RING:
		on_ring(run, &msg->link_ring_);
		return true;
	case RCP_MSG_LINK_FAIL:
		on_fail(run, &msg->link_fail_);
		return true;
	case RCP_MSG_LINK_USE:
		on_use(run, &msg->link_use_);
		return true;
	case RCP_MSG_ABORT:
		on_abort(run, &msg->abort_);
		return true;
	case RCP_MSG_NOTE:
		if (run->initiator) {
			char text[1024], safe[2048];

			rcp_span_copy(msg->note_.text, text, sizeof(text));
			rcp_log(&run->log, msg->note_.level ? RCP_LOG_INFO : RCP_LOG_WARN, "%s: %s", run->host,
				rcp_name_escape(safe, sizeof(safe), text, strlen(text)));
		}
		return true;
	default:
		return false;
	}
}

/* ---- the active control connection ---- */

static void ctl_message(void *arg, const struct rcp_msg *msg)
{
	struct rcp_run *run = arg;
	struct rcp_err err = {0};
	int rc;

	if (run->ending || talk_message(run, msg))
		return;
	if (msg->type == RCP_MSG_CHUNK || msg->type == RCP_MSG_CREDIT)
		rc = run->used && run->used->link && run->used->cand.kind == RCP_LINK_PIPE
			     ? rcp_pipe_link_message(run->used->link, msg, &err)
			     : 0;
	else if (run->sender)
		rc = rcp_sender_message(run->sender, msg, &err);
	else if (run->receiver)
		rc = rcp_receiver_message(run->receiver, msg, &err);
	else
		rc = rcp_err_set(&err, RCP_E_CONNECT, 0, "", run->host,
				 "the peer broke the protocol: a message too early");
	if (rc) {
		rcp_err_object(&err, run->host);
		run_fault(run, &err, false);
		run_end(run, &err);
	}
}

static void ctl_wake(void *arg)
{
	struct rcp_run *run = arg;

	for (struct rcp_attempt *a = run->attempts; a; a = a->next) {
		if (a->link && a->cand.kind == RCP_LINK_PIPE && !a->link_down)
			rcp_pipe_link_run(a->link);
	}
}

static void lose_pipe_links(struct rcp_run *run, const struct rcp_err *cause)
{
	for (struct rcp_attempt *a = run->attempts; a; a = a->next) {
		if (a->link && a->cand.kind == RCP_LINK_PIPE && !a->link_down)
			rcp_pipe_link_lost(a->link, cause);
	}
}

static void ctl_down(void *arg, const struct rcp_err *cause)
{
	struct rcp_run *run = arg;
	struct rcp_err err = *cause;

	if (!rcp_err_is(&err))
		rcp_err_set(&err, RCP_E_LINK, 0, "", run->host, "the peer closed the connection");
	lose_pipe_links(run, &err);
	if (run->ctl == run->tls)
		rcp_ctl_free(&run->tls);
	else
		rcp_ctl_free(&run->pipe);
	run->ctl = NULL;
	if (run->used && err.code == RCP_E_CONNECT && !err.text[0])
		err.code = RCP_E_LINK;
	rcp_err_object(&err, run->host);
	run_lost(run, &err);
}

const struct rcp_ctl_ops talk_ctl_ops = {
	.message = ctl_message,
	.chunk_place = attempt_chunk_place,
	.wake = ctl_wake,
	.down = ctl_down,
};

/* ---- the session's end, or its link's ---- */

static void relink(struct rcp_run *run, const struct rcp_err *cause)
{
	char text[2048];

	rcp_log(&run->log, RCP_LOG_WARN, "link lost (%s): trying another way",
		rcp_err_format(cause, text, sizeof(text)));
	run->relinks++;
	if (run->used && is_rdma(run->used->cand.kind) && !rcp_err_is(&run->fallback))
		run->fallback = *cause;
	if (run->used)
		attempt_close(run->used);
	run->used = NULL;
	run->use_id = 0;
	run->wait_ns = rcp_now_ns() + LINK_WAIT_MS * RCP_MS;
}

void talk_session_over(struct rcp_run *run, const struct rcp_err *cause)
{
	struct rcp_err none = {0};

	run_stats(run);
	if (run->ending) {
		run->session_over = true;
		return;
	}
	if (run->stats.verdict_known) {
		run->session_over = true;
		run_end(run, &none);
		return;
	}
	/* OK without a verdict is a link that was closed for the other end's reason. */
	if (cause->code == RCP_E_LINK || !rcp_err_is(cause)) {
		relink(run, cause);
		return;
	}
	run->session_over = true;
	run_fault(run, cause, false);
	run_end(run, cause);
}
