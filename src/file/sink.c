#include "file/sink.h"

#include "base/text.h"
#include "file/io.h"
#include "file/sink_int.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* Below this a refused write is soon enough, and fallocate is a call too many. */
#define PREALLOCATE_FROM (UINT64_C(4) << 20)

void rcp_sink_set_remark(struct rcp_sink *s, const char *fmt, ...)
{
	va_list ap;

	if (atomic_load(&s->remark))
		return;
	va_start(ap, fmt);
	vsnprintf(s->remark_text, sizeof(s->remark_text), fmt, ap);
	va_end(ap);
	atomic_store(&s->remark, s->remark_text);
}

const char *rcp_sink_remark(const struct rcp_sink *sink)
{
	return atomic_load(&sink->remark);
}

int rcp_sink_no_room(const struct rcp_sink *s, int sys_errno, const char *call, struct rcp_err *err)
{
	uint64_t need = s->id.size - atomic_load_explicit(&s->bytes, memory_order_relaxed);
	char words[32];

	if (sys_errno == ENOSPC || sys_errno == EDQUOT)
		rcp_err_set(err, RCP_E_IO, sys_errno, call, s->shown,
			    "no room for %s more (%" PRIu64 " bytes)",
			    rcp_size_format(need, words, sizeof(words)), need);
	else if (sys_errno == EFBIG)
		rcp_err_set(err, RCP_E_IO, sys_errno, call, s->shown,
			    "a file of %s (%" PRIu64 " bytes) is too large here",
			    rcp_size_format(s->id.size, words, sizeof(words)), s->id.size);
	return rcp_io_fail(err, sys_errno, call, s->shown); /* adds the remedy */
}

/* What is reserved for root is room for root. */
static int check_free(const struct rcp_sink *s, struct rcp_err *err)
{
	struct statvfs fs;
	struct stat st;

	if (fstatvfs(s->part.fd, &fs) < 0 || fstat(s->part.fd, &st) < 0 || fs.f_blocks == 0)
		return 0; /* it does not know its room */
	uint64_t blocks = geteuid() ? fs.f_bavail : fs.f_bfree;
	uint64_t room = blocks * fs.f_frsize + (uint64_t)st.st_blocks * 512;

	return room < s->id.size ? rcp_sink_no_room(s, ENOSPC, "fstatvfs", err) : 0;
}

/*
 * Not on tmpfs: there fallocate allocates and zeroes every page at once, by one thread before the
 * first byte is written. Measured for 1 GiB (CPU seconds): fallocate 0.41 and then pwrite 0.27 to
 * 0.45; without it pwrite 0.70 to 0.88. So it saves nothing, and the workers would share that work.
 * On ext4 it is 1 to 12 ms.
 *
 * The file system is asked first: an fallocate that fails may have taken all the room there was until the
 * partial file is removed (ext4's does), and files that would fit would fail with this one.
 */
static int preallocate(const struct rcp_sink *s, struct rcp_err *err)
{
	int rc;

	if (s->sparse || s->id.size < PREALLOCATE_FROM)
		return 0;
	if (check_free(s, err))
		return (int)err->code;
	if (rcp_io_is_tmpfs(s->part.fd))
		return 0;
	do
		rc = fallocate(s->part.fd, 0, 0, (off_t)s->id.size);
	while (rc < 0 && errno == EINTR);
	if (rc == 0)
		return 0;
	if (errno == ENOSPC || errno == EDQUOT || errno == EFBIG || errno == EIO)
		return rcp_sink_no_room(s, errno, "fallocate", err);
	return 0; /* it can't reserve room */
}

int rcp_sink_tables(struct rcp_sink *s, struct rcp_err *err)
{
	size_t words = (size_t)((s->chunks + 63) / 64);

	free(s->crc);
	free(s->written);
	free(s->have);
	free(s->claimed);
	s->claimed = NULL;
	s->crc = calloc((size_t)s->chunks + 1, sizeof(*s->crc));
	s->written = calloc(words + 1, sizeof(*s->written));
	s->have = calloc(words + 1, sizeof(*s->have));
	return s->crc && s->written && s->have ? 0 : rcp_io_fail(err, ENOMEM, "calloc", s->shown);
}

