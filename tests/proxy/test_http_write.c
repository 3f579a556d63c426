/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "proxy/http.h"

static struct http_request rq;
static struct http_response rs;
static char out[70000];

static const char *
sent(const char *text, bool upgrade)
{
	enum reason why;
	size_t scanned = 0, n;

	assert_int_equal(http_request_parse(span_str(text), &scanned, 80, &rq,
	    &why), PARSE_DONE);
	n = http_request_write(&rq, upgrade, (uint8_t *)out,
	    sizeof(out) - 1);
	assert_in_range(n, 1, rq.head_bytes + 512);
	out[n] = '\0';
	return out;
}

static const char *
answered_to(unsigned minor, const char *text, enum http_then then)
{
	enum reason why;
	size_t scanned = 0, n;

	assert_int_equal(http_response_parse(span_str(text), &scanned,
	    HTTP_GET, &rs, &why), PARSE_DONE);
	n = http_response_write(&rs, minor, then, (uint8_t *)out,
	    sizeof(out) - 1);
	assert_in_range(n, 1, rs.head_bytes + 512);
	out[n] = '\0';
	return out;
}

static const char *
answered(const char *text, enum http_then then)
{
	return answered_to(1, text, then);
}

static void
a_request_goes_on_in_origin_form_with_host_first_and_via(void **state)
{
	(void)state;
	assert_string_equal(sent("GET http://A.Example:8080/x?y HTTP/1.1\r\n"
	    "Accept:  */*\r\nHost: a.example:8080\r\nX-y: z\r\n\r\n", false),
	    "GET /x?y HTTP/1.1\r\nHost: a.example:8080\r\nAccept: */*\r\n"
	    "X-y: z\r\nVia: 1.1 penstock\r\n\r\n");
	assert_string_equal(sent("GET http://a.example?q HTTP/1.1\r\n"
	    "Host: a.example\r\n\r\n", false), "GET /?q HTTP/1.1\r\n"
	    "Host: a.example\r\nVia: 1.1 penstock\r\n\r\n");
	assert_string_equal(sent("OPTIONS http://a.example HTTP/1.1\r\n"
	    "Host: a.example\r\n\r\n", false), "OPTIONS * HTTP/1.1\r\n"
	    "Host: a.example\r\nVia: 1.1 penstock\r\n\r\n");
}

/* RFC 9110 2.5, 10.1.1: the version is ours, and it waits for no 100. */
static void
a_request_of_1_0_goes_on_as_1_1_without_expect(void **state)
{
	(void)state;
	assert_string_equal(sent("GET http://a.example HTTP/1.0\r\n\r\n",
	    false), "GET / HTTP/1.1\r\nHost: a.example\r\n"
	    "Via: 1.0 penstock\r\nConnection: close\r\n\r\n");
	assert_string_equal(sent("PUT /u HTTP/1.0\r\nHost: a.example\r\n"
	    "expect: 100-Continue\r\nContent-Length: 1\r\n"
	    "Connection: keep-alive\r\n\r\n", false), "PUT /u HTTP/1.1\r\n"
	    "Host: a.example\r\nContent-Length: 1\r\n"
	    "Via: 1.0 penstock\r\nConnection: close\r\n\r\n");
	sent("PUT /u HTTP/1.1\r\nHost: a.example\r\n"
	    "Expect: 100-continue\r\nContent-Length: 1\r\n\r\n", false);
	assert_non_null(strstr(out, "\r\nExpect: 100-continue\r\n"));
}

