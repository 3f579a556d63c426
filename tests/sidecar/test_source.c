/* SPDX-License-Identifier: Apache-2.0 */
/* The verbs that only read: what they take, and what they exit with. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "policy/decide.h"
#include "sidecar/source.h"
#include "sidecar/verb.h"

static char dir[] = "/tmp/penstock-source-XXXXXX";
static char out[1 << 16];

#define FROM(mode, cidr) "version: 1\nmode: " mode "\ncells:\n" \
	"  - {id: one, policy: [less.yaml], from: {cidr: " cidr "}}\n"
#define RULES(more) "version: 1\nnetwork:\n  default: deny\n" \
	"  resolvers: [192.0.2.53]\n  rule:\n" \
    "    - {verdict: allow, hostname: a.example}\n" more

static void
put(const char *name, const char *text)
{
	char path[256];
	FILE *f;

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "w");
	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

/* Run a verb in the directory; what it prints lands in `out`. */
static int
run(int (*verb)(int, char **), const char *a, const char *b, const char *c,
    const char *d)
{
	char *argv[6] = { (char *)(uintptr_t)"verb", (char *)(uintptr_t)a,
	    (char *)(uintptr_t)b, (char *)(uintptr_t)c,
	    (char *)(uintptr_t)d, NULL };
	int argc = 1, rc, saved, saved_err;
	size_t n;
	FILE *f = tmpfile();

	while (argv[argc] != NULL)
		argc++;
	assert_non_null(f);
	assert_int_equal(chdir(dir), 0);
	(void)fflush(NULL);
	saved = dup(1);
	saved_err = dup(2);
	assert_true(dup2(fileno(f), 1) == 1 && dup2(fileno(f), 2) == 2);
	optind = 0;
	rc = verb(argc, argv);
	(void)fflush(NULL);
	assert_true(dup2(saved, 1) == 1 && dup2(saved_err, 2) == 2);
	(void)close(saved);
	(void)close(saved_err);
	rewind(f);
	n = fread(out, 1, sizeof(out) - 1, f);
	out[n] = '\0';
	(void)fclose(f);
	return rc;
}

static int
set_up(void **state)
{
	(void)state;
	if (mkdtemp(dir) == NULL)
		return -1;
	put("old.yaml", RULES("    - {verdict: allow, hostname: b.example}\n"
	    "expect: [{allow: a.example}, {deny: c.example}]\n"));
	put("less.yaml", RULES("expect: [{allow: b.example}]\n"));
	put("more.yaml", RULES("    - {verdict: allow, hostname: b.example, "
	    "ports: [80, 443, 8443]}\n"));
	put("private.yaml", RULES("    - {verdict: allow, "
	    "hostname: b.example, allow_private: true}\n"));
	put("bad.yaml", "network:\n  default: allow\n");
	put("team.yaml", "network:\n  rule:\n"
	    "    - {verdict: allow, hostname: team.example}\n");
	put("names.yaml", "network:\n  rule:\n"
	    "    - {verdict: allow, hostnames_file: names.txt}\n");
	put("names.txt", "n.example\n*.m.example\n");
	put("penstock.yaml", "version: 1\nmode: cooperative\ncells:\n"
	    "  - {id: one, policy: [less.yaml, team.yaml]}\n");
	put("all.yaml", RULES("    - {verdict: allow, hostname: b.example}\n"
	    "    - {verdict: allow, cidr: 0.0.0.0/0, ports: [22]}\n"));
	put("six.yaml", RULES("    - {verdict: allow, hostname: b.example}\n"
	    "    - {verdict: allow, cidr: \"2001::/16\", ports: [22]}\n"));
	put("some.yaml", FROM("cooperative", "10.1.0.0/24"));
	put("many.yaml", FROM("cooperative", "10.0.0.0/8"));
	put("away.yaml", FROM("cooperative", "10.9.0.0/24"));
	put("mode.yaml", FROM("shared", "10.1.0.0/24"));
	return 0;
}

static int
tear_down(void **state)
{
	static const char *const names[] = { "old.yaml", "less.yaml",
	    "more.yaml", "private.yaml", "bad.yaml", "team.yaml",
	    "names.yaml", "names.txt", "penstock.yaml", "all.yaml",
	    "six.yaml", "some.yaml", "many.yaml", "away.yaml", "mode.yaml" };
	size_t i;

	(void)state;
	if (chdir(dir) != 0)
		return -1;
	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		(void)unlink(names[i]);
	return chdir("/") != 0 || rmdir(dir) != 0 ? -1 : 0;
}

