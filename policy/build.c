/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/build.h"

#include <errno.h>
#include <stdlib.h>

#include "policy/cidr.h"
#include "policy/decide.h"
#include "policy/names.h"
#include "policy/rules.h"
#include "policy/shadow.h"

#define DAY_S INT64_C(86400)

/* The rules of one set, in order, and what is made of them. */
struct set {
	const struct policy_cell_source *cell;	/* the first that has it */
	const struct charter_scalars *scalars;
	const struct rule **rule;
	struct image_rule *out;
	uint32_t n;
	uint8_t named[IMAGE_PORT_BYTES], opaque[IMAGE_PORT_BYTES];
	struct names_builder *names;
	struct cidr_builder *cidrs;
};

/* So many names in one file that they are not held twice. */
#define SPEND_BYTES (1u << 20)

struct building {
	const struct policy_source *src;
	struct image_writer *w;
	struct problems *ps;
	struct image_set *sets;
	uint32_t n_sets;
	const struct policy_cell_source **set_cell;
	uint32_t *cell_set;
};

static int cells_check(const struct building *b);
static void resolvers_check(const struct building *b,
    struct image_header *h);
static bool any_wrong(const struct policy_source *src);
static int sets_build(struct building *b);
static void cells_write(struct building *b, struct image_part *out);

int
build_image(const struct policy_source *src, struct image_writer *w,
    struct problems *ps)
{
	size_t before = problem_count(ps, PROBLEM_ERROR);
	struct building b = { .src = src, .w = w, .ps = ps };
	struct image_header h = { .magic = IMAGE_MAGIC,
	    .version = IMAGE_VERSION, .generation = src->generation };
	int err = -ENOMEM;

	b.sets = calloc(src->n_cells + 1, sizeof(*b.sets));
	b.set_cell = calloc(src->n_cells + 1, sizeof(*b.set_cell));
	b.cell_set = calloc(src->n_cells + 1, sizeof(*b.cell_set));
	if (b.sets == NULL || b.set_cell == NULL || b.cell_set == NULL)
		goto out;
	err = cells_check(&b);
	if (err != 0)
		goto out;
	resolvers_check(&b, &h);
	memcpy(h.sinkhole, src->sinkhole, sizeof(h.sinkhole));
	(void)image_room(w, sizeof(h));
	err = sets_build(&b);
	if (err != 0)
		goto out;
	memcpy(h.digest, src->digest, sizeof(h.digest));
	h.sets = image_put(w, b.sets, b.n_sets * sizeof(*b.sets));
	h.sets.len = b.n_sets;
	cells_write(&b, &h.cells);
	h.settings = image_put(w, src->settings.data, src->settings.len);
	h.own.at = image_room(w, POLICY_OWN_MAX * sizeof(*src->own));
	h.size = (uint32_t)w->len;
	err = w->err;
	if (err == 0) {
		memcpy(w->bytes, &h, sizeof(h));
		policy_set_own(w->bytes, src->own, src->n_own,
		    src->n_gateways, src->generation);
	}
out:
	free(b.sets);
	free(b.set_cell);
	free(b.cell_set);
	if (err == 0 && (problem_count(ps, PROBLEM_ERROR) != before ||
	    any_wrong(src)))
		err = -EINVAL;
	return err;
}

/* Of such a file only what is sound was looked at, to tell of it. */
static bool
any_wrong(const struct policy_source *src)
{
	const struct policy_cell_source *c = src->cells;
	size_t k;

	for (; c < src->cells + src->n_cells; c++)
		for (k = 0; k < c->n_charters; k++)
			if (charter_wrong(c->charters[k]))
				return true;
	return false;
}

/* ---- cells ---- */

static int
id_order(const void *a, const void *b)
{
	const struct policy_cell_source *const *x = a, *const *y = b;

	return strcmp((*x)->id, (*y)->id);
}

