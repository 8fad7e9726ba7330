/* What a user writes on the command line. The first byte says which: an argument (host:path, rcp://...), a whole
 * command line of words with newlines between them, or a list of names (--files-from). */
#include "dir.h"
#include "fuzz.h"

#include "boot/where.h"
#include "cli/names.h"
#include "cli/options.h"

#include <limits.h>
#include <stdbool.h>
#include <string.h>

#define WORDS_MOST 64u

/* ssh gets these as words of their own: none may pass for an option, none may hold what ends a name. */
static void host_is_sound(const struct rcp_where *w)
{
	MUST(w->host[0] && w->host[0] != '-' && !strchr(w->host, '/'));
	MUST(!w->user || (w->user[0] && w->user[0] != '-' && !strchr(w->user, '/')));
}

static void where(const char *text)
{
	struct rcp_where w;
	struct rcp_err err = {0};

	if (rcp_where_parse(text, &err, &w)) {
		MUST(err.code == RCP_E_USAGE && !w.path && !w.host);
		return;
	}
	MUST(w.path && (w.kind == RCP_WHERE_LOCAL) == !w.host && (w.kind == RCP_WHERE_DAEMON) == (w.module != NULL));
	if (w.kind == RCP_WHERE_LOCAL)
		MUST(strcmp(w.path, text) == 0);
	else
		host_is_sound(&w);
	if (w.kind == RCP_WHERE_SSH) /* the path is what stands behind the colon, byte for byte */
		MUST(strlen(text) > strlen(w.path) && !strcmp(text + strlen(text) - strlen(w.path), w.path) &&
		     text[strlen(text) - strlen(w.path) - 1] == ':');
	if (w.kind == RCP_WHERE_DAEMON)
		MUST(w.port && w.module[0] && !strchr(w.module, '/'));
	rcp_where_free(&w);
}

static void listing(const char *text)
{
	struct rcp_where w;
	struct rcp_err err = {0};

	if (strncmp(text, "rcp://", 6) != 0)
		return;
	if (rcp_where_parse_listing(text, &err, &w)) {
		MUST(err.code == RCP_E_USAGE);
		return;
	}
	MUST(w.kind == RCP_WHERE_DAEMON && w.port && !w.module[0] && !w.path[0]);
	host_is_sound(&w);
	rcp_where_free(&w);
}

static void copy_is_whole(const struct cli_args *args)
{
	if (args->action != CLI_COPY)
		return;
	MUST(args->copy.target && args->copy.sources && args->copy.sources[0]);
	MUST(args->copy.chunk_bytes >= 4096 && args->copy.chunk_bytes % 4096 == 0 && args->copy.slots);
}

static void command_line(char *text)
{
	char *argv[WORDS_MOST + 2] = {(char[]){"rcp"}}, *save, line[4096];
	struct cli_args args;
	struct rcp_err err = {0};
	int argc = 1;

	for (char *word = strtok_r(text, "\n", &save); word && argc <= (int)WORDS_MOST; word = strtok_r(NULL, "\n", &save))
		argv[argc++] = word;
	if (cli_args_parse(cli_options, argc, argv, &err, &args) == 0) {
		MUST(!rcp_err_is(&err));
		copy_is_whole(&args);
	} else {
		MUST(err.code == RCP_E_USAGE);
		rcp_err_format(&err, line, sizeof(line));
	}
	cli_args_free(&args);
}

static void names(const char *text, size_t len, bool nul)
{
	char path[PATH_MAX + 8];
	struct cli_names names;
	struct rcp_err err = {0};

	fuzz_dir_write(fuzz_dir(), "names", text, len);
	if (!len) { /* a directory, and what isn't there */
		MUST(cli_names_read(fuzz_dir_path(), nul, &err, &names) == RCP_E_IO && !names.text);
		err = (struct rcp_err){0};
		MUST(cli_names_read("", nul, &err, &names) == RCP_E_USAGE && !names.text);
		err = (struct rcp_err){0};
	}
	snprintf(path, sizeof(path), "%s/names", fuzz_dir_path());
	if (cli_names_read(path, nul, &err, &names)) {
		MUST(err.code == RCP_E_USAGE && !names.text);
		return;
	}
	MUST(names.list.count && names.list.count <= len);
	for (size_t i = 0; i < names.list.count; i++)
		MUST(names.list.items[i][0] && (nul || !strchr(names.list.items[i], '\n')));
	MUST(!names.list.items[names.list.count]);
	cli_names_free(&names);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text;

	if (!size)
		return 0;
	text = calloc(1, size);
	MUST(text);
	memcpy(text, data + 1, size - 1);
	switch (data[0] % 4) {
	case 0:
		where(text);
		listing(text);
		break;
	case 1:
		command_line(text);
		break;
	default:
		names(text, size - 1, data[0] % 4 == 3);
		break;
	}
	free(text);
	return 0;
}
