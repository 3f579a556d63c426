/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/change.h"

#include <stdio.h>
#include <stdlib.h>

#define LINE_BYTES 256

struct finder {
	void (*say)(void *arg, const char *line);
	void *arg;
	unsigned lines;
};

/* The rules of one cell, by id. */
struct listed {
	struct rule_view *rules;
	uint32_t n;
};

static void
tell(struct finder *f, char sign, struct span cell, const char *what)
{
	char line[LINE_BYTES], id[POLICY_ID_BYTES + 8];

	if (f->lines++ >= CHANGE_LINES_MAX || f->say == NULL)
		return;
	snprintf(line, sizeof(line), "%c cell %s %s", sign,
	    span_print(cell, id, sizeof(id)), what);
	f->say(f->arg, line);
}

static int
by_id(const void *va, const void *vb)
{
	const struct rule_view *a = va, *b = vb;
	size_t n = a->id.len < b->id.len ? a->id.len : b->id.len;
	int c = memcmp(a->id.data, b->id.data, n);

	if (c != 0)
		return c;
	return a->id.len < b->id.len ? -1 : a->id.len > b->id.len;
}

static struct listed
list_rules(const struct policy *p, uint32_t cell)
{
	struct listed l = { .n = policy_rules(p, cell) };
	uint32_t n = 0;

	l.rules = calloc(l.n > 0 ? l.n : 1, sizeof(*l.rules));
	if (l.rules == NULL)
		l.n = 0;
	for (uint32_t i = 0; i < l.n; i++)
		n += policy_rule(p, cell, i, &l.rules[n]);
	l.n = n;
	qsort(l.rules, l.n, sizeof(l.rules[0]), by_id);
	return l;
}

static void
tell_rule(struct finder *f, char sign, struct span cell,
    const struct rule_view *r)
{
	char what[LINE_BYTES - 80], subject[120], id[POLICY_ID_BYTES + 8];

	snprintf(what, sizeof(what), "rule %s: %s %s",
	    span_print(r->id, id, sizeof(id)), verdict_word(r->verdict),
	    span_print(r->subject, subject, sizeof(subject)));
	tell(f, sign, cell, what);
}

/* Both lists are in order: what stands in one only was added or removed. */
static void
compare_rules(struct finder *f, struct span cell, const struct listed *a,
    const struct listed *b, struct change_count *count)
{
	uint32_t i = 0, k = 0;

	while (i < a->n || k < b->n) {
		int c = i == a->n ? 1 : k == b->n ? -1 :
		    by_id(&a->rules[i], &b->rules[k]);

		if (c < 0) {
			tell_rule(f, '-', cell, &a->rules[i]);
			count->rules_removed++;
		} else if (c > 0) {
			tell_rule(f, '+', cell, &b->rules[k]);
			count->rules_added++;
		}
		i += c <= 0;
		k += c >= 0;
	}
}

static void
compare_cell(struct finder *f, const struct policy *before, uint32_t old,
    const struct policy *after, uint32_t new, struct span id,
    struct change_count *count)
{
	struct listed a = list_rules(before, old);
	struct listed b = list_rules(after, new);

	compare_rules(f, id, &a, &b, count);
	free(a.rules);
	free(b.rules);
}

struct change_count
change_find(const struct policy *before, const struct policy *after,
    void (*say)(void *arg, const char *line), void *arg)
{
	struct finder f = { .say = say, .arg = arg };
	struct change_count count = { 0 };
	struct cell_view c;

	for (uint32_t i = 0; i < policy_cells(after); i++) {
		uint32_t old;

		if (!policy_cell(after, i, 0, &c))
			continue;
		old = policy_cell_by_id(before, c.id);
		if (old == CELL_NONE) {
			tell(&f, '+', c.id, "is new");
			count.cells_added++;
			continue;
		}
		compare_cell(&f, before, old, after, i, c.id, &count);
	}
	for (uint32_t i = 0; i < policy_cells(before); i++)
		if (policy_cell(before, i, 0, &c) &&
		    policy_cell_by_id(after, c.id) == CELL_NONE) {
			tell(&f, '-', c.id, "is gone");
			count.cells_removed++;
		}
	return count;
}
