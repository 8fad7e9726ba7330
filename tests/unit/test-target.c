/* file/target: scp's target rules; what is there already. */
#include "file/sink.h"

#include <errno.h>

#include "tmpdir.h"

/* What must come out: "dir" of the root, rename or NULL, shown; or words of the error. */
static void expect(const char *target, bool must_be_dir, bool source_is_dir, const char *root,
		   const char *rename, const char *shown)
{
	struct rcp_target t;
	struct rcp_err err = {0};
	struct stat a, b;
	char line[2048];

	if (rcp_target_resolve(target, NULL, must_be_dir, source_is_dir, &err, &t))
		fail_msg("%s: %s", target, rcp_err_format(&err, line, sizeof(line)));
	assert_int_equal(fstat(t.root, &a), 0);
	assert_int_equal(stat(root, &b), 0);
	assert_int_equal(a.st_ino, b.st_ino);
	if (rename)
		assert_string_equal(t.rename, rename);
	else
		assert_null(t.rename);
	assert_string_equal(t.shown, shown);
	rcp_target_free(&t);
	assert_int_equal(t.root, -1);
}

static void expect_error(const char *target, bool must_be_dir, bool source_is_dir,
			 const char *words)
{
	struct rcp_target t;
	struct rcp_err err = {0};
	char line[2048];

	assert_int_equal(rcp_target_resolve(target, NULL, must_be_dir, source_is_dir, &err, &t),
			 RCP_E_PARTIAL);
	rcp_err_format(&err, line, sizeof(line));
	if (!strstr(line, words) || !err.fix[0])
		fail_msg("\"%s\" has no \"%s\", or no remedy", line, words);
	assert_int_equal(t.root, -1);
	assert_null(t.rename);
	assert_null(t.shown);
}

static void one_file(void **state)
{
	(void)state;
	assert_int_equal(mkdir("dir", 0755), 0);
	tmp_text("file", "");
	assert_int_equal(symlink("file", "flink"), 0);
	assert_int_equal(symlink("dir", "dlink"), 0);
	expect("", false, false, ".", NULL, "");
	expect(".", false, false, ".", NULL, "");
	expect("..", false, false, "..", NULL, "../");
	expect("dir", false, false, "dir", NULL, "dir/");
	expect("dir///", false, false, "dir", NULL, "dir/");
	expect("dlink", false, false, "dir", NULL, "dlink/");
	expect("file", false, false, ".", "file", "");
	expect("flink", false, false, ".", "flink", ""); /* the link is replaced */
	expect("new", false, false, ".", "new", "");
	expect("./-new", false, false, ".", "-new", "./");
	expect("dir/new name", false, false, "dir", "new name", "dir/");
	expect("/new", false, false, "/", "new", "/");
	expect_error("none/new", false, false, "create that directory first");
	expect_error("new/", false, false, "must be a directory, and does not exist");
	expect_error("file/", false, false, "must be a directory, and is none");
}

static void directories_and_several(void **state)
{
	(void)state;
	tmp_text("file", "");
	assert_int_equal(mkdir("dir", 0755), 0);
	expect("dir", true, false, "dir", NULL, "dir/");
	expect("new", false, true, ".", "new", "");
	expect("new/", false, true, ".", "new", "");
	expect_error("file", true, false, "must be a directory, and is none");
	expect("file", false, true, ".", "file", ""); /* -r of a file; a directory is told so when it is made */
	expect_error("new", true, false, "must be a directory, and does not exist");
	assert_false(tmp_exists("new"));
	/* Several, recursive: made, one level. */
	struct rcp_target t;
	struct rcp_err err = {0};

	assert_int_equal(rcp_target_resolve("made", NULL, true, true, &err, &t), 0);
	assert_null(t.rename);
	rcp_target_free(&t);
	assert_true(tmp_exists("made"));
	assert_int_equal(rcp_target_resolve("no/made", NULL, true, true, &err, &t), RCP_E_PARTIAL);
}

static void home(void **state)
{
	char cwd[4096], shown[4200], *old = getenv("HOME") ? strdup(getenv("HOME")) : NULL;

	(void)state;
	assert_non_null(getcwd(cwd, sizeof(cwd)));
	assert_int_equal(mkdir("h", 0755), 0);
	snprintf(shown, sizeof(shown), "%s/h/", cwd);
	setenv("HOME", shown, 1);
	expect("~", false, false, "h", NULL, shown);
	expect("./~", false, false, ".", "~", "./");
	if (old)
		setenv("HOME", old, 1);
	free(old);
}

static void what_is_there(void **state)
{
	const struct rcp_file_id id = {.size = 3, .mtime_s = 1000, .mtime_ns = 123456789};
	int root = open(".", O_RDONLY | O_DIRECTORY);
	bool exists, same;
	struct stat st;
	static const struct {
		long sec, ns;
		bool same;
	} times[] = {{1000, 123456789, true}, {1000, 123456700, true}, {1000, 123456000, true},
		     {1000, 123000000, true}, {1000, 0, true},	       {1000, 123456788, false},
		     {1000, 1, false},	      {1001, 123456789, false}};

	(void)state;
	assert_int_equal(rcp_sink_lookup(root, "f", NULL, &id, &exists, &same, &st), 0);
	assert_false(exists || same);
	assert_int_equal(rcp_sink_lookup(root, "none/f", NULL, &id, &exists, &same, &st), 0);
	assert_false(exists || same);
	tmp_text("f", "abc");
	for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
		struct timespec ts[2] = {{0, 0}, {times[i].sec, times[i].ns}};

		assert_int_equal(utimensat(AT_FDCWD, "f", ts, 0), 0);
		assert_int_equal(rcp_sink_lookup(root, "f", NULL, &id, &exists, &same, &st), 0);
		assert_true(exists);
		assert_int_equal(same, times[i].same);
	}
	struct timespec ts[2] = {{0, 0}, {1000, 123456789}};

	tmp_text("f", "abcd");
	assert_int_equal(utimensat(AT_FDCWD, "f", ts, 0), 0);
	assert_int_equal(rcp_sink_lookup(root, "f", NULL, &id, &exists, &same, &st), 0);
	assert_true(exists && !same);
	assert_int_equal(symlink("gone", "link"), 0);
	assert_int_equal(rcp_sink_lookup(root, "link", NULL, &id, &exists, &same, &st), 0);
	assert_true(exists && !same);
	assert_int_equal(rcp_sink_lookup(root, "../f", NULL, &id, &exists, &same, &st), -1);
	close(root);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TMP_TEST(one_file),
		TMP_TEST(directories_and_several),
		TMP_TEST(home),
		TMP_TEST(what_is_there),
	};

	return cmocka_run_group_tests(tests, tmp_setup, tmp_teardown);
}
