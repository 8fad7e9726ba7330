/*
 * .<name>.rcp-journal, all integers big-endian:
 *
 *   header, 64 bytes                                record, 16 bytes, from offset 64 on
 *    0  U32 magic "rcpJ" (0x7263704a)                0  U64 index of the chunk
 *    4  U16 version, 2                               8  U32 CRC-32 of the chunk's bytes
 *    6  U16 length of the header, 64                12  U32 check: CRC-32 of bytes 0 to 11,
 *    8  U64 source's device                                 begun with the header's CRC
 *   16  U64 source's inode
 *   24  U64 source's size in bytes
 *   32  U64 source's mtime, seconds (two's complement)
 *   40  U32 source's mtime, nanoseconds
 *   44  U32 chunk size in bytes
 *   48  U64 source's ctime, nanoseconds
 *   56  4 bytes zero
 *   60  U32 CRC-32 of bytes 0 to 59
 *
 * Chunk i is bytes [i * chunk size, (i + 1) * chunk size) of the file, cut at its size.
 *
 * Torn writes: nothing is ever overwritten, records are only appended, each with its own check. The
 * first record that fails its check ends the journal: it and all behind it are cut off. The check
 * is begun with the header's CRC, so neither zeros nor the records of an older journal that a crash
 * left in the file's blocks pass it.
 *
 * A record is written only after fdatasync of the partial file, so the data it speaks of is
 * durable. It is still only a claim: the next run reads the chunk and compares its CRC before it
 * trusts it, so a journal can make a copy slower but never wrong.
 */
#include "file/journal.h"

#include "base/bytes.h"
#include "base/crc.h"
#include "file/io.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define MAGIC	     UINT32_C(0x7263704a)
#define VERSION	     2
#define HEADER_BYTES 64
#define RECORD_BYTES 16
#define BATCH	     1024 /* records a read or write */

static void header_encode(const struct rcp_journal_key *key, uint8_t h[HEADER_BYTES])
{
	memset(h, 0, HEADER_BYTES);
	rcp_put_u32(h, MAGIC);
	rcp_put_u16(h + 4, VERSION);
	rcp_put_u16(h + 6, HEADER_BYTES);
	rcp_put_u64(h + 8, key->id.dev);
	rcp_put_u64(h + 16, key->id.ino);
	rcp_put_u64(h + 24, key->id.size);
	rcp_put_u64(h + 32, (uint64_t)key->id.mtime_s);
	rcp_put_u32(h + 40, key->id.mtime_ns);
	rcp_put_u32(h + 44, key->chunk_bytes);
	rcp_put_u64(h + 48, key->id.ctime);
	rcp_put_u32(h + 60, rcp_crc32(0, h, 60));
}

static enum rcp_journal_state header_check(const uint8_t h[HEADER_BYTES],
					   const struct rcp_journal_key *key)
{
	uint8_t want[HEADER_BYTES];

	if (rcp_get_u32(h) != MAGIC || rcp_get_u16(h + 4) != VERSION ||
	    rcp_get_u16(h + 6) != HEADER_BYTES || rcp_get_u32(h + 60) != rcp_crc32(0, h, 60))
		return RCP_JOURNAL_DAMAGED;
	header_encode(key, want);
	return memcmp(h, want, HEADER_BYTES) ? RCP_JOURNAL_OTHER : RCP_JOURNAL_GOOD;
}

static void record_encode(uint8_t *r, uint32_t seed, const struct rcp_claim *claim)
{
	rcp_put_u64(r, claim->index);
	rcp_put_u32(r + 8, claim->crc);
	rcp_put_u32(r + 12, rcp_crc32(seed, r, 12));
}

static bool record_decode(const uint8_t *r, uint32_t seed, uint64_t chunks, struct rcp_claim *claim)
{
	claim->index = rcp_get_u64(r);
	claim->crc = rcp_get_u32(r + 8);
	return rcp_get_u32(r + 12) == rcp_crc32(seed, r, 12) && claim->index < chunks;
}

