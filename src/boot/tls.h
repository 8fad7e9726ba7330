/*
 * TLS 1.3 with an external pre-shared key over memory: bytes in, bytes out, no fd, no loop. The
 * only user of SSL and EVP in boot. One suite (TLS_AES_256_GCM_SHA384), PSK always with (EC)DHE,
 * never a certificate, a ticket or early data. One owner, any one thread.
 */
#ifndef RCP_BOOT_TLS_H
#define RCP_BOOT_TLS_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RCP_TLS_KEY	      32
#define RCP_TLS_IDENTITY_MAX  128	/* bytes of an identity, without NUL */
#define RCP_TLS_HANDSHAKE_MAX (8 << 10) /* bytes that a peer may send before it is done */

struct rcp_tls;

struct rcp_tls_params {
	bool server;
	/* Client: who it says it is (the session id in hex, or a key's name) and the secret;
	 * copied. Server with one session: the same, and nobody else gets in. */
	const char *identity;
	const uint8_t *key; /* RCP_TLS_KEY bytes */
	/* Server with many keys (identity NULL): fills key and returns true, or false for a name
	 * that it does not know (the handshake then fails exactly as with a wrong key). Called from
	 * rcp_tls_handshake; must not block. */
	bool (*lookup)(void *arg, const char *identity, uint8_t key[RCP_TLS_KEY]);
	void *lookup_arg;
};

int rcp_tls_new(const struct rcp_tls_params *params, struct rcp_err *err, struct rcp_tls **out);
/* Wipes the secrets. NULL is fine. */
void rcp_tls_free(struct rcp_tls **tls);

/* Ciphertext from the peer; takes all of it. RCP_E_CONNECT: too much for a handshake; RCP_E_IO: no
 * memory. */
int rcp_tls_feed(struct rcp_tls *tls, const void *data, size_t len, struct rcp_err *err);
/* Ciphertext for the peer, up to size bytes moved out; 0: none now. To be called after each of the
 * calls below, also after they failed (an alert tells the peer why). */
size_t rcp_tls_pull(struct rcp_tls *tls, void *buf, size_t size);

/* 1 done (key proved by both ends), 0 feed and pull some more, -1 failed: err says why. */
int rcp_tls_handshake(struct rcp_tls *tls, struct rcp_err *err);

/* Plaintext. Bytes read or written, 0: needs more fed (read), -1: err. After the peer's
 * close_notify reads give 0 and rcp_tls_eof is true. */
ptrdiff_t rcp_tls_read(struct rcp_tls *tls, void *buf, size_t size, struct rcp_err *err);
ptrdiff_t rcp_tls_write(struct rcp_tls *tls, const void *data, size_t len, struct rcp_err *err);
bool rcp_tls_eof(const struct rcp_tls *tls);
/* Say close_notify (to be pulled). */
void rcp_tls_shutdown(struct rcp_tls *tls);

/* Keying material that both ends share and nobody else has. Only after the handshake. */
int rcp_tls_export(struct rcp_tls *tls, const char *label, uint8_t *out, size_t len,
		   struct rcp_err *err);
/* Server: which key the client proved; "" before. */
const char *rcp_tls_identity(const struct rcp_tls *tls);

#endif