static void
check_says_good_or_what_is_wrong(void **state)
{
	(void)state;
	assert_int_equal(run(verb_check, "old.yaml", NULL, NULL, NULL), 0);
	assert_non_null(strstr(out, "a.example"));
	assert_int_equal(run(verb_check, "bad.yaml", NULL, NULL, NULL), 78);
	assert_non_null(strstr(out, "bad.yaml:2:"));
	assert_int_equal(run(verb_check, "nosuch", NULL, NULL, NULL), 1);
	assert_int_equal(run(verb_check, "-", NULL, NULL, NULL), 1);
	assert_non_null(strstr(out, "it is no regular file; write a policy"));
	assert_int_equal(run(verb_check, "--nosuch", NULL, NULL, NULL), 2);
	assert_int_equal(run(verb_check, "penstock.yaml", NULL, NULL, NULL),
	    0);
	assert_non_null(strstr(out, "team.example"));
	assert_int_equal(run(verb_check, "names.yaml", NULL, NULL, NULL), 0);
	assert_non_null(strstr(out,
	    "*.m.example matches a.m.example, not m.example"));
}

static void
explain_exits_0_for_allow_and_10_for_deny(void **state)
{
	(void)state;
	assert_int_equal(run(verb_explain, "-c", "old.yaml", "a.example",
	    NULL), 0);
	assert_int_equal(run(verb_explain, "-c", "old.yaml", "a.example:22",
	    NULL), 10);
	assert_non_null(strstr(out, "nearest: rule 1"));
	assert_int_equal(run(verb_explain, "-c", "old.yaml", "--ip=10.0.0.1",
	    "a.example"), 10);
	assert_non_null(strstr(out, "private_address"));
	assert_int_equal(run(verb_explain, "-c", "old.yaml", "9.9.9.9:443",
	    NULL), 10);
	assert_int_equal(run(verb_explain, "-c", "penstock.yaml",
	    "team.example", NULL), 0);
	assert_int_equal(run(verb_explain, "-c", "penstock.yaml",
	    "--cell=two", "team.example"), 69);
	assert_int_equal(run(verb_explain, "-c", "old.yaml", "a b", NULL), 2);
	assert_int_equal(run(verb_explain, "-c", "bad.yaml", "a.example",
	    NULL), 78);
}

static void
diff_tells_wider_from_narrower(void **state)
{
	(void)state;
	assert_int_equal(run(verb_diff, "old.yaml", "old.yaml", NULL, NULL),
	    0);
	assert_int_equal(run(verb_diff, "old.yaml", "less.yaml", NULL, NULL),
	    12);
	assert_non_null(strstr(out, "- b.example:443"));
	assert_int_equal(run(verb_diff, "less.yaml", "old.yaml", NULL, NULL),
	    10);
	assert_non_null(strstr(out, "+ b.example:443"));
	assert_int_equal(run(verb_diff, "old.yaml", "more.yaml", NULL, NULL),
	    10);
	assert_non_null(strstr(out, "+ b.example:8443"));
	assert_int_equal(run(verb_diff, "old.yaml", "private.yaml", NULL,
	    NULL), 10);
	assert_int_equal(run(verb_diff, "private.yaml", "old.yaml", NULL,
	    NULL), 12);
	assert_int_equal(run(verb_diff, "names.yaml", "less.yaml", NULL,
	    NULL), 10);
	assert_non_null(strstr(out, "- *.m.example:443"));
	/* A failed diff does not read as narrower. */
	assert_int_equal(run(verb_diff, "old.yaml", "bad.yaml", NULL, NULL),
	    78);
	assert_int_equal(run(verb_diff, "old.yaml", "nosuch", NULL, NULL), 1);
	assert_int_equal(run(verb_diff, "old.yaml", NULL, NULL, NULL), 2);
}

/* A prefix whose first address is none that is ever dialled. */
static void
diff_looks_within_a_prefix(void **state)
{
	(void)state;
	assert_int_equal(run(verb_diff, "old.yaml", "all.yaml", NULL, NULL),
	    10);
	assert_non_null(strstr(out, "+ 203.0.114.0:22"));
	assert_int_equal(run(verb_diff, "all.yaml", "old.yaml", NULL, NULL),
	    12);
	assert_int_equal(run(verb_diff, "all.yaml", "all.yaml", NULL, NULL),
	    0);
	assert_int_equal(run(verb_diff, "old.yaml", "six.yaml", NULL, NULL),
	    10);
	assert_non_null(strstr(out, "+ [2001:db9::]:22"));
	/* something goes, something comes */
	assert_int_equal(run(verb_diff, "all.yaml", "six.yaml", NULL, NULL),
	    10);
}

