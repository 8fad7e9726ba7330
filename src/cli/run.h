/* One copy from understood arguments to the exit status: the watch that feeds report and JSON. */
#ifndef RCP_CLI_RUN_H
#define RCP_CLI_RUN_H

#include "base/bytes.h"
#include "cli/report.h"
#include "cli/table.h"

/* Returns the exit status. */
int cli_run_copy(struct cli_args *args, struct cli_report *report);
int cli_run_server(struct cli_args *args, struct cli_report *report);
int cli_run_daemon(struct cli_args *args, struct cli_report *report);
int cli_run_keygen(struct cli_args *args, struct cli_report *report);
int cli_run_list(struct cli_args *args, struct cli_report *report);

/* Text to standard output: 0, or RCP_EXIT_IO after saying on standard error what went wrong. */
int cli_run_print(struct cli_report *report, const struct rcp_wr *text);

#endif
