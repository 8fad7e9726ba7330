#include "seam.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#define PLACES 8192 /* a power of two */
#define FDS_MAX 1024
#define FDS_OWN 900 /* what the seam itself holds is above */

/* The seam's own calls are no calls of rcp's. */
int __real_open64(const char *path, int flags, ...);
ssize_t __real_write(int fd, const void *buf, size_t len);
int __real_close(int fd);
int __real_fcntl64(int fd, int cmd, ...);
extern const char __executable_start;

static struct place {
	const char *name;
	uintptr_t place;
	unsigned count;
} places[PLACES];

static struct {
	char name[64];
	uintptr_t place; /* 0: any */
	unsigned n;
	bool on;
	int how;
	unsigned seen; /* where any place will do */
} rule;

static int count_fd = -1, report_fd = -1; /* from the start on: later the process may be confined */
static bool begun, open_before[FDS_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static const struct {
	const char *name;
	int value;
} words[] = {
	{"SHORT", SEAM_SHORT},
	{"FAIL", SEAM_FAIL},
#define E(name) {#name, name}
	E(EACCES), E(EADDRINUSE), E(EAFNOSUPPORT), E(EAGAIN), E(ECHILD), E(ECONNABORTED), E(ECONNREFUSED),
	E(ECONNRESET), E(EFBIG), E(EINTR), E(EINVAL), E(EIO), E(EMFILE), E(EMLINK), E(ENOBUFS), E(ENOLCK),
	E(ENOMEM), E(ENOSPC), E(ENOSYS), E(ENOTCONN), E(EOPNOTSUPP), E(EPERM), E(EPIPE), E(ESRCH), E(EXDEV),
#undef E
};

static void refuse(const char *word)
{
	fprintf(stderr, "RCP_CALLS: %s\n", word);
	_exit(98);
}

/* NAME@PLACE:N[+]:HOW; names may have a colon */
static void rule_parse(char *text)
{
	char *at = strchr(text, '@'), *colon = at ? strchr(at, ':') : NULL, *how = NULL;

	if (!colon || at - text >= (long)sizeof(rule.name))
		refuse(text);
	memcpy(rule.name, text, (size_t)(at - text));
	rule.place = at[1] == '-' ? 0 : strtoul(at + 1, NULL, 0);
	rule.n = (unsigned)strtoul(colon + 1, &how, 10);
	rule.on = *how == '+';
	how += rule.on;
	for (size_t i = 0; *how == ':' && i < sizeof(words) / sizeof(words[0]); i++)
		if (!strcmp(how + 1, words[i].name))
			rule.how = words[i].value;
	if (!rule.how || !rule.n)
		refuse(text);
}

uintptr_t seam_place(const void *from)
{
	return (uintptr_t)from - (uintptr_t)&__executable_start;
}

static struct place *place_find(const char *name, uintptr_t place)
{
	size_t at = (place * 0x9e3779b97f4a7c15u >> 40) % PLACES;

	for (size_t i = 0; i < PLACES; i++, at = (at + 1) % PLACES) {
		struct place *p = &places[at];

		if (p->name == NULL)
			*p = (struct place){.name = name, .place = place};
		if (p->place == place && !strcmp(p->name, name))
			return p;
	}
	refuse("too many places");
	return NULL;
}

int seam_how(const char *name, uintptr_t place)
{
	int saved = errno, how = 0;

	if (!begun) /* a sanitizer's own beginning */
		return 0;
	pthread_mutex_lock(&lock);
	unsigned n = ++place_find(name, place)->count;

	if (rule.how && (!rule.place || rule.place == place) && !strcmp(rule.name, name)) {
		if (!rule.place)
			n = ++rule.seen;
		if (n == rule.n || (rule.on && n > rule.n))
			how = rule.how;
	}
	pthread_mutex_unlock(&lock);
	if (how && (n == rule.n || !rule.place)) /* not each of very many */
		seam_say("hit %s 0x%lx %u\n", name, (unsigned long)place, n);
	errno = saved;
	return how;
}

/* Out of the way of the numbers that the program gets. */
static int file_open(const char *path)
{
	int fd = __real_open64(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	int high = fd < 0 ? -1 : __real_fcntl64(fd, F_DUPFD_CLOEXEC, FDS_OWN);

	if (high < 0 || high >= FDS_MAX)
		refuse(path);
	__real_close(fd);
	open_before[high] = true;
	return high;
}

static void append(int fd, const char *text, size_t len)
{
	if (fd >= 0 && __real_write(fd, text, len) != (ssize_t)len)
		refuse("write");
}

void seam_say(const char *fmt, ...)
{
	char text[512];
	int saved = errno;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	append(report_fd, text, strlen(text));
	errno = saved;
}

static void tell_fd(int fd)
{
	char link[64], name[256];

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	ssize_t n = readlink(link, name, sizeof(name) - 1);

	name[n < 0 ? 0 : n] = 0;
	seam_say("fd %d %s\n", fd, name);
}

/* By atexit: a leak checker, which opens files itself, comes after that. */
static void end(void)
{
	static char text[PLACES * 64];
	size_t len = 0;

	uv_library_shutdown(); /* it keeps a pipe until the end */
	for (int fd = 3; fd < FDS_MAX; fd++) {
		if (!open_before[fd] && __real_fcntl64(fd, F_GETFD) >= 0)
			tell_fd(fd);
	}
	for (size_t i = 0; i < PLACES; i++) {
		if (places[i].name)
			len += (size_t)snprintf(text + len, sizeof(text) - len, "count %s 0x%lx %u\n",
						places[i].name, (unsigned long)places[i].place,
						places[i].count);
	}
	append(count_fd, text, len);
}

/* First of all constructors, so that what libraries open is seen, too. */
static void __attribute__((constructor(101))) begin(void)
{
	const char *given = getenv("RCP_CALLS");
	char text[2048], *save = NULL;

	begun = true;
	for (int fd = 0; fd < FDS_MAX; fd++)
		open_before[fd] = __real_fcntl64(fd, F_GETFD) >= 0;
	atexit(end);
	if (!given)
		return;
	snprintf(text, sizeof(text), "%s", given);
	unsetenv("RCP_CALLS");
	for (char *w = strtok_r(text, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
		if (!strncmp(w, "count=", 6))
			count_fd = file_open(w + 6);
		else if (!strncmp(w, "report=", 7))
			report_fd = file_open(w + 7);
		else if (!strncmp(w, "fail=", 5))
			rule_parse(w + 5);
		else
			refuse(w);
	}
}
