/* The setters, one for each enum cli_kind. */
#include "cli/value.h"

#include "base/text.h"
#include "cli/options.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GIVEN_SHOWN = 80 }; /* as much of a wrong argument as a message repeats */

static int number_wrong(const struct cli_option *o, const char *shown, const char *given,
			const char *why, struct rcp_err *err)
{
	rcp_err_set(err, RCP_E_USAGE, 0, NULL, shown, "'%.*s' %s", GIVEN_SHOWN, given, why);
	rcp_err_fix(err, "%" PRId64 " to %" PRId64 "%s", o->min, o->max, o->unit);
	return RCP_E_USAGE;
}

/* Decimal or 0x; nothing before or after. */
static int number(const struct cli_option *o, const char *shown, const char *given,
		  struct rcp_err *err, int64_t *out)
{
	bool hex = given[0] == '0' && tolower((unsigned char)given[1]) == 'x';
	char *end;

	if (!isxdigit((unsigned char)given[hex ? 2 : 0]))
		return number_wrong(o, shown, given, "is not a number", err);
	errno = 0;
	long long n = strtoll(given, &end, hex ? 16 : 10);

	if (*end)
		return number_wrong(o, shown, given, "is not a number", err);
	if (errno || n < o->min || n > o->max)
		return number_wrong(o, shown, given, "is out of range", err);
	*out = n;
	return 0;
}

static int size_wrong(const struct cli_option *o, const char *shown, const char *given,
		      const char *why, struct rcp_err *err)
{
	char min[32], max[32], step[32];

	rcp_err_set(err, RCP_E_USAGE, 0, NULL, shown, "'%.*s' %s", GIVEN_SHOWN, given, why);
	rcp_size_format((uint64_t)o->min, min, sizeof(min));
	rcp_size_format((uint64_t)o->max, max, sizeof(max));
	rcp_size_format((uint64_t)o->step, step, sizeof(step));
	if (o->step)
		rcp_err_fix(err, "%s to %s in steps of %s", min, max, step);
	else
		rcp_err_fix(err, "bytes a second, such as 500M; at least %s", min);
	return RCP_E_USAGE;
}

static int size(const struct cli_option *o, const char *shown, const char *given,
		struct rcp_err *err, uint64_t *out)
{
	if (rcp_size_parse(given, out))
		return size_wrong(o, shown, given, "is not a size", err);
	if (*out < (uint64_t)o->min || *out > (uint64_t)o->max)
		return size_wrong(o, shown, given, "is out of range", err);
	if (o->step && *out % (uint64_t)o->step)
		return size_wrong(o, shown, given, "is between two steps", err);
	return 0;
}

static int word(const struct cli_option *o, const char *shown, const char *given,
		struct rcp_err *err, int *out)
{
	char all[128] = "";
	size_t at = 0;

	for (int i = 0; o->words[i]; i++) {
		if (!strcmp(o->words[i], given)) {
			*out = i;
			return 0;
		}
		int n = snprintf(all + at, sizeof(all) - at, "%s%s", i ? ", " : "", o->words[i]);

		if (n > 0 && (size_t)n < sizeof(all) - at)
			at += (size_t)n;
	}
	rcp_err_set(err, RCP_E_USAGE, 0, NULL, shown, "'%.*s' is not one of its words", GIVEN_SHOWN,
		    given);
	rcp_err_fix(err, "%s", all);
	return RCP_E_USAGE;
}

/* A limit in Kbit of 1024 bits, as scp's -l has it. */
static int kbit(const struct cli_option *o, const char *shown, const char *given,
		struct rcp_err *err, uint64_t *out)
{
	int64_t n;
	int code = number(o, shown, given, err, &n);

	if (!code)
		*out = (uint64_t)n * 1024 / 8;
	return code;
}

static int count(const struct cli_option *o, int *at)
{
	if (*at < o->max)
		(*at)++;
	return 0;
}

static int integer(const struct cli_option *o, const char *shown, const char *given,
		   struct rcp_err *err, int *out)
{
	int64_t n;
	int code = number(o, shown, given, err, &n);

	if (!code)
		*out = (int)n; /* the rows' limits are below INT_MAX */
	return code;
}

static int size32(const struct cli_option *o, const char *shown, const char *given,
		  struct rcp_err *err, uint32_t *out)
{
	uint64_t n;
	int code = size(o, shown, given, err, &n);

	if (!code)
		*out = (uint32_t)n;
	return code;
}

/* ssh checks what it gets; a port is checked here, where its name is still rcp's. */
static int ssh_only(const struct cli_option *o, const char *shown, const char *given,
		    struct rcp_err *err)
{
	int64_t n;

	return o->max ? number(o, shown, given, err, &n) : 0;
}

int cli_value_set(const struct cli_option *o, const char *shown, const char *argument,
		  struct cli_args *args, struct rcp_err *err)
{
	void *at = (char *)args + o->offset;
	const char *given = argument ? argument : ""; /* a flag's; the others have one */

	if (argument && !argument[0])
		return rcp_err_set(err, RCP_E_USAGE, 0, NULL, shown, "its argument is empty: %s",
				   o->argument);
	switch (o->kind) {
	case CLI_FLAG:
		*(bool *)at = true;
		return 0;
	case CLI_COUNT:
		return count(o, at);
	case CLI_VALUE:
		*(int *)at = o->value;
		return 0;
	case CLI_TEXT:
		*(const char **)at = argument;
		return 0;
	case CLI_LIST:
		return cli_list_add(at, argument, err);
	case CLI_INT:
		return integer(o, shown, given, err, at);
	case CLI_SIZE32:
		return size32(o, shown, given, err, at);
	case CLI_RATE:
		return size(o, shown, given, err, at);
	case CLI_KBIT:
		return kbit(o, shown, given, err, at);
	case CLI_WORD:
		return word(o, shown, given, err, at);
	case CLI_SSH_ONLY:
		return ssh_only(o, shown, given, err);
	}
	return 0;
}
