/* ssh as a child: pipes, a pidfd for its end, words for why it ended. */
#include "boot/ssh.h"

#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uv.h>

#define PIPE_BYTES  (1 << 20)  /* fewer turns where chunks go this way */
#define OUTPUT_TURN (64 << 10) /* of standard error, before others have their turn */
#define OUTPUT_LAST (1 << 20)  /* read at most after the exit: others may hold the pipe */
#define KILL_MS	    1000       /* from SIGTERM to SIGKILL */

struct rcp_ssh {
	const struct rcp_ssh_ops *ops; /* NULL: nobody listens */
	void *arg;
	uv_loop_t *loop;
	char *host, *rcp_path;
	pid_t pid; /* 0: reaped */
	int pidfd, errfd;
	uv_poll_t exit_poll, err_poll;
	uv_timer_t timer;
	unsigned handles;
	bool err_open, answered, terminated, delivering, over, freed;
	uint64_t kill_at; /* 0: not asked to end */
	char last[512];	  /* line of standard error that was not empty */
	char line[512];	  /* the one under way */
	size_t line_len;
	int status; /* of its exit; -1 */
	struct rcp_err cause;
};

/* --- why it ended --- */

static void end_line(struct rcp_ssh *ssh)
{
	while (ssh->line_len && (unsigned char)ssh->line[ssh->line_len - 1] <= ' ')
		ssh->line_len--;
	ssh->line[ssh->line_len] = 0;
	/* "Warning: Permanently added ..." is no reason for anything. */
	if (ssh->line_len && strncmp(ssh->line, "Warning: ", 9) != 0)
		memcpy(ssh->last, ssh->line, ssh->line_len + 1);
	ssh->line_len = 0;
}

static void note_output(struct rcp_ssh *ssh, const char *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if (bytes[i] == '\n')
			end_line(ssh);
		else if (ssh->line_len < sizeof(ssh->line) - 1)
			ssh->line[ssh->line_len++] = bytes[i];
	}
}

/* Status 255 is ssh's own; the last thing it said is the reason. */
static void explain_ssh(struct rcp_ssh *ssh, enum rcp_code code)
{
	if (ssh->last[0])
		rcp_err_set(&ssh->cause, code, 0, "ssh", ssh->host, "%s", ssh->last);
	else
		rcp_err_set(&ssh->cause, code, 0, "ssh", ssh->host,
			    "ssh ended with status 255 and said nothing");
	if (!ssh->answered)
		rcp_err_fix(&ssh->cause, "see whether 'ssh %s true' works", ssh->host);
}

static void explain_status(struct rcp_ssh *ssh, enum rcp_code code, int status)
{
	const char *colon = ssh->last[0] ? ": " : "";

	switch (status) {
	case 255:
		explain_ssh(ssh, code);
		break;
	case 127:
		rcp_err_set(
			&ssh->cause, code, 0, "", ssh->host,
			"%s is not installed there, or not in the PATH of a non-interactive shell",
			ssh->rcp_path);
		rcp_err_fix(&ssh->cause, "install rcp on %s, or --rcp-path=/path/to/rcp",
			    ssh->host);
		break;
	case 126:
		rcp_err_set(&ssh->cause, code, 0, "", ssh->host, "%s can't be run there%s%s",
			    ssh->rcp_path, colon, ssh->last);
		rcp_err_fix(&ssh->cause,
			    "see to its permissions and architecture, or --rcp-path=/path/to/rcp");
		break;
	case 0:
		rcp_err_set(&ssh->cause, code, 0, "", ssh->host, "the remote command ended %s%s%s",
			    ssh->answered ? "early" : "before rcp answered", colon, ssh->last);
		break;
	default:
		rcp_err_set(&ssh->cause, code, 0, "", ssh->host,
			    "the remote command ended with status %d%s%s", status, colon,
			    ssh->last);
		break;
	}
}

