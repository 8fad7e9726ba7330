/* sealing: which links are sealed by what both ends said, who is refused, and that keys are one a link and direction. */
#include "boot/run.h"
#include "link/seal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ALL (1u << RCP_LINK_RDMA_CM | 1u << RCP_LINK_RDMA_OOB | 1u << RCP_LINK_TCP | 1u << RCP_LINK_PIPE)

/* Both ends of one connection, by the pipe: the secret came through it. */
struct pair {
	struct rcp_run *i, *r;
};

static struct rcp_run *end(bool initiator, enum rcp_role role, enum rcp_encrypt encrypt)
{
	struct rcp_run *run = calloc(1, sizeof(*run));

	assert_non_null(run);
	run->initiator = initiator;
	run->req.role = role;
	run->req.encrypt = encrypt;
	run->req.transports = ALL;
	strcpy(run->host, initiator ? "box" : "initiator");
	memset(run->secret, 0x5a, sizeof(run->secret));
	memset(run->session, 0xa5, sizeof(run->session));
	return run;
}

static struct pair pair_of(enum rcp_encrypt wish, bool must_seal, bool up)
{
	struct pair p = {end(true, up ? RCP_ROLE_SOURCE : RCP_ROLE_SINK, wish),
			 end(false, up ? RCP_ROLE_SINK : RCP_ROLE_SOURCE, wish)};

	p.r->must_seal = must_seal;
	p.i->peer_features = sealing_features(p.r);
	p.r->peer_features = sealing_features(p.i);
	return p;
}

static void pair_free(struct pair *p)
{
	free(p->i);
	free(p->r);
}

static const char *word(struct rcp_run *run, enum rcp_link_kind kind)
{
	struct rcp_attempt a = {.run = run, .cand.kind = kind};

	return sealing_word(&a);
}

static void wishes(void **state)
{
	static const struct {
		enum rcp_encrypt wish;
		bool must, rdma, tcp;
	} rows[] = {
		{RCP_ENCRYPT_AUTO, false, false, true},	 {RCP_ENCRYPT_ALWAYS, false, true, true},
		{RCP_ENCRYPT_NEVER, false, false, false}, {RCP_ENCRYPT_AUTO, true, true, true},
		{RCP_ENCRYPT_ALWAYS, true, true, true},	 {RCP_ENCRYPT_NEVER, true, true, true},
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct pair p = pair_of(rows[i].wish, rows[i].must, true);
		struct rcp_run *ends[] = {p.i, p.r};
		struct rcp_err err = {0};

		for (unsigned e = 0; e < 2; e++) {
			assert_int_equal(word(ends[e], RCP_LINK_RDMA_CM) != NULL, rows[i].rdma);
			assert_int_equal(word(ends[e], RCP_LINK_RDMA_OOB) != NULL, rows[i].rdma);
			assert_int_equal(word(ends[e], RCP_LINK_TCP) != NULL, rows[i].tcp);
			assert_string_equal(word(ends[e], RCP_LINK_PIPE), "ssh");
			assert_int_equal(sealing_agree(ends[e], &err), 0);
		}
		pair_free(&p);
	}
}

/* Against an end without the feature bit, told by the end that sees it. */
static void refusals(void **state)
{
	static const struct {
		enum rcp_encrypt wish;
		unsigned transports;
		bool refused;
	} rows[] = {
		{RCP_ENCRYPT_AUTO, ALL, true},
		{RCP_ENCRYPT_AUTO, 1u << RCP_LINK_TCP, true},
		{RCP_ENCRYPT_AUTO, 1u << RCP_LINK_PIPE, false},
		{RCP_ENCRYPT_AUTO, 1u << RCP_LINK_RDMA_CM, false},
		{RCP_ENCRYPT_ALWAYS, ALL, true},
		{RCP_ENCRYPT_ALWAYS, 1u << RCP_LINK_RDMA_CM, true},
		{RCP_ENCRYPT_NEVER, ALL, false},
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct pair p = pair_of(rows[i].wish, false, true);
		struct rcp_err err = {0};

		p.i->req.transports = rows[i].transports;
		p.i->peer_features = RCP_FEATURE_BUNDLES;
		assert_int_equal(sealing_agree(p.i, &err), rows[i].refused ? RCP_E_CONNECT : 0);
		if (rows[i].refused)
			assert_non_null(strstr(err.text, "the other end's rcp can't seal the data"));
		pair_free(&p);
	}
}

/* A link of this end with its key. */
static struct rcp_seal *key(struct rcp_run *run, uint32_t generation)
{
	struct rcp_link link = {0};
	struct rcp_attempt a = {.run = run, .cand.kind = RCP_LINK_TCP, .link = &link};
	struct rcp_err err = {0};

	assert_int_equal(sealing_start(&a, generation, &err), 0);
	assert_non_null(link.seal);
	return link.seal;
}

