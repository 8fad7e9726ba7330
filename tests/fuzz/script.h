/* An input read as a script: what it lacks is zeros. */
#ifndef RCP_TESTS_FUZZ_SCRIPT_H
#define RCP_TESTS_FUZZ_SCRIPT_H

#include "base/bytes.h"

#include <string.h>

struct script {
	const uint8_t *data;
	size_t len, at;
};

static inline bool script_over(const struct script *s)
{
	return s->at >= s->len;
}

static inline uint8_t script_u8(struct script *s)
{
	return script_over(s) ? 0 : s->data[s->at++];
}

static inline uint16_t script_u16(struct script *s)
{
	unsigned high = script_u8(s);

	return (uint16_t)(high << 8 | script_u8(s));
}

static inline uint32_t script_u32(struct script *s)
{
	uint32_t high = script_u16(s);

	return high << 16 | script_u16(s);
}

static inline uint64_t script_u64(struct script *s)
{
	uint64_t high = script_u32(s);

	return high << 32 | script_u32(s);
}

/* At most len bytes; what is left of them. */
static inline struct rcp_span script_bytes(struct script *s, size_t len)
{
	size_t left = s->len - s->at, n = len < left ? len : left;
	struct rcp_span span = {.data = s->data + s->at, .len = n};

	s->at += n;
	return span;
}

#endif
