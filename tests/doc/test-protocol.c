/*
 * man/rcp-protocol.7 against the code's table: every message (number, name, sender, phase) and every field
 * of every message and record, in order, nothing more and nothing less. usage: test-protocol MAN-PAGE
 */
#include "wire/msg.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *page;
static int wrong;

#define WRONG(...) (wrong++, fprintf(stderr, __VA_ARGS__))

static char *slurp(const char *path)
{
	FILE *f = fopen(path, "r");
	char *text = calloc(1, 1 << 20);

	if (!f || !text || fread(text, 1, (1 << 20) - 1, f) == 0) {
		perror(path);
		exit(1);
	}
	fclose(f);
	return text;
}

/* The next line after at; NULL at the end. */
static const char *next_line(const char *at)
{
	const char *nl = strchr(at, '\n');

	return nl && nl[1] ? nl + 1 : NULL;
}

static int starts(const char *line, const char *with)
{
	return strncmp(line, with, strlen(with)) == 0;
}

/* From line, the next row "TYPE<tab>name<tab>" before the next heading; NULL where there is none. */
static const char *next_row(const char *line)
{
	static const char *const types[] = {"U8\t", "U16\t", "U32\t", "U64\t", "K16\t", "K32\t", "STR\t", "BLOB\t"};

	while ((line = next_line(line)) && line[0] != 0 && !starts(line, ".S")) {
		for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
			if (starts(line, types[i]))
				return line;
		}
	}
	return NULL;
}

static void check_fields(const char *name, const struct rcp_field *f)
{
	static const char *const types[] = {"U8", "U16", "U32", "U64", "K16", "K32", "STR", "BLOB"};
	char want[128];
	const char *line;

	snprintf(want, sizeof(want), "\n.SS %s\n", name);
	line = strstr(page, want);
	if (!line) {
		WRONG("no section .SS %s\n", name);
		return;
	}
	line++;
	for (; f->name; f++) {
		line = next_row(line);
		snprintf(want, sizeof(want), "%s\t%s\t", types[f->type], f->name);
		if (!line || !starts(line, want)) {
			WRONG("%s: the page lacks %s %s here\n", name, types[f->type], f->name);
			return;
		}
	}
	line = next_row(line);
	if (line)
		WRONG("%s: the page has a field too many: %.20s\n", name, line);
}

static void check_row(unsigned number, const char *name, const char *who, const char *phase)
{
	char want[128];

	snprintf(want, sizeof(want), "\n%u\t%s\t%s\t%s\n", number, name, who, phase);
	if (!strstr(page, want))
		WRONG("no row: %u %s %s %s\n", number, name, who, phase);
	check_fields(name, rcp_msg_desc(number)->fields);
}

/* Rows of messages that the code does not have. */
static void check_no_more(void)
{
	for (const char *line = page; line; line = next_line(line)) {
		unsigned number;
		char name[32];
		int end = 0;

		/* A message's row is number, tab, NAME, tab; a header's row has a type and a name there. */
		if (sscanf(line, "%u\t%31[A-Z_]%n", &number, name, &end) != 2 || line[end] != '\t')
			continue;
		const struct rcp_msg_desc *d = rcp_msg_desc(number);

		if (!d || strcmp(d->name, name) != 0)
			WRONG("the page has a message that the code has not: %u %s\n", number, name);
	}
}

int main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	page = slurp(argv[1]);
#define ROW(NAME, name, number, who, phase) check_row(number, #NAME, #who, #phase);
	RCP_MESSAGES(ROW)
#undef ROW
#define RECORD(NAME, name) check_fields(#NAME, rcp_rec_fields(RCP_REC_##NAME));
	RCP_RECORDS(RECORD)
#undef RECORD
	check_no_more();
	free(page);
	return wrong != 0;
}
