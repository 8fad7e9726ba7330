/* ssh: the argument list, the child's life, and why it ended, with scripts in ssh's place. */
#include "base/clock.h"
#include "boot/ctl.h"
#include "boot/ssh.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uv.h>

#include <cmocka.h>

static uv_loop_t loop;
static char dir[] = "/tmp/rcp-test-ssh-XXXXXX";
static char program[64], server[64];
static struct rcp_ssh *ssh;
static int rfd, wfd;
static char output[8192];
static size_t output_len;
static unsigned exits;
static struct rcp_err cause;

static void on_output(void *arg, const char *bytes, size_t len)
{
	(void)arg;
	assert_int_equal(exits, 0);
	if (len > sizeof(output) - 1 - output_len)
		len = sizeof(output) - 1 - output_len;
	memcpy(output + output_len, bytes, len);
	output_len += len;
	output[output_len] = 0;
}

static void on_exited(void *arg, const struct rcp_err *why)
{
	(void)arg;
	exits++;
	cause = *why;
	rcp_ssh_free(&ssh);
}

static const struct rcp_ssh_ops ops = {on_output, on_exited};

static int make_dir(void **state)
{
	(void)state;
	if (!mkdtemp(dir))
		return -1;
	snprintf(program, sizeof(program), "%s/ssh", dir);
	snprintf(server, sizeof(server), "%s/the rcp", dir);
	return 0;
}

static int drop_dir(void **state)
{
	(void)state;
	unlink(program);
	unlink(server);
	return rmdir(dir);
}

static void write_script(const char *name, const char *body)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);

	assert_true(fd >= 0);
	dprintf(fd, "#!/bin/sh\n%s\n", body);
	close(fd);
}

static int setup(void **state)
{
	(void)state;
	output_len = exits = 0;
	output[0] = 0;
	rfd = wfd = -1;
	memset(&cause, 0, sizeof(cause));
	return uv_loop_init(&loop);
}

static int teardown(void **state)
{
	(void)state;
	rcp_ssh_free(&ssh);
	uv_run(&loop, UV_RUN_DEFAULT);
	if (rfd >= 0)
		close(rfd);
	if (wfd >= 0)
		close(wfd);
	/* No child is left, dead or alive. */
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
	assert_int_equal(errno, ECHILD);
	return uv_loop_close(&loop);
}

static void start(const char *body, const char *const *args, const char *rcp_path)
{
	struct rcp_ssh_params p = {.program = program,
				   .args = args,
				   .user = "me",
				   .host = "far",
				   .rcp_path = rcp_path};
	struct rcp_err err = {0};
	int tries = 0, code;

	write_script(program, body);
	/* Another test's child may still hold the script open for writing between fork and exec. */
	do {
		memset(&err, 0, sizeof(err));
		code = rcp_ssh_new(&loop, &p, &ops, NULL, &err, &rfd, &wfd, &ssh);
	} while (code && err.sys_errno == ETXTBSY && tries++ < 50 && !usleep(10000));
	assert_int_equal(code, 0);
}

static void run_to_exit(unsigned seconds)
{
	uint64_t end = rcp_now_ns() + seconds * RCP_SEC;

	while (!exits && rcp_now_ns() < end) {
		uv_run(&loop, UV_RUN_NOWAIT);
		usleep(500);
	}
	assert_int_equal(exits, 1);
	assert_null(ssh);
}

static void assert_cause(enum rcp_code code, const char *text, const char *fix)
{
	assert_int_equal(cause.code, code);
	assert_string_equal(cause.object, "far");
	if (!strstr(cause.text, text))
		fail_msg("no '%s' in '%s'", text, cause.text);
	if (!strstr(cause.fix, fix))
		fail_msg("no '%s' in '%s'", fix, cause.fix);
}

/* --- words --- */

static void the_argument_list(void **state)
{
	static const char *const args[] = {"-p", "2222", "-o", "User=x y", NULL};
	static const char *const want[] = {
		"ssh",
		"-x",
		"-oForwardAgent=no",
		"-oPermitLocalCommand=no",
		"-oClearAllForwardings=yes",
		"-oRemoteCommand=none",
		"-oRequestTTY=no",
		"-6",
		"-p",
		"2222",
		"-o",
		"User=x y",
		"-l",
		"me@corp",
		"--",
		"::1",
		"rcp --server",
		NULL,
	};
	struct rcp_ssh_params p = {.args = args, .user = "me@corp", .host = "::1", .family = 6};
	struct rcp_err err = {0};
	char **argv;
	size_t i;

	(void)state;
	assert_int_equal(rcp_ssh_argv(&p, &err, &argv), 0);
	for (i = 0; want[i]; i++)
		assert_string_equal(argv[i], want[i]);
	assert_null(argv[i]);
	free(argv);
}

