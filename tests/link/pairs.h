/*
 * The links that the contract suite is run over: how to make both ends (or one end and a peer that
 * the test plays itself), how to turn the loop, how to hurt. A new kind of link is a new row in
 * pairs[]; ops that it can't offer are NULL and told as skipped.
 */
#ifndef RCP_TESTS_LINK_PAIRS_H
#define RCP_TESTS_LINK_PAIRS_H

#include "link/link.h"

struct pair {
	const struct pair_kind *kind;
	struct rcp_link *source, *sink; /* set NULL by whoever frees them */
	struct rcp_link_params source_params, sink_params;
	bool source_down, sink_down; /* the rig saw it */
	void *own;		     /* the kind's */
};

/* What a hostile peer does; see evil() in each kind. To the sink: */
enum evil {
	EVIL_SLOT_HELD,	 /* a chunk into the slot that the sink holds (slot 0) */
	EVIL_SLOT_RANGE, /* a slot that is not in the ring */
	EVIL_GENERATION, /* slot 1, generation of another link */
	EVIL_LENGTH,	 /* slot 1, more than chunk_bytes */
	EVIL_EARLY,	 /* a good chunk for slot 1, before the sink has granted anything */
	EVIL_HALF_HEAD,	 /* a part of a chunk's head, then silence */
	EVIL_HALF_CHUNK, /* head and a part of the payload, then the end */
	EVIL_CREDIT,	 /* a sink's message, but we are the sink */
	/* to the source: */
	EVIL_CREDIT_RANGE, /* credit for a slot that is not in the ring */
	EVIL_CREDIT_FREE,  /* credit for a slot that was never filled */
	EVIL_CREDIT_TWICE, /* credit for slot 0, twice */
	EVIL_CREDIT_OLD,   /* credit of another generation */
	EVIL_SIDE_BYTES,   /* bytes on a connection that carries none in this direction */
};

struct pair_kind {
	const char *name;
	/* NULL, or why this kind can't run here. May be NULL itself. */
	const char *(*missing)(void);
	/* Both ends, or RCP_E_*. Events come from turn only. */
	int (*make)(struct pair *p, struct rcp_err *err);
	/* One end of that role; its peer is the test's. */
	int (*make_half)(struct pair *p, enum rcp_role role, struct rcp_err *err);
	/* One turn of the loop; waits a few ms at most where there is nothing to do. */
	void (*turn)(struct pair *p);
	/* Half: the peer sends chunk bytes for a slot as an honest source would. */
	void (*peer_chunk)(struct pair *p, uint32_t slot, uint32_t generation, const void *body,
			   uint32_t length);
	/* The same in pieces of 1 to `most` bytes, a turn after each; and with no bytes held back,
	 * two chunks run into each other. NULL where nothing can come in pieces. */
	void (*peer_dribbles)(struct pair *p, uint32_t generation, const void *body,
			      uint32_t length, uint32_t most);
	/* Half: the peer gives a credit, a turn after each byte. NULL as above. */
	void (*peer_credit)(struct pair *p, uint32_t slot, uint32_t generation);
	/* Half: credits that the peer has got since, at most max; all that has come by now. NULL:
	 * where they can't pile up. */
	uint32_t (*peer_reads)(struct pair *p, uint32_t *slots, uint32_t max);
	/* Half: the peer dies without a word. */
	void (*peer_dies)(struct pair *p);
	/* Half: false where this kind has no such thing. */
	bool (*evil)(struct pair *p, enum evil what);
	/* Both links are freed. Returns what is left that should not be, or NULL. */
	const char *(*destroy)(struct pair *p);
	bool slow_close; /* half: a close with a peer that takes nothing ends by a deadline */
};

extern const struct pair_kind *const pairs[]; /* NULL-ended */
extern const struct pair_kind pair_loop, pair_pipe, pair_stream1, pair_stream4, pair_stream_torn;
extern const struct pair_kind pair_verbs_cm, pair_verbs_two, pair_verbs_oob;

#endif
