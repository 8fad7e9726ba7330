#include "boot/tls.h"

#include "boot/secret.h"

#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/ssl.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The one suite, as a name and as its number on the wire. */
#define SUITE "TLS_AES_256_GCM_SHA384"
static const unsigned char suite_id[2] = {0x13, 0x02};

struct rcp_tls {
	SSL_CTX *ctx;
	SSL *ssl;
	BIO *in, *out; /* owned by ssl */
	bool server, done, eof;
	size_t fed; /* bytes before the handshake was done */
	uint8_t key[RCP_TLS_KEY];
	char own_identity[RCP_TLS_IDENTITY_MAX + 1];
	char identity[RCP_TLS_IDENTITY_MAX + 1]; /* that the peer named */
	bool (*lookup)(void *arg, const char *identity, uint8_t key[RCP_TLS_KEY]);
	void *lookup_arg;
};

/* A wrong key shows as a binder that does not verify; OpenSSL tells the client "illegal parameter"
 * then, where the RFC would have "decrypt error". */
static bool is_key_mismatch(unsigned long e)
{
	int r = ERR_GET_REASON(e);

	return e && ERR_GET_LIB(e) == ERR_LIB_SSL &&
	       (r == SSL_R_BINDER_DOES_NOT_VERIFY || r == SSL_R_TLSV1_ALERT_DECRYPT_ERROR ||
		r == SSL_R_SSLV3_ALERT_ILLEGAL_PARAMETER);
}

/* What a daemon says that has more connections than it can look at. */
static bool is_busy(unsigned long e)
{
	return e && ERR_GET_LIB(e) == ERR_LIB_SSL && ERR_GET_REASON(e) == SSL_R_TLSV1_ALERT_INTERNAL_ERROR;
}

/* The oldest entry of OpenSSL's queue is the cause; the rest is its way up. */
static int ssl_err(struct rcp_err *err, enum rcp_code code, const char *call)
{
	unsigned long e = ERR_get_error();
	const char *reason = e ? ERR_reason_error_string(e) : NULL;

	ERR_clear_error();
	if (is_key_mismatch(e))
		return rcp_err_set(err, code, 0, call, NULL,
				   "the two ends do not hold the same key (%s)", reason);
	if (is_busy(e)) {
		rcp_err_set(err, code, 0, call, NULL, "the other end is busy, or has no memory: it has not looked at the key");
		rcp_err_fix(err, "try again later");
		return (int)err->code;
	}
	return rcp_err_set(err, code, 0, call, NULL, "TLS: %s",
			   reason ? reason : "unknown failure");
}

/* A session that was never a session: how OpenSSL takes an external key. */
static SSL_SESSION *session_of_key(SSL *ssl, const uint8_t key[RCP_TLS_KEY])
{
	const SSL_CIPHER *suite = SSL_CIPHER_find(ssl, suite_id);
	SSL_SESSION *s = SSL_SESSION_new();

	if (s && suite && SSL_SESSION_set1_master_key(s, key, RCP_TLS_KEY) &&
	    SSL_SESSION_set_cipher(s, suite) && SSL_SESSION_set_protocol_version(s, TLS1_3_VERSION))
		return s;
	SSL_SESSION_free(s);
	return NULL;
}

static int on_client_psk(SSL *ssl, const EVP_MD *md, const unsigned char **id, size_t *id_len,
			 SSL_SESSION **out)
{
	struct rcp_tls *tls = SSL_get_app_data(ssl);
	const SSL_CIPHER *suite = SSL_CIPHER_find(ssl, suite_id);

	if (md && md != SSL_CIPHER_get_handshake_digest(suite))
		return 0;
	*out = session_of_key(ssl, tls->key);
	if (!*out)
		return 0;
	*id = (const unsigned char *)tls->own_identity;
	*id_len = strlen(tls->own_identity);
	return 1;
}

static bool find_key(struct rcp_tls *tls, uint8_t key[RCP_TLS_KEY])
{
	if (tls->lookup)
		return tls->lookup(tls->lookup_arg, tls->identity, key);
	if (strcmp(tls->identity, tls->own_identity) != 0)
		return false;
	memcpy(key, tls->key, RCP_TLS_KEY);
	return true;
}

/* An unknown name gets a key that nobody has, so that it fails as a wrong key does and a stranger
 * can't ask which names there are. */
static int on_server_psk(SSL *ssl, const unsigned char *id, size_t id_len, SSL_SESSION **out)
{
	struct rcp_tls *tls = SSL_get_app_data(ssl);
	uint8_t key[RCP_TLS_KEY];
	struct rcp_err err = {0};

	*out = NULL;
	if (rcp_secret_random(key, sizeof(key), &err))
		return 0;
	if (id_len <= RCP_TLS_IDENTITY_MAX && !memchr(id, 0, id_len)) {
		memcpy(tls->identity, id, id_len);
		tls->identity[id_len] = 0;
		find_key(tls, key);
	}
	*out = session_of_key(ssl, key);
	rcp_secret_wipe(key, sizeof(key));
	return *out != NULL;
}

