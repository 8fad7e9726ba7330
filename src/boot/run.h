/*
 * One copy at one end: the loop, what is open on it, and how it all ends. Shared by run.c (life and
 * teardown), talk.c and talk_msg.c (negotiation), attempt.c (making links), initiator.c, server.c and local.c.
 *
 * sealing.c says which links are sealed. Loop's thread. Nothing here blocks but the jobs.
 *
 *   initiator: ssh -> HELLO, START, NAMES -> READY -> race to TCP, TLS (or the pipe) -> CAPS -> links
 *   responder: HELLO -> READY -> TLS or SWITCH -> CAPS -> links
 *   both: session -> verdict -> teardown
 */
#ifndef RCP_BOOT_RUN_H
#define RCP_BOOT_RUN_H

#include "base/log.h"
#include "base/pool.h"
#include "boot/addrs.h"
#include "boot/ctl.h"
#include "boot/keyring.h"
#include "boot/listen.h"
#include "boot/race.h"
#include "boot/secret.h"
#include "boot/ssh.h"
#include "boot/where.h"
#include "file/sink.h"
#include "file/walk.h"
#include "rcp/rcp.h"
#include "session/negotiate.h"
#include "session/session.h"

#include <uv.h>

#define RUN_PHASE_LATE ((enum rcp_phase)(RCP_PHASE_TALK | RCP_PHASE_COPY))
#define RUN_STREAMS_MAX 16
#define RUN_ATTEMPTS_MAX 64
#define RUN_RING_MOST (256u << 20) /* who is guarded: bytes of a client's ring; twice that while links are tried */
#define RUN_PING_MS 2000
#define RUN_DEAD_MS 8000 /* silence that means the peer or the network is gone */

struct rcp_run;

enum attempt_state {
	ATTEMPT_ASKED,	 /* LINK_TRY said (initiator) or heard (responder) */
	ATTEMPT_MAKING,	 /* connecting */
	ATTEMPT_PROBING, /* up; can the source's memory be registered? */
	ATTEMPT_READY,
	ATTEMPT_USED,
	ATTEMPT_CLOSING, /* waits for down */
	ATTEMPT_OVER,
};

/* One try at one link. */
struct rcp_attempt {
	struct rcp_run *run;
	uint16_t id; /* LINK_TRY.link, and the link's generation */
	enum attempt_state state;
	struct rcp_candidate cand;
	struct rcp_link_params params;
	struct rcp_link *link;
	bool link_down;
	uint64_t deadline_ns;
	unsigned streams;
	int fds[RUN_STREAMS_MAX]; /* responder: data streams that came; -1 */
	struct rcp_dial *dial;
	struct rcp_job probe;
	bool probing;
	struct rcp_err err;
	struct rcp_attempt *next;
};

/* What START and NAMES say, with memory of its own. */
struct rcp_request {
	enum rcp_role role; /* this end's */
	unsigned transports;
	enum rcp_encrypt encrypt;
	enum rcp_connect connect;
	enum rcp_engine engine;
	int family, tos, sl, pkey;
	unsigned streams;
	uint32_t chunk_bytes, slots, bundle_bytes;
	uint64_t flags, limit;
	char *target;
	char **paths; /* NULL-ended; this end is the source */
	size_t path_count, path_cap;
	char **excludes; /* NULL-ended */
	size_t exclude_count, exclude_cap;
	struct rcp_text *texts; /* what paths and excludes point into */
	char *source;	 /* the one source as the user wrote it; NULL: several */
};

struct rcp_run {
	uv_loop_t loop;
	uv_poll_t pool_poll;
	uv_prepare_t prepare;
	uv_timer_t tick;
	uv_async_t cancel;
	uv_idle_t busy; /* keeps the loop from sleeping while a local link has more to deliver */
	bool handles_closing, loop_up, pool_polled;
	_Atomic int cancel_code;
	_Atomic bool cancel_up;	  /* the handle may be sent to */
	_Atomic unsigned cancelling; /* those who do so at this moment */

