/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PROXY_REFUSE_H
#define PROXY_REFUSE_H

#include "policy/policy.h"
#include "policy/verdict.h"
#include "proxy/http.h"

#define REFUSE_MAX_BYTES 4096u

/* What a refused client is told. */
struct refusal {
	enum reason reason;
	struct span place;	/* "host:port", printable; may be empty */
	struct span rule;	/* rule id; may be empty */
	struct span words;	/* the rule author's reason; may be empty */
	struct span help;	/* the policy's help; may be empty */
	bool json;		/* the client asked for JSON */
	bool head_only;		/* the request was HEAD */
	unsigned minor;		/* of the client's HTTP version */
};

/* 403 for a refusal of policy, 400 for bad input, 407, 408, 431, 5xx where
 * that is the truth.  A final no is never a 503. */
unsigned refuse_status(enum reason r);

/* The error type of RFC 9209 2.3 for Proxy-Status. */
const char *refuse_proxy_error(enum reason r);

/*
 * A whole HTTP answer: status line whose reason phrase carries the refusal
 * ("403 Denied by penstock: rule_deny evil.test:443 rule 7"), Proxy-Status,
 * Content-Length, Connection: close, and a body of two sentences or JSON.
 * Returns its length (never 0, never above REFUSE_MAX_BYTES).
 */
size_t refuse_http(const struct refusal *r,
    uint8_t out[static REFUSE_MAX_BYTES]);

/* A TLS alert record: fatal, access_denied for a refusal of policy,
 * decode_error or handshake_failure for bad hellos, internal_error for
 * failures of ours (RFC 8446 6).  Always 7 bytes. */
#define REFUSE_ALERT_BYTES 7u
void refuse_alert(enum reason r, uint8_t out[static REFUSE_ALERT_BYTES]);

#endif
