/*
 * Who gets the daemon's attention before he has proved a key: places of strangers, and who waits for one. Fair
 * between places of the network, and first come, first served within one. Pure: no clock, no descriptor is touched.
 */
#ifndef RCP_BOOT_DAEMON_QUEUE_H
#define RCP_BOOT_DAEMON_QUEUE_H

#include "boot/sock.h"

#define DAEMON_STRANGERS 64   /* children that don't know yet whom they serve */
#define DAEMON_WAITING	 1024 /* connections that wait to become one; a power of two */

/* One connection, or one child. */
struct daemon_mark {
	uint64_t from, since_ns; /* from: as of daemon_from */
};

struct daemon_queue {
	struct daemon_mark marks[DAEMON_WAITING]; /* as they came */
	union rcp_sa peers[DAEMON_WAITING];
	int fds[DAEMON_WAITING];
	unsigned count;
};

/* An IPv4 address or, as one host has as many of them as it likes, the /64 network of an IPv6 one. */
uint64_t daemon_from(const union rcp_sa *peer);

/* The oldest of those that come from where most come from. n at most DAEMON_WAITING, not 0. */
unsigned daemon_heaviest(const struct daemon_mark *marks, unsigned n);

/* -1, or a descriptor that had to make way: it may be this one. */
int daemon_queue_push(struct daemon_queue *q, int fd, const union rcp_sa *peer, uint64_t now_ns);
/* The oldest from where the fewest of `held` (at most DAEMON_STRANGERS) are. Not from an empty queue. */
int daemon_queue_pop(struct daemon_queue *q, const struct daemon_mark *held, unsigned n, union rcp_sa *peer);
/* One that has waited since `before_ns` or longer, or -1. */
int daemon_queue_late(struct daemon_queue *q, uint64_t before_ns);

#endif
