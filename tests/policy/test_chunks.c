/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/chunks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdlib.h>

static void
pieces_stay_where_they_are_and_come_in_order(void **state)
{
	struct chunks c = { 0 };
	size_t at[3000], n = 0;
	uint8_t *where[3000];

	(void)state;
	for (size_t i = 0; i < 3000; i++) {
		where[i] = chunks_room(&c, 1 + i % 200, &at[i]);
		assert_non_null(where[i]);
		memset(where[i], (int)(1 + i % 250), 1 + i % 200);
		assert_true(i == 0 || at[i] > at[i - 1]);
	}
	for (size_t i = 0; i < 3000; i++) {
		assert_ptr_equal(chunks_at(&c, at[i]), where[i]);
		assert_int_equal(where[i][i % 200], 1 + i % 250);
		/* a piece is whole within one chunk */
		assert_true(at[i] % CHUNKS_BYTES + 1 + i % 200 <=
		    CHUNKS_BYTES);
		/* and what a chunk has left says that it ends */
		if (i > 0 && at[i] == chunks_next(at[i - 1]) &&
		    at[i - 1] + 1 + (i - 1) % 200 < at[i]) {
			assert_int_equal(*chunks_at(&c, at[i - 1] + 1 +
			    (i - 1) % 200), 0);
			n++;
		}
	}
	assert_true(n > 2);
	assert_null(chunks_at(&c, chunks_next(c.end)));
	assert_null(chunks_room(&c, CHUNKS_BYTES + 1, &at[0]));
	chunks_done(&c);
	assert_null(chunks_at(&c, 0));
}

static void
what_is_forgotten_is_gone_and_the_rest_is_not(void **state)
{
	struct chunks c = { 0 };
	size_t at = 0;

	(void)state;
	for (size_t i = 0; i < 5; i++)
		assert_non_null(chunks_room(&c, CHUNKS_BYTES, &at));
	chunks_forget(&c, 2 * CHUNKS_BYTES - 1);
	assert_null(chunks_at(&c, 0));
	assert_non_null(chunks_at(&c, CHUNKS_BYTES));
	chunks_forget(&c, at);
	assert_null(chunks_at(&c, at - 1));
	assert_non_null(chunks_at(&c, at));
	assert_non_null(chunks_room(&c, 10, &at));
	chunks_forget(&c, SIZE_MAX);
	assert_null(chunks_at(&c, at));
	chunks_done(&c);
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(pieces_stay_where_they_are_and_come_in_order),
		cmocka_unit_test(
		    what_is_forgotten_is_gone_and_the_rest_is_not),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
