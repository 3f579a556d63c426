/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/policy/one.h"

#define RULE "  rule:\n    - {verdict: allow, hostname: a.example}\n"

static void
said(const char *text, bool loads, const char *words)
{
	struct one o;
	bool good = one_make(&o, text, NULL, NULL, 0);

	if (good != loads || strstr(o.said, words) == NULL)
		fail_msg("expected %d and \"%s\", got:\n%s", loads, words,
		    o.said);
	one_done(&o);
}

static void
a_charter_loads_with_its_differences_said(void **state)
{
	(void)state;
	said("network:\n  default: \"\"\n  enforce: l3\n" RULE, true,
	    "an empty default is deny here");
	said("network:\n  default: deny\n  enforce: l3\n" RULE, true,
	    "l3 is read as strict");
	said("name: x\nhost: {user: 1000}\nrationing: {max_tokens: 5}\n"
	    "network:\n  default: deny\n" RULE, true, "rationing is not ours");
	said("network:\n  default: allow\n" RULE, false,
	    "write default: deny");
	said("network:\n  enforce: \"\"\n" RULE, false, "empty enforce");
}

static void
W42_a_typing_error_in_enforce_is_an_error(void **state)
{
	(void)state;
	said("network:\n  enforce: Strict\n" RULE, false, "enforce");
	said("network:\n  enforce: strct\n" RULE, false, "enforce");
}

static void
yaml_and_json_mean_the_same(void **state)
{
	static const char json[] = "{\"version\": 1, \"network\": {"
	    "\"default\": \"deny\", \"rule\": [{\"verdict\": \"allow\", "
	    "\"hostname\": \"*.a.example\", \"ports\": [443, \"8000-8001\"]}]"
	    "}}";
	static const char yaml[] = ONE_HEAD "    - {verdict: allow, "
	    "hostname: \"*.a.example\", ports: [443, 8000-8001]}\r\n";
	struct one a, b;

	(void)state;
	assert_true(one_make(&a, json, NULL, NULL, 0));
	assert_true(one_make(&b, yaml, NULL, NULL, 0));
	assert_string_equal(charter_rules(a.charter)->rule[0].id,
	    charter_rules(b.charter)->rule[0].id);
	one_done(&a);
	one_done(&b);
}

static void
the_policy_object_of_the_egress_program_loads(void **state)
{
	(void)state;
	said("{\"default\": \"deny\", \"rules\": [{\"verdict\": \"allow\", "
	    "\"hostname\": \"a.example\"}]}", true,
	    "egress program");
	said("{\"default\": \"allow\", \"rules\": []}", false,
	    "would open everything");
}

static void
B05_B070_an_empty_policy_never_means_allow(void **state)
{
	(void)state;
	said("", false, "error");
	said("{}", false, "no network table");
	said("network: {}\n", false, "no rule allows anything");
	said("network:\n  rule: []\n", false, "no rule allows anything");
	said("network:\n", false, "not a mapping");
	said("[]", false, "not a mapping");
	said("network: {default: deny, rule: [{verdict: deny, hostname: "
	    "a.example}]}", false, "no rule allows anything");
}

/* Time alone refuses nothing: it would refuse the next policy of all cells. */
static void
a_policy_whose_last_allow_is_over_is_a_warning(void **state)
{
	(void)state;
	said("network:\n  rule:\n    - {verdict: allow, hostname: a.example, "
	    "until: 2020-01-01}\n", true, "warning: each rule that allows");
	said("network:\n  rule:\n    - {verdict: deny, hostname: a.example, "
	    "until: 2020-01-01}\n", false, "no rule allows anything");
}

static void
N43_duplicate_and_unknown_keys_are_errors(void **state)
{
	(void)state;
	said("network:\n  default: deny\n  default: report\n" RULE, false,
	    "p.yaml:3:");
	said("network:\n  defualt: deny\n" RULE, false, "defualt");
	said("netwrok:\n  a: 1\nnetwork:\n" RULE, false, "netwrok");
	said("version: 2\nnetwork:\n" RULE, false, "version");
	said("network:\n  rule: &a\n    - {verdict: allow, hostname: "
	    "a.example}\n", false, "p.yaml:");
}

