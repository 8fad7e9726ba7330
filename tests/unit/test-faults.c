/*
 * src/file with every call made to fail in turn: the n-th call that can fail does, for every n.
 * Then: an error with a name in it or a right result; the target old or new, never a mix; no
 * descriptor left open; and the next run, undisturbed, ends well. Under ASan: no leak either.
 *
 * The calls are replaced by defining them here: the program's own definition comes before libc's.
 */
#undef _FORTIFY_SOURCE /* its inline functions have the same names */
#include "base/crc.h"
#include "file/beneath.h"
#include "file/sink.h"
#include "file/walk.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <time.h>

#include "put-one.h"
#include "tmpdir.h"

static struct {
	bool armed, failed;
	unsigned count, at;
	int error;
	const char *call;
} plan;

static bool fails(const char *call)
{
	if (!plan.armed || ++plan.count != plan.at)
		return false;
	plan.failed = true;
	plan.call = call;
	errno = plan.error;
	return true;
}

static void *real(const char *name)
{
	bool armed = plan.armed;

	plan.armed = false; /* dlsym may allocate */
	void *p = dlsym(RTLD_NEXT, name);

	plan.armed = armed;
	return p;
}

/* The name that the headers make of a call where off_t is 64 bits wide. */
#define WIDE(name) name "64"

