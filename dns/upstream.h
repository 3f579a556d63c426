/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DNS_UPSTREAM_H
#define DNS_UPSTREAM_H

#include <openssl/ssl.h>

#include "dns/channel.h"
#include "policy/server.h"
#include "policy/verdict.h"

/*
 * A question to the pinned servers of one group, and to nobody else: which of
 * them, how often, and whether what comes back is an answer to it.  UDP first
 * (TCP where the answer is cut, or its letters' case is not ours), or TLS.
 *
 * At most UPSTREAM_TRIES_EACH tries for each server and UPSTREAM_TRIES in
 * all; a time-out, an unsound answer and an RCODE other than NOERROR and
 * NXDOMAIN lead to the next one.  A server that failed UPSTREAM_DOWN_AFTER
 * times in a row comes last for UPSTREAM_DOWN_MS: by a time-out while it
 * answered nobody, no connection, or an unsound answer.  An RCODE is none: who
 * may ask for a name whose zone is broken would move the servers of all.
 */
#define UPSTREAM_SERVERS_MAX 8u
#define UPSTREAM_TRIES_EACH 2u
#define UPSTREAM_TRIES 4u
#define UPSTREAM_DOWN_AFTER 3u
#define UPSTREAM_DOWN_MS 10000

struct upstream;

struct upstream_settings {
	struct server servers[UPSTREAM_SERVERS_MAX];
	size_t n_servers;
	unsigned timeout_ms;		/* of one try; default 2000 */
	SSL_CTX *tls;			/* where a server has a tls_name */
};

/* What became of a question. */
struct upstream_answer {
	enum reason reason;	/* NONE: msg is a sound NOERROR or NXDOMAIN;
				 * DNS_TIMEOUT, DNS_SERVFAIL, LIMIT_MEMORY */
	struct span msg;	/* holds during the call only */
	unsigned server;	/* who said so: index into servers */
	unsigned tries;
	uint64_t us;		/* of all tries */
};

typedef void upstream_done(void *arg, const struct upstream_answer *a);

/* Times of answers are counted up to each of these, and beyond. */
#define UPSTREAM_TOOK_MS(X) \
	X(1) X(5) X(10) X(25) X(50) X(100) X(250) X(500) X(1000) X(2500)
#define UPSTREAM_TOOK_N 10u
extern const uint32_t upstream_took_ms[UPSTREAM_TOOK_N];

/* What is known of one server since the start, or since servers changed. */
struct upstream_state {
	struct server is;
	struct endpoint at;
	bool tls, down;
	uint64_t asked;			/* tries: messages to it */
	uint64_t timeouts, failures, other_case;
	uint64_t answered, answered_us;
	uint64_t took[UPSTREAM_TOOK_N + 1];	/* answers, each once */
};

MUST_USE int upstream_new(struct upstream **out, struct event_base *base,
    const struct upstream_settings *s);
/* No done is called any more. */
void upstream_free(struct upstream *u);

/* done is called once, perhaps before this returns. */
void upstream_ask(struct upstream *u, const struct host *name, uint16_t type,
    upstream_done *done, void *arg);

size_t upstream_states(const struct upstream *u,
    struct upstream_state out[static UPSTREAM_SERVERS_MAX]);

#endif
