/* rcpd.conf(5) read, and what it names looked up: users, groups, keys. */
#include "boot/config.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int wrong(struct rcp_err *err, const char *path, const struct rcp_module *m, const char *fix,
		 const char *what)
{
	char at[1024];

	snprintf(at, sizeof(at), "%.1000s:%u", path, m->line);
	rcp_err_set(err, RCP_E_USAGE, 0, "", at, "module %s: %.200s", m->name, what);
	rcp_err_fix(err, "%s", fix);
	return RCP_E_USAGE;
}

static int find_group(struct rcp_module *m, const char *path, struct rcp_err *err)
{
	struct group *g = getgrnam(m->group);
	char text[128];

	if (!g) {
		snprintf(text, sizeof(text), "there is no group %.64s", m->group);
		return wrong(err, path, m, "name one that is there", text);
	}
	m->gid = g->gr_gid;
	return 0;
}

/* As whom a module is served: a daemon of root says so for each, another one is who it is. */
static int find_user(struct rcp_module *m, const char *path, struct rcp_err *err)
{
	struct passwd *pw = m->user ? getpwnam(m->user) : NULL;
	char text[128];

	if (!m->user && geteuid() == 0)
		return wrong(err, path, m, "user = NAME", "no user, and the daemon is root's");
	if (m->user && !pw) {
		snprintf(text, sizeof(text), "there is no user %.64s", m->user);
		return wrong(err, path, m, "name one that is there", text);
	}
	m->uid = pw ? pw->pw_uid : geteuid();
	m->gid = pw ? pw->pw_gid : getegid();
	if (m->group && find_group(m, path, err))
		return (int)err->code;
	if (geteuid() != 0 && (m->uid != geteuid() || m->gid != getegid()))
		return wrong(err, path, m, "start the daemon as root, or leave user and group out",
			     "only root can serve as another user");
	return 0;
}

static int look_up(struct rcp_config *c, const char *path, struct rcp_err *err)
{
	if (rcp_keyring_read(&c->ring, c->keys, err))
		return (int)err->code;
	for (size_t i = 0; i < c->module_count; i++) {
		struct rcp_module *m = &c->modules[i];
		struct stat st;
		char text[128];

		if (stat(m->path, &st) < 0 || !S_ISDIR(st.st_mode))
			return wrong(err, path, m, "create it first", "its path is no directory");
		if (find_user(m, path, err))
			return (int)err->code;
		for (char **k = m->keys; *k; k++) {
			if (strcmp(*k, "*") == 0 || rcp_keyring_find(&c->ring, *k))
				continue;
			snprintf(text, sizeof(text), "there is no key %.64s in %.40s", *k, c->keys);
			return wrong(err, path, m, "make it: rcp --keygen NAME FILE", text);
		}
	}
	return 0;
}

/* Who can write it says as whom and what is served. */
static int check_owner(int fd, const char *path, struct rcp_err *err)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return rcp_err_set(err, RCP_E_USAGE, errno, "fstat", path, NULL);
	if ((st.st_uid != 0 && st.st_uid != geteuid()) || (st.st_mode & 022)) {
		rcp_err_set(err, RCP_E_USAGE, 0, "", path, "others can write it (owner %u, mode %04o)", (unsigned)st.st_uid,
			    (unsigned)(st.st_mode & 07777));
		rcp_err_fix(err, "make it your own, and chmod go-w '%s'", path);
	}
	return (int)err->code;
}

/* NUL-ended; NULL and err otherwise. */
static char *slurp(const char *path, struct rcp_err *err, size_t *len)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	char *text = fd < 0 ? NULL : malloc(RCP_CONFIG_MAX + 1);
	ssize_t n = fd < 0 ? -1 : 0;

	*len = 0;
	while (text && *len < RCP_CONFIG_MAX && (n = read(fd, text + *len, RCP_CONFIG_MAX - *len)) > 0)
		*len += (size_t)n;
	if (fd >= 0 && check_owner(fd, path, err))
		; /* nothing of it counts */
	else if (n < 0)
		rcp_err_set(err, RCP_E_USAGE, errno, fd < 0 ? "open" : "read", path, NULL);
	else if (!text)
		rcp_err_set(err, RCP_E_IO, ENOMEM, "malloc", path, NULL);
	else if (*len == RCP_CONFIG_MAX)
		rcp_err_set(err, RCP_E_USAGE, 0, "", path, "too long for a configuration");
	if (fd >= 0)
		close(fd);
	if (text && !rcp_err_is(err)) {
		text[*len] = 0;
		return text;
	}
	free(text);
	return NULL;
}

int rcp_config_load(const char *path, struct rcp_err *err, struct rcp_config *out)
{
	size_t len;
	char *text = slurp(path, err, &len);

	*out = (struct rcp_config){0};
	if (text && !rcp_config_parse(text, len, path, err, out))
		look_up(out, path, err);
	free(text);
	if (rcp_err_is(err))
		rcp_config_free(out);
	return (int)err->code;
}
