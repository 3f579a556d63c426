/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/pin.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "dns/pin_table.h"

#define READS_MAX 64u		/* a reader that meets a change gives up */
#define TOO_MANY (PIN_NAMES_MAX + 1)

/* ---- cells ---- */

struct span
pin_run(const struct cell_view *v)
{
	for (size_t i = 0; i < v->n_labels; i++)
		if (span_eq(v->labels[i].key, span_str("run")))
			return v->labels[i].value;
	return span_of(NULL, 0);
}

bool
pin_cell_of(const struct policy *p, uint32_t cell, struct pin_cell *out)
{
	struct cell_view v;

	if (p == NULL || !policy_cell(p, cell, 0, &v))
		return false;
	out->id = v.id;
	out->run = pin_run(&v);
	return true;
}

/* ---- memory ---- */

size_t
pin_bytes_for(uint32_t n_entries, uint32_t n_slots)
{
	return PIN_HEAD_BYTES + (size_t)n_entries * sizeof(struct pin_entry) +
	    2 * ((size_t)n_slots + n_entries) * sizeof(uint32_t);
}

void
pin_place(struct pins *p)
{
	p->entries = (void *)(p->map + PIN_HEAD_BYTES);
	p->by_name.slots = (void *)(p->entries + p->head.n_entries);
	p->by_addr.slots = p->by_name.slots + p->head.n_slots;
	p->by_name.next = p->by_addr.slots + p->head.n_slots;
	p->by_addr.next = p->by_name.next + p->head.n_entries;
}

int
pin_open(struct pins **out, int fd)
{
	struct pins *p = calloc(1, sizeof(*p));
	struct stat st;

	if (p == NULL)
		return -ENOMEM;
	if (fstat(fd, &st) < 0 || st.st_size < PIN_HEAD_BYTES) {
		free(p);
		return -EBADMSG;
	}
	p->size = (size_t)st.st_size;
	p->map = mmap(NULL, p->size, PROT_READ, MAP_SHARED, fd, 0);
	if (p->map == MAP_FAILED) {
		free(p);
		return -ENOMEM;
	}
	memcpy(&p->head, p->map, sizeof(p->head));
	if (p->head.magic != PIN_MAGIC || p->head.n_slots == 0 ||
	    (p->head.n_slots & (p->head.n_slots - 1)) != 0 ||
	    pin_bytes_for(p->head.n_entries, p->head.n_slots) != p->size) {
		pin_close(p);
		return -EBADMSG;
	}
	pin_place(p);
	*out = p;
	return 0;
}

void
pin_close(struct pins *p)
{
	if (p == NULL)
		return;
	munmap(p->map, p->size);
	free(p->free);
	free(p->heap);
	free(p->pos);
	free(p->owners);
	free(p->by_name.prev);
	free(p->by_addr.prev);
	free(p);
}

/* ---- hashing ---- */

/* Length first: no two lives are the same bytes. */
void
pin_life_of(const struct pins *p, const struct pin_cell *cell,
    struct pin_life *out)
{
	uint8_t bytes[1 + 2 * POLICY_ID_BYTES] = { 0 };
	size_t id = cell->id.len, run = cell->run.len;

	/* a policy has no longer ones */
	if (id > POLICY_ID_BYTES)
		id = POLICY_ID_BYTES;
	if (run > POLICY_ID_BYTES)
		run = POLICY_ID_BYTES;
	bytes[0] = (uint8_t)id;
	if (id > 0)
		memcpy(bytes + 1, cell->id.data, id);
	if (run > 0)
		memcpy(bytes + 1 + id, cell->run.data, run);
	(void)crypto_shorthash_siphashx24(out->b, bytes, 1 + id + run,
	    p->head.key);
}

static uint32_t
hash(const struct pins *p, const struct pin_life *life, const void *bytes,
    size_t n)
{
	uint8_t all[sizeof(*life) + HOST_MAX_BYTES + 1];
	uint8_t out[crypto_shorthash_BYTES];
	uint32_t h;

	memcpy(all, life, sizeof(*life));
	memcpy(all + sizeof(*life), bytes, n);
	crypto_shorthash(out, all, sizeof(*life) + n, p->head.key);
	memcpy(&h, out, sizeof(h));
	return h & (p->head.n_slots - 1);
}

uint32_t
pin_hash_name(const struct pins *p, const struct pin_life *life,
    const char *name, size_t len)
{
	return hash(p, life, name, len);
}

uint32_t
pin_hash_addr(const struct pins *p, const struct pin_life *life,
    const struct addr *a)
{
	return hash(p, life, a->b, sizeof(a->b));
}

