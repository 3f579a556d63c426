/* SPDX-License-Identifier: Apache-2.0 */
/* How verbs ask a daemon, also one that does not answer as it should. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ledger-client/clock.h"
#include "sidecar/admin_client.h"

#define OK "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\n"

static char dir[] = "/tmp/test_client.XXXXXX", where[64];
static char body[ADMIN_CLIENT_BODY_BYTES];
static int lfd = -1;

static int
listen_unix(int backlog)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };

	unlink(where + 5);
	strcpy(sa.sun_path, where + 5);
	lfd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	return lfd < 0 || bind(lfd, (struct sockaddr *)&sa,
	    sizeof(sa)) != 0 || listen(lfd, backlog) != 0;
}

static int
up(void **state)
{
	(void)state;
	memset(body, 'x', sizeof(body));
	return listen_unix(4);
}

static int
down(void **state)
{
	(void)state;
	close(lfd);
	unlink(where + 5);
	return 0;
}

/* A daemon that answers one question so; what it was asked must begin so. */
static pid_t
answer(const char *ask, const char *text, size_t len)
{
	char got[512] = "";
	pid_t p = fork();
	int fd;

	if (p != 0)
		return p;
	alarm(20);
	fd = accept(lfd, NULL, NULL);
	if (recv(fd, got, sizeof(got) - 1, 0) <= 0 ||
	    strncmp(got, ask, strlen(ask)) != 0)
		_exit(1);
	for (size_t at = 0; at < len;) {
		ssize_t n = send(fd, text + at, len - at, MSG_NOSIGNAL);

		if (n <= 0)
			_exit(0);
		at += (size_t)n;
	}
	_exit(0);
}

static void
was_asked(pid_t p)
{
	int status;

	assert_int_equal(waitpid(p, &status, 0), p);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static int
get(const char *path, const char *text)
{
	pid_t p = answer("GET ", text, strlen(text));
	int rc = admin_client_get(where, path, body);

	was_asked(p);
	return rc;
}

static void
an_answer_is_its_status_and_its_body(void **state)
{
	pid_t p = answer("GET /status HTTP/1.1\r\nHost: penstock\r\n\r\n",
	    OK "hello", strlen(OK "hello"));

	(void)state;
	assert_int_equal(admin_client_get(where, "/status", body), 200);
	assert_string_equal(body, "hello");
	was_asked(p);
	assert_int_equal(get("/readyz", "HTTP/1.1 503 Service Unavailable\r\n"
	    "Content-Length: 0\r\n\r\n"), 503);
	assert_string_equal(body, "");
}

static void
over_tcp_too(void **state)
{
	struct sockaddr_in6 at = { .sin6_family = AF_INET6,
	    .sin6_addr = IN6ADDR_ANY_INIT };
	static const char *const hosts[] = { "127.0.0.1", "[::1]" };
	socklen_t len = sizeof(at);
	char text[64];
	pid_t p;

	(void)state;
	close(lfd);
	lfd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(lfd, (struct sockaddr *)&at, len), 0);
	assert_int_equal(listen(lfd, 4), 0);
	getsockname(lfd, (struct sockaddr *)&at, &len);
	for (size_t i = 0; i < 2; i++) {
		snprintf(text, sizeof(text), "%s:%u", hosts[i],
		    ntohs(at.sin6_port));
		p = answer("GET /", OK "hello", strlen(OK "hello"));
		assert_int_equal(admin_client_get(text, "/", body), 200);
		assert_string_equal(body, "hello");
		was_asked(p);
	}
}

static void
what_is_no_answer_is_told_as_that(void **state)
{
	static const char *const texts[] = { "", "SSH-2.0-x\r\n",
	    "HTTP/1.1 200 OK\r\nContent-Le", "HTTP/1.1 \r\n\r\n" };

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		assert_int_equal(get("/", texts[i]), -EBADMSG);
}

/* It is cut, and ends all the same. */
static void
a_body_beyond_the_room_is_cut(void **state)
{
	size_t len = 3 * ADMIN_CLIENT_BODY_BYTES, head;
	char *text = malloc(len);
	pid_t p;

	(void)state;
	memset(text, 'b', len);
	head = (size_t)snprintf(text, len, "HTTP/1.1 200 OK\r\n"
	    "Content-Length: %zu\r\n\r\n", len);
	text[head] = 'b';
	p = answer("GET ", text, len);
	assert_int_equal(admin_client_get(where, "/", body), 200);
	assert_int_equal(strlen(body), ADMIN_CLIENT_BODY_BYTES - 1 - head);
	was_asked(p);
	free(text);
}

