/*
 * RDMA: devices, connections by rdma_cm or by QP numbers over the control connection, and the link
 * over them. The only door to src/link/verbs: no ibv_, rdma_ or uv type is seen from outside.
 * Compiled always; without RDMA support rcp_rdma_open says so in its error.
 */
#ifndef RCP_LINK_VERBS_VERBS_H
#define RCP_LINK_VERBS_VERBS_H

#include "link/link.h"

#include <netinet/in.h>

struct uv_loop_s;
struct rcp_rdma; /* this host's RDMA devices */

#define RCP_RDMA_GIDS_MAX 16
#define RCP_RDMA_ADDRS_MAX 8

struct rcp_rdma_gid {
	enum rcp_gid_type type;
	uint16_t index; /* in this host's table */
	uint8_t gid[16];
};

/* One port that could carry a link, of this host or (decoded from CAPS) of the peer's. */
struct rcp_rdma_port {
	uint16_t index;	   /* its place in its host's list */
	char device[64];   /* "mlx5_0" */
	uint8_t number;	   /* port number on the device, from 1 */
	enum rcp_rdma_layer layer;
	enum rcp_rdma_transport transport;
	uint8_t mtu;	   /* enum ibv_mtu: 1 = 256 ... 5 = 4096 */
	uint32_t rate_mbps;
	uint16_t lid;	   /* 0 on Ethernet */
	uint32_t max_msg_bytes;
	bool imm;	   /* WRITE_WITH_IMM is known to work */
	uint16_t numa;	   /* 0xffff: unknown */
	uint16_t cm_port;  /* responder: where it listens; 0: nowhere */
	char netdev[32];
	unsigned gid_count, addr_count;
	struct rcp_rdma_gid gids[RCP_RDMA_GIDS_MAX];	      /* best first */
	struct sockaddr_storage addrs[RCP_RDMA_ADDRS_MAX]; /* IP addresses of the netdev, best first */
};

struct rcp_rdma_options {
	const char *device; /* --device=DEV[:PORT] or NULL: any */
	int gid_index;	    /* --gid-index or -1 */
	const char *addr;   /* --rdma-addr: use only this local address; or NULL */
	int tos;	    /* --tos or -1 */
	int sl;		    /* --sl or -1 */
	int pkey;	    /* --pkey or -1 */
	bool no_imm;	    /* tests: behave as if WRITE_WITH_IMM were refused */
};

/*
 * Enumerate. Blocks (opens devices): worker or before the loop runs. Failure is RCP_E_CONNECT whose
 * text says what is missing (no kernel support, no device, no permission on /dev/infiniband, no
 * active port, no address, device or GID index not there) and whose fix says what to do.
 */
int rcp_rdma_open(const struct rcp_rdma_options *options, struct rcp_err *err,
		  struct rcp_rdma **out);
/* After every link and listener is gone. NULL is fine. */
void rcp_rdma_close(struct rcp_rdma **rdma);

/* Ports in the order of their index; the list lives as long as rdma. */
const struct rcp_rdma_port *rcp_rdma_ports(const struct rcp_rdma *rdma, unsigned *count);
/* Devices that were passed over and why, one line each, "" when none: for -v and --doctor. */
const char *rcp_rdma_remarks(const struct rcp_rdma *rdma);

/* The largest chunk, up to wanted, that a message of every port carries. */
uint32_t rcp_rdma_chunk_bytes(const struct rcp_rdma *rdma, uint32_t wanted);

/* CAPS.ports <-> port lists. unpack bounds everything; at most `max` ports. */
void rcp_rdma_port_encode(struct rcp_wr *w, const struct rcp_rdma_port *port);
int rcp_rdma_ports_decode(struct rcp_span blob, struct rcp_err *err, struct rcp_rdma_port *ports,
			  unsigned max, unsigned *count);

/* Both ends know these; the proofs are HMACs of the session's secret (boot makes them). */
struct rcp_rdma_proof {
	uint8_t session[16];
	uint8_t mine[32];   /* put into the CM private data */
	uint8_t theirs[32]; /* compared in constant time */
};

/*
 * Initiator: connect from a local port's address to a peer's. Asynchronous: `up` or `down` follows
 * within deadline_ms. The initiator's end sends the first message (iWARP wants it). An error returned
 * here is one that came at once.
 */
struct rcp_rdma_connect {
	uint16_t local_port; /* index */
	struct sockaddr_storage local, remote; /* remote with the peer's cm_port */
	struct rcp_rdma_proof proof;
	unsigned deadline_ms;
	bool peer_imm;	     /* the peer's port says imm works */
	uint32_t peer_max_msg_bytes;
};
int rcp_rdma_connect(struct rcp_rdma *rdma, struct uv_loop_s *loop,
		     const struct rcp_link_params *params, const struct rcp_rdma_connect *how,
		     struct rcp_err *err, struct rcp_link **out);

/*
 * Responder: listen with rdma_cm on every address of every port (sets their cm_port). Connection
 * requests that carry no valid proof, or for no expected link, are rejected.
 * expect: returns the link parameters for attempt `id` and fills proof and the peer's imm word, or
 * NULL to reject. accepted: the new link, still connecting (`up` or `down` follows).
 */
struct rcp_rdma_listener;
struct rcp_rdma_listen_ops {
	void *arg;
	const struct rcp_link_params *(*expect)(void *arg, uint16_t id, struct rcp_rdma_proof *proof,
						bool *peer_imm);
	void (*accepted)(void *arg, uint16_t id, struct rcp_link *link);
};
int rcp_rdma_listen(struct rcp_rdma *rdma, struct uv_loop_s *loop,
		    const struct rcp_rdma_listen_ops *ops, struct rcp_err *err,
		    struct rcp_rdma_listener **out);
/* Stops listening; links stay. done(arg) from the loop when its handles are closed. */
void rcp_rdma_listener_close(struct rcp_rdma_listener *listener, void (*done)(void *arg), void *arg);

/*
 * Without rdma_cm. Make the QP (INIT) and say its numbers; when the peer's came over the control
 * connection, go to RTS; `up` comes when the other device has answered.
 */
struct rcp_rdma_oob {
	uint32_t qpn, psn;
	uint16_t lid;
	uint8_t mtu;
	enum rcp_gid_type gid_type;
	uint8_t gid[16];
};
int rcp_rdma_oob_new(struct rcp_rdma *rdma, struct uv_loop_s *loop,
		     const struct rcp_link_params *params, uint16_t local_port,
		     enum rcp_gid_type gid_type, bool peer_imm, struct rcp_err *err,
		     struct rcp_link **out, struct rcp_rdma_oob *mine);
int rcp_rdma_oob_connect(struct rcp_link *link, const struct rcp_rdma_oob *peer, struct rcp_err *err);

#endif
