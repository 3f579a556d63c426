/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/replay/stage.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* Reports about the life and the end of connections, and what is written of
 * them; each test is named after its reports. */

static int origin, web;
static const struct proxy_limits *limits;
static uint8_t hello[1024];
static char got[16384];

static int
up(void **state)
{
	(void)state;
	stage_up(NULL, limits);
	origin = stage_listen(ORIGIN, 443);
	web = stage_listen(ORIGIN, 80);
	return 0;
}

static int
up_hasty(void **state)
{
	static struct proxy_limits hasty;

	hasty = stage_limits;
	hasty.linger_ms = 50;
	limits = &hasty;
	up(state);
	limits = NULL;
	return 0;
}

static int
down(void **state)
{
	(void)state;
	close(origin);
	close(web);
	stage_down();
	return 0;
}

static int
opened(int *server)
{
	static const uint8_t flight[] = { 22, 3, 3, 0, 2, 14, 0 };
	size_t n = stage_hello("allowed.test", hello, sizeof(hello));
	int fd = stage_connect(WANTED, 443);

	stage_send(fd, hello, n);
	*server = stage_accept(origin);
	assert_true(*server >= 0);
	stage_expect(*server, hello, n);
	stage_send(*server, flight, sizeof(flight));
	stage_expect(fd, flight, sizeof(flight));
	return fd;
}

static void
reset_by(int fd)
{
	struct linger l = { 1, 0 };

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l));
	close(fd);
}

static void
B026_the_server_may_end_its_half_first(void **state)
{
	static char big[1 << 20];
	int server, fd = opened(&server);
	struct stage_job up = { fd, big, sizeof(big), .expect = false };

	(void)state;
	shutdown(server, SHUT_WR);
	assert_int_equal(recv(fd, got, 1, 0), 0);
	stage_begin(&up);
	stage_expect(server, big, sizeof(big));
	assert_true(stage_await(&up));
	shutdown(fd, SHUT_WR);
	assert_int_equal(recv(server, got, 1, 0), 0);
	close(fd);
	close(server);
	assert_int_equal(stage_record(RECORD_END)->how, HOW_FIN);
}

static void
B026_a_fin_never_overtakes_what_was_sent(void **state)
{
	static char big[65536];
	size_t n = stage_hello("allowed.test", hello, sizeof(hello));
	int server, fd = opened(&server);
	bool reset;

	(void)state;
	stage_send(fd, big, sizeof(big));	/* and gone */
	close(fd);
	assert_int_equal(stage_read_all(server, got, sizeof(got), &reset),
	    sizeof(big));
	assert_false(reset);
	close(server);
	fd = opened(&server);			/* both at the same time */
	shutdown(fd, SHUT_WR);
	shutdown(server, SHUT_WR);
	assert_int_equal(recv(fd, got, 1, 0), 0);
	assert_int_equal(recv(server, got, 1, 0), 0);
	close(fd);
	close(server);
	fd = stage_connect(WANTED, 443);	/* right behind the hello */
	stage_send(fd, hello, n);
	shutdown(fd, SHUT_WR);
	server = stage_accept(origin);
	assert_true(server >= 0);
	stage_expect(server, hello, n);
	assert_int_equal(recv(server, got, 1, 0), 0);
	stage_send(server, "an answer", 9);
	close(server);
	stage_expect(fd, "an answer", 9);
	close(fd);
	for (int i = 0; i < 3; i++)
		assert_int_equal(stage_record(RECORD_END)->how, HOW_FIN);
}

