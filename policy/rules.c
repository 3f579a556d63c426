/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/rules.h"

#include <errno.h>
#include <libpsl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>

#include "policy/date.h"
#include "policy/qtype.h"

#define PRINT_BYTES 128
#define CANONICAL_BYTES 1024

/* What reading one file needs in every function below. */
struct reading {
	const struct charter_reader *reader;
	struct problems *ps;
	const psl_ctx_t *psl;
	int err;		/* -ENOMEM once memory is gone */
	char where[PRINT_BYTES + 16];	/* "names.txt:12: " in a file */
};

/* The keys of one rule; NULL where absent or refused. */
struct rule_keys {
	const struct yaml_node *verdict, *hostname, *cidr, *hostnames_file,
	    *ports, *protocol, *id, *owner, *reason, *until, *force,
	    *allow_private, *report, *dns;
	/* told of, so not absent */
	bool verdict_refused, subject_refused, ports_refused;
};

static void rule_read(struct reading *rd, const struct yaml_node *map,
    struct rules *out);
static bool keys_find(struct reading *rd, const struct yaml_node *map,
    struct rule_keys *k);
static void verdict_read(struct reading *rd, const struct yaml_node *map,
    struct rule_keys *k, struct rule *r);
static void subject_read(struct reading *rd, const struct yaml_node *map,
    const struct rule_keys *k, struct rule *r);
static void ports_read(struct reading *rd, const struct rule_keys *k,
    struct rule *r);
static void options_read(struct reading *rd, const struct rule_keys *k,
    struct rule *r);
static void options_check(struct reading *rd, const struct rule_keys *k,
    const struct rule *r);
static void id_make(struct rule *r);

int
rules_load(struct rules *out, const struct yaml_node *list,
    const struct charter_reader *reader, struct problems *ps)
{
	struct reading rd = { .reader = reader, .ps = ps,
	    .psl = psl_builtin() };
	const struct yaml_node *item;

	out->partly |= list->lacks || list->kind != YAML_SEQUENCE ||
	    list->n_children > RULES_MAX;
	if (list->kind != YAML_SEQUENCE) {
		problem_add(ps, PROBLEM_ERROR, list->at,
		    "write a list: - {verdict: allow, hostname: a.example}",
		    "rule is not a list");
		return 0;
	}
	if (out->names == NULL)
		out->names = calloc(1, sizeof(*out->names));
	if (out->names == NULL)
		return -ENOMEM;
	if (list->n_children > RULES_MAX) {
		problem_add(ps, PROBLEM_ERROR, list->at,
		    "move names to a hostnames_file",
		    "more than %u rules", RULES_MAX);
		return 0;
	}
	for (item = list->child; item != NULL && rd.err == 0;
	    item = item->next)
		if (item->refused)
			out->partly = true;
		else
			rule_read(&rd, item, out);
	return rd.err;
}

void
rules_done(struct rules *r)
{
	size_t i;

	for (i = 0; i < r->n; i++) {
		free(r->rule[i].reason);
		free(r->rule[i].subject);
		free(r->rule[i].ports);
	}
	free(r->rule);
	if (r->names != NULL)
		chunks_done(r->names);
	free(r->names);
	memset(r, 0, sizeof(*r));
}

bool
rules_pattern(const struct rule *r, size_t *at, struct host *name,
    unsigned *kinds)
{
	size_t in = r->names_from + *at;
	const uint8_t *p;

	if (in >= r->names_to)
		return false;
	p = chunks_at(r->names, in);
	if (in % CHUNKS_BYTES != 0 && p != NULL && p[0] == 0) {
		in = chunks_next(in);
		p = chunks_at(r->names, in);
	}
	if (p == NULL)
		return false;
	*kinds = p[0];
	memset(name, 0, sizeof(*name));
	name->len = p[1];
	memcpy(name->name, p + 2, p[1]);
	*at = in + 2u + p[1] - r->names_from;
	return true;
}

void
rules_forget(const struct rule *r, size_t at)
{
	if (r->n_patterns > 0)
		chunks_forget(r->names, r->names_from + at);
}

bool
rules_covers_port(const struct rule *r, uint16_t port)
{
	uint32_t i;

	for (i = 0; i < r->n_ports; i++)
		if (port >= r->ports[i].lo && port <= r->ports[i].hi)
			return true;
	return false;
}

/* ---- words, text ---- */

