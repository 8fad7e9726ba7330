/*
 * The link over TCP against a hostile peer: bytes on its connections, in pieces.
 *
 *   0 U8 bit 0: this end is the source; 1-2: connections - 1   then pieces: U8 which connection (its high bits: whether
 *   chunks are given back, posted, or the link closed first), U8 length n, n bytes
 */
#include "fuzz.h"
#include "script.h"

#include "link/ring.h"
#include "link/stream.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#define CHUNK 4096u
#define SLOTS 3u
#define CONNS 4u

static uv_loop_t loop;

static struct end {
	struct rcp_link *link;
	bool source, up, down, closing, ringed;
	unsigned conns;
	int peer[CONNS];
	bool held[SLOTS];
	struct rcp_post posts[SLOTS];
	bool posted[SLOTS];
	struct rcp_err cause;
} end;

static uint8_t body[CHUNK];

static void on_up(void *arg)
{
	(void)arg;
	MUST(!end.up && !end.down);
	end.up = true;
}

static void on_sent(void *arg, struct rcp_post *post, bool ok)
{
	size_t i = (size_t)(post - end.posts);

	(void)arg, (void)ok;
	MUST(i < SLOTS && end.posted[i] && !end.down);
	end.posted[i] = false;
}

static void on_room(void *arg)
{
	(void)arg;
	MUST(!end.down);
}

static void on_chunk(void *arg, uint32_t slot, const uint8_t *header, const uint8_t *payload, uint32_t length)
{
	volatile uint8_t sum = header[0];

	(void)arg;
	MUST(slot < SLOTS && !end.held[slot] && length <= CHUNK && !end.down);
	for (uint32_t i = 0; i < length; i++)
		sum = (uint8_t)(sum + payload[i]);
	end.held[slot] = true;
}

static void on_down(void *arg, const struct rcp_err *cause)
{
	(void)arg;
	MUST(!end.down);
	end.down = true;
	end.cause = *cause;
	for (size_t i = 0; i < SLOTS; i++)
		MUST(!end.posted[i]); /* each has had its `sent` */
}

static const struct rcp_link_events events = {.up = on_up, .sent = on_sent, .room = on_room, .chunk = on_chunk,
					      .down = on_down};

static void turns(unsigned most)
{
	while (most-- && !end.down)
		uv_run(&loop, UV_RUN_NOWAIT);
}

/* The peer's sockets take what comes, or a source would wait for them. */
static void drain(void)
{
	uint8_t buf[8192];

	for (unsigned i = 0; i < end.conns; i++) {
		while (recv(end.peer[i], buf, sizeof(buf), MSG_DONTWAIT) > 0)
			;
	}
}

static void make(uint8_t how)
{
	struct rcp_link_params p = {.role = how & 1 ? RCP_ROLE_SOURCE : RCP_ROLE_SINK, .id = 1, .slots = SLOTS,
				    .chunk_bytes = CHUNK, .generation = 7, .events = &events};
	struct rcp_err err = {0};
	int fds[CONNS];

	end = (struct end){.source = how & 1, .conns = 1 + (how >> 1 & 3u)};
	for (unsigned i = 0; i < end.conns; i++) {
		int pair[2];

		MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
		fds[i] = pair[0];
		end.peer[i] = pair[1];
	}
	MUST(rcp_stream_new(&loop, &p, fds, end.conns, &err, &end.link) == 0);
	turns(1);
	MUST(end.up);
}

/* Where its ring is, as the script says or as it is. */
static void ring(struct script *s)
{
	struct rcp_ring_info info = {.slots = SLOTS, .slot_bytes = CHUNK + RCP_SLOT_HEAD, .chunk_bytes = CHUNK, .generation = 7};
	uint8_t how = script_u8(s);
	struct rcp_err err = {0};

	if (how & 1)
		info.slots = script_u32(s) % 5000;
	if (how & 2)
		info.chunk_bytes = script_u32(s);
	if (how & 4)
		info.slot_bytes = script_u32(s);
	if (end.source)
		end.ringed = end.link->ops->ring_set(end.link, &info, &err) == 0;
	else
		end.link->ops->ring_get(end.link, &info);
	MUST(!end.source || end.ringed || rcp_err_is(&err));
}

static void post_all(void)
{
	for (size_t i = 0; end.ringed && i < SLOTS; i++) {
		struct rcp_post *p = &end.posts[i];

		if (end.posted[i] || end.link->caps.chunk_bytes < CHUNK)
			continue;
		*p = (struct rcp_post){.chunk = {.length = (uint32_t)(i * 1000), .sequence = i}, .body = body, .fd = -1};
		end.posted[i] = rcp_link_post(end.link, p) == 0;
	}
}

static void give_back(void)
{
	for (uint32_t i = 0; i < SLOTS; i++) {
		if (end.held[i])
			rcp_link_release(end.link, i);
		end.held[i] = false;
	}
}

static void piece(struct script *s)
{
	uint8_t how = script_u8(s);
	struct rcp_span bytes = script_bytes(s, script_u8(s));

	if (how & 16)
		give_back();
	if (how & 32 && end.source)
		post_all();
	if (how & 128 && !end.closing) {
		end.closing = true;
		rcp_link_close(end.link);
	}
	if (bytes.len)
		(void)!send(end.peer[how % 4u % end.conns], bytes.data, bytes.len, MSG_NOSIGNAL);
	if (how & 64)
		drain();
	turns(2);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct script s = {.data = data, .len = size};

	if (!size)
		return 0;
	if (!loop.data)
		MUST(uv_loop_init(&loop) == 0);
	loop.data = &loop;
	make(script_u8(&s));
	ring(&s);
	while (!script_over(&s) && !end.down)
		piece(&s);
	for (unsigned i = 0; i < end.conns; i++) {
		drain();
		close(end.peer[i]);
	}
	if (!end.down && !end.closing)
		rcp_link_close(end.link);
	turns(50);
	MUST(end.down);
	give_back();
	rcp_link_free(&end.link);
	MUST(uv_run(&loop, UV_RUN_NOWAIT) == 0);
	return 0;
}
