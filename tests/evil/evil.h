/*
 * A hostile peer against a whole rcp, which runs as a process of its own: what all files here share.
 *
 * An honest peer (peer.c: bytes and messages; steps.c, copy.c: what an end says in order; nic.c: its RDMA device) that a case
 * tells where to be evil. world.c: the directories around it and what may become of them. main.c: runs cases, asserts,
 * TAP.
 */
#ifndef RCP_TESTS_EVIL_H
#define RCP_TESTS_EVIL_H

#include "base/err.h"
#include "boot/secret.h"
#include "boot/tls.h"
#include "link/seal.h"
#include "wire/chunk.h"
#include "wire/msg.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>
#include <time.h>

#define EVIL_CHUNK 65536u
#define EVIL_SLOTS 4u
#define EVIL_F_BYTES 150000u  /* file "f": three cells, travels in chunks of its own */
#define EVIL_SMALL_BYTES 1000u /* file "small": in bundles */
#define EVIL_NAMES 64

/* What a case is run as; no bit of a group: all of it that `all` below says. */
enum evil_as {
	EVIL_I = 1, /* the evil end is the initiator, against rcp --server */
	EVIL_R = 2, /* it is what rcp -S starts */
	EVIL_PIPE = 4,
	EVIL_TCP = 8,	  /* control by TLS, chunks by TCP, as they are */
	EVIL_SEALED = 16, /* the same, chunks sealed */
	/* Chunks by RDMA, over software verbs: tests/fake. */
	EVIL_CM = 32,	      /* RoCE */
	EVIL_CM_SEALED = 64,  /* the same, chunks sealed */
	EVIL_OOB = 128,	      /* InfiniBand by queue pair numbers */
	EVIL_IWARP = 256,     /* without immediate data */
	EVIL_OOB_SEALED = 512,
	EVIL_IWARP_SEALED = 1024,
	EVIL_LAST = EVIL_IWARP_SEALED,
	EVIL_NOT_RDMA = 2048, /* a case of TCP's that is none of RDMA's */
	EVIL_ANY_OOB = EVIL_OOB | EVIL_OOB_SEALED,
	EVIL_ANY_IWARP = EVIL_IWARP | EVIL_IWARP_SEALED,
	EVIL_RDMA_SEALED = EVIL_CM_SEALED | EVIL_OOB_SEALED | EVIL_IWARP_SEALED,
	EVIL_ANY_SEALED = EVIL_SEALED | EVIL_RDMA_SEALED,
	EVIL_RDMA = EVIL_CM | EVIL_OOB | EVIL_IWARP | EVIL_RDMA_SEALED,
	EVIL_LINKS = EVIL_PIPE | EVIL_TCP | EVIL_SEALED | EVIL_RDMA,
};

struct evil;
struct evil_nic; /* nic.h */

struct evil_case {
	const char *name;
	void (*act)(struct evil *e);
	int status;	  /* the victim's; negative: -(1 << one | 1 << other) */
	const char *says; /* in its one line; NULL: not looked at */
	unsigned on;	  /* enum evil_as; default: both ends, the pipe */
	const char *want; /* victim initiator: the sources it asks for; default "f" */
	const char *opts; /* letters of options at both ends: r, a, p, and of one of them only: see main.c */
	const char *made; /* names below target that may be there in the end, and are right; ?NAME: whatever is in it */
	int lines;	  /* of errors, in all; 0: one, or none with status 0; -1: not counted;
			   -2: told by an initiator, not by a server; -3: by an initiator,
			   and a server's last word may come too late; -4: the same, and the initiator
			   tells of a lost link first */
	const char *env;  /* NAME=VALUE for the victim, which then has test hooks */
	long arg, arg2;
	long most_kib; /* of memory; 0: 600 MiB */
	const void *data;
	size_t len;
};

/* One end of a control connection. */
struct evil_chan {
	int rfd, wfd; /* -1: none */
	struct rcp_tls *tls;
	uint8_t *in;
	size_t in_len, in_cap;
	bool eof;
};

struct evil {
	const struct evil_case *c;
	bool initiator, source; /* the evil end is */
	enum evil_as link;
	struct evil_chan pipe, tcp, *ctl; /* ctl: the one in use */
	bool gone;			  /* it can't be written to any more */
	bool mute;			  /* no PING by itself */
	bool aborted, acted;
	const char *step; /* the honest one it is at, for the report */
	uint64_t busy;	 /* PING's token */
	uint64_t until_ns, last_out_ns;
	FILE *report;

