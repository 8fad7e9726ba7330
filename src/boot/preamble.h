/*
 * What a data stream says first: which session, link and stream it is, and the proof that it may.
 * The responder answers with a proof of its own. Pure, any thread.
 *
 *   0 "rcpD"   4 K16 session   20 U16 link   22 U16 stream   24 K32 proof    = 56 bytes
 *   answer: K32
 */
#ifndef RCP_BOOT_PREAMBLE_H
#define RCP_BOOT_PREAMBLE_H

#include "boot/secret.h"

#define RCP_PREAMBLE	    56
#define RCP_PREAMBLE_ANSWER 32

struct rcp_preamble {
	uint8_t session[RCP_SESSION];
	uint16_t link;	 /* LINK_TRY.link */
	uint16_t stream; /* from 0 */
	uint8_t proof[RCP_SECRET];
};

/* The wire's bytes with the proof made of key. */
int rcp_preamble_encode(const struct rcp_preamble *p, const uint8_t key[RCP_SECRET],
			uint8_t out[RCP_PREAMBLE], struct rcp_err *err);
/* False: not a preamble. */
bool rcp_preamble_decode(const uint8_t in[RCP_PREAMBLE], struct rcp_preamble *p);
/* Is the proof right (constant time)? Fills the answer if so. */
bool rcp_preamble_check(const struct rcp_preamble *p, const uint8_t session[RCP_SESSION],
			const uint8_t key[RCP_SECRET], uint8_t answer[RCP_PREAMBLE_ANSWER]);
/* Initiator: is this the answer to the preamble that it sent? */
bool rcp_preamble_answered(const uint8_t sent[RCP_PREAMBLE], const uint8_t key[RCP_SECRET],
			   const uint8_t answer[RCP_PREAMBLE_ANSWER]);

#endif