bool
rules_text_ok(struct span text, size_t max)
{
	size_t i;

	if (text.len > max)
		return false;
	for (i = 0; i < text.len; i++)
		if (text.data[i] < 0x20 || text.data[i] == 0x7f)
			return false;
	return true;
}

bool
rules_word_ok(struct span text)
{
	static const char extra[] = "._:/@-";
	size_t i;
	uint8_t c;

	if (text.len == 0 || text.len >= RULES_ID_BYTES)
		return false;
	for (i = 0; i < text.len; i++) {
		c = text.data[i];
		if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
		    (c >= '0' && c <= '9') ||
		    (c != 0 && strchr(extra, c) != NULL)))
			return false;
	}
	return true;
}

static char *
text_copy(struct reading *rd, struct span s)
{
	char *copy = malloc(s.len + 1);

	if (copy == NULL) {
		rd->err = -ENOMEM;
		return NULL;
	}
	if (s.len > 0)
		memcpy(copy, s.data, s.len);
	copy[s.len] = '\0';
	return copy;
}

/* ---- one rule ---- */

static struct rule *
rule_new(struct reading *rd, struct rules *out)
{
	struct rule *r;
	size_t cap;

	if (out->n == out->cap) {
		cap = out->cap == 0 ? 16 : out->cap * 2;
		r = realloc(out->rule, cap * sizeof(*r));
		if (r == NULL) {
			rd->err = -ENOMEM;
			return NULL;
		}
		out->rule = r;
		out->cap = cap;
	}
	r = &out->rule[out->n++];
	memset(r, 0, sizeof(*r));
	r->names = out->names;
	return r;
}

static void rule_fill(struct reading *rd, const struct yaml_node *map,
    struct rule *r);

static void
rule_read(struct reading *rd, const struct yaml_node *map, struct rules *out)
{
	const size_t before = problem_count(rd->ps, PROBLEM_ERROR);
	struct rule *r = rule_new(rd, out);

	if (r == NULL)
		return;
	r->at = map->at;
	rule_fill(rd, map, r);
	r->wrong = map->doubtful ||
	    problem_count(rd->ps, PROBLEM_ERROR) != before;
	out->partly |= r->wrong;
}

static void
rule_fill(struct reading *rd, const struct yaml_node *map, struct rule *r)
{
	struct rule_keys k;

	if (!keys_find(rd, map, &k))
		return;
	verdict_read(rd, map, &k, r);
	subject_read(rd, map, &k, r);
	if (rd->err != 0)
		return;
	ports_read(rd, &k, r);
	options_read(rd, &k, r);
	options_check(rd, &k, r);
	if (r->id[0] == '\0' && rd->err == 0)
		id_make(r);
}

static bool
keys_find(struct reading *rd, const struct yaml_node *map,
    struct rule_keys *k)
{
	bool other;
	const struct {
		const char *name;
		const struct yaml_node **to;
		bool *refused;
	} t[] = {
		{ "verdict", &k->verdict, &k->verdict_refused },
		{ "hostname", &k->hostname, &k->subject_refused },
		{ "cidr", &k->cidr, &k->subject_refused },
		{ "hostnames_file", &k->hostnames_file, &k->subject_refused },
		{ "ports", &k->ports, &k->ports_refused },
		{ "protocol", &k->protocol, &other }, { "id", &k->id, &other },
		{ "owner", &k->owner, &other },
		{ "reason", &k->reason, &other },
		{ "until", &k->until, &other }, { "force", &k->force, &other },
		{ "allow_private", &k->allow_private, &other },
		{ "report", &k->report, &other }, { "dns", &k->dns, &other },
	};
	const struct yaml_node *item;
	char text[PRINT_BYTES];
	size_t i;

	memset(k, 0, sizeof(*k));
	k->verdict_refused = k->subject_refused = k->ports_refused =
	    map->lacks;
	if (map->kind != YAML_MAPPING) {
		problem_add(rd->ps, PROBLEM_ERROR, map->at,
		    "write {verdict: allow, hostname: a.example}",
		    "a rule is not a mapping");
		return false;
	}
	for (item = map->child; item != NULL; item = item->next) {
		for (i = 0; i < sizeof(t) / sizeof(t[0]); i++)
			if (yaml_is(item->key, t[i].name))
				break;
		if (i == sizeof(t) / sizeof(t[0]))
			problem_add(rd->ps, PROBLEM_ERROR, item->key->at,
			    "see penstock-policy(5) for the keys of a rule",
			    "unknown key \"%s\" in a rule",
			    span_print(item->key->text, text, sizeof(text)));
		else if (item->refused)
			*t[i].refused = true;
		else if (item->kind == YAML_SCALAR || t[i].to == &k->ports ||
		    t[i].to == &k->dns)
			*t[i].to = item;
		else {
			*t[i].refused = true;
			problem_add(rd->ps, PROBLEM_ERROR, item->at,
			    "write one value", "%s is not a single value",
			    t[i].name);
		}
	}
	return true;
}

