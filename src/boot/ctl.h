/*
 * The control connection: framed messages (wire/msg.h) over a pair of pipe fds (ssh's, or the
 * server's standard input and output) or over TCP with TLS. Checks what a peer may say and when,
 * answers for liveness, carries chunks where there is no better link.
 *
 * Loop's thread only. Callbacks come from the loop, never from inside a call. Any call is legal
 * inside any callback. Life: new -> ready -> messages -> down, exactly once -> free.
 */
#ifndef RCP_BOOT_CTL_H
#define RCP_BOOT_CTL_H

#include "base/err.h"
#include "boot/tls.h"
#include "link/pipe.h"
#include "wire/msg.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct uv_loop_s;
struct rcp_ctl;

/* What the responder writes before its first frame on a pipe: all before it is the remote shell's
 * talk, not the protocol's. Begins with a byte that no shell prints and that is not in it again. */
#define RCP_CTL_MARKER	   "\0rcp-1\r\n"
#define RCP_CTL_MARKER_LEN 8
#define RCP_CTL_JUNK_MAX   (64 << 10)

/* More than this waiting means that the peer does not read: down with RCP_E_LINK. */
#define RCP_CTL_QUEUE_MAX (64u << 20)
/* send_chunk says RCP_AGAIN while this much of chunks waits (one is always taken). */
#define RCP_CTL_CHUNK_SHARE (2u << 20)

struct rcp_ctl_ops {
	/* Both ends are there: the marker came (pipe, initiator), the key was proved (TLS). Pipe,
	 * responder: from the first turn. No message comes before. May be NULL. */
	void (*ready)(void *arg);
	/*
	 * Decoded, legal for the sender in the phase. Spans are valid during the call only. ABORT
	 * is delivered like any other; PING is not. CHUNK: bytes point to where chunk_place said.
	 */
	void (*message)(void *arg, const struct rcp_msg *msg);
	/* All that was sent has been written. May be NULL. */
	void (*drained)(void *arg);
	/* Initiator, pipe: what came before the marker (shell banners), in one piece or none;
	 * before ready, or before the down that it caused. May be NULL. */
	void (*banner)(void *arg, const char *bytes, size_t len);
	/* Where a CHUNK's bytes (64-byte header and payload) go; NULL: not the peer's to fill,
	 * which is an error of the protocol. room: bytes there. May be NULL (no chunks here). */
	uint8_t *(*chunk_place)(void *arg, uint32_t slot, size_t *room);
	/* Asked for by rcp_ctl_wake. May be NULL. */
	void (*wake)(void *arg);
	/* The last callback; every send_chunk had its done, fds and handles are gone. cause is
	 * RCP_OK after a wanted close. rcp_ctl_free may be called from inside. */
	void (*down)(void *arg, const struct rcp_err *cause);
};

/*
 * rfd, wfd: pipes or sockets (may be the same), the control connection's from here on, also on
 * failure. They are made non-blocking and given their flags back at the end (they may be shared
 * with others). Terminals and regular files are refused. responder: this end is it (writes the
 * marker); otherwise the peer is (awaits the marker). name: the peer, for messages; copied.
 */
int rcp_ctl_new_pipe(struct uv_loop_s *loop, int rfd, int wfd, bool responder, const char *name,
		     const struct rcp_ctl_ops *ops, void *arg, struct rcp_err *err,
		     struct rcp_ctl **out);

/*
 * fd: a connected TCP socket, owned from here on, also on failure. tls.server: this end is the
 * responder. The handshake has handshake_ms, then down with RCP_E_CONNECT.
 */
int rcp_ctl_new_tls(struct uv_loop_s *loop, int fd, const struct rcp_tls_params *tls,
		    unsigned handshake_ms, const char *name, const struct rcp_ctl_ops *ops,
		    void *arg, struct rcp_err *err, struct rcp_ctl **out);

/* Another owner from here on. */
void rcp_ctl_set_ops(struct rcp_ctl *ctl, const struct rcp_ctl_ops *ops, void *arg);

/* What the peer may send: the phase (BOOT at first) and, once known, its role (0 = not known).
 * Messages that were received but not yet delivered are judged by the newest setting. */
