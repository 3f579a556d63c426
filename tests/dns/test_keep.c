/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/keep.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>

#include "tests/policy/one.h"

#define TTL_S 60u
#define MOST_MS (60000 + 60000 / 8)	/* of a TTL, with its jitter */

static bool
note(struct keep *k, const char *cell, const char *name, bool whole,
    int64_t now)
{
	struct pin_cell c = { .id = span_str(cell), .run = span_str("1") };
	struct host h = one_host(name);

	return keep_note(k, &c, &h, TTL_S, whole, now);
}

static void
a_name_is_due_when_its_answer_ends(void **state)
{
	struct keep *k = keep_new(0);
	struct keep_name n;

	(void)state;
	assert_false(keep_due(k, INT64_MAX, &n));
	assert_true(note(k, "a", "db.test", false, 1000));
	assert_true(note(k, "a", "db.test", false, 2000));
	assert_int_equal(keep_count(k), 1);
	assert_false(keep_due(k, 60999, &n));
	assert_true(keep_due(k, 1000 + MOST_MS, &n));
	assert_string_equal(n.name.name, "db.test");
	assert_string_equal(n.cell, "a");
	assert_string_equal(n.run, "1");
	assert_false(keep_due(k, 1000 + MOST_MS, &n));
	keep_free(k);
}

static void
a_client_that_asks_does_not_put_it_off(void **state)
{
	struct keep *k = keep_new(0);
	struct keep_name n;

	(void)state;
	/* one family may be all that it asks for */
	assert_true(note(k, "a", "db.test", true, 0));
	assert_true(note(k, "a", "db.test", false, 50000));
	assert_true(keep_due(k, MOST_MS, &n));
	assert_true(note(k, "a", "db.test", true, 70000));
	assert_false(keep_due(k, 129999, &n));
	assert_true(keep_due(k, 70000 + MOST_MS, &n));
	keep_free(k);
}

static void
what_fails_is_asked_for_ever_more_seldom(void **state)
{
	struct keep *k = keep_new(0);
	struct keep_name n;
	int64_t now = MOST_MS, last = now, gap = 0, most = 0;

	(void)state;
	assert_true(note(k, "a", "db.test", true, 0));
	assert_true(keep_due(k, now, &n));
	for (unsigned i = 0; i < 12; i++) {
		while (!keep_due(k, ++now, &n))
			;
		gap = now - last;
		last = now;
		assert_true(gap >= KEEP_MIN_MS);
		most = gap > most ? gap : most;
	}
	assert_true(gap >= KEEP_RETRY_MAX_MS);
	assert_true(most <= KEEP_RETRY_MAX_MS + KEEP_RETRY_MAX_MS / 8);
	/* and an answer ends that */
	assert_true(note(k, "a", "db.test", true, now));
	assert_true(keep_due(k, now + MOST_MS, &n));
	assert_true(keep_due(k, now + MOST_MS + KEEP_MIN_MS * 9 / 8, &n));
	keep_free(k);
}

static bool
is_db(void *arg, const struct host *name)
{
	(void)arg;
	return name->name[0] == 'd';
}

static void
who_is_in_a_hurry_is_due_now_and_others_later(void **state)
{
	struct keep *k = keep_new(0);
	struct keep_name n;

	(void)state;
	assert_true(note(k, "a", "db.test", true, 0));
	assert_true(note(k, "a", "mq.test", true, 0));
	keep_hurry(k, is_db, NULL, 1000);
	assert_false(keep_due(k, 999, &n));
	assert_true(keep_due(k, 1000, &n));
	assert_string_equal(n.name.name, "db.test");
	assert_false(keep_due(k, 1000, &n));
	keep_free(k);
}

static bool
is_of_b(void *arg, const struct keep_name *n)
{
	(void)arg;
	return n->cell[0] == 'b';
}

static void
names_are_bounded_by_cell_and_go_with_the_policy(void **state)
{
	struct keep *k = keep_new(0);
	struct keep_name n;
	unsigned held = 0;
	char name[32];

	(void)state;
	keep_policy(k, 2, is_of_b, NULL);
	for (unsigned i = 0; i <= KEEP_MAX; i++) {
		snprintf(name, sizeof(name), "n%u.test", i);
		held += note(k, "a", name, true, i);
	}
	assert_int_equal(held, KEEP_MAX * 3 / 4);
	assert_true(note(k, "b", "db.test", true, 0));
	assert_int_equal(keep_count(k), held + 1);
	/* what has a place is still known by it */
	assert_true(note(k, "a", "n0.test", true, 0));
	keep_policy(k, 1, is_of_b, NULL);
	assert_int_equal(keep_count(k), 1);
	assert_true(keep_due(k, MOST_MS, &n));
	assert_string_equal(n.cell, "b");
	assert_true(note(k, "a", "n0.test", true, 0));
	keep_free(k);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_name_is_due_when_its_answer_ends),
		cmocka_unit_test(a_client_that_asks_does_not_put_it_off),
		cmocka_unit_test(what_fails_is_asked_for_ever_more_seldom),
		cmocka_unit_test(who_is_in_a_hurry_is_due_now_and_others_later),
		cmocka_unit_test(
		    names_are_bounded_by_cell_and_go_with_the_policy),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
