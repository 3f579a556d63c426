/* SPDX-License-Identifier: Apache-2.0 */
/* Reports about CONNECT: how it is refused, and which name may be shown
 * inside. */
#include "tests/replay/stage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define LAB "version: 1\nnetwork:\n  resolvers: [198.18.0.53]\n" \
	"  lab: [203.0.113.0/24]\n"
#define OTHER "203.0.113.2"	/* pinned to what a test says */

static int tls, other;
static uint8_t hello[1024];
static char got[16384];

static int
up(void **state)
{
	(void)state;
	stage_up(NULL, NULL);
	tls = stage_listen(ORIGIN, 443);
	other = stage_listen(OTHER, 443);
	return 0;
}

static int
down(void **state)
{
	(void)state;
	close(tls);
	close(other);
	stage_down();
	return 0;
}

static int
asks(const char *place)
{
	int fd = stage_connect(WANTED, 3128);
	char head[256];
	int n = snprintf(head, sizeof(head), "CONNECT %s HTTP/1.1\r\n"
	    "Host: %s\r\n\r\n", place, place);

	stage_send(fd, head, (size_t)n);
	return fd;
}

/* A status line, its fields, a body of the length that they say, and an end
 * in order: nothing that a client could wait for or take for a lost line. */
static void
whole(int fd, const char *line, enum reason why)
{
	const char *length, *body;
	bool reset;

	stage_read_all(fd, got, sizeof(got), &reset);
	close(fd);
	if (strncmp(got, line, strlen(line)) != 0)
		fail_msg("got '%s', not '%s'", got, line);
	assert_false(reset);
	length = strstr(got, "\r\nContent-Length: ");
	body = strstr(got, "\r\n\r\n");
	assert_non_null(length);
	assert_non_null(body);
	assert_int_equal(atoi(length + 18), strlen(body + 4));
	assert_int_not_equal(strlen(body + 4), 0);
	assert_non_null(strstr(got, "\r\nConnection: close\r\n"));
	assert_non_null(strstr(got, "\r\nProxy-Status: penstock"));
	assert_non_null(strstr(body, reason_word(why)));
	assert_null(strcasestr(got, "\r\nproxy-authenticate:"));
}

static void
B019_every_refusal_of_a_connect_is_a_whole_answer(void **state)
{
	static const struct {
		const char *place, *line;
		enum reason why;
	} t[] = {
		{ "denied.test:443", "HTTP/1.1 403", REASON_RULE_DENY },
		{ "evil.test:443", "HTTP/1.1 403", REASON_NO_RULE },
		{ "allowed.test:25", "HTTP/1.1 403", REASON_NO_RULE },
		{ "git.test:22", "HTTP/1.1 502", REASON_CONNECT_REFUSED },
		{ "second.test:443", "HTTP/1.1 504", REASON_DNS_TIMEOUT },
		{ "203.0.113.77:443", "HTTP/1.1 403",
		    REASON_ADDRESS_LITERAL },
		{ "[::1]:443", "HTTP/1.1 403", REASON_ADDRESS_LITERAL },
	};
	int64_t began;

	(void)state;
	stage_pin("git.test", "203.0.113.30");		/* nobody listens */
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		began = stage_now_ms();
		whole(asks(t[i].place), t[i].line, t[i].why);
		assert_true(stage_now_ms() - began < 1000);
		assert_int_equal(stage_record(RECORD_END)->reason, t[i].why);
	}
}

static void
B019_a_refusal_for_want_of_a_place_is_whole(void **state)
{
	struct proxy_limits l = stage_limits;
	int fd;

	(void)state;
	down(NULL);
	l.per_client = 1;
	stage_up(NULL, &l);
	tls = stage_listen(ORIGIN, 443);
	other = stage_listen(OTHER, 443);
	fd = stage_connect(WANTED, 3128);
	for (int i = 0; i < 3; i++)
		whole(asks("allowed.test:443"), "HTTP/1.1 503",
		    REASON_LIMIT_CLIENT);
	close(fd);
}

/* A tunnel to `place`, and a hello in it: does it go up? */
static bool
passes(const char *place, const char *name, int lfd, enum reason why)
{
	size_t n = stage_hello(name, hello, sizeof(hello)), m;
	int fd = asks(place), server = stage_accept(lfd);
	const struct record *r;
	bool reset;

	assert_true(server >= 0);
	stage_read_head(fd, got, sizeof(got));
	assert_memory_equal(got, "HTTP/1.1 200", 12);
	stage_send(fd, hello, n);
	if (why == REASON_NONE) {
		stage_expect(server, hello, n);
		m = n;
	} else {
		m = stage_read_all(server, got, sizeof(got), &reset);
	}
	close(fd);
	close(server);
	r = stage_record(RECORD_END);
	if (r->verdict == VERDICT_DENY)
		assert_int_equal(r->reason, why);
	assert_int_equal(r->bytes_up, m);
	return r->verdict == VERDICT_ALLOW;
}

