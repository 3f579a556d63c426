/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DNS_TRUST_H
#define DNS_TRUST_H

#include <openssl/ssl.h>

#include "policy/span.h"

/*
 * Whose word is taken for who a DNS server over TLS is: the certificates of
 * a PEM file.  It is opened at the start, before the role may open nothing any
 * more, and read when the first such server is asked.
 */
struct trust;

/* `path` "": the system's.  One that cannot be opened gives no context later.
 * NULL when out of memory. */
MUST_USE struct trust *trust_new(const char *path);
void trust_free(struct trust *t);

/* TLS 1.2 and up, with verification.  Borrowed; NULL when the file could not
 * be opened or holds no certificate. */
SSL_CTX *trust_context(struct trust *t);

#endif