	struct rcp_msg_hello hello; /* as they will be said; heard: as START was heard */
	struct rcp_msg_start start;
	struct rcp_msg msg; /* the last one, its spans in buf */
	uint8_t *buf;
	uint8_t secret[RCP_SECRET], session[RCP_SESSION];
	const char *top; /* the case's world: see world.c */
	int listener;
	uint16_t port; /* the victim's, or ours */

	uint16_t link_id;
	struct rcp_msg_link_ring ring; /* as it was heard, or will be said */
	int data;		       /* TCP link */
	struct evil_nic *nic;	       /* RDMA link */
	struct rcp_seal *seal;

	/* source: what was named; sink: what was heard */
	uint32_t next_entry;
	struct evil_entry {
		uint8_t type;
		uint64_t size;
		char name[256];
		bool answered, ended;
		unsigned status, code;
	} entries[EVIL_NAMES];
	uint64_t sequence;
	uint64_t credits; /* that came back */
	bool taken[64];  /* slots without a credit */
	uint64_t agains, chunks_in;
	struct rcp_msg_again again; /* the last */
	bool verdict, walk_end, posted;
	unsigned verdict_code;
	struct rcp_chunk chunk; /* sink: the last one */
	uint32_t chunk_slot;
};

/* ---- peer.c ---- */
uint64_t evil_now(void);
void evil_note(struct evil *e, const char *what, const char *text);
/* From here on the case is what it says to be; without it the case fails as vacuous. */
void evil_act(struct evil *e);
bool evil_step(struct evil *e, const char *what); /* true; what is done next, as long as it is honest */
void evil_raw(struct evil *e, const void *data, size_t len);
void evil_data(struct evil *e, const void *data, size_t len); /* on the TCP link */
void evil_say(struct evil *e, enum rcp_msg_type type, const void *msg);
/* The next message but PING and NOTE; false: ABORT, the end, or too late. */
bool evil_get(struct evil *e);
bool evil_get_within(struct evil *e, unsigned ms);
/* Messages until this type; others are noted as they come (RESULTS, VERDICT, ...). */
bool evil_await(struct evil *e, enum rcp_msg_type type);
/* Until the victim hangs up. */
void evil_drain(struct evil *e);
/* In loops that wait for something else: PING, where it is due. */
void evil_live(struct evil *e);
void evil_hang_up(struct evil *e);
bool evil_read(struct evil *e, int fd, void *buf, size_t len);
bool evil_tls(struct evil *e, int fd, bool server, const char *identity, const uint8_t *key);
int evil_dial(uint16_t port);
void evil_free(struct evil *e);

/* ---- steps.c: each false where the victim does not go along ---- */
void evil_init(struct evil *e);
bool evil_marker(struct evil *e); /* responder: say it, initiator: read it */
bool evil_greet(struct evil *e);  /* marker and HELLO, both ways */
bool evil_request(struct evil *e); /* START, NAMES and READY, both ways */
bool evil_control(struct evil *e); /* SWITCH, or TCP and TLS */
bool evil_boot(struct evil *e);	  /* all of the above */
bool evil_caps(struct evil *e);	  /* CAPS, both ways */
bool evil_try(struct evil *e);	  /* LINK_TRY, LINK_GO */
bool evil_connect(struct evil *e); /* the link's own connection */
bool evil_use(struct evil *e);	  /* LINK_USE, LINK_RING */
bool evil_link(struct evil *e);	  /* from CAPS to LINK_RING */
bool evil_session(struct evil *e); /* boot and link */
uint8_t evil_kind(const struct evil *e); /* as LINK_TRY says it */
bool evil_is_rdma(const struct evil *e);
bool evil_is_sealed(const struct evil *e);
bool evil_preamble(struct evil *e, int fd, uint16_t link, uint16_t stream, const uint8_t *key);
void evil_say_start(struct evil *e);
void evil_say_names(struct evil *e, const char *path, bool last);
bool evil_seal_key(struct evil *e, uint32_t generation);

