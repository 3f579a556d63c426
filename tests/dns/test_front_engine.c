/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/front.h"

#include "policy/image.h"
#include "tests/dns/cells.h"
#include "tests/dns/front_stage.h"

/* The questions that engines put to the front. */

/* The clock that deadlines are made by is behind by up to one of the kernel's
 * ticks. */
#define TICK_MS		10

static bool
engine_get(struct world *w, int fd, struct ask_answer *a)
{
	return until_readable(w, fd, 1500) &&
	    recv(fd, a, sizeof(*a), 0) == (ssize_t)sizeof(*a);
}

static int
engine(struct world *w)
{
	int sv[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC |
	    SOCK_NONBLOCK, 0, sv), 0);
	assert_int_equal(front_add_engine(w->front, sv[1]), 0);
	return sv[0];
}

static struct ask_question
question(uint64_t id, const char *name)
{
	return (struct ask_question){ .id = id, .generation = 7, .cell = "a",
	    .name = one_host(name) };
}

static void
an_engine_is_answered_as_a_workload_is(void **state)
{
	struct world *w = world_new();
	struct ask_question q = question(1, "api.team.allowed.test");
	struct ask_answer a;
	int fd = engine(w);

	(void)state;
	send(fd, &q, sizeof(q), 0);
	assert_true(engine_get(w, fd, &a));
	assert_int_equal(a.id, 1);
	assert_int_equal(a.reason, REASON_NONE);
	assert_int_equal(a.n_addrs, 2);
	assert_true(pinned(w, "api.team.allowed.test", "9.9.9.1"));
	q = question(2, "spy.evil.test");
	send(fd, &q, sizeof(q), 0);
	assert_true(engine_get(w, fd, &a));
	assert_int_equal(a.reason, REASON_NO_RULE);
	assert_int_equal(a.n_addrs, 0);
	assert_int_equal(asked("spy.evil"), 0);
	q = question(3, "none.allowed.test");
	send(fd, &q, sizeof(q), 0);
	assert_true(engine_get(w, fd, &a));
	assert_int_equal(a.reason, REASON_DNS_NXDOMAIN);
	q = question(4, "inner.allowed.test");
	send(fd, &q, sizeof(q), 0);
	assert_true(engine_get(w, fd, &a));
	assert_int_equal(a.reason, REASON_DNS_SPECIAL_USE);
	assert_int_equal(a.n_addrs, 0);
	close(fd);
	work(w, 10);
	world_free(w);
}

static void
an_engines_unsound_questions_are_passed_over(void **state)
{
	struct world *w = world_new();
	struct { struct ask_question q; char more; } m = {
	    .q = question(9, "api.team.allowed.test") };
	const struct ask_question good = m.q;
	struct ask_answer a;
	int fd = engine(w);

	(void)state;
	send(fd, &m, sizeof(m), 0);		/* longer */
	send(fd, &good, sizeof(good) - 1, 0);
	send(fd, &good, 1, 0);
	memset(m.q.cell, 'a', sizeof(m.q.cell));	/* without an end */
	send(fd, &m.q, sizeof(m.q), 0);
	m.q = good;
	m.q.name.len = 0;
	send(fd, &m.q, sizeof(m.q), 0);
	m.q = good;
	memset(&m.q.name.len, 0xff, sizeof(m.q.name.len));
	send(fd, &m.q, sizeof(m.q), 0);
	m.q = good;
	m.q.name.name[3] = '\0';
	send(fd, &m.q, sizeof(m.q), 0);
	m.q.name.name[3] = '@';
	send(fd, &m.q, sizeof(m.q), 0);
	memset(&m.q.name, 0xff, sizeof(m.q.name));
	send(fd, &m.q, sizeof(m.q), 0);
	work(w, 50);
	m.q = good;
	m.q.id = 10;
	send(fd, &m.q, sizeof(m.q), 0);
	assert_true(engine_get(w, fd, &a));
	assert_int_equal(a.id, 10);
	/* sound ones that nobody can judge are told so */
	strcpy(m.q.cell, "b");
	send(fd, &m.q, sizeof(m.q), 0);
	assert_true(engine_get(w, fd, &a));
	assert_int_equal(a.reason, REASON_UNKNOWN_CELL);
	front_set_policy(w->front, NULL);
	send(fd, &good, sizeof(good), 0);
	assert_true(engine_get(w, fd, &a));
	assert_int_equal(a.id, 9);
	assert_int_equal(a.reason, REASON_POLICY_UNAVAILABLE);
	close(fd);
	world_free(w);
}

static void
an_engine_that_dies_leaves_its_questions_behind(void **state)
{
	struct world *w = world_new();
	struct ask_question q = question(1, "slow.allowed.test");
	int fd = engine(w), kept = engine(w);
	struct ask_answer a;

	(void)state;
	send(fd, &q, sizeof(q), 0);
	send(kept, &q, sizeof(q), 0);
	work(w, 50);
	close(fd);
	assert_true(engine_get(w, kept, &a));
	assert_int_equal(a.reason, REASON_NONE);
	work(w, 50);
	close(kept);
	world_free(w);
}

