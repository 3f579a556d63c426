/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "sidecar/change.h"

/* One policy file as the only file of each of the cells named. */
static const char *file_lines;	/* of names.txt */

static int
read_file(void *arg, const char *name,
    int (*take)(void *to, struct span piece), void *to)
{
	(void)arg;
	(void)name;
	return take(to, span_str(file_lines));
}

static struct policy *
policy_of(const char *rules, const char *const *cells, size_t n)
{
	struct policy_cell_source source[2] = { 0 };
	struct policy_source all = { .cells = source, .n_cells = n,
	    .generation = 1, .now_s = 1000 };
	struct problems *ps = problem_new();
	const struct charter_reader reader = { .read = read_file };
	char text[1024];
	struct charter *c;
	struct policy *p;
	uint8_t *image;
	size_t len;

	snprintf(text, sizeof(text), "version: 1\nnetwork:\n"
	    "  default: deny\n  resolvers: [9.9.9.9]\n  rule:\n%s", rules);
	c = charter_load("p.yaml", span_str(text), true, &reader, ps);
	assert_non_null(c);
	for (size_t i = 0; i < n; i++) {
		snprintf(source[i].id, sizeof(source[i].id), "%s", cells[i]);
		source[i].from.kind = CELL_FROM_LISTENER;
		snprintf(source[i].from.listener,
		    sizeof(source[i].from.listener), "%s", cells[i]);
		source[i].charters = (const struct charter *const *)&c;
		source[i].n_charters = 1;
	}
	assert_int_equal(policy_build(&all, &image, &len, ps), 0);
	assert_int_equal(policy_open(&p, span_of(image, len)), 0);
	charter_free(c);
	problem_free(ps);
	return p;
}

static void
forget(struct policy *p)
{
	struct span image = policy_image(p);

	policy_free(p);
	free((void *)(uintptr_t)image.data);
}

struct said {
	char text[2048];
};

static void
say(void *arg, const char *line)
{
	struct said *s = arg;
	size_t at = strlen(s->text);

	snprintf(s->text + at, sizeof(s->text) - at, "%s\n", line);
}

#define A "    - {verdict: allow, hostname: a.example, ports: [443]}\n"
#define B "    - {verdict: allow, hostname: b.example, ports: [443]}\n"

static void
a_rule_that_came_and_one_that_went_are_told(void **state)
{
	static const char *const cells[] = { "one" };
	struct policy *before = policy_of(A, cells, 1);
	struct policy *after = policy_of(B, cells, 1);
	struct said s = { "" };
	struct change_count n = change_find(before, after, say, &s);

	(void)state;
	assert_int_equal(n.rules_added, 1);
	assert_int_equal(n.rules_removed, 1);
	assert_non_null(strstr(s.text, "+ cell one rule "));
	assert_non_null(strstr(s.text, "allow b.example"));
	assert_non_null(strstr(s.text, "- cell one rule "));
	forget(before);
	forget(after);
}

/* The first that matches decides, so their order is what they say. */
static void
rules_that_moved_are_told(void **state)
{
	static const char *const cells[] = { "one" };
	struct policy *before = policy_of(A B, cells, 1);
	struct policy *after = policy_of(B A, cells, 1);
	struct said s = { "" };
	struct change_count n = change_find(before, after, say, &s);

	(void)state;
	assert_int_equal(n.rules_added + n.rules_removed, 0);
	assert_int_equal(n.orders, 1);
	assert_string_equal(s.text, "~ cell one rules stand in another "
	    "order\n");
	forget(before);
	forget(after);
}

/* A rule that stands in between is no other order. */
static void
a_rule_between_two_moves_none(void **state)
{
	static const char *const cells[] = { "one" };
	struct policy *before = policy_of(A B, cells, 1);
	struct policy *after = policy_of(A
	    "    - {verdict: allow, hostname: c.example}\n" B, cells, 1);
	struct change_count n = change_find(before, after, NULL, NULL);

	(void)state;
	assert_int_equal(n.rules_added, 1);
	assert_int_equal(n.orders + n.rules_changed + n.keys, 0);
	forget(before);
	forget(after);
}

#define NAMED(verdict, rest) "    - {verdict: " verdict ", id: x, " rest "}\n"

