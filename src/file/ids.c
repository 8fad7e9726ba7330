#include "file/ids.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REMEMBERED	 16
#define LOOKUP_BYTES_MAX ((size_t)1 << 20) /* a group's members fill the buffer too */

struct known {
	bool used, found;
	uint32_t id;
	char name[RCP_ID_NAME_MAX];
};

struct memory {
	struct known of[REMEMBERED];
	unsigned next;
};

static _Thread_local struct memory names[2], numbers[2];

static struct known *remember(struct memory *m)
{
	struct known *k = &m->of[m->next++ % REMEMBERED];

	*k = (struct known){.used = true};
	return k;
}

static int ask_user(const char *name, struct known *k, char *buf, size_t size)
{
	struct passwd pw, *found = NULL;
	int rc = name ? getpwnam_r(name, &pw, buf, size, &found)
		      : getpwuid_r((uid_t)k->id, &pw, buf, size, &found);

	k->found = rc == 0 && found;
	if (k->found && name)
		k->id = pw.pw_uid;
	else if (k->found)
		snprintf(k->name, sizeof(k->name), "%s", pw.pw_name);
	return rc;
}

static int ask_group(const char *name, struct known *k, char *buf, size_t size)
{
	struct group gr, *found = NULL;
	int rc = name ? getgrnam_r(name, &gr, buf, size, &found)
		      : getgrgid_r((gid_t)k->id, &gr, buf, size, &found);

	k->found = rc == 0 && found;
	if (k->found && name)
		k->id = gr.gr_gid;
	else if (k->found)
		snprintf(k->name, sizeof(k->name), "%s", gr.gr_name);
	return rc;
}

static void ask(enum rcp_id_kind kind, const char *name, struct known *k)
{
	for (size_t size = 1024; size <= LOOKUP_BYTES_MAX; size *= 4) {
		char *buf = malloc(size);
		int rc = !buf		       ? ENOMEM
			 : kind == RCP_ID_USER ? ask_user(name, k, buf, size)
					       : ask_group(name, k, buf, size);

		free(buf);
		if (rc != ERANGE)
			return;
	}
}

void rcp_id_name(enum rcp_id_kind kind, uint32_t id, char out[RCP_ID_NAME_MAX])
{
	struct memory *m = &names[kind];
	struct known *k = NULL;

	for (unsigned i = 0; i < REMEMBERED && !k; i++) {
		if (m->of[i].used && m->of[i].id == id)
			k = &m->of[i];
	}
	if (!k) {
		k = remember(m);
		k->id = id;
		ask(kind, NULL, k);
	}
	memcpy(out, k->name, RCP_ID_NAME_MAX);
}

uint32_t rcp_id_number(enum rcp_id_kind kind, const char *name, size_t len, uint32_t otherwise)
{
	struct memory *m = &numbers[kind];
	struct known *k = NULL;

	if (len == 0 || len >= RCP_ID_NAME_MAX)
		return otherwise;
	for (unsigned i = 0; i < REMEMBERED && !k; i++) {
		if (m->of[i].used && strlen(m->of[i].name) == len &&
		    !memcmp(m->of[i].name, name, len))
			k = &m->of[i];
	}
	if (!k) {
		k = remember(m);
		memcpy(k->name, name, len);
		ask(kind, k->name, k);
	}
	return k->found ? k->id : otherwise;
}
