/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/upstream.h"

#include <ctype.h>
#include <event2/event.h>

#include "dns/message.h"
#include "tests/dns/fake_server.h"

static struct event_base *base;
static struct fake fakes[4];
static struct upstream *upstream;
static int64_t clock_ahead_ms;

int64_t __real_clock_mono_ms(void);
int64_t __wrap_clock_mono_ms(void);

int64_t
__wrap_clock_mono_ms(void)
{
	return __real_clock_mono_ms() + clock_ahead_ms;
}

struct got {
	unsigned n;
	struct upstream_answer answer;
};

static void
on_done(void *arg, const struct upstream_answer *a)
{
	struct got *g = arg;

	g->n++;
	g->answer = *a;
}

static void
up(unsigned n, fake_says *says)
{
	struct upstream_settings s = { .n_servers = n, .timeout_ms = 50 };

	base = event_base_new();
	clock_ahead_ms = 0;
	for (unsigned i = 0; i < n; i++) {
		fake_start(&fakes[i], base, says);
		s.servers[i].at = fakes[i].at;
	}
	assert_int_equal(upstream_new(&upstream, base, &s), 0);
}

static void
down(unsigned n)
{
	upstream_free(upstream);
	for (unsigned i = 0; i < n; i++)
		fake_stop(&fakes[i]);
	event_base_free(base);
}

static struct upstream_answer
ask(const char *text)
{
	struct got g = { 0 };
	struct host name;

	assert_int_equal(host_parse(&name, span_str(text)), REASON_NONE);
	upstream_ask(upstream, &name, TYPE_A, on_done, &g);
	for (int i = 0; i < 1000 && g.n == 0; i++)
		event_base_loop(base, EVLOOP_ONCE);
	assert_int_equal(g.n, 1);
	return g.answer;
}

static size_t
says_servfail(struct fake *f, const uint8_t *query, size_t len, uint8_t *out)
{
	(void)f;
	(void)len;
	return fake_answer(query, RCODE_SERVFAIL, out);
}

static size_t
says_refused(struct fake *f, const uint8_t *query, size_t len, uint8_t *out)
{
	(void)f;
	(void)len;
	return fake_answer(query, RCODE_REFUSED, out);
}

static size_t
says_nxdomain(struct fake *f, const uint8_t *query, size_t len, uint8_t *out)
{
	(void)f;
	(void)len;
	return fake_answer(query, RCODE_NXDOMAIN, out);
}

/* The letters in another case than they came in. */
static size_t
keeps_no_case(struct fake *f, const uint8_t *query, size_t len, uint8_t *out)
{
	size_t n = fake_says_yes(f, query, len, out);

	for (size_t i = 12; out[i] != 0;)
		for (size_t k = out[i++]; k > 0; k--, i++)
			out[i] = (uint8_t)tolower(out[i]);
	return n;
}

/* 2^-60 against chance: 60 letters. */
#define LONG "abcdefghijklmnopqrstuvwxyzabcd.abcdefghijklmnopqrstuvwxyzabcd"

static void
letters_are_put_in_any_case(void **state)
{
	uint8_t first[64];

	(void)state;
	up(1, fake_says_yes);
	assert_int_equal(ask(LONG).reason, REASON_NONE);
	memcpy(first, fakes[0].last + 12, sizeof(first));
	assert_int_equal(ask(LONG).reason, REASON_NONE);
	assert_memory_not_equal(first, fakes[0].last + 12, sizeof(first));
	down(1);
}

static void
another_case_over_udp_is_asked_again_over_tcp(void **state)
{
	struct upstream_state st[UPSTREAM_SERVERS_MAX];
	struct upstream_answer a;

	(void)state;
	up(1, keeps_no_case);
	a = ask(LONG);
	assert_int_equal(a.reason, REASON_NONE);
	assert_int_equal(fakes[0].n_udp, 1);
	assert_int_equal(fakes[0].n_tcp, 1);
	assert_int_equal(upstream_states(upstream, st), 1);
	assert_int_equal(st[0].other_case, 1);
	assert_int_equal(st[0].answered, 1);
	down(1);
}

static void
absence_is_an_answer(void **state)
{
	struct upstream_answer a;

	(void)state;
	up(2, says_nxdomain);
	a = ask("a.example");
	assert_int_equal(a.reason, REASON_NONE);
	assert_int_equal(a.tries, 1);
	assert_int_equal(fakes[0].n_udp, 1);
	assert_int_equal(fakes[1].n_udp, 0);
	down(2);
}

