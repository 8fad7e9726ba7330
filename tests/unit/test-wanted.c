/* What was asked for, and what is not: names, patterns, homes, directories without a name, lists. */
#include "session/wanted.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

struct ask {
	const char *paths[4];
	const char *path;
	const char *how; /* letters: p pairs, i inside, d a directory, + it is wanted */
};

static bool has(const struct ask *a, struct rcp_wanted *w)
{
	return rcp_wanted_has(w, (struct rcp_span){(const uint8_t *)a->path, strlen(a->path)}, strchr(a->how, 'i') != NULL, strchr(a->how, 'd') != NULL);
}

static struct rcp_wanted *make_in(const char *module, const char *const *paths, bool pairs)
{
	struct rcp_wanted *w = NULL;
	struct rcp_err err = {0};
	char *list[5] = {0};

	for (size_t i = 0; i < 4 && paths[i]; i++)
		list[i] = strdup(paths[i]);
	assert_int_equal(rcp_wanted_new(list, pairs, module, &err, &w), 0);
	for (size_t i = 0; i < 4; i++)
		free(list[i]);
	return w;
}

static struct rcp_wanted *make(const char *const *paths, bool pairs)
{
	return make_in(NULL, paths, pairs);
}

static void asked(void **state)
{
	static const struct ask asks[] = {
		{{"f"}, "f", "+"},
		{{"f"}, "g", ""},
		{{"f"}, "ff", ""},
		{{"f"}, "f/x", "+"}, /* with -r; without it the receiver refuses */
		{{"/a/b/f"}, "f", "+"},
		{{"/a/b/f"}, "b", ""},
		{{"/a/b/f//"}, "f", "+"},
		{{"d/f", "e/g"}, "g/x/y", "+"},
		{{"d/f", "e/g"}, "e", ""},
		{{"*.txt"}, "a.txt", "+"},
		{{"*.txt"}, "a.sh", ""},
		{{"*.txt"}, ".txt", ""}, /* as glob(3) */
		{{"*.txt"}, "*.txt", "+"},
		{{".*"}, ".bashrc", "+"},
		{{"d*/f"}, "f", "+"},
		{{"d*/f"}, "d1", ""},
		{{"[ab]"}, "b", "+"},
		{{"[ab]"}, "c", ""},
		{{"\\*x"}, "*x", "+"},
		{{"\\*x"}, "ax", ""},
		{{"d/."}, "x", "i+"},
		{{"d/."}, ".", "id+"},
		{{"d/."}, "x", ""},
		{{"d"}, "x", "i"},
		{{".."}, "x", "i+"},
		{{".."}, "x", ""},
		{{"/"}, "etc", "i+"},
		{{"/"}, "root", "+"}, /* where it is restricted to a directory */
		{{"/"}, ".ssh", ""},
		{{"."}, "x", "i+"},
		{{"."}, "x", ""},
		{{"./"}, "x", "+"},
		{{"./"}, "x", "i+"},
		{{""}, "x", "i"},
		{{""}, ".", "id"},
		{{""}, ".ssh", "d"},
		{{"~"}, ".bashrc", ""},
		{{"~"}, "x", "i"},
		{{"~ann"}, ".ssh/rc", ""},
		{{"~/x"}, "x", "+"},
		{{"~/x"}, "y", ""},
		{{"root", "n/m"}, "n/m", "p+"},
		{{"root", "n/m"}, "n/m/o", "p+"},
		{{"root", "n/m"}, "n", "pd+"},
		{{"root", "n/m"}, "n", "p"},
		{{"root", "n/m"}, "n/x", "p"},
		{{"root", "n/m"}, "root", "p"},
		{{"root", "/n//./m/"}, "n/m", "p+"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(asks) / sizeof(asks[0]); i++) {
		struct rcp_wanted *w = make(asks[i].paths, strchr(asks[i].how, 'p') != NULL);

		if (has(&asks[i], w) != (strchr(asks[i].how, '+') != NULL))
			fail_msg("%s of %s", asks[i].path, asks[i].paths[0]);
		rcp_wanted_free(&w);
		assert_null(w);
	}
}

/* A home directory has a name that only the other end knows: one. */
static void one_home(void **state)
{
	static const char *const homes[] = {"", "~", "~ann", "./"};

	(void)state;
	for (size_t i = 0; i < 4; i++) {
		const char *paths[4] = {homes[i], "f"};
		struct rcp_wanted *w = make(paths, false);
		struct ask f = {.path = "f", .how = ""}, ann = {.path = "ann/x", .how = ""};
		struct ask ann2 = {.path = "ann", .how = ""}, bob = {.path = "bob", .how = ""};

		assert_true(has(&f, w));
		assert_true(has(&ann, w));
		assert_true(has(&ann2, w));
		assert_false(has(&bob, w));
		rcp_wanted_free(&w);
	}
}

/* Names in a module begin at it, and it has its own. */
static void module(void **state)
{
	static const struct ask asks[] = {
		{{""}, "mod", "d+"},
		{{""}, "mod/x", "+"},
		{{""}, "x", ""},
		{{""}, ".ssh", "d"},
		{{""}, "mod", "id"},
		{{"/"}, "mod", "d+"},
		{{"/"}, "x", ""},
		{{"./"}, "mod", "d+"},
		{{"./"}, "x", "i"},
		{{"."}, "x", "i+"},
		{{"."}, "mod", "d"},
		{{"/."}, "x", "i+"},
		{{"a/."}, "x", "i+"},
		{{"a/./"}, "a", "d+"},
		{{"a/./"}, "x", "i"},
		{{"/a/b"}, "b", "+"},
		{{"/a/b"}, "mod", ""},
		{{"/*.c"}, "x.c", "+"},
		{{"/*.c"}, "x.h", ""},
		{{"~"}, "x", ""},
		{{"~"}, "~", "+"}, /* no home there */
	};

	(void)state;
	for (size_t i = 0; i < sizeof(asks) / sizeof(asks[0]); i++) {
		struct rcp_wanted *w = make_in("mod", asks[i].paths, false);

		if (has(&asks[i], w) != (strchr(asks[i].how, '+') != NULL))
			fail_msg("%s of %s", asks[i].path, asks[i].paths[0]);
		rcp_wanted_free(&w);
	}
}

static void some(void **state)
{
	static const char *const paths[4] = {"f"}, *const list[4] = {"root", "f"};
	struct rcp_wanted *w = make(paths, false), *l = make(list, true);

	(void)state;
	assert_true(rcp_wanted_some(w));
	assert_false(rcp_wanted_some(l));
	rcp_wanted_free(&w);
	rcp_wanted_free(&l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(asked),
		cmocka_unit_test(one_home),
		cmocka_unit_test(module),
		cmocka_unit_test(some),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
