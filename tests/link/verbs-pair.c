/*
 * Both ends of a verbs link over real devices of one host, in two processes that talk over a
 * socket pair as two rcp would over their control connection. Moves chunks, checks every byte,
 * measures. For the lab in tests/vm (rxe, siw); 77 where there is no RDMA.
 *
 *   verbs-pair [--from=DEV] [--to=DEV] [--sink-initiates] [--oob] [--pair] [--chunks=N]
 *              [--bytes=N] [--slots=N] [--sink-slots=N] [--varying] [--hold] [--no-check]
 *              [--kill=source|sink] [--close-early] [--close-after=MS] [--evil=WHAT] [--bad-proof]
 * [--ipv6]
 * [--list]
 *              [--mapped] [--gid-index=N] [--addr=ADDR] [--remote=IPV4] [--serve=PORT |
 * --peer=IPV4:PORT]
 *
 * On two hosts: the sink with --serve, the source with --peer, and otherwise the same options.
 */
#include "base/clock.h"
#include "verbs-end.h"
#include "wire/msg.h"

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <uv.h>

#define SKIP	    77
#define ATTEMPT	    7
#define DEADLINE_MS 3000
#define WATCHDOG_MS 120000
#define PORTS_MAX   16

struct pair_options opt = {.chunks = 200, .bytes = 1 << 20, .slots = 32};

void end_die(const struct end *e, const char *what, const struct rcp_err *err)
{
	char line[4096] = "";

	if (err)
		rcp_err_format(err, line, sizeof(line));
	fprintf(stderr, "%s: %s%s%s\n", e->name, what, line[0] ? ": " : "", line);
	_exit(1);
}

/* ---- the socket pair ---- */

void end_say(struct end *e, enum talk what, const void *data, size_t len)
{
	uint8_t buf[65536];

	rcp_put_u32(buf, (uint32_t)len);
	buf[4] = (uint8_t)what;
	if (len)
		memcpy(buf + 5, data, len);
	if (send(e->fd, buf, len + 5, MSG_NOSIGNAL) < 0 && !opt.kill && !opt.close_early)
		end_die(e, "send failed", NULL);
}

/* Blocks, though libuv has made the descriptor non-blocking. */
static bool hear_all(int fd, void *buf, size_t len)
{
	for (size_t got = 0; got < len;) {
		struct pollfd wait = {.fd = fd, .events = POLLIN};

		poll(&wait, 1, 10000);
		ssize_t n = recv(fd, (uint8_t *)buf + got, len - got, 0);

		if (n <= 0)
			return false;
		got += (size_t)n;
	}
	return true;
}

/* Blocks for the rest of a message that has begun. Its length, or -1. */
static ssize_t hear(const struct end *e, enum talk *what, uint8_t *buf, size_t size)
{
	uint8_t head[5];

	if (!hear_all(e->fd, head, sizeof(head)))
		return -1;
	size_t len = rcp_get_u32(head);

	*what = head[4];
	if (len > size || !hear_all(e->fd, buf, len))
		return -1;
	return (ssize_t)len;
}

/* ---- both ---- */

static void on_up(void *arg)
{
	struct end *e = arg;

	e->up = true;
	if (e->source) {
		if (e->ring_known)
			bulk_start(e);
		return;
	}
	struct rcp_ring_info ring;

	printf("%s: up: %s, %s\n", e->name, e->link->caps.fabric, e->link->caps.detail);
	e->link->ops->ring_get(e->link, &ring);
	e->held = calloc(ring.slots, sizeof(*e->held));
	e->seen = calloc(opt.chunks, sizeof(*e->seen));
	end_say(e, TALK_RING, &ring, sizeof(ring));
}

static void stop_talk(struct end *e)
{
	if (e->talk_open)
		uv_close((uv_handle_t *)&e->talk, NULL);
	e->talk_open = false;
}

static void stop_all(struct end *e)
{
	if (e->listener)
		rcp_rdma_listener_close(e->listener, NULL, NULL);
	e->listener = NULL;
	stop_talk(e);
	uv_close((uv_handle_t *)&e->watchdog, NULL);
}

static void on_down(void *arg, const struct rcp_err *cause)
{
	struct end *e = arg;

	if (e->down)
		end_die(e, "down twice", NULL);
	e->down = true;
	e->cause = *cause;
	if (e->sent != e->posted)
		end_die(e, "down before every sent", NULL);
	if (e->source && e->mem)
		e->link->ops->unreg(e->link, e->mem);
	rcp_link_free(&e->link);
	stop_all(e);
}