static void
a_failure_leads_to_the_next_server(void **state)
{
	static fake_says *const failures[] = { says_servfail, says_refused,
	    fake_says_nothing };

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		struct upstream_answer a;

		up(2, fake_says_yes);
		fakes[0].says = failures[i];
		a = ask("a.example");
		assert_int_equal(a.reason, REASON_NONE);
		assert_int_equal(a.server, 1);
		assert_int_equal(a.tries, 2);
		down(2);
	}
}

static void
tries_are_two_each_and_four_in_all(void **state)
{
	struct upstream_answer a;

	(void)state;
	up(1, fake_says_nothing);
	a = ask("a.example");
	assert_int_equal(a.reason, REASON_DNS_TIMEOUT);
	assert_int_equal(fakes[0].n_udp, 2);
	down(1);

	up(3, says_servfail);
	a = ask("a.example");
	assert_int_equal(a.reason, REASON_DNS_SERVFAIL);
	assert_int_equal(a.tries, 4);
	assert_int_equal(fakes[0].n_udp, 2);
	assert_int_equal(fakes[1].n_udp, 1);
	assert_int_equal(fakes[2].n_udp, 1);
	down(3);
}

/* As bad as it gets: cut over either transport, in another case, and no. */
static size_t
is_never_content(struct fake *f, const uint8_t *query, size_t len,
    uint8_t *out)
{
	size_t n = keeps_no_case(f, query, len, out);

	out[2] |= 2;
	out[3] = 0x80 | RCODE_SERVFAIL;
	return n;
}

static size_t
is_always_cut(struct fake *f, const uint8_t *query, size_t len, uint8_t *out)
{
	size_t n = fake_says_yes(f, query, len, out);

	out[2] |= 2;
	return n;
}

/* A try is one message over UDP, one over TCP where that is cut, and one more
 * where its case is another. */
static void
a_try_costs_three_messages_at_most(void **state)
{
	unsigned udp = 0, tcp = 0;

	(void)state;
	up(3, is_never_content);
	assert_int_equal(ask(LONG).reason, REASON_DNS_SERVFAIL);
	for (unsigned i = 0; i < 3; i++) {
		udp += fakes[i].n_udp;
		tcp += fakes[i].n_tcp;
	}
	assert_int_equal(udp, UPSTREAM_TRIES);
	assert_int_equal(tcp, 2 * UPSTREAM_TRIES);
	down(3);

	up(1, is_always_cut);
	(void)ask(LONG);
	assert_int_equal(fakes[0].n_udp, 1);
	assert_int_equal(fakes[0].n_tcp, 1);
	down(1);
}

/* "No" is an answer: a workload may ask for names whose zones are broken, or
 * are its own, and others have the servers where they were. */
static void
a_no_is_the_names_and_not_the_servers(void **state)
{
	static fake_says *const noes[] = { says_servfail, says_refused };
	struct upstream_state st[UPSTREAM_SERVERS_MAX];

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		up(2, noes[i]);
		for (unsigned k = 0; k < 2 * UPSTREAM_DOWN_AFTER; k++)
			assert_int_equal(ask("broken.example").reason,
			    REASON_DNS_SERVFAIL);
		upstream_states(upstream, st);
		assert_false(st[0].down);
		assert_false(st[1].down);
		assert_int_equal(st[0].failures, 4 * UPSTREAM_DOWN_AFTER);
		fakes[0].says = fake_says_yes;
		assert_int_equal(ask("a.example").server, 0);
		down(2);
	}
}

/* It neither makes up for time-outs before it. */
static void
a_no_brings_no_server_back(void **state)
{
	struct upstream_state st[UPSTREAM_SERVERS_MAX];

	(void)state;
	up(2, fake_says_yes);
	for (unsigned i = 0; i < UPSTREAM_DOWN_AFTER; i++) {
		fakes[0].says = fake_says_nothing;
		ask("a.example");
		fakes[0].says = says_servfail;
		ask("b.example");
	}
	upstream_states(upstream, st);
	assert_true(st[0].down);
	down(2);
}

/* Silent for names of one domain, whose own servers keep it waiting. */
static size_t
is_silent_for_x(struct fake *f, const uint8_t *query, size_t len, uint8_t *out)
{
	return (query[13] | 0x20) == 'x' ? 0 :
	    fake_says_yes(f, query, len, out);
}

