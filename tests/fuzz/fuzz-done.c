/* The list of what earlier runs completed (file/done.h), whatever is in that file. The first byte: bit 0, whether a
 * file is added before the end, bit 1, whether all is complete, bit 2, whether there are so many that they are written. */
#include "dir.h"
#include "fuzz.h"

#include "file/done.h"
#include "file/sink.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

static char list[32];
static const struct rcp_file_id id = {.dev = 1, .ino = 2, .size = 3, .mtime_s = 4};

/* The list's name is a checksum of which copy it is of. */
static const char *name(void)
{
	if (!list[0])
		snprintf(list, sizeof(list), ".%08lx.rcp-done", crc32(crc32(0, NULL, 0), (const Bytef *)"\0", 2));
	return list;
}

enum { WRITTEN = 2048 }; /* as many as are written at once, see file/done.c */

static void add(struct rcp_done *done, unsigned times)
{
	struct stat nameless;
	int fd = openat(fuzz_dir(), "file", O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	MUST(fd >= 0);
	rcp_done_look(done, fd, &nameless);
	while (times--)
		rcp_done_add(done, "file", &id, fd, &nameless);
	close(fd);
}

static bool has(struct rcp_done *done)
{
	struct rcp_kept_dir kept;
	bool yes;

	rcp_kept_init(&kept);
	yes = rcp_done_has(done, "file", &id, &kept);
	MUST(!rcp_done_has(done, "../out", &id, &kept) && !rcp_done_has(done, "", &id, &kept));
	rcp_kept_close(&kept);
	return yes;
}

static struct rcp_done *begin(void)
{
	struct rcp_done *done = rcp_done_new(fuzz_dir(), NULL, NULL);

	MUST(done);
	return done;
}

/* Does it begin as one of ours, as far as it goes? */
static bool is_ours(const uint8_t *data, size_t size)
{
	return !memcmp("rcp-done 1\n\0\0\0\0\0", data, size < 16 ? size : 16);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rcp_done *done;
	struct stat st;

	if (!size)
		return 0;
	bool ours = is_ours(data + 1, size - 1), complete = data[0] & 2, written = data[0] & 4;

	fuzz_dir_write(fuzz_dir(), name(), data + 1, size - 1);
	fuzz_dir_write(fuzz_dir(), "file", "abc", 3);
	done = begin();
	MUST(!has(done)); /* nobody guesses a key */
	if (data[0] & 5)
		add(done, written ? WRITTEN : 2);
	rcp_done_free(&done, complete);
	/* One of ours is ours to remove when all is complete; anything else stays as it is. */
	if (!ours)
		MUST(fstatat(fuzz_dir(), name(), &st, 0) == 0 && st.st_size == (off_t)(size - 1));
	else if (complete)
		MUST(fstatat(fuzz_dir(), name(), &st, 0) < 0);
	done = begin();
	MUST(!ours || complete || !written || has(done)); /* what was written is found again */
	rcp_done_free(&done, false);
	return 0;
}
