/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>

#include "proxy/http.h"

#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

/* In pieces of `step` bytes; *used is how many of all were the body's. */
static enum parse
feed(struct http_chunks *c, struct span s, size_t step, size_t *used)
{
	enum parse got = PARSE_MORE;
	struct span part;
	size_t n;

	*used = 0;
	while (got == PARSE_MORE && s.len > 0) {
		assert_true(span_take(&s, s.len < step ? s.len : step,
		    &part));
		got = http_chunks_feed(c, part, &n);
		assert_true(n <= part.len);
		assert_true(got != PARSE_MORE || n == part.len);
		*used += n;
	}
	return got;
}

/* The same answer for pieces of every size. */
static enum parse
body_of(struct span s, size_t *used)
{
	struct http_chunks c = { 0 };
	enum parse whole = feed(&c, s, s.len, used);

	for (size_t step = 1; step < s.len; step++) {
		size_t n;

		memset(&c, 0, sizeof(c));
		assert_int_equal(feed(&c, s, step, &n), whole);
		assert_int_equal(n, *used);
	}
	return whole;
}

static enum parse
body(const char *text)
{
	size_t used;

	return body_of(span_str(text), &used);
}

static void
a_chunked_body_ends_after_its_last_byte_at_every_split(void **state)
{
	static const char *const yes[] = {
		"0\r\n\r\n", "5\r\nhello\r\n0\r\n\r\n",
		"00005\r\nhello\r\n000\r\n\r\n",
		"a\r\n0123456789\r\nA\r\n0123456789\r\n0\r\n\r\n",
		"2\r\n\r\n\r\n0\r\n\r\n", "5;x\r\nhello\r\n0;y=z\r\n\r\n",
		"5;x=\"a b\"\r\nhello\r\n0\r\n\r\n",
		"5;x=\"a;\\\"\"; y=\"\"\r\nhello\r\n0\r\n\r\n",
		"0\r\nX: y\r\n\r\n", "0\r\nX-A: y\r\nX-B:\r\n\r\n",
		"0\r\nHosts: y\r\n\r\n",
	};
	char text[200];
	size_t used;

	(void)state;
	for (size_t i = 0; i < COUNT(yes); i++) {
		assert_int_equal(body_of(span_str(yes[i]), &used),
		    PARSE_DONE);
		assert_int_equal(used, strlen(yes[i]));
		/* what follows is the next message's */
		snprintf(text, sizeof(text), "%sGET /", yes[i]);
		assert_int_equal(body_of(span_str(text), &used), PARSE_DONE);
		assert_int_equal(used, strlen(yes[i]));
	}
}

static void
a_body_that_was_cut_is_not_whole(void **state)
{
	static const char text[] = "5;x\r\nhello\r\n0\r\nX: y\r\n\r\n";
	size_t used;

	(void)state;
	for (size_t n = 1; n < sizeof(text) - 1; n++) {
		assert_int_equal(body_of(span_of(text, n), &used),
		    PARSE_MORE);
		assert_int_equal(used, n);
	}
}

static void
B010_a_chunk_that_has_two_readings_is_refused(void **state)
{
	static const char *const no[] = {
		"\r\n", ";x\r\n", "g\r\n", "-1\r\n", "+1\r\n", "0x1\r\n",
		" 1\r\n", "1 \r\n", "1\t\r\n", "1\n", "1\rx", "1,1\r\n",
		"1\r\nab\r\n", "1\r\na\n", "1\r\na\rx", "3\r\nab\r\n0\r\n",
		"1;\r\n", "1;;x\r\n", "1;x;\r\n", "1; \r\n", "1;x\n", "1;x\x01\r\n",
		"1\x80\r\n", "0\r\n\n", "0\r\n\rx", "0\n\r\n",
	};
	static const char nul[] = "5\0\r\nhello\r\n0\r\n\r\n";
	size_t used;

	(void)state;
	for (size_t i = 0; i < COUNT(no); i++)
		if (body(no[i]) != PARSE_BAD)
			fail_msg("%zu: %s", i, no[i]);
	assert_int_equal(body_of(span_of(nul, sizeof(nul) - 1), &used),
	    PARSE_BAD);
}

