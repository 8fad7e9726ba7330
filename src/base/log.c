#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

void rcp_log(const struct rcp_log *log, enum rcp_log_level level, const char *fmt, ...)
{
	char text[2048];
	va_list ap;

	if (!log || !log->line || level > log->level)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	log->line(log->arg, level, text);
}
