/* boot/jail: what is left to a process that serves a module. Each case in a process of its own. */
#include "boot/jail.h"

#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#include "base/sanitized.h"
#include "tmpdir.h"

#define NOBODY 65534

/* The number of the first thing that is not as it should be; 0: none; 99: there is no Landlock. */
static int in_child(int (*body)(void))
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0)
		_exit(body());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static bool opens(const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC, 0600);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

static int landlocked(bool writable)
{
	struct rcp_err err = {0};
	int root = open("mod", O_PATH | O_DIRECTORY);
	int rc = rcp_jail_landlock(root, writable, &err);

	return rc == 1 ? 99 : rc ? 98 : 0;
}

static int read_only(void)
{
	int rc;

	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	rc = landlocked(false);
	if (rc)
		return rc;
	if (!opens("mod/f", O_RDONLY) || !opens("mod", O_RDONLY | O_DIRECTORY))
		return 1;
	if (opens("mod/f", O_RDWR) || opens("mod/new", O_WRONLY | O_CREAT))
		return 2;
	if (unlink("mod/f") == 0 || mkdir("mod/d", 0755) == 0)
		return 3;
	if (opens("secret", O_RDONLY) || opens("link", O_RDONLY) || opens("new", O_WRONLY | O_CREAT))
		return 4;
	return opens("/etc/passwd", O_RDONLY) && !opens("/etc/shadow", O_RDONLY) ? 0 : 5;
}

static int writable(void)
{
	int rc;

	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	rc = landlocked(true);
	if (rc)
		return rc;
	if (!opens("mod/f", O_RDWR | O_TRUNC) || !opens("mod/new", O_WRONLY | O_CREAT))
		return 1;
	if (mkdir("mod/d", 0755) || rename("mod/new", "mod/d/moved") || unlink("mod/d/moved") || rmdir("mod/d"))
		return 2;
	if (symlink("x", "mod/l") || mkfifo("mod/p", 0600) || link("mod/f", "mod/f2"))
		return 3;
	if (mknod("mod/dev", S_IFCHR | 0600, makedev(1, 3)) == 0)
		return 4;
	if (syscall(SYS_landlock_create_ruleset, NULL, 0, 1) >= 6 && (kill(getppid(), 0) == 0 || kill(getpid(), 0) != 0))
		return 6; /* it may signal nobody but itself */
	if (opens("secret", O_RDONLY) || rename("mod/f", "f") == 0 || link("secret", "mod/s") == 0)
		return 5;
	return 0;
}

static int sink(void)
{
	int root = open("mod", O_PATH | O_DIRECTORY);
	pid_t pid;
	int status;

	if (!rcp_jail_sink(root))
		return 99;
	if (!opens("mod/f", O_RDWR | O_TRUNC) || !opens("mod/new", O_WRONLY | O_CREAT))
		return 1;
	if (mkdir("mod/d", 0755) || rename("mod/new", "mod/d/moved") || link("mod/d/moved", "mod/hard"))
		return 2;
	if (symlink("x", "mod/l") || mkfifo("mod/p", 0600))
		return 3;
	if (!opens("secret", O_RDONLY) || !opens("/dev/null", O_RDWR))
		return 4; /* reading stays */
	if (opens("secret", O_RDWR) || opens("link", O_RDWR) || opens("new", O_WRONLY | O_CREAT) || mkdir("n", 0700) == 0)
		return 5;
	if (unlink("secret") == 0 || rename("mod/f", "f") == 0 || rename("secret", "mod/s") == 0 || symlink("x", "y") == 0)
		return 6;
	pid = fork();
	if (pid == 0) {
		execl("/bin/true", "true", (char *)NULL);
		_exit(42);
	}
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 42 ? 0 : 7;
}

static int restricted(void)
{
	struct rcp_err err = {0};
	char remark[128];

	if (rcp_jail_restrict("mod", false, &err, remark, sizeof(remark)))
		return 1;
	if (remark[0])
		return 99;
	if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1 || prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) != 0)
		return 2;
	return opens("f", O_RDONLY) && !opens("f", O_RDWR) && !opens("../secret", O_RDONLY) ? 0 : 3;
}

static int not_there(void)
{
	struct rcp_err err = {0};
	char remark[128];

	return rcp_jail_restrict("nope", false, &err, remark, sizeof(remark)) == RCP_E_CONNECT && err.sys_errno == ENOENT &&
			       !strcmp(err.object, "nope") ? 0 : 1;
}

static int entered(void)
{
	struct rcp_module m = {.name = (char[]){"mod"}, .writable = true, .uid = NOBODY, .gid = NOBODY};
	struct rcp_err err = {0};
	char remark[128], here[4096];

	m.path = realpath("mod", here);
	if (rcp_jail_enter(&m, &err, remark, sizeof(remark)))
		return 1;
	if (getuid() != NOBODY || geteuid() != NOBODY || getegid() != NOBODY || getgroups(0, NULL) != 1)
		return 2;
	if (setuid(0) == 0 || seteuid(0) == 0 || setgid(0) == 0)
		return 3;
	if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1 || prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) != 0)
		return 4;
	return opens("f", O_RDONLY) ? 0 : 5; /* the module is where it is */
}

