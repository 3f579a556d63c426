/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "proxy/flight.h"

/* A ServerHello with the random that means "retry" (RFC 8446 4.1.3). */
static const uint8_t retry[] = {
	2, 0, 0, 44, 3, 3,
	0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c,
	0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2, 0xa2, 0x11, 0x16, 0x7a, 0xbb,
	0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
	0, 0x13, 0x01, 0, 0, 4, 0, 43, 3, 4
};
#define DECIDES_AT 38u	/* the end of the random */

/* Cut into records of `size`; returns the length. */
static size_t
records(const uint8_t *message, size_t len, size_t size, uint8_t *out)
{
	size_t n = 0;

	for (size_t at = 0; at < len;) {
		size_t part = len - at < size ? len - at : size;

		memcpy(out + n, "\x16\x03\x03", 3);
		out[n + 3] = 0;
		out[n + 4] = (uint8_t)part;
		memcpy(out + n + 5, message + at, part);
		n += 5 + part;
		at += part;
	}
	return n;
}

static enum flight
feed(struct span s, size_t step)
{
	struct flight_watch w;
	enum flight got = FLIGHT_MORE;

	flight_init(&w);
	while (s.len > 0 && got == FLIGHT_MORE) {
		struct span part;

		if (!span_take(&s, s.len < step ? s.len : step, &part))
			break;
		got = flight_feed(&w, part);
	}
	return got;
}

static void
a_retry_is_seen_in_records_and_pieces_of_every_size(void **state)
{
	uint8_t out[400];

	(void)state;
	for (size_t size = 1; size <= sizeof(retry); size++) {
		size_t n = records(retry, sizeof(retry), size, out);

		for (size_t step = 1; step <= n; step++)
			assert_int_equal(feed(span_of(out, n), step),
			    FLIGHT_RETRY);
	}
}

static void
a_retry_is_told_when_its_random_is_whole_and_not_before(void **state)
{
	uint8_t out[80];

	(void)state;
	(void)records(retry, sizeof(retry), sizeof(retry), out);
	assert_int_equal(feed(span_of(out, 5 + DECIDES_AT - 1), 1),
	    FLIGHT_MORE);
	assert_int_equal(feed(span_of(out, 5 + DECIDES_AT), 1),
	    FLIGHT_RETRY);
	assert_int_equal(feed(span_of(out, 0), 1), FLIGHT_MORE);
}

static void
an_ordinary_server_hello_is_not_a_retry(void **state)
{
	uint8_t hello[sizeof(retry)], out[400];

	(void)state;
	for (size_t i = 6; i < DECIDES_AT; i++) {
		memcpy(hello, retry, sizeof(hello));
		hello[i] ^= 1;
		for (size_t size = 1; size <= sizeof(hello); size += 7) {
			size_t n = records(hello, sizeof(hello), size, out);

			assert_int_equal(feed(span_of(out, n), n),
			    FLIGHT_HELLO);
			assert_int_equal(feed(span_of(out, n), 1),
			    FLIGHT_HELLO);
		}
	}
}

static void
what_is_no_server_hello_is_not_a_retry(void **state)
{
	static const struct { const char *b; size_t len; } no[] = {
		{ "HTTP/1.1 200 OK", 15 }, { "\x17\x03\x03\0\2\2\50", 7 },
		{ "\x16\x02", 2 }, { "\x16\x03\x03\0\4\x0b", 6 },
		{ "\x15\x02", 2 }, { "\0", 1 },
		/* a HelloRequest with a body */
		{ "\x16\x03\x03\0\4\0\0\0\1", 9 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(no) / sizeof(no[0]); i++) {
		struct span s = span_of(no[i].b, no[i].len);

		assert_int_equal(feed(s, s.len), FLIGHT_OTHER);
		assert_int_equal(feed(s, 1), FLIGHT_OTHER);
	}
}

/* A client passes over them, so a retry behind them is one. */
static void
a_retry_behind_other_records_is_one(void **state)
{
	static const struct { const char *b; size_t len; } before[] = {
		{ "\x15\x03\x03\0\2\1\x70", 7 },	/* unrecognized_name */
		{ "\x14\x03\x03\0\1\1", 6 },
		{ "\x16\x03\x03\0\0", 5 },
		{ "\x15\x03\x03\0\0", 5 },
		{ "\x14\x03\x03\0\1\1\x15\x03\x03\0\2\1\x70", 13 },
	};
	uint8_t out[1200], part[400];

	(void)state;
	for (size_t i = 0; i < sizeof(before) / sizeof(before[0]); i++)
		for (size_t size = 10; size <= 50; size += 20) {
			size_t n = records(retry, sizeof(retry), size, part);
			size_t at = before[i].len;

			memcpy(out, before[i].b, at);
			memcpy(out + at, part, 5 + size);
			at += 5 + size;		/* and once more between */
			memcpy(out + at, before[i].b, before[i].len);
			at += before[i].len;
			if (n > 5 + size)
				memcpy(out + at, part + 5 + size,
				    n - 5 - size);
			at += n > 5 + size ? n - 5 - size : 0;
			for (size_t step = 1; step <= at; step += 3)
				assert_int_equal(feed(span_of(out, at),
				    step), FLIGHT_RETRY);
		}
}

/* A client passes over them too, in the same record or not. */
static void
a_retry_behind_hello_requests_is_one(void **state)
{
	uint8_t message[8 + sizeof(retry)] = { 0 }, out[400];

	(void)state;
	memcpy(message + 8, retry, sizeof(retry));
	for (size_t skip = 0; skip <= 4; skip += 4)
		for (size_t size = 1; size <= sizeof(message); size++) {
			size_t n = records(message + skip,
			    sizeof(message) - skip, size, out);

			for (size_t step = 1; step <= n; step += 7)
				assert_int_equal(feed(span_of(out, n), step),
				    FLIGHT_RETRY);
		}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
		    a_retry_is_seen_in_records_and_pieces_of_every_size),
		cmocka_unit_test(
		    a_retry_is_told_when_its_random_is_whole_and_not_before),
		cmocka_unit_test(a_retry_behind_other_records_is_one),
		cmocka_unit_test(a_retry_behind_hello_requests_is_one),
		cmocka_unit_test(an_ordinary_server_hello_is_not_a_retry),
		cmocka_unit_test(what_is_no_server_hello_is_not_a_retry),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
