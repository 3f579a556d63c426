/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PROXY_HELLO_H
#define PROXY_HELLO_H

#include "policy/host.h"
#include "policy/span.h"
#include "policy/verdict.h"

#define HELLO_MAX_BYTES 16384u	/* of the handshake message, RFC 8446 4 */
#define HELLO_RECORDS_MAX 512u	/* pieces that one hello may come in */
#define HELLO_STREAM_MAX_BYTES (HELLO_MAX_BYTES + 5u * HELLO_RECORDS_MAX)
#define JA4_BYTES 37		/* 36 characters and the NUL */

/* What a ClientHello (RFC 8446 4.1.2, RFC 6066 3) says of its sender. */
struct hello {
	struct host name;	/* len 0: none shown */
	bool ech;		/* extension 0xfe0d, real or GREASE */
	bool early_data;
	uint16_t version;	/* the highest offered, GREASE left out */
	char ja4[JA4_BYTES];
	char alpn[16];		/* the first protocol, printable, cut */
	size_t stream_bytes;	/* where the hello's last record ends */
};

/*
 * Reads a hello from a stream that grows: over any split into TCP segments
 * and TLS records.  Embedded in its user; hello_reader_init before use.
 */
struct hello_reader {
	size_t at;		/* records before this offset were walked */
	size_t message;		/* handshake bytes in them */
	uint32_t want;		/* length of the message, 0: not known */
	uint32_t max;		/* the largest that is read */
	unsigned records;
};

/* `max` bytes of the message at most, and never more than HELLO_MAX_BYTES. */
void hello_reader_init(struct hello_reader *r, size_t max);

/*
 * `stream` is everything the client sent so far, from its first byte; each
 * call may pass more of it and costs are linear in the total.  PARSE_DONE
 * fills *out.  PARSE_BAD sets *why (NOT_TLS at the first byte that cannot be
 * a handshake record, HELLO_SSLV2, HELLO_MALFORMED, HELLO_TOO_LARGE as soon
 * as the length field says so, HELLO_NAMES, NAME_MALFORMED, ADDRESS_LITERAL).
 * A hello without server_name is PARSE_DONE with name.len 0.
 */
MUST_USE enum parse hello_feed(struct hello_reader *r, struct span stream,
    struct hello *out, enum reason *why);

#endif
