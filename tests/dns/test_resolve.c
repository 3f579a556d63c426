/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/resolve.h"

#include <stdio.h>

#include "tests/dns/resolve_stage.h"

struct got {
	unsigned n;
	struct resolve_answer answer;
	union answer_room room;
};

static void
on_done(void *arg, const struct resolve_answer *a)
{
	struct got *g = arg;

	g->n++;
	g->answer = *a;
	memcpy(&g->room, a->records, answer_bytes(a->records));
	g->answer.records = &g->room.answer;
}

static struct resolve_call *
start(const char *text, uint16_t type, struct got *g)
{
	struct host name = host_of(text);
	enum reason why;

	return resolve_start(resolve, CELL, &name, type, on_done, g, &why);
}

static void
await(struct got *g, unsigned n)
{
	for (int i = 0; i < 1000 && g->n < n; i++)
		event_base_loop(base, EVLOOP_ONCE);
	assert_int_equal(g->n, n);
}

static struct got *
ask(const char *text, uint16_t type)
{
	static struct got g;

	g.n = 0;
	assert_non_null(start(text, type, &g));
	assert_int_equal(g.n, 0);	/* never before it returns */
	await(&g, 1);
	return &g;
}

static unsigned
asked(void)
{
	return fakes[0].n_udp + fakes[1].n_udp;
}

static void
equal_questions_are_asked_once(void **state)
{
	static struct got g;

	(void)state;
	stage_up(fake_says_yes);
	g.n = 0;
	for (unsigned i = 0; i < 5; i++)
		assert_non_null(start("a.example", TYPE_A, &g));
	await(&g, 5);
	assert_int_equal(g.answer.records->n_records, 1);
	assert_int_equal(g.answer.ttl_s, 60);
	assert_false(g.answer.cached);
	assert_true(endpoint_eq(&g.answer.server, &fakes[0].at));
	assert_int_equal(asked(), 1);
	stage_down();
}

static void
an_answer_is_kept_by_name_and_type(void **state)
{
	struct host name = host_of("a.example");
	struct resolve_answer a;

	(void)state;
	stage_up(fake_says_yes);
	assert_false(resolve_cached(resolve, &name, TYPE_A, &a));
	ask("a.example", TYPE_A);
	assert_true(resolve_cached(resolve, &name, TYPE_A, &a));
	assert_true(a.cached);
	assert_int_equal(a.records->n_records, 1);
	assert_in_range(a.ttl_s, 59, 60);
	assert_false(resolve_cached(resolve, &name, TYPE_AAAA, &a));
	stage_down();
}

static size_t
says_nxdomain(struct fake *f, const uint8_t *query, size_t len, uint8_t *out)
{
	(void)f;
	(void)len;
	return fake_answer(query, RCODE_NXDOMAIN, out);
}

static size_t
says_servfail(struct fake *f, const uint8_t *query, size_t len, uint8_t *out)
{
	(void)f;
	(void)len;
	return fake_answer(query, RCODE_SERVFAIL, out);
}

/* A tree that moved where its names do not fit (RFC 6672 2.2). */
static size_t
says_yxdomain(struct fake *f, const uint8_t *query, size_t len, uint8_t *out)
{
	(void)f;
	(void)len;
	return fake_answer(query, 6, out);
}

static size_t
says_nodata(struct fake *f, const uint8_t *query, size_t len, uint8_t *out)
{
	size_t n = fake_says_yes(f, query, len, out);

	out[7] = 0;
	return n - 16;
}

/* An A record of three bytes. */
static size_t
says_nonsense(struct fake *f, const uint8_t *query, size_t len, uint8_t *out)
{
	size_t n = fake_says_yes(f, query, len, out);

	out[n - 5] = 3;
	return n - 1;
}

