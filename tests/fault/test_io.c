/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine while its system calls are interrupted, cut short or refused.
 * The program is linked with --wrap; only the engine's thread is touched.
 */
#include "tests/replay/stage.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static _Thread_local bool ours;	/* a thread of the test */
static atomic_uint calls, interrupt_each, cut_to;
static atomic_int no_socket, no_accept;	/* the errno; 0: none */
static atomic_int no_connect, no_pipe, no_shutdown;
static atomic_uint accepts_to_fail;
static atomic_uint fail_each;	/* with those three: of each so many calls
				 * the last; 0: every one */
static atomic_uint failures, wins;

ssize_t __real_recv(int fd, void *data, size_t n, int flags);
ssize_t __real_send(int fd, const void *data, size_t n, int flags);
ssize_t __real_splice(int in, off64_t *in_at, int to, off64_t *to_at,
    size_t n, unsigned flags);
int __real_accept4(int fd, struct sockaddr *sa, socklen_t *len, int flags);
int __real_socket(int family, int type, int protocol);
int __real_connect(int fd, const struct sockaddr *sa, socklen_t len);
int __real_pipe2(int fd[2], int flags);
int __real_shutdown(int fd, int how);
ssize_t __wrap_recv(int fd, void *data, size_t n, int flags);
ssize_t __wrap_send(int fd, const void *data, size_t n, int flags);
ssize_t __wrap_splice(int in, off64_t *in_at, int to, off64_t *to_at,
    size_t n, unsigned flags);
int __wrap_accept4(int fd, struct sockaddr *sa, socklen_t *len, int flags);
int __wrap_socket(int family, int type, int protocol);
int __wrap_connect(int fd, const struct sockaddr *sa, socklen_t len);
int __wrap_pipe2(int fd[2], int flags);
int __wrap_shutdown(int fd, int how);

static bool
interrupted(void)
{
	if (ours ||
	    interrupt_each == 0 || ++calls % interrupt_each != 0)
		return false;
	errno = EINTR;
	return true;
}

static size_t
cut(size_t n)
{
	unsigned to = cut_to;

	if (to == 0 || ours)
		return n;
	to = 1 + calls * 7919 % to;
	return n < to ? n : to;
}

static bool
refused(atomic_int *why)
{
	if (*why == 0 || ours)
		return false;
	errno = *why;
	return true;
}

/* Only writes are cut: a read that falls short has emptied the socket, which
 * the engine relies on, so short reads come of a client that sends little. */
/* On a message socket a cut would lose the rest. */
static bool
is_stream(int fd)
{
	int type = 0;
	socklen_t len = sizeof(type);

	return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0 &&
	    type == SOCK_STREAM;
}

ssize_t
__wrap_recv(int fd, void *data, size_t n, int flags)
{
	if (!is_stream(fd))
		return __real_recv(fd, data, n, flags);
	return interrupted() ? -1 : __real_recv(fd, data, n, flags);
}

ssize_t
__wrap_send(int fd, const void *data, size_t n, int flags)
{
	if (!is_stream(fd))
		return __real_send(fd, data, n, flags);
	return interrupted() ? -1 : __real_send(fd, data, cut(n), flags);
}

ssize_t
__wrap_splice(int in, off64_t *in_at, int to, off64_t *to_at, size_t n,
    unsigned flags)
{
	return interrupted() ? -1 : __real_splice(in, in_at, to, to_at,
	    cut(n), flags);
}

/* Only where somebody waits: an accept that finds nobody must not use up the
 * failure that is meant for the next client. */
static bool
accept_fails(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	if (accepts_to_fail == 0 || poll(&p, 1, 0) != 1 ||
	    !refused(&no_accept))
		return false;
	accepts_to_fail--;
	return true;
}

int
__wrap_accept4(int fd, struct sockaddr *sa, socklen_t *len, int flags)
{
	if (accept_fails(fd))
		return -1;
	return interrupted() ? -1 : __real_accept4(fd, sa, len, flags);
}

