/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "policy/date.h"

static int64_t
date(const char *text)
{
	int64_t s = -1;

	return date_parse(span_str(text), &s) ? s : -1;
}

static void
a_date_is_the_first_second_of_its_day(void **state)
{
	(void)state;
	assert_int_equal(date("1970-01-01"), 0);
	assert_int_equal(date("1970-12-31"), 364 * 86400);
	assert_int_equal(date("2000-02-29"), INT64_C(951782400));
	assert_int_equal(date("2026-09-21"), INT64_C(1789948800));
	assert_int_equal(date("2100-03-01"), INT64_C(4107542400));
}

static void
what_is_no_date_is_refused(void **state)
{
	static const char *const bad[] = { "", "2027-02-29", "2027-13-01",
	    "2027-00-10", "2027-01-00", "2027-1-01", "2027/01/01",
	    "27-01-01", "2027-01-011", "2100-02-29", "1969-12-31",
	    "2027-01-3x" };
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(date(bad[i]), -1);
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_date_is_the_first_second_of_its_day),
		cmocka_unit_test(what_is_no_date_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
