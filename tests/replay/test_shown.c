/* SPDX-License-Identifier: Apache-2.0 */
/* Names that a flow shows behind its decision: all of them are in its records,
 * whether what shows them is let pass or cut. */
#include "tests/replay/stage.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define OTHER "203.0.113.2"
#define THIRD "203.0.113.3"

/* :5432 of OTHER is carried for its names alone, that of THIRD for whatever it
 * shows but for one name; so is :443 of THIRD, where it is read first. */
#define RULES(more) "version: 1\nnetwork:\n" more \
	"  resolvers: [198.18.0.53]\n  lab: [203.0.113.0/24]\n  rule:\n" \
	"    - {verdict: allow, hostname: one.test, ports: [5432], " \
	"protocol: tcp, id: one}\n" \
	"    - {verdict: allow, hostname: two.test, ports: [5432], " \
	"protocol: tcp, id: two}\n" \
	"    - {verdict: allow, cidr: 203.0.113.3/32, ports: [5432], " \
	"protocol: tcp, id: place}\n" \
	"    - {verdict: allow, cidr: 203.0.113.3/32, ports: [443], " \
	"id: web}\n" \
	"    - {verdict: deny, hostname: denied.test, id: no}\n"

static const char policy[] = RULES(""), no_ech[] = RULES("  ech: deny\n");
static const uint8_t ask_tls[] = { 0, 0, 0, 8, 4, 0xd2, 0x16, 0x2f };
static const uint8_t server_hello[] = { 22, 3, 3, 0, 7, 2, 0, 0, 3, 3, 3, 0 };

static int named, place, web;
static uint8_t hello[2048];
static char got[8192];

static int
up(void **state)
{
	(void)state;
	stage_up(policy, NULL);
	stage_pin("one.test", OTHER);
	stage_pin("two.test", OTHER);
	named = stage_listen(OTHER, 5432);
	place = stage_listen(THIRD, 5432);
	web = stage_listen(THIRD, 443);
	return 0;
}

static int
down(void **state)
{
	(void)state;
	close(named);
	close(place);
	close(web);
	stage_down();
	return 0;
}

static void
is_text(const struct record *r, enum record_text which, const char *text)
{
	struct span s = record_get(r, which);

	if (!span_eq(s, span_str(text)))
		fail_msg("'%.*s' is not '%s'", (int)s.len, s.data, text);
}

/* A tunnel, whose decision is by this rule. */
static int
tunnel(const char *to, int lfd, const char *rule, int *server)
{
	int fd = stage_connect(WANTED, 3128);
	const struct record *r;

	say(fd, "CONNECT ");
	say(fd, to);
	say(fd, " HTTP/1.1\r\nHost: ");
	say(fd, to);
	say(fd, "\r\n\r\n");
	stage_read_head(fd, got, sizeof(got));
	assert_memory_equal(got, "HTTP/1.1 200", 12);
	*server = stage_accept(lfd);
	assert_true(*server >= 0);
	r = stage_record(RECORD_DECISION);
	assert_int_equal(r->verdict, VERDICT_ALLOW);
	is_text(r, TEXT_RULE, rule);
	is_text(r, TEXT_OTHER_NAME, "");
	return fd;
}

/* In front of a hello: nothing, or what asks for TLS. */
enum { AT_ONCE, BEHIND_BYTES };

static size_t
go_over(int fd, int server, int how)
{
	if (how == AT_ONCE)
		return 0;
	stage_send(fd, ask_tls, sizeof(ask_tls));
	stage_expect(server, ask_tls, sizeof(ask_tls));
	return sizeof(ask_tls);
}

/* It goes up, and the tunnel is open. */
static void
passes(int fd, int server, const char *name)
{
	size_t n = stage_hello(name, hello, sizeof(hello));

	stage_send(fd, hello, n);
	stage_expect(server, hello, n);
	stage_send(server, server_hello, sizeof(server_hello));
	stage_expect(fd, server_hello, sizeof(server_hello));
}

/* By one decision, or by a second one whose name and rule are these. */
static const struct record *
ends(int fd, int server, const char *name, const char *rule)
{
	const struct record *r;

	close(fd);
	close(server);
	r = stage_record(RECORD_END);
	assert_int_equal(r->verdict, VERDICT_ALLOW);
	is_text(r, TEXT_NAME, name);
	is_text(r, TEXT_RULE, rule);
	assert_int_equal(record_get(r, TEXT_JA4).len, 36);
	return r;
}

static const struct record *
is_denied(int fd, int server, enum reason why)
{
	const struct record *r = stage_record(RECORD_DECISION);
	bool reset;

	assert_int_equal(r->verdict, VERDICT_DENY);
	assert_int_equal(r->reason, why);
	(void)stage_read_all(server, got, sizeof(got), &reset);
	close(fd);
	close(server);
	return r;
}