int
__wrap_socket(int family, int type, int protocol)
{
	return refused(&no_socket) ? -1 :
	    __real_socket(family, type, protocol);
}

/* The last of each fail_each calls. */
static bool
refused_now(atomic_int *why)
{
	if (*why == 0 || ours)
		return false;
	if (fail_each > 1 && (failures + wins + 1) % fail_each != 0) {
		wins++;
		return false;
	}
	failures++;
	return refused(why);
}

int
__wrap_connect(int fd, const struct sockaddr *sa, socklen_t len)
{
	return refused_now(&no_connect) ? -1 : __real_connect(fd, sa, len);
}

int
__wrap_pipe2(int fd[2], int flags)
{
	return refused_now(&no_pipe) ? -1 : __real_pipe2(fd, flags);
}

int
__wrap_shutdown(int fd, int how)
{
	return refused_now(&no_shutdown) ? -1 : __real_shutdown(fd, how);
}

static void
calm(void)
{
	interrupt_each = cut_to = accepts_to_fail = 0;
	no_socket = no_accept = no_connect = no_pipe = no_shutdown = 0;
	fail_each = failures = wins = 0;
}

static unsigned
open_files(void)
{
	unsigned n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* The engine closes what it has ended a moment after it is seen to end. */
static void
no_file_is_left(unsigned before)
{
	for (unsigned i = 0; i < 100 && open_files() > before; i++)
		usleep(10000);
	assert_int_equal(open_files(), before);
}

/* ---- what must hold all the same ---- */

static uint8_t hello[1024];
static char got[8192];
static const uint8_t flight[] = { 22, 3, 3, 0, 2, 14, 0 };
#define MANY 300000u

struct sending {
	int fd;
	const uint8_t *data;
};

static void *
send_many(void *arg)
{
	const struct sending *s = arg;

	ours = true;
	for (size_t at = 0; at < MANY;) {
		size_t left = MANY - at, most = cut_to > 0 ? 1 + at % cut_to :
		    left;
		ssize_t n = send(s->fd, s->data + at, left < most ? left :
		    most, MSG_NOSIGNAL);

		if (n <= 0)
			break;
		at += (size_t)n;
	}
	shutdown(s->fd, SHUT_WR);
	return NULL;
}

static void
receive_many(int fd, const uint8_t *want)
{
	size_t at = 0;
	ssize_t n;

	while ((n = recv(fd, got, sizeof(got), 0)) > 0) {
		assert_true(at + (size_t)n <= MANY);
		assert_memory_equal(got, want + at, (size_t)n);
		at += (size_t)n;
	}
	assert_int_equal(n, 0);
	assert_int_equal(at, MANY);
}

/* All of it up and then all of it down, and the record says so. */
static void
carry(void)
{
	static uint8_t data[MANY];
	int origin = stage_listen(ORIGIN, 443), fd, server;
	size_t n = stage_hello("allowed.test", hello, sizeof(hello));
	struct sending s = { .data = data };
	const struct record *r;
	pthread_t t;

	for (size_t i = 0; i < MANY; i++)
		data[i] = (uint8_t)(i * 2654435761u >> 13);
	fd = stage_connect(WANTED, 443);
	stage_send(fd, hello, n);
	server = stage_accept(origin);
	assert_true(server >= 0);
	stage_expect(server, hello, n);
	stage_send(server, flight, sizeof(flight));
	stage_expect(fd, flight, sizeof(flight));
	r = stage_record(RECORD_DECISION);
	assert_int_equal(r->verdict, VERDICT_ALLOW);
	s.fd = fd;
	assert_int_equal(pthread_create(&t, NULL, send_many, &s), 0);
	receive_many(server, data);
	pthread_join(t, NULL);
	s.fd = server;
	assert_int_equal(pthread_create(&t, NULL, send_many, &s), 0);
	receive_many(fd, data);
	pthread_join(t, NULL);
	r = stage_record(RECORD_END);
	assert_int_equal(r->bytes_up, n + MANY);
	assert_int_equal(r->bytes_down, sizeof(flight) + MANY);
	close(fd);
	close(server);
	close(origin);
}

static void
interrupted_calls_lose_no_byte_and_no_record(void **state)
{
	(void)state;
	stage_up(NULL, NULL);
	for (unsigned each = 2; each <= 4; each++) {
		calls = 0;
		interrupt_each = each;
		carry();
	}
	calm();
	stage_down();
}

static void
short_calls_lose_no_byte_and_no_record(void **state)
{
	(void)state;
	stage_up(NULL, NULL);
	cut_to = 700;
	interrupt_each = 5;
	carry();
	calm();
	stage_down();
}

/* One byte at a time and interrupted: the same refusal, the same record. */
static void
a_refusal_is_the_same_in_pieces(void **state)
{
	static const char ask[] = "CONNECT denied.test:443 HTTP/1.1\r\n"
	    "Host: denied.test:443\r\n\r\n";
	const struct record *r;
	bool reset;
	int fd;

	(void)state;
	stage_up(NULL, NULL);
	cut_to = 1;
	interrupt_each = 2;
	fd = stage_connect(WANTED, 3128);
	for (size_t i = 0; i < sizeof(ask) - 1; i++)
		stage_send(fd, ask + i, 1);
	stage_read_all(fd, got, sizeof(got), &reset);
	assert_false(reset);
	assert_memory_equal(got, "HTTP/1.1 403", 12);
	r = stage_record(RECORD_DECISION);
	assert_int_equal(r->verdict, VERDICT_DENY);
	close(fd);
	calm();
	stage_down();
}

static void
without_a_socket_for_the_way_up_it_is_refused(void **state)
{
	static const char ask[] = "CONNECT allowed.test:443 HTTP/1.1\r\n"
	    "Host: allowed.test:443\r\n\r\n";
	static const int whys[] = { EMFILE, ENFILE, ENOBUFS, ENOMEM };
	int origin, fd;
	bool reset;

	(void)state;
	stage_up(NULL, NULL);
	origin = stage_listen(ORIGIN, 443);
	for (size_t i = 0; i < sizeof(whys) / sizeof(whys[0]); i++) {
		no_socket = whys[i];
		fd = stage_connect(WANTED, 3128);
		stage_send(fd, ask, sizeof(ask) - 1);
		stage_read_all(fd, got, sizeof(got), &reset);
		assert_memory_equal(got, "HTTP/1.1 50", 11);
		assert_int_equal(stage_accept(origin), -1);
		assert_int_equal(stage_record(RECORD_DECISION)->verdict,
		    VERDICT_ALLOW);
		assert_int_not_equal(stage_record(RECORD_END)->reason,
		    REASON_NONE);
		close(fd);
	}
	calm();
	close(origin);
	carry();
	stage_down();
}

static int
connect_with_accept_failing(int why, unsigned times)
{
	no_accept = why;
	accepts_to_fail = times;
	return stage_connect(WANTED, 3128);
}

static void
expect_answer(int fd, const char *status, int why)
{
	bool reset;

	got[0] = '\0';
	stage_read_all(fd, got, sizeof(got), &reset);
	if (accepts_to_fail != 0)
		fail_msg("%s: accept was not called again", strerror(why));
	if (reset || memcmp(got, status, strlen(status)) != 0)
		fail_msg("%s: %s instead of %s", strerror(why),
		    reset ? "a reset" : got, status);
	close(fd);
}

/* Nothing is written: a reset that is met by a write is told to the write,
 * and the read after it sees a plain end. */
static void
expect_reset(int fd, int why)
{
	ssize_t n = recv(fd, got, sizeof(got), 0);

	if (n != -1 || errno != ECONNRESET)
		fail_msg("%s: not reset (%zd, %s)", strerror(why), n,
		    n < 0 ? strerror(errno) : "");
	assert_int_equal(accepts_to_fail, 0);
	close(fd);
}

/* The listener lives, and judges. */
static void
next_client_is_judged(int why)
{
	static const char ask[] = "CONNECT denied.test:443 HTTP/1.1\r\n"
	    "Host: denied.test:443\r\n\r\n";
	int fd = stage_connect(WANTED, 3128);

	stage_send(fd, ask, sizeof(ask) - 1);
	expect_answer(fd, "HTTP/1.1 403", why);
	while (stage_record(RECORD_DECISION)->reason != REASON_RULE_DENY)
		continue;
}

/* It stays in the backlog and is taken by the next call. */
static void
an_accept_that_fails_leaves_the_client_to_the_next(void **state)
{
	static const int whys[] = { ENOBUFS, ENOMEM, ECONNABORTED, EPROTO,
	    EPERM, EINTR, EAGAIN, ENETDOWN, ENOPROTOOPT, EHOSTDOWN, ENONET,
	    EHOSTUNREACH, EOPNOTSUPP, ENETUNREACH };
	static const char ask[] = "GET x\r\n\r\n";

	(void)state;
	stage_up(NULL, NULL);
	for (size_t i = 0; i < sizeof(whys) / sizeof(whys[0]); i++)
		for (unsigned times = 1; times <= 2; times++) {
			int fd = connect_with_accept_failing(whys[i], times);

			stage_send(fd, ask, sizeof(ask) - 1);
			expect_answer(fd, "HTTP/1.1 400", whys[i]);
			next_client_is_judged(whys[i]);
		}
	calm();
	carry();
	stage_down();
}

/* More failures than one event takes accepts: the event comes again. */
static void
an_accept_that_fails_for_long_is_tried_for_long(void **state)
{
	static const char ask[] = "GET x\r\n\r\n";
	int fd;

	(void)state;
	stage_up(NULL, NULL);
	fd = connect_with_accept_failing(ECONNABORTED, 100);
	stage_send(fd, ask, sizeof(ask) - 1);
	expect_answer(fd, "HTTP/1.1 400", ECONNABORTED);
	next_client_is_judged(ECONNABORTED);
	calm();
	stage_down();
}

/* The reserve takes one in and resets it, rather than leave it waiting; where
 * that fails too, it waits for the pause to end. */
static void
without_a_descriptor_a_client_is_reset_and_the_next_is_served(void **state)
{
	static const int whys[] = { EMFILE, ENFILE };
	static const char ask[] = "GET x\r\n\r\n";

	(void)state;
	stage_up(NULL, NULL);
	for (size_t i = 0; i < 2; i++) {
		int fd = connect_with_accept_failing(whys[i], 1);

		expect_reset(fd, whys[i]);
		next_client_is_judged(whys[i]);
		fd = connect_with_accept_failing(whys[i], 2);
		stage_send(fd, ask, sizeof(ask) - 1);
		expect_answer(fd, "HTTP/1.1 400", whys[i]);
		next_client_is_judged(whys[i]);
	}
	calm();
	carry();
	stage_down();
}

static const char ask_allowed[] = "CONNECT allowed.test:443 HTTP/1.1\r\n"
    "Host: allowed.test:443\r\n\r\n";

/* One attempt while connect(2) fails: what it is told, and its reason. */
static void
refuse_connect(int why, enum reason reason)
{
	int fd = stage_connect(WANTED, 3128);
	const struct record *r;
	bool reset;

	no_connect = why;
	stage_send(fd, ask_allowed, sizeof(ask_allowed) - 1);
	stage_read_all(fd, got, sizeof(got), &reset);
	if (memcmp(got, "HTTP/1.1 50", 11) != 0)
		fail_msg("%s: %.40s", strerror(why), got);
	assert_int_equal(stage_record(RECORD_DECISION)->verdict,
	    VERDICT_ALLOW);
	r = stage_record(RECORD_END);
	assert_int_equal(r->reason, reason);
	assert_int_equal(r->how, HOW_REFUSED);
	assert_int_equal(r->bytes_up, 0);
	close(fd);
	no_connect = 0;
}

static void
a_connect_that_fails_is_a_refusal_with_its_reason(void **state)
{
	static const struct {
		int why;
		enum reason reason;
	} all[] = {
		{ ECONNREFUSED, REASON_CONNECT_REFUSED },
		{ ETIMEDOUT, REASON_CONNECT_TIMEOUT },
		{ EMFILE, REASON_LIMIT_DESCRIPTORS },
		{ ENFILE, REASON_LIMIT_DESCRIPTORS },
		{ EINTR, REASON_UNREACHABLE }, { EPERM, REASON_UNREACHABLE },
		{ EACCES, REASON_UNREACHABLE }, { EAGAIN, REASON_UNREACHABLE },
		{ EADDRNOTAVAIL, REASON_UNREACHABLE },
		{ ENOBUFS, REASON_UNREACHABLE },
		{ ENETUNREACH, REASON_UNREACHABLE },
	};
	unsigned before;
	int origin;

	(void)state;
	stage_up(NULL, NULL);
	origin = stage_listen(ORIGIN, 443);
	before = open_files();
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		refuse_connect(all[i].why, all[i].reason);
		assert_int_equal(failures, i + 1);
		assert_int_equal(stage_accept(origin), -1);
	}
	no_file_is_left(before);
	calm();
	close(origin);
	carry();
	stage_down();
}

