/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "proxy/ja4.h"

static struct ja4_parts parts;
static char out[JA4_BYTES];

/* The worked example of the public description of JA4. */
static const uint16_t ciphers[] = { 0x1301, 0x1302, 0x1303, 0xc02b, 0xc02f,
	0xc02c, 0xc030, 0xcca9, 0xcca8, 0xc013, 0xc014, 0x009c, 0x009d,
	0x002f, 0x0035 };
static const uint16_t extensions[] = { 0x001b, 0x0000, 0x0033, 0x0010, 0x4469,
	0x0017, 0x002d, 0x000d, 0x0005, 0x0023, 0x0012, 0x002b, 0xff01,
	0x000b, 0x000a, 0x0015 };
static const uint16_t algorithms[] = { 0x0403, 0x0804, 0x0401, 0x0503, 0x0805,
	0x0501, 0x0806, 0x0601 };

static void
example(void)
{
	ja4_clear(&parts);
	parts.version = 0x0304;
	parts.name = true;
	parts.alpn = span_str("h2");
	memcpy(parts.ciphers, ciphers, sizeof(ciphers));
	parts.n_ciphers = sizeof(ciphers) / 2;
	memcpy(parts.extensions, extensions, sizeof(extensions));
	parts.n_extensions = sizeof(extensions) / 2;
	memcpy(parts.algorithms, algorithms, sizeof(algorithms));
	parts.n_algorithms = sizeof(algorithms) / 2;
}

static void
the_published_example_gives_the_published_value(void **state)
{
	(void)state;
	example();
	ja4_write(&parts, out);
	assert_string_equal(out, "t13d1516h2_8daaf6152771_e5627efa2ab1");
}

static void
the_order_of_ciphers_and_extensions_does_not_matter(void **state)
{
	(void)state;
	example();
	for (size_t i = 0; i < 15; i++)
		parts.ciphers[i] = ciphers[14 - i];
	for (size_t i = 0; i < 16; i++)
		parts.extensions[i] = extensions[15 - i];
	ja4_write(&parts, out);
	assert_string_equal(out, "t13d1516h2_8daaf6152771_e5627efa2ab1");
}

static void
the_order_of_signature_algorithms_does(void **state)
{
	(void)state;
	example();
	parts.algorithms[0] = algorithms[1];
	parts.algorithms[1] = algorithms[0];
	ja4_write(&parts, out);
	assert_memory_equal(out, "t13d1516h2_8daaf6152771_", 24);
	assert_string_not_equal(out + 24, "e5627efa2ab1");
}

static void
nothing_offered_is_written_as_zeros(void **state)
{
	(void)state;
	ja4_clear(&parts);
	parts.version = 0x0301;
	ja4_write(&parts, out);
	assert_string_equal(out, "t10i000000_000000000000_000000000000");
}

static void
a_long_list_is_hashed_whole_and_counted_to_99(void **state)
{
	size_t n = 0;

	(void)state;
	ja4_clear(&parts);
	parts.version = 0x0303;
	for (uint16_t i = 0; i < 300; i++)
		parts.ciphers[i] = (uint16_t)(0xc000 + i);
	parts.n_ciphers = 300;
	ja4_write(&parts, out);
	assert_string_equal(out, "t12i990000_be6f7c51f18a_000000000000");
	for (uint16_t v = 1; v <= 8100; v++)
		if (!ja4_is_grease(v))
			parts.ciphers[n++] = v;
	parts.n_ciphers = n;
	ja4_write(&parts, out);
	assert_string_equal(out, "t12i990000_85f4cb1fc5b8_000000000000");
}

static void
the_largest_lists_fit(void **state)
{
	(void)state;
	ja4_clear(&parts);
	for (size_t i = 0; i < JA4_LIST_MAX; i++)
		parts.ciphers[i] = parts.algorithms[i] = (uint16_t)i;
	for (size_t i = 0; i < JA4_EXTENSIONS_MAX; i++)
		parts.extensions[i] = (uint16_t)(i + 100);
	parts.n_ciphers = parts.n_algorithms = JA4_LIST_MAX;
	parts.n_extensions = JA4_EXTENSIONS_MAX;
	ja4_write(&parts, out);
	assert_int_equal(strlen(out), JA4_BYTES - 1);
	assert_memory_equal(out, "t00i999900_", 11);
}

static void
a_protocol_of_other_bytes_shows_its_hex(void **state)
{
	static const struct {
		const char *alpn, *word;
	} rows[] = { { "h2", "h2" }, { "http/1.1", "h1" }, { "h", "hh" },
		{ "\xab", "ab" }, { "\xab\xcd", "ad" }, { "0\xab", "3b" },
		{ "0\x31\xab\xcd", "3d" }, { "\x30\xab\xcd\x31", "01" },
		{ "", "00" } };

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		example();
		parts.alpn = span_str(rows[i].alpn);
		ja4_write(&parts, out);
		assert_memory_equal(out + 8, rows[i].word, 2);
	}
}

static void
a_version_is_two_characters(void **state)
{
	static const struct {
		uint16_t version;
		const char *word;
	} rows[] = { { 0x0304, "13" }, { 0x0303, "12" }, { 0x0302, "11" },
		{ 0x0301, "10" }, { 0x0300, "s3" }, { 0x7f1c, "00" } };

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		example();
		parts.version = rows[i].version;
		ja4_write(&parts, out);
		assert_memory_equal(out + 1, rows[i].word, 2);
	}
}

static void
grease_has_sixteen_values(void **state)
{
	unsigned n = 0;

	(void)state;
	for (uint32_t v = 0; v <= 0xffff; v++)
		n += ja4_is_grease((uint16_t)v);
	assert_int_equal(n, 16);
	assert_true(ja4_is_grease(0x0a0a));
	assert_true(ja4_is_grease(0xfafa));
	assert_false(ja4_is_grease(0x0a1a));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
		    the_published_example_gives_the_published_value),
		cmocka_unit_test(
		    the_order_of_ciphers_and_extensions_does_not_matter),
		cmocka_unit_test(the_order_of_signature_algorithms_does),
		cmocka_unit_test(nothing_offered_is_written_as_zeros),
		cmocka_unit_test(
		    a_long_list_is_hashed_whole_and_counted_to_99),
		cmocka_unit_test(the_largest_lists_fit),
		cmocka_unit_test(a_protocol_of_other_bytes_shows_its_hex),
		cmocka_unit_test(a_version_is_two_characters),
		cmocka_unit_test(grease_has_sixteen_values),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
