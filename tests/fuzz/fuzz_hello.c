/* SPDX-License-Identifier: Apache-2.0 */
/* A client's first bytes: whole and in pieces they mean the same, and a name
 * that comes out is a host name. */
#include <stdlib.h>

#include "proxy/flight.h"
#include "proxy/hello.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
check(const struct hello *h, size_t size)
{
	struct host again;

	if (h->stream_bytes > size || strlen(h->ja4) != JA4_BYTES - 1 ||
	    memchr(h->alpn, '\0', sizeof(h->alpn)) == NULL)
		abort();
	if (h->name.len == 0)
		return;
	if (host_parse(&again, span_of(h->name.name, h->name.len)) !=
	    REASON_NONE || !host_eq(&again, &h->name))
		abort();
}

/* The step comes from the data; the refusal and its reason must not. */
static void
pieces(struct span s, enum parse want, enum reason want_why,
    const struct hello *want_hello)
{
	size_t step = s.len > 0 ? s.data[s.len - 1] % 64u + 1 : 1;
	enum reason why = REASON_NONE;
	enum parse got = PARSE_MORE;
	struct hello_reader r;
	struct hello h;

	hello_reader_init(&r, HELLO_MAX_BYTES);
	for (size_t at = 0; at < s.len && got == PARSE_MORE;) {
		at = s.len - at < step ? s.len : at + step;
		got = hello_feed(&r, span_of(s.data, at), &h, &why);
	}
	if (got != want || (got == PARSE_BAD && why != want_why))
		abort();
	if (got == PARSE_DONE && (!host_eq(&h.name, &want_hello->name) ||
	    h.stream_bytes != want_hello->stream_bytes ||
	    h.ech != want_hello->ech || strcmp(h.ja4, want_hello->ja4) != 0))
		abort();
}

static void
flights(struct span s)
{
	struct flight_watch whole, slow;
	enum flight a, b = FLIGHT_MORE;

	flight_init(&whole);
	flight_init(&slow);
	a = flight_feed(&whole, s);
	for (size_t i = 0; i < s.len && b == FLIGHT_MORE; i++)
		b = flight_feed(&slow, span_of(s.data + i, 1));
	if (a != b)
		abort();
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct span s = span_of(data, size);
	enum reason why = REASON_NONE;
	struct hello_reader r;
	struct hello h;
	enum parse got;

	if (size == 0)
		return 0;
	hello_reader_init(&r, HELLO_MAX_BYTES);
	got = hello_feed(&r, s, &h, &why);
	if (got == PARSE_DONE)
		check(&h, size);
	if ((got == PARSE_BAD) != (why != REASON_NONE))
		abort();
	pieces(s, got, why, &h);
	flights(s);
	return 0;
}
