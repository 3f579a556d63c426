/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/limit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "policy/policy.h"

#define LIMIT_MAGIC 0x6c696d34u
#define LIMIT_PROBES 64u	/* places looked at for one client or cell; when
				 * all are in use by others, it is refused */
#define LIMIT_CLIENTS_MIN 1024u
#define LIMIT_CLIENTS_MAX (1u << 17)
#define LIMIT_CELLS 16384u	/* far from full, also while those of the
				 * policy before hold places */
_Static_assert(LIMIT_CELLS >= 4 * POLICY_CELLS_MAX, "room for all cells");

/* One client or cell (its key; 0: never used) and what the engine holds of it.
 * Where that is nothing the place is free. */
struct slot {
	_Atomic uint64_t key;
	_Atomic uint32_t open;
};

/* One engine's, who alone writes it. */
struct table {
	uint32_t magic, clients;
	uint64_t seed;
	_Atomic uint32_t total;
	struct slot slot[];	/* of cells, then of clients: a flood of
				 * addresses takes no cell's place */
};

/* One of the two parts. */
struct part {
	unsigned at;
	unsigned n;			/* a power of 2 */
};
static const struct part cells = { 0, LIMIT_CELLS };

struct limit {
	struct table *tables[LIMIT_ENGINES_MAX];	/* NULL: not seen */
	struct table *own;
	size_t bytes;		/* of each */
	struct part clients;	/* as all of them have it; what an engine that
				 * was taken over says of its own is not read */
	uint64_t seed;
};

static size_t
table_bytes(unsigned clients)
{
	return sizeof(struct table) + ((size_t)LIMIT_CELLS + clients) *
	    sizeof(struct slot);
}

int
limit_create(unsigned connections, uint64_t seed)
{
	struct table head = { .magic = LIMIT_MAGIC, .seed = seed,
	    .clients = LIMIT_CLIENTS_MIN };
	int fd, e;

	while (head.clients < connections && head.clients < LIMIT_CLIENTS_MAX)
		head.clients *= 2;
	fd = memfd_create("penstock-limits", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)table_bytes(head.clients)) < 0 ||
	    pwrite(fd, &head, sizeof(head), 0) != (ssize_t)sizeof(head) ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW |
	    F_SEAL_SEAL) < 0) {
		e = errno ? errno : EIO;
		close(fd);
		return -e;
	}
	return fd;
}

