/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DNS_FRONT_H
#define DNS_FRONT_H

#include <event2/event.h>

#include "dns/ask.h"
#include "dns/resolve.h"
#include "dns/tunnel.h"
#include "ledger-client/count.h"
#include "ledger-client/emit.h"
#include "policy/decide.h"

/*
 * The resolver that the workload sees: DNS over UDP and TCP (RFC 1035, 7766)
 * on sockets that the parent made.  Policy comes before lookup; answers come
 * from the same cache that engines are answered from, and are pinned before
 * they leave.
 */
struct front;

/* What a name that the policy denies is told. */
enum front_denied { FRONT_NXDOMAIN = 0, FRONT_REFUSED, FRONT_SINKHOLE };

#define FRONT_SEARCH_MAX 8u

struct front_settings {
	bool ipv6_drop;		/* AAAA is answered without data */
	enum front_denied denied;
	struct addr sinkhole[2];	/* IPv4, IPv6; ::: none */
	struct host search[FRONT_SEARCH_MAX];	/* the suffixes that clients
						 * try */
	size_t n_search;
	struct tunnel_settings tunnel;
	bool tunnel_deny;	/* what looks like a tunnel is refused, not
				 * only recorded */
	bool svcb_strip;	/* SVCB and HTTPS without ech, not without
				 * data */
	unsigned tcp_max;	/* connections, default 256 */
	unsigned tcp_idle_ms;	/* default 10000 */
	unsigned pending_max;	/* open questions, default 4096 */
	unsigned client_max;	/* of them for one client, and of the TCP
				 * connections in the same part; default a
				 * quarter.  Cells share them as
				 * share_split says. */
	unsigned keep_min_ms;	/* between two questions of our own for one
				 * name; default KEEP_MIN_MS */
	unsigned policy_wait_ms;	/* an engine's question for a policy
				 * that is yet to come; default
				 * ASK_TIMEOUT_MS */
};

/* Everything is borrowed and outlives the front. */
struct front_parts {
	struct event_base *base;
	struct resolve *resolve;
	struct pins *pins;
	struct emit *emit;
	struct counts *counts;
	const char *listener;	/* its name, for the cell */
};

MUST_USE int front_new(struct front **out, const struct front_settings *s,
    const struct front_parts *parts);
void front_free(struct front *f);
/* Add a bound UDP or a listening TCP socket (owned from here on). */
MUST_USE int front_add_udp(struct front *f, int fd);
MUST_USE int front_add_tcp(struct front *f, int fd);
/* What may change while it runs: all but limits and times. */
void front_configure(struct front *f, const struct front_settings *s);
/* From here on this policy judges; NULL: everything is refused.  Questions
 * that wait are judged again. */
void front_set_policy(struct front *f, const struct policy *p);

/* What these names have is from servers that are asked for them no more: their
 * pins end, and those of them that stay pinned are asked for anew.  Before
 * resolve_reconfigure. */
void front_forsake(struct front *f, pin_fits *fits, void *arg);

/* How many domains look like a tunnel now. */
unsigned front_suspected(const struct front *f);

/* An engine's SEQPACKET: questions are judged, resolved, pinned, answered.
 * Owned from here on; closes itself at EOF. */
MUST_USE int front_add_engine(struct front *f, int fd);

#endif
