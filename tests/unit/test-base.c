/* base: errors, text, byte cursors, CRC, the worker pool. */
#include "base/bytes.h"
#include "base/crc.h"
#include "base/err.h"
#include "base/keys.h"
#include "base/pool.h"
#include "base/text.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void err_first_cause_wins(void **state)
{
	struct rcp_err e = {0};
	char buf[512];

	(void)state;
	assert_int_equal(rcp_err_set(&e, RCP_E_IO, ENOSPC, "pwrite", "/a\nb", "disk is full"), RCP_E_IO);
	rcp_err_fix(&e, "free %d MiB", 7);
	assert_int_equal(rcp_err_set(&e, RCP_E_LINK, 0, "x", "y", "z"), RCP_E_IO);
	rcp_err_fix(&e, "something else");
	assert_string_equal(rcp_err_format(&e, buf, sizeof(buf)),
			    "/a\\nb: pwrite: disk is full: No space left on device (free 7 MiB)");
}

static void err_long_object_keeps_both_ends(void **state)
{
	struct rcp_err e = {0};
	char name[3000];

	(void)state;
	memset(name, 'm', sizeof(name) - 1);
	memcpy(name, "head", 4);
	memcpy(name + sizeof(name) - 5, "tail", 5);
	rcp_err_set(&e, RCP_E_IO, EIO, "read", name, NULL);
	assert_int_equal(strlen(e.object), sizeof(e.object) - 1);
	assert_memory_equal(e.object, "head", 4);
	assert_string_equal(e.object + strlen(e.object) - 4, "tail");
}

static void sizes(void **state)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} good[] = {{"0", 0},	      {"4096", 4096},	 {"64K", 65536},
		    {"1.5G", 1610612736}, {"2T", 2199023255552}, {"1MiB", 1048576},
		    {"9007199254740993", 9007199254740993}};
	static const char *const bad[] = {"", "-1", "K", "1X", "1e3", "0x10", "1KK", "9999999999T", "1 K"};
	uint64_t v;

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		assert_int_equal(rcp_size_parse(good[i].text, &v), 0);
		assert_int_equal(v, good[i].bytes);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(rcp_size_parse(bad[i], &v), -1);
	char buf[32];

	assert_string_equal(rcp_size_format(1023, buf, sizeof(buf)), "1023 B");
	assert_string_equal(rcp_size_format(1536, buf, sizeof(buf)), "1.5 KiB");
	assert_string_equal(rcp_size_format(UINT64_MAX, buf, sizeof(buf)), "16.0 EiB");
}

static void names_cannot_move_the_cursor(void **state)
{
	static const char evil[] = "a\x1b[2J\n\x9b\xc2\x9b\xff\\\xc3\xa9";
	char buf[256];

	(void)state;
	rcp_name_escape(buf, sizeof(buf), evil, sizeof(evil) - 1);
	assert_string_equal(buf, "a\\x1b[2J\\n\\x9b\\xc2\\x9b\\xff\\\\\xc3\xa9");
	rcp_json_escape(buf, sizeof(buf), "q\"\xff\n", 4);
	assert_string_equal(buf, "q\\\"\\u00ff\\n");
	rcp_name_escape(buf, 4, "\x01zz", 3);
	assert_string_equal(buf, "");
	rcp_name_escape(buf, sizeof(buf), "\xe2\x80\xaegpj.\xe2\x80\xa6\xd8\x9c", 12);
	assert_string_equal(buf, "\\xe2\\x80\\xaegpj.\xe2\x80\xa6\\xd8\\x9c");
}

static void no_part_of_an_error_can_move_the_cursor(void **state)
{
	struct rcp_err e = {0};
	char buf[512];

	(void)state;
	rcp_err_set(&e, RCP_E_IO, 0, "c\x1b", "o\x1b", "t\x1b");
	rcp_err_fix(&e, "f\x1b");
	assert_string_equal(rcp_err_format(&e, buf, sizeof(buf)), "o\\x1b: c\\x1b: t\\x1b (f\\x1b)");
	assert_string_equal(rcp_err_format(&e, buf, 9), "o\\x1b: c");
}

static void keys_are_a_set(void **state)
{
	struct rcp_keys *k = rcp_keys_new(NULL);
	char name[32];

	(void)state;
	assert_non_null(k);
	assert_false(rcp_keys_has(k, rcp_keys_key(k, "a", 1, 0, 0)));
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < 5000; i++) {
			int n = snprintf(name, sizeof(name), "dir/%d", i);

			assert_int_equal(rcp_keys_add(k, rcp_keys_key(k, name, (size_t)n, 7, 9)), round == 0);
		}
	}
	assert_true(rcp_keys_has(k, rcp_keys_key(k, "dir/4999", 8, 7, 9)));
	assert_false(rcp_keys_has(k, rcp_keys_key(k, "dir/5000", 8, 7, 9)));
	assert_false(rcp_keys_has(k, rcp_keys_key(k, "dir/4999", 8, 8, 9)));
	assert_false(rcp_keys_has(k, rcp_keys_key(k, "dir/4999", 8, 7, 8)));
	assert_int_equal(rcp_keys_add(k, rcp_keys_key(k, "a", 1, 0, 0)), 1);
	assert_int_equal(rcp_keys_add(k, rcp_keys_key(k, "a\0", 2, 0, 0)), 1);
	rcp_keys_free(&k);
	assert_null(k);
}

