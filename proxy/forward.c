/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/forward.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "proxy/body.h"

#define INTERIM_MAX 64u		/* 1xx answers to one request; more are an
				 * error of the server */
#define ROUNDS 16u		/* for each wake-up */

struct forward {
	struct buf head;		/* as sent up; kept for a replay */
	struct buf in;			/* from the server, not yet passed */
	struct http_chunks up_chunks, down_chunks;
	uint64_t up_left, down_left;
	size_t scanned;
	struct host name;		/* where the upstream leads */
	struct addr addr;
	uint16_t port;
	unsigned interim;
	enum http_method method;
	enum http_body up_body, down_body;
	bool tunnel_addr;		/* the authority is an address */
	bool minor0;
	bool keep;			/* the client's connection */
	bool up_keep;
	bool upgrade;
	char accept[HTTP_ACCEPT_BYTES];	/* what the answer to that says */
	bool alone;			/* its upstream serves no other */
	bool up_done, down_head, down_done;
	bool fresh;			/* the first request of this state */
	bool reused;
	bool client_ended;		/* while its answer was waited for */
};

_Static_assert(sizeof(struct forward) <= FORWARD_STATE_BYTES,
    "proxy_memory_max counts with it");

void
forward_free(struct conn *c)
{
	if (c->forward == NULL)
		return;
	buf_free(&c->forward->head);
	buf_free(&c->forward->in);
	free(c->forward);
	c->forward = NULL;
}

bool
forward_answered(const struct conn *c)
{
	return c->forward->down_head;
}

/* ---- NAME ---- */

/* What was cut ends in "~", as in records. */
static void
copy_text(char *out, size_t size, struct span s)
{
	size_t n = s.len < size - 1 ? s.len : size - 1;

	if (n > 0)
		memcpy(out, s.data, n);
	if (n < s.len)
		out[n - 1] = '~';
	out[n] = '\0';
}

static bool
wants_json(const struct http_request *rq)
{
	const struct http_field *f = http_field_find(rq->fields,
	    rq->n_fields, "accept");

	return f != NULL && memmem(f->value.data, f->value.len,
	    "application/json", 16) != NULL;
}

/* Who asks, on the explicit listener: a credential decides alone. */
static enum reason
find_cell(struct conn *c, const struct http_request *rq)
{
	const struct listener *l = &c->proxy->listeners[c->listener];
	uint8_t buf[512];
	char id[POLICY_ID_BYTES];
	struct span user, password;
	enum reason why = REASON_AUTH_REQUIRED;

	if (rq->credential.len == 0) {
		if (l->is.credential)
			return REASON_AUTH_REQUIRED;
		conn_cell(c, NULL, span_of(NULL, 0), &why);
	} else {
		c->cell = CELL_NONE;	/* whoever shows what is no one's */
		if (!http_basic(rq->credential, buf, sizeof(buf), &user,
		    &password) || user.len >= sizeof(id) ||
		    memchr(user.data, 0, user.len) != NULL)
			return REASON_AUTH_FAILED;
		copy_text(id, sizeof(id), user);
		conn_cell(c, id, password, &why);
	}
	if (c->cell == CELL_NONE)
		return why;
	again_keep_cell(c, rq->credential.len > 0);
	return conn_count_cell(c);
}

/* Inside a tunnel: is it the place that the CONNECT named? */
static bool
is_tunnels_place(const struct conn *c, const struct http_target *t)
{
	const struct opening *o = c->open;
	const struct forward *f = c->forward;
	bool is_addr = f ? f->tunnel_addr : o->is_addr;
	const struct host *name = f ? &f->name : &o->name;
	const struct addr *addr = f ? &f->addr : &o->to.addr;

	if (t->port != c->port || t->is_addr != is_addr)
		return false;
	return is_addr ? addr_eq(addr, &t->addr) : host_eq(name, &t->host);
}

/* Does the target agree with the place that this connection leads to? */
static enum reason
check_place(const struct conn *c, const struct http_request *rq)
{
	const struct http_target *t = &rq->to;

	if (c->inside)
		return is_tunnels_place(c, t) ? REASON_NONE :
		    REASON_HOST_MISMATCH;
	if (c->via == VIA_HTTP || c->via == VIA_CONNECT)
		return REASON_NONE;
	if (t->port != c->original.port)
		return REASON_HOST_MISMATCH;
	if (t->is_addr && c->via == VIA_NAMED)
		return REASON_ADDRESS_LITERAL;
	if (t->is_addr && !addr_eq(&t->addr, &c->original.addr))
		return REASON_HOST_MISMATCH;
	return REASON_NONE;
}

