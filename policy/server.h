/* SPDX-License-Identifier: Apache-2.0 */
#ifndef POLICY_SERVER_H
#define POLICY_SERVER_H

#include "policy/addr.h"
#include "policy/host.h"

/*
 * A DNS server that is asked, as operators write it:
 *
 *	address, address:port, [v6]:port	over UDP and TCP (RFC 1035)
 *	tls://address[:port]#name		over TLS (RFC 7858); it must
 *						show a certificate for name
 */
#define SERVER_PORT 53
#define SERVER_TLS_PORT 853
#define SERVER_TEXT_BYTES (ADDR_TEXT_BYTES + HOST_MAX_BYTES + 16)

struct server {
	struct endpoint at;
	char tls_name[HOST_MAX_BYTES + 1];	/* "": not over TLS */
};

/* What it looks like, for error messages. */
#define SERVER_FORMS "write an address, address:port, [v6]:port or " \
	"tls://address#name"

/* Every byte of *out is set. */
MUST_USE bool server_parse(struct server *out, struct span text);
bool server_eq(const struct server *a, const struct server *b);
/* In that form; returns out. */
char *server_text(const struct server *s, char out[static SERVER_TEXT_BYTES]);

#endif
