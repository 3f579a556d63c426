/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/rules_differ.h"

#include <stdio.h>
#include <string.h>

#include "sidecar/rules.h"

#define TEXT_BYTES 160u		/* of a rule; longer ones are cut */
#define MADE_BY "penstock "	/* how the comments of ours begin */

/* One thing of a listing. */
struct listed {
	json_t *thing;
	const char *type;	/* its only key */
	const char *chain;	/* of a rule; otherwise its own name */
	const char *name;	/* a rule's comment; NULL: it has none */
	long long handle;
	size_t position;
};

struct sides {
	struct listed have[RULES_THINGS_MAX], want[RULES_THINGS_MAX];
	size_t n_have, n_want;
	struct rules_difference *out;
	size_t n;
};

static size_t things(json_t *list, struct listed *out);
static void explain(struct sides *s);

bool
rules_differ(json_t *have, json_t *want, struct rules_difference *out)
{
	struct sides s = { .out = out };
	bool same;

	memset(out, 0, sizeof(*out));
	s.n_have = things(have, s.have);
	s.n_want = things(want, s.want);
	same = s.n_have == s.n_want && s.n_have <= RULES_THINGS_MAX;
	for (size_t i = 0; same && i < s.n_have; i++)
		same = json_equal(s.have[i].thing, s.want[i].thing) != 0;
	if (same)
		return false;
	explain(&s);
	return true;
}

json_t *
rules_differ_things(json_t *list)
{
	struct listed all[RULES_THINGS_MAX];
	size_t n = things(list, all);
	json_t *out = json_array();

	for (size_t i = 0; out != NULL && i < n && i < RULES_THINGS_MAX; i++)
		json_array_append(out, all[i].thing);
	return out;
}

/* ---- what a listing holds ---- */

/* Take away what differs between two loads of the same text. */
static void
normalise(json_t *v)
{
	const char *key;
	json_t *at;
	size_t i;
	void *next;

	if (json_is_array(v))
		json_array_foreach(v, i, at)
			normalise(at);
	if (!json_is_object(v))
		return;
	json_object_del(v, "handle");
	json_object_del(v, "table");
	json_object_foreach_safe(v, next, key, at) {
		if (strcmp(key, "counter") == 0 && json_is_object(at)) {
			json_object_del(at, "packets");
			json_object_del(at, "bytes");
		}
		normalise(at);
	}
}

static struct listed
listed_of(json_t *thing)
{
	void *only = json_object_iter(thing);
	const char *type = only != NULL ? json_object_iter_key(only) : "";
	json_t *in = only != NULL ? json_object_iter_value(only) : NULL;
	bool rule = strcmp(type, "rule") == 0;

	return (struct listed){ .thing = thing, .type = type,
	    .chain = json_string_value(json_object_get(in,
	    rule ? "chain" : "name")),
	    .name = rule ? json_string_value(json_object_get(in, "comment")) :
	    NULL,
	    .handle = json_integer_value(json_object_get(in, "handle")) };
}

