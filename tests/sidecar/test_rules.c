/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/rules.h"

#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>
#include <cmocka.h>

static struct rules_spec
shared(void)
{
	struct rules_spec r;

	rules_default(&r, MODE_SHARED);
	r.uids[r.n_uids++] = 1337;
	return r;
}

static struct rules_spec
gateway(const char *interface)
{
	struct rules_spec r;

	rules_default(&r, MODE_GATEWAY);
	snprintf(r.interfaces[r.n_interfaces++], 16, "%s", interface);
	return r;
}

static const char *
text_of(const struct rules_spec *r)
{
	static char text[RULES_TEXT_BYTES];

	assert_true(rules_text(r, text, sizeof(text)) > 0);
	return text;
}

static void
what_cannot_be_enforced_is_refused_with_its_reason(void **state)
{
	struct rules_spec r = shared();
	char why[RULES_WHY_BYTES] = "";

	(void)state;
	assert_true(rules_valid(&r, why, sizeof(why)));
	r.uids[0] = 0;
	assert_false(rules_valid(&r, why, sizeof(why)));
	assert_non_null(strstr(why, "uid 0"));
	r.n_uids = 0;
	assert_false(rules_valid(&r, why, sizeof(why)));
	assert_non_null(strstr(why, "--uid"));
	rules_default(&r, MODE_GATEWAY);
	assert_false(rules_valid(&r, why, sizeof(why)));
	assert_non_null(strstr(why, "--interface"));
	r = shared();
	r.mode = MODE_COOPERATIVE;
	assert_false(rules_valid(&r, why, sizeof(why)));
	r = shared();
	r.tcp_port = 0;
	assert_false(rules_valid(&r, why, sizeof(why)));
}

static void
an_interface_name_cannot_carry_rules(void **state)
{
	static const char *const bad[] = {
		"", "lo", "a b", "a\"b", "x;accept", "a}", "a\nb", "*",
	};
	char why[RULES_WHY_BYTES];
	struct rules_spec r;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		r = gateway(bad[i]);
		assert_false(rules_valid(&r, why, sizeof(why)));
	}
	r = gateway("veth-agent_0.12");
	assert_true(rules_valid(&r, why, sizeof(why)));
}

static void
every_exemption_can_be_renounced(void **state)
{
	struct rules_spec r = shared();
	const char *at;
	size_t n = 0;

	(void)state;
	r.uids[r.n_uids++] = 1338;
	for (at = text_of(&r); (at = strstr(at, "{ 1337, 1338 }")) != NULL;
	    at += 10, n++)
		assert_memory_equal(at, "{ 1337, 1338 } meta priority != 0:6",
		    35);
	assert_int_equal(n, 5);
}

static void
every_rule_says_who_made_it_and_its_name(void **state)
{
	struct rules_spec specs[] = { shared(), gateway("ag0") };

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		const char *line = text_of(&specs[i]);

		for (; *line != '\0'; line += strcspn(line, "\n") + 1) {
			size_t len = strcspn(line, "\n");
			const char *c;

			if (len < 3 || strncmp(line, "\t\t", 2) != 0 ||
			    strncmp(line, "\t\ttype ", 7) == 0)
				continue;
			c = strstr(line, "comment \"penstock "
			    PENSTOCK_VERSION " ");
			assert_non_null(c);
			assert_true((size_t)(c - line) < len);
		}
	}
}

static void
the_last_word_is_drop(void **state)
{
	struct rules_spec r = shared(), g = gateway("ag0");

	(void)state;
	assert_non_null(strstr(text_of(&r),
	    "hook postrouting priority 300; policy drop;"));
	assert_non_null(strstr(text_of(&g),
	    "hook prerouting priority -150; policy drop;"));
	assert_non_null(strstr(text_of(&g),
	    "hook forward priority 0; policy drop;"));
	assert_non_null(strstr(text_of(&g),
	    "hook input priority 0; policy drop;"));
}

