/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PROXY_JA4_H
#define PROXY_JA4_H

#include "policy/span.h"
#include "proxy/hello.h"

/* No list of 16-bit values in a hello can be longer: nothing is left out. */
#define JA4_LIST_MAX (HELLO_MAX_BYTES / 2)
#define JA4_EXTENSIONS_MAX 128u	/* more are refused by hello */

/*
 * What the fingerprint is made of, GREASE (RFC 8701) left out.  Large: static
 * in its user, and emptied by ja4_clear, which leaves the lists' bytes alone.
 */
struct ja4_parts {
	uint16_t version;
	bool name;			/* server_name was there */
	struct span alpn;		/* first protocol, or empty */
	uint16_t ciphers[JA4_LIST_MAX];
	size_t n_ciphers;
	uint16_t extensions[JA4_EXTENSIONS_MAX];
	size_t n_extensions;
	uint16_t algorithms[JA4_LIST_MAX];
	size_t n_algorithms;
};

void ja4_clear(struct ja4_parts *parts);

bool ja4_is_grease(uint16_t v);

/* The JA4 fingerprint of a TLS-over-TCP ClientHello, 36 characters. */
void ja4_write(struct ja4_parts *parts, char out[static JA4_BYTES]);

#endif
