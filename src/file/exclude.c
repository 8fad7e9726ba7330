#include "file/exclude.h"

#include "base/text.h"
#include "file/io.h"

#include <ctype.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_AHEAD 5 /* one more than a character's bytes */
#define ELEMENTS   4096u
#define WORDS	   (ELEMENTS / 64 + 1)

enum kind {
	CHAR,
	ANY,	/* ? */
	CLASS,	/* [...] */
	STAR,	/* any bytes but slashes */
	DEEP,	/* any bytes */
	ENTER,	/* before a slash, no or many whole directories: here a name begins... */
	WITHIN, /* ...and this is within one; the next element comes behind a slash */
};

struct element {
	enum kind kind;
	unsigned char c;
	const char *class;
};

struct glob {
	char *text; /* that the classes are in */
	unsigned count, tail; /* from `tail` on all elements can be nothing */
	struct element at[];
};

struct pattern {
	bool negated, dirs_only, anchored;
	struct glob *glob;
};

struct rcp_excludes {
	size_t count;
	struct pattern of[];
};

/* "[:alpha:]" at p, ASCII as gitignore has it. NULL: no such name; else what is behind it. */
static const char *named_class(const char *p, unsigned char c, bool *hit)
{
	static const struct {
		const char *name;
		int (*is)(int c);
	} all[] = {{"alnum", isalnum}, {"alpha", isalpha}, {"blank", isblank}, {"cntrl", iscntrl},
		   {"digit", isdigit}, {"graph", isgraph}, {"lower", islower}, {"print", isprint},
		   {"punct", ispunct}, {"space", isspace}, {"upper", isupper}, {"xdigit", isxdigit}};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		size_t n = strlen(all[i].name);

		if (p[0] != '[' || p[1] != ':' || strncmp(p + 2, all[i].name, n) != 0 || strncmp(p + 2 + n, ":]", 2) != 0)
			continue;
		*hit |= c < 128 && all[i].is(c);
		return p + 2 + n + 2;
	}
	return NULL;
}

