/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DNS_SHARE_H
#define DNS_SHARE_H

#include "policy/addr.h"
#include "policy/span.h"
#include "policy/verdict.h"

/*
 * How cells share a number of places: half of them is divided equally, and is
 * nobody else's; the other half is common, for whoever needs more.  So an only
 * cell may hold everything, and none can take the part of another.
 */
struct share_split {
	uint32_t all, cells;
	uint32_t floor;		/* each cell's own */
	uint32_t over;		/* what all hold above their own */
};

/* Nothing is held yet; `cells` 0 is taken for 1. */
void share_split_set(struct share_split *s, uint32_t all, uint32_t cells);
/* One that holds `held` may have `more`: REASON_NONE, LIMIT_CELL where its
 * part and the common one are used up, LIMIT_TOTAL where it is the only
 * cell.  Changes nothing. */
enum reason share_split_fits(const struct share_split *s, uint32_t held,
    uint32_t more);
/* It holds `to` now, and held `from`. */
void share_split_move(struct share_split *s, uint32_t from, uint32_t to);

/*
 * How much each client, or cell, has open at a time, so that none takes the
 * room of the others.  An IPv6 client is its /64: it has as many addresses as
 * it likes.  Bounded by what is open.
 */
struct share;

/* `max` for each client; NULL when out of memory. */
MUST_USE struct share *share_new(unsigned max);
void share_free(struct share *s);
/* One more: REASON_NONE, LIMIT_CLIENT at the client's bound, LIMIT_MEMORY. */
MUST_USE enum reason share_take(struct share *s, const struct addr *client);
/* How many it has open. */
unsigned share_of(const struct share *s, const struct addr *client);
/* Once for each that was taken. */
void share_give(struct share *s, const struct addr *client);

/* The same of cells, by id, with a split of `all` places instead of a bound
 * for each: how many cells there are now. */
void share_cells(struct share *s, uint32_t all, uint32_t cells);
/* One more: REASON_NONE, as share_split_fits says, or LIMIT_MEMORY. */
MUST_USE enum reason share_take_cell(struct share *s, struct span id);
void share_give_cell(struct share *s, struct span id);

#endif
