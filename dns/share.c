/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/share.h"

#include <stdlib.h>
#include <string.h>

#define BUCKETS 1024u
#define NETWORK_BYTES 8u	/* of an IPv6 address: its /64 */

struct holder {
	struct holder *next;
	unsigned n;
	size_t len;
	uint8_t who[];
};

struct share {
	unsigned max;
	struct share_split split;
	struct holder *buckets[BUCKETS];
};

/* ---- split ---- */

void
share_split_set(struct share_split *s, uint32_t all, uint32_t cells)
{
	s->all = all;
	s->cells = cells > 0 ? cells : 1;
	s->floor = all / 2 / s->cells;
	s->over = 0;
}

static uint32_t
above(const struct share_split *s, uint32_t held)
{
	return held > s->floor ? held - s->floor : 0;
}

enum reason
share_split_fits(const struct share_split *s, uint32_t held, uint32_t more)
{
	uint64_t common = s->all - (uint64_t)s->floor * s->cells;
	uint64_t over = (uint64_t)s->over - above(s, held) +
	    above(s, held + more);

	if (above(s, held + more) == 0 || over <= common)
		return REASON_NONE;
	return s->cells > 1 ? REASON_LIMIT_CELL : REASON_LIMIT_TOTAL;
}

void
share_split_move(struct share_split *s, uint32_t from, uint32_t to)
{
	s->over += above(s, to) - above(s, from);
}

/* ---- holders ---- */

static struct addr
whose(const struct addr *client)
{
	struct addr a = *client;

	if (!addr_is_v4(client))
		memset(a.b + NETWORK_BYTES, 0, sizeof(a.b) - NETWORK_BYTES);
	return a;
}

/* Where its holder is linked, or would be. */
static struct holder **
place(struct share *s, struct span who)
{
	struct holder **p;
	uint32_t h = 2166136261u;

	for (size_t i = 0; i < who.len; i++)
		h = (h ^ who.data[i]) * 16777619u;
	for (p = &s->buckets[h % BUCKETS]; *p != NULL; p = &(*p)->next)
		if (span_eq(span_of((*p)->who, (*p)->len), who))
			break;
	return p;
}

/* The holder at its place, made where there is none; NULL without memory. */
static struct holder *
holder_at(struct holder **p, struct span who)
{
	struct holder *h = *p;

	if (h != NULL)
		return h;
	h = calloc(1, sizeof(*h) + who.len);
	if (h == NULL)
		return NULL;
	h->len = who.len;
	if (who.len > 0)
		memcpy(h->who, who.data, who.len);
	*p = h;
	return h;
}

/* What it holds after one less; it is forgotten with the last. */
static unsigned
give(struct holder **p)
{
	struct holder *h = *p;

	if (--h->n > 0)
		return h->n;
	*p = h->next;
	free(h);
	return 0;
}

struct share *
share_new(unsigned max)
{
	struct share *s = calloc(1, sizeof(*s));

	if (s != NULL)
		s->max = max;
	return s;
}

void
share_free(struct share *s)
{
	for (unsigned i = 0; s != NULL && i < BUCKETS; i++)
		while (s->buckets[i] != NULL) {
			struct holder *h = s->buckets[i];

			s->buckets[i] = h->next;
			free(h);
		}
	free(s);
}

enum reason
share_take(struct share *s, const struct addr *client)
{
	struct addr a = whose(client);
	struct span who = span_of(a.b, sizeof(a.b));
	struct holder **p = place(s, who), *h;

	if ((*p != NULL ? (*p)->n : 0) >= s->max)
		return REASON_LIMIT_CLIENT;
	h = holder_at(p, who);
	if (h == NULL)
		return REASON_LIMIT_MEMORY;
	h->n++;
	return REASON_NONE;
}

unsigned
share_of(const struct share *s, const struct addr *client)
{
	struct addr a = whose(client);
	struct holder *const *p = place((struct share *)(uintptr_t)s,
	    span_of(a.b, sizeof(a.b)));

	return *p != NULL ? (*p)->n : 0;
}

void
share_give(struct share *s, const struct addr *client)
{
	struct addr a = whose(client);
	struct holder **p = place(s, span_of(a.b, sizeof(a.b)));

	if (*p != NULL)
		(void)give(p);
}

/* ---- cells ---- */

void
share_cells(struct share *s, uint32_t all, uint32_t cells)
{
	share_split_set(&s->split, all, cells);
	for (unsigned i = 0; i < BUCKETS; i++)
		for (struct holder *h = s->buckets[i]; h != NULL; h = h->next)
			share_split_move(&s->split, 0, h->n);
}

enum reason
share_take_cell(struct share *s, struct span id)
{
	struct holder **p = place(s, id), *h = *p;
	enum reason why = share_split_fits(&s->split, h ? h->n : 0, 1);

	if (why != REASON_NONE)
		return why;
	h = holder_at(p, id);
	if (h == NULL)
		return REASON_LIMIT_MEMORY;
	share_split_move(&s->split, h->n, h->n + 1);
	h->n++;
	return REASON_NONE;
}

void
share_give_cell(struct share *s, struct span id)
{
	struct holder **p = place(s, id);
	unsigned left;

	if (*p == NULL)
		return;
	left = give(p);
	share_split_move(&s->split, left + 1, left);
}
