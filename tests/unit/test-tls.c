/* tls: only two ends with one key get through, and nothing changed on the way does. */
#include "boot/secret.h"
#include "boot/tls.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const uint8_t key_a[RCP_TLS_KEY] = {1, 2, 3, 4};
static const uint8_t key_b[RCP_TLS_KEY] = {1, 2, 3, 5};

struct end {
	struct rcp_tls *tls;
	struct rcp_err err;
	int state; /* of the handshake */
};

struct pair {
	struct end client, server;
	size_t moved[2];     /* ciphertext so far: [0] client's, [1] server's */
	size_t flip_at[2];   /* byte whose lowest bit is turned, from 1; 0: none */
	unsigned char first; /* of the client's bytes */
};

static bool lookup(void *arg, const char *identity, uint8_t key[RCP_TLS_KEY])
{
	(void)arg;
	if (strcmp(identity, "alice") != 0)
		return false;
	memcpy(key, key_a, RCP_TLS_KEY);
	return true;
}

static void make(struct pair *p, const char *client, const uint8_t *client_key, const char *server)
{
	struct rcp_tls_params c = {.identity = client, .key = client_key};
	struct rcp_tls_params s = {.server = true, .identity = server, .key = key_a};

	if (!server)
		s.lookup = lookup;
	assert_int_equal(rcp_tls_new(&c, &p->client.err, &p->client.tls), 0);
	assert_int_equal(rcp_tls_new(&s, &p->server.err, &p->server.tls), 0);
}

static void drop(struct pair *p)
{
	rcp_tls_free(&p->client.tls);
	rcp_tls_free(&p->server.tls);
	memset(p, 0, sizeof(*p));
}

/* Carry what one end has to say to the other. Returns the bytes. */
static size_t carry(struct pair *p, unsigned dir)
{
	struct end *from = dir ? &p->server : &p->client, *to = dir ? &p->client : &p->server;
	uint8_t buf[4096];
	size_t n = rcp_tls_pull(from->tls, buf, sizeof(buf));
	size_t flip = p->flip_at[dir];

	if (flip > p->moved[dir] && flip <= p->moved[dir] + n)
		buf[flip - 1 - p->moved[dir]] ^= 1;
	if (n && !dir && !p->moved[0])
		p->first = buf[0];
	p->moved[dir] += n;
	assert_int_equal(rcp_tls_feed(to->tls, buf, n, &to->err), 0);
	return n;
}

static void shake(struct end *e)
{
	if (e->state == 0)
		e->state = rcp_tls_handshake(e->tls, &e->err);
}

/* Until nothing moves any more. */
static void run(struct pair *p)
{
	size_t n;

	do {
		shake(&p->client);
		n = carry(p, 0);
		shake(&p->server);
		n += carry(p, 1);
	} while (n);
}

static void one_key_gets_through(void **state)
{
	struct pair p = {0};
	uint8_t a[32], b[32];
	char buf[64];

	(void)state;
	make(&p, "session", key_a, "session");
	run(&p);
	assert_int_equal(p.client.state, 1);
	assert_int_equal(p.server.state, 1);
	assert_int_equal(p.first, 0x16); /* what the listener goes by */
	assert_string_equal(rcp_tls_identity(p.server.tls), "session");
	assert_true(p.moved[0] + p.moved[1] < 2048);

	assert_int_equal(rcp_tls_write(p.client.tls, "hello", 5, &p.client.err), 5);
	carry(&p, 0);
	assert_int_equal(rcp_tls_read(p.server.tls, buf, sizeof(buf), &p.server.err), 5);
	assert_memory_equal(buf, "hello", 5);
	assert_int_equal(rcp_tls_read(p.server.tls, buf, sizeof(buf), &p.server.err), 0);
	assert_int_equal(rcp_tls_write(p.server.tls, "world", 5, &p.server.err), 5);
	carry(&p, 1);
	assert_int_equal(rcp_tls_read(p.client.tls, buf, sizeof(buf), &p.client.err), 5);

	assert_int_equal(rcp_tls_export(p.client.tls, "rcp data", a, 32, &p.client.err), 0);
	assert_int_equal(rcp_tls_export(p.server.tls, "rcp data", b, 32, &p.server.err), 0);
	assert_memory_equal(a, b, 32);
	assert_int_equal(rcp_tls_export(p.server.tls, "rcp other", b, 32, &p.server.err), 0);
	assert_memory_not_equal(a, b, 32);

	rcp_tls_shutdown(p.client.tls);
	carry(&p, 0);
	assert_int_equal(rcp_tls_read(p.server.tls, buf, sizeof(buf), &p.server.err), 0);
	assert_true(rcp_tls_eof(p.server.tls));
	drop(&p);
}

