/*
 * The daemon: listens, forks a child for each connection, counts them, ends those that take too long,
 * writes the log. It reads nothing that a client sent but what a child that has proved a key passes on. One
 * thread, poll(2) and a signalfd: a child inherits no loop and no lock.
 */
#include "boot/daemon_int.h"
#include "boot/daemon_queue.h"
#include "boot/jail.h"

#include "base/clock.h"
#include "base/text.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <syslog.h>
#include <unistd.h>

#define ASKING	   64	       /* children that may wait for a place to come free */
#define ASKING_NS  (3 * RCP_SEC)  /* for so long: who was served last may be about to go */
#define GRACE_NS   (2 * RCP_SEC)  /* a stranger has that before he makes way for another */
#define TOLD_NS	   (5 * RCP_SEC)  /* from one line to the next about connections that were refused */
#define LINES_MOST 16		  /* of one child in the log; it has a few */
#define BOOT_NS	   (20 * RCP_SEC) /* beyond the handshake's seconds: a child that has not asked to serve */
#define KILL_NS	   (12 * RCP_SEC) /* from SIGTERM to SIGKILL */
#define SILENT_NS  (120 * RCP_SEC) /* a child with a place that does not say that it lives */
#define ENDING_NS  (32 * RCP_SEC) /* one that has said that it ends: its own deadline is before that */
#define BREATH_NS  (200 * RCP_MS) /* after accept or fork found nothing left to have */
#define ACCEPTS	   64		  /* in one turn */