	struct rcp_pool *pool;
	struct rcp_log log;
	struct rcp_watch watch;
	int verbose;

	bool initiator;
	struct rcp_served *served; /* responder: a daemon's child is this one */
	bool restricted; /* responder: held to one directory by its own command line; access: which way */
	enum rcp_access access;
	char remark[128]; /* what of that the kernel can't do; "" */
	unsigned threads; /* asked for */
	bool must_seal; /* responder: by its own command line, whatever the initiator says */
	struct rcp_request req;
	char host[256]; /* the peer, for messages */
	struct rcp_where where; /* initiator: the remote end */
	const struct rcp_options *options;
	struct rcp_session_env env;
	struct rcp_session_stats stats; /* kept when the session goes */
	const char *transport, *fabric, *encrypted; /* of the last link */
	bool sealed;
	uint64_t started_ns, progress_ns, ended_ns;
	unsigned replaced;   /* links that another one took over from, on the same connection */
	unsigned reconnects; /* connections that were */
	struct rcp_err first_fault; /* of a file, for a daemon's log */
	bool linked;	     /* there was a link once */
	bool retry;	     /* this end is not the last: another connection follows */
	uint64_t retry_ns;   /* when; 0: not waiting */
	struct rcp_session_stats before; /* counts of the connections that were lost */
	struct rcp_keys *done, *told;	 /* files that are done; faults that the user knows */
	/* Sink: resolved once. What a source has made under the new name must not become the way to somewhere else. */
	struct rcp_target target;
	bool target_open;
	struct rcp_wanted *wanted; /* initiator, sink: what was asked for, and what has come of it */

	/* From here on: of one connection. A retry begins with all of it zeroed (run_retry.c). */
	uint8_t secret[RCP_SECRET], session[RCP_SESSION];

	/* start-up */
	struct rcp_ssh *ssh;
	bool ssh_closing;
	struct rcp_psk key;	     /* to a daemon */
	struct daemon_dial *dialing; /* its host's addresses are being asked for */
	uint64_t accept_limit;	     /* sink: it takes no more bytes a second; 0: none */
	uint64_t boot_ns;	     /* responder, guarded: until when the first link must be up */
	struct rcp_ctl *pipe, *tls, *ctl; /* ctl: the one in use */
	bool pipe_closing, tls_closing, aborted;
	uint64_t peer_features;	  /* of its HELLO */
	uint32_t seal_generation; /* the last one that a key was made for */
	struct rcp_race *race;
	struct rcp_addrs addrs;
	uint16_t port;
	union rcp_sa peer_addr; /* where TCP got through */
	struct rcp_listen *listen;
	uint64_t names_bytes;
	bool names_over, ready_said, greeted; /* greeted: the peer's HELLO came */
	unsigned notes;			      /* initiator: of the other end's lines */
	uint64_t stall_moves, moved_ns, idle_ns; /* what has moved, since when no more, and since when nobody is at work */
	bool banner, answered; /* initiator: the login printed something; rcp there spoke */
	struct rcp_err tcp_err; /* why TCP can't be had */
	struct rcp_err pipe_err; /* why the last way of all can't */
	struct rcp_err lost;	/* the peer is gone */
	struct rcp_err ssh_end; /* ssh is gone; lost_ns: the first of the two */
	int ssh_status;
	uint64_t lost_ns;
	bool gone; /* nobody is there to end in good order with */

