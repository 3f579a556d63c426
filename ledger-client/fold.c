/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger-client/fold.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS 256u

struct slot {
	bool used;
	uint32_t more;		/* since the record below */
	size_t kept_bytes;	/* room in the ring for the rest's record */
	int64_t since_us;
	struct record record;	/* of the first; time and client of the
				 * latest */
};

struct fold {
	struct emit *emit;
	struct event *timer;
	int64_t window_us;
	struct slot slots[SLOTS];
};

static uint64_t
mix(uint64_t h, const void *bytes, size_t n)
{
	const uint8_t *b = bytes;

	for (size_t i = 0; i < n; i++)
		h = (h ^ b[i]) * 1099511628211ull;
	return h;
}

static struct slot *
place(struct fold *f, const struct record *r)
{
	struct span name = record_get(r, TEXT_NAME);
	uint64_t h = mix(14695981039346656037ull, name.data, name.len);

	h = mix(h, &r->client.addr, sizeof(r->client.addr));
	h = mix(h, &r->qtype, sizeof(r->qtype));
	return &f->slots[mix(h, &r->reason, sizeof(r->reason)) % SLOTS];
}

static bool
same_text(const struct record *a, const struct record *b,
    enum record_text which)
{
	return span_eq(record_get(a, which), record_get(b, which));
}

/* In full: a client that makes names collide hides nothing. */
static bool
same(const struct record *a, const struct record *b)
{
	return a->reason == b->reason && a->verdict == b->verdict &&
	    a->would == b->would && a->qtype == b->qtype &&
	    a->generation == b->generation && a->rule_line == b->rule_line &&
	    addr_eq(&a->client.addr, &b->client.addr) &&
	    same_text(a, b, TEXT_NAME) && same_text(a, b, TEXT_CELL) &&
	    same_text(a, b, TEXT_RULE);
}

static void
tell(struct fold *f, struct slot *s)
{
	s->record.count = s->more;
	if (s->more > 0 && s->kept_bytes > 0)
		emit_end(f->emit, &s->record, s->kept_bytes);
	else if (s->more > 0)
		emit_note(f->emit, &s->record);
	else if (s->kept_bytes > 0)
		emit_release(f->emit, s->kept_bytes);
	s->more = 0;
	s->kept_bytes = 0;
	s->used = false;
}

static void
on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct fold *f = arg;
	struct record now;

	(void)fd;
	(void)what;
	record_init(&now, RECORD_DNS);
	record_stamp(&now);
	for (unsigned i = 0; i < SLOTS; i++)
		if (f->slots[i].used && now.mono_us - f->slots[i].since_us >=
		    f->window_us)
			tell(f, &f->slots[i]);
	emit_flush(f->emit);
}

struct fold *
fold_new(struct event_base *base, struct emit *emit, unsigned window_ms)
{
	struct timeval tv = { window_ms / 1000,
	    (suseconds_t)(window_ms % 1000) * 1000 };
	struct fold *f = calloc(1, sizeof(*f));

	if (f == NULL)
		return NULL;
	f->emit = emit;
	f->window_us = (int64_t)window_ms * 1000;
	f->timer = event_new(base, -1, EV_PERSIST, on_timer, f);
	if (f->timer == NULL || event_add(f->timer, &tv) < 0) {
		fold_free(f);
		return NULL;
	}
	return f;
}

void
fold_free(struct fold *f)
{
	if (f == NULL)
		return;
	for (unsigned i = 0; i < SLOTS; i++)
		tell(f, &f->slots[i]);
	if (f->timer != NULL)
		event_free(f->timer);
	free(f);
}

/* The place of an equal record of this window, with this one counted in. */
static bool
count_in(struct slot *s, const struct record *r, int64_t window_us)
{
	if (!s->used || !same(&s->record, r) ||
	    r->mono_us - s->since_us >= window_us)
		return false;
	s->more++;
	s->record.wall_us = r->wall_us;
	s->record.mono_us = r->mono_us;
	s->record.client = r->client;
	if (!endpoint_eq(&s->record.original, &r->original))
		s->record.original = (struct endpoint){ 0 };
	s->record.via = r->via;
	return true;
}

static void
keep(struct slot *s, const struct record *r, size_t kept_bytes)
{
	memcpy(&s->record, r, record_size(r));
	s->used = true;
	s->since_us = r->mono_us;
	s->kept_bytes = kept_bytes;
}

void
fold_note(struct fold *f, const struct record *r)
{
	struct slot *s = place(f, r);

	if (count_in(s, r, f->window_us))
		return;
	tell(f, s);
	keep(s, r, 0);
	emit_note(f->emit, r);
}

int
fold_decision(struct fold *f, const struct record *r)
{
	struct slot *s = place(f, r);
	int rc;

	if (!emit_ready(f->emit))
		return -EAGAIN;
	if (count_in(s, r, f->window_us))
		return 0;
	tell(f, s);
	rc = emit_decision(f->emit, r, record_size(r));
	if (rc == 0)
		keep(s, r, record_size(r));
	return rc;
}
