#include "link/verbs/layout.h"

#include "base/bytes.h"

#include <string.h>

#define MAGIC	UINT32_C(0x72637056) /* "rcpV" */
#define VERSION 1

void rcp_verbs_private_encode(const struct verbs_private *p, uint8_t out[VERBS_PRIVATE_BYTES])
{
	rcp_put_u32(out, MAGIC);
	out[4] = VERSION;
	out[5] = 0;
	rcp_put_u16(out + 6, p->attempt);
	memcpy(out + 8, p->proof, sizeof(p->proof));
	memcpy(out + 40, p->session, sizeof(p->session));
}

bool rcp_verbs_private_decode(const uint8_t *data, size_t len, struct verbs_private *p)
{
	if (!data || len < VERBS_PRIVATE_BYTES || rcp_get_u32(data) != MAGIC || data[4] != VERSION || data[5])
		return false;
	p->attempt = rcp_get_u16(data + 6);
	memcpy(p->proof, data + 8, sizeof(p->proof));
	memcpy(p->session, data + 40, sizeof(p->session));
	return true;
}

void rcp_verbs_reject_encode(enum verbs_reject why, uint8_t out[VERBS_REJECT_BYTES])
{
	rcp_put_u32(out, MAGIC);
	out[4] = VERSION;
	out[5] = (uint8_t)why;
	rcp_put_u16(out + 6, 0);
}

unsigned rcp_verbs_reject_decode(const uint8_t *data, size_t len)
{
	if (!data || len < VERBS_REJECT_BYTES || rcp_get_u32(data) != MAGIC || data[4] != VERSION)
		return 0;
	return data[5];
}

bool rcp_verbs_same(const uint8_t *a, const uint8_t *b, size_t len)
{
	volatile uint8_t diff = 0;

	for (size_t i = 0; i < len; i++)
		diff = (uint8_t)(diff | (a[i] ^ b[i]));
	return diff == 0;
}

uint32_t rcp_verbs_message_encode(const struct verbs_message *m, uint8_t out[VERBS_MESSAGE_BYTES])
{
	memset(out, 0, VERBS_CHUNK_MESSAGE_BYTES);
	out[0] = (uint8_t)m->type;
	switch (m->type) {
	case VERBS_HELLO:
		out[1] = VERSION;
		rcp_put_u16(out + 2, m->attempt);
		return 8;
	case VERBS_CHUNK:
		rcp_put_u32(out + 4, m->imm);
		rcp_put_u32(out + 8, m->bytes);
		return VERBS_CHUNK_MESSAGE_BYTES;
	case VERBS_CREDITS:
		out[1] = (uint8_t)m->count;
		for (unsigned i = 0; i < m->count; i++)
			rcp_put_u16(out + 4 + 2 * (size_t)i, m->slots[i]);
		return 4 + 2 * m->count;
	case VERBS_BYE:
		break;
	}
	return 8;
}

static bool decode_credits(const uint8_t *data, size_t len, struct verbs_message *m)
{
	m->count = data[1];
	if (!m->count || m->count > VERBS_CREDITS_MAX || len != 4 + 2 * (size_t)m->count)
		return false;
	for (unsigned i = 0; i < m->count; i++)
		m->slots[i] = rcp_get_u16(data + 4 + 2 * (size_t)i);
	return rcp_get_u16(data + 2) == 0;
}

bool rcp_verbs_message_decode(const uint8_t *data, size_t len, struct verbs_message *m)
{
	memset(m, 0, sizeof(*m));
	if (len < 4)
		return false;
	m->type = data[0];
	switch (data[0]) {
	case VERBS_HELLO:
		m->attempt = rcp_get_u16(data + 2);
		return len == 8 && data[1] == VERSION && rcp_get_u32(data + 4) == 0;
	case VERBS_CHUNK:
		if (len != VERBS_CHUNK_MESSAGE_BYTES)
			return false;
		m->imm = rcp_get_u32(data + 4);
		m->bytes = rcp_get_u32(data + 8);
		return data[1] == 0 && rcp_get_u16(data + 2) == 0 && rcp_get_u32(data + 12) == 0;
	case VERBS_CREDITS:
		return decode_credits(data, len, m);
	case VERBS_BYE:
		return len == 8 && data[1] == 0 && rcp_get_u16(data + 2) == 0 &&
		       rcp_get_u32(data + 4) == 0;
	default:
		return false;
	}
}

static void depth_of(enum rcp_role role, uint32_t slots, unsigned requests, struct verbs_depth *d)
{
	bool source = role == RCP_ROLE_SOURCE;

	d->slots = slots;
	d->posts = source ? slots : 0;
	d->small = source ? VERBS_SMALL_SOURCE : VERBS_SMALL_SINK;
	d->send_wr = d->posts * requests + d->small;
	d->recv_wr = slots + VERBS_RECV_SPARE;
	d->cqe = d->send_wr + d->recv_wr;
}

bool rcp_verbs_depth(enum rcp_role role, uint32_t slots, unsigned requests,
		     const struct verbs_limits *limits, struct verbs_depth *out)
{
	for (; slots; slots = slots > 16 ? slots - slots / 8 : slots - 1) {
		depth_of(role, slots, requests, out);
		if (out->send_wr <= limits->qp_wr && out->recv_wr <= limits->qp_wr &&
		    out->cqe <= limits->cqe)
			return true;
	}
	return false;
}

uint32_t rcp_verbs_chunk_bytes(uint32_t wanted, uint32_t max_msg_bytes)
{
	uint32_t room = max_msg_bytes > RCP_CHUNK_HEADER ? max_msg_bytes - RCP_CHUNK_HEADER : 0;

	return (wanted < room ? wanted : room) & ~UINT32_C(4095);
}
