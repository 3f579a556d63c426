/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/front_tcp.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define ACCEPTS_PER_WAKE 16u
#define OUTPUT_MAX_BYTES 262144u	/* an unread client is not served */

struct front_tcp {
	struct front_tcp_listener *listener;
	struct front_tcp *next, **prev;
	struct bufferevent *bev;	/* NULL: the client is gone */
	struct endpoint client;
	unsigned ifindex;
	unsigned held;
	bool ended;			/* it half-closed */
};

struct front_tcp_listener {
	struct front_tcp_settings settings;
	struct event *readable;
	int fd;
	struct front_tcp *conns;
	unsigned n;
};

static void
conn_gone(struct front_tcp *c)
{
	if (c->bev != NULL) {
		bufferevent_free(c->bev);
		c->bev = NULL;
		c->listener->n--;
	}
	if (c->held > 0)
		return;
	*c->prev = c->next;
	if (c->next != NULL)
		c->next->prev = c->prev;
	free(c);
}

/* After a half-close the last answer ends the connection. */
static void
maybe_end(struct front_tcp *c)
{
	if (c->bev == NULL || (c->ended && c->held == 0 &&
	    evbuffer_get_length(bufferevent_get_output(c->bev)) == 0))
		conn_gone(c);
}

/* Whole messages off the input, as long as few are open. */
static void
read_messages(struct front_tcp *c)
{
	struct evbuffer *in = bufferevent_get_input(c->bev);

	while (c->bev != NULL && c->held < FRONT_TCP_OPEN_MAX) {
		uint8_t head[2], *msg;
		size_t len;

		if (evbuffer_copyout(in, head, 2) < 2)
			break;
		len = (size_t)head[0] << 8 | head[1];
		if (evbuffer_get_length(in) < 2 + len)
			break;
		msg = evbuffer_pullup(in, (ev_ssize_t)(2 + len));
		if (msg == NULL)
			break;
		c->held++;
		c->listener->settings.message(c->listener->settings.arg, c,
		    bufferevent_getfd(c->bev), &c->client,
		    span_of(msg + 2, len));
		c->held--;
		if (c->bev != NULL)
			evbuffer_drain(in, 2 + len);
	}
	maybe_end(c);
}

static void
on_read(struct bufferevent *bev, void *arg)
{
	(void)bev;
	read_messages(arg);
}

static void
on_write(struct bufferevent *bev, void *arg)
{
	(void)bev;
	maybe_end(arg);
}

static void
on_event(struct bufferevent *bev, short what, void *arg)
{
	struct front_tcp *c = arg;

	if ((what & (BEV_EVENT_EOF | BEV_EVENT_READING)) ==
	    (BEV_EVENT_EOF | BEV_EVENT_READING)) {
		c->ended = true;
		bufferevent_disable(bev, EV_READ);
		maybe_end(c);
		return;
	}
	conn_gone(c);
}

/* TCP keeps what the first packet came in by (IP_PKTOPTIONS). */
static unsigned
read_ifindex(int fd)
{
	union {
		struct cmsghdr align;
		char room[256];
	} control;
	struct msghdr m = { .msg_control = &control };
	socklen_t len = sizeof(control);
	struct in_pktinfo v4;
	int one = 1;

	if (setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &one, sizeof(one)) < 0 ||
	    getsockopt(fd, IPPROTO_IP, IP_PKTOPTIONS, &control, &len) < 0)
		return 0;
	m.msg_controllen = len;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c != NULL;
	    c = CMSG_NXTHDR(&m, c))
		if (c->cmsg_level == IPPROTO_IP &&
		    c->cmsg_type == IP_PKTINFO) {
			memcpy(&v4, CMSG_DATA(c), sizeof(v4));
			return (unsigned)v4.ipi_ifindex;
		}
	return 0;
}

static void
conn_new(struct front_tcp_listener *l, int fd,
    const struct sockaddr_storage *peer)
{
	struct timeval idle = { .tv_sec = l->settings.idle_ms / 1000,
	    .tv_usec = l->settings.idle_ms % 1000 * 1000 };
	struct front_tcp *c = calloc(1, sizeof(*c));

	if (c == NULL || !endpoint_from_sockaddr(&c->client, peer) ||
	    l->n >= l->settings.max) {
		free(c);
		close(fd);
		return;
	}
	c->listener = l;
	c->ifindex = read_ifindex(fd);
	c->bev = bufferevent_socket_new(l->settings.base, fd,
	    BEV_OPT_CLOSE_ON_FREE);
	if (c->bev == NULL) {
		free(c);
		close(fd);
		return;
	}
	c->next = l->conns;
	if (c->next != NULL)
		c->next->prev = &c->next;
	c->prev = &l->conns;
	l->conns = c;
	l->n++;
	bufferevent_setwatermark(c->bev, EV_READ, 0, 2 * 65537);
	bufferevent_setcb(c->bev, on_read, on_write, on_event, c);
	bufferevent_set_timeouts(c->bev, &idle, &idle);
	bufferevent_enable(c->bev, EV_READ | EV_WRITE);
}

static void
on_accept(evutil_socket_t listener, short what, void *arg)
{
	struct front_tcp_listener *l = arg;

	(void)what;
	for (unsigned i = 0; i < ACCEPTS_PER_WAKE; i++) {
		struct sockaddr_storage peer;
		socklen_t len = sizeof(peer);
		int fd = accept4(listener, (struct sockaddr *)&peer, &len,
		    SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd < 0)
			return;
		conn_new(l, fd, &peer);
	}
}

struct front_tcp_listener *
front_tcp_listen(const struct front_tcp_settings *s, int fd)
{
	struct front_tcp_listener *l = calloc(1, sizeof(*l));

	if (l == NULL)
		return NULL;
	l->settings = *s;
	l->fd = fd;
	l->readable = event_new(s->base, fd, EV_READ | EV_PERSIST, on_accept,
	    l);
	if (l->readable == NULL || event_add(l->readable, NULL) < 0) {
		if (l->readable != NULL)
			event_free(l->readable);
		free(l);
		return NULL;
	}
	return l;
}

void
front_tcp_close(struct front_tcp_listener *l)
{
	while (l->conns != NULL) {
		l->conns->held = 0;
		conn_gone(l->conns);
	}
	event_free(l->readable);
	close(l->fd);
	free(l);
}

void
front_tcp_answer(struct front_tcp *c, struct span msg)
{
	uint8_t head[2] = { (uint8_t)(msg.len >> 8), (uint8_t)msg.len };
	struct evbuffer *out;

	if (c->bev == NULL)
		return;
	out = bufferevent_get_output(c->bev);
	if (evbuffer_get_length(out) > OUTPUT_MAX_BYTES) {
		bufferevent_disable(c->bev, EV_READ);
		return;
	}
	/* a failure leaves the client without an answer: it asks again */
	if (evbuffer_add(out, head, 2) < 0 ||
	    evbuffer_add(out, msg.data, msg.len) < 0)
		bufferevent_disable(c->bev, EV_READ);
}

void
front_tcp_hold(struct front_tcp *c)
{
	c->held++;
}

void
front_tcp_release(struct front_tcp *c)
{
	c->held--;
	if (c->bev != NULL && !c->ended)
		read_messages(c);
	else
		maybe_end(c);
}

unsigned
front_tcp_ifindex(const struct front_tcp *c)
{
	return c->ifindex;
}
