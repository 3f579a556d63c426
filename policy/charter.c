/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/charter.h"

#include <errno.h>
#include <stdlib.h>

#include "policy/date.h"
#include "policy/rules.h"
#include "policy/yaml.h"

#define PRINT_BYTES 128

struct charter {
	const char *file;
	struct charter_scalars scalars;
	struct rules rules;
	struct charter_expect *expects;
	size_t n_expects;
	bool wrong;
};

struct loading {
	struct charter *c;
	const struct charter_reader *reader;
	struct problems *ps;
	bool base;
	bool report_until_seen;
	bool default_known;	/* it was read, or is absent */
	int err;
};

/* A key of a table: how it is read and where it may stand. */
struct key {
	const char *name;
	void (*read)(struct loading *l, const struct yaml_node *n);
	bool base_only;
};

static void root_read(struct loading *l, const struct yaml_node *root);
static void network_read(struct loading *l, const struct yaml_node *map);
static void version_read(struct loading *l, const struct yaml_node *n);
static void expect_read(struct loading *l, const struct yaml_node *n);
static void default_read(struct loading *l, const struct yaml_node *n);
static void report_until_read(struct loading *l, const struct yaml_node *n);
static void enforce_read(struct loading *l, const struct yaml_node *n);
static void resolvers_read(struct loading *l, const struct yaml_node *n);
static void rule_list_read(struct loading *l, const struct yaml_node *n);
static void help_read(struct loading *l, const struct yaml_node *n);
static void no_sni_read(struct loading *l, const struct yaml_node *n);
static void ech_read(struct loading *l, const struct yaml_node *n);
static void lab_read(struct loading *l, const struct yaml_node *n);
static void nat64_read(struct loading *l, const struct yaml_node *n);

static const struct key network_keys[] = {
	{ "default", default_read, true },
	{ "report_until", report_until_read, true },
	{ "enforce", enforce_read, true },
	{ "resolvers", resolvers_read, true },
	{ "rule", rule_list_read, false },
	{ "help", help_read, true },
	{ "no_sni", no_sni_read, true },
	{ "ech", ech_read, true },
	{ "lab", lab_read, true },
	{ "nat64", nat64_read, true },
};

/* What a Charter holds beside `network`: the agent's host, its tools and
 * budgets.  Known, so that a typing error in ours is not taken for theirs. */
static const char *const not_ours[] = {
	"name", "description", "image", "backend", "extends", "resolved",
	"workspace", "copy_from", "runtime_class", "tenant", "labels",
	"host", "env", "secrets", "resources", "mounts", "policy", "tools",
	"mcp", "rationing", "cohort", "fleet", "chronicle", "approval",
	"approvals", "escalation", "ide", "browser", "agent", "agents",
	"model", "profile", "session", "snapshot", "telemetry", "signature",
};

struct charter *
charter_load(const char *file, struct span text, bool base,
    const struct charter_reader *reader, struct problems *ps)
{
	size_t before = problem_count(ps, PROBLEM_ERROR);
	struct loading l = { .reader = reader, .ps = ps, .base = base,
	    .default_known = true };
	struct yaml *y = yaml_parse(file, text, ps);

	if (y == NULL)
		return NULL;
	l.c = calloc(1, sizeof(*l.c));
	if (l.c == NULL)
		l.err = -ENOMEM;
	else {
		l.c->file = file;
		root_read(&l, yaml_root(y));
	}
	yaml_close(y);
	if (l.err != 0) {
		problem_add(ps, PROBLEM_ERROR, (struct place){ .file = file },
		    NULL, "no memory for this file");
		charter_free(l.c);
		return NULL;
	}
	l.c->wrong = problem_count(ps, PROBLEM_ERROR) != before;
	return l.c;
}

void
charter_free(struct charter *c)
{
	size_t i;

	if (c == NULL)
		return;
	rules_done(&c->rules);
	for (i = 0; i < c->n_expects; i++)
		free(c->expects[i].what);
	free(c->expects);
	free(c);
}

