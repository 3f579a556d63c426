/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "proxy/http.h"

#define COUNT(list) (sizeof(list) / sizeof((list)[0]))
#define H "Host: a.example\r\n"
#define GET "GET / HTTP/1.1\r\n" H

static struct http_request rq;
static struct http_response rs;
/* What rq points into: an exact copy, so that a read behind it is seen. */
static uint8_t *held;

static int
down(void **state)
{
	(void)state;
	free(held);
	held = NULL;
	return 0;
}

static void
hold(struct span s)
{
	(void)down(NULL);
	held = malloc(s.len);
	assert_non_null(held);
	memcpy(held, s.data, s.len);
}

/* In pieces of `step` bytes; REASON_NONE is a request, in rq. */
static enum reason
read_request(struct span s, size_t step)
{
	enum parse got = PARSE_MORE;
	enum reason why = REASON_NONE;
	size_t at = 0, scanned = 0;

	while (got == PARSE_MORE && at < s.len) {
		at = s.len - at < step ? s.len : at + step;
		hold(span_of(s.data, at));
		got = http_request_parse(span_of(held, at), &scanned, 80,
		    &rq, &why);
	}
	assert_int_not_equal(got, PARSE_MORE);
	assert_true((got == PARSE_BAD) == (why != REASON_NONE));
	return why;
}

/* Whole, byte by byte and in sevens: one answer. */
static enum reason
request_of(struct span s)
{
	enum reason slow = read_request(s, 1), some = read_request(s, 7);
	enum reason whole = read_request(s, s.len);

	assert_int_equal(slow, whole);
	assert_int_equal(some, whole);
	return whole;
}

static enum reason
request(const char *text)
{
	return request_of(span_str(text));
}

static enum reason
read_response(struct span s, enum http_method m, size_t step)
{
	enum parse got = PARSE_MORE;
	enum reason why = REASON_NONE;
	size_t at = 0, scanned = 0;

	while (got == PARSE_MORE && at < s.len) {
		at = s.len - at < step ? s.len : at + step;
		hold(span_of(s.data, at));
		got = http_response_parse(span_of(held, at), &scanned, m,
		    &rs, &why);
	}
	assert_int_not_equal(got, PARSE_MORE);
	return got == PARSE_BAD ? why : REASON_NONE;
}

static enum reason
response_to(enum http_method m, const char *text)
{
	enum reason slow = read_response(span_str(text), m, 1);
	enum reason whole = read_response(span_str(text), m, strlen(text));

	assert_int_equal(slow, whole);
	return whole;
}

static enum reason
response(const char *text)
{
	return response_to(HTTP_GET, text);
}

static void
assert_span(struct span s, const char *text)
{
	assert_int_equal(s.len, strlen(text));
	assert_memory_equal(s.data, text, s.len);
}

/* ---- requests ---- */

static void
a_request_is_read_whole_and_byte_by_byte(void **state)
{
	(void)state;
	assert_int_equal(request("GET /a?b=c HTTP/1.1\r\nHost: A.Example\r\n"
	    "X-Y: \t v w \t\r\n\r\n"), REASON_NONE);
	assert_int_equal(rq.method, HTTP_GET);
	assert_int_equal(rq.form, HTTP_ORIGIN);
	assert_int_equal(rq.minor, 1);
	assert_span(rq.path, "/a?b=c");
	assert_string_equal(rq.to.host.name, "a.example");
	assert_int_equal(rq.to.port, 80);
	assert_int_equal(rq.n_fields, 2);
	assert_span(http_field_find(rq.fields, 2, "x-y")->value, "v w");
	assert_int_equal(rq.body, HTTP_BODY_NONE);
	assert_true(rq.keep_alive);
	assert_false(rq.expect_continue);
}

static void
bytes_after_the_head_are_left_alone(void **state)
{
	const char *text = "POST / HTTP/1.1\r\n" H
	    "Content-Length: 5\r\n\r\nhello";

	(void)state;
	assert_int_equal(request(text), REASON_NONE);
	assert_int_equal(rq.head_bytes, strlen(text) - 5);
	assert_int_equal(rq.body, HTTP_BODY_LENGTH);
	assert_int_equal(rq.length, 5);
}

static void
one_empty_line_before_the_request_is_forgiven(void **state)
{
	(void)state;
	assert_int_equal(request("\r\n" GET "\r\n"), REASON_NONE);
	assert_int_equal(rq.head_bytes, strlen("\r\n" GET "\r\n"));
	assert_int_equal(request("\r\n\r\n" GET "\r\n"),
	    REASON_HEAD_MALFORMED);
	assert_int_equal(request("\n" GET "\r\n"), REASON_HEAD_MALFORMED);
	assert_int_equal(request(" " GET "\r\n"), REASON_HEAD_MALFORMED);
}

