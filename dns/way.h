/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DNS_WAY_H
#define DNS_WAY_H

#include <sys/socket.h>

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

/* Many of them with one call into the kernel each way. */
struct way_batch;

#define WAY_BATCH 64u
#define WAY_QUERY_BYTES 1024u	/* no sound query is longer */
#define WAY_MAX_BYTES 1232u	/* an answer that no path cuts into pieces */

/* NULL when out of memory. */
MUST_USE struct way_batch *way_batch_new(void);
void way_batch_free(struct way_batch *b);

/* What has come on the socket; how many, at most WAY_BATCH. */
unsigned way_batch_recv(struct way_batch *b, int fd);
/* The i-th of them, cut to WAY_QUERY_BYTES; its bytes hold until the next
 * recv. */
struct span way_batch_get(const struct way_batch *b, unsigned i,
    struct way *way);
/* Back on the same way, at most WAY_MAX_BYTES; it leaves with the next flush,
 * or when there are many.  One that is lost is asked for again by its
 * client. */
void way_batch_put(struct way_batch *b, const struct way *way,
    struct span bytes);
void way_batch_flush(struct way_batch *b);

#endif
