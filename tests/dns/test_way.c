/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/way.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <netinet/in.h>
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

static void
answer_from(const char *addr, sa_family_t family)
{
	struct endpoint at;
	struct way way = { 0 };
	char got[16] = "";
	int us = server(family, &at), it = client(addr, at.port);
	struct addr asked;

	assert_int_equal(send(it, "question", 8, 0), 8);
	assert_int_equal(way_recv(&way, us, got, sizeof(got)), 8);
	assert_memory_equal(got, "question", 8);
	assert_true(addr_parse(&asked, span_str(addr)));
	assert_true(way.has_local);
	assert_true(addr_eq(&way.local, &asked));
	assert_true(way.ifindex > 0);
	way_send(&way, span_str("answer"));
	assert_int_equal(recv(it, got, sizeof(got), MSG_DONTWAIT), 6);
	assert_memory_equal(got, "answer", 6);
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
nothing_there_is_said(void **state)
{
	struct endpoint at;
	struct way way = { 0 };
	char got[16];
	int us = server(AF_INET, &at);

	(void)state;
	assert_int_equal(way_recv(&way, us, got, sizeof(got)), -1);
	assert_int_equal(errno, EAGAIN);
	close(us);
}

static void
one_that_is_too_long_is_cut(void **state)
{
	struct endpoint at;
	struct way way = { 0 };
	char big[200], got[16];
	int us = server(AF_INET, &at), it = client("127.0.0.1", at.port);

	(void)state;
	memset(big, 'x', sizeof(big));
	assert_int_equal(send(it, big, sizeof(big), 0), sizeof(big));
	assert_int_equal(way_recv(&way, us, got, sizeof(got)), sizeof(got));
	close(us);
	close(it);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_answer_leaves_from_where_the_question_went),
		cmocka_unit_test(nothing_there_is_said),
		cmocka_unit_test(one_that_is_too_long_is_cut),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
