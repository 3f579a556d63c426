/* SPDX-License-Identifier: Apache-2.0 */
/* Engines as they are started: what each of two writes down is taken as its
 * own, also of one that was started again; what is said of their limits. */
#include "tests/sidecar/daemon.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>

#include "sidecar/role.h"

#define TWO "version: 1\nmode: cooperative\nengines: 2\n" \
	"listeners: [{name: explicit, kind: explicit, " \
	"address: \"127.0.0.1:15080\"}]\n" \
	"cells: [{id: a, policy: [policy.yaml]}]\n"

#define CLIENTS 8
#define ROUNDS 12	/* fewer records than are folded */

/* Clients at the same time that are refused. */
static void
ask(void)
{
	static const char get_it[] = "GET http://evil.test/ HTTP/1.1\r\n"
	    "Host: evil.test\r\n\r\n";
	struct sockaddr_in at = { .sin_family = AF_INET,
	    .sin_port = htons(15080),
	    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	char answer[4096];
	int fd[CLIENTS];

	for (int i = 0; i < CLIENTS; i++) {
		fd[i] = socket(AF_INET, SOCK_STREAM, 0);
		if (connect(fd[i], (struct sockaddr *)&at, sizeof(at)) != 0)
			_exit(1);
	}
	for (int i = 0; i < CLIENTS; i++)
		if (write(fd[i], get_it, sizeof(get_it) - 1) < 0)
			_exit(2);
	for (int i = 0; i < CLIENTS; i++) {
		if (read(fd[i], answer, sizeof(answer)) < 12 ||
		    memcmp(answer, "HTTP/1.1 403", 12) != 0)
			_exit(3);
		close(fd[i]);
	}
}

/* In the daemon's network. */
static void
ask_often(void)
{
	pid_t p = fork();
	char path[64];
	int fd;

	if (p == 0) {
		snprintf(path, sizeof(path), "/proc/%d/ns/net",
		    (int)daemon_pid);
		fd = open(path, O_RDONLY);
		if (fd < 0 || setns(fd, CLONE_NEWNET) != 0)
			_exit(4);
		for (int i = 0; i < ROUNDS; i++)
			ask();
		_exit(0);
	}
	assert_int_equal(end_of(p), 0);
}

/* How many decisions there are of each engine in each of its lives. */
static void
count_decisions(unsigned n[2][2])
{
	char path[128], *line, *rest;

	path_of(path, "out");
	for (line = strtok_r(get(path), "\n", &rest); line != NULL;
	    line = strtok_r(NULL, "\n", &rest)) {
		char *at = strstr(line, "\"connection\":");
		unsigned long long id;

		assert_null(strstr(line, "\"kind\":\"gap\""));
		if (strstr(line, "\"kind\":\"decision\"") == NULL)
			continue;
		assert_non_null(at);
		id = strtoull(at + strlen("\"connection\":"), NULL, 10);
		for (unsigned i = 0; i < 4; i++)
			n[i / 2][i % 2] += id >= role_first_connection(i / 2,
			    i % 2) && id < role_first_connection(i / 2,
			    i % 2) + 1000;
	}
}

static void
each_has_numbers_of_its_own_in_each_of_its_lives(void **state)
{
	unsigned n[2][2] = { { 0 } };
	pid_t old[2];

	(void)state;
	put("penstock.yaml", TWO);
	start_ready(0);
	ask_often();
	for (int i = 0; i < 2; i++) {
		old[i] = role_pid("engine", i);
		assert_true(old[i] > 0);
	}
	for (int i = 0; i < 2; i++)
		kill(old[i], SIGKILL);
	expect_log("role ended role=engine index=0");
	expect_log("role ended role=engine index=1");
	for (int i = 0; i < WAIT_MS / 20 && role_pid("engine", 1) == 0; i++)
		pause_ms(20);
	pause_ms(500);
	ask_often();
	assert_int_equal(stop(), 0);
	count_decisions(n);
	print_message("decisions: %u and %u, then %u and %u\n", n[0][0],
	    n[1][0], n[0][1], n[1][1]);
	for (int i = 0; i < 2; i++) {
		assert_true(n[i][0] + n[i][1] > 0);
		assert_true(n[0][i] + n[1][i] > 0);
	}
	/* none has another number, and none is missing */
	assert_int_equal(n[0][0] + n[0][1] + n[1][0] + n[1][1],
	    2 * CLIENTS * ROUNDS);
}

/* The limit of the machine is nobody's mistake, what was asked for is. */
static void
fewer_connections_are_a_warning_only_if_more_were_asked_for(void **state)
{
	(void)state;
	start_descriptors = 640;
	start_ready(0);
	expect_log("msg=\"limits.connections is 300: so many have room in "
	    "the limit of descriptors (640)");
	assert_false(logged("level=warn role=engine"));
	assert_int_equal(stop(), 0);
	put("penstock.yaml", CONFIG "limits: {connections: 20000}\n");
	start_ready(0);
	expect_log("msg=\"limits.connections is 20000, the limit of "
	    "descriptors (640) has room for 300, which counts: raise");
	assert_true(logged("level=warn role=engine"));
	assert_int_equal(stop(), 0);
	put("penstock.yaml", CONFIG "limits: {connections: 300}\n");
	start_ready(0);
	pause_ms(200);
	assert_false(logged("limits.connections"));
	assert_int_equal(stop(), 0);
	start_descriptors = 0;
}

/* ---- places ---- */

/* This process into the daemon's network. */
static void
enter_network(void)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/ns/net", (int)daemon_pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(setns(fd, CLONE_NEWNET), 0);
	close(fd);
}