static int
cells_check(const struct building *b)
{
	const size_t before = problem_count(b->ps, PROBLEM_ERROR);
	const struct policy_source *src = b->src;
	const struct policy_cell_source **sorted;
	size_t i;

	if (src->n_cells == 0 || src->n_cells > POLICY_CELLS_MAX) {
		problem_add(b->ps, PROBLEM_ERROR, (struct place){ 0 }, NULL,
		    "there are %zu cells; 1 to %d are possible", src->n_cells,
		    POLICY_CELLS_MAX);
		return -EINVAL;
	}
	if (src->n_own > POLICY_OWN_MAX || src->n_gateways > src->n_own)
		return -EINVAL;
	sorted = calloc(src->n_cells, sizeof(*sorted));
	if (sorted == NULL)
		return -ENOMEM;
	for (i = 0; i < src->n_cells; i++) {
		sorted[i] = &src->cells[i];
		if (!rules_word_ok(span_str(src->cells[i].id)))
			problem_add(b->ps, PROBLEM_ERROR, src->cells[i].at,
			    "use 1 to 63 of A-Z a-z 0-9 . _ : / @ -",
			    "the id of a cell is not a word");
		if (src->cells[i].n_charters == 0)
			problem_add(b->ps, PROBLEM_ERROR, src->cells[i].at,
			    "name at least one policy file",
			    "a cell has no policy");
	}
	qsort(sorted, src->n_cells, sizeof(*sorted), id_order);
	for (i = 1; i < src->n_cells; i++)
		if (strcmp(sorted[i - 1]->id, sorted[i]->id) == 0)
			problem_add(b->ps, PROBLEM_ERROR, sorted[i]->at,
			    "give each cell its own id",
			    "two cells have the id \"%s\"", sorted[i]->id);
	free(sorted);
	return problem_count(b->ps, PROBLEM_ERROR) == before ? 0 : -EINVAL;
}

static bool
resolvers_same(const struct charter_scalars *a,
    const struct charter_scalars *b)
{
	size_t i;

	if (a->n_resolvers != b->n_resolvers ||
	    a->resolvers_system != b->resolvers_system)
		return false;
	for (i = 0; i < a->n_resolvers; i++)
		if (!server_eq(&a->resolvers[i], &b->resolvers[i]))
			return false;
	return true;
}

/* One resolver role serves all cells, so they must name the same; a cell
 * that names none uses those of the others. */
static void
resolvers_check(const struct building *b, struct image_header *h)
{
	const struct charter_scalars *first = NULL, *s;
	size_t i;

	for (i = 0; i < b->src->n_cells; i++) {
		s = charter_scalars(b->src->cells[i].charters[0]);
		if ((s->n_resolvers == 0 && !s->resolvers_system) ||
		    charter_wrong(b->src->cells[i].charters[0]))
			continue;
		if (first == NULL)
			first = s;
		else if (s != first && !resolvers_same(first, s)) {
			problem_add(b->ps, PROBLEM_ERROR, s->resolvers_at,
			    "name the same resolvers in the first file of "
			    "every cell",
			    "cell \"%s\" names other resolvers than the "
			    "cells before it", b->src->cells[i].id);
			return;
		}
	}
	if (first != NULL) {
		memcpy(h->resolvers, first->resolvers,
		    first->n_resolvers * sizeof(first->resolvers[0]));
		h->n_resolvers = (uint32_t)first->n_resolvers;
	}
}

static void
cells_write(struct building *b, struct image_part *out)
{
	const size_t n = b->src->n_cells;
	const struct policy_cell_source *c;
	struct image_cell cell;
	size_t i, k;

	out->at = image_room(b->w, n * sizeof(cell));
	out->len = (uint32_t)n;
	for (i = 0; i < n && b->w->err == 0; i++) {
		c = &b->src->cells[i];
		memset(&cell, 0, sizeof(cell));
		cell.id = image_put_text(b->w, c->id);
		cell.n_labels = (uint32_t)c->n_labels;
		for (k = 0; k < c->n_labels; k++) {
			cell.labels[k].key = image_put_text(b->w,
			    c->labels[k].key);
			cell.labels[k].value = image_put_text(b->w,
			    c->labels[k].value);
		}
		cell.set = b->cell_set[i];
		cell.from = c->from;
		if (b->w->err == 0)
			memcpy(b->w->bytes + out->at + i * sizeof(cell),
			    &cell, sizeof(cell));
	}
}

/* ---- rule sets ---- */

