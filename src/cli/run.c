#include "cli/run.h"

#include "base/clock.h"
#include "base/text.h"
#include "cli/json.h"
#include "cli/names.h"
#include "cli/print.h"
#include "cli/signals.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A summary of 1000 long errors is the largest line. */
enum { LINE_MOST = 256 << 20 };

struct run {
	const struct cli_args *args;
	struct cli_report *report;
	struct cli_faults faults;
	struct cli_meter meter;
	struct rcp_wr line; /* of JSON or --dry-run, reused */
	bool out_failed;    /* standard output: told once, then left alone */
	bool line_lost;	    /* there was no memory for a line of it */
	bool summary_seen;
	uint64_t json_ns; /* when the last progress event was written */
	uint64_t files_ended;
	char *name; /* of the first file that ended */
	char *host, *remote_software;
};

static void out_error(struct cli_report *report, int sys_errno)
{
	struct rcp_err err = {0};

	rcp_err_set(&err, RCP_E_IO, sys_errno, "write", "standard output", NULL);
	cli_report_err(report, &err);
}

int cli_run_print(struct cli_report *report, const struct rcp_wr *text)
{
	int failed = text->bad ? ENOMEM : cli_write_all(STDOUT_FILENO, text->data, text->len);

	if (failed)
		out_error(report, failed);
	return failed ? RCP_EXIT_IO : RCP_EXIT_OK;
}

/* What was put into run->line goes to standard output. The copy goes on where nobody reads. */
static void line_flush(struct run *run)
{
	if (run->line.no_memory && !run->out_failed) { /* this line is lost; what comes next need not be */
		if (!run->line_lost)
			out_error(run->report, ENOMEM);
		run->line_lost = true;
	} else if (!run->out_failed) {
		run->out_failed = cli_run_print(run->report, &run->line) != RCP_EXIT_OK;
	}
	rcp_wr_free(&run->line);
	run->line = (struct rcp_wr){.max = LINE_MOST};
}

static void on_start(void *arg, const char *host, const char *remote_software)
{
	struct run *run = arg;

	free(run->host);
	free(run->remote_software);
	run->host = host ? strdup(host) : NULL;
	run->remote_software = remote_software ? strdup(remote_software) : NULL;
}

static void tell_transport(struct run *run, const struct rcp_transport_info *info)
{
	struct rcp_wr w = {.max = 65536};

	cli_print(&w, "transport %s", info->transport);
	if (info->fabric)
		cli_print(&w, " (%s)", info->fabric);
	if (info->detail && info->detail[0])
		cli_print(&w, ", %s", info->detail);
	if (info->fallback_reason)
		cli_print(&w, "; %s", info->fallback_reason);
	if (info->encrypted)
		cli_print(&w, "; %s %s", info->sealed ? "sealed with" : "inside", info->encrypted);
	else if (strcmp(info->transport, "local") != 0)
		cli_print(&w, "; not encrypted");
	cli_print(&w, "%c", 0);
	if (!w.bad)
		cli_report_log(run->report, (const char *)w.data);
	rcp_wr_free(&w);
}

static void on_transport(void *arg, const struct rcp_transport_info *info)
{
	struct run *run = arg;

	if (run->args->json) {
		cli_json_transport(&run->line, info, run->host, run->remote_software);
		line_flush(run);
	}
	if (run->args->copy.verbose && !run->report->quiet)
		tell_transport(run, info);
}

static void tell_file(struct run *run, const char *name, uint64_t bytes, const char *status)
{
	char shown[4 * 4096], size[24];

	rcp_name_escape(shown, sizeof(shown), name, strlen(name));
	rcp_size_format(bytes, size, sizeof(size));
	if (run->args->copy.dry_run && !run->args->json) {
		cli_print(&run->line, "%s\t%s\t%s\n",
			  !strcmp(status, "copied") ? "would copy" : status, size, shown);
		line_flush(run);
	} else if (run->args->copy.verbose && !run->report->quiet) {
		cli_report_line(run->report, "%s: %s, %s", shown, status, size);
	}
}

static void on_file(void *arg, const char *name, uint64_t bytes, const char *status)
{
	struct run *run = arg;

	if (run->files_ended++ == 0)
		run->name = strdup(name);
	if (run->args->json) {
		cli_json_file(&run->line, name, bytes, status);
		line_flush(run);
	}
	tell_file(run, name, bytes, status);
}