static enum reason
check_form(const struct conn *c, const struct http_request *rq)
{
	bool explicit = c->proxy->listeners[c->listener].is.kind ==
	    LISTEN_EXPLICIT && !c->inside;

	if (rq->method == HTTP_CONNECT)
		return explicit ? REASON_NONE : REASON_NESTED_PROXY;
	if (explicit && rq->form != HTTP_ABSOLUTE)
		return REASON_TARGET;
	return check_place(c, rq);
}

/* Everything that the exchange has to know of the request; the spans end
 * with the head. */
static int
take_request(struct conn *c, const struct http_request *rq)
{
	struct forward *f = c->forward;
	size_t size = rq->head_bytes + FORWARD_HEAD_MORE_BYTES, n;
	bool fresh = f == NULL;

	if (f == NULL)
		f = c->forward = calloc(1, sizeof(*f));
	if (f == NULL)
		return -ENOMEM;
	f->fresh = fresh;
	if (fresh && c->inside) {	/* the tunnel's upstream serves */
		f->tunnel_addr = c->open->is_addr;
		f->name = c->open->name;
		f->addr = c->open->is_addr ? c->open->to.addr :
		    c->open->addrs[0];
		f->port = c->port;
	}
	buf_free(&f->head);
	f->head.data = malloc(size);
	if (f->head.data == NULL)
		return -ENOMEM;
	f->head.cap = (uint32_t)size;
	f->alone = http_body_may_be_missed(rq);
	f->upgrade = rq->upgrade.len > 0 && !f->alone &&
	    http_websocket_accept(rq->key, f->accept);
	n = http_request_write(rq, f->upgrade, f->head.data, size);
	if (n == 0)
		return -ENOMEM;
	f->head.len = (uint32_t)n;
	f->method = rq->method;
	f->up_body = rq->body;
	f->up_left = rq->length;
	f->minor0 = rq->minor == 0;
	f->keep = rq->keep_alive;
	f->up_done = rq->body == HTTP_BODY_NONE ||
	    (rq->body == HTTP_BODY_LENGTH && rq->length == 0);
	f->down_head = f->down_done = f->reused = false;
	f->interim = 0;
	f->scanned = 0;
	memset(&f->up_chunks, 0, sizeof(f->up_chunks));
	memset(&f->down_chunks, 0, sizeof(f->down_chunks));
	return 0;
}

static void
show_place(struct opening *o, const struct http_request *rq)
{
	o->is_addr = rq->to.is_addr;
	o->name = rq->to.host;
	if (o->is_addr)
		o->name = (struct host){ 0 };
	o->to.addr = rq->to.addr;
	o->to.port = rq->to.port;
	o->from = rq->method == HTTP_CONNECT ? NAME_FROM_CONNECT :
	    NAME_FROM_HOST;
	o->n_addrs = 0;
}

/* A new request takes the place of the one before in what is judged. */
static void
show(struct conn *c, const struct http_request *rq)
{
	struct opening *o = c->open;

	o->json = wants_json(rq);
	o->head_only = rq->method == HTTP_HEAD;
	o->minor = rq->minor;
	copy_text(o->method, sizeof(o->method), rq->method_text);
	copy_text(o->path, sizeof(o->path), rq->path);
	o->decision.rule = RULE_NONE;
}

void
forward_begin(struct conn *c)
{
	struct opening *o = c->open;

	if (o->shown == SHOWN_REQUEST)
		return;
	o->shown = SHOWN_REQUEST;
	o->method[0] = o->path[0] = '\0';
	o->json = o->head_only = false;
	o->minor = 1;
	c->request++;
}

void
forward_no_request(struct conn *c)
{
	if (c->open->shown != SHOWN_REQUEST)
		return;
	c->open->shown = SHOWN_NOTHING;
	c->request--;
}

/* Where a Host without a port leads. */
static uint16_t
default_port(const struct conn *c)
{
	return c->inside ? c->port : c->original.port ? c->original.port : 80;
}

