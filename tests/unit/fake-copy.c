/*
 * librcp as src/cli sees it, without a copy: the target's name says what happens. Every event goes
 * through the same watch as the real one's, so main, run, report and JSON are tested as they are.
 */
#include "rcp/rcp.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct rcp_copy {
	struct rcp_options options;
	struct rcp_watch watch;
	atomic_int cancelled;
};

void rcp_options_init(struct rcp_options *o)
{
	memset(o, 0, sizeof(*o)); /* the padding, too */
	o->retries = 3;
	o->ssh = "ssh";
	o->rcp_path = "rcp";
	o->gid_index = o->tos = o->sl = o->pkey = -1;
	o->chunk_bytes = 1 << 20;
	o->slots = 32;
}

const char *rcp_version(void)
{
	return RCP_VERSION;
}

static void fault(const struct rcp_watch *watch, int code, int sys_errno, const char *object,
		  const char *reason, bool warning)
{
	watch->fault(watch->arg, &(struct rcp_fault){
					 .code = code,
					 .sys_errno = sys_errno,
					 .call = "pwrite",
					 .object = object,
					 .reason = reason,
					 .fix = "make room",
					 .warning = warning,
				 });
}

static bool scenario(const struct rcp_copy *copy, const char *name)
{
	return !strcmp(copy->options.target, name);
}

int rcp_copy_new(const struct rcp_options *options, const struct rcp_watch *watch,
		 struct rcp_copy **out)
{
	*out = NULL;
	if (!strcmp(options->target, "fake:refused")) {
		fault(watch, RCP_EXIT_USAGE, 0, "fake:refused", "can't be", false);
		return RCP_EXIT_USAGE;
	}
	*out = calloc(1, sizeof(**out));
	(*out)->options = *options;
	(*out)->watch = *watch;
	return 0;
}

static void tell_start(struct rcp_copy *copy)
{
	const struct rcp_watch *w = &copy->watch;

	w->start(w->arg, "fake", "rcp 0");
	w->log(w->arg, 1, "info line");
	w->log(w->arg, 2, "debug line");
	w->transport(w->arg, &(struct rcp_transport_info){
				     .transport = "tcp",
				     .detail = "127.0.0.1",
				     .fallback_reason = "no RDMA device here",
				     .encrypted = "aes-256-gcm",
				     .sealed = true,
			     });
	/* a banner in two pieces, with what would move the cursor */
	w->remote_output(w->arg, "b\xc3", 2);
	w->remote_output(w->arg, "\xa4n\r", 3);
	w->remote_output(w->arg, "\n", 1);
	w->remote_output(w->arg, "ban", 3);
	w->remote_output(w->arg, "ner \\o/ \033[2J\r\nrest", 18);
}

static void tell_progress(struct rcp_copy *copy, uint64_t step)
{
	const struct rcp_watch *w = &copy->watch;

	w->progress(w->arg, &(struct rcp_progress){
				    .bytes = step << 20,
				    .total_bytes = 40 << 20,
				    .total_files = 1,
				    .total_final = true,
				    .elapsed_ns = step * 250000000,
				    .name = "big\nname",
				    .name_bytes = step << 20,
				    .name_total = 40 << 20,
				    .transport = "tcp",
			    });
}

static int tell_summary(struct rcp_copy *copy, int code, uint64_t files, uint64_t failed)
{
	const struct rcp_watch *w = &copy->watch;

	w->summary(w->arg, &(struct rcp_summary){
				   .exit_code = code,
				   .files = files,
				   .failed = failed,
				   .bytes = 40 << 20,
				   .seconds = 10,
				   .bytes_per_second = 4 << 20,
				   .transport = "tcp",
				   .fallback_reason = "no RDMA device here",
				   .encrypted = "aes-256-gcm",
				   .sealed = true,
				   .sealed_bytes = 40 << 20,
				   .staged_bytes = 40 << 20,
				   .crc32_known = code == RCP_EXIT_OK,
				   .crc32 = 0xbeef,
				   .bottleneck = "network",
				   .resumable = code != RCP_EXIT_OK,
			   });
	return code;
}

