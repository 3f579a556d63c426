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

static const struct endpoint *
original_of(const struct conn *c)
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

/* What is judged as it comes has the names that live; what is judged again,
 * by a new policy, those that it was allowed with.  A pin that ended, or one
 * that came, takes nothing from what is open: only a policy does. */
enum when { FIRST, AGAIN };

/* A flow without a name, to an address; `pinned`: names on it may count. */
static struct decision
weigh_nameless(struct conn *c, const struct endpoint *to, bool pinned,
    enum when when)
{
	struct decide_at at = conn_at(c);
	struct host names[PIN_NAMES_MAX];
	const struct host *ptr[PIN_NAMES_MAX];
	struct decision d;
	size_t n = 0;

	if (pinned && when == FIRST)
		n = pinned_names(c, &to->addr, names, ptr);
	else if (pinned)
		n = pinned_kept(c, names, ptr);
	d = decide_nameless(&at, to, ptr, n);
	if (when == FIRST && d.verdict == VERDICT_ALLOW &&
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
		return hello_passes(c);
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
		    true, FIRST).verdict == VERDICT_ALLOW ?
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
weigh_hello(struct conn *c, enum when when)
{
	struct opening *o = c->open;
	struct decide_at at = conn_at(c);
	struct decision d = { .rule = RULE_NONE };

	if (o->hello.ech && decide_ech_denied(&at))
		return denied(d, REASON_ECH);
	conn_keep_hello(c, &o->hello);
	if (o->name.len > 0)
		return decide_name(&at, &o->name, o->to.port, original_of(c));
	if (original_of(c) == NULL)
		return denied(d, REASON_NO_SNI);
	d = weigh_nameless(c, &c->original, decide_no_sni_pinned(&at), when);
	if (d.verdict == VERDICT_DENY && (d.reason == REASON_NAMELESS ||
	    d.reason == REASON_NO_RULE || d.reason == REASON_NOT_PINNED))
		d.reason = REASON_NO_SNI;
	return d;
}

/* A request or CONNECT: a name, or an address literal. */
static struct decision
weigh_asked(struct conn *c, enum when when)
{
	struct opening *o = c->open;
	struct decide_at at = conn_at(c);
	struct decision d;

	if (o->name.len > 0)
		return decide_name(&at, &o->name, o->to.port, original_of(c));
	d = weigh_nameless(c, &o->to, true, when);
	if (d.verdict == VERDICT_DENY && (d.reason == REASON_NAMELESS ||
	    d.reason == REASON_NO_RULE || d.reason == REASON_NOT_PINNED))
		d.reason = REASON_ADDRESS_LITERAL;
	return d;
}

static struct decision
weigh(struct conn *c, enum when when)
{
	struct opening *o = c->open;
	struct decision d = { .rule = RULE_NONE };

	switch (o->shown) {
	case SHOWN_NOTHING:
		return o->decision;
	case SHOWN_HELLO:
		return weigh_hello(c, when);
	case SHOWN_BYTES:
		if (original_of(c) == NULL)
			return denied(d, REASON_NOT_TLS);
		/* Names that share the address must not open it: junk in
		 * front of a request would carry any Host past its
		 * judgement.  protocol: tcp was judged before a look. */
		c->bytes = true;
		d = weigh_nameless(c, &c->original, false, when);
		if (d.verdict == VERDICT_DENY &&
		    (d.reason == REASON_NAMELESS ||
		    d.reason == REASON_NO_RULE ||
		    d.reason == REASON_NOT_PINNED))
			d.reason = REASON_NOT_TLS;
		return d;
	case SHOWN_REQUEST:
	case SHOWN_CONNECT:
		return weigh_asked(c, when);
	}
	return d;
}

/* An address for a flow: that of an address rule is the one the client
 * chose. */
static struct decision
judge_addr(const struct conn *c, const struct decision *flow,
    const struct endpoint *to)
{
	struct decide_at at = conn_at(c);
	const struct endpoint *chosen = original_of(c);
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
	*d = judge_addr(c, &c->open->decision, to);
	return d->verdict == VERDICT_ALLOW;
}

bool
weigh_fits(const struct conn *c, const struct decision *d,
    const struct endpoint *to)
{
	return judge_addr(c, d, to).verdict == VERDICT_ALLOW;
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
	o->decision = weigh(c, FIRST);
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

/* A hello inside a CONNECT by name may show none where the address has
 * allowed names only: are they still? */
static bool
may_hide(struct conn *c, const struct record *r)
{
	struct decide_at at = conn_at(c);

	return !c->inside || !c->no_sni || (decide_no_sni_pinned(&at) &&
	    weigh_nameless(c, &r->dialled, true, AGAIN).verdict ==
	    VERDICT_ALLOW);
}

/* Is what this connection was allowed for still allowed? */
static bool
still_allowed(struct conn *c, const struct record *r)
{
	struct decide_at at = conn_at(c);
	struct span text = record_get(r, TEXT_NAME);
	bool pinned = !c->bytes &&
	    (!c->no_sni || decide_no_sni_pinned(&at));
	struct decision d;
	struct host name;

	if (c->ech && decide_ech_denied(&at))
		return false;
	if (text.len == 0 || r->name_from == NAME_FROM_PIN ||
	    host_parse(&name, text) != REASON_NONE)
		return weigh_nameless(c, &r->dialled, pinned, AGAIN).verdict
		    == VERDICT_ALLOW;
	if (!may_hide(c, r))
		return false;
	d = decide_name(&at, &name, r->dialled.port, original_of(c));
	if (d.verdict != VERDICT_ALLOW)
		return false;
	return judge_addr(c, &d, &r->dialled).verdict == VERDICT_ALLOW;
}

/* The value of "run" in a record's labels ("team=a,run=7"). */
static struct span
run_of_record(const struct record *r)
{
	struct span all = record_get(r, TEXT_LABELS);

	while (all.len > 0) {
		const uint8_t *end = memchr(all.data, ',', all.len);
		size_t n = end ? (size_t)(end - all.data) : all.len;

		if (n >= 4 && memcmp(all.data, "run=", 4) == 0)
			return span_of(all.data + 4, n - 4);
		n += end != NULL;
		all = span_of(all.data + n, all.len - n);
	}
	return all;
}

/* A life of a cell is its id and its label "run": another run is another
 * cell, whose predecessor's connections end. */
static bool
find_life(struct conn *c, struct span id, struct span run)
{
	const struct policy *p = c->proxy->policy;
	struct cell_view v;

	c->cell = policy_cell_by_id(p, id);
	if (c->cell != CELL_NONE &&
	    policy_cell(p, c->cell, conn_at(c).now_s, &v) &&
	    span_eq(pin_run(&v), run))
		return true;
	c->cell = CELL_NONE;
	return false;
}

static void
copy_id(char out[static POLICY_ID_BYTES], struct span s)
{
	size_t n = s.len < POLICY_ID_BYTES ? s.len : POLICY_ID_BYTES - 1;

	if (n > 0)
		memcpy(out, s.data, n);
	out[n] = '\0';
}

void
conn_keep_cell(struct conn *c)
{
	struct opening *o = c->open;
	struct cell_view v;

	if (!policy_cell(c->proxy->policy, c->cell, conn_at(c).now_s, &v))
		return;
	copy_id(o->cell, v.id);
	copy_id(o->run, pin_run(&v));
}

/* Numbers of cells are those of one policy: find the cell anew.  The request
 * at hand may carry another credential than the one that was told of last; as
 * long as it has shown none it is nobody's but the socket's, and goes on while
 * the one before may. */
static bool
find_cell_again(struct conn *c)
{
	const struct opening *o = c->open;
	bool lives = true;
	enum reason why;

	if (c->proxy->policy == NULL)
		return false;
	if (o != NULL && o->cell[0] != '\0')
		return find_life(c, span_str(o->cell), span_str(o->run));
	if (c->end != NULL)
		lives = find_life(c, record_get(c->end, TEXT_CELL),
		    run_of_record(c->end));
	if (c->end != NULL && (c->via != VIA_HTTP || o == NULL))
		return lives;
	conn_cell(c, NULL, span_of(NULL, 0), &why);
	return lives && (c->cell != CELL_NONE || c->via == VIA_HTTP);
}

/* The HTTP request under way: its name, and where it went. */
static bool
request_allowed(struct conn *c)
{
	struct decision d = weigh(c, AGAIN);

	return d.verdict == VERDICT_ALLOW && judge_addr(c, &d,
	    &c->end->dialled).verdict == VERDICT_ALLOW;
}

/* What is under way rests on this, taken anew: on that of a CONNECT also
 * when something was shown inside. */
static bool
decide_again(struct conn *c)
{
	struct opening *o = c->open;

	if (c->inside && o->shown != SHOWN_REQUEST)
		o->decision = weigh_asked(c, AGAIN);
	else if (o->shown == SHOWN_NOTHING)
		o->decision = weigh_nameless(c, &c->original, true, AGAIN);
	else
		o->decision = weigh(c, AGAIN);
	return o->decision.verdict == VERDICT_ALLOW;
}

/* Judged, and not there yet: an old dial or question wins nothing that the
 * policy of now would not begin.  Also the second request of a kept
 * connection. */
static bool
way_allowed(struct conn *c)
{
	struct opening *o = c->open;

	if (!decide_again(c))
		return false;
	if (c->state == CONN_DIAL)
		return dial_judge_again(c);
	/* The one address that is open now needs no question. */
	if (o->ask != NULL && o->decision.original_only) {
		ask_cancel(o->ask);
		o->ask = NULL;
	}
	return true;
}

/* What comes first is held against a decision. */
static bool
is_at_gate(const struct conn *c)
{
	return c->open != NULL && ((c->state == CONN_NAME && c->inside) ||
	    (c->state == CONN_RELAY && c->open->gate == GATE_OPAQUE));
}

static bool
gate_allowed(struct conn *c)
{
	bool opaque = c->open->decision.opaque;

	if (!decide_again(c))
		return false;
	if (c->state == CONN_NAME || !opaque || c->open->decision.opaque)
		return true;
	/* From here on only what shows that it is allowed. */
	return tunnel_reads_first(c);
}

/* What was allowed before: is it still? */
static bool
allowed_again(struct conn *c)
{
	if (c->state == CONN_RESOLVE || c->state == CONN_DIAL)
		return way_allowed(c);
	if (!account_is_open(c))
		return true;
	/* The request under way; a later one is judged anyway. */
	if (c->forward != NULL)
		return (c->state != CONN_RELAY && c->state != CONN_END) ||
		    request_allowed(c);
	if (c->state == CONN_NAME && !c->inside)
		return true;
	return still_allowed(c, c->end) && (!is_at_gate(c) ||
	    gate_allowed(c));
}

void
conn_renumber(struct conn *c)
{
	if (c->state == CONN_END || !c->looked)
		return;
	/* Nothing is open yet that could go on for a while. */
	if (c->state == CONN_RESOLVE || c->state == CONN_DIAL) {
		conn_judge_again(c);
		return;
	}
	/* Without a cell whatever it asks next is refused. */
	(void)find_cell_again(c);
	if (c->open != NULL)
		c->open->decision.rule = RULE_NONE;
}

/* Nothing is asked for, of which a record could tell. */
static bool
is_between_requests(const struct conn *c)
{
	return c->end_told && c->state == CONN_NAME &&
	    c->open->shown == SHOWN_NOTHING;
}

/* One side has reset, and what came from it still goes to the other. */
static bool
is_delivering(const struct conn *c)
{
	return c->state == CONN_END && (c->how == HOW_RESET_CLIENT ||
	    c->how == HOW_RESET_UPSTREAM);
}

void
conn_judge_again(struct conn *c)
{
	bool ok;

	if ((c->state == CONN_END && !is_delivering(c)) || !c->looked)
		return;
	/* Numbers of rules are those of one policy. */
	if (c->open != NULL)
		c->open->decision.rule = RULE_NONE;
	ok = find_cell_again(c) && allowed_again(c);
	if (ok && is_between_requests(c))
		conn_close_up(c);	/* the next is dialled anew */
	if (ok && c->open != NULL)
		conn_run(c);		/* by what it rests on now */
	if (ok)
		return;
	if (c->state == CONN_END) {
		c->how = HOW_CUT;
		c->reason = REASON_POLICY_CHANGED;
	} else if (account_is_open(c) || is_between_requests(c))
		conn_cut(c, HOW_CUT, REASON_POLICY_CHANGED);
	else
		conn_refuse(c, REASON_POLICY_CHANGED);
	conn_run(c);
}
