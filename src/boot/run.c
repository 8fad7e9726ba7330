/* The loop of one copy at one end, its turns, and its teardown. */
#include "boot/run.h"

#include "base/clock.h"
#include "session/wanted.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define TICK_MS 20
#define END_MS 8000	 /* for everything to close in good order */
#define END_LOST_MS 2500 /* the same where there is nobody left to say goodbye to */
#define END_RETRY_MS 20000 /* the same where the copy goes on afterwards, and there is no hurry to end */
#define CLOSE_MS 2000 /* for one connection, or ssh */
#define GONE_MS 200   /* the same where nobody is there any more */
#define LOST_MS 1000  /* for ssh to end after its pipe */

uint64_t run_now(void *arg)
{
	(void)arg;
	return rcp_now_ns();
}

bool run_test_stalls(const struct rcp_run *run, const char *after)
{
#if RCP_TEST_HOOKS
	const char *word = run->initiator ? getenv("RCP_TEST_STALL") : NULL;

	return word && !strcmp(word, after);
#else
	(void)run;
	(void)after;
	return false;
#endif
}

/* ---- what the user is told ---- */

static void fault_of(const struct rcp_err *err, bool warning, struct rcp_fault *f)
{
	*f = (struct rcp_fault){.code = (int)err->code,
				.sys_errno = err->sys_errno,
				.call = err->call,
				.object = err->object,
				.reason = rcp_err_reason(err),
				.fix = err->fix,
				.warning = warning};
}

void run_fault(struct rcp_run *run, const struct rcp_err *err, bool warning)
{
	struct rcp_fault f;

	if (!warning && !rcp_err_is(&run->first_fault))
		run->first_fault = *err;
	/* A responder's faults travel to the initiator, which tells the user once. */
	if (!run->watch.fault || (!run->initiator && (run->ctl || run->pipe)) || retry_told(run, err))
		return;
	fault_of(err, warning, &f);
	run->watch.fault(run->watch.arg, &f);
}

int run_no_memory(const struct rcp_watch *watch)
{
	struct rcp_err err = {0};
	struct rcp_fault f;

	rcp_err_set(&err, RCP_E_IO, ENOMEM, "calloc", NULL, NULL);
	fault_of(&err, false, &f);
	if (watch && watch->fault)
		watch->fault(watch->arg, &f);
	return RCP_EXIT_IO;
}

static void interruption(const struct rcp_run *run, struct rcp_err *err)
{
	if (!run->initiator) /* who is may come again, and then go on */
		rcp_err_set(err, RCP_E_LINK, 0, "", NULL, "%s",
			    run->served ? served_interruption(run) : "rcp was ended there by a signal");
	else
		rcp_err_set(err, run->cancel_code == RCP_E_TERMINATED ? RCP_E_TERMINATED : RCP_E_INTERRUPTED,
			    0, "", NULL, "interrupted");
}

/* A terminal sends ^C to ssh, too, and a session's end its SIGTERM or SIGHUP: what breaks by that is
 * no news. */
void run_fail(struct rcp_run *run, const struct rcp_err *err)
{
	struct rcp_err stop = {0};

	if (run->ending)
		return;
	if (run->cancel_code) {
		interruption(run, &stop);
		run_end(run, &stop);
		return;
	}
	struct rcp_err end = *err;

	if (!retry_take(run, err)) {
		/* That it could not be connected again is how it was lost. */
		if (run->reconnects && end.code == RCP_E_CONNECT)
			end.code = RCP_E_LINK;
		run_fault(run, &end, false);
	}
	run_end(run, &end);
}

static void env_fault(void *arg, const struct rcp_err *err, bool warning)
{
	run_fault(arg, err, warning);
}

static void env_file(void *arg, const char *name, uint64_t bytes, enum rcp_status status)
{
	static const char *const words[] = {"copied", "failed", "skipped", "copied"};
	struct rcp_run *run = arg;

	if (run->retry && status == RCP_STATUS_FAILED)
		return; /* for want of the connection: it comes again */
	if (run->watch.file)
		run->watch.file(run->watch.arg, name, bytes, words[status]);
}