/* What /proc says of this process in one line of `status`, as a number of 16 digits. */
static unsigned long long of_status(const char *key)
{
	char line[256];
	unsigned long long value = ~0ull;
	FILE *f = fopen("/proc/self/status", "r");

	while (f && fgets(line, sizeof(line), f)) {
		if (strncmp(line, key, strlen(key)) == 0)
			value = strtoull(line + strlen(key) + 1, NULL, 16);
	}
	if (f)
		fclose(f);
	return value;
}

static bool no_capability(void)
{
	return !of_status("CapPrm") && !of_status("CapEff") && !of_status("CapInh") && !of_status("CapAmb");
}

/* Nobody, with what systemd's AmbientCapabilities leave to such a daemon. */
static int become_capable(void)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	const uint32_t one = 1u << CAP_DAC_READ_SEARCH;
	struct __user_cap_data_struct caps[2] = {{.permitted = one, .effective = one, .inheritable = one}};

	if (setgroups(0, NULL) || setresgid(NOBODY, NOBODY, NOBODY) || prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) ||
	    setresuid(NOBODY, NOBODY, NOBODY) || syscall(SYS_capset, &head, caps) ||
	    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_DAC_READ_SEARCH, 0, 0))
		return -1;
	return of_status("CapAmb") == one && opens("shut/in", O_RDONLY | O_DIRECTORY) ? 0 : -1;
}

static int ambient(void)
{
	struct rcp_module m = {.name = (char[]){"mod"}, .writable = true, .uid = NOBODY, .gid = NOBODY};
	struct rcp_err err = {0};
	char remark[128], here[4096];

	m.path = realpath("mod", here);
	if (become_capable())
		return 1;
	if (rcp_jail_enter(&m, &err, remark, sizeof(remark)))
		return 2;
	return no_capability() ? 0 : 3;
}

static int ambient_restricted(void)
{
	struct rcp_err err = {0};
	char remark[128];

	if (become_capable())
		return 1;
	if (rcp_jail_restrict("mod", true, &err, remark, sizeof(remark)))
		return 2;
	return no_capability() ? 0 : 3;
}

/* A module of root's: any file, but no device and no capability of a file, whatever Landlock knows. */
static int rooted(void)
{
	static const char cap[20] = {1, 0, 0, 2, 2}; /* revision 2, effective: CAP_DAC_OVERRIDE */
	struct rcp_module m = {.name = (char[]){"mod"}, .writable = true};
	struct rcp_err err = {0};
	char remark[128], here[4096];

	m.path = realpath("mod", here);
	if (setxattr("mod/f", "security.capability", cap, sizeof(cap), 0) || mknod("mod/dev0", S_IFCHR | 0600, makedev(1, 3)))
		return 99; /* not even now */
	if (rcp_jail_enter(&m, &err, remark, sizeof(remark)))
		return 1;
	if (of_status("CapEff") & (1u << CAP_MKNOD | 1u << CAP_SYS_ADMIN | 1u << CAP_SETUID))
		return 2;
	if (of_status("CapEff") >> 31 & 1) /* CAP_SETFCAP */
		return 3;
	if (setxattr("f", "security.capability", cap, sizeof(cap), 0) == 0 || errno != EPERM)
		return 4;
	if (mknod("dev", S_IFCHR | 0600, makedev(1, 3)) == 0)
		return 5;
	return chown("f", NOBODY, NOBODY) || chmod("f", 0) || !opens("f", O_RDWR) ? 6 : 0;
}

/* As nobody: can this process' memory and environment be had? */
static bool looked_at(pid_t pid)
{
	char path[64];
	bool seen = false;

	for (int i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, (const char *[]){"environ", "mem", "maps"}[i]);
		seen |= opens(path, O_RDONLY);
	}
	return seen || ptrace(PTRACE_ATTACH, pid, NULL, NULL) == 0;
}

