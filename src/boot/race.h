/*
 * The initiator's way to the responder's TCP port: connect to all addresses, staggered, families
 * taking turns; the first that answers wins. And the data streams to the winner. Loop's thread
 * only, callbacks from the loop.
 */
#ifndef RCP_BOOT_RACE_H
#define RCP_BOOT_RACE_H

#include "base/err.h"
#include "boot/addrs.h"
#include "boot/preamble.h"
#include "boot/sock.h"

struct uv_loop_s;
struct rcp_race;
struct rcp_dial;

#define RCP_RACE_STAGGER_MS  250
#define RCP_RACE_DEADLINE_MS 3000

struct rcp_race_params {
	const struct rcp_addrs *addrs; /* copied */
	uint16_t port;
	unsigned stagger_ms;  /* 0: RCP_RACE_STAGGER_MS; less where there are many addresses */
	unsigned deadline_ms; /* for all; 0: RCP_RACE_DEADLINE_MS */
	struct rcp_sock_options sock;
};

/*
 * The last callback. fd >= 0: connected, tuned, non-blocking, the callee's; to: its address, index:
 * its place in params.addrs (to leave it out of another race where it was the wrong host). fd -1:
 * cause is RCP_E_CONNECT and says of each address why not. rcp_race_free may be called inside.
 */
typedef void rcp_race_done(void *arg, int fd, const union rcp_sa *to, unsigned index,
			   const struct rcp_err *cause);

int rcp_race_new(struct uv_loop_s *loop, const struct rcp_race_params *params, rcp_race_done *done,
		 void *arg, struct rcp_err *err, struct rcp_race **out);
/* Before done: no callback comes. Memory goes when the loop has closed the handles. NULL is fine.
 */
void rcp_race_free(struct rcp_race **race);

struct rcp_dial_params {
	union rcp_sa to;
	unsigned streams; /* 1 to RCP_DIAL_MAX */
	uint8_t session[RCP_SESSION];
	uint16_t link;
	const uint8_t *key;   /* RCP_SECRET bytes, copied: for the preambles */
	unsigned deadline_ms; /* for all; 0: RCP_RACE_DEADLINE_MS */
	struct rcp_sock_options sock;
};

#define RCP_DIAL_MAX 64

/* The last callback. fds: params.streams of them in order of stream, proved by both ends, the
 * callee's (the array is not); NULL: cause tells. rcp_dial_free may be called inside. */
typedef void rcp_dial_done(void *arg, const int *fds, const struct rcp_err *cause);

/* Connect the data streams of one link. */
int rcp_dial_new(struct uv_loop_s *loop, const struct rcp_dial_params *params, rcp_dial_done *done,
		 void *arg, struct rcp_err *err, struct rcp_dial **out);
void rcp_dial_free(struct rcp_dial **dial);

#endif
