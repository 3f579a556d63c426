/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "ledger-client/count.h"
#include "ledger-client/emit.h"

static int fds[3];
static struct counts *a, *b, *all;
static char text[65536];

static int
up(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 3; i++)
		if ((fds[i] = count_create()) < 0)
			return -1;
	return count_open(&a, fds[0], 0) != 0 ||
	    count_open(&b, fds[1], COUNT_COLUMNS - 1) != 0 ||
	    count_open(&all, fds[2], 1) != 0 ||
	    count_see(all, fds[0], 0, true) != 0 ||
	    count_see(all, fds[1], COUNT_COLUMNS - 1, true) != 0;
}

static int
down(void **state)
{
	(void)state;
	count_close(a);
	count_close(b);
	count_close(all);
	for (unsigned i = 0; i < 3; i++)
		close(fds[i]);
	return 0;
}

static void
sums_run_over_all_columns(void **state)
{
	(void)state;
	count_add(a, COUNT_ACCEPTED, 3);
	count_add(b, COUNT_ACCEPTED, 4);
	count_add(a, COUNT_CONNECTIONS_OPEN, 2);
	count_add(b, COUNT_CONNECTIONS_OPEN, 2);
	count_add(b, COUNT_CONNECTIONS_OPEN, -1);
	count_denied(a, REASON_NO_RULE);
	count_denied(b, REASON_NO_RULE);
	count_denied(b, REASON_COUNT - 1);
	assert_true(count_sum(all, COUNT_ACCEPTED) == 7);
	assert_true(count_sum(all, COUNT_CONNECTIONS_OPEN) == 3);
	assert_true(count_sum(all, COUNT_ALLOWED) == 0);
	assert_true(count_denied_sum(all, REASON_NO_RULE) == 2);
	assert_true(count_denied_sum(all, REASON_COUNT - 1) == 1);
}

static void
beats_are_told_by_column_and_are_no_family(void **state)
{
	uint64_t before = count_beats(all, COUNT_COLUMNS - 1);

	(void)state;
	count_beat(a);
	assert_true(count_beats(all, COUNT_COLUMNS - 1) == before);
	count_beat(b);
	assert_true(count_beats(all, COUNT_COLUMNS - 1) != before);
	before = count_beats(all, COUNT_COLUMNS - 1);
	/* who died is not taken for who stands still */
	count_forget(all, COUNT_COLUMNS - 1);
	assert_true(count_beats(all, COUNT_COLUMNS - 1) == before);
	assert_true(count_beats(all, COUNT_COLUMNS) == 0);
	assert_true(count_text(all, false, text, sizeof(text)) > 0);
	assert_null(strstr(text, "beat"));
}

static void
a_dead_engine_leaves_its_counters_and_takes_its_gauges(void **state)
{
	(void)state;
	count_add(a, COUNT_ACCEPTED, 3);
	count_add(a, COUNT_CONNECTIONS_OPEN, 2);
	count_add(b, COUNT_CONNECTIONS_OPEN, 5);
	count_denied(a, REASON_NO_RULE);
	count_forget(all, 0);
	assert_true(count_sum(all, COUNT_ACCEPTED) == 3);
	assert_true(count_sum(all, COUNT_CONNECTIONS_OPEN) == 5);
	assert_true(count_denied_sum(all, REASON_NO_RULE) == 1);
}

static void
a_column_that_is_not_there_is_not_opened(void **state)
{
	struct counts *no;

	(void)state;
	assert_int_equal(count_open(&no, fds[0], COUNT_COLUMNS), -EINVAL);
	assert_int_equal(count_see(all, fds[0], COUNT_COLUMNS, false),
	    -EINVAL);
	assert_int_equal(count_see(all, fds[0], 0, false), -EINVAL);
}

/* A producer that was taken over counts what it likes. */
static void
a_count_beyond_all_bounds_only_wraps(void **state)
{
	(void)state;
	count_add(a, COUNT_ACCEPTED, INT64_MAX);
	count_add(b, COUNT_ACCEPTED, 2);
	assert_true(count_sum(all, COUNT_ACCEPTED) == INT64_MIN + 1);
	count_add(a, COUNT_ACCEPTED, 1);
	assert_true(count_sum(all, COUNT_ACCEPTED) == INT64_MIN + 2);
}

