/* --help and --version, written from the option table into memory. */
#ifndef RCP_CLI_HELP_H
#define RCP_CLI_HELP_H

#include "base/bytes.h"
#include "cli/table.h"

/* Only what is ready. 80 columns. */
void cli_help(const struct cli_option *table, struct rcp_wr *w);
void cli_version(struct rcp_wr *w);

#endif
