/* The list of completed files: what is on it, what takes a file off, and lists that can't be used. */
#include "file/done.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#include "tmpdir.h"

static int root = -1;

static struct rcp_done *begin(void)
{
	struct rcp_done *d = rcp_done_new(root, "host:src", NULL);

	assert_non_null(d);
	return d;
}

static struct rcp_file_id id_of(uint64_t ino)
{
	return (struct rcp_file_id){.dev = 7, .ino = ino, .size = 3, .mtime_s = 100, .mtime_ns = 5, .ctime = 9};
}

static bool has(struct rcp_done *d, const char *path, const struct rcp_file_id *id)
{
	struct rcp_kept_dir kept;

	rcp_kept_init(&kept);
	bool rc = rcp_done_has(d, path, id, &kept);

	rcp_kept_close(&kept);
	return rc;
}

static void add(struct rcp_done *d, const char *path, uint64_t ino)
{
	struct rcp_file_id id = id_of(ino);
	int fd = open(path, O_RDONLY);
	struct stat nameless;

	assert_true(fd >= 0);
	rcp_done_look(d, fd, &nameless);
	rcp_done_add(d, path, &id, fd, &nameless);
	close(fd);
}

/* The list's name, or NULL: there is none. */
static const char *list_name(void)
{
	static char name[300];
	DIR *dir = opendir(".");
	const char *found = NULL;

	assert_non_null(dir);
	for (struct dirent *e; (e = readdir(dir));) {
		if (strstr(e->d_name, ".rcp-done")) {
			assert_null(found);
			snprintf(name, sizeof(name), "%s", e->d_name);
			found = name;
		}
	}
	closedir(dir);
	return found;
}

/* So many that the list is written. */
static void fill(struct rcp_done *d)
{
	tmp_text("other", "");
	for (uint64_t i = 0; i < 2048; i++)
		add(d, "other", 1000 + i);
}

static void make_list(void)
{
	struct rcp_done *d = begin();

	tmp_text("a", "aaa");
	tmp_text("b", "bbb");
	assert_int_equal(mkdir("d", 0755), 0);
	tmp_text("d/a", "aaa");
	add(d, "a", 1);
	rcp_done_free(&d, false);
	assert_null(list_name()); /* a copy of a moment */
	d = begin();
	fill(d);
	add(d, "a", 1);
	add(d, "b", 2);
	add(d, "d/a", 3);
	rcp_done_free(&d, false);
	assert_null(d);
	assert_non_null(list_name());
}

static void what_is_on_it(void **state)
{
	struct rcp_file_id id = id_of(1), two = id_of(2), three = id_of(3);

	(void)state;
	make_list();
	struct rcp_done *d = begin();

	assert_true(has(d, "a", &id));
	assert_true(has(d, "b", &two));
	assert_true(has(d, "d/a", &three));
	assert_false(has(d, "d/a", &id)); /* the same content elsewhere */
	assert_false(has(d, "none", &id));
	for (int i = 0; i < 6; i++) { /* another version of the source, whatever tells it */
		struct rcp_file_id other = id;

		other.dev += i == 0;
		other.ino += i == 1;
		other.size += i == 2;
		other.mtime_s += i == 3;
		other.mtime_ns += i == 4;
		other.ctime += i == 5;
		assert_false(has(d, "a", &other));
	}
	rcp_done_free(&d, true);
	assert_null(list_name());
	d = begin();
	assert_false(has(d, "a", &id));
	rcp_done_free(&d, false);
	assert_null(list_name()); /* nothing was done: none is made */
}

static void set_time(const char *path, long ns)
{
	struct timespec t[2] = {{.tv_sec = 50}, {.tv_sec = 50, .tv_nsec = ns}};

	assert_int_equal(utimensat(AT_FDCWD, path, t, 0), 0);
}

static void what_takes_a_file_off(void **state)
{
	struct rcp_file_id id = id_of(1);
	struct rcp_done *d = begin();

	(void)state;
	tmp_text("a", "aaa");
	set_time("a", 1);
	fill(d);
	add(d, "a", 1);
	rcp_done_free(&d, false);
	d = begin();
	assert_true(has(d, "a", &id));
	tmp_text("a", "AAA"); /* written to, and its time put back */
	set_time("a", 1);
	assert_false(has(d, "a", &id));
	tmp_text("new", "aaa"); /* in its place */
	set_time("new", 1);
	assert_int_equal(rename("new", "a"), 0);
	assert_false(has(d, "a", &id));
	assert_int_equal(unlink("a"), 0);
	assert_false(has(d, "a", &id));
	assert_int_equal(symlink("b", "a"), 0);
	assert_false(has(d, "a", &id));
	rcp_done_free(&d, true);
}

