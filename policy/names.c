/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/names.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>

#include "policy/chunks.h"

#define NIL UINT32_MAX
#define RULE_BITS 0x3fffffffu	/* of a reference; the kind is above */
#define SLOTS_MIN 16u

enum entry_flag {
	ENTRY_PARENT = 1,	/* some pattern lies under it */
	ENTRY_ONE = 2,		/* refs is the one reference */
	ENTRY_MANY = 4,		/* refs is where the references begin: how
				 * many, then each */
};

/* One name that patterns hang on, or a parent of one (no references). */
struct entry {
	uint32_t text;		/* offset in the texts */
	uint32_t refs;
	uint8_t len;
	uint8_t flags;		/* enum entry_flag */
	uint16_t zero;
};

/* The image: head, slots, entries, references, texts. */
struct head {
	uint8_t key[crypto_shorthash_KEYBYTES];
	uint32_t n_slots;	/* more than entries, or 0 */
	uint32_t n_entries;
	uint32_t n_refs;	/* words of the references of many */
	uint32_t n_text;
};

/* An entry while the index grows. */
struct made {
	uint32_t text;		/* number in the chunks */
	uint32_t refs;		/* the one, or the newest link */
	uint32_t n_refs;
	uint8_t len;
	uint8_t parent;
	uint16_t zero;
};
_Static_assert(CHUNKS_BYTES % sizeof(struct made) == 0,
    "the number of an entry says where it is");

struct link {
	uint32_t ref;
	uint32_t next;
};

struct names_builder {
	uint8_t key[crypto_shorthash_KEYBYTES];
	uint32_t *slots;
	uint32_t n_slots;
	struct chunks entries;
	uint32_t n_entries;
	struct link *links;	/* references of an entry, newest first */
	uint32_t n_links, size_links;
	uint32_t n_refs;	/* as in the head */
	struct chunks text;
	uint32_t n_text;
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
	chunks_done(&b->entries);
	free(b->links);
	chunks_done(&b->text);
	free(b);
}

/* Where to begin to look; any number of slots will do. */
static uint32_t
slot_first(uint32_t h, uint32_t n_slots)
{
	return (uint32_t)((uint64_t)h * n_slots >> 32);
}

static uint32_t
slot_next(uint32_t at, uint32_t n_slots)
{
	return at + 1 == n_slots ? 0 : at + 1;
}

static void
slot_put(uint32_t *slots, uint32_t n_slots, uint32_t h, uint32_t index)
{
	uint32_t at = slot_first(h, n_slots);

	while (slots[at] != NIL)
		at = slot_next(at, n_slots);
	slots[at] = index;
}

static struct made *
made_at(const struct names_builder *b, uint32_t index)
{
	return (void *)chunks_at(&b->entries,
	    (size_t)index * sizeof(struct made));
}

static struct span
made_text(const struct names_builder *b, const struct made *e)
{
	return span_of(chunks_at(&b->text, e->text), e->len);
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
		slot_put(slots, n, hash(b->key, made_text(b, made_at(b, i))),
		    i);
	return 0;
}

static struct made *
builder_find(const struct names_builder *b, struct span name)
{
	uint32_t at;

	if (b->n_slots == 0)
		return NULL;
	for (at = slot_first(hash(b->key, name), b->n_slots);
	    b->slots[at] != NIL; at = slot_next(at, b->n_slots)) {
		struct made *e = made_at(b, b->slots[at]);

		if (span_eq(made_text(b, e), name))
			return e;
	}
	return NULL;
}

