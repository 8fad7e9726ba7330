/* file/exclude: --exclude patterns. */
#include "file/exclude.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void globs(void **state)
{
	static const struct {
		const char *pattern, *text;
		bool match;
	} of[] = {
		{"", "", true},
		{"a", "a", true},
		{"a", "b", false},
		{"a", "", false},
		{"", "a", false},
		{"*", "", true},
		{"*", "abc", true},
		{"*", "a/b", false},
		{"*.o", "x.o", true},
		{"*.o", "x.o.c", false},
		{"a*b*c", "aXbYbZc", true},
		{"a*b*c", "aXbY", false},
		{"a*/b", "ax/b", true},
		{"a*b", "a/b", false},
		{"?", "x", true},
		{"?", "/", false},
		{"?", "", false},
		{"?", "\xc3\xa9", true},
		{"?\?", "\xc3\xa9", false},
		{"[a-c]", "b", true},
		{"[[:alpha:]]", "b", true},
		{"[[:alpha:]]", "1", false},
		{"[![:alpha:]]", "b", false},
		{"[[:digit:]x]", "x", true},
		{"[[:digit:]-]", "-", true},
		{"[[:upper:][:digit:]]", "7", true},
		{"[[:upper:][:digit:]]", "b", false},
		{"[[:alpha:]", "[", false},
		{"[[:alpha:]", ":", false},
		{"[!a-c]", "b", false},
		{"[^a-c]", "d", true},
		{"[]x]", "]", true},
		{"[a-]", "-", true},
		{"[\\]]", "]", true},
		{"[", "[", true},
		{"[a", "[a", true},
		{"a[!x]b", "a/b", false},
		{"\\*", "*", true},
		{"\\*", "x", false},
		{"\\", "\\", true},
		{"a/**/b", "a/b", true},
		{"a/**/b", "a/x/b", true},
		{"a/**/b", "a/x/y/b", true},
		{"a/**/b", "a/xb", false},
		{"a/**/b", "ab", false},
		{"**/b", "b", true},
		{"**/b", "x/y/b", true},
		{"**/b", "x/yb", false},
		{"a/**", "a/x/y", true},
		{"a/**", "a", false},
		{"a**z", "a/b/z", true},
		{"**/*.c", "x/y.c", true},
		{"a/**/b/**/c", "a/b/b/q/c", true},
		{"a/**/b*d", "a/bc/bd", true},
	};
	char deep[2001];

	(void)state;
	for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++) {
		if (rcp_glob_match(of[i].pattern, of[i].text) != of[i].match)
			fail_msg("\"%s\" \"%s\": not %d", of[i].pattern, of[i].text, of[i].match);
	}
	/* What takes forever where every star is tried again. */
	memset(deep, 'a', 2000);
	deep[2000] = 0;
	assert_false(rcp_glob_match("*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b", deep));
	assert_false(rcp_glob_match("**a**a**a**a**a**a**a**a**a**a**a**a**b", deep));
	assert_false(rcp_glob_match("**?*a[aaaaaaaaaaaaaaaaaaaaaaaaaaa]*[aaaaaaaaaaaaaaaaa]*b", deep));
	char open[2001] = "**?*";

	memset(open + 4, '[', 1996);
	memset(deep, '[', 1990);
	assert_false(rcp_glob_match(open, deep));
}

static void patterns(void **state)
{
	static const char *const list[] = {"*.o",     "/build", "tmp/", "docs/*.pdf",
					   "!keep.o", "\\!odd", NULL};
	static const struct {
		const char *below, *name;
		bool is_dir, excluded;
	} of[] = {
		{"a.o", "a.o", false, true},
		{"x/y/a.o", "a.o", false, true},
		{"x/keep.o", "keep.o", false, false},
		{"build", "build", true, true},
		{"x/build", "build", true, false},
		{"tmp", "tmp", true, true},
		{"x/tmp", "tmp", true, true},
		{"tmp", "tmp", false, false},
		{"docs/a.pdf", "a.pdf", false, true},
		{"x/docs/a.pdf", "a.pdf", false, false},
		{"!odd", "!odd", false, true},
		{"", "a.o", false, true}, /* an argument itself */
		{"", "build", true, false},
		{"plain", "plain", false, false},
	};
	struct rcp_excludes *e;
	struct rcp_err err = {0};

	(void)state;
	assert_int_equal(rcp_excludes_new(list, &err, &e), 0);
	for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++) {
		if (rcp_excluded(e, of[i].below, of[i].name, of[i].is_dir) != of[i].excluded)
			fail_msg("%s: not %d", of[i].name, of[i].excluded);
	}
	rcp_excludes_free(&e);
	assert_int_equal(rcp_excludes_new(NULL, &err, &e), 0);
	assert_null(e);
	assert_false(rcp_excluded(e, "a.o", "a.o", false));
	rcp_excludes_free(&e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(globs),
		cmocka_unit_test(patterns),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
