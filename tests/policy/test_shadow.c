/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/policy/one.h"

/* Who shows no name may mean the one that is denied. */
static void
a_deny_of_names_before_a_prefix_is_a_warning(void **state)
{
	static const struct { const char *rules; bool warned; } t[] = {
		{ "    - {verdict: deny, hostname: b.example}\n"
		  "    - {verdict: allow, cidr: 9.0.0.0/8, ports: [22]}\n",
		  true },
		{ "    - {verdict: allow, cidr: 9.0.0.0/8, ports: [22]}\n"
		  "    - {verdict: deny, hostname: b.example}\n", false },
		{ "    - {verdict: deny, hostname: b.example, ports: "
		  "[443]}\n"
		  "    - {verdict: allow, cidr: 9.0.0.0/8, ports: [22]}\n",
		  false },
		{ "    - {verdict: deny, hostname: b.example, report: "
		  "true}\n"
		  "    - {verdict: allow, cidr: 9.0.0.0/8, ports: [22]}\n",
		  false },
	};
	struct one o;

	(void)state;
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		one_rules(&o, t[i].rules);
		assert_int_equal(strstr(o.said, "opens nothing to who shows "
		    "no name") != NULL, t[i].warned);
		one_done(&o);
	}
}

static void
a_rule_that_can_never_match_is_an_error(void **state)
{
	static const char *const dead[] = {
	    /* the same twice */
	    "    - {verdict: allow, hostname: a.example}\n"
	    "    - {verdict: allow, hostname: A.example.}\n",
	    /* a wildcard before one of its names */
	    "    - {verdict: allow, hostname: \"*.a.example\"}\n"
	    "    - {verdict: allow, hostname: b.a.example, ports: [443]}\n",
	    /* a wildcard before a narrower one */
	    "    - {verdict: deny, hostname: .a.example}\n"
	    "    - {verdict: allow, hostname: \"*.b.a.example\"}\n"
	    "    - {verdict: allow, hostname: c.example}\n",
	    /* B077: a catch-all deny before a specific allow */
	    "    - {verdict: deny, hostname: .example}\n"
	    "    - {verdict: allow, hostname: a.example}\n"
	    "    - {verdict: allow, hostname: a.other}\n",
	    /* two rules together take all ports */
	    "    - {verdict: allow, hostname: a.example, ports: [80]}\n"
	    "    - {verdict: allow, hostname: .a.example, ports: [443]}\n"
	    "    - {verdict: allow, hostname: a.example}\n",
	    /* exact and wildcard together take both halves of .d */
	    "    - {verdict: allow, hostname: a.example}\n"
	    "    - {verdict: allow, hostname: \"*.a.example\"}\n"
	    "    - {verdict: allow, hostname: .a.example}\n",
	    /* prefixes */
	    "    - {verdict: allow, cidr: 10.0.0.0/8}\n"
	    "    - {verdict: allow, cidr: 10.1.0.0/16, ports: [443]}\n",
	    "    - {verdict: allow, cidr: 10.1.0.0/16}\n"
	    "    - {verdict: allow, hostname: a.example}\n"
	    "    - {verdict: deny, cidr: 10.0.0.0/8}\n",
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(dead) / sizeof(dead[0]); i++)
		one_rule_refused(dead[i], "can never match");
}

static void
a_rule_that_can_still_match_is_none(void **state)
{
	static const char *const alive[] = {
	    "    - {verdict: allow, hostname: b.a.example}\n"
	    "    - {verdict: allow, hostname: \"*.a.example\"}\n",
	    "    - {verdict: allow, hostname: \"*.a.example\"}\n"
	    "    - {verdict: allow, hostname: a.example}\n",
	    "    - {verdict: allow, hostname: a.example}\n"
	    "    - {verdict: allow, hostname: a.example, ports: [22]}\n",
	    "    - {verdict: allow, hostname: a.example, until: 2027-01-01}\n"
	    "    - {verdict: allow, hostname: a.example, ports: [443]}\n",
	    "    - {verdict: deny, hostname: a.example, report: true}\n"
	    "    - {verdict: allow, hostname: a.example}\n",
	    "    - {verdict: allow, cidr: 10.1.0.0/16}\n"
	    "    - {verdict: allow, cidr: 10.0.0.0/8}\n",
	    "    - {verdict: allow, cidr: 10.0.0.0/8}\n"
	    "    - {verdict: deny, cidr: 10.1.0.0/16}\n",
	    /* the name that shadow.c asks with is no rule of its own */
	    "    - {verdict: allow, hostname: a.a.example}\n"
	    "    - {verdict: allow, hostname: \"*.a.example\"}\n",
	};
	struct one o;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(alive) / sizeof(alive[0]); i++) {
		one_rules(&o, alive[i]);
		one_done(&o);
	}
}

static void
an_allow_before_a_deny_of_its_names_is_a_warning(void **state)
{
	struct one o;

	(void)state;
	one_rules(&o, "    - {verdict: allow, hostname: \"*.a.example\"}\n"
	    "    - {verdict: deny, hostname: b.a.example}\n");
	assert_int_equal(problem_count(o.ps, PROBLEM_WARNING), 1);
	assert_non_null(strstr(o.said, "stands before deny b.a.example"));
	one_done(&o);
	one_rules(&o, "    - {verdict: deny, hostname: b.a.example}\n"
	    "    - {verdict: allow, hostname: \"*.a.example\"}\n");
	assert_int_equal(problem_count(o.ps, PROBLEM_WARNING), 0);
	one_done(&o);
}

static void
two_rules_with_one_id_are_an_error(void **state)
{
	(void)state;
	one_rule_refused("    - {verdict: allow, hostname: a.example, id: x}\n"
	    "    - {verdict: allow, hostname: b.example, id: x}\n",
	    "two rules have the id");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_rule_that_can_never_match_is_an_error),
		cmocka_unit_test(a_deny_of_names_before_a_prefix_is_a_warning),
		cmocka_unit_test(a_rule_that_can_still_match_is_none),
		cmocka_unit_test(
		    an_allow_before_a_deny_of_its_names_is_a_warning),
		cmocka_unit_test(two_rules_with_one_id_are_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