/* A parser that reads on to the closing quote, or over a byte of no token,
 * finds the data elsewhere. */
static void
B010_a_chunk_extension_ends_in_its_line(void **state)
{
	static const char *const no[] = {
		"5;x=\"\r\nhello\r\n0\r\n\r\n",
		"5;x=\"\r\n\"\r\nhello\r\n0\r\n\r\n",
		"5;x=\"\\\"\r\nhello\r\n0\r\n\r\n",
		"5;x=\"\\\r\nhello\r\n0\r\n\r\n",
		"0;x=\"\r\n\r\n", "5;\"x\"\r\n", "5;x\x80\r\n",
		"5;x=(\r\n",
	};

	(void)state;
	for (size_t i = 0; i < COUNT(no); i++)
		if (body(no[i]) != PARSE_BAD)
			fail_msg("%zu: %s", i, no[i]);
}

static void
a_chunk_size_never_wraps(void **state)
{
	(void)state;
	assert_int_equal(body("fffffffffffffff\r\n"), PARSE_MORE);
	assert_int_equal(body("ffffffffffffffff\r\n"), PARSE_BAD);
	assert_int_equal(body("10000000000000000\r\n"), PARSE_BAD);
	assert_int_equal(body("0000000000000000\r\n"), PARSE_BAD);
}

static void
a_trailer_is_field_lines(void **state)
{
	static const char *const no[] = { "X\r\n\r\n", ": y\r\n\r\n",
		" X: y\r\n\r\n", "X: y\r\n z\r\n\r\n", "X : y\r\n\r\n",
		"X: y\n\r\n", "X: y\rz\r\n\r\n", "X: \x01\r\n\r\n",
		"X\x80: y\r\n\r\n", "X: \x7f\r\n\r\n", "(X): y\r\n\r\n" };
	char text[100];

	(void)state;
	for (size_t i = 0; i < COUNT(no); i++) {
		snprintf(text, sizeof(text), "0\r\n%s", no[i]);
		if (body(text) != PARSE_BAD)
			fail_msg("%zu: %s", i, no[i]);
	}
}

static void
a_trailer_never_frames_routes_or_authenticates(void **state)
{
	static const char *const no[] = { "Host", "CONTENT-LENGTH",
		"Transfer-Encoding", "authorization", "Proxy-Authorization",
		"Connection", "Cookie", "Set-Cookie", "Te", "Upgrade",
		"Trailer", "Expect", "Content-Encoding", "Content-Type",
		"Content-Range", "Content_Length", "Transfer_Encoding" };
	char text[100];

	(void)state;
	for (size_t i = 0; i < COUNT(no); i++) {
		snprintf(text, sizeof(text), "0\r\nA: b\r\n%s: x\r\n\r\n",
		    no[i]);
		if (body(text) != PARSE_BAD)
			fail_msg("%s", no[i]);
	}
}

static void
extensions_and_trailers_have_limits(void **state)
{
	struct http_chunks c = { 0 };
	size_t used;

	(void)state;
	assert_int_equal(feed(&c, span_str("1;"), 2, &used), PARSE_MORE);
	for (unsigned i = 0; i < 256; i++)
		assert_int_equal(feed(&c, span_str("x"), 1, &used),
		    PARSE_MORE);
	assert_int_equal(feed(&c, span_str("x"), 1, &used), PARSE_BAD);
	memset(&c, 0, sizeof(c));
	assert_int_equal(feed(&c, span_str("0\r\n"), 3, &used), PARSE_MORE);
	for (unsigned i = 0; i < 8192 / 4 / 2; i++)
		assert_int_equal(feed(&c, span_str("X:yyyy\r\n"), 8, &used),
		    PARSE_MORE);
	assert_int_equal(feed(&c, span_str("X:yyyy\r\n"), 8, &used),
	    PARSE_MORE);
	for (unsigned i = 0; i < 8192 / 8; i++)
		if (feed(&c, span_str("X:yyyy\r\n"), 8, &used) != PARSE_MORE)
			return;
	fail_msg("a trailer section without an end");
}

