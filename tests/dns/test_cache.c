/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/cache.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static struct host
host_of(unsigned i)
{
	char text[32];
	struct host h;

	snprintf(text, sizeof(text), "n%u.example", i);
	assert_int_equal(host_parse(&h, span_str(text)), REASON_NONE);
	return h;
}

/* Kept for `live_s` and not longer when the answer says a day. */
static void
kept(enum reason reason, int64_t live_s)
{
	struct cache_answer a = { .reason = reason, .ttl_s = 86400 }, got;
	struct cache *c = cache_new(4);
	struct host h = host_of(0);

	assert_non_null(c);
	a.n_addrs = reason == REASON_NONE ? 1 : 0;
	cache_put(c, &h, &a, 0);
	assert_true(cache_get(c, &h, live_s * 1000 - 1, &got));
	assert_int_equal(got.reason, reason);
	assert_false(cache_get(c, &h, live_s * 1000 + 1, &got));
	cache_free(c);
}

static void
each_kind_of_answer_has_its_longest_life(void **state)
{
	(void)state;
	kept(REASON_NONE, CACHE_TTL_MAX_S);
	kept(REASON_DNS_NXDOMAIN, CACHE_NEGATIVE_MAX_S);
	kept(REASON_DNS_NODATA, CACHE_NEGATIVE_MAX_S);
	kept(REASON_DNS_SERVFAIL, CACHE_FAILURE_S);
	kept(REASON_DNS_TIMEOUT, CACHE_FAILURE_S);
}

static void
the_least_recently_used_name_makes_room(void **state)
{
	struct cache_answer a = { .reason = REASON_NONE, .ttl_s = 60,
	    .n_addrs = 1 }, got;
	struct cache *c = cache_new(4);
	struct host h;

	(void)state;
	assert_non_null(c);
	for (unsigned i = 0; i < 5; i++) {
		h = host_of(i);
		cache_put(c, &h, &a, 0);
		h = host_of(0);
		assert_true(cache_get(c, &h, 1, &got));
	}
	h = host_of(1);
	assert_false(cache_get(c, &h, 1, &got));
	cache_flush(c);
	h = host_of(0);
	assert_false(cache_get(c, &h, 1, &got));
	cache_free(c);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_kind_of_answer_has_its_longest_life),
		cmocka_unit_test(the_least_recently_used_name_makes_room),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
