/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PROXY_PROXY_H
#define PROXY_PROXY_H

#include <event2/event.h>

#include "dns/ask.h"
#include "dns/pin.h"
#include "ledger-client/count.h"
#include "ledger-client/emit.h"
#include "policy/decide.h"
#include "proxy/limit.h"

/*
 * One engine's proxy: what all of its connections share.  Nothing in it
 * belongs to one connection, and connections keep no pointer into the policy
 * across events, so a reload is one pointer swap.
 */
struct proxy;

/* All times in milliseconds, counted from the event named. */
struct proxy_limits {
	unsigned hello_ms;		/* accept to whole hello or head: 5000 */
	unsigned resolve_ms;		/* 5000 */
	unsigned connect_ms;		/* all addresses together: 10000 */
	unsigned stagger_ms;		/* to the next address: 250 */
	unsigned idle_ms;		/* relay without a byte: 3600000 */
	unsigned half_closed_ms;	/* the same once one side has ended:
					 * 60000; idle_ms where that is less */
	unsigned keepalive_ms;		/* between HTTP requests: 120000 */
	unsigned linger_ms;		/* refused client's bytes: 1000 */
	unsigned reload_grace_ms;	/* before forbidden flows are cut: 0 */
	size_t linger_bytes;		/* 16777216, of which none is held */
	size_t hello_bytes;		/* ClientHello: 16384 at most */
	size_t head_bytes;		/* HTTP head: 65536 at most */
	unsigned header_count;		/* its fields: 128 at most */
	unsigned connections;		/* of all engines: 20000 */
	unsigned per_cell;		/* of all engines; 0: of n cells each
					 * has an nth of three quarters, one
					 * alone has all */
	unsigned per_client;		/* of all engines: 4096 */
	unsigned pipe_share_percent;	/* of pipe-user-pages-soft: 50 */
	size_t copy_buffer_bytes;	/* shared by all: 65536 */
};
extern const struct proxy_limits proxy_limits_default;

enum listen_kind {
	LISTEN_TPROXY = 0,	/* original destination by getsockname */
	LISTEN_REDIRECT,	/* SO_ORIGINAL_DST */
	LISTEN_EXPLICIT,	/* CONNECT and absolute-form HTTP */
	LISTEN_NAMED,		/* the flow's name is its destination */
};

/* A listening socket made by the parent and shared by all engines. */
struct proxy_listener {
	int fd;			/* owned by the proxy from proxy_new on */
	enum listen_kind kind;
	char name[32];		/* as configured; part of the cell key */
	struct endpoint bound;	/* refused as an original destination */
	bool credential;	/* explicit: Basic is required */
	const char (*inside)[16]; /* borrowed: whoever comes in by none of */
	size_t n_inside;	/* these is of no cell; 0: it is not asked */
};

/* Borrowed, but for the listeners' descriptors; all outlive the proxy. */
struct proxy_parts {
	struct event_base *base;
	struct ask *ask;
	const struct pins *pins;
	struct emit *emit;
	struct counts *counts;
	struct limit *limit;		/* what all engines have open */
	unsigned n_engines;
	const struct proxy_limits *limits;
	const struct proxy_listener *listeners;
	size_t n_listeners;
	uint64_t connection_base;	/* first connection id of this engine */
};

MUST_USE int proxy_new(struct proxy **out, const struct proxy_parts *parts);
/* Cuts what is open. */
void proxy_free(struct proxy *p);

/*
 * A new policy: flows that it forbids are cut (after reload_grace_ms), open
 * decisions are taken with it.  NULL: everything is refused.  The old one may
 * be freed when this returns.
 */
void proxy_set_policy(struct proxy *p, const struct policy *policy);
/* From here on these count; what has begun keeps the time that it was given,
 * and without memory for another copy_buffer_bytes that one stays. */
void proxy_set_limits(struct proxy *p, const struct proxy_limits *limits);
/* A restarted resolver's table. */
void proxy_set_pins(struct proxy *p, const struct pins *pins);

/* Whoever comes from here on is refused (draining); `drained` is called once
 * when no connection is left of those that there were. */
void proxy_drain(struct proxy *p, void (*drained)(void *arg), void *arg);

/* The largest memory that all connections can hold in the engines, bytes: not
 * what the kernel holds for their sockets and pipes. */
uint64_t proxy_memory_max(const struct proxy_limits *l, unsigned n_engines);

#endif