void
forward_glance(struct conn *c)
{
	struct opening *o = c->open;
	struct http_request rq;
	struct host other;

	http_request_glance(buf_span(&c->in), default_port(c), &rq, &other);
	if (rq.method_text.len == 0)
		return;
	show(c, &rq);
	o->other = other;
	/* Without one it is still the connection's, but not the CONNECT's. */
	if (c->inside || rq.to.host.len > 0 || rq.to.is_addr)
		show_place(o, &rq);
	if (rq.to.host.len == 0 && !rq.to.is_addr)
		o->from = NAME_FROM_NONE;
}

/* A head within the limit, from what waits.  One that comes whole is no
 * smaller for it. */
static enum parse
parse_head(struct conn *c, struct http_request *rq, enum reason *why)
{
	const size_t max = c->proxy->limits.head_bytes;
	enum parse p = http_request_parse(buf_span(&c->in),
	    &c->open->scanned, default_port(c), rq, why);

	if ((p == PARSE_MORE && buf_left(&c->in) > max) ||
	    (p == PARSE_DONE && (rq->head_bytes > max ||
	    rq->n_fields > c->proxy->limits.header_count))) {
		*why = REASON_HEAD_TOO_LARGE;
		return PARSE_BAD;
	}
	return p;
}

/* Shown before it is judged, so that a refusal tells of it. */
static enum reason
judge_head(struct conn *c, const struct http_request *rq)
{
	enum reason why = check_form(c, rq);

	show_place(c->open, rq);
	show(c, rq);
	if (why == REASON_NONE && c->via == VIA_HTTP)
		why = find_cell(c, rq);
	return why;
}

static void
take_connect(struct conn *c)
{
	forward_free(c);
	conn_close_up(c);
	c->open->shown = SHOWN_CONNECT;
	c->via = VIA_CONNECT;
}

enum parse
forward_head(struct conn *c, enum reason *why)
{
	struct http_request rq;
	enum parse p;

	forward_begin(c);
	if (c->forward != NULL) {
		c->forward->down_head = false;
		if (!http_looks_like_request(buf_span(&c->in))) {
			*why = REASON_HEAD_MALFORMED;
			return PARSE_BAD;
		}
	}
	p = parse_head(c, &rq, why);
	if (p != PARSE_DONE)
		return p;
	*why = judge_head(c, &rq);
	if (*why != REASON_NONE)
		return PARSE_BAD;
	if (rq.method == HTTP_CONNECT) {
		take_connect(c);
	} else if (take_request(c, &rq) < 0) {
		*why = REASON_LIMIT_MEMORY;
		return PARSE_BAD;
	}
	buf_take(&c->in, rq.head_bytes);
	return PARSE_DONE;
}

/* ---- DECIDE, DIAL ---- */

