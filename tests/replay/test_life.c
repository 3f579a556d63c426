/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/replay/stage.h"

#include <errno.h>
#include <malloc.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define ALLOWS_FULL "version: 1\nnetwork:\n  resolvers: [198.18.0.53]\n" \
	"  lab: [203.0.113.0/24]\n  rule:\n" \
	"    - {verdict: allow, hostname: allowed.test}\n" \
	"    - {verdict: allow, hostname: second.test}\n" \
	"    - {verdict: allow, hostname: full.test}\n"

#define WATCHED_BYTES 3584u

static uint8_t hello[1024];
static char got[4096];

static int
opened(int origin, int *server)
{
	static const uint8_t flight[] = { 22, 3, 3, 0, 7, 2, 0, 0, 3, 3, 3,
	    0 };
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
B032_W35_tunnels_hold_their_places(void **state)
{
	struct proxy_limits l = stage_limits;
	int fd[10], server[10], origin, more;
	bool reset;

	(void)state;
	l.per_client = 10;
	stage_up(NULL, &l);
	origin = stage_listen(ORIGIN, 443);
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 10; i++)
			fd[i] = opened(origin, &server[i]);
		more = stage_connect(WANTED, 443);
		stage_read_all(more, got, sizeof(got), &reset);
		assert_true(reset);
		close(more);
		more = stage_connect(WANTED, 3128);
		stage_read_all(more, got, sizeof(got), &reset);
		assert_memory_equal(got, "HTTP/1.1 503", 12);
		close(more);
		for (int i = 0; i < 10; i++) {
			close(i % 2 ? fd[i] : server[i]);
			close(i % 2 ? server[i] : fd[i]);
		}
		usleep(100000);
	}
	close(origin);
	stage_down();
}

static void
B028_W34_without_descriptors_accepting_pauses(void **state)
{
	struct rlimit old, few;
	int fd[40], n = 0, origin, server;
	struct timespec a, b;

	(void)state;
	stage_up(NULL, NULL);
	origin = stage_listen(ORIGIN, 443);
	for (; n < 40; n++)	/* made before the limit: they stay */
		fd[n] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	getrlimit(RLIMIT_NOFILE, &old);
	few = old;
	few.rlim_cur = (rlim_t)fd[39] + 4;
	setrlimit(RLIMIT_NOFILE, &few);
	for (int i = 0; i < 40; i++) {
		struct sockaddr_in sin = { .sin_family = AF_INET,
		    .sin_port = htons(443) };
		struct endpoint e;
		struct sockaddr_storage ss;

		assert_true(addr_parse(&e.addr, span_str(WANTED)));
		e.port = 443;
		endpoint_to_sockaddr(&e, &ss);
		memcpy(&sin, &ss, sizeof(sin));
		assert_int_equal(connect(fd[i], (struct sockaddr *)&sin,
		    sizeof(sin)), 0);
	}
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
	usleep(500000);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
	assert_true((b.tv_sec - a.tv_sec) * 1000 +
	    (b.tv_nsec - a.tv_nsec) / 1000000 < 100);
	for (int i = 0; i < 40; i++)
		close(fd[i]);
	setrlimit(RLIMIT_NOFILE, &old);
	usleep(300000);
	fd[0] = opened(origin, &server);
	close(fd[0]);
	close(server);
	close(origin);
	stage_down();
}

