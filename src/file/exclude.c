#include "file/exclude.h"

#include "base/text.h"
#include "file/io.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct pattern {
	bool negated, dirs_only, anchored;
	char *glob;
};

struct rcp_excludes {
	size_t count;
	struct pattern of[];
};

/* "[...]" at p against c. *end: behind the class; NULL: no class, the bracket is itself. */
static bool class_match(const char *p, unsigned char c, const char **end)
{
	bool negated = p[1] == '!' || p[1] == '^', hit = false;
	const char *at = p + 1 + negated;

	*end = NULL;
	for (bool first = true; *at && (first || *at != ']'); first = false) {
		at += *at == '\\' && at[1];
		unsigned char low = (unsigned char)*at++, high = low;

		if (at[0] == '-' && at[1] && at[1] != ']') {
			at += 1 + (at[1] == '\\' && at[2]);
			high = (unsigned char)*at++;
		}
		hit |= c >= low && c <= high;
	}
	if (*at != ']')
		return false;
	*end = at + 1;
	return hit != negated && c != '/';
}

/* One pattern element against the text's next character: how far each moves. False: no match. */
static bool one_match(const char **p, const char **s)
{
	const char *end;

	if (**p == '?' && **s != '/') {
		size_t n = rcp_utf8_len((const unsigned char *)*s, strlen(*s));

		++*p;
		*s += n ? n : 1;
		return true;
	}
	if (**p == '[') {
		bool hit = class_match(*p, (unsigned char)**s, &end);

		if (end) {
			*p = end;
			++*s;
			return hit;
		}
	}
	if (**p == '\\' && (*p)[1])
		++*p;
	if (**p != **s)
		return false;
	++*p;
	++*s;
	return true;
}

/*
 * Where matching goes on after a failure: behind the last `*` or `**`, one character further. The
 * earlier ones need no second try, since what they could take the last one can take too.
 */
struct retry {
	const char *pattern, *text;
};

static bool retry_star(struct retry *star, const char **p, const char **s)
{
	if (!star->pattern || *star->text == 0 || *star->text == '/')
		return false;
	*s = ++star->text;
	*p = star->pattern;
	return true;
}

/* `**` followed by a slash takes whole directories. */
static bool retry_deep(struct retry *deep, bool whole, const char **p, const char **s)
{
	if (!deep->pattern || *deep->text == 0)
		return false;
	const char *slash = whole ? strchr(deep->text, '/') : deep->text;

	if (!slash)
		return false;
	*s = deep->text = slash + 1;
	*p = deep->pattern;
	return true;
}

bool rcp_glob_match(const char *pattern, const char *text)
{
	struct retry star = {NULL, NULL}, deep = {NULL, NULL};
	const char *p = pattern, *s = text;
	bool whole = false;

	while (*s) {
		if (p[0] == '*' && p[1] == '*') {
			while (*p == '*')
				p++;
			whole = *p == '/';
			p += whole;
			deep = (struct retry){p, s};
			star.pattern = NULL;
		} else if (*p == '*') {
			star = (struct retry){++p, s};
		} else if (!one_match(&p, &s) && !retry_star(&star, &p, &s)) {
			star.pattern = NULL;
			if (!retry_deep(&deep, whole, &p, &s))
				return false;
		}
	}
	while (*p == '*')
		p++;
	return *p == 0;
}

static bool parse(const char *text, struct pattern *out)
{
	*out = (struct pattern){.negated = text[0] == '!'};
	text += out->negated;
	size_t len = strlen(text);

	if (len && text[len - 1] == '/') {
		out->dirs_only = true;
		len--;
	}
	out->anchored = memchr(text, '/', len) != NULL;
	if (len && text[0] == '/') {
		text++;
		len--;
	}
	out->glob = strndup(text, len);
	return out->glob != NULL;
}

int rcp_excludes_new(const char *const *patterns, struct rcp_err *err, struct rcp_excludes **out)
{
	size_t n = 0;

	*out = NULL;
	while (patterns && patterns[n])
		n++;
	if (!n)
		return 0;
	struct rcp_excludes *e = calloc(1, sizeof(*e) + n * sizeof(e->of[0]));

	for (; e && e->count < n; e->count++) {
		if (!parse(patterns[e->count], &e->of[e->count]))
			rcp_excludes_free(&e);
		if (!e)
			break;
	}
	*out = e;
	return e ? 0 : rcp_io_fail(err, ENOMEM, "calloc", "--exclude");
}

void rcp_excludes_free(struct rcp_excludes **excludes)
{
	struct rcp_excludes *e = *excludes;

	for (size_t i = 0; e && i < e->count; i++)
		free(e->of[i].glob);
	free(e);
	*excludes = NULL;
}

bool rcp_excluded(const struct rcp_excludes *excludes, const char *below, const char *name,
		  bool is_dir)
{
	for (size_t i = excludes ? excludes->count : 0; i-- > 0;) {
		const struct pattern *p = &excludes->of[i];

		if (p->dirs_only && !is_dir)
			continue;
		if (p->anchored ? below[0] && rcp_glob_match(p->glob, below)
				: rcp_glob_match(p->glob, name))
			return !p->negated;
	}
	return false;
}