/* ---- copy.c: source ---- */
struct rcp_rec_entry evil_entry(uint8_t type, const char *path, uint64_t size);
uint32_t evil_name(struct evil *e, const struct rcp_rec_entry *rec);
uint32_t evil_name_file(struct evil *e, const char *path, uint64_t size);
bool evil_answered(struct evil *e, uint32_t id); /* wanted: waits; false where it ended instead */
void evil_payload(const char *name, uint64_t offset, uint8_t *out, size_t len);
struct rcp_chunk evil_cell(struct evil *e, uint32_t id, uint64_t offset, uint32_t length, uint8_t *payload);
/* As it stands: imm and the length beside it, header with its CRC, payload bytes. */
void evil_send_chunk(struct evil *e, uint32_t slot, const struct rcp_chunk *c, const uint8_t *payload, size_t len);
/* An honest one, sealed where that is due; waits for a credit of the slot first if it must. */
void evil_send_cell(struct evil *e, uint32_t id, uint64_t offset, uint32_t length);
void evil_send_file(struct evil *e, uint32_t id); /* cells and ENTRY_END */
void evil_bundle(struct evil *e, const uint32_t *ids, unsigned count, uint32_t slot);
void evil_end_entry(struct evil *e, uint32_t id, uint64_t data_bytes);
void evil_walk_end(struct evil *e);
bool evil_verdict(struct evil *e); /* waits for it, says BYE */
void evil_finish_source(struct evil *e); /* WALK_END, VERDICT, BYE */

/* What most cases begin with: a session, "f" named and wanted, and from here on it is evil. */
bool evil_begin(struct evil *e, uint32_t *id);
/* All of "f", and what is wrong in place of the first cell each time that it is asked for. */
void evil_again_and_again(struct evil *e, uint32_t id, void (*wrong)(struct evil *e, uint32_t id, uint64_t offset));
void evil_posted(struct evil *e, uint64_t chunks, uint64_t answers);
uint32_t evil_open_slot(struct evil *e); /* one without a chunk, or 0 */

/* ---- copy.c: sink ---- */
/* A session, all names heard, and from here on it is evil. */
bool evil_begin_sink(struct evil *e);
bool evil_heard(struct evil *e); /* ENTRIES and WALK_END: all that the victim has to say */
void evil_answer(struct evil *e, uint32_t first, uint32_t count, const void *have, size_t have_len);
bool evil_take(struct evil *e); /* one chunk: e->chunk, e->chunk_slot */
void evil_credit(struct evil *e, uint32_t slot);
void evil_result(struct evil *e, uint32_t first, uint32_t count, unsigned status, unsigned code, const char *text);
void evil_say_verdict(struct evil *e, unsigned code);
bool evil_take_file(struct evil *e, uint32_t id); /* answer, chunks, credits, ENTRY_END or not */
void evil_finish_sink(struct evil *e);

/* ---- cases ---- */
extern const struct evil_case evil_source_cases[], evil_chunk_cases[], evil_sink_cases[], evil_boot_cases[],
	evil_link_cases[], evil_nic_source_cases[], evil_nic_sink_cases[], evil_nic_link_cases[];
/* The honest rest of a copy of "f", from a link in use on. */
void evil_copy_f(struct evil *e);
/* cases-states.c: name by number, NULL past the end. */
const struct evil_case *evil_state_case(bool source, bool initiator, unsigned n);

/* ---- world.c ---- */
void world_make(const char *top, bool big); /* big: a source of 17 MiB, too */
/* All of it but target, as text: malloc'ed. */
char *world_look(const char *top, bool target);
/* Tells (to out) what is wrong; true: nothing. */
bool world_check(const char *top, const char *before, const char *before_target, const char *made, FILE *out);
void world_remove(const char *top);
/* A victim with a deadline: its status, or 1000 where it had to be killed. */
struct victim {
	const char *const *argv;
	const char *cwd, *err, *out;
	int in_fd, out_fd; /* -1: /dev/null, `out` */
	pid_t pid;
	long peak_kib;
};
bool victim_start(struct victim *v);
int victim_wait(struct victim *v, unsigned seconds);

/* ---- cases-guard.c: from START on; true where the bound is kept ---- */
bool guard_rings(struct evil *e);
bool guard_names(struct evil *e);
bool guard_patterns(struct evil *e);
bool guard_staging(struct evil *e);

/* ---- cases-daemon.c ---- */
int evil_daemon_main(const char *rcp, const char *dir, const char *only);

#endif