/* The first of two addresses cannot be dialled: the second is, and of three
 * attempts one falls on each. */
static void
a_connect_that_fails_leaves_the_next_address(void **state)
{
	static const char ask[] = "CONNECT second.test:443 HTTP/1.1\r\n"
	    "Host: second.test:443\r\n\r\n";
	int a, b, fd, server;
	unsigned before;

	(void)state;
	stage_up(NULL, NULL);
	stage_pin("second.test", "203.0.113.2");
	stage_pin("second.test", "203.0.113.3");
	a = stage_listen("203.0.113.2", 443);
	b = stage_listen("203.0.113.3", 443);
	before = open_files();
	no_connect = ENETUNREACH;
	fail_each = 3;
	for (unsigned i = 0; i < 9; i++) {
		fd = stage_connect(WANTED, 3128);
		stage_send(fd, ask, sizeof(ask) - 1);
		stage_read_head(fd, got, sizeof(got));
		assert_memory_equal(got, "HTTP/1.1 200", 12);
		server = stage_accept(a);
		if (server < 0)
			server = stage_accept(b);
		assert_true(server >= 0);
		assert_int_equal(stage_record(RECORD_DECISION)->verdict,
		    VERDICT_ALLOW);
		close(fd);
		close(server);
		stage_record(RECORD_END);
	}
	assert_true(failures >= 4);
	no_file_is_left(before);
	calm();
	close(a);
	close(b);
	stage_down();
}

