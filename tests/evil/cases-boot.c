/* Greetings, requests, half-open handshakes: evil before anything is copied. Proofs and links are in cases-links.c. */
#include "evil.h"

#include "base/clock.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <time.h>

/* ---- HELLO ---- */

static void hello(struct evil *e)
{
	static const char ugly[] = "rcp \033]0;owned\007\xc2\x9b\r\n";

	switch (e->c->arg) {
	case 0:
		e->hello.magic ^= 1;
		break;
	case 1:
		e->hello.version_min = e->hello.version_max = 0;
		break;
	case 2:
		e->hello.version_min = 2;
		e->hello.version_max = UINT16_MAX;
		break;
	case 3:
		e->hello.version_min = 5;
		e->hello.version_max = 1;
		break;
	case 4: /* what is not known is ignored */
		e->hello.features = UINT64_MAX & ~RCP_FEATURE_SEAL_ALWAYS;
		break;
	case 5:
		e->hello.features = 0;
		break;
	case 6: /* wants all sealed, and can't */
		e->hello.features = RCP_FEATURE_SEAL_ALWAYS;
		break;
	case 7:
		e->hello.version_min = 9;
		e->hello.software = rcp_span_str(ugly);
		break;
	case 8:
		e->hello.version_max = UINT16_MAX;
		break;
	}
	if (!evil_marker(e))
		return;
	evil_act(e);
	evil_say(e, RCP_MSG_HELLO, &e->hello);
	if (evil_await(e, RCP_MSG_HELLO) && evil_request(e) && evil_control(e) && evil_link(e))
		evil_copy_f(e);
	evil_drain(e);
}