static void env_send(void *arg, enum rcp_msg_type type, const void *msg)
{
	struct rcp_run *run = arg;

	rcp_ctl_send(run->ctl, type, msg);
}

static void env_over(void *arg, const struct rcp_err *cause)
{
	talk_session_over(arg, cause);
}

void run_env(struct rcp_run *run, struct rcp_session_env *env)
{
	*env = (struct rcp_session_env){.arg = run,
					.pool = run->pool,
					.log = &run->log,
					.now_ns = run_now,
					.send = env_send,
					.fault = env_fault,
					.file = env_file,
					.over = env_over,
					.done = run->done};
}

void run_stats(struct rcp_run *run)
{
	if (run->receiver)
		run->stats = *rcp_receiver_stats(run->receiver);
	else if (run->sender)
		run->stats = *rcp_sender_stats(run->sender);
	else
		run->stats.current = NULL;
}

static void tell_progress(struct rcp_run *run, uint64_t now)
{
	struct rcp_progress p = {0};

	if (!run->watch.progress || now - run->progress_ns < 100 * RCP_MS)
		return;
	run->progress_ns = now;
	run_stats(run);
	p.bytes = run->stats.bytes_moved;
	p.total_bytes = run->stats.bytes_seen;
	p.files = run->stats.files_done;
	p.total_files = run->stats.files_seen;
	p.total_final = run->stats.walk_over;
	p.elapsed_ns = now - run->started_ns;
	p.name = run->stats.current;
	p.name_bytes = run->stats.current_bytes;
	p.name_total = run->stats.current_size;
	p.transport = run->transport;
	run->watch.progress(run->watch.arg, &p);
}

/* ---- teardown: each turn closes what can be closed by now ---- */

void run_end(struct rcp_run *run, const struct rcp_err *cause)
{
	if (run->ending)
		return;
	run->ending = true;
	run->cause = *cause;
	run->ended_ns = rcp_now_ns();
	run->end_deadline_ns =
		run->ended_ns + (run->gone ? END_LOST_MS : END_MS) * RCP_MS;
	if (run->pool && rcp_err_is(cause))
		rcp_pool_set_unwanted(run->pool, true);
	if (run_guarded(run))
		restrict_deadline(run);
	if (rcp_err_is(cause)) {
		if (run->ctl && !run->aborted)
			rcp_ctl_send_abort(run->ctl, cause);
		else if (run->pipe && !run->aborted)
			rcp_ctl_send_abort(run->pipe, cause);
		run->aborted = true;
	}
}

void run_lost(struct rcp_run *run, const struct rcp_err *err)
{
	if (run->ending || rcp_err_is(&run->lost))
		return;
	run->lost = *err;
	if (!run->lost_ns)
		run->lost_ns = rcp_now_ns();
}

/* A connection that this end could not go on with: ssh ended because of that. */
static bool own_failure(int sys_errno)
{
	static const int others[] = {EPIPE,	   ECONNRESET, ECONNABORTED, ECONNREFUSED, ETIMEDOUT,
				     EHOSTUNREACH, ENETUNREACH, ENETDOWN};

	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		if (sys_errno == others[i])
			return false;
	}
	return sys_errno != 0;
}

const struct rcp_err *run_own_cause(const struct rcp_run *run)
{
	const struct rcp_err *of[] = {rcp_ctl_untold(run->tls), rcp_ctl_untold(run->pipe)};

	for (size_t i = 0; i < 2; i++) {
		if (of[i] && own_failure(of[i]->sys_errno))
			return of[i];
	}
	return NULL;
}

/*
 * The peer's own ABORT and a protocol error stand. But a pipe that closed is explained by how ssh ended;
 * so is a login that printed words and then found no rcp.
 */
static bool ssh_knows_better(const struct rcp_run *run)
{
	int status = run->ssh_status;

	if (!rcp_err_is(&run->ssh_end))
		return false;
	if (!rcp_err_is(&run->lost))
		return true;
	if (own_failure(run->lost.sys_errno))
		return false;
	if (run->aborted)
		return status == 255 || status < 0;
	if (run->lost.code == RCP_E_LINK)
		return true;
	if (run->answered || run->lost.sys_errno == ETIMEDOUT)
		return false;
	return !run->banner || status == 126 || status == 127;
}

