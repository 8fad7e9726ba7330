/* file/sink on a worker that is told to give up, and what it tells of how far it is. */
#include "base/crc.h"
#include "base/pool.h"
#include "file/sink.h"

#include "tmpdir.h"

#define CHUNK 65536u
#define SIZE  (10 * CHUNK + 777)

/* What a worker does with a file, and what comes of it. */
struct work {
	struct rcp_job job;
	struct rcp_sink_params params;
	struct rcp_sink *sink;
	struct rcp_err err;
};

static void open_work(struct rcp_job *job)
{
	struct work *w = (struct work *)(void *)job;

	rcp_sink_open(&w->params, &w->err, &w->sink);
}

static void verify_work(struct rcp_job *job)
{
	struct work *w = (struct work *)(void *)job;

	rcp_sink_verify(w->sink, &w->err);
}

static void work_done(struct rcp_job *job)
{
	(void)job;
}

static void work_through(struct rcp_pool *pool, struct work *w, void (*work)(struct rcp_job *))
{
	w->job = (struct rcp_job){.work = work, .done = work_done};
	w->err = (struct rcp_err){0};
	rcp_pool_submit(pool, RCP_POOL_START, &w->job);
	rcp_pool_drain(pool);
}

/* To read back is told as work that moves; once nobody wants it any more it ends, and what was there stays. */
static void reading_back_that_is_not_wanted(void **state)
{
	static uint8_t data[SIZE];
	struct work w = {.params = {.root = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC),
				    .path = "f",
				    .id = {.dev = 1, .ino = 2, .size = SIZE, .mtime_s = 3},
				    .chunk_bytes = CHUNK,
				    .resume = true}};
	const struct rcp_meta plain = {.mode = 0640};
	unsigned lost;
	struct rcp_pool *pool;
	struct rcp_err err = {0};

	(void)state;
	tmp_noise(data, SIZE, 9);
	assert_int_equal(rcp_pool_new(1, &err, &pool), 0);
	work_through(pool, &w, open_work);
	for (uint64_t at = 0; at < SIZE; at += CHUNK) {
		size_t len = SIZE - at < CHUNK ? SIZE - at : CHUNK;

		assert_int_equal(rcp_sink_write(w.sink, at, data + at, len, rcp_crc32(0, data + at, len), &err), 0);
	}
	rcp_sink_close(&w.sink, true);
	assert_int_equal(rcp_pool_moved(pool), 0);

	rcp_pool_set_unwanted(pool, true);
	work_through(pool, &w, open_work);
	assert_int_equal(w.err.code, RCP_E_LINK);
	assert_null(w.sink);
	assert_true(rcp_pool_moved(pool) < SIZE);

	uint64_t moved = rcp_pool_moved(pool);

	rcp_pool_set_unwanted(pool, false);
	work_through(pool, &w, open_work);
	assert_int_equal(w.err.code, RCP_OK);
	assert_int_equal(rcp_sink_resumed_bytes(w.sink), SIZE);
	assert_int_equal(rcp_pool_moved(pool) - moved, SIZE);

	rcp_pool_set_unwanted(pool, true);
	work_through(pool, &w, verify_work);
	assert_int_equal(w.err.code, RCP_E_LINK);
	rcp_pool_set_unwanted(pool, false);
	moved = rcp_pool_moved(pool);
	work_through(pool, &w, verify_work);
	assert_int_equal(w.err.code, RCP_OK);
	assert_int_equal(rcp_pool_moved(pool) - moved, SIZE);
	assert_int_equal(rcp_sink_commit(w.sink, &plain, &err, &lost), 0);
	rcp_sink_close(&w.sink, false);
	rcp_pool_free(&pool);
	close(w.params.root);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TMP_TEST(reading_back_that_is_not_wanted),
	};

	return cmocka_run_group_tests(tests, tmp_setup, tmp_teardown);
}
