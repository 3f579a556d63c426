/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/verb.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "policy/decide.h"
#include "policy/qtype.h"
#include "policy/names.h"
#include "policy/rules.h"
#include "sidecar/settings.h"
#include "sidecar/source.h"

#define LINES_MAX 200u		/* of each direction; the rest is counted */
#define POINTS_MAX 4096u	/* ports or moments that make a difference */
#define PAIRS_MAX 48u		/* names that are pinned two by two */
#define ASKED_MAX 20000000u	/* questions about names at addresses */

/* Both sides of one cell, and what was found so far. */
struct diff {
	const struct source *side[2];
	uint32_t cell[2];
	uint16_t *ports;	/* where an answer may change */
	size_t n_ports;
	int64_t *times;
	size_t n_times;
	struct addr *addrs;
	size_t n_addrs, addrs_room;
	struct host *names;	/* of all rules; the last is any other */
	size_t n_names, names_room;
	size_t added, removed;
	char *lines[2 * LINES_MAX];	/* printed, so that none comes twice */
	size_t n_lines;
	int err;
};

static int diff_open(struct source *s[2], char **paths);
static void diff_cells(struct diff *d);
static void diff_cell(struct diff *d);

int
verb_diff(int argc, char **argv)
{
	const struct verb v = {
		"diff", "OLD NEW",
		"Print what NEW opens (+) and closes (-) against OLD: "
		"policies, or penstock.yaml\nfiles whose cells are compared "
		"by id.\n",
		"0 same access, 12 narrower, 10 wider (also when both), "
		"2 usage,\n78 bad configuration, 1 failure",
		2, 2, NULL, 0
	};
	struct source *s[2] = { NULL, NULL };
	struct diff d = { 0 };
	int rc = verb_read(&v, argc, argv);

	if (rc != VERB_GO)
		return rc;
	rc = diff_open(s, argv + optind);
	if (rc == 0) {
		d.side[0] = s[0];
		d.side[1] = s[1];
		diff_cells(&d);
		rc = d.err != 0 ? EXIT_FAILURE : d.added > 0 ? EXIT_DENY :
		    d.removed > 0 ? EXIT_NARROWER : 0;
		printf("%zu wider, %zu narrower\n", d.added, d.removed);
		if (fflush(stdout) != 0)
			rc = EXIT_FAILURE;
	}
	while (d.n_lines > 0)
		free(d.lines[--d.n_lines]);
	source_free(s[0]);
	source_free(s[1]);
	return rc;
}

static int
diff_open(struct source *s[2], char **paths)
{
	struct problems *ps;
	int i, err, rc = 0;

	for (i = 0; i < 2; i++) {
		ps = problem_new();
		if (ps == NULL)
			return EXIT_FAILURE;
		err = source_open(&s[i], paths[i], (int64_t)time(NULL), ps);
		if (err == -EINVAL) {
			problem_print(ps, stderr);
			rc = EXIT_CONFIG;
		} else if (err != 0) {
			source_say("diff", paths[i], err);
			rc = rc == 0 ? EXIT_FAILURE : rc;
		}
		problem_free(ps);
	}
	if (rc == 0 && (source_settings(s[0]) == NULL) !=
	    (source_settings(s[1]) == NULL)) {
		fprintf(stderr, "penstock diff: %s is a policy and %s a "
		    "penstock.yaml; name two of a kind\n",
		    paths[source_settings(s[0]) != NULL],
		    paths[source_settings(s[0]) == NULL]);
		rc = EXIT_USAGE;
	}
	return rc;
}

/* ---- findings ---- */