/* A client that says nothing: its connection, or -1 where it is refused. */
static int
hold(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
	    .sin_port = htons(15080),
	    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	const struct timeval wait = { .tv_usec = 300000 };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char got[2048] = "";

	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait,
	    sizeof(wait)), 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	if (recv(fd, got, sizeof(got) - 1, 0) < 0) {
		assert_int_equal(errno, EAGAIN);
		return fd;
	}
	if (strncmp(got, "HTTP/1.1 503", 12) != 0 ||
	    strstr(got, "limit_client") == NULL)
		fail_msg("\"%s\"", got);
	close(fd);
	return -1;
}

/* While the other one stands still. */
static int
hold_at(pid_t other)
{
	int fd;

	kill(other, SIGSTOP);
	fd = hold();
	kill(other, SIGCONT);
	return fd;
}

/* Each counts what the others hold, and what one held that died is free. */
static void
a_client_has_its_places_over_all_engines(void **state)
{
	pid_t engine[2];
	char got[1];
	int fd[4];

	(void)state;
	put("penstock.yaml", TWO "limits: {per_client: 4, hello_timeout: 60s}\n");
	start_ready(0);
	enter_network();
	for (int i = 0; i < 2; i++) {
		engine[i] = role_pid("engine", i);
		assert_true(engine[i] > 0);
	}
	for (int i = 0; i < 4; i++) {
		fd[i] = hold_at(engine[i % 2]);
		assert_true(fd[i] >= 0);
	}
	/* two each: neither has more for this client */
	assert_int_equal(hold_at(engine[0]), -1);
	assert_int_equal(hold_at(engine[1]), -1);
	assert_int_equal(hold(), -1);
	close(fd[0]);
	pause_ms(100);
	fd[0] = hold_at(engine[1]);	/* the other's, who has three now */
	assert_true(fd[0] >= 0);
	assert_int_equal(hold(), -1);
	/* that one dies with three; what the other has counts on */
	kill(engine[0], SIGKILL);
	expect_log("role ended role=engine index=");
	for (int i = 0; i < 4; i++) {
		if (i == 2)
			continue;
		errno = 0;
		assert_true(recv(fd[i], got, 1, 0) <= 0 && errno != EAGAIN);
		close(fd[i]);
	}
	for (int i = 0; i < 4; i++) {
		if (i == 2)
			continue;
		fd[i] = hold();
		assert_true(fd[i] >= 0);
	}
	assert_int_equal(hold(), -1);
	assert_int_equal(recv(fd[2], got, 1, MSG_DONTWAIT), -1);
	assert_int_equal(errno, EAGAIN);
	for (int i = 0; i < 4; i++)
		close(fd[i]);
	assert_int_equal(stop(), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		EACH(each_has_numbers_of_its_own_in_each_of_its_lives),
		EACH(a_client_has_its_places_over_all_engines),
		EACH(fewer_connections_are_a_warning_only_if_more_were_asked_for),
	};

	return cmocka_run_group_tests(tests, find_program, clean);
}
