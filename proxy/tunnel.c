/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <strings.h>

#include "proxy/conn.h"
#include "proxy/http.h"
#include "proxy/opening.h"

/*
 * The beginning of a relay: what was held goes up first, and until it is
 * clear that no other name can follow, the client's bytes wait at a gate.
 */

static const char established[] = "HTTP/1.1 200 Connection established\r\n"
    "\r\n";

static int
begin_connect(struct conn *c)
{
	struct opening *o = c->open;

	c->inside = true;
	o->gate = o->decision.opaque ? GATE_OPAQUE : GATE_OPEN;
	o->shown = SHOWN_NOTHING;
	o->scanned = 0;
	hello_reader_init(&o->reader, c->proxy->limits.hello_bytes);
	memset(&o->hello, 0, sizeof(o->hello));
	account_status(c, 200);
	return buf_put(&c->client.out, span_str(established));
}

/* Up to `end` what is held goes up, but for what has. */
static int
pass(struct conn *c, size_t end)
{
	struct opening *o = c->open;
	size_t from = o->passed;

	if (end <= from)
		return 0;
	if (buf_put(&c->up.out, span_of(buf_span(&c->in).data + from,
	    end - from)) < 0)
		return -ENOMEM;
	o->passed = end;
	c->moved_ms = 0;
	return 0;
}

/* Held no longer. */
static void
take(struct conn *c, size_t n)
{
	struct opening *o = c->open;

	buf_take(&c->in, n);
	o->passed = o->passed > n ? o->passed - n : 0;
}

/* The hello alone goes up: what follows it may be a second hello. */
static int
begin_hello(struct conn *c)
{
	struct opening *o = c->open;
	size_t n = buf_left(&c->in);

	if (o->hello.stream_bytes < n)
		n = o->hello.stream_bytes;
	if (pass(c, n) < 0)
		return -ENOMEM;
	take(c, n);
	flight_init(&o->flight);
	c->up.bulk = false;	/* each byte of the flight is looked at */
	o->gate = GATE_FLIGHT;
	return 0;
}

int
tunnel_begin(struct conn *c)
{
	struct opening *o = c->open;

	switch (o->shown) {
	case SHOWN_CONNECT:
		return begin_connect(c);
	case SHOWN_HELLO:
		return begin_hello(c);
	case SHOWN_NOTHING:
		o->gate = GATE_OPAQUE;
		return 0;
	case SHOWN_BYTES:
		o->gate = GATE_WATCH;
		return 0;
	case SHOWN_REQUEST:
		o->gate = GATE_OPEN;
		return 0;
	}
	return 0;
}

void
tunnel_saw_server(struct conn *c, struct span bytes)
{
	struct opening *o = c->open;

	if (o == NULL || o->gate != GATE_FLIGHT)
		return;
	switch (flight_feed(&o->flight, bytes)) {
	case FLIGHT_MORE:
		break;
	case FLIGHT_HELLO:
		o->gate = GATE_OPEN;
		break;
	case FLIGHT_OTHER:	/* a retry may stand behind it all the same */
		o->gate = GATE_WATCH;
		o->alien = o->line.over = true;
		break;
	case FLIGHT_RETRY:
		o->gate = GATE_RETRY;
		hello_reader_init(&o->reader, c->proxy->limits.hello_bytes);
		c->deadline_ms = conn_now_ms() + c->proxy->limits.hello_ms;
		break;
	}
}

/* No rule allows the flow, and the report that lets it pass is not over: it
 * was told as one that would be denied, whatever name it shows. */
static bool
passes_by_report(const struct conn *c, const struct decide_at *at)
{
	struct cell_view v;

	return c->open->decision.would == VERDICT_DENY &&
	    policy_cell(at->policy, at->cell, at->now_s, &v) && v.reports;
}

bool
tunnel_reads_first(struct conn *c)
{
	struct opening *o = c->open;

	if (c->up.eof || c->up.reset)	/* nor is there who would answer */
		return false;
	o->decided = o->port_closed = false;
	o->scanned = 0;
	if (!c->inside) {		/* it was a pin's, not shown */
		o->name.len = 0;
		o->from = NAME_FROM_NONE;
	}
	conn_enter(c, CONN_NAME);
	return true;
}