static void
verdict_read(struct reading *rd, const struct yaml_node *map,
    struct rule_keys *k, struct rule *r)
{
	static const char fix[] = "write verdict: allow or verdict: deny";
	char text[PRINT_BYTES];

	if (k->verdict == NULL) {
		if (!k->verdict_refused)
			problem_add(rd->ps, PROBLEM_ERROR, map->at, fix,
			    "a rule has no verdict");
	} else if (yaml_is(k->verdict, "allow")) {
		r->verdict = VERDICT_ALLOW;
	} else if (!yaml_is(k->verdict, "deny")) {
		problem_add(rd->ps, PROBLEM_ERROR, k->verdict->at, fix,
		    "\"%s\" is no verdict",
		    span_print(k->verdict->text, text, sizeof(text)));
		k->verdict = NULL;	/* nothing is asked of a guess */
	}
}

/* ---- names and addresses ---- */

static bool
pattern_keep(struct reading *rd, struct rule *r, const struct host *name,
    unsigned kinds)
{
	size_t at;
	uint8_t *p = chunks_room(r->names, 2u + name->len, &at);

	if (p == NULL) {
		rd->err = -ENOMEM;
		return false;
	}
	p[0] = (uint8_t)kinds;
	p[1] = name->len;
	memcpy(p + 2, name->name, name->len);
	if (r->n_patterns++ == 0)
		r->names_from = at;
	r->names_to = r->names->end;
	return true;
}

/* Why host_parse_policy refused, in words that help. */
static void
pattern_complain(struct reading *rd, struct place at, struct span text,
    enum reason why)
{
	char shown[PRINT_BYTES];
	const char *fix = "write a name, *.name (below it) or .name (it and "
	    "all below)";

	span_print(text, shown, sizeof(shown));
	if (text.len > 0 && memchr(text.data, ':', text.len) != NULL)
		fix = "write the name alone; the port goes to ports: [N]";
	else if (text.len > 0 && memchr(text.data, '/', text.len) != NULL)
		fix = "write the name alone, without a scheme or a path";
	else if (text.len > 0 && memchr(text.data, '*', text.len) != NULL)
		fix = "a star stands only in front, as \"*.name\"";
	else if (why == REASON_ADDRESS_LITERAL)
		fix = "addresses go to a rule with cidr:";
	problem_add(rd->ps, PROBLEM_ERROR, at, fix,
	    "%s\"%s\" is not a host name pattern", rd->where, shown);
}

/*
 * Under a registry's suffix everybody registers names, so a wildcard there is
 * refused; under one that a company runs for its users it may be meant.
 */
static bool
suffix_ok(struct reading *rd, struct place at, const struct host *name)
{
	if (rd->psl == NULL || psl_is_public_suffix2(rd->psl, name->name,
	    PSL_TYPE_ICANN) != 0) {
		problem_add(rd->ps, PROBLEM_ERROR, at,
		    "name the domain, or add force: true to the rule",
		    "%sa wildcard over the public suffix %s opens names of "
		    "everybody", rd->where, name->name);
		return false;
	}
	if (psl_is_public_suffix2(rd->psl, name->name, PSL_TYPE_PRIVATE |
	    PSL_TYPE_NO_STAR_RULE) != 0)
		problem_add(rd->ps, PROBLEM_WARNING, at,
		    "add force: true to the rule if all of them are meant",
		    "%sanybody may get a name under %s, a suffix in the "
		    "private section of the Public Suffix List", rd->where,
		    name->name);
	return true;
}

