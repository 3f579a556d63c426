/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/chunks.h"

#include <stdlib.h>

static bool
table_grow(struct chunks *c)
{
	uint32_t size = c->size == 0 ? 4 : 2 * c->size;
	uint8_t **grown;

	if (c->n < c->size)
		return true;
	grown = realloc(c->chunk, size * sizeof(*grown));
	if (grown == NULL)
		return false;
	c->chunk = grown;
	c->size = size;
	return true;
}

uint8_t *
chunks_room(struct chunks *c, size_t n, size_t *at)
{
	const size_t used = c->end % CHUNKS_BYTES;
	size_t start = c->end;

	if (n > CHUNKS_BYTES)
		return NULL;
	if (used != 0 && used + n > CHUNKS_BYTES) {
		*chunks_at(c, start) = 0;
		start = chunks_next(start);
	}
	if (start / CHUNKS_BYTES == c->n) {
		if (!table_grow(c))
			return NULL;
		c->chunk[c->n] = malloc(CHUNKS_BYTES);
		if (c->chunk[c->n] == NULL)
			return NULL;
		c->n++;
	}
	c->end = start + n;
	*at = start;
	return chunks_at(c, start);
}

uint8_t *
chunks_at(const struct chunks *c, size_t at)
{
	const size_t i = at / CHUNKS_BYTES;

	return i < c->n && c->chunk[i] != NULL ?
	    c->chunk[i] + at % CHUNKS_BYTES : NULL;
}

size_t
chunks_next(size_t at)
{
	return (at / CHUNKS_BYTES + 1) * CHUNKS_BYTES;
}

void
chunks_forget(struct chunks *c, size_t at)
{
	while (c->first < c->n && c->first < at / CHUNKS_BYTES) {
		free(c->chunk[c->first]);
		c->chunk[c->first++] = NULL;
	}
}

void
chunks_done(struct chunks *c)
{
	for (uint32_t i = c->first; i < c->n; i++)
		free(c->chunk[i]);
	free(c->chunk);
	memset(c, 0, sizeof(*c));
}
