/* SPDX-License-Identifier: Apache-2.0 */
/* What was judged this second is not judged again, but by nothing else than
 * it was judged by. */
#include "tests/dns/front_stage.h"

#define NAME "api.team.allowed.test"

/* From the begin of a second on, so that all that follows is in it. */
static void
at_a_second(struct world *w)
{
	time_t now = time(NULL);

	while (time(NULL) == now)
		work(w, 2);
}

/* The second in which its answer was judged last; 0: never. */
static int64_t
judged_at(const struct world *w)
{
	struct resolve_answer got;
	struct host h;

	assert_int_equal(host_parse(&h, span_str(NAME)), REASON_NONE);
	return resolve_cached(w->resolve, &h, TYPE_A, &got) ?
	    cache_note(got.records)->second : 0;
}

/* Asked upstream, judged in the cache, and known. */
static void
make_known(struct world *w)
{
	for (unsigned i = 0; i < 3; i++)
		assert_true(holds(ask(w, NAME, TYPE_A), "9.9.9.1"));
}

static void
each_known_question_is_counted_and_answered(void **state)
{
	struct world *w = world_new();

	(void)state;
	at_a_second(w);
	for (unsigned i = 0; i < 50; i++)
		assert_true(holds(ask(w, NAME, TYPE_A), "9.9.9.1"));
	assert_int_equal(count_sum(w->counts, COUNT_DNS_ALLOWED_NOERROR), 50);
	assert_int_equal(count_sum(w->counts, COUNT_DNS_CACHE_HITS), 49);
	world_free(w);
}

static void
a_known_question_is_judged_by_a_new_policy_at_once(void **state)
{
	struct world *w = world_new();

	(void)state;
	one_rules(&w->other,
	    "    - {verdict: allow, hostname: other.allowed.test}\n");
	at_a_second(w);
	make_known(w);
	front_set_policy(w->front, w->other.policy);
	assert_int_equal(ask(w, NAME, TYPE_A)->answers, 0);
	front_set_policy(w->front, w->one.policy);
	make_known(w);
	world_free(w);
}

static void
a_known_question_without_a_recorder_is_not_answered(void **state)
{
	struct world *w = world_new();

	(void)state;
	at_a_second(w);
	make_known(w);
	event_del(w->beat);
	emit_state_beat(w->state, false);
	assert_int_equal(ask(w, NAME, TYPE_A)->rcode, RCODE_SERVFAIL);
	world_free(w);
}

static void
each_second_has_a_judgement_of_its_own(void **state)
{
	struct world *w = world_new();
	int64_t first;

	(void)state;
	at_a_second(w);
	ask(w, NAME, TYPE_A);
	assert_int_equal(judged_at(w), 0);
	ask(w, NAME, TYPE_A);
	first = judged_at(w);
	assert_true(first > 0);
	ask(w, NAME, TYPE_A);
	assert_int_equal(judged_at(w), first);
	at_a_second(w);
	ask(w, NAME, TYPE_A);
	assert_true(judged_at(w) > first);
	world_free(w);
}

/* What was left out of an answer once is left out of it each time. */
static void
an_answer_that_is_told_in_part_is_never_known(void **state)
{
	struct world *w = world_new();

	(void)state;
	at_a_second(w);
	for (unsigned i = 0; i < 4; i++) {
		struct reply *r = ask(w, "mixed.allowed.test", TYPE_A);

		assert_true(holds(r, "9.9.9.4"));
		assert_false(holds(r, "10.0.0.1"));
	}
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(ask(w, "inner.allowed.test",
		    TYPE_A)->answers, 0);
	world_free(w);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_known_question_is_counted_and_answered),
		cmocka_unit_test(
		    a_known_question_is_judged_by_a_new_policy_at_once),
		cmocka_unit_test(
		    a_known_question_without_a_recorder_is_not_answered),
		cmocka_unit_test(each_second_has_a_judgement_of_its_own),
		cmocka_unit_test(
		    an_answer_that_is_told_in_part_is_never_known),
	};

	return cmocka_run_group_tests(tests, server_start, server_stop);
}
