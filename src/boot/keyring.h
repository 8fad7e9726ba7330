/*
 * Key files: who may talk to a daemon, and as whom. Lines of a name, blanks and 64 hexadecimal digits;
 * empty lines and those that begin with # count for nothing. A file that others may read is refused.
 * Any thread; reading blocks.
 */
#ifndef RCP_BOOT_KEYRING_H
#define RCP_BOOT_KEYRING_H

#include "boot/secret.h"

#define RCP_KEY_NAME_MAX 64
#define RCP_KEY_LINE	 (RCP_KEY_NAME_MAX + 1 + 2 * RCP_SECRET + 2) /* with newline and NUL */

struct rcp_psk {
	char name[RCP_KEY_NAME_MAX + 1];
	uint8_t key[RCP_SECRET];
};

/* Zeroed = empty. */
struct rcp_keyring {
	struct rcp_psk *keys;
	char **origins; /* "file:line" of each */
	size_t count;
};

/* NULL, or why this is no name for a key (or a module): 1 to 64 of A-Z a-z 0-9 . _ -, no dot in front. */
const char *rcp_key_name_refuse(const char *name);

/* path: a file, or a directory of them (names with a dot in front or ~ at the end, as editors leave, are left out). Adds to
 * ring, files in the order of their names;
 * RCP_E_USAGE with file, line and fix. Free in both cases. */
int rcp_keyring_read(struct rcp_keyring *ring, const char *path, struct rcp_err *err);
/* The same of a text; shown: the file's name. Wipes nothing of it. */
int rcp_keyring_parse(struct rcp_keyring *ring, const char *text, size_t len, const char *shown,
		      struct rcp_err *err);
/* NULL: there is none. name NULL: the first. */
const struct rcp_psk *rcp_keyring_find(const struct rcp_keyring *ring, const char *name);
/* Wipes it. */
void rcp_keyring_free(struct rcp_keyring *ring);

/* A new key, as its file's line. */
int rcp_key_make(const char *name, struct rcp_err *err, char line[RCP_KEY_LINE]);
/* A new file, mode 0600; one that is there is never replaced. */
int rcp_key_write(const char *path, const char *line, struct rcp_err *err);

#endif
