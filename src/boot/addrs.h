/*
 * The addresses at which a host can be reached, as READY tells them. Loop's thread; rcp_addrs_local
 * asks the kernel, the rest is pure.
 */
#ifndef RCP_BOOT_ADDRS_H
#define RCP_BOOT_ADDRS_H

#include "base/bytes.h"
#include "base/err.h"
#include "boot/sock.h"

#define RCP_ADDRS_MAX 32

struct rcp_addrs {
	unsigned count;
	struct {
		union rcp_sa sa; /* port 0 */
		char netdev[16]; /* or "" */
	} at[RCP_ADDRS_MAX];
};

/*
 * This host's, best first. ssh_connection: the environment's SSH_CONNECTION ("client port server
 * port") or NULL; the server's address in it goes first, and only where that is a loopback address
 * are loopback addresses listed. Link-local and down ones are left out. family: 0, 4 or 6.
 */
int rcp_addrs_local(const char *ssh_connection, int family, struct rcp_err *err,
		    struct rcp_addrs *out);

/* Unless it is there already; to the front, or to the end (ignored where full). netdev may be NULL.
 */
void rcp_addrs_add(struct rcp_addrs *addrs, const union rcp_sa *sa, const char *netdev, bool front);

/* ADDR records: family 4 or 6, IPv4 in the first 4 of the 16 bytes. */
void rcp_addrs_encode(const struct rcp_addrs *addrs, struct rcp_wr *w);
/* A peer's READY.addrs. RCP_E_CONNECT: malformed or too many. Addresses that can't be connected to
 * (unspecified, multicast, link-local, unknown family) are left out. */
int rcp_addrs_decode(struct rcp_span blob, struct rcp_err *err, struct rcp_addrs *out);

#endif
