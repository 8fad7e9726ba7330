#include "boot/preamble.h"

#include "base/bytes.h"

#include <string.h>

#define PROOF_AT 24

static const uint8_t magic[4] = {'r', 'c', 'p', 'D'};

static void put_head(const struct rcp_preamble *p, uint8_t out[PROOF_AT])
{
	memcpy(out, magic, 4);
	memcpy(out + 4, p->session, RCP_SESSION);
	rcp_put_u16(out + 20, p->link);
	rcp_put_u16(out + 22, p->stream);
}

int rcp_preamble_encode(const struct rcp_preamble *p, const uint8_t key[RCP_SECRET],
			uint8_t out[RCP_PREAMBLE], struct rcp_err *err)
{
	put_head(p, out);
	return rcp_secret_hmac(key, "rcp data stream", out, PROOF_AT, out + PROOF_AT, err);
}

bool rcp_preamble_decode(const uint8_t in[RCP_PREAMBLE], struct rcp_preamble *p)
{
	if (memcmp(in, magic, 4) != 0)
		return false;
	memcpy(p->session, in + 4, RCP_SESSION);
	p->link = rcp_get_u16(in + 20);
	p->stream = rcp_get_u16(in + 22);
	memcpy(p->proof, in + PROOF_AT, RCP_SECRET);
	return true;
}

static int make_answer(const uint8_t preamble[RCP_PREAMBLE], const uint8_t key[RCP_SECRET],
		       uint8_t answer[RCP_PREAMBLE_ANSWER])
{
	struct rcp_err err = {0};

	return rcp_secret_hmac(key, "rcp data answer", preamble, RCP_PREAMBLE, answer, &err);
}

bool rcp_preamble_check(const struct rcp_preamble *p, const uint8_t session[RCP_SESSION],
			const uint8_t key[RCP_SECRET], uint8_t answer[RCP_PREAMBLE_ANSWER])
{
	uint8_t want[RCP_PREAMBLE];
	struct rcp_err err = {0};

	if (rcp_preamble_encode(p, key, want, &err))
		return false;
	bool right = rcp_secret_equal(p->session, session, RCP_SESSION);

	right &= rcp_secret_equal(p->proof, want + PROOF_AT, RCP_SECRET);
	return right && make_answer(want, key, answer) == 0;
}

bool rcp_preamble_answered(const uint8_t sent[RCP_PREAMBLE], const uint8_t key[RCP_SECRET],
			   const uint8_t answer[RCP_PREAMBLE_ANSWER])
{
	uint8_t want[RCP_PREAMBLE_ANSWER];

	return make_answer(sent, key, want) == 0 &&
	       rcp_secret_equal(answer, want, RCP_PREAMBLE_ANSWER);
}