static void
pattern_read(struct reading *rd, struct place at, struct span text,
    bool force, struct rule *r)
{
	struct span rest = text;
	unsigned kinds = NAMES_EXACT;
	struct host name;
	enum reason why;

	if (text.len >= 2 && text.data[0] == '*' && text.data[1] == '.') {
		kinds = NAMES_BELOW;
		rest = span_of(text.data + 2, text.len - 2);
	} else if (text.len >= 2 && text.data[0] == '.') {
		kinds = NAMES_EXACT | NAMES_BELOW;
		rest = span_of(text.data + 1, text.len - 1);
	}
	why = host_parse_policy(&name, rest);
	if (why != REASON_NONE) {
		pattern_complain(rd, at, text, why);
		return;
	}
	if ((kinds & NAMES_BELOW) != 0 && !force &&
	    r->verdict == VERDICT_ALLOW && !suffix_ok(rd, at, &name))
		return;
	(void)pattern_keep(rd, r, &name, kinds);
}

/* A hostnames_file while its lines go by. */
struct lines {
	struct reading *rd;
	struct place at;
	const char *name;
	bool force;
	struct rule *r;
	uint32_t line;
	size_t total;
	uint8_t part[RULES_LINE_BYTES];	/* of a line that goes on */
	size_t n_part;
	bool cut;			/* and is longer than that */
};

static struct span
trimmed(const uint8_t *p, const uint8_t *end)
{
	while (end > p && (end[-1] == ' ' || end[-1] == '\t' ||
	    end[-1] == '\r'))
		end--;
	while (p < end && (*p == ' ' || *p == '\t'))
		p++;
	return span_of(p, (size_t)(end - p));
}

/* One pattern a line; # begins a comment; blanks around are dropped. */
static void
line_read(struct lines *l, const uint8_t *p, const uint8_t *end)
{
	struct reading *rd = l->rd;
	const uint8_t *stop = memchr(p, '#', (size_t)(end - p));
	struct span text;

	l->line++;
	if (l->line == 1 && end - p >= 3 &&
	    memcmp(p, "\xef\xbb\xbf", 3) == 0)
		p += 3;
	snprintf(rd->where, sizeof(rd->where), "%s:%u: ", l->name, l->line);
	if (stop == NULL && l->cut) {
		problem_add(rd->ps, PROBLEM_ERROR, l->at, "write one name a "
		    "line", "%sthe line is longer than %u bytes", rd->where,
		    RULES_LINE_BYTES);
		return;
	}
	text = trimmed(p, stop != NULL ? stop : end);
	if (text.len > 0)
		pattern_read(rd, l->at, text, l->force, l->r);
}

static void
line_part(struct lines *l, const uint8_t *p, size_t n)
{
	const size_t room = sizeof(l->part) - l->n_part;

	l->cut |= n > room;
	n = n > room ? room : n;
	memcpy(l->part + l->n_part, p, n);
	l->n_part += n;
}

static void
line_end(struct lines *l, const uint8_t *p, const uint8_t *eol)
{
	if (l->n_part == 0) {
		line_read(l, p, eol);
		return;
	}
	line_part(l, p, (size_t)(eol - p));
	line_read(l, l->part, l->part + l->n_part);
	l->n_part = 0;
	l->cut = false;
}

static int
lines_take(void *to, struct span piece)
{
	struct lines *l = to;
	const uint8_t *p = piece.data, *end = p + piece.len, *eol;

	l->total += piece.len;
	if (l->total > RULES_FILE_BYTES)
		return -EFBIG;
	for (; p < end && l->rd->err == 0; p = eol + 1) {
		eol = memchr(p, '\n', (size_t)(end - p));
		if (eol == NULL) {
			line_part(l, p, (size_t)(end - p));
			break;
		}
		line_end(l, p, eol);
	}
	return l->rd->err;
}

/* Why the reader gave nothing, and what to do. */
static void
file_complain(struct reading *rd, struct place at, const char *shown,
    int err)
{
	if (err == -EXDEV)
		problem_add(rd->ps, PROBLEM_ERROR, at, "put the file beneath "
		    "the directory of the configuration (of the policy, "
		    "where that is read alone) and name it from there",
		    "hostnames_file \"%s\" leads out of the directory and "
		    "is not opened", shown);
	else if (err == -EBADF)
		problem_add(rd->ps, PROBLEM_ERROR, at, "name a file of names",
		    "hostnames_file \"%s\" is no regular file", shown);
	else if (err == -ESTALE)
		problem_add(rd->ps, PROBLEM_ERROR, at, "load it again",
		    "hostnames_file \"%s\" changed while it was read",
		    shown);
	else
		problem_add(rd->ps, PROBLEM_ERROR, at,
		    "name a file beside the policy",
		    "hostnames_file \"%s\": %s", shown, strerror(-err));
}

