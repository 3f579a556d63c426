/* SPDX-License-Identifier: Apache-2.0 */
/* A request: whole and in pieces it means the same, what is sent on reads the
 * same again, without what belongs to this hop, and what is told of one that
 * is refused is true of one that is not. */
#include <stdlib.h>

#include "proxy/http.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct http_request rq, other;
static uint8_t out[HTTP_HEAD_MAX_BYTES + 1024];

static void
chunks(struct span s)
{
	struct http_chunks whole = { 0 }, slow = { 0 };
	enum parse a, b = PARSE_MORE;
	size_t used, sum = 0;

	a = http_chunks_feed(&whole, s, &used);
	if (used > s.len || (a == PARSE_MORE && used != s.len))
		abort();
	for (size_t i = 0; i < s.len && b == PARSE_MORE; i++) {
		size_t n;

		b = http_chunks_feed(&slow, span_of(s.data + i, 1), &n);
		sum += n;
	}
	if (s.len > 0 && (a != b || sum != used))
		abort();
}

/* Without its chunks it has the same end, at whatever split. */
static void
stripped(struct span s)
{
	static uint8_t once[1 << 16], twice[1 << 16];
	struct http_chunks a = { 0 }, b = { 0 }, c = { 0 };
	size_t used, data, n, all = 0, len, half = s.len / 2;
	enum parse got;

	if (s.len > sizeof(once))
		return;
	memcpy(once, s.data, s.len);
	memcpy(twice, s.data, s.len);
	got = http_chunks_strip(&a, once, s.len, &used, &data);
	if (data > used || got != http_chunks_feed(&b, s, &n) || n != used)
		abort();
	if (http_chunks_strip(&c, twice, half, &n, &all) != PARSE_MORE)
		return;
	if (http_chunks_strip(&c, twice + half, s.len - half, &n, &len) !=
	    got || half + n != used || all + len != data ||
	    memcmp(once, twice, all) != 0 ||
	    memcmp(once + all, twice + half, len) != 0)
		abort();
}

static bool
same(const struct http_target *a, const struct http_target *b)
{
	return a->is_addr == b->is_addr && a->port == b->port &&
	    (a->is_addr ? addr_eq(&a->addr, &b->addr) :
	    host_eq(&a->host, &b->host));
}

static void
write_and_read(void)
{
	size_t n = http_request_write(&rq, rq.upgrade.len > 0, out,
	    rq.head_bytes + 512), scanned = 0;
	enum reason why;

	if (n == 0 || n > rq.head_bytes + 512)
		abort();
	/* a head at its limit grows by Via; a CONNECT is not sent on */
	if (n > HTTP_HEAD_MAX_BYTES || rq.method == HTTP_CONNECT ||
	    rq.n_fields >= HTTP_FIELDS_MAX - 4)
		return;
	if (http_request_parse(span_of(out, n), &scanned, 80, &other,
	    &why) != PARSE_DONE || other.head_bytes != n ||
	    !same(&rq.to, &other.to) || rq.body != other.body ||
	    rq.length != other.length || other.credential.len != 0 ||
	    http_field_find(other.fields, other.n_fields,
	    "Proxy-Authorization") != NULL)
		abort();
}

static void
is_part(struct span of, struct span s)
{
	if (s.len > 0 && (s.data < of.data || s.len > of.len ||
	    s.data - of.data > (ptrdiff_t)(of.len - s.len)))
		abort();
}

static void
is_name(const struct host *h)
{
	struct host again;

	if (h->len > 0 && (host_parse(&again, span_of(h->name, h->len)) !=
	    REASON_NONE || !host_eq(&again, h)))
		abort();
}

static struct http_request seen;

/* Of any bytes; whole requests are compared in glance_is_true. */
static void
glance(struct span s, struct host *also)
{
	http_request_glance(s, 80, &seen, also);
	is_part(s, seen.method_text);
	is_part(s, seen.target);
	is_part(s, seen.path);
	for (size_t i = 0; i < seen.n_fields; i++) {
		is_part(s, seen.fields[i].name);
		is_part(s, seen.fields[i].value);
	}
	is_name(&seen.to.host);
	is_name(also);
	if (seen.to.is_addr && seen.to.host.len > 0)
		abort();
	if (also->len > 0 && host_eq(also, &seen.to.host))
		abort();
}

static void
glance_is_true(struct span s)
{
	struct host also;

	glance(s, &also);
	if (also.len > 0 || seen.method != rq.method ||
	    !span_eq(seen.method_text, rq.method_text) ||
	    !span_eq(seen.target, rq.target) || !same(&seen.to, &rq.to))
		abort();
	if (rq.method != HTTP_CONNECT && seen.path.len > 0 &&
	    !span_eq(seen.path, rq.path))
		abort();
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct span s = span_of(data, size), user, password;
	enum reason why = REASON_NONE, slow_why = REASON_NONE;
	enum parse got, slow = PARSE_MORE;
	size_t scanned = 0, step;
	struct host also;
	uint8_t buf[64];

	if (size == 0)
		return 0;
	chunks(s);
	stripped(s);
	glance(s, &also);
	if (http_basic(s, buf, sizeof(buf), &user, &password) &&
	    user.len + password.len + 1 > sizeof(buf))
		abort();
	step = data[size - 1] % 32u + 1;
	for (size_t at = 0; at < size && slow == PARSE_MORE;) {
		at = size - at < step ? size : at + step;
		slow = http_request_parse(span_of(data, at), &scanned, 80,
		    &other, &slow_why);
	}
	scanned = 0;
	got = http_request_parse(s, &scanned, 80, &rq, &why);
	if (got != slow || (got == PARSE_BAD && (why != slow_why ||
	    why == REASON_NONE)))
		abort();
	if (got != PARSE_DONE)
		return 0;
	if (rq.head_bytes > size || rq.head_bytes != other.head_bytes ||
	    !http_looks_like_request(s))
		abort();
	glance_is_true(s);
	write_and_read();
	return 0;
}
