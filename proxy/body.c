/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/body.h"

#include <errno.h>

/* Of the bytes `used` belong to the body, and those in front, `pass` of them,
 * go on. */
struct walked {
	size_t used, pass;
};

/* False: what comes is no body. */
static bool
walk_chunks(const struct body *b, uint8_t *data, size_t len,
    struct walked *out)
{
	enum parse p;

	if (b->bare) {
		p = http_chunks_strip(b->chunks, data, len, &out->used,
		    &out->pass);
	} else {
		p = http_chunks_feed(b->chunks, span_of(data, len),
		    &out->used);
		out->pass = out->used;
	}
	*b->done = p == PARSE_DONE;
	return p != PARSE_BAD;
}

static bool
walk(const struct body *b, uint8_t *data, size_t len, struct walked *out)
{
	if (b->kind == HTTP_BODY_CHUNKED)
		return walk_chunks(b, data, len, out);
	if (b->kind == HTTP_BODY_LENGTH) {
		if (len > *b->left)
			len = (size_t)*b->left;
		*b->left -= len;
		*b->done = *b->left == 0;
	}
	out->used = out->pass = len;
	return true;
}

ssize_t
body_move(const struct body *b, struct buf *from, struct buf *out)
{
	uint8_t *data = from->data + from->at;
	struct walked got;

	if (!walk(b, data, buf_left(from), &got))
		return -EBADMSG;
	if (buf_put(out, span_of(data, got.pass)) < 0)
		return -ENOMEM;
	buf_take(from, got.used);
	return 1;
}

ssize_t
body_pass(const struct body *b, struct proxy *p, struct side *from,
    struct side *to, struct buf *rest)
{
	struct walked got;
	ssize_t n, sent;

	n = side_recv(from, p->buffer, p->limits.copy_buffer_bytes);
	if (n <= 0)
		return n;
	if (!walk(b, p->buffer, (size_t)n, &got))
		return -EBADMSG;
	sent = got.pass > 0 ? side_send(to, p->buffer, got.pass, false) : 0;
	if (sent < 0)
		sent = 0;	/* the next flush tells what is wrong */
	to->sent += (uint64_t)sent;
	if (buf_put(&to->out, span_of(p->buffer + sent,
	    got.pass - (size_t)sent)) < 0 ||
	    buf_put(rest, span_of(p->buffer + got.used,
	    (size_t)n - got.used)) < 0)
		return -ENOMEM;
	return n;
}
