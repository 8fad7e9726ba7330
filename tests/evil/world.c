/*
 * The directories of one case, what they look like before and after, and the victim's process.
 *
 *   top/w/      what must stay as it is: canary, outside/, src/, home/ (the victim's HOME and directory)
 *   top/w/target/   may get what the case allows: keep, old, dir/ are there, and link -> ../outside
 *   top/log/    the victim's output, the peer's report
 */
#include "evil.h"

#include "base/clock.h"
#include "base/crc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void die(const char *what)
{
	printf("Bail out! %s: %s\n", what, strerror(errno));
	exit(1);
}

static void put_file(const char *top, const char *path, const void *data, size_t len)
{
	char full[4096];

	snprintf(full, sizeof(full), "%s/w/%s", top, path);
	FILE *f = fopen(full, "w");

	if (!f || fwrite(data, 1, len, f) != len || fclose(f))
		die(full);
}

static void put_dir(const char *top, const char *path)
{
	char full[4096];

	snprintf(full, sizeof(full), "%s/%s", top, path);
	if (mkdir(full, 0755) < 0)
		die(full);
}

void world_make(const char *top, bool big)
{
	static const char *const dirs[] = {"w", "log", "w/outside", "w/outside/dir", "w/src", "w/src/tree", "w/src/tree/sub",
					   "w/home", "w/target", "w/target/dir"};
	static uint8_t f[EVIL_F_BYTES];
	char full[4096];

	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++)
		put_dir(top, dirs[i]);
	put_file(top, "canary", "sing", 4);
	put_file(top, "outside/secret", "secret", 6);
	put_file(top, "outside/dir/x", "x", 1);
	put_file(top, "target/keep", "kept", 4);
	put_file(top, "target/old", "old", 3);
	evil_payload("f", 0, f, sizeof(f));
	put_file(top, "src/f", f, sizeof(f));
	put_file(top, "src/tree/f", f, sizeof(f));
	evil_payload("small", 0, f, EVIL_SMALL_BYTES);
	put_file(top, "src/small", f, EVIL_SMALL_BYTES);
	put_file(top, "src/tree/sub/small", f, EVIL_SMALL_BYTES);
	if (big) {
		uint8_t *b = calloc(1, 17 << 20);

		if (!b)
			die("calloc");
		evil_payload("big", 0, b, 17 << 20);
		put_file(top, "src/big", b, 17 << 20);
		free(b);
	}
	snprintf(full, sizeof(full), "%s/w/target/link", top);
	if (symlink("../outside", full) < 0)
		die(full);
}

/* ---- looking ---- */

struct lines {
	char **at;
	size_t count, cap;
};

static void add(struct lines *l, char *line)
{
	if (l->count == l->cap) {
		l->cap = l->cap ? 2 * l->cap : 64;
		l->at = realloc(l->at, l->cap * sizeof(*l->at));
	}
	if (!l->at || !line)
		abort();
	l->at[l->count++] = line;
}

static uint32_t crc_of(const char *path)
{
	static uint8_t buf[65536];
	int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	uint32_t crc = 0;
	ssize_t n;

	while (fd >= 0 && (n = read(fd, buf, sizeof(buf))) > 0)
		crc = rcp_crc32(crc, buf, (size_t)n);
	if (fd >= 0)
		close(fd);
	return crc;
}

