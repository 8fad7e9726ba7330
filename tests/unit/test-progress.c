/* cli: the progress line as a function of a snapshot, a rate and a width. */
#include "cli/progress.h"

#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include <cmocka.h>

/* Columns by the C library's own decoder: not the code under test. -1 where it isn't text. */
static int columns_of(const char *line)
{
	wchar_t wide[8192];
	size_t n = mbstowcs(wide, line, 8192);

	return n == (size_t)-1 ? -1 : wcswidth(wide, n);
}

static const struct rcp_progress half = {
	.bytes = 512 << 20,
	.total_bytes = 1024 << 20,
	.files = 0,
	.total_files = 1,
	.total_final = true,
	.elapsed_ns = 5000000000,
	.name = "big.img",
	.transport = "rdma",
};

static void a_line_as_scp_has_it(void **state)
{
	char buf[CLI_LINE_MAX];

	(void)state;
	assert_string_equal(
		cli_progress_bar(&half, 100 << 20, 80, buf),
		"big.img                           50%  512.0 MiB  100.0 MiB/s    00:05 ETA rdma ");
}

static void several_files_are_counted(void **state)
{
	struct rcp_progress p = half;
	char buf[CLI_LINE_MAX];

	(void)state;
	p.files = 3;
	p.total_files = 12;
	assert_non_null(strstr(cli_progress_bar(&p, 1, 80, buf), "3/12 big.img "));
	p.total_final = false;
	cli_progress_bar(&p, 100 << 20, 80, buf);
	assert_non_null(strstr(buf, "3/12+ big.img "));
	assert_non_null(strstr(buf, " --% "));
	assert_non_null(strstr(buf, " --:-- ETA"));
}

static void narrow_windows_lose_columns_from_the_right(void **state)
{
	char buf[CLI_LINE_MAX];

	(void)state;
	cli_progress_bar(&half, 100 << 20, 60, buf);
	assert_non_null(strstr(buf, "ETA"));
	cli_progress_bar(&half, 100 << 20, 45, buf);
	assert_null(strstr(buf, "rdma"));
	assert_null(strstr(buf, "ETA"));
	assert_non_null(strstr(buf, "MiB/s"));
	assert_string_equal(cli_progress_bar(&half, 100 << 20, 20, buf), "big.img          50%");
	assert_string_equal(cli_progress_bar(&half, 100 << 20, 8, buf), "big  50%");
}

static void exactly_as_wide_as_told(void **state)
{
	static const char *const names[] = {
		"",
		"a",
		"\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e\xe6\x97"
		"\xa5",
		"e\xcc\x81\xcc\x81\xcc\x81 combining e\xcc\x81\xcc\x81\xcc\x81",
		"bad \xff\xfe\x80 bytes and \x1b[2J and \n and \\",
		("\xe2\x80\xae"
		 "reversed, which may not reach the terminal"),
		"a/very/long/path/that/goes/on/and/on/and/on/and/on/and/on/and/on/until/it/"
		"ends.bin",
		"\xf0\x9f\x98\x80\xf0\x9f\x98\x80\xf0\x9f\x98\x80\xf0\x9f\x98\x80\xf0\x9f\x98\x80",
	};
	struct rcp_progress p = half;
	char buf[CLI_LINE_MAX];

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		for (unsigned width = 8; width <= 200; width++) {
			p.name = names[i];
			assert_int_equal(columns_of(cli_progress_bar(&p, 3e9, width, buf)), width);
			assert_null(strstr(buf, "\xe2\x80\xae"));
			assert_null(strchr(buf, '\n'));
			assert_null(strchr(buf, '\033'));
		}
}

/* A name of marks without width may not push the padding or the columns out of the buffer. */
static void marks_without_width_stay_in_the_buffer(void **state)
{
	char name[4096], buf[CLI_LINE_MAX + 16];
	struct rcp_progress p = half;

	(void)state;
	for (size_t i = 0; i + 2 < sizeof(name); i += 2)
		memcpy(name + i, "\xcc\x81", 3);
	p.name = name;
	memset(buf, 0x7e, sizeof(buf));
	for (unsigned width = 8; width <= 600; width += 37) {
		cli_progress_bar(&p, 1e6, width, buf);
		assert_int_equal(columns_of(buf), width > 512 ? 512 : width);
	}
	for (size_t i = CLI_LINE_MAX; i < sizeof(buf); i++)
		assert_int_equal(buf[i], 0x7e);
}

static void long_names_keep_both_ends(void **state)
{
	char buf[256];

	(void)state;
	assert_string_equal(cli_name_fit("directory/subdirectory/file.bin", 15, buf, sizeof(buf)),
			    "direct...le.bin");
	assert_string_equal(cli_name_fit("directory", 4, buf, sizeof(buf)), "dire");
	assert_string_equal(cli_name_fit("dir", 6, buf, sizeof(buf)), "dir   ");
	/* a wide character that doesn't fit leaves a blank, not half of itself */
	assert_string_equal(cli_name_fit("\xe6\x97\xa5\xe6\x9c\xac", 3, buf, sizeof(buf)),
			    "\xe6\x97\xa5 ");
}

static void a_plain_locale_gets_escapes(void **state)
{
	char buf[256];

	(void)state;
	setlocale(LC_CTYPE, "C");
	cli_name_fit("\xc3\xa9", 10, buf, sizeof(buf));
	setlocale(LC_CTYPE, "C.UTF-8");
	assert_string_equal(buf, "\\xc3\\xa9  ");
}

