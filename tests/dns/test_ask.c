/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/ask.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/policy/one.h"

/* The resolver's end of a socket pair, played by the test. */
struct world {
	struct event_base *base;
	struct ask *ask;
	int far;
	struct one one;
};

struct got {
	unsigned n;
	enum reason why;		/* of a question that was not put */
	struct ask_answer answer;
	struct ask_call *cancel;	/* cancelled by the first answer */
};

static void
on_done(void *arg, const struct ask_answer *a)
{
	struct got *g = arg;

	g->n++;
	g->answer = *a;
	if (g->cancel != NULL)
		ask_cancel(g->cancel);
	g->cancel = NULL;
}

static int
pair(int *far)
{
	int sv[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC |
	    SOCK_NONBLOCK, 0, sv), 0);
	*far = sv[1];
	return sv[0];
}

static struct world
world_new(void)
{
	struct world w = { .base = event_base_new() };
	int fd = pair(&w.far);

	one_rules(&w.one, "    - {verdict: allow, hostname: a.example}\n");
	assert_int_equal(ask_new(&w.ask, w.base, fd), 0);
	return w;
}

static void
world_free(struct world *w)
{
	ask_free(w->ask);
	if (w->far >= 0)
		close(w->far);
	event_base_free(w->base);
	one_done(&w->one);
}

static void
turn(struct world *w)
{
	event_base_loop(w->base, EVLOOP_NONBLOCK);
}

static struct ask_call *
start(struct world *w, const char *name, struct got *g)
{
	struct host h = one_host(name);

	return ask_start(w->ask, w->one.policy, 0, &h, on_done, g, &g->why);
}

static struct ask_question
heard(const struct world *w)
{
	struct ask_question q;

	assert_int_equal(recv(w->far, &q, sizeof(q), 0), sizeof(q));
	return q;
}

static bool
silent(const struct world *w)
{
	char c;

	return recv(w->far, &c, 1, MSG_PEEK) < 0 && errno == EAGAIN;
}

static struct ask_answer
yes(uint64_t id)
{
	static const uint8_t b[] = { 192, 0, 2, 1 };
	struct ask_answer a = { .id = id, .n_addrs = 1, .ttl_s = 60 };

	a.addrs[0] = addr_from_v4(b);
	return a;
}

static void
tell(const struct world *w, const void *bytes, size_t len)
{
	assert_int_equal(send(w->far, bytes, len, MSG_NOSIGNAL), len);
}

static void
answers_find_their_questions_in_any_order(void **state)
{
	struct world w = world_new();
	struct got a = { 0 }, b = { 0 };
	struct ask_question qa, qb;
	struct ask_answer m;

	(void)state;
	assert_non_null(start(&w, "a.example", &a));
	assert_non_null(start(&w, "b.example", &b));
	qa = heard(&w);
	qb = heard(&w);
	assert_string_equal(qa.name.name, "a.example");
	assert_string_equal(qa.cell, "a");
	assert_int_equal(qa.generation, policy_generation(w.one.policy));
	assert_int_not_equal(qa.id, qb.id);
	m = yes(qb.id);
	tell(&w, &m, sizeof(m));
	turn(&w);
	assert_int_equal(a.n, 0);
	assert_int_equal(b.n, 1);
	assert_int_equal(b.answer.n_addrs, 1);
	m = (struct ask_answer){ .id = qa.id, .reason = REASON_NO_RULE };
	tell(&w, &m, sizeof(m));
	tell(&w, &m, sizeof(m));	/* once only */
	turn(&w);
	assert_int_equal(a.n, 1);
	assert_int_equal(a.answer.reason, REASON_NO_RULE);
	assert_int_equal(b.n, 1);
	world_free(&w);
}

static void
a_cancelled_question_is_not_answered(void **state)
{
	struct world w = world_new();
	struct got a = { 0 }, b = { 0 };
	struct ask_answer ma, mb;
	struct ask_call *c;

	(void)state;
	c = start(&w, "a.example", &a);
	assert_non_null(c);
	ma = yes(heard(&w).id);
	ask_cancel(c);
	tell(&w, &ma, sizeof(ma));
	turn(&w);
	assert_int_equal(a.n, 0);

	/* an answer that cancels the next one, which is there already */
	assert_non_null(start(&w, "a.example", &a));
	b.cancel = NULL;
	a.cancel = start(&w, "b.example", &b);
	ma = yes(heard(&w).id);
	mb = yes(heard(&w).id);
	tell(&w, &ma, sizeof(ma));
	tell(&w, &mb, sizeof(mb));
	turn(&w);
	assert_int_equal(a.n, 1);
	assert_int_equal(b.n, 0);
	world_free(&w);
}

static void
unsound_answers_are_not_taken(void **state)
{
	struct world w = world_new();
	struct got g = { 0 };
	struct { struct ask_answer a; char more; } m = { .more = 1 };
	uint64_t id;

	(void)state;
	assert_non_null(start(&w, "a.example", &g));
	id = heard(&w).id;
	m.a = yes(id);
	for (size_t n = 1; n < sizeof(m.a); n++) {
		tell(&w, &m.a, n);
		turn(&w);
	}
	tell(&w, &m, sizeof(m));	/* too long */
	m.a.n_addrs = PIN_ADDRS_MAX + 1;
	tell(&w, &m.a, sizeof(m.a));
	m.a.n_addrs = 0;
	tell(&w, &m.a, sizeof(m.a));
	m.a = yes(id);
	m.a.reason = REASON_COUNT;
	tell(&w, &m.a, sizeof(m.a));
	m.a = yes(id + 1);
	tell(&w, &m.a, sizeof(m.a));
	turn(&w);
	assert_int_equal(g.n, 0);
	m.a = yes(id);
	tell(&w, &m.a, sizeof(m.a));
	turn(&w);
	assert_int_equal(g.n, 1);
	world_free(&w);
}

