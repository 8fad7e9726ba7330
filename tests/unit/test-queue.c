/* boot/daemon_queue: who is next, and who makes way. */
#include "boot/daemon_queue.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static union rcp_sa peer(const char *text)
{
	union rcp_sa sa;

	assert_true(rcp_sa_parse(text, &sa));
	return sa;
}

/* As a socket for both families has it. */
static union rcp_sa mapped(const char *text)
{
	union rcp_sa sa = {.in6 = {.sin6_family = AF_INET6}};

	assert_int_equal(inet_pton(AF_INET6, text, &sa.in6.sin6_addr), 1);
	return sa;
}

static uint64_t from(const char *text)
{
	union rcp_sa sa = peer(text);

	return daemon_from(&sa);
}

static void places(void **state)
{
	union rcp_sa m = mapped("::ffff:192.0.2.1");

	(void)state;
	assert_true(from("192.0.2.1") != from("192.0.2.2"));
	assert_true(from("192.0.2.1") == daemon_from(&m));
	assert_true(from("2001:db8:1:2::1") == from("2001:db8:1:2:ffff::9")); /* one host has them all */
	assert_true(from("2001:db8:1:2::1") != from("2001:db8:1:3::1"));
	assert_true(from("::1") != from("127.0.0.1"));
}

static void push(struct daemon_queue *q, int fd, const char *who, uint64_t now, int out)
{
	union rcp_sa sa = peer(who);

	assert_int_equal(daemon_queue_push(q, fd, &sa, now), out);
}

static void first_come(void **state)
{
	struct daemon_queue *q = calloc(1, sizeof(*q));
	union rcp_sa who;

	(void)state;
	for (int i = 0; i < 5; i++)
		push(q, 10 + i, "192.0.2.1", (uint64_t)i, -1);
	for (int i = 0; i < 5; i++)
		assert_int_equal(daemon_queue_pop(q, NULL, 0, &who), 10 + i);
	assert_int_equal(q->count, 0);
	assert_int_equal(daemon_queue_late(q, 100), -1);
	free(q);
}

static void the_one_who_has_least(void **state)
{
	struct daemon_queue *q = calloc(1, sizeof(*q));
	struct daemon_mark held[3] = {{.from = from("192.0.2.1")}, {.from = from("192.0.2.1")}, {.from = from("192.0.2.2")}};
	union rcp_sa who;
	char text[RCP_SA_TEXT];

	(void)state;
	push(q, 1, "192.0.2.1", 1, -1);
	push(q, 2, "192.0.2.2", 2, -1);
	push(q, 3, "192.0.2.2", 3, -1);
	push(q, 4, "192.0.2.3", 4, -1);
	assert_int_equal(daemon_queue_pop(q, held, 3, &who), 4);
	assert_string_equal(rcp_sa_text(&who, text), "192.0.2.3");
	assert_int_equal(daemon_queue_pop(q, held, 3, &who), 2);
	assert_string_equal(rcp_sa_text(&who, text), "192.0.2.2");
	assert_int_equal(daemon_queue_pop(q, held, 3, &who), 3);
	assert_int_equal(daemon_queue_pop(q, held, 3, &who), 1);
	assert_string_equal(rcp_sa_text(&who, text), "192.0.2.1");
	free(q);
}

static void the_one_who_has_most_makes_way(void **state)
{
	struct daemon_queue *q = calloc(1, sizeof(*q));

	(void)state;
	push(q, 0, "192.0.2.9", 0, -1);
	for (int i = 1; i < DAEMON_WAITING; i++)
		push(q, i, i % 3 ? "192.0.2.1" : "192.0.2.2", (uint64_t)i, -1);
	push(q, 5000, "192.0.2.3", 5000, 1); /* the oldest of .1, not of all */
	push(q, 5001, "192.0.2.1", 5001, 2); /* nor itself */
	assert_int_equal(q->count, DAEMON_WAITING);
	assert_int_equal(daemon_queue_late(q, 0), 0);
	assert_int_equal(daemon_queue_late(q, 0), -1);
	assert_int_equal(daemon_queue_late(q, 3), 3);
	free(q);
}

/* Each from elsewhere: then it is the oldest. */
static void a_crowd_of_places(void **state)
{
	struct daemon_queue *q = calloc(1, sizeof(*q));
	char who[32];

	(void)state;
	for (int i = 0; i < DAEMON_WAITING + 500; i++) {
		snprintf(who, sizeof(who), "10.%d.%d.1", i / 200, i % 200);
		push(q, i, who, (uint64_t)i, i < DAEMON_WAITING ? -1 : i - DAEMON_WAITING);
	}
	free(q);
}

static void heaviest(void **state)
{
	const struct daemon_mark marks[] = {{1, 10}, {2, 5}, {1, 9}, {3, 1}, {1, 11}, {2, 6}};

	(void)state;
	assert_int_equal(daemon_heaviest(marks, 6), 2);
	assert_int_equal(daemon_heaviest(marks, 2), 1);
	assert_int_equal(daemon_heaviest(marks, 1), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(places),
		cmocka_unit_test(first_come),
		cmocka_unit_test(the_one_who_has_least),
		cmocka_unit_test(the_one_who_has_most_makes_way),
		cmocka_unit_test(a_crowd_of_places),
		cmocka_unit_test(heaviest),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
