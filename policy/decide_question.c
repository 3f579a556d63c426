/* SPDX-License-Identifier: Apache-2.0 */
/* What may be asked of a name before anybody connects to it. */
#include "policy/decide_part.h"
#include "policy/qtype.h"

/* Looks for a port on which the first matching rule allows.  Such a port,
 * where there is one, is the first of an allowed range or follows on a
 * denied one. */
struct open_port {
	const struct ask *ask;
	const struct host *name;
	uint32_t allow;		/* a rule that allows */
	uint32_t deny;		/* the first that denies */
	uint32_t report;
	bool allow_private;	/* on one of the open ports */
	bool kept;		/* protocol: tcp opens one; exact names only */
};

static void
port_try(struct open_port *o, uint32_t port)
{
	struct first f;

	if (port > 65535)
		return;
	f = decide_first_name(o->ask, o->name, (uint16_t)port, false);
	if (f.rule == RULE_NONE || !allows(o->ask, f.rule))
		return;
	o->allow_private |= flag(o->ask, f.rule, IMAGE_RULE_ALLOW_PRIVATE);
	o->kept |= flag(o->ask, f.rule, IMAGE_RULE_OPAQUE);
	if (f.rule < o->allow) {
		o->allow = f.rule;
		o->report = f.report < f.rule ? f.report : RULE_NONE;
	}
}

static bool
on_question(void *arg, uint32_t rule, enum names_kind kind)
{
	struct open_port *o = arg;
	const struct ask *q = o->ask;
	const struct image_rule *r = &q->rules[rule];
	const struct image_ports *p = image_ports(q->image, r);
	uint32_t i;

	(void)kind;
	if (!in_date(q, rule) || flag(q, rule, IMAGE_RULE_REPORT))
		return true;
	if (!allows(q, rule))
		lower(&o->deny, rule);
	for (i = 0; i < r->ports.len; i++)
		port_try(o, allows(q, rule) ?
		    (p[i].lo > 0 ? p[i].lo : 1u) : p[i].hi + 1u);
	return true;
}

static bool
question(const struct ask *q, const struct host *name, struct decision *why)
{
	struct open_port o = { .ask = q, .name = name, .allow = RULE_NONE,
	    .deny = RULE_NONE, .report = RULE_NONE };

	names_visit(image_text(q->image, q->set->names), name, on_question,
	    &o);
	if (o.allow != RULE_NONE) {
		*why = by_rule(q, o.allow);
		why->allow_private = o.allow_private;
		why->kept = o.kept;
		mark_report(why, o.report);
	} else if (o.deny != RULE_NONE) {
		*why = deny(REASON_RULE_DENY, o.deny);
	} else if (reporting(q)) {
		*why = reported(REASON_NO_RULE, RULE_NONE);
	} else {
		*why = deny(REASON_NO_RULE, RULE_NONE);
	}
	return why->verdict == VERDICT_ALLOW;
}

bool
decide_question(const struct decide_at *at, const struct host *name,
    struct decision *why)
{
	struct ask q;

	if (!ask_begin(&q, at)) {
		*why = no_policy(at);
		return false;
	}
	if (name->len == 0) {
		*why = deny(REASON_NAME_MALFORMED, RULE_NONE);
		return false;
	}
	return question(&q, name, why);
}

/* The first rule that opens each type, and the first that closes all. */
struct opened {
	const struct ask *ask;
	uint32_t allow[QTYPE_COUNT];
	uint32_t deny;
};

static bool
on_type(void *arg, uint32_t rule, enum names_kind kind)
{
	struct opened *o = arg;
	uint32_t set = o->ask->rules[rule].qtypes;

	(void)kind;
	if (!in_date(o->ask, rule) || flag(o->ask, rule, IMAGE_RULE_REPORT))
		return true;
	if (!allows(o->ask, rule) && covers_port(o->ask, rule, 0))
		lower(&o->deny, rule);
	for (unsigned i = 0; i < QTYPE_COUNT; i++)
		if ((set >> i & 1) != 0)
			lower(&o->allow[i], rule);
	return true;
}

uint32_t
decide_question_types(const struct decide_at *at, const struct host *name)
{
	struct opened o = { .deny = RULE_NONE };
	uint32_t set = 0;
	struct ask q;

	if (!ask_begin(&q, at) || name->len == 0)
		return 0;
	o.ask = &q;
	for (unsigned i = 0; i < QTYPE_COUNT; i++)
		o.allow[i] = RULE_NONE;
	names_visit(image_text(q.image, q.set->names), name, on_type, &o);
	for (unsigned i = 0; i < QTYPE_COUNT; i++)
		if (o.allow[i] < o.deny)
			set |= UINT32_C(1) << i;
	return set;
}

bool
decide_question_hides(const struct decide_at *at, const struct host *name)
{
	char text[HOST_MAX_BYTES + 3] = "a.";
	struct decision why;
	struct host child;
	struct ask q;

	if (!ask_begin(&q, at) || name->len == 0)
		return false;
	if (names_has_under(image_text(q.image, q.set->names), name))
		return true;
	/* A wildcard at the name itself allows what lies under it. */
	memcpy(text + 2, name->name, (size_t)name->len + 1);
	return host_parse(&child, span_str(text)) == REASON_NONE &&
	    question(&q, &child, &why) && why.would == VERDICT_ALLOW;
}