/* Then bytes are copied: none is lost, and none is left in a pipe. */
static void
without_a_pipe_bytes_are_copied(void **state)
{
	static const int whys[] = { EMFILE, ENFILE, ENOMEM };
	unsigned before;

	(void)state;
	stage_up(NULL, NULL);
	before = open_files();
	for (size_t i = 0; i < sizeof(whys) / sizeof(whys[0]); i++) {
		calm();
		no_pipe = whys[i];
		carry();
		assert_true(failures > 0);
		no_file_is_left(before);
	}
	calm();
	no_pipe = EMFILE;
	for (fail_each = 2; fail_each <= 3; fail_each++)
		carry();
	calm();
	stage_down();
}

/* An end that cannot be passed on: the flow is no whole one.  Who was not
 * told of it ends it (then it was a reset), or nobody does (then it is idle). */
static void
end_unshut(int why, bool by_client, bool closes)
{
	size_t n = stage_hello("allowed.test", hello, sizeof(hello));
	int origin = stage_listen(ORIGIN, 443), fd, server, first, other;
	const struct record *r;

	fd = stage_connect(WANTED, 443);
	stage_send(fd, hello, n);
	server = stage_accept(origin);
	assert_true(server >= 0);
	stage_expect(server, hello, n);
	stage_send(server, flight, sizeof(flight));
	stage_expect(fd, flight, sizeof(flight));
	stage_send(fd, "more", 4);
	stage_expect(server, "more", 4);
	first = by_client ? fd : server;
	other = by_client ? server : fd;
	no_shutdown = why;
	shutdown(first, SHUT_WR);
	while (failures == 0)
		usleep(1000);
	if (closes)
		shutdown(other, SHUT_WR);
	r = stage_record(RECORD_END);
	assert_int_equal(r->how, !closes ? HOW_CUT : by_client ?
	    HOW_RESET_UPSTREAM : HOW_RESET_CLIENT);
	assert_int_equal(r->reason, closes ? REASON_NONE : REASON_IDLE);
	assert_int_equal(recv(first, got, sizeof(got), 0), -1);
	assert_int_equal(errno, ECONNRESET);
	calm();
	close(fd);
	close(server);
	close(origin);
}

