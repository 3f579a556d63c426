/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/qtype.h"
#include "tests/policy/one.h"

/* "a allow", "d no_rule": the verdict and the reason in one word each. */
static const char *
brief(const struct decision *d, char out[static 64])
{
	(void)snprintf(out, 64, "%c%s %s", d->verdict == VERDICT_ALLOW ? 'a' :
	    'd', d->would != d->verdict ? "!" : "", reason_word(d->reason));
	return out;
}

static const char *
name_to(const struct one *o, const char *name, uint16_t port,
    const char *original, char out[static 64])
{
	const struct decide_at at = one_at(o);
	const struct host h = one_host(name);
	struct endpoint to;
	struct decision d;

	if (original == NULL) {
		d = decide_name(&at, &h, port, NULL);
		return brief(&d, out);
	}
	to = one_endpoint(original, port);
	d = decide_name(&at, &h, port, &to);
	if (d.verdict == VERDICT_ALLOW)
		d = decide_addr(&at, &d, &to);
	return brief(&d, out);
}

#define NAME(o, name, port, words) do { \
	char b_[64]; \
	assert_string_equal(name_to(o, name, port, NULL, b_), words); \
} while (0)
#define NAME_AT(o, name, port, addr, words) do { \
	char b_[64]; \
	assert_string_equal(name_to(o, name, port, addr, b_), words); \
} while (0)

static const char *
nameless(const struct one *o, const char *addr, uint16_t port,
    const char *n1, const char *n2, char out[static 64])
{
	const struct decide_at at = one_at(o);
	const struct endpoint to = one_endpoint(addr, port);
	struct host h[2];
	const struct host *names[2] = { &h[0], &h[1] };
	struct decision d;
	size_t n = 0;

	if (n1 != NULL)
		h[n++] = one_host(n1);
	if (n2 != NULL)
		h[n++] = one_host(n2);
	d = decide_nameless(&at, &to, names, n);
	return brief(&d, out);
}

#define NAMELESS(o, addr, port, n1, n2, words) do { \
	char b_[64]; \
	assert_string_equal(nameless(o, addr, port, n1, n2, b_), words); \
} while (0)

static const char *
question(const struct one *o, const char *name, char out[static 64])
{
	const struct decide_at at = one_at(o);
	const struct host h = one_host(name);
	struct decision d;
	bool asked = decide_question(&at, &h, &d);

	assert_int_equal(asked, d.verdict == VERDICT_ALLOW);
	return brief(&d, out);
}

#define QUESTION(o, name, words) do { \
	char b_[64]; \
	assert_string_equal(question(o, name, b_), words); \
} while (0)

static void
zero_is_deny_and_no_policy_denies(void **state)
{
	const struct decide_at at = { .policy = NULL, .now_s = NOW_S };
	const struct endpoint to = one_endpoint("203.0.113.1", 443);
	const struct decision zero = { 0 };
	const struct host h = one_host("a.example");
	struct decision d;
	struct one o;

	(void)state;
	assert_int_equal(zero.verdict, VERDICT_DENY);
	d = decide_name(&at, &h, 443, NULL);
	assert_int_equal(d.verdict, VERDICT_DENY);
	assert_int_equal(d.reason, REASON_POLICY_UNAVAILABLE);
	d = decide_nameless(&at, &to, NULL, 0);
	assert_int_equal(d.verdict, VERDICT_DENY);
	assert_false(decide_question(&at, &h, &d));
	assert_true(decide_ech_denied(&at));
	assert_false(decide_no_sni_pinned(&at));
	one_rules(&o, "    - {verdict: allow, hostname: a.example}\n");
	{
		struct decide_at other = one_at(&o);

		other.cell = 1;
		d = decide_name(&other, &h, 443, NULL);
		assert_int_equal(d.verdict, VERDICT_DENY);
		assert_int_equal(d.reason, REASON_UNKNOWN_CELL);
	}
	one_done(&o);
}

static void
the_first_rule_that_matches_name_and_port_decides(void **state)
{
	struct one o;

	(void)state;
	one_rules(&o,
	    "    - {verdict: deny, hostname: gist.a.example}\n"
	    "    - {verdict: allow, hostname: \"*.a.example\"}\n"
	    "    - {verdict: allow, hostname: b.example, ports: [22]}\n"
	    "    - {verdict: deny, hostname: .b.example, ports: [20-30]}\n"
	    "    - {verdict: allow, hostname: .b.example, ports: [25, 26, "
	    "31]}\n");
	NAME(&o, "gist.a.example", 443, "d rule_deny");
	NAME(&o, "x.gist.a.example", 443, "a rule");
	NAME(&o, "c.a.example", 443, "a rule");
	NAME(&o, "c.d.a.example", 80, "a rule");
	NAME(&o, "a.example", 443, "d no_rule");
	NAME(&o, "xa.example", 443, "d no_rule");
	NAME(&o, "b.example", 22, "a rule");
	NAME(&o, "x.b.example", 22, "d rule_deny");
	NAME(&o, "b.example", 25, "d rule_deny");
	NAME(&o, "b.example", 31, "a rule");
	NAME(&o, "b.example", 443, "d no_rule");
	one_done(&o);
}

