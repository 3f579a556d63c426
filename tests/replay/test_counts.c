/* SPDX-License-Identifier: Apache-2.0 */
/* What metrics say is what records say: each connection, decision and byte is
 * counted once. */
#include "tests/replay/stage.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static int web, ssh;
static char got[8192];

/* What the records say so far. */
static struct {
	int64_t accepted, allowed, reported, up, down;
} told;

static int
up(void **state)
{
	(void)state;
	memset(&told, 0, sizeof(told));
	stage_up(NULL, NULL);
	stage_pin("git.test", ORIGIN);
	web = stage_listen(ORIGIN, 80);
	ssh = stage_listen(ORIGIN, 22);
	return 0;
}

static int
down(void **state)
{
	(void)state;
	close(web);
	close(ssh);
	stage_down();
	return 0;
}

/* The end of a decision; all that is told with it is counted before it. */
static void
is_counted(enum verdict verdict)
{
	const struct record *r = stage_record(RECORD_END);

	assert_int_equal(r->verdict, verdict);
	told.allowed += verdict == VERDICT_ALLOW;
	told.up += (int64_t)r->bytes_up;
	told.down += (int64_t)r->bytes_down;
	assert_int_equal(stage_count(COUNT_ACCEPTED), told.accepted);
	assert_int_equal(stage_count(COUNT_ALLOWED), told.allowed);
	assert_int_equal(stage_count(COUNT_REPORTED), told.reported);
	assert_int_equal(stage_count(COUNT_BYTES_UP), told.up);
	assert_int_equal(stage_count(COUNT_BYTES_DOWN), told.down);
}

static int
comes(uint16_t port)
{
	told.accepted++;
	return stage_connect(WANTED, port);
}

static void
a_tunnel_is_counted_once(void **state)
{
	int fd, server;

	(void)state;
	for (int i = 0; i < 3; i++) {
		fd = comes(3128);
		say(fd, "CONNECT git.test:22 HTTP/1.1\r\n"
		    "Host: git.test:22\r\n\r\n");
		stage_read_head(fd, got, sizeof(got));
		server = stage_accept(ssh);
		assert_true(server >= 0);
		assert_int_equal(stage_count(COUNT_CONNECTIONS_OPEN), 1);
		assert_int_equal(stage_count(COUNT_UPSTREAM_OPEN), 1);
		say(server, "ready\n");
		stage_expect(fd, "ready\n", 6);
		say(fd, "hi\n");
		stage_expect(server, "hi\n", 3);
		close(fd);
		close(server);
		is_counted(VERDICT_ALLOW);
		assert_int_equal(told.up, 3 * (i + 1));
	}
}

static void
each_request_is_counted_once(void **state)
{
	int fd = comes(80), server = -1;

	(void)state;
	for (int i = 0; i < 3; i++) {
		say(fd, "GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n");
		if (server < 0)
			server = stage_accept(web);
		stage_read_head(server, got, sizeof(got));
		say(server, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
		stage_read_head(fd, got, sizeof(got));
		stage_expect(fd, "hi", 2);
		is_counted(VERDICT_ALLOW);
	}
	close(fd);
	close(server);
}

static void
each_denial_is_counted_once(void **state)
{
	bool reset;

	(void)state;
	for (int i = 1; i <= 3; i++) {
		int fd = comes(80);

		say(fd, "GET / HTTP/1.1\r\nHost: denied.test\r\n\r\n");
		stage_read_all(fd, got, sizeof(got), &reset);
		assert_memory_equal(got, "HTTP/1.1 403", 12);
		close(fd);
		is_counted(VERDICT_DENY);
		assert_int_equal(stage_denied(REASON_RULE_DENY), i);
		assert_int_equal(stage_denied(REASON_NO_RULE), 0);
	}
}

static void
each_report_is_counted_once(void **state)
{
	time_t until = time(NULL) + 30 * 86400;
	char text[512], day[16];
	struct tm tm;
	bool reset;

	(void)state;
	strftime(day, sizeof(day), "%Y-%m-%d", gmtime_r(&until, &tm));
	snprintf(text, sizeof(text), "version: 1\nnetwork:\n"
	    "  resolvers: [198.18.0.53]\n  lab: [203.0.113.0/24]\n"
	    "  default: report\n  report_until: %s\n  rule:\n"
	    "    - {verdict: allow, hostname: allowed.test}\n", day);
	stage_policy(text);
	stage_pin("other.test", ORIGIN);
	for (int i = 0; i < 3; i++) {
		int fd = comes(80), server;

		told.reported++;
		say(fd, "GET / HTTP/1.1\r\nHost: other.test\r\n"
		    "Connection: close\r\n\r\n");
		server = stage_accept(web);
		stage_read_head(server, got, sizeof(got));
		say(server, "HTTP/1.1 204 No Content\r\n\r\n");
		stage_read_all(fd, got, sizeof(got), &reset);
		close(fd);
		close(server);
		is_counted(VERDICT_ALLOW);
		assert_int_equal(stage_denied(REASON_NO_RULE), 0);
	}
}

/* Who finds no place has no record of its own, but one of several. */
static void
who_is_turned_away_is_counted_once(void **state)
{
	struct endpoint e = { .port = 443 };
	struct sockaddr_storage ss;
	const struct record *r;
	struct rlimit old, few;
	int64_t n = 0;
	int fd[8];

	(void)state;
	assert_true(addr_parse(&e.addr, span_str(WANTED)));
	endpoint_to_sockaddr(&e, &ss);
	for (int i = 0; i < 8; i++)	/* made before the limit: they stay */
		fd[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	getrlimit(RLIMIT_NOFILE, &old);
	few = old;
	few.rlim_cur = (rlim_t)fd[7] + 2;
	setrlimit(RLIMIT_NOFILE, &few);
	for (int i = 0; i < 8; i++)
		assert_int_equal(connect(fd[i], (struct sockaddr *)&ss,
		    sizeof(struct sockaddr_in)), 0);
	usleep(300000);
	for (int i = 0; i < 8; i++)
		close(fd[i]);
	setrlimit(RLIMIT_NOFILE, &old);
	usleep(300000);
	stage_stop();
	while (stage_count(COUNT_ACCEPTED) + n < 8) {
		r = stage_record(RECORD_DECISION);
		if (r->reason == REASON_LIMIT_DESCRIPTORS)
			n += r->count > 0 ? r->count : 1;
	}
	assert_true(n > 0);
	assert_int_equal(stage_denied(REASON_LIMIT_DESCRIPTORS), n);
}

#define T(f) cmocka_unit_test_setup_teardown(f, up, down)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_tunnel_is_counted_once),
		T(each_request_is_counted_once),
		T(each_denial_is_counted_once),
		T(each_report_is_counted_once),
		T(who_is_turned_away_is_counted_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
