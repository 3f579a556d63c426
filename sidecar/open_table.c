/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/open_table.h"

#include <stdlib.h>

#define BUCKETS 4096u

/* A decision, as many bytes as travelled. */
struct item {
	struct item *next;
	uint64_t connection;
	_Alignas(8) uint8_t record[];
};

struct open_table {
	struct item *buckets[BUCKETS];
	size_t n;
};

struct open_table *
open_table_new(void)
{
	return calloc(1, sizeof(struct open_table));
}

static struct item **
find(struct open_table *t, uint64_t connection)
{
	struct item **p = &t->buckets[connection % BUCKETS];

	while (*p != NULL && (*p)->connection != connection)
		p = &(*p)->next;
	return p;
}

static void
drop(struct open_table *t, struct item **p)
{
	struct item *it = *p;

	*p = it->next;
	free(it);
	t->n--;
}

void
open_table_see(struct open_table *t, const struct record *r)
{
	struct item **p, *it;

	if (r->connection == 0 ||
	    (r->kind != RECORD_DECISION && r->kind != RECORD_END))
		return;
	p = find(t, r->connection);
	/* a later request of the same connection takes the place */
	if (*p != NULL)
		drop(t, p);
	if (r->kind == RECORD_END || r->verdict != VERDICT_ALLOW ||
	    t->n >= OPEN_TABLE_MAX)
		return;
	it = malloc(sizeof(*it) + record_size(r));
	if (it == NULL)
		return;
	it->connection = r->connection;
	it->next = *p;
	memcpy(it->record, r, record_size(r));
	*p = it;
	t->n++;
}

void
open_table_end(struct open_table *t,
    void (*each)(void *arg, const struct record *decision), void *arg)
{
	for (unsigned i = 0; i < BUCKETS; i++)
		while (t->buckets[i] != NULL) {
			struct record r;

			memset(&r, 0, sizeof(r));
			memcpy(&r, t->buckets[i]->record, record_size(
			    (const void *)t->buckets[i]->record));
			if (each != NULL)
				each(arg, &r);
			drop(t, &t->buckets[i]);
		}
}

size_t
open_table_count(const struct open_table *t)
{
	return t->n;
}

void
open_table_free(struct open_table *t)
{
	if (t == NULL)
		return;
	open_table_end(t, NULL, NULL);
	free(t);
}
