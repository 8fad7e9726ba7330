/*
 * The order in which src/file writes, syncs and renames: what a power cut leaves depends on it. The
 * calls are replaced by defining them here. tests/vm/power.sh cuts the power for real.
 */
#undef _FORTIFY_SOURCE /* its inline functions have the same names */
#include "base/crc.h"
#include "file/sink.h"

#include <dlfcn.h>
#include <linux/magic.h>
#include <sys/statfs.h>

#include "tmpdir.h"

#define CHUNK	  4096u
#define CHUNKS	  21u
#define SIZE	  (20 * CHUNK + 100)
#define XFS_MAGIC 0x58465342

/* Writes (W), fdatasync (S), fsync (F), renames (R), names for what had none (N), writeback begun (b) and waited for (B). */
static char trace[64];
static bool tracing;
static long fs_type; /* what fstatfs says; 0: the truth */
static uint8_t content[SIZE];

static void note(char letter)
{
	if (tracing && strlen(trace) + 1 < sizeof(trace))
		trace[strlen(trace)] = letter;
}

static void traced(bool on)
{
	if (on)
		memset(trace, 0, sizeof(trace));
	tracing = on;
}

#define REPLACE(type, letter, name, symbol, params, args)                                          \
	type name params;                                                                          \
	type name params                                                                           \
	{                                                                                          \
		static type(*next) params;                                                         \
                                                                                                   \
		note(letter);                                                                      \
		if (!next)                                                                         \
			*(void **)(void *)&next = dlsym(RTLD_NEXT, symbol);                        \
		return next args;                                                                  \
	}

REPLACE(ssize_t, 'W', pwrite, "pwrite64", (int fd, const void *buf, size_t len, off_t at),
	(fd, buf, len, at))
REPLACE(int, 'S', fdatasync, "fdatasync", (int fd), (fd))
REPLACE(int, 'F', fsync, "fsync", (int fd), (fd))
REPLACE(int, 'R', renameat, "renameat", (int a, const char *from, int b, const char *to),
	(a, from, b, to))
REPLACE(int, 'N', linkat, "linkat",
	(int a, const char *from, int b, const char *to, int flags), (a, from, b, to, flags))
REPLACE(int, 'R', renameat2, "renameat2",
	(int a, const char *from, int b, const char *to, unsigned flags), (a, from, b, to, flags))
REPLACE(int, flags & SYNC_FILE_RANGE_WAIT_AFTER ? 'B' : 'b', sync_file_range, "sync_file_range",
	(int fd, off_t at, off_t len, unsigned flags), (fd, at, len, flags))

int fstatfs(int fd, struct statfs *fs)
{
	static int (*next)(int fd, struct statfs *fs);

	if (!next)
		*(void **)(void *)&next = dlsym(RTLD_NEXT, "fstatfs64");
	int rc = next(fd, fs);

	if (fs_type)
		fs->f_type = fs_type;
	return rc;
}

static struct rcp_sink_params params(const char *path)
{
	return (struct rcp_sink_params){
		.root = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC),
		.path = path,
		.chunk_bytes = CHUNK,
		.id = {.dev = 1, .ino = 2, .size = SIZE, .mtime_s = 3},
		.resume = true,
	};
}

static const struct rcp_meta meta = {.mode = 0600};

static void put(struct rcp_sink *s, uint64_t i)
{
	size_t len = i == CHUNKS - 1 ? SIZE % CHUNK : CHUNK;
	struct rcp_err err = {0};

	assert_int_equal(rcp_sink_write(s, i * CHUNK, content + i * CHUNK, len,
					rcp_crc32(0, content + i * CHUNK, len), &err),
			 0);
}

/* Data before the claim, the claim before the next data; all of it before the rename. */
static void claims_and_fsync(void **state)
{
	struct rcp_sink_params p = params("f");
	struct rcp_err err = {0};
	struct rcp_sink *s;
	unsigned lost;

	(void)state;
	p.fsync = true;
	assert_int_equal(rcp_sink_open(&p, &err, &s), 0);
	put(s, 0);
	traced(true);
	assert_int_equal(rcp_sink_checkpoint(s, &err), 0);
	assert_string_equal(trace, "SWWSF"); /* file; header, record, journal; directory */
	put(s, 1);
	traced(true);
	assert_int_equal(rcp_sink_checkpoint(s, &err), 0);
	assert_string_equal(trace, "SWS");
	traced(true);
	assert_int_equal(rcp_sink_checkpoint(s, &err), 0);
	assert_string_equal(trace, ""); /* nothing new: nothing done */
	for (uint64_t i = 2; i < CHUNKS; i++)
		put(s, i);
	traced(true);
	assert_int_equal(rcp_sink_commit(s, &meta, &err, &lost), 0);
	traced(false);
	assert_string_equal(trace, "FRF"); /* --fsync: file, rename, directory */
	rcp_sink_close(&s, false);
	close(p.root);
}