static int run_until_cancelled(struct rcp_copy *copy, bool deaf)
{
	if (write(STDOUT_FILENO, "ready\n", 6) != 6)
		return RCP_EXIT_IO;
	while (!atomic_load(&copy->cancelled))
		poll(NULL, 0, 10);
	if (deaf && write(STDOUT_FILENO, "heard\n", 6) != 6)
		return RCP_EXIT_IO;
	while (deaf)
		pause();
	return tell_summary(copy, atomic_load(&copy->cancelled), 0, 0);
}

static int run_failures(struct rcp_copy *copy, unsigned count)
{
	char name[64];

	for (unsigned i = 0; i < count; i++) {
		snprintf(name, sizeof(name), "dir/\xff%u", i);
		fault(&copy->watch, RCP_EXIT_IO, ENOSPC, name, "disk is full", false);
		copy->watch.file(copy->watch.arg, name, 0, "failed");
	}
	fault(&copy->watch, RCP_EXIT_IO, 0, "xattr", "not kept", true);
	return tell_summary(copy, RCP_EXIT_PARTIAL, 0, count);
}

int rcp_copy_run(struct rcp_copy *copy)
{
	if (scenario(copy, "fake:wait") || scenario(copy, "fake:deaf"))
		return run_until_cancelled(copy, scenario(copy, "fake:deaf"));
	if (scenario(copy, "fake:asks")) {
		copy->watch.remote_output(copy->watch.arg, "Code: ", 6);
		return run_until_cancelled(copy, false);
	}
	if (scenario(copy, "fake:mute"))
		return RCP_EXIT_CONNECT;
	tell_start(copy);
	if (scenario(copy, "fake:names"))
		for (size_t i = 0; copy->options.names && copy->options.names[i]; i++)
			copy->watch.file(copy->watch.arg, copy->options.names[i], i, "copied");
	if (scenario(copy, "fake:fail3"))
		return run_failures(copy, 3);
	if (scenario(copy, "fake:fail3000"))
		return run_failures(copy, 3000);
	for (uint64_t step = 0; step <= 40; step++) {
		tell_progress(copy, step);
		if (scenario(copy, "fake:slow"))
			poll(NULL, 0, 20);
		if (step == 20)
			copy->watch.remote_output(copy->watch.arg, "later\nand ", 10);
	}
	copy->watch.file(copy->watch.arg, "big\nname", 40 << 20, "copied");
	return tell_summary(copy, RCP_EXIT_OK, 1, 0);
}

void rcp_copy_cancel(struct rcp_copy *copy, int exit_code)
{
	atomic_store(&copy->cancelled, exit_code);
}

void rcp_copy_free(struct rcp_copy **copy)
{
	free(*copy);
	*copy = NULL;
}

int rcp_server_run(const struct rcp_server_options *options, const struct rcp_watch *watch)
{
	char byte;

	/* an echo proves which descriptors it got */
	while (read(options->in_fd, &byte, 1) == 1)
		if (write(options->out_fd, &byte, 1) != 1)
			break;
	fault(watch, RCP_EXIT_CONNECT, 0, "peer", "went away", false);
	return RCP_EXIT_CONNECT;
}

int rcp_daemon_run(const struct rcp_daemon_options *options, const struct rcp_watch *watch)
{
	watch->log(watch->arg, 0, options->config);
	return RCP_EXIT_OK;
}

int rcp_key_new(const char *name, const char *path, const struct rcp_watch *watch,
		char out[RCP_KEY_LINE_MAX])
{
	(void)watch;
	snprintf(out, RCP_KEY_LINE_MAX, "%.60s %.60s\n", name, path ? path : "-");
	return RCP_EXIT_OK;
}
