/* The initiator's start: ssh, greeting, request, the way to TCP or the decision to stay on the pipe. */
#include "boot/run.h"

#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ANSWER_MS 20000 /* HELLO and READY after the login */
#define TLS_MS 10000

/* ---- TCP and TLS, or not ---- */

static void stay_on_pipe(struct rcp_run *run, const struct rcp_err *why)
{
	struct rcp_msg_switch m = {.to = RCP_SWITCH_PIPE};
	unsigned without = (1u << RCP_LINK_RDMA_CM) | (1u << RCP_LINK_RDMA_OOB) | (1u << RCP_LINK_PIPE);
	char text[2048];

	if (why) {
		run->tcp_err = *why;
		rcp_log(&run->log, RCP_LOG_INFO, "TCP can't be had: %s", rcp_err_format(why, text, sizeof(text)));
		if (!(run->req.transports & without)) {
			struct rcp_err err = *why;

			rcp_err_object(&err, run->host);
			rcp_err_fix(&err, "open a TCP port to that host, or use --transport=auto to go through %s",
				    run_has_daemon(run) ? "the daemon's" : "ssh");
			run_fail(run, &err);
			return;
		}
	}
	if (!run->pipe) /* lost meanwhile, which pipe_down has told */
		return;
	rcp_ctl_send(run->pipe, RCP_MSG_SWITCH, &m);
	run->ctl = run->pipe;
	rcp_ctl_set_ops(run->pipe, &talk_ctl_ops, run);
	talk_start(run);
}

static void tls_ready(void *arg)
{
	struct rcp_run *run = arg;

	run->ctl = run->tls;
	rcp_ctl_set_ops(run->tls, &talk_ctl_ops, run);
	rcp_log(&run->log, RCP_LOG_DEBUG, "control connection: TLS over TCP");
	talk_start(run);
}

static void start_race(struct rcp_run *run);

/* Before it was ready: another host's port, a proxy, a filter. The next address may be right. */
static void tls_down(void *arg, const struct rcp_err *cause)
{
	struct rcp_run *run = arg;
	struct rcp_err err = *cause;

	rcp_ctl_free(&run->tls);
	if (run->ending)
		return;
	if (!rcp_err_is(&err))
		rcp_err_set(&err, RCP_E_CONNECT, 0, "", run->host, "the TCP port closed the connection");
	if (err.sys_errno == ENOMEM) /* the peer may have taken this connection for the one: no other way is left */
		run_fail(run, &err);
	else
		stay_on_pipe(run, &err);
}

static const struct rcp_ctl_ops tls_ops = {.ready = tls_ready, .down = tls_down};

static void on_raced(void *arg, int fd, const union rcp_sa *to, unsigned index, const struct rcp_err *cause)
{
	struct rcp_run *run = arg;
	struct rcp_err err = {0};
	char identity[RCP_IDENTITY];
	struct rcp_tls_params p = {.identity = rcp_secret_identity(run->session, identity),
				   .key = run->secret};

	(void)index;
	rcp_race_free(&run->race);
	if (fd < 0) {
		stay_on_pipe(run, cause);
		return;
	}
	run->peer_addr = *to;
	if (rcp_ctl_new_tls(&run->loop, fd, &p, TLS_MS, run->host, &tls_ops, run, &err, &run->tls))
		stay_on_pipe(run, &err);
}

static void start_race(struct rcp_run *run)
{
	struct rcp_race_params p = {.addrs = &run->addrs,
				    .port = run->port,
				    .sock = {.tos = run->req.tos, .timeout_ms = RUN_DEAD_MS}};
	struct rcp_err err = {0};

	if (run->req.transports == 1u << RCP_LINK_PIPE) {
		stay_on_pipe(run, NULL);
		return;
	}
	if (!run->port || !run->addrs.count) {
		rcp_err_set(&err, RCP_E_CONNECT, 0, "", run->host, "it opened no TCP port");
		stay_on_pipe(run, &err);
	} else if (rcp_race_new(&run->loop, &p, on_raced, run, &err, &run->race)) {
		stay_on_pipe(run, &err);
	}
}

/* ---- messages on the pipe ---- */

static void out_of_turn(struct rcp_run *run, const char *what)
{
	struct rcp_err err = {0};

	rcp_err_set(&err, RCP_E_CONNECT, 0, "", run->host, "the peer broke the protocol: %s", what);
	run_fail(run, &err);
}

