/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PROXY_LIMIT_H
#define PROXY_LIMIT_H

#include "policy/addr.h"
#include "policy/verdict.h"

/*
 * Open connections, in total, for each cell and for each client address, over
 * all engines.  Each has a table of its own in shared memory, which it alone
 * writes and all others read: one that was taken over can say that it holds
 * what it does not, so that others refuse, but gives back no place of theirs.
 * A dead engine's table is emptied by the parent.
 */
struct limit;
#define LIMIT_ENGINES_MAX 64u

struct limit_max {
	unsigned total, cell, client;
	unsigned apart;		/* of one client, while its cell is not known */
};

/* What one connection holds; zero: nothing. */
struct limit_place {
	uint32_t cell, client, apart;
	bool held;
};

/* A memfd for one engine's table, or -errno; the seed is the same for all: one
 * that no client knows. */
MUST_USE int limit_create(unsigned connections, uint64_t seed);
/* Map the one that this process writes.  0 or -errno; -EBADMSG: it is none. */
MUST_USE int limit_open(struct limit **out, int fd, unsigned engine);
/* Map another engine's too, to count with it and, with `forget`, to empty it
 * (otherwise a descriptor that can only be read does).  As limit_open. */
MUST_USE int limit_see(struct limit *l, int fd, unsigned engine, bool forget);
void limit_close(struct limit *l);

/* Take a place for a client of the cell with this id (empty: not known, or
 * not yet): REASON_NONE, LIMIT_TOTAL, LIMIT_CELL or LIMIT_CLIENT, and then
 * *place is zero.  An IPv6 client counts by its /64. */
MUST_USE enum reason limit_take(struct limit *l, const struct addr *client,
    struct span cell, const struct limit_max *max, struct limit_place *place);
/* Do both count as one client? */
bool limit_same_client(const struct addr *a, const struct addr *b);
/* The connection is another cell's from here on; LIMIT_CELL: it is not. */
MUST_USE enum reason limit_move(struct limit *l, struct limit_place *place,
    struct span cell, unsigned cell_max);
void limit_give(struct limit *l, struct limit_place *place);
unsigned limit_open_total(const struct limit *l);
/* That engine died (parent; mapped to be forgotten). */
void limit_forget(struct limit *l, unsigned engine);

#endif
