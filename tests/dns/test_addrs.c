/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/addrs.h"

#include "tests/dns/resolve_stage.h"

static uint8_t rcode_a, rcode_aaaa;	/* 255: no address, NOERROR */

/* A and AAAA each as the test has it. */
static size_t
says_each(struct fake *f, const uint8_t *query, size_t len, uint8_t *out)
{
	static const uint8_t aaaa[] = { 0xc0, 12, 0, 28, 0, 1, 0, 0, 14, 16,
	    0, 16, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7 };
	size_t n, at = 12;
	uint8_t rcode;

	(void)f;
	(void)len;
	while (query[at] != 0)
		at += 1u + query[at];
	rcode = query[at + 2] == TYPE_A ? rcode_a : rcode_aaaa;
	n = fake_answer(query, rcode == 255 ? 0 : rcode, out);
	if (rcode == 255) {
		out[7] = 0;
		n -= 16;
	} else if (rcode == 0 && query[at + 2] == TYPE_AAAA) {
		memcpy(out + n - 16, aaaa, sizeof(aaaa));
		n += sizeof(aaaa) - 16;
	}
	return n;
}

struct got {
	unsigned n;
	struct addrs addrs;
};

static void
on_done(void *arg, const struct addrs *a)
{
	struct got *g = arg;

	g->n++;
	g->addrs = *a;
}

static struct addrs
ask(uint8_t a, uint8_t aaaa)
{
	struct host name = host_of("a.example");
	struct addrs cached;
	struct got g = { 0 };
	enum reason why;

	rcode_a = a;
	rcode_aaaa = aaaa;
	stage_up(says_each);
	assert_false(addrs_cached(resolve, &name, &cached));
	assert_non_null(addrs_start(resolve, CELL, &name, on_done, &g, &why));
	assert_int_equal(g.n, 0);
	for (int i = 0; i < 1000 && g.n == 0; i++)
		event_base_loop(base, EVLOOP_ONCE);
	assert_int_equal(g.n, 1);
	stage_down();
	return g.addrs;
}

static void
both_families_are_one_answer(void **state)
{
	struct addrs a = ask(0, 0);

	(void)state;
	assert_int_equal(a.reason, REASON_NONE);
	assert_int_equal(a.n, 2);
	assert_true(addr_is_v4(&a.addrs[0]));
	assert_false(addr_is_v4(&a.addrs[1]));
	assert_int_equal(a.ttl_s, 60);
}

static void
one_family_without_addresses_takes_nothing_away(void **state)
{
	struct addrs a = ask(0, 255);

	(void)state;
	assert_int_equal(a.reason, REASON_NONE);
	assert_int_equal(a.n, 1);
	assert_int_equal(a.ttl_s, 60);
	a = ask(255, 0);
	assert_int_equal(a.reason, REASON_NONE);
	assert_int_equal(a.n, 1);
}

static void
half_an_answer_lasts_no_longer_than_its_failure(void **state)
{
	struct addrs a = ask(RCODE_SERVFAIL, 0);

	(void)state;
	assert_int_equal(a.reason, REASON_NONE);
	assert_int_equal(a.n, 1);
	assert_in_range(a.ttl_s, 1, CACHE_FAILURE_S);
}

static void
of_two_failures_the_one_that_is_no_absence_counts(void **state)
{
	(void)state;
	assert_int_equal(ask(255, RCODE_SERVFAIL).reason,
	    REASON_DNS_SERVFAIL);
	assert_int_equal(ask(RCODE_SERVFAIL, 255).reason,
	    REASON_DNS_SERVFAIL);
	assert_int_equal(ask(RCODE_NXDOMAIN, RCODE_NXDOMAIN).reason,
	    REASON_DNS_NXDOMAIN);
	assert_int_equal(ask(255, 255).reason, REASON_DNS_NODATA);
}

static void
what_is_known_of_both_is_not_asked(void **state)
{
	struct host name = host_of("a.example");
	struct got g = { 0 };
	struct addrs a;
	enum reason why;

	(void)state;
	rcode_a = rcode_aaaa = 0;
	stage_up(says_each);
	assert_non_null(addrs_start(resolve, CELL, &name, on_done, &g, &why));
	for (int i = 0; i < 1000 && g.n == 0; i++)
		event_base_loop(base, EVLOOP_ONCE);
	assert_true(addrs_cached(resolve, &name, &a));
	assert_int_equal(a.n, 2);
	stage_down();
}

static void
a_cancelled_one_is_not_told(void **state)
{
	struct host name = host_of("a.example");
	struct addrs_call *c;
	struct got g = { 0 };
	enum reason why;

	(void)state;
	rcode_a = rcode_aaaa = 0;
	stage_up(says_each);
	c = addrs_start(resolve, CELL, &name, on_done, &g, &why);
	assert_non_null(c);
	addrs_cancel(c);
	for (int i = 0; i < 1000 && resolve_pending(resolve) > 0; i++)
		event_base_loop(base, EVLOOP_ONCE);
	assert_int_equal(g.n, 0);
	stage_down();
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(both_families_are_one_answer),
		cmocka_unit_test(
		    one_family_without_addresses_takes_nothing_away),
		cmocka_unit_test(
		    half_an_answer_lasts_no_longer_than_its_failure),
		cmocka_unit_test(
		    of_two_failures_the_one_that_is_no_absence_counts),
		cmocka_unit_test(what_is_known_of_both_is_not_asked),
		cmocka_unit_test(a_cancelled_one_is_not_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
