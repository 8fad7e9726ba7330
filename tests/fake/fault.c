/*
 * Faults by script. RCP_FAKE_FAULTS holds rules, separated by ';':
 *
 *   WHAT[:NAME] N[+] [WORD] [NUMBER]
 *
 * The Nth of its kind in this process is hit; with '+' it and all after it.
 *
 *   call:FUNCTION N ERRNO        the call fails: call:ibv_reg_mr 1 ENOMEM
 *   wc[:send|recv] N STATUS      the completion has this status: RETRY_EXC RNR_RETRY_EXC REM_ACCESS
 *                                REM_OP REM_INV_REQ LOC_LEN LOC_PROT LOC_QP_OP WR_FLUSH GENERAL
 * FATAL wc-late[:send|recv] N MS     it comes so much later wc-lost[:send|recv] N        it never
 * comes flush[:send|recv] N          after it the QP breaks, and everything posted is flushed
 *   port-down N, fatal N         after that completion: the port goes down, the device is removed
 *   rnr N                        the message that wants a receive finds none
 *   retry N                      the request meets silence: retries exceeded
 *   access N                     the write is refused: remote access error
 *   flip N OFFSET                one bit of the write is another (below 64: of the chunk's header)
 *   twice N                      the write is placed once more, after its place was written again
 *   swap N                       the write with immediate is told of after the next one
 *   forge N BITS                 other immediate data: another slot's
 *   cm:EVENT N lost|late MS|rejected STATUS     ESTABLISHED, CONNECT_REQUEST, DISCONNECTED, ...;
 *   cm:REQ N lost, cm:REP, cm:RTU               the frame itself
 *   slow:rdma_connect N MS       it returns only so much later, its work done
 *   private N BYTES              private data comes in that length
 */
#include "fake.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define RULES_MAX 32
static struct fk_rule rules[RULES_MAX];
static unsigned rule_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static const struct word {
	const char *name;
	long value;
} words[] = {
	{"call", FK_F_CALL},	{"wc", FK_F_WC},	 {"wc-late", FK_F_LATE},
	{"wc-lost", FK_F_LOST}, {"flush", FK_F_FLUSH},	 {"rnr", FK_F_RNR},
	{"retry", FK_F_RETRY},	{"access", FK_F_ACCESS}, {"flip", FK_F_FLIP},
	{"twice", FK_F_TWICE},	{"swap", FK_F_SWAP},	 {"port-down", FK_F_PORT},
	{"fatal", FK_F_FATAL},	{"cm", FK_F_CM},	 {"private", FK_F_PRIVATE},
	{"forge", FK_F_FORGE},	{"slow", FK_F_SLOW},
};
static const struct word numbers[] = {
	{"ENOMEM", ENOMEM},
	{"EINVAL", EINVAL},
	{"EIO", EIO},
	{"EFAULT", EFAULT},
	{"EPERM", EPERM},
	{"EACCES", EACCES},
	{"ENODEV", ENODEV},
	{"ENOSYS", ENOSYS},
	{"ENOENT", ENOENT},
	{"EADDRINUSE", EADDRINUSE},
	{"EADDRNOTAVAIL", EADDRNOTAVAIL},
	{"EAGAIN", EAGAIN},
	{"ETIMEDOUT", ETIMEDOUT},
	{"ENETUNREACH", ENETUNREACH},
	{"EHOSTUNREACH", EHOSTUNREACH},
	{"ECONNREFUSED", ECONNREFUSED},
	{"EOPNOTSUPP", EOPNOTSUPP},
	{"EMFILE", EMFILE},
	{"RETRY_EXC", IBV_WC_RETRY_EXC_ERR},
	{"RNR_RETRY_EXC", IBV_WC_RNR_RETRY_EXC_ERR},
	{"REM_ACCESS", IBV_WC_REM_ACCESS_ERR},
	{"REM_OP", IBV_WC_REM_OP_ERR},
	{"REM_INV_REQ", IBV_WC_REM_INV_REQ_ERR},
	{"LOC_LEN", IBV_WC_LOC_LEN_ERR},
	{"LOC_PROT", IBV_WC_LOC_PROT_ERR},
	{"LOC_QP_OP", IBV_WC_LOC_QP_OP_ERR},
	{"WR_FLUSH", IBV_WC_WR_FLUSH_ERR},
	{"GENERAL", IBV_WC_GENERAL_ERR},
	{"FATAL", IBV_WC_FATAL_ERR},
};

static long find(const struct word *w, size_t count, const char *name)
{
	for (size_t i = 0; i < count; i++) {
		if (!strcmp(w[i].name, name))
			return w[i].value;
	}
	return -1;
}
#define FIND(w, name) find(w, sizeof(w) / sizeof((w)[0]), name)

/* An argument: a number, a known name, or a word of the kind's own. */
static bool argument(struct fk_rule *r, const char *text)
{
	long n = FIND(numbers, text);

	if (n >= 0)
		r->number = n;
	else if (isdigit((unsigned char)text[0]) || text[0] == '-')
		r->number = strtol(text, NULL, 0);
	else if (strlen(text) < sizeof(r->word))
		strcpy(r->word, text);
	else
		return false;
	return true;
}

static bool rule_parse(struct fk_rule *r, char *text)
{
	char *save = NULL, *what = strtok_r(text, " \t\n", &save), *end;
	char *n = strtok_r(NULL, " \t\n", &save), *colon;

	if (!what)
		return true; /* nothing */
	colon = strchr(what, ':');
	if (colon) {
		*colon++ = 0;
		if (strlen(colon) >= sizeof(r->name))
			return false;
		strcpy(r->name, colon);
	}
	long kind = FIND(words, what);

	if (kind < 0 || !n)
		return false;
	r->what = (enum fk_fault)kind;
	r->n = (unsigned)strtoul(n, &end, 10);
	r->on = *end == '+';
	if (!r->n || (*end && *end != '+'))
		return false;
	for (char *w = strtok_r(NULL, " \t\n", &save); w; w = strtok_r(NULL, " \t\n", &save)) {
		if (!argument(r, w))
			return false;
	}
	rule_count++;
	return true;
}

bool fk_fault_parse(const char *text)
{
	char *copy = strdup(text), *save = NULL;
	bool ok = copy != NULL;

	memset(rules, 0, sizeof(rules));
	rule_count = 0;
	for (char *w = ok ? strtok_r(copy, ";", &save) : NULL; ok && w;
	     w = strtok_r(NULL, ";", &save))
		ok = rule_count < RULES_MAX && rule_parse(&rules[rule_count], w);
	free(copy);
	return ok;
}

const struct fk_rule *fk_fault(enum fk_fault what, const char *name)
{
	const struct fk_rule *hit = NULL;

	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < rule_count; i++) {
		struct fk_rule *r = &rules[i];

		if (r->what != what || (r->name[0] && strcmp(r->name, name) != 0))
			continue;
		r->seen++;
		if (!hit && (r->seen == r->n || (r->on && r->seen > r->n)))
			hit = r;
	}
	pthread_mutex_unlock(&lock);
	return hit;
}

int fk_fault_call(const char *name)
{
	const struct fk_rule *r = fk_fault(FK_F_CALL, name);

	return r ? (int)r->number : 0;
}