static void
B029_a_whole_answer_is_whole_whatever_follows(void **state)
{
	int fd = stage_connect(WANTED, 80), server;
	bool reset;
	size_t n;

	(void)state;
	say(fd, "GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n");
	server = stage_accept(web);
	assert_true(server >= 0);
	stage_read_head(server, got, sizeof(got));
	say(server, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
	usleep(20000);
	reset_by(server);
	stage_read_head(fd, got, sizeof(got));
	stage_expect(fd, "hello", 5);
	close(fd);
	/* before any byte */
	n = stage_hello("allowed.test", hello, sizeof(hello));
	fd = stage_connect(WANTED, 443);
	stage_send(fd, hello, n);
	server = stage_accept(origin);
	assert_true(server >= 0);
	stage_expect(server, hello, n);
	reset_by(server);
	assert_int_equal(stage_read_all(fd, got, sizeof(got), &reset), 0);
	assert_true(reset);
	close(fd);
}

static void
B031_an_upload_to_a_slow_server_is_held_back(void **state)
{
	static char block[65536];
	int server, fd = opened(&server), still = 0;
	size_t sent = 0, seen;
	bool reset;

	(void)state;
	while (still < 20 && sent < 64u << 20) {
		ssize_t n = send(fd, block, sizeof(block), MSG_DONTWAIT);

		sent += n > 0 ? (size_t)n : 0;
		still = n > 0 ? 0 : still + 1;
		if (n <= 0)
			usleep(10000);
	}
	assert_int_equal(still, 20);
	shutdown(fd, SHUT_WR);
	seen = stage_read_all(server, got, sizeof(got), &reset);
	assert_int_equal(seen, sent);
	assert_false(reset);
	close(fd);
	close(server);
}

static void
W36_B034_heads_that_trickle_hold_nobody_up(void **state)
{
	enum { N = 40 };
	int fd[N], honest, server;
	int64_t began = stage_now_ms();
	bool reset;

	(void)state;
	for (int i = 0; i < N; i++)
		fd[i] = stage_connect(WANTED, i % 2 ? 80 : 3128);
	for (int k = 0; k < 10; k++) {
		for (int i = 0; i < N; i++)
			(void)!send(fd[i], &"GET / HTTP"[k], 1, MSG_NOSIGNAL);
		usleep(40000);
	}
	honest = stage_connect(WANTED, 80);
	say(honest, "GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n");
	server = stage_accept(web);
	assert_true(server >= 0);
	close(server);
	close(honest);
	for (int i = 0; i < N; i++) {
		stage_read_all(fd[i], got, sizeof(got), &reset);
		assert_memory_equal(got, "HTTP/1.1 408", 12);
		close(fd[i]);
	}
	assert_true(stage_now_ms() - began < 2500);
}

static void
W37_kept_requests_share_one_connection(void **state)
{
	int fd = stage_connect(WANTED, 3128), server = -1;

	(void)state;
	for (int i = 0; i < 30; i++) {
		say(fd, "GET http://allowed.test/ HTTP/1.1\r\n"
		    "Host: allowed.test\r\n\r\n");
		if (server < 0)
			server = stage_accept(web);
		assert_true(server >= 0);
		stage_read_head(server, got, sizeof(got));
		say(server, "HTTP/1.1 204 No Content\r\n\r\n");
		stage_read_head(fd, got, sizeof(got));
	}
	assert_int_equal(stage_accept(web), -1);	/* no second one */
	close(fd);
	assert_int_equal(recv(server, got, 1, 0), 0);	/* nor one left */
	close(server);
}

/* One end, no more, and what is known stands in it. */
static void
ended(const char *name, enum reason why)
{
	const struct record *r = stage_record(RECORD_END);

	assert_int_equal(r->reason, why);
	assert_true(r->client.port != 0);
	assert_int_equal(r->original.port, 443);
	if (!span_eq(record_get(r, TEXT_NAME), span_str(name)))
		fail_msg("no %s in the end by %s", name, reason_word(why));
	assert_true(stage_no_record(RECORD_END));
}

static void
B083_every_connection_ends_in_one_record(void **state)
{
	size_t n;
	int fd, server;

	(void)state;
	close(stage_connect(WANTED, 443));
	ended("", REASON_HELLO_INCOMPLETE);
	fd = stage_connect(WANTED, 443);
	n = stage_hello("second.test", hello, sizeof(hello));
	stage_send(fd, hello, n / 2);
	close(fd);
	ended("", REASON_HELLO_INCOMPLETE);
	fd = stage_connect(WANTED, 443);	/* no resolver answers */
	stage_send(fd, hello, n);
	ended("second.test", REASON_DNS_TIMEOUT);
	close(fd);
	stage_pin("second.test", "203.0.113.30");
	fd = stage_connect(WANTED, 443);
	stage_send(fd, hello, n);
	ended("second.test", REASON_CONNECT_REFUSED);
	close(fd);
	n = stage_hello("denied.test", hello, sizeof(hello));
	fd = stage_connect(WANTED, 443);
	stage_send(fd, hello, n);
	shutdown(fd, SHUT_WR);
	ended("denied.test", REASON_RULE_DENY);
	close(fd);
	fd = opened(&server);
	stage_send(fd, "part", 4);
	stage_expect(server, "part", 4);
	reset_by(fd);
	ended("allowed.test", REASON_NONE);
	close(server);
	fd = opened(&server);
	ended("allowed.test", REASON_IDLE);
	close(fd);
	close(server);
}

static void
N23_slow_is_not_idle_and_the_way_up_is_kept_alive(void **state)
{
	int server, fd = opened(&server), on = 0, idle = 0, legs = 0;
	struct sockaddr_in peer;
	socklen_t len;

	(void)state;
	for (int i = 0; i < 8; i++) {	/* 2.4 s, the limit is 1.5 s */
		usleep(300000);
		stage_send(i % 2 ? fd : server, "x", 1);
		stage_expect(i % 2 ? server : fd, "x", 1);
	}
	for (int i = 3; i < 1024; i++) {
		len = sizeof(peer);
		if (getpeername(i, (struct sockaddr *)&peer, &len) < 0 ||
		    peer.sin_addr.s_addr != htonl(0xcb007101) ||
		    peer.sin_port != htons(443))
			continue;
		len = sizeof(on);
		getsockopt(i, SOL_SOCKET, SO_KEEPALIVE, &on, &len);
		getsockopt(i, IPPROTO_TCP, TCP_KEEPIDLE, &idle, &len);
		assert_int_equal(on, 1);
		assert_true(idle <= 60);
		legs++;
	}
	assert_int_equal(legs, 1);
	close(fd);
	close(server);
}

static void
N26_everything_works_above_descriptor_1023(void **state)
{
	static int fill[1100];
	struct rlimit old, more;
	int n = 0, fd, server;

	(void)state;
	getrlimit(RLIMIT_NOFILE, &old);
	more = old;
	more.rlim_cur = more.rlim_max < 4096 ? more.rlim_max : 4096;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &more), 0);
	while (n < 1100 && (n == 0 || fill[n - 1] < 1040))
		fill[n++] = open("/dev/null", O_RDONLY | O_CLOEXEC);
	up(NULL);
	fd = opened(&server);
	assert_true(fd > 1023 && server > 1023);
	say(fd, "up");
	stage_expect(server, "up", 2);
	close(fd);
	close(server);
	fd = stage_connect(WANTED, 3128);	/* asks the resolver */
	say(fd, "CONNECT second.test:443 HTTP/1.1\r\n"
	    "Host: second.test:443\r\n\r\n");
	stage_read_head(fd, got, sizeof(got));
	assert_memory_equal(got, "HTTP/1.1 504", 12);
	close(fd);
	down(NULL);
	while (n > 0)
		close(fill[--n]);
	setrlimit(RLIMIT_NOFILE, &old);
}

