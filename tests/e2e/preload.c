/* Loaded before libc into a process under test: E2E_FAIL=listen makes listen() fail. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

int listen(int fd, int backlog)
{
	const char *what = getenv("E2E_FAIL");

	(void)fd;
	(void)backlog;
	errno = what && !strcmp(what, "listen") ? EACCES : ENOSYS;
	return -1;
}
