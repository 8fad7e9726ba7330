/* A copy within this host: both ends in one process, their messages passed from hand to hand. */
#include "boot/run.h"

#include "link/loop.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct mailbox {
	struct rcp_wr in, out; /* being filled; being delivered */
};

struct rcp_local {
	struct rcp_run *run;
	struct rcp_link *source, *sink;
	bool source_down, sink_down, sender_over, receiver_over, wanted;
	struct mailbox to_sender, to_receiver;
	struct rcp_err err;
};

static void post_mail(struct rcp_local *l, struct mailbox *m, enum rcp_msg_type type, const void *msg)
{
	m->in.max = 64u << 20;
	rcp_msg_encode(&m->in, type, msg);
	if (m->in.bad)
		rcp_err_set(&l->err, RCP_E_IO, ENOMEM, "malloc", NULL, NULL);
}

static void sender_sends(void *arg, enum rcp_msg_type type, const void *msg)
{
	struct rcp_local *l = ((struct rcp_run *)arg)->local;

	post_mail(l, &l->to_receiver, type, msg);
}

static void receiver_sends(void *arg, enum rcp_msg_type type, const void *msg)
{
	struct rcp_local *l = ((struct rcp_run *)arg)->local;

	post_mail(l, &l->to_sender, type, msg);
}

/* Each file and fault is told by the sender's end alone. */
static void receiver_fault(void *arg, const struct rcp_err *err, bool warning)
{
	(void)arg;
	(void)err;
	(void)warning;
}

static void receiver_file(void *arg, const char *name, uint64_t bytes, enum rcp_status status)
{
	(void)arg;
	(void)name;
	(void)bytes;
	(void)status;
}

static void end_over(struct rcp_run *run, const struct rcp_err *cause)
{
	struct rcp_err err = *cause;

	if (run->ending)
		return;
	run_stats(run);
	if (rcp_err_is(&err) && !run->stats.verdict_known)
		run_fault(run, &err, false);
	else
		err = (struct rcp_err){0};
	run_end(run, &err);
}

static void sender_over(void *arg, const struct rcp_err *cause)
{
	struct rcp_run *run = arg;

	run->local->sender_over = true;
	end_over(run, cause);
}

static void receiver_over(void *arg, const struct rcp_err *cause)
{
	struct rcp_run *run = arg;

	run->local->receiver_over = true;
	end_over(run, cause);
}

static void deliver(struct rcp_local *l, struct mailbox *m, bool to_sender)
{
	struct rcp_run *run = l->run;
	struct rcp_wr box = m->in;
	size_t at = 0;

	m->in = m->out;
	m->in.len = 0;
	m->out = box;
	while (at < box.len && !rcp_err_is(&l->err)) {
		enum rcp_msg_type type;
		uint32_t len;
		struct rcp_msg msg;

		if (rcp_frame_parse(box.data + at, 0, &l->err, &type, &len) ||
		    rcp_msg_decode(type, box.data + at + RCP_FRAME_HEADER, len, &l->err, &msg))
			return;
		at += RCP_FRAME_HEADER + len;
		if (to_sender)
			rcp_sender_message(run->sender, &msg, &l->err);
		else
			rcp_receiver_message(run->receiver, &msg, &l->err);
	}
}

/* ---- link events ---- */

static void on_sent(void *arg, struct rcp_post *post, bool ok)
{
	rcp_sender_events.sent(((struct rcp_local *)arg)->run->sender, post, ok);
}

static void on_room(void *arg)
{
	rcp_sender_events.room(((struct rcp_local *)arg)->run->sender);
}

static void on_chunk(void *arg, uint32_t slot, const uint8_t *header, const uint8_t *payload,
		     uint32_t length)
{
	rcp_receiver_events.chunk(((struct rcp_local *)arg)->run->receiver, slot, header, payload, length);
}

static void on_source_down(void *arg, const struct rcp_err *cause)
{
	struct rcp_local *l = arg;

	l->source_down = true;
	rcp_sender_events.down(l->run->sender, cause);
}

static void on_sink_down(void *arg, const struct rcp_err *cause)
{
	struct rcp_local *l = arg;

	l->sink_down = true;
	rcp_receiver_events.down(l->run->receiver, cause);
}

static void on_up(void *arg)
{
	(void)arg; /* both ends are attached as soon as they are made */
}

static const struct rcp_link_events source_events = {
	.up = on_up, .sent = on_sent, .room = on_room, .down = on_source_down};
static const struct rcp_link_events sink_events = {.up = on_up, .chunk = on_chunk, .down = on_sink_down};

static void on_wake(void *arg)
{
	((struct rcp_local *)arg)->wanted = true;
}

/* ---- life ---- */

