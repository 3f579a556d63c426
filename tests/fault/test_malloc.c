/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every allocation fails once: what is asked must then say so, and neither
 * crash nor allow.  The program is linked with --wrap, so that only our own
 * calls are counted.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>

#include "dns/cache.h"
#include "dns/pin.h"
#include "policy/decide.h"
#include "sidecar/open_table.h"

#include <unistd.h>

static size_t calls, fail_at;	/* 0: none fails */

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);

static bool
fails(void)
{
	return ++calls == fail_at;
}

void *
__wrap_malloc(size_t n)
{
	return fails() ? NULL : __real_malloc(n);
}

void *
__wrap_calloc(size_t n, size_t size)
{
	return fails() ? NULL : __real_calloc(n, size);
}

void *
__wrap_realloc(void *p, size_t n)
{
	return fails() ? NULL : __real_realloc(p, n);
}

static const char text[] = "version: 1\nnetwork:\n  default: deny\n"
    "  resolvers: [9.9.9.9]\n  help: ask\n  rule:\n"
    "    - {verdict: deny, hostname: no.a.example, reason: never}\n"
    "    - {verdict: allow, hostname: \"*.a.example\", ports: [443, 8000-8100]}\n"
    "    - {verdict: allow, cidr: 10.0.0.0/8, ports: [5432]}\n"
    "    - {verdict: allow, hostname: git.example, ports: [22], protocol: tcp}\n"
    "expect: [{allow: \"x.a.example:443\"}]\n";

/* The whole way from text to a decision; true when it came through. */
static bool
compile_and_ask(void)
{
	struct policy_cell_source cell = { .id = "c" };
	struct policy_source all = { .cells = &cell, .n_cells = 1,
	    .generation = 1, .now_s = 1000 };
	struct problems *ps = problem_new();
	struct charter *c = NULL;
	struct policy *p = NULL;
	uint8_t *image = NULL;
	struct host h;
	size_t len;
	bool done = false;

	if (ps != NULL)
		c = charter_load("p", span_str(text), true, NULL, ps);
	cell.charters = (const struct charter *const *)&c;
	cell.n_charters = 1;
	if (c != NULL && policy_build(&all, &image, &len, ps) == 0 &&
	    policy_open(&p, span_of(image, len)) == 0) {
		struct decide_at at = { .policy = p, .now_s = 1000 };

		assert_int_equal(host_parse(&h, span_str("x.a.example")), 0);
		assert_int_equal(decide_name(&at, &h, 443, NULL).verdict,
		    VERDICT_ALLOW);
		assert_int_equal(host_parse(&h, span_str("no.a.example")), 0);
		assert_int_equal(decide_name(&at, &h, 443, NULL).verdict,
		    VERDICT_DENY);
		done = true;
	}
	policy_free(p);
	free(image);
	charter_free(c);
	problem_free(ps);
	return done;
}

/* Fail the first, the second, ... allocation until none is left to fail. */
static void
each(bool (*what)(void))
{
	size_t tried = 0;

	for (fail_at = 1;; fail_at++) {
		bool done;

		calls = 0;
		done = what();
		if (calls < fail_at) {
			fail_at = 0;
			assert_true(done);
			break;
		}
		assert_false(done);
		tried++;
	}
	assert_true(tried > 0);
}

static void
a_policy_that_runs_out_of_memory_does_not_load(void **state)
{
	(void)state;
	each(compile_and_ask);
}

static bool
make_cache(void)
{
	struct cache *c = cache_new(65536);

	cache_free(c);
	return c != NULL;
}

static bool
make_pins(void)
{
	struct pins *p = NULL;
	int fd = -1;
	bool done = pin_create(&p, 64, &fd) == 0;

	if (done) {
		pin_close(p);
		close(fd);
	}
	return done;
}

static void
caches_and_pins_are_made_whole_or_not(void **state)
{
	(void)state;
	each(make_cache);
	each(make_pins);
}

static unsigned ended;

static void
count_end(void *arg, struct record *end)
{
	(void)arg;
	assert_int_equal(end->kind, RECORD_END);
	ended++;
}

static void
a_connection_that_cannot_be_remembered_is_left_out(void **state)
{
	struct open_table *t = open_table_new();
	struct record r;

	(void)state;
	assert_non_null(t);
	record_init(&r, RECORD_DECISION);
	r.verdict = VERDICT_ALLOW;
	for (r.connection = 1; r.connection <= 8; r.connection++) {
		calls = 0;
		fail_at = r.connection % 3;	/* 0: none */
		open_table_see(t, &r);
	}
	fail_at = 0;
	ended = 0;
	open_table_end(t, UINT64_MAX, count_end, NULL);
	assert_in_range(ended, 2, 7);
	assert_int_equal(open_table_count(t), 0);
	open_table_free(t);
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(
		    a_policy_that_runs_out_of_memory_does_not_load),
		cmocka_unit_test(caches_and_pins_are_made_whole_or_not),
		cmocka_unit_test(
		    a_connection_that_cannot_be_remembered_is_left_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
