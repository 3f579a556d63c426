/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DNS_CACHE_H
#define DNS_CACHE_H

#include "dns/pin.h"
#include "policy/verdict.h"

#define CACHE_TTL_MIN_S 1u
#define CACHE_TTL_MAX_S 3600u
#define CACHE_NEGATIVE_MAX_S 60u	/* NXDOMAIN and NODATA, RFC 2308 */
#define CACHE_FAILURE_S 2u		/* SERVFAIL, time-outs, RFC 9520 */

/* What is known of a name's addresses. */
struct cache_answer {
	enum reason reason;	/* NONE, DNS_NXDOMAIN, DNS_NODATA,
				 * DNS_SERVFAIL, DNS_TIMEOUT; what was not
				 * kept: LIMIT_MEMORY too */
	uint32_t ttl_s;		/* left */
	uint32_t n_addrs;
	struct addr addrs[PIN_ADDRS_MAX];	/* A first, then AAAA */
};

/* Bounded: the least recently used name makes room. */
struct cache;
MUST_USE struct cache *cache_new(size_t names);
void cache_free(struct cache *c);
/* False when nothing live is known. */
MUST_USE bool cache_get(struct cache *c, const struct host *name,
    int64_t now_ms, struct cache_answer *out);
/* ttl_s is clamped as above. */
void cache_put(struct cache *c, const struct host *name,
    const struct cache_answer *answer, int64_t now_ms);
void cache_flush(struct cache *c);

#endif
