/*
 * argv turned into struct cli_args by the option table. Prints nothing, opens nothing but what
 * --files-from names. Main thread only (getopt_long keeps state).
 */
#ifndef RCP_CLI_OPTIONS_H
#define RCP_CLI_OPTIONS_H

#include "base/err.h"
#include "cli/table.h"

/*
 * 0, or RCP_E_USAGE with *err naming the option; out must be freed in both cases. Options may stand
 * between operands; "--" ends them. argv is permuted and borrowed until cli_args_free.
 */
int cli_args_parse(const struct cli_option *table, int argc, char **argv, struct rcp_err *err,
		   struct cli_args *out);
void cli_args_free(struct cli_args *args);

/* Appends a borrowed string and keeps the list NULL-ended. 0 or an rcp_code. */
int cli_list_add(struct cli_list *list, const char *item, struct rcp_err *err);
void cli_list_free(struct cli_list *list);

/* The nearest ready long name, or NULL when nothing is near. name_len excludes any "=value". */
const char *cli_option_nearest(const struct cli_option *table, const char *name, size_t name_len);

#endif
