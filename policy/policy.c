/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/policy.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>

#include "policy/build.h"
#include "policy/image.h"

struct policy {
	struct span image;
};

int
policy_build(const struct policy_source *src, uint8_t **out, size_t *out_len,
    struct problems *ps)
{
	struct image_writer w = { .memory = src->memory };
	int err = build_image(src, &w, ps);

	if (err == -EFBIG) {
		problem_add(ps, PROBLEM_ERROR, (struct place){ 0 },
		    "split it over several daemons",
		    "the compiled policy is larger than 4 GiB");
		err = -EINVAL;
	}
	if (err != 0) {
		if (w.memory == NULL)
			free(w.bytes);
		return err;
	}
	*out = w.bytes;
	*out_len = w.len;
	return 0;
}

int
policy_open(struct policy **out, struct span image)
{
	struct policy *p;

	if (!image_check(image))
		return -EBADMSG;
	p = malloc(sizeof(*p));
	if (p == NULL)
		return -ENOMEM;
	p->image = image;
	*out = p;
	return 0;
}

void
policy_free(struct policy *p)
{
	free(p);
}

struct span
policy_image(const struct policy *p)
{
	return p->image;
}

uint64_t
policy_generation(const struct policy *p)
{
	return image_head(p->image)->generation;
}

const uint8_t *
policy_digest(const struct policy *p)
{
	return image_head(p->image)->digest;
}

struct span
policy_settings(const struct policy *p)
{
	return image_text(p->image, image_head(p->image)->settings);
}

bool
policy_own_is(const struct policy *p, const struct endpoint *own,
    size_t n_own, size_t n_gateways)
{
	const struct image_header *h = image_head(p->image);

	return h->own.len == n_own && h->n_gateways == n_gateways &&
	    memcmp(p->image.data + h->own.at, own,
	    n_own * sizeof(*own)) == 0;
}

void
policy_set_own(uint8_t *image, const struct endpoint *own, size_t n_own,
    size_t n_gateways, uint64_t generation)
{
	struct image_header *h = (void *)image;

	if (n_own > 0)
		memcpy(image + h->own.at, own, n_own * sizeof(*own));
	h->own.len = (uint32_t)n_own;
	h->n_gateways = (uint32_t)n_gateways;
	h->generation = generation;
}

size_t
policy_cells(const struct policy *p)
{
	return image_head(p->image)->cells.len;
}

size_t
policy_resolvers(const struct policy *p,
    struct server out[static POLICY_RESOLVERS_MAX])
{
	const struct image_header *h = image_head(p->image);

	memcpy(out, h->resolvers, h->n_resolvers * sizeof(out[0]));
	return h->n_resolvers;
}

/* ---- cells ---- */

static const struct image_cell *
cell_at(const struct policy *p, uint32_t cell)
{
	if (cell >= image_head(p->image)->cells.len)
		return NULL;
	return &image_cells(p->image)[cell];
}

uint32_t
policy_cell_by_id(const struct policy *p, struct span id)
{
	const struct image_cell *c = image_cells(p->image);
	uint32_t i, n = image_head(p->image)->cells.len;

	for (i = 0; i < n; i++)
		if (span_eq(image_text(p->image, c[i].id), id))
			return i;
	return CELL_NONE;
}

uint64_t
policy_cell_token(const struct policy *p, uint32_t cell)
{
	const struct image_cell *c = cell_at(p, cell);
	uint64_t token = 0;

	if (c == NULL || c->from.kind != CELL_FROM_CREDENTIAL)
		return 0;
	memcpy(&token, c->from.token_hash, sizeof(token));
	return token != 0 ? token : 1;
}

/* Hash and compare whether or not the cell exists, so that the time tells
 * nothing about which part was wrong. */
static uint32_t
cell_by_credential(const struct policy *p, const struct cell_key *key)
{
	static const uint8_t nobody[32];
	uint32_t cell = policy_cell_by_id(p, span_str(key->credential_cell));
	const struct image_cell *c = cell_at(p, cell);
	const uint8_t *want = nobody;
	uint8_t hash[32];
	bool known;

	known = c != NULL && c->from.kind == CELL_FROM_CREDENTIAL;
	if (known)
		want = c->from.token_hash;
	crypto_generichash(hash, sizeof(hash), key->credential_token.data,
	    key->credential_token.len, NULL, 0);
	if (sodium_memcmp(hash, want, sizeof(hash)) != 0 || !known)
		return CELL_NONE;
	return cell;
}

/* How well a cell fits a client: 0 not at all, more is closer. */
static unsigned
cell_fit(const struct image_cell *c, const struct cell_key *key)
{
	const struct cell_from *f = &c->from;
	unsigned fit = 2;

	switch (f->kind) {
	case CELL_FROM_ANY:
		return 1;
	case CELL_FROM_LISTENER:
		return key->listener != NULL &&
		    strcmp(f->listener, key->listener) == 0 ? 1000 : 0;
	case CELL_FROM_NET:
		if (f->interface[0] != '\0') {
			if (key->interface == NULL ||
			    strcmp(f->interface, key->interface) != 0)
				return 0;
			fit += 200;
		}
		if (f->has_prefix) {
			if (!prefix_has(&f->prefix, &key->client))
				return 0;
			fit += f->prefix.bits;
		}
		return fit > 2 ? fit : 0;
	case CELL_FROM_CREDENTIAL:
		return 0;
	}
	return 0;
}

