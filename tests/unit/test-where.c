/* where: scp's rules for what is a host and what is a file. */
#include "boot/where.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const char *str(const char *s)
{
	return s ? s : "(none)";
}

static void local_names(void **state)
{
	static const char *const names[] = {
		"file", "./a:b",     "/a:b",  "d/a:b", ":a",	  "../x:y",
		"dir/", ".",	     "[::1]", "[::1",  "[a/b]:c", "user@[::1]x:path",
		"a b",	"new\nline", "-dash", "C/:x",  "~/x:y",	  "\xff\xfe",
		"@",	"a@b",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct rcp_where w;
		struct rcp_err err = {0};

		assert_int_equal(rcp_where_parse(names[i], &err, &w), 0);
		assert_int_equal(w.kind, RCP_WHERE_LOCAL);
		assert_string_equal(w.path, names[i]);
		assert_null(w.host);
		assert_null(w.user);
		rcp_where_free(&w);
	}
}

static void hosts(void **state)
{
	static const struct {
		const char *text, *user, *host, *path;
	} t[] = {
		{"host:path", NULL, "host", "path"},
		{"host:", NULL, "host", ""},
		{"host:/abs/path", NULL, "host", "/abs/path"},
		{"host:a:b", NULL, "host", "a:b"},
		{"host::x", NULL, "host", ":x"},
		{"host:~/x", NULL, "host", "~/x"},
		{"host:-x", NULL, "host", "-x"},
		{"me@host:x", "me", "host", "x"},
		{"me@corp@host:x", "me@corp", "host", "x"},
		{"host:me@x", NULL, "host", "me@x"},
		{"[::1]:x", NULL, "::1", "x"},
		{"[::1]:", NULL, "::1", ""},
		{"me@[::1]:/x", "me", "::1", "/x"},
		{"me@[fe80::1%eth0]:x", "me", "fe80::1%eth0", "x"},
		{"[host]:x", NULL, "host", "x"},
		{"192.0.2.1:x", NULL, "192.0.2.1", "x"},
		{"host:with space\n\xff", NULL, "host", "with space\n\xff"},
		{"h:[::1]:x", NULL, "h", "[::1]:x"},
		{"me@::1:x", "me", NULL,
		 NULL}, /* the first colon ends it, as in scp: an empty host */
		{"C:x", NULL, "C", "x"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		struct rcp_where w;
		struct rcp_err err = {0};
		int code = rcp_where_parse(t[i].text, &err, &w);

		if (!t[i].host) {
			assert_int_equal(code, RCP_E_USAGE);
			continue;
		}
		assert_int_equal(code, 0);
		assert_int_equal(w.kind, RCP_WHERE_SSH);
		assert_string_equal(str(w.user), str(t[i].user));
		assert_string_equal(w.host, t[i].host);
		assert_string_equal(w.path, t[i].path);
		rcp_where_free(&w);
	}
}

static void daemons(void **state)
{
	static const struct {
		const char *text, *user, *host, *module, *path;
		unsigned port;
	} t[] = {
		{"rcp://host/mod", NULL, "host", "mod", "", RCP_DAEMON_PORT},
		{"rcp://host/mod/", NULL, "host", "mod", "", RCP_DAEMON_PORT},
		{"rcp://host/mod/a/b:c", NULL, "host", "mod", "a/b:c", RCP_DAEMON_PORT},
		{"rcp://key@host:99/mod/a", "key", "host", "mod", "a", 99},
		{"rcp://[2001:db8::1]/mod/a", NULL, "2001:db8::1", "mod", "a", RCP_DAEMON_PORT},
		{"rcp://k@[::1]:65535/m/p@q:1", "k", "::1", "m", "p@q:1", 65535},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		struct rcp_where w;
		struct rcp_err err = {0};

		assert_int_equal(rcp_where_parse(t[i].text, &err, &w), 0);
		assert_int_equal(w.kind, RCP_WHERE_DAEMON);
		assert_string_equal(str(w.user), str(t[i].user));
		assert_string_equal(w.host, t[i].host);
		assert_string_equal(w.module, t[i].module);
		assert_string_equal(w.path, t[i].path);
		assert_int_equal(w.port, t[i].port);
		rcp_where_free(&w);
	}
}

static void listings(void **state)
{
	static const struct {
		const char *text, *user, *host;
		unsigned port;
	} t[] = {
		{"rcp://host", NULL, "host", RCP_DAEMON_PORT},
		{"rcp://host/", NULL, "host", RCP_DAEMON_PORT},
		{"rcp://k@[::1]:99/", "k", "::1", 99},
		{"rcp://:99/", NULL, NULL, 0},
		{"rcp://host:x/", NULL, NULL, 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		struct rcp_where w;
		struct rcp_err err = {0};
		int code = rcp_where_parse_listing(t[i].text, &err, &w);

		assert_int_equal(code, t[i].host ? 0 : RCP_E_USAGE);
		if (!t[i].host)
			continue;
		assert_string_equal(str(w.user), str(t[i].user));
		assert_string_equal(w.host, t[i].host);
		assert_string_equal(w.module, "");
		assert_int_equal(w.port, t[i].port);
		rcp_where_free(&w);
	}
}

static void what_can_not_be(void **state)
{
	static const struct {
		const char *text, *why;
	} t[] = {
		{"", "empty"},
		{"@host:x", "user"},
		{"me@:x", "host's name is empty"},
		{"[]:x", "host's name is empty"},
		{"me@[]:x", "host's name is empty"},
		{"-oProxyCommand=reboot:x", "begin with '-'"},
		{"me@-oProxyCommand=reboot:x", "begin with '-'"},
		{"-l@host:x", "begin with '-'"},
		{"[-x]:p", "begin with '-'"},
		{"scp://host/x", "another program"},
		{"ssh://host/x", "another program"},
		{"rcp:///mod", "host's name is empty"},
		{"rcp://host", "module"},
		{"rcp://host/", "module"},
		{"rcp://host//x", "module"},
		{"rcp://host:/m", "port"},
		{"rcp://host:0/m", "port"},
		{"rcp://host:65536/m", "port"},
		{"rcp://host:99999999999/m", "port"},
		{"rcp://host:1x/m", "port"},
		{"rcp://@host/m", "user"},
		{"rcp://::1/m", "brackets"},
		{"rcp://[::1/m", "bracket"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		struct rcp_where w;
		struct rcp_err err = {0};

		assert_int_equal(rcp_where_parse(t[i].text, &err, &w), RCP_E_USAGE);
		if (!strstr(err.text, t[i].why))
			fail_msg("'%s': no '%s' in '%s'", t[i].text, t[i].why, err.text);
		assert_string_equal(err.object, t[i].text);
		assert_null(w.host);
		assert_null(w.path);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(local_names),
		cmocka_unit_test(hosts),
		cmocka_unit_test(daemons),
		cmocka_unit_test(listings),
		cmocka_unit_test(what_can_not_be),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
