/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DNS_CHANNEL_H
#define DNS_CHANNEL_H

#include <event2/event.h>

#include "policy/addr.h"

/*
 * Messages to one DNS server by UDP, by TCP where the answer was cut, or by
 * TCP alone: one try each, through c-ares.  A c-ares channel keeps its source
 * port while its queries overlap, so there are CHANNEL_POOL of them, a
 * message takes any one, and each is replaced after CHANNEL_MESSAGES or
 * CHANNEL_LIFE_MS: a guesser of ports has to start again each time.
 */
#define CHANNEL_POOL 16u
#define CHANNEL_MESSAGES 64u
#define CHANNEL_LIFE_MS 5000

struct channels;

enum channel_end {
	CHANNEL_ANSWERED = 0,	/* with this id and, but for the case of its
				 * letters, this question; any RCODE */
	CHANNEL_TIMEOUT,
	CHANNEL_FAILED,		/* refused, unreachable, malformed */
	CHANNEL_MEMORY,
};

/* msg holds during the call only.  Never called after channels_free. */
typedef void channel_done(void *arg, enum channel_end end, struct span msg);

/* 0, -ENOMEM or -EINVAL. */
MUST_USE int channels_new(struct channels **out, struct event_base *base,
    const struct endpoint *server, unsigned timeout_ms);
void channels_free(struct channels *c);

/*
 * Put a whole query (message_ask without padding); its ID is chosen here and
 * written into it.  done is called once, and may be called before this
 * returns.
 */
void channels_ask(struct channels *c, uint8_t *query, size_t len, bool tcp,
    channel_done *done, void *arg);

#endif