static void
W18_B071_only_the_ports_of_the_rule_are_open(void **state)
{
	static const uint16_t closed[] = { 22, 25, 53, 853, 3306, 5432, 6379,
	    8080, 8443, 65535, 1 };
	struct one o;
	size_t i;

	(void)state;
	one_rules(&o, "    - {verdict: allow, hostname: a.example}\n");
	NAME(&o, "a.example", 80, "a rule");
	NAME(&o, "a.example", 443, "a rule");
	for (i = 0; i < sizeof(closed) / sizeof(closed[0]); i++)
		NAME(&o, "a.example", closed[i], "d no_rule");
	one_done(&o);
}

static void
B01_B03_B06_B07_B076_look_alikes_do_not_pass(void **state)
{
	static const char *const bad[] = { "notallowed.test",
	    "allowed.test.evil.test", "xallowed.test", "allowed.tes",
	    "llowed.test", "a.allowed.test" };
	static const char *const deny[] = { "EVIL.allowed2.test",
	    "evil.allowed2.test.", "Evil.Allowed2.Test." };
	struct one o;
	size_t i;

	(void)state;
	one_rules(&o, "    - {verdict: deny, hostname: EVIL.allowed2.test.}\n"
	    "    - {verdict: allow, hostname: ALLOWED.test.}\n"
	    "    - {verdict: allow, hostname: .allowed2.test}\n");
	NAME(&o, "allowed.test", 443, "a rule");
	NAME(&o, "ALLOWED.test.", 443, "a rule");
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		NAME(&o, bad[i], 443, "d no_rule");
	for (i = 0; i < sizeof(deny) / sizeof(deny[0]); i++) {
		NAME(&o, deny[i], 443, "d rule_deny");
		QUESTION(&o, deny[i], "d rule_deny");
	}
	one_done(&o);
}

static void
B077_wildcards_mean_what_the_manual_says(void **state)
{
	struct one o;

	(void)state;
	one_rules(&o, "    - {verdict: allow, hostname: \"*.a.test\"}\n"
	    "    - {verdict: allow, hostname: .b.test}\n"
	    "    - {verdict: allow, hostname: c.test}\n");
	NAME(&o, "a.test", 443, "d no_rule");
	NAME(&o, "1.a.test", 443, "a rule");
	NAME(&o, "1.2.3.4.x.a.test", 443, "a rule");
	NAME(&o, "b.test", 443, "a rule");
	NAME(&o, "1.2.b.test", 443, "a rule");
	NAME(&o, "c.test", 443, "a rule");
	NAME(&o, "1.c.test", 443, "d no_rule");
	QUESTION(&o, "a.test", "d no_rule");
	QUESTION(&o, "1.a.test", "a rule");
	one_done(&o);
}

static void
W16_special_use_addresses_are_refused_for_a_name(void **state)
{
	static const char *const special[] = { "127.0.0.1", "::1",
	    "169.254.169.254", "169.254.1.1", "fe80::1", "0.0.0.0", "::",
	    "224.0.0.1", "ff02::1", "198.18.0.1", "203.0.113.1",
	    "2001:db8::1", "240.0.0.1", "255.255.255.255",
	    "2002:7f00:1::", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe",
	    "::7f00:1", "fd00:ec2::254" };
	static const char *const private[] = { "10.0.0.1", "172.16.0.1",
	    "192.168.1.1", "100.64.0.1", "fd12::1", "64:ff9b::a00:1",
	    "2002:a00:1::" };
	struct one o;
	size_t i;

	(void)state;
	one_rules(&o, "    - {verdict: allow, hostname: a.example}\n"
	    "    - {verdict: allow, hostname: p.example, "
	    "allow_private: true}\n");
	NAME_AT(&o, "a.example", 443, "192.88.98.1", "a rule");
	NAME_AT(&o, "a.example", 443, "2606:4700::1", "a rule");
	for (i = 0; i < sizeof(special) / sizeof(special[0]); i++) {
		NAME_AT(&o, "a.example", 443, special[i], "d special_use");
		NAME_AT(&o, "p.example", 443, special[i], "d special_use");
	}
	for (i = 0; i < sizeof(private) / sizeof(private[0]); i++) {
		NAME_AT(&o, "a.example", 443, private[i],
		    "d private_address");
		NAME_AT(&o, "p.example", 443, private[i], "a rule");
	}
	one_done(&o);
}

static void
W16_a_prefix_deny_refuses_wherever_it_stands(void **state)
{
	struct one o;

	(void)state;
	one_rules(&o, "    - {verdict: allow, hostname: a.example}\n"
	    "    - {verdict: allow, cidr: 9.0.0.0/8, ports: [443]}\n"
	    "    - {verdict: deny, cidr: 9.9.0.0/16}\n");
	NAME_AT(&o, "a.example", 443, "9.8.0.1", "a rule");
	NAME_AT(&o, "a.example", 443, "9.9.0.1", "d cidr_deny");
	NAME_AT(&o, "a.example", 443, "64:ff9b::909:1", "d cidr_deny");
	NAMELESS(&o, "9.8.0.1", 443, NULL, NULL, "a rule");
	NAMELESS(&o, "9.9.0.1", 443, NULL, NULL, "d cidr_deny");
	NAMELESS(&o, "9.9.0.1", 443, "a.example", NULL, "d cidr_deny");
	one_done(&o);
}

