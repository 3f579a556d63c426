/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "proxy/refuse.h"

static uint8_t out[REFUSE_MAX_BYTES];
static uint8_t hostile[600];

static int
up(void **state)
{
	static const char head[] = "\r\n\r\nHTTP/1.1 200 OK\r\n\"\\\0"
	    "\x1b[2J";

	(void)state;
	for (size_t i = 0; i < sizeof(hostile); i++)
		hostile[i] = (uint8_t)(i * 7 + 10);
	memcpy(hostile, head, sizeof(head));
	return 0;
}

/* The answer's parts; every byte is printable but the CR LF of the head and
 * the LF that ends the body. */
static const char *
answer(const struct refusal *r, size_t *body_len)
{
	size_t n = refuse_http(r, out), ends = 0, from = 0;
	const char *length = NULL;

	assert_in_range(n, 1, REFUSE_MAX_BYTES);
	for (size_t i = 0; i < n && ends == 0; i++) {
		if (i >= 3 && memcmp(out + i - 3, "\r\n\r\n", 4) == 0)
			ends = i + 1;
		if (out[i] == '\r' || out[i] == '\n')
			assert_int_equal(out[i] == '\r' ? out[i + 1] :
			    out[i - 1], out[i] == '\r' ? '\n' : '\r');
		else
			assert_in_range(out[i], 0x20, 0x7e);
		if (out[i] == '\n' && i - from > 15 &&
		    memcmp(out + from, "Content-Length:", 15) == 0)
			length = (const char *)out + from + 15;
		if (out[i] == '\n')
			from = i + 1;
	}
	assert_true(ends > 0);
	assert_non_null(length);
	for (size_t i = ends; i < n; i++)
		if (i + 1 < n)
			assert_in_range(out[i], 0x20, 0x7e);
	*body_len = n - ends;
	if (!r->head_only) {
		assert_int_equal(strtoul(length, NULL, 10), *body_len);
		assert_int_equal(out[n - 1], '\n');
	} else {
		assert_int_equal(*body_len, 0);
	}
	return (const char *)out + ends;
}

static void
every_reason_has_a_status_an_error_and_its_word(void **state)
{
	char line[64];

	(void)state;
	for (unsigned i = 0; i < REASON_COUNT; i++) {
		struct refusal r = { .reason = (enum reason)i, .minor = 1,
		    .place = span_str("evil.test:443") };
		struct http_response rs;
		size_t n, scanned = 0, body;
		enum reason why;

		answer(&r, &body);
		n = refuse_http(&r, out);
		assert_int_equal(http_response_parse(span_of(out, n),
		    &scanned, HTTP_GET, &rs, &why), PARSE_DONE);
		assert_int_equal(rs.status, refuse_status(r.reason));
		assert_in_range(rs.status, 400, 599);
		assert_int_equal(rs.body, HTTP_BODY_LENGTH);
		assert_int_equal(rs.length, n - rs.head_bytes);
		assert_false(rs.keep_alive);
		assert_non_null(http_field_find(rs.fields, rs.n_fields,
		    "Proxy-Status"));
		assert_true(strlen(refuse_proxy_error(r.reason)) > 0);
		snprintf(line, sizeof(line), ": %s evil.test:443",
		    reason_word(r.reason));
		out[rs.head_bytes - 1] = '\0';
		assert_non_null(strstr((const char *)out, line));
	}
}

