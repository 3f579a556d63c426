/* SPDX-License-Identifier: Apache-2.0 */
#ifndef POLICY_DECIDE_H
#define POLICY_DECIDE_H

#include "policy/policy.h"

/*
 * The questions that the program asks a policy.  There is one algorithm for
 * every path (transparent, CONNECT, plain HTTP, DNS) and for explain, which
 * passes a trace.  All functions are pure: same policy, same question, same
 * second, same answer.
 */

struct decision {
	enum verdict verdict;	/* zero: deny */
	enum verdict would;	/* under enforcement; differs from verdict
				 * only while something reports */
	enum reason reason;	/* why; when would is deny, why enforcement
				 * would have denied */
	uint32_t rule;		/* RULE_NONE when none decided */
	bool opaque;		/* protocol: tcp: dial without a look */
	bool allow_private;	/* the rule opens private addresses */
	bool kept;		/* of a question: protocol: tcp opens one of
				 * its ports */
	bool original_only;	/* only the original destination may be
				 * dialled: an address rule allowed it */
};

/* Explain collects what was looked at, a line at a time; NULL elsewhere. */
struct decide_trace {
	void (*step)(void *arg, const char *line);
	void *arg;
};

struct decide_at {
	const struct policy *policy;
	uint32_t cell;
	int64_t now_s;			/* epoch seconds: until, report_until */
	const struct decide_trace *trace;
};

/*
 * A named flow: the first hostname rule that matches name and port decides;
 * when none does and `original` (NULL when there is none) lies in an allowed
 * cidr:port, that address alone is allowed.  The addresses to be dialled are
 * judged one by one by decide_addr afterwards.
 */
MUST_USE struct decision decide_name(const struct decide_at *at,
    const struct host *name, uint16_t port, const struct endpoint *original);

/*
 * One address about to be dialled for a flow that decide_name allowed: any
 * cidr deny, wherever it stands, the special-use classes, private addresses
 * without permission, our own listeners and the host's gateways refuse.  Returns the flow's
 * decision, or a denial.
 *
 * Port 0 stands for any port, as in an answer to a question: only what is
 * closed on every port refuses, and each dial is judged again.
 */
MUST_USE struct decision decide_addr(const struct decide_at *at,
    const struct decision *flow, const struct endpoint *to);

/*
 * A nameless flow to `to` (no SNI, address literal, opaque protocol): rules
 * in order.  `names` are the live names pinned on that address; a hostname
 * allow matches only when there is one and all of them are allowed on this
 * port.  Includes the judgement of decide_addr.  original_only is true when
 * an address rule allowed it.  Give no names when names must not open it
 * (no_sni: deny).
 */
MUST_USE struct decision decide_nameless(const struct decide_at *at,
    const struct endpoint *to, const struct host *const *names,
    size_t n_names);

/*
 * A flow without a name that no rule lets pass is refused for what its client
 * did not show: `why`.  What a rule or the address itself forbids is told as
 * that, and an allow stays one.
 */
MUST_USE struct decision decide_told_as(struct decision d, enum reason why);

/*
 * What speaks on this port by custom and shows no name, as SSH on 22; NULL
 * where that is not known.
 */
const char *decide_nameless_protocol(uint16_t port);

/*
 * What a client of that protocol meets on a port where decide_name gave
 * `flow`, with `to` as its original destination (NULL: any): no rule for a name
 * carries its bytes but one with protocol: tcp, and an address rule does.
 */
MUST_USE struct decision decide_bytes(const struct decide_at *at,
    const struct decision *flow, const struct endpoint *to);

/* Are the client's bytes read first on this port, whatever the address?  True
 * where a rule for names opens it; then decide_opaque says no. */
MUST_USE bool decide_reads_first(const struct decide_at *at, uint16_t port);

/*
 * A new TCP connection before any byte was read: does a protocol: tcp rule
 * (or a cidr rule on a port where the server speaks first) cover this
 * destination, so that it is to be dialled without waiting?  True with the
 * decision filled in, which may be a denial: on a port that only such rules
 * open the client may wait for the server for ever, so it is refused at
 * once.  False: read the client's first bytes.
 */
MUST_USE bool decide_opaque(const struct decide_at *at,
    const struct endpoint *to, const struct host *const *names,
    size_t n_names, struct decision *out);

/*
 * True when some rule may allow a flow to this port, whatever name it shows
 * (or to this very address, without one).  False: nothing that the client can
 * say will be allowed by a rule, so that nobody has to wait long for it; a
 * report may let it pass all the same.
 */
MUST_USE bool decide_port_open(const struct decide_at *at,
    const struct endpoint *to);

/*
 * A DNS question: true when some rule could allow this name on some port, so
 * that it may be asked upstream.  `why` (never NULL) gets the reason and the
 * rule of a refusal.
 */
MUST_USE bool decide_question(const struct decide_at *at,
    const struct host *name, struct decision *why);

/*
 * Of a name that decide_question allows: the types that rules open beside
 * addresses, as a set (policy/qtype).  The first rule that speaks of the type
 * decides; a deny speaks of all when it covers every port.
 */
uint32_t decide_question_types(const struct decide_at *at,
    const struct host *name);

/* True when an allowed name lies under this one: its NXDOMAIN would hide
 * the allowed one from a cache, so the answer is NODATA. */
MUST_USE bool decide_question_hides(const struct decide_at *at,
    const struct host *name);

/* What the policy says of hellos without a name, and with ECH. */
bool decide_no_sni_pinned(const struct decide_at *at);
bool decide_ech_denied(const struct decide_at *at);

/*
 * For explain: the rule that comes nearest to allowing this (same name on
 * another port, a parent name's wildcard, ...); RULE_NONE when none does.
 */
uint32_t decide_nearest(const struct decide_at *at, const struct host *name);

/* Of an address: the rule that opens it on another port, or else a port of
 * its on the addresses nearest to it (of the same /8, in IPv6 /16). */
uint32_t decide_nearest_addr(const struct decide_at *at,
    const struct endpoint *to);

#endif
