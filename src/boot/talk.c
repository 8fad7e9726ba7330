/*
 * Negotiation, once the control connection stands: what both ends have, which links there could be, and
 * trying them in order until one is up. The initiator decides; the responder does as told. After a lost
 * link the same again, without the way that failed.
 */
#include "boot/run.h"

#include "base/container.h"
#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STAGGER_NS (250 * RCP_MS)
#define RDMA_TRY_MS 3000
#define LAST_WORD_NS (1500 * RCP_MS)
#define RELINK_NS (250 * RCP_MS)
#define RING_WAIT_MS 15000 /* source: for LINK_RING, once a link is settled on */

bool talk_is_rdma(enum rcp_link_kind kind)
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
	struct rcp_run *run = RCP_CONTAINER(job, struct rcp_run, rdma_job);
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
	struct rcp_run *run = RCP_CONTAINER(job, struct rcp_run, rdma_job);

	run->rdma_looking = false;
	run->rdma_looked = true;
	if (run->rdma && rcp_rdma_remarks(run->rdma)[0])
		rcp_log(&run->log, RCP_LOG_INFO, "rdma: %s", rcp_rdma_remarks(run->rdma));
	if (!run->rdma)
		rcp_log(&run->log, RCP_LOG_DEBUG, "rdma: %s", rcp_err_reason(&run->rdma_err));
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

		/* One size for the session, whichever link carries it: so what every port can. */
		run->req.chunk_bytes = rcp_rdma_chunk_bytes(run->rdma, run->req.chunk_bytes);
		for (unsigned i = 0; i < count; i++)
			rcp_rdma_port_encode(&ports, &p[i]);
	}
	struct rcp_msg_caps m = {.features = sealing_features(run),
				 .slots = run->req.slots,
				 .chunk_bytes = run->req.chunk_bytes,
				 .cpus = (uint16_t)(cpus > 0 ? cpus : 1),
				 .streams = (uint16_t)run->req.streams,
				 .ports = rcp_span_of(ports.data, ports.bad ? 0 : ports.len)};

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
	/* A daemon's child knows what its module wants after its HELLO only. */
	run->peer_features |= m->features & RCP_FEATURE_SEAL_ALWAYS;
	if (sealing_agree(run, err))
		return (int)err->code;
	agree(run, m);
	run->peer_ports = calloc(RCP_RDMA_PORTS_MAX, sizeof(*run->peer_ports));
	if (!run->peer_ports)
		return rcp_err_set(err, RCP_E_IO, ENOMEM, "calloc", NULL, NULL);
	return rcp_rdma_ports_decode(m->ports, err, run->peer_ports, RCP_RDMA_PORTS_MAX,
				     &run->peer_port_count);
}

static int list_candidates(struct rcp_run *run, struct rcp_err *err)
{
	struct rcp_negotiate in = {.transports = run->req.transports,
				   .connect = run->req.connect,
				   .tcp = run->ctl == run->tls,
				   .peers = run->peer_ports,
				   .peer_count = run->peer_port_count};

	if (run->rdma)
		in.mine = rcp_rdma_ports(run->rdma, &in.mine_count);
	run->cands = calloc(RCP_CANDIDATES_MAX, sizeof(*run->cands));
	if (!run->cands)
		return rcp_err_set(err, RCP_E_IO, ENOMEM, "calloc", NULL, NULL);
	run->cand_count = rcp_negotiate(&in, run->cands, RCP_CANDIDATES_MAX);
	return 0;
}

static void caps_complete(struct rcp_run *run)
{
	struct rcp_err err = {0};

	/* The peer's CAPS may have come before this end's was known. */
	if (run->agreed_chunk > run->req.chunk_bytes)
		run->agreed_chunk = run->req.chunk_bytes;
	if (run_session_new(run, run->agreed_chunk, &err) || (run->initiator && list_candidates(run, &err))) {
		run_fail(run, &err);
		return;
	}
	run->wait_ns = rcp_now_ns() + TALK_WAIT_MS * RCP_MS;
}

void talk_caps(struct rcp_run *run, const struct rcp_msg_caps *m)
{
	struct rcp_err err = {0};

	if (take_caps(run, m, &err)) {
		run_fail(run, &err);
	} else if (run->caps_said) {
		caps_complete(run);
	}
}

