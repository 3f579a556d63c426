/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PROXY_BODY_H
#define PROXY_BODY_H

#include "proxy/conn.h"
#include "proxy/http.h"

/*
 * The body of one HTTP message on its way from one side to the other: what
 * belongs to it passes, and nothing that follows.  `left`, `chunks` and `done`
 * stand in the state of the exchange.
 */
struct body {
	enum http_body kind;		/* not HTTP_BODY_NONE */
	uint64_t *left;			/* of HTTP_BODY_LENGTH */
	struct http_chunks *chunks;	/* of HTTP_BODY_CHUNKED */
	bool *done;			/* its last byte was seen; never of
					 * HTTP_BODY_CLOSE */
	bool bare;			/* it goes on without its chunks */
};

/* What waits in `from` goes to `out` as far as it is body: 1, -EBADMSG when
 * it was no body, -ENOMEM. */
MUST_USE ssize_t body_move(const struct body *b, struct buf *from,
    struct buf *out);

/*
 * The fast way, when nothing waits: through the buffer that all connections
 * share.  The number received, 0 at the end, -errno; -EBADMSG when it was no
 * body.  What the peer does not take at once waits in to->out, what followed
 * the body in `rest`.
 */
MUST_USE ssize_t body_pass(const struct body *b, struct proxy *p,
    struct side *from, struct side *to, struct buf *rest);

#endif
