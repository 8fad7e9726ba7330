#include "link/stream_impl.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <sys/socket.h>

int stream_sink_init(struct stream *s, const struct rcp_link_params *params, struct rcp_err *err)
{
	if (rcp_ring_map_most(params->slots, params->chunk_bytes, err, &s->ring))
		return (int)err->code;
	s->slot_count = s->ring.slots;
	s->generation = params->generation;
	s->slots = malloc(s->slot_count);
	s->credits = calloc(s->slot_count, 4);
	if (!s->slots || !s->credits)
		return rcp_err_set(err, RCP_E_IO, ENOMEM, "malloc", NULL, NULL);
	memset(s->slots, SLOT_PEER, s->slot_count);
	s->link.caps.slots = s->slot_count;
	return 0;
}

void stream_sink_free(struct stream *s)
{
	rcp_ring_unmap(&s->ring);
	free(s->credits);
	free(s->slots);
}

void stream_sink_release(struct stream *s, uint32_t slot)
{
	assert(slot < s->slot_count && s->slots[slot] == SLOT_OWNED);
	s->slots[slot] = SLOT_RETURNING;
	if (s->over)
		return;
	/* At most every slot is RETURNING: after this there is room. */
	if (s->credits_end == 4 * s->slot_count) {
		uint32_t whole = s->credits_at & ~UINT32_C(3); /* words; one may be sent in part */

		memmove(s->credits, s->credits + whole, s->credits_end - whole);
		s->credits_end -= whole;
		s->credits_at -= whole;
	}
	rcp_put_u32(s->credits + s->credits_end, rcp_imm(slot, s->generation));
	s->credits_end += 4;
	stream_wake(s);
}

/* A slot is the peer's from the last byte of its credit on. */
static void credits_gone(struct stream *s, uint32_t n)
{
	for (uint32_t i = s->credits_at / 4; i < (s->credits_at + n) / 4; i++)
		s->slots[rcp_imm_slot(rcp_get_u32(s->credits + (size_t)4 * i))] = SLOT_PEER;
	s->credits_at += n;
	s->link.moved += n;
	if (s->credits_at == s->credits_end)
		s->credits_at = s->credits_end = 0;
}

void stream_sink_turn(struct stream *s)
{
	struct stream_conn *c = &s->conns[0];

	/* A source that has ended its side waits for ours and wants no more credits. */
	while (s->credits_at < s->credits_end && !c->blocked && !c->eof) {
		ssize_t n = send(c->fd, s->credits + s->credits_at, s->credits_end - s->credits_at,
				 MSG_NOSIGNAL);

		if (n >= 0)
			credits_gone(s, (uint32_t)n);
		else if (errno == EAGAIN)
			c->blocked = true;
		else if (errno != EINTR)
			break; /* reading says why, after what is still to be read */
	}
}

/* What the peer says of its chunk is believed only as far as its credit goes. */
static bool frame_begin(struct stream_conn *c)
{
	struct stream *s = c->stream;
	uint32_t imm = rcp_get_u32(c->frame);
	uint32_t length = rcp_get_u32(c->frame + 4);
	uint32_t slot = rcp_imm_slot(imm);
	const char *wrong = NULL;

	if (!s->granted || slot >= s->slot_count || s->slots[slot] != SLOT_PEER)
		wrong = "it has no credit for the slot";
	else if (!rcp_imm_current(imm, s->generation))
		wrong = "it is of another generation";
	else if (length > s->ring.chunk_bytes)
		wrong = "it is longer than the slot";
	if (wrong) {
		stream_fail(s, RCP_E_CONNECT, 0, NULL,
			    "the peer broke the protocol: a chunk of %u bytes for slot %u, but %s",
			    length, slot, wrong);
		return false;
	}
	s->slots[slot] = SLOT_FILLING;
	memcpy(rcp_ring_header(&s->ring, slot), c->frame + STREAM_PREFIX, RCP_CHUNK_HEADER);
	c->slot = slot;
	c->length = length;
	c->got = 0;
	c->frame_have = 0;
	c->in_payload = true;
	return true;
}

static void frame_end(struct stream_conn *c)
{
	struct stream *s = c->stream;

	c->in_payload = false;
	s->slots[c->slot] = SLOT_OWNED;
	s->link.events->chunk(s->link.arg, c->slot, rcp_ring_header(&s->ring, c->slot),
			      rcp_ring_payload(&s->ring, c->slot), c->length);
}

/* Into the slot, and the next frame's start behind it: one call a chunk when the socket is full. */
static ssize_t receive(struct stream_conn *c, size_t *asked)
{
	uint32_t left = c->in_payload ? c->length - c->got : 0;
	struct iovec iov[2];
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 1};

	if (left) {
		iov[0].iov_base = rcp_ring_payload(&c->stream->ring, c->slot) + c->got;
		iov[0].iov_len = left;
		msg.msg_iovlen = 2;
	}
	iov[msg.msg_iovlen - 1].iov_base = c->frame + c->frame_have;
	iov[msg.msg_iovlen - 1].iov_len = STREAM_HEAD - c->frame_have;
	*asked = left + STREAM_HEAD - c->frame_have;
	return recvmsg(c->fd, &msg, 0);
}

/* n more bytes stand where `receive` put them. */
static void take(struct stream_conn *c, uint32_t n)
{
	struct stream *s = c->stream;

	if (c->in_payload) {
		uint32_t part = MIN(n, c->length - c->got);

		c->got += part;
		n -= part;
		c->frame_have = n;
		if (c->got == c->length)
			frame_end(c);
	} else {
		c->frame_have += n;
	}
	while (c->frame_have == STREAM_HEAD && !s->over && !s->closing && frame_begin(c)) {
		if (!c->length)
			frame_end(c);
	}
}

static void ended(struct stream_conn *c)
{
	struct stream *s = c->stream;

	c->eof = true;
	if (c->in_payload || c->frame_have) {
		stream_fail(s, RCP_E_LINK, 0, NULL,
			    "the peer closed the connection in the middle of a chunk");
		return;
	}
	/* What other connections still hold is not lost. */
	for (unsigned i = 0; i < s->conn_count; i++) {
		if (!s->conns[i].eof)
			return;
	}
	stream_fail(s, RCP_E_LINK, 0, NULL, "the peer closed the connection");
}

void stream_sink_readable(struct stream_conn *c)
{
	struct stream *s = c->stream;
	uint32_t budget = STREAM_TURN_BYTES;

	while (!s->over && !s->closing && budget) {
		size_t asked;
		ssize_t n = receive(c, &asked);

		if (n == 0) {
			ended(c);
			return;
		}
		if (n < 0) {
			if (!stream_again(s, n, "recvmsg"))
				c->eof = true;
			return;
		}
		s->link.moved += (uint64_t)n;
		budget -= MIN((uint32_t)n, budget);
		take(c, (uint32_t)n);
		if ((size_t)n < asked)
			return;
	}
}
