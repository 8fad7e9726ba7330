#include "base/keys.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

__extension__ typedef unsigned __int128 u128;

#define P61 ((UINT64_C(1) << 61) - 1)
#define WORD 7 /* bytes: below 2^61 - 1 whatever they are */

struct rcp_keys {
	pthread_mutex_t lock;
	uint64_t secret[2];
	struct rcp_key *table; /* open addressing; both halves 0: free */
	size_t size, used;     /* size: a power of two, or 0 */
};

struct rcp_keys *rcp_keys_new(const uint64_t secret[2])
{
	struct rcp_keys *k = calloc(1, sizeof(*k));

	if (!k)
		return NULL;
	/* Early in a boot there may be no randomness yet: then the address has to do. */
	if (secret)
		memcpy(k->secret, secret, sizeof(k->secret));
	else if (getrandom(k->secret, sizeof(k->secret), GRND_NONBLOCK) != sizeof(k->secret))
		k->secret[0] = (uintptr_t)k, k->secret[1] = (uintptr_t)&k;
	for (int i = 0; i < 2; i++) {
		if (k->secret[i] < 2 || k->secret[i] >= P61)
			k->secret[i] = k->secret[i] % (P61 - 2) + 2;
	}
	pthread_mutex_init(&k->lock, NULL);
	return k;
}

void rcp_keys_secret(const struct rcp_keys *keys, uint64_t secret[2])
{
	memcpy(secret, keys->secret, sizeof(keys->secret));
}

void rcp_keys_free(struct rcp_keys **keysp)
{
	struct rcp_keys *k = *keysp;

	if (!k)
		return;
	*keysp = NULL;
	pthread_mutex_destroy(&k->lock);
	free(k->table);
	free(k);
}

/* A polynomial of the words at a secret point, modulo a prime: a step of Horner's rule. */
static uint64_t step(uint64_t h, uint64_t secret, uint64_t word)
{
	u128 t = (u128)h * secret + word;
	uint64_t r = (uint64_t)(t & P61) + (uint64_t)(t >> 61);

	return r >= P61 ? r - P61 : r;
}

static void feed(const struct rcp_keys *k, struct rcp_key *key, const uint8_t *bytes, size_t len)
{
	while (len) {
		size_t n = len < WORD ? len : WORD;
		uint64_t word = 0;

		memcpy(&word, bytes, n);
		for (int i = 0; i < 2; i++)
			key->half[i] = step(key->half[i], k->secret[i], word);
		bytes += n;
		len -= n;
	}
}

struct rcp_key rcp_keys_key(const struct rcp_keys *keys, const void *bytes, size_t len, uint64_t a,
			    uint64_t b)
{
	/* The length first: "a" and "a" with a zero byte are two names. */
	uint64_t numbers[] = {len, a, b};
	struct rcp_key key = {.half = {1, 1}};

	feed(keys, &key, (const uint8_t *)numbers, sizeof(numbers));
	feed(keys, &key, bytes, len);
	if (!key.half[0] && !key.half[1])
		key.half[0] = 1;
	return key;
}

static struct rcp_key *place_of(struct rcp_key *table, size_t size, struct rcp_key key)
{
	for (size_t i = key.half[0] & (size - 1);; i = (i + 1) & (size - 1)) {
		struct rcp_key *at = &table[i];

		if ((!at->half[0] && !at->half[1]) ||
		    (at->half[0] == key.half[0] && at->half[1] == key.half[1]))
			return at;
	}
}

static bool grow(struct rcp_keys *k)
{
	size_t size = k->size ? 2 * k->size : 64;
	struct rcp_key *table = calloc(size, sizeof(*table));

	if (!table)
		return false;
	for (size_t i = 0; i < k->size; i++) {
		if (k->table[i].half[0] || k->table[i].half[1])
			*place_of(table, size, k->table[i]) = k->table[i];
	}
	free(k->table);
	k->table = table;
	k->size = size;
	return true;
}

int rcp_keys_add(struct rcp_keys *k, struct rcp_key key)
{
	int rc = -1;

	pthread_mutex_lock(&k->lock);
	if (4 * (k->used + 1) <= 3 * k->size || grow(k)) {
		struct rcp_key *at = place_of(k->table, k->size, key);

		rc = !at->half[0] && !at->half[1];
		*at = key;
		k->used += (size_t)rc;
	}
	pthread_mutex_unlock(&k->lock);
	return rc;
}

bool rcp_keys_has(struct rcp_keys *k, struct rcp_key key)
{
	bool has = false;

	pthread_mutex_lock(&k->lock);
	if (k->size) {
		const struct rcp_key *at = place_of(k->table, k->size, key);

		has = at->half[0] || at->half[1];
	}
	pthread_mutex_unlock(&k->lock);
	return has;
}
