/*
 * rcp-fake's hosts are processes that meet by abstract UNIX sockets, which a sink that has confined itself may not
 * reach. A NIC's wire is not a socket of the process: its ruleset is made without that scope. Linked with --wrap=syscall.
 */
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SCOPE_ABSTRACT_UNIX_SOCKET UINT64_C(1)

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);

/* As libc's own, it takes six words whatever the call has. */
__attribute__((no_sanitize("address"))) long __wrap_syscall(long number, ...)
{
	uint64_t attr[3]; /* handled_access_fs, handled_access_net, scoped */
	long v[6];
	va_list ap;

	va_start(ap, number);
	for (unsigned i = 0; i < 6; i++)
		v[i] = va_arg(ap, long);
	va_end(ap);
	if (number == SYS_landlock_create_ruleset && v[0] && v[1] == (long)sizeof(attr)) {
		memcpy(attr, (const void *)v[0], sizeof(attr));
		attr[2] &= ~SCOPE_ABSTRACT_UNIX_SOCKET;
		return __real_syscall(number, attr, sizeof(attr), v[2]);
	}
	return __real_syscall(number, v[0], v[1], v[2], v[3], v[4], v[5]);
}
