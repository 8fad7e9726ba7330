/* file/journal and resume: torn writes, damage, another version, kill -9, a model of a power cut.
 */
#include "file/journal.h"

#include "base/crc.h"
#include "file/io.h"
#include "file/sink.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#include "tmpdir.h"

#define CHUNK  8192u
#define CHUNKS 40u
#define SIZE   (CHUNKS * CHUNK - 1000)

static const struct rcp_journal_key key = {
	.id = {.dev = 11, .ino = 22, .size = SIZE, .mtime_s = -33, .mtime_ns = 44},
	.chunk_bytes = CHUNK,
};

struct told {
	unsigned count;
	struct rcp_claim last;
	bool wrong;
};

/* The journals here claim chunk i with CRC 1000 + i, in order. */
static void on_claim(void *arg, const struct rcp_claim *claim)
{
	struct told *t = arg;

	t->wrong |= claim->index != t->count % CHUNKS || claim->crc != 1000 + claim->index;
	t->last = *claim;
	t->count++;
}

static int here(void)
{
	return open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
}

static void make_journal(unsigned claims)
{
	struct rcp_journal j;
	int dir = here();

	assert_int_equal(rcp_journal_create(dir, "j", &key, &j), 0);
	for (unsigned i = 0; i < claims; i++) {
		struct rcp_claim c = {.index = i % CHUNKS, .crc = 1000 + i % CHUNKS};

		assert_int_equal(rcp_journal_append(&j, &c, 1), 0);
	}
	assert_int_equal(rcp_journal_sync(&j), 0);
	rcp_journal_close(&j);
	close(dir);
}

static enum rcp_journal_state load(const struct rcp_journal_key *k, struct told *t,
				   struct rcp_journal *j)
{
	int dir = here();
	enum rcp_journal_state state;

	*t = (struct told){0};
	state = rcp_journal_load(dir, "j", k, CHUNKS, on_claim, t, j);
	close(dir);
	return state;
}

static void claims_come_back(void **state)
{
	struct rcp_journal j;
	struct told t;
	struct rcp_claim c = {.index = 5, .crc = 1005};

	(void)state;
	assert_int_equal(load(&key, &t, &j), RCP_JOURNAL_NONE);
	make_journal(5);
	assert_int_equal(load(&key, &t, &j), RCP_JOURNAL_GOOD);
	assert_int_equal(t.count, 5);
	assert_false(t.wrong);
	assert_int_equal(rcp_journal_append(&j, &c, 1), 0); /* goes on where it ended */
	rcp_journal_close(&j);
	assert_int_equal(load(&key, &t, &j), RCP_JOURNAL_GOOD);
	assert_int_equal(t.count, 6);
	assert_false(t.wrong);
	rcp_journal_close(&j);
}

static void many_claims_at_once(void **state)
{
	struct rcp_journal j;
	struct told t;

	(void)state;
	make_journal(100 * CHUNKS); /* more than one read's worth */
	assert_int_equal(load(&key, &t, &j), RCP_JOURNAL_GOOD);
	assert_int_equal(t.count, 100 * CHUNKS);
	assert_false(t.wrong);
	rcp_journal_close(&j);
}

static void every_field_is_identity(void **state)
{
	(void)state;
	make_journal(3);
	for (int i = 0; i < 6; i++) {
		struct rcp_journal_key k = key;
		struct rcp_journal j;
		struct told t;

		k.id.dev += i == 0;
		k.id.ino += i == 1;
		k.id.size += i == 2;
		k.id.mtime_s += i == 3;
		k.id.mtime_ns += i == 4;
		k.chunk_bytes += i == 5;
		assert_int_equal(load(&k, &t, &j), RCP_JOURNAL_OTHER);
		assert_int_equal(t.count, 0);
		assert_int_equal(j.fd, -1);
	}
}

