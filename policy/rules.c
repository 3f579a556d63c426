/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "policy/rules_part.h"

static void rule_read(struct reading *rd, const struct yaml_node *map,
    struct rules *out);
static bool keys_find(struct reading *rd, const struct yaml_node *map,
    struct rule_keys *k);
static void verdict_read(struct reading *rd, const struct yaml_node *map,
    struct rule_keys *k, struct rule *r);
static void subject_read(struct reading *rd, const struct yaml_node *map,
    const struct rule_keys *k, struct rule *r);

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

char *
rules_text_copy(struct reading *rd, struct span s)
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
	rules_options_ports(rd, &k, r);
	rules_options_read(rd, &k, r);
	if (r->id[0] == '\0' && rd->err == 0)
		rules_options_id(r);
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
	r->subject = rules_text_copy(rd, span_of(text, (size_t)n));
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

