/*
 * verbs and rdma_cm errors in words, with what can be done about them. The three conventions in
 * one place: ibv_post_*, ibv_modify_*, ibv_req_notify_* return the error (siw: a negative one),
 * rdma_* return -1 and set errno, makers of objects return NULL and set errno.
 */
#include "link/verbs/priv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static int errno_of(int ret)
{
	/* -1 is EPERM only where errno says nothing else */
	if (ret == -1)
		return errno ? errno : EPERM;
	return ret < 0 ? -ret : ret;
}

int rcp_verbs_err_ret(struct rcp_err *err, enum rcp_code code, int ret, const char *call,
		      const char *object)
{
	rcp_err_set(err, code, errno_of(ret), call, object, NULL);
	rcp_verbs_err_fix(err);
	return (int)err->code;
}

int rcp_verbs_err_errno(struct rcp_err *err, enum rcp_code code, const char *call,
			const char *object)
{
	rcp_err_set(err, code, errno ? errno : EIO, call, object, NULL);
	rcp_verbs_err_fix(err);
	return (int)err->code;
}

bool rcp_verbs_ret_refused(int ret)
{
	int e = errno_of(ret);

	return e == EINVAL || e == EOPNOTSUPP || e == ENOSYS;
}

void rcp_verbs_memlock_raise(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_MEMLOCK, &limit);
	}
}

static void fix_memlock(struct rcp_err *err)
{
	struct rlimit limit;
	char now[48] = "unknown";

	if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur == RLIM_INFINITY)
		snprintf(now, sizeof(now), "unlimited, so the host is short of memory");
	else if (limit.rlim_cur)
		snprintf(now, sizeof(now), "%llu KiB", (unsigned long long)limit.rlim_cur / 1024);
	rcp_err_fix(
		err,
		"locked memory limit is %s: raise it with `ulimit -l unlimited`, a memlock line in "
		"/etc/security/limits.conf, or LimitMEMLOCK=infinity for a systemd service; or "
		"use fewer or smaller slots",
		now);
}

/* libibverbs and librdmacm say ENOENT of a node that is there but closed to us. */
int rcp_verbs_open_errno(const char *node)
{
	int said = errno;

	if (access(node, F_OK) == 0 && access(node, R_OK | W_OK) != 0)
		return EACCES;
	return said;
}

struct fix {
	const char *call; /* prefix; "" is any */
	int sys_errno;
	const char *fix; /* NULL: memlock */
};
static const struct fix fixes[] = {
	{"ibv_reg_mr", ENOMEM, NULL},
	{"ibv_create_cq", ENOMEM, NULL},
	{"ibv_create_qp", ENOMEM, NULL},
	{"rdma_create_qp", ENOMEM, NULL},
	{"ibv_get_device_list", ENOSYS,
	 "load the kernel's RDMA support: `modprobe ib_uverbs rdma_ucm` and the device's driver"},
	{"ibv_open_device", EACCES,
	 "give the user read and write access to /dev/infiniband/uverbs* (udev rule or group)"},
	{"ibv_open_device", EPERM,
	 "give the user read and write access to /dev/infiniband/uverbs* (udev rule or group)"},
	{"ibv_open_device", ENOENT,
	 "/dev/infiniband lacks the device's node: `modprobe ib_uverbs`, and let udev run"},
	{"rdma_create_event_channel", ENODEV,
	 "`modprobe rdma_ucm`, or use --connect=oob, which needs no rdma_cm"},
	{"rdma_create_event_channel", ENOENT,
	 "`modprobe rdma_ucm`, or use --connect=oob, which needs no rdma_cm"},
	{"rdma_create_event_channel", EACCES,
	 "give the user read and write access to /dev/infiniband/rdma_cm"},
	{"rdma_create_event_channel", EPERM,
	 "give the user read and write access to /dev/infiniband/rdma_cm"},
	{"rdma_bind_addr", EADDRNOTAVAIL, "the address must be of a netdev that carries RDMA"},
	{"rdma_bind_addr", ENODEV, "the address must be of a netdev that carries RDMA"},
	{"rdma_resolve", ENODEV, "the route to the peer must leave by a netdev that carries RDMA"},
	{"rdma_resolve", ENETUNREACH, "check the route to the peer's RDMA address: `ip route get`"},
	{"rdma_resolve", EHOSTUNREACH, "check that the peer's RDMA address answers to `ping`"},
	{"rdma_resolve", ETIMEDOUT,
	 "check that the peer's RDMA address answers to `ping` from this one"},
	{"rdma_connect", ECONNREFUSED,
	 "a firewall may drop RoCE (UDP port 4791) or iWARP (TCP) at the peer"},
};

