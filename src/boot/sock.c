#include "boot/sock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

socklen_t rcp_sa_len(const union rcp_sa *sa)
{
	return sa->sa.sa_family == AF_INET6 ? sizeof(sa->in6) : sizeof(sa->in);
}

uint16_t rcp_sa_port(const union rcp_sa *sa)
{
	return ntohs(sa->sa.sa_family == AF_INET6 ? sa->in6.sin6_port : sa->in.sin_port);
}

void rcp_sa_set_port(union rcp_sa *sa, uint16_t port)
{
	if (sa->sa.sa_family == AF_INET6)
		sa->in6.sin6_port = htons(port);
	else
		sa->in.sin_port = htons(port);
}

char *rcp_sa_text(const union rcp_sa *sa, char buf[RCP_SA_TEXT])
{
	char ip[INET6_ADDRSTRLEN] = "?", scope[IF_NAMESIZE + 1] = "";
	bool six = sa->sa.sa_family == AF_INET6 && !IN6_IS_ADDR_V4MAPPED(&sa->in6.sin6_addr);
	uint16_t port = rcp_sa_port(sa);

	if (six)
		inet_ntop(AF_INET6, &sa->in6.sin6_addr, ip, sizeof(ip));
	else if (sa->sa.sa_family == AF_INET6)
		inet_ntop(AF_INET, &sa->in6.sin6_addr.s6_addr[12], ip, sizeof(ip));
	else if (sa->sa.sa_family == AF_INET)
		inet_ntop(AF_INET, &sa->in.sin_addr, ip, sizeof(ip));
	if (six && sa->in6.sin6_scope_id)
		snprintf(scope, sizeof(scope), "%%%u", sa->in6.sin6_scope_id);
	if (!port)
		snprintf(buf, RCP_SA_TEXT, "%s%s", ip, scope);
	else
		snprintf(buf, RCP_SA_TEXT, six ? "[%s%s]:%u" : "%s%s:%u", ip, scope, port);
	return buf;
}

bool rcp_sa_parse(const char *text, union rcp_sa *sa)
{
	const char *four = strncmp(text, "::ffff:", 7) == 0 ? text + 7 : text;

	memset(sa, 0, sizeof(*sa));
	if (inet_pton(AF_INET, four, &sa->in.sin_addr) == 1)
		sa->sa.sa_family = AF_INET;
	else if (inet_pton(AF_INET6, text, &sa->in6.sin6_addr) == 1)
		sa->sa.sa_family = AF_INET6;
	return sa->sa.sa_family != 0;
}

int rcp_sock_new(int family, struct rcp_err *err)
{
	int on = 1;
	int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0) {
		rcp_err_set(err, RCP_E_CONNECT, errno, "socket", NULL, NULL);
		return -1;
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	return fd;
}

/* Probes start at half of the time and end with it; the user timeout covers unacknowledged data. */
static void tune_timeout(int fd, unsigned ms)
{
	int on = 1, idle = (int)(ms / 2000), gap = (int)(ms / 6000), probes = 3;
	unsigned timeout = ms;

	idle = idle < 1 ? 1 : idle;
	gap = gap < 1 ? 1 : gap;
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &gap, sizeof(gap));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout, sizeof(timeout));
}

void rcp_sock_tune(int fd, const struct rcp_sock_options *options)
{
	int on = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (options->tos > 0) {
		/* A dual-stack socket sends IPv4 with the one, IPv6 with the other. */
		setsockopt(fd, IPPROTO_IP, IP_TOS, &options->tos, sizeof(options->tos));
		setsockopt(fd, IPPROTO_IPV6, IPV6_TCLASS, &options->tos, sizeof(options->tos));
	}
	if (options->timeout_ms)
		tune_timeout(fd, options->timeout_ms);
}

int rcp_sock_say(int fd, const void *data, size_t len)
{
	const char *at = data;

	while (len) {
		ssize_t n = send(fd, at, len, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		at += n;
		len -= (size_t)n;
	}
	return 0;
}
