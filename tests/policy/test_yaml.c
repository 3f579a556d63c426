/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "policy/yaml.h"

static char *
problems_of(const char *text, size_t len)
{
	struct problems *ps = problem_new();
	struct yaml *y = yaml_parse("p.yaml", span_of(text, len), ps);
	char *out = NULL;
	size_t size;
	FILE *f = open_memstream(&out, &size);

	assert_true(y != NULL || problem_count(ps, PROBLEM_ERROR) > 0);
	problem_print(ps, f);
	fclose(f);
	yaml_close(y);
	problem_free(ps);
	return out;
}

static void
expect(const char *text, const char *want)
{
	char *got = problems_of(text, strlen(text));

	if (strstr(got, want) == NULL || (*want == '\0' && *got != '\0'))
		fail_msg("of <%s> wanted <%s>, got <%s>", text, want, got);
	free(got);
}

static void
a_tree_has_keys_values_and_places(void **state)
{
	static const char text[] = "a: 1\nb:\n  - {c: \"no\"}\n  - d\n";
	struct problems *ps = problem_new();
	struct yaml *y = yaml_parse("p", span_str(text), ps);
	const struct yaml_node *b, *c;
	uint64_t n;

	(void)state;
	assert_non_null(y);
	assert_true(yaml_uint(yaml_get(yaml_root(y), "a"), 10, &n));
	assert_int_equal(n, 1);
	b = yaml_get(yaml_root(y), "b");
	assert_int_equal(b->kind, YAML_SEQUENCE);
	assert_int_equal(b->n_children, 2);
	c = yaml_get(b->child, "c");
	assert_true(yaml_is(c, "no") && c->quoted);
	assert_int_equal(c->at.line, 3);
	assert_int_equal(c->at.column, 9);
	yaml_close(y);
	problem_free(ps);
}

static void
N43_what_means_something_else_is_refused_with_its_place(void **state)
{
	(void)state;
	expect("a: 1\na: 2\n", "p.yaml:2:1: error: the key \"a\" stands twice");
	expect("a: &x 1\n", "anchors are not accepted");
	expect("a: !!int 1\n", "tags are not accepted");
	expect("<<: {a: 1}\n", "merge keys");
	expect("a: *x\n", "\"*x\" must be quoted");
	expect("hostname: *.github.com\n", "Write: \"*.github.com\"");
	expect("a: [x, *.b.c]\n", "Write: \"*.b.c\"");
	expect("a: &.x y\n", "error: not YAML");
	expect("a: b\xe2\x81\xa6" "c\n", "invisible");
	expect("a: b\xe3\x80\x82" "c\n", "invisible");
	expect("a: 1\n---\nb: 2\n", "second document");
	expect("", "the file is empty");
	expect("a:\n\t- b\n", "error");
	expect("a: b\xe2\x80\x8b" "c\n", "invisible");
	expect("a: \xff\n", "error");
	expect("a: 1\nb: \xff\n", "2:4: error");
	expect("a: 1\nb: \xff\n", "save the file as UTF-8");
	expect("a: 1\nb: \x01\n", "save the file as UTF-8");
	expect("{? [a] : b}\n", "a key must be a word");
	expect("a: [[[[[[[[[[[[[[[[[[x]]]]]]]]]]]]]]]]]]\n", "too deeply");
}

static void
a_mark_and_crlf_are_accepted_and_json_is_yaml(void **state)
{
	(void)state;
	expect("\xef\xbb\xbf" "a: 1\r\nb: 2\r\n", "");
	expect("{\"a\": [1, \"x\", {\"b\": true}]}", "");
	expect("a: 1", "");
}

/* What could be read, in brackets: "!" refused, "~" lacks, "?" doubtful. */
static void
tree_text(const struct yaml_node *n, FILE *to)
{
	if (n->key != NULL)
		fprintf(to, "%s:", (const char *)n->key->text.data);
	fprintf(to, "%s%s%s", n->refused ? "!" : n->doubtful ? "?" : "",
	    n->lacks ? "~" : "", n->kind == YAML_MAPPING ? "{" :
	    n->kind == YAML_SEQUENCE ? "[" : (const char *)n->text.data);
	for (const struct yaml_node *c = n->child; c != NULL; c = c->next) {
		tree_text(c, to);
		if (c->next != NULL)
			fputc(' ', to);
	}
	if (n->kind != YAML_SCALAR)
		fputc(n->kind == YAML_MAPPING ? '}' : ']', to);
}

