#include "base/bytes.h"

#include <stdlib.h>
#include <string.h>

const uint8_t *rcp_rd_bytes(struct rcp_rd *r, size_t len)
{
	if (r->bad || r->len - r->at < len) {
		r->bad = true;
		return NULL;
	}
	const uint8_t *p = r->data + r->at;

	r->at += len;
	return p;
}

uint8_t rcp_rd_u8(struct rcp_rd *r)
{
	const uint8_t *p = rcp_rd_bytes(r, 1);

	return p ? *p : 0;
}

uint16_t rcp_rd_u16(struct rcp_rd *r)
{
	const uint8_t *p = rcp_rd_bytes(r, 2);

	return p ? rcp_get_u16(p) : 0;
}

uint32_t rcp_rd_u32(struct rcp_rd *r)
{
	const uint8_t *p = rcp_rd_bytes(r, 4);

	return p ? rcp_get_u32(p) : 0;
}

uint64_t rcp_rd_u64(struct rcp_rd *r)
{
	const uint8_t *p = rcp_rd_bytes(r, 8);

	return p ? rcp_get_u64(p) : 0;
}

void rcp_wr_free(struct rcp_wr *w)
{
	free(w->data);
	w->data = NULL;
	w->len = w->cap = 0;
}

static bool grow(struct rcp_wr *w, size_t need)
{
	size_t cap = w->cap ? w->cap : 256;

	while (cap < need)
		cap *= 2;
	uint8_t *p = realloc(w->data, cap);

	w->no_memory = !p;
	if (!p)
		return false;
	w->data = p;
	w->cap = cap;
	return true;
}

uint8_t *rcp_wr_room(struct rcp_wr *w, size_t len)
{
	if (w->bad || len > w->max || w->len > w->max - len ||
	    (w->len + len > w->cap && !grow(w, w->len + len))) {
		w->bad = true;
		return NULL;
	}
	uint8_t *p = w->data + w->len;

	w->len += len;
	return p;
}

void rcp_wr_u8(struct rcp_wr *w, uint8_t v)
{
	uint8_t *p = rcp_wr_room(w, 1);

	if (p)
		*p = v;
}

void rcp_wr_u16(struct rcp_wr *w, uint16_t v)
{
	uint8_t *p = rcp_wr_room(w, 2);

	if (p)
		rcp_put_u16(p, v);
}

void rcp_wr_u32(struct rcp_wr *w, uint32_t v)
{
	uint8_t *p = rcp_wr_room(w, 4);

	if (p)
		rcp_put_u32(p, v);
}

void rcp_wr_u64(struct rcp_wr *w, uint64_t v)
{
	uint8_t *p = rcp_wr_room(w, 8);

	if (p)
		rcp_put_u64(p, v);
}

void rcp_wr_bytes(struct rcp_wr *w, const void *data, size_t len)
{
	uint8_t *p = len ? rcp_wr_room(w, len) : NULL;

	if (p)
		memcpy(p, data, len);
}
