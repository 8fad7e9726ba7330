/*
 * Loaded before libc into a process under test. E2E_FAIL says what goes wrong in it:
 *   listen        is not allowed
 *   CALL PATH     pread, fsync, fdatasync give EIO for files with PATH in their name
 *   flip PATH     pwrite puts one bit down wrong
 *   slow PATH     pread takes 150 ms
 *   hang PATH     pread does not come back
 * E2E_FROM: only from this byte on.
 *
 * E2E_PROXY: rcp's own TCP connections go to this port of 127.0.0.1; the one that was meant is put into the file
 * E2E_PROXY_TO. Other programs' (ssh's) go where they want.
 */
#undef _FORTIFY_SOURCE /* its inline functions have the same names */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* The name that the headers make of a call where off_t is 64 bits wide. */
#define WIDE(name) name "64"

static void *real(const char *name)
{
	return dlsym(RTLD_NEXT, name);
}

static bool strikes(const char *call, int fd)
{
	const char *what = getenv("E2E_FAIL");
	size_t len = strlen(call);
	char link[64], path[PATH_MAX + 1];

	if (!what || strncmp(what, call, len) || what[len] != ' ')
		return false;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	ssize_t n = readlink(link, path, PATH_MAX);

	path[n < 0 ? 0 : n] = 0;
	return strstr(path, what + len + 1);
}

/* Are the bytes at `at` among those? */
static bool reaches(off_t at, size_t len)
{
	const char *from = getenv("E2E_FROM");

	return at + (off_t)len > (from ? atoll(from) : 0);
}

int listen(int fd, int backlog)
{
	const char *what = getenv("E2E_FAIL");
	int (*next)(int, int);

	if (what && !strcmp(what, "listen")) {
		errno = EACCES;
		return -1;
	}
	*(void **)(void *)&next = real("listen");
	return next(fd, backlog);
}

ssize_t pread(int fd, void *buf, size_t len, off_t at)
{
	static ssize_t (*next)(int, void *, size_t, off_t);

	if (!next)
		*(void **)(void *)&next = real(WIDE("pread"));
	if (strikes("slow", fd))
		nanosleep(&(struct timespec){.tv_nsec = 150000000}, NULL);
	while (reaches(at, len) && strikes("hang", fd))
		pause();
	if (reaches(at, len) && strikes("pread", fd)) {
		errno = EIO;
		return -1;
	}
	return next(fd, buf, len, at);
}

ssize_t pwrite(int fd, const void *buf, size_t len, off_t at)
{
	static ssize_t (*next)(int, const void *, size_t, off_t);
	char *wrong;

	if (!next)
		*(void **)(void *)&next = real(WIDE("pwrite"));
	if (!len || !reaches(at, len) || !strikes("flip", fd) || !(wrong = malloc(len)))
		return next(fd, buf, len, at);
	memcpy(wrong, buf, len);
	wrong[len / 2] ^= 0x10;
	ssize_t n = next(fd, wrong, len, at);

	free(wrong);
	return n;
}

static int sync_call(const char *call, int fd)
{
	int (*next)(int);

	*(void **)(void *)&next = real(call);
	if (strikes(call, fd)) {
		errno = EIO;
		return -1;
	}
	return next(fd);
}

int fsync(int fd)
{
	return sync_call("fsync", fd);
}

int fdatasync(int fd)
{
	return sync_call("fdatasync", fd);
}

static void tell_proxy(unsigned port)
{
	static unsigned told; /* the proxy may be reading it */
	const char *path = getenv("E2E_PROXY_TO");
	FILE *f = path && told != port ? fopen(path, "w") : NULL;

	if (!f)
		return;
	told = port;
	fprintf(f, "%u\n", port);
	fclose(f);
}

/* Under a name of its own: with _GNU_SOURCE the header's has a type that no definition can have. */
int proxied_connect(int fd, const struct sockaddr *to, socklen_t len) __asm__("connect");

int proxied_connect(int fd, const struct sockaddr *to, socklen_t len)
{
	const char *proxy = getenv("E2E_PROXY");
	int (*next)(int, const struct sockaddr *, socklen_t);
	struct sockaddr_in in;

	*(void **)(void *)&next = real("connect");
	if (!proxy || strncmp(program_invocation_short_name, "rcp", 3) ||
	    (to->sa_family != AF_INET && to->sa_family != AF_INET6))
		return next(fd, to, len);
	if (to->sa_family == AF_INET6) {
		errno = ENETUNREACH;
		return -1;
	}
	memcpy(&in, to, sizeof(in));
	tell_proxy(ntohs(in.sin_port));
	in.sin_port = htons((unsigned short)atoi(proxy));
	in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return next(fd, (struct sockaddr *)&in, sizeof(in));
}
