/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/front_tcp.h"

#include <event2/buffer.h>
#include <net/if.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

/* Each message is answered with itself. */
struct world {
	struct event_base *base;
	struct front_tcp_listener *listener;
	struct sockaddr_storage where;
	socklen_t where_len;
	unsigned messages, ifindex, refused;
	enum reason why;
	size_t len;
	struct endpoint client;
};

static void
on_message(void *arg, struct front_tcp *conn, int fd,
    const struct endpoint *client, struct span msg)
{
	struct world *w = arg;

	assert_true(fd >= 0);
	w->messages++;
	w->len = msg.len;
	w->client = *client;
	w->ifindex = front_tcp_ifindex(conn);
	front_tcp_answer(conn, msg);
}

/* evbuffer_expand() in the archive of the layer. */
int __real_evbuffer_expand(struct evbuffer *buf, size_t n);
int __wrap_evbuffer_expand(struct evbuffer *buf, size_t n);

static bool no_memory;

int
__wrap_evbuffer_expand(struct evbuffer *buf, size_t n)
{
	return no_memory ? -1 : __real_evbuffer_expand(buf, n);
}

static void
on_refused(void *arg, const struct endpoint *client, enum reason why)
{
	struct world *w = arg;

	w->refused++;
	w->why = why;
	assert_int_equal(client->port, w->client.port);
}

static struct world *
world_new(int family)
{
	struct world *w = calloc(1, sizeof(*w));
	struct front_tcp_settings s = { .max = 8, .idle_ms = 5000,
	    .message = on_message, .refused = on_refused, .arg = w };
	struct sockaddr_in *v4 = (struct sockaddr_in *)&w->where;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&w->where;
	int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC,
	    0);

	assert_true(fd >= 0);
	s.base = w->base = event_base_new();
	w->where.ss_family = (sa_family_t)family;
	if (family == AF_INET)
		v4->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	else
		v6->sin6_addr = in6addr_loopback;
	w->where_len = sizeof(w->where);
	assert_int_equal(bind(fd, (struct sockaddr *)&w->where,
	    family == AF_INET ? sizeof(*v4) : sizeof(*v6)), 0);
	assert_int_equal(listen(fd, 16), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&w->where,
	    &w->where_len), 0);
	w->listener = front_tcp_listen(&s, fd);
	assert_non_null(w->listener);
	return w;
}

static void
world_free(struct world *w)
{
	front_tcp_close(w->listener);
	event_base_free(w->base);
	free(w);
}

static int
dial(const struct world *w)
{
	int fd = socket(w->where.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (const struct sockaddr *)&w->where,
	    w->where_len), 0);
	return fd;
}

/* Turn the loop for so long; returns the processor time it took. */
static long
work_ms(struct world *w, long ms)
{
	struct timeval tv = { ms / 1000, ms % 1000 * 1000 };
	struct rusage a, b;

	getrusage(RUSAGE_SELF, &a);
	event_base_loopexit(w->base, &tv);
	event_base_dispatch(w->base);
	getrusage(RUSAGE_SELF, &b);
	return (b.ru_utime.tv_sec - a.ru_utime.tv_sec + b.ru_stime.tv_sec -
	    a.ru_stime.tv_sec) * 1000 + (b.ru_utime.tv_usec -
	    a.ru_utime.tv_usec + b.ru_stime.tv_usec - a.ru_stime.tv_usec) /
	    1000;
}

static void
comes_back(struct world *w, int fd)
{
	char c[8];

	assert_int_equal(send(fd, "\0\3abc", 5, MSG_NOSIGNAL), 5);
	(void)work_ms(w, 20);
	assert_int_equal(recv(fd, c, sizeof(c), MSG_DONTWAIT), 5);
	assert_memory_equal(c, "\0\3abc", 5);
}

static void
the_interface_and_the_client_are_known_of_both_families(void **state)
{
	static const int families[] = { AF_INET, AF_INET6 };

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		struct world *w = world_new(families[i]);
		int fd = dial(w);

		comes_back(w, fd);
		assert_int_equal(w->ifindex, if_nametoindex("lo"));
		assert_int_equal(addr_is_v4(&w->client.addr), i == 0);
		close(fd);
		world_free(w);
	}
}

static void
empty_and_longest_messages_are_whole(void **state)
{
	struct world *w = world_new(AF_INET);
	static char big[2 + 65535];
	int fd = dial(w);
	size_t at = 0;

	(void)state;
	for (unsigned i = 0; i < 1000; i++)
		assert_int_equal(send(fd, "\0\0", 2, MSG_NOSIGNAL), 2);
	(void)work_ms(w, 50);
	assert_int_equal(w->messages, 1000);
	assert_int_equal(w->len, 0);
	big[0] = big[1] = '\377';
	while (at < sizeof(big)) {
		ssize_t n = send(fd, big + at, sizeof(big) - at,
		    MSG_DONTWAIT | MSG_NOSIGNAL);

		at += n > 0 ? (size_t)n : 0;
		(void)work_ms(w, 5);
	}
	(void)work_ms(w, 50);
	assert_int_equal(w->messages, 1001);
	assert_int_equal(w->len, 65535);
	close(fd);
	world_free(w);
}

static void
without_descriptors_accepting_pauses_and_goes_on(void **state)
{
	struct world *w = world_new(AF_INET);
	struct rlimit was, now;
	int fd = dial(w);

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
	now = was;
	now.rlim_cur = (rlim_t)fd + 1;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &now), 0);
	assert_in_range(work_ms(w, 500), 0, 200);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
	(void)work_ms(w, 300);
	comes_back(w, fd);
	close(fd);
	world_free(w);
}

static void
an_answer_without_memory_ends_its_connection_with_a_reason(void **state)
{
	struct world *w = world_new(AF_INET);
	int fd = dial(w), other = dial(w);
	char c;

	(void)state;
	no_memory = true;
	assert_int_equal(send(fd, "\0\3abc\0\3abc", 10, MSG_NOSIGNAL), 10);
	(void)work_ms(w, 30);
	no_memory = false;
	assert_int_equal(w->refused, 1);
	assert_int_equal(w->why, REASON_LIMIT_MEMORY);
	assert_true(recv(fd, &c, 1, MSG_DONTWAIT) == 0);
	comes_back(w, other);
	assert_int_equal(w->refused, 1);
	close(fd);
	close(other);
	world_free(w);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
		    the_interface_and_the_client_are_known_of_both_families),
		cmocka_unit_test(empty_and_longest_messages_are_whole),
		cmocka_unit_test(
		    an_answer_without_memory_ends_its_connection_with_a_reason),
		cmocka_unit_test(
		    without_descriptors_accepting_pauses_and_goes_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
