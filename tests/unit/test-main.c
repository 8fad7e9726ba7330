/* The whole program over a fake of librcp: streams, exit statuses, signals, a terminal. */
#include "rcp/rcp.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define BLANKS_10 "          "
#define BLANKS_79 BLANKS_10 BLANKS_10 BLANKS_10 BLANKS_10 BLANKS_10 BLANKS_10 BLANKS_10 "         "

static const char *program;

/* A run of the program: what it wrote, how it ended. */
struct ran {
	pid_t pid;
	int out_fd, err_fd, in_fd;
	char out[1 << 20], err[1 << 19];
	size_t out_len, err_len;
	int status; /* exit status, or 128 + signal */
};

static struct ran ran;

static void split(char *line, char **words)
{
	int n = 0;

	words[n++] = (char[]){"rcp"};
	for (char *w = strtok(line, " "); w; w = strtok(NULL, " "))
		words[n++] = w;
	words[n] = NULL;
}

static void child(const char *line, int in, int out, int err)
{
	char copy[1024], *words[32];

	prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails ends here, and so does its rcp */
	snprintf(copy, sizeof(copy), "%s", line);
	split(copy, words);
	dup2(in, 0);
	out < 0 ? close(1) : dup2(out, 1);
	dup2(err, 2);
	setenv("LC_ALL", "C.UTF-8", 1);
	closefrom(3);
	execv(program, words);
	_exit(99);
}

/* stdout_path: where standard output goes instead of a pipe; "" closes it, "|" is a pipe that
 * nobody reads. */
static void begin(const char *line, const char *stdout_path)
{
	int in[2], out[2], err[2], other = -1;

	memset(&ran, 0, sizeof(ran));
	assert_int_equal(pipe2(in, O_CLOEXEC) | pipe2(out, O_CLOEXEC) | pipe2(err, O_CLOEXEC), 0);
	if (stdout_path && !strcmp(stdout_path, "|")) {
		close(out[0]);
		out[0] = -1;
		stdout_path = NULL;
	} else if (stdout_path && stdout_path[0]) {
		other = open(stdout_path, O_WRONLY | O_CLOEXEC);
	}
	ran.pid = fork();
	assert_true(ran.pid >= 0);
	if (ran.pid == 0)
		child(line, in[0], stdout_path ? other : out[1], err[1]);
	close(in[0]);
	close(out[1]);
	close(err[1]);
	if (other >= 0)
		close(other);
	ran.in_fd = in[1];
	ran.out_fd = out[0];
	ran.err_fd = err[0];
}

static void take(int *fd, char *buf, size_t size, size_t *len)
{
	ssize_t n = read(*fd, buf + *len, size - *len - 1);

	if (n <= 0) { /* a terminal's end is EIO */
		close(*fd);
		*fd = -1;
		return;
	}
	*len += (size_t)n;
	buf[*len] = 0;
}

static void wait_status(void)
{
	int status;

	assert_int_equal(waitpid(ran.pid, &status, 0), ran.pid);
	ran.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void finish(void)
{
	if (ran.in_fd >= 0)
		close(ran.in_fd);
	while (ran.out_fd >= 0 || ran.err_fd >= 0) {
		struct pollfd p[] = {{.fd = ran.out_fd, .events = POLLIN},
				     {.fd = ran.err_fd, .events = POLLIN}};

		assert_true(poll(p, 2, 20000) > 0);
		if (p[0].revents)
			take(&ran.out_fd, ran.out, sizeof(ran.out), &ran.out_len);
		if (p[1].revents)
			take(&ran.err_fd, ran.err, sizeof(ran.err), &ran.err_len);
	}
	wait_status();
}

static void run(const char *line)
{
	begin(line, NULL);
	finish();
}

static void says(const char *where, const char *what)
{
	if (!strstr(where, what))
		fail_msg("not said: \"%s\" in \"%.2000s\"", what, where);
}

static void quiet_where_nobody_looks(void **state)
{
	(void)state;
	run("a fake:ok");
	assert_int_equal(ran.status, 0);
	assert_int_equal(ran.out_len, 0);
	/* the other side's words pass, whole lines, nothing that moves the cursor */
	assert_string_equal(ran.err, "b\xc3\xa4n\nbanner \\o/ \\x1b[2J\nrestlater\nand \n");
}

static void verbose_tells_why(void **state)
{
	(void)state;
	run("-v a fake:ok");
	says(ran.err, "rcp: info line\n");
	says(ran.err, "rcp: transport tcp, 127.0.0.1; no RDMA device here; sealed with aes-256-gcm\n");
	says(ran.err, "rcp: big\\nname: copied, 40.0 MiB\n");
	assert_null(strstr(ran.err, "debug line"));
	run("-vv a fake:ok");
	says(ran.err, "debug line");
}

static void usage_is_two(void **state)
{
	(void)state;
	run("--nonsense");
	assert_int_equal(ran.status, RCP_EXIT_USAGE);
	assert_string_equal(ran.err, "rcp: --nonsense: unknown option (see rcp --help)\n");
	run("a fake:refused");
	assert_int_equal(ran.status, RCP_EXIT_USAGE);
	assert_string_equal(ran.err, "rcp: fake:refused: pwrite: can't be (make room)\n");
}

static void help_and_version_go_to_stdout(void **state)
{
	(void)state;
	run("--help");
	assert_int_equal(ran.status, 0);
	assert_int_equal(ran.err_len, 0);
	says(ran.out, "Usage: rcp [options] source... target\n");
	run("--version");
	assert_int_equal(ran.status, 0);
	says(ran.out, "rcp " RCP_VERSION "\ncrc: ");
	says(ran.out, "rdma: ");
}

static void a_full_stdout_is_an_error(void **state)
{
	static const char *const lines[] = {"--help", "--version", "--json a fake:ok"};

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		begin(lines[i], "/dev/full");
		finish();
		assert_int_equal(ran.status, RCP_EXIT_IO);
		says(ran.err, "rcp: standard output: write: No space left on device\n");
	}
	begin("--json a fake:ok", "");
	finish();
	assert_int_equal(ran.status, RCP_EXIT_IO);
	says(ran.err, "rcp: standard output: write: Bad file descriptor\n");
	assert_null(strstr(strstr(ran.err, "standard output") + 1, "standard output"));
}

