/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DNS_ASK_H
#define DNS_ASK_H

#include <event2/event.h>

#include "dns/pin.h"
#include "policy/verdict.h"

/*
 * The question that an engine puts to the resolver when no pin answers: a
 * fixed-form message over a SOCK_SEQPACKET pair.  Engines never resolve on
 * their own.
 */
#define ASK_PENDING_MAX 4096u	/* open questions of one engine */
#define ASK_TIMEOUT_MS 10000

struct ask_question {
	uint64_t id;
	uint32_t cell;
	uint32_t zero;
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
 * again. */
void ask_reconnect(struct ask *a, int fd);
void ask_free(struct ask *a);

/*
 * Put a question; done is called once, never before this returns, with
 * the answer, with REASON_DNS_TIMEOUT, or with what failed when it was put
 * again.
 * NULL: *why is LIMIT_TOTAL (the table or the socket is full), LIMIT_MEMORY,
 * or RESOLVER_UNAVAILABLE when the resolver is away.
 */
MUST_USE struct ask_call *ask_start(struct ask *a, uint32_t cell,
    const struct host *name, ask_done *done, void *arg, enum reason *why);
/* done will not be called. */
void ask_cancel(struct ask_call *c);

#endif