/* No certificate is ever right. */
static int refuse_certificate(int ok, X509_STORE_CTX *store)
{
	(void)ok;
	(void)store;
	return 0;
}

static int make_ctx(struct rcp_tls *tls, struct rcp_err *err)
{
	SSL_CTX *ctx = SSL_CTX_new(tls->server ? TLS_server_method() : TLS_client_method());
	int groups[] = {NID_X25519, NID_X9_62_prime256v1};

	tls->ctx = ctx;
	if (!ctx || !SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION) ||
	    !SSL_CTX_set_max_proto_version(ctx, TLS1_3_VERSION) ||
	    !SSL_CTX_set_ciphersuites(ctx, SUITE) || !SSL_CTX_set_num_tickets(ctx, 0) ||
	    !SSL_CTX_set_max_early_data(ctx, 0))
		return ssl_err(err, RCP_E_CONNECT, "SSL_CTX_new");
	/* X25519 is missing where OpenSSL is held to FIPS. */
	if (!SSL_CTX_set1_groups(ctx, groups, 2) && !SSL_CTX_set1_groups(ctx, groups + 1, 1))
		return ssl_err(err, RCP_E_CONNECT, "SSL_CTX_set1_groups");
	ERR_clear_error();
	SSL_CTX_set_options(ctx,
			    SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION |
				    SSL_OP_CLEANSE_PLAINTEXT); /* a session's secret comes through it */
	/* ALLOW_NO_DHE_KEX would give up forward secrecy; a configuration file may have set it. */
	SSL_CTX_clear_options(ctx, SSL_OP_ALLOW_NO_DHE_KEX | SSL_OP_ENABLE_MIDDLEBOX_COMPAT);
	SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
				      SSL_MODE_RELEASE_BUFFERS);
	if (tls->server) {
		SSL_CTX_set_psk_find_session_callback(ctx, on_server_psk);
	} else {
		SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, refuse_certificate);
		SSL_CTX_set_psk_use_session_callback(ctx, on_client_psk);
	}
	return 0;
}

static int make_ssl(struct rcp_tls *tls, struct rcp_err *err)
{
	tls->ssl = SSL_new(tls->ctx);
	tls->in = BIO_new(BIO_s_mem());
	tls->out = BIO_new(BIO_s_mem());
	if (!tls->ssl || !tls->in || !tls->out) {
		BIO_free(tls->in);
		BIO_free(tls->out);
		return ssl_err(err, RCP_E_IO, "SSL_new");
	}
	SSL_set_bio(tls->ssl, tls->in, tls->out);
	if (!SSL_set_app_data(tls->ssl, tls)) /* the callbacks find us by it */
		return ssl_err(err, RCP_E_IO, "SSL_set_app_data");
	if (tls->server)
		SSL_set_accept_state(tls->ssl);
	else
		SSL_set_connect_state(tls->ssl);
	return 0;
}

int rcp_tls_new(const struct rcp_tls_params *params, struct rcp_err *err, struct rcp_tls **out)
{
	struct rcp_tls *tls = calloc(1, sizeof(*tls));

	*out = NULL;
	if (!tls)
		return rcp_err_set(err, RCP_E_IO, ENOMEM, "calloc", NULL, NULL);
	tls->server = params->server;
	tls->lookup = params->lookup;
	tls->lookup_arg = params->lookup_arg;
	if (params->identity) {
		if (!params->identity[0] || strlen(params->identity) > RCP_TLS_IDENTITY_MAX) {
			free(tls);
			return rcp_err_set(err, RCP_E_USAGE, 0, "", params->identity,
					   "a key's name has 1 to %d bytes", RCP_TLS_IDENTITY_MAX);
		}
		strcpy(tls->own_identity, params->identity);
	}
	if (params->key)
		memcpy(tls->key, params->key, RCP_TLS_KEY);
	ERR_clear_error();
	if (make_ctx(tls, err) || make_ssl(tls, err)) {
		rcp_tls_free(&tls);
		return (int)err->code;
	}
	*out = tls;
	return 0;
}

void rcp_tls_free(struct rcp_tls **p)
{
	struct rcp_tls *tls = *p;

	*p = NULL;
	if (!tls)
		return;
	SSL_free(tls->ssl);
	SSL_CTX_free(tls->ctx);
	rcp_secret_wipe(tls, sizeof(*tls));
	free(tls);
}

int rcp_tls_feed(struct rcp_tls *tls, const void *data, size_t len, struct rcp_err *err)
{
	size_t n = 0;

	if (!tls->done)
		tls->fed += len;
	if (len && (!BIO_write_ex(tls->in, data, len, &n) || n != len))
		return ssl_err(err, RCP_E_IO, "BIO_write");
	return 0;
}

