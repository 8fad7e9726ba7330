/* seal: known answers, what is authenticated, nonces, replays, many workers at once. */
#include "base/bytes.h"
#include "base/crc.h"
#include "link/seal.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BYTES 4096u
#define GENERATION 7u

static void key_of(uint8_t key[RCP_SEAL_KEY])
{
	for (unsigned i = 0; i < RCP_SEAL_KEY; i++)
		key[i] = (uint8_t)i;
}

static struct rcp_seal *seal_of(uint32_t generation)
{
	struct rcp_err err = {0};
	uint8_t key[RCP_SEAL_KEY];
	struct rcp_seal *s;

	key_of(key);
	assert_int_equal(rcp_seal_new(key, generation, &err, &s), 0);
	return s;
}

static struct rcp_chunk chunk_of(const uint8_t *payload, uint32_t length)
{
	return (struct rcp_chunk){.entry = 0x01020304,
				  .offset = 0x100000,
				  .length = length,
				  .crc = rcp_crc32(0, payload, length)};
}

static void fill(uint8_t *p, size_t len)
{
	for (size_t i = 0; i < len; i++)
		p[i] = (uint8_t)(i * 7);
}

/* Sealed, over the wire and decoded again. */
static struct rcp_chunk sent(struct rcp_seal *s, uint8_t *payload, uint32_t length)
{
	struct rcp_chunk c = chunk_of(payload, length), got;
	struct rcp_err err = {0};
	uint8_t header[RCP_CHUNK_HEADER];

	assert_int_equal(rcp_seal_chunk(s, &c, payload, &err), 0);
	rcp_chunk_encode(&c, header);
	assert_true(rcp_chunk_decode(header, &got));
	return got;
}

/* What is opened has the CRC that the source took. */
static enum rcp_unseal unseal(struct rcp_seal *s, struct rcp_chunk *c, uint8_t *payload)
{
	uint32_t crc;
	enum rcp_unseal verdict = rcp_unseal_chunk(s, c, payload, &crc);

	if (verdict == RCP_UNSEAL_OK && (crc != c->crc || crc != rcp_crc32(0, payload, c->length)))
		fail_msg("opened, with another CRC");
	return verdict;
}

static void hex_is(const uint8_t *p, size_t len, const char *want)
{
	static const char digit[] = "0123456789abcdef";

	assert_int_equal(strlen(want), 2 * len);
	for (size_t i = 0; i < len; i++) {
		assert_int_equal(want[2 * i], digit[p[i] >> 4]);
		assert_int_equal(want[2 * i + 1], digit[p[i] & 15]);
	}
}

/* By another implementation of AES-GCM, from what rcp-protocol(7) says. */
static void known_answers(void **state)
{
	static const struct {
		const char *cipher, *tag;
		uint32_t crc;
	} want[] = {
		{"5fe0da94660b09bad7edd2885591eba7b43923e3cb77efcfab5eec5ff979e8481ad4251a16",
		 "93e4c73a3a0fa39ca4416309080cf456", 0x34a1bcf8},
		{"c07f160c7f9087c824d675da556af621f94f04e73199c439d71aff0c132cdaa89bcb94040c",
		 "90e2ea54b2a115c8aba87338f624d5e4", 0xc4789773},
	};
	struct rcp_seal *from = seal_of(GENERATION), *to = seal_of(GENERATION);
	uint8_t payload[37], plain[37];

	(void)state;
	fill(plain, sizeof(plain));
	for (unsigned i = 0; i < 2; i++) {
		memcpy(payload, plain, sizeof(plain));
		struct rcp_chunk c = sent(from, payload, sizeof(payload));

		assert_int_equal(c.flags, RCP_CHUNK_SEALED);
		assert_int_equal(c.generation, GENERATION);
		assert_int_equal(c.sequence, i);
		hex_is(payload, sizeof(payload), want[i].cipher);
		hex_is(c.tag, sizeof(c.tag), want[i].tag);
		assert_int_equal(c.crc, want[i].crc);
		assert_int_equal(unseal(to, &c, payload), RCP_UNSEAL_OK);
		assert_memory_equal(payload, plain, sizeof(plain));
		assert_int_equal(c.crc, 0x1ea95a70);
	}
	rcp_seal_free(&from);
	rcp_seal_free(&to);
	assert_null(to);
	rcp_seal_free(&to);
}

