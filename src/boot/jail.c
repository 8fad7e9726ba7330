#include "boot/jail.h"

#include "base/sanitized.h"
#include "file/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Newer than some headers that rcp is built with; the numbers are the kernel's. */
#define FS_REFER     (UINT64_C(1) << 13) /* 2 */
#define FS_TRUNCATE  (UINT64_C(1) << 14) /* 3 */
#define FS_IOCTL_DEV (UINT64_C(1) << 15) /* 5 */

/* As of 6; older kernels take the beginning of it. */
struct ruleset {
	uint64_t fs, net, scoped;
};
#define SCOPES (UINT64_C(1) | UINT64_C(2)) /* 6: abstract UNIX sockets, signals */

#define FS_READ (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
/* In no module: to run a program, to make or control a device. */
#define FS_NEVER                                                                                   \
	(LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_BLOCK | FS_IOCTL_DEV)
#define FS_FIRST (LANDLOCK_ACCESS_FS_MAKE_SYM * 2 - 1) /* all of version 1 */

static int failed(struct rcp_err *err, const char *call)
{
	return rcp_err_set(err, RCP_E_CONNECT, errno, call, NULL, NULL);
}

/* ---- Landlock ---- */

static uint64_t all_rights(int version)
{
	return FS_FIRST | (version >= 2 ? FS_REFER : 0) | (version >= 3 ? FS_TRUNCATE : 0) |
	       (version >= 5 ? FS_IOCTL_DEV : 0);
}

/* Besides: no signal to another process, though it be the same user's. */
static int create(int version, uint64_t rights)
{
	const struct ruleset all = {.fs = rights, .scoped = version >= 6 ? SCOPES : 0};

	return (int)syscall(SYS_landlock_create_ruleset, &all, version >= 6 ? sizeof(all) : sizeof(all.fs), 0);
}

static int allow(int rules, int fd, uint64_t rights)
{
	struct landlock_path_beneath_attr rule = {.allowed_access = rights, .parent_fd = fd};

	return (int)syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
}

/* What is not there is not needed. */
static void allow_path(int rules, const char *path, uint64_t rights)
{
	int fd = open(path, O_PATH | O_CLOEXEC);

	if (fd < 0)
		return;
	allow(rules, fd, rights);
	close(fd);
}

/* Names of users and groups, and what libibverbs looks at and loads. */
static void allow_libraries(int rules, int version)
{
	static const char *const files[] = {"/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/ld.so.cache"};
	static const char *const dirs[] = {"/usr/lib", "/usr/lib64", "/usr/local/lib", "/lib", "/lib64", "/sys",
					   "/proc", "/etc/libibverbs.d", "/etc/rdma"};
	uint64_t device = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE |
			  (version >= 5 ? FS_IOCTL_DEV : 0);

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		allow_path(rules, files[i], LANDLOCK_ACCESS_FS_READ_FILE);
	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++)
		allow_path(rules, dirs[i], FS_READ);
	allow_path(rules, "/dev/infiniband", device | LANDLOCK_ACCESS_FS_READ_DIR);
	allow_path(rules, "/dev/null", device);
}

/* What changes the file system, and to run a program. */
static uint64_t sink_rights(int version)
{
	return all_rights(version) & ~(FS_READ | FS_IOCTL_DEV);
}

/* The first version forbids hard links and renames from one directory to another, which is too much. */
bool rcp_jail_sink(int root)
{
	int version = (int)syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
	uint64_t rights = version > 1 ? sink_rights(version) : 0;
	int rules = version > 1 ? create(version, rights) : -1;
	bool done;

	if (rules < 0)
		return false;
	allow_path(rules, "/dev/infiniband", LANDLOCK_ACCESS_FS_WRITE_FILE);
	allow_path(rules, "/dev/null", LANDLOCK_ACCESS_FS_WRITE_FILE);
	done = allow(rules, root, rights & ~LANDLOCK_ACCESS_FS_EXECUTE) == 0 &&
	       prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && syscall(SYS_landlock_restrict_self, rules, 0) == 0;
	close(rules);
	return done;
}

