/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "policy/addr.h"

static enum addr_class
class_of(const char *text)
{
	struct addr a, j;

	assert_true(addr_parse(&a, span_str(text)));
	j = addr_judged(&a, NULL, 0);
	return addr_class(&j);
}

static void
special_use_ranges_have_their_class(void **state)
{
	(void)state;
	assert_int_equal(class_of("8.8.8.8"), ADDR_PUBLIC);
	assert_int_equal(class_of("10.1.2.3"), ADDR_PRIVATE);
	assert_int_equal(class_of("172.31.255.255"), ADDR_PRIVATE);
	assert_int_equal(class_of("172.32.0.1"), ADDR_PUBLIC);
	assert_int_equal(class_of("100.127.0.1"), ADDR_PRIVATE);
	assert_int_equal(class_of("127.9.9.9"), ADDR_LOOPBACK);
	assert_int_equal(class_of("0.0.0.0"), ADDR_UNSPECIFIED);
	assert_int_equal(class_of("169.254.169.254"), ADDR_METADATA);
	assert_int_equal(class_of("169.254.1.1"), ADDR_LINK_LOCAL);
	assert_int_equal(class_of("198.19.255.255"), ADDR_BENCHMARK);
	assert_int_equal(class_of("203.0.113.9"), ADDR_DOCUMENTATION);
	assert_int_equal(class_of("224.0.0.1"), ADDR_MULTICAST);
	assert_int_equal(class_of("255.255.255.255"), ADDR_MULTICAST);
	assert_int_equal(class_of("250.0.0.1"), ADDR_RESERVED);
	assert_int_equal(class_of("::"), ADDR_UNSPECIFIED);
	assert_int_equal(class_of("::1"), ADDR_LOOPBACK);
	assert_int_equal(class_of("fe80::1"), ADDR_LINK_LOCAL);
	assert_int_equal(class_of("fd00::1"), ADDR_PRIVATE);
	assert_int_equal(class_of("fd00:ec2::254"), ADDR_METADATA);
	assert_int_equal(class_of("2606:4700::1"), ADDR_PUBLIC);
	assert_int_equal(class_of("2001:db8::1"), ADDR_DOCUMENTATION);
	assert_int_equal(class_of("3fff:1000::"), ADDR_PUBLIC);
	assert_int_equal(class_of("3fff::1"), ADDR_DOCUMENTATION);
	assert_int_equal(class_of("ff02::1"), ADDR_MULTICAST);
	assert_int_equal(class_of("4000::1"), ADDR_RESERVED);
}

static void
N20_B09_an_embedded_ipv4_address_is_judged_as_that_address(void **state)
{
	struct prefix p;
	struct addr a, j;

	(void)state;
	assert_int_equal(class_of("::ffff:127.0.0.1"), ADDR_LOOPBACK);
	assert_int_equal(class_of("::127.0.0.1"), ADDR_LOOPBACK);
	assert_int_equal(class_of("2002:7f00:1::"), ADDR_LOOPBACK);
	assert_int_equal(class_of("64:ff9b::7f00:1"), ADDR_LOOPBACK);
	assert_int_equal(class_of("64:ff9b::808:808"), ADDR_PUBLIC);
	assert_int_equal(class_of("64:ff9b:1:a9fe:a9:fe00::"), ADDR_METADATA);
	/* Teredo: server 10.0.0.1, client 8.8.8.8 (inverted) */
	assert_int_equal(class_of("2001:0:a00:1::f7f7:f7f7"), ADDR_PRIVATE);
	assert_int_equal(class_of("2001:0:808:808::80ff:fffe"),
	    ADDR_LOOPBACK);
	assert_int_equal(class_of("2606::5efe:7f00:1"), ADDR_LOOPBACK);
	assert_true(prefix_parse(&p, span_str("2001:db8:64::/96")));
	assert_true(addr_parse(&a, span_str("2001:db8:64::a00:1")));
	j = addr_judged(&a, &p, 1);
	assert_int_equal(addr_class(&j), ADDR_PRIVATE);
	assert_int_equal(class_of("2606::200:5efe:7f00:1"), ADDR_LOOPBACK);
	assert_int_equal(class_of("2606::100:5efe:7f00:1"), ADDR_PUBLIC);
}

