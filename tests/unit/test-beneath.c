/* file/beneath: names from a peer, and the directory they stay in. */
#include "file/beneath.h"

#include "base/clock.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#include "tmpdir.h"

static void names_are_refused(void **state)
{
	static const char *const good[] = {"a",	  "a/b/c", ".a",     "..a",
					   "a..", "...",   "a b/\n", "\xff/-x"};
	static const char *const bad[] = {"",	"/",   "/a",   "a/",   "a//b", ".",
					  "..", "a/.", "a/..", "../a", "./a",  "a/../b"};
	char longest[5000];

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		assert_null(rcp_path_refuse(good[i], strlen(good[i])));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_non_null(rcp_path_refuse(bad[i], strlen(bad[i])));
	assert_non_null(rcp_path_refuse("a\0b", 3));
	memset(longest, 'x', sizeof(longest));
	assert_null(rcp_path_refuse(longest, 255));
	assert_non_null(rcp_path_refuse(longest, 256));
	for (size_t i = 1; i < sizeof(longest); i += 2)
		longest[i] = '/';
	assert_null(rcp_path_refuse(longest, 4095));
	assert_non_null(rcp_path_refuse(longest, 4097));
}

/* root/ has ways out; secret is outside. */
static int make_root(void)
{
	tmp_text("secret", "s");
	assert_int_equal(mkdir("root", 0755), 0);
	assert_int_equal(mkdir("root/dir", 0755), 0);
	tmp_text("root/dir/file", "f");
	assert_int_equal(symlink("../secret", "root/up"), 0);
	assert_int_equal(symlink("..", "root/updir"), 0);
	assert_int_equal(symlink("/etc", "root/abs"), 0);
	assert_int_equal(symlink("/proc/self/cwd", "root/magic"), 0);
	assert_int_equal(symlink("dir", "root/inside"), 0);
	int root = open("root", O_PATH | O_DIRECTORY | O_CLOEXEC);

	assert_true(root >= 0);
	return root;
}

typedef int (*opener)(int root, const char *path, int flags, mode_t mode);

static void nothing_leaves(opener open_it)
{
	static const char *const out[] = {
		"up",	     "updir/secret", "abs/passwd",	"magic/secret",
		"../secret", "/etc/passwd",  "dir/../../secret",
		"..",	     "./..",	     "/."};
	static const char *const dots[] = {".", "./.", "dir/.", "./dir"};
	int root = make_root(), fd;

	for (size_t i = 0; i < sizeof(out) / sizeof(out[0]); i++) {
		fd = open_it(root, out[i], O_RDONLY, 0);
		assert_int_equal(fd, -1);
		assert_true(errno == EXDEV || errno == ELOOP || errno == ENOTDIR);
	}
	for (size_t i = 0; i < sizeof(dots) / sizeof(dots[0]); i++) {
		fd = open_it(root, dots[i], O_RDONLY | O_DIRECTORY, 0);
		assert_true(fd >= 0);
		close(fd);
	}
	fd = open_it(root, "./dir/./file", O_RDONLY, 0);
	assert_true(fd >= 0);
	close(fd);
	fd = open_it(root, "dir/file", O_RDONLY, 0);
	assert_true(fd >= 0);
	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	close(fd);
	fd = open_it(root, "dir/new", O_WRONLY | O_CREAT | O_EXCL, 0600);
	assert_true(fd >= 0);
	close(fd);
	assert_true(tmp_exists("root/dir/new"));
	/* Creating through a link that leads out. */
	assert_int_equal(open_it(root, "updir/made", O_WRONLY | O_CREAT, 0600), -1);
	assert_false(tmp_exists("made"));
	close(root);
}

static void openat2_stays_beneath(void **state)
{
	(void)state;
	nothing_leaves(rcp_beneath_open);
}

static void the_fallback_stays_beneath(void **state)
{
	(void)state;
	nothing_leaves(rcp_beneath_walk);
}

static void links_inside_are_followed_by_openat2_alone(void **state)
{
	int root = make_root(), fd = rcp_beneath_open(root, "inside/file", O_RDONLY, 0);

	(void)state;
	if (fd < 0) {
		close(root);
		TMP_SKIP("no openat2 here (%s)", strerror(errno));
	}
	close(fd);
	assert_int_equal(rcp_beneath_walk(root, "inside/file", O_RDONLY, 0), -1);
	close(root);
}

