#include "cli/report.h"

#include "base/clock.h"
#include "base/text.h"
#include "cli/print.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { PLAIN_SECONDS = 5, LISTED_AGAIN = 10, TEXT_MOST = 65536 };

static enum cli_progress settle(enum cli_progress wanted, int fd, const struct cli_args *args)
{
	bool terminal = isatty(fd);

	if (args->quiet || args->action != CLI_COPY || args->copy.dry_run)
		return CLI_PROGRESS_NONE;
	if (wanted == CLI_PROGRESS_AUTO)
		return terminal && !args->json ? CLI_PROGRESS_BAR : CLI_PROGRESS_NONE;
	if (wanted == CLI_PROGRESS_BAR && !terminal)
		return CLI_PROGRESS_PLAIN; /* a log is no place for carriage returns */
	return wanted;
}

void cli_report_init(struct cli_report *report, int fd, const struct cli_args *args)
{
	*report = (struct cli_report){.fd = fd, .quiet = args->quiet};
	report->who = args->action == CLI_SERVER   ? "rcp --server"
		      : args->action == CLI_DAEMON ? "rcp --daemon"
						   : "rcp";
	report->progress = settle(args->progress, fd, args);
}

static void put(const struct cli_report *report, const struct rcp_wr *w)
{
	if (w->len)
		cli_write_all(report->fd, w->data, w->len);
}

/* Asked each time, so that a resized window is seen at the next redraw. */
static unsigned window_width(int fd)
{
	struct winsize size;

	if (ioctl(fd, TIOCGWINSZ, &size) || size.ws_col == 0)
		return 80;
	return size.ws_col;
}

/* A line to write a message in: the progress line is erased, an open line ended. Blanks do it on
 * every terminal, where an escape sequence wouldn't. */
static void fresh_line(struct cli_report *report, struct rcp_wr *w)
{
	if (report->bar_drawn)
		cli_print(w, "\r%*s\r", (int)window_width(report->fd) - 1, "");
	else if (report->line_open)
		cli_print(w, "\n");
	report->bar_drawn = report->line_open = false;
}

void cli_report_line(struct cli_report *report, const char *fmt, ...)
{
	struct rcp_wr w = {.max = TEXT_MOST};
	char text[8192];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fresh_line(report, &w);
	cli_print(&w, "%s: %s\n", report->who, text);
	put(report, &w);
	rcp_wr_free(&w);
}

void cli_report_fault(struct cli_report *report, const struct rcp_fault *fault)
{
	char text[8000];

	if (fault->warning && report->quiet)
		return;
	cli_fault_format(fault, text, sizeof(text));
	cli_report_line(report, "%s%s", fault->warning ? "warning: " : "", text);
}

void cli_report_err(struct cli_report *report, const struct rcp_err *err)
{
	struct rcp_fault fault = {
		.code = (int)err->code,
		.sys_errno = err->sys_errno,
		.call = err->call,
		.object = err->object,
		.reason = err->text,
		.fix = err->fix,
	};

	cli_report_fault(report, &fault);
}

void cli_report_log(struct cli_report *report, const char *line)
{
	struct rcp_wr w = {.max = TEXT_MOST};

	fresh_line(report, &w);
	cli_print(&w, "%s: ", report->who);
	cli_print_tame(&w, line, strlen(line));
	cli_print(&w, "\n");
	put(report, &w);
	rcp_wr_free(&w);
}

/* The first `len` bytes held, made harmless: rcp's name is not put before another program's words.
 */
static void remote_show(struct cli_report *report, size_t len)
{
	struct rcp_wr w = {.max = TEXT_MOST};

	if (!len)
		return;
	if (report->bar_drawn)
		fresh_line(report, &w);
	cli_print_tame(&w, report->remote, len);
	put(report, &w);
	rcp_wr_free(&w);
	report->line_open = report->remote[len - 1] != '\n';
	report->remote_len -= len;
	memmove(report->remote, report->remote + len, report->remote_len);
}

/* Bytes held without a character that has not come whole, or a carriage return before its newline.
 */
