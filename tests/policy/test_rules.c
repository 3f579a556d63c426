/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/policy/one.h"

static void
an_allow_opens_80_and_443_and_a_deny_closes_every_port(void **state)
{
	struct one o;
	const struct rules *r;

	(void)state;
	one_rules(&o,
	    "    - {verdict: deny, hostname: b.example}\n"
	    "    - {verdict: allow, hostname: a.example}\n");
	r = charter_rules(o.charter);
	assert_true(rules_covers_port(&r->rule[0], 1));
	assert_true(rules_covers_port(&r->rule[0], 65535));
	assert_true(rules_covers_port(&r->rule[1], 80));
	assert_true(rules_covers_port(&r->rule[1], 443));
	assert_false(rules_covers_port(&r->rule[1], 22));
	assert_false(rules_covers_port(&r->rule[1], 81));
	one_done(&o);
}

static void
ports_are_a_list_ranges_or_any(void **state)
{
	struct one o;
	const struct rules *r;

	(void)state;
	one_rules(&o,
	    "    - {verdict: allow, hostname: a.example, ports: [22, "
	    "8000-8002, 8003, 8002-8005]}\n"
	    "    - {verdict: allow, hostname: b.example, ports: any}\n");
	r = charter_rules(o.charter);
	assert_int_equal(r->rule[0].n_ports, 2);
	assert_int_equal(r->rule[0].ports[1].lo, 8000);
	assert_int_equal(r->rule[0].ports[1].hi, 8005);
	assert_true(rules_covers_port(&r->rule[1], 1));
	assert_true(rules_covers_port(&r->rule[1], 65535));
	one_done(&o);
}

static void
N43_what_is_no_port_is_an_error_with_its_place(void **state)
{
	static const char *const bad[] = { "[22:22]", "[0x1bb]", "[0443]",
	    "[1e3]", "[0]", "[65536]", "[5-4]", "[-1]", "[1-]", "[]",
	    "[443.0]", "all", "{a: 1}", "[[443]]", "\"\"" };
	char text[256];
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		(void)snprintf(text, sizeof(text), "    - {verdict: allow, "
		    "hostname: a.example, ports: %s}\n", bad[i]);
		one_rule_refused(text, "p.yaml:5:");
	}
}

static void
id_of(const char *rules, size_t n, char out[RULES_ID_BYTES])
{
	struct one o;

	one_rules(&o, rules);
	memcpy(out, charter_rules(o.charter)->rule[n].id, RULES_ID_BYTES);
	one_done(&o);
}

static void
a_default_id_follows_what_the_rule_says_and_nothing_else(void **state)
{
	char a[RULES_ID_BYTES], b[RULES_ID_BYTES];

	(void)state;
	id_of("    - {verdict: allow, hostname: a.example}\n", 0, a);
	assert_int_equal(strlen(a), 8);
	assert_int_equal(strspn(a, "0123456789abcdef"), 8);
	id_of("    - {verdict: allow, hostname: z.example}\n"
	    "    - {verdict: allow, hostname: A.Example., ports: [443, 80], "
	    "reason: x, owner: sec}\n", 1, b);
	assert_string_equal(a, b);
	id_of("    - {verdict: allow, hostname: a.example, ports: [443]}\n",
	    0, b);
	assert_string_not_equal(a, b);
	id_of("    - {verdict: allow, hostname: .a.example}\n", 0, b);
	assert_string_not_equal(a, b);
	id_of("    - {verdict: allow, hostname: c.example}\n"
	    "    - {verdict: deny, hostname: a.example}\n", 1, b);
	assert_string_not_equal(a, b);
}

static void
B10_B077_only_three_forms_of_names_are_patterns(void **state)
{
	static const char *const bad[] = { "*", "**.a.example", "a*.example",
	    "*a.example", "a.*.example", "*.", ".", "..a.example", "",
	    "a..example", "10.0.0.1", "*.10.0.0.1", "[::1]", "::1",
	    "a.example:443", "https://a.example", "a.example/x", "a b.example",
	    "a.example,b.example", "0x7f.1", "*.*.example" };
	char text[256];
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		(void)snprintf(text, sizeof(text),
		    "    - {verdict: allow, hostname: \"%s\"}\n", bad[i]);
		one_rule_refused(text, "not a host name pattern");
	}
}

