/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "policy/names.h"

static struct host
host(const char *text)
{
	struct host h;

	assert_int_equal(host_parse(&h, span_str(text)), REASON_NONE);
	return h;
}

static struct span
build(struct names_builder *b)
{
	size_t n = names_size(b);
	uint8_t *image = aligned_alloc(8, n);

	assert_non_null(image);
	names_write(b, image);
	names_builder_free(b);
	return span_of(image, n);
}

static bool
collect(void *arg, uint32_t rule, enum names_kind kind)
{
	(void)kind;
	*(uint32_t *)arg |= 1u << rule;
	return true;
}

static uint32_t
rules_of(struct span image, const char *name)
{
	struct host h = host(name);
	uint32_t set = 0;

	names_visit(image, &h, collect, &set);
	return set;
}

static void
add(struct names_builder *b, const char *name, unsigned kinds, uint32_t rule)
{
	struct host h = host(name);

	assert_int_equal(names_add(b, &h, kinds, rule), 0);
}

static void
B077_each_pattern_matches_what_it_says(void **state)
{
	struct names_builder *b = names_builder_new();
	struct span image;
	struct host h;

	(void)state;
	add(b, "allowed.test", NAMES_EXACT, 0);
	add(b, "wild.test", NAMES_BELOW, 1);
	add(b, "both.test", NAMES_EXACT | NAMES_BELOW, 2);
	add(b, "a.wild.test", NAMES_EXACT, 3);
	image = build(b);
	assert_true(names_check(image, 4));
	assert_int_equal(rules_of(image, "allowed.test"), 1);
	assert_int_equal(rules_of(image, "x.allowed.test"), 0);
	assert_int_equal(rules_of(image, "notallowed.test"), 0);
	assert_int_equal(rules_of(image, "wild.test"), 0);
	assert_int_equal(rules_of(image, "b.wild.test"), 2);
	assert_int_equal(rules_of(image, "a.wild.test"), 2 | 8);
	assert_int_equal(rules_of(image, "x.y.z.wild.test"), 2);
	assert_int_equal(rules_of(image, "both.test"), 4);
	assert_int_equal(rules_of(image, "q.both.test"), 4);
	h = host("test");
	assert_true(names_has_under(image, &h));
	h = host("wild.test");
	assert_true(names_has_under(image, &h));
	h = host("allowed.test");
	assert_false(names_has_under(image, &h));
	h = host("other");
	assert_false(names_has_under(image, &h));
	free((void *)(uintptr_t)image.data);
}

static void
an_empty_index_matches_nothing(void **state)
{
	struct span image = build(names_builder_new());

	(void)state;
	assert_true(names_check(image, 0));
	assert_int_equal(rules_of(image, "a.test"), 0);
	free((void *)(uintptr_t)image.data);
}

static void
two_hundred_thousand_names_cost_little(void **state)
{
	struct names_builder *b = names_builder_new();
	struct span image;
	char name[64];

	(void)state;
	for (unsigned i = 0; i < 200000; i++) {
		snprintf(name, sizeof(name), "n%u.example.test", i);
		add(b, name, NAMES_EXACT, 0);
	}
	image = build(b);
	assert_true(image.len < 200000 * 40);
	assert_true(names_check(image, 1));
	assert_int_equal(rules_of(image, "n199999.example.test"), 1);
	assert_int_equal(rules_of(image, "n200000.example.test"), 0);
	free((void *)(uintptr_t)image.data);
}

/* Most names have one rule; those of several keep them all, in order. */
static void
a_name_of_several_rules_leads_to_each(void **state)
{
	struct names_builder *b = names_builder_new();
	struct span image;

	(void)state;
	for (uint32_t i = 0; i < 5; i++) {
		add(b, "many.test", NAMES_EXACT, i);
		if (i < 2)
			add(b, "two.test", NAMES_BELOW, i);
	}
	add(b, "test", NAMES_EXACT, 5);
	add(b, "many.test", NAMES_BELOW, 6);
	image = build(b);
	assert_true(names_check(image, 7));
	assert_false(names_check(image, 6));
	assert_int_equal(rules_of(image, "many.test"), 31);
	assert_int_equal(rules_of(image, "a.many.test"), 64);
	assert_int_equal(rules_of(image, "a.two.test"), 3);
	assert_int_equal(rules_of(image, "test"), 32);
	assert_true(names_holds(image, span_str("many.test"), NAMES_EXACT,
	    4));
	assert_false(names_holds(image, span_str("many.test"), NAMES_EXACT,
	    6));
	free((void *)(uintptr_t)image.data);
}

static void
a_damaged_index_is_refused_or_harmless(void **state)
{
	struct names_builder *b = names_builder_new();
	struct span image;
	uint8_t *copy;

	(void)state;
	add(b, "a.b.test", NAMES_EXACT, 0);
	add(b, "c.test", NAMES_BELOW, 1);
	add(b, "c.test", NAMES_EXACT, 0);
	image = build(b);
	copy = aligned_alloc(8, image.len);
	assert_non_null(copy);
	for (size_t i = 0; i < image.len; i++)
		for (unsigned bit = 0; bit < 8; bit++) {
			memcpy(copy, image.data, image.len);
			copy[i] ^= (uint8_t)(1u << bit);
			if (names_check(span_of(copy, image.len), 2))
				rules_of(span_of(copy, image.len),
				    i % 2 == 0 ? "c.test" : "a.b.test");
		}
	for (size_t n = 0; n < image.len; n += 8) {
		uint8_t *cut = aligned_alloc(8, n > 0 ? n : 8);

		assert_non_null(cut);
		memcpy(cut, image.data, n);
		assert_false(names_check(span_of(cut, n), 2));
		free(cut);
	}
	free(copy);
	free((void *)(uintptr_t)image.data);
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(B077_each_pattern_matches_what_it_says),
		cmocka_unit_test(an_empty_index_matches_nothing),
		cmocka_unit_test(two_hundred_thousand_names_cost_little),
		cmocka_unit_test(a_name_of_several_rules_leads_to_each),
		cmocka_unit_test(a_damaged_index_is_refused_or_harmless),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
