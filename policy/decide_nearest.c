/* SPDX-License-Identifier: Apache-2.0 */
/* For explain: the rule that was probably meant. */
#include "policy/cidr.h"
#include "policy/decide_part.h"

static bool
on_near(void *arg, uint32_t rule, enum names_kind kind)
{
	struct first *f = arg;

	(void)kind;
	if (allows(f->ask, rule))
		lower(&f->allow, rule);
	return true;
}

static uint32_t
near_name(const struct ask *q, const struct host *name)
{
	struct first f = first_begin(q, 0, false);

	names_visit(image_text(q->image, q->set->names), name, on_near, &f);
	return f.allow;
}

uint32_t
decide_nearest(const struct decide_at *at, const struct host *name)
{
	char text[HOST_MAX_BYTES + 3] = "a.";
	uint32_t rule;
	struct host h;
	unsigned i;
	struct ask q;

	if (!ask_begin(&q, at) || name->len == 0)
		return RULE_NONE;
	rule = near_name(&q, name);	/* the same name, another port */
	memcpy(text + 2, name->name, (size_t)name->len + 1);
	if (rule == RULE_NONE &&
	    host_parse(&h, span_str(text)) == REASON_NONE)
		rule = near_name(&q, &h);	/* what lies under it */
	for (i = 1; rule == RULE_NONE && i + 1 < host_labels(name); i++)
		if (host_parse(&h, host_suffix(name, i)) == REASON_NONE)
			rule = near_name(&q, &h);	/* a parent */
	return rule;
}

static bool
on_near_prefix(void *arg, uint32_t rule)
{
	struct first *f = arg;

	if (allows(f->ask, rule) && in_date(f->ask, rule))
		lower(&f->allow, rule);
	return true;
}

static unsigned
common_bits(const struct addr *a, const struct addr *b)
{
	unsigned i = 0;

	while (i < 128 && ((a->b[i / 8] ^ b->b[i / 8]) >> (7 - i % 8) & 1) ==
	    0)
		i++;
	return i;
}

uint32_t
decide_nearest_addr(const struct decide_at *at, const struct endpoint *to)
{
	uint32_t i, best = RULE_NONE;
	struct first f;
	struct addr a;
	struct ask q;
	unsigned near, bits;

	if (!ask_begin(&q, at))
		return RULE_NONE;
	a = judged(&q, &to->addr);
	f = first_begin(&q, 0, false);
	cidr_visit(image_text(q.image, q.set->cidrs), &a, on_near_prefix, &f);
	if (f.allow != RULE_NONE)
		return f.allow;
	near = addr_is_v4(&a) ? 96 + 8 : 16;
	for (i = 0; i < q.set->rules.len; i++) {
		bits = common_bits(&a, &q.rules[i].prefix.base);
		if (q.rules[i].prefix.bits == 0 || bits < near ||
		    !allows(&q, i) || !in_date(&q, i) ||
		    !covers_port(&q, i, to->port))
			continue;
		best = i;
		near = bits + 1;
	}
	return best;
}
