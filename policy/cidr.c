/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/cidr.h"

#include <errno.h>
#include <stdlib.h>

struct entry {
	struct addr base;
	uint32_t rule;
	uint32_t bits;
};

/* In the image: this head, then the entries; `first` has for each length the
 * index of its first entry, so first[b] .. first[b + 1] are those of b. */
struct head {
	uint32_t n;
	uint32_t first[130];
	uint32_t zero;
};

struct cidr_builder {
	struct entry *entries;
	size_t n, size;
};

struct cidr_builder *
cidr_builder_new(void)
{
	return calloc(1, sizeof(struct cidr_builder));
}

void
cidr_builder_free(struct cidr_builder *b)
{
	if (b != NULL)
		free(b->entries);
	free(b);
}

int
cidr_add(struct cidr_builder *b, const struct prefix *p, uint32_t rule)
{
	if (b->n == b->size) {
		size_t size = b->size > 0 ? 2 * b->size : 64;
		struct entry *more = realloc(b->entries,
		    size * sizeof(*more));

		if (more == NULL)
			return -ENOMEM;
		b->entries = more;
		b->size = size;
	}
	b->entries[b->n++] = (struct entry){ .base = p->base, .rule = rule,
	    .bits = p->bits };
	return 0;
}

size_t
cidr_size(const struct cidr_builder *b)
{
	return (sizeof(struct head) + b->n * sizeof(struct entry) + 7) &
	    ~(size_t)7;
}

static int
by_length_and_base(const void *va, const void *vb)
{
	const struct entry *a = va, *b = vb;
	int c;

	if (a->bits != b->bits)
		return a->bits < b->bits ? -1 : 1;
	c = memcmp(a->base.b, b->base.b, sizeof(a->base.b));
	if (c != 0)
		return c;
	return a->rule < b->rule ? -1 : a->rule > b->rule;
}

void
cidr_write(struct cidr_builder *b, uint8_t *to)
{
	struct head head = { .n = (uint32_t)b->n };
	uint32_t at = 0;

	if (b->n > 0)
		qsort(b->entries, b->n, sizeof(b->entries[0]),
		    by_length_and_base);
	for (uint32_t bits = 0; bits < 130; bits++) {
		while (at < b->n && b->entries[at].bits < bits)
			at++;
		head.first[bits] = at;
	}
	memset(to, 0, cidr_size(b));
	memcpy(to, &head, sizeof(head));
	if (b->n > 0)
		memcpy(to + sizeof(head), b->entries,
		    b->n * sizeof(b->entries[0]));
}

static const struct head *
head_of(struct span image)
{
	return (const void *)image.data;
}

static const struct entry *
entries_of(struct span image)
{
	return (const void *)(image.data + sizeof(struct head));
}

bool
cidr_check(struct span image, uint32_t n_rules)
{
	const struct head *h = head_of(image);
	const struct entry *e;

	if (image.len < sizeof(*h) || ((uintptr_t)image.data & 7) != 0 ||
	    h->n > (image.len - sizeof(*h)) / sizeof(*e))
		return false;
	e = entries_of(image);
	for (unsigned b = 0; b < 129; b++)
		if (h->first[b] > h->first[b + 1])
			return false;
	if (h->first[0] != 0 || h->first[129] != h->n)
		return false;
	for (unsigned b = 0; b < 129; b++)
		for (uint32_t i = h->first[b]; i < h->first[b + 1]; i++)
			if (e[i].bits != b || e[i].rule >= n_rules ||
			    (i > h->first[b] && memcmp(e[i - 1].base.b,
			    e[i].base.b, sizeof(e[i].base.b)) > 0))
				return false;
	return true;
}

static struct addr
masked(const struct addr *a, unsigned bits)
{
	struct addr m = *a;

	for (unsigned i = 0; i < 16; i++) {
		unsigned left = bits > 8 * i ? bits - 8 * i : 0;

		if (left < 8)
			m.b[i] &= (uint8_t)(0xff00u >> left);
	}
	return m;
}

/* The first entry of [lo, hi) whose base is not below `base`. */
static uint32_t
lower_bound(const struct entry *e, uint32_t lo, uint32_t hi,
    const struct addr *base)
{
	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (memcmp(e[mid].base.b, base->b, sizeof(base->b)) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

void
cidr_visit(struct span image, const struct addr *a,
    bool (*visit)(void *arg, uint32_t rule), void *arg)
{
	const struct head *h = head_of(image);
	const struct entry *e = entries_of(image);

	for (unsigned bits = 129; bits-- > 0;) {
		uint32_t end = h->first[bits + 1];
		struct addr base;

		if (h->first[bits] == end)
			continue;
		base = masked(a, bits);
		for (uint32_t i = lower_bound(e, h->first[bits], end, &base);
		    i < end && addr_eq(&e[i].base, &base); i++)
			if (!visit(arg, e[i].rule))
				return;
	}
}
