/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/server.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static void
each_form_is_read_and_written(void **state)
{
	static const struct { const char *text, *whole; } forms[] = {
		{ "198.18.0.53", "198.18.0.53:53" },
		{ "198.18.0.53:5353", "198.18.0.53:5353" },
		{ "2001:db8::53", "[2001:db8::53]:53" },
		{ "[2001:db8::53]", "[2001:db8::53]:53" },
		{ "[2001:db8::53]:5353", "[2001:db8::53]:5353" },
		{ "tls://9.9.9.9#dns.example", "tls://9.9.9.9:853#dns.example" },
		{ "tls://9.9.9.9:8853#DNS.example.",
		    "tls://9.9.9.9:8853#dns.example" },
		{ "tls://[2001:db8::1]#a.example",
		    "tls://[2001:db8::1]:853#a.example" },
		{ "tls://2001:db8::1#a.example",
		    "tls://[2001:db8::1]:853#a.example" },
	};
	char text[SERVER_TEXT_BYTES];
	struct server s, again;

	(void)state;
	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
		assert_true(server_parse(&s, span_str(forms[i].text)));
		assert_string_equal(server_text(&s, text), forms[i].whole);
		assert_true(server_parse(&again, span_str(text)));
		assert_true(server_eq(&s, &again));
	}
}

static void
anything_else_is_refused(void **state)
{
	static const char *const bad[] = { "", "dns.example", "1.2.3", "[",
	    "[2001:db8::1", "[2001:db8::1]x", "1.2.3.4:0", "1.2.3.4:65536",
	    "1.2.3.4:", "tls://", "tls://1.2.3.4", "tls://1.2.3.4#",
	    "tls://#a.example", "tls://a.example#a.example",
	    "tls://1.2.3.4#1.2.3.4", "https://1.2.3.4/dns-query", "system" };
	struct server s;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_false(server_parse(&s, span_str(bad[i])));
}

static void
the_same_address_with_another_name_is_another(void **state)
{
	struct server a, b;

	(void)state;
	assert_true(server_parse(&a, span_str("tls://9.9.9.9#a.example")));
	assert_true(server_parse(&b, span_str("tls://9.9.9.9#b.example")));
	assert_false(server_eq(&a, &b));
	assert_true(server_parse(&b, span_str("9.9.9.9:853")));
	assert_false(server_eq(&a, &b));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_form_is_read_and_written),
		cmocka_unit_test(anything_else_is_refused),
		cmocka_unit_test(the_same_address_with_another_name_is_another),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