static void
a_place_that_is_none_is_not_dialled(void **state)
{
	static const char *const bad[] = { "", "9090", "127.0.0.1",
	    "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:9x",
	    "localhost:9090", "[::1]", "[]:9090", ":9090",
	    "127.0.0.1:18446744073709551617" };
	char far[200] = "unix:/";

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (admin_client_get(bad[i], "/", body) != -EINVAL)
			fail_msg("\"%s\"", bad[i]);
	memset(far + 6, 'p', sizeof(far) - 7);
	assert_int_equal(admin_client_get(far, "/", body), -ENAMETOOLONG);
	assert_int_equal(admin_client_get("unix:/nobody/here", "/", body),
	    -ENOENT);
	close(lfd);
	assert_int_equal(admin_client_get(where, "/", body), -ECONNREFUSED);
	lfd = -1;
}

/* What it does meanwhile is no matter. */
static void
gives_up(pid_t p)
{
	int64_t before = clock_mono_ms(), took;

	alarm(30);
	assert_int_equal(admin_client_get(where, "/", body), -ETIMEDOUT);
	alarm(0);
	took = clock_mono_ms() - before;
	assert_in_range(took, 4500, 8000);
	if (p > 0) {
		kill(p, SIGKILL);
		waitpid(p, NULL, 0);
	}
}

static void
a_daemon_that_takes_nobody_is_given_up(void **state)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int fd[2];

	(void)state;
	close(lfd);
	assert_int_equal(listen_unix(0), 0);
	strcpy(sa.sun_path, where + 5);
	/* as many as wait */
	for (int i = 0; i < 2; i++) {
		fd[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
		(void)!connect(fd[i], (struct sockaddr *)&sa, sizeof(sa));
	}
	gives_up(0);
	close(fd[0]);
	close(fd[1]);
}

static void
a_daemon_that_is_silent_is_given_up(void **state)
{
	(void)state;
	gives_up(0);	/* nobody accepts it */
}

static void
a_daemon_that_trickles_is_given_up(void **state)
{
	pid_t p = fork();

	(void)state;
	if (p == 0) {
		int fd = accept(lfd, NULL, NULL);

		for (;;) {
			if (send(fd, "H", 1, MSG_NOSIGNAL) != 1)
				_exit(0);
			usleep(300000);
		}
	}
	gives_up(p);
}

/* ---- where it is ---- */

static void
who_names_a_place_needs_no_configuration(void **state)
{
	const char *admin = "unix:/x";

	(void)state;
	assert_int_equal(admin_client_where(&admin, "/nobody/here"), 0);
	assert_string_equal(admin, "unix:/x");
	admin = NULL;
	assert_int_not_equal(admin_client_where(&admin, "/nobody/here"), 0);
	assert_null(admin);
}

static void
else_it_is_where_the_configuration_says(void **state)
{
	char conf[128], policy[128];
	const char *admin = NULL;
	FILE *f;

	(void)state;
	snprintf(conf, sizeof(conf), "%s/penstock.yaml", dir);
	snprintf(policy, sizeof(policy), "%s/p.yaml", dir);
	f = fopen(policy, "w");
	fputs("version: 1\nnetwork:\n  resolvers: [198.18.0.1]\n  rule:\n"
	    "    - {verdict: allow, hostname: a.example}\n", f);
	fclose(f);
	f = fopen(conf, "w");
	fputs("version: 1\nmode: cooperative\nadmin: unix:/run/it.sock\n"
	    "cells: [{id: a, policy: [p.yaml]}]\n", f);
	fclose(f);
	assert_int_equal(admin_client_where(&admin, conf), 0);
	assert_string_equal(admin, "unix:/run/it.sock");
	unlink(conf);
	unlink(policy);
}

static int
make_dir(void **state)
{
	(void)state;
	if (mkdtemp(dir) == NULL)
		return -1;
	snprintf(where, sizeof(where), "unix:%s/admin", dir);
	return 0;
}

static int
remove_dir(void **state)
{
	(void)state;
	return rmdir(dir);
}

#define T(f) cmocka_unit_test_setup_teardown(f, up, down)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		T(an_answer_is_its_status_and_its_body),
		T(over_tcp_too),
		T(what_is_no_answer_is_told_as_that),
		T(a_body_beyond_the_room_is_cut),
		T(a_place_that_is_none_is_not_dialled),
		T(a_daemon_that_takes_nobody_is_given_up),
		T(a_daemon_that_is_silent_is_given_up),
		T(a_daemon_that_trickles_is_given_up),
		cmocka_unit_test(who_names_a_place_needs_no_configuration),
		cmocka_unit_test(else_it_is_where_the_configuration_says),
	};

	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