static void on_fault(void *arg, const struct rcp_fault *fault)
{
	struct run *run = arg;
	bool kept = cli_faults_add(&run->faults, fault);

	if (run->args->json) {
		cli_json_error(&run->line, fault);
		line_flush(run);
	}
	/* A tree may have the same warning for each of its files: in the end they are one, but for -v. */
	if (!fault->warning || !kept || run->args->copy.verbose)
		cli_report_fault(run->report, fault);
}

static void on_progress(void *arg, const struct rcp_progress *progress)
{
	struct run *run = arg;

	cli_meter_feed(&run->meter, progress);
	if (run->args->json && progress->elapsed_ns - run->json_ns >= RCP_SEC) {
		run->json_ns = progress->elapsed_ns;
		cli_json_progress(&run->line, progress, run->meter.rate);
		line_flush(run);
	}
	cli_report_progress(run->report, progress, run->meter.rate);
}

static void on_log(void *arg, int level, const char *line)
{
	struct run *run = arg;

	if (level <= run->args->copy.verbose && !run->report->quiet)
		cli_report_log(run->report, line);
}

static void on_remote_output(void *arg, const char *bytes, unsigned long len)
{
	struct run *run = arg;

	cli_report_remote(run->report, bytes, len);
}

/* A failure that nobody explained must not look like success. */
static void tell_silence(struct run *run, int code)
{
	bool stopped = code == RCP_EXIT_INTERRUPTED || code == RCP_EXIT_TERMINATED;

	if (code != RCP_EXIT_OK && !stopped && !run->faults.count && !run->faults.omitted)
		cli_report_line(run->report, "failed with exit status %d (%s), no reason was given",
				code, cli_status_word(code));
}

static void on_summary(void *arg, const struct rcp_summary *summary)
{
	struct run *run = arg;

	run->summary_seen = true;
	cli_signals_disarm(); /* the copy is over: whoever reads none of this must not hold it up */
	cli_report_end(run->report, summary, run->files_ended == 1 ? run->name : NULL);
	if (run->args->stats)
		cli_report_stats(run->report, summary, &run->faults);
	tell_silence(run, summary->exit_code);
	if (!run->args->copy.verbose)
		cli_report_warnings(run->report, &run->faults);
	cli_report_failures(run->report, &run->faults);
	cli_report_resume(run->report, summary);
	if (run->args->json) {
		struct rcp_summary s = *summary;

		if (s.exit_code == RCP_EXIT_OK && run->line_lost)
			s.exit_code = RCP_EXIT_IO;
		cli_json_summary(&run->line, &s, &run->faults);
		line_flush(run);
	}
}

static int run_copy(struct run *run)
{
	const struct rcp_watch watch = {
		.arg = run,
		.start = on_start,
		.transport = on_transport,
		.file = on_file,
		.fault = on_fault,
		.progress = on_progress,
		.log = on_log,
		.remote_output = on_remote_output,
		.summary = on_summary,
	};
	struct rcp_copy *copy;
	int code = rcp_copy_new(&run->args->copy, &watch, &copy);

	if (!code) {
		cli_signals_arm(copy);
		code = rcp_copy_run(copy);
		cli_signals_disarm();
	}
	rcp_copy_free(&copy);
	return code;
}

static void run_free(struct run *run)
{
	cli_faults_free(&run->faults);
	rcp_wr_free(&run->line);
	free(run->name);
	free(run->host);
	free(run->remote_software);
}

int cli_run_copy(struct cli_args *args, struct cli_report *report)
{
	struct run run = {.args = args, .report = report, .line = {.max = LINE_MOST}};
	struct cli_names names = {0};
	struct rcp_err err = {0};

	if (args->files_from && cli_names_read(args->files_from, args->nul_names, &err, &names)) {
		cli_report_err(report, &err);
		return (int)err.code;
	}
	args->copy.names = names.list.items;
	if (args->json) {
		cli_json_start(&run.line, &args->copy);
		line_flush(&run);
	}
	int code = run_copy(&run);

	if (!run.summary_seen) /* refused before it began: a script still gets its last line */
		on_summary(&run, &(struct rcp_summary){.exit_code = code});
	if (code == RCP_EXIT_OK && (run.out_failed || run.line_lost))
		code = RCP_EXIT_IO;
	run_free(&run);
	cli_names_free(&names);
	return code;
}

