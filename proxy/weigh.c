/* SPDX-License-Identifier: Apache-2.0 */
#include <time.h>

#include "proxy/conn.h"
#include "proxy/forward.h"

/*
 * DECIDE: one algorithm (policy/decide) for whatever the client has shown.
 */

struct decide_at
conn_at(const struct conn *c)
{
	return (struct decide_at){ .policy = c->proxy->policy,
	    .cell = c->cell, .now_s = (int64_t)time(NULL) };
}

const struct endpoint *
weigh_original(const struct conn *c)
{
	bool has = c->via == VIA_TPROXY || c->via == VIA_REDIRECT;

	return has ? &c->original : NULL;
}

static struct decision
denied(struct decision d, enum reason why)
{
	d.verdict = d.would = VERDICT_DENY;
	d.reason = why;
	return d;
}

struct decision
weigh_nameless(struct conn *c, const struct endpoint *to, bool pinned,
    enum weigh_when when)
{
	struct decide_at at = conn_at(c);
	struct host names[PIN_NAMES_MAX];
	const struct host *ptr[PIN_NAMES_MAX];
	struct decision d;
	size_t n = 0;

	if (pinned && when == WEIGH_FIRST)
		n = pinned_names(c, &to->addr, names, ptr);
	else if (pinned)
		n = pinned_kept(c, names, ptr);
	d = decide_nameless(&at, to, ptr, n);
	if (when == WEIGH_FIRST && d.verdict == VERDICT_ALLOW &&
	    !pinned_keep(c, ptr, n))
		return denied(d, REASON_LIMIT_MEMORY);
	return d;
}

void
conn_keep_hello(struct conn *c, const struct hello *h)
{
	c->no_sni = c->no_sni || h->name.len == 0;
	c->ech = c->ech || h->ech;
}

static enum reason
hello_passes(struct conn *c)
{
	account_hello(c);
	return REASON_NONE;
}

/* Is it one of the names that count at this address? */
static bool
pinned_among(const struct conn *c, const struct host *name,
    const struct addr *a)
{
	struct host names[PIN_NAMES_MAX];
	const struct host *ptr[PIN_NAMES_MAX];
	size_t n = pinned_names(c, a, names, ptr);

	for (size_t i = 0; i < n; i++)
		if (host_eq(ptr[i], name))
			return true;
	return false;
}

/* The name shown inside a tunnel to an address: one that is pinned there. */
static enum reason
weigh_inside_name(struct conn *c)
{
	struct opening *o = c->open;
	struct decide_at at = conn_at(c);
	struct decision d = decide_name(&at, &o->hello.name, o->to.port, NULL);

	if (d.verdict != VERDICT_ALLOW ||
	    !pinned_among(c, &o->hello.name, &o->to.addr)) {
		o->other = o->hello.name;
		return REASON_SNI_MISMATCH;
	}
	/* Only an address rule opens this one: it is what lets it pass. */
	if (!weigh_fits(c, &d, &o->to))
		return again_keep_shown(c, &o->hello.name) ?
		    hello_passes(c) : REASON_LIMIT_MEMORY;
	return account_inner(c, &o->hello.name, NAME_FROM_SNI, &d) < 0 ?
	    REASON_LEDGER_UNAVAILABLE : REASON_NONE;
}

/* The hello inside a tunnel: its name is the authority's, in one spelling. */
static enum reason
weigh_inside_hello(struct conn *c)
{
	struct opening *o = c->open;
	struct decide_at at = conn_at(c);

	if (o->hello.ech && decide_ech_denied(&at))
		return REASON_ECH;
	conn_keep_hello(c, &o->hello);
	if (o->hello.name.len == 0) {
		struct endpoint to = { o->addrs[0], o->to.port };

		if (o->is_addr && o->decision.original_only)
			return hello_passes(c);	/* an address rule */
		return decide_no_sni_pinned(&at) && weigh_nameless(c, &to,
		    true, WEIGH_FIRST).verdict == VERDICT_ALLOW ?
		    hello_passes(c) : REASON_NO_SNI;
	}
	if (o->is_addr)
		return weigh_inside_name(c);
	if (host_eq(&o->hello.name, &o->name))
		return hello_passes(c);
	o->other = o->hello.name;
	return REASON_SNI_MISMATCH;
}

