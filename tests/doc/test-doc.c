/*
 * What is written agrees with what is built: man/rcp.1 and --help have exactly the ready options of
 * the table, the man page names every key of --json and every exit status.
 */
#include "cli/help.h"
#include "cli/json.h"
#include "cli/table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char *man; /* the page's source, whole */

static char *read_file(const char *path)
{
	FILE *f = fopen(path, "r");
	char *text = calloc(1, 1 << 20);

	if (!f || !text) {
		perror(path);
		exit(2);
	}
	if (fread(text, 1, (1 << 20) - 1, f) == 0 || !feof(f)) {
		fprintf(stderr, "%s: not read whole\n", path);
		exit(2);
	}
	fclose(f);
	return text;
}

/* One ".It Fl ..." line as people read it: "-P PORT , --port=PORT". */
static void item_text(const char *line, size_t len, char *out, size_t size)
{
	char copy[256], *save = NULL;
	bool glue = false;
	size_t at = 0;

	assert_true(len < sizeof(copy));
	memcpy(copy, line, len);
	copy[len] = 0;
	out[0] = 0;
	for (char *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
		bool flag = !strcmp(w, "Fl");

		if (!strcmp(w, "Ns")) {
			glue = true;
			continue;
		}
		if (flag)
			w = strtok_r(NULL, " ", &save);
		else if (!strcmp(w, ".It") || !strcmp(w, "Ar") || !strcmp(w, "Cm"))
			continue;
		assert_non_null(w);
		at += (size_t)snprintf(out + at, size - at, "%s%s%s", at && !glue ? " " : "",
				       flag ? "-" : "", w);
		assert_true(at < size);
		glue = false;
	}
}

/* The same from the table. */
static void option_text(const struct cli_option *o, char *out, size_t size)
{
	char argument[128] = "";

	if (o->words)
		for (int i = 0; o->words[i]; i++) {
			strcat(argument, i ? " | " : "");
			strcat(argument, o->words[i]);
		}
	else if (o->argument)
		strcpy(argument, o->argument);
	out[0] = 0;
	if (o->letter)
		snprintf(out, size, "-%c%s%s%s", o->letter, argument[0] ? " " : "", argument,
			 o->name ? " , " : "");
	if (o->name)
		snprintf(out + strlen(out), size - strlen(out), "--%s%s%s", o->name,
			 argument[0] ? "=" : "", argument);
}

static unsigned count_in_table(const char *text)
{
	char own[256];
	unsigned n = 0;

	for (const struct cli_option *o = cli_options; !cli_option_end(o); o++) {
		option_text(o, own, sizeof(own));
		n += o->ready && !strcmp(own, text);
	}
	return n;
}

static void man_page_has_exactly_the_options(void **state)
{
	char text[256], seen[64][256];
	unsigned items = 0, ready = 0;

	(void)state;
	for (const char *at = man; (at = strstr(at, "\n.It Fl ")); at++) {
		const char *line = at + 1;

		item_text(line, strcspn(line, "\n"), text, sizeof(text));
		if (count_in_table(text) != 1)
			fail_msg("man page: \"%s\" is not in the option table", text);
		for (unsigned i = 0; i < items; i++)
			assert_string_not_equal(seen[i], text);
		assert_true(items < 64);
		strcpy(seen[items++], text);
	}
	for (const struct cli_option *o = cli_options; !cli_option_end(o); o++) {
		unsigned found = 0;

		option_text(o, text, sizeof(text));
		for (unsigned i = 0; i < items; i++)
			found += !strcmp(seen[i], text);
		if (found != o->ready)
			fail_msg("man page: \"%s\" found %u times, ready %d", text, found,
				 o->ready);
		ready += o->ready;
	}
	assert_int_equal(items, ready);
	assert_true(items > 30);
}

/* Every name that the page uses in its text exists too: an example may not lie. */
static void man_page_names_no_other_option(void **state)
{
	(void)state;
	for (const char *at = man; (at = strstr(at, "Fl -")); at++) {
		char name[64];
		bool known = false;

		assert_int_equal(sscanf(at, "Fl -%63[a-z0-9-]", name), 1);
		for (const struct cli_option *o = cli_options; !cli_option_end(o); o++)
			known |= o->ready && o->name && !strcmp(o->name, name);
		if (!known)
			fail_msg("man page: --%s is no option", name);
	}
	for (const char *at = man; (at = strstr(at, " --")); at += 3) {
		char name[64];
		bool known = false;

		if (sscanf(at, " --%63[a-z0-9-]", name) != 1)
			continue;
		for (const struct cli_option *o = cli_options; !cli_option_end(o); o++)
			known |= o->ready && o->name && !strcmp(o->name, name);
		if (!known)
			fail_msg("man page's examples: --%s is no option", name);
	}
}

