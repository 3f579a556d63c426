/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PROXY_BUF_H
#define PROXY_BUF_H

#include <sys/types.h>

#include "policy/span.h"

/*
 * Bytes that wait in order: data[at] to data[len].  Zero is an empty one.
 * Nothing is held while it is empty, so an idle connection costs no buffer.
 */
struct buf {
	uint8_t *data;
	uint32_t at, len, cap;
};

static inline size_t
buf_left(const struct buf *b)
{
	return b->len - b->at;
}

static inline struct span
buf_span(const struct buf *b)
{
	return span_of(b->data + b->at, b->len - b->at);
}

/* Copy bytes to the end.  0 or -ENOMEM. */
MUST_USE int buf_put(struct buf *b, struct span bytes);
/* Take n bytes off the front; frees when nothing is left. */
void buf_take(struct buf *b, size_t n);
void buf_free(struct buf *b);
/* Hold no more than what waits, for a long wait of a few bytes. */
void buf_fit(struct buf *b);
/* Room for at most `max` waiting bytes, at *at: how much (not 0), -ENOBUFS
 * when that many wait already, -ENOMEM.  buf_grew must follow, with how many
 * were put there. */
MUST_USE ssize_t buf_room(struct buf *b, size_t max, uint8_t **at);
void buf_grew(struct buf *b, size_t n);

#endif
