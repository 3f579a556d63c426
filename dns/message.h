/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DNS_MESSAGE_H
#define DNS_MESSAGE_H

#include "dns/pin.h"
#include "policy/host.h"
#include "policy/span.h"

/* The wire form of DNS messages (RFC 1035 4, RFC 6891); no sockets. */
#define MESSAGE_MAX_BYTES 65535u
#define MESSAGE_QNAME_MAX_BYTES 255u

enum message_type { TYPE_A = 1, TYPE_NS = 2, TYPE_CNAME = 5, TYPE_SOA = 6,
	TYPE_PTR = 12, TYPE_MX = 15, TYPE_TXT = 16, TYPE_AAAA = 28,
	TYPE_SRV = 33, TYPE_OPT = 41, TYPE_SVCB = 64, TYPE_HTTPS = 65,
	TYPE_AXFR = 252, TYPE_ANY = 255 };
enum message_rcode { RCODE_NOERROR = 0, RCODE_FORMERR = 1,
	RCODE_SERVFAIL = 2, RCODE_NXDOMAIN = 3, RCODE_NOTIMP = 4,
	RCODE_REFUSED = 5, RCODE_BADVERS = 16 };

struct message_question {
	uint16_t id;
	uint8_t opcode;
	bool rd, cd;
	uint16_t type, class;
	uint8_t qname[MESSAGE_QNAME_MAX_BYTES];	/* wire form, case kept */
	uint8_t qname_len;
	struct host name;	/* canonical; len 0: the root or no host name */
	bool edns;
	uint8_t edns_version;
	bool dnssec_ok;
	uint16_t udp_bytes;	/* what the client takes; 512 without EDNS */
};

/*
 * Read a query.  PARSE_DONE: one question, all sound.  PARSE_BAD with *id
 * set when at least a header was there: answer message_unread; id_known
 * false: drop (responses, too short).
 */
MUST_USE enum parse message_query(struct span msg,
    struct message_question *out, bool *id_known);

/* What to answer. */
struct message_answer {
	enum message_rcode rcode;
	bool authoritative;
	uint32_t ttl_s;
	const struct addr *addrs;	/* of the question's type */
	size_t n_addrs;
	bool negative_soa;	/* put a synthesised SOA (ttl_s) in authority */
	int ede;		/* RFC 8914 INFO-CODE, -1: none */
	const char *ede_text;	/* or NULL */
};

/*
 * Write the reply into out[size]; the question is echoed byte for byte,
 * owner names are compressed, TC is set when answers had to be left out.
 * Returns the length.
 */
size_t message_reply(const struct message_question *q,
    const struct message_answer *a, uint8_t *out, size_t size);
<<<<<<< HEAD
/* For an unreadable query with a known id: FORMERR, or NOTIMP where its opcode
 * is another one (UPDATE and NOTIFY have other sections).  The header alone. */
size_t message_unread(struct span msg, uint8_t *out, size_t size);
=======
/*
 * Write a query of our own: RD, EDNS with UDP_BYTES; the letters of the name
 * in capitals where `capitals` has a bit (draft-vixie-dnsext-dns0x20).  With
 * pad_to the length is a multiple of it (RFC 7830, 8467), else the OPT record
 * is the last 11 bytes.  Returns the length.
 */
#define MESSAGE_ASK_MAX_BYTES 512u
size_t message_ask(const struct host *name, uint16_t type, uint16_t id,
    const uint8_t capitals[static 32], unsigned pad_to,
    uint8_t out[static MESSAGE_ASK_MAX_BYTES]);
/* Whether a reply echoes the query's question. */
enum message_echo { MESSAGE_OTHER = 0, MESSAGE_OTHER_CASE, MESSAGE_ECHO };
enum message_echo message_echo(struct span query, struct span reply);

/* FORMERR for an unreadable query with a known id. */
size_t message_formerr(struct span msg, uint8_t *out, size_t size);
>>>>>>> 179a077 (dns: transport to the pinned servers, DNS over TLS, tunnel scores)

/*
 * Walk the answer section of an upstream reply to (name, type): follows
 * CNAMEs (at most MESSAGE_CHAIN_MAX) from `name` and collects the addresses
 * at the end of the chain.  PARSE_BAD when the message is malformed, answers
 * another question or loops.  *ttl_s is the least of the chain; for negative
 * answers min(SOA TTL, minimum) or 0.  *rcode is the header's.
 */
#define MESSAGE_CHAIN_MAX 12u
MUST_USE enum parse message_addrs(struct span msg, const struct host *name,
    uint16_t type, struct addr out[static PIN_ADDRS_MAX], uint32_t *n,
    uint32_t *ttl_s, uint8_t *rcode);

#endif
