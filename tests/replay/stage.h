/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_REPLAY_STAGE_H
#define TESTS_REPLAY_STAGE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <pthread.h>

#include "ledger-client/count.h"
#include "ledger-client/record.h"
#include "proxy/proxy.h"

/*
 * A stage for replay tests: the engine's proxy in a thread, in a network
 * namespace of its own where 203.0.113.0/24 is local.  The test plays client,
 * origin, resolver and recorder with blocking sockets.
 *
 *   203.0.113.1   origin of allowed.test (and other.test)
 *   203.0.113.9   :443, :80, :22 transparent listeners (what the client
 *                 "wanted to reach"), :3128 explicit
 */
#define ORIGIN "203.0.113.1"
#define WANTED "203.0.113.9"

extern const struct proxy_limits stage_limits;

/* policy: the text of a policy file; NULL: the usual one. */
void stage_up(const char *policy, const struct proxy_limits *limits);
void stage_down(void);
/* The proxy ends; its last records can still be read. */
void stage_stop(void);
void stage_drain(void);
bool stage_drained(void);	/* what it was told of has come */
void stage_policy(const char *text);	/* reload */
void stage_limit(const struct proxy_limits *limits);	/* of other limits */
/* From the next policy on: cell "agent", who shows agent:secret, of this run
 * and with this policy; NULL: none. */
void stage_agent(const char *text, const char *run);
/* From the next policy on: what the agent has to show; NULL: "secret". */
void stage_token(const char *token);
/* From the next policy on: the cell "cell" is that of clients from this prefix
 * only; NULL: of everybody. */
void stage_home(const char *prefix);
/* The cells in this order, c(ell) and a(gent): "ac", say, or "a" alone; NULL:
 * as ever. */
void stage_cells(const char *order);
/* The engine stands still for 150 ms: what happens meanwhile it sees at once. */
void stage_hold(void);
void stage_beat(bool on);		/* the recorder's heartbeat */
void stage_pin(const char *name, const char *addr);
void stage_pin_brief(const char *name, const char *addr, int ms);
/* For another cell than "cell". */
void stage_pin_for(const char *cell, const char *run, const char *name,
    const char *addr);

int stage_listen(const char *addr, uint16_t port);
int stage_accept(int lfd);		/* -1: nobody within 300 ms */
int stage_connect(const char *addr, uint16_t port);
void stage_send(int fd, const void *data, size_t len);
void say(int fd, const char *text);
/* The same whole, or so that each byte is read alone. */
void stage_say(int fd, const char *text, bool whole);
/* The same, or that the bytes come, by a thread of its own; what stage_await
 * returns is whether it went well.  (A fork would keep the engine's sockets
 * open, and in its epoll, when it has closed them.) */
struct stage_job {
	int fd;
	const char *data;
	size_t len;
	bool expect;
	bool well;
	pthread_t thread;
};
void stage_begin(struct stage_job *j);
bool stage_await(struct stage_job *j);
int64_t stage_now_ms(void);		/* monotonic */
/* Exactly these bytes come. */
void stage_expect(int fd, const void *data, size_t len);
/* Until the end of the stream: returns the number; *reset says how. */
size_t stage_read_all(int fd, char *out, size_t size, bool *reset);
/* A head up to the empty line. */
size_t stage_read_head(int fd, char *out, size_t size);
/* The next record of that kind; fails the test when none comes. */
const struct record *stage_record(enum record_kind kind);
bool stage_no_record(enum record_kind kind);
int64_t stage_count(enum count what);
int64_t stage_denied(enum reason why);

/* A ClientHello with this name (NULL: none): its length. */
size_t stage_hello(const char *name, uint8_t *out, size_t size);
/* Put an extension of n bytes in front of the others; its data begins at
 * STAGE_EXTENSION.  The new length. */
#define STAGE_EXTENSION 56
size_t stage_extend(uint8_t *hello, size_t len, unsigned type, size_t n);
/* A server's HelloRetryRequest. */
extern const uint8_t stage_retry[45];

#endif