static bool
same_files(const struct policy_cell_source *a,
    const struct policy_cell_source *b)
{
	return a->n_charters == b->n_charters &&
	    memcmp(a->charters, b->charters,
	    a->n_charters * sizeof(a->charters[0])) == 0;
}

static int set_build(struct building *b,
    const struct policy_cell_source *cell, struct image_set *out);

static int
sets_build(struct building *b)
{
	const struct policy_cell_source *cell;
	uint32_t k;
	size_t i;
	int err;

	for (i = 0; i < b->src->n_cells; i++) {
		cell = &b->src->cells[i];
		for (k = 0; k < b->n_sets; k++)
			if (same_files(b->set_cell[k], cell))
				break;
		b->cell_set[i] = k;
		if (k < b->n_sets)
			continue;
		err = set_build(b, cell, &b->sets[k]);
		if (err != 0)
			return err;
		b->set_cell[b->n_sets++] = cell;
	}
	return 0;
}

static int set_collect(struct set *s);
static void set_check(const struct building *b, const struct set *s);
static int set_index(const struct building *b, struct set *s);
static void set_ports(struct set *s);
static void set_opaque_check(const struct building *b, const struct set *s);
static int ids_check(const struct building *b, const struct set *s);
static void rules_write(struct building *b, struct set *s,
    struct image_set *out);
static void scalars_write(struct building *b, const struct set *s,
    struct image_set *out);

static int
set_build(struct building *b, const struct policy_cell_source *cell,
    struct image_set *out)
{
	struct set *s = calloc(1, sizeof(*s));
	int err = -ENOMEM;

	if (s == NULL)
		return err;
	s->cell = cell;
	s->scalars = charter_scalars(cell->charters[0]);
	s->names = names_builder_new();
	s->cidrs = cidr_builder_new();
	if (s->names == NULL || s->cidrs == NULL)
		goto out;
	err = set_collect(s);
	if (err != 0)
		goto out;
	set_ports(s);
	set_check(b, s);
	set_opaque_check(b, s);
	err = ids_check(b, s);
	if (err == 0)
		err = set_index(b, s);
	if (err != 0)
		goto out;
	rules_write(b, s, out);
	scalars_write(b, s, out);
	err = b->w->err;
	if (err == 0)
		err = shadow_check(s->rule, s->n,
		    span_of(b->w->bytes + out->names.at, out->names.len),
		    span_of(b->w->bytes + out->cidrs.at, out->cidrs.len),
		    b->ps);
out:
	names_builder_free(s->names);
	cidr_builder_free(s->cidrs);
	free(s->rule);
	free(s->out);
	free(s);
	return err;
}

static int
set_collect(struct set *s)
{
	const struct rules *r;
	size_t i, k, n = 0;

	for (i = 0; i < s->cell->n_charters; i++)
		n += charter_rules(s->cell->charters[i])->n;
	s->rule = calloc(n + 1, sizeof(*s->rule));
	s->out = calloc(n + 1, sizeof(*s->out));
	if (s->rule == NULL || s->out == NULL || n >= RULE_NONE)
		return -ENOMEM;
	for (i = 0; i < s->cell->n_charters; i++) {
		r = charter_rules(s->cell->charters[i]);
		for (k = 0; k < r->n; k++)
			if (!r->rule[k].wrong)
				s->rule[s->n++] = &r->rule[k];
	}
	return 0;
}

/* True when there may be rules that are not here. */
static bool
set_partly(const struct set *s)
{
	size_t i;

	for (i = 0; i < s->cell->n_charters; i++)
		if (charter_rules(s->cell->charters[i])->partly)
			return true;
	return false;
}

static void
bits_set(uint8_t *map, const struct rule *r)
{
	uint32_t k, port;

	for (k = 0; k < r->n_ports; k++)
		for (port = r->ports[k].lo; port <= r->ports[k].hi; port++)
			map[port / 8] |= (uint8_t)(1u << port % 8);
}

static bool
bits_meet(const uint8_t *map, const struct rule *r)
{
	uint32_t k, port;

	for (k = 0; k < r->n_ports; k++)
		for (port = r->ports[k].lo; port <= r->ports[k].hi; port++)
			if ((map[port / 8] >> port % 8 & 1) != 0)
				return true;
	return false;
}

