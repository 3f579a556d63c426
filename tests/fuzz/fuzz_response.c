/* SPDX-License-Identifier: Apache-2.0 */
/* An answer of a server: whole and in pieces it means the same, and what is
 * passed on frames the same body. */
#include <stdlib.h>

#include "proxy/http.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct http_response rs, other;
static uint8_t out[HTTP_HEAD_MAX_BYTES + 1024];

static void
write_and_read(enum http_method method)
{
	enum http_then then = rs.status == 101 ? HTTP_THEN_UPGRADE :
	    rs.keep_alive ? HTTP_THEN_KEEP : HTTP_THEN_CLOSE;
	size_t n, scanned = 0;
	enum reason why;

	n = http_response_write(&rs, 0, then, out, rs.head_bytes + 512);
	if (n == 0 || n > rs.head_bytes + 512)
		abort();
	n = http_response_write(&rs, 1, then, out, rs.head_bytes + 512);
	if (n == 0 || n > rs.head_bytes + 512)
		abort();
	if (n > HTTP_HEAD_MAX_BYTES || rs.n_fields >= HTTP_FIELDS_MAX - 4)
		return;
	if (http_response_parse(span_of(out, n), &scanned, method, &other,
	    &why) != PARSE_DONE || other.head_bytes != n ||
	    other.status != rs.status || other.body != rs.body ||
	    other.length != rs.length)
		abort();
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	enum reason why = REASON_NONE, slow_why = REASON_NONE;
	enum parse got, slow = PARSE_MORE;
	enum http_method method;
	size_t scanned = 0;

	if (size == 0)
		return 0;
	method = (data[size - 1] & 1) != 0 ? HTTP_HEAD : HTTP_GET;
	for (size_t at = 1; at <= size && slow == PARSE_MORE; at++)
		slow = http_response_parse(span_of(data, at), &scanned,
		    method, &other, &slow_why);
	scanned = 0;
	got = http_response_parse(span_of(data, size), &scanned, method,
	    &rs, &why);
	if (got != slow || (got == PARSE_BAD && (why != slow_why ||
	    why == REASON_NONE)))
		abort();
	if (got != PARSE_DONE)
		return 0;
	if (rs.head_bytes > size || rs.status < 100 || rs.status > 599)
		abort();
	write_and_read(method);
	return 0;
}