static struct decision
weigh_hello(struct conn *c, enum weigh_when when)
{
	struct opening *o = c->open;
	struct decide_at at = conn_at(c);
	struct decision d = { .rule = RULE_NONE };

	if (o->hello.ech && decide_ech_denied(&at))
		return denied(d, REASON_ECH);
	conn_keep_hello(c, &o->hello);
	if (o->name.len > 0)
		return decide_name(&at, &o->name, o->to.port,
		    weigh_original(c));
	if (weigh_original(c) == NULL)
		return denied(d, REASON_NO_SNI);
	return decide_told_as(weigh_nameless(c, &c->original,
	    decide_no_sni_pinned(&at), when), REASON_NO_SNI);
}

struct decision
weigh_asked(struct conn *c, enum weigh_when when)
{
	struct opening *o = c->open;
	struct decide_at at = conn_at(c);

	if (o->name.len > 0)
		return decide_name(&at, &o->name, o->to.port,
		    weigh_original(c));
	return decide_told_as(weigh_nameless(c, &o->to, true, when),
	    REASON_ADDRESS_LITERAL);
}

struct decision
weigh_shown(struct conn *c, enum weigh_when when)
{
	struct opening *o = c->open;
	struct decision d = { .rule = RULE_NONE };

	switch (o->shown) {
	case SHOWN_NOTHING:
		return o->decision;
	case SHOWN_HELLO:
		return weigh_hello(c, when);
	case SHOWN_BYTES:
		if (weigh_original(c) == NULL)
			return denied(d, REASON_NOT_TLS);
		/* Names that share the address must not open it: junk in
		 * front of a request would carry any Host past its
		 * judgement.  protocol: tcp was judged before a look. */
		c->bytes = true;
		return decide_told_as(weigh_nameless(c, &c->original, false,
		    when), REASON_NOT_TLS);
	case SHOWN_REQUEST:
	case SHOWN_CONNECT:
		return weigh_asked(c, when);
	}
	return d;
}

struct decision
weigh_dialled(const struct conn *c, const struct decision *flow,
    const struct endpoint *to)
{
	struct decide_at at = conn_at(c);
	const struct endpoint *chosen = weigh_original(c);
	struct decision d = decide_addr(&at, flow, to);

	if (chosen == NULL && c->open != NULL)
		chosen = &c->open->to;
	if (d.verdict != VERDICT_ALLOW || !flow->original_only ||
	    chosen == NULL || addr_eq(&to->addr, &chosen->addr))
		return d;
	d.rule = RULE_NONE;
	return denied(d, REASON_NO_RULE);
}

bool
weigh_addr(struct conn *c, const struct endpoint *to, struct decision *d)
{
	*d = weigh_dialled(c, &c->open->decision, to);
	return d->verdict == VERDICT_ALLOW;
}

bool
weigh_fits(const struct conn *c, const struct decision *d,
    const struct endpoint *to)
{
	return weigh_dialled(c, d, to).verdict == VERDICT_ALLOW;
}

/* Inside a tunnel the connection was judged before; what is shown now must
 * fit it. */
static enum step
weigh_inside(struct conn *c)
{
	enum reason why = weigh_inside_hello(c);

	if (why != REASON_NONE)
		return conn_refuse(c, why);
	if (tunnel_begin(c) < 0)
		return conn_refuse(c, REASON_LIMIT_MEMORY);
	conn_enter(c, CONN_RELAY);
	return STEP_NEXT;
}

enum step
weigh_step(struct conn *c)
{
	struct opening *o = c->open;

	if (c->proxy->policy == NULL)
		return conn_refuse(c, REASON_POLICY_UNAVAILABLE);
	if (c->proxy->draining)
		return conn_refuse(c, REASON_DRAINING);
	if (c->cell == CELL_NONE)
		return conn_refuse(c, REASON_UNKNOWN_CELL);
	if (c->inside && o->shown == SHOWN_HELLO)
		return weigh_inside(c);
	o->decision = weigh_shown(c, WEIGH_FIRST);
	if (o->decision.verdict != VERDICT_ALLOW)
		return conn_refuse(c, o->decision.reason);
	c->port = o->to.port;
	if (c->forward != NULL && forward_reuses(c)) {
		if (account_decision(c, &o->decision, o->decision.reason) < 0)
			return conn_refuse(c, REASON_LEDGER_UNAVAILABLE);
		c->is_dialled = true;
		conn_enter(c, CONN_RELAY);
		return STEP_NEXT;
	}
	conn_close_up(c);
	/* Inside a tunnel they are those of the CONNECT. */
	o->failed = REASON_NONE;
	o->n_addrs = 0;
	conn_enter(c, CONN_RESOLVE);
	return STEP_NEXT;
}
