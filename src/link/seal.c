#include "link/seal.h"

#include "base/bytes.h"
#include "base/crc.h"

#include <openssl/evp.h>

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define NONCE_BYTES 12
#define AAD_BYTES   36
#define CRC_BYTES   4
#define PIECE_BYTES (64u << 10) /* opened, and its CRC taken while it is in the cache */

/* A cipher with its key in place. As many as there are calls at once, made at first use and kept. */
struct machine {
	EVP_CIPHER_CTX *evp;
	struct machine *next;
};

struct rcp_seal {
	uint8_t key[RCP_SEAL_KEY];
	uint32_t generation;
	EVP_CIPHER *cipher;
	pthread_mutex_t lock; /* of all below */
	struct machine *idle;
	uint64_t given; /* source: sequences given out, 0 up */
	uint64_t end;	/* sink: one more than the highest sequence seen */
	uint64_t seen[RCP_SEAL_WINDOW / 64];
};

static void machine_free(struct machine *m)
{
	EVP_CIPHER_CTX_free(m->evp); /* wipes */
	free(m);
}

static struct machine *machine_new(const struct rcp_seal *s)
{
	struct machine *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->evp = EVP_CIPHER_CTX_new();
	if (m->evp && EVP_CipherInit_ex2(m->evp, s->cipher, s->key, NULL, 1, NULL) == 1)
		return m;
	machine_free(m);
	return NULL;
}

static struct machine *machine_take(struct rcp_seal *s)
{
	pthread_mutex_lock(&s->lock);
	struct machine *m = s->idle;

	if (m)
		s->idle = m->next;
	pthread_mutex_unlock(&s->lock);
	return m ? m : machine_new(s);
}

static void machine_give(struct rcp_seal *s, struct machine *m)
{
	pthread_mutex_lock(&s->lock);
	m->next = s->idle;
	s->idle = m;
	pthread_mutex_unlock(&s->lock);
}

int rcp_seal_new(const uint8_t key[RCP_SEAL_KEY], uint32_t generation, struct rcp_err *err,
		 struct rcp_seal **out)
{
	struct rcp_seal *s = calloc(1, sizeof(*s));

	*out = NULL;
	if (!s)
		return rcp_err_set(err, RCP_E_IO, ENOMEM, "calloc", NULL, NULL);
	memcpy(s->key, key, sizeof(s->key));
	s->generation = generation;
	pthread_mutex_init(&s->lock, NULL);
	s->cipher = EVP_CIPHER_fetch(NULL, "AES-256-GCM", NULL);
	s->idle = s->cipher ? machine_new(s) : NULL;
	if (!s->idle) {
		bool known = s->cipher != NULL;

		rcp_seal_free(&s);
		if (known)
			return rcp_err_set(err, RCP_E_IO, ENOMEM, "EVP_CIPHER_CTX_new", "AES-256-GCM", NULL);
		rcp_err_set(err, RCP_E_CONNECT, 0, "EVP_CIPHER_fetch", "AES-256-GCM",
			    "this host's OpenSSL can't do it");
		rcp_err_fix(err, "see its configuration, or go without: --encrypt=never");
		return (int)err->code;
	}
	*out = s;
	return 0;
}

void rcp_seal_free(struct rcp_seal **sp)
{
	struct rcp_seal *s = *sp;

	*sp = NULL;
	if (!s)
		return;
	while (s->idle) {
		struct machine *m = s->idle;

		s->idle = m->next;
		machine_free(m);
	}
	EVP_CIPHER_free(s->cipher);
	pthread_mutex_destroy(&s->lock);
	explicit_bzero(s, sizeof(*s));
	free(s);
}

/* Nonce and what is authenticated but not enciphered, in the cipher's hands. */
static bool begin(EVP_CIPHER_CTX *evp, const struct rcp_chunk *c, bool sealing)
{
	uint8_t header[RCP_CHUNK_HEADER], nonce[NONCE_BYTES], aad[AAD_BYTES];
	int n;

	rcp_chunk_encode(c, header);
	memcpy(aad, header, 28);
	memcpy(aad + 28, header + 32, 8);
	rcp_put_u32(nonce, c->generation);
	rcp_put_u64(nonce + 4, c->sequence);
	return EVP_CipherInit_ex2(evp, NULL, NULL, nonce, sealing, NULL) == 1 &&
	       EVP_CipherUpdate(evp, NULL, &n, aad, AAD_BYTES) == 1;
}

static bool update(EVP_CIPHER_CTX *evp, uint8_t *p, uint32_t len)
{
	int n;

	return !len || (EVP_CipherUpdate(evp, p, &n, p, (int)len) == 1 && n == (int)len);
}

static bool run_crc(EVP_CIPHER_CTX *evp, struct rcp_chunk *c)
{
	uint8_t crc[CRC_BYTES];

	rcp_put_u32(crc, c->crc);
	if (!update(evp, crc, CRC_BYTES))
		return false;
	c->crc = rcp_get_u32(crc);
	return true;
}

