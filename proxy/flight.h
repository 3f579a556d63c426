/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PROXY_FLIGHT_H
#define PROXY_FLIGHT_H

#include "policy/span.h"

/*
 * Watches the first flight of a TLS server just far enough to tell a
 * HelloRetryRequest (RFC 8446 4.1.4: a ServerHello with the fixed random)
 * from anything else.  After a retry the client's second hello is judged like
 * the first.  Keeps the few bytes that it needs; never more than one record
 * header, handshake header and random.
 */
enum flight {
	FLIGHT_OTHER = 0,	/* not a retry; stop watching */
	FLIGHT_MORE,
	FLIGHT_RETRY,
};

struct flight_watch {
	uint8_t held[64];
	uint8_t len;
	uint32_t skipped;	/* bytes of the record not yet seen */
};

void flight_init(struct flight_watch *w);
/* Feed the server's bytes in order, each once. */
enum flight flight_feed(struct flight_watch *w, struct span bytes);

#endif
