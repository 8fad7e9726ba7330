/* The tests of contract-peers.c, which contract.c lists, and what both use. */
#ifndef TESTS_LINK_CONTRACT_H
#define TESTS_LINK_CONTRACT_H

#include "rig.h"

/* Post [posted, until) as room allows, and see them all at the sink. */
void carry(struct test *t, unsigned until);

void source_loses_peer(void **state);
void source_sends_to_nobody(void **state);
void sink_loses_peer(void **state);
void peer_takes_nothing(void **state);
void evil_source(void **state);
void evil_sink(void **state);
void chunks_in_pieces(void **state);
void credits_in_pieces(void **state);
void credits_pile_up(void **state);
void chunk_before_ring(void **state);
void silent_source(void **state);

#endif
