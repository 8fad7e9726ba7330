/* file/sink: the partial file, chunks, verify, commit; small files. */
#include "file/sink.h"

#include "base/crc.h"
#include "base/sanitized.h"
#include "file/part.h"

#include <errno.h>
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "put-one.h"
#include "tmpdir.h"

#define CHUNK 65536u
#define SIZE  (10 * CHUNK + 777)

static uint8_t *noise(size_t size, uint64_t seed)
{
	uint8_t *data = malloc(size + 1);

	assert_non_null(data);
	tmp_noise(data, size, seed);
	return data;
}

static int here(void)
{
	static int fd = -1;

	if (fd >= 0)
		close(fd);
	fd = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

static struct rcp_sink_params params_of(const char *path, uint64_t size)
{
	return (struct rcp_sink_params){
		.root = here(),
		.path = path,
		.shown = path,
		.id = {.dev = 1, .ino = 2, .size = size, .mtime_s = 3, .mtime_ns = 4},
		.chunk_bytes = CHUNK,
	};
}

static struct rcp_sink *open_ok(const struct rcp_sink_params *p)
{
	struct rcp_err err = {0};
	struct rcp_sink *s;
	char line[2048];

	if (rcp_sink_open(p, &err, &s))
		fail_msg("%s", rcp_err_format(&err, line, sizeof(line)));
	return s;
}

static void open_fails(const struct rcp_sink_params *p, int code, const char *words)
{
	struct rcp_err err = {0};
	struct rcp_sink *s;
	char line[2048];

	assert_int_equal(rcp_sink_open(p, &err, &s), code);
	assert_null(s);
	rcp_err_format(&err, line, sizeof(line));
	if (!strstr(line, words))
		fail_msg("\"%s\" has no \"%s\"", line, words);
}

static void write_chunk(struct rcp_sink *s, const uint8_t *data, uint64_t size, uint64_t index)
{
	struct rcp_err err = {0};
	uint64_t at = index * CHUNK, len = size - at < CHUNK ? size - at : CHUNK;

	assert_int_equal(rcp_sink_write(s, at, data + at, len, rcp_crc32(0, data + at, len), &err),
			 0);
}

static void write_all(struct rcp_sink *s, const uint8_t *data, uint64_t size)
{
	for (uint64_t i = (size + CHUNK - 1) / CHUNK; i-- > 0;) /* backwards: any order will do */
		write_chunk(s, data, size, i);
}

static const struct rcp_meta plain = {.mode = 0640};

static void commit_ok(struct rcp_sink **s)
{
	struct rcp_err err = {0};
	unsigned lost;
	char line[2048];

	if (rcp_sink_commit(*s, &plain, &err, &lost))
		fail_msg("%s", rcp_err_format(&err, line, sizeof(line)));
	assert_int_equal(lost, 0);
	rcp_sink_close(s, false);
	assert_null(*s);
}

struct writer {
	pthread_t thread;
	struct rcp_sink *sink;
	const uint8_t *data;
	uint64_t first;
};

static void *write_some(void *arg)
{
	struct writer *w = arg;

	for (uint64_t i = w->first; i * CHUNK < SIZE; i += 4)
		write_chunk(w->sink, w->data, SIZE, i);
	return NULL;
}

static void four_writers_one_file(void **state)
{
	uint8_t *data = noise(SIZE, 1);
	struct rcp_sink_params p = params_of("f", SIZE);
	struct rcp_sink *s = open_ok(&p);
	struct writer w[4];
	struct rcp_err err = {0};
	struct stat st;

	(void)state;
	assert_true(tmp_exists(".f.rcp-part"));
	assert_false(tmp_exists("f"));
	for (unsigned i = 0; i < 4; i++) {
		w[i] = (struct writer){.sink = s, .data = data, .first = i};
		assert_int_equal(pthread_create(&w[i].thread, NULL, write_some, &w[i]), 0);
	}
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(pthread_join(w[i].thread, NULL), 0);
	assert_int_equal(rcp_sink_bytes(s), SIZE);
	assert_int_equal(rcp_sink_crc(s), rcp_crc32(0, data, SIZE));
	assert_int_equal(rcp_sink_verify(s, &err), 0);
	commit_ok(&s);
	tmp_expect("f", data, SIZE);
	assert_int_equal(stat("f", &st), 0);
	assert_int_equal(st.st_mode & 07777, 0640);
	assert_int_equal(tmp_count("."), 1);
	free(data);
}

static void an_empty_file(void **state)
{
	struct rcp_sink_params p = params_of("f", 0);
	struct rcp_sink *s = open_ok(&p);

	(void)state;
	assert_int_equal(rcp_sink_crc(s), 0);
	commit_ok(&s);
	tmp_expect_text("f", "");
}

static void the_old_target_stays_until_commit(void **state)
{
	uint8_t *data = noise(SIZE, 2);
	struct rcp_sink_params p = params_of("f", SIZE);
	struct rcp_err err = {0};
	unsigned lost;

	(void)state;
	tmp_text("f", "old");
	assert_int_equal(chmod("f", 0400), 0); /* read-only: a rename does not mind */
	struct rcp_sink *s = open_ok(&p);

	write_chunk(s, data, SIZE, 3);
	assert_int_equal(rcp_sink_commit(s, &plain, &err, &lost), RCP_E_INTEGRITY);
	assert_non_null(strstr(err.text, "only 65536 of 656137 bytes arrived"));
	tmp_expect_text("f", "old");
	rcp_sink_close(&s, false);
	tmp_expect_text("f", "old");
	assert_int_equal(tmp_count("."), 1);
	s = open_ok(&p);
	write_all(s, data, SIZE);
	commit_ok(&s);
	tmp_expect("f", data, SIZE);
	free(data);
}

static void chunks_off_the_grid(void **state)
{
	static const uint64_t bad[][2] = {{1, CHUNK},	       {0, CHUNK - 1},
					  {10 * CHUNK, CHUNK}, {10 * CHUNK, 776},
					  {11 * CHUNK, 1},     {UINT64_MAX - CHUNK + 1, CHUNK},
					  {20 * CHUNK, CHUNK}};
	uint8_t *data = noise(CHUNK, 3);
	struct rcp_sink_params p = params_of("f", SIZE);
	struct rcp_sink *s = open_ok(&p);

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct rcp_err err = {0};

		assert_int_equal(rcp_sink_write(s, bad[i][0], data, bad[i][1], 0, &err),
				 RCP_E_INTEGRITY);
	}
	assert_int_equal(rcp_sink_bytes(s), 0);
	rcp_sink_close(&s, true); /* nothing in it: nothing is kept */
	assert_int_equal(tmp_count("."), 0);
	free(data);
}