bool
charter_wrong(const struct charter *c)
{
	return c->wrong;
}

const char *
charter_file(const struct charter *c)
{
	return c->file;
}

const struct charter_scalars *
charter_scalars(const struct charter *c)
{
	return &c->scalars;
}

const struct rules *
charter_rules(const struct charter *c)
{
	return &c->rules;
}

const struct charter_expect *
charter_expects(const struct charter *c, size_t *n)
{
	*n = c->n_expects;
	return c->expects;
}

/* ---- the root ---- */

static bool
key_not_ours(const struct yaml_node *key)
{
	size_t i;

	for (i = 0; i < sizeof(not_ours) / sizeof(not_ours[0]); i++)
		if (yaml_is(key, not_ours[i]))
			return true;
	return false;
}

static void
root_key(struct loading *l, const struct yaml_node *item)
{
	char text[PRINT_BYTES];

	if (yaml_is(item->key, "version"))
		version_read(l, item);
	else if (yaml_is(item->key, "network"))
		network_read(l, item);
	else if (yaml_is(item->key, "expect"))
		expect_read(l, item);
	else if (key_not_ours(item->key))
		problem_add(l->ps, PROBLEM_NOTE, item->key->at, NULL,
		    "%s is not ours: a key of the Charter that penstock "
		    "does not use",
		    span_print(item->key->text, text, sizeof(text)));
	else
		problem_add(l->ps, PROBLEM_ERROR, item->key->at,
		    "write version, network or expect",
		    "unknown key \"%s\"",
		    span_print(item->key->text, text, sizeof(text)));
}

static void
root_read(struct loading *l, const struct yaml_node *root)
{
	const struct yaml_node *item;

	/* until the network table was read */
	l->c->scalars.partly = l->c->rules.partly = true;
	if (root->kind != YAML_MAPPING) {
		if (!root->refused && !root->lacks)
			problem_add(l->ps, PROBLEM_ERROR, root->at,
			    "write version: 1 and network:",
			    "the file is not a mapping, so there is no "
			    "policy");
		return;
	}
	if (yaml_get(root, "network") != NULL) {
		for (item = root->child; item != NULL; item = item->next)
			root_key(l, item);
	} else if (yaml_get(root, "rules") != NULL) {
		problem_add(l->ps, PROBLEM_NOTE, root->at, NULL,
		    "read as the policy object of Runeward's egress program");
		network_read(l, root);
	} else {
		for (item = root->child; item != NULL; item = item->next)
			root_key(l, item);
		if (!root->lacks)
			problem_add(l->ps, PROBLEM_ERROR, root->at,
			    "write network: with default and rule",
			    "there is no network table, so there is no "
			    "policy");
	}
	l->c->scalars.partly |= root->lacks;
	l->c->rules.partly |= root->lacks;
}

static void
version_read(struct loading *l, const struct yaml_node *n)
{
	if (!n->refused && !yaml_is(n, "1"))
		problem_add(l->ps, PROBLEM_ERROR, n->at, "write version: 1",
		    "this version of the format is not known");
}

/* The table's checks of what stands together must not take it for absent. */
static void
refused_key(struct loading *l, const struct yaml_node *item)
{
	l->c->scalars.partly = true;
	if (yaml_is(item->key, "default"))
		l->default_known = false;
	else if (yaml_is(item->key, "report_until"))
		l->report_until_seen = true;
	else if (yaml_is(item->key, "rule") || yaml_is(item->key, "rules"))
		l->c->rules.partly = true;
}

