/* What an honest end says, step by step. */
#include "evil.h"
#include "nic.h"

#include "base/clock.h"
#include "boot/ctl.h"
#include "boot/preamble.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- start ---- */

static uint64_t flags_of(const char *opts)
{
	uint64_t f = 0;

	for (; opts && *opts; opts++)
		f |= *opts == 'r'   ? RCP_OPT_RECURSIVE
		     : *opts == 'a' ? RCP_OPT_ARCHIVE | RCP_OPT_TIMES | RCP_OPT_RECURSIVE
		     : *opts == 'p' ? RCP_OPT_TIMES
		     : *opts == 'n' ? RCP_OPT_NO_RESUME
		     : *opts == 'd' ? RCP_OPT_TARGET_DIR
		     : *opts == 'v' ? RCP_OPT_VERIFY
				    : 0;
	return f;
}

uint8_t evil_kind(const struct evil *e)
{
	return e->link == EVIL_PIPE    ? RCP_LINK_PIPE
	       : e->link & EVIL_ANY_OOB ? RCP_LINK_RDMA_OOB
	       : evil_is_rdma(e) ? RCP_LINK_RDMA_CM
				       : RCP_LINK_TCP;
}

bool evil_is_rdma(const struct evil *e)
{
	return (e->link & EVIL_RDMA) != 0;
}

bool evil_is_sealed(const struct evil *e)
{
	return e->link & EVIL_ANY_SEALED;
}

void evil_init(struct evil *e)
{
	struct rcp_err err = {0};
	static char target[4096];

	snprintf(target, sizeof(target), "%s/w/target", e->top);
	rcp_secret_random(e->secret, sizeof(e->secret), &err);
	rcp_secret_random(e->session, sizeof(e->session), &err);
	e->ctl = &e->pipe;
	e->data = e->listener = e->tcp.rfd = e->tcp.wfd = -1;
	e->last_out_ns = evil_now();
	e->hello = (struct rcp_msg_hello){.magic = RCP_MAGIC,
					  .version_min = RCP_VERSION_MIN,
					  .version_max = RCP_VERSION_MAX,
					  .features = RCP_FEATURE_BUNDLES | RCP_FEATURE_RESUME | RCP_FEATURE_OOB | RCP_FEATURE_SEAL,
					  .software = rcp_span_str("rcp evil")};
	e->start = (struct rcp_msg_start){.role = e->source ? RCP_ROLE_SINK : RCP_ROLE_SOURCE,
					  .transports = (uint8_t)(1u << evil_kind(e)),
					  .encrypt = e->link & EVIL_RDMA_SEALED ? RCP_ENCRYPT_ALWAYS
						     : evil_is_sealed(e) || e->link == EVIL_PIPE ? RCP_ENCRYPT_AUTO
												 : RCP_ENCRYPT_NEVER,
					  .connect = e->link & EVIL_ANY_OOB ? RCP_CONNECT_OOB : RCP_CONNECT_CM,
					  .family = 4,
					  .tos = UINT16_MAX,
					  .sl = UINT16_MAX,
					  .pkey = UINT32_MAX,
					  .streams = 1,
					  .chunk_bytes = EVIL_CHUNK,
					  .slots = EVIL_SLOTS,
					  .bundle_bytes = 16384,
					  .flags = flags_of(e->c->opts),
					  .target = rcp_span_str(e->source ? target : "")};
	memcpy(e->start.secret.b, e->secret, sizeof(e->secret));
	memcpy(e->start.session.b, e->session, sizeof(e->session));
	e->link_id = 1;
}

bool evil_marker(struct evil *e)
{
	struct evil_chan *c = &e->pipe;
	bool first = true;

	if (!e->initiator) {
		evil_raw(e, RCP_CTL_MARKER, RCP_CTL_MARKER_LEN);
		return true;
	}
	while (c->in_len < RCP_CTL_MARKER_LEN) {
		struct pollfd w = {.fd = c->rfd, .events = POLLIN};
		uint8_t b;

		if (!first && (evil_now() > e->until_ns || poll(&w, 1, 1000) < 0))
			return false;
		first = false;
		ssize_t n = read(c->rfd, &b, 1);

		if (n == 0)
			return false;
		if (n != 1)
			continue;
		if (!c->in)
			c->in = malloc(c->in_cap = 65536);
		c->in[c->in_len++] = b;
	}
	bool right = !memcmp(c->in, RCP_CTL_MARKER, RCP_CTL_MARKER_LEN);

	c->in_len = 0;
	return right;
}

bool evil_greet(struct evil *e)
{
	if (!evil_marker(e))
		return false;
	evil_say(e, RCP_MSG_HELLO, &e->hello);
	return evil_await(e, RCP_MSG_HELLO);
}

