/*
 * Entries under way by their number. Numbers are given in order and end out of order, so a ring of
 * pointers from the lowest open one is enough. Loop's thread.
 */
#ifndef RCP_SESSION_IDTAB_H
#define RCP_SESSION_IDTAB_H

#include <stdbool.h>
#include <stdint.h>

struct rcp_idtab {
	void **slot;
	uint32_t base; /* lowest number that may be open */
	uint32_t next; /* the number that comes next */
	uint32_t open; /* how many are open */
	uint32_t cap;  /* power of two, or 0 */
};

/* Takes number t->next. False without memory. */
bool rcp_idtab_add(struct rcp_idtab *t, void *entry);
/* NULL: never was, or ended. */
void *rcp_idtab_get(const struct rcp_idtab *t, uint32_t id);
void rcp_idtab_end(struct rcp_idtab *t, uint32_t id);
/* The lowest open entry, or NULL. */
void *rcp_idtab_lowest(const struct rcp_idtab *t);
void rcp_idtab_free(struct rcp_idtab *t);

#endif
