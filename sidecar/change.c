/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/change.h"

#include <stdio.h>
#include <stdlib.h>

#include "policy/image.h"
#include "policy/names.h"

#define LINE_BYTES 256
#define SOME_NAMES 3u		/* of a file's that are told by name */

struct finder {
	void (*say)(void *arg, const char *line);
	void *arg;
	unsigned lines;
};

/* The rules of one cell, by id. */
struct listed {
	struct listed_rule {
		struct rule_view view;
		uint32_t at;		/* its number in the cell */
	} *rules;
	uint32_t n;
};

/* The names that stand on one side only, of one rule. */
struct names_told {
	uint32_t other;			/* the rule's number over there */
	unsigned n;
	char some[120];			/* the first of them */
};

struct names_finder {
	struct span there;		/* the other side's index */
	struct names_told *rules;	/* by number on this side */
};

static void
tell(struct finder *f, char sign, struct span cell, const char *what)
{
	char line[LINE_BYTES], id[POLICY_ID_BYTES + 8];

	if (f->lines++ >= CHANGE_LINES_MAX || f->say == NULL)
		return;
	snprintf(line, sizeof(line), "%c cell %s %s", sign,
	    span_print(cell, id, sizeof(id)), what);
	f->say(f->arg, line);
}

static int
by_id(const void *va, const void *vb)
{
	const struct rule_view *a = &((const struct listed_rule *)va)->view;
	const struct rule_view *b = &((const struct listed_rule *)vb)->view;
	size_t n = a->id.len < b->id.len ? a->id.len : b->id.len;
	int c = memcmp(a->id.data, b->id.data, n);

	if (c != 0)
		return c;
	return a->id.len < b->id.len ? -1 : a->id.len > b->id.len;
}

/* Two that say the same have one id: they keep their order. */
static int
by_id_and_place(const void *va, const void *vb)
{
	const struct listed_rule *a = va, *b = vb;
	int c = by_id(a, b);

	return c != 0 ? c : (a->at > b->at) - (a->at < b->at);
}

static struct listed
list_rules(const struct policy *p, uint32_t cell)
{
	struct listed l = { .n = policy_rules(p, cell) };
	uint32_t n = 0;

	l.rules = calloc(l.n > 0 ? l.n : 1, sizeof(*l.rules));
	if (l.rules == NULL)
		l.n = 0;
	for (uint32_t i = 0; i < l.n; i++) {
		l.rules[n].at = i;
		n += policy_rule(p, cell, i, &l.rules[n].view);
	}
	l.n = n;
	qsort(l.rules, l.n, sizeof(l.rules[0]), by_id_and_place);
	return l;
}

static void
tell_rule(struct finder *f, char sign, struct span cell,
    const struct rule_view *r)
{
	char what[LINE_BYTES - 80], subject[120], id[POLICY_ID_BYTES + 8];

	snprintf(what, sizeof(what), "rule %s: %s %s",
	    span_print(r->id, id, sizeof(id)), verdict_word(r->verdict),
	    span_print(r->subject, subject, sizeof(subject)));
	tell(f, sign, cell, what);
}

/* Both lists are in order: what stands in one only was added or removed. */
static void
compare_rules(struct finder *f, struct span cell, const struct listed *a,
    const struct listed *b, struct change_count *count)
{
	uint32_t i = 0, k = 0;

	while (i < a->n || k < b->n) {
		int c = i == a->n ? 1 : k == b->n ? -1 :
		    by_id(&a->rules[i], &b->rules[k]);

		if (c < 0) {
			tell_rule(f, '-', cell, &a->rules[i].view);
			count->rules_removed++;
		} else if (c > 0) {
			tell_rule(f, '+', cell, &b->rules[k].view);
			count->rules_added++;
		}
		i += c <= 0;
		k += c >= 0;
	}
}

/* ---- what stayed and says something else ---- */

/* What both sides of one cell are compared in. */
struct sides {
	const struct policy *before, *after;
	uint32_t old, new;		/* the cell */
};

static void
add(char *out, size_t size, bool differs, const char *what)
{
	size_t at = strlen(out);

	if (differs)
		snprintf(out + at, size - at, "%s%s", at > 0 ? ", " : "",
		    what);
}

static void
add_ports(char *out, size_t size, const struct sides *s, uint32_t a,
    uint32_t b)
{
	char had[1024], has[1024], what[160];

	policy_rule_ports(s->before, s->old, a, had, sizeof(had));
	policy_rule_ports(s->after, s->new, b, has, sizeof(has));
	snprintf(what, sizeof(what), "ports %.60s, before %.60s", has, had);
	add(out, size, strcmp(had, has) != 0, what);
}

static void
compare_content(struct finder *f, const struct sides *s, struct span cell,
    const struct listed_rule *a, const struct listed_rule *b,
    struct change_count *count)
{
	const struct rule_view *x = &a->view, *y = &b->view;
	char what[LINE_BYTES - 80] = "", line[LINE_BYTES];
	char id[POLICY_ID_BYTES + 8], subject[120];