static bool
any_port(const struct rule *r)
{
	return r->n_ports == 1 && r->ports[0].lo <= 1 &&
	    r->ports[0].hi == 65535;
}

static void
set_ports(struct set *s)
{
	uint32_t i;

	/* On these two a name is always read. */
	s->named[80 / 8] |= 1u << 80 % 8;
	s->named[443 / 8] |= (uint8_t)(1u << 443 % 8);
	for (i = 0; i < s->n; i++)
		if (s->rule[i]->verdict == VERDICT_ALLOW &&
		    s->rule[i]->n_patterns > 0 && !s->rule[i]->opaque)
			bits_set(s->named, s->rule[i]);
	for (i = 0; i < s->n; i++)
		if (s->rule[i]->verdict == VERDICT_ALLOW &&
		    (s->rule[i]->opaque || (s->rule[i]->has_prefix &&
		    !any_port(s->rule[i]))))
			bits_set(s->opaque, s->rule[i]);
	for (i = 0; i < IMAGE_PORT_BYTES; i++)
		s->opaque[i] &= (uint8_t)~s->named[i];
}

static void
set_opaque_check(const struct building *b, const struct set *s)
{
	uint32_t i;

	for (i = 0; i < s->n; i++)
		if (s->rule[i]->opaque && bits_meet(s->named, s->rule[i]))
			problem_add(b->ps, PROBLEM_ERROR, s->rule[i]->at,
			    "give the opaque service a port of its own",
			    "protocol: tcp on a port that a rule opens to a "
			    "name: there the name must be read");
}

static void
report_check(const struct building *b, const struct set *s)
{
	const int64_t until = s->scalars->report_until_s;

	if (!s->scalars->report || until == 0)
		return;		/* without one is an error of the file */
	if (until > b->src->now_s + (CHARTER_REPORT_DAYS + 1) * DAY_S)
		problem_add(b->ps, PROBLEM_ERROR, s->scalars->report_at,
		    "name a date within 90 days",
		    "report_until is more than %d days ahead",
		    CHARTER_REPORT_DAYS);
	else if (until <= b->src->now_s)
		problem_add(b->ps, PROBLEM_WARNING, s->scalars->report_at,
		    "write default: deny",
		    "report_until is over: what no rule matches is denied");
	else
		problem_add(b->ps, PROBLEM_WARNING, s->scalars->report_at,
		    NULL, "not enforcing: what no rule matches is allowed "
		    "and reported");
}

/* Wider ranges were not meant for the one port in them. */
#define PORTS_MEANT 16u

static void
unshown_check(const struct building *b, const struct rule *r)
{
	const char *what = NULL;
	uint32_t k, port;

	if (r->n_patterns == 0 || r->has_prefix || r->opaque)
		return;
	for (k = 0; k < r->n_ports; k++)
		for (port = r->ports[k].lo; what == NULL &&
		    r->ports[k].lo + PORTS_MEANT > r->ports[k].hi &&
		    port <= r->ports[k].hi; port++) {
			what = decide_nameless_protocol((uint16_t)port);
			if (what == NULL)
				continue;
			problem_add(b->ps, PROBLEM_WARNING, r->at,
			    "write a rule for the exact name and the port "
			    "with protocol: tcp",
			    "allow %s on port %u carries TLS and HTTP only; "
			    "%s shows no name there and is refused",
			    r->subject, port, what);
		}
}

/* What is there would be dialled, and denied names lead there. */
static void
sinkhole_check(const struct building *b, const struct set *s)
{
	static const char fix[] = "leave it out, or set another dns.sinkhole";
	static const struct addr none;
	const struct addr *to = b->src->sinkhole;
	size_t i, k;

	for (i = 0; i < 2; i++) {
		if (addr_eq(&to[i], &none))
			continue;
		for (k = 0; k < s->scalars->n_lab; k++)
			if (prefix_has(&s->scalars->lab[k], &to[i]))
				problem_add(b->ps, PROBLEM_ERROR,
				    s->scalars->lab_at, fix, "lab holds the "
				    "address that denied names lead to");
		for (k = 0; k < s->n; k++)
			if (s->rule[k]->verdict == VERDICT_ALLOW &&
			    s->rule[k]->has_prefix &&
			    prefix_has(&s->rule[k]->prefix, &to[i]) &&
			    prefix_class(&s->rule[k]->prefix) ==
			    addr_class(&to[i]))
				problem_add(b->ps, PROBLEM_ERROR,
				    s->rule[k]->at, fix, "%s holds the "
				    "address that denied names lead to",
				    s->rule[k]->subject);
	}
}