/* Every one that two parsers could read in two ways. */
static void
B016_a_head_that_has_two_readings_is_malformed(void **state)
{
	static const char *const no[] = {
		/* folding, blank before the colon, no name */
		GET "X: a\r\n b\r\n\r\n", GET "X: a\r\n\tb\r\n\r\n",
		"GET / HTTP/1.1\r\n " H "\r\n",
		GET "X : a\r\n\r\n", GET "X\t: a\r\n\r\n", GET ": a\r\n\r\n",
		GET "X\r\n\r\n", GET "X Y: a\r\n\r\n", GET "(X): a\r\n\r\n",
		GET "X\x80: a\r\n\r\n",
		/* bare CR, bare LF */
		GET "X: a\rb\r\n\r\n", GET "X: a\nY: b\r\n\r\n",
		GET "X: a\r\r\n\r\n", "GET / HTTP/1.1\n" H "\r\n",
		"GET / HTTP/1.1\r\n" H "\n", "GET /\r HTTP/1.1\r\n" H "\r\n",
		/* control bytes */
		GET "X: a\x01\r\n\r\n", GET "X: a\x7f\r\n\r\n",
		GET "X: a\x0b\r\n\r\n",
		/* request line */
		"GET  / HTTP/1.1\r\n" H "\r\n", "GET /  HTTP/1.1\r\n" H "\r\n",
		"GET / HTTP/1.1 \r\n" H "\r\n", "GET /\r\n" H "\r\n",
		"GET\t/\tHTTP/1.1\r\n" H "\r\n", "GET / x HTTP/1.1\r\n" H "\r\n",
		"G@T / HTTP/1.1\r\n" H "\r\n", "GET /\x80 HTTP/1.1\r\n" H "\r\n",
		"GET /\x7f HTTP/1.1\r\n" H "\r\n", "GET / http/1.1\r\n" H "\r\n",
		"GET / HTTP/1.1x\r\n" H "\r\n", "GET / \r\n" H "\r\n",
		/* Host */
		"GET / HTTP/1.1\r\n\r\n", GET H "\r\n",
		"GET / HTTP/1.0\r\n\r\n",
		GET "host: b.example\r\n\r\n",
	};

	(void)state;
	for (size_t i = 0; i < COUNT(no); i++)
		if (request(no[i]) != REASON_HEAD_MALFORMED)
			fail_msg("%zu: %s", i, no[i]);
}

static void
B016_a_nul_is_malformed_wherever_it_stands(void **state)
{
	static const char text[] = "GET /a HTTP/1.1\r\nHost: a.example\r\n"
	    "X: y\r\n\r\n";
	char copy[sizeof(text)];
	enum reason why;

	(void)state;
	for (size_t i = 0; i < sizeof(text) - 1; i++) {
		memcpy(copy, text, sizeof(text));
		copy[i] = '\0';
		if (i > strlen(text) - 5)
			continue;	/* then the head has no end */
		why = request_of(span_of(copy, sizeof(text) - 1));
		/* "HTTP/" and three other bytes are another version */
		if (why != REASON_HEAD_MALFORMED && (i < 12 || i > 14 ||
		    why != REASON_VERSION))
			fail_msg("NUL at %zu: %s", i, reason_word(why));
	}
}

static void
B010_a_message_with_two_lengths_is_refused(void **state)
{
	static const char *const no[] = {
		"Content-Length: 3\r\nContent-Length: 3\r\n",
		"Content-Length: 3\r\nContent-Length: 4\r\n",
		"Content-Length: 3, 3\r\n", "Content-Length: +3\r\n",
		"Content-Length: -3\r\n", "Content-Length: 0x3\r\n",
		"Content-Length: 3 3\r\n", "Content-Length:\r\n",
		"Content-Length: 3.0\r\n",
		"Content-Length: 18446744073709551616\r\n",
		"Content-Length: 9999999999999999999\r\n",
		"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
		"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n",
		"Transfer-Encoding: identity\r\n", "Transfer-Encoding:\r\n",
		"Transfer-Encoding: chunked, chunked\r\n",
		"Transfer-Encoding: gzip, chunked\r\n",
		"Transfer-Encoding: chunked, identity\r\n",
		"Transfer-Encoding: xchunked\r\n",
		"Transfer-Encoding: \"chunked\"\r\n",
		"Transfer-Encoding: chunked;q=1\r\n",
		"Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip\r\n",
		("Transfer-Encoding: chunked\r\n"
		    "transfer-encoding: chunked\r\n"),
	};
	char text[300];

	(void)state;
	for (size_t i = 0; i < COUNT(no); i++) {
		snprintf(text, sizeof(text), "POST / HTTP/1.1\r\n" H
		    "%s\r\n", no[i]);
		if (request(text) != REASON_FRAMING)
			fail_msg("%s", no[i]);
		snprintf(text, sizeof(text), "HTTP/1.1 200 OK\r\n%s\r\n",
		    no[i]);
		if (response(text) != REASON_FRAMING)
			fail_msg("response %s", no[i]);
	}
	assert_int_equal(request("POST / HTTP/1.0\r\n" H
	    "Transfer-Encoding: chunked\r\n\r\n"), REASON_FRAMING);
}

/* Who hands fields on as CGI does reads both blanks of a name as one. */
static void
B010_a_length_in_another_spelling_is_refused(void **state)
{
	static const char *const no[] = { "Content_Length: 3\r\n",
		"Transfer_Encoding: chunked\r\n",
		"Content-Length: 3\r\nTRANSFER_ENCODING: chunked\r\n",
		"Transfer-Encoding: chunked\r\ncontent_length: 3\r\n" };
	char text[300];

	(void)state;
	for (size_t i = 0; i < COUNT(no); i++) {
		snprintf(text, sizeof(text), "POST / HTTP/1.1\r\n" H
		    "%s\r\n", no[i]);
		if (request(text) != REASON_FRAMING)
			fail_msg("%s", no[i]);
	}
	assert_int_equal(request("GET / HTTP/1.1\r\n" H
	    "X_Length: 3\r\nContent_Type: x\r\n\r\n"), REASON_NONE);
}