static size_t whole_characters(const char *bytes, size_t len)
{
	for (size_t back = 1; back <= 3 && back <= len; back++) {
		unsigned char c = (unsigned char)bytes[len - back];
		size_t wants = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 || c == '\r' ? 2 : 1;

		if (c >= 0xc0 || c < 0x80)
			return wants > back ? len - back : len;
	}
	return len;
}

/* How many of the held bytes can be shown now. */
static size_t remote_ready(const struct cli_report *report)
{
	const char *last = memrchr(report->remote, '\n', report->remote_len);

	if (!report->connected)
		return whole_characters(report->remote, report->remote_len);
	if (last)
		return (size_t)(last - report->remote) + 1;
	return report->remote_len == sizeof(report->remote) ? report->remote_len : 0;
}

void cli_report_remote(struct cli_report *report, const char *bytes, size_t len)
{
	while (len) {
		size_t room = sizeof(report->remote) - report->remote_len;
		size_t n = len < room ? len : room;

		memcpy(report->remote + report->remote_len, bytes, n);
		report->remote_len += n;
		bytes += n;
		len -= n;
		remote_show(report, remote_ready(report));
	}
}

void cli_report_remote_end(struct cli_report *report)
{
	struct rcp_wr w = {.max = 8};

	remote_show(report, report->remote_len);
	if (report->line_open)
		cli_print(&w, "\n");
	report->line_open = false;
	put(report, &w);
	rcp_wr_free(&w);
}

/* As scp: a job in the background draws nothing on the terminal it no longer has. */
static bool foreground(int fd)
{
	pid_t group = tcgetpgrp(fd);

	return group == -1 || group == getpgrp();
}

static void draw_bar(struct cli_report *report, const struct rcp_progress *p, double rate)
{
	struct rcp_wr w = {.max = TEXT_MOST};
	char line[CLI_LINE_MAX];

	if (!foreground(report->fd))
		return;
	/* one column stays free: a full line would wrap on some terminals */
	cli_progress_bar(p, rate, window_width(report->fd) - 1, line);
	if (!report->bar_drawn)
		fresh_line(report, &w);
	cli_print(&w, "\r%s", line);
	put(report, &w);
	rcp_wr_free(&w);
	report->bar_drawn = true;
}

void cli_report_progress(struct cli_report *report, const struct rcp_progress *p, double rate)
{
	char line[CLI_LINE_MAX];

	if (!p->transport)
		return;
	report->connected = true;
	if (report->progress == CLI_PROGRESS_BAR)
		draw_bar(report, p, rate);
	if (report->progress != CLI_PROGRESS_PLAIN)
		return;
	if (p->elapsed_ns - report->plain_ns < PLAIN_SECONDS * RCP_SEC)
		return;
	report->plain_ns = p->elapsed_ns;
	cli_report_line(report, "%s", cli_progress_plain(p, rate, line));
}

/* "7 files, 1.0 GiB in 00:08, 128.0 MiB/s, tcp" */
static void end_plain(struct cli_report *report, const struct rcp_summary *s)
{
	char size[24], rate[24], time[24];

	cli_report_line(
		report, "%" PRIu64 " %s, %s in %s, %s/s, %s", s->files,
		s->files == 1 ? "file" : "files", rcp_size_format(s->bytes, size, sizeof(size)),
		cli_duration(s->seconds, time, sizeof(time)),
		rcp_size_format((uint64_t)s->bytes_per_second, rate, sizeof(rate)), s->transport);
}

static void end_bar(struct cli_report *report, const struct rcp_summary *s, const char *name)
{
	struct rcp_wr w = {.max = TEXT_MOST};
	char line[CLI_LINE_MAX];

	cli_progress_end(s, name, window_width(report->fd) - 1, line);
	cli_print(&w, "%s\n", line);
	put(report, &w);
	rcp_wr_free(&w);
}

void cli_report_end(struct cli_report *report, const struct rcp_summary *s, const char *name)
{
	struct rcp_wr w = {.max = TEXT_MOST};

	cli_report_remote_end(report);
	fresh_line(report, &w);
	put(report, &w);
	rcp_wr_free(&w);
	if (report->progress == CLI_PROGRESS_PLAIN && s->transport)
		end_plain(report, s);
	if (report->progress == CLI_PROGRESS_BAR && s->transport && foreground(report->fd))
		end_bar(report, s, name);
}

