/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/share.h"

#include <stdlib.h>
#include <string.h>

#define BUCKETS 1024u
#define NETWORK_BYTES 8u	/* of an IPv6 address: its /64 */

struct holder {
	struct holder *next;
	struct addr client;
	unsigned n;
};

struct share {
	unsigned max;
	struct holder *buckets[BUCKETS];
};

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
place(struct share *s, const struct addr *a)
{
	struct holder **p;
	uint32_t h = 2166136261u;

	for (size_t i = 0; i < sizeof(a->b); i++)
		h = (h ^ a->b[i]) * 16777619u;
	for (p = &s->buckets[h % BUCKETS]; *p != NULL; p = &(*p)->next)
		if (addr_eq(&(*p)->client, a))
			break;
	return p;
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
	struct holder **p = place(s, &a);

	if ((*p != NULL ? (*p)->n : 0) >= s->max)
		return REASON_LIMIT_CLIENT;
	if (*p == NULL) {
		*p = calloc(1, sizeof(**p));
		if (*p == NULL)
			return REASON_LIMIT_MEMORY;
		(*p)->client = a;
	}
	(*p)->n++;
	return REASON_NONE;
}

unsigned
share_of(const struct share *s, const struct addr *client)
{
	struct addr a = whose(client);
	struct holder *const *p = place((struct share *)(uintptr_t)s, &a);

	return *p != NULL ? (*p)->n : 0;
}

void
share_give(struct share *s, const struct addr *client)
{
	struct addr a = whose(client);
	struct holder **p = place(s, &a), *h = *p;

	if (h == NULL || --h->n > 0)
		return;
	*p = h->next;
	free(h);
}
