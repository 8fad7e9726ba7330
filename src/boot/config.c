/* The parser of rcpd.conf(5), by one table of settings. */
#include "boot/config.h"

#include "base/text.h"
#include "boot/sock.h"
#include "boot/where.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind { TEXT, PATH, LIST, YES, COUNT, RATE, WORD };

struct setting {
	const char *name;
	bool module; /* of a section; otherwise before the first */
	enum kind kind;
	size_t offset;
	uint32_t min, max;    /* COUNT */
	const char *words[3]; /* WORD: false, true */
};

#define GLOBAL(n, k, field) .name = (n), .kind = (k), .offset = offsetof(struct rcp_config, field)
#define OF(n, k, field) \
	.name = (n), .module = true, .kind = (k), .offset = offsetof(struct rcp_module, field)

static const struct setting settings[] = {
	{GLOBAL("listen", LIST, listen)},
	{GLOBAL("port", COUNT, port), .min = 1, .max = 65535},
	{GLOBAL("keys", PATH, keys)},
	{GLOBAL("max-connections", COUNT, max_connections), .min = 1, .max = 10000},
	{GLOBAL("handshake-seconds", COUNT, handshake_seconds), .min = 1, .max = 300},
	{GLOBAL("idle-seconds", COUNT, idle_seconds), .min = 10, .max = 86400},
	{GLOBAL("max-seconds", COUNT, max_seconds), .min = 10, .max = 31536000},
	{GLOBAL("log", WORD, syslog), .words = {"standard-error", "syslog"}},
	{OF("path", PATH, path)},
	{OF("comment", TEXT, comment)},
	{OF("writable", YES, writable)},
	{OF("encrypt", WORD, encrypt), .words = {"auto", "always"}},
	{OF("keys", LIST, keys)},
	{OF("user", TEXT, user)},
	{OF("group", TEXT, group)},
	{OF("max-connections", COUNT, max_connections), .min = 1, .max = 10000},
	{OF("bwlimit", RATE, bwlimit)},
};
enum { SETTINGS = sizeof(settings) / sizeof(settings[0]) };

struct parser {
	struct rcp_config *config;
	const char *shown;
	unsigned line;
	bool seen[SETTINGS]; /* in this section */
	struct rcp_err *err;
};

