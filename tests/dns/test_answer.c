/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/answer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

/* A reply that a test puts together. */
static uint8_t bytes[8192];
static struct wire_writer w;
static union answer_room room;
static const struct answer *const a = &room.answer;

static struct host
host_of(const char *text)
{
	struct host h;

	assert_int_equal(host_parse(&h, span_str(text)), REASON_NONE);
	return h;
}

static void
put_host(const char *text)
{
	struct host h = host_of(text);

	wire_put_host(&w, &h);
}

static void
begin(const char *name, uint16_t type, unsigned rcode)
{
	w = (struct wire_writer){ .out = bytes, .size = sizeof(bytes) };
	wire_put16(&w, 7);
	wire_put16(&w, WIRE_QR | rcode);
	wire_put16(&w, 1);
	wire_put16(&w, 0);
	wire_put32(&w, 0);
	put_host(name);
	wire_put16(&w, type);
	wire_put16(&w, 1);
}

/* section 6: answers, 8: authority. */
static void
put_record(size_t section, const char *owner, uint16_t type, uint32_t ttl_s,
    const void *data, size_t len)
{
	put_host(owner);
	wire_put16(&w, type);
	wire_put16(&w, 1);
	wire_put32(&w, ttl_s);
	wire_put16(&w, (unsigned)len);
	wire_put(&w, data, len);
	bytes[section + 1]++;
}

static void
put_a(const char *owner, uint32_t ttl_s, uint8_t last)
{
	put_record(6, owner, TYPE_A, ttl_s, (uint8_t[]){ 192, 0, 2, last },
	    4);
}

static void
put_alias(const char *owner, uint32_t ttl_s, const char *target)
{
	uint8_t name[WIRE_NAME_MAX_BYTES];
	struct wire_writer n = { .out = name, .size = sizeof(name) };
	struct host h = host_of(target);

	wire_put_host(&n, &h);
	put_record(6, owner, TYPE_CNAME, ttl_s, name, n.at);
}

static void
put_soa(const char *owner, uint32_t ttl_s, uint8_t minimum)
{
	uint8_t soa[22] = { [21] = minimum };	/* two roots, five numbers */

	put_record(8, owner, TYPE_SOA, ttl_s, soa, sizeof(soa));
}

static bool
read_it(const char *name, uint16_t type)
{
	struct host h = host_of(name);

	return answer_read(span_of(bytes, w.at), &h, type, false, &room);
}

static void
addresses_with_the_least_ttl(void **state)
{
	(void)state;
	begin("a.example", TYPE_A, 0);
	put_a("a.example", 60, 1);
	put_a("a.example", 30, 2);
	assert_true(read_it("a.example", TYPE_A));
	assert_int_equal(a->reason, REASON_NONE);
	assert_int_equal(a->n_records, 2);
	assert_int_equal(a->ttl_s, 30);
	assert_int_equal(answer_addr(a, 1).b[15], 2);
}

static void
a_chain_is_followed_in_any_order(void **state)
{
	struct span name;
	size_t at = 0;

	(void)state;
	begin("a.example", TYPE_A, 0);
	put_a("c.example", 60, 1);
	put_alias("b.example", 20, "c.example");
	put_alias("a.example", 40, "b.example");
	assert_true(read_it("a.example", TYPE_A));
	assert_int_equal(a->n_links, 2);
	assert_int_equal(a->n_records, 1);
	assert_int_equal(a->ttl_s, 20);
	assert_int_equal(answer_addr(a, 0).b[15], 1);
	assert_true(answer_next_link(a, &at, &name));
	assert_memory_equal(name.data, "\1b\7example", 11);
	assert_true(answer_next_link(a, &at, &name));
	assert_memory_equal(name.data, "\1c\7example", 11);
	assert_false(answer_next_link(a, &at, &name));
}

/* Out of bailiwick: a reply may bring what it likes, only the chain counts. */
static void
records_of_other_names_are_not_looked_at(void **state)
{
	(void)state;
	begin("a.example", TYPE_A, 0);
	put_a("bank.example", 60, 66);
	put_alias("bank.example", 60, "evil.example");
	put_a("a.example", 60, 1);
	put_record(6, "a.example", TYPE_TXT, 60, "\1x", 2);
	assert_true(read_it("a.example", TYPE_A));
	assert_int_equal(a->n_records, 1);
	assert_int_equal(a->n_links, 0);
	assert_int_equal(answer_addr(a, 0).b[15], 1);
}

static void
a_loop_is_no_answer(void **state)
{
	(void)state;
	begin("a.example", TYPE_A, 0);
	put_alias("a.example", 60, "b.example");
	put_alias("b.example", 60, "c.example");
	put_alias("c.example", 60, "b.example");
	assert_false(read_it("a.example", TYPE_A));
	assert_int_equal(a->reason, REASON_DNS_SERVFAIL);
	assert_int_equal(a->n_records, 0);
}

