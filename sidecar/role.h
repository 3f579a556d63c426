/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIDECAR_ROLE_H
#define SIDECAR_ROLE_H

#include <event2/event.h>

#include "ledger-client/count.h"
#include "ledger-client/emit.h"
#include "policy/policy.h"
#include "proxy/limit.h"
#include "sidecar/ipc.h"
#include "sidecar/settings.h"

/*
 * A role is a process that the parent made by executing the program again.
 * What it needs is given to it, descriptor by descriptor, before it runs; a
 * role file is the event loop of one kind of process and nothing else.
 */
enum role_kind {
	ROLE_PARENT = 0, ROLE_COMPILE, ROLE_RESOLVER, ROLE_ENGINE,
	ROLE_RECORDER, ROLE_ADMIN, ROLE_WARDEN,
	ROLE_COUNT,
};

const char *role_word(enum role_kind k);

/* Each producer of records and counts has a column of its own. */
#define COLUMN_PARENT 0u
#define COLUMN_RESOLVER 1u
#define COLUMN_RECORDER 2u
#define COLUMN_ADMIN 3u
#define COLUMN_WARDEN 4u
#define COLUMN_ENGINE 5u	/* and the following LIMIT_ENGINES_MAX */
#define COLUMNS (COLUMN_ENGINE + LIMIT_ENGINES_MAX)

/*
 * Numbers of connections: how often its engine was started again, which one it
 * is, and a count from 1.  An engine has no numbers but these (the recorder
 * looks), and none twice before its 131072nd start.  All that is begun in the
 * first 128 is below 2^53, which every reader of JSON can hold.
 */
#define CONNECTION_ENGINE 40u		/* where the engine's bits begin */
#define CONNECTION_RESTARTS 46u
_Static_assert(1u << (CONNECTION_RESTARTS - CONNECTION_ENGINE) ==
    LIMIT_ENGINES_MAX, "a number for each engine");

/* The first one of a start. */
static inline uint64_t
role_first_connection(unsigned engine, unsigned restarts)
{
	uint64_t part = (uint64_t)restarts <<
	    (CONNECTION_RESTARTS - CONNECTION_ENGINE) | engine;

	return (part << CONNECTION_ENGINE & INT64_MAX) + 1;
}

/* 0, which is none, is everybody's. */
static inline bool
role_owns_connection(unsigned column, uint64_t connection)
{
	return connection == 0 || (column >= COLUMN_ENGINE &&
	    (connection >> CONNECTION_ENGINE) % LIMIT_ENGINES_MAX ==
	    column - COLUMN_ENGINE);
}

/* What a descriptor is for. */
enum give {
	GIVE_NONE = 0,
	GIVE_POLICY,		/* the image; a later one replaces it */
	GIVE_RING,		/* producer: its own; recorder: index=column */
	GIVE_STATE,		/* the recorder's page; others: read-only */
	GIVE_WAKE,		/* eventfd that wakes the recorder */
	GIVE_COUNTS,		/* its own, by column; admin: the others' too,
				 * read-only */
	GIVE_LIMITS,		/* engine: its own and, read-only, each other's,
				 * by engine */
	GIVE_HEALTH,		/* struct health (admin: read-only) */
	GIVE_LISTENER,		/* engine: index in settings.listeners;
				 * admin: its listening socket */
	GIVE_DNS_UDP, GIVE_DNS_TCP,
	GIVE_PINS,		/* from the resolver, then to the engines and
				 * the admin */
	GIVE_FIGURES,		/* the resolver's page (admin: read-only) */
	GIVE_FLUSH,		/* SEQPACKET admin <-> resolver */
	GIVE_ASK,		/* SEQPACKET resolver <-> engine, by engine */
	GIVE_LEDGER_DIR,	/* recorder: where to write; absent: stdout */
	GIVE_LEDGER_FILE,	/* recorder: the open file, where the
				 * directory is the parent's own; again
				 * when it was reopened */
	GIVE_CONFIG_DIR,	/* compile */
	GIVE_KINDS,
};

/* How a descriptor is handed over. */
struct ipc_give {
	uint32_t what;		/* enum give */
	uint32_t index;
	uint32_t column;	/* of the role that gets it */
	uint32_t flags;		/* GIVE_CONFIG_DIR: COMPILE_ORDER_* */
	uint64_t number;	/* engine: first connection id; recorder, with
				 * the ring of a producer that died: above all
				 * of its connection ids */
	char text[256];		/* GIVE_CONFIG_DIR: file name */
};

/* What came in one hand-over. */
struct gift {
	enum give what;
	unsigned index;
	int fd;			/* -1: taken */
};
#define GIFTS_MAX 256u

struct role;

/* What a kind of role does.  Calls come from the event loop, but for start;
 * all others may be NULL. */
struct role_ops {
	/* Before confinement is complete (files can be opened, nothing from
	 * outside was read): take the gifts, make the parts, add events.
	 * 0 or -errno: then the process ends with a log line. */
	int (*start)(struct role *r);
	/* A new policy is in r->policy; the old one is freed afterwards. */
	void (*policy)(struct role *r, const struct policy *old);
	/* A descriptor that came later; owned by the callee. */
	void (*gift)(struct role *r, enum give what, unsigned index, int fd);
	/* IPC_DRAIN, IPC_STOP or IPC_REOPEN. */
	void (*order)(struct role *r, enum ipc_type order);
	/* After the event loop, before the process ends. */
	void (*stop)(struct role *r);
};

struct role {
	enum role_kind kind;
	unsigned column;
	unsigned index;			/* engine: its number from 0 */
	uint64_t number;		/* engine: first connection id;
					 * recorder: start of the daemon */
	int parent;			/* SEQPACKET, non-blocking */
	struct event_base *base;
	struct event *from_parent;
	struct event *beat;		/* says that the loop turns */
	const struct role_ops *ops;
	struct settings settings;	/* copied from the policy image */
	struct policy *policy;		/* NULL until given */
	void *image;
	size_t image_bytes;
	struct emit *emit;		/* NULL where there is no ring */
	struct counts *counts;
	struct gift gifts[GIFTS_MAX];
	size_t n_gifts;
	bool failed;
	void *self;			/* the role's own state */
};

/* The first gift of that kind and index: its descriptor, the caller's from
 * here on; -1 when there is none. */
int role_take(struct role *r, enum give what, unsigned index);

/* Hand a descriptor to the parent (GIVE_PINS). */
MUST_USE int role_send_fd(struct role *r, enum give what, int fd);
MUST_USE int role_send(struct role *r, enum ipc_type type);

/* Leave the event loop; the process then ends with status 0. */
void role_end(struct role *r);

/* Leave it with status 1: a role that cannot take what it is given is
 * started anew by the parent, with all of it. */
void role_fail(struct role *r);

extern const struct role_ops resolver_ops, engine_ops, recorder_ops,
    admin_ops, warden_ops;

#define ROLE_PARENT_FD 3
#define LEDGER_FILE "records.jsonl"	/* beneath ledger.dir */

/* The internal entry "penstock role NAME": descriptor 3 is the parent. */
int role_main(int argc, char **argv);

#endif
