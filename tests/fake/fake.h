/*
 * The project's own software verbs: what rcp uses of libibverbs and librdmacm, linked in place of
 * both. NICs are described by text (conf.c), frames travel over unix sockets, the rules that
 * hardware holds are held here, and faults come from a script (fault.c).
 *
 *   conf.c   personalities          host.c  devices, ports, netdevs   mem.c   PDs, MRs, keys
 *   cq.c     CQs, channels          qp.c    QPs, states               post.c  both queues
 *   net.c    the engine, sockets    req.c   requester                 resp.c  responder
 *   cm.c     rdma_cm, the calls     cmwire.c  rdma_cm, the frames     fault.c the script
 *   rules.c  breaches, exit         str.c   words                     async.c device events
 *
 * One lock for everything (fk.lock). One thread, the engine, is the wire of every NIC of the
 * process: it moves bytes without the lock, with fk.busy telling whose. A process is a host: its
 * number on the fabric is the first that is free, and addresses follow from it (host.c).
 */
#ifndef RCP_TESTS_FAKE_FAKE_H
#define RCP_TESTS_FAKE_FAKE_H

#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

/* verbs.h makes macros of these; the functions are defined here. */
#undef ibv_reg_mr
#undef ibv_query_port

#define FK_OF(ptr, type, member) ((type *)((uintptr_t)(ptr)-offsetof(type, member)))

enum fk_kind { FK_IB = 1, FK_ROCE1, FK_ROCE2, FK_IWARP };
#define FK_PORTS  2
#define FK_NICS	  8
#define FK_GIDS	  4
#define FK_SGES	  4
#define FK_INLINE 256

struct fk_nic;
struct fk_ctx;
struct fk_qp;

/* net: the subnet; place: host * 4 + which of the host's ports on that subnet. Both go into LID,
 * GIDs and IP addresses, so that an address tells where it is. */
struct fk_port {
	enum fk_kind kind;
	struct fk_nic *nic;
	uint8_t number, net, place;
	enum ibv_port_state state;
	uint16_t lid;
	uint16_t pkeys[4];
	unsigned pkey_count;
	bool has_addr;
	unsigned ifindex;
	char netdev[16];
	struct sockaddr_in in4;
	struct sockaddr_in6 in6;
	unsigned gid_count;
	struct fk_gid {
		union ibv_gid gid;
		enum ibv_gid_type type;
		bool netdev;
	} gids[FK_GIDS];
};

struct fk_nic {
	struct ibv_device device; /* first */
	unsigned port_count;
	struct fk_port ports[FK_PORTS];
	bool iwarp, imm, guid, fatal;
	uint32_t max_msg, max_inline;
	int max_sge, max_cqe, max_wr;
	uint64_t memlock; /* bytes that may be registered */
	uint64_t pinned;
	unsigned rto_ms; /* 0: as the QP's timeout and retries say */
	struct fk_ctx *ctxs;
	struct fk_ctx *cm_ctx; /* librdmacm's own, open to the end */
	struct fk_mr *mrs;
};

/* ---- events for a descriptor (net.c) ---- */

struct fk_ev {
	struct fk_ev *next;
	void *object; /* whose it is */
};
struct fk_evq {
	int fd; /* an eventfd that counts them */
	struct fk_ev *first, **last;
};
int fk_evq_init(struct fk_evq *q);
void fk_evq_put(struct fk_evq *q, struct fk_ev *ev);
/* Waits as the descriptor says; NULL with errno. Takes the lock itself. */
struct fk_ev *fk_evq_get(struct fk_evq *q);
/* Frees what is queued for object, or hands it to another queue. NULL: every object. */
void fk_evq_drop(struct fk_evq *q, const void *object, struct fk_evq *to);
void fk_evq_close(struct fk_evq *q);

/* ---- objects ---- */

struct fk_ctx {
	struct verbs_context v;
	struct fk_nic *nic;
	struct fk_evq events;
	unsigned objects, unacked;
	struct fk_ctx *next;
};
struct fk_pd {
	struct ibv_pd pd;
	unsigned objects;
};
struct fk_mr {
	struct ibv_mr mr;
	int access;
	unsigned in_use; /* by requests that are posted and not done */
	struct fk_mr *next;
};
struct fk_channel {
	struct ibv_comp_channel channel;
	struct fk_evq events;
	unsigned objects;
};
struct fk_cqe {
	struct ibv_wc wc;
	struct fk_qp *qp;
	bool send;
	uint64_t upto; /* requests that it gives back */
};
struct fk_cq {
	struct ibv_cq cq;
	struct fk_cqe *ring;
	unsigned at, count;
	bool armed, overrun;
	unsigned unacked, objects;
};

