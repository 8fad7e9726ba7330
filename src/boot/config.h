/*
 * The daemon's configuration, rcpd.conf(5): settings, then sections of modules. Parsing is pure; load
 * also reads the key files and asks for users and groups, and blocks.
 */
#ifndef RCP_BOOT_CONFIG_H
#define RCP_BOOT_CONFIG_H

#include "boot/keyring.h"

#include <sys/types.h>

#define RCP_CONFIG_MAX (1 << 20) /* bytes of a file */

struct rcp_module {
	char *name;
	unsigned line; /* where its section begins */
	char *path;    /* absolute */
	char *comment; /* or NULL */
	bool writable;
	bool encrypt; /* nothing but sealed data */
	char **keys;  /* names, NULL-ended; "*": all of the daemon's */
	char *user, *group;
	uint32_t max_connections; /* 0: no limit but the daemon's */
	uint64_t bwlimit;	  /* bytes a second of one connection; 0: none */
	/* by load */
	uid_t uid;
	gid_t gid;
};

/* Zeroed = empty. */
struct rcp_config {
	char **listen; /* addresses, NULL-ended; NULL: all */
	uint32_t port;
	char *keys; /* file or directory */
	uint32_t max_connections, handshake_seconds, idle_seconds, max_seconds; /* max: 0: none */
	bool syslog;
	struct rcp_module *modules;
	size_t module_count;
	struct rcp_keyring ring; /* by load */
};

/* shown: the file's name. RCP_E_USAGE: object is "file:line", text what is wrong, fix what to do. */
int rcp_config_parse(const char *text, size_t len, const char *shown, struct rcp_err *err,
		     struct rcp_config *out);
int rcp_config_load(const char *path, struct rcp_err *err, struct rcp_config *out);
void rcp_config_free(struct rcp_config *config);

/* The module of this name that this key may use; NULL otherwise. */
const struct rcp_module *rcp_config_module(const struct rcp_config *config, const char *name,
					   const char *key);
bool rcp_module_allows(const struct rcp_module *module, const char *key);

#endif
