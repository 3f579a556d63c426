/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

#include "ledger-client/fold.h"
#include "proxy/conn.h"
#include "proxy/http.h"
#include "proxy/refuse.h"

/* What a hello that is yet to come adds to the end record. */
#define HELLO_TEXT_BYTES (sizeof(((struct hello *)0)->ja4) - 1 + \
    sizeof(((struct hello *)0)->alpn) - 1)

/* Bytes of the end record that begins as this decision does.  A tunnel and an
 * opaque flow show their hello after it, and each address may be dialled in
 * vain. */
static size_t
end_size(const struct conn *c, const struct record *r)
{
	const struct opening *o = c->open;
	size_t n = record_size(r), tries;

	if (r->verdict != VERDICT_ALLOW || o == NULL)
		return n;
	if (o->shown == SHOWN_CONNECT || o->shown == SHOWN_NOTHING ||
	    o->shown == SHOWN_BYTES)
		n += HELLO_TEXT_BYTES + (o->name.len > 0 ? 0 : HOST_MAX_BYTES);
	tries = o->n_addrs < RECORD_TRIES_MAX ? o->n_addrs : RECORD_TRIES_MAX;
	if (c->up.fd < 0)
		n += tries * sizeof(struct record_try);
	return n;
}

bool
account_is_unread(const struct conn *c)
{
	return c->open != NULL && c->open->shown == SHOWN_REQUEST &&
	    c->open->method[0] == '\0';
}

bool
account_is_open(const struct conn *c)
{
	return c->end != NULL && !c->end_told;
}

/* What would be dialled first.  A client that asked for a name has chosen no
 * address of it: that it wanted one stands in `original`. */
static struct endpoint
place(const struct opening *o)
{
	struct endpoint to = { .port = o->to.port };

	if (o->n_addrs > 0)
		to.addr = o->addrs[0];
	else if (o->is_addr)
		to.addr = o->to.addr;
	return to;
}

/* Of bytes that are refused for how they come: what a lenient server would read
 * in them. */
static struct host
glance(const struct conn *c)
{
	struct http_request rq;
	struct host other;

	http_request_glance(buf_span(&c->in), c->open->to.port, &rq, &other);
	return rq.to.host.len > 0 ? rq.to.host : other;
}

/* The name beside the flow's own: the one that does not fit it, or that was
 * shown behind its decision. */
static struct host
beside(const struct conn *c, enum reason why)
{
	const struct opening *o = c->open;

	if (o->other.len > 0)
		return o->other;
	if (o->hello.name.len > 0)
		return o->hello.name;
	return why == REASON_PROTOCOL || why == REASON_NOT_TLS ? glance(c) :
	    o->other;
}

static void
fill_names(const struct conn *c, enum reason why, struct record *r)
{
	const struct opening *o = c->open;
	const struct host other = beside(c, why), *name = &o->name;

	r->name_from = (uint8_t)o->from;
	/* the second of two hellos does not fit the first */
	if (name->len == 0 && r->verdict == VERDICT_DENY &&
	    o->hello.name.len > 0 && !host_eq(&o->hello.name, &other)) {
		name = &o->hello.name;
		r->name_from = NAME_FROM_SNI;
	}
	if (name->len > 0)
		record_set(r, TEXT_NAME, span_of(name->name, name->len));
	if (other.len > 0 && !host_eq(&other, name))
		record_set(r, TEXT_OTHER_NAME,
		    span_of(other.name, other.len));
}

static void
fill(const struct conn *c, const struct decision *d, enum reason why,
    struct record *r)
{
	const struct opening *o = c->open;