static void
all_errors_are_found_at_once(void **state)
{
	struct one o;

	(void)state;
	assert_false(one_make(&o, "version: 3\nnetwork:\n  default: x\n"
	    "  enforce: y\n  ech: z\n  no_sni: w\n  rule:\n"
	    "    - {verdict: allow, hostname: \"*\"}\n", NULL, NULL, 0));
	assert_int_equal(problem_count(o.ps, PROBLEM_ERROR), 6);
	one_done(&o);
}

static void
errors_are_exactly(const char *text, const char *const *places, size_t n)
{
	struct one o;
	const char *at;
	size_t i, lines = 0;

	assert_false(one_make(&o, text, NULL, NULL, 0));
	for (at = o.said, i = 0; (at = strstr(at, ": error: ")) != NULL; at++)
		lines++;
	for (at = o.said; i < n && at != NULL; i++)
		at = strstr(at, places[i]);
	if (lines != n || at == NULL)
		fail_msg("wanted %zu from %s, of:\n%s\ngot:\n%s", n, places[0],
		    text, o.said);
	one_done(&o);
}

/* One of the tree, one of the schema, one of a value, one of rules together:
 * none hides another. */
static void
N43_errors_of_every_kind_are_found_at_once(void **state)
{
	static const char *const places[] = {
		"p.yaml:3:9: error: anchors are not accepted",
		"p.yaml:5:3: error: the key \"default\" stands twice",
		"p.yaml:7:45: error: unknown key \"prots\"",
		"p.yaml:9:30: error: \"10.0.0.1/8\" is not a prefix",
		"p.yaml:12:7: error: allow b.example can never match: the rule "
		    "allow b.example in p.yaml:8",
	};

	(void)state;
	errors_are_exactly("version: 1\n"
	    "network:\n"
	    "  help: &h ask\n"
	    "  default: deny\n"
	    "  default: deny\n"
	    "  rule:\n"
	    "    - {verdict: allow, hostname: a.example, prots: [1]}\n"
	    "    - {verdict: allow, hostname: b.example}\n"
	    "    - {verdict: allow, cidr: 10.0.0.1/8}\n"
	    "    - {verdict: allow, hostname: c.example}\n"
	    "    - {verdict: allow, hostname: d.example}\n"
	    "    - {verdict: allow, hostname: b.example, ports: [443]}\n",
	    places, 5);
}

/* What was read before the text ends to be YAML is looked at. */
static void
a_syntax_error_hides_nothing_before_it(void **state)
{
	static const char *const places[] = {
		"p.yaml:2:3: error: unknown key \"defualt\"",
		"p.yaml:4:17: error: \"alow\" is no verdict",
		"p.yaml:6:7: error: allow a.example can never match",
		"p.yaml:8:1: error: not YAML: found unexpected end of stream, "
		    "while scanning a quoted scalar that begins in line 7",
	};

	(void)state;
	errors_are_exactly("network:\n"
	    "  defualt: deny\n"
	    "  rule:\n"
	    "    - {verdict: alow, hostname: a.example}\n"
	    "    - {verdict: allow, hostname: a.example}\n"
	    "    - {verdict: allow, hostname: a.example, ports: [80]}\n"
	    "    - {verdict: allow, hostname: \"b.example}\n", places, 4);
}