static void found(struct diff *d, bool wider, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void
found(struct diff *d, bool wider, const char *format, ...)
{
	size_t *count = wider ? &d->added : &d->removed;
	char line[2 * HOST_MAX_BYTES + 256];
	va_list ap;
	size_t i;

	line[0] = wider ? '+' : '-';
	line[1] = ' ';
	va_start(ap, format);
	(void)vsnprintf(line + 2, sizeof(line) - 2, format, ap);
	va_end(ap);
	for (i = 0; i < d->n_lines; i++)
		if (strcmp(d->lines[i], line) == 0)
			return;
	if (++*count > LINES_MAX)
		return;
	puts(line);
	d->lines[d->n_lines] = strdup(line);
	if (d->lines[d->n_lines] == NULL)
		d->err = -ENOMEM;
	else
		d->n_lines++;
}

/* ---- cells ---- */

static uint32_t
cell_twin(const struct source *other, const struct source *one,
    uint32_t cell)
{
	struct cell_view v;

	if (!policy_cell(source_policy(one), cell, 0, &v))
		return CELL_NONE;
	return policy_cell_by_id(source_policy(other), v.id);
}

static void
cell_alone(struct diff *d, int side, uint32_t cell)
{
	struct cell_view v;

	if (policy_cell(source_policy(d->side[side]), cell, 0, &v))
		found(d, side == 1, "cell %.*s", (int)v.id.len,
		    (const char *)v.id.data);
}

static void
resolvers_compare(struct diff *d)
{
	struct server a[POLICY_RESOLVERS_MAX], b[POLICY_RESOLVERS_MAX];
	size_t n, i;
	bool same;

	n = policy_resolvers(source_policy(d->side[0]), a);
	same = policy_resolvers(source_policy(d->side[1]), b) == n;
	for (i = 0; same && i < n; i++)
		same = server_eq(&a[i], &b[i]);
	if (!same)
		found(d, true, "other resolvers: they say which address a "
		    "name has");
}

/* Where agents are met is not compared in detail: unsure counts as wider. */
static void
settings_compare(struct diff *d)
{
	static const char *const keys[] = { "mode", "listeners", "dns",
	    "interfaces", "inbound", "ipv6" };
	const struct settings *a = source_settings(d->side[0]);
	const struct settings *b = source_settings(d->side[1]);
	const char *key = a == NULL || b == NULL ? NULL :
	    settings_fixed_difference(a, b);
	size_t i;

	for (i = 0; key != NULL && i < sizeof(keys) / sizeof(keys[0]); i++)
		if (strcmp(key, keys[i]) == 0)
			found(d, true, "%s: differs, and what that opens is "
			    "not compared", key);
}

/* Told apart by the same things, whatever the prefix? */
static bool
same_kind(const struct cell_from *a, const struct cell_from *b)
{
	return a->kind == b->kind &&
	    strcmp(a->interface, b->interface) == 0 &&
	    strcmp(a->listener, b->listener) == 0 &&
	    memcmp(a->token_hash, b->token_hash, sizeof(a->token_hash)) == 0;
}

static bool
prefix_within(const struct cell_from *out, const struct cell_from *in)
{
	return !out->has_prefix || (in->has_prefix &&
	    in->prefix.bits >= out->prefix.bits &&
	    prefix_has(&out->prefix, &in->prefix.base));
}

/* Whose traffic is judged by this cell's policy. */
static void
from_compare(struct diff *d)
{
	const struct cell_from *a = source_from(d->side[0], d->cell[0]);
	const struct cell_from *b = source_from(d->side[1], d->cell[1]);
	struct cell_view v;
	bool narrower;

	if (a == NULL || b == NULL || !policy_cell(source_policy(d->side[1]),
	    d->cell[1], 0, &v))
		return;
	narrower = same_kind(a, b) && prefix_within(a, b);
	if (narrower && prefix_within(b, a))
		return;
	found(d, !narrower, "cell %.*s: from differs",
	    (int)v.id.len, (const char *)v.id.data);
}

static void
diff_cells(struct diff *d)
{
	uint32_t i, twin;

	settings_compare(d);
	resolvers_compare(d);
	for (i = 0; i < policy_cells(source_policy(d->side[0])); i++) {
		twin = cell_twin(d->side[1], d->side[0], i);
		if (twin == CELL_NONE) {
			cell_alone(d, 0, i);
			continue;
		}
		d->cell[0] = i;
		d->cell[1] = twin;
		from_compare(d);
		diff_cell(d);
	}
	for (i = 0; i < policy_cells(source_policy(d->side[1])); i++)
		if (cell_twin(d->side[0], d->side[1], i) == CELL_NONE)
			cell_alone(d, 1, i);
}

/* ---- the points where answers may change ---- */

static void
port_add(struct diff *d, uint32_t port)
{
	size_t i;

	if (port == 0 || port > 65535)
		return;
	for (i = 0; i < d->n_ports; i++)
		if (d->ports[i] == port)
			return;
	if (d->n_ports == POINTS_MAX)
		d->err = -E2BIG;
	else
		d->ports[d->n_ports++] = (uint16_t)port;
}

static void
time_add(struct diff *d, int64_t t)
{
	size_t i;

	if (t < d->times[0])
		return;
	for (i = 0; i < d->n_times; i++)
		if (d->times[i] == t)
			return;
	if (d->n_times == POINTS_MAX)
		d->err = -E2BIG;
	else
		d->times[d->n_times++] = t;
}

static int
time_order(const void *a, const void *b)
{
	const int64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static void
points_of_rules(struct diff *d, const struct rules *r)
{
	uint32_t k;
	size_t i;

	for (i = 0; i < r->n; i++) {
		for (k = 0; k < r->rule[i].n_ports; k++) {
			port_add(d, r->rule[i].ports[k].lo);
			port_add(d, r->rule[i].ports[k].hi + 1u);
		}
		if (r->rule[i].until_s != 0)
			time_add(d, r->rule[i].until_s);
	}
}

/* Between two points every rule answers as at the lower one. */
static void
points_collect(struct diff *d)
{
	const struct charter *const *c = NULL;
	size_t i, n;
	int side;

	d->n_ports = 0;
	d->n_times = 1;
	d->times[0] = (int64_t)time(NULL);
	port_add(d, 1);
	for (side = 0; side < 2; side++) {
		n = source_charters(d->side[side], d->cell[side], &c);
		for (i = 0; i < n; i++)
			points_of_rules(d, charter_rules(c[i]));
		if (n > 0 && charter_scalars(c[0])->report)
			time_add(d, charter_scalars(c[0])->report_until_s);
	}
	qsort(d->times, d->n_times, sizeof(*d->times), time_order);
}

/* ---- comparing ---- */

static struct decide_at
at_side(const struct diff *d, int side, int64_t now_s)
{
	return (struct decide_at){ .policy = source_policy(d->side[side]),
	    .cell = d->cell[side], .now_s = now_s };
}

/* What one side permits, as bits of which fewer is narrower. */
#define MAY_PASS 1u
#define MAY_PRIVATE 2u
#define MAY_OPAQUE 4u

static unsigned
permits(const struct decision *d)
{
	if (d->verdict != VERDICT_ALLOW)
		return 0;
	return MAY_PASS | (d->allow_private ? MAY_PRIVATE : 0u) |
	    (d->opaque ? MAY_OPAQUE : 0u);
}

static const char *
permit_words(unsigned bits)
{
	if ((bits & MAY_PASS) != 0)
		return "";
	return (bits & MAY_PRIVATE) != 0 ? " at private addresses" :
	    " without a look at the bytes";
}

/* One place over time: what is said once is said again only when it
 * changes. */
struct change {
	unsigned opened, closed;
};

static void
compare(struct diff *d, struct change *last, unsigned old, unsigned new,
    const char *what, uint16_t port, int64_t when)
{
	const char *later = when == d->times[0] ? "" : " (after a date)";
	const struct change now = { new & ~old, old & ~new };

	if ((now.opened & ~last->opened) != 0)
		found(d, true, "%s:%u%s%s", what, port,
		    permit_words(now.opened), later);
	if ((now.closed & ~last->closed) != 0)
		found(d, false, "%s:%u%s%s", what, port,
		    permit_words(now.closed), later);
	*last = now;
}

/* The types of question that a rule opens for the name. */
static void
types_compare(struct diff *d, const struct host *name, const char *shown)
{
	uint32_t opened = 0, closed = 0, old, new;
	char text[QTYPE_TEXT_BYTES];
	struct decide_at at;
	size_t t;

	for (t = 0; t < d->n_times; t++) {
		at = at_side(d, 0, d->times[t]);
		old = decide_question_types(&at, name);
		at = at_side(d, 1, d->times[t]);
		new = decide_question_types(&at, name);
		if ((new & ~old & ~opened) != 0)
			found(d, true, "%s: DNS questions for %s", shown,
			    qtype_text(new & ~old & ~opened, text));
		if ((old & ~new & ~closed) != 0)
			found(d, false, "%s: DNS questions for %s", shown,
			    qtype_text(old & ~new & ~closed, text));
		opened = new & ~old;
		closed = old & ~new;
	}
}

static void
name_compare(struct diff *d, const struct host *name, const char *shown)
{
	struct decide_at at[2];
	struct decision x[2];
	struct change last;
	size_t t, p;

	for (p = 0; p < d->n_ports; p++) {
		last = (struct change){ 0, 0 };
		for (t = 0; t < d->n_times; t++) {
			at[0] = at_side(d, 0, d->times[t]);
			at[1] = at_side(d, 1, d->times[t]);
			x[0] = decide_name(&at[0], name, d->ports[p], NULL);
			x[1] = decide_name(&at[1], name, d->ports[p], NULL);
			compare(d, &last, permits(&x[0]), permits(&x[1]),
			    shown, d->ports[p], d->times[t]);
		}
	}
	types_compare(d, name, shown);
}

/* An address as such, and as one that a name leads to. */
static void
addr_compare(struct diff *d, const struct addr *a)
{
	static const struct decision flow = { .verdict = VERDICT_ALLOW,
	    .would = VERDICT_ALLOW, .rule = RULE_NONE };
	char text[ADDR_TEXT_BYTES], shown[ADDR_TEXT_BYTES + 2];
	char named[ADDR_TEXT_BYTES + 32];
	struct endpoint to = { .addr = *a };
	struct change last[2];
	struct decision x[2], y[2];
	struct decide_at at;
	size_t t, p;
	int side;

	/* as in [v6]:port */
	(void)addr_text(a, text);
	(void)snprintf(shown, sizeof(shown), addr_is_v4(a) ? "%s" : "[%s]",
	    text);
	(void)snprintf(named, sizeof(named), "an allowed name at %s", shown);
	for (p = 0; p < d->n_ports; p++) {
		to.port = d->ports[p];
		memset(last, 0, sizeof(last));
		for (t = 0; t < d->n_times; t++) {
			for (side = 0; side < 2; side++) {
				at = at_side(d, side, d->times[t]);
				x[side] = decide_nameless(&at, &to, NULL, 0);
				y[side] = decide_addr(&at, &flow, &to);
			}
			compare(d, &last[0], permits(&x[0]), permits(&x[1]),
			    shown, to.port, d->times[t]);
			compare(d, &last[1], permits(&y[0]), permits(&y[1]),
			    named, to.port, d->times[t]);
		}
	}
}

/* The first address after the prefix: false when it is the last of all. */
static bool
prefix_after(const struct prefix *p, struct addr *out)
{
	unsigned i = p->bits, add;

	*out = p->base;
	while (i > 0) {
		i--;
		add = 1u << (7 - i % 8);
		if ((out->b[i / 8] & add) == 0) {
			out->b[i / 8] |= (uint8_t)add;
			return true;
		}
		out->b[i / 8] &= (uint8_t)~add;
	}
	return false;
}

static void
rule_compare(struct diff *d, const struct rule *r)
{
	char text[HOST_MAX_BYTES + 32], shown[HOST_MAX_BYTES + 32];
	struct host name, below;
	unsigned kinds;
	size_t at = 0;

	while (rules_pattern(r, &at, &name, &kinds)) {
		name_compare(d, &name, name.name);
		if ((kinds & NAMES_BELOW) == 0)
			continue;
		(void)snprintf(text, sizeof(text), "any-other.%s", name.name);
		(void)snprintf(shown, sizeof(shown), "*.%s", name.name);
		if (host_parse(&below, span_str(text)) == REASON_NONE)
			name_compare(d, &below, shown);
	}
}

static void
scalars_compare(struct diff *d)
{
	struct decide_at at[2] = { at_side(d, 0, d->times[0]),
	    at_side(d, 1, d->times[0]) };
	struct cell_view v[2];
	int side;

	for (side = 0; side < 2; side++)
		if (!policy_cell(at[side].policy, at[side].cell,
		    at[side].now_s, &v[side]))
			return;
	if (v[0].enforce_strict != v[1].enforce_strict)
		found(d, v[0].enforce_strict, "enforce: %s",
		    v[1].enforce_strict ? "strict" : "cooperative");
	if (decide_no_sni_pinned(&at[0]) != decide_no_sni_pinned(&at[1]))
		found(d, decide_no_sni_pinned(&at[1]), "no_sni: %s",
		    decide_no_sni_pinned(&at[1]) ? "pinned-ip" : "deny");
	if (decide_ech_denied(&at[0]) != decide_ech_denied(&at[1]))
		found(d, decide_ech_denied(&at[0]), "ech: %s",
		    decide_ech_denied(&at[1]) ? "deny" : "allow-outer");
}

/* The list with room for one more; NULL: none, and the comparison fails. */
static void *
room_for(struct diff *d, void *list, size_t n, size_t *room, size_t each)
{
	size_t want = *room == 0 ? 64 : 2 * *room;
	void *more;

	if (n < *room)
		return list;
	more = reallocarray(list, want, each);
	if (more == NULL)
		d->err = -ENOMEM;
	else
		*room = want;
	return more;
}

/* ---- addresses ---- */

static void
addr_add(struct diff *d, const struct addr *a)
{
	struct addr *more = room_for(d, d->addrs, d->n_addrs, &d->addrs_room,
	    sizeof(*more));

	if (more == NULL)
		return;
	d->addrs = more;
	d->addrs[d->n_addrs++] = *a;
}

/* Where a prefix begins, and where what is behind it does. */
static void
edges_add(struct diff *d, const struct prefix *p, size_t n)
{
	struct addr after;
	size_t i;

	for (i = 0; i < n; i++) {
		addr_add(d, &p[i].base);
		if (prefix_after(&p[i], &after))
			addr_add(d, &after);
	}
}

/* Addresses that hold an IPv4 address are judged as that: a public one and a
 * private one within each such form. */
static void
embedded_add(struct diff *d)
{
	static const char *const text[] = { "2002:808:808::",
	    "2002:a00:1::", "64:ff9b::808:808", "64:ff9b::a00:1",
	    "64:ff9b:1::808:808", "64:ff9b:1::a00:1", "::808:808",
	    "2001:0:808:808::f7f7:f7f7", "2001:0:808:808::f5ff:fffe" };
	struct addr a;
	size_t i;

	for (i = 0; i < sizeof(text) / sizeof(text[0]); i++)
		if (addr_parse(&a, span_str(text[i])))
			addr_add(d, &a);
}

static int
addr_order(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct addr));
}

