/* rcp(1). The only place with main; the process ends by returning from here. */
#include "cli/help.h"
#include "cli/options.h"
#include "cli/run.h"
#include "cli/signals.h"

#include <fcntl.h>
#include <locale.h>
#include <unistd.h>

/*
 * A descriptor 0, 1 or 2 that is closed would be taken by the next file opened, and messages would
 * be written into it. Standard output is opened for reading, so that writing to it is still an
 * error.
 */
static void hold_standard_descriptors(void)
{
	for (int fd = 0; fd <= 2; fd++)
		if (fcntl(fd, F_GETFD) == -1 &&
		    open("/dev/null", fd == STDOUT_FILENO ? O_RDONLY : O_RDWR) == -1)
			return;
}

static int print(void (*make)(struct rcp_wr *w), struct cli_report *report)
{
	struct rcp_wr w = {.max = 65536};

	make(&w);
	int code = cli_run_print(report, &w);

	rcp_wr_free(&w);
	return code;
}

static void make_help(struct rcp_wr *w)
{
	cli_help(cli_options, w);
}

static int act(struct cli_args *args, struct cli_report *report)
{
	switch (args->action) {
	case CLI_HELP:
		return print(make_help, report);
	case CLI_VERSION:
		return print(cli_version, report);
	case CLI_SERVER:
		return cli_run_server(args, report);
	case CLI_COPY:
		return cli_run_copy(args, report);
	case CLI_MODULES:
		return cli_run_list(args, report);
	case CLI_DAEMON:
		return cli_run_daemon(args, report);
	case CLI_KEYGEN:
		return cli_run_keygen(args, report);
	}
	return RCP_EXIT_USAGE;
}

int main(int argc, char **argv)
{
	struct cli_args args;
	struct cli_report report;
	struct rcp_err err = {0};

	hold_standard_descriptors();
	/* Only how wide and printable a character is: numbers stay as JSON and scripts want them.
	 */
	setlocale(LC_CTYPE, "");
	cli_signals_ignore_pipe();
	int code = cli_args_parse(cli_options, argc, argv, &err, &args);

	cli_report_init(&report, STDERR_FILENO, &args);
	if (code)
		cli_report_err(&report, &err);
	else
		code = act(&args, &report);
	cli_args_free(&args);
	return code;
}