static uint32_t
load(_Atomic uint32_t *list, uint32_t at)
{
	return atomic_load_explicit(&list[at], memory_order_acquire);
}

/* ---- reading ---- */

static _Atomic uint32_t *
table_seq(const struct pins *p)
{
	return &((struct pin_head *)(void *)p->map)->seq;
}

/* The name, of which the pin's place holds the begin; false: the table is
 * unsound, or changes. */
static bool
copy_name(const struct pins *p, const struct pin_entry *e,
    struct pin_seen *out)
{
	size_t at = 0, n = sizeof(e->name);
	const char *from = e->name;
	uint32_t more = e->more;

	while (out->len - at > n) {
		memcpy(out->name + at, from, n);
		at += n;
		if (more == 0 || more > p->head.n_entries)
			return false;
		from = p->entries[more - 1].rest;
		more = p->entries[more - 1].more;
		n = sizeof(e->rest);
	}
	memcpy(out->name + at, from, out->len - at);
	return true;
}

bool
pin_read(const struct pins *p, uint32_t i, struct pin_seen *out)
{
	struct pin_entry *e = &p->entries[i];

	for (unsigned tries = 0; tries < READS_MAX; tries++) {
		uint32_t before = atomic_load_explicit(&e->seq,
		    memory_order_acquire);
		bool sound;

		if (before & 1)
			continue;
		out->len = e->len;
		out->life = e->life;
		out->addr = e->addr;
		out->until = e->until;
		out->order = e->order;
		sound = out->len <= HOST_MAX_BYTES && copy_name(p, e, out);
		atomic_thread_fence(memory_order_acquire);
		if (atomic_load_explicit(&e->seq, memory_order_relaxed) ==
		    before)
			return sound;
	}
	return false;
}

void
pin_walk_name(struct pin_walk *w, const struct pin_life *life,
    const struct host *name)
{
	*w = (struct pin_walk){ .life = *life, .name = name };
}

void
pin_walk_addr(struct pin_walk *w, const struct pin_life *life,
    const struct addr *a)
{
	*w = (struct pin_walk){ .life = *life, .addr = *a };
}

static bool
is_sought(const struct pin_walk *w, const struct pin_seen *e)
{
	if (e->len == 0 || memcmp(&e->life, &w->life, sizeof(w->life)) != 0)
		return false;
	if (w->name == NULL)
		return addr_eq(&e->addr, &w->addr);
	return e->len == w->name->len &&
	    memcmp(e->name, w->name->name, e->len) == 0;
}

/* What cannot be read may be what is sought. */
static uint32_t
first_of(const struct pins *p, struct pin_walk *w)
{
	const struct pin_index *x = w->name != NULL ? &p->by_name :
	    &p->by_addr;
	uint32_t mask = p->head.n_slots - 1, at = w->name != NULL ?
	    pin_hash_name(p, &w->life, w->name->name, w->name->len) :
	    pin_hash_addr(p, &w->life, &w->addr);
	struct pin_seen e;

	for (uint32_t i = 0; i <= mask && i < PIN_PROBES_MAX; i++,
	    at = (at + 1) & mask) {
		uint32_t s = load(x->slots, at);

		if (s == PIN_EMPTY)
			return 0;
		if (s == PIN_TOMB)
			continue;
		if (s - 1 >= p->head.n_entries || !pin_read(p, s - 1, &e))
			w->torn = true;
		else if (is_sought(w, &e))
			return s;
	}
	w->torn = true;
	return 0;
}

bool
pin_walk_next(const struct pins *p, struct pin_walk *w, uint32_t *i,
    struct pin_seen *out)
{
	const struct pin_index *x = w->name != NULL ? &p->by_name :
	    &p->by_addr;

	if (!w->begun)
		w->next = first_of(p, w);
	w->begun = true;
	if (w->next == 0)
		return false;
	*i = w->next - 1;
	/* it may be another's by now, and that one's next with it */
	if (w->steps++ == PIN_PROBES_MAX || *i >= p->head.n_entries ||
	    !pin_read(p, *i, out) || !is_sought(w, out)) {
		w->torn = true;
		w->next = 0;
		return false;
	}
	w->next = load(x->next, *i);
	return true;
}

/* The latest answer first, and its addresses as they stood. */
static bool
goes_before(uint32_t a, uint32_t b)
{
	if (a / PIN_ADDRS_MAX != b / PIN_ADDRS_MAX)
		return a > b;
	return a < b;
}

static size_t
walk_addrs(const struct pins *p, const struct pin_life *life,
    const struct host *name, int64_t now_ms,
    struct addr out[static PIN_ADDRS_MAX])
{
	uint32_t order[PIN_ADDRS_MAX], i;
	struct pin_walk w;
	struct pin_seen e;
	size_t n = 0;

