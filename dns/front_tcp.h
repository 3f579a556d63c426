/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DNS_FRONT_TCP_H
#define DNS_FRONT_TCP_H

#include <event2/event.h>

#include "policy/addr.h"
#include "policy/span.h"
#include "policy/verdict.h"

/*
 * DNS over TCP (RFC 7766) for the front: connections, the length prefix,
 * pipelined messages, half-close.  Knows nothing of what the messages say.
 */
struct front_tcp_listener;
struct front_tcp;		/* one connection */

#define FRONT_TCP_OPEN_MAX 64u	/* unanswered messages of a connection */

struct front_tcp_settings {
	struct event_base *base;
	/* Connections.  Where all are open, one of the client that has the
	 * most of them gives way to one of a client that has fewer: its oldest
	 * without an open question (RFC 7766 6.2.3). */
	unsigned max;
	unsigned client_max;		/* of one address; 0: as many */
	/* From its begin, and from each whole message: bytes that are none do
	 * not count. */
	unsigned idle_ms;
	/* A whole message; answers may come later, in any order. */
	void (*message)(void *arg, struct front_tcp *conn, int fd,
	    const struct endpoint *client, struct span msg);
	/* A connection was closed at once: LIMIT_TOTAL, LIMIT_CLIENT or
	 * LIMIT_MEMORY; or later, as an answer found no memory. */
	void (*refused)(void *arg, const struct endpoint *client,
	    enum reason why);
	void *arg;
};

/* The listening socket is owned from here on; NULL when out of memory. */
MUST_USE struct front_tcp_listener *front_tcp_listen(
    const struct front_tcp_settings *s, int fd);
void front_tcp_close(struct front_tcp_listener *l);

/* Send one message back. */
void front_tcp_answer(struct front_tcp *conn, struct span msg);
/* A message of this connection waits: it is kept until released, though its
 * client may be gone. */
void front_tcp_hold(struct front_tcp *conn);
void front_tcp_release(struct front_tcp *conn);
/* The interface that it came in by; 0 when not known. */
unsigned front_tcp_ifindex(const struct front_tcp *conn);

#endif
