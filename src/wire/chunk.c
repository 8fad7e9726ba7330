#include "wire/chunk.h"

#include "base/bytes.h"
#include "base/crc.h"

#include <string.h>

void rcp_chunk_encode(const struct rcp_chunk *c, uint8_t h[RCP_CHUNK_HEADER])
{
	rcp_put_u32(h, RCP_CHUNK_MAGIC);
	rcp_put_u32(h + 4, c->flags);
	rcp_put_u32(h + 8, c->generation);
	rcp_put_u32(h + 12, c->entry);
	rcp_put_u64(h + 16, c->offset);
	rcp_put_u32(h + 24, c->length);
	rcp_put_u32(h + 28, c->crc);
	rcp_put_u64(h + 32, c->sequence);
	memcpy(h + 40, c->tag, sizeof(c->tag));
	rcp_put_u32(h + 56, 0);
	rcp_put_u32(h + 60, rcp_crc32(0, h, 60));
}

bool rcp_chunk_decode(const uint8_t h[RCP_CHUNK_HEADER], struct rcp_chunk *c)
{
	if (rcp_get_u32(h) != RCP_CHUNK_MAGIC || rcp_get_u32(h + 56) != 0 ||
	    rcp_get_u32(h + 60) != rcp_crc32(0, h, 60))
		return false;
	c->flags = rcp_get_u32(h + 4);
	c->generation = rcp_get_u32(h + 8);
	c->entry = rcp_get_u32(h + 12);
	c->offset = rcp_get_u64(h + 16);
	c->length = rcp_get_u32(h + 24);
	c->crc = rcp_get_u32(h + 28);
	c->sequence = rcp_get_u64(h + 32);
	memcpy(c->tag, h + 40, sizeof(c->tag));
	return (c->flags & ~(RCP_CHUNK_BUNDLE | RCP_CHUNK_SEALED)) == 0;
}