static void
B010_the_one_length_is_read(void **state)
{
	(void)state;
	assert_int_equal(request("POST / HTTP/1.1\r\n" H
	    "Transfer-Encoding: Chunked\r\n\r\n"), REASON_NONE);
	assert_int_equal(rq.body, HTTP_BODY_CHUNKED);
	assert_int_equal(request("POST / HTTP/1.1\r\n" H
	    "CONTENT-LENGTH: 123456789012345678\r\n\r\n"), REASON_NONE);
	assert_true(rq.length == 123456789012345678u);
	assert_int_equal(request("POST / HTTP/1.1\r\n" H
	    "Content-Length: 0\r\n\r\n"), REASON_NONE);
	assert_int_equal(rq.body, HTTP_BODY_NONE);
}

static void
B017_a_target_that_is_no_place_is_refused(void **state)
{
	static const char *const no[] = {
		"CONNECT a.example HTTP/1.1\r\n" H "\r\n",
		"CONNECT a.example: HTTP/1.1\r\n" H "\r\n",
		"CONNECT a.example:0 HTTP/1.1\r\n" H "\r\n",
		"CONNECT a.example:65536 HTTP/1.1\r\n" H "\r\n",
		"CONNECT a.example:4294967739 HTTP/1.1\r\n" H "\r\n",
		"CONNECT :443 HTTP/1.1\r\n" H "\r\n",
		"CONNECT u@a.example:443 HTTP/1.1\r\n" H "\r\n",
		"CONNECT ::1:443 HTTP/1.1\r\n" H "\r\n",
		"CONNECT [::1:443 HTTP/1.1\r\n" H "\r\n",
		"CONNECT [a.example]:443 HTTP/1.1\r\n" H "\r\n",
		"CONNECT [127.0.0.1]:443 HTTP/1.1\r\n" H "\r\n",
		"CONNECT [fe80::1%eth0]:443 HTTP/1.1\r\n" H "\r\n",
		"CONNECT 127.1:443 HTTP/1.1\r\n" H "\r\n",
		"CONNECT 0x7f000001:443 HTTP/1.1\r\n" H "\r\n",
		"CONNECT 168361989:443 HTTP/1.1\r\n" H "\r\n",
		"CONNECT 10.9.5:443 HTTP/1.1\r\n" H "\r\n",
		"CONNECT [2001:db8::5] HTTP/1.1\r\n" H "\r\n",
		"CONNECT [fe80::1%25eth0]:443 HTTP/1.1\r\n" H "\r\n",
		"CONNECT a.example:443#x HTTP/1.1\r\n" H "\r\n",
		"GET * HTTP/1.1\r\n" H "\r\n",
		"GET a.example HTTP/1.1\r\n" H "\r\n",
		"GET https://a.example/ HTTP/1.1\r\n" H "\r\n",
		"GET ftp://a.example/ HTTP/1.1\r\n" H "\r\n",
		"GET http:///x HTTP/1.1\r\n" H "\r\n",
		"GET http://u:p@a.example/ HTTP/1.1\r\n" H "\r\n",
		"GET http://a.example/#f HTTP/1.1\r\n" H "\r\n",
		"GET /a#b HTTP/1.1\r\n" H "\r\n",
		"GET / HTTP/1.1\r\nHost: u@a.example\r\n\r\n",
		"GET / HTTP/1.1\r\nHost:\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.example:x\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a.example:99999\r\n\r\n",
	};

	(void)state;
	for (size_t i = 0; i < COUNT(no); i++)
		if (request(no[i]) != REASON_TARGET)
			fail_msg("%zu: %s", i, no[i]);
}

static void
B017_a_host_that_is_no_name_is_refused(void **state)
{
	static const char *const no[] = { "a.example, b.example", "a..b",
		"*.a.example", "a.example/x", "a.example\\x", "a_b c",
		"\xc3\xbc.example", "a.example?x", "a%2eexample" };
	char text[200];

	(void)state;
	for (size_t i = 0; i < COUNT(no); i++) {
		snprintf(text, sizeof(text),
		    "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", no[i]);
		if (request(text) != REASON_NAME_MALFORMED)
			fail_msg("%s", no[i]);
	}
}

static void
B017_a_connect_names_a_host_or_an_address_and_its_port(void **state)
{
	char text[ADDR_TEXT_BYTES];

	(void)state;
	assert_int_equal(request("CONNECT A.Example.:8443 HTTP/1.1\r\n"
	    "Host: a.example:8443\r\n\r\n"), REASON_NONE);
	assert_int_equal(rq.form, HTTP_AUTHORITY);
	assert_string_equal(rq.to.host.name, "a.example");
	assert_int_equal(rq.to.port, 8443);
	assert_int_equal(request("CONNECT a.example:443 HTTP/1.1\r\n" H
	    "\r\n"), REASON_NONE);
	assert_int_equal(request("CONNECT a.example:443 HTTP/1.0\r\n\r\n"),
	    REASON_NONE);
	assert_int_equal(request("CONNECT [2001:DB8::1]:443 HTTP/1.1\r\n"
	    "Host: [2001:db8:0::1]\r\n\r\n"), REASON_NONE);
	assert_true(rq.to.is_addr);
	assert_string_equal(addr_text(&rq.to.addr, text), "2001:db8::1");
	assert_int_equal(request("CONNECT 192.0.2.1:443 HTTP/1.1\r\n"
	    "Host: 192.0.2.1:443\r\n\r\n"), REASON_NONE);
	assert_true(rq.to.is_addr);
	assert_int_equal(request("CONNECT a.example:443 HTTP/1.1\r\n" H
	    "Content-Length: 4\r\n\r\n"), REASON_FRAMING);
}

