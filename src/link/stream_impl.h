/*
 * Inside the stream link: what stream.c (life, loop), stream_send.c (source) and stream_recv.c
 * (sink) share. No uv here: the two halves move bytes on non-blocking fds and say what they wait
 * for; stream.c asks the loop. Loop's thread. Included by these three files only.
 */
#ifndef RCP_LINK_STREAM_IMPL_H
#define RCP_LINK_STREAM_IMPL_H

#include "link/link.h"
#include "link/ring.h"

#include <sys/types.h>

#define STREAM_PREFIX 8u /* U32 imm, U32 payload length */
#define STREAM_HEAD   (STREAM_PREFIX + RCP_CHUNK_HEADER)

/* Bytes that one connection may move in one turn of the loop: the others want theirs. */
#define STREAM_TURN_BYTES (4u << 20)

struct stream;

struct stream_conn {
	struct stream *stream;
	int fd;
	bool first;   /* carries the credits */
	bool blocked; /* something is to be sent when the socket is ready again */
	bool eof;     /* the peer sends no more */

	/* source: posts that are assigned to this connection, in order */
	struct rcp_post *head, **tail;
	unsigned posts;
	uint64_t queued; /* their bytes that are not sent yet */

	/* sink: the frame under way */
	uint8_t frame[STREAM_HEAD];
	uint32_t frame_have;
	bool in_payload; /* frame is decoded, payload flows into the slot */
	uint32_t slot, length, got;
};

/*
 * A slot's life, at the source: FREE -> QUEUED (a post has it) -> SENT -> FREE by the peer's
 * credit; at the sink: PEER -> FILLING -> OWNED (by the sink's owner) -> RETURNING -> PEER, once
 * the credit is with the kernel. A step that is not in these rows is the peer's breach of the
 * protocol.
 */
enum stream_slot {
	SLOT_FREE,
	SLOT_QUEUED,
	SLOT_SENT,
	SLOT_PEER,
	SLOT_FILLING,
	SLOT_OWNED,
	SLOT_RETURNING,
};

struct stream {
	struct rcp_link link; /* first: the handle that the owner has */
	enum rcp_role role;
	uint32_t generation;
	char peer[80]; /* address and port, for errors */
	struct stream_conn *conns;
	unsigned conn_count;
	bool up;      /* delivered */
	bool granted; /* source: the ring is known; sink: it was asked for */
	bool closing; /* the owner wants it */
	bool over;    /* no more I/O and no more events but sent(!ok) and down */
	struct rcp_err cause;
	uint8_t *slots; /* enum stream_slot of each */
	uint32_t slot_count;

	/* source */
	uint32_t
		*free_slots; /* a stack: the slot that came back last is warm in the sink's cache */
	uint32_t free_count;
	unsigned turn; /* where to look first for a connection with little to do */
	bool starved;  /* a post was refused */
	uint8_t word[4];
	uint32_t word_have; /* a credit that came in part */
	uint8_t *copy;	    /* for files that sendfile can't send */

	/* sink */
	struct rcp_ring ring;
	uint8_t *credits; /* words for the peer: [credits_at, credits_end) */
	uint32_t credits_at, credits_end;
};

/* stream.c. Something was queued: take a turn soon. */
void stream_wake(struct stream *s);
/* The end, unless it has come already; `down` with this cause follows from the loop. */
void stream_fail(struct stream *s, enum rcp_code code, int sys_errno, const char *call,
		 const char *fmt, ...) __attribute__((format(printf, 5, 6)));
/* After an error or end (n == 0) of recv: true if it only means "later". */
bool stream_again(struct stream *s, ssize_t n, const char *call);

/* stream_send.c */
int stream_source_init(struct stream *s, struct rcp_err *err);
void stream_source_free(struct stream *s);
int stream_source_ring(struct stream *s, const struct rcp_ring_info *ring, struct rcp_err *err);
int stream_source_post(struct stream *s, struct rcp_post *post);
/* Send what can be sent. */
void stream_source_turn(struct stream *s);
/* Credits, or the peer's end. */
void stream_source_readable(struct stream_conn *c);
bool stream_source_empty(const struct stream *s);
/* sent(!ok) for all that is queued. */
void stream_source_abandon(struct stream *s);

/* stream_recv.c */
int stream_sink_init(struct stream *s, const struct rcp_link_params *params, struct rcp_err *err);
void stream_sink_free(struct stream *s);
void stream_sink_release(struct stream *s, uint32_t slot);
/* Send the credits that were given back. */
void stream_sink_turn(struct stream *s);
void stream_sink_readable(struct stream_conn *c);

#endif