static void
sixteen_links_and_no_more(void **state)
{
	char from[24], to[24];

	(void)state;
	for (unsigned links = 16; links <= 17; links++) {
		begin("n0.example", TYPE_A, 0);
		for (unsigned i = 0; i < links; i++) {
			snprintf(from, sizeof(from), "n%u.example", i);
			snprintf(to, sizeof(to), "n%u.example", i + 1);
			put_alias(from, 60, to);
		}
		put_a(to, 60, 1);
		assert_int_equal(read_it("n0.example", TYPE_A), links == 16);
	}
}

static void
equal_records_are_one_and_many_are_cut(void **state)
{
	(void)state;
	begin("a.example", TYPE_A, 0);
	for (unsigned i = 0; i < 100; i++)
		put_a("a.example", 60, (uint8_t)(i / 2));
	assert_true(read_it("a.example", TYPE_A));
	assert_int_equal(a->n_records, ANSWER_ADDRS_MAX);
	assert_int_equal(answer_addr(a, 31).b[15], 31);
}

static void
ttl_has_its_bounds(void **state)
{
	(void)state;
	begin("a.example", TYPE_A, 0);
	put_a("a.example", 0x7fffffff, 1);
	assert_true(read_it("a.example", TYPE_A));
	assert_int_equal(a->ttl_s, ANSWER_TTL_MAX_S);
	begin("a.example", TYPE_A, 0);
	put_a("a.example", 0x80000001, 1);
	assert_true(read_it("a.example", TYPE_A));
	assert_int_equal(a->ttl_s, 0);
}

/* RFC 2308 5: the less of the SOA's own TTL and its minimum. */
static void
B041_a_no_lasts_as_its_soa_says(void **state)
{
	(void)state;
	begin("a.example", TYPE_A, RCODE_NXDOMAIN);
	put_soa("example", 300, 90);
	assert_true(read_it("a.example", TYPE_A));
	assert_int_equal(a->reason, REASON_DNS_NXDOMAIN);
	assert_int_equal(a->ttl_s, 90);
	begin("a.example", TYPE_A, 0);
	put_soa("example", 30, 90);
	assert_true(read_it("a.example", TYPE_A));
	assert_int_equal(a->reason, REASON_DNS_NODATA);
	assert_int_equal(a->ttl_s, 30);
	begin("a.example", TYPE_A, 0);
	assert_true(read_it("a.example", TYPE_A));
	assert_int_equal(a->reason, REASON_DNS_NODATA);
	assert_int_equal(a->ttl_s, 0);
	assert_false(a->unfinished);
}

static void
an_alias_without_its_end_goes_on(void **state)
{
	struct host next;

	(void)state;
	begin("a.example", TYPE_A, 0);
	put_alias("a.example", 60, "b.other");
	assert_true(read_it("a.example", TYPE_A));
	assert_true(a->unfinished);
	assert_true(answer_last_link(a, &next));
	assert_string_equal(next.name, "b.other");
	/* the second reply continues the first */
	begin("b.other", TYPE_A, 0);
	put_alias("b.other", 50, "c.other");
	put_a("c.other", 70, 9);
	assert_true(answer_read(span_of(bytes, w.at), &next, TYPE_A, true,
	    &room));
	assert_int_equal(a->reason, REASON_NONE);
	assert_int_equal(a->n_links, 2);
	assert_int_equal(a->n_records, 1);
	assert_int_equal(a->ttl_s, 50);
	assert_int_equal(answer_addr(a, 0).b[15], 9);
	/* but where the servers know that there is nothing it is over */
	begin("a.example", TYPE_A, 0);
	put_alias("a.example", 60, "b.other");
	put_soa("other", 60, 60);
	assert_true(read_it("a.example", TYPE_A));
	assert_false(a->unfinished);
	assert_int_equal(a->reason, REASON_DNS_NODATA);
}

/* RFC 6672: whoever answers puts the alias of the very name beside it (3.1),
 * and that is what counts.  Alone it is no answer. */
