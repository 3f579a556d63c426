/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIDECAR_FIGURES_H
#define SIDECAR_FIGURES_H

#include "dns/resolve.h"

/*
 * What the resolver knows of its servers, cache, pins and tunnels, on one
 * shared page: written by it each FIGURES_MS, read by the role admin.  The
 * numbers of servers begin anew with the resolver, and when servers change.
 */
#define FIGURES_MS 1000
#define FIGURES_STALE_MS 5000	/* an older one is of a resolver that is away
				 * or hangs */
#define FIGURES_SERVERS_MAX (RESOLVE_ZONES_MAX * UPSTREAM_SERVERS_MAX)

struct figures_server {
	struct host zone;		/* len 0: every name */
	struct upstream_state is;
};

struct figures {
	int64_t at_ms;			/* CLOCK_MONOTONIC; 0: never */
	uint64_t cache_answers, cache_bytes, cache_limit;
	uint32_t pins_used, pins_all;	/* places */
	uint32_t suspected;		/* domains, now */
	uint32_t n_servers;
	struct figures_server servers[FIGURES_SERVERS_MAX];
};

struct figures_page;

/* memfd or -errno (parent). */
MUST_USE int figures_create(void);
/* Map it.  0 or -errno. */
MUST_USE int figures_open(struct figures_page **out, int fd, bool writable);
void figures_close(struct figures_page *p);
/* The writer's: what is set between the two is seen at once. */
struct figures *figures_begin(struct figures_page *p);
void figures_end(struct figures_page *p);
/* A consistent copy, of which no number leads out of bounds; false when there
 * is none, or the writer died in mid-write. */
MUST_USE bool figures_read(const struct figures_page *p, struct figures *out);

#endif
