/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/pin.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIN_MAGIC 0x32534e49504e5350ull
#define EMPTY 0u
#define TOMB UINT32_MAX
#define PROBES_MAX 4096u	/* beyond: not found, which denies */
#define SWEEP 8u		/* entries looked at for each new name */
#define READS_MAX 64u		/* a reader that meets a change gives up */
#define NAME_WEIGHT 3u		/* a name weighs as many addresses */
#define FREE PIN_CELLS		/* the list of free entries */
#define TOO_MANY (PIN_NAMES_MAX + 1)

/* seq is odd while the writer is inside. */
struct entry {
	_Atomic uint32_t seq;
	uint8_t len;		/* 0: free */
	uint8_t n;
	uint16_t cell;		/* below PIN_CELLS */
	char name[HOST_MAX_BYTES + 1];
	struct addr addrs[PIN_ADDRS_MAX];
	int64_t until[PIN_ADDRS_MAX];
};

/* The file: head, entries, name slots, address slots.  A slot holds an entry
 * index plus one; address slots are a multimap, checked at the entry.  The
 * head's seq is odd while slots are taken away. */
struct head {
	uint64_t magic;
	uint32_t n_entries;
	uint32_t n_slots;	/* a power of two, of each index */
	uint8_t key[crypto_shorthash_KEYBYTES];
	_Atomic uint32_t seq;
};

/* The writer's list of a cell's entries, the one asked for last at its end;
 * item n_entries + c is the head of the list of cell c. */
struct link {
	uint32_t prev, next;
};

struct pins {
	uint8_t *map;
	size_t size;
	struct head head;	/* own copy: bounds do not change under us */
	struct entry *entries;
	_Atomic uint32_t *by_name, *by_addr;
	/* of the writer */
	uint32_t used_name, used_addr;	/* slots not EMPTY */
	uint32_t hand;			/* of the sweep */
	struct link *links;
	uint32_t held[PIN_CELLS];	/* weight of each cell's entries */
	uint32_t total, most;		/* weight of all, and its bound */
};

/* ---- lists ---- */

static void
list_put(struct pins *p, uint32_t cell, uint32_t i)
{
	uint32_t at = p->head.n_entries + cell, last = p->links[at].prev;

	p->links[i] = (struct link){ .prev = last, .next = at };
	p->links[last].next = p->links[at].prev = i;
}

static void
list_take(struct pins *p, uint32_t i)
{
	struct link l = p->links[i];

	p->links[l.prev].next = l.next;
	p->links[l.next].prev = l.prev;
}

static uint32_t
list_first(const struct pins *p, uint32_t cell)
{
	return p->links[p->head.n_entries + cell].next;
}

/* Entries and address slots are both bounded by the sum of this. */
static uint32_t
weight(unsigned n_addrs)
{
	return n_addrs > NAME_WEIGHT ? n_addrs : NAME_WEIGHT;
}

/* From here on the entry is the cell's, and the one asked for last. */
static void
charge(struct pins *p, uint32_t i)
{
	const struct entry *e = &p->entries[i];

	list_put(p, e->cell, i);
	p->held[e->cell] += weight(e->n);
	p->total += weight(e->n);
}

static void
discharge(struct pins *p, uint32_t i)
{
	const struct entry *e = &p->entries[i];

	list_take(p, i);
	p->held[e->cell] -= weight(e->n);
	p->total -= weight(e->n);
}

/* ---- memory ---- */

static size_t
bytes_for(uint32_t n_entries, uint32_t n_slots)
{
	return 64 + (size_t)n_entries * sizeof(struct entry) +
	    2 * (size_t)n_slots * sizeof(uint32_t);
}

static void
place(struct pins *p)
{
	p->entries = (void *)(p->map + 64);
	p->by_name = (void *)(p->entries + p->head.n_entries);
	p->by_addr = p->by_name + p->head.n_slots;
}

static int
make_lists(struct pins *p)
{
	uint32_t n = p->head.n_entries;

	p->links = calloc((size_t)n + PIN_CELLS + 1, sizeof(*p->links));
	if (p->links == NULL) {
		errno = ENOMEM;
		return -1;
	}
	for (uint32_t i = n; i <= n + PIN_CELLS; i++)
		p->links[i].prev = p->links[i].next = i;
	for (uint32_t i = 0; i < n; i++)
		list_put(p, FREE, i);
	p->most = NAME_WEIGHT * n;
	return 0;
}

