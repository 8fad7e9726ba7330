/* file/confine: a process that serves one directory opens nothing outside it, whatever it is asked for. */
#include "file/confine.h"

#include "file/part.h"
#include "file/sink.h"
#include "file/source.h"
#include "file/walk.h"

#include <errno.h>
#include <linux/openat2.h>
#include <sys/syscall.h>

#include "tmpdir.h"

/* outside/secret, and a module beside it that is full of ways to it; the process is confined to that. */
static void make_world(void)
{
	char absolute[4200];

	assert_int_equal(mkdir("outside", 0755), 0);
	tmp_text("outside/secret", "secret");
	assert_int_equal(mkdir("mod", 0755), 0);
	assert_int_equal(mkdir("mod/d", 0755), 0);
	tmp_text("mod/d/f", "inside");
	tmp_text("mod/g", "too");
	assert_int_equal(symlink("../outside", "mod/up"), 0);
	assert_int_equal(symlink("../outside/secret", "mod/end"), 0);
	assert_int_equal(symlink("/etc", "mod/abs"), 0);
	assert_int_equal(symlink("../../mod/d/f", "mod/d/around"), 0); /* out and in again */
	assert_int_equal(symlink("../g", "mod/d/within"), 0);
	assert_non_null(realpath("mod/d", absolute));
	assert_int_equal(symlink(absolute, "mod/absin"), 0);
	rcp_confine(open("mod", O_RDONLY | O_DIRECTORY | O_CLOEXEC), "mod", "the module");
	assert_true(rcp_confined());
}

static int fresh(void **state)
{
	if (tmp_fresh(state))
		return -1;
	make_world();
	return 0;
}

static int leave(void **state)
{
	(void)state;
	rcp_confine(-1, NULL, NULL);
	return 0;
}

