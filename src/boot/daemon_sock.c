/* The daemon's sockets, its own or systemd's, and systemd's notification: sd_listen_fds(3), sd_notify(3). */
#include "boot/daemon_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define SYSTEMD_FIRST 3

/* 0 for what is no number. */
static long number(const char *text)
{
	char *end;
	long n;

	errno = 0;
	n = strtol(text, &end, 10);
	return errno || end == text || *end ? 0 : n;
}

/* LISTEN_PID says that LISTEN_FDS is meant for this process and not for one that ran it. */
static int from_systemd(struct rcp_err *err, int fds[DAEMON_SOCKETS], unsigned *count)
{
	const char *pid = getenv("LISTEN_PID"), *n = getenv("LISTEN_FDS");
	long given = n ? number(n) : 0;
	int on = 0;
	socklen_t len = sizeof(on);

	if (!pid || !n || number(pid) != (long)getpid())
		return 0;
	if (given < 1 || given > DAEMON_SOCKETS)
		return rcp_err_set(err, RCP_E_USAGE, 0, "", "LISTEN_FDS", "%ld sockets; 1 to %d are taken", given,
				   DAEMON_SOCKETS);
	for (int fd = SYSTEMD_FIRST; fd < SYSTEMD_FIRST + (int)given; fd++) {
		if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &on, &len) < 0 || !on)
			return rcp_err_set(err, RCP_E_USAGE, errno, "", "LISTEN_FDS",
					   "descriptor %d is no socket that listens", fd);
		fcntl(fd, F_SETFD, FD_CLOEXEC);
		fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
		fds[(*count)++] = fd;
	}
	return 0;
}

static int open_one(const union rcp_sa *sa, bool both, int *out)
{
	int on = 1, off = 0, fd = socket(sa->sa.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)); /* after an end, at once again */
	if (sa->sa.sa_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, both ? &off : &on, sizeof(on));
	if (bind(fd, &sa->sa, rcp_sa_len(sa)) < 0 || listen(fd, SOMAXCONN) < 0) {
		int e = errno;

		close(fd);
		return e;
	}
	*out = fd;
	return 0;
}

static int failed(struct rcp_err *err, int e, const union rcp_sa *sa)
{
	char text[RCP_SA_TEXT];

	rcp_err_set(err, RCP_E_CONNECT, e, "listen", rcp_sa_text(sa, text), NULL);
	if (e == EADDRINUSE)
		rcp_err_fix(err, "another daemon has it; 'port' names another one");
	return (int)err->code;
}

/* Both families by one socket, or IPv4 where the host has no IPv6. */
static int open_all(const struct rcp_config *c, struct rcp_err *err, int *fd)
{
	union rcp_sa six = {.sa.sa_family = AF_INET6}, four = {.sa.sa_family = AF_INET};
	int e;

	rcp_sa_set_port(&six, (uint16_t)c->port);
	rcp_sa_set_port(&four, (uint16_t)c->port);
	e = open_one(&six, true, fd);
	if (e && e != EADDRINUSE && e != EACCES)
		e = open_one(&four, false, fd);
	return e ? failed(err, e, &four) : 0;
}

int daemon_sockets(const struct rcp_config *c, struct rcp_err *err, int fds[DAEMON_SOCKETS],
		   unsigned *count)
{
	*count = 0;
	if (from_systemd(err, fds, count) || *count)
		return (int)err->code;
	if (!c->listen) {
		if (!open_all(c, err, &fds[0]))
			*count = 1;
		return (int)err->code;
	}
	for (char **a = c->listen; *a && *count < DAEMON_SOCKETS; a++) {
		union rcp_sa sa;
		int e;

		rcp_sa_parse(*a, &sa); /* the parser of the configuration saw that it is one */
		rcp_sa_set_port(&sa, (uint16_t)c->port);
		e = open_one(&sa, false, &fds[*count]);
		if (e)
			return failed(err, e, &sa);
		(*count)++;
	}
	return 0;
}

void daemon_notify(const char *state)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	size_t len = path ? strlen(path) : 0;
	int fd;

	if (len < 2 || len >= sizeof(to.sun_path))
		return;
	memcpy(to.sun_path, path, len);
	if (path[0] == '@')
		to.sun_path[0] = 0;
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return;
	sendto(fd, state, strlen(state), MSG_NOSIGNAL | MSG_DONTWAIT, (const struct sockaddr *)&to,
	       (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len));
	close(fd);
}
