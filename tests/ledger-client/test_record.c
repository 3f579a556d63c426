/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <jansson.h>

#include "ledger-client/record.h"

static struct record r;
static char line[RECORD_JSON_MAX_BYTES];
static size_t line_len;

/* The line as JSON; it is one line of printable ASCII. */
static json_t *
json_of(const struct record *from)
{
	json_error_t error;
	json_t *j;

	line_len = record_json(from, 7, "i-1", line);
	assert_in_range(line_len, 2, RECORD_JSON_MAX_BYTES);
	for (size_t i = 0; i + 1 < line_len; i++)
		assert_in_range(line[i], 0x20, 0x7e);
	assert_int_equal(line[line_len - 1], '\n');
	j = json_loadb(line, line_len, JSON_ALLOW_NUL, &error);
	if (j == NULL)
		fail_msg("%s in %.*s", error.text, (int)line_len, line);
	return j;
}

static void
assert_word(const json_t *j, const char *key, const char *word)
{
	const char *got = json_string_value(json_object_get(j, key));

	assert_non_null(got);
	assert_string_equal(got, word);
}

static void
a_decision_explains_itself_in_one_line(void **state)
{
	json_t *j;

	(void)state;
	record_init(&r, RECORD_DECISION);
	r.verdict = VERDICT_ALLOW;
	r.would = VERDICT_ALLOW;
	r.reason = REASON_RULE;
	r.connection = 9;
	r.wall_us = INT64_C(1790000000000042);
	r.via = VIA_TPROXY;
	r.name_from = NAME_FROM_SNI;
	r.rule_line = 12;
	r.generation = 3;
	record_set(&r, TEXT_NAME, span_str("a.example"));
	record_set(&r, TEXT_RULE, span_str("rule-1"));
	record_set(&r, TEXT_RULE_FILE, span_str("p.yaml"));
	record_set(&r, TEXT_LABELS, span_str("team=a,run=7"));
	assert_true(addr_parse(&r.client.addr, span_str("10.0.0.1")));
	r.client.port = 5;
	j = json_of(&r);
	assert_word(j, "kind", "decision");
	assert_word(j, "verdict", "allow");
	assert_word(j, "reason", "rule");
	assert_word(j, "name", "a.example");
	assert_word(j, "name_from", "sni");
	assert_word(j, "via", "tproxy");
	assert_word(j, "rule_at", "p.yaml:12");
	assert_word(j, "client", "10.0.0.1:5");
	assert_word(j, "time", "2026-09-21T14:13:20.000042Z");
	assert_word(j, "instance", "i-1");
	assert_word(json_object_get(j, "labels"), "team", "a");
	assert_word(json_object_get(j, "labels"), "run", "7");
	assert_int_equal(json_integer_value(json_object_get(j, "seq")), 7);
	assert_int_equal(json_integer_value(json_object_get(j,
	    "connection")), 9);
	assert_null(json_object_get(j, "would"));
	assert_null(json_object_get(j, "candidate"));
	json_decref(j);
}

static void
a_refused_name_keeps_the_port_that_was_asked_for(void **state)
{
	json_t *j;

	(void)state;
	record_init(&r, RECORD_DECISION);
	r.via = VIA_CONNECT;
	r.dialled.port = 8443;
	record_set(&r, TEXT_NAME, span_str("evil.example"));
	j = json_of(&r);
	assert_int_equal(json_integer_value(json_object_get(j, "port")), 8443);
	json_decref(j);
	assert_true(addr_parse(&r.dialled.addr, span_str("192.0.2.1")));
	j = json_of(&r);
	assert_word(j, "candidate", "192.0.2.1:8443");
	assert_null(json_object_get(j, "dialled"));
	assert_null(json_object_get(j, "port"));
	json_decref(j);
	r.kind = RECORD_END;	/* only an end knows where it went */
	j = json_of(&r);
	assert_word(j, "dialled", "192.0.2.1:8443");
	assert_null(json_object_get(j, "candidate"));
	json_decref(j);
}