int rcp_jail_landlock(int root, bool writable, struct rcp_err *err)
{
	int version = (int)syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
	uint64_t inside = writable ? all_rights(version) & ~FS_NEVER : FS_READ;
	int rules;

	if (version <= 0)
		return 1;
	rules = create(version, all_rights(version));
	if (rules < 0)
		return failed(err, "landlock_create_ruleset");
	allow_libraries(rules, version);
	if (allow(rules, root, inside) < 0)
		failed(err, "landlock_add_rule");
	else if (syscall(SYS_landlock_restrict_self, rules, 0) < 0)
		failed(err, "landlock_restrict_self");
	close(rules);
	return (int)err->code;
}

/* ---- the rest ---- */

static int become(const struct rcp_module *m, struct rcp_err *err)
{
	if (geteuid() == 0 && setgroups(1, &m->gid) < 0)
		return failed(err, "setgroups");
	if (setresgid(m->gid, m->gid, m->gid) < 0)
		return failed(err, "setresgid");
	if (setresuid(m->uid, m->uid, m->uid) < 0)
		return failed(err, "setresuid");
	if (m->uid != 0 && (setresuid((uid_t)-1, 0, (uid_t)-1) == 0 || geteuid() == 0))
		return rcp_err_set(err, RCP_E_CONNECT, 0, "setresuid", NULL, "root could be had back");
	return 0;
}

/*
 * To change user takes capabilities away, but who was not root before keeps them all: a daemon that was started with some
 * (systemd's AmbientCapabilities) keeps them for its sockets, not for what it serves. Root itself is left what it takes to
 * read, write and own any file, and to lock memory: no device, no file's capability, no mount. The ambient ones go with the
 * inheritable.
 */
static int give_up_capabilities(struct rcp_err *err)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	const uint32_t root = 1u << CAP_CHOWN | 1u << CAP_DAC_OVERRIDE | 1u << CAP_DAC_READ_SEARCH | 1u << CAP_FOWNER |
			      1u << CAP_FSETID | 1u << CAP_IPC_LOCK;
	struct __user_cap_data_struct caps[_LINUX_CAPABILITY_U32S_3];

	if (syscall(SYS_capget, &head, caps) < 0)
		return failed(err, "capget");
	for (int i = 0; i < _LINUX_CAPABILITY_U32S_3; i++) {
		caps[i].permitted &= geteuid() == 0 && i == 0 ? root : 0;
		caps[i].effective = caps[i].permitted;
		caps[i].inheritable = 0;
	}
	return syscall(SYS_capset, &head, caps) < 0 ? failed(err, "capset") : 0;
}

static int give_up_more(struct rcp_err *err)
{
	if (give_up_capabilities(err))
		return (int)err->code;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return failed(err, "prctl");
	return 0;
}

/* LeakSanitizer looks at the process as a debugger does. */
void rcp_jail_hide(void)
{
#if !RCP_SANITIZED
	const struct rlimit none = {0};

	/* For the cores that are piped to a program the limit alone does not count. */
	setrlimit(RLIMIT_CORE, &none);
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
#endif
}

/* From here on names begin at dir. */
static int settle_in(const char *dir, const char *name, const char *what, bool writable, struct rcp_err *err,
		     char *remark, size_t size)
{
	int root = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);

	remark[0] = 0;
	if (root < 0 || fchdir(root) < 0) {
		failed(err, "open");
		if (root >= 0)
			close(root);
		return (int)err->code;
	}
	rcp_confine(root, name, what);
	if (rcp_jail_landlock(root, writable, err) == 1)
		snprintf(remark, size, "the kernel has no Landlock: openat2 alone confines");
	return (int)err->code;
}

int rcp_jail_enter(const struct rcp_module *m, struct rcp_err *err, char *remark, size_t size)
{
	remark[0] = 0;
	if (become(m, err) || give_up_more(err))
		return (int)err->code;
	return settle_in(m->path, m->name, "the module", m->writable, err, remark, size);
}

int rcp_jail_restrict(const char *dir, bool writable, struct rcp_err *err, char *remark, size_t size)
{
	static char real[PATH_MAX]; /* what it is called is borrowed for good */
	const char *slash;

	remark[0] = 0;
	if (!realpath(dir, real))
		failed(err, "open");
	slash = strrchr(real, '/');
	if (!rcp_err_is(err) && !give_up_more(err))
		settle_in(real, slash && slash[1] ? slash + 1 : "root", "the directory that this login is held to", writable,
			  err, remark, size);
	if (rcp_err_is(err))
		rcp_err_object(err, dir);
	return (int)err->code;
}