static void
a_wildcard_over_a_public_suffix_needs_force(void **state)
{
	static const char *const suffix[] = { "*.com", ".co.uk", "*.test",
	    "*.COM." };
	char text[256];
	struct one o;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(suffix) / sizeof(suffix[0]); i++) {
		(void)snprintf(text, sizeof(text),
		    "    - {verdict: allow, hostname: \"%s\"}\n", suffix[i]);
		one_rule_refused(text, "public suffix");
		(void)snprintf(text, sizeof(text), "    - {verdict: allow, "
		    "hostname: \"%s\", force: true}\n", suffix[i]);
		one_rules(&o, text);
		one_done(&o);
	}
	/* Refusing more than one means is harmless. */
	one_rules(&o, "    - {verdict: deny, hostname: \"*.com\"}\n"
	    "    - {verdict: allow, hostname: a.example}\n");
	one_done(&o);
}

/* As the manual has it: what a registry gives out is refused, what a company
 * gives out is a warning, and what the list does not name is neither. */
static void
a_wildcard_over_a_private_suffix_is_a_warning(void **state)
{
	static const struct { const char *name, *extra; bool loads, warned; }
	t[] = {
		{ "*.githubusercontent.com", "", true, true },
		{ ".githubusercontent.com", "", true, true },
		{ "*.github.io", "", true, true },
		/* "*.compute.amazonaws.com" in the list is of the name above */
		{ "*.compute.amazonaws.com", "", true, true },
		{ "*.github.io", ", force: true", true, false },
		{ "a.github.io", "", true, false },
		{ "*.a.github.io", "", true, false },
		{ "*.github.com", "", true, false },
		/* "*.kawasaki.jp" and "!city.kawasaki.jp" */
		{ "*.kawasaki.jp", "", false, false },
		{ "*.x.kawasaki.jp", "", false, false },
		{ "*.city.kawasaki.jp", "", true, false },
		{ "*.kawasaki.jp", ", force: true", true, false },
		{ "*.nosuchtop", "", false, false },
	};
	char text[256];
	struct one o;

	(void)state;
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		snprintf(text, sizeof(text), ONE_HEAD "    - {verdict: allow, "
		    "hostname: \"%s\"%s}\n", t[i].name, t[i].extra);
		if (one_make(&o, text, NULL, NULL, 0) != t[i].loads ||
		    (strstr(o.said, "warning: anybody may get a name under ")
		    != NULL) != t[i].warned || (strstr(o.said, "error: a "
		    "wildcard over the public suffix ") != NULL) == t[i].loads)
			fail_msg("of %s%s: %s", t[i].name, t[i].extra, o.said);
		one_done(&o);
	}
	one_rules(&o, "    - {verdict: deny, hostname: \"*.github.io\"}\n"
	    "    - {verdict: allow, hostname: a.example}\n");
	assert_null(strstr(o.said, "warning"));
	one_done(&o);
}

static void
a_file_of_names_is_read_line_by_line(void **state)
{
	const struct one_file f = { "n.txt",
	    "\xef\xbb\xbf# first\r\n\r\n a.example  # one\r\n"
	    "*.b.example\n.c.example", 0 };
	struct one o;

	(void)state;
	assert_true(one_make(&o, ONE_HEAD
	    "    - {verdict: allow, hostnames_file: n.txt}\n", &f, NULL, 0));
	assert_int_equal(charter_rules(o.charter)->rule[0].n_patterns, 3);
	one_done(&o);
}

