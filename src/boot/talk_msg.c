/* Negotiation's messages, the control connection that brings them, and the end of a session or its link. */
#include "boot/run.h"

#include "base/clock.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>

#define NOTES_MOST 1000u

/* ---- messages ---- */

static void protocol(struct rcp_run *run, const char *what)
{
	struct rcp_err err = {0};

	rcp_err_set(&err, RCP_E_CONNECT, 0, "", run->host, "the peer broke the protocol: %s", what);
	run_fail(run, &err);
}

static void on_try(struct rcp_run *run, const struct rcp_msg_link_try *m)
{
	struct rcp_candidate c = {.kind = (enum rcp_link_kind)m->kind,
				  .local_port = m->responder_port,
				  .remote_port = m->initiator_port};
	struct rcp_attempt *a;

	if (run->initiator || m->link <= run->next_id || run->attempt_count >= RUN_ATTEMPTS_MAX ||
	    !run->caps_heard || !m->slots || m->slots > run->agreed_slots || m->chunk_bytes != run->agreed_chunk ||
	    m->streams > RUN_STREAMS_MAX || m->kind < RCP_LINK_RDMA_CM || m->kind > RCP_LINK_PIPE) {
		protocol(run, "a link that can't be");
		return;
	}
	run->next_id = m->link;
	run->wait_ns = rcp_now_ns() + TALK_WAIT_MS * RCP_MS;
	if (run->used && run->used->state == ATTEMPT_USED && !run->used->link_down)
		rcp_link_close(run->used->link); /* lost at the other end, which is not seen here yet */
	snprintf(c.label, sizeof(c.label), "link %u", m->link);
	a = attempt_new(run, m->link, &c, m->slots, m->chunk_bytes);
	if (!a)
		return;
	a->streams = m->streams;
	a->deadline_ns = rcp_now_ns() + 2 * TALK_OTHER_MS * RCP_MS;
	if (attempt_expect(a)) {
		struct rcp_err err = a->err;

		talk_attempt_failed(a, &err);
	}
}

static void on_use(struct rcp_run *run, const struct rcp_msg_link_use *m)
{
	struct rcp_attempt *a = attempt_find(run, m->link);

	if (run->initiator || !m->link || m->link > run->next_id) {
		protocol(run, "use of a link that was not tried");
		return;
	}
	if (!a || a->state > ATTEMPT_READY)
		return; /* it failed here meanwhile, which LINK_FAIL has said */
	run->use_id = a->id;
	if (a->state == ATTEMPT_READY && !run->used)
		talk_use(a);
}

/* Source: the link is up and settled on, and the sink's ring is known: the copy can start. */
void talk_ring(struct rcp_run *run)
{
	const struct rcp_msg_link_ring *m = &run->ring;
	struct rcp_attempt *a = run->used;
	struct rcp_ring_info ring = {.addr = m->addr,
				     .rkey = m->rkey,
				     .slots = m->slots,
				     .slot_bytes = m->slot_bytes,
				     .chunk_bytes = m->chunk_bytes,
				     .generation = m->generation};
	struct rcp_err err = {0};

	if (!a || a->id != m->link || a->state != ATTEMPT_USED || !run->sender)
		return;
	run->wait_ns = 0;
	if (m->chunk_bytes != run->agreed_chunk || m->slots > run->agreed_slots) {
		protocol(run, "a ring that can't be");
		return;
	}
	if (a->link->ops->ring_set(a->link, &ring, &err) || sealing_start(a, m->generation, &err)) {
		run_fail(run, &err);
		return;
	}
	rcp_sender_attach(run->sender, a->link, m->generation);
	run->ring = (struct rcp_msg_link_ring){0};
}

static void on_ring(struct rcp_run *run, const struct rcp_msg_link_ring *m)
{
	if (run->req.role != RCP_ROLE_SOURCE || !m->link) {
		protocol(run, "a ring of no link, or from the source");
		return;
	}
	if (run->ring.link == m->link) { /* one waits for its link to come up */
		protocol(run, "a ring that is told twice");
		return;
	}
	run->ring = *m;
	talk_ring(run);
}

