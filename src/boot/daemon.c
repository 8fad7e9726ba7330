/*
 * The daemon: listens, forks a child for each connection, counts them, ends those that take too long,
 * writes the log. It reads nothing that a client sent but what a child that has proved a key passes on. One
 * thread, poll(2) and a signalfd: a child inherits no loop and no lock.
 */
#include "boot/daemon_int.h"

#include "base/clock.h"
#include "base/text.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <syslog.h>
#include <unistd.h>

#define BUSY_MOST  32	       /* children that only refuse, above the limit */
#define CHILDREN   (10000 + BUSY_MOST)
#define BOOT_NS	   (20 * RCP_SEC) /* beyond the handshake's seconds: a child that has not asked to serve */
#define KILL_NS	   (12 * RCP_SEC) /* from SIGTERM to SIGKILL */
#define BREATH_NS  (200 * RCP_MS) /* after accept or fork found nothing left to have */
#define ACCEPTS	   64		  /* in one turn */

struct child {
	pid_t pid;
	int channel; /* -1: closed */
	bool busy, terminated;
	char module[RCP_KEY_NAME_MAX + 1]; /* "" before it serves one */
	char peer[RCP_SA_TEXT];
	uint64_t kill_ns; /* 0: no deadline, the child has its own */
};

struct daemon {
	const struct rcp_daemon_options *options;
	struct rcp_watch watch;
	struct rcp_config config;
	int sockets[DAEMON_SOCKETS];
	unsigned socket_count;
	int signals;
	struct child *children; /* an array */
	unsigned count, room;
	struct pollfd *polls; /* the signalfd, the sockets, the children */
	uint64_t breath_ns;
	bool ending;
};

/* ---- the log ---- */

