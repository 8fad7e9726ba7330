#include "file/source.h"

#include "base/crc.h"
#include "file/confine.h"
#include "file/io.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Read and CRC in turns of this size, so that the CRC finds the bytes in L2. */
#define PIECE_BYTES ((size_t)256 << 10)

#define FIX_SIZE "write what `cat` reads from it to a file, and copy that"

enum { DIRECT_UNTRIED = -1, DIRECT_NONE = -2 };

struct rcp_source {
	int fd;
	atomic_int direct; /* O_DIRECT descriptor, or one of the above */
	bool nofollow;
	struct rcp_file_id id;
	char path[];
};

static struct rcp_file_id id_of(const struct stat *st)
{
	return (struct rcp_file_id){
		.dev = st->st_dev,
		.ino = st->st_ino,
		.size = (uint64_t)st->st_size,
		.mtime_s = st->st_mtim.tv_sec,
		.mtime_ns = (uint32_t)st->st_mtim.tv_nsec,
	};
}

static bool id_equal(const struct rcp_file_id *a, const struct rcp_file_id *b)
{
	return a->dev == b->dev && a->ino == b->ino && a->size == b->size &&
	       a->mtime_s == b->mtime_s && a->mtime_ns == b->mtime_ns;
}

static int changed(const struct rcp_source *s, struct rcp_err *err, const char *when)
{
	rcp_err_set(err, RCP_E_PARTIAL, 0, "fstat", s->path, "file changed %s", when);
	rcp_err_fix(err, "copy it again when nobody writes to it");
	return RCP_E_PARTIAL;
}

/* O_NOATIME is for the owner and root only. */
static int open_quietly(const char *path, int flags)
{
	int fd = rcp_place_open(AT_FDCWD, path, path, flags | O_NOATIME);

	return fd < 0 && errno == EPERM ? rcp_place_open(AT_FDCWD, path, path, flags) : fd;
}

/* A file of the kernel's (/proc, tracefs): it tells no size and has bytes all the same, made while they are read. */
static int sizeless(const struct rcp_source *s, struct rcp_err *err)
{
	struct stat st;
	char byte;

	if (s->id.size || rcp_io_pread(s->fd, &byte, 1, 0) <= 0)
		return 0;
	if (fstat(s->fd, &st) == 0 && st.st_size)
		return changed(s, err, "after it was listed");
	rcp_err_set(err, RCP_E_PARTIAL, 0, "pread", s->path, "has content, but tells a size of 0, as files of the kernel do");
	rcp_err_fix(err, FIX_SIZE);
	return RCP_E_PARTIAL;
}

static int source_start(struct rcp_source *s, const struct rcp_file_id *expect, struct rcp_err *err)
{
	struct stat st;

	s->fd = open_quietly(s->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY |
					      (s->nofollow ? O_NOFOLLOW : 0));
	if (s->fd < 0)
		return rcp_io_fail(err, errno, "open", s->path);
	if (fstat(s->fd, &st) < 0)
		return rcp_io_fail(err, errno, "fstat", s->path);
	if (rcp_place_hidden(s->fd))
		return rcp_err_set(err, RCP_E_PARTIAL, 0, "open", s->path, "leads to one of rcp's own partial files: left out");
	if (!S_ISREG(st.st_mode))
		return rcp_err_set(err, RCP_E_PARTIAL, 0, "open", s->path, "not a regular file");
	s->id = id_of(&st);
	if (expect && !id_equal(expect, &s->id))
		return changed(s, err, "after it was listed");
	return sizeless(s, err);
}

int rcp_source_open(const char *path, bool nofollow, const struct rcp_file_id *expect,
		    struct rcp_err *err, struct rcp_source **out)
{
	size_t len = strlen(path);
	struct rcp_source *s = calloc(1, sizeof(*s) + len + 1);

	*out = NULL;
	if (!s)
		return rcp_io_fail(err, ENOMEM, "calloc", path);
	memcpy(s->path, path, len + 1);
	s->nofollow = nofollow;
	s->fd = -1;
	atomic_init(&s->direct, DIRECT_UNTRIED);
	int rc = source_start(s, expect, err);

	if (rc)
		rcp_source_close(&s);
	*out = s;
	return rc;
}

void rcp_source_close(struct rcp_source **source)
{
	struct rcp_source *s = *source;

	if (!s)
		return;
	*source = NULL;
	int direct = atomic_load(&s->direct);

	rcp_io_close(&direct);
	rcp_io_close(&s->fd);
	free(s);
}

const struct rcp_file_id *rcp_source_id(const struct rcp_source *source)
{
	return &source->id;
}

int rcp_source_fd(const struct rcp_source *source)
{
	return source->fd;
}

const char *rcp_source_path(const struct rcp_source *source)
{
	return source->path;
}

