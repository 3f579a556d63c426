/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/replay/stage.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* Reports about ClientHellos, replayed with what else of the engine they
 * touch; each test is named after its reports. */

#define LAB "version: 1\nnetwork:\n  resolvers: [198.18.0.53]\n" \
	"  lab: [203.0.113.0/24]\n"

static int origin;
static uint8_t hello[4096];
static char got[16384];

static int
up(void **state)
{
	(void)state;
	stage_up(NULL, NULL);
	origin = stage_listen(ORIGIN, 443);
	return 0;
}

static int
down(void **state)
{
	(void)state;
	close(origin);
	stage_down();
	return 0;
}

static bool
nobody_at(int lfd)
{
	struct pollfd p = { .fd = lfd, .events = POLLIN };

	return poll(&p, 1, 0) == 0;
}

/* The next refusal, and no more than one. */
static const struct record *
refusal(void)
{
	const struct record *r;

	do
		r = stage_record(RECORD_DECISION);
	while (r->verdict == VERDICT_ALLOW);
	return r;
}

static void
refused(int fd, enum reason why)
{
	bool reset;

	stage_read_all(fd, got, sizeof(got), &reset);
	close(fd);
	assert_int_equal(refusal()->reason, why);
	assert_int_equal(stage_record(RECORD_END)->bytes_up, 0);
	assert_true(nobody_at(origin));
}

enum { AT_ONCE = 24 };

/* Many at a time, the name in the second of two segments. */
static void
in_two(const char *name, useconds_t gap, bool allowed)
{
	int fd[AT_ONCE], server;
	bool reset;
	size_t n;

	n = stage_extend(hello, stage_hello(name, hello, sizeof(hello)),
	    21, 1700);
	assert_true(n > 1750 && n < 1900);
	for (int i = 0; i < AT_ONCE; i++) {
		fd[i] = stage_connect(WANTED, 443);
		stage_send(fd[i], hello, 1400);
	}
	usleep(gap);
	assert_true(nobody_at(origin));	/* no early allow */
	for (int i = 0; i < AT_ONCE; i++)
		stage_send(fd[i], hello + 1400, n - 1400);
	for (int i = 0; allowed && i < AT_ONCE; i++) {
		server = stage_accept(origin);
		assert_true(server >= 0);
		stage_expect(server, hello, n);
		close(server);
	}
	for (int i = 0; i < AT_ONCE; i++) {
		n = stage_read_all(fd[i], got, sizeof(got), &reset);
		assert_int_equal(n, allowed ? 0 : 7);
		close(fd[i]);
	}
	assert_true(nobody_at(origin));	/* one dial each */
}

static void
B001_B23_a_large_hello_in_two_segments_is_judged_whole(void **state)
{
	static const useconds_t gaps[] = { 0, 5000, 50000, 300000 };

	(void)state;
	for (size_t i = 0; i < sizeof(gaps) / sizeof(gaps[0]); i++) {
		in_two("allowed.test", gaps[i], true);
		in_two("denied.test", gaps[i], false);
	}
}

static void
B001_a_large_hello_inside_a_tunnel_is_judged_whole(void **state)
{
	static const char head[] = "CONNECT allowed.test:443 HTTP/1.1\r\n"
	    "Host: allowed.test:443\r\n\r\n";
	int fd, server;
	bool reset;
	size_t n;

	(void)state;
	for (int allowed = 0; allowed < 2; allowed++) {
		n = stage_extend(hello, stage_hello(allowed ?
		    "allowed.test" : "second.test", hello, sizeof(hello)),
		    21, 1700);
		fd = stage_connect(WANTED, 3128);
		stage_send(fd, head, sizeof(head) - 1);
		stage_read_head(fd, got, sizeof(got));
		server = stage_accept(origin);
		assert_true(server >= 0);
		stage_send(fd, hello, 1400);
		usleep(50000);
		assert_int_equal(recv(server, got, 1, MSG_DONTWAIT), -1);
		stage_send(fd, hello + 1400, n - 1400);
		if (allowed)
			stage_expect(server, hello, n);
		else
			assert_int_equal(stage_read_all(server, got,
			    sizeof(got), &reset), 0);
		close(fd);
		close(server);
	}
}

