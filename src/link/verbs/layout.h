/*
 * What verbs links say to each other and to themselves: private data, small messages, wr_id, queue
 * depths. Pure: no verbs, no uv, no clock. Any thread.
 *
 * CM private data, 56 bytes (all that InfiniBand leaves on a request), the same both ways:
 *   0  U32 magic "rcpV"    4 U8 version 1    5 U8 zero    6 U16 attempt    8 K32 proof    40 K16
 * session
 *
 * Reject private data, 8 bytes:
 *   0  U32 magic "rcpV"    4 U8 version 1    5 U8 reason  6 U16 zero
 *
 * Messages, each one SEND of at most 64 bytes, big-endian:
 *   hello    0 U8 1   1 U8 version 1   2 U16 attempt   4 U32 zero          the initiator's first
 *   chunk    0 U8 2   1 U8 zero        2 U16 zero      4 U32 imm   8 U32 bytes written   12 U32 zero
 *   credits  0 U8 3   1 U8 count       2 U16 zero      4 count x U16 slot  (count 1 to 30)
 *   bye      0 U8 4   1 U8 zero        2 U16 zero      4 U32 zero          end without rdma_cm
 *
 * wr_id:  bits 63-56 kind (enum verbs_wr)   bits 31-0 index
 *   RECV   index of the receive buffer
 *   SMALL  index of the small message's buffer
 *   WRITE  ticket of the chunk: the first half of a pair; seen when it fails, or on iWARP (post.c)
 *   CHUNK  ticket of the chunk: WRITE_WITH_IMM, or the message that follows a plain WRITE
 */
#ifndef RCP_LINK_VERBS_LAYOUT_H
#define RCP_LINK_VERBS_LAYOUT_H

#include "link/link.h"

#define VERBS_PRIVATE_BYTES	  56
#define VERBS_REJECT_BYTES	  8
#define VERBS_MESSAGE_BYTES	  64
#define VERBS_CHUNK_MESSAGE_BYTES 16
#define VERBS_CREDITS_MAX	  30

struct verbs_private {
	uint16_t attempt;
	uint8_t proof[32], session[16];
};
void rcp_verbs_private_encode(const struct verbs_private *p, uint8_t out[VERBS_PRIVATE_BYTES]);
/* len may be larger: InfiniBand pads. */
bool rcp_verbs_private_decode(const uint8_t *data, size_t len, struct verbs_private *p);

enum verbs_reject { VERBS_REJECT_PROOF = 1, VERBS_REJECT_RESOURCES = 2 };
void rcp_verbs_reject_encode(enum verbs_reject why, uint8_t out[VERBS_REJECT_BYTES]);
/* 0: the reject says nothing that is known. */
unsigned rcp_verbs_reject_decode(const uint8_t *data, size_t len);

/* Takes the same time whatever differs. */
bool rcp_verbs_same(const uint8_t *a, const uint8_t *b, size_t len);

enum verbs_message_type {
	VERBS_HELLO = 1,
	VERBS_CHUNK = 2,
	VERBS_CREDITS = 3,
	VERBS_BYE = 4,
};
struct verbs_message {
	enum verbs_message_type type;
	uint16_t attempt;    /* hello */
	uint32_t imm, bytes; /* chunk */
	unsigned count;	     /* credits */
	uint16_t slots[VERBS_CREDITS_MAX];
};
/* Returns its length. */
uint32_t rcp_verbs_message_encode(const struct verbs_message *m, uint8_t out[VERBS_MESSAGE_BYTES]);
/* False: not one of the above, whole and exact. len up to VERBS_MESSAGE_BYTES. */
bool rcp_verbs_message_decode(const uint8_t *data, size_t len, struct verbs_message *m);

enum verbs_wr { VERBS_WR_RECV = 1, VERBS_WR_SMALL, VERBS_WR_WRITE, VERBS_WR_CHUNK };

static inline uint64_t rcp_verbs_wr_id(enum verbs_wr kind, uint32_t index)
{
	return (uint64_t)kind << 56 | index;
}
static inline unsigned rcp_verbs_wr_kind(uint64_t wr_id)
{
	return (unsigned)(wr_id >> 56);
}
static inline uint32_t rcp_verbs_wr_index(uint64_t wr_id)
{
	return (uint32_t)wr_id;
}

/*
 * How deep the queues must be, so that they can't overrun:
 *
 * sink recv    slots + spare. A chunk takes one receive and needs a credit; the receive is posted
 *              again before the credit goes back. Spare: hello and bye.
 * source recv  slots + spare. A credits message returns one slot or more, and a slot can be returned again only
 *              after the source, which posts the receive again first, has used it: so no more than `slots` such
 *              messages are ever under way. (On iWARP one too many would kill the connection.)
 * source send  posts x requests + small. A chunk's requests: 1 with imm, 2 for the pair, 3 where it takes two writes
 * sink send    small: credits that wait for one of them are batched into fewer messages
 * CQ           every one of them, since all may be flushed at once
 */
struct verbs_limits {
	uint32_t qp_wr, cqe; /* the device's */
};
struct verbs_depth {
	uint32_t slots, posts, small, send_wr, recv_wr, cqe;
};
#define VERBS_SMALL_SOURCE 2u
#define VERBS_SMALL_SINK   6u
#define VERBS_RECV_SPARE   2u

/* False: the device can't hold even one slot. slots comes out smaller where it can't hold all. */
bool rcp_verbs_depth(enum rcp_role role, uint32_t slots, unsigned requests,
		     const struct verbs_limits *limits, struct verbs_depth *out);

/* Largest chunk that a message of max_msg_bytes carries behind its header; a multiple of 4 KiB. */
uint32_t rcp_verbs_chunk_bytes(uint32_t wanted, uint32_t max_msg_bytes);

#endif
