/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIDECAR_HEALTH_H
#define SIDECAR_HEALTH_H

#include "policy/policy.h"
#include "sidecar/settings.h"

/*
 * What the parent knows of the daemon, on one shared page: written by the
 * parent, read by the role admin.
 */
#define HEALTH_STALE_MS 3000	/* an older beat: the parent hangs */

/* A process of penstock's. */
#define HEALTH_ROLES_MAX 72u
struct health_role {
	uint32_t kind;			/* enum role_kind */
	uint32_t index;			/* of an engine */
	int32_t pid;			/* 0: it is away */
	uint32_t restarts;
	bool ready;
};

struct health {
	uint64_t generation;
	uint8_t digest[POLICY_DIGEST_BYTES];
	int64_t beat_ms;		/* CLOCK_MONOTONIC, each second */
	int64_t started_s;		/* epoch */
	uint32_t engines, engines_ready;
	uint32_t restarts;		/* of all roles */
	bool serving;			/* all roles came up once */
	bool recorder_ready;		/* and its first record is out */
	bool resolver_ready;
	bool rules;			/* as they should be, or none needed */
	uint32_t unenforced;		/* enum settings_unenforced */
	bool stale;			/* a newer policy was refused */
	char waits_for_start[SETTINGS_KEYS_BYTES];	/* keys that changed */
	bool draining;
	uint32_t n_roles;
	struct health_role roles[HEALTH_ROLES_MAX];
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