enum { CUT = 512 };	/* a hello's size in the next test */

/* The hello in records: so many bytes in the first, then `step` at a time. */
static size_t
in_records(size_t first, size_t step, uint8_t out[static CUT * 6])
{
	size_t at = 5, m = 0, part = first;

	for (; at < 5 + CUT; at += part, part = step) {
		if (part > 5 + CUT - at)
			part = 5 + CUT - at;
		memcpy(out + m, hello, 3);
		out[m + 3] = (uint8_t)(part >> 8);
		out[m + 4] = (uint8_t)part;
		memcpy(out + m + 5, hello + at, part);
		m += part + 5;
	}
	return m;
}

/* Cut in the name's header, inside the name, one byte before the end, and in
 * single bytes; an allowed name passes in the same records. */
static void
B004_B17_a_denied_name_is_denied_in_any_records(void **state)
{
	static const char *const names[] = { "denied.test", "allowed.test" };
	static uint8_t out[CUT * 6];
	int fd, server;

	(void)state;
	for (size_t i = 0; i < 2 * 7; i++) {
		const char *name = names[i % 2];
		size_t n = stage_hello(name, hello, sizeof(hello));
		size_t end = CUT - 7, begin = end - strlen(name);
		const size_t first[] = { 1, 3, begin - 2, begin + 1,
		    begin + 6, end, CUT - 1 };

		n = stage_extend(hello, n, 21, CUT - (n - 5) - 4);
		assert_int_equal(n, 5 + CUT);
		assert_memory_equal(hello + 5 + begin, name, end - begin);
		n = in_records(first[i / 2], i / 2 == 0 ? 1 : CUT, out);
		fd = stage_connect(WANTED, 443);
		stage_send(fd, out, n / 2);
		usleep(3000);
		stage_send(fd, out + n / 2, n - n / 2);
		if (i % 2 == 0) {
			refused(fd, REASON_RULE_DENY);
			continue;
		}
		server = stage_accept(origin);
		assert_true(server >= 0);
		stage_expect(server, out, n);
		close(fd);
		close(server);
		(void)stage_record(RECORD_END);
	}
}

static void
B008_B19_what_is_no_hello_is_refused_at_once(void **state)
{
	static const struct { const char *text; size_t len; } t[] = {
		{ "SSH-2.0-OpenSSH_9.6\r\n", 21 },
		{ "\x80\x2e\1\3\1\0\x15\0\0\0\x10", 11 },
		{ "\x16\3\1\0\x20\2\0\0\x1c", 9 },	/* a server's hello */
		{ "\x16\3\1\0\4\0\0\0\0", 9 },
		{ "\x16\3\x7f\0\x40\1\0\0\x3c", 9 },	/* TLS 3.126 */
		{ "\x16\5\1\0\x40\1\0\0\x3c", 9 },	/* SSL 5 */
		{ "\x17\3\3\0\4abcd", 9 },	/* data before a hello */
		{ "\x15\3\3\0\2\1\0", 7 },
		{ "\r\n\r\n\0\r\nQUIT\n!\1\1\0\0", 16 },	/* PROXY v2 */
		{ "\0\0\0\x08\4\xd2\x16\x2f", 8 },	/* SSLRequest */
		{ "GET / HTTP/1.1\r\n\r\n", 18 },
		{ "CONNECT allowed.test:443 HTTP/1.1\r\n\r\n", 37 },
		{ "PROXY TCP4 10.0.0.1 203.0.113.1 5 443\r\n", 39 },
	};
	int64_t began;
	bool reset;
	int fd;

	(void)state;
	/* the widest policy that judges by names, at a name's address */
	stage_pin("allowed.test", WANTED);
	stage_policy(LAB "  no_sni: pinned-ip\n  rule:\n"
	    "    - {verdict: allow, hostname: \"*.test\", force: true}\n");
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		const struct record *r;

		began = stage_now_ms();
		fd = stage_connect(WANTED, 443);
		stage_send(fd, t[i].text, t[i].len);
		stage_read_all(fd, got, sizeof(got), &reset);
		if (t[i].text[0] == 'G')
			assert_memory_equal(got, "HTTP/1.1 400", 12);
		close(fd);
		if (stage_now_ms() - began > 400)
			fail_msg("%zu took %d ms", i,
			    (int)(stage_now_ms() - began));
		r = stage_record(RECORD_DECISION);
		assert_int_equal(r->verdict, VERDICT_DENY);
		assert_int_not_equal(r->reason, REASON_HELLO_TIMEOUT);
		assert_true(nobody_at(origin));
	}
}