static void
a_final_no_is_never_said_to_be_unavailable(void **state)
{
	static const enum reason final[] = { REASON_NONE, REASON_NO_RULE,
		REASON_RULE_DENY, REASON_CIDR_DENY, REASON_SPECIAL_USE,
		REASON_PRIVATE_ADDRESS, REASON_OWN_LISTENER,
		REASON_UNKNOWN_CELL, REASON_NOT_PINNED, REASON_NAMELESS,
		REASON_ADDRESS_LITERAL, REASON_NO_SNI, REASON_ECH,
		REASON_SNI_MISMATCH, REASON_HOST_MISMATCH,
		REASON_SECOND_HELLO, REASON_OTHER_NAME, REASON_PROTOCOL,
		REASON_NESTED_PROXY };
	uint8_t alert[REFUSE_ALERT_BYTES];

	(void)state;
	for (size_t i = 0; i < sizeof(final) / sizeof(final[0]); i++) {
		assert_int_equal(refuse_status(final[i]), 403);
		refuse_alert(final[i], alert);
		assert_memory_equal(alert, "\x15\x03\x03\0\2\2\x31", 7);
	}
	/* and only what may be other the next moment is 503 */
	for (unsigned i = 0; i < REASON_COUNT; i++) {
		enum reason r = (enum reason)i;

		if (refuse_status(r) == 503)
			assert_true(r == REASON_LIMIT_TOTAL ||
			    r == REASON_LIMIT_CELL ||
			    r == REASON_LIMIT_CLIENT ||
			    r == REASON_LIMIT_DESCRIPTORS ||
			    r == REASON_LIMIT_MEMORY ||
			    r == REASON_RESOLVER_UNAVAILABLE ||
			    r == REASON_LEDGER_UNAVAILABLE ||
			    r == REASON_POLICY_UNAVAILABLE ||
			    r == REASON_DRAINING);
	}
}

static void
N38_hostile_and_long_words_stay_inside_one_answer(void **state)
{
	struct span all = span_of(hostile, sizeof(hostile));

	(void)state;
	for (unsigned i = 0; i < REASON_COUNT; i++)
		for (unsigned how = 0; how < 8; how++) {
			struct refusal r = { .reason = (enum reason)i,
			    .place = all, .rule = all, .words = all,
			    .help = all, .json = how & 1,
			    .head_only = (how & 2) != 0,
			    .minor = how >> 2 };
			size_t len;

			answer(&r, &len);
		}
}

static void
N38_every_length_of_a_word_is_answered(void **state)
{
	(void)state;
	for (size_t n = 0; n <= sizeof(hostile); n++) {
		struct span s = span_of(hostile, n);
		struct refusal r = { .reason = REASON_NO_RULE, .place = s,
		    .rule = s, .words = s, .help = s, .json = n % 2 == 0 };
		size_t len;

		answer(&r, &len);
	}
}

static void
the_json_form_is_json_whatever_it_reports(void **state)
{
	struct span all = span_of(hostile, sizeof(hostile));

	(void)state;
	for (unsigned i = 0; i < REASON_COUNT; i++) {
		struct refusal r = { .reason = (enum reason)i, .place = all,
		    .rule = all, .words = all, .help = all, .json = true,
		    .minor = 1 };
		const char *body;
		json_error_t error;
		size_t len;
		json_t *j;

		body = answer(&r, &len);
		j = json_loadb(body, len, JSON_REJECT_DUPLICATES, &error);
		if (j == NULL)
			fail_msg("%s", error.text);
		assert_string_equal(json_string_value(json_object_get(j,
		    "reason")), reason_word(r.reason));
		assert_int_equal(json_integer_value(json_object_get(j,
		    "status")), refuse_status(r.reason));
		json_decref(j);
	}
}

static void
the_text_form_names_the_rule_its_words_and_the_help(void **state)
{
	struct refusal r = { .reason = REASON_RULE_DENY, .minor = 1,
	    .place = span_str("evil.test:443"), .rule = span_str("no-evil"),
	    .words = span_str("known bad"), .help = span_str("ask ops") };
	char text[REFUSE_MAX_BYTES + 1];
	size_t n = refuse_http(&r, out);

	(void)state;
	memcpy(text, out, n);
	text[n] = '\0';
	assert_memory_equal(text, "HTTP/1.1 403 Denied by penstock: "
	    "rule_deny evil.test:443 rule no-evil\r\n", 71);
	assert_non_null(strstr(text, " known bad."));
	assert_non_null(strstr(text, "ask ops"));
	assert_non_null(strstr(text, "penstock; error=http_request_denied;"));
}