void cli_report_warnings(struct cli_report *report, const struct cli_faults *faults)
{
	for (size_t i = 0; i < faults->kind_count; i++) {
		struct rcp_fault f = faults->kinds[i].first;
		uint64_t more = faults->kinds[i].count - 1;
		char object[5000];

		snprintf(object, sizeof(object), "%.4200s and %" PRIu64 " more", f.object, more);
		f.object = more ? object : f.object;
		cli_report_fault(report, &f);
	}
}

void cli_report_failures(struct cli_report *report, const struct cli_faults *faults)
{
	uint64_t all = faults->count + faults->omitted;
	char text[400];

	if (all < 2)
		return;
	cli_report_line(report, "%" PRIu64 " errors:", all);
	for (size_t i = 0; i < faults->count && i < LISTED_AGAIN; i++) {
		cli_fault_format(&faults->kept[i], text, sizeof(text));
		cli_report_line(report, "  %s", text);
	}
	if (all > LISTED_AGAIN)
		cli_report_line(report, "  and %" PRIu64 " more", all - LISTED_AGAIN);
}

void cli_report_resume(struct cli_report *report, const struct rcp_summary *s)
{
	bool stopped = s->exit_code == RCP_EXIT_INTERRUPTED || s->exit_code == RCP_EXIT_TERMINATED;

	if (s->resumable && s->exit_code != RCP_EXIT_OK)
		cli_report_line(report, "%srun the same command again to go on with what was kept",
				stopped ? "interrupted; " : "");
	else if (stopped)
		cli_report_line(report, "interrupted");
}

static void stats_bytes(struct rcp_wr *w, const char *what, uint64_t bytes)
{
	char size[24];

	cli_print(w, "%-14s %s (%" PRIu64 " bytes)\n", what,
		  rcp_size_format(bytes, size, sizeof(size)), bytes);
}

static void stats_way(struct rcp_wr *w, const struct rcp_summary *s)
{
	char reason[1300];

	cli_print(w, "%-14s %s%s%s%s%s%s\n", "transport", s->transport ? s->transport : "none",
		  s->fabric ? " (" : "", s->fabric ? s->fabric : "", s->fabric ? ")" : "",
		  s->encrypted ? (s->sealed ? ", sealed with " : ", inside ") : "",
		  s->encrypted ? s->encrypted : "");
	if (s->fallback_reason)
		cli_print(w, "%-14s %s\n", "because",
			  rcp_name_escape(reason, sizeof(reason), s->fallback_reason,
					  strlen(s->fallback_reason)));
	if (s->bottleneck)
		cli_print(w, "%-14s %s\n", "slowest", s->bottleneck);
}

void cli_report_stats(struct cli_report *report, const struct rcp_summary *s,
		      const struct cli_faults *faults)
{
	struct rcp_wr w = {.max = TEXT_MOST};
	char size[24];

	fresh_line(report, &w);
	cli_print(&w, "%-14s %" PRIu64 " copied, %" PRIu64 " skipped, %" PRIu64 " failed\n",
		  "files", s->files, s->skipped, s->failed);
	stats_bytes(&w, "bytes", s->bytes);
	cli_print(&w, "%-14s %.3f s, %s/s\n", "time", s->seconds,
		  rcp_size_format((uint64_t)s->bytes_per_second, size, sizeof(size)));
	stats_way(&w, s);
	stats_bytes(&w, "zero copy", s->zero_copy_bytes);
	stats_bytes(&w, "staged", s->staged_bytes);
	stats_bytes(&w, "sealed", s->sealed_bytes);
	stats_bytes(&w, "resumed", s->resumed_bytes);
	cli_print(&w,
		  "%-14s %" PRIu64 " chunks sent again, %u reconnections, %" PRIu64 " warnings\n",
		  "trouble", s->resent_chunks, s->retries, faults->warnings);
	if (s->crc32_known)
		cli_print(&w, "%-14s %08" PRIx32 "\n", "crc32", s->crc32);
	put(report, &w);
	rcp_wr_free(&w);
}
