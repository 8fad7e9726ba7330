#include "base/crc.h"

#include <zlib.h>

#if RCP_HAVE_ISAL
#include "base/clock.h"

#include <isa-l/crc.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#define TRIAL_BYTES 16384
#define TRIALS	    3

static uint32_t by_isal(uint32_t crc, const void *data, size_t len)
{
	return crc32_gzip_refl(crc, data, len);
}

static uint32_t by_zlib(uint32_t crc, const void *data, size_t len)
{
	return (uint32_t)crc32_z(crc, data, len);
}

static pthread_once_t chosen = PTHREAD_ONCE_INIT;
static bool zlib_is_faster;

/* The shortest of a few, after one that pays for loading code: others may have the CPU meanwhile.
 */
static uint64_t time_of(uint32_t (*engine)(uint32_t, const void *, size_t), const void *data)
{
	uint64_t least = UINT64_MAX;

	for (int i = 0; i <= TRIALS; i++) {
		uint64_t start = rcp_now_ns();
		volatile uint32_t crc = engine(0, data, TRIAL_BYTES);
		uint64_t took = rcp_now_ns() - start;

		(void)crc;
		if (i && took < least)
			least = took;
	}
	return least;
}

/*
 * ISA-L's carry-less multiplication is ten times faster than zlib's tables where the CPU has it,
 * and half as fast where the CPU is emulated. Finding out takes 0.1 ms on the one, a few ms on the
 * other.
 */
static void choose(void)
{
	uint8_t data[TRIAL_BYTES];

	memset(data, 0x5a, sizeof(data));
	zlib_is_faster = time_of(by_zlib, data) < time_of(by_isal, data);
}

uint32_t rcp_crc32(uint32_t crc, const void *data, size_t len)
{
	pthread_once(&chosen, choose);
	return zlib_is_faster ? by_zlib(crc, data, len) : by_isal(crc, data, len);
}

const char *rcp_crc32_engine(void)
{
	pthread_once(&chosen, choose);
	return zlib_is_faster ? "zlib" : "isa-l";
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
