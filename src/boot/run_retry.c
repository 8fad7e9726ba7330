/*
 * A copy whose connection was lost is taken up again with a new login: what is done is not sent again,
 * partial files go on from their journals. Initiator only; --retries says how often.
 */
#include "boot/run.h"

#include "base/clock.h"

#include <stddef.h>
#include <string.h>

#define BACKOFF_MOST 5 /* 2^5 s */

static unsigned backoff_s(unsigned tries)
{
	return 1u << (tries - 1 < BACKOFF_MOST ? tries - 1 : BACKOFF_MOST);
}

static bool wanted(const struct rcp_run *run, const struct rcp_err *err)
{
	if (!run->initiator || !run->where.host || !run->linked || run->cancel_code)
		return false;
	/* Once lost, that it can't be made again yet is more of the same. */
	return err->code == RCP_E_LINK || (err->code == RCP_E_CONNECT && run->reconnects);
}

static void warn(struct rcp_run *run, const struct rcp_err *err)
{
	struct rcp_err w = {0};
	unsigned most = (unsigned)run->options->retries;

	rcp_err_set(&w, err->code, err->sys_errno, err->call, err->object, "%s", rcp_err_reason(err));
	rcp_err_fix(&w, "connecting again in %u s, try %u of %u", backoff_s(run->reconnects),
		    run->reconnects, most);
	run_fault(run, &w, true);
}

bool retry_take(struct rcp_run *run, const struct rcp_err *err)
{
	if (!wanted(run, err) || run->reconnects >= (unsigned)run->options->retries)
		return false;
	run->reconnects++;
	run->retry = true;
	warn(run, err);
	return true;
}

static void add_counts(struct rcp_session_stats *to, const struct rcp_session_stats *st)
{
	to->zero_copy_bytes += st->zero_copy_bytes;
	to->staged_bytes += st->staged_bytes;
	to->sealed_bytes += st->sealed_bytes;
	to->resent_chunks += st->resent_chunks;
	to->wait_source_ns += st->wait_source_ns;
	to->wait_credit_ns += st->wait_credit_ns;
	to->wait_network_ns += st->wait_network_ns;
	to->wait_sink_ns += st->wait_sink_ns;
}

struct rcp_session_stats retry_totals(const struct rcp_run *run)
{
	struct rcp_session_stats total = run->stats;

	add_counts(&total, &run->before);
	return total;
}

void retry_wait(struct rcp_run *run, uint64_t now)
{
	const size_t from = offsetof(struct rcp_run, secret);

	run_stats(run);
	run->stats.current = NULL;
	add_counts(&run->before, &run->stats);
	run_forget(run);
	memset((char *)run + from, 0, sizeof(*run) - from);
	rcp_done_free(&run->target.done, false); /* the target itself stays */
	run->retry = false;
	run->retry_ns = now + backoff_s(run->reconnects) * RCP_SEC;
}

void retry_turn(struct rcp_run *run, uint64_t now)
{
	struct rcp_err err = {0};

	if (now < run->retry_ns)
		return;
	run->retry_ns = 0;
	run->req.flags |= RCP_OPT_RETRY;
	if (initiator_start(run, run->options, &err))
		run_fail(run, &err);
}

bool retry_told(struct rcp_run *run, const struct rcp_err *err)
{
	char text[4096];

	if (!run->told)
		return false;
	rcp_err_format(err, text, sizeof(text));
	return rcp_keys_add(run->told, rcp_keys_key(run->told, text, strlen(text), err->code, 0)) == 0 &&
	       run->reconnects;
}