static void
what_a_rule_of_the_same_id_says_otherwise_is_told(void **state)
{
	static const char *const cells[] = { "one" };
	static const struct {
		const char *rule, *told;
	} t[] = {
		{ NAMED("allow", "hostname: a.example, ports: [443, 8443]"),
		    "other ports 443, 8443, before 443" },
		{ NAMED("allow", "hostname: c.example, ports: [443]"),
		    "allow c.example: other what it names" },
		{ NAMED("deny", "hostname: a.example, ports: [443]"),
		    "deny a.example: other verdict" },
		{ NAMED("allow", "hostname: a.example, ports: [443], "
		    "allow_private: true"), "other allow_private" },
		{ NAMED("allow", "hostname: a.example, ports: [443], "
		    "until: 2030-01-01, owner: me, reason: why"),
		    "other until, reason, owner" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		char rules[512];
		struct policy *before = policy_of(NAMED("allow",
		    "hostname: a.example, ports: [443]") B, cells, 1);
		struct policy *after;
		struct said s = { "" };
		struct change_count n;

		snprintf(rules, sizeof(rules), "%s%s", t[i].rule, B);
		after = policy_of(rules, cells, 1);
		n = change_find(before, after, say, &s);
		assert_int_equal(n.rules_changed, 1);
		assert_int_equal(n.rules_added + n.rules_removed + n.orders,
		    0);
		assert_non_null(strstr(s.text, "~ cell one rule x: "));
		if (strstr(s.text, t[i].told) == NULL)
			fail_msg("no %s in %s", t[i].told, s.text);
		forget(before);
		forget(after);
	}
}

static void
keys_beside_the_rules_are_told(void **state)
{
	static const char *const cells[] = { "one" };
	static const char *const keys[][2] = {
		{ "  help: ask\n", "help differs" },
		{ "  no_sni: pinned-ip\n", "no_sni: pinned-ip" },
		{ "  ech: deny\n", "ech: deny" },
		{ "  lab: [203.0.113.0/24]\n", "lab differs" },
		{ "  nat64: [\"2001:db8::/96\"]\n", "nat64 differs" },
		{ "  enforce: cooperative\n", "enforce: cooperative" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		char rules[512];
		struct policy *before = policy_of(A, cells, 1), *after;
		struct said s = { "" };
		struct change_count n;

		snprintf(rules, sizeof(rules), "%s%s", A, keys[i][0]);
		after = policy_of(rules, cells, 1);
		n = change_find(before, after, say, &s);
		assert_int_equal(n.keys, 1);
		assert_int_equal(n.rules_changed, 0);
		if (strstr(s.text, keys[i][1]) == NULL)
			fail_msg("no %s in %s", keys[i][1], s.text);
		forget(before);
		forget(after);
	}
}

static void
cells_that_come_and_go_are_told(void **state)
{
	static const char *const old[] = { "one", "two" };
	static const char *const new[] = { "two", "three" };
	struct policy *before = policy_of(A, old, 2);
	struct policy *after = policy_of(A, new, 2);
	struct said s = { "" };
	struct change_count n = change_find(before, after, say, &s);

	(void)state;
	assert_int_equal(n.cells_added, 1);
	assert_int_equal(n.cells_removed, 1);
	assert_non_null(strstr(s.text, "+ cell three is new"));
	assert_non_null(strstr(s.text, "- cell one is gone"));
	forget(before);
	forget(after);
}

#define FILE_RULE "    - {verdict: allow, hostnames_file: names.txt}\n"

/* The rule's id is that of the file's name: what its lines say is compared
 * line by line. */
static void
names_that_a_file_gained_and_lost_are_told(void **state)
{
	static const char *const cells[] = { "one" };
	struct policy *before, *after, *again;
	struct change_count n;
	struct said s = { "" };

	(void)state;
	file_lines = "a.example\n*.b.example\nc.example\n";
	before = policy_of(A FILE_RULE, cells, 1);
	file_lines = "c.example\nb.example\n.n1.example\n*.n2.example\n"
	    "n3.example\nc.example\n";
	after = policy_of(FILE_RULE A, cells, 1);
	again = policy_of(FILE_RULE A, cells, 1);
	n = change_find(before, after, say, &s);
	assert_int_equal(n.names_added, 4);
	assert_int_equal(n.names_removed, 2);
	assert_int_equal(n.rules_added + n.rules_removed, 0);
	assert_int_equal(n.orders, 1);
	assert_non_null(strstr(s.text, "~ cell one rule "));
	assert_non_null(strstr(s.text, "file names.txt: 4 names added ("));
	assert_non_null(strstr(s.text, " ...), 2 removed ("));
	assert_non_null(strstr(s.text, "*.b.example"));
	assert_non_null(strstr(s.text, "a.example"));
	s.text[0] = '\0';
	n = change_find(after, again, say, &s);
	assert_int_equal(n.names_added + n.names_removed, 0);
	assert_string_equal(s.text, "");
	forget(before);
	forget(after);
	forget(again);
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_rule_that_came_and_one_that_went_are_told),
		cmocka_unit_test(rules_that_moved_are_told),
		cmocka_unit_test(a_rule_between_two_moves_none),
		cmocka_unit_test(
		    what_a_rule_of_the_same_id_says_otherwise_is_told),
		cmocka_unit_test(keys_beside_the_rules_are_told),
		cmocka_unit_test(cells_that_come_and_go_are_told),
		cmocka_unit_test(names_that_a_file_gained_and_lost_are_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
