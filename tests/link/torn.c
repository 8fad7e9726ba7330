#include "torn.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>

#define FDS 1024

static atomic_bool marked[FDS];
static _Thread_local uint32_t seed = 1; /* software verbs have a thread that calls these, too */

ssize_t __real_send(int fd, const void *buf, size_t len, int flags);
ssize_t __real_recv(int fd, void *buf, size_t len, int flags);
ssize_t __real_sendmsg(int fd, const struct msghdr *msg, int flags);
ssize_t __real_recvmsg(int fd, struct msghdr *msg, int flags);
ssize_t __real_sendfile64(int out, int in, off_t *at, size_t len);
ssize_t __wrap_send(int fd, const void *buf, size_t len, int flags);
ssize_t __wrap_recv(int fd, void *buf, size_t len, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *msg, int flags);
ssize_t __wrap_sendfile64(int out, int in, off_t *at, size_t len);

void torn_mark(int fd)
{
	if (fd >= 0 && fd < FDS)
		marked[fd] = true;
}

void torn_clear(void)
{
	for (int fd = 0; fd < FDS; fd++)
		marked[fd] = false;
}

static uint32_t rnd(uint32_t below)
{
	seed = seed * 1664525u + 1013904223u;
	return (seed >> 8) % below;
}

/* 0: as it is. Otherwise at most so many bytes of len, or -1 and errno. */
static ssize_t tear(int fd, size_t len)
{
	uint32_t what = rnd(16);

	if (fd < 0 || fd >= FDS || !marked[fd] || !len || what < 4)
		return 0;
	if (what == 4 || what == 5) {
		errno = what == 4 ? EINTR : EAGAIN;
		return -1;
	}
	/* Few bytes, or any number. */
	return 1 + (ssize_t)rnd(what < 8 && len > 80 ? 80 : (uint32_t)len);
}

ssize_t __wrap_send(int fd, const void *buf, size_t len, int flags)
{
	ssize_t n = tear(fd, len);

	return n < 0 ? n : __real_send(fd, buf, n ? (size_t)n : len, flags);
}

ssize_t __wrap_recv(int fd, void *buf, size_t len, int flags)
{
	ssize_t n = tear(fd, len);

	return n < 0 ? n : __real_recv(fd, buf, n ? (size_t)n : len, flags);
}

ssize_t __wrap_sendfile64(int out, int in, off_t *at, size_t len)
{
	ssize_t n = tear(out, len);

	return n < 0 ? n : __real_sendfile64(out, in, at, n ? (size_t)n : len);
}

/* The message's vector, cut to len bytes. */
static struct msghdr cut(const struct msghdr *msg, struct iovec *iov, size_t len)
{
	struct msghdr m = *msg;

	m.msg_iov = iov;
	m.msg_iovlen = 0;
	for (size_t i = 0; i < msg->msg_iovlen && i < 8 && len; i++) {
		iov[i] = msg->msg_iov[i];
		if (iov[i].iov_len > len)
			iov[i].iov_len = len;
		len -= iov[i].iov_len;
		m.msg_iovlen++;
	}
	return m;
}

static size_t total(const struct msghdr *msg)
{
	size_t len = 0;

	for (size_t i = 0; i < msg->msg_iovlen; i++)
		len += msg->msg_iov[i].iov_len;
	return len;
}

ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags)
{
	struct iovec iov[8];
	ssize_t n = tear(fd, total(msg));

	if (n <= 0)
		return n < 0 ? n : __real_sendmsg(fd, msg, flags);
	struct msghdr m = cut(msg, iov, (size_t)n);

	return __real_sendmsg(fd, &m, flags);
}

ssize_t __wrap_recvmsg(int fd, struct msghdr *msg, int flags)
{
	struct iovec iov[8];
	ssize_t n = tear(fd, total(msg));

	if (n <= 0)
		return n < 0 ? n : __real_recvmsg(fd, msg, flags);
	struct msghdr m = cut(msg, iov, (size_t)n);

	return __real_recvmsg(fd, &m, flags);
}