/* ---- let pass ---- */

static void
the_name_that_was_asked_for_is_told_once(void **state)
{
	const struct record *r;
	int fd, server;

	(void)state;
	for (int how = AT_ONCE; how <= BEHIND_BYTES; how++) {
		fd = tunnel("one.test:5432", named, "one", &server);
		go_over(fd, server, how);
		passes(fd, server, "one.test");
		r = ends(fd, server, "one.test", "one");
		assert_int_equal(r->name_from, NAME_FROM_CONNECT);
		is_text(r, TEXT_OTHER_NAME, "");
		assert_true(stage_no_record(RECORD_DECISION));
	}
}

static void
a_name_with_a_rule_of_its_own_is_a_decision(void **state)
{
	const struct record *r;
	int fd, server;

	(void)state;
	for (int how = AT_ONCE; how <= BEHIND_BYTES; how++) {
		fd = tunnel(OTHER ":5432", named, "one", &server);
		go_over(fd, server, how);
		passes(fd, server, "two.test");
		r = stage_record(RECORD_DECISION);
		assert_int_equal(r->verdict, VERDICT_ALLOW);
		assert_int_equal(r->name_from, NAME_FROM_SNI);
		is_text(r, TEXT_NAME, "two.test");
		is_text(r, TEXT_RULE, "two");
		r = ends(fd, server, "two.test", "two");
		assert_int_equal(r->name_from, NAME_FROM_SNI);
		is_text(r, TEXT_OTHER_NAME, "");
	}
}

/* As long as a name can be, and no rule for it. */
#define LONG "l1234567890123456789012345678901234567890123456789.test"
#define LONGEST LONG "." LONG "." LONG "." LONG

static void
a_name_that_its_address_lets_pass_is_in_the_end(void **state)
{
	static const char *const names[] = { "any.test", LONGEST };
	const struct record *r;
	int fd, server;

	(void)state;
	for (int i = 0; i < 4; i++) {
		fd = tunnel(THIRD ":5432", place, "place", &server);
		go_over(fd, server, i % 2);
		passes(fd, server, names[i / 2]);
		/* it is not what lets the flow pass, nor asked for again */
		stage_policy(policy);
		say(fd, "more");
		stage_expect(server, "more", 4);
		r = ends(fd, server, "", "place");
		is_text(r, TEXT_OTHER_NAME, names[i / 2]);
		assert_true(stage_no_record(RECORD_DECISION));
	}
}

static void
inside_a_tunnel_that_is_read_first_it_is_told_too(void **state)
{
	const struct record *r;
	int fd, server;
	size_t n;

	(void)state;
	fd = tunnel(THIRD ":443", web, "web", &server);
	passes(fd, server, NULL);
	r = ends(fd, server, "", "web");
	is_text(r, TEXT_OTHER_NAME, "");
	assert_true(stage_no_record(RECORD_DECISION));
	fd = tunnel(THIRD ":443", web, "web", &server);
	n = stage_hello("any.test", hello, sizeof(hello));
	stage_send(fd, hello, n);
	r = is_denied(fd, server, REASON_SNI_MISMATCH);
	is_text(r, TEXT_NAME, "");
	is_text(r, TEXT_OTHER_NAME, "any.test");
}

static void
bytes_that_show_no_name_have_none(void **state)
{
	const struct record *r;
	int fd, server;

	(void)state;
	fd = tunnel(THIRD ":5432", place, "place", &server);
	go_over(fd, server, BEHIND_BYTES);
	close(fd);
	close(server);
	r = stage_record(RECORD_END);
	is_text(r, TEXT_NAME, "");
	is_text(r, TEXT_OTHER_NAME, "");
	assert_int_equal(record_get(r, TEXT_JA4).len, 0);
}

/* ---- cut ---- */

static void
a_name_that_does_not_fit_is_in_the_denial(void **state)
{
	static const struct {
		const char *to, *rule, *name, *shown;
	} t[] = {
		{ "one.test:5432", "one", "one.test", "two.test" },
		{ OTHER ":5432", "one", "", "denied.test" },
		{ OTHER ":5432", "one", "", "three.test" },
		{ THIRD ":5432", "place", "", "denied.test" },
	};
	const struct record *r;
	int fd, server;

	(void)state;
	for (size_t i = 0; i < 2 * sizeof(t) / sizeof(t[0]); i++) {
		size_t k = i / 2, n = stage_hello(t[k].shown, hello,
		    sizeof(hello));

		fd = tunnel(t[k].to, k == 3 ? place : named, t[k].rule,
		    &server);
		go_over(fd, server, i % 2);
		stage_send(fd, hello, n);
		r = is_denied(fd, server, REASON_OTHER_NAME);
		is_text(r, TEXT_NAME, t[k].name);
		is_text(r, TEXT_OTHER_NAME, t[k].shown);
		r = stage_record(RECORD_END);
		is_text(r, TEXT_OTHER_NAME, t[k].shown);
		assert_int_equal(r->verdict, VERDICT_DENY);
	}
}