/* RFC 9112 6.1: not even where no body follows. */
static void
a_client_of_1_0_is_told_of_no_chunks(void **state)
{
	static const char text[] = "HTTP/1.1 200 OK\r\nTrailer: X\r\n"
	    "transfer-encoding: Chunked\r\nX: 1\r\n\r\n";

	(void)state;
	assert_string_equal(answered_to(0, text, HTTP_THEN_CLOSE),
	    "HTTP/1.1 200 OK\r\nX: 1\r\nVia: 1.1 penstock\r\n"
	    "Connection: close\r\n\r\n");
	assert_string_equal(answered_to(1, text, HTTP_THEN_KEEP),
	    "HTTP/1.1 200 OK\r\nTrailer: X\r\n"
	    "transfer-encoding: Chunked\r\nX: 1\r\nVia: 1.1 penstock\r\n"
	    "Connection: keep-alive\r\n\r\n");
	assert_string_equal(answered_to(0, "HTTP/1.1 200 OK\r\n"
	    "Content-Length: 2\r\n\r\n", HTTP_THEN_KEEP),
	    "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n"
	    "Via: 1.1 penstock\r\nConnection: keep-alive\r\n\r\n");
}

static void
an_address_is_written_as_a_host(void **state)
{
	(void)state;
	sent("GET / HTTP/1.1\r\nHost: [2001:DB8::1]:81\r\n\r\n", false);
	assert_non_null(strstr(out, "\r\nHost: [2001:db8::1]:81\r\n"));
	sent("GET / HTTP/1.1\r\nHost: 192.0.2.1\r\n\r\n", false);
	assert_non_null(strstr(out, "\r\nHost: 192.0.2.1\r\n"));
}

static void
a_field_for_one_hop_stays_here(void **state)
{
	(void)state;
	assert_string_equal(sent("GET / HTTP/1.1\r\nHost: a.example\r\n"
	    "Connection: keep-alive, X-Hop ,, x-other\r\nKeep-Alive: 5\r\n"
	    "TE: trailers\r\nx-hop: 1\r\nX-OTHER: 2\r\nX-Hopp: 3\r\n"
	    "Upgrade: foo\r\nProxy-Connection: close\r\nCookie: a\r\n\r\n",
	    false), "GET / HTTP/1.1\r\nHost: a.example\r\nX-Hopp: 3\r\n"
	    "Cookie: a\r\nVia: 1.1 penstock\r\n\r\n");
}

static void
what_frames_a_message_stays_whatever_connection_says(void **state)
{
	(void)state;
	sent("POST / HTTP/1.1\r\nHost: a.example\r\n"
	    "Connection: Content-Length, Host\r\nContent-Length: 3\r\n\r\n",
	    false);
	assert_non_null(strstr(out, "\r\nContent-Length: 3\r\n"));
	assert_non_null(strstr(out, "\r\nHost: a.example\r\n"));
	sent("POST / HTTP/1.1\r\nHost: a.example\r\n"
	    "Connection: transfer-encoding\r\n"
	    "Transfer-Encoding: chunked\r\n\r\n", false);
	assert_non_null(strstr(out, "\r\nTransfer-Encoding: chunked\r\n"));
}

static void
W29_a_proxy_credential_is_never_forwarded(void **state)
{
	(void)state;
	sent("GET / HTTP/1.1\r\nHost: a.example\r\n"
	    "Proxy-Authorization: Basic YTpi\r\n"
	    "proxy-authorization: Basic YTpj\r\n"
	    "PROXY-Authenticate: x\r\nAuthorization: Bearer t\r\n\r\n",
	    false);
	assert_null(strcasestr(out, "proxy-auth"));
	assert_null(strstr(out, "YTp"));
	assert_non_null(strstr(out, "\r\nAuthorization: Bearer t\r\n"));
	answered("HTTP/1.1 200 OK\r\nProxy-Authenticate: Basic\r\n"
	    "Proxy-Authentication-Info: x\r\n\r\n", HTTP_THEN_CLOSE);
	assert_null(strcasestr(out, "proxy-"));
}

static void
W20_an_upgrade_goes_on_only_when_asked_for(void **state)
{
	static const char text[] = "GET / HTTP/1.1\r\nHost: a.example\r\n"
	    "Connection: Upgrade\r\nUpgrade: websocket\r\n"
	    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

	(void)state;
	assert_string_equal(sent(text, true), "GET / HTTP/1.1\r\n"
	    "Host: a.example\r\n"
	    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
	    "Via: 1.1 penstock\r\nConnection: upgrade\r\n"
	    "Upgrade: websocket\r\n\r\n");
	sent(text, false);
	assert_null(strcasestr(out, "upgrade"));
}

