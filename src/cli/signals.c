#include "cli/signals.h"

#include "base/clock.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <unistd.h>

#define AGAIN_NS RCP_SEC /* a session's end sends SIGHUP and SIGTERM, or one of them twice */

static const int caught[] = {SIGINT, SIGTERM, SIGHUP};
enum { CAUGHT = sizeof(caught) / sizeof(caught[0]) };

static struct sigaction before[CAUGHT];
static _Atomic(struct rcp_copy *) armed;
static atomic_ullong first_ns; /* of the signals since it was armed */
static atomic_int interrupts;
static atomic_int running; /* handlers, in whichever thread the kernel chose */

static void on_signal(int number)
{
	int saved = errno;

	atomic_fetch_add(&running, 1);
	unsigned long long now = rcp_now_ns(), first = 0;
	bool again = number == SIGINT && atomic_fetch_add(&interrupts, 1) > 0;

	if (again || (!atomic_compare_exchange_strong(&first_ns, &first, now) && now > first + AGAIN_NS))
		_exit(number == SIGINT ? RCP_EXIT_INTERRUPTED : RCP_EXIT_TERMINATED);
	struct rcp_copy *copy = atomic_load(&armed);

	if (copy)
		rcp_copy_cancel(copy,
				number == SIGINT ? RCP_EXIT_INTERRUPTED : RCP_EXIT_TERMINATED);
	atomic_fetch_sub(&running, 1);
	errno = saved;
}

void cli_signals_ignore_pipe(void)
{
	signal(SIGPIPE, SIG_IGN);
}

bool cli_signals_asked(void)
{
	return atomic_load(&first_ns) != 0;
}

void cli_signals_arm(struct rcp_copy *copy)
{
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};

	sigemptyset(&action.sa_mask);
	atomic_store(&first_ns, 0);
	atomic_store(&interrupts, 0);
	atomic_store(&armed, copy);
	for (size_t i = 0; i < CAUGHT; i++) {
		sigaction(caught[i], NULL, &before[i]);
		if (before[i].sa_handler != SIG_IGN)
			sigaction(caught[i], &action, NULL);
	}
}

void cli_signals_disarm(void)
{
	for (size_t i = 0; i < CAUGHT; i++)
		sigaction(caught[i], &before[i], NULL);
	atomic_store(&armed, NULL);
	while (atomic_load(&running))
		sched_yield();
}