enum { PIECES = 100 };

static void *
answer_pieces(void *arg)
{
	const int *server = arg;
	char piece[512] = { 0 };

	for (int i = 0; i < PIECES; i++)
		if (recv(*server, piece, 200, MSG_WAITALL) != 200 ||
		    send(*server, piece, 512, MSG_NOSIGNAL) != 512 ||
		    send(*server, piece, 512, MSG_NOSIGNAL) != 512)
			break;
	return NULL;
}

static void
N28_small_pieces_are_not_held_back(void **state)
{
	static char piece[512];
	int server, fd = opened(&server), one = 1;
	int64_t began;
	pthread_t t;

	(void)state;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	assert_int_equal(pthread_create(&t, NULL, answer_pieces, &server), 0);
	began = stage_now_ms();
	for (int i = 0; i < PIECES; i++) {
		stage_send(fd, piece, 100);
		stage_send(fd, piece, 100);
		stage_expect(fd, piece, 512);
		stage_expect(fd, piece, 512);
	}
	/* held: 40 each */
	assert_true(stage_now_ms() - began < 20 * PIECES);
	pthread_join(t, NULL);
	close(fd);
	close(server);
}

static void
N38_the_longest_refusal_is_a_record_too(void **state)
{
	static const size_t sizes[] = { 200, 900, 1100, 4000, 7000, 20000 };
	static char ask[32768], line[RECORD_JSON_MAX_BYTES];
	const struct record *r;
	struct span path;
	bool reset;
	size_t n;
	int fd;

	(void)state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		n = (size_t)sprintf(ask, "GET /");
		memset(ask + n, 'a' + (int)i, sizes[i]);
		n += sizes[i];
		n += (size_t)sprintf(ask + n, " HTTP/1.1\r\n"
		    "Host: denied.test\r\n\r\n");
		fd = stage_connect(WANTED, 80);
		(void)!send(fd, ask, n, MSG_NOSIGNAL);
		if (sizes[i] < 8000) {
			stage_read_all(fd, got, sizeof(got), &reset);
			assert_memory_equal(got, "HTTP/1.1 403", 12);
		}
		r = stage_record(RECORD_DECISION);
		close(fd);
		assert_int_equal(r->verdict, VERDICT_DENY);
		assert_int_equal(r->reason, sizes[i] < 8000 ?
		    REASON_RULE_DENY : REASON_HEAD_TOO_LARGE);
		path = record_get(r, TEXT_PATH);
		assert_true(path.len <= RECORD_TEXT_MAX_BYTES);
		if (sizes[i] > 255 && sizes[i] < 8000)
			assert_int_equal(path.data[path.len - 1], '~');
		n = record_json(r, 1, "i", line);
		assert_true(n < sizeof(line));
		for (size_t k = 0; k + 1 < n; k++)
			assert_true(line[k] >= 0x20 && line[k] < 0x7f);
		assert_true(stage_no_record(RECORD_DECISION));
	}
}