static void
N16_a_tree_that_moved_is_followed_by_its_aliases(void **state)
{
	static const struct {
		const char *tree, *alias;
		unsigned links, records;
	} cases[] = {
		{ "old.example", "app.new.example", 1, 1 },
		{ "old.example", NULL, 0, 0 },
		{ "app.old.example", NULL, 0, 0 },	/* its owner */
	};
	static const char to[] = "\3new\7example";

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		begin("app.old.example", TYPE_A, 0);
		put_record(6, cases[i].tree, 39, 60, to, sizeof(to));
		if (cases[i].alias != NULL)
			put_alias("app.old.example", 60, cases[i].alias);
		put_a("app.new.example", 60, 9);
		assert_true(read_it("app.old.example", TYPE_A));
		assert_int_equal(a->n_links, cases[i].links);
		assert_int_equal(a->n_records, cases[i].records);
		assert_int_equal(a->reason, cases[i].records > 0 ?
		    REASON_NONE : REASON_DNS_NODATA);
		assert_false(a->unfinished);
	}
	/* of the owner itself what stands beside it is its own */
	begin("old.example", TYPE_A, 0);
	put_record(6, "old.example", 39, 60, to, sizeof(to));
	put_a("old.example", 60, 7);
	assert_true(read_it("old.example", TYPE_A));
	assert_int_equal(a->n_records, 1);
}

static void
a_question_for_an_alias_is_not_led_on(void **state)
{
	(void)state;
	begin("a.example", TYPE_CNAME, 0);
	put_alias("a.example", 60, "b.example");
	put_alias("b.example", 60, "c.example");
	assert_true(read_it("a.example", TYPE_CNAME));
	assert_int_equal(a->n_links, 0);
	assert_int_equal(a->n_records, 1);
}

/* Names in the data point into the message; in the answer they are whole. */
static void
shortened_names_in_the_data_are_whole(void **state)
{
	static const uint8_t mx[] = { 0, 10, 4, 'm', 'a', 'i', 'l', 0xc0, 12 };
	static const uint8_t whole[] = "\0\12\4mail\1a\7example";
	struct span data;
	size_t at = 0;

	(void)state;
	begin("a.example", TYPE_MX, 0);
	put_record(6, "a.example", TYPE_MX, 60, mx, sizeof(mx));
	assert_true(read_it("a.example", TYPE_MX));
	assert_true(answer_next(a, &at, &data));
	assert_int_equal(data.len, sizeof(whole));
	assert_memory_equal(data.data, whole, sizeof(whole));
}

static void
data_of_the_wrong_form_is_refused(void **state)
{
	static const struct {
		uint16_t type;
		const char *data;
		size_t len;
	} bad[] = {
		{ TYPE_A, "123", 3 }, { TYPE_A, "12345", 5 },
		{ TYPE_AAAA, "1234", 4 }, { TYPE_TXT, "", 0 },
		{ TYPE_TXT, "\5ab", 3 }, { TYPE_MX, "\0", 1 },
		{ TYPE_MX, "\0\12", 2 }, { TYPE_MX, "\0\12\0x", 4 },
		{ TYPE_MX, "\0\12\77", 3 }, { TYPE_SRV, "\0\0\0\0\0", 5 },
		{ TYPE_SOA, "\0\0", 2 }, { TYPE_NS, "\300\377", 2 },
		{ TYPE_CAA, "\0\0x", 3 }, { TYPE_CAA, "\0\5iss", 5 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		begin("a.example", bad[i].type, 0);
		put_record(6, "a.example", bad[i].type, 60, bad[i].data,
		    bad[i].len);
		assert_false(read_it("a.example", bad[i].type));
		assert_int_equal(a->reason, REASON_DNS_SERVFAIL);
		assert_int_equal(a->len, 0);
	}
}

/* Cut within its answers it is none. */
static void
a_cut_reply_is_never_read_beyond(void **state)
{
	size_t answers;

	(void)state;
	begin("a.example", TYPE_A, 0);
	put_alias("a.example", 60, "b.example");
	put_a("b.example", 60, 1);
	answers = w.at;
	put_soa("example", 60, 60);
	for (w.at = 0; w.at < answers; w.at++) {
		uint8_t *copy = malloc(w.at + 1);
		struct host h = host_of("a.example");

		memcpy(copy, bytes, w.at);
		assert_false(answer_read(span_of(copy, w.at), &h, TYPE_A,
		    false, &room));
		free(copy);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(addresses_with_the_least_ttl),
		cmocka_unit_test(a_chain_is_followed_in_any_order),
		cmocka_unit_test(records_of_other_names_are_not_looked_at),
		cmocka_unit_test(a_loop_is_no_answer),
		cmocka_unit_test(sixteen_links_and_no_more),
		cmocka_unit_test(equal_records_are_one_and_many_are_cut),
		cmocka_unit_test(ttl_has_its_bounds),
		cmocka_unit_test(B041_a_no_lasts_as_its_soa_says),
		cmocka_unit_test(an_alias_without_its_end_goes_on),
		cmocka_unit_test(
		    N16_a_tree_that_moved_is_followed_by_its_aliases),
		cmocka_unit_test(a_question_for_an_alias_is_not_led_on),
		cmocka_unit_test(shortened_names_in_the_data_are_whole),
		cmocka_unit_test(data_of_the_wrong_form_is_refused),
		cmocka_unit_test(a_cut_reply_is_never_read_beyond),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
