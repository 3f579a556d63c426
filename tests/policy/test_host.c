/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "policy/host.h"

static enum reason
parse(const char *text, const char *want)
{
	struct host h;
	enum reason why = host_parse(&h, span_str(text));

	assert_string_equal(h.name, want);
	assert_int_equal(h.len, strlen(want));
	return why;
}

static void
B007_B01_spelling_does_not_make_another_name(void **state)
{
	(void)state;
	assert_int_equal(parse("API.Allowed.Test", "api.allowed.test"), 0);
	assert_int_equal(parse("api.allowed.test.", "api.allowed.test"), 0);
	assert_int_equal(parse("_sip._tcp.a-b", "_sip._tcp.a-b"), 0);
	assert_int_equal(parse("localhost", "localhost"), 0);
}

static void
B007_what_is_no_name_is_refused(void **state)
{
	static const char *const no[] = { "", ".", "a..b", ".a", "a.test..",
		"a b", "a.test:443", "a\tb", "b\xc3\xbc" "cher.de", "*.a",
		"a/b", "a%2eb", "a@b" };
	char label[80], longest[300];

	(void)state;
	for (size_t i = 0; i < sizeof(no) / sizeof(no[0]); i++)
		assert_int_equal(parse(no[i], ""), REASON_NAME_MALFORMED);
	memset(label, 'a', 64);
	memcpy(label + 64, ".de", 4);
	assert_int_equal(parse(label, ""), REASON_NAME_MALFORMED);
	assert_int_equal(parse(label + 1, label + 1), 0);
	for (size_t i = 0; i < 256; i++)
		longest[i] = i % 2 ? '.' : 'a';
	longest[253] = '\0';
	assert_int_equal(parse(longest, longest), 0);
	longest[253] = '.';
	longest[254] = 'a';
	longest[255] = '\0';
	assert_int_equal(parse(longest, ""), REASON_NAME_MALFORMED);
}

static void
B017_names_that_some_parser_reads_as_addresses_are_literals(void **state)
{
	static const char *const no[] = { "1.2.3.4", "168361989", "10.9.5",
		"0x0a090005", "a.0x1", "1.2.3.4.", "example.1", "[::1]",
		"2001:db8::5", "::1" };

	(void)state;
	for (size_t i = 0; i < sizeof(no) / sizeof(no[0]); i++)
		assert_int_equal(parse(no[i], ""), REASON_ADDRESS_LITERAL);
	assert_int_equal(parse("1.2.3.4.nip.io", "1.2.3.4.nip.io"), 0);
}

/* In copies of their exact size, so that a read or write behind is seen. */
static void
B26_a_bracketed_literal_of_any_length_is_no_name(void **state)
{
	static const char unit[] = "fe80:1:";
	struct host h;

	(void)state;
	for (size_t n = 0; n < 1200; n += n < 300 ? 1 : 97) {
		char *text = test_malloc(n + 2);

		text[0] = '[';
		for (size_t i = 0; i < n; i++)
			text[i + 1] = unit[i % 7];
		text[n + 1] = ']';
		assert_int_not_equal(host_parse(&h, span_of(text, n + 2)),
		    REASON_NONE);
		assert_int_equal(h.len, 0);
		if (n > 4)	/* "fe80" is a name */
			assert_int_not_equal(host_parse(&h,
			    span_of(text + 1, n)), REASON_NONE);
		test_free(text);
	}
}

static void
B02_brackets_belong_to_addresses(void **state)
{
	static const char *const no[] = { "[allowed.test]", "[allowed.test",
		"allowed.test]", "allowed[.]test", "[[::1]]", "[::1].test",
		"[10.0.0.1]", "[::1", "::1]", "evil.test[allowed.test]" };
	struct host h;

	(void)state;
	for (size_t i = 0; i < sizeof(no) / sizeof(no[0]); i++) {
		assert_int_not_equal(host_parse(&h, span_str(no[i])),
		    REASON_NONE);
		assert_int_equal(h.len, 0);
		assert_int_not_equal(host_parse_policy(&h, span_str(no[i])),
		    REASON_NONE);
	}
}

static void
a_nul_does_not_end_a_name(void **state)
{
	struct host h;

	(void)state;
	assert_int_equal(host_parse(&h, span_of("good.test\0evil.test", 19)),
	    REASON_NAME_MALFORMED);
	assert_int_equal(h.len, 0);
}

static void
an_operator_may_write_a_u_label(void **state)
{
	struct host h;

	(void)state;
	assert_int_equal(host_parse_policy(&h,
	    span_str("B\xc3\xbc" "cher.example")), REASON_NONE);
	assert_string_equal(h.name, "xn--bcher-kva.example");
	/* N43: another dot, a soft hyphen */
	assert_int_equal(host_parse_policy(&h,
	    span_str("a\xe3\x80\x82" "b.test")), REASON_NAME_MALFORMED);
	assert_int_equal(host_parse_policy(&h,
	    span_str("a\xc2\xad" "b.test")), REASON_NAME_MALFORMED);
	assert_int_equal(host_parse_policy(&h, span_str("a\xff.test")),
	    REASON_NAME_MALFORMED);
}

static void
B076_under_means_at_a_label_boundary(void **state)
{
	struct host a, b, c, d;
	struct span s;

	(void)state;
	assert_int_equal(host_parse(&a, span_str("trusted.net")), 0);
	assert_int_equal(host_parse(&b, span_str("nottrusted.net")), 0);
	assert_int_equal(host_parse(&c, span_str("x.trusted.net")), 0);
	assert_int_equal(host_parse(&d, span_str("trusted.net.evil")), 0);
	assert_false(host_under(&b, &a));
	assert_true(host_under(&c, &a));
	assert_false(host_under(&a, &a));
	assert_false(host_under(&d, &a));
	assert_int_equal(host_labels(&c), 3);
	s = host_suffix(&c, 1);
	assert_true(span_eq(s, span_str("trusted.net")));
	assert_int_equal(host_suffix(&c, 3).len, 0);
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(
		    B007_B01_spelling_does_not_make_another_name),
		cmocka_unit_test(B007_what_is_no_name_is_refused),
		cmocka_unit_test(
		    B017_names_that_some_parser_reads_as_addresses_are_literals),
		cmocka_unit_test(
		    B26_a_bracketed_literal_of_any_length_is_no_name),
		cmocka_unit_test(B02_brackets_belong_to_addresses),
		cmocka_unit_test(a_nul_does_not_end_a_name),
		cmocka_unit_test(an_operator_may_write_a_u_label),
		cmocka_unit_test(B076_under_means_at_a_label_boundary),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