static void
file_read(struct reading *rd, const struct yaml_node *node, bool force,
    struct rule *r)
{
	const size_t before = problem_count(rd->ps, PROBLEM_ERROR);
	char shown[PRINT_BYTES];
	struct lines l = { .rd = rd, .at = node->at, .name = shown,
	    .force = force, .r = r };
	const char *name = (const char *)node->text.data;
	int err;

	span_print(node->text, shown, sizeof(shown));
	if (rd->reader == NULL || node->text.len == 0) {
		problem_add(rd->ps, PROBLEM_ERROR, node->at,
		    "name a file beside the policy",
		    "hostnames_file \"%s\" cannot be read here", shown);
		return;
	}
	err = rd->reader->read(rd->reader->arg, name, lines_take, &l);
	if (err == 0 && l.n_part > 0)
		line_end(&l, l.part, l.part);
	rd->where[0] = '\0';
	if (rd->err != 0)
		return;
	if (l.total > RULES_FILE_BYTES)
		problem_add(rd->ps, PROBLEM_ERROR, node->at,
		    "split it over several rules",
		    "hostnames_file \"%s\" is larger than %u bytes", shown,
		    RULES_FILE_BYTES);
	else if (err != 0)
		file_complain(rd, node->at, shown, err);
	else if (r->n_patterns == 0 &&
	    problem_count(rd->ps, PROBLEM_ERROR) == before)
		problem_add(rd->ps, PROBLEM_ERROR, node->at,
		    "add names, or remove the rule",
		    "hostnames_file \"%s\" holds no usable name", shown);
}

/* Begins among addresses that need a prefix of their class, and reaches on. */
static bool
reaches_on(const struct prefix *p)
{
	const enum addr_class begins = addr_class(&p->base);

	return begins != prefix_class(p) && (begins == ADDR_PRIVATE ||
	    begins == ADDR_BENCHMARK || begins == ADDR_DOCUMENTATION);
}

static void
cidr_read(struct reading *rd, const struct yaml_node *node, struct rule *r)
{
	char shown[PRINT_BYTES];
	enum addr_class c;

	if (!prefix_parse(&r->prefix, node->text)) {
		problem_add(rd->ps, PROBLEM_ERROR, node->at,
		    "write address/length with no bit set after the prefix, "
		    "as 10.0.0.0/8 or 2001:db8::/32",
		    "\"%s\" is not a prefix",
		    span_print(node->text, shown, sizeof(shown)));
		return;
	}
	r->has_prefix = true;
	c = prefix_class(&r->prefix);
	if (r->verdict != VERDICT_ALLOW)
		return;
	if (!prefix_can_open(&r->prefix))
		problem_add(rd->ps, PROBLEM_ERROR, node->at,
		    "remove the rule",
		    "%s is %s and never dialled, so the rule can never match",
		    span_print(node->text, shown, sizeof(shown)),
		    addr_class_word(c));
	else if (c == ADDR_LINK_LOCAL || c == ADDR_METADATA)
		problem_add(rd->ps, PROBLEM_WARNING, node->at, NULL,
		    "%s is %s: instance metadata may hand out credentials",
		    span_print(node->text, shown, sizeof(shown)),
		    addr_class_word(c));
	else if (reaches_on(&r->prefix))
		problem_add(rd->ps, PROBLEM_WARNING, node->at,
		    "write a rule for the part that is meant",
		    "%s reaches beyond the %s range that it begins in, and "
		    "does not open that",
		    span_print(node->text, shown, sizeof(shown)),
		    addr_class_word(addr_class(&r->prefix.base)));
}

/* The canonical words for what a rule names, for people and for its id. */
static void
subject_name(struct reading *rd, const struct rule_keys *k, struct rule *r)
{
	char text[RULES_TEXT_BYTES + HOST_MAX_BYTES + ADDR_TEXT_BYTES];
	char shown[RULES_TEXT_BYTES];
	struct host name;
	unsigned kinds;
	size_t at = 0;
	int n = 0;

	if (r->from_file)
		n = snprintf(text, sizeof(text), "file %s",
		    span_print(k->hostnames_file->text, shown,
		    sizeof(shown)));
	else if (rules_pattern(r, &at, &name, &kinds))
		n = snprintf(text, sizeof(text), "%s%s",
		    kinds == NAMES_BELOW ? "*." :
		    kinds == NAMES_EXACT ? "" : ".", name.name);
	if (r->has_prefix)
		n += snprintf(text + n, sizeof(text) - (size_t)n, "%s%s",
		    n > 0 ? " or " : "", prefix_text(&r->prefix, shown));
	r->subject = text_copy(rd, span_of(text, (size_t)n));
}