/* Cut anywhere: what is whole before the cut counts, and the next append fits. */
static void cut_anywhere(void **state)
{
	size_t len;

	(void)state;
	make_journal(6);
	char *whole = tmp_read("j", &len);

	assert_int_equal(len, 64 + 6 * 16);
	for (size_t cut = 0; cut <= len; cut++) {
		struct rcp_journal j;
		struct told t;

		tmp_write("j", whole, cut);
		enum rcp_journal_state s = load(&key, &t, &j);

		assert_int_equal(s, cut < 64 ? RCP_JOURNAL_DAMAGED : RCP_JOURNAL_GOOD);
		assert_int_equal(t.count, cut < 64 ? 0 : (cut - 64) / 16);
		assert_false(t.wrong);
		if (s != RCP_JOURNAL_GOOD)
			continue;
		struct rcp_claim c = {.index = t.count, .crc = 1000 + t.count};

		assert_int_equal(rcp_journal_append(&j, &c, 1), 0);
		rcp_journal_close(&j);
		assert_int_equal(load(&key, &t, &j), RCP_JOURNAL_GOOD);
		assert_int_equal(t.count, (cut - 64) / 16 + 1);
		assert_false(t.wrong);
		rcp_journal_close(&j);
	}
	free(whole);
}

/* Any single bit: the header is refused, a record ends the journal; no wrong claim ever comes. */
static void flip_any_bit(void **state)
{
	size_t len;

	(void)state;
	make_journal(6);
	char *whole = tmp_read("j", &len);

	for (size_t bit = 0; bit < len * 8; bit++) {
		struct rcp_journal j;
		struct told t;

		whole[bit / 8] = (char)(whole[bit / 8] ^ 1 << bit % 8);
		tmp_write("j", whole, len);
		whole[bit / 8] = (char)(whole[bit / 8] ^ 1 << bit % 8);
		enum rcp_journal_state s = load(&key, &t, &j);

		assert_false(t.wrong);
		if (bit < 64 * 8) {
			assert_int_equal(s, RCP_JOURNAL_DAMAGED);
		} else {
			assert_int_equal(s, RCP_JOURNAL_GOOD);
			assert_int_equal(t.count, (bit / 8 - 64) / 16);
		}
		rcp_journal_close(&j);
	}
	free(whole);
}

/* Blocks of an older journal behind a new header, as a crash may leave them. */
static void old_records_behind_a_new_header(void **state)
{
	struct rcp_journal_key newer = key;
	struct rcp_journal j;
	struct told t;
	size_t len;

	(void)state;
	make_journal(6);
	char *old = tmp_read("j", &len);
	int dir = here(), fd;

	newer.id.mtime_ns++;
	assert_int_equal(rcp_journal_create(dir, "j", &newer, &j), 0);
	rcp_journal_close(&j);
	close(dir);
	fd = open("j", O_WRONLY);
	assert_int_equal(pwrite(fd, old + 64, len - 64, 64), (ssize_t)len - 64);
	assert_int_equal(load(&newer, &t, &j), RCP_JOURNAL_GOOD);
	assert_int_equal(t.count, 0);
	rcp_journal_close(&j);
	memset(old, 0, len);
	assert_int_equal(pwrite(fd, old, len - 64, 64), (ssize_t)len - 64); /* zeros */
	assert_int_equal(load(&newer, &t, &j), RCP_JOURNAL_GOOD);
	assert_int_equal(t.count, 0);
	rcp_journal_close(&j);
	close(fd);
	free(old);
}

static void an_index_beyond_the_file(void **state)
{
	struct rcp_claim c = {.index = CHUNKS, .crc = 1};
	struct rcp_journal j;
	struct told t;

	(void)state;
	make_journal(2);
	assert_int_equal(load(&key, &t, &j), RCP_JOURNAL_GOOD);
	assert_int_equal(rcp_journal_append(&j, &c, 1), 0);
	rcp_journal_close(&j);
	assert_int_equal(load(&key, &t, &j), RCP_JOURNAL_GOOD);
	assert_int_equal(t.count, 2);
	rcp_journal_close(&j);
}

static void strangers_are_not_read(void **state)
{
	struct rcp_journal j;
	struct told t;

	(void)state;
	make_journal(2);
	assert_int_equal(rename("j", "real"), 0);
	assert_int_equal(symlink("real", "j"), 0);
	assert_int_equal(load(&key, &t, &j), RCP_JOURNAL_DAMAGED);
	assert_int_equal(unlink("j"), 0);
	assert_int_equal(link("real", "j"), 0);
	assert_int_equal(load(&key, &t, &j), RCP_JOURNAL_DAMAGED);
	assert_int_equal(unlink("j"), 0);
	assert_int_equal(mkfifo("j", 0600), 0);
	assert_int_equal(load(&key, &t, &j), RCP_JOURNAL_DAMAGED);
	assert_int_equal(t.count, 0);
}

