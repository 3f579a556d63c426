/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proxy/conn.h"

#define OUTQ_POLL_MS 5
#define DRAIN_TURN_BYTES (256u << 10)	/* then it is another's turn */
#define OUTQ_POLL_MAX_MS 1000

static void
set_reset(int fd)
{
	struct linger now = { 1, 0 };

	if (fd >= 0)
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
}

/* Forget what a refused client still sends: many read no answer before all of
 * theirs is sent, and a close with unread bytes makes the kernel reset our
 * answer away.  Nothing of it is held; the time bounds it too. */
static enum step
drain(struct conn *c)
{
	size_t max = c->proxy->limits.linger_bytes, turn = 0;

	while (c->drained < max && turn < DRAIN_TURN_BYTES) {
		ssize_t n = side_drop(&c->client, DRAIN_TURN_BYTES / 4);

		if (n == -EAGAIN)
			return STEP_WAIT;
		if (n <= 0)
			return STEP_GONE;
		c->drained += (uint32_t)n;
		turn += (size_t)n;
	}
	return c->drained < max ? STEP_WAIT : STEP_GONE;
}

static enum step
end_refused(struct conn *c)
{
	int e;

	buf_free(&c->in);
	if (!c->told) {
		set_reset(c->client.fd);
		return STEP_GONE;
	}
	e = side_flush(&c->client);
	if (e == -EAGAIN && conn_now_ms() < c->deadline_ms)
		return STEP_WAIT;
	if (e < 0)
		return STEP_GONE;
	if (!c->client.shut) {
		shutdown(c->client.fd, SHUT_WR);
		c->client.shut = true;
	}
	if (c->client.eof || conn_now_ms() >= c->deadline_ms)
		return STEP_GONE;
	return drain(c);
}

/* What neither peer will get any more, told in the end record. */
static void
lose(struct conn *c)
{
	c->lost_up = side_left(&c->up);
	c->lost_down = side_left(&c->client);
	/* Held at a gate that did not open. */
	if (c->forward == NULL && c->is_dialled)
		c->lost_up += buf_left(&c->in);
}

/* Nobody is there any more who could take it. */
static bool
is_closed(int fd)
{
	struct tcp_info info = { 0 };
	socklen_t len = sizeof(info);

	return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) < 0 ||
	    info.tcpi_state == TCP_CLOSE;
}

/* The kernel tells nobody that a peer has taken what it had for it: look
 * again soon, and less often for one that stands still. */
static void
look_again(struct conn *c, int64_t now)
{
	int64_t ms = (now - c->moved_ms) / 8;

	ms = ms < OUTQ_POLL_MS ? OUTQ_POLL_MS : ms;
	conn_timer(c, now + (ms > OUTQ_POLL_MAX_MS ? OUTQ_POLL_MAX_MS : ms));
}

/* One peer has reset: the other gets what came before, then a reset.  A
 * reset throws away what the other has not taken, so that is waited for as
 * in a relay: until nothing moves for the idle limit. */
static enum step
end_reset(struct conn *c, struct side *other)
{
	int64_t now = conn_now_ms();
	uint64_t left;
	int e;

	if (other->fd < 0)
		return STEP_GONE;
	e = side_flush(other);
	left = side_left(other);
	if (left > 0 && (e == 0 || e == -EAGAIN) && now < c->deadline_ms &&
	    !is_closed(other->fd)) {
		if (left != c->left) {
			c->left = left;
			c->moved_ms = now;
			c->deadline_ms = now + c->proxy->limits.idle_ms;
		}
		look_again(c, now);
		return STEP_WAIT;
	}
	if (left > 0 && now >= c->deadline_ms && c->reason == REASON_NONE)
		c->reason = REASON_IDLE;
	lose(c);
	set_reset(other->fd);
	return STEP_GONE;
}

enum step
end_step(struct conn *c)
{
	switch ((enum record_how)c->how) {
	case HOW_REFUSED:
		conn_close_up(c);
		return end_refused(c);
	case HOW_RESET_CLIENT:
		return end_reset(c, &c->up);
	case HOW_RESET_UPSTREAM:
		return end_reset(c, &c->client);
	case HOW_CUT:
		lose(c);
		set_reset(c->client.fd);
		set_reset(c->up.fd);
		return STEP_GONE;
	case HOW_FIN:
		if (!c->told)	/* both sides have ended */
			return STEP_GONE;
		conn_close_up(c);
		return end_refused(c);
	case HOW_NONE:
		break;
	}
	return STEP_GONE;
}
