/*
 * The floor under every file copier on this host: sendfile | recv + pwrite over one TCP connection,
 * with no check of anything. rcp is measured against it. Standalone; uses nothing of rcp.
 *
 *   floor send FILE HOST PORT     floor recv PORT FILE     floor both FILE FILE (over loopback)
 *   floor pipe    standard input to standard output over loopback: for tar | tar
 *
 * The receiver prints bytes, seconds and GB/s (10^9), from the first byte to the last write, and
 * its CPU seconds per GB.
 */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHUNK ((size_t)1 << 20)

static _Noreturn void die(const char *what)
{
	fprintf(stderr, "floor: %s: %s\n", what, strerror(errno));
	exit(1);
}

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void send_file(const char *path, int out)
{
	int in = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;

	if (in < 0 || fstat(in, &st))
		die(path);
	for (off_t left = st.st_size; left > 0;) {
		ssize_t n = sendfile(out, in, NULL, CHUNK);

		if (n < 0)
			die("sendfile");
		if (n == 0)
			break;
		left -= n;
	}
	close(in);
	close(out);
}

static void write_all(int fd, const char *data, size_t len, off_t at)
{
	while (len) {
		ssize_t n = pwrite(fd, data, len, at);

		if (n < 0)
			die("pwrite");
		data += n;
		len -= (size_t)n;
		at += n;
	}
}

static double cpu(int who)
{
	struct rusage r;

	getrusage(who, &r);
	return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) +
	       (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec) / 1e6;
}

static void receive_file(int in, const char *path)
{
	char *buf = aligned_alloc(4096, CHUNK);
	int out = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	off_t at = 0;
	double start = 0;

	if (!buf || out < 0)
		die(path);
	for (;;) {
		ssize_t n = recv(in, buf, CHUNK, 0);

		if (n < 0)
			die("recv");
		if (n == 0)
			break;
		if (!at)
			start = now();
		write_all(out, buf, (size_t)n, at);
		at += n;
	}
	if (close(out))
		die(path);
	double seconds = at ? now() - start : 0;

	printf("%lld bytes %.3f s %.3f GB/s, CPU s/GB: %.3f\n", (long long)at, seconds,
	       seconds > 0 ? (double)at / seconds / 1e9 : 0.0,
	       at ? cpu(RUSAGE_SELF) / (double)at * 1e9 : 0.0);
	free(buf);
	close(in);
}

static int dial(const char *host, const char *port)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list;

	if (getaddrinfo(host, port, &hints, &list))
		die(host);
	int fd = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || connect(fd, list->ai_addr, list->ai_addrlen))
		die("connect");
	freeaddrinfo(list);
	return fd;
}

/* Every address, or loopback alone; *port 0 is any, and becomes the one it is. */
static int listen_on(uint32_t addr, uint16_t *port)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_in in = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(addr), .sin_port = htons(*port)};
	socklen_t len = sizeof(in);
	int one = 1;

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) ||
	    bind(fd, (struct sockaddr *)&in, len) || listen(fd, 1) ||
	    getsockname(fd, (struct sockaddr *)&in, &len))
		die("listen");
	*port = ntohs(in.sin_port);
	return fd;
}

static int take_one(int listener)
{
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

	if (fd < 0)
		die("accept");
	close(listener);
	return fd;
}

/* A process for each end of a connection on loopback: the child's, and the caller's, whose descriptor *fd is then. */
static pid_t ends(int *fd)
{
	uint16_t port = 0;
	int listener = listen_on(INADDR_LOOPBACK, &port);
	char text[8];
	pid_t pid = fork();

	if (pid < 0)
		die("fork");
	if (pid == 0) {
		close(listener);
		snprintf(text, sizeof(text), "%u", port);
		*fd = dial("127.0.0.1", text);
	} else {
		*fd = take_one(listener);
	}
	return pid;
}

static int ended(pid_t pid)
{
	int status = 1;

	waitpid(pid, &status, 0);
	return status != 0;
}

static int both(const char *from, const char *to)
{
	int fd;
	pid_t pid = ends(&fd);

	if (pid == 0) {
		send_file(from, fd);
		exit(0);
	}
	receive_file(fd, to);
	return ended(pid);
}

/* Until the end of in. */
static void pass(int in, int out)
{
	char *buf = malloc(CHUNK);
	ssize_t n;

	if (!buf)
		die("malloc");
	while ((n = read(in, buf, CHUNK)) > 0) {
		for (ssize_t done = 0, m; done < n; done += m) {
			m = write(out, buf + done, (size_t)(n - done));
			if (m < 0)
				die("write");
		}
	}
	if (n < 0)
		die("read");
	free(buf);
}

static int relay(void)
{
	int fd;
	pid_t pid = ends(&fd);

	if (pid == 0) {
		pass(STDIN_FILENO, fd);
		exit(0);
	}
	close(STDIN_FILENO);
	pass(fd, STDOUT_FILENO);
	return ended(pid);
}

int main(int argc, char **argv)
{
	if (argc == 5 && !strcmp(argv[1], "send")) {
		send_file(argv[2], dial(argv[3], argv[4]));
	} else if (argc == 4 && !strcmp(argv[1], "recv")) {
		uint16_t port = (uint16_t)atoi(argv[2]);

		receive_file(take_one(listen_on(INADDR_ANY, &port)), argv[3]);
	} else if (argc == 4 && !strcmp(argv[1], "both")) {
		return both(argv[2], argv[3]);
	} else if (argc == 2 && !strcmp(argv[1], "pipe")) {
		return relay();
	} else {
		fprintf(stderr,
			"usage: floor send FILE HOST PORT | recv PORT FILE | both FROM TO | pipe\n");
		return 2;
	}
	return 0;
}
