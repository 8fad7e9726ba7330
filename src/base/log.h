/*
 * What happened and why, for -v: lines handed to a function that src/cli gives. Nobody below
 * src/cli prints. The loop's thread only.
 */
#ifndef RCP_BASE_LOG_H
#define RCP_BASE_LOG_H

enum rcp_log_level {
	RCP_LOG_WARN = 0, /* shown unless -q */
	RCP_LOG_INFO = 1, /* -v */
	RCP_LOG_DEBUG = 2 /* -vv */
};

struct rcp_log {
	void (*line)(void *arg, enum rcp_log_level level, const char *text);
	void *arg;
	enum rcp_log_level level; /* lines above are not made at all */
};

/* log may be NULL. One line, without newline; names in it escaped by the caller. */
void rcp_log(const struct rcp_log *log, enum rcp_log_level level, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#endif
