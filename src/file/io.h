/*
 * What every part of src/file needs around its system calls: whole reads and writes, and one place
 * that says which errno is whose fault. Any thread; blocks. Private to src/file.
 */
#ifndef RCP_FILE_IO_H
#define RCP_FILE_IO_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

/* RCP_E_IO for what concerns the disk or the memory, RCP_E_PARTIAL for what concerns one entry. */
enum rcp_code rcp_io_code(int sys_errno);

/* rcp_err_set with that code, strerror's text, and the remedy where there is a usual one. */
int rcp_io_fail(struct rcp_err *err, int sys_errno, const char *call, const char *object);

/* Bytes read: fewer than len only at the end of the file. -1 with errno. */
ssize_t rcp_io_pread(int fd, void *buf, size_t len, uint64_t offset);
/* 0, or -1 with errno. */
int rcp_io_pwrite(int fd, const void *buf, size_t len, uint64_t offset);

/*
 * O_DIRECT: offset and buf aligned to 4 KiB, room for len rounded up to 4 KiB. As rcp_io_pread, and
 * EINVAL where this file can't be read so.
 */
#define RCP_DIRECT_ALIGN 4096u
ssize_t rcp_io_pread_direct(int fd, void *buf, size_t len, uint64_t offset);
/* ftruncate that is not interrupted: 0, or -1 with errno. */
int rcp_io_truncate(int fd, uint64_t size);

/* The job is not wanted any more: sets RCP_E_LINK, and what was begun stays for a rerun. False: go on. len: just read. */
bool rcp_io_stopped(uint64_t len, const char *object, struct rcp_err *err);

/* Closes and sets -1; -1 is fine. Keeps errno. */
void rcp_io_close(int *fd);

/*
 * A file's data before its name. rcp_io_settle_start sends what was written on its way to the disk
 * and does not wait for it (a hint: nothing comes of a failure). rcp_io_settle waits: a rename that
 * follows can't survive a power cut that the data does not. That is less than fdatasync where the
 * file system keeps the order, see io.c. 0, or -1 with errno.
 */
void rcp_io_settle_start(int fd, uint64_t offset, uint64_t len);
int rcp_io_settle(int fd);

/* fsync of a directory that is only held as O_PATH. 0, or -1 with errno. */
int rcp_io_sync_dir(int dir);

/* Or ramfs: no disk, and a page that is looked at is a page taken. */
bool rcp_io_is_tmpfs(int fd);

static inline bool rcp_io_same(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/*
 * The user's path with "~" or "~user" in front replaced by that home ("~nobody-known" stays as it
 * is). Malloc'ed; NULL without memory.
 */
char *rcp_io_expand_home(const char *path);

#endif
