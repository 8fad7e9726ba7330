/*
 * Where a copy's argument is: scp's rules. Pure, any thread.
 *
 *   path  ./a:b  /a:b  d/a:b  :a            local (a slash before the colon, or a leading colon)
 *   [user@]host:path  user@[::1]:path       by ssh; "host:" is the home directory (path "")
 *   rcp://[key@]host[:port]/module[/path]   by a daemon
 */
#ifndef RCP_BOOT_WHERE_H
#define RCP_BOOT_WHERE_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

#define RCP_DAEMON_PORT 7471

enum rcp_where_kind { RCP_WHERE_LOCAL, RCP_WHERE_SSH, RCP_WHERE_DAEMON };

/* Zeroed = empty. All strings are owned. */
struct rcp_where {
	enum rcp_where_kind kind;
	char *user;    /* NULL: none given; daemon: the key's name */
	char *host;    /* without brackets; NULL for local */
	char *module;  /* daemon only */
	char *path;    /* never NULL; as given, may be "" */
	uint16_t port; /* daemon only */
};

/* RCP_E_USAGE with the reason. */
int rcp_where_parse(const char *text, struct rcp_err *err, struct rcp_where *out);
/* "rcp://[key@]host[:port][/]": a daemon whose modules are to be listed (module and path ""). */
int rcp_where_parse_listing(const char *text, struct rcp_err *err, struct rcp_where *out);
void rcp_where_free(struct rcp_where *w);

#endif