/* ---- without its chunks ---- */

/* The bytes fed as a first piece of `first` and others of `step`: what the
 * data of the chunks is, in out. */
static enum parse
strip(const char *text, size_t first, size_t step, char *out, size_t *used)
{
	struct http_chunks c = { 0 };
	size_t len = strlen(text), part, n, data, at = 0;
	enum parse got = PARSE_MORE;
	uint8_t bytes[300];

	*used = 0;
	for (part = first; got == PARSE_MORE && *used < len; part = step) {
		if (part > len - *used)
			part = len - *used;
		memcpy(bytes, text + *used, part);
		got = http_chunks_strip(&c, bytes, part, &n, &data);
		assert_true(data <= n && n <= part);
		assert_true(got != PARSE_MORE || n == part);
		/* what is behind the body is as it was */
		assert_memory_equal(bytes + n, text + *used + n, part - n);
		memcpy(out + at, bytes, data);
		at += data;
		*used += n;
	}
	out[at] = '\0';
	return got;
}

static void
a_body_without_its_chunks_is_their_data_at_every_split(void **state)
{
	static const struct {
		const char *text, *data;
		enum parse end;
	} t[] = {
		{ "0\r\n\r\n", "", PARSE_DONE },
		{ "5\r\nhello\r\n0\r\n\r\n", "hello", PARSE_DONE },
		{ "5;a=b\r\nhello\r\n01\r\n \r\n5\r\nworld\r\n"
		    "0;x\r\nX: y\r\nZ:\r\n\r\n", "hello world",
		    PARSE_DONE },
		{ "4\r\n\r\n0\r\r\n0\r\n\r\nHTTP/1.1 200",
		    "\r\n0\r", PARSE_DONE },
		{ "b\r\n0123456789a\r\n3\r\nbc", "0123456789abc",
		    PARSE_MORE },
		{ "2\r\nab\r\n", "ab", PARSE_MORE },
		{ "2\r\nab\r\n0\r\nX: y\r\n", "ab", PARSE_MORE },
		{ "2\r\nab\n", "ab", PARSE_BAD },
		{ "2\r\nab\r\ng", "ab", PARSE_BAD },
		{ "2\r\nab\r\n0\r\nHost: x\r\n\r\n", "ab",
		    PARSE_BAD },
	};
	struct http_chunks c;
	char data[300];

	(void)state;
	for (size_t i = 0; i < COUNT(t); i++) {
		size_t n = strlen(t[i].text), used, same;

		memset(&c, 0, sizeof(c));
		assert_int_equal(http_chunks_feed(&c, span_str(t[i].text),
		    &same), t[i].end);
		for (size_t a = 1; a <= 2 * n; a++) {
			/* in two, and in pieces of each size */
			assert_int_equal(strip(t[i].text, a > n ? a - n : a,
			    a > n ? a - n : n, data, &used), t[i].end);
			assert_int_equal(used, same);
			assert_string_equal(data, t[i].data);
		}
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
		    a_chunked_body_ends_after_its_last_byte_at_every_split),
		cmocka_unit_test(a_body_that_was_cut_is_not_whole),
		cmocka_unit_test(B010_a_chunk_that_has_two_readings_is_refused),
		cmocka_unit_test(B010_a_chunk_extension_ends_in_its_line),
		cmocka_unit_test(a_chunk_size_never_wraps),
		cmocka_unit_test(a_trailer_is_field_lines),
		cmocka_unit_test(
		    a_trailer_never_frames_routes_or_authenticates),
		cmocka_unit_test(extensions_and_trailers_have_limits),
		cmocka_unit_test(
		    a_body_without_its_chunks_is_their_data_at_every_split),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