static void
B008_32_KiB_of_anything_cost_one_line(void **state)
{
	static char block[32768];
	char line[RECORD_JSON_MAX_BYTES];
	const struct record *r;
	unsigned x = 7;
	int fd;

	(void)state;
	for (size_t i = 0; i < sizeof(block); i++)
		block[i] = (char)((x = x * 1664525u + 1013904223u) >> 24);
	block[0] = 0x41;
	fd = stage_connect(WANTED, 443);
	(void)!send(fd, block, sizeof(block), MSG_NOSIGNAL);
	r = refusal();
	assert_int_equal(r->reason, REASON_NOT_TLS);
	assert_true(record_json(r, 1, "i", line) < 2048);
	close(fd);
}

static void
W22_B21_a_hidden_name_is_noticed_when_the_policy_says_so(void **state)
{
	static const char *const policy[] = {
	    LAB "  ech: deny\n  rule:\n"
	    "    - {verdict: allow, hostname: allowed.test}\n",
	    LAB "  ech: allow-outer\n  rule:\n"
	    "    - {verdict: allow, hostname: allowed.test}\n" };
	int fd, server;
	size_t n;

	(void)state;
	for (int allow = 0; allow < 2; allow++) {
		stage_policy(policy[allow]);
		n = stage_hello("allowed.test", hello, sizeof(hello));
		n = stage_extend(hello, n, 0xfe0d, 200);
		fd = stage_connect(WANTED, 443);
		stage_send(fd, hello, n);
		if (allow) {	/* the outer name decides, as documented */
			server = stage_accept(origin);
			assert_true(server >= 0);
			stage_expect(server, hello, n);
			close(server);
			close(fd);
			assert_int_equal(stage_record(RECORD_DECISION)->verdict,
			    VERDICT_ALLOW);
			stage_record(RECORD_END);
		} else {
			refused(fd, REASON_ECH);
		}
		n = stage_hello("denied.test", hello, sizeof(hello));
		n = stage_extend(hello, n, 0xfe0d, 200);
		fd = stage_connect(WANTED, 443);
		stage_send(fd, hello, n);
		refused(fd, allow ? REASON_NO_RULE : REASON_ECH);
	}
}

/* The name goes into no line, no answer and no address before it is one. */
static void
B25_W27_a_name_that_is_none_forges_nothing(void **state)
{
	static const char *const names[] = { "a\r\n{\"verdict\":\"allow\"}",
		"a.test/..@169.254.169.254", "a\x1b[2J.test", "a\"b.test",
		"a\xe2\x80\xa8.test", "http://allowed.test" };
	char line[RECORD_JSON_MAX_BYTES];
	const struct record *r;
	bool reset;

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		size_t n = stage_hello(names[i], hello, sizeof(hello));
		int fd = stage_connect(WANTED, 443);

		stage_send(fd, hello, n);
		stage_read_all(fd, got, sizeof(got), &reset);
		close(fd);
		r = refusal();
		assert_int_equal(r->reason, REASON_NAME_MALFORMED);
		n = record_json(r, 1, "i", line);
		for (size_t k = 0; k + 1 < n; k++)
			assert_true(line[k] >= 0x20 && line[k] < 0x7f);
		assert_int_equal(line[n - 1], '\n');
		assert_true(nobody_at(origin));
	}
}