static void on_hello(struct rcp_run *run, const struct rcp_msg_hello *m)
{
	char software[128];
	struct rcp_err err = {0};

	if (run->greeted) {
		out_of_turn(run, "HELLO twice");
		return;
	}
	run->greeted = true;
	rcp_span_copy(m->software, software, sizeof(software));
	if (m->magic != RCP_MAGIC || m->version_min > RCP_VERSION_MAX || m->version_max < RCP_VERSION_MIN) {
		rcp_err_set(&err, RCP_E_CONNECT, 0, "", run->host,
			    "%s there speaks protocol versions %u to %u, this rcp speaks %u to %u", software,
			    m->version_min, m->version_max, RCP_VERSION_MIN, RCP_VERSION_MAX);
		rcp_err_fix(&err, "install the same version at both ends, or name another with --rcp-path");
		run_fail(run, &err);
		return;
	}
	run->peer_features = m->features;
	if (sealing_agree(run, &err)) {
		run_fail(run, &err);
		return;
	}
	rcp_log(&run->log, RCP_LOG_INFO, "%s: %s", run->host, software);
	if (run->watch.start)
		run->watch.start(run->watch.arg, run->host, software);
	rcp_ctl_expect(run->pipe, ANSWER_MS, run->options->list ? "list" : "READY");
}

/* A daemon's modules, which were all that was wanted. */
static void on_modules(struct rcp_run *run, const struct rcp_msg_modules *m)
{
	struct rcp_rd rd = rcp_rd_of(m->modules.data, m->modules.len);
	struct rcp_rec_listing rec;
	struct rcp_err err = {0};
	char name[256], comment[1024];
	int rc;

	while ((rc = rcp_rec_next(&rd, RCP_REC_LISTING, &rec)) > 0) {
		if (run->watch.module)
			run->watch.module(run->watch.arg, rcp_span_copy(rec.name, name, sizeof(name)),
					  rec.writable != 0, rcp_span_copy(rec.comment, comment, sizeof(comment)));
	}
	if (rc < 0)
		out_of_turn(run, "a malformed list");
	else
		run_end(run, &err);
}

static void on_ready(struct rcp_run *run, const struct rcp_msg_ready *m)
{
	struct rcp_err err = {0};

	if (run->ready_said || run->options->list) {
		out_of_turn(run, "READY out of turn");
		return;
	}
	if (rcp_addrs_decode(m->addrs, &err, &run->addrs)) {
		run_fail(run, &err);
		return;
	}
	run->ready_said = true;
	run->port = m->port;
	rcp_ctl_expect(run->pipe, 0, NULL);
	if (!run_test_stalls(run, "ready"))
		start_race(run);
}

static void pipe_message(void *arg, const struct rcp_msg *msg)
{
	struct rcp_run *run = arg;

	if (run->ending)
		return;
	if (msg->type == RCP_MSG_HELLO)
		on_hello(run, &msg->hello_);
	else if (msg->type == RCP_MSG_ABORT || msg->type == RCP_MSG_NOTE)
		talk_message(run, msg);
	else if (!run->greeted)
		out_of_turn(run, "a message before HELLO");
	else if (msg->type == RCP_MSG_READY)
		on_ready(run, &msg->ready_);
	else if (msg->type == RCP_MSG_MODULES && run->options->list)
		on_modules(run, &msg->modules_);
	else
		out_of_turn(run, "a message out of turn");
}

static void pipe_down(void *arg, const struct rcp_err *cause)
{
	struct rcp_run *run = arg;
	struct rcp_err err = *cause;

	if (!rcp_err_is(&err))
		rcp_err_set(&err, run->used ? RCP_E_LINK : RCP_E_CONNECT, 0, "", run->host,
			    "%s closed the connection", run_has_daemon(run) ? "the daemon" : "ssh");
	rcp_ctl_free(&run->pipe);
	rcp_err_object(&err, run->host);
	if (run->used)
		err.code = RCP_E_LINK;
	if (run_has_daemon(run))
		rcp_err_fix(&err, "%s", run->answered ? "" : "see that --key names a key that the daemon has, too");
	else if (err.sys_errno == ETIMEDOUT && !run->ready_said)
		rcp_err_fix(&err, "see what 'ssh %s' does there, or name another rcp with --rcp-path", run->host);
	run_lost(run, &err);
}

