/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/limit.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define LIMIT_MAGIC 0x6c696d31u
#define LIMIT_PROBES 64u	/* places looked at for one client; when all
				 * are in use by others, it is refused */
#define LIMIT_SLOTS_MIN 1024u
#define LIMIT_SLOTS_MAX (1u << 17)

/* One client: its key (0: free) and what each engine holds of it. */
struct slot {
	_Atomic uint64_t key;
	_Atomic uint32_t open[LIMIT_ENGINES_MAX];
};

struct table {
	uint32_t magic, slots;
	uint64_t seed;
	_Atomic uint32_t total[LIMIT_ENGINES_MAX];
	struct slot slot[];
};

struct limit {
	struct table *t;
	size_t bytes;
	unsigned engine;
};

static size_t
table_bytes(unsigned slots)
{
	return sizeof(struct table) + (size_t)slots * sizeof(struct slot);
}

int
limit_create(unsigned connections)
{
	unsigned slots = LIMIT_SLOTS_MIN;
	struct table head = { .magic = LIMIT_MAGIC };
	int fd, e;

	while (slots < connections && slots < LIMIT_SLOTS_MAX)
		slots *= 2;
	head.slots = slots;
	if (getrandom(&head.seed, sizeof(head.seed), 0) !=
	    (ssize_t)sizeof(head.seed))
		return -EIO;
	fd = memfd_create("penstock-limits", MFD_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)table_bytes(slots)) < 0 ||
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
	if (l->t->magic != LIMIT_MAGIC || l->t->slots == 0 ||
	    l->t->slots > LIMIT_SLOTS_MAX ||
	    table_bytes(l->t->slots) > l->bytes) {
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

/* A keyed mix, so that a client cannot choose whom it shares a place with. */
static uint64_t
client_key(const struct limit *l, const struct addr *client)
{
	uint64_t half[2], x;

	memcpy(half, client->b, sizeof(half));
	if (!addr_is_v4(client))
		half[1] = 0;
	x = l->t->seed;
	for (int i = 0; i < 2; i++) {
		x ^= half[i];
		x *= 0x9e3779b97f4a7c15u;
		x ^= x >> 29;
		x *= 0xbf58476d1ce4e5b9u;
		x ^= x >> 32;
	}
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

/* The place of a key, made when there is none; NULL when all that may be
 * looked at are in use. */
static struct slot *
slot_find(struct limit *l, uint64_t key, bool make)
{
	unsigned n = l->t->slots;
	struct slot *idle = NULL;

	for (unsigned i = 0; i < LIMIT_PROBES; i++) {
		struct slot *s = &l->t->slot[(key + i) & (n - 1)];
		uint64_t k = atomic_load(&s->key);

		if (k == key)
			return s;
		if (idle == NULL && (k == 0 || slot_sum(s) == 0))
			idle = s;
		if (k == 0)
			break;
	}
	if (!make || idle == NULL)
		return NULL;
	uint64_t old = atomic_load(&idle->key);

	if (slot_sum(idle) != 0 ||
	    !atomic_compare_exchange_strong(&idle->key, &old, key))
		return NULL;
	return idle;
}

enum reason
limit_take(struct limit *l, const struct addr *client, unsigned total_max,
    unsigned client_max)
{
	uint64_t key = client_key(l, client);
	struct slot *s;

	/* Count first, look then: two engines may both refuse the last
	 * place, they never both take it. */
	atomic_fetch_add(&l->t->total[l->engine], 1);
	if (limit_open_total(l) > total_max) {
		atomic_fetch_sub(&l->t->total[l->engine], 1);
		return REASON_LIMIT_TOTAL;
	}
	s = slot_find(l, key, true);
	if (s != NULL) {
		atomic_fetch_add(&s->open[l->engine], 1);
		if (atomic_load(&s->key) == key && slot_sum(s) <= client_max)
			return REASON_NONE;
		atomic_fetch_sub(&s->open[l->engine], 1);
	}
	atomic_fetch_sub(&l->t->total[l->engine], 1);
	return REASON_LIMIT_CLIENT;
}

void
limit_give(struct limit *l, const struct addr *client)
{
	struct slot *s = slot_find(l, client_key(l, client), false);

	if (s != NULL && atomic_load(&s->open[l->engine]) > 0)
		atomic_fetch_sub(&s->open[l->engine], 1);
	if (atomic_load(&l->t->total[l->engine]) > 0)
		atomic_fetch_sub(&l->t->total[l->engine], 1);
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
	for (unsigned i = 0; i < l->t->slots; i++)
		if (atomic_load(&l->t->slot[i].open[engine]) != 0)
			atomic_store(&l->t->slot[i].open[engine], 0);
	atomic_store(&l->t->total[engine], 0);
}
