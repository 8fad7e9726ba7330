/* file/meta, file/special: metadata; directories, links, FIFOs, devices. */
#include "file/meta.h"

#include "file/ids.h"
#include "file/sink.h"
#include "file/xattr.h"

#include <errno.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include "tmpdir.h"

static const struct rcp_meta_options plain = {.umask = 027}, times = {.times = true},
				     archive = {.times = true, .archive = true};

static int here(void)
{
	static int fd = -1;

	if (fd >= 0)
		close(fd);
	fd = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

static struct rcp_rec_entry entry_of(uint8_t type, uint32_t mode)
{
	return (struct rcp_rec_entry){
		.type = type,
		.mode = mode,
		.mtime_s = 1000,
		.mtime_ns = 999999999,
		.atime_s = 2000,
		.uid = getuid(),
		.gid = getgid(),
		.path = rcp_span_str("p"),
	};
}

static struct rcp_meta meta_of(const struct rcp_rec_entry *e, const struct rcp_meta_options *o)
{
	struct rcp_err err = {0};
	struct rcp_meta m;

	assert_int_equal(rcp_meta_of(e, o, &err, &m), 0);
	return m;
}

static void modes_as_scp(void **state)
{
	struct rcp_rec_entry e = entry_of(RCP_ENTRY_FILE, 06777);
	struct rcp_meta m = meta_of(&e, &plain);

	(void)state;
	assert_int_equal(m.mode, 0750);
	assert_false(m.set_times || m.set_owner);
	m = meta_of(&e, &times);
	assert_int_equal(m.mode, 06777);
	assert_true(m.set_times && !m.set_owner);
	assert_int_equal(m.mtime.tv_nsec, 999999999);
	m = meta_of(&e, &archive);
	assert_true(m.set_times && m.set_owner);
	rcp_meta_free(&m);
}

static void names_become_numbers(void **state)
{
	struct rcp_rec_entry e = entry_of(RCP_ENTRY_FILE, 0644);
	char name[RCP_ID_NAME_MAX];

	(void)state;
	e.uid = e.gid = 54321;
	e.user = rcp_span_str("root");
	e.group = rcp_span_str("no such group here");
	for (int i = 0; i < 2; i++) { /* asked, then remembered */
		struct rcp_meta m = meta_of(&e, &archive);

		assert_int_equal(m.uid, 0);
		assert_int_equal(m.gid, 54321);
		rcp_id_name(RCP_ID_USER, 0, name);
		assert_string_equal(name, "root");
		rcp_id_name(RCP_ID_GROUP, 3999999999u, name);
		assert_string_equal(name, "");
	}
	struct rcp_meta_options numeric = archive;

	numeric.numeric_ids = true;
	assert_int_equal(meta_of(&e, &numeric).uid, 54321);
	for (uint32_t i = 1; i < 100; i++) /* more than are remembered */
		rcp_id_name(RCP_ID_USER, 3000000000u + i, name);
	rcp_id_name(RCP_ID_USER, 0, name);
	assert_string_equal(name, "root");
}

static void add_xattr(struct rcp_wr *w, const char *name, const char *value)
{
	struct rcp_rec_xattr x = {.name = rcp_span_str(name), .value = rcp_span_str(value)};

	rcp_rec_encode(w, RCP_REC_XATTR, &x);
}

static void hostile_metadata(void **state)
{
	static const char *const names[] = {
		"security.selinux",	  "system.nfs4_acl", "user.", "x", "",
		"trusted.overlay.opaque", "security.ima"};
	struct rcp_rec_entry e = entry_of(RCP_ENTRY_FILE, 0644);
	struct rcp_err err = {0};
	struct rcp_meta m;

	(void)state;
	e.mtime_ns = 1000000000;
	assert_int_equal(rcp_meta_of(&e, &times, &err, &m), RCP_E_CONNECT);
	e.mtime_ns = 0;
	e.atime_ns = (1u << 30) - 1; /* UTIME_NOW */
	err = (struct rcp_err){0};
	assert_int_equal(rcp_meta_of(&e, &times, &err, &m), RCP_E_CONNECT);
	e.atime_ns = 0;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct rcp_wr w = {.max = 1000};

		add_xattr(&w, names[i], "v");
		e.xattrs = rcp_span_of(w.data, w.len);
		err = (struct rcp_err){0};
		assert_int_equal(rcp_meta_of(&e, &archive, &err, &m), RCP_E_CONNECT);
		rcp_wr_free(&w);
	}
	struct rcp_wr w = {.max = 1000};

	add_xattr(&w, "user.a", "v");
	for (size_t cut = 1; cut < w.len; cut++) {
		e.xattrs = rcp_span_of(w.data, cut);
		err = (struct rcp_err){0};
		assert_int_equal(rcp_meta_of(&e, &archive, &err, &m), RCP_E_CONNECT);
		assert_null(m.xattrs);
	}
	e.xattrs = rcp_span_of(w.data, w.len);
	err = (struct rcp_err){0};
	assert_int_equal(rcp_meta_of(&e, &plain, &err, &m), 0); /* not asked for: not taken */
	assert_null(m.xattrs);
	assert_int_equal(rcp_meta_of(&e, &archive, &err, &m), 0);
	rcp_meta_free(&m);
	rcp_wr_free(&w);
}