/* ---- resume through a sink ---- */

static struct rcp_sink_params params_of(int dir, uint32_t version, bool sparse)
{
	struct rcp_sink_params p = {
		.root = dir,
		.path = "f",
		.shown = "f",
		.id = key.id,
		.chunk_bytes = CHUNK,
		.sparse = sparse,
		.resume = true,
	};

	p.id.mtime_ns = version;
	return p;
}

/* Version v of the source; with holes of whole chunks and of blocks. */
static uint8_t *version_of(uint32_t v)
{
	uint8_t *data = calloc(1, SIZE);

	assert_non_null(data);
	for (unsigned i = 0; i < SIZE / 4096; i++) {
		if ((i + v) % 5 && (i / 2 + v) % 4)
			tmp_noise(data + i * 4096, 4096, v * 1000 + i);
	}
	return data;
}

static uint64_t cell(uint64_t i)
{
	return i == CHUNKS - 1 ? SIZE - i * CHUNK : CHUNK;
}

static int put_chunk(struct rcp_sink *s, const uint8_t *data, uint64_t i)
{
	struct rcp_err err = {0};

	return rcp_sink_write(s, i * CHUNK, data + i * CHUNK, cell(i),
			      rcp_crc32(0, data + i * CHUNK, cell(i)), &err);
}

static struct rcp_sink *open_version(int dir, uint32_t v, bool sparse)
{
	struct rcp_sink_params p = params_of(dir, v, sparse);
	struct rcp_err err = {0};
	struct rcp_sink *s;
	char line[2048];

	if (rcp_sink_open(&p, &err, &s))
		fail_msg("%s", rcp_err_format(&err, line, sizeof(line)));
	return s;
}

static void finish(struct rcp_sink **s, const uint8_t *data)
{
	const struct rcp_meta meta = {.mode = 0600};
	struct rcp_err err = {0};
	unsigned lost;

	for (uint64_t i = 0; i < CHUNKS; i++) {
		if (!rcp_sink_has(*s, i))
			assert_int_equal(put_chunk(*s, data, i), 0);
	}
	assert_int_equal(rcp_sink_crc(*s), rcp_crc32(0, data, SIZE));
	assert_int_equal(rcp_sink_commit(*s, &meta, &err, &lost), 0);
	rcp_sink_close(s, true);
	tmp_expect("f", data, SIZE);
	assert_int_equal(tmp_count("."), 1);
}

static void a_second_run_goes_on(void **state)
{
	uint8_t *data = version_of(1);
	int dir = here();
	struct rcp_sink *s = open_version(dir, 1, false);
	struct rcp_err err = {0};

	(void)state;
	assert_null(rcp_sink_remark(s));
	for (uint64_t i = 0; i < 10; i++)
		assert_int_equal(put_chunk(s, data, i * 3), 0);
	assert_false(tmp_exists(".f.rcp-journal"));
	assert_int_equal(rcp_sink_checkpoint(s, &err), 0);
	assert_true(tmp_exists(".f.rcp-journal"));
	assert_int_equal(put_chunk(s, data, CHUNKS - 1), 0);
	rcp_sink_close(&s, true); /* claims the last one too */
	s = open_version(dir, 1, false);
	assert_null(rcp_sink_remark(s));
	assert_int_equal(rcp_sink_resumed_bytes(s), 10 * CHUNK + cell(CHUNKS - 1));
	assert_int_equal(rcp_sink_bytes(s), rcp_sink_resumed_bytes(s));
	for (uint64_t i = 0; i < CHUNKS; i++)
		assert_int_equal(rcp_sink_has(s, i), (i % 3 == 0 && i < 30) || i == CHUNKS - 1);
	assert_false(rcp_sink_has(s, CHUNKS));
	finish(&s, data);
	close(dir);
	free(data);
}

