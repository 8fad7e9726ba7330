/*
 * A directory for one test program, and small files in it. The program works inside (chdir), so
 * that tests use short relative names. Below $TMPDIR, else below the directory it was started in.
 */
#ifndef RCP_TESTS_TMPDIR_H
#define RCP_TESTS_TMPDIR_H

#include "base/err.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char tmp_path[4096], tmp_start[4096];

/* Ends the case where memcheck runs it (the setup `valgrind`). */
static inline void tmp_not_under_valgrind(const char *why)
{
	if (!getenv("RCP_TEST_VALGRIND"))
		return;
	fprintf(stderr, "not under valgrind: %s\n", why);
	skip();
}

static inline int tmp_remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

/* Everything at and below path; also what has no permission bits. */
static inline void tmp_remove(const char *path)
{
	nftw(path, tmp_remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

static inline int tmp_setup(void **state)
{
	const char *base = getenv("TMPDIR");

	(void)state;
	if (!getcwd(tmp_start, sizeof(tmp_start)))
		return -1;
	snprintf(tmp_path, sizeof(tmp_path), "%.4000s/rcp-test-XXXXXX",
		 base && *base ? base : tmp_start);
	if (!mkdtemp(tmp_path) || chdir(tmp_path) < 0) {
		perror(tmp_path);
		return -1;
	}
	return 0;
}

static inline int tmp_teardown(void **state)
{
	(void)state;
	if (chdir(tmp_start) < 0)
		return -1;
	tmp_remove(tmp_path);
	return 0;
}

/* Each test begins in an empty directory of its own. */
static inline int tmp_fresh(void **state)
{
	char name[64];
	static unsigned count;

	(void)state;
	snprintf(name, sizeof(name), "t%u", count++);
	return chdir(tmp_path) < 0 || mkdir(name, 0755) < 0 || chdir(name) < 0 ? -1 : 0;
}

static inline void tmp_write(const char *name, const void *data, size_t len)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, data, len), (ssize_t)len);
	assert_int_equal(close(fd), 0);
}

static inline void tmp_text(const char *name, const char *text)
{
	tmp_write(name, text, strlen(text));
}

/* Malloc'ed content, NUL behind it. */
static inline char *tmp_read(const char *name, size_t *len)
{
	struct stat st;
	int fd = open(name, O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &st), 0);
	char *data = malloc((size_t)st.st_size + 1);

	assert_non_null(data);
	assert_int_equal(read(fd, data, (size_t)st.st_size), st.st_size);
	close(fd);
	data[st.st_size] = 0;
	*len = (size_t)st.st_size;
	return data;
}

static inline void tmp_expect(const char *name, const void *data, size_t len)
{
	size_t got_len;
	char *got = tmp_read(name, &got_len);

	assert_int_equal(got_len, len);
	assert_true(memcmp(got, data, len) == 0);
	free(got);
}

static inline void tmp_expect_text(const char *name, const char *text)
{
	tmp_expect(name, text, strlen(text));
}

static inline bool tmp_exists(const char *name)
{
	struct stat st;

	return lstat(name, &st) == 0;
}

/* Names in the directory, without . and .. */
static inline unsigned tmp_count(const char *dir)
{
	DIR *d = opendir(dir);
	unsigned n = 0;

	assert_non_null(d);
	for (struct dirent *e; (e = readdir(d));)
		n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
	closedir(d);
	return n;
}

/* Repeatable noise. */
static inline uint64_t tmp_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static inline void tmp_noise(void *data, size_t len, uint64_t seed)
{
	uint64_t s = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;

	for (size_t i = 0; i < len; i += 8) {
		uint64_t v = tmp_random(&s);

		memcpy((char *)data + i, &v, len - i < 8 ? len - i : 8);
	}
}

#define TMP_SKIP(...)                                                                              \
	do {                                                                                       \
		fprintf(stderr, "SKIPPED %s: ", __func__);                                         \
		fprintf(stderr, __VA_ARGS__);                                                      \
		fputc('\n', stderr);                                                               \
		skip();                                                                            \
	} while (0)

#define TMP_TEST(f) cmocka_unit_test_setup(f, tmp_fresh)

#endif