static void
B34_a_host_that_contradicts_the_target_is_refused(void **state)
{
	static const char *const no[] = {
		"GET http://a.example/ HTTP/1.1\r\nHost: b.example\r\n\r\n",
		"GET http://a.example/ HTTP/1.1\r\nHost: a.example:81\r\n\r\n",
		"GET http://a.example:81/ HTTP/1.1\r\n" H "\r\n",
		"GET http://192.0.2.1/ HTTP/1.1\r\n" H "\r\n",
		"CONNECT a.example:443 HTTP/1.1\r\nHost: b.example\r\n\r\n",
		"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:80\r\n\r\n",
	};

	(void)state;
	for (size_t i = 0; i < COUNT(no); i++)
		if (request(no[i]) != REASON_HOST_MISMATCH)
			fail_msg("%zu: %s", i, no[i]);
}

static void
an_absolute_target_gives_its_path(void **state)
{
	(void)state;
	assert_int_equal(request("GET HTTP://A.example:80/x?y HTTP/1.1\r\n" H
	    "\r\n"), REASON_NONE);
	assert_int_equal(rq.form, HTTP_ABSOLUTE);
	assert_span(rq.path, "/x?y");
	assert_int_equal(request("GET http://a.example?q HTTP/1.1\r\n" H
	    "\r\n"), REASON_NONE);
	assert_span(rq.path, "?q");
	assert_int_equal(request("GET http://a.example HTTP/1.0\r\n\r\n"),
	    REASON_NONE);
	assert_int_equal(rq.path.len, 0);
	assert_int_equal(request("GET http://a.example/ HTTP/1.1\r\n\r\n"),
	    REASON_HEAD_MALFORMED);
	assert_int_equal(request("OPTIONS * HTTP/1.1\r\n" H "\r\n"),
	    REASON_NONE);
	assert_int_equal(rq.form, HTTP_ASTERISK);
}

static void
a_version_or_method_that_is_not_spoken_has_its_reason(void **state)
{
	(void)state;
	assert_int_equal(request("PRI * HTTP/2.0\r\n\r\n"), REASON_VERSION);
	assert_int_equal(request("GET / HTTP/2.0\r\n" H "\r\n"),
	    REASON_VERSION);
	assert_int_equal(request("GET / HTTP/1.2\r\n" H "\r\n"),
	    REASON_VERSION);
	assert_int_equal(request("GET / HTTP/0.9\r\n" H "\r\n"),
	    REASON_VERSION);
	assert_int_equal(request("TRACE / HTTP/1.1\r\n" H "\r\n"),
	    REASON_METHOD);
	assert_int_equal(request("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA / "
	    "HTTP/1.1\r\n" H "\r\n"), REASON_METHOD);
	assert_int_equal(request("PROPFIND / HTTP/1.1\r\n" H "\r\n"),
	    REASON_NONE);
	assert_int_equal(rq.method, HTTP_OTHER);
	assert_int_equal(request("get / HTTP/1.1\r\n" H "\r\n"),
	    REASON_NONE);
	assert_int_equal(rq.method, HTTP_OTHER);
}

static void
W20_an_upgrade_that_hides_the_rest_is_refused(void **state)
{
	static const char *const no[] = {
		"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
		    "HTTP2-Settings: AAMA\r\n",
		"Connection: upgrade\r\nUpgrade: websocket, h2c\r\n",
		"Upgrade: H2C\r\n",
		("Connection: upgrade\r\nUpgrade: websocket\r\n"
		    "Upgrade: h2c\r\n"),
		"Upgrade: websocket\r\nHTTP2-Settings: AAMA\r\n",
	};
	char text[300];

	(void)state;
	for (size_t i = 0; i < COUNT(no); i++) {
		snprintf(text, sizeof(text), GET "%s\r\n", no[i]);
		if (request(text) != REASON_UPGRADE)
			fail_msg("%s", no[i]);
	}
}

#define KEY "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"

