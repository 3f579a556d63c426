/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger-client/fold.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SETS 256u		/* all told at once they fit into a ring of
				 * the default size */
#define WAYS 8u			/* places of a set */
#define KEPT_PART 2u		/* of the ring, for what is still to be told of
				 * answers: beyond it each is told at once */
#define CROWDS 4096u		/* cells and reasons of one window */
#define CROWD_PROBES 16u

struct slot {
	struct record *record;	/* of the first, cut to its size; time and
				 * client of the latest; NULL: free */
	uint32_t more;		/* since then */
	uint32_t hash;		/* of what must be equal, in part */
	size_t kept_bytes;	/* room in the ring for the rest's record */
	int64_t since_us;
};

/* The refusals of one cell for one reason in this window. */
struct crowd {
	bool used;
	uint8_t cell_len;
	uint16_t reason;
	uint32_t told;		/* records of their own */
	char cell[POLICY_ID_BYTES];
	struct record *rest;	/* of those beyond; NULL: none yet */
};

struct fold {
	struct emit *emit;
	struct event *timer;
	int64_t window_us;
	size_t kept_bytes;	/* of all places */
	struct slot sets[SETS][WAYS];
	struct crowd crowds[CROWDS];
	struct crowd others[REASON_COUNT];	/* of cells without a place */
};

static uint64_t
mix(uint64_t h, const void *bytes, size_t n)
{
	const uint8_t *b = bytes;

	for (size_t i = 0; i < n; i++)
		h = (h ^ b[i]) * 1099511628211ull;
	return h;
}

static uint64_t
hash_of(const struct record *r)
{
	struct span name = record_get(r, TEXT_NAME);
	uint64_t h = mix(14695981039346656037ull, name.data, name.len);

	h = mix(h, &r->client.addr, sizeof(r->client.addr));
	h = mix(h, &r->qtype, sizeof(r->qtype));
	return mix(h, &r->reason, sizeof(r->reason));
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
	if (s->record == NULL)
		return;
	s->record->count = s->more;
	if (s->more > 0 && s->kept_bytes > 0)
		emit_end(f->emit, s->record, s->kept_bytes);
	else if (s->more > 0)
		emit_note(f->emit, s->record);
	else if (s->kept_bytes > 0)
		emit_release(f->emit, s->kept_bytes);
	f->kept_bytes -= s->kept_bytes;
	free(s->record);
	*s = (struct slot){ 0 };
}

/* ---- those that differ ---- */

static bool
is_of(const struct crowd *c, struct span cell, uint16_t reason)
{
	return c->reason == reason &&
	    span_eq(span_of(c->cell, c->cell_len), cell);
}

/* Where there is no place in the table, cells share the reason's own: their
 * records are bounded all the same. */
static struct crowd *
crowd_of(struct fold *f, const struct record *r)
{
	struct span cell = record_get(r, TEXT_CELL);
	uint64_t h = mix(14695981039346656037ull, cell.data, cell.len);
	struct crowd *c;

	h = mix(h, &r->reason, sizeof(r->reason));
	if (cell.len > sizeof(c->cell))		/* not so: ids are shorter */
		return &f->others[r->reason];
	for (unsigned i = 0; i < CROWD_PROBES; i++) {
		c = &f->crowds[(h + i) % CROWDS];
		if (c->used && is_of(c, cell, r->reason))
			return c;
		if (c->used)
			continue;
		c->used = true;
		c->reason = r->reason;
		c->cell_len = (uint8_t)cell.len;
		if (cell.len > 0)
			memcpy(c->cell, cell.data, cell.len);
		return c;
	}
	return &f->others[r->reason];
}

/* What a ledger's reader must not take for that of all goes. */
static void
leave_common(struct record *to, const struct record *r)
{
	for (unsigned t = 0; t < TEXT_COUNT; t++)
		if (t != TEXT_DETAIL &&
		    !same_text(to, r, (enum record_text)t))
			to->text_at_len[t] = 0;
	if (!addr_eq(&to->client.addr, &r->client.addr))
		to->client = (struct endpoint){ 0 };
	else
		to->client = r->client;
	if (!endpoint_eq(&to->original, &r->original))
		to->original = (struct endpoint){ 0 };
	if (!addr_eq(&to->dialled.addr, &r->dialled.addr))
		to->dialled.addr = (struct addr){ 0 };
	if (to->dialled.port != r->dialled.port)
		to->dialled = (struct endpoint){ 0 };
	if (to->qtype != r->qtype)
		to->qtype = 0;
	if (to->via != r->via)
		to->via = VIA_NONE;
	if (to->name_from != r->name_from)
		to->name_from = NAME_FROM_NONE;
	if (to->rule_line != r->rule_line)
		to->rule_line = 0;
	to->wall_us = r->wall_us;
	to->mono_us = r->mono_us;
}

