/* ring: where slots, headers and payloads stand; what happens without memory. */
#include "link/ring.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

static void slots_stand_apart(void **state)
{
	struct rcp_err err = {0};
	struct rcp_ring r;

	(void)state;
	assert_int_equal(rcp_ring_map(5, 8192, &err, &r), 0);
	assert_int_equal(r.slots, 5);
	assert_int_equal(r.slot_bytes, 8192 + 4096);
	assert_int_equal((uintptr_t)r.base % (2 << 20), 0);
	for (uint32_t i = 0; i < 5; i++) {
		assert_int_equal((uintptr_t)rcp_ring_payload(&r, i) % 4096, 0);
		assert_ptr_equal(rcp_ring_header(&r, i) + 64, rcp_ring_payload(&r, i));
		memset(rcp_ring_header(&r, i), (int)i + 1, 64 + 8192);
	}
	for (uint32_t i = 0; i < 5; i++) {
		assert_int_equal(rcp_ring_header(&r, i)[0], i + 1);
		assert_int_equal(rcp_ring_payload(&r, i)[8191], i + 1);
	}
	assert_true(rcp_ring_payload(&r, 4) + 8192 <= r.base + r.bytes);
	rcp_ring_unmap(&r);
	assert_null(r.base);
	rcp_ring_unmap(&r);
}

static size_t address_space(void)
{
	FILE *f = fopen("/proc/self/statm", "r");
	size_t pages = 0;

	assert_non_null(f);
	assert_int_equal(fscanf(f, "%zu", &pages), 1);
	fclose(f);
	return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* The ends that alignment cuts off are given back. */
static void nothing_is_left(void **state)
{
	struct rcp_err err = {0};
	struct rcp_ring r;
	size_t before = address_space();

	(void)state;
	assert_int_equal(rcp_ring_map(3, 1 << 20, &err, &r), 0);
	assert_int_equal(address_space() - before, r.bytes);
	rcp_ring_unmap(&r);
	assert_int_equal(address_space(), before);
}

static void halved_without_memory(void **state)
{
	struct rcp_err err = {0};
	struct rcp_ring r;
	struct rlimit old, low;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_AS, &old), 0);
	low = old;
	low.rlim_cur = address_space() + ((size_t)48 << 20);
	assert_int_equal(setrlimit(RLIMIT_AS, &low), 0);
	int whole = rcp_ring_map(64, 1 << 20, &err, &r);
	void *base = r.base;
	struct rcp_err none = {0};
	int most = rcp_ring_map_most(64, 1 << 20, &none, &r);
	uint32_t slots = r.slots;

	rcp_ring_unmap(&r);
	low.rlim_cur = address_space() + 4096;
	setrlimit(RLIMIT_AS, &low);
	struct rcp_err nothing = {0};
	int least = rcp_ring_map_most(64, 1 << 20, &nothing, &r);

	/* Judged only now: the judge needs memory too. */
	assert_int_equal(setrlimit(RLIMIT_AS, &old), 0);
	assert_int_equal(whole, RCP_E_IO);
	assert_int_equal(err.sys_errno, ENOMEM);
	assert_non_null(strstr(err.text, "64 slots"));
	assert_non_null(strstr(err.fix, "ulimit -v"));
	assert_null(base);
	assert_int_equal(most, 0);
	assert_false(rcp_err_is(&none));
	assert_int_equal(slots, 32);
	assert_int_equal(least, RCP_E_IO);
	assert_non_null(strstr(nothing.text, "64 slots")); /* what was wanted, not the last try */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(slots_stand_apart),
		cmocka_unit_test(nothing_is_left),
		cmocka_unit_test(halved_without_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