static void all_of_it_on_a_file(void **state)
{
	struct rcp_rec_entry e = entry_of(RCP_ENTRY_FILE, 0614);
	struct rcp_meta m = meta_of(&e, &times);
	struct rcp_err err = {0};
	struct stat st;
	unsigned lost = 1;

	(void)state;
	tmp_text("f", "");
	int fd = open("f", O_RDWR);

	assert_int_equal(rcp_meta_apply(fd, "f", &m, &err, &lost), 0);
	assert_int_equal(lost, 0);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0614);
	assert_int_equal(st.st_mtim.tv_sec, 1000);
	assert_int_equal(st.st_mtim.tv_nsec, 999999999);
	assert_int_equal(st.st_atim.tv_sec, 2000);
	close(fd);
}

static void owner_of_a_file(void **state)
{
	struct rcp_rec_entry e = entry_of(RCP_ENTRY_FILE, 06755);
	struct rcp_err err = {0};
	struct stat st;
	unsigned lost;

	(void)state;
	e.uid = 12345;
	e.gid = 23456;
	struct rcp_meta m = meta_of(&e, &archive);

	tmp_text("f", "");
	int fd = open("f", O_RDWR);

	assert_int_equal(rcp_meta_apply(fd, "f", &m, &err, &lost), 0);
	assert_int_equal(fstat(fd, &st), 0);
	close(fd);
	if (geteuid() == 0) {
		assert_int_equal(lost, 0);
		assert_int_equal(st.st_uid, 12345);
		assert_int_equal(st.st_gid, 23456);
		assert_int_equal(st.st_mode & 07777, 06755);
	} else { /* kept going, said so, and made no setuid file of ours */
		assert_int_equal(lost, RCP_LOST_OWNER);
		assert_int_equal(st.st_uid, geteuid());
		assert_int_equal(st.st_mode & 07777, 0755);
	}
	assert_int_equal(st.st_mtim.tv_sec, 1000);
}

/* user::rwx user:1:r-- group::r-x mask::r-x other::--- */
static const char acl[] = "\2\0\0\0"
			  "\1\0\7\0\xff\xff\xff\xff"
			  "\2\0\4\0\1\0\0\0"
			  "\4\0\5\0\xff\xff\xff\xff"
			  "\x10\0\5\0\xff\xff\xff\xff"
			  "\x20\0\0\0\xff\xff\xff\xff";

