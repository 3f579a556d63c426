/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/way.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A socket on every address of a family that hears where it was spoken to. */
static int
server(sa_family_t family, struct endpoint *at)
{
	struct sockaddr_storage ss = { .ss_family = family };
	socklen_t len = sizeof(ss);
	const int one = 1;
	int fd = socket(family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(family == AF_INET6 ? setsockopt(fd, IPPROTO_IPV6,
	    IPV6_RECVPKTINFO, &one, sizeof(one)) : setsockopt(fd, SOL_IP,
	    IP_PKTINFO, &one, sizeof(one)), 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&ss, family == AF_INET6 ?
	    sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in)), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&ss, &len), 0);
	assert_true(endpoint_from_sockaddr(at, &ss));
	return fd;
}

/* The client is connected, so only an answer from there reaches it. */
static int
client(const char *addr, uint16_t port)
{
	struct endpoint to = { .port = port };
	struct sockaddr_storage ss;
	socklen_t len;
	int fd;

	assert_true(addr_parse(&to.addr, span_str(addr)));
	len = endpoint_to_sockaddr(&to, &ss);
	fd = socket(ss.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&ss, len), 0);
	return fd;
}

/* All that has come, at most `max`; asked for again while there is none. */
static unsigned
received(struct way_batch *b, int fd, unsigned min)
{
	unsigned n = 0;

	for (unsigned i = 0; i < 1000 && n < min; i++) {
		n = way_batch_recv(b, fd);
		if (n < min)
			(void)poll(NULL, 0, 1);
	}
	return n;
}

static void
answer_from(const char *addr, sa_family_t family)
{
	struct way_batch *b = way_batch_new();
	struct endpoint at;
	struct way way;
	char got[16] = "";
	int us = server(family, &at), it = client(addr, at.port);
	struct addr asked;

	assert_non_null(b);
	assert_int_equal(send(it, "question", 8, 0), 8);
	assert_int_equal(received(b, us, 1), 1);
	assert_true(span_eq(way_batch_get(b, 0, &way), span_str("question")));
	assert_true(addr_parse(&asked, span_str(addr)));
	assert_true(way.has_local);
	assert_true(addr_eq(&way.local, &asked));
	assert_true(way.ifindex > 0);
	way_batch_put(b, &way, span_str("answer"));
	assert_int_equal(recv(it, got, sizeof(got), MSG_DONTWAIT), -1);
	way_batch_flush(b);
	assert_int_equal(recv(it, got, sizeof(got), MSG_DONTWAIT), 6);
	assert_memory_equal(got, "answer", 6);
	way_batch_free(b);
	close(us);
	close(it);
}

static void
an_answer_leaves_from_where_the_question_went(void **state)
{
	(void)state;
	answer_from("127.0.0.1", AF_INET);
	answer_from("127.0.0.53", AF_INET);
	answer_from("127.1.2.3", AF_INET);
	answer_from("::1", AF_INET6);
}

static void
many_are_read_and_answered_each_to_its_client(void **state)
{
	struct way_batch *b = way_batch_new();
	char text[16], got[16];
	struct endpoint at;
	struct way way;
	int us = server(AF_INET, &at), it[WAY_BATCH];

	(void)state;
	for (int i = 0; i < (int)WAY_BATCH; i++) {
		it[i] = client("127.0.0.1", at.port);
		snprintf(text, sizeof(text), "%d", i);
		assert_true(send(it[i], text, strlen(text), 0) > 0);
	}
	assert_int_equal(received(b, us, WAY_BATCH), WAY_BATCH);
	/* more than one flush has room for */
	for (unsigned round = 0; round < 2; round++)
		for (unsigned i = 0; i < WAY_BATCH; i++) {
			struct span q = way_batch_get(b, i, &way);

			way_batch_put(b, &way, q);
		}
	way_batch_flush(b);
	for (int i = 0; i < (int)WAY_BATCH; i++) {
		snprintf(text, sizeof(text), "%d", i);
		for (unsigned round = 0; round < 2; round++) {
			memset(got, 0, sizeof(got));
			assert_true(recv(it[i], got, sizeof(got) - 1,
			    MSG_DONTWAIT) > 0);
			assert_string_equal(got, text);
		}
		assert_int_equal(recv(it[i], got, 1, MSG_DONTWAIT), -1);
		close(it[i]);
	}
	way_batch_free(b);
	close(us);
}

/* Its client's address cannot be answered; the next one is all the same. */
static void
one_that_cannot_leave_keeps_no_other_back(void **state)
{
	struct way_batch *b = way_batch_new();
	struct endpoint at;
	struct way way, nowhere;
	char got[16];
	int us = server(AF_INET, &at), it = client("127.0.0.1", at.port);

	(void)state;
	assert_int_equal(send(it, "q", 1, 0), 1);
	assert_int_equal(received(b, us, 1), 1);
	(void)way_batch_get(b, 0, &way);
	nowhere = way;
	nowhere.peer_len = 3;
	way_batch_put(b, &way, span_str("one"));
	way_batch_put(b, &nowhere, span_str("two"));
	way_batch_put(b, &way, span_str("three"));
	way_batch_flush(b);
	assert_int_equal(recv(it, got, sizeof(got), MSG_DONTWAIT), 3);
	assert_int_equal(recv(it, got, sizeof(got), MSG_DONTWAIT), 5);
	way_batch_free(b);
	close(us);
	close(it);
}

static void
nothing_there_is_said(void **state)
{
	struct way_batch *b = way_batch_new();
	struct endpoint at;
	int us = server(AF_INET, &at);

	(void)state;
	assert_int_equal(way_batch_recv(b, us), 0);
	assert_int_equal(errno, EAGAIN);
	way_batch_flush(b);
	way_batch_free(b);
	close(us);
}

static void
one_that_is_too_long_is_cut_or_stays(void **state)
{
	static char big[WAY_MAX_BYTES + 1];
	struct way_batch *b = way_batch_new();
	struct endpoint at;
	struct way way;
	char got[16];
	int us = server(AF_INET, &at), it = client("127.0.0.1", at.port);

	(void)state;
	memset(big, 'x', sizeof(big));
	assert_int_equal(send(it, big, sizeof(big), 0), sizeof(big));
	assert_int_equal(received(b, us, 1), 1);
	assert_int_equal(way_batch_get(b, 0, &way).len, WAY_QUERY_BYTES);
	way_batch_put(b, &way, span_of((uint8_t *)big, sizeof(big)));
	way_batch_flush(b);
	assert_int_equal(recv(it, got, sizeof(got), MSG_DONTWAIT), -1);
	way_batch_free(b);
	close(us);
	close(it);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_answer_leaves_from_where_the_question_went),
		cmocka_unit_test(many_are_read_and_answered_each_to_its_client),
		cmocka_unit_test(one_that_cannot_leave_keeps_no_other_back),
		cmocka_unit_test(nothing_there_is_said),
		cmocka_unit_test(one_that_is_too_long_is_cut_or_stays),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
