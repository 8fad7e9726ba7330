/* file/source: identity, reading, mappings, SIGBUS. */
#include "file/source.h"

#include "base/crc.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "tmpdir.h"

#define SIZE (3u << 20)

static uint8_t *noise_file(const char *name, size_t size)
{
	uint8_t *data = malloc(size);

	assert_non_null(data);
	tmp_noise(data, size, 7);
	tmp_write(name, data, size);
	return data;
}

static struct rcp_source *open_ok(const char *name)
{
	struct rcp_err err = {0};
	struct rcp_source *s;

	assert_int_equal(rcp_source_open(name, false, NULL, &err, &s), 0);
	return s;
}

static void expect_refused(const char *name, bool nofollow, const struct rcp_file_id *id, int code,
			   const char *words)
{
	struct rcp_err err = {0};
	struct rcp_source *s;
	char line[2048];

	assert_int_equal(rcp_source_open(name, nofollow, id, &err, &s), code);
	assert_null(s);
	rcp_err_format(&err, line, sizeof(line));
	if (!strstr(line, words) || !strstr(line, name))
		fail_msg("%s", line);
}

static void only_regular_files(void **state)
{
	(void)state;
	tmp_text("f", "x");
	assert_int_equal(symlink("f", "link"), 0);
	assert_int_equal(mkfifo("fifo", 0600), 0);
	assert_int_equal(mkdir("d", 0755), 0);
	expect_refused("none", false, NULL, RCP_E_PARTIAL, "No such file");
	expect_refused("fifo", false, NULL, RCP_E_PARTIAL,
		       "not a regular file"); /* and does not wait */
	expect_refused("d", false, NULL, RCP_E_PARTIAL, "not a regular file");
	expect_refused("/dev/null", false, NULL, RCP_E_PARTIAL, "not a regular file");
	expect_refused("link", true, NULL, RCP_E_PARTIAL, "symbolic links");
	struct rcp_source *s = open_ok("link");

	assert_string_equal(rcp_source_path(s), "link");
	assert_true(fcntl(rcp_source_fd(s), F_GETFD) & FD_CLOEXEC);
	rcp_source_close(&s);
	assert_null(s);
}

static void identity_is_checked_twice(void **state)
{
	struct rcp_err err = {0};
	struct stat st;

	(void)state;
	tmp_text("f", "12345");
	assert_int_equal(stat("f", &st), 0);
	struct rcp_source *s = open_ok("f");
	struct rcp_file_id id = *rcp_source_id(s);

	assert_int_equal(id.size, 5);
	assert_int_equal(id.ino, st.st_ino);
	assert_int_equal(id.mtime_s, st.st_mtim.tv_sec);
	assert_int_equal(id.mtime_ns, st.st_mtim.tv_nsec);
	assert_int_equal(rcp_source_check(s, &err), 0);
	int fd = open("f", O_WRONLY | O_APPEND);

	assert_int_equal(write(fd, "6", 1), 1);
	close(fd);
	assert_int_equal(rcp_source_check(s, &err), RCP_E_PARTIAL);
	assert_non_null(strstr(err.text, "changed while it was copied"));
	rcp_source_close(&s);
	expect_refused("f", false, &id, RCP_E_PARTIAL, "changed after it was listed");
	/* Same size, other time: a rewrite in place. */
	struct timespec ts[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1, .tv_nsec = 1}};

	s = open_ok("f");
	assert_int_equal(utimensat(AT_FDCWD, "f", ts, 0), 0);
	err = (struct rcp_err){0};
	assert_int_equal(rcp_source_check(s, &err), RCP_E_PARTIAL);
	rcp_source_close(&s);
}

static void read_both_ways(struct rcp_source *s, const uint8_t *data, size_t offset, size_t len,
			   uint8_t *buf)
{
	struct rcp_err err = {0};
	uint32_t crc = 1;

	memset(buf, 0, len);
	assert_int_equal(rcp_source_read(s, offset, buf, len, &err, &crc), 0);
	assert_true(memcmp(buf, data + offset, len) == 0);
	assert_int_equal(crc, rcp_crc32(0, data + offset, len));
	memset(buf, 0, len);
	crc = 1;
	assert_int_equal(rcp_source_read_direct(s, offset, buf, len, &err, &crc), 0);
	assert_true(memcmp(buf, data + offset, len) == 0);
	assert_int_equal(crc, rcp_crc32(0, data + offset, len));
}