static void
N16_each_failure_has_its_reason(void **state)
{
	static const struct {
		fake_says *says;
		enum reason why;
	} cases[] = {
		{ says_nxdomain, REASON_DNS_NXDOMAIN },
		{ says_nodata, REASON_DNS_NODATA },
		{ says_servfail, REASON_DNS_SERVFAIL },
		{ says_yxdomain, REASON_DNS_SERVFAIL },
		{ says_nonsense, REASON_DNS_SERVFAIL },
		{ fake_says_nothing, REASON_DNS_TIMEOUT },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct got *g;

		stage_up(cases[i].says);
		g = ask("a.example", TYPE_A);
		assert_int_equal(g->answer.records->reason, cases[i].why);
		assert_int_equal(g->answer.records->n_records, 0);
		stage_down();
	}
}

/* An alias to the next name, which the server says nothing of. */
static size_t
leaves_aliases_open(struct fake *f, const uint8_t *query, size_t len,
    uint8_t *out)
{
	size_t n;

	/* a.example -> b.example -> c.example, which has an address */
	if ((query[13] | 0x20) == 'c')
		return fake_says_yes(f, query, len, out);
	n = fake_says_yes(f, query, len, out) - 16;
	memcpy(out + n, "\300\14\0\5\0\1\0\0\0\36\0\4\1", 13);
	out[n + 13] = (uint8_t)((query[13] | 0x20) + 1);
	out[n + 14] = 0xc0;
	out[n + 15] = 14;
	return n + 16;
}

static void
an_alias_that_is_left_open_is_followed(void **state)
{
	struct got *g;

	(void)state;
	stage_up(leaves_aliases_open);
	g = ask("a.example", TYPE_A);
	assert_int_equal(g->answer.records->reason, REASON_NONE);
	assert_int_equal(g->answer.records->n_links, 2);
	assert_int_equal(g->answer.records->n_records, 1);
	assert_int_equal(g->answer.ttl_s, 30);
	assert_int_equal(g->answer.tries, 3);
	assert_int_equal(asked(), 3);
	stage_down();
}

/* a.example is one's, b.example another's who has servers of his own. */
static void
an_open_alias_leads_out_of_a_zone_and_not_into_one(void **state)
{
	static const struct {
		const char *zone;
		enum reason why;
		unsigned udp[2];
	} cases[] = {
		{ "b.example", REASON_DNS_SERVFAIL, { 1, 0 } },
		{ "a.example", REASON_NONE, { 2, 1 } },
		{ "example", REASON_NONE, { 0, 3 } },
	};
	struct resolve_settings *s;
	struct got *g;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		stage_up(leaves_aliases_open);
		s = settings_for(&fakes[0]);
		s->n_zones = 2;
		s->zones[1] = s->zones[0];
		s->zones[1].suffix = host_of(cases[i].zone);
		s->zones[1].servers.servers[0].at = fakes[1].at;
		assert_int_equal(resolve_reconfigure(resolve, s), 0);
		g = ask("a.example", TYPE_A);
		assert_int_equal(g->answer.records->reason, cases[i].why);
		assert_int_equal(fakes[0].n_udp, cases[i].udp[0]);
		assert_int_equal(fakes[1].n_udp, cases[i].udp[1]);
		stage_down();
	}
}

/* For ever: a -> b -> a. */
static size_t
leads_in_circles(struct fake *f, const uint8_t *query, size_t len,
    uint8_t *out)
{
	size_t n = leaves_aliases_open(f, query, len, out);

	out[n - 3] = (query[13] | 0x20) == 'a' ? 'b' : 'a';
	return n;
}

static void
a_circle_of_aliases_ends(void **state)
{
	struct got *g;

	(void)state;
	stage_up(leads_in_circles);
	g = ask("a.example", TYPE_A);
	assert_int_equal(g->answer.records->reason, REASON_DNS_SERVFAIL);
	assert_true(asked() <= ANSWER_LINKS_MAX + 1);
	stage_down();
}

