/* cli: every line of --json is valid JSON, whatever is in a name, and has the keys it promises. */
#include "cli/json.h"

#include "base/text.h"

#include <ctype.h>
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A strict reader of RFC 8259, written against the text and not against the writer. */
static const char *value(const char *s);

static const char *text(const char *s)
{
	if (*s++ != '"')
		return NULL;
	while (*s != '"') {
		size_t n = rcp_utf8_len((const unsigned char *)s, strlen(s));

		if (n == 0 || (unsigned char)*s < 0x20)
			return NULL;
		if (*s == '\\' && s[1] == 'u') {
			for (int i = 2; i < 6; i++)
				if (!isxdigit((unsigned char)s[i]))
					return NULL;
			n = 6;
		} else if (*s == '\\') {
			if (!s[1] || !strchr("\"\\/bfnrt", s[1]))
				return NULL;
			n = 2;
		}
		s += n;
	}
	return s + 1;
}

static const char *number(const char *s)
{
	s += *s == '-';
	if (!isdigit((unsigned char)*s) || (*s == '0' && isdigit((unsigned char)s[1])))
		return NULL;
	s += strspn(s, "0123456789");
	if (*s == '.') {
		s++;
		if (!isdigit((unsigned char)*s))
			return NULL;
		s += strspn(s, "0123456789");
	}
	return s;
}

static const char *members(const char *s, char end, bool keys)
{
	if (*s == end)
		return s + 1;
	for (;;) {
		if (keys) {
			s = text(s);
			if (!s || *s++ != ':')
				return NULL;
		}
		s = value(s);
		if (!s || (*s != ',' && *s != end))
			return NULL;
		if (*s++ == end)
			return s;
	}
}

static const char *value(const char *s)
{
	static const char *const words[] = {"null", "true", "false"};

	for (size_t i = 0; i < 3; i++)
		if (!strncmp(s, words[i], strlen(words[i])))
			return s + strlen(words[i]);
	switch (*s) {
	case '{':
		return members(s + 1, '}', true);
	case '[':
		return members(s + 1, ']', false);
	case '"':
		return text(s);
	default:
		return number(s);
	}
}

/* One object and one newline; the text stays in w as a string. */
static const char *line_of(struct rcp_wr *w)
{
	assert_false(w->bad);
	rcp_wr_u8(w, 0);
	const char *line = (const char *)w->data;
	const char *end = value(line);

	assert_non_null(end);
	assert_string_equal(end, "\n");
	assert_int_equal(line[0], '{');
	return line;
}

static struct rcp_wr fresh(void)
{
	return (struct rcp_wr){.max = 64 << 20};
}

/* The reader must refuse, or nothing here proves anything. */
static void the_reader_refuses(void **state)
{
	static const char *const bad[] = {
		"{\"a\":1,}", "{\"a\" 1}", "{a:1}",	  "\"\n\"", "\"\\x\"", "01", "1.",
		"\"\xff\"",   "[1 2]",	   "\"\\u12g4\"", "nan",    "",	       "1,5"};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		const char *end = value(bad[i]);

		assert_true(!end || *end);
	}
	assert_non_null(value("{\"a\":[1,-2.5,null,{\"b\":\"\\u00ff\\n\"}],\"c\":{},\"d\":[]}"));
}

static void any_byte_in_a_name(void **state)
{
	char name[4];

	(void)state;
	for (int a = 1; a < 256; a++)
		for (int b = 1; b < 256; b++) {
			struct rcp_wr w = fresh();

			name[0] = (char)a;
			name[1] = (char)b;
			name[2] = '"';
			name[3] = 0;
			cli_json_file(&w, name, 1, "copied");
			line_of(&w);
			rcp_wr_free(&w);
		}
}

static void file_event(void **state)
{
	struct rcp_wr w = fresh();

	(void)state;
	cli_json_file(&w, "d/\xc3\xa9\xff\n\"", UINT64_MAX, "copied");
	assert_string_equal(line_of(&w),
			    "{\"event\":\"file\",\"name\":\"d/\xc3\xa9\\u00ff\\n\\\"\","
			    "\"bytes\":18446744073709551615,\"status\":\"copied\"}\n");
	rcp_wr_free(&w);
}

