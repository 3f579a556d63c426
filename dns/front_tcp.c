/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/front_tcp.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "dns/share.h"

#define ACCEPTS_PER_WAKE 16u
#define PAUSE_MS 100			/* no descriptor or memory is free */
#define OUTPUT_MAX_BYTES 262144u	/* unread answers of a connection */

struct front_tcp {
	struct front_tcp_listener *listener;
	struct front_tcp *next, **prev;
	struct bufferevent *bev;	/* NULL: the client is gone */
	struct event *late;
	struct endpoint client;
	unsigned ifindex;
	unsigned held;
	bool ended;			/* it half-closed */
	bool reading;			/* in read_messages */
};

struct front_tcp_listener {
	struct front_tcp_settings settings;
	struct event *readable;
	struct event *resume;		/* accepting, after a pause */
	int fd;
	struct front_tcp *conns;
	unsigned n;
	struct share *share;		/* of each client; NULL: no bound */
	uint8_t msg[65535];		/* the one that is handed over */
};

static void
conn_gone(struct front_tcp *c)
{
	if (c->late != NULL)
		event_free(c->late);
	c->late = NULL;
	if (c->bev != NULL) {
		bufferevent_free(c->bev);
		c->bev = NULL;
		c->listener->n--;
		if (c->listener->share != NULL)
			share_give(c->listener->share, &c->client.addr);
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

/* The next whole message, off the input before anybody sees it: its handler
 * may end the connection.  False when there is none. */
static bool
next_message(struct front_tcp *c, size_t *len)
{
	struct evbuffer *in = bufferevent_get_input(c->bev);
	uint8_t head[2];

	if (evbuffer_copyout(in, head, 2) < 2)
		return false;
	*len = (size_t)head[0] << 8 | head[1];
	if (evbuffer_get_length(in) < 2 + *len)
		return false;
	evbuffer_drain(in, 2);
	return evbuffer_remove(in, c->listener->msg, *len) ==
	    (ev_ssize_t)*len;
}

/* A client that has much open, or does not read, is not read from. */
static bool
may_read(const struct front_tcp *c)
{
	return c->bev != NULL && c->held < FRONT_TCP_OPEN_MAX &&
	    evbuffer_get_length(bufferevent_get_output(c->bev)) <
	    OUTPUT_MAX_BYTES;
}

/* The time for the next whole message begins. */
static void
wait_for_message(struct front_tcp *c)
{
	unsigned ms = c->listener->settings.idle_ms;
	struct timeval tv = { .tv_sec = ms / 1000,
	    .tv_usec = ms % 1000 * 1000 };

	if (c->late != NULL)
		event_add(c->late, &tv);
}

/* Nobody is late while we owe an answer. */
static void
on_late(evutil_socket_t fd, short what, void *arg)
{
	struct front_tcp *c = arg;

	(void)fd;
	(void)what;
	if (c->held > 0)
		wait_for_message(c);
	else
		conn_gone(c);
}

/* Whole messages off the input.  An answer that is there at once releases
 * its message inside the call: that must not read the next one below it. */
static void
read_messages(struct front_tcp *c)
{
	struct front_tcp_settings *s = &c->listener->settings;
	size_t len;

	if (c->reading)
		return;
	c->reading = true;
	c->held++;
	while (may_read(c) && next_message(c, &len)) {
		wait_for_message(c);
		s->message(s->arg, c, bufferevent_getfd(c->bev), &c->client,
		    span_of(c->listener->msg, len));
	}
	c->held--;
	c->reading = false;
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
	read_messages(arg);	/* those that stood back for the output */
}

static void
on_event(struct bufferevent *bev, short what, void *arg)
{
	struct front_tcp *c = arg;

	if ((what & (BEV_EVENT_EOF | BEV_EVENT_READING)) ==
	    (BEV_EVENT_EOF | BEV_EVENT_READING)) {
		c->ended = true;
		bufferevent_disable(bev, EV_READ);
		read_messages(c);
		return;
	}
	conn_gone(c);
}

/* TCP keeps what the first packet came in by (IP_PKTOPTIONS; RFC 2292 for
 * IPv6, where the kernel still has it).  An IPv6 socket tells the interface
 * of an IPv4 client too. */
static unsigned
read_ifindex(int fd, bool v6)
{
	union {
		struct cmsghdr align;
		char room[256];
	} control;
	struct msghdr m = { .msg_control = &control };
	socklen_t len = sizeof(control);
	struct in6_pktinfo i6;
	struct in_pktinfo i4;
	int level = v6 ? IPPROTO_IPV6 : IPPROTO_IP, one = 1;

	if (setsockopt(fd, level, v6 ? IPV6_RECVPKTINFO : IP_PKTINFO, &one,
	    sizeof(one)) < 0 || getsockopt(fd, level, v6 ?
	    IPV6_2292PKTOPTIONS : IP_PKTOPTIONS, &control, &len) < 0)
		return 0;
	m.msg_controllen = len;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c != NULL;
	    c = CMSG_NXTHDR(&m, c)) {
		if (c->cmsg_level != level)
			continue;
		if (!v6 && c->cmsg_type == IP_PKTINFO) {
			memcpy(&i4, CMSG_DATA(c), sizeof(i4));
			return (unsigned)i4.ipi_ifindex;
		}
		if (v6 && c->cmsg_type == IPV6_PKTINFO) {
			memcpy(&i6, CMSG_DATA(c), sizeof(i6));
			return i6.ipi6_ifindex;
		}
	}
	return 0;
}

/* The oldest without an open question of the client that has the most, if
 * that is more than this one has; NULL: nobody gives way. */
static struct front_tcp *
who_gives_way(const struct front_tcp_listener *l,
    const struct endpoint *client)
{
	unsigned most;
	struct front_tcp *found = NULL;

	if (l->share == NULL)
		return NULL;
	most = share_of(l->share, &client->addr) + 1;
	for (struct front_tcp *c = l->conns; c != NULL; c = c->next) {
		unsigned n = c->bev == NULL || c->held > 0 ? 0 :
		    share_of(l->share, &c->client.addr);

		if (n < most)
			continue;
		most = n;		/* the last one is the oldest */
		found = c;
	}
	return found;
}

static enum reason
place_take(struct front_tcp_listener *l, const struct endpoint *client)
{
	struct front_tcp *gone;

	if (l->n >= l->settings.max) {
		gone = who_gives_way(l, client);
		if (gone == NULL)
			return REASON_LIMIT_TOTAL;
		conn_gone(gone);
	}
	return l->share == NULL ? REASON_NONE :
	    share_take(l->share, &client->addr);
}

/* NULL without memory; the socket is then the caller's. */
static struct front_tcp *
conn_make(struct front_tcp_listener *l, int fd, const struct endpoint *client)
{
	struct front_tcp *c = calloc(1, sizeof(*c));

	if (c == NULL)
		return NULL;
	c->bev = bufferevent_socket_new(l->settings.base, fd,
	    BEV_OPT_CLOSE_ON_FREE);
	c->late = evtimer_new(l->settings.base, on_late, c);
	if (c->bev == NULL || c->late == NULL) {
		if (c->late != NULL)
			event_free(c->late);
		if (c->bev != NULL) {	/* the socket is the caller's */
			bufferevent_setfd(c->bev, -1);
			bufferevent_free(c->bev);
		}
		free(c);
		return NULL;
	}
	c->listener = l;
	c->client = *client;
	c->next = l->conns;
	if (c->next != NULL)
		c->next->prev = &c->next;
	c->prev = &l->conns;
	l->conns = c;
	l->n++;
	return c;
}

static void
conn_begin(struct front_tcp *c)
{
	unsigned idle_ms = c->listener->settings.idle_ms;
	struct timeval idle = { .tv_sec = idle_ms / 1000,
	    .tv_usec = idle_ms % 1000 * 1000 };

	bufferevent_setwatermark(c->bev, EV_READ, 0, 2 * 65537);
	bufferevent_setcb(c->bev, on_read, on_write, on_event, c);
	bufferevent_set_timeouts(c->bev, NULL, &idle);
	wait_for_message(c);
	bufferevent_enable(c->bev, EV_READ | EV_WRITE);
}

static void
conn_new(struct front_tcp_listener *l, int fd,
    const struct sockaddr_storage *peer)
{
	struct front_tcp *c = NULL;
	struct endpoint client;
	enum reason why;

	if (!endpoint_from_sockaddr(&client, peer)) {
		close(fd);
		return;
	}
	why = place_take(l, &client);
	if (why == REASON_NONE) {
		c = conn_make(l, fd, &client);
		why = REASON_LIMIT_MEMORY;
		if (c == NULL && l->share != NULL)
			share_give(l->share, &client.addr);
	}
	if (c == NULL) {
		if (l->settings.refused != NULL)
			l->settings.refused(l->settings.arg, &client, why);
		close(fd);
		return;
	}
	c->ifindex = read_ifindex(fd, peer->ss_family == AF_INET6);
	conn_begin(c);
}

static void
on_resume(evutil_socket_t fd, short what, void *arg)
{
	struct front_tcp_listener *l = arg;
	struct timeval again = { .tv_usec = PAUSE_MS * 1000 };

	(void)fd;
	(void)what;
	if (event_add(l->readable, NULL) < 0)
		event_add(l->resume, &again);
}

/* The listener stays readable when nothing can be accepted: without a pause
 * the loop would turn for nothing. */
static void
pause_accepting(struct front_tcp_listener *l)
{
	struct timeval tv = { .tv_usec = PAUSE_MS * 1000 };

	if (event_add(l->resume, &tv) == 0)
		event_del(l->readable);
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

		if (fd < 0) {
			if (errno == EMFILE || errno == ENFILE ||
			    errno == ENOBUFS || errno == ENOMEM)
				pause_accepting(l);
			return;
		}
		conn_new(l, fd, &peer);
	}
}

