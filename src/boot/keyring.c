#include "boot/keyring.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MAX (1 << 20)
#define BLANKS	 " \t"

const char *rcp_key_name_refuse(const char *name)
{
	size_t len = strlen(name);

	if (!len || len > RCP_KEY_NAME_MAX)
		return "a name has 1 to 64 characters";
	if (name[0] == '.' || name[0] == '-')
		return "a name begins with a letter or a digit";
	for (; *name; name++) {
		if (!isascii(*name) || (!isalnum((unsigned char)*name) && !strchr("._-", *name)))
			return "a name has letters, digits and . _ - only";
	}
	return NULL;
}

static int digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static bool hex_decode(const char *hex, size_t len, uint8_t out[RCP_SECRET])
{
	if (len != (size_t)2 * RCP_SECRET)
		return false;
	for (size_t i = 0; i < RCP_SECRET; i++) {
		int high = digit(hex[2 * i]), low = digit(hex[2 * i + 1]);

		if (high < 0 || low < 0)
			return false;
		out[i] = (uint8_t)(high << 4 | low);
	}
	return true;
}

static int line_wrong(struct rcp_err *err, const char *shown, unsigned number, const char *why)
{
	char at[1024];

	snprintf(at, sizeof(at), "%.1000s:%u", shown, number);
	rcp_err_set(err, RCP_E_USAGE, 0, "", at, "%s", why);
	rcp_err_fix(err, "a line is a name and 64 hexadecimal digits; rcp --keygen makes one");
	return RCP_E_USAGE;
}

static int no_memory(struct rcp_err *err, const char *what)
{
	return rcp_err_set(err, RCP_E_IO, ENOMEM, "malloc", what, NULL);
}

static int add_origin(struct rcp_keyring *ring, const char *shown, unsigned number, struct rcp_err *err)
{
	char **origins = reallocarray(ring->origins, ring->count + 1, sizeof(*origins)), at[1024];

	if (!origins)
		return no_memory(err, shown);
	ring->origins = origins;
	snprintf(at, sizeof(at), "%.1000s:%u", shown, number);
	origins[ring->count] = strdup(at);
	return origins[ring->count] ? 0 : no_memory(err, shown);
}

static int add(struct rcp_keyring *ring, const struct rcp_psk *key, const char *shown, unsigned number, struct rcp_err *err)
{
	/* Not by realloc, which would leave the old place unwiped. */
	struct rcp_psk *keys = calloc(ring->count + 1, sizeof(*keys));

	if (!keys)
		return no_memory(err, key->name);
	if (add_origin(ring, shown, number, err)) {
		free(keys);
		return (int)err->code;
	}
	if (ring->count) {
		memcpy(keys, ring->keys, ring->count * sizeof(*keys));
		rcp_secret_wipe(ring->keys, ring->count * sizeof(*keys));
	}
	free(ring->keys);
	ring->keys = keys;
	keys[ring->count++] = *key;
	return 0;
}

/* One line, without newline and the blanks around it. */
static int take_line(struct rcp_keyring *ring, const char *line, size_t len, const char *shown,
		     unsigned number, struct rcp_err *err)
{
	struct rcp_psk key = {0};
	size_t name = 0, gap;
	const char *why = "no name and key";
	const struct rcp_psk *other;
	char twice[1100];

	while (name < len && !strchr(BLANKS, line[name]))
		name++;
	for (gap = name; gap < len && strchr(BLANKS, line[gap]);)
		gap++;
	if (name && name <= RCP_KEY_NAME_MAX && gap > name && !memchr(line, 0, len)) {
		memcpy(key.name, line, name);
		why = rcp_key_name_refuse(key.name);
		if (!why && !hex_decode(line + gap, len - gap, key.key))
			why = "the key is not 64 hexadecimal digits";
		other = why ? NULL : rcp_keyring_find(ring, key.name);
		if (other) {
			snprintf(twice, sizeof(twice), "key %s is there twice, first in %s", key.name,
				 ring->origins[other - ring->keys]);
			why = twice;
		}
	}
	if (why)
		line_wrong(err, shown, number, why);
	else
		add(ring, &key, shown, number, err);
	rcp_secret_wipe(&key, sizeof(key));
	return (int)err->code;
}

int rcp_keyring_parse(struct rcp_keyring *ring, const char *text, size_t len, const char *shown,
		      struct rcp_err *err)
{
	const char *end = text + len;
	unsigned number = 0;

	while (text < end && !rcp_err_is(err)) {
		const char *nl = memchr(text, '\n', (size_t)(end - text)), *stop = nl ? nl : end;
		const char *line = text;

		number++;
		text = nl ? nl + 1 : end;
		while (stop > line && (stop[-1] == '\r' || stop[-1] == ' ' || stop[-1] == '\t'))
			stop--;
		while (line < stop && (*line == ' ' || *line == '\t'))
			line++;
		if (line < stop && *line != '#')
			take_line(ring, line, (size_t)(stop - line), shown, number, err);
	}
	return (int)err->code;
}

static int owner_refuse(const struct stat *st, mode_t forbidden, const char *path, struct rcp_err *err)
{
	if (st->st_uid != geteuid() && st->st_uid != 0) {
		rcp_err_set(err, RCP_E_USAGE, 0, "", path, "holds keys and belongs to another user (%u)",
			    (unsigned)st->st_uid);
		rcp_err_fix(err, "make it your own: chown");
	} else if (st->st_mode & forbidden) {
		rcp_err_set(err, RCP_E_USAGE, 0, "", path, "holds keys, and its mode %04o lets others at them",
			    (unsigned)(st->st_mode & 07777));
		rcp_err_fix(err, "chmod %s '%s'", S_ISDIR(st->st_mode) ? "go-w" : "600", path);
	}
	return (int)err->code;
}