void rcp_ctl_set_phase(struct rcp_ctl *ctl, enum rcp_phase phase);
void rcp_ctl_set_peer_role(struct rcp_ctl *ctl, enum rcp_role role);
/* Longest chunk payload that the peer may send; 0 at first. */
void rcp_ctl_set_chunk_bytes(struct rcp_ctl *ctl, uint32_t chunk_bytes);

/*
 * From here to rcp_ctl_count and in rcp_ctl_keepalive, set_phase and their like NULL stands for a connection that is
 * gone: what still ends after it (links, attempts, jobs) need not know.
 */

/* Encode and queue; written from the loop. Does nothing on a connection that is closing or down. A
 * message that can't be encoded (too long) takes the connection down. msg: the struct of that type.
 * Before ready it waits (TLS) or goes out at once (pipe). */
void rcp_ctl_send(struct rcp_ctl *ctl, enum rcp_msg_type type, const void *msg);
/* Tell the peer why it ends. */
void rcp_ctl_send_abort(struct rcp_ctl *ctl, const struct rcp_err *cause);

/* As rcp_pipe_out.send_chunk. RCP_E_LINK: closing or down, done will not be called. */
int rcp_ctl_send_chunk(struct rcp_ctl *ctl, const uint8_t *head, size_t head_len, const void *body,
		       size_t body_len, void (*done)(void *done_arg, bool ok), void *done_arg);
/* ops.wake from the loop's next turn. */
void rcp_ctl_wake(struct rcp_ctl *ctl);
/* The three above as the pipe link wants them. */
struct rcp_pipe_out rcp_ctl_pipe_out(struct rcp_ctl *ctl);

/* Bytes that wait here to be written, chunks included: for back-pressure. */
size_t rcp_ctl_queued_bytes(const struct rcp_ctl *ctl);
/* Bytes that came in and went out, frames and all (TLS: plaintext). */
void rcp_ctl_count(const struct rcp_ctl *ctl, uint64_t *in_bytes, uint64_t *out_bytes);

/* What of the copy has moved through it, in steps of no unit: NOTE is none, PING where it tells of work that goes on. */
uint64_t rcp_ctl_moved(const struct rcp_ctl *ctl);
/* Is this end at work on something, not waiting for the other? PING says so, and how far (in steps of no unit); and what the other's last one said. */
void rcp_ctl_set_works(struct rcp_ctl *ctl, bool works, uint64_t worked);
bool rcp_ctl_peer_works(const struct rcp_ctl *ctl);

/* No more messages until resumed; the peer feels it. Silence does not count meanwhile. */
void rcp_ctl_pause(struct rcp_ctl *ctl, bool pause);

/* Send PING when nothing was sent for interval_ms; down with RCP_E_LINK when nothing came for
 * dead_ms. 0 switches either off. From ready on. On TCP also the kernel's keepalive and user
 * timeout. */
void rcp_ctl_keepalive(struct rcp_ctl *ctl, unsigned interval_ms, unsigned dead_ms);

/* What it has died of, where `down` is still to say so; else NULL. */
const struct rcp_err *rcp_ctl_untold(const struct rcp_ctl *ctl);

/* The next message (PINGs don't count) must come within ms, or down with RCP_E_CONNECT: "no `what`
 * from the peer within N s". 0: no longer. */
void rcp_ctl_expect(struct rcp_ctl *ctl, unsigned ms, const char *what);

/* Write what is queued, tell the peer that this is the end, wait for its end; at most flush_ms (0:
 * drop all at once). Messages that still come are not delivered. Then down with RCP_OK. */
void rcp_ctl_close(struct rcp_ctl *ctl, unsigned flush_ms);
/* End it for a reason of the owner's, at once: down with this cause. */
void rcp_ctl_fail(struct rcp_ctl *ctl, const struct rcp_err *cause);

/* Memory goes when the loop has closed the handles. Before down: no callback comes any more, not
 * even a chunk's done. NULL is fine. */
void rcp_ctl_free(struct rcp_ctl **ctl);

/* TLS only (RCP_E_CONNECT on a pipe), after ready: see tls.h. */
int rcp_ctl_export(struct rcp_ctl *ctl, const char *label, uint8_t *out, size_t len,
		   struct rcp_err *err);
const char *rcp_ctl_identity(const struct rcp_ctl *ctl);

#endif
