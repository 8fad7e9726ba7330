#include "cli/progress.h"

#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <wchar.h>

enum { WIDTH_LEAST = 8, WIDTH_MOST = 512 };

void cli_meter_feed(struct cli_meter *m, const struct rcp_progress *p)
{
	static const double memory_s = 3.0, least_s = 0.05;

	if (!m->started || p->bytes < m->bytes || p->elapsed_ns < m->at_ns) {
		m->started = true;
		m->at_ns = p->elapsed_ns;
		m->bytes = p->bytes;
		return;
	}
	double dt = (double)(p->elapsed_ns - m->at_ns) / 1e9;

	if (dt < least_s)
		return;
	double now = (double)(p->bytes - m->bytes) / dt;
	double weight = dt / (memory_s + dt);

	/* The first samples count alike, or the rate would crawl up from the first one. */
	m->samples++;
	if (weight < 1.0 / m->samples)
		weight = 1.0 / m->samples;
	m->rate += (now - m->rate) * weight;
	m->at_ns = p->elapsed_ns;
	m->bytes = p->bytes;
}

char *cli_duration(double seconds, char *buf, size_t size)
{
	if (seconds < 0 || seconds > 3600.0 * 24 * 999) {
		snprintf(buf, size, "--:--");
		return buf;
	}
	unsigned s = (unsigned)(seconds + 0.5), m = s / 60, h = m / 60;

	if (h >= 100)
		snprintf(buf, size, "%ud%02uh", h / 24, h % 24);
	else if (h)
		snprintf(buf, size, "%u:%02u:%02u", h, m % 60, s % 60);
	else
		snprintf(buf, size, "%02u:%02u", m, s % 60);
	return buf;
}

