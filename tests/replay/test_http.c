/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/replay/stage.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static int web, tls, ssh;
static char got[16384];

static int
up_with(const struct proxy_limits *limits)
{
	stage_up(NULL, limits);
	stage_pin("git.test", ORIGIN);
	stage_pin("second.test", ORIGIN);
	web = stage_listen(ORIGIN, 80);
	tls = stage_listen(ORIGIN, 443);
	ssh = stage_listen(ORIGIN, 22);
	return 0;
}

/* A machine that stands still for a while does not end a request. */
static int
up(void **state)
{
	struct proxy_limits l = stage_limits;

	(void)state;
	l.hello_ms = l.idle_ms = l.keepalive_ms = l.connect_ms =
	    l.resolve_ms = 20000;
	return up_with(&l);
}

/* For what waits until a limit has passed. */
static int
up_soon(void **state)
{
	(void)state;
	return up_with(NULL);
}

static int
down(void **state)
{
	(void)state;
	close(web);
	close(tls);
	close(ssh);
	stage_down();
	return 0;
}

static void
hear(int fd, const char *text)
{
	stage_expect(fd, text, strlen(text));
}

static void
refused(int fd, const char *line, enum reason why)
{
	bool reset;
	const struct record *r;

	stage_read_all(fd, got, sizeof(got), &reset);
	if (strncmp(got, line, strlen(line)) != 0)
		fail_msg("got '%s', not '%s'", got, line);
	assert_false(reset);
	assert_non_null(strstr(got, reason_word(why)));
	do
		r = stage_record(RECORD_DECISION);
	while (r->verdict == VERDICT_ALLOW);
	assert_int_equal(r->reason, why);
	close(fd);
}

static int
tunnel(int lfd, const char *place, int *server)
{
	int fd = stage_connect(WANTED, 3128);
	char head[256];

	snprintf(head, sizeof(head), "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n",
	    place, place);
	say(fd, head);
	stage_read_head(fd, got, sizeof(got));
	assert_memory_equal(got, "HTTP/1.1 200", 12);
	*server = stage_accept(lfd);
	assert_true(*server >= 0);
	return fd;
}

static void
W30_bytes_behind_a_connect_head_are_kept(void **state)
{
	uint8_t buf[1024];
	static const char head[] = "CONNECT allowed.test:443 HTTP/1.0\r\n\r\n";
	size_t n = sizeof(head) - 1, m;
	int fd = stage_connect(WANTED, 3128), server;

	(void)state;
	memcpy(buf, head, n);
	m = stage_hello("Allowed.TEST", buf + n, sizeof(buf) - n);
	stage_send(fd, buf, n + m);
	stage_read_head(fd, got, sizeof(got));
	assert_memory_equal(got, "HTTP/1.1 200", 12);
	server = stage_accept(tls);
	assert_true(server >= 0);
	stage_expect(server, buf + n, m);
	say(server, "xxxxxxx");
	hear(fd, "xxxxxxx");
	say(fd, "more");
	hear(server, "more");
	close(fd);
	close(server);
	assert_int_equal(stage_record(RECORD_DECISION)->via, VIA_CONNECT);
}

static void
B023_the_name_inside_a_tunnel_is_the_one_asked_for(void **state)
{
	uint8_t hello[1024];
	size_t n = stage_hello("second.test", hello, sizeof(hello));
	const struct record *r;
	bool reset;
	int server, fd = tunnel(tls, "allowed.test:443", &server);

	(void)state;
	stage_send(fd, hello, n);
	assert_int_equal(stage_read_all(server, got, sizeof(got), &reset), 0);
	assert_int_equal(stage_read_all(fd, got, sizeof(got), &reset), 7);
	assert_int_equal(got[0], 21);
	do
		r = stage_record(RECORD_DECISION);
	while (r->verdict == VERDICT_ALLOW);
	assert_int_equal(r->reason, REASON_SNI_MISMATCH);
	assert_true(span_eq(record_get(r, TEXT_OTHER_NAME),
	    span_str("second.test")));
	close(fd);
	close(server);
}

