/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/flight.h"

#include <stddef.h>

#define RECORD_CHANGE_CIPHER_SPEC 20
#define RECORD_ALERT 21
#define RECORD_HANDSHAKE 22
#define HELLO_REQUEST 0
#define SERVER_HELLO 2
#define MESSAGE_HEAD_BYTES 4u
#define RANDOM_AT 6u		/* behind message head and legacy version */

/* SHA-256 of "HelloRetryRequest" (RFC 8446 4.1.3). */
static const uint8_t retry_random[32] = {
	0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c,
	0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2, 0xa2, 0x11, 0x16, 0x7a, 0xbb,
	0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c
};

void
flight_init(struct flight_watch *w)
{
	memset(w, 0, sizeof(*w));
}

/* HelloRequest has no body (RFC 5246 7.4.1.1), and clients pass over it. */
static enum flight
judge_other(struct flight_watch *w)
{
	if (w->held[0] != HELLO_REQUEST)
		return FLIGHT_OTHER;
	for (size_t i = 1; i < w->len; i++)
		if (w->held[i] != 0)
			return FLIGHT_OTHER;
	if (w->len == MESSAGE_HEAD_BYTES)
		w->len = 0;
	return FLIGHT_MORE;
}

/* The bytes of the message that are held. */
static enum flight
judge(struct flight_watch *w)
{
	size_t random = w->len > RANDOM_AT ? w->len - RANDOM_AT : 0;

	if (w->len == 0)
		return FLIGHT_MORE;
	if (w->held[0] != SERVER_HELLO)
		return judge_other(w);
	if (memcmp(w->held + RANDOM_AT, retry_random, random) != 0)
		return FLIGHT_HELLO;
	return w->len == sizeof(w->held) ? FLIGHT_RETRY : FLIGHT_MORE;
}

static bool
head_ok(const struct flight_watch *w)
{
	uint8_t type = w->head[0];

	return (type == RECORD_HANDSHAKE || type == RECORD_ALERT ||
	    type == RECORD_CHANGE_CIPHER_SPEC) &&
	    (w->head_len < 2 || w->head[1] == 3);
}

/* A server may cut its ServerHello into records of any size, and put records
 * of other kinds before and between.  False: this is no TLS. */
static bool
take_byte(struct flight_watch *w, uint8_t byte)
{
	if (w->head_len < sizeof(w->head)) {
		w->head[w->head_len++] = byte;
		if (!head_ok(w))
			return false;
		w->left = (uint16_t)(w->head[3] << 8 | w->head[4]);
	} else {
		w->left--;
		if (w->head[0] == RECORD_HANDSHAKE)
			w->held[w->len++] = byte;
	}
	if (w->head_len == sizeof(w->head) && w->left == 0)
		memset(w, 0, offsetof(struct flight_watch, left));
	return true;
}

enum flight
flight_feed(struct flight_watch *w, struct span bytes)
{
	for (size_t i = 0; i < bytes.len; i++) {
		enum flight got;

		if (!take_byte(w, bytes.data[i]))
			return FLIGHT_OTHER;
		got = judge(w);
		if (got != FLIGHT_MORE)
			return got;
	}
	return FLIGHT_MORE;
}