static void
an_end_tells_of_addresses_that_were_tried(void **state)
{
	static const struct { const char *addr; uint8_t why; } t[] = {
		{ "192.0.2.2", REASON_CONNECT_REFUSED },
		{ "2001:db8::1", REASON_NONE },
		{ "192.0.2.3", 255 },		/* no reason of ours */
	};
	struct record_try all[12] = { 0 };
	json_t *j, *list, *e;

	(void)state;
	for (int i = 0; i < 3; i++) {
		assert_true(addr_parse(&all[i].addr, span_str(t[i].addr)));
		all[i].reason = t[i].why;
	}
	for (int i = 3; i < 12; i++)
		all[i] = all[0];
	record_init(&r, RECORD_END);
	r.dialled.port = 443;
	/* and a piece that is none */
	record_set(&r, TEXT_TRIED, span_of(all, 3 * sizeof(all[0]) + 16));
	assert_true(record_check(&r, record_size(&r)));
	j = json_of(&r);
	list = json_object_get(j, "tried");
	assert_int_equal(json_array_size(list), 3);
	e = json_array_get(list, 0);
	assert_word(e, "address", "192.0.2.2:443");
	assert_word(e, "reason", "connect_refused");
	e = json_array_get(list, 1);
	assert_word(e, "address", "[2001:db8::1]:443");
	assert_int_equal(json_object_size(e), 1);
	assert_int_equal(json_object_size(json_array_get(list, 2)), 1);
	assert_null(json_object_get(j, "dialled"));
	json_decref(j);
	record_init(&r, RECORD_END);
	record_set(&r, TEXT_TRIED, span_of(all, sizeof(all)));
	j = json_of(&r);
	assert_int_equal(json_array_size(json_object_get(j, "tried")),
	    RECORD_TRIES_MAX);
	json_decref(j);
	r.kind = RECORD_DECISION;
	j = json_of(&r);
	assert_null(json_object_get(j, "tried"));
	json_decref(j);
}

static void
an_end_says_how_and_how_much(void **state)
{
	json_t *j;

	(void)state;
	record_init(&r, RECORD_END);
	r.how = HOW_CUT;
	r.reason = REASON_IDLE;
	r.bytes_up = 1;
	r.bytes_down = INT64_MAX;
	j = json_of(&r);
	assert_word(j, "how", "cut");
	assert_word(j, "verdict", "deny");
	assert_true(json_integer_value(json_object_get(j, "bytes_down")) ==
	    INT64_MAX);
	assert_null(json_object_get(j, "lost_up"));
	assert_null(json_object_get(j, "lost_down"));
	json_decref(j);
	r.lost_up = 3;
	r.lost_down = 5;
	j = json_of(&r);
	assert_int_equal(json_integer_value(json_object_get(j, "lost_up")), 3);
	assert_int_equal(json_integer_value(json_object_get(j, "lost_down")),
	    5);
	json_decref(j);
}

static void
W27_a_line_cannot_be_forged_by_what_it_reports(void **state)
{
	static const char forged[] = "a\"}\n{\"v\":1,\"kind\":\"decision\","
	    "\"verdict\":\"allow\"}\r\n\0\x1b[2J\xe2\x80\xa8\xff\\";

	(void)state;
	for (unsigned i = 0; i < TEXT_COUNT; i++) {
		/* a label is a key, and a key never has a NUL: see below */
		struct span s = span_of(forged, i == TEXT_LABELS ?
		    strlen(forged) : sizeof(forged) - 1);
		json_t *j;

		record_init(&r, RECORD_DECISION);
		record_set(&r, (enum record_text)i, s);
		assert_true(record_check(&r, record_size(&r)));
		j = json_of(&r);
		assert_word(j, "kind", "decision");
		assert_word(j, "verdict", "deny");
		assert_null(memchr(line, '\n', line_len - 1));
		json_decref(j);
	}
}

