/* cli: the option table, parsing, messages about wrong options, --files-from. */
#include "cli/help.h"
#include "cli/names.h"
#include "cli/options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { WORDS_MOST = 24 };

/* A command line in one string, split at blanks; kept until the next. */
static char line_text[4096];
static char *line_words[WORDS_MOST + 1];

static int split(const char *line)
{
	int n = 0;

	snprintf(line_text, sizeof(line_text), "rcp %s", line);
	for (char *w = strtok(line_text, " "); w; w = strtok(NULL, " ")) {
		assert_true(n < WORDS_MOST);
		line_words[n++] = w;
	}
	line_words[n] = NULL;
	return n;
}

static int parse(const char *line, struct rcp_err *err, struct cli_args *args)
{
	*err = (struct rcp_err){0};
	return cli_args_parse(cli_options, split(line), line_words, err, args);
}

static void refused(const char *line, const char *message)
{
	struct cli_args args;
	struct rcp_err err;
	char text[1024];

	assert_int_equal(parse(line, &err, &args), RCP_E_USAGE);
	assert_string_equal(rcp_err_format(&err, text, sizeof(text)), message);
	cli_args_free(&args);
}

static void rows_are_sane(void **state)
{
	(void)state;
	for (const struct cli_option *o = cli_options; !cli_option_end(o); o++) {
		assert_non_null(o->help);
		assert_true(strlen(o->help) > 4);
		for (const struct cli_option *p = cli_options; p < o; p++) {
			assert_false(o->letter && o->letter == p->letter);
			assert_false(o->name && p->name && !strcmp(o->name, p->name));
		}
		bool takes = o->kind != CLI_FLAG && o->kind != CLI_COUNT && o->kind != CLI_VALUE;

		if (o->kind != CLI_SSH_ONLY)
			assert_int_equal(takes, o->argument != NULL);
		assert_int_equal(o->kind == CLI_WORD, o->words != NULL);
		if (o->kind == CLI_INT)
			assert_true(o->max > o->min && o->unit);
	}
}

static void defaults_are_the_librarys(void **state)
{
	struct cli_args args;
	struct rcp_options o;
	struct rcp_err err;

	(void)state;
	rcp_options_init(&o);
	assert_int_equal(parse("a host:b", &err, &args), 0);
	assert_string_equal(args.copy.sources[0], "a");
	assert_null(args.copy.sources[1]);
	assert_string_equal(args.copy.target, "host:b");
	o.sources = args.copy.sources;
	o.target = args.copy.target;
	assert_memory_equal(&o, &args.copy, sizeof(o));
	cli_args_free(&args);
}

static void scp_letters(void **state)
{
	struct cli_args args;
	struct rcp_err err;
	static const char *const ssh[] = {"-p",	 "2222", "-i",	"key", "-F",   "cfg", "-o",
					  "A=b", "-o",	 "C=d", "-J",  "jump", "-4",  "-q"};

	(void)state;
	assert_int_equal(
		parse("-rpP 2222 -i key a -F cfg -oA=b -o C=d b -J jump -4 -q -l 8000 -vvv "
		      "-S /bin/ssh host:",
		      &err, &args),
		0);
	assert_true(args.copy.recursive && args.copy.times && args.quiet);
	assert_false(args.copy.archive);
	assert_int_equal(args.ssh_args.count, sizeof(ssh) / sizeof(ssh[0]));
	for (size_t i = 0; i < args.ssh_args.count; i++)
		assert_string_equal(args.copy.ssh_args[i], ssh[i]);
	assert_null(args.copy.ssh_args[args.ssh_args.count]);
	assert_int_equal(args.copy.family, 4);
	assert_int_equal(args.copy.limit_bytes_per_second, 8000 * 128);
	assert_int_equal(args.copy.verbose, 2);
	assert_string_equal(args.copy.ssh, "/bin/ssh");
	assert_string_equal(args.copy.sources[0], "a");
	assert_string_equal(args.copy.sources[1], "b");
	assert_null(args.copy.sources[2]);
	assert_string_equal(args.copy.target, "host:");
	cli_args_free(&args);
}

