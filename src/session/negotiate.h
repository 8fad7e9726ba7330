/*
 * Which ways there are between two hosts, best first. Pure: port lists and wishes in, candidates out.
 */
#ifndef RCP_SESSION_NEGOTIATE_H
#define RCP_SESSION_NEGOTIATE_H

#include "link/verbs/verbs.h"
#include "wire/msg.h"

#define RCP_CANDIDATES_MAX 24
#define RCP_RDMA_PORTS_MAX 16

struct rcp_candidate {
	enum rcp_link_kind kind;
	uint16_t local_port, remote_port; /* RDMA: indexes in each host's list */
	struct sockaddr_storage local, remote; /* RDMA_CM: with the peer's cm_port */
	enum rcp_gid_type gid_type;	       /* RDMA_OOB */
	int64_t score;
	char label[320]; /* for -v */
};

struct rcp_negotiate {
	unsigned transports; /* bits 1 << enum rcp_link_kind that the user allows */
	enum rcp_connect connect;
	bool tcp; /* the control connection is TCP, so data streams can be opened */
	const struct rcp_rdma_port *mine, *peers;
	unsigned mine_count, peer_count;
};

/* Fills out, best first; returns how many. TCP and the pipe come after every RDMA pair. */
unsigned rcp_negotiate(const struct rcp_negotiate *in, struct rcp_candidate *out, unsigned max);

/* Bits of leading equality of two addresses of one family; -1 for different families. */
int rcp_addr_common_bits(const struct sockaddr_storage *a, const struct sockaddr_storage *b);

#endif
