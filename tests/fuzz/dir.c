#include "dir.h"

#include "fuzz.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static char path[PATH_MAX];
static int dir = -1;

static DIR *open_names(int fd)
{
	int own = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = own < 0 ? NULL : fdopendir(own);

	MUST(d);
	return d;
}

static bool is_name(const struct dirent *e)
{
	return strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
}

unsigned fuzz_dir_count(int fd)
{
	DIR *d = open_names(fd);
	unsigned n = 0;

	for (const struct dirent *e; (e = readdir(d));)
		n += is_name(e);
	closedir(d);
	return n;
}

static void remove_dir(int fd, const char *name)
{
	MUST(fchmodat(fd, name, 0700, 0) == 0);
	int below = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	MUST(below >= 0);
	fuzz_dir_empty(below);
	close(below);
	MUST(unlinkat(fd, name, AT_REMOVEDIR) == 0);
}

void fuzz_dir_empty(int fd)
{
	DIR *d = open_names(fd);

	for (const struct dirent *e; (e = readdir(d));) {
		if (is_name(e) && unlinkat(fd, e->d_name, 0) < 0)
			remove_dir(fd, e->d_name);
	}
	closedir(d);
}

void fuzz_dir_write(int fd, const char *name, const void *data, unsigned long len)
{
	int file = openat(fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	MUST(file >= 0 && write(file, data, len) == (ssize_t)len);
	close(file);
}

static pid_t owner;

static void clean(void)
{
	if (getpid() != owner)
		return;
	fuzz_dir_empty(dir);
	rmdir(path);
}

static void drop_rights(void)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct none[2] = {{0}};

	syscall(SYS_capset, &head, none);
	signal(SIGXFSZ, SIG_IGN);
}

static bool make_in(const char *where)
{
	snprintf(path, sizeof(path), "%.4000s/rcp-fuzz.XXXXXX", where);
	return mkdtemp(path) != NULL;
}

const char *fuzz_dir_path(void)
{
	const char *tmp = getenv("TMPDIR");

	if (dir >= 0)
		return path;
	drop_rights();
	MUST(make_in("/dev/shm") || make_in(tmp && *tmp ? tmp : "/tmp"));
	dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	MUST(dir >= 0);
	owner = getpid();
	atexit(clean);
	return path;
}

int fuzz_dir(void)
{
	fuzz_dir_path();
	return dir;
}