struct fk_swr {
	uint64_t wr_id, addr;
	uint32_t rkey, imm, length;
	enum ibv_wr_opcode opcode;
	unsigned flags, sges;
	struct ibv_sge sge[FK_SGES];
	uint8_t data[FK_INLINE];
	bool held; /* its MRs are counted in use */
};
struct fk_rwr {
	uint64_t wr_id;
	unsigned sges;
	struct ibv_sge sge[FK_SGES];
};

struct fk_timer {
	uint64_t at_ns;
	bool armed;
	void (*fn)(void *arg);
	void *arg;
	struct fk_timer *next;
};

struct fk_wire {
	int fd;
	bool dead, paused;
	uint32_t events;
	void (*ready)(struct fk_wire *w, uint32_t events);
	void *owner;
	struct fk_wire *next;
};

/* On a data socket. Requests go one way, answers the other. */
enum fk_type {
	FK_OPEN = 1,
	FK_WRITE,
	FK_WRITE_IMM,
	FK_SEND,
	FK_FIN,
	FK_ACK,
	FK_NAK,
	FK_RNR,
	FK_TERM
};
struct fk_head {
	uint8_t type, kind, net, from_net;
	uint8_t place, from_place, by_gid, status;
	uint32_t length, rkey;
	uint64_t addr, seq;
	uint32_t imm, qpn, from_qpn;
	uint32_t pkey;
};

/* What a QP knows of its peer. */
struct fk_path {
	uint8_t net, place;
	bool by_gid, reachable;
	uint32_t qpn;
};

/* One direction in: the peer's requests. */
struct fk_in {
	struct fk_wire *wire;
	struct fk_qp *qp; /* NULL until the first frame tells */
	bool waiting;	  /* for the QP to be ready */
	struct fk_head head, open;
	size_t got; /* of the head, then of the body */
	bool in_body, discard, ack_due;
	uint64_t expected;
	struct iovec iov[FK_SGES + 1];
	unsigned iovs;
	enum ibv_wc_status bad; /* the receive ends with this */
	struct fk_head ack;
	/* faults */
	uint8_t *stale; /* a write's bytes, to be placed once more */
	struct fk_head stale_head, held;
	bool has_held;
};

struct fk_qp {
	struct ibv_qp qp;
	struct fk_nic *nic;
	struct fk_port *port;
	struct ibv_qp_cap cap;
	bool sig_all, passive, spoken_to;
	unsigned access;
	struct ibv_qp_attr attr; /* as modified */
	struct fk_path path;
	struct fk_id *id;

	struct fk_swr *sq;
	uint64_t sq_head, sq_sent, sq_done, sq_tail;
	struct fk_rwr *rq;
	uint64_t rq_head, rq_used, rq_tail;

	/* requester */
	struct fk_wire *out;
	bool out_dead, fin_due, fin_sent;
	struct fk_head tx;
	size_t tx_off, tx_len; /* tx_len: 0 where no frame is under way */
	uint64_t tx_wr;
	bool tx_is_wr, rewind;
	uint64_t rewind_to;
	unsigned rnr_tries;
	struct fk_timer rnr, retry;
	struct fk_head rx;
	size_t rx_got;

	struct fk_in *in;
	struct fk_qp *next, *work_next;
	bool in_work;
};

static inline struct fk_ctx *fk_ctx_of(const struct ibv_context *c)
{
	return FK_OF(c, struct fk_ctx, v.context);
}
static inline struct fk_nic *fk_nic_of(const struct ibv_context *c)
{
	return fk_ctx_of(c)->nic;
}

/* ---- everything there is ---- */

struct fk_state {
	pthread_mutex_t lock;
	pthread_cond_t idle;
	char fabric[64];
	bool configured, running, stop;
	unsigned host;
	unsigned nic_count;
	struct fk_nic nics[FK_NICS];
	struct fk_qp *qps;
	uint32_t next_qpn, next_key;
	pthread_t thread;
	int epoll, kick;
	struct fk_qp *busy;
	struct fk_qp *work;
	struct fk_timer *timers;
	struct fk_wire *dead;
	struct fk_wire *door; /* data connections to this host */
	unsigned count[8];    /* enum fk_object */
	int device_calls;
};
extern struct fk_state fk;

#define FK_LOCK()   pthread_mutex_lock(&fk.lock)
#define FK_UNLOCK() pthread_mutex_unlock(&fk.lock)

enum fk_object { FK_CTX, FK_PD, FK_MR, FK_CHANNEL, FK_CQ, FK_QP, FK_ID, FK_CM_CHANNEL };

/* rules.c. A rule of the interface was broken: told, and the process aborts, unless a test asks. */
__attribute__((format(printf, 1, 2))) void fk_breach(const char *fmt, ...);
extern void (*fk_breach_hook)(const char *text);
void fk_exit_check(void);

/* conf.c, host.c: the NICs of this process; false: it has no RDMA at all. Locked. */
bool fk_configure(void);
bool fk_conf_parse(const char *text, struct fk_nic *nics, unsigned *count);
struct fk_port *fk_port_of_addr(const struct sockaddr *sa);
/* Where an address is: net and place; false: not of this fabric. */
bool fk_addr_place(const struct sockaddr *sa, uint8_t *net, uint8_t *place);
struct fk_ctx *fk_ctx_open(struct fk_nic *nic);

