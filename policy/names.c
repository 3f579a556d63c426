/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/names.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>

#define NIL UINT32_MAX
#define RULE_BITS 0x3fffffffu	/* of a reference; the kind is above */
#define SLOTS_MIN 16u

/* One name that patterns hang on, or a parent of one (no references). */
struct entry {
	uint32_t text;		/* offset in the texts */
	uint32_t refs;		/* first reference */
	uint32_t n_refs;
	uint8_t len;
	uint8_t parent;		/* some pattern lies under it */
	uint16_t zero;
};

/* The image: head, slots, entries, references, texts. */
struct head {
	uint8_t key[crypto_shorthash_KEYBYTES];
	uint32_t n_slots;	/* a power of two, or 0 */
	uint32_t n_entries;
	uint32_t n_refs;
	uint32_t n_text;
};

struct link {
	uint32_t ref;
	uint32_t next;
};

struct names_builder {
	uint8_t key[crypto_shorthash_KEYBYTES];
	uint32_t *slots;
	uint32_t n_slots;
	struct entry *entries;
	uint32_t n_entries, size_entries;
	struct link *links;	/* references of an entry, newest first */
	uint32_t n_links, size_links;
	char *text;
	uint32_t n_text, size_text;
};

static uint32_t
hash(const uint8_t *key, struct span name)
{
	uint8_t out[crypto_shorthash_BYTES];
	uint32_t h;

	crypto_shorthash(out, name.data, name.len, key);
	memcpy(&h, out, sizeof(h));
	return h;
}

/* Make room for `more` further items of a growing array. */
static int
grow(void *array, uint32_t n, uint32_t more, uint32_t *size, size_t item)
{
	void **p = array;
	void *bigger;
	uint64_t want = *size;

	if (n + (uint64_t)more <= want)
		return 0;
	while (want < n + (uint64_t)more)
		want = want > 0 ? want + want / 2 + 16 : 256;
	if (want > UINT32_MAX / 2)
		return -ENOMEM;
	bigger = realloc(*p, (size_t)want * item);
	if (bigger == NULL)
		return -ENOMEM;
	*p = bigger;
	*size = (uint32_t)want;
	return 0;
}

struct names_builder *
names_builder_new(void)
{
	struct names_builder *b = calloc(1, sizeof(*b));

	if (b != NULL)
		randombytes_buf(b->key, sizeof(b->key));
	return b;
}

void
names_builder_free(struct names_builder *b)
{
	if (b == NULL)
		return;
	free(b->slots);
	free(b->entries);
	free(b->links);
	free(b->text);
	free(b);
}

static struct span
entry_text(const struct names_builder *b, const struct entry *e)
{
	return span_of(b->text + e->text, e->len);
}

static void
slot_put(struct names_builder *b, uint32_t index)
{
	uint32_t mask = b->n_slots - 1;
	uint32_t at = hash(b->key, entry_text(b, &b->entries[index])) & mask;

	while (b->slots[at] != NIL)
		at = (at + 1) & mask;
	b->slots[at] = index;
}

static int
slots_grow(struct names_builder *b)
{
	uint32_t n = b->n_slots > 0 ? 2 * b->n_slots : SLOTS_MIN;
	uint32_t *slots;

	if (b->n_entries + 1 <= b->n_slots / 4 * 3)
		return 0;
	slots = malloc((size_t)n * sizeof(*slots));
	if (slots == NULL)
		return -ENOMEM;
	memset(slots, 0xff, (size_t)n * sizeof(*slots));
	free(b->slots);
	b->slots = slots;
	b->n_slots = n;
	for (uint32_t i = 0; i < b->n_entries; i++)
		slot_put(b, i);
	return 0;
}

static struct entry *
builder_find(const struct names_builder *b, struct span name)
{
	uint32_t mask = b->n_slots - 1, at;

	if (b->n_slots == 0)
		return NULL;
	for (at = hash(b->key, name) & mask; b->slots[at] != NIL;
	    at = (at + 1) & mask) {
		struct entry *e = &b->entries[b->slots[at]];

		if (span_eq(entry_text(b, e), name))
			return e;
	}
	return NULL;
}

