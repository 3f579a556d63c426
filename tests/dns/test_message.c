/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/message.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define HEAD(flags, ar) 0x12, 0x34, flags, 0, 0, 1, 0, 0, 0, 0, 0, ar
#define A_EXAMPLE 1, 'a', 7, 'e', 'x', 'a', 'm', 'p', 'l', 'e', 0
#define OPT(version) 0, 0, 41, 0x10, 0, 0, version, 0x80, 0, 0, 0

static const uint8_t query[] = { HEAD(0x01, 1), A_EXAMPLE, 0, 1, 0, 1,
	OPT(0) };

/* A copy of exactly n bytes, so that a sanitizer sees a read beyond. */
static uint8_t *
cut(const uint8_t *from, size_t n)
{
	uint8_t *p = malloc(n > 0 ? n : 1);

	assert_non_null(p);
	memcpy(p, from, n);
	return p;
}

static struct message_question
question_of(const uint8_t *msg, size_t len)
{
	struct message_question q;
	bool known;

	assert_int_equal(message_query(span_of(msg, len), &q, &known),
	    PARSE_DONE);
	return q;
}

static struct host
host_of(const char *text)
{
	struct host h;

	assert_int_equal(host_parse(&h, span_str(text)), REASON_NONE);
	return h;
}

static void
a_query_is_read_whole_and_cut_nowhere(void **state)
{
	struct message_question q = question_of(query, sizeof(query));
	bool known;

	(void)state;
	assert_string_equal(q.name.name, "a.example");
	assert_int_equal(q.id, 0x1234);
	assert_int_equal(q.type, TYPE_A);
	assert_true(q.edns && q.dnssec_ok && q.rd && !q.cd);
	assert_int_equal(q.udp_bytes, 4096);
	for (size_t n = 0; n < sizeof(query); n++) {
		uint8_t *p = cut(query, n);

		assert_int_equal(message_query(span_of(p, n), &q, &known),
		    PARSE_BAD);
		assert_int_equal(known, n >= WIRE_HEADER_BYTES);
		free(p);
	}
}

static void
queries_of_other_forms_are_unread(void **state)
{
	static const uint8_t two[] = { 0x12, 0x34, 1, 0, 0, 2, 0, 0, 0, 0, 0,
	    0, A_EXAMPLE, 0, 1, 0, 1, A_EXAMPLE, 0, 1, 0, 1 };
	static const uint8_t pointer[] = { HEAD(1, 0), 0xc0, 12, 0, 1, 0, 1 };
	static const uint8_t tail[] = { HEAD(1, 0), A_EXAMPLE, 0, 1, 0, 1,
	    0 };
	static const uint8_t twice[] = { 0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0,
	    0, 2, A_EXAMPLE, 0, 1, 0, 1, OPT(0), OPT(0) };
	static const struct span bad[] = { { two, sizeof(two) },
	    { pointer, sizeof(pointer) }, { tail, sizeof(tail) },
	    { twice, sizeof(twice) } };

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct message_question q;
		bool known;

		assert_int_equal(message_query(bad[i], &q, &known),
		    PARSE_BAD);
		assert_true(known);
	}
}

/* What is written is what our own reader of replies reads. */
static void
aliases_and_records_are_written_as_they_are_read(void **state)
{
	static const uint8_t alias_and_a[] = { 0, 0, 0x80, 0, 0, 1, 0, 2, 0,
	    0, 0, 0, A_EXAMPLE, 0, 1, 0, 1,
	    0xc0, 12, 0, 5, 0, 1, 0, 0, 0, 9, 0, 4, 1, 'b', 0xc0, 14,
	    0xc0, 39, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4, 192, 0, 2, 1 };
	struct message_question q = question_of(query, sizeof(query));
	struct message_answer a = { .ttl_s = 5, .ede = -1 };
	static union answer_room in, out;
	struct host name = host_of("a.example");
	uint8_t reply[512];
	size_t n;

	(void)state;
	assert_true(answer_read(span_of(alias_and_a, sizeof(alias_and_a)),
	    &name, TYPE_A, false, &in));
	a.records = &in.answer;
	n = message_reply(&q, &a, reply, sizeof(reply));
	assert_int_equal(reply[2] & 0x82, 0x80);
	assert_true(answer_read(span_of(reply, n), &name, TYPE_A, false,
	    &out));
	assert_int_equal(out.answer.ttl_s, 5);
	assert_int_equal(out.answer.n_links, 1);
	assert_int_equal(out.answer.n_records, 1);
	assert_int_equal(out.answer.len, in.answer.len);
	assert_memory_equal(out.answer.data, in.answer.data, in.answer.len);
}

