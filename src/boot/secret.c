#include "boot/secret.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

int rcp_secret_random(void *out, size_t len, struct rcp_err *err)
{
	uint8_t *p = out;

	while (len) {
		ssize_t n = getrandom(p, len, 0);

		if (n < 0 && errno != EINTR)
			return rcp_err_set(err, RCP_E_CONNECT, errno, "getrandom", NULL, NULL);
		if (n > 0) {
			p += n;
			len -= (size_t)n;
		}
	}
	return 0;
}

bool rcp_secret_equal(const void *a, const void *b, size_t len)
{
	const volatile uint8_t *x = a, *y = b;
	unsigned differ = 0;

	for (size_t i = 0; i < len; i++)
		differ |= (unsigned)(x[i] ^ y[i]);
	return differ == 0;
}

void rcp_secret_wipe(void *p, size_t len)
{
	explicit_bzero(p, len);
}

char *rcp_secret_identity(const uint8_t session[RCP_SESSION], char out[RCP_IDENTITY])
{
	static const char digit[] = "0123456789abcdef";

	for (size_t i = 0; i < RCP_SESSION; i++) {
		out[2 * i] = digit[session[i] >> 4];
		out[2 * i + 1] = digit[session[i] & 15];
	}
	out[(size_t)2 * RCP_SESSION] = 0;
	return out;
}