static void start_event(void **state)
{
	static const char *const sources[] = {"a", "b\"", NULL};
	struct rcp_options o = {.sources = sources, .target = "h:", .dry_run = true};
	struct rcp_wr w = fresh();

	(void)state;
	cli_json_start(&w, &o);
	assert_string_equal(line_of(&w), "{\"event\":\"start\",\"version\":\"" RCP_VERSION "\","
					 "\"sources\":[\"a\",\"b\\\"\"],\"target\":\"h:\","
					 "\"dry_run\":true}\n");
	rcp_wr_free(&w);
}

static void transport_event(void **state)
{
	struct rcp_transport_info i = {
		.transport = "rdma", .fabric = "roce-v2", .detail = "mlx5_0"};
	struct rcp_wr w = fresh();

	(void)state;
	cli_json_transport(&w, &i, "h", NULL);
	assert_string_equal(
		line_of(&w),
		"{\"event\":\"transport\",\"transport\":\"rdma\",\"fabric\":\"roce-v2\","
		"\"detail\":\"mlx5_0\",\"fallback_reason\":null,\"encrypted\":null,\"sealed\":false,"
		"\"host\":\"h\",\"remote_software\":null}\n");
	rcp_wr_free(&w);
}

static const struct rcp_fault disk_full = {
	.code = RCP_EXIT_IO,
	.sys_errno = ENOSPC,
	.call = "pwrite",
	.object = "a",
	.reason = "full",
	.fix = "make room",
};

static void error_event(void **state)
{
	struct rcp_fault f = disk_full;
	struct rcp_wr w = fresh();

	(void)state;
	cli_json_error(&w, &f);
	assert_string_equal(line_of(&w), "{\"event\":\"error\",\"severity\":\"error\",\"code\":5,"
					 "\"object\":\"a\",\"call\":\"pwrite\",\"errno\":28,"
					 "\"reason\":\"full\",\"fix\":\"make room\"}\n");
	rcp_wr_free(&w);
	f.warning = true;
	w = fresh();
	cli_json_error(&w, &f);
	assert_non_null(strstr(line_of(&w), "\"severity\":\"warning\""));
	rcp_wr_free(&w);
}

static void progress_event(void **state)
{
	struct rcp_progress p = {.bytes = 5, .total_bytes = 10, .elapsed_ns = 1500000000};
	struct rcp_wr w = fresh();

	(void)state;
	cli_json_progress(&w, &p, 2.0004);
	assert_string_equal(line_of(&w),
			    "{\"event\":\"progress\",\"bytes\":5,\"total_bytes\":10,\"files\":0,"
			    "\"total_files\":0,\"total_final\":false,\"seconds\":1.500,"
			    "\"bytes_per_second\":2.000,\"name\":null,\"name_bytes\":0,"
			    "\"name_total\":0,\"transport\":null}\n");
	rcp_wr_free(&w);
}

static void summary_has_every_key(void **state)
{
	static const char *const keys[] = {
		"status",	   "exit_code",	   "files",
		"bytes",	   "seconds",	   "bytes_per_second",
		"transport",	   "fabric",	   "fallback_reason",
		"zero_copy_bytes", "staged_bytes", "resumed_bytes",
		"resent_chunks",   "crc32",	   "errors",
		"bottleneck",	   "skipped",	   "failed",
		"retries",	   "encrypted",	   "sealed",	   "sealed_bytes",	   "resumable",
		"errors_omitted",  "warnings",
	};
	struct rcp_summary s = {0};
	struct cli_faults faults = {0};
	struct rcp_wr w = fresh();

	(void)state;
	cli_json_summary(&w, &s, &faults);
	const char *line = line_of(&w);

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		char quoted[64];

		snprintf(quoted, sizeof(quoted), "\"%s\":", keys[i]);
		const char *at = strstr(line, quoted);

		assert_non_null(at);
		assert_null(strstr(at + 1, quoted));
	}
	assert_non_null(strstr(line, "\"crc32\":null"));
	assert_non_null(strstr(line, "\"status\":\"ok\""));
	rcp_wr_free(&w);
}