static void
the_name_in_front_of_ech_is_told(void **state)
{
	static const struct {
		const char *to, *name, *shown;
	} t[] = {
		{ "one.test:5432", "one.test", "outer.test" },
		{ THIRD ":5432", "", "outer.test" },
		{ "one.test:5432", "one.test", "one.test" },
	};
	const struct record *r;
	int fd, server;
	size_t n;

	(void)state;
	stage_policy(no_ech);
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		fd = tunnel(t[i].to, i == 1 ? place : named, i == 1 ? "place" :
		    "one", &server);
		n = stage_hello(t[i].shown, hello, sizeof(hello));
		n = stage_extend(hello, n, 0xfe0d, 8);
		stage_send(fd, hello, n);
		r = is_denied(fd, server, REASON_ECH);
		is_text(r, TEXT_NAME, t[i].name);
		is_text(r, TEXT_OTHER_NAME, i == 2 ? "" : t[i].shown);
		r = stage_record(RECORD_END);
		is_text(r, TEXT_OTHER_NAME, i == 2 ? "" : t[i].shown);
	}
}

/* Of two hellos on a flow without a name both are told. */
static void
a_second_hello_is_told_with_the_first(void **state)
{
	const struct record *r;
	int fd, server;
	size_t n;

	(void)state;
	fd = tunnel(THIRD ":5432", place, "place", &server);
	n = stage_hello("first.test", hello, sizeof(hello));
	stage_send(fd, hello, n);
	stage_expect(server, hello, n);
	stage_send(server, stage_retry, sizeof(stage_retry));
	stage_expect(fd, stage_retry, sizeof(stage_retry));
	n = stage_hello("later.test", hello, sizeof(hello));
	stage_send(fd, hello, n);
	r = is_denied(fd, server, REASON_SECOND_HELLO);
	assert_int_equal(r->name_from, NAME_FROM_SNI);
	is_text(r, TEXT_NAME, "first.test");
	is_text(r, TEXT_OTHER_NAME, "later.test");
	r = stage_record(RECORD_END);
	is_text(r, TEXT_NAME, "first.test");
	is_text(r, TEXT_OTHER_NAME, "later.test");
}

#define HOST "Host: denied.test\r\n\r\n"

/* Where a lenient server would have read a request. */
static void
the_host_of_a_request_that_hides_is_told(void **state)
{
	static const char *const t[] = {
		"\r\n\r\nGET / HTTP/1.1\r\n" HOST,
		"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\nGET / HTTP/1.1\r\n" HOST,
		"GET /\r\n" HOST,
		"ZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZ / HTTP/1.1\r\n" HOST,
		"\nGET http://denied.test/ HTTP/1.1\r\n\r\n",
	};
	const struct record *r;
	int fd, server;
	bool reset;

	(void)state;
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		fd = tunnel("one.test:5432", named, "one", &server);
		say(fd, t[i]);
		r = is_denied(fd, server, REASON_PROTOCOL);
		is_text(r, TEXT_NAME, "one.test");
		is_text(r, TEXT_OTHER_NAME, "denied.test");
	}
	/* where the bytes are read first too */
	fd = stage_connect(WANTED, 443);
	say(fd, t[0]);
	r = stage_record(RECORD_DECISION);
	assert_int_equal(r->reason, REASON_NOT_TLS);
	is_text(r, TEXT_OTHER_NAME, "denied.test");
	stage_read_all(fd, got, sizeof(got), &reset);
	close(fd);
}

/* One that is no request of anybody's has no host. */
static void
other_bytes_that_are_refused_have_no_host(void **state)
{
	const struct record *r;
	int fd, server;

	(void)state;
	fd = tunnel("one.test:5432", named, "one", &server);
	stage_send(fd, "\x15\x03\x01\0\x02\x01\x5a", 7);
	r = is_denied(fd, server, REASON_PROTOCOL);
	is_text(r, TEXT_NAME, "one.test");
	is_text(r, TEXT_OTHER_NAME, "");
}

#define T(f) cmocka_unit_test_setup_teardown(f, up, down)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		T(the_name_that_was_asked_for_is_told_once),
		T(a_name_with_a_rule_of_its_own_is_a_decision),
		T(a_name_that_its_address_lets_pass_is_in_the_end),
		T(inside_a_tunnel_that_is_read_first_it_is_told_too),
		T(bytes_that_show_no_name_have_none),
		T(a_name_that_does_not_fit_is_in_the_denial),
		T(the_name_in_front_of_ech_is_told),
		T(a_second_hello_is_told_with_the_first),
		T(the_host_of_a_request_that_hides_is_told),
		T(other_bytes_that_are_refused_have_no_host),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
