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

#define LIMIT_MAGIC 0x6c696d32u
#define LIMIT_PROBES 64u	/* places looked at for one client or cell; when
				 * all are in use by others, it is refused */
#define LIMIT_CLIENTS_MIN 1024u
#define LIMIT_CLIENTS_MAX (1u << 17)
#define LIMIT_CELLS 16384u	/* far from full, also while those of the
				 * policy before hold places */
_Static_assert(LIMIT_CELLS >= 4 * POLICY_CELLS_MAX, "room for all cells");

/* One client or cell: its key (0: free) and what each engine holds of it. */
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

/* A keyed mix, so that a client cannot choose whom it shares a place with. */
static uint64_t
client_key(const struct limit *l, const struct addr *client)
{
	uint64_t half[2], x;

	memcpy(half, client->b, sizeof(half));
	if (!addr_is_v4(client))
		half[1] = 0;
	x = mix(mix(l->t->seed, half[0]), half[1]);
	return x ? x : 1;
}

/* By its id, which is the same in the next policy. */
static uint64_t
cell_key(const struct limit *l, struct span id)
{
	uint64_t x = mix(l->t->seed, id.len);

	for (size_t i = 0; i < id.len; i++)
		x = mix(x, id.data[i]);
	return x ? x : 1;
}

static unsigned
slot_sum(const struct slot *s)
{
	unsigned sum = 0;

	for (unsigned i = 0; i < LIMIT_ENGINES_MAX; i++)
		sum += atomic_load(&s->open[i]);
	return sum;
}

/* An idle place becomes this key's.  Another engine may have counted one for
 * the key before in the meantime: then it stays as it was. */
static bool
slot_claim(struct slot *s, uint64_t key)
{
	uint64_t old = atomic_load(&s->key);

	if (slot_sum(s) != 0 ||
	    !atomic_compare_exchange_strong(&s->key, &old, key))
		return false;
	if (slot_sum(s) == 0)
		return true;
	atomic_store(&s->key, old);
	return false;
}

/* The place of a key among n, made when there is none; NULL when all that may
 * be looked at are in use. */
static struct slot *
slot_find(struct slot *among, unsigned n, uint64_t key)
{
	struct slot *idle = NULL;

	for (unsigned i = 0; i < LIMIT_PROBES; i++) {
		struct slot *s = &among[(key + i) & (n - 1)];
		uint64_t k = atomic_load(&s->key);

		if (k == key)
			return s;
		if (idle == NULL && (k == 0 || slot_sum(s) == 0))
			idle = s;
		if (k == 0)
			break;
	}
	return idle != NULL && slot_claim(idle, key) ? idle : NULL;
}

/* Count first, look then: two engines may both refuse the last place, they
 * never both take it. */
static bool
slot_take(struct limit *l, struct slot *s, uint64_t key, unsigned max,
    uint32_t *place)
{
	if (s == NULL)
		return false;
	atomic_fetch_add(&s->open[l->engine], 1);
	if (atomic_load(&s->key) != key || slot_sum(s) > max) {
		atomic_fetch_sub(&s->open[l->engine], 1);
		return false;
	}
	*place = (uint32_t)(s - l->t->slot) + 1;
	return true;
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
	return slot_take(l, slot_find(l->t->slot, LIMIT_CELLS, key), key, max,
	    place);
}

static bool
client_take(struct limit *l, uint64_t key, unsigned max, uint32_t *place)
{
	return slot_take(l, slot_find(l->t->slot + LIMIT_CELLS, l->t->clients,
	    key), key, max, place);
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
	else if (!client_take(l, client_key(l, client), max->client,
	    &place->client))
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
	slot_give(l, &place->cell);
	place->cell = to;
	return REASON_NONE;
}

void
limit_give(struct limit *l, struct limit_place *place)
{
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
	for (unsigned i = 0; i < LIMIT_CELLS + l->t->clients; i++)
		if (atomic_load(&l->t->slot[i].open[engine]) != 0)
			atomic_store(&l->t->slot[i].open[engine], 0);
	atomic_store(&l->t->total[engine], 0);
}
