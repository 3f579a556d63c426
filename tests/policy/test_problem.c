/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>

#include "policy/problem.h"

static struct problems *ps;
static char *text;

static int
up(void **state)
{
	(void)state;
	ps = problem_new();
	return ps == NULL;
}

static int
down(void **state)
{
	(void)state;
	problem_free(ps);
	free(text);
	text = NULL;
	return 0;
}

static const char *
printed(void)
{
	size_t n;
	FILE *f;

	free(text);
	text = NULL;
	f = open_memstream(&text, &n);
	assert_non_null(f);
	problem_print(ps, f);
	assert_int_equal(fclose(f), 0);
	return text;
}

static void
problems_come_errors_first_and_in_order_of_place(void **state)
{
	const struct place none = { NULL, 0, 0 };

	(void)state;
	problem_add(ps, PROBLEM_WARNING, (struct place){ "a", 1, 1 }, NULL,
	    "w");
	problem_add(ps, PROBLEM_NOTE, none, NULL, "n");
	problem_add(ps, PROBLEM_ERROR, (struct place){ "b", 1, 1 }, NULL,
	    "e%d", 4);
	problem_add(ps, PROBLEM_ERROR, (struct place){ "a", 10, 2 }, "do x",
	    "e3");
	problem_add(ps, PROBLEM_ERROR, (struct place){ "a", 9, 9 }, NULL,
	    "e1");
	problem_add(ps, PROBLEM_ERROR, (struct place){ "a", 10, 1 }, NULL,
	    "e2");
	problem_add(ps, PROBLEM_ERROR, (struct place){ "a", 10, 2 }, NULL,
	    "e3 too");
	assert_string_equal(printed(), "a:9:9: error: e1\n"
	    "a:10:1: error: e2\na:10:2: error: e3; do x\n"
	    "a:10:2: error: e3 too\nb:1:1: error: e4\n"
	    "a:1:1: warning: w\nnote: n\n");
	assert_int_equal(problem_count(ps, PROBLEM_ERROR), 5);
	assert_int_equal(problem_count(ps, PROBLEM_WARNING), 1);
	assert_int_equal(problem_count(ps, PROBLEM_NOTE), 1);
}

static void
no_problem_prints_nothing(void **state)
{
	(void)state;
	assert_string_equal(printed(), "");
	assert_int_equal(problem_count(ps, PROBLEM_ERROR), 0);
}

static void
what_is_not_kept_is_counted_and_errors_come_before_notes(void **state)
{
	(void)state;
	for (uint32_t i = 1; i <= PROBLEM_MAX + 7; i++)
		problem_add(ps, PROBLEM_NOTE, (struct place){ "a", i, 1 },
		    NULL, "n");
	problem_add(ps, PROBLEM_ERROR, (struct place){ "z", 1, 1 }, NULL,
	    "the error");
	assert_memory_equal(printed(), "z:1:1: error: the error\n", 24);
	assert_non_null(strstr(text, "\n8 more not shown\n"));
	assert_int_equal(problem_count(ps, PROBLEM_NOTE), PROBLEM_MAX + 7);
	for (uint32_t i = 1; i <= 3 * PROBLEM_MAX; i++)
		problem_add(ps, PROBLEM_ERROR, (struct place){ "z", i, 1 },
		    NULL, "e");
	assert_null(strstr(printed(), "note"));
	assert_int_equal(problem_count(ps, PROBLEM_ERROR),
	    3 * PROBLEM_MAX + 1);
}

/* Counted as often, since whoever adds one may ask whether there was any. */
static void
the_same_problem_is_printed_once(void **state)
{
	(void)state;
	for (int i = 0; i < 3; i++)
		problem_add(ps, PROBLEM_ERROR, (struct place){ "a", 1, 1 },
		    "fix", "e");
	problem_add(ps, PROBLEM_ERROR, (struct place){ "b", 1, 1 }, "fix", "e");
	problem_add(ps, PROBLEM_ERROR, (struct place){ "a", 1, 2 }, "fix", "e");
	problem_add(ps, PROBLEM_ERROR, (struct place){ NULL, 0, 0 }, NULL, "e");
	assert_string_equal(printed(), "error: e\na:1:1: error: e; fix\n"
	    "a:1:2: error: e; fix\nb:1:1: error: e; fix\n");
	assert_int_equal(problem_count(ps, PROBLEM_ERROR), 6);
}

static void
N38_a_long_problem_is_cut_and_says_so(void **state)
{
	char longer[2 * PROBLEM_TEXT_BYTES];

	(void)state;
	memset(longer, 'x', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = '\0';
	for (size_t n = PROBLEM_TEXT_BYTES - 12; n < PROBLEM_TEXT_BYTES + 4;
	    n++) {
		bool fits = n + strlen("; fix it") < PROBLEM_TEXT_BYTES;

		(void)down(NULL);
		assert_int_equal(up(NULL), 0);
		problem_add(ps, PROBLEM_ERROR, (struct place){ "a", 1, 1 },
		    "fix it", "%.*s", (int)n, longer);
		assert_int_equal(strlen(printed()), strlen("a:1:1: error: ")
		    + (fits ? n + 8 : PROBLEM_TEXT_BYTES - 1) + 1);
		assert_int_equal(text[strlen(text) - 2], fits ? 't' : '~');
	}
}

#define ONE(test) cmocka_unit_test_setup_teardown(test, up, down)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		ONE(problems_come_errors_first_and_in_order_of_place),
		ONE(no_problem_prints_nothing),
		ONE(what_is_not_kept_is_counted_and_errors_come_before_notes),
		ONE(the_same_problem_is_printed_once),
		ONE(N38_a_long_problem_is_cut_and_says_so),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
