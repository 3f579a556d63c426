/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>

#include "policy/span.h"

static void
case_is_ignored_for_ascii_only(void **state)
{
	(void)state;
	assert_true(span_caseeq(span_str("aZ-09@["), span_str("Az-09@[")));
	assert_false(span_caseeq(span_str("@"), span_str("`")));
	assert_false(span_caseeq(span_str("["), span_str("{")));
	assert_false(span_caseeq(span_str("\xc4"), span_str("\xe4")));
	assert_false(span_caseeq(span_str("a"), span_str("ab")));
	assert_true(span_caseeq(span_of(NULL, 0), span_str("")));
	assert_true(span_eq(span_of(NULL, 0), span_str("")));
	assert_false(span_eq(span_str("A"), span_str("a")));
	assert_true(span_eq(span_of("a\0b", 3), span_of("a\0b", 3)));
	assert_false(span_eq(span_of("a\0b", 3), span_of("a\0c", 3)));
}

static void
a_prefix_is_never_longer_than_the_span(void **state)
{
	(void)state;
	assert_true(span_starts(span_str("HTTP://x"), "http://"));
	assert_true(span_starts(span_str("x"), ""));
	assert_true(span_starts(span_of(NULL, 0), ""));
	assert_false(span_starts(span_str("http:/"), "http://"));
	assert_false(span_starts(span_of("http://", 6), "http://"));
}

static void
integers_are_big_endian_and_never_read_past_the_end(void **state)
{
	static const uint8_t b[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 0xff };
	struct span s = span_of(b, sizeof(b));
	uint8_t v8 = 0;
	uint16_t v16 = 0;
	uint32_t v32 = 0;

	(void)state;
	assert_true(span_u8(&s, &v8));
	assert_int_equal(v8, 1);
	assert_true(span_u16(&s, &v16));
	assert_int_equal(v16, 0x0203);
	assert_true(span_u24(&s, &v32));
	assert_int_equal(v32, 0x040506);
	assert_int_equal(s.len, 4);
	assert_true(span_u32(&s, &v32));
	assert_int_equal(v32, 0x070809ff);
	assert_int_equal(s.len, 0);
	assert_false(span_u8(&s, &v8));
	for (size_t n = 0; n < 4; n++) {
		s = span_of(b, n);
		assert_false(span_u32(&s, &v32));
		assert_true(n >= 3 || !span_u24(&s, &v32));
		assert_true(n >= 2 || !span_u16(&s, &v16));
		assert_int_equal(s.len, n);
		assert_ptr_equal(s.data, b);
	}
}

static void
a_vector_comes_whole_or_nothing_is_moved(void **state)
{
	static const uint8_t v8[] = { 2, 'a', 'b', 'c' };
	static const uint8_t v16[] = { 0, 2, 'a', 'b', 'c' };
	static const uint8_t v24[] = { 0, 0, 2, 'a', 'b', 'c' };
	struct span s, out;

	(void)state;
	for (size_t n = 0; n <= sizeof(v24); n++) {
		s = span_of(v8, n < sizeof(v8) ? n : sizeof(v8));
		assert_true(span_vec8(&s, &out) == (n >= 3));
		assert_ptr_equal(s.data, n >= 3 ? v8 + 3 : v8);
		assert_true(n < 3 || span_eq(out, span_str("ab")));
		s = span_of(v16, n < sizeof(v16) ? n : sizeof(v16));
		assert_true(span_vec16(&s, &out) == (n >= 4));
		assert_ptr_equal(s.data, n >= 4 ? v16 + 4 : v16);
		s = span_of(v24, n);
		assert_true(span_vec24(&s, &out) == (n >= 5));
		assert_ptr_equal(s.data, n >= 5 ? v24 + 5 : v24);
		assert_true(n < 5 || span_eq(out, span_str("ab")));
	}
	s = span_of("\0", 1);
	assert_true(span_vec8(&s, &out));
	assert_int_equal(out.len, 0);
}

static void
what_is_printed_is_printable_whatever_it_was(void **state)
{
	uint8_t all[256];
	char out[1100];

	(void)state;
	for (unsigned i = 0; i < 256; i++)
		all[i] = (uint8_t)i;
	span_print(span_of(all, 256), out, sizeof(out));
	for (const char *p = out; *p != '\0'; p++)
		assert_true(*p >= 0x20 && *p < 0x7f && *p != '"');
	assert_string_equal(span_print(span_of("a\"\\\n\0\xff", 6), out,
	    sizeof(out)), "a\\x22\\x5c\\x0a\\x00\\xff");
	assert_string_equal(span_print(span_of(NULL, 0), out, sizeof(out)),
	    "");
}

static void
what_does_not_fit_is_cut_and_says_so(void **state)
{
	struct span s = span_of("ab\ncd\xff", 6);
	char out[32];

	(void)state;
	for (size_t n = 1; n < sizeof(out); n++) {
		memset(out, '!', sizeof(out));
		assert_ptr_equal(span_print(s, out, n), out);
		assert_non_null(memchr(out, '\0', n));
		if (n < sizeof(out))
			assert_int_equal(out[n], '!');
		if (n >= 14)
			assert_string_equal(out, "ab\\x0acd\\xff");
		else if (n > 1 && n < 13)
			assert_int_equal(out[strlen(out) - 1], '~');
	}
	out[0] = '!';
	span_print(s, out, 0);
	assert_int_equal(out[0], '!');
}

static void
decimals_are_what_printf_writes(void **state)
{
	static const uint64_t v[] = { 0, 1, 9, 10, 99, 100, 65535, 4294967295u,
	    UINT64_MAX - 1, UINT64_MAX };
	char want[32], got[DECIMAL_TEXT_BYTES];

	(void)state;
	for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++) {
		(void)snprintf(want, sizeof(want), "%llu",
		    (unsigned long long)v[i]);
		*decimal_text(v[i], got) = '\0';
		assert_string_equal(got, want);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(case_is_ignored_for_ascii_only),
		cmocka_unit_test(a_prefix_is_never_longer_than_the_span),
		cmocka_unit_test(
		    integers_are_big_endian_and_never_read_past_the_end),
		cmocka_unit_test(a_vector_comes_whole_or_nothing_is_moved),
		cmocka_unit_test(what_is_printed_is_printable_whatever_it_was),
		cmocka_unit_test(what_does_not_fit_is_cut_and_says_so),
		cmocka_unit_test(decimals_are_what_printf_writes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
