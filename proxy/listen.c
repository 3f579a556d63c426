/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proxy/conn.h"

/* As in linux/netfilter_ipv4.h and netfilter_ipv6/ip6_tables.h, which clash
 * with netinet/in.h. */
#define SO_ORIGINAL_DST 80
#define IP6T_SO_ORIGINAL_DST 80

#define ACCEPTS_PER_WAKEUP 16
#define PAUSE_MS 100

/* Too few descriptors or memory: stop for a moment; the backlog holds what
 * comes meanwhile.  The process never ends because of it. */
void
listen_pause(struct proxy *p)
{
	struct timeval tv = { 0, PAUSE_MS * 1000 };

	if (p->paused)
		return;
	p->paused = true;
	count_add(p->parts.counts, COUNT_ACCEPT_PAUSES, 1);
	for (size_t i = 0; i < p->parts.n_listeners; i++)
		event_del(p->listeners[i].ev);
	event_add(p->resume, &tv);
}

static bool
original_redirected(int fd, const struct endpoint *peer,
    struct endpoint *original)
{
	struct sockaddr_storage ss = { 0 };
	socklen_t len = sizeof(ss);
	bool v4 = addr_is_v4(&peer->addr);

	/* By the peer's family: a socket for both families answers only the
	 * call of the family that the packets have. */
	if (getsockopt(fd, v4 ? SOL_IP : SOL_IPV6,
	    v4 ? SO_ORIGINAL_DST : IP6T_SO_ORIGINAL_DST, &ss, &len) < 0)
		return false;
	return endpoint_from_sockaddr(original, &ss);
}

static bool
original_local(int fd, struct endpoint *original)
{
	struct sockaddr_storage ss = { 0 };
	socklen_t len = sizeof(ss);

	if (getsockname(fd, (struct sockaddr *)&ss, &len) < 0)
		return false;
	return endpoint_from_sockaddr(original, &ss);
}

static bool
is_zero(const struct addr *a)
{
	static const struct addr none;
	static const struct addr none4 = { { [10] = 0xff, 0xff } };

	return addr_eq(a, &none) || addr_eq(a, &none4);
}

/* Is it one of our own listeners?  One bound to every address is met when the
 * connection was not redirected: then both ends agree. */
static bool
is_own(const struct listener *l, int fd, const struct endpoint *original)
{
	const struct proxy *p = l->proxy;
	struct endpoint local;

	for (size_t i = 0; i < p->parts.n_listeners; i++) {
		const struct endpoint *b = &p->listeners[i].is.bound;

		if (b->port != original->port)
			continue;
		if (addr_eq(&b->addr, &original->addr))
			return true;
		if (is_zero(&b->addr) && l->is.kind == LISTEN_REDIRECT &&
		    original_local(fd, &local) &&
		    endpoint_eq(&local, original))
			return true;
	}
	return false;
}

/* Where the client wanted to go; REASON_NONE or why it is refused. */
static enum reason
find_original(const struct listener *l, int fd, const struct endpoint *peer,
    struct endpoint *original)
{
	switch (l->is.kind) {
	case LISTEN_TPROXY:
		if (!original_local(fd, original))
			return REASON_ORIGINAL_DESTINATION;
		break;
	case LISTEN_REDIRECT:
		if (!original_redirected(fd, peer, original))
			return REASON_ORIGINAL_DESTINATION;
		break;
	case LISTEN_NAMED:
		original->port = l->is.bound.port;
		return REASON_NONE;
	case LISTEN_EXPLICIT:
		return REASON_NONE;
	}
	return is_own(l, fd, original) ? REASON_OWN_LISTENER : REASON_NONE;
}

/* No place and no answer: a reset rather than a wait. */
static void
turn_away(struct listener *l, int fd, const struct sockaddr_storage *ss,
    enum reason why)
{
	struct endpoint peer = { 0 }, original = { 0 };
	uint32_t cell = CELL_NONE;
	enum reason no_cell;

	if (endpoint_from_sockaddr(&peer, ss)) {
		(void)find_original(l, fd, &peer, &original);
		cell = conn_cell_of(l, fd, &peer, NULL, span_of(NULL, 0),
		    &no_cell);
	}
	account_turned_away(l, &peer, &original, cell, why);
	conn_reset(fd);
}

/* The reserve makes room for one accept, whose client is turned away. */
static void
shed_one(struct listener *l)
{
	struct proxy *p = l->proxy;
	struct sockaddr_storage ss = { 0 };
	socklen_t len = sizeof(ss);
	int fd;

	if (p->reserve >= 0) {
		close(p->reserve);
		p->reserve = -1;
		fd = accept4(l->is.fd, (struct sockaddr *)&ss, &len,
		    SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd >= 0)
			turn_away(l, fd, &ss, REASON_LIMIT_DESCRIPTORS);
	}
	listen_pause(p);
}

static void
take(struct listener *l, int fd, const struct sockaddr_storage *ss)
{
	struct endpoint peer = { 0 }, original = { 0 };
	enum reason why;

	count_add(l->proxy->parts.counts, COUNT_ACCEPTED, 1);
	if (!endpoint_from_sockaddr(&peer, ss)) {
		turn_away(l, fd, ss, REASON_INTERNAL);
		return;
	}
	why = find_original(l, fd, &peer, &original);
	conn_new(l, fd, &peer, &original, why);
}

static void
on_accept(evutil_socket_t lfd, short what, void *arg)
{
	struct listener *l = arg;

	(void)what;
	for (int i = 0; i < ACCEPTS_PER_WAKEUP && !l->proxy->paused; i++) {
		struct sockaddr_storage ss = { 0 };
		socklen_t len = sizeof(ss);
		int fd = accept4(lfd, (struct sockaddr *)&ss, &len,
		    SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd >= 0) {
			take(l, fd, &ss);
			continue;
		}
		if (errno == EAGAIN || errno == EWOULDBLOCK)
			return;
		if (errno == EMFILE || errno == ENFILE) {
			shed_one(l);
			return;
		}
		if (errno == ENOBUFS || errno == ENOMEM) {
			listen_pause(l->proxy);
			return;
		}
		/* The rest concerns the one connection that went away
		 * (accept(2)): the next one may be sound. */
	}
}

int
listen_start(struct listener *l)
{
	const int one = 1;

	/* Inherited; without it a client's interface is not known, and what
	 * needs that is refused. */
	setsockopt(l->is.fd, SOL_IP, IP_PKTINFO, &one, sizeof(one));
	l->ev = event_new(l->proxy->parts.base, l->is.fd,
	    EV_READ | EV_PERSIST, on_accept, l);
	if (l->ev == NULL || event_add(l->ev, NULL) < 0)
		return -ENOMEM;
	return 0;
}