int
pin_create(struct pins **out, unsigned names, int *fd)
{
	struct pins *p = calloc(1, sizeof(*p));
	int err;

	*fd = -1;
	if (p == NULL)
		return -ENOMEM;
	p->head.magic = PIN_MAGIC;
	p->head.n_entries = names;
	for (p->head.n_slots = 16; p->head.n_slots < 4 * names;)
		p->head.n_slots *= 2;
	randombytes_buf(p->head.key, sizeof(p->head.key));
	p->size = bytes_for(names, p->head.n_slots);
	if (make_lists(p) < 0)
		goto fail;
	*fd = memfd_create("penstock-pins", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (*fd < 0)
		goto fail;
	if (ftruncate(*fd, (off_t)p->size) < 0)
		goto fail;
	p->map = mmap(NULL, p->size, PROT_READ | PROT_WRITE, MAP_SHARED, *fd,
	    0);
	if (p->map == MAP_FAILED)
		goto fail;
	/* this mapping stays writable; no later one will be */
	if (fcntl(*fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW |
	    F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) < 0) {
		munmap(p->map, p->size);
		goto fail;
	}
	memcpy(p->map, &p->head, sizeof(p->head));
	place(p);
	*out = p;
	return 0;
fail:
	err = errno;
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
	free(p->links);
	free(p);
	return -err;
}

int
pin_open(struct pins **out, int fd)
{
	struct pins *p = calloc(1, sizeof(*p));
	struct stat st;

	if (p == NULL)
		return -ENOMEM;
	if (fstat(fd, &st) < 0 || st.st_size < 64) {
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
	    bytes_for(p->head.n_entries, p->head.n_slots) != p->size) {
		pin_close(p);
		return -EBADMSG;
	}
	place(p);
	*out = p;
	return 0;
}

void
pin_close(struct pins *p)
{
	if (p == NULL)
		return;
	munmap(p->map, p->size);
	free(p->links);
	free(p);
}

/* ---- hashing ---- */

static uint32_t
hash(const struct pins *p, const void *bytes, size_t n)
{
	uint8_t out[crypto_shorthash_BYTES];
	uint32_t h;

	crypto_shorthash(out, bytes, n, p->head.key);
	memcpy(&h, out, sizeof(h));
	return h & (p->head.n_slots - 1);
}

static uint32_t
slot(_Atomic uint32_t *index, uint32_t at)
{
	return atomic_load_explicit(&index[at], memory_order_acquire);
}

/* ---- reading ---- */

static _Atomic uint32_t *
table_seq(const struct pins *p)
{
	return &((struct head *)(void *)p->map)->seq;
}

/* A consistent copy of an entry; false when it changes all the time. */
static bool
read_entry(const struct pins *p, uint32_t i, struct entry *out)
{
	struct entry *e = &p->entries[i];

	for (unsigned tries = 0; tries < READS_MAX; tries++) {
		uint32_t before = atomic_load_explicit(&e->seq,
		    memory_order_acquire);

		if (before & 1)
			continue;
		memcpy(&out->len, &e->len, sizeof(*e) -
		    offsetof(struct entry, len));
		atomic_thread_fence(memory_order_acquire);
		if (atomic_load_explicit(&e->seq, memory_order_relaxed) ==
		    before)
			return out->len <= HOST_MAX_BYTES &&
			    out->n <= PIN_ADDRS_MAX;
	}
	return false;
}

static bool
find(const struct pins *p, const struct host *name, struct entry *out,
    uint32_t *index)
{
	uint32_t mask = p->head.n_slots - 1;
	uint32_t at = hash(p, name->name, name->len);

	for (unsigned i = 0; i < PROBES_MAX; i++, at = (at + 1) & mask) {
		uint32_t s = slot(p->by_name, at);

		if (s == EMPTY)
			return false;
		if (s == TOMB || s - 1 >= p->head.n_entries)
			continue;
		if (p->entries[s - 1].len != name->len ||
		    !read_entry(p, s - 1, out) || out->len != name->len ||
		    memcmp(out->name, name->name, name->len) != 0)
			continue;
		*index = s - 1;
		return true;
	}
	return false;
}

size_t
pin_addrs(const struct pins *p, const struct host *name, int64_t now_ms,
    struct addr out[static PIN_ADDRS_MAX])
{
	struct entry e;
	uint32_t index;
	size_t n = 0;

	if (p == NULL || name->len == 0 || !find(p, name, &e, &index))
		return 0;
	for (unsigned i = 0; i < e.n; i++)
		if (e.until[i] > now_ms)
			out[n++] = e.addrs[i];
	return n;
}

static bool
entry_has(const struct entry *e, const struct addr *a, int64_t now_ms)
{
	for (unsigned i = 0; i < e->n; i++)
		if (e->until[i] > now_ms && addr_eq(&e->addrs[i], a))
			return true;
	return false;
}

bool
pin_has(const struct pins *p, const struct host *name, const struct addr *a,
    int64_t now_ms)
{
	struct entry e;
	uint32_t index;

	return p != NULL && name->len > 0 && find(p, name, &e, &index) &&
	    entry_has(&e, a, now_ms);
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
walk_names(const struct pins *p, const struct addr *a, int64_t now_ms,
    struct host out[static PIN_NAMES_MAX])
{
	uint32_t mask = p->head.n_slots - 1;
	uint32_t at = hash(p, a->b, sizeof(a->b));
	size_t n = 0;

	for (unsigned i = 0; i < PROBES_MAX; i++, at = (at + 1) & mask) {
		uint32_t s = slot(p->by_addr, at);
		struct host h;
		struct entry e;

		if (s == EMPTY)
			return n;
		if (s == TOMB)
			continue;
		/* what cannot be read may be a name of this address */
		if (s - 1 >= p->head.n_entries || !read_entry(p, s - 1, &e))
			return TOO_MANY;
		if (e.len == 0 || !entry_has(&e, a, now_ms))
			continue;
		if (host_parse(&h, span_of(e.name, e.len)) != REASON_NONE)
			return TOO_MANY;
		if (known(out, n, &h))
			continue;
		if (n == PIN_NAMES_MAX)
			return TOO_MANY;
		out[n++] = h;
	}
	return TOO_MANY;
}

/* Names that were there all the time are missed only while slots are taken
 * away: such a walk does not count. */
size_t
pin_names(const struct pins *p, const struct addr *a, int64_t now_ms,
    struct host out[static PIN_NAMES_MAX])
{
	_Atomic uint32_t *seq;

	if (p == NULL)
		return 0;
	seq = table_seq(p);
	for (unsigned tries = 0; tries < READS_MAX; tries++) {
		uint32_t before = atomic_load_explicit(seq,
		    memory_order_acquire);
		size_t n;

		if (before & 1)
			continue;
		n = walk_names(p, a, now_ms, out);
		atomic_thread_fence(memory_order_acquire);
		if (atomic_load_explicit(seq, memory_order_relaxed) == before)
			return n;
	}
	return TOO_MANY;
}

/* ---- writing ---- */

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

/* Put the entry into an index, once.  False: readers look no further than
 * PROBES_MAX, so it would not be found. */
static bool
slot_add(struct pins *p, _Atomic uint32_t *index, uint32_t *used,
    uint32_t at, uint32_t entry)
{
	uint32_t mask = p->head.n_slots - 1, tomb = TOMB;

	for (uint32_t i = 0; i <= mask && i < PROBES_MAX; i++,
	    at = (at + 1) & mask) {
		uint32_t s = slot(index, at);

		if (s == entry + 1)
			return true;
		if (s == TOMB && tomb == TOMB)
			tomb = at;
		if (s != EMPTY)
			continue;
		if (tomb == TOMB) {
			tomb = at;
			(*used)++;
		}
		break;
	}
	if (tomb == TOMB)
		return false;
	atomic_store_explicit(&index[tomb], entry + 1, memory_order_release);
	return true;
}

static void
slot_remove(struct pins *p, _Atomic uint32_t *index, uint32_t at,
    uint32_t entry)
{
	uint32_t mask = p->head.n_slots - 1;

	for (uint32_t i = 0; i <= mask && i < PROBES_MAX; i++,
	    at = (at + 1) & mask) {
		uint32_t s = slot(index, at);

		if (s == EMPTY)
			return;
		if (s == entry + 1)
			atomic_store_explicit(&index[at], TOMB,
			    memory_order_release);
	}
}

static bool
index_name(struct pins *p, uint32_t i)
{
	const struct entry *e = &p->entries[i];

	return slot_add(p, p->by_name, &p->used_name,
	    hash(p, e->name, e->len), i);
}

/* Where so many share a place that there is none, readers find too many. */
static void
index_addr(struct pins *p, uint32_t i, const struct addr *a)
{
	(void)slot_add(p, p->by_addr, &p->used_addr,
	    hash(p, a->b, sizeof(a->b)), i);
}

/* Tombs fill an index in time: make both anew.  For a reader that comes in
 * between a name is not found, which asks again, and the names of an address
 * are too many. */
static void
reindex(struct pins *p)
{
	begin(table_seq(p));
	for (uint32_t i = 0; i < p->head.n_slots; i++) {
		atomic_store_explicit(&p->by_name[i], EMPTY,
		    memory_order_relaxed);
		atomic_store_explicit(&p->by_addr[i], EMPTY,
		    memory_order_relaxed);
	}
	p->used_name = p->used_addr = 0;
	for (uint32_t i = 0; i < p->head.n_entries; i++) {
		const struct entry *e = &p->entries[i];

		if (e->len == 0)
			continue;
		(void)index_name(p, i);
		for (unsigned k = 0; k < e->n; k++)
			index_addr(p, i, &e->addrs[k]);
	}
	end(table_seq(p));
}

static void
forget(struct pins *p, uint32_t i)
{
	struct entry *e = &p->entries[i];

	discharge(p, i);
	begin(table_seq(p));
	slot_remove(p, p->by_name, hash(p, e->name, e->len), i);
	for (unsigned k = 0; k < e->n; k++)
		slot_remove(p, p->by_addr, hash(p, e->addrs[k].b,
		    sizeof(e->addrs[k].b)), i);
	begin(&e->seq);
	e->len = e->n = 0;
	end(&e->seq);
	end(table_seq(p));
	list_put(p, FREE, i);
}

static int64_t
last_until(const struct entry *e)
{
	int64_t last = 0;

	for (unsigned i = 0; i < e->n; i++)
		if (e->until[i] > last)
			last = e->until[i];
	return last;
}

/* Of the cell that holds the most, the name that ends first among those not
 * asked for the longest. */
static void
give_way(struct pins *p)
{
	uint32_t cell = FREE, i, best;

	for (uint32_t c = 0; c < PIN_CELLS; c++)
		if (list_first(p, c) < p->head.n_entries &&
		    (cell == FREE || p->held[c] > p->held[cell]))
			cell = c;
	if (cell == FREE)
		return;		/* not so: what weighs is in a list */
	best = i = list_first(p, cell);
	for (unsigned k = 0; k < PIN_LOOKS && i < p->head.n_entries; k++) {
		if (last_until(&p->entries[i]) <
		    last_until(&p->entries[best]))
			best = i;
		i = p->links[i].next;
	}
	forget(p, best);
}

/* Names that ended weigh on nobody for long. */
static void
sweep(struct pins *p, int64_t now_ms)
{
	for (unsigned k = 0; k < SWEEP; k++) {
		uint32_t i = p->hand++ % p->head.n_entries;

		if (p->entries[i].len > 0 &&
		    last_until(&p->entries[i]) <= now_ms)
			forget(p, i);
	}
}

/* Room for `more`, which counts for the cell while others are compared. */
static void
make_room(struct pins *p, uint32_t cell, uint32_t more)
{
	p->held[cell] += more;
	while (p->total > 0 && p->total + more > p->most)
		give_way(p);
	p->held[cell] -= more;
}

/* The address in the entry, or the place for it: a free one, then one that
 * ended, then the one that ends first. */
static unsigned
addr_place(const struct entry *e, const struct addr *a)
{
	unsigned first = 0;

	for (unsigned i = 0; i < e->n; i++) {
		if (addr_eq(&e->addrs[i], a))
			return i;
		if (e->until[i] < e->until[first])
			first = i;
	}
	return e->n < PIN_ADDRS_MAX ? e->n : first;
}

static void
merge(struct pins *p, uint32_t index, const struct addr *a, int64_t until)
{
	struct entry *e = &p->entries[index];
	unsigned at = addr_place(e, a);
	bool same = at < e->n && addr_eq(&e->addrs[at], a);

	begin(&e->seq);
	if (!same || e->until[at] < until)
		e->until[at] = until;
	e->addrs[at] = *a;
	if (at == e->n)
		e->n++;
	end(&e->seq);
	index_addr(p, index, a);
}

/* A new entry, in no list; or n_entries. */
static uint32_t
entry_new(struct pins *p, uint32_t cell, const struct host *name)
{
	uint32_t i = list_first(p, FREE);
	struct entry *e = &p->entries[i];

	if (i >= p->head.n_entries)
		return p->head.n_entries;
	begin(&e->seq);
	e->len = name->len;
	e->n = 0;
	e->cell = (uint16_t)cell;
	memcpy(e->name, name->name, sizeof(e->name));
	end(&e->seq);
	if (!index_name(p, i)) {
		begin(&e->seq);
		e->len = 0;
		end(&e->seq);
		return p->head.n_entries;
	}
	list_take(p, i);
	return i;
}

/* The name's entry, in no list, with room for n more addresses. */
static uint32_t
entry_for(struct pins *p, uint32_t cell, const struct host *name, unsigned n,
    int64_t now_ms)
{
	struct entry old, *e;
	uint32_t i;

	if (!find(p, name, &old, &i)) {
		sweep(p, now_ms);
		make_room(p, cell, weight(n));
		return entry_new(p, cell, name);
	}
	e = &p->entries[i];
	discharge(p, i);
	if (p->held[cell] < p->held[e->cell]) {
		begin(&e->seq);
		e->cell = (uint16_t)cell;
		end(&e->seq);
	}
	n += e->n;
	make_room(p, e->cell, weight(n < PIN_ADDRS_MAX ? n : PIN_ADDRS_MAX));
	return i;
}

static bool
add(struct pins *p, uint32_t cell, const struct host *name,
    const struct addr *addrs, size_t n, int64_t expires_ms, int64_t now_ms)
{
	uint32_t limit = p->head.n_slots / 8 * 7, i;

	if (n > PIN_ADDRS_MAX)
		n = PIN_ADDRS_MAX;
	if (name->len == 0 || n == 0 || weight((unsigned)n) > p->most)
		return false;
	if (p->used_name >= limit || p->used_addr + n >= limit)
		reindex(p);
	i = entry_for(p, cell, name, (unsigned)n, now_ms);
	if (i >= p->head.n_entries)
		return false;
	for (size_t k = 0; k < n; k++)
		merge(p, i, &addrs[k], expires_ms);
	charge(p, i);
	return true;
}

bool
pin_add(struct pins *p, struct span cell, const struct host *name,
    const struct addr *addrs, size_t n, int64_t expires_ms, int64_t now_ms)
{
	uint32_t h = 2166136261u;

	/* ids are the operator's, and the same after a restart: no key */
	for (size_t i = 0; i < cell.len; i++)
		h = (h ^ cell.data[i]) * 16777619u;
	return add(p, h % PIN_CELLS, name, addrs, n, expires_ms, now_ms);
}

void
pin_copy(struct pins *to, const struct pins *from, int64_t now_ms)
{
	for (uint32_t i = 0; i < from->head.n_entries; i++) {
		struct entry e;
		struct host h;

		if (from->entries[i].len == 0 || !read_entry(from, i, &e) ||
		    host_parse(&h, span_of(e.name, e.len)) != REASON_NONE)
			continue;
		/* what does not fit is asked for again */
		for (unsigned k = 0; k < e.n; k++)
			if (e.until[k] > now_ms)
				(void)add(to, e.cell % PIN_CELLS, &h,
				    &e.addrs[k], 1, e.until[k], now_ms);
	}
}