static void put_xattrs_over(const char *from, const char *to)
{
	struct rcp_rec_entry e = entry_of(RCP_ENTRY_FILE, 0);
	struct rcp_err err = {0};
	uint8_t *records;
	uint32_t len;
	bool truncated;
	unsigned lost;
	struct stat st;

	assert_int_equal(stat(from, &st), 0);
	e.mode = st.st_mode & 07777;
	int fd = open(from, O_RDONLY);

	assert_int_equal(rcp_meta_read_xattrs(fd, from, &err, &records, &len, &truncated), 0);
	assert_false(truncated);
	close(fd);
	e.xattrs = rcp_span_of(records, len);
	struct rcp_meta m = meta_of(&e, &archive);

	fd = open(to, O_RDONLY);
	assert_int_equal(rcp_meta_apply(fd, to, &m, &err, &lost), 0);
	assert_int_equal(lost, 0);
	close(fd);
	rcp_meta_free(&m);
	free(records);
}

static void xattrs_and_acls(void **state)
{
	char value[100];
	struct stat st;

	(void)state;
	tmp_text("a", "");
	tmp_text("b", "");
	if (setxattr("a", "user.key", "val\0ue", 6, 0) < 0)
		TMP_SKIP("no user attributes on this file system (%s)", strerror(errno));
	assert_int_equal(setxattr("a", "user.empty", "", 0, 0), 0);
	bool acls = setxattr("a", "system.posix_acl_access", acl, sizeof(acl) - 1, 0) == 0;

	put_xattrs_over("a", "b");
	assert_int_equal(getxattr("b", "user.key", value, sizeof(value)), 6);
	assert_memory_equal(value, "val\0ue", 6);
	assert_int_equal(getxattr("b", "user.empty", value, sizeof(value)), 0);
	if (!acls)
		TMP_SKIP("no ACLs on this file system (%s)", strerror(errno));
	assert_int_equal(getxattr("b", "system.posix_acl_access", value, sizeof(value)),
			 sizeof(acl) - 1);
	assert_memory_equal(value, acl, sizeof(acl) - 1);
	/* A file without ACL in a directory with a default one stays without. */
	assert_int_equal(mkdir("d", 0755), 0);
	assert_int_equal(setxattr("d", "system.posix_acl_default", acl, sizeof(acl) - 1, 0), 0);
	tmp_text("d/c", "");
	tmp_text("plain", "");
	assert_int_equal(chmod("plain", 0664), 0);
	assert_true(getxattr("d/c", "system.posix_acl_access", NULL, 0) > 0);
	put_xattrs_over("plain", "d/c");
	assert_int_equal(getxattr("d/c", "system.posix_acl_access", NULL, 0), -1);
	assert_int_equal(stat("d/c", &st), 0);
	assert_int_equal(st.st_mode & 07777, 0664);
	/* A directory's default ACL travels. */
	assert_int_equal(mkdir("e", 0755), 0);
	put_xattrs_over("d", "e");
	assert_int_equal(getxattr("e", "system.posix_acl_default", value, sizeof(value)),
			 sizeof(acl) - 1);
}

/* Four attributes of 60 KB each; 0 where the file system takes them. */
static int make_large_xattrs(int fd)
{
	char name[64], *value = calloc(1, 60000);
	int rc = 0;

	for (int i = 0; i < 4; i++) {
		snprintf(name, sizeof(name), "user.%d", i);
		rc |= fsetxattr(fd, name, value, 60000, 0);
	}
	free(value);
	return rc;
}

static void too_many_xattrs(void **state)
{
	struct rcp_err err = {0};
	uint8_t *records;
	uint32_t len;
	bool truncated;
	int fd = open("f", O_RDWR | O_CREAT, 0600);

	(void)state;
	if (make_large_xattrs(
		    fd)) { /* ext4 has a block for them; tmpfs takes them since Linux 6.6 */
		close(fd);
		fd = open("/dev/shm", O_RDWR | O_TMPFILE, 0600);
		if (fd < 0 || make_large_xattrs(fd))
			TMP_SKIP("no file system here takes attributes of 60 KB");
	}
	assert_int_equal(rcp_meta_read_xattrs(fd, "f", &err, &records, &len, &truncated), 0);
	assert_true(truncated);
	assert_true(len > 60000 && len <= RCP_XATTRS_BYTES_MAX);
	assert_true(rcp_xattrs_valid(records, len));
	free(records);
	close(fd);
}