static void cursor_overrun_is_sticky(void **state)
{
	static const uint8_t data[] = {1, 2, 3, 4, 5};
	struct rcp_rd r = rcp_rd_of(data, sizeof(data));

	(void)state;
	assert_int_equal(rcp_rd_u32(&r), 0x01020304);
	assert_int_equal(rcp_rd_u16(&r), 0);
	assert_true(r.bad);
	assert_int_equal(rcp_rd_u8(&r), 0);
}

static void writer_stops_at_its_maximum(void **state)
{
	struct rcp_wr w = {.max = 10};

	(void)state;
	rcp_wr_u64(&w, 0x0102030405060708);
	rcp_wr_u16(&w, 9);
	assert_false(w.bad);
	rcp_wr_u8(&w, 1);
	assert_true(w.bad);
	assert_int_equal(w.len, 10);
	assert_int_equal(rcp_get_u64(w.data), 0x0102030405060708);
	rcp_wr_free(&w);
}

static void crc_is_gzips(void **state)
{
	static const char text[] = "123456789";
	unsigned char zeros[5000] = {0};

	(void)state;
	assert_int_equal(rcp_crc32(0, text, 9), 0xcbf43926);
	uint32_t a = rcp_crc32(0, text, 4), b = rcp_crc32(0, text + 4, 5);

	assert_int_equal(rcp_crc32_combine(a, b, 5), 0xcbf43926);
	for (size_t n = 0; n < sizeof(zeros); n += 997)
		assert_int_equal(rcp_crc32_zeros(n), rcp_crc32(0, zeros, n));
}

/* Bit by bit, as the polynomial says. */
static uint32_t slow_crc(const unsigned char *p, size_t len)
{
	uint32_t crc = UINT32_MAX;

	for (; len--; p++) {
		crc ^= *p;
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
	}
	return ~crc;
}

/* Whichever engine this host runs. */
static void crc_of_every_length(void **state)
{
	const char *engine = rcp_crc32_engine();
	unsigned char data[1500];

	(void)state;
	assert_true(!strcmp(engine, "zlib") || !strcmp(engine, "isa-l"));
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (unsigned char)(i * i * 31 >> 3);
	for (size_t n = 0; n + 7 < sizeof(data); n += n < 300 ? 1 : 97)
		assert_int_equal(rcp_crc32(0, data + n % 8, n), slow_crc(data + n % 8, n));
}

struct counted {
	struct rcp_job job;
	pthread_t ran_by;
	int done;
};

static void work(struct rcp_job *job)
{
	((struct counted *)(void *)job)->ran_by = pthread_self();
}

static void done(struct rcp_job *job)
{
	((struct counted *)(void *)job)->done++;
}

static void pool_runs_each_job_once(void **state)
{
	static struct counted jobs[1000];
	struct rcp_err err = {0};
	struct rcp_pool *pool;
	unsigned seen = 0;

	(void)state;
	assert_int_equal(rcp_pool_new(3, &err, &pool), 0);
	for (size_t i = 0; i < 1000; i++) {
		jobs[i] = (struct counted){.job = {.work = work, .done = done}};
		rcp_pool_submit(pool, i % 2 ? RCP_POOL_START : RCP_POOL_FINISH, &jobs[i].job);
	}
	while (seen < 1000) {
		struct pollfd p = {.fd = rcp_pool_fd(pool), .events = POLLIN};

		assert_int_equal(poll(&p, 1, 10000), 1);
		seen += rcp_pool_reap(pool);
	}
	for (size_t i = 0; i < 1000; i++) {
		assert_int_equal(jobs[i].done, 1);
		assert_false(pthread_equal(jobs[i].ran_by, pthread_self()));
	}
	rcp_pool_free(&pool);
	assert_null(pool);
}

static void pool_free_finishes_what_was_submitted(void **state)
{
	static struct counted jobs[50];
	struct rcp_err err = {0};
	struct rcp_pool *pool;

	(void)state;
	assert_int_equal(rcp_pool_new(2, &err, &pool), 0);
	for (size_t i = 0; i < 50; i++) {
		jobs[i] = (struct counted){.job = {.work = work, .done = done}};
		rcp_pool_submit(pool, RCP_POOL_START, &jobs[i].job);
	}
	rcp_pool_free(&pool);
	for (size_t i = 0; i < 50; i++)
		assert_int_equal(jobs[i].done, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(err_first_cause_wins),
		cmocka_unit_test(err_long_object_keeps_both_ends),
		cmocka_unit_test(sizes),
		cmocka_unit_test(names_cannot_move_the_cursor),
		cmocka_unit_test(no_part_of_an_error_can_move_the_cursor),
		cmocka_unit_test(keys_are_a_set),
		cmocka_unit_test(cursor_overrun_is_sticky),
		cmocka_unit_test(writer_stops_at_its_maximum),
		cmocka_unit_test(crc_is_gzips),
		cmocka_unit_test(crc_of_every_length),
		cmocka_unit_test(pool_runs_each_job_once),
		cmocka_unit_test(pool_free_finishes_what_was_submitted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
