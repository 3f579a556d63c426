/* SPDX-License-Identifier: Apache-2.0 */
#ifndef POLICY_DECIDE_PART_H
#define POLICY_DECIDE_PART_H

#include "policy/decide.h"
#include "policy/image.h"
#include "policy/names.h"

/* What decide.c, decide_question.c and decide_nearest.c share, and nobody
 * else. */

/* One question against one rule set. */
struct ask {
	const struct decide_at *at;
	struct span image;
	const struct image_set *set;
	const struct image_rule *rules;
};

/* The first rules of each kind that match; RULE_NONE where none does. */
struct first {
	const struct ask *ask;
	uint16_t port;
	bool trace;
	uint32_t rule;		/* names: first of either verdict */
	uint32_t allow, deny;	/* prefixes, and names for deny */
	uint32_t report;	/* report: true, first */
};

/* The first rules for names that match name and port. */
struct first decide_first_name(const struct ask *q, const struct host *name,
    uint16_t port, bool trace);

/* ---- the question ---- */

static inline bool
ask_begin(struct ask *q, const struct decide_at *at)
{
	const struct image_header *h;

	if (at->policy == NULL)
		return false;
	q->at = at;
	q->image = policy_image(at->policy);
	h = image_head(q->image);
	if (at->cell >= h->cells.len)
		return false;
	q->set = &image_sets(q->image)[image_cells(q->image)[at->cell].set];
	q->rules = image_rules(q->image, q->set);
	return true;
}

static inline struct decision
deny(enum reason why, uint32_t rule)
{
	return (struct decision){ .verdict = VERDICT_DENY,
	    .would = VERDICT_DENY, .reason = why, .rule = rule };
}

static inline struct decision
no_policy(const struct decide_at *at)
{
	return deny(at->policy == NULL ? REASON_POLICY_UNAVAILABLE :
	    REASON_UNKNOWN_CELL, RULE_NONE);
}

/* A denial that only reports: it passes, and says what it would have been. */
static inline struct decision
reported(enum reason why, uint32_t rule)
{
	struct decision d = deny(why, rule);

	d.verdict = VERDICT_ALLOW;
	return d;
}

static inline bool
flag(const struct ask *q, uint32_t rule, uint32_t f)
{
	return (q->rules[rule].flags & f) != 0;
}

static inline bool
allows(const struct ask *q, uint32_t rule)
{
	return flag(q, rule, IMAGE_RULE_ALLOW);
}

static inline bool
in_date(const struct ask *q, uint32_t rule)
{
	return q->rules[rule].until_s == 0 ||
	    q->at->now_s < q->rules[rule].until_s;
}

static inline bool
covers_port(const struct ask *q, uint32_t rule, uint16_t port)
{
	const struct image_rule *r = &q->rules[rule];
	const struct image_ports *p = image_ports(q->image, r);
	uint32_t i;

	/* Port 0 asks for all of them. */
	for (i = 0; i < r->ports.len; i++)
		if (port == 0 ? p[i].lo <= 1 && p[i].hi == 65535 :
		    port >= p[i].lo && port <= p[i].hi)
			return true;
	return false;
}

static inline bool
reporting(const struct ask *q)
{
	return q->at->now_s < q->set->report_until_s;
}

/* ---- rules ---- */

static inline void
lower(uint32_t *to, uint32_t rule)
{
	if (rule < *to)		/* RULE_NONE is the highest */
		*to = rule;
}

static inline struct first
first_begin(const struct ask *q, uint16_t port, bool trace)
{
	return (struct first){ .ask = q, .port = port,
	    .trace = trace && q->at->trace != NULL, .rule = RULE_NONE,
	    .allow = RULE_NONE, .deny = RULE_NONE, .report = RULE_NONE };
}

/* What the rule itself says of a flow that it allows. */
static inline struct decision
by_rule(const struct ask *q, uint32_t rule)
{
	return (struct decision){ .verdict = VERDICT_ALLOW,
	    .would = VERDICT_ALLOW, .reason = REASON_RULE, .rule = rule,
	    .opaque = flag(q, rule, IMAGE_RULE_OPAQUE),
	    .allow_private = flag(q, rule, IMAGE_RULE_ALLOW_PRIVATE) };
}

/* A reporting deny that stands before the allow is told, not obeyed. */
static inline void
mark_report(struct decision *d, uint32_t report)
{
	if (d->verdict != VERDICT_ALLOW || report == RULE_NONE ||
	    (d->rule != RULE_NONE && d->rule < report))
		return;
	d->would = VERDICT_DENY;
	d->reason = REASON_RULE_DENY;
	d->rule = report;
}

static inline struct addr
judged(const struct ask *q, const struct addr *a)
{
	return addr_judged(a, q->set->nat64, q->set->n_nat64);
}

#endif
