/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/cache.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#define SOME_BYTES 65536u
#define ONE span_str("one")
#define TWO span_str("two")

static struct host
host_of(unsigned i)
{
	char text[32];
	struct host h;

	snprintf(text, sizeof(text), "n%u.example", i);
	assert_int_equal(host_parse(&h, span_str(text)), REASON_NONE);
	return h;
}

static const struct answer *
answer_of(enum reason why, uint16_t type, uint32_t ttl_s, const char *data)
{
	static union answer_room room;

	answer_none(&room.answer, type, why);
	room.answer.ttl_s = ttl_s;
	if (data != NULL)
		assert_true(answer_put(&room.answer, span_str(data)));
	return &room.answer;
}

/* Kept for `live_s` and not longer when the answer says two days. */
static void
kept(enum reason reason, int64_t live_s)
{
	struct cache *c = cache_new(SOME_BYTES);
	struct host h = host_of(0);
	const struct answer *got;
	uint32_t ttl;

	assert_non_null(c);
	cache_put(c, ONE, &h, answer_of(reason, TYPE_A, 2 * 86400, "1234"), 0);
	got = cache_get(c, &h, TYPE_A, live_s * 1000 - 1, &ttl);
	assert_non_null(got);
	assert_int_equal(got->reason, reason);
	assert_int_equal(ttl, 1);
	assert_null(cache_get(c, &h, TYPE_A, live_s * 1000 + 1, &ttl));
	cache_free(c);
}

static void
B041_each_kind_of_answer_has_its_longest_life(void **state)
{
	(void)state;
	kept(REASON_NONE, ANSWER_TTL_MAX_S);
	kept(REASON_DNS_NXDOMAIN, CACHE_NEGATIVE_MAX_S);
	kept(REASON_DNS_NODATA, CACHE_NEGATIVE_MAX_S);
	kept(REASON_DNS_SERVFAIL, CACHE_FAILURE_S);
	kept(REASON_DNS_TIMEOUT, CACHE_FAILURE_S);
}

static void
what_may_not_be_kept_is_not(void **state)
{
	struct cache *c = cache_new(SOME_BYTES);
	struct host h = host_of(0);
	uint32_t ttl;

	(void)state;
	cache_put(c, ONE, &h, answer_of(REASON_NONE, TYPE_A, 60, "1234"), 0);
	/* and it takes the place of what was */
	cache_put(c, ONE, &h, answer_of(REASON_NONE, TYPE_A, 0, "5678"), 0);
	assert_null(cache_get(c, &h, TYPE_A, 0, &ttl));
	cache_put(c, ONE, &h, answer_of(REASON_LIMIT_MEMORY, TYPE_A, 60, NULL), 0);
	assert_null(cache_get(c, &h, TYPE_A, 0, &ttl));
	assert_int_equal(cache_bytes(c), 0);
	cache_free(c);
}

static void
B041_types_of_a_name_are_apart(void **state)
{
	struct cache *c = cache_new(SOME_BYTES);
	struct host h = host_of(0);
	const struct answer *got;
	uint32_t ttl;

	(void)state;
	cache_put(c, ONE, &h, answer_of(REASON_NONE, TYPE_TXT, 60, "\1x"), 0);
	assert_null(cache_get(c, &h, TYPE_A, 0, &ttl));
	got = cache_get(c, &h, TYPE_TXT, 0, &ttl);
	assert_non_null(got);
	assert_int_equal(got->n_records, 1);
	assert_memory_equal(got->data, "\0\2\1x", 4);
	cache_free(c);
}

/* Bytes count, not names: five of the same size in room for four. */
static void
the_least_recently_used_makes_room(void **state)
{
	struct cache *c = cache_new(SOME_BYTES);
	const struct answer *a = answer_of(REASON_NONE, TYPE_A, 60, "1234");
	struct host h = host_of(0);
	size_t each;
	uint32_t ttl;

	(void)state;
	cache_put(c, ONE, &h, a, 0);
	each = cache_bytes(c);
	cache_free(c);
	c = cache_new(4 * each);
	for (unsigned i = 0; i < 5; i++) {
		h = host_of(i);
		cache_put(c, ONE, &h, a, 0);
		assert_true(cache_bytes(c) <= 4 * each);
		h = host_of(0);
		assert_non_null(cache_get(c, &h, TYPE_A, 1, &ttl));
	}
	assert_int_equal(cache_answers(c), 4);
	h = host_of(1);
	assert_null(cache_get(c, &h, TYPE_A, 1, &ttl));
	cache_free(c);
}

/* One cell's few names stay, however many another asks for; and one alone may
 * fill it all. */
static void
a_flood_of_one_cell_pushes_out_its_own(void **state)
{
	struct cache *c = cache_new(SOME_BYTES);
	const struct answer *a = answer_of(REASON_NONE, TYPE_A, 60, "1234");
	struct host h;
	uint32_t ttl;

	(void)state;
	for (unsigned i = 0; i < 50; i++) {
		h = host_of(i);
		cache_put(c, TWO, &h, a, 0);
	}
	for (unsigned i = 50; i < 5000; i++) {
		h = host_of(i);
		cache_put(c, ONE, &h, a, 0);
	}
	assert_true(cache_bytes(c) <= SOME_BYTES);
	assert_true(cache_bytes(c) > SOME_BYTES - 1024);
	for (unsigned i = 0; i < 50; i++) {
		h = host_of(i);
		assert_non_null(cache_get(c, &h, TYPE_A, 1, &ttl));
	}
	h = host_of(50);
	assert_null(cache_get(c, &h, TYPE_A, 1, &ttl));
	h = host_of(4999);
	assert_non_null(cache_get(c, &h, TYPE_A, 1, &ttl));
	cache_free(c);
}

static void
one_name_or_all_can_be_forgotten(void **state)
{
	struct cache *c = cache_new(SOME_BYTES);
	struct host h = host_of(1);
	uint32_t ttl;

	(void)state;
	for (unsigned i = 0; i < 9; i++) {
		struct host n = host_of(i / 3);

		cache_put(c, ONE, &n, answer_of(REASON_NONE,
		    (uint16_t)(1 + i % 3), 60, "1234"), 0);
	}
	assert_int_equal(cache_flush(c, &h), 3);
	assert_null(cache_get(c, &h, TYPE_A, 1, &ttl));
	h = host_of(0);
	assert_non_null(cache_get(c, &h, TYPE_A, 1, &ttl));
	assert_int_equal(cache_flush(c, NULL), 6);
	assert_int_equal(cache_bytes(c), 0);
	assert_int_equal(cache_answers(c), 0);
	cache_free(c);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(B041_each_kind_of_answer_has_its_longest_life),
		cmocka_unit_test(what_may_not_be_kept_is_not),
		cmocka_unit_test(B041_types_of_a_name_are_apart),
		cmocka_unit_test(the_least_recently_used_makes_room),
		cmocka_unit_test(a_flood_of_one_cell_pushes_out_its_own),
		cmocka_unit_test(one_name_or_all_can_be_forgotten),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