	add(what, sizeof(what), x->verdict != y->verdict, "verdict");
	add(what, sizeof(what), !span_eq(x->subject, y->subject),
	    "what it names");
	add_ports(what, sizeof(what), s, a->at, b->at);
	add(what, sizeof(what), x->opaque != y->opaque, "protocol");
	add(what, sizeof(what), x->allow_private != y->allow_private,
	    "allow_private");
	add(what, sizeof(what), x->qtypes != y->qtypes, "dns");
	add(what, sizeof(what), x->report != y->report, "report");
	add(what, sizeof(what), x->until_s != y->until_s, "until");
	add(what, sizeof(what), !span_eq(x->reason, y->reason), "reason");
	add(what, sizeof(what), !span_eq(x->owner, y->owner), "owner");
	if (what[0] == '\0')
		return;
	count->rules_changed++;
	snprintf(line, sizeof(line), "rule %s: %s %.60s: other %s",
	    span_print(y->id, id, sizeof(id)), verdict_word(y->verdict),
	    span_print(y->subject, subject, sizeof(subject)), what);
	tell(f, '~', cell, line);
}

/* Those that stayed, in the order that they had; false when one stands before
 * another that it stood behind. */
static bool
in_order(const uint32_t *now, uint32_t n)
{
	uint32_t last = 0;

	for (uint32_t i = 0; i < n; i++) {
		if (now[i] == RULE_NONE)
			continue;
		if (now[i] < last)
			return false;
		last = now[i];
	}
	return true;
}

static void
compare_stayed(struct finder *f, const struct sides *s, struct span cell,
    const struct listed *a, const struct listed *b,
    struct change_count *count)
{
	const uint32_t n = policy_rules(s->before, s->old);
	uint32_t *now = malloc(((size_t)n + 1) * sizeof(*now));
	uint32_t i = 0, k = 0;

	if (now == NULL)
		return;
	memset(now, 0xff, ((size_t)n + 1) * sizeof(*now));
	while (i < a->n && k < b->n) {
		int c = by_id(&a->rules[i], &b->rules[k]);

		if (c == 0) {
			now[a->rules[i].at] = b->rules[k].at;
			compare_content(f, s, cell, &a->rules[i],
			    &b->rules[k], count);
		}
		i += c <= 0;
		k += c >= 0;
	}
	if (!in_order(now, n)) {
		count->orders++;
		tell(f, '~', cell, "rules stand in another order");
	}
	free(now);
}

static const struct image_set *
set_of(const struct policy *p, uint32_t cell)
{
	struct span image = policy_image(p);

	return &image_sets(image)[image_cells(image)[cell].set];
}

/* The keys beside the rules. */
static void
compare_keys(struct finder *f, const struct sides *s, struct span cell,
    struct change_count *count)
{
	const struct image_set *a = set_of(s->before, s->old);
	const struct image_set *b = set_of(s->after, s->new);
	const struct { bool differs; const char *what; } keys[] = {
		{ a->report_until_s != b->report_until_s, "default or "
		    "report_until differs" },
		{ a->strict != b->strict, b->strict ? "enforce: strict" :
		    "enforce: cooperative" },
		{ a->no_sni_pinned != b->no_sni_pinned, b->no_sni_pinned ?
		    "no_sni: pinned-ip" : "no_sni: deny" },
		{ a->ech_denied != b->ech_denied, b->ech_denied ?
		    "ech: deny" : "ech: allow-outer" },
		{ a->n_lab != b->n_lab || memcmp(a->lab, b->lab,
		    sizeof(a->lab)) != 0, "lab differs" },
		{ a->n_nat64 != b->n_nat64 || memcmp(a->nat64, b->nat64,
		    sizeof(a->nat64)) != 0, "nat64 differs" },
		{ !span_eq(image_text(policy_image(s->before), a->help),
		    image_text(policy_image(s->after), b->help)),
		    "help differs" },
	};

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		if (keys[i].differs) {
			count->keys++;
			tell(f, '~', cell, keys[i].what);
		}
}

/* One list for all cells. */
static void
compare_resolvers(struct finder *f, const struct policy *before,
    const struct policy *after, struct change_count *count)
{
	struct server a[POLICY_RESOLVERS_MAX], b[POLICY_RESOLVERS_MAX];
	const size_t n = policy_resolvers(before, a);
	bool same = policy_resolvers(after, b) == n;

	for (size_t i = 0; same && i < n; i++)
		same = server_eq(&a[i], &b[i]);
	if (same)
		return;
	count->keys++;
	if (f->lines++ < CHANGE_LINES_MAX && f->say != NULL)
		f->say(f->arg, "~ resolvers differ");
}

/* ---- names of a file ---- */

static struct span
names_of(const struct policy *p, uint32_t cell)
{
	return image_text(policy_image(p), set_of(p, cell)->names);
}