static void any_length(void **state)
{
	static const uint32_t lengths[] = {0, 1, 15, 16, 17, 4095, 4096, 1u << 20, (1u << 20) + 5};
	struct rcp_seal *from = seal_of(1), *to = seal_of(1);

	(void)state;
	for (unsigned i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		uint8_t *p = malloc(lengths[i] + 1), *plain = malloc(lengths[i] + 1);

		assert_non_null(p);
		assert_non_null(plain);
		fill(plain, lengths[i]);
		memcpy(p, plain, lengths[i]);
		struct rcp_chunk c = sent(from, p, lengths[i]);

		assert_int_equal(unseal(to, &c, p), RCP_UNSEAL_OK);
		assert_memory_equal(p, plain, lengths[i]);
		assert_int_equal(c.crc, rcp_crc32(0, plain, lengths[i]));
		free(p);
		free(plain);
	}
	rcp_seal_free(&from);
	rcp_seal_free(&to);
}

/* Each bit of the header that is not fixed, each of some of the payload, and its length. A forger can make
 * the header's own CRC right, so it is not in the way here. */
static void tampered(void **state)
{
	struct rcp_seal *from = seal_of(GENERATION), *to = seal_of(GENERATION);
	uint8_t payload[64], copy[64], header[RCP_CHUNK_HEADER];
	unsigned refused = 0;

	(void)state;
	fill(payload, sizeof(payload));
	const struct rcp_chunk good = sent(from, payload, sizeof(payload));

	for (unsigned bit = 8 * 4; bit < 8 * 56; bit++) {
		struct rcp_chunk c;

		rcp_chunk_encode(&good, header);
		header[bit / 8] ^= (uint8_t)(1u << bit % 8);
		rcp_put_u32(header + 60, rcp_crc32(0, header, 60));
		if (!rcp_chunk_decode(header, &c))
			continue; /* flags that there are not */
		memcpy(copy, payload, sizeof(copy));
		if (c.length > sizeof(copy))
			c.length = sizeof(copy) - 1; /* longer than the slot: a link refuses it */
		assert_int_equal(unseal(to, &c, copy), RCP_UNSEAL_FORGED);
		refused++;
	}
	assert_int_equal(refused, 8 * 52 - 30);
	for (unsigned bit = 0; bit < 8 * sizeof(payload); bit++) {
		struct rcp_chunk c = good;

		memcpy(copy, payload, sizeof(copy));
		copy[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_int_equal(unseal(to, &c, copy), RCP_UNSEAL_FORGED);
	}
	for (uint32_t cut = 0; cut < sizeof(payload); cut++) {
		struct rcp_chunk c = good;

		c.length = cut;
		memcpy(copy, payload, sizeof(copy));
		assert_int_equal(unseal(to, &c, copy), RCP_UNSEAL_FORGED);
	}
	/* and none of that counts as having seen it */
	struct rcp_chunk c = good;

	assert_int_equal(unseal(to, &c, payload), RCP_UNSEAL_OK);
	rcp_seal_free(&from);
	rcp_seal_free(&to);
}

static void other_keys(void **state)
{
	struct rcp_seal *from = seal_of(1), *to, *later = seal_of(2);
	struct rcp_err err = {0};
	uint8_t key[RCP_SEAL_KEY], payload[32], copy[32];

	(void)state;
	key_of(key);
	key[31] ^= 1;
	assert_int_equal(rcp_seal_new(key, 1, &err, &to), 0);
	fill(payload, sizeof(payload));
	struct rcp_chunk c = sent(from, payload, sizeof(payload)), d = c;

	memcpy(copy, payload, sizeof(copy));
	assert_int_equal(unseal(to, &c, copy), RCP_UNSEAL_FORGED);
	/* of another link, whatever its key */
	assert_int_equal(unseal(later, &d, payload), RCP_UNSEAL_FORGED);
	rcp_seal_free(&from);
	rcp_seal_free(&to);
	rcp_seal_free(&later);
}

/* The same bytes sealed again, as a retry does, are other bytes. */
static void again_is_another(void **state)
{
	struct rcp_seal *from = seal_of(1);
	uint8_t first[32], second[32];

	(void)state;
	fill(first, sizeof(first));
	fill(second, sizeof(second));
	struct rcp_chunk a = sent(from, first, sizeof(first)), b = sent(from, second, sizeof(second));

	assert_int_not_equal(a.sequence, b.sequence);
	assert_memory_not_equal(first, second, sizeof(first));
	assert_int_not_equal(a.crc, b.crc);
	assert_memory_not_equal(a.tag, b.tag, sizeof(a.tag));
	rcp_seal_free(&from);
}

/* ---- replays ---- */

struct kept {
	struct rcp_chunk c;
	uint8_t payload[16];
};

static struct kept keep(struct rcp_seal *from)
{
	struct kept k;

	fill(k.payload, sizeof(k.payload));
	k.c = sent(from, k.payload, sizeof(k.payload));
	return k;
}

static enum rcp_unseal opens(struct rcp_seal *to, const struct kept *k)
{
	struct kept copy = *k;

	return unseal(to, &copy.c, copy.payload);
}

/* In any order, each once; links have several connections and workers, so order means nothing. */
static void any_order_once(void **state)
{
	enum { N = 200 };
	struct rcp_seal *from = seal_of(1), *to = seal_of(1);
	struct kept kept[N];

	(void)state;
	for (unsigned i = 0; i < N; i++)
		kept[i] = keep(from);
	for (unsigned i = 0; i < N; i++)
		assert_int_equal(opens(to, &kept[i * 77 % N]), RCP_UNSEAL_OK);
	for (unsigned i = 0; i < N; i++)
		assert_int_equal(opens(to, &kept[i]), RCP_UNSEAL_REPLAYED);
	rcp_seal_free(&from);
	rcp_seal_free(&to);
}

static void window_moves(void **state)
{
	struct rcp_seal *from = seal_of(1), *to = seal_of(1);
	struct kept first = keep(from), second = keep(from), last;
	const uint64_t far = UINT64_C(3) * RCP_SEAL_WINDOW + 13;

	(void)state;
	assert_int_equal(opens(to, &first), RCP_UNSEAL_OK);
	for (uint64_t i = 2; i <= far; i++) {
		struct kept k = keep(from);

		if (i == far - RCP_SEAL_WINDOW + 1 || i == far)
			assert_int_equal(opens(to, &k), RCP_UNSEAL_OK);
		if (i == far - RCP_SEAL_WINDOW + 1)
			last = k; /* the oldest that is known at the end */
	}
	assert_int_equal(opens(to, &last), RCP_UNSEAL_REPLAYED);
	/* one was seen, one was not: too long ago to say */
	assert_int_equal(opens(to, &first), RCP_UNSEAL_LATE);
	assert_int_equal(opens(to, &second), RCP_UNSEAL_LATE);
	/* one step on, and that bit serves another sequence */
	last = keep(from);
	assert_int_equal(opens(to, &last), RCP_UNSEAL_OK);
	assert_int_equal(opens(to, &last), RCP_UNSEAL_REPLAYED);
	rcp_seal_free(&from);
	rcp_seal_free(&to);
}

/* ---- workers ---- */

#define WORKERS 4
#define EACH	500

struct worker {
	pthread_t thread;
	struct rcp_seal *from, *to;
	uint64_t sequence[EACH];
	unsigned wrong;
};

static void *work(void *arg)
{
	struct worker *w = arg;
	uint8_t p[256], plain[256];

	fill(plain, sizeof(plain));
	for (unsigned i = 0; i < EACH; i++) {
		struct rcp_chunk c = chunk_of(plain, sizeof(plain));
		struct rcp_err err = {0};

		memcpy(p, plain, sizeof(p));
		w->wrong += rcp_seal_chunk(w->from, &c, p, &err) != 0;
		w->sequence[i] = c.sequence;
		w->wrong += unseal(w->to, &c, p) != RCP_UNSEAL_OK || memcmp(p, plain, sizeof(p));
	}
	return NULL;
}

static void many_at_once(void **state)
{
	static struct worker w[WORKERS];
	static bool seen[WORKERS * EACH];
	struct rcp_seal *from = seal_of(1), *to = seal_of(1);

	(void)state;
	for (unsigned i = 0; i < WORKERS; i++) {
		w[i] = (struct worker){.from = from, .to = to};
		assert_int_equal(pthread_create(&w[i].thread, NULL, work, &w[i]), 0);
	}
	for (unsigned i = 0; i < WORKERS; i++) {
		assert_int_equal(pthread_join(w[i].thread, NULL), 0);
		assert_int_equal(w[i].wrong, 0);
		for (unsigned j = 0; j < EACH; j++) {
			assert_true(w[i].sequence[j] < WORKERS * EACH);
			assert_false(seen[w[i].sequence[j]]);
			seen[w[i].sequence[j]] = true;
		}
	}
	rcp_seal_free(&from);
	rcp_seal_free(&to);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(known_answers),   cmocka_unit_test(any_length),
		cmocka_unit_test(tampered),	   cmocka_unit_test(other_keys),
		cmocka_unit_test(again_is_another), cmocka_unit_test(any_order_once),
		cmocka_unit_test(window_moves),	   cmocka_unit_test(many_at_once),
	};

	return cmocka_run_group_tests_name("seal", tests, NULL, NULL);
}