static void names_of_any_length(void **state)
{
	char a[256], b[256], c[256], name[NAME_MAX + 1], other[NAME_MAX + 1];
	struct rcp_sink *s[3];
	struct rcp_sink_params p[3];

	(void)state;
	memset(a, 'a', 255);
	a[255] = 0;
	memcpy(b, a, 256);
	b[254] = 'b'; /* differs where the name is cut */
	memcpy(c, a, 256);
	c[243] = 0; /* the longest that is not cut */
	rcp_part_name(a, RCP_PART_SUFFIX, name);
	assert_true(strlen(name) <= 255);
	rcp_part_name(b, RCP_PART_SUFFIX, other);
	assert_string_not_equal(name, other);
	p[0] = params_of(a, 5);
	p[1] = params_of(b, 5);
	p[2] = params_of(c, 5);
	for (int i = 0; i < 3; i++) { /* all at once: three partial files */
		p[i].root = p[2].root;
		p[i].resume = true;
		s[i] = open_ok(&p[i]);
		write_all(s[i], (const uint8_t *)"12345", 5);
	}
	struct rcp_err err = {0};

	assert_int_equal(rcp_sink_checkpoint(s[0], &err), 0);
	assert_int_equal(tmp_count("."), 4);
	for (int i = 0; i < 3; i++)
		commit_ok(&s[i]);
	tmp_expect_text(a, "12345");
	tmp_expect_text(b, "12345");
	assert_int_equal(tmp_count("."), 3);
	memset(name, 0, sizeof(name));
	memset(a, 0xc3, 255); /* not cut inside a character */
	for (int i = 1; i < 255; i += 2)
		a[i] = (char)0xa9;
	rcp_part_name(a, RCP_PART_SUFFIX, name);
	assert_int_equal((unsigned char)*(strchr(name, '~') - 1), 0xa9);
}

