/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proxy/conn.h"

#define OUTQ_POLL_MS 5

static void
set_reset(int fd)
{
	struct linger now = { 1, 0 };

	if (fd >= 0)
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
}

/* Read and forget what a refused client still sends, so that the kernel does
 * not reset our answer away (a close with unread bytes does). */
static enum step
drain(struct conn *c)
{
	uint8_t bin[4096];

	while (c->drained < c->proxy->limits.linger_bytes) {
		ssize_t n = side_recv(&c->client, bin, sizeof(bin));

		if (n == -EAGAIN)
			return STEP_WAIT;
		if (n <= 0)
			break;
		c->drained += (uint32_t)n;
	}
	return STEP_GONE;
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

/* One peer has reset: the other gets what came before, then a reset.  A
 * reset throws away what the kernel has not sent, so that is waited for. */
static enum step
end_reset(struct conn *c, struct side *other)
{
	int left = 0, e;

	if (other->fd < 0)
		return STEP_GONE;
	e = side_flush(other);
	if (e == 0 && other->piped == 0 &&
	    ioctl(other->fd, SIOCOUTQ, &left) < 0)
		left = 0;
	if (conn_now_ms() < c->deadline_ms && (e == -EAGAIN ||
	    (e == 0 && left > 0))) {
		conn_timer(c, conn_now_ms() + OUTQ_POLL_MS);
		return STEP_WAIT;
	}
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
