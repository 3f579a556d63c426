/* SPDX-License-Identifier: Apache-2.0 */
/* The resolver's side of the pins; readers are in dns/pin.c. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "dns/pin_table.h"

#define SWEEP 8u		/* ended pins taken away with each answer */
#define OWNERS (4 * POLICY_CELLS_MAX)	/* a power of two; at most half */

/* ---- memory ---- */

static bool
make_lists(struct pins *p)
{
	uint32_t n = p->head.n_entries;

	p->free = calloc((size_t)n + 1, sizeof(*p->free));
	p->heap = calloc((size_t)n + 1, sizeof(*p->heap));
	p->pos = calloc((size_t)n + 1, sizeof(*p->pos));
	p->owners = calloc(OWNERS, sizeof(*p->owners));
	p->by_name.prev = calloc((size_t)n + 1, sizeof(uint32_t));
	p->by_addr.prev = calloc((size_t)n + 1, sizeof(uint32_t));
	if (p->free == NULL || p->heap == NULL || p->pos == NULL ||
	    p->owners == NULL || p->by_name.prev == NULL ||
	    p->by_addr.prev == NULL)
		return false;
	for (uint32_t i = 0; i < n; i++)
		p->free[i] = n - 1 - i;
	p->n_free = n;
	share_split_set(&p->split, n, 1);
	return true;
}

static int
make_map(struct pins *p)
{
	int fd = memfd_create("penstock-pins", MFD_CLOEXEC |
	    MFD_ALLOW_SEALING), err;

	if (fd < 0)
		return -errno;
	p->map = MAP_FAILED;
	if (ftruncate(fd, (off_t)p->size) == 0)
		p->map = mmap(NULL, p->size, PROT_READ | PROT_WRITE,
		    MAP_SHARED, fd, 0);
	/* this mapping stays writable; no later one will be */
	if (p->map != MAP_FAILED && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK |
	    F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) == 0)
		return fd;
	err = errno;
	if (p->map != MAP_FAILED)
		munmap(p->map, p->size);
	p->map = NULL;
	close(fd);
	return -err;
}

int
pin_create(struct pins **out, unsigned n, int *fd)
{
	struct pins *p = calloc(1, sizeof(*p));
	int rc = -ENOMEM;

	*fd = -1;
	if (p == NULL)
		return rc;
	p->head.magic = PIN_MAGIC;
	p->head.n_entries = n;
	for (p->head.n_slots = 16; p->head.n_slots < 2 * n;)
		p->head.n_slots *= 2;
	randombytes_buf(p->head.key, sizeof(p->head.key));
	p->size = pin_bytes_for(n, p->head.n_slots);
	if (make_lists(p))
		rc = make_map(p);
	if (rc < 0) {
		free(p->free);
		free(p->heap);
		free(p->pos);
		free(p->owners);
		free(p->by_name.prev);
		free(p->by_addr.prev);
		free(p);
		return rc;
	}
	memcpy(p->map, &p->head, sizeof(p->head));
	pin_place(p);
	*fd = rc;
	*out = p;
	return 0;
}

/* ---- the heap: what ends first is at its top ---- */

static int64_t
until_at(const struct pins *p, uint32_t at)
{
	return p->entries[p->heap[at]].until;
}

static void
heap_set(struct pins *p, uint32_t at, uint32_t i)
{
	p->heap[at] = i;
	p->pos[i] = at;
}

static void
heap_up(struct pins *p, uint32_t at)
{
	uint32_t i = p->heap[at];

	for (; at > 0 && until_at(p, (at - 1) / 2) > p->entries[i].until;
	    at = (at - 1) / 2)
		heap_set(p, at, p->heap[(at - 1) / 2]);
	heap_set(p, at, i);
}

