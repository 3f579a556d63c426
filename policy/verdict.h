/* SPDX-License-Identifier: Apache-2.0 */
#ifndef POLICY_VERDICT_H
#define POLICY_VERDICT_H

#include "policy/span.h"

/* Zero is deny: whatever was not decided is refused. */
enum verdict {
	VERDICT_DENY = 0,
	VERDICT_ALLOW,
};

/*
 * Every reason of the program, one word each: the same word stands in the
 * record, the log, the metrics, Proxy-Status and the manual.  The text is a
 * sentence for people and agents.
 *
 * X(name, word, text)
 */
#define REASON_LIST(X) \
X(NONE, "none", "no reason was given") \
/* what the policy says */ \
X(RULE, "rule", "a rule allows it") \
X(REPORT, "report", "no rule matches; the policy only reports") \
X(NO_RULE, "no_rule", "no rule allows it") \
X(RULE_DENY, "rule_deny", "a rule denies it") \
X(CIDR_DENY, "cidr_deny", "a rule denies this address") \
X(SPECIAL_USE, "special_use", "the address is of a special-use class") \
X(PRIVATE_ADDRESS, "private_address", \
    "the address is private and no rule opens it") \
X(SINKHOLE, "sinkhole", "its name was denied when it was asked for") \
X(OWN_LISTENER, "own_listener", "the destination is penstock itself") \
X(UNKNOWN_CELL, "unknown_cell", "the client belongs to no cell") \
X(NOT_PINNED, "not_pinned", \
    "no allowed name has this address now") \
X(NAMELESS, "nameless", \
    "the connection shows no name and no address rule allows it") \
X(ADDRESS_LITERAL, "address_literal", \
    "an address literal stands where a name is needed") \
X(NO_SNI, "no_sni", "the ClientHello carries no server name") \
X(ECH, "ech", "the ClientHello hides its name (ECH)") \
X(SNI_MISMATCH, "sni_mismatch", \
    "the name in the ClientHello is not the name that was asked for") \
X(HOST_MISMATCH, "host_mismatch", \
    "the Host field is not the name that was asked for") \
X(SECOND_HELLO, "second_hello", \
    "the second ClientHello carries another name than the first") \
X(OTHER_NAME, "other_name", \
    "an opaque connection shows a name that its rule does not cover") \
X(PROTOCOL, "protocol", \
    "the bytes are not of the protocol that this port speaks") \
X(NESTED_PROXY, "nested_proxy", "a proxy request inside a tunnel") \
/* what could not be read */ \
X(NAME_MALFORMED, "name_malformed", "the name is not a host name") \
X(HELLO_MALFORMED, "hello_malformed", "the ClientHello is malformed") \
X(HELLO_TOO_LARGE, "hello_too_large", "the ClientHello is too large") \
X(HELLO_TIMEOUT, "hello_timeout", \
    "the ClientHello was not complete in time") \
X(HELLO_SSLV2, "hello_sslv2", "an SSLv2-style hello carries no name") \
X(HELLO_NAMES, "hello_names", "the ClientHello carries several names") \
X(HELLO_INCOMPLETE, "hello_incomplete", \
    "the client ended before its hello or head was complete") \
X(NOT_TLS, "not_tls", "the bytes are neither TLS nor HTTP") \
X(HEAD_MALFORMED, "head_malformed", "the HTTP head is malformed") \
X(HEAD_TOO_LARGE, "head_too_large", "the HTTP head is too large") \
X(HEAD_TIMEOUT, "head_timeout", "the HTTP head was not complete in time") \
X(FRAMING, "framing", "the HTTP message has an ambiguous or broken length") \
X(METHOD, "method", "this HTTP method is not forwarded") \
X(UPGRADE, "upgrade", "this HTTP upgrade is not forwarded") \
X(VERSION, "version", "this HTTP version is not spoken") \
X(TARGET, "target", "the request target is not of an accepted form") \
X(EXPECTATION, "expectation", "this Expect field is not understood") \
/* who asks */ \
X(AUTH_REQUIRED, "auth_required", "a proxy credential is required") \
X(AUTH_FAILED, "auth_failed", "the proxy credential is not valid") \
/* names */ \
X(DNS_NXDOMAIN, "dns_nxdomain", "the name does not exist") \
X(DNS_NODATA, "dns_nodata", "the name has no address") \
X(DNS_SERVFAIL, "dns_servfail", "the resolver could not answer") \
X(DNS_TIMEOUT, "dns_timeout", "the resolver did not answer in time") \
X(DNS_SPECIAL_USE, "dns_special_use", \
    "the name resolves to addresses that are not dialled for a name") \
X(DNS_TYPE, "dns_type", "questions of this type are not answered") \
X(TUNNEL, "tunnel", "names are used to carry data (DNS tunnel)") \
X(DNS_MALFORMED, "dns_malformed", "the DNS message is malformed") \
X(RESOLVER_UNAVAILABLE, "resolver_unavailable", \
    "penstock's resolver is not there") \
/* the way up */ \
X(CONNECT_REFUSED, "connect_refused", "the server refused the connection") \
X(CONNECT_TIMEOUT, "connect_timeout", "the server did not answer in time") \
X(UNREACHABLE, "unreachable", "the server cannot be reached") \
X(UPSTREAM_CLOSED, "upstream_closed", \
    "the server ended before it answered") \
X(UPSTREAM_MALFORMED, "upstream_malformed", \
    "the server's answer is malformed") \
X(UPSTREAM_HEAD_TOO_LARGE, "upstream_head_too_large", \
    "the head of the server's answer is too large") \
X(UPSTREAM_TIMEOUT, "upstream_timeout", \
    "the server did not answer the request in time") \
/* ours */ \
X(LIMIT_TOTAL, "limit_total", "all that may be open is in use") \
X(LIMIT_CELL, "limit_cell", "this cell holds its share of what may be open") \
X(LIMIT_CLIENT, "limit_client", \
    "this client holds its share of what may be open") \
X(LIMIT_DESCRIPTORS, "limit_descriptors", "no descriptor is free") \
X(LIMIT_MEMORY, "limit_memory", "no memory is free") \
X(LEDGER_UNAVAILABLE, "ledger_unavailable", \
    "the decision cannot be recorded") \
X(ORIGINAL_DESTINATION, "original_destination", \
    "the original destination is not known") \
X(POLICY_CHANGED, "policy_changed", "a new policy does not allow it") \
X(POLICY_UNAVAILABLE, "policy_unavailable", "no policy is loaded") \
X(IDLE, "idle", "no byte moved within the idle limit") \
X(DRAINING, "draining", "penstock is stopping") \
X(ENGINE_LOST, "engine_lost", "the engine that held it ended") \
X(INTERNAL, "internal", "penstock failed")

enum reason {
#define X(name, word, text) REASON_##name,
	REASON_LIST(X)
#undef X
	REASON_COUNT
};

/* The word and the sentence; both static and never NULL. */
const char *reason_word(enum reason r);
const char *reason_text(enum reason r);
const char *verdict_word(enum verdict v);

#endif
