/* The end of a sink: verify, size, metadata, rename. */
#include "base/crc.h"
#include "file/io.h"
#include "file/sink_int.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#define READ_BYTES ((size_t)1 << 20)

struct reader {
	int fd; /* O_DIRECT, or the sink's own where there is no such thing */
	bool direct;
	uint8_t *buf;
};

static int reader_open(const struct rcp_part *part, struct rcp_err *err, struct reader *r)
{
	struct stat a, b;

	*r = (struct reader){.fd = -1, .buf = aligned_alloc(RCP_DIRECT_ALIGN, READ_BYTES)};
	if (!r->buf)
		return rcp_io_fail(err, ENOMEM, "aligned_alloc", part->shown);
	r->fd = openat(part->dir, part->name, O_RDONLY | O_DIRECT | O_NOFOLLOW | O_CLOEXEC);
	r->direct = r->fd >= 0 && fstat(r->fd, &a) == 0 && fstat(part->fd, &b) == 0 &&
		    rcp_io_same(&a, &b);
	/* Clean pages go; dirty ones were just written out. */
	posix_fadvise(part->fd, 0, 0, POSIX_FADV_DONTNEED);
	return 0;
}

static void reader_close(struct reader *r)
{
	rcp_io_close(&r->fd);
	free(r->buf);
}

static ssize_t reader_read(const struct rcp_part *part, struct reader *r, size_t len, uint64_t at)
{
	if (r->direct && at % RCP_DIRECT_ALIGN == 0) {
		ssize_t n = rcp_io_pread_direct(r->fd, r->buf, len, at);

		if (n >= 0 || (errno != EINVAL && errno != EOPNOTSUPP))
			return n;
		r->direct = false;
	}
	return rcp_io_pread(part->fd, r->buf, len, at);
}

/* The CRC of `len` bytes at `at`. A short read is the hole at the end that commit has not made yet. */
static int reader_crc(const struct rcp_part *part, struct reader *r, uint64_t at, uint64_t len,
		      struct rcp_err *err, uint32_t *crc)
{
	uint64_t end = at + len;

	*crc = 0;
	while (at < end) {
		size_t want = end - at < READ_BYTES ? (size_t)(end - at) : READ_BYTES;
		ssize_t n = reader_read(part, r, want, at);

		if (n < 0)
			return rcp_io_fail(err, errno, "pread", part->shown);
		if (rcp_io_stopped((uint64_t)n, part->shown, err))
			return (int)err->code;
		*crc = rcp_crc32(*crc, r->buf, (size_t)n);
		if ((size_t)n < want)
			*crc = rcp_crc32_combine(*crc, rcp_crc32_zeros(end - at - (uint64_t)n),
						 end - at - (uint64_t)n);
		at = (size_t)n < want ? end : at + want;
	}
	return 0;
}

/* Is that what is on the disk? */
static int reader_expect(const struct rcp_part *part, struct reader *r, uint64_t at, uint64_t len,
			 uint32_t want, struct rcp_err *err)
{
	uint32_t crc;

	if (reader_crc(part, r, at, len, err, &crc))
		return (int)err->code;
	if (crc == want)
		return 0;
	rcp_err_set(err, RCP_E_INTEGRITY, 0, "verify", part->shown,
		    "what was read back differs from what was written, in the %" PRIu64
		    " bytes at %" PRIu64,
		    len, at);
	rcp_err_fix(err, "check the disk and its cables, and dmesg");
	return RCP_E_INTEGRITY;
}

int rcp_sink_verify(struct rcp_sink *sink, struct rcp_err *err)
{
	struct reader r;

	if (fdatasync(sink->part.fd) < 0)
		return rcp_sink_no_room(sink, errno, "fdatasync", err);
	if (reader_open(&sink->part, err, &r))
		return (int)err->code;
	for (uint64_t i = 0; i < sink->chunks && !rcp_err_is(err); i++)
		reader_expect(&sink->part, &r, i * sink->chunk_bytes, rcp_sink_cell(sink, i),
			      rcp_sink_chunk_crc(sink, i), err);
	reader_close(&r);
	return (int)err->code;
}

