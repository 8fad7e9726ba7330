/* Which inode was named first under which path: hard links for -a. One owner. */
#ifndef RCP_FILE_LINKS_H
#define RCP_FILE_LINKS_H

#include <stddef.h>
#include <stdint.h>

struct rcp_link_name {
	uint64_t dev, ino;
	char *path; /* NULL: free place */
};

/* Zeroed = empty. Grows with the files that have more than one name, and with nothing else. */
struct rcp_links {
	struct rcp_link_name *of;
	size_t cap, used; /* cap: 0 or a power of two */
};

/*
 * *first: the path that (dev, ino) was first seen under, or NULL: then it is remembered under `path`.
 * -1: there is no memory for that, and its other names would become files of their own.
 */
int rcp_links_seen(struct rcp_links *links, uint64_t dev, uint64_t ino, const char *path, const char **first);
void rcp_links_free(struct rcp_links *links);

#endif
