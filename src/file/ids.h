/*
 * User and group names to numbers and back, with a small memory of the last ones: a tree has few
 * owners, and a name service may be far away. Any thread (each has its own memory). Private to
 * src/file.
 */
#ifndef RCP_FILE_IDS_H
#define RCP_FILE_IDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum rcp_id_kind { RCP_ID_USER, RCP_ID_GROUP };

#define RCP_ID_NAME_MAX 256

/* The name of id into out; "" where it has none. */
void rcp_id_name(enum rcp_id_kind kind, uint32_t id, char out[RCP_ID_NAME_MAX]);

/* The id of a name on this host; `otherwise` where it has none (or name is empty). */
uint32_t rcp_id_number(enum rcp_id_kind kind, const char *name, size_t len, uint32_t otherwise);

#endif