static void explain(struct rcp_ssh *ssh, int status)
{
	enum rcp_code code = ssh->answered ? RCP_E_LINK : RCP_E_CONNECT;

	end_line(ssh);
	ssh->status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
	if (WIFEXITED(status))
		explain_status(ssh, code, WEXITSTATUS(status));
	else
		rcp_err_set(&ssh->cause, code, 0, "", ssh->host, "ssh was killed by signal %d (%s)",
			    WTERMSIG(status), strsignal(WTERMSIG(status)));
	if (!ssh->answered && WIFEXITED(status) && !ssh->cause.fix[0])
		rcp_err_fix(&ssh->cause, "see whether %s is rcp there, or --rcp-path=/path/to/rcp",
			    ssh->rcp_path);
}

/* --- the loop's side --- */

static void destroy(struct rcp_ssh *ssh)
{
	free(ssh->host);
	free(ssh->rcp_path);
	free(ssh);
}

static void on_closed(uv_handle_t *handle)
{
	struct rcp_ssh *ssh = handle->data;

	if (--ssh->handles)
		return;
	ssh->over = true;
	ssh->delivering = true;
	if (ssh->ops)
		ssh->ops->exited(ssh->arg, &ssh->cause);
	ssh->delivering = false;
	if (ssh->freed)
		destroy(ssh);
}

static void close_poll(uv_poll_t *poll, int *fd)
{
	uv_close((uv_handle_t *)poll, on_closed);
	close(*fd);
	*fd = -1;
}

static void close_all(struct rcp_ssh *ssh)
{
	if (ssh->err_open)
		close_poll(&ssh->err_poll, &ssh->errfd);
	ssh->err_open = false;
	close_poll(&ssh->exit_poll, &ssh->pidfd);
	uv_close((uv_handle_t *)&ssh->timer, on_closed);
}

/* At most max bytes. False: no more will come. */
static bool read_output(struct rcp_ssh *ssh, size_t max)
{
	char buf[4096];
	ssize_t n = 1;

	for (size_t got = 0; got < max && n > 0; got += (size_t)n) {
		do
			n = read(ssh->errfd, buf, sizeof(buf));
		while (n < 0 && errno == EINTR);
		if (n <= 0)
			break;
		note_output(ssh, buf, (size_t)n);
		if (ssh->ops && ssh->ops->output)
			ssh->ops->output(ssh->arg, buf, (size_t)n);
		if (ssh->freed)
			return false;
	}
	return n > 0 || (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK));
}

static void on_output(uv_poll_t *poll, int status, int events)
{
	struct rcp_ssh *ssh = poll->data;

	(void)status;
	(void)events;
	if (read_output(ssh, OUTPUT_TURN) || ssh->freed)
		return;
	ssh->err_open = false;
	close_poll(&ssh->err_poll, &ssh->errfd);
}

static void on_exit_poll(uv_poll_t *poll, int status, int events)
{
	struct rcp_ssh *ssh = poll->data;
	int wstatus = 0;
	pid_t pid;

	(void)status;
	(void)events;
	do
		pid = waitpid(ssh->pid, &wstatus, WNOHANG);
	while (pid < 0 && errno == EINTR);
	int e = errno;

	if (pid == 0)
		return;
	ssh->pid = 0;
	if (ssh->err_open)
		read_output(ssh, OUTPUT_LAST);
	if (ssh->freed)
		return;
	if (pid > 0)
		explain(ssh, wstatus);
	else /* the program ignores SIGCHLD or waited for our child */
		rcp_err_set(&ssh->cause, ssh->answered ? RCP_E_LINK : RCP_E_CONNECT, e, "waitpid",
			    ssh->host, "ssh ended, its status is lost");
	close_all(ssh);
}

/* By the pidfd: where the program ignores SIGCHLD the number may be another process's already. */
static void send_signal(const struct rcp_ssh *ssh, int sig)
{
	syscall(SYS_pidfd_send_signal, ssh->pidfd, sig, NULL, 0);
}

static void on_timer(uv_timer_t *timer)
{
	struct rcp_ssh *ssh = timer->data;

	if (ssh->pid <= 0)
		return;
	send_signal(ssh, ssh->terminated ? SIGKILL : SIGTERM);
	ssh->terminated = true;
	uv_timer_start(timer, on_timer, KILL_MS, 0);
}