static void hundred_percent_only_at_the_end(void **state)
{
	struct rcp_progress p = half;
	char buf[CLI_LINE_MAX];

	(void)state;
	p.total_bytes = UINT64_C(1) << 60;
	p.bytes = p.total_bytes - 1;
	assert_non_null(strstr(cli_progress_bar(&p, 1, 80, buf), " 99% "));
	p.bytes = p.total_bytes;
	assert_non_null(strstr(cli_progress_bar(&p, 1, 80, buf), " 100% "));
	p.bytes = p.total_bytes = 0; /* an empty file is whole */
	assert_non_null(strstr(cli_progress_bar(&p, 0, 80, buf), " 100% "));
	p.bytes = p.total_bytes = UINT64_MAX;
	assert_int_equal(columns_of(cli_progress_bar(&p, 1e18, 80, buf)), 80);
}

static void durations(void **state)
{
	static const struct {
		double seconds;
		const char *text;
	} cases[] = {{-1, "--:--"},   {0, "00:00"},	 {59.4, "00:59"},   {59.6, "01:00"},
		     {3599, "59:59"}, {3600, "1:00:00"}, {360000, "4d04h"}, {1e30, "--:--"}};
	char buf[32];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_string_equal(cli_duration(cases[i].seconds, buf, sizeof(buf)),
				    cases[i].text);
}

static void feed(struct cli_meter *m, double seconds, double bytes)
{
	struct rcp_progress p = {.elapsed_ns = (uint64_t)(seconds * 1e9), .bytes = (uint64_t)bytes};

	cli_meter_feed(m, &p);
}

static void the_rate_is_smooth_and_forgets(void **state)
{
	struct cli_meter m = {0};

	(void)state;
	feed(&m, 0, 5e9); /* resumed: no rate */
	assert_true(m.rate == 0);
	for (int i = 1; i <= 50; i++)
		feed(&m, i * 0.1, 5e9 + i * 1e7);
	assert_true(m.rate > 0.99e8 && m.rate < 1.01e8);
	double before = m.rate;

	feed(&m, 5.1, 5e9 + 50 * 1e7 + 2e8); /* one burst twenty times as fast */
	assert_true(m.rate > before && m.rate < 2 * before);
	for (int i = 0; i < 200; i++)
		feed(&m, 5.2 + i * 0.1, 5e9 + 50 * 1e7 + 2e8); /* stalled */
	assert_true(m.rate < before / 100);
}

static void odd_clocks_do_no_harm(void **state)
{
	struct cli_meter m = {0};

	(void)state;
	feed(&m, 1, 1000);
	feed(&m, 1, 2000); /* no time passed */
	assert_true(m.rate == 0);
	feed(&m, 2, 2000);
	assert_true(m.rate > 999 && m.rate < 1001);
	feed(&m, 3, 500); /* bytes taken back by a reconnection */
	assert_true(m.rate > 0);
	feed(&m, 4, 1500);
	assert_true(m.rate > 999 && m.rate < 1001);
}

static void the_end_shows_the_mean(void **state)
{
	struct rcp_summary s = {
		.files = 1,
		.bytes = 1 << 30,
		.seconds = 8,
		.bytes_per_second = 128 << 20,
		.transport = "tcp",
	};
	char buf[CLI_LINE_MAX];

	(void)state;
	assert_string_equal(
		cli_progress_end(&s, "big.img", 80, buf),
		"big.img                          100%    1.0 GiB  128.0 MiB/s    00:08     tcp  ");
	s.files = 7;
	assert_non_null(strstr(cli_progress_end(&s, NULL, 80, buf), "7 files "));
	s.exit_code = RCP_EXIT_PARTIAL;
	assert_null(strstr(cli_progress_end(&s, NULL, 80, buf), "100%"));
}

static void a_plain_line_for_logs(void **state)
{
	struct rcp_progress p = half;
	char buf[CLI_LINE_MAX];

	(void)state;
	p.name = "x\ny";
	assert_string_equal(
		cli_progress_plain(&p, 100 << 20, buf),
		"50%, 512.0 MiB of 1.0 GiB, 0 of 1 files, 100.0 MiB/s, 00:05 left, rdma, x\\ny");
	p.total_final = false;
	p.name = NULL;
	p.transport = NULL;
	assert_string_equal(
		cli_progress_plain(&p, 0, buf),
		"--%, 512.0 MiB of 1.0 GiB+, 0 of 1+ files, 0 B/s, --:-- left, connecting");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_line_as_scp_has_it),
		cmocka_unit_test(several_files_are_counted),
		cmocka_unit_test(narrow_windows_lose_columns_from_the_right),
		cmocka_unit_test(exactly_as_wide_as_told),
		cmocka_unit_test(marks_without_width_stay_in_the_buffer),
		cmocka_unit_test(long_names_keep_both_ends),
		cmocka_unit_test(a_plain_locale_gets_escapes),
		cmocka_unit_test(hundred_percent_only_at_the_end),
		cmocka_unit_test(durations),
		cmocka_unit_test(the_rate_is_smooth_and_forgets),
		cmocka_unit_test(odd_clocks_do_no_harm),
		cmocka_unit_test(the_end_shows_the_mean),
		cmocka_unit_test(a_plain_line_for_logs),
	};

	if (!setlocale(LC_CTYPE, "C.UTF-8")) {
		fprintf(stderr, "skipped: no C.UTF-8 locale\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
