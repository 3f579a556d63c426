/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIDECAR_PARENT_PART_H
#define SIDECAR_PARENT_PART_H

#include <sys/resource.h>
#include <sys/types.h>

#include "sidecar/change.h"
#include "sidecar/parent.h"
#include "sidecar/role.h"

/* The state of the parent, for parent.c and its parts (shared, told, child,
 * reload) only. */

/* In the order of life. */
enum phase {
	PHASE_COMPILE = 0,	/* the first policy is being compiled */
	PHASE_RECORDER, PHASE_RESOLVER, PHASE_ENGINES,
	PHASE_SERVING,
	PHASE_DRAIN,		/* engines finish what is open */
	PHASE_CLOSE,		/* the others end, the recorder last */
	PHASE_FLUSH,		/* only the recorder is left */
};

struct child {
	struct parent *parent;
	enum role_kind kind;
	unsigned index, column;
	pid_t pid;			/* 0: not running */
	int fd;
	bool ready;
	bool wrote;			/* recorder: its first record is out */
	bool served;			/* it was ready once */
	struct event *readable;
	struct event *again;		/* timer of the next start */
	struct event *late;		/* it should be ready by then */
	int64_t started_ms;
	unsigned unsteady;		/* starts in a row that did not last */
	unsigned restarts;
	uint64_t beats;			/* of its loop, as seen last */
	unsigned quiet;			/* how often in a row as before */
};

#define CHILD_RECORDER 0u
#define CHILD_RESOLVER 1u
#define CHILD_ADMIN 2u
#define CHILD_WARDEN 3u
#define CHILD_ENGINE 4u
#define CHILDREN_MAX (CHILD_ENGINE + LIMIT_ENGINES_MAX)

struct parent {
	struct parent_options o;
	struct event_base *base;
	enum phase phase;
	rlim_t nofile;
	int status;			/* to exit with */

	struct settings settings;
	struct policy *policy;
	struct change_count change;	/* of the last reload */
	int64_t started_s;		/* epoch */
	void *image;
	size_t image_bytes;
	int image_fd;
	uint64_t generation;		/* in use */
	uint64_t last_generation;	/* last number given out */
	bool stale;			/* a newer policy was refused */
	char waits_for_start[SETTINGS_KEYS_BYTES];	/* keys that changed
							 * and are as before */
	int config_dir;
	char config_name[256];

	struct child children[CHILDREN_MAX];
	unsigned n_children;		/* without engines: CHILD_ENGINE */
	unsigned n_engines;

	struct child compile;		/* one shot */
	struct event *compile_limit;
	bool reload_again;
	bool ready_due;			/* the service manager waits for it */
	bool ready_told;		/* it was told so once */
	const char *starved;		/* why its watchdog is not fed */

	int own_fd;			/* hears of addresses and routes */
	struct event *own_heard, *own_look;
	int64_t own_ms;			/* when they were looked at */
	int own_err;			/* 0, or what that gave */

	bool watched;			/* a warden compares the rules */
	bool rules_ok, rules_told;	/* its last word; what was said */
	int64_t rules_ms;		/* when; 0: it has no word */
	char rules_why[IPC_WHY_BYTES];

	/* shared with the roles */
	int rings[COLUMNS], counts_fds[COLUMNS];
	int counts_ro[COLUMNS];		/* for the admin, which only reads */
	int limits_fds[LIMIT_ENGINES_MAX];
	int limits_ro[LIMIT_ENGINES_MAX];	/* for the other engines */
	int state, wake, health_fd, pins_fd;
	int figures_fd, figures_ro;	/* the resolver's */
	int state_ro, health_ro;	/* for whoever only reads them */
	int listeners[SETTINGS_LISTENERS_MAX];
	int dns_udp[4], dns_tcp[4];
	int admin_fd, ledger_dir;
	int ledger_lock;		/* held for life, given to nobody */
	bool ledger_own;		/* the directory is this process's */
	struct counts *counts;
	struct limit *limits;
	struct emit *emit;
	struct health_page *health;
	struct event *reset[SETTINGS_LISTENERS_MAX];

