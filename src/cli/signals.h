/*
 * SIGINT, SIGTERM and SIGHUP end the copy in an orderly way while one is armed; a second SIGINT, or a
 * second later any of them, ends the process at once. A signal that was ignored at start
 * (nohup, a script's background job) stays so.
 */
#ifndef RCP_CLI_SIGNALS_H
#define RCP_CLI_SIGNALS_H

#include "rcp/rcp.h"

/* A closed pipe is an error of write, not a death. */
void cli_signals_ignore_pipe(void);

/* Has a signal told the armed copy to end? */
bool cli_signals_asked(void);

void cli_signals_arm(struct rcp_copy *copy);
/* Back to what was before. After it no handler touches the copy. May be said again. */
void cli_signals_disarm(void);

#endif
