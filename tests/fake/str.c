/* Names of events and states. */
#include "fake.h"

static const char *pick(const char *const *names, unsigned count, unsigned i)
{
	return i < count && names[i] ? names[i] : "unknown";
}
#define PICK(names, i) pick(names, sizeof(names) / sizeof((names)[0]), (unsigned)(i))

const char *ibv_wc_status_str(enum ibv_wc_status status)
{
	static const char *const names[] = {
		[IBV_WC_SUCCESS] = "success",
		[IBV_WC_LOC_LEN_ERR] = "local length error",
		[IBV_WC_LOC_PROT_ERR] = "local protection error",
		[IBV_WC_WR_FLUSH_ERR] = "flushed",
		[IBV_WC_REM_INV_REQ_ERR] = "remote invalid request error",
		[IBV_WC_REM_ACCESS_ERR] = "remote access error",
		[IBV_WC_REM_OP_ERR] = "remote operation error",
		[IBV_WC_RETRY_EXC_ERR] = "transport retries exceeded",
		[IBV_WC_RNR_RETRY_EXC_ERR] = "RNR retries exceeded",
	};

	return PICK(names, status);
}

const char *ibv_event_type_str(enum ibv_event_type event)
{
	static const char *const names[] = {
		[IBV_EVENT_CQ_ERR] = "CQ error",
		[IBV_EVENT_QP_FATAL] = "local work queue catastrophic error",
		[IBV_EVENT_QP_ACCESS_ERR] = "local access violation work queue error",
		[IBV_EVENT_COMM_EST] = "communication established",
		[IBV_EVENT_DEVICE_FATAL] = "local catastrophic error",
		[IBV_EVENT_PORT_ACTIVE] = "port active",
		[IBV_EVENT_PORT_ERR] = "port error",
	};

	return PICK(names, event);
}

const char *ibv_port_state_str(enum ibv_port_state state)
{
	static const char *const names[] = {
		[IBV_PORT_NOP] = "invalid state",  [IBV_PORT_DOWN] = "PORT_DOWN",
		[IBV_PORT_INIT] = "PORT_INIT",	   [IBV_PORT_ARMED] = "PORT_ARMED",
		[IBV_PORT_ACTIVE] = "PORT_ACTIVE",
	};

	return PICK(names, state);
}

const char *rdma_event_str(enum rdma_cm_event_type event)
{
#define NAME(x) [RDMA_CM_EVENT_##x] = "RDMA_CM_EVENT_" #x
	static const char *const names[] = {
		NAME(ADDR_RESOLVED), NAME(ADDR_ERROR),	    NAME(ROUTE_RESOLVED),
		NAME(ROUTE_ERROR),   NAME(CONNECT_REQUEST), NAME(CONNECT_RESPONSE),
		NAME(CONNECT_ERROR), NAME(UNREACHABLE),	    NAME(REJECTED),
		NAME(ESTABLISHED),   NAME(DISCONNECTED),    NAME(DEVICE_REMOVAL),
		NAME(ADDR_CHANGE),   NAME(TIMEWAIT_EXIT),
	};
#undef NAME
	return PICK(names, event);
}
