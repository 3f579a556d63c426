/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "proxy/hello.h"

/* ---- hellos made here, from RFC 8446 4.1.2 ---- */

struct bytes {
	size_t n;
	uint8_t b[70000];
};

static void
put(struct bytes *t, const void *data, size_t n)
{
	assert_true(t->n + n <= sizeof(t->b));
	memcpy(t->b + t->n, data, n);
	t->n += n;
}

static void
put8(struct bytes *t, unsigned v)
{
	uint8_t b = (uint8_t)v;

	put(t, &b, 1);
}

static void
put16(struct bytes *t, size_t v)
{
	put8(t, (unsigned)(v >> 8) & 0xff);
	put8(t, (unsigned)v & 0xff);
}

static void
put_ext(struct bytes *t, unsigned type, const void *data, size_t n)
{
	put16(t, type);
	put16(t, n);
	put(t, data, n);
}

/* The body of a server_name extension with one name. */
static void
put_sni(struct bytes *t, unsigned name_type, struct span name)
{
	put16(t, 0);
	put16(t, name.len + 5);
	put16(t, name.len + 3);
	put8(t, name_type);
	put16(t, name.len);
	put(t, name.data, name.len);
}

/* The handshake message around a block of extensions. */
static void
put_message(struct bytes *t, const struct bytes *extensions)
{
	size_t len = 2 + 32 + 1 + 4 + 2 + 2 + extensions->n;
	static const uint8_t random[32] = { 9 };

	t->n = 0;
	put8(t, 1);
	put8(t, 0);
	put16(t, len);
	put16(t, 0x0303);
	put(t, random, sizeof(random));
	put8(t, 0);
	put16(t, 2);
	put16(t, 0x1301);
	put8(t, 1);
	put8(t, 0);
	put16(t, extensions->n);
	put(t, extensions->b, extensions->n);
}

/* The message in records of `size` bytes; the first one of `first`. */
static void
put_records(struct bytes *t, const struct bytes *message, size_t first,
    size_t size)
{
	size_t want = first;

	t->n = 0;
	for (size_t at = 0; at < message->n; want = size) {
		size_t n = message->n - at < want ? message->n - at : want;

		put8(t, 22);
		put16(t, 0x0301);
		put16(t, n);
		put(t, message->b + at, n);
		at += n;
	}
}

static struct bytes ext, message, stream;

static void
make_from_ext(void)
{
	put_message(&message, &ext);
	put_records(&stream, &message, 16384, 16384);
}

static void
make_name(const void *name, size_t len)
{
	ext.n = 0;
	put_sni(&ext, 0, span_of(name, len));
	make_from_ext();
}

/* ---- reading ---- */

struct got {
	enum parse parse;
	enum reason why;
	struct hello hello;
	size_t at;		/* bytes given when it was decided */
};

/* In pieces of `step` bytes; every piece is a copy of its exact size, so
 * that a read behind it is seen. */
static struct got
feed(struct span s, size_t step)
{
	struct got g = { .parse = PARSE_MORE };
	struct hello_reader r;

	hello_reader_init(&r, HELLO_MAX_BYTES);
	while (g.parse == PARSE_MORE && g.at < s.len) {
		uint8_t *copy;

		g.at = s.len - g.at < step ? s.len : g.at + step;
		copy = test_malloc(g.at);
		memcpy(copy, s.data, g.at);
		g.parse = hello_feed(&r, span_of(copy, g.at), &g.hello,
		    &g.why);
		test_free(copy);
	}
	return g;
}

/* Whole and byte by byte say the same. */
static enum reason
refusal(struct span s)
{
	struct got whole = feed(s, s.len), slow = feed(s, 1);

	assert_int_equal(whole.parse, PARSE_BAD);
	assert_int_equal(slow.parse, PARSE_BAD);
	assert_int_equal(whole.why, slow.why);
	return whole.why;
}

static enum reason
stream_refusal(void)
{
	return refusal(span_of(stream.b, stream.n));
}

static void
assert_name(const char *name)
{
	for (size_t step = 1; step <= stream.n; step += stream.n - 1) {
		struct got g = feed(span_of(stream.b, stream.n), step);

		assert_int_equal(g.parse, PARSE_DONE);
		assert_string_equal(g.hello.name.name, name);
		assert_int_equal(g.at, stream.n);
		assert_int_equal(g.hello.stream_bytes, stream.n);
	}
}

