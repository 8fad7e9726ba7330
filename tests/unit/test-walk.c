/* file/walk: arguments and trees made into entries. */
#include "file/walk.h"

#include "file/source.h"
#include "file/walk_int.h"

#include <dirent.h>
#include <errno.h>
#include <sys/resource.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include "tmpdir.h"

static struct rcp_walk *walk_new(const char *const *paths, const struct rcp_walk_options *o)
{
	struct rcp_err err = {0};
	struct rcp_walk *w;

	assert_int_equal(rcp_walk_new(paths, o, &err, &w), 0);
	return w;
}

static void add(char *out, size_t size, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void add(char *out, size_t size, const char *fmt, ...)
{
	size_t at = strlen(out);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(out + at, size - at, fmt, ap);
	va_end(ap);
}

/* "F path" "D path" "E path" "L path>to" "H path>first" "P" "C" "B" "S"; "! object: text" errors,
 * "? ..." warnings; one a line; * behind the letter for the user's own arguments. */
static const char *walk_all(const char *const *paths, const struct rcp_walk_options *o)
{
	static char out[1 << 20];
	static const char letter[] = "?FDLHPCBSE";
	struct rcp_walk *w = walk_new(paths, o);
	struct rcp_walk_item item;
	struct rcp_err err = {0};
	enum rcp_severity sev;
	int rc;

	out[0] = 0;
	while ((rc = rcp_walk_next(w, &item, &err, &sev))) {
		const struct rcp_rec_entry *e = &item.entry;

		if (rc < 0) {
			add(out, sizeof(out), "%c %s: %s\n",
			    sev == RCP_SEVERITY_WARNING ? '?' : '!', err.object,
			    rcp_err_reason(&err));
			err = (struct rcp_err){0};
			continue;
		}
		add(out, sizeof(out), "%c%s %.*s", letter[e->type],
		    e->flags & RCP_ENTRY_TOP ? "*" : "", (int)e->path.len,
		    (const char *)e->path.data);
		if (e->link.len)
			add(out, sizeof(out), ">%.*s", (int)e->link.len,
			    (const char *)e->link.data);
		add(out, sizeof(out), "\n");
	}
	rcp_walk_free(&w);
	assert_null(w);
	return out;
}

static void expect(const char *got, const char *want)
{
	if (strcmp(got, want))
		fail_msg("got:\n%swanted:\n%s", got, want);
}

static void make_tree(void)
{
	assert_int_equal(mkdir("top", 0755), 0);
	assert_int_equal(mkdir("top/b", 0755), 0);
	assert_int_equal(mkdir("top/empty", 0755), 0);
	tmp_text("top/a", "a");
	tmp_text("top/b/x\n\xff -y", "odd");
	tmp_text("top/z", "zz");
	tmp_text("file", "12345");
}

static void names_of_arguments(void **state)
{
	const struct rcp_walk_options r = {.recursive = true}, plain = {0};

	(void)state;
	make_tree();
	expect(walk_all((const char *[]){"file", "./top/a", "top//z", NULL}, &plain),
	       "F* file\nF* a\nF* z\n");
	expect(walk_all((const char *[]){"top/b/", NULL}, &r), "D* b\nF b/x\n\xff -y\nE* b\n");
	expect(walk_all((const char *[]){"top/empty", "none", "file", NULL}, &plain),
	       "! top/empty: not a regular file, but a directory\n! none: No such file or "
	       "directory\n"
	       "F* file\n");
	expect(walk_all((const char *[]){"file/", NULL}, &plain), "! file: Not a directory\n");
	expect(walk_all((const char *[]){"top/b/..", NULL}, &r),
	       "D* .\nF a\nD b\nF b/x\n\xff -y\nE b\nD empty\nE empty\nF z\nE* .\n");
	assert_int_equal(chdir("top/empty"), 0);
	expect(walk_all((const char *[]){".", NULL}, &r), "D* .\nE* .\n");
	expect(walk_all((const char *[]){"../b/.", "../b", NULL}, &r),
	       "D* .\nF x\n\xff -y\nE* .\nD* b\nF b/x\n\xff -y\nE* b\n");
}

static void arguments_that_meet(void **state)
{
	const char *const patterns[] = {"/left", NULL};
	const struct rcp_walk_options r = {.recursive = true, .excludes = patterns}, plain = {0};

	(void)state;
	make_tree();
	assert_int_equal(mkdir("o", 0755), 0);
	assert_int_equal(mkdir("o/top", 0755), 0);
	assert_int_equal(mkdir("o/b", 0755), 0);
	tmp_text("o/file", "other");
	tmp_text("o/top/a", "other");
	tmp_text("o/top/new", "other");
	tmp_text("o/top/left", "not copied");
	tmp_text("left", "copied");
	tmp_text("o/b/n", "other");
	expect(walk_all((const char *[]){"file", "o/file", "./file", NULL}, &plain),
	       "F* file\n! o/file: left out: what is copied from file has the same name there\n"
	       "? ./file: named twice: copied once\n");
	expect(walk_all((const char *[]){"top/", "o/top", NULL}, &r),
	       "D* top\nF top/a\nD top/b\nF top/b/x\n\xff -y\nE top/b\nD top/empty\nE top/empty\nF top/z\nE* top\n"
	       "D* top\n! o/top/a: left out: what is copied from top has the same name there\nF top/new\nE* top\n");
	/* The third is told whose it is, not who was left out before it: then two directories would seem to meet, too. */
	assert_int_equal(mkdir("p", 0755), 0);
	assert_int_equal(mkdir("p/file", 0755), 0);
	assert_int_equal(mkdir("q", 0755), 0);
	assert_int_equal(mkdir("q/file", 0755), 0);
	tmp_text("q/file/n", "other");
	expect(walk_all((const char *[]){"file", "o/file", "p/file", "q/file", NULL}, &r),
	       "F* file\n! o/file: left out: what is copied from file has the same name there\n"
	       "! p/file: left out: what is copied from file has the same name there\n"
	       "! q/file: left out: what is copied from file has the same name there\n");
	/* One by its name, the other by what is in it; what a pattern leaves out meets nothing. */
	expect(walk_all((const char *[]){"o/top/.", "top/b/", "top/a", "left", "top/b/.", "file", "top/b/..", NULL}, &r),
	       "D* .\nF a\nF new\nE* .\nD* b\nF b/x\n\xff -y\nE* b\n"
	       "! top/a: left out: what is copied from o/top/. has the same name there\n"
	       "F* left\nD* .\nF x\n\xff -y\nE* .\nF* file\n"
	       "D* .\n? top/b/../a: named twice: copied once\n"
	       "? top/b/../b: named twice: copied once\nD empty\nE empty\nF z\nE* .\n");
	const char *const dirs[] = {"b/", NULL};
	const struct rcp_walk_options nb = {.recursive = true, .excludes = dirs};

	tmp_text("o/top/b", "a file"); /* where the other one has a directory that is left out */
	expect(walk_all((const char *[]){"top/b/..", "o/top/.", NULL}, &nb),
	       "D* .\nF a\nD empty\nE empty\nF z\nE* .\nD* .\n"
	       "! o/top/./a: left out: what is copied from top/b/.. has the same name there\nF b\nF left\nF new\nE* .\n");
	expect(walk_all((const char *[]){"top/b", "o/b", "top/b", NULL}, &r),
	       "D* b\nF b/x\n\xff -y\nE* b\nD* b\nF b/n\nE* b\n? top/b: named twice: copied once\n");
}

static void listed_twice(void **state)
{
	const struct rcp_walk_options r = {.recursive = true, .pairs = true},
				      plain = {.pairs = true};

	(void)state;
	make_tree();
	expect(walk_all((const char *[]){"file", "top/z", "./top//z", "file", NULL}, &plain),
	       "F* file\nD* top\nF top/z\nE* top\n");
	expect(walk_all((const char *[]){"top/b", "top/b/x\n\xff -y", "top/a", "top", "top/z", NULL}, &r),
	       "D* top\nD top/b\nF top/b/x\n\xff -y\nE top/b\nF top/a\nE* top\n"
	       "D* top\nD top/empty\nE top/empty\nF top/z\nE* top\n");
	/* Only what the walk went past is done: not what is missing, nor what a file or a copied symlink hides. */
	const struct rcp_walk_options a = {.recursive = true, .pairs = true, .archive = true};

	assert_int_equal(symlink("top", "lnk"), 0);
	expect(walk_all((const char *[]){"top/b", "top/b/none", "file", "file/x", NULL}, &r),
	       "D* top\nD top/b\nF top/b/x\n\xff -y\nE top/b\nD top/b\n! ./top/b/none: No such file or directory\n"
	       "E top/b\nE* top\nF* file\n! ./file: Not a directory\n");
	expect(walk_all((const char *[]){"lnk", "lnk/a", NULL}, &a), "L* lnk>top\nD* lnk\nF lnk/a\nE* lnk\n");
}

static void inside_the_target(void **state)
{
	const char *const patterns[] = {"/a", ".", "sub/n", NULL};
	const struct rcp_walk_options o = {.recursive = true, .archive = true, .excludes = patterns};
	const char *args[] = {"top/.", NULL};
	struct rcp_walk_item item;
	enum rcp_severity severity;
	struct rcp_err err = {0};
	struct rcp_walk *w;

	(void)state;
	make_tree();
	assert_int_equal(mkdir("top/sub", 0755), 0);
	tmp_text("top/sub/n", "left out");
	assert_int_equal(link("top/z", "top/zz"), 0);
	expect(walk_all(args, &o), "D* .\nD b\nF b/x\n\xff -y\nE b\nD empty\nE empty\nD sub\nE sub\nF z\nH zz>z\nE* .\n");
	assert_int_equal(rcp_walk_new(args, &o, &err, &w), 0);
	while (rcp_walk_next(w, &item, &err, &severity) == 1)
		assert_true(item.entry.flags & RCP_ENTRY_INSIDE);
	assert_false(rcp_err_is(&err));
	rcp_walk_free(&w);
}

static void what_an_entry_says(void **state)
{
	const struct rcp_walk_options a = {.recursive = true, .archive = true};
	struct rcp_walk *w;
	struct rcp_walk_item item;
	struct rcp_err err = {0};
	enum rcp_severity sev;
	struct stat st;
	struct rcp_source *s;

	(void)state;
	tmp_text("f", "12345");
	assert_int_equal(chmod("f", 04751), 0);
	assert_int_equal(stat("f", &st), 0);
	bool xattrs = setxattr("f", "user.k", "v", 1, 0) == 0;

	w = walk_new((const char *[]){"f", NULL}, &a);
	assert_int_equal(rcp_walk_next(w, &item, &err, &sev), 1);
	assert_int_equal(item.entry.type, RCP_ENTRY_FILE);
	assert_int_equal(item.entry.mode, 04751);
	assert_int_equal(item.entry.size, 5);
	assert_int_equal(item.entry.mtime_s, st.st_mtim.tv_sec);
	assert_int_equal(item.entry.mtime_ns, st.st_mtim.tv_nsec);
	assert_int_equal(item.entry.uid, getuid());
	assert_int_equal(item.entry.ino, st.st_ino);
	assert_int_equal(item.entry.dev, st.st_dev);
	assert_int_equal(item.entry.flags, RCP_ENTRY_TOP);
	assert_string_equal(item.open_path, "f");
	assert_true(item.nofollow);
	if (getuid() == 0)
		assert_memory_equal(item.entry.user.data, "root", item.entry.user.len);
	assert_int_equal(item.entry.xattrs.len != 0, xattrs);
	/* The entry opens as the very file that was listed. */
	struct rcp_file_id id = {.dev = item.entry.dev,
				 .ino = item.entry.ino,
				 .size = item.entry.size,
				 .mtime_s = (int64_t)item.entry.mtime_s,
				 .mtime_ns = item.entry.mtime_ns};

	assert_int_equal(rcp_source_open(item.open_path, item.nofollow, &id, &err, &s), 0);
	rcp_source_close(&s);
	assert_int_equal(rcp_walk_next(w, &item, &err, &sev), 0);
	assert_int_equal(rcp_walk_next(w, &item, &err, &sev), 0);
	rcp_walk_free(&w);
}

static void a_directory_says_it_twice(void **state)
{
	const struct rcp_walk_options a = {.recursive = true, .archive = true};
	struct rcp_walk_item item;
	struct rcp_err err = {0};
	enum rcp_severity sev;
	uint8_t first[256];
	size_t len;

	(void)state;
	assert_int_equal(mkdir("d", 0751), 0);
	tmp_text("d/f", "");
	if (setxattr("d", "user.key", "value", 5, 0) < 0)
		TMP_SKIP("no user attributes on this file system (%s)", strerror(errno));
	struct rcp_walk *w = walk_new((const char *[]){"d", NULL}, &a);

	assert_int_equal(rcp_walk_next(w, &item, &err, &sev), 1);
	len = item.entry.xattrs.len;
	assert_true(len > 0 && len < sizeof(first));
	memcpy(first, item.entry.xattrs.data, len);
	assert_int_equal(rcp_walk_next(w, &item, &err, &sev), 1);
	assert_int_equal(rcp_walk_next(w, &item, &err, &sev), 1);
	assert_int_equal(item.entry.type, RCP_ENTRY_DIR_END);
	assert_int_equal(item.entry.mode, 0751);
	assert_int_equal(item.entry.xattrs.len, len);
	assert_memory_equal(item.entry.xattrs.data, first, len);
	assert_int_equal(rcp_walk_next(w, &item, &err, &sev), 0);
	rcp_walk_free(&w);
}

static void symlinks_and_loops(void **state)
{
	const struct rcp_walk_options r = {.recursive = true},
				      a = {.recursive = true, .archive = true};

	(void)state;
	assert_int_equal(mkdir("t", 0755), 0);
	assert_int_equal(mkdir("t/d", 0755), 0);
	tmp_text("t/d/f", "");
	assert_int_equal(symlink("..", "t/d/loop"), 0);
	assert_int_equal(symlink("nowhere", "t/gone"), 0);
	assert_int_equal(symlink("d/f", "t/link"), 0);
	assert_int_equal(symlink("t", "tlink"), 0);
	expect(walk_all((const char *[]){"t", NULL}, &r),
	       "D* t\nD t/d\nF t/d/f\n"
	       "? t/d/loop: skipped: leads back to a directory that it is in\nE t/d\n"
	       "! t/gone: No such file or directory\nF t/link\nE* t\n");
	expect(walk_all((const char *[]){"t", "tlink", NULL}, &a),
	       "D* t\nD t/d\nF t/d/f\nL t/d/loop>..\nE t/d\nL t/gone>nowhere\nL t/link>d/f\nE* t\n"
	       "L* tlink>t\n");
	expect(walk_all((const char *[]){"tlink/", NULL}, &a),
	       "D* tlink\nD tlink/d\nF tlink/d/f\nL tlink/d/loop>..\nE tlink/d\nL "
	       "tlink/gone>nowhere\n"
	       "L tlink/link>d/f\nE* tlink\n");
}

static void special_files(void **state)
{
	const struct rcp_walk_options r = {.recursive = true},
				      a = {.recursive = true, .archive = true};

	(void)state;
	assert_int_equal(mkdir("t", 0755), 0);
	assert_int_equal(mkfifo("t/fifo", 0600), 0);
	assert_int_equal(mknod("t/sock", S_IFSOCK | 0600, 0), 0);
	expect(walk_all((const char *[]){"t", "t/fifo", "/dev/null", NULL}, &r),
	       "D* t\n? t/fifo: skipped: a device, FIFO or socket\n"
	       "? t/sock: skipped: a device, FIFO or socket\nE* t\n"
	       "! t/fifo: not a regular file\n! /dev/null: not a regular file\n");
	expect(walk_all((const char *[]){"t", "/dev/null", NULL}, &a),
	       "D* t\nP t/fifo\nS t/sock\nE* t\nC* null\n");
}

static void hard_links(void **state)
{
	const struct rcp_walk_options a = {.recursive = true, .archive = true},
				      r = {.recursive = true};

	(void)state;
	assert_int_equal(mkdir("t", 0755), 0);
	tmp_text("t/a", "x");
	tmp_text("t/alone", "x");
	assert_int_equal(link("t/a", "t/b"), 0);
	assert_int_equal(link("t/a", "c"), 0);
	expect(walk_all((const char *[]){"t", "c", NULL}, &a),
	       "D* t\nF t/a\nF t/alone\nH t/b>t/a\nE* t\nH* c>t/a\n");
	expect(walk_all((const char *[]){"t", NULL}, &r), "D* t\nF t/a\nF t/alone\nF t/b\nE* t\n");
	/* The table itself, past its first size. */
	struct rcp_links links = {0};
	const char *first;
	char path[32];

	for (uint64_t i = 0; i < 5000; i++) {
		snprintf(path, sizeof(path), "p%u", (unsigned)i);
		assert_int_equal(rcp_links_seen(&links, i % 3, i, path, &first), 0);
		assert_null(first);
	}
	for (uint64_t i = 0; i < 5000; i++) {
		snprintf(path, sizeof(path), "p%u", (unsigned)i);
		assert_int_equal(rcp_links_seen(&links, i % 3, i, "other", &first), 0);
		assert_string_equal(first, path);
	}
	rcp_links_free(&links);
}

static void excludes(void **state)
{
	const char *const patterns[] = {"b/", "/z", "!a", NULL};
	const struct rcp_walk_options o = {.recursive = true, .excludes = patterns};

	(void)state;
	make_tree();
	expect(walk_all((const char *[]){"top", NULL}, &o),
	       "D* top\nF top/a\nD top/empty\nE top/empty\nE* top\n");
}

static void patterns_as_arguments(void **state)
{
	const struct rcp_walk_options g = {.globs = true}, none = {0}, one = {.globs = true, .one_name = true};

	(void)state;
	tmp_text("a1", "");
	tmp_text("a2", "");
	tmp_text("a[1]", "");
	expect(walk_all((const char *[]){"a?", "a[1]", "q*", NULL}, &g),
	       "F* a1\nF* a2\nF* a[1]\n! q*: no file matches\n"); /* a[1] is there as such */
	expect(walk_all((const char *[]){"a?", NULL}, &none), "! a?: No such file or directory\n");
	expect(walk_all((const char *[]){"a?", "?2", NULL}, &one), "! a?: stands for 2 names, and the target is no directory\nF* a2\n");
}

static void home_directories(void **state)
{
	const struct rcp_walk_options r = {.recursive = true};
	char cwd[4096], *home = getenv("HOME") ? strdup(getenv("HOME")) : NULL;

	(void)state;
	make_tree();
	assert_non_null(getcwd(cwd, sizeof(cwd)));
	setenv("HOME", cwd, 1);
	assert_int_equal(chdir("/"), 0);
	expect(walk_all((const char *[]){"~/file", "~/top/empty", "~no-such-user/x", NULL}, &r),
	       "F* file\nD* empty\nE* empty\n! ~no-such-user/x: No such file or directory\n");
	assert_int_equal(chdir(cwd), 0);
	assert_int_equal(chdir("top/empty"), 0);
	setenv("HOME", ".", 1); /* not absolute: the password file's instead */
	setenv("HOME", cwd, 1);
	assert_non_null(strstr(walk_all((const char *[]){"", NULL}, &r), "/top/empty\n"));
	if (home)
		setenv("HOME", home, 1);
	free(home);
}

static void pairs(void **state)
{
	const char *const patterns[] = {"empty/", NULL};
	const struct rcp_walk_options o = {.recursive = true, .pairs = true, .root = "."},
				      ex = {.recursive = true, .pairs = true, .excludes = patterns};

	(void)state;
	make_tree();
	assert_int_equal(mkdir("top/b/c", 0755), 0);
	tmp_text("top/b/c/d", "");
	tmp_text("top/empty/no", "");
	expect(walk_all((const char *[]){"top/b/c/d", "./top//a", "/file", "top/b/c", NULL}, &o),
	       "D* top\nD top/b\nD top/b/c\nF top/b/c/d\nE top/b/c\nE top/b\nF top/a\nE* top\nF* "
	       "file\n"
	       "D* top\nD top/b\nD top/b/c\nE top/b/c\nE top/b\nE* top\n");
	expect(walk_all(
		       (const char *[]){"../x", "a/../../x", "", "nope/x", "file/x", "top/z", NULL},
		       &o),
	       "! ../x: not a name below the source directory: it has a component \".\" or \"..\"\n"
	       "! a/../../x: not a name below the source directory: it has a component \".\" or "
	       "\"..\"\n"
	       "! : not a name below the source directory: it is empty\n"
	       "! ./nope: No such file or directory\n! ./file: Not a directory\n"
	       "D* top\nF top/z\nE* top\n");
	expect(walk_all((const char *[]){"top/empty/no", "top/z", NULL}, &ex),
	       "D* top\nF top/z\nE* top\n");
}

/* More levels than descriptors are kept, in follow and archive mode. */
static void deep_trees(void **state)
{
	const struct rcp_walk_options r = {.recursive = true},
				      a = {.recursive = true, .archive = true};
	struct rlimit lim, low;
	unsigned dirs = 0, files = 0, ends = 0;

	(void)state;
	for (int i = 0; i < 200; i++) {
		assert_int_equal(mkdir("dd", 0755), 0);
		tmp_text("a", "");
		tmp_text("zz", "");
		assert_int_equal(chdir("dd"), 0);
	}
	assert_int_equal(tmp_fresh(NULL), 0); /* somewhere else; the tree is in the one before */
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &lim), 0);
	low = lim;
	low.rlim_cur = 64;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	char cwd[4096], tree[4200];

	assert_non_null(getcwd(cwd, sizeof(cwd)));
	unsigned n = (unsigned)atoi(strrchr(cwd, 't') + 1) - 1;

	snprintf(tree, sizeof(tree), "../t%u/dd", n);
	for (int k = 0; k < 2; k++) {
		for (const char *p = walk_all((const char *[]){tree, NULL}, k ? &a : &r); *p;
		     p = strchr(p, '\n') + 1) {
			assert_true(*p == 'D' || *p == 'F' || *p == 'E');
			dirs += *p == 'D';
			files += *p == 'F';
			ends += *p == 'E';
		}
	}
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &lim), 0);
	assert_int_equal(dirs, 2 * 200);
	assert_int_equal(ends, 2 * 200);
	assert_int_equal(files, 2 * 398);
}