/* A producer's memory is its own column, and a reader's cannot be written. */
static void
a_producer_has_the_counts_of_no_other(void **state)
{
	int ro = emit_read_only(fds[0]);

	(void)state;
	count_add(b, COUNT_ACCEPTED, 4);
	assert_true(count_sum(a, COUNT_ACCEPTED) == 0);
	count_forget(a, COUNT_COLUMNS - 1);
	count_add(b, COUNT_CONNECTIONS_OPEN, 1);
	count_forget(a, COUNT_COLUMNS - 1);
	assert_true(count_sum(b, COUNT_CONNECTIONS_OPEN) == 1);
	assert_true(ro >= 0);
	assert_int_equal(count_see(b, ro, 0, true), -EACCES);
	assert_int_equal(count_see(b, ro, 0, false), 0);
	count_add(a, COUNT_ACCEPTED, 3);
	assert_true(count_sum(b, COUNT_ACCEPTED) == 7);
	close(ro);
}

/* Every line is a comment or "name[{labels}] number"; returns the samples. */
static unsigned
samples(size_t n)
{
	unsigned found = 0;

	assert_in_range(n, 1, sizeof(text) - 1);
	text[n] = '\0';
	assert_int_equal(text[n - 1], '\n');
	for (char *line = text; *line != '\0';) {
		char *end = strchr(line, '\n'), *rest;
		const char *blank;

		assert_non_null(end);
		*end = '\0';
		if (line[0] == '#') {
			assert_true(strncmp(line, "# HELP penstock_", 16) == 0
			    || strncmp(line, "# TYPE penstock_", 16) == 0);
		} else {
			assert_memory_equal(line, "penstock_", 9);
			blank = strrchr(line, ' ');
			assert_non_null(blank);
			(void)strtoll(blank + 1, &rest, 10);
			assert_true(rest == end && rest > blank + 1);
			found++;
		}
		*end = '\n';
		line = end + 1;
	}
	return found;
}

static void
the_text_form_has_every_family_and_every_reason(void **state)
{
	(void)state;
	count_add(a, COUNT_BYTES_UP, INT64_C(5000000000));
	count_denied(a, REASON_NO_RULE);
	assert_int_equal(samples(count_text(all, false, text, sizeof(text))),
	    COUNT_N + REASON_COUNT);
	assert_non_null(strstr(text, "\npenstock_upstream_bytes_total "
	    "5000000000\n"));
	assert_non_null(strstr(text, "\npenstock_denied_total{reason="
	    "\"no_rule\"} 1\n"));
	assert_non_null(strstr(text, "# TYPE penstock_accepted_total "
	    "counter\n"));
	assert_non_null(strstr(text, "# TYPE penstock_connections_open "
	    "gauge\n"));
}

static void
the_openmetrics_form_names_families_without_total(void **state)
{
	(void)state;
	assert_int_equal(samples(count_text(all, true, text, sizeof(text))),
	    COUNT_N + REASON_COUNT);
	assert_non_null(strstr(text, "# TYPE penstock_accepted counter\n"));
	assert_non_null(strstr(text, "\npenstock_accepted_total 0\n"));
	assert_non_null(strstr(text, "# TYPE penstock_denied counter\n"));
	assert_null(strstr(text, "_total counter"));
}

static void
a_text_that_does_not_fit_is_not_given_in_part(void **state)
{
	size_t need;

	(void)state;
	need = count_text(all, false, text, sizeof(text));
	assert_int_equal(count_text(all, false, text, need), 0);
	assert_int_equal(count_text(all, false, text, need + 1), need);
	for (size_t n = 1; n < need; n += 101) {
		text[n] = '!';
		assert_int_equal(count_text(all, false, text, n), 0);
		assert_int_equal(text[n], '!');
	}
}

#define ONE(test) cmocka_unit_test_setup_teardown(test, up, down)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		ONE(sums_run_over_all_columns),
		ONE(beats_are_told_by_column_and_are_no_family),
		ONE(a_dead_engine_leaves_its_counters_and_takes_its_gauges),
		ONE(a_column_that_is_not_there_is_not_opened),
		ONE(a_count_beyond_all_bounds_only_wraps),
		ONE(a_producer_has_the_counts_of_no_other),
		ONE(the_text_form_has_every_family_and_every_reason),
		ONE(the_openmetrics_form_names_families_without_total),
		ONE(a_text_that_does_not_fit_is_not_given_in_part),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