/* May this name be shown on the opaque flow at hand? */
static bool
name_fits(struct conn *c, const struct host *name)
{
	struct opening *o = c->open;
	struct endpoint to = { o->addrs[0], o->to.port };
	struct decide_at at = conn_at(c);
	struct decision d;

	if (name->len == 0)
		return true;
	if (c->inside && o->name.len > 0)
		return host_eq(name, &o->name);
	d = decide_name(&at, name, to.port, &to);
	if (d.verdict != VERDICT_ALLOW)
		return false;
	return d.original_only || passes_by_report(c, &at) ||
	    pinned_has(c, name, &to.addr);
}

static enum step
other_name(struct conn *c, const struct host *name, enum reason why)
{
	c->open->other = *name;
	return conn_refuse(c, why);
}

/* Where the first line ends, behind empty ones; the length of s: not there. */
static size_t
line_end(struct span s)
{
	size_t at = 0;

	while (at < s.len && (s.data[at] == '\r' || s.data[at] == '\n'))
		at++;
	while (at < s.len && s.data[at] != '\n')
		at++;
	return at;
}

/* A whole first line without a version is no HTTP/1 request, whatever it
 * begins with: "SSH-2.0-OpenSSH_9.2p1 Debian-2" is a banner. */
static bool
line_has_no_version(struct span s)
{
	size_t end = line_end(s);

	for (size_t at = 0; at < end; at++)
		if (s.len - at >= 6 &&
		    strncasecmp((const char *)&s.data[at], " HTTP/", 6) == 0)
			return false;
	return end < s.len;
}

/* From here on the flow is one of requests, each judged as those are that come
 * on a port that is read, and dialled for itself: a later one may name another
 * host.  (Behind bytes of another protocol none is looked for: no HTTP server
 * takes it for a request.) */
static enum step
be_requests(struct conn *c)
{
	return tunnel_reads_first(c) ? STEP_NEXT :
	    conn_refuse(c, REASON_UPSTREAM_CLOSED);
}

static enum step
gate_request(struct conn *c, struct span s)
{
	struct http_request rq;
	enum reason why = REASON_NONE;
	enum parse p = http_request_parse(s, &c->open->scanned,
	    c->open->to.port, &rq, &why);

	/* A head may be larger than what is held here: with its first line it
	 * is one already. */
	if (p == PARSE_MORE && s.len < HELLO_STREAM_MAX_BYTES &&
	    line_end(s) == s.len)
		return STEP_WAIT;
	return be_requests(c);
}

/* Where the name is what lets it pass, by a rule of its own, that is a
 * decision. */
static int
tell_hello(struct conn *c)
{
	struct opening *o = c->open;
	struct endpoint to = { o->addrs[0], o->to.port };
	const struct host *name = &o->hello.name;
	struct decide_at at = conn_at(c);
	struct decision d = { .verdict = VERDICT_DENY };

	if (name->len > 0 && !(c->inside && o->name.len > 0))
		d = decide_name(&at, name, to.port, NULL);
	if (d.verdict == VERDICT_ALLOW && pinned_has(c, name, &to.addr) &&
	    !passes_by_report(c, &at) && weigh_fits(c, &d, &to))
		return account_inner(c, name, NAME_FROM_SNI, &d);
	account_hello(c);
	return !again_keep_shown(c, name) ? -ENOMEM : 0;
}

static enum step
opaque_hello(struct conn *c)
{
	struct opening *o = c->open;
	struct decide_at at = conn_at(c);
	int e;

	if (o->hello.ech && decide_ech_denied(&at))
		return conn_refuse(c, REASON_ECH);
	if (!name_fits(c, &o->hello.name))
		return other_name(c, &o->hello.name, REASON_OTHER_NAME);
	e = tell_hello(c);
	if (e < 0)
		return conn_refuse(c, e == -ENOMEM ? REASON_LIMIT_MEMORY :
		    REASON_LEDGER_UNAVAILABLE);
	conn_keep_hello(c, &o->hello);
	return begin_hello(c) < 0 ? conn_refuse(c, REASON_LIMIT_MEMORY) :
	    STEP_WAIT;
}

