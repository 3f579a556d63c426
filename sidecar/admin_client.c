/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/admin_client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "proxy/http.h"
#include "sidecar/config.h"

#define WAIT_S 5

int
admin_client_where(const char **admin, const char *config)
{
	static struct settings s;
	struct config *c;
	int rc;

	if (*admin != NULL)
		return 0;
	rc = verb_config(config, &c);
	if (rc != 0)
		return rc;
	s = c->settings;
	config_free(c);
	*admin = s.admin;
	return 0;
}

static int
dial_unix(const char *path)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	int fd;

	if (strlen(path) >= sizeof(sun.sun_path))
		return -ENAMETOOLONG;
	memcpy(sun.sun_path, path, strlen(path) + 1);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (connect(fd, (struct sockaddr *)&sun, sizeof(sun)) == 0)
		return fd;
	close(fd);
	return -errno;
}

/* "127.0.0.1:9090" or "[::1]:9090" */
static bool
parse_endpoint(const char *text, struct endpoint *out)
{
	const char *colon = strrchr(text, ':');
	struct span host;
	char *end;
	unsigned long port;

	if (colon == NULL)
		return false;
	host = span_of(text, (size_t)(colon - text));
	if (host.len > 2 && host.data[0] == '[' &&
	    host.data[host.len - 1] == ']')
		host = span_of(host.data + 1, host.len - 2);
	port = strtoul(colon + 1, &end, 10);
	out->port = (uint16_t)port;
	return port > 0 && port < 65536 && *end == '\0' &&
	    addr_parse(&out->addr, host);
}

static int
dial(const char *admin)
{
	struct timeval wait = { .tv_sec = WAIT_S };
	struct sockaddr_storage sa;
	struct endpoint e;
	socklen_t len;
	int fd;

	if (strncmp(admin, "unix:", 5) == 0)
		fd = dial_unix(admin + 5);
	else if (!parse_endpoint(admin, &e))
		return -EINVAL;
	else {
		len = endpoint_to_sockaddr(&e, &sa);
		fd = socket(sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (fd >= 0 &&
		    connect(fd, (struct sockaddr *)&sa, len) != 0) {
			int err = errno;

			close(fd);
			return -err;
		}
	}
	if (fd >= 0) {
		setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
		setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
	}
	return fd;
}

static ssize_t
read_all(int fd, char *out, size_t size)
{
	size_t at = 0;

	while (at < size) {
		ssize_t n = recv(fd, out + at, size - at, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		at += (size_t)n;
	}
	return (ssize_t)at;
}

int
admin_client_get(const char *admin, const char *path,
    char out[static ADMIN_CLIENT_BODY_BYTES])
{
	static struct http_response rs;
	char request[256];
	size_t scanned = 0;
	enum reason why;
	ssize_t got;
	int fd = dial(admin), n;

	if (fd < 0)
		return fd;
	n = snprintf(request, sizeof(request),
	    "GET %s HTTP/1.1\r\nHost: penstock\r\n\r\n", path);
	if (send(fd, request, (size_t)n, MSG_NOSIGNAL) != n) {
		close(fd);
		return -EPIPE;
	}
	got = read_all(fd, out, ADMIN_CLIENT_BODY_BYTES - 1);
	close(fd);
	if (got < 0)
		return (int)got;
	if (http_response_parse(span_of(out, (size_t)got), &scanned,
	    HTTP_GET, &rs, &why) != PARSE_DONE)
		return -EBADMSG;
	n = (int)rs.status;
	memmove(out, out + rs.head_bytes, (size_t)got - rs.head_bytes);
	out[(size_t)got - rs.head_bytes] = '\0';
	return n;
}

void
admin_client_say(const char *verb, const char *admin, int rc)
{
	if (admin[0] == '\0')
		fprintf(stderr, "penstock %s: the configuration says admin: "
		    "off, so nothing answers; name a listener with --admin\n",
		    verb);
	else if (rc == -EINVAL)
		fprintf(stderr, "penstock %s: %s is no admin listener; write "
		    "ADDRESS:PORT or unix:/PATH\n", verb, admin);
	else if (rc < 0 && rc != -EBADMSG)
		fprintf(stderr, "penstock %s: no daemon answers at %s: %s; "
		    "does it run, in this network namespace and with this "
		    "configuration?\n", verb, admin, strerror(-rc));
	else
		fprintf(stderr, "penstock %s: what answers at %s does not "
		    "answer as penstock does\n", verb, admin);
}