static void
heap_down(struct pins *p, uint32_t at)
{
	uint32_t i = p->heap[at];

	for (;;) {
		uint32_t k = 2 * at + 1;

		if (k + 1 < p->n_heap && until_at(p, k + 1) < until_at(p, k))
			k++;
		if (k >= p->n_heap || until_at(p, k) >= p->entries[i].until)
			break;
		heap_set(p, at, p->heap[k]);
		at = k;
	}
	heap_set(p, at, i);
}

static void
heap_put(struct pins *p, uint32_t i)
{
	heap_set(p, p->n_heap++, i);
	heap_up(p, p->n_heap - 1);
}

static void
heap_take(struct pins *p, uint32_t i)
{
	uint32_t at = p->pos[i], last = p->heap[--p->n_heap];

	if (last == i)
		return;
	heap_set(p, at, last);
	heap_up(p, at);
	heap_down(p, p->pos[last]);
}

/* ---- owners ---- */

/* The cell's, made where it has none; NULL: there are too many. */
static struct pin_owner *
owner_of(struct pins *p, const struct pin_life *life)
{
	uint32_t at;

	memcpy(&at, life->b, sizeof(at));
	for (;; at++) {
		struct pin_owner *o = &p->owners[at & (OWNERS - 1)];

		if (o->used && memcmp(&o->life, life, sizeof(*life)) == 0)
			return o;
		if (o->used)
			continue;
		if (p->n_owners >= OWNERS / 2)
			return NULL;
		p->n_owners++;
		o->used = true;
		o->life = *life;
		return o;
	}
}

static void
charge(struct pins *p, struct pin_owner *o, uint32_t to)
{
	share_split_move(&p->split, o->held, to);
	o->held = to;
}

/* ---- writing ---- */

static _Atomic uint32_t *
table_seq(const struct pins *p)
{
	return &((struct pin_head *)(void *)p->map)->seq;
}