static void
a_hello_says_its_name_whole_and_byte_by_byte(void **state)
{
	(void)state;
	make_name("www.example.com", 15);
	assert_name("www.example.com");
	make_name("a", 1);
	assert_name("a");
}

static void
a_hello_reads_the_same_at_every_split_of_the_stream(void **state)
{
	(void)state;
	make_name("www.example.com", 15);
	for (size_t at = 1; at < stream.n; at++) {
		struct hello_reader r;
		struct hello h;
		enum reason why = REASON_NONE;

		hello_reader_init(&r, HELLO_MAX_BYTES);
		assert_int_equal(hello_feed(&r, span_of(stream.b, at), &h,
		    &why), PARSE_MORE);
		assert_int_equal(hello_feed(&r, span_of(stream.b, stream.n),
		    &h, &why), PARSE_DONE);
		assert_string_equal(h.name.name, "www.example.com");
	}
}

static void
B004_B17_a_hello_may_be_cut_into_records_of_any_size(void **state)
{
	(void)state;
	make_name("www.example.com", 15);
	for (size_t size = 1; size <= message.n; size++) {
		put_records(&stream, &message, size, size);
		assert_name("www.example.com");
	}
	/* one byte, three, the rest */
	put_records(&stream, &message, 1, 3);
	assert_name("www.example.com");
	put_records(&stream, &message, 1, message.n);
	assert_name("www.example.com");
	put_records(&stream, &message, 3, message.n);
	assert_name("www.example.com");
}

static void
N02_the_name_may_stand_in_the_last_record(void **state)
{
	static const uint8_t fill[4000];

	(void)state;
	ext.n = 0;
	put_ext(&ext, 21, fill, sizeof(fill));
	put_ext(&ext, 0xff01, fill, sizeof(fill));
	put_sni(&ext, 0, span_str("late.example"));
	put_message(&message, &ext);
	put_records(&stream, &message, 1400, 1400);
	assert_name("late.example");
	put_records(&stream, &message, message.n - 12, 64);
	assert_name("late.example");
	put_records(&stream, &message, 512, 512);
	assert_name("late.example");
}

/* A message whose length field says `len`. */
static void
make_sized(size_t len)
{
	static const uint8_t fill[16384];

	ext.n = 0;
	put_sni(&ext, 0, span_str("big.example"));
	put_message(&message, &ext);
	put_ext(&ext, 21, fill, len - (message.n - 4) - 4);
	put_message(&message, &ext);
	assert_int_equal(message.n, len + 4);
	put_records(&stream, &message, 16384, 16384);
}

static void
B002_a_hello_of_the_largest_size_is_read(void **state)
{
	(void)state;
	make_sized(16380);
	assert_name("big.example");
	make_sized(16383);
	assert_name("big.example");
	make_sized(16384);
	assert_name("big.example");
}

static void
B002_a_larger_hello_is_refused_when_its_length_is_there(void **state)
{
	struct got g;

	(void)state;
	make_sized(16385);
	assert_int_equal(stream_refusal(), REASON_HELLO_TOO_LARGE);
	g = feed(span_of(stream.b, stream.n), 1);
	assert_int_equal(g.at, 9);
	/* a message that says 65535, in one small record */
	make_name("a.example", 9);
	stream.b[7] = stream.b[8] = 0xff;
	assert_int_equal(stream_refusal(), REASON_HELLO_TOO_LARGE);
	/* in records of one byte */
	message.b[2] = message.b[3] = 0xff;
	put_records(&stream, &message, 1, 1);
	assert_int_equal(stream_refusal(), REASON_HELLO_TOO_LARGE);
	assert_int_equal(feed(span_of(stream.b, stream.n), 1).at, 4 * 6);
}

static void
N02_a_claimed_length_is_refused_before_its_bytes(void **state)
{
	static const size_t sizes[] = { 20000, 40000, 65535, 0xffffff };
	static const uint8_t none[] = { 22, 3, 1, 0, 0 };
	static const uint8_t fill[1000];
	struct bytes rest;

	(void)state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		make_name("a.example", 9);
		message.b[1] = (uint8_t)(sizes[i] >> 16);
		message.b[2] = (uint8_t)(sizes[i] >> 8);
		message.b[3] = (uint8_t)sizes[i];
		for (size_t first = 1; first < 4; first++) {
			/* even the length comes in pieces */
			put_records(&stream, &message, first, message.n);
			assert_int_equal(stream_refusal(),
			    REASON_HELLO_TOO_LARGE);
			assert_int_equal(feed(span_of(stream.b, stream.n),
			    1).at, 4 + 2 * 5);
		}
	}
	/* an empty record between two pieces */
	make_name("a.example", 9);
	put_records(&stream, &message, 20, message.n);
	rest = stream;
	stream.n = 25;
	put(&stream, none, sizeof(none));
	put(&stream, rest.b + 25, rest.n - 25);
	assert_int_equal(stream_refusal(), REASON_HELLO_MALFORMED);
	/* the largest, whose name comes last, in uneven records */
	ext.n = 0;
	for (unsigned n = 0; n < 16; n++)
		put_ext(&ext, 0x1000 + n, fill, sizeof(fill));
	put_sni(&ext, 0, span_str("late.example"));
	put_message(&message, &ext);
	put_records(&stream, &message, 3, 16384);
	assert_name("late.example");
}

