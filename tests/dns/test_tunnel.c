/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/tunnel.h"

#include <setjmp.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "dns/wire.h"

#define SECOND 1000

static struct tunnel *
new_tunnel(unsigned domains)
{
	struct tunnel_settings s = { .domains_max = domains };
	struct tunnel *t = tunnel_new(&s);

	assert_non_null(t);
	return t;
}

/* "a.b.c" in wire form. */
static struct span
wire(const char *name)
{
	static uint8_t q[WIRE_NAME_MAX_BYTES];
	size_t len = 0;

	for (const char *at = name; *at != '\0';) {
		size_t n = strcspn(at, ".");

		q[len++] = (uint8_t)n;
		memcpy(q + len, at, n);
		len += n;
		at += n + (at[n] == '.');
	}
	q[len++] = 0;
	return span_of(q, len);
}

static struct tunnel_look
ask(struct tunnel *t, const char *cell, const char *name, uint16_t type,
    int64_t now)
{
	struct tunnel_look look;

	tunnel_question(t, span_str(cell), wire(name), type, now, &look);
	return look;
}

/* 40 letters of base 32, others each time. */
static void
data_name(char *out, size_t size, const char *domain)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyz234567";
	char data[41];

	for (unsigned i = 0; i < 40; i++)
		data[i] = letters[randombytes_uniform(32)];
	data[40] = '\0';
	snprintf(out, size, "%s.%s", data, domain);
}

static struct tunnel_look
send_data(struct tunnel *t, const char *cell, const char *domain, unsigned n,
    int64_t now)
{
	struct tunnel_look look = { 0 };
	bool first = false;
	char name[256];

	for (unsigned i = 0; i < n; i++) {
		data_name(name, sizeof(name), domain);
		look = ask(t, cell, name, TYPE_A, now + i);
		assert_false(first && look.first);
		first |= look.first;
	}
	look.first = first;
	return look;
}

static void
data_in_names_is_suspected_once(void **state)
{
	struct tunnel *t = new_tunnel(0);
	struct tunnel_look look;

	(void)state;
	look = send_data(t, "c", "evil.example.com", 40, 0);
	assert_true(look.suspected);
	assert_true(look.first);
	assert_string_equal(look.domain, "example.com");
	assert_int_equal(tunnel_suspected(t, 100), 1);
	tunnel_free(t);
}

static void
names_asked_again_carry_nothing(void **state)
{
	struct tunnel *t = new_tunnel(0);
	struct tunnel_look look = { 0 };
	char names[7][256];

	(void)state;
	for (unsigned i = 0; i < 7; i++)
		data_name(names[i], sizeof(names[i]), "example.com");
	for (unsigned i = 0; i < 700; i++)
		look = ask(t, "c", names[i % 7], TYPE_A, i);
	assert_true(look.names <= 7);
	assert_false(look.suspected);
	tunnel_free(t);
}

static void
ordinary_hosts_of_one_domain_are_not(void **state)
{
	struct tunnel *t = new_tunnel(0);
	char name[256];

	(void)state;
	for (unsigned i = 0; i < 60; i++) {
		snprintf(name, sizeof(name), "node%u.eu.example.com", i);
		assert_false(ask(t, "c", name, i % 2 ? TYPE_A : TYPE_AAAA,
		    i).suspected);
	}
	tunnel_free(t);
}

static void
types_that_carry_count_without_long_names(void **state)
{
	struct tunnel *t = new_tunnel(0);
	struct tunnel_look look = { 0 };
	char name[256];

	(void)state;
	for (unsigned i = 0; i < 20; i++) {
		snprintf(name, sizeof(name), "p%u.example.com", i);
		look = ask(t, "c", name, 10 /* NULL */, i);
	}
	assert_true(look.suspected);
	assert_int_equal(look.carriers, look.names);
	tunnel_free(t);
}

