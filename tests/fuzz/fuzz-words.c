/* Patterns, sizes, and names that are shown. The first byte says which. */
#include "fuzz.h"

#include "base/text.h"
#include "file/beneath.h"
#include "file/exclude.h"

#include <stdbool.h>
#include <string.h>

static void shown(const char *text, size_t len)
{
	char buf[4096], line[8192];
	struct rcp_err err = {0};

	rcp_name_escape(buf, sizeof(buf), text, len);
	for (const char *p = buf; *p; p++)
		MUST((unsigned char)*p >= 0x20 && *p != 0x7f);
	rcp_json_escape(buf, sizeof(buf), text, len);
	MUST(!strpbrk(buf, "\n\r\t"));
	rcp_err_set(&err, RCP_E_IO, 5, text, text, "%s", text);
	rcp_err_fix(&err, "%s", text);
	rcp_err_format(&err, line, sizeof(line));
	MUST(!strpbrk(line, "\n\x1b"));
}

static void excludes(char *text)
{
	char *name = strchr(text, '\n');
	struct rcp_excludes *ex;
	struct rcp_err err = {0};

	if (name)
		*name++ = 0;
	const char *patterns[] = {text, NULL};

	if (rcp_excludes_new(patterns, &err, &ex) == 0) {
		rcp_excluded(ex, name ? name : text, name ? name : text, true);
		rcp_excludes_free(&ex);
	}
}

/* What is not refused holds no way out; what is joined holds nothing that is refused but "..". */
static void paths(const char *text, size_t len)
{
	char *joined = malloc(len + 1);

	MUST(joined);
	if (!rcp_path_refuse(text, len)) {
		MUST(len && text[0] != '/' && !strstr(text, "//"));
		MUST(strncmp(text, "../", 3) && !strstr(text, "/../") && strcmp(text, ".."));
	}
	MUST(rcp_path_join(text, joined) == strlen(joined));
	MUST(joined[0] != '/' && !strstr(joined, "//") && strncmp(joined, "./", 2));
	free(joined);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint64_t bytes;
	char *text;

	if (!size)
		return 0;
	text = calloc(1, size);
	MUST(text);
	memcpy(text, data + 1, size - 1);
	switch (data[0] % 4) {
	case 0:
		rcp_size_parse(text, &bytes);
		break;
	case 1:
		shown(text, size - 1);
		break;
	case 2:
		excludes(text);
		break;
	case 3:
		paths(text, size - 1);
		break;
	}
	free(text);
	return 0;
}
