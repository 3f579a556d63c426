/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/admin_client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "ledger-client/clock.h"
#include "proxy/http.h"
#include "sidecar/config.h"

#define WAIT_S 5
#define REQUEST_BYTES (2 * ADMIN_CLIENT_VALUE_BYTES + 256)

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

/* From now on no call waits beyond the deadline. */
static int
wait_until(int fd, int64_t deadline_us)
{
	int64_t us = deadline_us - clock_mono_us();
	struct timeval wait = { us / 1000000, us % 1000000 };

	/* zero would wait for ever */
	if (us <= 0)
		return -ETIMEDOUT;
	return setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait,
	    sizeof(wait)) == 0 && setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO,
	    &wait, sizeof(wait)) == 0 ? 0 : -errno;
}

/* The time is over: an errno of its own for that, which says so. */
static int
failed(void)
{
	return errno == EAGAIN || errno == EINPROGRESS ? -ETIMEDOUT : -errno;
}

static int
dial_at(const struct sockaddr *at, socklen_t len, int64_t deadline_us)
{
	int fd = socket(at->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0), rc;

	if (fd < 0)
		return -errno;
	rc = wait_until(fd, deadline_us);
	if (rc == 0 && connect(fd, at, len) != 0)
		rc = failed();
	if (rc == 0)
		return fd;
	close(fd);
	return rc;
}

static int
dial_unix(const char *path, int64_t deadline_us)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };

	if (strlen(path) >= sizeof(sun.sun_path))
		return -ENAMETOOLONG;
	memcpy(sun.sun_path, path, strlen(path) + 1);
	return dial_at((struct sockaddr *)&sun, sizeof(sun), deadline_us);
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
dial(const char *admin, int64_t deadline_us)
{
	struct sockaddr_storage sa;
	struct endpoint e;
	socklen_t len;

	if (strncmp(admin, "unix:", 5) == 0)
		return dial_unix(admin + 5, deadline_us);
	if (!parse_endpoint(admin, &e))
		return -EINVAL;
	len = endpoint_to_sockaddr(&e, &sa);
	return dial_at((struct sockaddr *)&sa, len, deadline_us);
}

static ssize_t
read_all(int fd, char *out, size_t size, int64_t deadline_us)
{
	size_t at = 0;

	while (at < size) {
		ssize_t n = wait_until(fd, deadline_us);

		if (n < 0)
			return n;
		n = recv(fd, out + at, size - at, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return failed();
		if (n == 0)
			break;
		at += (size_t)n;
	}
	return (ssize_t)at;
}

static int
ask(const char *admin, const char *method, const char *path, char *out)
{
	static struct http_response rs;
	char request[REQUEST_BYTES];
	size_t scanned = 0;
	enum reason why;
	ssize_t got;
	int64_t deadline_us = clock_mono_us() + WAIT_S * INT64_C(1000000);
	int fd = dial(admin, deadline_us), n;

	if (fd < 0)
		return fd;
	n = snprintf(request, sizeof(request),
	    "%s %s HTTP/1.1\r\nHost: penstock\r\n%s\r\n", method, path,
	    strcmp(method, "POST") == 0 ? "Content-Length: 0\r\n" : "");
	if (n >= (int)sizeof(request)) {
		close(fd);
		return -ENAMETOOLONG;
	}
	if (send(fd, request, (size_t)n, MSG_NOSIGNAL) != n) {
		close(fd);
		return -EPIPE;
	}
	got = read_all(fd, out, ADMIN_CLIENT_BODY_BYTES - 1, deadline_us);
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

int
admin_client_get(const char *admin, const char *path,
    char out[static ADMIN_CLIENT_BODY_BYTES])
{
	return ask(admin, "GET", path, out);
}

int
admin_client_post(const char *admin, const char *path,
    char out[static ADMIN_CLIENT_BODY_BYTES])
{
	return ask(admin, "POST", path, out);
}

void
admin_client_value(const char *text, char out[static ADMIN_CLIENT_VALUE_BYTES])
{
	static const char digits[] = "0123456789ABCDEF";
	size_t at = 0;

	for (; *text != '\0' && at + 4 <= ADMIN_CLIENT_VALUE_BYTES; text++) {
		uint8_t c = (uint8_t)*text;

		if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
		    (c >= 'A' && c <= 'Z') || c == '-' || c == '.' ||
		    c == '_') {
			out[at++] = (char)c;
			continue;
		}
		out[at++] = '%';
		out[at++] = digits[c >> 4];
		out[at++] = digits[c & 15];
	}
	out[at] = '\0';
}

int
admin_client_refused(const char *verb, const char *admin, int status,
    const char *body)
{
	if (status != 400 && status != 403 && status != 404 && status != 503) {
		admin_client_say(verb, admin, status);
		return EXIT_UNAVAILABLE;
	}
	fprintf(stderr, "penstock %s: %s: %.*s\n", verb, admin,
	    (int)strcspn(body, "\r\n"), body);
	return status == 403 ? EXIT_PRIVILEGE : status == 400 ? EXIT_USAGE :
	    EXIT_UNAVAILABLE;
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