/* Below 4096 bytes it goes; what is deeper is told, and the rest still comes. */
static void paths_that_are_too_long(void **state)
{
	const struct rcp_walk_options r = {.recursive = true};
	char name[256];
	int start = open(".", O_RDONLY | O_DIRECTORY);

	(void)state;
	memset(name, 'n', 255);
	name[255] = 0;
	tmp_text("z-last", "");
	for (int i = 0; i < 20; i++) {
		assert_int_equal(mkdir(name, 0755), 0);
		assert_int_equal(chdir(name), 0);
	}
	assert_int_equal(fchdir(start), 0);
	close(start);
	assert_int_equal(mkdir("t", 0755), 0);
	assert_int_equal(rename(name, "t/n"), 0);
	assert_int_equal(rename("z-last", "t/z-last"), 0);
	const char *out = walk_all((const char *[]){"t", NULL}, &r);

	assert_non_null(strstr(out, "the path of what is in it is over 4095 bytes"));
	assert_non_null(strstr(out, "\nF t/z-last\nE* t\n"));
	/* Clean up: nftw can't by path. */
	assert_int_equal(system("rm -rf t"), 0);
}

static void large_directories(void **state)
{
	const struct rcp_walk_options r = {.recursive = true};
	unsigned count = RCP_WALK_BATCH_NAMES + 3000, seen = 0;
	struct rcp_walk_item item;
	struct rcp_err err = {0};
	enum rcp_severity sev;
	char name[32], *found = calloc(count, 1);
	int rc;

	(void)state;
	/* Twenty thousand names are a matter of memory there, and of minutes on a busy disk. */
	char shm[] = "/dev/shm/rcp-test-XXXXXX";
	bool memory = mkdtemp(shm) && chdir(shm) == 0;

	assert_int_equal(mkdir("t", 0755), 0);
	for (unsigned i = 0; i < count; i++) {
		snprintf(name, sizeof(name), "t/%u", i);
		assert_int_equal(mknod(name, S_IFREG | 0600, 0), 0);
	}
	struct rcp_walk *w = walk_new((const char *[]){"t", NULL}, &r);

	while ((rc = rcp_walk_next(w, &item, &err, &sev)) > 0) {
		if (item.entry.type != RCP_ENTRY_FILE)
			continue;
		assert_true(item.entry.path.len < sizeof(name));
		unsigned i = (unsigned)atoi(item.open_path + 2);

		assert_true(i < count && !found[i]);
		found[i] = 1;
		seen++;
	}
	assert_int_equal(rc, 0);
	assert_int_equal(seen, count);
	rcp_walk_free(&w);
	free(found);
	if (memory) {
		assert_int_equal(tmp_fresh(NULL), 0);
		tmp_remove(shm);
	}
}