/* Where the alias of a.example leads: nothing, and no SOA that says so. */
static size_t
leads_to_nothing(struct fake *f, const uint8_t *query, size_t len,
    uint8_t *out)
{
	return (query[13] | 0x20) == 'a' ?
	    leaves_aliases_open(f, query, len, out) :
	    says_nodata(f, query, len, out);
}

/* "Ask those": a server of servers of its own (RFC 1034 4.3.1). */
static size_t
refers(struct fake *f, const uint8_t *query, size_t len, uint8_t *out)
{
	static const uint8_t ns[] = { 0xc0, 12, 0, TYPE_NS, 0, 1, 0, 0, 0, 60,
	    0, 2, 0xc0, 12 };
	size_t n = says_nodata(f, query, len, out);

	memcpy(out + n, ns, sizeof(ns));
	out[9] = 1;
	return n + sizeof(ns);
}

static size_t
leads_to_a_referral(struct fake *f, const uint8_t *query, size_t len,
    uint8_t *out)
{
	return (query[13] | 0x20) == 'a' ?
	    leaves_aliases_open(f, query, len, out) :
	    refers(f, query, len, out);
}

/* What the reply before said is no reason to ask for the same again. */
static void
an_alias_to_nothing_is_followed_once(void **state)
{
	static const struct {
		fake_says *says;
		unsigned asked, links;
	} cases[] = {
		{ leads_to_nothing, 2, 1 }, { leads_to_a_referral, 2, 1 },
		{ refers, 1, 0 }, { says_nodata, 1, 0 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct got *g;

		stage_up(cases[i].says);
		g = ask("a.example", TYPE_A);
		assert_int_equal(g->answer.records->reason, REASON_DNS_NODATA);
		assert_int_equal(g->answer.records->n_links, cases[i].links);
		assert_int_equal(g->answer.ttl_s, 0);
		assert_int_equal(asked(), cases[i].asked);
		stage_down();
	}
}

/* An alias in each reply, never the end: a -> b -> c ... */
static size_t
leads_ever_on(struct fake *f, const uint8_t *query, size_t len, uint8_t *out)
{
	size_t n = fake_says_yes(f, query, len, out) - 16;

	memcpy(out + n, "\300\14\0\5\0\1\0\0\0\36\0\4\1", 13);
	out[n + 13] = (uint8_t)((query[13] | 0x20) + 1);
	out[n + 14] = 0xc0;
	out[n + 15] = 14;
	return n + 16;
}

static void
a_chain_costs_so_many_tries_and_no_more(void **state)
{
	struct got *g;

	(void)state;
	stage_up(leads_ever_on);
	g = ask("a.example", TYPE_A);
	assert_int_equal(g->answer.records->reason, REASON_DNS_SERVFAIL);
	assert_int_equal(asked(), RESOLVE_TRIES_MAX);
	stage_down();
}

/* Eight open questions are all there is room for; an equal one joins. */
static void
a_full_table_is_the_limit_of_all(void **state)
{
	static struct got g;
	struct host name;
	enum reason why = REASON_NONE;
	char text[32];

	(void)state;
	g.n = 0;
	stage_up(fake_says_nothing);
	for (unsigned i = 0; i < 9; i++) {
		snprintf(text, sizeof(text), "n%u.example", i);
		name = host_of(text);
		assert_int_equal(resolve_start(resolve, CELL, &name, TYPE_A,
		    on_done, &g, &why) != NULL, i < 8);
	}
	assert_int_equal(why, REASON_LIMIT_TOTAL);
	assert_int_equal(resolve_pending(resolve), 8);
	assert_non_null(start("n0.example", TYPE_A, &g));
	stage_down();
	assert_int_equal(g.n, 0);
}

static void
a_zone_has_servers_of_its_own(void **state)
{
	struct resolve_settings *s;

	(void)state;
	stage_up(fake_says_yes);
	s = settings_for(&fakes[0]);
	s->n_zones = 2;
	s->zones[1] = s->zones[0];
	s->zones[1].suffix = host_of("corp.example");
	s->zones[1].servers.servers[0].at = fakes[1].at;
	assert_int_equal(resolve_reconfigure(resolve, s), 0);
	ask("a.corp.example", TYPE_A);
	ask("corp.example", TYPE_A);
	assert_int_equal(fakes[0].n_udp, 0);
	assert_int_equal(fakes[1].n_udp, 2);
	ask("notcorp.example", TYPE_A);
	ask("a.example", TYPE_A);
	assert_int_equal(fakes[0].n_udp, 2);
	assert_int_equal(fakes[1].n_udp, 2);
	stage_down();
}

static void
what_is_open_is_put_to_the_new_servers(void **state)
{
	static struct got g;

	(void)state;
	g.n = 0;
	stage_up(fake_says_yes);
	fakes[0].says = fake_says_nothing;
	assert_non_null(start("a.example", TYPE_A, &g));
	event_base_loop(base, EVLOOP_NONBLOCK);
	assert_int_equal(resolve_reconfigure(resolve,
	    settings_for(&fakes[1])), 0);
	await(&g, 1);
	assert_int_equal(g.answer.records->reason, REASON_NONE);
	assert_true(endpoint_eq(&g.answer.server, &fakes[1].at));
	stage_down();
}

static void
the_same_servers_change_nothing(void **state)
{
	struct host name = host_of("a.example");
	struct resolve_answer a;

	(void)state;
	stage_up(fake_says_yes);
	ask("a.example", TYPE_A);
	assert_int_equal(resolve_reconfigure(resolve,
	    settings_for(&fakes[0])), 0);
	assert_true(resolve_cached(resolve, &name, TYPE_A, &a));
	assert_int_equal(resolve_reconfigure(resolve,
	    settings_for(&fakes[1])), 0);
	assert_false(resolve_cached(resolve, &name, TYPE_A, &a));
	stage_down();
}

/* What was pinned from a server that is not asked for the name any more is
 * not to be dialled; another one beside it takes nothing away. */
static void
names_that_move_to_other_servers_are_known(void **state)
{
	static const struct {
		const char *zone, *name;
		unsigned server;	/* of the zone; 2: both */
		bool forsaken;
	} cases[] = {
		{ "corp.example", "a.corp.example", 1, true },
		{ "corp.example", "corp.example", 1, true },
		{ "corp.example", "a.example", 1, false },
		{ "corp.example", "a.corp.example", 0, false },
		{ "corp.example", "a.corp.example", 2, false },
	};
	struct resolve_settings was, *s;

	(void)state;
	stage_up(fake_says_yes);
	was = *settings_for(&fakes[0]);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct host name = host_of(cases[i].name);
		struct upstream_settings *z;

		s = settings_for(&fakes[0]);
		s->n_zones = 2;
		s->zones[1].suffix = host_of(cases[i].zone);
		z = &s->zones[1].servers;
		z->n_servers = cases[i].server == 2 ? 2 : 1;
		z->servers[0].at = fakes[cases[i].server % 2].at;
		z->servers[1].at = fakes[1].at;
		assert_int_equal(resolve_forsakes(resolve, s, &name),
		    cases[i].forsaken);
		/* and back again: what the zone's own have said */
		assert_int_equal(resolve_reconfigure(resolve, s), 0);
		assert_int_equal(resolve_forsakes(resolve, &was, &name),
		    cases[i].forsaken || cases[i].server == 2);
		assert_int_equal(resolve_reconfigure(resolve, &was), 0);
	}
	stage_down();
}

