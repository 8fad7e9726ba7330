/*
 * --json: each function appends one object and a newline. Pure: no descriptor, no clock. Numbers
 * are written alike in every locale; any bytes in a name give valid JSON.
 */
#ifndef RCP_CLI_JSON_H
#define RCP_CLI_JSON_H

#include "base/bytes.h"
#include "cli/faults.h"

void cli_json_start(struct rcp_wr *w, const struct rcp_options *options);
/* host, remote_software: as told when the connection came up, or NULL. */
void cli_json_transport(struct rcp_wr *w, const struct rcp_transport_info *info, const char *host,
			const char *remote_software);
void cli_json_file(struct rcp_wr *w, const char *name, uint64_t bytes, const char *status);
void cli_json_module(struct rcp_wr *w, const char *name, bool writable, const char *comment);
void cli_json_error(struct rcp_wr *w, const struct rcp_fault *fault);
/* rate: bytes a second now. */
void cli_json_progress(struct rcp_wr *w, const struct rcp_progress *progress, double rate);
void cli_json_summary(struct rcp_wr *w, const struct rcp_summary *summary,
		      const struct cli_faults *faults);

/* "ok", "partial", "usage", ...: the word of an exit status. */
const char *cli_status_word(int exit_code);

#endif