static void
a_catch_all_prefix_opens_public_addresses_only(void **state)
{
	struct one o;

	(void)state;
	one_rules(&o, "    - {verdict: allow, cidr: 0.0.0.0/0}\n"
	    "    - {verdict: allow, cidr: 10.1.0.0/16, ports: [5432]}\n");
	NAMELESS(&o, "9.9.9.9", 443, NULL, NULL, "a rule");
	NAMELESS(&o, "10.1.0.1", 443, NULL, NULL, "d private_address");
	NAMELESS(&o, "10.1.0.1", 5432, NULL, NULL, "a rule");
	NAMELESS(&o, "169.254.169.254", 80, NULL, NULL, "d special_use");
	NAMELESS(&o, "127.0.0.1", 80, NULL, NULL, "d special_use");
	one_done(&o);
}

/* What opens a class is a prefix that lies in it, whole. */
static void
a_prefix_that_reaches_over_classes_opens_public_addresses_only(void **state)
{
	struct one o;

	(void)state;
	one_rules(&o, "    - {verdict: allow, cidr: 10.0.0.0/7}\n"
	    "    - {verdict: allow, cidr: 192.0.0.0/8}\n"
	    "    - {verdict: allow, cidr: 198.16.0.0/13}\n"
	    "    - {verdict: allow, cidr: 100.64.0.0/10}\n"
	    "    - {verdict: allow, cidr: \"fc00::/6\"}\n");
	NAMELESS(&o, "11.0.0.1", 443, NULL, NULL, "a rule");
	NAMELESS(&o, "10.0.0.1", 443, NULL, NULL, "d private_address");
	NAMELESS(&o, "192.1.0.1", 443, NULL, NULL, "a rule");
	NAMELESS(&o, "192.168.0.1", 443, NULL, NULL, "d private_address");
	NAMELESS(&o, "192.0.0.1", 443, NULL, NULL, "d special_use");
	NAMELESS(&o, "192.0.2.1", 443, NULL, NULL, "d special_use");
	NAMELESS(&o, "198.17.0.1", 443, NULL, NULL, "a rule");
	NAMELESS(&o, "198.18.0.1", 443, NULL, NULL, "d special_use");
	NAMELESS(&o, "198.24.0.1", 443, NULL, NULL, "d not_pinned");
	NAMELESS(&o, "100.64.0.1", 443, NULL, NULL, "a rule");
	NAMELESS(&o, "100.100.100.200", 443, NULL, NULL, "d special_use");
	NAMELESS(&o, "fd00::1", 443, NULL, NULL, "d private_address");
	one_done(&o);
}

static void
own_listeners_are_never_dialled(void **state)
{
	const struct endpoint own[] = { one_endpoint("10.0.0.1", 15001),
	    one_endpoint("10.0.0.2", 0) };
	struct one o;

	(void)state;
	assert_true(one_make(&o, ONE_HEAD
	    "    - {verdict: allow, cidr: 10.0.0.0/8, ports: any}\n", NULL,
	    own, 2));
	NAMELESS(&o, "10.0.0.1", 15001, NULL, NULL, "d own_listener");
	NAMELESS(&o, "10.0.0.1", 15002, NULL, NULL, "a rule");
	NAMELESS(&o, "10.0.0.2", 9, NULL, NULL, "d own_listener");
	NAMELESS(&o, "64:ff9b::a00:2", 9, NULL, NULL, "d own_listener");
	one_done(&o);
}

/* By an address rule only when it names that address alone. */
static void
a_gateway_of_the_host_is_opened_by_no_name(void **state)
{
	const struct endpoint own[] = { one_endpoint("9.0.0.9", 0),
	    one_endpoint("9.0.0.1", 0), one_endpoint("10.0.0.1", 0),
	    one_endpoint("10.0.0.2", 0), one_endpoint("2606::1", 0) };
	struct decide_at at;
	struct endpoint any;
	struct decision d;
	struct host h;
	struct one o;

	(void)state;
	one_rules(&o, "    - {verdict: allow, hostname: a.example, "
	    "allow_private: true}\n"
	    "    - {verdict: allow, cidr: 9.0.0.0/8, ports: [443, 5432]}\n"
	    "    - {verdict: allow, cidr: 10.0.0.1, ports: [5432]}\n"
	    "    - {verdict: allow, cidr: 10.0.0.0/24, ports: [5432]}\n"
	    "    - {verdict: allow, cidr: \"2606::/16\"}\n");
	NAME_AT(&o, "a.example", 443, "9.0.0.1", "a rule");
	NAMELESS(&o, "9.0.0.1", 5432, NULL, NULL, "a rule");
	policy_set_own(o.image, own, 5, 4, 8);
	assert_int_equal(policy_generation(o.policy), 8);
	assert_true(policy_own_is(o.policy, own, 5, 4));
	assert_false(policy_own_is(o.policy, own, 5, 3));
	assert_false(policy_own_is(o.policy, own + 1, 4, 4));
	NAME_AT(&o, "a.example", 443, "9.0.0.1", "d special_use");
	NAME_AT(&o, "a.example", 443, "10.0.0.1", "d special_use");
	NAME_AT(&o, "a.example", 443, "64:ff9b::900:1", "d special_use");
	NAME_AT(&o, "a.example", 443, "2606::1", "d special_use");
	NAME_AT(&o, "a.example", 443, "9.0.0.2", "a rule");
	NAME_AT(&o, "a.example", 443, "9.0.0.9", "d own_listener");
	NAMELESS(&o, "9.0.0.1", 5432, NULL, NULL, "d special_use");
	NAMELESS(&o, "9.0.0.1", 443, "a.example", NULL, "d special_use");
	NAMELESS(&o, "10.0.0.1", 5432, NULL, NULL, "a rule");
	NAMELESS(&o, "10.0.0.1", 443, NULL, NULL, "d not_pinned");
	NAMELESS(&o, "10.0.0.2", 5432, NULL, NULL, "d special_use");
	NAMELESS(&o, "10.0.0.3", 5432, NULL, NULL, "a rule");
	/* as the answer to a question */
	at = one_at(&o);
	h = one_host("a.example");
	d = decide_name(&at, &h, 443, NULL);
	any = one_endpoint("10.0.0.1", 0);
	d = decide_addr(&at, &d, &any);
	assert_int_equal(d.reason, REASON_SPECIAL_USE);
	one_done(&o);
}