void rcp_ssh_close(struct rcp_ssh *ssh, unsigned grace_ms)
{
	uv_update_time(ssh->loop);
	uint64_t at = uv_now(ssh->loop) + grace_ms;

	if (ssh->pid <= 0 || ssh->terminated || (ssh->kill_at && ssh->kill_at <= at))
		return;
	ssh->kill_at = at;
	uv_timer_start(&ssh->timer, on_timer, grace_ms, 0);
}

int rcp_ssh_status(const struct rcp_ssh *ssh)
{
	return ssh->status;
}

void rcp_ssh_answered(struct rcp_ssh *ssh)
{
	ssh->answered = true;
}

void rcp_ssh_free(struct rcp_ssh **p)
{
	struct rcp_ssh *ssh = *p;

	*p = NULL;
	if (!ssh)
		return;
	ssh->ops = NULL;
	ssh->freed = true;
	if (ssh->over) {
		if (!ssh->delivering)
			destroy(ssh);
		return;
	}
	if (ssh->pidfd < 0)
		return; /* closing already */
	if (ssh->pid > 0) {
		send_signal(ssh, SIGKILL);
		while (waitpid(ssh->pid, NULL, 0) < 0 && errno == EINTR)
			;
		ssh->pid = 0;
	}
	close_all(ssh);
}

/* --- the start --- */

/* The child's ends and ours of standard input, output and error. */
struct pipes {
	int child[3], ours[3];
};

static void close_ends(int fd[3])
{
	for (int i = 0; i < 3; i++) {
		if (fd[i] >= 0)
			close(fd[i]);
		fd[i] = -1;
	}
}

/* Not 0, 1 or 2, which the child's dup2 would overwrite (a program may start with them closed). */
static int above_stdio(int fd)
{
	int high = fd;

	if (fd >= 0 && fd < 3) {
		high = fcntl(fd, F_DUPFD_CLOEXEC, 3);
		close(fd);
	}
	return high;
}

static int make_pipes(struct pipes *p, struct rcp_err *err)
{
	*p = (struct pipes){{-1, -1, -1}, {-1, -1, -1}};
	for (int i = 0; i < 3; i++) {
		int fd[2], reader, writer;

		if (pipe2(fd, O_CLOEXEC) < 0)
			goto failed;
		reader = above_stdio(fd[0]);
		writer = above_stdio(fd[1]);
		p->child[i] = i == 0 ? reader : writer;
		p->ours[i] = i == 0 ? writer : reader;
		if (reader < 0 || writer < 0)
			goto failed;
		if (i < 2)
			fcntl(writer, F_SETPIPE_SZ, PIPE_BYTES); /* the default will do, too */
	}
	return 0;
failed:
	rcp_err_set(err, RCP_E_CONNECT, errno, "pipe", NULL, NULL);
	close_ends(p->child);
	close_ends(p->ours);
	return (int)err->code;
}

/* SIGINT stays blocked: on ^C at the terminal the copy must still be able to tell the other side.
 * At a password prompt ssh ends by the SIGTERM of rcp_ssh_close, which gives the terminal back,
 * too. */
static void set_signals(posix_spawnattr_t *attr)
{
	sigset_t mask, defaults;

	sigemptyset(&mask);
	sigaddset(&mask, SIGINT);
	sigemptyset(&defaults);
	sigaddset(&defaults, SIGPIPE);
	sigaddset(&defaults, SIGCHLD);
	posix_spawnattr_setsigmask(attr, &mask);
	posix_spawnattr_setsigdefault(attr, &defaults);
	posix_spawnattr_setflags(attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
}

static int spawn(const struct pipes *p, char **argv, pid_t *pid)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	int r = posix_spawn_file_actions_init(&actions);

	if (r)
		return r;
	r = posix_spawnattr_init(&attr);
	if (r) {
		posix_spawn_file_actions_destroy(&actions);
		return r;
	}
	set_signals(&attr);
	for (int i = 0; i < 3 && !r; i++)
		r = posix_spawn_file_actions_adddup2(&actions, p->child[i], i);
	if (!r)
		r = posix_spawn_file_actions_addclosefrom_np(&actions, 3);
	if (!r)
		r = posix_spawnp(pid, argv[0], &actions, &attr, argv, environ);
	posix_spawnattr_destroy(&attr);
	posix_spawn_file_actions_destroy(&actions);
	return r;
}

