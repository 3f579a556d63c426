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

#define PIN_MAGIC 0x31534e49504e5350ull
#define EMPTY 0u
#define TOMB UINT32_MAX
#define PROBES_MAX 4096u	/* beyond: not found, which denies */
#define LOOKS_MAX 64u		/* entries looked at to make room */
#define READS_MAX 64u		/* a reader that meets a change gives up */

/* seq is odd while the writer is inside. */
struct entry {
	_Atomic uint32_t seq;
	uint8_t len;		/* 0: free */
	uint8_t n;
	char name[HOST_MAX_BYTES + 1];
	struct addr addrs[PIN_ADDRS_MAX];
	int64_t until[PIN_ADDRS_MAX];
};

/* The file: head, entries, name slots, address slots.  A slot holds an entry
 * index plus one; address slots are a multimap, checked at the entry. */
struct head {
	uint64_t magic;
	uint32_t n_entries;
	uint32_t n_slots;	/* a power of two, of each index */
	uint8_t key[crypto_shorthash_KEYBYTES];
};

struct pins {
	uint8_t *map;
	size_t size;
	struct head head;	/* own copy: bounds do not change under us */
	struct entry *entries;
	_Atomic uint32_t *by_name, *by_addr;
	uint32_t used_name, used_addr;	/* slots not EMPTY (writer) */
	uint32_t hand;
};

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

