#include "cli/faults.h"

#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fault_free(struct rcp_fault *f)
{
	const char *const owned[] = {f->call, f->object, f->reason, f->fix};

	for (size_t i = 0; i < 4; i++) {
		char *s;

		memcpy(&s, &owned[i], sizeof(s)); /* const for readers, ours to free */
		free(s);
	}
}

static bool fault_copy(const struct rcp_fault *from, struct rcp_fault *to)
{
	*to = *from;
	to->call = strdup(from->call);
	to->object = strdup(from->object);
	to->reason = strdup(from->reason);
	to->fix = strdup(from->fix);
	if (to->call && to->object && to->reason && to->fix)
		return true;
	fault_free(to);
	return false;
}

static bool grow(struct cli_faults *faults)
{
	if (faults->count < faults->room)
		return true;
	size_t room = faults->room ? 2 * faults->room : 16;
	struct rcp_fault *kept = reallocarray(faults->kept, room, sizeof(*kept));

	if (!kept)
		return false;
	faults->kept = kept;
	faults->room = room;
	return true;
}

static bool same_kind(const struct rcp_fault *a, const struct rcp_fault *b)
{
	return !strcmp(a->reason, b->reason) && !strcmp(a->call, b->call) && !strcmp(a->fix, b->fix);
}

static bool warning_add(struct cli_faults *faults, const struct rcp_fault *fault)
{
	size_t i = 0;

	faults->warnings++;
	if (fault->code == RCP_EXIT_LINK || fault->code == RCP_EXIT_CONNECT)
		return false; /* the connection's: news now, none at the end */
	while (i < faults->kind_count && !same_kind(&faults->kinds[i].first, fault))
		i++;
	if (i == CLI_WARNINGS_KEPT)
		return false;
	if (i == faults->kind_count) {
		if (!fault_copy(fault, &faults->kinds[i].first))
			return false;
		faults->kinds[i].count = 0;
		faults->kind_count++;
	}
	faults->kinds[i].count++;
	return true;
}

bool cli_faults_add(struct cli_faults *faults, const struct rcp_fault *fault)
{
	if (fault->warning)
		return warning_add(faults, fault);
	if (faults->count < CLI_FAULTS_KEPT && grow(faults) &&
	    fault_copy(fault, &faults->kept[faults->count]))
		faults->count++;
	else
		faults->omitted++;
	return true;
}

void cli_faults_free(struct cli_faults *faults)
{
	for (size_t i = 0; i < faults->count; i++)
		fault_free(&faults->kept[i]);
	for (size_t i = 0; i < faults->kind_count; i++)
		fault_free(&faults->kinds[i].first);
	free(faults->kept);
	*faults = (struct cli_faults){0};
}

/* One part escaped, with what goes before and after it if it isn't empty. */
static size_t put(char *buf, size_t size, size_t at, const char *before, const char *part,
		  const char *after)
{
	if (!part[0] || at + strlen(before) + 1 >= size)
		return at;
	at += (size_t)snprintf(buf + at, size - at, "%s", before);
	rcp_name_escape(buf + at, size - at, part, strlen(part));
	at += strlen(buf + at);
	int n = snprintf(buf + at, size - at, "%s", after);

	return n >= 0 && (size_t)n < size - at ? at + (size_t)n : size - 1;
}

char *cli_fault_format(const struct rcp_fault *f, char *buf, size_t size)
{
	const char *sys = f->sys_errno ? strerror(f->sys_errno) : "";
	size_t at = 0;

	buf[0] = 0;
	if (strstr(f->reason, sys))
		sys = ""; /* said already */
	at = put(buf, size, at, "", f->object, f->call[0] || f->reason[0] || sys[0] ? ": " : "");
	at = put(buf, size, at, "", f->call, f->reason[0] || sys[0] ? ": " : "");
	at = put(buf, size, at, "", f->reason, sys[0] ? ": " : "");
	at = put(buf, size, at, "", sys, "");
	put(buf, size, at, " (", f->fix, ")");
	return buf;
}
