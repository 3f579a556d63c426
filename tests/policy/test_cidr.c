/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>

#include "policy/cidr.h"

static uint8_t *image;
static size_t image_len;
static uint32_t got[16];
static size_t n_got, stop_after;

static int
down(void **state)
{
	(void)state;
	free(image);
	image = NULL;
	return 0;
}

static void
make(const char *const *prefixes, size_t n)
{
	struct cidr_builder *b = cidr_builder_new();
	struct prefix p;

	assert_non_null(b);
	for (size_t i = 0; i < n; i++) {
		assert_true(prefix_parse(&p, span_str(prefixes[i])));
		assert_int_equal(cidr_add(b, &p, (uint32_t)i), 0);
	}
	image_len = cidr_size(b);
	(void)down(NULL);
	image = malloc(image_len);
	assert_non_null(image);
	cidr_write(b, image);
	cidr_builder_free(b);
}

static bool
take(void *arg, uint32_t rule)
{
	(void)arg;
	assert_true(n_got < sizeof(got) / sizeof(got[0]));
	got[n_got++] = rule;
	return n_got != stop_after;
}

static void
look(const char *text)
{
	struct addr a;

	n_got = 0;
	assert_true(addr_parse(&a, span_str(text)));
	cidr_visit(span_of(image, image_len), &a, take, NULL);
}

static const char *const some[] = { "0.0.0.0/0", "10.0.0.0/8",
	"10.1.0.0/16", "10.1.2.3", "10.1.0.0/16", "::/0", "2001:db8::/32",
	"2001:db8::1", "192.0.2.0/31" };
#define SOME (sizeof(some) / sizeof(some[0]))

static void
every_prefix_that_holds_an_address_is_visited_longest_first(void **state)
{
	static const uint32_t ten[] = { 3, 2, 4, 1, 0, 5 };
	static const uint32_t doc[] = { 7, 6, 5 };

	(void)state;
	stop_after = 0;
	make(some, SOME);
	assert_true(cidr_check(span_of(image, image_len), SOME));
	look("10.1.2.3");
	assert_int_equal(n_got, 6);
	assert_memory_equal(got, ten, sizeof(ten));
	look("2001:db8::1");
	assert_int_equal(n_got, 3);
	assert_memory_equal(got, doc, sizeof(doc));
	look("192.0.2.1");
	assert_int_equal(got[0], 8);
	look("192.0.2.2");
	assert_int_equal(got[0], 0);
	look("10.2.0.0");
	assert_int_equal(got[0], 1);
	look("10.1.255.255");
	assert_int_equal(got[0], 2);
	look("2001:db9::");
	assert_int_equal(n_got, 1);
}

static void
a_visit_ends_when_it_is_told_to(void **state)
{
	(void)state;
	make(some, SOME);
	stop_after = 2;
	look("10.1.2.3");
	assert_int_equal(n_got, 2);
	stop_after = 0;
}

static void
an_empty_index_is_sound_and_holds_nothing(void **state)
{
	(void)state;
	make(NULL, 0);
	assert_true(cidr_check(span_of(image, image_len), 0));
	look("10.1.2.3");
	assert_int_equal(n_got, 0);
}

/* Whatever byte is changed: refused, or every visit stays in bounds and gives
 * rules that exist. */
static void
a_changed_image_is_refused_or_harmless(void **state)
{
	unsigned refused = 0;

	(void)state;
	stop_after = 0;
	make(some, SOME);
	for (size_t i = 0; i < image_len; i++)
		for (unsigned bit = 0; bit < 8; bit++) {
			image[i] ^= (uint8_t)(1u << bit);
			if (cidr_check(span_of(image, image_len), SOME)) {
				look("10.1.2.3");
				look("2001:db8::1");
				for (size_t k = 0; k < n_got; k++)
					assert_true(got[k] < SOME);
			} else {
				refused++;
			}
			image[i] ^= (uint8_t)(1u << bit);
		}
	assert_true(refused > 4000);
	assert_true(cidr_check(span_of(image, image_len), SOME));
}

static void
an_image_that_is_cut_or_names_other_rules_is_refused(void **state)
{
	(void)state;
	make(some, SOME);
	for (size_t n = 0; n + 8 <= image_len; n++)
		assert_false(cidr_check(span_of(image, n), SOME));
	assert_false(cidr_check(span_of(image, image_len), SOME - 1));
	assert_false(cidr_check(span_of(image + 4, image_len - 4), SOME));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
		    every_prefix_that_holds_an_address_is_visited_longest_first),
		cmocka_unit_test(a_visit_ends_when_it_is_told_to),
		cmocka_unit_test(an_empty_index_is_sound_and_holds_nothing),
		cmocka_unit_test(a_changed_image_is_refused_or_harmless),
		cmocka_unit_test(
		    an_image_that_is_cut_or_names_other_rules_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, down);
}