static void
B023_a_name_inside_may_be_spelled_otherwise_but_not_be_another(void **state)
{
	static const struct {
		const char *name;
		enum reason why;
	} t[] = {
		{ "allowed.test", REASON_NONE },
		{ "ALLOWED.Test", REASON_NONE },
		{ "allowed.test.", REASON_NONE },
		{ "denied.test", REASON_SNI_MISMATCH },
		{ "second.test", REASON_SNI_MISMATCH },	/* allowed as well */
		{ "allowed.test.evil.test", REASON_SNI_MISMATCH },
		{ "x.allowed.test", REASON_SNI_MISMATCH },
		{ NULL, REASON_NO_SNI },
	};

	(void)state;
	stage_pin("second.test", ORIGIN);
	stage_pin("denied.test", ORIGIN);
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++)
		assert_int_equal(passes("allowed.test:443", t[i].name, tls,
		    t[i].why), t[i].why == REASON_NONE);
}

/* no_sni: pinned-ip asks for an address that has allowed names only. */
static void
B023_no_name_inside_follows_the_rule_for_none(void **state)
{
	static const char policy[] = LAB "  no_sni: pinned-ip\n  rule:\n"
	    "    - {verdict: allow, hostname: allowed.test}\n";

	(void)state;
	assert_false(passes("allowed.test:443", NULL, tls, REASON_NO_SNI));
	stage_policy(policy);
	assert_true(passes("allowed.test:443", NULL, tls, REASON_NONE));
	/* what another cell, or another run of it, looked up is its own */
	stage_pin_for("other", "", "denied.test", ORIGIN);
	stage_pin_for("cell", "2", "denied.test", ORIGIN);
	assert_true(passes("allowed.test:443", NULL, tls, REASON_NONE));
	stage_pin("denied.test", ORIGIN);	/* shares the address now */
	assert_false(passes("allowed.test:443", NULL, tls, REASON_NO_SNI));
}

/* An address that our resolver handed out: for one name, for two of which
 * one is allowed, for none. */
static void
B025_a_pinned_address_opens_for_its_allowed_name_alone(void **state)
{
	(void)state;
	whole(asks(OTHER ":443"), "HTTP/1.1 403", REASON_ADDRESS_LITERAL);
	assert_non_null(strstr(got, "address literal"));
	assert_int_equal(stage_accept(other), -1);
	(void)stage_record(RECORD_END);
	stage_pin("allowed.test", OTHER);
	assert_true(passes(OTHER ":443", "allowed.test", other, REASON_NONE));
	assert_false(passes(OTHER ":443", "denied.test", other,
	    REASON_SNI_MISMATCH));
	assert_false(passes(OTHER ":443", "second.test", other,
	    REASON_SNI_MISMATCH));
	assert_false(passes(OTHER ":443", NULL, other, REASON_NO_SNI));
	stage_pin("evil.test", OTHER);
	whole(asks(OTHER ":443"), "HTTP/1.1 403", REASON_ADDRESS_LITERAL);
	assert_int_equal(stage_accept(other), -1);
}

/* Two names that are allowed share the address: that of the hello, and its
 * rule, are told behind those of the CONNECT. */
static void
the_name_inside_a_tunnel_to_an_address_is_told(void **state)
{
	static const char policy[] = LAB "  rule:\n"
	    "    - {verdict: allow, hostname: allowed.test, id: one}\n"
	    "    - {verdict: allow, hostname: second.test, id: two}\n";
	static const enum record_kind kinds[] = { RECORD_DECISION, RECORD_END };
	size_t n = stage_hello("second.test", hello, sizeof(hello));
	const struct record *r;
	int fd, server;

	(void)state;
	stage_policy(policy);
	stage_pin("allowed.test", OTHER);
	stage_pin("second.test", OTHER);
	fd = asks(OTHER ":443");
	stage_read_head(fd, got, sizeof(got));
	server = stage_accept(other);
	stage_send(fd, hello, n);
	stage_expect(server, hello, n);
	assert_int_equal(stage_record(RECORD_DECISION)->name_from,
	    NAME_FROM_CONNECT);
	close(fd);
	close(server);
	for (size_t i = 0; i < 2; i++) {
		r = stage_record(kinds[i]);
		assert_int_equal(r->verdict, VERDICT_ALLOW);
		assert_int_equal(r->name_from, NAME_FROM_SNI);
		assert_true(span_eq(record_get(r, TEXT_NAME),
		    span_str("second.test")));
		assert_true(span_eq(record_get(r, TEXT_RULE),
		    span_str("two")));
		assert_int_equal(record_get(r, TEXT_JA4).len, 36);
		assert_int_equal(r->dialled.port, 443);
		assert_int_not_equal(r->dialled.addr.b[15], 0);
	}
}

/* ---- addresses that do not answer ---- */

