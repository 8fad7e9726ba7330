/*
 * A daemon's child: one connection, one module, one copy. TLS with the user's key comes first; MODULE says
 * what is wanted; then root and all but the module's directory are given up, and it is a responder as any
 * other. Until then it has no thread and has looked at nothing but HELLO and MODULE.
 */
#include "boot/daemon_int.h"
#include "boot/jail.h"
#include "boot/run.h"

#include "base/clock.h"
#include "base/text.h"
#include "file/confine.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PULSE_NS (5 * RCP_SEC) /* from one word that this lives to the next */

struct rcp_served {
	const struct daemon_child_params *params;
	const struct rcp_module *module; /* entered */
	char connection[2 * RCP_SA_TEXT + 32]; /* as SSH_CONNECTION has it */
	char key[RCP_KEY_NAME_MAX + 1];
	bool listed;
	uint64_t moved, moved_ns; /* for the end of who does nothing */
	uint64_t pulse_ns;
};

/* ---- words to the daemon ---- */

static void tell(struct rcp_run *run, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void tell(struct rcp_run *run, const char *fmt, ...)
{
	char packet[DAEMON_PACKET];
	va_list ap;
	int n;

	packet[0] = 'L';
	va_start(ap, fmt);
	n = vsnprintf(packet + 1, sizeof(packet) - 1, fmt, ap);
	va_end(ap);
	if (n > (int)sizeof(packet) - 2)
		n = (int)sizeof(packet) - 2;
	send(run->served->params->channel, packet, (size_t)n + 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* One letter. It may get lost where the daemon has much to hear: the next one follows. */
static void word(const struct rcp_run *run, char letter)
{
	send(run->served->params->channel, &letter, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* The daemon has nothing to do but answer. */
static int ask(struct rcp_run *run, const char *module, struct rcp_err *err)
{
	int channel = run->served->params->channel;
	struct pollfd p = {.fd = channel, .events = POLLIN};
	char packet[DAEMON_PACKET];
	int n = snprintf(packet, sizeof(packet), "A%s", module);
	ssize_t got;

	if (send(channel, packet, (size_t)n, MSG_NOSIGNAL) != n || poll(&p, 1, DAEMON_ASK_MS) != 1)
		return rcp_err_set(err, RCP_E_CONNECT, 0, "", NULL, "the daemon is ending");
	got = recv(channel, packet, sizeof(packet) - 1, MSG_DONTWAIT);
	if (got > 0 && packet[0] == '+')
		return 0;
	packet[got > 0 ? got : 0] = 0;
	rcp_err_set(err, RCP_E_CONNECT, 0, "", NULL, "%.300s", got > 1 ? packet + 1 : "the daemon is ending");
	rcp_err_fix(err, "try again later");
	return (int)err->code;
}

/* ---- MODULE ---- */

/* Tests only: RCP_TEST_TAKEN=1, a child that was taken over: it says that it lives, and nothing else ends it. */
static void taken_over(const struct rcp_run *run)
{
#if RCP_TEST_HOOKS
	while (getenv("RCP_TEST_TAKEN")) {
		word(run, 'P');
		poll(NULL, 0, 100);
	}
#else
	(void)run;
#endif
}

static int list(struct rcp_run *run, struct rcp_err *err)
{
	const struct rcp_config *c = run->served->params->config;
	struct rcp_wr w = {.max = RCP_FRAME_MAX - 64};
	struct rcp_msg_modules m;
	struct rcp_err none = {0};

	if (ask(run, DAEMON_LISTING, err))
		return (int)err->code;
	for (size_t i = 0; i < c->module_count; i++) {
		const struct rcp_module *module = &c->modules[i];
		struct rcp_rec_listing rec = {.name = rcp_span_str(module->name),
					      .writable = module->writable,
					      .comment = rcp_span_str(module->comment ? module->comment : "")};

		if (rcp_module_allows(module, run->served->key) && w.len < w.max - 8192)
			rcp_rec_encode(&w, RCP_REC_LISTING, &rec);
	}
	m.modules = rcp_span_of(w.data, w.len);
	rcp_ctl_send(run->pipe, RCP_MSG_MODULES, &m);
	rcp_wr_free(&w);
	run->served->listed = true;
	taken_over(run);
	run_end(run, &none);
	return 0;
}

/* Tests only: RCP_TEST_CHATTER=N, a child that was taken over and says N lines. */
static void chatter(struct rcp_run *run)
{
#if RCP_TEST_HOOKS
	const char *word = getenv("RCP_TEST_CHATTER");

	for (unsigned long i = 1; word && i <= strtoul(word, NULL, 10); i++)
		tell(run, "line %lu\n\033[31mrcp --daemon: forged", i);
#else
	(void)run;
#endif
}

/* From here on it is the module's user who acts, in the module's directory. */
static int enter(struct rcp_run *run, const struct rcp_module *module, struct rcp_err *err)
{
	char remark[128];

	if (ask(run, module->name, err))
		return (int)err->code;
	if (rcp_jail_enter(module, err, remark, sizeof(remark))) {
		tell(run, "key %s, module %s: %s: %s", run->served->key, module->name, err->call,
		     rcp_err_reason(err));
		*err = (struct rcp_err){0}; /* its paths and users are the administrator's */
		rcp_err_set(err, RCP_E_CONNECT, 0, "", NULL, "module %s can't be served now", module->name);
		rcp_err_fix(err, "the daemon's log says why");
		return (int)err->code;
	}
	if (remark[0])
		tell(run, "%s", remark);
	chatter(run);
	if (run_init_pool(run, run->served->params->threads, err))
		return (int)err->code;
	run->served->module = module;
	run->must_seal = module->encrypt;
	return 0;
}

static int choose(struct rcp_run *run, struct rcp_span wanted, struct rcp_err *err)
{
	const struct rcp_module *module;
	char name[RCP_KEY_NAME_MAX + 2];

	module = rcp_config_module(run->served->params->config, rcp_span_copy(wanted, name, sizeof(name)),
				   run->served->key);
	if (!module) {
		char shown[4 * sizeof(name)];

		rcp_err_set(err, RCP_E_CONNECT, 0, "", NULL, "there is no module %s for this key",
			    rcp_name_escape(shown, sizeof(shown), name, strlen(name)));
		rcp_err_fix(err, "'rcp rcp://host/' lists those that there are");
		return (int)err->code;
	}
	return enter(run, module, err);
}

void served_module(struct rcp_run *run, const struct rcp_msg_module *m)
{
	struct rcp_err err = {0};

	if (!run->served || run->served->module || run->served->listed || !run->peer_features) {
		rcp_err_set(&err, RCP_E_CONNECT, 0, "", NULL, "the peer broke the protocol: MODULE out of turn");
		run_end(run, &err);
		return;
	}
	snprintf(run->served->key, sizeof(run->served->key), "%s", rcp_ctl_identity(run->pipe));
	rcp_keyring_free(&run->served->params->config->ring); /* this process' copy: other users' keys */
	if (!m->name.len)
		list(run, &err);
	else
		choose(run, m->name, &err);
	if (rcp_err_is(&err))
		run_end(run, &err);
	else if (!run->served->listed)
		rcp_ctl_expect(run->pipe, served_step_ms(run), "START");
}

/* ---- the request ---- */

int served_request(struct rcp_run *run, struct rcp_err *err)
{
	const struct rcp_module *module = run->served->module;
	struct rcp_request *q = &run->req;

	if (q->role == RCP_ROLE_SINK && !module->writable) {
		rcp_err_set(err, RCP_E_CONNECT, 0, "", NULL, "module %s is read-only", module->name);
		rcp_err_fix(err, "its administrator can set 'writable = yes'");
		return (int)err->code;
	}
	if (restrict_paths(q, err))
		return (int)err->code;
	restrict_ring(q, module->bwlimit);
	if (module->bwlimit && (!q->limit || module->bwlimit < q->limit))
		q->limit = module->bwlimit;
	if (q->role == RCP_ROLE_SINK) {
		run->accept_limit = module->bwlimit;
		/* Whose client was killed may still be writing back what came: a rerun waits a while. */
		q->flags |= RCP_OPT_LOCK_WAIT;
	}
	run->served->moved_ns = rcp_now_ns();
	return 0;
}

unsigned served_step_ms(const struct rcp_run *run)
{
	return run->served->params->config->handshake_seconds * 1000;
}

const char *served_connection(const struct rcp_run *run)
{
	return run->served->connection;
}

static void pulse(struct rcp_run *run, uint64_t now)
{
	if (now < run->served->pulse_ns)
		return;
	run->served->pulse_ns = now + PULSE_NS;
	word(run, 'P');
}

void served_ending(struct rcp_run *run)
{
	word(run, 'E');
}

const char *served_interruption(const struct rcp_run *run)
{
	char packet[DAEMON_PACKET];
	ssize_t n = recv(run->served->params->channel, packet, sizeof(packet), MSG_DONTWAIT);

	return n > 0 && packet[0] == 'T' ? "its time is over (max-seconds of the daemon)" : "the daemon was ended";
}

/* Who is alive and does nothing must not keep others out. What is read back moves, too, though nothing of it is sent. */
void served_turn(struct rcp_run *run, uint64_t now)
{
	struct rcp_served *s = run->served;
	struct rcp_err err = {0};
	uint64_t moved;

	pulse(run, now);
	if (!run->session_over && !run->sender && !run->receiver)
		return;
	run_stats(run);
	moved = run->stats.bytes_moved + run->stats.entries_seen + run->stats.files_done +
		(run->pool ? rcp_pool_moved(run->pool) : 0);
	if (moved != s->moved || !s->moved_ns) {
		s->moved = moved;
		s->moved_ns = now;
	} else if (now - s->moved_ns > s->params->config->idle_seconds * RCP_SEC) {
		rcp_err_set(&err, RCP_E_LINK, ETIMEDOUT, "", NULL, "nothing moved for %u s",
			    s->params->config->idle_seconds);
		run_fail(run, &err);
	}
}

/* ---- the end ---- */

/* What it was about: "get a, b" or "put d". */
static void what(const struct rcp_run *run, char *out, size_t size)
{
	const struct rcp_request *q = &run->req;
	bool put = q->role == RCP_ROLE_SINK;
	const char *first = put ? q->target : q->path_count ? q->paths[0] : ".";
	char shown[1024];

	rcp_name_escape(shown, sizeof(shown), first, strlen(first));
	if (!shown[0])
		strcpy(shown, ".");
	if (!put && q->path_count > 1)
		snprintf(out, size, "get %s and %zu more", shown, q->path_count - 1);
	else
		snprintf(out, size, "%s %s", put ? "put" : "get", shown);
}

void served_over(struct rcp_run *run)
{
	const struct rcp_served *s = run->served;
	double seconds = (double)((run->ended_ns ? run->ended_ns : rcp_now_ns()) - run->started_ns) / 1e9;
	char text[2048], request[1200] = "", some[64] = "";
	int code = rcp_err_is(&run->cause) ? (int)run->cause.code : (int)run->stats.verdict_code;
	bool failed = rcp_err_is(&run->cause);
	/* A copy that came to its end, but not with all files: the first of them says what was wrong. */
	bool partly = !failed && code && rcp_err_is(&run->first_fault);

	rcp_err_format(partly ? &run->first_fault : &run->cause, text, sizeof(text));
	if (partly)
		snprintf(some, sizeof(some), " (%llu files), first ", (unsigned long long)run->stats.failed);
	if (!s->key[0]) {
		tell(run, "no key proved, %.1f s: %s", seconds, failed ? text : "gone");
		return;
	}
	if (s->listed || !s->module || !run->req.target) {
		tell(run, "key %s: %s", s->key, s->listed ? "modules listed" : failed ? text : "gone");
		return;
	}
	what(run, request, sizeof(request));
	tell(run, "key %s, module %s, %s: %llu files, %llu bytes, %.2f s, %s: %s%s%s", s->key, s->module->name, request,
	     (unsigned long long)run->stats.files_done, (unsigned long long)run->stats.bytes_done, seconds,
	     run->transport ? run->transport : "no link", code ? "failed" : "ok", partly ? some : failed ? ": " : "",
	     partly || failed ? text : "");
}

/* The client's and this end's address, in the words of SSH_CONNECTION. */
static void name_ends(struct rcp_served *s, int fd)
{
	union rcp_sa local = {0};
	socklen_t len = sizeof(local);
	char text[RCP_SA_TEXT];

	if (getsockname(fd, &local.sa, &len) < 0)
		return;
	rcp_sa_set_port(&local, 0);
	snprintf(s->connection, sizeof(s->connection), "- 0 %s 0", rcp_sa_text(&local, text));
}

static bool find_key(void *arg, const char *identity, uint8_t key[RCP_TLS_KEY])
{
	const struct rcp_config *c = arg;
	const struct rcp_psk *k = rcp_keyring_find(&c->ring, identity);

	if (k)
		memcpy(key, k->key, RCP_TLS_KEY);
	return k != NULL;
}

int daemon_child_run(const struct daemon_child_params *params)
{
	struct rcp_run *run = calloc(1, sizeof(*run));
	struct rcp_served served = {.params = params};
	struct rcp_tls_params tls = {.server = true, .lookup = find_key, .lookup_arg = params->config};
	struct rcp_err err = {0};
	int code;

	if (!run)
		return RCP_EXIT_IO;
	run->served = &served;
	snprintf(run->host, sizeof(run->host), "initiator");
	name_ends(&served, params->fd);
	if (run_init_loop(run, NULL, 0, &err) ||
	    rcp_ctl_new_tls(&run->loop, params->fd, &tls, params->config->handshake_seconds * 1000, run->host,
			    &server_pipe_ops, run, &err, &run->pipe)) {
		run_end(run, &err);
	} else {
		server_greet(run);
	}
	code = server_loop(run);
	signal(SIGTERM, SIG_IGN);
	free(run);
	return code;
}
