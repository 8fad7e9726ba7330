/*
 * The evil end's own RDMA device: raw verbs, so that a case can do what src/link/verbs never would. Runs on
 * software verbs only (tests/fake). Every wait ends with e->until_ns, with the control connection, or when the
 * victim leaves the link.
 */
#ifndef RCP_TESTS_EVIL_NIC_H
#define RCP_TESTS_EVIL_NIC_H

#include "evil.h"

#define NIC_PRIVATE 56 /* link/verbs/layout.h */
#define NIC_BYTES (1u << 20) /* most in one request */

#if RCP_HAVE_RDMA
/* ---- an honest end's: called by steps.c and copy.c ---- */
bool nic_caps(struct evil *e, struct rcp_msg_caps *m); /* adds its port; CAPS, both ways */
bool nic_connect(struct evil *e);
void nic_ring(struct evil *e, struct rcp_msg_link_ring *m); /* sink: where its ring is */
void nic_chunk(struct evil *e, uint32_t slot, const uint8_t *header, const uint8_t *payload, size_t len);
bool nic_credits(struct evil *e); /* source: some more, into e->taken */
bool nic_has_credits(struct evil *e); /* without waiting */
const uint8_t *nic_take(struct evil *e, uint32_t *slot); /* sink: the next chunk's header, in its slot */
void nic_credit(struct evil *e, uint32_t slot);
void nic_free(struct evil *e);

/* ---- parts ---- */
/* How many receives are posted (and posted again); before nic_connect. Default: plenty. */
void nic_set_receives(struct evil *e, unsigned count);
/* The private data of an honest end, as layout.h has it. */
void nic_private(const struct evil *e, uint16_t link, uint8_t out[NIC_PRIVATE]);
/* Initiator: calls the victim with this; true: it is connected, nothing is said yet. */
bool nic_call(struct evil *e, const void *data, size_t len);
/* Responder: waits for the victim's call, and its private data; then accepts it with this. */
bool nic_called(struct evil *e, uint8_t *data, size_t *len);
bool nic_accept(struct evil *e, const void *data, size_t len);
bool nic_hello(struct evil *e); /* initiator: says it; responder: hears it */
/* Without rdma_cm: its queue pair and numbers; then to them. */
bool nic_numbers(struct evil *e, struct rcp_msg_link_oob *m);
bool nic_to(struct evil *e, const struct rcp_msg_link_oob *peer);
/* One request, and its end: true where the victim's device took it (iWARP: where TCP did). */
bool nic_write(struct evil *e, uint64_t addr, uint32_t rkey, const void *data, size_t len);
bool nic_write_imm(struct evil *e, uint64_t addr, uint32_t rkey, const void *data, size_t len, uint32_t imm);
bool nic_send(struct evil *e, const void *data, size_t len);
bool nic_say_chunk(struct evil *e, uint32_t imm, uint32_t bytes); /* the message of a pair */
void nic_credit_words(struct evil *e, const uint16_t *slots, unsigned count);
uint64_t nic_slot(const struct evil *e, uint32_t slot); /* where the header goes in the victim's ring */
/* The link is lost: waits until the victim has seen it. An initiator then hangs up, or the server would wait for another. */
void nic_end(struct evil *e);
/* One turn of waiting, at most so long: false where there is nothing to wait for any more. */
bool nic_turn(struct evil *e, unsigned ms);
void nic_leave(struct evil *e); /* as one does who has done */
void nic_drop_ring(struct evil *e); /* its key is worth nothing from now on */
void nic_drop_qp(struct evil *e);
/* A second connection like the first; the first one stays. NULL where it was refused. */
struct evil_nic *nic_second(struct evil *e, const void *data, size_t len);
#else
/* Without RDMA there are no such cases. */
static inline bool nic_caps(struct evil *e, struct rcp_msg_caps *m)
{
	(void)e, (void)m;
	return false;
}
static inline bool nic_connect(struct evil *e)
{
	(void)e;
	return false;
}
static inline void nic_ring(struct evil *e, struct rcp_msg_link_ring *m)
{
	(void)e, (void)m;
}
static inline void nic_chunk(struct evil *e, uint32_t slot, const uint8_t *header, const uint8_t *payload, size_t len)
{
	(void)e, (void)slot, (void)header, (void)payload, (void)len;
}
static inline bool nic_credits(struct evil *e)
{
	(void)e;
	return false;
}
static inline const uint8_t *nic_take(struct evil *e, uint32_t *slot)
{
	(void)e, (void)slot;
	return NULL;
}
static inline void nic_credit(struct evil *e, uint32_t slot)
{
	(void)e, (void)slot;
}
static inline void nic_free(struct evil *e)
{
	(void)e;
}
#endif

#endif
