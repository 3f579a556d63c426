/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LEDGER_CLIENT_FOLD_H
#define LEDGER_CLIENT_FOLD_H

#include <event2/event.h>

#include "ledger-client/emit.h"

/*
 * Equal questions (client, cell, name, type, verdict, reason, rule and
 * generation) as few records: the first is handed over at once, those of the
 * window after it are one record with their number in `count`, at the
 * window's end or when another question takes the place; there are 2048, in
 * sets of 8, and half of the ring is for what they are still to tell of
 * answers.  None goes uncounted.  The same serves for clients that the proxy turns away: where
 * they chose several destinations the later record has none.
 *
 * Refusals that differ are bounded too, for each cell and reason: beyond
 * FOLD_DISTINCT records of a window the rest of it is one record, with what
 * they have in common and their number; `detail` says so.  An answer, or what
 * else is allowed, is never folded into another.
 */
#define FOLD_MS 10000
#define FOLD_DISTINCT 128u
#define FOLD_DETAIL "what differs is left out, there were too many"

struct fold;

/* emit is borrowed; NULL when out of memory. */
MUST_USE struct fold *fold_new(struct event_base *base, struct emit *emit,
    unsigned window_ms);
/* Hands over what is still counted. */
void fold_free(struct fold *f);
/* A question that is refused anyway.  The caller flushes. */
void fold_note(struct fold *f, const struct record *r);

/* A refusal that has more records than this one, which its caller hands over:
 * true when it is one of too many, and was counted in their place.  The caller
 * flushes. */
MUST_USE bool fold_takes(struct fold *f, const struct record *r);

/* One that is answered only if its record is: the first of a window keeps
 * room in the ring for the record of the rest.  0, or -EAGAIN: then nothing
 * was counted, and the question is refused (REASON_LEDGER_UNAVAILABLE). */
MUST_USE int fold_decision(struct fold *f, const struct record *r);

#endif
