/* Completion scripts for bash, zsh and fish, written from the option table. libc only. */
#ifndef RCP_CLI_COMPLETE_H
#define RCP_CLI_COMPLETE_H

#include "cli/table.h"

#include <stdio.h>

void cli_complete_bash(const struct cli_option *table, FILE *out);
void cli_complete_zsh(const struct cli_option *table, FILE *out);
void cli_complete_fish(const struct cli_option *table, FILE *out);

#endif