/* What the other end has taken of what was sent. */
static size_t
taken(int fd, size_t sent)
{
	int left = 0;

	usleep(200000);
	assert_int_equal(ioctl(fd, SIOCOUTQ, &left), 0);
	return sent - (size_t)left;
}

static void
take_little(int fd)
{
	const int few = 4096;

	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &few, sizeof(few));
}

/* As much as goes. */
static size_t
stuff(int fd, size_t max)
{
	static char block[60000];
	size_t sent = 0;

	for (int still = 0; still < 20 && sent < max; still++) {
		ssize_t n = send(fd, block, sizeof(block), MSG_DONTWAIT);

		if (n > 0) {
			sent += (size_t)n;
			still = 0;
		} else {
			usleep(10000);
		}
	}
	return sent;
}

/* Not at first, nor the last of it at once, but later than linger_timeout; and
 * then the reset. */
static void
reads_late(int fd, size_t len)
{
	static char bite[4096];
	size_t n = 0;
	bool reset;

	usleep(700000);
	for (size_t left = 32768; left > 4096; left /= 2) {
		while (n + left < len) {
			ssize_t k = recv(fd, bite, sizeof(bite), 0);

			if (k <= 0)
				fail_msg("%zu of %zu bytes", n, len);
			n += (size_t)k;
		}
		usleep(300000);
	}
	n += stage_read_all(fd, got, sizeof(got), &reset);
	assert_int_equal(n, len);
	assert_true(reset);
}

static void
lost(size_t up_bytes, size_t down_bytes)
{
	const struct record *r = stage_record(RECORD_END);

	assert_int_equal(r->lost_up, up_bytes);
	assert_int_equal(r->lost_down, down_bytes);
}

static int
late_client(uint16_t port)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
	    .sin_port = htons(port), .sin_addr.s_addr = htonl(0xcb007109) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	take_little(fd);
	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	return fd;
}

static void
what_came_before_a_servers_reset_is_waited_for(void **state)
{
	int fd, server, lfd = stage_listen(ORIGIN, 22);
	size_t n;

	(void)state;
	stage_pin("git.test", ORIGIN);
	for (size_t big = 60000; big < 8u << 20; big *= 100) {
		fd = late_client(3128);
		say(fd, "CONNECT git.test:22 HTTP/1.1\r\n"
		    "Host: git.test:22\r\n\r\nSSH-2.0-a\r\n");
		stage_read_head(fd, got, sizeof(got));
		server = stage_accept(lfd);
		assert_true(server >= 0);
		stage_expect(server, "SSH-2.0-a\r\n", 11);
		n = taken(server, stuff(server, big));
		reset_by(server);
		reads_late(fd, n);
		close(fd);
		lost(0, 0);
	}
	close(lfd);
	fd = late_client(80);
	say(fd, "GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n");
	server = stage_accept(web);
	assert_true(server >= 0);
	stage_read_head(server, got, sizeof(got));
	say(server, "HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n");
	stage_read_head(fd, got, sizeof(got));
	n = taken(server, stuff(server, 60000));
	assert_int_equal(n, 60000);
	reset_by(server);
	reads_late(fd, n);
	close(fd);
	lost(0, 0);
}