static void
W20_only_a_websocket_that_connection_names_is_an_upgrade(void **state)
{
	static const char *const no_key[] = { "", KEY KEY,
		"Sec-WebSocket-Key:\r\n",
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ\r\n",
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25j\r\n",
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZWU=\r\n",
	};
	char text[300];

	(void)state;
	assert_int_equal(request(GET "Connection: keep-alive, Upgrade\r\n"
	    "Upgrade: WebSocket\r\n" KEY "\r\n"), REASON_NONE);
	assert_span(rq.upgrade, "WebSocket");
	assert_span(rq.key, "dGhlIHNhbXBsZSBub25jZQ==");
	for (size_t i = 0; i < COUNT(no_key); i++) {
		snprintf(text, sizeof(text), GET "Connection: upgrade\r\n"
		    "Upgrade: websocket\r\n%s\r\n", no_key[i]);
		assert_int_equal(request(text), REASON_NONE);
		assert_int_equal(rq.upgrade.len, 0);
	}
	assert_int_equal(request(GET "Upgrade: websocket\r\n" KEY "\r\n"),
	    REASON_NONE);
	assert_int_equal(rq.upgrade.len, 0);
	assert_int_equal(request("GET / HTTP/1.0\r\n" H
	    "Connection: upgrade\r\nUpgrade: websocket\r\n" KEY "\r\n"),
	    REASON_NONE);
	assert_int_equal(rq.upgrade.len, 0);
	assert_int_equal(request(GET "Connection: upgrade\r\n"
	    "Upgrade: TLS/1.3\r\n" KEY "\r\n"), REASON_NONE);
	assert_int_equal(rq.upgrade.len, 0);
	assert_int_equal(request("POST / HTTP/1.1\r\n" H
	    "Connection: upgrade\r\nUpgrade: websocket\r\n" KEY "\r\n"),
	    REASON_NONE);
	assert_int_equal(rq.upgrade.len, 0);
}

static void
an_expectation_is_100_continue_or_refused(void **state)
{
	(void)state;
	assert_int_equal(request(GET "Expect: 100-Continue\r\n\r\n"),
	    REASON_NONE);
	assert_true(rq.expect_continue);
	assert_int_equal(request("GET / HTTP/1.0\r\n" H
	    "Expect: 100-continue\r\n\r\n"), REASON_NONE);
	assert_false(rq.expect_continue);
	assert_int_equal(request(GET "Expect: 200-ok\r\n\r\n"),
	    REASON_EXPECTATION);
	assert_int_equal(request(GET "Expect:\r\n\r\n"), REASON_EXPECTATION);
	assert_int_equal(request(GET "Expect: 100-continue\r\n"
	    "Expect: 100-continue\r\n\r\n"), REASON_EXPECTATION);
}

static void
a_connection_is_kept_when_its_version_and_field_say_so(void **state)
{
	(void)state;
	assert_int_equal(request(GET "Connection: x, Close\r\n\r\n"),
	    REASON_NONE);
	assert_false(rq.keep_alive);
	assert_int_equal(request("GET / HTTP/1.0\r\n" H "\r\n"),
	    REASON_NONE);
	assert_false(rq.keep_alive);
	assert_int_equal(request("GET / HTTP/1.0\r\n" H
	    "Connection: keep-alive\r\n\r\n"), REASON_NONE);
	assert_true(rq.keep_alive);
}

/* A head of exactly n bytes. */
static char *
sized(size_t n)
{
	char *text = test_malloc(n + 1);
	size_t at = (size_t)sprintf(text, "%sX: ", GET);

	memset(text + at, 'x', n - at);
	memcpy(text + n - 4, "\r\n\r\n", 5);
	return text;
}

static void
a_head_has_one_limit_however_it_arrives(void **state)
{
	char *text = sized(HTTP_HEAD_MAX_BYTES);

	(void)state;
	assert_int_equal(read_request(span_str(text), strlen(text)),
	    REASON_NONE);
	assert_int_equal(read_request(span_str(text), 1000), REASON_NONE);
	test_free(text);
	text = sized(HTTP_HEAD_MAX_BYTES + 1);
	assert_int_equal(read_request(span_str(text), strlen(text)),
	    REASON_HEAD_TOO_LARGE);
	assert_int_equal(read_request(span_str(text), 1000),
	    REASON_HEAD_TOO_LARGE);
	test_free(text);
}

static void
a_head_has_a_limit_of_fields(void **state)
{
	char text[2000];
	size_t at = (size_t)sprintf(text, "%s", GET);

	(void)state;
	for (unsigned i = 1; i < HTTP_FIELDS_MAX; i++)
		at += (size_t)sprintf(text + at, "X%u: y\r\n", i);
	sprintf(text + at, "\r\n");
	assert_int_equal(request(text), REASON_NONE);
	assert_int_equal(rq.n_fields, HTTP_FIELDS_MAX);
	sprintf(text + at, "Z: y\r\n\r\n");
	assert_int_equal(request(text), REASON_HEAD_TOO_LARGE);
}

static void
what_can_be_a_request_is_told_from_the_first_bytes(void **state)
{
	static const char *const yes[] = { "", "G", "GET", "GET ", "\r",
		"\r\n", "\r\nGET / HTTP/1.1\r\n", "PROPFIND /" };
	static const char *const no[] = { "\x16\x03\x01", "SSH-2.0-x\r\n",
		" GET", "GET\r\n", "\n", "GET(", "\xff",
		"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA" };

	(void)state;
	for (size_t i = 0; i < COUNT(yes); i++)
		assert_true(http_looks_like_request(span_str(yes[i])));
	for (size_t i = 0; i < COUNT(no); i++)
		assert_false(http_looks_like_request(span_str(no[i])));
}

/* ---- responses ---- */

