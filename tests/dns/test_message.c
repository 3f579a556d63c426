/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/message.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define HEAD(flags, an) 0x12, 0x34, flags, 0, 0, 1, 0, an, 0, 0, 0, 0
#define A_EXAMPLE 1, 'a', 7, 'e', 'x', 'a', 'm', 'p', 'l', 'e', 0
#define HAS_A 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4, 192, 0, 2, 1
#define LOOP 0xc0, 12, 0, 5, 0, 1, 0, 0, 0, 9, 0, 2, 0xc0, 12

static const uint8_t query[] = { HEAD(0x01, 0), A_EXAMPLE, 0, 1, 0, 1 };
static const uint8_t good[] = { HEAD(0x81, 1), A_EXAMPLE, 0, 1, 0, 1,
	HAS_A };
static const uint8_t loop[] = { HEAD(0x81, 1), A_EXAMPLE, 0, 1, 0, 1, LOOP };

/* A copy of exactly n bytes, so that a sanitizer sees a read beyond. */
static uint8_t *
cut(const uint8_t *from, size_t n)
{
	uint8_t *p = malloc(n > 0 ? n : 1);

	assert_non_null(p);
	memcpy(p, from, n);
	return p;
}

static enum parse
addrs_of(const uint8_t *msg, size_t len, const char *text, uint32_t *n)
{
	struct addr out[PIN_ADDRS_MAX];
	struct host name;
	uint32_t ttl;
	uint8_t rcode;

	assert_int_equal(host_parse(&name, span_str(text)), REASON_NONE);
	return message_addrs(span_of(msg, len), &name, TYPE_A, out, n, &ttl,
	    &rcode);
}

static void
a_query_is_read_whole_and_cut_nowhere(void **state)
{
	struct message_question q;
	bool known;

	(void)state;
	assert_int_equal(message_query(span_of(query, sizeof(query)), &q,
	    &known), PARSE_DONE);
	assert_string_equal(q.name.name, "a.example");
	assert_int_equal(q.type, TYPE_A);
	for (size_t n = 0; n < sizeof(query); n++) {
		uint8_t *p = cut(query, n);

		assert_int_equal(message_query(span_of(p, n), &q, &known),
		    PARSE_BAD);
		free(p);
	}
}

static void
an_answer_is_read_whole_and_cut_nowhere(void **state)
{
	uint32_t got;

	(void)state;
	assert_int_equal(addrs_of(good, sizeof(good), "a.example", &got),
	    PARSE_DONE);
	assert_int_equal(got, 1);
	for (size_t n = 0; n < sizeof(good); n++) {
		uint8_t *p = cut(good, n);

		assert_int_equal(addrs_of(p, n, "a.example", &got),
		    PARSE_BAD);
		free(p);
	}
}

static void
an_alias_of_itself_and_another_question_are_refused(void **state)
{
	uint32_t got;

	(void)state;
	assert_int_equal(addrs_of(loop, sizeof(loop), "a.example", &got),
	    PARSE_BAD);
	assert_int_equal(addrs_of(good, sizeof(good), "b.example", &got),
	    PARSE_BAD);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_query_is_read_whole_and_cut_nowhere),
		cmocka_unit_test(an_answer_is_read_whole_and_cut_nowhere),
		cmocka_unit_test(
		    an_alias_of_itself_and_another_question_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