/* Of a name in a directory, which most often has none, and which is not followed. */
static void xattrs_by_name(void **state)
{
	struct rcp_err err = {0};
	uint8_t *records;
	uint32_t len;
	bool truncated;
	int dir;

	(void)state;
	assert_int_equal(mkdir("d", 0755), 0);
	tmp_text("d/f", "x");
	assert_int_equal(symlink("f", "d/link"), 0);
	dir = open("d", O_PATH | O_DIRECTORY);
	assert_true(dir >= 0);
	assert_int_equal(rcp_meta_read_xattrs_at(dir, "f", &err, &records, &len, &truncated), 0);
	assert_null(records);
	if (setxattr("d/f", "user.a", "1", 1, 0) < 0)
		TMP_SKIP("no extended attributes here");
	assert_int_equal(rcp_meta_read_xattrs_at(dir, "f", &err, &records, &len, &truncated), 0);
	assert_int_not_equal(len, 0);
	assert_true(rcp_xattrs_valid(records, len));
	free(records);
	assert_int_equal(rcp_meta_read_xattrs_at(dir, "link", &err, &records, &len, &truncated), 0);
	assert_null(records);
	assert_int_not_equal(rcp_meta_read_xattrs_at(dir, "none", &err, &records, &len, &truncated), 0);
	assert_int_equal(err.sys_errno, ENOENT);
	close(dir);
}