	record_init(r, RECORD_DECISION);
	record_stamp(r);
	r->connection = c->id;
	r->request = c->request;
	r->via = c->via;
	r->client = c->peer;
	r->original = c->original;
	r->verdict = (uint8_t)d->verdict;
	r->would = (uint8_t)d->would;
	r->reason = (uint16_t)why;
	if (c->proxy->policy != NULL)
		record_policy(r, c->proxy->policy, c->cell, d->rule);
	if (o == NULL || account_is_unread(c))
		return;
	r->dialled = place(o);
	fill_names(c, why, r);
	if (o->hello.ja4[0] != '\0')
		record_set(r, TEXT_JA4, span_str(o->hello.ja4));
	if (o->hello.alpn[0] != '\0')
		record_set(r, TEXT_ALPN, span_str(o->hello.alpn));
	if (o->method[0] != '\0')
		record_set(r, TEXT_METHOD, span_str(o->method));
	if (o->path[0] != '\0')
		record_set(r, TEXT_PATH, span_str(o->path));
}

static void
count(const struct conn *c, const struct decision *d, enum reason why)
{
	struct counts *n = c->proxy->parts.counts;

	if (d->verdict == VERDICT_DENY) {
		count_denied(n, why);
		return;
	}
	count_add(n, COUNT_ALLOWED, 1);
	if (d->would == VERDICT_DENY)
		count_add(n, COUNT_REPORTED, 1);
}

/* The decision is handed over, and its end takes the place of the one before;
 * that is a copy of what its record shall begin with, no longer than it has to
 * be, and of what was dialled in vain.  A denial does without where nothing
 * else is open. */
static int
account_put(struct conn *c, const struct record *r)
{
	struct emit *emit = c->proxy->parts.emit;
	bool open = account_is_open(c);
	bool must = open || r->verdict == VERDICT_ALLOW;
	struct span tried = open ? record_get(c->end, TEXT_TRIED) :
	    span_of(NULL, 0);
	size_t n = end_size(c, r) + tried.len;
	struct record *end = malloc(n);
	int e = -ENOMEM;

	if (end != NULL || !must)
		e = emit_decision(emit, r, end != NULL ? n : 0);
	if (e < 0 && must) {
		free(end);
		return e;
	}
	if (end != NULL) {
		memcpy(end, r, record_size(r));
		if (open)	/* what was told stays told */
			end->status = c->end->status;
		record_set(end, TEXT_TRIED, tried);
	}
	if (c->end != NULL && c->end_told)	/* a later request */
		c->opened_us = r->mono_us;
	if (!open)
		c->is_dialled = false;
	emit_release(emit, c->end_bytes);
	free(c->end);
	c->end = end;
	c->end_bytes = e == 0 && end != NULL ? n : 0;
	c->end_told = false;
	return e;
}

/* A denial is told, or counted as lost.  Its end keeps the room that it has:
 * of the texts of an earlier decision those stay that are this one's too. */
static void
account_denial(struct conn *c, const struct record *r)
{
	struct record *end = c->end;
	uint16_t status;

	emit_note(c->proxy->parts.emit, r);
	if (end == NULL || end->verdict == VERDICT_DENY)
		return;
	status = end->status;
	memcpy(end, r, offsetof(struct record, text_len));
	end->status = status;
	for (unsigned i = 0; i < TEXT_COUNT; i++)
		if (i != TEXT_TRIED &&
		    !span_eq(record_get(end, i), record_get(r, i)))
			end->text_at_len[i] = 0;
}

/* A denial that is one of too many is counted with the others, and has no end.
 * Behind what was allowed it is not: that has an end anyway. */
static int
hand_over(struct conn *c, const struct record *r)
{
	int e;

	if (!account_is_open(c) && fold_takes(c->proxy->fold, r))
		return 0;
	e = account_put(c, r);
	if (e == 0 || r->verdict == VERDICT_ALLOW)
		return e;
	account_denial(c, r);
	return 0;
}

/*
 * The record of a decision, handed over before anything follows from it, with
 * room for the end record; a denial needs none.  What was open of another
 * request ends here.  0, or a negative errno: then an allow becomes a denial.
 */