static void
an_engines_open_question_is_judged_by_a_new_policy(void **state)
{
	struct world *w = world_new();
	struct ask_question q = question(1, "slow.allowed.test");
	struct ask_answer a;
	int fd = engine(w);

	(void)state;
	one_rules(&w->other,
	    "    - {verdict: allow, hostname: slow.allowed.test}\n");
	send(fd, &q, sizeof(q), 0);
	q = question(2, "late.allowed.test");
	send(fd, &q, sizeof(q), 0);
	work(w, 50);
	front_set_policy(w->front, w->other.policy);
	assert_true(engine_get(w, fd, &a));
	assert_int_equal(a.id, 2);
	assert_int_equal(a.reason, REASON_NO_RULE);
	assert_true(engine_get(w, fd, &a));
	assert_int_equal(a.id, 1);
	assert_int_equal(a.reason, REASON_NONE);
	assert_int_equal(a.n_addrs, 1);
	q = question(3, "late.allowed.test");
	front_set_policy(w->front, w->one.policy);
	send(fd, &q, sizeof(q), 0);
	work(w, 50);
	front_set_policy(w->front, NULL);
	assert_true(engine_get(w, fd, &a));
	assert_int_equal(a.id, 3);
	assert_int_equal(a.reason, REASON_POLICY_UNAVAILABLE);
	close(fd);
	world_free(w);
}

/* The same rules and another name, as a reload makes them: generation 8. */
static void
next_policy(struct world *w)
{
	struct image_header *h;

	one_rules(&w->other, RULES
	    "    - {verdict: allow, hostname: new.test}\n");
	h = (struct image_header *)(void *)w->other.image;
	h->generation = 8;
	assert_int_equal(policy_generation(w->other.policy), 8);
}

static void
a_question_by_a_policy_to_come_waits_for_it(void **state)
{
	struct world *w = world_new();
	struct ask_question q = question(1, "new.test");
	struct ask_answer a;
	int fd = engine(w), dead = engine(w);

	(void)state;
	next_policy(w);
	q.generation = 8;
	send(dead, &q, sizeof(q), 0);
	send(fd, &q, sizeof(q), 0);
	work(w, 50);
	assert_int_equal(asked("new.test"), 0);
	assert_int_equal(recv(fd, &a, sizeof(a), MSG_DONTWAIT), -1);
	close(dead);
	work(w, 20);
	/* the one before, once more: not yet */
	front_set_policy(w->front, w->one.policy);
	work(w, 20);
	assert_int_equal(recv(fd, &a, sizeof(a), MSG_DONTWAIT), -1);
	front_set_policy(w->front, w->other.policy);
	assert_true(engine_get(w, fd, &a));
	assert_int_equal(a.id, 1);
	assert_int_equal(a.reason, REASON_NONE);
	q = question(2, "new.test");
	q.generation = 9;
	send(fd, &q, sizeof(q), 0);
	work(w, 20);
	front_set_policy(w->front, NULL);
	assert_true(engine_get(w, fd, &a));
	assert_int_equal(a.id, 2);
	assert_int_equal(a.reason, REASON_POLICY_UNAVAILABLE);
	close(fd);
	world_free(w);
}

/* The policy never comes: the place is not held for it, also when another one
 * comes in between. */
static void
a_question_by_a_policy_that_does_not_come_ends(void **state)
{
	struct front_settings s = { .pending_max = 2, .policy_wait_ms = 400 };
	struct world *w = world_with(&s);
	struct ask_question q = question(1, "never.test");
	int64_t begun = now_ms(), first;
	struct ask_answer a;
	int fd = engine(w);

	(void)state;
	q.generation = UINT64_MAX;
	send(fd, &q, sizeof(q), 0);
	work(w, 200);
	front_set_policy(w->front, w->one.policy);
	q.id = 2;
	send(fd, &q, sizeof(q), 0);
	q.id = 3;
	send(fd, &q, sizeof(q), 0);
	assert_true(engine_get(w, fd, &a));
	assert_int_equal(a.id, 3);
	assert_int_equal(a.reason, REASON_LIMIT_TOTAL);
	assert_true(engine_get(w, fd, &a));
	assert_int_equal(a.id, 1);
	assert_int_equal(a.reason, REASON_DNS_TIMEOUT);
	first = now_ms();
	assert_true(first - begun >= 400 - TICK_MS);
	assert_true(engine_get(w, fd, &a));
	assert_int_equal(a.id, 2);
	assert_int_equal(a.reason, REASON_DNS_TIMEOUT);
	/* waited from its own coming: the first one's end was not put off */
	assert_true(now_ms() - first >= 100);
	assert_int_equal(asked("never.test"), 0);
	/* and the places are back */
	q = question(4, "api.team.allowed.test");
	send(fd, &q, sizeof(q), 0);
	assert_true(engine_get(w, fd, &a));
	assert_int_equal(a.id, 4);
	assert_int_equal(a.reason, REASON_NONE);
	/* one that has waited and is asked upstream goes on */
	next_policy(w);
	q = question(5, "slow.allowed.test");
	q.generation = 8;
	send(fd, &q, sizeof(q), 0);
	work(w, 50);
	front_set_policy(w->front, w->other.policy);
	assert_true(engine_get(w, fd, &a));
	assert_int_equal(a.id, 5);
	assert_int_equal(a.reason, REASON_NONE);
	close(fd);
	world_free(w);
}