static void
fat_answers_to_new_names_count(void **state)
{
	struct tunnel *t = new_tunnel(0);
	struct tunnel_look look = { 0 };
	char name[256];

	(void)state;
	for (unsigned i = 0; i < 16; i++) {
		snprintf(name, sizeof(name), "d%u.example.com", i);
		look = ask(t, "c", name, TYPE_A, i);
		tunnel_answer(t, span_str("c"), wire(name), 4000, i);
	}
	assert_true(look.suspected);
	tunnel_free(t);
}

static void
cells_and_domains_are_apart(void **state)
{
	struct tunnel *t = new_tunnel(0);

	(void)state;
	assert_true(send_data(t, "c", "a.co.uk", 40, 0).suspected);
	assert_int_equal(send_data(t, "d", "a.co.uk", 1, 50).names, 1);
	assert_int_equal(send_data(t, "c", "b.co.uk", 1, 50).names, 1);
	tunnel_free(t);
}

static void
what_is_older_than_the_window_is_forgotten(void **state)
{
	struct tunnel *t = new_tunnel(0);

	(void)state;
	assert_true(send_data(t, "c", "example.com", 40, 0).suspected);
	assert_false(send_data(t, "c", "example.com", 1,
	    61 * SECOND).suspected);
	/* told again when it begins again */
	assert_true(send_data(t, "c", "example.com", 40, 62 * SECOND).first);
	assert_int_equal(tunnel_suspected(t, 200 * SECOND), 0);
	tunnel_free(t);
}

static void
slow_over_the_halves_still_counts(void **state)
{
	struct tunnel *t = new_tunnel(0);
	struct tunnel_look look = { 0 };

	(void)state;
	for (unsigned i = 0; i < 60 && !look.suspected; i++)
		look = send_data(t, "c", "example.com", 1,
		    (int64_t)i * SECOND);
	assert_true(look.suspected);
	tunnel_free(t);
}

static void
many_domains_do_not_push_a_tunnel_out(void **state)
{
	struct tunnel *t = new_tunnel(8);
	char name[256];

	(void)state;
	assert_true(send_data(t, "c", "example.com", 40, 0).suspected);
	for (unsigned i = 0; i < 1000; i++) {
		snprintf(name, sizeof(name), "www.d%u.com", i);
		ask(t, "c", name, TYPE_A, 50);
	}
	assert_true(send_data(t, "c", "example.com", 1, 60).suspected);
	tunnel_free(t);
}

static void
names_under_no_suffix_are_one_domain(void **state)
{
	struct tunnel *t = new_tunnel(0);
	struct tunnel_look look = { 0 };
	char name[256];

	(void)state;
	for (unsigned i = 0; i < 30; i++) {
		data_name(name, sizeof(name), "0a1b2c");
		look = ask(t, "c", name, TYPE_A, i);
	}
	assert_true(look.suspected);
	assert_string_equal(look.domain, "");
	tunnel_free(t);
}

static void
reverse_names_and_the_root_are_nothing(void **state)
{
	struct tunnel *t = new_tunnel(0);
	char name[256];

	(void)state;
	for (unsigned i = 0; i < 100; i++) {
		data_name(name, sizeof(name), "8.b.d.0.1.0.0.2.ip6.arpa");
		assert_int_equal(ask(t, "c", name, TYPE_PTR, i).score, 0);
	}
	assert_int_equal(ask(t, "c", "", TYPE_NS, 0).score, 0);
	tunnel_free(t);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(data_in_names_is_suspected_once),
		cmocka_unit_test(names_asked_again_carry_nothing),
		cmocka_unit_test(ordinary_hosts_of_one_domain_are_not),
		cmocka_unit_test(types_that_carry_count_without_long_names),
		cmocka_unit_test(fat_answers_to_new_names_count),
		cmocka_unit_test(cells_and_domains_are_apart),
		cmocka_unit_test(what_is_older_than_the_window_is_forgotten),
		cmocka_unit_test(slow_over_the_halves_still_counts),
		cmocka_unit_test(many_domains_do_not_push_a_tunnel_out),
		cmocka_unit_test(names_under_no_suffix_are_one_domain),
		cmocka_unit_test(reverse_names_and_the_root_are_nothing),
	};

	if (sodium_init() < 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