static void garbage(struct evil *e)
{
	static const char http[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
	uint8_t junk[4096];

	if (e->initiator && !evil_marker(e))
		return;
	evil_act(e);
	if (e->c->arg == 0) {
		evil_raw(e, http, sizeof(http) - 1);
	} else if (e->c->arg == 1) {
		for (size_t i = 0; i < sizeof(junk); i++)
			junk[i] = (uint8_t)(i * 37 + 128);
		evil_raw(e, junk, sizeof(junk));
	} else if (e->c->arg == 2) {
		evil_raw(e, "\033]0;owned\007 no shell here \xc2\x9b", 27);
	} else {
		memset(junk, 'x', sizeof(junk));
		for (int i = 0; i < 100 && !e->gone; i++)
			evil_raw(e, junk, sizeof(junk));
	}
	if (!e->initiator || e->c->arg == 2)
		evil_hang_up(e);
}

/* Frames that can't be, right after the greeting. */
static void bad_frame(struct evil *e)
{
	uint8_t h[RCP_FRAME_HEADER + 16] = {0};

	if (!evil_greet(e))
		return;
	evil_act(e);
	rcp_put_u32(h, e->c->arg == 0 ? UINT32_MAX : e->c->arg == 1 ? 262145 : 8);
	rcp_put_u16(h + 4, e->c->arg == 2 ? 999 : RCP_MSG_PING);
	rcp_put_u16(h + 6, e->c->arg == 3 ? 1 : 0);
	if (e->c->arg == 4)
		rcp_put_u32(h, 7);
	if (e->c->arg == 5)
		rcp_put_u32(h, 9);
	evil_raw(e, h, e->c->arg == 5 ? 17 : 16);
	evil_drain(e);
}

/* ---- messages of the request, in a wrong order or number ---- */

static void order(struct evil *e)
{
	struct rcp_msg_switch to = {.to = RCP_SWITCH_PIPE};

	if (!evil_marker(e))
		return;
	evil_act(e);
	switch (e->c->arg) {
	case 0: /* START first */
		evil_say_start(e);
		evil_say_names(e, NULL, true);
		break;
	case 1:
		evil_say(e, RCP_MSG_HELLO, &e->hello);
		evil_say(e, RCP_MSG_HELLO, &e->hello);
		break;
	case 2:
		evil_say(e, RCP_MSG_HELLO, &e->hello);
		evil_say_names(e, "x", true);
		break;
	case 3:
		evil_say(e, RCP_MSG_HELLO, &e->hello);
		evil_say_start(e);
		evil_say_start(e);
		break;
	case 4:
		evil_say(e, RCP_MSG_HELLO, &e->hello);
		evil_request(e);
		evil_say_names(e, "x", true);
		break;
	case 5:
		evil_say(e, RCP_MSG_HELLO, &e->hello);
		evil_say_start(e);
		evil_say(e, RCP_MSG_SWITCH, &to);
		break;
	case 6:
		evil_say(e, RCP_MSG_HELLO, &e->hello);
		evil_request(e);
		to.to = 9;
		evil_say(e, RCP_MSG_SWITCH, &to);
		break;
	case 7:
		evil_say(e, RCP_MSG_HELLO, &e->hello);
		evil_request(e);
		evil_say(e, RCP_MSG_SWITCH, &to);
		evil_say(e, RCP_MSG_SWITCH, &to);
		break;
	case 8: /* names of nothing, for ever */
		evil_say(e, RCP_MSG_HELLO, &e->hello);
		evil_say_start(e);
		for (int i = 0; i < 100000 && !e->gone; i++)
			evil_say_names(e, NULL, false);
		break;
	case 9:
		evil_say(e, RCP_MSG_HELLO, &e->hello);
		evil_say_start(e);
		evil_say(e, RCP_MSG_NAMES, &(struct rcp_msg_names){.last = 1, .paths = rcp_span_of("abc", 3)});
		break;
	case 10: /* greets for ever */
		for (int i = 0; i < 100000 && !e->gone; i++)
			evil_say(e, RCP_MSG_HELLO, &e->hello);
		break;
	case 11:
		evil_say(e, RCP_MSG_HELLO, &e->hello);
		evil_say(e, RCP_MSG_MODULE, &(struct rcp_msg_module){.name = rcp_span_str("m")});
		break;
	}
	evil_drain(e);
}

/* The same of the responder's. */
static void answer_order(struct evil *e)
{
	struct rcp_msg_ready none = {0};
	uint8_t addrs[40 * 19] = {0};

	if (!evil_marker(e))
		return;
	evil_act(e);
	if (e->c->arg != 0)
		evil_say(e, RCP_MSG_HELLO, &e->hello);
	if (!evil_await(e, RCP_MSG_NAMES))
		return;
	switch (e->c->arg) {
	case 0:
		evil_say(e, RCP_MSG_READY, &none);
		break;
	case 1:
		evil_say(e, RCP_MSG_HELLO, &e->hello);
		break;
	case 2:
		evil_say(e, RCP_MSG_READY, &none);
		evil_say(e, RCP_MSG_READY, &none);
		break;
	case 3:
		evil_say(e, RCP_MSG_MODULES, &(struct rcp_msg_modules){0});
		break;
	case 4:
		evil_say(e, RCP_MSG_READY, &(struct rcp_msg_ready){.port = 1, .addrs = rcp_span_of("abc", 3)});
		break;
	case 5:
		for (size_t i = 0; i < 40; i++)
			addrs[i * 19] = 4, addrs[i * 19 + 1] = 127, addrs[i * 19 + 4] = (uint8_t)(i + 1);
		evil_say(e, RCP_MSG_READY, &(struct rcp_msg_ready){.port = 1, .addrs = rcp_span_of(addrs, sizeof(addrs))});
		break;
	case 6:
		evil_say(e, RCP_MSG_READY, &none); /* no port, and TCP alone is wanted */
		break;
	case 7: /* of a port where nobody is */
		addrs[0] = 4, addrs[1] = 127, addrs[4] = 1;
		evil_say(e, RCP_MSG_READY, &(struct rcp_msg_ready){.port = 1, .addrs = rcp_span_of(addrs, 19)});
		break;
	}
	evil_drain(e);
}

/* Killed while it is being connected to: the pipe ends first, and then there is no way back to it. */
static void dies_in_the_race(struct evil *e)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(at);
	uint8_t addr[19] = {4, 127, 0, 0, 1};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), peer;

	if (!evil_greet(e) || !evil_await(e, RCP_MSG_NAMES))
		return;
	if (fd < 0 || bind(fd, (const struct sockaddr *)(const void *)&at, sizeof(at)) < 0 || listen(fd, 1) < 0 ||
	    getsockname(fd, (struct sockaddr *)(void *)&at, &len) < 0)
		return;
	evil_say(e, RCP_MSG_READY, &(struct rcp_msg_ready){.port = ntohs(at.sin_port), .addrs = rcp_span_of(addr, sizeof(addr))});
	peer = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
	evil_act(e);
	evil_hang_up(e);
	usleep(200000); /* the end of the pipe is seen */
	close(peer);
	close(fd);
	usleep(200000);
}

/* ---- START ---- */

static void start(struct evil *e)
{
	struct rcp_msg_start *s = &e->start;

	switch (e->c->arg) {
	case 0:
		s->role = 0;
		break;
	case 1:
		s->role = 3;
		break;
	case 2:
		s->flags |= UINT64_C(1) << 40;
		break;
	case 3:
		s->flags |= RCP_OPT_LOCK_WAIT;
		break;
	case 4:
		s->chunk_bytes = 0;
		break;
	case 5:
		s->chunk_bytes = 0x80000000;
		break;
	case 6:
		s->chunk_bytes = 65535;
		break;
	case 7:
		s->slots = 0;
		break;
	case 8:
		s->slots = UINT32_MAX;
		break;
	case 9:
		s->transports = 0;
		break;
	case 10:
		s->source_engine = 9;
		break;
	case 11:
		s->connect = 7;
		break;
	case 12:
		s->encrypt = 3;
		break;
	case 13:
		s->family = 5;
		break;
	case 14:
		s->excludes = rcp_span_of("abc", 3);
		break;
	case 15: /* all that the ring may be, which is what there is no room for */
		s->bundle_bytes = UINT32_MAX;
		break;
	}
	if (!evil_greet(e))
		return;
	evil_act(e);
	if (evil_request(e) && evil_control(e) && evil_link(e))
		evil_copy_f(e);
	evil_drain(e);
}