static void a_closed_pipe_is_an_error_not_a_death(void **state)
{
	(void)state;
	begin("--json a fake:ok", "|");
	finish();
	assert_int_equal(ran.status, RCP_EXIT_IO);
	says(ran.err, "rcp: standard output: write: Broken pipe\n");
}

static size_t lines_of(const char *event)
{
	char prefix[64];
	size_t n = 0;

	snprintf(prefix, sizeof(prefix), "{\"event\":\"%s\"", event);
	for (const char *at = ran.out; *at; at = strchr(at, '\n') + 1) {
		assert_memory_equal(at, "{\"event\":\"", 10);
		assert_non_null(strchr(at, '\n'));
		n += !strncmp(at, prefix, strlen(prefix));
	}
	return n;
}

static void json_alone_on_stdout(void **state)
{
	(void)state;
	run("--json -vv --stats a fake:ok");
	assert_int_equal(ran.status, 0);
	assert_int_equal(lines_of("start"), 1);
	assert_int_equal(lines_of("transport"), 1);
	assert_int_equal(lines_of("file"), 1);
	assert_int_equal(lines_of("summary"), 1);
	/* 10 s of the fake's time, one a second */
	assert_int_equal(lines_of("progress"), 10);
	assert_memory_equal(ran.out, "{\"event\":\"start\"", 16);
	says(ran.out, "\"crc32\":\"0000beef\"");
	says(ran.out, "\"host\":\"fake\",\"remote_software\":\"rcp 0\"");
}

/* Whatever ends a run, a script's last line is the summary. */
static void json_always_ends_with_a_summary(void **state)
{
	(void)state;
	run("--json a fake:refused");
	assert_int_equal(ran.status, RCP_EXIT_USAGE);
	assert_int_equal(lines_of("summary"), 1);
	says(ran.out, "\"status\":\"usage\",\"exit_code\":2");
	run("--json a fake:mute");
	assert_int_equal(ran.status, RCP_EXIT_CONNECT);
	says(ran.out, "\"status\":\"connect\",\"exit_code\":3");
	assert_string_equal(ran.err,
			    "rcp: failed with exit status 3 (connect), no reason was given\n");
}

static void failures_are_listed_again(void **state)
{
	(void)state;
	run("a fake:fail3");
	assert_int_equal(ran.status, RCP_EXIT_PARTIAL);
	says(ran.err,
	     "rcp: dir/\\xff0: pwrite: disk is full: No space left on device (make room)\n");
	says(ran.err, "rcp: warning: xattr: pwrite: not kept (make room)\n");
	says(ran.err, "rcp: 3 errors:\nrcp:   dir/\\xff0");
	says(ran.err, "run the same command again");
	assert_null(strstr(ran.err, " more\n"));
	run("--json a fake:fail3000");
	says(ran.err, "rcp: 3000 errors:\n");
	says(ran.err, "rcp:   and 2990 more\n");
	says(ran.out, "\"errors_omitted\":2000,\"warnings\":1");
	assert_int_equal(lines_of("error"), 3001);
	run("-q a fake:fail3");
	assert_null(strstr(ran.err, "warning"));
	says(ran.err, "disk is full");
}