static int64_t
cpu_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* Until the kernel takes no more. */
static void
stuff(int fd)
{
	static const uint8_t some[65536];
	struct pollfd p = { .fd = fd, .events = POLLOUT };

	while (poll(&p, 1, 100) == 1 && send(fd, some, sizeof(some),
	    MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
		continue;
}

/* Whatever is waited for: half a hello, half a head, a server's first flight
 * with the client's bytes behind a full gate, a reader that does not read, the
 * other end of a half-closed tunnel, an answer, a refused client that stays. */
static void
who_waits_costs_nothing(void **state)
{
	int origin, web, fd[7], server[3];
	bool reset;
	size_t n;
	int64_t before;

	(void)state;
	stage_up(NULL, NULL);
	origin = stage_listen(ORIGIN, 443);
	web = stage_listen(ORIGIN, 80);
	n = stage_hello("allowed.test", hello, sizeof(hello));
	fd[0] = stage_connect(WANTED, 443);
	stage_send(fd[0], hello, n / 2);
	fd[1] = stage_connect(WANTED, 3128);
	say(fd[1], "CONNECT allowed.te");
	fd[2] = stage_connect(WANTED, 443);
	stage_send(fd[2], hello, n);
	server[0] = stage_accept(origin);
	stuff(fd[2]);
	fd[3] = opened(origin, &server[1]);
	stuff(fd[3]);
	fd[4] = opened(origin, &server[2]);
	shutdown(fd[4], SHUT_WR);
	fd[5] = stage_connect(WANTED, 80);
	say(fd[5], "GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n");
	assert_true(stage_accept(web) >= 0);
	fd[6] = stage_connect(WANTED, 3128);
	say(fd[6], "CONNECT denied.test:443 HTTP/1.1\r\n"
	    "Host: denied.test:443\r\n\r\n");
	stage_read_all(fd[6], got, sizeof(got), &reset);
	usleep(100000);
	before = cpu_ms();
	usleep(300000);
	assert_true(cpu_ms() - before < 100);
	for (int i = 0; i < 7; i++)
		close(fd[i]);
	close(origin);
	close(web);
	stage_down();
}

/* A read stops short of urgent data; nothing makes an edge behind it. */
static void
urgent_data_does_not_hold_what_follows(void **state)
{
	int origin, server, fd, back;

	(void)state;
	stage_up(NULL, NULL);
	origin = stage_listen(ORIGIN, 443);
	for (unsigned round = 0; round < 20; round++) {
		fd = opened(origin, &server);
		for (back = 0; back < 2; back++) {
			int from = back ? server : fd;
			int to = back ? fd : server;

			stage_send(from, "abc", 3);
			assert_int_equal(send(from, "!", 1, MSG_OOB), 1);
			stage_send(from, "def", 3);
			stage_expect(to, "abcdef", 6);
		}
		close(fd);
		close(server);
	}
	close(origin);
	stage_down();
}

/* So many of them, and no more. */
static void
ends(unsigned n)
{
	while (n-- > 0)
		(void)stage_record(RECORD_END);
	assert_true(stage_no_record(RECORD_END));
}

/* Pairs whose two ends become ready in the same turn, in every order, while
 * descriptors are used again at once. */
static void
N25_no_byte_reaches_another_connection(void **state)
{
	enum { PAIRS = 16, ROUNDS = 30 };
	int fd[PAIRS], server[PAIRS], origin;
	unsigned seed = 7, seen = 0;
	struct linger now = { 1, 0 };

	(void)state;
	print_message("seed %u\n", seed);
	stage_up(NULL, NULL);
	origin = stage_listen(ORIGIN, 443);
	for (int r = 0; r < ROUNDS; r++) {
		for (int i = 0; i < PAIRS; i++)
			fd[i] = opened(origin, &server[i]);
		for (int i = 0; i < PAIRS; i++) {
			unsigned what = (unsigned)rand_r(&seed) % 4;
			uint32_t tag = (uint32_t)(r * PAIRS + i);

			(void)!send(server[i], &tag, 4, MSG_NOSIGNAL);
			(void)!send(fd[i], &tag, 4, MSG_NOSIGNAL);
			if (what & 1)
				setsockopt(fd[i], SOL_SOCKET, SO_LINGER, &now,
				    sizeof(now));
			if (what & 2)
				setsockopt(server[i], SOL_SOCKET, SO_LINGER,
				    &now, sizeof(now));
			if (what == 3) {
				close(fd[i]);
				fd[i] = -1;
			} else {
				shutdown(fd[i], SHUT_WR);
			}
		}
		for (int i = 0; i < PAIRS; i++) {
			uint32_t tag = 0, want = (uint32_t)(r * PAIRS + i);
			ssize_t n = recv(server[i], &tag, 4, 0);

			if (n == 4)
				assert_int_equal(tag, want);
			seen += n == 4;
			close(server[i]);
			if (fd[i] >= 0)
				close(fd[i]);
		}
		ends(PAIRS);
	}
	/* who was reset may have lost its own, a quarter of them */
	assert_true(seen >= PAIRS * ROUNDS / 2);
	close(origin);
	stage_down();
}

static void
B032_an_idle_tunnel_costs_little_memory(void **state)
{
	enum { N = 300 };
	static int fd[N], server[N];
	struct proxy_limits l = stage_limits;
	size_t before, after;
	int origin;

	(void)state;
	l.idle_ms = 60000;
	stage_up(NULL, &l);
	origin = stage_listen(ORIGIN, 443);
	fd[0] = opened(origin, &server[0]);
	usleep(50000);
	before = mallinfo2().uordblks;
	for (int i = 1; i < N; i++)
		fd[i] = opened(origin, &server[i]);
	usleep(50000);
	after = mallinfo2().uordblks;
	print_message("%zu bytes for each idle tunnel\n",
	    (after - before) / (N - 1));
#ifndef __SANITIZE_ADDRESS__
	assert_true((after - before) / (N - 1) <= 768);
#endif
	for (int i = 0; i < N; i++) {
		close(fd[i]);
		close(server[i]);
	}
	usleep(200000);
	close(origin);
	stage_down();
}

/* A flow of another protocol; its last byte may begin a hello. */
static int
watched(int lfd, int *server, const char *says)
{
	static const char ask[] = "CONNECT git.test:22 HTTP/1.1\r\n"
	    "Host: git.test:22\r\n\r\n";
	int fd = stage_connect(WANTED, 3128);

	say(fd, ask);
	stage_read_head(fd, got, sizeof(got));
	assert_memory_equal(got, "HTTP/1.1 200", 12);
	*server = stage_accept(lfd);
	assert_true(*server >= 0);
	say(fd, says);
	stage_expect(*server, says, strlen(says));
	return fd;
}

/* What waits to be told from a hello is a few bytes, and holds a few; that it
 * is looked at is what remains of the opening. */
static void
an_idle_watched_tunnel_holds_no_buffer(void **state)
{
	static const char *const says[] = { "SSH-2.0-a\r\n",
	    "SSH-2.0-a\r\n\x16", "SSH-2.0-a\r\n\x16\3\1" };
	enum { N = 200 };
	static int fd[N], server[N];
	struct proxy_limits l = stage_limits;
	size_t before, after;
	int lfd;

	(void)state;
	l.idle_ms = 60000;
	stage_up(NULL, &l);
	stage_pin("git.test", ORIGIN);
	lfd = stage_listen(ORIGIN, 22);
	for (size_t k = 0; k < sizeof(says) / sizeof(says[0]); k++) {
		fd[0] = watched(lfd, &server[0], says[k]);
		usleep(50000);
		before = mallinfo2().uordblks;
		for (int i = 1; i < N; i++)
			fd[i] = watched(lfd, &server[i], says[k]);
		usleep(50000);
		after = mallinfo2().uordblks;
		print_message("%zu bytes for each watched tunnel\n",
		    (after - before) / (N - 1));
#ifndef __SANITIZE_ADDRESS__
		assert_true((after - before) / (N - 1) <= WATCHED_BYTES);
#endif
		for (int i = 0; i < N; i++) {
			close(fd[i]);
			close(server[i]);
		}
		usleep(200000);
	}
	close(lfd);
	stage_down();
}

static void
a_client_that_says_nothing_is_refused_in_time(void **state)
{
	int fd;
	bool reset;

	(void)state;
	stage_up(NULL, NULL);
	fd = stage_connect(WANTED, 443);
	stage_read_all(fd, got, sizeof(got), &reset);
	assert_int_equal(stage_record(RECORD_DECISION)->reason,
	    REASON_HELLO_TIMEOUT);
	close(fd);
	stage_down();
}

static void
a_name_without_a_resolver_is_told(void **state)
{
	static const char ask[] = "GET http://second.test/ HTTP/1.1\r\n"
	    "Host: second.test\r\n\r\n";
	int fd;
	bool reset;

	(void)state;
	stage_up(NULL, NULL);
	fd = stage_connect(WANTED, 3128);
	stage_send(fd, ask, sizeof(ask) - 1);
	stage_read_all(fd, got, sizeof(got), &reset);
	assert_memory_equal(got, "HTTP/1.1 504", 12);
	assert_int_equal(stage_record(RECORD_DECISION)->reason,
	    REASON_DNS_TIMEOUT);
	close(fd);
	stage_down();
}

/* Never a bare hang: what the kernel would complete is answered. */
static void
who_comes_in_a_drain_is_refused_at_once(void **state)
{
	static const char ask[] = "GET http://allowed.test/ HTTP/1.1\r\n"
	    "Host: allowed.test\r\n\r\n";
	int origin, server, fd, more, silent;
	int64_t began;
	bool reset;
	size_t n;

	(void)state;
	stage_up(NULL, NULL);
	origin = stage_listen(ORIGIN, 443);
	fd = opened(origin, &server);
	(void)stage_record(RECORD_DECISION);
	stage_drain();
	began = stage_now_ms();
	more = stage_connect(WANTED, 443);
	n = stage_hello("allowed.test", hello, sizeof(hello));
	stage_send(more, hello, n);
	n = stage_read_all(more, got, sizeof(got), &reset);
	assert_int_equal(n, 7);
	assert_int_equal(got[0], 21);	/* an alert */
	assert_int_equal(stage_record(RECORD_DECISION)->reason,
	    REASON_DRAINING);
	close(more);
	more = stage_connect(WANTED, 3128);
	stage_send(more, ask, sizeof(ask) - 1);
	stage_read_all(more, got, sizeof(got), &reset);
	assert_memory_equal(got, "HTTP/1.1 503", 12);
	assert_non_null(strstr(got, "draining"));
	assert_int_equal(stage_record(RECORD_DECISION)->reason,
	    REASON_DRAINING);
	close(more);
	assert_true(stage_now_ms() - began < 1000);
	assert_int_equal(stage_accept(origin), -1);
	/* what was open goes on, and who says nothing holds up nobody */
	silent = stage_connect(WANTED, 3128);
	stage_send(fd, "abc", 3);
	stage_expect(server, "abc", 3);
	assert_false(stage_drained());
	close(fd);
	close(server);
	for (int i = 0; i < 50 && !stage_drained(); i++)
		usleep(10000);
	assert_true(stage_drained());
	stage_stop();
	stage_read_all(silent, got, sizeof(got), &reset);
	assert_memory_equal(got, "HTTP/1.1 503", 12);
	close(silent);
	close(origin);
	stage_down();
}

static void
is_cut_idle(int64_t began, int least_ms)
{
	const struct record *r = stage_record(RECORD_END);
	int64_t ms = stage_now_ms() - began;

	assert_int_equal(r->how, HOW_CUT);
	assert_int_equal(r->reason, REASON_IDLE);
	assert_in_range(ms, least_ms, 2000);
}

static int
half_closed_stage(void)
{
	struct proxy_limits l = stage_limits;

	l.idle_ms = 20000;
	l.half_closed_ms = 400;
	stage_up(NULL, &l);
	return stage_listen(ORIGIN, 443);
}

/* Whichever side it is, at whatever time it ends. */
static void
who_has_left_keeps_no_place_where_the_other_is_silent(void **state)
{
	int origin = half_closed_stage(), fd, server;
	int64_t began;
	size_t n;

	(void)state;
	for (int i = 0; i < 4; i++) {
		fd = opened(origin, &server);
		/* a silence before the end counts for nothing */
		usleep(i < 2 ? 0 : 600000);
		began = stage_now_ms();
		if (i % 2)
			close(fd);
		else
			shutdown(server, SHUT_WR);
		is_cut_idle(began, 350);
		close(server);
		if (i % 2 == 0)
			close(fd);
	}
	/* behind a gate that waits for the server */
	n = stage_hello("allowed.test", hello, sizeof(hello));
	fd = stage_connect(WANTED, 443);
	stage_send(fd, hello, n);
	stage_send(fd, "\x17\3\3\0\1x", 6);
	server = stage_accept(origin);
	stage_expect(server, hello, n);
	began = stage_now_ms();
	close(fd);
	is_cut_idle(began, 350);
	close(server);
	close(origin);
	stage_down();
}

/* What flows to the one that has ended, and what waits for a slow reader. */
static void
half_closed_is_no_end(void **state)
{
	static const uint8_t big[200000];
	const int little = 4096;
	int origin = half_closed_stage(), fd, server;
	bool reset;

	(void)state;
	fd = opened(origin, &server);
	shutdown(fd, SHUT_WR);
	for (int i = 0; i < 8; i++) {
		usleep(200000);
		say(server, "abc");
		stage_expect(fd, "abc", 3);
	}
	close(server);
	assert_int_equal(recv(fd, got, 1, 0), 0);
	close(fd);
	assert_int_equal(stage_record(RECORD_END)->how, HOW_FIN);
	for (int ended = 0; ended < 2; ended++) {
		fd = opened(origin, &server);
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &little,
		    sizeof(little));
		stage_send(server, big, sizeof(big));
		shutdown(ended ? fd : server, SHUT_WR);
		usleep(1200000);
		assert_true(stage_no_record(RECORD_END));
		shutdown(server, SHUT_WR);
		assert_int_equal(stage_read_all(fd, got, sizeof(got),
		    &reset), sizeof(big));
		assert_false(reset);
		close(fd);
		close(server);
		assert_int_equal(stage_record(RECORD_END)->how, HOW_FIN);
	}
	close(origin);
	stage_down();
}

/* Between two requests an end is one. */
static void
a_client_that_leaves_between_requests_is_gone_at_once(void **state)
{
	int web, fd, server;
	int64_t began;

	(void)state;
	stage_up(NULL, NULL);
	web = stage_listen(ORIGIN, 80);
	fd = stage_connect(WANTED, 80);
	say(fd, "GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n");
	server = stage_accept(web);
	stage_read_head(server, got, sizeof(got));
	say(server, "HTTP/1.1 204 No Content\r\n\r\n");
	stage_read_head(fd, got, sizeof(got));
	began = stage_now_ms();
	shutdown(fd, SHUT_WR);
	assert_int_equal(recv(fd, got, 1, 0), 0);
	assert_int_equal(recv(server, got, 1, 0), 0);
	assert_true(stage_now_ms() - began < 300);
	close(fd);
	close(server);
	close(web);
	stage_down();
}

/* Begun, and nothing said of it, when the time of a drain is over. */
static int
unanswered(unsigned kind)
{
	int fd = stage_connect(WANTED, kind < 2 ? 443 : 3128);
	size_t n = stage_hello("allowed.test", hello, sizeof(hello));

	switch (kind) {
	case 1:		/* half a hello */
		stage_send(fd, hello, n / 2);
		break;
	case 2:		/* half a head */
		say(fd, "CONNECT allowed.test:443 HTTP/1.1\r\nHost: al");
		break;
	case 3:		/* a name that is being looked up */
		say(fd, "GET http://second.test/ HTTP/1.1\r\n"
		    "Host: second.test\r\n\r\n");
		break;
	case 4:		/* one that is dialled */
		say(fd, "CONNECT full.test:443 HTTP/1.1\r\n"
		    "Host: full.test:443\r\n\r\n");
		break;
	}
	return fd;
}

static void
is_told_of_the_drain(int fd, unsigned kind)
{
	const struct record *r;
	bool reset;

	stage_read_all(fd, got, sizeof(got), &reset);
	close(fd);
	if (kind == 0)
		assert_true(reset);
	else if (kind == 1)
		assert_int_equal(got[0], 21);	/* an alert */
	else
		assert_memory_equal(got, "HTTP/1.1 503", 12);
	do
		r = stage_record(RECORD_DECISION);
	while (r->verdict == VERDICT_ALLOW);
	assert_int_equal(r->reason, REASON_DRAINING);
}

/* Listens, and has room for one that nobody accepts. */
static int
full_server(const char *addr, int *filler)
{
	int fd = stage_listen(addr, 443);

	assert_int_equal(listen(fd, 0), 0);
	*filler = stage_connect(addr, 443);
	return fd;
}

static void
who_has_no_answer_gets_one_when_a_drain_is_over(void **state)
{
	struct proxy_limits l = stage_limits;
	int fd, full, filler;

	(void)state;
	l.hello_ms = l.resolve_ms = l.connect_ms = 10000;
	for (unsigned kind = 0; kind < 5; kind++) {
		stage_up(ALLOWS_FULL, &l);
		full = full_server("203.0.113.40", &filler);
		stage_pin("full.test", "203.0.113.40");
		fd = unanswered(kind);
		usleep(50000);
		stage_drain();
		usleep(50000);
		assert_false(stage_drained());
		stage_stop();
		is_told_of_the_drain(fd, kind);
		close(full);
		close(filler);
		stage_down();
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(B032_W35_tunnels_hold_their_places),
		cmocka_unit_test(
		    B028_W34_without_descriptors_accepting_pauses),
		cmocka_unit_test(who_waits_costs_nothing),
		cmocka_unit_test(urgent_data_does_not_hold_what_follows),
		cmocka_unit_test(N25_no_byte_reaches_another_connection),
		cmocka_unit_test(B032_an_idle_tunnel_costs_little_memory),
		cmocka_unit_test(an_idle_watched_tunnel_holds_no_buffer),
		cmocka_unit_test(a_client_that_says_nothing_is_refused_in_time),
		cmocka_unit_test(a_name_without_a_resolver_is_told),
		cmocka_unit_test(
		    who_has_left_keeps_no_place_where_the_other_is_silent),
		cmocka_unit_test(half_closed_is_no_end),
		cmocka_unit_test(
		    a_client_that_leaves_between_requests_is_gone_at_once),
		cmocka_unit_test(who_comes_in_a_drain_is_refused_at_once),
		cmocka_unit_test(
		    who_has_no_answer_gets_one_when_a_drain_is_over),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