/* "  -P, --port=PORT", "  -i FILE", "      --json" */
static void help_text(const struct cli_option *o, char *out, size_t size)
{
	char argument[128] = "";

	if (o->words)
		for (int i = 0; o->words[i]; i++) {
			strcat(argument, i ? "|" : "");
			strcat(argument, o->words[i]);
		}
	else if (o->argument)
		strcpy(argument, o->argument);
	if (o->letter && o->name)
		snprintf(out, size, "\n  -%c, --%s%s%s", o->letter, o->name, argument[0] ? "=" : "",
			 argument);
	else if (o->letter)
		snprintf(out, size, "\n  -%c%s%s", o->letter, argument[0] ? " " : "", argument);
	else
		snprintf(out, size, "\n      --%s%s%s", o->name, argument[0] ? "=" : "", argument);
}

static void help_has_exactly_the_ready_options(void **state)
{
	struct rcp_wr w = {.max = 1 << 20};
	unsigned lines = 0, ready = 0;
	char text[256];

	(void)state;
	cli_help(cli_options, &w);
	rcp_wr_u8(&w, 0);
	const char *help = (const char *)w.data;

	for (const struct cli_option *o = cli_options; !cli_option_end(o); o++) {
		help_text(o, text, sizeof(text));
		const char *at = strstr(help, text);

		if ((at && strchr(" \n", at[strlen(text)])) != o->ready)
			fail_msg("help: \"%s\", ready %d", text + 1, o->ready);
		ready += o->ready;
	}
	for (const char *at = help; (at = strchr(at, '\n')); at++)
		lines += !strncmp(at, "\n  -", 4) || !strncmp(at, "\n      --", 9);
	assert_int_equal(lines, ready);
	rcp_wr_free(&w);
}

/* Each "key": of the text is a word of the man page's JSON section. */
static void keys_are_documented(const struct rcp_wr *w, const char *section, const char *end)
{
	const char *text = (const char *)w->data;

	for (const char *at = text; (at = strstr(at, "\":")); at++) {
		const char *start = at;
		char key[64];

		while (start[-1] != '"')
			start--;
		snprintf(key, sizeof(key), "%.*s", (int)(at - start), start);
		const char *found = section;

		while ((found = strstr(found, key)) && found < end &&
		       (!strchr(" ", found[-1]) || !strchr(" \n", found[strlen(key)])))
			found++;
		if (!found || found >= end)
			fail_msg("man page: JSON key %s is not explained", key);
	}
}

static void json_keys_are_documented(void **state)
{
	const char *section = strstr(man, "\n.Sh JSON\n"),
		   *end = strstr(man, "\n.Sh ENVIRONMENT\n");
	const struct rcp_fault f = {.call = "", .object = "", .reason = "", .fix = ""};
	struct cli_faults faults = {0};
	struct rcp_wr w = {.max = 1 << 20};

	(void)state;
	assert_non_null(section);
	assert_non_null(end);
	cli_faults_add(&faults, &f);
	cli_json_start(&w, &(struct rcp_options){.target = ""});
	cli_json_transport(&w, &(struct rcp_transport_info){.transport = "tcp"}, NULL, NULL);
	cli_json_file(&w, "", 0, "");
	cli_json_module(&w, "", true, "");
	cli_json_error(&w, &f);
	cli_json_progress(&w, &(struct rcp_progress){0}, 0);
	cli_json_summary(&w, &(struct rcp_summary){0}, &faults);
	rcp_wr_u8(&w, 0);
	assert_false(w.bad);
	keys_are_documented(&w, section, end);
	rcp_wr_free(&w);
	cli_faults_free(&faults);
}

static void exit_statuses_are_documented(void **state)
{
	static const int all[] = {RCP_EXIT_OK,	    RCP_EXIT_PARTIAL,	  RCP_EXIT_USAGE,
				  RCP_EXIT_CONNECT, RCP_EXIT_INTEGRITY,	  RCP_EXIT_IO,
				  RCP_EXIT_LINK,    RCP_EXIT_INTERRUPTED, RCP_EXIT_TERMINATED};
	const char *section = strstr(man, "\n.Sh EXIT STATUS\n");
	const char *end = section ? strstr(section + 1, "\n.Sh ") : NULL;

	(void)state;
	assert_non_null(end);
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		char item[32];

		snprintf(item, sizeof(item), "\n.It %d\n", all[i]);
		const char *at = strstr(section, item);

		assert_true(at && at < end);
		assert_non_null(strstr(man, cli_status_word(all[i])));
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(man_page_has_exactly_the_options),
		cmocka_unit_test(man_page_names_no_other_option),
		cmocka_unit_test(help_has_exactly_the_ready_options),
		cmocka_unit_test(json_keys_are_documented),
		cmocka_unit_test(exit_statuses_are_documented),
	};

	if (argc != 2) {
		fprintf(stderr, "test-doc: say where rcp.1 is\n");
		return 2;
	}
	man = read_file(argv[1]);
	int failed = cmocka_run_group_tests(tests, NULL, NULL);

	free(man);
	return failed;
}