int
pin_create(struct pins **out, unsigned names, int *fd)
{
	struct pins *p = calloc(1, sizeof(*p));
	int err;

	if (p == NULL)
		return -ENOMEM;
	p->head.magic = PIN_MAGIC;
	p->head.n_entries = names;
	for (p->head.n_slots = 16; p->head.n_slots < 4 * names;)
		p->head.n_slots *= 2;
	randombytes_buf(p->head.key, sizeof(p->head.key));
	p->size = bytes_for(names, p->head.n_slots);
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

size_t
pin_names(const struct pins *p, const struct addr *a, int64_t now_ms,
    struct host out[static PIN_NAMES_MAX])
{
	uint32_t mask, at;
	size_t n = 0;

	if (p == NULL)
		return 0;
	mask = p->head.n_slots - 1;
	at = hash(p, a->b, sizeof(a->b));
	for (unsigned i = 0; i < PROBES_MAX; i++, at = (at + 1) & mask) {
		uint32_t s = slot(p->by_addr, at);
		struct host h;
		struct entry e;

		if (s == EMPTY)
			return n;
		if (s == TOMB || s - 1 >= p->head.n_entries ||
		    !read_entry(p, s - 1, &e) || e.len == 0 ||
		    !entry_has(&e, a, now_ms) ||
		    host_parse(&h, span_of(e.name, e.len)) != REASON_NONE ||
		    known(out, n, &h))
			continue;
		if (n == PIN_NAMES_MAX)
			return PIN_NAMES_MAX + 1;
		out[n++] = h;
	}
	return PIN_NAMES_MAX + 1;
}

/* ---- writing ---- */

static void
begin(struct entry *e)
{
	atomic_store_explicit(&e->seq, atomic_load_explicit(&e->seq,
	    memory_order_relaxed) + 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
}

static void
end(struct entry *e)
{
	atomic_store_explicit(&e->seq, atomic_load_explicit(&e->seq,
	    memory_order_relaxed) + 1, memory_order_release);
}

/* Put the entry into an index, once. */
static void
slot_add(struct pins *p, _Atomic uint32_t *index, uint32_t *used,
    uint32_t at, uint32_t entry)
{
	uint32_t mask = p->head.n_slots - 1, tomb = TOMB;

	for (uint32_t i = 0; i <= mask; i++, at = (at + 1) & mask) {
		uint32_t s = slot(index, at);

		if (s == entry + 1)
			return;
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
	if (tomb != TOMB)
		atomic_store_explicit(&index[tomb], entry + 1,
		    memory_order_release);
}

static void
slot_remove(struct pins *p, _Atomic uint32_t *index, uint32_t at,
    uint32_t entry)
{
	uint32_t mask = p->head.n_slots - 1;

	for (uint32_t i = 0; i <= mask; i++, at = (at + 1) & mask) {
		uint32_t s = slot(index, at);

		if (s == EMPTY)
			return;
		if (s == entry + 1)
			atomic_store_explicit(&index[at], TOMB,
			    memory_order_release);
	}
}

static void
forget(struct pins *p, uint32_t i)
{
	struct entry *e = &p->entries[i];

	if (e->len == 0)
		return;
	slot_remove(p, p->by_name, hash(p, e->name, e->len), i);
	for (unsigned k = 0; k < e->n; k++)
		slot_remove(p, p->by_addr, hash(p, e->addrs[k].b,
		    sizeof(e->addrs[k].b)), i);
	begin(e);
	e->len = e->n = 0;
	end(e);
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

/* Tombs fill an index in time: make both anew.  A reader that comes in
 * between finds less than there is, which denies or asks again. */
static void
reindex(struct pins *p)
{
	for (uint32_t i = 0; i < p->head.n_slots; i++) {
		atomic_store(&p->by_name[i], EMPTY);
		atomic_store(&p->by_addr[i], EMPTY);
	}
	p->used_name = p->used_addr = 0;
	for (uint32_t i = 0; i < p->head.n_entries; i++) {
		const struct entry *e = &p->entries[i];

		if (e->len == 0)
			continue;
		slot_add(p, p->by_name, &p->used_name,
		    hash(p, e->name, e->len), i);
		for (unsigned k = 0; k < e->n; k++)
			slot_add(p, p->by_addr, &p->used_addr,
			    hash(p, e->addrs[k].b, sizeof(e->addrs[k].b)),
			    i);
	}
}

/* The middle between the ends of all entries. */
static int64_t
mean_until(const struct pins *p)
{
	int64_t sum = 0, n = 0;

	for (uint32_t i = 0; i < p->head.n_entries; i++)
		if (p->entries[i].len != 0) {
			sum += last_until(&p->entries[i]);
			n++;
		}
	return n > 0 ? sum / n : 0;
}

/* What ended makes room in the indexes for n more addresses; then what ends
 * first, about half of all at a time.  False: they are more than fit. */
static bool
make_slots(struct pins *p, size_t n, uint32_t limit, int64_t now_ms)
{
	int64_t until = now_ms;

	while (p->used_name >= limit || p->used_addr + n >= limit) {
		if (p->used_name == 0 && p->used_addr == 0)
			return false;
		for (uint32_t i = 0; i < p->head.n_entries; i++)
			if (last_until(&p->entries[i]) <= until)
				forget(p, i);
		reindex(p);
		until = mean_until(p);
	}
	return true;
}

/* A free entry, or the one of the next few that ends first. */
static uint32_t
make_room(struct pins *p, int64_t now_ms)
{
	uint32_t best = p->hand % p->head.n_entries;
	int64_t best_until = INT64_MAX;

	for (unsigned i = 0; i < LOOKS_MAX; i++) {
		uint32_t at = p->hand++ % p->head.n_entries;
		const struct entry *e = &p->entries[at];
		int64_t until = e->len == 0 ? 0 : last_until(e);

		if (until < best_until) {
			best = at;
			best_until = until;
		}
		if (until <= now_ms)
			break;
	}
	forget(p, best);
	return best;
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

	begin(e);
	if (!same || e->until[at] < until)
		e->until[at] = until;
	e->addrs[at] = *a;
	if (at == e->n)
		e->n++;
	end(e);
	slot_add(p, p->by_addr, &p->used_addr, hash(p, a->b, sizeof(a->b)),
	    index);
}

bool
pin_add(struct pins *p, const struct host *name, const struct addr *addrs,
    size_t n, int64_t expires_ms, int64_t now_ms)
{
	uint32_t limit = p->head.n_slots / 4 * 3, index;
	struct entry old;

	if (name->len == 0 || n == 0)
		return false;
	if (!make_slots(p, n, limit, now_ms))
		return false;
	if (!find(p, name, &old, &index)) {
		struct entry *e;

		index = make_room(p, now_ms);
		e = &p->entries[index];
		begin(e);
		e->len = name->len;
		e->n = 0;
		memcpy(e->name, name->name, sizeof(e->name));
		end(e);
		slot_add(p, p->by_name, &p->used_name,
		    hash(p, name->name, name->len), index);
	}
	for (size_t i = 0; i < n && i < PIN_ADDRS_MAX; i++)
		merge(p, index, &addrs[i], expires_ms);
	return true;
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
		for (unsigned k = 0; k < e.n; k++)
			if (e.until[k] > now_ms)
				pin_add(to, &h, &e.addrs[k], 1, e.until[k],
				    now_ms);
	}
}
