/* Contract suite: TCP over loopback: one connection, four, and two whose calls are torn; raw
 * sockets play the peer. */
#include "pairs.h"

#include "link/stream.h"

#include "torn.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <uv.h>

#define CONNS 4

struct own {
	uv_loop_t loop;
	uv_timer_t tick;
	unsigned count;
	int raw[CONNS]; /* half: the peer's ends */
	unsigned raw_count;
};

static int listen_on(struct sockaddr_in *addr)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t len = sizeof(*addr);

	*addr = (struct sockaddr_in){.sin_family = AF_INET,
				     .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	if (bind(fd, (struct sockaddr *)addr, len) || listen(fd, CONNS) ||
	    getsockname(fd, (struct sockaddr *)addr, &len)) {
		close(fd);
		return -1;
	}
	return fd;
}

static int connect_all(unsigned count, int *a, int *b)
{
	struct sockaddr_in addr;
	int fd = listen_on(&addr);

	if (fd < 0)
		return -1;
	for (unsigned i = 0; i < count; i++) {
		a[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (connect(a[i], (struct sockaddr *)&addr, sizeof(addr)))
			return -1;
		b[i] = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
		fcntl(a[i], F_SETFL, O_NONBLOCK);
		fcntl(b[i], F_SETFL, O_NONBLOCK);
	}
	close(fd);
	return 0;
}

static void on_tick(uv_timer_t *timer)
{
	(void)timer;
}

static struct own *prepare(struct pair *p, unsigned count)
{
	struct own *o = calloc(1, sizeof(*o));

	if (!o)
		abort();
	p->own = o;
	o->count = count;
	if (uv_loop_init(&o->loop) || uv_timer_init(&o->loop, &o->tick) ||
	    uv_timer_start(&o->tick, on_tick, 2, 2))
		abort();
	return o;
}

/* libuv opens descriptors of its own with the first loop: before the test counts. */
static const char *missing(void)
{
	uv_loop_t loop;

	if (uv_loop_init(&loop))
		return "no loop";
	uv_loop_close(&loop);
	return NULL;
}

static void tear(const struct pair *p, unsigned count, const int *fds)
{
	for (unsigned i = 0; i < count && p->kind == &pair_stream_torn; i++)
		torn_mark(fds[i]);
}

static int make(struct pair *p, unsigned count, struct rcp_err *err)
{
	struct own *o = prepare(p, count);
	int a[CONNS], b[CONNS];

	if (connect_all(count, a, b))
		return RCP_E_CONNECT;
	tear(p, count, a);
	tear(p, count, b);
	return rcp_stream_new(&o->loop, &p->source_params, a, count, err, &p->source) ||
			       rcp_stream_new(&o->loop, &p->sink_params, b, count, err, &p->sink)
		       ? (int)err->code
		       : 0;
}

static int make_torn(struct pair *p, struct rcp_err *err)
{
	return make(p, 2, err);
}

static int make1(struct pair *p, struct rcp_err *err)
{
	return make(p, 1, err);
}

static int make4(struct pair *p, struct rcp_err *err)
{
	return make(p, 4, err);
}

static int make_half(struct pair *p, unsigned count, enum rcp_role role, struct rcp_err *err)
{
	struct own *o = prepare(p, count);
	int a[CONNS];

	if (connect_all(count, a, o->raw))
		return RCP_E_CONNECT;
	tear(p, count, a);
	o->raw_count = count;
	/* What is not taken is to be felt soon. */
	for (unsigned i = 0; i < count; i++) {
		setsockopt(a[i], SOL_SOCKET, SO_SNDBUF, &(int){4096}, sizeof(int));
		if (role == RCP_ROLE_SOURCE)
			setsockopt(o->raw[i], SOL_SOCKET, SO_RCVBUF, &(int){4096}, sizeof(int));
	}
	return role == RCP_ROLE_SOURCE
		       ? rcp_stream_new(&o->loop, &p->source_params, a, count, err, &p->source)
		       : rcp_stream_new(&o->loop, &p->sink_params, a, count, err, &p->sink);
}

static int make_half1(struct pair *p, enum rcp_role role, struct rcp_err *err)
{
	return make_half(p, 1, role, err);
}

static int make_half_torn(struct pair *p, enum rcp_role role, struct rcp_err *err)
{
	return make_half(p, 2, role, err);
}

static int make_half4(struct pair *p, enum rcp_role role, struct rcp_err *err)
{
	return make_half(p, 4, role, err);
}

static void turn(struct pair *p)
{
	struct own *o = p->own;

	uv_run(&o->loop, UV_RUN_ONCE);
}

static void push(int fd, const void *data, size_t len)
{
	const uint8_t *at = data;

	while (len) {
		ssize_t n = send(fd, at, len, MSG_NOSIGNAL);

		if (n < 0 && errno == EAGAIN) {
			struct pollfd wait = {.fd = fd, .events = POLLOUT};

			poll(&wait, 1, 1000);
			continue;
		}
		if (n < 0)
			abort();
		at += n;
		len -= (size_t)n;
	}
}

static void push_head(int fd, uint32_t slot, uint32_t generation, uint32_t length)
{
	struct rcp_chunk chunk = {.generation = generation, .length = length};
	uint8_t head[8 + RCP_CHUNK_HEADER];

	rcp_put_u32(head, rcp_imm(slot, generation));
	rcp_put_u32(head + 4, length);
	rcp_chunk_encode(&chunk, head + 8);
	push(fd, head, sizeof(head));
}

static void peer_chunk(struct pair *p, uint32_t slot, uint32_t generation, const void *body,
		       uint32_t length)
{
	const struct own *o = p->own;
	int fd = o->raw[o->raw_count - 1];

	push_head(fd, slot, generation, length);
	push(fd, body, length);
}

static void peer_dies(struct pair *p)
{
	struct own *o = p->own;

	while (o->raw_count)
		close(o->raw[--o->raw_count]);
}

static void push_credit(int fd, uint32_t slot, uint32_t generation)
{
	uint8_t word[4];

	rcp_put_u32(word, rcp_imm(slot, generation));
	push(fd, word, sizeof(word));
}

static void dribble(struct pair *p, int fd, const uint8_t *data, size_t len, uint32_t most)
{
	for (size_t at = 0, n = 1; at < len; at += n, n = n % most + 1) {
		if (n > len - at)
			n = len - at;
		push(fd, data + at, n);
		p->kind->turn(p);
	}
}

/* Slots 0 and 1, body and the same again. */
static void peer_dribbles(struct pair *p, uint32_t generation, const void *body, uint32_t length,
			  uint32_t most)
{
	const struct own *o = p->own;
	size_t frame = 8 + RCP_CHUNK_HEADER + (size_t)length;
	uint8_t *both = malloc(2 * frame);

	if (!both)
		abort();
	for (uint32_t slot = 0; slot < 2; slot++) {
		struct rcp_chunk chunk = {.generation = generation, .length = length};
		uint8_t *at = both + slot * frame;

		rcp_put_u32(at, rcp_imm(slot, generation));
		rcp_put_u32(at + 4, length);
		rcp_chunk_encode(&chunk, at + 8);
		memcpy(at + 8 + RCP_CHUNK_HEADER, body, length);
	}
	dribble(p, o->raw[0], both, 2 * frame, most);
	free(both);
}

static void peer_credit(struct pair *p, uint32_t slot, uint32_t generation)
{
	const struct own *o = p->own;
	uint8_t word[4], chunks[4096];

	/* The peer has taken what it gives credit for. */
	for (unsigned i = 0; i < o->raw_count; i++)
		while (recv(o->raw[i], chunks, sizeof(chunks), 0) > 0)
			;

	rcp_put_u32(word, rcp_imm(slot, generation));
	dribble(p, o->raw[0], word, sizeof(word), 1);
}

static uint32_t peer_reads(struct pair *p, uint32_t *slots, uint32_t max)
{
	const struct own *o = p->own;
	uint8_t word[4];
	uint32_t n = 0;

	while (n < max && recv(o->raw[0], word, 4, MSG_PEEK) == 4) {
		if (recv(o->raw[0], word, 4, 0) != 4)
			abort();
		slots[n++] = rcp_imm_slot(rcp_get_u32(word));
	}
	return n;
}

static bool evil_sink(struct pair *p, enum evil what)
{
	static const uint8_t bytes[4096];
	const struct rcp_link_params *sink = &p->sink_params;
	const struct own *o = p->own;
	int fd = o->raw[o->raw_count - 1];

	if (what == EVIL_SLOT_HELD)
		push_head(fd, 0, sink->generation, 4096);
	else if (what == EVIL_SLOT_RANGE)
		push_head(fd, p->sink->caps.slots, sink->generation, 4096);
	else if (what == EVIL_GENERATION)
		push_head(fd, 1, sink->generation + 1, 4096);
	else if (what == EVIL_LENGTH)
		push_head(fd, 1, sink->generation, sink->chunk_bytes + 1);
	else if (what == EVIL_EARLY)
		push_head(fd, 1, sink->generation, 4096);
	else if (what == EVIL_HALF_HEAD)
		push(fd, bytes, 40);
	else if (what == EVIL_HALF_CHUNK)
		push_head(fd, 1, sink->generation, 2 * sizeof(bytes));
	else
		return false;
	if (what != EVIL_HALF_HEAD)
		push(fd, bytes, sizeof(bytes));
	if (what == EVIL_HALF_CHUNK)
		peer_dies(p);
	return true;
}

static bool evil(struct pair *p, enum evil what)
{
	const struct own *o = p->own;
	uint32_t generation = p->sink_params.generation;

	if (what == EVIL_CREDIT_RANGE)
		push_credit(o->raw[0], p->source->caps.slots, generation);
	else if (what == EVIL_CREDIT_FREE)
		push_credit(o->raw[0], 1, generation);
	else if (what == EVIL_CREDIT_OLD)
		push_credit(o->raw[0], 0, generation + 1);
	else if (what == EVIL_SIDE_BYTES && o->count > 1)
		push(o->raw[1], "?", 1);
	else if (what == EVIL_CREDIT_TWICE) {
		push_credit(o->raw[0], 0, generation);
		push_credit(o->raw[0], 0, generation);
	} else
		return p->sink && evil_sink(p, what);
	return true;
}

static const char *destroy(struct pair *p)
{
	struct own *o = p->own;
	const char *left = NULL;

	peer_dies(p);
	torn_clear();
	uv_close((uv_handle_t *)&o->tick, NULL);
	while (uv_run(&o->loop, UV_RUN_NOWAIT))
		;
	if (uv_loop_close(&o->loop))
		left = "handles in the loop";
	free(o);
	return left;
}

/* The three differ in how they are made. */
#define PAIR_STREAM(title, maker, half, ...)                                                       \
	{                                                                                          \
		.name = title, .missing = missing, .make = maker, .make_half = half, .turn = turn, \
		.peer_chunk = peer_chunk, .peer_dribbles = peer_dribbles,                          \
		.peer_credit = peer_credit, .peer_reads = peer_reads, .peer_dies = peer_dies,      \
		.evil = evil, .destroy = destroy, __VA_ARGS__                                      \
	}

const struct pair_kind pair_stream1 = PAIR_STREAM("stream-1", make1, make_half1, .slow_close = true);
const struct pair_kind pair_stream4 = PAIR_STREAM("stream-4", make4, make_half4, .slow_close = false);
const struct pair_kind pair_stream_torn = PAIR_STREAM("stream-torn", make_torn, make_half_torn, .slow_close = false);
