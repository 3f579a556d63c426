/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/side.h"

#include <errno.h>
#include <linux/sockios.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

/* Behind these a read that falls short is not the last: an end or an error
 * that was announced with data gets no edge of its own, and reads stop short
 * of urgent data. */
#define DOUBT (EPOLLRDHUP | EPOLLHUP | EPOLLERR | EPOLLPRI)

void
side_open(struct side *s, int fd)
{
	s->fd = fd;
	s->readable = s->writable = true;
	s->doubtful = s->ending = s->deaf = false;
	s->want = 0;
}

bool
side_edge(struct side *s, uint32_t events)
{
	uint8_t now = 0;

	if (events & (EPOLLIN | DOUBT))
		now |= SIDE_READ;
	if (events & (EPOLLOUT | EPOLLHUP | EPOLLERR))
		now |= SIDE_WRITE;
	s->readable |= (now & SIDE_READ) != 0;
	s->writable |= (now & SIDE_WRITE) != 0;
	s->doubtful |= (events & DOUBT) != 0;
	s->ending |= (events & EPOLLRDHUP) != 0;
	return (s->want & now) != 0;
}

bool
side_can(const struct side *s)
{
	return ((s->want & SIDE_READ) && s->readable) ||
	    ((s->want & SIDE_WRITE) && s->writable);
}

static ssize_t
take(struct side *s, void *data, size_t size, int flags)
{
	ssize_t n;

	if (!s->readable)
		return -EAGAIN;
	do
		n = recv(s->fd, data, size, flags);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		n = -errno;
	/* What falls short has emptied the socket (tcp(7), epoll(7)): more
	 * will make an edge. */
	if (n == -EAGAIN || (n > 0 && (size_t)n < size && !s->doubtful))
		s->readable = false;
	return n;
}

ssize_t
side_recv(struct side *s, void *data, size_t size)
{
	return take(s, data, size, 0);
}

/* The kernel copies nothing for it (tcp(7)). */
ssize_t
side_drop(struct side *s, size_t size)
{
	return take(s, NULL, size, MSG_TRUNC);
}

ssize_t
side_fill(struct side *s, struct buf *b, size_t max)
{
	uint8_t *at;
	ssize_t n = buf_room(b, max, &at);

	if (n < 0)
		return n;
	n = side_recv(s, at, (size_t)n);
	buf_grew(b, n > 0 ? (size_t)n : 0);
	return n;
}

ssize_t
side_send(struct side *s, const void *data, size_t size, bool more)
{
	int flags = MSG_NOSIGNAL | (more ? MSG_MORE : 0);

	ssize_t n;

	if (!s->writable)
		return -EAGAIN;
	do
		n = send(s->fd, data, size, flags);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		n = -errno;
	if (n == -EAGAIN)
		s->writable = false;
	return n;
}

int
side_flush(struct side *s)
{
	while (buf_left(&s->out) > 0) {
		ssize_t n = side_send(s, s->out.data + s->out.at,
		    buf_left(&s->out), false);

		if (n < 0)
			return (int)n;
		s->sent += (uint64_t)n;
		buf_take(&s->out, (size_t)n);
	}
	return 0;
}

uint64_t
side_left(const struct side *s)
{
	int left = 0;

	if (s->fd < 0)
		return 0;
	if (ioctl(s->fd, SIOCOUTQ, &left) < 0 || left < 0)
		left = 0;
	return buf_left(&s->out) + s->piped + (uint64_t)left;
}
