/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "policy/policy.h"
#include "proxy/limit.h"

static struct limit *a, *b;

/* What is held, in the order taken. */
static struct limit_place held[64];
static unsigned n_held;

static int
up(void **state)
{
	int fd = limit_create(100);

	(void)state;
	n_held = 0;
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

static enum reason
take_of(struct limit *l, const char *cell, const struct addr *client,
    const struct limit_max *max)
{
	struct limit_place *p = &held[n_held];
	enum reason why = limit_take(l, client, span_str(cell), max, p);

	if (why == REASON_NONE)
		n_held++;
	else
		assert_true(!p->held && p->cell == 0 && p->client == 0);
	return why;
}

static enum reason
take(struct limit *l, const struct addr *client, unsigned total_max,
    unsigned client_max)
{
	struct limit_max max = { total_max, total_max, client_max,
	    client_max };

	return take_of(l, "cell", client, &max);
}

static void
B032_places_are_counted_over_all_engines(void **state)
{
	struct addr x = addr("10.0.0.1"), y = addr("10.0.0.2");

	(void)state;
	for (int i = 0; i < 5; i++) {
		assert_int_equal(take(a, &x, 20, 10), REASON_NONE);
		assert_int_equal(take(b, &x, 20, 10), REASON_NONE);
	}
	assert_int_equal(take(a, &x, 20, 10), REASON_LIMIT_CLIENT);
	assert_int_equal(take(b, &x, 20, 10), REASON_LIMIT_CLIENT);
	assert_int_equal(limit_open_total(a), 10);
	for (int i = 0; i < 10; i++)
		assert_int_equal(take(b, &y, 20, 10), REASON_NONE);
	assert_int_equal(take(a, &y, 20, 10), REASON_LIMIT_TOTAL);
	limit_give(a, &held[0]);
	assert_int_equal(take(b, &x, 20, 10), REASON_NONE);
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
		n_held = 0;
		assert_int_equal(take(a, &x, 5, 2), REASON_NONE);
		assert_int_equal(take(a, &x, 5, 2), REASON_NONE);
		assert_int_equal(take(a, &x, 5, 2), REASON_LIMIT_CLIENT);
		limit_give(a, &held[0]);
		limit_give(a, &held[1]);
		limit_give(a, &held[1]);	/* once more: nothing */
	}
	assert_int_equal(limit_open_total(a), 0);
}

static void
an_IPv6_client_counts_by_its_64(void **state)
{
	struct addr x = addr("2001:db8::1"), y = addr("2001:db8::ffff:2"),
	    z = addr("2001:db8:0:1::1");

	(void)state;
	assert_int_equal(take(a, &x, 9, 1), REASON_NONE);
	assert_int_equal(take(a, &y, 9, 1), REASON_LIMIT_CLIENT);
	assert_int_equal(take(a, &z, 9, 1), REASON_NONE);
}

static void
a_dead_engine_gives_its_places_back(void **state)
{
	struct limit_max max = { 9, 3, 2, 2 };
	struct addr x = addr("10.0.0.1"), y = addr("10.0.0.2");

	(void)state;
	assert_int_equal(take_of(a, "one", &x, &max), REASON_NONE);
	assert_int_equal(take_of(b, "one", &x, &max), REASON_NONE);
	assert_int_equal(take_of(b, "one", &y, &max), REASON_NONE);
	assert_int_equal(take_of(b, "one", &y, &max), REASON_LIMIT_CELL);
	limit_forget(b, 0);
	assert_int_equal(limit_open_total(b), 2);
	assert_int_equal(take_of(b, "one", &x, &max), REASON_NONE);
	assert_int_equal(take_of(b, "two", &x, &max), REASON_LIMIT_CLIENT);
	assert_int_equal(take_of(b, "one", &y, &max), REASON_LIMIT_CELL);
}

/* From as many addresses as it likes, and at whichever engine. */
static void
a_cell_does_not_take_the_places_of_another(void **state)
{
	struct limit_max max = { 8, 4, 8, 8 };
	char text[ADDR_TEXT_BYTES];
	struct addr x = addr("10.0.0.99");

	(void)state;
	for (unsigned i = 0; i < 8; i++) {
		struct addr own;

		snprintf(text, sizeof(text), "10.0.0.%u", i);
		own = addr(text);
		assert_int_equal(take_of(i % 2 ? a : b, "one", &own, &max),
		    i < 4 ? REASON_NONE : REASON_LIMIT_CELL);
	}
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(take_of(a, "two", &x, &max), REASON_NONE);
	assert_int_equal(take_of(a, "two", &x, &max), REASON_LIMIT_TOTAL);
	limit_give(b, &held[0]);
	assert_int_equal(take_of(a, "two", &x, &max), REASON_LIMIT_CELL);
	assert_int_equal(take_of(a, "one", &x, &max), REASON_NONE);
}