static void say(struct daemon *d, int level, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void say(struct daemon *d, int level, const char *fmt, ...)
{
	char text[2 * DAEMON_PACKET];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (d->config.syslog)
		syslog(level ? LOG_WARNING : LOG_INFO, "%s", text);
	else if (d->watch.log)
		d->watch.log(d->watch.arg, 0, text);
}

static void say_err(struct daemon *d, const char *what, const struct rcp_err *err)
{
	char text[4096];

	say(d, 1, "%s%s", what, rcp_err_format(err, text, sizeof(text)));
}

/* ---- children ---- */

static unsigned count_of(const struct daemon *d, const char *module, bool busy)
{
	unsigned n = 0;

	for (unsigned i = 0; i < d->count; i++) {
		if (module ? strcmp(d->children[i].module, module) == 0 : d->children[i].busy == busy)
			n++;
	}
	return n;
}

static bool room_for_one(struct daemon *d)
{
	unsigned room = d->room ? 2 * d->room : 64;
	struct child *children;
	struct pollfd *polls;

	if (d->count < d->room)
		return true;
	children = reallocarray(d->children, room, sizeof(*children));
	if (children)
		d->children = children;
	polls = reallocarray(d->polls, room + 1 + DAEMON_SOCKETS, sizeof(*polls));
	if (polls)
		d->polls = polls;
	if (!children || !polls)
		return false;
	d->room = room;
	return true;
}

/* In the child: nothing of the daemon's is left but its configuration. */
static int be_child(struct daemon *d, int fd, int channel, bool busy)
{
	struct daemon_child_params p = {
		.config = &d->config, .fd = fd, .channel = channel, .threads = d->options->threads, .busy = busy};
	sigset_t none;

	signal(SIGHUP, SIG_IGN);
	signal(SIGINT, SIG_IGN); /* a terminal's ^C is the daemon's to pass on */
	close(d->signals);
	for (unsigned i = 0; i < d->socket_count; i++)
		close(d->sockets[i]);
	for (unsigned i = 0; i < d->count; i++) {
		if (d->children[i].channel >= 0)
			close(d->children[i].channel);
	}
	d->signals = -1;
	d->socket_count = d->count = 0;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	return daemon_child_run(&p);
}

/* *status: set where this is the child, and its life is over. */
static bool spawn(struct daemon *d, int fd, const union rcp_sa *peer, bool busy, int *status)
{
	int ends[2];
	struct child *c;
	pid_t pid;

	if (!room_for_one(d) || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return false;
	pid = fork();
	if (pid == 0) {
		close(ends[0]);
		*status = be_child(d, fd, ends[1], busy);
		return false;
	}
	close(ends[1]);
	if (pid < 0) {
		close(ends[0]);
		return false;
	}
	c = &d->children[d->count++];
	*c = (struct child){.pid = pid,
			    .channel = ends[0],
			    .busy = busy,
			    .kill_ns = rcp_now_ns() + d->config.handshake_seconds * RCP_SEC + BOOT_NS};
	rcp_sa_text(peer, c->peer);
	return true;
}

static void end_child(struct child *c, uint64_t now)
{
	if (c->terminated)
		return;
	c->terminated = true;
	c->kill_ns = now + KILL_NS;
	kill(c->pid, SIGTERM);
}

static void check_deadlines(struct daemon *d, uint64_t now)
{
	for (unsigned i = 0; i < d->count; i++) {
		struct child *c = &d->children[i];

		if (!c->kill_ns || now < c->kill_ns)
			continue;
		say(d, 1, "%s: took too long, ended", c->peer);
		kill(c->pid, SIGKILL);
		c->kill_ns = now + KILL_NS;
	}
}

/* ---- what children say ---- */

static void answer(struct daemon *d, struct child *c, const char *name)
{
	const struct rcp_module *m = NULL;
	char text[256] = "+";

	for (size_t i = 0; i < d->config.module_count; i++) {
		if (strcmp(d->config.modules[i].name, name) == 0)
			m = &d->config.modules[i];
	}
	if (d->ending)
		snprintf(text, sizeof(text), "-the daemon is ending");
	else if (!m) /* gone since the child was forked */
		snprintf(text, sizeof(text), "-module %s is not there any more", name);
	else if (m->max_connections && count_of(d, name, false) >= m->max_connections)
		snprintf(text, sizeof(text), "-module %s has as many connections as it may have (%u)", name,
			 m->max_connections);
	if (text[0] == '+') {
		snprintf(c->module, sizeof(c->module), "%s", name);
		c->kill_ns = c->terminated ? c->kill_ns : 0;
	}
	send(c->channel, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* A child is not believed: it may have been taken over by its client. */
static void hear(struct daemon *d, struct child *c)
{
	char packet[DAEMON_PACKET + 1], shown[4 * DAEMON_PACKET + 1];
	ssize_t n = recv(c->channel, packet, DAEMON_PACKET, MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		close(c->channel);
		c->channel = -1;
		return;
	}
	packet[n] = 0;
	rcp_name_escape(shown, sizeof(shown), packet + 1, strlen(packet + 1));
	if (packet[0] == 'A' && !c->module[0] && !rcp_key_name_refuse(packet + 1))
		answer(d, c, packet + 1);
	else if (packet[0] == 'L')
		say(d, 0, "%s: %s", c->peer, shown);
}

static void reap(struct daemon *d)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		unsigned i = 0;

		while (i < d->count && d->children[i].pid != pid)
			i++;
		if (i == d->count)
			continue;
		struct child *c = &d->children[i];

		for (int j = 0; j < 16 && c->channel >= 0; j++)
			hear(d, c); /* its last words */
		if (c->channel >= 0)
			close(c->channel);
		if (WIFSIGNALED(status))
			say(d, 1, "%s: its child was ended by signal %d (%s)", c->peer, WTERMSIG(status),
			    strsignal(WTERMSIG(status)));
		*c = d->children[--d->count];
	}
}

/* ---- connections and signals ---- */

/* True: this is a child at its end. */
static bool take_one(struct daemon *d, int listener, bool *more, int *status)
{
	union rcp_sa peer = {0};
	socklen_t len = sizeof(peer);
	int fd = accept4(listener, &peer.sa, &len, SOCK_CLOEXEC);
	unsigned busy = count_of(d, NULL, true);
	bool full = d->count - busy >= d->config.max_connections;
	char text[RCP_SA_TEXT];

	*more = fd >= 0 || errno == ECONNABORTED || errno == EINTR;
	if (fd < 0) {
		if (errno != EAGAIN && !*more)
			d->breath_ns = rcp_now_ns() + BREATH_NS; /* it stays readable: wait, not spin */
		return false;
	}
	*status = -1;
	if ((full && busy >= BUSY_MOST) || !spawn(d, fd, &peer, full, status)) {
		if (*status >= 0)
			return true;
		say(d, 1, "%s: refused, there are %u connections", rcp_sa_text(&peer, text), d->count);
		*more = full; /* fork failed otherwise */
		if (!full)
			d->breath_ns = rcp_now_ns() + BREATH_NS;
	}
	close(fd);
	return false;
}

static bool take(struct daemon *d, int listener, int *status)
{
	bool more = true;

	for (int i = 0; i < ACCEPTS && more; i++) {
		if (take_one(d, listener, &more, status))
			return true;
	}
	return false;
}

/* Copies that run keep what they were started with. */
static void reload(struct daemon *d)
{
	struct rcp_config fresh;
	struct rcp_err err = {0};

	daemon_notify("RELOADING=1");
	if (rcp_config_load(d->options->config, &err, &fresh)) {
		say_err(d, "the new configuration is not taken, the old one stays: ", &err);
	} else {
		if (fresh.port != d->config.port)
			say(d, 1, "another port or address counts from the next start on");
		rcp_config_free(&d->config);
		d->config = fresh;
		say(d, 0, "configuration read again: %zu modules, %zu keys", fresh.module_count, fresh.ring.count);
	}
	daemon_notify("READY=1");
}

static void begin_end(struct daemon *d)
{
	if (d->ending)
		return;
	d->ending = true;
	daemon_notify("STOPPING=1");
	say(d, 0, "ending, with %u connections", d->count);
	for (unsigned i = 0; i < d->socket_count; i++)
		close(d->sockets[i]);
	d->socket_count = 0;
	for (unsigned i = 0; i < d->count; i++)
		end_child(&d->children[i], rcp_now_ns());
}

static void on_signals(struct daemon *d)
{
	struct signalfd_siginfo info;

	while (read(d->signals, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo == SIGHUP && !d->ending)
			reload(d);
		else if (info.ssi_signo == SIGTERM || info.ssi_signo == SIGINT)
			begin_end(d);
	}
	reap(d);
}

/* ---- the loop ---- */

static unsigned fill_polls(struct daemon *d, uint64_t now)
{
	unsigned n = 0;

	d->polls[n++] = (struct pollfd){.fd = d->signals, .events = POLLIN};
	for (unsigned i = 0; i < d->socket_count; i++)
		d->polls[n++] = (struct pollfd){.fd = now < d->breath_ns ? -1 : d->sockets[i], .events = POLLIN};
	for (unsigned i = 0; i < d->count; i++)
		d->polls[n++] = (struct pollfd){.fd = d->children[i].channel, .events = POLLIN};
	return n;
}

/* One turn; true: this is a child at its end. */
static bool turn(struct daemon *d, int *status)
{
	uint64_t now = rcp_now_ns();
	unsigned sockets = d->socket_count, children = d->count;
	unsigned n = fill_polls(d, now);
	struct pollfd *p = d->polls;

	poll(p, n, now < d->breath_ns ? (int)(BREATH_NS / RCP_MS) : 1000);
	for (unsigned i = 0; i < children; i++) {
		if (p[1 + sockets + i].revents)
			hear(d, &d->children[i]);
	}
	/* Both may move the array of children, and sockets may move polls. */
	bool signals = p[0].revents != 0;
	int ready[DAEMON_SOCKETS];
	unsigned ready_count = 0;

	for (unsigned i = 0; i < sockets; i++) {
		if (p[1 + i].revents)
			ready[ready_count++] = d->sockets[i];
	}
	if (signals)
		on_signals(d);
	for (unsigned i = 0; i < ready_count && !d->ending; i++) {
		if (take(d, ready[i], status))
			return true;
	}
	check_deadlines(d, rcp_now_ns());
	return false;
}

static int open_signals(struct daemon *d, struct rcp_err *err)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGCHLD);
	signal(SIGPIPE, SIG_IGN);
	sigprocmask(SIG_BLOCK, &set, NULL);
	d->signals = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
	return d->signals < 0 ? rcp_err_set(err, RCP_E_IO, errno, "signalfd", NULL, NULL) : 0;
}

