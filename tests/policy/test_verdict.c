/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/verdict.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdbool.h>
#include <string.h>

static void
every_reason_has_one_word_of_its_own_and_a_sentence(void **state)
{
	(void)state;
	for (unsigned a = 0; a < REASON_COUNT; a++) {
		const char *w = reason_word((enum reason)a);

		assert_int_equal(w[strspn(w,
		    "abcdefghijklmnopqrstuvwxyz0123456789_")], '\0');
		assert_true(strlen(w) > 0);
		assert_true(a == REASON_NONE ||
		    strlen(reason_text((enum reason)a)) > 8);
		for (unsigned b = 0; b < a; b++)
			assert_string_not_equal(w,
			    reason_word((enum reason)b));
	}
}

/* A number may come out of shared memory. */
static void
what_is_no_reason_is_ours(void **state)
{
	(void)state;
	assert_string_equal(reason_word(REASON_COUNT), "internal");
	assert_string_equal(reason_word((enum reason)0xffffffffu),
	    "internal");
	assert_string_equal(reason_text((enum reason)0x7fffffff),
	    reason_text(REASON_INTERNAL));
}

static void
zero_and_all_but_allow_is_deny(void **state)
{
	(void)state;
	assert_int_equal(VERDICT_DENY, 0);
	assert_string_equal(verdict_word(VERDICT_DENY), "deny");
	assert_string_equal(verdict_word(VERDICT_ALLOW), "allow");
	assert_string_equal(verdict_word((enum verdict)77), "deny");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
		    every_reason_has_one_word_of_its_own_and_a_sentence),
		cmocka_unit_test(what_is_no_reason_is_ours),
		cmocka_unit_test(zero_and_all_but_allow_is_deny),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