static void
begin(_Atomic uint32_t *seq)
{
	atomic_store_explicit(seq, atomic_load_explicit(seq,
	    memory_order_relaxed) + 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
}

static void
end(_Atomic uint32_t *seq)
{
	atomic_store_explicit(seq, atomic_load_explicit(seq,
	    memory_order_relaxed) + 1, memory_order_release);
}

static uint32_t
load(_Atomic uint32_t *list, uint32_t at)
{
	return atomic_load_explicit(&list[at], memory_order_relaxed);
}

static void
store(_Atomic uint32_t *list, uint32_t at, uint32_t v)
{
	atomic_store_explicit(&list[at], v, memory_order_release);
}

static uint32_t
hash_of(const struct pins *p, const struct pin_index *x,
    const struct pin_seen *e)
{
	return x == &p->by_addr ? pin_hash_addr(p, &e->life, &e->addr) :
	    pin_hash_name(p, &e->life, e->name, e->len);
}

/* Whether the entry has the same key in this index. */
static bool
is_like(const struct pins *p, const struct pin_index *x, uint32_t i,
    const struct pin_seen *e)
{
	struct pin_seen other;

	if (i >= p->head.n_entries ||
	    memcmp(&p->entries[i].life, &e->life, sizeof(e->life)) != 0)
		return false;
	if (x == &p->by_addr)
		return addr_eq(&p->entries[i].addr, &e->addr);
	return p->entries[i].len == e->len && pin_read(p, i, &other) &&
	    memcmp(other.name, e->name, e->len) == 0;
}

/* Before the others of its key: a reader sees those with it or without. */
static void
link_at(struct pin_index *x, uint32_t at, uint32_t first, uint32_t entry)
{
	x->prev[entry] = 0;
	store(x->next, entry, first);
	if (first != 0)
		x->prev[first - 1] = entry + 1;
	store(x->slots, at, entry + 1);
}

/* Put the entry into an index, once.  False: its key has no slot, and readers
 * look no further than PIN_PROBES_MAX, so it would not be found. */
static bool
index_add(struct pins *p, struct pin_index *x, const struct pin_seen *e,
    uint32_t entry)
{
	uint32_t mask = p->head.n_slots - 1, at = hash_of(p, x, e);
	uint32_t room = PIN_TOMB;

	for (uint32_t i = 0; i <= mask && i < PIN_PROBES_MAX; i++,
	    at = (at + 1) & mask) {
		uint32_t s = load(x->slots, at);

		if (s == PIN_EMPTY && room == PIN_TOMB) {
			room = at;
			x->used++;
		}
		if (s == PIN_EMPTY)
			break;
		if (s == PIN_TOMB && room == PIN_TOMB)
			room = at;
		if (s == PIN_TOMB || !is_like(p, x, s - 1, e))
			continue;
		link_at(x, at, s, entry);
		return true;
	}
	if (room == PIN_TOMB)
		return false;
	link_at(x, room, 0, entry);
	return true;
}

/* The first of its key: the slot is the next one's, or nobody's. */
static void
slot_pass(struct pins *p, struct pin_index *x, uint32_t at, uint32_t entry,
    uint32_t next)
{
	uint32_t mask = p->head.n_slots - 1;

	for (uint32_t i = 0; i <= mask && i < PIN_PROBES_MAX; i++,
	    at = (at + 1) & mask) {
		uint32_t s = load(x->slots, at);

		if (s == PIN_EMPTY)
			return;
		if (s != entry + 1)
			continue;
		store(x->slots, at, next != 0 ? next : PIN_TOMB);
		return;
	}
}

static void
index_remove(struct pins *p, struct pin_index *x, const struct pin_seen *e,
    uint32_t entry)
{
	uint32_t next = load(x->next, entry), prev = x->prev[entry];

	if (next != 0)
		x->prev[next - 1] = prev;
	if (prev != 0)
		store(x->next, prev - 1, next);
	else
		slot_pass(p, x, hash_of(p, x, e), entry, next);
	store(x->next, entry, 0);
	x->prev[entry] = 0;
}

/* Where an address finds no slot, readers find too many names. */
static bool
index_entry(struct pins *p, uint32_t i, const struct pin_seen *e)
{
	(void)index_add(p, &p->by_addr, e, i);
	return index_add(p, &p->by_name, e, i);
}

static void
index_clear(struct pins *p, struct pin_index *x)
{
	for (uint32_t i = 0; i < p->head.n_slots; i++)
		atomic_store_explicit(&x->slots[i], PIN_EMPTY,
		    memory_order_relaxed);
	for (uint32_t i = 0; i < p->head.n_entries; i++) {
		atomic_store_explicit(&x->next[i], 0, memory_order_relaxed);
		x->prev[i] = 0;
	}
	x->used = 0;
}

/* Tombs fill an index in time: make both anew.  For a reader that comes in
 * between a name is not found, which asks again, and the names of an address
 * are too many. */
static void
reindex(struct pins *p)
{
	begin(table_seq(p));
	index_clear(p, &p->by_name);
	index_clear(p, &p->by_addr);
	for (uint32_t k = 0; k < p->n_heap; k++) {
		struct pin_seen e;

		if (pin_read(p, p->heap[k], &e))
			(void)index_entry(p, p->heap[k], &e);
	}
	end(table_seq(p));
}

/* The pin's places are free. */
static void
release(struct pins *p, uint32_t i)
{
	struct pin_entry *e = &p->entries[i];
	uint32_t more = e->more;

	begin(&e->seq);
	e->len = 0;
	e->more = 0;
	end(&e->seq);
	p->free[p->n_free++] = i;
	while (more != 0) {
		p->free[p->n_free++] = more - 1;
		more = p->entries[more - 1].more;
	}
}

static void
forget(struct pins *p, uint32_t i)
{
	struct pin_owner *o;
	struct pin_seen e;

	heap_take(p, i);
	if (!pin_read(p, i, &e))
		return;		/* not so: we are the only writer */
	o = owner_of(p, &e.life);
	if (o != NULL)
		charge(p, o, o->held - pin_places(e.len));
	begin(table_seq(p));
	index_remove(p, &p->by_name, &e, i);
	index_remove(p, &p->by_addr, &e, i);
	release(p, i);
	end(table_seq(p));
}

/* The first that ended; false: none did. */
static bool
forget_ended(struct pins *p, int64_t now_ms)
{
	if (p->n_heap == 0 || until_at(p, 0) > now_ms)
		return false;
	forget(p, p->heap[0]);
	return true;
}

static void
put_rest(struct pins *p, uint32_t *link, const char *from, size_t n)
{
	while (n > 0) {
		uint32_t i = p->free[--p->n_free];
		struct pin_entry *r = &p->entries[i];
		size_t k = n < sizeof(r->rest) ? n : sizeof(r->rest);

		begin(&r->seq);
		r->more = 0;
		memcpy(r->rest, from, k);
		end(&r->seq);
		*link = i + 1;
		link = &r->more;
		from += k;
		n -= k;
	}
}

/* A new pin in its place *at, for which there is room; false: it would not be
 * found. */
static bool
put_new(struct pins *p, struct pin_owner *o, const struct pin_seen *s,
    uint32_t *at)
{
	uint32_t i = *at = p->free[--p->n_free];
	struct pin_entry *e = &p->entries[i];
	size_t n = s->len < sizeof(e->name) ? s->len : sizeof(e->name);

	begin(&e->seq);
	e->len = s->len;
	e->more = 0;
	e->life = s->life;
	e->addr = s->addr;
	e->until = s->until;
	e->order = s->order;
	memcpy(e->name, s->name, n);
	put_rest(p, &e->more, s->name + n, s->len - n);
	end(&e->seq);
	heap_put(p, i);
	charge(p, o, o->held + pin_places(s->len));
	if (index_entry(p, i, s))
		return true;
	forget(p, i);
	return false;
}

static void
renew(struct pins *p, uint32_t i, int64_t until, uint32_t order)
{
	struct pin_entry *e = &p->entries[i];

	begin(&e->seq);
	e->order = order;
	if (e->until < until)
		e->until = until;
	end(&e->seq);
	heap_down(p, p->pos[i]);
}

/* ---- one answer ---- */

/* What a name has, and what it is to have. */
struct answer {
	struct pin_seen pin;	/* address and order: one after another */
	const struct addr *addrs;
	size_t n, n_new;
	uint32_t have[PIN_OF_NAME_MAX], put[PIN_ADDRS_MAX];
	size_t n_have, n_put;
};

static bool
is_among(const struct addr *list, size_t n, const struct addr *a)
{
	for (size_t i = 0; i < n; i++)
		if (addr_eq(&list[i], a))
			return true;
	return false;
}

/* The pin of the address; n_have: none. */
static size_t
find(const struct pins *p, const struct answer *x, const struct addr *a)
{
	size_t k = 0;

	while (k < x->n_have && !addr_eq(&p->entries[x->have[k]].addr, a))
		k++;
	return k;
}

static void
look(struct pins *p, struct answer *x, const struct host *name, int64_t now_ms)
{
	struct pin_walk w;
	struct pin_seen e;
	size_t n = 0;
	uint32_t i;

	pin_walk_name(&w, &x->pin.life, name);
	while (x->n_have < PIN_OF_NAME_MAX && pin_walk_next(p, &w, &i, &e))
		x->have[x->n_have++] = i;
	for (size_t k = 0; k < x->n_have; k++)
		if (p->entries[x->have[k]].until <= now_ms)
			forget(p, x->have[k]);
		else
			x->have[n++] = x->have[k];
	x->n_have = n;
	for (size_t k = 0; k < x->n; k++)
		x->n_new += find(p, x, &x->addrs[k]) == x->n_have &&
		    !is_among(x->addrs, k, &x->addrs[k]);
}

/* The name's own, that ends first and is not said again. */
static void
forget_first(struct pins *p, struct answer *x)
{
	size_t first = x->n_have;

	for (size_t k = 0; k < x->n_have; k++) {
		const struct pin_entry *e = &p->entries[x->have[k]];

		if (!is_among(x->addrs, x->n, &e->addr) &&
		    (first == x->n_have ||
		    e->until < p->entries[x->have[first]].until))
			first = k;
	}
	if (first == x->n_have)
		return;		/* not so: an answer has fewer */
	forget(p, x->have[first]);
	x->have[first] = x->have[--x->n_have];
}

/* Room for the new ones: what ended goes, what lives stays. */
static enum reason
make_room(struct pins *p, const struct pin_owner *o, uint32_t more,
    int64_t now_ms)
{
	enum reason why = REASON_NONE;

	do {
		why = share_split_fits(&p->split, o->held, more);
		if (why == REASON_NONE && more > p->n_free)
			why = REASON_LIMIT_TOTAL;
	} while (why != REASON_NONE && forget_ended(p, now_ms));
	return why;
}

/* The new ones, or none of them. */
static bool
put_all(struct pins *p, struct pin_owner *o, struct answer *x, uint32_t order)
{
	for (size_t k = 0; k < x->n; k++) {
		if (find(p, x, &x->addrs[k]) < x->n_have ||
		    is_among(x->addrs, k, &x->addrs[k]))
			continue;
		x->pin.addr = x->addrs[k];
		x->pin.order = order + (uint32_t)k;
		if (put_new(p, o, &x->pin, &x->put[x->n_put])) {
			x->n_put++;
			continue;
		}
		while (x->n_put > 0)
			forget(p, x->put[--x->n_put]);
		return false;
	}
	return true;
}

static void
renew_all(struct pins *p, const struct answer *x, uint32_t order)
{
	for (size_t k = x->n; k-- > 0;) {	/* one said twice: as first */
		size_t at = find(p, x, &x->addrs[k]);

		if (at < x->n_have)
			renew(p, x->have[at], x->pin.until,
			    order + (uint32_t)k);
	}
}

/* Into places that are there.  Its own that give way go first: it has no more
 * than PIN_OF_NAME_MAX at any time. */
static enum reason
put_answer(struct pins *p, struct pin_owner *o, struct answer *x)
{
	size_t limit = p->head.n_slots / 8 * 7 - x->n_new;
	uint32_t order = ++p->answers * PIN_ADDRS_MAX;

	while (x->n_have + x->n_new > PIN_OF_NAME_MAX)
		forget_first(p, x);
	if (p->by_name.used >= limit || p->by_addr.used >= limit)
		reindex(p);
	if (!put_all(p, o, x, order))
		return REASON_LIMIT_TOTAL;
	renew_all(p, x, order);
	return REASON_NONE;
}

/* Places that it takes more than it has. */
static uint32_t
places_more(const struct answer *x)
{
	size_t n = x->n_have + x->n_new > PIN_OF_NAME_MAX ?
	    PIN_OF_NAME_MAX - x->n_have : x->n_new;

	return (uint32_t)n * pin_places(x->pin.len);
}

void
pin_used(const struct pins *p, uint32_t *used, uint32_t *all)
{
	*all = p->head.n_entries;
	*used = *all - p->n_free;
}

enum reason
pin_add(struct pins *p, const struct pin_cell *cell, const struct host *name,
    const struct addr *addrs, size_t n, int64_t expires_ms, int64_t now_ms)
{
	struct answer x = { .addrs = addrs,
	    .n = n < PIN_ADDRS_MAX ? n : PIN_ADDRS_MAX,
	    .pin = { .len = name->len, .until = expires_ms } };
	struct pin_owner *o;
	enum reason why;

	if (name->len == 0 || n == 0)
		return REASON_LIMIT_TOTAL;
	memcpy(x.pin.name, name->name, name->len);
	pin_life_of(p, cell, &x.pin.life);
	o = owner_of(p, &x.pin.life);
	if (o == NULL)
		return REASON_LIMIT_TOTAL;
	for (unsigned i = 0; i < SWEEP && forget_ended(p, now_ms); i++)
		;
	look(p, &x, name, now_ms);
	why = make_room(p, o, places_more(&x), now_ms);
	return why == REASON_NONE ? put_answer(p, o, &x) : why;
}

void
pin_end_names(struct pins *p, pin_fits *fits, void *arg)
{
	for (uint32_t i = 0; i < p->head.n_entries; i++) {
		struct pin_seen e;
		struct host h;

		if (p->entries[i].len > 0 && pin_read(p, i, &e) &&
		    host_parse(&h, span_of(e.name, e.len)) == REASON_NONE &&
		    fits(arg, &h))
			forget(p, i);
	}
}

/* ---- lives ---- */

/* Whose life goes on: marked in the owners that are, so that what they hold
 * stays counted. */
static void
mark_lives(struct pins *p, const struct policy *policy)
{
	uint32_t n = (uint32_t)policy_cells(policy);
	struct pin_owner *o;
	struct pin_cell cell;
	struct pin_life life;

	for (uint32_t i = 0; i < OWNERS; i++)
		p->owners[i].lives = false;
	for (uint32_t c = 0; c < n; c++) {
		if (!pin_cell_of(policy, c, &cell))
			continue;
		pin_life_of(p, &cell, &life);
		o = owner_of(p, &life);
		if (o != NULL)
			o->lives = true;
	}
}

/* The pins of cells that are no more end. */
static void
end_others(struct pins *p)
{
	for (uint32_t i = 0; i < p->head.n_entries; i++) {
		const struct pin_owner *o = p->entries[i].len > 0 ?
		    owner_of(p, &p->entries[i].life) : NULL;

		if (o != NULL && !o->lives)
			forget(p, i);
	}
}

/* Owners of this policy alone, and their parts. */
static void
count_again(struct pins *p, struct pin_owner *anew, uint32_t n_cells)
{
	struct pin_owner *old = p->owners;

	p->owners = anew;
	p->n_owners = 0;
	share_split_set(&p->split, p->head.n_entries, n_cells);
	for (uint32_t i = 0; i < OWNERS; i++) {
		struct pin_owner *o = old[i].used && old[i].lives ?
		    owner_of(p, &old[i].life) : NULL;

		if (o != NULL)
			charge(p, o, old[i].held);
	}
	free(old);
}

void
pin_set_policy(struct pins *p, const struct policy *policy)
{
	struct pin_owner *anew;

	if (policy == NULL)
		return;
	mark_lives(p, policy);
	end_others(p);
	anew = calloc(OWNERS, sizeof(*anew));
	if (anew != NULL)
		count_again(p, anew, (uint32_t)policy_cells(policy));
}

void
pin_set_source(struct pins *p, uint64_t source)
{
	p->head.source = source;
	((struct pin_head *)(void *)p->map)->source = source;
}

void
pin_copy(struct pins *to, const struct pins *from, int64_t now_ms)
{
	if (from->head.source != to->head.source)
		return;
	/* lives are told apart by it */
	memcpy(to->head.key, from->head.key, sizeof(to->head.key));
	memcpy(to->map, &to->head, sizeof(to->head));
	for (uint32_t i = 0; i < from->head.n_entries; i++) {
		struct pin_owner *o;
		struct pin_seen e;
		struct host h;
		uint32_t at;

		/* what does not fit is asked for again */
		if (from->entries[i].len == 0 || !pin_read(from, i, &e) ||
		    e.len == 0 || e.until <= now_ms ||
		    host_parse(&h, span_of(e.name, e.len)) != REASON_NONE ||
		    pin_places(e.len) > to->n_free)
			continue;
		o = owner_of(to, &e.life);
		if (o != NULL)
			(void)put_new(to, o, &e, &at);
		if (e.order / PIN_ADDRS_MAX > to->answers)
			to->answers = e.order / PIN_ADDRS_MAX;
	}
}