/* ---- half-open ---- */

static void hold(struct evil *e)
{
	while (!e->gone && !e->aborted && !e->ctl->eof && evil_now() < e->until_ns)
		evil_get_within(e, 1000);
}

static void half_open(struct evil *e)
{
	e->mute = e->c->arg & 1;
	switch (e->c->arg / 2) {
	case 0:
		if (!evil_marker(e))
			return;
		break;
	case 1:
		if (!evil_greet(e))
			return;
		break;
	case 2:
		if (!evil_greet(e))
			return;
		if (e->initiator)
			evil_say_start(e);
		else if (!evil_await(e, RCP_MSG_NAMES))
			return;
		break;
	case 3:
		if (!evil_greet(e) || !evil_request(e))
			return;
		break;
	case 4: /* in control: it says which links it has, and no more */
		if (!evil_boot(e))
			return;
		break;
	case 5:
		if (!evil_boot(e) || !evil_caps(e))
			return;
		break;
	case 6:
		if (!evil_boot(e) || !evil_caps(e) || !evil_try(e))
			return;
		break;
	}
	evil_act(e);
	hold(e);
}

/* No READY, but a note each second. */
static void notes_for_ever(struct evil *e)
{
	if (!evil_greet(e) || !evil_await(e, RCP_MSG_NAMES))
		return;
	evil_act(e);
	while (!e->gone && !e->aborted && !e->ctl->eof && evil_now() < e->until_ns) {
		evil_say(e, RCP_MSG_NOTE, &(struct rcp_msg_note){.level = 1, .text = rcp_span_str("wait")});
		evil_get_within(e, 1000);
	}
}

#define BROKE "broke the protocol"