/* One mistake is one error: what follows from it is not told too. */
static void
what_follows_from_an_error_is_no_error_of_its_own(void **state)
{
#define DENY "    - {verdict: deny, hostname: z.example}\n"
	static const struct { const char *text, *place; } t[] = {
		{ "*x\n", "1:1: error: \"*x\" must" },
		{ "network: *x\n", "1:10: error: \"*x\" must" },
		{ "version: *x\nnetwork:\n" RULE, "1:10: error" },
		{ "<<: *base\n", "1:1: error: merge keys" },
		{ "network:\n  <<: *base\n  report_until: 2026-10-01\n",
		    "2:3: error: merge keys" },
		{ "network:\n  rule: *r\n", "2:9: error" },
		{ "network:\n  rule: 5\n", "2:9: error: rule is not a list" },
		{ "network:\n  default: *r\n  report_until: 2026-10-01\n" RULE,
		    "2:12: error" },
		{ "network:\n  default: allow\n  report_until: 2026-10-01\n"
		    RULE, "2:12: error: default: allow" },
		{ "network:\n  default: report\n  report_until: *r\n" RULE,
		    "3:17: error" },
		{ "network:\n  default: report\n  report_until: soon\n" RULE,
		    "3:17: error" },
		{ "network:\n  resolvers: [*r]\n" RULE, "2:15: error" },
		{ "network:\n" RULE "expect: [{deny: *s}]\n", "4:17" },
		{ "network:\n  rule:\n    - *r\n", "3:7: error" },
		/* of one rule */
		{ ONE_HEAD "    - {verdict: allow, hostname: *.a.example}\n",
		    "5:34: error: \"*.a.example\" must be quoted" },
		{ ONE_HEAD "    - {verdict: allow, hostname: [a.example]}\n",
		    "5:34: error: hostname is not a single value" },
		{ ONE_HEAD "    - {verdict: *r, hostname: a.example}\n",
		    "5:17: error" },
		{ ONE_HEAD "    - {verdict: alow, hostname: a.example, "
		    "allow_private: true}\n", "5:17: error: \"alow\"" },
		{ ONE_HEAD "    - {<<: *r, hostname: a.example}\n", "5:8" },
		{ ONE_HEAD "    - {<<: *r, verdict: allow}\n", "5:8" },
		{ ONE_HEAD "    - {verdict: allow, hostname: a.example, ports: "
		    "*p, protocol: tcp}\n", "5:52" },
		{ ONE_HEAD "    - {verdict: allow, hostname: a.example, ports: "
		    "[*p]}\n", "5:53" },
		{ ONE_HEAD "    - {verdict: allow, hostname: a.example, "
		    "verdict: deny}\n", "5:45: error: the key \"verdict\"" },
		/* a rule that is wrong takes nothing from others */
		{ ONE_HEAD "    - {verdict: allow, hostname: a.example, "
		    "verdict: deny}\n    - {verdict: allow, hostname: "
		    "a.example}\n", "5:45: error" },
		{ ONE_HEAD "    - {verdict: allow, hostname: a.example, "
		    "until: x}\n" DENY, "5:52: error: until" },
	};
#undef DENY

	(void)state;
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++)
		errors_are_exactly(t[i].text, &t[i].place, 1);
}

static void
resolvers_are_addresses_with_or_without_a_port(void **state)
{
	const struct charter_scalars *s;
	struct one o;

	(void)state;
	assert_true(one_make(&o, "network:\n  resolvers: [198.18.0.53, "
	    "\"198.18.0.54:5353\", \"[2001:db8::1]:54\", \"2001:db8::2\"]\n"
	    RULE, NULL, NULL, 0));
	s = charter_scalars(o.charter);
	assert_int_equal(s->n_resolvers, 4);
	assert_int_equal(s->resolvers[0].at.port, 53);
	assert_int_equal(s->resolvers[1].at.port, 5353);
	assert_int_equal(s->resolvers[2].at.port, 54);
	assert_int_equal(s->resolvers[3].at.port, 53);
	one_done(&o);
	said("network:\n  resolvers: [dns.example]\n" RULE, false,
	    "resolvers");
	said("network:\n  resolvers: [\"198.18.0.53:0\"]\n" RULE, false,
	    "resolvers");
	said("network:\n  resolvers: [\"tls://198.18.0.53\"]\n" RULE,
	    false, "tls://address#name");
	assert_true(one_make(&o, "network:\n  resolvers: "
	    "[\"tls://198.18.0.53#dns.example\"]\n" RULE, NULL, NULL, 0));
	s = charter_scalars(o.charter);
	assert_int_equal(s->resolvers[0].at.port, 853);
	assert_string_equal(s->resolvers[0].tls_name, "dns.example");
	one_done(&o);
	assert_true(one_make(&o, "network:\n  resolvers: [system]\n" RULE,
	    NULL, NULL, 0));
	assert_true(charter_scalars(o.charter)->resolvers_system);
	one_done(&o);
	said("network:\n  resolvers: [system, 198.18.0.53]\n" RULE, false,
	    "system stands beside other resolvers");
	said("network:\n  resolvers: 198.18.0.53\n" RULE, false, "not a list");
}

