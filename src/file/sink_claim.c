/* A sink and its journal: taking up what an earlier run left, and claiming what this one wrote. */
#include "base/crc.h"
#include "file/io.h"
#include "file/sink_int.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define READ_BYTES     ((size_t)1 << 20)
#define CLAIMS_AT_ONCE 1024

static struct rcp_journal_key key_of(const struct rcp_sink *s)
{
	return (struct rcp_journal_key){.id = s->id, .chunk_bytes = s->chunk_bytes};
}

static bool bit_get(const uint64_t *bits, uint64_t i)
{
	return bits[i / 64] >> (i % 64) & 1;
}

static void bit_set(uint64_t *bits, uint64_t i)
{
	bits[i / 64] |= UINT64_C(1) << (i % 64);
}

/* While loading: `claimed` says which chunks the journal speaks of, `crc` what it says. */
static void on_claim(void *arg, const struct rcp_claim *claim)
{
	struct rcp_sink *s = arg;

	bit_set(s->claimed, claim->index);
	atomic_store_explicit(&s->crc[claim->index], claim->crc, memory_order_relaxed);
}

/* Is the chunk on disk what the journal says? */
static bool claim_holds(struct rcp_sink *s, uint64_t index, uint8_t *buf, struct rcp_err *err)
{
	uint64_t at = index * s->chunk_bytes, end = at + rcp_sink_cell(s, index);
	uint32_t crc = 0;

	while (at < end) {
		size_t want = end - at < READ_BYTES ? (size_t)(end - at) : READ_BYTES;

		if (rcp_io_pread(s->part.fd, buf, want, at) != (ssize_t)want)
			return false;
		crc = rcp_crc32(crc, buf, want);
		at += want;
		if (rcp_io_stopped(want, s->shown, err))
			return false;
	}
	return crc == atomic_load_explicit(&s->crc[index], memory_order_relaxed);
}

static int check_claims(struct rcp_sink *s, struct rcp_err *err)
{
	uint8_t *buf = malloc(READ_BYTES);
	uint64_t wrong = 0;

	if (!buf)
		return rcp_io_fail(err, ENOMEM, "malloc", s->shown);
	posix_fadvise(s->part.fd, 0, 0, POSIX_FADV_SEQUENTIAL);
	for (uint64_t i = 0; i < s->chunks && !rcp_err_is(err); i++) {
		if (!bit_get(s->claimed, i))
			continue;
		if (claim_holds(s, i, buf, err)) {
			rcp_sink_note(s, i, atomic_load_explicit(&s->crc[i], memory_order_relaxed));
			bit_set(s->have, i);
			s->resumed_bytes += rcp_sink_cell(s, i);
		} else {
			s->claimed[i / 64] &= ~(UINT64_C(1) << (i % 64));
			wrong++;
		}
	}
	posix_fadvise(s->part.fd, 0, 0, POSIX_FADV_NORMAL);
	free(buf);
	if (rcp_err_is(err))
		return (int)err->code;
	if (wrong)
		rcp_sink_set_remark(s,
				    "%" PRIu64 " chunks of the partial file were not what its "
				    "journal said: they are sent again",
				    wrong);
	return 0;
}

/*
 * A sparse sink skips zeros, so what it does not write must be zeros already: chunks that a crash
 * left half written are emptied. False where the file system can't.
 */
static bool empty_unclaimed(const struct rcp_sink *s)
{
	for (uint64_t i = 0; i < s->chunks;) {
		uint64_t first = i;

		while (i < s->chunks && !bit_get(s->have, i))
			i++;
		if (i > first && fallocate(s->part.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
					   (off_t)(first * s->chunk_bytes),
					   (off_t)((i - first) * s->chunk_bytes)) < 0)
			return false;
		while (i < s->chunks && bit_get(s->have, i))
			i++;
	}
	return true;
}

/* Nothing of an earlier run stays, and nothing is claimed. */
static int start_over(struct rcp_sink *s, struct rcp_err *err)
{
	rcp_journal_close(&s->journal);
	unlinkat(s->part.dir, s->part.journal, 0);
	if (s->part.found && rcp_io_truncate(s->part.fd, 0) < 0)
		return rcp_io_fail(err, errno, "ftruncate", s->shown);
	atomic_store(&s->bytes, 0);
	s->resumed_bytes = 0;
	return s->claimed ? rcp_sink_tables(s, err) : 0; /* otherwise they are as they were made */
}

static int load(struct rcp_sink *s, struct rcp_err *err)
{
	struct rcp_journal_key key = key_of(s);

	s->claimed = calloc((size_t)(s->chunks / 64 + 1), sizeof(*s->claimed));
	if (!s->claimed)
		return rcp_io_fail(err, ENOMEM, "calloc", s->shown);
	switch (rcp_journal_load(s->part.dir, s->part.journal, &key, s->chunks, on_claim, s,
				 &s->journal)) {
	case RCP_JOURNAL_GOOD:
		return check_claims(s, err);
	case RCP_JOURNAL_NONE:
		rcp_sink_set_remark(s, "a partial file without a journal was there: started over");
		break;
	case RCP_JOURNAL_OTHER:
		rcp_sink_set_remark(s,
				    "a partial file of another version of the source, or another "
				    "chunk size, was there: started over");
		break;
	case RCP_JOURNAL_DAMAGED:
		rcp_sink_set_remark(s,
				    "the partial file's journal could not be used: started over");
		break;
	}
	return start_over(s, err);
}

