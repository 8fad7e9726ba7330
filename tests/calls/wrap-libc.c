/* libc's and libuv's calls: see `wrapped`. What takes words of variable number has all it can take. */
#include "wrap.h"

#include <dirent.h>
#include <glob.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <time.h>
#include <uv.h>

/* ---- memory ---- */

PTR(malloc, (size_t size), (size))
PTR(calloc, (size_t n, size_t size), (n, size))
PTR(realloc, (void *p, size_t size), (p, size))
PTR(reallocarray, (void *p, size_t n, size_t size), (p, n, size))
PTR(aligned_alloc, (size_t align, size_t size), (align, size))
CODE(posix_memalign, (void **p, size_t align, size_t size), (p, align, size))
PTR(strdup, (const char *s), (s))
PTR(strndup, (const char *s, size_t n), (s, n))
PTR(tsearch, (const void *key, void **root, int (*cmp)(const void *, const void *)), (key, root, cmp))
WRAP_AS(void *, mmap64, (void *at, size_t len, int prot, int flags, int fd, off_t off),
	(at, len, prot, flags, fd, off), errno = how, MAP_FAILED)
INT(madvise, (void *at, size_t len, int what), (at, len, what))

/* What it leaves where it fails is not said: no pointer to free or to read. */
static int no_text(char **out, int how)
{
	*out = (char *)16; /* NOLINT */
	errno = how;
	return -1;
}

