/*
 * The link over TCP: one or more connections. Chunk: U32 imm, U32 payload length, 64 header bytes,
 * payload. Credits: U32 imm words on the first connection, the other way.
 * Files are sent with sendfile, received straight into the ring's slots. A file that turns out shorter
 * or unreadable is filled up with zeros, so that the frame is whole and the sink's CRC check refuses it.
 *
 * A source that closes sends what is queued, ends its side and waits for the peer's end: 2 seconds
 * without a byte moving, or a minute, and it gives up. A sink closes at once. A peer that ends its side
 * without our close is RCP_E_LINK; one that breaks the protocol RCP_E_CONNECT. Raises no SIGPIPE.
 */
#ifndef RCP_LINK_STREAM_H
#define RCP_LINK_STREAM_H

#include "link/link.h"

struct uv_loop_s;

/*
 * fds: connected, non-blocking TCP sockets, proved and in the same order on both ends; owned by the
 * link from here on, also on failure (then they are closed by the loop's next turn). count 1 to 64.
 * `up` comes from the loop's next turn. All handles are closed before `down`.
 */
int rcp_stream_new(struct uv_loop_s *loop, const struct rcp_link_params *params, const int *fds,
		   unsigned count, struct rcp_err *err, struct rcp_link **out);

#endif