/* Payload and CRC, each where it stands. */
static bool run_sealing(EVP_CIPHER_CTX *evp, struct rcp_chunk *c, uint8_t *payload)
{
	return update(evp, payload, c->length) && run_crc(evp, c);
}

static bool run_opening(EVP_CIPHER_CTX *evp, struct rcp_chunk *c, uint8_t *payload, uint32_t *crc)
{
	*crc = 0;
	for (uint32_t at = 0, n; at < c->length; at += n) {
		n = c->length - at < PIECE_BYTES ? c->length - at : PIECE_BYTES;
		if (!update(evp, payload + at, n))
			return false;
		*crc = rcp_crc32(*crc, payload + at, n);
	}
	return run_crc(evp, c);
}

static bool end_sealed(EVP_CIPHER_CTX *evp, struct rcp_chunk *c)
{
	uint8_t none[16];
	int n;

	return EVP_CipherFinal_ex(evp, none, &n) == 1 &&
	       EVP_CIPHER_CTX_ctrl(evp, EVP_CTRL_AEAD_GET_TAG, sizeof(c->tag), c->tag) == 1;
}

int rcp_seal_chunk(struct rcp_seal *s, struct rcp_chunk *c, uint8_t *payload, struct rcp_err *err)
{
	struct machine *m = machine_take(s);

	if (!m)
		return rcp_err_set(err, RCP_E_IO, ENOMEM, "EVP_CIPHER_CTX_new", NULL, NULL);
	pthread_mutex_lock(&s->lock);
	c->sequence = s->given++;
	pthread_mutex_unlock(&s->lock);
	c->generation = s->generation;
	c->flags |= RCP_CHUNK_SEALED;
	bool ok = begin(m->evp, c, true) && run_sealing(m->evp, c, payload) && end_sealed(m->evp, c);

	machine_give(s, m);
	return ok ? 0 : rcp_err_set(err, RCP_E_IO, 0, "EVP_CipherUpdate", NULL, "sealing failed");
}

/* ---- what was here before ---- */

static void forget(struct rcp_seal *s, uint64_t from, uint64_t to)
{
	for (; from < to && from % 64; from++)
		s->seen[from % RCP_SEAL_WINDOW / 64] &= ~(UINT64_C(1) << from % 64);
	for (; from < to && to - from >= 64; from += 64)
		s->seen[from % RCP_SEAL_WINDOW / 64] = 0;
	for (; from < to; from++)
		s->seen[from % RCP_SEAL_WINDOW / 64] &= ~(UINT64_C(1) << from % 64);
}

/* A bit a sequence, for the last RCP_SEAL_WINDOW of them: those before `end` are known. */
static enum rcp_unseal mark(struct rcp_seal *s, uint64_t sequence)
{
	uint64_t bit = UINT64_C(1) << sequence % 64;

	if (sequence == UINT64_MAX)
		return RCP_UNSEAL_LATE; /* no source gets there */
	if (sequence >= s->end) {
		uint64_t from = sequence - s->end >= RCP_SEAL_WINDOW
					? sequence + 1 - RCP_SEAL_WINDOW
					: s->end;

		forget(s, from, sequence + 1);
		s->end = sequence + 1;
	} else if (s->end - sequence > RCP_SEAL_WINDOW) {
		return RCP_UNSEAL_LATE;
	}
	uint64_t *word = &s->seen[sequence % RCP_SEAL_WINDOW / 64];

	if (*word & bit)
		return RCP_UNSEAL_REPLAYED;
	*word |= bit;
	return RCP_UNSEAL_OK;
}

enum rcp_unseal rcp_unseal_chunk(struct rcp_seal *s, struct rcp_chunk *c, uint8_t *payload,
				 uint32_t *crc)
{
	*crc = 0;
	if (!(c->flags & RCP_CHUNK_SEALED) || c->generation != s->generation)
		return RCP_UNSEAL_FORGED;
	struct machine *m = machine_take(s);
	uint8_t none[16];
	int n;

	if (!m)
		return RCP_UNSEAL_FAILED;
	bool ran = begin(m->evp, c, false) && run_opening(m->evp, c, payload, crc) &&
		   EVP_CIPHER_CTX_ctrl(m->evp, EVP_CTRL_AEAD_SET_TAG, sizeof(c->tag), c->tag) == 1;
	bool own = ran && EVP_CipherFinal_ex(m->evp, none, &n) == 1;

	machine_give(s, m);
	if (!own)
		return ran ? RCP_UNSEAL_FORGED : RCP_UNSEAL_FAILED;
	pthread_mutex_lock(&s->lock);
	enum rcp_unseal verdict = mark(s, c->sequence);

	pthread_mutex_unlock(&s->lock);
	return verdict;
}