int rcp_sink_take_up(struct rcp_sink *s, struct rcp_err *err)
{
	struct stat st;

	if (!s->resume || !s->part.found)
		return start_over(s, err);
	if (load(s, err))
		return (int)err->code;
	/* Longer than the source: whatever wrote that was not a run with this identity. */
	if (fstat(s->part.fd, &st) == 0 && (uint64_t)st.st_size > s->id.size &&
	    rcp_io_truncate(s->part.fd, s->id.size) < 0)
		return rcp_io_fail(err, errno, "ftruncate", s->shown);
	if (s->sparse && s->journal.fd >= 0 && !empty_unclaimed(s)) {
		rcp_sink_set_remark(s, "holes can't be made in the partial file: started over");
		return start_over(s, err);
	}
	return 0;
}

/* What is written and not claimed now, before the sync that makes it durable. False: nothing. */
static bool snapshot(struct rcp_sink *s)
{
	uint64_t any = 0;

	for (size_t w = 0; w * 64 < s->chunks; w++) {
		s->pending[w] =
			atomic_load_explicit(&s->written[w], memory_order_acquire) & ~s->claimed[w];
		any |= s->pending[w];
	}
	return any != 0;
}

/* The snapshot's next chunks, taken off it. */
static size_t collect(struct rcp_sink *s, size_t *word, struct rcp_claim out[CLAIMS_AT_ONCE])
{
	size_t n = 0;

	for (; *word * 64 < s->chunks && n < CLAIMS_AT_ONCE; ++*word) {
		while (s->pending[*word] && n < CLAIMS_AT_ONCE) {
			uint64_t i = *word * 64 + (unsigned)__builtin_ctzll(s->pending[*word]);

			s->pending[*word] &= s->pending[*word] - 1;
			bit_set(s->claimed, i);
			out[n].index = i;
			out[n++].crc = atomic_load_explicit(&s->crc[i], memory_order_relaxed);
		}
		if (s->pending[*word])
			break;
	}
	return n;
}

static int append_snapshot(struct rcp_sink *s)
{
	struct rcp_claim claims[CLAIMS_AT_ONCE];
	struct rcp_journal_key key = key_of(s);
	size_t word = 0, n;

	if (s->journal.fd < 0 &&
	    rcp_journal_create(s->part.dir, s->part.journal, &key, &s->journal) < 0)
		return -1;
	while ((n = collect(s, &word, claims))) {
		if (rcp_journal_append(&s->journal, claims, n) < 0)
			return -1;
	}
	if (rcp_journal_sync(&s->journal) < 0)
		return -1;
	/* The two names: without them the claims are lost, not wrong, so a failure is none here. */
	if (!s->named)
		rcp_io_sync_dir(s->part.dir);
	s->named = true;
	return 0;
}

static int claim_written(struct rcp_sink *s, struct rcp_err *err)
{
	size_t words = (size_t)(s->chunks / 64 + 1);

	if (!s->claimed)
		s->claimed = calloc(words, sizeof(*s->claimed));
	if (!s->pending)
		s->pending = calloc(words, sizeof(*s->pending));
	if (!s->claimed || !s->pending)
		return rcp_io_fail(err, ENOMEM, "calloc", s->shown);
	if (!snapshot(s))
		return 0;
	if (fdatasync(s->part.fd) < 0) {
		/* The kernel tells a lost write once: never claim after it. */
		s->journal_off = true;
		return rcp_sink_no_room(s, errno, "fdatasync", err);
	}
	if (append_snapshot(s) < 0) {
		s->no_room = errno == ENOSPC || errno == EDQUOT;
		/* The copy itself is well; what was claimed before stays claimed. */
		rcp_sink_set_remark(
			s,
			"its journal can't be written (%s): if this run is cut off, the "
			"next one starts from what was noted so far",
			strerror(errno));
		s->journal_off = true;
	}
	return 0;
}

int rcp_sink_checkpoint(struct rcp_sink *sink, struct rcp_err *err)
{
	if (!sink->resume || !atomic_load_explicit(&sink->unclaimed, memory_order_relaxed))
		return 0;
	if (atomic_flag_test_and_set(&sink->busy))
		return 0; /* another worker is at it */
	atomic_store_explicit(&sink->unclaimed, 0, memory_order_relaxed);
	int rc = sink->journal_off ? 0 : claim_written(sink, err);

	atomic_flag_clear(&sink->busy);
	return rc;
}

/* Only where nobody writes. */
static void give_back(struct rcp_sink *s, uint64_t index)
{
	uint64_t bit = UINT64_C(1) << (index % 64);

	atomic_fetch_and_explicit(&s->written[index / 64], ~bit, memory_order_relaxed);
	fallocate(s->part.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		  (off_t)(index * s->chunk_bytes), (off_t)rcp_sink_cell(s, index));
}

static void claim_again(struct rcp_sink *s)
{
	struct rcp_err ignored = {0};

	/* Which of the claims got through is not known, and a second one does no harm. */
	memset(s->claimed, 0, (size_t)(s->chunks / 64 + 1) * sizeof(*s->claimed));
	s->journal_off = s->no_room = false;
	claim_written(s, &ignored);
}

/*
 * A disk that is full has no room for the journal either, and without it all that was written is of no
 * use. So what half-written chunks take is given back, and if that is nothing, one whole chunk.
 */
void rcp_sink_claim_last(struct rcp_sink *s)
{
	struct rcp_err ignored = {0};
	uint64_t last = UINT64_MAX;

	rcp_sink_checkpoint(s, &ignored);
	for (uint64_t i = 0; s->no_room && i < s->chunks; i++) {
		if (rcp_sink_is_written(s, i))
			last = i;
		else
			give_back(s, i);
	}
	if (s->no_room)
		claim_again(s);
	if (s->no_room && last < s->chunks) {
		give_back(s, last);
		claim_again(s);
	}
}
