/*
 * The link over TCP: one or more connections. Chunk: U32 imm, U32 payload length, 64 header bytes,
 * payload. Credits: U32 imm words on the first connection, the other way.
 * Files are sent with sendfile, received straight into the ring's slots.
 */
#ifndef RCP_LINK_STREAM_H
#define RCP_LINK_STREAM_H

#include "link/link.h"

struct uv_loop_s;

/*
 * fds: connected, non-blocking TCP sockets, proved and in the same order on both ends; owned by the
 * link from here on, also on failure. count 1 to 64. `up` comes from the loop's next turn.
 */
int rcp_stream_new(struct uv_loop_s *loop, const struct rcp_link_params *params, const int *fds,
		   unsigned count, struct rcp_err *err, struct rcp_link **out);

#endif
