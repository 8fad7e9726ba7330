/* librcp as other programs have it: the shared library and the public header, nothing else. */
#include "rcp/rcp.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char place[4096];

struct seen {
	struct rcp_copy *copy;
	int summaries, faults, files, code;
	bool cancel;
	uint64_t bytes;
	char status[16], transport[16], reason[256];
};

static void on_transport(void *arg, const struct rcp_transport_info *info)
{
	struct seen *s = arg;

	snprintf(s->transport, sizeof(s->transport), "%s", info->transport);
	if (s->cancel)
		rcp_copy_cancel(s->copy, RCP_EXIT_TERMINATED);
}

static void on_file(void *arg, const char *name, uint64_t bytes, const char *status)
{
	struct seen *s = arg;

	(void)name;
	s->files++;
	s->bytes += bytes;
	snprintf(s->status, sizeof(s->status), "%s", status);
}

static void on_fault(void *arg, const struct rcp_fault *fault)
{
	struct seen *s = arg;

	s->faults++;
	snprintf(s->reason, sizeof(s->reason), "%s", fault->reason);
}

static void on_summary(void *arg, const struct rcp_summary *summary)
{
	struct seen *s = arg;

	s->summaries++;
	s->code = summary->exit_code;
}

static void file_make(const char *path, unsigned seed, size_t size)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	for (size_t i = 0; i < size; i++)
		putc((int)((i * 2654435761u + seed) >> 7 & 0xff), f);
	assert_int_equal(fclose(f), 0);
}

static void assert_same(const char *a, const char *b)
{
	FILE *f = fopen(a, "r"), *g = fopen(b, "r");
	int c;

	assert_non_null(f);
	assert_non_null(g);
	do {
		c = getc(f);
		assert_int_equal(c, getc(g));
	} while (c != EOF);
	fclose(f);
	fclose(g);
}

static int copy(const char *const *sources, const char *target, struct seen *s)
{
	const struct rcp_watch watch = {.arg = s, .transport = on_transport, .file = on_file, .fault = on_fault,
					.summary = on_summary};
	struct rcp_options o;

	rcp_options_init(&o);
	o.sources = sources;
	o.target = target;
	int code = rcp_copy_new(&o, &watch, &s->copy);

	if (!code)
		code = rcp_copy_run(s->copy);
	rcp_copy_free(&s->copy);
	assert_null(s->copy);
	return code;
}

static void a_copy_and_its_events(void **state)
{
	struct seen s = {0};

	(void)state;
	file_make("a", 1, 3000000);
	assert_int_equal(copy((const char *const[]){"a", NULL}, "b", &s), RCP_EXIT_OK);
	assert_same("a", "b");
	assert_int_equal(s.summaries, 1);
	assert_int_equal(s.code, RCP_EXIT_OK);
	assert_int_equal(s.files, 1);
	assert_int_equal(s.bytes, 3000000);
	assert_int_equal(s.faults, 0);
	assert_string_equal(s.status, "copied");
	assert_string_equal(s.transport, "local");
}

static void what_fails_is_told(void **state)
{
	struct seen s = {0}, none = {0};

	(void)state;
	file_make("a", 2, 1000);
	mkdir("d", 0700);
	assert_int_equal(copy((const char *const[]){"a", "missing", NULL}, "d", &s), RCP_EXIT_PARTIAL);
	assert_same("a", "d/a");
	assert_int_equal(s.faults, 1);
	assert_string_equal(s.reason, "No such file or directory");
	assert_int_equal(s.code, RCP_EXIT_PARTIAL);
	assert_int_equal(copy((const char *const[]){NULL}, "d", &none), RCP_EXIT_USAGE);
	assert_int_equal(none.faults, 1);
	assert_int_equal(none.summaries, 0);
}

static void a_copy_is_cancelled(void **state)
{
	struct seen s = {.cancel = true};

	(void)state;
	file_make("a", 3, 20000000);
	assert_int_equal(copy((const char *const[]){"a", NULL}, "c", &s), RCP_EXIT_TERMINATED);
	assert_int_not_equal(access("c", F_OK), 0);
	assert_int_equal(s.summaries, 1);
	s.cancel = false;
	assert_int_equal(copy((const char *const[]){"a", NULL}, "c", &s), RCP_EXIT_OK);
	assert_same("a", "c");
}

static void *one_of_several(void *arg)
{
	const char *number = arg;
	char from[16], to[16];
	struct seen s = {0};

	snprintf(from, sizeof(from), "from%s", number);
	snprintf(to, sizeof(to), "to%s", number);
	return copy((const char *const[]){from, NULL}, to, &s) == RCP_EXIT_OK && s.files == 1 ? NULL : arg;
}

static void copies_in_several_threads(void **state)
{
	static char numbers[4][2] = {"0", "1", "2", "3"};
	pthread_t threads[4];

	(void)state;
	for (unsigned i = 0; i < 4; i++)
		file_make((char[]){'f', 'r', 'o', 'm', numbers[i][0], 0}, i, 2500000 + i);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, one_of_several, numbers[i]), 0);
	for (unsigned i = 0; i < 4; i++) {
		void *failed;

		assert_int_equal(pthread_join(threads[i], &failed), 0);
		assert_null(failed);
		assert_same((char[]){'f', 'r', 'o', 'm', numbers[i][0], 0}, (char[]){'t', 'o', numbers[i][0], 0});
	}
}

static void its_version(void **state)
{
	(void)state;
	assert_string_equal(rcp_version(), RCP_VERSION);
}

static int setup(void **state)
{
	(void)state;
	snprintf(place, sizeof(place), "library-XXXXXX");
	return mkdtemp(place) && chdir(place) == 0 ? 0 : -1;
}

static int teardown(void **state)
{
	char command[sizeof(place) + 16];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf '%s'", place);
	return chdir("..") == 0 && system(command) == 0 ? 0 : -1;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_copy_and_its_events),
		cmocka_unit_test(what_fails_is_told),
		cmocka_unit_test(a_copy_is_cancelled),
		cmocka_unit_test(copies_in_several_threads),
		cmocka_unit_test(its_version),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