	/* negotiation */
	struct rcp_rdma *rdma;
	struct rcp_rdma_listener *rdma_listener;
	bool rdma_listener_closing;
	struct rcp_job rdma_job;
	bool rdma_looked, rdma_looking;
	struct rcp_err rdma_err;
	bool caps_said, caps_heard;
	struct rcp_rdma_port *peer_ports;
	unsigned peer_port_count;
	struct rcp_err peer_rdma_err;
	uint32_t agreed_slots, agreed_chunk;
	unsigned peer_streams, peer_cpus;
	struct rcp_candidate *cands;
	unsigned cand_count, cand_next;
	uint64_t cand_started_ns;
	struct rcp_attempt *attempts;
	struct rcp_attempt *used;
	uint16_t next_id; /* initiator: last number given */
	uint16_t use_id;  /* responder: LINK_USE came for it */
	struct rcp_msg_link_ring ring; /* source: LINK_RING, which may come before the link is up here */
	unsigned attempt_count, rounds, relinks; /* relinks: links that were lost */
	bool had_link;
	struct rcp_err relink; /* why the link was lost, until another one is tried */
	struct rcp_err link_lost; /* the same, for good: the last one's */
	uint16_t lost_id;	  /* which that was */
	uint64_t relink_ns, relink_heard;
	struct rcp_err fallback; /* why it is not RDMA */
	uint16_t fallback_id;	 /* the attempt that said so; 0: none, or its other end has spoken, too */
	uint64_t no_link_ns;	 /* since when no way is left */
	char fallback_text[1500];
	uint64_t wait_ns; /* until when a link must be there */

	/* the copy */
	struct rcp_sender *sender;
	struct rcp_receiver *receiver;
	bool session_over;
	struct rcp_local *local;

	bool ending;
	struct rcp_err cause;
	uint64_t end_deadline_ns;
};

/* A daemon's connection is the pipe, not ssh's. */
static inline bool run_has_daemon(const struct rcp_run *run)
{
	return run->served || run->where.kind == RCP_WHERE_DAEMON;
}

/* A responder that serves who may be hostile, to one directory: what that one can take has bounds. */
static inline bool run_guarded(const struct rcp_run *run)
{
	return run->served || run->restricted;
}

/* run.c */
/* Tests only: RCP_TEST_STALL=WORD, an initiator that says no more after that (or misbehaves in another way). */
bool run_test_stalls(const struct rcp_run *run, const char *after);
int run_init(struct rcp_run *run, const struct rcp_watch *watch, unsigned threads, int verbose,
	     struct rcp_err *err);
/* The two halves of it: a daemon's child has no thread before it has lost its privileges. */
int run_init_loop(struct rcp_run *run, const struct rcp_watch *watch, int verbose, struct rcp_err *err);
int run_init_pool(struct rcp_run *run, unsigned threads, struct rcp_err *err);
/* Runs the loop until all is closed, frees all; returns the exit code. */
int run_loop(struct rcp_run *run);
/* From any thread or signal handler, as long as the run is there; nothing where it is over. */
void run_cancel(struct rcp_run *run, int code);
/* What a connection of this end has died of by a fault of its own, not yet told; else NULL. */
const struct rcp_err *run_own_cause(const struct rcp_run *run);
/* Begin the end; the first cause counts (RCP_OK: all went well). */
void run_end(struct rcp_run *run, const struct rcp_err *cause);
/* The peer is gone. Ends the run, once ssh (if there is one) had a moment to say why. */
void run_lost(struct rcp_run *run, const struct rcp_err *err);
void run_fault(struct rcp_run *run, const struct rcp_err *err, bool warning);
/* There is not even memory for the run: tells it, returns the exit code. */
int run_no_memory(const struct rcp_watch *watch);
/* run_fault and run_end; an interruption that came meanwhile is the cause instead. */
void run_fail(struct rcp_run *run, const struct rcp_err *err);
/* Make the session's end of this run (walk or target, sender or receiver). */
int run_session_new(struct rcp_run *run, uint32_t chunk_bytes, struct rcp_err *err);
void run_stats(struct rcp_run *run);
uint64_t run_now(void *arg);
void run_forget(struct rcp_run *run);
void request_free(struct rcp_request *req);
/* Sink: run->target, unless it is open already. */
int run_target_open(struct rcp_run *run, uint64_t flags, struct rcp_err *err);
int request_add_path(struct rcp_request *req, struct rcp_span path, struct rcp_err *err);
int request_add_exclude(struct rcp_request *req, struct rcp_span pattern, struct rcp_err *err);
/* Another text for paths[i]. */
int request_set_path(struct rcp_request *req, size_t i, const char *path, struct rcp_err *err);
void run_env(struct rcp_run *run, struct rcp_session_env *env);