static int start(struct rcp_ssh *ssh, const struct rcp_ssh_params *params, struct pipes *p,
		 struct rcp_err *err)
{
	char **argv;

	if (rcp_ssh_argv(params, err, &argv) || make_pipes(p, err)) {
		free(argv);
		return -1;
	}
	int r = spawn(p, argv, &ssh->pid);

	if (r) {
		ssh->pid = 0;
		rcp_err_set(err, RCP_E_CONNECT, r, "exec", argv[0], NULL);
		if (r == ENOENT)
			rcp_err_fix(err, "install the OpenSSH client, or name the program with -S");
		close_ends(p->ours);
	}
	free(argv);
	close_ends(p->child);
	return r ? -1 : 0;
}

static int watch(struct rcp_ssh *ssh, struct rcp_err *err)
{
	int r;

	uv_timer_init(ssh->loop, &ssh->timer);
	ssh->handles = 1;
	ssh->pidfd = (int)syscall(SYS_pidfd_open, ssh->pid, 0);
	if (ssh->pidfd < 0)
		return rcp_err_set(err, RCP_E_CONNECT, errno, "pidfd_open", ssh->host, NULL);
	r = uv_poll_init(ssh->loop, &ssh->exit_poll, ssh->pidfd);
	if (r < 0)
		return rcp_err_set(err, RCP_E_CONNECT, -r, "uv_poll_init", ssh->host, NULL);
	ssh->handles = 2;
	r = uv_poll_init(ssh->loop, &ssh->err_poll, ssh->errfd);
	if (r < 0)
		return rcp_err_set(err, RCP_E_CONNECT, -r, "uv_poll_init", ssh->host, NULL);
	ssh->handles = 3;
	ssh->err_open = true;
	uv_poll_start(&ssh->exit_poll, UV_READABLE, on_exit_poll);
	uv_poll_start(&ssh->err_poll, UV_READABLE, on_output);
	return 0;
}

/* Started but not to be watched: end the child, let the loop free what it has. */
static void give_up(struct rcp_ssh *ssh)
{
	ssh->freed = true;
	ssh->ops = NULL;
	kill(ssh->pid, SIGKILL);
	while (waitpid(ssh->pid, NULL, 0) < 0 && errno == EINTR)
		;
	if (ssh->handles > 1)
		uv_close((uv_handle_t *)&ssh->exit_poll, on_closed);
	uv_close((uv_handle_t *)&ssh->timer, on_closed);
	if (ssh->pidfd >= 0)
		close(ssh->pidfd);
	close(ssh->errfd);
}

int rcp_ssh_new(struct uv_loop_s *loop, const struct rcp_ssh_params *params,
		const struct rcp_ssh_ops *ops, void *arg, struct rcp_err *err, int *rfd, int *wfd,
		struct rcp_ssh **out)
{
	struct rcp_ssh *ssh = calloc(1, sizeof(*ssh));
	struct pipes p;

	*out = NULL;
	if (ssh) {
		ssh->host = strdup(params->host);
		ssh->rcp_path = strdup(params->rcp_path ? params->rcp_path : "rcp");
	}
	if (!ssh || !ssh->host || !ssh->rcp_path) {
		if (ssh)
			destroy(ssh);
		return rcp_err_set(err, RCP_E_IO, ENOMEM, "calloc", params->host, NULL);
	}
	if (start(ssh, params, &p, err)) {
		destroy(ssh);
		return (int)err->code;
	}
	ssh->ops = ops;
	ssh->status = -1;
	ssh->arg = arg;
	ssh->loop = loop;
	ssh->errfd = p.ours[2];
	ssh->timer.data = ssh->exit_poll.data = ssh->err_poll.data = ssh;
	if (watch(ssh, err)) {
		give_up(ssh);
		close(p.ours[0]);
		close(p.ours[1]);
		return (int)err->code;
	}
	*rfd = p.ours[1];
	*wfd = p.ours[0];
	*out = ssh;
	return 0;
}
