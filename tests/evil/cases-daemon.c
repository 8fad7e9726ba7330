/* An evil client against a daemon: keys and proofs, requests out of turn, connections held open, more than there is. The
 * daemon must serve an honest one after each. The last also against rcp --server --restrict. */
#include "evil.h"

#include "base/clock.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *rcp_program;
static char top[600];
static uint16_t port;
static pid_t daemon_pid, looked_at; /* looked_at: whose memory is */
static uint8_t key[RCP_TLS_KEY];
static unsigned number, bad;

struct daemon_case {
	const char *name, *says; /* NULL: it hangs up without a word */
	bool (*act)(struct evil *e);
	long arg;
};

static void die(const char *what)
{
	printf("Bail out! %s\n", what);
	exit(1);
}

static void put_text(const char *name, mode_t mode, const char *text)
{
	char path[700];

	snprintf(path, sizeof(path), "%s/%s", top, name);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, mode);

	if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text) || close(fd))
		die(path);
}

static int run_rcp(const char *const *argv, const char *err)
{
	char log[700];
	struct victim v = {.argv = argv, .cwd = top, .err = log, .out = "/dev/null", .in_fd = -1, .out_fd = -1};

	snprintf(log, sizeof(log), "%s/log/%s", top, err);
	return victim_start(&v) ? victim_wait(&v, 30) : 999;
}

/* A line of a key file: name, 64 hexadecimal digits. */
static void read_key(void)
{
	char path[700], line[400] = "", *at;

	snprintf(path, sizeof(path), "%s/keys/eve.key", top);
	FILE *f = fopen(path, "r");

	while (f && fgets(line, sizeof(line), f) && line[0] == '#')
		;
	if (f)
		fclose(f);
	at = strrchr(line, ' ') ? strrchr(line, ' ') + 1 : line;
	for (size_t i = 0; i < sizeof(key); i++) {
		unsigned byte;

		if (sscanf(at + 2 * i, "%2x", &byte) != 1)
			die("the key file is not as it was");
		key[i] = (uint8_t)byte;
	}
}

static bool start_daemon(struct victim *v, const char *const *argv, const char *log)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(at);
	char conf[2500];

	for (int try = 0; try < 8; try++) {
		int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

		at.sin_port = 0;
		if (bind(fd, (const struct sockaddr *)(const void *)&at, sizeof(at)) ||
		    getsockname(fd, (struct sockaddr *)(void *)&at, &len))
			die("bind");
		close(fd);
		port = ntohs(at.sin_port);
		const char *user = geteuid() ? "" : "user = root\n";

		snprintf(conf, sizeof(conf), "listen = 127.0.0.1\nport = %u\nkeys = %s/keys\nhandshake-seconds = 2\n"
			 "[m]\npath = %s/w/target\nwritable = yes\nkeys = eve\n%s"
			 "[slow]\npath = %s/w/target\nwritable = yes\nkeys = eve\nbwlimit = 1M\n%s", port, top, top, user, top, user);
		put_text("conf", 0600, conf);
		*v = (struct victim){.argv = argv, .cwd = top, .err = log, .out = "/dev/null", .in_fd = -1, .out_fd = -1};
		if (!victim_start(v))
			return false;
		for (uint64_t until = evil_now() + 10 * RCP_SEC; evil_now() < until;) {
			int c = evil_dial(port);

			if (c >= 0) {
				close(c);
				return true;
			}
			nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
		}
		kill(v->pid, SIGKILL);
		victim_wait(v, 5);
	}
	return false;
}

/* ---- cases: true where the daemon's end did as it should ---- */

static bool hangs_up(struct evil *e)
{
	evil_drain(e);
	return evil_now() < e->until_ns;
}

static bool proves(struct evil *e)
{
	uint8_t wrong[RCP_TLS_KEY];

	memcpy(wrong, key, sizeof(wrong));
	wrong[0] ^= e->c->arg == 0;
	bool in = evil_tls(e, evil_dial(port), false, e->c->arg == 1 ? "mallory" : e->c->arg == 2 ? "eve\033[31m" : "eve", wrong);

	e->ctl = &e->tcp;
	return !in || (!evil_get(e) && !e->aborted); /* TLS 1.3: a client knows last */
}

