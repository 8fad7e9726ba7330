/*
 * Inside the control connection. ctl.c: life, handles, deadlines; ctl_in.c: bytes to messages;
 * ctl_out.c: messages to bytes. Nobody else includes this.
 */
#ifndef RCP_BOOT_CTL_IMPL_H
#define RCP_BOOT_CTL_IMPL_H

#include "boot/ctl.h"

#include <sys/types.h>
#include <sys/uio.h>
#include <uv.h>

#define CTL_IN_BYTES	 (RCP_FRAME_HEADER + RCP_FRAME_MAX) /* the longest frame */
#define CTL_READ_BYTES	 (64u << 10)			    /* of one read */
#define CTL_TURN_BYTES	 (4u << 20) /* of one direction, before others have their turn */
#define CTL_CIPHER_BYTES (32u << 10)
#define CTL_BROKEN_MS	 2000 /* after a failed write, for the peer's last words to come in */

enum ctl_state {
	CTL_OPENING, /* marker or handshake awaited */
	CTL_OPEN,
	CTL_CLOSING, /* writing what is queued */
	CTL_LINGER,  /* all is written, the peer's end awaited */
	CTL_DEAD,    /* handles are being closed */
	CTL_DOWN     /* down was delivered */
};

/* What the next turn has to do. */
enum ctl_due {
	CTL_DUE_FLUSH = 1,
	CTL_DUE_READ = 2,
	CTL_DUE_WAKE = 4,
	CTL_DUE_OPEN = 8, /* the responder's ready, the TLS client's first word */
};

/* Bytes to be written: owned (w) or referred to (ref). */
struct ctl_seg {
	struct ctl_seg *next;
	struct rcp_wr w;
	const uint8_t *ref;
	size_t len, at; /* len: of ref */
	void (*done)(void *arg, bool ok);
	void *done_arg;
};

struct ctl_fd {
	uv_poll_t poll;
	int fd;		     /* -1: closed */
	int flags;	     /* to be given back */
	int events;	     /* polled for now */
	bool is_sock, polls; /* polls: the handle is open */
};

struct rcp_ctl {
	const struct rcp_ctl_ops *ops; /* NULL: nobody listens any more */
	void *arg;
	uv_loop_t *loop;
	char name[256];
	enum ctl_state state;
	struct rcp_err cause, broken; /* broken: of the write side */
	bool delivering, freed;

	struct ctl_fd r, w; /* one socket: all by r, w.fd is the same and w.poll unused */
	bool one_fd;
	uv_idle_t turn;
	uv_timer_t timer;
	unsigned handles; /* not yet closed */
	unsigned due;	  /* enum ctl_due */

	/* deadlines, in the loop's ms; 0: none */
	uint64_t open_at, expect_at, end_at, last_in, last_out;
	unsigned open_ms, expect_ms, ping_ms, dead_ms;
	char expected[48];
	bool graced; /* expect_at or open_at was put off once */

	struct rcp_tls *tls; /* NULL: a pipe */
	bool server;

	/* in */
	enum rcp_phase phase;
	enum rcp_role peer_role;
	bool peer_initiates;
	bool await_marker, paused, eof;
	uint32_t chunk_bytes;
	uint8_t *in; /* CTL_IN_BYTES */
	size_t in_at, in_len;
	uint8_t *chunk; /* being filled; NULL: none */
	uint32_t chunk_slot, chunk_len, chunk_have;
	uint64_t in_total;
	uint64_t moved;   /* messages but NOTE and idle PINGs that came, bytes of chunks both ways */
	bool works, peer_works; /* what PINGs say */
	uint64_t worked, peer_token; /* how far; the peer's last */

	/* out */
	struct ctl_seg *head, *tail;
	size_t queued, queued_chunks;
	bool blocked, undrained, said_bye;
	uint64_t out_total;
	uint8_t *cipher; /* CTL_CIPHER_BYTES, TLS only */
	size_t cipher_at, cipher_len;
};

static inline bool ctl_alive(const struct rcp_ctl *ctl)
{
	return ctl->state < CTL_DEAD;
}
/* Messages are delivered. */
static inline bool ctl_talks(const struct rcp_ctl *ctl)
{
	return ctl->state == CTL_OPEN && ctl->ops;
}

/* ctl.c */
void ctl_kick(struct rcp_ctl *ctl, unsigned due);
void ctl_poll(struct rcp_ctl *ctl);
/* Dead: ctl->cause says why (RCP_OK: wanted). */
void ctl_die(struct rcp_ctl *ctl);
void ctl_opened(struct rcp_ctl *ctl);
void ctl_arm(struct rcp_ctl *ctl);
/* All is written in CTL_CLOSING: say so to the peer. */
void ctl_half_close(struct rcp_ctl *ctl);

/* ctl_in.c */
void ctl_in_run(struct rcp_ctl *ctl);
/* One step of the TLS handshake. */
void ctl_in_handshake(struct rcp_ctl *ctl);

/* ctl_out.c */
void ctl_out_run(struct rcp_ctl *ctl);
void ctl_out_bytes(struct rcp_ctl *ctl, const void *data, size_t len);
bool ctl_out_empty(const struct rcp_ctl *ctl);
/* Every done that is still owed, with ok false. */
void ctl_out_drop(struct rcp_ctl *ctl);

#endif