static const struct rcp_link_events events = {
	.up = on_up, .sent = bulk_sent, .room = bulk_room, .chunk = bulk_chunk, .down = on_down};

static void oob_start(struct end *e, const struct rcp_rdma_oob *peer)
{
	const struct rcp_rdma_port *port;
	struct rcp_rdma_oob mine;
	struct rcp_err err = {0};
	unsigned n;

	port = rcp_rdma_ports(e->rdma, &n);
	if (rcp_rdma_oob_new(e->rdma, &e->loop, &e->params, 0, port->gids[0].type, e->peer_imm,
			     &err, &e->link, &mine) != 0)
		end_die(e, "oob_new", &err);
	if (peer && rcp_rdma_oob_connect(e->link, peer, &err) != 0)
		end_die(e, "oob_connect", &err);
	end_say(e, TALK_OOB, &mine, sizeof(mine));
}

static bool addr_wanted(const struct sockaddr_storage *a)
{
	return opt.ipv6 ? a->ss_family == AF_INET6 : a->ss_family == AF_INET;
}

static void cm_start(struct end *e, const struct rcp_rdma_port *peer)
{
	const struct rcp_rdma_port *port;
	struct rcp_rdma_connect how = {.proof = e->proof,
				       .deadline_ms = DEADLINE_MS,
				       .peer_imm = peer->imm,
				       .peer_max_msg_bytes = peer->max_msg_bytes};
	struct rcp_err err = {0};
	unsigned n;

	port = rcp_rdma_ports(e->rdma, &n);
	for (unsigned i = 0; i < port->addr_count; i++) {
		if (addr_wanted(&port->addrs[i]))
			how.local = port->addrs[i];
	}
	for (unsigned i = 0; i < peer->addr_count; i++) {
		if (addr_wanted(&peer->addrs[i]))
			how.remote = peer->addrs[i];
	}
	if (opt.remote)
		inet_pton(AF_INET, opt.remote, &((struct sockaddr_in *)&how.remote)->sin_addr);
	if (how.remote.ss_family == AF_INET6)
		((struct sockaddr_in6 *)&how.remote)->sin6_port = htons(peer->cm_port);
	else
		((struct sockaddr_in *)&how.remote)->sin_port = htons(peer->cm_port);
	if (rcp_rdma_connect(e->rdma, &e->loop, &e->params, &how, &err, &e->link) != 0)
		end_die(e, "connect", &err);
}

static void on_caps(struct end *e, const uint8_t *data, size_t len)
{
	struct rcp_rdma_port ports[PORTS_MAX];
	struct rcp_err err = {0};
	unsigned n;

	if (rcp_rdma_ports_decode(rcp_span_of(data, len), &err, ports, PORTS_MAX, &n) != 0 || !n)
		end_die(e, "caps", &err);
	e->peer_imm = ports[0].imm;
	if (!e->initiator)
		return;
	if (opt.oob)
		oob_start(e, NULL);
	else
		cm_start(e, &ports[0]);
}

static void on_oob(struct end *e, const void *data)
{
	struct rcp_rdma_oob peer;
	struct rcp_err err = {0};

	memcpy(&peer, data, sizeof(peer));
	if (!e->initiator)
		oob_start(e, &peer);
	else if (rcp_rdma_oob_connect(e->link, &peer, &err) != 0)
		end_die(e, "oob_connect", &err);
}

static void report(struct end *e)
{
	double s = (double)(rcp_now_ns() - e->start_ns) / 1e9;

	printf("%s: %u chunks, %.1f MB in %.2f s: %.1f MB/s, %s\n", e->name, e->posted,
	       (double)e->total_bytes / 1e6, s, (double)e->total_bytes / 1e6 / s,
	       e->link->caps.detail);
}

static void on_message(struct end *e, enum talk what, const uint8_t *data, size_t len)
{
	switch (what) {
	case TALK_CAPS:
		on_caps(e, data, len);
		break;
	case TALK_OOB:
		on_oob(e, data);
		break;
	case TALK_RING:
		memcpy(&e->ring, data, sizeof(e->ring));
		e->ring_known = true;
		if (e->up)
			bulk_start(e);
		break;
	case TALK_DONE:
		report(e);
		rcp_link_close(e->link);
		break;
	case TALK_POSTED:
		e->peer_posted = rcp_get_u32(data);
		break;
	}
}