static void
N07_a_body_without_a_length_ends_with_the_connection(void **state)
{
	(void)state;
	assert_int_equal(response("HTTP/1.1 200 OK\r\n\r\n"), REASON_NONE);
	assert_int_equal(rs.body, HTTP_BODY_CLOSE);
	assert_false(rs.keep_alive);
	assert_int_equal(response("HTTP/1.0 200\r\n"
	    "Connection: keep-alive\r\n\r\n"), REASON_NONE);
	assert_int_equal(rs.body, HTTP_BODY_CLOSE);
	assert_false(rs.keep_alive);
	assert_int_equal(response("HTTP/1.1 200 OK\r\n"
	    "Content-Length: 0\r\n\r\n"), REASON_NONE);
	assert_int_equal(rs.body, HTTP_BODY_NONE);
	assert_true(rs.keep_alive);
}

static void
N07_an_answer_that_has_no_body_has_none_whatever_it_says(void **state)
{
	(void)state;
	assert_int_equal(response_to(HTTP_HEAD, "HTTP/1.1 200 OK\r\n"
	    "Content-Length: 9\r\n\r\n"), REASON_NONE);
	assert_int_equal(rs.body, HTTP_BODY_NONE);
	assert_true(rs.keep_alive);
	assert_int_equal(response("HTTP/1.1 304 Not Modified\r\n"
	    "Content-Length: 9\r\n\r\n"), REASON_NONE);
	assert_int_equal(rs.body, HTTP_BODY_NONE);
	assert_int_equal(response("HTTP/1.1 304 Not Modified\r\n"
	    "Transfer-Encoding: chunked\r\n\r\n"), REASON_NONE);
	assert_int_equal(rs.body, HTTP_BODY_NONE);
	assert_int_equal(response("HTTP/1.1 204 No Content\r\n\r\n"),
	    REASON_NONE);
	assert_int_equal(rs.body, HTTP_BODY_NONE);
	assert_int_equal(response("HTTP/1.1 204 No Content\r\n"
	    "Content-Length: 0\r\n\r\n"), REASON_NONE);
	assert_int_equal(rs.body, HTTP_BODY_NONE);
}

/* It may not say that it has one (RFC 9110 8.6, RFC 9112 6.1): not every
 * client knows that it has none. */
static void
N07_an_answer_that_must_have_no_body_says_so(void **state)
{
	static const char *const heads[] = { "100 Continue", "101 Switching",
		"103 Early Hints", "199 x", "204 No Content" };
	static const char *const says[] = { "Content-Length: 1",
		"Transfer-Encoding: chunked" };
	char text[100];

	(void)state;
	for (size_t i = 0; i < COUNT(heads); i++)
		for (size_t k = 0; k < COUNT(says); k++) {
			snprintf(text, sizeof(text), "HTTP/1.1 %s\r\n%s\r\n"
			    "\r\n", heads[i], says[k]);
			assert_int_equal(response(text), REASON_FRAMING);
			assert_int_equal(response_to(HTTP_HEAD, text),
			    REASON_FRAMING);
		}
}

static void
N08_interim_answers_are_read_one_by_one(void **state)
{
	static const char all[] = "HTTP/1.1 100 Continue\r\n\r\n"
	    "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
	    "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
	static const unsigned statuses[] = { 100, 103, 200 };
	struct span rest = span_str(all);

	(void)state;
	for (size_t i = 0; i < COUNT(statuses); i++) {
		struct span head;

		assert_int_equal(read_response(rest, HTTP_GET, 1),
		    REASON_NONE);
		assert_int_equal(rs.status, statuses[i]);
		assert_int_equal(rs.body, i < 2 ? HTTP_BODY_NONE :
		    HTTP_BODY_LENGTH);
		assert_true(span_take(&rest, rs.head_bytes, &head));
	}
	assert_span(rest, "ok");
}

static void
N08_an_upgrade_is_the_one_that_was_asked_for(void **state)
{
#define SWITCH "HTTP/1.1 101 Switching\r\n"
#define TO_WEBSOCKET "Connection: upgrade\r\nUpgrade: websocket\r\n"
#define OUR_ACCEPT "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
#define ACCEPT "Sec-WebSocket-Accept: " OUR_ACCEPT "\r\n"
	static const char *const no[] = {
		SWITCH ACCEPT "\r\n",
		SWITCH ACCEPT "Upgrade: websocket\r\n\r\n",
		SWITCH ACCEPT "Connection: upgrade\r\n\r\n",
		SWITCH ACCEPT "Connection: upgrade\r\nUpgrade:\r\n\r\n",
		SWITCH ACCEPT "Connection: upgrade\r\nUpgrade: h2c\r\n\r\n",
		SWITCH ACCEPT "Connection: upgrade\r\n"
		    "Upgrade: websocket, h2c\r\n\r\n",
		SWITCH ACCEPT "Connection: upgrade\r\n"
		    "Upgrade: websocket2\r\n\r\n",
		SWITCH ACCEPT "Connection: upgrade\r\n"
		    "Upgrade: websocket\r\nUpgrade: h2c\r\n\r\n",
		SWITCH ACCEPT "Connection: upgraded\r\n"
		    "Upgrade: websocket\r\n\r\n",
		"HTTP/1.1 200 OK\r\nConnection: upgrade\r\n"
		    "Upgrade: websocket\r\n" ACCEPT "\r\n",
		SWITCH TO_WEBSOCKET "\r\n",
		SWITCH TO_WEBSOCKET ACCEPT ACCEPT "\r\n",
		SWITCH TO_WEBSOCKET "Sec-WebSocket-Accept: "
		    "S3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
	};

	(void)state;
	for (size_t i = 0; i < COUNT(no); i++) {
		assert_int_equal(response(no[i]), REASON_NONE);
		if (http_response_upgrades(&rs, OUR_ACCEPT))
			fail_msg("%zu: %s", i, no[i]);
	}
	assert_int_equal(response(SWITCH "Connection: x, Upgrade\r\n"
	    "Upgrade: WebSocket\r\n" ACCEPT "\r\n"), REASON_NONE);
	assert_true(http_response_upgrades(&rs, OUR_ACCEPT));
	assert_false(http_response_upgrades(&rs, "x"));
}