static void
edges_of_cell(struct diff *d, int side)
{
	const struct charter *const *c = NULL;
	size_t i, k, n = source_charters(d->side[side], d->cell[side], &c);
	const struct rules *r;

	for (i = 0; i < n; i++) {
		r = charter_rules(c[i]);
		for (k = 0; k < r->n; k++)
			if (r->rule[k].has_prefix)
				edges_add(d, &r->rule[k].prefix, 1);
	}
	if (n == 0)
		return;
	edges_add(d, charter_scalars(c[0])->lab, charter_scalars(c[0])->n_lab);
	edges_add(d, charter_scalars(c[0])->nat64,
	    charter_scalars(c[0])->n_nat64);
}

/* From one edge to the next every address is judged alike, by rule and by
 * class: the first stands for all. */
static void
addrs_compare(struct diff *d)
{
	const struct prefix *ranges;
	size_t i, n = addr_ranges(&ranges);

	d->n_addrs = 0;
	edges_add(d, ranges, n);
	embedded_add(d);
	edges_of_cell(d, 0);
	edges_of_cell(d, 1);
	qsort(d->addrs, d->n_addrs, sizeof(*d->addrs), addr_order);
	for (i = 0; i < d->n_addrs && d->err != -ENOMEM; i++)
		if (i == 0 || !addr_eq(&d->addrs[i], &d->addrs[i - 1]))
			addr_compare(d, &d->addrs[i]);
}

