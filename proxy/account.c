/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "ledger-client/fold.h"
#include "proxy/conn.h"
#include "proxy/refuse.h"

static int64_t
now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

/* What a hello that is yet to come adds to the end record. */
#define HELLO_TEXT_BYTES (sizeof(((struct hello *)0)->ja4) - 1 + \
    sizeof(((struct hello *)0)->alpn) - 1)

/* Bytes of the end record that begins as this decision does.  A tunnel and an
 * opaque flow show their hello after it. */
static size_t
end_size(const struct conn *c, const struct record *r)
{
	const struct opening *o = c->open;
	bool more = r->verdict == VERDICT_ALLOW && o != NULL &&
	    (o->shown == SHOWN_CONNECT || o->shown == SHOWN_NOTHING);

	return record_size(r) + (more ? HELLO_TEXT_BYTES : 0);
}

/* Keep the head of the end record, no longer than it has to be. */
static void
keep_end(struct conn *c, const struct record *r)
{
	size_t n = end_size(c, r);

	c->end = malloc(n);
	if (c->end == NULL)
		return;
	memcpy(c->end, r, record_size(r));
	c->end_bytes = n;
}

static void
fill(const struct conn *c, const struct decision *d, struct record *r)
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
	if (c->proxy->policy != NULL)
		record_policy(r, c->proxy->policy, c->cell, d->rule);
	if (o == NULL)
		return;
	r->name_from = (uint8_t)o->from;
	r->dialled = o->to;
	if (o->n_addrs > 0)
		r->dialled.addr = o->addrs[0];
	if (o->name.len > 0)
		record_set(r, TEXT_NAME, span_of(o->name.name, o->name.len));
	if (o->other.len > 0)
		record_set(r, TEXT_OTHER_NAME,
		    span_of(o->other.name, o->other.len));
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

/* A later decision on the connection: from here on the end tells of that, and
 * a new policy judges that. */
static int
account_next(struct conn *c, const struct record *r)
{
	struct emit *emit = c->proxy->parts.emit;
	size_t n = end_size(c, r);
	struct record *end = malloc(n);
	int e;

	if (end == NULL)
		return -ENOMEM;
	e = emit_decision(emit, r, n);
	if (e < 0) {
		free(end);
		return e;
	}
	memcpy(end, r, record_size(r));
	emit_release(emit, c->end_bytes);
	free(c->end);
	c->end = end;
	c->end_bytes = n;
	return 0;
}

static int
account_first(struct conn *c, const struct record *r)
{
	int e;

	keep_end(c, r);
	if (c->end == NULL && r->verdict == VERDICT_ALLOW)
		return -ENOMEM;
	e = emit_decision(c->proxy->parts.emit, r, c->end_bytes);
	if (e == 0)
		return 0;
	c->end_bytes = 0;
	if (r->verdict == VERDICT_ALLOW) {
		free(c->end);
		c->end = NULL;
	}
	return e;
}

/* A denial is told, or counted as lost.  Its end keeps the room that it has:
 * of the texts of an earlier decision those stay that are this one's too. */
static void
account_denial(struct conn *c, const struct record *r)
{
	struct record *end = c->end;

	emit_note(c->proxy->parts.emit, r);
	if (end == NULL || end->verdict == VERDICT_DENY)
		return;
	memcpy(end, r, offsetof(struct record, text_len));
	for (unsigned i = 0; i < TEXT_COUNT; i++)
		if (!span_eq(record_get(end, i), record_get(r, i)))
			end->text_at_len[i] = 0;
}

/*
 * The record of a decision, handed over before anything follows from it.
 * Room for the end record is kept with the first of a connection; a denial
 * needs none.  0, or a negative errno: then an allow becomes a denial.
 */
int
account_decision(struct conn *c, const struct decision *d, enum reason why)
{
	struct record r;
	int e;

	fill(c, d, &r);
	r.reason = (uint16_t)why;
	e = c->end == NULL ? account_first(c, &r) : account_next(c, &r);
	if (e < 0 && d->verdict == VERDICT_ALLOW)
		return e;
	if (e < 0)
		account_denial(c, &r);
	count(c, d, why);
	proxy_put(c->proxy);
	return 0;
}

void
account_hello(struct conn *c)
{
	const struct hello *h = &c->open->hello;
	struct record *r = c->end;

	/* The room was kept with the decision, for one hello. */
	if (r == NULL || record_size(r) + HELLO_TEXT_BYTES > c->end_bytes)
		return;
	record_set(r, TEXT_JA4, span_str(h->ja4));
	record_set(r, TEXT_ALPN, span_str(h->alpn));
}

void
account_end(struct conn *c)
{
	struct proxy *p = c->proxy;
	struct record *r = c->end;

	if (r == NULL)
		return;
	r->kind = RECORD_END;
	record_stamp(r);
	r->request = c->request;
	r->reason = c->reason;
	r->how = c->how;
	r->bytes_up = c->up.sent;
	r->bytes_down = c->client.sent;
	r->duration_us = (uint64_t)(now_us() - c->opened_us);
	count_add(p->parts.counts, COUNT_BYTES_UP, (int64_t)c->up.sent);
	count_add(p->parts.counts, COUNT_BYTES_DOWN, (int64_t)c->client.sent);
	if (c->end_bytes > 0)
		emit_end(p->parts.emit, r, c->end_bytes);
	else
		emit_note(p->parts.emit, r);
	free(r);
	c->end = NULL;
	proxy_put(p);
}

void
account_turned_away(const struct listener *l, const struct endpoint *peer,
    const struct endpoint *original, enum reason why)
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
	record_policy(&r, p->policy, CELL_NONE, RULE_NONE);
	count_denied(p->parts.counts, why);
	fold_note(p->turned, &r);
	proxy_put(p);
}
