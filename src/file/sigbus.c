/*
 * Reading a mapping that may lose its pages: the file is truncated, or the disk fails. The CPU gets
 * SIGBUS then; the handler jumps back into the worker that was reading.
 */
#include "base/crc.h"
#include "file/source.h"

#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

struct guard {
	sigjmp_buf back;
	uintptr_t low, high; /* whole pages */
};

static _Thread_local struct guard *volatile guarding;

static void on_sigbus(int sig, siginfo_t *info, void *context)
{
	struct guard *g = guarding;
	uintptr_t at = (uintptr_t)info->si_addr;

	(void)context;
	if (g && info->si_code > 0 && at >= g->low && at < g->high)
		siglongjmp(g->back, 1);
	signal(sig, SIG_DFL);
	if (info->si_code <= 0)
		raise(sig); /* sent by somebody; a fault comes again by itself */
}

static void on_sigxfsz(int sig)
{
	(void)sig;
}

void rcp_sigbus_install(void)
{
	struct sigaction bus = {.sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO};
	/* A handler and not SIG_IGN: an exec'ed ssh must not inherit it. */
	struct sigaction xfsz = {.sa_handler = on_sigxfsz, .sa_flags = SA_RESTART};

	sigemptyset(&bus.sa_mask);
	sigemptyset(&xfsz.sa_mask);
	sigaction(SIGBUS, &bus, NULL);
	sigaction(SIGXFSZ, &xfsz, NULL);
}

/* The jump left the handler with SIGBUS blocked. Cheaper here than saving the mask each time. */
static int lost_page(const char *path, struct rcp_err *err)
{
	sigset_t bus;

	guarding = NULL;
	sigemptyset(&bus);
	sigaddset(&bus, SIGBUS);
	pthread_sigmask(SIG_UNBLOCK, &bus, NULL);
	rcp_err_set(err, RCP_E_PARTIAL, 0, "mmap", path,
		    "truncated or unreadable while it was copied");
	rcp_err_fix(err, "copy it again when nobody changes it; see dmesg for disk errors");
	return RCP_E_PARTIAL;
}

int rcp_guarded_crc(const void *data, size_t len, const char *path, struct rcp_err *err,
		    uint32_t *crc)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)data;
	struct guard g;

	g.low = at & ~(page - 1);
	g.high = (at + len + page - 1) & ~(page - 1);
	if (sigsetjmp(g.back, 0))
		return lost_page(path, err);
	guarding = &g;
	atomic_signal_fence(memory_order_seq_cst);
	*crc = rcp_crc32(0, data, len);
	atomic_signal_fence(memory_order_seq_cst);
	guarding = NULL;
	return 0;
}