static void
set_check(const struct building *b, const struct set *s)
{
	bool opens = s->scalars->report, opened = false;
	const struct rule *r;
	uint32_t i;

	report_check(b, s);
	sinkhole_check(b, s);
	for (i = 0; i < s->n; i++) {
		r = s->rule[i];
		opened = opened || r->verdict == VERDICT_ALLOW;
		if (r->until_s != 0 && r->until_s <= b->src->now_s)
			problem_add(b->ps, PROBLEM_NOTE, r->at,
			    "remove the rule, or set a later date",
			    "%s %s is switched off: its until: is over",
			    verdict_word(r->verdict), r->subject);
		else if (r->verdict == VERDICT_ALLOW) {
			opens = true;
			unshown_check(b, r);
		}
	}
	if (opens || set_partly(s))
		return;
	/* the clock alone must not make an error of what was none: other
	 * cells would not get their next policy either */
	problem_add(b->ps, opened ? PROBLEM_WARNING : PROBLEM_ERROR,
	    (struct place){ .file = charter_file(s->cell->charters[0]),
	    .line = 1, .column = 1 }, opened ?
	    "set a later until:, or add a rule with verdict: allow" :
	    "add a rule with verdict: allow", opened ?
	    "each rule that allows is over, so the policy opens nothing" :
	    "no rule allows anything, so the policy opens nothing");
}

struct id_at {
	const struct rule *rule;
};

static int
rule_id_order(const void *a, const void *b)
{
	const struct id_at *x = a, *y = b;

	return strcmp(x->rule->id, y->rule->id);
}

/* Two rules that say the same have the same default id; shadow_check speaks
 * of those. */
static int
ids_check(const struct building *b, const struct set *s)
{
	const struct rule *x, *y;
	struct id_at *sorted;
	uint32_t i;

	sorted = calloc((size_t)s->n + 1, sizeof(*sorted));
	if (sorted == NULL)
		return -ENOMEM;
	for (i = 0; i < s->n; i++)
		sorted[i].rule = s->rule[i];
	qsort(sorted, s->n, sizeof(*sorted), rule_id_order);
	for (i = 1; i < s->n; i++) {
		x = sorted[i - 1].rule;
		y = sorted[i].rule;
		if (strcmp(x->id, y->id) != 0 || (x->default_id &&
		    y->default_id && strcmp(x->subject, y->subject) == 0))
			continue;
		problem_add(b->ps, PROBLEM_ERROR, y->at,
		    "give one of them another id",
		    "two rules have the id \"%s\"", y->id);
	}
	free(sorted);
	return 0;
}

/* True when nobody reads the charter's names after this set. */
static bool
charter_last(const struct policy_source *src, const struct set *s,
    const struct charter *c)
{
	const struct policy_cell_source *cell;
	size_t k;

	for (cell = s->cell; cell < src->cells + src->n_cells; cell++)
		for (k = 0; k < cell->n_charters; k++)
			if (cell->charters[k] == c &&
			    !same_files(cell, s->cell))
				return false;
	return true;
}

static bool
spends(const struct building *b, const struct set *s, const struct rule *r)
{
	const struct rules *rules;
	size_t i;

	if (!b->src->spend_names || r->names->end < SPEND_BYTES)
		return false;
	for (i = 0; i < s->cell->n_charters; i++) {
		rules = charter_rules(s->cell->charters[i]);
		if (r->names == rules->names)
			return charter_last(b->src, s,
			    s->cell->charters[i]);
	}
	return false;
}

