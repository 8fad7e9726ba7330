/* Proofs, second connections, CAPS and links: evil before anything is copied. */
#include "evil.h"

#include "base/clock.h"
#include "boot/preamble.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* The honest rest of a copy of "f", from wherever it is. */
void evil_copy_f(struct evil *e)
{
	uint32_t id;

	if (e->source) {
		id = evil_name_file(e, "f", EVIL_F_BYTES);
		if (evil_answered(e, id))
			evil_send_file(e, id);
		evil_finish_source(e);
	} else if (evil_heard(e) && evil_take_file(e, 0)) {
		evil_result(e, 0, 1, RCP_STATUS_OK, 0, "");
		evil_finish_sink(e);
	}
}

/* ---- TLS, proofs, second connections ---- */

static void wrong_key(struct evil *e)
{
	char identity[RCP_IDENTITY];
	uint8_t key[RCP_SECRET], session[RCP_SESSION] = {0};

	if (!evil_greet(e) || !evil_request(e))
		return;
	memcpy(key, e->secret, sizeof(key));
	key[31] ^= e->c->arg == 0;
	evil_act(e);
	if (evil_tls(e, evil_dial(e->port), false, rcp_secret_identity(e->c->arg == 0 ? e->session : session, identity), key))
		evil_note(e, "broken", "it took a wrong key");
	/* That was a stranger. The right one gets in. */
	if (evil_control(e) && evil_link(e))
		evil_copy_f(e);
}

/* The server that is dialled proves nothing. */
static void wrong_server(struct evil *e)
{
	char identity[RCP_IDENTITY];
	struct pollfd w = {.events = POLLIN};
	uint8_t key[RCP_SECRET] = {0};

	if (!evil_greet(e) || !evil_request(e))
		return;
	evil_act(e);
	w.fd = e->listener;
	if (poll(&w, 1, 10000) != 1)
		return;
	int fd = accept(e->listener, NULL, NULL);

	if (e->c->arg == 0)
		evil_tls(e, fd, true, rcp_secret_identity(e->session, identity), key);
	else if (e->c->arg == 1)
		send(fd, "SSH-2.0-nobody\r\n", 16, MSG_NOSIGNAL);
	if (e->c->arg != 2)
		close(fd);
	e->tcp.rfd = e->tcp.wfd = -1;
	evil_drain(e);
	if (e->c->arg == 2)
		close(fd);
}

static void second_control(struct evil *e)
{
	struct evil other = {.c = e->c, .initiator = true, .top = e->top, .until_ns = e->until_ns};
	char identity[RCP_IDENTITY];

	if (!evil_boot(e))
		return;
	other.ctl = &other.pipe;
	other.data = other.listener = -1;
	other.pipe.rfd = other.pipe.wfd = -1;
	evil_act(e);
	if (evil_tls(&other, evil_dial(e->port), false, rcp_secret_identity(e->session, identity), e->secret))
		evil_note(e, "broken", "a second control connection was taken");
	evil_free(&other);
	if (evil_link(e))
		evil_copy_f(e);
}

/* A data connection that must not be answered; then the right one, and the copy. */
static void wrong_stream(struct evil *e)
{
	uint8_t key[RCP_SECRET], session[RCP_SESSION], junk[RCP_PREAMBLE] = "rcpX";
	uint16_t link = 1, stream = 0;
	int fd;

	if (!evil_boot(e) || !evil_caps(e) || !evil_try(e))
		return;
	memcpy(key, e->secret, sizeof(key));
	memcpy(session, e->session, sizeof(session));
	evil_act(e);
	fd = evil_dial(e->port);
	key[0] ^= e->c->arg == 0;
	e->session[0] ^= e->c->arg == 1;
	link = (uint16_t)(link + (e->c->arg == 2));
	stream = (uint16_t)(stream + (e->c->arg == 3));
	if (e->c->arg == 4)
		send(fd, junk, sizeof(junk), MSG_NOSIGNAL);
	uint8_t answer[RCP_PREAMBLE_ANSWER];
	bool in = e->c->arg == 4 ? evil_read(e, fd, answer, sizeof(answer)) : evil_preamble(e, fd, link, stream, key);

	if (in)
		evil_note(e, "broken", "a wrong proof was answered");
	close(fd);
	memcpy(e->session, session, sizeof(session));
	if (evil_connect(e) && evil_use(e))
		evil_copy_f(e);
}