/* run_retry.c */
/* Initiator: is this loss one to come back from? Then it is told as a warning, and run->retry is set. */
bool retry_take(struct rcp_run *run, const struct rcp_err *err);
/* All of the lost connection is closed: forget it and wait. */
void retry_wait(struct rcp_run *run, uint64_t now);
/* The wait is over: connect again. */
void retry_turn(struct rcp_run *run, uint64_t now);
/* Was this told in an earlier connection of this run? */
bool retry_told(struct rcp_run *run, const struct rcp_err *err);
/* The counts of all connections. */
struct rcp_session_stats retry_totals(const struct rcp_run *run);

/* talk.c, talk_msg.c */
#define TALK_OTHER_MS 6000 /* one try of TCP or the pipe */
#define TALK_GUARDED_MS 20000 /* a guarded responder: for CAPS */
#define TALK_WAIT_MS 60000 /* responder: for the initiator to settle on a link */
bool talk_is_rdma(enum rcp_link_kind kind);
void talk_use(struct rcp_attempt *a);
/* Initiator: a link of this kind was lost; is it to be tried again, before others? */
void talk_try_again(struct rcp_run *run, enum rcp_link_kind kind);
void talk_ring(struct rcp_run *run);
void talk_caps(struct rcp_run *run, const struct rcp_msg_caps *m);
void talk_start(struct rcp_run *run);
void talk_turn(struct rcp_run *run);
/* Messages from CAPS on; false where the session is meant. */
bool talk_message(struct rcp_run *run, const struct rcp_msg *msg);
void talk_attempt_ready(struct rcp_attempt *a);
void talk_say_fail(struct rcp_attempt *a, const struct rcp_err *cause);
/* Why TCP or the pipe can't be had, for when nothing is left. */
void talk_note_failed(struct rcp_attempt *a, const struct rcp_err *cause);
void talk_attempt_failed(struct rcp_attempt *a, const struct rcp_err *cause);
void talk_session_over(struct rcp_run *run, const struct rcp_err *cause);
void talk_rdma_look(struct rcp_run *run);
const char *talk_fallback(struct rcp_run *run);
/* The active control connection's callbacks, for both ends. */
extern const struct rcp_ctl_ops talk_ctl_ops;

/* sealing.c */
/* What this end says in HELLO and CAPS. */
uint64_t sealing_features(const struct rcp_run *run);
/* Both HELLOs and START are known: RCP_E_CONNECT where the peer can't do what is needed. */
int sealing_agree(const struct rcp_run *run, struct rcp_err *err);
/* Before the session is attached to a's link: the key of this generation, if the link is to have one. */
int sealing_start(struct rcp_attempt *a, uint32_t generation, struct rcp_err *err);
/* What protects a's chunks: "aes-256-gcm", "ssh", "tls" or NULL. */
const char *sealing_word(const struct rcp_attempt *a);
/* A framing that can't be on a sealed link's connection was not the peer's doing, for all one knows. */
void sealing_blame(const struct rcp_attempt *a, struct rcp_err *cause);

/* attempt.c */
struct rcp_attempt *attempt_new(struct rcp_run *run, uint16_t id, const struct rcp_candidate *cand,
				uint32_t slots, uint32_t chunk_bytes);