int
account_decision(struct conn *c, const struct decision *d, enum reason why)
{
	struct record r;
	int e;

	if (account_is_open(c) && c->end->request != c->request)
		account_end(c, HOW_FIN, REASON_NONE);
	fill(c, d, why, &r);
	e = hand_over(c, &r);
	if (e < 0)
		return e;
	count(c, d, why);
	proxy_put(c->proxy);
	return 0;
}

int
account_inner(struct conn *c, const struct host *name,
    enum record_name_from from, const struct decision *d)
{
	struct opening *o = c->open;
	struct endpoint at = { 0 };
	bool open = account_is_open(c);
	int e;

	if (open)
		at = c->end->dialled;
	o->name = *name;
	o->from = from;
	o->decision.rule = d->rule;
	e = account_decision(c, d, d->reason);
	if (e == 0 && open && c->end != NULL)
		c->end->dialled = at;	/* it is connected already */
	return e;
}

void
account_hello(struct conn *c)
{
	const struct hello *h = &c->open->hello;
	const struct span ja4 = span_str(h->ja4), alpn = span_str(h->alpn);
	struct span name = span_of(h->name.name, h->name.len);
	struct record *r = c->end;

	if (host_eq(&h->name, &c->open->name))
		name.len = 0;
	/* The room was kept with the decision, for one hello. */
	if (r == NULL || record_size(r) + ja4.len + alpn.len + name.len >
	    c->end_bytes)
		return;
	record_set(r, TEXT_JA4, ja4);
	record_set(r, TEXT_ALPN, alpn);
	record_set(r, TEXT_OTHER_NAME, name);
}

void
account_status(struct conn *c, unsigned status)
{
	if (account_is_open(c))
		c->end->status = (uint16_t)status;
}

void
account_tried(struct conn *c)
{
	struct opening *o = c->open;
	struct span s = span_of(o->tried, o->n_tried * sizeof(o->tried[0]));

	o->n_tried = 0;
	if (account_is_open(c) && record_size(c->end) + s.len <= c->end_bytes)
		record_set(c->end, TEXT_TRIED, s);
}

/* What passed since the end before is this one's, or that of a denial without
 * one. */
static uint64_t
take_bytes(struct conn *c, struct side *s, enum count which)
{
	uint64_t n = s->sent;

	s->sent = 0;
	count_add(c->proxy->parts.counts, which, (int64_t)n);
	return n;
}

void
account_end(struct conn *c, enum record_how how, enum reason why)
{
	struct proxy *p = c->proxy;
	struct record *r = c->end;
	uint64_t up = take_bytes(c, &c->up, COUNT_BYTES_UP);
	uint64_t down = take_bytes(c, &c->client, COUNT_BYTES_DOWN);

	if (!account_is_open(c))
		return;
	r->kind = RECORD_END;
	record_stamp(r);
	r->reason = (uint16_t)why;
	r->how = (uint8_t)how;
	r->bytes_up = up;
	r->bytes_down = down;
	r->lost_up = c->lost_up;
	r->lost_down = c->lost_down;
	r->duration_us = (uint64_t)(r->mono_us - c->opened_us);
	if (!c->is_dialled)
		r->dialled.addr = (struct addr){ 0 };
	if (c->end_bytes > 0)
		emit_end(p->parts.emit, r, c->end_bytes);
	else
		emit_note(p->parts.emit, r);
	c->end_bytes = 0;
	c->end_told = true;
	proxy_put(p);
}

void
account_turned_away(const struct listener *l, const struct endpoint *peer,
    const struct endpoint *original, uint32_t cell, enum reason why)
{
	struct proxy *p = l->proxy;
	struct record r;

	record_init(&r, RECORD_DECISION);
	record_stamp(&r);
	r.verdict = r.would = VERDICT_DENY;
	r.reason = (uint16_t)why;
	r.via = (uint8_t)conn_via(l->is.kind);
	r.client = *peer;
	r.original = *original;
	record_policy(&r, p->policy, cell, RULE_NONE);
	count_denied(p->parts.counts, why);
	fold_note(p->fold, &r);
	proxy_put(p);
}
