/*
 * Byte buffers with a sticky error: read and write big-endian integers and bounded strings without
 * looking after each step. Pure, any thread, one owner.
 */
#ifndef RCP_BASE_BYTES_H
#define RCP_BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A borrowed run of bytes. */
struct rcp_span {
	const uint8_t *data;
	size_t len;
};

/* Reader over borrowed bytes. After any overrun `bad` stays true and every get returns zeros. */
struct rcp_rd {
	const uint8_t *data;
	size_t len, at;
	bool bad;
};

static inline struct rcp_rd rcp_rd_of(const void *data, size_t len)
{
	return (struct rcp_rd){.data = data, .len = len};
}
static inline size_t rcp_rd_left(const struct rcp_rd *r)
{
	return r->bad ? 0 : r->len - r->at;
}
uint8_t rcp_rd_u8(struct rcp_rd *r);
uint16_t rcp_rd_u16(struct rcp_rd *r);
uint32_t rcp_rd_u32(struct rcp_rd *r);
uint64_t rcp_rd_u64(struct rcp_rd *r);
/* len bytes, borrowed from the buffer; NULL and bad when there are fewer. */
const uint8_t *rcp_rd_bytes(struct rcp_rd *r, size_t len);

/* Writer into owned memory that grows up to `max` bytes. After an overrun or ENOMEM `bad` stays
 * true and puts do nothing. Zeroed + max = empty. Free with rcp_wr_free. */
struct rcp_wr {
	uint8_t *data;
	size_t len, cap, max;
	bool bad, no_memory; /* no_memory: that is why */
};

void rcp_wr_free(struct rcp_wr *w);
/* Room for len bytes at the end, to be filled by the caller; NULL and bad when there is none. */
uint8_t *rcp_wr_room(struct rcp_wr *w, size_t len);
void rcp_wr_u8(struct rcp_wr *w, uint8_t v);
void rcp_wr_u16(struct rcp_wr *w, uint16_t v);
void rcp_wr_u32(struct rcp_wr *w, uint32_t v);
void rcp_wr_u64(struct rcp_wr *w, uint64_t v);
void rcp_wr_bytes(struct rcp_wr *w, const void *data, size_t len);

/* Fixed places, for headers: no bounds to check. */
static inline void rcp_put_u16(uint8_t *p, uint16_t v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}
static inline void rcp_put_u32(uint8_t *p, uint32_t v)
{
	rcp_put_u16(p, (uint16_t)(v >> 16));
	rcp_put_u16(p + 2, (uint16_t)v);
}
static inline void rcp_put_u64(uint8_t *p, uint64_t v)
{
	rcp_put_u32(p, (uint32_t)(v >> 32));
	rcp_put_u32(p + 4, (uint32_t)v);
}
static inline uint16_t rcp_get_u16(const uint8_t *p)
{
	return (uint16_t)(p[0] << 8 | p[1]);
}
static inline uint32_t rcp_get_u32(const uint8_t *p)
{
	return (uint32_t)rcp_get_u16(p) << 16 | rcp_get_u16(p + 2);
}
static inline uint64_t rcp_get_u64(const uint8_t *p)
{
	return (uint64_t)rcp_get_u32(p) << 32 | rcp_get_u32(p + 4);
}

#endif
