/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PROXY_JA4_H
#define PROXY_JA4_H

#include "policy/span.h"
#include "proxy/hello.h"

#define JA4_LIST_MAX 256u	/* ciphers, extensions, algorithms counted */

/* What the fingerprint is made of, GREASE (RFC 8701) left out. */
struct ja4_parts {
	uint16_t version;
	bool name;			/* server_name was there */
	struct span alpn;		/* first protocol, or empty */
	uint16_t ciphers[JA4_LIST_MAX];
	size_t n_ciphers;
	uint16_t extensions[JA4_LIST_MAX];
	size_t n_extensions;
	uint16_t algorithms[JA4_LIST_MAX];
	size_t n_algorithms;
};

bool ja4_is_grease(uint16_t v);

/* The JA4 fingerprint of a TLS-over-TCP ClientHello, 36 characters. */
void ja4_write(struct ja4_parts *parts, char out[static JA4_BYTES]);

#endif
