/*
 * What the files of src/link/verbs share. Included nowhere else: the only header with verbs types.
 *
 *   device.c  what there is        addr.c    netdevs, GIDs           caps.c   CAPS.ports
 *   link.c    a link's life        conn.c    PD, CQ, QP, memory      post.c   source side
 *   cm.c      rdma_cm, client      listen.c  rdma_cm, server         recv.c   sink side
 *   oob.c     without rdma_cm      queue.c   completions, messages   async.c  the device's events
 *   dial.c    rdma_connect, iWARP  events.c  libuv                   errors.c errors in words
 *
 * All on the loop's thread but reg, unreg and the one call in dial.c.
 */
#ifndef RCP_LINK_VERBS_PRIV_H
#define RCP_LINK_VERBS_PRIV_H

#include "link/ring.h"
#include "link/verbs/layout.h"
#include "link/verbs/verbs.h"

#include <rdma/rdma_cma.h>

/* ---- this host (device.c, addr.c) ---- */

#define RCP_RDMA_PORTS_MAX 64u

struct verbs_device {
	struct ibv_context *ctx;
	char name[64];
};

struct rcp_rdma {
	struct rcp_rdma_options options; /* strings are not kept */
	struct verbs_device *devices;
	unsigned device_count;
	struct rcp_rdma_port *ports;
	unsigned device_of[RCP_RDMA_PORTS_MAX]; /* port index -> devices */
	unsigned port_count;
	struct verbs_async *asyncs; /* async.c */
	char remarks[2048];
};

struct ifaddrs;

/* 0 best. type, then IPv4, global, link-local. */
unsigned rcp_verbs_gid_rank(const struct rcp_rdma_gid *gid);
/* Keep the best RCP_RDMA_GIDS_MAX, in order; equal ranks in the order they came. */
void rcp_verbs_gid_insert(struct rcp_rdma_port *port, const struct rcp_rdma_gid *gid);
/* The address that a RoCE GID stands for; link-local ones get the scope of ifindex. */
void rcp_verbs_gid_addr(const uint8_t gid[16], unsigned ifindex, struct sockaddr_storage *out);

/* Same family, address and, where both have one, scope. The port number is not looked at. */
bool rcp_verbs_addr_equal(const struct sockaddr_storage *a, const struct sockaddr_storage *b);
socklen_t rcp_verbs_addr_len(const struct sockaddr_storage *a);
void rcp_verbs_addr_set_port(struct sockaddr_storage *a, uint16_t port);
uint16_t rcp_verbs_addr_port(const struct sockaddr_storage *a);
/* "10.9.0.1", "fe80::1%eth0"; with_port: "10.9.0.1:7", "[fe80::1%eth0]:7". Returns buf. */
char *rcp_verbs_addr_text(const struct sockaddr_storage *a, bool with_port, char *buf, size_t size);
bool rcp_verbs_addr_parse(const char *text, struct sockaddr_storage *out);
bool rcp_verbs_addr_link_local(const struct sockaddr_storage *a);
uint32_t rcp_verbs_addr_scope(const struct sockaddr_storage *a);

/* Addresses of a netdev to the end of the port's, best first; names the netdev if it has no name.
 */
void rcp_verbs_addrs_add(struct rcp_rdma_port *port, const struct ifaddrs *list,
			 const char *netdev);
/* netdevs whose hardware address holds the port's: iWARP (first 6 bytes of the GID are the MAC) and
 * IPoIB (the address ends with the GID). Adds their addresses. */
void rcp_verbs_addrs_by_hardware(struct rcp_rdma_port *port, const struct ifaddrs *list,
				 const uint8_t gid[16]);

/* ---- libuv (events.c) ---- */

enum verbs_fd { VERBS_FD_QUEUE, VERBS_FD_CM, VERBS_FD_ASYNC, VERBS_FD_DIAL, VERBS_FDS };
struct verbs_io;
struct verbs_io_ops {
	void (*readable)(void *arg, enum verbs_fd which);
	void (*kick)(void *arg);
	void (*timeout)(void *arg);
	void (*closed)(void *arg); /* the last call; the io is gone */
};
int rcp_verbs_io_new(struct uv_loop_s *loop, const struct verbs_io_ops *ops, void *arg,
		     struct rcp_err *err, struct verbs_io **out);