static void
diff_tells_whose_policy_it_is(void **state)
{
	(void)state;
	assert_int_equal(run(verb_diff, "some.yaml", "some.yaml", NULL, NULL),
	    0);
	assert_int_equal(run(verb_diff, "some.yaml", "many.yaml", NULL, NULL),
	    10);
	assert_non_null(strstr(out, "+ cell one: from differs"));
	assert_int_equal(run(verb_diff, "many.yaml", "some.yaml", NULL, NULL),
	    12);
	assert_int_equal(run(verb_diff, "some.yaml", "away.yaml", NULL, NULL),
	    10);
	assert_int_equal(run(verb_diff, "some.yaml", "mode.yaml", NULL, NULL),
	    10);
	assert_non_null(strstr(out, "+ mode: differs"));
}

static void
test_compares_rules_with_expectations(void **state)
{
	(void)state;
	assert_int_equal(run(verb_test, "old.yaml", NULL, NULL, NULL), 0);
	assert_non_null(strstr(out, "1..2\n"));
	assert_int_equal(run(verb_test, "less.yaml", NULL, NULL, NULL), 1);
	assert_non_null(strstr(out, "not ok 1 - allow b.example"));
	assert_int_equal(run(verb_test, "more.yaml", NULL, NULL, NULL), 1);
	assert_int_equal(run(verb_test, "bad.yaml", NULL, NULL, NULL), 78);
}

/* The keys that a schema names below a path of objects. */
static void
schema_has(const char *which, const char *table, const char *const *keys)
{
	json_t *root, *at;
	size_t i;

	assert_int_equal(run(verb_schema, which, NULL, NULL, NULL), 0);
	root = json_loads(out, 0, NULL);
	assert_non_null(root);
	at = table == NULL ? root :
	    json_object_get(json_object_get(root, "$defs"), table);
	at = json_object_get(at, "properties");
	for (i = 0; keys[i] != NULL; i++)
		if (json_object_get(at, keys[i]) == NULL)
			fail_msg("%s: %s is missing", which, keys[i]);
	assert_int_equal(json_object_size(at), i);
	json_decref(root);
}

/* A file of names is one beneath the directory, whoever reads it, and of
 * another nothing is told. */
static void
a_list_outside_the_directory_is_not_opened(void **state)
{
	static const char *const lists[] = { "../penstock-test-secret.txt", "/etc/passwd",
	    "out.txt", "../../../../../../etc/passwd" };
	static const char *const files[] = { "list.yaml", "lists.yaml" };
	char text[512], link[128], secret[] = "/tmp/penstock-test-secret.txt";
	FILE *f = fopen(secret, "w");

	(void)state;
	assert_non_null(f);
	assert_true(fputs("root:x:0:0\n", f) >= 0 && fclose(f) == 0);
	(void)snprintf(link, sizeof(link), "%s/out.txt", dir);
	assert_int_equal(symlink(secret, link), 0);
	put("lists.yaml", "version: 1\nmode: cooperative\ncells:\n"
	    "  - {id: one, policy: [list.yaml]}\n");
	for (size_t i = 0; i < 4; i++) {
		(void)snprintf(text, sizeof(text), "version: 1\nnetwork:\n"
		    "  resolvers: [9.9.9.9]\n  rule:\n    - {verdict: allow, "
		    "hostnames_file: \"%s\"}\n", lists[i]);
		put("list.yaml", text);
		for (size_t k = 0; k < 2; k++) {
			assert_int_equal(run(verb_check, files[k], NULL,
			    NULL, NULL), EXIT_CONFIG);
			assert_non_null(strstr(out, "list.yaml:5:"));
			assert_non_null(strstr(out, "leads out of the "
			    "directory and is not opened; put the file "
			    "beneath"));
			assert_null(strstr(out, "root"));
		}
	}
	for (size_t k = 0; k < 2; k++) {
		(void)snprintf(text, sizeof(text), "%s/%s", dir, files[k]);
		assert_int_equal(unlink(text), 0);
	}
	assert_int_equal(unlink(link) + unlink(secret), 0);
}

