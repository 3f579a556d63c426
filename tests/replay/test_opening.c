/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/replay/stage.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Flows whose bytes are not read as TLS or HTTP: what may not stand in front,
 * and the names that they show further behind. */

/* db.test is opaque; the address of WANTED opens with all that it serves,
 * but for the name denied.test. */
static const char policy[] = "version: 1\nnetwork:\n"
    "  resolvers: [198.18.0.53]\n  lab: [203.0.113.0/24]\n  rule:\n"
    "    - {verdict: allow, hostname: db.test, ports: [5432], "
    "protocol: tcp}\n"
    "    - {verdict: allow, hostname: allowed.test}\n"
    "    - {verdict: allow, cidr: 203.0.113.9/32, ports: [443]}\n"
    "    - {verdict: deny, hostname: denied.test}\n";

#define REQUEST(host) "GET / HTTP/1.1\r\nHost: " host "\r\n\r\n"

static const uint8_t server_hello[] = { 22, 3, 3, 0, 7, 2, 0, 0, 3, 3, 3, 0 };
static const uint8_t ask_tls[] = { 0, 0, 0, 8, 4, 0xd2, 0x16, 0x2f };

static int db;
static uint8_t hello[4096];
static char got[16384], whole[65536];

static int
up(void **state)
{
	(void)state;
	stage_up(policy, NULL);
	stage_pin("db.test", ORIGIN);
	db = stage_listen(ORIGIN, 5432);
	return 0;
}

static int
down(void **state)
{
	(void)state;
	close(db);
	stage_down();
	return 0;
}

static int
opaque(int *server)
{
	int fd = stage_connect(WANTED, 3128);

	say(fd, "CONNECT db.test:5432 HTTP/1.1\r\nHost: db.test:5432\r\n"
	    "\r\n");
	stage_read_head(fd, got, sizeof(got));
	assert_memory_equal(got, "HTTP/1.1 200", 12);
	*server = stage_accept(db);
	assert_true(*server >= 0);
	assert_int_equal(stage_record(RECORD_DECISION)->verdict,
	    VERDICT_ALLOW);
	return fd;
}

static const struct record *
denial(enum reason why)
{
	const struct record *r;

	do
		r = stage_record(RECORD_DECISION);
	while (r->verdict == VERDICT_ALLOW);
	assert_int_equal(r->reason, why);
	return r;
}

/* Refused, and no byte from here on goes up. */
static void
is_cut(int fd, int server, enum reason why)
{
	bool reset;

	denial(why);
	assert_int_equal(stage_read_all(server, got, sizeof(got), &reset), 0);
	close(fd);
	close(server);
}

static void
trickle(int fd, const void *data, size_t len)
{
	/* which may be refused before its end */
	for (size_t i = 0; i < len && send(fd, (const uint8_t *)data + i, 1,
	    MSG_NOSIGNAL) == 1; i++)
		usleep(300);
}

#define BYTES(s) s, sizeof(s) - 1

/* What servers pass over in front of a name, and what we cannot read. */
static void
an_opening_that_hides_a_name_is_refused(void **state)
{
	static const struct {
		const char *bytes;
		size_t len;
		enum reason why, at_name;
	} t[] = {
		{ BYTES("\r\n\r\n" REQUEST("denied.test")),
		    REASON_PROTOCOL, REASON_NOT_TLS },
		{ BYTES("\x15\x03\x01\0\x02\x01\x5a"),
		    REASON_PROTOCOL, REASON_NOT_TLS },
		{ BYTES("\x15\x02\0\0\x02\x01\x5a"),
		    REASON_PROTOCOL, REASON_NOT_TLS },
		{ BYTES("PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n"
		    REQUEST("denied.test")),
		    REASON_PROTOCOL, REASON_HEAD_MALFORMED },
		{ BYTES("\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c"),
		    REASON_PROTOCOL, REASON_NOT_TLS },
		{ BYTES("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
		    REASON_VERSION, REASON_VERSION },
		{ BYTES("\x16\x03\x01\0\0"),
		    REASON_HELLO_MALFORMED, REASON_HELLO_MALFORMED },
		{ BYTES("\x16\x02\0\0\x20\x01"),
		    REASON_HELLO_MALFORMED, REASON_HELLO_MALFORMED },
		{ BYTES("\x80\x2e\x01\x03\x03"),
		    REASON_HELLO_SSLV2, REASON_HELLO_SSLV2 },
		{ BYTES("GET /\r\nHost: denied.test\r\n\r\n"),
		    REASON_PROTOCOL, REASON_HEAD_MALFORMED },
		{ BYTES("GET\t/\tHTTP/1.1\r\nHost: denied.test\r\n\r\n"),
		    REASON_PROTOCOL, REASON_NOT_TLS },
	};
	int fd, server;
	bool reset;

	(void)state;
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]) * 2; i++) {
		size_t k = i / 2;

		fd = opaque(&server);
		if (i % 2 == 0)
			stage_send(fd, t[k].bytes, t[k].len);
		else
			trickle(fd, t[k].bytes, t[k].len);
		is_cut(fd, server, t[k].why);
		fd = stage_connect(WANTED, 443);
		if (i % 2 == 0)
			stage_send(fd, t[k].bytes, t[k].len);
		else
			trickle(fd, t[k].bytes, t[k].len);
		denial(t[k].at_name);
		stage_read_all(fd, got, sizeof(got), &reset);
		close(fd);
	}
}