static void
what_came_before_a_clients_reset_is_waited_for(void **state)
{
	int fd, server;
	size_t n;

	(void)state;
	take_little(origin);
	take_little(web);
	fd = opened(&server);
	n = taken(fd, stuff(fd, 60000));
	reset_by(fd);
	reads_late(server, n);
	close(server);
	lost(0, 0);
	/* it takes no answer */
	fd = stage_connect(WANTED, 80);
	say(fd, "POST / HTTP/1.1\r\nHost: allowed.test\r\n"
	    "Content-Length: 99999999\r\n\r\n");
	server = stage_accept(web);
	assert_true(server >= 0);
	stage_read_head(server, got, sizeof(got));
	n = taken(fd, stuff(fd, 32 << 20));
	reset_by(fd);
	say(server, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n");
	reads_late(server, n);
	close(server);
	lost(0, 0);
}

static void
first_bytes_before_a_reset_are_judged_and_go_up(void **state)
{
	int lfd = stage_listen(ORIGIN, 22), fd, server;
	bool reset;

	(void)state;
	stage_pin("git.test", ORIGIN);
	fd = stage_connect(WANTED, 3128);
	say(fd, "CONNECT git.test:22 HTTP/1.1\r\nHost: git.test:22\r\n\r\n");
	stage_read_head(fd, got, sizeof(got));
	server = stage_accept(lfd);
	assert_true(server >= 0);
	stage_hold();
	say(fd, "SSH-2.0-a\r\nmore");
	reset_by(fd);
	assert_int_equal(stage_read_all(server, got, sizeof(got), &reset), 15);
	assert_true(reset);
	assert_string_equal(got, "SSH-2.0-a\r\nmore");
	assert_int_equal(stage_record(RECORD_END)->how, HOW_RESET_CLIENT);
	close(server);
	close(lfd);
}

/* A reader that takes nothing is waited for as an idle one, and no longer
 * than the policy allows what it would read. */
static void
what_is_given_up_is_told(void **state)
{
	const struct record *r;
	int fd, server;
	bool reset;
	size_t n;

	(void)state;
	for (int forbidden = 0; forbidden < 2; forbidden++) {
		size_t len = stage_hello("allowed.test", hello, sizeof(hello));

		fd = late_client(443);
		stage_send(fd, hello, len);
		server = stage_accept(origin);
		assert_true(server >= 0);
		stage_expect(server, hello, len);
		n = taken(server, stuff(server, 60000));
		reset_by(server);
		usleep(50000);
		if (forbidden)
			stage_policy("version: 1\nnetwork:\n"
			    "  resolvers: [198.18.0.53]\n  rule:\n    - {verdict: "
			    "allow, hostname: second.test}\n");
		r = stage_record(RECORD_END);
		assert_int_equal(r->how, forbidden ? HOW_CUT :
		    HOW_RESET_UPSTREAM);
		assert_int_equal(r->reason, forbidden ?
		    REASON_POLICY_CHANGED : REASON_IDLE);
		assert_int_equal(r->lost_up, 0);
		assert_true(r->lost_down > 0);
		/* what was on its way is not known to have come */
		assert_in_range(stage_read_all(fd, got, sizeof(got), &reset),
		    n - r->lost_down, n);
		assert_true(reset);
		close(fd);
	}
}

/* By its own length, as soon as that is there. */
static void
a_hello_is_no_larger_than_the_limit(void **state)
{
	struct proxy_limits l = stage_limits;
	size_t n = stage_hello("allowed.test", hello, sizeof(hello));
	bool reset;

	for (int i = 0; i < 2; i++) {
		int fd, server;

		down(state);
		l.hello_bytes = n - 9 - (size_t)i;
		limits = &l;
		up(state);
		limits = NULL;
		fd = stage_connect(WANTED, 443);
		stage_send(fd, hello, i == 0 ? n : 9);
		server = stage_accept(origin);
		if (i == 0) {
			assert_true(server >= 0);
			stage_expect(server, hello, n);
		} else {
			assert_int_equal(server, -1);
			assert_int_equal(stage_record(RECORD_DECISION)->reason,
			    REASON_HELLO_TOO_LARGE);
			stage_read_all(fd, got, sizeof(got), &reset);
			assert_int_equal(got[0], 0x15);
		}
		close(fd);
		close(server);
	}
}

#define T(f) cmocka_unit_test_setup_teardown(f, up, down)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		T(B026_the_server_may_end_its_half_first),
		T(B026_a_fin_never_overtakes_what_was_sent),
		T(B029_a_whole_answer_is_whole_whatever_follows),
		T(B031_an_upload_to_a_slow_server_is_held_back),
		T(W36_B034_heads_that_trickle_hold_nobody_up),
		T(W37_kept_requests_share_one_connection),
		T(B083_every_connection_ends_in_one_record),
		T(N23_slow_is_not_idle_and_the_way_up_is_kept_alive),
		cmocka_unit_test(N26_everything_works_above_descriptor_1023),
		cmocka_unit_test_setup_teardown(
		    what_came_before_a_servers_reset_is_waited_for,
		    up_hasty, down),
		cmocka_unit_test_setup_teardown(
		    what_came_before_a_clients_reset_is_waited_for,
		    up_hasty, down),
		T(first_bytes_before_a_reset_are_judged_and_go_up),
		T(what_is_given_up_is_told),
		T(a_hello_is_no_larger_than_the_limit),
		T(N28_small_pieces_are_not_held_back),
		T(N38_the_longest_refusal_is_a_record_too),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
