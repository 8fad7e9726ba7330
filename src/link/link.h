/*
 * A link carries chunks from the source to the sink and credits back. One contract for loop,
 * stream (TCP, ssh pipe) and verbs; one contract suite holds all of them to it.
 *
 * Knows nothing of files or entries. All calls and all events are on the loop's thread, except
 * `reg` and `unreg`, which run on workers and may block.
 *
 * Life: made connecting -> `up` (or `down`, if it never came up) -> ring exchanged (sink: ring_get,
 * source: ring_set) -> chunks -> close, or a fault -> `down` exactly once -> free.
 * No event is ever delivered from inside a call of the owner's; they come from the loop.
 * The owner may call any operation from inside an event, `free` only after `down`.
 */
#ifndef RCP_LINK_LINK_H
#define RCP_LINK_LINK_H

#include "base/err.h"
#include "wire/chunk.h"
#include "wire/msg.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rcp_link;
struct rcp_seal; /* link/seal.h */
struct rcp_mem; /* a link's registration of memory */

/*
 * One chunk on its way. The sender owns the struct and the body; from a post that returned 0 until
 * its `sent` event they belong to the link and must not change or go away.
 */
struct rcp_post {
	struct rcp_chunk chunk; /* complete but for `generation`, which the link fills in (sealed: the
				 * same once more) */
	const void *body;	/* chunk.length bytes; NULL where fd is given and caps.sendfile */
	struct rcp_mem *mem;	/* registration that covers body; NULL where !caps.needs_mem */
	int fd;			/* -1, or a file that holds the same bytes at fd_offset: a link with */
	uint64_t fd_offset;	/* caps.sendfile may send them from there */
	void *owner;		/* the sender's */

	/* the link's own */
	uint8_t header[RCP_CHUNK_HEADER];
	uint8_t prefix[8];
	uint64_t progress;
	uint32_t slot;
	struct rcp_post *next;
};

struct rcp_link_events {
	/* Connected, both ends proved: ring_get / ring_set may be called now. */
	void (*up)(void *arg);
	/*
	 * Source: this post is over and its memory is the sender's again. ok: the bytes are with the
	 * network or the peer (not: on disk). !ok: the link is failing, `down` follows.
	 * Exactly one for each post that returned 0.
	 */
	void (*sent)(void *arg, struct rcp_post *post, bool ok);
	/* Source: a post that was refused with RCP_AGAIN may succeed now. May be spurious. */
	void (*room)(void *arg);
	/*
	 * Sink: a slot was filled. header (64 bytes) and payload (4 KiB aligned, chunk_bytes long) are
	 * in the ring: hostile input that (with caps.shared_ring) may still change. length: bytes that
	 * the link says arrived behind the header. The slot belongs to the sink until it calls release:
	 * with a ring of its own and a seal it may write to the payload.
	 */
	void (*chunk)(void *arg, uint32_t slot, const uint8_t *header, const uint8_t *payload,
		      uint32_t length);
	/* Last event: every post has had its `sent`; cause is RCP_OK after a wanted close. */
	void (*down)(void *arg, const struct rcp_err *cause);
};

/* Fixed once `up` was delivered. */
struct rcp_link_caps {
	bool needs_mem;		 /* post.mem must be given */
	bool sendfile;		 /* sends from post.fd without touching the bytes */
	bool shared_ring;	 /* sink: others than this link's end can write to slots at any time */
	const char *transport;	 /* "rdma" "tcp" "ssh" "local" */
	const char *fabric;	 /* "infiniband" "roce-v1" "roce-v2" "iwarp" or NULL */
	char detail[160];	 /* for -v: devices, addresses, imm or pair, MTU, streams */
	uint32_t slots;		 /* credits that there are in all */
	uint32_t chunk_bytes;	 /* largest payload */
};

/* Where the sink's ring is (LINK_RING). Links without remote memory fill slots, sizes, generation. */
struct rcp_ring_info {
	uint64_t addr;
	uint32_t rkey;
	uint32_t slots;
	uint32_t slot_bytes; /* 4 KiB + chunk_bytes */
	uint32_t chunk_bytes;
	uint32_t generation;
};

struct rcp_link_ops {
	/* Source. Queue one chunk: 0; RCP_AGAIN: no credit or no room in the queue now (`room` will
	 * come); any other value: the link is down or going down. Never blocks. */
	int (*post)(struct rcp_link *link, struct rcp_post *post);

	/* Sink. Give the slot's credit back. Each slot once for each `chunk` event. Batched inside. */
	void (*release)(struct rcp_link *link, uint32_t slot);

	/* Sink, after `up`: where the ring is. The credits are granted when the peer learns this. */
	void (*ring_get)(struct rcp_link *link, struct rcp_ring_info *out);

	/* Source, after `up`: the peer's ring, as it said (checked: slots, sizes, overflow).
	 * 0 or an error code; only after it may `post` be called. caps.slots becomes the ring's,
	 * caps.chunk_bytes the smaller of both. */
	int (*ring_set)(struct rcp_link *link, const struct rcp_ring_info *ring, struct rcp_err *err);

	/*
	 * Worker. Make [addr, addr + len) usable as a post's body. read_only: a PROT_READ mapping.
	 * On failure err->sys_errno is the kernel's word (EFAULT: this memory can't be registered,
	 * ENOMEM: too much is). Links without needs_mem set *out NULL and return 0.
	 */
	int (*reg)(struct rcp_link *link, const void *addr, size_t len, bool read_only,
		   struct rcp_err *err, struct rcp_mem **out);
	/* Worker. NULL is fine. No post may use it any more. Works on a link that is down. */
	void (*unreg)(struct rcp_link *link, struct rcp_mem *mem);

	/* Begin an orderly end. Posts in flight are waited for (up to a deadline), then `down` comes. */
	void (*close)(struct rcp_link *link);

	/* Only after `down`, with no registration left and no slot in use: until then the ring's memory
	 * is there, and release is a legal call without effect. Needs no turn of the loop. */
	void (*free)(struct rcp_link *link);
};

/* The head of every link; implementations embed it first. */
struct rcp_link {
	const struct rcp_link_ops *ops;
	const struct rcp_link_events *events;
	void *arg; /* for events; the owner may change both before `up` */
	struct rcp_link_caps caps;
	uint64_t moved; /* bytes both ways so far, where the link can tell before a chunk is whole */
	/* The owner's, set before chunks flow, to outlive them: what they go sealed with; NULL: as they
	 * are. Links themselves don't look at it: sender and receiver do the sealing. */
	struct rcp_seal *seal;
};

static inline int rcp_link_post(struct rcp_link *l, struct rcp_post *post)
{
	return l->ops->post(l, post);
}
static inline void rcp_link_release(struct rcp_link *l, uint32_t slot)
{
	l->ops->release(l, slot);
}
static inline void rcp_link_close(struct rcp_link *l)
{
	l->ops->close(l);
}
/* NULL is fine. */
static inline void rcp_link_free(struct rcp_link **l)
{
	if (*l)
		(*l)->ops->free(*l);
	*l = NULL;
}

/* What every maker of a link is told. */
struct rcp_link_params {
	enum rcp_role role;  /* this end's */
	bool initiator;	     /* the initiator's end always connects */
	uint16_t id;	     /* LINK_TRY.link: which attempt this is */
	uint32_t slots;	     /* sink: ring wanted; halved on ENOMEM, caps tells what it became */
	uint32_t chunk_bytes;
	uint32_t generation; /* sink's choice; the source learns it by ring_set */
	const struct rcp_link_events *events;
	void *arg;
};

#endif
