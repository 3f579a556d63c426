/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/limit.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "policy/policy.h"

#define LIMIT_MAGIC 0x6c696d33u
#define LIMIT_PROBES 64u	/* places looked at for one client or cell; when
				 * all are in use by others, it is refused */
#define LIMIT_TRIES 8u		/* for a place while others make theirs */
#define LIMIT_CLIENTS_MIN 1024u
#define LIMIT_CLIENTS_MAX (1u << 17)
#define LIMIT_CELLS 16384u	/* far from full, also while those of the
				 * policy before hold places */
_Static_assert(LIMIT_CELLS >= 4 * POLICY_CELLS_MAX, "room for all cells");

/* The key of a place that an engine is making its own. */
#define CLAIM(engine) ((uint64_t)(engine) + 2)

/* One client or cell: its key (0: never used, 1: free, or a CLAIM) and what
 * each engine holds of it. */
struct slot {
	_Atomic uint64_t key;
	_Atomic uint32_t open[LIMIT_ENGINES_MAX];
};

struct table {
	uint32_t magic, clients;
	uint64_t seed;
	_Atomic uint32_t total[LIMIT_ENGINES_MAX];
	struct slot slot[];	/* of cells, then of clients: a flood of
				 * addresses takes no cell's place */
};

/* One of the two parts. */
struct among {
	struct slot *slot;
	unsigned n;			/* a power of 2 */
};

struct limit {
	struct table *t;
	size_t bytes;
	unsigned engine;
};

static size_t
table_bytes(unsigned clients)
{
	return sizeof(struct table) + ((size_t)LIMIT_CELLS + clients) *
	    sizeof(struct slot);
}

int
limit_create(unsigned connections)
{
	unsigned clients = LIMIT_CLIENTS_MIN;
	struct table head = { .magic = LIMIT_MAGIC };
	int fd, e;

	while (clients < connections && clients < LIMIT_CLIENTS_MAX)
		clients *= 2;
	head.clients = clients;
	if (getrandom(&head.seed, sizeof(head.seed), 0) !=
	    (ssize_t)sizeof(head.seed))
		return -EIO;
	fd = memfd_create("penstock-limits", MFD_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)table_bytes(clients)) < 0 ||
	    pwrite(fd, &head, sizeof(head), 0) != (ssize_t)sizeof(head)) {
		e = errno ? errno : EIO;
		close(fd);
		return -e;
	}
	return fd;
}

