/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DNS_PIN_H
#define DNS_PIN_H

#include "policy/addr.h"
#include "policy/host.h"

#define PIN_ADDRS_MAX 32u	/* of one name; further ones are not pinned */
#define PIN_NAMES_MAX 32u	/* live names reported for one address */
#define PIN_NAMES_DEFAULT 65536u
#define PIN_GRACE_MS 30000	/* a client may use an answer this much longer */

/*
 * Which names have which addresses now: a table in shared memory with one
 * writer (the resolver) and many readers (engines).  Readers take no lock:
 * each entry has a sequence number and is read again when it changed
 * meanwhile.  Times are CLOCK_MONOTONIC milliseconds.
 */
struct pins;

/* ---- writer ---- */
/* New table for `names` names: memfd in *fd (mapped writable here, then
 * sealed against other writers).  0 or -errno. */
MUST_USE int pin_create(struct pins **out, unsigned names, int *fd);
/* Copy what lives from an older table (a restarted resolver). */
void pin_copy(struct pins *to, const struct pins *from, int64_t now_ms);
/*
 * The name has these addresses until expires_ms: merged with what it has
 * (an address keeps the later of both times).  When the table is full the
 * entry that expires first makes room.  False when nothing could be pinned.
 */
bool pin_add(struct pins *p, const struct host *name,
    const struct addr *addrs, size_t n, int64_t expires_ms, int64_t now_ms);

/* ---- readers ---- */
MUST_USE int pin_open(struct pins **out, int fd);
void pin_close(struct pins *p);
/* Live addresses of a name, in the order pinned; returns how many. */
size_t pin_addrs(const struct pins *p, const struct host *name,
    int64_t now_ms, struct addr out[static PIN_ADDRS_MAX]);
bool pin_has(const struct pins *p, const struct host *name,
    const struct addr *a, int64_t now_ms);
/*
 * Live names of an address.  Returns how many; PIN_NAMES_MAX + 1 when there
 * are more than fit: the caller must then treat the address as not pinned.
 */
size_t pin_names(const struct pins *p, const struct addr *a, int64_t now_ms,
    struct host out[static PIN_NAMES_MAX]);

#endif