static void
an_unmatched_name_at_an_allowed_prefix_is_that_address_alone(void **state)
{
	const struct host h = one_host("other.example");
	struct endpoint to = one_endpoint("10.20.0.1", 443);
	struct decide_at at;
	struct decision d;
	struct one o;

	(void)state;
	one_rules(&o, "    - {verdict: deny, hostname: bad.example}\n"
	    "    - {verdict: allow, cidr: 10.20.0.0/16}\n");
	at = one_at(&o);
	d = decide_name(&at, &h, 443, &to);
	assert_int_equal(d.verdict, VERDICT_ALLOW);
	assert_true(d.original_only);
	assert_false(d.allow_private);
	assert_int_equal(d.rule, 1);
	d = decide_addr(&at, &d, &to);
	assert_int_equal(d.verdict, VERDICT_ALLOW);
	NAME_AT(&o, "bad.example", 443, "10.20.0.1", "d rule_deny");
	NAME_AT(&o, "other.example", 443, "10.21.0.1", "d no_rule");
	NAME_AT(&o, "other.example", 22, "10.20.0.1", "d no_rule");
	one_done(&o);
}

static void
W17_a_name_deny_before_the_prefix_allow_holds_for_the_nameless(void **state)
{
	struct one o;

	(void)state;
	one_rules(&o, "    - {verdict: deny, hostname: bad.example, "
	    "ports: [443]}\n"
	    "    - {verdict: allow, cidr: 9.0.0.0/8, ports: [443, 8443]}\n"
	    "    - {verdict: deny, hostname: late.example}\n");
	NAMELESS(&o, "9.0.0.1", 443, NULL, NULL, "d rule_deny");
	NAMELESS(&o, "9.0.0.1", 443, "bad.example", NULL, "d rule_deny");
	NAMELESS(&o, "9.0.0.1", 443, "x.example", "bad.example",
	    "d rule_deny");
	NAMELESS(&o, "9.0.0.1", 443, "x.example", NULL, "a rule");
	NAMELESS(&o, "9.0.0.1", 443, "late.example", NULL, "a rule");
	NAMELESS(&o, "9.0.0.1", 8443, NULL, NULL, "a rule");
	one_done(&o);
}

static void
B49_B50_B079_every_name_on_a_shared_address_must_be_allowed(void **state)
{
	struct one o;

	(void)state;
	one_rules(&o, "    - {verdict: allow, hostname: a.example}\n"
	    "    - {verdict: allow, hostname: b.example, ports: [80]}\n");
	NAMELESS(&o, "9.0.0.1", 443, NULL, NULL, "d not_pinned");
	NAMELESS(&o, "9.0.0.1", 443, "a.example", NULL, "a rule");
	NAMELESS(&o, "9.0.0.1", 80, "a.example", "b.example", "a rule");
	NAMELESS(&o, "9.0.0.1", 443, "a.example", "b.example", "d nameless");
	NAMELESS(&o, "9.0.0.1", 443, "b.example", "a.example", "d nameless");
	NAMELESS(&o, "9.0.0.1", 22, "a.example", NULL, "d nameless");
	NAMELESS(&o, "9.0.0.1", 443, "a.example", "evil.example",
	    "d nameless");
	NAMELESS(&o, "127.0.0.1", 443, "a.example", NULL, "d special_use");
	NAMELESS(&o, "10.0.0.1", 443, "a.example", NULL,
	    "d private_address");
	one_done(&o);
}

static void
B71_W25_an_address_needs_a_prefix_rule(void **state)
{
	struct one o;

	(void)state;
	one_rules(&o, "    - {verdict: allow, hostname: a.example}\n"
	    "    - {verdict: allow, cidr: 9.9.9.9, ports: [80]}\n");
	NAMELESS(&o, "9.9.9.9", 80, NULL, NULL, "a rule");
	NAMELESS(&o, "9.9.9.8", 80, NULL, NULL, "d not_pinned");
	NAMELESS(&o, "9.9.9.9", 443, NULL, NULL, "d not_pinned");
	one_done(&o);
}

