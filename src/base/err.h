/*
 * Errors that travel up: first cause wins, printed once by src/cli, sent once to the peer.
 * Knows nothing of files, links or sessions. Any thread; an rcp_err has one owner at a time.
 */
#ifndef RCP_BASE_ERR_H
#define RCP_BASE_ERR_H

#include <stdbool.h>
#include <stddef.h>

/* The exit statuses of rcp(1) are these codes: there is one table, not two. */
enum rcp_code {
	RCP_OK = 0,
	RCP_E_PARTIAL = 1,   /* some files failed */
	RCP_E_USAGE = 2,     /* the command line asks for what can't be */
	RCP_E_CONNECT = 3,   /* could not connect, authenticate or agree; protocol errors too */
	RCP_E_INTEGRITY = 4, /* a chunk stayed wrong after every re-send, or a check failed */
	RCP_E_IO = 5,        /* a file system or memory said no, at either end */
	RCP_E_LINK = 6,      /* the link or the peer was lost */
	RCP_E_INTERRUPTED = 130,
	RCP_E_TERMINATED = 143,
};

/* Not an error: out of room now, an event tells when to try again. */
#define RCP_AGAIN (-1)

/*
 * Zeroed = no error. Strings are NUL-terminated, cut if too long (object: in the middle), and may
 * hold any bytes of a file's name: escape with rcp_name_escape before showing.
 */
struct rcp_err {
	enum rcp_code code;
	int sys_errno;	   /* errno value or 0 */
	char call[40];	   /* the call that failed: "open", "ibv_reg_mr"; may be empty */
	char object[1024]; /* file, host or device; may be empty */
	char text[320];	   /* reason in words; empty = strerror(sys_errno) */
	char fix[320];	   /* what the user can do; may be empty */
};

/*
 * Record an error unless one is there already. Returns err->code (of the first cause), so that
 * `return rcp_err_set(...)` works. object and fmt may be NULL.
 */
int rcp_err_set(struct rcp_err *err, enum rcp_code code, int sys_errno, const char *call,
		const char *object, const char *fmt, ...) __attribute__((format(printf, 6, 7)));

/* Add the remedy to the error just set, unless one is there. */
void rcp_err_fix(struct rcp_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Name the object where the lower layer could not (keeps one that is there). */
void rcp_err_object(struct rcp_err *err, const char *object);

/*
 * A copy on the heap of an error that is set, for objects of which there are many and that rarely have
 * one; NULL for none. Never fails: with no memory it is a shared one that says so. Free with drop.
 */
const struct rcp_err *rcp_err_keep(const struct rcp_err *err);
void rcp_err_drop(const struct rcp_err **err);

static inline bool rcp_err_is(const struct rcp_err *err)
{
	return err->code != RCP_OK;
}

/* "object: call: reason (fix)", escaped for a terminal, into buf; returns buf. */
char *rcp_err_format(const struct rcp_err *err, char *buf, size_t size);

/* The reason alone: text, or strerror. Valid until the next call by the same thread. */
const char *rcp_err_reason(const struct rcp_err *err);

#endif