static void
B27_B005_without_a_name_only_an_address_rule_opens(void **state)
{
	static const char head[] = "CONNECT 203.0.113.2:443 HTTP/1.1\r\n"
	    "Host: 203.0.113.2:443\r\n\r\n";
	size_t n = stage_hello(NULL, hello, sizeof(hello));
	int fd, server, lfd = stage_listen("203.0.113.2", 443);
	const struct record *r;
	bool reset;

	(void)state;
	/* an address of an allowed name is not enough */
	stage_pin("allowed.test", WANTED);
	fd = stage_connect(WANTED, 443);
	stage_send(fd, hello, n);
	stage_read_all(fd, got, sizeof(got), &reset);
	close(fd);
	r = refusal();
	assert_int_equal(r->reason, REASON_NO_SNI);
	assert_int_equal(record_get(r, TEXT_NAME).len, 0);
	assert_int_equal(r->original.port, 443);
	(void)stage_record(RECORD_END);
	stage_policy(LAB "  rule:\n"
	    "    - {verdict: allow, cidr: 203.0.113.2/32, ports: [443]}\n");
	fd = stage_connect(WANTED, 3128);
	stage_send(fd, head, sizeof(head) - 1);
	stage_read_head(fd, got, sizeof(got));
	server = stage_accept(lfd);
	assert_true(server >= 0);
	stage_send(fd, hello, n);
	stage_expect(server, hello, n);
	close(fd);
	close(server);
	(void)stage_record(RECORD_END);
	fd = stage_connect(WANTED, 443);	/* and no other address */
	stage_send(fd, hello, n);
	refused(fd, REASON_NO_SNI);
	close(lfd);
}

/* After a retry: in segments, in records, without a name, hiding one. */
static void
N01_the_second_hello_is_judged_in_any_form(void **state)
{
	size_t n = stage_hello("allowed.test", hello, sizeof(hello)), m;
	static uint8_t second[2048];
	int fd, server;
	bool reset;

	(void)state;
	stage_policy(LAB "  ech: deny\n  rule:\n"
	    "    - {verdict: allow, hostname: allowed.test}\n");
	for (int form = 0; form < 5; form++) {
		fd = stage_connect(WANTED, 443);
		stage_send(fd, hello, n);
		server = stage_accept(origin);
		assert_true(server >= 0);
		stage_expect(server, hello, n);
		stage_send(server, stage_retry, sizeof(stage_retry));
		stage_expect(fd, stage_retry, sizeof(stage_retry));
		m = stage_hello(form == 2 ? NULL : form == 3 ?
		    "allowed.test" : "denied.test", second, sizeof(second));
		if (form == 1) {	/* cut inside the name */
			size_t cut = m - 12;

			memmove(second + cut + 5, second + cut, m - cut);
			memcpy(second + cut, second, 3);
			second[cut + 3] = 0;
			second[cut + 4] = 12;
			second[3] = (uint8_t)((cut - 5) >> 8);
			second[4] = (uint8_t)(cut - 5);
			m += 5;
		}
		if (form == 3)
			m = stage_extend(second, m, 0xfe0d, 100);
		if (form == 4)		/* another message in its place */
			second[5] = 2;
		stage_send(fd, second, m / 2);
		usleep(20000);
		(void)!send(fd, second + m / 2, m - m / 2, MSG_NOSIGNAL);
		assert_int_equal(stage_read_all(server, got, sizeof(got),
		    &reset), 0);
		close(fd);
		close(server);
		assert_int_equal(refusal()->reason, form == 3 ? REASON_ECH :
		    REASON_SECOND_HELLO);
	}
}