static void keep_half(int dir, uint32_t version, const uint8_t *data)
{
	struct rcp_sink *s = open_version(dir, version, false);

	for (uint64_t i = 0; i < CHUNKS / 2; i++)
		assert_int_equal(put_chunk(s, data, i), 0);
	rcp_sink_close(&s, true);
	assert_int_equal(tmp_count("."), 2);
}

static void a_claim_is_not_trusted(void **state)
{
	uint8_t *data = version_of(2);
	int dir = here(), fd;

	(void)state;
	keep_half(dir, 2, data);
	fd = open(".f.rcp-part", O_WRONLY);
	assert_int_equal(pwrite(fd, "!", 1, 3 * CHUNK + 17), 1);
	close(fd);
	struct rcp_sink *s = open_version(dir, 2, false);

	assert_non_null(strstr(rcp_sink_remark(s), "1 chunks of the partial file were not"));
	assert_false(rcp_sink_has(s, 3));
	assert_true(rcp_sink_has(s, 4));
	assert_int_equal(rcp_sink_resumed_bytes(s), (CHUNKS / 2 - 1) * CHUNK);
	/* Sent again, it is claimed again. */
	assert_int_equal(put_chunk(s, data, 3), 0);
	rcp_sink_close(&s, true);
	s = open_version(dir, 2, false);
	assert_null(rcp_sink_remark(s));
	assert_true(rcp_sink_has(s, 3));
	finish(&s, data);
	close(dir);
	free(data);
}

static void another_version_starts_over(void **state)
{
	uint8_t *old = version_of(3), *new = version_of(4);
	int dir = here();

	(void)state;
	keep_half(dir, 3, old);
	struct rcp_sink *s = open_version(dir, 4, false);

	assert_non_null(strstr(rcp_sink_remark(s), "another version of the source"));
	assert_int_equal(rcp_sink_resumed_bytes(s), 0);
	finish(&s, new);
	assert_int_equal(unlink("f"), 0);
	keep_half(dir, 3, old);
	assert_int_equal(unlink(".f.rcp-journal"), 0);
	s = open_version(dir, 3, false);
	assert_non_null(strstr(rcp_sink_remark(s), "without a journal"));
	assert_int_equal(rcp_sink_resumed_bytes(s), 0);
	finish(&s, old);
	close(dir);
	free(old);
	free(new);
}

static void no_resume_starts_over(void **state)
{
	uint8_t *data = version_of(5);
	int dir = here();
	struct rcp_sink_params p = params_of(dir, 5, false);
	struct rcp_err err = {0};
	struct rcp_sink *s;

	(void)state;
	keep_half(dir, 5, data);
	p.resume = false;
	assert_int_equal(rcp_sink_open(&p, &err, &s), 0);
	assert_int_equal(rcp_sink_resumed_bytes(s), 0);
	assert_false(tmp_exists(".f.rcp-journal"));
	assert_int_equal(put_chunk(s, data, 0), 0);
	assert_int_equal(rcp_sink_checkpoint(s, &err), 0);
	assert_false(tmp_exists(".f.rcp-journal"));
	rcp_sink_close(&s, true); /* without a journal nobody could go on with it */
	assert_int_equal(tmp_count("."), 0);
	close(dir);
	free(data);
}

static void a_journal_without_a_file(void **state)
{
	uint8_t *data = version_of(6);
	int dir = here();

	(void)state;
	keep_half(dir, 6, data);
	assert_int_equal(unlink(".f.rcp-part"), 0);
	struct rcp_sink *s = open_version(dir, 6, false);

	assert_int_equal(rcp_sink_resumed_bytes(s), 0);
	finish(&s, data);
	close(dir);
	free(data);
}

