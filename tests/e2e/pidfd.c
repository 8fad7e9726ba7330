/*
 * Preloaded under valgrind, which up to 3.19 has no pidfd_open: a pipe that becomes readable when the child ends, and the
 * child still to be waited for. All other system calls go through.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

struct watch {
	pid_t pid;
	int end;
};

static struct watch watches[64];
static unsigned count;

static void *wait_for(void *arg)
{
	const struct watch *w = arg;
	siginfo_t info;

	while (waitid(P_PID, (id_t)w->pid, &info, WEXITED | WNOWAIT) < 0 && errno == EINTR)
		;
	close(w->end);
	return NULL;
}

static int pidfd_of(pid_t pid)
{
	pthread_t thread;
	int ends[2];

	if (count == sizeof(watches) / sizeof(watches[0]) || pipe2(ends, O_CLOEXEC) < 0)
		return -1;
	watches[count] = (struct watch){.pid = pid, .end = ends[1]};
	if (pthread_create(&thread, NULL, wait_for, &watches[count]))
		return -1;
	pthread_detach(thread);
	count++;
	return ends[0];
}

long syscall(long number, ...);

long syscall(long number, ...)
{
	va_list ap;
	long a[6], result;

	va_start(ap, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	if (number == SYS_pidfd_open)
		return pidfd_of((pid_t)a[0]);
	register long r10 __asm__("r10") = a[3];
	register long r8 __asm__("r8") = a[4];
	register long r9 __asm__("r9") = a[5];

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a[0]), "S"(a[1]), "d"(a[2]), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	if (result < 0 && result > -4096) {
		errno = (int)-result;
		return -1;
	}
	return result;
}
