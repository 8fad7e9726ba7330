#include "base/text.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t suffix_factor(char c)
{
	switch (toupper((unsigned char)c)) {
	case 'K':
		return UINT64_C(1) << 10;
	case 'M':
		return UINT64_C(1) << 20;
	case 'G':
		return UINT64_C(1) << 30;
	case 'T':
		return UINT64_C(1) << 40;
	default:
		return 0;
	}
}

int rcp_size_parse(const char *text, uint64_t *bytes)
{
	char *end;

	if (!isdigit((unsigned char)text[0]))
		return -1;
	double value = strtod(text, &end);
	size_t digits = strspn(text, "0123456789.");

	if (end != text + digits)
		return -1; /* exponents, hex floats: not sizes */
	uint64_t factor = 1;

	if (*end) {
		factor = suffix_factor(*end++);
		if (!factor)
			return -1;
		if (*end == 'i' && toupper((unsigned char)end[1]) == 'B')
			end += 2;
		if (*end)
			return -1;
	}
	if (!memchr(text, '.', digits) && factor == 1) {
		/* exact where double is not */
		unsigned long long n;

		if (digits > 19)
			return -1;
		n = strtoull(text, NULL, 10);
		if (n > INT64_MAX)
			return -1;
		*bytes = n;
		return 0;
	}
	value *= (double)factor;
	if (value >= 9.2e18)
		return -1;
	*bytes = (uint64_t)value;
	return 0;
}

char *rcp_size_format(uint64_t bytes, char *buf, size_t size)
{
	static const char unit[] = "KMGTPE";
	double v = (double)bytes;
	int i = -1;

	while (v >= 1023.95 && i < 5) {
		v /= 1024;
		i++;
	}
	if (i < 0)
		snprintf(buf, size, "%" PRIu64 " B", bytes);
	else
		snprintf(buf, size, "%.1f %ciB", v, unit[i]);
	return buf;
}

size_t rcp_utf8_len(const unsigned char *s, size_t len)
{
	size_t n;
	uint32_t cp;
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};

	if (len == 0)
		return 0;
	if (s[0] < 0x80)
		return 1;
	if (s[0] >= 0xc2 && s[0] < 0xe0)
		n = 2, cp = s[0] & 0x1f;
	else if (s[0] >= 0xe0 && s[0] < 0xf0)
		n = 3, cp = s[0] & 0x0f;
	else if (s[0] >= 0xf0 && s[0] < 0xf5)
		n = 4, cp = s[0] & 0x07;
	else
		return 0;
	if (len < n)
		return 0;
	for (size_t i = 1; i < n; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		cp = cp << 6 | (s[i] & 0x3f);
	}
	return cp < least[n] || cp > 0x10ffff || (cp >= 0xd800 && cp < 0xe000) ? 0 : n;
}

/* C1 controls (U+0080 to U+009F) move a terminal's cursor as ESC sequences do. */
static bool is_c1(const unsigned char *s, size_t n)
{
	return n == 2 && s[0] == 0xc2 && s[1] < 0xa0;
}

/* Marks, embeddings, overrides and isolates of direction make a line show another order than it has:
 * U+061C, U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069. */
static bool is_bidi(const unsigned char *s, size_t n)
{
	if (n == 2)
		return s[0] == 0xd8 && s[1] == 0x9c;
	if (n != 3 || s[0] != 0xe2)
		return false;
	return (s[1] == 0x80 && (s[2] == 0x8e || s[2] == 0x8f || (s[2] >= 0xaa && s[2] <= 0xae))) ||
	       (s[1] == 0x81 && s[2] >= 0xa6 && s[2] <= 0xa9);
}

static size_t escape_one(char *out, const unsigned char *s, size_t len, bool json)
{
	size_t n = rcp_utf8_len(s, len);

	if (s[0] == '\\' || (json && s[0] == '"'))
		return (size_t)sprintf(out, "\\%c", s[0]);
	if (s[0] == '\n')
		return (size_t)sprintf(out, "\\n");
	if (s[0] == '\t')
		return (size_t)sprintf(out, "\\t");
	if (n == 0 || s[0] < 0x20 || s[0] == 0x7f)
		return (size_t)sprintf(out, json ? "\\u00%02x" : "\\x%02x", s[0]);
	if (is_c1(s, n))
		return json ? (size_t)sprintf(out, "\\u00%02x", s[1])
			    : (size_t)sprintf(out, "\\x%02x\\x%02x", s[0], s[1]);
	if (!json && is_bidi(s, n)) {
		for (size_t i = 0; i < n; i++)
			sprintf(out + 4 * i, "\\x%02x", s[i]);
		return 4 * n;
	}
	memcpy(out, s, n);
	return n;
}

static char *escape(char *dst, size_t size, const char *name, size_t len, bool json)
{
	const unsigned char *s = (const unsigned char *)name;
	size_t at = 0;

	for (size_t i = 0; i < len;) {
		char one[16];
		size_t n = escape_one(one, s + i, len - i, json);
		size_t step = rcp_utf8_len(s + i, len - i);

		if (at + n >= size)
			break;
		memcpy(dst + at, one, n);
		at += n;
		i += step ? step : 1;
	}
	if (size)
		dst[at] = 0;
	return dst;
}

char *rcp_name_escape(char *dst, size_t size, const char *name, size_t len)
{
	return escape(dst, size, name, len, false);
}

char *rcp_json_escape(char *dst, size_t size, const char *name, size_t len)
{
	return escape(dst, size, name, len, true);
}
