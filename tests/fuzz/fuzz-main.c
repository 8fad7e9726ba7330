/* Replays a corpus: each file of each directory named, once whole, once cut at each length (up to 256) and
 * once with each bit of its first 64 bytes flipped. AFL++ and libFuzzer do more.
 * usage: fuzz-replay-NAME [-every N] DIR...   of the cuts and flips each Nth, for targets that take their time */
#include "fuzz.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { INPUT_MOST = 1 << 20, CUTS_MOST = 256, FLIPPED_MOST = 64 };

static unsigned long inputs;
static size_t every = 1;

/* In a block of its own size, so that a sanitizer sees a step beyond. */
static void one(const uint8_t *data, size_t size)
{
	uint8_t *copy = malloc(size ? size : 1);

	MUST(copy);
	memcpy(copy, data, size);
	LLVMFuzzerTestOneInput(copy, size);
	free(copy);
	inputs++;
}

static void variants(uint8_t *data, size_t size)
{
	one(data, size);
	for (size_t cut = 0; cut < size && cut < CUTS_MOST; cut += every)
		one(data, cut);
	for (size_t bit = 0; bit < 8 * size && bit < 8 * FLIPPED_MOST; bit += every) {
		data[bit / 8] ^= (uint8_t)(1 << bit % 8);
		one(data, size);
		data[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
}

static void replay(int dir, const char *name)
{
	static uint8_t buf[INPUT_MOST];
	int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, buf, sizeof(buf));

	MUST(n >= 0);
	close(fd);
	variants(buf, (size_t)n);
}

int main(int argc, char **argv)
{
	if (argc > 2 && strcmp(argv[1], "-every") == 0) {
		every = (size_t)atoi(argv[2]);
		MUST(every);
		argv += 2;
		argc -= 2;
	}
	for (int i = 1; i < argc; i++) {
		DIR *d = opendir(argv[i]);
		const struct dirent *e;

		MUST(d);
		while ((e = readdir(d))) {
			if (e->d_name[0] != '.')
				replay(dirfd(d), e->d_name);
		}
		closedir(d);
	}
	printf("%lu inputs\n", inputs);
	return inputs ? 0 : 1;
}