int
limit_open(struct limit **out, int fd, unsigned engine)
{
	struct limit *l;
	struct stat st;

	if (engine >= LIMIT_ENGINES_MAX || fstat(fd, &st) < 0 ||
	    (size_t)st.st_size < sizeof(struct table))
		return -EBADMSG;
	l = calloc(1, sizeof(*l));
	if (l == NULL)
		return -ENOMEM;
	l->bytes = (size_t)st.st_size;
	l->engine = engine;
	l->t = mmap(NULL, l->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (l->t == MAP_FAILED) {
		free(l);
		return -ENOMEM;
	}
	if (l->t->magic != LIMIT_MAGIC || l->t->clients == 0 ||
	    l->t->clients > LIMIT_CLIENTS_MAX ||
	    table_bytes(l->t->clients) > l->bytes) {
		limit_close(l);
		return -EBADMSG;
	}
	*out = l;
	return 0;
}

void
limit_close(struct limit *l)
{
	if (l == NULL)
		return;
	munmap(l->t, l->bytes);
	free(l);
}

static uint64_t
mix(uint64_t x, uint64_t more)
{
	x = (x ^ more) * 0x9e3779b97f4a7c15u;
	x ^= x >> 29;
	x *= 0xbf58476d1ce4e5b9u;
	return x ^ x >> 32;
}

/* One of the keys of cells and clients: none of those with a meaning. */
static uint64_t
key_of(uint64_t x)
{
	return x > CLAIM(LIMIT_ENGINES_MAX) ? x :
	    x + CLAIM(LIMIT_ENGINES_MAX) + 1;
}

/* A keyed mix, so that a client cannot choose whom it shares a place with. */
static uint64_t
client_key(const struct limit *l, const struct addr *client, bool apart)
{
	uint64_t half[2], x = l->t->seed + apart;

	memcpy(half, client->b, sizeof(half));
	if (!addr_is_v4(client))
		half[1] = 0;
	x = mix(mix(x, half[0]), half[1]);
	return key_of(x);
}

/* By its id, which is the same in the next policy. */
static uint64_t
cell_key(const struct limit *l, struct span id)
{
	uint64_t x = mix(l->t->seed, id.len);

	for (size_t i = 0; i < id.len; i++)
		x = mix(x, id.data[i]);
	return key_of(x);
}

static bool
is_claim(uint64_t key)
{
	return key >= CLAIM(0) && key < CLAIM(LIMIT_ENGINES_MAX);
}

/* The ith place that a key may have. */
static struct slot *
slot_at(const struct among *t, uint64_t key, unsigned i)
{
	return &t->slot[(key + i) & (t->n - 1)];
}

static unsigned
slot_sum(const struct slot *s)
{
	unsigned sum = 0;

	for (unsigned i = 0; i < LIMIT_ENGINES_MAX; i++)
		sum += atomic_load(&s->open[i]);
	return sum;
}

/* An idle place becomes this key's.  While it is ours alone nobody finds it,
 * nor counts: only then is it sure that it is idle.  (One that was never used
 * never looks so again, so a search may end there.) */
static bool
slot_claim(struct limit *l, struct slot *s, uint64_t key)
{
	uint64_t old = atomic_load(&s->key);

	if (old == key)
		return true;
	if (is_claim(old) || slot_sum(s) != 0 ||
	    !atomic_compare_exchange_strong(&s->key, &old, CLAIM(l->engine)))
		return false;
	if (slot_sum(s) != 0) {
		atomic_store(&s->key, old);
		return false;
	}
	atomic_store(&s->key, key);
	return true;
}

/* The place of a key in a table, made when there is none; NULL when all that
 * may be looked at are in use. */
static struct slot *
slot_find(struct limit *l, const struct among *t, uint64_t key)
{
	struct slot *idle = NULL;

	for (unsigned i = 0; i < LIMIT_PROBES; i++) {
		struct slot *s = slot_at(t, key, i);
		uint64_t k = atomic_load(&s->key);

		if (k == key)
			return s;
		if (idle == NULL && !is_claim(k) && (k == 0 ||
		    slot_sum(s) == 0))
			idle = s;
		if (k == 0)
			break;
	}
	return idle != NULL && slot_claim(l, idle, key) ? idle : NULL;
}

/* What is held of a key, wherever: two engines that look for its place at the
 * same time may make two. */
static unsigned
key_sum(const struct among *t, uint64_t key)
{
	unsigned sum = 0;

	for (unsigned i = 0; i < LIMIT_PROBES; i++) {
		const struct slot *s = slot_at(t, key, i);
		uint64_t k = atomic_load(&s->key);

		if (k == key)
			sum += slot_sum(s);
		if (k == 0)
			break;
	}
	return sum;
}

/* Count first, look then: two engines may both refuse the last place, they
 * never both take it.  A place that became another's meanwhile, or was being
 * made by another, is looked for again. */
static bool
take_in(struct limit *l, const struct among *t, uint64_t key, unsigned max,
    uint32_t *place)
{
	for (unsigned i = 0; i < LIMIT_TRIES; i++) {
		struct slot *s = slot_find(l, t, key);

		if (s == NULL)
			continue;
		atomic_fetch_add(&s->open[l->engine], 1);
		if (atomic_load(&s->key) == key) {
			if (key_sum(t, key) <= max) {
				*place = (uint32_t)(s - l->t->slot) + 1;
				return true;
			}
			i = LIMIT_TRIES;
		}
		atomic_fetch_sub(&s->open[l->engine], 1);
	}
	return false;
}

static void
slot_give(struct limit *l, uint32_t *place)
{
	struct slot *s;

	if (*place == 0)
		return;
	s = &l->t->slot[*place - 1];
	if (atomic_load(&s->open[l->engine]) > 0)
		atomic_fetch_sub(&s->open[l->engine], 1);
	*place = 0;
}

static bool
cell_take(struct limit *l, uint64_t key, unsigned max, uint32_t *place)
{
	const struct among cells = { l->t->slot, LIMIT_CELLS };

	return take_in(l, &cells, key, max, place);
}

static bool
client_take(struct limit *l, uint64_t key, unsigned max, uint32_t *place)
{
	const struct among clients = { l->t->slot + LIMIT_CELLS,
	    l->t->clients };

	return take_in(l, &clients, key, max, place);
}

enum reason
limit_take(struct limit *l, const struct addr *client, struct span cell,
    const struct limit_max *max, struct limit_place *place)
{
	enum reason why = REASON_NONE;

	*place = (struct limit_place){ .held = true };
	atomic_fetch_add(&l->t->total[l->engine], 1);
	if (limit_open_total(l) > max->total)
		why = REASON_LIMIT_TOTAL;
	else if (!cell_take(l, cell_key(l, cell), max->cell, &place->cell))
		why = REASON_LIMIT_CELL;
	else if (!client_take(l, client_key(l, client, false), max->client,
	    &place->client) || (cell.len == 0 &&
	    !client_take(l, client_key(l, client, true), max->apart,
	    &place->apart)))
		why = REASON_LIMIT_CLIENT;
	if (why != REASON_NONE)
		limit_give(l, place);
	return why;
}

enum reason
limit_move(struct limit *l, struct limit_place *place, struct span cell,
    unsigned cell_max)
{
	uint64_t key = cell_key(l, cell);
	uint32_t to = 0;

	if (place->cell != 0 &&
	    atomic_load(&l->t->slot[place->cell - 1].key) == key)
		return REASON_NONE;
	if (!cell_take(l, key, cell_max, &to))
		return REASON_LIMIT_CELL;
	slot_give(l, &place->apart);
	slot_give(l, &place->cell);
	place->cell = to;
	return REASON_NONE;
}

void
limit_give(struct limit *l, struct limit_place *place)
{
	slot_give(l, &place->apart);
	slot_give(l, &place->client);
	slot_give(l, &place->cell);
	if (place->held && atomic_load(&l->t->total[l->engine]) > 0)
		atomic_fetch_sub(&l->t->total[l->engine], 1);
	place->held = false;
}

unsigned
limit_open_total(const struct limit *l)
{
	unsigned sum = 0;

	for (unsigned i = 0; i < LIMIT_ENGINES_MAX; i++)
		sum += atomic_load(&l->t->total[i]);
	return sum;
}

void
limit_forget(struct limit *l, unsigned engine)
{
	if (engine >= LIMIT_ENGINES_MAX)
		return;
	for (unsigned i = 0; i < LIMIT_CELLS + l->t->clients; i++) {
		if (atomic_load(&l->t->slot[i].open[engine]) != 0)
			atomic_store(&l->t->slot[i].open[engine], 0);
		if (atomic_load(&l->t->slot[i].key) == CLAIM(engine))
			atomic_store(&l->t->slot[i].key, 1);
	}
	atomic_store(&l->t->total[engine], 0);
}