static void
a_new_resolver_is_asked_again_what_is_open(void **state)
{
	struct world w = world_new();
	struct got a = { 0 }, b = { 0 };
	struct ask_answer m;
	uint64_t ida, idb;
	int fd;

	(void)state;
	assert_non_null(start(&w, "a.example", &a));
	assert_non_null(start(&w, "b.example", &b));
	close(w.far);
	turn(&w);
	assert_int_equal(a.n + b.n, 0);
	assert_null(start(&w, "c.example", &a));	/* it is away */
	fd = pair(&w.far);
	assert_int_equal(ask_reconnect(w.ask, fd), 0);
	ida = heard(&w).id;
	idb = heard(&w).id;
	assert_true(silent(&w));
	m = yes(idb);
	tell(&w, &m, sizeof(m));
	m = yes(ida);
	tell(&w, &m, sizeof(m));
	turn(&w);
	assert_int_equal(a.n, 1);
	assert_int_equal(b.n, 1);
	assert_non_null(start(&w, "c.example", &a));
	world_free(&w);
}

static void
what_cannot_be_put_again_fails_in_the_next_turn(void **state)
{
	struct world w = world_new();
	struct got g = { 0 };
	int fd;

	(void)state;
	assert_non_null(start(&w, "a.example", &g));
	close(w.far);
	fd = pair(&w.far);
	close(w.far);			/* dead at once */
	w.far = -1;
	assert_int_equal(ask_reconnect(w.ask, fd), 0);
	assert_int_equal(g.n, 0);	/* never inside a call of ours */
	event_base_loop(w.base, EVLOOP_ONCE);
	turn(&w);
	assert_int_equal(g.n, 1);
	assert_int_equal(g.answer.reason, REASON_RESOLVER_UNAVAILABLE);
	world_free(&w);
}

/* The far end reads what it is asked and says nothing. */
static void
the_table_has_an_end(void **state)
{
	struct world w = world_new();
	struct got g = { 0 };
	struct ask_call *last = NULL, *c;
	unsigned n = 0;

	(void)state;
	while (n <= ASK_PENDING_MAX &&
	    (c = start(&w, "a.example", &g)) != NULL) {
		last = c;
		(void)heard(&w);
		n++;
	}
	assert_int_equal(n, ASK_PENDING_MAX);
	assert_int_equal(g.why, REASON_LIMIT_TOTAL);
	assert_non_null(last);
	ask_cancel(last);
	assert_non_null(start(&w, "a.example", &g));
	world_free(&w);			/* frees what is open, calls nobody */
	assert_int_equal(g.n, 0);
}

static void
nobody_asks_without_a_policy_or_a_cell(void **state)
{
	struct world w = world_new();
	struct host h = one_host("a.example");
	struct got g = { 0 };

	(void)state;
	assert_null(ask_start(w.ask, NULL, 0, &h, on_done, &g, &g.why));
	assert_int_equal(g.why, REASON_POLICY_UNAVAILABLE);
	assert_null(ask_start(w.ask, w.one.policy, 1, &h, on_done, &g,
	    &g.why));
	assert_int_equal(g.why, REASON_UNKNOWN_CELL);
	assert_true(silent(&w));
	world_free(&w);
}

static void
a_full_socket_refuses(void **state)
{
	struct world w = world_new();
	struct got g = { 0 };
	unsigned n = 0;

	(void)state;
	while (n < ASK_PENDING_MAX && start(&w, "a.example", &g) != NULL)
		n++;
	assert_in_range(n, 1, ASK_PENDING_MAX - 1);
	assert_int_equal(g.why, REASON_LIMIT_TOTAL);
	(void)heard(&w);
	assert_non_null(start(&w, "a.example", &g));
	world_free(&w);
}

static void
silence_ends_at_the_time_limit(void **state)
{
	struct world w = world_new();
	struct got g = { 0 };
	struct timeval from, to, took;

	(void)state;
	assert_non_null(start(&w, "a.example", &g));
	evutil_gettimeofday(&from, NULL);
	while (g.n == 0)
		event_base_loop(w.base, EVLOOP_ONCE);
	evutil_gettimeofday(&to, NULL);
	evutil_timersub(&to, &from, &took);
	assert_int_equal(g.answer.reason, REASON_DNS_TIMEOUT);
	/* a machine that stands still makes it longer, nothing shorter */
	assert_in_range(took.tv_sec, ASK_TIMEOUT_MS / 1000 - 1,
	    ASK_TIMEOUT_MS / 1000 + 60);
	world_free(&w);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(answers_find_their_questions_in_any_order),
		cmocka_unit_test(a_cancelled_question_is_not_answered),
		cmocka_unit_test(unsound_answers_are_not_taken),
		cmocka_unit_test(a_new_resolver_is_asked_again_what_is_open),
		cmocka_unit_test(
		    what_cannot_be_put_again_fails_in_the_next_turn),
		cmocka_unit_test(the_table_has_an_end),
		cmocka_unit_test(nobody_asks_without_a_policy_or_a_cell),
		cmocka_unit_test(a_full_socket_refuses),
		cmocka_unit_test(silence_ends_at_the_time_limit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
