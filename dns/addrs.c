/* SPDX-License-Identifier: Apache-2.0 */
#include "dns/addrs.h"

#include <stdlib.h>

#define FAMILIES 2u

static const uint16_t types[FAMILIES] = { TYPE_A, TYPE_AAAA };

struct addrs_call {
	struct resolve_call *calls[FAMILIES];	/* NULL: answered */
	struct addrs got[FAMILIES];
	addrs_done *done;
	void *arg;
};

void
addrs_of(struct addrs *out, const struct resolve_answer *a)
{
	out->reason = a->records->reason;
	out->ttl_s = a->ttl_s;
	out->n = 0;
	if (a->records->type != TYPE_A && a->records->type != TYPE_AAAA)
		return;
	for (unsigned i = 0; i < a->records->n_records && i < ADDRS_MAX; i++)
		out->addrs[out->n++] = answer_addr(a->records, i);
}

/* How much a failure says against what the other family says. */
static int
weight(enum reason why)
{
	return why == REASON_DNS_NODATA ? 0 :
	    why == REASON_DNS_NXDOMAIN ? 1 : 2;
}

static void
append(struct addrs *to, const struct addrs *from)
{
	if (from->ttl_s < to->ttl_s)
		to->ttl_s = from->ttl_s;
	for (uint32_t i = 0; i < from->n && to->n < ADDRS_MAX; i++)
		to->addrs[to->n++] = from->addrs[i];
}

/* Addresses of one family outweigh a failure of the other, but are told to
 * last no longer than that is kept; of two failures the one that is no
 * absence counts. */
static void
merge(const struct addrs *a, const struct addrs *b, struct addrs *out)
{
	const struct addrs *good = a->reason == REASON_NONE ? a : b;
	const struct addrs *bad = good == a ? b : a;

	*out = *good;
	if (bad->reason == REASON_NONE)
		append(out, bad);
	else if (good->reason != REASON_NONE &&
	    weight(a->reason) >= weight(b->reason))
		*out = *a;
	else if (good->reason == REASON_NONE && weight(bad->reason) == 2 &&
	    out->ttl_s > CACHE_FAILURE_S)
		out->ttl_s = CACHE_FAILURE_S;
}

bool
addrs_cached(struct resolve *r, const struct host *name, struct addrs *out)
{
	struct resolve_answer a;
	struct addrs got[FAMILIES];

	for (unsigned i = 0; i < FAMILIES; i++) {
		if (!resolve_cached(r, name, types[i], &a))
			return false;
		addrs_of(&got[i], &a);
	}
	merge(&got[0], &got[1], out);
	return true;
}

static void
on_answer(struct addrs_call *c, unsigned family,
    const struct resolve_answer *a)
{
	struct addrs both;

	c->calls[family] = NULL;
	addrs_of(&c->got[family], a);
	if (c->calls[0] != NULL || c->calls[1] != NULL)
		return;
	merge(&c->got[0], &c->got[1], &both);
	c->done(c->arg, &both);
	free(c);
}

static void
on_a(void *arg, const struct resolve_answer *a)
{
	on_answer(arg, 0, a);
}

static void
on_aaaa(void *arg, const struct resolve_answer *a)
{
	on_answer(arg, 1, a);
}

struct addrs_call *
addrs_start(struct resolve *r, struct span cell, const struct host *name,
    addrs_done *done, void *arg, enum reason *why)
{
	static resolve_done *const on[FAMILIES] = { on_a, on_aaaa };
	struct addrs_call *c = calloc(1, sizeof(*c));

	*why = REASON_LIMIT_MEMORY;
	if (c == NULL)
		return NULL;
	c->done = done;
	c->arg = arg;
	for (unsigned i = 0; i < FAMILIES; i++) {
		c->calls[i] = resolve_start(r, cell, name, types[i], on[i],
		    c, why);
		if (c->calls[i] == NULL) {
			addrs_cancel(c);
			return NULL;
		}
	}
	return c;
}

void
addrs_cancel(struct addrs_call *c)
{
	for (unsigned i = 0; i < FAMILIES; i++)
		if (c->calls[i] != NULL)
			resolve_cancel(c->calls[i]);
	free(c);
}
