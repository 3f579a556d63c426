/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "proxy/opening.h"

struct bytes {
	const char *data;
	size_t len;
};
#define BYTES(s) { s, sizeof(s) - 1 }

static struct span
of(const struct bytes *b)
{
	return span_of(b->data, b->len);
}

/* Told by the last byte and not before, in pieces of every size. */
static void
is_told_at_the_end(struct span s, enum reason why)
{
	enum reason got = REASON_NONE;

	for (size_t n = 0; n < s.len; n++)
		assert_int_equal(opening_judge(span_of(s.data, n), &got),
		    PARSE_MORE);
	assert_int_equal(opening_judge(s, &got), PARSE_BAD);
	assert_int_equal(got, why);
}

static void
what_servers_skip_is_told_as_soon_as_it_can_be(void **state)
{
	static const struct bytes skipped[] = {
		BYTES("\r"), BYTES("\n"), BYTES(" "), BYTES("\t"),
		BYTES("\v"), BYTES("\f"),
		BYTES("\x15\3"), BYTES("\x14\3"), BYTES("\x17\3"),
		BYTES("\x18\3"), BYTES("\x15\2\0\0\2"),
		BYTES("PROXY "), BYTES("GET /"), BYTES("get\t/"),
		BYTES("POST \t h"),
		BYTES("OPTIONS\v*"),
	};
	static const struct bytes hellos[] = {
		BYTES("\x16\0\0\0\0"), BYTES("\x16\3\5\0\0"),
		BYTES("\x16\2\0\0\x20\1"), BYTES("\x16\xf\0\1\0\1"),
		BYTES("\x16\3\5\0\1\1"),
	};
	static const struct bytes old[] = {
		BYTES("\x80\x2e\1\3"), BYTES("\x80\x2e\1\0"),
		BYTES("\xc0\0\1\3"),
	};

	(void)state;
	for (size_t i = 0; i < sizeof(skipped) / sizeof(skipped[0]); i++)
		is_told_at_the_end(of(&skipped[i]), REASON_PROTOCOL);
	for (size_t i = 0; i < sizeof(hellos) / sizeof(hellos[0]); i++)
		is_told_at_the_end(of(&hellos[i]), REASON_HELLO_MALFORMED);
	for (size_t i = 0; i < sizeof(old) / sizeof(old[0]); i++)
		is_told_at_the_end(of(&old[i]), REASON_HELLO_SSLV2);
}

static void
other_protocols_pass(void **state)
{
	static const struct bytes t[] = {
		BYTES("\0\0\0\x08\4\xd2\x16\x2f"),	/* PostgreSQL */
		BYTES("SSH-2.0-x"), BYTES("EHLO x"), BYTES("*2\r\n"),
		BYTES("GET key"), BYTES("GETS /"), BYTES("PUTTY"),
		BYTES("PROXYING"), BYTES("HEADER"), BYTES("PROXX"),
		BYTES("\xff\xfb\1"),			/* telnet */
		BYTES("\x81\0\0\x44"),			/* NetBIOS */
		BYTES("\x80\x2e\2"), BYTES("\x80\x2e\1\4"), BYTES("\x80\1"),
		BYTES("\x15\0\0\0\x64"),			/* 9P */
		BYTES("\x16\0\0\0\3S"), BYTES("\x16\x10"),
		BYTES("\x16\0\0\xff\xff"), BYTES("\x15\x10"),
		BYTES("\x14\2"), BYTES("\x17\0"), BYTES("\x13"),
		BYTES("\x19"),
	};
	enum reason why;

	(void)state;
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++)
		assert_int_equal(opening_judge(of(&t[i]), &why), PARSE_DONE);
}

static bool
is_http(const char *text, size_t step)
{
	struct opening_line l = { 0 };
	struct span s = span_str(text), part;
	bool found = false;

	while (!found && s.len > 0) {
		if (!span_take(&s, s.len < step ? s.len : step, &part))
			break;
		found = opening_line_is_http(&l, part);
	}
	return found;
}