static bool
same_text(const char *a, const char *b)
{
	return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

static bool
is_rule(const struct listed *l)
{
	return strcmp(l->type, "rule") == 0;
}

static size_t
things_of(json_t *list, bool rules, struct listed *out, size_t n)
{
	size_t i;
	json_t *at;

	json_array_foreach(list, i, at) {
		struct listed l = listed_of(at);

		if (strcmp(l.type, "metainfo") == 0 ||
		    strcmp(l.type, "table") == 0 || is_rule(&l) != rules)
			continue;
		normalise(at);
		l.position = 1;
		for (size_t k = 0; k < n && k < RULES_THINGS_MAX; k++)
			l.position += is_rule(&out[k]) &&
			    same_text(out[k].chain, l.chain);
		if (n < RULES_THINGS_MAX)
			out[n] = l;
		n++;
	}
	return n;
}

/* What a listing has beside itself and the table: the rules last, which
 * whole tables and single chains do not list in the same place. */
static size_t
things(json_t *list, struct listed *out)
{
	size_t n = things_of(list, false, out, 0);

	return things_of(list, true, out, n);
}

/* ---- the first difference ---- */

static void
copy(char to[static RULES_NAME_BYTES], const char *from)
{
	snprintf(to, RULES_NAME_BYTES, "%s", from != NULL ? from : "");
}

/* The first is told, the others are counted. */
static void
note(struct sides *s, enum rules_difference_kind kind,
    const struct listed *have, const struct listed *want)
{
	const struct listed *at = have != NULL ? have : want;
	struct rules_difference *d = s->out;

	if (s->n++ > 0) {
		d->more++;
		return;
	}
	d->kind = kind;
	d->rule = is_rule(at);
	snprintf(d->type, sizeof(d->type), "%s", at->type);
	copy(d->chain, at->chain);
	d->position = at->position;
	if (have != NULL)
		d->handle = have->handle;
	if (have != NULL)
		copy(d->found, have->name);
	if (want != NULL)
		d->wanted_handle = want->handle;
	if (want != NULL)
		copy(d->wanted, want->name);
}

/* The chain, set, ... of that name on the other side. */
static const struct listed *
counterpart(const struct listed *in, size_t n, const struct listed *of)
{
	for (size_t i = 0; i < n; i++)
		if (!is_rule(&in[i]) && strcmp(in[i].type, of->type) == 0 &&
		    same_text(in[i].chain, of->chain))
			return &in[i];
	return NULL;
}

/* The next rule of the chain from *at on. */
static const struct listed *
next_rule(const struct listed *in, size_t n, size_t *at, const char *chain)
{
	for (; *at < n; (*at)++)
		if (is_rule(&in[*at]) && same_text(in[*at].chain, chain))
			return &in[*at];
	return NULL;
}

static bool
is_named(const struct listed *in, size_t n, const struct listed *like)
{
	for (size_t i = 0; i < n && like->name != NULL; i++)
		if (is_rule(&in[i]) && same_text(in[i].chain, like->chain) &&
		    same_text(in[i].name, like->name))
			return true;
	return false;
}

static void
compare_rules(struct sides *s, const char *chain)
{
	size_t i = 0, k = 0;

	for (;;) {
		const struct listed *h = next_rule(s->have, s->n_have, &i,
		    chain);
		const struct listed *w = next_rule(s->want, s->n_want, &k,
		    chain);

		if (h == NULL && w == NULL)
			return;
		if (h != NULL && !is_named(s->want, s->n_want, h)) {
			note(s, RULES_FOREIGN, h, w);
			i++;
			continue;
		}
		if (w != NULL && !is_named(s->have, s->n_have, w)) {
			note(s, RULES_LACKS, NULL, w);
			k++;
			continue;
		}
		if (h == NULL || w == NULL || !same_text(h->name, w->name))
			note(s, RULES_MOVED, h, w);
		else if (!json_equal(h->thing, w->thing))
			note(s, RULES_OTHER, h, w);
		i += h != NULL;
		k += w != NULL;
	}
}

static void
explain(struct sides *s)
{
	const struct listed *other;

	if (s->n_have > RULES_THINGS_MAX)
		s->n_have = RULES_THINGS_MAX;
	if (s->n_want > RULES_THINGS_MAX)
		s->n_want = RULES_THINGS_MAX;
	for (size_t i = 0; i < s->n_have; i++)
		if (!is_rule(&s->have[i]) && counterpart(s->want, s->n_want,
		    &s->have[i]) == NULL)
			note(s, RULES_FOREIGN, &s->have[i], NULL);
	for (size_t i = 0; i < s->n_want; i++) {
		if (is_rule(&s->want[i]))
			continue;
		other = counterpart(s->have, s->n_have, &s->want[i]);
		if (other == NULL) {
			note(s, RULES_LACKS, NULL, &s->want[i]);
			continue;
		}
		if (!json_equal(other->thing, s->want[i].thing))
			note(s, RULES_OTHER, other, &s->want[i]);
		compare_rules(s, s->want[i].chain);
	}
}

/* ---- in words ---- */

/* "penstock 1.0 post/lo" as "post/lo"; anybody else's stays whole. */
static const char *
short_name(const char *name)
{
	const char *at;

	if (strncmp(name, MADE_BY, strlen(MADE_BY)) != 0)
		return name;
	at = strchr(name + strlen(MADE_BY), ' ');
	return at != NULL ? at + 1 : name;
}

/* Printable, with the quotes that nft(8) writes. */
static const char *
shown(const char *text, char out[static TEXT_BYTES])
{
	int n = snprintf(out, TEXT_BYTES, "%s", text);

	for (char *at = out; *at != '\0'; at++)
		if (*at < ' ' || *at > '~')
			*at = '?';
	if (n >= (int)TEXT_BYTES)
		out[TEXT_BYTES - 2] = '~';
	return out;
}

static void
thing_text(const struct rules_difference *d, const char *found,
    const char *wanted, char *why, size_t size)
{
	char chain[TEXT_BYTES], is[TEXT_BYTES], should[TEXT_BYTES];

	shown(d->chain, chain);
	if (d->kind == RULES_OTHER)
		snprintf(why, size, "table inet " RULES_TABLE ", %s %s: not as "
		    "loaded: found '%s', expected '%s'", d->type, chain,
		    shown(found, is), shown(wanted, should));
	else
		snprintf(why, size, "table inet " RULES_TABLE ": the %s %s "
		    "%s", d->type, chain, d->kind == RULES_LACKS ?
		    "is missing" : "is not penstock's");
}

static void
rule_text(const struct rules_difference *d, const char *found,
    const char *wanted, char *why, size_t size)
{
	char is[TEXT_BYTES], should[TEXT_BYTES];
	const char *name = short_name(d->found), *want = short_name(d->wanted);

	switch (d->kind) {
	case RULES_FOREIGN:
		snprintf(why, size, "found '%s', which is %s; expected "
		    "there: %s", shown(*found != '\0' ? found : name, is),
		    name != d->found ? "penstock's of another version or of "
		    "other settings" : "not penstock's",
		    *want != '\0' ? want : "nothing more");
		break;
	case RULES_LACKS:
		snprintf(why, size, "%s is missing; expected '%s'", want,
		    shown(wanted, should));
		break;
	case RULES_OTHER:
		snprintf(why, size, "%s is not as loaded: found '%s', "
		    "expected '%s'", want, shown(found, is),
		    shown(wanted, should));
		break;
	case RULES_MOVED:
		snprintf(why, size, "not as loaded: found %s, expected %s",
		    *name != '\0' ? name : "nothing more",
		    *want != '\0' ? want : "nothing more");
		break;
	}
}

void
rules_differ_text(const struct rules_difference *d, const char *found,
    const char *wanted, char *why, size_t size)
{
	char chain[TEXT_BYTES], handle[32] = "";
	size_t len;

	if (d->handle != 0)
		snprintf(handle, sizeof(handle), " (handle %lld)", d->handle);
	if (d->type[0] == '\0')
		snprintf(why, size, "table inet " RULES_TABLE ": not as "
		    "loaded: more than %u rules, or in another order",
		    RULES_THINGS_MAX);
	else if (!d->rule)
		thing_text(d, found, wanted, why, size);
	else {
		len = (size_t)snprintf(why, size, "table inet " RULES_TABLE
		    ", chain %s, rule %zu%s: ", shown(d->chain, chain),
		    d->position, handle);
		if (len < size)
			rule_text(d, found, wanted, why + len, size - len);
	}
	len = strlen(why);
	if (d->more > 0 && len < size)
		snprintf(why + len, size - len, "; %zu more difference%s",
		    d->more, d->more > 1 ? "s" : "");
}