/* One half of the story is there, ssh's or the pipe's: is the other to come? */
static bool lost_waits(const struct rcp_run *run, uint64_t now)
{
	if (now - run->lost_ns >= LOST_MS * RCP_MS || own_failure(run->lost.sys_errno))
		return false;
	if (!rcp_err_is(&run->lost))
		return run->pipe != NULL;
	return run->ssh && run->lost.sys_errno != ETIMEDOUT &&
	       (run->lost.code == RCP_E_LINK || !run->pipe);
}

static void lost_turn(struct rcp_run *run, uint64_t now)
{
	struct rcp_err err;

	if (!run->lost_ns || lost_waits(run, now))
		return;
	err = ssh_knows_better(run) ? run->ssh_end : run->lost;
	run->gone = !run->ctl;
	if (err.code == RCP_E_LINK && !run->transport)
		err.code = RCP_E_CONNECT; /* there was no link yet to lose */
	run_stats(run);
	/* A sink that could not say it (no memory, a write that failed) is the only one who knows. */
	if (run->stats.verdict_known && !(run->receiver && own_failure(err.sys_errno))) {
		struct rcp_err none = {0};

		run_end(run, &none);
		return;
	}
	run_fail(run, &err);
}

static bool close_session(struct rcp_run *run)
{
	if (run->local)
		return local_closed(run);
	if ((run->sender || run->receiver) && !run->session_over) {
		struct rcp_err cause = run->cause;

		if (!rcp_err_is(&cause))
			rcp_err_set(&cause, RCP_E_LINK, 0, "", NULL, "ended");
		if (run->sender)
			rcp_sender_stop(run->sender, &cause);
		if (run->receiver)
			rcp_receiver_stop(run->receiver, &cause);
		return false;
	}
	return true;
}

static void listener_closed(void *arg)
{
	struct rcp_run *run = arg;

	run->rdma_listener = NULL;
}

static bool close_links(struct rcp_run *run)
{
	for (struct rcp_attempt *a = run->attempts; a; a = a->next)
		attempt_close(a);
	if (!attempt_reap(run) || run->rdma_looking)
		return false;
	rcp_listen_free(&run->listen);
	rcp_race_free(&run->race);
	daemon_dial_stop(run);
	if (run->rdma_listener && !run->rdma_listener_closing) {
		run->rdma_listener_closing = true;
		rcp_rdma_listener_close(run->rdma_listener, listener_closed, run);
	}
	if (run->rdma_listener)
		return false;
	rcp_rdma_close(&run->rdma);
	return true;
}

static bool close_ctl(struct rcp_ctl *ctl, bool *closing, unsigned ms)
{
	if (ctl && !*closing) {
		*closing = true;
		rcp_ctl_close(ctl, ms);
	}
	return !ctl;
}

static bool close_ssh(struct rcp_run *run, unsigned ms)
{
	if (run->ssh && !run->ssh_closing) {
		run->ssh_closing = true;
		rcp_ssh_close(run->ssh, ms);
	}
	return !run->ssh;
}

static bool close_all(struct rcp_run *run)
{
	/* With nobody there, nothing is to be gained from order, and each wait would be a whole one. */
	if (run->gone) {
		close_ctl(run->tls, &run->tls_closing, GONE_MS);
		close_ctl(run->pipe, &run->pipe_closing, GONE_MS);
		close_ssh(run, 2 * GONE_MS);
	}
	if (!close_session(run) || !close_links(run))
		return false;
	/* The pipe last: its end tells ssh and the peer that all is over. */
	return close_ctl(run->tls, &run->tls_closing, CLOSE_MS) &&
	       close_ctl(run->pipe, &run->pipe_closing, CLOSE_MS) && close_ssh(run, CLOSE_MS);
}

static void handle_close(uv_handle_t *h)
{
	if (!uv_is_closing(h))
		uv_close(h, NULL);
}