struct child {
	pid_t pid;
	int channel; /* -1: closed */
	bool terminated, ousted;
	bool leaving; /* it has said so, or its time is over: kill_ns stands */
	bool known;			   /* a key was proved: it has asked for a place */
	char module[RCP_KEY_NAME_MAX + 1]; /* its place; "" before it has one */
	unsigned lines;			   /* that it has written into the log */
	char wants[RCP_KEY_NAME_MAX + 1];  /* that it has asked for */
	uint64_t wants_ns;		   /* until when it waits for that; 0: it does not */
	char peer[RCP_SA_TEXT];
	struct daemon_mark mark;
	uint64_t kill_ns; /* always one: a child with a place puts it off by saying that it lives */
	uint64_t over_ns; /* 0: none */
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
	struct daemon_queue queue;
	unsigned refused; /* that the log does not know yet */
	uint64_t told_ns;
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

/* Those that have a place; in a module, or NULL: in any. */
static unsigned served(const struct daemon *d, const char *module)
{
	unsigned n = 0;

	for (unsigned i = 0; i < d->count; i++) {
		if (d->children[i].module[0] && (!module || strcmp(d->children[i].module, module) == 0))
			n++;
	}
	return n;
}

static unsigned asking(const struct daemon *d)
{
	unsigned n = 0;

	for (unsigned i = 0; i < d->count; i++)
		n += d->children[i].wants_ns != 0;
	return n;
}

/* Those that have proved nothing yet. which: their places in the array. */
static unsigned strangers(const struct daemon *d, struct daemon_mark marks[DAEMON_STRANGERS],
			  unsigned which[DAEMON_STRANGERS])
{
	unsigned n = 0;

	for (unsigned i = 0; i < d->count && n < DAEMON_STRANGERS; i++) {
		if (d->children[i].known || d->children[i].ousted)
			continue;
		which[n] = i;
		marks[n++] = d->children[i].mark;
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
static int be_child(struct daemon *d, int fd, int channel)
{
	struct daemon_child_params p = {
		.config = &d->config, .fd = fd, .channel = channel, .threads = d->options->threads};
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
	for (unsigned i = 0; i < d->queue.count; i++)
		close(d->queue.fds[i]);
	d->signals = -1;
	d->socket_count = d->count = d->queue.count = 0;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	return daemon_child_run(&p);
}

/* *status: set where this is the child, and its life is over. */
static bool spawn(struct daemon *d, int fd, const union rcp_sa *peer, int *status)
{
	int ends[2];
	struct child *c;
	pid_t pid;

	if (!room_for_one(d) || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return false;
	pid = fork();
	if (pid == 0) {
		close(ends[0]);
		*status = be_child(d, fd, ends[1]);
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
			    .mark = {.from = daemon_from(peer), .since_ns = rcp_now_ns()},
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

		if (c->over_ns && now >= c->over_ns && !c->terminated) {
			say(d, 1, "%s: its time is over (max-seconds)", c->peer);
			if (c->channel >= 0)
				send(c->channel, "T", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
			end_child(c, now);
		}
		if (now < c->kill_ns)
			continue;
		say(d, 1, "%s: took too long, ended", c->peer);
		kill(c->pid, SIGKILL);
		c->kill_ns = now + KILL_NS;
	}
}

/* ---- what children say ---- */

/* Tests only: RCP_TEST_SILENT_MS=N in place of the 120 s. */
static uint64_t silent_ns(void)
{
#if RCP_TEST_HOOKS
	const char *ms = getenv("RCP_TEST_SILENT_MS");

	if (ms)
		return strtoull(ms, NULL, 10) * RCP_MS;
#endif
	return SILENT_NS;
}

/* NULL, or why this can't be served now. lasting: waiting won't help. */
static const char *refusal(const struct daemon *d, const char *name, char *text, size_t size, bool *lasting)
{
	const struct rcp_module *m = NULL;
	bool listing = strcmp(name, DAEMON_LISTING) == 0;

	for (size_t i = 0; i < d->config.module_count; i++) {
		if (strcmp(d->config.modules[i].name, name) == 0)
			m = &d->config.modules[i];
	}
	*lasting = d->ending || (!m && !listing);
	if (d->ending)
		snprintf(text, size, "-the daemon is ending");
	else if (!m && !listing) /* gone since the child was forked */
		snprintf(text, size, "-module %s is not there any more", name);
	else if (served(d, NULL) >= d->config.max_connections)
		snprintf(text, size, "-the daemon has as many connections as it may have (%u)", d->config.max_connections);
	else if (m && m->max_connections && served(d, name) >= m->max_connections)
		snprintf(text, size, "-module %s has as many connections as it may have (%u)", name, m->max_connections);
	else
		return NULL;
	return text;
}

static bool lists(const struct child *c)
{
	return strcmp(c->module, DAEMON_LISTING) == 0;
}

/* It has a place, as long as it lives and may. */
static void seat(const struct daemon *d, struct child *c, uint64_t now)
{
	uint64_t kill_ns = now + silent_ns();

	c->over_ns = d->config.max_seconds ? now + d->config.max_seconds * RCP_SEC : 0;
	/* A list is said at once: who says one has no longer than he had to ask for it, whatever else he says. */
	if (!c->terminated && (!lists(c) || kill_ns < c->kill_ns))
		c->kill_ns = kill_ns;
}

/* What c has asked for, now or at the end of its waiting. */
static void answer(struct daemon *d, struct child *c, uint64_t now)
{
	char text[256];
	bool lasting;
	const char *no = refusal(d, c->wants, text, sizeof(text), &lasting);

	if (no && !lasting && now < c->wants_ns)
		return;
	c->wants_ns = 0;
	if (!no) {
		snprintf(c->module, sizeof(c->module), "%s", c->wants);
		seat(d, c, now);
	}
	send(c->channel, no ? no : "+", no ? strlen(no) : 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void answer_all(struct daemon *d, uint64_t now)
{
	for (unsigned i = 0; i < d->count; i++) {
		if (d->children[i].wants_ns && d->children[i].channel >= 0)
			answer(d, &d->children[i], now);
	}
}

static void take_question(struct daemon *d, struct child *c, const char *name)
{
	uint64_t now = rcp_now_ns();
	bool patient = asking(d) < ASKING;

	if (c->known || (strcmp(name, DAEMON_LISTING) != 0 && rcp_key_name_refuse(name)))
		return;
	c->known = true;
	snprintf(c->wants, sizeof(c->wants), "%s", name);
	c->wants_ns = patient ? now + ASKING_NS : now;
	answer(d, c, now);
}

/* Who was taken over can say so for ever: against that there is max-seconds alone. */
static void take_life(struct child *c, bool ends)
{
	uint64_t now = rcp_now_ns();

	if (!c->module[0] || lists(c) || c->terminated || c->leaving)
		return;
	c->leaving = ends;
	c->kill_ns = now + (ends ? ENDING_NS : silent_ns());
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
		c->wants_ns = 0;
		return;
	}
	packet[n] = 0;
	rcp_name_escape(shown, sizeof(shown), packet + 1, strlen(packet + 1));
	if (packet[0] == 'A')
		take_question(d, c, packet + 1);
	else if (packet[0] == 'P' || packet[0] == 'E')
		take_life(c, packet[0] == 'E');
	else if (packet[0] == 'L' && c->lines++ < LINES_MOST)
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
		if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
			say(d, 1, "%s: its work did not end with its connection: ended", c->peer);
		else if (WIFSIGNALED(status) && !c->ousted)
			say(d, 1, "%s: its child was ended by signal %d (%s)", c->peer, WTERMSIG(status),
			    strsignal(WTERMSIG(status)));
		*c = d->children[--d->count];
	}
}

/* ---- connections and signals ---- */

/*
 * An alert in the clear, since there is no key yet to say it under: whoever can forge it can cut the connection, too. What
 * came is read first, or the kernel would reset the connection and the alert with it.
 */
static void refuse(struct daemon *d, int fd)
{
	static const uint8_t alert[] = {21, 3, 3, 0, 2, 2, 80}; /* fatal, internal_error */
	char heard[4096];

	for (int i = 0; i < 16 && recv(fd, heard, sizeof(heard), MSG_DONTWAIT) > 0; i++)
		; /* not as long as someone sends */
	send(fd, alert, sizeof(alert), MSG_DONTWAIT | MSG_NOSIGNAL);
	shutdown(fd, SHUT_WR);
	close(fd);
	d->refused++;
}

static void tell_refused(struct daemon *d, uint64_t now)
{
	if (!d->refused || now - d->told_ns < TOLD_NS)
		return;
	say(d, 1, "%u connections refused or ended before they proved a key: too many at once", d->refused);
	d->refused = 0;
	d->told_ns = now;
}

/* True: more may be waiting at this socket. */
static bool take_one(struct daemon *d, int listener)
{
	union rcp_sa peer = {0};
	socklen_t len = sizeof(peer);
	int fd = accept4(listener, &peer.sa, &len, SOCK_CLOEXEC), out;

	if (fd < 0 && (errno == ECONNABORTED || errno == EINTR))
		return true;
	if (fd < 0) {
		if (errno != EAGAIN)
			d->breath_ns = rcp_now_ns() + BREATH_NS; /* it stays readable: wait, not spin */
		return false;
	}
	out = daemon_queue_push(&d->queue, fd, &peer, rcp_now_ns());
	if (out >= 0)
		refuse(d, out);
	return true;
}

/* Is there room for one more stranger? One who took his time may have to go for that. */
static bool make_room(struct daemon *d, const struct daemon_mark *marks, const unsigned *which, unsigned n, uint64_t now)
{
	struct child *c;

	if (d->count >= d->config.max_connections + DAEMON_STRANGERS + 2 * ASKING)
		return false; /* who was refused a place goes soon */
	if (n < DAEMON_STRANGERS)
		return true;
	c = &d->children[which[daemon_heaviest(marks, n)]];
	if (now - c->mark.since_ns < GRACE_NS)
		return false;
	c->ousted = true;
	c->kill_ns = now + KILL_NS;
	kill(c->pid, SIGKILL);
	d->refused++;
	return true;
}

/* Who did not wait to the end. */
static bool has_gone(int fd)
{
	char c;

	return recv(fd, &c, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/* Who waits becomes a child. True: this is that child, at its end. */
static bool serve_waiting(struct daemon *d, uint64_t now, int *status)
{
	struct daemon_mark marks[DAEMON_STRANGERS];
	unsigned which[DAEMON_STRANGERS];
	int fd;

	while (d->queue.count && now >= d->breath_ns) {
		unsigned n = strangers(d, marks, which);
		union rcp_sa peer;

		if (!make_room(d, marks, which, n, now))
			break;
		fd = daemon_queue_pop(&d->queue, marks, n < DAEMON_STRANGERS ? n : DAEMON_STRANGERS, &peer);
		*status = -1;
		if (has_gone(fd) || spawn(d, fd, &peer, status)) {
			close(fd);
		} else if (*status >= 0) {
			return true;
		} else {
			refuse(d, fd); /* no process or no memory: wait, not spin */
			d->breath_ns = now + BREATH_NS;
		}
	}
	while ((fd = daemon_queue_late(&d->queue, now - d->config.handshake_seconds * RCP_SEC)) >= 0)
		refuse(d, fd);
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
	while (d->queue.count)
		close(d->queue.fds[--d->queue.count]);
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

	poll(p, n, now < d->breath_ns || d->queue.count || asking(d) ? (int)(BREATH_NS / RCP_MS) : 1000);
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
		for (int j = 0; j < ACCEPTS && take_one(d, ready[i]); j++)
			;
	}
	now = rcp_now_ns();
	if (serve_waiting(d, now, status))
		return true;
	answer_all(d, now);
	check_deadlines(d, now);
	tell_refused(d, now);
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
	for (unsigned i = 0; i < d->queue.count; i++)
		close(d->queue.fds[i]);
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

/* Each connection is two descriptors here, until it is a child's. */
static void raise_descriptors(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
}

int rcp_daemon_run(const struct rcp_daemon_options *options, const struct rcp_watch *watch)
{
	struct daemon d = {.options = options, .watch = *watch, .signals = -1};
	struct rcp_err err = {0};
	int status = -1;

	rcp_jail_hide();
	raise_descriptors();
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

	rcp_jail_hide();
	_Static_assert(RCP_KEY_LINE_MAX >= RCP_KEY_LINE, "a key's line fits");
	if (!rcp_key_make(name, &err, out) && path)
		rcp_key_write(path, out, &err);
	if (rcp_err_is(&err))
		fault(&d, &err);
	return (int)err.code;
}
