#include "cli/json.h"

#include "base/text.h"
#include "cli/print.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

const char *cli_status_word(int exit_code)
{
	switch (exit_code) {
	case RCP_EXIT_OK:
		return "ok";
	case RCP_EXIT_PARTIAL:
		return "partial";
	case RCP_EXIT_USAGE:
		return "usage";
	case RCP_EXIT_CONNECT:
		return "connect";
	case RCP_EXIT_INTEGRITY:
		return "integrity";
	case RCP_EXIT_IO:
		return "io";
	case RCP_EXIT_LINK:
		return "link";
	case RCP_EXIT_INTERRUPTED:
		return "interrupted";
	case RCP_EXIT_TERMINATED:
		return "terminated";
	default:
		return "failed";
	}
}

/* Every member but an object's first starts with a comma: key() knows by what is before it. */
static void key(struct rcp_wr *w, const char *name)
{
	bool first = w->len && w->data[w->len - 1] == '{';

	cli_print(w, "%s\"%s\":", first ? "" : ",", name);
}

static void value_text(struct rcp_wr *w, const char *text)
{
	if (!text) {
		cli_print(w, "null");
		return;
	}
	size_t len = strlen(text), at;

	rcp_wr_u8(w, '"');
	at = w->len;
	char *room = (char *)rcp_wr_room(w, 6 * len + 1);

	if (room) {
		rcp_json_escape(room, 6 * len + 1, text, len);
		w->len = at + strlen(room);
	}
	rcp_wr_u8(w, '"');
}

static void put_text(struct rcp_wr *w, const char *name, const char *text)
{
	key(w, name);
	value_text(w, text);
}

static void put_count(struct rcp_wr *w, const char *name, uint64_t n)
{
	key(w, name);
	cli_print(w, "%" PRIu64, n);
}

static void put_flag(struct rcp_wr *w, const char *name, bool yes)
{
	key(w, name);
	cli_print(w, "%s", yes ? "true" : "false");
}

/* Three decimals, by integers: printf's point depends on the locale. */
static void put_real(struct rcp_wr *w, const char *name, double v)
{
	uint64_t thousandths = 0;

	if (isfinite(v) && v > 0)
		thousandths =
			v < 1e16 ? (uint64_t)(v * 1000 + 0.5) : UINT64_C(10000000000000000000);
	key(w, name);
	cli_print(w, "%" PRIu64 ".%03u", thousandths / 1000, (unsigned)(thousandths % 1000));
}

static void open_event(struct rcp_wr *w, const char *event)
{
	cli_print(w, "{");
	put_text(w, "event", event);
}

static void close_event(struct rcp_wr *w)
{
	cli_print(w, "}\n");
}

void cli_json_start(struct rcp_wr *w, const struct rcp_options *options)
{
	open_event(w, "start");
	put_text(w, "version", rcp_version());
	key(w, "sources");
	cli_print(w, "[");
	for (size_t i = 0; options->sources && options->sources[i]; i++) {
		cli_print(w, "%s", i ? "," : "");
		value_text(w, options->sources[i]);
	}
	cli_print(w, "]");
	put_text(w, "target", options->target);
	put_flag(w, "dry_run", options->dry_run);
	close_event(w);
}

void cli_json_transport(struct rcp_wr *w, const struct rcp_transport_info *info, const char *host,
			const char *remote_software)
{
	open_event(w, "transport");
	put_text(w, "transport", info->transport);
	put_text(w, "fabric", info->fabric);
	put_text(w, "detail", info->detail);
	put_text(w, "fallback_reason", info->fallback_reason);
	put_text(w, "encrypted", info->encrypted);
	put_flag(w, "sealed", info->sealed);
	put_text(w, "host", host);
	put_text(w, "remote_software", remote_software);
	close_event(w);
}

