/* The responder behind ssh: `rcp --server` on a pair of descriptors. */
#include "boot/run.h"

#include "base/clock.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REQUEST_MS 30000 /* for the initiator to say what it wants */
#define SWITCH_MS 60000	 /* to settle on TCP or the pipe */
#define SWITCH_GUARDED_MS 20000 /* the same where it is guarded */
#define BOOT_NS	 (120 * RCP_SEC) /* for all of that, there */
#define TLS_MS 5000

static void fail(struct rcp_run *run, const struct rcp_err *err)
{
	run_end(run, err); /* the initiator is told, and tells its user */
}

#define NAMES_MOST (128u << 20) /* bytes that a client's names may take, where one is wary of it */

/* More of the request is to come. Behind ssh nobody's place is taken, but who holds it says no more either. */
static void expect_more(struct rcp_run *run, const char *what)
{
	rcp_ctl_expect(run->pipe, run->served ? served_step_ms(run) : REQUEST_MS, what);
}

/* This end's warnings, and with -v of the initiator its other lines, travel as NOTE. */
static void note_line(void *arg, enum rcp_log_level level, const char *text)
{
	struct rcp_run *run = arg;
	struct rcp_msg_note m = {.level = (uint8_t)level, .text = rcp_span_str(text)};

	rcp_ctl_send(run->ctl ? run->ctl : run->pipe, RCP_MSG_NOTE, &m);
}

/* ---- TCP ---- */

static void settle(struct rcp_run *run, struct rcp_ctl *ctl)
{
	run->ctl = ctl;
	if (run->pipe)
		rcp_ctl_expect(run->pipe, 0, NULL);
	rcp_ctl_set_ops(ctl, &talk_ctl_ops, run);
	talk_start(run);
}

static void tls_ready(void *arg)
{
	struct rcp_run *run = arg;

	settle(run, run->tls);
}

/* A stranger's try, or one that the initiator gave up: it may come again or stay on the pipe. */
static void tls_down(void *arg, const struct rcp_err *cause)
{
	struct rcp_run *run = arg;

	(void)cause;
	rcp_ctl_free(&run->tls);
}

static const struct rcp_ctl_ops tls_ops = {.ready = tls_ready, .down = tls_down};

static void on_control(void *arg, int fd, const union rcp_sa *peer)
{
	struct rcp_run *run = arg;
	char identity[RCP_IDENTITY];
	struct rcp_tls_params p = {.server = true,
				   .identity = rcp_secret_identity(run->session, identity),
				   .key = run->secret};
	struct rcp_err err = {0};

	(void)peer;
	if (run->tls || run->ctl || run->ending) {
		close(fd); /* one control connection, and one try at a time */
		return;
	}
	rcp_ctl_new_tls(&run->loop, fd, &p, TLS_MS, run->host, &tls_ops, run, &err, &run->tls);
}

static void on_stream(void *arg, int fd, const struct rcp_preamble *p)
{
	attempt_tcp_stream(arg, fd, p);
}

static const struct rcp_listen_ops listen_ops = {.control = on_control,
						 .check = attempt_tcp_check,
						 .stream = on_stream};

static void say_ready(struct rcp_run *run)
{
	struct rcp_listen_params p = {.family = run->req.family,
				      .sock = {.tos = run->req.tos, .timeout_ms = RUN_DEAD_MS}};
	struct rcp_wr w = {.max = 4096};
	struct rcp_err err = {0};
	struct rcp_msg_ready m = {0};
	char text[1024];
	bool tcp = run->req.transports != 1u << RCP_LINK_PIPE, must = !(run->req.transports & 1u << RCP_LINK_PIPE);
	const char *connection = run->served ? served_connection(run) : getenv("SSH_CONNECTION");

	if (tcp && !rcp_addrs_local(connection, run->req.family, &err, &run->addrs) &&
	    !rcp_listen_new(&run->loop, &p, &listen_ops, run, &err, &run->listen)) {
		m.port = rcp_listen_port(run->listen);
		rcp_addrs_encode(&run->addrs, &w);
		m.addrs = rcp_span_of(w.data, w.bad ? 0 : w.len);
	}
	if (w.no_memory)
		rcp_err_set(&err, RCP_E_IO, ENOMEM, "realloc", NULL, NULL);
	if (rcp_err_is(&err))
		rcp_log(&run->log, must ? RCP_LOG_WARN : RCP_LOG_INFO, "no TCP port: %s",
			rcp_err_format(&err, text, sizeof(text)));
	run->ready_said = true;
	rcp_ctl_send(run->pipe, RCP_MSG_READY, &m);
	rcp_wr_free(&w);
	rcp_ctl_expect(run->pipe, run_guarded(run) ? SWITCH_GUARDED_MS : SWITCH_MS, "SWITCH");
}

