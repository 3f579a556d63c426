/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/conn.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#define FIRST 65536u

static void
a_clean_pipe_is_used_again(void **state)
{
	struct pipes p;
	struct pipes_pair *a, *b;

	(void)state;
	pipes_init(&p, 8 * FIRST);
	a = pipes_get(&p);
	assert_non_null(a);
	assert_int_equal(a->bytes, fcntl(a->wr, F_GETPIPE_SZ));
	assert_int_equal(p.bytes, a->bytes);
	pipes_put(&p, a, true);
	b = pipes_get(&p);
	assert_ptr_equal(a, b);
	pipes_put(&p, b, true);
	pipes_done(&p);
	assert_int_equal(p.bytes, 0);
}

/* Another flow would get the bytes of this one. */
static void
a_pipe_that_holds_bytes_is_closed(void **state)
{
	struct pipes p;
	struct pipes_pair *a;
	char c;
	int rd;

	(void)state;
	pipes_init(&p, 8 * FIRST);
	a = pipes_get(&p);
	rd = dup(a->rd);
	assert_int_equal(write(a->wr, "x", 1), 1);
	pipes_put(&p, a, false);
	assert_null(p.idle);
	assert_int_equal(p.bytes, 0);
	/* its writer is gone: after the byte comes the end */
	assert_int_equal(read(rd, &c, 1), 1);
	assert_int_equal(read(rd, &c, 1), 0);
	close(rd);
}

static void
the_share_is_never_passed(void **state)
{
	struct pipes p;
	struct pipes_pair *pair[32];
	size_t n = 0;

	(void)state;
	pipes_init(&p, 10 * FIRST);
	while (n < 32 && (pair[n] = pipes_get(&p)) != NULL) {
		n++;
		assert_true(p.bytes <= 10 * FIRST);
	}
	assert_in_range(n, 2, 10);
	pipes_put(&p, pair[--n], true);
	assert_non_null(pair[n] = pipes_get(&p));
	n++;
	while (n > 0)
		pipes_put(&p, pair[--n], true);
	pipes_done(&p);
	assert_int_equal(p.bytes, 0);
	pipes_init(&p, 0);
	assert_null(pipes_get(&p));
}

#define HELD_MAX 256
#define HELD_BYTES (1 << 20)

/* All the pages that this uid may hold in pipes, until the process ends. */
static bool
hold_all_pages(void)
{
	int fd[2];

	for (int i = 0; i < HELD_MAX; i++) {
		if (pipe2(fd, O_CLOEXEC) < 0)
			return false;
		(void)!fcntl(fd[1], F_SETPIPE_SZ, HELD_BYTES);
		if (fcntl(fd[1], F_GETPIPE_SZ) < (int)FIRST)
			return true;
	}
	return false;
}

/* Root is given more than its share, and others have pages of its uid. */
static int
try_without_pages(void)
{
	const uid_t uid = 1000000 + (uid_t)getpid();
	struct pipes_pair *pair;
	struct pipes p;
	int next;

	if (geteuid() == 0 && setuid(uid) < 0)
		return 2;
	pipes_init(&p, 8 * FIRST);
	pair = pipes_get(&p);
	if (pair == NULL || !hold_all_pages())
		return 3;
	next = dup(0);
	close(next);
	if (pipes_get(&p) != NULL || p.bytes != pair->bytes)
		return 4;
	if (dup(0) != next)		/* it is closed */
		return 5;
	pipes_put(&p, pair, true);
	return pipes_get(&p) == pair ? 0 : 6;
}

static void
one_that_is_small_is_none(void **state)
{
	int status = -1;
	pid_t pid;

	(void)state;
	pid = fork();
	if (pid == 0)
		_exit(try_without_pages());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_clean_pipe_is_used_again),
		cmocka_unit_test(a_pipe_that_holds_bytes_is_closed),
		cmocka_unit_test(the_share_is_never_passed),
		cmocka_unit_test(one_that_is_small_is_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