static void
silence_for_some_names_is_not_the_servers(void **state)
{
	struct upstream_state st[UPSTREAM_SERVERS_MAX];
	struct got g = { 0 };
	struct host name;

	(void)state;
	up(2, fake_says_yes);
	fakes[0].says = is_silent_for_x;
	assert_int_equal(host_parse(&name, span_str("x.example")),
	    REASON_NONE);
	for (unsigned i = 0; i < 2 * UPSTREAM_DOWN_AFTER; i++)
		upstream_ask(upstream, &name, TYPE_A, on_done, &g);
	assert_int_equal(ask("a.example").server, 0);
	for (int i = 0; i < 1000 && g.n < 2 * UPSTREAM_DOWN_AFTER; i++)
		event_base_loop(base, EVLOOP_ONCE);
	assert_int_equal(g.n, 2 * UPSTREAM_DOWN_AFTER);
	upstream_states(upstream, st);
	assert_int_equal(st[0].timeouts, 2 * UPSTREAM_DOWN_AFTER);
	assert_false(st[0].down);
	down(2);
}

static void
a_server_that_does_not_answer_comes_last(void **state)
{
	struct upstream_state st[UPSTREAM_SERVERS_MAX];
	unsigned before;

	(void)state;
	up(2, fake_says_yes);
	fakes[0].says = fake_says_nothing;
	for (unsigned i = 0; i < UPSTREAM_DOWN_AFTER; i++)
		ask("a.example");
	upstream_states(upstream, st);
	assert_true(st[0].down);
	assert_false(st[1].down);
	before = fakes[0].n_udp;
	assert_int_equal(ask("a.example").server, 1);
	assert_int_equal(fakes[0].n_udp, before);
	/* but where the other one fails it is asked */
	fakes[1].says = says_servfail;
	fakes[0].says = fake_says_yes;
	assert_int_equal(ask("a.example").server, 0);
	/* and then it is the first again */
	fakes[1].says = fake_says_yes;
	assert_int_equal(ask("a.example").server, 0);
	down(2);
}

static void
it_is_tried_again_after_a_while(void **state)
{
	(void)state;
	up(2, fake_says_yes);
	fakes[0].says = fake_says_nothing;
	for (unsigned i = 0; i < UPSTREAM_DOWN_AFTER; i++)
		ask("a.example");
	fakes[0].says = fake_says_yes;
	assert_int_equal(ask("a.example").server, 1);
	clock_ahead_ms = UPSTREAM_DOWN_MS + 1;
	assert_int_equal(ask("a.example").server, 0);
	down(2);
}

static void
nobody_is_told_after_the_end(void **state)
{
	struct got g = { 0 };
	struct host name;

	(void)state;
	up(1, fake_says_nothing);
	assert_int_equal(host_parse(&name, span_str("a.example")),
	    REASON_NONE);
	for (unsigned i = 0; i < 100; i++)
		upstream_ask(upstream, &name, TYPE_A, on_done, &g);
	event_base_loop(base, EVLOOP_NONBLOCK);
	down(1);
	assert_int_equal(g.n, 0);
}

static void
a_server_that_is_not_there_fails_at_once(void **state)
{
	struct upstream_answer a;

	(void)state;
	up(2, fake_says_yes);
	fake_stop(&fakes[0]);
	a = ask("a.example");
	assert_int_equal(a.reason, REASON_NONE);
	assert_int_equal(a.server, 1);
	upstream_free(upstream);
	fake_stop(&fakes[1]);
	event_base_free(base);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(letters_are_put_in_any_case),
		cmocka_unit_test(
		    another_case_over_udp_is_asked_again_over_tcp),
		cmocka_unit_test(absence_is_an_answer),
		cmocka_unit_test(a_failure_leads_to_the_next_server),
		cmocka_unit_test(tries_are_two_each_and_four_in_all),
		cmocka_unit_test(a_try_costs_three_messages_at_most),
		cmocka_unit_test(a_no_is_the_names_and_not_the_servers),
		cmocka_unit_test(a_no_brings_no_server_back),
		cmocka_unit_test(silence_for_some_names_is_not_the_servers),
		cmocka_unit_test(a_server_that_does_not_answer_comes_last),
		cmocka_unit_test(it_is_tried_again_after_a_while),
		cmocka_unit_test(nobody_is_told_after_the_end),
		cmocka_unit_test(a_server_that_is_not_there_fails_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