static void stats_for_people(void **state)
{
	(void)state;
	run("--stats a fake:ok");
	assert_int_equal(ran.out_len, 0);
	says(ran.err, "files          1 copied, 0 skipped, 0 failed\n");
	says(ran.err, "time           10.000 s, 4.0 MiB/s\n");
	says(ran.err, "transport      tcp, sealed with aes-256-gcm\n");
	says(ran.err, "because        no RDMA device here\n");
	says(ran.err, "crc32          0000beef\n");
}

static void plain_progress_without_a_terminal(void **state)
{
	(void)state;
	run("--progress=plain a fake:ok");
	says(ran.err, "rcp: 50%, 20.0 MiB of 40.0 MiB, 0 of 1 files, 4.0 MiB/s, 00:05 left, tcp, "
		      "big\\nname\n");
	says(ran.err, "rcp: 1 file, 40.0 MiB in 00:10, 4.0 MiB/s, tcp\n");
	run("--progress=bar a fake:ok");
	says(ran.err, "rcp: 50%, ");
	assert_null(strchr(ran.err, '\r'));
	run("-q --progress=plain a fake:ok");
	assert_null(strchr(ran.err, '%'));
}

static void names_from_standard_input(void **state)
{
	(void)state;
	begin("--json --files-from=- -0 dir fake:names", NULL);
	assert_int_equal(write(ran.in_fd, "x\ny\0z", 5), 5);
	finish();
	says(ran.out, "\"name\":\"x\\ny\"");
	says(ran.out, "\"name\":\"z\"");
	run("--files-from=/nowhere/at/all dir fake:names");
	assert_int_equal(ran.status, RCP_EXIT_USAGE);
	says(ran.err, "rcp: /nowhere/at/all: open: No such file or directory\n");
}

static void dry_run_lists_on_stdout(void **state)
{
	(void)state;
	run("--dry-run a fake:ok");
	assert_string_equal(ran.out, "would copy\t40.0 MiB\tbig\\nname\n");
}

static void server_uses_stdin_and_stdout(void **state)
{
	(void)state;
	begin("--server", NULL);
	assert_int_equal(write(ran.in_fd, "hello", 5), 5);
	finish();
	assert_string_equal(ran.out, "hello");
	assert_string_equal(ran.err, "rcp --server: peer: pwrite: went away (make room)\n");
	assert_int_equal(ran.status, RCP_EXIT_CONNECT);
}

static void wait_word(const char *word)
{
	while (!strstr(ran.out, word)) {
		struct pollfd p = {.fd = ran.out_fd, .events = POLLIN};

		assert_int_equal(poll(&p, 1, 20000), 1);
		take(&ran.out_fd, ran.out, sizeof(ran.out), &ran.out_len);
		assert_true(ran.out_fd >= 0);
	}
}

static void wait_ready(void)
{
	wait_word("ready\n");
}

/* Is it ignored in the child? */
static bool ignores(int number)
{
	char path[64], line[256];
	unsigned long long mask = 0;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)ran.pid);
	FILE *f = fopen(path, "re");

	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		if (strncmp(line, "SigIgn:", 7) == 0)
			mask = strtoull(line + 7, NULL, 16);
	}
	fclose(f);
	return mask >> (number - 1) & 1;
}

static void signals_cancel(void **state)
{
	static const int numbers[][2] = {{SIGINT, RCP_EXIT_INTERRUPTED},
					 {SIGTERM, RCP_EXIT_TERMINATED},
					 {SIGHUP, RCP_EXIT_TERMINATED}};

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		begin("a fake:wait", NULL);
		wait_ready();
		kill(ran.pid, numbers[i][0]);
		finish();
		assert_int_equal(ran.status, numbers[i][1]);
		assert_string_equal(
			ran.err,
			"rcp: interrupted; run the same command again to go on with what was kept\n");
	}
}

/* A login that asks on standard error is seen before it is answered. */
static void questions_are_shown_at_once(void **state)
{
	(void)state;
	begin("a fake:asks", NULL);
	wait_ready();
	take(&ran.err_fd, ran.err, sizeof(ran.err), &ran.err_len);
	assert_string_equal(ran.err, "Code: ");
	kill(ran.pid, SIGINT);
	finish();
	says(ran.err, "Code: \nrcp: interrupted; ");
}

static void a_second_interrupt_ends_at_once(void **state)
{
	siginfo_t info = {0};

	(void)state;
	begin("a fake:deaf", NULL);
	wait_ready();
	kill(ran.pid, SIGINT);
	wait_word("heard\n");
	assert_int_equal(waitpid(ran.pid, NULL, WNOHANG), 0);
	/* on a busy machine two that are pending at once are one */
	for (int i = 0; i < 400 && !info.si_pid; i++) {
		kill(ran.pid, SIGINT);
		poll(NULL, 0, 20);
		assert_int_equal(waitid(P_PID, (id_t)ran.pid, &info, WEXITED | WNOHANG | WNOWAIT),
				 0);
	}
	assert_int_equal(info.si_pid, ran.pid);
	finish();
	assert_int_equal(ran.status, RCP_EXIT_INTERRUPTED);
}