int __wrap_asprintf(char **out, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int __wrap_asprintf(char **out, const char *fmt, ...)
{
	int how = SEAM_HOW("asprintf");
	va_list ap;

	if (how)
		return no_text(out, how);
	va_start(ap, fmt);
	int n = vasprintf(out, fmt, ap);

	va_end(ap);
	return n;
}

int __wrap___asprintf_chk(char **out, int flag, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
int __wrap___asprintf_chk(char **out, int flag, const char *fmt, ...)
{
	int how = SEAM_HOW("__asprintf_chk");
	va_list ap;

	(void)flag;
	if (how)
		return no_text(out, how);
	va_start(ap, fmt);
	int n = vasprintf(out, fmt, ap);

	va_end(ap);
	return n;
}

/* ---- files ---- */

INT(open64, (const char *path, int flags, mode_t mode), (path, flags, mode))
INT(openat64, (int dir, const char *path, int flags, mode_t mode), (dir, path, flags, mode))
INT(__open64_2, (const char *path, int flags), (path, flags))
INT(__openat64_2, (int dir, const char *path, int flags), (dir, path, flags))
LONG(syscall, (long number, long a, long b, long c, long d, long e, long f), (number, a, b, c, d, e, f))
PTR(fopen64, (const char *path, const char *mode), (path, mode))
PTR(fdopendir, (int fd), (fd))
PTR(readdir64, (DIR *dir), (dir))
INT(scandirat64, (int dir, const char *path, void *list, void *filter, void *compare), (dir, path, list, filter, compare))
PTR(realpath, (const char *path, char *out), (path, out))
PTR(__realpath_chk, (const char *path, char *out, size_t len), (path, out, len))
PTR(getcwd, (char *out, size_t len), (out, len))
LONG(getdents64, (int fd, void *buf, size_t len), (fd, buf, len))
WRAP_AS(int, glob64, (const char *pattern, int flags, int (*errf)(const char *, int), glob_t *out),
	(pattern, flags, errf, out), (void)0, GLOB_NOSPACE)
INT(access, (const char *path, int mode), (path, mode))
MOVE(read, (int fd, void *buf, size_t len), (fd, buf, len))
MOVE(write, (int fd, const void *buf, size_t len), (fd, buf, len))
LONG(writev, (int fd, const void *iov, int n), (fd, iov, n))
MOVE(pread64, (int fd, void *buf, size_t len, off_t at), (fd, buf, len, at))
MOVE(pwrite64, (int fd, const void *buf, size_t len, off_t at), (fd, buf, len, at))
MOVE(sendfile64, (int out, int in, off_t *at, size_t len), (out, in, at, len))
LONG(lseek64, (int fd, off_t at, int whence), (fd, at, whence))
INT(ftruncate64, (int fd, off_t size), (fd, size))
INT(fallocate64, (int fd, int mode, off_t at, off_t len), (fd, mode, at, len))
CODE(posix_fadvise64, (int fd, off_t at, off_t len, int what), (fd, at, len, what))
INT(sync_file_range, (int fd, off_t at, off_t len, unsigned how_), (fd, at, len, how_))
INT(fsync, (int fd), (fd))
INT(fdatasync, (int fd), (fd))
INT(flock, (int fd, int op), (fd, op))
INT(stat64, (const char *path, void *st), (path, st))
INT(fstat64, (int fd, void *st), (fd, st))
INT(fstatat64, (int dir, const char *path, void *st, int flags), (dir, path, st, flags))
INT(fstatfs64, (int fd, void *fs), (fd, fs))
INT(fstatvfs64, (int fd, void *fs), (fd, fs))
INT(chmod, (const char *path, mode_t mode), (path, mode))
INT(fchmod, (int fd, mode_t mode), (fd, mode))
INT(fchown, (int fd, uid_t u, gid_t g), (fd, u, g))
INT(fchownat, (int dir, const char *path, uid_t u, gid_t g, int flags), (dir, path, u, g, flags))
INT(futimens, (int fd, const void *times), (fd, times))
INT(utimensat, (int dir, const char *path, const void *times, int flags), (dir, path, times, flags))
INT(mkdir, (const char *path, mode_t mode), (path, mode))
INT(mkdirat, (int dir, const char *path, mode_t mode), (dir, path, mode))
INT(mknodat, (int dir, const char *path, mode_t mode, dev_t dev), (dir, path, mode, dev))
INT(symlinkat, (const char *to, int dir, const char *path), (to, dir, path))
LONG(readlinkat, (int dir, const char *path, char *buf, size_t len), (dir, path, buf, len))
INT(linkat, (int a, const char *from, int b, const char *to, int flags), (a, from, b, to, flags))
INT(renameat, (int a, const char *from, int b, const char *to), (a, from, b, to))
INT(renameat2, (int a, const char *from, int b, const char *to, unsigned flags), (a, from, b, to, flags))
INT(unlink, (const char *path), (path))
INT(unlinkat, (int dir, const char *path, int flags), (dir, path, flags))
LONG(fgetxattr, (int fd, const char *name, void *value, size_t len), (fd, name, value, len))
LONG(lgetxattr, (const char *path, const char *name, void *value, size_t len), (path, name, value, len))
LONG(flistxattr, (int fd, char *list, size_t len), (fd, list, len))
LONG(llistxattr, (const char *path, char *list, size_t len), (path, list, len))
INT(fsetxattr, (int fd, const char *name, const void *value, size_t len, int flags),
    (fd, name, value, len, flags))
INT(lsetxattr, (const char *path, const char *name, const void *value, size_t len, int flags),
    (path, name, value, len, flags))
INT(fremovexattr, (int fd, const char *name), (fd, name))
INT(lremovexattr, (const char *path, const char *name), (path, name))
INT(fchdir, (int fd), (fd))

/* A close that fails has closed all the same. One of what is not open is somebody else's. */
int __real_close(int fd);
int __wrap_close(int fd);
int __wrap_close(int fd)
{
	uintptr_t place = seam_place(__builtin_return_address(0));
	int how = seam_how("close", place), rc = __real_close(fd);

	if (rc < 0 && errno == EBADF)
		seam_say("close %d 0x%lx\n", fd, (unsigned long)place);
	if (!how)
		return rc;
	errno = how;
	return -1;
}

CLOSES(fclose, (FILE *f), (f))
CLOSES(closedir, (DIR *d), (d))

/* ---- sockets, processes, the rest of the kernel ---- */

INT(socket, (int family, int type, int protocol), (family, type, protocol))
INT(socketpair, (int family, int type, int protocol, int fd[2]), (family, type, protocol, fd))
INT(bind, (int fd, const void *sa, unsigned len), (fd, sa, len))
INT(listen, (int fd, int backlog), (fd, backlog))
INT(accept4, (int fd, void *sa, unsigned *len, int flags), (fd, sa, len, flags))
INT(connect, (int fd, const void *sa, unsigned len), (fd, sa, len))
INT(getpeername, (int fd, void *sa, unsigned *len), (fd, sa, len))
INT(getsockname, (int fd, void *sa, unsigned *len), (fd, sa, len))
INT(getsockopt, (int fd, int level, int name, void *value, unsigned *len), (fd, level, name, value, len))
INT(setsockopt, (int fd, int level, int name, const void *value, unsigned len), (fd, level, name, value, len))
INT(shutdown, (int fd, int what), (fd, what))
MOVE(recv, (int fd, void *buf, size_t len, int flags), (fd, buf, len, flags))
LONG(recvmsg, (int fd, void *msg, int flags), (fd, msg, flags))
MOVE(send, (int fd, const void *buf, size_t len, int flags), (fd, buf, len, flags))
LONG(sendmsg, (int fd, const void *msg, int flags), (fd, msg, flags))
LONG(sendto, (int fd, const void *buf, size_t len, int flags, const void *to, unsigned to_len),
     (fd, buf, len, flags, to, to_len))
INT(poll, (struct pollfd * fds, nfds_t n, int ms), (fds, n, ms))
INT(pipe2, (int fd[2], int flags), (fd, flags))
INT(eventfd, (unsigned count, int flags), (count, flags))
INT(signalfd, (int fd, const sigset_t *mask, int flags), (fd, mask, flags))
INT(fcntl64, (int fd, int cmd, long arg), (fd, cmd, arg))
INT(ioctl, (int fd, unsigned long request, void *arg), (fd, request, arg))
INT(fork, (void), ())
INT(waitpid, (pid_t pid, int *status, int options), (pid, status, options))
INT(kill, (pid_t pid, int sig), (pid, sig))
INT(prctl, (int what, long a, long b, long c, long d), (what, a, b, c, d))
LONG(getrandom, (void *buf, size_t len, unsigned flags), (buf, len, flags))
INT(getrlimit64, (int what, void *lim), (what, lim))
INT(setrlimit64, (int what, const void *lim), (what, lim))
LONG(sysconf, (int name), (name))
INT(nanosleep, (const struct timespec *t, struct timespec *left), (t, left))
INT(sigaction, (int sig, const struct sigaction *now, struct sigaction *before), (sig, now, before))
CODE(pthread_create, (void *thread, const void *attr, void *(*fn)(void *), void *arg), (thread, attr, fn, arg))
CODE(pthread_sigmask, (int what, const sigset_t *now, sigset_t *before), (what, now, before))
CODE(posix_spawnp,
     (pid_t * pid, const char *file, const void *actions, const void *attr, char *const argv[], char *const env[]),
     (pid, file, actions, attr, argv, env))
CODE(posix_spawn_file_actions_init, (void *actions), (actions))
CODE(posix_spawn_file_actions_adddup2, (void *actions, int from, int to), (actions, from, to))
CODE(posix_spawn_file_actions_addclosefrom_np, (void *actions, int from), (actions, from))
CODE(posix_spawnattr_init, (void *attr), (attr))
INT(getifaddrs, (void *out), (out))
CODE(getgrgid_r, (gid_t id, void *g, char *buf, size_t len, void **out), (id, g, buf, len, out))
CODE(getgrnam_r, (const char *name, void *g, char *buf, size_t len, void **out), (name, g, buf, len, out))
CODE(getpwnam_r, (const char *name, void *p, char *buf, size_t len, void **out), (name, p, buf, len, out))
CODE(getpwuid_r, (uid_t id, void *p, char *buf, size_t len, void **out), (id, p, buf, len, out))
PTR(getgrnam, (const char *name), (name))
PTR(getpwnam, (const char *name), (name))
INT(setgroups, (size_t n, const gid_t *list), (n, list))
INT(setresgid, (gid_t r, gid_t e, gid_t s), (r, e, s))
INT(setresuid, (uid_t r, uid_t e, uid_t s), (r, e, s))

/* ---- libuv ---- */

UV(uv_loop_init, (uv_loop_t * loop), (loop))
UV(uv_async_init, (uv_loop_t * loop, uv_async_t *h, uv_async_cb cb), (loop, h, cb))
UV(uv_poll_init, (uv_loop_t * loop, uv_poll_t *h, int fd), (loop, h, fd))
UV(uv_getaddrinfo,
   (uv_loop_t * loop, uv_getaddrinfo_t *req, uv_getaddrinfo_cb cb, const char *node, const char *service,
    const struct addrinfo *hints),
   (loop, req, cb, node, service, hints))

/* Its realloc is left alone: without memory for the loop's own table libuv ends the process. */
static void *uv_malloc(size_t size)
{
	int how = SEAM_HOW("uv:malloc");

	if (!how)
		return __real_malloc(size);
	errno = how;
	return NULL;
}

void *__real_realloc(void *p, size_t size);
void *__real_calloc(size_t n, size_t size);

static void __attribute__((constructor(102))) hook(void)
{
	uv_replace_allocator(uv_malloc, __real_realloc, __real_calloc, free);
}