static void
the_schemas_name_every_key(void **state)
{
	static const char *const network[] = { "default", "report_until",
	    "enforce", "resolvers", "rule", "help", "no_sni", "ech", "lab",
	    "nat64", NULL };
	static const char *const rule[] = { "verdict", "hostname", "cidr",
	    "hostnames_file", "ports", "protocol", "id", "owner", "reason",
	    "until", "force", "allow_private", "dns", "report", NULL };
	static const char *const config[] = { "version", "mode", "listeners",
	    "dns", "interfaces", "cells", "inbound", "ipv6", "limits",
	    "engines", "ledger", "admin", "users", "drain_timeout",
	    "reload_grace", "log", "instance", NULL };

	(void)state;
	schema_has("policy", "network", network);
	schema_has("policy", "rule", rule);
	schema_has("config", NULL, config);
	assert_int_equal(run(verb_schema, "other", NULL, NULL, NULL), 2);
}

static void
a_target_is_a_name_or_an_address_with_or_without_a_port(void **state)
{
	static const char *const bad[] = { "", ":443", "a b", "a.example:0",
	    "a.example:65536", "a.example:x", "[::1", "[::1]443",
	    "1.2.3.4:99999", "https://a.example" };
	struct host h;
	struct addr a;
	uint16_t port = 7;
	size_t i;

	(void)state;
	assert_true(source_target("A.Example", &h, &a, &port));
	assert_string_equal(h.name, "a.example");
	assert_int_equal(port, 7);
	assert_true(source_target("a.example:22", &h, &a, &port));
	assert_int_equal(port, 22);
	assert_true(source_target("[2001:db8::1]:23", &h, &a, &port));
	assert_int_equal(h.len, 0);
	assert_int_equal(port, 23);
	assert_true(source_target("2001:db8::1", &h, &a, &port));
	assert_true(source_target("1.2.3.4:24", &h, &a, &port));
	assert_int_equal(h.len, 0);
	assert_int_equal(port, 24);
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (source_target(bad[i], &h, &a, &port))
			fail_msg("%s is taken", bad[i]);
}

/* ---- diff, held against all that a small world can ask ---- */

static uint32_t seed = 7;

static unsigned
dice(unsigned n)
{
	seed = seed * 1664525u + 1013904223u;
	return seed >> 16 & 0x7fff ? (seed >> 16 & 0x7fff) % n : 0;
}

static void
random_rule(char *to, size_t size)
{
	static const char *const subject[] = { "hostname: a.example",
	    "hostname: b.example", "hostname: \"*.example\"",
	    "hostname: .b.example", "cidr: 9.0.0.0/8", "cidr: 9.1.0.0/16",
	    "cidr: 10.0.0.0/8", "cidr: 0.0.0.0/0", "cidr: 10.1.0.1",
	    "hostname: c.test" };
	static const char *const ports[] = { "", ", ports: [443]",
	    ", ports: [22]", ", ports: [22, 443]", ", ports: any" };
	const char *what = subject[dice(10)];
	bool allow = dice(3) > 0, name = what[0] == 'h';

	(void)snprintf(to, size, "    - {verdict: %s, %s%s%s%s}\n",
	    allow ? "allow" : "deny", what, ports[dice(5)],
	    allow && name && dice(5) == 0 ? ", allow_private: true" : "",
	    allow && name && what[10] != '"' && what[10] != '.' &&
	    dice(6) == 0 ? ", protocol: tcp" : "");
}

/* A few rules; the second policy is the first with one changed. */
static void
random_policies(void)
{
	char rules[2][5][160], text[2][1024];
	size_t n = 2 + dice(3), i;
	int side;

	for (i = 0; i < n; i++) {
		random_rule(rules[0][i], sizeof(rules[0][i]));
		memcpy(rules[1][i], rules[0][i], sizeof(rules[0][i]));
	}
	i = dice((unsigned)n);
	if (dice(3) == 0)
		memcpy(rules[1][i], rules[0][n - 1], sizeof(rules[0][0]));
	else
		random_rule(rules[1][i], sizeof(rules[0][0]));
	for (side = 0; side < 2; side++) {
		(void)snprintf(text[side], sizeof(text[side]), "version: 1\n"
		    "network:\n  default: deny\n  resolvers: "
		    "[192.0.2.53]\n  rule:\n    - {verdict: allow, "
		    "hostname: x.invalid, ports: [1]}\n");
		for (i = 0; i < n; i++)
			strcat(text[side], rules[side][i]);
		put(side == 0 ? "r0.yaml" : "r1.yaml", text[side]);
	}
}

