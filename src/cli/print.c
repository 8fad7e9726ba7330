#include "cli/print.h"

#include "base/text.h"
#include "cli/signals.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define WAIT_MS 200 /* for a reader, once a signal has come */

void cli_print(struct rcp_wr *w, const char *fmt, ...)
{
	char small[512];
	va_list ap, again;

	va_start(ap, fmt);
	va_copy(again, ap);
	int n = vsnprintf(small, sizeof(small), fmt, ap);

	if (n >= (int)sizeof(small)) {
		/* the NUL needs a place too, and gives it back */
		char *room = (char *)rcp_wr_room(w, (size_t)n + 1);

		if (room) {
			vsnprintf(room, (size_t)n + 1, fmt, again);
			w->len--;
		}
	} else if (n > 0) {
		rcp_wr_bytes(w, small, (size_t)n);
	}
	va_end(again);
	va_end(ap);
}

void cli_print_tame(struct rcp_wr *w, const char *bytes, size_t len)
{
	for (size_t i = 0; i < len;) {
		const unsigned char *s = (const unsigned char *)bytes + i;
		size_t n = rcp_utf8_len(s, len - i);
		char one[32];

		if (s[0] == '\r' && i + 1 < len && s[1] == '\n') {
			i++;
			continue;
		}
		if (s[0] == '\n' || s[0] == '\t' || s[0] == '\\')
			rcp_wr_u8(w, s[0]);
		else
			cli_print(w, "%s", rcp_name_escape(one, sizeof(one), bytes + i, n ? n : 1));
		i += n ? n : 1;
	}
}

/* Who was told to stop does not wait for a reader: 0, or what is wrong. */
static int wait_writable(int fd)
{
	static bool unread[3];
	struct pollfd p = {.fd = fd, .events = POLLOUT};
	bool *given_up = fd >= 0 && fd < 3 ? &unread[fd] : NULL;

	for (unsigned interrupted = 0; interrupted < 100;) {
		int n = poll(&p, 1, given_up && *given_up ? 0 : WAIT_MS);

		if (n > 0 || (n < 0 && errno != EINTR))
			break;
		interrupted += n < 0;
		if (!cli_signals_asked())
			continue;
		if (given_up)
			*given_up = true;
		return ETIMEDOUT;
	}
	return 0; /* what is wrong is write's to say */
}

/* A piece for which a pipe has room when it says that it has any. */
int cli_write_all(int fd, const void *data, size_t len)
{
	const char *at = data;

	while (len) {
		int e = wait_writable(fd);

		if (e)
			return e;
		ssize_t n = write(fd, at, len < PIPE_BUF ? len : PIPE_BUF);

		if (n >= 0) {
			at += n;
			len -= (size_t)n;
		} else if (errno != EAGAIN && errno != EINTR) {
			return errno;
		}
	}
	return 0;
}
