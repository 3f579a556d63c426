/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define ZEROS "\0\0\0\0\0\0\0\0\0\0\0\0"	/* in place of a header */

/* The name at `at` in these bytes, which are copied so that a sanitizer sees
 * a read beyond. */
static bool
name_in(const char *bytes, size_t len, size_t at, struct host *out,
    size_t *end)
{
	uint8_t *p = malloc(len);
	bool ok;

	assert_non_null(p);
	memcpy(p, bytes, len);
	*end = at;
	ok = wire_host(span_of(p, len), end, out);
	free(p);
	return ok;
}

#define NAME_IN(bytes, at) \
	name_in(bytes, sizeof(bytes) - 1, at, &name, &end)

static void
names_with_and_without_pointers(void **state)
{
	struct host name;
	size_t end;

	(void)state;
	assert_true(NAME_IN(ZEROS "\1a\7Example\0\1b\300\14x", 12));
	assert_string_equal(name.name, "a.example");
	assert_int_equal(end, 23);
	assert_true(NAME_IN(ZEROS "\1a\7Example\0\1b\300\16x", 23));
	assert_string_equal(name.name, "b.example");
	assert_int_equal(end, 27);
	assert_true(NAME_IN(ZEROS "\0", 12));
	assert_int_equal(name.len, 0);
}

static void
N19_pointers_lead_backwards_only(void **state)
{
	struct host name;
	size_t end;

	(void)state;
	assert_false(NAME_IN(ZEROS "\300\14", 12));	/* at itself */
	assert_false(NAME_IN(ZEROS "\300\16\1a\0", 12));	/* forwards */
	assert_false(NAME_IN(ZEROS "\1a\300\14", 12));	/* a circle */
	assert_false(NAME_IN(ZEROS "\300\0", 12));	/* the header */
	assert_false(NAME_IN(ZEROS "\300", 12));	/* cut */
	assert_false(NAME_IN(ZEROS "\100a\0", 12));	/* 01: no label */
	assert_false(NAME_IN(ZEROS "\200a\0", 12));	/* 10 */
}

static void
names_end_within_the_message(void **state)
{
	struct host name;
	size_t end;

	(void)state;
	assert_false(NAME_IN(ZEROS "\1a", 12));
	assert_false(NAME_IN(ZEROS "\5ab", 12));
	assert_false(NAME_IN(ZEROS, 12));
}

/* 255 bytes with the root, and not one more. */
static void
the_longest_name(void **state)
{
	uint8_t bytes[12 + 300] = { 0 }, out[WIRE_NAME_MAX_BYTES];

	(void)state;
	for (unsigned extra = 0; extra < 2; extra++) {
		size_t at = 12, from = 12, len;

		for (unsigned i = 0; i < 3; i++) {
			bytes[at] = 63;
			memset(bytes + at + 1, 'a', 63);
			at += 64;
		}
		bytes[at] = (uint8_t)(61 + extra);
		memset(bytes + at + 1, 'b', 62);
		at += 62 + extra;
		bytes[at++] = 0;
		assert_int_equal(wire_name(span_of(bytes, at), &from, out,
		    &len), extra == 0);
		if (extra == 0)
			assert_int_equal(len, WIRE_NAME_MAX_BYTES);
	}
}

static void
what_is_no_host_name_is_a_name_still(void **state)
{
	struct host name;
	size_t end;

	(void)state;
	assert_true(NAME_IN(ZEROS "\3a.b\1c\0", 12));	/* a dot within */
	assert_int_equal(name.len, 0);
	assert_true(NAME_IN(ZEROS "\2a\377\0", 12));
	assert_int_equal(name.len, 0);
	assert_int_equal(end, 16);
}

static void
a_record_is_read_whole_or_not(void **state)
{
	static const uint8_t bytes[] = ZEROS "\1a\0" "\0\1\0\1"
	    "\200\0\0\5" "\0\4" "1234";
	struct wire_record r;

	(void)state;
	for (size_t len = 12; len < sizeof(bytes); len++) {
		uint8_t *p = malloc(len);
		size_t at = 12;

		memcpy(p, bytes, len);
		assert_int_equal(wire_record(span_of(p, len), &at, &r),
		    len == sizeof(bytes) - 1);
		free(p);
	}
	assert_int_equal(r.type, TYPE_A);
	assert_int_equal(r.ttl_s, 0);	/* the top bit */
	assert_int_equal(r.data.len, 4);
	assert_int_equal(r.data_at, 25);
}

static void
a_host_is_written_as_it_is_read(void **state)
{
	uint8_t bytes[300] = { 0 };
	struct wire_writer w = { .out = bytes, .size = sizeof(bytes),
	    .at = 12 };
	struct host in, out;
	size_t at = 12;

	(void)state;
	assert_int_equal(host_parse(&in, span_str("_a.b-c.example")),
	    REASON_NONE);
	wire_put_host(&w, &in);
	assert_int_equal(w.at, 12u + in.len + 2);
	assert_true(wire_host(span_of(bytes, w.at), &at, &out));
	assert_true(host_eq(&in, &out));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_with_and_without_pointers),
		cmocka_unit_test(N19_pointers_lead_backwards_only),
		cmocka_unit_test(names_end_within_the_message),
		cmocka_unit_test(the_longest_name),
		cmocka_unit_test(what_is_no_host_name_is_a_name_still),
		cmocka_unit_test(a_record_is_read_whole_or_not),
		cmocka_unit_test(a_host_is_written_as_it_is_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