#define REFUSES "203.0.113.30"
#define SILENT "203.0.113.40"

/* A full backlog answers no SYN. */
static int
silent_hole(int fill[static 4])
{
	struct endpoint e = { .port = 443 };
	struct sockaddr_storage ss;
	int hole = stage_listen(SILENT, 443);
	socklen_t len;

	listen(hole, 0);
	assert_true(addr_parse(&e.addr, span_str(SILENT)));
	len = endpoint_to_sockaddr(&e, &ss);
	for (int i = 0; i < 4; i++) {
		fill[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
		(void)!connect(fill[i], (struct sockaddr *)&ss, len);
	}
	usleep(50000);
	return hole;
}

static void
B037_in_any_order_the_one_that_lives_serves(void **state)
{
	static const char *const addrs[] = { REFUSES, SILENT, OTHER };
	static const int orders[6][3] = { { 0, 1, 2 }, { 0, 2, 1 },
	    { 1, 0, 2 }, { 1, 2, 0 }, { 2, 0, 1 }, { 2, 1, 0 } };
	int fill[4], hole = silent_hole(fill);
	char name[32], place[48];
	int64_t began;

	(void)state;
	stage_policy(LAB "  rule:\n"
	    "    - {verdict: allow, hostname: \"*.many.test\"}\n");
	for (int i = 0; i < 6; i++) {
		snprintf(name, sizeof(name), "n%d.many.test", i);
		snprintf(place, sizeof(place), "%s:443", name);
		for (int k = 0; k < 3; k++)
			stage_pin(name, addrs[orders[i][k]]);
		began = stage_now_ms();
		assert_true(passes(place, name, other, REASON_NONE));
		assert_true(stage_now_ms() - began < 600);
	}
	for (int i = 0; i < 4; i++)
		close(fill[i]);
	close(hole);
}

static void
B037_without_one_that_lives_it_is_told_in_time(void **state)
{
	int fill[4], hole = silent_hole(fill);
	int64_t began = stage_now_ms();

	(void)state;
	stage_pin("second.test", REFUSES);
	whole(asks("second.test:443"), "HTTP/1.1 502",
	    REASON_CONNECT_REFUSED);
	assert_true(stage_now_ms() - began < 500);
	stage_pin("second.test", SILENT);
	began = stage_now_ms();
	whole(asks("second.test:443"), "HTTP/1.1 504",
	    REASON_CONNECT_TIMEOUT);
	assert_in_range(stage_now_ms() - began, stage_limits.connect_ms - 50,
	    stage_limits.connect_ms + 500);
	for (int i = 0; i < 4; i++)
		close(fill[i]);
	close(hole);
}

/* The port says nothing of what comes inside. */
static void
B022_what_stands_inside_is_read_on_any_port(void **state)
{
	static const char *const names[] = { "allowed.test", "second.test" };
	int web = stage_listen(ORIGIN, 80), fd, server;
	char ask[64];
	bool reset;
	size_t n;

	(void)state;
	for (int i = 0; i < 4; i++) {
		fd = asks(i < 2 ? "allowed.test:80" : "allowed.test:443");
		stage_read_head(fd, got, sizeof(got));
		assert_memory_equal(got, "HTTP/1.1 200", 12);
		server = stage_accept(i < 2 ? web : tls);
		assert_true(server >= 0);
		n = i < 2 ? stage_hello(names[i], hello, sizeof(hello)) :
		    (size_t)snprintf(ask, sizeof(ask), "GET / HTTP/1.1\r\n"
		    "Host: %s\r\n\r\n", names[i % 2]);
		stage_send(fd, i < 2 ? (const void *)hello : ask, n);
		if (i == 0) {
			stage_expect(server, hello, n);
		} else if (i == 2) {
			stage_read_head(server, got, sizeof(got));
			assert_memory_equal(got, "GET / HTTP/1.1\r\n", 16);
		} else {
			stage_read_all(fd, got, sizeof(got), &reset);
			assert_int_equal(stage_read_all(server, got,
			    sizeof(got), &reset), 0);
			while (stage_record(RECORD_DECISION)->verdict ==
			    VERDICT_ALLOW)
				continue;
		}
		close(fd);
		close(server);
	}
	close(web);
}

#define T(f) cmocka_unit_test_setup_teardown(f, up, down)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		T(B019_every_refusal_of_a_connect_is_a_whole_answer),
		T(B019_a_refusal_for_want_of_a_place_is_whole),
		T(B023_a_name_inside_may_be_spelled_otherwise_but_not_be_another),
		T(B023_no_name_inside_follows_the_rule_for_none),
		T(B025_a_pinned_address_opens_for_its_allowed_name_alone),
		T(the_name_inside_a_tunnel_to_an_address_is_told),
		T(B037_in_any_order_the_one_that_lives_serves),
		T(B022_what_stands_inside_is_read_on_any_port),
		T(B037_without_one_that_lives_it_is_told_in_time),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