static void
the_help_ends_every_refusal(void **state)
{
	char text[REFUSE_MAX_BYTES + 1];

	(void)state;
	for (unsigned why = 1; why < REASON_COUNT; why++) {
		const struct refusal r = { .reason = (enum reason)why,
		    .minor = 1, .place = span_str("a.test:80"),
		    .help = span_str("ask ops") };
		size_t n = refuse_http(&r, out);

		memcpy(text, out, n);
		text[n] = '\0';
		if (n < 11 || strcmp(text + n - 11, ": ask ops.\n") != 0)
			fail_msg("%s: %s", reason_word(r.reason), text);
	}
}

/* "penstock refused -: ..." was no sentence. */
static void
what_is_not_known_is_left_out_of_the_words(void **state)
{
	static const struct {
		const char *place, *rule, *line, *body;
	} t[] = {
		{ "", "", "HTTP/1.1 400 Bad request to penstock: "
		    "head_malformed\r\n", "\r\n\r\npenstock refused this "
		    "request: the HTTP head is malformed "
		    "(head_malformed).\n" },
		{ "a.test:80", "", "HTTP/1.1 400 Bad request to penstock: "
		    "head_malformed a.test:80\r\n", "\r\n\r\npenstock "
		    "refused a.test:80: the HTTP head is malformed "
		    "(head_malformed).\n" },
		{ "", "no-a", "HTTP/1.1 400 Bad request to penstock: "
		    "head_malformed rule no-a\r\n", " (head_malformed, "
		    "rule no-a).\n" },
	};
	char text[REFUSE_MAX_BYTES + 1], details[100];

	(void)state;
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		struct refusal r = { .reason = REASON_HEAD_MALFORMED,
		    .minor = 1, .place = span_str(t[i].place),
		    .rule = span_str(t[i].rule) };
		size_t n = refuse_http(&r, out), len;

		memcpy(text, out, n);
		text[n] = '\0';
		assert_memory_equal(text, t[i].line, strlen(t[i].line));
		assert_non_null(strstr(text, t[i].body));
		len = strlen(t[i].line) - strlen("HTTP/1.1 400 Bad request "
		    "to penstock: \r\n");
		snprintf(details, sizeof(details), "; details=\"%.*s\"\r\n",
		    (int)len, t[i].line + 38);
		if (strstr(text, details) == NULL)
			fail_msg("'%s' is not in '%s'", details, text);
		r.json = true;
		answer(&r, &len);
		assert_null(strstr((char *)out, "\"-\""));
	}
}

static void
an_alert_says_what_kind_of_no_it_is(void **state)
{
	static const struct { enum reason r; uint8_t alert; } is[] = {
		{ REASON_NO_RULE, 49 }, { REASON_AUTH_FAILED, 49 },
		{ REASON_HELLO_MALFORMED, 50 },
		{ REASON_HELLO_TOO_LARGE, 50 },
		{ REASON_HELLO_SSLV2, 40 }, { REASON_NAME_MALFORMED, 112 },
		{ REASON_INTERNAL, 80 }, { REASON_LIMIT_TOTAL, 80 },
		{ REASON_CONNECT_REFUSED, 80 },
	};
	uint8_t alert[REFUSE_ALERT_BYTES];

	(void)state;
	for (size_t i = 0; i < sizeof(is) / sizeof(is[0]); i++) {
		refuse_alert(is[i].r, alert);
		assert_memory_equal(alert, "\x15\x03\x03\0\2\2", 6);
		assert_int_equal(alert[6], is[i].alert);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
		    every_reason_has_a_status_an_error_and_its_word),
		cmocka_unit_test(a_final_no_is_never_said_to_be_unavailable),
		cmocka_unit_test(
		    N38_hostile_and_long_words_stay_inside_one_answer),
		cmocka_unit_test(N38_every_length_of_a_word_is_answered),
		cmocka_unit_test(the_json_form_is_json_whatever_it_reports),
		cmocka_unit_test(
		    the_text_form_names_the_rule_its_words_and_the_help),
		cmocka_unit_test(the_help_ends_every_refusal),
		cmocka_unit_test(what_is_not_known_is_left_out_of_the_words),
		cmocka_unit_test(an_alert_says_what_kind_of_no_it_is),
	};

	return cmocka_run_group_tests(tests, up, NULL);
}