static void reads_and_sums(void **state)
{
	static const size_t at[][2] = {
		{0, SIZE + 77}, {4096, 4096}, {1u << 20, 1u << 20},    {SIZE, 77},
		{1, 1000},	{0, 0},	      {SIZE - 4096, 4096 + 77}};
	uint8_t *data = noise_file("f", SIZE + 77);
	uint8_t *buf = aligned_alloc(4096, SIZE + 8192);
	struct rcp_source *s = open_ok("f");

	(void)state;
	assert_non_null(buf);
	for (size_t i = 0; i < sizeof(at) / sizeof(at[0]); i++)
		read_both_ways(s, data, at[i][0], at[i][1], buf);
	rcp_source_close(&s);
	free(buf);
	free(data);
}

static void a_short_file_is_told(void **state)
{
	uint8_t *data = noise_file("f", SIZE), *buf = aligned_alloc(4096, SIZE);
	struct rcp_source *s = open_ok("f");
	struct rcp_err err = {0};
	uint32_t crc;

	(void)state;
	assert_int_equal(truncate("f", SIZE / 2), 0);
	assert_int_equal(rcp_source_read(s, 0, buf, SIZE, &err, &crc), RCP_E_PARTIAL);
	assert_non_null(strstr(err.text, "it ends at byte 1572864, and had 3145728"));
	assert_string_equal(err.object, "f");
	err = (struct rcp_err){0};
	assert_int_equal(rcp_source_read_direct(s, 0, buf, SIZE, &err, &crc), RCP_E_PARTIAL);
	assert_non_null(strstr(err.text, "truncated"));
	rcp_source_close(&s);
	free(buf);
	free(data);
}

/* The name means another file when O_DIRECT opens it: the first file's bytes still come. */
static void direct_reads_the_same_file(void **state)
{
	uint8_t *data = noise_file("f", 8192), *buf = aligned_alloc(4096, 8192);
	struct rcp_source *s = open_ok("f");

	(void)state;
	tmp_text("other", "something else");
	assert_int_equal(rename("other", "f"), 0);
	read_both_ways(s, data, 0, 8192, buf);
	rcp_source_close(&s);
	free(buf);
	free(data);
}

static void windows(void **state)
{
	uint8_t *data = noise_file("f", SIZE + 77);
	struct rcp_source *s = open_ok("f");
	struct rcp_err err = {0};
	struct rcp_window w;
	uint32_t crc;

	(void)state;
	assert_int_equal(rcp_window_map(s, 5000, 10000, &err, &w), 0);
	assert_int_equal(w.len, 10000);
	assert_int_equal((uintptr_t)w.map % 4096, 0);
	assert_true(memcmp(w.data, data + 5000, 10000) == 0);
	assert_int_equal(rcp_guarded_crc(w.data, w.len, "f", &err, &crc), 0);
	assert_int_equal(crc, rcp_crc32(0, data + 5000, 10000));
	rcp_window_unmap(&w);
	assert_null(w.map);
	assert_int_equal(rcp_window_map(s, SIZE, 1u << 20, &err, &w),
			 0); /* cut at the end */
	assert_int_equal(w.len, 77);
	assert_true(memcmp(w.data, data + SIZE, 77) == 0);
	rcp_window_unmap(&w);
	assert_int_equal(rcp_window_map(s, SIZE + 77, 4096, &err, &w), 0);
	assert_null(w.data);
	rcp_window_unmap(&w);
	assert_int_equal(truncate("f", 4096), 0);
	assert_int_equal(rcp_window_map(s, 0, 8192, &err, &w), RCP_E_PARTIAL);
	assert_non_null(strstr(err.text, "truncated"));
	rcp_source_close(&s);
	free(data);
}

