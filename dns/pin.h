/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DNS_PIN_H
#define DNS_PIN_H

#include "policy/addr.h"
#include "policy/host.h"
#include "policy/policy.h"
#include "policy/verdict.h"

#define PIN_ADDRS_MAX 32u	/* of one answer; further ones are not pinned */
#define PIN_NAMES_MAX 32u	/* live names reported for one address */
#define PIN_OF_NAME_MAX 128u	/* addresses of one name of one cell: where
				 * more live, the one that ends first goes */
#define PIN_DEFAULT 100000u
#define PIN_GRACE_MS 300000	/* a client may use an answer this much longer */

/*
 * Which names have which addresses now, for each cell: a table in shared
 * memory with one writer (the resolver) and many readers (engines).  A pin is
 * (cell, name, address) until a time; what one cell looked up neither opens
 * nor closes anything for another.  Readers take no lock: each pin has a
 * sequence number and is read again when it changed meanwhile.  Times are
 * CLOCK_MONOTONIC milliseconds.
 */
struct pins;

/*
 * One life of a cell: its id, and the value of its label "run" (empty without
 * one).  Another run is another cell, for which nothing is pinned yet.  Lives
 * are told apart by a keyed hash of 128 bits, not by their number in a policy,
 * which is another one after a reload.
 */
struct pin_cell {
	struct span id, run;
};

/* Of a cell of the policy; false when there is none.  A view, as the policy's
 * own are. */
MUST_USE bool pin_cell_of(const struct policy *p, uint32_t cell,
    struct pin_cell *out);
struct span pin_run(const struct cell_view *v);

/* ---- writer ---- */
/* New table for `n` pins: memfd in *fd (mapped writable here, then sealed
 * against other writers).  A name of more than 72 bytes takes two places,
 * one of more than 176 three.  0 or -errno. */
MUST_USE int pin_create(struct pins **out, unsigned n, int *fd);
/* Who is asked for names, in one number (resolve_source). */
void pin_set_source(struct pins *p, uint64_t source);
/* Copy what lives, and whose it is, from an older table (a restarted
 * resolver); before anything is pinned and before a reader opens `to`.
 * Nothing where that is of another source. */
void pin_copy(struct pins *to, const struct pins *from, int64_t now_ms);
/*
 * From here on these are the lives of cells: the pins of others end, and the
 * parts are those of so many cells (dns/share.h, share_split).  Without
 * memory, and until the first call, it is as for one cell and nothing ends.
 */
void pin_set_policy(struct pins *p, const struct policy *policy);
/* The pins of all cells end whose names it says so of. */
typedef bool pin_fits(void *arg, const struct host *name);
void pin_end_names(struct pins *p, pin_fits *fits, void *arg);
/*
 * The cell's name has these addresses until expires_ms (an address keeps the
 * later of both times).  REASON_NONE: all of them, or the first
 * PIN_ADDRS_MAX, are pinned; else none of them newly, and none for longer:
 * LIMIT_CELL when the cell's part is used up, LIMIT_TOTAL when the table is,
 * or where one would not be found in it.  What lives makes no room, other than
 * PIN_OF_NAME_MAX says.
 */
MUST_USE enum reason pin_add(struct pins *p, const struct pin_cell *cell,
    const struct host *name, const struct addr *addrs, size_t n,
    int64_t expires_ms, int64_t now_ms);

/* Places that are taken, of how many. */
void pin_used(const struct pins *p, uint32_t *used, uint32_t *all);

/* ---- readers ---- */
MUST_USE int pin_open(struct pins **out, int fd);
void pin_close(struct pins *p);
/* Live addresses of a name: those of its last answer first, in their order.
 * Returns how many. */
size_t pin_addrs(const struct pins *p, const struct pin_cell *cell,
    const struct host *name, int64_t now_ms,
    struct addr out[static PIN_ADDRS_MAX]);
bool pin_has(const struct pins *p, const struct pin_cell *cell,
    const struct host *name, const struct addr *a, int64_t now_ms);
/*
 * Live names of an address: all that the cell has, or none.  Returns how many;
 * PIN_NAMES_MAX + 1 when there are more than fit, or when the table changed so
 * that some may have been missed: the caller must then treat the address as
 * not pinned.
 */
size_t pin_names(const struct pins *p, const struct pin_cell *cell,
    const struct addr *a, int64_t now_ms,
    struct host out[static PIN_NAMES_MAX]);

#endif