static void names_that_can_not_be(void **state)
{
	static const struct {
		const char *user, *host, *path;
	} bad[] = {
		{NULL, "-oProxyCommand=reboot", NULL},
		{"-oProxyCommand=reboot", "h", NULL},
		{NULL, "", NULL},
		{"", "h", NULL},
		{NULL, "a b", NULL},
		{NULL, "a\nb", NULL},
		{NULL, "h", ""},
		{NULL, "h", "~/"},
	};
	char **argv;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct rcp_ssh_params p = {
			.user = bad[i].user, .host = bad[i].host, .rcp_path = bad[i].path};
		struct rcp_err err = {0};

		assert_int_equal(rcp_ssh_argv(&p, &err, &argv), RCP_E_USAGE);
		assert_null(argv);
		assert_true(err.text[0] != 0);
	}
}

static void the_remote_words(void **state)
{
	static const struct {
		const char *path, *want;
	} t[] = {
		{NULL, "rcp --server"},
		{"/opt/rcp-1.0/bin/rcp", "/opt/rcp-1.0/bin/rcp --server"},
		{"/opt/my tools/rcp", "'/opt/my tools/rcp' --server"},
		{"~/bin/rcp", "~/bin/rcp --server"},
		{"~joe/my bin/rcp", "~joe/'my bin/rcp' --server"},
		{"~$(reboot)/rcp", "'~$(reboot)/rcp' --server"},
		{"~", "'~' --server"},
		{"a=b", "'a=b' --server"},
		{"it's; reboot", "'it'\\''s; reboot' --server"},
		{"`reboot`\n$HOME", "'`reboot`\n$HOME' --server"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		struct rcp_err err = {0};
		char *cmd;

		assert_int_equal(rcp_ssh_command(t[i].path, &err, &cmd), 0);
		assert_string_equal(cmd, t[i].want);
		free(cmd);
	}
}

/* --- ends --- */

static void not_installed_there(void **state)
{
	(void)state;
	start("echo 'sh: 1: rcp: not found' >&2; exit 127", NULL, NULL);
	run_to_exit(5);
	assert_cause(RCP_E_CONNECT,
		     "rcp is not installed there, or not in the PATH of a non-interactive shell",
		     "--rcp-path=/path/to/rcp");
	assert_string_equal(output, "sh: 1: rcp: not found\n");
}

static void ssh_says_why(void **state)
{
	(void)state;
	start("printf 'banner\\n\\nme@far: Permission denied (publickey).\\r\\n' >&2; exit 255",
	      NULL, NULL);
	run_to_exit(5);
	assert_cause(RCP_E_CONNECT, "me@far: Permission denied (publickey).", "ssh far true");
	assert_null(strchr(cause.text, '\r'));
	assert_string_equal(output, "banner\n\nme@far: Permission denied (publickey).\r\n");
	teardown(state);
	setup(state);
	start("exit 255", NULL, NULL);
	run_to_exit(5);
	assert_cause(RCP_E_CONNECT, "said nothing", "ssh far true");
}

static void lost_after_the_answer(void **state)
{
	(void)state;
	start("printf 'Connection to far closed by remote host.' >&2; exit 255", NULL, NULL);
	rcp_ssh_answered(ssh);
	run_to_exit(5);
	assert_cause(RCP_E_LINK, "closed by remote host.", "");
	assert_string_equal(cause.fix, "");
}

static void other_ends(void **state)
{
	static const struct {
		const char *body, *text;
	} t[] = {
		{"echo 'sh: 1: rcp: Permission denied' >&2; exit 126",
		 "can't be run there: sh: 1: rcp"},
		{"echo 'Warning: Permanently added far.' >&2; exit 0", "ended before rcp answered"},
		{"echo no >&2; exit 3", "ended with status 3: no"},
		{"kill -9 $$", "killed by signal 9"},
	};

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		start(t[i].body, NULL, NULL);
		run_to_exit(5);
		assert_cause(RCP_E_CONNECT, t[i].text, "");
		assert_null(strstr(cause.text, "Permanently"));
		teardown(state);
		setup(state);
	}
}

