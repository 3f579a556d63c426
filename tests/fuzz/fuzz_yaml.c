/* SPDX-License-Identifier: Apache-2.0 */
/* A YAML text: a sound tree, or at least one error beside what was read. */
#include <stdlib.h>

#include "policy/yaml.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
walk(const struct yaml_node *n, unsigned depth)
{
	size_t children = 0;
	uint64_t v;
	bool b;

	if (depth > YAML_MAX_DEPTH + 1 || n->at.line == 0 ||
	    (n->refused && (n->text.len != 0 || n->child != NULL)) ||
	    (n->lacks && !n->doubtful))
		abort();
	if (n->refused)
		return;
	if (n->kind == YAML_SCALAR) {
		if (n->text.data[n->text.len] != '\0' || n->child != NULL ||
		    memchr(n->text.data, '\0', n->text.len) != NULL ||
		    (yaml_uint(n, 9, &v) && (v > 9 || n->text.len != 1)))
			abort();
		(void)(yaml_bool(n, &b) && b);
		return;
	}
	for (const struct yaml_node *c = n->child; c != NULL; c = c->next) {
		if ((n->kind == YAML_MAPPING) != (c->key != NULL))
			abort();
		walk(c, depth + 1);
		children++;
	}
	if (children != n->n_children)
		abort();
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct problems *ps = problem_new();
	struct yaml *y;

	if (ps == NULL)
		return 0;
	y = yaml_parse("f", span_of(data, size), ps);
	if (y == NULL && problem_count(ps, PROBLEM_ERROR) == 0)
		abort();
	if (y != NULL && yaml_root(y)->doubtful &&
	    problem_count(ps, PROBLEM_ERROR) == 0)
		abort();
	if (y != NULL)
		walk(yaml_root(y), 1);
	yaml_close(y);
	problem_free(ps);
	return 0;
}
