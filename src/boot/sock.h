/*
 * Socket addresses and options, in one place. Any thread, nothing blocks.
 */
#ifndef RCP_BOOT_SOCK_H
#define RCP_BOOT_SOCK_H

#include "base/err.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

/* IPv4 or IPv6; sa.sa_family tells. */
union rcp_sa {
	struct sockaddr sa;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
};

#define RCP_SA_TEXT 64 /* "[address%scope]:port" */

struct rcp_sock_options {
	int tos;	     /* IP_TOS and IPV6_TCLASS; -1 or 0: left alone */
	unsigned timeout_ms; /* TCP_USER_TIMEOUT, and keepalive probes that end about then; 0: none
			      */
};

socklen_t rcp_sa_len(const union rcp_sa *sa);
uint16_t rcp_sa_port(const union rcp_sa *sa);
void rcp_sa_set_port(union rcp_sa *sa, uint16_t port);
/* "192.0.2.1:80", "[2001:db8::1]:80"; without the port (and brackets) where it is 0. v4-mapped
 * addresses are shown as IPv4. Returns buf. */
char *rcp_sa_text(const union rcp_sa *sa, char buf[RCP_SA_TEXT]);

/* A numeric address without brackets, port 0; v4-mapped ones become IPv4. False: not one. */
bool rcp_sa_parse(const char *text, union rcp_sa *sa);

/* A TCP socket, non-blocking and close-on-exec, with NODELAY. -1 and err. */
int rcp_sock_new(int family, struct rcp_err *err);
/* NODELAY and the options on a connected or accepted socket. What the kernel refuses is left out:
 * none of them decides whether it works. */
void rcp_sock_tune(int fd, const struct rcp_sock_options *options);

/* The first few bytes on a new connection, whose buffer holds more than this: 0, or -1 with errno. */
int rcp_sock_say(int fd, const void *data, size_t len);

#endif