/* What an honest client said once, on a connection of its own. */
static bool replays(struct evil *e)
{
	struct rcp_tls_params p = {.identity = "eve", .key = key};
	struct rcp_tls *tls = NULL;
	uint8_t first[4096], raw[4096], second[4096];
	struct rcp_err err = {0};
	struct pollfd w = {.events = POLLIN};

	if (rcp_tls_new(&p, &err, &tls))
		return false;
	rcp_tls_handshake(tls, &err);
	size_t n = rcp_tls_pull(tls, first, sizeof(first));
	int a = evil_dial(port), b = evil_dial(port);

	send(a, first, n, MSG_NOSIGNAL);
	w.fd = a;
	poll(&w, 1, 5000);
	ssize_t got = recv(a, raw, sizeof(raw), 0);

	if (got > 0)
		rcp_tls_feed(tls, raw, (size_t)got, &err);
	rcp_tls_handshake(tls, &err);
	size_t m = rcp_tls_pull(tls, second, sizeof(second));

	/* The proof of the first connection, where the second one asks for its own. */
	send(b, first, n, MSG_NOSIGNAL);
	w.fd = b;
	poll(&w, 1, 5000);
	got = recv(b, raw, sizeof(raw), 0);
	send(b, second, m, MSG_NOSIGNAL);
	e->pipe = (struct evil_chan){.rfd = b, .wfd = b};
	bool good = got > 0 && m > 0;

	for (uint64_t until = evil_now() + 8 * RCP_SEC; good && evil_now() < until;) {
		poll(&w, 1, 500);
		got = recv(b, raw, sizeof(raw), MSG_DONTWAIT);
		if (got == 0 || (got < 0 && poll(&w, 1, 0) > 0))
			break;
		good = evil_now() + 500 * RCP_MS < until;
	}
	close(a);
	rcp_tls_free(&tls);
	return good;
}

static bool request(struct evil *e)
{
	struct rcp_msg_module m = {.name = rcp_span_str("m")}, up = {.name = rcp_span_str("../m\033[31m")};

	if (!evil_tls(e, evil_dial(port), false, "eve", key))
		return false;
	e->ctl = &e->tcp;
	switch (e->c->arg) {
	case 0:
		evil_say_start(e);
		break;
	case 1:
		evil_say(e, RCP_MSG_MODULE, &m);
		break;
	case 2:
		evil_say(e, RCP_MSG_HELLO, &e->hello);
		evil_say_start(e);
		break;
	case 3:
		evil_say(e, RCP_MSG_HELLO, &e->hello);
		evil_say(e, RCP_MSG_HELLO, &e->hello);
		break;
	case 4:
		evil_say(e, RCP_MSG_HELLO, &e->hello);
		evil_say(e, RCP_MSG_MODULE, &m);
		evil_say(e, RCP_MSG_MODULE, &m);
		break;
	case 5:
		evil_say(e, RCP_MSG_HELLO, &e->hello);
		evil_say(e, RCP_MSG_MODULE, &up);
		break;
	case 6:
		evil_say(e, RCP_MSG_HELLO, &e->hello);
		evil_say(e, RCP_MSG_MODULE, &m);
		e->start.target = rcp_span_str("../../outside/new");
		evil_say_start(e);
		evil_say_names(e, NULL, true);
		break;
	case 7: /* no bytes more, but signs of life */
		evil_say(e, RCP_MSG_HELLO, &e->hello);
		break;
	case 8:
		evil_raw(e, "GET / HTTP/1.0\r\n\r\n", 18);
		break;
	}
	return hangs_up(e);
}

static bool raw(struct evil *e)
{
	static const uint8_t hello[] = {0x16, 3, 1, 2, 0, 1, 0, 1};

	int fd = evil_dial(port);

	e->pipe = (struct evil_chan){.rfd = fd, .wfd = fd};
	e->mute = true;
	if (e->c->arg == 1)
		evil_raw(e, hello, sizeof(hello));
	else if (e->c->arg == 2)
		evil_raw(e, "rcpD the rest of it is not there, and it is too long by far", 59);
	return hangs_up(e);
}