static void
what_does_not_fit_is_said_to_be_cut(void **state)
{
	struct message_question q = question_of(query, sizeof(query));
	struct message_answer a = { .ttl_s = 5, .ede = -1 };
	static union answer_room in;
	uint8_t text[200] = { 199 }, reply[4096];

	(void)state;
	answer_none(&in.answer, TYPE_TXT, REASON_NONE);
	for (uint8_t i = 0; i < 10; i++) {
		text[1] = i;
		assert_true(answer_put(&in.answer, span_of(text, 200)));
	}
	a.records = &in.answer;
	for (size_t size = 512; size <= 4096; size *= 2) {
		size_t n = message_reply(&q, &a, reply, size);

		assert_true(n <= size);
		assert_int_equal((reply[2] & 2) != 0, size < 4096);
		assert_int_equal(reply[7], size < 4096 ? (size - 50) / 212 :
		    10);
		/* EDNS always fits */
		assert_int_equal(reply[11], 1);
	}
}

/* RFC 8914: the code, and the reason as text. */
static void
a_no_says_why(void **state)
{
	struct message_question q = question_of(query, sizeof(query));
	struct message_answer a = { .rcode = RCODE_NXDOMAIN, .ttl_s = 5,
	    .negative_soa = true, .ede = 15, .ede_text = "no_rule" };
	uint8_t reply[512];
	size_t n = message_reply(&q, &a, reply, sizeof(reply));

	(void)state;
	assert_int_equal(reply[3] & 15, RCODE_NXDOMAIN);
	assert_int_equal(reply[9], 1);
	assert_memory_equal(reply + n - 13, "\0\17\0\11\0\17no_rule", 13);
}

static void
questions_of_our_own_are_queries(void **state)
{
	static const uint8_t none[32], all[32] = { 255, 255, 255, 255 };
	struct host name = host_of("a.b-1.example");
	uint8_t out[MESSAGE_ASK_MAX_BYTES];
	struct message_question q;
	size_t n = message_ask(&name, TYPE_MX, 0x4711, none, 0, out);

	(void)state;
	q = question_of(out, n);
	assert_int_equal(q.id, 0x4711);
	assert_int_equal(q.type, TYPE_MX);
	assert_true(q.rd && q.edns);
	assert_int_equal(q.udp_bytes, 1232);
	assert_true(host_eq(&q.name, &name));
	assert_memory_equal(out + n - 11, "\0\0\51", 3);
	n = message_ask(&name, TYPE_MX, 0x4711, all, 128, out);
	assert_int_equal(n, 128);
	assert_memory_equal(out + 12, "\1A\3B-1\7EXAMPLE", 15);
	q = question_of(out, n);
	assert_true(host_eq(&q.name, &name));
}

static void
an_echo_is_the_same_question(void **state)
{
	uint8_t reply[sizeof(query)];
	struct span asked = span_of(query, sizeof(query));
	struct span back = span_of(reply, sizeof(reply));

	(void)state;
	memcpy(reply, query, sizeof(reply));
	assert_int_equal(message_echo(asked, back), MESSAGE_OTHER);
	reply[2] |= 0x80;
	assert_int_equal(message_echo(asked, back), MESSAGE_ECHO);
	reply[13] = 'A';
	assert_int_equal(message_echo(asked, back), MESSAGE_OTHER_CASE);
	reply[13] = 'b';
	assert_int_equal(message_echo(asked, back), MESSAGE_OTHER);
	reply[13] = 'a';
	for (size_t i = 23; i < 27; i++) {	/* type and class */
		reply[i] ^= 4;
		assert_int_equal(message_echo(asked, back), MESSAGE_OTHER);
		reply[i] ^= 4;
	}
	reply[0] ^= 1;
	assert_int_equal(message_echo(asked, back), MESSAGE_OTHER);
	reply[0] ^= 1;
	for (size_t n = 0; n < 27; n++) {
		uint8_t *p = cut(reply, n);

		assert_int_equal(message_echo(asked, span_of(p, n)),
		    MESSAGE_OTHER);
		free(p);
	}
}

static void
an_unread_query_gets_its_header_back(void **state)
{
	uint8_t out[64], update[sizeof(query)];

	(void)state;
	assert_int_equal(message_unread(span_of(query, sizeof(query)), out,
	    sizeof(out)), WIRE_HEADER_BYTES);
	assert_memory_equal(out, query, 2);
	assert_int_equal(out[3], RCODE_FORMERR);
	memcpy(update, query, sizeof(update));
	update[2] = 5 << 3;
	message_unread(span_of(update, sizeof(update)), out, sizeof(out));
	assert_int_equal(out[3], RCODE_NOTIMP);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_query_is_read_whole_and_cut_nowhere),
		cmocka_unit_test(queries_of_other_forms_are_unread),
		cmocka_unit_test(
		    aliases_and_records_are_written_as_they_are_read),
		cmocka_unit_test(what_does_not_fit_is_said_to_be_cut),
		cmocka_unit_test(a_no_says_why),
		cmocka_unit_test(questions_of_our_own_are_queries),
		cmocka_unit_test(an_echo_is_the_same_question),
		cmocka_unit_test(an_unread_query_gets_its_header_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
