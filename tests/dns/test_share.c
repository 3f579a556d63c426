/* SPDX-License-Identifier: Apache-2.0 */
/* Linked with --wrap=calloc, so that memory can be refused. */
#include "dns/share.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);

static bool no_memory;

void *
__wrap_calloc(size_t n, size_t size)
{
	return no_memory ? NULL : __real_calloc(n, size);
}

static struct addr
v4(uint8_t last)
{
	const uint8_t b[4] = { 192, 0, 2, last };

	return addr_from_v4(b);
}

/* 2001:db8:0:net::last */
static struct addr
v6(uint8_t net, uint8_t last)
{
	const uint8_t b[16] = { 0x20, 0x01, 0x0d, 0xb8, [7] = net,
	    [15] = last };

	return addr_from_v6(b);
}

static void
each_client_has_its_own_bound_and_gets_back_what_it_gives(void **state)
{
	struct share *s = share_new(2);
	struct addr a = v4(1), b = v4(2);

	(void)state;
	assert_int_equal(share_take(s, &a), REASON_NONE);
	assert_int_equal(share_take(s, &a), REASON_NONE);
	assert_int_equal(share_take(s, &a), REASON_LIMIT_CLIENT);
	assert_int_equal(share_take(s, &b), REASON_NONE);
	share_give(s, &a);
	assert_int_equal(share_take(s, &a), REASON_NONE);
	assert_int_equal(share_take(s, &a), REASON_LIMIT_CLIENT);
	share_give(s, &a);
	share_give(s, &a);
	assert_int_equal(share_take(s, &b), REASON_NONE);
	assert_int_equal(share_take(s, &b), REASON_LIMIT_CLIENT);
	share_free(s);
}

static void
an_ipv6_client_is_its_network(void **state)
{
	struct share *s = share_new(2);
	struct addr a = v6(1, 1), same = v6(1, 2), other = v6(2, 1);

	(void)state;
	assert_int_equal(share_take(s, &a), REASON_NONE);
	assert_int_equal(share_take(s, &same), REASON_NONE);
	assert_int_equal(share_take(s, &a), REASON_LIMIT_CLIENT);
	assert_int_equal(share_take(s, &other), REASON_NONE);
	share_give(s, &same);
	assert_int_equal(share_take(s, &same), REASON_NONE);
	share_free(s);
}

/* More clients than there are buckets. */
static void
clients_that_share_a_bucket_share_nothing_else(void **state)
{
	struct share *s = share_new(1);

	(void)state;
	for (unsigned i = 0; i < 4096; i++) {
		struct addr a = v6((uint8_t)i, (uint8_t)i);

		a.b[6] = (uint8_t)(i >> 8);
		assert_int_equal(share_take(s, &a), REASON_NONE);
	}
	for (unsigned i = 0; i < 4096; i++) {
		struct addr a = v6((uint8_t)i, 9);

		a.b[6] = (uint8_t)(i >> 8);
		assert_int_equal(share_take(s, &a), REASON_LIMIT_CLIENT);
		share_give(s, &a);
		assert_int_equal(share_take(s, &a), REASON_NONE);
	}
	share_free(s);
}

static void
a_lack_of_memory_is_no_share_of_the_client(void **state)
{
	struct share *s = share_new(1);
	struct addr a = v4(1), b = v4(2);

	(void)state;
	assert_int_equal(share_take(s, &a), REASON_NONE);
	no_memory = true;
	assert_int_equal(share_take(s, &b), REASON_LIMIT_MEMORY);
	assert_int_equal(share_take(s, &a), REASON_LIMIT_CLIENT);
	assert_null(share_new(1));
	no_memory = false;
	assert_int_equal(share_take(s, &b), REASON_NONE);
	assert_int_equal(share_take(s, &b), REASON_LIMIT_CLIENT);
	share_free(s);
}

/* Of 16 places two are each of four cells' own, eight are common. */
static void
a_cell_has_its_own_part_and_of_the_common_what_is_left(void **state)
{
	struct span a = span_str("a"), b = span_str("b"), c = span_str("c");
	struct share *s = share_new(0);
	unsigned n = 0;

	(void)state;
	share_cells(s, 16, 4);
	while (share_take_cell(s, a) == REASON_NONE)
		n++;
	assert_int_equal(n, 10);
	assert_int_equal(share_take_cell(s, a), REASON_LIMIT_CELL);
	assert_int_equal(share_take_cell(s, b), REASON_NONE);
	assert_int_equal(share_take_cell(s, b), REASON_NONE);
	assert_int_equal(share_take_cell(s, b), REASON_LIMIT_CELL);
	share_give_cell(s, a);
	assert_int_equal(share_take_cell(s, b), REASON_NONE);
	assert_int_equal(share_take_cell(s, a), REASON_LIMIT_CELL);
	assert_int_equal(share_take_cell(s, c), REASON_NONE);
	no_memory = true;
	assert_int_equal(share_take_cell(s, span_str("d")),
	    REASON_LIMIT_MEMORY);
	no_memory = false;
	/* an only cell may hold everything: a has 9, b 3, c 1 */
	share_cells(s, 16, 1);
	for (n = 0; share_take_cell(s, a) == REASON_NONE; n++)
		;
	assert_int_equal(n, 7);
	assert_int_equal(share_take_cell(s, a), REASON_LIMIT_TOTAL);
	/* more cells than places: nothing is anybody's own */
	share_cells(s, 16, 40);
	assert_int_equal(share_take_cell(s, b), REASON_LIMIT_CELL);
	for (n = 0; n < 16; n++)
		share_give_cell(s, a);
	assert_int_equal(share_take_cell(s, b), REASON_NONE);
	share_free(s);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
		    each_client_has_its_own_bound_and_gets_back_what_it_gives),
		cmocka_unit_test(an_ipv6_client_is_its_network),
		cmocka_unit_test(
		    clients_that_share_a_bucket_share_nothing_else),
		cmocka_unit_test(a_lack_of_memory_is_no_share_of_the_client),
		cmocka_unit_test(
		    a_cell_has_its_own_part_and_of_the_common_what_is_left),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