/* The very bytes that proved it once, on a second connection. */
static void replayed_stream(struct evil *e)
{
	if (!evil_session(e))
		return;
	evil_act(e);
	int fd = evil_dial(e->port);

	if (evil_preamble(e, fd, e->link_id, 0, e->secret))
		evil_note(e, "broken", "a replayed proof was answered");
	close(fd);
	evil_copy_f(e);
}

/* Many who connect and say nothing, or half of it. */
static void silent_crowd(struct evil *e)
{
	int fds[100];

	if (!evil_greet(e) || !evil_request(e))
		return;
	evil_act(e);
	for (size_t i = 0; i < 100; i++) {
		fds[i] = evil_dial(e->port);
		if (fds[i] >= 0 && i % 2)
			send(fds[i], "rcpD", 4, MSG_NOSIGNAL);
	}
	if (evil_control(e) && evil_link(e))
		evil_copy_f(e);
	for (size_t i = 0; i < 100; i++)
		close(fds[i]);
}

/* What answers the initiator's proof is none. */
static void wrong_answer(struct evil *e)
{
	uint8_t said[RCP_PREAMBLE], answer[RCP_PREAMBLE_ANSWER] = {0};
	struct pollfd w = {.events = POLLIN};

	if (!evil_boot(e) || !evil_caps(e) || !evil_try(e))
		return;
	evil_act(e);
	w.fd = e->listener;
	if (poll(&w, 1, 10000) != 1)
		return;
	e->data = accept(e->listener, NULL, NULL);
	if (!evil_read(e, e->data, said, sizeof(said)))
		return;
	if (e->c->arg == 0) /* its own proof, sent back */
		memcpy(answer, said + 24, sizeof(answer));
	evil_data(e, answer, sizeof(answer));
	evil_drain(e);
}

/* ---- CAPS and links ---- */

static void caps(struct evil *e)
{
	struct rcp_rec_port port = {.index = 1, .device = rcp_span_str("x"), .number = 1};
	struct rcp_wr w = {.max = 65536};
	struct rcp_msg_caps m = {.features = e->hello.features, .slots = EVIL_SLOTS, .chunk_bytes = EVIL_CHUNK, .cpus = 1, .streams = 1};

	if (!evil_boot(e))
		return;
	evil_act(e);
	switch (e->c->arg) {
	case 0:
		m.slots = 0;
		break;
	case 1:
		m.slots = UINT32_MAX;
		break;
	case 2:
		m.chunk_bytes = 1000;
		break;
	case 3:
		m.chunk_bytes = UINT32_MAX & ~4095u;
		break;
	case 4:
		m.ports = rcp_span_of("abc", 3);
		break;
	case 5:
		for (int i = 0; i < 40; i++)
			rcp_rec_encode(&w, RCP_REC_PORT, &port);
		m.ports = rcp_span_of(w.data, w.len);
		break;
	}
	evil_say(e, RCP_MSG_CAPS, &m);
	if (e->c->arg == 6)
		evil_say(e, RCP_MSG_CAPS, &m);
	rcp_wr_free(&w);
	if (e->c->arg == 5 && evil_await(e, RCP_MSG_CAPS)) /* more than it looks at */
		evil_hang_up(e);
	evil_drain(e);
}

