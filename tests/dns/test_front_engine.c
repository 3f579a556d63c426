/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/front.h"

#include "tests/dns/front_stage.h"

/* The questions that engines put to the front. */

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
	return (struct ask_question){ .id = id, .name = one_host(name) };
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
	m.q.cell = 1;				/* there is one cell, 0 */
	send(fd, &m.q, sizeof(m.q), 0);
	m.q.cell = CELL_NONE;
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
	front_set_policy(w->front, NULL);
	send(fd, &good, sizeof(good), 0);
	assert_false(engine_get(w, fd, &a));
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
	assert_int_equal(a.reason, REASON_POLICY_CHANGED);
	close(fd);
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
	};

	return cmocka_run_group_tests(tests, server_start, server_stop);
}