/* An alias may have led from the zone to where all others are asked for. */
static void
names_of_a_zone_move_with_the_servers_of_all(void **state)
{
	struct host in = host_of("a.corp.example"), out = host_of("a.example");
	struct resolve_settings was, *s;
	uint64_t source;

	(void)state;
	stage_up(fake_says_yes);
	s = settings_for(&fakes[0]);
	s->n_zones = 2;
	s->zones[1].suffix = host_of("corp.example");
	s->zones[1].servers.n_servers = 1;
	s->zones[1].servers.servers[0].at = fakes[1].at;
	was = *s;
	source = resolve_source(&was);
	assert_int_equal(resolve_reconfigure(resolve, &was), 0);
	assert_false(resolve_forsakes(resolve, &was, &in));
	s->zones[0].servers.servers[0].at = fakes[1].at;
	assert_true(resolve_forsakes(resolve, s, &in));
	assert_true(resolve_forsakes(resolve, s, &out));
	assert_true(resolve_source(s) != source);
	*s = was;
	assert_true(resolve_source(s) == source);
	s->zones[1].suffix = host_of("example");
	assert_true(resolve_source(s) != source);
	stage_down();
}

static struct got first;

static void
on_first(void *arg, const struct resolve_answer *a)
{
	on_done(arg, a);
	if (first.n == 1)
		assert_int_equal(resolve_reconfigure(resolve,
		    settings_for(&fakes[1])), 0);
}

