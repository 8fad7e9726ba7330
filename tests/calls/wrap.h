/* How a wrapped call is written: type and name, parameters, arguments, what it returns when made to fail. */
#ifndef TESTS_CALLS_WRAP_H
#define TESTS_CALLS_WRAP_H

#include "seam.h"

#include <errno.h>

#define WRAP_AS(type, name, params, args, set, wrong)                                              \
	type __real_##name params;                                                                 \
	type __wrap_##name params;                                                                 \
	type __wrap_##name params                                                                  \
	{                                                                                          \
		int how = SEAM_HOW(#name);                                                         \
                                                                                                   \
		if (how) {                                                                         \
			set;                                                                       \
			return wrong;                                                              \
		}                                                                                  \
		return __real_##name args;                                                         \
	}

/* -1 and errno, NULL and errno, the errno itself, libuv's negative one, OpenSSL's 0 or NULL */
#define INT(name, params, args)	 WRAP_AS(int, name, params, args, errno = how, -1)
#define LONG(name, params, args) WRAP_AS(long, name, params, args, errno = how, -1)
#define PTR(name, params, args)	 WRAP_AS(void *, name, params, args, errno = how, NULL)
#define CODE(name, params, args) WRAP_AS(int, name, params, args, (void)0, how)
#define UV(name, params, args)	 WRAP_AS(int, name, params, args, (void)0, -how)
#define NO(type, name, params, args) WRAP_AS(type, name, params, args, (void)how, 0)

/* Closes, whatever it says. */
#define CLOSES(name, params, args)                                                                 \
	int __real_##name params;                                                                  \
	int __wrap_##name params;                                                                  \
	int __wrap_##name params                                                                   \
	{                                                                                          \
		int how = SEAM_HOW(#name), rc = __real_##name args;                                \
                                                                                                   \
		if (!how)                                                                          \
			return rc;                                                                 \
		errno = how;                                                                       \
		return -1;                                                                         \
	}

/* Moves bytes: may do so for half of them. */
#define MOVE(name, params, args)                                                                   \
	ssize_t __real_##name params;                                                              \
	ssize_t __wrap_##name params;                                                              \
	ssize_t __wrap_##name params                                                               \
	{                                                                                          \
		int how = SEAM_HOW(#name);                                                         \
                                                                                                   \
		if (how > 0) {                                                                     \
			errno = how;                                                               \
			return -1;                                                                 \
		}                                                                                  \
		if (how == SEAM_SHORT)                                                             \
			len = (len + 1) / 2;                                                       \
		return __real_##name args;                                                         \
	}

#endif