/* ---- names at addresses that a rule opens ---- */

static void
name_add(struct diff *d, const struct host *name)
{
	struct host *more = room_for(d, d->names, d->n_names, &d->names_room,
	    sizeof(*more));

	if (more == NULL)
		return;
	d->names = more;
	d->names[d->n_names++] = *name;
}

static void
names_of_rule(struct diff *d, const struct rule *r)
{
	char text[HOST_MAX_BYTES + 32];
	struct host name, below;
	unsigned kinds;
	size_t at = 0;

	while (d->err == 0 && rules_pattern(r, &at, &name, &kinds)) {
		name_add(d, &name);
		if ((kinds & NAMES_BELOW) == 0)
			continue;
		(void)snprintf(text, sizeof(text), "any-other.%s", name.name);
		if (host_parse(&below, span_str(text)) == REASON_NONE)
			name_add(d, &below);
	}
}

static int
host_order(const void *a, const void *b)
{
	const struct host *x = a, *y = b;

	return strcmp(x->name, y->name);
}

/* Each once, and behind them one that no rule names. */
static void
names_collect(struct diff *d)
{
	const struct charter *const *c = NULL;
	const struct rules *r;
	struct host other;
	size_t i, k, n;
	int side;

	d->n_names = 0;
	for (side = 0; side < 2; side++) {
		n = source_charters(d->side[side], d->cell[side], &c);
		for (i = 0; i < n; i++) {
			r = charter_rules(c[i]);
			for (k = 0; k < r->n; k++)
				names_of_rule(d, &r->rule[k]);
		}
	}
	if (d->n_names > 0)
		qsort(d->names, d->n_names, sizeof(*d->names), host_order);
	for (i = 0, n = 0; i < d->n_names; i++)
		if (n == 0 || host_order(&d->names[n - 1], &d->names[i]) != 0)
			d->names[n++] = d->names[i];
	d->n_names = n;
	if (host_parse(&other, span_str("any-other.invalid")) == REASON_NONE)
		name_add(d, &other);
}

