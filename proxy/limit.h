/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PROXY_LIMIT_H
#define PROXY_LIMIT_H

#include "policy/addr.h"
#include "policy/verdict.h"

/*
 * Open connections, in total and for each client address, over all engines:
 * a table in shared memory with one column for each engine.  A dead engine's
 * column is zeroed by the parent.
 */
struct limit;
#define LIMIT_ENGINES_MAX 64u

MUST_USE int limit_create(unsigned connections);	/* memfd or -errno */
MUST_USE int limit_open(struct limit **out, int fd, unsigned engine);
void limit_close(struct limit *l);

/* Take a place for a client: REASON_NONE, LIMIT_TOTAL or LIMIT_CLIENT.  An
 * IPv6 client counts by its /64. */
MUST_USE enum reason limit_take(struct limit *l, const struct addr *client,
    unsigned total_max, unsigned client_max);
void limit_give(struct limit *l, const struct addr *client);
unsigned limit_open_total(const struct limit *l);
void limit_forget(struct limit *l, unsigned engine);

#endif
