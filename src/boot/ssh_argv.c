/* What ssh is told: its argument list, and the words for the remote shell. */
#include "boot/ssh.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Bytes that no shell gives a meaning to, wherever they stand. Not '=': a=b is an assignment. */
static bool is_plain(char c)
{
	return isalnum((unsigned char)c) || (c && strchr("_./+,:@%-", c));
}

/* Length of a leading ~ or ~user with the slash behind it: only the remote shell can expand it. */
static size_t tilde_len(const char *path)
{
	size_t n = 1;

	if (path[0] != '~')
		return 0;
	while (isalnum((unsigned char)path[n]) || (path[n] && strchr("_.-", path[n])))
		n++;
	return path[n] == '/' ? n + 1 : 0;
}

static bool all_plain(const char *s)
{
	while (is_plain(*s))
		s++;
	return *s == 0;
}

/* 'it'\''s' means it's to sh, csh and fish. Returns the end. */
static char *quote(char *to, const char *s)
{
	*to++ = '\'';
	for (; *s; s++) {
		if (*s == '\'')
			to = stpcpy(to, "'\\''");
		else
			*to++ = *s;
	}
	*to++ = '\'';
	return to;
}

int rcp_ssh_command(const char *rcp_path, struct rcp_err *err, char **out)
{
	const char *path = rcp_path ? rcp_path : "rcp";
	size_t live = tilde_len(path);

	*out = NULL;
	if (!path[live])
		return rcp_err_set(err, RCP_E_USAGE, 0, "", path,
				   "names no program on the other side");
	char *cmd = malloc(4 * strlen(path) + sizeof("'' --server"));

	if (!cmd)
		return rcp_err_set(err, RCP_E_IO, ENOMEM, "malloc", path, NULL);
	memcpy(cmd, path, live);
	char *end = cmd + live;

	end = all_plain(path + live) ? stpcpy(end, path + live) : quote(end, path + live);
	strcpy(end, " --server");
	*out = cmd;
	return 0;
}

/* ssh would take it for an option; control bytes have no place in either. */
static int check_name(const char *what, const char *name, struct rcp_err *err)
{
	if (!name[0])
		return rcp_err_set(err, RCP_E_USAGE, 0, "", NULL, "the %s name is empty", what);
	if (name[0] == '-')
		return rcp_err_set(err, RCP_E_USAGE, 0, "", name, "a %s name can't begin with '-'",
				   what);
	for (const char *p = name; *p; p++) {
		if ((unsigned char)*p <= ' ' || *p == 0x7f)
			return rcp_err_set(err, RCP_E_USAGE, 0, "", name,
					   "a %s name can't hold spaces or control bytes", what);
	}
	return 0;
}

/* Whatever the user's ssh_config says, this session is a clean pipe; the first -o of a kind wins.
 */
static const char *const forced[] = {
	"-x",
	"-oForwardAgent=no",
	"-oPermitLocalCommand=no",
	"-oClearAllForwardings=yes",
	"-oRemoteCommand=none",
	"-oRequestTTY=no",
};
#define FORCED (sizeof(forced) / sizeof(forced[0]))

/* Where nobody may be there to answer, or to end what hangs. */
static const char *const unattended[] = {"-oBatchMode=yes", "-oConnectTimeout=15"};
#define UNATTENDED (sizeof(unattended) / sizeof(unattended[0]))

static size_t count_args(const char *const *args)
{
	size_t n = 0;

	while (args && args[n])
		n++;
	return n;
}

/* The same list with the strings behind the pointers. */
static char **pack(const char *const *list, size_t count)
{
	size_t bytes = (count + 1) * sizeof(char *);

	for (size_t i = 0; i < count; i++)
		bytes += strlen(list[i]) + 1;
	char **argv = malloc(bytes);

	if (!argv)
		return NULL;
	char *text = (char *)(argv + count + 1);

	for (size_t i = 0; i < count; i++) {
		argv[i] = text;
		text = stpcpy(text, list[i]) + 1;
	}
	argv[count] = NULL;
	return argv;
}

static size_t fill(const struct rcp_ssh_params *p, const char *command, const char **list)
{
	size_t n = 0, args = count_args(p->args);

	list[n++] = p->program ? p->program : "ssh";
	for (size_t i = 0; i < FORCED; i++)
		list[n++] = forced[i];
	for (size_t i = 0; p->unattended && i < UNATTENDED; i++)
		list[n++] = unattended[i];
	if (p->family)
		list[n++] = p->family == 6 ? "-6" : "-4";
	for (size_t i = 0; i < args; i++)
		list[n++] = p->args[i];
	if (p->user) {
		list[n++] = "-l";
		list[n++] = p->user;
	}
	list[n++] = "--";
	list[n++] = p->host;
	list[n++] = command;
	return n;
}

int rcp_ssh_argv(const struct rcp_ssh_params *params, struct rcp_err *err, char ***out)
{
	char *command = NULL;

	*out = NULL;
	if (check_name("host", params->host, err) ||
	    (params->user && check_name("user", params->user, err)) ||
	    rcp_ssh_command(params->rcp_path, err, &command))
		return (int)err->code;
	const char **list = malloc((FORCED + UNATTENDED + count_args(params->args) + 7) * sizeof(*list));

	if (list)
		*out = pack(list, fill(params, command, list));
	free(list);
	free(command);
	if (!*out)
		return rcp_err_set(err, RCP_E_IO, ENOMEM, "malloc", params->host, NULL);
	return 0;
}
