/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proxy/conn.h"

/*
 * RELAY: bytes both ways.  Each direction reads only when nothing of it waits
 * to be written, so at most one buffer or one pipe is held, and the sender is
 * slowed by TCP.  Small reads are copied through one buffer that all
 * connections share; a read that fills it switches the direction to
 * splice(2), a source that runs dry gives the pipe back.
 */
#define FIRST_READ_BYTES 16384u	/* a server's first flight; what fills it is a
				 * bulk flow from its beginning */
#define RELAY_ROUNDS 8u		/* of one direction, for each wake-up */

static void
broken(struct side *to)
{
	to->reset = true;
	buf_free(&to->out);
}

static void
pipe_back(struct conn *c, struct side *to)
{
	if (to->pipe == NULL)
		return;
	pipes_put(&c->proxy->pipes, to->pipe, to->piped == 0);
	to->pipe = NULL;
	to->piped = 0;
}

/* Write what waits for `to`.  True when nothing is left. */
static bool
flush(struct conn *c, struct side *to)
{
	int e = side_flush(to);

	if (e == -EAGAIN)
		return false;
	if (e < 0) {
		broken(to);
		pipe_back(c, to);
		return false;
	}
	while (to->piped > 0 && to->writable) {
		ssize_t n = splice(to->pipe->rd, NULL, to->fd, NULL,
		    to->piped, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN) {
			to->writable = false;
			return false;
		}
		if (n <= 0) {
			broken(to);
			pipe_back(c, to);
			return false;
		}
		to->piped -= (uint32_t)n;
		to->sent += (uint64_t)n;
	}
	return to->piped == 0;
}

/* The source said no: nothing now, the end, or a reset. */
static bool
source_over(struct conn *c, struct side *from, struct side *to, ssize_t n)
{
	if (n == -EAGAIN) {
		from->bulk = from->readable = false;
		pipe_back(c, to);
		return false;
	}
	from->eof = true;
	if (n < 0)
		from->reset = true;
	pipe_back(c, to);
	return false;
}

