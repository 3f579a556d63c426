/* SPDX-License-Identifier: Apache-2.0 */
/* What follows on a connection that is kept, and who has left it. */
#include "tests/replay/stage.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int web, tls, ssh;
static char got[16384];

static int
up(void **state)
{
	(void)state;
	stage_up(NULL, NULL);
	stage_pin("git.test", ORIGIN);
	stage_pin("second.test", ORIGIN);
	web = stage_listen(ORIGIN, 80);
	tls = stage_listen(ORIGIN, 443);
	ssh = stage_listen(ORIGIN, 22);
	return 0;
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

/* A hello, or other bytes, behind an answered request: one engine looped on
 * them without end, and records told of another server. */
static void
W20_B29_what_follows_a_request_is_a_request(void **state)
{
	uint8_t hello[1024];
	size_t n = stage_hello("allowed.test", hello, sizeof(hello));
	int fd, server, other;

	(void)state;
	for (int i = 0; i < 3; i++) {
		fd = stage_connect(WANTED, 80);
		say(fd, "GET /a HTTP/1.1\r\nHost: allowed.test\r\n\r\n");
		server = stage_accept(web);
		stage_read_head(server, got, sizeof(got));
		say(server, "HTTP/1.1 204 No Content\r\n\r\n");
		stage_read_head(fd, got, sizeof(got));
		if (i == 0)
			stage_send(fd, hello, n);
		else
			stage_send(fd, i == 1 ? "\0\1junk" : "\x80junk", 6);
		refused(fd, "HTTP/1.1 400", REASON_HEAD_MALFORMED);
		close(server);
	}
	/* the engine still serves */
	fd = stage_connect(WANTED, 80);
	say(fd, "GET /b HTTP/1.1\r\nHost: allowed.test\r\n\r\n");
	other = stage_accept(web);
	assert_true(other >= 0);
	close(other);
	close(fd);
}

/* No further connection fits: who dials it hears nothing. */
static void
stuff(int lfd, int fd[static 4])
{
	struct sockaddr_in to;
	socklen_t len = sizeof(to);

	assert_int_equal(listen(lfd, 0), 0);
	assert_int_equal(getsockname(lfd, (struct sockaddr *)&to, &len), 0);
	for (unsigned i = 0; i < 4; i++) {
		fd[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
		(void)!connect(fd[i], (struct sockaddr *)&to, len);
	}
	usleep(20000);
}

/* The old server ends in the same turn in which the next one is dialled: its
 * end is not the news that the dial has won. */
static void
the_end_of_the_last_server_is_not_the_next_ones_answer(void **state)
{
	int fd, server, other = -1, silent, filler[4];

	(void)state;
	silent = stage_listen("203.0.113.7", 80);
	stuff(silent, filler);
	stage_pin("other.test", "203.0.113.7");
	stage_pin("other.test", ORIGIN);
	stage_policy("version: 1\nnetwork:\n  resolvers: [198.18.0.53]\n"
	    "  lab: [203.0.113.0/24]\n  rule:\n"
	    "    - {verdict: allow, hostname: allowed.test}\n"
	    "    - {verdict: allow, hostname: other.test}\n");
	fd = stage_connect(WANTED, 80);
	say(fd, "GET /a HTTP/1.1\r\nHost: allowed.test\r\n\r\n");
	server = stage_accept(web);
	stage_read_head(server, got, sizeof(got));
	say(server, "HTTP/1.1 204 No Content\r\n\r\n");
	stage_read_head(fd, got, sizeof(got));
	stage_hold();
	say(fd, "GET /b HTTP/1.1\r\nHost: other.test\r\n\r\n");
	usleep(20000);
	close(server);
	for (int i = 0; i < 4 && other < 0; i++)
		other = stage_accept(web);
	assert_true(other >= 0);
	stage_read_head(other, got, sizeof(got));
	assert_non_null(strstr(got, "GET /b "));
	say(other, "HTTP/1.1 204 No Content\r\n\r\n");
	stage_read_head(fd, got, sizeof(got));
	assert_non_null(strstr(got, "204"));
	close(fd);
	close(other);
	close(silent);
	for (int i = 0; i < 4; i++)
		close(filler[i]);
}

/* A server that looks for no body takes it for its next request, for another
 * name perhaps: it is told to serve no other, and is asked no other. */
static void
a_body_that_may_be_missed_ends_its_upstream(void **state)
{
	static const struct {
		const char *head;
		bool alone;
	} t[] = {
		{ "GET /a HTTP/1.1\r\nContent-Length: 4\r\n", true },
		{ "DELETE /a HTTP/1.1\r\nContent-Length: 4\r\n", true },
		{ "FOO /a HTTP/1.1\r\nContent-Length: 4\r\n", true },
		{ "GET /a HTTP/1.1\r\nContent-Length: 4\r\n"
		    "Connection: upgrade\r\nUpgrade: websocket\r\n"
		    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
		    true },
		{ "POST /a HTTP/1.1\r\nContent-Length: 4\r\n", false },
		{ "GET /a HTTP/1.1\r\nContent-Length: 0\r\n", false },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		int fd = stage_connect(WANTED, 80), server, other;

		say(fd, t[i].head);
		say(fd, "Host: allowed.test\r\n\r\n");
		if (i < 5)
			say(fd, "GET ");
		server = stage_accept(web);
		stage_read_head(server, got, sizeof(got));
		if ((strstr(got, "Connection: close\r\n") != NULL) !=
		    t[i].alone)
			fail_msg("'%s' went up as '%s'", t[i].head, got);
		if (t[i].alone)
			assert_null(strstr(got, "pgrade"));
		say(server, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
		stage_read_head(fd, got, sizeof(got));
		say(fd, "GET /b HTTP/1.1\r\nHost: allowed.test\r\n\r\n");
		other = stage_accept(web);
		assert_int_equal(other >= 0, t[i].alone);
		if (!t[i].alone)
			other = server;
		stage_read_head(other, got, sizeof(got));
		assert_non_null(strstr(got, "GET /b"));
		/* a server that were gone now would be dialled again */
		say(other, "HTTP/1.1 204 No Content\r\n\r\n");
		stage_read_head(fd, got, sizeof(got));
		close(fd);
		close(server);
		if (other != server)
			close(other);
	}
}

static void
wait_for_end(int ms)
{
	for (int i = 0; i < ms / 100 && stage_no_record(RECORD_END); i++)
		continue;
}

/* A client that leaves while a server is silent was met only when the idle
 * limit was over. */
static void
N11_a_client_that_left_is_met(void **state)
{
	struct linger now = { 1, 0 };
	struct proxy_limits limits = stage_limits;
	int fd, server;

	(void)state;
	down(NULL);
	limits.idle_ms = 4000;
	limits.half_closed_ms = 300;
	stage_up(NULL, &limits);
	web = stage_listen(ORIGIN, 80);
	tls = stage_listen(ORIGIN, 443);
	ssh = stage_listen(ORIGIN, 22);
	for (int reset = 0; reset < 2; reset++) {
		fd = stage_connect(WANTED, 80);
		say(fd, "GET /a HTTP/1.1\r\nHost: allowed.test\r\n\r\n");
		server = stage_accept(web);
		stage_read_head(server, got, sizeof(got));
		if (reset)
			setsockopt(fd, SOL_SOCKET, SO_LINGER, &now,
			    sizeof(now));
		close(fd);
		wait_for_end(2500);
		if (!reset) {
			assert_int_equal(recv(server, got, 1, MSG_DONTWAIT),
			    0);
		} else {
			assert_int_equal(recv(server, got, 1, MSG_DONTWAIT),
			    -1);
			assert_int_equal(errno, ECONNRESET);
		}
		close(server);
	}
}

/* What came in one write with the CONNECT waits as long as any hello. */
static void
B022_bytes_behind_a_connect_have_the_time_of_a_hello(void **state)
{
	static const char head[] = "CONNECT git.test:22 HTTP/1.1\r\n"
	    "Host: git.test:22\r\n\r\n\x16\x03\x01";
	int fd = stage_connect(WANTED, 3128), server;
	bool reset;

	(void)state;
	stage_send(fd, head, sizeof(head) - 1);
	stage_read_head(fd, got, sizeof(got));
	assert_memory_equal(got, "HTTP/1.1 200", 12);
	server = stage_accept(ssh);
	assert_true(server >= 0);
	while (stage_record(RECORD_DECISION)->verdict == VERDICT_ALLOW)
		continue;
	stage_read_all(fd, got, sizeof(got), &reset);
	assert_true(reset);
	close(fd);
	close(server);
}

/* ---- interim answers ---- */

#define INTERIM(code) "HTTP/1.1 " code " Go on\r\nX: y\r\n\r\n"

/* Any of them, in one write with the answer or byte by byte: they come in
 * order, the answer is the answer, and so is the next one. */
static void
N08_interim_answers_leave_what_follows_in_step(void **state)
{
	static const char *const interim[] = {
	    INTERIM("103") INTERIM("103"),
	    INTERIM("100") INTERIM("103") INTERIM("103"),
	    INTERIM("102") INTERIM("102") INTERIM("102") INTERIM("102"),
	    INTERIM("199") };
	static const char *const asks[] = {
	    "GET /a HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
	    "HEAD /a HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
	    "POST /a HTTP/1.1\r\nHost: allowed.test\r\n"
	    "Content-Length: 2\r\n\r\nhi" };

	(void)state;
	for (unsigned i = 0; i < 4 * 3 * 2; i++) {
		const char *p = interim[i % 4];
		unsigned how = i / 4 % 3;
		int fd = stage_connect(WANTED, 80), server;

		say(fd, asks[how]);
		server = stage_accept(web);
		stage_read_head(server, got, sizeof(got));
		if (how == 2)
			stage_expect(server, "hi", 2);
		stage_say(server, p, i / 12);
		stage_say(server, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n",
		    i / 12);
		if (how != 1)
			say(server, "ok");
		for (; (p = strstr(p, "HTTP/1.1 ")) != NULL; p++) {
			stage_read_head(fd, got, sizeof(got));
			assert_memory_equal(got, p, 12);
			assert_null(strcasestr(got, "connection"));
		}
		stage_read_head(fd, got, sizeof(got));
		assert_memory_equal(got, "HTTP/1.1 200", 12);
		if (how != 1)
			stage_expect(fd, "ok", 2);
		say(fd, "GET /b HTTP/1.1\r\nHost: allowed.test\r\n\r\n");
		stage_read_head(server, got, sizeof(got));
		assert_memory_equal(got, "GET /b", 6);
		say(server, "HTTP/1.1 204 No Content\r\n\r\n");
		stage_read_head(fd, got, sizeof(got));
		assert_memory_equal(got, "HTTP/1.1 204", 12);
		close(fd);
		close(server);
	}
}

#define T(f) cmocka_unit_test_setup_teardown(f, up, down)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		T(W20_B29_what_follows_a_request_is_a_request),
		T(the_end_of_the_last_server_is_not_the_next_ones_answer),
		T(a_body_that_may_be_missed_ends_its_upstream),
		T(N11_a_client_that_left_is_met),
		T(N08_interim_answers_leave_what_follows_in_step),
		T(B022_bytes_behind_a_connect_have_the_time_of_a_hello),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
