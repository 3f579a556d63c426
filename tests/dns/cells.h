/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_DNS_CELLS_H
#define TESTS_DNS_CELLS_H

/* A policy of several cells with the same rules: each is one address. */
#include "tests/policy/one.h"

struct cells_of {
	const char *id, *run, *addr;
};

static void __attribute__((unused))
cells_make(struct one *o, const char *rules, const struct cells_of *list,
    size_t n)
{
	struct policy_cell_source cells[4] = { 0 };
	struct policy_source src = { .cells = cells, .n_cells = n,
	    .generation = 7, .now_s = NOW_S };
	const struct charter *charters[1];
	char text[8192];

	memset(o, 0, sizeof(*o));
	(void)snprintf(text, sizeof(text), ONE_HEAD "%s", rules);
	o->ps = problem_new();
	assert_non_null(o->ps);
	o->charter = charter_load("p.yaml", span_str(text), true, NULL, o->ps);
	assert_non_null(o->charter);
	charters[0] = o->charter;
	assert_in_range(n, 1, 4);
	for (size_t i = 0; i < n; i++) {
		struct policy_cell_source *c = &cells[i];

		(void)snprintf(c->id, sizeof(c->id), "%s", list[i].id);
		(void)snprintf(c->labels[0].key, sizeof(c->labels[0].key),
		    "run");
		(void)snprintf(c->labels[0].value,
		    sizeof(c->labels[0].value), "%s", list[i].run);
		c->n_labels = list[i].run[0] != '\0';
		c->from.kind = CELL_FROM_NET;
		c->from.has_prefix = true;
		assert_true(prefix_parse(&c->from.prefix,
		    span_str(list[i].addr)));
		c->charters = charters;
		c->n_charters = 1;
	}
	if (policy_build(&src, &o->image, &o->len, o->ps) != 0) {
		problem_print(o->ps, stderr);
		fail_msg("the policy does not compile");
	}
	assert_int_equal(policy_open(&o->policy, span_of(o->image, o->len)),
	    0);
}

#endif
