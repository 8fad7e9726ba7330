/* OpenSSL's calls say no, and so does its memory: see `wrapped`. */
#include "wrap.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <stdlib.h>

NO(BIO *, BIO_new, (const BIO_METHOD *m), (m))
NO(int, BIO_write_ex, (BIO * b, const void *data, size_t len, size_t *n), (b, data, len, n))
NO(int, EVP_CIPHER_CTX_ctrl, (EVP_CIPHER_CTX * c, int type, int arg, void *ptr), (c, type, arg, ptr))
NO(EVP_CIPHER_CTX *, EVP_CIPHER_CTX_new, (void), ())
NO(EVP_CIPHER *, EVP_CIPHER_fetch, (OSSL_LIB_CTX * c, const char *name, const char *query), (c, name, query))
NO(int, EVP_CipherFinal_ex, (EVP_CIPHER_CTX * c, unsigned char *out, int *n), (c, out, n))
NO(int, EVP_CipherInit_ex2,
   (EVP_CIPHER_CTX * c, const EVP_CIPHER *t, const unsigned char *key, const unsigned char *iv, int enc,
    const OSSL_PARAM params[]),
   (c, t, key, iv, enc, params))
NO(int, EVP_CipherUpdate, (EVP_CIPHER_CTX * c, unsigned char *out, int *n, const unsigned char *in, int len),
   (c, out, n, in, len))
NO(EVP_MAC_CTX *, EVP_MAC_CTX_new, (EVP_MAC * m), (m))
NO(EVP_MAC *, EVP_MAC_fetch, (OSSL_LIB_CTX * c, const char *name, const char *query), (c, name, query))
NO(int, EVP_MAC_final, (EVP_MAC_CTX * c, unsigned char *out, size_t *n, size_t room), (c, out, n, room))
NO(int, EVP_MAC_init, (EVP_MAC_CTX * c, const unsigned char *key, size_t len, const OSSL_PARAM params[]),
   (c, key, len, params))
NO(int, EVP_MAC_update, (EVP_MAC_CTX * c, const unsigned char *data, size_t len), (c, data, len))
NO(const SSL_CIPHER *, SSL_CIPHER_find, (SSL * ssl, const unsigned char *id), (ssl, id))
NO(long, SSL_CTX_ctrl, (SSL_CTX * c, int cmd, long arg, void *ptr), (c, cmd, arg, ptr))
NO(SSL_CTX *, SSL_CTX_new, (const SSL_METHOD *m), (m))
NO(int, SSL_CTX_set_ciphersuites, (SSL_CTX * c, const char *list), (c, list))
NO(int, SSL_CTX_set_num_tickets, (SSL_CTX * c, size_t n), (c, n))
NO(int, SSL_CTX_set_max_early_data, (SSL_CTX * c, uint32_t n), (c, n))
NO(SSL_SESSION *, SSL_SESSION_new, (void), ())
NO(int, SSL_SESSION_set1_master_key, (SSL_SESSION * s, const unsigned char *key, size_t len), (s, key, len))
NO(int, SSL_SESSION_set_cipher, (SSL_SESSION * s, const SSL_CIPHER *c), (s, c))
NO(int, SSL_SESSION_set_protocol_version, (SSL_SESSION * s, int v), (s, v))
NO(int, SSL_export_keying_material,
   (SSL * ssl, unsigned char *out, size_t n, const char *label, size_t label_len, const unsigned char *context,
    size_t context_len, int use_context),
   (ssl, out, n, label, label_len, context, context_len, use_context))
NO(SSL *, SSL_new, (SSL_CTX * c), (c))
NO(int, SSL_set_ex_data, (SSL * ssl, int i, void *data), (ssl, i, data))

void *__real_malloc(size_t size);
void *__real_realloc(void *p, size_t size);

/* The place is OpenSSL's own, by file and line: its code is not in this program. */
static int ssl_how(const char *file, int line)
{
	uintptr_t place = 5381;

	for (const char *s = file; *s; s++)
		place = place * 33 + (unsigned char)*s;
	place = (place << 16 | (unsigned)line) & 0xffffffffffff;
	return seam_how("ssl:malloc", place | 1ull << 48);
}

static void *ssl_malloc(size_t size, const char *file, int line)
{
	return ssl_how(file, line) ? NULL : __real_malloc(size);
}

static void *ssl_realloc(void *p, size_t size, const char *file, int line)
{
	return ssl_how(file, line) ? NULL : __real_realloc(p, size);
}

static void ssl_free(void *p, const char *file, int line)
{
	(void)file;
	(void)line;
	free(p);
}

static void __attribute__((constructor(103))) hook(void)
{
	if (!CRYPTO_set_mem_functions(ssl_malloc, ssl_realloc, ssl_free))
		abort();
}