static void
network_key(struct loading *l, const struct yaml_node *item)
{
	const size_t n = sizeof(network_keys) / sizeof(network_keys[0]);
	char text[PRINT_BYTES];
	size_t i;

	for (i = 0; i < n; i++)
		if (yaml_is(item->key, network_keys[i].name))
			break;
	if (item->refused)
		refused_key(l, item);
	if (i == n && yaml_is(item->key, "rules"))
		rule_list_read(l, item);
	else if (i == n)
		problem_add(l->ps, PROBLEM_ERROR, item->key->at,
		    "see penstock-policy(5) for the keys of network",
		    "unknown key \"%s\" in network",
		    span_print(item->key->text, text, sizeof(text)));
	else if (network_keys[i].base_only && !l->base)
		problem_add(l->ps, PROBLEM_ERROR, item->key->at,
		    "move it to the first file of the cell",
		    "%s stands in a file that is not the first of its cell",
		    network_keys[i].name);
	else if (!item->refused)
		network_keys[i].read(l, item);
}

static void
network_read(struct loading *l, const struct yaml_node *map)
{
	const struct yaml_node *item;

	if (map->kind != YAML_MAPPING) {
		if (!map->refused)
			problem_add(l->ps, PROBLEM_ERROR, map->at,
			    "write network: with default and rule",
			    "network is not a mapping");
		return;
	}
	l->c->scalars.partly = l->c->rules.partly = map->lacks;
	if (yaml_get(map, "rule") != NULL && yaml_get(map, "rules") != NULL)
		problem_add(l->ps, PROBLEM_ERROR, map->at,
		    "keep rule", "both rule and rules stand here");
	for (item = map->child; item != NULL; item = item->next)
		network_key(l, item);
	if (l->c->scalars.report && !l->report_until_seen && !map->lacks)
		problem_add(l->ps, PROBLEM_ERROR, l->c->scalars.report_at,
		    "add report_until: YYYY-MM-DD, at most 90 days ahead",
		    "default: report without an end");
	if (!l->c->scalars.report && l->report_until_seen &&
	    l->default_known && !map->lacks)
		problem_add(l->ps, PROBLEM_ERROR, map->at,
		    "write default: report, or remove it",
		    "report_until has no effect without default: report");
}

/* ---- scalars ---- */

static bool
scalar(struct loading *l, const struct yaml_node *n, const char *what)
{
	if (n->refused)
		return false;	/* and told */
	if (n->kind == YAML_SCALAR)
		return true;
	problem_add(l->ps, PROBLEM_ERROR, n->at, "write one value",
	    "%s is not a single value", what);
	return false;
}

static void
complain(struct loading *l, const struct yaml_node *n, const char *fix,
    const char *what)
{
	char text[PRINT_BYTES];

	problem_add(l->ps, PROBLEM_ERROR, n->at, fix, "%s: \"%s\" is not "
	    "accepted", what, span_print(n->text, text, sizeof(text)));
}

static void
default_read(struct loading *l, const struct yaml_node *n)
{
	l->default_known = n->kind == YAML_SCALAR && (n->text.len == 0 ||
	    yaml_is(n, "report") || yaml_is(n, "deny"));
	if (!scalar(l, n, "default"))
		return;
	if (n->text.len == 0)
		problem_add(l->ps, PROBLEM_NOTE, n->at, NULL,
		    "an empty default is deny here; in a Charter it is open");
	else if (yaml_is(n, "report")) {
		l->c->scalars.report = true;
		l->c->scalars.report_at = n->at;
	} else if (yaml_is(n, "allow"))
		problem_add(l->ps, PROBLEM_ERROR, n->at,
		    "write default: deny and name what is needed, or "
		    "default: report with report_until to learn it",
		    "default: allow would open everything");
	else if (!yaml_is(n, "deny"))
		complain(l, n, "write default: deny", "default");
}

static void
report_until_read(struct loading *l, const struct yaml_node *n)
{
	l->report_until_seen = true;
	if (!scalar(l, n, "report_until"))
		return;
	if (date_parse(n->text, &l->c->scalars.report_until_s))
		l->c->scalars.report_until_s += 86400;
	else
		complain(l, n, "write a date, YYYY-MM-DD", "report_until");
}