/* The program has no interest in children: the kernel reaps ours. */
static void a_status_that_is_lost(void **state)
{
	(void)state;
	signal(SIGCHLD, SIG_IGN);
	start("exec sleep 100", NULL, NULL);
	rcp_ssh_close(ssh, 10);
	run_to_exit(5);
	assert_cause(RCP_E_CONNECT, "its status is lost", "");
	teardown(state);
	setup(state);
	start("exec sleep 100", NULL, NULL);
	rcp_ssh_free(&ssh);
	signal(SIGCHLD, SIG_DFL);
}

static void no_such_program(void **state)
{
	struct rcp_ssh_params p = {.program = "/nonexistent/ssh", .host = "far"};
	struct rcp_err err = {0};

	(void)state;
	assert_int_equal(rcp_ssh_new(&loop, &p, &ops, NULL, &err, &rfd, &wfd, &ssh), RCP_E_CONNECT);
	assert_null(ssh);
	assert_int_equal(err.sys_errno, ENOENT);
	assert_string_equal(err.object, "/nonexistent/ssh");
	assert_non_null(strstr(err.fix, "-S"));
}

static void long_output_has_a_last_line(void **state)
{
	(void)state;
	start("i=0; while [ $i -lt 3000 ]; do echo \"line $i of many that nobody wants to see\"; "
	      "i=$((i+1));"
	      " done >&2; printf 'the last' >&2; exit 255",
	      NULL, NULL);
	run_to_exit(10);
	assert_cause(RCP_E_CONNECT, "the last", "");
}

/* A mux master that stays keeps standard error open: the exit counts, not its end. */
static void a_stderr_held_open(void **state)
{
	uint64_t begin = rcp_now_ns();

	(void)state;
	start("sleep 3 >/dev/null </dev/null & echo gone >&2; exit 255", NULL, NULL);
	run_to_exit(5);
	assert_true(rcp_now_ns() - begin < 2 * RCP_SEC);
	assert_cause(RCP_E_CONNECT, "gone", "");
}

/* --- the child's world --- */

/* What this program does in ssh's place (a shell would change the mask): tell its fds and mask. */
static int tell_inherited(void)
{
	sigset_t mask;

	sigprocmask(SIG_BLOCK, NULL, &mask);
	for (int fd = 0; fd < 1024; fd++) {
		if (fcntl(fd, F_GETFD) >= 0)
			dprintf(2, "%d ", fd);
	}
	for (int s = 1; s < 32; s++) {
		if (sigismember(&mask, s) == 1)
			dprintf(2, "blocks %d ", s);
	}
	dprintf(2, "\n");
	return 0;
}

static void nothing_is_inherited(void **state)
{
	struct rcp_ssh_params p = {.program = "/proc/self/exe", .host = "far"};
	struct rcp_err err = {0};
	int leak = dup(2); /* not close-on-exec */
	char want[64];

	(void)state;
	assert_int_equal(rcp_ssh_new(&loop, &p, &ops, NULL, &err, &rfd, &wfd, &ssh), 0);
	run_to_exit(5);
	close(leak);
	snprintf(want, sizeof(want), "0 1 2 blocks %d \n", SIGINT);
	assert_string_equal(output, want);
}

static void it_can_be_ended(void **state)
{
	uint64_t begin = rcp_now_ns();

	(void)state;
	start("exec sleep 100", NULL, NULL);
	rcp_ssh_close(ssh, 5000);
	rcp_ssh_close(ssh, 20); /* less */
	rcp_ssh_close(ssh, 9000);
	run_to_exit(5);
	assert_true(rcp_now_ns() - begin < RCP_SEC);
	assert_cause(RCP_E_CONNECT, "signal 15", "");
	teardown(state);
	setup(state);

	/* Deaf to SIGTERM. */
	start("trap '' TERM; echo up >&2; while :; do sleep 0.05; done", NULL, NULL);
	while (!output_len)
		uv_run(&loop, UV_RUN_ONCE);
	rcp_ssh_close(ssh, 0);
	run_to_exit(5);
	assert_cause(RCP_E_CONNECT, "signal 9", "");
	teardown(state);
	setup(state);

	/* Goes by itself when its input ends. */
	start("cat >/dev/null; exit 0", NULL, NULL);
	close(wfd);
	wfd = -1;
	rcp_ssh_close(ssh, 4000);
	run_to_exit(3);
	assert_cause(RCP_E_CONNECT, "ended before", "");
	teardown(state);
	setup(state);

	/* Freed under way: teardown looks for what is left. */
	start("exec sleep 100", NULL, NULL);
	rcp_ssh_free(&ssh);
	assert_int_equal(exits, 0);
}

