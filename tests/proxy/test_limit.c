/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <unistd.h>

#include "proxy/limit.h"

static struct limit *a, *b;

static int
up(void **state)
{
	int fd = limit_create(100);

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(limit_open(&a, fd, 0), 0);
	assert_int_equal(limit_open(&b, fd, 1), 0);
	close(fd);
	return 0;
}

static int
down(void **state)
{
	(void)state;
	limit_close(a);
	limit_close(b);
	return 0;
}

static struct addr
addr(const char *text)
{
	struct addr x;

	assert_true(addr_parse(&x, span_str(text)));
	return x;
}

static void
B032_places_are_counted_over_all_engines(void **state)
{
	struct addr x = addr("10.0.0.1"), y = addr("10.0.0.2");

	(void)state;
	for (int i = 0; i < 5; i++) {
		assert_int_equal(limit_take(a, &x, 20, 10), REASON_NONE);
		assert_int_equal(limit_take(b, &x, 20, 10), REASON_NONE);
	}
	assert_int_equal(limit_take(a, &x, 20, 10), REASON_LIMIT_CLIENT);
	assert_int_equal(limit_take(b, &x, 20, 10), REASON_LIMIT_CLIENT);
	assert_int_equal(limit_open_total(a), 10);
	for (int i = 0; i < 10; i++)
		assert_int_equal(limit_take(b, &y, 20, 10), REASON_NONE);
	assert_int_equal(limit_take(a, &y, 20, 10), REASON_LIMIT_TOTAL);
	limit_give(a, &x);
	assert_int_equal(limit_take(b, &x, 20, 10), REASON_NONE);
}

static void
B032_a_thousand_cycles_leave_nothing(void **state)
{
	(void)state;
	for (int i = 0; i < 1000; i++) {
		char text[ADDR_TEXT_BYTES];
		struct addr x;

		snprintf(text, sizeof(text), "10.%d.%d.1", i / 250, i % 250);
		x = addr(text);
		assert_int_equal(limit_take(a, &x, 5, 2), REASON_NONE);
		assert_int_equal(limit_take(a, &x, 5, 2), REASON_NONE);
		assert_int_equal(limit_take(a, &x, 5, 2),
		    REASON_LIMIT_CLIENT);
		limit_give(a, &x);
		limit_give(a, &x);
		limit_give(a, &x);	/* one too many: never negative */
	}
	assert_int_equal(limit_open_total(a), 0);
}

static void
an_IPv6_client_counts_by_its_64(void **state)
{
	struct addr x = addr("2001:db8::1"), y = addr("2001:db8::ffff:2"),
	    z = addr("2001:db8:0:1::1");

	(void)state;
	assert_int_equal(limit_take(a, &x, 9, 1), REASON_NONE);
	assert_int_equal(limit_take(a, &y, 9, 1), REASON_LIMIT_CLIENT);
	assert_int_equal(limit_take(a, &z, 9, 1), REASON_NONE);
}

static void
a_dead_engine_gives_its_places_back(void **state)
{
	struct addr x = addr("10.0.0.1");

	(void)state;
	assert_int_equal(limit_take(a, &x, 9, 2), REASON_NONE);
	assert_int_equal(limit_take(b, &x, 9, 2), REASON_NONE);
	limit_forget(b, 0);
	assert_int_equal(limit_open_total(b), 1);
	assert_int_equal(limit_take(b, &x, 9, 2), REASON_NONE);
	assert_int_equal(limit_take(b, &x, 9, 2), REASON_LIMIT_CLIENT);
}

static void
what_is_no_table_is_not_opened(void **state)
{
	struct limit *l;
	int p[2];

	(void)state;
	assert_int_equal(pipe(p), 0);
	assert_true(limit_open(&l, p[0], 0) < 0);
	close(p[0]);
	close(p[1]);
}

#define T(f) cmocka_unit_test_setup_teardown(f, up, down)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		T(B032_places_are_counted_over_all_engines),
		T(B032_a_thousand_cycles_leave_nothing),
		T(an_IPv6_client_counts_by_its_64),
		T(a_dead_engine_gives_its_places_back),
		T(what_is_no_table_is_not_opened),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