uint32_t
policy_cell_find(const struct policy *p, const struct cell_key *key,
    enum reason *why)
{
	const struct image_cell *c = image_cells(p->image);
	uint32_t i, n = image_head(p->image)->cells.len, best = CELL_NONE;
	unsigned fit, best_fit = 0;
	bool credentials = false;

	if (key->credential_cell != NULL) {
		best = cell_by_credential(p, key);
		*why = best == CELL_NONE ? REASON_AUTH_FAILED : REASON_NONE;
		return best;
	}
	for (i = 0; i < n; i++) {
		credentials |= c[i].from.kind == CELL_FROM_CREDENTIAL;
		fit = cell_fit(&c[i], key);
		if (fit > best_fit) {
			best = i;
			best_fit = fit;
		}
	}
	*why = best != CELL_NONE ? REASON_NONE :
	    credentials ? REASON_AUTH_REQUIRED : REASON_UNKNOWN_CELL;
	return best;
}

bool
policy_cell(const struct policy *p, uint32_t cell, int64_t now_s,
    struct cell_view *out)
{
	const struct image_cell *c = cell_at(p, cell);
	const struct image_set *s;
	size_t i;

	memset(out, 0, sizeof(*out));
	if (c == NULL)
		return false;
	s = &image_sets(p->image)[c->set];
	out->id = image_text(p->image, c->id);
	out->n_labels = c->n_labels;
	for (i = 0; i < c->n_labels; i++) {
		out->labels[i].key = image_text(p->image, c->labels[i].key);
		out->labels[i].value = image_text(p->image,
		    c->labels[i].value);
	}
	out->help = image_text(p->image, s->help);
	out->enforce_strict = s->strict != 0;
	out->reports = now_s < s->report_until_s;
	return true;
}

/* ---- rules ---- */

static const struct image_rule *
rule_at(const struct policy *p, uint32_t cell, uint32_t rule)
{
	const struct image_cell *c = cell_at(p, cell);
	const struct image_set *s;

	if (c == NULL)
		return NULL;
	s = &image_sets(p->image)[c->set];
	return rule < s->rules.len ? &image_rules(p->image, s)[rule] : NULL;
}

uint32_t
policy_rules(const struct policy *p, uint32_t cell)
{
	const struct image_cell *c = cell_at(p, cell);

	return c == NULL ? 0 : image_sets(p->image)[c->set].rules.len;
}

bool
policy_rule_port(const struct policy *p, uint32_t cell, uint32_t rule,
    uint16_t port)
{
	const struct image_rule *r = rule_at(p, cell, rule);
	const struct image_ports *ports;
	uint32_t i;

	if (r == NULL)
		return false;
	ports = image_ports(p->image, r);
	for (i = 0; i < r->ports.len; i++)
		if (port >= ports[i].lo && port <= ports[i].hi)
			return true;
	return false;
}

char *
policy_rule_ports(const struct policy *p, uint32_t cell, uint32_t rule,
    char *out, size_t size)
{
	const struct image_rule *r = rule_at(p, cell, rule);
	const struct image_ports *ports;
	size_t n = 0;
	uint32_t i;

	out[0] = '\0';
	if (r == NULL)
		return out;
	ports = image_ports(p->image, r);
	for (i = 0; i < r->ports.len; i++) {
		if (size - n < 16) {
			(void)snprintf(out + n, size - n, "~");
			break;
		}
		if (ports[i].lo <= 1 && ports[i].hi == 65535)
			n += (size_t)snprintf(out + n, size - n, "any");
		else if (ports[i].lo == ports[i].hi)
			n += (size_t)snprintf(out + n, size - n, "%s%u",
			    i > 0 ? ", " : "", ports[i].lo);
		else
			n += (size_t)snprintf(out + n, size - n, "%s%u-%u",
			    i > 0 ? ", " : "", ports[i].lo, ports[i].hi);
	}
	return out;
}

size_t
policy_lab(const struct policy *p, uint32_t cell, struct prefix *out,
    size_t max)
{
	const struct image_cell *c = cell_at(p, cell);
	const struct image_set *s;

	if (c == NULL)
		return 0;
	s = &image_sets(p->image)[c->set];
	memcpy(out, s->lab, (s->n_lab < max ? s->n_lab : max) * sizeof(*out));
	return s->n_lab;
}

bool
policy_rule(const struct policy *p, uint32_t cell, uint32_t rule,
    struct rule_view *out)
{
	const struct image_rule *r = rule_at(p, cell, rule);

	memset(out, 0, sizeof(*out));
	if (r == NULL)
		return false;
	out->id = image_text(p->image, r->id);
	out->file = image_text(p->image, r->file);
	out->line = r->line;
	out->reason = image_text(p->image, r->reason);
	out->owner = image_text(p->image, r->owner);
	out->subject = image_text(p->image, r->subject);
	out->verdict = (r->flags & IMAGE_RULE_ALLOW) != 0 ? VERDICT_ALLOW :
	    VERDICT_DENY;
	out->until_s = r->until_s;
	out->report = (r->flags & IMAGE_RULE_REPORT) != 0;
	out->opaque = (r->flags & IMAGE_RULE_OPAQUE) != 0;
	out->allow_private = (r->flags & IMAGE_RULE_ALLOW_PRIVATE) != 0;
	out->qtypes = r->qtypes;
	return true;
}