static void
enforce_read(struct loading *l, const struct yaml_node *n)
{
	static const char fix[] = "write enforce: strict or cooperative";

	if (!scalar(l, n, "enforce"))
		return;
	if (yaml_is(n, "l3") || yaml_is(n, "strict"))
		l->c->scalars.strict_at = n->at;
	if (yaml_is(n, "l3"))
		problem_add(l->ps, PROBLEM_NOTE, n->at, NULL,
		    "enforce: l3 is read as strict");
	else if (yaml_is(n, "cooperative"))
		l->c->scalars.cooperative = true;
	else if (n->text.len == 0)
		problem_add(l->ps, PROBLEM_ERROR, n->at, fix,
		    "an empty enforce says nothing; in a Charter it is "
		    "cooperative");
	else if (!yaml_is(n, "strict"))
		complain(l, n, fix, "enforce");
}

static void
help_read(struct loading *l, const struct yaml_node *n)
{
	if (!scalar(l, n, "help"))
		return;
	if (!rules_text_ok(n->text, CHARTER_HELP_BYTES)) {
		problem_add(l->ps, PROBLEM_ERROR, n->at, "write one line",
		    "help is longer than %u bytes or holds control "
		    "characters", CHARTER_HELP_BYTES);
		return;
	}
	memcpy(l->c->scalars.help, n->text.data, n->text.len);
}

static void
no_sni_read(struct loading *l, const struct yaml_node *n)
{
	if (!scalar(l, n, "no_sni"))
		return;
	if (yaml_is(n, "pinned-ip"))
		l->c->scalars.no_sni_pinned = true;
	else if (!yaml_is(n, "deny"))
		complain(l, n, "write no_sni: deny or pinned-ip", "no_sni");
}

static void
ech_read(struct loading *l, const struct yaml_node *n)
{
	if (!scalar(l, n, "ech"))
		return;
	if (yaml_is(n, "deny")) {
		l->c->scalars.ech_denied = true;
		problem_add(l->ps, PROBLEM_WARNING, n->at, NULL,
		    "ech: deny refuses most browsers: they send the "
		    "extension as GREASE on every connection");
	} else if (!yaml_is(n, "allow-outer"))
		complain(l, n, "write ech: allow-outer or deny", "ech");
}

/* ---- lists ---- */

static const struct yaml_node *
list_begin(struct loading *l, const struct yaml_node *n, const char *what,
    size_t max)
{
	if (n->kind == YAML_SEQUENCE && n->n_children <= max)
		return n->child;
	problem_add(l->ps, PROBLEM_ERROR, n->at, "write a list: [a, b]",
	    "%s is not a list of at most %zu items", what, max);
	return NULL;
}

static void
resolvers_read(struct loading *l, const struct yaml_node *n)
{
	struct charter_scalars *to = &l->c->scalars;
	const struct yaml_node *item;

	to->resolvers_at = n->at;
	item = list_begin(l, n, "resolvers", CHARTER_RESOLVERS_MAX);
	for (; item != NULL; item = item->next) {
		if (!scalar(l, item, "a resolver"))
			continue;
		if (yaml_is(item, "system"))
			to->resolvers_system = true;
		else if (server_parse(&to->resolvers[to->n_resolvers],
		    item->text))
			to->n_resolvers++;
		else
			complain(l, item, SERVER_FORMS ", or system",
			    "resolvers");
	}
	if (to->resolvers_system && n->n_children > 1)
		problem_add(l->ps, PROBLEM_ERROR, n->at,
		    "write resolvers: [system], or name them all",
		    "system stands beside other resolvers");
}

