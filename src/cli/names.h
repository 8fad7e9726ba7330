/* --files-from: a list of names read whole from a file or standard input. Blocks. */
#ifndef RCP_CLI_NAMES_H
#define RCP_CLI_NAMES_H

#include "base/err.h"
#include "cli/table.h"

/* The text and the names that point into it. Zeroed = empty. */
struct cli_names {
	char *text;
	struct cli_list list; /* items is never NULL after a successful read */
};

/*
 * path "-" reads standard input. Names end with NUL (nul) or newline; the last may end with the
 * file. Empty ones are skipped. 0, or an rcp_code with *err.
 */
int cli_names_read(const char *path, bool nul, struct rcp_err *err, struct cli_names *out);
void cli_names_free(struct cli_names *names);

#endif
