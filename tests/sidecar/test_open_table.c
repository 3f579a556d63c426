/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>

#include "sidecar/open_table.h"

static struct open_table *t;
static struct record r;
static uint64_t seen_sum;
static unsigned seen, without_cell;

static int
up(void **state)
{
	(void)state;
	t = open_table_new();
	seen_sum = 0;
	seen = without_cell = 0;
	return t == NULL;
}

static int
down(void **state)
{
	(void)state;
	open_table_free(t);
	return 0;
}

static void
see(enum record_kind kind, uint64_t connection, enum verdict verdict,
    const char *cell)
{
	record_init(&r, kind);
	r.connection = connection;
	r.request = connection + 1;
	r.verdict = (uint8_t)verdict;
	r.via = VIA_TPROXY;
	r.client.port = (uint16_t)connection;
	record_set(&r, TEXT_CELL, span_str(cell));
	record_set(&r, TEXT_LABELS, span_str("team=a"));
	open_table_see(t, &r);
}

static void
each(void *arg, struct record *end)
{
	struct span cell = record_get(end, TEXT_CELL);

	(void)arg;
	assert_int_equal(end->kind, RECORD_END);
	assert_int_equal(end->verdict, VERDICT_ALLOW);
	assert_int_equal(end->via, VIA_TPROXY);
	assert_int_equal(end->client.port, (uint16_t)end->connection);
	assert_int_equal(end->request, end->connection + 1);
	assert_true(record_check(end, record_size(end)));
	seen++;
	seen_sum += end->connection;
	if (cell.len == 0)
		without_cell++;
	else
		assert_true(span_eq(record_get(end, TEXT_LABELS),
		    span_str("team=a")));
}

static void
what_was_opened_since_stays_open(void **state)
{
	(void)state;
	/* of one bucket: below, at, above the number */
	see(RECORD_DECISION, 1, VERDICT_ALLOW, "a");
	see(RECORD_DECISION, 4097, VERDICT_ALLOW, "a");
	see(RECORD_DECISION, 8193, VERDICT_ALLOW, "b");
	open_table_end(t, 4097, each, NULL);
	assert_int_equal(seen, 1);
	assert_int_equal(seen_sum, 1);
	assert_int_equal(open_table_count(t), 2);
	open_table_end(t, 8194, each, NULL);
	assert_int_equal(seen, 3);
	assert_int_equal(open_table_count(t), 0);
}

static void
a_decision_opens_and_an_end_closes(void **state)
{
	(void)state;
	see(RECORD_DECISION, 1, VERDICT_ALLOW, "a");
	see(RECORD_DECISION, 2, VERDICT_ALLOW, "b");
	see(RECORD_DECISION, 4097, VERDICT_ALLOW, "a");
	assert_int_equal(open_table_count(t), 3);
	see(RECORD_END, 2, VERDICT_ALLOW, "b");
	see(RECORD_END, 99, VERDICT_ALLOW, "b");
	assert_int_equal(open_table_count(t), 2);
	open_table_end(t, UINT64_MAX, each, NULL);
	assert_int_equal(seen, 2);
	assert_true(seen_sum == 4098);
	assert_int_equal(open_table_count(t), 0);
	open_table_end(t, UINT64_MAX, each, NULL);
	assert_int_equal(seen, 2);
}

static void
what_is_not_open_is_not_kept(void **state)
{
	(void)state;
	see(RECORD_DECISION, 1, VERDICT_DENY, "a");
	see(RECORD_DECISION, 0, VERDICT_ALLOW, "a");
	see(RECORD_DNS, 5, VERDICT_ALLOW, "a");
	see(RECORD_GAP, 6, VERDICT_ALLOW, "a");
	assert_int_equal(open_table_count(t), 0);
}

static void
a_later_request_takes_the_place_of_its_connection(void **state)
{
	(void)state;
	see(RECORD_DECISION, 7, VERDICT_ALLOW, "a");
	see(RECORD_DECISION, 7, VERDICT_ALLOW, "a");
	assert_int_equal(open_table_count(t), 1);
	see(RECORD_DECISION, 7, VERDICT_DENY, "a");
	assert_int_equal(open_table_count(t), 0);
}

static void
the_table_has_an_end(void **state)
{
	(void)state;
	for (uint64_t i = 1; i <= OPEN_TABLE_MAX + 10; i++)
		see(RECORD_DECISION, i, VERDICT_ALLOW, "a");
	assert_int_equal(open_table_count(t), OPEN_TABLE_MAX);
	see(RECORD_END, 5, VERDICT_ALLOW, "a");
	see(RECORD_DECISION, OPEN_TABLE_MAX + 1, VERDICT_ALLOW, "a");
	assert_int_equal(open_table_count(t), OPEN_TABLE_MAX);
	open_table_end(t, UINT64_MAX, each, NULL);
	assert_int_equal(seen, OPEN_TABLE_MAX);
}

/* A producer that was taken makes up cells: they are kept up to as many as a
 * policy can have, and what comes then ends without one. */
static void
made_up_cells_have_an_end(void **state)
{
	char cell[32];

	(void)state;
	for (unsigned i = 1; i <= POLICY_CELLS_MAX + 50; i++) {
		snprintf(cell, sizeof(cell), "cell-%u", i);
		see(RECORD_DECISION, i, VERDICT_ALLOW, cell);
	}
	open_table_end(t, UINT64_MAX, each, NULL);
	assert_int_equal(seen, POLICY_CELLS_MAX + 50);
	assert_int_equal(without_cell, 50);
	/* and they are forgotten with their connections */
	see(RECORD_DECISION, 1, VERDICT_ALLOW, "another");
	open_table_end(t, UINT64_MAX, each, NULL);
	assert_int_equal(without_cell, 50);
}

#define ONE(test) cmocka_unit_test_setup_teardown(test, up, down)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		ONE(what_was_opened_since_stays_open),
		ONE(a_decision_opens_and_an_end_closes),
		ONE(what_is_not_open_is_not_kept),
		ONE(a_later_request_takes_the_place_of_its_connection),
		ONE(the_table_has_an_end),
		ONE(made_up_cells_have_an_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