	struct event *signals[6];
	bool flushed;			/* the recorder ended in order */
	bool given_up;			/* it had its time to */
	struct event *last_call;	/* when draining has to be over */
};

/* After so many looks, one a second, without a beat. */
#define CHILD_QUIET 3u			/* it is not ready */
#define CHILD_HANGS 10u			/* and is killed */

/* Ready, and its event loop turns. */
static inline bool
child_turns(const struct child *c)
{
	return c->ready && c->quiet < CHILD_QUIET;
}

static inline unsigned
parent_engines_ready(const struct parent *p)
{
	unsigned n = 0;

	for (unsigned i = 0; i < p->n_engines; i++)
		n += child_turns(&p->children[CHILD_ENGINE + i]);
	return n;
}

/*
 * Each of these calls those before it; back it only says what came to pass:
 * reload_compiled, parent_advance, parent_fail.
 */

/* ---- shared.c: memory and sockets ---- */
/* 0 or -errno; -EBUSY when another penstock writes the ledger. */
MUST_USE int shared_make(struct parent *p);
/* Accept and reset on the listeners while no engine turns. */
void shared_guard(struct parent *p);
/* Those of engines and resolver; they have their own. */
void shared_close_listeners(struct parent *p);
/* Open the file of records in a directory of our own; fd or -errno. */
MUST_USE int shared_ledger_file(const struct parent *p);

/* ---- told.c: what is known outside ---- */
/* The lab prefixes of a policy, separated by commas; none: empty. */
void told_lab(const struct policy *p, char *out, size_t size);
/* Who is asked for names, and who said so: "A, B of /etc/resolv.conf". */
void told_resolvers(const struct parent *p, char *out, size_t size);
/* Into the ledger, once there is one. */
void told_note(struct parent *p, enum record_kind kind, const char *fmt,
    ...) __attribute__((format(printf, 3, 4)));
/* A word of the warden's, or its end (NULL). */
void told_rules(struct parent *p, const struct ipc_rules *r);
/* Why it is not said to enforce; UNENFORCED_NOTHING: it does. */
enum settings_unenforced told_unenforced(const struct parent *p);
/* The page that the role admin reads, and READY to the service manager. */
void told_health(struct parent *p);
/* The service manager's watchdog, each second. */
void told_alive(struct parent *p);

/* ---- child.c: the roles ---- */
/* 0, or -errno when no process was started; one that was and cannot be given
 * what it needs is killed, and child_ended is told. */
MUST_USE int child_start(struct child *c);
void child_stop_event(struct child *c);
/* It ended: record, zero its columns, start again while serving; one that
 * does not stay ends the daemon. */
void child_ended(struct child *c, int status);
/* Who hangs, each second: it counts looks and not time, so that a parent that
 * stood still takes nobody for hanging. */
void child_look(struct parent *p);
/* A message or a descriptor to a running child; one that does not read is
 * killed. */
void child_send(struct child *c, enum ipc_type type);
void child_give(struct child *c, enum give what, unsigned index, int fd);
/* The recorder's file, opened anew. */
void child_give_ledger(struct child *c);

/* ---- reload.c: compiling and adopting policies ---- */
/* 0, or -errno when nothing was started; what was started and cannot go on
 * ends without an answer, and is refused then. */
MUST_USE int reload_start(struct parent *p);
/* While serving: what cannot be started is refused. */
void reload_now(struct parent *p);
void reload_compiled(struct parent *p, struct ipc_message *m);
void reload_ended(struct parent *p);

/* Hear of addresses and gateways of this host that come and go, from now on,
 * and take them into the policy in use; 0 or -errno. */
MUST_USE int reload_watch(struct parent *p);
/* Are they those of the policy in use?  While serving. */
void reload_own(struct parent *p);

/* ---- parent.c: the phases ---- */
/* Something changed: go on to the next phase when this one is complete. */
void parent_advance(struct parent *p);
/* End the daemon with this status, at once and in order. */
void parent_fail(struct parent *p, int status);

#endif