/* ---- the request ---- */

static int take_excludes(struct rcp_request *q, struct rcp_span blob, struct rcp_err *err)
{
	struct rcp_rd rd = rcp_rd_of(blob.data, blob.len);
	struct rcp_rec_path rec;
	int rc;

	while ((rc = rcp_rec_next(&rd, RCP_REC_PATH, &rec)) > 0) {
		if (request_add_exclude(q, rec.path, err))
			break;
	}
	return rc < 0 || rcp_err_is(err) ? -1 : 0;
}

static const char *start_refuse(const struct rcp_msg_start *m)
{
	if (m->role != RCP_ROLE_SOURCE && m->role != RCP_ROLE_SINK)
		return "a role that there is not";
	if (!(m->transports & (1u << RCP_LINK_RDMA_CM | 1u << RCP_LINK_RDMA_OOB | 1u << RCP_LINK_TCP | 1u << RCP_LINK_PIPE)))
		return "no way for the data that there is";
	if (m->flags & ~RCP_OPT_KNOWN)
		return "options that this version does not know";
	if (!m->slots || m->slots > RCP_SLOTS_MAX || m->chunk_bytes < RCP_CHUNK_BYTES_MIN ||
	    m->chunk_bytes > RCP_CHUNK_BYTES_MAX || m->chunk_bytes % 4096)
		return "a ring that can't be";
	if (m->source_engine > RCP_ENGINE_DIRECT || m->connect > RCP_CONNECT_OOB ||
	    m->encrypt > RCP_ENCRYPT_NEVER || (m->family && m->family != 4 && m->family != 6))
		return "a choice that this version does not know";
	return NULL;
}

static int keep_start(struct rcp_request *q, const struct rcp_msg_start *m, struct rcp_err *err)
{
	q->role = (enum rcp_role)m->role;
	q->transports = m->transports;
	q->encrypt = (enum rcp_encrypt)m->encrypt;
	q->connect = (enum rcp_connect)m->connect;
	q->engine = (enum rcp_engine)m->source_engine;
	q->family = m->family;
	q->tos = m->tos == UINT16_MAX ? -1 : m->tos;
	q->sl = m->sl == UINT16_MAX ? -1 : m->sl;
	q->pkey = m->pkey == UINT32_MAX ? -1 : (int)m->pkey;
	q->streams = m->streams;
	q->chunk_bytes = m->chunk_bytes;
	q->slots = m->slots;
	q->bundle_bytes = m->bundle_bytes;
	q->flags = m->flags;
	q->limit = m->limit_bytes_per_second;
	q->target = rcp_span_dup(m->target);
	q->source = m->source.len ? rcp_span_dup(m->source) : NULL;
	if (!q->target || (m->source.len && !q->source))
		return rcp_err_set(err, RCP_E_IO, ENOMEM, "malloc", NULL, NULL);
	return 0;
}

/* Each message of the request has its turn, and comes once. */
static void out_of_turn(struct rcp_run *run, const char *what)
{
	struct rcp_err err = {0};

	rcp_err_set(&err, RCP_E_CONNECT, 0, "", NULL, "the peer broke the protocol: %s out of turn", what);
	fail(run, &err);
}