static int wrong_at(struct parser *p, unsigned line, const char *fix, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
static int wrong_at(struct parser *p, unsigned line, const char *fix, const char *fmt, ...)
{
	char at[1024], text[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	snprintf(at, sizeof(at), "%.1000s:%u", p->shown, line);
	rcp_err_set(p->err, RCP_E_USAGE, 0, "", at, "%s", text);
	rcp_err_fix(p->err, "%s", fix);
	return RCP_E_USAGE;
}

static struct rcp_module *module_now(struct parser *p)
{
	return p->config->module_count ? &p->config->modules[p->config->module_count - 1] : NULL;
}

static int no_memory(struct parser *p)
{
	return rcp_err_set(p->err, RCP_E_IO, ENOMEM, "malloc", p->shown, NULL);
}

/* ---- values ---- */

static int take_list(struct parser *p, const struct setting *s, char *value, char ***at)
{
	size_t n = 0, room = 2;
	char **list, *save, *word;

	assert(at);
	for (const char *c = value; *c; c++)
		room += *c == ',' || *c == ' ' || *c == '\t';
	list = calloc(room, sizeof(*list));
	if (!list)
		return no_memory(p);
	*at = list;
	for (word = strtok_r(value, ", \t", &save); word; word = strtok_r(NULL, ", \t", &save)) {
		list[n] = strdup(word);
		if (!list[n++])
			return no_memory(p);
	}
	return n ? 0 : wrong_at(p, p->line, "names with commas between them", "%s names nothing", s->name);
}

static int take_count(struct parser *p, const struct setting *s, const char *value, uint32_t *at)
{
	char *end, fix[64];
	unsigned long n;

	snprintf(fix, sizeof(fix), "a number from %u to %u", s->min, s->max);
	errno = 0;
	n = strtoul(value, &end, 10);
	if (value[0] < '0' || value[0] > '9' || *end || errno || n < s->min || n > s->max)
		return wrong_at(p, p->line, fix, "%s can't be '%.80s'", s->name, value);
	*at = (uint32_t)n;
	return 0;
}

static int take_word(struct parser *p, const struct setting *s, const char *value, bool *at)
{
	static const char *const yes[] = {"no", "yes"};
	const char *const *words = s->kind == YES ? yes : s->words;
	char fix[64];

	for (int i = 0; i < 2; i++) {
		if (strcmp(value, words[i]) == 0) {
			*at = i == 1;
			return 0;
		}
	}
	snprintf(fix, sizeof(fix), "%s or %s", words[0], words[1]);
	return wrong_at(p, p->line, fix, "%s can't be '%.80s'", s->name, value);
}

static int take_rate(struct parser *p, const struct setting *s, const char *value, uint64_t *at)
{
	if (rcp_size_parse(value, at) || !*at)
		return wrong_at(p, p->line, "bytes a second, such as 100M", "%s can't be '%.80s'", s->name, value);
	return 0;
}

static int take_text(struct parser *p, const struct setting *s, const char *value, char **at)
{
	if (s->kind == PATH && value[0] != '/')
		return wrong_at(p, p->line, "a path that begins with /", "%s can't be '%.80s'", s->name, value);
	*at = strdup(value);
	return *at ? 0 : no_memory(p);
}

static int take_value(struct parser *p, const struct setting *s, char *value)
{
	char *base = s->module ? (char *)module_now(p) : (char *)p->config;
	void *at = base + s->offset;

	switch (s->kind) {
	case TEXT:
	case PATH:
		return take_text(p, s, value, at);
	case LIST:
		return take_list(p, s, value, at);
	case COUNT:
		return take_count(p, s, value, at);
	case RATE:
		return take_rate(p, s, value, at);
	case YES:
	case WORD:
		return take_word(p, s, value, at);
	}
	return 0;
}

/* ---- lines ---- */

/* What there is, for who mistyped it. */
static const char *known(bool module, char *buf, size_t size)
{
	size_t at = (size_t)snprintf(buf, size, "%s has", module ? "a module" : "the part before the modules");

	for (int i = 0; i < SETTINGS; i++) {
		if (settings[i].module == module)
			at += (size_t)snprintf(buf + at, size - at, " %s", settings[i].name);
	}
	return buf;
}

static int take_setting(struct parser *p, const char *name, char *value)
{
	bool module = p->config->module_count > 0;
	char fix[256];

	if (!value[0])
		return wrong_at(p, p->line, "give it one, or take the line out", "%.80s has no value", name);
	for (int i = 0; i < SETTINGS; i++) {
		if (settings[i].module != module || strcmp(settings[i].name, name) != 0)
			continue;
		if (p->seen[i])
			return wrong_at(p, p->line, "take one of them out", "%s is there twice", name);
		p->seen[i] = true;
		return take_value(p, &settings[i], value);
	}
	return wrong_at(p, p->line, known(module, fix, sizeof(fix)), "unknown setting '%.80s'", name);
}

static int take_section(struct parser *p, char *line)
{
	size_t len = strlen(line), n = p->config->module_count;
	struct rcp_module *all;
	const char *why;

	if (line[len - 1] != ']')
		return wrong_at(p, p->line, "[name]", "a module's section is not closed");
	line[len - 1] = 0;
	why = rcp_key_name_refuse(line + 1);
	if (why)
		return wrong_at(p, p->line, why, "no name for a module: '%.80s'", line + 1);
	for (size_t i = 0; i < n; i++) {
		if (strcmp(p->config->modules[i].name, line + 1) == 0)
			return wrong_at(p, p->line, "give it another name", "module %s is there twice, first in line %u",
					line + 1, p->config->modules[i].line);
	}
	all = reallocarray(p->config->modules, n + 1, sizeof(*all));
	if (!all)
		return no_memory(p);
	p->config->modules = all;
	all[n] = (struct rcp_module){.name = strdup(line + 1), .line = p->line};
	p->config->module_count++;
	memset(p->seen, 0, sizeof(p->seen));
	return all[n].name ? 0 : no_memory(p);
}

static char *trim(char *s, char *end)
{
	while (end > s && (end[-1] == ' ' || end[-1] == '\t' || end[-1] == '\r'))
		end--;
	*end = 0;
	return s + strspn(s, " \t");
}

static int take_line(struct parser *p, char *line)
{
	char *equals = strchr(line, '=');

	if (!line[0] || line[0] == '#')
		return 0;
	if (line[0] == '[')
		return take_section(p, line);
	if (!equals)
		return wrong_at(p, p->line, "setting = value, [module] or # comment", "'%.80s' is none of these", line);
	return take_setting(p, trim(line, equals), trim(equals + 1, equals + 1 + strlen(equals + 1)));
}

/* ---- the whole ---- */

static int check_module(struct parser *p, const struct rcp_module *m)
{
	if (!m->path)
		return wrong_at(p, m->line, "path = /a/directory", "module %s has no path", m->name);
	if (!m->keys)
		return wrong_at(p, m->line, "keys = NAME, ... or keys = * for all of the daemon's",
				"module %s is for nobody: it names no keys", m->name);
	for (char **k = m->keys; *k; k++) {
		const char *why = strcmp(*k, "*") ? rcp_key_name_refuse(*k) : NULL;

		if (why)
			return wrong_at(p, m->line, why, "module %s: no key's name: '%.80s'", m->name, *k);
	}
	if (m->group && !m->user)
		return wrong_at(p, m->line, "user = NAME", "module %s has a group and no user", m->name);
	return 0;
}

static int check(struct parser *p)
{
	const struct rcp_config *c = p->config;
	union rcp_sa sa;

	if (!c->keys)
		return wrong_at(p, p->line, "keys = /etc/rcp/keys, a file or a directory", "no keys: nobody could come in");
	if (!c->module_count)
		return wrong_at(p, p->line, "[name] and path = /a/directory", "no module: there is nothing to serve");
	for (char **a = c->listen; a && *a; a++) {
		if (!rcp_sa_parse(*a, &sa))
			return wrong_at(p, p->line, "numbers, such as 192.0.2.1 or 2001:db8::1",
					"listen: '%.80s' is no address", *a);
	}
	for (size_t i = 0; i < c->module_count; i++) {
		if (check_module(p, &c->modules[i]))
			break;
	}
	return (int)p->err->code;
}

int rcp_config_parse(const char *text, size_t len, const char *shown, struct rcp_err *err,
		     struct rcp_config *out)
{
	struct parser p = {.config = out, .shown = shown, .err = err};
	char *copy = strndup(text, len), *at = copy;

	*out = (struct rcp_config){
		.port = RCP_DAEMON_PORT, .max_connections = 100, .handshake_seconds = 10, .idle_seconds = 600};
	if (!copy)
		return no_memory(&p);
	while (at && *at && !rcp_err_is(err)) {
		char *end = strchrnul(at, '\n'), *next = *end ? end + 1 : end;

		p.line++;
		take_line(&p, trim(at, end));
		at = next;
	}
	if (!rcp_err_is(err) && memchr(text, 0, len))
		wrong_at(&p, p.line, "it is a text file", "a NUL byte");
	if (!rcp_err_is(err))
		check(&p);
	free(copy);
	return (int)err->code;
}

static void free_list(char **list)
{
	for (char **s = list; s && *s; s++)
		free(*s);
	free(list);
}

void rcp_config_free(struct rcp_config *c)
{
	for (size_t i = 0; i < c->module_count; i++) {
		struct rcp_module *m = &c->modules[i];

		free(m->name);
		free(m->path);
		free(m->comment);
		free(m->user);
		free(m->group);
		free_list(m->keys);
	}
	free(c->modules);
	free_list(c->listen);
	free(c->keys);
	rcp_keyring_free(&c->ring);
	*c = (struct rcp_config){0};
}

bool rcp_module_allows(const struct rcp_module *module, const char *key)
{
	for (char **k = module->keys; *k; k++) {
		if (strcmp(*k, "*") == 0 || strcmp(*k, key) == 0)
			return true;
	}
	return false;
}

const struct rcp_module *rcp_config_module(const struct rcp_config *config, const char *name,
					   const char *key)
{
	for (size_t i = 0; i < config->module_count; i++) {
		if (strcmp(config->modules[i].name, name) == 0)
			return rcp_module_allows(&config->modules[i], key) ? &config->modules[i] : NULL;
	}
	return NULL;
}
