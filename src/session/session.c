#include "session/session.h"

static int rank(enum rcp_code code)
{
	switch (code) {
	case RCP_OK:
		return 0;
	case RCP_E_PARTIAL:
	case RCP_E_USAGE:
		return 1;
	case RCP_E_CONNECT:
	case RCP_E_LINK:
		return 2;
	case RCP_E_IO:
		return 3;
	case RCP_E_INTEGRITY:
		return 4;
	case RCP_E_INTERRUPTED:
	case RCP_E_TERMINATED:
		return 5;
	}
	return 1;
}

enum rcp_code rcp_code_worse(enum rcp_code a, enum rcp_code b)
{
	return rank(b) > rank(a) ? b : a;
}

const char *rcp_session_bottleneck(const struct rcp_session_stats *s)
{
	if (!s->wait_source_ns && !s->wait_credit_ns)
		return NULL;
	if (s->wait_source_ns > s->wait_credit_ns)
		return "source";
	/* Credits ran out: the sink held them, or they (or the chunks) were on their way. */
	return s->wait_sink_ns >= s->wait_network_ns ? "sink" : "network";
}
