/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_POLICY_ONE_H
#define TESTS_POLICY_ONE_H

/* One policy text as the only file of one cell, for the tests of the upper
 * half of the layer. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "policy/charter.h"
#include "policy/decide.h"
#include "policy/policy.h"
#include "policy/rules.h"

#define NOW_S INT64_C(1790000000)	/* 2026-09-21 */

/* Where hostnames_file leads in these tests. */
struct one_file {
	const char *name, *text;
	size_t step;		/* bytes that are read at once; 0: all */
};

struct one {
	struct problems *ps;
	struct charter *charter;
	uint8_t *image;
	size_t len;
	struct policy *policy;
	char said[65536];	/* what problem_print printed */
};

static int __attribute__((unused))
one_read(void *arg, const char *name,
    int (*take)(void *to, struct span piece), void *to)
{
	const struct one_file *f = arg;
	size_t step = f != NULL && f->step != 0 ? f->step : SIZE_MAX, at, n;
	int rc = 0;

	if (f == NULL || strcmp(f->name, name) != 0)
		return -ENOENT;
	for (at = 0; f->text[at] != '\0' && rc == 0; at += n) {
		n = strnlen(f->text + at, step);
		rc = take(to, span_of(f->text + at, n));
	}
	return rc;
}

static void __attribute__((unused))
one_say(struct one *o)
{
	FILE *to = fmemopen(o->said, sizeof(o->said) - 1, "w");

	assert_non_null(to);
	problem_print(o->ps, to);
	(void)fclose(to);
}

/* Where denied names lead in what is made next. */
static struct addr one_sinkhole[2];

/* True when the text loads, compiles and opens. */
static bool __attribute__((unused))
one_make(struct one *o, const char *text, const struct one_file *file,
    const struct endpoint *own, size_t n_own)
{
	struct charter_reader reader = { one_read, (void *)(uintptr_t)file };
	struct policy_cell_source cell = { .id = "a" };
	struct policy_source src = { .cells = &cell, .n_cells = 1,
	    .generation = 7, .own = own, .n_own = n_own, .now_s = NOW_S };
	const struct charter *list[1];
	int err;

	memcpy(src.sinkhole, one_sinkhole, sizeof(one_sinkhole));
	memset(o, 0, sizeof(*o));
	o->ps = problem_new();
	assert_non_null(o->ps);
	o->charter = charter_load("p.yaml", span_str(text), true, &reader,
	    o->ps);
	if (o->charter != NULL) {
		list[0] = o->charter;
		cell.charters = list;
		cell.n_charters = 1;
		err = policy_build(&src, &o->image, &o->len, o->ps);
		assert_true(err == 0 || err == -EINVAL);
		if (err == 0)
			assert_int_equal(policy_open(&o->policy,
			    span_of(o->image, o->len)), 0);
		else
			assert_true(problem_count(o->ps, PROBLEM_ERROR) > 0);
	}
	one_say(o);
	return o->policy != NULL;
}

static void __attribute__((unused))
one_done(struct one *o)
{
	policy_free(o->policy);
	free(o->image);
	charter_free(o->charter);
	problem_free(o->ps);
	memset(o, 0, sizeof(*o));
}

/* The text with the given rules, one line each, under network. */
#define ONE_HEAD "version: 1\nnetwork:\n  default: deny\n  rule:\n"

static void __attribute__((unused))
one_rules(struct one *o, const char *rules)
{
	char text[8192];

	(void)snprintf(text, sizeof(text), ONE_HEAD "%s", rules);
	if (!one_make(o, text, NULL, NULL, 0))
		fail_msg("%s", o->said);
}

/* The text must not load, and the words must be among what is said. */
static void __attribute__((unused))
one_refused(const char *text, const char *words)
{
	struct one o;
	bool good = one_make(&o, text, NULL, NULL, 0);

	if (good || strstr(o.said, words) == NULL)
		fail_msg("expected \"%s\" of:\n%s\ngot:\n%s", words, text,
		    o.said);
	one_done(&o);
}

static void __attribute__((unused))
one_rule_refused(const char *rules, const char *words)
{
	char text[8192];

	(void)snprintf(text, sizeof(text), ONE_HEAD "%s", rules);
	one_refused(text, words);
}

static struct host __attribute__((unused))
one_host(const char *text)
{
	struct host h;

	assert_int_equal(host_parse(&h, span_str(text)), REASON_NONE);
	return h;
}

static struct endpoint __attribute__((unused))
one_endpoint(const char *addr, uint16_t port)
{
	struct endpoint e = { .port = port };

	assert_true(addr_parse(&e.addr, span_str(addr)));
	return e;
}

static struct decide_at __attribute__((unused))
one_at(const struct one *o)
{
	return (struct decide_at){ .policy = o->policy, .now_s = NOW_S };
}

#endif