static int
set_index(const struct building *b, struct set *s)
{
	const struct chunks *names = NULL;	/* of the last rule */
	bool spend = false;
	const struct rule *r;
	struct host name;
	unsigned kinds;
	uint32_t i;
	size_t at;
	int err = 0;

	for (i = 0; i < s->n && err == 0; i++) {
		r = s->rule[i];
		at = 0;
		if (r->names != names)
			spend = spends(b, s, r);
		names = r->names;
		while (err == 0 && rules_pattern(r, &at, &name, &kinds)) {
			err = names_add(s->names, &name, kinds, i);
			if (spend)
				rules_forget(r, at);
		}
		if (err == 0 && r->has_prefix)
			err = cidr_add(s->cidrs, &r->prefix, i);
	}
	return err;
}

/* ---- writing ---- */

static uint32_t
rule_flags(const struct rule *r)
{
	return (r->verdict == VERDICT_ALLOW ? IMAGE_RULE_ALLOW : 0u) |
	    (r->opaque ? IMAGE_RULE_OPAQUE : 0u) |
	    (r->allow_private ? IMAGE_RULE_ALLOW_PRIVATE : 0u) |
	    (r->report ? IMAGE_RULE_REPORT : 0u);
}

static void
rule_write(struct building *b, const struct rule *r, struct image_rule *to)
{
	to->until_s = r->until_s;
	to->id = image_put_text(b->w, r->id);
	to->file = image_put_text(b->w, r->at.file);
	to->reason = image_put_text(b->w, r->reason);
	to->owner = image_put_text(b->w, r->owner);
	to->subject = image_put_text(b->w, r->subject);
	to->ports = image_put(b->w, r->ports,
	    r->n_ports * sizeof(*r->ports));
	to->ports.len = r->n_ports;
	to->prefix = r->prefix;
	to->flags = rule_flags(r);
	to->qtypes = r->qtypes;
	to->line = r->at.line;
}

static bool
denies_name(const struct rule *r)
{
	return r->verdict == VERDICT_DENY && r->n_patterns > 0 && !r->report;
}

static void
indexes_write(struct building *b, struct set *s, struct image_set *out)
{
	size_t size = names_size(s->names);

	out->names.at = image_room(b->w, size);
	out->names.len = (uint32_t)size;
	if (b->w->err == 0)
		names_write(s->names, b->w->bytes + out->names.at);
	size = cidr_size(s->cidrs);
	out->cidrs.at = image_room(b->w, size);
	out->cidrs.len = (uint32_t)size;
	if (b->w->err == 0)
		cidr_write(s->cidrs, b->w->bytes + out->cidrs.at);
}

static void
rules_write(struct building *b, struct set *s, struct image_set *out)
{
	uint32_t i, n = 0;

	for (i = 0; i < s->n; i++) {
		rule_write(b, s->rule[i], &s->out[i]);
		n += denies_name(s->rule[i]) ? 1u : 0u;
	}
	out->rules = image_put(b->w, s->out, s->n * sizeof(*s->out));
	out->rules.len = s->n;
	out->denies.at = image_room(b->w, n * sizeof(uint32_t));
	out->denies.len = n;
	n = 0;
	for (i = 0; i < s->n && b->w->err == 0; i++)
		if (denies_name(s->rule[i]))
			memcpy(b->w->bytes + out->denies.at +
			    n++ * sizeof(i), &i, sizeof(i));
	out->named_ports = image_put(b->w, s->named, sizeof(s->named)).at;
	out->opaque_ports = image_put(b->w, s->opaque, sizeof(s->opaque)).at;
	indexes_write(b, s, out);
}

static void
scalars_write(struct building *b, const struct set *s, struct image_set *out)
{
	const struct charter_scalars *c = s->scalars;

	out->report_until_s = c->report ? c->report_until_s : 0;
	out->help = image_put_text(b->w, c->help);
	memcpy(out->lab, c->lab, sizeof(out->lab));
	memcpy(out->nat64, c->nat64, sizeof(out->nat64));
	out->n_lab = (uint32_t)c->n_lab;
	out->n_nat64 = (uint32_t)c->n_nat64;
	out->strict = !c->cooperative;
	out->no_sni_pinned = c->no_sni_pinned;
	out->ech_denied = c->ech_denied;
}
