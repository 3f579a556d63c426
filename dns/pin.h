/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DNS_PIN_H
#define DNS_PIN_H

#include "policy/addr.h"
#include "policy/host.h"

#define PIN_ADDRS_MAX 32u	/* of one name; further ones are not pinned */
#define PIN_NAMES_MAX 32u	/* live names reported for one address */
#define PIN_NAMES_DEFAULT 65536u
#define PIN_LOOKS 64u
#define PIN_CELLS 1024u
#define PIN_GRACE_MS 30000	/* a client may use an answer this much longer */

/*
 * Which names have which addresses now: a table in shared memory with one
 * writer (the resolver) and many readers (engines).  Readers take no lock:
 * each entry has a sequence number and is read again when it changed
 * meanwhile.  Times are CLOCK_MONOTONIC milliseconds.
 */
struct pins;

/* ---- writer ---- */
/* New table for `names` names of three addresses each, or fewer with more:
 * memfd in *fd (mapped writable here, then sealed against other writers).
 * 0 or -errno. */
MUST_USE int pin_create(struct pins **out, unsigned names, int *fd);
/* Copy what lives, and whose it is, from an older table (a restarted
 * resolver). */
void pin_copy(struct pins *to, const struct pins *from, int64_t now_ms);
/*
 * The name has these addresses until expires_ms: merged with what it has
 * (an address keeps the later of both times).  False when nothing could be
 * pinned.
 *
 * `cell` is the id of the cell that asked.  When the table is full, the cell
 * that holds the most gives way: of its PIN_LOOKS names that were asked for
 * the longest time ago, the one that expires first.  So a cell that holds
 * less than another loses nothing to it.  A name of several cells counts for
 * the one that held less when it asked.  (Cells are told apart by a hash of
 * PIN_CELLS values; two that share one share what they hold.)
 *
 * A name that gave way is found no more, also by a connection that is open:
 * whoever needs it asks the resolver, which pins it again.
 */
bool pin_add(struct pins *p, struct span cell,
    const struct host *name, const struct addr *addrs, size_t n,
    int64_t expires_ms, int64_t now_ms);

/* ---- readers ---- */
MUST_USE int pin_open(struct pins **out, int fd);
void pin_close(struct pins *p);
/* Live addresses of a name, in the order pinned; returns how many. */
size_t pin_addrs(const struct pins *p, const struct host *name,
    int64_t now_ms, struct addr out[static PIN_ADDRS_MAX]);
bool pin_has(const struct pins *p, const struct host *name,
    const struct addr *a, int64_t now_ms);
/*
 * Live names of an address: all, or none.  Returns how many; PIN_NAMES_MAX + 1
 * when there are more than fit, or when the table changed so that some may
 * have been missed: the caller must then treat the address as not pinned.
 */
size_t pin_names(const struct pins *p, const struct addr *a, int64_t now_ms,
    struct host out[static PIN_NAMES_MAX]);

#endif
