/* Errors kept for the end: the summary lists them again. Bounded, whatever goes wrong. */
#ifndef RCP_CLI_FAULTS_H
#define RCP_CLI_FAULTS_H

#include "rcp/rcp.h"

#include <stddef.h>

enum { CLI_FAULTS_KEPT = 1000 };

/* Zeroed = empty. */
struct cli_faults {
	struct rcp_fault *kept; /* errors, not warnings; strings owned */
	size_t count, room;
	uint64_t omitted;  /* errors that are not in kept */
	uint64_t warnings; /* counted only */
};

void cli_faults_add(struct cli_faults *faults, const struct rcp_fault *fault);
void cli_faults_free(struct cli_faults *faults);

/* "object: call: reason (fix)", all of it safe for a terminal, cut to size. Returns buf. */
char *cli_fault_format(const struct rcp_fault *fault, char *buf, size_t size);

#endif