static void unreadable_directories(void **state)
{
	const struct rcp_walk_options r = {.recursive = true};

	(void)state;
	make_tree();
	assert_int_equal(chmod("top/b", 0), 0);
	/* Root reads every directory: be somebody else for this. */
	bool root = geteuid() == 0;

	if (root)
		assert_int_equal(seteuid(65534), 0);
	expect(walk_all((const char *[]){"top", NULL}, &r),
	       "D* top\nF top/a\n! top/b: Permission denied\nD top/empty\nE top/empty\nF top/z\nE* "
	       "top\n");
	if (root)
		assert_int_equal(seteuid(0), 0);
	assert_int_equal(chmod("top/b", 0755), 0);
}

/* A tree that changes under the walk: what is gone is an error of its own. */
static void vanishing_entries(void **state)
{
	const struct rcp_walk_options r = {.recursive = true};
	struct rcp_walk_item item;
	struct rcp_err err = {0};
	enum rcp_severity sev;

	(void)state;
	make_tree();
	struct rcp_walk *w = walk_new((const char *[]){"top", NULL}, &r);

	assert_int_equal(rcp_walk_next(w, &item, &err, &sev), 1); /* top */
	assert_int_equal(rcp_walk_next(w, &item, &err, &sev), 1); /* a */
	assert_int_equal(rename("top/b", "elsewhere"), 0);
	assert_int_equal(symlink("/etc", "top/b"), 0);
	assert_int_equal(unlink("top/z"), 0);
	assert_int_equal(rcp_walk_next(w, &item, &err, &sev), 1); /* b, now /etc: scp follows */
	assert_int_equal(item.entry.type, RCP_ENTRY_DIR);
	rcp_walk_free(&w); /* with a stack */
	const struct rcp_walk_options a = {.recursive = true, .archive = true};

	w = walk_new((const char *[]){"top", NULL}, &a);
	assert_int_equal(rcp_walk_next(w, &item, &err, &sev), 1);
	assert_int_equal(unlink("top/a"), 0);
	assert_int_equal(rcp_walk_next(w, &item, &err, &sev), -1);
	assert_int_equal(err.sys_errno, ENOENT);
	assert_int_equal(sev, RCP_SEVERITY_ERROR);
	assert_string_equal(err.object, "top/a");
	err = (struct rcp_err){0};
	assert_int_equal(rcp_walk_next(w, &item, &err, &sev), 1);
	assert_int_equal(item.entry.type, RCP_ENTRY_SYMLINK);
	rcp_walk_free(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TMP_TEST(names_of_arguments),
		TMP_TEST(what_an_entry_says),
		TMP_TEST(a_directory_says_it_twice),
		TMP_TEST(symlinks_and_loops),
		TMP_TEST(special_files),
		TMP_TEST(hard_links),
		TMP_TEST(excludes),
		TMP_TEST(inside_the_target),
		TMP_TEST(arguments_that_meet),
		TMP_TEST(listed_twice),
		TMP_TEST(patterns_as_arguments),
		TMP_TEST(home_directories),
		TMP_TEST(pairs),
		TMP_TEST(deep_trees),
		TMP_TEST(paths_that_are_too_long),
		TMP_TEST(large_directories),
		TMP_TEST(unreadable_directories),
		TMP_TEST(vanishing_entries),
	};

	return cmocka_run_group_tests(tests, tmp_setup, tmp_teardown);
}