static void what_was_ignored_stays_ignored(void **state)
{
	(void)state;
	signal(SIGHUP, SIG_IGN);
	begin("a fake:wait", NULL);
	signal(SIGHUP, SIG_DFL);
	wait_ready();
	assert_true(ignores(SIGHUP));
	assert_false(ignores(SIGTERM));
	kill(ran.pid, SIGHUP);
	kill(ran.pid, SIGTERM);
	finish();
	assert_int_equal(ran.status, RCP_EXIT_TERMINATED);
}

/* Standard error is a terminal; everything comes back through one descriptor. */
static void begin_terminal(const char *line, unsigned short columns)
{
	struct winsize size = {.ws_row = 24, .ws_col = columns};
	int out[2], null = open("/dev/null", O_RDONLY | O_CLOEXEC);

	memset(&ran, 0, sizeof(ran));
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	ran.pid = forkpty(&ran.err_fd, NULL, NULL, &size);
	assert_true(ran.pid >= 0);
	if (ran.pid == 0)
		child(line, null, out[1], 2);
	close(null);
	close(out[1]);
	ran.out_fd = out[0];
	ran.in_fd = -1;
}

static void a_bar_on_a_terminal(void **state)
{
	(void)state;
	begin_terminal("a fake:ok", 80);
	finish();
	assert_int_equal(ran.status, 0);
	/* one column stays free */
	says(ran.err, "\rbig\\nname                        50%   20.0 MiB    4.0 MiB/s    00:05 "
		      "ETA tcp  \r");
	/* a message takes the bar's place, the bar comes back below it */
	says(ran.err, "tcp  \r" BLANKS_79 "\rlater\r\n\rbig\\nname ");
	/* the other side's last words don't run into it; the last line stays, with the mean rate */
	says(ran.err, "tcp  \r" BLANKS_79 "\rand \r\n"
		      "big\\nname                       100%   40.0 MiB    4.0 MiB/s    00:10     "
		      "tcp  \r\n");
	begin_terminal("-q a fake:ok", 80);
	finish();
	assert_null(strchr(ran.err, '%'));
	begin_terminal("--json a fake:ok", 80);
	finish();
	assert_null(strchr(ran.err, '%'));
	begin_terminal("--progress=none a fake:ok", 80);
	finish();
	assert_null(strchr(ran.err, '%'));
}

static void the_bar_follows_the_window(void **state)
{
	struct winsize size = {.ws_row = 24, .ws_col = 40};
	bool wide = false, narrow = false;

	(void)state;
	begin_terminal("a fake:slow", 100);
	while (!strstr(ran.err, " 10%"))
		take(&ran.err_fd, ran.err, sizeof(ran.err), &ran.err_len);
	ioctl(ran.err_fd, TIOCSWINSZ, &size);
	finish();
	for (char *s = strtok(ran.err, "\r"); s; s = strtok(NULL, "\r")) {
		size_t columns = strcspn(s, "\n");

		wide |= columns == 99;
		narrow |= columns == 39;
	}
	assert_true(wide && narrow);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(quiet_where_nobody_looks),
		cmocka_unit_test(verbose_tells_why),
		cmocka_unit_test(usage_is_two),
		cmocka_unit_test(help_and_version_go_to_stdout),
		cmocka_unit_test(a_full_stdout_is_an_error),
		cmocka_unit_test(a_closed_pipe_is_an_error_not_a_death),
		cmocka_unit_test(json_alone_on_stdout),
		cmocka_unit_test(json_always_ends_with_a_summary),
		cmocka_unit_test(failures_are_listed_again),
		cmocka_unit_test(stats_for_people),
		cmocka_unit_test(plain_progress_without_a_terminal),
		cmocka_unit_test(names_from_standard_input),
		cmocka_unit_test(dry_run_lists_on_stdout),
		cmocka_unit_test(server_uses_stdin_and_stdout),
		cmocka_unit_test(signals_cancel),
		cmocka_unit_test(questions_are_shown_at_once),
		cmocka_unit_test(a_second_interrupt_ends_at_once),
		cmocka_unit_test(what_was_ignored_stays_ignored),
		cmocka_unit_test(a_bar_on_a_terminal),
		cmocka_unit_test(the_bar_follows_the_window),
	};

	if (argc != 2) {
		fprintf(stderr, "test-main: say which program\n");
		return 2;
	}
	program = argv[1];
	for (int n = 1; n <= SIGTERM; n++)
		signal(n, SIG_DFL); /* nohup's would be handed on */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
