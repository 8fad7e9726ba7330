/*
 * Standard error: messages for people and the progress line, which must not run into each other.
 * Main thread only. What can't be written is lost in silence: there is nowhere left to say it.
 */
#ifndef RCP_CLI_REPORT_H
#define RCP_CLI_REPORT_H

#include "base/err.h"
#include "cli/faults.h"
#include "cli/progress.h"
#include "cli/table.h"

struct cli_report {
	int fd;			    /* standard error */
	const char *who;	    /* what a message begins with; tells the two ends apart */
	enum cli_progress progress; /* settled: BAR, PLAIN or NONE */
	bool quiet;
	bool bar_drawn;	   /* the cursor stands in a progress line */
	bool connected;	   /* the login is over: no more questions from ssh */
	bool line_open;	   /* the other side's last line has no newline yet */
	uint64_t plain_ns; /* when the last plain line was written */
	size_t remote_len; /* bytes of the other side's standard error, not shown yet */
	char remote[1024];
};

/* Decides what progress there is: a bar needs a terminal, auto is silent with --json or -q. */
void cli_report_init(struct cli_report *report, int fd, const struct cli_args *args);

/* "rcp: " (or "rcp --server: ") and the line. The text is shown as it is: escape names before. */
void cli_report_line(struct cli_report *report, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void cli_report_err(struct cli_report *report, const struct rcp_err *err);
void cli_report_fault(struct cli_report *report, const struct rcp_fault *fault);
/* A log line; control bytes in it are made harmless. */
void cli_report_log(struct cli_report *report, const char *line);

/* Bytes of the other side's standard error: at once while it may be a question, later in whole
 * lines. */
void cli_report_remote(struct cli_report *report, const char *bytes, size_t len);
/* What is left of a line without newline. */
void cli_report_remote_end(struct cli_report *report);

/* About ten times a second. Draws nothing before there is a transport: ssh may be asking. */
void cli_report_progress(struct cli_report *report, const struct rcp_progress *progress,
			 double rate);
/* The last line of progress, where there was any; name of the only file or NULL. */
void cli_report_end(struct cli_report *report, const struct rcp_summary *summary, const char *name);

/* Each kind of warning once, with the first file's name and how many more there are. */
void cli_report_warnings(struct cli_report *report, const struct cli_faults *faults);
/* After several failures: the first of them once more, and how many there were. */
void cli_report_failures(struct cli_report *report, const struct cli_faults *faults);
/* How to go on after an interruption or a lost link. */
void cli_report_resume(struct cli_report *report, const struct rcp_summary *summary);
/* --stats */
void cli_report_stats(struct cli_report *report, const struct rcp_summary *summary,
		      const struct cli_faults *faults);

#endif
