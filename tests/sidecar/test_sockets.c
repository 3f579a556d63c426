/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/sockets.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static struct endpoint
endpoint(const char *text, uint16_t port)
{
	struct endpoint e = { .port = port };

	assert_true(addr_parse(&e.addr, span_str(text)));
	return e;
}

static uint16_t
port_of(int fd)
{
	struct sockaddr_storage sa;
	struct endpoint e;
	socklen_t len = sizeof(sa);

	assert_int_equal(getsockname(fd, (struct sockaddr *)&sa, &len), 0);
	assert_true(endpoint_from_sockaddr(&e, &sa));
	return e.port;
}

static int
option(int fd, int level, int name)
{
	int v = -1;
	socklen_t len = sizeof(v);

	assert_int_equal(getsockopt(fd, level, name, &v, &len), 0);
	return v;
}

static int
client_of(const struct endpoint *e)
{
	struct sockaddr_storage sa;
	socklen_t len = endpoint_to_sockaddr(e, &sa);
	int c = socket(sa.ss_family, SOCK_STREAM, 0);

	assert_int_equal(connect(c, (struct sockaddr *)&sa, len), 0);
	return c;
}

static void
accepted_connections_inherit_what_they_need(void **state)
{
	struct endpoint e = endpoint("127.0.0.1", 0);
	int fd = sockets_listen(&e, false), c, a;

	(void)state;
	assert_true(fd >= 0);
	assert_true((fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
	assert_true((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
	e.port = port_of(fd);
	c = client_of(&e);
	a = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
	assert_true(a >= 0);
	assert_int_equal(option(a, IPPROTO_TCP, TCP_NODELAY), 1);
	assert_int_equal(option(a, SOL_SOCKET, SO_KEEPALIVE), 1);
	assert_int_equal(option(a, IPPROTO_TCP, TCP_KEEPIDLE), 60);
	close(a);
	close(c);
	close(fd);
}

static void
both_wildcards_of_one_port_can_be_bound(void **state)
{
	struct endpoint v4 = { .port = 0 }, v6 = { .port = 0 };
	static const uint8_t zero[4];
	int a, b;

	(void)state;
	v4.addr = addr_from_v4(zero);
	a = sockets_listen(&v4, false);
	assert_true(a >= 0);
	v6.port = port_of(a);
	b = sockets_listen(&v6, false);
	assert_true(b >= 0);
	assert_int_equal(option(b, IPPROTO_IPV6, IPV6_V6ONLY), 1);
	close(a);
	close(b);
}

static void
transparent_sockets_are(void **state)
{
	struct endpoint v4 = endpoint("127.0.0.1", 0);
	struct endpoint v6 = endpoint("::1", 0);
	int a = sockets_listen(&v4, true), b = sockets_listen(&v6, true);

	(void)state;
	assert_true(a >= 0 && b >= 0);
	assert_int_equal(option(a, SOL_IP, IP_TRANSPARENT), 1);
	assert_int_equal(option(b, IPPROTO_IPV6, IPV6_TRANSPARENT), 1);
	close(a);
	close(b);
}

static void
nobody_can_share_the_dns_port(void **state)
{
	struct endpoint e = endpoint("127.0.0.1", 0);
	struct sockaddr_storage sa;
	socklen_t len;
	int fd = sockets_dns_udp(&e, false), thief, one = 1;

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(option(fd, SOL_IP, IP_PKTINFO), 1);
	/* the kernel counts twice what is asked for */
	if (geteuid() == 0)
		assert_in_range(option(fd, SOL_SOCKET, SO_RCVBUF),
		    2 * SOCKETS_UDP_BYTES, 4 * SOCKETS_UDP_BYTES);
	e.port = port_of(fd);
	len = endpoint_to_sockaddr(&e, &sa);
	thief = socket(AF_INET, SOCK_DGRAM, 0);
	setsockopt(thief, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	setsockopt(thief, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one));
	assert_int_equal(bind(thief, (struct sockaddr *)&sa, len), -1);
	assert_int_equal(errno, EADDRINUSE);
	assert_int_equal(sockets_dns_udp(&e, false), -EADDRINUSE);
	close(thief);
	close(fd);
}

static void
an_old_admin_socket_gives_way_and_a_file_does_not(void **state)
{
	char dir[] = "/tmp/penstock-test-XXXXXX", at[64];
	struct stat st;
	int a, b, file;

	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(at, sizeof(at), "unix:%s/s", dir);
	a = sockets_admin(at);
	assert_true(a >= 0);
	assert_int_equal(stat(at + 5, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0660);
	close(a);
	b = sockets_admin(at);
	assert_true(b >= 0);
	close(b);
	unlink(at + 5);
	file = open(at + 5, O_CREAT | O_WRONLY, 0600);
	assert_int_equal(sockets_admin(at), -EEXIST);
	close(file);
	unlink(at + 5);
	rmdir(dir);
	assert_int_equal(sockets_admin("localhost:1"), -EINVAL);
}

static int
unix_client(const char *path)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);

	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", path);
	if (connect(fd, (struct sockaddr *)&sa, sizeof(sa)) == 0)
		return fd;
	close(fd);
	return -1;
}

/* A second one took the first one's path, and probes asked the wrong one. */
static void
an_admin_socket_that_is_served_stays(void **state)
{
	char dir[] = "/tmp/penstock-test-XXXXXX", at[64];
	struct sockaddr_un other = { .sun_family = AF_UNIX };
	int a, c[80], n = 0, dgram;

	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(at, sizeof(at), "unix:%s/s", dir);
	a = sockets_admin(at);
	assert_true(a >= 0);
	assert_int_equal(sockets_admin(at), -EADDRINUSE);
	/* also while more wait there than it takes */
	while (n < 80 && (c[n] = unix_client(at + 5)) >= 0)
		n++;
	assert_in_range(n, 1, 79);
	assert_int_equal(sockets_admin(at), -EADDRINUSE);
	while (n > 0)
		close(c[--n]);
	close(a);
	unlink(at + 5);
	/* and one of another kind */
	snprintf(other.sun_path, sizeof(other.sun_path), "%s", at + 5);
	dgram = socket(AF_UNIX, SOCK_DGRAM, 0);
	assert_int_equal(bind(dgram, (struct sockaddr *)&other,
	    sizeof(other)), 0);
	assert_int_equal(sockets_admin(at), -EADDRINUSE);
	close(dgram);
	a = sockets_admin(at);
	assert_true(a >= 0);
	close(a);
	unlink(at + 5);
	rmdir(dir);
}

static void
what_waits_is_reset(void **state)
{
	struct endpoint e = endpoint("127.0.0.1", 0);
	int fd = sockets_listen(&e, false), c[3];
	char b;

	(void)state;
	assert_true(fd >= 0);
	e.port = port_of(fd);
	for (size_t i = 0; i < 3; i++)
		c[i] = client_of(&e);
	sockets_reset_waiting(fd, 2);
	for (size_t i = 0; i < 2; i++) {
		assert_int_equal(recv(c[i], &b, 1, 0), -1);
		assert_int_equal(errno, ECONNRESET);
	}
	assert_int_equal(recv(c[2], &b, 1, MSG_DONTWAIT), -1);
	assert_int_equal(errno, EAGAIN);
	sockets_reset_waiting(fd, 2);
	assert_int_equal(recv(c[2], &b, 1, 0), -1);
	for (size_t i = 0; i < 3; i++)
		close(c[i]);
	close(fd);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(accepted_connections_inherit_what_they_need),
		cmocka_unit_test(both_wildcards_of_one_port_can_be_bound),
		cmocka_unit_test(transparent_sockets_are),
		cmocka_unit_test(nobody_can_share_the_dns_port),
		cmocka_unit_test(
		    an_old_admin_socket_gives_way_and_a_file_does_not),
		cmocka_unit_test(an_admin_socket_that_is_served_stays),
		cmocka_unit_test(what_waits_is_reset),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
