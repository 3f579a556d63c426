/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/sockets.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "sidecar/config.h"
#include "sidecar/config_part.h"

#define KEEPIDLE_S 60

static int
set(int fd, int level, int name, int value)
{
	return setsockopt(fd, level, name, &value, sizeof(value)) == 0 ? 0 :
	    -errno;
}

static bool
is_unspecified_v6(const struct endpoint *at)
{
	static const struct addr zero;

	return addr_eq(&at->addr, &zero);
}

/* IPv6 sockets take IPv6 only, so that both wildcards can be bound. */
static int
family_options(int fd, sa_family_t family, bool transparent)
{
	bool v6 = family == AF_INET6;
	int rc = 0;

	if (v6)
		rc = set(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
	if (rc == 0 && transparent)
		rc = v6 ? set(fd, SOL_IPV6, IPV6_TRANSPARENT, 1) :
		    set(fd, SOL_IP, IP_TRANSPARENT, 1);
	return rc;
}

static int
tcp_options(int fd)
{
	int rc = set(fd, SOL_SOCKET, SO_REUSEADDR, 1);

	if (rc == 0)
		rc = set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	if (rc == 0)
		rc = set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
	if (rc == 0)
		rc = set(fd, IPPROTO_TCP, TCP_KEEPIDLE, KEEPIDLE_S);
	return rc;
}

/* Where a datagram was sent to: the answer leaves from there. */
/* A burst waits here while what came before it is answered.  Who lacks
 * NET_ADMIN gets no more than net.core.rmem_max. */
static int
receive_buffer(int fd)
{
	int rc = set(fd, SOL_SOCKET, SO_RCVBUFFORCE, SOCKETS_UDP_BYTES);

	return rc == 0 ? 0 : set(fd, SOL_SOCKET, SO_RCVBUF,
	    SOCKETS_UDP_BYTES);
}

static int
udp_options(int fd, sa_family_t family)
{
	int rc = receive_buffer(fd);

	if (rc != 0)
		return rc;
	return family == AF_INET6 ?
	    set(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1) :
	    set(fd, SOL_IP, IP_PKTINFO, 1);
}

static int
bound(const struct endpoint *at, int type, bool transparent)
{
	struct sockaddr_storage sa;
	socklen_t len = endpoint_to_sockaddr(at, &sa);
	int fd, rc;

	if (is_unspecified_v6(at)) {
		struct sockaddr_in6 any = { .sin6_family = AF_INET6,
		    .sin6_port = htons(at->port) };

		memcpy(&sa, &any, sizeof(any));
		len = sizeof(any);
	}
	fd = socket(sa.ss_family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	rc = family_options(fd, sa.ss_family, transparent);
	if (rc == 0)
		rc = type == SOCK_STREAM ? tcp_options(fd) :
		    udp_options(fd, sa.ss_family);
	if (rc == 0 && bind(fd, (struct sockaddr *)&sa, len) != 0)
		rc = -errno;
	if (rc == 0 && type == SOCK_STREAM &&
	    listen(fd, SOCKETS_BACKLOG) != 0)
		rc = -errno;
	if (rc == 0)
		return fd;
	close(fd);
	return rc;
}

int
sockets_listen(const struct endpoint *at, bool transparent)
{
	return bound(at, SOCK_STREAM, transparent);
}

int
sockets_dns_udp(const struct endpoint *at, bool transparent)
{
	/* No SO_REUSEADDR: a second socket on the port would take questions
	 * away from this one. */
	return bound(at, SOCK_DGRAM, transparent);
}

/* What one that ended has left: nobody else's is taken away. */
static int
remove_dead(const struct sockaddr_un *sa)
{
	struct stat st;
	int fd, rc;

	if (lstat(sa->sun_path, &st) != 0)
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISSOCK(st.st_mode))
		return -EEXIST;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	rc = connect(fd, (const struct sockaddr *)sa, sizeof(*sa)) == 0 ?
	    -EADDRINUSE : -errno;
	close(fd);
	switch (rc) {
	case -ECONNREFUSED:
		return unlink(sa->sun_path) == 0 || errno == ENOENT ? 0 :
		    -errno;
	case -ENOENT:
		return 0;
	case -EAGAIN:		/* more wait there than it takes */
	case -EPROTOTYPE:	/* served, as another kind of socket */
		return -EADDRINUSE;
	default:
		return rc;
	}
}

static int
unix_listen(const char *path)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int fd, rc;

	if (strlen(path) >= sizeof(sa.sun_path))
		return -ENAMETOOLONG;
	memcpy(sa.sun_path, path, strlen(path) + 1);
	rc = remove_dead(&sa);
	if (rc != 0)
		return rc;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	if (bind(fd, (struct sockaddr *)&sa, sizeof(sa)) == 0 &&
	    chmod(path, 0660) == 0 && listen(fd, 64) == 0)
		return fd;
	rc = -errno;
	close(fd);
	return rc;
}

int
sockets_admin(const char *at)
{
	struct endpoint e;

	if (strncmp(at, "unix:", 5) == 0)
		return unix_listen(at + 5);
	if (!config_endpoint_text(span_str(at), 0, &e))
		return -EINVAL;
	return sockets_listen(&e, false);
}

void
sockets_reset_waiting(int fd, unsigned max)
{
	const struct linger now = { .l_onoff = 1, .l_linger = 0 };

	for (unsigned i = 0; i < max; i++) {
		int c = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (c < 0)
			return;
		setsockopt(c, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
		close(c);
	}
}