/* The first bytes of an opaque flow. */
static enum step
gate_opaque(struct conn *c)
{
	struct opening *o = c->open;
	struct span s = buf_span(&c->in);
	enum reason why = REASON_NONE;
	enum parse p;

	if (s.len == 0)
		return STEP_WAIT;
	if (s.data[0] == 0x16) {
		p = hello_feed(&o->reader, s, &o->hello, &why);
		if (p == PARSE_MORE)
			return STEP_WAIT;
		if (p == PARSE_BAD && why != REASON_NOT_TLS)
			return conn_refuse(c, why);
		if (p == PARSE_DONE)
			return opaque_hello(c);
	} else if (http_looks_like_request(s) && !line_has_no_version(s)) {
		return gate_request(c, s);
	}
	p = opening_judge(s, &why);
	if (p == PARSE_BAD)
		return conn_refuse(c, why);
	if (p == PARSE_MORE)
		return STEP_WAIT;
	o->gate = GATE_WATCH;
	c->bytes = true;
	c->moved_ms = conn_now_ms();
	c->deadline_ms = c->moved_ms + c->proxy->limits.idle_ms;
	return STEP_NEXT;
}

/* A hello begins at `at`: so much of it as had not told goes up already, the
 * rest is held until it is judged. */
static enum step
found_hello(struct conn *c, size_t at)
{
	if (pass(c, at) < 0)
		return conn_refuse(c, REASON_LIMIT_MEMORY);
	take(c, at);
	c->open->gate = GATE_HELLO;
	hello_reader_init(&c->open->reader, c->proxy->limits.hello_bytes);
	c->deadline_ms = conn_now_ms() + c->proxy->limits.hello_ms;
	return STEP_NEXT;
}

/* The server takes less than comes. */
static bool
is_slow(const struct conn *c)
{
	return buf_left(&c->up.out) >= HELLO_STREAM_MAX_BYTES;
}

/* Is it enough?  Behind a hello nothing but another one is looked for, and
 * that may stand behind early data of any size. */
static bool
watched_enough(const struct conn *c)
{
	return c->client.eof || (!c->open->alien &&
	    c->open->watched >= OPENING_WATCH_BYTES);
}

/* The bytes of another protocol.  Nothing is held, so that none is slowed, but
 * what may be the beginning of a hello is kept. */
static enum step
gate_watch(struct conn *c)
{
	struct opening *o = c->open;
	struct span s = buf_span(&c->in);
	size_t new = s.len - o->passed, at;

	if (is_slow(c))
		return STEP_WAIT;
	if (opening_line_is_http(&o->line, span_of(s.data + o->passed, new)))
		return conn_refuse(c, REASON_PROTOCOL);
	if (opening_find_hello(s, &at))
		return found_hello(c, at);
	if (pass(c, s.len) < 0)
		return conn_refuse(c, REASON_LIMIT_MEMORY);
	o->watched += new;
	take(c, watched_enough(c) ? s.len : at);
	if (!watched_enough(c)) {
		buf_fit(&c->in);	/* the next bytes may come in hours */
		return STEP_WAIT;
	}
	o->gate = GATE_OPEN;
	return STEP_NEXT;
}

static enum step
second_hello(struct conn *c, const struct hello *second)
{
	struct opening *o = c->open;
	struct decide_at at = conn_at(c);

	if (!host_eq(&second->name, &o->hello.name))
		return other_name(c, &second->name, REASON_SECOND_HELLO);
	if (second->ech && decide_ech_denied(&at))
		return conn_refuse(c, REASON_ECH);
	c->ech = c->ech || second->ech;
	o->gate = GATE_OPEN;
	return STEP_NEXT;
}

/* A hello behind other bytes: STARTTLS and its kind, or a second one. */
static enum step
gate_hello(struct conn *c)
{
	struct opening *o = c->open;
	enum reason why = REASON_NONE;
	struct hello h = { 0 };

	switch (hello_feed(&o->reader, buf_span(&c->in), &h, &why)) {
	case PARSE_MORE:
		return STEP_WAIT;
	case PARSE_BAD:
		return conn_refuse(c, why == REASON_NOT_TLS ?
		    REASON_HELLO_MALFORMED : why);
	case PARSE_DONE:
		break;
	}
	if (o->alien)
		return second_hello(c, &h);
	o->hello = h;
	return opaque_hello(c);
}

/* One record that may stand before a second hello goes up as it is:
 * change_cipher_spec (RFC 8446 D.4), an alert, early data that the server
 * will skip (4.2.10). */
