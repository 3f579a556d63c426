/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/buf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

static void
bytes_come_out_in_the_order_they_went_in(void **state)
{
	struct buf b = { 0 };
	uint8_t in = 0, out = 0, piece[700];

	(void)state;
	for (unsigned round = 0; round < 400; round++) {
		size_t n = (round * 7919) % sizeof(piece), take;

		for (size_t i = 0; i < n; i++)
			piece[i] = in++;
		assert_int_equal(buf_put(&b, span_of(piece, n)), 0);
		take = (round * 104729) % (buf_left(&b) + 1);
		for (size_t i = 0; i < take; i++)
			assert_int_equal(buf_span(&b).data[i], out++);
		buf_take(&b, take);
	}
	buf_take(&b, buf_left(&b));
	assert_null(b.data);
	assert_int_equal(b.cap, 0);
}

static void
more_than_max_never_waits(void **state)
{
	struct buf b = { 0 };
	uint8_t *at;
	ssize_t n;

	(void)state;
	while ((n = buf_room(&b, 10000, &at)) > 0) {
		memset(at, 'x', (size_t)n);
		buf_grew(&b, (size_t)n);
		assert_true(buf_left(&b) <= 10000);
	}
	assert_int_equal(n, -ENOBUFS);
	assert_int_equal(buf_left(&b), 10000);
	buf_take(&b, 1);
	assert_int_equal(buf_room(&b, 10000, &at), 1);
	buf_free(&b);
}

static void
a_few_bytes_hold_a_few(void **state)
{
	struct buf b = { 0 };
	uint8_t *at;

	(void)state;
	assert_int_equal(buf_put(&b, span_str("abcdefg")), 0);
	buf_take(&b, 4);
	buf_fit(&b);
	assert_int_equal(b.cap, 3);
	assert_memory_equal(buf_span(&b).data, "efg", 3);
	buf_fit(&b);
	assert_int_equal(buf_put(&b, span_str("hi")), 0);
	assert_true(buf_room(&b, 10000, &at) > 0);
	*at = 'j';
	buf_grew(&b, 1);
	assert_int_equal(buf_left(&b), 6);
	assert_memory_equal(buf_span(&b).data, "efghij", 6);
	buf_take(&b, 6);
	buf_fit(&b);
	assert_null(b.data);
}

static void
nothing_is_held_while_nothing_waits(void **state)
{
	struct buf b = { 0 };
	uint8_t *at;

	(void)state;
	assert_true(buf_room(&b, 100, &at) > 0);
	buf_grew(&b, 0);
	assert_null(b.data);
}

static void
what_cannot_be_counted_is_refused(void **state)
{
	struct buf b = { .len = UINT32_MAX / 2, .cap = UINT32_MAX / 2 };
	uint8_t one = 0;

	(void)state;
	assert_int_equal(buf_put(&b, span_of(&one, 1)), -ENOMEM);
	assert_int_equal(b.len, UINT32_MAX / 2);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_come_out_in_the_order_they_went_in),
		cmocka_unit_test(more_than_max_never_waits),
		cmocka_unit_test(a_few_bytes_hold_a_few),
		cmocka_unit_test(nothing_is_held_while_nothing_waits),
		cmocka_unit_test(what_cannot_be_counted_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
