/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIDECAR_SOCKETS_H
#define SIDECAR_SOCKETS_H

#include "policy/addr.h"
#include "proxy/proxy.h"

/*
 * The sockets that the parent makes while it has the privilege to: bound,
 * close-on-exec, non-blocking.  Options that connections need (transparency,
 * no delay, keep-alive) are set here once and inherited by accept(2).
 * Each returns a descriptor or -errno.
 */
#define SOCKETS_BACKLOG 4096
#define SOCKETS_UDP_BYTES (1 << 20)	/* asked for; of questions that wait */

MUST_USE int sockets_listen(const struct endpoint *at, bool transparent);
MUST_USE int sockets_dns_udp(const struct endpoint *at, bool transparent);
/* "address:port" or "unix:/PATH".  A socket that nobody serves any more is
 * removed; -EADDRINUSE when somebody does, -EEXIST for a file of another
 * kind. */
MUST_USE int sockets_admin(const char *at);

/* Accept what waits and reset it, reading nothing; at most `max`. */
void sockets_reset_waiting(int fd, unsigned max);

#endif
