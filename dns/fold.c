/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/fold.h"

#include <stdlib.h>
#include <string.h>

#define SLOTS 256u

struct slot {
	bool used;
	uint32_t more;		/* since the record below */
	int64_t since_us;
	struct record record;	/* of the latest */
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
	return a->reason == b->reason &&
	    addr_eq(&a->client.addr, &b->client.addr) &&
	    same_text(a, b, TEXT_NAME) && same_text(a, b, TEXT_CELL);
}

static void
tell(struct fold *f, struct slot *s)
{
	if (s->more > 0) {
		s->record.count = s->more;
		emit_note(f->emit, &s->record);
	}
	s->more = 0;
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

void
fold_note(struct fold *f, const struct record *r)
{
	struct slot *s = place(f, r);

	if (s->used && same(&s->record, r) &&
	    r->mono_us - s->since_us < f->window_us) {
		s->more++;
		memcpy(&s->record, r, record_size(r));
		return;
	}
	tell(f, s);
	memcpy(&s->record, r, record_size(r));
	s->used = true;
	s->since_us = r->mono_us;
	emit_note(f->emit, r);
}