bool
forward_reuses(const struct conn *c)
{
	struct forward *f = c->forward;
	const struct opening *o = c->open;
	struct endpoint at = { f->addr, f->port };
	struct decision d;
	char peek;

	if (c->up.fd < 0 || f->port != o->to.port)
		return false;
	if (o->name.len > 0 ? !host_eq(&o->name, &f->name) :
	    !addr_eq(&o->to.addr, &f->addr))
		return false;
	/* Anything to read here is the end, or bytes that nobody asked for. */
	if (recv(c->up.fd, &peek, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 ||
	    errno != EAGAIN)
		return false;
	if (!weigh_addr((struct conn *)(uintptr_t)c, &at, &d))
		return false;
	f->reused = !f->fresh;
	c->open->addrs[0] = f->addr;
	c->open->n_addrs = 1;
	return true;
}

void
forward_dialled(struct conn *c)
{
	struct forward *f = c->forward;

	f->name = c->open->name;
	f->addr = c->open->addrs[0];
	f->port = c->open->to.port;
	f->reused = false;
	f->head.at = 0;
}

/* ---- RELAY ---- */

/* The body of the request: what was read with the head first.  As
 * body_pass. */
static ssize_t
up_body(struct conn *c)
{
	struct forward *f = c->forward;
	struct body b = { f->up_body, &f->up_left, &f->up_chunks,
	    &f->up_done, false };

	if (buf_left(&c->in) > 0)
		return body_move(&b, &c->in, &c->up.out);
	return body_pass(&b, c->proxy, &c->client, &c->up, &c->in);
}

/* Head and body upwards.  STEP_NEXT: the connection ended. */
static enum step
go_up(struct conn *c)
{
	struct forward *f = c->forward;
	ssize_t n;
	int e;

	if (f->head.at == 0 && f->head.len > 0 && !f->down_head) {
		if (buf_put(&c->up.out, buf_span(&f->head)) < 0)
			return conn_refuse(c, REASON_LIMIT_MEMORY);
		f->head.at = f->head.len;
	}
	for (unsigned i = 0; i < ROUNDS && !c->up.reset; i++) {
		e = side_flush(&c->up);
		if (e == -EAGAIN)
			break;
		if (e < 0) {
			c->up.reset = true;	/* its answer may be there */
			buf_free(&c->up.out);
			break;
		}
		if (f->up_done)
			break;
		n = up_body(c);
		if (n == -EAGAIN)
			break;
		if (n == -EBADMSG)
			return conn_refuse(c, REASON_FRAMING);
		if (n == -ENOMEM)
			return conn_refuse(c, REASON_LIMIT_MEMORY);
		if (n <= 0)
			return conn_cut(c, HOW_RESET_CLIENT, REASON_NONE);
		c->moved_ms = 0;
	}
	return STEP_WAIT;
}

/* Once, on a kept connection that had died, and only what may be done twice
 * (RFC 9110 9.2.2).  Another connection is another decision: what went to the
 * first has its end here. */
static enum step
server_gone(struct conn *c)
{
	struct forward *f = c->forward;
	bool again = f->reused && f->interim == 0 &&
	    f->up_body == HTTP_BODY_NONE && (f->method == HTTP_GET ||
	    f->method == HTTP_HEAD || f->method == HTTP_OPTIONS ||
	    f->method == HTTP_PUT || f->method == HTTP_DELETE);

	if (!again || buf_left(&f->in) > 0)
		return conn_refuse(c, REASON_UPSTREAM_CLOSED);
	account_end(c, HOW_RESET_UPSTREAM, REASON_UPSTREAM_CLOSED);
	f->head.at = 0;
	c->open->n_addrs = 0;
	c->open->failed = REASON_NONE;
	conn_close_up(c);
	conn_enter(c, CONN_RESOLVE);
	return STEP_NEXT;
}

static enum step
upgraded(struct conn *c)
{
	struct forward *f = c->forward;

	if (buf_put(&c->client.out, buf_span(&f->in)) < 0)
		return conn_cut(c, HOW_CUT, REASON_LIMIT_MEMORY);
	forward_free(c);
	c->open->gate = GATE_OPEN;
	c->open->shown = SHOWN_BYTES;
	return STEP_NEXT;
}

static int
put_head(struct conn *c, const struct http_response *rs,
    enum http_then then)
{
	size_t size = rs->head_bytes + FORWARD_HEAD_MORE_BYTES, n;
	uint8_t *out = malloc(size);
	int e = -ENOMEM;

	if (out == NULL)
		return e;
	n = http_response_write(rs, c->forward->minor0 ? 0 : 1, then, out,
	    size);
	if (n > 0)
		e = buf_put(&c->client.out, span_of(out, n));
	free(out);
	return e;
}

static enum step
interim(struct conn *c, const struct http_response *rs)
{
	struct forward *f = c->forward;
	bool up = rs->status == 101;

	if (up && !(f->upgrade && http_response_upgrades(rs, f->accept)))
		return conn_refuse(c, REASON_UPSTREAM_MALFORMED);
	if (++f->interim > INTERIM_MAX)
		return conn_refuse(c, REASON_UPSTREAM_MALFORMED);
	if (!f->minor0 && put_head(c, rs, up ? HTTP_THEN_UPGRADE :
	    HTTP_THEN_KEEP) < 0)
		return conn_refuse(c, REASON_LIMIT_MEMORY);
	buf_take(&f->in, rs->head_bytes);
	f->scanned = 0;
	if (up)
		account_status(c, rs->status);
	return up ? upgraded(c) : STEP_WAIT;
}

/* Does the client's connection end with this answer?  To a client of 1.0 a
 * body without its chunks has no other end. */
static bool
is_last(const struct forward *f, const struct http_response *rs)
{
	return !f->keep || !f->up_done || rs->body == HTTP_BODY_CLOSE ||
	    (f->minor0 && rs->body == HTTP_BODY_CHUNKED);
}

/* The head of the final answer goes down, and its body is awaited. */
static enum step
begin_answer(struct conn *c, const struct http_response *rs)
{
	struct forward *f = c->forward;

	f->down_body = rs->body;
	f->down_left = rs->length;
	f->up_keep = rs->keep_alive && rs->body != HTTP_BODY_CLOSE &&
	    !f->alone;
	f->keep = !is_last(f, rs);
	if (put_head(c, rs, f->keep ? HTTP_THEN_KEEP : HTTP_THEN_CLOSE) < 0)
		return conn_refuse(c, REASON_LIMIT_MEMORY);
	account_status(c, rs->status);
	buf_take(&f->in, rs->head_bytes);
	f->down_head = true;
	f->down_done = rs->body == HTTP_BODY_NONE ||
	    (rs->body == HTTP_BODY_LENGTH && rs->length == 0);
	return STEP_WAIT;
}

/* STEP_WAIT: look again, or more bytes are needed. */
static enum step
read_head(struct conn *c)
{
	struct forward *f = c->forward;
	struct http_response rs;
	enum reason why = REASON_UPSTREAM_MALFORMED;
	const size_t max = c->proxy->limits.head_bytes;

	if (buf_left(&f->in) == 0)
		return STEP_WAIT;
	switch (http_response_parse(buf_span(&f->in), &f->scanned, f->method,
	    &rs, &why)) {
	case PARSE_BAD:
		return conn_refuse(c, REASON_UPSTREAM_MALFORMED);
	case PARSE_MORE:
		if (buf_left(&f->in) >= max)
			return conn_refuse(c, REASON_UPSTREAM_HEAD_TOO_LARGE);
		return STEP_WAIT;
	case PARSE_DONE:
		break;
	}
	/* One that comes whole is no smaller for it. */
	if (rs.head_bytes > max ||
	    rs.n_fields > c->proxy->limits.header_count)
		return conn_refuse(c, REASON_UPSTREAM_HEAD_TOO_LARGE);
	return rs.status < 200 ? interim(c, &rs) : begin_answer(c, &rs);
}

static enum step
source_ended(struct conn *c)
{
	struct forward *f = c->forward;

	if (!f->down_head)
		return server_gone(c);
	if (f->down_body != HTTP_BODY_CLOSE || c->up.reset)
		return conn_cut(c, HOW_RESET_UPSTREAM, REASON_NONE);
	f->down_done = true;
	return STEP_WAIT;
}

/* The same for the answer. */
static ssize_t
down_body(struct conn *c)
{
	struct forward *f = c->forward;
	struct body b = { f->down_body, &f->down_left, &f->down_chunks,
	    &f->down_done, f->minor0 };

	if (buf_left(&f->in) > 0)
		return body_move(&b, &f->in, &c->client.out);
	return body_pass(&b, c->proxy, &c->up, &c->client, &f->in);
}

/* A begun answer cannot be told of; it must not look whole. */
static enum step
no_room_down(struct conn *c)
{
	return c->forward->down_head ?
	    conn_cut(c, HOW_CUT, REASON_LIMIT_MEMORY) :
	    conn_refuse(c, REASON_LIMIT_MEMORY);
}

/* It takes no answer any more; what it had sent before goes up. */
static enum step
client_reset(struct conn *c)
{
	c->client.reset = true;
	buf_free(&c->client.out);
	if (c->forward->up_done || c->up.reset)
		return conn_cut(c, HOW_RESET_CLIENT, REASON_NONE);
	return STEP_WAIT;
}

static enum step
go_down(struct conn *c)
{
	struct forward *f = c->forward;
	ssize_t n;
	int e;

	for (unsigned i = 0; i < ROUNDS; i++) {
		e = side_flush(&c->client);
		if (e == -EAGAIN)
			return STEP_WAIT;
		if (e < 0)
			return client_reset(c);
		if (f->down_done)
			return STEP_WAIT;
		if (!f->down_head) {
			size_t before = buf_left(&f->in);

			if (read_head(c) != STEP_WAIT || c->forward == NULL)
				return STEP_NEXT;
			if (buf_left(&f->in) != before)
				continue;
			n = side_fill(&c->up, &f->in, FORWARD_BODY_BYTES);
		} else {
			n = down_body(c);
		}
		if (n == -EBADMSG)
			return conn_cut(c, HOW_RESET_UPSTREAM,
			    REASON_UPSTREAM_MALFORMED);
		if (n == -ENOMEM)
			return no_room_down(c);
		if (n == -EAGAIN)
			return STEP_WAIT;
		if (n < 0)
			c->up.reset = true;
		if (n <= 0 && source_ended(c) == STEP_NEXT)
			return STEP_NEXT;
		c->moved_ms = 0;
	}
	/* Whole heads may wait that were read, and that nothing was put out
	 * for: no edge tells of them. */
	c->up.readable = true;
	return STEP_WAIT;
}

/* The answer is through: the next request, or the end. */
static enum step
next_request(struct conn *c)
{
	struct forward *f = c->forward;
	struct opening *o = c->open;

	account_end(c, HOW_FIN, REASON_NONE);
	if (!f->up_keep || c->up.reset || buf_left(&f->in) > 0 ||
	    !f->up_done) {
		buf_free(&f->in);
		conn_close_up(c);
	}
	if (!f->keep || c->proxy->draining) {
		c->told = true;		/* half-close and drain */
		return conn_cut(c, HOW_FIN, REASON_NONE);
	}
	buf_free(&f->head);
	memset(o, 0, sizeof(*o));
	o->decision.rule = RULE_NONE;
	o->minor = 1;
	o->to = c->original;
	hello_reader_init(&o->reader, c->proxy->limits.hello_bytes);
	if (c->via == VIA_HTTP)		/* the next may be another's */
		conn_cell(c, NULL, span_of(NULL, 0), &o->no_cell);
	conn_enter(c, CONN_NAME);
	return STEP_NEXT;
}

/*
 * A client whose request is up is not listened to, so that one which has left
 * is met here.  One that has only ended its direction may still wait for the
 * answer, but not for as long as one that is there.
 */
void
forward_look_at_client(struct conn *c)
{
	struct forward *f = c->forward;
	char peek;
	ssize_t n;

	if (c->state != CONN_RELAY || f == NULL || !f->up_done ||
	    f->client_ended)
		return;
	n = recv(c->client.fd, &peek, 1, MSG_PEEK | MSG_DONTWAIT);
	if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
		return;
	f->client_ended = true;
	if (n < 0)
		conn_cut(c, HOW_RESET_CLIENT, REASON_NONE);
	else
		c->deadline_ms = c->moved_ms = conn_now_ms();	/* see late */
	conn_run(c);
}

/* For how long nothing may move. */
static unsigned
patience_ms(const struct conn *c)
{
	const struct proxy_limits *l = &c->proxy->limits;

	return c->forward->client_ended && l->half_closed_ms < l->idle_ms ?
	    l->half_closed_ms : l->idle_ms;
}

static enum step
late(struct conn *c)
{
	int64_t now = conn_now_ms();

	if (c->moved_ms == 0)
		c->moved_ms = now;
	if (now < c->deadline_ms)
		return STEP_WAIT;
	c->deadline_ms = c->moved_ms + patience_ms(c);
	if (now < c->deadline_ms)
		return STEP_WAIT;
	if (!c->forward->down_head)
		return conn_refuse(c, REASON_UPSTREAM_TIMEOUT);
	return conn_cut(c, HOW_CUT, REASON_IDLE);
}

enum step
forward_step(struct conn *c)
{
	enum step s = go_up(c);

	if (s == STEP_WAIT)
		s = c->client.reset ? client_reset(c) : go_down(c);
	if (s != STEP_WAIT)
		return STEP_NEXT;
	if (c->forward->down_done && buf_left(&c->client.out) == 0)
		return next_request(c);
	return late(c);
}

unsigned
forward_wants(const struct conn *c, bool client)
{
	const struct forward *f = c->forward;
	const struct side *s = client ? &c->client : &c->up;
	unsigned want = buf_left(&s->out) > 0 ? SIDE_WRITE : 0;

	if (client && !f->up_done && !c->client.eof && !c->up.reset &&
	    buf_left(&c->up.out) == 0)
		want |= SIDE_READ;
	if (!client && !f->down_done && !c->client.reset &&
	    buf_left(&c->client.out) == 0)
		want |= SIDE_READ;
	return want;
}
