/* From a member to the struct that holds it. */
#ifndef RCP_BASE_CONTAINER_H
#define RCP_BASE_CONTAINER_H

#include <stddef.h>

/* By way of void *: the struct's own alignment holds where its member was. */
#define RCP_CONTAINER(ptr, type, member) ((type *)(void *)((char *)(ptr) - offsetof(type, member)))

#endif
