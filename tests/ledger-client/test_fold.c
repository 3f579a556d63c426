/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger-client/fold.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#define WINDOW_MS 50

struct world {
	struct event_base *base;
	struct emit *emit;
	struct emit_reader *reader;
	struct emit_state *state;
	struct fold *fold;
	int wake;
	unsigned records, refusals;	/* told so far */
	uint32_t count;			/* of the latest */
};

static struct world
world_new_of(size_t ring_bytes, unsigned window_ms)
{
	struct world w = { .base = event_base_new() };
	int ring = emit_ring_create(ring_bytes), state = emit_state_create();

	w.wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	assert_int_equal(emit_open(&w.emit, ring, state, w.wake), 0);
	assert_int_equal(emit_reader_open(&w.reader, ring), 0);
	assert_int_equal(emit_state_open(&w.state, state), 0);
	emit_state_beat(w.state, true);
	close(ring);
	close(state);
	w.fold = fold_new(w.base, w.emit, window_ms);
	assert_non_null(w.fold);
	return w;
}

static struct world
world_new(void)
{
	return world_new_of(1 << 20, WINDOW_MS);
}

static void
read_all(struct world *w)
{
	const struct record *r;
	uint64_t lost = 0;

	while ((r = emit_next(w->reader, &lost)) != NULL) {
		w->records++;
		w->count = r->count;
		w->refusals += r->count > 0 ? r->count : 1;
	}
	emit_commit(w->reader);
	assert_int_equal(lost, 0);
}

static void
world_free(struct world *w)
{
	emit_close(w->emit);
	emit_reader_close(w->reader);
	close(w->wake);
	event_base_free(w->base);
}

static void
refuse(struct world *w, const char *name, const char *cell, uint8_t client,
    enum reason why)
{
	struct record r;
	uint8_t b[4] = { 10, 0, 0, client };

	record_init(&r, RECORD_DNS);
	record_stamp(&r);
	r.reason = (uint16_t)why;
	r.client.addr = addr_from_v4(b);
	record_set(&r, TEXT_NAME, span_str(name));
	record_set(&r, TEXT_CELL, span_str(cell));
	fold_note(w->fold, &r);
	read_all(w);
}

static void
B049_equal_refusals_are_two_records_that_count_them_all(void **state)
{
	struct world w = world_new();

	(void)state;
	for (unsigned i = 0; i < 40; i++)
		refuse(&w, "a.test", "c", 1, REASON_NO_RULE);
	assert_int_equal(w.records, 1);
	assert_int_equal(w.count, 0);
	/* nobody asks again: the window's end tells the rest */
	event_base_loop(w.base, EVLOOP_ONCE);
	event_base_loop(w.base, EVLOOP_ONCE);
	read_all(&w);
	assert_int_equal(w.records, 2);
	assert_int_equal(w.count, 39);
	/* and then there is nothing left to tell */
	event_base_loop(w.base, EVLOOP_ONCE);
	fold_free(w.fold);
	read_all(&w);
	assert_int_equal(w.records, 2);
	world_free(&w);
}

static void
refusals_that_differ_are_told_apart(void **state)
{
	struct world w = world_new();

	(void)state;
	refuse(&w, "a.test", "c", 1, REASON_NO_RULE);
	refuse(&w, "b.test", "c", 1, REASON_NO_RULE);
	refuse(&w, "a.test", "d", 1, REASON_NO_RULE);
	refuse(&w, "a.test", "d", 2, REASON_NO_RULE);
	refuse(&w, "a.test", "d", 2, REASON_RULE_DENY);
	assert_int_equal(w.records, 5);
	fold_free(w.fold);
	read_all(&w);
	assert_int_equal(w.refusals, 5);
	world_free(&w);
}

/* More names than places, each asked for twice: those that lose their place
 * and those that are there at the end are all counted. */
static void
none_is_lost_when_places_are_short(void **state)
{
	struct world w = world_new();
	char name[32], cell[32];

	(void)state;
	for (unsigned i = 0; i < 9000; i++) {
		snprintf(name, sizeof(name), "n%u.test", i);
		snprintf(cell, sizeof(cell), "c%u", i / FOLD_DISTINCT);
		refuse(&w, name, cell, 1, REASON_NO_RULE);
		refuse(&w, name, cell, 1, REASON_NO_RULE);
	}
	assert_in_range(w.refusals, 9000 + 4096, 18000 - 1);
	fold_free(w.fold);
	read_all(&w);
	assert_int_equal(w.refusals, 18000);
	world_free(&w);
}