/* Two answers are there at once; the servers change when the first is given:
 * the other is none of theirs. */
static void
an_answer_of_the_old_servers_is_not_given(void **state)
{
	struct host a = host_of("a.example"), b = host_of("b.example");
	enum reason why;

	(void)state;
	first.n = 0;
	stage_up(fake_says_yes);
	assert_non_null(resolve_start(resolve, CELL, &a, TYPE_A, on_first, &first,
	    &why));
	assert_non_null(resolve_start(resolve, CELL, &b, TYPE_A, on_first, &first,
	    &why));
	await(&first, 2);
	assert_true(endpoint_eq(&first.answer.server, &fakes[1].at));
	assert_int_equal(fakes[1].n_udp, 1);
	stage_down();
}

/* The one that is told asks again, and the other one gives up. */
static struct resolve_call *second_call;

static void
on_told(void *arg, const struct resolve_answer *a)
{
	struct host name = host_of("a.example");
	enum reason why;

	on_done(arg, a);
	if (second_call == NULL)
		return;
	resolve_cancel(second_call);
	second_call = NULL;
	assert_non_null(resolve_start(resolve, CELL, &name, TYPE_A, on_told, arg,
	    &why));
}

static void
who_is_told_may_ask_and_cancel(void **state)
{
	struct host name = host_of("a.example");
	static struct got g, never;
	enum reason why;

	(void)state;
	g.n = never.n = 0;
	stage_up(fake_says_yes);
	assert_non_null(resolve_start(resolve, CELL, &name, TYPE_A, on_told, &g,
	    &why));
	second_call = resolve_start(resolve, CELL, &name, TYPE_A, on_done, &never,
	    &why);
	await(&g, 2);
	assert_int_equal(never.n, 0);
	stage_down();
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(equal_questions_are_asked_once),
		cmocka_unit_test(an_answer_is_kept_by_name_and_type),
		cmocka_unit_test(N16_each_failure_has_its_reason),
		cmocka_unit_test(an_alias_that_is_left_open_is_followed),
		cmocka_unit_test(
		    an_open_alias_leads_out_of_a_zone_and_not_into_one),
		cmocka_unit_test(a_circle_of_aliases_ends),
		cmocka_unit_test(an_alias_to_nothing_is_followed_once),
		cmocka_unit_test(a_chain_costs_so_many_tries_and_no_more),
		cmocka_unit_test(a_full_table_is_the_limit_of_all),
		cmocka_unit_test(a_zone_has_servers_of_its_own),
		cmocka_unit_test(what_is_open_is_put_to_the_new_servers),
		cmocka_unit_test(the_same_servers_change_nothing),
		cmocka_unit_test(an_answer_of_the_old_servers_is_not_given),
		cmocka_unit_test(names_that_move_to_other_servers_are_known),
		cmocka_unit_test(names_of_a_zone_move_with_the_servers_of_all),
		cmocka_unit_test(who_is_told_may_ask_and_cancel),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
