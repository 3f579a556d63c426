/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/flight.h"

#define RECORD_HANDSHAKE 22
#define SERVER_HELLO 2
#define HEAD_BYTES 5u
/* record head, message head, legacy version, random */
#define NEED_BYTES (HEAD_BYTES + 4u + 2u + 32u)

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

/* False as soon as the bytes held cannot begin a ServerHello. */
static bool
may_be_retry(const struct flight_watch *w)
{
	uint8_t n = w->len;
	uint8_t random = n > 11 ? (uint8_t)(n - 11) : 0;

	return (n < 1 || w->held[0] == RECORD_HANDSHAKE) &&
	    (n < 2 || w->held[1] == 3) &&
	    (n < 6 || w->held[5] == SERVER_HELLO) &&
	    memcmp(w->held + 11, retry_random, random) == 0;
}

/*
 * A server may cut its ServerHello into records of any size.  The heads of
 * the records after the first are taken out here, so that `held` is one
 * record head and the message.
 */
static bool
take_byte(struct flight_watch *w, uint8_t byte)
{
	/* skipped: low 16 bits are what is left of the record's body, above
	 * them how many bytes of the next head were seen */
	uint32_t left = w->skipped & 0xffff, head = w->skipped >> 16;

	if (w->len < HEAD_BYTES) {
		w->held[w->len++] = byte;
		if (w->len == HEAD_BYTES)
			w->skipped = (uint32_t)w->held[3] << 8 | w->held[4];
		return w->len < HEAD_BYTES || w->skipped != 0;
	}
	if (left > 0) {
		w->held[w->len++] = byte;
		w->skipped = left - 1;
		return true;
	}
	if (head == 0 && byte != RECORD_HANDSHAKE)
		return false;
	if (head == 3 || head == 4)
		w->held[head] = byte;
	w->skipped = (head + 1) << 16;
	if (head == 4)
		w->skipped = (uint32_t)w->held[3] << 8 | w->held[4];
	return head != 4 || w->skipped != 0;
}

enum flight
flight_feed(struct flight_watch *w, struct span bytes)
{
	for (size_t i = 0; i < bytes.len; i++) {
		if (!take_byte(w, bytes.data[i]) || !may_be_retry(w))
			return FLIGHT_OTHER;
		if (w->len == NEED_BYTES)
			return FLIGHT_RETRY;
	}
	return FLIGHT_MORE;
}