/* The example of RFC 6455 1.3. */
static void
the_answer_to_a_websocket_key(void **state)
{
	char out[HTTP_ACCEPT_BYTES];

	(void)state;
	assert_true(http_websocket_accept(
	    span_str("dGhlIHNhbXBsZSBub25jZQ=="), out));
	assert_string_equal(out, OUR_ACCEPT);
	assert_false(http_websocket_accept(span_str(
	    "dGhlIHNhbXBsZSBub25jZQdGhlIHNhbXBsZSBub25jZQ=="), out));
}

static void
a_malformed_answer_is_refused(void **state)
{
	static const char *const no[] = { "\r\n\r\n", "HTTP/1.1\r\n\r\n",
		"HTTP/1.1 20 OK\r\n\r\n", "HTTP/1.1 2000 OK\r\n\r\n",
		"HTTP/1.1 2x0 OK\r\n\r\n", "HTTP/2.0 200 OK\r\n\r\n",
		"HTTP/1.1 099 OK\r\n\r\n", "HTTP/1.1 600 OK\r\n\r\n",
		"HTTP/1.1  200 OK\r\n\r\n", "ICY 200 OK\r\n\r\n",
		"HTTP/1.1 200 OK\nX: y\r\n\r\n", "HTTP/1.1 200 a\x01\r\n\r\n",
		"HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n",
		"HTTP/1.1 200 OK\r\nX : a\r\n\r\n",
		"HTTP/1.1 200 OK\r\nX: a\rb\r\n\r\n" };

	(void)state;
	for (size_t i = 0; i < COUNT(no); i++)
		if (response(no[i]) != REASON_UPSTREAM_MALFORMED)
			fail_msg("%zu: %s", i, no[i]);
}

/* RFC 9112 2.2: who says no version waits, and sends nothing more. */
static void
a_first_line_that_is_wrong_is_refused_at_its_end(void **state)
{
	static const struct { const char *text; enum reason why; } rows[] = {
		{ "GET /\r\n", REASON_HEAD_MALFORMED },
		{ "\r\nGET /\r\n", REASON_HEAD_MALFORMED },
		{ "GET / HTTP/0.9\r\n", REASON_VERSION },
		{ "GET / HTTP/1.1\n", REASON_HEAD_MALFORMED },
		{ "GET ftp://a.example/ HTTP/1.1\r\n", REASON_TARGET },
		{ "TRACE / HTTP/1.1\r\n", REASON_METHOD },
	};
	enum reason why;
	size_t scanned = 0;

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++)
		if (request(rows[i].text) != rows[i].why)
			fail_msg("%s", rows[i].text);
	assert_int_equal(http_request_parse(span_str("GET / HTTP/1.1\r\n"),
	    &scanned, 80, &rq, &why), PARSE_MORE);
	assert_int_equal(response("SSH-2.0-x\r\n"),
	    REASON_UPSTREAM_MALFORMED);
	assert_int_equal(response("HTTP/3.0 200 OK\r\n"),
	    REASON_UPSTREAM_MALFORMED);
}

/* ---- credentials ---- */

static void
a_basic_credential_is_a_user_and_a_password(void **state)
{
	static const char *const no[] = { "", "Basic", "Basic ", "Basic !!",
		"Basic YWJj", "Bearer YTpi", "Basic YTpi YTpi", "Basic YTpi=" };
	struct span user, password;
	uint8_t buf[16];

	(void)state;
	assert_true(http_basic(span_str("basic YTpiOmM="), buf, sizeof(buf),
	    &user, &password));
	assert_span(user, "a");
	assert_span(password, "b:c");
	for (size_t i = 0; i < COUNT(no); i++)
		if (http_basic(span_str(no[i]), buf, sizeof(buf), &user,
		    &password))
			fail_msg("%s", no[i]);
	assert_false(http_basic(span_str("Basic YTpiOmM="), buf, 4, &user,
	    &password));
}

static void
what_connection_lists_has_a_bound(void **state)
{
	char text[4096];
	size_t at;

	(void)state;
	for (unsigned n = HTTP_OPTIONS_MAX; n <= HTTP_OPTIONS_MAX + 1; n++) {
		at = (size_t)sprintf(text, GET "Connection: ");
		for (unsigned i = 0; i < n; i++)
			at += (size_t)sprintf(text + at, "a%u,%s", i,
			    i == 5 ? "\r\nConnection: " : "");
		(void)sprintf(text + at, "\r\n\r\n");
		assert_int_equal(request(text), n > HTTP_OPTIONS_MAX ?
		    REASON_HEAD_TOO_LARGE : REASON_NONE);
	}
	at = (size_t)sprintf(text, GET "Connection: ");
	memset(text + at, ',', HTTP_OPTIONS_MAX_BYTES + 1);
	(void)sprintf(text + at + HTTP_OPTIONS_MAX_BYTES + 1, "a\r\n\r\n");
	assert_int_equal(request(text), REASON_HEAD_TOO_LARGE);
}