static void
an_answer_says_how_its_connection_goes_on(void **state)
{
	(void)state;
	assert_string_equal(answered("HTTP/1.0 200 Fine\r\n"
	    "Connection: keep-alive, x\r\nX: 1\r\nContent-Length: 3\r\n\r\n",
	    HTTP_THEN_KEEP), "HTTP/1.1 200 Fine\r\nContent-Length: 3\r\n"
	    "Via: 1.0 penstock\r\nConnection: keep-alive\r\n\r\n");
	assert_string_equal(answered("HTTP/1.1 404\r\n\r\n",
	    HTTP_THEN_CLOSE), "HTTP/1.1 404 \r\nVia: 1.1 penstock\r\nConnection: close\r\n\r\n");
	assert_string_equal(answered("HTTP/1.1 101 Switching\r\n"
	    "Connection: upgrade\r\nUpgrade: websocket\r\n\r\n",
	    HTTP_THEN_UPGRADE), "HTTP/1.1 101 Switching\r\nVia: 1.1 penstock\r\n"
	    "Connection: upgrade\r\nUpgrade: websocket\r\n\r\n");
	assert_string_equal(answered("HTTP/1.1 204 Gone\r\n"
	    "Content-Length: 0\r\nX: y\r\n\r\n", HTTP_THEN_KEEP),
	    "HTTP/1.1 204 Gone\r\nX: y\r\nVia: 1.1 penstock\r\n"
	    "Connection: keep-alive\r\n\r\n");
	assert_string_equal(answered("HTTP/1.1 100 Continue\r\n\r\n",
	    HTTP_THEN_CLOSE), "HTTP/1.1 100 Continue\r\nVia: 1.1 penstock\r\n\r\n");
}

static void
a_head_that_does_not_fit_is_not_written(void **state)
{
	size_t need;

	(void)state;
	need = strlen(sent("GET /a HTTP/1.1\r\nHost: a.example\r\nX: y\r\n\r\n",
	    false));
	for (size_t n = 0; n < need; n++) {
		out[n] = '!';
		assert_int_equal(http_request_write(&rq, false,
		    (uint8_t *)out, n), 0);
		assert_int_equal(out[n], '!');
	}
	assert_int_equal(http_request_write(&rq, false, (uint8_t *)out,
	    need), need);
}

static void
what_was_written_reads_the_same_again(void **state)
{
	char once[1000];

	(void)state;
	sent("POST http://a.example/x HTTP/1.1\r\nHost: a.example\r\n"
	    "Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n",
	    false);
	memcpy(once, out, strlen(out) + 1);
	sent(once, false);
	assert_int_equal(rq.body, HTTP_BODY_CHUNKED);
	assert_string_equal(rq.to.host.name, "a.example");
	assert_true(rq.expect_continue);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
		    a_request_goes_on_in_origin_form_with_host_first_and_via),
		cmocka_unit_test(
		    a_request_of_1_0_goes_on_as_1_1_without_expect),
		cmocka_unit_test(a_client_of_1_0_is_told_of_no_chunks),
		cmocka_unit_test(an_address_is_written_as_a_host),
		cmocka_unit_test(a_field_for_one_hop_stays_here),
		cmocka_unit_test(
		    what_frames_a_message_stays_whatever_connection_says),
		cmocka_unit_test(W29_a_proxy_credential_is_never_forwarded),
		cmocka_unit_test(W20_an_upgrade_goes_on_only_when_asked_for),
		cmocka_unit_test(an_answer_says_how_its_connection_goes_on),
		cmocka_unit_test(a_head_that_does_not_fit_is_not_written),
		cmocka_unit_test(what_was_written_reads_the_same_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