struct rcp_attempt *attempt_find(struct rcp_run *run, uint16_t id);
/* Initiator, after LINK_GO (or, for OOB, before LINK_TRY): connect. */
int attempt_connect(struct rcp_attempt *a);
/* Responder, at LINK_TRY. */
int attempt_expect(struct rcp_attempt *a);
int attempt_oob(struct rcp_attempt *a, const struct rcp_msg_link_oob *m);
void attempt_close(struct rcp_attempt *a);
/* True once nothing of it is left; frees it. */
bool attempt_reap(struct rcp_run *run);
void attempt_tcp_stream(struct rcp_run *run, int fd, const struct rcp_preamble *p);
bool attempt_tcp_check(void *arg, const struct rcp_preamble *p, uint8_t answer[RCP_PREAMBLE_ANSWER]);
extern const struct rcp_rdma_listen_ops attempt_listen_ops;
/* The links through the control connection: let them deliver; tell them that it is gone. */
void attempt_pipes_run(struct rcp_run *run);
void attempt_pipes_lost(struct rcp_run *run, const struct rcp_err *cause);
uint8_t *attempt_chunk_place(void *arg, uint32_t slot, size_t *room);

/* restrict.c: what a responder is held to. */
/* Becomes what --restrict asks for, if it does. */
int restrict_enter(struct rcp_run *run, const struct rcp_server_options *o, struct rcp_err *err);
/* START and NAMES are known: is this allowed by --restrict? Makes the paths relative to its directory. */
int restrict_request(struct rcp_run *run, struct rcp_err *err);
/* The paths of a confined process. */
int restrict_paths(struct rcp_request *q, struct rcp_err *err);
/* A ring of no more bytes than limit allows in half a second (0: any) and a guarded run may have. */
void restrict_ring(struct rcp_request *q, uint64_t limit);
/* The end has begun: whatever hangs, a guarded process is over in a while. */
void restrict_deadline(struct rcp_run *run);
/* A sink behind ssh, START is known: from here on it writes beneath its target only. Before the pool. */
void restrict_sink(struct rcp_run *run);

/* initiator.c, server.c, local.c */
int initiator_start(struct rcp_run *run, const struct rcp_options *o, struct rcp_err *err);
/* The responder's first words on run->pipe, which has these callbacks; what comes then has its deadlines. */
void server_greet(struct rcp_run *run);
/* run_loop, which SIGTERM, SIGHUP and SIGINT end in good order. */
int server_loop(struct rcp_run *run);
extern const struct rcp_ctl_ops server_pipe_ops;

/* stall.c: ends a copy that stands still though both ends live. */
void stall_turn(struct rcp_run *run, uint64_t now);

/* daemon_dial.c: the initiator's run->pipe to a daemon, as ssh makes it otherwise. */
int daemon_dial(struct rcp_run *run, const struct rcp_options *o, const struct rcp_ctl_ops *ops,
		void (*failed)(struct rcp_run *run, const struct rcp_err *err), struct rcp_err *err);
void daemon_dial_stop(struct rcp_run *run);

/* daemon_child.c: what is different where the responder is a daemon's child (run->served). */
/* MODULE: become that module's server, or list them. */
void served_module(struct rcp_run *run, const struct rcp_msg_module *m);
/* START and NAMES are known: is this allowed? Makes all paths relative to the module. */
int served_request(struct rcp_run *run, struct rcp_err *err);
const char *served_connection(const struct rcp_run *run);
/* For each message of the request. */
unsigned served_step_ms(const struct rcp_run *run);
void served_turn(struct rcp_run *run, uint64_t now);
/* The end has begun: the daemon counts, too. */
void served_ending(struct rcp_run *run);
/* Why a signal of the daemon ends it. */
const char *served_interruption(const struct rcp_run *run);
void served_over(struct rcp_run *run);
int local_start(struct rcp_run *run, struct rcp_err *err);
bool local_turn(struct rcp_run *run);
bool local_closed(struct rcp_run *run);
void local_free(struct rcp_run *run);

#endif
