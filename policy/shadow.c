/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/shadow.h"

#include <errno.h>
#include <stdlib.h>

#include "policy/cidr.h"
#include "policy/names.h"

/* The rules that cover all of what rule `self` names (of one kind). */
struct cover {
	const struct rule *const *rule;
	uint32_t self;
	bool only_below;	/* exact matches do not cover */
	uint32_t *found;
	size_t n, cap;
	int err;
};

/* What was found of one rule, over all the patterns that it has. */
struct found {
	size_t parts, dead, shadowed;
	uint32_t dead_by, taken_by;
};

/* While the patterns of all rules go by, in no order. */
struct patterns {
	struct cover *c;
	struct span names;
	struct found *found;
};

static void on_pattern(void *arg, struct span name, unsigned kinds,
    uint32_t rule);
static void name_rule(const struct cover *c, const struct rule *r,
    const struct found *f, struct problems *ps);
static void prefix_rule(struct cover *c, const struct rule *r,
    struct span cidrs, struct problems *ps);

int
shadow_check(const struct rule *const *rule, uint32_t n, struct span names,
    struct span cidrs, struct problems *ps)
{
	struct cover c = { .rule = rule };
	struct patterns p = { .c = &c, .names = names };
	uint32_t i;

	p.found = calloc((size_t)n + 1, sizeof(*p.found));
	if (p.found == NULL)
		return -ENOMEM;
	names_each(names, on_pattern, &p);
	for (i = 0; i < n && c.err == 0; i++) {
		c.self = i;
		if (rule[i]->n_patterns > 0 && !rule[i]->has_prefix)
			name_rule(&c, rule[i], &p.found[i], ps);
		else if (rule[i]->n_patterns == 0 && rule[i]->has_prefix)
			prefix_rule(&c, rule[i], cidrs, ps);
	}
	free(p.found);
	free(c.found);
	return c.err;
}

static bool
cover_add(struct cover *c, uint32_t rule)
{
	size_t cap = c->cap == 0 ? 16 : c->cap * 2;
	uint32_t *grown;

	if (c->n == c->cap) {
		grown = realloc(c->found, cap * sizeof(*grown));
		if (grown == NULL) {
			c->err = -ENOMEM;
			return false;
		}
		c->found = grown;
		c->cap = cap;
	}
	c->found[c->n++] = rule;
	return true;
}

/* What expires or only reports does not stand in the way for good. */
static bool
permanent(const struct rule *r)
{
	return r->until_s == 0 && !r->report;
}

static bool
on_name(void *arg, uint32_t rule, enum names_kind kind)
{
	struct cover *c = arg;

	if (rule >= c->self || !permanent(c->rule[rule]) ||
	    (c->only_below && kind != NAMES_BELOW))
		return true;
	return cover_add(c, rule);
}

static bool
on_prefix(void *arg, uint32_t rule)
{
	struct cover *c = arg;
	const struct rule *self = c->rule[c->self], *r = c->rule[rule];

	if (rule == c->self || !permanent(r) ||
	    r->prefix.bits > self->prefix.bits)
		return true;
	/* A prefix deny refuses wherever it stands. */
	if (rule > c->self && (r->verdict == VERDICT_ALLOW ||
	    self->verdict == VERDICT_DENY))
		return true;
	if (self->verdict == VERDICT_DENY && r->verdict == VERDICT_ALLOW)
		return true;
	return cover_add(c, rule);
}

/* The highest port of a run that begins at `port`, over all that was found;
 * -1 when nothing covers the port.  *by is one of the rules. */
static int
covered_to(const struct cover *c, int port, uint32_t *by)
{
	const struct rule *r;
	int best = -1;
	size_t i;
	uint32_t k;

	for (i = 0; i < c->n; i++) {
		r = c->rule[c->found[i]];
		for (k = 0; k < r->n_ports; k++)
			if (r->ports[k].lo <= port && r->ports[k].hi >= port &&
			    r->ports[k].hi > best) {
				best = r->ports[k].hi;
				*by = c->found[i];
			}
	}
	return best;
}

/* True when every port of the rule is covered. */
static bool
all_ports(const struct cover *c, const struct rule *r, uint32_t *by)
{
	uint32_t k;
	int port;

	for (k = 0; k < r->n_ports; k++)
		for (port = r->ports[k].lo; port <= r->ports[k].hi; port++) {
			port = covered_to(c, port, by);
			if (port < 0)
				return false;
		}
	return r->n_ports > 0;
}

static bool
ports_meet(const struct rule *a, const struct rule *b)
{
	uint32_t i, k;

	for (i = 0; i < a->n_ports; i++)
		for (k = 0; k < b->n_ports; k++)
			if (a->ports[i].lo <= b->ports[k].hi &&
			    b->ports[k].lo <= a->ports[i].hi)
				return true;
	return false;
}