static void
prefixes_read(struct loading *l, const struct yaml_node *n, const char *what,
    struct prefix *out, size_t *count,
    bool (*fits)(const struct prefix *p), const char *fix)
{
	const struct yaml_node *item;

	item = list_begin(l, n, what, CHARTER_PREFIXES_MAX);
	for (; item != NULL; item = item->next) {
		if (!scalar(l, item, what))
			continue;
		if (prefix_parse(&out[*count], item->text) &&
		    fits(&out[*count]))
			(*count)++;
		else
			complain(l, item, fix, what);
	}
}

/* The whole prefix must lie in one of these, not only its first address. */
static bool
lab_fits(const struct prefix *p)
{
	static const char *const classes[] = { "192.0.2.0/24",
	    "198.51.100.0/24", "203.0.113.0/24", "198.18.0.0/15",
	    "2001:db8::/32", "3fff::/20", "2001:2::/48" };
	struct prefix c;
	size_t i;

	for (i = 0; i < sizeof(classes) / sizeof(classes[0]); i++)
		if (prefix_parse(&c, span_str(classes[i])) &&
		    p->bits >= c.bits && prefix_has(&c, &p->base))
			return true;
	return false;
}

static void
lab_read(struct loading *l, const struct yaml_node *n)
{
	prefixes_read(l, n, "lab", l->c->scalars.lab, &l->c->scalars.n_lab,
	    lab_fits, "name prefixes of the documentation and benchmark "
	    "classes only, as 203.0.113.0/24");
	l->c->scalars.lab_at = n->at;
	if (l->c->scalars.n_lab > 0)
		problem_add(l->ps, PROBLEM_NOTE, n->at, NULL,
		    "lab: these prefixes count as public");
}

/* RFC 6052 2.2: the lengths that a translator may use. */
static bool
nat64_fits(const struct prefix *p)
{
	return !addr_is_v4(&p->base) && (p->bits == 32 || p->bits == 40 ||
	    p->bits == 48 || p->bits == 56 || p->bits == 64 || p->bits == 96);
}

static void
nat64_read(struct loading *l, const struct yaml_node *n)
{
	prefixes_read(l, n, "nat64", l->c->scalars.nat64,
	    &l->c->scalars.n_nat64, nat64_fits,
	    "name IPv6 prefixes of length 32, 40, 48, 56, 64 or 96");
}

static void
rule_list_read(struct loading *l, const struct yaml_node *n)
{
	if (l->err == 0 && !n->refused)
		l->err = rules_load(&l->c->rules, n, l->reader, l->ps);
}

static void
expect_one(struct loading *l, const struct yaml_node *item)
{
	struct charter_expect *e = &l->c->expects[l->c->n_expects];
	const struct yaml_node *v;
	char *what;

	if (item->doubtful)
		return;		/* and told why */
	if (item->kind != YAML_MAPPING || item->n_children != 1 ||
	    item->child->kind != YAML_SCALAR ||
	    !(yaml_is(item->child->key, "allow") ||
	    yaml_is(item->child->key, "deny"))) {
		problem_add(l->ps, PROBLEM_ERROR, item->at,
		    "write {allow: host:port} or {deny: host}",
		    "an expectation is not one verdict and one place");
		return;
	}
	v = item->child;
	what = malloc(v->text.len + 1);
	if (what == NULL) {
		l->err = -ENOMEM;
		return;
	}
	memcpy(what, v->text.data, v->text.len);
	what[v->text.len] = '\0';
	e->at = item->at;
	e->verdict = yaml_is(v->key, "allow") ? VERDICT_ALLOW : VERDICT_DENY;
	e->what = what;
	l->c->n_expects++;
}

static void
expect_read(struct loading *l, const struct yaml_node *n)
{
	const struct yaml_node *item;

	item = list_begin(l, n, "expect", CHARTER_EXPECT_MAX);
	if (item == NULL)
		return;
	l->c->expects = calloc(n->n_children, sizeof(*l->c->expects));
	if (l->c->expects == NULL)
		l->err = -ENOMEM;
	for (; item != NULL && l->err == 0; item = item->next)
		expect_one(l, item);
}