static void
subject_read(struct reading *rd, const struct yaml_node *map,
    const struct rule_keys *k, struct rule *r)
{
	bool force = false;

	if (k->force != NULL && !yaml_bool(k->force, &force))
		problem_add(rd->ps, PROBLEM_ERROR, k->force->at,
		    "write force: true", "force is neither true nor false");
	if (k->hostname != NULL && k->hostnames_file != NULL)
		problem_add(rd->ps, PROBLEM_ERROR, k->hostnames_file->at,
		    "write two rules",
		    "hostname and hostnames_file stand in one rule");
	if (k->hostname != NULL)
		pattern_read(rd, k->hostname->at, k->hostname->text, force, r);
	if (k->hostnames_file != NULL) {
		r->from_file = true;
		file_read(rd, k->hostnames_file, force, r);
	}
	if (k->cidr != NULL)
		cidr_read(rd, k->cidr, r);
	if (k->cidr != NULL && (k->hostname != NULL ||
	    k->hostnames_file != NULL))
		problem_add(rd->ps, PROBLEM_NOTE, map->at,
		    "write two rules to say so",
		    "a rule with a name and a prefix matches either");
	if (k->hostname == NULL && k->hostnames_file == NULL &&
	    k->cidr == NULL && !k->subject_refused)
		problem_add(rd->ps, PROBLEM_ERROR, map->at,
		    "add hostname:, cidr: or hostnames_file:",
		    "a rule names nothing");
	subject_name(rd, k, r);
}

/* ---- ports ---- */

static bool
range_parse(const struct yaml_node *node, struct rule_ports *out)
{
	struct span s = node->text;
	const uint8_t *dash;
	size_t left;

	if (node->kind != YAML_SCALAR || s.len == 0)
		return false;
	dash = memchr(s.data, '-', s.len);
	if (dash == NULL) {
		if (!addr_port(s, &out->lo))
			return false;
		out->hi = out->lo;
		return true;
	}
	left = (size_t)(dash - s.data);
	return addr_port(span_of(s.data, left), &out->lo) &&
	    addr_port(span_of(dash + 1, s.len - left - 1), &out->hi) &&
	    out->lo <= out->hi;
}

static bool
ports_alloc(struct reading *rd, struct rule *r, size_t n)
{
	r->ports = calloc(n, sizeof(*r->ports));
	if (r->ports == NULL)
		rd->err = -ENOMEM;
	return r->ports != NULL;
}

static void
ports_default(struct reading *rd, struct rule *r)
{
	r->default_ports = true;
	if (!ports_alloc(rd, r, 2))
		return;
	if (r->verdict == VERDICT_DENY) {
		r->ports[0] = (struct rule_ports){ 0, 65535 };
		r->n_ports = 1;
		return;
	}
	r->ports[0] = (struct rule_ports){ 80, 80 };
	r->ports[1] = (struct rule_ports){ 443, 443 };
	r->n_ports = 2;
}

static int
range_order(const void *a, const void *b)
{
	const struct rule_ports *x = a, *y = b;

	return (x->lo > y->lo) - (x->lo < y->lo);
}

/* Sorted, and what touches joined: one form for one meaning. */
static void
ports_join(struct rule *r)
{
	uint32_t i, n = 0;

	if (r->n_ports == 0)
		return;
	qsort(r->ports, r->n_ports, sizeof(*r->ports), range_order);
	for (i = 1; i < r->n_ports; i++) {
		if (r->ports[i].lo <= (uint32_t)r->ports[n].hi + 1u) {
			if (r->ports[i].hi > r->ports[n].hi)
				r->ports[n].hi = r->ports[i].hi;
		} else {
			r->ports[++n] = r->ports[i];
		}
	}
	r->n_ports = n + 1;
}

static const char ports_fix[] = "write ports: [443, 8000-8099], or any";

