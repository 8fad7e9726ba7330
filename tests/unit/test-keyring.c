/* boot/keyring: lines of keys, files of them, and who may see those. */
#include "boot/keyring.h"

#include "tmpdir.h"

#define HEX "00112233445566778899aabbccddeeff0123456789abcdefABCDEF0123456789"

static int parse(const char *text, struct rcp_err *err, struct rcp_keyring *ring)
{
	*err = (struct rcp_err){0};
	*ring = (struct rcp_keyring){0};
	return rcp_keyring_parse(ring, text, strlen(text), "file", err);
}

static void lines(void **state)
{
	static const uint8_t first[4] = {0x00, 0x11, 0x22, 0x33};
	struct rcp_keyring ring;
	struct rcp_err err;

	(void)state;
	assert_int_equal(parse("# mine\n\n a.b-1 \t " HEX " \r\nb " HEX, &err, &ring), 0);
	assert_int_equal(ring.count, 2);
	assert_string_equal(ring.keys[0].name, "a.b-1");
	assert_memory_equal(ring.keys[0].key, first, 4);
	assert_int_equal(ring.keys[0].key[31], 0x89);
	assert_ptr_equal(rcp_keyring_find(&ring, "b"), &ring.keys[1]);
	assert_ptr_equal(rcp_keyring_find(&ring, NULL), &ring.keys[0]);
	assert_null(rcp_keyring_find(&ring, "c"));
	rcp_keyring_free(&ring);
	assert_null(rcp_keyring_find(&ring, NULL));
}

static void wrong_lines(void **state)
{
	static const struct {
		const char *text, *at, *why;
	} t[] = {
		{"a\n", "file:1", "no name and key"},
		{"# x\n" HEX "\n", "file:2", "no name and key"},
		{"a 12\n", "file:1", "not 64 hexadecimal digits"},
		{"a " HEX "0\n", "file:1", "not 64 hexadecimal digits"},
		{"a " HEX " b\n", "file:1", "not 64 hexadecimal digits"},
		{"a/b " HEX "\n", "file:1", "letters, digits"},
		{".a " HEX "\n", "file:1", "begins with"},
		{"a " HEX "\na " HEX "\n", "file:2", "is there twice, first in file:1"},
		{"x23456789012345678901234567890123456789012345678901234567890123456 " HEX, "file:1", "no name and key"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		struct rcp_keyring ring;
		struct rcp_err err;

		assert_int_equal(parse(t[i].text, &err, &ring), RCP_E_USAGE);
		if (strcmp(err.object, t[i].at) || !strstr(err.text, t[i].why))
			fail_msg("%s: %s: %s", t[i].text, err.object, err.text);
		rcp_keyring_free(&ring);
	}
}

static void made_and_read(void **state)
{
	struct rcp_keyring ring = {0};
	struct rcp_err err = {0};
	char line[RCP_KEY_LINE], other[RCP_KEY_LINE];
	struct stat st;

	(void)state;
	umask(0);
	assert_int_equal(mkdir("keys", 0755), 0);
	assert_int_equal(rcp_key_make("alice", &err, line), 0);
	assert_int_equal(rcp_key_make("bob", &err, other), 0);
	assert_int_equal(rcp_key_write("keys/1", line, &err), 0);
	assert_int_equal(rcp_key_write("keys/2", other, &err), 0);
	tmp_text("keys/.not-a-key", "");
	assert_int_equal(stat("keys/1", &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(rcp_keyring_read(&ring, "keys", &err), 0);
	assert_int_equal(ring.count, 2);
	assert_memory_not_equal(rcp_keyring_find(&ring, "alice")->key, rcp_keyring_find(&ring, "bob")->key, RCP_SECRET);
	rcp_keyring_free(&ring);
	/* never over another one */
	assert_int_not_equal(rcp_key_write("keys/1", other, &err), 0);
	tmp_expect_text("keys/1", line);
	err = (struct rcp_err){0};
	assert_int_equal(rcp_key_make("not a name", &err, line), RCP_E_USAGE);
	umask(022);
}

static void open_to_others(void **state)
{
	static const mode_t modes[] = {0640, 0604, 0620, 0602, 0610};
	struct rcp_keyring ring = {0};
	struct rcp_err err = {0};

	(void)state;
	tmp_text("k", "a " HEX "\n");
	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		err = (struct rcp_err){0};
		assert_int_equal(chmod("k", modes[i]), 0);
		assert_int_equal(rcp_keyring_read(&ring, "k", &err), RCP_E_USAGE);
		assert_non_null(strstr(err.text, "lets others at them"));
		assert_string_equal(err.fix, "chmod 600 'k'");
		assert_int_equal(ring.count, 0);
	}
	err = (struct rcp_err){0};
	assert_int_equal(chmod("k", 0400), 0);
	assert_int_equal(rcp_keyring_read(&ring, "k", &err), 0);
	rcp_keyring_free(&ring);
	assert_int_equal(mkdir("d", 0755), 0);
	assert_int_equal(chmod("d", 0775), 0);
	assert_int_equal(rcp_keyring_read(&ring, "d", &err), RCP_E_USAGE);
	if (geteuid() == 0) {
		err = (struct rcp_err){0};
		assert_int_equal(chown("k", 12345, 0), 0);
		assert_int_equal(rcp_keyring_read(&ring, "k", &err), RCP_E_USAGE);
		assert_non_null(strstr(err.text, "belongs to another user"));
	}
	err = (struct rcp_err){0};
	assert_int_equal(rcp_keyring_read(&ring, "none", &err), RCP_E_USAGE);
	assert_non_null(strstr(err.fix, "rcp --keygen"));
	assert_int_equal(mkfifo("fifo", 0600), 0);
	err = (struct rcp_err){0};
	assert_int_equal(rcp_keyring_read(&ring, "fifo", &err), RCP_E_USAGE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lines),
		cmocka_unit_test(wrong_lines),
		TMP_TEST(made_and_read),
		TMP_TEST(open_to_others),
	};

	return cmocka_run_group_tests(tests, tmp_setup, tmp_teardown);
}
