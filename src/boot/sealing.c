/*
 * Which links are sealed, and with what key. Both ends work it out from what both have said: HELLO's
 * features and START's wish. Keys come from what the two ends of the control connection alone share.
 */
#include "boot/run.h"

#include "link/seal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* RFC 8446, 7.5; RFC 5705, 4: labels that are not registered begin so. */
#define EXPORTER_LABEL "EXPERIMENTAL rcp seal"

uint64_t sealing_features(const struct rcp_run *run)
{
	bool always = run->must_seal || (run->initiator && run->req.encrypt == RCP_ENCRYPT_ALWAYS);
	uint64_t seal = RCP_FEATURE_SEAL | (always ? RCP_FEATURE_SEAL_ALWAYS : 0);

#if RCP_TEST_HOOKS
	if (getenv("RCP_TEST_NO_SEAL")) /* an rcp that is too old for it */
		seal = 0;
#endif
	return RCP_FEATURE_BUNDLES | RCP_FEATURE_RESUME | RCP_FEATURE_OOB | seal;
}

/* Either end's "always" counts more than the user's wish. */
static enum rcp_encrypt mode(const struct rcp_run *run)
{
	if (run->must_seal || run->peer_features & RCP_FEATURE_SEAL_ALWAYS)
		return RCP_ENCRYPT_ALWAYS;
	return run->req.encrypt;
}

/* The pipe is ssh's or TLS's own, which protect what goes through it. */
static bool seals(const struct rcp_run *run, enum rcp_link_kind kind)
{
	if (mode(run) == RCP_ENCRYPT_ALWAYS)
		return kind != RCP_LINK_PIPE;
	return mode(run) == RCP_ENCRYPT_AUTO && kind == RCP_LINK_TCP;
}

int sealing_agree(const struct rcp_run *run, struct rcp_err *err)
{
	bool always = mode(run) == RCP_ENCRYPT_ALWAYS;
	bool tcp = mode(run) == RCP_ENCRYPT_AUTO && run->req.transports & 1u << RCP_LINK_TCP;
	bool both = run->peer_features & sealing_features(run) & RCP_FEATURE_SEAL;

	if (both || !(always || tcp))
		return 0;
	rcp_err_set(err, RCP_E_CONNECT, 0, "", run->initiator ? run->host : NULL,
		    run->peer_features & RCP_FEATURE_SEAL ? "this rcp can't seal the data, which %s"
							  : "the other end's rcp can't seal the data, which %s",
		    always ? "--encrypt=always demands" : "--encrypt=auto does on TCP");
	rcp_err_fix(err, "install the same version at both ends%s",
		    always ? "" : ", or go without: --encrypt=never");
	return (int)err->code;
}

/* One secret of both ends; 32 bytes. On a pipe there is no TLS, and the session's secret came through it. */
static int base_key(struct rcp_run *run, uint8_t out[RCP_SECRET], struct rcp_err *err)
{
	if (run->ctl != run->pipe)
		return rcp_ctl_export(run->ctl, EXPORTER_LABEL, out, RCP_SECRET, err);
	return rcp_secret_hmac(run->secret, "seal", run->session, sizeof(run->session), out, err);
}

/* Of the direction: a key never serves both. */
static int link_key(struct rcp_run *run, uint32_t generation, uint8_t key[RCP_SEAL_KEY], struct rcp_err *err)
{
	bool from_initiator = run->initiator == (run->req.role == RCP_ROLE_SOURCE);
	uint8_t base[RCP_SECRET], data[4];

	rcp_put_u32(data, generation);
	if (!base_key(run, base, err))
		rcp_secret_hmac(base, from_initiator ? "seal from initiator" : "seal from responder", data,
				sizeof(data), key, err);
	rcp_secret_wipe(base, sizeof(base));
	return (int)err->code;
}

int sealing_start(struct rcp_attempt *a, uint32_t generation, struct rcp_err *err)
{
	struct rcp_run *run = a->run;
	uint8_t key[RCP_SEAL_KEY];

	if (!seals(run, a->cand.kind))
		return 0;
	/* Sequences begin anew with each link, so its generation must be one that had none. */
	if (generation <= run->seal_generation)
		return rcp_err_set(err, RCP_E_CONNECT, 0, "", run->host,
				   "the peer broke the protocol: a link's generation used twice");
	run->seal_generation = generation;
	if (!link_key(run, generation, key, err))
		rcp_seal_new(key, generation, err, &a->link->seal);
	rcp_secret_wipe(key, sizeof(key));
	return (int)err->code;
}

const char *sealing_word(const struct rcp_attempt *a)
{
	if (seals(a->run, a->cand.kind))
		return "aes-256-gcm";
	if (a->cand.kind == RCP_LINK_PIPE)
		return a->run->ctl == a->run->pipe && !run_has_daemon(a->run) ? "ssh" : "tls";
	return NULL;
}

void sealing_blame(const struct rcp_attempt *a, struct rcp_err *cause)
{
	static const char protocol[] = "the peer broke the protocol: ";
	struct rcp_err err = *cause;
	const char *text = rcp_err_reason(cause);

	if (!a->link->seal || cause->code != RCP_E_CONNECT)
		return;
	if (!strncmp(text, protocol, strlen(protocol)))
		text += strlen(protocol);
	snprintf(err.text, sizeof(err.text), "bytes were lost or changed on the way: %.250s", text);
	err.code = RCP_E_INTEGRITY;
	*cause = err;
}