static void
W27_every_byte_is_escaped_or_plain(void **state)
{
	(void)state;
	for (unsigned b = 0; b < 256; b++) {
		uint8_t byte = (uint8_t)b;
		json_t *j, *name;

		record_init(&r, RECORD_DECISION);
		record_set(&r, TEXT_NAME, span_of(&byte, 1));
		j = json_of(&r);
		name = json_object_get(j, "name");
		assert_int_equal(json_string_length(name), b < 0x80 ? 1 : 2);
		if (b < 0x80)
			assert_int_equal(json_string_value(name)[0], b);
		json_decref(j);
	}
}

static void
a_long_string_is_cut_and_says_so(void **state)
{
	char longer[300];
	struct span s;

	(void)state;
	memset(longer, 'x', sizeof(longer));
	record_init(&r, RECORD_DECISION);
	record_set(&r, TEXT_NAME, span_of(longer, 255));
	s = record_get(&r, TEXT_NAME);
	assert_int_equal(s.len, 255);
	assert_int_equal(s.data[254], 'x');
	record_set(&r, TEXT_PATH, span_of(longer, 256));
	s = record_get(&r, TEXT_PATH);
	assert_int_equal(s.len, 255);
	assert_int_equal(s.data[253], 'x');
	assert_int_equal(s.data[254], '~');
}

static void
all_strings_at_their_longest_still_make_one_line(void **state)
{
	uint8_t longer[300];
	struct span s;
	json_t *j;

	(void)state;
	memset(longer, 0xff, sizeof(longer));
	record_init(&r, RECORD_END);
	for (unsigned i = 0; i < TEXT_COUNT; i++)
		record_set(&r, (enum record_text)i,
		    span_of(longer, sizeof(longer)));
	assert_int_equal(r.text_len, RECORD_TEXT_BYTES);
	assert_in_range(record_size(&r), RECORD_TEXT_BYTES, sizeof(r));
	assert_true(record_check(&r, sizeof(r)));
	s = record_get(&r, TEXT_JA4);
	assert_int_equal(s.len, 6);
	assert_int_equal(s.data[5], '~');
	assert_int_equal(record_get(&r, TEXT_DETAIL).len, 0);
	r.bytes_up = r.bytes_down = r.duration_us = INT64_MAX;
	r.lost_up = r.lost_down = INT64_MAX;
	j = json_of(&r);
	json_decref(j);
}

static void
make_sound(void)
{
	record_init(&r, RECORD_DECISION);
	record_set(&r, TEXT_NAME, span_str("a.example"));
	record_set(&r, TEXT_PATH, span_str("/x"));
	assert_true(record_check(&r, record_size(&r)));
}

#define REFUSED(change) do { \
	make_sound(); \
	change; \
	assert_false(record_check(&r, sizeof(r))); \
} while (0)

static void
W27_a_record_with_hostile_offsets_is_refused(void **state)
{
	(void)state;
	REFUSED(r.text_len = RECORD_TEXT_BYTES + 1);
	REFUSED(r.text_len = UINT16_MAX);
	REFUSED(r.text_at[TEXT_NAME] = 3);
	REFUSED(r.text_at[TEXT_NAME] = UINT16_MAX);
	REFUSED(r.text_at[TEXT_DETAIL] = 12);
	REFUSED(r.text_at_len[TEXT_DETAIL] = 12);
	REFUSED(r.text_len = 4);
	/* the same bytes for two strings: a line could outgrow its room */
	REFUSED(r.text_at_len[TEXT_DETAIL] = 9);
	/* readers of JSON end a key at a NUL */
	REFUSED(record_set(&r, TEXT_LABELS, span_of("a\0b=c", 5)));
	make_sound();
	for (size_t n = 0; n < record_size(&r); n++)
		assert_false(record_check(&r, n));
}

