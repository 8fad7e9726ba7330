#include "base/err.h"

#include "base/text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A path's end says more than its middle: keep both ends. */
static void copy_object(char *dst, size_t size, const char *src)
{
	size_t len = strlen(src);

	if (len < size) {
		memcpy(dst, src, len + 1);
		return;
	}
	size_t head = size / 2 - 2;
	size_t tail = size - 1 - head - 3;

	memcpy(dst, src, head);
	memcpy(dst + head, "...", 3); /* NOLINT(bugprone-not-null-terminated-result): the tail follows */
	memcpy(dst + head + 3, src + len - tail, tail + 1);
}

int rcp_err_set(struct rcp_err *err, enum rcp_code code, int sys_errno, const char *call,
		const char *object, const char *fmt, ...)
{
	if (err->code != RCP_OK)
		return (int)err->code;
	memset(err, 0, sizeof(*err));
	err->code = code;
	err->sys_errno = sys_errno < 0 ? -sys_errno : sys_errno;
	if (call)
		snprintf(err->call, sizeof(err->call), "%s", call);
	if (object)
		copy_object(err->object, sizeof(err->object), object);
	if (fmt) {
		va_list ap;

		va_start(ap, fmt);
		vsnprintf(err->text, sizeof(err->text), fmt, ap);
		va_end(ap);
	}
	return (int)code;
}

void rcp_err_fix(struct rcp_err *err, const char *fmt, ...)
{
	va_list ap;

	if (err->code == RCP_OK || err->fix[0])
		return;
	va_start(ap, fmt);
	vsnprintf(err->fix, sizeof(err->fix), fmt, ap);
	va_end(ap);
}

void rcp_err_object(struct rcp_err *err, const char *object)
{
	if (err->code != RCP_OK && !err->object[0] && object)
		copy_object(err->object, sizeof(err->object), object);
}

static const struct rcp_err no_memory = {.code = RCP_E_IO, .sys_errno = ENOMEM, .call = "malloc"};

const struct rcp_err *rcp_err_keep(const struct rcp_err *err)
{
	struct rcp_err *copy;

	if (!rcp_err_is(err))
		return NULL;
	copy = malloc(sizeof(*copy));
	if (!copy)
		return &no_memory;
	*copy = *err;
	return copy;
}

void rcp_err_drop(const struct rcp_err **err)
{
	if (*err != &no_memory)
		free((void *)(uintptr_t)*err); /* keep's: only it is const for its readers */
	*err = NULL;
}

const char *rcp_err_reason(const struct rcp_err *err)
{
	if (err->text[0])
		return err->text;
	return err->sys_errno ? strerror(err->sys_errno) : "unknown reason";
}

/* Each part may come from the peer. */
static size_t put(char *buf, size_t size, size_t at, const char *text)
{
	if (at < size)
		rcp_name_escape(buf + at, size - at, text, strlen(text));
	return at + strlen(buf + at);
}

static size_t put_raw(char *buf, size_t size, size_t at, const char *text)
{
	size_t len = strlen(text);

	if (at + len >= size)
		return at;
	memcpy(buf + at, text, len + 1);
	return at + len;
}

char *rcp_err_format(const struct rcp_err *err, char *buf, size_t size)
{
	size_t at = 0;

	buf[0] = 0;
	if (err->object[0]) {
		at = put(buf, size, at, err->object);
		at = put_raw(buf, size, at, ": ");
	}
	if (err->call[0]) {
		at = put(buf, size, at, err->call);
		at = put_raw(buf, size, at, ": ");
	}
	at = put(buf, size, at, rcp_err_reason(err));
	if (err->text[0] && err->sys_errno) {
		at = put_raw(buf, size, at, ": ");
		at = put(buf, size, at, strerror(err->sys_errno));
	}
	if (err->fix[0]) {
		at = put_raw(buf, size, at, " (");
		at = put(buf, size, at, err->fix);
		put_raw(buf, size, at, ")");
	}
	return buf;
}
