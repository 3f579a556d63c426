/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>

#include "policy/cidr.h"
#include "policy/decide_part.h"

#define TRACE_BYTES 512

static void say(const struct decide_at *at, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- the trace ---- */

static void
say(const struct decide_at *at, const char *format, ...)
{
	char line[TRACE_BYTES];
	va_list ap;

	if (at->trace == NULL)
		return;
	va_start(ap, format);
	(void)vsnprintf(line, sizeof(line), format, ap);
	va_end(ap);
	at->trace->step(at->trace->arg, line);
}

/* "rule 3 (allow *.a.example, team.yaml:12, id 1a2b3c4d)" */
static const char *
rule_text(const struct ask *q, uint32_t rule, char out[static TRACE_BYTES])
{
	const struct image_rule *r = &q->rules[rule];
	struct span s = image_text(q->image, r->subject);
	struct span f = image_text(q->image, r->file);
	struct span i = image_text(q->image, r->id);
	char file[128];

	if (s.len > 200)
		s.len = 200;
	(void)snprintf(out, TRACE_BYTES, "rule %u (%s %.*s, %s:%u, id %.*s)",
	    rule + 1, allows(q, rule) ? "allow" : "deny", (int)s.len,
	    (const char *)s.data, span_print(f, file, sizeof(file)), r->line,
	    (int)i.len, (const char *)i.data);
	return out;
}

static void
say_rule(const struct ask *q, uint32_t rule, const char *what)
{
	char text[TRACE_BYTES];

	if (q->at->trace != NULL)
		say(q->at, "%s %s", rule_text(q, rule, text), what);
}

/* ---- names ---- */

static bool
on_name(void *arg, uint32_t rule, enum names_kind kind)
{
	struct first *f = arg;
	const struct ask *q = f->ask;
	const char *how = kind == NAMES_EXACT ? "names it" :
	    "is a wildcard above it";

	if (!in_date(q, rule)) {
		if (f->trace)
			say_rule(q, rule, "would match, but its until: is "
			    "over");
		return true;
	}
	if (!covers_port(q, rule, f->port)) {
		if (f->trace)
			say_rule(q, rule, "matches the name, not the port");
		return true;
	}
	if (f->trace)
		say_rule(q, rule, how);
	if (flag(q, rule, IMAGE_RULE_REPORT)) {
		lower(&f->report, rule);
		return true;
	}
	lower(&f->rule, rule);
	lower(allows(q, rule) ? &f->allow : &f->deny, rule);
	return true;
}

struct first
decide_first_name(const struct ask *q, const struct host *name, uint16_t port,
    bool trace)
{
	struct first f = first_begin(q, port, trace);

	names_visit(image_text(q->image, q->set->names), name, on_name, &f);
	return f;
}

/* ---- addresses ---- */

static bool
on_prefix(void *arg, uint32_t rule)
{
	struct first *f = arg;
	const struct ask *q = f->ask;

	if (!in_date(q, rule) || !covers_port(q, rule, f->port))
		return true;
	if (f->trace)
		say_rule(q, rule, "holds the address");
	if (flag(q, rule, IMAGE_RULE_REPORT))
		lower(&f->report, rule);
	else
		lower(allows(q, rule) ? &f->allow : &f->deny, rule);
	return true;
}

/* An allow must name the address that decides; a deny may name either. */
static struct first
first_prefix(const struct ask *q, const struct endpoint *to, bool trace)
{
	const struct span index = image_text(q->image, q->set->cidrs);
	const struct addr inner = judged(q, &to->addr);
	struct first f = first_begin(q, to->port, trace), outer;

	cidr_visit(index, &inner, on_prefix, &f);
	if (!addr_eq(&inner, &to->addr)) {
		outer = first_begin(q, to->port, trace);
		cidr_visit(index, &to->addr, on_prefix, &outer);
		lower(&f.deny, outer.deny);
		lower(&f.report, outer.report);
	}
	return f;
}

static bool
is_among(const struct ask *q, uint32_t from, uint32_t to,
    const struct endpoint *at, const struct addr *inner)
{
	const struct image_part own = image_head(q->image)->own;
	const struct endpoint *e =
	    (const void *)(q->image.data + own.at);

	for (uint32_t i = from; i < to; i++)
		if ((e[i].port == 0 || e[i].port == at->port) &&
		    (addr_eq(&e[i].addr, &at->addr) ||
		    addr_eq(&e[i].addr, inner)))
			return true;
	return false;
}

static bool
is_own(const struct ask *q, const struct endpoint *to,
    const struct addr *inner)
{
	const struct image_header *h = image_head(q->image);

	return is_among(q, 0, h->own.len - h->n_gateways, to, inner);
}

static bool
is_gateway(const struct ask *q, const struct endpoint *to,
    const struct addr *inner)
{
	const struct image_header *h = image_head(q->image);

	return is_among(q, h->own.len - h->n_gateways, h->own.len, to,
	    inner);
}

/* The class in which lab prefixes count as public. */
static enum addr_class
class_of(const struct ask *q, const struct addr *inner)
{
	enum addr_class c = addr_class(inner);
	uint32_t i;

	if (c != ADDR_BENCHMARK && c != ADDR_DOCUMENTATION)
		return c;
	for (i = 0; i < q->set->n_lab; i++)
		if (prefix_has(&q->set->lab[i], inner))
			return ADDR_PUBLIC;
	return c;
}

/* True when the allowing prefix was written for this class of addresses, as
 * all of it lies in a range of the class: 0.0.0.0/0 opens the public ones, not
 * 10.0.0.1 or the metadata service, and so does 10.0.0.0/7. */
static bool
written_for(const struct ask *q, uint32_t rule, enum addr_class c)
{
	return rule != RULE_NONE &&
	    prefix_class(&q->rules[rule].prefix) == c;
}

struct written {
	const struct ask *ask;
	uint16_t port;
	enum addr_class class;
	bool alone;		/* the rule names this one address */
	bool found;
};

static bool
on_written(void *arg, uint32_t rule)
{
	struct written *w = arg;

	w->found = in_date(w->ask, rule) && allows(w->ask, rule) &&
	    (w->port == 0 || covers_port(w->ask, rule, w->port)) &&
	    (w->alone ? w->ask->rules[rule].prefix.bits == 128 :
	    written_for(w->ask, rule, w->class));
	return !w->found;
}

static bool
opened_by_prefix(const struct ask *q, const struct addr *inner,
    uint16_t port, enum addr_class c)
{
	struct written w = { .ask = q, .port = port, .class = c };

	cidr_visit(image_text(q->image, q->set->cidrs), inner, on_written,
	    &w);
	return w.found;
}

/* A way out of this host is what all traffic goes through: no name leads to
 * it, and a wide prefix does not mean it. */
static bool
gateway_refuses(const struct ask *q, const struct decision *flow,
    const struct endpoint *to, const struct addr *inner)
{
	struct written w = { .ask = q, .port = to->port, .alone = true };

	if (!is_gateway(q, to, inner))
		return false;
	say(q->at, "it is a gateway of this host");
	if (flow->original_only)
		cidr_visit(image_text(q->image, q->set->cidrs), inner,
		    on_written, &w);
	return !w.found;
}

/* REASON_NONE when an address of this class may be dialled for the flow. */
static enum reason
class_refuses(const struct ask *q, const struct decision *flow,
    const struct addr *inner, uint16_t port)
{
	const enum addr_class c = class_of(q, inner);

	switch (c) {
	case ADDR_PUBLIC:
		return REASON_NONE;
	case ADDR_PRIVATE:
		if (flow->allow_private ||
		    opened_by_prefix(q, inner, port, c))
			return REASON_NONE;
		return REASON_PRIVATE_ADDRESS;
	case ADDR_BENCHMARK:
	case ADDR_DOCUMENTATION:
		return opened_by_prefix(q, inner, port, c) ? REASON_NONE :
		    REASON_SPECIAL_USE;
	case ADDR_LINK_LOCAL:
	case ADDR_METADATA:
		/* Never by a name, whatever a prefix says. */
		return flow->original_only &&
		    opened_by_prefix(q, inner, port, c) ? REASON_NONE :
		    REASON_SPECIAL_USE;
	case ADDR_RESERVED:
	case ADDR_UNSPECIFIED:
	case ADDR_LOOPBACK:
	case ADDR_MULTICAST:
		break;
	}
	return REASON_SPECIAL_USE;
}

static void
say_address(const struct ask *q, const struct endpoint *to,
    const struct addr *inner)
{
	char a[ADDR_TEXT_BYTES], b[ADDR_TEXT_BYTES];

	if (q->at->trace == NULL)
		return;
	if (addr_eq(&to->addr, inner))
		say(q->at, "address %s is %s", endpoint_text(to, a),
		    addr_class_word(class_of(q, inner)));
	else
		say(q->at, "address %s is judged as %s, which is %s",
		    endpoint_text(to, a), addr_text(inner, b),
		    addr_class_word(class_of(q, inner)));
}

static bool
is_sinkhole(const struct ask *q, const struct addr *a)
{
	static const struct addr none;
	const struct addr *to = image_head(q->image)->sinkhole;

	return !addr_eq(a, &none) &&
	    (addr_eq(a, &to[0]) || addr_eq(a, &to[1]));
}

static struct decision
judge_addr(const struct ask *q, const struct decision *flow,
    const struct endpoint *to)
{
	const struct addr inner = judged(q, &to->addr);
	struct first f;
	struct decision d = *flow;
	enum reason why;

	say_address(q, to, &inner);
	if (is_own(q, to, &inner)) {
		say(q->at, "it is penstock's own");
		return deny(REASON_OWN_LISTENER, RULE_NONE);
	}
	f = first_prefix(q, to, true);
	if (f.deny != RULE_NONE)
		return deny(REASON_CIDR_DENY, f.deny);
	why = gateway_refuses(q, flow, to, &inner) ? REASON_SPECIAL_USE :
	    class_refuses(q, flow, &inner, to->port);
	if (why != REASON_NONE)
		return deny(why, RULE_NONE);
	if (f.report != RULE_NONE && d.would == VERDICT_ALLOW) {
		d.would = VERDICT_DENY;
		d.reason = REASON_CIDR_DENY;
		d.rule = f.report;
	}
	return d;
}

/* ---- questions ---- */

/* No rule matches. */
static struct decision
unmatched(const struct ask *q, enum reason why)
{
	if (!reporting(q)) {
		say(q->at, "no rule matches: default deny");
		return deny(why, RULE_NONE);
	}
	say(q->at, "no rule matches: default report");
	return reported(why, RULE_NONE);
}

static struct decision
flow_name(const struct ask *q, const struct host *name, uint16_t port,
    const struct endpoint *original)
{
	struct first f = decide_first_name(q, name, port, true), p;
	struct decision d;

	if (f.rule != RULE_NONE) {
		say_rule(q, f.rule, "is the first that matches and decides");
		d = allows(q, f.rule) ? by_rule(q, f.rule) :
		    deny(REASON_RULE_DENY, f.rule);
	} else {
		d = unmatched(q, REASON_NO_RULE);
		p = first_begin(q, port, false);
		if (original != NULL)
			p = first_prefix(q, original, false);
		if (p.allow != RULE_NONE) {
			say_rule(q, p.allow, "holds the original "
			    "destination: that address alone");
			d = by_rule(q, p.allow);
			d.allow_private = false;
			d.original_only = true;
		}
	}
	mark_report(&d, f.report);
	return d;
}

struct decision
decide_name(const struct decide_at *at, const struct host *name,
    uint16_t port, const struct endpoint *original)
{
	struct ask q;

	if (!ask_begin(&q, at))
		return no_policy(at);
	if (name->len == 0)
		return deny(REASON_NAME_MALFORMED, RULE_NONE);
	return flow_name(&q, name, port, original);
}

struct decision
decide_addr(const struct decide_at *at, const struct decision *flow,
    const struct endpoint *to)
{
	struct ask q;

	if (!ask_begin(&q, at))
		return no_policy(at);
	if (flow->verdict != VERDICT_ALLOW)
		return *flow;
	return judge_addr(&q, flow, to);
}

/* All names live on an address, judged together on one port. */
struct pinned {
	bool all_allowed;
	uint32_t allow;		/* the first rule that allowed one */
	uint32_t deny;		/* the first rule that denies one */
	uint32_t report;
	bool allow_private;	/* every one of those rules says so */
	bool opaque;
};

static struct pinned
pinned_judge(const struct ask *q, const struct host *const *names, size_t n,
    uint16_t port)
{
	struct pinned p = { .all_allowed = n > 0, .allow = RULE_NONE,
	    .deny = RULE_NONE, .report = RULE_NONE, .allow_private = true,
	    .opaque = true };
	struct first f;
	size_t i;

	for (i = 0; i < n; i++) {
		say(q->at, "the address is pinned for %s", names[i]->name);
		f = decide_first_name(q, names[i], port, true);
		lower(&p.deny, f.deny);
		if (f.report < f.rule)
			lower(&p.report, f.report);
		if (f.rule == RULE_NONE || !allows(q, f.rule)) {
			p.all_allowed = false;
			continue;
		}
		lower(&p.allow, f.rule);
		p.allow_private &= flag(q, f.rule, IMAGE_RULE_ALLOW_PRIVATE);
		p.opaque &= flag(q, f.rule, IMAGE_RULE_OPAQUE);
	}
	return p;
}

/* The first rule that denies any name on the port, before rule `end`. */
static uint32_t
first_name_deny(const struct ask *q, uint16_t port, uint32_t end)
{
	const struct image_part d = q->set->denies;
	const uint32_t *rule = (const void *)(q->image.data + d.at);
	uint32_t i;

	for (i = 0; i < d.len && rule[i] < end; i++)
		if (in_date(q, rule[i]) && covers_port(q, rule[i], port))
			return rule[i];
	return RULE_NONE;
}

/* No rule allows a flow that shows no name. */
static struct decision
nameless_unmatched(const struct ask *q, uint16_t port, const struct pinned *p,
    size_t n)
{
	uint32_t denied = RULE_NONE;
	struct decision d;

	if (p->deny != RULE_NONE)
		return deny(REASON_RULE_DENY, p->deny);
	d = unmatched(q, n == 0 ? REASON_NOT_PINNED : REASON_NAMELESS);
	/* A report lets pass what no rule matches: a name that a rule denies
	 * may be the one that is not shown. */
	if (n == 0 && d.verdict == VERDICT_ALLOW)
		denied = first_name_deny(q, port, RULE_NONE);
	return denied != RULE_NONE ? deny(REASON_RULE_DENY, denied) : d;
}

static struct decision
nameless_pinned(const struct ask *q, const struct pinned *p)
{
	struct decision d = by_rule(q, p->allow);

	say_rule(q, p->allow, "allows every name on this address");
	d.allow_private = p->allow_private;
	d.opaque = p->opaque;
	return d;
}

/* An address rule allows, unless what is not shown may be denied before. */
static struct decision
nameless_address(const struct ask *q, uint16_t port, const struct pinned *p,
    size_t n, uint32_t allow)
{
	uint32_t denied = n > 0 ? p->deny : first_name_deny(q, port, allow);
	struct decision d;

	if (denied < allow) {
		say_rule(q, denied, "may be the name that is not shown, and "
		    "stands before the address rule");
		return deny(REASON_RULE_DENY, denied);
	}
	say_rule(q, allow, "is the first that allows");
	d = by_rule(q, allow);
	d.allow_private = false;
	d.original_only = true;
	/* Nothing that the client could show would matter here. */
	d.opaque = !image_port_bit(q->image, q->set->named_ports, port);
	return d;
}

/*
 * Rules in order for a flow that shows no name.  The indexes give the first
 * rule of each kind that matches, so the order is a comparison of numbers.
 */
static struct decision
flow_nameless(const struct ask *q, const struct endpoint *to,
    const struct host *const *names, size_t n)
{
	const struct first f = first_prefix(q, to, false);
	const struct pinned p = pinned_judge(q, names, n, to->port);
	const uint32_t named = p.all_allowed ? p.allow : RULE_NONE;
	struct decision d;

	if (is_sinkhole(q, &to->addr)) {
		say(q->at, "it is where denied names lead");
		return deny(REASON_SINKHOLE, RULE_NONE);
	}
	if (named == RULE_NONE && f.allow == RULE_NONE)
		d = nameless_unmatched(q, to->port, &p, n);
	else if (named < f.allow)
		d = nameless_pinned(q, &p);
	else
		d = nameless_address(q, to->port, &p, n, f.allow);
	mark_report(&d, p.report);
	return d;
}

struct decision
decide_nameless(const struct decide_at *at, const struct endpoint *to,
    const struct host *const *names, size_t n_names)
{
	struct decision d;
	struct ask q;

	if (!ask_begin(&q, at))
		return no_policy(at);
	d = flow_nameless(&q, to, names, n_names);
	return d.verdict == VERDICT_ALLOW ? judge_addr(&q, &d, to) : d;
}

/* Those that begin with TLS on another port of theirs too, and not those that
 * often begin with TLS on this one. */
const char *
decide_nameless_protocol(uint16_t port)
{
	switch (port) {
	case 21: return "FTP";
	case 22: return "SSH";
	case 23: return "Telnet";
	case 25:
	case 587: return "SMTP";
	case 110: return "POP3";
	case 143: return "IMAP";
	case 1433: return "SQL Server";
	case 3306: return "MySQL";
	case 3389: return "RDP";
	case 5432: return "PostgreSQL";
	case 5900: return "VNC";
	default: return NULL;
	}
}

struct decision
decide_told_as(struct decision d, enum reason why)
{
	if (d.verdict == VERDICT_DENY && (d.reason == REASON_NAMELESS ||
	    d.reason == REASON_NO_RULE || d.reason == REASON_NOT_PINNED))
		d.reason = why;
	return d;
}

struct decision
decide_bytes(const struct decide_at *at, const struct decision *flow,
    const struct endpoint *to)
{
	if (flow->verdict != VERDICT_ALLOW || flow->opaque ||
	    flow->original_only)
		return *flow;
	if (to == NULL)
		return deny(REASON_NOT_TLS, RULE_NONE);
	return decide_told_as(decide_nameless(at, to, NULL, 0),
	    REASON_NOT_TLS);
}

bool
decide_reads_first(const struct decide_at *at, uint16_t port)
{
	struct ask q;

	return ask_begin(&q, at) &&
	    image_port_bit(q.image, q.set->named_ports, port);
}

bool
decide_opaque(const struct decide_at *at, const struct endpoint *to,
    const struct host *const *names, size_t n_names, struct decision *out)
{
	struct decision d;
	struct ask q;

	if (!ask_begin(&q, at)) {
		*out = no_policy(at);
		return true;
	}
	/* On other ports the client's bytes are read first. */
	if (image_port_bit(q.image, q.set->named_ports, to->port))
		return false;
	d = flow_nameless(&q, to, names, n_names);
	if (d.verdict == VERDICT_ALLOW)
		d = judge_addr(&q, &d, to);
	if (d.verdict == VERDICT_ALLOW ? !d.opaque :
	    !image_port_bit(q.image, q.set->opaque_ports, to->port))
		return false;
	*out = d;
	return true;
}

bool
decide_port_open(const struct decide_at *at, const struct endpoint *to)
{
	struct decision d;
	struct ask q;

	if (!ask_begin(&q, at))
		return false;
	d = flow_nameless(&q, to, NULL, 0);
	return image_port_bit(q.image, q.set->named_ports, to->port) ||
	    image_port_bit(q.image, q.set->opaque_ports, to->port) ||
	    (d.verdict == VERDICT_ALLOW && d.would == VERDICT_ALLOW);
}

/* ---- settings ---- */

bool
decide_no_sni_pinned(const struct decide_at *at)
{
	struct ask q;

	return ask_begin(&q, at) && q.set->no_sni_pinned != 0;
}

bool
decide_ech_denied(const struct decide_at *at)
{
	struct ask q;

	return !ask_begin(&q, at) || q.set->ech_denied != 0;
}