/* --- the good case --- */

static struct rcp_ctl *ctl;
static char banner[64], note[64];
static unsigned ready, downs;
static struct rcp_err down_cause;

static void c_ready(void *arg)
{
	struct rcp_msg_note m = {.text = rcp_span_str("there and back")};

	(void)arg;
	ready++;
	rcp_ssh_answered(ssh);
	rcp_ctl_send(ctl, RCP_MSG_NOTE, &m);
}

static void c_message(void *arg, const struct rcp_msg *msg)
{
	(void)arg;
	assert_int_equal(msg->type, RCP_MSG_NOTE);
	rcp_span_copy(msg->note_.text, note, sizeof(note));
	rcp_ctl_close(ctl, 1000);
	rcp_ssh_close(ssh, 1000);
}

static void c_banner(void *arg, const char *bytes, size_t len)
{
	(void)arg;
	snprintf(banner, sizeof(banner), "%.*s", (int)len, bytes);
}

static void c_down(void *arg, const struct rcp_err *why)
{
	(void)arg;
	downs++;
	down_cause = *why;
	rcp_ctl_free(&ctl);
}

static const struct rcp_ctl_ops ctl_ops = {
	.ready = c_ready, .message = c_message, .banner = c_banner, .down = c_down};

static void start_ctl(void)
{
	struct rcp_err err = {0};

	ready = downs = 0;
	banner[0] = note[0] = 0;
	memset(&down_cause, 0, sizeof(down_cause));
	assert_int_equal(
		rcp_ctl_new_pipe(&loop, rfd, wfd, false, "far", &ctl_ops, NULL, &err, &ctl), 0);
	rfd = wfd = -1;
}

static void a_copy_can_begin(void **state)
{
	static const char *const args[] = {"-p", "22", NULL};

	(void)state;
	/* The user's shell talks first; the path has a space that must survive the remote shell. */
	write_script(server,
		     "[ \"$1\" = --server ] || exit 99\nprintf '\\000rcp-1\\r\\n'; exec cat");
	start("while [ \"$1\" != -- ]; do shift; done\n"
	      "[ \"$2\" = far ] || exit 98\necho 'Welcome to far'; exec sh -c \"$3\"",
	      args, server);
	start_ctl();
	run_to_exit(5);
	while (!downs)
		uv_run(&loop, UV_RUN_ONCE);
	assert_int_equal(ready, 1);
	assert_string_equal(banner, "Welcome to far\n");
	assert_string_equal(note, "there and back");
	assert_int_equal(down_cause.code, RCP_OK);
	assert_cause(RCP_E_LINK, "ended early", "");
}

static void a_shell_that_is_none(void **state)
{
	(void)state;
	start("echo 'This account is currently not available.'; exit 1", NULL, NULL);
	start_ctl();
	run_to_exit(5);
	while (!downs)
		uv_run(&loop, UV_RUN_ONCE);
	assert_int_equal(down_cause.code, RCP_E_CONNECT);
	assert_non_null(strstr(down_cause.text, "This account is currently not available."));
	assert_cause(RCP_E_CONNECT, "status 1", "");
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "-x") == 0)
		return tell_inherited();
	long pidfd = syscall(SYS_pidfd_open, getpid(), 0);

	if (pidfd < 0) {
		fprintf(stderr, "skipped: no pidfd_open here (%s); older valgrinds lack it\n",
			strerror(errno));
		return 77;
	}
	close((int)pidfd);
	const struct CMUnitTest tests[] = {
		T(the_argument_list),	 T(names_that_can_not_be),
		T(the_remote_words),	 T(not_installed_there),
		T(ssh_says_why),	 T(lost_after_the_answer),
		T(other_ends),		 T(a_status_that_is_lost),
		T(no_such_program),	 T(long_output_has_a_last_line),
		T(a_stderr_held_open),	 T(nothing_is_inherited),
		T(it_can_be_ended),	 T(a_copy_can_begin),
		T(a_shell_that_is_none),
	};

	return cmocka_run_group_tests(tests, make_dir, drop_dir);
}
