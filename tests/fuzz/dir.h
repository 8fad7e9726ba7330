/*
 * A directory for one target, in memory where the system has such a place, gone at the program's end. Targets that
 * write into it drop the rights of root first: a hostile entry then makes no device, and root finds what a user does.
 */
#ifndef RCP_TESTS_FUZZ_DIR_H
#define RCP_TESTS_FUZZ_DIR_H

/* Made at the first call. Both stay. */
const char *fuzz_dir_path(void);
int fuzz_dir(void);

/* All of a directory but itself, whatever modes it has. */
void fuzz_dir_empty(int dir);
/* How many names are in it, but for . and .. */
unsigned fuzz_dir_count(int dir);

/* A file of this content below the directory. */
void fuzz_dir_write(int dir, const char *name, const void *data, unsigned long len);

#endif