/* A first line that only lenient servers take for a request. */
static void
a_first_line_with_a_version_is_a_request(void **state)
{
	char line[64];
	int fd, server;

	(void)state;
	memset(line, 'Z', 50);
	memcpy(line + 50, " / HTTP/1.1\r\n", 13);
	fd = opaque(&server);
	stage_send(fd, line, 63);
	is_cut(fd, server, REASON_PROTOCOL);
	fd = opaque(&server);
	stage_send(fd, line, 55);
	stage_expect(server, line, 55);
	stage_send(fd, line + 55, 8);
	is_cut(fd, server, REASON_PROTOCOL);
}

/* One byte may be anything; nobody waits once it is told. */
static void
a_lone_byte_waits_until_it_can_be_told(void **state)
{
	static const char first[] = { 20, 21, 22, 23, 24, (char)0x80 };
	int fd, server;
	bool reset;

	(void)state;
	for (size_t i = 0; i < sizeof(first); i++) {
		fd = opaque(&server);
		stage_send(fd, &first[i], 1);
		usleep(20000);
		assert_int_equal(recv(fd, got, 1, MSG_DONTWAIT), -1);
		assert_int_equal(errno, EAGAIN);
		stage_send(fd, "\x70yz", 3);
		stage_expect(server, &first[i], 1);
		stage_expect(server, "\x70yz", 3);
		close(fd);
		close(server);
		stage_record(RECORD_END);
	}
	fd = opaque(&server);
	stage_send(fd, first, 1);
	is_cut(fd, server, REASON_HEAD_TIMEOUT);
	fd = stage_connect(WANTED, 443);
	stage_send(fd, first, 1);
	denial(REASON_HEAD_TIMEOUT);
	stage_read_all(fd, got, sizeof(got), &reset);
	close(fd);
}

/* A request on an opaque flow makes it one of requests. */
static void
each_request_of_an_opaque_flow_is_judged(void **state)
{
	int fd, server;
	bool reset;

	(void)state;
	fd = opaque(&server);
	say(fd, REQUEST("db.test:5432"));
	stage_read_head(server, got, sizeof(got));
	assert_memory_equal(got, "GET / HTTP/1.1\r\n", 16);
	say(server, "HTTP/1.1 204 No Content\r\n\r\n");
	stage_read_head(fd, got, sizeof(got));
	assert_memory_equal(got, "HTTP/1.1 204", 12);
	say(fd, REQUEST("denied.test"));
	stage_read_all(fd, got, sizeof(got), &reset);
	assert_memory_equal(got, "HTTP/1.1 403", 12);
	is_cut(fd, server, REASON_HOST_MISMATCH);
}

/* STARTTLS: the hello comes in pieces of any size, or at once. */
static void
go_over_to_tls(int fd, int server, const char *name, int how)
{
	size_t n = stage_hello(name, hello, sizeof(hello));

	if (how == 0) {			/* all in one */
		memmove(hello + sizeof(ask_tls), hello, n);
		memcpy(hello, ask_tls, sizeof(ask_tls));
		stage_send(fd, hello, n + sizeof(ask_tls));
		return;
	}
	stage_send(fd, ask_tls, sizeof(ask_tls));
	stage_expect(server, ask_tls, sizeof(ask_tls));
	say(server, "S");
	stage_expect(fd, "S", 1);
	if (how == 1)
		stage_send(fd, hello, n);
	else
		trickle(fd, hello, n);
}