size_t rcp_tls_pull(struct rcp_tls *tls, void *buf, size_t size)
{
	size_t n = 0;

	return size && BIO_pending(tls->out) && BIO_read_ex(tls->out, buf, size, &n) ? n : 0;
}

int rcp_tls_handshake(struct rcp_tls *tls, struct rcp_err *err)
{
	if (tls->done)
		return 1;
	ERR_clear_error();
	int r = SSL_do_handshake(tls->ssl);

	if (r == 1) {
		/* Belt and braces: TLS without our key is not TLS to us. */
		if (!SSL_session_reused(tls->ssl) || SSL_get0_peer_certificate(tls->ssl)) {
			rcp_err_set(err, RCP_E_CONNECT, 0, "SSL_do_handshake", NULL,
				    "the peer did not use the pre-shared key");
			return -1;
		}
		tls->done = true;
		return 1;
	}
	if (SSL_get_error(tls->ssl, r) != SSL_ERROR_WANT_READ) {
		ssl_err(err, RCP_E_CONNECT, "SSL_do_handshake");
		return -1;
	}
	if (tls->fed > RCP_TLS_HANDSHAKE_MAX) {
		rcp_err_set(err, RCP_E_CONNECT, 0, "SSL_do_handshake", NULL,
			    "TLS: the peer sent %zu bytes and no end of a handshake", tls->fed);
		return -1;
	}
	return 0;
}

/* What a failed SSL_read or SSL_write means: 0 later, -1 broken. */
static int io_result(struct rcp_tls *tls, const char *call, struct rcp_err *err)
{
	switch (SSL_get_error(tls->ssl, 0)) {
	case SSL_ERROR_WANT_READ:
	case SSL_ERROR_WANT_WRITE:
		return 0;
	case SSL_ERROR_ZERO_RETURN:
		tls->eof = true;
		return 0;
	default:
		ssl_err(err, RCP_E_LINK, call);
		return -1;
	}
}

ptrdiff_t rcp_tls_read(struct rcp_tls *tls, void *buf, size_t size, struct rcp_err *err)
{
	size_t n = 0;

	if (tls->eof || !tls->done)
		return 0;
	ERR_clear_error();
	if (SSL_read_ex(tls->ssl, buf, size, &n))
		return (ptrdiff_t)n;
	return io_result(tls, "SSL_read", err);
}

ptrdiff_t rcp_tls_write(struct rcp_tls *tls, const void *data, size_t len, struct rcp_err *err)
{
	size_t n = 0;

	if (!len || !tls->done)
		return 0;
	ERR_clear_error();
	if (SSL_write_ex(tls->ssl, data, len, &n))
		return (ptrdiff_t)n;
	return io_result(tls, "SSL_write", err);
}

bool rcp_tls_eof(const struct rcp_tls *tls)
{
	return tls->eof;
}

void rcp_tls_shutdown(struct rcp_tls *tls)
{
	ERR_clear_error();
	if (tls->done)
		SSL_shutdown(tls->ssl);
	ERR_clear_error();
}

int rcp_tls_export(struct rcp_tls *tls, const char *label, uint8_t *out, size_t len,
		   struct rcp_err *err)
{
	ERR_clear_error();
	if (!tls->done ||
	    SSL_export_keying_material(tls->ssl, out, len, label, strlen(label), NULL, 0, 0) != 1)
		return ssl_err(err, RCP_E_CONNECT, "SSL_export_keying_material");
	return 0;
}

const char *rcp_tls_identity(const struct rcp_tls *tls)
{
	return tls->done ? tls->identity : "";
}

/* Here and not in secret.c because it needs EVP. */
int rcp_secret_hmac(const uint8_t key[RCP_SECRET], const char *label, const void *data, size_t len,
		    uint8_t out[RCP_SECRET], struct rcp_err *err)
{
	char digest[] = "SHA256";
	const OSSL_PARAM params[] = {
		OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
		OSSL_PARAM_construct_end(),
	};
	EVP_MAC *mac = EVP_MAC_fetch(NULL, "HMAC", NULL);
	EVP_MAC_CTX *ctx = mac ? EVP_MAC_CTX_new(mac) : NULL;
	size_t n = 0;
	int rc = 0;

	/* The label's own NUL keeps it and the data apart. */
	if (!ctx || !EVP_MAC_init(ctx, key, RCP_SECRET, params) ||
	    !EVP_MAC_update(ctx, (const unsigned char *)label, strlen(label) + 1) ||
	    !EVP_MAC_update(ctx, data, len) || !EVP_MAC_final(ctx, out, &n, RCP_SECRET) ||
	    n != RCP_SECRET)
		rc = ssl_err(err, RCP_E_CONNECT, "EVP_MAC");
	EVP_MAC_CTX_free(ctx);
	EVP_MAC_free(mac);
	return rc;
}
