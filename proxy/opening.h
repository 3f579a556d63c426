/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PROXY_OPENING_H
#define PROXY_OPENING_H

#include "policy/span.h"
#include "policy/verdict.h"

/*
 * The first bytes of a flow that is let pass without being read: of an opaque
 * flow, or of one to an address that a prefix rule opens.  Bytes that hide
 * from us what a server would read in them are refused; a ClientHello further
 * behind (STARTTLS and its kind) is found.  Pure.
 */

/* A ClientHello is looked for in so many bytes of the client. */
#define OPENING_WATCH_BYTES 65536u

/*
 * Bytes from the first one on that are neither a hello nor a request that is
 * read here.  PARSE_BAD with *why: they begin with
 *   - what servers skip in front of a request (blanks, empty lines), a request
 *     without a version, or one whose words are parted by anything but a
 *     blank (PROTOCOL);
 *   - a TLS record other than a handshake (PROTOCOL), a ClientHello in a
 *     record of a version that there is not, or an empty one
 *     (HELLO_MALFORMED), an SSLv2-style hello (HELLO_SSLV2);
 *   - a PROXY protocol header of version 1 or 2 (PROTOCOL).
 * PARSE_MORE: they may still become one of these.  PARSE_DONE: they cannot.
 */
MUST_USE enum parse opening_judge(struct span stream, enum reason *why);

/* The first line, byte by byte.  Embedded; zero it before use. */
struct opening_line {
	uint8_t matched;
	bool over;
};
/* Feed the bytes in order, each once.  True: the first line is one of text and
 * ends with a version of HTTP, which a lenient server takes for a request. */
MUST_USE bool opening_line_is_http(struct opening_line *l, struct span bytes);

/*
 * Where a ClientHello begins, in a record of any version that some server
 * takes, whole or in the smallest pieces: as much as tells it from other
 * bytes is there.  False: nowhere; then *at is where bytes begin that may
 * still become one, or the end.
 */
MUST_USE bool opening_find_hello(struct span s, size_t *at);

#endif
