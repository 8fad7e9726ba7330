/* Views of a source file: see source.h. */
#include "file/io.h"
#include "file/source.h"

#include <errno.h>
#include <inttypes.h>
#include <sys/mman.h>
#include <unistd.h>

/* The file may be shorter than it was: touching beyond its end is SIGBUS, registering is EFAULT. */
static int check_end(const struct rcp_source *s, uint64_t end, struct rcp_err *err)
{
	struct stat st;

	if (fstat(rcp_source_fd(s), &st) < 0)
		return rcp_io_fail(err, errno, "fstat", rcp_source_path(s));
	if ((uint64_t)st.st_size >= end)
		return 0;
	rcp_err_set(err, RCP_E_PARTIAL, 0, "mmap", rcp_source_path(s),
		    "truncated while it was copied: it has %" PRIu64 " bytes, and had %" PRIu64,
		    (uint64_t)st.st_size, rcp_source_id(s)->size);
	rcp_err_fix(err, "copy it again when nobody writes to it");
	return RCP_E_PARTIAL;
}

int rcp_window_map(const struct rcp_source *source, uint64_t offset, size_t len,
		   struct rcp_err *err, struct rcp_window *out)
{
	uint64_t size = rcp_source_id(source)->size, page = (uint64_t)sysconf(_SC_PAGESIZE);
	size_t lead = (size_t)(offset & (page - 1));

	*out = (struct rcp_window){.offset = offset};
	if (offset >= size || len == 0)
		return 0;
	if (len > size - offset)
		len = (size_t)(size - offset);
	if (check_end(source, offset + len, err))
		return (int)err->code;
	size_t map_len = (size_t)((lead + len + page - 1) & ~(page - 1));
	/* No MAP_POPULATE: where a block can't be read Linux (6.1 to 6.12 at least) tries it again for ever. */
	void *map = mmap(NULL, map_len, PROT_READ, MAP_SHARED, rcp_source_fd(source), (off_t)(offset - lead));

	if (map == MAP_FAILED)
		return rcp_io_fail(err, errno, "mmap", rcp_source_path(source));
	madvise(map, map_len, MADV_SEQUENTIAL); /* a hint */
	out->map = map;
	out->map_len = map_len;
	out->data = (const uint8_t *)map + lead;
	out->len = len;
	return 0;
}

void rcp_window_unmap(struct rcp_window *window)
{
	if (window->map)
		munmap(window->map, window->map_len);
	*window = (struct rcp_window){0};
}