static void close_handles(struct rcp_run *run)
{
	run->handles_closing = true;
	if (run->pool_polled)
		handle_close((uv_handle_t *)&run->pool_poll);
	handle_close((uv_handle_t *)&run->prepare);
	handle_close((uv_handle_t *)&run->tick);
	/* uv_async_send to a handle of a closed loop is an abort(). */
	run->cancel_up = false;
	while (run->cancelling)
		sched_yield();
	handle_close((uv_handle_t *)&run->cancel);
	handle_close((uv_handle_t *)&run->busy);
}

static bool end_is_late(const struct rcp_run *run, uint64_t now)
{
	return now > (run->retry ? run->ended_ns + END_RETRY_MS * RCP_MS : run->end_deadline_ns);
}

static void end_turn(struct rcp_run *run, uint64_t now)
{
	if (run->handles_closing)
		return;
	if (close_all(run)) {
		if (run->retry && !run->cancel_code)
			retry_wait(run, now);
		else
			close_handles(run);
	} else if (end_is_late(run, now)) {
		/* Something does not close: what is on disk is as claimed, so leaving it is safe. */
		rcp_log(&run->log, RCP_LOG_DEBUG, "teardown took too long");
		if (run->retry)
			run_fault(run, &run->cause, false);
		rcp_ctl_free(&run->tls);
		rcp_ctl_free(&run->pipe);
		run->ctl = NULL;
		rcp_ssh_free(&run->ssh);
		uv_stop(&run->loop);
	}
}

/* ---- turns ---- */

static void on_idle(uv_idle_t *h)
{
	(void)h; /* its being active keeps the loop from sleeping */
}

static void turn(struct rcp_run *run)
{
	uint64_t now = rcp_now_ns();

	if (run->sender)
		rcp_sender_turn(run->sender);
	if (run->receiver)
		rcp_receiver_turn(run->receiver);
	if (run->local) {
		bool more = local_turn(run);

		if (more && !run->handles_closing)
			uv_idle_start(&run->busy, on_idle);
		else
			uv_idle_stop(&run->busy);
	} else if (run->retry_ns && !run->ending) {
		retry_turn(run, now);
	} else if (!run->ending) {
		talk_turn(run);
	}
	if (!run->ctl)
		attempt_pipes_run(run);
	attempt_reap(run);
	if (!run->ending)
		lost_turn(run, now);
	if (!run->ending && !run->local)
		stall_turn(run, now);
	if (!run->ending && run->served)
		served_turn(run, now);
	if (run->ending)
		end_turn(run, now);
	else
		tell_progress(run, now);
}

static void on_prepare(uv_prepare_t *h)
{
	turn(h->data);
}

static void on_tick(uv_timer_t *h)
{
	(void)h; /* the turn that follows does the work */
}

static void on_pool(uv_poll_t *h, int status, int events)
{
	struct rcp_run *run = h->data;

	(void)status;
	(void)events;
	rcp_pool_reap(run->pool);
}

void run_cancel(struct rcp_run *run, int code)
{
	run->cancelling++;
	if (run->cancel_up) {
		run->cancel_code = code;
		uv_async_send(&run->cancel);
	}
	run->cancelling--;
}

static void on_cancel(uv_async_t *h)
{
	struct rcp_run *run = h->data;
	struct rcp_err err = {0};

	interruption(run, &err);
	if (run->retry) /* on its way down, to come up again */
		run->cause = err;
	run->retry = false;
	run_end(run, &err);
}

/* ---- life ---- */

static void log_line(void *arg, enum rcp_log_level level, const char *text)
{
	struct rcp_run *run = arg;

	if (run->watch.log)
		run->watch.log(run->watch.arg, (int)level, text);
}

/* Many sources, sinks and sockets at once; pinned memory. What the hard limit allows is ours to use. */
static void raise_limit(__rlimit_resource_t what)
{
	struct rlimit lim;

	if (getrlimit(what, &lim) == 0 && lim.rlim_cur < lim.rlim_max) {
		lim.rlim_cur = lim.rlim_max;
		setrlimit(what, &lim);
	}
}

static unsigned default_threads(void)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	return cpus < 2 ? 2 : cpus > 8 ? 8 : (unsigned)cpus;
}

