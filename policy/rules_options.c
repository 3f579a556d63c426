/* SPDX-License-Identifier: Apache-2.0 */
/* What stands in a rule beside its verdict and what it names. */
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>

#include "policy/date.h"
#include "policy/qtype.h"
#include "policy/rules_part.h"

#define CANONICAL_BYTES 1024

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

void
rules_options_ports(struct reading *rd, const struct rule_keys *k,
    struct rule *r)
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
read_all(struct reading *rd, const struct rule_keys *k, struct rule *r)
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
			r->reason = rules_text_copy(rd, k->reason->text);
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
check_all(struct reading *rd, const struct rule_keys *k,
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

void
rules_options_read(struct reading *rd, const struct rule_keys *k,
    struct rule *r)
{
	read_all(rd, k, r);
	check_all(rd, k, r);
}

void
rules_options_id(struct rule *r)
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