static void pipe_banner(void *arg, const char *bytes, size_t len)
{
	struct rcp_run *run = arg;

	run->banner = true;
	if (run->watch.remote_output)
		run->watch.remote_output(run->watch.arg, bytes, len);
}

static void pipe_ready(void *arg)
{
	struct rcp_run *run = arg;

	run->answered = true;
	if (run->ssh)
		rcp_ssh_answered(run->ssh);
	rcp_ctl_expect(run->pipe, ANSWER_MS, "greeting");
}

static const struct rcp_ctl_ops pipe_ops = {.ready = pipe_ready,
					    .message = pipe_message,
					    .banner = pipe_banner,
					    .down = pipe_down};

/* ---- what is said at once ---- */

static void say_hello(struct rcp_run *run)
{
	struct rcp_msg_hello m = {.magic = RCP_MAGIC,
				  .version_min = RCP_VERSION_MIN,
				  .version_max = RCP_VERSION_MAX,
				  .features = sealing_features(run),
				  .software = rcp_span_str("rcp " RCP_VERSION)};

	rcp_ctl_send(run->pipe, RCP_MSG_HELLO, &m);
}

static int encode_paths(char *const *paths, size_t count, struct rcp_wr *w, size_t *at)
{
	for (; *at < count && w->len < RCP_FRAME_MAX / 4; ++*at) {
		struct rcp_rec_path rec = {.path = rcp_span_of(paths[*at], strlen(paths[*at]))};

		rcp_rec_encode(w, RCP_REC_PATH, &rec);
	}
	return w->bad ? -1 : 0;
}

/* Of several names the first would get the target's, and the others none. */
static uint64_t one_name(const struct rcp_run *run)
{
	const struct rcp_request *q = &run->req;

	if (q->role != RCP_ROLE_SINK || q->flags & (RCP_OPT_TARGET_DIR | RCP_OPT_PAIRS))
		return 0;
	/* On a retry something may have the name by now. */
	return (run->target_open ? run->target.rename != NULL : !rcp_target_is_dir(q->target)) ? RCP_OPT_ONE_NAME : 0;
}

static int say_start(struct rcp_run *run, struct rcp_err *err)
{
	const struct rcp_request *q = &run->req;
	struct rcp_wr excludes = {.max = RCP_FRAME_MAX / 2};
	size_t n = 0, at = 0;

	while (q->excludes && q->excludes[n])
		n++;
	if (encode_paths(q->excludes, n, &excludes, &at) || at < n) {
		rcp_wr_free(&excludes);
		if (excludes.no_memory)
			return rcp_err_set(err, RCP_E_IO, ENOMEM, "realloc", NULL, NULL);
		return rcp_err_set(err, RCP_E_USAGE, 0, "", NULL, "the --exclude patterns are too long");
	}
	struct rcp_msg_start m = {
		.role = q->role == RCP_ROLE_SOURCE ? RCP_ROLE_SINK : RCP_ROLE_SOURCE,
		.transports = (uint8_t)q->transports,
		.encrypt = (uint8_t)q->encrypt,
		.connect = (uint8_t)q->connect,
		.source_engine = (uint8_t)q->engine,
		.family = (uint8_t)q->family,
		.tos = q->tos < 0 ? UINT16_MAX : (uint16_t)q->tos,
		.sl = q->sl < 0 ? UINT16_MAX : (uint16_t)q->sl,
		.pkey = q->pkey < 0 ? UINT32_MAX : (uint32_t)q->pkey,
		.streams = (uint16_t)q->streams,
		.chunk_bytes = q->chunk_bytes,
		.slots = q->slots,
		.bundle_bytes = q->bundle_bytes,
		.flags = q->flags | one_name(run) | (run->verbose ? RCP_OPT_VERBOSE : 0),
		.limit_bytes_per_second = q->limit,
		.target = rcp_span_str(q->role == RCP_ROLE_SOURCE ? q->target : ""),
		.source = rcp_span_str(q->role == RCP_ROLE_SOURCE && q->source ? q->source : ""),
		.excludes = rcp_span_of(excludes.data, excludes.len),
	};

	memcpy(m.secret.b, run->secret, sizeof(m.secret.b));
	memcpy(m.session.b, run->session, sizeof(m.session.b));
	rcp_ctl_send(run->pipe, RCP_MSG_START, &m);
	rcp_secret_wipe(&m.secret, sizeof(m.secret));
	rcp_wr_free(&excludes);
	return 0;
}

