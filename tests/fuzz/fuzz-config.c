/* What a daemon's administrator writes: rcpd.conf and key files. The first byte says which; bit 7, that it is read
 * from a file, with all that is looked up then; bit 6, that others may read that file; bit 5, that it is the name of a
 * new key. */
#include "dir.h"
#include "fuzz.h"

#include "boot/config.h"

#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void config_is_whole(const struct rcp_config *c)
{
	MUST(c->module_count && c->keys && c->port >= 1 && c->port <= 65535 && c->max_connections);
	for (size_t i = 0; i < c->module_count; i++) {
		const struct rcp_module *m = &c->modules[i];

		MUST(m->path && m->path[0] == '/' && m->keys && m->keys[0] && !rcp_key_name_refuse(m->name));
		MUST(rcp_config_module(c, m->name, "nobody's") == NULL || rcp_module_allows(m, "nobody's"));
		for (char **k = m->keys; *k; k++)
			MUST(strcmp(*k, "*") == 0 || rcp_config_module(c, m->name, *k) == m);
	}
	MUST(!rcp_config_module(c, "", "*"));
}

static void config(const char *text, size_t len)
{
	struct rcp_config c;
	struct rcp_err err = {0};

	if (rcp_config_parse(text, len, "conf", &err, &c) == 0)
		config_is_whole(&c);
	else
		MUST(rcp_err_is(&err) && err.object[0]);
	rcp_config_free(&c);
}

static const char *file(const void *text, size_t len)
{
	static char path[PATH_MAX + 8];

	fuzz_dir_write(fuzz_dir(), "f", text, len);
	snprintf(path, sizeof(path), "%s/f", fuzz_dir_path());
	return path;
}

/* "@" stands for a directory that is there: its path is not the same twice. */
static void config_file(const char *text, size_t len)
{
	char *whole = malloc(len * (strlen(fuzz_dir_path()) + 1) + 1), *to = whole;
	struct rcp_config c;
	struct rcp_err err = {0};

	MUST(whole);
	for (size_t i = 0; i < len; i++) {
		if (text[i] == '@')
			to = stpcpy(to, fuzz_dir_path());
		else
			*to++ = text[i];
	}
	if (rcp_config_load(file(whole, (size_t)(to - whole)), &err, &c) == 0)
		config_is_whole(&c);
	else
		MUST(rcp_err_is(&err) && !c.modules && !c.keys);
	rcp_config_free(&c);
	free(whole);
}

static void ring_is_right(const struct rcp_keyring *ring)
{
	for (size_t i = 0; i < ring->count; i++) {
		MUST(!rcp_key_name_refuse(ring->keys[i].name));
		MUST(rcp_keyring_find(ring, ring->keys[i].name) == &ring->keys[i]);
	}
}

static void keyring(const char *text, size_t len, bool from_file)
{
	struct rcp_keyring ring = {0};
	struct rcp_err err = {0};
	int rc = from_file ? rcp_keyring_read(&ring, file(text, len), &err)
			   : rcp_keyring_parse(&ring, text, len, "key", &err);

	MUST((rc == 0) == !rcp_err_is(&err));
	ring_is_right(&ring);
	rcp_keyring_free(&ring);
}

/* The keys that a configuration from a file may name. */
static void make_keys(void)
{
	static const char line[] = "a 00112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF\n";
	int keys;

	mkdirat(fuzz_dir(), "keys", 0700);
	keys = openat(fuzz_dir(), "keys", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	MUST(keys >= 0);
	fuzz_dir_write(keys, "a", line, sizeof(line) - 1);
	close(keys);
}

/* A key that is made can be read; a file that is there is not written over. */
static void new_key(const char *key)
{
	char line[RCP_KEY_LINE], path[PATH_MAX + 8];
	struct rcp_keyring ring = {0};
	struct rcp_err err = {0};

	if (rcp_key_make(key, &err, line)) {
		MUST(err.code == RCP_E_USAGE && rcp_key_name_refuse(key));
		return;
	}
	snprintf(path, sizeof(path), "%s/new", fuzz_dir_path());
	MUST(rcp_key_write(path, line, &err) == 0);
	MUST(rcp_keyring_read(&ring, path, &err) == 0 && ring.count == 1 && !strcmp(ring.keys[0].name, key));
	MUST(rcp_key_write(path, line, &err) == RCP_E_IO);
	MUST(unlink(path) == 0);
	rcp_keyring_free(&ring);
}

static void no_keys(const char *name)
{
	char path[PATH_MAX + 8];
	struct rcp_keyring ring = {0};
	struct rcp_config c;
	struct rcp_err err = {0};

	snprintf(path, sizeof(path), "%s/%s", fuzz_dir_path(), name);
	MUST(rcp_keyring_read(&ring, path, &err) == RCP_E_USAGE && !ring.count);
	err = (struct rcp_err){0};
	if (strcmp(name, "fifo") != 0)
		MUST(rcp_config_load(path, &err, &c) == RCP_E_USAGE);
}

/* Others can read it, or it is no file: refused, whatever is in it. */
static void open_file(const char *text, size_t len, bool dir)
{
	struct rcp_keyring ring = {0};
	struct rcp_err err = {0};
	const char *path = file(text, len);

	mkfifoat(fuzz_dir(), "fifo", 0600);
	mkdirat(fuzz_dir(), "open", 0700);
	MUST(fchmodat(fuzz_dir(), "open", 0777, 0) == 0);
	no_keys("fifo");
	no_keys("open");
	no_keys("nothing");

	MUST(fchmodat(fuzz_dir(), "f", 0644, 0) == 0);
	MUST(rcp_keyring_read(&ring, dir ? fuzz_dir_path() : path, &err) == RCP_E_USAGE && !ring.count);
	MUST(unlinkat(fuzz_dir(), "f", 0) == 0 && unlinkat(fuzz_dir(), "fifo", 0) == 0);
	rcp_keyring_free(&ring);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text;

	if (!size)
		return 0;
	text = calloc(1, size);
	MUST(text);
	memcpy(text, data + 1, size - 1);
	if (data[0] & 128)
		make_keys();
	if (data[0] & 32)
		new_key(text);
	else if (data[0] & 64)
		open_file(text, size - 1, data[0] & 1);
	else if (data[0] & 1)
		keyring(text, size - 1, data[0] & 128);
	else if (data[0] & 128)
		config_file(text, size - 1);
	else
		config(text, size - 1);
	free(text);
	return 0;
}
