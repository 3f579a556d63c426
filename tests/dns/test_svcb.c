/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/svcb.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdlib.h>

/* One record through the strainer; *n is the length of what came out, -1: it
 * was left out. */
static const uint8_t *
strained(const void *rdata, size_t len, int *n)
{
	static union answer_room in, out;
	struct span got;
	size_t at = 0;

	answer_none(&in.answer, TYPE_HTTPS, REASON_NONE);
	assert_true(answer_put(&in.answer, span_of(rdata, len)));
	svcb_strip_ech(&in.answer, &out);
	*n = -1;
	if (!answer_next(&out.answer, &at, &got)) {
		assert_int_equal(out.answer.reason, REASON_DNS_NODATA);
		return NULL;
	}
	*n = (int)got.len;
	return got.data;
}

#define SAME(text) same(text, sizeof(text) - 1)
#define INTO(text, to) into(text, sizeof(text) - 1, to, sizeof(to) - 1)
#define BAD(text) bad(text, sizeof(text) - 1)

static void
into(const char *text, size_t len, const char *to, size_t to_len)
{
	const uint8_t *got;
	int n;

	got = strained(text, len, &n);
	assert_int_equal(n, to_len);
	assert_memory_equal(got, to, to_len);
}

static void
same(const char *text, size_t len)
{
	into(text, len, text, len);
}

static void
bad(const char *text, size_t len)
{
	int n;

	assert_null(strained(text, len, &n));
}

static void
what_is_no_ech_stays_as_it_is(void **state)
{
	(void)state;
	SAME("\0\1\0");
	SAME("\0\0\3foo\4test\0");			/* alias */
	SAME("\0\1\0" "\0\1\0\3\2h2" "\0\3\0\2\1\xbb");	/* alpn, port */
	SAME("\0\1\0" "\0\0\0\2\0\1" "\0\1\0\3\2h2");	/* mandatory alpn */
	SAME("\0\1\0" "\x80\0\0\0");			/* unknown, empty */
}

static void
ech_goes_and_what_demands_it(void **state)
{
	(void)state;
	INTO("\0\1\0" "\0\5\0\2\xfe\x0d", "\0\1\0");
	INTO("\0\1\0" "\0\1\0\3\2h2" "\0\5\0\1x" "\0\6\0\1y",
	    "\0\1\0" "\0\1\0\3\2h2" "\0\6\0\1y");
	INTO("\0\1\0" "\0\5\0\0" "\0\5\0\0", "\0\1\0");
	INTO("\0\1\0" "\0\0\0\4\0\1\0\5" "\0\1\0\3\2h2" "\0\5\0\1x",
	    "\0\1\0" "\0\0\0\2\0\1" "\0\1\0\3\2h2");
	INTO("\0\1\0" "\0\0\0\2\0\5" "\0\5\0\1x", "\0\1\0");
}

static void
what_cannot_be_read_is_left_out(void **state)
{
	(void)state;
	BAD("\0\1");
	BAD("\0\1\5foo");
	BAD("\0\1\0\0");
	BAD("\0\1\0\0\1\0");
	BAD("\0\1\0\0\1\0\4\2h2");
	BAD("\0\1\0\0\0\0\3\0\1\0");
}

/* Any cut of a sound record, and any byte of it changed. */
static void
nothing_is_read_past_its_end(void **state)
{
	static const char sound[] = "\0\1\3foo\0" "\0\0\0\4\0\1\0\5"
	    "\0\1\0\3\2h2" "\0\5\0\3abc" "\0\3\0\2\1\xbb";
	int n;

	(void)state;
	for (size_t len = 0; len < sizeof(sound); len++) {
		char *copy = malloc(len + 1);

		assert_non_null(copy);
		memcpy(copy, sound, len);
		(void)strained(copy, len, &n);
		assert_true(n <= (int)len);
		for (size_t i = 0; i < len; i++)
			for (unsigned c = 0; c < 256; c += 5) {
				copy[i] = (char)c;
				(void)strained(copy, len, &n);
				assert_true(n <= (int)len);
				copy[i] = sound[i];
			}
		free(copy);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_no_ech_stays_as_it_is),
		cmocka_unit_test(ech_goes_and_what_demands_it),
		cmocka_unit_test(what_cannot_be_read_is_left_out),
		cmocka_unit_test(nothing_is_read_past_its_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