/* A database client speaks first, but no hello. */
static void
N05_an_opaque_rule_carries_what_begins_without_a_hello(void **state)
{
	static const uint8_t ask[] = { 0, 0, 0, 8, 4, 0xd2, 0x16, 0x2f };
	static const char head[] = "CONNECT db.test:5432 HTTP/1.1\r\n"
	    "Host: db.test:5432\r\n\r\n";
	int fd, server, lfd = stage_listen(ORIGIN, 5432);
	int64_t began = stage_now_ms();
	size_t n;

	(void)state;
	stage_pin("db.test", ORIGIN);
	stage_policy(LAB "  rule:\n    - {verdict: allow, hostname: db.test, "
	    "ports: [5432], protocol: tcp}\n");
	for (int tls = 0; tls < 2; tls++) {
		fd = stage_connect(WANTED, 3128);
		stage_send(fd, head, sizeof(head) - 1);
		stage_read_head(fd, got, sizeof(got));
		assert_memory_equal(got, "HTTP/1.1 200", 12);
		server = stage_accept(lfd);	/* before any byte */
		assert_true(server >= 0);
		stage_send(fd, ask, sizeof(ask));
		stage_expect(server, ask, sizeof(ask));
		stage_send(server, tls ? "S" : "N", 1);
		stage_expect(fd, tls ? "S" : "N", 1);
		n = tls ? stage_hello("db.test", hello, sizeof(hello)) : 9;
		if (!tls)
			memcpy(hello, "\0\0\0\x09\0\3\0\0\0", 9);
		stage_send(fd, hello, n);
		stage_expect(server, hello, n);
		close(fd);
		close(server);
	}
	assert_true(stage_now_ms() - began < 1000);
	close(lfd);
}

/* Nobody waits for a hello that could open nothing: the data connection of a
 * file transfer, a database, a banner. */
static void
W24_B035_N22_a_port_that_no_rule_opens_is_refused_soon(void **state)
{
	static const char ask[] = "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n";
	struct proxy_limits l = stage_limits;
	const struct record *r;
	int64_t began;
	bool reset;
	int fd;

	(void)state;
	close(origin);
	stage_down();
	l.hello_ms = 2000;
	stage_up(LAB "  rule:\n"
	    "    - {verdict: allow, hostname: allowed.test}\n", &l);
	origin = stage_listen(ORIGIN, 443);
	stage_pin("allowed.test", WANTED);
	began = stage_now_ms();
	fd = stage_connect(WANTED, 22);
	stage_read_all(fd, got, sizeof(got), &reset);
	assert_true(reset);
	close(fd);
	assert_true(stage_now_ms() - began < 1000);
	r = stage_record(RECORD_DECISION);
	assert_int_equal(r->reason, REASON_NO_RULE);
	assert_int_equal(r->original.port, 22);
	assert_int_equal(r->name_from, NAME_FROM_PIN);
	assert_true(span_eq(record_get(r, TEXT_NAME),
	    span_str("allowed.test")));
	/* who speaks is read to the end, and told */
	fd = stage_connect(WANTED, 22);
	usleep(100000);
	stage_send(fd, ask, 10);
	usleep(600000);
	stage_send(fd, ask + 10, sizeof(ask) - 11);
	stage_read_all(fd, got, sizeof(got), &reset);
	assert_memory_equal(got, "HTTP/1.1 403", 12);
	close(fd);
	r = stage_record(RECORD_DECISION);
	assert_int_equal(r->name_from, NAME_FROM_HOST);
}

#define T(f) cmocka_unit_test_setup_teardown(f, up, down)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		T(B001_B23_a_large_hello_in_two_segments_is_judged_whole),
		T(B001_a_large_hello_inside_a_tunnel_is_judged_whole),
		T(B004_B17_a_denied_name_is_denied_in_any_records),
		T(B008_B19_what_is_no_hello_is_refused_at_once),
		T(B008_32_KiB_of_anything_cost_one_line),
		T(W22_B21_a_hidden_name_is_noticed_when_the_policy_says_so),
		T(B25_W27_a_name_that_is_none_forges_nothing),
		T(B27_B005_without_a_name_only_an_address_rule_opens),
		T(N01_the_second_hello_is_judged_in_any_form),
		T(W24_B035_N22_a_port_that_no_rule_opens_is_refused_soon),
		T(N05_an_opaque_rule_carries_what_begins_without_a_hello),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
