/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DNS_RESOLVE_H
#define DNS_RESOLVE_H

#include <event2/event.h>

#include "dns/cache.h"

/*
 * c-ares on the event base: A and AAAA of a name from the pinned resolvers,
 * and from nowhere else (lookups "b", no hosts file, no search list).
 * Answers go through the cache; one question is asked upstream once however
 * many wait for it.
 */
struct resolve;

struct resolve_settings {
	struct endpoint servers[8];
	size_t n_servers;
	unsigned timeout_ms;	/* one try; default 2000 */
	unsigned tries;		/* default 2 */
	bool ipv4, ipv6;	/* families that upstream connections may use */
	unsigned pending_max;	/* open questions; default 4096 */
};

typedef void resolve_done(void *arg, const struct cache_answer *answer);
struct resolve_call;

MUST_USE int resolve_new(struct resolve **out, struct event_base *base,
    const struct resolve_settings *s, struct cache *cache);
void resolve_free(struct resolve *r);
/* Other servers after a reload: the cache is emptied, open questions are put
 * to them, and no answer of those before is given or kept from here on.
 * Nothing happens when they are the same. */
MUST_USE int resolve_reconfigure(struct resolve *r,
    const struct resolve_settings *s);

/* What is known without asking; false when it must be asked for. */
MUST_USE bool resolve_cached(struct resolve *r, const struct host *name,
    struct cache_answer *out);

/*
 * Both families (those enabled) merged: A first.  done is called once and
 * never before this returns.  NULL: *why is LIMIT_TOTAL (full) or
 * LIMIT_MEMORY.
 */
MUST_USE struct resolve_call *resolve_start(struct resolve *r,
    const struct host *name, resolve_done *done, void *arg,
    enum reason *why);
void resolve_cancel(struct resolve_call *c);

#endif