static void bad_try(struct evil *e)
{
	struct rcp_msg_link_try m = {.link = 1, .kind = RCP_LINK_PIPE, .streams = 1, .slots = EVIL_SLOTS, .chunk_bytes = EVIL_CHUNK};

	if (!evil_boot(e) || !evil_caps(e))
		return;
	evil_act(e);
	switch (e->c->arg) {
	case 0:
		m.link = 0;
		break;
	case 1:
		m.kind = 0;
		break;
	case 2:
		m.kind = 99;
		break;
	case 3:
		m.slots = 0;
		break;
	case 4:
		m.slots = UINT32_MAX;
		break;
	case 5:
		m.chunk_bytes = 1 << 24;
		break;
	case 6:
		m.streams = 255;
		m.kind = RCP_LINK_TCP;
		break;
	case 7:
		m.streams = 0;
		m.kind = RCP_LINK_TCP;
		break;
	case 8: /* there is no such port here */
		m.kind = RCP_LINK_RDMA_CM;
		break;
	case 9:
		m.kind = RCP_LINK_RDMA_OOB;
		break;
	case 11:
		m.kind = RCP_LINK_LOOP;
		break;
	case 12: /* not among START's ways */
		m.kind = RCP_LINK_TCP;
		break;
	}
	evil_say(e, RCP_MSG_LINK_TRY, &m);
	if (e->c->arg == 10)
		evil_say(e, RCP_MSG_LINK_TRY, &m);
	if (e->c->arg == 13)
		evil_say(e, RCP_MSG_LINK_USE, &(struct rcp_msg_link_use){.link = 9});
	for (uint16_t i = 2; i < 2000 && e->c->arg == 14 && !e->gone; i++) {
		m.link = i;
		evil_say(e, RCP_MSG_LINK_TRY, &m);
	}
	/* What it can't do it says, and waits for another: that is ours to give up. */
	while (evil_get(e) && e->msg.type != RCP_MSG_LINK_FAIL)
		;
	evil_hang_up(e);
}

static void refuses_links(struct evil *e)
{
	if (!evil_boot(e) || !evil_caps(e))
		return;
	evil_act(e);
	while (evil_await(e, RCP_MSG_LINK_TRY)) {
		struct rcp_msg_link_fail no = {.link = e->msg.link_try_.link, .text = rcp_span_str("\033[31mno\007")};

		if (e->c->arg == 0)
			evil_say(e, RCP_MSG_LINK_FAIL, &no);
		else if (e->c->arg == 1)
			evil_say(e, RCP_MSG_LINK_GO, &(struct rcp_msg_link_go){.link = (uint16_t)(no.link + 5)});
		else
			evil_say(e, RCP_MSG_LINK_OOB, &(struct rcp_msg_link_oob){.link = no.link});
	}
}

static void aborts(struct evil *e)
{
	if (!evil_greet(e))
		return;
	evil_act(e);
	evil_say(e, RCP_MSG_ABORT, &(struct rcp_msg_abort){.code = (uint8_t)e->c->arg, .text = rcp_span_str("evil gave up")});
	evil_drain(e);
}

static void hangs_up(struct evil *e)
{
	if (e->c->arg > 0 && !evil_marker(e))
		return;
	evil_act(e);
	if (e->c->arg > 1)
		evil_say(e, RCP_MSG_HELLO, &e->hello);
	evil_hang_up(e);
}

#define BROKE "broke the protocol"