/* One cell's flood of names, by many clients, is a bounded number of records;
 * another cell, and another reason, keep their own. */
static void
a_flood_of_names_is_few_records_that_count_them_all(void **state)
{
	struct world w = world_new();
	char name[32];

	(void)state;
	for (unsigned i = 0; i < 5000; i++) {
		snprintf(name, sizeof(name), "n%u.test", i);
		refuse(&w, name, "c", (uint8_t)(i % 7), REASON_NO_RULE);
	}
	assert_int_equal(w.records, FOLD_DISTINCT);
	refuse(&w, "a.test", "d", 1, REASON_NO_RULE);
	refuse(&w, "a.test", "c", 1, REASON_RULE_DENY);
	assert_int_equal(w.records, FOLD_DISTINCT + 2);
	fold_free(w.fold);
	read_all(&w);
	assert_int_equal(w.records, FOLD_DISTINCT + 3);
	assert_int_equal(w.refusals, 5002);
	world_free(&w);
}

/* More cells than there are places for. */
static void
a_flood_of_cells_is_bounded_too(void **state)
{
	struct world w = world_new();
	char cell[32];

	(void)state;
	for (unsigned i = 0; i < 40000; i++) {
		snprintf(cell, sizeof(cell), "c%u", i);
		refuse(&w, "a.test", cell, 1, REASON_NO_RULE);
	}
	assert_in_range(w.records, 1, 4096 + FOLD_DISTINCT);
	fold_free(w.fold);
	read_all(&w);
	assert_int_equal(w.refusals, 40000);
	world_free(&w);
}

static void
the_rest_of_a_flood_says_what_all_have_in_common(void **state)
{
	struct world w = world_new();
	const struct record *r, *last = NULL;
	uint64_t lost = 0;
	char name[32];

	(void)state;
	for (unsigned i = 0; i < FOLD_DISTINCT + 5; i++) {
		snprintf(name, sizeof(name), "n%u.test", i);
		refuse(&w, name, "c", 3, REASON_NO_RULE);
	}
	/* nobody asks again: the window's end tells it */
	event_base_loop(w.base, EVLOOP_ONCE);
	while ((r = emit_next(w.reader, &lost)) != NULL)
		last = r;
	assert_non_null(last);
	assert_int_equal(last->count, 5);
	assert_int_equal(last->reason, REASON_NO_RULE);
	assert_int_equal(last->verdict, VERDICT_DENY);
	assert_true(span_eq(record_get(last, TEXT_CELL), span_str("c")));
	assert_int_equal(record_get(last, TEXT_NAME).len, 0);
	assert_int_equal(last->client.addr.b[15], 3);
	assert_true(span_eq(record_get(last, TEXT_DETAIL),
	    span_str(FOLD_DETAIL)));
	emit_commit(w.reader);
	/* a new window: names are told again */
	refuse(&w, "z.test", "c", 3, REASON_NO_RULE);
	assert_int_equal(w.records, FOLD_DISTINCT + 1);
	fold_free(w.fold);
	world_free(&w);
}

/* A refusal with records of its own; true: counted in their place. */
static bool
takes(struct world *w, uint64_t connection, uint16_t port,
    enum record_name_from from)
{
	struct record r;

	record_init(&r, RECORD_DECISION);
	record_stamp(&r);
	r.connection = connection;
	r.request = 1;
	r.reason = REASON_NO_RULE;
	r.name_from = (uint8_t)from;
	r.dialled = r.original = (struct endpoint){ .port = port };
	r.dialled.addr = addr_from_v4((const uint8_t[4]){ 192, 0, 2, 1 });
	record_set(&r, TEXT_CELL, span_str("c"));
	return fold_takes(w->fold, &r);
}