static bool
prefix_opens(const struct diff *d, const struct addr *a)
{
	const struct charter *const *c = NULL;
	const struct rules *r;
	size_t i, k, n;
	int side;

	for (side = 0; side < 2; side++) {
		n = source_charters(d->side[side], d->cell[side], &c);
		for (i = 0; i < n; i++) {
			r = charter_rules(c[i]);
			for (k = 0; k < r->n; k++)
				if (r->rule[k].has_prefix &&
				    r->rule[k].verdict == VERDICT_ALLOW &&
				    prefix_has(&r->rule[k].prefix, a))
					return true;
		}
	}
	return false;
}

/* What both sides permit, when a flow shows this name there. */
static void
named_at(const struct diff *d, const struct host *name,
    const struct endpoint *to, int64_t now_s, unsigned out[2])
{
	struct decide_at at;
	struct decision x;
	int side;

	for (side = 0; side < 2; side++) {
		at = at_side(d, side, now_s);
		x = decide_name(&at, name, to->port, to);
		x = decide_addr(&at, &x, to);
		out[side] = permits(&x);
	}
}

/* When it shows none and these are pinned there. */
static void
pinned_at(const struct diff *d, const struct host *const *names, size_t n,
    const struct endpoint *to, int64_t now_s, unsigned out[2])
{
	struct decide_at at;
	struct decision x;
	int side;

	for (side = 0; side < 2; side++) {
		at = at_side(d, side, now_s);
		x = decide_nameless(&at, to, names, n);
		out[side] = permits(&x);
	}
}