static enum step
pass_record(struct conn *c, struct span s)
{
	size_t n = 5u + ((size_t)s.data[3] << 8 | s.data[4]);

	if (n > 5u + 16384u + 256u)
		return conn_refuse(c, REASON_HELLO_MALFORMED);
	if (s.len < n || is_slow(c))
		return STEP_WAIT;
	if (buf_put(&c->up.out, span_of(s.data, n)) < 0)
		return conn_refuse(c, REASON_LIMIT_MEMORY);
	buf_take(&c->in, n);
	return STEP_NEXT;
}

static enum step
gate_retry(struct conn *c)
{
	struct opening *o = c->open;
	struct hello second = { 0 };
	enum reason why = REASON_NONE;
	struct span s = buf_span(&c->in);

	if (s.len < 5)
		return STEP_WAIT;
	if (s.data[0] == 20 || s.data[0] == 21 || s.data[0] == 23)
		return pass_record(c, s);
	switch (hello_feed(&o->reader, s, &second, &why)) {
	case PARSE_MORE:
		return STEP_WAIT;
	case PARSE_BAD:
		return conn_refuse(c, REASON_SECOND_HELLO);
	case PARSE_DONE:
		break;
	}
	return second_hello(c, &second);
}

/* Everything passes from here on; what the opening needed is given back. */
static enum step
gate_open(struct conn *c)
{
	if (pass(c, buf_left(&c->in)) < 0)
		return conn_refuse(c, REASON_LIMIT_MEMORY);
	buf_free(&c->in);
	dial_cancel(c);
	free(c->open);
	c->open = NULL;
	c->moved_ms = conn_now_ms();
	c->deadline_ms = c->moved_ms + c->proxy->limits.idle_ms;
	return STEP_WAIT;
}

/* What the client sends while the gate is closed is held, with a bound: a
 * full buffer leaves the rest in the kernel. */
static enum step
gate_read(struct conn *c)
{
	bool was_empty = buf_left(&c->in) == 0;
	ssize_t n = 0;

	while (c->client.readable && !c->client.eof && n >= 0) {
		n = side_fill(&c->client, &c->in, HELLO_STREAM_MAX_BYTES);
		if (n == 0)
			c->client.eof = true;
	}
	if (n == -ENOMEM)
		return conn_refuse(c, REASON_LIMIT_MEMORY);
	/* What came before is judged, and passed on where that opens it. */
	if (n < 0 && n != -EAGAIN && n != -ENOBUFS)
		c->client.eof = c->client.reset = true;
	if (was_empty && buf_left(&c->in) > 0 &&
	    c->open->gate == GATE_OPAQUE)
		c->deadline_ms = conn_now_ms() + c->proxy->limits.hello_ms;
	return STEP_WAIT;
}

/* The client has ended, and what it sent opens nothing. */
static enum step
gate_ended(struct conn *c)
{
	if (c->client.reset)
		return conn_cut(c, HOW_RESET_CLIENT, REASON_NONE);
	return conn_refuse(c, REASON_HELLO_INCOMPLETE);
}

/* One look at the gate.  STEP_NEXT: look again, or the connection ended. */
enum step
tunnel_gate(struct conn *c)
{
	enum step s = gate_read(c);

	if (s != STEP_WAIT)
		return s;
	switch (c->open->gate) {
	case GATE_OPEN:
		return gate_open(c);
	case GATE_OPAQUE:
		s = gate_opaque(c);
		break;
	case GATE_WATCH:
		s = gate_watch(c);
		break;
	case GATE_HELLO:
		s = gate_hello(c);
		break;
	case GATE_RETRY:
		s = gate_retry(c);
		break;
	case GATE_FLIGHT:
		if (c->client.reset && buf_left(&c->in) > 0)
			return conn_cut(c, HOW_RESET_CLIENT, REASON_NONE);
		/* who has ended without a further byte shows no second hello */
		if (!c->up.eof && (!c->client.eof || buf_left(&c->in) > 0))
			return STEP_WAIT;
		c->open->gate = GATE_OPEN;
		return STEP_NEXT;
	}
	if (s != STEP_WAIT)
		return s;
	if (c->client.eof && c->open->gate == GATE_OPAQUE &&
	    buf_left(&c->in) == 0) {
		c->bytes = true;
		return gate_open(c);
	}
	if (c->client.eof && c->open->gate != GATE_FLIGHT &&
	    c->open->gate != GATE_WATCH)
		return gate_ended(c);
	return STEP_WAIT;
}