static void on_server_fault(void *arg, const struct rcp_fault *fault)
{
	cli_report_fault(arg, fault);
}

/* "DIR", "DIR,ro" or "DIR,wo"; commas elsewhere are DIR's. */
static enum rcp_access take_access(char *dir)
{
	char *comma = strrchr(dir, ',');
	enum rcp_access access = !comma			      ? RCP_ACCESS_BOTH
				 : !strcmp(comma, ",ro") ? RCP_ACCESS_READ
				 : !strcmp(comma, ",wo") ? RCP_ACCESS_WRITE
							      : RCP_ACCESS_BOTH;

	if (access != RCP_ACCESS_BOTH)
		*comma = 0;
	return access;
}

int cli_run_server(struct cli_args *args, struct cli_report *report)
{
	const struct rcp_watch watch = {.arg = report, .fault = on_server_fault};
	char *dir = args->restrict_to ? strdup(args->restrict_to) : NULL;
	struct rcp_server_options options = {
		.in_fd = STDIN_FILENO,
		.out_fd = STDOUT_FILENO,
		.threads = args->copy.threads,
		.encryption = args->copy.encryption,
		.restrict_dir = dir,
	};
	int code = RCP_EXIT_IO;

	if (dir)
		options.restrict_access = take_access(dir);
	if (dir || !args->restrict_to) /* never unrestricted for want of memory */
		code = rcp_server_run(&options, &watch);
	free(dir);
	return code;
}

/* ---- daemons ---- */

static void on_daemon_log(void *arg, int level, const char *line)
{
	(void)level;
	cli_report_log(arg, line);
}

int cli_run_daemon(struct cli_args *args, struct cli_report *report)
{
	const struct rcp_watch watch = {.arg = report, .fault = on_server_fault, .log = on_daemon_log};
	const struct rcp_daemon_options options = {
		.config = args->config ? args->config : "/etc/rcp/rcpd.conf",
		.threads = args->copy.threads,
	};

	return rcp_daemon_run(&options, &watch);
}

int cli_run_keygen(struct cli_args *args, struct cli_report *report)
{
	const struct rcp_watch watch = {.arg = report, .fault = on_server_fault};
	const char *file = args->operands.count > 1 ? args->operands.items[1] : NULL;
	char line[RCP_KEY_LINE_MAX];
	int code = rcp_key_new(args->operands.items[0], file, &watch, line);

	if (!code && !file) {
		struct rcp_wr w = {.max = sizeof(line)};

		cli_print(&w, "%s", line);
		code = cli_run_print(report, &w);
		explicit_bzero(w.data, w.len);
		rcp_wr_free(&w);
	}
	explicit_bzero(line, sizeof(line));
	return code;
}

static void on_module(void *arg, const char *name, bool writable, const char *comment)
{
	struct run *run = arg;
	char shown[4 * 256], text[4 * 1024];

	if (run->args->json) {
		cli_json_module(&run->line, name, writable, comment);
		line_flush(run);
		return;
	}
	rcp_name_escape(shown, sizeof(shown), name, strlen(name));
	rcp_name_escape(text, sizeof(text), comment, strlen(comment));
	cli_print(&run->line, "%s\t%s\t%s\n", shown, writable ? "writable" : "read-only", text);
	line_flush(run);
}

int cli_run_list(struct cli_args *args, struct cli_report *report)
{
	struct run run = {.args = args, .report = report, .line = {.max = LINE_MOST}};
	const struct rcp_watch watch = {.arg = &run, .fault = on_fault, .log = on_log, .module = on_module};
	struct rcp_copy *copy;
	int code;

	if (args->json) {
		cli_json_start(&run.line, &args->copy);
		line_flush(&run);
	}
	code = rcp_copy_new(&args->copy, &watch, &copy);
	if (!code) {
		cli_signals_arm(copy);
		code = rcp_copy_run(copy);
		cli_signals_disarm();
	}
	rcp_copy_free(&copy);
	if (args->json) {
		cli_json_summary(&run.line, &(struct rcp_summary){.exit_code = code}, &run.faults);
		line_flush(&run);
	}
	run_free(&run);
	return code == RCP_EXIT_OK && (run.out_failed || run.line_lost) ? RCP_EXIT_IO : code;
}