static void on_talk(uv_poll_t *poll, int status, int what)
{
	struct end *e = poll->data;
	uint8_t buf[65536];
	enum talk type;
	ssize_t n = hear(e, &type, buf, sizeof(buf));

	(void)status;
	(void)what;
	if (n >= 0) {
		on_message(e, type, buf, (size_t)n);
		return;
	}
	stop_talk(e);
	/* The peer was refused, gave up, and no link will come; or, without rdma_cm, only this says
	 * that it is dead. */
	if (!e->link && !e->down)
		stop_all(e);
	else if (e->link && opt.oob)
		rcp_link_close(e->link);
}

/* The path is dead and only another connection knows. */
static void on_close_after(uv_timer_t *timer)
{
	struct end *e = timer->data;

	if (e->link) {
		printf("%s: closes now, %u posted, %u sent\n", e->name, e->posted, e->sent);
		rcp_link_close(e->link);
	}
	uv_close((uv_handle_t *)timer, NULL);
}

static void on_watchdog(uv_timer_t *timer)
{
	end_die(timer->data, "hangs", NULL);
}

static const struct rcp_link_params *on_expect(void *arg, uint16_t id, struct rcp_rdma_proof *proof,
					       bool *peer_imm)
{
	struct end *e = arg;

	if (id != ATTEMPT || e->link)
		return NULL;
	*proof = e->proof;
	*peer_imm = e->peer_imm;
	return &e->params;
}

static void on_accepted(void *arg, uint16_t id, struct rcp_link *link)
{
	struct end *e = arg;

	(void)id;
	e->link = link;
}

static void say_caps(struct end *e)
{
	struct rcp_wr w = {.max = 60000};
	unsigned n;
	const struct rcp_rdma_port *ports = rcp_rdma_ports(e->rdma, &n);

	for (unsigned i = 0; i < n; i++)
		rcp_rdma_port_encode(&w, &ports[i]);
	end_say(e, TALK_CAPS, w.data, w.len);
	rcp_wr_free(&w);
}

static void start(struct end *e)
{
	struct rcp_rdma_options o = {.device = e->source ? opt.from : opt.to,
				     .gid_index = opt.gid_index ? atoi(opt.gid_index) : -1,
				     .addr = opt.addr,
				     .tos = -1,
				     .sl = -1,
				     .pkey = -1,
				     .no_imm = opt.pair};
	struct rcp_rdma_listen_ops ops = {.arg = e, .expect = on_expect, .accepted = on_accepted};
	struct rcp_err err = {0};

	if (rcp_rdma_open(&o, &err, &e->rdma) != 0)
		end_die(e, "open", &err);
	e->params = (struct rcp_link_params){
		.role = e->source ? RCP_ROLE_SOURCE : RCP_ROLE_SINK,
		.initiator = e->initiator,
		.id = ATTEMPT,
		.slots = !e->source && opt.sink_slots ? opt.sink_slots : opt.slots,
		.chunk_bytes = opt.bytes,
		.generation = e->source ? 0 : GENERATION,
		.events = &events,
		.arg = e,
	};
	memset(e->proof.session, 0x55, sizeof(e->proof.session));
	memset(e->proof.mine, e->initiator ? 1 : 2, sizeof(e->proof.mine));
	memset(e->proof.theirs, e->initiator ? 2 : 1, sizeof(e->proof.theirs));
	if (opt.bad_proof && e->initiator)
		e->proof.mine[31] ^= 1;
	uv_loop_init(&e->loop);
	uv_poll_init(&e->loop, &e->talk, e->fd);
	uv_timer_init(&e->loop, &e->watchdog);
	e->talk.data = e->watchdog.data = e->close_after.data = e;
	if (opt.close_after) {
		uv_timer_init(&e->loop, &e->close_after);
		uv_timer_start(&e->close_after, on_close_after, opt.close_after, 0);
	}
	uv_poll_start(&e->talk, UV_READABLE | UV_DISCONNECT, on_talk);
	e->talk_open = true;
	uv_timer_start(&e->watchdog, on_watchdog, WATCHDOG_MS, 0);
	if (!e->initiator && !opt.oob &&
	    rcp_rdma_listen(e->rdma, &e->loop, &ops, &err, &e->listener))
		end_die(e, "listen", &err);
	say_caps(e);
}