static void
port_read(struct reading *rd, const struct yaml_node *item, struct rule *r)
{
	char shown[PRINT_BYTES];

	if (item->refused)
		return;
	if (range_parse(item, &r->ports[r->n_ports]))
		r->n_ports++;
	else
		problem_add(rd->ps, PROBLEM_ERROR, item->at, ports_fix,
		    "\"%s\" is not a port (1 to 65535) or a range",
		    item->kind == YAML_SCALAR ? span_print(item->text, shown,
		    sizeof(shown)) : "a nested value");
}

static bool
ports_fit(const struct yaml_node *n)
{
	if (n->kind == YAML_SCALAR)
		return true;
	return n->kind == YAML_SEQUENCE && n->n_children <= RULES_PORTS_MAX &&
	    (n->n_children > 0 || n->lacks);
}

static void
ports_read(struct reading *rd, const struct rule_keys *k, struct rule *r)
{
	const struct yaml_node *item = k->ports;

	if (item == NULL) {
		if (!k->ports_refused)
			ports_default(rd, r);
		return;
	}
	if (item->kind == YAML_SCALAR && yaml_is(item, "any")) {
		if (ports_alloc(rd, r, 1)) {
			r->ports[0] = (struct rule_ports){ 0, 65535 };
			r->n_ports = 1;
		}
		return;
	}
	if (!ports_fit(item)) {
		problem_add(rd->ps, PROBLEM_ERROR, item->at, ports_fix,
		    "ports is not a list of 1 to %u ports and ranges",
		    RULES_PORTS_MAX);
		return;
	}
	if (!ports_alloc(rd, r, RULES_PORTS_MAX))
		return;
	if (item->kind == YAML_SCALAR)
		port_read(rd, item, r);
	else
		for (item = item->child; item != NULL; item = item->next)
			port_read(rd, item, r);
	ports_join(r);
}

/* ---- options ---- */

static void
bool_read(struct reading *rd, const struct yaml_node *node, const char *what,
    bool *out)
{
	if (node != NULL && !yaml_bool(node, out))
		problem_add(rd->ps, PROBLEM_ERROR, node->at,
		    "write true or false, without quotes",
		    "%s is neither true nor false", what);
}

static void
word_read(struct reading *rd, const struct yaml_node *node, const char *what,
    char out[static RULES_ID_BYTES])
{
	if (node == NULL)
		return;
	if (!rules_word_ok(node->text)) {
		problem_add(rd->ps, PROBLEM_ERROR, node->at,
		    "use 1 to 63 of A-Z a-z 0-9 . _ : / @ -",
		    "%s is not a word", what);
		return;
	}
	memcpy(out, node->text.data, node->text.len);
	out[node->text.len] = '\0';
}

/* dns: MX, or [MX, TXT]. */
static void
dns_read(struct reading *rd, const struct rule_keys *k, struct rule *r)
{
	static const char fix[] = "write dns: [MX, TXT]; of NS, CNAME, SOA, "
	    "PTR, MX, TXT, SRV, CAA";
	const struct yaml_node *item = k->dns;
	char shown[PRINT_BYTES];
	uint32_t bit;

	if (item == NULL)
		return;
	if (item->kind == YAML_MAPPING || (item->kind == YAML_SEQUENCE &&
	    item->n_children == 0)) {
		problem_add(rd->ps, PROBLEM_ERROR, item->at, fix,
		    "dns is not a list of types");
		return;
	}
	for (item = item->kind == YAML_SEQUENCE ? item->child : item;
	    item != NULL; item = item->next) {
		bit = item->kind == YAML_SCALAR ? qtype_named(item->text) : 0;
		r->qtypes |= bit;
		if (bit == 0)
			problem_add(rd->ps, PROBLEM_ERROR, item->at, fix,
			    "\"%s\" is no type that a rule can open",
			    item->kind == YAML_SCALAR ? span_print(item->text,
			    shown, sizeof(shown)) : "a nested value");
		if (k->dns->kind != YAML_SEQUENCE)
			break;
	}
}