static unsigned
bits_of(const struct decision *d)
{
	return d->verdict != VERDICT_ALLOW ? 0 : 1u |
	    (d->allow_private ? 2u : 0) | (d->opaque ? 4u : 0);
}

/* What both permit, of each question: bits that only one has. */
static void
world_compare(const struct source *const s[2], bool *wider, bool *narrower)
{
	static const char *const names[] = { "a.example", "b.example",
	    "x.example", "y.b.example", "c.test", "z.test" };
	static const char *const addrs[] = { "9.1.2.3", "9.2.0.1",
	    "10.1.0.1", "10.2.0.1", "8.8.8.8" };
	static const uint16_t ports[] = { 22, 80, 443, 9000 };
	struct decide_at at[2];
	struct host h[6];
	const struct host *pins[2];
	struct endpoint to;
	struct decision d;
	unsigned x[2][4];
	int side;

	for (size_t i = 0; i < 6; i++)
		assert_int_equal(host_parse(&h[i], span_str(names[i])),
		    REASON_NONE);
	for (side = 0; side < 2; side++)
		at[side] = (struct decide_at){ .policy = source_policy(
		    s[side]), .now_s = 1800000000 };
	for (size_t i = 0; i < 6; i++)
	for (size_t k = 0; k < 6; k++)
	for (size_t a = 0; a < 5; a++)
	for (size_t p = 0; p < 4; p++) {
		to.port = ports[p];
		assert_true(addr_parse(&to.addr, span_str(addrs[a])));
		pins[0] = &h[i];
		pins[1] = &h[k];
		for (side = 0; side < 2; side++) {
			d = decide_nameless(&at[side], &to, NULL, 0);
			x[side][0] = bits_of(&d);
			d = decide_nameless(&at[side], &to, pins,
			    i == k ? 1 : 2);
			x[side][1] = bits_of(&d);
			d = decide_name(&at[side], &h[i], to.port, NULL);
			d = decide_addr(&at[side], &d, &to);
			x[side][2] = bits_of(&d);
			d = decide_name(&at[side], &h[i], to.port, &to);
			d = decide_addr(&at[side], &d, &to);
			x[side][3] = bits_of(&d);
		}
		for (size_t q = 0; q < 4; q++) {
			*wider |= (x[1][q] & ~x[0][q]) != 0;
			*narrower |= (x[0][q] & ~x[1][q]) != 0;
		}
	}
}

static void
diff_never_says_less_than_was_opened(void **state)
{
	unsigned compared = 0, wide = 0;

	(void)state;
	assert_int_equal(chdir(dir), 0);
	for (unsigned i = 0; i < 400; i++) {
		struct source *s[2] = { NULL, NULL };
		struct problems *ps = problem_new();
		bool wider = false, narrower = false;
		int rc;

		random_policies();
		if (source_open(&s[0], "r0.yaml", 1800000000, ps) == 0 &&
		    source_open(&s[1], "r1.yaml", 1800000000, ps) == 0) {
			world_compare((const struct source *const *)s, &wider,
			    &narrower);
			rc = run(verb_diff, "r0.yaml", "r1.yaml", NULL, NULL);
			if (wider ? rc != 10 : narrower && rc != 10 &&
			    rc != 12)
				fail_msg("round %u: %d, wider %d, narrower "
				    "%d: %s", i, rc, wider, narrower, out);
			compared++;
			wide += wider;
		}
		source_free(s[0]);
		source_free(s[1]);
		problem_free(ps);
	}
	assert_true(compared > 60 && wide > 20);
	(void)unlink("r0.yaml");
	(void)unlink("r1.yaml");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(check_says_good_or_what_is_wrong),
		cmocka_unit_test(explain_exits_0_for_allow_and_10_for_deny),
		cmocka_unit_test(diff_tells_wider_from_narrower),
		cmocka_unit_test(diff_looks_within_a_prefix),
		cmocka_unit_test(diff_tells_whose_policy_it_is),
		cmocka_unit_test(diff_never_says_less_than_was_opened),
		cmocka_unit_test(test_compares_rules_with_expectations),
		cmocka_unit_test(a_list_outside_the_directory_is_not_opened),
		cmocka_unit_test(the_schemas_name_every_key),
		cmocka_unit_test(
		    a_target_is_a_name_or_an_address_with_or_without_a_port),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