static void on_fail(struct rcp_run *run, const struct rcp_msg_link_fail *m)
{
	struct rcp_attempt *a = attempt_find(run, m->link);
	struct rcp_err err = {0};
	char text[2048];

	RCP_ERR_FROM_WIRE(m, RCP_E_CONNECT, &err);
	/* It may have failed here first, with less to say than the end that caused it; or this end
	 * is the cause, and all that the other one knows is that it was left. */
	if (m->link == run->fallback_id) {
		if (err.sys_errno != ECONNRESET)
			run->fallback = err;
		run->fallback_id = 0;
	}
	if (m->link == run->lost_id)
		run->link_lost = err; /* it was seen here first, without a reason */
	if (!a || a->state >= ATTEMPT_CLOSING)
		return;
	rcp_log(&run->log, RCP_LOG_INFO, "%s failed at the other end: %s", a->cand.label,
		rcp_err_format(&err, text, sizeof(text)));
	if (talk_is_rdma(a->cand.kind) && !rcp_err_is(&run->fallback))
		run->fallback = err;
	talk_note_failed(a, &err);
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

	/* That this end's one connection is gone comes by the other, maybe before this end has told why. */
	const struct rcp_err *own = run_own_cause(run);

	RCP_ERR_FROM_WIRE(m, m->code, &err);
	run->aborted = true; /* no answer to an ABORT */
	if (own && run->initiator)
		err = *own;
	if (!run->initiator) {
		run_end(run, &err);
	} else if (err.code == RCP_E_LINK) {
		/* It lost us. What became of ssh is known better here, and who "the peer" is. */
		snprintf(err.object, sizeof(err.object), "%s", run->host);
		run_lost(run, &err);
	} else {
		rcp_err_object(&err, run->host);
		run_fail(run, &err);
	}
}

static void on_note(struct rcp_run *run, const struct rcp_msg_note *m)
{
	char text[1024], safe[2048];

	if (!run->initiator)
		return;
	/* Without -v there are few; who says more than that only means to fill a screen. */
	if (!run->verbose && ++run->notes > NOTES_MOST) {
		if (run->notes == NOTES_MOST + 1)
			rcp_log(&run->log, RCP_LOG_WARN, "%s: more than %u lines: the others are left out", run->host,
				NOTES_MOST);
		return;
	}
	rcp_span_copy(m->text, text, sizeof(text));
	rcp_log(&run->log, m->level ? RCP_LOG_INFO : RCP_LOG_WARN, "%s: %s", run->host,
		rcp_name_escape(safe, sizeof(safe), text, strlen(text)));
}

bool talk_message(struct rcp_run *run, const struct rcp_msg *msg)
{
	switch ((unsigned)msg->type) {
	case RCP_MSG_CAPS:
		talk_caps(run, &msg->caps_);
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
		on_note(run, &msg->note_);
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
		run_fail(run, &err);
	}
}

static void ctl_wake(void *arg)
{
	attempt_pipes_run(arg);
}

static void ctl_down(void *arg, const struct rcp_err *cause)
{
	struct rcp_run *run = arg;
	struct rcp_err err = *cause;

	if (!rcp_err_is(&err))
		rcp_err_set(&err, RCP_E_LINK, 0, "", run->host, "the peer closed the connection");
	attempt_pipes_lost(run, &err);
	if (run->ctl == run->tls)
		rcp_ctl_free(&run->tls);
	else
		rcp_ctl_free(&run->pipe);
	run->ctl = NULL;
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
	struct rcp_attempt *next;
	uint64_t out;

	run->relinks++;
	run->relink = *cause;
	if (!rcp_err_is(cause))
		rcp_err_set(&run->relink, RCP_E_LINK, 0, "", run->host, "closed by the other end");
	run->link_lost = run->relink;
	run->lost_id = run->used ? run->used->id : 0;
	run->relink_ns = rcp_now_ns();
	if (run->ctl)
		rcp_ctl_count(run->ctl, &run->relink_heard, &out);
	if (run->used && talk_is_rdma(run->used->cand.kind) && !rcp_err_is(&run->fallback))
		run->fallback = *cause;
	if (run->used && run->use_id == run->used->id)
		run->use_id = 0; /* another one may have been settled on already */
	if (run->used)
		attempt_close(run->used);
	if (run->used && run->initiator)
		talk_try_again(run, run->used->cand.kind);
	run->used = NULL;
	run->wait_ns = rcp_now_ns() + TALK_WAIT_MS * RCP_MS;
	next = run->initiator || !run->use_id ? NULL : attempt_find(run, run->use_id);
	if (next && next->state == ATTEMPT_READY)
		talk_use(next); /* it was up before the lost one was down */
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
	run_fail(run, cause);
}