static void
B002_a_record_larger_than_the_protocol_allows_is_refused(void **state)
{
	static const uint8_t huge[] = { 22, 3, 1, 0xff, 0xff };
	static const uint8_t over[] = { 22, 3, 1, 0x40, 0x01 };
	static const uint8_t none[] = { 22, 3, 1, 0, 0 };

	(void)state;
	assert_int_equal(refusal(span_of(huge, 5)), REASON_HELLO_TOO_LARGE);
	assert_int_equal(refusal(span_of(over, 5)), REASON_HELLO_TOO_LARGE);
	assert_int_equal(refusal(span_of(none, 5)), REASON_HELLO_MALFORMED);
}

static void
B17_a_hello_in_too_many_records_is_refused(void **state)
{
	(void)state;
	make_sized(HELLO_RECORDS_MAX - 4);
	put_records(&stream, &message, 1, 1);
	assert_name("big.example");
	make_sized(HELLO_RECORDS_MAX - 3);
	put_records(&stream, &message, 1, 1);
	assert_int_equal(stream_refusal(), REASON_HELLO_TOO_LARGE);
}

static void
B004_an_alert_between_two_pieces_is_malformed(void **state)
{
	static const uint8_t alert[] = { 21, 3, 1, 0, 2, 1, 0 };
	struct bytes second;

	(void)state;
	make_name("a.example", 9);
	put_records(&stream, &message, 20, message.n);
	second = stream;
	stream.n = 25;
	put(&stream, alert, sizeof(alert));
	put(&stream, second.b + 25, second.n - 25);
	assert_int_equal(stream_refusal(), REASON_HELLO_MALFORMED);
}

static void
B004_a_second_message_in_the_last_record_is_malformed(void **state)
{
	(void)state;
	make_name("a.example", 9);
	put8(&message, 1);
	put_records(&stream, &message, 16384, 16384);
	assert_int_equal(stream_refusal(), REASON_HELLO_MALFORMED);
}

static void
bytes_after_the_last_record_are_left_alone(void **state)
{
	struct got g;
	size_t n;

	(void)state;
	make_name("a.example", 9);
	n = stream.n;
	put(&stream, "\x14\x03\x03\x00\x01\x01", 6);
	g = feed(span_of(stream.b, stream.n), stream.n);
	assert_int_equal(g.parse, PARSE_DONE);
	assert_int_equal(g.hello.stream_bytes, n);
}

static void
B005_a_hello_without_a_name_shows_none(void **state)
{
	struct got g;

	(void)state;
	ext.n = 0;
	put_ext(&ext, 23, "", 0);
	make_from_ext();
	g = feed(span_of(stream.b, stream.n), 1);
	assert_int_equal(g.parse, PARSE_DONE);
	assert_int_equal(g.hello.name.len, 0);
	/* and no extensions at all */
	ext.n = 0;
	put_message(&message, &ext);
	message.n -= 2;
	message.b[3] = (uint8_t)(message.n - 4);
	put_records(&stream, &message, 16384, 16384);
	g = feed(span_of(stream.b, stream.n), 1);
	assert_int_equal(g.parse, PARSE_DONE);
	assert_int_equal(g.hello.name.len, 0);
}

