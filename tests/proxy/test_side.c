/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/side.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

static int fd[2];
static struct side side;

static int
pair(void **state)
{
	(void)state;
	memset(&side, 0, sizeof(side));
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd) < 0)
		return -1;
	side_open(&side, fd[0]);
	return 0;
}

static int
unpair(void **state)
{
	(void)state;
	buf_free(&side.out);
	close(fd[0]);
	close(fd[1]);
	return 0;
}

static void
nobody_is_woken_by_what_he_does_not_want(void **state)
{
	(void)state;
	assert_false(side_edge(&side, EPOLLIN | EPOLLOUT));
	side.want = SIDE_READ;
	assert_false(side_edge(&side, EPOLLOUT));
	assert_true(side_edge(&side, EPOLLIN));
	side.want = SIDE_WRITE;
	assert_false(side_edge(&side, EPOLLIN | EPOLLRDHUP));
	assert_true(side_edge(&side, EPOLLOUT));
	assert_true(side_edge(&side, EPOLLERR));
	assert_true(side_edge(&side, EPOLLHUP));
	side.want = SIDE_READ;
	assert_true(side_edge(&side, EPOLLERR));
	assert_true(side_edge(&side, EPOLLRDHUP));
	assert_true(side_edge(&side, EPOLLPRI));
}

/* The whole point of edges: no second call to hear that there is no more, and
 * no byte that is forgotten. */
static void
a_short_read_is_the_last_until_an_edge(void **state)
{
	char got[16];

	(void)state;
	side.want = SIDE_READ;
	assert_int_equal(write(fd[1], "abc", 3), 3);
	assert_int_equal(side_recv(&side, got, sizeof(got)), 3);
	assert_false(side_can(&side));
	assert_int_equal(write(fd[1], "def", 3), 3);
	assert_int_equal(side_recv(&side, got, sizeof(got)), -EAGAIN);
	assert_true(side_edge(&side, EPOLLIN));
	assert_true(side_can(&side));
	assert_int_equal(side_recv(&side, got, 3), 3);
	assert_true(side_can(&side));	/* it was filled: there may be more */
	assert_int_equal(side_recv(&side, got, 3), -EAGAIN);
	assert_false(side_can(&side));
}

/* The end came with the bytes, and gets no edge of its own. */
static void
an_announced_end_is_met_behind_a_short_read(void **state)
{
	static const uint32_t with[] = { EPOLLRDHUP, EPOLLHUP, EPOLLERR,
	    EPOLLPRI };
	char got[16];

	(void)state;
	side.want = SIDE_READ;
	assert_int_equal(write(fd[1], "abc", 3), 3);
	shutdown(fd[1], SHUT_WR);
	side_edge(&side, EPOLLIN | EPOLLRDHUP);
	assert_int_equal(side_recv(&side, got, sizeof(got)), 3);
	assert_true(side_can(&side));
	assert_int_equal(side_recv(&side, got, sizeof(got)), 0);
	for (size_t i = 0; i < sizeof(with) / sizeof(with[0]); i++) {
		side.doubtful = false;
		side_edge(&side, with[i]);
		assert_true(side.doubtful);
	}
}

static void
more_than_max_never_waits(void **state)
{
	static char big[20000];
	struct buf b = { 0 };
	ssize_t n;

	(void)state;
	assert_int_equal(write(fd[1], big, sizeof(big)), sizeof(big));
	while ((n = side_fill(&side, &b, 10000)) > 0)
		assert_true(buf_left(&b) <= 10000);
	assert_int_equal(n, -ENOBUFS);
	assert_int_equal(buf_left(&b), 10000);
	assert_true(side.readable);	/* the rest waits in the kernel */
	buf_take(&b, 1);
	assert_int_equal(side_fill(&side, &b, 10000), 1);
	buf_free(&b);
}

static void
nothing_is_held_while_nothing_waits(void **state)
{
	struct buf b = { 0 };

	(void)state;
	assert_int_equal(side_fill(&side, &b, 100), -EAGAIN);
	assert_null(b.data);
	close(fd[1]);
	fd[1] = -1;
	side_edge(&side, EPOLLIN);
	assert_int_equal(side_fill(&side, &b, 100), 0);
	assert_null(b.data);
}

static void
what_cannot_be_sent_now_waits_for_an_edge(void **state)
{
	static uint8_t big[1 << 20], got[4096];
	size_t seen = 0;
	ssize_t n;
	int e;

	(void)state;
	for (size_t i = 0; i < sizeof(big); i++)
		big[i] = (uint8_t)(i * 31 >> 3);
	side.want = SIDE_WRITE;
	assert_int_equal(buf_put(&side.out, span_of(big, sizeof(big))), 0);
	while ((e = side_flush(&side)) == -EAGAIN) {
		assert_false(side_can(&side));
		assert_int_equal(side.sent + buf_left(&side.out),
		    sizeof(big));
		while ((n = read(fd[1], got, sizeof(got))) > 0) {
			assert_memory_equal(got, big + seen, (size_t)n);
			seen += (size_t)n;
		}
		assert_true(side_edge(&side, EPOLLOUT));
	}
	assert_int_equal(e, 0);
	assert_int_equal(side.sent, sizeof(big));
	assert_null(side.out.data);
}

static void
a_broken_way_is_told_and_keeps_the_bytes(void **state)
{
	(void)state;
	close(fd[1]);
	fd[1] = -1;
	assert_int_equal(buf_put(&side.out, span_str("bytes")), 0);
	assert_int_equal(side_flush(&side), -EPIPE);
	assert_int_equal(side.sent, 0);
	assert_int_equal(buf_left(&side.out), 5);
}

int
main(void)
{
#define PAIRED(t) cmocka_unit_test_setup_teardown(t, pair, unpair)
	const struct CMUnitTest tests[] = {
		PAIRED(nobody_is_woken_by_what_he_does_not_want),
		PAIRED(a_short_read_is_the_last_until_an_edge),
		PAIRED(an_announced_end_is_met_behind_a_short_read),
		PAIRED(more_than_max_never_waits),
		PAIRED(nothing_is_held_while_nothing_waits),
		PAIRED(what_cannot_be_sent_now_waits_for_an_edge),
		PAIRED(a_broken_way_is_told_and_keeps_the_bytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
