/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DNS_DOT_H
#define DNS_DOT_H

#include <openssl/ssl.h>

#include "dns/channel.h"

/*
 * Messages to one DNS server over TLS (RFC 7858): one connection, many
 * messages in flight, closed when nobody has asked for DOT_IDLE_S.  The
 * server must show a certificate for its name that the context trusts; it is
 * never asked without.
 */
#define DOT_IDLE_S 10
#define DOT_OPEN_MAX 32768u	/* messages in flight, half of their numbers;
				 * one more is CHANNEL_MEMORY.  It is above
				 * what the default of open questions can
				 * bring, which cells share (dns/share.h):
				 * nobody shares this. */
#define DOT_PAD_BYTES 128u	/* RFC 8467: for message_ask */

struct dot;

/* `name` is copied, the context gets a reference.  0 or -ENOMEM. */
MUST_USE int dot_new(struct dot **out, struct event_base *base,
    const struct endpoint *server, const char *name, SSL_CTX *tls,
    unsigned timeout_ms);
void dot_free(struct dot *d);

/* As channels_ask. */
void dot_ask(struct dot *d, uint8_t *query, size_t len, channel_done *done,
    void *arg);

#endif