static int
see(struct limit *l, int fd, unsigned engine, int prot)
{
	struct stat st;
	void *at;

	if (engine >= LIMIT_ENGINES_MAX || l->tables[engine] != NULL ||
	    fstat(fd, &st) < 0 || (size_t)st.st_size < sizeof(struct table) ||
	    (l->own != NULL && (size_t)st.st_size != l->bytes))
		return -EBADMSG;
	at = mmap(NULL, (size_t)st.st_size, prot, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		return -errno;
	l->bytes = (size_t)st.st_size;
	l->tables[engine] = at;
	return 0;
}

int
limit_see(struct limit *l, int fd, unsigned engine, bool forget)
{
	return see(l, fd, engine, forget ? PROT_READ | PROT_WRITE :
	    PROT_READ);
}

int
limit_open(struct limit **out, int fd, unsigned engine)
{
	struct limit *l = calloc(1, sizeof(*l));
	int e;

	if (l == NULL)
		return -ENOMEM;
	e = see(l, fd, engine, PROT_READ | PROT_WRITE);
	if (e < 0) {
		free(l);
		return e;
	}
	l->own = l->tables[engine];
	l->clients = (struct part){ LIMIT_CELLS, l->own->clients };
	l->seed = l->own->seed;
	if (l->own->magic != LIMIT_MAGIC || l->clients.n == 0 ||
	    l->clients.n > LIMIT_CLIENTS_MAX ||
	    (l->clients.n & (l->clients.n - 1)) != 0 ||
	    table_bytes(l->clients.n) > l->bytes) {
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
	for (unsigned i = 0; i < LIMIT_ENGINES_MAX; i++)
		if (l->tables[i] != NULL)
			munmap(l->tables[i], l->bytes);
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

/* None that has a meaning. */
static uint64_t
key_of(uint64_t x)
{
	return x != 0 ? x : 1;
}

bool
limit_same_client(const struct addr *a, const struct addr *b)
{
	if (addr_is_v4(a) || addr_is_v4(b))
		return addr_eq(a, b);
	return memcmp(a->b, b->b, sizeof(uint64_t)) == 0;
}

/* A keyed mix, so that a client cannot choose whom it shares a place with. */
static uint64_t
client_key(const struct limit *l, const struct addr *client, bool apart)
{
	uint64_t half[2], x = l->seed + apart;

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
	uint64_t x = mix(l->seed, id.len);

	for (size_t i = 0; i < id.len; i++)
		x = mix(x, id.data[i]);
	return key_of(x);
}

/* The ith place that a key may have. */
static unsigned
place_at(const struct part *p, uint64_t key, unsigned i)
{
	return p->at + (unsigned)((key + i) & (p->n - 1));
}

/* The place of a key in our table, or one that is free; 0: all that may be
 * looked at are in use.  (One that was never used never looks so again, so a
 * search may end there.) */
static unsigned
place_find(const struct table *t, const struct part *p, uint64_t key)
{
	unsigned idle = 0;

	for (unsigned i = 0; i < LIMIT_PROBES; i++) {
		unsigned at = place_at(p, key, i);
		const struct slot *s = &t->slot[at];
		uint64_t k = atomic_load(&s->key);

		if (k == key)
			return at + 1;
		if (idle == 0 && atomic_load(&s->open) == 0)
			idle = at + 1;
		if (k == 0)
			break;
	}
	return idle;
}

/* What an engine holds of a key.  Where a place became another's meanwhile it
 * is that one's, and too many rather than too few. */
static unsigned
held(const struct table *t, const struct part *p, uint64_t key)
{
	for (unsigned i = 0; i < LIMIT_PROBES; i++) {
		const struct slot *s = &t->slot[place_at(p, key, i)];
		uint64_t k = atomic_load(&s->key);

		if (k == key)
			return atomic_load(&s->open);
		if (k == 0)
			break;
	}
	return 0;
}

/* In 64 bits: no engine, whatever it says, makes the sum small again. */
static uint64_t
held_by_all(const struct limit *l, const struct part *p, uint64_t key)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < LIMIT_ENGINES_MAX; i++)
		if (l->tables[i] != NULL)
			sum += held(l->tables[i], p, key);
	return sum;
}

/* Count first, look then: two engines may both refuse the last place, they
 * never both take it. */
static bool
take_in(struct limit *l, const struct part *p, uint64_t key, unsigned max,
    uint32_t *place)
{
	unsigned at = place_find(l->own, p, key);
	struct slot *s;

	if (at == 0)
		return false;
	s = &l->own->slot[at - 1];
	atomic_store(&s->key, key);
	atomic_fetch_add(&s->open, 1);
	if (held_by_all(l, p, key) <= max) {
		*place = at;
		return true;
	}
	atomic_fetch_sub(&s->open, 1);
	return false;
}

static void
slot_give(struct limit *l, uint32_t *place)
{
	struct slot *s;

	if (*place == 0)
		return;
	s = &l->own->slot[*place - 1];
	if (atomic_load(&s->open) > 0)
		atomic_fetch_sub(&s->open, 1);
	*place = 0;
}

static uint64_t
total(const struct limit *l)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < LIMIT_ENGINES_MAX; i++)
		if (l->tables[i] != NULL)
			sum += atomic_load(&l->tables[i]->total);
	return sum;
}

enum reason
limit_take(struct limit *l, const struct addr *client, struct span cell,
    const struct limit_max *max, struct limit_place *place)
{
	enum reason why = REASON_NONE;

	*place = (struct limit_place){ .held = true };
	atomic_fetch_add(&l->own->total, 1);
	if (total(l) > max->total)
		why = REASON_LIMIT_TOTAL;
	else if (!take_in(l, &cells, cell_key(l, cell), max->cell,
	    &place->cell))
		why = REASON_LIMIT_CELL;
	else if (!take_in(l, &l->clients, client_key(l, client, false),
	    max->client, &place->client) || (cell.len == 0 &&
	    !take_in(l, &l->clients, client_key(l, client, true), max->apart,
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
	    atomic_load(&l->own->slot[place->cell - 1].key) == key)
		return REASON_NONE;
	if (!take_in(l, &cells, key, cell_max, &to))
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
	if (place->held && atomic_load(&l->own->total) > 0)
		atomic_fetch_sub(&l->own->total, 1);
	place->held = false;
}

unsigned
limit_open_total(const struct limit *l)
{
	uint64_t sum = total(l);

	return sum < UINT32_MAX ? (unsigned)sum : UINT32_MAX;
}

void
limit_forget(struct limit *l, unsigned engine)
{
	struct table *t;

	if (engine >= LIMIT_ENGINES_MAX || l->tables[engine] == NULL)
		return;
	t = l->tables[engine];
	for (unsigned i = 0; i < LIMIT_CELLS + l->clients.n; i++) {
		if (atomic_load(&t->slot[i].open) != 0)
			atomic_store(&t->slot[i].open, 0);
		if (atomic_load(&t->slot[i].key) != 0)
			atomic_store(&t->slot[i].key, 0);
	}
	atomic_store(&t->total, 0);
	t->magic = LIMIT_MAGIC;
	t->clients = l->clients.n;
	t->seed = l->seed;
}
