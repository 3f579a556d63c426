/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "proxy/conn.h"
#include "proxy/forward.h"
#include "proxy/http.h"
#include "proxy/opening.h"

/*
 * NAME: read until the client has shown where it wants to go.  On a
 * transparent connection that an opaque rule covers nothing is waited for,
 * because there the server may speak first.
 */

/* On a port that no rule opens a client that speaks first is still read, for
 * an answer it understands and a record with its name; one that waits for the
 * server is not kept waiting for longer than this. */
#define CLOSED_MS 300

static bool
is_transparent(const struct conn *c)
{
	return c->via == VIA_TPROXY || c->via == VIA_REDIRECT;
}

static void
name_of_pin(struct conn *c, const struct host *name)
{
	c->open->name = *name;
	c->open->from = NAME_FROM_PIN;
}

/* Ask once, before any byte: is this an opaque flow? */
static enum step
name_first(struct conn *c)
{
	struct opening *o = c->open;
	struct host names[PIN_NAMES_MAX];
	const struct host *ptr[PIN_NAMES_MAX];
	struct decide_at at;
	size_t n;

	c->looked = true;
	if (c->proxy->listeners[c->listener].is.kind == LISTEN_EXPLICIT)
		return STEP_WAIT;	/* a credential may come with it */
	if (c->cell == CELL_NONE)
		return conn_refuse(c, o->no_cell);
	if (!is_transparent(c))
		return STEP_WAIT;
	at = conn_at(c);
	/* Looking up the names of a busy address costs more than the rest. */
	if (decide_reads_first(&at, c->original.port))
		return STEP_WAIT;
	n = pinned_names(c, &c->original.addr, names, ptr);
	if (!decide_opaque(&at, &c->original, ptr, n, &o->decision)) {
		o->port_closed = !decide_port_open(&at, &c->original);
		if (o->port_closed && c->proxy->limits.hello_ms > CLOSED_MS)
			c->deadline_ms = conn_now_ms() + CLOSED_MS;
		return STEP_WAIT;
	}
	o->decided = true;
	o->shown = SHOWN_NOTHING;
	if (n == 1)
		name_of_pin(c, &names[0]);
	if (!pinned_keep(c, ptr, n))
		return conn_refuse(c, REASON_LIMIT_MEMORY);
	conn_enter(c, CONN_DECIDE);
	return STEP_NEXT;
}

/* Neither TLS nor HTTP.  A report lets pass what no rule matches, and no bytes
 * that hide what a rule would have to match. */
static enum parse
name_bytes(struct conn *c, struct span s, enum reason *why)
{
	enum parse p;

	if (c->inside) {
		c->open->shown = SHOWN_NOTHING;
		*why = REASON_PROTOCOL;
		return PARSE_BAD;
	}
	p = opening_judge(s, why);
	if (p == PARSE_BAD && *why == REASON_PROTOCOL)
		*why = REASON_NOT_TLS;
	if (p == PARSE_DONE)
		c->open->shown = SHOWN_BYTES;
	return p;
}

/* What the bytes so far show. */
static enum parse
name_look(struct conn *c, enum reason *why)
{
	struct opening *o = c->open;
	struct span s = buf_span(&c->in);
	bool explicit = c->proxy->listeners[c->listener].is.kind ==
	    LISTEN_EXPLICIT && !c->inside;
	enum parse p;

	if (s.len == 0)
		return PARSE_MORE;
	/* What follows a request on a kept connection is a request: to take
	 * it for anything else would mix two states of one connection. */
	if (explicit || c->forward != NULL ||
	    (o->shown != SHOWN_HELLO && s.data[0] != 0x16 &&
	    (s.data[0] & 0x80) == 0 && http_looks_like_request(s)))
		return forward_head(c, why);
	forward_no_request(c);
	p = hello_feed(&o->reader, s, &o->hello, why);
	if (p == PARSE_BAD && *why == REASON_NOT_TLS)
		return name_bytes(c, s, why);
	o->shown = SHOWN_HELLO;
	return p;
}

/* The largest amount that may wait unjudged. */
static size_t
name_max(const struct conn *c)
{
	size_t head = c->proxy->limits.head_bytes;

	return head > HELLO_STREAM_MAX_BYTES ? head : HELLO_STREAM_MAX_BYTES;
}

/* The server would have spoken first: tell whose it is.  No name would have
 * helped, as no rule opens the port.  Where a denial only reports it passes as
 * it is. */
