#include "base/crc.h"

#include <zlib.h>

#if RCP_HAVE_ISAL
#include <isa-l/crc.h>

uint32_t rcp_crc32(uint32_t crc, const void *data, size_t len)
{
	return crc32_gzip_refl(crc, data, len);
}

const char *rcp_crc32_engine(void)
{
	return "isa-l";
}
#else
uint32_t rcp_crc32(uint32_t crc, const void *data, size_t len)
{
	return (uint32_t)crc32_z(crc, data, len);
}

const char *rcp_crc32_engine(void)
{
	return "zlib";
}
#endif

uint32_t rcp_crc32_combine(uint32_t a, uint32_t b, uint64_t b_len)
{
	/* z_off64_t is signed: files end at INT64_MAX, which it holds. */
	return (uint32_t)crc32_combine64(a, b, (z_off64_t)b_len);
}

uint32_t rcp_crc32_zeros(uint64_t len)
{
	/* Doubling: crc(2n zeros) = combine(crc(n), crc(n), n). */
	static const unsigned char zero;
	uint32_t pow = rcp_crc32(0, &zero, 1), crc = 0;
	uint64_t n = 1;

	for (; len; len >>= 1, n <<= 1) {
		if (len & 1)
			crc = rcp_crc32_combine(crc, pow, n);
		if (len > 1)
			pow = rcp_crc32_combine(pow, pow, n);
	}
	return crc;
}
