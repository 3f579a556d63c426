/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/pin_book.h"

#include <stdlib.h>
#include <string.h>

#include "dns/pin_table.h"

struct line {
	struct pin_life life;
	uint32_t cell;
};

struct pin_book {
	const struct pins *pins;
	uint32_t n_cells, n;
	struct line lines[];	/* by life */
};

static int
compare(const void *a, const void *b)
{
	return memcmp(&((const struct line *)a)->life,
	    &((const struct line *)b)->life, sizeof(struct pin_life));
}

struct pin_book *
pin_book_new(const struct pins *p, const struct policy *policy)
{
	uint32_t n = policy == NULL ? 0 : (uint32_t)policy_cells(policy);
	struct pin_book *b = malloc(sizeof(*b) + n * sizeof(b->lines[0]));
	struct pin_cell cell;

	if (b == NULL)
		return NULL;
	b->pins = p;
	b->n_cells = n;
	b->n = 0;
	for (uint32_t i = 0; i < n; i++) {
		if (!pin_cell_of(policy, i, &cell))
			continue;
		pin_life_of(p, &cell, &b->lines[b->n].life);
		b->lines[b->n++].cell = i;
	}
	qsort(b->lines, b->n, sizeof(b->lines[0]), compare);
	return b;
}

void
pin_book_free(struct pin_book *b)
{
	free(b);
}

bool
pin_book_next(const struct pin_book *b, uint32_t *at, struct pin_row *out)
{
	struct line key = { .cell = CELL_NONE };
	const struct line *found;
	struct pin_seen e;

	while (*at < b->pins->head.n_entries) {
		uint32_t i = (*at)++;

		if (b->pins->entries[i].len == 0 ||
		    !pin_read(b->pins, i, &e) || e.len == 0 ||
		    host_parse(&out->name, span_of(e.name, e.len)) !=
		    REASON_NONE)
			continue;
		key.life = e.life;
		found = bsearch(&key, b->lines, b->n, sizeof(key), compare);
		out->cell = found != NULL ? found->cell : CELL_NONE;
		out->places = pin_places(e.len);
		out->addr = e.addr;
		out->until_ms = e.until;
		return true;
	}
	return false;
}

void
pin_book_parts(const struct pin_book *b, uint32_t *own, uint32_t *most)
{
	struct share_split s;

	share_split_set(&s, b->pins->head.n_entries, b->n_cells);
	*own = s.floor;
	*most = s.all - s.floor * (s.cells - 1);
}
