/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/ipc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

static int pair[2];
static struct ipc_message m;

static int
before(void **state)
{
	(void)state;
	return ipc_pair(pair);
}

static int
after(void **state)
{
	(void)state;
	close(pair[0]);
	if (pair[1] >= 0)
		close(pair[1]);
	return 0;
}

static unsigned
open_descriptors(void)
{
	unsigned n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void
a_message_arrives_whole_with_its_descriptors(void **state)
{
	int fds[IPC_FDS_MAX], same[2] = { -1, -1 };
	uint8_t body[IPC_BODY_MAX_BYTES];

	(void)state;
	memset(body, 7, sizeof(body));
	assert_int_equal(pipe(same), 0);
	for (size_t i = 0; i < IPC_FDS_MAX; i++)
		fds[i] = same[1];
	assert_int_equal(ipc_send(pair[0], IPC_GIVE,
	    span_of(body, sizeof(body)), fds, IPC_FDS_MAX), 0);
	assert_int_equal(ipc_send(pair[0], IPC_RUN, span_of(NULL, 0), NULL,
	    0), 0);
	assert_int_equal(ipc_receive(pair[1], &m), 1);
	assert_int_equal(m.type, IPC_GIVE);
	assert_int_equal(m.n_fds, IPC_FDS_MAX);
	assert_int_equal(m.len, sizeof(body));
	assert_memory_equal(m.body, body, sizeof(body));
	assert_int_equal(write(m.fds[15], "x", 1), 1);
	assert_int_equal(read(same[0], body, 1), 1);
	assert_true((fcntl(m.fds[0], F_GETFD) & FD_CLOEXEC) != 0);
	ipc_discard(&m);
	assert_int_equal(ipc_receive(pair[1], &m), 1);
	assert_int_equal(m.type, IPC_RUN);
	assert_int_equal(m.n_fds, 0);
	assert_int_equal(ipc_receive(pair[1], &m), -EAGAIN);
	close(same[0]);
	close(same[1]);
}

static void
what_is_too_large_is_not_sent(void **state)
{
	static uint8_t body[IPC_BODY_MAX_BYTES + 1];
	int fds[IPC_FDS_MAX + 1] = { 0 };

	(void)state;
	assert_int_equal(ipc_send(pair[0], IPC_GIVE,
	    span_of(body, sizeof(body)), NULL, 0), -EINVAL);
	assert_int_equal(ipc_send(pair[0], IPC_GIVE, span_of(NULL, 0), fds,
	    IPC_FDS_MAX + 1), -EINVAL);
	assert_int_equal(ipc_receive(pair[1], &m), -EAGAIN);
}

static void
another_form_is_refused_and_its_descriptors_closed(void **state)
{
	static uint8_t large[sizeof(uint32_t) * 2 + IPC_BODY_MAX_BYTES + 1];
	const uint32_t heads[][2] = {
		{ IPC_NONE, 0 }, { IPC_TYPES, 0 }, { IPC_GIVE, 1 },
		{ UINT32_MAX, 0 },
	};
	unsigned n;

	(void)state;
	for (size_t i = 0; i < 4; i++) {
		assert_int_equal(send(pair[0], heads[i], 8, 0), 8);
		assert_int_equal(ipc_receive(pair[1], &m), -EBADMSG);
	}
	for (size_t len = 1; len < 8; len++) {
		assert_int_equal(send(pair[0], heads[2], len, 0), len);
		assert_int_equal(ipc_receive(pair[1], &m), -EBADMSG);
	}
	memcpy(large, &(uint32_t){ IPC_GIVE }, 4);
	assert_int_equal(send(pair[0], large, sizeof(large), 0),
	    sizeof(large));
	assert_int_equal(ipc_receive(pair[1], &m), -EBADMSG);
	n = open_descriptors();
	assert_int_equal(ipc_send(pair[0], IPC_TYPES, span_of(NULL, 0),
	    pair, 2), 0);
	assert_int_equal(ipc_receive(pair[1], &m), -EBADMSG);
	assert_int_equal(open_descriptors(), n);
}

static void
N26_a_peer_that_is_gone_raises_no_signal(void **state)
{
	(void)state;
	close(pair[1]);
	pair[1] = -1;
	assert_int_equal(ipc_send(pair[0], IPC_RUN, span_of(NULL, 0), NULL,
	    0), -EPIPE);
	assert_int_equal(ipc_receive(pair[0], &m), 0);
}

static void
a_peer_that_does_not_read_blocks_nobody(void **state)
{
	uint8_t body[IPC_BODY_MAX_BYTES] = { 0 };
	int rc = 0, n = 0;

	(void)state;
	while (rc == 0 && n++ < 100000)
		rc = ipc_send(pair[0], IPC_GIVE, span_of(body, sizeof(body)),
		    NULL, 0);
	assert_int_equal(rc, -EAGAIN);
}

#define EACH(name) cmocka_unit_test_setup_teardown(name, before, after)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		EACH(a_message_arrives_whole_with_its_descriptors),
		EACH(what_is_too_large_is_not_sent),
		EACH(another_form_is_refused_and_its_descriptors_closed),
		EACH(N26_a_peer_that_is_gone_raises_no_signal),
		EACH(a_peer_that_does_not_read_blocks_nobody),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
