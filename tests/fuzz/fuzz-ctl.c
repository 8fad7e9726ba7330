/*
 * The bytes that come in on the control connection, in pieces: marker, frames, chunks into the slots of a pipe link.
 *
 *   0 U8 bit 0: this end is the responder; 1: the peer is the source; 2: a link takes chunks; 3: paused now and then;
 *        4: no marker is put in front  5: the connection ends at the script's end, not in its middle
 *   1 U8 phase, 0 to 7
 *   pieces: U8 length n, then n bytes
 */
#include "fuzz.h"
#include "script.h"

#include "boot/ctl.h"

#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#define CHUNK 4096u
#define SLOTS 2u

struct end {
	struct rcp_ctl *ctl;
	struct rcp_link *link;
	bool ready, down, link_down, responder, pauses, release;
	unsigned messages, chunks;
	uint8_t phase, role;
	struct rcp_err cause;
};

static uv_loop_t loop;
static struct end end;

static void on_chunk(void *arg, uint32_t slot, const uint8_t *header, const uint8_t *payload, uint32_t length)
{
	(void)arg;
	MUST(slot < SLOTS && length <= CHUNK && header + RCP_CHUNK_HEADER == payload);
	end.chunks++;
	if (end.release)
		rcp_link_release(end.link, slot);
	end.release = !end.release;
}

static void link_up(void *arg)
{
	(void)arg;
}

static void link_down(void *arg, const struct rcp_err *cause)
{
	(void)arg, (void)cause;
	end.link_down = true;
}

static const struct rcp_link_events link_events = {.up = link_up, .chunk = on_chunk, .down = link_down};

static void link_new(void)
{
	struct rcp_link_params p = {.role = RCP_ROLE_SINK, .id = 1, .slots = SLOTS, .chunk_bytes = CHUNK,
				    .generation = 7, .events = &link_events};
	struct rcp_pipe_out out = rcp_ctl_pipe_out(end.ctl);
	struct rcp_ring_info ring;
	struct rcp_err err = {0};

	MUST(rcp_pipe_link_new(&out, &p, &err, &end.link) == 0);
	rcp_pipe_link_run(end.link);
	end.link->ops->ring_get(end.link, &ring);
}

static void on_ready(void *arg)
{
	(void)arg;
	MUST(!end.ready && !end.messages);
	end.ready = true;
	rcp_ctl_set_phase(end.ctl, (enum rcp_phase)end.phase);
	rcp_ctl_set_peer_role(end.ctl, (enum rcp_role)end.role);
	rcp_ctl_set_chunk_bytes(end.ctl, CHUNK);
}

static void on_message(void *arg, const struct rcp_msg *msg)
{
	const struct rcp_msg_desc *desc = rcp_msg_desc(msg->type);
	struct rcp_wr w = {.max = RCP_FRAME_MAX + RCP_FRAME_HEADER};
	struct rcp_err err = {0};

	(void)arg;
	MUST(end.ready && !end.down && msg->type != RCP_MSG_PING);
	MUST(rcp_msg_legal(desc, (enum rcp_phase)end.phase, end.responder, (enum rcp_role)end.role));
	end.messages++;
	if (end.link && (msg->type == RCP_MSG_CHUNK || msg->type == RCP_MSG_CREDIT)) {
		if (rcp_pipe_link_message(end.link, msg, &err))
			rcp_ctl_fail(end.ctl, &err);
		return;
	}
	rcp_msg_encode(&w, msg->type, &msg->hello_);
	MUST(!w.bad);
	rcp_wr_free(&w);
	if (end.pauses && end.messages % 2)
		rcp_ctl_pause(end.ctl, true);
}

static void on_banner(void *arg, const char *bytes, size_t len)
{
	(void)arg;
	MUST(!end.ready && bytes && len);
}

static uint8_t *chunk_place(void *arg, uint32_t slot, size_t *room)
{
	(void)arg;
	return end.link ? rcp_pipe_link_slot(end.link, slot, room) : NULL;
}

static void on_wake(void *arg)
{
	(void)arg;
	if (end.link)
		rcp_pipe_link_run(end.link);
}

static void on_down(void *arg, const struct rcp_err *cause)
{
	(void)arg;
	MUST(!end.down);
	end.down = true;
	end.cause = *cause;
	if (end.link)
		rcp_pipe_link_lost(end.link, cause);
	rcp_ctl_free(&end.ctl);
}

static const struct rcp_ctl_ops ops = {.ready = on_ready, .message = on_message, .banner = on_banner,
				       .chunk_place = chunk_place, .wake = on_wake, .down = on_down};

static void turns(unsigned most)
{
	while (most-- && !end.down)
		uv_run(&loop, UV_RUN_NOWAIT);
}

static void link_end(void)
{
	if (!end.link)
		return;
	rcp_link_close(end.link);
	for (unsigned i = 0; i < 8 && !end.link_down; i++)
		rcp_pipe_link_run(end.link);
	MUST(end.link_down);
	rcp_link_free(&end.link);
}

static void play(struct script *s, int fd)
{
	static const char marker[] = RCP_CTL_MARKER;
	uint8_t how = s->data[0];

	if (!end.responder && !(how & 16))
		MUST(write(fd, marker, RCP_CTL_MARKER_LEN) == RCP_CTL_MARKER_LEN);
	while (!script_over(s) && !end.down) {
		struct rcp_span piece = script_bytes(s, script_u8(s));

		if (piece.len && send(fd, piece.data, piece.len, MSG_NOSIGNAL) < 0)
			break;
		turns(3);
		if (end.pauses && !end.down)
			rcp_ctl_pause(end.ctl, false);
		if (!(how & 32) && s->at > 200)
			break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct script s = {.data = data, .len = size, .at = 2};
	struct rcp_err err = {0};
	int fd[2];

	if (size < 2)
		return 0;
	if (!loop.data)
		MUST(uv_loop_init(&loop) == 0);
	loop.data = &loop;
	end = (struct end){.responder = data[0] & 1, .pauses = data[0] & 8, .phase = data[1] % 8,
			   .role = data[0] & 2 ? RCP_ROLE_SOURCE : RCP_ROLE_SINK};
	MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd) == 0);
	MUST(rcp_ctl_new_pipe(&loop, fd[0], fd[0], end.responder, "peer", &ops, NULL, &err, &end.ctl) == 0);
	if (data[0] & 4)
		link_new();
	turns(2);
	play(&s, fd[1]);
	close(fd[1]);
	turns(200);
	MUST(end.down && (rcp_err_is(&end.cause)));
	link_end();
	MUST(uv_run(&loop, UV_RUN_NOWAIT) == 0);
	return 0;
}