static void
a_refusal_with_records_of_its_own_is_counted_beyond_the_bound(void **state)
{
	struct world w = world_new();
	const struct record *r;
	uint64_t lost = 0;

	(void)state;
	for (unsigned i = 0; i < FOLD_DISTINCT; i++)
		assert_false(takes(&w, i + 1, 443, NAME_FROM_SNI));
	for (unsigned i = 0; i < 5; i++)
		assert_true(takes(&w, i + 900, 443, NAME_FROM_SNI));
	assert_null(emit_next(w.reader, &lost));
	event_base_loop(w.base, EVLOOP_ONCE);
	r = emit_next(w.reader, &lost);
	assert_non_null(r);
	assert_int_equal(r->kind, RECORD_DECISION);
	assert_int_equal(r->count, 5);
	/* those of one would be taken for those of all */
	assert_int_equal(r->connection, 0);
	assert_int_equal(r->request, 0);
	assert_int_equal(r->name_from, NAME_FROM_SNI);
	assert_int_equal(r->dialled.port, 443);
	assert_int_equal(r->dialled.addr.b[15], 1);
	/* a new window */
	assert_false(takes(&w, 1000, 443, NAME_FROM_SNI));
	fold_free(w.fold);
	world_free(&w);
}

static void
where_the_rest_differs_it_says_nothing(void **state)
{
	struct world w = world_new();
	const struct record *r;
	uint64_t lost = 0;

	(void)state;
	for (unsigned i = 0; i < FOLD_DISTINCT; i++)
		assert_false(takes(&w, i + 1, 443, NAME_FROM_SNI));
	assert_true(takes(&w, 900, 443, NAME_FROM_SNI));
	assert_true(takes(&w, 901, 80, NAME_FROM_HOST));
	fold_free(w.fold);
	r = emit_next(w.reader, &lost);
	assert_non_null(r);
	assert_int_equal(r->count, 2);
	assert_int_equal(r->name_from, NAME_FROM_NONE);
	assert_int_equal(r->dialled.port, 0);
	assert_int_equal(r->original.port, 0);
	world_free(&w);
}

/* A record speaks of one generation. */
static void
a_new_policy_begins_another_record_of_the_rest(void **state)
{
	struct world w = world_new();
	const struct record *got;
	uint64_t lost = 0;
	struct record r;

	(void)state;
	record_init(&r, RECORD_DECISION);
	record_stamp(&r);
	r.reason = REASON_NO_RULE;
	r.generation = 1;
	for (unsigned i = 0; i < FOLD_DISTINCT + 3; i++)
		assert_int_equal(fold_takes(w.fold, &r), i >= FOLD_DISTINCT);
	r.generation = 2;
	for (unsigned i = 0; i < 2; i++)
		assert_true(fold_takes(w.fold, &r));
	got = emit_next(w.reader, &lost);
	assert_non_null(got);
	assert_int_equal(got->generation, 1);
	assert_int_equal(got->count, 3);
	fold_free(w.fold);
	got = emit_next(w.reader, &lost);
	assert_non_null(got);
	assert_int_equal(got->generation, 2);
	assert_int_equal(got->count, 2);
	world_free(&w);
}

static void
what_is_allowed_is_taken_by_no_flood(void **state)
{
	struct world w = world_new();
	struct record r;

	(void)state;
	record_init(&r, RECORD_DECISION);
	record_stamp(&r);
	r.verdict = VERDICT_ALLOW;
	for (unsigned i = 0; i < 2 * FOLD_DISTINCT; i++)
		assert_false(fold_takes(w.fold, &r));
	fold_free(w.fold);
	read_all(&w);
	assert_int_equal(w.records, 0);
	world_free(&w);
}

static int
answer_name(struct world *w, uint16_t qtype, const char *name)
{
	struct record r;
	int rc;

	record_init(&r, RECORD_DNS);
	record_stamp(&r);
	r.verdict = r.would = VERDICT_ALLOW;
	r.qtype = qtype;
	record_set(&r, TEXT_NAME, span_str(name));
	rc = fold_decision(w->fold, &r);
	read_all(w);
	return rc;
}

static int
answer(struct world *w, uint16_t qtype)
{
	return answer_name(w, qtype, "a.test");
}

static void
answers_for_many_names_are_all_told(void **state)
{
	struct world w = world_new();
	char name[32];

	(void)state;
	for (unsigned i = 0; i < 3 * FOLD_DISTINCT; i++) {
		snprintf(name, sizeof(name), "n%u.test", i);
		assert_int_equal(answer_name(&w, 1, name), 0);
	}
	assert_int_equal(w.records, 3 * FOLD_DISTINCT);
	fold_free(w.fold);
	world_free(&w);
}

/* A client that asks for a thousand names in turn has a record for each, and
 * one for the rest. */