static void
options_read(struct reading *rd, const struct rule_keys *k, struct rule *r)
{
	bool_read(rd, k->allow_private, "allow_private", &r->allow_private);
	bool_read(rd, k->report, "report", &r->report);
	dns_read(rd, k, r);
	word_read(rd, k->id, "id", r->id);
	word_read(rd, k->owner, "owner", r->owner);
	if (k->protocol != NULL) {
		if (yaml_is(k->protocol, "tcp"))
			r->opaque = true;
		else
			problem_add(rd->ps, PROBLEM_ERROR, k->protocol->at,
			    "write protocol: tcp, or remove it",
			    "this protocol is not known");
	}
	if (k->reason != NULL) {
		if (rules_text_ok(k->reason->text, RULES_TEXT_BYTES))
			r->reason = text_copy(rd, k->reason->text);
		else
			problem_add(rd->ps, PROBLEM_ERROR, k->reason->at,
			    "write one line", "reason is longer than %u bytes "
			    "or holds control characters", RULES_TEXT_BYTES);
	}
	if (k->until != NULL) {
		if (date_parse(k->until->text, &r->until_s))
			r->until_s += 86400;	/* that day included */
		else
			problem_add(rd->ps, PROBLEM_ERROR, k->until->at,
			    "write until: YYYY-MM-DD",
			    "until is not a date");
	}
}

static void
opaque_check(struct reading *rd, const struct rule_keys *k,
    const struct rule *r)
{
	struct host name;
	unsigned kinds;
	size_t first = 0;

	if (r->verdict == VERDICT_DENY)
		problem_add(rd->ps, PROBLEM_ERROR, k->protocol->at,
		    "remove protocol", "a deny covers every protocol");
	else if (r->default_ports)
		problem_add(rd->ps, PROBLEM_ERROR, r->at, "add ports: [N]",
		    "protocol: tcp without ports would cover 80 and 443");
	else if (rules_covers_port(r, 80) || rules_covers_port(r, 443))
		problem_add(rd->ps, PROBLEM_ERROR, k->ports->at,
		    "remove protocol: tcp; names are read on 80 and 443",
		    "protocol: tcp on port 80 or 443 would pass what no name "
		    "was read of");
	if (r->from_file || (rules_pattern(r, &first, &name, &kinds) &&
	    kinds != NAMES_EXACT))
		problem_add(rd->ps, PROBLEM_ERROR, r->at,
		    "write one rule for each exact name",
		    "protocol: tcp with a wildcard or a file of names");
}

/* Options that would have no effect, or a dangerous one. */
static void
options_check(struct reading *rd, const struct rule_keys *k,
    const struct rule *r)
{
	if (k->verdict == NULL)
		return;
	if (r->verdict == VERDICT_DENY && r->allow_private)
		problem_add(rd->ps, PROBLEM_ERROR, k->allow_private->at,
		    "remove it", "allow_private has no effect on a deny rule");
	if (r->verdict == VERDICT_ALLOW && r->report)
		problem_add(rd->ps, PROBLEM_ERROR, k->report->at,
		    "remove it", "report has no effect on an allow rule");
	if (r->has_prefix && r->n_patterns == 0 && r->allow_private)
		problem_add(rd->ps, PROBLEM_ERROR, k->allow_private->at,
		    "remove it",
		    "an address rule opens its private prefix already");
	if (k->dns != NULL && r->verdict == VERDICT_DENY)
		problem_add(rd->ps, PROBLEM_ERROR, k->dns->at, "remove it",
		    "a deny without ports covers each question already");
	else if (k->dns != NULL && r->n_patterns == 0)
		problem_add(rd->ps, PROBLEM_ERROR, k->dns->at, "remove it, or "
		    "name what may be asked for with hostname:",
		    "dns has no effect on a rule without a name");
	if (r->opaque)
		opaque_check(rd, k, r);
}

/*
 * The default id: 8 hex digits of what the rule says, so that it stays when
 * other rules come and go, and when reason, owner or place change.
 */
static void
id_make(struct rule *r)
{
	char text[CANONICAL_BYTES];
	unsigned char hash[32];
	size_t n;
	uint32_t i;

	n = (size_t)snprintf(text, sizeof(text), "%s|%s%s|",
	    verdict_word(r->verdict), r->subject,
	    r->opaque ? "|tcp" : "");
	for (i = 0; i < r->n_ports && n < sizeof(text) - 16; i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%u-%u,",
		    r->ports[i].lo, r->ports[i].hi);
	if (r->qtypes != 0 && n < sizeof(text) - 16)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "|dns %x",
		    r->qtypes);
	crypto_generichash(hash, sizeof(hash), (const unsigned char *)text, n,
	    NULL, 0);
	snprintf(r->id, sizeof(r->id), "%02x%02x%02x%02x", hash[0], hash[1],
	    hash[2], hash[3]);
	r->default_id = true;
}