static void
on_name(void *arg, struct span name, unsigned kinds, uint32_t rule)
{
	struct names_finder *f = arg;
	struct names_told *t = &f->rules[rule];
	char text[HOST_MAX_BYTES + 8];
	size_t at = strlen(t->some);

	if (t->other == RULE_NONE ||
	    names_holds(f->there, name, kinds, t->other))
		return;
	if (t->n++ < SOME_NAMES)
		snprintf(t->some + at, sizeof(t->some) - at, "%s%s%s",
		    at > 0 ? " " : "", kinds == NAMES_EXACT ? "" :
		    kinds == NAMES_BELOW ? "*." : ".",
		    span_print(name, text, sizeof(text)));
}

/* What rules that stand on both sides name here and not there; NULL without
 * memory. */
static struct names_told *
only_here(const struct listed *here, const struct listed *there,
    uint32_t n_rules, struct span names, struct span other)
{
	struct names_finder f = { .there = other };
	uint32_t i = 0, k = 0;

	f.rules = calloc(n_rules + 1, sizeof(*f.rules));
	if (f.rules == NULL)
		return NULL;
	for (uint32_t r = 0; r < n_rules; r++)
		f.rules[r].other = RULE_NONE;
	while (i < here->n && k < there->n) {
		int c = by_id(&here->rules[i], &there->rules[k]);

		if (c == 0)
			f.rules[here->rules[i].at].other =
			    there->rules[k].at;
		i += c <= 0;
		k += c >= 0;
	}
	names_each(names, on_name, &f);
	return f.rules;
}

static void
tell_names(struct finder *f, struct span cell, const struct rule_view *r,
    const struct names_told *gone, const struct names_told *new)
{
	char line[2 * LINE_BYTES], id[POLICY_ID_BYTES + 8], subject[80];
	char cell_id[POLICY_ID_BYTES + 8];

	if ((gone->n == 0 && new->n == 0) ||
	    f->lines++ >= CHANGE_LINES_MAX || f->say == NULL)
		return;
	snprintf(line, sizeof(line), "~ cell %s rule %s: %s: %u names added"
	    "%s%s%s, %u removed%s%s%s",
	    span_print(cell, cell_id, sizeof(cell_id)),
	    span_print(r->id, id, sizeof(id)),
	    span_print(r->subject, subject, sizeof(subject)),
	    new->n, new->n > 0 ? " (" : "", new->some,
	    new->n > SOME_NAMES ? " ...)" : new->n > 0 ? ")" : "",
	    gone->n, gone->n > 0 ? " (" : "", gone->some,
	    gone->n > SOME_NAMES ? " ...)" : gone->n > 0 ? ")" : "");
	f->say(f->arg, line);
}

/* A file's name stays when its lines change, and so does the rule's id. */
static void
compare_names(struct finder *f, const struct policy *before, uint32_t old,
    const struct policy *after, uint32_t new, struct span id,
    const struct listed *a, const struct listed *b,
    struct change_count *count)
{
	struct span had = names_of(before, old), has = names_of(after, new);
	struct names_told *gone, *came;

	gone = only_here(a, b, policy_rules(before, old), had, has);
	came = only_here(b, a, policy_rules(after, new), has, had);
	for (uint32_t i = 0; i < a->n && gone != NULL && came != NULL; i++) {
		const struct names_told *g = &gone[a->rules[i].at];

		if (g->other == RULE_NONE)
			continue;
		tell_names(f, id, &a->rules[i].view, g, &came[g->other]);
		count->names_removed += g->n;
		count->names_added += came[g->other].n;
	}
	free(gone);
	free(came);
}

static void
compare_cell(struct finder *f, const struct policy *before, uint32_t old,
    const struct policy *after, uint32_t new, struct span id,
    struct change_count *count)
{
	struct listed a = list_rules(before, old);
	struct listed b = list_rules(after, new);

	const struct sides s = { before, after, old, new };

	compare_rules(f, id, &a, &b, count);
	compare_stayed(f, &s, id, &a, &b, count);
	compare_keys(f, &s, id, count);
	compare_names(f, before, old, after, new, id, &a, &b, count);
	free(a.rules);
	free(b.rules);
}

struct change_count
change_find(const struct policy *before, const struct policy *after,
    void (*say)(void *arg, const char *line), void *arg)
{
	struct finder f = { .say = say, .arg = arg };
	struct change_count count = { 0 };
	struct cell_view c;

	compare_resolvers(&f, before, after, &count);
	for (uint32_t i = 0; i < policy_cells(after); i++) {
		uint32_t old;

		if (!policy_cell(after, i, 0, &c))
			continue;
		old = policy_cell_by_id(before, c.id);
		if (old == CELL_NONE) {
			tell(&f, '+', c.id, "is new");
			count.cells_added++;
			continue;
		}
		compare_cell(&f, before, old, after, i, c.id, &count);
	}
	for (uint32_t i = 0; i < policy_cells(before); i++)
		if (policy_cell(before, i, 0, &c) &&
		    policy_cell_by_id(after, c.id) == CELL_NONE) {
			tell(&f, '-', c.id, "is gone");
			count.cells_removed++;
		}
	return count;
}
