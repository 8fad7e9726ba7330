/* What users write: targets, sizes, patterns; and names that are shown. The first byte says which. */
#include "fuzz.h"

#include "base/text.h"
#include "boot/where.h"
#include "file/beneath.h"
#include "file/exclude.h"

#include "boot/config.h"

#include <stdbool.h>
#include <string.h>

static void where(const char *text)
{
	struct rcp_where w = {0};
	struct rcp_err err = {0};

	if (rcp_where_parse(text, &err, &w) == 0)
		MUST(w.path && (w.kind == RCP_WHERE_LOCAL) == !w.host);
	else
		MUST(rcp_err_is(&err));
	rcp_where_free(&w);
	err = (struct rcp_err){0};
	if (strncmp(text, "rcp://", 6) == 0 && rcp_where_parse_listing(text, &err, &w) == 0)
		rcp_where_free(&w);
}

static void config(const char *text, size_t len)
{
	struct rcp_config c;
	struct rcp_err err = {0};

	if (rcp_config_parse(text, len, "conf", &err, &c) == 0)
		MUST(c.module_count && c.modules[0].path && c.modules[0].keys && c.keys);
	else
		MUST(rcp_err_is(&err) && err.object[0]);
	rcp_config_free(&c);
}

static void keyring(const char *text, size_t len)
{
	struct rcp_keyring ring = {0};
	struct rcp_err err = {0};

	MUST((rcp_keyring_parse(&ring, text, len, "key", &err) == 0) == !rcp_err_is(&err));
	rcp_keyring_free(&ring);
}

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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint64_t bytes;
	char *text;

	if (!size)
		return 0;
	text = calloc(1, size);
	MUST(text);
	memcpy(text, data + 1, size - 1);
	switch (data[0] % 6) {
	case 0:
		where(text);
		break;
	case 1:
		shown(text, size - 1);
		break;
	case 2:
		excludes(text);
		break;
	case 3:
		rcp_size_parse(text, &bytes);
		rcp_path_refuse(text, size - 1);
		break;
	case 4:
		config(text, size - 1);
		break;
	case 5:
		keyring(text, size - 1);
		break;
	}
	free(text);
	return 0;
}
