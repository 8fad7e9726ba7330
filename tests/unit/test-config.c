/* boot/config: what rcpd.conf(5) may say, and which line and remedy an error names. */
#include "boot/config.h"

#include "boot/where.h"

#include "tmpdir.h"

static int parse(const char *text, struct rcp_err *err, struct rcp_config *c)
{
	*err = (struct rcp_err){0};
	return rcp_config_parse(text, strlen(text), "conf", err, c);
}

static void all_of_it(void **state)
{
	struct rcp_config c;
	struct rcp_err err;

	(void)state;
	assert_int_equal(parse("# a comment\n"
			       "  listen = 127.0.0.1, ::1\n"
			       "port=99\r\n"
			       "keys\t=  /etc/rcp/keys  \n"
			       "max-connections = 5\nhandshake-seconds = 3\nidle-seconds = 60\nlog = syslog\n\n"
			       "[one]\npath = /a b/c\ncomment = x = y # z\nwritable = yes\nencrypt = always\n"
			       "keys = a,b  c\nuser = u\ngroup = g\nmax-connections = 2\nbwlimit = 10M\n"
			       "[two.2]\npath = /\nkeys = *",
			       &err, &c), 0);
	assert_string_equal(c.listen[0], "127.0.0.1");
	assert_string_equal(c.listen[1], "::1");
	assert_null(c.listen[2]);
	assert_int_equal(c.port, 99);
	assert_string_equal(c.keys, "/etc/rcp/keys");
	assert_int_equal(c.max_connections, 5);
	assert_int_equal(c.handshake_seconds, 3);
	assert_int_equal(c.idle_seconds, 60);
	assert_true(c.syslog);
	assert_int_equal(c.module_count, 2);
	const struct rcp_module *m = &c.modules[0];

	assert_string_equal(m->name, "one");
	assert_int_equal(m->line, 10);
	assert_string_equal(m->path, "/a b/c");
	assert_string_equal(m->comment, "x = y # z");
	assert_true(m->writable && m->encrypt);
	assert_string_equal(m->keys[2], "c");
	assert_string_equal(m->user, "u");
	assert_string_equal(m->group, "g");
	assert_int_equal(m->max_connections, 2);
	assert_int_equal(m->bwlimit, 10 << 20);
	assert_false(c.modules[1].writable || c.modules[1].encrypt);

	/* who may see what */
	assert_ptr_equal(rcp_config_module(&c, "one", "b"), m);
	assert_null(rcp_config_module(&c, "one", "z"));
	assert_null(rcp_config_module(&c, "one", "*"));
	assert_non_null(rcp_config_module(&c, "two.2", "z"));
	assert_null(rcp_config_module(&c, "none", "a"));
	rcp_config_free(&c);
}

static void what_is_not_said(void **state)
{
	struct rcp_config c;
	struct rcp_err err;

	(void)state;
	assert_int_equal(parse("keys = /k\n[m]\npath = /p\nkeys = a\n", &err, &c), 0);
	assert_null(c.listen);
	assert_int_equal(c.port, RCP_DAEMON_PORT);
	assert_int_equal(c.max_connections, 100);
	assert_false(c.syslog || c.modules[0].writable || c.modules[0].encrypt);
	assert_int_equal(c.modules[0].bwlimit, 0);
	rcp_config_free(&c);
}

