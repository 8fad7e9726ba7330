/*
 * A set of names by their keys: 122 bits made with secrets of this process, so that two names share a
 * key by chance once in 2^100 or so, and nobody can choose names that do. 16 bytes a name, two to four
 * with the table's room. Any thread.
 */
#ifndef RCP_BASE_KEYS_H
#define RCP_BASE_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rcp_keys;

struct rcp_key {
	uint64_t half[2]; /* each below 2^61 - 1 */
};

/* secret: of an earlier set, or NULL for a new one. NULL: no memory. */
struct rcp_keys *rcp_keys_new(const uint64_t secret[2]);
void rcp_keys_secret(const struct rcp_keys *keys, uint64_t secret[2]);
void rcp_keys_free(struct rcp_keys **keys);

/* The key of len bytes and two numbers. */
struct rcp_key rcp_keys_key(const struct rcp_keys *keys, const void *bytes, size_t len, uint64_t a,
			    uint64_t b);

/* 1: it is new. 0: it was there. -1: no memory for it. */
int rcp_keys_add(struct rcp_keys *keys, struct rcp_key key);
bool rcp_keys_has(struct rcp_keys *keys, struct rcp_key key);

#endif