/* What is told of the address or of the name alone is not told again. */
static void
told_before(const struct diff *d, const struct host *name,
    const struct endpoint *to, int64_t now_s, struct change *last)
{
	unsigned x[2];
	struct decide_at at[2] = { at_side(d, 0, now_s),
	    at_side(d, 1, now_s) };
	struct decision a = decide_name(&at[0], name, to->port, NULL);
	struct decision b = decide_name(&at[1], name, to->port, NULL);

	pinned_at(d, NULL, 0, to, now_s, x);
	last->opened |= (x[1] & ~x[0]) | (permits(&b) & ~permits(&a));
	last->closed |= (x[0] & ~x[1]) | (permits(&a) & ~permits(&b));
}

static void
pair_compare(struct diff *d, const struct host *a, const struct host *b,
    const struct addr *addr)
{
	const struct host *names[2] = { a, b };
	const size_t n = a == b ? 1 : 2;
	struct endpoint to = { .addr = *addr };
	char at[ADDR_TEXT_BYTES], what[2 * HOST_MAX_BYTES + 128];
	struct change last;
	unsigned x[2];
	size_t p, t;

	for (p = 0; p < d->n_ports; p++)
		for (t = 0; t < d->n_times; t++) {
			to.port = d->ports[p];
			(void)addr_text(addr, at);
			last = (struct change){ 0, 0 };
			told_before(d, a, &to, d->times[t], &last);
			if (n == 2)
				told_before(d, b, &to, d->times[t], &last);
			if (n == 1) {
				named_at(d, a, &to, d->times[t], x);
				(void)snprintf(what, sizeof(what),
				    "%s at %s, port", a->name, at);
				compare(d, &last, x[0], x[1], what, to.port,
				    d->times[t]);
			}
			pinned_at(d, names, n, &to, d->times[t], x);
			(void)snprintf(what, sizeof(what), "no name at %s "
			    "with the pins %s%s%s, port", at, a->name,
			    n == 2 ? " and " : "", n == 2 ? b->name : "");
			compare(d, &last, x[0], x[1], what, to.port,
			    d->times[t]);
		}
}