/* What the source posted before it closed must have arrived, though nobody said how much it was. */
static bool all_arrived(struct end *e)
{
	enum talk what = 0;
	uint8_t buf[65536];
	ssize_t n = 0;

	/* Here, unless it came while the loop still ran. */
	while (!e->peer_posted && n >= 0) {
		n = hear(e, &what, buf, sizeof(buf));
		if (what == TALK_POSTED && n == 4)
			e->peer_posted = rcp_get_u32(buf);
	}
	if (e->arrived != e->peer_posted)
		printf("%s: %u chunks arrived of %u\n", e->name, e->arrived, e->peer_posted);
	return e->arrived && e->arrived == e->peer_posted;
}

/* One of both broke the protocol; the other says so, and the one is left. */
static int judge_evil(const struct end *e)
{
	return !e->evil &&
	       (e->cause.code != RCP_E_CONNECT || !strstr(e->cause.text, "broke the protocol"));
}

static int judge(struct end *e)
{
	char line[4096];

	rcp_err_format(&e->cause, line, sizeof(line));
	printf("%s: down: %s\n", e->name, rcp_err_is(&e->cause) ? line : "as wanted");
	if (opt.evil)
		return judge_evil(e);
	if (opt.close_after)
		return e->cause.code != RCP_OK && e->cause.code != RCP_E_LINK;
	if (opt.kill)
		return e->cause.code != RCP_E_LINK && !opt.oob;
	if (opt.bad_proof)
		return e->initiator ? e->cause.code != RCP_E_CONNECT : e->down;
	if (e->source) {
		uint8_t posted[4];

		rcp_put_u32(posted, e->posted);
		end_say(e, TALK_POSTED, posted, sizeof(posted));
		return e->cause.code != RCP_OK || e->failed ||
		       (e->posted != opt.chunks && !opt.close_early);
	}
	return e->cause.code != RCP_E_LINK || !all_arrived(e) ||
	       (e->arrived != opt.chunks && !opt.close_early);
}

static int run(bool source, int fd)
{
	struct end *e = calloc(1, sizeof(*e));

	if (!e)
		return 1;
	e->source = source;
	e->initiator = source != opt.sink_initiates;
	e->name = source ? "source" : "sink";
	e->fd = fd;
	start(e);
	uv_run(&e->loop, UV_RUN_DEFAULT);
	int status = judge(e);

	if (uv_loop_close(&e->loop) != 0)
		end_die(e, "handles are left", NULL);
	rcp_rdma_close(&e->rdma);
	bulk_free(e);
	free(e);
	close(fd);
	fflush(stdout);
	return status;
}

static void list(const struct rcp_rdma *rdma)
{
	unsigned n;
	const struct rcp_rdma_port *p = rcp_rdma_ports(rdma, &n);

	for (; n--; p++)
		printf("%u %s/%u layer %d transport %d mtu %u rate %u Mb/s lid %u max message %u "
		       "imm %d numa %u netdev %s gids %u (first type %d index %u) addrs %u\n",
		       p->index, p->device, p->number, (int)p->layer, (int)p->transport, p->mtu,
		       p->rate_mbps, p->lid, p->max_msg_bytes, p->imm, p->numa, p->netdev,
		       p->gid_count, (int)p->gids[0].type, p->gids[0].index, p->addr_count);
	printf("remarks: %s\n", rcp_rdma_remarks(rdma));
}

/* Two devices, unless they are named: the first for the source, the last for the sink. */
static int choose(void)
{
	static char from[64], to[64];
	struct rcp_rdma_options o = {.gid_index = -1, .tos = -1, .sl = -1, .pkey = -1};
	struct rcp_err err = {0};
	struct rcp_rdma *rdma;
	char line[4096];
	unsigned n;

	if (rcp_rdma_open(&o, &err, &rdma) != 0) {
		printf("SKIP: %s\n", rcp_err_format(&err, line, sizeof(line)));
		return SKIP;
	}
	const struct rcp_rdma_port *p = rcp_rdma_ports(rdma, &n);

	snprintf(from, sizeof(from), "%s", p[0].device);
	snprintf(to, sizeof(to), "%s", p[n - 1].device);
	if (opt.list)
		list(rdma);
	rcp_rdma_close(&rdma);
	opt.from = opt.from ? opt.from : from;
	opt.to = opt.to ? opt.to : to;
	return 0;
}

