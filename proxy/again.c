/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "proxy/conn.h"
#include "proxy/forward.h"

/*
 * What a new policy makes of what the one before it let pass: the question
 * that each was let pass by, asked anew.
 */

static bool
is_transparent(const struct conn *c)
{
	return c->via == VIA_TPROXY || c->via == VIA_REDIRECT;
}

/* Would a client that has come like this be let pass whatever its bytes are?
 * Without a look, by its address once they were looked at, or by a report
 * where no rule opens the port. */
static bool
carries_bytes(struct conn *c)
{
	struct decide_at at = conn_at(c);
	struct host names[PIN_NAMES_MAX];
	const struct host *ptr[PIN_NAMES_MAX];
	size_t n = pinned_kept(c, names, ptr);
	struct decision d;

	if (decide_opaque(&at, &c->original, ptr, n, &d))
		return d.verdict == VERDICT_ALLOW;
	d = decide_nameless(&at, &c->original, NULL, 0);
	if (d.verdict == VERDICT_ALLOW)
		return true;
	d = decide_nameless(&at, &c->original, ptr, n);
	return d.verdict == VERDICT_ALLOW &&
	    !decide_port_open(&at, &c->original);
}

/* The name that it asked for; false: an address, whatever was shown since. */
static bool
asked_name(const struct record *r, struct host *name)
{
	return r->name_from == NAME_FROM_CONNECT &&
	    host_parse(name, record_get(r, TEXT_NAME)) == REASON_NONE;
}

/* Is this one carried whatever its bytes are? */
static bool
is_carried(struct conn *c, const struct record *r)
{
	struct decide_at at = conn_at(c);
	struct decision d;
	struct host name;

	if (is_transparent(c))
		return carries_bytes(c);
	if (!c->inside)
		return false;
	if (asked_name(r, &name))
		d = decide_name(&at, &name, r->dialled.port, NULL);
	else
		d = weigh_nameless(c, &r->dialled, true, WEIGH_AGAIN);
	return d.verdict == VERDICT_ALLOW && d.opaque;
}

/* No rule, but a report lets it pass: with whatever name it shows. */
static bool
is_reported(struct conn *c, const struct record *r)
{
	struct decide_at at = conn_at(c);
	struct decision d = weigh_nameless(c, &r->dialled, true, WEIGH_AGAIN);
	struct cell_view v;

	return d.verdict == VERDICT_ALLOW && d.would == VERDICT_DENY &&
	    policy_cell(at.policy, at.cell, at.now_s, &v) && v.reports;
}

/* The name that was shown behind the decision: may it be? */
static bool
shown_fits(struct conn *c, const struct record *r, bool carried)
{
	struct decide_at at = conn_at(c);
	const struct endpoint *to = &r->dialled;
	struct decision d;
	struct host name;

	if (host_parse(&name, span_str(c->shown)) != REASON_NONE)
		return false;
	d = decide_name(&at, &name, to->port,
	    carried || is_transparent(c) ? to : NULL);
	return d.verdict == VERDICT_ALLOW && (d.original_only ||
	    c->shown_pinned || is_reported(c, r));
}

/* No name was shown, or none that counts: may the address be reached? */
static bool
nameless_fits(struct conn *c, const struct record *r)
{
	struct decide_at at = conn_at(c);
	bool pinned = !c->no_sni || decide_no_sni_pinned(&at);

	return weigh_nameless(c, &r->dialled, pinned, WEIGH_AGAIN).verdict ==
	    VERDICT_ALLOW;
}

/* A hello inside a CONNECT by name may show none where the address has
 * allowed names only: are they still? */
static bool
may_hide(struct conn *c, const struct record *r)
{
	struct decide_at at = conn_at(c);

	return !c->inside || !c->no_sni || (decide_no_sni_pinned(&at) &&
	    nameless_fits(c, r));
}

static bool
name_fits(struct conn *c, const struct record *r, const struct host *name)
{
	struct decide_at at = conn_at(c);
	struct decision d = decide_name(&at, name, r->dialled.port,
	    weigh_original(c));

	return d.verdict == VERDICT_ALLOW &&
	    weigh_dialled(c, &d, &r->dialled).verdict == VERDICT_ALLOW;
}

/* Is what this connection was allowed for still allowed? */
static bool
still_allowed(struct conn *c, const struct record *r)
{
	struct decide_at at = conn_at(c);
	bool asks = c->bytes || c->no_sni || c->shown != NULL;
	bool carried = asks && is_carried(c, r);
	struct host name;

	if (c->ech && decide_ech_denied(&at))
		return false;
	if (c->bytes && !carried)
		return false;
	if (c->shown != NULL && !shown_fits(c, r, carried))
		return false;
	if (r->name_from == NAME_FROM_PIN ||
	    host_parse(&name, record_get(r, TEXT_NAME)) != REASON_NONE)
		return carried || nameless_fits(c, r);
	return (carried || may_hide(c, r)) && name_fits(c, r, &name);
}

