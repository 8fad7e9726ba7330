/* The hot path: one chunk to its place. No lock, no allocation, no call but pwrite. */
#include "base/crc.h"
#include "file/io.h"
#include "file/sink_int.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

static bool is_zero(const uint8_t *p, size_t len)
{
	uint64_t word = 0;

	/* Most blocks that are no hole say so at once. */
	if (p[0] || p[len - 1])
		return false;
	for (; len >= 64; p += 64, len -= 64) {
		uint64_t w[8];

		memcpy(w, p, sizeof(w));
		word = w[0] | w[1] | w[2] | w[3] | w[4] | w[5] | w[6] | w[7];
		if (word)
			return false;
	}
	while (len--)
		word |= *p++;
	return word == 0;
}

/* Bytes of p that are alike: whole blocks of zeros, or blocks that hold something. */
static size_t run_length(const uint8_t *p, size_t len, bool *zero)
{
	size_t first = len < RCP_SINK_BLOCK ? len : RCP_SINK_BLOCK, at = first;

	*zero = is_zero(p, first);
	while (at < len) {
		size_t n = len - at < RCP_SINK_BLOCK ? len - at : RCP_SINK_BLOCK;

		if (is_zero(p + at, n) != *zero)
			break;
		at += n;
	}
	return at;
}

static int write_data_only(int fd, const uint8_t *p, size_t len, uint64_t offset)
{
	while (len) {
		bool zero;
		size_t n = run_length(p, len, &zero);

		if (!zero && rcp_io_pwrite(fd, p, n, offset) < 0)
			return -1;
		p += n;
		len -= n;
		offset += n;
	}
	return 0;
}

static int off_grid(const struct rcp_sink *s, uint64_t offset, size_t len, struct rcp_err *err)
{
	return rcp_err_set(err, RCP_E_INTEGRITY, 0, "pwrite", s->shown,
			   "a chunk of %zu bytes at %" PRIu64 " is none of this file's", len,
			   offset);
}

int rcp_sink_write(struct rcp_sink *sink, uint64_t offset, const void *data, size_t len,
		   uint32_t crc, struct rcp_err *err)
{
	uint64_t index = offset / sink->chunk_bytes;

	if (offset % sink->chunk_bytes || index >= sink->chunks ||
	    len != rcp_sink_cell(sink, index))
		return off_grid(sink, offset, len, err);
	/* Written a second time, zeros must replace what the first time put there. */
	int rc = sink->sparse && !rcp_sink_is_written(sink, index)
			 ? write_data_only(sink->part.fd, data, len, offset)
			 : rcp_io_pwrite(sink->part.fd, data, len, offset);

	if (rc < 0)
		return rcp_sink_no_room(sink, errno, "pwrite", err);
	if (rcp_sink_note(sink, index, crc))
		atomic_fetch_add_explicit(&sink->unclaimed, 1, memory_order_relaxed);
	return 0;
}

uint32_t rcp_sink_chunk_crc(const struct rcp_sink *s, uint64_t index)
{
	return rcp_sink_is_written(s, index)
		       ? atomic_load_explicit(&s->crc[index], memory_order_relaxed)
		       : rcp_crc32_zeros(rcp_sink_cell(s, index));
}

uint32_t rcp_sink_crc(const struct rcp_sink *sink)
{
	uint64_t hole = 0; /* bytes since the last chunk that was written: there may be terabytes of them */
	uint32_t crc = 0;

	for (uint64_t i = 0; i < sink->chunks; i++) {
		uint32_t cell = rcp_sink_cell(sink, i);

		if (!rcp_sink_is_written(sink, i)) {
			hole += cell;
			continue;
		}
		if (hole)
			crc = rcp_crc32_combine(crc, rcp_crc32_zeros(hole), hole);
		hole = 0;
		crc = rcp_crc32_combine(crc, rcp_sink_chunk_crc(sink, i), cell);
	}
	return hole ? rcp_crc32_combine(crc, rcp_crc32_zeros(hole), hole) : crc;
}