static void
W27_strings_that_overlap_cannot_break_a_line(void **state)
{
	(void)state;
	record_init(&r, RECORD_DECISION);
	memset(r.text, 0xff, sizeof(r.text));
	r.text_len = 255;
	for (unsigned i = 0; i < TEXT_COUNT; i++)
		r.text_at_len[i] = 255;
	assert_false(record_check(&r, sizeof(r)));
}

static void
W27_a_record_with_hostile_words_is_refused(void **state)
{
	(void)state;
	REFUSED(r.kind = RECORD_NONE);
	REFUSED(r.kind = RECORD_RULES + 1);
	REFUSED(r.verdict = VERDICT_ALLOW + 1);
	REFUSED(r.would = 255);
	REFUSED(r.reason = REASON_COUNT);
	REFUSED(r.via = VIA_DNS_TCP + 1);
	REFUSED(r.name_from = NAME_FROM_PIN + 1);
	REFUSED(r.how = HOW_CUT + 1);
}

/* A reader of JSON has integers of 64 bits with a sign. */
static void
W27_a_number_that_a_reader_cannot_hold_is_refused(void **state)
{
	(void)state;
	REFUSED(r.connection = UINT64_MAX);
	REFUSED(r.request = UINT64_MAX);
	REFUSED(r.generation = UINT64_MAX);
	REFUSED(r.bytes_up = UINT64_MAX);
	REFUSED(r.bytes_down = UINT64_MAX);
	REFUSED(r.lost_up = UINT64_MAX);
	REFUSED(r.lost_down = UINT64_MAX);
	REFUSED(r.duration_us = UINT64_MAX);
	REFUSED(r.mono_us = -1);
	REFUSED(r.wall_us = -1);
}

static void
every_word_has_a_text_and_no_index_is_out_of_bounds(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 300; i++) {
		assert_non_null(record_kind_word((enum record_kind)i));
		assert_non_null(record_via_word((enum record_via)i));
		assert_non_null(record_how_word((enum record_how)i));
	}
	assert_string_equal(record_kind_word(RECORD_GAP), "gap");
	assert_string_equal(record_via_word(VIA_DNS_TCP), "dns-tcp");
	assert_string_equal(record_how_word(HOW_RESET_CLIENT),
	    "reset_client");
}

/* A taken producer may end a list where it likes. */
static void
a_list_that_ends_in_a_comma_is_json_still(void **state)
{
	static const char *const lists[] = { ",", "a,", ",a", "a,,b,", ",," };

	(void)state;
	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
		record_init(&r, RECORD_POLICY);
		record_set(&r, TEXT_LAB, span_str(lists[i]));
		record_set(&r, TEXT_LABELS, span_str(lists[i]));
		assert_true(record_check(&r, record_size(&r)));
		json_decref(json_of(&r));
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_decision_explains_itself_in_one_line),
		cmocka_unit_test(a_refused_name_keeps_the_port_that_was_asked_for),
		cmocka_unit_test(an_end_says_how_and_how_much),
		cmocka_unit_test(an_end_tells_of_addresses_that_were_tried),
		cmocka_unit_test(
		    W27_a_line_cannot_be_forged_by_what_it_reports),
		cmocka_unit_test(W27_every_byte_is_escaped_or_plain),
		cmocka_unit_test(a_long_string_is_cut_and_says_so),
		cmocka_unit_test(
		    all_strings_at_their_longest_still_make_one_line),
		cmocka_unit_test(W27_a_record_with_hostile_offsets_is_refused),
		cmocka_unit_test(W27_strings_that_overlap_cannot_break_a_line),
		cmocka_unit_test(W27_a_record_with_hostile_words_is_refused),
		cmocka_unit_test(a_list_that_ends_in_a_comma_is_json_still),
		cmocka_unit_test(
		    W27_a_number_that_a_reader_cannot_hold_is_refused),
		cmocka_unit_test(
		    every_word_has_a_text_and_no_index_is_out_of_bounds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
