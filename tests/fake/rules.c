/* Rules that were broken, and what is left at exit. */
#include "fake.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void (*fk_breach_hook)(const char *text);

void fk_breach(const char *fmt, ...)
{
	char text[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (fk_breach_hook) {
		fk_breach_hook(text);
		return;
	}
	fprintf(stderr, "fake verbs: %s\n", text);
	abort();
}

static bool all_gone(void)
{
	bool gone = true;

	FK_LOCK();
	for (unsigned i = 0; i < sizeof(fk.count) / sizeof(fk.count[0]); i++)
		gone &= !fk.count[i];
	FK_UNLOCK();
	return gone;
}

/* Everything that was made must be destroyed: exit status 99 otherwise. A moment is left for a
 * thread that takes a connection down (src/link/verbs/dial.c). */
void fk_exit_check(void)
{
	static const char *const names[] = {
		"open devices", "PDs", "MRs",	      "completion channels",
		"CQs",		"QPs", "rdma_cm ids", "rdma_cm channels"};
	bool left = false;

	if (!fk.running)
		return; /* a child's, registered by its parent too */
	for (int i = 0; i < 1000 && !all_gone(); i++)
		usleep(1000);
	fk_stop();
	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (fk.count[i])
			fprintf(stderr, "fake verbs: at exit: %u %s left\n", fk.count[i], names[i]);
		left |= fk.count[i] != 0;
	}
	for (unsigned i = 0; i < fk.nic_count; i++) {
		struct fk_ctx *c = fk.nics[i].cm_ctx;

		if (c && c->objects) {
			fprintf(stderr, "fake verbs: at exit: %u objects of %s left\n", c->objects,
				fk.nics[i].device.name);
			left = true;
		}
		if (c)
			fk_evq_close(&c->events);
		free(c);
	}
	if (left)
		_exit(99);
}