#define REPLACE(type, wrong, name, symbol, params, args)                                           \
	type name params;                                                                          \
	type name params                                                                           \
	{                                                                                          \
		static type(*next) params;                                                         \
                                                                                                   \
		if (fails(#name))                                                                  \
			return wrong;                                                              \
		if (!next)                                                                         \
			*(void **)(void *)&next = real(symbol);                                    \
		return next args;                                                                  \
	}

REPLACE(int, -1, fstat, WIDE("fstat"), (int fd, struct stat *st), (fd, st))
REPLACE(int, -1, fstatat, WIDE("fstatat"), (int dir, const char *path, struct stat *st, int flags),
	(dir, path, st, flags))
REPLACE(int, -1, stat, WIDE("stat"), (const char *path, struct stat *st), (path, st))
REPLACE(ssize_t, -1, pread, WIDE("pread"), (int fd, void *buf, size_t len, off_t at),
	(fd, buf, len, at))
REPLACE(ssize_t, -1, pwrite, WIDE("pwrite"), (int fd, const void *buf, size_t len, off_t at),
	(fd, buf, len, at))
REPLACE(int, -1, ftruncate, WIDE("ftruncate"), (int fd, off_t size), (fd, size))
REPLACE(int, -1, fallocate, WIDE("fallocate"), (int fd, int mode, off_t at, off_t len),
	(fd, mode, at, len))
REPLACE(int, -1, fstatvfs, WIDE("fstatvfs"), (int fd, struct statvfs *st), (fd, st))
REPLACE(off_t, -1, lseek, WIDE("lseek"), (int fd, off_t at, int whence), (fd, at, whence))
REPLACE(int, -1, fstatfs, WIDE("fstatfs"), (int fd, struct statfs *fs), (fd, fs))
REPLACE(int, -1, sync_file_range, "sync_file_range", (int fd, off_t at, off_t len, unsigned how),
	(fd, at, len, how))
REPLACE(int, -1, fdatasync, "fdatasync", (int fd), (fd))
REPLACE(int, -1, fsync, "fsync", (int fd), (fd))
REPLACE(int, -1, flock, "flock", (int fd, int op), (fd, op))
REPLACE(int, -1, fchmod, "fchmod", (int fd, mode_t mode), (fd, mode))
REPLACE(int, -1, chmod, "chmod", (const char *path, mode_t mode), (path, mode))
REPLACE(int, -1, fchown, "fchown", (int fd, uid_t u, gid_t g), (fd, u, g))
REPLACE(int, -1, futimens, "futimens", (int fd, const struct timespec ts[2]), (fd, ts))
REPLACE(int, -1, renameat, "renameat", (int a, const char *from, int b, const char *to),
	(a, from, b, to))
REPLACE(int, -1, renameat2, "renameat2",
	(int a, const char *from, int b, const char *to, unsigned flags), (a, from, b, to, flags))
REPLACE(int, -1, unlinkat, "unlinkat", (int dir, const char *path, int flags), (dir, path, flags))
REPLACE(int, -1, mkdirat, "mkdirat", (int dir, const char *path, mode_t mode), (dir, path, mode))
REPLACE(int, -1, symlinkat, "symlinkat", (const char *to, int dir, const char *path),
	(to, dir, path))
REPLACE(int, -1, linkat, "linkat", (int a, const char *from, int b, const char *to, int flags),
	(a, from, b, to, flags))
REPLACE(ssize_t, -1, readlinkat, "readlinkat", (int dir, const char *path, char *buf, size_t len),
	(dir, path, buf, len))
REPLACE(ssize_t, -1, getdents64, "getdents64", (int fd, void *buf, size_t len), (fd, buf, len))
REPLACE(ssize_t, -1, flistxattr, "flistxattr", (int fd, char *buf, size_t len), (fd, buf, len))
REPLACE(ssize_t, -1, llistxattr, "llistxattr", (const char *path, char *buf, size_t len),
	(path, buf, len))

int open(const char *path, int flags, ...)
{
	static int (*next)(const char *path, int flags, ...);
	va_list ap;

	va_start(ap, flags);
	mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(ap, mode_t) : 0;

	va_end(ap);
	if (fails("open"))
		return -1;
	if (!next)
		*(void **)(void *)&next = real("open64");
	return next(path, flags, mode);
}

int openat(int dir, const char *path, int flags, ...)
{
	static int (*next)(int dir, const char *path, int flags, ...);
	va_list ap;

	va_start(ap, flags);
	mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(ap, mode_t) : 0;

	va_end(ap);
	if (fails("openat"))
		return -1;
	if (!next)
		*(void **)(void *)&next = real("openat64");
	return next(dir, path, flags, mode);
}

/* src/file makes one call this way: openat2, with four arguments. */
long syscall(long number, ...)
{
	static long (*next)(long number, ...);
	va_list ap;
	long a[4];

	va_start(ap, number);
	for (int i = 0; i < 4; i++)
		a[i] = number == SYS_openat2 ? va_arg(ap, long) : 0;
	va_end(ap);
	if (number == SYS_openat2 && fails("openat2"))
		return -1;
	if (!next)
		*(void **)(void *)&next = real("syscall");
	return next(number, a[0], a[1], a[2], a[3]);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !defined(__clang__)
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *old, size_t size);

void *malloc(size_t size)
{
	return fails("malloc") ? NULL : __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
	return fails("calloc") ? NULL : __libc_calloc(n, size);
}

void *realloc(void *old, size_t size)
{
	return fails("realloc") ? NULL : __libc_realloc(old, size);
}
#endif

/* ---- scenarios ---- */

#define CHUNK 4096u
#define SIZE  (20 * CHUNK + 100)

static uint8_t content[SIZE];

static unsigned open_fds(void)
{
	unsigned n = 0;

	for (int fd = 0; fd < 200; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

struct scenario {
	void (*before)(void);		 /* not disturbed */
	int (*run)(struct rcp_err *err); /* disturbed */
	void (*after)(int rc);		 /* not disturbed */
};

static int root;

static void say(const char *what, const struct rcp_err *err)
{
	char line[4096];

	fail_msg("call %u (%s, %s): %s: %s", plan.at, plan.call ? plan.call : "none",
		 strerror(plan.error), what, rcp_err_format(err, line, sizeof(line)));
}

/* Every call in turn, until a run is over before its turn comes. */
static void fail_each(const struct scenario *s, int error)
{
	for (unsigned at = 1; at < 2000; at++) {
		struct rcp_err err = {0};

		assert_int_equal(tmp_fresh(NULL), 0);
		root = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (s->before)
			s->before();
		unsigned fds = open_fds();

		plan.count = 0;
		plan.at = at;
		plan.error = error;
		plan.failed = false;
		plan.call = NULL;
		plan.armed = true;
		int rc = s->run(&err);

		plan.armed = false;
		if (rc && (rc != (int)err.code || !err.call[0] || !err.object[0]))
			say("an error that names nothing", &err);
		if (!rc && rcp_err_is(&err))
			say("an error that was not returned", &err);
		if (rc && !plan.failed)
			say("an error of its own", &err);
		if (open_fds() != fds)
			say("a descriptor stays open", &err);
		s->after(rc);
		close(root);
		if (!plan.failed && getenv("RCP_TEST_VERBOSE"))
			fprintf(stderr, "%u calls\n", at - 1);
		if (!plan.failed)
			return;
	}
	fail_msg("it never ends");
}

static struct rcp_sink_params params(void)
{
	return (struct rcp_sink_params){
		.root = root,
		.path = "d/f",
		.shown = "d/f",
		.chunk_bytes = CHUNK,
		.id = {.dev = 1, .ino = 2, .size = SIZE, .mtime_s = 3},
		.resume = true,
		.fsync = true,
	};
}

static uint64_t cell(uint64_t i)
{
	return i == 20 ? 100 : CHUNK;
}

static int put(struct rcp_sink *s, uint64_t i, struct rcp_err *err)
{
	return rcp_sink_write(s, i * CHUNK, content + i * CHUNK, cell(i),
			      rcp_crc32(0, content + i * CHUNK, cell(i)), err);
}

static int rest_and_commit(struct rcp_sink *s, struct rcp_err *err)
{
	const struct rcp_meta meta = {.mode = 0600,
				      .set_times = true,
				      .set_owner = true,
				      .uid = geteuid(),
				      .gid = getegid()};
	unsigned lost;

	for (uint64_t i = 0; i <= 20; i++) {
		if ((!rcp_sink_has(s, i) && put(s, i, err)) ||
		    (i % 8 == 0 && rcp_sink_checkpoint(s, err)))
			return (int)err->code;
	}
	if (rcp_sink_verify(s, err))
		return (int)err->code;
	return rcp_sink_commit(s, &meta, err, &lost);
}

static void sink_before(void)
{
	struct rcp_sink_params p = params();
	struct rcp_err err = {0};
	struct rcp_sink *s;

	assert_int_equal(mkdir("d", 0755), 0);
	tmp_text("d/f", "old");
	assert_int_equal(rcp_sink_open(&p, &err, &s), 0);
	for (uint64_t i = 0; i < 10; i++)
		assert_int_equal(put(s, i, &err), 0);
	rcp_sink_close(&s, true);
}

static int sink_run(struct rcp_err *err)
{
	struct rcp_sink_params p = params();
	struct rcp_sink *s;

	if (rcp_sink_open(&p, err, &s))
		return (int)err->code;
	int rc = rest_and_commit(s, err);

	rcp_sink_close(&s, true);
	return rc;
}

static void sink_after(int rc)
{
	struct rcp_err err = {0};
	size_t len;
	char *got = tmp_read("d/f", &len);
	bool old = len == 3 && memcmp(got, "old", 3) == 0;

	if (!rc || !old)
		tmp_expect("d/f", content, SIZE);
	free(got);
	if (sink_run(&err))
		say("the next run", &err);
	tmp_expect("d/f", content, SIZE);
	assert_int_equal(tmp_count("d"), 1);
}

static int sparse_run(struct rcp_err *err)
{
	struct rcp_sink_params p = params();
	struct rcp_sink *s;

	p.sparse = true;
	if (rcp_sink_open(&p, err, &s))
		return (int)err->code;
	int rc = rest_and_commit(s, err);

	rcp_sink_close(&s, true);
	return rc;
}

static int put_run(struct rcp_err *err)
{
	const struct rcp_meta meta = {.mode = 0600, .set_times = true};
	struct rcp_sink_params p = params();
	unsigned lost;

	p.verify = true;
	return put_one(&p, content, SIZE, &meta, err, &lost);
}

static void put_after(int rc)
{
	struct rcp_err err = {0};
	size_t len;
	char *got = tmp_read("d/f", &len);

	if (!rc || len != 3 || memcmp(got, "old", 3))
		tmp_expect("d/f", content, SIZE);
	free(got);
	assert_int_equal(put_run(&err), 0);
	tmp_expect("d/f", content, SIZE);
}

/* New names, and one that is taken: the two ways of a small file, in a directory that is kept. */
static const char *const fresh[] = {"d/a", "d/b", "d/f"};

static void fresh_before(void)
{
	assert_int_equal(mkdir("d", 0755), 0);
	tmp_text("d/f", "old");
}

static void keep_first(void *arg, const struct rcp_err *err, unsigned lost)
{
	struct rcp_err *first = arg;

	(void)lost;
	if (!rcp_err_is(first))
		*first = *err;
}

static int fresh_run(struct rcp_err *err)
{
	const struct rcp_meta meta = {.mode = 0644, .set_times = true};
	struct rcp_sink_params p = params();
	struct rcp_sink_puts *puts;

	if (rcp_sink_puts_new(keep_first, err, &puts))
		return (int)err->code;
	for (size_t i = 0; i < 3; i++) {
		p.path = p.shown = fresh[i];
		rcp_sink_puts_add(puts, &p, content, SIZE, &meta, err);
	}
	rcp_sink_puts_free(&puts);
	return (int)err->code;
}

static void fresh_after(int rc)
{
	struct rcp_err err = {0};

	for (size_t i = 0; i < 3; i++) {
		size_t len;
		bool there = access(fresh[i], F_OK) == 0;
		char *got = there ? tmp_read(fresh[i], &len) : NULL;

		if (!rc || (there && (len != 3 || memcmp(got, "old", 3))))
			tmp_expect(fresh[i], content, SIZE);
		free(got);
	}
	assert_int_equal(fresh_run(&err), 0);
}

static int special(const char *path, uint8_t type, const char *link, struct rcp_err *err)
{
	const struct rcp_rec_entry e = {.type = type, .link = rcp_span_str(link)};
	const struct rcp_meta meta = {.mode = 0600, .set_times = true};
	unsigned lost;

	return rcp_sink_special(root, path, path, &e, 0, &meta, false, err, &lost);
}

static int special_run(struct rcp_err *err)
{
	const struct rcp_meta meta = {.mode = 0755, .set_times = true};
	unsigned lost;

	if (rcp_sink_mkdir(root, "n", "n", false, err) || rcp_sink_mkdir(root, "n/m", "n/m", false, err) ||
	    special("n/l", RCP_ENTRY_SYMLINK, "anywhere", err) ||
	    special("n/h", RCP_ENTRY_HARDLINK, "f", err) ||
	    special("n/p", RCP_ENTRY_FIFO, "", err) ||
	    rcp_sink_dir_end(root, "n", "n", &meta, false, err, &lost))
		return (int)err->code;
	return 0;
}

static void special_before(void)
{
	tmp_text("f", "x");
}

static void special_after(int rc)
{
	struct rcp_err err = {0};
	struct stat st;

	if (rc)
		assert_int_equal(special_run(&err), 0);
	assert_int_equal(lstat("n/l", &st), 0);
	assert_true(S_ISLNK(st.st_mode));
	assert_int_equal(lstat("n/h", &st), 0);
	assert_int_equal(st.st_nlink, 2);
	assert_int_equal(lstat("n/p", &st), 0);
	assert_true(S_ISFIFO(st.st_mode));
	assert_int_equal(tmp_count("n"), 4);
}

static void source_before(void)
{
	tmp_write("f", content, SIZE);
}

static int source_uses(struct rcp_source *s, uint8_t *buf, struct rcp_err *err)
{
	uint32_t crc, want = rcp_crc32(0, content, SIZE);
	struct rcp_window w;
	uint64_t a, b;

	if (rcp_source_read(s, 0, buf, SIZE, err, &crc))
		return (int)err->code;
	assert_int_equal(crc, want);
	if (rcp_source_read_direct(s, 0, buf, SIZE, err, &crc))
		return (int)err->code;
	assert_int_equal(crc, want);
	if (rcp_window_map(s, 0, SIZE, err, &w))
		return (int)err->code;
	assert_true(memcmp(w.data, content, SIZE) == 0);
	rcp_window_unmap(&w);
	if (rcp_source_extent(s, 0, err, &a, &b))
		return (int)err->code;
	assert_int_equal(b, SIZE);
	return rcp_source_check(s, err);
}

static int source_run(struct rcp_err *err)
{
	static _Alignas(4096) uint8_t buf[SIZE + 4096];
	struct rcp_source *s;

	if (rcp_source_open("f", false, NULL, err, &s))
		return (int)err->code;
	int rc = source_uses(s, buf, err);

	rcp_source_close(&s);
	return rc;
}

static void source_after(int rc)
{
	(void)rc;
}

static void walk_before(void)
{
	assert_int_equal(mkdir("t", 0755), 0);
	assert_int_equal(mkdir("t/d", 0755), 0);
	tmp_text("t/a", "");
	assert_int_equal(link("t/a", "t/b"), 0);
	assert_int_equal(symlink("x", "t/d/l"), 0);
	setxattr("t/a", "user.k", "v", 1, 0);
	setxattr("t/d", "user.k", "v", 1, 0);
}

/* Errors come one by one and the walk goes on: what it then says is a tree nevertheless. */
static int walk_run(struct rcp_err *first)
{
	const char *const paths[] = {"t", "t/a", NULL}, *const excludes[] = {"q", NULL};
	const struct rcp_walk_options o = {
		.recursive = true, .archive = true, .excludes = excludes};
	struct rcp_walk_item item;
	struct rcp_walk *w;
	enum rcp_severity sev;
	int rc, depth = 0, entries = 0;

	if (rcp_walk_new(paths, &o, first, &w)) {
		if (!first->object[0])
			rcp_err_object(first, "t");
		return (int)first->code;
	}
	for (int i = 0; i < 50; i++) {
		struct rcp_err err = {0};

		rc = rcp_walk_next(w, &item, &err, &sev);
		if (rc == 0)
			break;
		if (rc < 0) {
			assert_true(rcp_err_is(&err));
			*first = err;
			continue;
		}
		entries++;
		depth += item.entry.type == RCP_ENTRY_DIR;
		depth -= item.entry.type == RCP_ENTRY_DIR_END;
		assert_true(depth >= 0);
	}
	rcp_walk_free(&w);
	assert_int_equal(rc, 0);
	assert_int_equal(depth, 0);
	/* Names out of memory may leave a link sent twice, never an entry untold without an error.
	 */
	assert_true(rcp_err_is(first) || entries == 8);
	return (int)first->code;
}

static int target_run(struct rcp_err *err)
{
	struct rcp_target t;

	if (rcp_target_resolve("new/name", NULL, false, false, err, &t))
		return (int)err->code;
	assert_string_equal(t.rename, "name");
	assert_string_equal(t.shown, "new/");
	rcp_target_free(&t);
	return 0;
}

static void target_before(void)
{
	assert_int_equal(mkdir("new", 0755), 0);
}

static void each(const struct scenario *s)
{
	fail_each(s, EIO);
	fail_each(s, ENOMEM);
	fail_each(s, EACCES);
}

static void sinks(void **state)
{
	(void)state;
	each(&(struct scenario){sink_before, sink_run, sink_after});
}

static void sparse_sinks(void **state)
{
	(void)state;
	each(&(struct scenario){sink_before, sparse_run, sink_after});
}

static void small_files(void **state)
{
	(void)state;
	each(&(struct scenario){sink_before, put_run, put_after});
	each(&(struct scenario){fresh_before, fresh_run, fresh_after});
}

static void special_entries(void **state)
{
	(void)state;
	each(&(struct scenario){special_before, special_run, special_after});
}

static void sources(void **state)
{
	(void)state;
	each(&(struct scenario){source_before, source_run, source_after});
}

static void walks(void **state)
{
	(void)state;
	each(&(struct scenario){walk_before, walk_run, source_after});
}

static void targets(void **state)
{
	(void)state;
	each(&(struct scenario){target_before, target_run, source_after});
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sinks),       cmocka_unit_test(sparse_sinks),
		cmocka_unit_test(small_files), cmocka_unit_test(special_entries),
		cmocka_unit_test(sources),     cmocka_unit_test(walks),
		cmocka_unit_test(targets),
	};

	tmp_noise(content, SIZE, 42);
	memset(content + 6 * CHUNK, 0, 8 * CHUNK);
	/* A thousand runs with syncs: none of it needs a real disk. */
	if (access("/dev/shm", W_OK) == 0)
		setenv("TMPDIR", "/dev/shm", 0);
	return cmocka_run_group_tests(tests, tmp_setup, tmp_teardown);
}
