/* A journal that anything may have happened to. */
#include "fuzz.h"

#include "file/journal.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define CHUNKS 100u

static void on_claim(void *arg, const struct rcp_claim *claim)
{
	unsigned *claims = arg;

	MUST(claim->index < CHUNKS);
	++*claims;
}

static char path[] = "/tmp/rcp-fuzz.XXXXXX";

static void clean(void)
{
	char name[sizeof(path) + 2];

	snprintf(name, sizeof(name), "%s/j", path);
	unlink(name);
	rmdir(path);
}

static int directory(void)
{
	static int dir = -1;

	if (dir < 0) {
		MUST(mkdtemp(path));
		dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		MUST(dir >= 0);
		atexit(clean);
	}
	return dir;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct rcp_journal_key key = {.id = {.dev = 1, .ino = 2, .size = 100 << 20, .mtime_s = 3},
					    .chunk_bytes = 1 << 20};
	struct rcp_journal j;
	unsigned claims = 0;
	int dir = directory();
	int fd = openat(dir, "j", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0)
		return 0;
	MUST(write(fd, data, size) == (ssize_t)size);
	close(fd);
	enum rcp_journal_state state = rcp_journal_load(dir, "j", &key, CHUNKS, on_claim, &claims, &j);

	MUST(state != RCP_JOURNAL_NONE);
	if (state == RCP_JOURNAL_GOOD)
		rcp_journal_close(&j);
	else
		MUST(!claims);
	return 0;
}
