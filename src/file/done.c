#include "file/done.h"

#include "base/clock.h"
#include "base/keys.h"
#include "file/io.h"
#include "file/part.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

enum {
	PENDING = 2048,	       /* keys not yet written */
	WORTH_FILES = 32,      /* the list is made; for less than this, these bytes or a second must have gone into it */
	WORTH_BYTES = 16 << 20,
	MOST = 4 << 20,	       /* keys taken from a list: 64 MiB; of a longer one the rest is copied again */
	PATH_MOST = 4096,
};

static const char magic[16] = "rcp-done 1\n";

struct header {
	char magic[16];
	uint64_t secret[2];
};

struct rcp_done {
	pthread_mutex_t lock;
	int root, fd; /* fd -1: no file yet, or none can be kept */
	bool opened, given_up;
	char name[32];
	struct rcp_keys *keys;
	uint64_t secret[2];
	bool any; /* the list had keys */
	struct rcp_key pending[PENDING];
	size_t count;
	uint64_t end; /* bytes of the file */
	uint64_t begun_ns, first_ns; /* when the first came, and the first of pending */
	uint64_t files, bytes;	     /* of this run */
};

struct rcp_done *rcp_done_new(int root, const char *source, const char *rename)
{
	struct rcp_done *d = calloc(1, sizeof(*d));
	uLong which = crc32(0, NULL, 0);

	if (!d)
		return NULL;
	for (int i = 0; i < 2; i++) {
		const char *text = (i ? rename : source) ? (i ? rename : source) : "";

		which = crc32(which, (const Bytef *)text, (uInt)strlen(text) + 1);
	}
	snprintf(d->name, sizeof(d->name), ".%08lx%s", which & 0xffffffff, RCP_DONE_SUFFIX);
	pthread_mutex_init(&d->lock, NULL);
	d->root = root;
	d->fd = -1;
	return d;
}

/* ---- the file ---- */