static void
opaque_rules_are_dialled_without_a_look(void **state)
{
	const struct host git = one_host("git.example");
	const struct host other = one_host("other.example");
	const struct host *names[2] = { &git, &other };
	struct endpoint ssh = one_endpoint("9.0.0.1", 22);
	struct endpoint db = one_endpoint("10.20.0.1", 5432);
	struct endpoint web = one_endpoint("10.20.0.1", 443);
	struct decide_at at;
	struct decision d;
	struct one o;

	(void)state;
	one_rules(&o, "    - {verdict: allow, hostname: git.example, "
	    "ports: [22], protocol: tcp}\n"
	    "    - {verdict: allow, cidr: 10.20.0.0/16, "
	    "ports: [443, 5432]}\n");
	at = one_at(&o);
	assert_true(decide_opaque(&at, &ssh, names, 1, &d));
	assert_int_equal(d.verdict, VERDICT_ALLOW);
	assert_true(d.opaque);
	/* A denial on such a port is told at once: nobody speaks first. */
	assert_true(decide_opaque(&at, &ssh, names, 2, &d));
	assert_int_equal(d.verdict, VERDICT_DENY);
	assert_true(decide_opaque(&at, &ssh, NULL, 0, &d));
	assert_int_equal(d.verdict, VERDICT_DENY);
	assert_true(decide_opaque(&at, &db, NULL, 0, &d));
	assert_int_equal(d.verdict, VERDICT_ALLOW);
	assert_true(d.original_only);
	assert_false(decide_opaque(&at, &web, NULL, 0, &d));
	ssh.port = 2222;
	assert_false(decide_opaque(&at, &ssh, names, 1, &d));
	assert_true(decide_port_open(&at, &web));
	web.port = 8080;
	assert_false(decide_port_open(&at, &web));
	assert_false(decide_port_open(&at, &ssh));
	ssh.port = 22;
	assert_true(decide_port_open(&at, &ssh));
	d = decide_name(&at, &git, 22, NULL);
	assert_true(d.opaque);
	one_done(&o);
}

static void
an_expired_rule_is_switched_off(void **state)
{
	struct decide_at at;
	struct decision d;
	struct host h = one_host("a.example");
	struct one o;

	(void)state;
	one_rules(&o, "    - {verdict: allow, hostname: a.example, "
	    "until: 2026-09-30}\n"
	    "    - {verdict: allow, hostname: b.example}\n");
	at = one_at(&o);
	at.now_s = INT64_C(1790812799);	/* 2026-09-30 23:59:59 */
	d = decide_name(&at, &h, 443, NULL);
	assert_int_equal(d.verdict, VERDICT_ALLOW);
	assert_true(decide_question(&at, &h, &d));
	at.now_s++;
	d = decide_name(&at, &h, 443, NULL);
	assert_int_equal(d.verdict, VERDICT_DENY);
	assert_false(decide_question(&at, &h, &d));
	one_done(&o);
}

static void
default_report_passes_only_what_no_rule_matches(void **state)
{
	struct decide_at at;
	struct decision d;
	struct host h = one_host("x.example");
	struct one o;

	(void)state;
	assert_true(one_make(&o, "network:\n  default: report\n"
	    "  report_until: 2026-10-31\n  rule:\n"
	    "    - {verdict: deny, hostname: bad.example}\n"
	    "    - {verdict: deny, cidr: 9.9.0.0/16}\n", NULL, NULL, 0));
	NAME(&o, "x.example", 443, "a! no_rule");
	NAME(&o, "bad.example", 443, "d rule_deny");
	NAME_AT(&o, "x.example", 443, "9.8.0.1", "a! no_rule");
	NAME_AT(&o, "x.example", 443, "9.9.0.1", "d cidr_deny");
	NAME_AT(&o, "x.example", 443, "10.0.0.1", "d private_address");
	NAME_AT(&o, "x.example", 443, "127.0.0.1", "d special_use");
	/* it may be the denied name that is not shown */
	NAMELESS(&o, "9.8.0.1", 443, NULL, NULL, "d rule_deny");
	NAMELESS(&o, "9.8.0.1", 443, "x.example", NULL, "a! nameless");
	NAMELESS(&o, "9.8.0.1", 443, "bad.example", NULL, "d rule_deny");
	QUESTION(&o, "x.example", "a! no_rule");
	QUESTION(&o, "bad.example", "d rule_deny");
	at = one_at(&o);
	at.now_s = INT64_C(1793491200);	/* 2026-11-01 */
	d = decide_name(&at, &h, 443, NULL);
	assert_int_equal(d.verdict, VERDICT_DENY);
	assert_int_equal(d.would, VERDICT_DENY);
	one_done(&o);
}

