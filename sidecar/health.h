/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIDECAR_HEALTH_H
#define SIDECAR_HEALTH_H

#include "policy/policy.h"

/*
 * What the parent knows of the daemon, on one shared page: written by the
 * parent, read by the role admin.
 */
#define HEALTH_STALE_MS 3000	/* an older beat: the parent hangs */

struct health {
	uint64_t generation;
	uint8_t digest[POLICY_DIGEST_BYTES];
	int64_t beat_ms;		/* CLOCK_MONOTONIC, each second */
	int64_t started_s;		/* epoch */
	uint32_t engines, engines_ready;
	uint32_t restarts;		/* of all roles */
	bool serving;			/* all roles came up once */
	bool recorder_ready, resolver_ready;
	bool enforcing;
	bool stale;			/* a newer policy was refused */
	bool draining;
};

struct health_page;

/* memfd or -errno (parent). */
MUST_USE int health_create(void);
/* Map it.  0 or -errno. */
MUST_USE int health_open(struct health_page **out, int fd, bool writable);
void health_close(struct health_page *p);
void health_write(struct health_page *p, const struct health *h);
/* A consistent copy; false when the writer died in mid-write. */
MUST_USE bool health_read(const struct health_page *p, struct health *out);

#endif