static void long_names(void **state)
{
	struct cli_args args;
	struct rcp_err err;

	(void)state;
	assert_int_equal(
		parse("--archive --transport=rdma --device=mlx5_0:1 --gid-index 3 --connect oob "
		      "--tos=96 --sl=4 --pkey=0x7fff --source=direct --chunk-size=4M --slots=64 "
		      "--streams=8 --bwlimit=1.5G --encrypt=always --exclude=*.o --exclude b "
		      "--retries=0 --threads=4 a b",
		      &err, &args),
		0);
	assert_true(args.copy.archive && args.copy.recursive && args.copy.times);
	assert_int_equal(args.copy.transport, RCP_TRANSPORT_RDMA);
	assert_string_equal(args.copy.device, "mlx5_0:1");
	assert_int_equal(args.copy.gid_index, 3);
	assert_true(args.copy.connect_oob);
	assert_int_equal(args.copy.tos, 96);
	assert_int_equal(args.copy.sl, 4);
	assert_int_equal(args.copy.pkey, 0x7fff);
	assert_int_equal(args.copy.source, RCP_SOURCE_DIRECT);
	assert_int_equal(args.copy.chunk_bytes, 4 << 20);
	assert_int_equal(args.copy.slots, 64);
	assert_int_equal(args.copy.streams, 8);
	assert_int_equal(args.copy.limit_bytes_per_second, 1610612736);
	assert_int_equal(args.copy.encryption, RCP_ENCRYPTION_ALWAYS);
	assert_string_equal(args.copy.excludes[0], "*.o");
	assert_string_equal(args.copy.excludes[1], "b");
	assert_null(args.copy.excludes[2]);
	assert_int_equal(args.copy.retries, 0);
	assert_int_equal(args.copy.threads, 4);
	cli_args_free(&args);
}

static void every_word_of_every_choice(void **state)
{
	struct cli_args args;
	struct rcp_err err;
	char line[128];

	(void)state;
	for (const struct cli_option *o = cli_options; !cli_option_end(o); o++)
		for (int i = 0; o->words && o->words[i]; i++) {
			snprintf(line, sizeof(line), "--%s=%s a b", o->name, o->words[i]);
			assert_int_equal(parse(line, &err, &args), 0);
			assert_int_equal(*(int *)(void *)((char *)&args + o->offset), i);
			cli_args_free(&args);
		}
}

static void operands_after_two_dashes(void **state)
{
	struct cli_args args;
	struct rcp_err err;

	(void)state;
	assert_int_equal(parse("-r -- -q --json host:", &err, &args), 0);
	assert_string_equal(args.copy.sources[0], "-q");
	assert_string_equal(args.copy.sources[1], "--json");
	assert_false(args.quiet || args.json);
	cli_args_free(&args);
}

static void actions_need_no_operands(void **state)
{
	static const struct {
		const char *line;
		enum cli_action action;
	} cases[] = {{"--help", CLI_HELP},
		     {"--version", CLI_VERSION},
		     {"--server", CLI_SERVER},
		     {"--daemon --config=f", CLI_DAEMON},
		     {"--keygen name", CLI_KEYGEN},
		     {"--keygen name file", CLI_KEYGEN},
		     {"rcp://host", CLI_MODULES},
		     {"--key=f rcp://k@[::1]:99/", CLI_MODULES}};
	struct cli_args args;
	struct rcp_err err;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(parse(cases[i].line, &err, &args), 0);
		assert_int_equal(args.action, cases[i].action);
		cli_args_free(&args);
	}
}

static void wrong_options_are_named(void **state)
{
	(void)state;
	refused("--transprot=tcp a b", "--transprot: unknown option (did you mean --transport?)");
	refused("--jsom a b", "--jsom: unknown option (did you mean --json?)");
	refused("--zzzzzzzzzzz a b", "--zzzzzzzzzzz: unknown option (see rcp --help)");
	refused("-rz a b", "-z: unknown option (see rcp --help)");
	refused("-B a b", "-B: unknown option (say -o BatchMode=yes)");
	refused("--json=1 a b", "--json: takes no argument");
	refused("a b --slots", "--slots: needs an argument: N");
	refused("a b -P", "-P: needs an argument: PORT");
	refused("--s a b",
		"--s: more than one option begins so (write it out, such as --skip-existing)");
	refused("--\x1b[2J a b", "--\\x1b[2J: unknown option (see rcp --help)");
	refused("--device= a b", "--device: its argument is empty: DEV[:PORT]");
	refused("--config=x a b", "--config: says what rcp --daemon serves (add --daemon, or leave it out)");
	refused("--restrict=/x a b",
		"--restrict: says what rcp --server may be asked for (it belongs into a command of authorized_keys: rcp --server --restrict=DIR)");
	refused("-0 a b", "-0: says how --files-from reads its names (add --files-from=FILE)");
}