static void
crowd_tell(struct fold *f, struct crowd *c)
{
	if (c->rest != NULL)
		emit_note(f->emit, c->rest);
	free(c->rest);
	*c = (struct crowd){ 0 };
}

/* The first beyond the bound: its own record, where there is no memory.  Of
 * the connection each has another. */
static bool
crowd_begin(struct crowd *c, const struct record *r)
{
	c->rest = calloc(1, sizeof(*c->rest));
	if (c->rest == NULL)
		return false;
	memcpy(c->rest, r, record_size(r));
	c->rest->connection = c->rest->request = 0;
	c->rest->count = 1;
	record_set(c->rest, TEXT_DETAIL, span_str(FOLD_DETAIL));
	return true;
}

bool
fold_takes(struct fold *f, const struct record *r)
{
	struct crowd *c;

	if (r->verdict != VERDICT_DENY || r->reason >= REASON_COUNT)
		return false;
	c = crowd_of(f, r);
	if (c->told < FOLD_DISTINCT) {
		c->told++;
		return false;
	}
	/* a record speaks of one generation and one kind */
	if (c->rest != NULL && (c->rest->generation != r->generation ||
	    c->rest->kind != r->kind)) {
		emit_note(f->emit, c->rest);
		free(c->rest);
		c->rest = NULL;
	}
	if (c->rest == NULL)
		return crowd_begin(c, r);
	leave_common(c->rest, r);
	c->rest->count++;
	return true;
}

static void
crowds_tell(struct fold *f)
{
	for (unsigned i = 0; i < CROWDS; i++)
		if (f->crowds[i].used)
			crowd_tell(f, &f->crowds[i]);
	for (unsigned i = 0; i < REASON_COUNT; i++)
		crowd_tell(f, &f->others[i]);
}

/* ---- life ---- */

static void
on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct fold *f = arg;
	struct record now;

	(void)fd;
	(void)what;
	record_init(&now, RECORD_DNS);
	record_stamp(&now);
	for (unsigned i = 0; i < SETS * WAYS; i++) {
		struct slot *s = &f->sets[i / WAYS][i % WAYS];

		if (now.mono_us - s->since_us >= f->window_us)
			tell(f, s);
	}
	crowds_tell(f);
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
	for (unsigned i = 0; i < SETS * WAYS; i++)
		tell(f, &f->sets[i / WAYS][i % WAYS]);
	crowds_tell(f);
	if (f->timer != NULL)
		event_free(f->timer);
	free(f);
}

/* Its place, with an equal record of this window or free: of other records
 * the oldest gives way. */
static struct slot *
place(struct fold *f, const struct record *r)
{
	uint64_t h = hash_of(r);
	uint32_t hash = (uint32_t)(h >> 32);
	struct slot *set = f->sets[h % SETS], *best = set;

	for (unsigned i = 0; i < WAYS; i++) {
		struct slot *s = &set[i];

		if (s->record != NULL && s->hash == hash &&
		    same(s->record, r)) {
			if (r->mono_us - s->since_us >= f->window_us)
				tell(f, s);
			return s;
		}
		if (s->since_us < best->since_us)
			best = s;	/* 0: it is free */
	}
	tell(f, best);
	best->hash = hash;
	return best;
}

static void
count_in(struct slot *s, const struct record *r)
{
	struct record *kept = s->record;

	s->more++;
	kept->wall_us = r->wall_us;
	kept->mono_us = r->mono_us;
	kept->client = r->client;
	if (!endpoint_eq(&kept->original, &r->original))
		kept->original = (struct endpoint){ 0 };
	kept->via = r->via;
}

/* False: no memory, and the next one is a record of its own again. */
static bool
keep(struct slot *s, const struct record *r)
{
	s->record = malloc(record_size(r));
	if (s->record == NULL)
		return false;
	memcpy(s->record, r, record_size(r));
	s->since_us = r->mono_us;
	return true;
}

void
fold_note(struct fold *f, const struct record *r)
{
	struct slot *s = place(f, r);

	if (s->record != NULL) {
		count_in(s, r);
		return;
	}
	if (fold_takes(f, r))
		return;
	(void)keep(s, r);
	emit_note(f->emit, r);
}

int
fold_decision(struct fold *f, const struct record *r)
{
	size_t bytes = record_size(r);
	struct slot *s;
	int rc;

	if (!emit_ready(f->emit))
		return -EAGAIN;
	s = place(f, r);
	if (s->record != NULL) {
		count_in(s, r);
		return 0;
	}
	if (f->kept_bytes + bytes > emit_bytes(f->emit) / KEPT_PART)
		return emit_decision(f->emit, r, 0);
	rc = emit_decision(f->emit, r, bytes);
	if (rc != 0)
		return rc;
	if (!keep(s, r)) {
		emit_release(f->emit, bytes);
		return 0;
	}
	s->kept_bytes = bytes;
	f->kept_bytes += bytes;
	return 0;
}