/* root/x is a directory one moment and a symlink that leads out the next. */
static void *swap_it(void *arg)
{
	atomic_bool *stop = arg;

	while (!atomic_load(stop)) {
		rename("root/x", "root/was");
		rename("root/out", "root/x");
		rename("root/x", "root/out");
		rename("root/was", "root/x");
	}
	return NULL;
}

static unsigned create_while_swapped(opener open_it, int root)
{
	uint64_t end = rcp_now_ns() + 20 * RCP_SEC;
	unsigned made = 0;
	char name[32];

	for (unsigned i = 0; (i < 5000 || !made) && rcp_now_ns() < end; i++) {
		snprintf(name, sizeof(name), "x/%u", i % 100);
		int fd = open_it(root, name, O_WRONLY | O_CREAT, 0600);

		made += fd >= 0;
		if (fd >= 0)
			close(fd);
	}
	return made;
}

static void a_link_put_there_meanwhile(void **state)
{
	static const opener openers[] = {rcp_beneath_open, rcp_beneath_walk};
	atomic_bool stop = false;
	pthread_t thread;
	int root = make_root();

	(void)state;
	assert_int_equal(mkdir("away", 0755), 0);
	assert_int_equal(mkdir("root/x", 0755), 0);
	assert_int_equal(symlink("../away", "root/out"), 0);
	assert_int_equal(pthread_create(&thread, NULL, swap_it, &stop), 0);
	for (size_t i = 0; i < 2; i++)
		assert_true(create_while_swapped(openers[i], root) > 0);
	atomic_store(&stop, true);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(tmp_count("away"), 0);
	close(root);
}

static void parents(void **state)
{
	static const char one[] = "one", deep[] = "dir/file";
	int root = make_root(), dir;
	const char *leaf;
	struct stat a, b;

	(void)state;
	dir = rcp_beneath_parent(root, one, &leaf);
	assert_true(dir >= 0 && dir != root);
	assert_ptr_equal(leaf, one);
	close(dir);
	dir = rcp_beneath_parent(root, deep, &leaf);
	assert_ptr_equal(leaf, deep + 4);
	assert_int_equal(fstat(dir, &a), 0);
	assert_int_equal(stat("root/dir", &b), 0);
	assert_int_equal(a.st_ino, b.st_ino);
	close(dir);
	assert_int_equal(rcp_beneath_parent(root, "none/x", &leaf), -1);
	assert_int_equal(errno, ENOENT);
	assert_int_equal(rcp_beneath_parent(root, "updir/x", &leaf), -1);
	assert_int_equal(rcp_beneath_parent(root, "dir/file/x", &leaf), -1);
	assert_int_equal(errno, ENOTDIR);
	close(root);
}

static void a_kept_directory(void **state)
{
	int root = make_root(), first;
	struct rcp_kept_dir kept;
	struct stat a, b;
	const char *leaf;

	(void)state;
	rcp_kept_init(&kept);
	first = rcp_kept_parent(&kept, root, "dir/file", &leaf);
	assert_true(first >= 0);
	assert_string_equal(leaf, "file");
	assert_int_equal(rcp_kept_parent(&kept, root, "dir/other", &leaf), first);
	assert_string_equal(leaf, "other");
	/* Another directory whose name begins the same, and the root itself. */
	assert_int_equal(rcp_kept_parent(&kept, root, "di/x", &leaf), -1);
	assert_int_equal(errno, ENOENT);
	assert_true(rcp_kept_parent(&kept, root, "x", &leaf) >= 0);
	assert_int_equal(fstat(kept.fd, &a), 0);
	assert_int_equal(fstat(root, &b), 0);
	assert_int_equal(a.st_ino, b.st_ino);
	assert_true(rcp_kept_parent(&kept, root, "dir/x", &leaf) >= 0);
	assert_int_equal(rcp_kept_parent(&kept, root, "updir/x", &leaf), -1);
	assert_int_equal(kept.fd, -1);
	rcp_kept_close(&kept);
	close(root);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TMP_TEST(names_are_refused),
		TMP_TEST(openat2_stays_beneath),
		TMP_TEST(the_fallback_stays_beneath),
		TMP_TEST(links_inside_are_followed_by_openat2_alone),
		TMP_TEST(a_link_put_there_meanwhile),
		TMP_TEST(parents),
		TMP_TEST(a_kept_directory),
	};

	return cmocka_run_group_tests(tests, tmp_setup, tmp_teardown);
}