static void
B005_a_name_list_that_is_not_one_name_is_refused(void **state)
{
	(void)state;
	ext.n = 0;
	put_ext(&ext, 0, "\0\0", 2);
	make_from_ext();
	assert_int_equal(stream_refusal(), REASON_HELLO_MALFORMED);
	ext.n = 0;
	put_ext(&ext, 0, "", 0);
	make_from_ext();
	assert_int_equal(stream_refusal(), REASON_HELLO_MALFORMED);
	ext.n = 0;
	put_sni(&ext, 7, span_str("a.example"));
	make_from_ext();
	assert_int_equal(stream_refusal(), REASON_HELLO_MALFORMED);
	/* two names in one list */
	ext.n = 0;
	put_ext(&ext, 0, "\0\14\0\0\3a.b\0\0\3c.d", 14);
	make_from_ext();
	assert_int_equal(stream_refusal(), REASON_HELLO_NAMES);
	/* a list longer than its extension */
	ext.n = 0;
	put_ext(&ext, 0, "\0\7\0\0\3a.b", 8);
	make_from_ext();
	assert_int_equal(stream_refusal(), REASON_HELLO_MALFORMED);
}

static void
B005_two_name_extensions_are_refused(void **state)
{
	(void)state;
	ext.n = 0;
	put_sni(&ext, 0, span_str("a.example"));
	put_ext(&ext, 23, "", 0);
	put_sni(&ext, 0, span_str("b.example"));
	make_from_ext();
	assert_int_equal(stream_refusal(), REASON_HELLO_NAMES);
	ext.n = 0;
	put_sni(&ext, 0, span_str("a.example"));
	put_ext(&ext, 23, "", 0);
	put_ext(&ext, 23, "", 0);
	make_from_ext();
	assert_int_equal(stream_refusal(), REASON_HELLO_MALFORMED);
}

static void
B005_an_address_is_no_server_name(void **state)
{
	static const char *const no[] = { "192.0.2.1", "127.1", "0x7f.1",
		"2130706433" };

	(void)state;
	for (size_t i = 0; i < sizeof(no) / sizeof(no[0]); i++) {
		make_name(no[i], strlen(no[i]));
		assert_int_equal(stream_refusal(), REASON_ADDRESS_LITERAL);
	}
	make_name("2001:db8::1", 11);
	assert_int_not_equal(stream_refusal(), REASON_NONE);
	make_name("[::1]", 5);
	assert_int_not_equal(stream_refusal(), REASON_NONE);
}

static void
B007_a_name_is_folded_and_loses_its_dot(void **state)
{
	(void)state;
	make_name("WWW.Example.COM", 15);
	assert_name("www.example.com");
	make_name("www.example.com.", 16);
	assert_name("www.example.com");
}

static void
B007_what_is_no_host_name_is_refused(void **state)
{
	static const struct { const char *text; size_t len; } no[] = {
		{ "a.example:443", 13 }, { "a.example\0.b.example", 20 },
		{ "a.example\0", 10 }, { "\0", 1 }, { "", 0 },
		{ "b\xc3\xbc" "cher.example", 14 }, { "a..example", 10 },
		{ ".a.example", 10 }, { "a.example..", 11 },
		{ "a b.example", 11 }, { "*.a.example", 11 },
		{ "a.example\n", 10 }, { ".", 1 },
	};
	char longer[300];

	(void)state;
	for (size_t i = 0; i < sizeof(no) / sizeof(no[0]); i++) {
		make_name(no[i].text, no[i].len);
		assert_int_equal(stream_refusal(), REASON_NAME_MALFORMED);
	}
	memset(longer, 'a', sizeof(longer));
	make_name(longer, 64);
	assert_int_equal(stream_refusal(), REASON_NAME_MALFORMED);
	for (size_t i = 1; i < sizeof(longer); i += 2)
		longer[i] = '.';
	make_name(longer, 255);
	assert_int_equal(stream_refusal(), REASON_NAME_MALFORMED);
}

static void
B008_what_is_not_tls_is_told_at_once(void **state)
{
	static const char *const no[] = { "GET / HTTP/1.1\r\n\r\n",
		"SSH-2.0-OpenSSH_9.6\r\n", "\x01\x02\x03\x04", "\r\n", " " };
	static const uint8_t version[] = { 22, 2, 0, 0, 5 };
	static const uint8_t random[] = { 0x9c, 0x11, 0x77, 0x03, 0x55 };

	(void)state;
	for (size_t i = 0; i < sizeof(no) / sizeof(no[0]); i++) {
		assert_int_equal(refusal(span_str(no[i])), REASON_NOT_TLS);
		assert_int_equal(feed(span_str(no[i]), 1).at, 1);
	}
	assert_int_equal(refusal(span_of(version, 5)), REASON_NOT_TLS);
	assert_int_equal(refusal(span_of(random, 5)), REASON_NOT_TLS);
}