/* The remote end's paths (it is the source), in as many frames as they need. */
static int say_names(struct rcp_run *run, struct rcp_err *err)
{
	bool source = run->req.role == RCP_ROLE_SOURCE;
	size_t count = source ? 0 : run->req.path_count, at = 0;
	struct rcp_wr w = {.max = RCP_FRAME_MAX - 64};

	do {
		w.len = 0;
		if (encode_paths(run->req.paths, count, &w, &at)) {
			rcp_wr_free(&w);
			if (w.no_memory)
				return rcp_err_set(err, RCP_E_IO, ENOMEM, "realloc", NULL, NULL);
			return rcp_err_set(err, RCP_E_USAGE, ENAMETOOLONG, "", run->req.paths[at],
					   "a path of more than %d bytes", RCP_STR_MAX);
		}
		struct rcp_msg_names m = {.last = at == count, .paths = rcp_span_of(w.data, w.len)};

		rcp_ctl_send(run->pipe, RCP_MSG_NAMES, &m);
	} while (at < count);
	rcp_wr_free(&w);
	return 0;
}

/* ---- ssh ---- */

static void ssh_output(void *arg, const char *bytes, size_t len)
{
	struct rcp_run *run = arg;

	if (run->watch.remote_output)
		run->watch.remote_output(run->watch.arg, bytes, len);
}

static void ssh_exited(void *arg, const struct rcp_err *cause)
{
	struct rcp_run *run = arg;

	run->ssh_end = *cause;
	run->ssh_status = rcp_ssh_status(run->ssh);
	rcp_ssh_free(&run->ssh);
	if (!run->lost_ns)
		run->lost_ns = rcp_now_ns();
}

static const struct rcp_ssh_ops ssh_ops = {.output = ssh_output, .exited = ssh_exited};

static int start_ssh(struct rcp_run *run, const struct rcp_options *o, struct rcp_err *err)
{
	struct rcp_ssh_params p = {.program = o->ssh,
				   .args = o->ssh_args,
				   .user = run->where.user,
				   .host = run->where.host,
				   .family = o->family,
				   .rcp_path = o->rcp_path,
				   .unattended = run->reconnects > 0};
	int rfd, wfd;

	if (rcp_ssh_new(&run->loop, &p, &ssh_ops, run, err, &rfd, &wfd, &run->ssh))
		return (int)err->code;
	return rcp_ctl_new_pipe(&run->loop, rfd, wfd, false, run->host, &pipe_ops, run, err, &run->pipe);
}

/* All that this end has to say on the pipe, whoever carries it. */
static int greet(struct rcp_run *run, struct rcp_err *err)
{
	struct rcp_msg_module module = {.name = rcp_span_str(run->where.module ? run->where.module : "")};

	if (run_test_stalls(run, "tls"))
		return 0;
	say_hello(run);
	if (run_test_stalls(run, "hello"))
		return 0;
	if (run->where.kind == RCP_WHERE_DAEMON)
		rcp_ctl_send(run->pipe, RCP_MSG_MODULE, &module);
	if (run->options->list || run_test_stalls(run, "module"))
		return 0;
	if (say_start(run, err) || run_test_stalls(run, "start") || say_names(run, err))
		return (int)err->code;
	talk_rdma_look(run);
	return 0;
}

/* A daemon's connection is made, with TLS to come; or it can't be. */
static void daemon_dialed(struct rcp_run *run, const struct rcp_err *cause)
{
	struct rcp_err err = *cause;

	if (!rcp_err_is(&err) && !greet(run, &err))
		return;
	run_fail(run, &err);
}

int initiator_start(struct rcp_run *run, const struct rcp_options *o, struct rcp_err *err)
{
	snprintf(run->host, sizeof(run->host), "%s", run->where.host);
	if (rcp_secret_random(run->secret, sizeof(run->secret), err) ||
	    rcp_secret_random(run->session, sizeof(run->session), err))
		return (int)err->code;
	if (run->where.kind == RCP_WHERE_DAEMON)
		return daemon_dial(run, o, &pipe_ops, daemon_dialed, err);
	return start_ssh(run, o, err) ? (int)err->code : greet(run, err);
}