static enum rcp_unseal passes(struct rcp_seal *from, struct rcp_seal *to)
{
	uint8_t payload[100] = "what is sent";
	uint32_t crc;
	struct rcp_chunk c = {.length = sizeof(payload)};
	struct rcp_err err = {0};

	assert_int_equal(rcp_seal_chunk(from, &c, payload, &err), 0);
	return rcp_unseal_chunk(to, &c, payload, &crc);
}

static void keys(void **state)
{
	(void)state;
	struct pair up = pair_of(RCP_ENCRYPT_AUTO, false, true), down = pair_of(RCP_ENCRYPT_AUTO, false, false);
	struct pair other = pair_of(RCP_ENCRYPT_AUTO, false, true);

	other.i->session[0] ^= 1;
	struct rcp_seal *from = key(up.i, 7), *to = key(up.r, 7), *later = key(up.r, 8);
	struct rcp_seal *back = key(down.i, 7), *stranger = key(other.i, 7);

	assert_int_equal(passes(from, to), RCP_UNSEAL_OK);
	assert_int_equal(passes(from, later), RCP_UNSEAL_FORGED);
	assert_int_equal(passes(from, back), RCP_UNSEAL_FORGED);
	assert_int_equal(passes(stranger, to), RCP_UNSEAL_FORGED);
	/* by another HMAC, from what rcp-protocol(7) says */
	static const uint8_t known[RCP_SEAL_KEY] = {
		0x25, 0x03, 0x7c, 0xa7, 0xe0, 0x7d, 0x2f, 0x5f, 0x07, 0x0e, 0x17, 0x01,
		0xff, 0x9e, 0xbf, 0x84, 0x0b, 0x7c, 0x83, 0x8a, 0xa0, 0x2d, 0x03, 0xe0,
		0x6b, 0xfd, 0xad, 0x48, 0x72, 0xd0, 0x1f, 0x5c};
	struct rcp_seal *same;
	struct rcp_err err = {0};

	assert_int_equal(rcp_seal_new(known, 7, &err, &same), 0);
	assert_int_equal(passes(from, same), RCP_UNSEAL_OK);
	rcp_seal_free(&same);
	rcp_seal_free(&from);
	rcp_seal_free(&to);
	rcp_seal_free(&later);
	rcp_seal_free(&back);
	rcp_seal_free(&stranger);
	pair_free(&up);
	pair_free(&down);
	pair_free(&other);
}

/* Sequences begin anew with each link: a sink that names a generation twice gets no second key. */
static void never_twice(void **state)
{
	struct pair p = pair_of(RCP_ENCRYPT_AUTO, false, true);
	struct rcp_link link = {0};
	struct rcp_attempt a = {.run = p.i, .cand.kind = RCP_LINK_TCP, .link = &link};
	struct rcp_seal *first = key(p.i, 3), *second;

	(void)state;
	for (uint32_t generation = 0; generation <= 3; generation++) {
		struct rcp_err err = {0};

		assert_int_equal(sealing_start(&a, generation, &err), RCP_E_CONNECT);
		assert_null(link.seal);
		assert_non_null(strstr(err.text, "generation"));
	}
	second = key(p.i, 4);
	rcp_seal_free(&first);
	rcp_seal_free(&second);
	/* and what is not sealed needs none */
	struct rcp_err err = {0};

	a.cand.kind = RCP_LINK_RDMA_CM;
	assert_int_equal(sealing_start(&a, 1, &err), 0);
	assert_null(link.seal);
	pair_free(&p);
}

static void blame(void **state)
{
	struct pair p = pair_of(RCP_ENCRYPT_AUTO, false, true);
	struct rcp_link link = {.seal = key(p.i, 1)};
	struct rcp_attempt a = {.run = p.i, .cand.kind = RCP_LINK_TCP, .link = &link};
	struct rcp_err err = {0}, lost = {0};

	(void)state;
	rcp_err_set(&err, RCP_E_CONNECT, 0, NULL, "h", "the peer broke the protocol: a chunk too far");
	rcp_err_set(&lost, RCP_E_LINK, 0, NULL, "h", "closed");
	sealing_blame(&a, &err);
	sealing_blame(&a, &lost);
	assert_int_equal(err.code, RCP_E_INTEGRITY);
	assert_string_equal(err.text, "bytes were lost or changed on the way: a chunk too far");
	assert_int_equal(lost.code, RCP_E_LINK);
	rcp_seal_free(&link.seal);
	err.code = RCP_E_CONNECT;
	sealing_blame(&a, &err);
	assert_int_equal(err.code, RCP_E_CONNECT);
	pair_free(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(wishes), cmocka_unit_test(refusals),	 cmocka_unit_test(keys),
		cmocka_unit_test(never_twice), cmocka_unit_test(blame),
	};

	return cmocka_run_group_tests_name("sealing", tests, NULL, NULL);
}
