/*
 * Two control connections that talk to each other in one loop, and what they heard. For the tests
 * of ctl only: each includes it once.
 */
#ifndef RCP_TEST_CTL_PAIR_H
#define RCP_TEST_CTL_PAIR_H

#include "base/clock.h"
#include "boot/ctl.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#include <netinet/in.h>

#include <cmocka.h>

/* Not every test uses all of it. */
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wunused-variable"

enum kind { SOCKET, PIPES, TLS };

static const uint8_t key[RCP_TLS_KEY] = {7};

struct peer {
	struct rcp_ctl *ctl;
	struct peer *other;
	unsigned ready, drained, down, messages, wakes;
	unsigned in_call; /* a call of ours is running: no callback may come */
	enum rcp_msg_type last;
	uint64_t bytes;
	uint32_t next_entry; /* order of ENTRIES.first */
	char text[512];	     /* of the last NOTE or ABORT */
	char banner[200];
	size_t banner_len;
	struct rcp_err cause;
	uint8_t *place;
	size_t room;
	unsigned chunks, done_ok, done_lost;
	void (*on_message)(struct peer *p, const struct rcp_msg *msg);
	void (*on_ready)(struct peer *p);
};

static uv_loop_t loop;
static struct peer I, R; /* initiator, responder */

static void on_ready(void *arg)
{
	struct peer *p = arg;

	assert_int_equal(p->in_call, 0);
	assert_int_equal(p->messages, 0);
	p->ready++;
	if (p->on_ready)
		p->on_ready(p);
}

static void on_message(void *arg, const struct rcp_msg *msg)
{
	struct peer *p = arg;

	assert_int_equal(p->in_call, 0);
	assert_int_equal(p->down, 0);
	assert_int_equal(p->ready, 1);
	p->messages++;
	p->last = msg->type;
	if (msg->type == RCP_MSG_ENTRIES) {
		assert_int_equal(msg->entries_.first, p->next_entry++);
		p->bytes += msg->entries_.entries.len;
		for (size_t i = 0; i < msg->entries_.entries.len; i += 97)
			assert_int_equal(msg->entries_.entries.data[i], (uint8_t)i);
	} else if (msg->type == RCP_MSG_NOTE) {
		rcp_span_copy(msg->note_.text, p->text, sizeof(p->text));
	} else if (msg->type == RCP_MSG_ABORT) {
		rcp_span_copy(msg->abort_.text, p->text, sizeof(p->text));
	} else if (msg->type == RCP_MSG_CHUNK) {
		assert_ptr_equal(msg->chunk_.bytes.data, p->place);
		p->chunks++;
		p->bytes += msg->chunk_.bytes.len;
	}
	if (p->on_message)
		p->on_message(p, msg);
}

static void on_drained(void *arg)
{
	struct peer *p = arg;

	assert_int_equal(p->in_call, 0);
	assert_int_equal(rcp_ctl_queued_bytes(p->ctl), 0);
	p->drained++;
}

static void on_banner(void *arg, const char *bytes, size_t len)
{
	struct peer *p = arg;

	assert_int_equal(p->ready, 0);
	p->banner_len += len;
	snprintf(p->banner, sizeof(p->banner), "%.*s", (int)len, bytes);
}

static uint8_t *on_place(void *arg, uint32_t slot, size_t *room)
{
	struct peer *p = arg;

	*room = p->room;
	return slot == 3 ? p->place : NULL;
}

static void on_wake(void *arg)
{
	struct peer *p = arg;

	assert_int_equal(p->in_call, 0);
	p->wakes++;
}

static void on_down(void *arg, const struct rcp_err *cause)
{
	struct peer *p = arg;

	assert_int_equal(p->in_call, 0);
	assert_int_equal(p->down, 0);
	p->down++;
	p->cause = *cause;
	rcp_ctl_free(&p->ctl);
}

static const struct rcp_ctl_ops ops = {on_ready, on_message, on_drained, on_banner,
				       on_place, on_wake,    on_down};

static void done(void *arg, bool ok)
{
	struct peer *p = arg;

	assert_int_equal(p->in_call, 0);
	assert_int_equal(p->down, 0);
	if (ok)
		p->done_ok++;
	else
		p->done_lost++;
}

/* Run until *what, at most 20 s (valgrind takes its time). */
static bool until(const unsigned *what)
{
	uint64_t end = rcp_now_ns() + 20 * RCP_SEC;

	while (!*what && rcp_now_ns() < end) {
		if (uv_run(&loop, UV_RUN_NOWAIT) == 0 && !*what)
			return false;
		if (!*what)
			usleep(200);
	}
	return *what != 0;
}

static void run_ms(unsigned ms)
{
	uint64_t end = rcp_now_ns() + ms * RCP_MS;

	while (rcp_now_ns() < end) {
		uv_run(&loop, UV_RUN_NOWAIT);
		usleep(200);
	}
}

static int fds_before;