void rcp_verbs_err_fix(struct rcp_err *err)
{
	for (size_t i = 0; i < sizeof(fixes) / sizeof(fixes[0]); i++) {
		const struct fix *f = &fixes[i];

		if (f->sys_errno != err->sys_errno ||
		    strncmp(err->call, f->call, strlen(f->call)) != 0)
			continue;
		if (f->fix)
			rcp_err_fix(err, "%s", f->fix);
		else
			fix_memlock(err);
		return;
	}
}

struct wc_words {
	enum ibv_wc_status status;
	const char *text, *fix;
};
static const struct wc_words wc_words[] = {
	{IBV_WC_RETRY_EXC_ERR, "the peer's device stopped answering (retries exceeded)",
	 "look for a lost link, a dead host, a path MTU that differs, or packets dropped without "
	 "flow "
	 "control (PFC)"},
	{IBV_WC_RNR_RETRY_EXC_ERR, "the peer has no receive posted (RNR retries exceeded)", NULL},
	{IBV_WC_REM_ACCESS_ERR,
	 "the peer's device refused the access: its ring is gone or elsewhere", NULL},
	{IBV_WC_REM_INV_REQ_ERR, "the peer's device calls the request invalid",
	 "the message may be larger than the peer's device takes: try a smaller --chunk-size"},
	{IBV_WC_REM_OP_ERR, "the peer's device could not finish the operation", NULL},
	{IBV_WC_LOC_LEN_ERR, "a message is larger than this device takes",
	 "try a smaller --chunk-size"},
	{IBV_WC_LOC_PROT_ERR,
	 "this device refused to read the memory: it isn't registered any more", NULL},
	{IBV_WC_LOC_QP_OP_ERR, "this device could not carry out the operation",
	 "the port may have gone down, or its driver may not know RDMA WRITE with immediate data"},
	{IBV_WC_LOC_ACCESS_ERR, "this device was refused access to local memory", NULL},
	{IBV_WC_WR_FLUSH_ERR, "the connection ended", NULL},
	{IBV_WC_FATAL_ERR, "the device reports a fatal error", "look into the kernel's log"},
	{IBV_WC_RESP_TIMEOUT_ERR, "the peer's device did not respond in time", NULL},
	{IBV_WC_GENERAL_ERR, "the transport reports an error", "look into the kernel's log"},
};

void rcp_verbs_err_wc(struct rcp_err *err, const struct ibv_wc *wc, const char *what,
		      const char *object)
{
	static const struct wc_words too_long = {IBV_WC_LOC_LEN_ERR, "the peer sent a message that is longer than any",
						 NULL};
	const struct wc_words *w = NULL;

	for (size_t i = 0; i < sizeof(wc_words) / sizeof(wc_words[0]); i++) {
		if (wc_words[i].status == wc->status)
			w = &wc_words[i];
	}
	if (wc->status == IBV_WC_LOC_LEN_ERR && !strcmp(what, "receive"))
		w = &too_long; /* the peer's doing, and no chunk size mends it */
	rcp_err_set(err, RCP_E_LINK, 0, "ibv_poll_cq", object, "%s: %s (status %d, vendor 0x%x)",
		    what, w ? w->text : ibv_wc_status_str(wc->status), (int)wc->status,
		    wc->vendor_err);
	if (w && w->fix)
		rcp_err_fix(err, "%s", w->fix);
}
