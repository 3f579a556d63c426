/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/front.h"

#include "tests/dns/cells.h"
#include "tests/dns/front_stage.h"

/* Questions that wait: how many of whom, and what becomes of them. */

static void
one_client_does_not_take_the_room_of_others(void **state)
{
	struct front_settings s = { .pending_max = 16, .client_max = 4 };
	struct world *w = world_with(&s);
	struct record last;
	unsigned served = 0, refused = 0;
	uint8_t msg[512];
	struct reply r;
	int fd = other_client(w, SOCK_DGRAM);

	(void)state;
	for (uint16_t i = 0; i < 20; i++)
		put(w, msg, query(msg, i, "slow.allowed.test", TYPE_A, 1232));
	work(w, 50);
	assert_int_equal(send(fd, msg, query(msg, 77, "slow.allowed.test",
	    TYPE_A, 0), 0), 35);
	for (unsigned i = 0; i < 20; i++) {
		assert_true(get(w, &r, 3000));
		served += r.rcode == RCODE_NOERROR;
		if (r.rcode != RCODE_SERVFAIL)
			continue;
		refused++;
		assert_non_null(memmem(r.b, r.len, "limit_client", 12));
	}
	assert_int_equal(served, 4);
	assert_int_equal(refused, 16);
	assert_true(until_readable(w, fd, 3000));
	r.len = (size_t)recv(fd, r.b, sizeof(r.b), 0);
	take_apart(&r);
	assert_int_equal(r.rcode, RCODE_NOERROR);
	assert_int_equal(r.answers, 1);
	assert_int_equal(count_denied_sum(w->counts, REASON_LIMIT_CLIENT),
	    16);
	assert_int_equal(records(w, REASON_LIMIT_CLIENT, &last), 1);
	assert_int_equal(last.verdict, VERDICT_DENY);
	/* and its room is given back */
	assert_int_equal(ask(w, "room.wild.test", TYPE_A)->answers, 1);
	close(fd);
	world_free(w);
}

/* Told, recorded and counted as what it is. */
static void
refused_as_full(struct world *w, const struct reply *r)
{
	struct record last;

	if (r != NULL)
		assert_non_null(memmem(r->b, r->len, "limit_total", 11));
	assert_int_equal(records(w, REASON_LIMIT_TOTAL, &last), 1);
	assert_int_equal(last.verdict, VERDICT_DENY);
	assert_int_equal(count_denied_sum(w->counts, REASON_LIMIT_TOTAL), 1);
}

static void
cells_policy(struct world *w, const char *run_of_other)
{
	const struct cells_of two[] = { { "a", "", "127.0.0.1/32" },
	    { "b", run_of_other, "127.0.0.2/32" } };

	cells_make(&w->other, RULES, two, 2);
	front_set_policy(w->front, w->other.policy);
}

static bool
pinned_for(const struct world *w, const char *id, const char *run)
{
	struct pin_cell cell = { span_str(id), span_str(run) };
	struct host h = one_host("slow.allowed.test");
	struct endpoint e = one_endpoint("9.9.9.2", 0);

	return pin_has(w->pins, &cell, &h, &e.addr, now_ms());
}

/* Of 16 places four are each cell's, eight are common. */
static void
one_cell_does_not_take_the_questions_of_another(void **state)
{
	struct front_settings s = { .pending_max = 16, .client_max = 16 };
	struct world *w = world_with(&s);
	unsigned served = 0, refused = 0;
	struct record last;
	uint8_t msg[512];
	struct reply r;
	int fd = other_client(w, SOCK_DGRAM);

	(void)state;
	cells_policy(w, "7");
	for (uint16_t i = 0; i < 20; i++)
		put(w, msg, query(msg, i, "slow.allowed.test", TYPE_A, 1232));
	work(w, 50);
	assert_int_equal(send(fd, msg, query(msg, 77, "slow.allowed.test",
	    TYPE_A, 0), 0), 35);
	for (unsigned i = 0; i < 20; i++) {
		assert_true(get(w, &r, 3000));
		served += r.rcode == RCODE_NOERROR;
		if (r.rcode != RCODE_SERVFAIL)
			continue;
		refused++;
		assert_non_null(memmem(r.b, r.len, "limit_cell", 10));
	}
	assert_int_equal(served, 12);
	assert_int_equal(refused, 8);
	assert_true(pinned_for(w, "a", ""));
	assert_true(until_readable(w, fd, 3000));
	r.len = (size_t)recv(fd, r.b, sizeof(r.b), 0);
	take_apart(&r);
	assert_int_equal(r.rcode, RCODE_NOERROR);
	assert_int_equal(count_denied_sum(w->counts, REASON_LIMIT_CELL), 8);
	assert_int_equal(records(w, REASON_LIMIT_CELL, &last), 1);
	assert_int_equal(last.verdict, VERDICT_DENY);
	assert_true(pinned_for(w, "b", "7"));
	assert_false(pinned_for(w, "b", ""));
	/* places come back */
	put(w, msg, query(msg, 9, "x1.wild.test", TYPE_A, 0));
	assert_true(get(w, &r, 3000));
	assert_int_equal(r.rcode, RCODE_NOERROR);
	/* another run of b: nothing is pinned for it, a's stays */
	one_done(&w->one);
	w->one = w->other;
	memset(&w->other, 0, sizeof(w->other));
	cells_policy(w, "8");
	assert_true(pinned_for(w, "a", ""));
	assert_false(pinned_for(w, "b", "7"));
	assert_false(pinned_for(w, "b", "8"));
	close(fd);
	world_free(w);
}

