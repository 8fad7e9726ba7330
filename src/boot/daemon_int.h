/*
 * Inside the daemon. daemon.c: the process that listens, forks and counts; daemon_sock.c: its sockets,
 * and systemd; daemon_queue.c: who is next; daemon_child.c: what serves one connection, and knows nothing of the others.
 *
 * A child has a SEQPACKET to the daemon, a letter and text in each packet:
 *   child: A module      may this module have one more connection?   daemon: + or -reason, perhaps after a while
 *   child: L text        a line for the log
 *   child: P             it lives (every few seconds, once it has a place)
 *   child: E             its connection is over, and it goes
 *   daemon: T            the signal that comes next is max-seconds'
 */
#ifndef RCP_BOOT_DAEMON_INT_H
#define RCP_BOOT_DAEMON_INT_H

#include "boot/config.h"
#include "boot/sock.h"
#include "rcp/rcp.h"

#define DAEMON_PACKET	4096
#define DAEMON_SOCKETS	16
#define DAEMON_ASK_MS	5000
#define DAEMON_LISTING	"-" /* in place of a module's name, which it can't be: to list them */

struct daemon_child_params {
	struct rcp_config *config; /* a forked copy */
	int fd;	     /* the connection, the callee's */
	int channel; /* to the daemon */
	unsigned threads;
};

/* The whole life of a child: its exit status. */
int daemon_child_run(const struct daemon_child_params *params);

/* Sockets that systemd hands over, or those of the configuration. *count of them into fds. */
int daemon_sockets(const struct rcp_config *config, struct rcp_err *err, int fds[DAEMON_SOCKETS],
		   unsigned *count);
/* To systemd, where it asked for it: "READY=1" and the like. */
void daemon_notify(const char *state);

#endif
