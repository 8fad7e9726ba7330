/*
 * The one option table of rcp(1): parsing, --help, completions and the test of the man page all
 * read it. Plain data that needs nothing but libc, so that a build-time generator can link it
 * alone.
 */
#ifndef RCP_CLI_TABLE_H
#define RCP_CLI_TABLE_H

#include "rcp/rcp.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A growing NULL-ended list of borrowed strings; zeroed = empty, items is NULL until the first. */
struct cli_list {
	const char **items;
	size_t count, room;
};

enum cli_action { CLI_COPY = 0, CLI_MODULES, CLI_SERVER, CLI_DAEMON, CLI_KEYGEN, CLI_HELP, CLI_VERSION };
enum cli_progress {
	CLI_PROGRESS_AUTO = 0,
	CLI_PROGRESS_BAR,
	CLI_PROGRESS_PLAIN,
	CLI_PROGRESS_NONE
};

/* The command line, understood. Strings are borrowed from argv. Free with cli_args_free. */
struct cli_args {
	struct rcp_options copy; /* sources and target point into operands */
	struct cli_list operands, excludes, ssh_args;
	enum cli_action action;
	enum cli_progress progress;
	int connect; /* index into the words of --connect */
	const char *files_from;
	const char *config; /* of --daemon */
	const char *restrict_to; /* of --server: DIR[,ro|,wo] */
	bool nul_names, quiet, json, stats;
};

enum cli_kind {
	CLI_FLAG,     /* bool = true */
	CLI_COUNT,    /* int, one more each time, up to max */
	CLI_VALUE,    /* int = value */
	CLI_TEXT,     /* const char * = argument, not empty */
	CLI_LIST,     /* struct cli_list, argument appended, not empty */
	CLI_INT,      /* int, decimal or 0x, min to max */
	CLI_SIZE32,   /* uint32_t bytes, K M G T, min to max, a multiple of step */
	CLI_RATE,     /* uint64_t bytes a second, K M G T, min to max */
	CLI_KBIT,     /* uint64_t bytes a second, given in Kbit/s as scp does */
	CLI_WORD,     /* int or enum = index of the argument in words */
	CLI_SSH_ONLY, /* nothing kept but what goes to ssh */
};

enum cli_group {
	CLI_GROUP_WHAT,
	CLI_GROUP_TRUST,
	CLI_GROUP_LOGIN,
	CLI_GROUP_MOVE,
	CLI_GROUP_SHOW,
	CLI_GROUPS
};

/* What a shell offers as the argument, where words is NULL. */
enum cli_offer {
	CLI_OFFER_NOTHING,
	CLI_OFFER_FILE,
	CLI_OFFER_COMMAND,
	CLI_OFFER_HOST,
	CLI_OFFER_DEVICE
};

struct cli_option {
	char letter;	      /* 0: long name only */
	const char *name;     /* long name or NULL: letter only */
	const char *argument; /* its name in help and man page, or NULL: takes none */
	enum cli_group group;
	enum cli_kind kind;
	size_t offset;		  /* in struct cli_args */
	int value;		  /* of CLI_VALUE */
	int64_t min, max, step;	  /* numbers: what is accepted */
	const char *unit;	  /* of numbers, for messages; "" has none */
	const char *const *words; /* of CLI_WORD, NULL-ended, in the order of the enum */
	char ssh;		  /* letter under which ssh gets it too, or 0 */
	enum cli_offer offer;
	bool ready; /* false: refused, and absent from help, man page and completions */
	const char *help;
};

/* Ends with a row without letter and name. */
extern const struct cli_option cli_options[];

extern const char *const cli_group_titles[CLI_GROUPS];

static inline bool cli_option_end(const struct cli_option *o)
{
	return !o->letter && !o->name;
}

#endif