static void
a_reporting_rule_is_told_and_not_obeyed(void **state)
{
	struct one o;

	(void)state;
	one_rules(&o, "    - {verdict: deny, hostname: x.a.example, "
	    "report: true}\n"
	    "    - {verdict: allow, hostname: \"*.a.example\"}\n"
	    "    - {verdict: deny, cidr: 9.9.0.0/16, report: true}\n");
	NAME(&o, "x.a.example", 443, "a! rule_deny");
	NAME(&o, "x.a.example", 22, "d no_rule");
	NAME(&o, "z.a.example", 443, "a rule");
	NAME_AT(&o, "z.a.example", 443, "9.9.0.1", "a! cidr_deny");
	one_done(&o);
}

static void
a_question_is_asked_only_when_some_port_is_open(void **state)
{
	struct one o;

	(void)state;
	one_rules(&o, "    - {verdict: deny, hostname: a.example, "
	    "ports: [80, 440-443]}\n"
	    "    - {verdict: deny, hostname: b.example, ports: [80]}\n"
	    "    - {verdict: allow, hostname: .example, force: true}\n"
	    "    - {verdict: deny, hostname: c.other}\n"
	    "    - {verdict: allow, hostname: .c.other, ports: [1-65535]}\n");
	QUESTION(&o, "a.example", "d rule_deny");
	QUESTION(&o, "b.example", "a rule");
	QUESTION(&o, "z.example", "a rule");
	QUESTION(&o, "c.other", "d rule_deny");
	QUESTION(&o, "d.c.other", "a rule");
	QUESTION(&o, "other", "d no_rule");
	one_done(&o);
}

static void
port_0_asks_whether_any_port_is_open_at_an_address(void **state)
{
	static const struct { const char *addr; enum verdict verdict; } t[] = {
		{ "10.20.0.1", VERDICT_ALLOW }, { "10.21.0.1", VERDICT_DENY },
		{ "9.9.0.1", VERDICT_DENY }, { "9.8.0.1", VERDICT_ALLOW },
		{ "169.254.169.254", VERDICT_DENY },
		{ "127.0.0.1", VERDICT_DENY } };
	const struct host h = one_host("a.example");
	struct decision flow, d;
	struct endpoint to;
	struct decide_at at;
	struct one o;
	size_t i;

	(void)state;
	one_rules(&o, "    - {verdict: allow, hostname: a.example, "
	    "ports: any}\n"
	    "    - {verdict: allow, cidr: 10.20.0.0/16, ports: [5432]}\n"
	    "    - {verdict: deny, cidr: 9.9.0.0/16}\n"
	    "    - {verdict: deny, cidr: 9.8.0.0/16, ports: [22]}\n");
	at = one_at(&o);
	assert_true(decide_question(&at, &h, &flow));
	for (i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		to = one_endpoint(t[i].addr, 0);
		d = decide_addr(&at, &flow, &to);
		assert_int_equal(d.verdict, t[i].verdict);
	}
	one_done(&o);
}

static void
a_question_knows_the_private_rule_among_several(void **state)
{
	const struct host h = one_host("a.example");
	struct decision flow;
	struct decide_at at;
	struct one o;

	(void)state;
	one_rules(&o, "    - {verdict: allow, hostname: a.example}\n"
	    "    - {verdict: allow, hostname: a.example, ports: [8443], "
	    "allow_private: true}\n");
	at = one_at(&o);
	assert_true(decide_question(&at, &h, &flow));
	assert_true(flow.allow_private);
	assert_int_equal(flow.rule, 0);
	one_done(&o);
}

static void
ancestors_of_allowed_names_exist(void **state)
{
	struct decide_at at;
	struct host h;
	struct one o;

	(void)state;
	one_rules(&o, "    - {verdict: allow, hostname: a.b.c.example}\n"
	    "    - {verdict: allow, hostname: \"*.w.other\"}\n");
	at = one_at(&o);
	h = one_host("b.c.example");
	assert_true(decide_question_hides(&at, &h));
	h = one_host("c.example");
	assert_true(decide_question_hides(&at, &h));
	h = one_host("a.b.c.example");
	assert_false(decide_question_hides(&at, &h));
	h = one_host("x.c.example");
	assert_false(decide_question_hides(&at, &h));
	h = one_host("w.other");
	assert_true(decide_question_hides(&at, &h));
	h = one_host("other");
	assert_true(decide_question_hides(&at, &h));
	one_done(&o);
}

static void
lab_and_nat64_move_classes(void **state)
{
	struct one o;

	(void)state;
	assert_true(one_make(&o, "network:\n  lab: [203.0.113.0/24]\n"
	    "  nat64: [\"2001:67c:1:2::/96\"]\n  rule:\n"
	    "    - {verdict: allow, hostname: a.example}\n", NULL, NULL, 0));
	NAME_AT(&o, "a.example", 443, "203.0.113.9", "a rule");
	NAME_AT(&o, "a.example", 443, "198.51.100.9", "d special_use");
	NAME_AT(&o, "a.example", 443, "2001:67c:1:2::a00:1",
	    "d private_address");
	NAME_AT(&o, "a.example", 443, "2001:67c:1:2::909:909", "a rule");
	one_done(&o);
}