static void
answers_for_many_names_in_turn_are_folded(void **state)
{
	struct world w = world_new_of(1 << 20, 600000);
	char name[32];

	(void)state;
	for (unsigned i = 0; i < 10000; i++) {
		snprintf(name, sizeof(name), "n%u.test", i % 1000);
		assert_int_equal(answer_name(&w, 1, name), 0);
	}
	assert_in_range(w.records, 1000, 1100);
	fold_free(w.fold);
	read_all(&w);
	assert_in_range(w.records, 2000, 2200);
	assert_int_equal(w.refusals, 10000);
	world_free(&w);
}

/* What is kept for the rest takes no more than its part of a small ring. */
static void
what_is_still_to_be_told_leaves_room_for_others(void **state)
{
	struct world w = world_new_of(65536, 600000);
	char name[32];

	(void)state;
	for (unsigned i = 0; i < 4000; i++) {
		snprintf(name, sizeof(name), "n%u.test", i % 2000);
		assert_int_equal(answer_name(&w, 1, name), 0);
		assert_true(emit_ready(w.emit));
	}
	fold_free(w.fold);
	read_all(&w);
	assert_int_equal(w.refusals, 4000);
	world_free(&w);
}

static void
answers_are_folded_by_their_type_and_counted(void **state)
{
	struct world w = world_new();

	(void)state;
	for (unsigned i = 0; i < 10; i++) {
		assert_int_equal(answer(&w, 1), 0);
		assert_int_equal(answer(&w, 28), 0);
	}
	assert_int_equal(w.records, 2);
	fold_free(w.fold);
	read_all(&w);
	assert_int_equal(w.records, 4);
	assert_int_equal(w.refusals, 20);
	world_free(&w);
}

static void
a_recorder_that_is_away_refuses_a_repeated_answer_too(void **state)
{
	struct world w = world_new();

	(void)state;
	assert_int_equal(answer(&w, 1), 0);
	emit_state_beat(w.state, false);
	assert_int_equal(answer(&w, 1), -EAGAIN);
	emit_state_beat(w.state, true);
	assert_int_equal(answer(&w, 1), 0);
	fold_free(w.fold);
	read_all(&w);
	assert_int_equal(w.refusals, 2);
	world_free(&w);
}

/* The ring is filled by others: what was promised for the rest is there. */
static void
a_full_ring_does_not_lose_the_rest_of_the_answers(void **state)
{
	struct world w = world_new();
	const struct record *got;
	struct record r;
	uint64_t lost = 0;
	uint32_t count = 0;

	(void)state;
	assert_int_equal(answer(&w, 1), 0);
	assert_int_equal(answer(&w, 1), 0);
	record_init(&r, RECORD_START);
	record_stamp(&r);
	for (unsigned i = 0; i < 20000; i++)
		emit_note(w.emit, &r);
	fold_free(w.fold);
	while ((got = emit_next(w.reader, &lost)) != NULL)
		if (got->kind == RECORD_DNS)
			count = got->count;
	assert_int_equal(count, 1);
	world_free(&w);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
	    a_refusal_with_records_of_its_own_is_counted_beyond_the_bound),
		cmocka_unit_test(where_the_rest_differs_it_says_nothing),
		cmocka_unit_test(
		    a_new_policy_begins_another_record_of_the_rest),
		cmocka_unit_test(what_is_allowed_is_taken_by_no_flood),
		cmocka_unit_test(
		    B049_equal_refusals_are_two_records_that_count_them_all),
		cmocka_unit_test(refusals_that_differ_are_told_apart),
		cmocka_unit_test(none_is_lost_when_places_are_short),
		cmocka_unit_test(
		    a_flood_of_names_is_few_records_that_count_them_all),
		cmocka_unit_test(a_flood_of_cells_is_bounded_too),
		cmocka_unit_test(
		    the_rest_of_a_flood_says_what_all_have_in_common),
		cmocka_unit_test(answers_for_many_names_are_all_told),
		cmocka_unit_test(answers_for_many_names_in_turn_are_folded),
		cmocka_unit_test(
		    what_is_still_to_be_told_leaves_room_for_others),
		cmocka_unit_test(answers_are_folded_by_their_type_and_counted),
		cmocka_unit_test(
		    a_recorder_that_is_away_refuses_a_repeated_answer_too),
		cmocka_unit_test(
		    a_full_ring_does_not_lose_the_rest_of_the_answers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