static int count_fds(void)
{
	int n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static int setup(void **state)
{
	(void)state;
	/* libuv keeps two descriptors of its first loop for good. */
	if (!fds_before && (uv_loop_init(&loop) || uv_loop_close(&loop)))
		return -1;
	fds_before = count_fds();
	memset(&I, 0, sizeof(I));
	memset(&R, 0, sizeof(R));
	I.other = &R;
	R.other = &I;
	return uv_loop_init(&loop);
}

/* Whatever is left is freed; then the loop must be empty and no descriptor left. */
static int teardown(void **state)
{
	(void)state;
	rcp_ctl_free(&I.ctl);
	rcp_ctl_free(&R.ctl);
	uv_run(&loop, UV_RUN_DEFAULT);
	free(I.place);
	free(R.place);
	if (uv_loop_close(&loop))
		return -1;
	assert_int_equal(count_fds(), fds_before);
	return 0;
}

static void tcp_pair(int fd[2])
{
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(sa);
	int l = socket(AF_INET, SOCK_STREAM, 0);

	assert_int_equal(bind(l, (struct sockaddr *)&sa, len), 0);
	assert_int_equal(listen(l, 1), 0);
	getsockname(l, (struct sockaddr *)&sa, &len);
	fd[0] = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(connect(fd[0], (struct sockaddr *)&sa, len), 0);
	fd[1] = accept(l, NULL, NULL);
	close(l);
}

static void make_tls(struct peer *p, int fd, bool server, const uint8_t *k, unsigned ms)
{
	struct rcp_tls_params t = {.server = server, .identity = "id", .key = k};
	struct rcp_err err = {0};

	p->in_call++;
	assert_int_equal(rcp_ctl_new_tls(&loop, fd, &t, ms, server ? "client" : "host", &ops, p,
					 &err, &p->ctl),
			 0);
	p->in_call--;
}

static void make_pipe(struct peer *p, int rfd, int wfd, bool responder)
{
	struct rcp_err err = {0};

	p->in_call++;
	assert_int_equal(
		rcp_ctl_new_pipe(&loop, rfd, wfd, responder, "host", &ops, p, &err, &p->ctl), 0);
	p->in_call--;
}

static void connect_pair(enum kind kind)
{
	int a[2], b[2];

	if (kind == TLS) {
		tcp_pair(a);
		make_tls(&I, a[0], false, key, 20000);
		make_tls(&R, a[1], true, key, 20000);
	} else if (kind == SOCKET) {
		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, a), 0);
		make_pipe(&I, a[0], a[0], false);
		make_pipe(&R, a[1], a[1], true);
	} else {
		assert_int_equal(pipe(a), 0);
		assert_int_equal(pipe(b), 0);
		make_pipe(&I, a[0], b[1], false);
		make_pipe(&R, b[0], a[1], true);
	}
	assert_true(until(&I.ready));
	assert_true(until(&R.ready));
	rcp_ctl_set_phase(I.ctl, RCP_PHASE_COPY);
	rcp_ctl_set_phase(R.ctl, RCP_PHASE_COPY);
	rcp_ctl_set_peer_role(I.ctl, RCP_ROLE_SINK);
	rcp_ctl_set_peer_role(R.ctl, RCP_ROLE_SOURCE);
}

static void send_note(struct peer *p, const char *text)
{
	struct rcp_msg_note m = {.text = rcp_span_str(text)};

	p->in_call++;
	rcp_ctl_send(p->ctl, RCP_MSG_NOTE, &m);
	p->in_call--;
}

static void send_entries(struct peer *p, uint32_t first, size_t len)
{
	static uint8_t blob[RCP_FRAME_MAX];
	struct rcp_msg_entries m = {.first = first, .count = 1, .entries = rcp_span_of(blob, len)};

	for (size_t i = 0; i < sizeof(blob) && !first; i++)
		blob[i] = (uint8_t)i;
	p->in_call++;
	rcp_ctl_send(p->ctl, RCP_MSG_ENTRIES, &m);
	p->in_call--;
}

static void each(void (*test)(enum kind kind), void **state)
{
	for (enum kind k = SOCKET; k <= TLS; k++) {
		test(k);
		assert_int_equal(teardown(state), 0);
		assert_int_equal(setup(state), 0);
	}
}

/* A responder against raw bytes. Returns our end of the socket. */
static int raw_peer(bool responder)
{
	int fd[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
	make_pipe(responder ? &R : &I, fd[0], fd[0], responder);
	return fd[1];
}

static const uint8_t note_frame[] = {0, 0, 0, 5, 0, 34, 0, 0, 1, 0, 2, 'h', 'i'};
static const uint8_t ping_frame[16] = {0, 0, 0, 8, 0, 32, 0, 0, 1};

static void assert_refused(const struct peer *p, const char *word)
{
	assert_int_equal(p->down, 1);
	assert_int_equal(p->cause.code, RCP_E_CONNECT);
	assert_string_equal(p->cause.object[0] ? "named" : "", "named");
	if (!strstr(p->cause.text, word))
		fail_msg("no '%s' in '%s'", word, p->cause.text);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

#endif
