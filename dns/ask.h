/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DNS_ASK_H
#define DNS_ASK_H

#include <event2/event.h>

#include "dns/pin.h"
#include "policy/policy.h"

/*
 * The question that an engine puts to the resolver when no pin answers: a
 * fixed-form message over a SOCK_SEQPACKET pair.  Engines never resolve on
 * their own.
 */
#define ASK_PENDING_MAX 4096u	/* open questions of one engine */
#define ASK_TIMEOUT_MS 10000

struct ask_question {
	uint64_t id;
	uint64_t generation;	/* of the policy that it is asked by */
	char cell[POLICY_ID_BYTES];	/* its id: a number is that of one
					 * policy, and the resolver may have
					 * another one */
	char run[POLICY_ID_BYTES];	/* its life: see pin_cell */
	struct host name;
};

struct ask_answer {
	uint64_t id;
	uint32_t reason;	/* REASON_NONE: addrs hold */
	uint32_t n_addrs;
	uint32_t ttl_s;
	struct addr addrs[PIN_ADDRS_MAX];
};

/* ---- engine's side ---- */
struct ask;
struct ask_call;	/* one open question */

typedef void ask_done(void *arg, const struct ask_answer *answer);

/* fd is owned from here on.  0 or -ENOMEM. */
MUST_USE int ask_new(struct ask **out, struct event_base *base, int fd);
/* The resolver was started anew: use this socket; open questions are put
 * again.  -ENOMEM: it cannot be used, and nothing can be asked. */
MUST_USE int ask_reconnect(struct ask *a, int fd);
void ask_free(struct ask *a);

/*
 * Put a question; done is called once, never before this returns, with
 * the answer, with REASON_DNS_TIMEOUT, or with what failed when it was put
 * again.
 * NULL: *why is LIMIT_TOTAL (the table or the socket is full), LIMIT_MEMORY,
 * RESOLVER_UNAVAILABLE when the resolver is away, POLICY_UNAVAILABLE or
 * UNKNOWN_CELL.
 *
 * The resolver answers by its own policy when that is newer than the
 * question's, and waits for the one of the question when it is older, for
 * ASK_TIMEOUT_MS at most.
 */
MUST_USE struct ask_call *ask_start(struct ask *a,
    const struct policy *p, uint32_t cell, const struct host *name,
    ask_done *done, void *arg, enum reason *why);
/* done will not be called. */
void ask_cancel(struct ask_call *c);

#endif
