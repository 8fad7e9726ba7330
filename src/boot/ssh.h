/*
 * The user's ssh with `rcp --server` behind it: started from an argument list, its standard error
 * captured, its exit explained. Start it before any RDMA registration (a fork copies page tables).
 * No signal handler is needed: the exit comes by a pidfd. Loop's thread only, callbacks from the
 * loop.
 */
#ifndef RCP_BOOT_SSH_H
#define RCP_BOOT_SSH_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

struct uv_loop_s;
struct rcp_ssh;

struct rcp_ssh_params {
	const char *program;	 /* NULL: "ssh", looked up in PATH */
	const char *const *args; /* the user's, NULL-ended, or NULL */
	const char *user;	 /* or NULL */
	const char *host;	 /* without brackets */
	int family;		 /* 0, 4 or 6 */
	const char *rcp_path;	 /* NULL: "rcp" */
	bool unattended;	 /* it may not ask, nor wait long for a host that does not answer */
};

struct rcp_ssh_ops {
	/* Standard error's bytes as they come: ssh's own words, the remote shell's, rcp's. May be
	 * NULL. */
	void (*output)(void *arg, const char *bytes, size_t len);
	/*
	 * The last callback: the child is gone and reaped, all of its output was delivered. cause
	 * is never RCP_OK: what it means that ssh ended, to be used where its end was not wanted.
	 * RCP_E_CONNECT before rcp_ssh_answered, RCP_E_LINK after. rcp_ssh_free may be called
	 * inside.
	 */
	void (*exited)(void *arg, const struct rcp_err *cause);
};

/*
 * Starts it. *rfd, *wfd: ssh's standard output and input for rcp_ctl_new_pipe; the caller's,
 * close-on-exec. RCP_E_USAGE: a host or user that can't be. RCP_E_CONNECT: no such program.
 * Passwords are asked for by ssh itself on the terminal. SIGINT is blocked in the child: who was
 * interrupted decides when it ends.
 */
int rcp_ssh_new(struct uv_loop_s *loop, const struct rcp_ssh_params *params,
		const struct rcp_ssh_ops *ops, void *arg, struct rcp_err *err, int *rfd, int *wfd,
		struct rcp_ssh **out);

/* The remote rcp has answered. */
void rcp_ssh_answered(struct rcp_ssh *ssh);

/* Inside exited: the exit status, or -1 after a signal. */
int rcp_ssh_status(const struct rcp_ssh *ssh);

/* Let it end: grace_ms to go by itself (its pipes closed by their owner), then SIGTERM, 1 s later
 * SIGKILL. exited comes in any case. May be called again with less. */
void rcp_ssh_close(struct rcp_ssh *ssh, unsigned grace_ms);

/* Before exited: SIGKILL, waits for the child (it is at once), no callback. NULL is fine. */
void rcp_ssh_free(struct rcp_ssh **ssh);

/* The whole argument list, NULL-ended, in one allocation; caller frees. For rcp_ssh_new, -v and
 * tests. */
int rcp_ssh_argv(const struct rcp_ssh_params *params, struct rcp_err *err, char ***out);

/* What the remote shell is told: the path quoted (a leading ~ or ~user stays live), " --server". */
int rcp_ssh_command(const char *rcp_path, struct rcp_err *err, char **out);

#endif
