/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_DNS_UPSTREAM_H
#define TESTS_DNS_UPSTREAM_H

/* tests/net/dnsserver.py on loopback, on a port of its own, and what it was
 * asked. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static pid_t upstream_pid;
static uint16_t upstream_port;
static char upstream_dir[] = "/tmp/penstock-dns-XXXXXX";
static char upstream_zone[64], upstream_log[64];

/* A loopback socket; port 0 takes a free one.  *port says which. */
static int __attribute__((unused))
bound(int type, uint16_t *port)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
	    .sin_port = htons(*port),
	    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(to);
	int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)&to, sizeof(to)) < 0 ||
	    getsockname(fd, (struct sockaddr *)&to, &len) < 0) {
		if (fd >= 0)
			close(fd);
		return -1;
	}
	*port = ntohs(to.sin_port);
	return fd;
}

/* A port that nobody has, neither of UDP nor of TCP. */
static uint16_t
free_port(void)
{
	for (int i = 0; i < 100; i++) {
		uint16_t port = 0;
		int udp = bound(SOCK_DGRAM, &port), tcp;

		tcp = udp < 0 ? -1 : bound(SOCK_STREAM, &port);
		if (udp >= 0)
			close(udp);
		if (tcp >= 0) {
			close(tcp);
			return port;
		}
	}
	return 0;
}

static int
upstream_start(const char *zone)
{
	char word[8], port[8];
	int p[2];
	FILE *f;

	upstream_port = free_port();
	if (upstream_port == 0 || mkdtemp(upstream_dir) == NULL ||
	    pipe(p) < 0)
		return -1;
	snprintf(port, sizeof(port), "%u", upstream_port);
	snprintf(upstream_zone, sizeof(upstream_zone), "%s/zone",
	    upstream_dir);
	snprintf(upstream_log, sizeof(upstream_log), "%s/log", upstream_dir);
	f = fopen(upstream_zone, "w");
	if (f == NULL)
		return -1;
	fputs(zone, f);
	fclose(f);
	upstream_pid = fork();
	if (upstream_pid == 0) {
		dup2(p[1], 1);
		execlp("python3", "python3", "tests/net/dnsserver.py",
		    "127.0.0.1", port, upstream_zone, upstream_log,
		    (char *)NULL);
		_exit(127);
	}
	close(p[1]);
	return upstream_pid > 0 && read(p[0], word, 6) > 0 ? close(p[0]) : -1;
}

static int
upstream_stop(void)
{
	kill(upstream_pid, SIGTERM);
	waitpid(upstream_pid, NULL, 0);
	unlink(upstream_zone);
	unlink(upstream_log);
	return rmdir(upstream_dir);
}

/* How many questions with these words went upstream. */
static unsigned __attribute__((unused))
asked(const char *words)
{
	FILE *f = fopen(upstream_log, "r");
	char line[512];
	unsigned n = 0;

	assert_non_null(f);
	while (fgets(line, sizeof(line), f) != NULL)
		n += strstr(line, words) != NULL;
	fclose(f);
	return n;
}

#endif
