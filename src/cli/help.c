#include "cli/help.h"

#include "base/crc.h"
#include "cli/print.h"

#include <stdio.h>
#include <string.h>

enum { TEXT_COLUMN = 28, LAST_COLUMN = 79 };

static const char intro[] =
	"Usage: rcp [options] source... target\n"
	"\n"
	"Copies files as scp does: logs in with ssh, then moves the data over RDMA where\n"
	"both ends have it, over TCP where not, through ssh where TCP is blocked. Every\n"
	"chunk is checked; a rerun of the same command goes on where the last one ended.\n"
	"\n"
	"A source or target is FILE, HOST:FILE, USER@HOST:FILE or [ADDRESS]:FILE.\n"
	"./a:b is local. HOST: is the home directory there.\n";

static const char outro[] = "\n"
			    "Sizes take K, M, G and T, powers of 1024. Exit status: 0 all done,\n"
			    "1 some files failed, 2 usage, 3 no connection, 4 integrity, 5 I/O,\n"
			    "6 link lost, 130 or 143 interrupted. See rcp(1).\n";

/* "  -P, --port=PORT"; returns columns. */
static size_t put_option(const struct cli_option *o, struct rcp_wr *w)
{
	size_t before = w->len;

	if (o->letter)
		cli_print(w, "  -%c", o->letter);
	else
		cli_print(w, "    ");
	if (o->name)
		cli_print(w, "%s--%s", o->letter ? ", " : "  ", o->name);
	if (o->argument)
		cli_print(w, "%s", o->name ? "=" : " ");
	if (o->argument && !o->words)
		cli_print(w, "%s", o->argument);
	for (int i = 0; o->words && o->words[i]; i++)
		cli_print(w, "%s%s", i ? "|" : "", o->words[i]);
	return w->len - before;
}

/* Words wrapped between two columns; `at` is the column now. */
static void put_text(const char *text, size_t at, struct rcp_wr *w)
{
	if (at + 2 > TEXT_COLUMN) {
		cli_print(w, "\n");
		at = 0;
	}
	cli_print(w, "%*s", TEXT_COLUMN - (int)at, "");
	at = TEXT_COLUMN;
	while (*text) {
		size_t len = strcspn(text, " ");

		if (at > TEXT_COLUMN && at + 1 + len > LAST_COLUMN) {
			cli_print(w, "\n%*s", TEXT_COLUMN, "");
			at = TEXT_COLUMN;
		}
		if (at > TEXT_COLUMN) {
			cli_print(w, " ");
			at++;
		}
		cli_print(w, "%.*s", (int)len, text);
		at += len;
		text += len + (text[len] == ' ');
	}
	cli_print(w, "\n");
}

void cli_help(const struct cli_option *table, struct rcp_wr *w)
{
	cli_print(w, "%s", intro);
	for (int g = 0; g < CLI_GROUPS; g++) {
		cli_print(w, "\n%s:\n", cli_group_titles[g]);
		for (const struct cli_option *o = table; !cli_option_end(o); o++)
			if (o->ready && (int)o->group == g)
				put_text(o->help, put_option(o, w), w);
	}
	cli_print(w, "%s", outro);
}

void cli_version(struct rcp_wr *w)
{
	cli_print(w, "rcp %s\n", rcp_version());
	cli_print(w, "crc: %s\n", rcp_crc32_engine());
	cli_print(w, "rdma: %s\n", RCP_HAVE_RDMA ? "built in" : "not built in");
}
