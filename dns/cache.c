/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/cache.h"

#include <sodium.h>
#include <stdlib.h>

#define NONE UINT32_MAX

/* Names in a chained hash table; the list by use decides who makes room. */
struct item {
	struct host name;
	struct cache_answer answer;
	int64_t until_ms;
	uint32_t chain;			/* next of the bucket */
	uint32_t newer, older;		/* list by use */
};

struct cache {
	struct item *items;
	uint32_t *buckets;
	uint32_t n, size, n_buckets;
	uint32_t newest, oldest;
	uint8_t key[crypto_shorthash_KEYBYTES];
};

struct cache *
cache_new(size_t names)
{
	struct cache *c = calloc(1, sizeof(*c));

	if (c == NULL)
		return NULL;
	c->size = (uint32_t)names;
	for (c->n_buckets = 16; c->n_buckets < names;)
		c->n_buckets *= 2;
	c->items = calloc(names, sizeof(*c->items));
	c->buckets = malloc(c->n_buckets * sizeof(*c->buckets));
	if (c->items == NULL || c->buckets == NULL) {
		cache_free(c);
		return NULL;
	}
	randombytes_buf(c->key, sizeof(c->key));
	cache_flush(c);
	return c;
}

void
cache_free(struct cache *c)
{
	if (c == NULL)
		return;
	free(c->items);
	free(c->buckets);
	free(c);
}

void
cache_flush(struct cache *c)
{
	memset(c->buckets, 0xff, c->n_buckets * sizeof(*c->buckets));
	c->n = 0;
	c->newest = c->oldest = NONE;
}

static uint32_t *
bucket(struct cache *c, const struct host *name)
{
	uint8_t out[crypto_shorthash_BYTES];
	uint32_t h;

	crypto_shorthash(out, (const uint8_t *)name->name, name->len,
	    c->key);
	memcpy(&h, out, sizeof(h));
	return &c->buckets[h & (c->n_buckets - 1)];
}

static uint32_t
find(struct cache *c, const struct host *name)
{
	uint32_t i = *bucket(c, name);

	while (i != NONE && !host_eq(&c->items[i].name, name))
		i = c->items[i].chain;
	return i;
}

static void
list_remove(struct cache *c, uint32_t i)
{
	struct item *it = &c->items[i];

	if (it->newer != NONE)
		c->items[it->newer].older = it->older;
	else
		c->newest = it->older;
	if (it->older != NONE)
		c->items[it->older].newer = it->newer;
	else
		c->oldest = it->newer;
}

static void
list_add(struct cache *c, uint32_t i)
{
	struct item *it = &c->items[i];

	it->newer = NONE;
	it->older = c->newest;
	if (c->newest != NONE)
		c->items[c->newest].newer = i;
	else
		c->oldest = i;
	c->newest = i;
}

bool
cache_get(struct cache *c, const struct host *name, int64_t now_ms,
    struct cache_answer *out)
{
	uint32_t i = find(c, name);

	if (i == NONE || c->items[i].until_ms <= now_ms)
		return false;
	*out = c->items[i].answer;
	out->ttl_s = (uint32_t)((c->items[i].until_ms - now_ms + 999) / 1000);
	list_remove(c, i);
	list_add(c, i);
	return true;
}

static uint32_t
clamp_ttl(const struct cache_answer *a)
{
	uint32_t max = CACHE_TTL_MAX_S;

	if (a->reason == REASON_DNS_NXDOMAIN ||
	    a->reason == REASON_DNS_NODATA)
		max = CACHE_NEGATIVE_MAX_S;
	else if (a->reason != REASON_NONE)
		return CACHE_FAILURE_S;
	if (a->ttl_s < CACHE_TTL_MIN_S)
		return CACHE_TTL_MIN_S;
	return a->ttl_s < max ? a->ttl_s : max;
}

/* An unused item, or the one not asked for the longest. */
static uint32_t
item_new(struct cache *c)
{
	uint32_t i = c->oldest, *at;

	if (c->n < c->size)
		return c->n++;
	list_remove(c, i);
	for (at = bucket(c, &c->items[i].name); *at != i;)
		at = &c->items[*at].chain;
	*at = c->items[i].chain;
	return i;
}

void
cache_put(struct cache *c, const struct host *name,
    const struct cache_answer *answer, int64_t now_ms)
{
	uint32_t i = find(c, name), *head;

	if (i == NONE) {
		i = item_new(c);
		head = bucket(c, name);
		c->items[i].name = *name;
		c->items[i].chain = *head;
		*head = i;
	} else {
		list_remove(c, i);
	}
	list_add(c, i);
	c->items[i].answer = *answer;
	c->items[i].until_ms = now_ms + (int64_t)clamp_ttl(answer) * 1000;
}