static void
the_nearest_rule_of_an_address_is_named(void **state)
{
	static const struct {
		const char *addr;
		uint16_t port;
		uint32_t rule;
	} t[] = {
		{ "10.20.1.1", 443, 1 },	/* another port */
		{ "10.21.1.1", 5432, 1 },	/* another address */
		{ "10.30.1.1", 8443, 2 },	/* the nearer of two */
		{ "10.20.1.1", 8443, 1 },	/* the port is nearer */
		{ "192.0.2.1", 5432, RULE_NONE },
		{ "10.21.1.1", 22, RULE_NONE },	/* is off, or a deny */
		{ "::ffff:10.20.1.1", 443, 1 },
		{ "2001:4860::1", 443, 5 },
	};
	struct decide_at at;
	struct endpoint to;
	struct one o;

	(void)state;
	one_rules(&o, "    - {verdict: allow, hostname: a.example}\n"
	    "    - {verdict: allow, cidr: 10.20.0.0/16, ports: [5432]}\n"
	    "    - {verdict: allow, cidr: 10.29.0.0/16, ports: [8443]}\n"
	    "    - {verdict: deny, cidr: 10.21.0.0/16, ports: [22]}\n"
	    "    - {verdict: allow, cidr: 10.22.0.0/16, ports: [22], "
	    "until: 2020-01-01}\n"
	    "    - {verdict: allow, cidr: \"2001:4860::/32\", ports: [53]}\n");
	at = (struct decide_at){ .policy = o.policy, .now_s = NOW_S };
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		assert_true(addr_parse(&to.addr, span_str(t[i].addr)));
		to.port = t[i].port;
		if (decide_nearest_addr(&at, &to) != t[i].rule)
			fail_msg("%s:%u: %d", t[i].addr, t[i].port,
			    (int)decide_nearest_addr(&at, &to));
	}
	one_done(&o);
}

static void
the_nearest_rule_is_named(void **state)
{
	struct decide_at at;
	struct host h;
	struct one o;

	(void)state;
	one_rules(&o, "    - {verdict: allow, hostname: a.example}\n"
	    "    - {verdict: allow, hostname: \"*.b.example\"}\n");
	at = one_at(&o);
	h = one_host("a.example");
	assert_int_equal(decide_nearest(&at, &h), 0);
	h = one_host("www.a.example");
	assert_int_equal(decide_nearest(&at, &h), 0);
	h = one_host("b.example");
	assert_int_equal(decide_nearest(&at, &h), 1);
	h = one_host("z.other");
	assert_int_equal(decide_nearest(&at, &h), RULE_NONE);
	one_done(&o);
}

static void
what_was_not_shown_is_told_and_nothing_else(void **state)
{
	static const struct {
		enum verdict verdict;
		enum reason is, told;
	} t[] = {
		{ VERDICT_DENY, REASON_NAMELESS, REASON_NOT_TLS },
		{ VERDICT_DENY, REASON_NO_RULE, REASON_NOT_TLS },
		{ VERDICT_DENY, REASON_NOT_PINNED, REASON_NOT_TLS },
		{ VERDICT_DENY, REASON_RULE_DENY, REASON_RULE_DENY },
		{ VERDICT_DENY, REASON_CIDR_DENY, REASON_CIDR_DENY },
		{ VERDICT_DENY, REASON_SPECIAL_USE, REASON_SPECIAL_USE },
		{ VERDICT_ALLOW, REASON_NOT_PINNED, REASON_NOT_PINNED },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		struct decision d = { .verdict = t[i].verdict,
		    .reason = t[i].is, .rule = 3 };

		d = decide_told_as(d, REASON_NOT_TLS);
		assert_int_equal(d.verdict, t[i].verdict);
		assert_int_equal(d.reason, t[i].told);
		assert_int_equal(d.rule, 3);
	}
}

static void
where_denied_names_lead_nothing_is_opened(void **state)
{
	const struct endpoint to = one_endpoint("192.0.2.1", 22);
	struct decide_at at = { .now_s = NOW_S };
	struct host a;
	const struct host *const names[] = { &a };
	struct decision d;
	struct one o;

	(void)state;
	a = one_host("a.example");
	one_sinkhole[0] = to.addr;
	/* wide as it is, this rule is not of that class */
	assert_true(one_make(&o, ONE_HEAD "    - {verdict: allow, cidr: "
	    "0.0.0.0/0, ports: any}\n    - {verdict: allow, "
	    "hostname: a.example, ports: [22], protocol: tcp}\n", NULL, NULL,
	    0));
	at.policy = o.policy;
	d = decide_nameless(&at, &to, NULL, 0);
	assert_int_equal(d.verdict, VERDICT_DENY);
	assert_int_equal(d.reason, REASON_SINKHOLE);
	d = decide_nameless(&at, &to, names, 1);
	assert_int_equal(d.reason, REASON_SINKHOLE);
	assert_true(decide_opaque(&at, &to, NULL, 0, &d));
	assert_int_equal(d.reason, REASON_SINKHOLE);
	one_done(&o);
	assert_false(one_make(&o, "version: 1\nnetwork:\n"
	    "  lab: [192.0.2.0/24]\n  rule:\n    - {verdict: allow, "
	    "hostname: a.example}\n", NULL, NULL, 0));
	assert_non_null(strstr(o.said, "p.yaml:3:"));
	assert_non_null(strstr(o.said, "that denied names lead to"));
	one_done(&o);
	assert_false(one_make(&o, ONE_HEAD "    - {verdict: allow, cidr: "
	    "192.0.2.0/28, ports: [22]}\n", NULL, NULL, 0));
	assert_non_null(strstr(o.said, "192.0.2.0/28 holds the address"));
	one_done(&o);
	memset(one_sinkhole, 0, sizeof(one_sinkhole));
}