void talk_start(struct rcp_run *run)
{
	rcp_ctl_set_phase(run->ctl, RCP_PHASE_TALK);
	rcp_ctl_set_peer_role(run->ctl, run->req.role == RCP_ROLE_SOURCE ? RCP_ROLE_SINK : RCP_ROLE_SOURCE);
	rcp_ctl_keepalive(run->ctl, RUN_PING_MS, RUN_DEAD_MS);
	talk_rdma_look(run);
	run->wait_ns = rcp_now_ns() + (run_guarded(run) ? TALK_GUARDED_MS : TALK_WAIT_MS) * RCP_MS;
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
	if (rcp_err_is(&run->peer_rdma_err)) {
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
	const char *t = run->transport;

	run->fallback_text[0] = 0;
	if (!t || !strcmp(t, "rdma") || !strcmp(t, "local"))
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

/* What was tried last, or was lost, says why nothing is left. */
static const struct rcp_err *no_way_cause(const struct rcp_run *run)
{
	const struct rcp_err *const causes[] = {&run->tcp_err, &run->pipe_err, &run->link_lost};

	for (size_t i = 0; i < sizeof(causes) / sizeof(causes[0]); i++) {
		if (rcp_err_is(causes[i]))
			return causes[i];
	}
	return &run->fallback;
}

static void no_link(struct rcp_run *run)
{
	struct rcp_err err = {0};
	const char *where;

	if (run->req.transports & ~(1u << RCP_LINK_RDMA_CM | 1u << RCP_LINK_RDMA_OOB)) {
		const struct rcp_err *e = no_way_cause(run);

		rcp_err_set(&err, run->relinks ? RCP_E_LINK : RCP_E_CONNECT, e->sys_errno, e->call, run->host,
			    "no transport is left: %s", rcp_err_is(e) ? rcp_err_reason(e) : "the last one was lost");
		rcp_err_fix(&err, "--transport=auto tries every way; -v tells of each");
	} else {
		const struct rcp_err *e = fallback_cause(run, &where);

		rcp_err_set(&err, run->relinks ? RCP_E_LINK : RCP_E_CONNECT, e->sys_errno, e->call, run->host,
			    "no RDMA connection: %s%s%s%s", where, e->object, e->object[0] ? ": " : "",
			    rcp_err_reason(e));
		rcp_err_fix(&err, "%s", e->fix[0] ? e->fix : "leave --transport=rdma away to fall back to TCP");
	}
	run_fail(run, &err);
}

/* ---- the initiator's race ---- */

static bool any_attempt(const struct rcp_run *run, bool rdma_only)
{
	for (const struct rcp_attempt *a = run->attempts; a; a = a->next) {
		if (a->state < ATTEMPT_USED && (!rdma_only || talk_is_rdma(a->cand.kind)))
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
	/* Tests only: one that wants more than was agreed on. */
	a = attempt_new(run, ++run->next_id, c, run_test_stalls(run, "never, with a large ring") ? RCP_SLOTS_MAX : run->agreed_slots,
			run->agreed_chunk);
	if (!a)
		return;
	a->deadline_ns = now + (talk_is_rdma(c->kind) ? RDMA_TRY_MS : TALK_OTHER_MS) * RCP_MS;
	rcp_log(&run->log, RCP_LOG_DEBUG, "trying %s", c->label);
	say_try(a);
	if (c->kind == RCP_LINK_RDMA_OOB && attempt_connect(a)) {
		err = a->err;
		talk_attempt_failed(a, &err);
	}
}

/* A TCP connection that broke can be made again. An RDMA device that failed is not trusted twice. */
void talk_try_again(struct rcp_run *run, enum rcp_link_kind kind)
{
	unsigned last = run->cand_next;

	if (kind == RCP_LINK_TCP && last && run->cands[last - 1].kind == kind &&
	    run->relinks <= (unsigned)run->options->retries)
		run->cand_next--;
}

/*
 * Is it the link alone that was lost? A peer that is gone, too, says nothing any more: then the control
 * connection's end is what there is to tell.
 */
static bool relink_waits(struct rcp_run *run, uint64_t now)
{
	uint64_t heard, out;
	char text[2048];

	if (!rcp_err_is(&run->relink))
		return false;
	rcp_ctl_count(run->ctl, &heard, &out);
	if (heard == run->relink_heard || now - run->relink_ns < RELINK_NS)
		return true;
	rcp_log(&run->log, RCP_LOG_WARN, "link lost (%s): trying another way",
		rcp_err_format(&run->relink, text, sizeof(text)));
	run->relink = (struct rcp_err){0};
	return false;
}

/* A reject comes at once and says little; the LINK_FAIL that follows says why. */
static bool other_end_spoke(struct rcp_run *run, uint64_t now)
{
	if (!run->no_link_ns)
		run->no_link_ns = now;
	return !run->fallback_id || now - run->no_link_ns > LAST_WORD_NS;
}

static void race(struct rcp_run *run, uint64_t now)
{
	bool rdma_under_way = any_attempt(run, true);

	if (relink_waits(run, now))
		return;
	if (run->cand_next < run->cand_count) {
		enum rcp_link_kind kind = run->cands[run->cand_next].kind;
		bool due = talk_is_rdma(kind) ? !rdma_under_way || now - run->cand_started_ns >= STAGGER_NS
					 : !any_attempt(run, false);

		if (due)
			try_candidate(run, now);
	} else if (!any_attempt(run, false) && other_end_spoke(run, now)) {
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
			    talk_is_rdma(a->cand.kind) ? RDMA_TRY_MS / 1000 : TALK_OTHER_MS / 1000);
		talk_attempt_failed(a, &err);
	}
}

static void waited_too_long(struct rcp_run *run, uint64_t now, const char *what)
{
	struct rcp_err err = {0};

	if (now < run->wait_ns)
		return;
	rcp_err_set(&err, RCP_E_CONNECT, ETIMEDOUT, "", run->host, "%s", what);
	run_fail(run, &err);
}

/* Messages have a deadline each, and all of them together one, too. */
static void boot_too_long(struct rcp_run *run, uint64_t now)
{
	struct rcp_err err = {0};

	if (!run_guarded(run) || now < run->boot_ns)
		return;
	rcp_err_set(&err, RCP_E_CONNECT, ETIMEDOUT, "", run->host, "did not say in time what it wants");
	run_fail(run, &err);
}

void talk_turn(struct rcp_run *run)
{
	uint64_t now = rcp_now_ns();

	if (!run->ctl || !run->linked)
		boot_too_long(run, now);
	if (!run->ctl || run->ending || run_test_stalls(run, "switch"))
		return;
	if (!run->caps_said && run->rdma_looked) {
		say_caps(run);
		if (run->caps_heard)
			caps_complete(run);
	}
	if (!run->caps_heard && !run->ending)
		waited_too_long(run, now, "did not say in time which links it has");
	if (!run->caps_said || !run->caps_heard || run->ending || run_test_stalls(run, "caps"))
		return;
	check_deadlines(run, now);
	if (run->ending)
		return;
	if (!run->used && run->initiator)
		race(run, now);
	else if (!run->used)
		waited_too_long(run, now, "chose no link in time");
	else if (run->sender && run->wait_ns)
		waited_too_long(run, now, "the sink did not tell where its ring is");
}

/* ---- one attempt's fate ---- */

void talk_say_fail(struct rcp_attempt *a, const struct rcp_err *cause)
{
	struct rcp_msg_link_fail m = {.link = a->id};

	RCP_ERR_TO_WIRE(&m, cause);
	rcp_ctl_send(a->run->ctl, RCP_MSG_LINK_FAIL, &m);
}

void talk_note_failed(struct rcp_attempt *a, const struct rcp_err *cause)
{
	struct rcp_run *run = a->run;

	if (a->cand.kind == RCP_LINK_TCP && !rcp_err_is(&run->tcp_err))
		run->tcp_err = *cause;
	if (a->cand.kind == RCP_LINK_PIPE)
		run->pipe_err = *cause;
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
	if (talk_is_rdma(a->cand.kind) && !rcp_err_is(&run->fallback)) {
		run->fallback = err;
		run->fallback_id = a->id;
	}
	talk_note_failed(a, &err);
	talk_say_fail(a, &err);
	attempt_close(a);
}

static void tell_transport(struct rcp_run *run, const struct rcp_link *link)
{
	const char *encrypted = sealing_word(run->used);
	struct rcp_transport_info info = {.transport = link->caps.transport,
					  .fabric = link->caps.fabric,
					  .detail = link->caps.detail,
					  .encrypted = encrypted,
					  .sealed = encrypted && run->used->cand.kind != RCP_LINK_PIPE};

	run->encrypted = encrypted;
	run->sealed = info.sealed;

	run->transport = link->caps.transport;
	run->fabric = link->caps.fabric;
	run->replaced += run->had_link;
	run->had_link = run->linked = true;
	info.fallback_reason = talk_fallback(run);
	rcp_log(&run->log, RCP_LOG_DEBUG, "link %u: %s", run->used->id, info.detail);
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
	if (sealing_start(a, a->params.generation, &err) ||
	    rcp_receiver_attach(run->receiver, a->link, a->params.generation, &err)) {
		run_fail(run, &err);
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
void talk_use(struct rcp_attempt *a)
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
	run->wait_ns = rcp_now_ns() + RING_WAIT_MS * RCP_MS;
	if (run->req.role == RCP_ROLE_SINK)
		say_ring(a);
	else
		talk_ring(run);
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
		talk_use(a);
	} else if (!run->initiator && run->use_id == a->id && !run->used) {
		talk_use(a); /* LINK_USE came before it was up here; not while the session holds a lost link */
	}
}
