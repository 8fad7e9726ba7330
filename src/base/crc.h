/*
 * CRC-32 (the polynomial of gzip, zlib and Ethernet, reflected, initial value and final XOR as
 * zlib's crc32). Engine: ISA-L where built in and faster here (tried at first use), zlib otherwise;
 * both give the same value.
 * Pure functions, any thread.
 */
#ifndef RCP_BASE_CRC_H
#define RCP_BASE_CRC_H

#include <stddef.h>
#include <stdint.h>

/* crc of an empty buffer is 0; feed the result back in to go on. */
uint32_t rcp_crc32(uint32_t crc, const void *data, size_t len);

/* CRC of A followed by B, from crc(A), crc(B) and the length of B in bytes. */
uint32_t rcp_crc32_combine(uint32_t a, uint32_t b, uint64_t b_len);

/* CRC of len zero bytes: a hole's CRC without reading it. */
uint32_t rcp_crc32_zeros(uint64_t len);

/* "isa-l" or "zlib", for -v and --doctor. */
const char *rcp_crc32_engine(void);

#endif