static void on_start(struct rcp_run *run, const struct rcp_msg_start *m)
{
	const char *why = run->req.target			? "START twice"
			  : run->served && !run->pool ? "a copy without a module"
						      : start_refuse(m);
	struct rcp_err err = {0};

	if (!why) {
		if (keep_start(&run->req, m, &err) || take_excludes(&run->req, m->excludes, &err))
			why = "malformed patterns";
	}
	if (why) {
		rcp_err_set(&err, RCP_E_CONNECT, 0, "", NULL, "the initiator asked for %s", why);
		fail(run, &err);
		return;
	}
	if (sealing_agree(run, &err)) {
		fail(run, &err);
		return;
	}
	memcpy(run->secret, m->secret.b, sizeof(run->secret));
	memcpy(run->session, m->session.b, sizeof(run->session));
	expect_more(run, "names");
	run->log.line = note_line;
	run->log.level = m->flags & RCP_OPT_VERBOSE ? RCP_LOG_INFO : RCP_LOG_WARN;
	if (run->remark[0])
		rcp_log(&run->log, RCP_LOG_INFO, "%s", run->remark);
	if (!run->pool) {
		restrict_sink(run);
		if (run_init_pool(run, run->threads, &err)) {
			fail(run, &err);
			return;
		}
	}
	talk_rdma_look(run);
}

/*
 * What a name takes of memory here before it is copied: in the request and in the walk's tables, which know each by a
 * key of 16 bytes (of pairs) or by two entries of a tree.
 */
static uint64_t name_cost(const struct rcp_run *run, size_t len)
{
	return run->req.flags & RCP_OPT_PAIRS ? len + 100 : 3 * len + 220;
}

static int take_names(struct rcp_run *run, struct rcp_span blob, struct rcp_err *err)
{
	struct rcp_rd rd = rcp_rd_of(blob.data, blob.len);
	struct rcp_rec_path rec;
	int rc = 0;

	while (!rcp_err_is(err) && (rc = rcp_rec_next(&rd, RCP_REC_PATH, &rec)) > 0) {
		run->names_bytes += name_cost(run, rec.path.len);
		if (run_guarded(run) && run->names_bytes > NAMES_MOST)
			rcp_err_set(err, RCP_E_CONNECT, 0, "", NULL, "more names than are taken here in one copy");
		else
			request_add_path(&run->req, rec.path, err);
	}
	if (rc < 0)
		rcp_err_set(err, RCP_E_CONNECT, 0, "", NULL, "the peer broke the protocol: malformed names");
	return (int)err->code;
}

static void on_names(struct rcp_run *run, const struct rcp_msg_names *m)
{
	struct rcp_err err = {0};

	if (!run->req.target || run->names_over || run->req.path_count > 10000000 || (!m->last && !m->paths.len)) {
		out_of_turn(run, "names");
		return;
	}
	if (!take_names(run, m->paths, &err) && m->last && run->req.role == RCP_ROLE_SOURCE && !run->req.path_count)
		rcp_err_set(&err, RCP_E_CONNECT, 0, "", NULL, "the peer broke the protocol: malformed names");
	if (m->last && run->served && !rcp_err_is(&err))
		served_request(run, &err);
	else if (m->last && !rcp_err_is(&err))
		restrict_request(run, &err);
	if (rcp_err_is(&err)) {
		fail(run, &err);
	} else if (m->last) {
		run->names_over = true;
		say_ready(run);
	} else {
		expect_more(run, "request");
	}
}

static void on_hello(struct rcp_run *run, const struct rcp_msg_hello *m)
{
	struct rcp_err err = {0};

	if (run->greeted) {
		out_of_turn(run, "HELLO");
		return;
	}
	run->greeted = true;
	run->peer_features = m->features;
	expect_more(run, "request");
	if (m->magic == RCP_MAGIC && m->version_min <= RCP_VERSION_MAX && m->version_max >= RCP_VERSION_MIN)
		return;
	rcp_err_set(&err, RCP_E_CONNECT, 0, "", NULL,
		    "the initiator speaks protocol versions %u to %u, rcp " RCP_VERSION
		    " here speaks %u to %u", m->version_min, m->version_max, RCP_VERSION_MIN, RCP_VERSION_MAX);
	rcp_err_fix(&err, "install the same version at both ends");
	fail(run, &err);
}