bool
again_keep_shown(struct conn *c, const struct host *name)
{
	const struct opening *o = c->open;
	struct endpoint to = { o->addrs[0], o->to.port };

	/* That of a CONNECT was asked for. */
	if (name->len == 0 || (c->inside && o->name.len > 0))
		return true;
	free(c->shown);
	c->shown = strdup(name->name);
	c->shown_pinned = pinned_has(c, name, &to.addr);
	return c->shown != NULL;
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
again_keep_cell(struct conn *c, bool by_credential)
{
	struct opening *o = c->open;
	struct cell_view v;

	c->token = by_credential ?
	    policy_cell_token(c->proxy->policy, c->cell) : 0;
	if (!policy_cell(c->proxy->policy, c->cell, conn_at(c).now_s, &v))
		return;
	copy_id(o->cell, v.id);
	copy_id(o->run, pin_run(&v));
}

/* Whose it was by its credential, or by where it comes from, it still is by
 * the same: another token is another's, and so is a client of another cell. */
static bool
is_still_its(struct conn *c)
{
	uint32_t cell = c->cell;
	enum reason why;

	if (cell == CELL_NONE)
		return false;
	if (c->token != 0) {
		if (policy_cell_token(c->proxy->policy, cell) == c->token)
			return true;
		c->cell = CELL_NONE;
		return false;
	}
	conn_cell(c, NULL, span_of(NULL, 0), &why);
	if (c->cell == cell)
		return true;
	c->cell = CELL_NONE;
	return false;
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
		return find_life(c, span_str(o->cell), span_str(o->run)) &&
		    is_still_its(c);
	if (c->end != NULL)
		lives = find_life(c, record_get(c->end, TEXT_CELL),
		    run_of_record(c->end)) && is_still_its(c);
	if (c->end != NULL && (c->via != VIA_HTTP || o == NULL))
		return lives;
	conn_cell(c, NULL, span_of(NULL, 0), &why);
	return lives && (c->cell != CELL_NONE || c->via == VIA_HTTP);
}

/* The HTTP request under way: its name, and where it went. */
static bool
request_allowed(struct conn *c)
{
	struct decision d = weigh_shown(c, WEIGH_AGAIN);

	return d.verdict == VERDICT_ALLOW && weigh_dialled(c, &d,
	    &c->end->dialled).verdict == VERDICT_ALLOW;
}

/* What is under way rests on this, taken anew: on that of a CONNECT also
 * when something was shown inside. */
static bool
decide_again(struct conn *c)
{
	struct opening *o = c->open;

	if (c->inside && o->shown != SHOWN_REQUEST)
		o->decision = weigh_asked(c, WEIGH_AGAIN);
	else if (o->shown == SHOWN_NOTHING)
		o->decision = weigh_nameless(c, &c->original, true,
		    WEIGH_AGAIN);
	else
		o->decision = weigh_shown(c, WEIGH_AGAIN);
	return o->decision.verdict == VERDICT_ALLOW;
}

/* What comes first is held against a decision. */
static bool
is_at_gate(const struct conn *c)
{
	return c->open != NULL && ((c->state == CONN_NAME && c->inside) ||
	    (c->state == CONN_RELAY && c->open->gate == GATE_OPAQUE));
}

/* Nothing is shown yet: may what comes still be anything? */
static bool
waits_for_anything(struct conn *c)
{
	return is_transparent(c) ? carries_bytes(c) :
	    c->open->decision.opaque;
}

static bool
gate_allowed(struct conn *c)
{
	if (!decide_again(c))
		return false;
	if (c->state == CONN_NAME || waits_for_anything(c))
		return true;
	/* From here on only what shows that it is allowed. */
	return tunnel_reads_first(c);
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
	if (o->shown == SHOWN_NOTHING && is_transparent(c) &&
	    !carries_bytes(c)) {
		dial_cancel(c);
		return tunnel_reads_first(c);
	}
	if (c->state == CONN_DIAL)
		return dial_judge_again(c);
	/* The one address that is open now needs no question. */
	if (o->ask != NULL && o->decision.original_only) {
		ask_cancel(o->ask);
		o->ask = NULL;
	}
	return true;
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
again_renumber(struct conn *c)
{
	if (c->state == CONN_END || !c->looked)
		return;
	/* Nothing is open yet that could go on for a while. */
	if (c->state == CONN_RESOLVE || c->state == CONN_DIAL) {
		again_judge(c);
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
again_judge(struct conn *c)
{
	bool ok;

	if ((c->state == CONN_END && !is_delivering(c)) || !c->looked)
		return;
	/* Numbers of rules are those of one policy. */
	if (c->open != NULL)
		c->open->decision.rule = RULE_NONE;
	ok = find_cell_again(c) && allowed_again(c);
	/* The next is dialled anew, also one whose head has begun. */
	if (ok && c->end_told && c->state == CONN_NAME)
		conn_close_up(c);
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
