/*
 * The responder's TCP port: accepts, looks at the first bytes of each connection, and hands over
 * the ones that are a control connection (TLS) or a data stream with a right proof. All others are
 * closed. Loop's thread only, callbacks from the loop.
 */
#ifndef RCP_BOOT_LISTEN_H
#define RCP_BOOT_LISTEN_H

#include "base/err.h"
#include "boot/preamble.h"
#include "boot/sock.h"

struct uv_loop_s;
struct rcp_listen;

#define RCP_LISTEN_PENDING     64 /* connections that have not said what they are; the oldest goes */
#define RCP_LISTEN_DEADLINE_MS 3000 /* to say it */

struct rcp_listen_ops {
	/* A TLS ClientHello waits in fd (nothing was read). fd is the callee's: close it if
	 * unwanted. peer: valid during the call. */
	void (*control)(void *arg, int fd, const union rcp_sa *peer);
	/* Is this preamble's proof right, and was this stream not there already? Fills the answer
	 * (rcp_preamble_check does both halves). */
	bool (*check)(void *arg, const struct rcp_preamble *p, uint8_t answer[RCP_PREAMBLE_ANSWER]);
	/* A proved and answered data stream; fd is the callee's. */
	void (*stream)(void *arg, int fd, const struct rcp_preamble *p);
};

struct rcp_listen_params {
	int family;	      /* 0 both, 4 or 6 */
	uint16_t port;	      /* 0: any free one */
	unsigned deadline_ms; /* 0: RCP_LISTEN_DEADLINE_MS */
	struct rcp_sock_options sock;
};

/* One port for both families (a dual-stack socket), IPv4 alone where the host has no IPv6. */
int rcp_listen_new(struct uv_loop_s *loop, const struct rcp_listen_params *params,
		   const struct rcp_listen_ops *ops, void *arg, struct rcp_err *err,
		   struct rcp_listen **out);
uint16_t rcp_listen_port(const struct rcp_listen *l);
/* Stops at once, pending connections are closed, no callback comes any more; legal inside a
 * callback. Memory goes when the loop has closed the handles. NULL is fine. */
void rcp_listen_free(struct rcp_listen **l);

#endif