void cli_json_file(struct rcp_wr *w, const char *name, uint64_t bytes, const char *status)
{
	open_event(w, "file");
	put_text(w, "name", name);
	put_count(w, "bytes", bytes);
	put_text(w, "status", status);
	close_event(w);
}

void cli_json_module(struct rcp_wr *w, const char *name, bool writable, const char *comment)
{
	open_event(w, "module");
	put_text(w, "name", name);
	put_flag(w, "writable", writable);
	put_text(w, "comment", comment);
	close_event(w);
}

static void put_fault(struct rcp_wr *w, const struct rcp_fault *f)
{
	put_count(w, "code", (uint64_t)f->code);
	put_text(w, "object", f->object);
	put_text(w, "call", f->call);
	put_count(w, "errno", (uint64_t)f->sys_errno);
	put_text(w, "reason", f->reason);
	put_text(w, "fix", f->fix);
}

void cli_json_error(struct rcp_wr *w, const struct rcp_fault *fault)
{
	open_event(w, "error");
	put_text(w, "severity", fault->warning ? "warning" : "error");
	put_fault(w, fault);
	close_event(w);
}

void cli_json_progress(struct rcp_wr *w, const struct rcp_progress *p, double rate)
{
	open_event(w, "progress");
	put_count(w, "bytes", p->bytes);
	put_count(w, "total_bytes", p->total_bytes);
	put_count(w, "files", p->files);
	put_count(w, "total_files", p->total_files);
	put_flag(w, "total_final", p->total_final);
	put_real(w, "seconds", (double)p->elapsed_ns / 1e9);
	put_real(w, "bytes_per_second", rate);
	put_text(w, "name", p->name);
	put_count(w, "name_bytes", p->name_bytes);
	put_count(w, "name_total", p->name_total);
	put_text(w, "transport", p->transport);
	close_event(w);
}

static void put_crc32(struct rcp_wr *w, const struct rcp_summary *s)
{
	char digits[9];

	snprintf(digits, sizeof(digits), "%08" PRIx32, s->crc32);
	put_text(w, "crc32", s->crc32_known ? digits : NULL);
}

static void put_errors(struct rcp_wr *w, const struct cli_faults *faults)
{
	key(w, "errors");
	cli_print(w, "[");
	for (size_t i = 0; i < faults->count; i++) {
		cli_print(w, "%s{", i ? "," : "");
		put_fault(w, &faults->kept[i]);
		cli_print(w, "}");
	}
	cli_print(w, "]");
	put_count(w, "errors_omitted", faults->omitted);
	put_count(w, "warnings", faults->warnings);
}

void cli_json_summary(struct rcp_wr *w, const struct rcp_summary *s,
		      const struct cli_faults *faults)
{
	open_event(w, "summary");
	put_text(w, "status", cli_status_word(s->exit_code));
	put_count(w, "exit_code", (uint64_t)s->exit_code);
	put_count(w, "files", s->files);
	put_count(w, "bytes", s->bytes);
	put_count(w, "skipped", s->skipped);
	put_count(w, "failed", s->failed);
	put_real(w, "seconds", s->seconds);
	put_real(w, "bytes_per_second", s->bytes_per_second);
	put_text(w, "transport", s->transport);
	put_text(w, "fabric", s->fabric);
	put_text(w, "fallback_reason", s->fallback_reason);
	put_text(w, "encrypted", s->encrypted);
	put_flag(w, "sealed", s->sealed);
	put_count(w, "sealed_bytes", s->sealed_bytes);
	put_count(w, "zero_copy_bytes", s->zero_copy_bytes);
	put_count(w, "staged_bytes", s->staged_bytes);
	put_count(w, "resumed_bytes", s->resumed_bytes);
	put_count(w, "resent_chunks", s->resent_chunks);
	put_count(w, "retries", s->retries);
	put_crc32(w, s);
	put_text(w, "bottleneck", s->bottleneck);
	put_flag(w, "resumable", s->resumable);
	put_errors(w, faults);
	close_event(w);
}