/* However the bytes of the file arrive. */
static void
a_file_of_names_may_come_in_pieces(void **state)
{
	struct one_file f = { .name = "n.txt", .text =
	    "\xef\xbb\xbf# first\r\n\r\n a.example  # one\r\n"
	    "*.b.example\n.c.example" };
	struct host name;
	unsigned kinds;
	struct one o;
	size_t at;

	(void)state;
	for (f.step = 1; f.step < strlen(f.text); f.step++) {
		assert_true(one_make(&o, ONE_HEAD "    - {verdict: allow, "
		    "hostnames_file: n.txt}\n", &f, NULL, 0));
		at = 0;
		for (size_t i = 0; i < 3; i++) {
			static const char *const want[] = { "a.example",
			    "b.example", "c.example" };

			assert_true(rules_pattern(
			    charter_rules(o.charter)->rule, &at, &name,
			    &kinds));
			assert_string_equal(name.name, want[i]);
			assert_int_equal(kinds, 1 + i);
		}
		assert_false(rules_pattern(charter_rules(o.charter)->rule,
		    &at, &name, &kinds));
		one_done(&o);
	}
}

/* A name behind more than a line holds is not passed over. */
static void
a_line_of_a_file_has_an_end(void **state)
{
	char text[4000];
	const struct one_file f = { "n.txt", text, 100 };
	struct one o;

	(void)state;
	memset(text, ' ', sizeof(text));
	memcpy(text, "a.example #", 11);
	snprintf(text + 2000, 100, "\nb.example\n");
	assert_true(one_make(&o, ONE_HEAD
	    "    - {verdict: allow, hostnames_file: n.txt}\n", &f, NULL, 0));
	assert_int_equal(charter_rules(o.charter)->rule[0].n_patterns, 2);
	one_done(&o);
	text[10] = ' ';
	assert_false(one_make(&o, ONE_HEAD
	    "    - {verdict: allow, hostnames_file: n.txt}\n", &f, NULL, 0));
	assert_non_null(strstr(o.said, "n.txt:1: the line is longer than "
	    "1024 bytes; write one name a line"));
	one_done(&o);
}

static void
B11_a_bad_line_of_a_file_is_named_with_its_number(void **state)
{
	const struct one_file f = { "n.txt", "a.example\nb c\n*\n9.9.9.9\n"
	    "2606:4700::1\n", 0 };
	struct one o;

	(void)state;
	assert_false(one_make(&o, ONE_HEAD
	    "    - {verdict: allow, hostnames_file: n.txt}\n", &f, NULL, 0));
	assert_non_null(strstr(o.said, "n.txt:2: "));
	assert_non_null(strstr(o.said, "n.txt:3: "));
	assert_non_null(strstr(o.said, "n.txt:4: "));
	assert_non_null(strstr(o.said, "n.txt:5: "));
	one_done(&o);
}

static void
an_empty_or_missing_file_of_names_fails_the_load(void **state)
{
	const struct one_file f = { "n.txt", "# nothing\n", 0 };
	struct one o;

	(void)state;
	assert_false(one_make(&o, ONE_HEAD
	    "    - {verdict: allow, hostnames_file: n.txt}\n", &f, NULL, 0));
	assert_non_null(strstr(o.said, "holds no usable name"));
	one_done(&o);
	one_rule_refused("    - {verdict: allow, hostnames_file: x.txt}\n",
	    "No such file");
}

static void
B75_options_without_effect_are_errors(void **state)
{
	static const char *const bad[] = {
	    "{verdict: deny, hostname: a.example, allow_private: true}",
	    "{verdict: deny, hostname: a.example, protocol: tcp}",
	    "{verdict: allow, hostname: a.example, report: true}",
	    "{verdict: allow, cidr: 10.0.0.0/8, allow_private: true}",
	    "{verdict: allow, hostname: a.example, protocol: udp}",
	    "{verdict: allow, hostname: a.example, bogus: 1}",
	    "{verdict: allow, hostname: a.example, force: yes}",
	    "{verdict: allow}", "{hostname: a.example}", "a.example",
	    "{verdict: ALLOW, hostname: a.example}",
	    "{verdict: \"\", hostname: a.example}",
	    "{verdict: allow, hostname: [a.example]}",
	    "{verdict: allow, hostname: a.example, id: \"a b\"}",
	    "{verdict: allow, hostname: a.example, reason: \"a\\nb\"}",
	    "{verdict: allow, hostname: a.example, until: tomorrow}" };
	char text[256];
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		(void)snprintf(text, sizeof(text), "    - %s\n", bad[i]);
		one_rule_refused(text, "p.yaml:5:");
	}
}