static void
a_first_line_that_ends_with_a_version_is_a_request(void **state)
{
	static const char *const yes[] = {
		"GET\t/\tHTTP/1.1\r\n", "ZZ / http/1.0\n",
		"a b\fHTTP/2 \t\r\n", "x HTTP/ HTTP/1.1\n",
	}, *const no[] = {
		"{\"m\": \"GET / HTTP/1.1\"}\n", "x HTTP/1.1 200\n",
		"EHLO x\r\nGET / HTTP/1.1\r\n", "xHTTP/1.1\r\n",
		"\1 HTTP/1.1\r\n", "x HTTP/\r\n", "x HTTP/1.1",
		"x HTTP/1.1x\r\n",
	};

	(void)state;
	for (size_t step = 1; step < 20; step += 3) {
		for (size_t i = 0; i < sizeof(yes) / sizeof(yes[0]); i++)
			assert_true(is_http(yes[i], step));
		for (size_t i = 0; i < sizeof(no) / sizeof(no[0]); i++)
			assert_false(is_http(no[i], step));
	}
}

/* The beginning of a hello in records of `size` bytes. */
static size_t
pieces(size_t size, uint8_t *out)
{
	static const uint8_t message[6] = { 1, 0, 2, 0, 3, 3 };
	size_t n = 0;

	for (size_t at = 0; at < sizeof(message); at += size) {
		size_t part = sizeof(message) - at < size ?
		    sizeof(message) - at : size;

		memcpy(out + n, "\x16\3\1\0", 4);
		out[n + 4] = (uint8_t)size;
		memcpy(out + n + 5, message + at, part);
		n += 5 + part;
	}
	return n;
}

static void
a_hello_is_found_behind_other_bytes_and_in_pieces(void **state)
{
	uint8_t s[200];
	size_t at, n;

	(void)state;
	for (size_t size = 1; size <= 6; size++)
		for (size_t before = 0; before < 20; before++) {
			memset(s, before % 2 ? 0x16 : 'x', before);
			n = before + pieces(size, s + before);
			for (size_t k = 0; k < n; k++) {
				assert_false(opening_find_hello(
				    span_of(s, k), &at));
				assert_true(at <= (k < before ? k : before));
			}
			assert_true(opening_find_hello(span_of(s, n), &at));
			assert_int_equal(at, before);
		}
}

static void
what_cannot_be_a_hello_is_not_kept(void **state)
{
	static const struct bytes t[] = {
		BYTES("x\x16\x10"), BYTES("\x16\3\1\0\0"),
		BYTES("\x16\3\1\0\5\2"), BYTES("\x16\3\1\0\5\1\1"),
		BYTES("\x16\3\1\0\x20\1\0\0\0\2"),
		BYTES("\x16\3\1\xff\xff\1"),
		BYTES("\x16\3\1\0\x20\1\0\0\0\3\5"),
		BYTES("\x16\3\1\0\1\1x"),
	};
	size_t at;

	(void)state;
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		assert_false(opening_find_hello(of(&t[i]), &at));
		assert_int_equal(at, t[i].len);
	}
}

/* A server that drops alerts reads a hello around one. */
static void
an_alert_between_two_pieces_hides_no_hello(void **state)
{
	static const struct bytes t[] = {
		BYTES("x\x16\3\1\0\1\1\x15"),
		BYTES("x\x16\3\1\0\2\1\0\x16\3\1\0\0"),
		BYTES("x\x16\3\1\0\1\1\x16\x10"),
	};
	size_t at;

	(void)state;
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		assert_true(opening_find_hello(of(&t[i]), &at));
		assert_int_equal(at, 1);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
		    what_servers_skip_is_told_as_soon_as_it_can_be),
		cmocka_unit_test(other_protocols_pass),
		cmocka_unit_test(
		    a_first_line_that_ends_with_a_version_is_a_request),
		cmocka_unit_test(
		    a_hello_is_found_behind_other_bytes_and_in_pieces),
		cmocka_unit_test(what_cannot_be_a_hello_is_not_kept),
		cmocka_unit_test(an_alert_between_two_pieces_hides_no_hello),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