static void close_all(struct daemon *d)
{
	for (unsigned i = 0; i < d->socket_count; i++)
		close(d->sockets[i]);
	if (d->signals >= 0)
		close(d->signals);
	rcp_config_free(&d->config);
	free(d->children);
	free(d->polls);
}

static void fault(const struct daemon *d, const struct rcp_err *err)
{
	const struct rcp_fault f = {.code = (int)err->code,
				    .sys_errno = err->sys_errno,
				    .call = err->call,
				    .object = err->object,
				    .reason = rcp_err_reason(err),
				    .fix = err->fix};

	if (d->watch.fault)
		d->watch.fault(d->watch.arg, &f);
}

int rcp_daemon_run(const struct rcp_daemon_options *options, const struct rcp_watch *watch)
{
	struct daemon d = {.options = options, .watch = *watch, .signals = -1};
	struct rcp_err err = {0};
	int status = -1;

	if (rcp_config_load(options->config, &err, &d.config) || open_signals(&d, &err) ||
	    daemon_sockets(&d.config, &err, d.sockets, &d.socket_count) || !room_for_one(&d)) {
		fault(&d, &err);
		close_all(&d);
		return rcp_err_is(&err) ? (int)err.code : RCP_EXIT_IO;
	}
	if (d.config.syslog)
		openlog("rcpd", LOG_PID, LOG_DAEMON);
	say(&d, 0, "serving %zu modules for %zu keys on port %u", d.config.module_count, d.config.ring.count,
	    d.config.port);
	daemon_notify("READY=1");
	while (!(d.ending && !d.count)) {
		if (turn(&d, &status))
			break;
	}
	if (status < 0)
		say(&d, 0, "ended");
	close_all(&d);
	return status < 0 ? RCP_EXIT_OK : status;
}

int rcp_key_new(const char *name, const char *path, const struct rcp_watch *watch, char out[RCP_KEY_LINE_MAX])
{
	const struct daemon d = {.watch = *watch};
	struct rcp_err err = {0};

	_Static_assert(RCP_KEY_LINE_MAX >= RCP_KEY_LINE, "a key's line fits");
	if (!rcp_key_make(name, &err, out) && path)
		rcp_key_write(path, out, &err);
	if (rcp_err_is(&err))
		fault(&d, &err);
	return (int)err.code;
}