static void sessions_share_nothing(void **state)
{
	struct pair p = {0}, q = {0};
	uint8_t a[32], b[32];

	(void)state;
	make(&p, "session", key_a, "session");
	make(&q, "session", key_a, "session");
	run(&p);
	run(&q);
	rcp_tls_export(p.client.tls, "rcp data", a, 32, &p.client.err);
	rcp_tls_export(q.client.tls, "rcp data", b, 32, &q.client.err);
	assert_memory_not_equal(a, b, 32); /* (EC)DHE: the key alone does not tell */
	drop(&p);
	drop(&q);
}

static void assert_refused(struct pair *p)
{
	char buf[16];

	run(p);
	assert_int_equal(p->server.state, -1);
	assert_int_equal(p->client.state, -1);
	assert_int_equal(p->server.err.code, RCP_E_CONNECT);
	assert_non_null(strstr(p->server.err.text, "do not hold the same key"));
	assert_non_null(strstr(p->client.err.text, "do not hold the same key"));
	assert_int_equal(rcp_tls_read(p->server.tls, buf, sizeof(buf), &p->server.err), 0);
	assert_int_equal(rcp_tls_write(p->client.tls, "x", 1, &p->client.err), 0);
	assert_int_not_equal(rcp_tls_export(p->client.tls, "l", (uint8_t *)buf, 8, &p->client.err),
			     0);
	assert_string_equal(rcp_tls_identity(p->server.tls), "");
	drop(p);
}

static void others_do_not(void **state)
{
	struct pair p = {0};

	(void)state;
	make(&p, "session", key_b, "session");
	assert_refused(&p);
	/* An unknown name can't be told from a wrong key. */
	make(&p, "another", key_a, "session");
	assert_refused(&p);
	make(&p, "bob", key_a, NULL);
	assert_refused(&p);
	make(&p, "alice", key_b, NULL);
	assert_refused(&p);
	make(&p, "alice", key_a, NULL);
	run(&p);
	assert_int_equal(p.server.state, 1);
	assert_string_equal(rcp_tls_identity(p.server.tls), "alice");
	drop(&p);
}

/* The minor version in an unencrypted record's header: RFC 8446 tells the receiver to ignore it. */
static bool ignored(size_t at)
{
	return at == 3;
}

static void flip_each(unsigned dir, size_t total)
{
	for (size_t at = 1; at <= total; at++) {
		struct pair p = {0};
		char buf[16];

		if (ignored(at))
			continue;
		make(&p, "session", key_a, "session");
		p.flip_at[dir] = at;
		run(&p);
		rcp_tls_write(p.client.tls, "secret", 6, &p.client.err);
		rcp_tls_write(p.server.tls, "secret", 6, &p.server.err);
		run(&p);
		/* The client is done before the server; the server only with both. */
		assert_int_not_equal(p.server.state, 1);
		assert_int_equal(rcp_tls_read(p.server.tls, buf, sizeof(buf), &p.server.err), 0);
		if (dir == 1)
			assert_int_not_equal(p.client.state, 1);
		assert_true(rcp_tls_read(p.client.tls, buf, sizeof(buf), &p.client.err) <= 0);
		drop(&p);
	}
}

