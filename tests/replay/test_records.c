/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the ledger learns of connections that end badly.  The program is linked
 * with --wrap, so that memory can be missing at one place.
 */
#include "tests/replay/stage.h"

#include <arpa/inet.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proxy/conn.h"

static atomic_bool no_conn, no_end;	/* no memory for these */
static uint8_t hello[1024];
static char got[8192];

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);

void *
__wrap_malloc(size_t n)
{
	if (atomic_load(&no_end) && n >= offsetof(struct record, text) &&
	    n <= sizeof(struct record))
		return NULL;
	return __real_malloc(n);
}

void *
__wrap_calloc(size_t n, size_t size)
{
	if (atomic_load(&no_conn) && size == sizeof(struct conn))
		return NULL;
	return __real_calloc(n, size);
}

static void
is_at(const struct endpoint *e, const char *addr, uint16_t port)
{
	char text[ADDR_TEXT_BYTES];

	assert_string_equal(addr_text(&e->addr, text), addr);
	assert_int_equal(e->port, port);
}

static void
is_text(const struct record *r, enum record_text which, const char *text)
{
	struct span s = record_get(r, which);

	if (!span_eq(s, span_str(text)))
		fail_msg("'%.*s' is not '%s'", (int)s.len, s.data, text);
}

/* A denial that became no connection. */
static const struct record *
turned_away(enum reason why)
{
	const struct record *r;

	do
		r = stage_record(RECORD_DECISION);
	while (r->connection != 0);
	assert_int_equal(r->verdict, VERDICT_DENY);
	assert_int_equal(r->reason, why);
	assert_int_equal(r->generation, 1);
	return r;
}

static void
is_reset(int fd)
{
	bool reset;

	assert_int_equal(stage_read_all(fd, got, sizeof(got), &reset), 0);
	assert_true(reset);
	close(fd);
}

/* ---- no place, no answer ---- */

enum { TOLD = 256, MORE = 6 };

static void
a_crowd_beyond_the_limit_is_told_of_in_two_records(void **state)
{
	struct proxy_limits l = stage_limits;
	const struct record *r;
	int fd[1 + TOLD];

	(void)state;
	l.per_client = 1;
	l.hello_ms = l.linger_ms = 20000;
	stage_up(NULL, &l);
	for (int i = 0; i < 1 + TOLD; i++)
		fd[i] = stage_connect(WANTED, 3128);
	for (int i = 1; i < 1 + TOLD; i++)
		stage_expect(fd[i], "HTTP/1.1 503", 12);
	for (int i = 0; i < MORE; i++)
		is_reset(stage_connect(WANTED, i < 2 ? 443 : 80));
	r = turned_away(REASON_LIMIT_CLIENT);
	assert_int_equal(r->via, VIA_TPROXY);
	assert_int_equal(r->count, 0);
	is_at(&r->client, WANTED, r->client.port);
	assert_int_not_equal(r->client.port, 0);
	is_at(&r->original, WANTED, 443);
	assert_true(stage_no_record(RECORD_DECISION));
	for (int i = 0; i < 1 + TOLD; i++)
		close(fd[i]);
	stage_stop();
	r = turned_away(REASON_LIMIT_CLIENT);
	assert_int_equal(r->count, MORE - 1);
	assert_int_equal(r->original.port, 0);	/* not all the same */
	assert_true(stage_no_record(RECORD_DECISION));
	stage_down();
}

static void
without_memory_for_a_connection_there_is_a_record(void **state)
{
	const struct record *r;

	(void)state;
	stage_up(NULL, NULL);
	atomic_store(&no_conn, true);
	is_reset(stage_connect(WANTED, 443));
	r = turned_away(REASON_LIMIT_MEMORY);
	is_at(&r->original, WANTED, 443);
	atomic_store(&no_conn, false);
	stage_down();
}

static void
B028_W34_without_a_descriptor_there_is_a_record(void **state)
{
	struct rlimit old, few;
	struct sockaddr_storage ss;
	struct endpoint e = { .port = 443 };
	const struct record *r;
	int fd[8];

	(void)state;
	stage_up(NULL, NULL);
	assert_true(addr_parse(&e.addr, span_str(WANTED)));
	endpoint_to_sockaddr(&e, &ss);
	for (int i = 0; i < 8; i++)	/* made before the limit: they stay */
		fd[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	getrlimit(RLIMIT_NOFILE, &old);
	few = old;
	few.rlim_cur = (rlim_t)fd[7] + 2;
	setrlimit(RLIMIT_NOFILE, &few);
	for (int i = 0; i < 8; i++)
		assert_int_equal(connect(fd[i], (struct sockaddr *)&ss,
		    sizeof(struct sockaddr_in)), 0);
	r = turned_away(REASON_LIMIT_DESCRIPTORS);
	assert_int_equal(r->via, VIA_TPROXY);
	is_at(&r->client, WANTED, r->client.port);
	is_at(&r->original, WANTED, 443);
	for (int i = 0; i < 8; i++)
		close(fd[i]);
	setrlimit(RLIMIT_NOFILE, &old);
	usleep(300000);
	stage_down();
}

static void
a_denial_is_told_without_memory_for_its_end(void **state)
{
	size_t n = stage_hello("denied.test", hello, sizeof(hello));
	const struct record *r;
	bool reset;
	int fd;

	(void)state;
	stage_up(NULL, NULL);
	atomic_store(&no_end, true);
	fd = stage_connect(WANTED, 443);
	stage_send(fd, hello, n);
	stage_read_all(fd, got, sizeof(got), &reset);
	close(fd);
	r = stage_record(RECORD_DECISION);
	assert_int_equal(r->verdict, VERDICT_DENY);
	assert_int_equal(r->reason, REASON_RULE_DENY);
	is_text(r, TEXT_NAME, "denied.test");
	atomic_store(&no_end, false);
	stage_down();
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
		    a_crowd_beyond_the_limit_is_told_of_in_two_records),
		cmocka_unit_test(
		    without_memory_for_a_connection_there_is_a_record),
		cmocka_unit_test(
		    B028_W34_without_a_descriptor_there_is_a_record),
		cmocka_unit_test(a_denial_is_told_without_memory_for_its_end),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