/* RFC 6052 2.4, and a prefix that leaves no room for an address. */
static void
N20_B09_a_prefix_of_any_length_has_its_address(void **state)
{
	static const struct {
		const char *prefix, *addr, *judged;
	} t[] = {
		{ "2001:db8::/32", "2001:db8:c000:221::", "192.0.2.33" },
		{ "2001:db8:100::/40", "2001:db8:1c0:2:21::", "192.0.2.33" },
		{ "2001:db8:122::/48", "2001:db8:122:c000:2:2100::",
		    "192.0.2.33" },
		{ "2001:db8:122:300::/56", "2001:db8:122:3c0:0:221::",
		    "192.0.2.33" },
		{ "2001:db8:122:344::/64", "2001:db8:122:344:c0:2:2100::",
		    "192.0.2.33" },
		{ "2001:db8:122:344::/96", "2001:db8:122:344::c000:221",
		    "192.0.2.33" },
		{ "2001:db8:122:344::/104", "2001:db8:122:344::a:221",
		    "2001:db8:122:344::a:221" },
	};
	char text[ADDR_TEXT_BYTES];
	struct prefix p;
	struct addr a;

	(void)state;
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		assert_true(prefix_parse(&p, span_str(t[i].prefix)));
		assert_true(addr_parse(&a, span_str(t[i].addr)));
		a = addr_judged(&a, &p, 1);
		assert_string_equal(addr_text(&a, text), t[i].judged);
	}
}

static void
B017_only_canonical_literals_are_addresses(void **state)
{
	static const char *const no[] = { "", "010.0.0.1", "0x7f.0.0.1",
		"127.1", "2130706433", "1.2.3.4.5", "1.2.3", "[::1]",
		"fe80::1%eth0", "1.2.3.4 ", "::g", "1::2::3" };
	struct addr a;
	char text[ADDR_TEXT_BYTES];

	(void)state;
	for (size_t i = 0; i < sizeof(no) / sizeof(no[0]); i++)
		assert_false(addr_parse(&a, span_str(no[i])));
	assert_true(addr_parse(&a, span_str("::ffff:1.2.3.4")));
	assert_true(addr_is_v4(&a));
	assert_string_equal(addr_text(&a, text), "1.2.3.4");
}

static void
prefixes_are_strict_and_hold_what_they_say(void **state)
{
	struct prefix p;
	struct addr a;
	char text[ADDR_TEXT_BYTES];

	(void)state;
	assert_false(prefix_parse(&p, span_str("10.0.0.1/8")));
	assert_false(prefix_parse(&p, span_str("10.0.0.0/33")));
	assert_false(prefix_parse(&p, span_str("10.0.0.0/08")));
	assert_false(prefix_parse(&p, span_str("10.0.0.0/")));
	assert_true(prefix_parse(&p, span_str("10.20.0.0/15")));
	assert_string_equal(prefix_text(&p, text), "10.20.0.0/15");
	assert_true(addr_parse(&a, span_str("10.21.255.255")));
	assert_true(prefix_has(&p, &a));
	assert_true(addr_parse(&a, span_str("10.22.0.0")));
	assert_false(prefix_has(&p, &a));
	assert_true(prefix_parse(&p, span_str("0.0.0.0/0")));
	assert_true(prefix_has(&p, &a));
	assert_true(addr_parse(&a, span_str("2001::1")));
	assert_false(prefix_has(&p, &a));
}

