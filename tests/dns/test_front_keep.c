/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/front.h"

#include "tests/dns/front_stage.h"

/* Exact names of tcp rules stay pinned, with nobody asking. */

#define TCP_RULES "    - {verdict: allow, hostname: db.test, " \
    "ports: [5432], protocol: tcp}\n" \
    "    - {verdict: allow, hostname: web.test}\n"

static void
zone_says(const char *text)
{
	char path[sizeof(upstream_zone) + 4];
	FILE *f;

	/* it may be reading the one before */
	snprintf(path, sizeof(path), "%s.new", upstream_zone);
	f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
	assert_int_equal(rename(path, upstream_zone), 0);
	kill(upstream_pid, SIGHUP);
}

static void
hosts(const char *addr)
{
	char text[512];

	snprintf(text, sizeof(text), "{\"db.test\": {\"A\": [\"%s\"], "
	    "\"ttl\": 1}, "
	    "\"web.test\": {\"A\": [\"%s\"], \"ttl\": 1}}", addr, addr);
	zone_says(text);
}

/* The server may read its zone later than it is told to. */
static void
ask_until(struct world *w, const char *name, const char *addr)
{
	for (unsigned i = 0; i < 100; i++) {
		if (holds(ask(w, name, TYPE_A), addr))
			return;
		cache_flush(w->cache, NULL);
		work(w, 20);
	}
	fail();
}

static struct world *
world_of_tcp(void)
{
	struct front_settings s = { .keep_min_ms = 1000 };
	struct world *w = world_with(&s);

	one_rules(&w->other, TCP_RULES);
	front_set_policy(w->front, w->other.policy);
	hosts("9.9.9.1");
	ask_until(w, "db.test", "9.9.9.1");
	ask_until(w, "web.test", "9.9.9.1");
	return w;
}

static bool
pinned_in_time(struct world *w, const char *name, const char *addr)
{
	for (unsigned i = 0; i < 50 && !pinned(w, name, addr); i++)
		work(w, 100);
	return pinned(w, name, addr);
}

static void
a_new_address_is_pinned_with_nobody_asking(void **state)
{
	struct world *w = world_of_tcp();
	int64_t told = count_sum(w->counts, COUNT_DNS_ALLOWED_NOERROR);
	struct record last;

	(void)state;
	(void)records(w, REASON_RULE, &last);
	hosts("9.9.9.2");
	assert_true(pinned_in_time(w, "db.test", "9.9.9.2"));
	/* a client may still have the one before */
	assert_true(pinned(w, "db.test", "9.9.9.1"));
	/* nobody was told, and no name that is not written in such a rule is
	 * asked for */
	assert_int_equal(count_sum(w->counts, COUNT_DNS_ALLOWED_NOERROR),
	    told);
	assert_int_equal(records(w, REASON_RULE, &last), 0);
	assert_false(pinned(w, "web.test", "9.9.9.2"));
	world_free(w);
}

static void
a_name_that_no_rule_keeps_is_asked_for_no_more(void **state)
{
	struct world *w = world_of_tcp();

	(void)state;
	front_set_policy(w->front, w->one.policy);
	hosts("9.9.9.3");
	work(w, 3000);
	front_set_policy(w->front, w->other.policy);
	assert_false(pinned(w, "db.test", "9.9.9.3"));
	world_free(w);
}

static void
a_failure_leaves_what_was_pinned_and_ends(void **state)
{
	struct world *w = world_of_tcp();

	(void)state;
	zone_says("{\"db.test\": {\"rcode\": \"SERVFAIL\", \"ttl\": 1}}");
	work(w, 3000);
	assert_true(pinned(w, "db.test", "9.9.9.1"));
	hosts("9.9.9.4");
	assert_true(pinned_in_time(w, "db.test", "9.9.9.4"));
	world_free(w);
}

/* As a resolver that is started again: another front on the same pins. */
static void
what_the_table_has_is_taken_over(void **state)
{
	struct front_settings s = { .keep_min_ms = 1000 };
	struct world *w = world_of_tcp();
	struct one first = w->one;

	(void)state;
	front_free(w->front);
	close(w->udp);
	hosts("9.9.9.5");
	w->one = w->other;
	w->other = first;
	open_front(w, &s);
	assert_false(pinned(w, "db.test", "9.9.9.5"));
	assert_true(pinned_in_time(w, "db.test", "9.9.9.5"));
	assert_false(pinned(w, "web.test", "9.9.9.5"));
	world_free(w);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_new_address_is_pinned_with_nobody_asking),
		cmocka_unit_test(
		    a_name_that_no_rule_keeps_is_asked_for_no_more),
		cmocka_unit_test(a_failure_leaves_what_was_pinned_and_ends),
		cmocka_unit_test(what_the_table_has_is_taken_over),
	};

	return cmocka_run_group_tests(tests, server_start, server_stop);
}