static void
a_full_resolver_is_told_as_full(void **state)
{
	struct front_settings s = { .pending_max = 1000, .client_max = 1000 };
	struct world *w = world_with(&s);
	uint8_t msg[512];
	char name[32];
	struct reply r;

	(void)state;
	for (unsigned i = 0; i < 64; i++) {
		snprintf(name, sizeof(name), "f%u.wild.test", i);
		put(w, msg, query(msg, (uint16_t)i, name, TYPE_A, 0));
	}
	put(w, msg, query(msg, 99, "slow.allowed.test", TYPE_A, 1232));
	do
		assert_true(get(w, &r, 3000));
	while (r.id != 99);
	assert_int_equal(r.rcode, RCODE_SERVFAIL);
	refused_as_full(w, &r);
	world_free(w);
}

static void
a_connection_beyond_all_is_recorded(void **state)
{
	struct front_settings s = { .tcp_max = 2 };
	struct world *w = world_with(&s);
	struct reply r;
	int fd[3];

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		fd[i] = dial(w);
		work(w, 20);
	}
	assert_false(tcp_get(w, fd[2], &r));
	refused_as_full(w, NULL);
	for (unsigned i = 0; i < 3; i++)
		close(fd[i]);
	world_free(w);
}

static void
B047_a_full_table_fails_at_once_and_recovers(void **state)
{
	struct front_settings s = { .pending_max = 2, .client_max = 8 };
	struct world *w = world_with(&s);
	uint8_t msg[512];
	struct reply r;

	(void)state;
	put(w, msg, query(msg, 1, "mute.allowed.test", TYPE_A, 0));
	put(w, msg, query(msg, 2, "mute.allowed.test", TYPE_A, 0));
	put(w, msg, query(msg, 3, "x9.wild.test", TYPE_A, 1232));
	assert_true(get(w, &r, 200));
	assert_int_equal(r.id, 3);
	assert_int_equal(r.rcode, RCODE_SERVFAIL);
	refused_as_full(w, &r);
	assert_true(get(w, &r, 3000));
	assert_true(get(w, &r, 3000));
	assert_int_equal(ask(w, "x9.wild.test", TYPE_A)->answers, 1);
	world_free(w);
}

static void
a_new_policy_judges_what_waits(void **state)
{
	struct world *w = world_new();
	uint8_t msg[512];
	struct reply r;

	(void)state;
	one_rules(&w->other,
	    "    - {verdict: allow, hostname: slow.allowed.test}\n");
	put(w, msg, query(msg, 1, "slow.allowed.test", TYPE_A, 0));
	put(w, msg, query(msg, 2, "late.allowed.test", TYPE_A, 0));
	work(w, 50);
	front_set_policy(w->front, w->other.policy);
	assert_true(get(w, &r, 100));		/* refused at once */
	assert_int_equal(r.id, 2);
	assert_int_equal(r.rcode, RCODE_NXDOMAIN);
	assert_true(get(w, &r, 2000));
	assert_int_equal(r.id, 1);
	assert_true(holds(&r, "9.9.9.2"));
	assert_false(get(w, &r, 600));
	assert_false(pinned(w, "late.allowed.test", "9.9.9.3"));
	world_free(w);
}

static void
a_front_ends_with_questions_open(void **state)
{
	struct world *w = world_new();
	uint8_t msg[4096];
	size_t n = 0;
	int fd = dial(w), gone = dial(w);

	(void)state;
	for (unsigned i = 0; i < 80; i++)
		n += framed(msg + n, (uint16_t)i, "mute.allowed.test",
		    TYPE_A);
	write_all(w, fd, msg, n);
	write_all(w, gone, msg, n / 2);
	put(w, msg + 2, framed(msg, 1, "mute.allowed.test", TYPE_A) - 2);
	work(w, 30);
	{
		struct linger now = { .l_onoff = 1 };

		setsockopt(gone, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
		close(gone);		/* reset: its questions stay */
	}
	work(w, 30);
	world_free(w);
	close(fd);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_client_does_not_take_the_room_of_others),
		cmocka_unit_test(
		    one_cell_does_not_take_the_questions_of_another),
		cmocka_unit_test(a_full_resolver_is_told_as_full),
		cmocka_unit_test(a_connection_beyond_all_is_recorded),
		cmocka_unit_test(B047_a_full_table_fails_at_once_and_recovers),
		cmocka_unit_test(a_new_policy_judges_what_waits),
		cmocka_unit_test(a_front_ends_with_questions_open),
	};

	return cmocka_run_group_tests(tests, server_start, server_stop);
}
