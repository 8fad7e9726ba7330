#include "boot/where.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void rcp_where_free(struct rcp_where *w)
{
	free(w->user);
	free(w->host);
	free(w->module);
	free(w->path);
	*w = (struct rcp_where){0};
}

static int no_memory(struct rcp_err *err, const char *text)
{
	return rcp_err_set(err, RCP_E_IO, ENOMEM, "strdup", text, NULL);
}

static int refuse(struct rcp_err *err, const char *text, const char *why)
{
	return rcp_err_set(err, RCP_E_USAGE, 0, "", text, "%s", why);
}

/* The colon that ends a host, or NULL: the text is a local path. */
static const char *host_end(const char *text)
{
	bool bracket = text[0] == '[';

	if (text[0] == ':')
		return NULL;
	for (const char *p = text; *p; p++) {
		if (p[0] == '@' && p[1] == '[')
			bracket = true;
		if (p[0] == ']' && p[1] == ':' && bracket)
			return p + 1;
		if (*p == ':' && !bracket)
			return p;
		if (*p == '/')
			return NULL;
	}
	return NULL;
}

/* [user@]host up to end, into w. The last @ divides: hosts have none, user names may. */
static int take_host(const char *from, const char *end, const char *text, struct rcp_err *err,
		     struct rcp_where *w)
{
	const char *at = memrchr(from, '@', (size_t)(end - from));
	const char *host = at ? at + 1 : from;

	if (at == from)
		return refuse(err, text, "the user's name before '@' is empty");
	if (host < end && *host == '[') {
		if (end[-1] != ']')
			return refuse(err, text, "the bracket of an IPv6 address is not closed");
		host++;
		end--;
	}
	if (host >= end)
		return refuse(err, text, "the host's name is empty");
	if (*host == '-')
		return refuse(err, text, "a host's name can't begin with '-'");
	if (*from == '-')
		return refuse(err, text, "a user's name can't begin with '-'");
	w->host = strndup(host, (size_t)(end - host));
	if (at)
		w->user = strndup(from, (size_t)(at - from));
	return w->host && (!at || w->user) ? 0 : no_memory(err, text);
}

static int take_port(const char *from, const char *end, const char *text, struct rcp_err *err,
		     uint16_t *port)
{
	unsigned n = 0;

	for (const char *p = from; p < end; p++) {
		if (*p < '0' || *p > '9' || n > 6553)
			return refuse(err, text, "the port is not a number from 1 to 65535");
		n = n * 10 + (unsigned)(*p - '0');
	}
	if (from == end || n == 0 || n > 65535)
		return refuse(err, text, "the port is not a number from 1 to 65535");
	*port = (uint16_t)n;
	return 0;
}

/* [key@]host[:port] before end. */
static int take_daemon(const char *rest, const char *end, const char *text, struct rcp_err *err,
		       struct rcp_where *w)
{
	const char *host_stop = end, *p = end;

	w->port = RCP_DAEMON_PORT;
	while (p > rest && p[-1] != ':' && p[-1] != ']' && p[-1] != '@')
		p--;
	if (p > rest && p[-1] == ':') {
		host_stop = p - 1;
		if (take_port(p, end, text, err, &w->port))
			return (int)err->code;
	}
	if (take_host(rest, host_stop, text, err, w))
		return (int)err->code;
	if (strchr(w->host, ':') && host_stop[-1] != ']')
		return refuse(err, text, "an IPv6 address needs brackets");
	return 0;
}

/* What stands behind rcp:// */
static int parse_daemon(const char *rest, const char *text, struct rcp_err *err,
			struct rcp_where *w)
{
	const char *end = strchrnul(rest, '/');

	if (take_daemon(rest, end, text, err, w))
		return (int)err->code;
	if (end[0] == 0 || end[1] == 0 || end[1] == '/')
		return refuse(err, text, "the module's name is empty");
	const char *module = end + 1, *module_end = strchrnul(module, '/');

	w->module = strndup(module, (size_t)(module_end - module));
	w->path = strdup(*module_end ? module_end + 1 : "");
	return w->module && w->path ? 0 : no_memory(err, text);
}

static int parse(const char *text, struct rcp_err *err, struct rcp_where *w)
{
	static const char *const foreign[] = {"scp://", "sftp://", "ssh://", "rsync://"};
	const char *colon = host_end(text);

	if (!text[0])
		return refuse(err, text, "an empty name is neither a file nor a host");
	if (strncmp(text, "rcp://", 6) == 0) {
		w->kind = RCP_WHERE_DAEMON;
		return parse_daemon(text + 6, text, err, w);
	}
	for (size_t i = 0; i < sizeof(foreign) / sizeof(foreign[0]); i++) {
		if (strncmp(text, foreign[i], strlen(foreign[i])) == 0)
			return refuse(err, text,
				      "is a URL of another program: use [user@]host:path");
	}
	w->kind = colon ? RCP_WHERE_SSH : RCP_WHERE_LOCAL;
	if (colon && take_host(text, colon, text, err, w))
		return (int)err->code;
	w->path = strdup(colon ? colon + 1 : text);
	return w->path ? 0 : no_memory(err, text);
}

int rcp_where_parse_listing(const char *text, struct rcp_err *err, struct rcp_where *out)
{
	const char *rest = text + 6, *end = strchrnul(rest, '/');
	int code;

	*out = (struct rcp_where){.kind = RCP_WHERE_DAEMON, .module = strdup(""), .path = strdup("")};
	code = out->module && out->path ? take_daemon(rest, end, text, err, out) : no_memory(err, text);
	if (code)
		rcp_where_free(out);
	return code;
}

int rcp_where_parse(const char *text, struct rcp_err *err, struct rcp_where *out)
{
	*out = (struct rcp_where){0};
	int code = parse(text, err, out);

	if (code)
		rcp_where_free(out);
	return code;
}