static enum step
name_closed(struct conn *c)
{
	struct opening *o = c->open;
	struct host names[PIN_NAMES_MAX];
	const struct host *ptr[PIN_NAMES_MAX];
	size_t n = pinned_names(c, &c->original.addr, names, ptr);
	struct decide_at at = conn_at(c);

	if (n == 1)
		name_of_pin(c, &names[0]);
	if (c->proxy->policy == NULL)
		return conn_refuse(c, REASON_POLICY_UNAVAILABLE);
	o->decision = decide_told_as(decide_nameless(&at, &c->original, ptr,
	    n), REASON_NO_RULE);
	if (o->decision.verdict != VERDICT_ALLOW)
		return conn_refuse(c, o->decision.reason);
	if (!pinned_keep(c, ptr, n))
		return conn_refuse(c, REASON_LIMIT_MEMORY);
	o->decided = true;
	o->shown = SHOWN_NOTHING;
	conn_enter(c, CONN_DECIDE);
	return STEP_NEXT;
}

/* The client ended, or time did. */
static enum step
name_over(struct conn *c, bool late)
{
	bool http = c->open->shown == SHOWN_REQUEST || c->forward != NULL ||
	    (buf_left(&c->in) > 0 && c->in.data[c->in.at] != 0x16);

	/* Between two requests of a kept connection this is the usual end. */
	if (c->forward != NULL && buf_left(&c->in) == 0)
		return conn_cut(c, HOW_FIN, REASON_NONE);
	if (!late)
		return conn_refuse(c, REASON_HELLO_INCOMPLETE);
	if (c->open->port_closed && buf_left(&c->in) == 0)
		return name_closed(c);
	return conn_refuse(c, http ? REASON_HEAD_TIMEOUT :
	    REASON_HELLO_TIMEOUT);
}

/* The first byte of a further request, or on a closed port: from here on its
 * head has to come within the time that any has. */
static void
name_hurry(struct conn *c, bool was_empty)
{
	if (was_empty && (c->forward != NULL || c->open->port_closed))
		c->deadline_ms = conn_now_ms() + c->proxy->limits.hello_ms;
}

static enum step
name_done(struct conn *c)
{
	struct opening *o = c->open;

	if (o->shown == SHOWN_HELLO && !c->inside) {
		o->name = o->hello.name;
		o->from = o->name.len ? NAME_FROM_SNI : NAME_FROM_NONE;
	}
	conn_enter(c, CONN_DECIDE);
	return STEP_NEXT;
}

/* Read what the client sent.  *done: there is nothing (more), or the
 * connection was refused or cut; otherwise look at it. */
static enum step
name_read(struct conn *c, bool *done)
{
	bool was_empty = buf_left(&c->in) == 0;
	ssize_t n = side_fill(&c->client, &c->in, name_max(c));

	*done = true;
	if (n == -EAGAIN)
		return STEP_WAIT;
	if (n == -ENOBUFS)
		return conn_refuse(c, REASON_HEAD_TOO_LARGE);
	if (n == -ENOMEM && c->forward != NULL)
		forward_begin(c);
	if (n == -ENOMEM)
		return conn_refuse(c, REASON_LIMIT_MEMORY);
	if (n < 0 && (c->end == NULL ||
	    (c->end_told && !was_empty))) {	/* a request has begun */
		c->client.reset = true;
		return conn_refuse(c, REASON_HELLO_INCOMPLETE);
	}
	if (n < 0)
		return conn_cut(c, HOW_RESET_CLIENT, REASON_NONE);
	*done = false;
	if (n == 0)
		c->client.eof = true;
	else
		name_hurry(c, was_empty);
	return STEP_NEXT;
}

/* Send what is left of the answer to a CONNECT. */
static bool
name_flush(struct conn *c)
{
	int e;

	if (buf_left(&c->client.out) == 0)
		return true;
	e = side_flush(&c->client);
	return e >= 0 || e == -EAGAIN;
}

enum step
name_step(struct conn *c)
{
	enum reason why = REASON_NONE;
	bool done;

	if (!c->looked) {
		enum step s = name_first(c);

		if (s != STEP_WAIT)
			return s;
	}
	if (!name_flush(c))
		return conn_cut(c, HOW_RESET_CLIENT, REASON_NONE);
	for (;;) {
		enum step s;

		switch (name_look(c, &why)) {
		case PARSE_DONE:
			return name_done(c);
		case PARSE_BAD:
			return conn_refuse(c, why);
		case PARSE_MORE:
			break;
		}
		if (conn_now_ms() >= c->deadline_ms)
			return name_over(c, true);
		if (c->client.eof)
			return name_over(c, false);
		s = name_read(c, &done);
		if (done)
			return s;
	}
}