/* `text` is the number of text that is stored already. */
static struct made *
entry_new(struct names_builder *b, uint32_t text, size_t len)
{
	struct made *e;
	size_t at;

	if (slots_grow(b) < 0)
		return NULL;
	e = (void *)chunks_room(&b->entries, sizeof(*e), &at);
	if (e == NULL)
		return NULL;
	*e = (struct made){ .text = text, .len = (uint8_t)len };
	slot_put(b->slots, b->n_slots, hash(b->key, made_text(b, e)),
	    b->n_entries++);
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
		struct made *e;

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
add_link(struct names_builder *b, uint32_t ref, uint32_t next)
{
	if (grow(&b->links, b->n_links, 1, &b->size_links,
	    sizeof(*b->links)) < 0)
		return -ENOMEM;
	b->links[b->n_links++] = (struct link){ .ref = ref, .next = next };
	return 0;
}

/* Nearly every name has one reference, which needs no list. */
static int
add_ref(struct names_builder *b, struct made *e, unsigned kinds,
    uint32_t rule)
{
	const uint32_t ref = rule | (uint32_t)kinds << 30;

	if (e->n_refs == 0) {
		e->refs = ref;
		e->n_refs = 1;
		return 0;
	}
	if (e->n_refs == 1) {
		if (add_link(b, e->refs, NIL) < 0)
			return -ENOMEM;
		e->refs = b->n_links - 1;
		b->n_refs += 2;
	}
	if (add_link(b, ref, e->refs) < 0)
		return -ENOMEM;
	e->refs = b->n_links - 1;
	e->n_refs++;
	b->n_refs++;
	return 0;
}

static struct made *
add_name(struct names_builder *b, const struct host *name)
{
	size_t at;
	uint8_t *p = chunks_room(&b->text, name->len, &at);

	if (p == NULL || at > UINT32_MAX - HOST_MAX_BYTES)
		return NULL;
	memcpy(p, name->name, name->len);
	b->n_text += name->len;
	return entry_new(b, (uint32_t)at, name->len);
}

int
names_add(struct names_builder *b, const struct host *name, unsigned kinds,
    uint32_t rule)
{
	struct span text = span_of(name->name, name->len);
	struct made *e;

	if (rule > RULE_BITS)
		return -ENOMEM;
	e = builder_find(b, text);
	if (e == NULL)
		e = add_name(b, name);
	if (e == NULL)
		return -ENOMEM;
	if ((kinds & NAMES_BELOW) != 0)
		e->parent = 1;
	if (e->n_refs == 0 && add_parents(b, e->text, text) < 0)
		return -ENOMEM;
	return add_ref(b, e, kinds, rule);
}

/* A third of the slots stays free, or nearly so. */
static uint32_t
slots_written(const struct names_builder *b)
{
	return b->n_entries == 0 ? 0 : b->n_entries + b->n_entries / 2 + 1;
}

size_t
names_size(const struct names_builder *b)
{
	return (sizeof(struct head) + slots_written(b) * sizeof(uint32_t) +
	    b->n_entries * sizeof(struct entry) +
	    b->n_refs * sizeof(uint32_t) + b->n_text + 7) & ~(size_t)7;
}

/* Entries stand in the order of their texts, parents right behind the name
 * whose text they share. */
struct writing {
	struct names_builder *b;
	uint32_t *slots;
	struct entry *entries;
	uint32_t *refs;
	uint8_t *text;
	uint32_t n_refs, n_text;
	uint32_t from, to;	/* of the last text, over there and here */
	uint32_t len;
};

static uint32_t
text_write(struct writing *w, const struct made *e)
{
	if (w->len == 0 || e->text - w->from >= w->len) {
		w->from = e->text;
		w->to = w->n_text;
		w->len = e->len;
		memcpy(w->text + w->to, chunks_at(&w->b->text, e->text),
		    e->len);
		w->n_text += e->len;
		chunks_forget(&w->b->text, e->text);
	}
	return w->to + (e->text - w->from);
}

/* The list is newest first; rules come out in order. */
static uint32_t
refs_write(struct writing *w, const struct made *e)
{
	uint32_t at = w->n_refs, l, k = e->n_refs;

	if (k < 2)
		return e->refs;
	w->refs[at] = k;
	for (l = e->refs; l != NIL; l = w->b->links[l].next)
		w->refs[at + k--] = w->b->links[l].ref;
	w->n_refs += 1 + e->n_refs;
	return at;
}

static void
entry_write(struct writing *w, uint32_t i)
{
	const struct made *e = made_at(w->b, i);

	w->entries[i] = (struct entry){ .text = text_write(w, e),
	    .refs = refs_write(w, e), .len = e->len,
	    .flags = (uint8_t)((e->parent ? ENTRY_PARENT : 0) |
	    (e->n_refs == 1 ? ENTRY_ONE : 0) |
	    (e->n_refs > 1 ? ENTRY_MANY : 0)) };
	chunks_forget(&w->b->entries, (size_t)i * sizeof(*e));
}

void
names_write(struct names_builder *b, uint8_t *to)
{
	struct head head = { .n_slots = slots_written(b),
	    .n_entries = b->n_entries, .n_refs = b->n_refs,
	    .n_text = b->n_text };
	struct writing w = { .b = b };
	const size_t size = names_size(b);

	free(b->slots);
	b->slots = NULL;
	memset(to + size - 8, 0, 8);
	memcpy(head.key, b->key, sizeof(head.key));
	memcpy(to, &head, sizeof(head));
	w.slots = (void *)(to + sizeof(head));
	w.entries = (void *)(w.slots + head.n_slots);
	w.refs = (void *)(w.entries + head.n_entries);
	w.text = (void *)(w.refs + head.n_refs);
	for (uint32_t i = 0; i < head.n_entries; i++)
		entry_write(&w, i);
	memset(w.slots, 0xff, head.n_slots * sizeof(*w.slots));
	for (uint32_t i = 0; i < head.n_entries; i++)
		slot_put(w.slots, head.n_slots, hash(head.key,
		    span_of(w.text + w.entries[i].text, w.entries[i].len)),
		    i);
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

static bool
slots_ok(const struct view *v)
{
	uint32_t used = 0;

	for (uint32_t i = 0; i < v->head->n_slots; i++) {
		if (v->slots[i] != NIL && v->slots[i] >= v->head->n_entries)
			return false;
		used += v->slots[i] != NIL;
	}
	/* a probe must find an end */
	return v->head->n_slots == 0 || used < v->head->n_slots;
}

/* The lists stand one behind the other, so each word is looked at once. */
static bool
refs_ok(const struct view *v, const struct entry *e, uint32_t n_rules,
    uint32_t *at)
{
	const uint32_t left = v->head->n_refs - *at;
	uint32_t n;

	if (e->flags > (ENTRY_PARENT | ENTRY_ONE | ENTRY_MANY) ||
	    (e->flags & (ENTRY_ONE | ENTRY_MANY)) ==
	    (ENTRY_ONE | ENTRY_MANY))
		return false;
	if ((e->flags & ENTRY_ONE) != 0)
		return (e->refs & RULE_BITS) < n_rules;
	if ((e->flags & ENTRY_MANY) == 0)
		return true;
	if (e->refs != *at || left == 0 || v->refs[*at] > left - 1)
		return false;
	n = v->refs[(*at)++];
	for (; n > 0; n--)
		if ((v->refs[(*at)++] & RULE_BITS) >= n_rules)
			return false;
	return true;
}

bool
names_check(struct span image, uint32_t n_rules)
{
	struct view v;
	uint32_t at = 0;
	uint64_t need;

	if (image.len < sizeof(struct head) ||
	    ((uintptr_t)image.data & 7) != 0)
		return false;
	v = view_of(image);
	need = sizeof(*v.head) + 4ull * v.head->n_slots +
	    sizeof(struct entry) * (uint64_t)v.head->n_entries +
	    4ull * v.head->n_refs + v.head->n_text;
	if (need > image.len || !slots_ok(&v))
		return false;
	for (uint32_t i = 0; i < v.head->n_entries; i++) {
		const struct entry *e = &v.entries[i];

		if ((uint64_t)e->text + e->len > v.head->n_text ||
		    !refs_ok(&v, e, n_rules, &at))
			return false;
	}
	return true;
}

/* The references of an entry, and how many. */
static const uint32_t *
refs_of(const struct view *v, const struct entry *e, uint32_t *n)
{
	*n = 0;
	if (e == NULL)
		return NULL;
	if ((e->flags & ENTRY_ONE) != 0) {
		*n = 1;
		return &e->refs;
	}
	if ((e->flags & ENTRY_MANY) == 0)
		return NULL;
	*n = v->refs[e->refs];
	return v->refs + e->refs + 1;
}

static const struct entry *
find(const struct view *v, struct span name)
{
	const uint32_t n = v->head->n_slots;
	uint32_t at;

	if (n == 0 || name.len == 0)
		return NULL;
	for (at = slot_first(hash(v->head->key, name), n);
	    v->slots[at] != NIL; at = slot_next(at, n)) {
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
		uint32_t many;
		const uint32_t *ref = refs_of(&v, find(&v, s), &many);

		for (uint32_t i = 0; i < many; i++)
			if ((ref[i] >> 30 & (uint32_t)kind) != 0 &&
			    !visit(arg, ref[i] & RULE_BITS, kind))
				return;
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
		uint32_t many;
		const uint32_t *ref = refs_of(&v, e, &many);

		for (uint32_t k = 0; k < many; k++)
			visit(arg, span_of(v.text + e->text, e->len),
			    ref[k] >> 30, ref[k] & RULE_BITS);
	}
}

bool
names_holds(struct span image, struct span name, unsigned kinds,
    uint32_t rule)
{
	struct view v = view_of(image);
	uint32_t many;
	const uint32_t *ref = refs_of(&v, find(&v, name), &many);

	for (uint32_t k = 0; k < many; k++)
		if (ref[k] == (kinds << 30 | rule))
			return true;
	return false;
}

bool
names_has_under(struct span image, const struct host *name)
{
	struct view v = view_of(image);
	const struct entry *e = find(&v, span_of(name->name, name->len));

	return e != NULL && (e->flags & ENTRY_PARENT) != 0;
}
