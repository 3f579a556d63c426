/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client that is refused over and over fills no disk, and none of it goes
 * uncounted; what is allowed meanwhile is told as ever.
 */
#include "tests/replay/stage.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ledger-client/fold.h"

enum { FLOOD = FOLD_DISTINCT + 72 };

static char got[8192];
static uint8_t hello[1024];

static void
asks_for(const char *name)
{
	int fd = stage_connect(WANTED, 3128);
	char head[256];
	bool reset;
	size_t n;

	snprintf(head, sizeof(head), "GET http://%s/ HTTP/1.1\r\n"
	    "Host: %s\r\n\r\n", name, name);
	say(fd, head);
	n = stage_read_all(fd, got, sizeof(got) - 1, &reset);
	got[n] = '\0';
	assert_memory_equal(got, "HTTP/1.1 403", 12);
	close(fd);
}

/* The one that was just refused has a record of its own, and an end. */
static void
is_told_whole(enum reason why)
{
	const struct record *r = stage_record(RECORD_DECISION);
	uint64_t connection = r->connection;

	assert_int_equal(r->reason, why);
	assert_int_equal(r->count, 0);
	assert_int_not_equal(connection, 0);
	r = stage_record(RECORD_END);
	assert_int_equal(r->connection, connection);
	assert_int_equal(r->how, HOW_REFUSED);
	assert_int_not_equal(r->bytes_down, 0);
}

static const struct record *
the_rest_is(uint32_t n, enum reason why)
{
	const struct record *r = stage_record(RECORD_DECISION);

	assert_int_equal(r->verdict, VERDICT_DENY);
	assert_int_equal(r->reason, why);
	assert_int_equal(r->count, n);
	assert_int_equal(r->connection, 0);
	assert_int_equal(r->request, 0);
	assert_true(span_eq(record_get(r, TEXT_CELL), span_str("cell")));
	assert_true(span_eq(record_get(r, TEXT_DETAIL),
	    span_str(FOLD_DETAIL)));
	return r;
}

static void
refused_requests(unsigned n)
{
	char name[32];

	for (unsigned i = 0; i < n; i++) {
		snprintf(name, sizeof(name), "n%u.test", i);
		asks_for(name);
		if (i < FOLD_DISTINCT)
			is_told_whole(REASON_NO_RULE);
	}
}

static void
of_refused_requests_the_rest_is_one_record(void **state)
{
	const struct record *r;

	(void)state;
	stage_up(NULL, NULL);
	refused_requests(FLOOD);
	assert_true(stage_no_record(RECORD_DECISION));
	/* one for another reason has a record of its own */
	asks_for("denied.test");
	is_told_whole(REASON_RULE_DENY);
	stage_stop();
	r = the_rest_is(FLOOD - FOLD_DISTINCT, REASON_NO_RULE);
	assert_int_equal(record_get(r, TEXT_NAME).len, 0);
	assert_int_equal(r->name_from, NAME_FROM_HOST);
	assert_true(span_eq(record_get(r, TEXT_METHOD), span_str("GET")));
	assert_int_equal(r->dialled.port, 80);
	assert_true(stage_no_record(RECORD_DECISION));
	stage_down();
}

static void
of_refused_hellos_the_rest_is_one_record(void **state)
{
	const struct record *r;
	bool reset;

	(void)state;
	stage_up(NULL, NULL);
	for (unsigned i = 0; i < FLOOD; i++) {
		size_t n = stage_hello("evil.test", hello, sizeof(hello));
		int fd = stage_connect(WANTED, 443);

		stage_send(fd, hello, n);
		/* an alert */
		assert_int_equal(stage_read_all(fd, got, sizeof(got), &reset),
		    7);
		close(fd);
		if (i < FOLD_DISTINCT)
			is_told_whole(REASON_NO_RULE);
	}
	stage_stop();
	r = the_rest_is(FLOOD - FOLD_DISTINCT, REASON_NO_RULE);
	assert_true(span_eq(record_get(r, TEXT_NAME), span_str("evil.test")));
	assert_int_equal(r->original.port, 443);
	assert_true(stage_no_record(RECORD_DECISION));
	stage_down();
}

/* A tunnel that is allowed, and denied for what is shown inside. */
static void
lies_inside(int origin)
{
	size_t n = stage_hello("evil.test", hello, sizeof(hello));
	int fd = stage_connect(WANTED, 3128), server;
	bool reset;

	say(fd, "CONNECT allowed.test:443 HTTP/1.1\r\n"
	    "Host: allowed.test:443\r\n\r\n");
	stage_read_head(fd, got, sizeof(got));
	assert_memory_equal(got, "HTTP/1.1 200", 12);
	server = stage_accept(origin);
	assert_true(server >= 0);
	stage_send(fd, hello, n);
	stage_read_all(fd, got, sizeof(got), &reset);
	close(fd);
	close(server);
}

static void
what_was_allowed_is_told_whole_in_a_flood(void **state)
{
	const struct record *r;
	int origin;

	(void)state;
	stage_up(NULL, NULL);
	origin = stage_listen(ORIGIN, 443);
	for (unsigned i = 0; i < FLOOD; i++) {
		uint64_t connection;

		lies_inside(origin);
		r = stage_record(RECORD_DECISION);
		connection = r->connection;
		assert_int_equal(r->verdict, VERDICT_ALLOW);
		r = stage_record(RECORD_DECISION);
		assert_int_equal(r->verdict, VERDICT_DENY);
		assert_int_equal(r->connection, connection);
		assert_int_equal(r->count, 0);
		r = stage_record(RECORD_END);
		assert_int_equal(r->connection, connection);
		assert_int_equal(r->verdict, VERDICT_DENY);
	}
	stage_stop();
	assert_true(stage_no_record(RECORD_DECISION));
	close(origin);
	stage_down();
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(of_refused_requests_the_rest_is_one_record),
		cmocka_unit_test(of_refused_hellos_the_rest_is_one_record),
		cmocka_unit_test(what_was_allowed_is_told_whole_in_a_flood),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
