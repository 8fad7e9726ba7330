/*
 * The link through the control connection itself, where nothing else can be reached: CHUNK and
 * CREDIT messages. Owns no fd: its owner sends what it hands out and feeds it what comes in.
 */
#ifndef RCP_LINK_PIPE_H
#define RCP_LINK_PIPE_H

#include "link/link.h"

/*
 * What the control connection does for this link.
 * send_chunk: queue prefix (frame header, slot, length) and then body by reference; call `done(post)`
 * from the loop when the bytes are written (ok) or never will be (!ok), exactly once, also when the
 * connection is lost: `down` waits for it. Returns 0, or RCP_AGAIN when more than its share is queued
 * already, so that a `done` is still to come.
 */
struct rcp_pipe_out {
	void *arg;
	int (*send_chunk)(void *arg, const uint8_t *head, size_t head_len, const void *body,
			  size_t body_len, void (*done)(void *done_arg, bool ok), void *done_arg);
	void (*send)(void *arg, enum rcp_msg_type type, const void *msg);
	/* Call rcp_pipe_link_run soon, from the loop. */
	void (*wake)(void *arg);
};

int rcp_pipe_link_new(const struct rcp_pipe_out *out_ops, const struct rcp_link_params *params,
		      struct rcp_err *err, struct rcp_link **out);

/* Sink: where CHUNK's payload is to be read to before rcp_pipe_link_message is called with it: NULL
 * if the slot is not the peer's to fill (a protocol error). room: bytes there. */
uint8_t *rcp_pipe_link_slot(struct rcp_link *link, uint32_t slot, size_t *room);

/* A CHUNK (bytes = header and payload) or CREDIT message came in. RCP_E_CONNECT: malformed, and `down`
 * follows with the same cause. */
int rcp_pipe_link_message(struct rcp_link *link, const struct rcp_msg *msg, struct rcp_err *err);

/* Deliver what is due. When the control connection is gone: rcp_pipe_link_lost, with the cause that
 * `down` is to tell; say it before, or in the same turn as, the `done` of what was queued. The link has
 * no clock: the connection's own deadlines end a close that hangs. */
void rcp_pipe_link_run(struct rcp_link *link);
void rcp_pipe_link_lost(struct rcp_link *link, const struct rcp_err *cause);

#endif