/* All of a file that is ours to trust. */
static int read_file(struct rcp_keyring *ring, int fd, const char *path, struct rcp_err *err)
{
	struct stat st;
	char *text = NULL;
	size_t len = 0;
	ssize_t n = 0;

	if (fstat(fd, &st) < 0)
		return rcp_err_set(err, RCP_E_USAGE, errno, "fstat", path, NULL);
	if (!S_ISREG(st.st_mode))
		return rcp_err_set(err, RCP_E_USAGE, 0, "", path, "not a regular file");
	if (owner_refuse(&st, 077, path, err))
		return (int)err->code;
	text = malloc(FILE_MAX);
	if (!text)
		return rcp_err_set(err, RCP_E_IO, ENOMEM, "malloc", path, NULL);
	while (len < FILE_MAX && (n = read(fd, text + len, FILE_MAX - len)) > 0)
		len += (size_t)n;
	if (n < 0)
		rcp_err_set(err, RCP_E_USAGE, errno, "read", path, NULL);
	else if (len == FILE_MAX)
		rcp_err_set(err, RCP_E_USAGE, 0, "", path, "too long for a key file");
	else
		rcp_keyring_parse(ring, text, len, path, err);
	rcp_secret_wipe(text, FILE_MAX);
	free(text);
	return (int)err->code;
}

/* Hidden ones, and what an editor leaves beside the file. */
static int is_key_file(const struct dirent *e)
{
	return e->d_name[0] != '.' && e->d_name[strlen(e->d_name) - 1] != '~';
}

static void read_named(struct rcp_keyring *ring, int dir, const char *path, const char *name, struct rcp_err *err)
{
	int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	char whole[4096];

	snprintf(whole, sizeof(whole), "%.3800s/%s", path, name);
	if (fd < 0) {
		rcp_err_set(err, RCP_E_USAGE, errno, "open", whole, NULL);
		return;
	}
	read_file(ring, fd, whole, err);
	close(fd);
}

static int read_dir(struct rcp_keyring *ring, int dir, const char *path, struct rcp_err *err)
{
	struct dirent **names;
	int n = scandirat(dir, ".", &names, is_key_file, alphasort);

	if (n < 0)
		return rcp_err_set(err, RCP_E_USAGE, errno, "scandir", path, NULL);
	for (int i = 0; i < n; i++) {
		if (!rcp_err_is(err))
			read_named(ring, dir, path, names[i]->d_name, err);
		free(names[i]);
	}
	free(names);
	return (int)err->code;
}

int rcp_keyring_read(struct rcp_keyring *ring, const char *path, struct rcp_err *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat st;

	if (fd < 0) {
		int e = errno;

		rcp_err_set(err, RCP_E_USAGE, e, "open", path, NULL);
		if (e == ENOENT)
			rcp_err_fix(err, "make one: rcp --keygen NAME FILE");
		return (int)err->code;
	}
	if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) {
		if (!owner_refuse(&st, 022, path, err))
			read_dir(ring, fd, path, err);
	} else {
		read_file(ring, fd, path, err);
	}
	close(fd);
	return (int)err->code;
}

const struct rcp_psk *rcp_keyring_find(const struct rcp_keyring *ring, const char *name)
{
	for (size_t i = 0; i < ring->count; i++) {
		if (!name || strcmp(ring->keys[i].name, name) == 0)
			return &ring->keys[i];
	}
	return NULL;
}

void rcp_keyring_free(struct rcp_keyring *ring)
{
	if (ring->keys)
		rcp_secret_wipe(ring->keys, ring->count * sizeof(*ring->keys));
	for (size_t i = 0; i < ring->count; i++)
		free(ring->origins[i]);
	free(ring->origins);
	free(ring->keys);
	*ring = (struct rcp_keyring){0};
}

int rcp_key_make(const char *name, struct rcp_err *err, char line[RCP_KEY_LINE])
{
	const char *why = rcp_key_name_refuse(name);
	uint8_t key[RCP_SECRET];
	int at;

	if (why)
		return rcp_err_set(err, RCP_E_USAGE, 0, "", name, "no name for a key: %s", why);
	if (rcp_secret_random(key, sizeof(key), err))
		return (int)err->code;
	at = snprintf(line, RCP_KEY_LINE, "%s ", name);
	for (size_t i = 0; i < sizeof(key); i++)
		at += snprintf(line + at, RCP_KEY_LINE - (size_t)at, "%02x", key[i]);
	snprintf(line + at, RCP_KEY_LINE - (size_t)at, "\n");
	rcp_secret_wipe(key, sizeof(key));
	return 0;
}

int rcp_key_write(const char *path, const char *line, struct rcp_err *err)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	size_t len = strlen(line);

	if (fd < 0) {
		int e = errno;

		rcp_err_set(err, RCP_E_IO, e, "open", path, e == EEXIST ? "is there already" : NULL);
		if (e == EEXIST)
			rcp_err_fix(err, "a key is never written over: name a new file, or remove this one");
		return (int)err->code;
	}
	if (fchmod(fd, 0600) < 0 || write(fd, line, len) != (ssize_t)len || fsync(fd) < 0) {
		rcp_err_set(err, RCP_E_IO, errno, "write", path, NULL);
		unlink(path);
	}
	close(fd);
	return (int)err->code;
}
