/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/conn.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <fcntl.h>
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

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_clean_pipe_is_used_again),
		cmocka_unit_test(a_pipe_that_holds_bytes_is_closed),
		cmocka_unit_test(the_share_is_never_passed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