static const struct knob {
	const char *name;
	bool *flag;
	const char **text;
	uint32_t *number;
} knobs[] = {
	{"from", .text = &opt.from},
	{"to", .text = &opt.to},
	{"kill", .text = &opt.kill},
	{"evil", .text = &opt.evil},
	{"gid-index", .text = &opt.gid_index},
	{"addr", .text = &opt.addr},
	{"remote", .text = &opt.remote},
	{"chunks", .number = &opt.chunks},
	{"bytes", .number = &opt.bytes},
	{"slots", .number = &opt.slots},
	{"close-after", .number = &opt.close_after},
	{"sink-slots", .number = &opt.sink_slots},
	{"sink-initiates", .flag = &opt.sink_initiates},
	{"oob", .flag = &opt.oob},
	{"pair", .flag = &opt.pair},
	{"varying", .flag = &opt.varying},
	{"hold", .flag = &opt.hold},
	{"no-check", .flag = &opt.no_check},
	{"close-early", .flag = &opt.close_early},
	{"bad-proof", .flag = &opt.bad_proof},
	{"ipv6", .flag = &opt.ipv6},
	{"list", .flag = &opt.list},
	{"mapped", .flag = &opt.mapped},
	{"serve", .text = &opt.serve},
	{"peer", .text = &opt.peer},
};
#define KNOBS (sizeof(knobs) / sizeof(knobs[0]))

static void parse(int argc, char **argv)
{
	struct option longs[KNOBS + 1] = {0};
	int at, c;

	for (size_t i = 0; i < KNOBS; i++)
		longs[i] =
			(struct option){.name = knobs[i].name, .has_arg = !knobs[i].flag, .val = 1};
	while ((c = getopt_long(argc, argv, "", longs, &at)) == 1) {
		const struct knob *k = &knobs[at];

		if (k->flag)
			*k->flag = true;
		else if (k->text)
			*k->text = optarg;
		else
			*k->number = (uint32_t)strtoul(optarg, NULL, 0);
	}
	if (c != -1 || optind != argc) {
		fprintf(stderr, "verbs-pair: its options are at the top of its source\n");
		exit(2);
	}
}

/* The killed end can't judge; in every other case both must be content. */
static int outcome(int mine, int child_status, bool child_source)
{
	bool child_killed = WIFSIGNALED(child_status) && WTERMSIG(child_status) == SIGKILL;

	if (opt.kill && child_source == !strcmp(opt.kill, "source"))
		return mine || !child_killed;
	return mine || !WIFEXITED(child_status) || WEXITSTATUS(child_status);
}

/* A TCP connection instead of the socket pair. */
static int other_host(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET};
	const char *colon = opt.peer ? strchr(opt.peer, ':') : NULL;
	char host[32] = "0.0.0.0";
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	if (colon)
		snprintf(host, sizeof(host), "%.*s", (int)(colon - opt.peer), opt.peer);
	a.sin_port = htons((uint16_t)strtoul(colon ? colon + 1 : opt.serve, NULL, 10));
	if (inet_pton(AF_INET, host, &a.sin_addr) != 1)
		return -1;
	/* The other end may still be starting. */
	for (int tries = 100; colon; tries--) {
		if (connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0)
			return fd;
		if (!tries)
			return -1;
		usleep(200000);
	}
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, (struct sockaddr *)&a, sizeof(a)) != 0 || listen(fd, 1) != 0)
		return -1;
	return accept4(fd, NULL, NULL, SOCK_CLOEXEC);
}

static int one_end(void)
{
	int fd = other_host();

	if (fd < 0) {
		perror("verbs-pair: no connection to the other host");
		return 1;
	}
	int ret = run(opt.peer, fd);

	printf("verbs-pair: %s\n", ret ? "FAILED" : "ok");
	return ret;
}

int main(int argc, char **argv)
{
	int fds[2], status;

	parse(argc, argv);
	int ret = choose();

	if (ret)
		return ret;
	if (opt.serve || opt.peer)
		return one_end();
	/* The killed end is the child, so that somebody is left to judge. */
	bool child_source = opt.kill && !strcmp(opt.kill, "source");

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0)
		return 1;
	pid_t pid = fork();

	if (pid == 0) {
		close(fds[0]);
		exit(run(child_source, fds[1]));
	}
	close(fds[1]);
	ret = run(!child_source, fds[0]);
	if (waitpid(pid, &status, 0) != pid)
		return 1;
	ret = outcome(ret, status, child_source);
	printf("verbs-pair: %s\n", ret ? "FAILED" : "ok");
	return ret;
}