/* As sets of policy/qtype. */
static void
types_are_opened_by_the_first_rule_that_speaks_of_them(void **state)
{
	static const struct { const char *name, *types; } want[] = {
		{ "a.example", "MX TXT" }, { "sub.b.example", "TXT" },
		{ "off.b.example", "" }, { "late.b.example", "TXT" },
		{ "some.b.example", "TXT" }, { "other.example", "" },
	};
	struct decide_at at = { .now_s = NOW_S };
	char text[QTYPE_TEXT_BYTES];
	struct host h;
	struct one o;

	(void)state;
	assert_true(one_make(&o, ONE_HEAD
	    "    - {verdict: allow, hostname: a.example, dns: [TXT, mx]}\n"
	    "    - {verdict: deny, hostname: off.b.example}\n"
	    "    - {verdict: deny, hostname: late.b.example, until: "
	    "2026-01-01}\n"
	    "    - {verdict: deny, hostname: some.b.example, ports: [22]}\n"
	    "    - {verdict: allow, hostname: \"*.b.example\", dns: TXT}\n",
	    NULL, NULL, 0));
	at.policy = o.policy;
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		h = one_host(want[i].name);
		assert_string_equal(qtype_text(decide_question_types(&at, &h),
		    text), want[i].types);
	}
	one_done(&o);
	assert_false(one_make(&o, ONE_HEAD "    - {verdict: allow, hostname: "
	    "a.example, dns: [A, ANY]}\n", NULL, NULL, 0));
	assert_non_null(strstr(o.said, "no type that a rule can open"));
	one_done(&o);
	assert_false(one_make(&o, ONE_HEAD "    - {verdict: allow, hostname: "
	    "a.example, dns: []}\n", NULL, NULL, 0));
	one_done(&o);
	assert_false(one_make(&o, ONE_HEAD "    - {verdict: deny, hostname: "
	    "a.example, dns: [MX]}\n", NULL, NULL, 0));
	assert_non_null(strstr(o.said, "covers each question"));
	one_done(&o);
	assert_false(one_make(&o, ONE_HEAD "    - {verdict: allow, cidr: "
	    "9.9.9.0/24, dns: [MX]}\n", NULL, NULL, 0));
	assert_non_null(strstr(o.said, "without a name"));
	one_done(&o);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(zero_is_deny_and_no_policy_denies),
		cmocka_unit_test(
		    the_first_rule_that_matches_name_and_port_decides),
		cmocka_unit_test(W18_B071_only_the_ports_of_the_rule_are_open),
		cmocka_unit_test(B01_B03_B06_B07_B076_look_alikes_do_not_pass),
		cmocka_unit_test(B077_wildcards_mean_what_the_manual_says),
		cmocka_unit_test(
		    W16_special_use_addresses_are_refused_for_a_name),
		cmocka_unit_test(W16_a_prefix_deny_refuses_wherever_it_stands),
		cmocka_unit_test(
		    a_catch_all_prefix_opens_public_addresses_only),
		cmocka_unit_test(
	    a_prefix_that_reaches_over_classes_opens_public_addresses_only),
		cmocka_unit_test(own_listeners_are_never_dialled),
		cmocka_unit_test(a_gateway_of_the_host_is_opened_by_no_name),
		cmocka_unit_test(
	an_unmatched_name_at_an_allowed_prefix_is_that_address_alone),
		cmocka_unit_test(
	W17_a_name_deny_before_the_prefix_allow_holds_for_the_nameless),
		cmocka_unit_test(
	B49_B50_B079_every_name_on_a_shared_address_must_be_allowed),
		cmocka_unit_test(B71_W25_an_address_needs_a_prefix_rule),
		cmocka_unit_test(opaque_rules_are_dialled_without_a_look),
		cmocka_unit_test(an_expired_rule_is_switched_off),
		cmocka_unit_test(
		    default_report_passes_only_what_no_rule_matches),
		cmocka_unit_test(a_reporting_rule_is_told_and_not_obeyed),
		cmocka_unit_test(
		    a_question_is_asked_only_when_some_port_is_open),
		cmocka_unit_test(
		    port_0_asks_whether_any_port_is_open_at_an_address),
		cmocka_unit_test(
		    a_question_knows_the_private_rule_among_several),
		cmocka_unit_test(ancestors_of_allowed_names_exist),
		cmocka_unit_test(lab_and_nat64_move_classes),
		cmocka_unit_test(what_was_not_shown_is_told_and_nothing_else),
		cmocka_unit_test(the_nearest_rule_is_named),
		cmocka_unit_test(the_nearest_rule_of_an_address_is_named),
		cmocka_unit_test(where_denied_names_lead_nothing_is_opened),
		cmocka_unit_test(
		    types_are_opened_by_the_first_rule_that_speaks_of_them),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