static void
a_socket_address_round_trips(void **state)
{
	static const char *const t[] = { "1.2.3.4", "2001:db8::5" };
	struct sockaddr_storage ss;
	struct endpoint e = { .port = 443 }, back;
	char text[ADDR_TEXT_BYTES];

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		assert_true(addr_parse(&e.addr, span_str(t[i])));
		assert_true(endpoint_to_sockaddr(&e, &ss) > 0);
		assert_true(endpoint_from_sockaddr(&back, &ss));
		assert_true(endpoint_eq(&e, &back));
	}
	assert_string_equal(endpoint_text(&e, text), "[2001:db8::5]:443");
	assert_true(addr_parse(&e.addr, span_str("255.0.10.100")));
	e.port = 65535;
	assert_string_equal(endpoint_text(&e, text), "255.0.10.100:65535");
	e.port = 0;
	assert_string_equal(endpoint_text(&e, text), "255.0.10.100:0");
	ss.ss_family = AF_UNIX;
	assert_false(endpoint_from_sockaddr(&back, &ss));
}

static void
a_port_is_1_to_65535_and_has_one_form(void **state)
{
	static const char *const no[] = { "", "0", "00", "080", "65536",
	    "70000", "100000", "4294967376", "-1", "+80", " 80", "80 ", "8a",
	    "80/tcp" };
	uint16_t port;

	(void)state;
	for (size_t i = 0; i < sizeof(no) / sizeof(no[0]); i++)
		assert_false(addr_port(span_str(no[i]), &port));
	assert_true(addr_port(span_str("1"), &port));
	assert_int_equal(port, 1);
	assert_true(addr_port(span_str("443"), &port));
	assert_int_equal(port, 443);
	assert_true(addr_port(span_str("65535"), &port));
	assert_int_equal(port, 65535);
}

static enum addr_class
class_of_prefix(const char *text, bool can_open)
{
	struct prefix p;

	assert_true(prefix_parse(&p, span_str(text)));
	assert_int_equal(prefix_can_open(&p), can_open);
	return prefix_class(&p);
}

static void
a_prefix_is_of_the_class_that_holds_all_of_it(void **state)
{
	(void)state;
	assert_int_equal(class_of_prefix("10.0.0.0/8", true), ADDR_PRIVATE);
	assert_int_equal(class_of_prefix("10.0.0.0/7", true), ADDR_PUBLIC);
	assert_int_equal(class_of_prefix("10.1.2.3", true), ADDR_PRIVATE);
	assert_int_equal(class_of_prefix("192.0.0.0/8", true), ADDR_PUBLIC);
	assert_int_equal(class_of_prefix("0.0.0.0/0", true), ADDR_PUBLIC);
	assert_int_equal(class_of_prefix("192.0.0.0/24", true),
	    ADDR_RESERVED);
	assert_int_equal(class_of_prefix("192.0.0.0/29", false),
	    ADDR_RESERVED);
	assert_int_equal(class_of_prefix("169.254.169.254", true),
	    ADDR_METADATA);
	assert_int_equal(class_of_prefix("169.254.169.252/30", true),
	    ADDR_LINK_LOCAL);
	assert_int_equal(class_of_prefix("127.0.0.0/8", false),
	    ADDR_LOOPBACK);
	assert_int_equal(class_of_prefix("::/0", true), ADDR_RESERVED);
	assert_int_equal(class_of_prefix("fd00::/8", true), ADDR_PRIVATE);
	assert_int_equal(class_of_prefix("fc00::/6", true), ADDR_RESERVED);
	assert_int_equal(class_of_prefix("4000::/3", false), ADDR_RESERVED);
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(special_use_ranges_have_their_class),
		cmocka_unit_test(
		    N20_B09_an_embedded_ipv4_address_is_judged_as_that_address),
		cmocka_unit_test(N20_B09_a_prefix_of_any_length_has_its_address),
		cmocka_unit_test(B017_only_canonical_literals_are_addresses),
		cmocka_unit_test(prefixes_are_strict_and_hold_what_they_say),
		cmocka_unit_test(
		    a_prefix_is_of_the_class_that_holds_all_of_it),
		cmocka_unit_test(a_socket_address_round_trips),
		cmocka_unit_test(a_port_is_1_to_65535_and_has_one_form),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