static bool
fill_pipe(struct conn *c, struct side *from, struct side *to)
{
	ssize_t n;

	do
		n = splice(from->fd, NULL, to->pipe->wr, NULL,
		    to->pipe->bytes, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
	while (n < 0 && errno == EINTR);
	if (n <= 0)
		return source_over(c, from, to, n < 0 ? -errno : 0);
	to->piped = (uint32_t)n;
	c->moved_ms = 0;	/* read the clock once, in idle */
	return true;
}

static size_t
read_size(const struct conn *c)
{
	size_t size = c->proxy->limits.copy_buffer_bytes;

	return c->open != NULL && size > FIRST_READ_BYTES ?
	    FIRST_READ_BYTES : size;
}

/* False: the source has no more now. */
static bool
fill_copy(struct conn *c, struct side *from, struct side *to)
{
	struct proxy *p = c->proxy;
	size_t size = read_size(c);
	ssize_t n, w;

	n = side_recv(from, p->buffer, size);
	if (n <= 0)
		return source_over(c, from, to, n);
	c->moved_ms = 0;
	if (from == &c->up && c->open != NULL)
		tunnel_saw_server(c, span_of(p->buffer, (size_t)n));
	w = side_send(to, p->buffer, (size_t)n,
	    from->ending && (size_t)n < size);
	if (w < 0 && w != -EAGAIN) {
		broken(to);
		return false;
	}
	if (w < 0)
		w = 0;
	to->sent += (uint64_t)w;
	if (w < n && buf_put(&to->out, span_of(p->buffer + w,
	    (size_t)(n - w))) < 0) {
		conn_cut(c, HOW_CUT, REASON_LIMIT_MEMORY);
		return false;
	}
	if ((size_t)n < size)
		return w < n || from->readable;
	/* The read that opened the gate may be the first of many. */
	if (c->open == NULL || c->open->gate == GATE_OPEN ||
	    c->open->gate == GATE_WATCH)
		from->bulk = true;
	return true;
}

/* The end goes on only after all bytes before it. */
static void
pass_end(struct side *from, struct side *to)
{
	if (!from->eof || from->reset || to->shut || to->reset ||
	    buf_left(&to->out) > 0 || to->piped > 0)
		return;
	/* When this was the last direction the close says it. */
	if ((!to->eof || !from->shut) && shutdown(to->fd, SHUT_WR) < 0) {
		broken(to);	/* it is not told of an end: no FIN for both */
		return;
	}
	to->shut = true;
}

/* One direction, a bounded number of rounds. */
static void
pump(struct conn *c, struct side *from, struct side *to)
{
	for (unsigned i = 0; i < RELAY_ROUNDS; i++) {
		if (!flush(c, to))
			return;
		if (from->eof || to->reset || !from->readable)
			break;
		if (from->bulk && to->pipe == NULL &&
		    (to->pipe = pipes_get(&c->proxy->pipes)) == NULL)
			from->bulk = false;
		if (!(from->bulk ? fill_pipe(c, from, to) :
		    fill_copy(c, from, to)))
			break;
	}
	pass_end(from, to);
	if (to->piped == 0 && !from->bulk)
		pipe_back(c, to);
}

unsigned
relay_wants(const struct conn *c, bool client)
{
	const struct side *s = client ? &c->client : &c->up;
	const struct side *other = client ? &c->up : &c->client;
	unsigned want = 0;
	bool gated = client && c->open != NULL;

	if (buf_left(&s->out) > 0 || s->piped > 0)
		want |= SIDE_WRITE;
	if (s->eof)
		return want;
	if (gated) {
		if (buf_left(&c->in) < HELLO_STREAM_MAX_BYTES)
			want |= SIDE_READ;
	} else if (buf_left(&other->out) == 0 && other->piped == 0 &&
	    !other->reset) {
		want |= SIDE_READ;
	}
	return want;
}

/* Idle for too long? */
static bool
idle(struct conn *c)
{
	int64_t now = conn_now_ms();

	if (c->moved_ms == 0)
		c->moved_ms = now;
	if (now < c->deadline_ms)
		return false;
	c->deadline_ms = c->moved_ms + c->proxy->limits.idle_ms;
	return now >= c->deadline_ms;
}

/* What has begun at the gate, or must come there, has its time: to leave it
 * open, or let it end as idle, would tell of no denial. */
static bool
gate_late(const struct conn *c)
{
	if (c->open == NULL || conn_now_ms() < c->deadline_ms)
		return false;
	return c->open->gate == GATE_RETRY || c->open->gate == GATE_HELLO ||
	    (c->open->gate == GATE_OPAQUE && buf_left(&c->in) > 0);
}

static enum step
refuse_late(struct conn *c)
{
	bool http = c->open->gate == GATE_OPAQUE &&
	    c->in.data[c->in.at] != 0x16;

	return conn_refuse(c, http ? REASON_HEAD_TIMEOUT :
	    REASON_HELLO_TIMEOUT);
}

/* Both ended in order, or one has reset and all that it had sent is read. */
static enum step
relay_over(struct conn *c)
{
	/* What it sent before may still wait in our buffer or pipe. */
	if (c->up.reset && c->up.eof && c->client.piped == 0)
		return conn_cut(c, HOW_RESET_UPSTREAM, REASON_NONE);
	if (c->client.reset && c->client.eof && c->up.piped == 0)
		return conn_cut(c, HOW_RESET_CLIENT, REASON_NONE);
	if (c->client.shut && c->up.shut)
		return conn_cut(c, HOW_FIN, REASON_NONE);
	if (c->up.reset && c->client.shut)
		return conn_cut(c, HOW_RESET_UPSTREAM, REASON_NONE);
	if (c->client.reset && c->up.shut)
		return conn_cut(c, HOW_RESET_CLIENT, REASON_NONE);
	return STEP_WAIT;
}

enum step
relay_step(struct conn *c)
{
	enum gate before;

	if (c->open != NULL) {
		enum step s = tunnel_gate(c);

		if (s != STEP_WAIT)
			return s;
	}
	if (c->open == NULL)
		pump(c, &c->client, &c->up);
	else
		flush(c, &c->up);
	before = c->open != NULL ? c->open->gate : GATE_OPEN;
	if (c->state == CONN_RELAY)
		pump(c, &c->up, &c->client);
	if (c->state != CONN_RELAY)
		return STEP_NEXT;
	if (c->open != NULL && c->open->gate != before)
		return STEP_NEXT;
	if (relay_over(c) == STEP_NEXT)
		return STEP_NEXT;
	if (gate_late(c))
		return refuse_late(c);
	if (idle(c))
		return conn_cut(c, HOW_CUT, REASON_IDLE);
	return STEP_WAIT;
}
