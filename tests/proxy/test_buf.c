/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/buf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int fd[2];

static int
pair(void **state)
{
	(void)state;
	return socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd);
}

static int
unpair(void **state)
{
	(void)state;
	close(fd[0]);
	close(fd[1]);
	return 0;
}

static void
bytes_come_out_in_the_order_they_went_in(void **state)
{
	struct buf b = { 0 };
	uint8_t in = 0, out = 0, piece[700];

	(void)state;
	for (unsigned round = 0; round < 400; round++) {
		size_t n = (round * 7919) % sizeof(piece), take;

		for (size_t i = 0; i < n; i++)
			piece[i] = in++;
		assert_int_equal(buf_put(&b, span_of(piece, n)), 0);
		take = (round * 104729) % (buf_left(&b) + 1);
		for (size_t i = 0; i < take; i++)
			assert_int_equal(buf_span(&b).data[i], out++);
		buf_take(&b, take);
	}
	buf_take(&b, buf_left(&b));
	assert_null(b.data);
	assert_int_equal(b.cap, 0);
}

static void
more_than_max_never_waits(void **state)
{
	static char big[20000];
	struct buf b = { 0 };
	ssize_t n;

	(void)state;
	assert_int_equal(write(fd[1], big, sizeof(big)), sizeof(big));
	while ((n = buf_recv(&b, fd[0], 10000)) > 0)
		assert_true(buf_left(&b) <= 10000);
	assert_int_equal(n, -ENOBUFS);
	assert_int_equal(buf_left(&b), 10000);
	buf_take(&b, 1);
	assert_int_equal(buf_recv(&b, fd[0], 10000), 1);
	buf_free(&b);
}

static void
nothing_is_held_while_nothing_waits(void **state)
{
	struct buf b = { 0 };

	(void)state;
	assert_int_equal(buf_recv(&b, fd[0], 100), -EAGAIN);
	assert_null(b.data);
	close(fd[1]);
	fd[1] = -1;
	assert_int_equal(buf_recv(&b, fd[0], 100), 0);
	assert_null(b.data);
}

static void
what_cannot_be_sent_now_waits(void **state)
{
	static uint8_t big[1 << 20], got[4096];
	struct buf b = { 0 };
	uint64_t sent = 0;
	size_t seen = 0;
	ssize_t n;
	int e;

	(void)state;
	for (size_t i = 0; i < sizeof(big); i++)
		big[i] = (uint8_t)(i * 31 >> 3);
	assert_int_equal(buf_put(&b, span_of(big, sizeof(big))), 0);
	while ((e = buf_send(&b, fd[0], &sent)) == -EAGAIN) {
		assert_int_equal(sent + buf_left(&b), sizeof(big));
		while ((n = read(fd[1], got, sizeof(got))) > 0) {
			assert_memory_equal(got, big + seen, (size_t)n);
			seen += (size_t)n;
		}
	}
	assert_int_equal(e, 0);
	assert_int_equal(sent, sizeof(big));
	assert_null(b.data);
}

static void
a_broken_way_is_told_and_keeps_the_bytes(void **state)
{
	struct buf b = { 0 };
	uint64_t sent = 0;

	(void)state;
	close(fd[1]);
	fd[1] = -1;
	assert_int_equal(buf_put(&b, span_str("bytes")), 0);
	assert_int_equal(buf_send(&b, fd[0], &sent), -EPIPE);
	assert_int_equal(sent, 0);
	assert_int_equal(buf_left(&b), 5);
	buf_free(&b);
}

static void
what_cannot_be_counted_is_refused(void **state)
{
	struct buf b = { .len = UINT32_MAX / 2, .cap = UINT32_MAX / 2 };
	uint8_t one = 0;

	(void)state;
	assert_int_equal(buf_put(&b, span_of(&one, 1)), -ENOMEM);
	assert_int_equal(b.len, UINT32_MAX / 2);
}

int
main(void)
{
#define PAIRED(t) cmocka_unit_test_setup_teardown(t, pair, unpair)
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_come_out_in_the_order_they_went_in),
		PAIRED(more_than_max_never_waits),
		PAIRED(nothing_is_held_while_nothing_waits),
		PAIRED(what_cannot_be_sent_now_waits),
		PAIRED(a_broken_way_is_told_and_keeps_the_bytes),
		cmocka_unit_test(what_cannot_be_counted_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
