/* Parse: getopt_long over the table, then one setter a kind. */
#include "cli/options.h"

#include "base/text.h"
#include "cli/value.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONG_BASE = 0x1000 }; /* getopt's values of long names: above every letter */

void cli_list_free(struct cli_list *list)
{
	free(list->items);
	*list = (struct cli_list){0};
}

int cli_list_add(struct cli_list *list, const char *item, struct rcp_err *err)
{
	if (list->count + 2 > list->room) {
		size_t room = list->room ? 2 * list->room : 16;
		const char **items = reallocarray(list->items, room, sizeof(*items));

		if (!items)
			return rcp_err_set(err, RCP_E_IO, ENOMEM, "malloc", item, NULL);
		list->items = items;
		list->room = room;
	}
	list->items[list->count++] = item;
	list->items[list->count] = NULL;
	return 0;
}

void cli_args_free(struct cli_args *args)
{
	cli_list_free(&args->operands);
	cli_list_free(&args->excludes);
	cli_list_free(&args->ssh_args);
	*args = (struct cli_args){0};
}

/* Levenshtein's distance, in one row of memory. */
static size_t distance(const char *a, size_t a_len, const char *b)
{
	size_t row[64], b_len = strlen(b);

	if (b_len >= 64 || a_len >= 64)
		return 64;
	for (size_t j = 0; j <= b_len; j++)
		row[j] = j;
	for (size_t i = 1; i <= a_len; i++) {
		size_t diagonal = row[0];

		row[0] = i;
		for (size_t j = 1; j <= b_len; j++) {
			size_t change = diagonal + (a[i - 1] != b[j - 1]);
			size_t least = row[j] < row[j - 1] ? row[j] + 1 : row[j - 1] + 1;

			diagonal = row[j];
			row[j] = change < least ? change : least;
		}
	}
	return row[b_len];
}

const char *cli_option_nearest(const struct cli_option *table, const char *name, size_t name_len)
{
	const char *best = NULL;
	size_t best_distance = 1 + (name_len > 4 ? 2 : 1);

	for (const struct cli_option *o = table; !cli_option_end(o); o++) {
		if (!o->name || !o->ready)
			continue;
		size_t d = distance(name, name_len, o->name);

		if (d < best_distance) {
			best_distance = d;
			best = o->name;
		}
	}
	return best;
}

/* Tables in getopt's form. */
struct getopt_form {
	char letters[3 * 128];
	struct option longs[128];
};

static void getopt_form_fill(const struct cli_option *table, struct getopt_form *form)
{
	char *s = form->letters;
	struct option *l = form->longs;

	*s++ = ':'; /* a missing argument is told from an unknown option */
	for (const struct cli_option *o = table; !cli_option_end(o); o++) {
		if (o->letter) {
			*s++ = o->letter;
			if (o->argument)
				*s++ = ':';
		}
		if (o->name && l < form->longs + 127)
			*l++ = (struct option){o->name,
					       o->argument ? required_argument : no_argument, NULL,
					       LONG_BASE + (int)(o - table)};
	}
	*s = 0;
	*l = (struct option){0};
}

/* The row of a value that getopt gave; it only gives what the table has. */
static const struct cli_option *option_of(const struct cli_option *table, int value)
{
	const struct cli_option *o = table;

	if (value >= LONG_BASE)
		return table + (value - LONG_BASE);
	while (!cli_option_end(o) && o->letter != (char)value)
		o++;
	return o;
}

/* "--name" or "-x": how messages name an option. */
static const char *option_shown(const struct cli_option *o, bool as_long, char *buf, size_t size)
{
	if (as_long || !o->letter)
		snprintf(buf, size, "--%s", o->name);
	else
		snprintf(buf, size, "-%c", o->letter);
	return buf;
}

/* Letters of scp that rcp has not, and what to do instead. */
static const char *scp_letter_instead(int letter)
{
	switch (letter) {
	case 'B':
		return "say -o BatchMode=yes";
	case 'C':
		return "rcp does not compress";
	case 'c':
		return "say -o Ciphers=LIST for the login; --encrypt is for the data";
	case 'O':
	case 's':
		return "rcp speaks its own protocol, not scp's or sftp's; leave it out";
	case 'T':
		return "rcp always checks names; leave it out";
	case 'h':
		return "say --help";
	default:
		return "see rcp --help";
	}
}