static void *crc_of_lost_pages(void *arg)
{
	struct rcp_window *w = arg;
	struct rcp_err err = {0};
	uint32_t crc;
	intptr_t bad = 0;

	for (int i = 0; i < 50; i++) {
		err = (struct rcp_err){0};
		bad += rcp_guarded_crc(w->data, w->len, "f", &err, &crc) != RCP_E_PARTIAL;
		/* The guard must be off again, and good memory still be read. */
		err = (struct rcp_err){0};
		bad += rcp_guarded_crc("123456789", 9, "m", &err, &crc) != 0 || crc != 0xcbf43926;
	}
	return (void *)bad; /* NOLINT */
}

static void lost_pages_are_an_error_not_a_death(void **state)
{
	uint8_t *data = noise_file("f", SIZE);
	struct rcp_source *s = open_ok("f");
	struct rcp_err err = {0};
	struct rcp_window w;
	pthread_t t[3];

	(void)state;
	rcp_sigbus_install();
	assert_int_equal(rcp_window_map(s, 0, SIZE, &err, &w), 0);
	assert_int_equal(truncate("f", 5000), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&t[i], NULL, crc_of_lost_pages, &w), 0);
	for (int i = 0; i < 3; i++) {
		void *bad;

		assert_int_equal(pthread_join(t[i], &bad), 0);
		assert_null(bad);
	}
	assert_int_equal(rcp_guarded_crc(w.data, w.len, "the-file", &err, &(uint32_t){0}),
			 RCP_E_PARTIAL);
	assert_string_equal(err.object, "the-file");
	rcp_window_unmap(&w);
	rcp_source_close(&s);
	free(data);
}

static void sigbus_elsewhere_is_deadly(void **state)
{
	(void)state;
	tmp_not_under_valgrind("it has handlers of its own");
	for (int how = 0; how < 2; how++) {
		pid_t pid = fork();
		int status;

		if (pid == 0) {
			struct rlimit none = {0, 0};
			struct rcp_err err = {0};
			struct rcp_source *s;
			struct rcp_window w;

			setrlimit(RLIMIT_CORE, &none);
			rcp_sigbus_install();
			tmp_text("g", "gone");
			if (how == 0)
				raise(SIGBUS);
			rcp_source_open("g", false, NULL, &err, &s);
			rcp_window_map(s, 0, 4, &err, &w);
			if (truncate("g", 0) == 0)
				_exit(*(volatile const uint8_t *)w.data);
			_exit(1);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
#if defined(__SANITIZE_ADDRESS__)
		assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) != 0);
#else
		assert_true(WIFSIGNALED(status));
		assert_int_equal(WTERMSIG(status), SIGBUS);
#endif
	}
}

static void extents(void **state)
{
	struct rcp_err err = {0};
	uint64_t a, b, size = 1u << 20;
	int fd = open("f", O_RDWR | O_CREAT, 0600);

	(void)state;
	assert_int_equal(ftruncate(fd, (off_t)size), 0);
	assert_int_equal(pwrite(fd, "x", 1, 512 << 10), 1);
	struct rcp_source *s = open_ok("f");

	assert_int_equal(rcp_source_extent(s, 0, &err, &a, &b), 0);
	if (a == 0) {
		rcp_source_close(&s);
		close(fd);
		TMP_SKIP("this file system tells no holes");
	}
	assert_true(a <= 512 << 10 && b > 512 << 10 && b < size && a > 0);
	assert_int_equal(rcp_source_extent(s, b, &err, &a, &b), 0);
	assert_int_equal(a, size); /* only a hole is left */
	assert_int_equal(b, size);
	assert_int_equal(rcp_source_extent(s, size + 5, &err, &a, &b), 0);
	assert_int_equal(a, size);
	rcp_source_close(&s);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TMP_TEST(only_regular_files),
		TMP_TEST(identity_is_checked_twice),
		TMP_TEST(reads_and_sums),
		TMP_TEST(a_short_file_is_told),
		TMP_TEST(direct_reads_the_same_file),
		TMP_TEST(windows),
		TMP_TEST(lost_pages_are_an_error_not_a_death),
		TMP_TEST(sigbus_elsewhere_is_deadly),
		TMP_TEST(extents),
	};

	return cmocka_run_group_tests(tests, tmp_setup, tmp_teardown);
}
