/*
 * Secrets: make, prove, compare, wipe. Pure, any thread.
 */
#ifndef RCP_BOOT_SECRET_H
#define RCP_BOOT_SECRET_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RCP_SECRET   32
#define RCP_SESSION  16
#define RCP_IDENTITY (2 * RCP_SESSION + 1)

/* From the kernel. Blocks only before the machine's first entropy. */
int rcp_secret_random(void *out, size_t len, struct rcp_err *err);

/* HMAC-SHA-256 of label, a zero byte, data. Different labels give unrelated values. */
int rcp_secret_hmac(const uint8_t key[RCP_SECRET], const char *label, const void *data, size_t len,
		    uint8_t out[RCP_SECRET], struct rcp_err *err);

/* Time does not depend on the bytes. */
bool rcp_secret_equal(const void *a, const void *b, size_t len);
/* Not optimised away. */
void rcp_secret_wipe(void *p, size_t len);

/* The TLS identity of a session: its id in hex. Returns out. */
char *rcp_secret_identity(const uint8_t session[RCP_SESSION], char out[RCP_IDENTITY]);

#endif