static int unknown_long(const struct cli_option *table, const char *word, struct rcp_err *err)
{
	const char *name = word + 2;
	size_t len = strcspn(name, "=");
	char shown[256];
	const char *near = cli_option_nearest(table, name, len);

	snprintf(shown, sizeof(shown), "--%.*s", (int)(len > 200 ? 200 : len), name);
	for (const struct cli_option *o = table; !cli_option_end(o); o++)
		if (o->ready && o->name && !strncmp(o->name, name, len)) {
			/* getopt refused it although names begin so: more than one does */
			rcp_err_set(err, RCP_E_USAGE, 0, NULL, shown,
				    "more than one option begins so");
			rcp_err_fix(err, "write it out, such as --%s", o->name);
			return RCP_E_USAGE;
		}
	rcp_err_set(err, RCP_E_USAGE, 0, NULL, shown, "unknown option");
	if (near)
		rcp_err_fix(err, "did you mean --%s?", near);
	rcp_err_fix(err, "see rcp --help");
	return RCP_E_USAGE;
}

/* getopt said '?': an unknown letter, an unknown or ambiguous name, or an argument too many. */
static int unknown_option(const struct cli_option *table, char *const *argv, struct rcp_err *err)
{
	char shown[64];

	if (optopt >= LONG_BASE) {
		const struct cli_option *o = option_of(table, optopt);

		rcp_err_set(err, RCP_E_USAGE, 0, NULL, option_shown(o, true, shown, sizeof(shown)),
			    "takes no argument");
		return RCP_E_USAGE;
	}
	if (!optopt)
		return unknown_long(table, argv[optind - 1], err);
	snprintf(shown, sizeof(shown), "-%c", optopt);
	rcp_err_set(err, RCP_E_USAGE, 0, NULL, shown, "unknown option");
	rcp_err_fix(err, "%s", scp_letter_instead(optopt));
	return RCP_E_USAGE;
}

static int missing_argument(const struct cli_option *table, struct rcp_err *err)
{
	const struct cli_option *o = option_of(table, optopt);
	char shown[64];

	rcp_err_set(err, RCP_E_USAGE, 0, NULL,
		    option_shown(o, optopt >= LONG_BASE, shown, sizeof(shown)),
		    "needs an argument: %s", o->argument);
	return RCP_E_USAGE;
}

/* What ssh is told too, as a list: never one string for a shell. */
static int pass_to_ssh(const struct cli_option *o, const char *argument, struct cli_args *args,
		       struct rcp_err *err)
{
	static const char dashed[][3] = {"-p", "-i", "-F", "-o", "-J", "-4", "-6", "-q"};

	for (size_t i = 0; i < sizeof(dashed) / sizeof(dashed[0]); i++) {
		if (dashed[i][1] != o->ssh)
			continue;
		int code = cli_list_add(&args->ssh_args, dashed[i], err);

		return code || !argument ? code : cli_list_add(&args->ssh_args, argument, err);
	}
	return 0;
}

static int one_option(const struct cli_option *o, bool as_long, struct cli_args *args,
		      struct rcp_err *err)
{
	char shown[64];
	int code;

	option_shown(o, as_long, shown, sizeof(shown));
	if (!o->ready)
		return rcp_err_set(err, RCP_E_USAGE, 0, NULL, shown,
				   "not available in this version");
	code = cli_value_set(o, shown, optarg, args, err);
	if (!code && o->ssh)
		code = pass_to_ssh(o, optarg, args, err);
	return code;
}

static int parse_options(const struct cli_option *table, int argc, char **argv,
			 struct cli_args *args, struct rcp_err *err)
{
	struct getopt_form form;
	int code = 0, got;

	getopt_form_fill(table, &form);
	opterr = 0;
	optind = 0; /* glibc: forget the scan before */
	while (!code && (got = getopt_long(argc, argv, form.letters, form.longs, NULL)) != -1) {
		if (got == '?')
			code = unknown_option(table, argv, err);
		else if (got == ':')
			code = missing_argument(table, err);
		else
			code = one_option(option_of(table, got), got >= LONG_BASE, args, err);
	}
	return code;
}