static void directories(void **state)
{
	struct rcp_rec_entry e = entry_of(RCP_ENTRY_DIR_END, 0555);
	struct rcp_meta m = meta_of(&e, &plain), exact = meta_of(&e, &times);
	struct rcp_err err = {0};
	struct stat st;
	unsigned lost;
	mode_t old = umask(0777);

	(void)state;
	assert_int_equal(rcp_sink_mkdir(here(), "d", "d", false, &err), 0);
	umask(old);
	assert_int_equal(stat("d", &st), 0);
	assert_int_equal(st.st_mode & 0700, 0700);
	assert_int_equal(rcp_sink_mkdir(here(), "d/e", "d/e", false, &err), 0);
	tmp_text("d/f", "");
	assert_int_equal(rcp_sink_dir_end(here(), "d", "d", &m, false, &err, &lost), 0);
	assert_int_equal(stat("d", &st), 0);
	assert_int_equal(st.st_mode & 07777, 0550); /* source's 0555, umask 027 */
	/* It is there now. Without -p an existing directory gets its mode back ... */
	assert_int_equal(chmod("d", 0700), 0);
	assert_int_equal(rcp_sink_mkdir(here(), "d", "d", false, &err), 0);
	assert_int_equal(rcp_sink_dir_end(here(), "d", "d", &m, false, &err, &lost), 0);
	assert_int_equal(stat("d", &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	/* ... and with -p the source's mode and times. */
	assert_int_equal(rcp_sink_dir_end(here(), "d", "d", &exact, false, &err, &lost), 0);
	assert_int_equal(stat("d", &st), 0);
	assert_int_equal(st.st_mode & 07777, 0555);
	assert_int_equal(st.st_mtim.tv_sec, 1000);
	/* A read-only one that exists becomes writable. */
	assert_int_equal(rcp_sink_mkdir(here(), "d", "d", false, &err), 0);
	assert_int_equal(stat("d", &st), 0);
	assert_int_equal(st.st_mode & 0700, 0700);
	assert_int_equal(lost, 0);
}

static void directories_that_can_not_be(void **state)
{
	struct rcp_rec_entry e = entry_of(RCP_ENTRY_DIR_END, 0755);
	struct rcp_meta m = meta_of(&e, &times);
	struct rcp_err err = {0};
	unsigned lost;

	(void)state;
	tmp_not_under_valgrind("it knows no openat2");
	tmp_text("f", "");
	assert_int_equal(mkdir("outside", 0755), 0);
	assert_int_equal(mkdir("root", 0755), 0);
	assert_int_equal(mkdir("root/in", 0755), 0);
	assert_int_equal(symlink("../outside", "root/out"), 0);
	assert_int_equal(symlink("in", "root/inlink"), 0);
	assert_int_equal(rcp_sink_mkdir(here(), "f", "f", false, &err), RCP_E_PARTIAL);
	assert_non_null(strstr(err.text, "a file has this name"));
	err = (struct rcp_err){0};
	int root = open("root", O_RDONLY | O_DIRECTORY);

	assert_int_equal(rcp_sink_mkdir(root, "out", "out", false, &err), RCP_E_PARTIAL);
	assert_int_equal(err.sys_errno, EXDEV);
	err = (struct rcp_err){0};
	assert_int_equal(rcp_sink_mkdir(root, "out/x", "out/x", false, &err), RCP_E_PARTIAL);
	err = (struct rcp_err){0};
	assert_int_equal(rcp_sink_dir_end(root, "out", "out", &m, false, &err, &lost), RCP_E_PARTIAL);
	err = (struct rcp_err){0};
	assert_int_equal(rcp_sink_dir_end(root, "../outside", "x", &m, false, &err, &lost), RCP_E_PARTIAL);
	assert_int_equal(tmp_count("outside"), 0);
	err = (struct rcp_err){0};
	assert_int_equal(rcp_sink_mkdir(root, "inlink", "inlink", false, &err), 0); /* as scp: entered */
	close(root);
}

/* For -a a symlink is an entry of its own: what it leads to is another's. */
static void a_directory_instead_of_a_symlink(void **state)
{
	struct rcp_err err = {0};
	struct stat st;

	(void)state;
	assert_int_equal(mkdir("d", 0755), 0);
	assert_int_equal(symlink("d", "l"), 0);
	assert_int_equal(symlink("nowhere", "dangling"), 0);
	assert_int_equal(rcp_sink_mkdir(here(), "d", "d", true, &err), 0);
	assert_int_equal(rcp_sink_mkdir(here(), "l", "l", true, &err), 0);
	assert_int_equal(lstat("l", &st), 0);
	assert_true(S_ISDIR(st.st_mode));
	assert_int_equal(rcp_sink_mkdir(here(), "dangling", "dangling", true, &err), 0);
	assert_int_equal(rcp_sink_mkdir(here(), "l/x", "l/x", true, &err), 0);
	assert_int_equal(tmp_count("d"), 0);
	tmp_text("f", "");
	assert_int_equal(rcp_sink_mkdir(here(), "f", "f", true, &err), RCP_E_PARTIAL);
	assert_non_null(strstr(err.text, "a file has this name"));
}

/* A copy of "f" would take ".f.rcp-part" for its own, and end as the other's name. */
static void own_names_are_refused(void **state)
{
	static const char *const own[] = {".f.rcp-part", ".f.rcp-journal", ".f.rcp-make", "d/.\xff.rcp-part"},
				*const others[] = {".rcp-part", "f.rcp-part", ".f.rcp-parts"};
	struct rcp_err err = {0};

	(void)state;
	assert_int_equal(mkdir("d", 0755), 0);
	for (size_t i = 0; i < 4; i++) {
		err = (struct rcp_err){0};
		assert_int_equal(rcp_sink_mkdir(here(), own[i], own[i], true, &err), RCP_E_PARTIAL);
		assert_non_null(strstr(err.text, "rcp's own partial files"));
	}
	err = (struct rcp_err){0};
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(rcp_sink_mkdir(here(), others[i], others[i], true, &err), 0);
}

/* An ACL that makes its owner a reader comes after what only a writer may set. */
static void acls_come_last(void **state)
{
	static const char readonly[] = "\2\0\0\0\1\0\4\0\xff\xff\xff\xff\2\0\4\0\1\0\0\0\4\0\4\0\xff\xff\xff\xff"
				       "\x10\0\4\0\xff\xff\xff\xff\x20\0\0\0\xff\xff\xff\xff";
	struct rcp_rec_xattr x = {.name = rcp_span_str("system.posix_acl_access"),
				  .value = rcp_span_of(readonly, sizeof(readonly) - 1)};
	struct rcp_wr w = {.max = 1000};
	struct rcp_err err = {0};
	int fd = open("f", O_RDWR | O_CREAT, 0600);
	uid_t me = geteuid();

	(void)state;
	assert_true(fd >= 0);
	if (fsetxattr(fd, "user.x", "1", 1, 0) < 0 ||
	    fsetxattr(fd, "system.posix_acl_access", readonly, sizeof(readonly) - 1, 0) < 0)
		TMP_SKIP("no user xattrs or no ACLs here");
	assert_int_equal(fchmod(fd, 0600), 0);
	rcp_rec_encode(&w, RCP_REC_XATTR, &x);
	add_xattr(&w, "user.y", "2");
	if (me == 0) { /* root may always write */
		assert_int_equal(fchown(fd, 65534, 65534), 0);
		assert_int_equal(seteuid(65534), 0);
	}
	unsigned lost = rcp_xattrs_apply(fd, NULL, "f", w.data, w.len, false, &err);

	assert_int_equal(seteuid(me), 0);
	assert_int_equal(lost, 0);
	assert_int_equal(fgetxattr(fd, "user.y", NULL, 0), 1);
	assert_true(fgetxattr(fd, "system.posix_acl_access", NULL, 0) > 0);
	close(fd);
	rcp_wr_free(&w);
}

/* An older version's attributes on a directory, or on a partial file that is taken up. */
static void attributes_that_went(void **state)
{
	struct rcp_rec_entry e = entry_of(RCP_ENTRY_DIR_END, 0755);
	struct rcp_meta m = meta_of(&e, &archive);
	struct rcp_err err = {0};
	unsigned lost;
	char value[8];

	(void)state;
	assert_int_equal(mkdir("d", 0755), 0);
	if (setxattr("d", "user.old", "1", 1, 0) < 0)
		TMP_SKIP("no user xattrs here");
	assert_int_equal(setxattr("d", "user.kept", "old", 3, 0), 0);
	struct rcp_wr w = {.max = 1000};

	add_xattr(&w, "user.kept", "new");
	m.xattrs = w.data;
	m.xattrs_len = (uint32_t)w.len;
	assert_int_equal(rcp_sink_dir_end(here(), "d", "d", &m, false, &err, &lost), 0);
	assert_int_equal(lost, 0);
	assert_int_equal(getxattr("d", "user.kept", value, sizeof(value)), 3);
	assert_memory_equal(value, "new", 3);
	assert_true(getxattr("d", "user.old", value, sizeof(value)) < 0);
	assert_int_equal(errno, ENODATA);
	rcp_wr_free(&w);
}

static int special(int root, const char *path, struct rcp_rec_entry *e, const char *link,
		   struct rcp_err *err)
{
	struct rcp_meta m;
	unsigned lost;

	*err = (struct rcp_err){0};
	if (link)
		e->link = rcp_span_str(link);
	m = meta_of(e, &archive);
	int rc = rcp_sink_special(root, path, path, e, 0, &m, false, err, &lost);

	if (!rc)
		assert_int_equal(lost, 0);
	rcp_meta_free(&m);
	return rc;
}

static void symlinks(void **state)
{
	struct rcp_rec_entry e = entry_of(RCP_ENTRY_SYMLINK, 0777);
	struct rcp_err err;
	struct stat st;
	char to[100] = {0};

	(void)state;
	assert_int_equal(special(here(), "l", &e, "/anywhere\n", &err), 0);
	assert_int_equal(readlink("l", to, sizeof(to)), 10);
	assert_string_equal(to, "/anywhere\n");
	assert_int_equal(lstat("l", &st), 0);
	assert_int_equal(st.st_mtim.tv_sec, 1000);
	tmp_text("f", "old");
	assert_int_equal(special(here(), "f", &e, "l", &err), 0); /* over a file */
	assert_int_equal(lstat("f", &st), 0);
	assert_true(S_ISLNK(st.st_mode));
	assert_int_equal(mkdir("d", 0755), 0);
	assert_int_equal(special(here(), "d", &e, "l", &err), RCP_E_PARTIAL);
	assert_non_null(strstr(err.text, "a directory has this name"));
	assert_int_equal(special(here(), "e", &e, "", &err),
			 RCP_E_PARTIAL); /* symlink(2) says ENOENT */
	assert_int_equal(tmp_count("."), 3);
}

static void hard_links(void **state)
{
	struct rcp_rec_entry e = entry_of(RCP_ENTRY_HARDLINK, 0600);
	struct rcp_err err;
	struct stat a, b;

	(void)state;
	assert_int_equal(mkdir("d", 0755), 0);
	tmp_text("d/first", "x");
	tmp_text("second", "old");
	for (int i = 0; i < 2; i++) { /* the second time both are one file already */
		assert_int_equal(special(here(), "second", &e, "d/first", &err), 0);
		assert_int_equal(stat("d/first", &a), 0);
		assert_int_equal(stat("second", &b), 0);
		assert_int_equal(a.st_ino, b.st_ino);
		assert_int_equal(a.st_nlink, 2);
		assert_int_equal(tmp_count("."), 2);
	}
	assert_int_equal(special(here(), "t", &e, "none", &err), RCP_E_PARTIAL);
	assert_non_null(strstr(err.text, "no hard link to none"));
	assert_int_equal(special(here(), "t", &e, "../x", &err), RCP_E_PARTIAL);
	assert_int_equal(special(here(), "t", &e, "d", &err), RCP_E_PARTIAL);
	assert_false(tmp_exists("t"));
}

static void nodes(void **state)
{
	struct rcp_rec_entry e = entry_of(RCP_ENTRY_FIFO, 0620);
	struct rcp_err err;
	struct stat st;

	(void)state;
	tmp_text(".fifo.rcp-make", "left behind");
	assert_int_equal(special(here(), "fifo", &e, NULL, &err), 0);
	assert_int_equal(lstat("fifo", &st), 0);
	assert_true(S_ISFIFO(st.st_mode));
	assert_int_equal(st.st_mode & 07777, 0620);
	assert_int_equal(st.st_mtim.tv_sec, 1000);
	e.type = RCP_ENTRY_SOCK;
	assert_int_equal(special(here(), "sock", &e, NULL, &err), 0);
	assert_int_equal(lstat("sock", &st), 0);
	assert_true(S_ISSOCK(st.st_mode));
	assert_int_equal(tmp_count("."), 2);
	e.type = RCP_ENTRY_FILE; /* has data: not made here */
	assert_int_equal(special(here(), "x", &e, NULL, &err), RCP_E_CONNECT);
	e.type = RCP_ENTRY_CHR;
	e.rdev = makedev(1, 3);
	if (geteuid()) {
		assert_int_equal(special(here(), "dev", &e, NULL, &err), RCP_E_PARTIAL);
		assert_non_null(strstr(err.fix, "only root"));
		TMP_SKIP("only root makes devices");
	}
	int rc = special(here(), "dev", &e, NULL, &err);

	if (rc && err.sys_errno == EPERM)
		TMP_SKIP("no CAP_MKNOD here");
	assert_int_equal(rc, 0);
	assert_int_equal(lstat("dev", &st), 0);
	assert_true(S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TMP_TEST(modes_as_scp),
		TMP_TEST(names_become_numbers),
		TMP_TEST(hostile_metadata),
		TMP_TEST(all_of_it_on_a_file),
		TMP_TEST(owner_of_a_file),
		TMP_TEST(xattrs_and_acls),
		TMP_TEST(too_many_xattrs),
		TMP_TEST(xattrs_by_name),
		TMP_TEST(directories),
		TMP_TEST(directories_that_can_not_be),
		TMP_TEST(a_directory_instead_of_a_symlink),
		TMP_TEST(own_names_are_refused),
		TMP_TEST(acls_come_last),
		TMP_TEST(attributes_that_went),
		TMP_TEST(symlinks),
		TMP_TEST(hard_links),
		TMP_TEST(nodes),
	};

	return cmocka_run_group_tests(tests, tmp_setup, tmp_teardown);
}