/* `text` is the offset of text that is stored already. */
static struct entry *
entry_new(struct names_builder *b, uint32_t text, size_t len)
{
	struct entry *e;

	if (slots_grow(b) < 0 || grow(&b->entries, b->n_entries, 1,
	    &b->size_entries, sizeof(*e)) < 0)
		return NULL;
	e = &b->entries[b->n_entries];
	*e = (struct entry){ .text = text, .refs = NIL,
	    .len = (uint8_t)len };
	slot_put(b, b->n_entries++);
	return e;
}

/* Every parent of a pattern is an entry, so that names_has_under is one
 * probe.  Parents share the text of the name below them. */
static int
add_parents(struct names_builder *b, uint32_t text, struct span name)
{
	for (;;) {
		const uint8_t *dot = memchr(name.data, '.', name.len);
		size_t skip;
		struct entry *e;

		if (dot == NULL)
			return 0;
		skip = (size_t)(dot - name.data) + 1;
		name = span_of(name.data + skip, name.len - skip);
		text += (uint32_t)skip;
		e = builder_find(b, name);
		if (e != NULL && e->parent)
			return 0;
		if (e == NULL)
			e = entry_new(b, text, name.len);
		if (e == NULL)
			return -ENOMEM;
		e->parent = 1;
	}
}

static int
add_ref(struct names_builder *b, struct entry *e, unsigned kinds,
    uint32_t rule)
{
	if (grow(&b->links, b->n_links, 1, &b->size_links,
	    sizeof(*b->links)) < 0)
		return -ENOMEM;
	b->links[b->n_links] = (struct link){
	    .ref = rule | (uint32_t)kinds << 30, .next = e->refs };
	e->refs = b->n_links++;
	e->n_refs++;
	return 0;
}

int
names_add(struct names_builder *b, const struct host *name, unsigned kinds,
    uint32_t rule)
{
	struct span text = span_of(name->name, name->len);
	struct entry *e;
	uint32_t at = b->n_text;
	size_t index;

	if (rule > RULE_BITS)
		return -ENOMEM;
	e = builder_find(b, text);
	if (e == NULL) {
		if (grow(&b->text, b->n_text, name->len, &b->size_text,
		    1) < 0)
			return -ENOMEM;
		memcpy(b->text + at, name->name, name->len);
		b->n_text += name->len;
		e = entry_new(b, at, name->len);
		if (e == NULL)
			return -ENOMEM;
	}
	/* entries may move when parents are added */
	index = (size_t)(e - b->entries);
	if ((kinds & NAMES_BELOW) != 0)
		e->parent = 1;
	if (e->n_refs == 0 && add_parents(b, e->text, text) < 0)
		return -ENOMEM;
	return add_ref(b, &b->entries[index], kinds, rule);
}

size_t
names_size(const struct names_builder *b)
{
	return (sizeof(struct head) + b->n_slots * sizeof(uint32_t) +
	    b->n_entries * sizeof(struct entry) +
	    b->n_links * sizeof(uint32_t) + b->n_text + 7) & ~(size_t)7;
}

void
names_write(struct names_builder *b, uint8_t *to)
{
	struct head head = { .n_slots = b->n_slots,
	    .n_entries = b->n_entries, .n_refs = b->n_links,
	    .n_text = b->n_text };
	uint32_t *slots = (void *)(to + sizeof(head));
	struct entry *entries = (void *)(slots + b->n_slots);
	uint32_t *refs = (void *)(entries + b->n_entries);
	uint32_t at = 0;

	memset(to, 0, names_size(b));
	memcpy(head.key, b->key, sizeof(head.key));
	memcpy(to, &head, sizeof(head));
	if (b->n_slots == 0)
		return;
	memcpy(slots, b->slots, b->n_slots * sizeof(*slots));
	for (uint32_t i = 0; i < b->n_entries; i++) {
		struct entry e = b->entries[i];
		uint32_t l = e.refs, k = e.n_refs;

		/* the list is newest first; rules come out in order */
		for (; l != NIL; l = b->links[l].next)
			refs[at + --k] = b->links[l].ref;
		e.refs = at;
		at += e.n_refs;
		entries[i] = e;
	}
	memcpy(refs + b->n_links, b->text, b->n_text);
}

/* ---- using ---- */

struct view {
	const struct head *head;
	const uint32_t *slots;
	const struct entry *entries;
	const uint32_t *refs;
	const char *text;
};

