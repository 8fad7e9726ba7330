/*
 * The sink's memory: slots of 4 KiB + chunk bytes each, in one anonymous mapping. A chunk's header
 * stands in the 64 bytes before the payload, so the payload is 4 KiB aligned (O_DIRECT) and one
 * write with two elements places both. Loop's thread.
 */
#ifndef RCP_LINK_RING_H
#define RCP_LINK_RING_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

#define RCP_SLOT_HEAD 4096u

struct rcp_ring_info;

struct rcp_ring {
	uint8_t *base; /* 2 MiB aligned, transparent huge pages where the kernel has them */
	size_t bytes;
	uint32_t slots, slot_bytes, chunk_bytes;
};

/* slots >= 1; chunk_bytes a multiple of 4096. RCP_E_IO with ENOMEM where there is no memory. */
int rcp_ring_map(uint32_t slots, uint32_t chunk_bytes, struct rcp_err *err, struct rcp_ring *out);
/* The same, halving slots while the kernel has no memory for them; out->slots tells what it became. */
int rcp_ring_map_most(uint32_t slots, uint32_t chunk_bytes, struct rcp_err *err,
		      struct rcp_ring *out);
/* A zeroed ring is fine. */
void rcp_ring_unmap(struct rcp_ring *ring);

/* Can a ring be as the peer says (slots, sizes, no address overflow)? Otherwise RCP_E_CONNECT. */
int rcp_ring_check(const struct rcp_ring_info *info, struct rcp_err *err);

static inline uint8_t *rcp_ring_payload(const struct rcp_ring *r, uint32_t slot)
{
	return r->base + (size_t)slot * r->slot_bytes + RCP_SLOT_HEAD;
}
static inline uint8_t *rcp_ring_header(const struct rcp_ring *r, uint32_t slot)
{
	return rcp_ring_payload(r, slot) - 64;
}

#endif