static void
a_shutdown_that_fails_is_no_end_in_order(void **state)
{
	static const int whys[] = { ENOTCONN, ENOBUFS };
	unsigned before;

	(void)state;
	stage_up(NULL, NULL);
	before = open_files();
	for (size_t i = 0; i < sizeof(whys) / sizeof(whys[0]); i++) {
		end_unshut(whys[i], true, true);
		end_unshut(whys[i], false, true);
		end_unshut(whys[i], true, false);
	}
	no_file_is_left(before);
	carry();
	stage_down();
}

/* What was to be read stays to be read, and the connection ends. */
static void
a_refusal_whose_shutdown_fails_is_read_all_the_same(void **state)
{
	static const char ask[] = "CONNECT denied.test:443 HTTP/1.1\r\n"
	    "Host: denied.test:443\r\n\r\n";
	unsigned before;
	bool reset;
	int fd;

	(void)state;
	stage_up(NULL, NULL);
	before = open_files();
	fd = stage_connect(WANTED, 3128);
	no_shutdown = ENOTCONN;
	stage_send(fd, ask, sizeof(ask) - 1);
	stage_read_all(fd, got, sizeof(got), &reset);
	assert_memory_equal(got, "HTTP/1.1 403", 12);
	assert_int_equal(failures, 1);
	assert_int_equal(stage_record(RECORD_DECISION)->verdict, VERDICT_DENY);
	close(fd);
	no_file_is_left(before);
	calm();
	stage_down();
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(interrupted_calls_lose_no_byte_and_no_record),
		cmocka_unit_test(short_calls_lose_no_byte_and_no_record),
		cmocka_unit_test(a_refusal_is_the_same_in_pieces),
		cmocka_unit_test(
		    without_a_socket_for_the_way_up_it_is_refused),
		cmocka_unit_test(
		    an_accept_that_fails_leaves_the_client_to_the_next),
		cmocka_unit_test(
		    an_accept_that_fails_for_long_is_tried_for_long),
		cmocka_unit_test(
		    without_a_descriptor_a_client_is_reset_and_the_next_is_served),
		cmocka_unit_test(
		    a_connect_that_fails_is_a_refusal_with_its_reason),
		cmocka_unit_test(a_connect_that_fails_leaves_the_next_address),
		cmocka_unit_test(without_a_pipe_bytes_are_copied),
		cmocka_unit_test(a_shutdown_that_fails_is_no_end_in_order),
		cmocka_unit_test(
		    a_refusal_whose_shutdown_fails_is_read_all_the_same),
	};

	ours = true;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
