/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/open_table.h"

#include <stdlib.h>

#define BUCKETS 4096u

/* Cell and labels of a decision; few differ, so they are kept once. */
struct owner {
	struct owner *next;
	size_t users;		/* items that point here */
	size_t cell_len, labels_len;
	char text[];		/* cell, then labels */
};

/* What an end needs to be found and attributed; the rest stands in the
 * decision with the same connection number.  Small: there is one for each
 * open connection of the daemon. */
struct item {
	struct item *next;
	uint64_t connection, request;
	struct owner *owner;	/* NULL: not known */
	struct endpoint client;
	uint8_t via;
};

struct open_table {
	struct item *buckets[BUCKETS];
	struct owner *owners;	/* at most POLICY_CELLS_MAX: a taken producer
				 * may make up as many as it likes */
	size_t n, n_owners;
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
leave(struct open_table *t, struct owner *o)
{
	struct owner **p = &t->owners;

	if (o == NULL || --o->users > 0)
		return;
	while (*p != o)
		p = &(*p)->next;
	*p = o->next;
	free(o);
	t->n_owners--;
}

static void
drop(struct open_table *t, struct item **p)
{
	struct item *it = *p;

	*p = it->next;
	leave(t, it->owner);
	free(it);
	t->n--;
}

static struct owner *
owner_of(struct open_table *t, const struct record *r)
{
	struct span cell = record_get(r, TEXT_CELL);
	struct span labels = record_get(r, TEXT_LABELS);
	struct owner *o;

	for (o = t->owners; o != NULL; o = o->next)
		if (span_eq(span_of(o->text, o->cell_len), cell) &&
		    span_eq(span_of(o->text + o->cell_len, o->labels_len),
		    labels)) {
			o->users++;
			return o;
		}
	if (t->n_owners == POLICY_CELLS_MAX)
		return NULL;
	o = malloc(sizeof(*o) + cell.len + labels.len);
	if (o == NULL)
		return NULL;
	o->users = 1;
	o->cell_len = cell.len;
	o->labels_len = labels.len;
	if (cell.len > 0)
		memcpy(o->text, cell.data, cell.len);
	if (labels.len > 0)
		memcpy(o->text + cell.len, labels.data, labels.len);
	o->next = t->owners;
	t->owners = o;
	t->n_owners++;
	return o;
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
	it = malloc(sizeof(*it));
	if (it == NULL)
		return;
	*it = (struct item){ .next = *p, .connection = r->connection,
	    .request = r->request, .owner = owner_of(t, r), .client = r->client,
	    .via = r->via };
	*p = it;
	t->n++;
}

static void
fill(struct record *end, const struct item *it)
{
	const struct owner *o = it->owner;

	record_init(end, RECORD_END);
	end->connection = it->connection;
	end->request = it->request;
	end->client = it->client;
	end->via = it->via;
	end->verdict = end->would = VERDICT_ALLOW;
	if (o == NULL)
		return;
	record_set(end, TEXT_CELL, span_of(o->text, o->cell_len));
	record_set(end, TEXT_LABELS, span_of(o->text + o->cell_len,
	    o->labels_len));
}

void
open_table_end(struct open_table *t, uint64_t before,
    void (*each)(void *arg, struct record *end), void *arg)
{
	struct record end;

	for (unsigned i = 0; i < BUCKETS; i++)
		for (struct item **p = &t->buckets[i]; *p != NULL;) {
			if ((*p)->connection >= before) {
				p = &(*p)->next;
				continue;
			}
			if (each != NULL) {
				fill(&end, *p);
				each(arg, &end);
			}
			drop(t, p);
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
	open_table_end(t, UINT64_MAX, NULL, NULL);
	free(t);
}