const struct evil_case evil_link_cases[] = {
	{"half-open: no TLS behind the port", wrong_server, 3, NULL, EVIL_R | EVIL_TCP, .arg = 2},
	{"proof: a wrong key", wrong_key, 0, NULL, EVIL_I | EVIL_TCP | EVIL_SEALED, .arg = 0, .made = "f"},
	{"proof: a wrong session", wrong_key, 0, NULL, EVIL_I | EVIL_TCP, .arg = 1, .made = "f"},
	{"proof: of the server, none", wrong_server, 3, NULL, EVIL_R | EVIL_TCP, .arg = 0},
	{"proof: another server's words", wrong_server, 3, NULL, EVIL_R | EVIL_TCP, .arg = 1},
	{"second control connection", second_control, 0, NULL, EVIL_I | EVIL_TCP, .made = "f"},
	{"stream: a wrong proof", wrong_stream, 0, NULL, EVIL_I | EVIL_TCP | EVIL_SEALED, .arg = 0, .made = "f"},
	{"stream: of another session", wrong_stream, 0, NULL, EVIL_I | EVIL_TCP, .arg = 1, .made = "f"},
	{"stream: of another link", wrong_stream, 0, NULL, EVIL_I | EVIL_TCP, .arg = 2, .made = "f"},
	{"stream: one too many", wrong_stream, 0, NULL, EVIL_I | EVIL_TCP, .arg = 3, .made = "f"},
	{"stream: no preamble", wrong_stream, 0, NULL, EVIL_I | EVIL_TCP, .arg = 4, .made = "f"},
	{"stream: a replayed proof", replayed_stream, 0, NULL, EVIL_I | EVIL_TCP | EVIL_SEALED, .made = "f"},
	{"stream: the proof sent back as an answer", wrong_answer, 3, NULL, EVIL_R | EVIL_TCP, .arg = 0},
	{"stream: zeros for an answer", wrong_answer, 3, NULL, EVIL_R | EVIL_TCP | EVIL_SEALED, .arg = 1},
	{"100 connections that say nothing", silent_crowd, 0, NULL, EVIL_I | EVIL_TCP, .made = "f"},
	{"caps: no slots", caps, 3, BROKE, .arg = 0},
	{"caps: 2^32 - 1 slots", caps, 3, BROKE, .arg = 1},
	{"caps: chunks of 1000", caps, 3, BROKE, .arg = 2},
	{"caps: chunks of 4 GiB", caps, 3, BROKE, .arg = 3},
	{"caps: ports that are no records", caps, 3, NULL, .arg = 4},
	{"caps: 40 ports", caps, 3, NULL, .arg = 5},
	{"caps: twice", caps, 3, BROKE, .arg = 6},
	{"link: number 0", bad_try, 3, BROKE, EVIL_I, .arg = 0},
	{"link: kind 0", bad_try, 3, BROKE, EVIL_I, .arg = 1},
	{"link: kind 99", bad_try, 3, BROKE, EVIL_I, .arg = 2},
	{"link: no slots", bad_try, 3, BROKE, EVIL_I, .arg = 3},
	{"link: 2^32 - 1 slots", bad_try, 3, BROKE, EVIL_I, .arg = 4},
	{"link: other chunks than agreed", bad_try, 3, BROKE, EVIL_I, .arg = 5},
	{"link: 255 streams", bad_try, 3, BROKE, EVIL_I, .arg = 6},
	{"link: no streams", bad_try, 3, NULL, EVIL_I, .arg = 7},
	{"link: RDMA where there is none", bad_try, 3, NULL, EVIL_I, .arg = 8},
	{"link: queue pairs where there are none", bad_try, 3, NULL, EVIL_I, .arg = 9},
	{"link: a number twice", bad_try, 3, BROKE, EVIL_I, .arg = 10},
	{"link: within one process", bad_try, 3, BROKE, EVIL_I, .arg = 11},
	{"link: TCP, which was not asked for", bad_try, 3, NULL, EVIL_I, .arg = 12},
	{"link: use of one that was not tried", bad_try, 3, BROKE, EVIL_I, .arg = 13},
	{"link: 2000 of them", bad_try, 3, BROKE, EVIL_I, .arg = 14},
	{"link: all refused", refuses_links, 3, "no transport is left", EVIL_R, .arg = 0},
	{"link: go for another", refuses_links, 3, NULL, EVIL_R, .arg = 1},
	{"link: queue pairs for a pipe", refuses_links, 3, NULL, EVIL_R, .arg = 2},
	{"abort: status 0", aborts, 3, "evil gave up", EVIL_R, .arg = 0},
	{"abort: status 255", aborts, 3, "evil gave up", EVIL_R, .arg = 255},
	{"abort: status 0", aborts, 3, NULL, EVIL_I, .arg = 0, .lines = -1}, /* it knows itself */
	{"hangs up at once", hangs_up, 3, NULL, .arg = 0},
	{"hangs up after the marker", hangs_up, 3, NULL, .arg = 1},
	{"hangs up after HELLO", hangs_up, 3, NULL, .arg = 2},
	{0},
};