/* Of whatever size it may be: what is held at the gate is the least of it. */
static void
a_head_has_its_own_limits_on_an_opaque_flow(void **state)
{
	static const size_t limits[] = { 65536, 8192 };
	static char field[30000];
	struct proxy_limits l = stage_limits;
	int fd, server, second;
	bool reset;

	for (size_t i = 0; i < 2; i++) {
		down(state);
		l.head_bytes = limits[i];
		stage_up(policy, &l);
		stage_pin("db.test", ORIGIN);
		db = stage_listen(ORIGIN, 5432);
		fd = opaque(&server);
		memset(field, 'a', sizeof(field) - 1);
		say(fd, "GET / HTTP/1.1\r\nHost: db.test:5432\r\nX: ");
		usleep(20000);
		say(fd, field);
		say(fd, "\r\n\r\n");
		if (i == 1) {
			stage_read_all(fd, got, sizeof(got), &reset);
			assert_memory_equal(got, "HTTP/1.1 431", 12);
			is_cut(fd, server, REASON_HEAD_TOO_LARGE);
			continue;
		}
		second = stage_accept(db);	/* dialled for itself, or */
		stage_read_head(second >= 0 ? second : server, whole,
		    sizeof(whole));
		assert_non_null(strstr(whole, field));
		close(fd);
		close(server);
		if (second >= 0)
			close(second);
	}
}

static void
a_later_hello_of_another_name_is_cut(void **state)
{
	static const char *const bad[] = { "denied.test", "allowed.test" };
	const struct record *r;
	int fd, server;
	bool reset;
	size_t n;

	(void)state;
	for (int how = 0; how < 3; how++) {
		for (int i = 0; i < 2; i++) {
			fd = opaque(&server);
			go_over_to_tls(fd, server, bad[i], how);
			r = denial(REASON_OTHER_NAME);
			assert_true(span_eq(record_get(r, TEXT_OTHER_NAME),
			    span_str(bad[i])));
			/* of the hello only what had told nothing */
			n = stage_read_all(server, got, sizeof(got), &reset);
			assert_true(n < 11);
			close(fd);
			close(server);
			r = stage_record(RECORD_END);
			assert_int_equal(r->reason, REASON_OTHER_NAME);
		}
		fd = opaque(&server);
		go_over_to_tls(fd, server, "db.test", how);
		n = stage_hello("db.test", hello, sizeof(hello));
		if (how == 0)
			stage_expect(server, ask_tls, sizeof(ask_tls));
		stage_expect(server, hello, n);
		stage_send(server, server_hello, sizeof(server_hello));
		stage_expect(fd, server_hello, sizeof(server_hello));
		say(fd, "more");
		stage_expect(server, "more", 4);
		close(fd);
		close(server);
		r = stage_record(RECORD_END);
		assert_true(record_get(r, TEXT_JA4).len > 0);
	}
}

/* However much of another protocol stands before it. */
static void
a_hello_far_behind_is_cut(void **state)
{
	static char lot[60000];
	struct stage_job job = { .data = lot, .len = sizeof(lot) };
	int fd, server;
	bool reset;
	size_t n;

	(void)state;
	memset(lot, 'x', sizeof(lot));
	fd = job.fd = opaque(&server);
	stage_begin(&job);
	stage_expect(server, lot, sizeof(lot));
	assert_true(stage_await(&job));
	n = stage_hello("denied.test", hello, sizeof(hello));
	stage_send(fd, hello, n);
	denial(REASON_OTHER_NAME);
	assert_true(stage_read_all(server, got, sizeof(got), &reset) < 11);
	close(fd);
	close(server);
}

/* An idle flow may be one for long; one that has begun what is read may not. */
static void
what_begins_and_does_not_end_has_the_time_of_a_hello(void **state)
{
	static const struct {
		const char *bytes;
		enum reason why;
	} t[] = { { "\x16", REASON_HELLO_TIMEOUT },
		{ "GET / HTTP/1.1\r\nHost", REASON_HEAD_TIMEOUT },
		{ "\x15", REASON_HEAD_TIMEOUT } };
	struct proxy_limits l = stage_limits;
	int64_t began;
	int fd, server;

	(void)state;
	l.idle_ms = 20000;
	stage_limit(&l);
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		fd = opaque(&server);
		usleep(200000);
		began = stage_now_ms();
		say(fd, t[i].bytes);
		is_cut(fd, server, t[i].why);
		assert_in_range(stage_now_ms() - began, l.hello_ms - 50,
		    l.hello_ms + 1000);
	}
}