void evil_say_start(struct evil *e)
{
	evil_say(e, RCP_MSG_START, &e->start);
}

void evil_say_names(struct evil *e, const char *path, bool last)
{
	struct rcp_wr w = {.max = 65536};
	struct rcp_rec_path rec = {.path = rcp_span_str(path)};

	if (path)
		rcp_rec_encode(&w, RCP_REC_PATH, &rec);
	struct rcp_msg_names m = {.last = last, .paths = rcp_span_of(w.data, w.len)};

	evil_say(e, RCP_MSG_NAMES, &m);
	rcp_wr_free(&w);
}

static int listen_here(uint16_t *port)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || bind(fd, (const struct sockaddr *)(const void *)&at, sizeof(at)) < 0 || listen(fd, 8) < 0 ||
	    getsockname(fd, (struct sockaddr *)(void *)&at, &len) < 0)
		return -1;
	*port = ntohs(at.sin_port);
	return fd;
}

static void say_ready(struct evil *e)
{
	static const uint8_t loopback[] = {127, 0, 0, 1};
	struct rcp_rec_addr rec = {.family = 4};
	struct rcp_wr w = {.max = 256};

	if (e->link != EVIL_PIPE) {
		e->listener = listen_here(&e->port);
		memcpy(rec.addr.b, loopback, sizeof(loopback));
		rcp_rec_encode(&w, RCP_REC_ADDR, &rec);
	}
	struct rcp_msg_ready m = {.port = e->port, .addrs = rcp_span_of(w.data, w.len)};

	evil_say(e, RCP_MSG_READY, &m);
	rcp_wr_free(&w);
}

static bool hear_request(struct evil *e)
{
	if (!evil_await(e, RCP_MSG_START))
		return false;
	e->start = e->msg.start_;
	e->start.target = e->start.source = e->start.excludes = rcp_span_of(NULL, 0);
	memcpy(e->secret, e->start.secret.b, sizeof(e->secret));
	memcpy(e->session, e->start.session.b, sizeof(e->session));
	do {
		if (!evil_await(e, RCP_MSG_NAMES))
			return false;
	} while (!e->msg.names_.last);
	return true;
}

static void say_wanted(struct evil *e)
{
	const char *want = e->c->want ? e->c->want : "f";
	char path[4096];

	if (e->source) {
		evil_say_names(e, NULL, true);
		return;
	}
	while (*want) {
		size_t n = strcspn(want, " ");

		snprintf(path, sizeof(path), "%s/w/src/%.*s", e->top, (int)n, want);
		want += n + strspn(want + n, " ");
		evil_say_names(e, path, !*want);
	}
}

bool evil_request(struct evil *e)
{
	if (!e->initiator) {
		if (!hear_request(e))
			return false;
		say_ready(e);
		return true;
	}
	evil_say_start(e);
	say_wanted(e);
	if (!evil_await(e, RCP_MSG_READY))
		return false;
	e->port = e->msg.ready_.port;
	return true;
}

static int take_connection(struct evil *e)
{
	struct pollfd w = {.fd = e->listener, .events = POLLIN};

	if (poll(&w, 1, 15000) != 1)
		return -1;
	int fd = accept4(e->listener, NULL, NULL, SOCK_CLOEXEC);

	if (fd >= 0)
		fcntl(fd, F_SETFL, O_NONBLOCK);
	return fd;
}

bool evil_control(struct evil *e)
{
	struct rcp_msg_switch m = {.to = RCP_SWITCH_PIPE};
	char identity[RCP_IDENTITY];

	if (e->link == EVIL_PIPE) {
		if (!e->initiator)
			return evil_await(e, RCP_MSG_SWITCH);
		evil_say(e, RCP_MSG_SWITCH, &m);
		return true;
	}
	int fd = e->initiator ? evil_dial(e->port) : take_connection(e);

	if (fd < 0 || !evil_tls(e, fd, !e->initiator, rcp_secret_identity(e->session, identity), e->secret))
		return false;
	e->ctl = &e->tcp;
	return true;
}

bool evil_boot(struct evil *e)
{
	return evil_step(e, "greeting") && evil_greet(e) && evil_step(e, "START to READY") && evil_request(e) &&
	       evil_step(e, "the control connection") && evil_control(e);
}

/* ---- links ---- */

bool evil_caps(struct evil *e)
{
	struct rcp_msg_caps m = {.features = e->hello.features,
				 .slots = EVIL_SLOTS,
				 .chunk_bytes = EVIL_CHUNK,
				 .cpus = 1,
				 .streams = 1,
				 .no_rdma = rcp_span_str("none here")};

	evil_step(e, "CAPS");
	if (evil_is_rdma(e))
		return nic_caps(e, &m);
	evil_say(e, RCP_MSG_CAPS, &m);
	return evil_await(e, RCP_MSG_CAPS);
}

