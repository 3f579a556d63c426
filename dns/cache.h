/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DNS_CACHE_H
#define DNS_CACHE_H

#include "dns/answer.h"
#include "policy/decide.h"

#define CACHE_NEGATIVE_MAX_S 3600u	/* NXDOMAIN and NODATA, RFC 2308 5 */
#define CACHE_FAILURE_S 2u		/* SERVFAIL, time-outs, RFC 9520 */

/*
 * Answers by name and type, for as long as they say, for every cell; bounded
 * in bytes: of the cell whose questions brought the most, what was not asked
 * for the longest makes room.  An answer that may not be kept (TTL 0) is not.
 */
struct cache;

/*
 * What whoever asks has judged of an answer; the cache keeps it as long as the
 * answer and knows nothing of it.  epoch 0: nothing yet.
 */
struct cache_note {
	uint64_t epoch;		/* of what it was judged by */
	int64_t second;		/* since the epoch */
	uint32_t cell;
	struct decision flow;
};

MUST_USE struct cache *cache_new(size_t bytes);
void cache_free(struct cache *c);
/* Valid until the next put or flush; *ttl_s is what is left of it.  NULL when
 * nothing live is known. */
MUST_USE const struct answer *cache_get(struct cache *c,
    const struct host *name, uint16_t type, int64_t now_ms, uint32_t *ttl_s);
/* That of an answer which cache_get gave, and valid as long. */
struct cache_note *cache_note(const struct answer *a);
/* How long it may be kept, which is also what everybody is told. */
uint32_t cache_live_s(const struct answer *a);
/* Copied; cell is the id of the one that asked.  Where there is no memory for
 * it, it is not kept. */
void cache_put(struct cache *c, struct span cell, const struct host *name,
    const struct answer *a, int64_t now_ms);
/* All of it, or what is known of one name; returns how many answers went. */
size_t cache_flush(struct cache *c, const struct host *name);
size_t cache_bytes(const struct cache *c);
size_t cache_limit(const struct cache *c);	/* bytes */
size_t cache_answers(const struct cache *c);

#endif