static void
after_an_error_the_rest_is_read(void **state)
{
	static const struct { const char *text, *tree; size_t errors; } t[] = {
		{ "a: &x 1\nb: !!int 2\n", "{a:1 b:2}", 2 },
		{ "a: &x 1\nb: *x\nc: *y\n", "?{a:1 b:! c:!}", 3 },
		{ "a: 1\nb: {c: 2}\na: [3, *x]\nd: 4\n",
		    "?{a:1 b:{c:2} d:4}", 2 },
		{ "a: {<<: *x, b: 1}\nc: 2\n", "?{a:?~{b:1} c:2}", 1 },
		{ "? [a]\n: {b: &x c}\nd: 1\n", "?~{d:1}", 2 },
		{ "a: b\xe2\x80\x8b\nc: 1\n", "?{a:! c:1}", 1 },
		{ "b\xe2\x80\x8b: 1\nc: 1\n", "?~{c:1}", 1 },
		{ "a: [[[[[[[[[[[[[[[[[{b: [c]}, d]]]]]]]]]]]]]]]]]\ne: 1\n",
		    "?{a:?[?[?[?[?[?[?[?[?[?[?[?[?[?[?[!["
		    "]]]]]]]]]]]]]]]] e:1}", 1 },
		/* a star that libyaml ends at */
		{ "a: *.x\nb: [1, *.y.z, 2]\nc: {*.k: 1}\nd: 4\n",
		    "?{a:! b:?[1 ! 2] c:?~{} d:4}", 3 },
		{ "\xc3\xa4\xc3\xa4: *.x\nb: 2\n", "?{\xc3\xa4\xc3\xa4:! b:2}",
		    1 },
		/* and where reading ends */
		{ "a: 1\nb:\n  - {c: 2}\n  - {d: 3, e: [4, }\n",
		    "?~{a:1 b:?~[{c:2} ?~{d:3 e:?~[4]}]}", 1 },
		{ "a: &x 1\nb: *.c\nb: 2\nc: \"x\n", "?~{a:1 b:!}", 4 },
		{ "a: 1\n---\nb: 2\n", "?~{a:1}", 1 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		struct problems *ps = problem_new();
		struct yaml *y = yaml_parse("p", span_str(t[i].text), ps);
		char *got = NULL;
		size_t size;
		FILE *to = open_memstream(&got, &size);

		assert_non_null(y);
		tree_text(yaml_root(y), to);
		fclose(to);
		assert_string_equal(got, t[i].tree);
		if (problem_count(ps, PROBLEM_ERROR) != t[i].errors) {
			problem_print(ps, stderr);
			fail_msg("of <%s>", t[i].text);
		}
		free(got);
		yaml_close(y);
		problem_free(ps);
	}
}

static void
each_error_is_told_at_its_place(void **state)
{
	(void)state;
	expect("a: *.x\nb: *.y\n", "p.yaml:1:4: error: \"*.x\" must");
	expect("a: *.x\nb: *.y\n", "p.yaml:2:4: error: \"*.y\" must");
	expect("\xc3\xa4: [*.x]\n", "p.yaml:1:5: error: \"*.x\" must");
	expect("a: &x 1\nb: *x\n", "p.yaml:2:4: error: aliases are not");
	expect("a: 1\nb: 2\na: 3\n", "p.yaml:3:1: error: the key \"a\" "
	    "stands twice, first in line 1");
}

/* Each costs a reading of the file. */
static void
the_stars_that_are_read_past_have_an_end(void **state)
{
	struct problems *ps = problem_new();
	char text[4096] = "";
	struct yaml *y;

	(void)state;
	for (size_t i = 0; i < 100; i++)
		strcat(text, "- *.a.b\n");
	y = yaml_parse("p", span_str(text), ps);
	assert_int_equal(problem_count(ps, PROBLEM_ERROR), 33);
	assert_int_equal(yaml_root(y)->n_children, 32);
	assert_true(yaml_root(y)->lacks);
	yaml_close(y);
	problem_free(ps);
}

static void
every_prefix_of_a_file_is_read_or_refused(void **state)
{
	static const char text[] = "version: 1\nnetwork:\n  rule:\n"
	    "    - {verdict: allow, hostname: \"*.a.test\", ports: [1]}\n";

	(void)state;
	for (size_t n = 0; n < sizeof(text); n++)
		free(problems_of(text, n));
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_tree_has_keys_values_and_places),
		cmocka_unit_test(
		    N43_what_means_something_else_is_refused_with_its_place),
		cmocka_unit_test(
		    a_mark_and_crlf_are_accepted_and_json_is_yaml),
		cmocka_unit_test(after_an_error_the_rest_is_read),
		cmocka_unit_test(each_error_is_told_at_its_place),
		cmocka_unit_test(the_stars_that_are_read_past_have_an_end),
		cmocka_unit_test(every_prefix_of_a_file_is_read_or_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