static void paths_of_a_peer(void **state)
{
	static const struct {
		const char *path, *want;
	} t[] = {
		{"", "."},	  {"/", "."},	      {".", "./."},	{"./", "."},
		{"/.", "./."},   {"a/.", "a/."},   {"/a//.", "a/."},  {"a", "a"},	  {"/a", "a"},	      {"//a/./b//", "a/b/"}, {"a/b", "a/b"},
		{"..", NULL},	  {"a/../b", NULL},   {"/..", NULL},	{"a/..", NULL},
		{"...", "..."},	  {"~/x", "~/x"},     {"/etc/passwd", "etc/passwd"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		struct rcp_err err = {0};
		char *got = rcp_confine_path(t[i].path, &err);

		if (t[i].want)
			assert_string_equal(got, t[i].want);
		else
			assert_null(got);
		assert_int_equal(rcp_err_is(&err), !t[i].want);
		free(got);
	}
}

/* Links inside the module are followed by openat2 alone (see test-beneath): without it there is nothing to compare with. */
static bool no_openat2(void)
{
	struct open_how how = {.flags = O_PATH};
	int fd = (int)syscall(SYS_openat2, AT_FDCWD, ".", &how, sizeof(how));

	if (fd >= 0)
		close(fd);
	return fd < 0;
}

static void nothing_outside_opens(void **state)
{
	static const char *const out[] = {"up/secret", "end", "abs/passwd", "../outside/secret", "/etc/passwd",
					  "d/around", "absin/f", "d/../../outside/secret"};
	static const char *const in[] = {"d/f", "g", "d/within"};
	struct rcp_source *s;
	struct stat st;

	(void)state;
	if (no_openat2())
		TMP_SKIP("no openat2 here");
	for (size_t i = 0; i < sizeof(out) / sizeof(out[0]); i++) {
		struct rcp_err err = {0};

		assert_int_not_equal(rcp_source_open(out[i], false, NULL, &err, &s), 0);
		assert_int_equal(err.sys_errno, EXDEV);
		assert_non_null(strstr(rcp_err_reason(&err), "out of the module"));
		assert_int_equal(rcp_place_stat(AT_FDCWD, out[i], out[i], true, &st), -1);
		assert_int_equal(errno, EXDEV);
	}
	for (size_t i = 0; i < sizeof(in) / sizeof(in[0]); i++) {
		struct rcp_err err = {0};

		assert_int_equal(rcp_source_open(in[i], false, NULL, &err, &s), 0);
		rcp_source_close(&s);
	}
}

/* What the walk finds, as "path path ..."; errors as "!object". */
static const char *walk_all(const char *path, const struct rcp_walk_options *o)
{
	static char out[4096];
	const char *const paths[] = {path, NULL};
	struct rcp_err err = {0};
	enum rcp_severity sev;
	struct rcp_walk_item item;
	struct rcp_walk *w;
	size_t at = 0;
	int rc;

	assert_int_equal(rcp_walk_new(paths, o, &err, &w), 0);
	out[0] = 0;
	while ((rc = rcp_walk_next(w, &item, &err, &sev))) {
		if (rc < 0)
			at += (size_t)snprintf(out + at, sizeof(out) - at, "!%s ", err.object);
		else if (item.entry.type != RCP_ENTRY_DIR_END)
			at += (size_t)snprintf(out + at, sizeof(out) - at, "%.*s ", (int)item.entry.path.len,
					       (const char *)item.entry.path.data);
		err = (struct rcp_err){0};
	}
	rcp_walk_free(&w);
	return out;
}

static void the_walk_stays_inside(void **state)
{
	const struct rcp_walk_options r = {.recursive = true, .globs = true};
	const struct rcp_walk_options a = {.recursive = true, .archive = true};
	const struct rcp_walk_options pairs = {.recursive = true, .pairs = true, .root = "."};

	(void)state;
	if (no_openat2())
		TMP_SKIP("no openat2 here");
	assert_string_equal(walk_all(".", &r), "mod !./abs !./absin mod/d !./d/around mod/d/f mod/d/within !./end mod/g "
					       "!./up ");
	assert_string_equal(walk_all("", &r), walk_all(".", &r));
	/* Symlinks as such say only where they lead. */
	assert_string_equal(walk_all(".", &a), "mod mod/abs mod/absin mod/d mod/d/around mod/d/f mod/d/within "
					       "mod/end mod/g mod/up ");
	assert_string_equal(walk_all("d/", &r), "d !d/around d/f d/within ");
	assert_string_equal(walk_all("up/", &a), "!up ");
	assert_string_equal(walk_all("../outside", &r), "!../outside ");
	assert_string_equal(walk_all("/etc", &r), "!/etc ");
	assert_string_equal(walk_all("~", &r), "!~ ");
	assert_string_equal(walk_all("up/secret", &pairs), "!./up ");
	assert_string_equal(walk_all("d/f", &pairs), "d d/f ");
}

static void patterns_see_the_inside_only(void **state)
{
	const struct rcp_walk_options r = {.globs = true};

	(void)state;
	assert_string_equal(walk_all("[g]*", &r), "g ");
	assert_string_equal(walk_all("d/f*", &r), "f ");
	assert_string_equal(walk_all("*/f", &r), "f ");
	assert_string_equal(walk_all("up/*", &r), "!up/* ");
	assert_string_equal(walk_all("../out*/*", &r), "!../out*/* ");
	assert_string_equal(walk_all("/et*/passw*", &r), "!/et*/passw* ");
}

static void targets_stay_inside(void **state)
{
	static const char *const out[] = {"up", "up/new", "../outside", "/tmp", "abs/new", "absin/new"};
	struct rcp_target t;
	struct stat mod, root;

	(void)state;
	if (no_openat2())
		TMP_SKIP("no openat2 here");
	for (size_t i = 0; i < sizeof(out) / sizeof(out[0]); i++) {
		struct rcp_err err = {0};

		assert_int_not_equal(rcp_target_resolve(out[i], "src", false, false, &err, &t), 0);
		assert_int_equal(err.sys_errno, EXDEV);
	}
	struct rcp_err err = {0};

	assert_int_equal(rcp_target_resolve(".", "src", false, false, &err, &t), 0);
	assert_int_equal(stat("mod", &mod), 0);
	assert_int_equal(fstat(t.root, &root), 0);
	assert_int_equal(mod.st_ino, root.st_ino);
	rcp_target_free(&t);
	assert_int_equal(rcp_target_resolve("made", NULL, true, true, &err, &t), 0);
	rcp_target_free(&t);
	assert_true(tmp_exists("mod/made"));
	assert_int_not_equal(rcp_place_mkdir("up/made", 0755), 0);
	assert_false(tmp_exists("outside/made"));
}

/* A link at a target's place is replaced, wherever it leads: else it would tell what is there. */
static void links_tell_nothing(void **state)
{
	static const char *const links[] = {"up", "end", "gone"};
	int root = open("mod", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	(void)state;
	assert_int_equal(symlink("/nowhere/at/all", "mod/gone"), 0);
	for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++) {
		struct rcp_part part;
		struct rcp_err err = {0};

		assert_int_equal(rcp_part_locate(root, links[i], links[i], NULL, &err, &part), 0);
		assert_int_equal(rcp_part_check_target(&part, &err), 0);
		rcp_part_close(&part);
	}
	close(root);
}

/* By whatever way: a path of over 4096 bytes, which /proc does not tell, and a name that is no more. */
static void hidden(void **state)
{
	char name[251];
	int dir = open("mod", O_PATH | O_DIRECTORY), fd;

	(void)state;
	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = 0;
	tmp_text("mod/.f.rcp-part", "half");
	tmp_text("mod/f", "whole");
	assert_true(rcp_place_hidden(fd = open("mod/.f.rcp-part", O_RDONLY)));
	assert_int_equal(unlink("mod/.f.rcp-part"), 0);
	assert_true(rcp_place_hidden(fd));
	close(fd);
	assert_false(rcp_place_hidden(fd = open("mod/f", O_RDONLY)));
	assert_int_equal(unlink("mod/f"), 0);
	assert_false(rcp_place_hidden(fd));
	close(fd);
	for (int i = 0; i < 17; i++) {
		assert_int_equal(mkdirat(dir, name, 0755), 0);
		fd = openat(dir, name, O_PATH | O_DIRECTORY);
		close(dir);
		dir = fd;
	}
	assert_true((fd = openat(dir, ".f.rcp-part", O_RDWR | O_CREAT, 0600)) >= 0);
	assert_true(rcp_place_hidden(fd));
	close(fd);
	close(dir);
}

#define CONFINED(f) cmocka_unit_test_setup_teardown(f, fresh, leave)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CONFINED(paths_of_a_peer),
		CONFINED(nothing_outside_opens),
		CONFINED(the_walk_stays_inside),
		CONFINED(patterns_see_the_inside_only),
		CONFINED(targets_stay_inside),
		CONFINED(links_tell_nothing),
		CONFINED(hidden),
	};

	return cmocka_run_group_tests(tests, tmp_setup, tmp_teardown);
}
