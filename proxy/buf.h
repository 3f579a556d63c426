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
/* Receive once, so that at most `max` bytes wait: the number, 0 at the end of
 * the stream, -EAGAIN, -ENOBUFS when full, or another -errno. */
ssize_t buf_recv(struct buf *b, int fd, size_t max);
/* Send what waits: 0 all is gone, -EAGAIN, or another -errno.  *sent grows. */
int buf_send(struct buf *b, int fd, uint64_t *sent);

#endif