/* What a refused head tells all the same. */
static void
a_glance_finds_the_place_behind_what_is_refused(void **state)
{
	static const struct {
		const char *head, *host, *other;
		uint16_t port;
	} t[] = {
		{ "GET http://u:p@evil.test:81/ HTTP/1.1\r\n\r\n",
		    "evil.test", "", 81 },
		{ "GET http://a@b@evil.test/ HTTP/1.1\r\n\r\n",
		    "evil.test", "", 80 },
		{ "GET / HTTP/1.1\r\nHost: u@evil.test\r\n\r\n",
		    "evil.test", "", 8080 },
		{ "CONNECT evil.test HTTP/1.1\r\n\r\n", "evil.test", "", 0 },
		{ "CONNECT u@evil.test:443 HTTP/1.1\r\n\r\n",
		    "evil.test", "", 443 },
		{ "GET https://evil.test/ HTTP/9\r\nHost: a.example\r\n",
		    "evil.test", "a.example", 443 },
		{ "GET / HTTP/1.1\r\nHost: a.example\r\nHost: evil.test\r\n",
		    "a.example", "evil.test", 8080 },
		{ "\r\n \nGET\nhost : Evil.Test.\n\n", "evil.test", "", 8080 },
		{ "GET / HTTP/1.1\r\nHost: 0x7f.1\r\n\r\n", "", "", 0 },
		{ "\x16\3\1 http://evil.test/", "", "", 0 },
		{ "", "", "", 0 },
	};
	struct host other;

	(void)state;
	for (size_t i = 0; i < COUNT(t); i++) {
		http_request_glance(span_str(t[i].head), 8080, &rq, &other);
		if (!span_eq(span_of(rq.to.host.name, rq.to.host.len),
		    span_str(t[i].host)) || rq.to.port != t[i].port ||
		    !span_eq(span_of(other.name, other.len),
		    span_str(t[i].other)))
			fail_msg("%s: %s:%u, %s", t[i].head, rq.to.host.name,
			    rq.to.port, other.name);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
		    a_glance_finds_the_place_behind_what_is_refused),
		cmocka_unit_test(a_request_is_read_whole_and_byte_by_byte),
		cmocka_unit_test(bytes_after_the_head_are_left_alone),
		cmocka_unit_test(one_empty_line_before_the_request_is_forgiven),
		cmocka_unit_test(B016_a_head_that_has_two_readings_is_malformed),
		cmocka_unit_test(B016_a_nul_is_malformed_wherever_it_stands),
		cmocka_unit_test(B010_a_message_with_two_lengths_is_refused),
		cmocka_unit_test(B010_a_length_in_another_spelling_is_refused),
		cmocka_unit_test(B010_the_one_length_is_read),
		cmocka_unit_test(B017_a_target_that_is_no_place_is_refused),
		cmocka_unit_test(B017_a_host_that_is_no_name_is_refused),
		cmocka_unit_test(
		    B017_a_connect_names_a_host_or_an_address_and_its_port),
		cmocka_unit_test(
		    B34_a_host_that_contradicts_the_target_is_refused),
		cmocka_unit_test(an_absolute_target_gives_its_path),
		cmocka_unit_test(
		    a_version_or_method_that_is_not_spoken_has_its_reason),
		cmocka_unit_test(W20_an_upgrade_that_hides_the_rest_is_refused),
		cmocka_unit_test(
		    W20_only_a_websocket_that_connection_names_is_an_upgrade),
		cmocka_unit_test(an_expectation_is_100_continue_or_refused),
		cmocka_unit_test(
		    a_connection_is_kept_when_its_version_and_field_say_so),
		cmocka_unit_test(a_head_has_one_limit_however_it_arrives),
		cmocka_unit_test(a_head_has_a_limit_of_fields),
		cmocka_unit_test(
		    what_can_be_a_request_is_told_from_the_first_bytes),
		cmocka_unit_test(
		    N07_a_body_without_a_length_ends_with_the_connection),
		cmocka_unit_test(
		    N07_an_answer_that_has_no_body_has_none_whatever_it_says),
		cmocka_unit_test(N07_an_answer_that_must_have_no_body_says_so),
		cmocka_unit_test(the_answer_to_a_websocket_key),
		cmocka_unit_test(N08_interim_answers_are_read_one_by_one),
		cmocka_unit_test(N08_an_upgrade_is_the_one_that_was_asked_for),
		cmocka_unit_test(a_malformed_answer_is_refused),
		cmocka_unit_test(
		    a_first_line_that_is_wrong_is_refused_at_its_end),
		cmocka_unit_test(a_basic_credential_is_a_user_and_a_password),
		cmocka_unit_test(what_connection_lists_has_a_bound),
	};

	return cmocka_run_group_tests(tests, NULL, down);
}