/* Whatever cells an engine speaks of that are not, or not yet: together they
 * have the part of one. */
static void
cells_that_are_not_take_no_part_of_those_that_are(void **state)
{
	static const struct cells_of two[] = { { "a", "", "127.0.0.1/32" },
	    { "b", "", "127.0.0.2/32" } };
	struct front_settings s = { .pending_max = 16, .client_max = 16,
	    .policy_wait_ms = 200 };
	struct world *w = world_with(&s);
	struct ask_question q = question(1, "slow.allowed.test");
	struct ask_answer a;
	unsigned waiting = 0;
	int fd = engine(w);

	(void)state;
	cells_make(&w->other, RULES, two, 2);
	front_set_policy(w->front, w->other.policy);
	q.generation = 8;
	for (q.id = 1; q.id <= 16; q.id++) {
		(void)snprintf(q.cell, sizeof(q.cell), "c%u", (unsigned)q.id);
		send(fd, &q, sizeof(q), 0);
	}
	work(w, 20);
	/* four as any one has, and the eight that are common */
	while (recv(fd, &a, sizeof(a), MSG_DONTWAIT) > 0) {
		assert_int_equal(a.reason, REASON_LIMIT_CELL);
		assert_in_range(a.id, 13, 16);
		waiting++;
	}
	assert_int_equal(waiting, 4);
	assert_int_equal(ask(w, "slow.allowed.test", TYPE_A)->answers, 1);
	close(fd);
	world_free(w);
}

static void
a_question_by_an_older_policy_is_judged_by_the_newer(void **state)
{
	struct world *w = world_new();
	struct ask_question q = question(1, "new.test");
	struct ask_answer a;
	int fd = engine(w);

	(void)state;
	next_policy(w);
	front_set_policy(w->front, w->other.policy);
	send(fd, &q, sizeof(q), 0);
	assert_true(engine_get(w, fd, &a));
	assert_int_equal(a.reason, REASON_NONE);
	/* another life of its cell */
	strcpy(q.run, "1");
	send(fd, &q, sizeof(q), 0);
	assert_true(engine_get(w, fd, &a));
	assert_int_equal(a.reason, REASON_POLICY_CHANGED);
	q.run[0] = '\0';
	/* a cell that the newer one has no more */
	strcpy(q.cell, "gone");
	send(fd, &q, sizeof(q), 0);
	assert_true(engine_get(w, fd, &a));
	assert_int_equal(a.reason, REASON_POLICY_CHANGED);
	close(fd);
	world_free(w);
}

static void
a_full_socket_loses_no_answer(void **state)
{
	enum { OPEN = 200, ALL = 1500 };
	static bool answered[ALL + 1];
	struct world *w = world_new();
	unsigned sent = 0, got = 0, late = 0;
	struct ask_answer a;
	int fd = engine(w);

	(void)state;
	memset(answered, 0, sizeof(answered));
	for (unsigned stuck = 0; sent < ALL && stuck < 300; stuck++) {
		struct ask_question q = question(sent + 1, sent < OPEN ?
		    "slow.allowed.test" : "spy.evil.test");

		if (send(fd, &q, sizeof(q), MSG_DONTWAIT) >= 0) {
			sent++;
			stuck = 0;
		}
		work(w, sent < OPEN || stuck == 0 ? 0 : 3);
		event_base_loop(w->base, EVLOOP_NONBLOCK);
	}
	assert_in_range(sent, OPEN + 50, ALL - 1);
	work(w, 400);			/* those of the slow name too */
	while (got < sent && engine_get(w, fd, &a)) {
		assert_in_range(a.id, 1, sent);
		assert_false(answered[a.id]);
		answered[a.id] = true;
		late += a.id <= OPEN && a.reason == REASON_NONE;
		got++;
	}
	assert_int_equal(got, sent);
	assert_int_equal(late, OPEN);
	close(fd);
	work(w, 30);
	world_free(w);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_engine_is_answered_as_a_workload_is),
		cmocka_unit_test(an_engines_unsound_questions_are_passed_over),
		cmocka_unit_test(
		    an_engine_that_dies_leaves_its_questions_behind),
		cmocka_unit_test(
		    an_engines_open_question_is_judged_by_a_new_policy),
		cmocka_unit_test(a_question_by_a_policy_to_come_waits_for_it),
		cmocka_unit_test(
		    a_question_by_a_policy_that_does_not_come_ends),
		cmocka_unit_test(
		    cells_that_are_not_take_no_part_of_those_that_are),
		cmocka_unit_test(
		    a_question_by_an_older_policy_is_judged_by_the_newer),
		cmocka_unit_test(a_full_socket_loses_no_answer),
	};

	return cmocka_run_group_tests(tests, server_start, server_stop);
}
