/* SPDX-License-Identifier: Apache-2.0 */
#ifndef POLICY_HOST_H
#define POLICY_HOST_H

#include "policy/span.h"
#include "policy/verdict.h"

#define HOST_MAX_BYTES 253	/* RFC 1035 2.3.4, without the root dot */
#define HOST_LABEL_MAX_BYTES 63

/*
 * A DNS name in its one canonical form: lower case, A-labels, no trailing
 * dot, letters, digits, hyphen and underscore only, terminated.  It is made
 * from a span by host_parse and by nothing else, so a rule and the traffic it
 * judges can never differ in spelling.  len 0 means "no name".
 */
struct host {
	uint8_t len;
	char name[HOST_MAX_BYTES + 1];
};

/*
 * Canonical form of a name as a client sends it: ASCII only, case folded, one
 * trailing dot removed.  A name that could be read as an address (its last
 * label is all digits, or 0x and hex digits; WHATWG URL 3.5, RFC 1123 2.1)
 * is refused as an
 * address literal.  Returns REASON_NONE, or why it is no name
 * (REASON_NAME_MALFORMED, REASON_ADDRESS_LITERAL); then out->len is 0.
 */
MUST_USE enum reason host_parse(struct host *out, struct span text);

/*
 * The same for a name as an operator writes it: U-labels become A-labels
 * first (IDNA2008 by libidn2, RFC 5891).  Used at load only.
 */
MUST_USE enum reason host_parse_policy(struct host *out, struct span text);

bool host_eq(const struct host *a, const struct host *b);

/*
 * The span of the name that begins at label n (0: the whole name), empty when
 * there are fewer labels.  Walking n upwards visits every parent.
 */
struct span host_suffix(const struct host *h, unsigned n);

unsigned host_labels(const struct host *h);

/* True when `name` lies under `parent` (one or more labels deeper). */
bool host_under(const struct host *name, const struct host *parent);

#endif