static void
ipv6_is_captured_only_when_asked(void **state)
{
	struct rules_spec r = gateway("ag0");

	(void)state;
	assert_null(strstr(text_of(&r), "tproxy ip6"));
	assert_non_null(strstr(text_of(&r), "pre/ipv6"));
	r.ipv6_drop = false;
	assert_non_null(strstr(text_of(&r), "tproxy ip6 to :15001"));
	assert_null(strstr(text_of(&r), "pre/ipv6"));
}

static void
dropped_ipv6_is_told_at_once(void **state)
{
	struct rules_spec specs[] = { shared(), gateway("ag0") };

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		const char *all = text_of(&specs[i]);
		const char *tcp = strstr(all, "meta l4proto tcp reject with "
		    "tcp reset comment");
		const char *rest = strstr(all, "icmpv6 admin-prohibited");

		if (tcp == NULL)
			tcp = strstr(all, "meta l4proto tcp counter reject "
			    "with tcp reset comment");
		assert_non_null(tcp);
		assert_non_null(rest);
		assert_true(tcp < rest);
		specs[i].ipv6_drop = false;
		assert_null(strstr(text_of(&specs[i]), "ipv6-tcp"));
	}
}

static void
offer_at(struct endpoint *e, const char *address, uint16_t port)
{
	static const uint8_t zero[4];

	e->port = port;
	if (strcmp(address, "0.0.0.0") == 0)
		e->addr = addr_from_v4(zero);
	else
		assert_true(addr_parse(&e->addr, span_str(address)));
}

static void
settings_give_ports_uids_and_interfaces(void **state)
{
	struct settings s;
	struct rules_spec r;
	char why[RULES_WHY_BYTES];

	(void)state;
	settings_default(&s, MODE_SHARED);
	rules_from_settings(&r, &s);
	assert_true(rules_valid(&r, why, sizeof(why)));
	assert_int_equal(r.tcp_port, 15001);
	assert_int_equal(r.dns_port, 15053);
	assert_int_equal(r.admin_port, 9901);
	assert_int_equal(r.n_uids, 2);
	assert_int_equal(r.uids[0], s.uid_engine);
	assert_int_equal(r.uids[1], s.uid_resolver);
	assert_int_equal(r.n_offered, 0);
	settings_default(&s, MODE_GATEWAY);
	snprintf(s.interfaces[s.n_interfaces++], 16, "ag7");
	rules_from_settings(&r, &s);
	assert_true(rules_valid(&r, why, sizeof(why)));
	assert_int_equal(r.dns_port, 53);
	assert_non_null(strstr(text_of(&r), "\"ag7\""));
	assert_int_equal(r.n_offered, 2);
	assert_non_null(strstr(text_of(&r), "udp dport { 53 } counter drop"));
	/* nobody comes to loopback from outside */
	offer_at(&s.listeners[2].at, "127.0.0.1", 15080);
	offer_at(&s.dns[0], "10.0.0.1", 53);
	offer_at(&s.dns[1], "10.0.0.1", 5353);
	offer_at(&s.dns[2], "127.0.0.1", 5354);
	s.n_dns = 3;
	rules_from_settings(&r, &s);
	assert_int_equal(r.n_offered, 1);
	assert_non_null(strstr(text_of(&r), "udp dport { 53, 5353 } counter"));
	assert_non_null(strstr(text_of(&r), "tcp dport { 53, 5353, 15001, "
	    "15080 } counter drop"));
}

static void
offer(struct rules_spec *r, const char *address, uint16_t port)
{
	offer_at(&r->offered[r->n_offered], address, port);
}

static bool
says(const struct rules_spec *r, const char *rule)
{
	return strstr(text_of(r), rule) != NULL;
}

/* Each family by itself: what another program serves on the same port of the
 * other one is none of ours to open. */
