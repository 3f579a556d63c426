/* SPDX-License-Identifier: Apache-2.0 */
#ifndef POLICY_CHUNKS_H
#define POLICY_CHUNKS_H

#include "policy/span.h"

/*
 * Bytes that are added at the end, never move, and are given back from the
 * front: many names can be handed from one table to the next without both
 * being whole in memory at once.
 *
 * A piece has a number that rises; it lies in one chunk, so some numbers
 * between two pieces may stand for nothing.
 */
#define CHUNKS_BYTES 65472u	/* of one: 64 KiB less what malloc adds */

struct chunks {
	uint8_t **chunk;
	uint32_t n, size;	/* of the table; chunks given back are NULL */
	uint32_t first;		/* the first that is still here */
	size_t end;		/* the number of the next byte */
};

/* Room for n bytes (at most CHUNKS_BYTES), and its number; NULL without
 * memory.  The rest of a chunk that is left for the next begins with a zero
 * byte. */
MUST_USE uint8_t *chunks_room(struct chunks *c, size_t n, size_t *at);

/* The bytes of that number; NULL when they were given back or never were. */
uint8_t *chunks_at(const struct chunks *c, size_t at);

/* The number of the first piece of the next chunk. */
size_t chunks_next(size_t at);

/* Everything before this number goes, as far as whole chunks do. */
void chunks_forget(struct chunks *c, size_t at);

/* All of it goes. */
void chunks_done(struct chunks *c);

#endif