/* "rcp://host", "rcp://host/": a daemon, and no module of it. */
static bool is_listing(const struct cli_args *args)
{
	const char *text = args->operands.count == 1 ? args->operands.items[0] : "";
	const char *slash = strncmp(text, "rcp://", 6) ? NULL : strchrnul(text + 6, '/');

	return slash && (!slash[0] || !slash[1]) && !args->files_from;
}

/* --keygen takes a name and perhaps a file, --server and --daemon nothing. */
static int other_operands(const struct cli_args *args, struct rcp_err *err)
{
	size_t n = args->operands.count;

	if ((args->action == CLI_SERVER || args->action == CLI_DAEMON) && n)
		return rcp_err_set(err, RCP_E_USAGE, 0, NULL, args->operands.items[0],
				   "%s takes no source and no target",
				   args->action == CLI_SERVER ? "--server" : "--daemon");
	if (args->action == CLI_KEYGEN && (n < 1 || n > 2)) {
		rcp_err_set(err, RCP_E_USAGE, 0, NULL, "--keygen", "needs the new key's name, and may have a file");
		rcp_err_fix(err, "rcp --keygen NAME [FILE]");
	}
	return (int)err->code;
}

/* The last operand is the target, the others are sources. */
static int take_operands(int argc, char **argv, struct cli_args *args, struct rcp_err *err)
{
	int code = 0;

	for (int i = optind; !code && i < argc; i++)
		code = cli_list_add(&args->operands, argv[i], err);
	if (!code)
		code = other_operands(args, err);
	if (code || args->action != CLI_COPY)
		return code;
	if (is_listing(args)) {
		args->action = CLI_MODULES;
		args->copy.list = true;
		args->copy.sources = args->operands.items;
		return 0;
	}
	if (args->operands.count < 2) {
		rcp_err_set(err, RCP_E_USAGE, 0, NULL,
			    args->operands.count ? args->operands.items[0] : NULL,
			    args->operands.count ? "a source but no target"
						 : "no source and no target");
		rcp_err_fix(err, "rcp [options] source... target; see rcp --help");
		return RCP_E_USAGE;
	}
	args->copy.target = args->operands.items[--args->operands.count];
	args->operands.items[args->operands.count] = NULL;
	args->copy.sources = args->operands.items;
	return 0;
}

static int misplaced(const char *option, const char *what, const char *fix, struct rcp_err *err)
{
	rcp_err_set(err, RCP_E_USAGE, 0, NULL, option, "%s", what);
	rcp_err_fix(err, "%s", fix);
	return RCP_E_USAGE;
}

static int settle(struct cli_args *args, struct rcp_err *err)
{
	if (args->copy.archive)
		args->copy.recursive = args->copy.times = true;
	args->copy.connect_oob = args->connect == 1;
	args->copy.excludes = args->excludes.items;
	args->copy.ssh_args = args->ssh_args.items;
	if (args->config && args->action != CLI_DAEMON)
		return misplaced("--config", "says what rcp --daemon serves", "add --daemon, or leave it out", err);
	if (args->restrict_to && args->action != CLI_SERVER)
		return misplaced("--restrict", "says what rcp --server may be asked for",
				 "it belongs into a command of authorized_keys: rcp --server --restrict=DIR", err);
	if (args->restrict_to && args->restrict_to[0] != '/')
		return rcp_err_set(err, RCP_E_USAGE, 0, NULL, "--restrict", "needs a path that begins with /, not '%.200s'",
				   args->restrict_to);
	if (args->nul_names && !args->files_from)
		return misplaced("-0", "says how --files-from reads its names", "add --files-from=FILE", err);
	if (args->files_from && args->action == CLI_COPY && args->operands.count != 1)
		return rcp_err_set(
			err, RCP_E_USAGE, 0, NULL, "--files-from",
			"needs one source, the directory that the names are below; got %zu",
			args->operands.count);
	return 0;
}

int cli_args_parse(const struct cli_option *table, int argc, char **argv, struct rcp_err *err,
		   struct cli_args *out)
{
	int code;

	*out = (struct cli_args){0};
	rcp_options_init(&out->copy);
	code = parse_options(table, argc, argv, out, err);
	if (!code)
		code = take_operands(argc, argv, out, err);
	if (!code)
		code = settle(out, err);
	return code;
}