static void
lab_takes_documentation_and_benchmark_prefixes_only(void **state)
{
	(void)state;
	said("network:\n  lab: [203.0.113.0/24, \"2001:db8:1::/48\"]\n" RULE,
	    true, "count as public");
	said("network:\n  lab: [10.0.0.0/8]\n" RULE, false, "lab");
	said("network:\n  lab: [203.0.112.0/23]\n" RULE, false, "lab");
	said("network:\n  lab: [0.0.0.0/0]\n" RULE, false, "lab");
	said("network:\n  lab: [127.0.0.0/8]\n" RULE, false, "lab");
}

static void
B74_report_ends_within_90_days(void **state)
{
	(void)state;
	said("network:\n  default: report\n" RULE, false, "without an end");
	said("network:\n  default: report\n  report_until: 2026-12-20\n" RULE,
	    true, "not enforcing");
	said("network:\n  default: report\n  report_until: 2026-12-22\n" RULE,
	    false, "more than 90 days");
	said("network:\n  default: report\n  report_until: 2026-09-01\n" RULE,
	    true, "is over");
	said("network:\n  report_until: 2026-12-20\n" RULE, false,
	    "no effect");
}

static void
scalars_stand_in_the_first_file_only(void **state)
{
	struct problems *ps = problem_new();
	struct charter *c;

	(void)state;
	c = charter_load("team.yaml", span_str("network:\n  default: deny\n"
	    "  resolvers: [198.18.0.1]\n" RULE), false, NULL, ps);
	assert_true(charter_wrong(c));
	assert_int_equal(problem_count(ps, PROBLEM_ERROR), 2);
	charter_free(c);
	problem_free(ps);
	ps = problem_new();
	c = charter_load("team.yaml", span_str("network:\n" RULE), false,
	    NULL, ps);
	assert_non_null(c);
	assert_false(charter_wrong(c));
	charter_free(c);
	problem_free(ps);
}

static void
expectations_stand_beside_the_rules(void **state)
{
	const struct charter_expect *e;
	struct one o;
	size_t n;

	(void)state;
	assert_true(one_make(&o, "network:\n" RULE
	    "expect: [{allow: a.example:443}, {deny: b.example}]\n", NULL,
	    NULL, 0));
	e = charter_expects(o.charter, &n);
	assert_int_equal(n, 2);
	assert_int_equal(e[0].verdict, VERDICT_ALLOW);
	assert_string_equal(e[0].what, "a.example:443");
	assert_int_equal(e[1].verdict, VERDICT_DENY);
	one_done(&o);
	said("network:\n" RULE "expect: [{maybe: a}]\n", false,
	    "an expectation");
}

static void
ech_deny_warns_of_grease(void **state)
{
	(void)state;
	said("network:\n  ech: deny\n" RULE, true, "GREASE");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_charter_loads_with_its_differences_said),
		cmocka_unit_test(W42_a_typing_error_in_enforce_is_an_error),
		cmocka_unit_test(yaml_and_json_mean_the_same),
		cmocka_unit_test(
		    the_policy_object_of_the_egress_program_loads),
		cmocka_unit_test(B05_B070_an_empty_policy_never_means_allow),
		cmocka_unit_test(
		    a_policy_whose_last_allow_is_over_is_a_warning),
		cmocka_unit_test(N43_duplicate_and_unknown_keys_are_errors),
		cmocka_unit_test(all_errors_are_found_at_once),
		cmocka_unit_test(N43_errors_of_every_kind_are_found_at_once),
		cmocka_unit_test(a_syntax_error_hides_nothing_before_it),
		cmocka_unit_test(
		    what_follows_from_an_error_is_no_error_of_its_own),
		cmocka_unit_test(
		    resolvers_are_addresses_with_or_without_a_port),
		cmocka_unit_test(
		    lab_takes_documentation_and_benchmark_prefixes_only),
		cmocka_unit_test(B74_report_ends_within_90_days),
		cmocka_unit_test(scalars_stand_in_the_first_file_only),
		cmocka_unit_test(expectations_stand_beside_the_rules),
		cmocka_unit_test(ech_deny_warns_of_grease),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
