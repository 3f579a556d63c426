/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DNS_PIN_TABLE_H
#define DNS_PIN_TABLE_H

/* How the table of pins lies in memory: for dns/pin and dns/pin_write. */
#include "dns/pin.h"

#include <sodium.h>
#include <stdatomic.h>

#include "dns/share.h"

#define PIN_MAGIC 0x35534e49504e5350ull	/* its end is the layout's version */
#define PIN_HEAD_BYTES 64u
#define PIN_EMPTY 0u
#define PIN_TOMB UINT32_MAX
#define PIN_PROBES_MAX 4096u	/* beyond: not found, which denies */

/* What a cell's life is told apart by. */
struct pin_life {
	uint8_t b[crypto_shorthash_siphashx24_BYTES];
};

/*
 * A pin, or what is left of a long name (len 0 then, as for a free place).
 * `more` is the place plus one where the name goes on, 0: it does not; that
 * place changes only after the pin did.
 */
struct pin_entry {
	_Atomic uint32_t seq;		/* odd while the writer is inside */
	uint32_t more;
	int64_t until;
	uint32_t order;			/* of the answer, and in it */
	uint8_t len;			/* of the name */
	uint8_t spare[3];
	union {
		struct {
			struct pin_life life;
			struct addr addr;
			char name[72];
		};
		char rest[104];
	};
};
_Static_assert(sizeof(struct pin_entry) == 128, "100,000 pins in 16 MB");

/*
 * The file: head, entries, slots of names and of addresses, and for each entry
 * the next one of its name and of its address.  A slot holds an entry index
 * plus one, the first of those with one key (a cell's name, or its address);
 * a key is checked at the entry, and takes one slot, however many have it: so
 * no cell crowds the index for another.  The head's seq is odd while entries
 * are taken away.
 */
struct pin_head {
	uint64_t magic;
	uint32_t n_entries;
	uint32_t n_slots;	/* a power of two, of each index */
	uint8_t key[crypto_shorthash_KEYBYTES];
	_Atomic uint32_t seq;
	uint64_t source;	/* as pin_set_source was told */
};
_Static_assert(sizeof(struct pin_head) <= PIN_HEAD_BYTES, "entries follow");
_Static_assert(crypto_shorthash_KEYBYTES == crypto_shorthash_siphashx24_KEYBYTES,
    "one key for both");

/* What a cell holds, in places; of the writer. */
struct pin_owner {
	struct pin_life life;
	uint32_t held;
	bool used;
	bool lives;		/* in the policy at hand */
};

struct pin_index {
	_Atomic uint32_t *slots, *next;
	/* of the writer: the one before, plus one; slots not EMPTY */
	uint32_t *prev, used;
};

struct pins {
	uint8_t *map;
	size_t size;
	struct pin_head head;	/* own copy: bounds do not change under us */
	struct pin_entry *entries;
	struct pin_index by_name, by_addr;
	/* of the writer: places that are free, pins by the time that they end
	 * (a heap, and where each is in it) */
	uint32_t *free, *heap, *pos;
	uint32_t n_free, n_heap;
	uint32_t answers;
	struct pin_owner *owners;
	uint32_t n_owners;
	struct share_split split;
};

/* A copy of a pin. */
struct pin_seen {
	struct pin_life life;
	struct addr addr;
	int64_t until;
	uint32_t order;
	uint8_t len;
	char name[HOST_MAX_BYTES + 1];
};

/* Places that a name of so many bytes takes. */
static inline uint32_t
pin_places(uint8_t len)
{
	const uint32_t first = sizeof(((struct pin_entry *)NULL)->name),
	    next = sizeof(((struct pin_entry *)NULL)->rest);

	return len <= first ? 1 : 1 + (len - first + next - 1) / next;
}

size_t pin_bytes_for(uint32_t n_entries, uint32_t n_slots);
void pin_place(struct pins *p);
void pin_life_of(const struct pins *p, const struct pin_cell *cell,
    struct pin_life *out);
/* Where a search for it begins. */
uint32_t pin_hash_name(const struct pins *p, const struct pin_life *life,
    const char *name, size_t len);
uint32_t pin_hash_addr(const struct pins *p, const struct pin_life *life,
    const struct addr *a);
/* A consistent copy; false when it changes all the time, or is unsound. */
bool pin_read(const struct pins *p, uint32_t i, struct pin_seen *out);
/* The entries of a cell's name, or of its address, ended ones too.  False:
 * there are no more, or they change: then `torn` says that some may have been
 * missed. */
struct pin_walk {
	struct pin_life life;
	const struct host *name;	/* NULL: by the address */
	struct addr addr;
	uint32_t next;			/* plus one */
	unsigned steps;
	bool begun, torn;
};
void pin_walk_name(struct pin_walk *w, const struct pin_life *life,
    const struct host *name);
void pin_walk_addr(struct pin_walk *w, const struct pin_life *life,
    const struct addr *a);
bool pin_walk_next(const struct pins *p, struct pin_walk *w, uint32_t *i,
    struct pin_seen *out);

#endif
