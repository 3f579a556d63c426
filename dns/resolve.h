/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DNS_RESOLVE_H
#define DNS_RESOLVE_H

#include "dns/cache.h"
#include "dns/upstream.h"
#include "ledger-client/count.h"

/*
 * What a name has of one type: from the cache, or from the pinned servers of
 * the zone that it lies in, and from nowhere else (no hosts file, no search
 * list).  One question is asked upstream once however many wait for it; an
 * alias that the servers do not follow is followed here, but into no other
 * zone than that of the name.
 */
struct resolve;

#define RESOLVE_ZONES_MAX 16u
/* Resolvers follow aliases themselves.  Where one leaves them open, a
 * question whose tries have come to this many goes no further: SERVFAIL. */
#define RESOLVE_TRIES_MAX 8u

struct resolve_zone {
	struct host suffix;		/* len 0: every name */
	struct upstream_settings servers;
};

struct resolve_settings {
	struct resolve_zone zones[RESOLVE_ZONES_MAX];	/* [0]: every name */
	size_t n_zones;			/* 1 at least */
	unsigned pending_max;		/* open questions; default 4096 */
	struct counts *counts;		/* borrowed; NULL: not counted */
};

/* An answer and where it is from.  records holds during the call only, or
 * until the next call into resolve where resolve_cached gave it. */
struct resolve_answer {
	const struct answer *records;
	uint32_t ttl_s;			/* left */
	bool cached;
	struct endpoint server;		/* who said so; port 0: nobody */
	unsigned tries;
	uint64_t us;			/* upstream */
};

typedef void resolve_done(void *arg, const struct resolve_answer *a);
struct resolve_call;

/* 0, -EINVAL or -ENOMEM. */
MUST_USE int resolve_new(struct resolve **out, struct event_base *base,
    const struct resolve_settings *s, struct cache *cache);
void resolve_free(struct resolve *r);
/* Other servers after a reload: the cache is emptied, open questions are put
 * to them, and no answer of those before is given or kept from here on.
 * Nothing happens when they are the same. */
MUST_USE int resolve_reconfigure(struct resolve *r,
    const struct resolve_settings *s);

/* By these settings: may what is known of the name be from a server that is
 * not asked for it any more?  Before resolve_reconfigure. */
MUST_USE bool resolve_forsakes(const struct resolve *r,
    const struct resolve_settings *s, const struct host *name);

/* Who is asked for what, in one number: another one for other servers. */
uint64_t resolve_source(const struct resolve_settings *s);

/* What is known without asking; false when it must be asked for. */
MUST_USE bool resolve_cached(struct resolve *r, const struct host *name,
    uint16_t type, struct resolve_answer *out);

/*
 * For the cell of this id; done is called once and never before this returns.
 * NULL: *why is LIMIT_TOTAL (full) or LIMIT_MEMORY.  How much each cell may
 * ask at a time is the caller's to see to (dns/share.h).
 */
MUST_USE struct resolve_call *resolve_start(struct resolve *r,
    struct span cell, const struct host *name, uint16_t type,
    resolve_done *done, void *arg, enum reason *why);
/* done will not be called. */
void resolve_cancel(struct resolve_call *c);

/* How the servers of a zone do (0 to RESOLVE_ZONES_MAX - 1), and its suffix.
 * Returns how many there are; 0: there is no such zone. */
size_t resolve_states(const struct resolve *r, size_t zone,
    struct host *suffix, struct upstream_state out[static UPSTREAM_SERVERS_MAX]);
unsigned resolve_pending(const struct resolve *r);

#endif
