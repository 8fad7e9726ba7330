/*
 * The 64-byte header that stands directly before a chunk's payload, and the imm word. Pure.
 *
 *   0  U32 magic "rcpC"      8 U32 generation   16 U64 offset   28 U32 crc       40 K16 tag      60 U32 header crc
 *   4  U32 flags            12 U32 entry        24 U32 length   32 U64 sequence  56 U32 zero
 *
 * crc: CRC-32 of the payload; sealed: enciphered with it (link/seal.h). header crc: CRC-32 of bytes 0 to 59.
 * imm: bits 31-16 slot, 15-0 generation's low half.
 */
#ifndef RCP_WIRE_CHUNK_H
#define RCP_WIRE_CHUNK_H

#include <stdbool.h>
#include <stdint.h>

#define RCP_CHUNK_HEADER 64
#define RCP_CHUNK_MAGIC UINT32_C(0x72637043)
#define RCP_CHUNK_BUNDLE 0x1u /* payload: U32 count, BUNDLED records, then the files' bytes */
#define RCP_CHUNK_SEALED 0x2u /* payload is AES-256-GCM ciphertext, tag in the header */

struct rcp_chunk {
	uint32_t flags;
	uint32_t generation; /* of the link: stale writes of an earlier one don't count */
	uint32_t entry;	     /* bundles: the first entry in it */
	uint64_t offset;     /* bytes into the file, a multiple of the chunk size; bundles: 0 */
	uint32_t length;     /* payload bytes */
	uint32_t crc;
	uint64_t sequence; /* never repeats within a generation */
	uint8_t tag[16];
};

void rcp_chunk_encode(const struct rcp_chunk *c, uint8_t header[RCP_CHUNK_HEADER]);

/* False: magic, zero bytes, unknown flags or the header's CRC are wrong; *c is then undefined. */
bool rcp_chunk_decode(const uint8_t header[RCP_CHUNK_HEADER], struct rcp_chunk *c);

static inline uint32_t rcp_imm(uint32_t slot, uint32_t generation)
{
	return slot << 16 | (generation & 0xffff);
}
static inline uint32_t rcp_imm_slot(uint32_t imm)
{
	return imm >> 16;
}
static inline bool rcp_imm_current(uint32_t imm, uint32_t generation)
{
	return (imm & 0xffff) == (generation & 0xffff);
}

#endif