static void summary_values(void **state)
{
	struct rcp_summary s = {
		.exit_code = RCP_EXIT_INTERRUPTED,
		.seconds = 1.0625,
		.bytes_per_second = NAN,
		.crc32_known = true,
		.crc32 = 0xbeef,
		.bottleneck = "sink",
		.fabric = "iwarp",
	};
	struct cli_faults faults = {0};
	struct rcp_wr w = fresh();

	(void)state;
	cli_json_summary(&w, &s, &faults);
	const char *line = line_of(&w);

	assert_non_null(strstr(line, "\"status\":\"interrupted\",\"exit_code\":130"));
	assert_non_null(strstr(line, "\"crc32\":\"0000beef\""));
	assert_non_null(strstr(line, "\"seconds\":1.063"));
	assert_non_null(strstr(line, "\"bytes_per_second\":0.000"));
	rcp_wr_free(&w);
}

static void numbers_know_no_locale(void **state)
{
	struct rcp_progress p = {.elapsed_ns = 1500000000};
	static const char *const commas[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE"};
	struct rcp_wr w = fresh();

	(void)state;
	for (size_t i = 0; i < 3; i++)
		if (setlocale(LC_NUMERIC, commas[i]))
			break;
	cli_json_progress(&w, &p, INFINITY);
	assert_non_null(strstr(line_of(&w), "\"seconds\":1.500,"));
	setlocale(LC_NUMERIC, "C");
	rcp_wr_free(&w);
}

static void errors_are_bounded(void **state)
{
	struct cli_faults faults = {0};
	struct rcp_summary s = {.exit_code = RCP_EXIT_PARTIAL};
	struct rcp_fault f = disk_full, warning = disk_full;
	struct rcp_wr w = fresh();

	(void)state;
	warning.warning = true;
	for (int i = 0; i < 2500; i++)
		cli_faults_add(&faults, &f);
	for (int i = 0; i < 7; i++)
		cli_faults_add(&faults, &warning);
	assert_int_equal(faults.count, CLI_FAULTS_KEPT);
	assert_int_equal(faults.kind_count, 1);
	assert_int_equal(faults.kinds[0].count, 7);
	for (char of[] = "A"; of[0] < 'A' + 40; of[0]++) {
		warning.reason = of;
		assert_int_equal(cli_faults_add(&faults, &warning), of[0] < 'A' + CLI_WARNINGS_KEPT - 1);
	}
	cli_json_summary(&w, &s, &faults);
	const char *line = line_of(&w);
	size_t shown = 0;

	assert_non_null(strstr(line, "\"errors_omitted\":1500,\"warnings\":47"));
	for (const char *at = line; (at = strstr(at, "\"code\":5")); at++)
		shown++;
	assert_int_equal(shown, CLI_FAULTS_KEPT);
	rcp_wr_free(&w);
	cli_faults_free(&faults);
}

static void faults_for_people(void **state)
{
	struct rcp_fault f = disk_full;
	char buf[256];

	(void)state;
	assert_string_equal(cli_fault_format(&f, buf, sizeof(buf)),
			    "a: pwrite: full: No space left on device (make room)");
	f.reason = "No space left on device";
	f.object = "a\033[2J\n";
	assert_string_equal(cli_fault_format(&f, buf, sizeof(buf)),
			    "a\\x1b[2J\\n: pwrite: No space left on device (make room)");
	f = (struct rcp_fault){.call = "", .object = "", .reason = "why", .fix = "\007"};
	assert_string_equal(cli_fault_format(&f, buf, sizeof(buf)), "why (\\x07)");
	/* cut, never overrun, always ended */
	f = disk_full;
	for (size_t size = 1; size < 60; size++) {
		memset(buf, 0x7e, sizeof(buf));
		cli_fault_format(&f, buf, size);
		assert_true(strlen(buf) < size);
		assert_int_equal(buf[size], 0x7e);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_reader_refuses), cmocka_unit_test(any_byte_in_a_name),
		cmocka_unit_test(file_event),	      cmocka_unit_test(start_event),
		cmocka_unit_test(transport_event),    cmocka_unit_test(error_event),
		cmocka_unit_test(progress_event),     cmocka_unit_test(summary_has_every_key),
		cmocka_unit_test(summary_values),     cmocka_unit_test(numbers_know_no_locale),
		cmocka_unit_test(errors_are_bounded), cmocka_unit_test(faults_for_people),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
