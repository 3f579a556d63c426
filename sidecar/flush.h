/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIDECAR_FLUSH_H
#define SIDECAR_FLUSH_H

#include "policy/host.h"

/*
 * "Forget what you know of this name", from the role admin to the resolver
 * over a SOCK_SEQPACKET pair, and how many answers of the cache went.  Pins
 * stay: whoever got an address may still use it.
 */
struct flush_order {
	uint64_t number;	/* the asker's own */
	struct host name;	/* len 0: all of them */
};

struct flush_done {
	uint64_t number, answers;
};

/* Each 0, -EAGAIN (the other side does not read, or there is nothing to
 * read), -EPIPE at the end, -EBADMSG, or another -errno. */
MUST_USE int flush_order_send(int fd, const struct flush_order *o);
MUST_USE int flush_order_read(int fd, struct flush_order *o);
MUST_USE int flush_done_send(int fd, const struct flush_done *d);
MUST_USE int flush_done_read(int fd, struct flush_done *d);

#endif