/* How often is it in the process' memory? -1: it can't be looked at. */
static int occurrences(pid_t pid, const uint8_t *what, size_t len)
{
	static uint8_t piece[(1 << 20) + 64];
	char path[64], line[500], rights[8];
	unsigned long from, to;
	int n = 0;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	FILE *maps = fopen(path, "r");

	snprintf(path, sizeof(path), "/proc/%d/mem", (int)pid);
	int mem = open(path, O_RDONLY | O_CLOEXEC);

	if (!maps || mem < 0)
		n = -1;
	while (n >= 0 && fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%lx-%lx %7s", &from, &to, rights) != 3 || rights[1] != 'w')
			continue;
		for (unsigned long at = from; at < to; at += 1 << 20) {
			size_t want = to - at < sizeof(piece) ? to - at : sizeof(piece);
			ssize_t got = pread(mem, piece, want, (off_t)at);
			const uint8_t *p = piece, *end = piece + (got > 0 ? got : 0);

			/* The last bytes of a piece are the next one's first. */
			while ((p = memmem(p, (size_t)(end - p), what, len)) && p - piece < 1 << 20) {
				n++;
				p++;
			}
		}
	}
	if (maps)
		fclose(maps);
	if (mem >= 0)
		close(mem);
	return n;
}

/* START's secret: in the run, and nowhere else, as soon as START has been read and nothing has followed it. */
static bool secret_once(struct evil *e)
{
	int n = 0;

	e->start.target = rcp_span_str("");
	evil_say_start(e);
	for (int i = 0; i < 10 && n >= 0; i++) { /* START is read by then, or there is none */
		nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
		n = occurrences(looked_at, e->secret, sizeof(e->secret));
	}
	if (n < 0)
		printf("# its memory can't be looked at: not by who is not root\n");
	else if (n != 1)
		printf("# the secret is in its memory %d times\n", n);
	return n < 0 || n == 1;
}

static bool as_client(struct evil *e, const char *module)
{
	struct rcp_msg_module m = {.name = rcp_span_str(module)};

	if (!evil_tls(e, evil_dial(port), false, "eve", key))
		return false;
	e->ctl = &e->tcp;
	evil_say(e, RCP_MSG_HELLO, &e->hello);
	evil_say(e, RCP_MSG_MODULE, &m);
	return true;
}

/* 0: none; -1: this kernel does not tell. */
static pid_t only_child(pid_t pid)
{
	char path[64], text[64] = "";

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid, (int)pid);
	FILE *f = fopen(path, "r");

	if (!f)
		return -1;
	text[fread(text, 1, sizeof(text) - 1, f)] = 0;
	fclose(f);
	return (pid_t)atoi(text);
}

static bool secret(struct evil *e)
{
	if (!as_client(e, "m") || !evil_await(e, RCP_MSG_HELLO))
		return false;
	looked_at = only_child(daemon_pid);
	if (looked_at < 0)
		printf("# the kernel does not tell whose children are whose\n");
	bool good = looked_at < 0 || (looked_at > 0 && secret_once(e));

	evil_hang_up(e);
	return good;
}

static bool rings(struct evil *e)
{
	bool good = as_client(e, "m") && guard_rings(e);

	evil_hang_up(e);
	return good;
}

static bool names(struct evil *e)
{
	bool good = as_client(e, "m") && guard_names(e);

	evil_hang_up(e);
	return good;
}

