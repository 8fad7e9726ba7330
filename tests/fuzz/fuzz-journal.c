/* A journal that anything may have happened to. */
#include "dir.h"
#include "fuzz.h"

#include "base/bytes.h"
#include "base/crc.h"
#include "file/journal.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHUNKS 100u

struct seen {
	unsigned count;
	struct rcp_claim last;
};

static void on_claim(void *arg, const struct rcp_claim *claim)
{
	struct seen *s = arg;

	MUST(claim->index < CHUNKS);
	s->count++;
	s->last = *claim;
}

static const struct rcp_journal_key key = {.id = {.dev = 1, .ino = 2, .size = 100 << 20, .mtime_s = 3},
					   .chunk_bytes = 1 << 20};

/* What was good is gone on with: all that it claimed is there again, and then the new one. */
static void append(struct rcp_journal *j, unsigned before)
{
	const struct rcp_claim more = {.index = CHUNKS - 1, .crc = 0x12345678};
	struct seen seen = {0};

	MUST(j->end == 64 + 16 * (uint64_t)before);
	MUST(rcp_journal_append(j, &more, 1) == 0 && rcp_journal_sync(j) == 0);
	rcp_journal_close(j);
	MUST(rcp_journal_load(fuzz_dir(), "j", &key, CHUNKS, on_claim, &seen, j) == RCP_JOURNAL_GOOD);
	MUST(seen.count == before + 1 && seen.last.index == more.index && seen.last.crc == more.crc);
	rcp_journal_close(j);
}

static void one(const uint8_t *data, size_t size)
{
	struct rcp_journal j;
	struct seen seen = {0};

	fuzz_dir_write(fuzz_dir(), "j", data, size);
	enum rcp_journal_state state = rcp_journal_load(fuzz_dir(), "j", &key, CHUNKS, on_claim, &seen, &j);

	MUST(state != RCP_JOURNAL_NONE);
	if (state != RCP_JOURNAL_GOOD) {
		MUST(!seen.count && j.fd < 0);
		/* Nothing is in the way of a new one. */
		MUST(rcp_journal_create(fuzz_dir(), "j", &key, &j) == 0);
	}
	append(&j, seen.count);
}

/* The same with checksums that are right, in the header and, where its first byte is even, in a record. */
static void right(const uint8_t *data, size_t size)
{
	uint8_t *copy = malloc(size);

	MUST(copy);
	memcpy(copy, data, size);
	rcp_put_u32(copy + 60, rcp_crc32(0, copy, 60));
	for (uint8_t *r = copy + 64; r + 16 <= copy + size; r += 16) {
		if (r[0] % 2 == 0)
			rcp_put_u32(r + 12, rcp_crc32(rcp_get_u32(copy + 60), r, 12));
	}
	one(copy, size);
	free(copy);
}

/* No journal, names that are none of ours, and places where none can be. */
static void others(void)
{
	const struct rcp_claim claim = {0};
	struct rcp_journal j;
	struct seen seen = {0};

	MUST(rcp_journal_create(-1, "j", &key, &j) < 0 && j.fd < 0);
	MUST(rcp_journal_create(fuzz_dir(), "none/j", &key, &j) < 0 && j.fd < 0);
	MUST(rcp_journal_append(&j, &claim, 1) < 0);

	unlinkat(fuzz_dir(), "j", 0);
	MUST(rcp_journal_load(fuzz_dir(), "j", &key, CHUNKS, on_claim, &seen, &j) == RCP_JOURNAL_NONE && j.fd < 0);
	fuzz_dir_write(fuzz_dir(), "target", "x", 1);
	MUST(symlinkat("target", fuzz_dir(), "j") == 0);
	MUST(rcp_journal_load(fuzz_dir(), "j", &key, CHUNKS, on_claim, &seen, &j) == RCP_JOURNAL_DAMAGED && j.fd < 0);
	MUST(unlinkat(fuzz_dir(), "j", 0) == 0 && linkat(fuzz_dir(), "target", fuzz_dir(), "j", 0) == 0);
	MUST(rcp_journal_load(fuzz_dir(), "j", &key, CHUNKS, on_claim, &seen, &j) == RCP_JOURNAL_DAMAGED && j.fd < 0);
	unlinkat(fuzz_dir(), "target", 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!size)
		others();
	one(data, size);
	if (size >= 64)
		right(data, size);
	return 0;
}