static int init_handles(struct rcp_run *run, struct rcp_err *err)
{
	int rc = uv_loop_init(&run->loop);

	if (rc)
		return rcp_err_set(err, RCP_E_IO, -rc, "uv_loop_init", NULL, NULL);
	run->loop_up = true;
	rc = uv_async_init(&run->loop, &run->cancel, on_cancel);
	if (rc) /* the only one that can fail: nothing is to be closed yet */
		return rcp_err_set(err, RCP_E_IO, -rc, "uv_async_init", NULL, NULL);
	uv_prepare_init(&run->loop, &run->prepare);
	uv_timer_init(&run->loop, &run->tick);
	uv_idle_init(&run->loop, &run->busy);
	run->prepare.data = run->tick.data = run->cancel.data = run->pool_poll.data = run;
	uv_prepare_start(&run->prepare, on_prepare);
	uv_timer_start(&run->tick, on_tick, TICK_MS, TICK_MS);
	run->cancel_up = true;
	return 0;
}

int run_init_pool(struct rcp_run *run, unsigned threads, struct rcp_err *err)
{
	int rc;

	if (rcp_pool_new(threads ? threads : default_threads(), err, &run->pool))
		return (int)err->code;
	rc = uv_poll_init(&run->loop, &run->pool_poll, rcp_pool_fd(run->pool));
	if (rc)
		return rcp_err_set(err, RCP_E_IO, -rc, "uv_poll_init", NULL, NULL);
	run->pool_polled = true;
	uv_poll_start(&run->pool_poll, UV_READABLE, on_pool);
	run_env(run, &run->env);
	return 0;
}

int run_init_loop(struct rcp_run *run, const struct rcp_watch *watch, int verbose, struct rcp_err *err)
{
	if (watch)
		run->watch = *watch;
	run->verbose = verbose;
	run->log = (struct rcp_log){.line = log_line, .arg = run, .level = (enum rcp_log_level)verbose};
	run->target.root = -1;
	run->started_ns = rcp_now_ns();
	raise_limit(RLIMIT_NOFILE);
	rcp_sigbus_install();
	return init_handles(run, err);
}

int run_init(struct rcp_run *run, const struct rcp_watch *watch, unsigned threads, int verbose,
	     struct rcp_err *err)
{
	return run_init_loop(run, watch, verbose, err) ? (int)err->code : run_init_pool(run, threads, err);
}

/* What one connection had. */
void run_forget(struct rcp_run *run)
{
	/* Jobs first: they point into everything else. */
	if (run->pool) {
		rcp_pool_drain(run->pool);
		rcp_pool_set_unwanted(run->pool, false); /* the next connection's */
	}
	rcp_sender_free(&run->sender);
	rcp_receiver_free(&run->receiver);
	local_free(run);
	free(run->peer_ports);
	free(run->cands);
	rcp_secret_wipe(run->secret, sizeof(run->secret));
	rcp_secret_wipe(&run->key, sizeof(run->key));
}

static void free_target(struct rcp_run *run)
{
	bool ended = run->target_open && run->stats.verdict_known && !(run->req.flags & RCP_OPT_DRY_RUN);

	if (ended && run->stats.verdict_code == RCP_OK)
		rcp_target_done(&run->target);
	/* Where some files failed for reasons of their own, nothing is left lying about. */
	if (ended && run->stats.verdict_code <= RCP_E_PARTIAL)
		rcp_target_forget(&run->target);
	if (run->target_open)
		rcp_target_free(&run->target);
	rcp_wanted_free(&run->wanted);
}

static void free_all(struct rcp_run *run)
{
	run_forget(run);
	free_target(run);
	rcp_pool_free(&run->pool);
	rcp_where_free(&run->where);
	request_free(&run->req);
	rcp_keys_free(&run->done);
	rcp_keys_free(&run->told);
}

int run_loop(struct rcp_run *run)
{
	if (run->loop_up) {
		uv_run(&run->loop, UV_RUN_DEFAULT);
	}
	run_stats(run);
	run->stats.current = NULL;
	if (run->served)
		served_over(run);
	free_all(run);
	if (run->loop_up)
		uv_loop_close(&run->loop);
	if (rcp_err_is(&run->cause))
		return (int)run->cause.code;
	return (int)run->stats.verdict_code;
}