/* rcp --server --restrict, which has to end with its pipe; memory beyond what is granted is told. */
static bool restricted(struct evil *e, bool (*act)(struct evil *), long most_kib)
{
	char dir[700], log[700];
	const char *argv[] = {rcp_program, "--server", dir, NULL};
	struct victim v = {.argv = argv, .cwd = top, .err = log};
	int to[2], from[2];

	snprintf(dir, sizeof(dir), "--restrict=%s/w/target", top);
	snprintf(log, sizeof(log), "%s/log/restricted", top);
	if (pipe2(to, O_CLOEXEC) < 0 || pipe2(from, O_CLOEXEC) < 0)
		return false;
	v.in_fd = to[0];
	v.out_fd = from[1];
	if (!victim_start(&v))
		return false;
	close(to[0]);
	close(from[1]);
	fcntl(to[1], F_SETFL, O_NONBLOCK);
	fcntl(from[0], F_SETFL, O_NONBLOCK);
	e->pipe = (struct evil_chan){.rfd = from[0], .wfd = to[1]};
	looked_at = v.pid;
	bool good = evil_greet(e) && act(e);

	evil_hang_up(e);
	if (victim_wait(&v, 25) >= 1000)
		good = printf("# it does not end\n") < 0;
	printf("# %ld KiB of memory of %ld\n", v.peak_kib, most_kib);
	if (v.peak_kib > most_kib && !getenv("EVIL_SANITIZED"))
		good = false;
	return good;
}

static bool rings_restricted(struct evil *e)
{
	return restricted(e, guard_rings, 600 << 10);
}

/* 128 MiB for names, and what an rcp takes at rest. */
static bool names_restricted(struct evil *e)
{
	return restricted(e, guard_names, (128 + 24) << 10);
}

static bool secret_restricted(struct evil *e)
{
	return restricted(e, secret_once, 64 << 10);
}

static bool patterns(struct evil *e)
{
	bool good = as_client(e, "m") && guard_patterns(e);

	evil_hang_up(e);
	return good;
}

static bool patterns_restricted(struct evil *e)
{
	return restricted(e, guard_patterns, (128 + 24) << 10);
}

/* 256 MiB for chunks; what reads them ahead from the disk is the kernel's. */
static bool staging_restricted(struct evil *e)
{
	return restricted(e, guard_staging, (256 + 32) << 10);
}

/* Chunks that are no chunks are bytes that came, and bwlimit counts them: 1 MB a second, of which half a second's is free. */
static bool paced(struct evil *e)
{
	static const uint8_t junk[EVIL_CHUNK];
	uint64_t begun;
	uint32_t id;

	e->start.target = rcp_span_str("");
	if (!as_client(e, "slow") || !evil_request(e) || !evil_control(e) || !evil_link(e))
		return false;
	id = evil_name_file(e, "f", EVIL_F_BYTES);
	if (!evil_answered(e, id))
		return false;
	begun = evil_now();
	for (int i = 0; i < 48; i++) {
		struct rcp_chunk c = {.generation = e->ring.generation, .entry = id};
		uint32_t slot = evil_open_slot(e);

		while (e->taken[slot] && evil_get(e))
			slot = evil_open_slot(e);
		if (e->taken[slot])
			return false;
		evil_send_chunk(e, slot, &c, junk, sizeof(junk)); /* its header says none */
	}
	evil_hang_up(e);
	return evil_now() - begun > RCP_SEC; /* 3 MB: 2.4 s at least */
}

static const struct daemon_case cases[] = {
	{"proof: a wrong key", NULL, proves, 0},
	{"proof: an unknown name", NULL, proves, 1},
	{"proof: a name of terminal escapes", NULL, proves, 2},
	{"proof: replayed", NULL, replays, 0},
	{"order: START first", "broke the protocol", request, 0},
	{"order: MODULE first", "broke the protocol", request, 1},
	{"order: START without a module", "without a module", request, 2},
	{"order: HELLO twice", "broke the protocol", request, 3},
	{"order: MODULE twice", "broke the protocol", request, 4},
	{"a module of terminal escapes", "there is no module", request, 5},
	{"a target outside", "..", request, 6},
	{"half-open: HELLO, and then signs of life", NULL, request, 7},
	{"garbage inside TLS", NULL, request, 8},
	{"half-open: nothing", NULL, raw, 0},
	{"half-open: half a ClientHello", NULL, raw, 1},
	{"garbage", NULL, raw, 2},
	{"START's secret", NULL, secret, 0},
	{"START's secret, restricted", NULL, secret_restricted, 0},
	{"rings side by side", NULL, rings, 0},
	{"rings side by side, restricted", NULL, rings_restricted, 0},
	{"more names of a list than it takes", "more names than are taken here", names, 2},
	{"more names of a list than it takes, restricted", "more names than are taken here", names_restricted, 2},
	{"more arguments than it takes, restricted", "more names than are taken here", names_restricted, 3},
	{"as many names of a list as it takes", NULL, names_restricted, 0},
	{"as many arguments as it takes", NULL, names_restricted, 1},
	{"patterns that stand for more than it takes", NULL, patterns, 0},
	{"patterns that stand for more than it takes, restricted", NULL, patterns_restricted, 0},
	{"chunks staged, restricted", NULL, staging_restricted, 0},
	{"chunks with damaged headers under a bwlimit", NULL, paced, 0},
};