	pin_walk_name(&w, life, name);
	while (pin_walk_next(p, &w, &i, &e)) {
		size_t at = n;

		if (e.until <= now_ms)
			continue;
		while (at > 0 && goes_before(e.order, order[at - 1]))
			at--;
		if (at == PIN_ADDRS_MAX)
			continue;
		if (n < PIN_ADDRS_MAX)
			n++;
		memmove(order + at + 1, order + at,
		    (n - at - 1) * sizeof(*order));
		memmove(out + at + 1, out + at, (n - at - 1) * sizeof(*out));
		order[at] = e.order;
		out[at] = e.addr;
	}
	return n;
}

/* A walk counts that no taking away crossed; tries to begin one, and says
 * whether there was such a moment. */
static bool
quiet(const struct pins *p, uint32_t *seq)
{
	for (unsigned tries = 0; tries < READS_MAX; tries++) {
		*seq = atomic_load_explicit(table_seq(p),
		    memory_order_acquire);
		if ((*seq & 1) == 0)
			return true;
	}
	return false;
}

static bool
stayed_quiet(const struct pins *p, uint32_t seq)
{
	atomic_thread_fence(memory_order_acquire);
	return atomic_load_explicit(table_seq(p), memory_order_relaxed) ==
	    seq;
}

/* Each address is sound in itself: at worst some are missing. */
size_t
pin_addrs(const struct pins *p, const struct pin_cell *cell,
    const struct host *name, int64_t now_ms,
    struct addr out[static PIN_ADDRS_MAX])
{
	struct pin_life life;
	uint32_t seq;
	size_t n = 0;

	if (p == NULL || name->len == 0)
		return 0;
	pin_life_of(p, cell, &life);
	for (unsigned tries = 0; tries < READS_MAX; tries++) {
		bool sure = quiet(p, &seq);

		n = walk_addrs(p, &life, name, now_ms, out);
		if (!sure || stayed_quiet(p, seq))
			break;
	}
	return n;
}

static bool
walk_has(const struct pins *p, const struct pin_life *life,
    const struct host *name, const struct addr *a, int64_t now_ms)
{
	struct pin_walk w;
	struct pin_seen e;
	uint32_t i;

	pin_walk_name(&w, life, name);
	while (pin_walk_next(p, &w, &i, &e))
		if (e.until > now_ms && addr_eq(&e.addr, a))
			return true;
	return false;
}

bool
pin_has(const struct pins *p, const struct pin_cell *cell,
    const struct host *name, const struct addr *a, int64_t now_ms)
{
	struct pin_life life;
	uint32_t seq;

	if (p == NULL || name->len == 0)
		return false;
	pin_life_of(p, cell, &life);
	for (unsigned tries = 0; tries < READS_MAX; tries++) {
		bool sure = quiet(p, &seq);

		if (walk_has(p, &life, name, a, now_ms))
			return true;
		if (!sure || stayed_quiet(p, seq))
			return false;
	}
	return false;
}

static bool
known(const struct host *list, size_t n, const struct host *h)
{
	for (size_t i = 0; i < n; i++)
		if (host_eq(&list[i], h))
			return true;
	return false;
}

static size_t
walk_names(const struct pins *p, const struct pin_life *life,
    const struct addr *a, int64_t now_ms,
    struct host out[static PIN_NAMES_MAX])
{
	struct pin_walk w;
	struct pin_seen e;
	struct host h;
	uint32_t i;
	size_t n = 0;

	pin_walk_addr(&w, life, a);
	while (pin_walk_next(p, &w, &i, &e)) {
		if (e.until <= now_ms)
			continue;
		if (host_parse(&h, span_of(e.name, e.len)) != REASON_NONE)
			return TOO_MANY;
		if (known(out, n, &h))
			continue;
		if (n == PIN_NAMES_MAX)
			return TOO_MANY;
		out[n++] = h;
	}
	return w.torn ? TOO_MANY : n;
}

/* Names that were there all the time are missed only while others are taken
 * away: such a walk does not count. */
size_t
pin_names(const struct pins *p, const struct pin_cell *cell,
    const struct addr *a, int64_t now_ms,
    struct host out[static PIN_NAMES_MAX])
{
	struct pin_life life;
	uint32_t seq;

	if (p == NULL)
		return 0;
	pin_life_of(p, cell, &life);
	for (unsigned tries = 0; tries < READS_MAX; tries++) {
		size_t n;

		if (!quiet(p, &seq))
			break;
		n = walk_names(p, &life, a, now_ms, out);
		if (stayed_quiet(p, seq))
			return n;
	}
	return TOO_MANY;
}
