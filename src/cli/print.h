/* Text put together in memory (struct rcp_wr), then written to a descriptor at once. */
#ifndef RCP_CLI_PRINT_H
#define RCP_CLI_PRINT_H

#include "base/bytes.h"

/* Appends; on ENOMEM or overrun w->bad. */
void cli_print(struct rcp_wr *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Text from elsewhere that is meant to be read as it is (banners, log lines): newlines, tabs and
 * printable UTF-8 pass, carriage returns before a newline go, other control bytes become \xHH. */
void cli_print_tame(struct rcp_wr *w, const char *bytes, size_t len);

/* All of it, waiting where the descriptor is non-blocking. 0 or errno. */
int cli_write_all(int fd, const void *data, size_t len);

#endif