/* Makes fd non-blocking and watches it until io_close. */
int rcp_verbs_io_watch(struct verbs_io *io, enum verbs_fd which, int fd, struct rcp_err *err);
/* Not any more, from now on; fd may be closed. */
void rcp_verbs_io_forget(struct verbs_io *io, enum verbs_fd which);
/* ops->kick soon, from the loop; many kicks may become one. */
void rcp_verbs_io_kick(struct verbs_io *io);
/* ops->timeout once after ms; 0 stops it. */
void rcp_verbs_io_timer(struct verbs_io *io, unsigned ms);
/* No fd is looked at after this call. */
void rcp_verbs_io_close(struct verbs_io *io);

/* ---- errors (errors.c) ---- */

/* The three conventions: a call that returns the error (either sign, or -1 and errno), one that
 * sets errno, one that makes an object and sets errno. All add the fix there is. Return err->code.
 */
int rcp_verbs_err_ret(struct rcp_err *err, enum rcp_code code, int ret, const char *call,
		      const char *object);
/* errno after opening a device node failed: EACCES where that is the truth. */
int rcp_verbs_open_errno(const char *node);
int rcp_verbs_err_errno(struct rcp_err *err, enum rcp_code code, const char *call,
			const char *object);
void rcp_verbs_err_fix(struct rcp_err *err);
/* A completion with a bad status. what: "chunk", "credits" ... */
void rcp_verbs_err_wc(struct rcp_err *err, const struct ibv_wc *wc, const char *what,
		      const char *object);
/* Is it the word of a device that doesn't know the operation (and not of one that is full)? */
bool rcp_verbs_ret_refused(int ret);
/* soft limit := hard limit */
void rcp_verbs_memlock_raise(void);

/* ---- a link ---- */

enum verbs_state {
	VERBS_OFFLINE, /* made, nothing asked of the network; without rdma_cm: waits for the peer's
			  numbers */
	VERBS_ADDRESS, /* initiator, rdma_cm: address being resolved */
	VERBS_ROUTE,   /* initiator, rdma_cm: route being resolved */
	VERBS_CONNECT, /* initiator: request sent, then hello; its completion makes it up */
	VERBS_GREET,   /* responder: waits for hello */
	VERBS_UP,
	VERBS_CLOSING, /* wanted end: posts in flight and credits go out first */
	VERBS_DRAIN,   /* the end: QP in error, flushes come in, up to a deadline */
	VERBS_DOWN,    /* handles are closing; `down` comes with the last */
	VERBS_STATES
};

struct verbs_dial;

struct verbs_conn {
	struct verbs_dial *dial; /* iWARP's rdma_connect is under way */
	struct rdma_event_channel *cm_channel;
	struct rdma_cm_id *id;
	struct ibv_context *ctx; /* the device's, or librdmacm's own of the same device */
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	unsigned unacked; /* CQ events */
	struct ibv_qp *qp;
	struct verbs_depth depth;
	uint32_t max_inline;
	uint32_t max_sge; /* of a send: 1 or 2 */
	unsigned path_mtu; /* enum ibv_mtu; 0 unknown */

	/* receive buffers, small messages' buffers, chunk heads: one piece of registered memory */
	uint8_t *memory;
	size_t memory_bytes;
	struct ibv_mr *memory_mr;
	uint8_t *recvs, *smalls, *heads;

	struct rcp_ring ring; /* sink */
	struct ibv_mr *ring_mr;
	uint32_t ring_wanted; /* slots asked for, when it became fewer */
};

/* A chunk's head on the source: what the first element of its write and its message point to. */
#define VERBS_HEAD_BYTES 128u /* 64 header, 16 message */

struct verbs_source {
	bool ready; /* ring_set was called */
	bool imm;   /* WRITE_WITH_IMM, or the pair */
	bool want_room;
	struct rcp_ring_info ring; /* slots, chunk_bytes: what this end can use of it */
	uint16_t *free_slots;	   /* stack */
	uint32_t free_count;
	uint8_t *slot_used; /* by slot */
	struct verbs_ticket {
		struct rcp_post *post;
		bool flushed;
	} * tickets; /* depth.posts of them, used in a circle */
	uint64_t posted;
	uint32_t in_flight; /* tickets whose completion has not come */
};

