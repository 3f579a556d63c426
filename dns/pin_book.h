/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DNS_PIN_BOOK_H
#define DNS_PIN_BOOK_H

#include "dns/pin.h"

/*
 * All pins, one after another, with the cells of a policy that they are of:
 * for whoever looks at the table as a whole.  Nothing is held up by it, so
 * what comes and goes meanwhile is seen or is not.
 */
struct pin_book;

struct pin_row {
	uint32_t cell;		/* of the policy; CELL_NONE: of none */
	uint32_t places;	/* that it takes in the table */
	struct host name;
	struct addr addr;
	int64_t until_ms;	/* of CLOCK_MONOTONIC; ended ones stay for a
				 * while */
};

/* Both are borrowed.  NULL: no memory. */
MUST_USE struct pin_book *pin_book_new(const struct pins *p,
    const struct policy *policy);
void pin_book_free(struct pin_book *b);
/* The first pin at or behind place *at, which goes on behind it; false at the
 * end. */
MUST_USE bool pin_book_next(const struct pin_book *b, uint32_t *at,
    struct pin_row *out);
/* What a cell has for its own, and what it may have at most, in places. */
void pin_book_parts(const struct pin_book *b, uint32_t *own, uint32_t *most);

#endif
