/* SPDX-License-Identifier: Apache-2.0 */
/* A policy text: whatever it is, it loads and compiles or says why. */
#include <stdlib.h>

#include "policy/charter.h"
#include "policy/decide.h"
#include "policy/policy.h"

#define NOW_S INT64_C(1790000000)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int
names_read(void *arg, const char *name,
    int (*take)(void *to, struct span piece), void *to)
{
	(void)arg;
	(void)name;
	return take(to, span_str("a.example\n*.b.example\n#\n"));
}

static void
compile(const struct charter *c, struct problems *ps)
{
	struct policy_cell_source cell = { .id = "a", .charters = &c,
	    .n_charters = 1 };
	const struct policy_source src = { .cells = &cell, .n_cells = 1,
	    .now_s = NOW_S };
	struct policy *p;
	struct decision d;
	struct host h;
	uint8_t *image;
	size_t len;

	if (policy_build(&src, &image, &len, ps) != 0) {
		if (problem_count(ps, PROBLEM_ERROR) == 0)
			abort();
		return;
	}
	if (charter_wrong(c) || problem_count(ps, PROBLEM_ERROR) != 0)
		abort();
	if (policy_open(&p, span_of(image, len)) != 0)
		abort();
	if (host_parse(&h, span_str("x.a.example")) == REASON_NONE) {
		const struct decide_at at = { .policy = p, .now_s = NOW_S };

		d = decide_name(&at, &h, 443, NULL);
		/* What is open on a port is asked for. */
		if (d.verdict == VERDICT_ALLOW &&
		    !decide_question(&at, &h, &d))
			abort();
	}
	policy_free(p);
	free(image);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct charter_reader reader = { names_read, NULL };
	struct problems *ps = problem_new();
	struct charter *c;

	if (ps == NULL)
		return 0;
	c = charter_load("f", span_of(data, size), true, &reader, ps);
	if (c != NULL)
		compile(c, ps);
	else if (problem_count(ps, PROBLEM_ERROR) == 0)
		abort();
	charter_free(c);
	problem_free(ps);
	return 0;
}