static void
B022_plain_http_inside_a_tunnel_is_judged(void **state)
{
	int server, fd = tunnel(web, "allowed.test:80", &server);

	(void)state;
	say(fd, "GET /a HTTP/1.1\r\nHost: allowed.test\r\n\r\n");
	stage_read_head(server, got, sizeof(got));
	assert_memory_equal(got, "GET /a HTTP/1.1\r\n", 17);
	say(server, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
	stage_read_head(fd, got, sizeof(got));
	hear(fd, "hi");
	say(fd, "GET /b HTTP/1.1\r\nHost: second.test\r\n\r\n");
	refused(fd, "HTTP/1.1 403", REASON_HOST_MISMATCH);
	close(server);
}

static void
B38_no_proxy_inside_a_tunnel_and_no_other_bytes(void **state)
{
	int server, fd = tunnel(web, "allowed.test:80", &server);
	bool reset;

	(void)state;
	say(fd, "CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n"
	    "\r\n");
	refused(fd, "HTTP/1.1 403", REASON_NESTED_PROXY);
	close(server);
	fd = tunnel(tls, "allowed.test:443", &server);
	stage_send(fd, "\0\1\2\3", 4);
	assert_int_equal(stage_read_all(server, got, sizeof(got), &reset), 0);
	close(fd);
	close(server);
}

static void
B019_a_refused_connect_is_told_in_words(void **state)
{
	int fd = stage_connect(WANTED, 3128);

	(void)state;
	say(fd, "CONNECT denied.test:443 HTTP/1.1\r\nHost: denied.test\r\n"
	    "\r\n");
	refused(fd, "HTTP/1.1 403 Denied by penstock: rule_deny "
	    "denied.test:443", REASON_RULE_DENY);
	assert_non_null(strstr(got, "ask the platform team"));
	fd = stage_connect(WANTED, 3128);
	say(fd, "CONNECT allowed.test:8443 HTTP/1.1\r\n\r\n");
	refused(fd, "HTTP/1.1 40", REASON_HEAD_MALFORMED);
}

static void
B025_an_address_literal_needs_the_name_that_it_is_pinned_to(void **state)
{
	uint8_t hello[1024];
	size_t n = stage_hello("allowed.test", hello, sizeof(hello));
	int server, fd;

	(void)state;
	fd = stage_connect(WANTED, 3128);
	say(fd, "CONNECT 203.0.113.77:443 HTTP/1.1\r\n"
	    "Host: 203.0.113.77:443\r\n\r\n");
	refused(fd, "HTTP/1.1 403", REASON_ADDRESS_LITERAL);
	stage_pin("allowed.test", "203.0.113.2");
	int lfd = stage_listen("203.0.113.2", 443);

	fd = tunnel(lfd, "203.0.113.2:443", &server);
	stage_send(fd, hello, n);
	stage_expect(server, hello, n);
	close(fd);
	close(server);
	fd = tunnel(lfd, "203.0.113.2:443", &server);
	n = stage_hello("second.test", hello, sizeof(hello));
	stage_send(fd, hello, n);
	bool reset;

	assert_int_equal(stage_read_all(server, got, sizeof(got), &reset), 0);
	close(fd);
	close(server);
	close(lfd);
}

static void
B035_a_server_may_speak_first(void **state)
{
	int server, fd = tunnel(ssh, "git.test:22", &server);

	(void)state;
	say(server, "SSH-2.0-server\r\n");
	hear(fd, "SSH-2.0-server\r\n");
	say(fd, "SSH-2.0-client\r\n");
	hear(server, "SSH-2.0-client\r\n");
	close(fd);
	close(server);
}

static void
B035_an_opaque_flow_that_shows_another_name_is_cut(void **state)
{
	uint8_t hello[1024];
	size_t n = stage_hello("allowed.test", hello, sizeof(hello));
	int server, fd = tunnel(ssh, "git.test:22", &server);
	const struct record *r;
	bool reset;

	(void)state;
	stage_send(fd, hello, n);
	assert_int_equal(stage_read_all(server, got, sizeof(got), &reset), 0);
	do
		r = stage_record(RECORD_DECISION);
	while (r->verdict == VERDICT_ALLOW);
	assert_int_equal(r->reason, REASON_OTHER_NAME);
	close(fd);
	close(server);
}

static void
W20_the_second_request_is_judged_on_its_own(void **state)
{
	int fd = stage_connect(WANTED, 80), server;

	(void)state;
	say(fd, "GET /1 HTTP/1.1\r\nHost: allowed.test\r\n\r\n");
	server = stage_accept(web);
	assert_true(server >= 0);
	stage_read_head(server, got, sizeof(got));
	assert_null(strstr(got, "Proxy-"));
	say(server, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	    "3\r\nabc\r\n0\r\nT: 1\r\n\r\n");
	stage_read_head(fd, got, sizeof(got));
	hear(fd, "3\r\nabc\r\n0\r\nT: 1\r\n\r\n");
	/* The kept upstream serves the next request to the same place. */
	say(fd, "GET /2 HTTP/1.1\r\nHost: allowed.test\r\n\r\n");
	stage_read_head(server, got, sizeof(got));
	assert_memory_equal(got, "GET /2", 6);
	say(server, "HTTP/1.1 204 No Content\r\n\r\n");
	stage_read_head(fd, got, sizeof(got));
	say(fd, "GET /3 HTTP/1.1\r\nHost: denied.test\r\n\r\n");
	refused(fd, "HTTP/1.1 403", REASON_RULE_DENY);
	close(server);
}

static void
B013_pipelined_requests_are_answered_in_order(void **state)
{
	int fd = stage_connect(WANTED, 3128), server;

	(void)state;
	say(fd, "GET http://allowed.test/1 HTTP/1.1\r\nHost: allowed.test\r\n"
	    "\r\nHEAD http://allowed.test/2 HTTP/1.1\r\n"
	    "Host: allowed.test\r\n\r\n"
	    "GET http://allowed.test/3 HTTP/1.1\r\nHost: allowed.test\r\n"
	    "\r\n");
	server = stage_accept(web);
	assert_true(server >= 0);
	for (int i = 1; i <= 3; i++) {
		char line[8];

		stage_read_head(server, got, sizeof(got));
		snprintf(line, sizeof(line), " /%d ", i);
		assert_non_null(strstr(got, line));
		say(server, "HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n"
		    "HTTP/1.1 103 Early Hints\r\nLink: b\r\n\r\n");
		say(server, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n");
		if (i != 2)
			say(server, "abc");
		for (int k = 0; k < 2; k++) {
			stage_read_head(fd, got, sizeof(got));
			assert_memory_equal(got, "HTTP/1.1 103", 12);
		}
		stage_read_head(fd, got, sizeof(got));
		assert_memory_equal(got, "HTTP/1.1 200", 12);
		if (i != 2)
			hear(fd, "abc");
	}
	close(fd);
	close(server);
}

static void
B011_a_chunked_upload_streams(void **state)
{
	static const char *const first[] = { "POST /u",
	    "POST http://allowed.test/u" };
	int fd, server;

	(void)state;
	for (int way = 0; way < 2; way++) {
		fd = stage_connect(WANTED, way == 0 ? 80 : 3128);
		say(fd, first[way]);
		say(fd, " HTTP/1.1\r\nHost: allowed.test\r\n"
		    "Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n");
		server = stage_accept(web);
		assert_true(server >= 0);
		stage_read_head(server, got, sizeof(got));
		assert_non_null(strstr(got, "100-continue"));
		say(server, "HTTP/1.1 100 Continue\r\n\r\n");
		stage_read_head(fd, got, sizeof(got));
		for (int i = 0; i < 100; i++) {
			say(fd, "5\r\nhello\r\n");
			hear(server, "5\r\nhello\r\n");
		}
		say(fd, "0\r\nX-Sum: 1\r\n\r\n");
		hear(server, "0\r\nX-Sum: 1\r\n\r\n");
		say(server, "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n");
		stage_read_head(fd, got, sizeof(got));
		assert_memory_equal(got, "HTTP/1.1 201", 12);
		close(fd);
		close(server);
	}
}

static void
N10_an_early_answer_reaches_a_client_that_uploads(void **state)
{
	int fd = stage_connect(WANTED, 80), server;
	static char block[20000];
	bool reset;

	(void)state;
	say(fd, "POST /u HTTP/1.1\r\nHost: allowed.test\r\n"
	    "Content-Length: 1000000\r\n\r\n");
	stage_send(fd, block, sizeof(block));
	server = stage_accept(web);
	assert_true(server >= 0);
	stage_read_head(server, got, sizeof(got));
	say(server, "HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n");
	stage_send(fd, block, sizeof(block));
	stage_read_all(fd, got, sizeof(got), &reset);
	assert_memory_equal(got, "HTTP/1.1 413", 12);
	assert_false(reset);
	close(fd);
	close(server);
}

static void
N10_a_refusal_reaches_a_client_that_uploads(void **state)
{
	static char block[60000];
	int fd = stage_connect(WANTED, 80);

	(void)state;
	say(fd, "POST /u HTTP/1.1\r\nHost: denied.test\r\n"
	    "Content-Length: 1000000\r\n\r\n");
	stage_send(fd, block, sizeof(block));
	refused(fd, "HTTP/1.1 403", REASON_RULE_DENY);
}

static void
N07_a_body_that_ends_with_the_connection(void **state)
{
	int fd = stage_connect(WANTED, 80), server;
	bool reset;

	(void)state;
	say(fd, "GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n");
	server = stage_accept(web);
	stage_read_head(server, got, sizeof(got));
	say(server, "HTTP/1.0 200 OK\r\n\r\npart one");
	usleep(20000);
	say(server, " part two");
	close(server);
	stage_read_all(fd, got, sizeof(got), &reset);
	assert_false(reset);
	assert_non_null(strstr(got, "part one part two"));
	assert_non_null(strstr(got, "onnection: close"));
	close(fd);
}

static void
N11_a_stale_kept_connection_is_tried_once_more(void **state)
{
	int fd = stage_connect(WANTED, 80), server;

	(void)state;
	say(fd, "GET /1 HTTP/1.1\r\nHost: allowed.test\r\n\r\n");
	server = stage_accept(web);
	stage_read_head(server, got, sizeof(got));
	say(server, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
	stage_read_head(fd, got, sizeof(got));
	say(fd, "GET /2 HTTP/1.1\r\nHost: allowed.test\r\n\r\n");
	stage_read_head(server, got, sizeof(got));
	close(server);		/* read the head, then closed */
	server = stage_accept(web);
	assert_true(server >= 0);
	stage_read_head(server, got, sizeof(got));
	assert_memory_equal(got, "GET /2", 6);
	say(server, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx");
	stage_read_head(fd, got, sizeof(got));
	hear(fd, "x");
	say(fd, "POST /3 HTTP/1.1\r\nHost: allowed.test\r\n"
	    "Content-Length: 1\r\n\r\ny");
	stage_read_head(server, got, sizeof(got));
	close(server);
	bool reset;

	stage_read_all(fd, got, sizeof(got), &reset);
	assert_memory_equal(got, "HTTP/1.1 502", 12);
	close(fd);
}

static void
B016_a_target_that_is_not_the_destination_is_refused(void **state)
{
	int fd = stage_connect(WANTED, 80);

	(void)state;
	say(fd, "GET / HTTP/1.1\r\nHost: allowed.test:8080\r\n\r\n");
	refused(fd, "HTTP/1.1 403", REASON_HOST_MISMATCH);
	fd = stage_connect(WANTED, 80);
	say(fd, "GET http://allowed.test/ HTTP/1.1\r\nHost: denied.test\r\n"
	    "\r\n");
	refused(fd, "HTTP/1.1 4", REASON_HOST_MISMATCH);
	fd = stage_connect(WANTED, 3128);
	say(fd, "GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n");
	refused(fd, "HTTP/1.1 400", REASON_TARGET);
}

static void
B037_the_next_address_is_tried_at_once(void **state)
{
	int fd, server, lfd;

	(void)state;
	stage_pin("second.test", "203.0.113.30");	/* refuses */
	stage_pin("second.test", "203.0.113.31");
	close(tls);
	lfd = stage_listen("203.0.113.31", 443);
	fd = tunnel(lfd, "second.test:443", &server);
	close(fd);
	close(server);
	close(lfd);
	fd = stage_connect(WANTED, 3128);
	say(fd, "CONNECT second.test:443 HTTP/1.1\r\n"
	    "Host: second.test:443\r\n\r\n");
	bool reset;

	stage_read_all(fd, got, sizeof(got), &reset);
	assert_memory_equal(got, "HTTP/1.1 502", 12);
	close(fd);
	tls = stage_listen(ORIGIN, 443);
}

static void
a_tunnel_on_a_kept_connection_is_cut_by_its_own_name(void **state)
{
	int fd = stage_connect(WANTED, 3128), server;
	const struct record *r;
	uint8_t hello[1024];
	bool reset = false;
	size_t n;

	(void)state;
	say(fd, "GET http://allowed.test/ HTTP/1.1\r\n"
	    "Host: allowed.test\r\n\r\n");
	server = stage_accept(web);
	assert_true(server >= 0);
	stage_read_head(server, got, sizeof(got));
	say(server, "HTTP/1.1 204 No Content\r\n\r\n");
	stage_read_head(fd, got, sizeof(got));
	say(fd, "CONNECT second.test:443 HTTP/1.1\r\n"
	    "Host: second.test:443\r\n\r\n");
	stage_read_head(fd, got, sizeof(got));
	assert_memory_equal(got, "HTTP/1.1 200", 12);
	close(server);
	server = stage_accept(tls);
	assert_true(server >= 0);
	n = stage_hello("second.test", hello, sizeof(hello));
	stage_send(fd, hello, n);
	stage_expect(server, hello, n);
	/* The first name stays allowed, the tunnel's does not. */
	stage_policy("version: 1\nnetwork:\n  resolvers: [198.18.0.53]\n"
	    "  lab: [203.0.113.0/24]\n  rule:\n"
	    "    - {verdict: allow, hostname: allowed.test}\n");
	stage_read_all(fd, got, sizeof(got), &reset);
	assert_true(reset);
	r = stage_record(RECORD_END);
	assert_int_equal(r->request, 1);
	r = stage_record(RECORD_END);
	assert_int_equal(r->reason, REASON_POLICY_CHANGED);
	assert_true(span_eq(record_get(r, TEXT_NAME),
	    span_str("second.test")));
	close(fd);
	close(server);
}

static void
B013_large_bodies_are_byte_exact_both_ways(void **state)
{
	static const char next[] =
	    "GET /2 HTTP/1.1\r\nHost: allowed.test\r\n\r\n";
	static char big[4 << 20], sent[sizeof(big) + sizeof(next) - 1];
	int fd = stage_connect(WANTED, 80), server;
	struct stage_job up = { fd, sent, sizeof(sent), .expect = false };
	struct stage_job down = { .data = big, .len = sizeof(big) };

	(void)state;
	for (size_t i = 0; i < sizeof(big); i++)
		big[i] = (char)(i * 2654435761u >> 13);
	memcpy(sent, big, sizeof(big));
	memcpy(sent + sizeof(big), next, sizeof(next) - 1);
	say(fd, "POST /u HTTP/1.1\r\nHost: allowed.test\r\n"
	    "Content-Length: 4194304\r\n\r\n");
	server = stage_accept(web);
	assert_true(server >= 0);
	stage_begin(&up);
	stage_read_head(server, got, sizeof(got));
	stage_expect(server, big, sizeof(big));
	assert_true(stage_await(&up));
	say(server, "HTTP/1.1 200 OK\r\nContent-Length: 4194304\r\n\r\n");
	down.fd = server;
	stage_begin(&down);
	stage_read_head(fd, got, sizeof(got));
	usleep(50000);		/* the way down fills up */
	stage_expect(fd, big, sizeof(big));
	assert_true(stage_await(&down));
	stage_read_head(server, got, sizeof(got));
	assert_memory_equal(got, "GET /2", 6);
	say(server, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nz");
	stage_read_head(fd, got, sizeof(got));
	hear(fd, "z");
	close(fd);
	close(server);
}

static void
N07_a_truncated_body_is_no_clean_end(void **state)
{
	int fd = stage_connect(WANTED, 80), server;
	bool reset;

	(void)state;
	say(fd, "GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n");
	server = stage_accept(web);
	stage_read_head(server, got, sizeof(got));
	say(server, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc");
	close(server);
	stage_read_all(fd, got, sizeof(got), &reset);
	assert_true(reset);
	assert_non_null(strstr(got, "abc"));
	close(fd);
}

static void
B037_a_black_hole_holds_nobody_up(void **state)
{
	int fd, server, lfd, fill[4], hole;
	struct endpoint e = { .port = 443 };
	struct sockaddr_storage ss;
	struct timespec a, b;
	socklen_t len;

	(void)state;
	/* A full backlog answers no SYN. */
	hole = stage_listen("203.0.113.40", 443);
	listen(hole, 0);
	assert_true(addr_parse(&e.addr, span_str("203.0.113.40")));
	len = endpoint_to_sockaddr(&e, &ss);
	for (int i = 0; i < 4; i++) {
		fill[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
		connect(fill[i], (struct sockaddr *)&ss, len);
	}
	usleep(50000);
	stage_pin("third.test", "203.0.113.40");
	stage_pin("third.test", "203.0.113.31");
	lfd = stage_listen("203.0.113.31", 443);
	stage_policy("version: 1\nnetwork:\n  resolvers: [198.18.0.53]\n"
	    "  lab: [203.0.113.0/24]\n  rule:\n"
	    "    - {verdict: allow, hostname: third.test}\n");
	clock_gettime(CLOCK_MONOTONIC, &a);
	fd = tunnel(lfd, "third.test:443", &server);
	clock_gettime(CLOCK_MONOTONIC, &b);
	assert_true((b.tv_sec - a.tv_sec) * 1000 +
	    (b.tv_nsec - a.tv_nsec) / 1000000 < 1000);
	close(fd);
	close(server);
	close(lfd);
	for (int i = 0; i < 4; i++)
		close(fill[i]);
	close(hole);
}

static void
a_request_without_a_version_is_answered_at_the_end_of_its_line(void **state)
{
	struct timespec a, b;
	int fd;

	(void)state;
	clock_gettime(CLOCK_MONOTONIC, &a);
	fd = stage_connect(WANTED, 80);
	say(fd, "GET /\r\n");
	refused(fd, "HTTP/1.1 400", REASON_HEAD_MALFORMED);
	clock_gettime(CLOCK_MONOTONIC, &b);
	assert_true((b.tv_sec - a.tv_sec) * 1000 + (b.tv_nsec - a.tv_nsec) /
	    1000000 < (long)stage_limits.hello_ms);
}

static void
B022_plain_http_kept_inside_a_tunnel_has_the_time_of_a_kept_one(void **state)
{
	int server, fd = tunnel(web, "allowed.test:80", &server);

	(void)state;
	for (int i = 0; i < 2; i++) {
		say(fd, "GET /a HTTP/1.1\r\nHost: allowed.test\r\n\r\n");
		stage_read_head(server, got, sizeof(got));
		say(server, "HTTP/1.1 204 No Content\r\n\r\n");
		stage_read_head(fd, got, sizeof(got));
		assert_memory_equal(got, "HTTP/1.1 204", 12);
		usleep((stage_limits.hello_ms + 150) * 1000);
	}
	close(fd);
	close(server);
}

static void
N11_a_tunnel_whose_server_has_left_is_dialled_again(void **state)
{
	int server, fd = tunnel(web, "allowed.test:80", &server);

	(void)state;
	close(server);
	usleep(50000);
	say(fd, "GET /a HTTP/1.1\r\nHost: allowed.test\r\n\r\n");
	server = stage_accept(web);
	assert_true(server >= 0);
	stage_read_head(server, got, sizeof(got));
	assert_memory_equal(got, "GET /a", 6);
	say(server, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
	stage_read_head(fd, got, sizeof(got));
	hear(fd, "hi");
	close(fd);
	close(server);
}

/* ---- no memory ---- */

static atomic_uint grown, fail_at;	/* 0: none fails */

void *__real_realloc(void *p, size_t n);
void *__wrap_realloc(void *p, size_t n);

void *
__wrap_realloc(void *p, size_t n)
{
	unsigned at = atomic_load(&fail_at);

	if (at != 0 && atomic_fetch_add(&grown, 1) + 1 == at)
		return NULL;
	return __real_realloc(p, n);
}

/* One exchange; true when it came through. */
static bool
exchange(void)
{
	static const char head[] = "POST /u HTTP/1.1\r\n"
	    "Host: allowed.test\r\nConnection: close\r\n"
	    "Content-Length: 2000\r\n\r\n";
	static char block[2000];
	int fd = stage_connect(WANTED, 80), server;
	struct pollfd either[2] = { { .fd = fd, .events = POLLIN },
	    { .fd = web, .events = POLLIN } };
	bool done;

	/* the connection ends with its request, or has ended before it */
	(void)!send(fd, head, sizeof(head) - 1, MSG_NOSIGNAL);
	(void)!send(fd, block, sizeof(block), MSG_NOSIGNAL);
	/* it is dialled, or refused before */
	(void)poll(either, 2, 10000);
	server = either[1].revents != 0 ? stage_accept(web) : -1;
	if (server >= 0)
		(void)!send(server, "HTTP/1.1 200 OK\r\n"
		    "Content-Length: 2\r\n\r\nhi", 40, MSG_NOSIGNAL);
	(void)poll(either, 1, 10000);
	shutdown(fd, SHUT_WR);
	done = recv(fd, got, 12, 0) == 12 &&
	    memcmp(got, "HTTP/1.1 200", 12) == 0;
	close(fd);
	if (server >= 0)
		close(server);
	return done;
}

static void
no_memory_is_told_as_no_memory(void **state)
{
	const struct record *r;
	unsigned n = 0;
	bool done;

	(void)state;
	do {
		atomic_store(&grown, 0);
		atomic_store(&fail_at, ++n);
		done = exchange();
		atomic_store(&fail_at, 0);
		r = stage_record(RECORD_END);
		if (atomic_load(&grown) >= n)
			assert_int_equal(r->reason, REASON_LIMIT_MEMORY);
	} while (atomic_load(&grown) >= n);
	assert_true(done);
	assert_true(n > 4);
	print_message("%u places\n", n - 1);
}

static void
B020_a_connect_of_version_1_0_stays_open(void **state)
{
	static const char *const heads[] = { "\r\n",
	    "Connection: close\r\n\r\n",
	    "Proxy-Connection: keep-alive\r\n\r\n" };
	uint8_t hello[1024];
	size_t n = stage_hello("allowed.test", hello, sizeof(hello));
	int fd, server;

	(void)state;
	for (int i = 0; i < 3; i++) {
		fd = stage_connect(WANTED, 3128);
		say(fd, "CONNECT allowed.test:443 HTTP/1.0\r\n");
		say(fd, heads[i]);
		stage_read_head(fd, got, sizeof(got));
		assert_memory_equal(got, "HTTP/1.1 200", 12);
		assert_null(strcasestr(got, "content-length"));
		server = stage_accept(tls);
		assert_true(server >= 0);
		stage_send(fd, hello, n);
		stage_expect(server, hello, n);
		say(server, "xxxxxxx");
		hear(fd, "xxxxxxx");
		usleep((stage_limits.hello_ms + 100) * 1000);
		say(fd, "late");
		hear(server, "late");
		close(fd);
		close(server);
	}
}

static void
N08_interim_answers_have_a_cap(void **state)
{
	static char all[4096];
	bool reset;
	size_t n;

	(void)state;
	for (int i = 0; i < 4; i++) {
		int fd = stage_connect(WANTED, 80), server, more = i % 2;

		/* one of 1.0 is told of none of them */
		say(fd, i < 2 ? "GET / HTTP/1.1\r\n" : "GET / HTTP/1.0\r\n");
		say(fd, "Host: allowed.test\r\nConnection: close\r\n\r\n");
		server = stage_accept(web);
		assert_true(server >= 0);
		stage_read_head(server, got, sizeof(got));
		n = 0;
		for (int k = 0; k < 64 + more; k++)
			n += (size_t)sprintf(all + n,
			    "HTTP/1.1 103 Early Hints\r\n\r\n");
		if (!more)
			sprintf(all + n, "HTTP/1.1 200 OK\r\n"
			    "Content-Length: 2\r\n\r\nok");
		say(server, all);	/* nothing is to be read behind it */
		stage_read_all(fd, got, sizeof(got), &reset);
		assert_non_null(strstr(got, more ? " 502 " : " 200 "));
		close(fd);
		close(server);
	}
}

static void
B29_no_upgrade_hides_the_requests_that_follow(void **state)
{
	int fd = stage_connect(WANTED, 80);

	(void)state;
	say(fd, "GET / HTTP/1.1\r\nHost: allowed.test\r\n"
	    "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
	    "HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n");
	refused(fd, "HTTP/1.1 400", REASON_UPGRADE);
	assert_int_equal(stage_accept(web), -1);
}

static void
B30_each_way_in_asks_the_same_question(void **state)
{
	static const struct { uint16_t port; const char *head; } ways[] = {
	    { 3128, "CONNECT evil.test:80 HTTP/1.1\r\n"
	    "Host: evil.test:80\r\n\r\n" },
	    { 3128, "GET http://evil.test/ HTTP/1.1\r\n"
	    "Host: evil.test\r\n\r\n" },
	    { 80, "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n" },
	};

	(void)state;
	for (int i = 0; i < 3; i++) {
		int fd = stage_connect(WANTED, ways[i].port);

		say(fd, ways[i].head);
		refused(fd, "HTTP/1.1 403", REASON_NO_RULE);
	}
}

static void
B31_a_body_of_two_lengths_is_refused(void **state)
{
	int fd = stage_connect(WANTED, 80);

	(void)state;
	say(fd, "POST / HTTP/1.1\r\nHost: allowed.test\r\n"
	    "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
	refused(fd, "HTTP/1.1 400", REASON_FRAMING);
	assert_int_equal(stage_accept(web), -1);
}

static void
B33_a_host_leads_to_its_own_address(void **state)
{
	int fd = stage_connect(WANTED, 80), server;
	const struct record *r;
	char at[ADDR_TEXT_BYTES];

	(void)state;
	say(fd, "GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n");
	server = stage_accept(web);	/* not at WANTED */
	assert_true(server >= 0);
	r = stage_record(RECORD_DECISION);
	assert_string_equal(addr_text(&r->dialled.addr, at), ORIGIN);
	assert_string_equal(addr_text(&r->original.addr, at), WANTED);
	close(fd);
	close(server);
}

static void
B34_two_hosts_are_refused(void **state)
{
	static const char *const heads[] = {
	    "Host: allowed.test\r\nHost: evil.test\r\n\r\n",
	    " Host: evil.test\r\nHost: allowed.test\r\n\r\n",
	    "Host : evil.test\r\nHost: allowed.test\r\n\r\n" };

	(void)state;
	for (int i = 0; i < 3; i++) {
		int fd = stage_connect(WANTED, 80);

		say(fd, "GET / HTTP/1.1\r\n");
		say(fd, heads[i]);
		refused(fd, "HTTP/1.1 400", REASON_HEAD_MALFORMED);
	}
	assert_int_equal(stage_accept(web), -1);
}

/* A head of as many fields as are let through, and of one more: of a request,
 * and of an answer. */
static void
a_head_has_no_more_fields_than_the_limit(void **state)
{
	static char head[4096];
	struct proxy_limits l = stage_limits;

	down(state);
	l.header_count = 10;
	up_with(&l);
	for (int i = 0; i < 4; i++) {
		int fd = stage_connect(WANTED, 80), server;
		size_t n;

		n = (size_t)sprintf(head, "GET / HTTP/1.1\r\n"
		    "Host: allowed.test\r\n");
		for (int k = 0; k < 9 + (i == 1); k++)
			n += (size_t)sprintf(head + n, "A%d: b\r\n", k);
		sprintf(head + n, "\r\n");
		say(fd, head);
		if (i == 1) {
			refused(fd, "HTTP/1.1 431", REASON_HEAD_TOO_LARGE);
			continue;
		}
		server = stage_accept(web);
		assert_true(server >= 0);
		stage_read_head(server, got, sizeof(got));
		n = (size_t)sprintf(head, "HTTP/1.1 200 OK\r\n"
		    "Content-Length: 0\r\n");
		for (int k = 0; k < 9 + (i == 3); k++)
			n += (size_t)sprintf(head + n, "A%d: b\r\n", k);
		sprintf(head + n, "\r\n");
		say(server, head);
		stage_read_head(fd, got, sizeof(got));
		assert_memory_equal(got, i == 3 ? "HTTP/1.1 502" :
		    "HTTP/1.1 200", 12);
		close(fd);
		close(server);
	}
}

#define T(f) cmocka_unit_test_setup_teardown(f, up, down)
#define SOON(f) cmocka_unit_test_setup_teardown(f, up_soon, down)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		T(W30_bytes_behind_a_connect_head_are_kept),
		T(B023_the_name_inside_a_tunnel_is_the_one_asked_for),
		T(B022_plain_http_inside_a_tunnel_is_judged),
		T(B38_no_proxy_inside_a_tunnel_and_no_other_bytes),
		SOON(B020_a_connect_of_version_1_0_stays_open),
		T(a_head_has_no_more_fields_than_the_limit),
		T(N08_interim_answers_have_a_cap),
		T(B29_no_upgrade_hides_the_requests_that_follow),
		T(B30_each_way_in_asks_the_same_question),
		T(B31_a_body_of_two_lengths_is_refused),
		T(B33_a_host_leads_to_its_own_address),
		T(B34_two_hosts_are_refused),
		T(B019_a_refused_connect_is_told_in_words),
		T(B025_an_address_literal_needs_the_name_that_it_is_pinned_to),
		T(B035_a_server_may_speak_first),
		T(B035_an_opaque_flow_that_shows_another_name_is_cut),
		T(W20_the_second_request_is_judged_on_its_own),
		T(B013_pipelined_requests_are_answered_in_order),
		T(B011_a_chunked_upload_streams),
		T(N10_an_early_answer_reaches_a_client_that_uploads),
		T(N10_a_refusal_reaches_a_client_that_uploads),
		T(N07_a_body_that_ends_with_the_connection),
		T(N11_a_stale_kept_connection_is_tried_once_more),
		T(B016_a_target_that_is_not_the_destination_is_refused),
		T(a_tunnel_on_a_kept_connection_is_cut_by_its_own_name),
		T(B013_large_bodies_are_byte_exact_both_ways),
		T(N07_a_truncated_body_is_no_clean_end),
		T(B037_a_black_hole_holds_nobody_up),
		T(B037_the_next_address_is_tried_at_once),
		T(a_request_without_a_version_is_answered_at_the_end_of_its_line),
		SOON(B022_plain_http_kept_inside_a_tunnel_has_the_time_of_a_kept_one),
		T(N11_a_tunnel_whose_server_has_left_is_dialled_again),
		T(no_memory_is_told_as_no_memory),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