static void run_case(const struct daemon_case *d)
{
	const struct evil_case c = {.name = d->name, .arg = d->arg};
	struct evil e = {.c = &c, .initiator = true, .source = true, .link = EVIL_PIPE, .top = top, .until_ns = evil_now() + (getenv("EVIL_SANITIZED") ? 90 : 20) * RCP_SEC};
	char url[64], path[700], words[2000] = "";
	const char *argv[] = {rcp_program, "--key=keys/eve.key", "--retries=0", url, NULL};
	char *before = world_look(top, false), *target = world_look(top, true);

	evil_init(&e);
	e.pipe = (struct evil_chan){.rfd = -1, .wfd = -1};
	snprintf(path, sizeof(path), "%s/log/report", top);
	e.report = fopen(path, "w");
	bool good = d->act(&e);

	evil_free(&e);
	if (e.report)
		fclose(e.report);
	FILE *f = fopen(path, "r");

	if (f) {
		words[fread(words, 1, sizeof(words) - 1, f)] = 0;
		fclose(f);
	}
	if (!good)
		printf("# it was let in, or held on\n");
	if (d->says ? !strstr(words, d->says) : strstr(words, "word: ") && !strstr(words, "within"))
		good = printf("# it says: %s\n", words) < 0;
	snprintf(url, sizeof(url), "rcp://127.0.0.1:%u/", port);
	if (run_rcp(argv, "honest"))
		good = printf("# an honest client is not served any more\n") < 0;
	good &= world_check(top, before, target, NULL, stdout);
	free(before);
	free(target);
	printf("%s %u - daemon: %s\n", good ? "ok" : "not ok", ++number, d->name);
	bad += !good;
}

int evil_daemon_main(const char *rcp, const char *dir, const char *only)
{
	char path[700], log[700];
	const char *keygen[] = {rcp, "--keygen", "eve", "keys/eve.key", NULL};
	const char *argv[] = {rcp, "--daemon", "--config=conf", NULL};
	struct victim v;

	rcp_program = rcp;
	signal(SIGPIPE, SIG_IGN);
	snprintf(top, sizeof(top), "%s/rcp-evil.XXXXXX", dir);
	if (!mkdtemp(top))
		die("mkdtemp");
	world_make(top, false);
	snprintf(path, sizeof(path), "%s/keys", top);
	snprintf(log, sizeof(log), "%s/log/daemon", top);
	if (mkdir(path, 0700) || run_rcp(keygen, "keygen"))
		die("no key");
	read_key();
	if (!start_daemon(&v, argv, log))
		die("the daemon does not start");
	daemon_pid = v.pid;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (!only || strstr(cases[i].name, only))
			run_case(&cases[i]);
	}
	kill(v.pid, SIGTERM);
	int status = victim_wait(&v, 20);
	char text[20000] = "";
	FILE *f = fopen(log, "r");

	if (f) {
		text[fread(text, 1, sizeof(text) - 1, f)] = 0;
		fclose(f);
	}
	bool good = status < 1000 && !strchr(text, '\033') && !strstr(text, "Sanitizer") && !strstr(text, "runtime error");

	if (!good)
		printf("# status %d, log: %s\n", status, text);
	printf("%s %u - daemon: it ends, and its log is tame\n", good ? "ok" : "not ok", ++number);
	printf("1..%u\n", number);
	if (!getenv("EVIL_KEEP"))
		world_remove(top);
	return bad || !good;
}
