/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/image.h"
#include "policy/qtype.h"

#include <errno.h>
#include <stdlib.h>

#include "policy/cidr.h"
#include "policy/names.h"

#define ALIGN 8u
#define GROW_BYTES 65536u

/* ---- checking ---- */

/* A table of n items of the given size lies inside and is aligned. */
static bool
table_ok(struct span image, struct image_part p, size_t item)
{
	return p.at % ALIGN == 0 && p.at <= image.len &&
	    p.len <= (image.len - p.at) / item;
}

static bool
text_ok(struct span image, struct image_part p)
{
	return p.at <= image.len && p.len <= image.len - p.at;
}

static bool
prefix_ok(const struct prefix *p)
{
	return p->bits <= 128;
}

static bool
rule_ok(struct span image, const struct image_rule *r)
{
	const struct image_part texts[] = { r->id, r->file, r->reason,
	    r->owner, r->subject };
	const struct image_ports *ports;
	size_t i;

	for (i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		if (!text_ok(image, texts[i]))
			return false;
	if (r->flags > IMAGE_RULE_FLAGS || r->qtypes >> QTYPE_COUNT != 0 ||
	    !prefix_ok(&r->prefix) ||
	    !table_ok(image, r->ports, sizeof(struct image_ports)))
		return false;
	ports = image_ports(image, r);
	for (i = 0; i < r->ports.len; i++)
		if (ports[i].lo > ports[i].hi)
			return false;
	return true;
}

static bool
set_rules_ok(struct span image, const struct image_set *s)
{
	const struct image_rule *rules;
	const uint32_t *denies;
	size_t i;

	if (!table_ok(image, s->rules, sizeof(struct image_rule)) ||
	    !table_ok(image, s->denies, sizeof(uint32_t)))
		return false;
	rules = image_rules(image, s);
	for (i = 0; i < s->rules.len; i++)
		if (!rule_ok(image, &rules[i]))
			return false;
	denies = (const void *)(image.data + s->denies.at);
	for (i = 0; i < s->denies.len; i++)
		if (denies[i] >= s->rules.len ||
		    (i > 0 && denies[i] <= denies[i - 1]))
			return false;
	return true;
}

static bool
set_ok(struct span image, const struct image_set *s)
{
	const struct image_part maps[] = {
	    { s->named_ports, IMAGE_PORT_BYTES },
	    { s->opaque_ports, IMAGE_PORT_BYTES } };
	size_t i;

	if (!set_rules_ok(image, s) || !text_ok(image, s->help) ||
	    !text_ok(image, maps[0]) || !text_ok(image, maps[1]) ||
	    !table_ok(image, s->names, 1) || !table_ok(image, s->cidrs, 1))
		return false;
	if (s->n_lab > IMAGE_PREFIXES_MAX || s->n_nat64 > IMAGE_PREFIXES_MAX)
		return false;
	for (i = 0; i < s->n_lab; i++)
		if (!prefix_ok(&s->lab[i]))
			return false;
	for (i = 0; i < s->n_nat64; i++)
		if (!prefix_ok(&s->nat64[i]))
			return false;
	return names_check(image_text(image, s->names), s->rules.len) &&
	    cidr_check(image_text(image, s->cidrs), s->rules.len);
}

static bool
ended(const char *text, size_t size)
{
	return memchr(text, '\0', size) != NULL;
}

static bool
cell_ok(struct span image, const struct image_header *h,
    const struct image_cell *c)
{
	size_t i;

	if (!text_ok(image, c->id) || c->id.len >= POLICY_ID_BYTES ||
	    c->n_labels > POLICY_LABELS_MAX || c->set >= h->sets.len)
		return false;
	/* A bool holds 0 or 1; any other byte is no bool at all. */
	if (*(const uint8_t *)&c->from.has_prefix > 1)
		return false;
	for (i = 0; i < c->n_labels; i++)
		if (!text_ok(image, c->labels[i].key) ||
		    !text_ok(image, c->labels[i].value))
			return false;
	return (unsigned)c->from.kind <= CELL_FROM_CREDENTIAL &&
	    prefix_ok(&c->from.prefix) &&
	    ended(c->from.interface, sizeof(c->from.interface)) &&
	    ended(c->from.listener, sizeof(c->from.listener));
}

static bool
own_ok(struct span image, const struct image_header *h)
{
	const struct image_part room = { h->own.at, POLICY_OWN_MAX };

	return h->own.len <= POLICY_OWN_MAX &&
	    h->n_gateways <= h->own.len &&
	    table_ok(image, room, sizeof(struct endpoint));
}

/* The names in them end. */
static bool
resolvers_ok(const struct image_header *h)
{
	if (h->n_resolvers > POLICY_RESOLVERS_MAX)
		return false;
	for (uint32_t i = 0; i < h->n_resolvers; i++)
		if (h->resolvers[i].tls_name[HOST_MAX_BYTES] != '\0')
			return false;
	return true;
}

static bool
head_ok(struct span image, const struct image_header *h)
{
	return h->magic == IMAGE_MAGIC && h->version == IMAGE_VERSION &&
	    h->size == image.len && resolvers_ok(h) &&
	    h->cells.len <= POLICY_CELLS_MAX &&
	    h->sets.len <= POLICY_CELLS_MAX && own_ok(image, h) &&
	    table_ok(image, h->cells, sizeof(struct image_cell)) &&
	    table_ok(image, h->sets, sizeof(struct image_set)) &&
	    table_ok(image, h->settings, 1);
}

bool
image_check(struct span image)
{
	const struct image_header *h;
	size_t i;

	if (image.data == NULL || (uintptr_t)image.data % ALIGN != 0 ||
	    image.len < sizeof(*h) || image.len > IMAGE_MAX_BYTES)
		return false;
	h = image_head(image);
	if (!head_ok(image, h))
		return false;
	for (i = 0; i < h->sets.len; i++)
		if (!set_ok(image, &image_sets(image)[i]))
			return false;
	for (i = 0; i < h->cells.len; i++)
		if (!cell_ok(image, h, &image_cells(image)[i]))
			return false;
	return true;
}

/* ---- reading ---- */

const struct image_header *
image_head(struct span image)
{
	return (const void *)image.data;
}

const struct image_cell *
image_cells(struct span image)
{
	return (const void *)(image.data + image_head(image)->cells.at);
}

const struct image_set *
image_sets(struct span image)
{
	return (const void *)(image.data + image_head(image)->sets.at);
}

const struct image_rule *
image_rules(struct span image, const struct image_set *set)
{
	return (const void *)(image.data + set->rules.at);
}

const struct image_ports *
image_ports(struct span image, const struct image_rule *r)
{
	return (const void *)(image.data + r->ports.at);
}

struct span
image_text(struct span image, struct image_part p)
{
	return span_of(image.data + p.at, p.len);
}

bool
image_port_bit(struct span image, uint32_t map, uint16_t port)
{
	return (image.data[map + port / 8u] & 1u << port % 8u) != 0;
}

/* ---- writing ---- */

static uint8_t *
grown_bytes(struct image_writer *w, size_t cap)
{
	uint8_t *grown;

	if (w->memory != NULL)
		return w->memory->grow(w->memory->arg, w->bytes, w->cap, cap);
	grown = realloc(w->bytes, cap);
	if (grown != NULL)
		memset(grown + w->cap, 0, cap - w->cap);
	return grown;
}

static bool
writer_grow(struct image_writer *w, size_t need)
{
	size_t cap = w->cap == 0 ? GROW_BYTES : w->cap;
	uint8_t *grown;

	if (need > IMAGE_MAX_BYTES) {
		w->err = -EFBIG;
		return false;
	}
	if (need <= w->cap)
		return true;
	while (cap < need)
		cap += cap / 2;
	grown = grown_bytes(w, cap);
	if (grown == NULL) {
		w->err = -ENOMEM;
		return false;
	}
	w->bytes = grown;
	w->cap = cap;
	return true;
}

uint32_t
image_room(struct image_writer *w, size_t n)
{
	size_t at = (w->len + ALIGN - 1) / ALIGN * ALIGN;

	if (w->err != 0 || n > IMAGE_MAX_BYTES || !writer_grow(w, at + n)) {
		if (w->err == 0)
			w->err = -EFBIG;
		return 0;
	}
	w->len = at + n;
	return (uint32_t)at;
}

struct image_part
image_put(struct image_writer *w, const void *data, size_t n)
{
	struct image_part p = { 0, 0 };

	p.at = image_room(w, n);
	if (w->err != 0)
		return (struct image_part){ 0, 0 };
	p.len = (uint32_t)n;
	if (n > 0)
		memcpy(w->bytes + p.at, data, n);
	return p;
}

struct image_part
image_put_text(struct image_writer *w, const char *text)
{
	return image_put(w, text != NULL ? text : "",
	    text != NULL ? strlen(text) : 0);
}
