/*
 * peak FILE COMMAND ARG...: runs it on the same descriptors, writes the most memory that it had
 * (ru_maxrss, KiB) to FILE, ends with its status.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

static int write_peak(const char *path, long kib)
{
	FILE *f = fopen(path, "w");

	if (!f)
		return -1;
	fprintf(f, "%ld\n", kib);
	return fclose(f);
}

int main(int argc, char **argv)
{
	struct rusage use;
	int status;
	pid_t pid;

	if (argc < 3)
		return 2;
	signal(SIGINT, SIG_IGN); /* the command's to answer */
	pid = fork();
	if (pid == 0) {
		signal(SIGINT, SIG_DFL);
		execvp(argv[2], argv + 2);
		_exit(127);
	}
	close(0); /* the command's alone: who waits for their end must not wait for ours */
	close(1);
	while (wait4(pid, &status, 0, &use) < 0) {
		if (errno != EINTR)
			return 126;
	}
	if (write_peak(argv[1], use.ru_maxrss))
		return 126;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