/* Collect what covers one kind of a pattern. */
static void
look(struct cover *c, const struct host *name, unsigned kind,
    struct span names)
{
	char text[HOST_MAX_BYTES + 3] = "a.";
	struct host child;

	c->n = 0;
	c->only_below = kind == NAMES_BELOW;
	if (kind == NAMES_EXACT) {
		names_visit(names, name, on_name, c);
		return;
	}
	/* What covers one name below covers all of them, unless it names
	 * just that one. */
	memcpy(text + 2, name->name, (size_t)name->len + 1);
	if (host_parse(&child, span_str(text)) == REASON_NONE)
		names_visit(names, &child, on_name, c);
}

/* An allow among what was found that takes ports from the deny. */
static bool
allow_before(const struct cover *c, const struct rule *r, uint32_t *by)
{
	size_t i;

	for (i = 0; i < c->n; i++)
		if (c->rule[c->found[i]]->verdict == VERDICT_ALLOW &&
		    ports_meet(c->rule[c->found[i]], r)) {
			*by = c->found[i];
			return true;
		}
	return false;
}

static void
never(const struct rule *r, const struct rule *by, struct problems *ps)
{
	char shown[128];

	problem_add(ps, PROBLEM_ERROR, r->at,
	    "remove it, or move it before that rule",
	    "%s %s can never match: the rule %s %s in %s:%u decides it",
	    verdict_word(r->verdict), r->subject, verdict_word(by->verdict),
	    by->subject, span_print(span_str(by->at.file), shown,
	    sizeof(shown)), by->at.line);
}

static void
taken(const struct rule *r, const struct rule *by, size_t n_names,
    struct problems *ps)
{
	char shown[128];

	problem_add(ps, PROBLEM_WARNING, r->at,
	    "move the deny before the allow if it is meant to win",
	    "%s %s in %s:%u stands before deny %s and wins for %zu of its "
	    "names", verdict_word(by->verdict), by->subject,
	    span_print(span_str(by->at.file), shown, sizeof(shown)),
	    by->at.line, r->subject, n_names);
}

static void
pattern_part(struct cover *c, const struct rule *r, struct found *f)
{
	uint32_t by = 0;

	f->parts++;
	if (all_ports(c, r, &by)) {
		f->dead++;
		f->dead_by = by;
	}
	if (r->verdict == VERDICT_DENY && allow_before(c, r, &by)) {
		f->shadowed++;
		f->taken_by = by;
	}
}

static void
on_pattern(void *arg, struct span name, unsigned kinds, uint32_t rule)
{
	static const unsigned kinds_all[] = { NAMES_EXACT, NAMES_BELOW };
	struct patterns *p = arg;
	struct host host = { .len = (uint8_t)name.len };

	memcpy(host.name, name.data, name.len);
	p->c->self = rule;
	for (size_t i = 0; i < 2 && p->c->err == 0; i++) {
		if ((kinds & kinds_all[i]) == 0)
			continue;
		look(p->c, &host, kinds_all[i], p->names);
		pattern_part(p->c, p->c->rule[rule], &p->found[rule]);
	}
}

static void
name_rule(const struct cover *c, const struct rule *r, const struct found *f,
    struct problems *ps)
{
	if (f->parts > 0 && f->dead == f->parts)
		never(r, c->rule[f->dead_by], ps);
	else if (f->shadowed > 0)
		taken(r, c->rule[f->taken_by], f->shadowed, ps);
}

/* A flow that shows no name may be for one that is denied before. */
static void
nameless_refused(const struct cover *c, const struct rule *r,
    struct problems *ps)
{
	const struct rule *by;
	char shown[128];

	for (uint32_t i = 0; r->verdict == VERDICT_ALLOW && i < c->self; i++) {
		by = c->rule[i];
		if (by->verdict != VERDICT_DENY || by->n_patterns == 0 ||
		    !permanent(by) || !ports_meet(by, r))
			continue;
		problem_add(ps, PROBLEM_WARNING, r->at,
		    "move it before that rule, or give that rule its ports",
		    "allow %s opens nothing to who shows no name, unless the "
		    "address is pinned for other names: deny %s in %s:%u "
		    "stands before it", r->subject, by->subject,
		    span_print(span_str(by->at.file), shown, sizeof(shown)),
		    by->at.line);
		return;
	}
}

static void
prefix_rule(struct cover *c, const struct rule *r, struct span cidrs,
    struct problems *ps)
{
	uint32_t by = 0;

	c->n = 0;
	cidr_visit(cidrs, &r->prefix.base, on_prefix, c);
	if (all_ports(c, r, &by))
		never(r, c->rule[by], ps);
	else
		nameless_refused(c, r, ps);
}
