/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/keep.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "dns/share.h"

struct kept {
	struct keep_name is;
	int64_t due_ms;
	unsigned tries;		/* since the last answer */
};

struct keep {
	struct kept *names;
	uint32_t keys[KEEP_MAX];	/* a look at most of names is spared */
	size_t n, room;
	unsigned min_ms;
	struct share *cells;
};

struct keep *
keep_new(unsigned min_ms)
{
	struct keep *k = calloc(1, sizeof(*k));

	if (k == NULL)
		return NULL;
	k->min_ms = min_ms > 0 ? min_ms : KEEP_MIN_MS;
	k->cells = share_new(0);
	if (k->cells == NULL) {
		free(k);
		return NULL;
	}
	share_cells(k->cells, KEEP_MAX, 1);
	return k;
}

void
keep_free(struct keep *k)
{
	if (k == NULL)
		return;
	share_free(k->cells);
	free(k->names);
	free(k);
}

size_t
keep_count(const struct keep *k)
{
	return k->n;
}

/* ---- places ---- */

/* Only rules name what is kept, so nobody chooses what falls together. */
static uint32_t
key_of(const struct keep_name *n)
{
	uint32_t key = 2166136261u;

	for (const char *s = n->cell; *s != '\0'; s++)
		key = (key ^ (uint8_t)*s) * 16777619u;
	for (size_t i = 0; i < n->name.len; i++)
		key = (key ^ (uint8_t)n->name.name[i]) * 16777619u;
	return key;
}

static bool
same(const struct keep_name *a, const struct keep_name *b)
{
	return host_eq(&a->name, &b->name) && strcmp(a->cell, b->cell) == 0 &&
	    strcmp(a->run, b->run) == 0;
}

static struct kept *
find(struct keep *k, const struct keep_name *n, uint32_t key)
{
	for (size_t i = 0; i < k->n; i++)
		if (k->keys[i] == key && same(&k->names[i].is, n))
			return &k->names[i];
	return NULL;
}

static bool
grow(struct keep *k)
{
	size_t room = k->room > 0 ? 2 * k->room : 16;
	struct kept *more;

	if (k->n < k->room)
		return true;
	if (k->n == KEEP_MAX)
		return false;
	more = reallocarray(k->names, room, sizeof(*more));
	if (more == NULL)
		return false;
	k->names = more;
	k->room = room;
	return true;
}

static struct kept *
add(struct keep *k, const struct keep_name *n, uint32_t key)
{
	struct kept *to;

	if (!grow(k) ||
	    share_take_cell(k->cells, span_str(n->cell)) != REASON_NONE)
		return NULL;
	k->keys[k->n] = key;
	to = &k->names[k->n++];
	*to = (struct kept){ .is = *n, .due_ms = INT64_MAX };
	return to;
}

static void
drop(struct keep *k, size_t i)
{
	share_give_cell(k->cells, span_str(k->names[i].is.cell));
	k->n--;
	k->names[i] = k->names[k->n];
	k->keys[i] = k->keys[k->n];
}

void
keep_policy(struct keep *k, uint32_t cells,
    bool (*stays)(void *arg, const struct keep_name *n), void *arg)
{
	for (size_t i = 0; i < k->n;)
		if (stays(arg, &k->names[i].is))
			i++;
		else
			drop(k, i);
	share_cells(k->cells, KEEP_MAX, cells);
}

/* ---- times ---- */

/* So that names that were learnt at once are not asked for at once. */
static int64_t
later(int64_t ms)
{
	uint32_t part = ms / 8 < KEEP_JITTER_MAX_MS ? (uint32_t)(ms / 8) :
	    KEEP_JITTER_MAX_MS;

	return ms + randombytes_uniform(part + 1);
}

bool
keep_note(struct keep *k, const struct pin_cell *cell,
    const struct host *name, uint32_t ttl_s, bool whole, int64_t now_ms)
{
	int64_t ms = (int64_t)ttl_s * 1000;
	struct keep_name n = { .name = *name };
	struct kept *to;
	uint32_t key;

	if (cell->id.len >= sizeof(n.cell) || cell->run.len >= sizeof(n.run))
		return false;
	memcpy(n.cell, cell->id.data, cell->id.len);
	if (cell->run.len > 0)
		memcpy(n.run, cell->run.data, cell->run.len);
	key = key_of(&n);
	to = find(k, &n, key);
	if (to == NULL)
		to = add(k, &n, key);
	if (to == NULL)
		return false;
	ms = now_ms + later(ms > k->min_ms ? ms : k->min_ms);
	if (whole || ms < to->due_ms)
		to->due_ms = ms;
	if (whole)
		to->tries = 0;
	return true;
}

void
keep_hurry(struct keep *k, pin_fits *fits, void *arg, int64_t now_ms)
{
	for (size_t i = 0; i < k->n; i++)
		if (k->names[i].due_ms > now_ms &&
		    fits(arg, &k->names[i].is.name))
			k->names[i].due_ms = now_ms;
}

bool
keep_due(struct keep *k, int64_t now_ms, struct keep_name *out)
{
	struct kept *first = NULL;
	int64_t ms = k->min_ms;

	for (size_t i = 0; i < k->n; i++)
		if (first == NULL || k->names[i].due_ms < first->due_ms)
			first = &k->names[i];
	if (first == NULL || first->due_ms > now_ms)
		return false;
	for (unsigned i = 0; i < first->tries && ms < KEEP_RETRY_MAX_MS; i++)
		ms *= 2;
	first->tries++;
	first->due_ms = now_ms +
	    later(ms < KEEP_RETRY_MAX_MS ? ms : KEEP_RETRY_MAX_MS);
	*out = first->is;
	return true;
}
