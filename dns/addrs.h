/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DNS_ADDRS_H
#define DNS_ADDRS_H

#include "dns/resolve.h"

/*
 * The addresses of a name, both families as one answer: what an engine asks
 * for that has to dial.
 */
#define ADDRS_MAX ANSWER_ADDRS_MAX

struct addrs {
	enum reason reason;	/* NONE: addresses follow */
	uint32_t ttl_s;
	uint32_t n;
	struct addr addrs[ADDRS_MAX];	/* A first, then AAAA */
};

/* Those of an answer of one family. */
void addrs_of(struct addrs *out, const struct resolve_answer *a);

typedef void addrs_done(void *arg, const struct addrs *a);
struct addrs_call;

/* False when one of the families must be asked for. */
MUST_USE bool addrs_cached(struct resolve *r, const struct host *name,
    struct addrs *out);
/* As resolve_start. */
MUST_USE struct addrs_call *addrs_start(struct resolve *r,
    struct span cell, const struct host *name, addrs_done *done, void *arg,
    enum reason *why);
void addrs_cancel(struct addrs_call *c);

#endif