/* Behind a hello the server's answer is known or another hello is waited for:
 * bytes that are no TLS do not hide a retry. */
static void
a_retry_behind_other_bytes_is_watched_for(void **state)
{
	static const char early[] = "\x17\x03\x03\0\x05xxxxx";
	static const struct {
		const char *bytes;
		size_t len;
	} before[] = {
		{ BYTES("HTTP/1.1 400 Bad Request\r\n\r\n") }, { BYTES("S") },
		{ BYTES("\x16\x03\x03\0\x04\0\0\0\0") },
		{ BYTES("\x16\x03\x03\0\x04\x0b\0\0\0") },
	};
	int fd, server;
	bool reset;
	size_t n;

	(void)state;
	for (size_t i = 0; i < sizeof(before) / sizeof(before[0]) * 2; i++) {
		size_t k = i / 2;

		fd = opaque(&server);
		n = stage_hello("db.test", hello, sizeof(hello));
		stage_send(fd, hello, n);
		stage_expect(server, hello, n);
		stage_send(server, before[k].bytes, before[k].len);
		stage_send(server, stage_retry, sizeof(stage_retry));
		stage_expect(fd, before[k].bytes, before[k].len);
		stage_expect(fd, stage_retry, sizeof(stage_retry));
		stage_send(fd, early, sizeof(early) - 1);
		stage_expect(server, early, sizeof(early) - 1);
		n = stage_hello(i % 2 ? "db.test" : "allowed.test", hello,
		    sizeof(hello));
		stage_send(fd, hello, n);
		if (i % 2) {
			stage_expect(server, hello, n);
		} else {
			denial(REASON_SECOND_HELLO);
			assert_true(stage_read_all(server, got, sizeof(got),
			    &reset) < 11);
		}
		close(fd);
		close(server);
	}
}

/* All that is no hello passes as it is, both ways, and so does the end. */
static void
other_bytes_pass_as_they_are(void **state)
{
	static char data[200000], back[200000];
	struct stage_job up = { .data = data, .len = sizeof(data) };
	struct stage_job down = { .data = back, .len = sizeof(back),
	    .expect = true };
	int fd, server;
	bool reset;

	(void)state;
	for (size_t i = 0; i < sizeof(data); i++) {
		data[i] = (char)(i * 2654435761u >> 13);
		if (i % 5 == 0)
			data[i] = 0x16;
		back[i] = (char)(i * 40503u >> 7);
	}
	data[0] = 1;
	fd = opaque(&server);
	up.fd = fd;
	down.fd = fd;
	stage_begin(&up);
	stage_expect(server, data, sizeof(data));
	assert_true(stage_await(&up));
	stage_begin(&down);
	stage_send(server, back, sizeof(back));
	assert_true(stage_await(&down));
	shutdown(fd, SHUT_WR);
	assert_int_equal(stage_read_all(server, got, sizeof(got), &reset), 0);
	assert_false(reset);
	close(server);
	close(fd);
	/* what may be the beginning of a hello is not held, nor at the end */
	fd = opaque(&server);
	stage_send(fd, "ab\x16\3\1\0\x20\1\0", 9);
	stage_expect(server, "ab\x16\3\1\0\x20\1\0", 9);
	say(server, "c");
	stage_expect(fd, "c", 1);
	shutdown(fd, SHUT_WR);
	assert_int_equal(stage_read_all(server, got, sizeof(got), &reset), 0);
	assert_false(reset);
	close(server);
	close(fd);
}

#define T(f) cmocka_unit_test_setup_teardown(f, up, down)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		T(an_opening_that_hides_a_name_is_refused),
		T(a_first_line_with_a_version_is_a_request),
		T(a_lone_byte_waits_until_it_can_be_told),
		T(each_request_of_an_opaque_flow_is_judged),
		T(a_head_has_its_own_limits_on_an_opaque_flow),
		T(a_later_hello_of_another_name_is_cut),
		T(a_hello_far_behind_is_cut),
		T(what_begins_and_does_not_end_has_the_time_of_a_hello),
		T(a_retry_behind_other_bytes_is_watched_for),
		T(other_bytes_pass_as_they_are),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
