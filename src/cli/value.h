/* One option's argument checked and put where its row says. Pure. */
#ifndef RCP_CLI_VALUE_H
#define RCP_CLI_VALUE_H

#include "base/err.h"
#include "cli/table.h"

/* shown: the option as messages name it. argument is NULL for options that take none. 0, or
 * RCP_E_USAGE with what was given, what is accepted and in which unit. */
int cli_value_set(const struct cli_option *o, const char *shown, const char *argument,
		  struct cli_args *args, struct rcp_err *err);

#endif
