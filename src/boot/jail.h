/*
 * What a daemon's child gives up before it serves a module: root, other users' groups, new privileges,
 * being looked at by a debugger, all directories but the module's. Before any thread exists.
 */
#ifndef RCP_BOOT_JAIL_H
#define RCP_BOOT_JAIL_H

#include "boot/config.h"

/*
 * RCP_E_CONNECT: something could not be given up, or the module's directory not be entered by its user:
 * then nothing may be served. remark: what the kernel can't do and nothing depends on; "" otherwise.
 */
int rcp_jail_enter(const struct rcp_module *module, struct rcp_err *err, char *remark, size_t size);

/* Landlock alone: what is beneath root (and written only where writable), and what the libraries need.
 * 0; 1: the kernel has none. */
int rcp_jail_landlock(int root, bool writable, struct rcp_err *err);

#endif