static void look(const char *base, const char *rel, const char *leave_out, struct lines *l)
{
	char full[4096], below[2048], line[4300], link[256] = "";
	struct stat st;

	snprintf(full, sizeof(full), "%s%s%s", base, rel[0] ? "/" : "", rel);
	if (leave_out && !strcmp(rel, leave_out))
		return;
	if (lstat(full, &st) < 0)
		die(full);
	if (S_ISLNK(st.st_mode) && readlink(full, link, sizeof(link) - 1) < 0)
		die(full);
	snprintf(line, sizeof(line), "%s %o %lld %lld.%09ld %llu %08x %s", rel[0] ? rel : ".", st.st_mode,
		 S_ISREG(st.st_mode) ? (long long)st.st_size : 0LL, (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec,
		 (unsigned long long)st.st_ino, S_ISREG(st.st_mode) && st.st_size < 64 << 20 ? crc_of(full) : 0u, link);
	add(l, strdup(line));
	DIR *d = S_ISDIR(st.st_mode) ? opendir(full) : NULL;

	for (struct dirent *n; d && (n = readdir(d));) {
		if (!strcmp(n->d_name, ".") || !strcmp(n->d_name, ".."))
			continue;
		snprintf(below, sizeof(below), "%s%s%s", rel, rel[0] ? "/" : "", n->d_name);
		look(base, below, leave_out, l);
	}
	if (d)
		closedir(d);
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

char *world_look(const char *top, bool target)
{
	char base[4096], *text;
	struct lines l = {0};
	size_t len = 1;

	snprintf(base, sizeof(base), "%s/w%s", top, target ? "/target" : "");
	look(base, "", target ? NULL : "target", &l);
	qsort(l.at, l.count, sizeof(*l.at), by_text);
	for (size_t i = 0; i < l.count; i++)
		len += strlen(l.at[i]) + 1;
	text = calloc(1, len);
	for (size_t i = 0, at = 0; i < l.count; i++) {
		at += (size_t)sprintf(text + at, "%s\n", l.at[i]);
		free(l.at[i]);
	}
	free(l.at);
	return text;
}

/* ---- judging ---- */

static bool word_in(const char *list, const char *word, size_t len)
{
	for (const char *at = list; at && *at;) {
		size_t n = strcspn(at, " ");

		if (n == len && !memcmp(at, word, len))
			return true;
		at += n + strspn(at + n, " ");
	}
	return false;
}

/* Named with a ? before it: it may be there, whatever is in it. */
static bool word_free(const char *list, const char *word, size_t len)
{
	char name[300];

	snprintf(name, sizeof(name), "?%.*s", (int)len, word);
	return word_in(list, name, strlen(name));
}

/* rcp's own hidden files: no names that anything is found by. */
static bool is_leftover(const char *path, size_t len)
{
	static const char *const ends[] = {".rcp-part", ".rcp-journal", ".rcp-done", ".rcp-new", ".rcp-make"};
	const char *slash = memrchr(path, '/', len), *leaf = slash ? slash + 1 : path;

	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
		size_t n = strlen(ends[i]);

		if (*leaf == '.' && len > n && !memcmp(path + len - n, ends[i], n))
			return true;
	}
	return false;
}

/* A file under a final name has the bytes that its source has under that name. */
static bool right_content(const char *top, const char *path, size_t len, FILE *out)
{
	char full[4096], leaf[256];
	struct stat st;
	bool same = true;

	snprintf(full, sizeof(full), "%s/w/target/%.*s", top, (int)len, path);
	if (lstat(full, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > 10000000)
		return true;
	snprintf(leaf, sizeof(leaf), "%s", strrchr(full, '/') + 1);
	uint8_t *want = malloc((size_t)st.st_size + 1), *got = malloc((size_t)st.st_size + 1);
	FILE *f = fopen(full, "r");

	if (!want || !got || !f)
		die(full);
	evil_payload(leaf, 0, want, (size_t)st.st_size);
	same = fread(got, 1, (size_t)st.st_size, f) == (size_t)st.st_size && !memcmp(want, got, (size_t)st.st_size);
	fclose(f);
	free(want);
	free(got);
	if (!same)
		fprintf(out, "target/%s has its name, and is not what its source has\n", leaf);
	return same;
}

static bool has_line(const char *text, const char *line, size_t len)
{
	for (const char *at = text; *at; at += strcspn(at, "\n"), at += *at == '\n') {
		if (strcspn(at, "\n") == len && !memcmp(at, line, len))
			return true;
	}
	return false;
}

static bool same_outside(const char *before, const char *after, FILE *out)
{
	bool good = true;

	for (const char *at = before; *at; at += strcspn(at, "\n") + 1) {
		if (!has_line(after, at, strcspn(at, "\n")))
			good = fprintf(out, "outside the target, gone or changed: %.*s\n", (int)strcspn(at, "\n"), at) < 0;
	}
	for (const char *at = after; *at; at += strcspn(at, "\n") + 1) {
		if (!has_line(before, at, strcspn(at, "\n")))
			good = fprintf(out, "outside the target, new or changed: %.*s\n", (int)strcspn(at, "\n"), at) < 0;
	}
	return good;
}

static bool same_target(const char *top, const char *before, const char *after, const char *made, FILE *out)
{
	bool good = true;

	for (const char *at = before; *at; at += strcspn(at, "\n") + 1) {
		size_t len = strcspn(at, "\n"), name = strcspn(at, " ");

		/* Directories get new times by what is in them. */
		if (at[name + 1] == '4' || word_in(made, at, name) || has_line(after, at, len))
			continue;
		good = fprintf(out, "in the target, gone or changed: %.*s\n", (int)len, at) < 0;
	}
	for (const char *at = after; *at; at += strcspn(at, "\n") + 1) {
		size_t len = strcspn(at, "\n"), name = strcspn(at, " ");
		char start[2100];

		if (has_line(before, at, len) || is_leftover(at, name))
			continue;
		snprintf(start, sizeof(start), "%.*s 4", (int)name, at);
		if (at[name + 1] == '4' && (strstr(before, start) || word_in(made, at, name)))
			continue;
		if (word_free(made, at, name) || (word_in(made, at, name) && right_content(top, at, name, out)))
			continue;
		good = fprintf(out, "in the target, new or changed: %.*s\n", (int)len, at) < 0;
	}
	return good;
}

bool world_check(const char *top, const char *before, const char *before_target, const char *made, FILE *out)
{
	char *after = world_look(top, false), *target = world_look(top, true);
	bool good = same_outside(before, after, out);

	good &= same_target(top, before_target, target, made, out);
	free(after);
	free(target);
	return good;
}

static void remove_all(int dir, const char *name)
{
	int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);

	if (fd >= 0)
		fchmod(fd, 0700);
	for (struct dirent *n; d && (n = readdir(d));) {
		if (strcmp(n->d_name, ".") != 0 && strcmp(n->d_name, "..") != 0)
			remove_all(dirfd(d), n->d_name);
	}
	if (d)
		closedir(d);
	if (unlinkat(dir, name, 0) < 0)
		unlinkat(dir, name, AT_REMOVEDIR);
}

void world_remove(const char *top)
{
	remove_all(AT_FDCWD, top);
}

/* ---- the victim ---- */

static void become(const struct victim *v, pid_t parent)
{
	int in = v->in_fd >= 0 ? v->in_fd : open("/dev/null", O_RDONLY);
	int out = v->out_fd >= 0 ? v->out_fd : open(v->out, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	int err = open(v->err, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent || dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0 || chdir(v->cwd) < 0)
		_exit(126);
	signal(SIGPIPE, SIG_DFL);
	for (int fd = 3; fd < 1000; fd++)
		close(fd);
	execv(v->argv[0], (char *const *)(uintptr_t)v->argv);
	_exit(127);
}

bool victim_start(struct victim *v)
{
	pid_t parent = getpid();

	fflush(NULL);
	v->pid = fork();
	if (v->pid == 0)
		become(v, parent);
	return v->pid > 0;
}

int victim_wait(struct victim *v, unsigned seconds)
{
	uint64_t until = evil_now() + seconds * RCP_SEC;
	struct rusage use;
	bool killed = false;
	int status;

	for (;;) {
		pid_t got = wait4(v->pid, &status, WNOHANG, &use);

		if (got == v->pid)
			break;
		if (!killed && evil_now() > until) {
			kill(v->pid, SIGKILL);
			killed = true;
		}
		nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
	}
	v->peak_kib = use.ru_maxrss;
	return killed ? 1000 : WIFEXITED(status) ? WEXITSTATUS(status) : 2000 + WTERMSIG(status);
}
