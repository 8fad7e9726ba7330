#include "session/idtab.h"

#include <stdlib.h>

static bool grow(struct rcp_idtab *t)
{
	uint32_t cap = t->cap ? t->cap * 2 : 256;
	void **slot = calloc(cap, sizeof(*slot));

	if (!slot)
		return false;
	for (uint32_t id = t->base; id != t->next; id++)
		slot[id & (cap - 1)] = t->slot[id & (t->cap - 1)];
	free(t->slot);
	t->slot = slot;
	t->cap = cap;
	return true;
}

bool rcp_idtab_add(struct rcp_idtab *t, void *entry)
{
	if (t->next - t->base == t->cap && !grow(t))
		return false;
	t->slot[t->next & (t->cap - 1)] = entry;
	t->next++;
	t->open++;
	return true;
}

void *rcp_idtab_get(const struct rcp_idtab *t, uint32_t id)
{
	if (id - t->base >= t->next - t->base)
		return NULL;
	return t->slot[id & (t->cap - 1)];
}

void rcp_idtab_end(struct rcp_idtab *t, uint32_t id)
{
	if (!rcp_idtab_get(t, id))
		return;
	t->slot[id & (t->cap - 1)] = NULL;
	t->open--;
	while (t->base != t->next && !t->slot[t->base & (t->cap - 1)])
		t->base++;
}

void *rcp_idtab_lowest(const struct rcp_idtab *t)
{
	return t->open ? t->slot[t->base & (t->cap - 1)] : NULL;
}

void rcp_idtab_free(struct rcp_idtab *t)
{
	free(t->slot);
	*t = (struct rcp_idtab){0};
}
