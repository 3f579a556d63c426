/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PROXY_FLIGHT_H
#define PROXY_FLIGHT_H

#include "policy/span.h"

/*
 * Watches the first flight of a TLS server just far enough to tell a
 * HelloRetryRequest (RFC 8446 4.1.4: a ServerHello with the fixed random)
 * from any other ServerHello.  After a retry the client's second hello is
 * judged like the first; after another ServerHello there is none.  What a
 * client passes over before it is passed over here: alerts,
 * change_cipher_spec, empty records, HelloRequest.  Keeps the few bytes that
 * it needs; never more than one record head, message head and random.
 */
enum flight {
	FLIGHT_OTHER = 0,	/* no ServerHello: nothing is known */
	FLIGHT_MORE,
	FLIGHT_RETRY,
	FLIGHT_HELLO,		/* one that is no retry; stop watching */
};

struct flight_watch {
	uint8_t head[5];	/* of the record at hand */
	uint8_t head_len;
	uint16_t left;		/* bytes of its body not yet seen */
	uint8_t held[38];	/* of the message: its head, version, random */
	uint8_t len;
};

void flight_init(struct flight_watch *w);
/* Feed the server's bytes in order, each once. */
enum flight flight_feed(struct flight_watch *w, struct span bytes);

#endif
