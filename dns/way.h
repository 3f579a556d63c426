/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DNS_WAY_H
#define DNS_WAY_H

#include <sys/socket.h>
#include <sys/types.h>

#include "policy/addr.h"
#include "policy/span.h"

/*
 * The way of a datagram: who sent it, and which of our addresses it was sent
 * to, which is where its answer has to come from.
 */
struct way {
	int fd;
	struct sockaddr_storage peer;
	socklen_t peer_len;
	struct addr local;
	unsigned ifindex;
	bool has_local;
};

/* One datagram, with its way (zeroed by the caller): its length, cut to
 * `size`, or -1 with errno. */
ssize_t way_recv(struct way *way, int fd, void *data, size_t size);
/* Back on the same way.  One that is lost is asked for again by its client. */
void way_send(const struct way *way, struct span bytes);

#endif