struct front_tcp_listener *
front_tcp_listen(const struct front_tcp_settings *s, int fd)
{
	struct front_tcp_listener *l = calloc(1, sizeof(*l));

	if (l == NULL) {
		close(fd);
		return NULL;
	}
	l->settings = *s;
	l->fd = fd;
	l->readable = event_new(s->base, fd, EV_READ | EV_PERSIST, on_accept,
	    l);
	l->resume = event_new(s->base, -1, 0, on_resume, l);
	if (s->client_max > 0)
		l->share = share_new(s->client_max);
	if (l->readable == NULL || l->resume == NULL ||
	    (s->client_max > 0 && l->share == NULL) ||
	    event_add(l->readable, NULL) < 0) {
		front_tcp_close(l);
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
	if (l->readable != NULL)
		event_free(l->readable);
	if (l->resume != NULL)
		event_free(l->resume);
	share_free(l->share);
	close(l->fd);
	free(l);
}

void
front_tcp_answer(struct front_tcp *c, struct span msg)
{
	uint8_t head[2] = { (uint8_t)(msg.len >> 8), (uint8_t)msg.len };
	const struct front_tcp_settings *s = &c->listener->settings;
	struct evbuffer *out;

	if (c->bev == NULL)
		return;
	out = bufferevent_get_output(c->bev);
	/* half a message would garble those that follow; the connection is
	 * held by the message that this answers, so it lives on */
	if (evbuffer_expand(out, sizeof(head) + msg.len) == 0 &&
	    evbuffer_add(out, head, sizeof(head)) == 0 &&
	    evbuffer_add(out, msg.data, msg.len) == 0)
		return;
	conn_gone(c);
	if (s->refused != NULL)
		s->refused(s->arg, &c->client, REASON_LIMIT_MEMORY);
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
	if (c->bev != NULL)
		read_messages(c);
	else
		maybe_end(c);
}

unsigned
front_tcp_ifindex(const struct front_tcp *c)
{
	return c->ifindex;
}
