/*
 * What is kept for the end: errors, which the summary lists again, and warnings, of which a tree can have one for
 * each file and which are told once for each kind. Bounded, whatever goes wrong.
 */
#ifndef RCP_CLI_FAULTS_H
#define RCP_CLI_FAULTS_H

#include "rcp/rcp.h"

#include <stddef.h>

enum { CLI_FAULTS_KEPT = 1000, CLI_WARNINGS_KEPT = 32 };

/* Warnings with the same call, reason and fix. */
struct cli_warning {
	struct rcp_fault first; /* strings owned */
	uint64_t count;
};

/* Zeroed = empty. */
struct cli_faults {
	struct rcp_fault *kept; /* errors, not warnings; strings owned */
	size_t count, room;
	uint64_t omitted;  /* errors that are not in kept */
	uint64_t warnings; /* all of them */
	struct cli_warning kinds[CLI_WARNINGS_KEPT];
	size_t kind_count;
};

/* False: a warning that is counted, but of more kinds than are kept. */
bool cli_faults_add(struct cli_faults *faults, const struct rcp_fault *fault);
void cli_faults_free(struct cli_faults *faults);

/* "object: call: reason (fix)", all of it safe for a terminal, cut to size. Returns buf. */
char *cli_fault_format(const struct rcp_fault *fault, char *buf, size_t size);

#endif