/* mem.c */
struct fk_mr *fk_mr_by_key(struct fk_nic *nic, uint32_t key);
/* NULL, or the MR that covers it with that right. access: IBV_ACCESS_* that it must have. */
struct fk_mr *fk_mr_check(struct fk_qp *qp, uint32_t key, uint64_t addr, uint64_t len, int access);
void fk_mr_use(struct fk_qp *qp, const struct ibv_sge *sge, unsigned sges, int by);

/* cq.c */
void fk_cq_push(struct fk_qp *qp, const struct fk_cqe *cqe);
void fk_cq_forget(struct ibv_cq *cq, const struct fk_qp *qp);
int fk_poll_cq(struct ibv_cq *cq, int max, struct ibv_wc *wc);
int fk_req_notify(struct ibv_cq *cq, int solicited);

/* async.c */
void fk_async_qp(struct fk_qp *qp, enum ibv_event_type type);
void fk_async_cq(struct fk_cq *cq, enum ibv_event_type type);
void fk_async_port(struct fk_port *port, enum ibv_event_type type);
void fk_async_drop(struct fk_ctx *ctx, const void *object);
void fk_port_down(struct fk_port *port);
void fk_nic_fatal(struct fk_nic *nic);

/* qp.c */
struct fk_qp *fk_qp_find(uint32_t qpn);
void fk_qp_error(struct fk_qp *qp);
void fk_qp_set(struct fk_qp *qp, enum ibv_qp_state state);
/* rdma_cm's part: both steps at once. */
void fk_qp_connect(struct fk_qp *qp, const struct fk_path *path, bool passive);

/* post.c */
int fk_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int fk_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
/* The oldest request that is not done is. */
void fk_send_done(struct fk_qp *qp, enum ibv_wc_status status);
void fk_recv_done(struct fk_qp *qp, enum ibv_wc_status status, const struct fk_head *head);
void fk_flush(struct fk_qp *qp);

/* net.c. Locked, but for fk_start. */
bool fk_start(void);
void fk_stop(void);
uint64_t fk_now(void);
void fk_timer_set(struct fk_timer *t, unsigned ms);
void fk_timer_stop(struct fk_timer *t);
struct fk_wire *fk_wire_new(int fd, uint32_t events, void (*ready)(struct fk_wire *, uint32_t),
			    void *owner);
void fk_wire_events(struct fk_wire *w, uint32_t events);
void fk_wire_close(struct fk_wire **w);
/* A name on the fabric: -1 with errno. type: SOCK_STREAM or SOCK_SEQPACKET. */
int fk_listen(const char *name, int type);
int fk_dial(const char *name, int type);
void fk_work(struct fk_qp *qp); /* it has something to send */
void fk_kick(void);
void fk_busy_wait(const struct fk_qp *qp);
/* Around bytes moved without the lock. */
void fk_io_begin(struct fk_qp *qp);
void fk_io_end(void);

/* req.c */
void fk_transmit(struct fk_qp *qp);
void fk_requester_stop(struct fk_qp *qp);
void fk_retry_start(struct fk_qp *qp);
/* resp.c */
void fk_door_ready(struct fk_wire *w, uint32_t events);
/* The QP is ready for what has come. */
void fk_unpark(struct fk_qp *qp);
void fk_responder_stop(struct fk_qp *qp);
void fk_responder_free(struct fk_qp *qp);

/* cmwire.c: iWARP's connection has ended under the QP. */
void fk_cm_gone(struct fk_qp *qp, int status);
void fk_cm_fatal(struct fk_nic *nic);

/* fault.c. What the script says of the next one of its kind; counted by asking. */
enum fk_fault {
	FK_F_CALL = 1,
	FK_F_WC,
	FK_F_LATE,
	FK_F_LOST,
	FK_F_FLUSH,
	FK_F_RNR,
	FK_F_RETRY,
	FK_F_ACCESS,
	FK_F_FLIP,
	FK_F_TWICE,
	FK_F_SWAP,
	FK_F_PORT,
	FK_F_FATAL,
	FK_F_CM,
	FK_F_PRIVATE,
	FK_F_FORGE,
	FK_F_SLOW,
};
struct fk_rule {
	enum fk_fault what;
	char name[40];	  /* call, event, "send", "recv"; "" any */
	unsigned n, seen; /* which one; 1 is the first */
	bool on;	  /* that one and all after it */
	char word[24];
	long number;
};
/* NULL, or the rule that hits this one. */
const struct fk_rule *fk_fault(enum fk_fault what, const char *name);
/* errno that the call is to fail with, or 0. */
int fk_fault_call(const char *name);
bool fk_fault_parse(const char *text);

#endif