static void
what_is_offered_is_opened_to_agents_and_shut_to_others(void **state)
{
	struct rules_spec r = gateway("ag0");

	(void)state;
	r.ipv6_drop = false;
	assert_false(says(&r, "inp/offered"));
	assert_false(says(&r, "inp/self"));
	assert_false(says(&r, "inp/elsewhere"));
	offer(&r, "0.0.0.0", 3128);
	r.n_offered++;
	assert_true(says(&r, "\t\tmeta nfproto ipv4 fib daddr type local tcp "
	    "dport { 3128 } accept comment"));
	assert_true(says(&r, "iifname != { \"ag0\" } iifname != \"lo\" tcp "
	    "dport { 53, 15001, 3128 } counter drop comment"));
	assert_true(says(&r, "\t\tiifname \"lo\" tcp dport { 3128 } counter "
	    "reject with tcp reset comment"));
	assert_false(says(&r, "inp/offered6"));
	offer(&r, "::", 3128);
	r.n_offered++;
	assert_true(says(&r, "\t\tmeta nfproto ipv6 fib daddr type local tcp "
	    "dport { 3128 } accept comment"));
	assert_true(says(&r, "dport { 53, 15001, 3128 } counter drop"));
	r.n_offered = 0;
	offer(&r, "fd00::1", 443);
	r.n_offered++;
	assert_true(says(&r, "\t\tip6 daddr . tcp dport { fd00::1 . 443 } fib "
	    "daddr . iif type local accept comment"));
	assert_true(says(&r, "iifname != { \"ag0\" } iifname != \"lo\" ip6 "
	    "daddr . tcp dport { fd00::1 . 443 } fib daddr . iif type != "
	    "local counter drop comment"));
	assert_true(says(&r, "dport { 53, 15001 } counter drop"));
	assert_false(says(&r, "inp/offered-at4"));
	/* closed to agents with the rest of their IPv6, and to others still */
	r.ipv6_drop = true;
	assert_false(says(&r, "inp/offered"));
	assert_true(says(&r, "inp/elsewhere6"));
}

static void
more_than_fits_is_an_error_not_a_shorter_rule_set(void **state)
{
	struct rules_spec r = shared();
	char text[200];

	(void)state;
	assert_int_equal(rules_text(&r, text, sizeof(text)), -ENOSPC);
}

static void
the_longest_rule_set_fits(void **state)
{
	struct rules_spec r = shared();

	(void)state;
	for (; r.n_uids < RULES_UIDS_MAX; r.n_uids++)
		r.uids[r.n_uids] = 4294967294u - (uid_t)r.n_uids;
	for (; r.n_inbound < SETTINGS_INBOUND_MAX; r.n_inbound++)
		r.inbound[r.n_inbound] = (uint16_t)(60000 + r.n_inbound);
	r.admin_port = 9901;
	assert_non_null(strstr(text_of(&r), "60031"));
	rules_default(&r, MODE_GATEWAY);
	while (r.n_interfaces < 8)
		snprintf(r.interfaces[r.n_interfaces++], 16,
		    "interface-0123");
	r.ipv6_drop = false;
	for (int v6 = 0; v6 < 2; v6++) {
		for (r.n_offered = 0; r.n_offered < SETTINGS_LISTENERS_MAX;
		    r.n_offered++)
			offer(&r, v6 ? "2001:db8:1111:2222:3333:4444:5555:6666"
			    : "203.113.113.113",
			    (uint16_t)(65000 + r.n_offered));
		assert_non_null(strstr(text_of(&r), v6 ? ":6666 . 65031 } fib"
		    : ".113 . 65031 } fib"));
		for (size_t i = 0; i < r.n_offered; i++)
			offer_at(&r.offered[i], v6 ? "::" : "0.0.0.0",
			    (uint16_t)(65000 + i));
		assert_non_null(strstr(text_of(&r), "65031 } accept"));
	}
	assert_non_null(strstr(text_of(&r), "forw/rest"));
}

/* ---- in the kernel, in a network of its own ---- */

static bool
own_network(void)
{
	return unshare(CLONE_NEWNET) == 0 ||
	    unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0;
}

/* Somebody else's change. */
static void
nft(const char *cmd)
{
	void *lib = dlopen("libnftables.so.1", RTLD_NOW), *at[3], *ctx;
	void *(*make)(uint32_t);
	int (*run)(void *, const char *);
	void (*end)(void *);

	assert_non_null(lib);
	at[0] = dlsym(lib, "nft_ctx_new");
	at[1] = dlsym(lib, "nft_run_cmd_from_buffer");
	at[2] = dlsym(lib, "nft_ctx_free");
	memcpy(&make, &at[0], sizeof(make));
	memcpy(&run, &at[1], sizeof(run));
	memcpy(&end, &at[2], sizeof(end));
	ctx = make(0);
	assert_non_null(ctx);
	assert_int_equal(run(ctx, cmd), 0);
	end(ctx);
	dlclose(lib);
}