const struct evil_case evil_boot_cases[] = {
	/* first those that take longest */
	{"half-open: silent after the request", half_open, 3, NULL, EVIL_I, .arg = 7, .arg2 = 90},
	{"half-open: no SWITCH, but PING", half_open, 3, NULL, EVIL_I, .arg = 6, .arg2 = 90},
	{"half-open: no CAPS, but PING", half_open, 3, NULL, EVIL_I | EVIL_R, .arg = 8, .arg2 = 90},
	{"half-open: no LINK_TRY, but PING", half_open, 3, NULL, EVIL_I, .arg = 10, .arg2 = 90},
	{"half-open: silent from the start", half_open, 3, NULL, .arg = 1, .arg2 = 90},
	{"half-open: no HELLO, but PING", half_open, 3, NULL, .arg = 0, .arg2 = 90},
	{"half-open: silent after HELLO", half_open, 3, NULL, .arg = 3, .arg2 = 90},
	{"half-open: no request, but PING", half_open, 3, NULL, EVIL_I, .arg = 2, .arg2 = 90},
	{"half-open: START and no names", half_open, 3, NULL, EVIL_I, .arg = 4, .arg2 = 90},
	{"half-open: no READY, but PING", half_open, 3, NULL, EVIL_R, .arg = 4, .arg2 = 90},
	{"half-open: no READY, but notes", notes_for_ever, 3, NULL, EVIL_R, .arg2 = 90},
	{"half-open: silent after LINK_GO", half_open, 3, NULL, EVIL_R | EVIL_TCP, .arg = 13},
	{"half-open: no connection after LINK_TRY, but PING", half_open, 3, NULL, EVIL_I | EVIL_TCP, .arg = 12, .arg2 = 90},
	{"half-open: no connection after LINK_GO, but PING", half_open, 3, NULL, EVIL_R | EVIL_TCP, .arg = 12, .arg2 = 90},

	{"hello: wrong magic", hello, 3, "versions", .arg = 0},
	{"hello: version 0", hello, 3, "versions", .arg = 1},
	{"hello: versions 2 to 65535", hello, 3, "versions", .arg = 2},
	{"hello: versions 5 to 1", hello, 3, "versions", .arg = 3},
	{"hello: terminal escapes in its name", hello, 3, "versions", .arg = 7},
	{"hello: features that nobody knows", hello, 0, NULL, .arg = 4, .made = "f"},
	{"hello: versions 1 to 65535", hello, 0, NULL, .arg = 8, .made = "f"},
	{"hello: no features, on TCP", hello, 3, "seal", EVIL_SEALED, .arg = 5},
	{"hello: seals always, and can't", hello, 3, "seal", .arg = 6},
	{"garbage: HTTP", garbage, 3, NULL, .arg = 0, .lines = -1},
	{"garbage: bytes", garbage, 3, NULL, .arg = 1, .lines = -1},
	{"garbage: terminal escapes, and the end", garbage, 3, NULL, .arg = 2, .lines = -1},
	{"garbage: 400 KiB of it", garbage, 3, NULL, .arg = 3, .lines = -1},
	{"frame: 4 GiB", bad_frame, 3, BROKE, .arg = 0},
	{"frame: one byte too long", bad_frame, 3, BROKE, .arg = 1},
	{"frame: an unknown message", bad_frame, 3, BROKE, .arg = 2},
	{"frame: reserved bits", bad_frame, 3, BROKE, .arg = 3},
	{"frame: a byte is missing", bad_frame, 3, BROKE, .arg = 4},
	{"frame: a byte too many", bad_frame, 3, BROKE, .arg = 5},

	{"order: START before HELLO", order, 3, BROKE, EVIL_I, .arg = 0},
	{"order: HELLO twice", order, 3, BROKE, EVIL_I, .arg = 1},
	{"order: names before START", order, 3, BROKE, EVIL_I, .arg = 2},
	{"order: START twice", order, 3, "START twice", EVIL_I, .arg = 3},
	{"order: names after the last", order, 3, BROKE, EVIL_I, .arg = 4},
	{"order: SWITCH before READY", order, 3, BROKE, EVIL_I, .arg = 5},
	{"order: SWITCH to 9", order, 3, BROKE, EVIL_I, .arg = 6},
	{"order: SWITCH twice", order, 3, BROKE, EVIL_I, .arg = 7},
	{"endless: NAMES of nothing", order, 3, BROKE, EVIL_I, .arg = 8},
	{"order: no records among the names", order, 3, BROKE, EVIL_I, .arg = 9},
	{"endless: HELLO", order, 3, BROKE, EVIL_I, .arg = 10},
	{"order: MODULE where there are none", order, 3, BROKE, EVIL_I, .arg = 11},
	{"killed in the race for a TCP connection", dies_in_the_race, 3, NULL, EVIL_R | EVIL_TCP, .opts = "*", .lines = 1},
	{"order: READY before HELLO", answer_order, 3, BROKE, EVIL_R, .arg = 0},
	{"order: HELLO twice", answer_order, 3, BROKE, EVIL_R, .arg = 1},
	{"order: READY twice", answer_order, 3, BROKE, EVIL_R, .arg = 2},
	{"order: MODULES unasked", answer_order, 3, BROKE, EVIL_R, .arg = 3},
	{"ready: no records", answer_order, 3, NULL, EVIL_R, .arg = 4},
	{"ready: 40 addresses", answer_order, 3, NULL, EVIL_R, .arg = 5},
	{"ready: no port, where TCP is wanted", answer_order, 3, "TCP", EVIL_R | EVIL_TCP, .arg = 6},
	{"ready: a port where nobody is", answer_order, 3, "TCP", EVIL_R | EVIL_TCP, .arg = 7},

	{"start: role 0", start, 3, "role", EVIL_I, .arg = 0},
	{"start: role 3", start, 3, "role", EVIL_I, .arg = 1},
	{"start: an unknown option", start, 3, "options", EVIL_I, .arg = 2},
	{"start: an option that is on no wire", start, 3, "options", EVIL_I, .arg = 3},
	{"start: chunks of nothing", start, 3, "ring", EVIL_I, .arg = 4},
	{"start: chunks of 2 GiB", start, 3, "ring", EVIL_I, .arg = 5},
	{"start: chunks of 65535", start, 3, "ring", EVIL_I, .arg = 6},
	{"start: no slots", start, 3, "ring", EVIL_I, .arg = 7},
	{"start: 2^32 - 1 slots", start, 3, "ring", EVIL_I, .arg = 8},
	{"start: no ways", start, 3, "no way", EVIL_I, .arg = 9},
	{"start: engine 9", start, 3, "choice", EVIL_I, .arg = 10},
	{"start: connect 7", start, 3, "choice", EVIL_I, .arg = 11},
	{"start: encrypt 3", start, 3, "choice", EVIL_I, .arg = 12},
	{"start: IP version 5", start, 3, "choice", EVIL_I, .arg = 13},
	{"start: patterns that are no records", start, 3, "patterns", EVIL_I, .arg = 14},
	{"start: bundles of 4 GiB", start, 0, NULL, EVIL_I, .arg = 15, .made = "f"},



	{0},
};
