/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/resolve.h"

#include "tests/dns/upstream.h"

/* Against tests/net/dnsserver.py on loopback. */
static const char zone[] = "{"
    "\"a.example\": {\"A\": [\"192.0.2.1\"], \"AAAA\": [\"2001:db8::1\"]},"
    "\"alias.example\": {\"CNAME\": \"a.example\"},"
    "\"big.example\": {\"A\": [\"192.0.2.9\"], \"truncate\": true},"
    "\"fail.example\": {\"rcode\": \"SERVFAIL\"},"
    "\"mute.example\": {\"timeout\": true},"
    "\"empty.example\": {}}";

struct got {
	struct event_base *base;
	unsigned n;
	struct cache_answer answer;
};

static void
on_done(void *arg, const struct cache_answer *a)
{
	struct got *g = arg;

	g->n++;
	g->answer = *a;
	event_base_loopbreak(g->base);
}

static int
server_start(void **state)
{
	(void)state;
	return upstream_start(zone);
}

static int
server_stop(void **state)
{
	(void)state;
	return upstream_stop();
}

static struct got
ask_for(const char *text, unsigned times)
{
	static const uint8_t lo[] = { 127, 0, 0, 1 };
	struct resolve_settings s = { .n_servers = 1, .timeout_ms = 200,
	    .tries = 1, .ipv4 = true, .ipv6 = true, .pending_max = 8 };
	struct got g = { .base = event_base_new() };
	struct cache *c = cache_new(16);
	struct resolve *r;
	struct host name;
	enum reason why;

	s.servers[0].addr = addr_from_v4(lo);
	s.servers[0].port = upstream_port;
	assert_int_equal(host_parse(&name, span_str(text)), REASON_NONE);
	assert_int_equal(resolve_new(&r, g.base, &s, c), 0);
	for (unsigned i = 0; i < times; i++)
		assert_non_null(resolve_start(r, &name, on_done, &g,
		    &why));
	assert_int_equal(g.n, 0);
	event_base_dispatch(g.base);
	while (g.n < times)
		event_base_loop(g.base, EVLOOP_ONCE);
	resolve_free(r);
	cache_free(c);
	event_base_free(g.base);
	return g;
}

static void
both_families_are_merged_and_equal_questions_asked_once(void **state)
{
	struct got g = ask_for("a.example", 5);

	(void)state;
	assert_int_equal(g.answer.reason, REASON_NONE);
	assert_int_equal(g.answer.n_addrs, 2);
	assert_true(addr_is_v4(&g.answer.addrs[0]));
	assert_int_equal(asked("a.example"), 2);
}

static void
an_alias_is_followed(void **state)
{
	(void)state;
	assert_int_equal(ask_for("alias.example", 1).answer.n_addrs, 2);
}

static void
a_truncated_answer_is_asked_again_over_tcp(void **state)
{
	struct got g = ask_for("big.example", 1);

	(void)state;
	assert_int_equal(g.answer.reason, REASON_NONE);
	assert_int_equal(g.answer.n_addrs, 1);
}

static void
each_failure_has_its_reason(void **state)
{
	(void)state;
	assert_int_equal(ask_for("none.example", 1).answer.reason,
	    REASON_DNS_NXDOMAIN);
	assert_int_equal(ask_for("empty.example", 1).answer.reason,
	    REASON_DNS_NODATA);
	assert_int_equal(ask_for("fail.example", 1).answer.reason,
	    REASON_DNS_SERVFAIL);
	assert_int_equal(ask_for("mute.example", 1).answer.reason,
	    REASON_DNS_TIMEOUT);
}

/* Eight open questions are all there is room for; an equal one joins. */
static void
a_full_table_is_the_limit_of_all(void **state)
{
	struct resolve_settings s = { .n_servers = 1, .timeout_ms = 200,
	    .tries = 1, .ipv4 = true, .pending_max = 8 };
	struct got g = { .base = event_base_new() };
	struct cache *c = cache_new(16);
	enum reason why = REASON_NONE;
	struct resolve *r;
	struct host name;
	char text[32];

	(void)state;
	s.servers[0].addr = addr_from_v4((uint8_t[]){ 127, 0, 0, 1 });
	s.servers[0].port = upstream_port;
	assert_int_equal(resolve_new(&r, g.base, &s, c), 0);
	for (unsigned i = 0; i < 9; i++) {
		snprintf(text, sizeof(text), "n%u.mute.example", i);
		assert_int_equal(host_parse(&name, span_str(text)),
		    REASON_NONE);
		assert_int_equal(resolve_start(r, &name, on_done, &g, &why)
		    != NULL, i < 8);
	}
	assert_int_equal(why, REASON_LIMIT_TOTAL);
	assert_int_equal(host_parse(&name, span_str("n0.mute.example")),
	    REASON_NONE);
	assert_non_null(resolve_start(r, &name, on_done, &g, &why));
	resolve_free(r);
	cache_free(c);
	event_base_free(g.base);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
		    both_families_are_merged_and_equal_questions_asked_once),
		cmocka_unit_test(an_alias_is_followed),
		cmocka_unit_test(a_truncated_answer_is_asked_again_over_tcp),
		cmocka_unit_test(each_failure_has_its_reason),
		cmocka_unit_test(a_full_table_is_the_limit_of_all),
	};

	return cmocka_run_group_tests(tests, server_start, server_stop);
}