/* A chunk half written with old bytes, then a sparse run that would skip its zeros. */
static void sparse_resume_leaves_no_old_bytes(void **state)
{
	uint8_t *data = version_of(7);
	int dir = here(), fd;
	struct rcp_sink *s = open_version(dir, 7, true);
	uint8_t *junk = malloc(SIZE);

	(void)state;
	assert_int_equal(put_chunk(s, data, 1), 0);
	rcp_sink_close(&s, true);
	memset(junk, 0xee, SIZE);
	fd = open(".f.rcp-part", O_WRONLY);
	assert_int_equal(pwrite(fd, junk, CHUNK, 0), CHUNK);
	assert_int_equal(pwrite(fd, junk, SIZE + 0 - 2 * CHUNK, 2 * CHUNK), SIZE - 2 * CHUNK);
	assert_int_equal(pwrite(fd, junk, 5000, SIZE), 5000);
	close(fd);
	s = open_version(dir, 7, true);
	if (rcp_sink_resumed_bytes(s) == 0) {
		assert_non_null(strstr(rcp_sink_remark(s), "holes can't be made"));
	} else {
		assert_int_equal(rcp_sink_resumed_bytes(s), CHUNK);
	}
	const struct rcp_meta meta = {.mode = 0600};
	struct rcp_err err = {0};
	unsigned lost;

	for (uint64_t i = 0; i < CHUNKS; i++) { /* a source sends no chunk that is all hole */
		bool hole = rcp_crc32(0, data + i * CHUNK, cell(i)) == rcp_crc32_zeros(cell(i));

		if (!hole && !rcp_sink_has(s, i))
			assert_int_equal(put_chunk(s, data, i), 0);
	}
	assert_int_equal(rcp_sink_crc(s), rcp_crc32(0, data, SIZE));
	assert_int_equal(rcp_sink_verify(s, &err), 0);
	assert_int_equal(rcp_sink_commit(s, &meta, &err, &lost), 0);
	rcp_sink_close(&s, false);
	tmp_expect("f", data, SIZE);
	close(dir);
	free(junk);
	free(data);
}

/* ---- torture ---- */

/* The child: one run that writes in random order, notes now and then, and commits at the end. */
static void run_until_killed(uint32_t version, bool sparse, uint64_t seed, bool slow)
{
	int dir = here();
	uint8_t *data = version_of(version);
	struct rcp_sink *s = open_version(dir, version, sparse);
	struct rcp_err err = {0};
	const struct rcp_meta meta = {.mode = 0600};
	unsigned lost;

	for (unsigned n = 0, at = (unsigned)(tmp_random(&seed) % CHUNKS); n < CHUNKS; n++) {
		at = (at + 7) % CHUNKS;
		if (!rcp_sink_has(s, at) && put_chunk(s, data, at))
			_exit(1);
		if (tmp_random(&seed) % 4 == 0 && rcp_sink_checkpoint(s, &err))
			_exit(2);
		if (slow)
			usleep((useconds_t)(tmp_random(&seed) % 100));
	}
	_exit(rcp_sink_commit(s, &meta, &err, &lost) ? 3 : 0);
}

struct seen {
	uint8_t claimed[CHUNKS];
};

static void note_claim(void *arg, const struct rcp_claim *claim)
{
	((struct seen *)arg)->claimed[claim->index] = 1;
}

/*
 * What a power cut may do: chunks that were not claimed hold anything, the journal ends anywhere
 * behind its last sync or in noise. Claimed chunks stay: that is what fdatasync promises. (And some
 * do not, as on a disk that lies: the CRC must tell.)
 */
static void cut_power(uint32_t version, uint64_t *seed)
{
	struct rcp_journal_key k = key;
	struct rcp_journal j;
	struct seen seen = {0};
	uint8_t junk[CHUNK];
	int dir = here(), fd = open(".f.rcp-part", O_WRONLY);

	k.id.mtime_ns = version;
	if (rcp_journal_load(dir, ".f.rcp-journal", &k, CHUNKS, note_claim, &seen, &j) ==
	    RCP_JOURNAL_GOOD) {
		tmp_noise(junk, sizeof(junk), tmp_random(seed));
		if (tmp_random(seed) % 2)
			assert_int_equal(rcp_io_pwrite(j.fd, junk, tmp_random(seed) % 100, j.end),
					 0);
		rcp_journal_close(&j);
	}
	for (unsigned i = 0; fd >= 0 && i < CHUNKS; i++) {
		if ((seen.claimed[i] && tmp_random(seed) % 20) || tmp_random(seed) % 3 == 0)
			continue;
		tmp_noise(junk, sizeof(junk), tmp_random(seed));
		assert_int_equal(rcp_io_pwrite(fd, junk, cell(i), i * CHUNK), 0);
	}
	rcp_io_close(&fd);
	close(dir);
}