/* hide: 0: not at all; 1: as the daemon does it; 2: as a child that serves a module. */
static int seen_by_others(int hide)
{
	struct rcp_module m = {.name = (char[]){"mod"}, .uid = NOBODY, .gid = NOBODY};
	struct rcp_err err = {0};
	char remark[128], here[4096], c;
	int ready[2], status, seen;
	pid_t pid;

	m.path = realpath("mod", here);
	if (pipe(ready) || (pid = fork()) < 0)
		return 10;
	if (pid == 0) {
		if (hide != 2 && (setresgid(NOBODY, NOBODY, NOBODY) || setresuid(NOBODY, NOBODY, NOBODY)))
			_exit(1);
		if (hide != 2)
			prctl(PR_SET_DUMPABLE, 1, 0, 0, 0); /* what a change of user took */
		if (hide == 1)
			rcp_jail_hide();
		if (hide == 2 && rcp_jail_enter(&m, &err, remark, sizeof(remark)))
			_exit(1);
		if (write(ready[1], "x", 1) == 1)
			pause();
		_exit(1);
	}
	if (read(ready[0], &c, 1) != 1 || setgroups(0, NULL) || setresgid(NOBODY, NOBODY, NOBODY))
		return 11;
	pid_t looker = fork();

	if (looker == 0)
		_exit(setresuid(NOBODY, NOBODY, NOBODY) ? 12 : looked_at(pid));
	waitpid(looker, &status, 0);
	seen = WIFEXITED(status) ? WEXITSTATUS(status) : 13;
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	return seen;
}

static int open_to_all(void)
{
	return seen_by_others(0);
}

static int daemon_hidden(void)
{
	return seen_by_others(1);
}

static int child_hidden(void)
{
	return seen_by_others(2);
}

static int not_for_nobody(void)
{
	struct rcp_module m = {.name = (char[]){"shut"}, .uid = NOBODY, .gid = NOBODY};
	struct rcp_err err = {0};
	char remark[128], here[4096];

	m.path = realpath("shut/in", here);
	return rcp_jail_enter(&m, &err, remark, sizeof(remark)) == RCP_E_CONNECT && err.sys_errno == EACCES ? 0 : 1;
}

static int setup(void **state)
{
	if (tmp_fresh(state) || mkdir("mod", 0777) || mkdir("shut", 0700) || mkdir("shut/in", 0777))
		return -1;
	tmp_text("mod/f", "x");
	tmp_text("secret", "x");
	return symlink("mod/../secret", "link");
}

static void landlock_read_only(void **state)
{
	int rc = in_child(read_only);

	(void)state;
	if (rc == 99)
		TMP_SKIP("this kernel has no Landlock");
	assert_int_equal(rc, 0);
}

static void landlock_writable(void **state)
{
	int rc = in_child(writable);

	(void)state;
	if (rc == 99)
		TMP_SKIP("this kernel has no Landlock");
	assert_int_equal(rc, 0);
}

static void landlock_sink(void **state)
{
	int rc = in_child(sink);

	(void)state;
	if (rc == 99)
		TMP_SKIP("this kernel has no Landlock that a sink can use");
	assert_int_equal(rc, 0);
}

static void a_login_restricted(void **state)
{
	int rc = in_child(restricted);

	(void)state;
	assert_int_equal(in_child(not_there), 0);
	if (rc == 99)
		TMP_SKIP("this kernel has no Landlock");
	assert_int_equal(rc, 0);
}

/* Can nobody get to where the test works? Skips otherwise. */
static void way_for_nobody(void)
{
	if (geteuid() != 0)
		TMP_SKIP("only root can become another user");
	for (char *at = strchr(tmp_path + 1, '/'); at; at = strchr(at + 1, '/')) {
		struct stat st;

		*at = 0;
		bool open = stat(tmp_path, &st) == 0 && (st.st_mode & 1);

		*at = '/';
		if (!open)
			TMP_SKIP("nobody can't get to %s", tmp_path);
	}
	assert_int_equal(chmod(tmp_path, 0755), 0);
}

static void no_capabilities_left(void **state)
{
	(void)state;
	way_for_nobody();
	assert_int_equal(in_child(ambient), 0);
	assert_int_equal(in_child(ambient_restricted), 0);
}

static void root_with_little(void **state)
{
	int rc;

	(void)state;
	way_for_nobody();
	rc = in_child(rooted);
	if (rc == 99)
		TMP_SKIP("root can't make devices or set capabilities of files here");
	assert_int_equal(rc, 0);
}

static void not_to_be_looked_at(void **state)
{
	(void)state;
	way_for_nobody();
	if (in_child(open_to_all) != 1)
		TMP_SKIP("no process of one's own can be looked at here");
	if (!RCP_SANITIZED)
		assert_int_equal(in_child(daemon_hidden), 0);
	assert_int_equal(in_child(child_hidden), 0);
}

static void all_given_up(void **state)
{
	(void)state;
	way_for_nobody();
	assert_int_equal(in_child(entered), 0);
	assert_int_equal(in_child(not_for_nobody), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(landlock_read_only, setup),
		cmocka_unit_test_setup(landlock_writable, setup),
		cmocka_unit_test_setup(landlock_sink, setup),
		cmocka_unit_test_setup(a_login_restricted, setup),
		cmocka_unit_test_setup(all_given_up, setup),
		cmocka_unit_test_setup(no_capabilities_left, setup),
		cmocka_unit_test_setup(root_with_little, setup),
		cmocka_unit_test_setup(not_to_be_looked_at, setup),
	};

	return cmocka_run_group_tests(tests, tmp_setup, tmp_teardown);
}
