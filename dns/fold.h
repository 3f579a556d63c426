/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DNS_FOLD_H
#define DNS_FOLD_H

#include <event2/event.h>

#include "ledger-client/emit.h"

/*
 * Equal refusals (client, cell, name, reason) as few records: the first is
 * handed over at once, those of the window after it are one record with
 * their number in `count`, at the window's end or when another refusal takes
 * the place.  None goes uncounted.
 */
#define FOLD_MS 10000

struct fold;

/* emit is borrowed; NULL when out of memory. */
MUST_USE struct fold *fold_new(struct event_base *base, struct emit *emit,
    unsigned window_ms);
/* Hands over what is still counted. */
void fold_free(struct fold *f);
/* The caller flushes. */
void fold_note(struct fold *f, const struct record *r);

#endif