static void a_special(struct rcp_sink_params *p, const char *path, bool sync, const char *wanted)
{
	const struct rcp_rec_entry link = {.type = RCP_ENTRY_SYMLINK, .link = rcp_span_str("to")};
	struct rcp_err err = {0};
	unsigned lost;

	traced(true);
	assert_int_equal(rcp_sink_special(p->root, path, path, &link, 0, &meta, sync, &err, &lost), 0);
	traced(false);
	assert_string_equal(trace, wanted);
}

/* With --fsync what has no data is on disk, too: the end of a directory sees to the names in it. */
static void names_and_fsync(void **state)
{
	const struct rcp_meta dir = {.mode = 0700};
	struct rcp_sink_params p = params("f");
	struct rcp_err err = {0};
	unsigned lost;

	(void)state;
	assert_int_equal(rcp_sink_mkdir(p.root, "d", "d", false, &err), 0);
	assert_int_equal(rcp_sink_mkdir(p.root, "d/e", "d/e", false, &err), 0);
	a_special(&p, "l", true, "RF");
	a_special(&p, "d/l", true, "R");
	a_special(&p, "l", false, "R");
	traced(true);
	assert_int_equal(rcp_sink_dir_end(p.root, "d/e", "d/e", &dir, true, &err, &lost), 0);
	assert_string_equal(trace, "F");
	traced(true);
	assert_int_equal(rcp_sink_dir_end(p.root, "d", "d", &dir, true, &err, &lost), 0);
	assert_string_equal(trace, "FF"); /* itself, and its name */
	traced(true);
	assert_int_equal(rcp_sink_dir_end(p.root, "d", "d", &dir, false, &err, &lost), 0);
	traced(false);
	assert_string_equal(trace, "");
	close(p.root);
}

static void keep_err(void *arg, const struct rcp_err *err, unsigned lost)
{
	(void)lost;
	*(struct rcp_err *)arg = *err;
}

static void put_two(struct rcp_sink_params *p, const char *wanted)
{
	struct rcp_err err[2] = {0};
	struct rcp_sink_puts *puts;

	assert_int_equal(rcp_sink_puts_new(keep_err, &err[0], &puts), 0);
	traced(true);
	p->path = "a";
	rcp_sink_puts_add(puts, p, content, 100, &meta, &err[0]);
	p->path = "b";
	rcp_sink_puts_add(puts, p, content, 200, &meta, &err[1]);
	rcp_sink_puts_free(&puts);
	traced(false);
	assert_string_equal(trace, wanted);
	assert_false(rcp_err_is(&err[0]) || rcp_err_is(&err[1]));
	tmp_expect("a", content, 100);
	tmp_expect("b", content, 200);
}

/* Without --fsync, too. Of two small files neither waits before both are on their way. */
static void data_comes_before_its_name(long type, const char *big, const char *fresh,
				       const char *taken)
{
	struct rcp_sink_params p = params("f");
	struct rcp_err err = {0};
	struct rcp_sink *s;
	unsigned lost;

	assert_int_equal(rcp_sink_open(&p, &err, &s), 0);
	for (uint64_t i = 0; i < CHUNKS; i++)
		put(s, i);
	fs_type = type;
	traced(true);
	assert_int_equal(rcp_sink_commit(s, &meta, &err, &lost), 0);
	assert_string_equal(trace, big);
	rcp_sink_close(&s, false);
	put_two(&p, fresh);
	put_two(&p, taken);
	fs_type = 0;
	close(p.root);
}

static void on_ext4(void **state)
{
	(void)state;
	data_comes_before_its_name(EXT4_SUPER_MAGIC, "BR", "WbWbBNBN", "WbWbBNWbBRRBNWbBRR");
}

static void on_xfs(void **state)
{
	(void)state;
	data_comes_before_its_name(XFS_MAGIC, "BR", "WbWbBNBN", "WbWbBNWbBRRBNWbBRR");
}

static void on_others(void **state)
{
	(void)state;
	data_comes_before_its_name(BTRFS_SUPER_MAGIC, "SR", "WbWbSNSN", "WbWbSNWbSRRSNWbSRR");
}

static void in_memory(void **state)
{
	(void)state;
	data_comes_before_its_name(TMPFS_MAGIC, "R", "WWNN", "WWNWRRNWRR");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TMP_TEST(claims_and_fsync), TMP_TEST(names_and_fsync), TMP_TEST(on_ext4),
		TMP_TEST(on_xfs),	    TMP_TEST(on_others),       TMP_TEST(in_memory),
	};

	tmp_noise(content, SIZE, 42);
	return cmocka_run_group_tests(tests, tmp_setup, tmp_teardown);
}