static void
what_was_loaded_is_found_and_what_changed_is_named(void **state)
{
	static const struct {
		const char *cmd, *why;
	} changes[] = {
		{ "add table inet penstock { flags dormant; }",
		    "table inet penstock: switched off" },
		{ "add chain inet penstock more",
		    "table inet penstock: the chain more is not penstock's" },
		{ "add set inet penstock s { type inet_service; }",
		    "table inet penstock: the set s is not penstock's" },
		{ "add rule inet penstock post accept", "table inet penstock, "
		    "chain post, rule 1" },
		{ "add rule inet penstock post accept", "): found 'accept', "
		    "which is not penstock's; expected there: nothing more" },
		{ "insert rule inet penstock post oifname eth0 accept comment "
		    "\"mine\"", "chain post, rule 1 (handle " },
		{ "insert rule inet penstock post oifname eth0 accept comment "
		    "\"mine\"", "): found 'oifname \"eth0\" accept comment "
		    "\"mine\"', which is not penstock's; expected there: "
		    "post/question" },
		{ "add rule inet penstock post accept comment \"penstock 0 "
		    "post/served\"", "found 'accept', which is penstock's of "
		    "another version or of other settings" },
		{ "flush chain inet penstock post", "table inet penstock, "
		    "chain post, rule 1: post/question is missing; expected '" },
		{ "flush chain inet penstock post", "more differences" },
		{ "flush chain inet penstock redir", "chain redir, rule 1: "
		    "redir/exempt is missing; expected 'meta skuid" },
		{ "add chain inet penstock post { policy accept; }",
		    "table inet penstock, chain post: not as loaded: found "
		    "'type filter hook postrouting priority 300; policy "
		    "accept;', expected 'type filter hook postrouting priority "
		    "300; policy drop;'" },
		{ "delete table inet penstock", "no table inet penstock" },
	};
	struct rules_spec r = shared();
	char why[RULES_WHY_BYTES] = "";
	int rc;

	(void)state;
	if (!own_network())
		skip();
	rc = rules_apply(&r, why, sizeof(why));
	if (rc == -ENOPKG)
		skip();
	assert_string_equal(why, "");
	assert_int_equal(rc, 0);
	for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
		assert_int_equal(rules_check(&r, why, sizeof(why)), 0);
		nft(changes[i].cmd);
		assert_int_not_equal(rules_check(&r, why, sizeof(why)), 0);
		if (strstr(why, changes[i].why) == NULL)
			assert_string_equal(why, changes[i].why);
		assert_int_equal(rules_apply(&r, why, sizeof(why)), 0);
	}
	assert_int_equal(rules_remove(why, sizeof(why)), 0);
	assert_int_equal(rules_check(&r, why, sizeof(why)), -ENOENT);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
		    what_cannot_be_enforced_is_refused_with_its_reason),
		cmocka_unit_test(an_interface_name_cannot_carry_rules),
		cmocka_unit_test(every_exemption_can_be_renounced),
		cmocka_unit_test(every_rule_says_who_made_it_and_its_name),
		cmocka_unit_test(the_last_word_is_drop),
		cmocka_unit_test(ipv6_is_captured_only_when_asked),
		cmocka_unit_test(dropped_ipv6_is_told_at_once),
		cmocka_unit_test(settings_give_ports_uids_and_interfaces),
		cmocka_unit_test(
		    what_is_offered_is_opened_to_agents_and_shut_to_others),
		cmocka_unit_test(
		    more_than_fits_is_an_error_not_a_shorter_rule_set),
		cmocka_unit_test(the_longest_rule_set_fits),
		cmocka_unit_test(
		    what_was_loaded_is_found_and_what_changed_is_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