/* The peer's to fill; the session's until release; released, its credit not sent. */
enum verbs_slot { VERBS_SLOT_GRANTED, VERBS_SLOT_HELD, VERBS_SLOT_DUE };

struct verbs_sink {
	uint8_t *slots; /* enum verbs_slot */
	uint16_t *due;	/* slots in VERBS_SLOT_DUE, oldest first: a circle of ring.slots */
	uint32_t due_at, due_count;
};

struct verbs_link {
	struct rcp_link link; /* first */
	struct rcp_rdma *rdma;
	struct uv_loop_s *loop;
	struct verbs_io *io;
	struct verbs_async *async;
	struct verbs_link *async_next;

	enum verbs_state state;
	enum rcp_role role;
	bool initiator, oob;
	uint16_t attempt;
	uint32_t generation, slots_wanted;
	bool greeted;	  /* responder: hello has come */
	bool established; /* responder: rdma_cm says so */
	bool connected;	  /* rdma_cm or the QP has a peer to take leave of */
	bool up_due;	  /* `up` to be delivered from the loop */
	bool was_up;	  /* it was */
	bool drain_begun;
	bool bye_sent;
	bool abandoned;		  /* the maker failed after the io was made: free, say nothing */
	uint32_t close_in_flight; /* posts, when the deadline of a close was last set */
	uint64_t completions, completions_seen; /* seen: at the last look for a stall */
	bool busy_seen;				/* something was under way then */
	unsigned closing;	  /* ios still closing */
	struct rcp_err cause;

	const struct rcp_rdma_port *port;
	struct rcp_rdma_proof proof;
	struct sockaddr_storage local, remote;
	char name[160]; /* "rxe0/1 10.9.0.1 -> 10.9.0.2:7471" */
	unsigned deadline_ms;
	struct rcp_rdma_oob oob_mine;
	uint8_t oob_gid_index;
	struct rcp_rdma_gid oob_gid;

	struct verbs_conn conn;
	uint32_t smalls_free; /* bit per buffer */
	struct verbs_source source;
	struct verbs_sink sink;
};

static inline struct verbs_link *verbs_link_of(struct rcp_link *l)
{
	return (struct verbs_link *)l;
}

/* link.c */
int rcp_verbs_link_new(struct rcp_rdma *rdma, struct uv_loop_s *loop, uint16_t port,
		       const struct rcp_link_params *params, bool peer_imm, struct rcp_err *err,
		       struct verbs_link **out);
/* Makers that fail after link_new: frees it, from the loop, without a word. */
void rcp_verbs_link_abandon(struct verbs_link *v);
/* First cause wins; the link ends from the loop's next turn. Callable from anywhere. */
void rcp_verbs_link_fail(struct verbs_link *v, const struct rcp_err *cause);
/* The peer broke the protocol: it sent `what`. */
void rcp_verbs_link_breach(struct verbs_link *v, const char *what, uint32_t value);
/* The connection was ended, by the peer or by what this end's kernel knows of its port. */
void rcp_verbs_link_left(struct verbs_link *v);
#define RCP_VERBS_PORT_FIX "check the cable and the switch, and that the netdev is up"
/* Connected and, on the responder, greeted: `up` comes from the loop. */
void rcp_verbs_link_up(struct verbs_link *v);
/* Responder: the initiator's hello has come. */
void rcp_verbs_link_greeted(struct verbs_link *v);
/* Take the steps that are due. At the end of everything that comes from the loop. */
void rcp_verbs_link_advance(struct verbs_link *v);
/* Before up: RCP_E_CONNECT, after: RCP_E_LINK. */
/* A registration's key. */
uint32_t rcp_verbs_mem_lkey(const struct rcp_mem *mem);
bool rcp_verbs_mem_read_only(const struct rcp_mem *mem);
enum rcp_code rcp_verbs_link_code(const struct verbs_link *v);
void rcp_verbs_link_name(struct verbs_link *v);

/* conn.c */
int rcp_verbs_conn_make(struct verbs_link *v, struct ibv_context *ctx, struct rcp_err *err);
/* QP and CQ go: nothing of the device touches the link's memory after this. */
void rcp_verbs_conn_stop(struct verbs_link *v);
void rcp_verbs_conn_free(struct verbs_link *v);
/* The two steps of both, for who has the connection and no link any more. */
void rcp_verbs_conn_quit(struct verbs_conn *c);
void rcp_verbs_conn_drop(struct verbs_conn *c);