bool evil_try(struct evil *e)
{
	struct rcp_msg_link_try m = {.link = e->link_id,
				     .kind = evil_kind(e),
				     .streams = 1,
				     .slots = EVIL_SLOTS,
				     .chunk_bytes = EVIL_CHUNK};

	evil_step(e, "LINK_TRY");
	if (e->initiator) {
		evil_say(e, RCP_MSG_LINK_TRY, &m);
		return e->link & EVIL_ANY_OOB || evil_await(e, RCP_MSG_LINK_GO);
	}
	if (!evil_await(e, RCP_MSG_LINK_TRY))
		return false;
	e->link_id = e->msg.link_try_.link;
	if (e->link & EVIL_ANY_OOB)
		return true;
	evil_say(e, RCP_MSG_LINK_GO, &(struct rcp_msg_link_go){.link = e->link_id});
	return true;
}

bool evil_preamble(struct evil *e, int fd, uint16_t link, uint16_t stream, const uint8_t *key)
{
	struct rcp_preamble p = {.link = link, .stream = stream};
	uint8_t said[RCP_PREAMBLE], answer[RCP_PREAMBLE_ANSWER];
	struct rcp_err err = {0};

	memcpy(p.session, e->session, sizeof(p.session));
	if (rcp_preamble_encode(&p, key, said, &err) || send(fd, said, sizeof(said), MSG_NOSIGNAL) != sizeof(said))
		return false;
	return evil_read(e, fd, answer, sizeof(answer)) && rcp_preamble_answered(said, e->secret, answer);
}

bool evil_connect(struct evil *e)
{
	uint8_t said[RCP_PREAMBLE], answer[RCP_PREAMBLE_ANSWER];
	struct rcp_preamble p;

	evil_step(e, "the link's connection");
	if (evil_is_rdma(e))
		return nic_connect(e);
	if (e->link == EVIL_PIPE)
		return true;
	if (e->initiator) {
		e->data = evil_dial(e->port);
		return e->data >= 0 && evil_preamble(e, e->data, e->link_id, 0, e->secret);
	}
	e->data = take_connection(e);
	if (e->data < 0 || !evil_read(e, e->data, said, sizeof(said)) || !rcp_preamble_decode(said, &p) ||
	    !rcp_preamble_check(&p, e->session, e->secret, answer))
		return false;
	evil_data(e, answer, sizeof(answer));
	return true;
}

bool evil_seal_key(struct evil *e, uint32_t generation)
{
	uint8_t base[RCP_SECRET], key[RCP_SEAL_KEY], data[4];
	struct rcp_err err = {0};
	bool from_initiator = e->initiator == e->source;

	rcp_put_u32(data, generation);
	rcp_seal_free(&e->seal);
	return !rcp_tls_export(e->tcp.tls, "EXPERIMENTAL rcp seal", base, sizeof(base), &err) &&
	       !rcp_secret_hmac(base, from_initiator ? "seal from initiator" : "seal from responder", data, sizeof(data), key,
				&err) &&
	       !rcp_seal_new(key, generation, &err, &e->seal);
}

static void say_ring(struct evil *e)
{
	e->ring = (struct rcp_msg_link_ring){.link = e->link_id,
					     .slots = EVIL_SLOTS,
					     .slot_bytes = 4096 + EVIL_CHUNK,
					     .chunk_bytes = EVIL_CHUNK,
					     .generation = e->link_id};
	if (evil_is_rdma(e))
		nic_ring(e, &e->ring);
	evil_say(e, RCP_MSG_LINK_RING, &e->ring);
}

bool evil_use(struct evil *e)
{
	struct rcp_msg_link_use m = {.link = e->link_id,
				     .kind = evil_kind(e),
				     .slots = EVIL_SLOTS,
				     .chunk_bytes = EVIL_CHUNK,
				     .generation = e->link_id,
				     .why = rcp_span_str("evil")};

	if (e->initiator)
		evil_say(e, RCP_MSG_LINK_USE, &m);
	else if (!evil_await(e, RCP_MSG_LINK_USE))
		return false;
	if (!e->source) {
		say_ring(e);
	} else {
		if (!evil_await(e, RCP_MSG_LINK_RING))
			return false;
		e->ring = e->msg.link_ring_;
	}
	return !evil_is_sealed(e) || evil_seal_key(e, e->ring.generation);
}

bool evil_link(struct evil *e)
{
	return evil_caps(e) && evil_try(e) && evil_connect(e) && evil_use(e);
}

bool evil_session(struct evil *e)
{
	return evil_boot(e) && evil_link(e);
}
