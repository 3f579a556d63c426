/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DNS_SHARE_H
#define DNS_SHARE_H

#include "policy/addr.h"
#include "policy/verdict.h"

/*
 * How much each client has open at a time, so that none takes the room of the
 * others.  An IPv6 client is its /64: it has as many addresses as it likes.
 * Bounded by what is open.
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

#endif