static void no_bit_may_change(void **state)
{
	struct pair p = {0};

	(void)state;
	make(&p, "session", key_a, "session");
	run(&p);
	size_t client = p.moved[0], server = p.moved[1];

	drop(&p);
	flip_each(0, client);
	flip_each(1, server);
}

static void a_changed_record_is_not_read(void **state)
{
	struct pair p = {0};
	char buf[64];

	(void)state;
	make(&p, "session", key_a, "session");
	run(&p);
	rcp_tls_write(p.client.tls, "important", 9, &p.client.err);
	p.flip_at[0] = p.moved[0] + 8;
	carry(&p, 0);
	assert_int_equal(rcp_tls_read(p.server.tls, buf, sizeof(buf), &p.server.err), -1);
	assert_int_equal(p.server.err.code, RCP_E_LINK);
	drop(&p);
}

static void endless_handshakes_end(void **state)
{
	struct pair p = {0};
	/* A handshake record that says it goes on and on. */
	static const uint8_t head[] = {0x16, 3, 1, 0x40, 0, 1, 0, 0x3f, 0xff, 3, 3};
	uint8_t zeros[1024] = {0};
	int rounds = 0;

	(void)state;
	make(&p, "session", key_a, "session");
	rcp_tls_feed(p.server.tls, head, sizeof(head), &p.server.err);
	while (p.server.state == 0 && rounds++ < 100) {
		rcp_tls_feed(p.server.tls, zeros, sizeof(zeros), &p.server.err);
		shake(&p.server);
	}
	assert_int_equal(p.server.state, -1);
	assert_true(rounds <= 10);
	assert_non_null(strstr(p.server.err.text, "no end of a handshake"));
	drop(&p);
}

static void names_are_bounded(void **state)
{
	char name[RCP_TLS_IDENTITY_MAX + 2];
	struct rcp_tls_params params = {.identity = name, .key = key_a};
	struct rcp_err err = {0};
	struct rcp_tls *tls;

	(void)state;
	memset(name, 'n', sizeof(name));
	name[RCP_TLS_IDENTITY_MAX + 1] = 0;
	assert_int_equal(rcp_tls_new(&params, &err, &tls), RCP_E_USAGE);
	assert_null(tls);
	memset(&err, 0, sizeof(err));
	params.identity = "";
	assert_int_equal(rcp_tls_new(&params, &err, &tls), RCP_E_USAGE);
}

static void secrets(void **state)
{
	/* HMAC-SHA-256(key, "label\\0data") by another implementation. */
	static const uint8_t want[4] = {0x01, 0x0f, 0x18, 0x32};
	uint8_t a[32], b[32];
	char id[RCP_IDENTITY];
	struct rcp_err err = {0};

	(void)state;
	assert_int_equal(rcp_secret_random(a, 32, &err), 0);
	assert_int_equal(rcp_secret_random(b, 32, &err), 0);
	assert_memory_not_equal(a, b, 32);
	assert_true(rcp_secret_equal(a, a, 32));
	memcpy(b, a, 32);
	b[31] ^= 0x80;
	assert_false(rcp_secret_equal(a, b, 32));
	rcp_secret_wipe(b, 32);
	for (unsigned i = 0; i < 32; i++)
		assert_int_equal(b[i], 0);
	assert_int_equal(rcp_secret_hmac(key_a, "label", "data", 4, a, &err), 0);
	assert_memory_equal(a, want, 4);
	assert_int_equal(rcp_secret_hmac(key_a, "labe", "ldata", 5, b, &err), 0);
	assert_memory_not_equal(a, b, 32);
	static const uint8_t session[RCP_SESSION] = {0xde, 0xad, 0, 1};

	assert_string_equal(rcp_secret_identity(session, id), "dead0001000000000000000000000000");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_key_gets_through),
		cmocka_unit_test(sessions_share_nothing),
		cmocka_unit_test(others_do_not),
		cmocka_unit_test(no_bit_may_change),
		cmocka_unit_test(a_changed_record_is_not_read),
		cmocka_unit_test(endless_handshakes_end),
		cmocka_unit_test(names_are_bounded),
		cmocka_unit_test(secrets),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