/* "[...]" at p against c. *end: behind the class; NULL: no class, the bracket is itself. */
static bool class_match(const char *p, unsigned char c, const char **end)
{
	bool negated = p[1] == '!' || p[1] == '^', hit = false;
	const char *at = p + 1 + negated;

	*end = NULL;
	for (bool first = true; *at && (first || *at != ']'); first = false) {
		const char *behind = named_class(at, c, &hit);

		if (behind) {
			at = behind;
			continue;
		}
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

/* ---- a pattern, taken apart once ---- */

static void add(struct glob *g, struct element e)
{
	g->at[g->count++] = e;
	if (e.kind != STAR && e.kind != DEEP)
		g->tail = g->count;
}

static const char *add_stars(struct glob *g, const char *p)
{
	const char *end = p + strspn(p, "*");

	if (end - p == 1) {
		add(g, (struct element){.kind = STAR});
	} else if (*end == '/') {
		add(g, (struct element){.kind = ENTER});
		add(g, (struct element){.kind = WITHIN});
		end++;
	} else {
		add(g, (struct element){.kind = DEEP});
	}
	return end;
}

static const char *add_one(struct glob *g, const char *p)
{
	const char *end = NULL;

	if (*p == '*')
		return add_stars(g, p);
	if (*p == '?') {
		add(g, (struct element){.kind = ANY});
		return p + 1;
	}
	if (*p == '[')
		class_match(p, 0, &end);
	if (end) {
		add(g, (struct element){.kind = CLASS, .class = p});
		return end;
	}
	p += *p == '\\' && p[1];
	add(g, (struct element){.kind = CHAR, .c = (unsigned char)*p});
	return p + 1;
}

static void glob_free(struct glob **g)
{
	if (*g)
		free((*g)->text);
	free(*g);
	*g = NULL;
}

/* NULL with errno. */
static struct glob *glob_new(const char *text, size_t len)
{
	struct glob *g;

	if (len > ELEMENTS) {
		errno = ENAMETOOLONG;
		return NULL;
	}
	g = calloc(1, sizeof(*g) + (len + 1) * sizeof(g->at[0]));
	if (!g)
		return NULL;
	g->text = strndup(text, len);
	if (!g->text) {
		glob_free(&g);
		return NULL;
	}
	for (const char *p = g->text; *p;)
		p = add_one(g, p);
	return g;
}

/* ---- matching: all places of the pattern that the text so far can have led to, at once ---- */

/* sets[i % TEXT_AHEAD] are those before the text's byte i. */
struct match {
	const struct glob *glob;
	const char *text;
	size_t len, furthest; /* a byte that something leads to */
	uint64_t sets[TEXT_AHEAD][WORDS];
};

static void lead(struct match *m, size_t byte, unsigned element)
{
	m->sets[byte % TEXT_AHEAD][element / 64] |= UINT64_C(1) << element % 64;
	if (byte > m->furthest)
		m->furthest = byte;
}

static void any_char(struct match *m, size_t byte, unsigned i)
{
	size_t n = rcp_utf8_len((const unsigned char *)m->text + byte, m->len - byte);

	lead(m, byte + (n ? n : 1), i + 1);
}

/* Where element i leads to over the text's byte; what it leads to without one comes later in the same set. */
static void one_element(struct match *m, size_t byte, unsigned i)
{
	const struct element *e = &m->glob->at[i];
	unsigned char c = (unsigned char)m->text[byte];
	const char *end;

	if (e->kind == STAR || e->kind == DEEP || e->kind == ENTER)
		lead(m, byte, i + 1);
	switch (e->kind) {
	case CHAR:
		if (c == e->c)
			lead(m, byte + 1, i + 1);
		break;
	case ANY:
		if (c != '/')
			any_char(m, byte, i);
		break;
	case CLASS:
		if (class_match(e->class, c, &end))
			lead(m, byte + 1, i + 1);
		break;
	case STAR:
		if (c != '/')
			lead(m, byte + 1, i);
		break;
	case DEEP:
		lead(m, byte + 1, i);
		break;
	case ENTER:
		lead(m, byte, i + 2);
		break;
	case WITHIN:
		lead(m, byte + 1, i);
		if (c == '/')
			lead(m, byte + 1, i + 1);
		break;
	}
}

static bool glob_match(const struct glob *g, const char *text)
{
	struct match m = {.glob = g, .text = text, .len = strlen(text)};
	unsigned words = g->count / 64 + 1;

	lead(&m, 0, 0);
	for (size_t byte = 0; byte < m.len; byte++) {
		uint64_t *set = m.sets[byte % TEXT_AHEAD];

		if (byte > m.furthest)
			return false;
		for (unsigned w = 0; w < words; w++) {
			for (unsigned bit = 0; bit < 64 && set[w] >> bit; bit++) {
				if (set[w] >> bit & 1 && w * 64 + bit < g->count)
					one_element(&m, byte, w * 64 + bit);
			}
			set[w] = 0;
		}
	}
	for (unsigned i = g->tail; i <= g->count; i++) {
		if (m.sets[m.len % TEXT_AHEAD][i / 64] >> i % 64 & 1)
			return true;
	}
	return false;
}

bool rcp_glob_match(const char *pattern, const char *text)
{
	struct glob *g = glob_new(pattern, strlen(pattern));
	bool hit = g && glob_match(g, text);

	glob_free(&g);
	return hit;
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
	out->glob = glob_new(text, len);
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
	if (!e && errno == ENAMETOOLONG)
		return rcp_err_set(err, RCP_E_USAGE, 0, "", "--exclude", "a pattern of more than %u bytes", ELEMENTS);
	return e ? 0 : rcp_io_fail(err, errno, "calloc", "--exclude");
}

void rcp_excludes_free(struct rcp_excludes **excludes)
{
	struct rcp_excludes *e = *excludes;

	for (size_t i = 0; e && i < e->count; i++)
		glob_free(&e->of[i].glob);
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
		if (p->anchored ? below[0] && glob_match(p->glob, below)
				: glob_match(p->glob, name))
			return !p->negated;
	}
	return false;
}