static int make_ends(struct rcp_run *run, struct rcp_err *err)
{
	struct rcp_session_env env = run->env;

	run->req.role = RCP_ROLE_SOURCE;
	run->env.send = sender_sends;
	run->env.over = sender_over;
	if (run_session_new(run, run->req.chunk_bytes, err))
		return (int)err->code;
	run->req.role = RCP_ROLE_SINK;
	run->env = env;
	run->env.send = receiver_sends;
	run->env.over = receiver_over;
	run->env.fault = receiver_fault;
	run->env.file = receiver_file;
	return run_session_new(run, run->req.chunk_bytes, err);
}

static void nobody_asks(void *arg, const struct rcp_err *cause)
{
	(void)arg;
	(void)cause;
}

/* No end has it yet. */
static void drop_link(struct rcp_local *l)
{
	static const struct rcp_link_events nobody = {.down = nobody_asks};

	l->source->events = l->sink->events = &nobody;
	rcp_link_close(l->source);
	rcp_link_close(l->sink);
	while (rcp_loop_link_run(l->source))
		; /* down at both ends */
	rcp_link_free(&l->source);
	rcp_link_free(&l->sink);
}

static int make_link(struct rcp_local *l, struct rcp_err *err)
{
	struct rcp_run *run = l->run;
	struct rcp_link_params common = {.initiator = true,
					 .id = 1,
					 .slots = run->req.slots,
					 .chunk_bytes = run->req.chunk_bytes,
					 .generation = 1,
					 .arg = l};
	struct rcp_loop_params p = {.source = common, .sink = common, .wake = on_wake, .wake_arg = l};
	struct rcp_ring_info ring;

	p.source.role = RCP_ROLE_SOURCE;
	p.source.events = &source_events;
	p.sink.role = RCP_ROLE_SINK;
	p.sink.events = &sink_events;
	if (rcp_loop_link_new(&p, err, &l->source, &l->sink))
		return (int)err->code;
	while (rcp_loop_link_run(l->source))
		; /* up on both ends */
	l->sink->ops->ring_get(l->sink, &ring);
	if (l->source->ops->ring_set(l->source, &ring, err) ||
	    rcp_receiver_attach(run->receiver, l->sink, 1, err)) {
		drop_link(l);
		return (int)err->code;
	}
	rcp_sender_attach(run->sender, l->source, 1);
	return 0;
}

int local_start(struct rcp_run *run, struct rcp_err *err)
{
	struct rcp_transport_info info = {.transport = "local", .detail = "within this host"};
	struct rcp_local *l = calloc(1, sizeof(*l));

	if (!l)
		return rcp_err_set(err, RCP_E_IO, ENOMEM, "calloc", NULL, NULL);
	run->local = l;
	l->run = run;
	run->transport = "local";
	if (make_ends(run, err) || make_link(l, err))
		return (int)err->code;
	if (run->watch.transport)
		run->watch.transport(run->watch.arg, &info);
	return 0;
}

bool local_turn(struct rcp_run *run)
{
	struct rcp_local *l = run->local;
	bool more;

	if (!l->source)
		return false;
	l->wanted = false;
	more = rcp_loop_link_run(l->source);
	deliver(l, &l->to_receiver, false);
	deliver(l, &l->to_sender, true);
	if (rcp_err_is(&l->err) && !run->ending) {
		run_fault(run, &l->err, false);
		run_end(run, &l->err);
	}
	return more || l->wanted || l->to_receiver.in.len || l->to_sender.in.len;
}

bool local_closed(struct rcp_run *run)
{
	struct rcp_local *l = run->local;
	struct rcp_err err = run->cause;

	if (!l->source)
		return true;
	if (!rcp_err_is(&err))
		rcp_err_set(&err, RCP_E_LINK, 0, "", NULL, "ended");
	if (!l->sender_over)
		rcp_sender_stop(run->sender, &err);
	if (!l->receiver_over)
		rcp_receiver_stop(run->receiver, &err);
	/* What the sink still holds goes back to the source with its end, and only then is the source's down. */
	if (l->receiver_over && l->sink_down)
		rcp_link_free(&l->sink);
	return l->sender_over && l->receiver_over && l->source_down && !l->sink;
}

void local_free(struct rcp_run *run)
{
	struct rcp_local *l = run->local;

	if (!l)
		return;
	if (l->sink_down)
		rcp_link_free(&l->sink);
	if (l->source_down) /* an end that took too long is left */
		rcp_link_free(&l->source);
	rcp_wr_free(&l->to_sender.in);
	rcp_wr_free(&l->to_sender.out);
	rcp_wr_free(&l->to_receiver.in);
	rcp_wr_free(&l->to_receiver.out);
	free(l);
	run->local = NULL;
}