static struct view
view_of(struct span image)
{
	struct view v;

	v.head = (const void *)image.data;
	v.slots = (const void *)(image.data + sizeof(*v.head));
	v.entries = (const void *)(v.slots + v.head->n_slots);
	v.refs = (const void *)(v.entries + v.head->n_entries);
	v.text = (const void *)(v.refs + v.head->n_refs);
	return v;
}

bool
names_check(struct span image, uint32_t n_rules)
{
	struct view v;
	uint32_t used = 0;
	uint64_t need;

	if (image.len < sizeof(struct head) ||
	    ((uintptr_t)image.data & 7) != 0)
		return false;
	v = view_of(image);
	need = sizeof(*v.head) + 4ull * v.head->n_slots +
	    sizeof(struct entry) * (uint64_t)v.head->n_entries +
	    4ull * v.head->n_refs + v.head->n_text;
	if (need > image.len ||
	    (v.head->n_slots & (v.head->n_slots - 1)) != 0)
		return false;
	for (uint32_t i = 0; i < v.head->n_slots; i++) {
		if (v.slots[i] != NIL && v.slots[i] >= v.head->n_entries)
			return false;
		used += v.slots[i] != NIL;
	}
	/* a probe must find an end */
	if (v.head->n_slots > 0 && used >= v.head->n_slots)
		return false;
	for (uint32_t i = 0; i < v.head->n_entries; i++) {
		const struct entry *e = &v.entries[i];

		if ((uint64_t)e->text + e->len > v.head->n_text ||
		    (uint64_t)e->refs + e->n_refs > v.head->n_refs)
			return false;
	}
	for (uint32_t i = 0; i < v.head->n_refs; i++)
		if ((v.refs[i] & RULE_BITS) >= n_rules)
			return false;
	return true;
}

static const struct entry *
find(const struct view *v, struct span name)
{
	uint32_t mask = v->head->n_slots - 1, at;

	if (v->head->n_slots == 0 || name.len == 0)
		return NULL;
	for (at = hash(v->head->key, name) & mask; v->slots[at] != NIL;
	    at = (at + 1) & mask) {
		const struct entry *e = &v->entries[v->slots[at]];

		if (span_eq(span_of(v->text + e->text, e->len), name))
			return e;
	}
	return NULL;
}

void
names_visit(struct span image, const struct host *name,
    bool (*visit)(void *arg, uint32_t rule, enum names_kind kind), void *arg)
{
	struct view v = view_of(image);
	struct span s = span_of(name->name, name->len);
	enum names_kind kind = NAMES_EXACT;

	for (unsigned n = 0; s.len > 0; kind = NAMES_BELOW) {
		const struct entry *e = find(&v, s);

		for (uint32_t i = 0; e != NULL && i < e->n_refs; i++) {
			uint32_t ref = v.refs[e->refs + i];

			if ((ref >> 30 & (uint32_t)kind) != 0 &&
			    !visit(arg, ref & RULE_BITS, kind))
				return;
		}
		s = host_suffix(name, ++n);
	}
}

void
names_each(struct span image, void (*visit)(void *arg, struct span name,
    unsigned kinds, uint32_t rule), void *arg)
{
	struct view v = view_of(image);

	for (uint32_t i = 0; i < v.head->n_entries; i++) {
		const struct entry *e = &v.entries[i];

		for (uint32_t k = 0; k < e->n_refs; k++) {
			uint32_t ref = v.refs[e->refs + k];

			visit(arg, span_of(v.text + e->text, e->len),
			    ref >> 30, ref & RULE_BITS);
		}
	}
}

bool
names_holds(struct span image, struct span name, unsigned kinds,
    uint32_t rule)
{
	struct view v = view_of(image);
	const struct entry *e = find(&v, name);

	for (uint32_t k = 0; e != NULL && k < e->n_refs; k++) {
		uint32_t ref = v.refs[e->refs + k];

		if (ref == (kinds << 30 | rule))
			return true;
	}
	return false;
}

bool
names_has_under(struct span image, const struct host *name)
{
	struct view v = view_of(image);
	const struct entry *e = find(&v, span_of(name->name, name->len));

	return e != NULL && e->parent;
}