static void what_can_not_be(void **state)
{
#define K "keys = /k\n"
#define M "[m]\npath = /p\nkeys = a\n"
	static const struct {
		const char *text, *at, *why, *fix;
	} t[] = {
		{"", "conf:0", "no keys", "keys ="},
		{K, "conf:1", "no module", "[name]"},
		{K "nonsense\n" M, "conf:2", "'nonsense' is none of these", "setting = value"},
		{K "colour = blue\n" M, "conf:2", "unknown setting 'colour'", "before the modules has listen port"},
		{K M "port = 5\n", "conf:5", "unknown setting 'port'", "a module has path comment"},
		{K "port =\n" M, "conf:2", "port has no value", "take the line out"},
		{K "port = 70000\n" M, "conf:2", "port can't be '70000'", "1 to 65535"},
		{K "port = -1\n" M, "conf:2", "port can't be", "1 to 65535"},
		{K "port = 1x\n" M, "conf:2", "port can't be", "1 to 65535"},
		{K "port = 99999999999999999999\n" M, "conf:2", "port can't be", "1 to 65535"},
		{K "port = 1\nport = 2\n" M, "conf:3", "port is there twice", "one of them"},
		{K "listen = host\n" M, "conf:5", "'host' is no address", "numbers"},
		{K "listen = ,\n" M, "conf:2", "names nothing", "commas"},
		{"keys = k\n" M, "conf:1", "keys can't be 'k'", "begins with /"},
		{K "log = file\n" M, "conf:2", "log can't be 'file'", "standard-error or syslog"},
		{K M M, "conf:5", "module m is there twice, first in line 2", "another name"},
		{K "[m\n", "conf:2", "not closed", "[name]"},
		{K "[]\n", "conf:2", "no name for a module", "1 to 64"},
		{K "[a/b]\n", "conf:2", "no name for a module: 'a/b'", "letters"},
		{K "[..]\n", "conf:2", "no name for a module", "begins with"},
		{K "[m]\npath = p\n", "conf:3", "path can't be 'p'", "begins with /"},
		{K "[m]\nkeys = a\n", "conf:2", "module m has no path", "path ="},
		{K "[m]\npath = /p\n", "conf:2", "module m is for nobody", "keys ="},
		{K "[m]\npath = /p\nkeys = a/b\n", "conf:2", "no key's name: 'a/b'", "letters"},
		{K M "writable = maybe\n", "conf:5", "writable can't be 'maybe'", "no or yes"},
		{K M "bwlimit = fast\n", "conf:5", "bwlimit can't be 'fast'", "100M"},
		{K M "bwlimit = 0\n", "conf:5", "bwlimit can't be '0'", "100M"},
		{K M "group = g\n", "conf:2", "a group and no user", "user ="},
		{K M "max-connections = 0\n", "conf:5", "max-connections can't be '0'", "1 to 10000"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		struct rcp_config c;
		struct rcp_err err;

		if (parse(t[i].text, &err, &c) != RCP_E_USAGE || strcmp(err.object, t[i].at) ||
		    !strstr(err.text, t[i].why) || !strstr(err.fix, t[i].fix))
			fail_msg("%s: %s: %s (%s)", t[i].text, err.object, err.text, err.fix);
		rcp_config_free(&c);
	}
}

static void a_nul_byte(void **state)
{
	static const char text[] = K M "\0[n]\n";
	struct rcp_config c;
	struct rcp_err err = {0};

	(void)state;
	assert_int_equal(rcp_config_parse(text, sizeof(text) - 1, "conf", &err, &c), RCP_E_USAGE);
	assert_non_null(strstr(err.text, "NUL"));
	rcp_config_free(&c);
}

static void looked_up(void **state)
{
	struct rcp_config c;
	struct rcp_err err = {0};
	char line[RCP_KEY_LINE], text[16384], here[4096];
	const char *user = geteuid() == 0 ? "user = root\n" : "";

	(void)state;
	assert_non_null(getcwd(here, sizeof(here)));
	assert_int_equal(rcp_key_make("a", &err, line), 0);
	assert_int_equal(rcp_key_write("k", line, &err), 0);
	snprintf(text, sizeof(text), "keys = %s/k\n[m]\npath = %s\nkeys = a\n%s", here, here, user);
	tmp_text("conf", text);
	assert_int_equal(rcp_config_load("conf", &err, &c), 0);
	assert_int_equal(c.ring.count, 1);
	assert_int_equal(c.modules[0].uid, geteuid());
	rcp_config_free(&c);

	snprintf(text, sizeof(text), "keys = %s/k\n[m]\npath = %s\nkeys = b\n%s", here, here, user);
	tmp_text("conf", text);
	assert_int_equal(rcp_config_load("conf", &err, &c), RCP_E_USAGE);
	assert_non_null(strstr(err.text, "there is no key b"));
	assert_string_equal(err.object, "conf:2");
	err = (struct rcp_err){0};
	snprintf(text, sizeof(text), "keys = %s/k\n[m]\npath = %s\nkeys = a\nuser = no-such-user\n", here, here);
	tmp_text("conf", text);
	assert_int_equal(rcp_config_load("conf", &err, &c), RCP_E_USAGE);
	assert_non_null(strstr(err.text, "there is no user no-such-user"));
	err = (struct rcp_err){0};
	assert_int_equal(rcp_config_load("none", &err, &c), RCP_E_USAGE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_of_it), cmocka_unit_test(what_is_not_said),
		cmocka_unit_test(what_can_not_be), cmocka_unit_test(a_nul_byte), TMP_TEST(looked_up),
	};

	return cmocka_run_group_tests(tests, tmp_setup, tmp_teardown);
}
