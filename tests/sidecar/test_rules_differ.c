/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/rules_differ.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

static char why[512];

/* "c" a chain, "c:a" rule a in it, "c:" one without a comment; a digit behind
 * it is what it says. */
static json_t *
list_of(const char *words)
{
	json_t *all = json_pack("[{s:{}}, {s:{s:s}}]", "metainfo", "table",
	    "name", "penstock");
	char copy[256], *save, name[32], *colon;
	int handle = 0;

	snprintf(copy, sizeof(copy), "%s", words);
	for (char *w = strtok_r(copy, " ", &save); w != NULL;
	    w = strtok_r(NULL, " ", &save)) {
		char *says = w + strcspn(w, "0123456789");
		json_t *in = json_pack("{s:i, s:s, s:s, s:{s:i}}", "handle",
		    handle + 1, "table", "t", "says", says, "counter",
		    "packets", handle);

		handle++;
		*says = '\0';
		colon = strchr(w, ':');
		if (colon == NULL) {
			json_object_set_new(in, "name", json_string(w));
			json_array_append_new(all, json_pack("{s:o}", "chain",
			    in));
			continue;
		}
		*colon = '\0';
		snprintf(name, sizeof(name), "penstock 1 %s/%s", w, colon + 1);
		json_object_set_new(in, "chain", json_string(w));
		if (colon[1] != '\0')
			json_object_set_new(in, "comment", json_string(name));
		json_array_append_new(all, json_pack("{s:o}", "rule", in));
	}
	return all;
}

static bool
differ(const char *have, const char *want)
{
	json_t *h = list_of(have), *w = list_of(want);
	struct rules_difference d;
	bool differs = rules_differ(h, w, &d);

	why[0] = '\0';
	if (differs)
		rules_differ_text(&d, "is", "should", why, sizeof(why));
	json_decref(h);
	json_decref(w);
	return differs;
}

static void
what_is_the_same_but_for_handles_and_counts_is_the_same(void **state)
{
	(void)state;
	assert_false(differ("a b a:x1 b:y2", "a b a:x1 b:y2"));
	/* rules come last, wherever they are listed */
	assert_false(differ("a a:x b b:y", "a b a:x b:y"));
	assert_false(differ("", ""));
}

static void
each_difference_is_told_with_its_place(void **state)
{
	static const struct { const char *have, *want, *why; } t[] = {
		{ "a a:x a:y", "a a:x", "chain a, rule 2 (handle 3): found "
		    "'is', which is penstock's of another version or of other "
		    "settings; expected there: nothing more" },
		{ "a a: a:x", "a a:x", "table inet penstock, chain a, rule 1 "
		    "(handle 2): found 'is', which is not penstock's; expected "
		    "there: a/x" },
		{ "a a:x a: a:y", "a a:x a:y", "chain a, rule 2 (handle 3): "
		    "found 'is', which is not penstock's; expected there: "
		    "a/y" },
		{ "a a:x", "a a:x a:y", "chain a, rule 2: a/y is missing; "
		    "expected 'should'" },
		{ "a a:y", "a a:x a:y", "chain a, rule 1: a/x is missing" },
		{ "a a:x1 a:y", "a a:x2 a:y", "chain a, rule 1 (handle 2): "
		    "a/x is not as loaded: found 'is', expected 'should'" },
		{ "a a:y a:x", "a a:x a:y", "chain a, rule 1 (handle 2): not "
		    "as loaded: found a/y, expected a/x; 1 more difference" },
		{ "a a:x a:x", "a a:x", "chain a, rule 2 (handle 3): not as "
		    "loaded: found a/x, expected nothing more" },
		{ "a b a:x", "a a:x", "the chain b is not penstock's" },
		{ "a a:x", "a b a:x", "the chain b is missing" },
		{ "a1 a:x", "a2 a:x", "chain a: not as loaded: found 'is', "
		    "expected 'should'" },
		{ "b a", "a b", "in another order" },
		{ "a a: a: a:x1", "a a:x2 a:y", "rule 1 (handle 2): found "
		    "'is', which is not penstock's; expected there: a/x; 3 "
		    "more differences" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		assert_true(differ(t[i].have, t[i].want));
		if (strstr(why, t[i].why) == NULL)
			fail_msg("%s for %s: %s, not %s", t[i].have,
			    t[i].want, why, t[i].why);
	}
}

static void
a_table_of_very_many_rules_is_another(void **state)
{
	json_t *h = list_of("a"), *w = list_of("a");
	struct rules_difference d;

	(void)state;
	for (int i = 0; i < 200; i++) {
		json_array_append_new(h, json_pack("{s:{s:s}}", "rule",
		    "chain", "a"));
		json_array_append_new(w, json_pack("{s:{s:s}}", "rule",
		    "chain", "a"));
	}
	assert_true(rules_differ(h, w, &d));
	json_decref(h);
	json_decref(w);
}

/* Whoever wrote the rule may have written anything. */
static void
what_was_found_is_shown_printable_and_cut(void **state)
{
	struct rules_difference d = { .kind = RULES_OTHER, .rule = true,
	    .type = "rule", .chain = "a\033[2J", .position = 1,
	    .wanted = "penstock 1 a/x" };
	char text[400];

	(void)state;
	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	text[3] = '\n';
	rules_differ_text(&d, text, text, why, sizeof(why));
	assert_non_null(strstr(why, "chain a?[2J, rule 1: a/x"));
	assert_non_null(strstr(why, "'xxx?xxx"));
	assert_non_null(strstr(why, "x~', expected 'xxx?"));
	assert_null(strchr(why, '\n'));
	for (size_t size = 1; size < 200; size++) {
		rules_differ_text(&d, text, text, why, size);
		assert_true(strlen(why) < size);
	}
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(
		    what_is_the_same_but_for_handles_and_counts_is_the_same),
		cmocka_unit_test(each_difference_is_told_with_its_place),
		cmocka_unit_test(a_table_of_very_many_rules_is_another),
		cmocka_unit_test(what_was_found_is_shown_printable_and_cut),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
