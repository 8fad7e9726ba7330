#include "file/links.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static size_t slot_of(const struct rcp_link_name *of, size_t cap, uint64_t dev, uint64_t ino)
{
	uint64_t h = (ino ^ dev << 40 ^ dev >> 24) * UINT64_C(0x9e3779b97f4a7c15);
	size_t i = (size_t)(h >> 32) & (cap - 1);

	while (of[i].path && (of[i].ino != ino || of[i].dev != dev))
		i = (i + 1) & (cap - 1);
	return i;
}

static bool grow(struct rcp_links *l)
{
	size_t cap = l->cap ? l->cap * 2 : 256;
	struct rcp_link_name *of = calloc(cap, sizeof(*of));

	if (!of)
		return false;
	for (size_t i = 0; i < l->cap; i++) {
		if (l->of[i].path)
			of[slot_of(of, cap, l->of[i].dev, l->of[i].ino)] = l->of[i];
	}
	free(l->of);
	l->of = of;
	l->cap = cap;
	return true;
}

int rcp_links_seen(struct rcp_links *links, uint64_t dev, uint64_t ino, const char *path, const char **first)
{
	*first = NULL;
	if ((links->used + 1) * 4 > links->cap * 3 && !grow(links))
		return -1;
	struct rcp_link_name *n = &links->of[slot_of(links->of, links->cap, dev, ino)];

	*first = n->path;
	if (n->path)
		return 0;
	n->path = strdup(path);
	if (!n->path)
		return -1;
	n->dev = dev;
	n->ino = ino;
	links->used++;
	return 0;
}

void rcp_links_free(struct rcp_links *links)
{
	for (size_t i = 0; i < links->cap; i++)
		free(links->of[i].path);
	free(links->of);
	*links = (struct rcp_links){0};
}