static int set_grid(struct rcp_sink *s, struct rcp_err *err)
{
	if (s->chunk_bytes == 0)
		return rcp_err_set(err, RCP_E_CONNECT, EINVAL, "", s->shown, "a chunk size of 0");
	if (s->id.size > INT64_MAX)
		return rcp_sink_no_room(s, EFBIG, "", err);
	s->chunks = s->id.size / s->chunk_bytes + (s->id.size % s->chunk_bytes != 0);
	if (s->chunks <= RCP_SINK_CHUNKS_MAX)
		return 0;
	rcp_err_set(err, RCP_E_IO, EFBIG, "", s->shown, "%" PRIu64 " chunks are too many",
		    s->chunks);
	rcp_err_fix(err, "use a larger --chunk-size");
	return RCP_E_IO;
}

static struct rcp_sink *sink_new(const struct rcp_sink_params *p)
{
	struct rcp_sink *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->part.fd = s->part.dir = s->journal.fd = -1;
	atomic_flag_clear(&s->busy);
	s->id = p->id;
	s->chunk_bytes = p->chunk_bytes;
	s->sparse = p->sparse;
	s->resume = p->resume;
	s->fsync = p->fsync;
	s->done = p->done;
	s->path = p->path;
	s->shown = strdup(p->shown ? p->shown : p->path);
	if (!s->shown) {
		free(s);
		return NULL;
	}
	return s;
}

/* In this order: what is impossible is told before anything is made. */
static int sink_start(struct rcp_sink *s, const struct rcp_sink_params *p, struct rcp_err *err)
{
	if (set_grid(s, err) || rcp_part_locate(p->root, p->path, s->shown, NULL, err, &s->part))
		return (int)err->code;
	s->part.wait_ms = p->wait_ms;
	if (rcp_part_check_target(&s->part, err) || rcp_part_open(&s->part, err) ||
	    rcp_sink_tables(s, err) || rcp_sink_take_up(s, err))
		return (int)err->code;
	s->settled = true;
	return preallocate(s, err);
}

int rcp_sink_open(const struct rcp_sink_params *params, struct rcp_err *err, struct rcp_sink **out)
{
	struct rcp_sink *s = sink_new(params);

	*out = NULL;
	if (!s)
		return rcp_io_fail(err, ENOMEM, "calloc", params->shown);
	int rc = sink_start(s, params, err);

	if (rc) /* keeps what an earlier run left, if that was taken up */
		rcp_sink_close(&s, true);
	*out = s;
	return rc;
}

static void sink_free(struct rcp_sink *s)
{
	rcp_journal_close(&s->journal);
	rcp_part_close(&s->part);
	free(s->crc);
	free(s->written);
	free(s->have);
	free(s->claimed);
	free(s->pending);
	free(s->shown);
	free(s);
}

void rcp_sink_close(struct rcp_sink **sink, bool keep)
{
	struct rcp_sink *s = *sink;

	if (!s)
		return;
	*sink = NULL;
	if (s->part.fd >= 0 && !s->part.placed) {
		if (keep && s->written)
			rcp_sink_claim_last(s);
		/* A partial file that no journal speaks of is of no use to the next run. One that
		 * we could not even look at (no memory, say) may be of use yet. */
		bool unseen = s->part.found && !s->settled;

		if (!keep || (s->journal.fd < 0 && !unseen)) {
			unlinkat(s->part.dir, s->part.journal, 0);
			rcp_part_remove(&s->part);
		}
	}
	sink_free(s);
}

bool rcp_sink_has(const struct rcp_sink *sink, uint64_t index)
{
	return index < sink->chunks && (sink->have[index / 64] >> (index % 64) & 1);
}

bool rcp_sink_holds(const struct rcp_sink *sink, uint64_t index)
{
	return index < sink->chunks && rcp_sink_is_written(sink, index);
}

uint64_t rcp_sink_resumed_bytes(const struct rcp_sink *sink)
{
	return sink->resumed_bytes;
}

uint64_t rcp_sink_bytes(struct rcp_sink *sink)
{
	return atomic_load_explicit(&sink->bytes, memory_order_relaxed);
}
