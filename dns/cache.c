/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/cache.h"

#include <sodium.h>
#include <stdlib.h>

/* Those of one cell, by use; the rare cells with one hash share. */
struct part {
	struct item *newest, *oldest;
	size_t bytes;
};

/* In a chained hash table; the list by use decides what makes room. */
struct item {
	struct item *chain;		/* next of the bucket */
	struct item *newer, *older;	/* of its part */
	struct part *part;
	int64_t until_ms;
	size_t bytes;			/* of all of this */
	struct host *name;		/* behind the answer, cut to size */
	struct cache_note note;
	struct answer answer;
};

#define BYTES_EACH 512u		/* about: for the number of buckets */
#define BYTES_OVER 32u		/* malloc's own, about */
#define PARTS 256u		/* a power of two; all are looked at for room */

struct cache {
	struct item **buckets;
	size_t n_buckets, max, bytes, n;
	struct part parts[PARTS];
	uint8_t key[crypto_shorthash_KEYBYTES];
};

struct cache *
cache_new(size_t bytes)
{
	struct cache *c = calloc(1, sizeof(*c));

	if (c == NULL)
		return NULL;
	c->max = bytes;
	for (c->n_buckets = 16; c->n_buckets < bytes / BYTES_EACH;)
		c->n_buckets *= 2;
	c->buckets = calloc(c->n_buckets, sizeof(struct item *));
	if (c->buckets == NULL) {
		free(c);
		return NULL;
	}
	randombytes_buf(c->key, sizeof(c->key));
	return c;
}

void
cache_free(struct cache *c)
{
	if (c == NULL)
		return;
	cache_flush(c, NULL);
	free(c->buckets);
	free(c);
}

static uint64_t
hash(const struct cache *c, const void *bytes, size_t n)
{
	uint8_t out[crypto_shorthash_BYTES];
	uint64_t h;

	crypto_shorthash(out, bytes, n, c->key);
	memcpy(&h, out, sizeof(h));
	return h;
}

static struct item **
bucket(const struct cache *c, const struct host *name)
{
	return &c->buckets[hash(c, name->name, name->len) &
	    (c->n_buckets - 1)];
}

static struct item *
find(const struct cache *c, const struct host *name, uint16_t type)
{
	struct item *it = *bucket(c, name);

	while (it != NULL && (it->answer.type != type ||
	    !host_eq(it->name, name)))
		it = it->chain;
	return it;
}

static void
list_remove(struct item *it)
{
	struct part *p = it->part;

	*(it->newer != NULL ? &it->newer->older : &p->newest) = it->older;
	*(it->older != NULL ? &it->older->newer : &p->oldest) = it->newer;
	p->bytes -= it->bytes;
}

static void
list_add(struct item *it)
{
	struct part *p = it->part;

	it->newer = NULL;
	it->older = p->newest;
	*(it->older != NULL ? &it->older->newer : &p->oldest) = it;
	p->newest = it;
	p->bytes += it->bytes;
}

static void
drop(struct cache *c, struct item *it)
{
	struct item **at = bucket(c, it->name);

	while (*at != it)
		at = &(*at)->chain;
	*at = it->chain;
	list_remove(it);
	c->bytes -= it->bytes;
	c->n--;
	free(it);
}

const struct answer *
cache_get(struct cache *c, const struct host *name, uint16_t type,
    int64_t now_ms, uint32_t *ttl_s)
{
	struct item *it = find(c, name, type);

	if (it == NULL || it->until_ms <= now_ms)
		return NULL;
	*ttl_s = (uint32_t)((it->until_ms - now_ms + 999) / 1000);
	list_remove(it);
	list_add(it);
	return &it->answer;
}

struct cache_note *
cache_note(const struct answer *a)
{
	struct item *it = (struct item *)((uintptr_t)a -
	    offsetof(struct item, answer));

	return &it->note;
}

uint32_t
cache_live_s(const struct answer *a)
{
	uint32_t max = a->reason == REASON_NONE ? ANSWER_TTL_MAX_S :
	    CACHE_NEGATIVE_MAX_S;

	if (a->reason == REASON_LIMIT_MEMORY)
		return 0;	/* it may be there for the next one */
	if (a->reason != REASON_NONE && a->reason != REASON_DNS_NXDOMAIN &&
	    a->reason != REASON_DNS_NODATA)
		return CACHE_FAILURE_S;
	return a->ttl_s < max ? a->ttl_s : max;
}

static struct item *
item_new(const struct host *name, const struct answer *a)
{
	size_t at = offsetof(struct item, answer) + answer_bytes(a);
	size_t bytes = at + offsetof(struct host, name) + name->len + 1u;
	struct item *it = malloc(bytes);

	if (it == NULL)
		return NULL;
	it->bytes = bytes + BYTES_OVER;
	it->note = (struct cache_note){ 0 };
	it->name = (struct host *)((uint8_t *)it + at);
	memcpy(&it->answer, a, answer_bytes(a));
	memcpy(it->name, name, bytes - at);
	return it;
}

/* Whoever has the most gives: a cell that asks for ever new names pushes out
 * its own. */
static void
make_room(struct cache *c)
{
	struct part *most = &c->parts[0];

	for (unsigned i = 1; i < PARTS; i++)
		if (c->parts[i].bytes > most->bytes)
			most = &c->parts[i];
	drop(c, most->oldest);
}

void
cache_put(struct cache *c, struct span cell, const struct host *name,
    const struct answer *a, int64_t now_ms)
{
	struct item *old = find(c, name, a->type), *it, **head;
	uint32_t live = cache_live_s(a);

	if (old != NULL)
		drop(c, old);
	it = live > 0 ? item_new(name, a) : NULL;
	if (it == NULL)
		return;
	it->until_ms = now_ms + (int64_t)live * 1000;
	it->part = &c->parts[hash(c, cell.data, cell.len) & (PARTS - 1)];
	head = bucket(c, name);
	it->chain = *head;
	*head = it;
	list_add(it);
	c->bytes += it->bytes;
	c->n++;
	while (c->bytes > c->max)
		make_room(c);
}

static size_t
flush_part(struct cache *c, const struct part *p, const struct host *name)
{
	size_t n = 0;

	for (struct item *it = p->newest, *next; it != NULL; it = next) {
		next = it->older;
		if (name != NULL && !host_eq(it->name, name))
			continue;
		drop(c, it);
		n++;
	}
	return n;
}

size_t
cache_flush(struct cache *c, const struct host *name)
{
	size_t n = 0;

	for (unsigned i = 0; i < PARTS; i++)
		n += flush_part(c, &c->parts[i], name);
	return n;
}

size_t
cache_bytes(const struct cache *c)
{
	return c->bytes;
}

size_t
cache_limit(const struct cache *c)
{
	return c->max;
}

size_t
cache_answers(const struct cache *c)
{
	return c->n;
}
