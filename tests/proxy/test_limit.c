/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ledger-client/emit.h"
#include "policy/policy.h"
#include "proxy/limit.h"

static struct limit *a, *b;
static int fds[2];

/* What is held, in the order taken. */
static struct limit_place held[64];
static unsigned n_held;

static int
up(void **state)
{
	(void)state;
	n_held = 0;
	for (unsigned i = 0; i < 2; i++) {
		fds[i] = limit_create(100, 7);
		assert_true(fds[i] >= 0);
	}
	assert_int_equal(limit_open(&a, fds[0], 0), 0);
	assert_int_equal(limit_see(a, fds[1], 1, false), 0);
	assert_int_equal(limit_open(&b, fds[1], 1), 0);
	assert_int_equal(limit_see(b, fds[0], 0, true), 0);
	return 0;
}

static int
down(void **state)
{
	(void)state;
	limit_close(a);
	limit_close(b);
	close(fds[0]);
	close(fds[1]);
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

static void
an_ipv6_client_is_its_subnet(void **state)
{
	static const struct {
		const char *a, *b;
		bool same;
	} t[] = {
		{ "10.0.0.1", "10.0.0.1", true },
		{ "10.0.0.1", "10.0.0.2", false },
		{ "2001:db8::1", "2001:db8::2", true },
		{ "2001:db8::1", "2001:db8:0:1::1", false },
		{ "::1", "10.0.0.1", false },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		struct addr x = addr(t[i].a), y = addr(t[i].b);

		assert_int_equal(limit_same_client(&x, &y), t[i].same);
	}
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
	int p[2], big = limit_create(5000, 7);

	(void)state;
	assert_int_equal(pipe(p), 0);
	assert_true(limit_open(&l, p[0], 0) < 0);
	assert_int_equal(limit_open(&l, big, LIMIT_ENGINES_MAX), -EBADMSG);
	/* of another size, seen already, or of nobody */
	assert_int_equal(limit_see(a, big, 2, false), -EBADMSG);
	assert_int_equal(limit_see(a, fds[0], 1, false), -EBADMSG);
	assert_int_equal(limit_see(a, fds[0], LIMIT_ENGINES_MAX, false),
	    -EBADMSG);
	/* one that was taken over shrinks nothing that others read */
	assert_int_equal(ftruncate(fds[0], 0), -1);
	close(big);
	close(p[0]);
	close(p[1]);
}

/* ---- an engine that was taken over ---- */

/* A descriptor as the other engines get it. */
static void
no_engine_writes_what_another_has_open(void **state)
{
	int ro = emit_read_only(fds[0]);
	struct limit *l;
	int fd = limit_create(100, 7);

	(void)state;
	assert_true(ro >= 0);
	assert_int_equal(limit_open(&l, fd, 1), 0);
	assert_int_equal(limit_see(l, ro, 0, true), -EACCES);
	assert_int_equal(limit_see(l, ro, 0, false), 0);
	limit_close(l);
	close(fd);
	close(ro);
}

/* b's table, all of it or from here on, says the same everywhere. */
static void
b_says(uint8_t byte, off_t from)
{
	struct stat st;
	uint8_t *junk;

	assert_int_equal(fstat(fds[1], &st), 0);
	junk = malloc((size_t)st.st_size);
	assert_non_null(junk);
	memset(junk, byte, (size_t)st.st_size);
	assert_int_equal(pwrite(fds[1], junk, (size_t)(st.st_size - from),
	    from), st.st_size - from);
	free(junk);
}

/* What the others hold still counts, whatever it says of its own. */
static void
a_taken_engine_frees_no_place_of_another(void **state)
{
	struct addr x = addr("10.0.0.1"), y = addr("10.0.0.2");

	(void)state;
	for (int i = 0; i < 5; i++)
		assert_int_equal(take(a, &x, 6, 5), REASON_NONE);
	assert_int_equal(take(a, &x, 6, 5), REASON_LIMIT_CLIENT);
	for (unsigned byte = 0; byte < 256; byte += 51) {
		b_says((uint8_t)byte, 0);
		assert_true(take(a, &x, 6, 5) != REASON_NONE);
		assert_true(take(a, &x, 5, 6) != REASON_NONE);
	}
	/* nor by a number that makes the sum small again */
	for (uint32_t n = UINT32_MAX - 8; n != 0; n++) {
		const uint32_t of_b = n;

		b_says(0, 0);
		assert_int_equal(pwrite(fds[1], &of_b, sizeof(of_b), 16),
		    sizeof(of_b));
		assert_true(limit_open_total(a) >= n);
		assert_int_equal(take(a, &y, 100, 100), REASON_LIMIT_TOTAL);
	}
	/* it died: what the others hold is as before */
	limit_forget(b, 1);
	assert_int_equal(limit_open_total(a), 5);
	assert_int_equal(take(a, &x, 6, 5), REASON_LIMIT_CLIENT);
	assert_int_equal(take(a, &y, 6, 5), REASON_NONE);
	assert_int_equal(take(a, &y, 6, 5), REASON_LIMIT_TOTAL);
}

/* The next one finds a table that is as new. */
static void
nothing_of_a_taken_engine_is_left_to_the_next(void **state)
{
	struct addr x = addr("10.0.0.1");
	struct limit *parent, *next;
	int fd = limit_create(100, 7);

	(void)state;
	assert_int_equal(limit_open(&parent, fd, 0), 0);
	assert_int_equal(limit_see(parent, fds[1], 1, true), 0);
	b_says(0xa5, 0);
	assert_int_equal(limit_open(&next, fds[1], 1), -EBADMSG);
	limit_forget(parent, 1);
	assert_int_equal(limit_open(&next, fds[1], 1), 0);
	assert_int_equal(limit_see(next, fds[0], 0, false), 0);
	assert_int_equal(take(a, &x, 9, 1), REASON_NONE);
	assert_int_equal(take(next, &x, 9, 1), REASON_LIMIT_CLIENT);
	limit_close(next);
	limit_close(parent);
	close(fd);
}

/* Claims close places, and open none. */
static void
a_taken_engine_can_only_refuse(void **state)
{
	struct limit_max max = { 1000, 2, 1000, 1000 };
	struct addr x = addr("10.0.0.1");

	(void)state;
	for (unsigned byte = 0; byte < 256; byte++) {
		unsigned got = 0;

		b_says((uint8_t)byte, 0);
		for (unsigned i = 0; i < 4; i++)
			got += take_of(a, "one", &x, &max) == REASON_NONE;
		assert_in_range(got, 0, 2);
		while (n_held > 0)
			limit_give(a, &held[--n_held]);
	}
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
		T(an_ipv6_client_is_its_subnet),
		T(cells_share_no_place),
		T(two_engines_never_hold_two_places_of_one),
		T(what_is_no_table_is_not_opened),
		T(no_engine_writes_what_another_has_open),
		T(a_taken_engine_frees_no_place_of_another),
		T(nothing_of_a_taken_engine_is_left_to_the_next),
		T(a_taken_engine_can_only_refuse),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