static void
B008_an_sslv2_hello_has_its_own_reason(void **state)
{
	static const uint8_t v2[] = { 0x80, 0x2e, 1, 3, 1, 0, 0x15, 0, 0 };

	(void)state;
	assert_int_equal(refusal(span_of(v2, sizeof(v2))),
	    REASON_HELLO_SSLV2);
}

static void
another_handshake_message_is_malformed(void **state)
{
	static const uint8_t server[] = { 22, 3, 3, 0, 60, 2, 0, 0, 56 };
	static const uint8_t empty[] = { 22, 3, 3, 0, 4, 1, 0, 0, 0 };

	(void)state;
	assert_int_equal(refusal(span_of(server, sizeof(server))),
	    REASON_HELLO_MALFORMED);
	assert_int_equal(refusal(span_of(empty, sizeof(empty))),
	    REASON_HELLO_MALFORMED);
}

static void
every_length_inside_that_lies_is_malformed(void **state)
{
	(void)state;
	make_name("a.example", 9);
	/* session id, ciphers, compression, extensions, and what is in it */
	static const size_t at[] = { 43, 45, 48, 51, 55, 57, 60 };
	for (size_t i = 0; i < sizeof(at) / sizeof(at[0]); i++) {
		uint8_t was = stream.b[at[i]];

		stream.b[at[i]] = (uint8_t)(was + 1);
		assert_int_equal(stream_refusal(), REASON_HELLO_MALFORMED);
		stream.b[at[i]] = was;
	}
	assert_name("a.example");
}

static void
a_hello_says_whether_it_hides_a_name_or_sends_early_data(void **state)
{
	struct hello h;

	(void)state;
	make_name("a.example", 9);
	h = feed(span_of(stream.b, stream.n), 1).hello;
	assert_false(h.ech);
	assert_false(h.early_data);
	assert_int_equal(h.version, 0x0303);
	put_ext(&ext, 0xfe0d, "\0\0\1\0\1", 5);
	put_ext(&ext, 42, "", 0);
	put_ext(&ext, 43, "\6\x0a\x0a\3\4\3\3", 7);
	put_ext(&ext, 16, "\0\14\2h2\10http/1.1", 14);
	make_from_ext();
	h = feed(span_of(stream.b, stream.n), 1).hello;
	assert_true(h.ech);
	assert_true(h.early_data);
	assert_int_equal(h.version, 0x0304);
	assert_string_equal(h.alpn, "h2");
	assert_int_equal(strlen(h.ja4), 36);
	assert_memory_equal(h.ja4, "t13d", 4);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_hello_says_its_name_whole_and_byte_by_byte),
		cmocka_unit_test(
		    a_hello_reads_the_same_at_every_split_of_the_stream),
		cmocka_unit_test(
		    B004_B17_a_hello_may_be_cut_into_records_of_any_size),
		cmocka_unit_test(N02_the_name_may_stand_in_the_last_record),
		cmocka_unit_test(B002_a_hello_of_the_largest_size_is_read),
		cmocka_unit_test(
		    B002_a_larger_hello_is_refused_when_its_length_is_there),
		cmocka_unit_test(
		    N02_a_claimed_length_is_refused_before_its_bytes),
		cmocka_unit_test(
		    B002_a_record_larger_than_the_protocol_allows_is_refused),
		cmocka_unit_test(B17_a_hello_in_too_many_records_is_refused),
		cmocka_unit_test(B004_an_alert_between_two_pieces_is_malformed),
		cmocka_unit_test(
		    B004_a_second_message_in_the_last_record_is_malformed),
		cmocka_unit_test(bytes_after_the_last_record_are_left_alone),
		cmocka_unit_test(B005_a_hello_without_a_name_shows_none),
		cmocka_unit_test(
		    B005_a_name_list_that_is_not_one_name_is_refused),
		cmocka_unit_test(B005_two_name_extensions_are_refused),
		cmocka_unit_test(B005_an_address_is_no_server_name),
		cmocka_unit_test(B007_a_name_is_folded_and_loses_its_dot),
		cmocka_unit_test(B007_what_is_no_host_name_is_refused),
		cmocka_unit_test(B008_what_is_not_tls_is_told_at_once),
		cmocka_unit_test(B008_an_sslv2_hello_has_its_own_reason),
		cmocka_unit_test(another_handshake_message_is_malformed),
		cmocka_unit_test(every_length_inside_that_lies_is_malformed),
		cmocka_unit_test(
		    a_hello_says_whether_it_hides_a_name_or_sends_early_data),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
