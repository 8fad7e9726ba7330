/*
 * What a responder gives up before it serves: a daemon's child root, other users' groups, capabilities, new privileges, being
 * looked at by a debugger and all directories but the module's; behind ssh what its command line or its one target
 * makes superfluous. Before any thread exists: all of it but the user is each thread's own.
 */
#ifndef RCP_BOOT_JAIL_H
#define RCP_BOOT_JAIL_H

#include "boot/config.h"

/*
 * RCP_E_CONNECT: something could not be given up, or the module's directory not be entered by its user:
 * then nothing may be served. remark: what the kernel can't do and nothing depends on; "" otherwise.
 */
int rcp_jail_enter(const struct rcp_module *module, struct rcp_err *err, char *remark, size_t size);

/*
 * The same for `rcp --server --restrict=dir`, which stays the user that it is. RCP_E_CONNECT with dir as the object: then
 * nothing may be served.
 */
int rcp_jail_restrict(const char *dir, bool writable, struct rcp_err *err, char *remark, size_t size);

/*
 * A sink behind ssh: nothing is written but beneath root, and no program is run. What may be read stays, for the
 * sake of libraries that look up users. False: the kernel can't (no Landlock, or one that forbids what a sink does).
 */
bool rcp_jail_sink(int root);

/* This process holds keys that outlive it: no core dumps, no debugger. */
void rcp_jail_hide(void);

/* Landlock alone: what is beneath root (and written only where writable), and what the libraries need.
 * 0; 1: the kernel has none. */
int rcp_jail_landlock(int root, bool writable, struct rcp_err *err);

#endif