static void wrong_values_are_told_with_limits(void **state)
{
	(void)state;
	refused("--slots=0 a b", "--slots: '0' is out of range (1 to 4096 slots)");
	refused("--slots=4097 a b", "--slots: '4097' is out of range (1 to 4096 slots)");
	refused("--slots=many a b", "--slots: 'many' is not a number (1 to 4096 slots)");
	refused("--slots=-1 a b", "--slots: '-1' is not a number (1 to 4096 slots)");
	refused("--slots=1x a b", "--slots: '1x' is not a number (1 to 4096 slots)");
	refused("--slots=fe a b", "--slots: 'fe' is not a number (1 to 4096 slots)");
	refused("--gid-index=256 a b", "--gid-index: '256' is out of range (0 to 255)");
	refused("--sl=16 a b", "--sl: '16' is out of range (0 to 15)");
	refused("--pkey=0x a b", "--pkey: '0x' is not a number (0 to 65535)");
	refused("--pkey=0x10000 a b", "--pkey: '0x10000' is out of range (0 to 65535)");
	refused("-P 99999999999999999999 a b",
		"-P: '99999999999999999999' is out of range (1 to 65535)");
	refused("--chunk-size=3K a b", "--chunk-size: '3K' is out of range (4.0 KiB to 16.0 MiB in "
				       "steps of 4.0 KiB)");
	refused("--chunk-size=5000 a b",
		"--chunk-size: '5000' is between two steps (4.0 KiB to 16.0 "
		"MiB in steps of 4.0 KiB)");
	refused("--chunk-size=big a b", "--chunk-size: 'big' is not a size (4.0 KiB to 16.0 MiB in "
					"steps of 4.0 KiB)");
	refused("--bwlimit=0 a b",
		"--bwlimit: '0' is out of range (bytes a second, such as 500M; at least 1 B)");
	refused("--transport=udp a b",
		"--transport: 'udp' is not one of its words (auto, rdma, tcp, ssh)");
}

static void operands_are_counted(void **state)
{
	(void)state;
	refused("-r", "no source and no target (rcp [options] source... target; see rcp --help)");
	refused("a", "a: a source but no target (rcp [options] source... target; see rcp --help)");
	refused("--server x", "x: --server takes no source and no target");
	refused("--daemon x", "x: --daemon takes no source and no target");
	refused("--keygen", "--keygen: needs the new key's name, and may have a file (rcp --keygen NAME [FILE])");
	refused("--keygen a b c", "--keygen: needs the new key's name, and may have a file (rcp --keygen NAME [FILE])");
	refused("rcp://host/mod", "rcp://host/mod: a source but no target (rcp [options] source... target; see "
				  "rcp --help)");
	refused("-0 a b", "-0: says how --files-from reads its names (add --files-from=FILE)");
	refused("--files-from=l a b c",
		"--files-from: needs one source, the directory that the names "
		"are below; got 2");
}

/* A table of the test's own, so that it holds whatever the real one's rows become. */
static void what_is_not_ready_is_hidden_and_refused(void **state)
{
	static const struct cli_option table[] = {
		{.letter = 'q',
		 .name = "later",
		 .kind = CLI_FLAG,
		 .help = "not yet",
		 .offset = offsetof(struct cli_args, quiet)},
		{.name = "now",
		 .kind = CLI_FLAG,
		 .ready = true,
		 .help = "already there",
		 .offset = offsetof(struct cli_args, json)},
		{0},
	};
	struct rcp_wr w = {.max = 65536};
	struct cli_args args;
	struct rcp_err err = {0};
	char text[256];

	(void)state;
	assert_int_equal(cli_args_parse(table, split("--later a b"), line_words, &err, &args),
			 RCP_E_USAGE);
	assert_string_equal(rcp_err_format(&err, text, sizeof(text)),
			    "--later: not available in this version");
	assert_false(args.quiet);
	cli_args_free(&args);
	assert_null(cli_option_nearest(table, "latr", 4));
	cli_help(table, &w);
	rcp_wr_u8(&w, 0);
	assert_non_null(strstr((char *)w.data, "--now"));
	assert_null(strstr((char *)w.data, "--later"));
	rcp_wr_free(&w);
}