/* Alone, beside a name that no rule has, and beside each other. */
static void
names_at(struct diff *d, const struct addr *a)
{
	const size_t last = d->n_names - 1;
	size_t i, k;

	for (i = 0; i <= last; i++) {
		pair_compare(d, &d->names[i], &d->names[i], a);
		if (i < last)
			pair_compare(d, &d->names[i], &d->names[last], a);
		for (k = i + 1; k < last && last <= PAIRS_MAX; k++)
			pair_compare(d, &d->names[i], &d->names[k], a);
	}
}

/* Where a rule opens an address, the order of names and addresses counts.
 * The addresses are those that were compared alone. */
static void
flows_compare(struct diff *d)
{
	size_t i, n = 0;

	for (i = 0; i < d->n_addrs; i++)
		if ((i == 0 || !addr_eq(&d->addrs[i], &d->addrs[i - 1])) &&
		    prefix_opens(d, &d->addrs[i]))
			d->addrs[n++] = d->addrs[i];
	if (n == 0)
		return;
	names_collect(d);
	if (d->n_names * n * d->n_ports * d->n_times > ASKED_MAX &&
	    d->err == 0)
		d->err = -E2BIG;
	for (i = 0; i < n && d->err == 0 && d->n_names > 0; i++)
		names_at(d, &d->addrs[i]);
}

static void
diff_cell(struct diff *d)
{
	const struct charter *const *c = NULL;
	const struct rules *r;
	struct host any;
	size_t i, k, n;
	int side;

	d->ports = calloc(POINTS_MAX, sizeof(*d->ports));
	d->times = calloc(POINTS_MAX, sizeof(*d->times));
	if (d->ports == NULL || d->times == NULL) {
		d->err = -ENOMEM;
		goto out;
	}
	points_collect(d);
	scalars_compare(d);
	if (host_parse(&any, span_str("any-other.invalid")) == REASON_NONE)
		name_compare(d, &any, "every name that no rule matches");
	for (side = 0; side < 2; side++) {
		n = source_charters(d->side[side], d->cell[side], &c);
		for (i = 0; i < n; i++) {
			r = charter_rules(c[i]);
			for (k = 0; k < r->n; k++)
				rule_compare(d, &r->rule[k]);
		}
	}
	addrs_compare(d);
	if (d->err == 0)
		flows_compare(d);
	if (d->err == -E2BIG)
		fprintf(stderr, "penstock diff: more than %u ports or dates "
		    "in the rules, or too many names beside addresses: not "
		    "compared\n", POINTS_MAX);
out:
	free(d->names);
	d->names = NULL;
	d->names_room = 0;
	free(d->addrs);
	d->addrs = NULL;
	d->addrs_room = 0;
	free(d->ports);
	free(d->times);
	d->ports = NULL;
	d->times = NULL;
}