static void the_umask_does_not_matter(void **state)
{
	struct rcp_sink_params p = params_of("f", 3);
	struct stat st;

	(void)state;
	mode_t old = umask(0777);
	struct rcp_sink *s = open_ok(&p);

	assert_int_equal(stat(".f.rcp-part", &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	write_all(s, (const uint8_t *)"abc", 3);
	commit_ok(&s);
	umask(old);
	assert_int_equal(stat("f", &st), 0);
	assert_int_equal(st.st_mode & 07777, 0640);
}

static void two_copies_into_one_target(void **state)
{
	struct rcp_sink_params p = params_of("f", SIZE);
	struct rcp_sink *s = open_ok(&p);
	struct rcp_err err = {0};
	unsigned lost;

	(void)state;
	open_fails(&p, RCP_E_IO, "another rcp is writing this file");
	assert_int_equal(put_one(&p, "x", 1, &plain, &err, &lost), RCP_E_IO);
	assert_true(tmp_exists(".f.rcp-part")); /* the first one's is not removed */
	rcp_sink_close(&s, false);
	s = open_ok(&p);
	rcp_sink_close(&s, false);
}

static void what_a_file_may_not_replace(void **state)
{
	struct rcp_sink_params p = params_of("x", 3);
	struct rcp_err err = {0};
	unsigned lost;

	(void)state;
	assert_int_equal(mkdir("x", 0755), 0);
	open_fails(&p, RCP_E_PARTIAL, "a directory has this name");
	assert_int_equal(put_one(&p, "abc", 3, &plain, &err, &lost), RCP_E_PARTIAL);
	assert_int_equal(tmp_count("."), 1);
	assert_int_equal(symlink("x", "todir"), 0);
	p.path = "todir";
	open_fails(&p, RCP_E_PARTIAL, "a directory has this name");
	assert_int_equal(mkfifo("fifo", 0600), 0);
	p.path = "fifo";
	open_fails(&p, RCP_E_PARTIAL, "a device, FIFO or socket");
	assert_int_equal(symlink("/dev/null", "tonull"), 0);
	p.path = "tonull";
	open_fails(&p, RCP_E_PARTIAL, "a device, FIFO or socket");
	err = (struct rcp_err){0};
	assert_int_equal(put_one(&p, "abc", 3, &plain, &err, &lost), RCP_E_PARTIAL);
	tmp_text("file", "");
	p.path = "file/x";
	open_fails(&p, RCP_E_PARTIAL, "Not a directory");
	p.path = "none/x";
	open_fails(&p, RCP_E_PARTIAL, "create its directory first");
	p.path = "../x";
	open_fails(&p, RCP_E_PARTIAL, "not taken from a peer");
	assert_int_equal(tmp_count("."), 5);
}

static void a_symlink_is_replaced_not_followed(void **state)
{
	struct rcp_sink_params p = params_of("dir/link", 3);
	struct stat st;

	(void)state;
	tmp_not_under_valgrind("it knows no openat2");
	tmp_text("outside", "kept");
	assert_int_equal(mkdir("dir", 0755), 0);
	assert_int_equal(symlink("../outside", "dir/link"), 0);
	struct rcp_sink *s = open_ok(&p);

	write_all(s, (const uint8_t *)"abc", 3);
	commit_ok(&s);
	assert_int_equal(lstat("dir/link", &st), 0);
	assert_true(S_ISREG(st.st_mode));
	tmp_expect_text("dir/link", "abc");
	tmp_expect_text("outside", "kept");
	/* A FIFO that came there while the file was written. */
	struct rcp_err err = {0};
	unsigned lost;

	s = open_ok(&p);
	write_all(s, (const uint8_t *)"abc", 3);
	assert_int_equal(unlink("dir/link"), 0);
	assert_int_equal(mkfifo("dir/link", 0600), 0);
	assert_int_equal(rcp_sink_commit(s, &plain, &err, &lost), RCP_E_PARTIAL);
	rcp_sink_close(&s, false);
	assert_int_equal(lstat("dir/link", &st), 0);
	assert_true(S_ISFIFO(st.st_mode));
	/* A directory on the way that leads out. */
	assert_int_equal(mkdir("away", 0755), 0);
	assert_int_equal(symlink("../away", "dir/out"), 0);
	p.path = "out/f";
	p.root = open("dir", O_PATH | O_DIRECTORY);
	open_fails(&p, RCP_E_PARTIAL, "leads out of the target directory");
	assert_int_equal(tmp_count("away"), 0);
	close(p.root);
}

/* Whatever sits at the partial file's name, its content is not ours and its target untouched. */
static void strangers_at_the_partial_name(void **state)
{
	struct rcp_sink_params p = params_of("f", 3);
	struct rcp_sink *s;

	(void)state;
	tmp_text("victim", "kept");
	for (int i = 0; i < 4; i++) {
		if (i == 0)
			assert_int_equal(symlink("victim", ".f.rcp-part"), 0);
		else if (i == 1)
			assert_int_equal(link("victim", ".f.rcp-part"), 0);
		else if (i == 2)
			assert_int_equal(mkfifo(".f.rcp-part", 0666), 0);
		else
			tmp_text(".f.rcp-part", "longer than the file and without a journal");
		p.resume = i & 1;
		s = open_ok(&p);
		write_all(s, (const uint8_t *)"abc", 3);
		commit_ok(&s);
		tmp_expect_text("f", "abc");
		tmp_expect_text("victim", "kept");
		assert_int_equal(tmp_count("."), 2);
	}
	assert_int_equal(mkdir(".f.rcp-part", 0755), 0);
	open_fails(&p, RCP_E_PARTIAL, "f: create:");
}

static void a_partial_file_that_was_swapped(void **state)
{
	struct rcp_sink_params p = params_of("f", 3);
	struct rcp_sink *s = open_ok(&p);
	struct rcp_err err = {0};
	unsigned lost;

	(void)state;
	write_all(s, (const uint8_t *)"abc", 3);
	tmp_text("evil", "evil");
	assert_int_equal(rename("evil", ".f.rcp-part"), 0);
	assert_int_equal(rcp_sink_commit(s, &plain, &err, &lost), RCP_E_PARTIAL);
	assert_non_null(strstr(err.text, "removed or replaced"));
	rcp_sink_close(&s, false);
	assert_false(tmp_exists("f"));
	tmp_expect_text(".f.rcp-part", "evil"); /* not ours to remove */
}

static void holes_stay_holes(void **state)
{
	uint8_t *data = calloc(1, SIZE);
	struct rcp_sink_params p = params_of("f", SIZE);
	struct rcp_err err = {0};
	struct stat st;

	(void)state;
	tmp_noise(data + 2 * CHUNK + 4096, 4096, 5);
	data[3 * CHUNK - 1] = 1;   /* the last byte of a block */
	data[4 * CHUNK + 100] = 1; /* chunk 4: one byte in the middle of zeros */
	p.sparse = true;
	struct rcp_sink *s = open_ok(&p);

	write_chunk(s, data, SIZE, 2);
	write_chunk(s, data, SIZE, 4);
	write_chunk(s, data, SIZE, 5); /* sent, and nothing but zeros */
	write_chunk(s, data, SIZE, 10);
	assert_int_equal(rcp_sink_bytes(s), 3 * CHUNK + 777);
	assert_int_equal(rcp_sink_crc(s), rcp_crc32(0, data, SIZE));
	assert_int_equal(rcp_sink_verify(s, &err), 0);
	/* The same chunk again, other bytes: zeros must win over what was there. */
	uint8_t *zeros = calloc(1, CHUNK);

	data[2 * CHUNK + 8192] = 9;
	write_chunk(s, data, SIZE, 2);
	assert_int_equal(rcp_sink_write(s, 4 * CHUNK, zeros, CHUNK, rcp_crc32_zeros(CHUNK), &err),
			 0);
	data[4 * CHUNK + 100] = 0;
	assert_int_equal(rcp_sink_verify(s, &err), 0);
	commit_ok(&s);
	tmp_expect("f", data, SIZE);
	assert_int_equal(stat("f", &st), 0);
	assert_true((uint64_t)st.st_blocks * 512 <= 4 * CHUNK);
	free(zeros);
	free(data);
}

static void verify_finds_what_the_disk_did(void **state)
{
	uint8_t *data = noise(SIZE, 6);
	struct rcp_sink_params p = params_of("f", SIZE);
	struct rcp_sink *s = open_ok(&p);
	struct rcp_err err = {0};

	(void)state;
	write_all(s, data, SIZE);
	int fd = open(".f.rcp-part", O_WRONLY);

	assert_int_equal(pwrite(fd, "?", 1, 7 * CHUNK + 12345), 1);
	close(fd);
	assert_int_equal(rcp_sink_verify(s, &err), RCP_E_INTEGRITY);
	assert_non_null(strstr(err.text, "65536 bytes at 458752"));
	write_chunk(s, data, SIZE, 7);
	err = (struct rcp_err){0};
	assert_int_equal(rcp_sink_verify(s, &err), 0);
	commit_ok(&s);
	free(data);
}

static void small_files_in_one_go(void **state)
{
	struct rcp_sink_params p = params_of("f", 3);
	struct rcp_err err = {0};
	unsigned lost;
	struct rcp_meta meta = {
		.mode = 0604, .set_times = true, .mtime = {1000, 5}, .atime = {2000, 6}};
	struct stat st;

	(void)state;
	assert_int_equal(put_one(&p, "abc", 3, &meta, &err, &lost), 0);
	tmp_expect_text("f", "abc");
	assert_int_equal(stat("f", &st), 0);
	assert_int_equal(st.st_mode & 07777, 0604);
	assert_int_equal(st.st_mtim.tv_sec, 1000);
	assert_int_equal(st.st_mtim.tv_nsec, 5);
	tmp_text(".f.rcp-part", "left by an earlier run");
	tmp_text(".f.rcp-journal", "too");
	p.fsync = true;
	assert_int_equal(put_one(&p, "defg", 4, &meta, &err, &lost), 0); /* over the first */
	tmp_expect_text("f", "defg");
	p.path = "empty";
	assert_int_equal(put_one(&p, "", 0, &meta, &err, &lost), 0);
	tmp_expect_text("empty", "");
	assert_int_equal(tmp_count("."), 2);
}

static void keep_err(void *arg, const struct rcp_err *err, unsigned lost)
{
	(void)lost;
	*(struct rcp_err *)arg = *err;
}

/* More than wait at once, one of them impossible, and one name twice. */
static void small_files_at_once(void **state)
{
	struct rcp_err err[40] = {0};
	char name[40][16];
	int number[40];
	struct rcp_sink_params p = params_of("f", 3);
	struct rcp_sink_puts *puts;

	(void)state;
	assert_int_equal(mkdir("n7", 0755), 0);
	assert_int_equal(rcp_sink_puts_new(keep_err, &err[0], &puts), 0);
	for (int i = 0; i < 40; i++) {
		snprintf(name[i], sizeof(name[i]), "n%d", i == 21 ? 20 : i);
		p.path = p.shown = name[i];
		number[i] = i;
		rcp_sink_puts_add(puts, &p, &number[i], sizeof(i), &plain, &err[i]);
	}
	rcp_sink_puts_free(&puts);
	assert_null(puts);
	for (int i = 0; i < 40; i++) {
		assert_int_equal(err[i].code, i == 7 ? RCP_E_PARTIAL : RCP_OK);
		if (i != 7 && i != 20)
			tmp_expect(name[i], &i, sizeof(i)); /* n20: the later one */
	}
	assert_int_equal(tmp_count("."), 39);
	rcp_sink_puts_free(&puts);
}

static void a_full_disk(void **state)
{
	struct rcp_err err = {0};
	unsigned lost;

	(void)state;
	assert_int_equal(mkdir("small", 0755), 0);
	if (mount("rcp-test", "small", "tmpfs", 0, "size=256k") < 0)
		TMP_SKIP("can't mount a small tmpfs (%s): run as root", strerror(errno));
	struct rcp_sink_params p = params_of("small/f", SIZE);
	uint8_t *data = noise(SIZE, 8);

	tmp_text("small/f", "old");
	/* Below the size that is preallocated: told at the write. */
	struct rcp_sink *s = open_ok(&p);
	int rc = 0;

	for (uint64_t i = 0; i < 10 && !rc; i++)
		rc = rcp_sink_write(s, i * CHUNK, data + i * CHUNK, CHUNK, 0, &err);
	assert_int_equal(rc, RCP_E_IO);
	assert_int_equal(err.sys_errno, ENOSPC);
	assert_non_null(strstr(err.text, "no room for"));
	assert_non_null(strstr(err.fix, "free space"));
	rcp_sink_close(&s, false);
	/* Above: told before the first byte is sent. */
	p.id.size = 100u << 20;
	open_fails(&p, RCP_E_IO, "no room for 100.0 MiB more (104857600 bytes)");
	err = (struct rcp_err){0};
	assert_int_equal(put_one(&p, data, SIZE, &plain, &err, &lost), RCP_E_IO);
	tmp_expect_text("small/f", "old");
	assert_int_equal(tmp_count("small"), 1);
	close(here());
	assert_int_equal(umount2("small", MNT_DETACH), 0);
	free(data);
}

static void a_limit_on_file_sizes(void **state)
{
	pid_t pid;
	int status;

	(void)state;
	tmp_not_under_valgrind("what the child leaves open is a leak to it");
	pid = fork();
	if (pid == 0) {
		struct rlimit limit = {8 * CHUNK, 8 * CHUNK};
		struct rcp_sink_params p = params_of("f", SIZE);
		uint8_t *data = noise(SIZE, 9);
		struct rcp_err err = {0};
		struct rcp_sink *s = open_ok(&p);

		rcp_sigbus_install(); /* SIGXFSZ too */
		setrlimit(RLIMIT_FSIZE, &limit);
		int rc = rcp_sink_write(s, 9 * CHUNK, data, CHUNK, 0, &err);

		if (rc != RCP_E_IO || err.sys_errno != EFBIG || !strstr(err.text, "too large"))
			_exit(1);
		err = (struct rcp_err){0};
		p.path = "g";
		p.id.size = 100u << 20;
		_exit(rcp_sink_open(&p, &err, &s) == RCP_E_IO ? 0 : 2);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void sizes_no_file_can_have(void **state)
{
	struct rcp_sink_params p = params_of("f", UINT64_MAX);

	(void)state;
	open_fails(&p, RCP_E_IO, "too large here");
	p.id.size = UINT64_C(1) << 62;
	p.sparse = true;
	p.chunk_bytes = 4096;
	open_fails(&p, RCP_E_IO, "--chunk-size");
	assert_int_equal(tmp_count("."), 0);
}

static long resident_pages(void)
{
	long pages = 0;
	FILE *f = fopen("/proc/self/statm", "r");

	assert_non_null(f);
	assert_int_equal(fscanf(f, "%*d %ld", &pages), 1);
	fclose(f);
	return pages;
}

/* Half a TiB of holes: its tables are 2^27 chunks long, and none of them is there yet. */
static void a_size_alone_takes_no_memory(void **state)
{
	struct rcp_sink_params p = params_of("f", UINT64_C(1) << 39);
	long before;

	(void)state;
	tmp_not_under_valgrind("its own memory would be counted");
	if (RCP_SANITIZED_THREAD)
		skip(); /* for the same reason */
	p.sparse = true;
	p.chunk_bytes = 4096;
	mallopt(M_PERTURB, 0); /* MALLOC_PERTURB_ has calloc touch what is fresh from the kernel */
	before = resident_pages();
	struct rcp_sink *s = open_ok(&p);

	assert_in_range(resident_pages() - before, 0, (8 << 20) / sysconf(_SC_PAGESIZE));
	rcp_sink_close(&s, false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TMP_TEST(four_writers_one_file),
		TMP_TEST(an_empty_file),
		TMP_TEST(the_old_target_stays_until_commit),
		TMP_TEST(chunks_off_the_grid),
		TMP_TEST(names_of_any_length),
		TMP_TEST(the_umask_does_not_matter),
		TMP_TEST(two_copies_into_one_target),
		TMP_TEST(what_a_file_may_not_replace),
		TMP_TEST(a_symlink_is_replaced_not_followed),
		TMP_TEST(strangers_at_the_partial_name),
		TMP_TEST(a_partial_file_that_was_swapped),
		TMP_TEST(holes_stay_holes),
		TMP_TEST(verify_finds_what_the_disk_did),
		TMP_TEST(small_files_in_one_go),
		TMP_TEST(small_files_at_once),
		TMP_TEST(a_full_disk),
		TMP_TEST(a_limit_on_file_sizes),
		TMP_TEST(sizes_no_file_can_have),
		TMP_TEST(a_size_alone_takes_no_memory),
	};

	return cmocka_run_group_tests(tests, tmp_setup, tmp_teardown);
}