static void
a_connection_that_becomes_another_cells_counts_as_its(void **state)
{
	struct limit_max max = { 9, 2, 9, 9 };
	struct addr x = addr("10.0.0.1");

	(void)state;
	assert_int_equal(take_of(a, "", &x, &max), REASON_NONE);
	assert_int_equal(take_of(a, "", &x, &max), REASON_NONE);
	assert_int_equal(take_of(b, "", &x, &max), REASON_LIMIT_CELL);
	for (int i = 0; i < 3; i++)	/* the same again is nothing */
		assert_int_equal(limit_move(a, &held[0], span_str("one"), 2),
		    REASON_NONE);
	assert_int_equal(take_of(b, "one", &x, &max), REASON_NONE);
	/* also where it has no place left */
	assert_int_equal(limit_move(a, &held[0], span_str("one"), 2),
	    REASON_NONE);
	assert_int_equal(limit_move(a, &held[1], span_str("one"), 2),
	    REASON_LIMIT_CELL);
	/* where it could not go it is still counted where it was */
	assert_int_equal(take_of(b, "", &x, &max), REASON_NONE);
	assert_int_equal(take_of(b, "", &x, &max), REASON_LIMIT_CELL);
	while (n_held > 0) {
		n_held--;
		limit_give(n_held < 2 ? a : b, &held[n_held]);
	}
	assert_int_equal(limit_open_total(a), 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(take_of(a, "one", &x, &max), REASON_NONE);
}

/* What a client has of no cell is its too, and counts apart until it is of
 * one. */
static void
a_client_counts_apart_until_its_cell_is_known(void **state)
{
	struct limit_max max = { 9, 9, 3, 1 };
	struct addr x = addr("10.0.0.1"), y = addr("10.0.0.2");

	(void)state;
	assert_int_equal(take_of(a, "", &x, &max), REASON_NONE);
	assert_int_equal(take_of(b, "", &x, &max), REASON_LIMIT_CLIENT);
	assert_int_equal(take_of(a, "", &y, &max), REASON_NONE);
	assert_int_equal(take_of(b, "one", &x, &max), REASON_NONE);
	/* where it cannot go it still counts apart */
	assert_int_equal(limit_move(a, &held[0], span_str("one"), 1),
	    REASON_LIMIT_CELL);
	assert_int_equal(take_of(b, "", &x, &max), REASON_LIMIT_CLIENT);
	assert_int_equal(limit_move(a, &held[0], span_str("one"), 2),
	    REASON_NONE);
	assert_int_equal(take_of(b, "", &x, &max), REASON_NONE);
	assert_int_equal(take_of(b, "one", &x, &max), REASON_LIMIT_CLIENT);
	limit_give(b, &held[3]);
	assert_int_equal(take_of(a, "", &x, &max), REASON_NONE);
}

/* As many as a policy can have. */
static void
cells_share_no_place(void **state)
{
	struct limit_max max = { 1000000, 1, 1000000, 1000000 };
	struct addr x = addr("10.0.0.1");
	char id[16];

	(void)state;
	for (unsigned i = 0; i < POLICY_CELLS_MAX; i++) {
		n_held = 0;
		snprintf(id, sizeof(id), "c%u", i);
		assert_int_equal(take_of(a, id, &x, &max), REASON_NONE);
	}
	for (unsigned i = 0; i < POLICY_CELLS_MAX; i++) {
		n_held = 0;
		snprintf(id, sizeof(id), "c%u", i);
		assert_int_equal(take_of(b, id, &x, &max),
		    REASON_LIMIT_CELL);
	}
}

/* Both look for the place of one client at the same time, which has none yet
 * and may hold one connection; then for that of the next. */
enum { ROUNDS = 200000, ATTEMPTS = 4 };
static atomic_uint arrived, of_both, none, broken;

static void
meet(void)
{
	unsigned turn = atomic_fetch_add(&arrived, 1) / 2;

	while (atomic_load(&arrived) / 2 == turn)
		sched_yield();
}

static void *
engine_runs(void *arg)
{
	const struct limit_max max = { 1000000, 1000000, 1, 1 };
	struct limit_place p[ATTEMPTS];
	struct limit *l = arg;

	for (unsigned i = 0; i < ROUNDS; i++) {
		struct addr x = addr_from_v4((uint8_t[]){ 10,
		    (uint8_t)(i >> 16), (uint8_t)(i >> 8), (uint8_t)i });
		unsigned n = 0;

		meet();
		for (unsigned k = 0; k < ATTEMPTS; k++)
			n += limit_take(l, &x, span_str("cell"), &max,
			    &p[k]) == REASON_NONE;
		atomic_fetch_add(&of_both, n);
		meet();
		if (l == a) {
			unsigned both = atomic_exchange(&of_both, 0);

			atomic_fetch_add(&broken, both > 1);
			atomic_fetch_add(&none, both == 0);
		}
		for (unsigned k = 0; k < ATTEMPTS; k++)
			limit_give(l, &p[k]);
	}
	return NULL;
}

static void
two_engines_never_hold_two_places_of_one(void **state)
{
	pthread_t one, other;

	(void)state;
	assert_int_equal(pthread_create(&one, NULL, engine_runs, a), 0);
	assert_int_equal(pthread_create(&other, NULL, engine_runs, b), 0);
	pthread_join(one, NULL);
	pthread_join(other, NULL);
	assert_int_equal(limit_open_total(a), 0);
	assert_int_equal(broken, 0);
	/* both may be refused the last place, now and then */
	assert_true(none < ROUNDS / 2);
	print_message("nobody had it in %u of %u\n", none, ROUNDS);
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
		T(a_cell_does_not_take_the_places_of_another),
		T(a_connection_that_becomes_another_cells_counts_as_its),
		T(a_client_counts_apart_until_its_cell_is_known),
		T(cells_share_no_place),
		T(two_engines_never_hold_two_places_of_one),
		T(what_is_no_table_is_not_opened),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