/* A sparse file's missing chunks are its holes; any other file must be whole. */
static int check_whole(const struct rcp_sink *s, struct rcp_err *err)
{
	uint64_t bytes = atomic_load(&s->bytes);

	if (s->sparse || bytes == s->id.size)
		return 0;
	return rcp_err_set(err, RCP_E_INTEGRITY, 0, "", s->shown,
			   "only %" PRIu64 " of %" PRIu64 " bytes arrived", bytes, s->id.size);
}

static int set_size(int fd, uint64_t size, const char *shown, struct rcp_err *err)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return rcp_io_fail(err, errno, "fstat", shown);
	if ((uint64_t)st.st_size != size && rcp_io_truncate(fd, size) < 0)
		return rcp_io_fail(err, errno, "ftruncate", shown);
	return 0;
}

/*
 * Errors that a network file system kept for close must be known while the old target still is
 * there: closing a duplicate flushes and tells them, and costs nothing elsewhere.
 */
static int flush_errors(int fd, const char *shown, struct rcp_err *err)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);

	if (copy < 0)
		return rcp_io_fail(err, errno, "fcntl", shown);
	return close(copy) < 0 && errno != EINTR ? rcp_io_fail(err, errno, "close", shown) : 0;
}

/*
 * Without --fsync, too, the name must not come to the disk before the data: a power cut would leave a
 * file of zeros that has the right size and times, and --update would skip it for good.
 */
int rcp_sink_complete(const struct rcp_part *part, const struct rcp_meta *meta, bool sync,
		      struct rcp_err *err, unsigned *lost)
{
	if (meta && rcp_meta_apply(part->fd, part->shown, meta, err, lost))
		return (int)err->code;
	if (!part->local && flush_errors(part->fd, part->shown, err))
		return (int)err->code;
	if (sync && fsync(part->fd) < 0)
		return rcp_io_fail(err, errno, "fsync", part->shown);
	if (!sync && !part->memory && rcp_io_settle(part->fd) < 0)
		return rcp_io_fail(err, errno, "write", part->shown);
	return 0;
}

/* As when the file were written into: who could not read the old content can't read the new. */
static const struct rcp_meta *keep_mode(const struct rcp_part *part, const struct rcp_meta *meta,
					struct rcp_meta *kept)
{
	struct stat st;

	if (!meta || !meta->new_mode || fstatat(part->dir, part->leaf, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
	    !S_ISREG(st.st_mode))
		return meta;
	*kept = *meta;
	kept->mode = st.st_mode & 0777;
	return kept;
}

int rcp_sink_finish(struct rcp_part *part, const struct rcp_meta *meta, bool sync, bool checked,
		    struct rcp_err *err, unsigned *lost)
{
	struct rcp_meta kept;

	meta = keep_mode(part, meta, &kept);
	if (rcp_sink_complete(part, meta, sync, err, lost) || rcp_part_place(part, checked, err))
		return (int)err->code;
	if (sync && rcp_io_sync_dir(part->dir) < 0)
		return rcp_io_fail(err, errno, "fsync directory", part->shown);
	return 0;
}

int rcp_sink_commit(struct rcp_sink *sink, const struct rcp_meta *meta, struct rcp_err *err,
		    unsigned *lost)
{
	struct stat nameless;

	*lost = 0;
	if (check_whole(sink, err) || set_size(sink->part.fd, sink->id.size, sink->shown, err) ||
	    rcp_part_check_target(&sink->part, err))
		return (int)err->code;
	rcp_done_look(sink->done, sink->part.fd, &nameless);
	if (rcp_sink_finish(&sink->part, meta, sink->fsync, true, err, lost))
		return (int)err->code;
	/* After the rename: cut off in between, a journal without a file is left, and ignored. */
	rcp_journal_close(&sink->journal);
	if (sink->resume)
		unlinkat(sink->part.dir, sink->part.journal, 0);
	rcp_done_add(sink->done, sink->path, &sink->id, sink->part.fd, &nameless);
	return 0;
}

int rcp_sink_read_back(const struct rcp_part *part, const void *data, size_t len, struct rcp_err *err)
{
	struct reader r;

	if (fdatasync(part->fd) < 0)
		return rcp_io_fail(err, errno, "fdatasync", part->shown);
	if (reader_open(part, err, &r))
		return (int)err->code;
	reader_expect(part, &r, 0, len, rcp_crc32(0, data, len), err);
	reader_close(&r);
	return (int)err->code;
}