/* A name is there before the list knows of the file: who is as quick as that is seen, too. */
static void written_to_at_once(void **state)
{
	struct rcp_file_id id = id_of(1);
	struct rcp_done *d = begin();
	struct stat nameless;

	(void)state;
	tmp_text("a", "aaa");
	set_time("a", 1);
	int fd = open("a", O_RDWR);

	rcp_done_look(d, fd, &nameless);
	assert_int_equal(pwrite(fd, "X", 1, 0), 1);
	rcp_done_add(d, "a", &id, fd, &nameless);
	close(fd);
	fill(d);
	rcp_done_free(&d, false);
	d = begin();
	assert_false(has(d, "a", &id));
	rcp_done_free(&d, true);
}

/* Each run adds to what the last one left; another copy's list is another file. */
static void runs_and_copies(void **state)
{
	struct rcp_file_id id = id_of(1), four = id_of(4);

	(void)state;
	make_list();
	struct rcp_done *d = begin(), *other = rcp_done_new(root, "host:src", "new"),
			*third = rcp_done_new(root, "host:else", NULL);

	tmp_text("e", "eee");
	add(d, "e", 4);
	assert_false(has(other, "a", &id));
	assert_false(has(third, "a", &id));
	rcp_done_free(&other, true);
	rcp_done_free(&third, true);
	rcp_done_free(&d, false);
	d = begin();
	assert_true(has(d, "a", &id));
	assert_true(has(d, "e", &four));
	rcp_done_free(&d, true);
}

/* 3000 files: the first 2048 are on disk before the end, as after kill -9. */
static void written_on_the_way(void **state)
{
	struct rcp_done *d = begin();
	struct rcp_file_id id = id_of(2047), late = id_of(2048);
	struct stat st;

	(void)state;
	tmp_text("a", "aaa");
	for (uint64_t i = 0; i < 3000; i++)
		add(d, "a", i);
	assert_int_equal(stat(list_name(), &st), 0);
	assert_int_equal(st.st_size, 32 + 16 * 2048);
	assert_int_equal(st.st_mode & 07777, 0600);
	int copy = open(list_name(), O_RDWR);
	char cut[32 + 16 * 2048];

	assert_int_equal(read(copy, cut, sizeof(cut)), sizeof(cut));
	close(copy);
	rcp_done_free(&d, false);
	tmp_write(list_name(), cut, sizeof(cut) - 3); /* torn */
	d = begin();
	id.ino = 2046;
	assert_true(has(d, "a", &id));
	id.ino = 2047;
	assert_false(has(d, "a", &id));
	assert_false(has(d, "a", &late));
	add(d, "a", 2048);
	rcp_done_free(&d, false);
	d = begin();
	assert_true(has(d, "a", &late)); /* where the torn one was */
	rcp_done_free(&d, true);
}

static void refuse(const char *why)
{
	struct rcp_file_id id = id_of(1);
	struct rcp_done *d = begin();

	if (has(d, "a", &id))
		fail_msg("used: %s", why);
	add(d, "a", 5);
	rcp_done_free(&d, true);
}

static void lists_that_cannot_be_used(void **state)
{
	char name[300];
	size_t len;

	(void)state;
	make_list();
	snprintf(name, sizeof(name), "%s", list_name());
	char *was = tmp_read(name, &len);
	int fd = open(name, O_RDONLY);

	assert_int_equal(flock(fd, LOCK_EX), 0);
	refuse("another rcp holds it");
	tmp_expect(name, was, len);
	close(fd);
	tmp_text(name, "a file of the user's that has this name");
	refuse("not a list");
	tmp_expect(name, "a file of the user's that has this name", 39);
	tmp_write(name, was, 20); /* cut off while it was made: goes, and another is made */
	struct rcp_done *d = begin();
	struct rcp_file_id id = id_of(1);

	assert_false(has(d, "a", &id));
	assert_null(list_name());
	fill(d);
	assert_non_null(list_name());
	rcp_done_free(&d, true);
	assert_null(list_name());
	tmp_write("elsewhere", was, len);
	assert_int_equal(symlink("elsewhere", name), 0);
	refuse("a symlink");
	tmp_expect("elsewhere", was, len);
	assert_int_equal(unlink(name), 0);
	assert_int_equal(mkfifo(name, 0600), 0);
	refuse("a FIFO");
	assert_int_equal(unlink(name), 0);
	if (geteuid() == 0) {
		tmp_write(name, was, len);
		assert_int_equal(chown(name, 4242, 4242), 0);
		refuse("another user's");
		tmp_expect(name, was, len);
	}
	free(was);
}

static int setup(void **state)
{
	int rc = tmp_fresh(state);

	root = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return rc || root < 0 ? -1 : 0;
}

static int teardown(void **state)
{
	(void)state;
	return close(root);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(what_is_on_it),	  CASE(what_takes_a_file_off),	 CASE(runs_and_copies),
		CASE(written_to_at_once),
		CASE(written_on_the_way), CASE(lists_that_cannot_be_used),
	};

	return cmocka_run_group_tests(tests, tmp_setup, tmp_teardown);
}