/* dial.c: rdma_connect in a thread of its own. VERBS_FD_DIAL is readable when it has returned. */
int rcp_verbs_dial(struct verbs_link *v, const struct rdma_conn_param *param, struct rcp_err *err);
/* It has returned, or is about to: 0 or its errno. */
int rcp_verbs_dial_end(struct verbs_conn *c);
/* The link goes: where rdma_connect still runs, its thread takes the connection over and ends it
 * later. Then *c is empty. */
void rcp_verbs_dial_leave(struct verbs_conn *c);
/* RNR timer, path MTU, fabric, caps.detail: once connected. */
void rcp_verbs_conn_settle(struct verbs_link *v);
void rcp_verbs_conn_detail(struct verbs_link *v);

/* queue.c */
int rcp_verbs_recv_post(struct verbs_link *v, uint32_t index, struct rcp_err *err);
void rcp_verbs_queue_readable(struct verbs_link *v);
/* Everything that has completed by now. */
void rcp_verbs_queue_drain(struct verbs_link *v);
/* 0, RCP_AGAIN when every buffer is under way, or the code of *err. */
int rcp_verbs_small_send(struct verbs_link *v, const struct verbs_message *m, struct rcp_err *err);
bool rcp_verbs_small_idle(const struct verbs_link *v);
int rcp_verbs_hello_send(struct verbs_link *v, struct rcp_err *err);

/* post.c */
int rcp_verbs_source_new(struct verbs_link *v, struct rcp_err *err);
int rcp_verbs_post(struct rcp_link *link, struct rcp_post *post);
int rcp_verbs_ring_set(struct rcp_link *link, const struct rcp_ring_info *ring,
		       struct rcp_err *err);
void rcp_verbs_post_done(struct verbs_link *v, const struct ibv_wc *wc);
void rcp_verbs_credits_in(struct verbs_link *v, const struct verbs_message *m);
void rcp_verbs_room(struct verbs_link *v);
/* Each post without its `sent` gets it. The QP must be gone. */
void rcp_verbs_posts_end(struct verbs_link *v);
void rcp_verbs_source_free(struct verbs_link *v);

/* recv.c */
int rcp_verbs_sink_new(struct verbs_link *v, struct rcp_err *err);
void rcp_verbs_release(struct rcp_link *link, uint32_t slot);
void rcp_verbs_ring_get(struct rcp_link *link, struct rcp_ring_info *out);
void rcp_verbs_chunk_in(struct verbs_link *v, uint32_t imm, uint32_t bytes);
void rcp_verbs_credits_flush(struct verbs_link *v);
void rcp_verbs_sink_free(struct verbs_link *v);

/* cm.c */
struct verbs_cm_event {
	enum rdma_cm_event_type type;
	int status;
	struct rdma_cm_id *id, *listen_id;
	size_t len;
	uint8_t data[VERBS_PRIVATE_BYTES];
};
/* Next event, copied and acknowledged: 0; RCP_AGAIN: none now; -2: the channel is broken. */
int rcp_verbs_cm_next(struct rdma_event_channel *channel, struct verbs_cm_event *out);
void rcp_verbs_cm_readable(struct verbs_link *v);
/* rdma_connect has returned. */
void rcp_verbs_cm_dialled(struct verbs_link *v);
/* Listener: make the connection and accept. */
void rcp_verbs_cm_accept(struct verbs_link *v, struct rdma_cm_id *id);
void rcp_verbs_cm_options(const struct rcp_rdma *rdma, struct rdma_cm_id *id);
struct rdma_event_channel *rcp_verbs_cm_channel(struct rcp_err *err);

/* oob.c */
/* A QP of our own: RESET to INIT. */
int rcp_verbs_oob_init(struct verbs_link *v, struct rcp_err *err);

/* async.c */
int rcp_verbs_async_join(struct verbs_link *v, struct rcp_err *err);
/* True: the link was the last, and rcp_verbs_link_closed(v) will be called once more. */
bool rcp_verbs_async_leave(struct verbs_link *v);
void rcp_verbs_link_closed(void *link);

#endif