static void
protocol_tcp_stays_away_from_names(void **state)
{
	(void)state;
	one_rule_refused("    - {verdict: allow, hostname: a.example, "
	    "protocol: tcp}\n", "without ports");
	one_rule_refused("    - {verdict: allow, hostname: a.example, "
	    "ports: [443], protocol: tcp}\n", "80 or 443");
	one_rule_refused("    - {verdict: allow, hostname: a.example, "
	    "ports: any, protocol: tcp}\n", "80 or 443");
	one_rule_refused("    - {verdict: allow, hostname: \"*.a.example\", "
	    "ports: [22], protocol: tcp}\n", "wildcard");
	one_rule_refused("    - {verdict: allow, hostname: a.example, "
	    "ports: [22], protocol: tcp}\n"
	    "    - {verdict: allow, hostname: b.example, ports: [20-30]}\n",
	    "opens to a name");
}

static void
prefixes_that_are_never_dialled_are_errors(void **state)
{
	static const char *const bad[] = { "127.0.0.0/8", "127.0.0.1",
	    "::1/128", "0.0.0.0/8", "224.0.0.0/4", "ff02::/16",
	    "240.0.0.0/4", "224.0.0.0/3", "192.0.0.0/30", "2002::/16",
	    "4000::/2", "fec0::/10" };
	char text[256];
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		(void)snprintf(text, sizeof(text), "    - {verdict: allow, "
		    "cidr: \"%s\"}\n", bad[i]);
		one_rule_refused(text, "never dialled");
	}
	one_rule_refused("    - {verdict: allow, cidr: 10.0.0.1/8}\n",
	    "not a prefix");
	one_rule_refused("    - {verdict: allow, cidr: a.example}\n",
	    "not a prefix");
}

/* Its first address says nothing of a range that reaches on. */
static void
a_prefix_of_which_a_part_may_be_opened_is_no_error(void **state)
{
	static const char *const good[] = { "192.0.0.0/8", "192.0.0.0/4",
	    "0.0.0.0/1", "126.0.0.0/7", "192.0.0.0/24", "::/0", "2001::/16",
	    "f800::/5" };
	char text[256];
	struct one o;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		(void)snprintf(text, sizeof(text), "    - {verdict: allow, "
		    "cidr: \"%s\"}\n", good[i]);
		one_rules(&o, text);
		assert_int_equal(problem_count(o.ps, PROBLEM_WARNING), 0);
		one_done(&o);
	}
	one_rules(&o, "    - {verdict: allow, cidr: 10.0.0.0/7}\n");
	assert_non_null(strstr(o.said, "reaches beyond the private range"));
	one_done(&o);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
		    an_allow_opens_80_and_443_and_a_deny_closes_every_port),
		cmocka_unit_test(ports_are_a_list_ranges_or_any),
		cmocka_unit_test(
		    N43_what_is_no_port_is_an_error_with_its_place),
		cmocka_unit_test(
		    a_default_id_follows_what_the_rule_says_and_nothing_else),
		cmocka_unit_test(
		    B10_B077_only_three_forms_of_names_are_patterns),
		cmocka_unit_test(
		    a_prefix_of_which_a_part_may_be_opened_is_no_error),
		cmocka_unit_test(a_wildcard_over_a_public_suffix_needs_force),
		cmocka_unit_test(
		    a_wildcard_over_a_private_suffix_is_a_warning),
		cmocka_unit_test(a_file_of_names_is_read_line_by_line),
		cmocka_unit_test(a_file_of_names_may_come_in_pieces),
		cmocka_unit_test(a_line_of_a_file_has_an_end),
		cmocka_unit_test(
		    B11_a_bad_line_of_a_file_is_named_with_its_number),
		cmocka_unit_test(
		    an_empty_or_missing_file_of_names_fails_the_load),
		cmocka_unit_test(B75_options_without_effect_are_errors),
		cmocka_unit_test(protocol_tcp_stays_away_from_names),
		cmocka_unit_test(prefixes_that_are_never_dialled_are_errors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
