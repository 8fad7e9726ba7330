/*
 * Sealing: AES-256-GCM over one chunk, for any link. Knows no link, no session and no file; the only
 * user of EVP beside boot/tls. Both chunk calls run on workers, any number of them at once.
 *
 * One object is one key: that of one generation of links in one direction, at one end. Its owner never
 * makes two that seal with the same key.
 *
 *   nonce       U32 generation, U64 sequence                     12 bytes
 *   AAD         header bytes 0 to 27 and 32 to 39                36 bytes: all but crc, tag and what follows
 *   plaintext   the payload, then U32 CRC-32 of the payload
 *   ciphertext  where the payload was, then the header's crc field
 *
 * So the CRC is end to end over the bytes of the file, and tells nobody on the way what they are.
 */
#ifndef RCP_LINK_SEAL_H
#define RCP_LINK_SEAL_H

#include "base/err.h"
#include "wire/chunk.h"

#include <stddef.h>
#include <stdint.h>

#define RCP_SEAL_KEY	32
#define RCP_SEAL_WINDOW 65536u /* sequences back from the highest that are told apart one by one */

struct rcp_seal;

enum rcp_unseal {
	RCP_UNSEAL_OK,
	RCP_UNSEAL_FORGED,   /* damaged or forged: nothing in header or payload may be believed */
	RCP_UNSEAL_REPLAYED, /* the source's own, but it was here before */
	RCP_UNSEAL_LATE,     /* the source's own, but too old to tell whether it was here before */
	RCP_UNSEAL_FAILED,   /* the cipher itself (no memory); says nothing of the chunk */
};

/* key is copied. */
int rcp_seal_new(const uint8_t key[RCP_SEAL_KEY], uint32_t generation, struct rcp_err *err,
		 struct rcp_seal **out);
/* Wipes the key. NULL is fine. No chunk call may be under way. */
void rcp_seal_free(struct rcp_seal **seal);

/*
 * Source. chunk: entry, flags, offset, length and the payload's crc; gets generation, a sequence that
 * this object never gives again (so a chunk that is loaded again has another nonce), the sealed flag,
 * tag, and crc's ciphertext. payload: chunk->length bytes, sealed in place.
 */
int rcp_seal_chunk(struct rcp_seal *seal, struct rcp_chunk *chunk, uint8_t *payload,
		   struct rcp_err *err);

/*
 * Sink. chunk: as decoded; with RCP_UNSEAL_OK its crc is what the source found, still to be compared
 * with *crc, which is that of the payload as it came out. payload is opened in place and must be memory
 * that nobody else can write to meanwhile. A sequence counts as seen only when its chunk was the source's own.
 */
enum rcp_unseal rcp_unseal_chunk(struct rcp_seal *seal, struct rcp_chunk *chunk, uint8_t *payload,
				 uint32_t *crc);

#endif