static void pipe_message(void *arg, const struct rcp_msg *msg)
{
	struct rcp_run *run = arg;

	if (run->ending)
		return;
	if (msg->type == RCP_MSG_HELLO)
		on_hello(run, &msg->hello_);
	else if (msg->type == RCP_MSG_ABORT)
		talk_message(run, msg);
	else if (!run->greeted)
		out_of_turn(run, "a message before HELLO");
	else if (msg->type == RCP_MSG_START)
		on_start(run, &msg->start_);
	else if (msg->type == RCP_MSG_NAMES)
		on_names(run, &msg->names_);
	else if (msg->type == RCP_MSG_MODULE)
		served_module(run, &msg->module_);
	else if (msg->type == RCP_MSG_SWITCH && run->ready_said && !run->ctl && msg->switch_.to == RCP_SWITCH_PIPE)
		settle(run, run->pipe);
	else
		out_of_turn(run, rcp_msg_desc(msg->type)->name);
}

/* ssh's end is the end: there is nobody left to serve. */
static void pipe_down(void *arg, const struct rcp_err *cause)
{
	struct rcp_run *run = arg;
	struct rcp_err err = *cause;

	rcp_ctl_free(&run->pipe);
	if (!rcp_err_is(&err))
		rcp_err_set(&err, RCP_E_LINK, 0, "", run->host, "%s closed the connection",
			    run->served ? "the initiator" : "ssh");
	run_lost(run, &err);
}

const struct rcp_ctl_ops server_pipe_ops = {.message = pipe_message, .down = pipe_down};

void server_greet(struct rcp_run *run)
{
	struct rcp_msg_hello m = {.magic = RCP_MAGIC,
				  .version_min = RCP_VERSION_MIN,
				  .version_max = RCP_VERSION_MAX,
				  .features = sealing_features(run),
				  .software = rcp_span_str("rcp " RCP_VERSION)};

	expect_more(run, "request");
	run->boot_ns = rcp_now_ns() + BOOT_NS; /* for who is guarded, which restrict_enter settles */
	rcp_ctl_send(run->pipe, RCP_MSG_HELLO, &m);
}

/* ---- signals ---- */

static struct rcp_run *serving;

static void on_signal(int number)
{
	(void)number;
	run_cancel(serving, RCP_E_TERMINATED);
}

/* What is ignored stays so. A second one ends the process at once. */
static void catch(int number, struct sigaction *before)
{
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART | (int)SA_RESETHAND};

	sigemptyset(&action.sa_mask);
	sigaction(number, NULL, before);
	if (before->sa_handler != SIG_IGN)
		sigaction(number, &action, NULL);
}

int server_loop(struct rcp_run *run)
{
	static const int numbers[] = {SIGTERM, SIGHUP, SIGINT};
	struct sigaction before[3];

	serving = run;
	for (size_t i = 0; i < 3; i++)
		catch(numbers[i], &before[i]);
	int code = run_loop(run);

	for (size_t i = 0; i < 3; i++)
		sigaction(numbers[i], &before[i], NULL);
	return code;
}

int rcp_server_run(const struct rcp_server_options *o, const struct rcp_watch *watch)
{
	struct rcp_run *run = calloc(1, sizeof(*run));
	struct rcp_err err = {0};
	int code;

	if (!run)
		return run_no_memory(watch);
	snprintf(run->host, sizeof(run->host), "initiator");
	run->must_seal = o->encryption == RCP_ENCRYPTION_ALWAYS;
	run->threads = o->threads;
	if (!run_init_loop(run, watch, 0, &err) &&
	    !rcp_ctl_new_pipe(&run->loop, o->in_fd, o->out_fd, true, run->host, &server_pipe_ops, run, &err,
			      &run->pipe)) {
		server_greet(run);
		restrict_enter(run, o, &err);
	}
	if (rcp_err_is(&err)) {
		run_fault(run, &err, false);
		run_end(run, &err);
	}
	code = server_loop(run);
	free(run);
	return code;
}