/* Tell every good record from j->end on; j->end is then behind the last one. */
static void read_records(struct rcp_journal *j, uint64_t chunks,
			 void (*tell)(void *arg, const struct rcp_claim *claim), void *arg)
{
	uint8_t buf[BATCH * RECORD_BYTES];
	ssize_t got;

	while ((got = rcp_io_pread(j->fd, buf, sizeof(buf), j->end)) >= RECORD_BYTES) {
		for (size_t at = 0; at + RECORD_BYTES <= (size_t)got; at += RECORD_BYTES) {
			struct rcp_claim claim;

			if (!record_decode(buf + at, j->seed, chunks, &claim))
				return;
			tell(arg, &claim);
			j->end += RECORD_BYTES;
		}
	}
}

static int open_ours(int dir, const char *name)
{
	struct stat st;
	int fd = openat(dir, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

	if (fd >= 0 && (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid() ||
			st.st_nlink != 1)) {
		rcp_io_close(&fd);
		errno = EPERM;
	}
	return fd;
}

enum rcp_journal_state rcp_journal_load(int dir, const char *name,
					const struct rcp_journal_key *key, uint64_t chunks,
					void (*claim)(void *arg, const struct rcp_claim *claim),
					void *arg, struct rcp_journal *out)
{
	struct rcp_journal j = {.fd = open_ours(dir, name), .end = HEADER_BYTES};
	uint8_t header[HEADER_BYTES];
	enum rcp_journal_state state = RCP_JOURNAL_DAMAGED;

	out->fd = -1;
	if (j.fd < 0)
		return errno == ENOENT ? RCP_JOURNAL_NONE : RCP_JOURNAL_DAMAGED;
	if (rcp_io_pread(j.fd, header, HEADER_BYTES, 0) == HEADER_BYTES)
		state = header_check(header, key);
	if (state == RCP_JOURNAL_GOOD) {
		j.seed = rcp_get_u32(header + 60);
		read_records(&j, chunks, claim, arg);
		/* A torn tail must not stand between good records and new ones. */
		if (rcp_io_truncate(j.fd, j.end) < 0)
			state = RCP_JOURNAL_DAMAGED;
	}
	if (state != RCP_JOURNAL_GOOD)
		rcp_io_close(&j.fd);
	*out = j;
	return state;
}

int rcp_journal_create(int dir, const char *name, const struct rcp_journal_key *key,
		       struct rcp_journal *out)
{
	struct rcp_journal j = {.end = HEADER_BYTES};
	uint8_t header[HEADER_BYTES];

	out->fd = -1;
	if (unlinkat(dir, name, 0) < 0 && errno != ENOENT)
		return -1;
	j.fd = openat(dir, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (j.fd < 0)
		return -1;
	header_encode(key, header);
	j.seed = rcp_get_u32(header + 60);
	/* The umask may have taken the owner's own bits. */
	if (fchmod(j.fd, 0600) < 0 || rcp_io_pwrite(j.fd, header, HEADER_BYTES, 0) < 0) {
		rcp_io_close(&j.fd);
		unlinkat(dir, name, 0);
		return -1;
	}
	*out = j;
	return 0;
}

int rcp_journal_append(struct rcp_journal *j, const struct rcp_claim *claims, size_t count)
{
	uint8_t buf[BATCH * RECORD_BYTES];

	while (count) {
		size_t n = count < BATCH ? count : BATCH;

		for (size_t i = 0; i < n; i++)
			record_encode(buf + i * RECORD_BYTES, j->seed, &claims[i]);
		if (rcp_io_pwrite(j->fd, buf, n * RECORD_BYTES, j->end) < 0)
			return -1; /* j->end stands: the next append writes over what is torn */
		j->end += n * RECORD_BYTES;
		claims += n;
		count -= n;
	}
	return 0;
}

int rcp_journal_sync(struct rcp_journal *j)
{
	return fdatasync(j->fd);
}

void rcp_journal_close(struct rcp_journal *j)
{
	rcp_io_close(&j->fd);
}