static bool is_named(const struct rcp_done *d)
{
	struct stat own, st;

	return d->fd >= 0 && fstat(d->fd, &own) == 0 && fstatat(d->root, d->name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	       rcp_io_same(&own, &st);
}

static void give_up(struct rcp_done *d)
{
	rcp_io_close(&d->fd);
	d->given_up = true;
	d->count = 0;
}

static void read_keys(struct rcp_done *d)
{
	struct rcp_key block[1024];
	ssize_t n;

	while (d->end < sizeof(struct header) + MOST * sizeof(block[0]) &&
	       (n = rcp_io_pread(d->fd, block, sizeof(block), d->end)) >= (ssize_t)sizeof(block[0])) {
		size_t whole = (size_t)n / sizeof(block[0]);

		for (size_t i = 0; i < whole; i++)
			rcp_keys_add(d->keys, block[i]);
		d->end += whole * sizeof(block[0]);
		d->any = true;
	}
}

/* Its beginning: false where it is none of ours. One that was cut off while it was made is removed. */
static bool read_header(struct rcp_done *d, struct header *h)
{
	ssize_t n = rcp_io_pread(d->fd, h, sizeof(*h), 0);

	if (n < 0 || memcmp(h->magic, magic, (size_t)n < sizeof(magic) ? (size_t)n : sizeof(magic)) != 0)
		return false;
	if (n < (ssize_t)sizeof(*h)) {
		unlinkat(d->root, d->name, 0);
		rcp_io_close(&d->fd);
	}
	return true;
}

/* What an earlier run left; another rcp may hold it. */
static void take_up(struct rcp_done *d)
{
	struct header h;
	struct stat st;

	d->fd = openat(d->root, d->name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (d->fd < 0)
		d->given_up = errno != ENOENT;
	else if (fstat(d->fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid() ||
		 flock(d->fd, LOCK_EX | LOCK_NB) < 0 || !is_named(d) || !read_header(d, &h))
		give_up(d);
	d->keys = rcp_keys_new(d->fd >= 0 ? h.secret : NULL);
	if (!d->keys)
		give_up(d);
	if (d->fd >= 0) {
		d->end = sizeof(h);
		read_keys(d);
	}
}

/* The lock is held. */
static void begin(struct rcp_done *d)
{
	if (!d->opened)
		take_up(d);
	d->opened = true;
}

static void create(struct rcp_done *d)
{
	struct header h;

	memcpy(h.magic, magic, sizeof(magic));
	rcp_keys_secret(d->keys, h.secret);
	d->fd = openat(d->root, d->name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (d->fd < 0 || flock(d->fd, LOCK_EX | LOCK_NB) < 0 || rcp_io_pwrite(d->fd, &h, sizeof(h), 0) < 0)
		give_up(d);
	d->end = sizeof(h);
}

/* Room for the next keys, while there is any: it is when the disk is full that they are needed. */
static void reserve(const struct rcp_done *d)
{
	if (d->fd >= 0)
		(void)!fallocate(d->fd, FALLOC_FL_KEEP_SIZE, (off_t)d->end, sizeof(d->pending));
}

static void flush(struct rcp_done *d)
{
	size_t len = d->count * sizeof(d->pending[0]);

	if (d->count && d->fd < 0)
		create(d);
	if (!d->count)
		return;
	if (rcp_io_pwrite(d->fd, d->pending, len, d->end) < 0) {
		give_up(d);
		return;
	}
	d->end += len;
	d->count = 0;
}

/* ---- keys ---- */

static struct rcp_key key_of(const struct rcp_done *d, const char *path, const struct rcp_file_id *id,
			     const struct stat *at)
{
	const uint64_t who[] = {id->dev, id->ino, (uint64_t)id->mtime_s, id->mtime_ns, id->ctime,
				at->st_ino, (uint64_t)at->st_mtim.tv_sec, (uint64_t)at->st_mtim.tv_nsec,
				(uint64_t)at->st_ctim.tv_sec, (uint64_t)at->st_ctim.tv_nsec};
	size_t len = strnlen(path, PATH_MOST);
	uint8_t all[sizeof(who) + PATH_MOST];

	memcpy(all, who, sizeof(who));
	memcpy(all + sizeof(who), path, len);
	return rcp_keys_key(d->keys, all, sizeof(who) + len, id->size, (uint64_t)at->st_size);
}

bool rcp_done_has(struct rcp_done *d, const char *path, const struct rcp_file_id *id, struct rcp_kept_dir *kept)
{
	struct rcp_err ignored = {0};
	struct rcp_part at;
	struct stat st;
	bool any;

	pthread_mutex_lock(&d->lock);
	begin(d);
	any = d->any;
	pthread_mutex_unlock(&d->lock);
	if (!any || rcp_part_locate(d->root, path, path, kept, &ignored, &at))
		return false;
	int rc = fstatat(at.dir, at.leaf, &st, AT_SYMLINK_NOFOLLOW);

	rcp_part_close(&at);
	return rc == 0 && S_ISREG(st.st_mode) && rcp_keys_has(d->keys, key_of(d, path, id, &st));
}

void rcp_done_look(const struct rcp_done *d, int fd, struct stat *st)
{
	if (!d || fstat(fd, st) < 0)
		memset(st, 0, sizeof(*st));
}

static bool was_written_to(const struct stat *before, const struct stat *now)
{
	return !rcp_io_same(before, now) || before->st_size != now->st_size ||
	       before->st_mtim.tv_sec != now->st_mtim.tv_sec || before->st_mtim.tv_nsec != now->st_mtim.tv_nsec;
}

void rcp_done_add(struct rcp_done *d, const char *path, const struct rcp_file_id *id, int fd,
		  const struct stat *nameless)
{
	struct stat st;

	if (!d || fstat(fd, &st) < 0 || was_written_to(nameless, &st))
		return;
	uint64_t now = rcp_now_ns();

	pthread_mutex_lock(&d->lock);
	begin(d);
	if (!d->given_up) {
		if (!d->begun_ns)
			d->begun_ns = now;
		if (!d->count)
			d->first_ns = now;
		d->files++;
		d->bytes += id->size;
		d->pending[d->count++] = key_of(d, path, id, &st);
		if (d->files == WORTH_FILES && d->fd < 0) {
			create(d);
			reserve(d);
		}
		if (d->count == PENDING || now - d->first_ns >= RCP_SEC) {
			flush(d);
			reserve(d);
		}
	}
	pthread_mutex_unlock(&d->lock);
}

static bool is_worth_it(const struct rcp_done *d)
{
	return d->fd >= 0 || d->bytes >= WORTH_BYTES || rcp_now_ns() - d->begun_ns >= RCP_SEC;
}

void rcp_done_free(struct rcp_done **done, bool complete)
{
	struct rcp_done *d = *done;

	if (!d)
		return;
	*done = NULL;
	if (complete)
		begin(d);
	if (complete && is_named(d))
		unlinkat(d->root, d->name, 0);
	else if (!complete && is_worth_it(d))
		flush(d);
	rcp_io_close(&d->fd);
	rcp_keys_free(&d->keys);
	pthread_mutex_destroy(&d->lock);
	free(d);
}
