/*
 * Progress as text: pure functions of a snapshot, a rate and a width. No terminal, no clock; the
 * locale's wcwidth says how wide a name is.
 */
#ifndef RCP_CLI_PROGRESS_H
#define RCP_CLI_PROGRESS_H

#include "rcp/rcp.h"

#include <stddef.h>

/* The rate now: a mean that forgets over a few seconds. Zeroed = nothing seen. */
struct cli_meter {
	bool started;
	uint64_t at_ns, bytes;
	double rate; /* bytes a second; 0 until two snapshots were seen */
	unsigned samples;
};

/* Bytes there at the first snapshot (resumed ones) are no rate. */
void cli_meter_feed(struct cli_meter *meter, const struct rcp_progress *progress);

enum { CLI_LINE_MAX = 4096 }; /* bytes that any line below needs at most, with its NUL */

/*
 * name, %, bytes, rate, time left, transport in exactly `width` columns (at least 8, at most 512),
 * without newline. Columns at the right go first where it is narrow. Returns buf (CLI_LINE_MAX).
 */
char *cli_progress_bar(const struct rcp_progress *progress, double rate, unsigned width, char *buf);

/* The same at the end: the mean rate and the time it took. name: the one file's, or NULL. */
char *cli_progress_end(const struct rcp_summary *summary, const char *name, unsigned width,
		       char *buf);

/* A line for logs, as wide as it is. Returns buf (CLI_LINE_MAX). */
char *cli_progress_plain(const struct rcp_progress *progress, double rate, char *buf);

/* A name escaped, cut in the middle where it is too wide, padded to exactly `columns`. */
char *cli_name_fit(const char *name, unsigned columns, char *buf, size_t size);

/* "00:07", "1:02:03", "4d05h"; "--:--" for what is not known (negative). */
char *cli_duration(double seconds, char *buf, size_t size);

#endif
