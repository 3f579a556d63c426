/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "dns/fold.h"
#include "proxy/conn.h"
#include "proxy/refuse.h"

static int64_t
now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

/* Keep the head of the end record, no longer than it has to be. */
static void
keep_end(struct conn *c, const struct record *r)
{
	size_t n = record_size(r);

	c->end = malloc(n);
	if (c->end == NULL)
		return;
	memcpy(c->end, r, n);
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

/* A later request or CONNECT on the connection was allowed: from here on the
 * end tells of that, and a new policy judges that. */
static int
account_next(struct conn *c, const struct record *r)
{
	struct emit *emit = c->proxy->parts.emit;
	size_t n = record_size(r);
	struct record *end = malloc(n);
	int e;

	if (end == NULL)
		return -ENOMEM;
	e = emit_decision(emit, r, n);
	if (e < 0) {
		free(end);
		return e;
	}
	memcpy(end, r, n);
	emit_release(emit, c->end_bytes);
	free(c->end);
	c->end = end;
	c->end_bytes = n;
	return 0;
}

/*
 * The record of a decision, handed over before anything follows from it.
 * Room for the end record is kept with the first of a connection; a denial
 * needs none.  0, or a negative errno: then an allow becomes a denial.
 */
int
account_decision(struct conn *c, const struct decision *d, enum reason why)
{
	struct proxy *p = c->proxy;
	bool first = c->end == NULL;
	struct record r;
	int e;

	fill(c, d, &r);
	r.reason = (uint16_t)why;
	if (first)
		keep_end(c, &r);
	if (c->end == NULL && d->verdict == VERDICT_ALLOW)
		return -ENOMEM;
	if (!first && d->verdict == VERDICT_ALLOW)
		e = account_next(c, &r);
	else
		e = emit_decision(p->parts.emit, &r, first ? c->end_bytes :
		    0);
	if (e < 0 && first) {
		c->end_bytes = 0;
		if (d->verdict == VERDICT_ALLOW) {
			free(c->end);
			c->end = NULL;
		}
	}
	if (e < 0 && d->verdict == VERDICT_ALLOW)
		return e;
	if (e < 0)	/* a denial is told, or counted as lost */
		emit_note(p->parts.emit, &r);
	count(c, d, why);
	proxy_put(p);
	return 0;
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