static uint32_t utf8_decode(const unsigned char *s, size_t n)
{
	static const unsigned char mask[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
	uint32_t cp = s[0] & mask[n];

	for (size_t i = 1; i < n; i++)
		cp = cp << 6 | (s[i] & 0x3f);
	return cp;
}

/* Marks that reorder the text around them would let a name rewrite the rest of the line. */
static bool reorders(uint32_t cp)
{
	return cp == 0x200e || cp == 0x200f || cp == 0x61c || (cp >= 0x202a && cp <= 0x202e) ||
	       (cp >= 0x2066 && cp <= 0x2069);
}

/* One character of a name as shown: bytes and columns. */
struct cell {
	char text[20];
	size_t len;
	unsigned columns;
};

/* Returns how many bytes of the name the cell stands for. */
static size_t cell_next(const char *name, size_t len, struct cell *cell)
{
	const unsigned char *s = (const unsigned char *)name;
	size_t n = rcp_utf8_len(s, len), take = n ? n : 1;

	rcp_name_escape(cell->text, sizeof(cell->text), name, take);
	cell->len = strlen(cell->text);
	cell->columns = (unsigned)cell->len; /* ASCII or an escape */
	if (n < 2 || cell->len != n || memcmp(cell->text, name, n) != 0)
		return take;
	uint32_t cp = utf8_decode(s, n);
	int columns = wcwidth((wchar_t)cp);

	if (columns >= 0 && !reorders(cp)) {
		cell->columns = (unsigned)columns;
		return take;
	}
	cell->len = 0; /* not for this locale's terminal: by bytes */
	for (size_t i = 0; i < n; i++)
		cell->len += (size_t)sprintf(cell->text + cell->len, "\\x%02x", s[i]);
	cell->columns = (unsigned)cell->len;
	return take;
}

static unsigned name_columns(const char *name, size_t len)
{
	struct cell cell;
	unsigned columns = 0;

	for (size_t i = 0; i < len;) {
		i += cell_next(name + i, len - i, &cell);
		columns += cell.columns;
	}
	return columns;
}

/* Appended text with its columns, within a buffer. */
struct shown {
	char *buf;
	size_t size, at;
	unsigned columns;
};

static void show(struct shown *out, const char *text, size_t len, unsigned columns)
{
	if (out->at + len >= out->size)
		return;
	memcpy(out->buf + out->at, text, len);
	out->at += len;
	out->columns += columns;
	out->buf[out->at] = 0;
}

static void pad(struct shown *out, unsigned columns)
{
	while (out->columns < columns && out->at + 1 < out->size)
		show(out, " ", 1, 1);
}

/* As many characters from the front as fit in `columns`. */
static void show_head(struct shown *out, const char *name, size_t len, unsigned columns)
{
	struct cell cell;

	for (size_t i = 0; i < len;) {
		i += cell_next(name + i, len - i, &cell);
		if (out->columns + cell.columns > columns)
			break;
		show(out, cell.text, cell.len, cell.columns);
	}
}

/* As many from the back, where the whole has `all` columns. */
static void show_tail(struct shown *out, const char *name, size_t len, unsigned all,
		      unsigned columns)
{
	struct cell cell;

	for (size_t i = 0; i < len;) {
		i += cell_next(name + i, len - i, &cell);
		if (all <= columns && (cell.columns || out->columns > columns))
			show(out, cell.text, cell.len, cell.columns);
		all -= cell.columns < all ? cell.columns : all;
	}
}

char *cli_name_fit(const char *name, unsigned columns, char *buf, size_t size)
{
	/* characters without width (combining marks) may not eat the room for padding */
	struct shown out = {.buf = buf, .size = size > columns ? size - columns : 1};
	size_t len = strlen(name);
	unsigned all = name_columns(name, len), dots = columns >= 8 ? 3 : 0;

	buf[0] = 0;
	if (all <= columns || !dots) {
		show_head(&out, name, len, columns);
	} else {
		/* both ends of a path say more than its middle */
		unsigned tail = (columns - dots) / 2;

		show_head(&out, name, len, columns - dots - tail);
		show(&out, "...", dots, dots);
		show_tail(&out, name, len, all, tail);
	}
	out.size = size;
	pad(&out, columns);
	return buf;
}

/* The columns right of the name, in the order shown. */
enum { PART_PERCENT, PART_BYTES, PART_RATE, PART_TIME, PART_TRANSPORT, PARTS };

struct parts {
	char text[PARTS][32];
};

/* Where it is narrow the first of these goes first; the percentage stays. */
static const int goes_first[] = {PART_TRANSPORT, PART_TIME, PART_BYTES, PART_RATE};

static size_t parts_columns(const struct parts *parts)
{
	size_t all = 0;

	for (int i = 0; i < PARTS; i++)
		all += strlen(parts->text[i]); /* ASCII only */
	return all;
}

static char *compose(const char *name, struct parts *parts, unsigned width, char *buf)
{
	enum { NAME_LEAST = 12 };

	if (width < WIDTH_LEAST)
		width = WIDTH_LEAST;
	if (width > WIDTH_MOST)
		width = WIDTH_MOST;
	for (size_t i = 0; i < sizeof(goes_first) / sizeof(goes_first[0]); i++)
		if (parts_columns(parts) + NAME_LEAST > width)
			parts->text[goes_first[i]][0] = 0;
	unsigned right = (unsigned)parts_columns(parts);

	cli_name_fit(name, width - right, buf, CLI_LINE_MAX - right);
	for (int i = 0; i < PARTS; i++)
		strcat(buf, parts->text[i]);
	return buf;
}

static void part_rate(double rate, struct parts *parts)
{
	char size[24];

	rcp_size_format(rate > 0 ? (uint64_t)rate : 0, size, sizeof(size));
	snprintf(parts->text[PART_RATE], sizeof(parts->text[0]), " %10s/s", size);
}

static void part_bytes(uint64_t bytes, struct parts *parts)
{
	char size[24];

	rcp_size_format(bytes, size, sizeof(size));
	snprintf(parts->text[PART_BYTES], sizeof(parts->text[0]), " %10s", size);
}

/* 100 only when all is there. */
static int percent(uint64_t bytes, uint64_t total)
{
	if (bytes >= total)
		return 100;
	int p = (int)(100.0 * (double)bytes / (double)total);

	return p > 99 ? 99 : p;
}

static double seconds_left(const struct rcp_progress *p, double rate)
{
	if (!p->total_final || rate < 1)
		return -1;
	return p->bytes >= p->total_bytes ? 0 : (double)(p->total_bytes - p->bytes) / rate;
}

/* "3/12 name" over several files; "/..." while they are still being counted. */
static void progress_name(const struct rcp_progress *p, char *buf, size_t size)
{
	const char *name = p->name ? p->name : "";

	if (p->total_files > 1)
		snprintf(buf, size, "%" PRIu64 "/%" PRIu64 "%s %s", p->files, p->total_files,
			 p->total_final ? "" : "+", name);
	else
		snprintf(buf, size, "%s", name);
}

char *cli_progress_bar(const struct rcp_progress *p, double rate, unsigned width, char *buf)
{
	struct parts parts = {0};
	char name[5000], time[24];

	progress_name(p, name, sizeof(name));
	if (p->total_final)
		snprintf(parts.text[PART_PERCENT], 32, " %3d%%", percent(p->bytes, p->total_bytes));
	else
		snprintf(parts.text[PART_PERCENT], 32, "  --%%");
	part_bytes(p->bytes, &parts);
	part_rate(rate, &parts);
	snprintf(parts.text[PART_TIME], 32, " %8s ETA",
		 cli_duration(seconds_left(p, rate), time, sizeof(time)));
	snprintf(parts.text[PART_TRANSPORT], 32, " %-5.5s", p->transport ? p->transport : "");
	return compose(name, &parts, width, buf);
}

char *cli_progress_end(const struct rcp_summary *s, const char *name, unsigned width, char *buf)
{
	struct parts parts = {0};
	char files[64], time[24];

	snprintf(files, sizeof(files), "%" PRIu64 " %s", s->files,
		 s->files == 1 ? "file" : "files");
	if (s->exit_code == RCP_EXIT_OK)
		snprintf(parts.text[PART_PERCENT], 32, " 100%%");
	part_bytes(s->bytes, &parts);
	part_rate(s->bytes_per_second, &parts);
	snprintf(parts.text[PART_TIME], 32, " %8s    ",
		 cli_duration(s->seconds, time, sizeof(time)));
	snprintf(parts.text[PART_TRANSPORT], 32, " %-5.5s", s->transport ? s->transport : "");
	return compose(name ? name : files, &parts, width, buf);
}

char *cli_progress_plain(const struct rcp_progress *p, double rate, char *buf)
{
	char name[512], done[24], total[24], now[24], time[24], share[16] = "--%";

	if (p->total_final)
		snprintf(share, sizeof(share), "%d%%", percent(p->bytes, p->total_bytes));
	rcp_name_escape(name, sizeof(name), p->name ? p->name : "", p->name ? strlen(p->name) : 0);
	snprintf(buf, CLI_LINE_MAX,
		 "%s, %s of %s%s, %" PRIu64 " of %" PRIu64 "%s files, %s/s, %s left, %s%s%s", share,
		 rcp_size_format(p->bytes, done, sizeof(done)),
		 rcp_size_format(p->total_bytes, total, sizeof(total)), p->total_final ? "" : "+",
		 p->files, p->total_files, p->total_final ? "" : "+",
		 rcp_size_format(rate > 0 ? (uint64_t)rate : 0, now, sizeof(now)),
		 cli_duration(seconds_left(p, rate), time, sizeof(time)),
		 p->transport ? p->transport : "connecting", name[0] ? ", " : "", name);
	return buf;
}