static bool target_is(const uint8_t *data)
{
	size_t len;
	char *got = tmp_exists("f") ? tmp_read("f", &len) : NULL;
	bool same = got && len == SIZE && memcmp(got, data, SIZE) == 0;

	free(got);
	return same;
}

struct tally {
	unsigned kills, done, resumed;
};

/* One round: a run, killed or not, of the version that is current; then what is there is judged. */
static void round_of(unsigned round, uint32_t *version, uint64_t *seed, struct tally *t)
{
	uint32_t before = *version;
	uint64_t child_seed = tmp_random(seed);
	bool sparse = round / 20 % 2;

	if (tmp_random(seed) % 16 == 0)
		++*version;
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (pid == 0)
		run_until_killed(*version, sparse, child_seed, round % 2);
	usleep((useconds_t)(tmp_random(seed) % 4000));
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) || status == 0);
	t->kills += WIFSIGNALED(status) != 0;
	t->done += status == 0;
	uint8_t *now = version_of(*version);

	if (status == 0)
		assert_true(target_is(now));
	/* Never a mix: absent, or some whole version up to this one. */
	bool whole = !tmp_exists("f") || target_is(now);

	for (uint32_t v = before + 1; !whole && v-- > 0;) {
		uint8_t *old = version_of(v);

		whole = target_is(old);
		free(old);
	}
	assert_true(whole);
	free(now);
	if (WIFSIGNALED(status) && tmp_random(seed) % 2)
		cut_power(*version, seed);
}

static void killed_at_any_point(void **state)
{
	const char *rounds_text = getenv("RCP_TEST_ROUNDS"), *seed_text = getenv("RCP_TEST_SEED");
	unsigned rounds = rounds_text ? (unsigned)atoi(rounds_text) : 200;
	uint64_t seed = seed_text ? strtoull(seed_text, NULL, 0) : (uint64_t)time(NULL) * 2 + 1;
	struct tally t = {0};
	uint32_t version = 0;

	(void)state;
	fprintf(stderr, "seed %#llx (RCP_TEST_SEED, RCP_TEST_ROUNDS)\n", (unsigned long long)seed);
	for (unsigned i = 0; i < rounds; i++) {
		round_of(i, &version, &seed, &t);
		int dir = here();

		if (i % 10 == 9) { /* a last run that nobody kills */
			uint8_t *data = version_of(version);
			struct rcp_sink *s = open_version(dir, version, i / 20 % 2);

			t.resumed += rcp_sink_resumed_bytes(s) > 0;
			finish(&s, data);
			free(data);
			unlink("f");
		}
		close(dir);
	}
	fprintf(stderr, "%u rounds: %u killed, %u done, %u taken up again\n", rounds, t.kills,
		t.done, t.resumed);
	assert_true(rounds < 200 || (t.kills > 20 && t.resumed > 0));
}

int main(void)
{
	/* Hundreds of syncs: neither kill -9 nor the model of a power cut needs a real disk. */
	if (access("/dev/shm", W_OK) == 0)
		setenv("TMPDIR", "/dev/shm", 0);
	const struct CMUnitTest tests[] = {
		TMP_TEST(claims_come_back),
		TMP_TEST(many_claims_at_once),
		TMP_TEST(every_field_is_identity),
		TMP_TEST(cut_anywhere),
		TMP_TEST(flip_any_bit),
		TMP_TEST(old_records_behind_a_new_header),
		TMP_TEST(an_index_beyond_the_file),
		TMP_TEST(strangers_are_not_read),
		TMP_TEST(a_second_run_goes_on),
		TMP_TEST(a_claim_is_not_trusted),
		TMP_TEST(another_version_starts_over),
		TMP_TEST(no_resume_starts_over),
		TMP_TEST(a_journal_without_a_file),
		TMP_TEST(sparse_resume_leaves_no_old_bytes),
		TMP_TEST(killed_at_any_point),
	};

	return cmocka_run_group_tests(tests, tmp_setup, tmp_teardown);
}
