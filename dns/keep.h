/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DNS_KEEP_H
#define DNS_KEEP_H

#include "dns/pin.h"

/*
 * Names that stay pinned while their cell lives, whether its clients ask
 * again or not: which they are, and when each is to be asked for.  No more
 * than a cell's part of KEEP_MAX (dns/share.h); what finds no place lives as
 * other pins do.  Times are CLOCK_MONOTONIC milliseconds.
 */
struct keep;

#define KEEP_MAX 4096u
#define KEEP_MIN_MS 5000u	/* between two questions for one name */
#define KEEP_RETRY_MAX_MS 60000u	/* and at most, while they fail */
#define KEEP_JITTER_MAX_MS 30000u	/* of a question; well below the grace
					 * of a pin */

struct keep_name {
	char cell[POLICY_ID_BYTES], run[POLICY_ID_BYTES];
	struct host name;
};

/* min_ms 0: KEEP_MIN_MS.  NULL: no memory. */
MUST_USE struct keep *keep_new(unsigned min_ms);
void keep_free(struct keep *k);
/* So many cells share the places; those whose names go are dropped: `stays`
 * is asked for each. */
void keep_policy(struct keep *k, uint32_t cells,
    bool (*stays)(void *arg, const struct keep_name *n), void *arg);
/* Those that `fits` says so of are due now. */
void keep_hurry(struct keep *k, pin_fits *fits, void *arg, int64_t now_ms);
/*
 * The cell's name has an answer that lasts ttl_s: it is due when that is
 * over, and some jitter.  `whole`: the answer is of both families; another one
 * makes it due earlier only.  False: there is no place for it.
 */
bool keep_note(struct keep *k, const struct pin_cell *cell,
    const struct host *name, uint32_t ttl_s, bool whole, int64_t now_ms);
/* A name that is due, which is due again, later each time, until an answer is
 * noted; false when none is. */
MUST_USE bool keep_due(struct keep *k, int64_t now_ms, struct keep_name *out);
size_t keep_count(const struct keep *k);

#endif