int rcp_source_check(const struct rcp_source *source, struct rcp_err *err)
{
	struct stat st;

	if (fstat(source->fd, &st) < 0)
		return rcp_io_fail(err, errno, "fstat", source->path);
	struct rcp_file_id now = id_of(&st);

	return id_equal(&now, &source->id) ? 0 : changed(source, err, "while it was copied");
}

static int truncated(const struct rcp_source *s, struct rcp_err *err, uint64_t end)
{
	struct stat st;
	bool known = fstat(s->fd, &st) == 0;

	if (known && (uint64_t)st.st_size == s->id.size) { /* sysfs: each file a page */
		rcp_err_set(err, RCP_E_PARTIAL, 0, "pread", s->path,
			    "has %" PRIu64 " bytes, but tells a size of %" PRIu64 ", as files of the kernel do", end, s->id.size);
		rcp_err_fix(err, FIX_SIZE);
		return RCP_E_PARTIAL;
	}
	/* Its end may be far before the byte that was asked for. */
	if (known && (uint64_t)st.st_size < end)
		end = (uint64_t)st.st_size;
	rcp_err_set(err, RCP_E_PARTIAL, 0, "pread", s->path,
		    "truncated while it was copied: it ends at byte %" PRIu64 ", and had %" PRIu64
		    " bytes",
		    end, s->id.size);
	rcp_err_fix(err, "copy it again when nobody writes to it");
	return RCP_E_PARTIAL;
}

int rcp_source_read(const struct rcp_source *source, uint64_t offset, void *buf, size_t len,
		    struct rcp_err *err, uint32_t *crc)
{
	uint32_t sum = 0;

	for (size_t done = 0; done < len;) {
		size_t want = len - done < PIECE_BYTES ? len - done : PIECE_BYTES;
		char *at = (char *)buf + done;
		ssize_t n = rcp_io_pread(source->fd, at, want, offset + done);

		if (n < 0)
			return rcp_io_fail(err, errno, "pread", source->path);
		if ((size_t)n < want)
			return truncated(source, err, offset + done + (size_t)n);
		sum = rcp_crc32(sum, at, want);
		done += want;
	}
	*crc = sum;
	return 0;
}

/* The path may mean another file by now: then there is no direct reading, and the usual descriptor
 * goes on with the right one. */
static int direct_open(const struct rcp_source *s)
{
	struct stat st;
	int fd = open_quietly(s->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_DIRECT |
					       (s->nofollow ? O_NOFOLLOW : 0));

	if (fd >= 0 && fstat(fd, &st) == 0 && st.st_dev == s->id.dev && st.st_ino == s->id.ino)
		return fd;
	rcp_io_close(&fd);
	return DIRECT_NONE;
}

static int direct_fd(struct rcp_source *s)
{
	int fd = atomic_load_explicit(&s->direct, memory_order_acquire);

	if (fd != DIRECT_UNTRIED)
		return fd;
	int mine = direct_open(s);

	if (atomic_compare_exchange_strong(&s->direct, &fd, mine))
		return mine;
	rcp_io_close(&mine); /* another worker was first */
	return fd;
}

int rcp_source_read_direct(struct rcp_source *source, uint64_t offset, void *buf, size_t len,
			   struct rcp_err *err, uint32_t *crc)
{
	int fd = offset % RCP_DIRECT_ALIGN ? DIRECT_NONE : direct_fd(source);

	if (fd < 0)
		return rcp_source_read(source, offset, buf, len, err, crc);
	ssize_t n = rcp_io_pread_direct(fd, buf, len, offset);

	if (n < 0 && (errno == EINVAL || errno == EOPNOTSUPP))
		return rcp_source_read(source, offset, buf, len, err, crc);
	if (n < 0)
		return rcp_io_fail(err, errno, "pread", source->path);
	if ((size_t)n < len)
		return truncated(source, err, offset + (size_t)n);
	*crc = rcp_crc32(0, buf, len);
	return 0;
}

bool rcp_source_fills_holes(const struct rcp_source *source)
{
	return rcp_io_is_tmpfs(source->fd);
}

int rcp_source_extent(const struct rcp_source *source, uint64_t offset, struct rcp_err *err,
		      uint64_t *start, uint64_t *end)
{
	uint64_t size = source->id.size;
	off_t data, hole;

	*start = *end = size;
	if (offset >= size)
		return 0;
	data = lseek(source->fd, (off_t)offset, SEEK_DATA);
	if (data < 0 && errno == ENXIO)
		return 0; /* only a hole is left, or the file has shrunk: rcp_source_check tells */
	if (data < 0 && errno != EINVAL && errno != EOPNOTSUPP)
		return rcp_io_fail(err, errno, "lseek", source->path);
	hole = data < 0 ? -1 : lseek(source->fd, data, SEEK_HOLE);
	*start = data < 0 ? offset : (uint64_t)data < size ? (uint64_t)data : size;
	*end = hole < 0 || (uint64_t)hole > size ? size : (uint64_t)hole;
	return 0;
}