static void help_is_as_wide_as_a_terminal(void **state)
{
	struct rcp_wr w = {.max = 65536};
	size_t column = 0;

	(void)state;
	cli_help(cli_options, &w);
	assert_false(w.bad);
	for (size_t i = 0; i < w.len; i++) {
		column = w.data[i] == '\n' ? 0 : column + 1;
		assert_true(column < 80);
		assert_int_not_equal(w.data[i], '\t');
	}
	assert_int_equal(w.data[w.len - 1], '\n');
	rcp_wr_free(&w);
}

static char list_path[] = "/tmp/rcp-names-XXXXXX";

static int read_names(const void *data, size_t len, bool nul, struct cli_names *names,
		      struct rcp_err *err)
{
	strcpy(list_path, "/tmp/rcp-names-XXXXXX");
	int fd = mkstemp(list_path);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, data, len), (ssize_t)len);
	close(fd);
	*err = (struct rcp_err){0};
	int code = cli_names_read(list_path, nul, err, names);

	unlink(list_path);
	return code;
}

static void names_from_a_file(void **state)
{
	struct cli_names n;
	struct rcp_err err;

	(void)state;
	assert_int_equal(read_names("a b\n\n -x\nlast", 13, false, &n, &err), 0);
	assert_int_equal(n.list.count, 3);
	assert_string_equal(n.list.items[0], "a b");
	assert_string_equal(n.list.items[1], " -x");
	assert_string_equal(n.list.items[2], "last");
	assert_null(n.list.items[3]);
	cli_names_free(&n);
	assert_int_equal(read_names("a\nb\0c\0", 6, true, &n, &err), 0);
	assert_int_equal(n.list.count, 2);
	assert_string_equal(n.list.items[0], "a\nb");
	assert_string_equal(n.list.items[1], "c");
	cli_names_free(&n);
}

static void names_that_cannot_be(void **state)
{
	struct cli_names n;
	struct rcp_err err;
	char text[256];

	(void)state;
	assert_int_equal(read_names("a\0b\n", 4, false, &n, &err), RCP_E_USAGE);
	assert_non_null(strstr(rcp_err_format(&err, text, sizeof(text)), "add -0"));
	assert_int_equal(read_names("\n\n", 2, false, &n, &err), RCP_E_USAGE);
	err = (struct rcp_err){0};
	assert_int_equal(cli_names_read("/nowhere/list", false, &err, &n), RCP_E_USAGE);
	assert_string_equal(rcp_err_format(&err, text, sizeof(text)),
			    "/nowhere/list: open: No such file or directory");
	err = (struct rcp_err){0};
	assert_int_equal(cli_names_read("/", false, &err, &n), RCP_E_IO);
	assert_null(n.text);
}

static void many_names(void **state)
{
	enum { COUNT = 50000 };
	char *text = malloc(COUNT * 8);
	struct cli_names n;
	struct rcp_err err;
	size_t len = 0;

	(void)state;
	for (int i = 0; i < COUNT; i++)
		len += (size_t)sprintf(text + len, "n%05d\n", i);
	assert_int_equal(read_names(text, len, false, &n, &err), 0);
	assert_int_equal(n.list.count, COUNT);
	assert_string_equal(n.list.items[COUNT - 1], "n49999");
	cli_names_free(&n);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rows_are_sane),
		cmocka_unit_test(defaults_are_the_librarys),
		cmocka_unit_test(scp_letters),
		cmocka_unit_test(long_names),
		cmocka_unit_test(every_word_of_every_choice),
		cmocka_unit_test(operands_after_two_dashes),
		cmocka_unit_test(actions_need_no_operands),
		cmocka_unit_test(wrong_options_are_named),
		cmocka_unit_test(wrong_values_are_told_with_limits),
		cmocka_unit_test(operands_are_counted),
		cmocka_unit_test(what_is_not_ready_is_hidden_and_refused),
		cmocka_unit_test(help_is_as_wide_as_a_terminal),
		cmocka_unit_test(names_from_a_file),
		cmocka_unit_test(names_that_cannot_be),
		cmocka_unit_test(many_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
